//! Is this order a linearization?
//!
//! Four rules, checked in one pass: every completed operation stands in the order once; any other at most once, and
//! nothing else does; no operation stands after one that was invoked only when it had already returned; the model allows
//! each step. The second but last holds when no operation returned before the latest invocation among those that stand
//! before it. Knows nothing of the search.

use std::fmt;

use std::collections::HashMap;

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
            Flaw::Illegal(op) => write!(f, "the model does not allow {op} where it stands"),
        }
    }
}

/// Checks an order against the operations and the model.
pub fn verify<M: Model>(model: &M, ops: &[Operation<M::Op>], order: &[OpId]) -> Result<(), Flaw> {
    let mut unplaced: HashMap<OpId, &Operation<M::Op>> = ops.iter().map(|op| (op.id, op)).collect();
    let known = |id| ops.iter().any(|op| op.id == id);
    let mut state = model.init();
    let mut latest: Option<&Operation<M::Op>> = None;
    for &id in order {
        let Some(op) = unplaced.remove(&id) else {
            return Err(if known(id) { Flaw::Twice(id) } else { Flaw::Stranger(id) });
        };
        if let Some(latest) = latest.filter(|latest| op.ret.is_some_and(|ret| ret < latest.call)) {
            return Err(Flaw::Reordered(latest.id, id));
        }
        if latest.is_none_or(|latest| latest.call < op.call) {
            latest = Some(op);
        }
        state = model.step(&state, &op.op).ok_or(Flaw::Illegal(id))?;
    }
    match unplaced.values().filter(|op| op.ret.is_some()).map(|op| op.id).min() {
        Some(missing) => Err(Flaw::Missing(missing)),
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
