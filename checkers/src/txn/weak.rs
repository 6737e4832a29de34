//! Which cycles are there that only weaker models tell apart?
//!
//! Each is a cycle of transactions, too, so that it lies within a component of `ww`, `wr` and `rw`: where there is none, nothing is
//! done here. With `RW` and `WW` for all later versions of a key, and `ww`, `rw` for the next one, the kinds are, each over one component:
//!
//! | Kind | What is looked for | Source |
//! |---|---|---|
//! | `observed-transaction-vanishes` | `wr` into a read, then `RW` out of a later one, back to who was read | HAT (VLDB 2013), OTV |
//! | `fractured-read` | `WR;RW` | CONCUR 2017, read atomic |
//! | `causality-violation` | `WR+;RW` | causal |
//! | `G-cursor` | one `rw` and `ww`, all of one key | Adya, PL-CS |
//! | `update-atomic-cycle-exists` | `(WR∣WW);RW` | CONCUR 2015, update atomic: what is seen is what was read or overwritten |
//! | `G-monotonic` | `ww`, `wr` into an event of a transaction, one `rw` out of a later read of it | Adya, PL-2L, unfolded graph |
//! | `G-MSR` | a cycle over commits and reads, a read being before those after it and before its own commit | Adya, PL-MSR |
//! | `long-fork`, `prefix-cycle-exists` | `((WR;RW?)∣WW)+`, with several `rw`, with one | CONCUR 2017, prefix |
//! | `parallel-snapshot-isolation-cycle-exists` | `(WR∣WW)+;RW`, one `rw` in all | CONCUR 2017, PSI |
//! | `G-update` | any `rw`, among updating transactions and one more | Adya, PL-3U |
//!
//! `RW` is `rw;ww*` of one key: the versions of a key become a chain of nodes that an `rw` edge enters and that leads to their
//! installers, which keeps that linear. Reads and writes get nodes of their own where their order counts. A kind that follows from one already
//! found in the component is not looked for. `G-SIb` and `G-SI` need no search: without a recorded start order, that in which all
//! transactions start first adds no edge to `G-single`; and no order of starts and commits exists exactly where `G-nonadjacent`
//! cycles do.
//!
//! Costs, for a component: linear for `G-MSR`, `prefix-cycle-exists` and `G-cursor`; as for `G-single` (64 edges at once) for
//! `causality-violation`, `G-monotonic`, `G-update` and the PSI cycle; for `fractured-read` by pairs of reader and writer, the smaller of which
//! is gone through, O(n^1.5) (AWDIT, PLDI 2025); for the update-atomic cycle by pairs of a key read and a key written by one transaction;
//! for `long-fork` a search per edge. The last two are given up beyond `WORK` steps.
//!
//! **What no list holds.** Appends that nobody saw come last, in an order that is not known, and a model holds if it does in one of these.
//! Cycles are found without any such order. That there are none is said only when, in one order that the rest allows, there are
//! none either; else the kind is undecided.

pub mod doubt;
pub mod facts;

use elench_formats::sorting::sort_by;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::anomaly::{Anomaly, AnomalySet};
use super::cycles::{Cycle, Cycles};
use super::history::{Mop, NONE, Txn, Txns};
use crate::budget::{Budget, Spent};
use crate::graph::search::{Link, Part};
use crate::graph::{Rel, Rels};
use facts::{Key, Local, NO, Told, Versions};

/// Steps after which what is not linear is given up.
const WORK: usize = 1 << 25;

/// Kinds that are looked for here, the worst first.
pub const KINDS: AnomalySet = AnomalySet::of(&[
    Anomaly::Vanished,
    Anomaly::FracturedRead,
    Anomaly::CausalityViolation,
    Anomaly::GCursor,
    Anomaly::UpdateAtomicCycle,
    Anomaly::GMonotonic,
    Anomaly::GMsr,
    Anomaly::LongFork,
    Anomaly::PrefixCycle,
    Anomaly::PsiCycle,
    Anomaly::GUpdate,
]);

