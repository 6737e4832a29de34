//! Queues and bags, of which each value is inserted at most once.
//!
//! **Queue.** Value x must go before value y if its insertion precedes that of y, or its removal that of y. (An
//! insertion that returns after its value was removed must have taken effect by then, and a removal invoked before its value's
//! insertion not until then: lives are narrowed so.) If some order of the values obeys this, inserting and removing
//! all of them in that order, each as early as it can, is a linearization: were x before y and the removal of y to end before x
//! can be inserted or removed, y would have to go before x. A removal that found nothing at moment t is like a value inserted and taken
//! at t ([`empties`](super::empties) chooses t), and values that are never taken are taken at the end of time.
//!
//! Such an order is found by taking away, again and again, a value that nothing left must precede: one whose insertion begins
//! no later than all insertions left end, and likewise its removal. If none is left that nothing must precede, consider the
//! value whose insertion ends first and the one whose removal ends first: each must precede the other. So a conflict
//! has two values. (Henzinger, Sezgin and Vafeiadis, "Aspect-oriented linearizability proofs", 2013, name the same violations;
//! Abdulla et al., "Efficient linearizability monitoring", 2025, decide in O(n log n).) Here O(n) after sorting by rank, O(n log n) with
//! unknown removals.
//!
//! **Bag.** No order at all: only empty finds and lost values matter.

use super::Monitored;
use super::columns::{Columns, Cut, Life, NEVER, NONE, Verdict, by_rank, monitor};
use super::empties::{Deadline, NoPlan, Plan, plan};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::model::{CollectionOp, Value};
use elench_formats::sorting::{pair, sort_by_wide};

/// Decides a first-in-first-out queue.
pub(crate) fn fifo(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
    monitor(initial, ops, budget, decide_fifo)
}

/// Decides a bag.
pub(crate) fn bag(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
    monitor(initial, ops, budget, decide_bag)
}

fn decide_fifo(columns: &Columns, cut: &Cut) -> Verdict {
    let plan = match plan(columns, cut, &deadlines(columns, cut)) {
        Ok(plan) => plan,
        Err(NoPlan::Conflict(core)) => return Verdict::Conflict(core),
        Err(NoPlan::Unknown) => return Verdict::Unknown,
    };
    let lives = all(cut, plan);
    match order_of_values(columns, &lives) {
        Ok(order) => Verdict::Order(emit(columns, &lives, &order)),
        Err([a, b])
            if lives[a].is_taken() && lives[b].is_taken() && lives[a].value != NONE && lives[b].value != NONE =>
        {
            Verdict::Conflict(columns.core([lives[a].value, lives[b].value], []))
        }
        Err(_) => Verdict::Unknown,
    }
}

/// A lost value must be gone before the first removal ends of a value whose insertion it precedes.
fn deadlines(columns: &Columns, cut: &Cut) -> Vec<Deadline> {
    if cut.lost.is_empty() {
        return Vec::new();
    }
    let mut first = by_rank(&cut.taken, columns.ranks, |life| life.insert_from);
    let starts: Vec<u32> = first.iter().map(|&i| cut.taken[i as usize].insert_from).collect();
    // From each value on, by insertion, the one that is gone first.
    for i in (1..first.len()).rev() {
        if cut.taken[first[i] as usize].take_to < cut.taken[first[i - 1] as usize].take_to {
            first[i - 1] = first[i];
        }
    }
    let deadline = |life: &Life| {
        let later = starts.partition_point(|&start| start <= life.insert_to);
        first.get(later).map_or(Deadline::NONE, |&i| {
            let gone_first = &cut.taken[i as usize];
            Deadline { time: gone_first.take_to, because_of: Some(vec![gone_first.value]) }
        })
    };
    cut.lost.iter().map(deadline).collect()
}

/// Taken values, lost values, and empty finds as values that come and go in their moment.
fn all(cut: &Cut, plan: Plan) -> Vec<Life> {
    let mut lives = Vec::with_capacity(cut.taken.len() + plan.lost.len() + plan.moments.len());
    lives.extend_from_slice(&cut.taken);
    lives.extend(plan.lost);
    lives.extend(cut.empties.iter().zip(plan.moments).map(|(&(_, _, taker), t)| Life {
        insert_from: t,
        insert_to: t,
        take_from: t,
        take_to: t,
        value: NONE,
        taker,
    }));
    lives
}

