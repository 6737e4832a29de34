//! Is there a legal order of the operations of a register to which every value was written at most once?
//!
//! **Idea.** Gibbons and Korach ("Testing shared memories", 1997) decide this by *zones*: a value's writer and all that observe it
//! stand together in every legal order. Here with compare-and-set, with crashed operations, and online.
//!
//! *What happened.* A crashed operation is taken to have happened only if a completed one observed what it left, directly or through
//! other crashed ones: all others can be left out of any legal order. A crashed observer says nothing. What is taken
//! to have happened is *needed*.
//!
//! *Blocks.* The operations of a value are its *cluster*. A needed compare-and-set observes one value and leaves another, with nothing between,
//! so that it links two clusters, and a whole chain of clusters is one *block*: it stands in the order
//! without a gap, and in itself as the write, its observers, the compare-and-set, its observers, and so on. So a block is bad if
//! a value has no writer (invoked so far), if two needed compare-and-sets observe one value, if a chain bites its tail, or
//! if an operation was invoked only after one had returned that must follow it. Observers of one value come in any
//! order that respects real time, such as that of their returns. The initial value is a write before all time.
//!
//! *Between blocks.* Let f(X) be the first return and s(X) the last invocation in block X. X must precede Y (X → Y) if and only if
//! f(X) < s(Y). There is an order of blocks if and only if no two of them must precede each other: on a longer cycle take the
//! block Y with the greatest s. Every B on the cycle precedes some B' on it, f(B) < s(B') ≤ s(Y), so all others on the cycle
//! precede Y; among them is the one that Y precedes. And if no two precede each other, then sorting
//! blocks by the lesser of f and s (and then by the greater) gives an order: let X → Y, that is, f(X) < s(Y), and s(X) ≤ f(Y). If the
//! lesser of Y's two is f(Y), it is at least s(X); if it is s(Y), it is greater than f(X); so it is no less than the lesser of X's two.
//! Equal they are only if both are s(X) = f(Y), and then the greater ones are f(X) < s(Y).
//!
//! *Online.* Walking the returns in order, each block's f is known from its first operation on, so that blocks are numbered by f; s grows.
//! As s(X) grows, the blocks Y with f(Y) < s(X) are those up to a number, and a tree of maxima says whether one of them has
//! s(Y) > f(X). Blocks never merge: what a newly needed value is linked to is either needed already, or in no block. So the first return at
//! which there is no order is found as it comes by, without a second look at anything.
//!
//! **Cost.** O(n log n) time: a sort of returns, and a logarithmic step for each. Memory: a few dozen bytes an operation, in dense
//! columns.
//!
//! A compare-and-set that did *not* find a value is satisfied by any other value: it chooses between before and after a cluster,
//! and histories that have one are left to the search.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::super::Operation;
use super::super::log::MAX_OPS;
use super::{Conflict, Monitored};
use crate::budget::{Budget, Spent};
use crate::model::{RegisterOp, Value};

/// No operation, value or block.
const NONE: u32 = u32::MAX;
/// The block of values that are being linked to one.
const LINKING: u32 = u32::MAX - 1;
/// The initial value, and the block that begins with it.
const INITIAL: u32 = 0;
/// What an operation costs in memory, at most.
const BYTES_PER_OP: u64 = 128;
/// Returns between two looks at the budget.
const TICK: usize = 1 << 14;

/// Decides, if every value was written at most once and no compare-and-set is known for what it did not find.
pub(crate) fn monitor(initial: Value, ops: &[Operation<RegisterOp>], budget: &Budget) -> Monitored {
    let mut reservation = budget.reserve();
    reservation.set(ops.len() as u64 * BYTES_PER_OP);
    // What is too large for this may not be for the search.
    if ops.len() > MAX_OPS || budget.spent() == Some(Spent::Memory) {
        return Monitored::NotApplicable;
    }
    let Some(history) = Columns::new(initial, ops) else { return Monitored::NotApplicable };
    let mut blocks = Blocks::new(&history);
    for (now, &op) in history.returns.iter().enumerate() {
        if now % TICK == 0
            && let Some(spent) = budget.spent()
        {
            return Monitored::GaveUp(spent);
        }
        if let Err(clash) = blocks.complete(op, now as u32) {
            return Monitored::Conflict(Conflict { at: op, core: blocks.core(op, clash) });
        }
    }
    Monitored::Order(blocks.order())
}