/// Kinds with one missed write: they lie only where there is a `G-single-item`.
const SINGLE: AnomalySet = AnomalySet::of(&[
    Anomaly::Vanished,
    Anomaly::FracturedRead,
    Anomaly::CausalityViolation,
    Anomaly::GCursor,
    Anomaly::UpdateAtomicCycle,
    Anomaly::GMonotonic,
    Anomaly::PsiCycle,
    Anomaly::GSingleItem,
]);

/// Kinds in which every missed write follows a read.
const PREFIX: AnomalySet = AnomalySet::of(&[Anomaly::GMsr, Anomaly::LongFork, Anomaly::PrefixCycle]);

/// Kinds that do not depend on the order of versions that nobody read.
const CERTAIN: AnomalySet = AnomalySet::of(&[Anomaly::Vanished, Anomaly::FracturedRead, Anomaly::CausalityViolation]);

/// What was found.
#[derive(Debug, Default)]
pub struct Weak {
    /// One cycle of each kind of each component.
    pub cycles: Vec<Cycle>,
    /// Kinds that may be there, or not.
    pub undecided: AnomalySet,
    /// Did the budget run out?
    pub spent: Option<Spent>,
}

/// Why a kind is undecided.
enum Gap {
    Spent(Spent),
    Unknown,
}

impl From<Spent> for Gap {
    fn from(spent: Spent) -> Gap {
        Gap::Spent(spent)
    }
}

type Search = Result<Option<Cycle>, Gap>;

/// Looks for kinds where there are cycles. `position` says in which order transactions may well have taken place.
pub fn find<V: Versions>(
    versions: &V,
    txns: &Txns<'_>,
    cycles: &Cycles,
    position: &[u32],
    sought: AnomalySet,
    budget: &Budget,
) -> Weak {
    let mut weak = Weak::default();
    let parts = if sought.intersection(TIMELESS).is_empty() { &[][..] } else { &cycles.parts };
    let timed = if sought.is_subset(TIMELESS) { &[][..] } else { &cycles.timed };
    let mut members: Vec<Txn> = parts.iter().chain(timed).flat_map(Part::txns).collect();
    if members.is_empty() {
        return weak;
    }
    members.sort_unstable();
    members.dedup();
    let told = versions.told(&members);
    for part in parts {
        weak.part(&told, txns, part, position, sought.intersection(TIMELESS), budget);
    }
    for part in timed {
        weak.timed(&told, part, position, sought, budget);
    }
    weak
}

/// Kinds without the order of processes or of time.
const TIMELESS: AnomalySet = KINDS.union(AnomalySet::of(&[Anomaly::GSingleItem, Anomaly::GNonadjacentItem]));

impl Weak {
    fn part(
        &mut self,
        told: &Told,
        txns: &Txns<'_>,
        part: &Part,
        position: &[u32],
        sought: AnomalySet,
        budget: &Budget,
    ) {
        let view = View::new(told, txns, part, None, budget);
        let found = self.search(&view, sought.intersection(KINDS));
        let open = sought.without(CERTAIN).without(found.implied());
        if view.dirty || open.is_empty() || !view.local.keys.iter().any(|k| k.late().len() > 1) {
            return;
        }
        let Some(ranks) = ranks(part, Rels::WW_WR, position) else { return };
        let chosen = View::new(told, txns, part, Some(&ranks), budget);
        for kind in open.iter().filter(|&kind| !matches!(chosen.find(kind), Ok(None))) {
            self.undecided = self.undecided.union(kind.implied());
        }
    }

