//! Stacks, of which each value is pushed at most once.
//!
//! A value that may be popped before its push must have ended comes and goes in one moment and is in nobody's way. Any
//! other is *surely there* from the end of its push until its pop begins. At a moment when no value is surely there, the history falls
//! apart: what is to be popped later was not pushed before, and what was pushed before can be popped before, so that both sides
//! are decided by themselves. Where some value is surely there all the time from L to R (a *component*, of two values or more), the stack is never
//! empty in between, so one and the same value lies at the bottom: its push begins no later than L and its pop ends no earlier than R. Any such
//! value will do: push it first and pop it last, as the others of the component have their pushes end no earlier than L
//! and their pops begin no later than R. What is above it falls apart again. So: take away a bottom, divide, repeat; the nesting found is
//! the order of pushes and pops, as it stands. A component without a possible bottom is a conflict, and so are a
//! few of its values that cover it. (The decrease-and-conquer of Lee and Mathur, "Efficient decrease-and-conquer linearizability
//! monitoring", 2025; Abdulla et al., PLDI 2025, divide likewise.)
//!
//! Values never popped are popped at the end of time. A removal that found nothing was at a moment when no value is surely
//! there ([`empties`](super::empties)).
//!
//! **Unknown removals.** Each may have taken a value that is else never popped (*lost*). First the others are nested by themselves. A lost value fits
//! in where, below some bottoms, no value is surely there at some moment of its push; it must be gone before those bottoms are popped,
//! which is its deadline. Meeting all deadlines is necessary. It is not sufficient, as lost values are in each other's way too;
//! so the assignment found is tried, and when it fails nothing is known. Without unknown removals all is exact.
//!
//! O(n log n): one segment tree counts the values surely there, by range, and finds where there are none; one finds pushes that begin early
//! enough, one the pop that ends last. With unknown removals, also the sum over lost values of their depth in the nesting, up to a limit.

use super::Monitored;
use super::columns::{Columns, Cut, Life, NEVER, NONE, Verdict, by_rank, monitor};
use super::empties::{Deadline, NoPlan, Plan, plan};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::model::{CollectionOp, Value};

/// Decides a stack.
pub(crate) fn stack(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
    monitor(initial, ops, budget, decide)
}

fn decide(columns: &Columns, cut: &Cut) -> Verdict {
    let exact = cut.unknown.is_empty() || cut.lost.is_empty();
    let deadlines = if exact { Ok(vec![Deadline::NONE; cut.lost.len()]) } else { deadlines(columns, cut) };
    let Plan { moments, lost } = match deadlines.and_then(|deadlines| plan(columns, cut, &deadlines)) {
        Ok(plan) => plan,
        Err(NoPlan::Conflict(core)) => return Verdict::Conflict(core),
        Err(NoPlan::Unknown) => return Verdict::Unknown,
    };
    let mut lives = cut.taken.clone();
    lives.extend(lost);
    let staying = staying(&lives);
    match nest(columns, &staying, &[]) {
        Ok(nest) => Verdict::Order(emit(columns, cut, &lives, &staying, &nest, &moments)),
        Err(conflict) if exact => Verdict::Conflict(columns.core(conflict, [])),
        Err(_) => Verdict::Unknown,
    }
}

/// The deadlines of lost values among those surely taken.
fn deadlines(columns: &Columns, cut: &Cut) -> Result<Vec<Deadline>, NoPlan> {
    match nest(columns, &staying(&cut.taken), &cut.lost) {
        Ok(nest) if nest.gave_up => Err(NoPlan::Unknown),
        Ok(nest) => Ok(nest.deadlines.into_iter().map(|time| Deadline { time, because_of: None }).collect()),
        Err(conflict) => Err(NoPlan::Conflict(columns.core(conflict, []))),
    }
}

fn staying(lives: &[Life]) -> Vec<Life> {
    lives.iter().copied().filter(Life::stays).collect()
}

/// A nesting.
struct Nest {
    /// Pushes and pops in order: places among the lives, and whether it is the push.
    steps: Vec<(u32, bool)>,
    /// For each lost value, when it must be gone.
    deadlines: Vec<u32>,
    /// Are the deadlines not known, as it would have taken too long?
    gave_up: bool,
}

/// Steps down the nesting per value, on behalf of lost values, at most.
const DESCENTS: usize = 32;

/// The ends of the stays of values, by rank; between each two of them a gap, in which so many values are surely there.
struct Gaps {
    /// Place of the life and whether its stay begins, by rank.
    ends: Vec<(u32, bool)>,
    /// Where the stay of each life begins and ends.
    begin: Vec<u32>,
    end: Vec<u32>,
}

