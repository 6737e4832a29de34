//! From dependencies to a graph of what may lie on cycles.
//!
//! Transactions get positions on a line, those of their completions; one whose end is unknown lies just before the first that
//! saw it. Real-time order points forward on that line by construction. A first pass over all dependencies notes for each
//! position how far back from it edges lead, the line is cut into windows, and a second pass keeps the edges within them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::component::Walk;
use super::{Dependencies, Rel, Sink};
use crate::parallel;

const NONE: u32 = u32::MAX;
const REL_SHIFT: u32 = 29;
const NODE_MASK: u32 = (1 << REL_SHIFT) - 1;

/// More nodes than this cannot be numbered beside their relations.
pub const MAX_NODES: usize = NODE_MASK as usize;

#[inline]
pub(super) fn pack(node: u32, rel: Rel) -> u32 {
    node | (rel as u32) << REL_SHIFT
}

#[inline]
pub(super) fn unpack(word: u32) -> (u32, Rel) {
    (word & NODE_MASK, Rel::ALL[(word >> REL_SHIFT) as usize % Rel::ALL.len()])
}

/// When transactions took place. All are named by their place in order of invocation.
#[derive(Debug)]
pub struct Timeline {
    /// Committed transactions by position.
    pub order: Vec<u32>,
    /// Position by transaction; none for those not committed.
    pub position: Vec<u32>,
    /// Completed transactions by completion: the time nodes.
    by_completion: Vec<u32>,
    /// Time node by transaction; none for those without a known end.
    time: Vec<u32>,
    /// First transaction invoked after each completion.
    first_after: Vec<u32>,
}

impl Timeline {
    /// Invocations ascend. `complete` is `u64::MAX` for a transaction of unknown end; of such ones those are committed to which `seen`
    /// gives the completion of the first that saw them.
    pub fn new(invoke: &[u64], complete: &[u64], seen: &[(u32, u64)], real_time: bool) -> Timeline {
        let by_completion = by_completion(complete);
        let mut unknown: Vec<(u64, u32)> = seen.iter().map(|&(t, at)| (at.max(invoke[t as usize]), t)).collect();
        unknown.sort_unstable();
        let mut order = Vec::with_capacity(by_completion.len() + unknown.len());
        let mut next = unknown.into_iter().peekable();
        for &t in &by_completion {
            while let Some((_, u)) = next.next_if(|&(at, _)| at <= complete[t as usize]) {
                order.push(u);
            }
            order.push(t);
        }
        order.extend(next.map(|(_, u)| u));
        let mut position = vec![NONE; invoke.len()];
        order.iter().enumerate().for_each(|(p, &t)| position[t as usize] = p as u32);
        if !real_time {
            return Timeline { order, position, by_completion: Vec::new(), time: Vec::new(), first_after: Vec::new() };
        }
        let mut time = vec![NONE; invoke.len()];
        let mut first_after = Vec::with_capacity(by_completion.len());
        let mut first = 0;
        for (node, &t) in by_completion.iter().enumerate() {
            time[t as usize] = node as u32;
            while first < invoke.len() && invoke[first] < complete[t as usize] {
                first += 1;
            }
            first_after.push(first as u32);
        }
        Timeline { order, position, by_completion, time, first_after }
    }
}

/// Transactions that completed, by completion. Linear where indices are dense, as those of events are.
pub(crate) fn by_completion(complete: &[u64]) -> Vec<u32> {
    let done = || complete.iter().enumerate().filter(|&(_, &c)| c != u64::MAX).map(|(t, &c)| (c, t as u32));
    let (count, last) = done().fold((0usize, 0), |(n, last), (c, _)| (n + 1, last.max(c)));
    if last < 8 * count as u64 + 64 {
        let mut slots = vec![NONE; last as usize + 1];
        if done().all(|(c, t)| std::mem::replace(&mut slots[c as usize], t) == NONE) {
            slots.retain(|&t| t != NONE);
            return slots;
        }
    }
    let mut all: Vec<_> = done().collect();
    all.sort_unstable();
    all.into_iter().map(|(_, t)| t).collect()
}

/// Notes for each position the furthest one from which an edge leads back to it.
struct Marks<'a> {
    position: &'a [u32],
    furthest: &'a [AtomicU32],
}

impl Marks<'_> {
    #[inline]
    fn back(&self, from: u32, to: u32) {
        if from > to {
            self.furthest[to as usize].fetch_max(from, Ordering::Relaxed);
        }
    }
}

