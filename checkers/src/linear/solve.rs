//! Which way is a history decided?
//!
//! Divided into independent parts if the model's operations allow it (Herlihy and Wing's locality, as for keys); each
//! part by the model's monitor where that applies, else by the search. Orders of parts are merged into one by giving every
//! operation a moment at which it takes effect: the latest invocation up to it in its part's order.

use elench_formats::sorting::sort_by;
use std::time::Duration;

use super::monitor::{Conflict, Monitored, prefix};
use super::search::{self, Found, Sample, StuckAt, TooMany};
use super::{Evidence, Operation, depth, verify};
use crate::budget::Budget;
use crate::model::Model;
use crate::outcome::Method;
use crate::parallel;

/// What was found of one history; operations are named by their places.
#[derive(Debug)]
pub(super) struct Solved {
    pub(super) found: Found,
    /// How many parts were decided which way.
    pub(super) methods: Vec<(Method, u64)>,
    /// Of a conflict that a monitor found: operations that suffice for it.
    pub(super) core: Vec<u32>,
}

/// Why there is no answer at all.
#[derive(Debug)]
pub(super) enum Failure {
    /// Too large to number.
    TooMany,
    /// Two ways of deciding do not agree.
    Fault(String),
}

/// Decides a history. `ops` are sorted by invocation.
pub(super) fn solve<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    budget: &Budget,
    evidence: &Evidence,
) -> Result<Solved, Failure> {
    let Some(parts) = parts(model, ops) else { return solve_part(model, ops, budget, evidence) };
    let solve = |part: &Vec<u32>| {
        let ops: Vec<Operation<M::Op>> = part.iter().map(|&i| ops[i as usize].clone()).collect();
        solve_part(model, &ops, budget, evidence)
    };
    let solved: Result<Vec<Solved>, Failure> = match budget.thread_count() {
        1 => parts.iter().map(solve).collect(),
        _ => parallel::map(parts.len(), 64, |i| solve(&parts[i])).into_iter().collect(),
    };
    Ok(merge(ops, &parts, solved?))
}

/// The operations of each part, if there are parts. Where a process goes on from one part to another at one and the same
/// recorded time, only its own order says which came first, and no part by itself sees that: then there are none.
fn parts<M: Model>(model: &M, ops: &[Operation<M::Op>]) -> Option<Vec<Vec<u32>>> {
    let part_of = |op: &Operation<M::Op>| model.part(&op.op);
    let first = part_of(ops.first()?)?;
    if ops.iter().all(|op| part_of(op) == Some(first)) {
        return None;
    }
    let differ = |(&a, &b): (&u32, &u32)| part_of(&ops[a as usize]) != part_of(&ops[b as usize]);
    if search::touching(ops).iter().any(differ) {
        return None;
    }
    let mut places: hashbrown::HashMap<u64, usize, foldhash::fast::FixedState> = hashbrown::HashMap::default();
    let mut parts: Vec<Vec<u32>> = Vec::new();
    for (i, op) in (0..).zip(ops) {
        let place = *places.entry(part_of(op)?).or_insert(parts.len());
        if place == parts.len() {
            parts.push(Vec::new());
        }
        parts[place].push(i);
    }
    Some(parts)
}

fn solve_part<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    budget: &Budget,
    evidence: &Evidence,
) -> Result<Solved, Failure> {
    let monitored = if evidence.search_only || search::has_touching(ops) {
        Monitored::NotApplicable
    } else {
        model.monitor(ops, budget)
    };
    let searched = || both_searches(model, ops, budget, evidence.orders).map_err(|TooMany| Failure::TooMany);
    let (found, core) = match monitored {
        Monitored::NotApplicable => {
            let found = searched()?;
            return Ok(Solved { found, methods: vec![(Method::Search, 1)], core: Vec::new() });
        }
        Monitored::GaveUp(spent) => (Found::GaveUp { spent, reached: None, frontier: 0 }, Vec::new()),
        Monitored::Order(order) => {
            if let Err(flaw) = verify::verify_places(model, ops, &order) {
                return Err(Failure::Fault(format!("the monitor's order is none: {flaw}")));
            }
            (Found::Order(evidence.orders.then_some(order)), Vec::new())
        }
        Monitored::Conflict(Conflict { at, core }) => (stuck(model, ops, at, &core, budget)?, core),
    };
    let mut methods = vec![(Method::Monitor, 1)];
    if evidence.cross_check {
        let searched = searched()?;
        agree(&found, &searched, ops)?;
        // A search that gave up has confirmed nothing.
        if !matches!(searched, Found::GaveUp { .. }) {
            methods = vec![(Method::Both, 1)];
        }
    }
    Ok(Solved { found, methods, core })
}

