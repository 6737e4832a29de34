//! Which operations must come before which, and does that run in circles?
//!
//! `wr`: who sent a message comes before who polled it. `ww`: who sent a message, before who sent the next one of its partition.
//! `rw`: who polled up to a message, before who sent the next one. Only committed operations take part: acknowledged ones, and those
//! of unknown end of which an acknowledged poll returned a message.
//!
//! Two graphs are searched. Over `wr` alone, with the orders of processes and of real time, a cycle can not come about under any
//! broker that shows only what is committed. With `ww` and `rw` it can: Kafka's transactions do not isolate writes, and a consumer
//! that lags has polled a past that others have gone beyond.

use elench_formats::sorting::sort_by;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::collect::{Collected, NONE, SENT, message_of};
use super::order::Order;
use super::{Forbid, Options};
use crate::budget::Budget;
use crate::findings::{Example, Findings, Weight};
use crate::graph::build::{Graph, MAX_NODES, Timeline};
use crate::graph::search::Link;
use crate::graph::{Dependencies, Rel, Sink};
use crate::outcome::{OpId, Status, Why};
use crate::txn::anomaly::Anomaly;
use crate::txn::cycles::{self, Cycle, Cycles};

/// Edges that are told at once.
const PART: usize = 1 << 18;

/// What the walk over all polls has found of dependencies.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Who sent, who polled.
    pub(super) wr: Vec<(u32, u32)>,
    /// Who polled, and the highest position in a partition.
    pub(super) polled_up_to: Vec<(u32, u32)>,
    /// When one of unknown end was first seen to have happened.
    pub(super) seen: HashMap<u32, u64, FixedState>,
}

/// Who comes before whom, as committed operations in the order of their invocations.
struct Edges<'a> {
    lists: &'a [(Rel, Vec<(u32, u32)>)],
    process: &'a [(u32, u32)],
}

impl Edges<'_> {
    fn parts(&self) -> impl Iterator<Item = (Rel, &[(u32, u32)])> {
        let items = self.lists.iter().map(|(rel, list)| (*rel, list.as_slice()));
        items
            .chain([(Rel::Process, self.process)])
            .flat_map(|(rel, list)| list.chunks(PART).map(move |part| (rel, part)))
    }

    fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }
}

impl Dependencies for Edges<'_> {
    fn parts(&self) -> usize {
        Edges::parts(self).count()
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        if let Some((rel, list)) = Edges::parts(self).nth(part) {
            list.iter().for_each(|&(from, to)| sink.edge(from, to, rel));
        }
    }
}

/// What is known before cycles are looked for.
pub(super) struct Ground<'a> {
    pub(super) all: &'a Collected,
    pub(super) order: &'a Order,
    pub(super) committed: &'a [bool],
    pub(super) options: &'a Options,
    pub(super) budget: &'a Budget,
}

