//! A register, with or without compare-and-set.
//!
//! The state is the value last written. Reads, failed compare-and-sets that saw a mismatch, and a compare-and-set of a
//! value to itself only observe; a write overwrites. A value is *observed* by reads of it and by compare-and-sets
//! from it; once the last of these has returned, the register holding that value is no different from its holding any
//! other such value, so the model settles all of them into one ([`Value::UNSEEN`]).

use std::sync::Arc;

use std::collections::{HashMap, HashSet};

use super::Model;
use crate::budget::Budget;
use crate::linear::Operation;
use crate::linear::monitor::{self, Monitored};

/// What a register holds: a number that stands for a value of the history (the value itself when it is an integer, or
/// an interner's id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub i64);

impl Value {
    /// Nothing was ever written.
    pub const NIL: Value = Value(i64::MIN);
    /// Some value that nobody will observe. Never in an operation.
    pub const UNSEEN: Value = Value(i64::MIN + 1);
}

/// An operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// A read that returned this; none when what it returned is not known.
    Read(Option<Value>),
    /// A write.
    Write(Value),
    /// A compare-and-set from the first to the second that succeeded (or whose outcome is unknown).
    Cas(Value, Value),
    /// A compare-and-set that is known to have found something other than this.
    CasMismatch(Value),
}

use RegisterOp::{Cas, CasMismatch, Read, Write};

impl RegisterOp {
    /// The value that the operation must find.
    pub(crate) fn needs(&self) -> Option<Value> {
        match *self {
            Read(value) => value,
            Cas(old, _) => Some(old),
            Write(_) | CasMismatch(_) => None,
        }
    }

    /// The value that it tells from all others.
    fn tells(&self) -> Option<Value> {
        if let CasMismatch(old) = *self { Some(old) } else { self.needs() }
    }

    /// The value that it leaves, if it changes anything.
    pub(crate) fn leaves(&self) -> Option<Value> {
        match *self {
            Write(value) => Some(value),
            Cas(old, new) if old != new => Some(new),
            Cas(..) | Read(_) | CasMismatch(_) => None,
        }
    }
}

/// The model: `register` and `cas-register` at once.
#[derive(Clone, Debug)]
pub struct Register {
    initial: Value,
    names: Option<Arc<[Box<str>]>>,
    /// When the last operation returns that tells a value from others.
    last_observed: HashMap<Value, u64, foldhash::fast::FixedState>,
    mismatches: bool,
}

impl Default for Register {
    fn default() -> Self {
        Register::new(Value::NIL)
    }
}

impl Register {
    /// A register that holds this at first.
    pub fn new(initial: Value) -> Self {
        Register { initial, names: None, last_observed: HashMap::default(), mismatches: false }
    }

    /// Speaks of the value `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Some(names);
        self
    }

    fn show(&self, value: Value) -> String {
        if value == Value::NIL {
            return "nil".to_string();
        }
        let name = self.names.as_ref().and_then(|names| names.get(usize::try_from(value.0).ok()?));
        name.map_or_else(|| value.0.to_string(), |name| name.to_string())
    }

    #[inline]
    fn unseen_after(&self, value: Value, now: u64) -> bool {
        self.last_observed.get(&value).is_none_or(|&last| last <= now)
    }
}

impl Model for Register {
    type Op = RegisterOp;
    type State = Value;

    fn init(&self) -> Value {
        self.initial
    }

    fn step(&self, state: &Value, op: &RegisterOp) -> Option<Value> {
        match *op {
            Read(None) => Some(*state),
            Read(Some(value)) => (value == *state).then_some(*state),
            Write(value) => Some(value),
            Cas(old, new) => (old == *state).then_some(new),
            CasMismatch(old) => (old != *state).then_some(*state),
        }
    }