    /// Decides, with the order of processes and of time, whether there is an order of what nobody read that is free of cycles without
    /// adjacent missed writes.
    fn timed(&mut self, told: &Told, part: &Part, position: &[u32], sought: AnomalySet, budget: &Budget) {
        const PROCESS: AnomalySet = AnomalySet::of(&[Anomaly::GSingleItemProcess, Anomaly::GNonadjacentItemProcess]);
        const TIME: AnomalySet = AnomalySet::of(&[Anomaly::GSingleItemRealtime, Anomaly::GNonadjacentItemRealtime]);
        let txns = part.txns();
        if !Local::new(told, txns.clone(), None).keys.iter().any(|k| k.late().len() > 1) {
            return;
        }
        for (order, kinds) in [(Rels::PROCESS, PROCESS), (Rels::REAL_TIME, TIME)] {
            let rels = Rels::WW_WR.and(order);
            if kinds.intersection(sought).is_empty() {
                continue;
            }
            let Some(ranks) = ranks(part, rels, position) else { continue };
            let chosen = part.and(&more(&Local::new(told, txns.clone(), Some(&ranks)), true));
            if !matches!(chosen.nonadjacent(rels, Rel::Rw, budget), Ok(None)) {
                self.undecided = self.undecided.union(kinds.implied());
            }
        }
    }

    /// Looks for kinds, the worst first; says which it found.
    fn search(&mut self, view: &View<'_>, sought: AnomalySet) -> AnomalySet {
        let mut found = AnomalySet::EMPTY;
        for kind in sought.iter() {
            if !found.intersection(kind.implying()).is_empty() {
                continue;
            }
            match view.find(kind) {
                Ok(Some(cycle)) => {
                    found.insert(kind);
                    self.cycles.push(cycle);
                    continue;
                }
                // Cycles without any missed write, which no model allows that speaks of these kinds, get in the way of searches.
                Ok(None) if !view.dirty => continue,
                Err(Gap::Spent(spent)) => self.spent = Some(spent),
                Ok(None) | Err(Gap::Unknown) => {}
            }
            self.undecided = self.undecided.union(kind.implied().intersection(KINDS));
        }
        found
    }
}

/// An order of transactions along such edges, otherwise by position; none where there is a cycle of these.
fn ranks(part: &Part, rels: Rels, position: &[u32]) -> Option<HashMap<Txn, u32, FixedState>> {
    let mut before = vec![0u32; part.len()];
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); part.len()];
    for (from, to, _) in part.edges().filter(|e| rels.has(e.2)) {
        before[to as usize] += 1;
        next[from as usize].push(to);
    }
    let weight = |node: u32| part.txn(node).map_or(0, |t| position.get(t as usize).map_or(0, |p| p + 1));
    let free = (0..part.len() as u32).filter(|&n| before[n as usize] == 0);
    let mut ready: BinaryHeap<Reverse<(u32, u32)>> = free.map(|n| Reverse((weight(n), n))).collect();
    let mut ranks = HashMap::default();
    let mut done = 0;
    while let Some(Reverse((_, node))) = ready.pop() {
        if let Some(txn) = part.txn(node) {
            ranks.insert(txn, done);
        }
        done += 1;
        for &to in &next[node as usize] {
            before[to as usize] -= 1;
            if before[to as usize] == 0 {
                ready.push(Reverse((weight(to), to)));
            }
        }
    }
    (done as usize == part.len()).then_some(ranks)
}

/// A component, with what its transactions did.
struct View<'a> {
    part: Part,
    local: Local,
    txns: &'a Txns<'a>,
    /// Is there a cycle of `ww` and `wr`?
    dirty: bool,
    single: Result<Option<Vec<Link>>, Spent>,
    prefix: Result<Option<Vec<Link>>, Spent>,
    /// By transaction: installing events, and reading ones, by key.
    writes: Vec<Vec<u32>>,
    reads: Vec<Vec<u32>>,
    budget: &'a Budget,
}