impl Sink for &Marks<'_> {
    #[inline]
    fn edge(&mut self, from: u32, to: u32, _: Rel) {
        self.back(self.position[from as usize], self.position[to as usize]);
    }

    fn fan(&mut self, from: &[(u32, Rel)], to: &[u32]) {
        let (mut first, mut second) = (NONE, NONE);
        for &t in to {
            let p = self.position[t as usize];
            (first, second) = if p < first { (p, first) } else { (first, second.min(p)) };
        }
        for &(f, _) in from {
            let p = self.position[f as usize];
            self.back(p, if p == first { second } else { first });
        }
    }
}

/// Keeps the edges within windows.
struct Kept<'a> {
    inside: &'a [bool],
    edges: Vec<(u32, u32)>,
    /// Edges of nodes that are no transactions: these are numbered from 0, their ends as in [`Fanned`].
    aux: u32,
    fanned: Vec<(Fanned, Fanned, Rel)>,
}

#[derive(Clone, Copy)]
enum Fanned {
    Txn(u32),
    Aux(u32),
}

impl Kept<'_> {
    fn inside(&self, t: u32) -> bool {
        self.inside[t as usize]
    }
}

impl Sink for Kept<'_> {
    #[inline]
    fn edge(&mut self, from: u32, to: u32, rel: Rel) {
        if from != to && self.inside(from) && self.inside(to) {
            self.edges.push((from, pack(to, rel)));
        }
    }

    fn fan(&mut self, from: &[(u32, Rel)], to: &[u32]) {
        if from.len().saturating_mul(to.len()) <= 2 * (from.len() + to.len()) + 16 {
            for &(f, rel) in from {
                to.iter().for_each(|&t| self.edge(f, t, rel));
            }
            return;
        }
        self.chains(from, to);
    }
}

impl Kept<'_> {
    /// Two chains of nodes over the targets: from the i-th of one, all targets from the i-th on are reached; from the i-th of
    /// the other, all up to it. A source that is itself a target enters beside itself.
    fn chains(&mut self, from: &[(u32, Rel)], to: &[u32]) {
        let mut to: Vec<u32> = to.iter().copied().filter(|&t| self.inside(t)).collect();
        to.sort_unstable();
        to.dedup();
        let count = to.len() as u32;
        let (on, up_to) = (self.aux, self.aux + count);
        self.aux += 2 * count;
        for (i, &t) in (0..count).zip(&to) {
            self.fanned.push((Fanned::Aux(on + i), Fanned::Txn(t), Rel::Pass));
            self.fanned.push((Fanned::Aux(up_to + i), Fanned::Txn(t), Rel::Pass));
            if i > 0 {
                self.fanned.push((Fanned::Aux(on + i - 1), Fanned::Aux(on + i), Rel::Pass));
                self.fanned.push((Fanned::Aux(up_to + i), Fanned::Aux(up_to + i - 1), Rel::Pass));
            }
        }
        let inside = self.inside;
        for &(f, rel) in from.iter().filter(|&&(f, _)| inside[f as usize]) {
            let (below, above) = match to.binary_search(&f) {
                Ok(i) => (i as u32, i as u32 + 1),
                Err(_) => (0, 0),
            };
            if below > 0 {
                self.fanned.push((Fanned::Txn(f), Fanned::Aux(up_to + below - 1), rel));
            }
            if above < count {
                self.fanned.push((Fanned::Txn(f), Fanned::Aux(on + above), rel));
            }
        }
    }
}

/// The part of a history that may lie on cycles. Nodes are transactions by number, then nodes of fans, then time nodes.
#[derive(Debug)]
pub struct Graph<'a> {
    timeline: &'a Timeline,
    /// By transaction.
    inside: Vec<bool>,
    txns: u32,
    /// Transactions and nodes of fans.
    rows: u32,
    offsets: Vec<u32>,
    targets: Vec<u32>,
}

