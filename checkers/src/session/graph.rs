//! Who wrote what each read returned, and what did each session know when? Reads and writes as a graph of program order and
//! reads-from, and clocks over it.
//!
//! A *lane* is what one session did, in order; a write that may have happened and after which its session went on is a lane of its
//! own, since it may have taken effect at any time after its invocation. In a lane a node points to the next; a write points to
//! the reads that return it, the operation before a lane of its own to its only write. A *clock* says of each lane how many of its
//! writes are known. Clocks are made node by node in a topological order, and only kept while somebody still has to read them: of each
//! lane the newest, of a write while readers are left.
//!
//! O(nodes · lanes) time with operations on whole clocks, O(nodes + (lanes alive + writes awaiting readers) · lanes) memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};

use super::read::{Access, Kind, Val};
use crate::budget::{Budget, Reservation, Spent};
use crate::outcome::Status;

pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// In [`Graph::source`]: a write.
pub(crate) const WRITE: u32 = u32::MAX;
/// In [`Graph::source`]: a read of the initial value.
pub(crate) const INITIAL: u32 = u32::MAX - 1;
/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// Reads and writes, a lane after the other.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The operation, by node.
    pub op: Vec<u64>,
    pub lane: Vec<u32>,
    pub key: Vec<u32>,
    pub value: Vec<Val>,
    /// Of a read: the write that it returns, or [`INITIAL`]; of a write [`WRITE`].
    pub source: Vec<u32>,
    /// Of a write: its place among the writes of its lane, from 1. Of a read: that of the last before it, or 0.
    pub place: Vec<u32>,
    /// Where each lane begins, and the number of nodes.
    pub starts: Vec<u32>,
    /// By lane: the node of another lane that comes before its first, or [`NONE`].
    pub after: Vec<u32>,
    /// By node, what it points to in other lanes.
    out_starts: Vec<u32>,
    out: Vec<u32>,
}

/// What a read returned that is wrong by itself, or cannot be used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Odd {
    /// Written by a write that failed.
    Aborted { read: Access, write: u64 },
    /// Written by nobody.
    ThinAir { read: Access },
    /// Written more than once, so that whose write it was cannot be told.
    Ambiguous { read: Access },
}

/// Who wrote a value of a key: the first that did not fail, else the first that did.
#[derive(Clone, Copy)]
struct Writer {
    access: u32,
    /// Did several write it that did not fail, or one the initial value?
    many: bool,
}

/// Writers by key and value. The table holds positions of accesses alone: 8 bytes and a bit each, and a read looks at a write that was not
/// long ago.
struct Writers<'a> {
    accesses: &'a [Access],
    table: HashTable<Writer>,
    hasher: FixedState,
}

impl<'a> Writers<'a> {
    fn of(accesses: &'a [Access], initial: Val) -> Writers<'a> {
        let writes = || accesses.iter().enumerate().filter(|(_, a)| a.kind == Kind::Write);
        let table = HashTable::with_capacity(writes().count());
        let mut all = Writers { accesses, table, hasher: FixedState::default() };
        for (i, a) in writes() {
            let (access, lives) = (i as u32, a.status != Status::Fail);
            let hasher = &all.hasher;
            let hash = |w: &Writer| hasher.hash_one(written(&accesses[w.access as usize]));
            let same = |w: &Writer| written(&accesses[w.access as usize]) == written(a);
            match all.table.entry(hasher.hash_one(written(a)), same, hash) {
                Entry::Vacant(new) => {
                    new.insert(Writer { access, many: lives && a.value == initial });
                }
                Entry::Occupied(mut known) if lives => {
                    let known = known.get_mut();
                    let failed = accesses[known.access as usize].status == Status::Fail;
                    known.many |= !failed || a.value == initial;
                    if failed {
                        known.access = access;
                    }
                }
                Entry::Occupied(_) => {}
            }
        }
        all
    }

    fn get(&self, key: u32, value: Val) -> Option<Writer> {
        let same = |w: &Writer| written(&self.accesses[w.access as usize]) == (key, value);
        self.table.find(self.hasher.hash_one((key, value)), same).copied()
    }
}

fn written(access: &Access) -> (u32, Val) {
    (access.key, access.value)
}

impl Graph {
    /// From the accesses of some keys, in the order of their invocations; and the reads that are wrong by themselves, which are
    /// in no graph. O(n).
    pub(crate) fn build(accesses: &[Access], initial: Val) -> (Graph, Vec<Odd>) {
        let writers = Writers::of(accesses, initial);
        let mut odd = Vec::new();
        // By access: of a read the access it returns, INITIAL, or NONE where it says nothing; of a write whether anybody read it.
        let mut returns = vec![NONE; accesses.len()];
        let mut was_read = vec![false; accesses.len()];
        for (i, a) in accesses.iter().enumerate().filter(|(_, a)| a.kind == Kind::Read) {
            match writers.get(a.key, a.value) {
                Some(Writer { many: false, access }) if accesses[access as usize].status != Status::Fail => {
                    returns[i] = access;
                    was_read[access as usize] = true;
                }
                Some(Writer { many: true, .. }) => odd.push(Odd::Ambiguous { read: *a }),
                _ if a.value == initial => returns[i] = INITIAL,
                Some(Writer { access, .. }) => {
                    odd.push(Odd::Aborted { read: *a, write: accesses[access as usize].op });
                }
                None => odd.push(Odd::ThinAir { read: *a }),
            }
        }
        let said = |i: usize| match accesses[i].kind {
            Kind::Read => returns[i] != NONE,
            // A write that may have happened and that nobody read says nothing.
            Kind::Write => accesses[i].status == Status::Ok || (accesses[i].status == Status::Info && was_read[i]),
        };
        let mut graph = Graph::default();
        graph.lay_out(accesses, &(0..accesses.len()).filter(|&i| said(i)).collect::<Vec<_>>(), &returns);
        (graph, odd)
    }

