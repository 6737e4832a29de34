//! Priority queues, of which each value is inserted at most once.
//!
//! A value can be taken at a moment when no smaller one is there. To be least in the way, a value is inserted as late as it may be and
//! taken as early as it can be. So the values are placed in ascending order: each is taken at the first moment from its `take_from`
//! on at which no smaller value is there, and is itself there from the end of its insertion until then. What is placed before is
//! never in the way for longer than it must be, so if that moment comes too late, there is no order: then the value conflicts with
//! smaller ones that cover the time it could have been taken in, and those with what covers theirs. (The class is that of Lee and Mathur,
//! 2025.) Moments when something is there are merged by union-find: O(n log n) with the sort by value.
//!
//! A removal that found nothing is like the removal of a value larger than all. Values never taken are taken at the end of time.
//!
//! **Unknown removals** are given to lost values as if only empty finds demanded it; where lost values are then in the way of
//! removals, they must be gone by then, and it is tried again. This finds orders; when it does not, nothing is known.

use super::Monitored;
use super::columns::{Columns, Cut, Life, NEVER, Verdict, monitor};
use super::empties::{Deadline, NoPlan, Plan, plan};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::model::{CollectionOp, Value};
use elench_formats::sorting::{pair, signed, sort_by, sort_by_wide};

/// Decides a priority queue.
pub(crate) fn priority(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
    monitor(initial, ops, budget, decide)
}

/// How often deadlines are made sooner before giving up.
const ATTEMPTS: usize = 16;

fn decide(columns: &Columns, cut: &Cut) -> Verdict {
    let exact = cut.unknown.is_empty() || cut.lost.is_empty();
    if !exact {
        // What values that must be taken forbid holds whatever becomes of the lost ones.
        let placed = place(columns, &cut.taken);
        if let Some(conflict) = placed.conflict(&cut.taken) {
            return Verdict::Conflict(columns.core(conflict, []));
        }
    }
    let mut deadlines = vec![Deadline::NONE; cut.lost.len()];
    for _ in 0..ATTEMPTS {
        let Plan { moments, lost } = match plan(columns, cut, &deadlines) {
            Ok(plan) => plan,
            Err(NoPlan::Conflict(core)) => return Verdict::Conflict(core),
            Err(NoPlan::Unknown) => return Verdict::Unknown,
        };
        let mut lives = cut.taken.clone();
        lives.extend(&lost);
        let mut placed = place(columns, &lives);
        if exact && let Some(conflict) = placed.conflict(&lives) {
            return Verdict::Conflict(columns.core(conflict, []));
        }
        let missed = moments.iter().copied().filter(|&moment| placed.free.from(moment) != moment);
        let missed: Vec<(u32, Value)> = missed.map(|moment| (moment, Value(i64::MAX))).collect();
        let late = placed.late.iter().map(|&i| &lives[i as usize]);
        let late = late.map(|life| (life.take_to, columns.names[life.value as usize])).chain(missed);
        let late: Vec<(u32, Value)> = late.collect();
        if late.is_empty() {
            return Verdict::Order(emit(columns, cut, &lives, &placed.takes, &moments));
        }
        // Lost values in the way of others have to be gone by then.
        let takes = &placed.takes[cut.taken.len()..];
        let mut sooner = false;
        for ((deadline, life), &take) in deadlines.iter_mut().zip(&lost).zip(takes) {
            let value = columns.names[life.value as usize];
            let in_the_way = |&&(by, other): &&(u32, Value)| value < other && life.insert_to < by && by < take;
            let by = late.iter().filter(in_the_way).map(|&(by, _)| by).min().unwrap_or(NEVER);
            sooner |= by < deadline.time;
            deadline.time = by.min(deadline.time);
        }
        if !sooner {
            return Verdict::Unknown;
        }
    }
    Verdict::Unknown
}

/// When values are taken.
struct Placed {
    /// By place among the lives.
    takes: Vec<u32>,
    /// Places among the lives, ascending by value.
    ascending: Vec<u32>,
    /// Those that cannot be taken in time, given what is smaller. They are placed all the same.
    late: Vec<u32>,
    free: Free,
}

