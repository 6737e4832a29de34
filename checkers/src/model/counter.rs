//! A counter: add, subtract, read; and an add that says what came of it.

use super::Model;

/// An operation on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterOp {
    /// Adds; negative numbers subtract.
    Add(i64),
    /// A read that returned this; none when what it returned is not known.
    Read(Option<i64>),
    /// Adds the first; the second is what it returned: the sum.
    AddAndGet(i64, i64),
    /// Adds the first; the second is what it returned: the number before.
    GetAndAdd(i64, i64),
}

use CounterOp::{Add, AddAndGet, GetAndAdd, Read};

impl CounterOp {
    fn adds(&self) -> i64 {
        match *self {
            Add(n) | AddAndGet(n, _) | GetAndAdd(n, _) => n,
            Read(_) => 0,
        }
    }
}

/// The model. Its state is wide enough for the sum of any history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    initial: i64,
}

impl Counter {
    /// A counter that begins here.
    pub fn new(initial: i64) -> Self {
        Counter { initial }
    }
}

impl Model for Counter {
    type Op = CounterOp;
    type State = i128;

    fn init(&self) -> i128 {
        self.initial.into()
    }

    fn step(&self, state: &i128, op: &CounterOp) -> Option<i128> {
        let after = state + i128::from(op.adds());
        let fits = match *op {
            Add(_) | Read(None) => true,
            Read(Some(seen)) | GetAndAdd(_, seen) => i128::from(seen) == *state,
            AddAndGet(_, seen) => i128::from(seen) == after,
        };
        fits.then_some(after)
    }

    fn kind(&self, op: &CounterOp) -> &'static str {
        match op {
            Add(_) => "add",
            Read(_) => "read",
            AddAndGet(..) => "add-and-get",
            GetAndAdd(..) => "get-and-add",
        }
    }

    fn show_op(&self, op: &CounterOp) -> String {
        match *op {
            Add(n) => format!("add of {n}"),
            Read(None) => "read of something unknown".to_string(),
            Read(Some(n)) => format!("read of {n}"),
            AddAndGet(n, sum) => format!("add of {n} that gave {sum}"),
            GetAndAdd(n, before) => format!("add of {n} that found {before}"),
        }
    }

    fn show_state(&self, state: &i128) -> String {
        state.to_string()
    }

    fn observes(&self, op: &CounterOp) -> bool {
        op.adds() == 0
    }
}
