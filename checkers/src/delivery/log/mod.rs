//! Does a log in the manner of Kafka keep what it acknowledged, once, and in order?
//!
//! Producers *send* messages to partitions and are told offsets; consumers *poll*, and are given runs of messages with offsets; both may
//! take place in transactions. `scan` and `read` read operations, `collect` makes columns of small integers of them as they
//! complete, `order` puts each partition's messages in the order of their offsets, `rules` and `cycles` judge, `lag` describes.
//!
//! The version order of a partition, offset to values, comes from all polls (consumers are given safe data, whatever becomes of their
//! transactions), and from sends of operations that are acknowledged, or of unknown end where an acknowledged poll returned one
//! of their messages. Values are taken to be unique within a partition; of one that was sent more than once nothing is claimed
//! that either send could explain.
//!
//! # What is found
//!
//! | Kind | What it is | Breaks |
//! |---|---|---|
//! | `inconsistent-offsets` | one offset, two values | always |
//! | `duplicate` | one value at more offsets than it was sent | always |
//! | `lost-write` | below the highest offset that an acknowledged operation polled: a committed value that none polled | always |
//! | `G1a` | an acknowledged poll returned what failed to be sent | always |
//! | `unexpected` | an acknowledged poll returned what nobody sent, above the first that was sent. Below that it is noted as `unknown-origin`: the partition may not have been empty | always |
//! | `precommitted-read` | an operation polls what it sent itself | in transactions |
//! | `poll-skip`, `nonmonotonic-poll` | a process goes on polling not at the next position: further, or not further | unless subscribed |
//! | `nonmonotonic-send` | two successive sends of a process with falling offsets | always |
//! | `int-poll-skip`, `int-nonmonotonic-poll`, `int-nonmonotonic-send` | the same within one operation | unless the partition moved meanwhile |
//! | `int-send-skip` | others' messages stand between those of one operation | never: noted |
//! | `unseen` | acknowledged, and never polled by the end | with `--unseen`, else noted: a consumer may have stopped early |
//! | `G1c` and its forms, over `wr` alone | see `cycles` | in transactions |
//! | `G0`, `G1c`, `G-single-item`, `G-nonadjacent-item`, `G2-item` and their forms, over `ww`, `wr` and `rw` | see `cycles` | when forbidden, else noted: a correct broker shows them |
//!
//! A position after which a process goes on is that of its last acknowledged poll; whatever it polls next is held against it, whether
//! that is acknowledged or not, for it was given these messages all the same. Assigning or subscribing resets partitions that are not
//! named, seeking to the beginning and a crash all of them; what `:rebalance-log` names is excused, in that
//! operation and in the next one that polls it. Where an offset holds two values, that
//! alone is said of it: there is no telling where in the order either stands.
//!
//! # Cost
//!
//! O(n log n) for sorting messages by offset, all else linear; about 80 bytes a message, 4 a send or poll of one and 8 an edge, 26 an
//! operation.
//! Nothing depends on how high offsets are.
//!
//! The batch form drives the incremental one. While a history is written, only polls that go back within an operation are told
//! at once: whether a message was lost, skipped or doubled depends on offsets and sends that are yet to come.
//!
//! Source: the Kafka workload of the Jepsen library (K. Kingsbury, analyses of Redpanda 21.10.1, 2022, and Bufstream 0.1.0, 2024), whose
//! rules these are. It leaves out rw edges, builds a vector up to the highest offset, and counts a message that was polled but never
//! acknowledged as unseen; this one does none of these.
//!
//! Measured (one thread, 10^6 operations, `benches/results/checkers.tsv`): 450 ns of processor time and 156 bytes of peak memory an operation of one message.

mod collect;
mod cycles;
mod lag;
mod order;
mod read;
mod rules;
mod scan;
#[cfg(test)]
mod tests;

use elench_formats::History;
use elench_formats::history::{OpRef, Side, Status as Ended};

use self::collect::{Collected, SENT, message_of};
use self::order::Order;
use self::read::WHATS;
use self::rules::Rules;
use crate::budget::Budget;
use crate::findings::{Fact, Findings, Incremental};
use crate::outcome::{Status, Why};