impl<'a> View<'a> {
    fn new(
        told: &Told,
        txns: &'a Txns<'a>,
        part: &Part,
        ranks: Option<&HashMap<Txn, u32, FixedState>>,
        budget: &'a Budget,
    ) -> View<'a> {
        let local = Local::new(told, part.txns(), ranks);
        let part = part.and(&more(&local, ranks.is_some()));
        let by_key = |write: bool| -> Vec<Vec<u32>> {
            let of = |t: u32| {
                let mut own: Vec<u32> = local.of(t).filter(|&e| local.event(e).write == write).collect();
                sort_by(&mut own, |&e| local.event(e).key.into());
                own
            };
            (0..local.txns.len() as u32).map(of).collect()
        };
        let (writes, reads) = (by_key(true), by_key(false));
        let dirty = part.under(Rels::WW_WR).iter().any(|p| p.txns().len() > 1);
        let single = part.single(Rels::WW_WR, Rel::Rw, budget);
        let prefix = part.following(Rels::WW_WR, Rel::Wr, Rel::Rw, budget);
        View { part, local, txns, dirty, single, prefix, writes, reads, budget }
    }

    fn find(&self, kind: Anomaly) -> Search {
        let none = |found: &Result<Option<Vec<Link>>, Spent>| matches!(found, Ok(None));
        if (SINGLE.contains(kind) && none(&self.single)) || (PREFIX.contains(kind) && none(&self.prefix)) {
            return Ok(None);
        }
        match kind {
            Anomaly::Vanished => self.fractured(true),
            Anomaly::FracturedRead => self.fractured(false),
            Anomaly::GCursor => self.cursor(),
            Anomaly::UpdateAtomicCycle => self.update_atomic(),
            Anomaly::CausalityViolation => {
                self.settle(kind, self.causes().single(Rels::of(&[Rel::Wr]), Rel::Rw, self.budget)?)
            }
            Anomaly::GMonotonic => self.settle(kind, self.unfolded().single(Rels::WW_WR, Rel::Rw, self.budget)?),
            Anomaly::GMsr => {
                let cycles = self.snapshots().with(Rels::ITEM, Rel::Rw, self.budget)?;
                self.settle(kind, cycles.into_iter().min_by_key(Vec::len))
            }
            Anomaly::LongFork => self.long_fork(),
            Anomaly::PrefixCycle => self.settle(kind, self.prefix.clone()?),
            Anomaly::PsiCycle | Anomaly::GSingleItem => self.settle(kind, self.single.clone()?),
            Anomaly::GNonadjacentItem => self.settle(kind, self.part.nonadjacent(Rels::WW_WR, Rel::Rw, self.budget)?),
            Anomaly::GUpdate => self.update(),
            _ => Ok(None),
        }
    }

    fn txn(&self, local: u32) -> Txn {
        self.local.txns[local as usize]
    }

    fn mop(&self, event: u32) -> Mop {
        self.local.event(event).mop
    }

    /// A transaction misses a write of one, and read from it or overwrote it.
    fn pair(&self, kind: Anomaly, (read, missed): (u32, u32), (rel, write, later): (Rel, u32, u32)) -> Cycle {
        let reader = self.txn(self.local.event(read).txn);
        let writer = self.txn(self.local.event(missed).txn);
        let links = vec![Link { from: reader, to: writer, rel: Rel::Rw }, Link { from: writer, to: reader, rel }];
        let at = vec![(self.mop(read), self.mop(missed)), (self.mop(write), self.mop(later))];
        Cycle { kind, links, at }
    }

    fn is_spent(&self) -> Result<(), Gap> {
        self.budget.spent().map_or(Ok(()), |spent| Err(Gap::Spent(spent)))
    }
}

/// Edges that the graph of the component lacks: from whom a list was read that ends with own elements; and those of an order chosen.
fn more(local: &Local, chosen: bool) -> Vec<(Txn, Txn, Rel)> {
    let txn = |event: u32| local.txns[local.event(event).txn as usize];
    let reads = (0..local.events.len() as u32).filter(|&e| local.event(e).base != local.event(e).version);
    let mut edges: Vec<(Txn, Txn, Rel)> =
        reads.filter_map(|e| local.read_from(e).map(|from| (txn(from), txn(e), Rel::Wr))).collect();
    if chosen {
        for key in local.keys.iter().filter(|k| k.line().is_some()) {
            let writers: Vec<Txn> = key.installer.iter().filter(|&&e| e != NO).map(|&e| txn(e)).collect();
            edges.extend(writers.windows(2).filter(|w| w[0] != w[1]).map(|w| (w[0], w[1], Rel::Ww)));
        }
    }
    edges
}

