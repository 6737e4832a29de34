//! Why does each step of a cycle hold, and what exactly is wrong elsewhere?
//!
//! The search knows only that one transaction comes before another one. Here the micro-operations that make it so are found
//! again, and named by operation and place in it, so that a person, or [`verify`](super::verify), can look them up in the
//! history.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Write;

use elench_formats::History;
use elench_formats::history::Status;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::anomaly::Anomaly;
use super::cycles::Cycle;
use super::history::{Kind, Mop, NONE, Txn, Txns};
use super::lattice::Relations;
use super::lists::{Case, Lists};
use crate::graph::Rel;
use crate::graph::search::Link;
use crate::outcome::OpId;

/// A micro-operation, by its operation and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MopAt {
    /// The operation.
    pub op: OpId,
    /// Place among its micro-operations.
    pub at: u32,
}

/// Why one transaction comes before another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It appended, or wrote, first.
    Ww {
        /// What it appended.
        earlier: MopAt,
        /// What the other one appended.
        later: MopAt,
        /// A committed read that holds the earlier one, and the later one only after it or not at all.
        shown_by: MopAt,
    },
    /// The other one read what it appended.
    Wr {
        /// What it appended.
        write: MopAt,
        /// The read that holds it.
        read: MopAt,
    },
    /// It did not yet see what the other one appended.
    Rw {
        /// Its read.
        read: MopAt,
        /// What the other one appended.
        write: MopAt,
    },
    /// A refutation: it is supposed, or follows from an earlier lemma. Both wrote one key.
    Supposed,
    /// The same process ran it earlier.
    Process(i64),
    /// It had completed when the other one was invoked.
    RealTime {
        /// Event index of its completion.
        completed: u64,
        /// Event index of the other one's invocation.
        invoked: u64,
    },
}

/// A step of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What comes before.
    pub from: OpId,
    /// What comes after.
    pub to: OpId,
    /// How it is called.
    pub rel: Rel,
    /// Why; none when no reason was found again, which would be a mistake of ours.
    pub reason: Option<Reason>,
    /// Why, for a person.
    pub text: String,
}

/// An example of an anomaly, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explained {
    /// What is no cycle.
    Case(ExplainedCase),
    /// A cycle.
    Cycle(ExplainedCycle),
    /// A proof that whatever the order of versions, there is a cycle.
    Refutation(ExplainedRefutation),
}

/// What is wrong, if it is no cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedCase {
    /// What it is.
    pub kind: Anomaly,
    /// The micro-operations that show it, in the order in which the text names them.
    pub mops: Vec<MopAt>,
    /// The text of the key.
    pub key: String,
    /// Why, for a person.
    pub text: String,
}

/// A cycle, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedCycle {
    /// What it is.
    pub kind: Anomaly,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// A proof that no order of the transactions explains what they read: so whatever the order of versions was, there is a cycle.
///
/// A proof by resolution: of two transactions, one comes before the other. Each lemma shows that not all of what it supposes can be, and the
/// last supposes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedRefutation {
    /// What it is: some `cycle-exists`, by the relations that the lemmas rest on.
    pub kind: Anomaly,
    /// What is shown, step by step.
    pub lemmas: Vec<Lemma>,
}

/// Some transactions cannot all come before others: else there would be a circle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lemma {
    /// What cannot all be: transactions, the first of which comes before the second.
    pub supposed: Vec<(OpId, OpId)>,
    /// What follows, each from an earlier lemma of which all else is supposed or follows: the opposite of what is left.
    pub derived: Vec<Derived>,
    /// The circle. That one missed what another one wrote may rest on what is supposed, or follows.
    pub steps: Vec<Step>,
}

/// One transaction comes before another one, as the opposite cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The first comes before the second.
    pub before: (OpId, OpId),
    /// The number of the lemma, from 0.
    pub lemma: usize,
}

impl Lemma {
    /// Where it shows no more than that one transaction comes before another one by the order of a process or of time: that, for a person.
    fn direct(&self) -> Option<&str> {
        match &self.steps[..] {
            [one, other] if self.supposed.len() == 1 && one.reason == Some(Reason::Supposed) => Some(&other.text),
            _ => None,
        }
    }
}