impl Ground<'_> {
    /// Looks for cycles and says what it found.
    pub(super) fn search(&self, links: Links, findings: &mut Findings) {
        let ops = &self.all.ops;
        let mut by_invocation: Vec<u32> = (0..ops.len() as u32).filter(|&op| ops.what[op as usize].is_data()).collect();
        sort_by(&mut by_invocation, |&op| ops.index[op as usize]);
        let mut number = vec![NONE; ops.len()];
        by_invocation.iter().enumerate().for_each(|(i, &op)| number[op as usize] = i as u32);
        if by_invocation.len() > MAX_NODES / 2 {
            findings.undecided(Why::Other(format!("more than {} operations", MAX_NODES / 2)));
            return;
        }
        let invoke: Vec<u64> = by_invocation.iter().map(|&op| ops.index[op as usize]).collect();
        let is_ok = |op: u32| ops.status[op as usize] == Status::Ok;
        let end = |&op: &u32| if is_ok(op) { ops.complete[op as usize] } else { u64::MAX };
        let complete: Vec<u64> = by_invocation.iter().map(end).collect();
        let seen = self.seen(&links, &number);
        let timeline = Timeline::new(&invoke, &complete, &seen, self.options.real_time);
        let process = self.process(&by_invocation);
        let numbered = |list: &[(u32, u32)]| {
            list.iter().map(|&(a, b)| (number[a as usize], number[b as usize])).collect::<Vec<_>>()
        };
        let after = self.writers_after();
        let mut lists = vec![(Rel::Wr, numbered(&links.wr))];
        let telling = Telling { ground: self, by_invocation: &by_invocation, after: &after };
        let wr = Edges { lists: &lists, process: &process };
        let found = cycles::find(&Graph::build(&timeline, &wr), findings.examples(), self.budget);
        let strict = self.options.transactional;
        telling.tell(&found, findings, |_, cycle| strict || cycle.is_some_and(|c| c.links.len() == 2), |_| true);
        if let Some(unnamed) = found.unnamed.first() {
            findings.undecided(Why::Spent(unnamed.spent));
        }
        lists.push((Rel::Ww, numbered(&self.ww())));
        lists.push((Rel::Rw, numbered(&rw(&links.polled_up_to, &after))));
        let full = Edges { lists: &lists, process: &process };
        if full.is_empty() && !in_real_time(&invoke, &complete, self.options.real_time) {
            findings.note("empty-transaction-graph", || Example {
                text: "no operation says anything about the order of another one".into(),
                ..Example::default()
            });
            findings.undecided(Why::Other("no operation says anything about the order of another one".into()));
        }
        let known = found;
        let found = cycles::find(&Graph::build(&timeline, &full), findings.examples(), self.budget);
        telling.tell(&found, findings, |kind, _| self.forbids(kind), |kind| !known.counts.contains_key(&kind));
        if let Some(unnamed) = found.unnamed.first() {
            match self.options.cycles {
                Forbid::Wr => findings.note("cycles-unnamed", || Example {
                    text: format!(
                        "{} operations depend on each other in circles over ww or rw: {}",
                        unnamed.size, unnamed.spent
                    ),
                    ..Example::default()
                }),
                _ => findings.undecided(Why::Spent(unnamed.spent)),
            }
        }
    }

    fn seen(&self, links: &Links, number: &[u32]) -> Vec<(u32, u64)> {
        let ops = &self.all.ops;
        let open = |&op: &u32| {
            ops.what[op as usize].is_data() && self.committed[op as usize] && ops.status[op as usize] != Status::Ok
        };
        let at = |op: u32| (number[op as usize], links.seen.get(&op).copied().unwrap_or(u64::MAX - 1));
        (0..ops.len() as u32).filter(open).map(at).collect()
    }

    /// Does a kind of cycle over all dependencies break what was asked for?
    fn forbids(&self, kind: Anomaly) -> bool {
        match self.options.cycles {
            Forbid::Wr => false,
            Forbid::Ww => kind.name().starts_with("G0") || kind.name().starts_with("G1c"),
            Forbid::Rw => true,
        }
    }

    fn process(&self, by_invocation: &[u32]) -> Vec<(u32, u32)> {
        let ops = &self.all.ops;
        let mut last = vec![NONE; self.all.processes.len()];
        let mut chain = Vec::new();
        for (i, &op) in by_invocation.iter().enumerate().filter(|&(_, &op)| self.committed[op as usize]) {
            let Some(last) = last.get_mut(ops.process[op as usize] as usize) else { continue };
            if *last != NONE {
                chain.push((*last, i as u32));
            }
            // One whose end is unknown may take effect after its process went on.
            if ops.status[op as usize] == Status::Ok {
                *last = i as u32;
            }
        }
        chain
    }

    /// Who sent the one message at a position, if that is known and committed.
    fn writer_at(&self, position: u32) -> Option<u32> {
        let message = &self.all.messages[self.order.message(position)? as usize];
        let sure = message.is_unique() && message.live == 1 && self.committed[message.writer as usize];
        sure.then_some(message.writer)
    }

    /// By position: the committed sender of what stands next after it, as far as that is known.
    fn writers_after(&self) -> Vec<u32> {
        let mut after = vec![NONE; self.order.len()];
        for key in 0..self.all.keys.len() as u32 {
            let mut next = NONE;
            for position in self.order.of_key(key).rev() {
                after[position as usize] = next;
                next = self.writer_at(position).unwrap_or(next);
            }
        }
        after
    }

    fn ww(&self) -> Vec<(u32, u32)> {
        let mut edges = Vec::new();
        for key in 0..self.all.keys.len() as u32 {
            let mut last = None;
            for writer in self.order.of_key(key).filter_map(|position| self.writer_at(position)) {
                if let Some(last) = last.filter(|&last| last != writer) {
                    edges.push((last, writer));
                }
                last = Some(writer);
            }
        }
        edges
    }
}

