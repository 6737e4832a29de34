//! What do the transactions that clients ran prove about isolation?
//!
//! [`history`] holds transactions as flat columns. Of these, [`lists`] infers the order of each key's versions, says what is wrong
//! without any cycle, and which transaction must come before which; [`crate::graph`] keeps what may lie on cycles, [`cycles`] names
//! them, [`explain`] says why each step holds, and [`verify`] checks all of it against the history by itself.
//!
//! A valid history comes with an order of its transactions that, run one after the other, gives every read what it returned, and that
//! no completed transaction contradicts.

pub mod anomaly;
pub mod cycles;
pub mod explain;
pub mod history;
pub mod lattice;
pub mod lists;
pub mod register;
#[cfg(test)]
mod tests;
pub mod verify;
pub mod weak;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use elench_formats::History;
use elench_formats::history::Status;
use elench_formats::sorting::sort_by;

use crate::budget::{Budget, Spent};
use crate::graph::build::{Graph, MAX_NODES, Timeline};
use crate::graph::{Dependencies, Rel, Sink};
use crate::outcome::{Certificate, Coverage, KeyOrder, OpId, Outcome, Violation, Why};
use anomaly::{Anomaly, AnomalySet};
use cycles::{Cycles, Unnamed};
use explain::{Explained, Explainer};
use history::{Arena, NONE, Txn, Txns, UnknownMop, Workload};
use lattice::{Demand, Relations};
use lists::Lists;
use weak::doubt;
use weak::facts::Versions;

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Look at real-time order, where the history has one.
    pub real_time: bool,
    /// Look at the order within processes.
    pub process: bool,
    /// Examples to explain of each kind.
    pub examples: usize,
    /// Give the order of transactions, where there is one.
    pub certificate: bool,
    /// Registers: the EDN text of the value that keys have before anybody writes them; none for nil.
    pub initial: Option<String>,
    /// Wants to be told of every anomaly that is counted, not only of the examples.
    pub each: Option<Each>,
    /// Kinds to look for besides those that are always looked for, and to decide whatever the order of versions that nobody
    /// read: see [`Demand::extra`].
    pub extra: AnomalySet,
}

/// Is told of every anomaly, explained, one after the other: so only one explanation is held at a time, beside some 150 bytes an
/// anomaly.
#[derive(Clone)]
pub struct Each(Arc<dyn Fn(&Explained) + Send + Sync>);

impl Each {
    /// Hands each on.
    pub fn new(to: impl Fn(&Explained) + Send + Sync + 'static) -> Each {
        Each(Arc::new(to))
    }

    /// Tells it of one.
    pub fn tell(&self, anomaly: &Explained) {
        (self.0)(anomaly);
    }
}

impl fmt::Debug for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each")
    }
}

impl Options {
    /// Cases of each kind that have to be kept.
    fn cases(&self) -> u64 {
        if self.each.is_some() { u64::MAX } else { lists::EXAMPLES }
    }

    /// Kinds whose relations are looked at.
    fn related(&self, real_time: bool) -> AnomalySet {
        let related = |kind: &Anomaly| match kind.relations() {
            Relations::Data => true,
            Relations::Process => self.process,
            Relations::Realtime => real_time,
        };
        AnomalySet::ALL.iter().filter(related).collect()
    }

    /// Cycles of each kind that have to be kept.
    fn cycles(&self) -> usize {
        if self.each.is_some() { usize::MAX } else { self.examples }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            real_time: true,
            process: true,
            examples: 4,
            certificate: true,
            initial: None,
            each: None,
            extra: AnomalySet::EMPTY,
        }
    }
}

/// What was found of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How many: reads, elements or versions for what is no cycle; for cycles see [`cycles`].
    pub count: u64,
    /// Some of them, explained.
    pub examples: Vec<Explained>,
}

/// All that a history of transactions proves.
#[derive(Clone, Debug, Default)]
pub struct TxnResult {
    /// What is wrong, or undecided, by kind.
    pub findings: BTreeMap<Anomaly, Finding>,
    /// What this rests on.
    pub coverage: Coverage,
    /// Micro-operations that are none of the workload's, the first few.
    pub unknown: Vec<UnknownMop>,
    /// Components whose cycles could not be named within the budget, the first few.
    pub unnamed: Vec<Unnamed>,
    /// Kinds found that are there only if transactions took effect that nobody acknowledged: see [`doubt`].
    pub doubtful: AnomalySet,
    /// Kinds that were looked for to the end: that they were not found says that they are not there.
    pub looked_for: AnomalySet,
    /// Why nothing, or not everything, could be judged.
    pub undecided: Option<Why>,
    /// Where nothing is wrong: an order that explains everything.
    pub order: Option<Vec<OpId>>,
    /// Sizes, for those who want to know what it took.
    pub sizes: Sizes,
}