impl ExplainedRefutation {
    /// What it shows, and its lemmas, for a person, a line each; of many the first and the last, and how many there are between. What is shown by time alone is
    /// told where it is made use of.
    pub fn told(&self) -> impl Iterator<Item = String> {
        let mut numbers = Vec::new();
        for lemma in &self.lemmas {
            numbers.push(numbers.last().map_or(0, |&n| n) + usize::from(lemma.direct().is_none()));
        }
        let told = self.lemmas.iter().filter(|lemma| lemma.direct().is_none());
        let lines = few(told.zip(1..).map(|(lemma, number)| self.line(lemma, number, &numbers)).collect());
        let kept = match self.kind.relations() {
            Relations::Data => "",
            Relations::Process => " that keeps the order of each process",
            Relations::Realtime => " that keeps real time",
        };
        let about =
            format!("no order of the transactions, one after the other,{kept} explains what they read. In any:");
        std::iter::once(about).chain(lines)
    }

    /// A lemma, given the numbers that all bear.
    fn line(&self, lemma: &Lemma, number: usize, numbers: &[usize]) -> String {
        let pair = |&(one, other): &(OpId, OpId)| format!("{one} before {other}");
        let is_alone = numbers.last() == Some(&1);
        let mut line = if is_alone { String::new() } else { format!("({number}) ") };
        if !lemma.supposed.is_empty() {
            let supposed: Vec<String> = lemma.supposed.iter().map(pair).collect();
            let _ = write!(line, "suppose {}: ", supposed.join(", "));
        }
        for Derived { before, lemma } in &lemma.derived {
            let _ = match self.lemmas[*lemma].direct() {
                Some(text) => write!(line, "{text}; "),
                None => write!(line, "{}, as ({}) shows; ", pair(before), numbers[*lemma]),
            };
        }
        let shown = lemma.steps.iter().filter(|s| s.reason != Some(Reason::Supposed)).map(|s| s.text.clone());
        let circle = lemma.steps.iter().chain(lemma.steps.first()).map(|s| s.from.0.to_string());
        let _ = write!(line, "{}: a circle, {}", few(shown.collect()).join("; "), few(circle.collect()).join(" → "));
        match lemma.supposed[..] {
            [] if is_alone => {}
            [] => line += ", with nothing supposed",
            [(one, other)] => _ = write!(line, "; so {}", pair(&(other, one))),
            _ => line += "; so these cannot all be",
        }
        line + "."
    }
}

impl Explained {
    /// The operations involved, each once.
    pub fn ops(&self) -> Vec<OpId> {
        let mut ops: Vec<OpId> = match self {
            Explained::Case(case) => case.mops.iter().map(|m| m.op).collect(),
            Explained::Cycle(cycle) => cycle.steps.iter().map(|s| s.from).collect(),
            Explained::Refutation(refutation) => {
                refutation.lemmas.iter().flat_map(|lemma| &lemma.steps).map(|s| s.from).collect()
            }
        };
        let mut seen: HashSet<OpId, FixedState> = HashSet::default();
        ops.retain(|&op| seen.insert(op));
        ops
    }

    /// For a person.
    pub fn text(&self) -> String {
        match self {
            Explained::Case(case) => case.text.clone(),
            Explained::Cycle(cycle) => cycle.told().collect::<Vec<_>>().join("; "),
            Explained::Refutation(refutation) => refutation.told().collect::<Vec<_>>().join(" "),
        }
    }
}

/// Steps of a long cycle, or proof, that are told at its beginning and its end.
const TOLD: (usize, usize) = (12, 4);

impl ExplainedCycle {
    /// Its steps for a person; of a long one the first and the last, and how many there are between.
    pub fn told(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let n = self.steps.len();
        let (head, tail) = if n > TOLD.0 + TOLD.1 { (TOLD.0, n - TOLD.1) } else { (n, n) };
        let between = (tail > head).then(|| Cow::Owned(format!("({} more steps)", tail - head)));
        let told = |steps: std::ops::Range<usize>| self.steps[steps].iter().map(|s| Cow::Borrowed(s.text.as_str()));
        told(0..head).chain(between).chain(told(tail..n))
    }
}

