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
    let mut state = model.init();
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
        state = model.step(&state, &op.op).ok_or(Flaw::Illegal(op.id))?;
    }
    match ops.iter().zip(&placed).find(|(op, placed)| !**placed && op.ret.is_some()) {
        Some((missing, _)) => Err(Flaw::Missing(missing.id)),
        None => Ok(()),
    }
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