/// How large the problem was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Transactions.
    pub transactions: u64,
    /// Micro-operations.
    pub micro_operations: u64,
    /// Keys.
    pub keys: u64,
    /// Transactions that may have lain on cycles.
    pub in_windows: u64,
    /// Edges between these.
    pub edges: u64,
    /// Components with more than one transaction.
    pub components: u64,
    /// Transactions of the largest.
    pub largest: u64,
}

impl TxnResult {
    /// The kinds found.
    pub fn kinds(&self) -> AnomalySet {
        self.findings.keys().copied().collect()
    }

    /// Does a kind that was found prove one of these?
    pub fn proves(&self, kind: Anomaly, any: AnomalySet) -> bool {
        any.contains(if self.doubtful.contains(kind) { doubt::proves(kind) } else { kind })
    }

    /// What the kinds found prove.
    pub fn proven(&self) -> AnomalySet {
        let doubtful = self.kinds().intersection(self.doubtful);
        self.kinds().without(doubtful).union(doubtful.iter().map(doubt::proves).collect())
    }

    /// Why it is undecided whether what was found is one of these, if it may be.
    pub fn doubt(&self, any: AnomalySet) -> Option<Why> {
        let kind = self.kinds().intersection(self.doubtful).intersection(any).iter().next()?;
        Some(Why::Other(format!("{kind}, unless transactions that nobody acknowledged were read and rolled back")))
    }

    /// The answer to what is asked. Kinds that only say that something is undecided make it unknown where nothing worse was found.
    pub fn outcome(&self, demand: Demand) -> Outcome {
        let prohibits = demand.prohibits();
        let wrong: AnomalySet = self.kinds().iter().filter(|&kind| self.proves(kind, prohibits)).collect();
        let of = |kind: Anomaly| {
            let finding = self.findings.get(&kind);
            let example = finding.and_then(|f| f.examples.first());
            Violation {
                kind: kind.name(),
                ops: example.map(Explained::ops).unwrap_or_default(),
                explanation: match (finding, example) {
                    (Some(f), Some(e)) if f.count > 1 => format!("{} ({} of them)", e.text(), f.count),
                    (_, Some(e)) => e.text(),
                    _ => kind.about().to_string(),
                },
                certificate: None,
            }
        };
        let mut violations = wrong.iter().map(of);
        if let Some(first) = violations.next() {
            return Outcome::invalid(self.coverage.clone(), first, violations.collect());
        }
        if let Some(why) = &self.undecided {
            return Outcome::unknown(self.coverage.clone(), why.clone());
        }
        if let Some(why) = self.doubt(prohibits) {
            return Outcome::unknown(self.coverage.clone(), why);
        }
        if let Some(kind) = self.open().iter().next() {
            return Outcome::unknown(self.coverage.clone(), Why::Other(format!("{kind}: {}", kind.about())));
        }
        let unchecked = lattice::unchecked(demand.models, self.looked_for, self.proven());
        if !unchecked.is_empty() {
            let why = format!("not checked in full: {}", unchecked.names().join(", "));
            return Outcome::unknown(self.coverage.clone(), Why::Other(why));
        }
        let order = |ops: &Vec<OpId>| Certificate::Orders(vec![KeyOrder { key: None, order: Some(ops.clone()) }]);
        Outcome::valid(self.coverage.clone(), self.order.as_ref().map(order))
    }

    /// Kinds found that leave something undecided. Who wrote what was read need not be known where an order explains everything.
    pub fn open(&self) -> AnomalySet {
        let known = if self.order.is_some() { AnomalySet::of(&[Anomaly::DuplicateWrites]) } else { AnomalySet::EMPTY };
        self.kinds().intersection(AnomalySet::UNDECIDED).without(known)
    }

    /// Keeps an example while there are few, and tells whoever wants all.
    fn tell(&mut self, kind: Anomaly, options: &Options, explained: impl FnOnce() -> Explained) {
        let Some(finding) = self.findings.get_mut(&kind) else { return };
        let keep = finding.examples.len() < options.examples;
        if !keep && options.each.is_none() {
            return;
        }
        let explained = explained();
        if let Some(each) = &options.each {
            each.tell(&explained);
        }
        if keep {
            finding.examples.push(explained);
        }
    }

