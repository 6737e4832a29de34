//! When were the removals that found nothing, and which values did the unknown ones take?
//!
//! A value is *surely there* after its insertion must have taken effect and before the removal that names it may have.
//! A removal that found nothing needs a moment of its own interval at which no value is. Values that no removal names, the *lost* ones, are
//! there for good, unless one of the unknown removals took them; each takes one at most, at any time from its
//! invocation on. So each lost value has a *deadline* by which it must be gone, if any: the first moment chosen for an empty find after
//! its insertion, or what the collection's discipline demands. Unknown removals are given to lost values by deadline, the earliest
//! first; as a removal that can meet one deadline can meet all later ones, this fails only if no assignment exists (Hall's
//! condition on nested sets).
//!
//! The moment of an empty find: at t, the lost values inserted before t must be no more than the unknown removals
//! invoked up to t. If deadlines ascend with insertions, that is all: whichever values have to be gone by T are the
//! first ones inserted, those before the last empty find up to T or those whose discipline demands it, and each of the
//! two conditions is known to hold. So moments are chosen independently of each other. Where deadlines do not ascend, or a removal that
//! has not returned names a lost value, this is necessary, not sufficient; what is chosen is then tried, and proves nothing when it fails.
//!
//! O(n log n).

use elench_formats::sorting::sort_by;
use std::collections::BTreeSet;

use super::columns::{Columns, Cut, Life, NEVER, by_rank};

/// What was chosen.
pub(super) struct Plan {
    /// The moment of each empty find, by its place among them.
    pub(super) moments: Vec<u32>,
    /// The lost values, with the removals that take them.
    pub(super) lost: Vec<Life>,
}

/// Why there is no plan.
pub(super) enum NoPlan {
    /// These operations conflict.
    Conflict(Vec<u32>),
    /// There may be one.
    Unknown,
}

/// A deadline that the discipline demands, and the values that demand it.
#[derive(Clone)]
pub(super) struct Deadline {
    pub(super) time: u32,
    /// None if it cannot be said.
    pub(super) because_of: Option<Vec<u32>>,
}

impl Deadline {
    pub(super) const NONE: Deadline = Deadline { time: NEVER, because_of: None };
}

/// Chooses moments and removals. `deadlines` are those of the lost values.
pub(super) fn plan(columns: &Columns, cut: &Cut, deadlines: &[Deadline]) -> Result<Plan, NoPlan> {
    enough_removals(columns, cut, deadlines)?;
    let moments = moments(columns, cut)?;
    let lost = assign(cut, deadlines, &moments).ok_or(NoPlan::Unknown)?;
    Ok(Plan { moments, lost })
}

/// How many unknown removals are invoked up to this moment.
fn removals_by(cut: &Cut, moment: u32) -> usize {
    cut.unknown.partition_point(|&(call, _)| call <= moment)
}

/// Are there removals enough to meet the deadlines of the discipline?
fn enough_removals(columns: &Columns, cut: &Cut, deadlines: &[Deadline]) -> Result<(), NoPlan> {
    let due = |&i: &usize| deadlines[i].time < cut.lost[i].take_from;
    let mut by_deadline: Vec<usize> = (0..cut.lost.len()).filter(due).collect();
    sort_by(&mut by_deadline, |&i| deadlines[i].time.into());
    for (before, &i) in by_deadline.iter().enumerate() {
        let removals = removals_by(cut, deadlines[i].time);
        if removals > before {
            continue;
        }
        let mut values = Vec::new();
        for &i in &by_deadline[..=before] {
            values.push(cut.lost[i].value);
            values.extend(deadlines[i].because_of.as_ref().ok_or(NoPlan::Unknown)?);
        }
        return Err(NoPlan::Conflict(columns.core(values, cut.unknown[..removals].iter().map(|&(_, op)| op))));
    }
    Ok(())
}

/// A stretch of time in which some value is surely there, without its ends.
type Stretch = (u32, u32);

fn moments(columns: &Columns, cut: &Cut) -> Result<Vec<u32>, NoPlan> {
    if cut.empties.is_empty() {
        return Ok(Vec::new());
    }
    // Without unknown removals, a lost value can only be taken by what names it.
    let named = cut.lost.iter().filter(|life| cut.unknown.is_empty() && life.take_from != NEVER);
    let staying: Vec<Life> = cut.taken.iter().chain(named).copied().filter(Life::stays).collect();
    let by_insert = by_rank(&staying, columns.ranks, |life| life.insert_to);
    let mut stretches: Vec<Stretch> = Vec::new();
    for &i in &by_insert {
        let (from, to) = (staying[i as usize].insert_to, staying[i as usize].take_from);
        match stretches.last_mut() {
            Some((_, end)) if from < *end => *end = to.max(*end),
            _ => stretches.push((from, to)),
        }
    }
    // Values that only unknown removals can have taken, by insertion.
    let mut lost: Vec<(u32, u32)> =
        cut.lost.iter().filter(|life| life.take_from == NEVER).map(|life| (life.insert_to, life.value)).collect();
    lost.sort_unstable();
    let context = Context { columns, cut, stretches, lost };
    let moment = |&empty: &(u32, u32, u32)| {
        context.moment(empty).ok_or_else(|| NoPlan::Conflict(context.conflict(empty, &staying, &by_insert)))
    };
    cut.empties.iter().map(moment).collect()
}

