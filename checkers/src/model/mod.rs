//! What may a correct object do, one operation after another?
//!
//! A [`Model`] is a sequential specification: an initial state and a step function that says what an operation leads to,
//! or that it could not have had this result in this state. That is all a new model needs; twenty lines:
//!
//! ```
//! use elench_checkers::Model;
//!
//! /// A counter that is incremented and read.
//! #[derive(Clone)]
//! struct Counter;
//!
//! #[derive(Clone, Debug, PartialEq, Eq, Hash)]
//! enum Op {
//!     Increment,
//!     Read(u64),
//! }
//!
//! impl Model for Counter {
//!     type Op = Op;
//!     type State = u64;
//!
//!     fn init(&self) -> u64 {
//!         0
//!     }
//!
//!     fn step(&self, state: &u64, op: &Op) -> Option<u64> {
//!         match op {
//!             Op::Increment => Some(state + 1),
//!             Op::Read(seen) => (seen == state).then_some(*state),
//!         }
//!     }
//! }
//! ```
//!
//! The other methods have defaults that are always right; a model that says more about its operations is searched faster,
//! shrunk further and explained better. Each states what it promises: a promise that does not hold makes answers wrong.

use std::fmt::Debug;
use std::hash::Hash;

use crate::budget::Budget;
use crate::linear::Operation;
use crate::linear::monitor::Monitored;

pub mod any;
pub mod append;
pub mod bank;
pub mod collection;
pub mod counter;
pub mod lease;
pub mod lock;
pub mod log;
pub mod multi;
pub mod persistent;
pub mod register;
pub mod set;
pub mod stale;
pub mod table;
#[cfg(test)]
mod tests;
pub mod versioned;

pub use any::{AnyModel, AnyOp};
pub use append::{AppendList, AppendOp};
pub use bank::{Bank, BankOp};
pub use collection::{Bag, CollectionOp, FifoQueue, PriorityQueue, Stack};
pub use counter::{Counter, CounterOp};
pub use lease::{Lease, LeaseOp};
pub use lock::{Mutex, MutexOp, OwnedMutex, OwnedOp, Semaphore, SemaphoreOp};
pub use log::{Log, LogOp};
pub use multi::{MultiOp, MultiRegister};
pub use register::{Register, RegisterOp, Value};
pub use set::{Set, SetOp};
pub use stale::StaleRegister;
pub use table::{Table, TableOp, Transition};
pub use versioned::{VersionedOp, VersionedRegister};

/// A sequential specification.
pub trait Model: Clone + Send + Sync {
    /// An operation with its result. Equal operations do the same in every state.
    type Op: Clone + Eq + Hash + Debug + Send + Sync;
    /// What the object remembers.
    type State: Clone + Eq + Hash + Debug;

    /// The state before the first operation.
    fn init(&self) -> Self::State;

    /// The state after the operation, or none when it cannot happen in this state with this result.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;

    /// The place of the first operation in this order that cannot happen where it stands.
    fn first_illegal(&self, order: &[&Self::Op]) -> Option<usize> {
        let mut state = self.init();
        order.iter().position(|op| match self.step(&state, op) {
            Some(next) => {
                state = next;
                false
            }
            None => true,
        })
    }

    /// Bytes that the model itself holds by now, if that grows with what it is asked.
    fn held(&self) -> u64 {
        0
    }

    /// The kind under which an operation is counted.
    fn kind(&self, _op: &Self::Op) -> &'static str {
        "operation"
    }

    /// The operation, for a person.
    fn show_op(&self, op: &Self::Op) -> String {
        format!("{op:?}")
    }

    /// The state, for a person, as the end of a sentence "the state was …".
    fn show_state(&self, state: &Self::State) -> String {
        format!("{state:?}")
    }

    /// Promises that the operation changes no state: `step` gives none or an equal state, always.
    fn observes(&self, _op: &Self::Op) -> bool {
        false
    }

    /// Promises that the operation is possible in every state and leads to one and the same state from all of them.
    fn overwrites(&self, _op: &Self::Op) -> bool {
        false
    }

    /// Shows the model all operations before the search begins, each with the time of its return (`u64::MAX`: never known
    /// to return), so that [`settle`](Model::settle) and [`spent`](Model::spent) can look ahead.
    fn foresee(&mut self, _ops: &[(&Self::Op, u64)]) {}

    /// A simpler state that the operations which return after `now`, in any order, cannot tell from this one; none when
    /// there is no simpler one.
    fn settle(&self, _state: &Self::State, _now: u64) -> Option<Self::State> {
        None
    }

    /// Promises that the operation can be left out of every legal order in which it stands after `now` and all
    /// operations that follow it return after `now`.
    fn spent(&self, _op: &Self::Op, _now: u64) -> bool {
        false
    }

    /// States such that these operations, in any order, can do from one of them whatever they can do from any state; none
    /// when there are not a few.
    fn any_state(&self, _ops: &[&Self::Op]) -> Option<Vec<Self::State>> {
        None
    }

    /// Makes a wish to leave operations out safe: afterwards `left_out` is a set such that whenever all of `ops` have a legal
    /// order, the others have one too. It may grow (what depends on an operation goes with it) or shrink.
    fn leave_out_safely(&self, ops: &[&Self::Op], left_out: &mut [bool]) {
        for (out, op) in left_out.iter_mut().zip(ops) {
            *out &= self.observes(op);
        }
    }

    /// The part of the object that the operation is about, where the object is made of independent parts and every
    /// operation touches one (a map's keys, a set's elements): then each part is decided by itself. None when it touches more
    /// than one. An object is divided only when all its operations are.
    fn part(&self, _op: &Self::Op) -> Option<u64> {
        None
    }

    /// Decides a history in polynomial time, if it is of a kind that allows it. `ops` are sorted by invocation.
    fn monitor(&self, _ops: &[Operation<Self::Op>], _budget: &Budget) -> Monitored {
        Monitored::NotApplicable
    }

    /// Could everything that these operations observe have come from them or from the initial state, were order free? Where a
    /// model does not know, no smaller sub-history is shown than one that proves something of the whole.
    fn supported(&self, _ops: &[&Self::Op]) -> bool {
        false
    }
}