fn rw(polled_up_to: &[(u32, u32)], after: &[u32]) -> Vec<(u32, u32)> {
    let next = |&(op, position): &(u32, u32)| (op, after[position as usize]);
    polled_up_to.iter().map(next).filter(|&(op, next)| next != NONE && next != op).collect()
}

/// Was anything invoked after something else had completed?
fn in_real_time(invoke: &[u64], complete: &[u64], real_time: bool) -> bool {
    let first = complete.iter().min().copied().unwrap_or(u64::MAX);
    real_time && invoke.iter().any(|&at| at > first)
}

/// Says why each step of a cycle holds.
struct Telling<'a> {
    ground: &'a Ground<'a>,
    by_invocation: &'a [u32],
    after: &'a [u32],
}

impl Telling<'_> {
    fn tell(
        &self,
        found: &Cycles,
        findings: &mut Findings,
        forbids: impl Fn(Anomaly, Option<&Cycle>) -> bool,
        takes: impl Fn(Anomaly) -> bool,
    ) {
        for (&kind, &count) in found.counts.iter().filter(|(kind, _)| takes(**kind)) {
            let examples = found.examples.get(&kind).map_or(&[][..], Vec::as_slice);
            let weight = if forbids(kind, examples.first()) { Weight::Violation } else { Weight::Note };
            for i in 0..count as usize {
                findings
                    .add(kind.name(), weight, || examples.get(i).map_or_else(Example::default, |c| self.example(c)));
            }
        }
    }

    fn example(&self, cycle: &Cycle) -> Example {
        let ops: Vec<OpId> = cycle.links.iter().map(|link| self.id(link.from)).collect();
        let steps: Vec<String> = cycle.links.iter().map(|link| self.step(link)).collect();
        Example::new(ops, format!("{}: in circles", steps.join("; ")))
    }

    fn id(&self, txn: u32) -> OpId {
        OpId(self.ground.all.ops.index[self.by_invocation[txn as usize] as usize])
    }

    fn step(&self, link: &Link) -> String {
        let all = self.ground.all;
        let (from, to) = (self.by_invocation[link.from as usize], self.by_invocation[link.to as usize]);
        let (a, b) = (self.id(link.from), self.id(link.to));
        let said = |number: u32| format!("{} to {}", all.value(number), all.key_name(number));
        match link.rel {
            Rel::Wr => match self.touches(to, 0).find(|&(m, _)| all.messages[m as usize].writer == from) {
                Some((m, _)) => format!("{a} sent {}, which {b} polled", said(m)),
                None => format!("{a} sent what {b} polled"),
            },
            Rel::Ww => match self.touches(from, SENT).find(|&(_, p)| p.is_some_and(|p| self.after[p as usize] == to)) {
                Some((m, _)) => format!("{a} sent {}, after which {b} sent the next", said(m)),
                None => format!("{a} sent before {b} sent"),
            },
            Rel::Rw => match self.touches(from, 0).find(|&(_, p)| p.is_some_and(|p| self.after[p as usize] == to)) {
                Some((m, _)) => {
                    format!("{a} polled {} up to {}, after which {b} sent the next", all.key_name(m), all.value(m))
                }
                None => format!("{a} polled what stands before what {b} sent"),
            },
            Rel::Process => format!("{a} and then {b} were of one process"),
            _ => format!("{a} had completed before {b} was invoked"),
        }
    }

    fn touches(&self, op: u32, sent: u32) -> impl Iterator<Item = (u32, Option<u32>)> {
        let (all, order) = (self.ground.all, self.ground.order);
        all.ops
            .range(op)
            .filter(move |&touch| all.touches[touch] & SENT == sent)
            .map(move |touch| (message_of(all.touches[touch]), order.position(all, touch)))
    }
}
