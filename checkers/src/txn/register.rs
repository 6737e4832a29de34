//! What do reads and writes of registers say about the order of transactions?
//!
//! A register shows one value at a time, and nobody says which came before. As values are written once, a read names its
//! transaction (`wr`); the order of a key's *versions* must be inferred, from sources that are trusted one after the other:
//!
//! - the initial value comes before all others, unless somebody wrote it: then who reads it read an unknown version;
//! - `wfr_keys`: who reads a version and writes the key installs a later one;
//! - `sequential_keys`: what a process meets in a key later is not older;
//! - `linearizable_keys`: what a transaction meets in a key is not older than what another one left there before it began.
//!
//! A source that makes a key's versions cyclic is told of (`cyclic-versions`) and left out for that key. The order then
//! gives `ww` (who installed a version, who installed the next) and `rw` (who read a version, who installed the next).
//!
//! Real-time order of versions has O(n²) pairs, too: a version was left, at the earliest, at `c`, and was met by a transaction
//! that began, at the latest, at `i`; one precedes another when its `c` is before the other's `i`. Sorted by `i`, the versions right
//! after one are a run, which ends where a version between begins to exist.
//!
//! Keys are independent of each other. O(micro-operations · log), but for real-time order, where it is O(versions · those open
//! at once). Memory: 8 bytes an edge.
//!
//! The idea is Elle's (Kingsbury and Alvaro, VLDB 2020). Here, other than there, a transaction of unknown end takes part when
//! somebody read what it wrote, and what nobody wrote, or what was written twice, is named.

mod earlier;
mod entries;
mod explain;
mod facts;
mod keys;
mod refute;
mod resolve;
mod search;
mod serial;
pub mod timestamps;
mod turned;

use elench_formats::History;
use elench_formats::history::Status;

use super::anomaly::{Anomaly, AnomalySet};
use super::cycles;
use super::explain::Explained;
use super::history::{Arena, NIL, NONE, Txn, Txns, Workload};
use super::lattice::{Model, ruled_out};
use super::lists::Cases;
use super::{Options, TxnResult};
use crate::budget::Budget;
use crate::graph::build::{Graph, MAX_NODES, Timeline};
use crate::graph::{Dependencies, Rel, Sink};
use crate::outcome::Why;
use crate::parallel;
use entries::Entries;
use keys::{Scan, Shard};
use resolve::{Clock, Resolved};
use serial::{Answer, Keep, Question};

/// What is assumed of each key by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    /// Transactions committed in the order that the database claims ([`timestamps`]).
    pub commit_timestamps: bool,
    /// A transaction that reads a key and then writes it installs a version later than the one it read.
    pub wfr_keys: bool,
    /// Each key is sequentially consistent.
    pub sequential_keys: bool,
    /// Each key is linearizable.
    pub linearizable_keys: bool,
}

impl Assumptions {
    fn all(&mut self) -> [(&'static str, &mut bool); 4] {
        [
            ("commit-timestamps", &mut self.commit_timestamps),
            ("wfr-keys", &mut self.wfr_keys),
            ("sequential-keys", &mut self.sequential_keys),
            ("linearizable-keys", &mut self.linearizable_keys),
        ]
    }

    /// The names of those that are made.
    pub fn names(mut self) -> Vec<&'static str> {
        self.all().into_iter().filter(|(_, made)| **made).map(|(name, _)| name).collect()
    }

    /// Those of such names.
    ///
    /// # Errors
    /// A name of none.
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Assumptions, String> {
        let mut assumptions = Assumptions::default();
        for name in names {
            let found = assumptions.all().into_iter().find(|(known, _)| *known == name);
            *found.ok_or_else(|| format!("nothing that can be assumed is called `{name}`"))?.1 = true;
        }
        Ok(assumptions)
    }
}

/// What is known of all keys.
#[derive(Debug)]
pub struct Registers<'a> {
    txns: &'a Txns<'a>,
    entries: &'a Entries,
    assumptions: Assumptions,
    ranks: &'a [u32],
    initial: Option<&'a Initial>,
    shards: Vec<Shard>,
    committed: Vec<bool>,
    cases: Cases,
}