    fn lay_out(&mut self, accesses: &[Access], said: &[usize], returns: &[u32]) {
        let mut sessions: Map<u32, u32> = Map::default();
        let mut lanes: Vec<Vec<u32>> = Vec::new();
        for &i in said {
            let lane = *sessions.entry(accesses[i].session).or_insert_with(|| {
                lanes.push(Vec::new());
                lanes.len() as u32 - 1
            });
            lanes[lane as usize].push(i as u32);
        }
        // A lane of its own for each write of unknown outcome that is not the last of its session: its predecessor by access.
        let mut own: Vec<(u32, u32)> = Vec::new();
        for lane in &mut lanes {
            let last = lane.last().copied();
            let mut before = NONE;
            lane.retain(|&i| {
                let a = &accesses[i as usize];
                if a.kind == Kind::Write && a.status == Status::Info && Some(i) != last {
                    own.push((i, before));
                    return false;
                }
                before = i;
                true
            });
        }
        let mut node_of = vec![NONE; accesses.len()];
        let own_lanes = own.iter().map(|&(i, before)| (vec![i], before));
        let all = lanes.into_iter().map(|lane| (lane, NONE)).chain(own_lanes);
        for (lane, before) in all {
            self.starts.push(self.op.len() as u32);
            self.after.push(before);
            let mut place = 0;
            for i in lane {
                let a = &accesses[i as usize];
                node_of[i as usize] = self.op.len() as u32;
                place += u32::from(a.kind == Kind::Write);
                self.op.push(a.op);
                self.lane.push(self.starts.len() as u32 - 1);
                self.key.push(a.key);
                self.value.push(a.value);
                self.source.push(if a.kind == Kind::Write { WRITE } else { returns[i as usize] });
                self.place.push(place);
            }
        }
        self.starts.push(self.op.len() as u32);
        for source in self.source.iter_mut().filter(|s| **s < INITIAL) {
            *source = node_of[*source as usize];
        }
        for before in self.after.iter_mut().filter(|b| **b != NONE) {
            *before = node_of[*before as usize];
        }
        self.point();
    }

    /// Edges beside those along lanes, forward.
    fn point(&mut self) {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for node in 0..self.len() as u32 {
            pairs.extend(self.across(node).map(|from| (from, node)));
        }
        (self.out_starts, self.out) = grouped(self.len(), &pairs);
    }

    pub(crate) fn len(&self) -> usize {
        self.op.len()
    }

    pub(crate) fn lanes(&self) -> usize {
        self.after.len()
    }

    pub(crate) fn is_write(&self, node: u32) -> bool {
        self.source[node as usize] == WRITE
    }

    /// The node before it in its lane.
    pub(crate) fn before(&self, node: u32) -> Option<u32> {
        (self.starts[self.lane[node as usize] as usize] != node).then(|| node - 1)
    }

    /// The node after it in its lane.
    pub(crate) fn next(&self, node: u32) -> Option<u32> {
        (self.starts[self.lane[node as usize] as usize + 1] != node + 1).then_some(node + 1)
    }

    /// The write that a read returns.
    pub(crate) fn writer(&self, read: u32) -> Option<u32> {
        Some(self.source[read as usize]).filter(|&s| s < INITIAL)
    }