/// Searches that go by micro-operations.
impl View<'_> {
    /// A transaction that read from another one, and (in a later read, if so asked) missed a write of it.
    fn fractured(&self, later: bool) -> Search {
        let kind = if later { Anomaly::Vanished } else { Anomaly::FracturedRead };
        self.first(|reader| {
            let from = |e: u32| self.local.read_from(e).map(|w| (self.local.event(w).txn, e, w));
            let mut seen: Vec<(u32, u32, u32)> = self.local.of(reader).filter_map(from).collect();
            seen.sort_unstable();
            seen.dedup_by_key(|s| s.0);
            seen.into_iter().find_map(|(writer, read, write)| {
                let missed = |r: u32, w: u32| self.local.precedes(r, w) && (!later || r > read);
                let (r, w) = self.on_one_key(&self.reads[reader as usize], &self.writes[writer as usize], missed)?;
                Some(self.pair(kind, (r, w), (Rel::Wr, write, read)))
            })
        })
    }

    /// A pair of events on one key, of two rows sorted by key; goes through the shorter one.
    fn on_one_key(&self, a: &[u32], b: &[u32], fits: impl Fn(u32, u32) -> bool) -> Option<(u32, u32)> {
        let key = |e: u32| self.local.event(e).key;
        let same = |row: &'_ [u32], of: u32| {
            let from = row.partition_point(|&e| key(e) < key(of));
            from..from + row[from..].iter().take_while(|&&e| key(e) == key(of)).count()
        };
        if a.len() <= b.len() {
            a.iter().find_map(|&x| b[same(b, x)].iter().find(|&&y| fits(x, y)).map(|&y| (x, y)))
        } else {
            b.iter().find_map(|&y| a[same(a, y)].iter().find(|&&x| fits(x, y)).map(|&x| (x, y)))
        }
    }

    /// A version of another transaction's between the one that a transaction read and the one that it installed.
    fn cursor(&self) -> Search {
        self.first(|txn| {
            let between = |read: u32, write: u32| self.between(read, write).is_some();
            let (read, write) = self.on_one_key(&self.reads[txn as usize], &self.writes[txn as usize], between)?;
            let other = self.between(read, write)?;
            Some(self.pair(Anomaly::GCursor, (read, other), (Rel::Ww, other, write)))
        })
    }

    fn between(&self, read: u32, write: u32) -> Option<u32> {
        let (key, from, to) = (self.local.key_of(read), self.local.event(read), self.local.event(write).version);
        let others =
            |v: u32| Some(key.installer[v as usize]).filter(|&e| e != NO && self.local.event(e).txn != from.txn);
        match key.line() {
            Some(late) if from.version < late => (from.version + 1..to.min(late)).find_map(others),
            Some(_) => None,
            None => key.after(from.version).into_iter().filter(|&v| key.before(v, to)).find_map(others),
        }
    }

    /// A transaction that overwrote another one, and missed its write of another key.
    fn update_atomic(&self) -> Search {
        let mut wanted: HashMap<(u32, u32), Vec<(u32, u32)>, FixedState> = HashMap::default();
        let mut work = 0;
        let key = |e: u32| self.local.event(e).key;
        for txn in 0..self.local.txns.len() {
            work += self.writes[txn].len() * self.reads[txn].len() + self.writes[txn].len().pow(2);
            self.within(work)?;
            for &write in &self.writes[txn] {
                for &read in &self.reads[txn] {
                    if key(read) != key(write) {
                        wanted.entry((key(read), key(write))).or_default();
                    }
                }
            }
        }
        // Who wrote both, by the order of the key that is read.
        for txn in 0..self.local.txns.len() {
            for &a in &self.writes[txn] {
                for &b in &self.writes[txn] {
                    if let Some(both) = wanted.get_mut(&(key(a), key(b))) {
                        both.push((a, b));
                    }
                }
            }
        }
        for both in wanted.values_mut() {
            sort_by(both, |&(a, _)| self.local.event(a).version.into());
        }
        for txn in 0..self.local.txns.len() {
            for &write in &self.writes[txn] {
                for &read in &self.reads[txn] {
                    let Some(both) = wanted.get(&(key(read), key(write))) else { continue };
                    if let Some((missed, earlier)) = self.overwritten(read, write, both, &mut work) {
                        let cycle = self.pair(Anomaly::UpdateAtomicCycle, (read, missed), (Rel::Ww, earlier, write));
                        return Ok(Some(cycle));
                    }
                    self.within(work)?;
                }
            }
        }
        Ok(None)
    }

    /// Who wrote after the one and before the other? Without a cycle of overwrites, both keys are written in one order, and the first
    /// that comes after the read tells all.
    fn overwritten(&self, read: u32, write: u32, both: &[(u32, u32)], work: &mut usize) -> Option<(u32, u32)> {
        let key = self.local.key_of(read);
        let (from, line) = (self.local.event(read).version, key.line().filter(|_| !self.dirty));
        let start = line.map_or(0, |_| both.partition_point(|&(a, _)| self.local.event(a).version <= from));
        let mut at = start;
        while let Some(&(missed, earlier)) = both.get(at) {
            *work += 1;
            let version = self.local.event(missed).version;
            if self.local.precedes(read, missed) && self.local.precedes(earlier, write) {
                return Some((missed, earlier));
            }
            at += 1;
            if let Some(late) = line
                && version < late
                && self.local.event(missed).txn != self.local.event(read).txn
            {
                at = at.max(both.partition_point(|&(a, _)| self.local.event(a).version < late));
            }
        }
        None
    }

    /// What is found for the first transaction that shows it.
    fn first(&self, search: impl Fn(u32) -> Option<Cycle>) -> Search {
        for txn in 0..self.local.txns.len() as u32 {
            if let Some(cycle) = search(txn) {
                return Ok(Some(cycle));
            }
            if txn % 64 == 0 {
                self.is_spent()?;
            }
        }
        Ok(None)
    }

    fn within(&self, work: usize) -> Result<(), Gap> {
        if work > WORK {
            return Err(Gap::Unknown);
        }
        self.is_spent()
    }
}