/// The history in numbers. Values are numbered, the initial one first. An invocation's time is the number of returns before
/// it, a return's is its place among the returns: return `r` is before invocation `c` if and only if `r < c`.
struct Columns {
    /// The value that an operation observes.
    seen: Vec<u32>,
    /// The value that it leaves if it changes the register.
    left: Vec<u32>,
    call: Vec<u32>,
    /// Operations by return. Those that return at the same time do so in the order in which they were invoked.
    returns: Vec<u32>,
    /// By value.
    writer: Vec<u32>,
}

impl Columns {
    /// None if a value is written twice, or a compare-and-set did not find one.
    fn new(initial: Value, ops: &[Operation<RegisterOp>]) -> Option<Self> {
        let mut ids: HashMap<Value, u32, FixedState> = HashMap::default();
        ids.insert(initial, INITIAL);
        let mut history = Columns {
            seen: Vec::with_capacity(ops.len()),
            left: Vec::with_capacity(ops.len()),
            call: Vec::with_capacity(ops.len()),
            returns: Vec::new(),
            writer: vec![NONE],
        };
        for (i, op) in (0..).zip(ops) {
            if matches!(op.op, RegisterOp::CasMismatch(_)) && op.ret.is_some() {
                return None;
            }
            let writer = &mut history.writer;
            let mut id = |value: Value| {
                *ids.entry(value).or_insert_with(|| {
                    writer.push(NONE);
                    writer.len() as u32 - 1
                })
            };
            let (seen, left) = (op.op.needs().map_or(NONE, &mut id), op.op.leaves().map_or(NONE, id));
            if left == INITIAL || left != NONE && std::mem::replace(&mut writer[left as usize], i) != NONE {
                return None;
            }
            history.seen.push(seen);
            history.left.push(left);
        }
        drop(ids);
        let mut returns: Vec<(u64, u32)> = (0..).zip(ops).filter_map(|(i, op)| Some((op.ret?, i))).collect();
        returns.sort_unstable();
        let mut before = 0;
        for op in ops {
            while returns.get(before).is_some_and(|&(ret, _)| ret < op.call) {
                before += 1;
            }
            history.call.push(before as u32);
        }
        history.returns = returns.into_iter().map(|(_, op)| op).collect();
        Some(history)
    }

    /// The value to whose cluster an operation belongs: a compare-and-set belongs to what it leaves. None if it says nothing.
    fn cluster(&self, op: u32) -> Option<u32> {
        let (seen, left) = (self.seen[op as usize], self.left[op as usize]);
        [left, seen].into_iter().find(|&value| value != NONE)
    }

    /// The value that precedes one in its chain.
    fn previous(&self, value: u32) -> Option<u32> {
        let writer = self.writer[value as usize];
        Some(writer).filter(|&writer| writer != NONE).map(|op| self.seen[op as usize]).filter(|&value| value != NONE)
    }
}

/// A chain of clusters.
struct Block {
    /// The value that it begins with.
    root: u32,
    /// One more than the time of its first return; 0 for the block of the initial value. So it must precede another if
    /// and only if its `first` is at most the other's `last`.
    first: u32,
    /// The time of its last invocation.
    last: u32,
    /// The operation invoked then.
    latest: u32,
    /// The time of the return that made that one needed.
    since: u32,
}

/// Why there is no order.
enum Clash {
    /// The chain of what the completing operation observed begins with nothing, or bites its tail.
    Unwritten,
    /// The chain begins at a value that another needed compare-and-set observed: that which the value stands for.
    Forked(u32),
    /// It was invoked only after this had returned, which must follow it.
    Stale(u32),
    /// These two blocks must precede each other.
    Crossed(u32, u32),
}

struct Blocks<'a> {
    history: &'a Columns,
    /// By value: its block, if it is needed.
    of: Vec<u32>,
    /// By value: the needed compare-and-set that observes it.
    next: Vec<u32>,
    /// By value: one more than the time of the first return of what follows its cluster; 0 while there is none.
    overtaken: Vec<u32>,
    /// By `first`.
    list: Vec<Block>,
    /// By block: `last`.
    lasts: Maxima,
    /// Values that the completing operation made needed, from its own on back along the chain.
    linked: Vec<u32>,
}

impl<'a> Blocks<'a> {
    fn new(history: &'a Columns) -> Self {
        let values = history.writer.len();
        let mut of = vec![NONE; values];
        of[INITIAL as usize] = INITIAL;
        Blocks {
            history,
            of,
            next: vec![NONE; values],
            overtaken: vec![0; values],
            list: vec![Block { root: INITIAL, first: 0, last: 0, latest: NONE, since: 0 }],
            lasts: Maxima::new(values),
            linked: Vec::new(),
        }
    }

