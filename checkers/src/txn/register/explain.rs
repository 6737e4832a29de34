//! Why does each step of a cycle among registers hold, and what exactly is wrong elsewhere?
//!
//! As with lists, the micro-operations that make a step hold are found again. Versions of a key are ordered by inference: that
//! is made once more for each key asked about.

use elench_formats::History;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::keys::{INITIAL, Known, Scan, Touch, Version};
use super::refute::{self, By};
use super::{Assumptions, Initial, Read, Registers};
use crate::graph::Rel;
use crate::graph::search::Link;
use crate::outcome::OpId;
use crate::txn::anomaly::Anomaly;
use crate::txn::explain::{
    Derived, Explained, ExplainedCase, ExplainedCycle, ExplainedRefutation, Lemma, MopAt, Reason, Step,
};
use crate::txn::history::{Kind, Mop, NIL, NONE, Txn, Txns};
use crate::txn::lists::Case;
use crate::txn::{Options, TxnResult, cycles, verify};

/// Gives examples their reasons.
pub(super) fn explain(
    history: &History,
    registers: &Registers<'_>,
    found: &cycles::Cycles,
    options: &Options,
    result: &mut TxnResult,
) {
    let names = Names { history, txns: registers.txns, initial: registers.initial };
    let mut explainer = Explainer { names, registers, keys: HashMap::default() };
    for case in registers.cases().examples() {
        result.tell(case.kind, options, || Explained::Case(explainer.case(case)));
    }
    for cycle in found.examples.values().flatten() {
        result.tell(cycle.kind, options, || {
            let steps = cycle.steps().map(|(link, at)| explainer.step(link, at)).collect();
            Explained::Cycle(ExplainedCycle { kind: cycle.kind, steps })
        });
    }
}

/// A refutation in the terms of the history, if it holds of it. `initial` is the EDN text of the value that keys have before anybody writes
/// them. O(history).
pub(super) fn refutation(
    history: &History,
    read: &Read<'_>,
    lemmas: &[refute::Lemma],
    initial: Option<&str>,
) -> Option<ExplainedRefutation> {
    let names = Names { history, txns: read.txns, initial: read.initial };
    let pair = |&(one, other): &(Txn, Txn)| (read.txns.op(one), read.txns.op(other));
    let lemma = |lemma: &refute::Lemma| Lemma {
        supposed: lemma.supposed.iter().map(pair).collect(),
        derived: lemma.derived.iter().map(|(before, by)| Derived { before: pair(before), lemma: *by }).collect(),
        steps: lemma.steps.iter().map(|&step| names.refuting(step)).collect(),
    };
    let mut refutation = ExplainedRefutation { kind: Anomaly::PlSsCycle, lemmas: lemmas.iter().map(lemma).collect() };
    let held = verify::Registers::new(history, Assumptions::default(), initial).refutation(history, &refutation.lemmas);
    // What was written twice, for instance, shows nothing.
    refutation.kind = held.ok()?;
    Some(refutation)
}

/// A key's versions and their order, inferred once more for explanations.
struct Ordered {
    versions: Vec<Known>,
    touches: Vec<Touch>,
    order: Vec<(Version, Version)>,
}

impl Ordered {
    /// Does one version come before another one, if not right before it? O(versions).
    fn precedes(&self, earlier: Version, later: Version) -> bool {
        let mut seen = vec![false; self.versions.len()];
        let mut open = vec![earlier];
        while let Some(version) = open.pop() {
            let from = self.order.partition_point(|p| p.0 < version);
            for &(_, next) in self.order[from..].iter().take_while(|p| p.0 == version) {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    open.push(next);
                }
            }
        }
        seen[later as usize]
    }
}

/// What is what in the history, and what rests on no order of versions.
#[derive(Clone, Copy)]
struct Names<'a> {
    history: &'a History,
    txns: &'a Txns<'a>,
    initial: Option<&'a Initial>,
}