/// Of many the first and the last, and how many there are between.
fn few(mut all: Vec<String>) -> Vec<String> {
    if let Some(between) = all.len().checked_sub(TOLD.0 + TOLD.1).filter(|&between| between > 0) {
        all.splice(TOLD.0..TOLD.0 + between, [format!("({between} more steps)")]);
    }
    all
}

/// Elements of a list that are shown on either side of where it matters.
const SHOWN: usize = 4;

/// Explains what was found in lists.
#[derive(Debug)]
pub struct Explainer<'a> {
    history: &'a History,
    lists: &'a Lists<'a>,
    txns: &'a Txns<'a>,
    /// By key: the places in the longest list. A long cycle asks for many of them.
    places: RefCell<HashMap<u32, HashMap<i64, usize, FixedState>, FixedState>>,
}

impl<'a> Explainer<'a> {
    /// For a history and what was inferred from it.
    pub fn new(history: &'a History, lists: &'a Lists<'a>) -> Self {
        Explainer { history, lists, txns: lists.txns(), places: RefCell::default() }
    }

    /// A cycle with the reasons for its steps.
    pub fn cycle(&self, cycle: &Cycle) -> ExplainedCycle {
        ExplainedCycle { kind: cycle.kind, steps: cycle.steps().map(|(link, at)| self.step(link, at)).collect() }
    }

    fn step(&self, link: Link, at: (Mop, Mop)) -> Step {
        let found = match link.rel {
            Rel::Ww => self.ww(link, at),
            Rel::Wr => self.wr(link, at),
            Rel::Rw => self.rw(link, at),
            Rel::Process => self.process(link),
            Rel::RealTime | Rel::Pass => self.real_time(link),
        };
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        let (reason, text) = match found {
            Some((reason, text)) => (Some(reason), text),
            None => (None, format!("{from} comes before {to} ({})", link.rel)),
        };
        Step { from, to, rel: link.rel, reason, text }
    }

    fn at(&self, mop: Mop) -> MopAt {
        let txn = self.txns.txn_of(mop);
        MopAt { op: self.txns.op(txn), at: mop - self.txns.offsets[txn as usize] }
    }