    /// An operation returns.
    fn complete(&mut self, op: u32, now: u32) -> Result<(), Clash> {
        let history = self.history;
        let Some(value) = history.cluster(op) else { return Ok(()) };
        let blocks = self.list.len();
        self.link(value, now)?;
        let (call, overtaken) = (history.call[op as usize], self.overtaken[value as usize]);
        if history.left[op as usize] == NONE && overtaken != 0 && overtaken <= call {
            return Err(Clash::Stale(history.returns[overtaken as usize - 1]));
        }
        self.overtake(value, now);
        let block = self.of[value as usize];
        let before = self.list[block as usize].last;
        self.invoked(block, op, now);
        for i in 0..self.linked.len() {
            self.invoked(block, history.writer[self.linked[i] as usize], now);
        }
        let last = self.list[block as usize].last;
        let is_new = self.list.len() > blocks;
        if !is_new && last == before {
            return Ok(());
        }
        self.lasts.raise(block as usize, last);
        // Nothing was invoked after the first return of a new block.
        if is_new { Ok(()) } else { self.crossed_by(block).map_or(Ok(()), |other| Err(Clash::Crossed(block, other))) }
    }

    /// Puts a value into its block, with all that its chain needs.
    fn link(&mut self, value: u32, now: u32) -> Result<(), Clash> {
        let history = self.history;
        self.linked.clear();
        let mut at = value;
        let block = loop {
            match self.of[at as usize] {
                NONE => {}
                LINKING => return Err(Clash::Unwritten),
                block => break block,
            }
            let writer = history.writer[at as usize];
            if writer == NONE || history.call[writer as usize] > now {
                return Err(Clash::Unwritten);
            }
            self.of[at as usize] = LINKING;
            self.linked.push(at);
            let observed = history.seen[writer as usize];
            if observed == NONE {
                let (first, last) = (now + 1, history.call[writer as usize]);
                self.list.push(Block { root: at, first, last, latest: writer, since: now });
                break self.list.len() as u32 - 1;
            }
            if self.next[observed as usize] != NONE {
                return Err(Clash::Forked(observed));
            }
            at = observed;
        };
        for &value in &self.linked {
            self.of[value as usize] = block;
            if let Some(previous) = history.previous(value) {
                self.next[previous as usize] = history.writer[value as usize];
            }
        }
        Ok(())
    }

    /// Something in the cluster of a value returned: it follows all clusters before.
    fn overtake(&mut self, mut value: u32, now: u32) {
        while let Some(previous) = self.history.previous(value) {
            if self.overtaken[previous as usize] != 0 {
                // And all before it, then or earlier.
                return;
            }
            self.overtaken[previous as usize] = now + 1;
            value = previous;
        }
    }

    fn invoked(&mut self, block: u32, op: u32, now: u32) {
        let (block, call) = (&mut self.list[block as usize], self.history.call[op as usize]);
        if call > block.last {
            (block.last, block.latest, block.since) = (call, op, now);
        }
    }

    /// Another block that must both precede and follow this one.
    fn crossed_by(&self, block: u32) -> Option<u32> {
        let Block { first, last, .. } = self.list[block as usize];
        let followed = self.list.partition_point(|other| other.first <= last);
        let block = block as usize;
        let others = [0..followed.min(block), block + 1..followed];
        others.into_iter().find_map(|range| self.lasts.at_least(range, first)).map(|other| other as u32)
    }

    /// The operations that make a clash at the completion of this one, with all that their values come from.
    fn core(&self, op: u32, clash: Clash) -> Vec<u32> {
        let mut core = vec![op];
        match clash {
            Clash::Unwritten => core.extend(self.writers_linked()),
            Clash::Forked(value) => {
                core.extend(self.writers_linked());
                self.with_chain(self.history.returns[self.overtaken[value as usize] as usize - 1], &mut core);
            }
            Clash::Stale(other) => self.with_chain(other, &mut core),
            Clash::Crossed(a, b) => [a, b].into_iter().for_each(|block| self.extent(block, &mut core)),
        }
        core.sort_unstable();
        core.dedup();
        core
    }

    fn writers_linked(&self) -> impl Iterator<Item = u32> {
        self.linked.iter().map(|&value| self.history.writer[value as usize])
    }