    /// The operation of another lane that comes before a lane of its own.
    pub(crate) fn led_by(&self, node: u32) -> Option<u32> {
        let lane = self.lane[node as usize] as usize;
        Some(self.after[lane]).filter(|&after| self.starts[lane] == node && after != NONE)
    }

    /// What points to a node beside the one before it in its lane.
    pub(crate) fn across(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.writer(node).into_iter().chain(self.led_by(node))
    }

    /// What a node points to beside the next of its lane.
    pub(crate) fn out(&self, node: u32) -> &[u32] {
        &self.out[self.out_starts[node as usize] as usize..self.out_starts[node as usize + 1] as usize]
    }
}

/// Pairs grouped by their first part: where each group begins, and second parts.
pub(crate) fn grouped(n: usize, pairs: &[(u32, u32)]) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; n + 2];
    for &(from, _) in pairs {
        starts[from as usize + 2] += 1;
    }
    for i in 2..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut items = vec![0; pairs.len()];
    for &(from, to) in pairs {
        let at = &mut starts[from as usize + 1];
        items[*at as usize] = to;
        *at += 1;
    }
    starts.pop();
    (starts, items)
}

/// Edges between writes beside those of the graph, and how much of each lane counts.
#[derive(Debug)]
pub(crate) struct Beside {
    /// By lane, the node after the last that counts.
    pub ends: Vec<u32>,
    /// From whom to whom, without doubles.
    pub edges: Vec<(u32, u32)>,
}

impl Beside {
    /// All nodes, no more edges.
    pub(crate) fn nothing(graph: &Graph) -> Beside {
        Beside { ends: graph.starts[1..].to_vec(), edges: Vec::new() }
    }

    fn counts(&self, graph: &Graph, node: u32) -> bool {
        node < self.ends[graph.lane[node as usize] as usize]
    }
}

/// A topological order of the nodes that count, and clocks along it.
#[derive(Debug)]
pub(crate) struct Sweep<'g> {
    graph: &'g Graph,
    beside: &'g Beside,
    /// Nodes in order; those on cycles and after them are missing.
    pub order: Vec<u32>,
    in_starts: Vec<u32>,
    into: Vec<u32>,
    /// How many will want to read the clock of a node.
    wanted: Vec<u32>,
}

/// What is known at a node.
pub(crate) struct Known<'a> {
    pub node: u32,
    /// Before what it reads is added, its own write included.
    pub clock: &'a [u32],
    /// Of the write that it reads.
    pub source: Option<&'a [u32]>,
}