/// Operations from which on a second thread is worth its while.
const WORTH_A_THREAD: usize = 200;

/// The frontier search, and where there are cores the depth-first one beside it: the first to end has the answer. An order is
/// verified before it counts.
fn both_searches<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    budget: &Budget,
    keep_order: bool,
) -> Result<Found, TooMany> {
    if budget.thread_count() == 1 || ops.len() < WORTH_A_THREAD || search::has_touching(ops) {
        return search::search(model, ops, budget, keep_order);
    }
    let (wide, deep) = (budget.part(), budget.part());
    let (wide_found, deep_found) = parallel::both(
        || {
            let found = search::search(model, ops, &wide, keep_order);
            if !matches!(found, Ok(Found::GaveUp { .. })) {
                deep.cancel();
            }
            found
        },
        || {
            let found = depth::search(model, ops, &deep);
            let is_found = match &found {
                Found::Order(Some(order)) => verify::verify_places(model, ops, order).is_ok(),
                found => matches!(found, Found::Stuck(_)),
            };
            if is_found {
                wide.cancel();
            }
            is_found.then_some(found)
        },
    );
    match (wide_found, deep_found) {
        (Ok(Found::GaveUp { .. }), Some(found)) => Ok(found),
        (found, _) => found,
    }
}

/// How long the search may take over a monitor's core.
const RECHECK: Duration = Duration::from_secs(3);

/// What the search says of a monitor's core: where it is stuck, in the places of the whole. Where it has no answer in time (sets
/// that are read whole have cores of many additions), the monitor's stands, without dead ends.
fn stuck<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    at: u32,
    core: &[u32],
    budget: &Budget,
) -> Result<Found, Failure> {
    let few: Vec<Operation<M::Op>> = core.iter().map(|&i| ops[i as usize].clone()).collect();
    let few = prefix(&few, ops[at as usize].ret.unwrap_or(u64::MAX));
    // Returns at one time have no order among themselves.
    let same = |op: u32| ops[op as usize].ret == ops[at as usize].ret;
    match search::search(model, &few, &budget.part().within(RECHECK), true) {
        Ok(Found::Stuck(found)) if same(core[found.op as usize]) => Ok(Found::Stuck(found.placed_at(core))),
        Ok(Found::GaveUp { .. }) => match budget.spent() {
            Some(spent) => Ok(Found::GaveUp { spent, reached: None, frontier: 0 }),
            None => Ok(Found::Stuck(StuckAt { op: at, survivors: 0, samples: Vec::new() })),
        },
        Ok(Found::Stuck(found)) => Err(Failure::Fault(format!(
            "the monitor found a conflict at the completion of {}, the search at that of {}",
            ops[at as usize].id, ops[core[found.op as usize] as usize].id
        ))),
        Ok(Found::Order(_)) => {
            let ids: Vec<String> = core.iter().take(20).map(|&i| ops[i as usize].id.to_string()).collect();
            Err(Failure::Fault(format!("the monitor found a conflict among {}, the search none", ids.join(", "))))
        }
        Err(TooMany) => Err(Failure::TooMany),
    }
}