impl Placed {
    /// The first value that cannot be taken in time, and smaller ones that are why.
    fn conflict(&self, lives: &[Life]) -> Option<Vec<u32>> {
        let first = *self.late.first()?;
        let before = self.ascending.iter().take_while(|&&i| i != first).copied().collect::<Vec<u32>>();
        Some(because_of(lives, &self.takes, &before, first as usize))
    }
}

/// Takes each value as early as smaller ones allow.
fn place(columns: &Columns, lives: &[Life]) -> Placed {
    let name = |&i: &u32| signed(columns.names[lives[i as usize].value as usize].0);
    let mut ascending: Vec<u32> = (0..lives.len() as u32).collect();
    sort_by(&mut ascending, name);
    let mut placed =
        Placed { takes: vec![NEVER; lives.len()], ascending, late: vec![], free: Free::new(columns.ranks) };
    for &i in &placed.ascending {
        let life = &lives[i as usize];
        let take = placed.free.from(life.take_from);
        if take > life.take_to {
            placed.late.push(i);
        }
        // What is late is in the way no longer than it may be, so that it makes nothing else late.
        let until = take.min(life.take_to);
        placed.takes[i as usize] = until;
        placed.free.fill(life.insert_to.saturating_add(1), until.min(columns.ranks));
    }
    placed
}

/// The values that keep one from being taken in time: those that cover its time, and in turn those that keep them from being
/// taken earlier than they are.
fn because_of(lives: &[Life], takes: &[u32], before: &[u32], late: usize) -> Vec<u32> {
    let mut because_of = vec![lives[late].value];
    // For each still to be explained, from and until when something smaller was there.
    let mut todo: Vec<(u32, u32)> = vec![(lives[late].take_from, lives[late].take_to)];
    for &i in before.iter().rev() {
        let (life, take) = (&lives[i as usize], takes[i as usize]);
        let in_the_way = todo.iter().any(|&(from, to)| life.insert_to < to.saturating_add(1) && take > from);
        if in_the_way && life.insert_to < take {
            because_of.push(life.value);
            if take > life.take_from {
                todo.push((life.take_from, take - 1));
            }
        }
    }
    because_of
}

/// Each operation at its moment. At one moment: removals of what was there before, ascending; empty finds; values that come and go;
/// insertions.
fn emit(columns: &Columns, cut: &Cut, lives: &[Life], takes: &[u32], moments: &[u32]) -> Vec<u32> {
    let mut placed: Vec<(u32, u8, Value, u32)> = Vec::with_capacity(2 * lives.len() + moments.len());
    for (life, &take) in lives.iter().zip(takes) {
        let value = columns.names[life.value as usize];
        let stays = life.insert_to < take;
        let insert = columns.insert_of(life.value);
        placed.extend(insert.map(|op| (life.insert_to.min(take), if stays { 3 } else { 2 }, value, op)));
        if take != NEVER {
            placed.push((take, if stays { 0 } else { 2 }, value, life.taker));
        }
    }
    placed.extend(cut.empties.iter().zip(moments).map(|(&(_, _, op), &moment)| (moment, 1, Value::NIL, op)));
    sort_by_wide(&mut placed, |&(moment, class, value, _)| {
        pair(u64::from(moment) << 8 | u64::from(class), signed(value.0))
    });
    placed.into_iter().map(|(_, _, _, op)| op).collect()
}

/// Moments at which nothing is there.
struct Free {
    next: Vec<u32>,
}

impl Free {
    fn new(ranks: u32) -> Free {
        Free { next: (0..=ranks).collect() }
    }

    /// The first one from this on; [`NEVER`] if there is none.
    fn from(&mut self, moment: u32) -> u32 {
        let never = self.next.len() as u32 - 1;
        let mut found = moment.min(never) as usize;
        while self.next[found] as usize != found {
            let skip = self.next[self.next[found] as usize];
            self.next[found] = skip;
            found = skip as usize;
        }
        if found as u32 == never { NEVER } else { found as u32 }
    }

    /// Something is there from the first moment until before the second.
    fn fill(&mut self, first: u32, end: u32) {
        let mut moment = self.from(first);
        while moment < end {
            self.next[moment as usize] = moment + 1;
            moment = self.from(moment + 1);
        }
    }
}