impl Gaps {
    fn new(columns: &Columns, lives: &[Life]) -> Gaps {
        let by_begin = by_rank(lives, columns.ranks, |life| life.insert_to);
        let by_end = by_rank(lives, columns.ranks, |life| life.take_from);
        let mut gaps =
            Gaps { ends: Vec::with_capacity(2 * lives.len()), begin: vec![0; lives.len()], end: vec![0; lives.len()] };
        let mut begins = by_begin.into_iter().peekable();
        for i in by_end {
            let until = lives[i as usize].take_from;
            while let Some(j) = begins.next_if(|&j| lives[j as usize].insert_to < until) {
                gaps.begin[j as usize] = gaps.ends.len() as u32;
                gaps.ends.push((j, true));
            }
            gaps.end[i as usize] = gaps.ends.len() as u32;
            gaps.ends.push((i, false));
        }
        gaps
    }

    /// How many values are surely there in each gap, the one after the end of the same place.
    fn counts(&self) -> Vec<i32> {
        let mut there = 0;
        let count = |&(_, begins): &(u32, bool)| {
            there += if begins { 1 } else { -1 };
            there
        };
        self.ends.iter().map(count).collect()
    }
}

/// A component whose bottom was found: what is above it is yet to be found from `next` on.
struct Open {
    bottom: u32,
    next: usize,
    /// The last gap.
    last: usize,
    /// Lost values that fit in nowhere further down: which, the first and last gap of the push.
    waiting: Vec<(u32, usize, usize)>,
}

/// Nests the lives, each of which stays; or gives values that cannot be nested.
fn nest(columns: &Columns, lives: &[Life], lost: &[Life]) -> Result<Nest, Vec<u32>> {
    let gaps = Gaps::new(columns, lives);
    let mut there = Counts::new(gaps.counts());
    let mut nest =
        Nest { steps: Vec::with_capacity(gaps.ends.len()), deadlines: vec![NEVER; lost.len()], gave_up: false };
    // By the place where a stay begins: the pushes not yet known to begin early enough, and the pops of those that do.
    let place = |key: &dyn Fn(&Life) -> u32, begins: bool| -> Vec<u32> {
        let ends = gaps.ends.iter();
        ends.map(|&(i, begin)| if begin && begins { key(&lives[i as usize]) } else { NEVER }).collect()
    };
    let mut pushes = Least::new(place(&|life| life.insert_from, true));
    let mut pops = Least::new(place(&|_| NEVER, false));
    let mut begins = Next::new(gaps.ends.iter().map(|&(_, begins)| begins));
    let mut budget = DESCENTS * (lives.len() + lost.len()) + 1024;
    let waiting = waiting(&gaps, lives, lost, &mut there);
    let root = Open { bottom: NONE, next: 0, last: gaps.ends.len(), waiting };
    let mut open = vec![root];
    while let Some(top) = open.last_mut() {
        let first = begins.at_or_after(top.next);
        if first > top.last || first >= gaps.ends.len() {
            if top.bottom != NONE {
                nest.steps.push((top.bottom, false));
            }
            open.pop();
            continue;
        }
        let (lowest, _) = gaps.ends[first];
        let alone = begins.at_or_after(first + 1) > gaps.end[lowest as usize] as usize;
        let last = if alone { gaps.end[lowest as usize] as usize - 1 } else { there.first_zero(first) - 1 };
        top.next = last + 1;
        let mut waiting: Vec<(u32, usize, usize)> = Vec::new();
        if !top.waiting.is_empty() {
            let inside = |&mut (_, from, _): &mut (u32, usize, usize)| (first..=last).contains(&from);
            waiting = top.waiting.extract_if(.., inside).collect();
        }
        let bottom = if alone {
            lowest
        } else {
            let begin = lives[lowest as usize].insert_to;
            let end = lives[gaps.ends[last + 1].0 as usize].take_from;
            while let Some(i) = pushes.at_most(begin, first, last) {
                pops.set(i, NEVER - lives[gaps.ends[i].0 as usize].take_to);
                pushes.set(i, NEVER);
            }
            // The pop that ends last.
            let Some(i) = pops.at_most(NEVER - end, first, last) else {
                return Err(cover(&gaps, lives, &mut begins, first, last));
            };
            gaps.ends[i].0
        };
        let (begin, end) = (gaps.begin[bottom as usize] as usize, gaps.end[bottom as usize] as usize);
        begins.remove(begin);
        if !alone {
            pops.set(begin, NEVER);
            there.take_one(begin, end - 1);
        } else if !waiting.is_empty() {
            there.take_one(begin, end - 1);
        }
        for &(i, _, _) in &waiting {
            let deadline = &mut nest.deadlines[i as usize];
            *deadline = lives[bottom as usize].take_to.min(*deadline);
        }
        if budget < waiting.len() {
            nest.gave_up = true;
            waiting.clear();
        }
        budget -= waiting.len();
        waiting.retain(|&(_, from, to)| there.first_zero(from) > to);
        nest.steps.push((bottom, true));
        open.push(Open { bottom, next: first, last, waiting });
    }
    Ok(nest)
}

