//! Which kinds of cycles are there?
//!
//! A component of the graph with all edges is searched for kinds from worst to mildest, over the smallest set of relations that can show
//! each, so that no cycle is given a worse name than it has: first over items alone, then with the order within processes,
//! then with real time. A kind that follows from one already found in the component is not looked for.
//!
//! What is counted: for `G0`, `G1c` and `G2-item` and their forms, the strongly connected components under just their
//! relations that hold such a cycle; for `G-single-item` and `G-nonadjacent-item`, those under all relations.

use elench_formats::sorting::sort_by;
use std::collections::BTreeMap;

use super::anomaly::{Anomaly, AnomalySet};
use crate::budget::{Budget, Spent};
use crate::graph::build::Graph;
use crate::graph::component::Components;
use crate::graph::search::{Cutter, Link, Part};
use crate::graph::{Rel, Rels};

/// A cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// What it is.
    pub kind: Anomaly,
    /// Its steps: each begins where the one before ends.
    pub links: Vec<Link>,
    /// By step, the micro-operations that it must be shown by, of the one and of the other transaction; empty, or
    /// [`NONE`](super::history::NONE), where any do.
    pub at: Vec<(u32, u32)>,
}

impl Cycle {
    /// The steps, with the micro-operations that must show them.
    pub fn steps(&self) -> impl Iterator<Item = (Link, (u32, u32))> + '_ {
        let free = (super::history::NONE, super::history::NONE);
        self.links.iter().enumerate().map(move |(i, &link)| (link, self.at.get(i).copied().unwrap_or(free)))
    }
}

/// A component whose cycles could not be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// What is known of it: some `cycle-exists`.
    pub kind: Anomaly,
    /// Number of its transactions.
    pub size: usize,
    /// Some of them.
    pub txns: Vec<u32>,
    /// Why.
    pub spent: Spent,
}

/// All that is known of cycles.
#[derive(Clone, Debug, Default)]
pub struct Cycles {
    /// How many of each kind.
    pub counts: BTreeMap<Anomaly, u64>,
    /// Some of each kind, the shortest found.
    pub examples: BTreeMap<Anomaly, Vec<Cycle>>,
    /// Components that were not decided in full.
    pub unnamed: Vec<Unnamed>,
    /// Number of those.
    pub unnamed_count: u64,
    /// Components with more than one transaction.
    pub components: u64,
    /// Transactions of the largest one.
    pub largest: usize,
    /// What is strongly connected by `ww`, `wr` and `rw` alone.
    pub parts: Vec<Part>,
    /// What is strongly connected only with the order of processes or of time.
    pub timed: Vec<Part>,
    /// Where there is no cycle: transactions that may have lain on one, in an order that all edges allow.
    pub order: Option<Vec<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    G0,
    G1c,
    Single,
    Nonadjacent,
    G2,
}

const FAMILIES: [Family; 5] = [Family::G0, Family::G1c, Family::Single, Family::Nonadjacent, Family::G2];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Item,
    Process,
    RealTime,
}

const LEVELS: [Level; 3] = [Level::Item, Level::Process, Level::RealTime];

impl Level {
    fn more(self) -> Rels {
        match self {
            Level::Item => Rels::NO,
            Level::Process => Rels::PROCESS,
            Level::RealTime => Rels::REAL_TIME,
        }
    }

    /// What may be said of a component of this level when nothing else is known.
    fn unnamed(self) -> Anomaly {
        match self {
            Level::Item => Anomaly::Pl299Cycle,
            Level::Process => Anomaly::StrongSessionPl3Cycle,
            Level::RealTime => Anomaly::PlSsCycle,
        }
    }
}

fn name(family: Family, level: Level) -> Anomaly {
    use Anomaly::*;
    match (family, level) {
        (Family::G0, Level::Item) => G0,
        (Family::G0, Level::Process) => G0Process,
        (Family::G0, Level::RealTime) => G0Realtime,
        (Family::G1c, Level::Item) => G1c,
        (Family::G1c, Level::Process) => G1cProcess,
        (Family::G1c, Level::RealTime) => G1cRealtime,
        (Family::Single, Level::Item) => GSingleItem,
        (Family::Single, Level::Process) => GSingleItemProcess,
        (Family::Single, Level::RealTime) => GSingleItemRealtime,
        (Family::Nonadjacent, Level::Item) => GNonadjacentItem,
        (Family::Nonadjacent, Level::Process) => GNonadjacentItemProcess,
        (Family::Nonadjacent, Level::RealTime) => GNonadjacentItemRealtime,
        (Family::G2, Level::Item) => G2Item,
        (Family::G2, Level::Process) => G2ItemProcess,
        (Family::G2, Level::RealTime) => G2ItemRealtime,
    }
}

/// What a cycle is, by its steps; none if it is no cycle.
pub fn kind_of(rels: &[Rel]) -> Option<Anomaly> {
    let has = |rel| rels.contains(&rel);
    let level = match (has(Rel::RealTime), has(Rel::Process)) {
        (true, _) => Level::RealTime,
        (_, true) => Level::Process,
        _ => Level::Item,
    };
    let adjacent = (0..rels.len()).any(|i| rels[i] == Rel::Rw && rels[(i + 1) % rels.len()] == Rel::Rw);
    let family = match rels.iter().filter(|&&r| r == Rel::Rw).count() {
        0 if has(Rel::Wr) => Family::G1c,
        0 if has(Rel::Ww) => Family::G0,
        0 => return None,
        1 => Family::Single,
        _ if adjacent => Family::G2,
        _ => Family::Nonadjacent,
    };
    Some(name(family, level))
}