impl<'g> Sweep<'g> {
    /// Among nodes that could come next, the one invoked first does: then few clocks wait for readers. O(n log lanes).
    pub(crate) fn new(graph: &'g Graph, beside: &'g Beside) -> Sweep<'g> {
        let flipped: Vec<(u32, u32)> = beside.edges.iter().map(|&(from, to)| (to, from)).collect();
        let (in_starts, into) = grouped(graph.len(), &flipped);
        let (out_starts, out) = grouped(graph.len(), &beside.edges);
        let mut waits = vec![0u32; graph.len()];
        let mut wanted = vec![0u32; graph.len()];
        let mut ready = BinaryHeap::new();
        for lane in 0..graph.lanes() {
            for node in graph.starts[lane]..beside.ends[lane] {
                let more = in_starts[node as usize + 1] - in_starts[node as usize];
                waits[node as usize] = graph.across(node).count() as u32 + u32::from(node != graph.starts[lane]) + more;
                let out = graph.out(node).iter().filter(|&&to| beside.counts(graph, to)).count() as u32;
                wanted[node as usize] = out + out_starts[node as usize + 1] - out_starts[node as usize];
                if waits[node as usize] == 0 {
                    ready.push(Reverse((graph.op[node as usize], node)));
                }
            }
        }
        let mut order = Vec::with_capacity(graph.len());
        while let Some(Reverse((_, node))) = ready.pop() {
            order.push(node);
            let more = &out[out_starts[node as usize] as usize..out_starts[node as usize + 1] as usize];
            let all = graph.next(node).into_iter().chain(graph.out(node).iter().copied()).chain(more.iter().copied());
            for to in all.filter(|&to| beside.counts(graph, to)) {
                waits[to as usize] -= 1;
                if waits[to as usize] == 0 {
                    ready.push(Reverse((graph.op[to as usize], to)));
                }
            }
        }
        Sweep { graph, beside, order, in_starts, into, wanted }
    }

    /// Nodes that count and are not in the order: those on cycles, and those after them.
    pub(crate) fn stuck(&self) -> Vec<u32> {
        let all: u32 = (0..self.graph.lanes()).map(|l| self.beside.ends[l] - self.graph.starts[l]).sum();
        if self.order.len() == all as usize {
            return Vec::new();
        }
        let mut done = vec![false; self.graph.len()];
        self.order.iter().for_each(|&node| done[node as usize] = true);
        let is_stuck = |&node: &u32| !done[node as usize] && self.beside.counts(self.graph, node);
        (0..self.graph.len() as u32).filter(is_stuck).collect()
    }

    /// Shows what is known at each node in order. O(nodes · lanes).
    pub(crate) fn clocks(&self, budget: &Budget, mut visit: impl FnMut(Known<'_>)) -> Result<(), Spent> {
        let (graph, lanes) = (self.graph, self.graph.lanes());
        let mut store = Store::new(graph.len(), lanes, budget);
        let mut wanted = self.wanted.clone();
        let mut current: Vec<Option<Box<[u32]>>> = vec![None; lanes];
        let mut work = 0usize;
        for &node in &self.order {
            work += lanes + 16;
            if work > 1 << 20 {
                work = 0;
                if let Some(spent) = budget.spent() {
                    return Err(spent);
                }
            }
            let (at, lane) = (node as usize, graph.lane[node as usize] as usize);
            let mut clock = current[lane].take().unwrap_or_else(|| store.blank());
            let more = &self.into[self.in_starts[at] as usize..self.in_starts[at + 1] as usize];
            for &from in more.iter().chain(&graph.led_by(node)) {
                store.add(from, &mut clock, &mut wanted);
            }
            if graph.is_write(node) {
                clock[lane] = clock[lane].max(graph.place[at]);
            }
            let writer = graph.writer(node);
            visit(Known { node, clock: &clock, source: writer.and_then(|w| store.get(w)) });
            if let Some(writer) = writer {
                store.add(writer, &mut clock, &mut wanted);
            }
            if wanted[at] > 0 {
                store.put(node, &clock);
            }
            if node + 1 < self.beside.ends[lane] {
                current[lane] = Some(clock);
            } else {
                store.free.push(clock);
            }
        }
        Ok(())
    }
}

/// Clocks that somebody still has to read, in slots that are used again.
struct Store {
    /// By node, or [`NONE`].
    slots: Vec<u32>,
    clocks: Vec<u32>,
    empty: Vec<u32>,
    /// Clocks of lanes that ended.
    free: Vec<Box<[u32]>>,
    lanes: usize,
    made: u64,
    reserved: Reservation,
}

impl Store {
    fn new(nodes: usize, lanes: usize, budget: &Budget) -> Store {
        let (made, mut reserved) = (nodes as u64 * 8, budget.reserve());
        reserved.set(made);
        let (slots, clocks, empty, free) = (vec![NONE; nodes], Vec::new(), Vec::new(), Vec::new());
        Store { slots, clocks, empty, free, lanes, made, reserved }
    }

    fn blank(&mut self) -> Box<[u32]> {
        if let Some(mut old) = self.free.pop() {
            old.fill(0);
            return old;
        }
        self.grow();
        vec![0; self.lanes].into_boxed_slice()
    }

    fn grow(&mut self) {
        self.made += self.lanes as u64 * 4 + 32;
        self.reserved.set(self.made);
    }

    fn put(&mut self, node: u32, clock: &[u32]) {
        if self.empty.is_empty() {
            self.grow();
            self.empty.push((self.clocks.len() / self.lanes) as u32);
            self.clocks.resize(self.clocks.len() + self.lanes, 0);
        }
        if let Some(slot) = self.empty.pop() {
            let at = slot as usize * self.lanes;
            self.clocks[at..at + self.lanes].copy_from_slice(clock);
            self.slots[node as usize] = slot;
        }
    }

    fn get(&self, node: u32) -> Option<&[u32]> {
        let at = Some(self.slots[node as usize]).filter(|&slot| slot != NONE)? as usize * self.lanes;
        Some(&self.clocks[at..at + self.lanes])
    }

    /// Adds what is known at a node, which one fewer then wants to read.
    fn add(&mut self, node: u32, clock: &mut [u32], wanted: &mut [u32]) {
        if let Some(known) = self.get(node) {
            clock.iter_mut().zip(known).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        }
        let wanted = &mut wanted[node as usize];
        *wanted -= 1;
        let slot = &mut self.slots[node as usize];
        if *wanted == 0 && *slot != NONE {
            self.empty.push(std::mem::replace(slot, NONE));
        }
    }
}
