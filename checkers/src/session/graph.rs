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

use std::hash::BuildHasher;

use elench_formats::columns::Scalar;
use foldhash::fast::FixedState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};

use super::read::{Access, Kind, Val};
use crate::budget::{Budget, Reservation, Spent};
use crate::dense::{NO_ID, ScalarIds, grouped};
use crate::outcome::Status;

pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// In [`Graph::source`]: a write.
pub(crate) const WRITE: u32 = u32::MAX;
/// In [`Graph::source`]: a read of the initial value.
pub(crate) const INITIAL: u32 = u32::MAX - 1;
/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// Reads and writes, a lane after the other.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    accesses: &'a [Access],
    /// By node, the access; they ascend in each lane.
    access: Vec<u32>,
    /// By access, the node, or [`NONE`].
    nodes: Vec<u32>,
    pub lane: Vec<u32>,
    /// Of a read: the write that it returns, or [`INITIAL`]; of a write [`WRITE`].
    pub source: Vec<u32>,
    /// Of a write: its place among the writes of its lane, from 1. Of a read: that of the last before it, or 0.
    pub place: Vec<u32>,
    /// Where each lane begins, and the number of nodes.
    pub starts: Vec<u32>,
    /// By lane: the node of another lane that comes before its first, or [`NONE`].
    pub after: Vec<u32>,
    /// The first key, and how many there may be from it on.
    pub keys: (u32, usize),
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

/// Integers of a key that are looked up in an array: those between the least and the greatest one written, where they are dense.
#[derive(Clone, Copy)]
struct Window {
    least: i64,
    len: u64,
    /// Where it begins in the array.
    from: u64,
}

/// Writers by key and value. Arrays and table hold positions of accesses alone, 4 bytes an integer of a window and 9 and some another value,
/// and a read looks at a write that was not long ago.
struct Writers<'a> {
    accesses: &'a [Access],
    /// By key, from this one on. None, where keys are too many.
    first_key: u32,
    windows: Vec<Window>,
    /// An access, and above it [`MANY`]; or [`NO_ID`].
    near: Vec<u32>,
    table: HashTable<Writer>,
    hasher: FixedState,
}

/// In [`Writers::near`]. No memory holds as many accesses.
const MANY: u32 = 1 << 31;
/// Numbers of a window for each write, at most.
const DENSE: u64 = 4;

impl<'a> Writers<'a> {
    fn of(accesses: &'a [Access], initial: Val) -> Writers<'a> {
        let (first_key, windows, room) = windows(accesses);
        let (near, table, hasher) = (vec![NO_ID; room], HashTable::new(), FixedState::default());
        let mut all = Writers { accesses, first_key, windows, near, table, hasher };
        for (i, a) in accesses.iter().enumerate().filter(|(_, a)| a.kind == Kind::Write) {
            let lives = a.status != Status::Fail;
            let new = Writer { access: i as u32, many: lives && a.value() == initial };
            match all.slot(a.key, a.value()) {
                Some(at) => {
                    let known = all.unpack(all.near[at]).map_or(new, |known| all.beside(known, new, lives));
                    all.near[at] = known.access | if known.many { MANY } else { 0 };
                }
                None => all.add(a, new, lives),
            }
        }
        all
    }

    /// Two that wrote the same value, the second of which may have failed.
    fn beside(&self, known: Writer, new: Writer, lives: bool) -> Writer {
        match (lives, self.accesses[known.access as usize].status == Status::Fail) {
            (false, _) => known,
            (true, true) => Writer { access: new.access, many: known.many || new.many },
            (true, false) => Writer { many: true, ..known },
        }
    }

    /// Of a value that is in no window.
    fn add(&mut self, a: &Access, new: Writer, lives: bool) {
        let accesses = self.accesses;
        let hasher = &self.hasher;
        let hash = |w: &Writer| hasher.hash_one(written(&accesses[w.access as usize]));
        let same = |w: &Writer| written(&accesses[w.access as usize]) == written(a);
        let known = match self.table.entry(hasher.hash_one(written(a)), same, hash) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(at) => {
                at.insert(new);
                return;
            }
        };
        let both = self.beside(known, new, lives);
        if let Some(known) = self.table.find_mut(self.hasher.hash_one(written(a)), same) {
            *known = both;
        }
    }