/// Edges between nodes of a graph in the making.
type Edges = Vec<(u32, u32, Rel)>;

/// Searches in graphs of their own.
impl View<'_> {
    /// A node for each version, which leads to all that were installed after it, as `to` says.
    fn chains(&self, first: u32, to: impl Fn(u32) -> u32, edges: &mut Edges) {
        let node = |key: &Key, version: u32| first + key.first + version;
        for key in &self.local.keys {
            for version in 0..key.len() {
                key.next(version, |next| {
                    edges.push((node(key, version), node(key, next), Rel::Pass));
                    let installer = key.installer[next as usize];
                    if installer != NO {
                        edges.push((node(key, version), to(installer), Rel::Pass));
                    }
                });
            }
        }
    }

    /// The node of what comes after the version of an event.
    fn chain(&self, first: u32, event: u32) -> u32 {
        first + self.local.key_of(event).first + self.local.event(event).version
    }

    fn nodes(&self, rows: usize, events: bool, chains: u32) -> Vec<u32> {
        let own = self.local.txns.iter().copied();
        let mut txns: Vec<u32> = (0..rows).flat_map(|_| own.clone()).collect();
        if events {
            txns.extend(self.local.events.iter().map(|e| self.txn(e.txn)));
        }
        txns.resize(txns.len() + (chains * self.local.versions) as usize, NONE);
        txns
    }

    /// `wr` alone; who is entered for a missed write is a node beside itself, as it leads on only to those who read from it.
    fn causes(&self) -> Part {
        let count = self.local.txns.len() as u32;
        let mut edges = Edges::new();
        self.chains(2 * count, |e| count + self.local.event(e).txn, &mut edges);
        for (e, event) in (0..).zip(&self.local.events).filter(|(_, event)| !event.write) {
            edges.push((event.txn, self.chain(2 * count, e), Rel::Rw));
            if let Some(writer) = self.local.read_from(e) {
                let writer = self.local.event(writer).txn;
                edges.push((writer, event.txn, Rel::Wr));
                edges.push((count + writer, event.txn, Rel::Wr));
            }
        }
        Part::new(self.nodes(2, false, 1), &edges)
    }

    /// Adya's unfolded graph for all transactions at once: who is read or overwritten leads to an event, that to all that its
    /// transaction did later and to the transaction; a missed write leads from the read to the whole transaction.
    fn unfolded(&self) -> Part {
        let (count, events) = (self.local.txns.len() as u32, self.local.events.len() as u32);
        let (missed, overwritten) = (count + events, count + events + self.local.versions);
        let mut edges = Edges::new();
        self.chains(missed, |e| self.local.event(e).txn, &mut edges);
        self.chains(overwritten, |e| count + e, &mut edges);
        for (e, event) in (0..).zip(&self.local.events) {
            edges.push((count + e, event.txn, Rel::Pass));
            if self.local.of(event.txn).contains(&(e + 1)) {
                edges.push((count + e, count + e + 1, Rel::Pass));
            }
            if event.write {
                edges.push((event.txn, self.chain(overwritten, e), Rel::Ww));
                continue;
            }
            edges.push((count + e, self.chain(missed, e), Rel::Rw));
            if let Some(writer) = self.local.read_from(e) {
                edges.push((self.local.event(writer).txn, count + e, Rel::Wr));
            }
        }
        Part::new(self.nodes(1, true, 2), &edges)
    }

    /// Commits, and the states that reads read: each is before those of later reads and before the own commit.
    fn snapshots(&self) -> Part {
        let (count, events) = (self.local.txns.len() as u32, self.local.events.len() as u32);
        let first = count + events;
        let mut edges = Edges::new();
        self.chains(first, |e| self.local.event(e).txn, &mut edges);
        let mut last: Vec<u32> = vec![NO; count as usize];
        for (e, event) in (0..).zip(&self.local.events) {
            if event.write {
                edges.push((event.txn, self.chain(first, e), Rel::Ww));
                continue;
            }
            edges.push((count + e, event.txn, Rel::Pass));
            let before = std::mem::replace(&mut last[event.txn as usize], e);
            if before != NO {
                edges.push((count + before, count + e, Rel::Pass));
            }
            edges.push((count + e, self.chain(first, e), Rel::Rw));
            if let Some(writer) = self.local.read_from(e) {
                edges.push((self.local.event(writer).txn, count + e, Rel::Wr));
            }
        }
        Part::new(self.nodes(1, true, 1), &edges)
    }

    fn long_fork(&self) -> Search {
        let several = |links: &Vec<Link>| links.iter().filter(|l| l.rel == Rel::Rw).count() > 1;
        let shortest = self.prefix.clone()?.filter(several);
        if let Ok(Some(cycle)) = self.settle(Anomaly::LongFork, shortest) {
            return Ok(Some(cycle));
        }
        match self.part.several_following(Rels::WW_WR, (Rel::Wr, Rel::Rw), WORK, self.budget) {
            Ok(links) => self.settle(Anomaly::LongFork, links),
            Err(Some(spent)) => Err(Gap::Spent(spent)),
            Err(None) => Err(Gap::Unknown),
        }
    }

    /// A cycle among the updating transactions; or, as a transaction that only reads is entered and left once, one through one of these
    /// that is split in two.
    fn update(&self) -> Search {
        let updates = |t: Txn| self.txns.mops(t).any(|m| self.txns.kind[m].writes());
        let split = self.part.split(|t| !updates(t), Rel::Process);
        let among = split.with(Rels::ITEM, Rel::Rw, self.budget)?.into_iter().min_by_key(Vec::len);
        let links = match among {
            Some(links) => Some(links),
            None => split.single(Rels::ITEM, Rel::Process, self.budget)?,
        };
        self.settle(Anomaly::GUpdate, links)
    }

    /// Makes a closed walk a cycle of its kind: one that passes a transaction twice is cut in two there, and what is of the kind is kept.
    fn settle(&self, kind: Anomaly, links: Option<Vec<Link>>) -> Search {
        let Some(links) = links else { return Ok(None) };
        let mut left = vec![links];
        while let Some(links) = left.pop() {
            let mut first: HashMap<Txn, usize, FixedState> = HashMap::default();
            let twice = links.iter().enumerate().find_map(|(i, l)| first.insert(l.from, i).map(|earlier| (earlier, i)));
            if let Some((a, b)) = twice {
                left.push([&links[..a], &links[b..]].concat());
                left.push(links[a..b].to_vec());
            } else if links.len() > 1
                && fits(kind, &links)
                && let Some(at) = self.events_of(kind, &links)
            {
                return Ok(Some(Cycle { kind, links, at }));
            }
        }
        Err(Gap::Unknown)
    }

    /// The micro-operations of the steps of a cycle, where their order in a transaction matters; none if they are in another one.
    fn events_of(&self, kind: Anomaly, links: &[Link]) -> Option<Vec<(Mop, Mop)>> {
        if !matches!(kind, Anomaly::GMonotonic | Anomaly::GMsr) {
            return Some(Vec::new());
        }
        let mut at = vec![(NONE, NONE); links.len()];
        for (i, link) in links.iter().enumerate().filter(|(_, l)| l.rel == Rel::Rw) {
            let before = (i + links.len() - 1) % links.len();
            let local = |t: Txn| self.local.txns.binary_search(&t).ok().map(|t| t as u32);
            let (from, own, to) = (local(links[before].from)?, local(link.from)?, local(link.to)?);
            let (write, entry) = self.entry(from, own, links[before].rel)?;
            let after = |r: u32| r > entry || (r == entry && kind == Anomaly::GMsr);
            let missed = |r: u32, w: u32| after(r) && self.local.precedes(r, w);
            let (read, other) = self.on_one_key(&self.reads[own as usize], &self.writes[to as usize], missed)?;
            (at[before].0, at[before].1) = (self.mop(write), self.mop(entry));
            (at[i].0, at[i].1) = (self.mop(read), self.mop(other));
        }
        Some(at)
    }

    /// The first event by which a transaction saw or overwrote another one, and what that wrote.
    fn entry(&self, from: u32, own: u32, rel: Rel) -> Option<(u32, u32)> {
        let seen = |e: u32| match rel {
            Rel::Wr => self.local.read_from(e).filter(|&w| self.local.event(w).txn == from),
            _ => self.writes[from as usize].iter().copied().find(|&w| self.local.precedes(w, e)),
        };
        self.local.of(own).find_map(|e| seen(e).map(|write| (write, e)))
    }
}

/// Are these the steps of a cycle of a kind, whatever the micro-operations?
fn fits(kind: Anomaly, links: &[Link]) -> bool {
    let count = |rel: Rel| links.iter().filter(|l| l.rel == rel).count();
    let (missed, overwritten) = (count(Rel::Rw), count(Rel::Ww));
    let before = |i: usize| links[(i + links.len() - 1) % links.len()].rel;
    let after_reads = (0..links.len()).all(|i| links[i].rel != Rel::Rw || before(i) == Rel::Wr);
    let apart = (0..links.len()).all(|i| links[i].rel != Rel::Rw || before(i) != Rel::Rw);
    match kind {
        Anomaly::CausalityViolation => missed == 1 && overwritten == 0,
        Anomaly::GMonotonic | Anomaly::PsiCycle | Anomaly::GSingleItem => missed == 1,
        Anomaly::GMsr | Anomaly::PrefixCycle => missed > 0 && after_reads,
        Anomaly::LongFork => missed > 1 && after_reads,
        Anomaly::GNonadjacentItem => missed > 0 && apart,
        _ => missed > 0,
    }
}