/// Micro-operations that are worth a task of their own.
const SHARD: usize = 1 << 15;

impl<'a> Registers<'a> {
    /// Of these transactions; `seen` are those of unknown end that committed. Of each kind so many cases are kept at most: each takes
    /// some 150 bytes.
    fn keeping(read: &'a Read<'a>, seen: &[(Txn, u64)], most: u64) -> Registers<'a> {
        let &Read { txns, ref entries, assumptions, ref ranks, initial, .. } = read;
        let mut committed: Vec<bool> = txns.status.iter().map(|&s| s == Status::Ok).collect();
        seen.iter().for_each(|&(t, _)| committed[t as usize] = true);
        let scan = |keys| Scan::new(txns, &committed, assumptions, ranks).keeping(most).keys(entries, keys);
        let mut shards: Vec<Shard> = parallel::map_items(entries.runs(SHARD), scan);
        let mut cases = Cases::keeping(most);
        shards.iter_mut().for_each(|shard| cases.merge(std::mem::take(&mut shard.cases)));
        Registers { txns, entries, assumptions, ranks, initial, shards, committed, cases }
    }

    /// What is wrong besides cycles.
    pub fn cases(&self) -> &Cases {
        &self.cases
    }

    /// Did a transaction commit, as far as anybody knows?
    pub fn committed(&self, txn: Txn) -> bool {
        self.committed[txn as usize]
    }
}

impl Dependencies for Registers<'_> {
    fn parts(&self) -> usize {
        self.shards.len()
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        self.shards[part].edges(sink);
    }
}

/// Which edges there are, with the order within processes.
struct WithProcesses<'a> {
    registers: &'a Registers<'a>,
    process: bool,
}

impl Dependencies for WithProcesses<'_> {
    fn parts(&self) -> usize {
        self.registers.parts() + usize::from(self.process)
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        if part < self.registers.parts() {
            return self.registers.edges(part, sink);
        }
        let txns = self.registers.txns;
        let mut last = vec![NONE; txns.processes as usize];
        for txn in 0..txns.len() as Txn {
            let process = txns.process[txn as usize];
            if process == NONE || !self.registers.committed(txn) {
                continue;
            }
            let last = &mut last[process as usize];
            if *last != NONE {
                sink.edge(*last, txn, Rel::Process);
            }
            if txns.ok(txn) {
                *last = txn;
            }
        }
    }
}

/// The value that keys have before anybody writes them, where that is not nil. In the columns it changes places with nil.
#[derive(Debug)]
struct Initial {
    text: String,
    /// What stands for nil.
    nil: i64,
}

impl Initial {
    /// Makes the codes of the initial value and of nil change places.
    fn of(text: &str, history: &History, txns: &mut Txns<'_>) -> Initial {
        let nil = txns.code_of(history, text).unwrap_or_else(|| unused(&txns.value));
        for value in &mut txns.value {
            *value = match *value {
                NIL => nil,
                v if v == nil => NIL,
                v => v,
            };
        }
        Initial { text: text.to_string(), nil }
    }
}

/// A number that is none of these.
fn unused(values: &[i64]) -> i64 {
    let mut large: Vec<i64> = values.iter().copied().filter(|&v| v > i64::MAX - values.len() as i64 - 1).collect();
    large.sort_unstable();
    large.dedup();
    large.into_iter().rev().fold(i64::MAX, |free, v| if v == free { free - 1 } else { free })
}

/// A history as it was read.
struct Read<'a> {
    txns: &'a Txns<'a>,
    entries: Entries,
    clock: Clock,
    assumptions: Assumptions,
    /// Where commit timestamps are believed: the rank of each transaction's.
    ranks: Vec<u32>,
    initial: Option<&'a Initial>,
}

/// Checks a history of transactions that write and read registers.
pub fn check_rw_register(history: &History, options: &Options, assumptions: Assumptions, budget: &Budget) -> TxnResult {
    let run = || {
        let mut arena = Arena::default();
        let mut txns = Txns::read(history, Workload::Register, &mut arena);
        let initial = options.initial.as_deref().filter(|&text| text != "nil");
        let initial = initial.map(|text| Initial::of(text, history, &mut txns));
        of_registers(history, &txns, initial.as_ref(), options, assumptions, budget)
    };
    // Without a wish of the caller's, the pool that everybody shares has a thread a core.
    let own =
        (budget.thread_count() > 0).then(|| rayon::ThreadPoolBuilder::new().num_threads(budget.thread_count()).build());
    match own {
        Some(Ok(pool)) => pool.install(run),
        _ => run(),
    }
}