    fn kind(&self, op: &RegisterOp) -> &'static str {
        match op {
            Read(_) => "read",
            Write(_) => "write",
            Cas(..) | CasMismatch(_) => "cas",
        }
    }

    fn show_op(&self, op: &RegisterOp) -> String {
        match *op {
            Read(None) => "read of something unknown".to_string(),
            Read(Some(value)) => format!("read of {}", self.show(value)),
            Write(value) => format!("write of {}", self.show(value)),
            Cas(old, new) => format!("cas from {} to {}", self.show(old), self.show(new)),
            CasMismatch(old) => format!("cas that did not find {}", self.show(old)),
        }
    }

    fn show_state(&self, state: &Value) -> String {
        match *state {
            Value::UNSEEN => "a value that nobody reads any more".to_string(),
            value => self.show(value),
        }
    }

    fn observes(&self, op: &RegisterOp) -> bool {
        op.leaves().is_none()
    }

    fn overwrites(&self, op: &RegisterOp) -> bool {
        matches!(op, Write(_))
    }

    fn foresee(&mut self, ops: &[(&RegisterOp, u64)]) {
        self.last_observed.clear();
        self.mismatches = false;
        for &(op, ret) in ops {
            self.mismatches |= matches!(op, CasMismatch(_));
            // An operation of unknown outcome that only observes says nothing: the search leaves it out.
            let counts = ret != u64::MAX || !self.observes(op);
            if let Some(value) = op.tells().filter(|_| counts) {
                let last = self.last_observed.entry(value).or_default();
                *last = ret.max(*last);
            }
        }
    }

    #[inline]
    fn settle(&self, state: &Value, now: u64) -> Option<Value> {
        (*state != Value::UNSEEN && self.unseen_after(*state, now)).then_some(Value::UNSEEN)
    }

    /// What it leaves is observed by nobody, so whatever changes the register next is a write, which does not care. Not
    /// so when there are mismatches: any value but one satisfies those.
    fn spent(&self, op: &RegisterOp, now: u64) -> bool {
        !self.mismatches && op.leaves().is_none_or(|value| self.unseen_after(value, now))
    }

    fn any_state(&self, ops: &[&RegisterOp]) -> Option<Vec<Value>> {
        let told_apart: HashSet<Value> = ops.iter().filter_map(|op| op.tells()).collect();
        Some(told_apart.into_iter().chain([Value::UNSEEN]).collect())
    }

    /// A change goes only together with everything that observes what it left; then, in a legal order of all, what any
    /// remaining operation observed was left by a remaining one, with only removed operations between. A mismatch does not
    /// say what it observed, so while one is left, only observers go.
    fn leave_out_safely(&self, ops: &[&RegisterOp], left_out: &mut [bool]) {
        if ops.iter().zip(left_out.iter()).any(|(op, out)| !out && matches!(op, CasMismatch(_))) {
            for (out, op) in left_out.iter_mut().zip(ops) {
                *out &= self.observes(op);
            }
            return;
        }
        let mut observers: HashMap<Value, Vec<usize>> = HashMap::new();
        for (i, op) in ops.iter().enumerate() {
            if let Some(value) = op.needs() {
                observers.entry(value).or_default().push(i);
            }
        }
        let mut todo: Vec<usize> = (0..ops.len()).filter(|&i| left_out[i]).collect();
        while let Some(i) = todo.pop() {
            let dependents = ops[i].leaves().and_then(|value| observers.remove(&value));
            for j in dependents.into_iter().flatten() {
                if !std::mem::replace(&mut left_out[j], true) {
                    todo.push(j);
                }
            }
        }
    }

    fn monitor(&self, ops: &[Operation<RegisterOp>], budget: &Budget) -> Monitored {
        monitor::register::monitor(self.initial, ops, budget)
    }

    fn supported(&self, ops: &[&RegisterOp]) -> bool {
        let mut left: HashSet<Value> = ops.iter().filter_map(|op| op.leaves()).collect();
        left.insert(self.initial);
        ops.iter().all(|op| op.needs().is_none_or(|value| left.contains(&value)))
    }
}