/// Cycles over which dependencies break what is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forbid {
    /// Only over `wr`: what no broker may show that shows only committed messages.
    #[default]
    Wr,
    /// Over `ww` too: transactions' writes are isolated from each other.
    Ww,
    /// Over `rw` too: transactions are serializable, and none polls a past that others have gone beyond.
    Rw,
}

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Examples to explain of each kind.
    pub examples: usize,
    /// Are operations atomic?
    pub transactional: bool,
    /// Do all consumers subscribe, even where the history does not tell?
    pub subscribe: bool,
    /// Must all acknowledged messages be polled by the end?
    pub unseen: bool,
    /// Which cycles break what is asked for.
    pub cycles: Forbid,
    /// Is the order of events that of real time?
    pub real_time: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            examples: 4,
            transactional: true,
            subscribe: false,
            unseen: false,
            cycles: Forbid::default(),
            real_time: true,
        }
    }
}

/// Checks a history of sends and polls.
pub fn check(history: &History, options: &Options, budget: &Budget) -> Findings {
    let options = Options { real_time: options.real_time && history.meta().real_time, ..options.clone() };
    let mut log = Log::new(options, budget.clone());
    for (op, side) in history.events() {
        if side == Side::Completion && op.is_client() {
            log.all.completed(&op);
        }
    }
    let never = history.clients().filter(|op| op.complete_index().is_none() && op.status() == Ended::Pending);
    never.for_each(|op| log.all.completed(&op));
    log.judge()
}

/// Checks sends and polls while they are written.
#[derive(Debug)]
pub struct Log {
    options: Options,
    budget: Budget,
    all: Collected,
}

impl Log {
    /// Nothing yet.
    pub fn new(options: Options, budget: Budget) -> Log {
        Log { options, budget, all: Collected::default() }
    }

    fn judge(mut self) -> Findings {
        let mut findings = Findings::new(self.options.examples);
        self.cover(&mut findings);
        if let Some(why) = self.all.refused.take() {
            findings.undecided(Why::Other(why));
            return findings;
        }
        let mut held = self.budget.reserve();
        held.set(2 * self.all.memory());
        if let Some(spent) = self.budget.spent() {
            findings.undecided(Why::Spent(spent));
            return findings;
        }
        self.all.lag.end();
        let committed = self.committed();
        let transactional = self.options.transactional;
        self.all.settle(|op, message| if transactional { committed[op as usize] } else { message.read });
        if transactional {
            self.all.attribute(&committed);
        }
        let order = Order::of(&self.all);
        if !self.all.messages.iter().any(|m| m.read) {
            findings.undecided(match findings.coverage.ops_consumed() {
                0 => Why::NoEvidence,
                _ => Why::Other("no acknowledged poll returned a message: nothing shows what the log holds".into()),
            });
        }
        let all = &self.all;
        let rules = Rules {
            all,
            order: &order,
            committed: &committed,
            options: &self.options,
            findings: &mut findings,
            links: cycles::Links::default(),
        };
        let links = rules.apply();
        let ground =
            cycles::Ground { all, order: &order, committed: &committed, options: &self.options, budget: &self.budget };
        ground.search(links, &mut findings);
        findings.fact("messages", Fact::Count(all.messages.len() as u64));
        findings.fact("partitions", Fact::Count(all.keys.len() as u64));
        let process = |number: u32| all.processes.get(number as usize).copied().unwrap_or(i64::from(number));
        all.lag.tell(process, |key| all.keys[key as usize].name.clone(), &mut findings);
        findings
    }

    fn cover(&self, findings: &mut Findings) {
        for (counts, (_, name)) in self.all.counts.iter().zip(WHATS) {
            for status in [Status::Ok, Status::Fail, Status::Info] {
                findings.coverage.count(name, status, counts[status as usize]);
            }
        }
        findings.coverage.keys = self.all.keys.len().max(1) as u64;
        findings.coverage.keys_decided = if self.all.refused.is_some() { 0 } else { findings.coverage.keys };
    }

    /// By operation: did it happen? So it did if it was acknowledged, or if an acknowledged poll returned what nobody else sent.
    fn committed(&self) -> Vec<bool> {
        let all = &self.all;
        let seen = |&touch: &u32| {
            let message = &all.messages[message_of(touch) as usize];
            touch & SENT != 0 && message.read && message.is_unique()
        };
        let of = |op: u32| match all.ops.status[op as usize] {
            Status::Ok => true,
            Status::Fail => false,
            Status::Info => all.ops.what[op as usize].is_data() && all.touches[all.ops.range(op)].iter().any(seen),
        };
        (0..all.ops.len() as u32).map(of).collect()
    }
}

impl Incremental for Log {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.all.completed(op);
    }

    fn violated(&self) -> Option<&'static str> {
        self.all.early.filter(|_| self.all.refused.is_none())
    }

    fn finish(self: Box<Self>) -> Findings {
        self.judge()
    }
}