    /// An operation, and the writers of its value and of all before it in the chain.
    fn with_chain(&self, op: u32, core: &mut Vec<u32>) {
        core.push(op);
        let mut at = self.history.cluster(op);
        while let Some(value) = at {
            core.extend(Some(self.history.writer[value as usize]).filter(|&writer| writer != NONE));
            at = self.history.previous(value);
        }
    }

    /// What shows how far a block extends: its first return, its last invocation, and the return that makes this needed.
    fn extent(&self, block: u32, core: &mut Vec<u32>) {
        let (is_initial, block) = (block == INITIAL, &self.list[block as usize]);
        if !is_initial {
            self.with_chain(self.history.returns[block.first as usize - 1], core);
        }
        if block.latest != NONE {
            self.with_chain(block.latest, core);
            self.with_chain(self.history.returns[block.since as usize], core);
        }
    }

    /// A legal order, if there was no clash to the end.
    fn order(mut self) -> Vec<u32> {
        let history = self.history;
        self.list.sort_unstable_by_key(|block| {
            // As numbers that compare as the times do: `first` stands before an equal `last`.
            let (first, last) = (2 * u64::from(block.first), 2 * u64::from(block.last) + 1);
            (first.min(last), first.max(last))
        });
        let mut observers = vec![0u32; history.writer.len()];
        let observed = |op: u32| history.cluster(op).filter(|_| history.left[op as usize] == NONE);
        history.returns.iter().filter_map(|&op| observed(op)).for_each(|value| observers[value as usize] += 1);
        let mut order = Vec::with_capacity(history.seen.len());
        let mut place_of = observers;
        for block in &self.list {
            let mut at = Some(block.root);
            while let Some(value) = at {
                order.extend(Some(history.writer[value as usize]).filter(|&writer| writer != NONE));
                let place = order.len();
                order.resize(place + place_of[value as usize] as usize, NONE);
                place_of[value as usize] = place as u32;
                let next = self.next[value as usize];
                at = (next != NONE).then(|| history.left[next as usize]);
            }
        }
        for &op in &history.returns {
            if let Some(value) = observed(op) {
                let place = &mut place_of[value as usize];
                order[*place as usize] = op;
                *place += 1;
            }
        }
        history.with_silent(order)
    }
}

impl Columns {
    /// The order with those put in that say nothing: each before what was invoked only after it, or stands behind such.
    fn with_silent(&self, order: Vec<u32>) -> Vec<u32> {
        let mut silent: Vec<u32> = self.returns.iter().copied().filter(|&op| self.cluster(op).is_none()).collect();
        if silent.is_empty() {
            return order;
        }
        silent.sort_unstable();
        let mut all = Vec::with_capacity(order.len() + silent.len());
        let mut silent = silent.into_iter().peekable();
        for op in order {
            let call = self.call[op as usize];
            while let Some(op) = silent.next_if(|&op| self.call[op as usize] < call) {
                all.push(op);
            }
            all.push(op);
        }
        all.extend(silent);
        all
    }
}

/// Numbers that only grow, with the maximum of every aligned range of a power of two: node `i` covers nodes `2i` and `2i+1`.
struct Maxima {
    nodes: Vec<u32>,
}

impl Maxima {
    fn new(len: usize) -> Self {
        Maxima { nodes: vec![0; 2 * len.next_power_of_two()] }
    }

    fn raise(&mut self, at: usize, to: u32) {
        let mut node = self.nodes.len() / 2 + at;
        while node > 0 && self.nodes[node] < to {
            self.nodes[node] = to;
            node /= 2;
        }
    }

    /// Some place in the range whose number is at least this.
    fn at_least(&self, range: std::ops::Range<usize>, least: u32) -> Option<usize> {
        let leaves = self.nodes.len() / 2;
        let (mut from, mut to) = (leaves + range.start, leaves + range.end);
        while from < to {
            for (node, is_part) in [(from, from % 2 == 1), (to - 1, to % 2 == 1)] {
                if is_part && self.nodes[node] >= least {
                    return Some(self.descend(node, least));
                }
            }
            (from, to) = (from.div_ceil(2), to / 2);
        }
        None
    }

    fn descend(&self, mut node: usize, least: u32) -> usize {
        let leaves = self.nodes.len() / 2;
        while node < leaves {
            node = 2 * node + usize::from(self.nodes[2 * node] < least);
        }
        node - leaves
    }
}
