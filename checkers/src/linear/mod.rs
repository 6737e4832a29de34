//! Is there a legal order of these operations that respects real time?
//!
//! Linearizability (Herlihy and Wing, 1990) is local: a history is linearizable when the operations of each key are.
//! A [`Problem`] is the operations of one key; [`check`] decides one, [`check_keys`] many in parallel. Both
//! directions carry a certificate: an order, which [`verify`](verify::verify) checks without trusting the search, or the
//! completion that no order survives, why, and a small sub-history that has no order either.
//!
//! Keys are independent only as far as time tells their operations apart: where one process ends an operation on one key
//! and begins one on another at the same recorded time, that order is not held against other keys.

use elench_formats::sorting::sort_by;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::budget::Budget;
use crate::model::Model;
use crate::outcome::{Answer, Certificate, Coverage, KeyId, KeyOrder, OpId, Outcome, Status, Stuck, Undecided, Why};
use crate::parallel;

mod depth;
mod explain;
mod frontier;
mod log;
pub mod monitor;
pub mod online;
mod problems;
pub mod read;
mod search;
pub mod sequential;
mod shrink;
mod solve;
pub mod staleness;
#[cfg(test)]
pub(crate) mod tests;
pub mod verify;

pub use problems::Problems;

use search::Found;
use solve::Failure;

/// One operation. Those that failed did not happen and are not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<O> {
    /// Its name.
    pub id: OpId,
    /// Who did it; none when the recorder does not say. One process does one thing after another: an operation of it that is
    /// invoked no earlier than another returned comes after that one, even when both are recorded at the same time.
    pub process: Option<i64>,
    /// When it was invoked, in the recorder's order.
    pub call: u64,
    /// When it returned; none when its outcome is not known: it may take effect any time from its invocation on, or never.
    pub ret: Option<u64>,
    /// What it did and, when it returned, saw.
    pub op: O,
}

/// The operations of one key.
#[derive(Clone, Debug)]
pub struct Problem<M: Model> {
    key: Option<KeyId>,
    model: M,
    ops: Vec<Operation<M::Op>>,
}

impl<M: Model> Problem<M> {
    /// Operations in any order. An operation that returns before it is invoked is refused: its name is the error.
    pub fn new(key: Option<KeyId>, model: M, mut ops: Vec<Operation<M::Op>>) -> Result<Self, OpId> {
        if let Some(op) = ops.iter().find(|op| op.ret.is_some_and(|ret| ret < op.call)) {
            return Err(op.id);
        }
        sort_by(&mut ops, |op| op.call);
        Ok(Problem { key, model, ops })
    }

    /// The key.
    pub fn key(&self) -> Option<KeyId> {
        self.key
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The operations, by invocation.
    pub fn ops(&self) -> &[Operation<M::Op>] {
        &self.ops
    }

    fn coverage(&self) -> Coverage {
        let mut coverage = Coverage { keys: 1, ..Coverage::default() };
        let mut counts: Vec<(&'static str, Status, u64)> = Vec::new();
        for op in &self.ops {
            let kind = self.model.kind(&op.op);
            let status = if op.ret.is_some() { Status::Ok } else { Status::Info };
            match counts.iter_mut().find(|(k, s, _)| (*k, *s) == (kind, status)) {
                Some((_, _, n)) => *n += 1,
                None => counts.push((kind, status, 1)),
            }
        }
        for (kind, status, n) in counts {
            coverage.count(kind, status, n);
        }
        coverage
    }
}

/// How much evidence is wanted.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Keep the linearization orders of what is valid.
    pub orders: bool,
    /// Of how many keys that are not linearizable to seek the smallest sub-history (the first ones, by key).
    pub shrunk_keys: usize,
    /// How long that may take for each.
    pub shrink_time: Duration,
    /// Decide what a monitor decides by the search as well; a disagreement is a fault.
    pub cross_check: bool,
    /// Use no monitors.
    pub search_only: bool,
    /// Stop at the first violation that is found; the keys not decided by then are undecided.
    pub first_only: bool,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence {
            orders: true,
            shrunk_keys: 5,
            shrink_time: Duration::from_secs(2),
            cross_check: false,
            search_only: false,
            first_only: false,
        }
    }
}

/// Decides one key.
pub fn check<M: Model>(problem: &Problem<M>, budget: &Budget, evidence: &Evidence) -> Outcome {
    with_small_histories([problem], vec![decide(problem, budget, evidence)], budget, evidence)
}