    /// Looks for what only weaker models tell apart, and notes what was looked for.
    fn weaker<V: Versions>(
        &mut self,
        versions: &V,
        txns: &Txns<'_>,
        timeline: &Timeline,
        found: &mut Cycles,
        (options, real_time): (&Options, bool),
        budget: &Budget,
    ) {
        let weak = weak::find(versions, txns, found, &timeline.position, options.extra, budget);
        self.looked_for = match found.parts.is_empty() {
            true => AnomalySet::ALL,
            false => AnomalySet::ALL.without(weak::KINDS).union(options.extra.intersection(weak::KINDS)),
        };
        let doubts = doubt::cycles(versions, txns, found, budget);
        self.doubtful = self.doubtful.union(doubts.kinds);
        doubts.hidden.into_iter().for_each(|cycle| found.add(cycle, options.cycles()));
        let open = weak.undecided.union(self.doubtful.implied());
        self.looked_for = self.looked_for.without(open).intersection(options.related(real_time));
        weak.cycles.into_iter().for_each(|cycle| found.add(cycle, options.cycles()));
        if let Some(spent) = weak.spent {
            self.undecided = Some(Why::Spent(spent));
        }
    }

    fn add(&mut self, kind: Anomaly, count: u64) {
        self.findings.entry(kind).or_insert(Finding { count: 0, examples: Vec::new() }).count += count;
    }
}

/// Checks a history of transactions that append to lists and read them.
pub fn check_list_append(history: &History, options: &Options, budget: &Budget) -> TxnResult {
    let run = || {
        let mut arena = Arena::default();
        let txns = Txns::read(history, Workload::ListAppend, &mut arena);
        of_lists(history, &txns, options, budget)
    };
    // Without a wish of the caller's, the pool that everybody shares has a thread a core.
    let own =
        (budget.thread_count() > 0).then(|| rayon::ThreadPoolBuilder::new().num_threads(budget.thread_count()).build());
    match own {
        Some(Ok(pool)) => pool.install(run),
        _ => run(),
    }
}

fn of_lists(history: &History, txns: &Txns<'_>, options: &Options, budget: &Budget) -> TxnResult {
    let mut result =
        TxnResult { coverage: coverage(history, txns), unknown: txns.unknown.clone(), ..TxnResult::default() };
    result.sizes.transactions = txns.len() as u64;
    result.sizes.micro_operations = txns.mop_count() as u64;
    result.sizes.keys = txns.keys.len() as u64;
    if txns.len().saturating_add(txns.mop_count()) > MAX_NODES / 2 {
        result.undecided = Some(Why::Other(format!("more than {} transactions and micro-operations", MAX_NODES / 2)));
        return result;
    }
    let mut held = budget.reserve();
    held.set(txns.memory() as u64 * 2);
    if txns.unknown_count > 0 {
        result.add(Anomaly::UnknownMicroOp, txns.unknown_count);
    }
    let lists = Lists::keeping(txns, options.cases());
    if let Some(spent @ (Spent::Memory | Spent::Cancelled)) = budget.spent() {
        result.undecided = Some(Why::Spent(spent));
    }
    for &(kind, count) in lists.cases().counts() {
        result.add(kind, count);
    }
    if result.kinds().contains(Anomaly::CyclicVersions) && !lists.is_backward() {
        result.doubtful.insert(Anomaly::CyclicVersions);
    }
    let real_time = options.real_time && history.meta().real_time;
    let timeline = Timeline::new(&txns.invoke, &txns.complete, lists.seen(), real_time);
    let all = WithProcesses { lists: &lists, txns, process: options.process };
    let graph = Graph::build(&timeline, &all);
    result.sizes.edges = graph.edges() as u64;
    result.sizes.in_windows = graph.roots().count() as u64;
    let mut found = cycles::find(&graph, options.cycles(), budget);
    result.weaker(&lists, txns, &timeline, &mut found, (options, real_time), budget);
    if found.components == 0 && result.findings.is_empty() && says_nothing(&timeline, txns, &all, real_time) {
        result.add(Anomaly::EmptyGraph, 1);
    }
    result.take(history, &lists, &graph, &timeline, found, options);
    result
}

