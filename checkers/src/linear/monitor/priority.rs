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
//! **Unknown removals** are given to lost values as if only empty finds demanded it, and then, as often as a lost value is in the way of
//! a removal, so as to be gone by then; this finds orders, and when it does not, nothing is known.

use super::Monitored;
use super::columns::{Columns, Cut, Life, NEVER, NONE, Verdict, monitor};
use super::empties::{Deadline, NoPlan, Plan, plan};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::model::{CollectionOp, Value};

/// Decides a priority queue.
pub(crate) fn priority(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Monitored {
    monitor(initial, ops, budget, decide)
}

/// How often deadlines are made sooner before giving up.
const ATTEMPTS: usize = 16;

fn decide(columns: &Columns, cut: &Cut) -> Verdict {
    let mut deadlines = vec![Deadline::NONE; cut.lost.len()];
    // What smaller values that must be taken forbid holds whatever becomes of the lost ones.
    if !cut.unknown.is_empty()
        && !cut.lost.is_empty()
        && let Err(late) = place(columns, &cut.taken, &[])
    {
        return Verdict::Conflict(columns.core(late.because_of, []));
    }
    for _ in 0..ATTEMPTS {
        let Plan { moments, lost } = match plan(columns, cut, &deadlines) {
            Ok(plan) => plan,
            Err(NoPlan::Conflict(core)) => return Verdict::Conflict(core),
            Err(NoPlan::Unknown) => return Verdict::Unknown,
        };
        let mut lives = cut.taken.clone();
        lives.extend(&lost);
        match place(columns, &lives, &moments) {
            Ok(takes) => return Verdict::Order(emit(columns, cut, &lives, &takes, &moments)),
            Err(late) if cut.unknown.is_empty() || cut.lost.is_empty() => {
                return match late.value {
                    NONE => Verdict::Unknown,
                    _ => Verdict::Conflict(columns.core(late.because_of, [])),
                };
            }
            Err(late) => {
                // Lost values in its way have to be gone by then.
                let mut sooner = false;
                for (deadline, life) in deadlines.iter_mut().zip(&lost) {
                    let in_the_way = late.because_of.contains(&life.value) && life.insert_to < late.by;
                    if in_the_way && life.take_from > late.by && deadline.time > late.by {
                        deadline.time = late.by;
                        sooner = true;
                    }
                }
                if !sooner {
                    return Verdict::Unknown;
                }
            }
        }
    }
    Verdict::Unknown
}

/// A value that cannot be taken in time.
struct Late {
    value: u32,
    /// When it should have been.
    by: u32,
    /// It and smaller ones that suffice.
    because_of: Vec<u32>,
}

/// When each life is taken, by place; the moments of empty finds must be free of all.
fn place(columns: &Columns, lives: &[Life], moments: &[u32]) -> Result<Vec<u32>, Late> {
    let mut ascending: Vec<(Value, u32)> =
        (0..).zip(lives).map(|(i, life)| (columns.names[life.value as usize], i)).collect();
    ascending.sort_unstable();
    let mut free = Free::new(columns.ranks);
    let mut takes = vec![NEVER; lives.len()];
    for (smaller, &(_, i)) in ascending.iter().enumerate() {
        let life = &lives[i as usize];
        let take = free.from(life.take_from);
        if take > life.take_to {
            let before = &ascending[..smaller];
            let because_of = because_of(lives, &takes, before, i as usize);
            return Err(Late { value: life.value, by: life.take_to, because_of });
        }
        takes[i as usize] = take;
        free.fill(life.insert_to.saturating_add(1), take.min(columns.ranks));
    }
    match moments.iter().find(|&&moment| free.from(moment) != moment) {
        // Taken values do not cover it, but lost ones may, or such as others keep from being taken.
        Some(&by) => {
            let covers = |&&(_, i): &&(Value, u32)| lives[i as usize].insert_to < by && by < takes[i as usize];
            let covering = ascending.iter().filter(covers).map(|&(_, i)| lives[i as usize].value).collect();
            Err(Late { value: NONE, by, because_of: covering })
        }
        None => Ok(takes),
    }
}

/// The values that keep one from being taken in time: those that cover its time, and in turn those that keep them from being
/// taken earlier than they are.
fn because_of(lives: &[Life], takes: &[u32], before: &[(Value, u32)], late: usize) -> Vec<u32> {
    let mut because_of = vec![lives[late].value];
    // For each still to be explained, from and until when something smaller was there.
    let mut todo: Vec<(u32, u32)> = vec![(lives[late].take_from, lives[late].take_to)];
    for &(_, i) in before.iter().rev() {
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
    placed.sort_by_key(|&(moment, class, value, _)| (moment, class, value));
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