/// Decides many keys in parallel, the largest first, and merges the answers.
pub fn check_keys<M: Model>(problems: &[Problem<M>], budget: &Budget, evidence: &Evidence) -> Outcome {
    let mut largest_first: Vec<usize> = (0..problems.len()).collect();
    sort_by(&mut largest_first, |&i| !(problems[i].ops.len() as u64));
    let part = budget.part();
    let decide = |problem: &Problem<M>| {
        let outcome = decide(problem, &part, evidence);
        if evidence.first_only && outcome.is_invalid() {
            part.cancel();
        }
        outcome
    };
    let run = || {
        let decided = parallel::map(problems.len(), 1, |i| decide(&problems[largest_first[i]]));
        let mut decided: Vec<(usize, Outcome)> = largest_first.into_iter().zip(decided).collect();
        sort_by(&mut decided, |&(i, _)| i as u64);
        decided.into_iter().map(|(_, outcome)| outcome).collect()
    };
    let outcomes = match rayon::ThreadPoolBuilder::new().num_threads(budget.thread_count()).build() {
        Ok(pool) if budget.thread_count() != 1 => pool.install(run),
        _ => problems.iter().map(decide).collect(),
    };
    with_small_histories(problems, outcomes, budget, evidence)
}

/// One key's answer, without the small sub-history. A panic (in a model of the user's, say) is that key's `unknown`.
fn decide<M: Model>(problem: &Problem<M>, budget: &Budget, evidence: &Evidence) -> Outcome {
    let mut coverage = problem.coverage();
    let solve = || solve::solve(&problem.model, &problem.ops, budget, evidence);
    let (why, known) = match catch_unwind(AssertUnwindSafe(solve)) {
        Ok(Ok(solved)) => {
            for (method, n) in solved.methods {
                coverage.decided_by(method, n);
            }
            match solved.found {
                Found::Order(order) => {
                    coverage.keys_decided = 1;
                    let order = order.map(|order| order.iter().map(|&i| problem.ops[i as usize].id).collect());
                    let orders = vec![KeyOrder { key: problem.key, order }];
                    return Outcome::valid(coverage, evidence.orders.then_some(Certificate::Orders(orders)));
                }
                Found::Stuck(stuck) => {
                    coverage.keys_decided = 1;
                    return Outcome::invalid(coverage, explain::violation(problem, &stuck, &solved.core), vec![]);
                }
                Found::GaveUp { spent, reached, frontier } => {
                    (Why::Spent(spent), explain::known(problem, reached, frontier))
                }
            }
        }
        Ok(Err(Failure::TooMany)) => {
            (Why::Other("more than two thousand million operations on one key".into()), String::new())
        }
        Ok(Err(Failure::Fault(what))) => {
            (Why::Other(format!("fault of the checker, please report it: {what}")), String::new())
        }
        Err(panic) => (Why::Other(format!("the check panicked: {}", message(&*panic))), String::new()),
    };
    coverage.undecided.push(Undecided { key: problem.key, why: why.clone(), known });
    Outcome::unknown(coverage, why)
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Adds to the first few violations the smallest sub-history that shows them, and merges all answers.
fn with_small_histories<'p, M: Model + 'p>(
    problems: impl IntoIterator<Item = &'p Problem<M>>,
    outcomes: Vec<Outcome>,
    budget: &Budget,
    evidence: &Evidence,
) -> Outcome {
    let mut left = evidence.shrunk_keys;
    Outcome::merge(problems.into_iter().zip(outcomes).map(|(problem, outcome)| {
        if left == 0 || !outcome.is_invalid() {
            return outcome;
        }
        left -= 1;
        with_small_history(problem, outcome, budget, evidence)
    }))
}

fn with_small_history<M: Model>(
    problem: &Problem<M>,
    outcome: Outcome,
    budget: &Budget,
    evidence: &Evidence,
) -> Outcome {
    let (answer, coverage) = outcome.into_parts();
    let Answer::Invalid(violations) = answer else { return Outcome::merge([]) };
    let mut violations = violations.into_iter().map(|mut violation| {
        if let Some(Certificate::Stuck(stuck)) = &mut violation.certificate {
            let budget = budget.clone().within(evidence.shrink_time);
            shrink(problem, stuck, &budget);
            violation.explanation.push_str(&explain::small_history(problem, stuck));
            violation.ops.extend(stuck.minimal.iter().filter(|op| **op != stuck.op).copied());
        }
        violation
    });
    match violations.next() {
        Some(first) => Outcome::invalid(coverage, first, violations.collect()),
        None => Outcome::merge([]),
    }
}

/// Fills in the small sub-histories; a panic or a spent budget leaves what was found so far.
fn shrink<M: Model>(problem: &Problem<M>, stuck: &mut Stuck, budget: &Budget) {
    let shrunk =
        catch_unwind(AssertUnwindSafe(|| shrink::shrink(&problem.model, &problem.ops, stuck.op, &stuck.core, budget)));
    if let Ok(shrunk) = shrunk {
        let ids = |list: &[usize]| list.iter().map(|&i| problem.ops[i].id).collect();
        stuck.core = ids(&shrunk.core);
        stuck.minimal = ids(&shrunk.minimal);
        stuck.rechecks = shrunk.rechecks;
        stuck.shrunk_fully = shrunk.fully;
    }
}