/// The lost values that do not fit in at the very bottom, with the gaps of their pushes.
fn waiting(gaps: &Gaps, lives: &[Life], lost: &[Life], there: &mut Counts) -> Vec<(u32, usize, usize)> {
    let rank = |&(i, begins): &(u32, bool)| {
        let life = &lives[i as usize];
        if begins { life.insert_to } else { life.take_from }
    };
    let gap = |moment: u32| gaps.ends.partition_point(|end| rank(end) <= moment).checked_sub(1);
    let place = |(i, life): (usize, &Life)| {
        let (from, to) = (gap(life.insert_from)?, gap(life.insert_to)?);
        (there.first_zero(from) > to).then_some((i as u32, from, to))
    };
    lost.iter().enumerate().filter_map(place).collect()
}

/// Few values of those left that cover a component.
fn cover(gaps: &Gaps, lives: &[Life], begins: &mut Next, first: usize, last: usize) -> Vec<u32> {
    let mut cover = Vec::new();
    let (mut reached, mut place) = (first, begins.at_or_after(first));
    while reached <= last {
        let mut best = None;
        while place <= reached {
            let (i, _) = gaps.ends[place];
            best = best.max(Some((gaps.end[i as usize] as usize, i)));
            place = begins.at_or_after(place + 1);
        }
        let Some((end, i)) = best else { break };
        cover.push(lives[i as usize].value);
        reached = end;
    }
    cover
}

/// The order: steps and empty finds as they are nested, and what comes and goes in one moment at that moment. The moment of a step is
/// the latest invocation up to it.
fn emit(columns: &Columns, cut: &Cut, lives: &[Life], staying: &[Life], nest: &Nest, moments: &[u32]) -> Vec<u32> {
    let passing = lives.iter().filter(|life| !life.stays());
    let mut passing: Vec<(u32, u32, u32)> =
        passing.map(|life| (life.take_from, columns.insert_of(life.value).unwrap_or(NONE), life.taker)).collect();
    passing.sort_unstable();
    let mut empties: Vec<(u32, u32)> = moments.iter().zip(&cut.empties).map(|(&t, &(_, _, op))| (t, op)).collect();
    empties.sort_unstable();
    let (mut passing, mut empties) = (passing.into_iter().peekable(), empties.into_iter().peekable());
    let mut order = Vec::with_capacity(2 * lives.len() + moments.len());
    let mut put = |moment: u32, op: u32| {
        while let Some((_, push, pop)) = passing.next_if(|(time, _, _)| *time < moment) {
            order.extend([push, pop].into_iter().filter(|op| *op != NONE));
        }
        order.extend(Some(op).filter(|op| *op != NONE));
    };
    let (mut moment, mut depth) = (0, 0);
    for &(i, pushes) in &nest.steps {
        let life = &staying[i as usize];
        while let Some((time, op)) = empties.next_if(|(time, _)| depth == 0 && *time <= life.insert_to) {
            moment = time.max(moment);
            put(moment, op);
        }
        if pushes {
            depth += 1;
            moment = life.insert_from.max(moment);
            put(moment, columns.insert_of(life.value).unwrap_or(NONE));
        } else {
            depth -= 1;
            if life.take_from == NEVER {
                // Whatever else is popped from here on is popped at the end of time.
                break;
            }
            moment = life.take_from.max(moment);
            put(moment, life.taker);
        }
    }
    for (time, op) in empties {
        moment = time.max(moment);
        put(moment, op);
    }
    put(NEVER, NONE);
    order
}

/// Counts by place of which a range is lowered by one at a time: a segment tree of minima, each without what all below it have been
/// lowered by.
struct Counts {
    leaves: usize,
    /// The least below, and what all below are lowered by; both of the node alone.
    nodes: Vec<(i32, i32)>,
}