    fn unpack(&self, near: u32) -> Option<Writer> {
        (near != NO_ID).then_some(Writer { access: near & !MANY, many: near & MANY != 0 })
    }

    fn slot(&self, key: u32, value: Val) -> Option<usize> {
        let Val::Int(n) = value else { return None };
        let window = self.windows.get(key.wrapping_sub(self.first_key) as usize)?;
        let off = n.wrapping_sub(window.least) as u64;
        (n >= window.least && off < window.len).then(|| (window.from + off) as usize)
    }

    fn get(&self, key: u32, value: Val) -> Option<Writer> {
        if let Some(at) = self.slot(key, value) {
            return self.unpack(self.near[at]);
        }
        let same = |w: &Writer| written(&self.accesses[w.access as usize]) == (key, value);
        self.table.find(self.hasher.hash_one((key, value)), same).copied()
    }
}

/// The least integer written, the greatest, and how many.
#[derive(Clone, Copy)]
struct Span(i64, i64, u64);

impl Span {
    const NONE: Span = Span(i64::MAX, i64::MIN, 0);

    fn and(self, value: Val) -> Span {
        match value {
            Val::Int(n) => Span(self.0.min(n), self.1.max(n), self.2 + 1),
            _ => self,
        }
    }
}

/// A window a key, from which key on, and how long they are together.
fn windows(accesses: &[Access]) -> (u32, Vec<Window>, usize) {
    let writes = || accesses.iter().filter(|a| a.kind == Kind::Write);
    let (mut least, mut most, mut count, mut all) = (u32::MAX, 0, 0, Span::NONE);
    for a in writes() {
        (least, most, count, all) = (least.min(a.key), most.max(a.key), count + 1, all.and(a.value()));
    }
    if count == 0 || (most - least) as usize > count {
        return (0, Vec::new(), 0);
    }
    let mut of_key = vec![all];
    if most > least {
        of_key = vec![Span::NONE; (most - least) as usize + 1];
        for a in writes() {
            let span = &mut of_key[(a.key - least) as usize];
            *span = span.and(a.value());
        }
    }
    let mut from = 0;
    let window = |Span(low, high, count): Span| {
        let dense = count > 0 && high.abs_diff(low) < DENSE * count;
        let len = if dense { high.abs_diff(low) + 1 } else { 0 };
        from += len;
        Window { least: low, len, from: from - len }
    };
    let windows = of_key.into_iter().map(window).collect();
    (least, windows, from as usize)
}

fn written(access: &Access) -> (u32, Val) {
    (access.key, access.value())
}