impl Names<'_> {
    fn text(&self, value: i64) -> String {
        match (value, self.initial) {
            (NIL, None) => "nil".to_string(),
            (NIL, Some(initial)) => initial.text.clone(),
            (value, Some(initial)) if value == initial.nil => "nil".to_string(),
            (value, _) => self.txns.text(self.history, value),
        }
    }

    fn key_text(&self, key: u32) -> String {
        self.txns.key_text(self.history, key)
    }

    fn at(&self, mop: Mop) -> MopAt {
        let txn = self.txns.txn_of(mop);
        MopAt { op: self.txns.op(txn), at: mop - self.txns.offsets[txn as usize] }
    }

    fn op(&self, mop: Mop) -> OpId {
        self.at(mop).op
    }

    /// One read what the other one wrote, where a value of a key shows who wrote it.
    fn wr(&self, link: Link, shown_by: Mop, mut shows: impl FnMut(u32, i64) -> bool) -> Option<(Reason, String)> {
        let txns = self.txns;
        // Others see the first that a transaction reads of a key, and the last that it writes.
        let says = |&m: &usize| txns.kind[m] == Kind::Read || txns.kind[m].writes();
        let first = |&r: &usize| txns.mops(link.to).filter(says).find(|&m| txns.key[m] == txns.key[r]) == Some(r);
        let given = |m: usize| shown_by == NONE || m as Mop == shown_by;
        let reads = txns.mops(link.to).filter(|&m| txns.kind[m] == Kind::Read && given(m)).filter(first);
        let (write, read) = reads
            .filter_map(|r| {
                let last = txns.mops(link.from).rfind(|&w| txns.kind[w].writes() && txns.key[w] == txns.key[r])?;
                (txns.value[last] == txns.value[r]).then_some((last as Mop, r as Mop))
            })
            .find(|&(_, read)| shows(txns.key[read as usize], txns.value[read as usize]))?;
        let (key, value) = (self.key_text(txns.key[read as usize]), self.text(txns.value[read as usize]));
        let text = format!("{} read {key} = {value}, which {} wrote", self.op(read), self.op(write));
        Some((Reason::Wr { write: self.at(write), read: self.at(read) }, text))
    }

    fn process(&self, link: Link) -> Option<(Reason, String)> {
        let row = self.txns.row[link.from as usize] as usize;
        let process = self.history.op(row).process()?;
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        Some((Reason::Process(process), format!("process {process} ran {from} before {to}")))
    }

    fn real_time(&self, link: Link) -> Option<(Reason, String)> {
        let (completed, invoked) = (self.txns.complete[link.from as usize], self.txns.invoke[link.to as usize]);
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        let text = format!("{from} completed at event {completed}, before {to} was invoked at event {invoked}");
        (completed < invoked).then_some((Reason::RealTime { completed, invoked }, text))
    }

    /// A step of a refutation.
    fn refuting(&self, refute::Step { before: (from, to), by }: refute::Step) -> Step {
        let rel = match by {
            By::Supposed => Rel::Ww,
            By::Wr(_) => Rel::Wr,
            By::Rw(..) => Rel::Rw,
            By::Process => Rel::Process,
            By::RealTime => Rel::RealTime,
        };
        let link = Link { from, to, rel };
        let found = match by {
            By::Supposed => {
                let (from, to) = (self.txns.op(from), self.txns.op(to));
                Some((Reason::Supposed, format!("{from} comes before {to}")))
            }
            By::Wr(read) => self.wr(link, read, |_, _| true),
            By::Rw(read, writer) => self.missed(link, read, writer),
            By::Process => self.process(link),
            By::RealTime => self.real_time(link),
        };
        self.step(link, found)
    }

    /// Of a refutation: one read what another one wrote, and the other one overwrote.
    fn missed(&self, link: Link, read: Mop, writer: Txn) -> Option<(Reason, String)> {
        let txns = self.txns;
        let key = txns.key[read as usize];
        let write = txns.mops(link.to).rfind(|&m| txns.kind[m].writes() && txns.key[m] == key)? as Mop;
        let (old, new) = (self.text(txns.value[read as usize]), self.text(txns.value[write as usize]));
        let (reader, key, other) = (self.op(read), self.key_text(key), self.op(write));
        let text = match writer {
            NONE => format!("{reader} read {key} = {old}, which {other} overwrote with {new}"),
            writer => {
                format!("{reader} read {key} = {old}, which {} wrote before {other} wrote {new}", txns.op(writer))
            }
        };
        Some((Reason::Rw { read: self.at(read), write: self.at(write) }, text))
    }

    fn step(&self, link: Link, found: Option<(Reason, String)>) -> Step {
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        let (reason, text) = match found {
            Some((reason, text)) => (Some(reason), text),
            None => (None, format!("{from} comes before {to} ({})", link.rel)),
        };
        Step { from, to, rel: link.rel, reason, text }
    }
}