pub(super) fn kind_of_links(links: &[Link]) -> Option<Anomaly> {
    let mut txns: Vec<u32> = links.iter().map(|l| l.from).collect();
    txns.sort_unstable();
    txns.dedup();
    let rels: Vec<Rel> = links.iter().map(|l| l.rel).collect();
    (txns.len() == links.len()).then(|| kind_of(&rels)).flatten()
}

/// Makes one step of those that follow each other in one process, and of those in real time: both orders are transitive, and a process
/// may have run thousands of transactions between two that matter.
pub(super) fn shortened(mut links: Vec<Link>) -> Vec<Link> {
    let goes_on = |one: &Link, next: &Link| one.rel == next.rel && matches!(next.rel, Rel::Process | Rel::RealTime);
    let starts = |i: usize| !goes_on(&links[(i + links.len() - 1) % links.len()], &links[i]);
    let Some(first) = (0..links.len()).find(|&i| starts(i)) else { return links };
    links.rotate_left(first);
    links.dedup_by(|next, one| {
        let same = goes_on(one, next);
        one.to = if same { next.to } else { one.to };
        same
    });
    links
}

/// Finds all cycles of a graph, keeping so many examples of each kind, or, for `usize::MAX`, each that is counted.
pub fn find(graph: &Graph<'_>, examples: usize, budget: &Budget) -> Cycles {
    let mut cycles = Cycles::default();
    let components = Components::of(graph, graph.roots());
    let (nodes, starts) = components.groups();
    let mut cutter = None;
    for bounds in starts.windows(2).filter(|w| w[1] - w[0] > 1) {
        let cutter = cutter.get_or_insert_with(|| Cutter::new(graph));
        let part = cutter.cut(graph, &nodes[bounds[0] as usize..bounds[1] as usize]);
        cycles.components += 1;
        cycles.largest = cycles.largest.max(part.txn_count());
        cycles.classify(&part, examples, budget);
        cycles.parts.extend(part.under(Rels::ITEM).into_iter().filter(|p| p.txn_count() > 1));
        if part.has(Rel::Process) || part.has(Rel::RealTime) {
            cycles.timed.push(part);
        }
    }
    cycles.examples.values_mut().for_each(|kept| sort_by(kept, |c| c.links.len() as u64));
    if cycles.components == 0 {
        cycles.order = Some(nodes.into_iter().filter(|&n| n < graph.txns()).collect());
    }
    cycles
}

impl Cycles {
    fn classify(&mut self, part: &Part, examples: usize, budget: &Budget) {
        let mut found = AnomalySet::EMPTY;
        let levels = LEVELS.into_iter().filter(|level| match level {
            Level::Item => true,
            Level::Process => part.has(Rel::Process),
            Level::RealTime => part.has(Rel::RealTime),
        });
        for level in levels {
            for family in FAMILIES {
                let kind = name(family, level);
                if !found.intersection(kind.implying()).is_empty() {
                    continue;
                }
                match search(part, family, level, budget) {
                    Ok(cycles) => {
                        for links in cycles.into_iter().filter(|links| kind_of_links(links) == Some(kind)) {
                            found.insert(kind);
                            self.add(Cycle { kind, links: shortened(links), at: Vec::new() }, examples);
                        }
                    }
                    Err(spent) => return self.give_up(part, spent),
                }
            }
        }
        debug_assert!(!found.is_empty(), "a component holds a cycle, and every cycle is of some kind");
    }

    /// Counts a cycle, and keeps it if it is among the shortest of its kind.
    pub fn add(&mut self, cycle: Cycle, examples: usize) {
        *self.counts.entry(cycle.kind).or_default() += 1;
        let kept = self.examples.entry(cycle.kind).or_default();
        // All are sorted in the end; to insert each in its place would be quadratic.
        if examples == usize::MAX {
            return kept.push(cycle);
        }
        let at = kept.partition_point(|c| c.links.len() <= cycle.links.len());
        if at < examples {
            kept.insert(at, cycle);
            kept.truncate(examples);
        }
    }

    fn give_up(&mut self, part: &Part, spent: Spent) {
        let level = match (part.has(Rel::RealTime), part.has(Rel::Process)) {
            (true, _) => Level::RealTime,
            (_, true) => Level::Process,
            _ => Level::Item,
        };
        self.unnamed_count += 1;
        if self.unnamed.len() < 16 {
            let (size, txns) = (part.txn_count(), part.some_txns(16));
            self.unnamed.push(Unnamed { kind: level.unnamed(), size, txns, spent });
        }
    }
}

fn search(part: &Part, family: Family, level: Level, budget: &Budget) -> Result<Vec<Vec<Link>>, Spent> {
    let more = level.more();
    match family {
        Family::G0 => part.with(Rels::WW.and(more), Rel::Ww, budget),
        Family::G1c => part.with(Rels::WW_WR.and(more), Rel::Wr, budget),
        Family::Single => Ok(part.single(Rels::WW_WR.and(more), Rel::Rw, budget)?.into_iter().collect()),
        Family::Nonadjacent => Ok(part.nonadjacent(Rels::WW_WR.and(more), Rel::Rw, budget)?.into_iter().collect()),
        Family::G2 => part.with(Rels::ITEM.and(more), Rel::Rw, budget),
    }
}
