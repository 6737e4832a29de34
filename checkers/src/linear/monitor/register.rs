//! Is there a legal order of the operations of a register to which every value was written at most once?
//!
//! **Idea.** Gibbons and Korach ("Testing shared memories", 1997) decide this by *zones*: a value's writer and all that
//! observe it stand together in every legal order. Here with compare-and-set, with crashed operations, and online.
//!
//! *What happened.* A crashed operation is taken to have happened only if a completed one observed what it left, directly or
//! through other crashed ones: all others can be left out of any legal order. A crashed observer says nothing. What is taken
//! to have happened is *needed*.
//!
//! *Blocks.* The operations of a value are its *cluster*. A needed compare-and-set observes one value and leaves another,
//! with nothing between, so that it links two clusters, and a whole chain of clusters is one *block*: it stands in the order
//! without a gap, and in itself as the write, its observers, the compare-and-set, its observers, and so on. So a block is
//! bad if a value has no writer (invoked so far), if two needed compare-and-sets observe one value, if a chain bites its
//! tail, or if an operation was invoked only after one had returned that must follow it. Observers of one value come in any
//! order that respects real time, such as that of their returns. The initial value is a write before all time.
//!
//! *Between blocks.* Let f(X) be the first return and s(X) the last invocation in block X. X must precede Y (X → Y) if and
//! only if f(X) < s(Y). There is an order of blocks if and only if no two of them must precede each other: on a longer cycle
//! take the block Y with the greatest s. Every B on the cycle precedes some B' on it, f(B) < s(B') ≤ s(Y), so all others on
//! the cycle precede Y; among them is the one that Y precedes. And if no two precede each other, then sorting blocks by the
//! lesser of f and s (and then by the greater) gives an order: let X → Y, that is, f(X) < s(Y), and s(X) ≤ f(Y). If the
//! lesser of Y's two is f(Y), it is at least s(X); if it is s(Y), it is greater than f(X); so it is no less than the lesser
//! of X's two. Equal they are only if both are s(X) = f(Y), and then the greater ones are f(X) < s(Y).
//!
//! *Online.* Walking the returns in order, each block's f is known from its first operation on, so that blocks are numbered
//! by f; s grows. As s(X) grows, the blocks Y with f(Y) < s(X) are those up to a number, and a tree of maxima says whether
//! one of them has s(Y) > f(X). Blocks never merge: what a newly needed value is linked to is either needed already, or in
//! no block. So the first return at which there is no order is found as it comes by, without a second look at anything.
//!
//! **Cost.** O(n log n) time: a sort of returns, and a logarithmic step for each. Memory: a few dozen bytes an operation, in
//! dense columns.
//!
//! A compare-and-set that did *not* find a value is satisfied by any other value: it chooses between before and after a cluster,
//! and histories that have one are left to the search.