impl<'a> Graph<'a> {
    /// From the accesses of some keys, in the order of their invocations; and the reads that are wrong by themselves, which are
    /// in no graph. O(n).
    pub(crate) fn build(accesses: &'a [Access], initial: Val) -> (Graph<'a>, Vec<Odd>) {
        let writers = Writers::of(accesses, initial);
        let mut odd = Vec::new();
        // By access: of a read the access it returns, INITIAL, or NONE where it says nothing; of a write of unknown outcome whether anybody read it.
        let mut returns = vec![NONE; accesses.len()];
        let mut was_read = vec![false; accesses.len()];
        for (i, a) in accesses.iter().enumerate().filter(|(_, a)| a.kind == Kind::Read) {
            match writers.get(a.key, a.value()) {
                Some(Writer { many: false, access }) if accesses[access as usize].status != Status::Fail => {
                    returns[i] = access;
                    if accesses[access as usize].status == Status::Info {
                        was_read[access as usize] = true;
                    }
                }
                Some(Writer { many: true, .. }) => odd.push(Odd::Ambiguous { read: *a }),
                _ if a.value() == initial => returns[i] = INITIAL,
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
        drop(writers);
        let lanes = Lanes::of(accesses, said);
        (Graph::laid_out(accesses, lanes, &returns), odd)
    }

    fn laid_out(accesses: &'a [Access], lanes: Lanes, returns: &[u32]) -> Graph<'a> {
        let Lanes { lane_of: mut nodes, lens, own } = lanes;
        let mut starts = Vec::with_capacity(lens.len() + own.len() + 1);
        let mut len = 0;
        for lane in lens.iter().copied().chain(own.iter().map(|_| 1)) {
            starts.push(len);
            len += lane;
        }
        starts.push(len);
        let blank = || vec![0; len as usize];
        let (mut access, mut lane_of, mut source, mut place) = (blank(), blank(), blank(), blank());
        let (mut first_key, mut end_key) = (u32::MAX, 0);
        // By lane, its next node and its writes so far.
        let mut next: Vec<(u32, u32)> = starts.iter().map(|&start| (start, 0)).collect();
        for (i, a) in accesses.iter().enumerate() {
            let lane = nodes[i];
            if lane == NONE {
                continue;
            }
            (first_key, end_key) = (first_key.min(a.key), end_key.max(a.key + 1));
            let (node, writes) = &mut next[lane as usize];
            let at = *node as usize;
            *writes += u32::from(a.kind == Kind::Write);
            (access[at], lane_of[at], place[at]) = (i as u32, lane, *writes);
            source[at] = if a.kind == Kind::Write { WRITE } else { returns[i] };
            nodes[i] = *node;
            *node += 1;
        }
        for source in source.iter_mut().filter(|s| **s < INITIAL) {
            *source = nodes[*source as usize];
        }
        let before = own.iter().map(|&(_, before)| if before == NONE { NONE } else { nodes[before as usize] });
        let after = lens.iter().map(|_| NONE).chain(before).collect();
        let keys = (first_key, end_key.saturating_sub(first_key) as usize);
        Graph { accesses, access, nodes, lane: lane_of, source, place, starts, after, keys }
    }

    /// What each node points to beside the next of its lane, grouped.
    pub(crate) fn forward(&self) -> (Vec<u32>, Vec<u32>) {
        let pairs = (0..self.len() as u32).flat_map(|node| self.across(node).map(move |from| (from, node)));
        grouped(self.len(), pairs)
    }

    pub(crate) fn access(&self, node: u32) -> &Access {
        &self.accesses[self.access[node as usize] as usize]
    }

    /// The operation, by the index of its invocation.
    pub(crate) fn op(&self, node: u32) -> u64 {
        self.access(node).op
    }

    pub(crate) fn len(&self) -> usize {
        self.access.len()
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
        Some(self.after[lane]).filter(|&after| after != NONE && self.starts[lane] == node)
    }

    /// What points to a node beside the one before it in its lane.
    pub(crate) fn across(&self, node: u32) -> impl Iterator<Item = u32> + Clone + use<> {
        self.writer(node).into_iter().chain(self.led_by(node))
    }
}

/// Which access is of which lane?
struct Lanes {
    /// By access: its lane, or [`NONE`] where it says nothing.
    lane_of: Vec<u32>,
    /// By lane of a session, how many.
    lens: Vec<u32>,
    /// What has a lane of its own, after those of sessions, and the access before it.
    own: Vec<(u32, u32)>,
}

impl Lanes {
    /// A lane of its own for each write of unknown outcome that is not the last of its session.
    fn of(accesses: &[Access], said: impl Fn(usize) -> bool) -> Lanes {
        let mut sessions = ScalarIds::default();
        let mut lane_of = vec![NONE; accesses.len()];
        let (mut last, mut lens): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut unknown: Vec<u32> = Vec::new();
        for (i, a) in accesses.iter().enumerate().filter(|(i, _)| said(*i)) {
            let (lane, new) = sessions.id(Scalar::Int(i64::from(a.session)));
            if new {
                last.push(NONE);
                lens.push(0);
            }
            lane_of[i] = lane;
            last[lane as usize] = i as u32;
            lens[lane as usize] += 1;
            if a.kind == Kind::Write && a.status == Status::Info {
                unknown.push(i as u32);
            }
        }
        unknown.retain(|&i| last[lane_of[i as usize] as usize] != i);
        let mut own: Vec<(u32, u32)> = Vec::new();
        if !unknown.is_empty() {
            let mut before = vec![NONE; last.len()];
            let mut unknown = unknown.into_iter().peekable();
            for (i, lane) in lane_of.iter_mut().enumerate().filter(|(_, lane)| **lane != NONE) {
                let of = *lane as usize;
                if unknown.next_if_eq(&(i as u32)).is_some() {
                    *lane = (last.len() + own.len()) as u32;
                    own.push((i as u32, before[of]));
                    lens[of] -= 1;
                } else {
                    before[of] = i as u32;
                }
            }
        }
        Lanes { lane_of, lens, own }
    }
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
    pub(crate) fn nothing(graph: &Graph<'_>) -> Beside {
        Beside { ends: graph.starts[1..].to_vec(), edges: Vec::new() }
    }

    fn counts(&self, graph: &Graph<'_>, node: u32) -> bool {
        node < self.ends[graph.lane[node as usize] as usize]
    }
}

/// A topological order of the nodes that count, and clocks along it.
#[derive(Debug)]
pub(crate) struct Sweep<'g> {
    graph: &'g Graph<'g>,
    beside: &'g Beside,
    /// Nodes in order; those on cycles and after them are missing.
    pub order: Vec<u32>,
    in_starts: Vec<u32>,
    into: Vec<u32>,
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
    /// In the order of invocations, except that a node waits for what comes before it, and its lane with it: then few clocks wait for
    /// readers. O(n).
    pub(crate) fn new(graph: &'g Graph<'g>, beside: &'g Beside) -> Sweep<'g> {
        let (in_starts, into) = match beside.edges.is_empty() {
            true => Default::default(),
            false => grouped(graph.len(), beside.edges.iter().map(|&(from, to)| (to, from))),
        };
        let mut sweep = Sweep { graph, beside, order: Vec::with_capacity(graph.len()), in_starts, into };
        // By lane, the first that is not in the order yet.
        let mut heads = graph.starts[..graph.lanes()].to_vec();
        // By node, those that wait for it.
        let mut waiting: Map<u32, Vec<u32>> = Map::default();
        let mut waits = false;
        let mut ready: Vec<u32> = Vec::new();
        for (i, &node) in graph.nodes.iter().enumerate().filter(|(_, node)| **node != NONE) {
            let mut next = Some(node);
            while let Some(node) = next.take().or_else(|| ready.pop()) {
                let lane = graph.lane[node as usize] as usize;
                if heads[lane] != node || node >= beside.ends[lane] {
                    continue;
                }
                let is_ahead = |from: &u32| *from >= heads[graph.lane[*from as usize] as usize];
                if let Some(from) = sweep.before(node).find(is_ahead) {
                    waits = true;
                    waiting.entry(from).or_default().push(node);
                    continue;
                }
                sweep.order.push(node);
                heads[lane] += 1;
                if waits {
                    // What was passed while it had to wait.
                    ready.extend(graph.next(node).filter(|&next| (graph.access[next as usize] as usize) < i));
                    ready.extend(waiting.remove(&node).into_iter().flatten());
                }
            }
        }
        sweep
    }

    /// What comes before a node, beside the one before it in its lane.
    fn before(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.graph.across(node).chain(self.more(node).iter().copied())
    }

    /// What the edges beside those of the graph say comes before a node.
    fn more(&self, node: u32) -> &[u32] {
        match self.into.is_empty() {
            true => &[],
            false => &self.into[self.in_starts[node as usize] as usize..self.in_starts[node as usize + 1] as usize],
        }
    }

    /// By node, how many will want to read its clock.
    fn wanted(&self) -> Vec<u32> {
        let mut wanted = vec![0; self.graph.len()];
        self.order.iter().for_each(|&node| self.before(node).for_each(|from| wanted[from as usize] += 1));
        wanted
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
        let mut wanted = self.wanted();
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
            for &from in self.more(node).iter().chain(&graph.led_by(node)) {
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