/// Do monitor and search say the same? What one of them did not decide says nothing.
fn agree<O>(monitor: &Found, search: &Found, ops: &[Operation<O>]) -> Result<(), Failure> {
    let same = match (monitor, search) {
        (Found::Stuck(a), Found::Stuck(b)) => ops[a.op as usize].ret == ops[b.op as usize].ret,
        (Found::Order(_), Found::Stuck(_)) | (Found::Stuck(_), Found::Order(_)) => false,
        _ => true,
    };
    let say = |found: &Found| match found {
        Found::Order(_) => "there is an order".to_string(),
        Found::Stuck(stuck) => format!("there is none up to the return of {}", ops[stuck.op as usize].id),
        Found::GaveUp { .. } => "nothing".to_string(),
    };
    if same {
        return Ok(());
    }
    Err(Failure::Fault(format!("the monitor says {}, the search says {}", say(monitor), say(search))))
}

/// Of parts: stuck where the first of them is; else given up where one was; else an order of all.
fn merge<O>(ops: &[Operation<O>], parts: &[Vec<u32>], solved: Vec<Solved>) -> Solved {
    let mut methods: Vec<(Method, u64)> = Vec::new();
    let (mut stuck, mut gave_up): (Option<(StuckAt, Vec<u32>)>, Option<Found>) = (None, None);
    let mut orders = Vec::with_capacity(parts.len());
    for (part, solved) in parts.iter().zip(solved) {
        for (method, n) in solved.methods {
            match methods.iter_mut().find(|(m, _)| *m == method) {
                Some((_, count)) => *count += n,
                None => methods.push((method, n)),
            }
        }
        match solved.found {
            Found::Order(order) => orders.push(order.map(|order| placed(&order, part))),
            Found::GaveUp { .. } => gave_up = gave_up.or(Some(solved.found)),
            Found::Stuck(found) => {
                let found = found.placed_at(part);
                let ret = |stuck: &StuckAt| ops[stuck.op as usize].ret;
                if stuck.as_ref().is_none_or(|(first, _)| ret(&found) < ret(first)) {
                    // Where no monitor says what suffices, the part does, as no other has to do with it.
                    let core = if solved.core.is_empty() { part.clone() } else { placed(&solved.core, part) };
                    stuck = Some((found, core));
                }
            }
        }
    }
    let (found, core) = match (stuck, gave_up) {
        (Some((stuck, core)), _) => (Found::Stuck(stuck), core),
        // Up to where all parts are fine is not known.
        (None, Some(Found::GaveUp { spent, .. })) => (Found::GaveUp { spent, reached: None, frontier: 0 }, Vec::new()),
        _ => (Found::Order(interleave(ops, orders)), Vec::new()),
    };
    Solved { found, methods, core }
}

fn placed(list: &[u32], part: &[u32]) -> Vec<u32> {
    list.iter().map(|&i| part[i as usize]).collect()
}

/// Orders of independent parts as one.
fn interleave<O>(ops: &[Operation<O>], orders: Vec<Option<Vec<u32>>>) -> Option<Vec<u32>> {
    let orders: Option<Vec<Vec<u32>>> = orders.into_iter().collect();
    Some(by_moment(orders?, |&i| ops[i as usize].call))
}

/// Orders of independent objects as one, given when each operation was invoked. An operation takes effect at the latest
/// invocation up to it in its own order: not before its own, and not after its return, as nothing before it was invoked after
/// that.
pub(super) fn by_moment<T>(orders: Vec<Vec<T>>, call: impl Fn(&T) -> u64) -> Vec<T> {
    let mut moments: Vec<(u64, T)> = Vec::with_capacity(orders.iter().map(Vec::len).sum());
    for order in orders {
        let mut moment = 0;
        for op in order {
            moment = call(&op).max(moment);
            moments.push((moment, op));
        }
    }
    // Stable, so that an object's own order stands where moments are equal.
    sort_by(&mut moments, |&(moment, _)| moment);
    moments.into_iter().map(|(_, op)| op).collect()
}

impl StuckAt {
    /// The same in the places of the whole, given the place of each operation of the part.
    fn placed_at(self, part: &[u32]) -> StuckAt {
        let samples = self.samples.into_iter().map(|sample| Sample {
            applied: placed(&sample.applied, part),
            waiting: placed(&sample.waiting, part),
            order: sample.order.map(|order| placed(&order, part)),
            ..sample
        });
        StuckAt { op: part[self.op as usize], survivors: self.survivors, samples: samples.collect() }
    }
}
