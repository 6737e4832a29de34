//! Is there a legal order, in polynomial time?
//!
//! Deciding linearizability is NP-complete in general, but for many objects it is not when every value is put in at most once:
//! then what an operation took out or saw names the operation that put it in. A *monitor* decides such histories, and says of all
//! others that it does not apply; the search decides those.
//!
//! Nothing that a monitor says is taken on trust. Its order is verified before it counts, and of a conflict the search is
//! asked whether the few operations of its core really have no order (for some seconds; what it cannot decide by then the report
//! says); where the two do not agree, the answer is `unknown` and a fault of the checker. (Not checked is what a monitor says of the rest: that leaving out all but the core could
//! not have hidden an order, and that the conflict appears no earlier. The tests and `--cross-check` do that.)

use super::Operation;
use crate::budget::Spent;

mod columns;
mod empties;
pub(crate) mod priority;
pub(crate) mod queue;
pub(crate) mod register;
pub(crate) mod set;
pub(crate) mod stack;
#[cfg(test)]
mod tests;

/// What a monitor found. Operations are named by their place in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitored {
    /// It cannot decide this history.
    NotApplicable,
    /// There is an order: this one.
    Order(Vec<u32>),
    /// There is none.
    Conflict(Conflict),
    /// The budget was used up.
    GaveUp(Spent),
}

/// Why there is no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The operation at whose return the conflict appears: the history up to just before has an order, with what is open then
    /// taken as open.
    pub at: u32,
    /// A few operations, ascending, among them `at`: as they stand at its return (what returns later is open) they have
    /// no order among themselves, and the model can leave out all others from any legal order of the whole
    /// ([`Model::leave_out_safely`](crate::Model::leave_out_safely)).
    pub core: Vec<u32>,
}

/// The history as it stands at a time: what is invoked later is not there, what returns later is open. Operations keep their places, as
/// they are sorted by invocation.
pub fn prefix<O: Clone>(ops: &[Operation<O>], end: u64) -> Vec<Operation<O>> {
    let known = ops.partition_point(|op| op.call <= end);
    ops[..known].iter().map(|op| Operation { ret: op.ret.filter(|&ret| ret <= end), ..op.clone() }).collect()
}

/// The first return at which a conflict appears, and the conflict found there, given one that appears no later. Bisects
/// the returns up to it: O(log n) runs of `conflict_in`, which is given the history up to a time.
pub fn earliest<O: Clone>(
    ops: &[Operation<O>],
    found: Vec<u32>,
    mut conflict_in: impl FnMut(&[Operation<O>]) -> Option<Vec<u32>>,
) -> Option<Conflict> {
    let last = found.iter().filter_map(|&i| ops[i as usize].ret).max()?;
    let mut returns: Vec<(u64, u32)> =
        ops.iter().enumerate().filter_map(|(i, op)| Some((op.ret.filter(|&ret| ret <= last)?, i as u32))).collect();
    returns.sort_unstable();
    let (mut fine, mut bad, mut core) = (0, returns.len() - 1, found);
    while fine < bad {
        let middle = fine + (bad - fine) / 2;
        match conflict_in(&prefix(ops, returns[middle].0)) {
            Some(earlier) => (bad, core) = (middle, earlier),
            None => fine = middle + 1,
        }
    }
    let at = returns[bad].1;
    core.push(at);
    core.sort_unstable();
    core.dedup();
    Some(Conflict { at, core })
}