struct Context<'a> {
    columns: &'a Columns,
    cut: &'a Cut,
    stretches: Vec<Stretch>,
    lost: Vec<(u32, u32)>,
}

impl Context<'_> {
    /// The first moment from this on at which no taken value is surely there.
    fn free_from(&self, moment: u32) -> u32 {
        let next = self.stretches.partition_point(|&(_, to)| to <= moment);
        match self.stretches.get(next) {
            Some(&(from, to)) if from < moment => to,
            _ => moment,
        }
    }

    fn lost_before(&self, moment: u32) -> usize {
        self.lost.partition_point(|&(insert, _)| insert < moment)
    }

    fn fits(&self, moment: u32) -> bool {
        self.lost_before(moment) <= removals_by(self.cut, moment)
    }

    /// What may be gained by waiting is one more unknown removal.
    fn moment(&self, (call, ret, _): (u32, u32, u32)) -> Option<u32> {
        let mut moment = self.free_from(call);
        loop {
            if moment > ret {
                return None;
            }
            if self.fits(moment) {
                return Some(moment);
            }
            let &(next, _) = self.cut.unknown.get(removals_by(self.cut, moment))?;
            moment = self.free_from(next);
        }
    }

    /// If more values are lost before the first free moment than can have been taken by the end, those and what is there until then;
    /// else all that is there meanwhile.
    fn conflict(&self, (call, ret, op): (u32, u32, u32), staying: &[Life], by_insert: &[u32]) -> Vec<u32> {
        let free = self.free_from(call);
        let removals = if free <= ret { removals_by(self.cut, ret) } else { 0 };
        let unknown = self.cut.unknown[..removals].iter().map(|&(_, op)| op).chain([op]);
        let lost = |n: usize| self.lost[..n].iter().map(|&(_, value)| value);
        if free > ret || self.lost_before(free) > removals {
            let cover = cover(staying, by_insert, call, free.min(ret + 1));
            let lost = lost(if free > ret { 0 } else { removals + 1 });
            return self.columns.core(cover.into_iter().chain(lost), unknown);
        }
        let meanwhile = staying.iter().filter(|life| life.insert_to < ret && life.take_from > call);
        self.columns.core(meanwhile.map(|life| life.value).chain(lost(self.lost_before(ret))), unknown)
    }
}

/// Few values of which one is surely there at each moment from `from` until before `to`, given that such exist.
fn cover(staying: &[Life], by_insert: &[u32], from: u32, to: u32) -> Vec<u32> {
    let mut cover = Vec::new();
    let (mut moment, mut best) = (from, None::<&Life>);
    for life in by_insert.iter().map(|&i| &staying[i as usize]) {
        while moment < to && life.insert_to >= moment {
            let Some(next) = best.filter(|best| best.take_from > moment) else { return cover };
            cover.push(next.value);
            moment = next.take_from;
        }
        if moment >= to {
            return cover;
        }
        if best.is_none_or(|best| best.take_from < life.take_from) {
            best = Some(life);
        }
    }
    while let Some(next) = best.filter(|best| moment < to && best.take_from > moment) {
        cover.push(next.value);
        moment = next.take_from;
    }
    cover
}

/// Gives unknown removals to lost values by deadline. Of those that meet it, the last invoked before the insertion
/// must have taken effect (then the value may come and go in one moment), else the first.
fn assign(cut: &Cut, deadlines: &[Deadline], moments: &[u32]) -> Option<Vec<Life>> {
    let mut sorted = moments.to_vec();
    sorted.sort_unstable();
    let due = |i: usize| {
        let life = &cut.lost[i];
        let next = sorted.get(sorted.partition_point(|&moment| moment <= life.insert_to));
        deadlines[i].time.min(next.copied().unwrap_or(NEVER))
    };
    let due: Vec<u32> = (0..cut.lost.len()).map(due).collect();
    let mut by_deadline: Vec<usize> = (0..cut.lost.len()).filter(|&i| due[i] < cut.lost[i].take_from).collect();
    sort_by(&mut by_deadline, |&i| due[i].into());
    let mut unused: BTreeSet<(u32, u32)> = cut.unknown.iter().copied().collect();
    let mut lost = cut.lost.clone();
    for i in by_deadline {
        let before = unused.range(..(lost[i].insert_to, 0)).next_back();
        let &removal = before.or_else(|| unused.first()).filter(|(call, _)| *call <= due[i])?;
        unused.remove(&removal);
        lost[i].taker = removal.1;
        lost[i].take_from = removal.0.max(lost[i].insert_from);
    }
    Some(lost)
}
