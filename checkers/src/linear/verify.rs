//! Is this order a linearization?
//!
//! Five rules, checked in one pass: every completed operation stands in the order once; any other at most once, and
//! nothing else does; no operation stands after one that was invoked only when it had already returned; no completed one stands after a
//! later one of its process; the model allows each step. The third holds when no operation returned before the
//! latest invocation among those that stand before it. Knows nothing of search and monitors.

use std::fmt;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Operation;
use crate::model::Model;
use crate::outcome::OpId;

/// Why an order is no linearization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The history has no such operation.
    Stranger(OpId),
    /// It stands in the order twice.
    Twice(OpId),
    /// It completed but does not stand in the order.
    Missing(OpId),
    /// The second returned before the first was invoked, yet stands after it.
    Reordered(OpId, OpId),
    /// The second completed, and its process invoked the first afterwards, yet it stands after it.
    OutOfProcessOrder(OpId, OpId),
    /// The model does not allow it where it stands.
    Illegal(OpId),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Stranger(op) => write!(f, "{op} is not in the history"),
            Flaw::Twice(op) => write!(f, "{op} stands in the order twice"),
            Flaw::Missing(op) => write!(f, "{op} completed but does not stand in the order"),
            Flaw::Reordered(a, b) => write!(f, "{b} returned before {a} was invoked, yet stands after it"),
            Flaw::OutOfProcessOrder(a, b) => write!(f, "the process of {a} had done {b} before, which stands after it"),
            Flaw::Illegal(op) => write!(f, "the model does not allow {op} where it stands"),
        }
    }
}

/// Checks an order against the operations, which are sorted by invocation, and the model. O(n) and n steps of the model.
pub fn verify<M: Model>(model: &M, ops: &[Operation<M::Op>], order: &[OpId]) -> Result<(), Flaw> {
    let places: HashMap<OpId, u32, FixedState> = (0..).zip(ops).map(|(i, op)| (op.id, i)).collect();
    let order: Result<Vec<u32>, Flaw> =
        order.iter().map(|&id| places.get(&id).copied().ok_or(Flaw::Stranger(id))).collect();
    verify_places(model, ops, &order?)
}

/// Checks an order that names operations by their places.
pub(super) fn verify_places<M: Model>(model: &M, ops: &[Operation<M::Op>], order: &[u32]) -> Result<(), Flaw> {
    let mut placed = vec![false; ops.len()];
    let mut latest_of_process: HashMap<i64, u32, FixedState> = HashMap::default();
    let mut latest: Option<&Operation<M::Op>> = None;
    for &i in order {
        let op = &ops[i as usize];
        if std::mem::replace(&mut placed[i as usize], true) {
            return Err(Flaw::Twice(op.id));
        }
        if let Some(latest) = latest.filter(|latest| op.ret.is_some_and(|ret| ret < latest.call)) {
            return Err(Flaw::Reordered(latest.id, op.id));
        }
        if latest.is_none_or(|latest| latest.call < op.call) {
            latest = Some(op);
        }
        if let Some(process) = op.process {
            let latest = latest_of_process.entry(process).or_insert(i);
            if *latest > i && op.ret.is_some() {
                return Err(Flaw::OutOfProcessOrder(ops[*latest as usize].id, op.id));
            }
            *latest = i.max(*latest);
        }
    }
    if let Some((missing, _)) = ops.iter().zip(&placed).find(|(op, placed)| !**placed && op.ret.is_some()) {
        return Err(Flaw::Missing(missing.id));
    }
    let steps: Vec<&M::Op> = order.iter().map(|&i| &ops[i as usize].op).collect();
    model.first_illegal(&steps).map_or(Ok(()), |at| Err(Flaw::Illegal(ops[order[at] as usize].id)))
}

/// Is there any order? Tries them one by one (Wing and Gong, 1993), and only leaves out what it has seen to lead nowhere; with no
/// promise of the model, and nothing shared with the searches. For the few operations of a core. None when it takes
/// more than `limit` configurations.
pub fn has_order<M: Model>(model: &M, ops: &[Operation<M::Op>], limit: usize) -> Option<bool> {
    let mut dead: std::collections::HashSet<(Vec<bool>, M::State)> = std::collections::HashSet::new();
    let mut ways = vec![(vec![false; ops.len()], model.init())];
    while let Some((placed, state)) = ways.pop() {
        let left = || (0..ops.len()).filter(|&i| !placed[i]);
        if left().all(|i| ops[i].ret.is_none()) {
            return Some(true);
        }
        if dead.len() >= limit {
            return None;
        }
        if !dead.insert((placed.clone(), state.clone())) {
            continue;
        }
        let first_return = left().filter_map(|i| ops[i].ret).min().unwrap_or(u64::MAX);
        let is_mine = |i: usize, j: usize| ops[i].process.is_some() && ops[i].process == ops[j].process;
        let waits = |i: usize| left().take_while(|&j| j < i).any(|j| ops[j].ret.is_some() && is_mine(i, j));
        for i in left().filter(|&i| ops[i].call <= first_return && !waits(i)) {
            if let Some(next) = model.step(&state, &ops[i].op) {
                let mut after = placed.clone();
                after[i] = true;
                ways.push((after, next));
            }
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::tests::history;
    use crate::model::Register;

    fn check(text: &str, order: &[u64]) -> Result<(), Flaw> {
        let ops = history(text);
        let order: Vec<OpId> = order.iter().map(|&i| OpId(i)).collect();
        verify(&Register::default(), &ops, &order)
    }

    #[test]
    fn each_rule_is_checked() {
        let text = "0 w1, 0 ok, 0 r1, 1 w2, 0 ok";
        let (w1, r1, w2) = (0, 2, 3);
        assert_eq!(check(text, &[w1, r1]), Ok(()));
        assert_eq!(check(text, &[w1, r1, w2]), Ok(()));
        assert_eq!(check(text, &[w1]), Err(Flaw::Missing(OpId(r1))));
        assert_eq!(check(text, &[w1, w2, r1]), Err(Flaw::Illegal(OpId(r1))));
        assert_eq!(check(text, &[w2, w1, r1]), Err(Flaw::Reordered(OpId(w2), OpId(w1))));
        assert_eq!(check(text, &[w1, r1, r1]), Err(Flaw::Twice(OpId(r1))));
        assert_eq!(check(text, &[w1, r1, 9]), Err(Flaw::Stranger(OpId(9))));
    }
}