impl<'a> Graph<'a> {
    /// Of these dependencies.
    pub fn build<D: Dependencies>(timeline: &'a Timeline, dependencies: &D) -> Graph<'a> {
        let txns = timeline.position.len();
        let inside = windows(timeline, dependencies);
        if !inside.contains(&true) {
            let offsets = Vec::new();
            return Graph { timeline, inside, txns: txns as u32, rows: txns as u32, offsets, targets: Vec::new() };
        }
        let new = || Kept { inside: &inside, edges: Vec::new(), aux: 0, fanned: Vec::new() };
        let kept: Vec<Kept<'_>> = parallel::map(dependencies.parts(), 1, |part| {
            let mut kept = new();
            dependencies.edges(part, &mut kept);
            kept
        });
        let (rows, offsets, targets) = compressed(txns as u32, &kept);
        drop(kept);
        Graph { timeline, inside, txns: txns as u32, rows, offsets, targets }
    }

    /// Number of nodes below which all are transactions.
    pub fn txns(&self) -> u32 {
        self.txns
    }

    /// Edges kept.
    pub fn edges(&self) -> usize {
        self.targets.len()
    }

    /// May a transaction lie on a cycle?
    pub fn is_inside(&self, txn: u32) -> bool {
        self.inside[txn as usize]
    }

    /// The transactions that may lie on cycles.
    pub fn roots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.txns).filter(|&t| self.inside[t as usize])
    }

    /// Where a node leads next, and why.
    #[inline]
    pub fn step(&self, node: u32, cursor: &mut u32) -> Option<(u32, Rel)> {
        if node >= self.rows {
            return self.time_step(node - self.rows, cursor);
        }
        let (start, end) = match self.offsets.is_empty() {
            true => (0, 0),
            false => (self.offsets[node as usize], self.offsets[node as usize + 1]),
        };
        let i = start + *cursor;
        *cursor += 1;
        if i < end {
            return Some(unpack(self.targets[i as usize]));
        }
        let time = self.timeline.time.get(node as usize).copied().filter(|_| node < self.txns).unwrap_or(NONE);
        (i == end && time != NONE).then(|| (self.rows + time, Rel::RealTime))
    }

    /// A time node leads to the next one, if a transaction that may lie on a cycle completed there, and to transactions.
    fn time_step(&self, time: u32, cursor: &mut u32) -> Option<(u32, Rel)> {
        let line = self.timeline;
        let first = line.first_after[time as usize];
        let next = time as usize + 1;
        let last = line.first_after.get(next).map_or(self.txns, |&f| f);
        if *cursor == 0 {
            *cursor = 1;
            if next < line.by_completion.len() && self.inside[line.by_completion[next] as usize] {
                return Some((self.rows + next as u32, Rel::Pass));
            }
        }
        while first + *cursor - 1 < last {
            let to = first + *cursor - 1;
            *cursor += 1;
            if self.inside[to as usize] {
                return Some((to, Rel::Pass));
            }
        }
        None
    }
}

impl Walk for Graph<'_> {
    fn nodes(&self) -> usize {
        self.rows as usize + self.timeline.by_completion.len() * usize::from(!self.timeline.time.is_empty())
    }

    #[inline]
    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        self.step(node, cursor).map(|(to, _)| to)
    }
}

/// Which transactions lie in windows?
fn windows<D: Dependencies>(timeline: &Timeline, dependencies: &D) -> Vec<bool> {
    let furthest: Vec<AtomicU32> = (0..timeline.order.len()).map(|_| AtomicU32::new(0)).collect();
    let marks = Marks { position: &timeline.position, furthest: &furthest };
    parallel::each(dependencies.parts(), 1, &|part| dependencies.edges(part, &mut &marks));
    let mut inside = vec![false; timeline.position.len()];
    let mut end = 0;
    for (p, far) in furthest.iter().enumerate() {
        end = end.max(far.load(Ordering::Relaxed));
        if end > p as u32 || (end == p as u32 && p > 0) {
            inside[timeline.order[p] as usize] = true;
        }
    }
    inside
}

/// Rows of all that was kept: their number, where each begins, and the targets.
fn compressed(txns: u32, kept: &[Kept<'_>]) -> (u32, Vec<u32>, Vec<u32>) {
    let aux: u32 = kept.iter().map(|k| k.aux).sum();
    let rows = txns + aux;
    let mut offsets = vec![0u32; rows as usize + 2];
    let each = |f: &mut dyn FnMut(u32, u32)| {
        let mut base = txns;
        for part in kept {
            let node = |n: Fanned| match n {
                Fanned::Txn(t) => t,
                Fanned::Aux(a) => base + a,
            };
            part.edges.iter().for_each(|&(from, word)| f(from, word));
            part.fanned.iter().for_each(|&(from, to, rel)| f(node(from), pack(node(to), rel)));
            base += part.aux;
        }
    };
    each(&mut |from, _| offsets[from as usize + 2] += 1);
    for i in 2..offsets.len() {
        offsets[i] += offsets[i - 1];
    }
    let mut targets = vec![0u32; offsets.last().map_or(0, |&n| n as usize)];
    each(&mut |from, word| {
        let at = &mut offsets[from as usize + 1];
        targets[*at as usize] = word;
        *at += 1;
    });
    offsets.pop();
    (rows, offsets, targets)
}