impl TxnResult {
    fn take(
        &mut self,
        history: &History,
        lists: &Lists<'_>,
        graph: &Graph<'_>,
        timeline: &Timeline,
        found: Cycles,
        options: &Options,
    ) {
        self.sizes.components = found.components;
        self.sizes.largest = found.largest as u64;
        let explainer = Explainer::new(history, lists);
        for case in lists.cases().examples() {
            self.tell(case.kind, options, || Explained::Case(explainer.case(case)));
        }
        for (kind, count) in found.counts {
            self.add(kind, count);
        }
        for cycle in found.examples.values().flatten() {
            self.tell(cycle.kind, options, || Explained::Cycle(explainer.cycle(cycle)));
        }
        for unnamed in &found.unnamed {
            self.add(unnamed.kind, 1);
            self.undecided = Some(Why::Spent(unnamed.spent));
        }
        if found.unnamed_count > 0 {
            self.add(Anomaly::SearchTimeout, found.unnamed_count);
        }
        self.unnamed = found.unnamed;
        if options.certificate && self.findings.keys().all(|k| *k == Anomaly::EmptyGraph) {
            let ops = |order: Vec<u32>| order.into_iter().map(|t| lists.op(t)).collect();
            self.order = found.order.map(|order| ops(serial(timeline, graph, order)));
        }
    }
}

/// The order of all committed transactions: as they completed, but for those that may have lain on cycles, which fill their
/// places in the order that the search gave them.
fn serial(timeline: &Timeline, graph: &Graph<'_>, sorted: Vec<u32>) -> Vec<Txn> {
    let mut by_place: Vec<u32> = sorted;
    // Edges between windows point forward: what lies in an earlier one may be moved before all of a later one.
    let mut window = vec![0u32; timeline.position.len()];
    let mut number = 0;
    for (p, &t) in timeline.order.iter().enumerate() {
        number += u32::from(!graph.is_inside(t) || p == 0);
        window[t as usize] = number;
    }
    sort_by(&mut by_place, |&t| window[t as usize].into());
    let mut next = by_place.into_iter();
    let at = |&t: &u32| if graph.is_inside(t) { next.next().unwrap_or(t) } else { t };
    timeline.order.iter().map(at).collect()
}

/// Does no transaction say anything about the order of another one?
fn says_nothing<D: Dependencies>(timeline: &Timeline, txns: &Txns<'_>, all: &D, real_time: bool) -> bool {
    let committed = || timeline.order.iter().map(|&t| t as usize);
    let first_end = committed().map(|t| txns.complete[t]).min().unwrap_or(u64::MAX);
    if real_time && committed().any(|t| txns.invoke[t] > first_end) {
        return false;
    }
    struct Any(bool);
    impl Sink for Any {
        fn edge(&mut self, from: u32, to: u32, _: Rel) {
            self.0 |= from != to;
        }
        fn fan(&mut self, from: &[(u32, Rel)], to: &[u32]) {
            self.0 |= from.iter().any(|(f, _)| to.iter().any(|t| t != f));
        }
    }
    let mut any = Any(false);
    (0..all.parts()).for_each(|part| all.edges(part, &mut any));
    !any.0
}

/// What the lists say, and the order within processes.
struct WithProcesses<'a> {
    lists: &'a Lists<'a>,
    txns: &'a Txns<'a>,
    process: bool,
}

impl Dependencies for WithProcesses<'_> {
    fn parts(&self) -> usize {
        self.lists.parts() + usize::from(self.process)
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        if part < self.lists.parts() {
            return self.lists.edges(part, sink);
        }
        let mut last = vec![NONE; self.txns.processes as usize];
        for txn in 0..self.txns.len() as Txn {
            let process = self.txns.process[txn as usize];
            if process == NONE || !self.lists.committed(txn) {
                continue;
            }
            let last = &mut last[process as usize];
            if *last != NONE {
                sink.edge(*last, txn, Rel::Process);
            }
            // One whose end is unknown may take effect after its process went on.
            if self.txns.ok(txn) {
                *last = txn;
            }
        }
    }
}

fn coverage(history: &History, txns: &Txns<'_>) -> Coverage {
    let mut coverage = txns.left_out.clone();
    let mut counts = [0u64; 4];
    txns.status.iter().for_each(|&s| counts[s as usize] += 1);
    coverage.count("txn", crate::outcome::Status::Ok, counts[Status::Ok as usize]);
    coverage.count("txn", crate::outcome::Status::Fail, counts[Status::Fail as usize]);
    let unknown = counts[Status::Info as usize] + counts[Status::Pending as usize];
    coverage.count("txn", crate::outcome::Status::Info, unknown);
    debug_assert!(history.len() >= txns.len());
    coverage.keys = txns.keys.len().max(1) as u64;
    coverage.keys_decided = coverage.keys;
    coverage
}