/// Finds the reasons of what was found.
struct Explainer<'a> {
    names: Names<'a>,
    registers: &'a Registers<'a>,
    keys: HashMap<u32, Ordered, FixedState>,
}

impl Explainer<'_> {
    fn case(&self, case: &Case) -> ExplainedCase {
        let key = self.names.key_text(case.key);
        let values: Vec<String> = case.elements.iter().map(|&v| self.names.text(v)).collect();
        let ops: Vec<String> = case.mops.iter().map(|&m| self.names.op(m).to_string()).collect();
        let (value, ops) = (|i: usize| values.get(i).map_or("?", |v| v), |i: usize| ops.get(i).map_or("?", |o| o));
        let text = match case.kind {
            Anomaly::GarbageRead => format!("{} read {} = {}, which nobody wrote", ops(0), key, value(0)),
            Anomaly::G1a => format!("{} read {} = {}, which {} wrote, which failed", ops(0), key, value(0), ops(1)),
            Anomaly::G1b => {
                format!("{} read {} = {}, which {} wrote and itself overwrote", ops(0), key, value(0), ops(1))
            }
            Anomaly::FutureRead => format!("{} read {} = {} before it wrote that itself", ops(0), key, value(0)),
            Anomaly::Internal => {
                format!("{} read {} = {}, though it had read or written {} before", ops(1), key, value(1), value(0))
            }
            Anomaly::LostUpdate => format!("{} and {} both read {} = {} and wrote it", ops(0), ops(1), key, value(0)),
            Anomaly::DuplicateWrites => format!("{} and {} both wrote {} = {}", ops(0), ops(1), key, value(0)),
            Anomaly::DirtyUpdate => {
                let (old, new) = (value(0), value(1));
                format!("{} read {key} = {old}, which {} wrote, which failed, and wrote {new} upon it", ops(0), ops(1))
            }
            _ => format!("the versions {} of {} come before each other", values.join(", "), key),
        };
        ExplainedCase { kind: case.kind, mops: case.mops.iter().map(|&m| self.names.at(m)).collect(), key, text }
    }

    fn step(&mut self, link: Link, at: (Mop, Mop)) -> Step {
        let found = match link.rel {
            Rel::Wr => {
                let names = self.names;
                names.wr(link, at.1, |key, value| self.shows(key, value))
            }
            Rel::Ww | Rel::Rw => self.versions(link, at.1),
            Rel::Process => self.names.process(link),
            Rel::RealTime | Rel::Pass => self.names.real_time(link),
        };
        self.names.step(link, found)
    }

    /// Was a value neither there first nor written by two transactions?
    fn shows(&mut self, key: u32, value: i64) -> bool {
        let twice = self.registers.cases().counts().iter().any(|&(kind, _)| kind == Anomaly::DuplicateWrites);
        value != NIL && (!twice || self.ordered(key).versions.iter().any(|v| v.value == value && !v.ambiguous))
    }

    fn ordered(&mut self, key: u32) -> &Ordered {
        let registers = self.registers;
        self.keys.entry(key).or_insert_with(|| {
            let mut scan = Scan::new(registers.txns, &registers.committed, registers.assumptions, registers.ranks);
            let order = scan.infer(key, registers.entries.get(key as usize));
            Ordered { versions: scan.versions, touches: scan.touches, order }
        })
    }

    /// Why what the one read or wrote comes before what the other one wrote.
    fn versions(&mut self, link: Link, shown_by: Mop) -> Option<(Reason, String)> {
        let registers = self.registers;
        let given = |m: usize| shown_by == NONE || m as Mop == shown_by;
        let written = registers.txns.mops(link.to).filter(|&m| registers.txns.kind[m].writes() && given(m));
        let mut keys: Vec<u32> = written.map(|m| registers.txns.key[m]).collect();
        keys.dedup();
        keys.into_iter().find_map(|key| self.versions_of(link, key))
    }

    fn versions_of(&mut self, link: Link, key: u32) -> Option<(Reason, String)> {
        let ordered = self.ordered(key);
        let touch = |txn| ordered.touches.iter().find(|t| t.txn == txn).copied();
        let (one, other) = (touch(link.from)?, touch(link.to)?);
        let earlier = if link.rel == Rel::Ww { one.wrote } else { one.read };
        let later = other.wrote;
        if earlier == NONE || later == NONE {
            return None;
        }
        let (old, new) = (ordered.versions[earlier as usize], ordered.versions[later as usize]);
        if new.ambiguous {
            return None;
        }
        let initial = earlier == INITIAL && !old.ambiguous;
        if !initial && !ordered.precedes(earlier, later) {
            return None;
        }
        let witness = if initial { None } else { self.witness(key, earlier, later) };
        let txns = self.names.txns;
        let write = txns.mops(link.to).rfind(|&m| txns.kind[m].writes() && txns.key[m] == key)? as Mop;
        let names = self.names;
        let (key_text, old, new) = (names.key_text(key), names.text(old.value), names.text(new.value));
        let why = match witness {
            None if initial => "which was there first".to_string(),
            None => format!("which comes before {new}"),
            Some((_, ref why)) => format!("which comes before {new} as {why}"),
        };
        let (from, to) = (txns.op(link.from), txns.op(link.to));
        if link.rel == Rel::Rw {
            let read = txns.mops(link.from).find(|&m| txns.kind[m] == Kind::Read && txns.key[m] == key)? as Mop;
            let text = format!("{from} read {key_text} = {old}, {why}, and {to} wrote {new}");
            return Some((Reason::Rw { read: self.names.at(read), write: self.names.at(write) }, text));
        }
        let first = txns.mops(link.from).rfind(|&m| txns.kind[m].writes() && txns.key[m] == key)? as Mop;
        let shown_by = self.names.at(witness.map_or(write, |(mop, _)| mop));
        let text = format!("{from} wrote {key_text} = {old}, {why}, and {to} wrote {new}");
        Some((Reason::Ww { earlier: self.names.at(first), later: self.names.at(write), shown_by }, text))
    }

    /// What shows that a version comes before another one: a micro-operation and, in words, how.
    fn witness(&self, key: u32, earlier: Version, later: Version) -> Option<(Mop, String)> {
        let Ordered { touches, .. } = self.keys.get(&key)?;
        let (txns, assumed) = (self.names.txns, self.registers.assumptions);
        let on_key = |txn: Txn| txns.mops(txn).find(|&m| txns.key[m] == key).map(|m| m as Mop);
        if assumed.wfr_keys
            && let Some(t) = touches.iter().find(|t| t.read == earlier && t.wrote == later)
        {
            return Some((on_key(t.txn)?, format!("{} read the one and wrote the other", txns.op(t.txn))));
        }
        let left = || touches.iter().filter(|t| t.left() == earlier && txns.ok(t.txn));
        let met = || touches.iter().filter(|t| t.met() == later);
        if assumed.sequential_keys {
            for b in met() {
                let process = txns.process[b.txn as usize];
                let mine = left().find(|a| txns.process[a.txn as usize] == process && a.txn < b.txn);
                if let Some(a) = mine.filter(|_| process != NONE) {
                    let (a, b) = (txns.op(a.txn), (on_key(b.txn)?, txns.op(b.txn)));
                    return Some((b.0, format!("one process met the one in {a} and the other in {}", b.1)));
                }
            }
        }
        let a = left().min_by_key(|t| txns.complete[t.txn as usize])?;
        let b = met().max_by_key(|t| txns.invoke[t.txn as usize])?;
        let holds = assumed.linearizable_keys && txns.complete[a.txn as usize] < txns.invoke[b.txn as usize];
        let (one, other) = (txns.op(a.txn), txns.op(b.txn));
        holds.then_some((
            on_key(b.txn)?,
            format!("{one}, which left the one, ended before {other}, which met the other, began"),
        ))
    }
}