use elench_formats::sorting::{pair, sort_by_wide};
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
    #[inline]
    fn cluster(&self, op: u32) -> Option<u32> {
        let (seen, left) = (self.seen[op as usize], self.left[op as usize]);
        [left, seen].into_iter().find(|&value| value != NONE)
    }

    /// The value that precedes one in its chain.
    #[inline]
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

    #[inline]
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
        sort_by_wide(&mut self.list, |block| {
            // As numbers that compare as the times do: `first` stands before an equal `last`.
            let (first, last) = (2 * u64::from(block.first), 2 * u64::from(block.last) + 1);
            pair(first.min(last), first.max(last))
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::tests::{Random, brute_force, decide_every_way, every_overlap, history, more, seed};
    use super::super::prefix;
    use super::*;
    use crate::linear::{Evidence, Problem, check};
    use crate::model::{Model, Register};
    use crate::outcome::{Answer, OpId};
    use RegisterOp::{Cas, Read, Write};

    type Op = Operation<RegisterOp>;

    fn monitored(ops: &[Op]) -> Monitored {
        monitor(Value::NIL, ops, &Budget::unlimited())
    }

    /// Is there an order? Monitor and search agree on it and on the completion that no order survives (or it panics), and
    /// a conflict's core is as promised.
    fn decide(ops: &[Op]) -> bool {
        match monitored(ops) {
            Monitored::Conflict(conflict) => can_leave_out_all_but(&conflict, ops),
            other => assert!(matches!(other, Monitored::Order(_)), "{other:?}: {ops:?}"),
        }
        decide_every_way(&Register::default(), ops)
    }

    fn can_leave_out_all_but(conflict: &Conflict, ops: &[Op]) {
        let known = prefix(ops, ops[conflict.at as usize].ret.unwrap());
        let others: Vec<bool> = (0..known.len()).map(|i| !conflict.core.contains(&(i as u32))).collect();
        let mut left_out = others.clone();
        Register::default().leave_out_safely(&known.iter().map(|op| &op.op).collect::<Vec<_>>(), &mut left_out);
        assert_eq!(others, left_out, "{conflict:?}: {ops:?}");
    }

    /// Every sequence of operations in which each value is written at most once. Values are named as they appear, up to `most`.
    fn every_word(n: usize, most: i64, visit: &mut impl FnMut(&[RegisterOp])) {
        fn go(
            n: usize,
            most: i64,
            named: i64,
            written: &mut Vec<Value>,
            word: &mut Vec<RegisterOp>,
            visit: &mut impl FnMut(&[RegisterOp]),
        ) {
            if word.len() == n {
                return visit(word);
            }
            let values = |named: i64| (0..(named + 1).min(most)).map(Value);
            let any = |named: i64| std::iter::once(Value::NIL).chain(values(named));
            let with = |named: i64, value: Value| named.max(value.0 + 1);
            let mut next: Vec<(i64, RegisterOp)> = Vec::new();
            for value in any(named) {
                next.push((with(named, value), Read(Some(value))));
                let named = with(named, value);
                next.extend(values(named).filter(|new| *new != value).map(|new| (with(named, new), Cas(value, new))));
            }
            next.extend(values(named).map(|value| (with(named, value), Write(value))));
            next.push((with(named, Value(0)), Cas(Value(0), Value(0))));
            for (named, op) in next {
                let new = op.leaves();
                if new.is_some_and(|new| written.contains(&new)) {
                    continue;
                }
                written.extend(new);
                word.push(op);
                go(n, most, named, written, word, visit);
                word.pop();
                written.truncate(written.len() - usize::from(new.is_some()));
            }
        }
        go(n, most, 0, &mut Vec::new(), &mut Vec::new(), visit);
    }

    fn placed(overlap: &[(u64, Option<u64>)], word: &[RegisterOp]) -> Vec<Op> {
        let op = |(&(call, ret), &op)| Operation { id: OpId(call), process: None, call, ret, op };
        overlap.iter().zip(word).map(op).collect()
    }

    fn agree_on_every_history(n: usize, most: i64) {
        let (mut valid, mut all) = (0u64, 0u64);
        let mut overlaps = Vec::new();
        every_overlap(n, |overlap| overlaps.push(overlap.to_vec()));
        every_word(n, most, &mut |word| {
            for overlap in &overlaps {
                let ops = placed(overlap, word);
                let answer = decide(&ops);
                assert_eq!(answer, brute_force(&Register::default(), &ops), "{ops:?}");
                valid += u64::from(answer);
                all += 1;
            }
        });
        println!("{all} histories of {n} operations over {most} values, {valid} of them linearizable");
        assert!(valid > all / 50 && valid < all - all / 50);
    }

    #[test]
    fn agrees_with_brute_force_on_every_history_of_three_operations() {
        for n in 1..=3 {
            agree_on_every_history(n, 4);
        }
    }

    #[test]
    fn agrees_with_brute_force_on_every_history_of_four_operations_over_two_values() {
        agree_on_every_history(4, if more() > 1 { 4 } else { 2 });
    }

    #[test]
    fn agrees_with_brute_force_on_every_overlap_of_five_operations() {
        let mut random = Random(seed());
        let mut words = Vec::new();
        every_word(5, 3, &mut |word| words.push(word.to_vec()));
        let (mut valid, mut all) = (0u64, 0u64);
        every_overlap(5, |overlap| {
            for _ in 0..10 * more() {
                let ops = placed(overlap, &words[random.below(words.len() as u64) as usize]);
                let answer = decide(&ops);
                assert_eq!(answer, brute_force(&Register::default(), &ops), "{ops:?}");
                valid += u64::from(answer);
                all += 1;
            }
        });
        println!("{all} histories of five operations, {valid} of them linearizable");
        assert!(valid > all / 50);
    }

    /// What a run should look like.
    #[derive(Clone, Copy, Debug)]
    struct Shape {
        clients: usize,
        ops: usize,
        /// Per mille of operations.
        info: u64,
        cas: u64,
        silent: u64,
        /// Per mille of reads and compare-and-sets that claim to have seen some value of late.
        lies: u64,
        /// Does the clock tell any two events apart?
        fine_clock: bool,
    }

    fn random_shape(random: &mut Random, ops: std::ops::Range<u64>) -> Shape {
        let ops = ops.start + random.below(ops.end - ops.start);
        let mut of = |choices: [u64; 4]| choices[random.below(4) as usize];
        Shape {
            ops: ops as usize,
            clients: of([2, 3, 4, 6]) as usize,
            info: of([0, 10, 50, 200]),
            cas: of([0, 200, 500, 900]),
            silent: of([0, 0, 20, 100]),
            lies: of([0, 1, 2, 4]) * 1000 / ops.max(4),
            fine_clock: of([0, 1, 1, 1]) == 1,
        }
    }

    /// A run of a register by some clients, each of whom writes values of its own: every operation takes effect at some
    /// moment between its invocation and its return, or, when it crashes, at once, later or never. What it saw is true but
    /// for lies.
    fn simulate(random: &mut Random, shape: Shape) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::new();
        let mut happened: Vec<bool> = Vec::new();
        let mut clients: Vec<Option<(usize, bool)>> = vec![None; shape.clients];
        let mut ghosts: Vec<usize> = Vec::new();
        let (mut state, mut time, mut written) = (Value::NIL, 0, 0);
        let mut passing = |random: &mut Random| {
            time += if shape.fine_clock { 1 } else { random.below(2) };
            time
        };
        while ops.len() < shape.ops || clients.iter().any(Option::is_some) {
            if !ghosts.is_empty() && random.chance(100) {
                let op = ghosts.swap_remove(random.below(ghosts.len() as u64) as usize);
                state = Register::default().step(&state, &ops[op].op).unwrap_or(state);
            }
            let client = random.below(shape.clients as u64) as usize;
            clients[client] = match clients[client] {
                None if ops.len() == shape.ops => None,
                None => {
                    let late = |random: &mut Random| Value((written - random.below(4) as i64).max(0));
                    let op = if random.chance(shape.cas) {
                        let old = if random.chance(shape.lies) { late(random) } else { state };
                        written += 1;
                        Cas(old, Value(written))
                    } else if random.chance(500) {
                        written += 1;
                        Write(Value(written))
                    } else {
                        Read(random.chance(shape.lies).then(|| late(random)))
                    };
                    let call = passing(random);
                    ops.push(Operation { id: OpId(ops.len() as u64), process: None, call, ret: None, op });
                    happened.push(true);
                    Some((ops.len() - 1, false))
                }
                Some((op, true)) => {
                    ops[op].ret = Some(passing(random));
                    None
                }
                Some((op, false)) if random.chance(shape.info) => {
                    ghosts.extend(random.chance(500).then_some(op));
                    None
                }
                Some((op, false)) => {
                    match ops[op].op {
                        Read(None) if !random.chance(shape.silent) => ops[op].op = Read(Some(state)),
                        Cas(old, _) if old != state && !random.chance(shape.lies) => happened[op] = false,
                        change => state = change.leaves().unwrap_or(state),
                    }
                    Some((op, true))
                }
            };
        }
        let mut happened = happened.into_iter();
        ops.retain(|_| happened.next() == Some(true));
        ops.sort_by_key(|op| op.call);
        ops
    }

    #[test]
    fn agrees_with_the_search_on_random_histories() {
        let mut random = Random(seed());
        for (ops, runs) in [(1..12, 8_000), (10..30, 8_000), (30..80, 3_000), (80..200, 1_000)] {
            let (mut valid, runs) = (0, runs * more());
            for _ in 0..runs {
                let shape = random_shape(&mut random, ops.clone());
                let ops = simulate(&mut random, shape);
                let answer = decide(&ops);
                if ops.len() < 12 {
                    assert_eq!(answer, brute_force(&Register::default(), &ops), "{shape:?} {ops:?}");
                }
                assert!(answer || shape.lies > 0, "{shape:?} {ops:?}");
                valid += u64::from(answer);
            }
            println!("{valid} of {runs} histories of {ops:?} operations linearizable");
            assert!(valid > runs / 10 && valid < runs * 19 / 20);
        }
    }

    /// Makes one operation claim to have seen a value after another had been written for certain, and says which.
    fn make_stale(random: &mut Random, ops: &mut [Op]) -> Option<OpId> {
        let i = random.below(ops.len() as u64) as usize;
        let writes = |op: &&Op| matches!(op.op, Write(_)) && op.ret.is_some_and(|ret| ret < ops[i].call);
        let later: Vec<&Op> = ops.iter().filter(writes).collect();
        let later = later.get(random.below(later.len().max(1) as u64) as usize)?;
        let before = |op: &&Op| op.op.leaves().is_some() && op.ret.is_some_and(|ret| ret < later.call);
        let old = ops.iter().rfind(before)?.op.leaves()?;
        ops[i].op = match ops[i].op {
            Read(Some(_)) => Read(Some(old)),
            Cas(_, new) => Cas(old, new),
            _ => return None,
        };
        ops[i].ret.map(|_| ops[i].id)
    }

    #[test]
    fn a_stale_value_in_a_true_history_is_found_and_who_saw_it_is_in_the_evidence() {
        let mut random = Random(seed());
        let mut seen = 0;
        for _ in 0..6_000 * more() {
            let shape = Shape { lies: 0, ..random_shape(&mut random, 5..100) };
            let mut ops = simulate(&mut random, shape);
            if ops.is_empty() {
                continue;
            }
            assert!(decide(&ops), "{ops:?}");
            let Some(liar) = make_stale(&mut random, &mut ops) else { continue };
            assert!(!decide(&ops), "{liar}: {ops:?}");
            let problem = Problem::new(None, Register::default(), ops).unwrap();
            let outcome = check(&problem, &Budget::unlimited(), &Evidence::default());
            assert!(outcome.violations()[0].ops.contains(&liar), "{liar}: {outcome:?}");
            seen += 1;
        }
        println!("{seen} stale values found");
        assert!(seen > 1_000);
    }

    /// The place of the completion that no order survives, and the identities of the core.
    fn conflict(text: &str) -> Option<(u64, Vec<u64>)> {
        let ops = history(text);
        assert_eq!(decide(&ops), brute_force(&Register::default(), &ops));
        let Monitored::Conflict(Conflict { at, core }) = monitored(&ops) else { return None };
        Some((ops[at as usize].id.0, core.iter().map(|&i| ops[i as usize].id.0).collect()))
    }

    #[test]
    fn a_crashed_write_counts_from_its_first_observer_on() {
        assert_eq!(conflict("0 w1, 1 w2, 1 ok, 1 r2, 1 ok, 1 r1, 1 ok, 1 r1, 1 ok"), None);
        assert_eq!(conflict("0 w1, 1 w2, 1 ok, 1 r1, 1 ok, 1 r2, 1 ok"), Some((5, vec![0, 1, 3, 5])));
        assert_eq!(conflict("0 w1, 0 info, 0 c1-2, 0 info, 0 c2-3, 0 info, 1 rn, 1 ok"), None);
        assert_eq!(
            conflict("0 w1, 0 info, 0 c1-2, 0 info, 0 c2-3, 0 info, 1 r3, 1 ok, 1 r2, 1 ok"),
            Some((8, vec![0, 2, 4, 6, 8]))
        );
    }

    #[test]
    fn each_way_in_which_a_chain_is_bad_is_found_with_its_few_operations() {
        let unwritten = "0 w9, 0 ok, 0 r1, 0 ok";
        assert_eq!(conflict(unwritten), Some((2, vec![2])));
        let too_early = "0 w9, 1 c1-2, 2 r2, 2 ok, 3 w1, 3 ok, 1 ok";
        assert_eq!(conflict(too_early), Some((2, vec![1, 2])));
        let bites_its_tail = "0 c1-2, 1 c2-3, 2 c3-1, 3 r2, 3 ok";
        assert_eq!(conflict(bites_its_tail), Some((3, vec![0, 1, 2, 3])));
        let forked = "0 w9, 0 ok, 0 w1, 1 c1-2, 2 c1-3, 0 ok, 0 r2, 0 ok, 2 ok";
        assert_eq!(conflict(forked), Some((4, vec![2, 3, 4, 6])));
        let stale = "0 w1, 1 c1-2, 1 ok, 1 r1, 1 ok, 0 ok";
        assert_eq!(conflict(stale), Some((3, vec![0, 1, 3])));
        let initial_is_gone = "0 w9, 1 w1, 1 ok, 1 rn, 1 ok";
        assert_eq!(conflict(initial_is_gone), Some((3, vec![1, 3])));
    }

    #[test]
    fn histories_of_other_kinds_are_left_to_the_search() {
        for text in ["0 w1, 1 w1, 0 ok", "0 c2-1, 1 w1", "0 wn, 0 ok", "0 c1-n", "0 m1, 0 ok"] {
            assert_eq!(monitored(&history(text)), Monitored::NotApplicable, "{text}");
        }
        assert!(
            matches!(monitored(&history("0 m1, 1 c2-2, 1 r3, 1 info")), Monitored::Order(order) if order.is_empty())
        );
        let no_memory = monitor(Value::NIL, &history("0 w1, 0 ok"), &Budget::unlimited().memory(10));
        assert_eq!(no_memory, Monitored::NotApplicable);
    }

    #[test]
    fn maxima_find_what_is_as_great() {
        let mut random = Random(seed());
        for len in 1..40 {
            let mut maxima = Maxima::new(len);
            let mut numbers = vec![0; len];
            for _ in 0..200 {
                let at = random.below(len as u64) as usize;
                numbers[at] += random.below(9) as u32;
                maxima.raise(at, numbers[at]);
                let (from, least) = (random.below(len as u64) as usize, random.below(100) as u32);
                let to = from + random.below((len - from) as u64 + 1) as usize;
                let found = maxima.at_least(from..to, least);
                assert!(found.is_none_or(|at| (from..to).contains(&at) && numbers[at] >= least));
                assert_eq!(found.is_some(), numbers[from..to].iter().any(|&n| n >= least));
            }
        }
    }

    #[test]
    fn a_long_history_by_many_clients_is_decided_either_way() {
        let mut random = Random(seed());
        let shape = Shape { clients: 100, ops: 50_000, info: 10, cas: 100, silent: 10, lies: 0, fine_clock: true };
        let ops = simulate(&mut random, shape);
        let places: HashSet<OpId> = ops.iter().map(|op| op.id).collect();
        assert_eq!(places.len(), ops.len());
        let problem = Problem::new(None, Register::default(), ops.clone()).unwrap();
        assert!(matches!(check(&problem, &Budget::unlimited(), &Evidence::default()).answer(), Answer::Valid(_)));
        let mut lies = ops;
        let liar = (0..1000).find_map(|_| make_stale(&mut random, &mut lies)).unwrap();
        let problem = Problem::new(None, Register::default(), lies).unwrap();
        let outcome = check(&problem, &Budget::unlimited(), &Evidence::default());
        assert!(outcome.violations()[0].ops.contains(&liar));
        assert!(outcome.violations()[0].ops.len() < 100);
    }
}
