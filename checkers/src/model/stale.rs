//! A register that may answer with any of the last few values: k-atomicity.
//!
//! A history is k-atomic (Aiyer, Alvisi and Bazzi, 2005) when it has an order that respects real time in which every read
//! returns one of the last k values written; 1-atomic is linearizable. The state is those values, the newest last, with the
//! initial one as if written first. As for a register, values that nobody observes any more are all the same, but they still
//! take their places. There is no compare-and-set: which of the values it would compare is not defined.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Model, Register, RegisterOp, Value};
use RegisterOp::{Cas, CasMismatch, Read, Write};

/// The model. Operations are a register's, without compare-and-sets.
#[derive(Clone, Debug)]
pub struct StaleRegister {
    register: Register,
    k: usize,
    last_observed: HashMap<Value, u64, foldhash::fast::FixedState>,
}

impl StaleRegister {
    /// A register like this one whose reads may return any of the last `k` values; `k` is at least 1.
    pub fn new(register: Register, k: usize) -> Self {
        StaleRegister { register, k: k.max(1), last_observed: HashMap::default() }
    }

    fn unseen_after(&self, value: Value, now: u64) -> bool {
        value == Value::UNSEEN || self.last_observed.get(&value).is_none_or(|&last| last <= now)
    }
}

impl Model for StaleRegister {
    type Op = RegisterOp;
    type State = Arc<[Value]>;

    fn init(&self) -> Arc<[Value]> {
        Arc::new([self.register.init()])
    }

    fn step(&self, state: &Arc<[Value]>, op: &RegisterOp) -> Option<Arc<[Value]>> {
        match *op {
            Read(None) => Some(Arc::clone(state)),
            Read(Some(value)) => state.contains(&value).then(|| Arc::clone(state)),
            Write(value) => {
                let kept = &state[(state.len() + 1).saturating_sub(self.k)..];
                Some(kept.iter().copied().chain([value]).collect())
            }
            Cas(..) | CasMismatch(_) => None,
        }
    }

    fn kind(&self, op: &RegisterOp) -> &'static str {
        self.register.kind(op)
    }

    fn show_op(&self, op: &RegisterOp) -> String {
        self.register.show_op(op)
    }

    fn show_state(&self, state: &Arc<[Value]>) -> String {
        let values: Vec<String> = state.iter().map(|value| self.register.show_state(value)).collect();
        format!("[{}], the newest last", values.join(", "))
    }

    fn observes(&self, op: &RegisterOp) -> bool {
        self.register.observes(op)
    }

    fn foresee(&mut self, ops: &[(&RegisterOp, u64)]) {
        self.last_observed.clear();
        for &(op, ret) in ops {
            if let (Read(Some(value)), true) = (*op, ret != u64::MAX) {
                let last = self.last_observed.entry(value).or_default();
                *last = ret.max(*last);
            }
        }
    }

    fn settle(&self, state: &Arc<[Value]>, now: u64) -> Option<Arc<[Value]>> {
        let settles = |value: &Value| *value != Value::UNSEEN && self.unseen_after(*value, now);
        let settle = |value: &Value| if settles(value) { Value::UNSEEN } else { *value };
        state.iter().any(settles).then(|| state.iter().map(settle).collect())
    }

    /// A write that nobody observes only takes a place from older values.
    fn spent(&self, op: &RegisterOp, now: u64) -> bool {
        match *op {
            Write(value) => self.unseen_after(value, now),
            _ => true,
        }
    }

    /// As for a register: a write goes together with everything that observes its value, and takes no place then.
    fn leave_out_safely(&self, ops: &[&RegisterOp], left_out: &mut [bool]) {
        self.register.leave_out_safely(ops, left_out);
    }

    fn supported(&self, ops: &[&RegisterOp]) -> bool {
        self.register.supported(ops)
    }
}