/// An order in which values can go in and out, or two each of which must go before the other.
fn order_of_values(columns: &Columns, lives: &[Life]) -> Result<Vec<u32>, [usize; 2]> {
    let by = |key: fn(&Life) -> u32| by_rank(lives, columns.ranks, key);
    let (by_insert_from, by_insert_to) = (by(|life| life.insert_from), by(|life| life.insert_to));
    let (by_take_from, by_take_to) = (by(|life| life.take_from), by(|life| life.take_to));
    let (mut insert_from, mut insert_to, mut take_from, mut take_to) = (0, 0, 0, 0);
    // One bit each: nothing left must be inserted before, nothing must be taken before, gone.
    let mut state = vec![0u8; lives.len()];
    let (mut ready, mut order) = (Vec::new(), Vec::with_capacity(lives.len()));
    while order.len() < lives.len() {
        let first_left = |sorted: &[u32], place: &mut usize| {
            while state[sorted[*place] as usize] & 4 != 0 {
                *place += 1;
            }
            sorted[*place] as usize
        };
        let first_in = first_left(&by_insert_to, &mut insert_to);
        let first_out = first_left(&by_take_to, &mut take_to);
        let mut free = |sorted: &[u32], place: &mut usize, bit: u8, until: u32, key: fn(&Life) -> u32| {
            while let Some(&i) = sorted.get(*place).filter(|&&i| key(&lives[i as usize]) <= until) {
                state[i as usize] |= bit;
                if state[i as usize] == 3 {
                    ready.push(i);
                }
                *place += 1;
            }
        };
        free(&by_insert_from, &mut insert_from, 1, lives[first_in].insert_to, |life| life.insert_from);
        free(&by_take_from, &mut take_from, 2, lives[first_out].take_to, |life| life.take_from);
        let Some(next) = ready.pop() else { return Err([first_in, first_out]) };
        state[next as usize] |= 4;
        order.push(next);
    }
    Ok(order)
}

/// Inserts and removes in an order of the values, each as early as it can; what is taken at the end of time stays.
fn emit(columns: &Columns, lives: &[Life], order: &[u32]) -> Vec<u32> {
    let mut takes = Vec::with_capacity(order.len());
    let (mut insert, mut take) = (0, 0);
    for &i in order {
        insert = lives[i as usize].insert_from.max(insert);
        take = lives[i as usize].take_from.max(take).max(insert);
        takes.push((take, lives[i as usize].taker));
    }
    let mut takes = takes.into_iter().filter(|(take, _)| *take != NEVER).peekable();
    let mut emitted = Vec::with_capacity(2 * order.len());
    let (mut inserted, mut taken, mut insert) = (0, 0, 0);
    for &i in order {
        let life = &lives[i as usize];
        insert = life.insert_from.max(insert);
        let is_empty_find = life.value == NONE;
        while taken < inserted
            && let Some((_, taker)) = takes.next_if(|(take, _)| is_empty_find || *take <= insert)
        {
            emitted.push(taker);
            taken += 1;
        }
        inserted += 1;
        if !is_empty_find {
            emitted.extend(columns.insert_of(life.value));
        }
    }
    emitted.extend(takes.map(|(_, taker)| taker));
    emitted
}

fn decide_bag(columns: &Columns, cut: &Cut) -> Verdict {
    let Plan { mut moments, lost } = match plan(columns, cut, &vec![Deadline::NONE; cut.lost.len()]) {
        Ok(plan) => plan,
        Err(NoPlan::Conflict(core)) => return Verdict::Conflict(core),
        Err(NoPlan::Unknown) => return Verdict::Unknown,
    };
    // Each operation at its moment; at one moment removals go before empty finds and those before insertions, but for
    // values that come and go in it, one after another.
    let mut placed: Vec<(u32, u8, u32, u32)> = Vec::with_capacity(2 * cut.taken.len() + moments.len());
    for life in cut.taken.iter().chain(&lost) {
        let (insert, take) = (life.insert_to.min(life.take_from), life.take_from);
        let stays = life.stays();
        placed.extend(columns.insert_of(life.value).map(|op| (insert, if stays { 3 } else { 2 }, life.value, op)));
        if take != NEVER {
            placed.push((take, if stays { 0 } else { 2 }, life.value, life.taker));
        }
    }
    let empties = cut.empties.iter().zip(moments.drain(..)).map(|(&(_, _, op), moment)| (moment, 1, 0, op));
    placed.extend(empties);
    sort_by_wide(&mut placed, |&(moment, class, value, _)| pair(u64::from(moment) << 8 | u64::from(class), value));
    Verdict::Order(placed.into_iter().map(|(_, _, _, op)| op).collect())
}