impl Counts {
    fn new(counts: Vec<i32>) -> Counts {
        let leaves = (counts.len() + 1).next_power_of_two();
        let mut nodes = vec![(0, 0); 2 * leaves];
        for (node, count) in nodes[leaves..].iter_mut().zip(counts) {
            node.0 = count;
        }
        for i in (1..leaves).rev() {
            nodes[i].0 = nodes[2 * i].0.min(nodes[2 * i + 1].0);
        }
        Counts { leaves, nodes }
    }

    /// Lowers the counts from the first place to the last by one.
    fn take_one(&mut self, first: usize, last: usize) {
        let (mut left, mut right) = (self.leaves + first, self.leaves + last + 1);
        let (left_leaf, right_leaf) = (left, right - 1);
        while left < right {
            if left % 2 == 1 {
                self.lower(left);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.lower(right);
            }
            (left, right) = (left / 2, right / 2);
        }
        self.update_above(left_leaf);
        self.update_above(right_leaf);
    }

    fn lower(&mut self, node: usize) {
        self.nodes[node].0 -= 1;
        self.nodes[node].1 += 1;
    }

    fn update_above(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            self.nodes[node].0 = self.nodes[2 * node].0.min(self.nodes[2 * node + 1].0) - self.nodes[node].1;
        }
    }

    /// The first place from this one on where the count is zero; there is one after all places.
    fn first_zero(&self, from: usize) -> usize {
        // What the nodes above have been lowered by.
        let mut node = self.leaves + from;
        let mut lowered: i32 = (1..=node.ilog2()).map(|up| self.nodes[node >> up].1).sum();
        // Up and to the right until a node has a zero below.
        while self.nodes[node].0 != lowered {
            while node % 2 == 1 {
                node /= 2;
                lowered -= self.nodes[node].1;
                if node == 0 {
                    return self.leaves;
                }
            }
            node += 1;
        }
        while node < self.leaves {
            lowered += self.nodes[node].1;
            node *= 2;
            node += usize::from(self.nodes[node].0 != lowered);
        }
        node - self.leaves
    }
}

/// Numbers by place, of which the least in a range is sought.
struct Least {
    leaves: usize,
    nodes: Vec<u32>,
}

impl Least {
    fn new(numbers: Vec<u32>) -> Least {
        let leaves = numbers.len().next_power_of_two();
        let mut nodes = vec![NEVER; 2 * leaves];
        nodes[leaves..leaves + numbers.len()].copy_from_slice(&numbers);
        for i in (1..leaves).rev() {
            nodes[i] = nodes[2 * i].min(nodes[2 * i + 1]);
        }
        Least { leaves, nodes }
    }

    fn set(&mut self, place: usize, number: u32) {
        let mut node = self.leaves + place;
        self.nodes[node] = number;
        while node > 1 {
            node /= 2;
            let least = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if std::mem::replace(&mut self.nodes[node], least) == least {
                break;
            }
        }
    }

    /// The place of the least number from the first place to the last, if it is not `NEVER`.
    fn least_in(&self, first: usize, last: usize) -> Option<usize> {
        let (mut left, mut right) = (self.leaves + first, self.leaves + last + 1);
        let mut best = left;
        while left < right {
            if left % 2 == 1 {
                best = if self.nodes[left] < self.nodes[best] { left } else { best };
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                best = if self.nodes[right] < self.nodes[best] { right } else { best };
            }
            (left, right) = (left / 2, right / 2);
        }
        while best < self.leaves {
            best *= 2;
            best += usize::from(self.nodes[best + 1] < self.nodes[best]);
        }
        (self.nodes[best] != NEVER).then_some(best - self.leaves)
    }

    /// The place of the least number from the first place to the last, if it is at most this.
    fn at_most(&self, number: u32, first: usize, last: usize) -> Option<usize> {
        self.least_in(first, last).filter(|&place| self.nodes[self.leaves + place] <= number)
    }
}

/// Places, of which the next one left is sought (a union-find over those gone).
struct Next {
    next: Vec<u32>,
}

impl Next {
    fn new(there: impl ExactSizeIterator<Item = bool>) -> Next {
        let mut next: Vec<u32> = (0..=there.len() as u32).collect();
        for (place, there) in there.enumerate() {
            if !there {
                next[place] += 1;
            }
        }
        Next { next }
    }

    fn remove(&mut self, place: usize) {
        self.next[place] += 1;
    }

    /// The first place from this one on that is there, or the number of places.
    fn at_or_after(&mut self, place: usize) -> usize {
        let mut found = place.min(self.next.len() - 1);
        while self.next[found] as usize != found {
            // Halves the path for those who come after.
            let skip = self.next[self.next[found] as usize];
            self.next[found] = skip;
            found = skip as usize;
        }
        found
    }
}