    fn of_kind(&self, txn: Txn, kind: Kind) -> impl Iterator<Item = Mop> + '_ {
        self.txns.mops(txn).map(|m| m as Mop).filter(move |&m| self.txns.kind[m as usize] == kind)
    }

    /// Micro-operations of two transactions on the same key, and just these where they are given.
    fn pairs(&self, link: Link, at: (Mop, Mop), one: Kind, other: Kind) -> impl Iterator<Item = (Mop, Mop)> + '_ {
        let fits = |m: Mop, given: Mop| given == NONE || m == given;
        self.of_kind(link.from, one).filter(move |&a| fits(a, at.0)).flat_map(move |a| {
            let key = self.txns.key[a as usize];
            let same = move |&b: &Mop| self.txns.key[b as usize] == key && fits(b, at.1);
            self.of_kind(link.to, other).filter(same).map(move |b| (a, b))
        })
    }

    fn place(&self, list: &[i64], mop: Mop) -> Option<usize> {
        let element = self.txns.value[mop as usize];
        list.iter().position(|&e| e == element)
    }

    /// The place of an append in the longest list of its key.
    fn place_in_longest(&self, list: &[i64], mop: Mop) -> Option<usize> {
        let mut places = self.places.borrow_mut();
        let places = places.entry(self.txns.key[mop as usize]).or_insert_with(|| {
            let mut places = HashMap::default();
            for (i, &element) in list.iter().enumerate() {
                places.entry(element).or_insert(i);
            }
            places
        });
        places.get(&self.txns.value[mop as usize]).copied()
    }

    fn names(&self, mop: Mop) -> (String, String) {
        let key = self.txns.key_text(self.history, self.txns.key[mop as usize]);
        (key, self.txns.text(self.history, self.txns.value[mop as usize]))
    }

    fn ww(&self, link: Link, at: (Mop, Mop)) -> Option<(Reason, String)> {
        let close = |&(a, b): &(Mop, Mop)| {
            let (list, _) = self.lists.longest(self.txns.key[a as usize])?;
            let from = self.place_in_longest(list, a)?;
            let to = self.place_in_longest(list, b).unwrap_or(list.len());
            to.checked_sub(from).filter(|&apart| apart > 0)
        };
        let (a, b) = self
            .pairs(link, at, Kind::Append, Kind::Append)
            .filter_map(|pair| close(&pair).map(|d| (d, pair)))
            .min_by_key(|&(d, _)| d)?
            .1;
        let (list, read) = self.lists.longest(self.txns.key[a as usize])?;
        let (key, first) = self.names(a);
        let (_, second) = self.names(b);
        let (from, to, reader) = (self.txns.op(link.from), self.txns.op(link.to), self.txns.op(self.txns.txn_of(read)));
        let seen = self.around(list, self.place_in_longest(list, a)?);
        let text = match self.place_in_longest(list, b) {
            Some(_) => {
                format!("{from} appended {first} to {key} before {to} appended {second} to it, as {reader} read {seen}")
            }
            None => format!(
                "{from} appended {first} to {key} before {to} appended {second}, as {reader} read {seen} without {second}"
            ),
        };
        Some((Reason::Ww { earlier: self.at(a), later: self.at(b), shown_by: self.at(read) }, text))
    }

    fn wr(&self, link: Link, at: (Mop, Mop)) -> Option<(Reason, String)> {
        let (write, read) = self
            .pairs(link, at, Kind::Append, Kind::ReadList)
            .filter_map(|(a, r)| self.place(self.txns.list(r), a).map(|p| (self.txns.list(r).len() - p, (a, r))))
            .min_by_key(|&(d, _)| d)?
            .1;
        let (key, element) = self.names(write);
        let list = self.txns.list(read);
        let seen = self.around(list, self.place(list, write)?);
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        let text = format!("{to} read {key} as {seen} with {element}, which {from} appended");
        Some((Reason::Wr { write: self.at(write), read: self.at(read) }, text))
    }

    fn rw(&self, link: Link, at: (Mop, Mop)) -> Option<(Reason, String)> {
        let next = |&(r, b): &(Mop, Mop)| {
            let seen = self.txns.list(r);
            if self.place(seen, b).is_some() {
                return None;
            }
            let (list, _) = self.lists.longest(self.txns.key[b as usize])?;
            let place = self.place_in_longest(list, b).unwrap_or(list.len());
            Some(place.abs_diff(seen.len()))
        };
        let (read, write) = self
            .pairs(link, at, Kind::ReadList, Kind::Append)
            .filter_map(|pair| next(&pair).map(|d| (d, pair)))
            .min_by_key(|&(d, _)| d)?
            .1;
        let (key, element) = self.names(write);
        let list = self.txns.list(read);
        let seen = self.around(list, list.len());
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        let text = format!("{from} read {key} as {seen} and so did not see {element}, which {to} appended");
        Some((Reason::Rw { read: self.at(read), write: self.at(write) }, text))
    }

    fn process(&self, link: Link) -> Option<(Reason, String)> {
        let process = self.history.op(self.txns.row[link.from as usize] as usize).process()?;
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        Some((Reason::Process(process), format!("process {process} ran {from} before {to}")))
    }

    fn real_time(&self, link: Link) -> Option<(Reason, String)> {
        let (completed, invoked) = (self.txns.complete[link.from as usize], self.txns.invoke[link.to as usize]);
        let (from, to) = (self.txns.op(link.from), self.txns.op(link.to));
        let mut text = format!("{from} had completed (event {completed}) when {to} was invoked (event {invoked})");
        let times = |t: u32| self.history.op(self.txns.row[t as usize] as usize);
        if let (Some(end), Some(start)) = (times(link.from).complete_time(), times(link.to).invoke_time())
            && start > end
        {
            let _ = write!(text, ", {} ns later", start - end);
        }
        (completed < invoked).then_some((Reason::RealTime { completed, invoked }, text))
    }

    /// A list around one of its places.
    fn around(&self, list: &[i64], place: usize) -> String {
        let from = place.saturating_sub(SHOWN);
        let to = (place + SHOWN).min(list.len());
        let mut out = String::from(if from > 0 { "[…" } else { "[" });
        for (i, &element) in list[from..to].iter().enumerate() {
            if i > 0 || from > 0 {
                out.push(' ');
            }
            out.push_str(&self.txns.text(self.history, element));
        }
        out.push_str(if to < list.len() { " …]" } else { "]" });
        out
    }

    /// A case in words.
    pub fn case(&self, case: &Case) -> ExplainedCase {
        let key = self.txns.key_text(self.history, case.key);
        let mops: Vec<MopAt> = case.mops.iter().map(|&m| self.at(m)).collect();
        let op = |i: usize| mops.get(i).map_or_else(|| "?".to_string(), |m| m.op.to_string());
        let e = |i: usize| case.elements.get(i).map_or_else(|| "nil".to_string(), |&c| self.txns.text(self.history, c));
        let read = |i: usize, mark: i64| {
            let Some(&mop) = case.mops.get(i).filter(|&&m| self.txns.kind[m as usize] == Kind::ReadList) else {
                return "[…]".to_string();
            };
            let list = self.txns.list(mop);
            self.around(list, list.iter().position(|&x| x == mark).unwrap_or(list.len()))
        };
        let mark = case.elements.first().copied().unwrap_or(0);
        let text = match case.kind {
            Anomaly::G1a => format!(
                "{} read {key} as {} with {}, which {} appended, and that failed",
                op(0),
                read(0, mark),
                e(0),
                op(1)
            ),
            Anomaly::G1b => format!(
                "{} read {key} as {}, which ends with {}; but {} went on to append {}",
                op(0),
                read(0, mark),
                e(0),
                op(1),
                e(1)
            ),
            Anomaly::DirtyUpdate => format!(
                "{} appended {} to {key} after {}, which {} had appended, and that failed: {} read {}",
                op(1),
                e(1),
                e(0),
                op(0),
                op(2),
                read(2, mark)
            ),
            Anomaly::Internal => format!(
                "{} read {key} as {}, which does not agree with what it read and appended before ({})",
                op(0),
                read(mops.len().saturating_sub(1), mark),
                if case.elements.is_empty() {
                    "nothing since its last read".into()
                } else {
                    format!("{} last", e(case.elements.len() - 1))
                }
            ),
            Anomaly::DuplicateElements => format!("{} read {key} as {}, with {} twice", op(0), read(0, mark), e(0)),
            Anomaly::GarbageRead => {
                format!("{} read {key} as {} with {}, which nobody appended", op(0), read(0, mark), e(0))
            }
            Anomaly::IncompatibleOrder => {
                let longest = self.lists.longest(case.key).map_or_else(String::new, |(list, read)| {
                    let place = list.iter().position(|e| Some(e) == case.elements.get(1)).unwrap_or(0);
                    format!(", but {} read it as {}", self.txns.op(self.txns.txn_of(read)), self.around(list, place))
                });
                format!("{} read {key} as {}{longest}: neither is the beginning of the other", op(0), read(0, mark))
            }
            Anomaly::LostUpdate => {
                format!("{} and {} both read {key} as {} and appended to it", op(0), op(1), read(0, mark))
            }
            Anomaly::FutureRead => {
                format!("{} read {key} as {} with {}, which it appended only later", op(0), read(0, mark), e(0))
            }
            Anomaly::DuplicateWrites => format!("{} and {} both appended {} to {key}", op(0), op(1), e(0)),
            Anomaly::CyclicVersions => {
                format!("{} appended {} to {key} and then {}, but {} read {}", op(0), e(0), e(1), op(2), read(2, mark))
            }
            kind => format!("{kind} at {key}, by {}", op(0)),
        };
        let failed = |m: &Mop| self.txns.status[self.txns.txn_of(*m) as usize] == Status::Fail;
        debug_assert!(case.kind != Anomaly::G1a || case.mops.get(1).is_some_and(failed));
        ExplainedCase { kind: case.kind, mops, key, text }
    }
}