fn of_registers(
    history: &History,
    txns: &Txns<'_>,
    initial: Option<&Initial>,
    options: &Options,
    assumptions: Assumptions,
    budget: &Budget,
) -> TxnResult {
    let coverage = super::coverage(history, txns);
    let mut result = TxnResult { coverage, unknown: txns.unknown.clone(), ..TxnResult::default() };
    result.sizes.transactions = txns.len() as u64;
    result.sizes.micro_operations = txns.mop_count() as u64;
    result.sizes.keys = txns.keys.len() as u64;
    if txns.len().saturating_add(txns.mop_count()) > MAX_NODES {
        result.undecided = Some(Why::Other(format!("more than {MAX_NODES} transactions and micro-operations")));
        return result;
    }
    let mut held = budget.reserve();
    held.set((txns.memory() + txns.mop_count() * BYTES) as u64);
    if txns.unknown_count > 0 {
        result.add(Anomaly::UnknownMicroOp, txns.unknown_count);
    }
    let ranks = if assumptions.commit_timestamps { timestamps::ranks(history, txns) } else { Vec::new() };
    let read = Read { txns, entries: Entries::new(txns), clock: Clock::new(txns), assumptions, ranks, initial };
    let real_time = options.real_time && history.meta().real_time;
    let mut resolved = Resolved::new(txns, &read.entries, &read.clock);
    let answer = read.serial(&mut resolved, real_time, options, budget);
    let refuted = answer == Answer::Refuted;
    let order = if let Answer::Order(order) = answer { Some(order) } else { None };
    let plain = txns.unknown_count == 0 && !resolved.twice;
    if plain && order.is_some() && read.connects(&resolved, real_time, options.process) {
        // The order keeps what is looked at of processes and of real time: else it would not be one.
        result.looked_for = options.related(real_time);
        result.order = order.filter(|_| options.certificate).map(|o| o.into_iter().map(|t| txns.op(t)).collect());
        return result;
    }
    let more = read.anomalies(history, &resolved, order, real_time, options, budget, &mut result);
    if refuted {
        read.refute(history, &mut resolved, real_time, options, budget, &mut result);
    }
    result.order = more.filter(|_| options.certificate).map(|o| o.into_iter().map(|t| txns.op(t)).collect());
    result
}

/// Bytes a micro-operation that are held at once beside the columns.
const BYTES: usize = 64;

impl Read<'_> {
    /// An order of all transactions that explains everything, if one is found.
    fn serial(&self, resolved: &mut Resolved, real_time: bool, options: &Options, budget: &Budget) -> Answer {
        let Assumptions { sequential_keys, linearizable_keys, commit_timestamps, .. } = self.assumptions;
        let process = options.process || sequential_keys;
        let ranks = commit_timestamps.then_some(&self.ranks[..]);
        let (txns, clock) = (self.txns, &self.clock);
        let mut find = |real_time| {
            let keep = Keep { real_time, process };
            serial::order(Question { txns, clock, keep, ranks, budget }, resolved)
        };
        // An order that keeps real time is one that does not have to.
        match find(true) {
            Answer::Refuted | Answer::Unknown if !real_time && !linearizable_keys => find(false),
            answer => answer,
        }
    }

    /// Shows that there is no order of all transactions, by as little as does: by what they read and wrote alone, or with the order within
    /// processes, or with real time. Nothing that is assumed of keys is made use of.
    fn refute(
        &self,
        history: &History,
        resolved: &mut Resolved,
        real_time: bool,
        options: &Options,
        budget: &Budget,
        result: &mut TxnResult,
    ) {
        let (txns, clock) = (self.txns, &self.clock);
        // With each what it rules out, and the kind of cycle that nothing else tells apart.
        let keep = |real_time, process| Keep { real_time, process };
        let levels = [
            (true, keep(false, false), Model::RepeatableRead, Anomaly::G2Item),
            (options.process, keep(false, true), Model::StrongSessionSerializable, Anomaly::G2ItemProcess),
            (real_time, keep(true, options.process), Model::StrongSerializable, Anomaly::G2ItemRealtime),
        ];
        let out = ruled_out(result.proven());
        for (_, keep, _, level) in
            levels.into_iter().filter(|&(looked_at, _, model, _)| looked_at && !out.contains(model))
        {
            let question = Question { txns, clock, keep, ranks: None, budget };
            let Some(conflicts) = search::conflicts(question, resolved) else { continue };
            let lemmas = refute::prove(question, resolved, &conflicts);
            if let Some(refutation) =
                lemmas.and_then(|lemmas| explain::refutation(history, self, &lemmas, options.initial.as_deref()))
            {
                let kind = refutation.kind;
                result.add(kind, 1);
                result.tell(kind, options, || Explained::Refutation(refutation));
                return;
            }
            // The search may be right all the same: that nothing was found is no answer.
            result.looked_for = result.looked_for.without(AnomalySet::of(&[level]));
        }
    }

    /// Does some committed transaction say something about the order of others?
    fn connects(&self, resolved: &Resolved, real_time: bool, process: bool) -> bool {
        let ok = |&t: &usize| self.txns.ok(t as Txn);
        let later = || (0..self.txns.len()).rev().filter(ok).any(|t| self.clock.before[t] > 0);
        let repeated = || serial::previous(self.txns).iter().enumerate().any(|(t, &p)| p != NONE && ok(&t));
        (real_time && later()) || resolved.connects() || (process && repeated())
    }

    /// Finds what is wrong. Given is an order that explains everything, if one was found; if not, and nothing is wrong, the order of
    /// versions may give one.
    #[allow(clippy::too_many_arguments)]
    fn anomalies(
        &self,
        history: &History,
        resolved: &Resolved,
        order: Option<Vec<Txn>>,
        real_time: bool,
        options: &Options,
        budget: &Budget,
        result: &mut TxnResult,
    ) -> Option<Vec<Txn>> {
        let txns = self.txns;
        let registers = Registers::keeping(self, &resolved.seen, options.cases());
        for &(kind, count) in registers.cases().counts() {
            result.add(kind, count);
        }
        let timeline = Timeline::new(&txns.invoke, &txns.complete, &resolved.seen, real_time);
        let all = WithProcesses { registers: &registers, process: options.process };
        let graph = Graph::build(&timeline, &all);
        result.sizes.edges = graph.edges() as u64;
        result.sizes.in_windows = graph.roots().count() as u64;
        let mut found = cycles::find(&graph, options.cycles(), budget);
        result.weaker(&registers, txns, &timeline, &mut found, (options, real_time), budget);
        let said = registers.shards.iter().any(|shard| shard.said);
        if found.components == 0 && !said && super::says_nothing(&timeline, txns, &all, real_time) {
            result.add(Anomaly::EmptyGraph, 1);
        }
        result.sizes.components = found.components;
        result.sizes.largest = found.largest as u64;
        for (&kind, &count) in &found.counts {
            result.add(kind, count);
        }
        for unnamed in &found.unnamed {
            result.add(unnamed.kind, 1);
            result.undecided = Some(Why::Spent(unnamed.spent));
        }
        if found.unnamed_count > 0 {
            result.add(Anomaly::SearchTimeout, found.unnamed_count);
        }
        result.unnamed = found.unnamed.clone();
        explain::explain(history, &registers, &found, options, result);
        if !result.kinds().is_subset(EXPLAINABLE) {
            return None;
        }
        let sorted = |order| super::serial(&timeline, &graph, order);
        let runs = |order: &Vec<Txn>| serial::runs(txns, resolved, order);
        order.or_else(|| found.order.map(sorted).filter(runs))
    }
}

/// What does not keep an order from explaining everything.
const EXPLAINABLE: AnomalySet = AnomalySet::of(&[Anomaly::DuplicateWrites, Anomaly::EmptyGraph]);

#[cfg(test)]
mod tests;
