//! A set: add, remove, contains, read all. Without removals it is a grow-only set.
//!
//! Elements know nothing of each other, so that a set is divided by element, unless something reads all of it at once.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::collection::Names;
use super::persistent::Multiset;
use super::{Model, Value};
use crate::budget::Budget;
use crate::linear::Operation;
use crate::linear::monitor::{Monitored, set};

/// An operation on a set. Results are none where the operation does not say, or did not return.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SetOp {
    /// Makes it an element; the result is whether it was none before.
    Add(Value, Option<bool>),
    /// Makes it none; the result is whether it was an element before.
    Remove(Value, Option<bool>),
    /// Whether it is an element.
    Contains(Value, Option<bool>),
    /// All elements, ascending ([`SetOp::read`]).
    Read(Option<Arc<[Value]>>),
}

use SetOp::{Add, Contains, Read, Remove};

impl SetOp {
    /// A read that returned these elements, in any order. One that names an element twice is never legal.
    pub fn read(mut elements: Vec<Value>) -> SetOp {
        elements.sort_unstable();
        Read(Some(elements.into()))
    }

    /// The element that it is about; none if it is about all.
    pub fn element(&self) -> Option<Value> {
        match *self {
            Add(value, _) | Remove(value, _) | Contains(value, _) => Some(value),
            Read(_) => None,
        }
    }
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Set {
    initial: Multiset,
    names: Names,
}

impl Set {
    /// A set that has these elements at first.
    pub fn new(initial: impl IntoIterator<Item = Value>) -> Self {
        let add = |set: Multiset, value| if set.contains(value) { set } else { set.insert(value) };
        Set { initial: initial.into_iter().fold(Multiset::default(), add), names: Names::default() }
    }

    /// Speaks of the value `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }
}

/// Is the result, if it says anything, this one?
fn says(result: Option<bool>, truth: bool) -> bool {
    result.is_none_or(|result| result == truth)
}

impl Model for Set {
    type Op = SetOp;
    type State = Multiset;

    fn init(&self) -> Multiset {
        self.initial.clone()
    }

    fn step(&self, state: &Multiset, op: &SetOp) -> Option<Multiset> {
        match op {
            Add(value, changed) => {
                let there = state.contains(*value);
                says(*changed, !there).then(|| if there { state.clone() } else { state.insert(*value) })
            }
            Remove(value, changed) => {
                let rest = state.remove(*value);
                says(*changed, rest.is_some()).then(|| rest.unwrap_or_else(|| state.clone()))
            }
            Contains(value, result) => says(*result, state.contains(*value)).then(|| state.clone()),
            Read(None) => Some(state.clone()),
            Read(Some(elements)) => {
                let fits = state.len() == elements.len() && state.iter().eq(elements.iter().copied());
                fits.then(|| state.clone())
            }
        }
    }

    fn kind(&self, op: &SetOp) -> &'static str {
        match op {
            Add(..) => "add",
            Remove(..) => "remove",
            Contains(..) => "contains",
            Read(_) => "read",
        }
    }

    fn show_op(&self, op: &SetOp) -> String {
        let show = |value: &Value| self.names.show(*value);
        match op {
            Add(value, Some(false)) => format!("add of {}, which was there", show(value)),
            Add(value, Some(true)) => format!("add of {}, which was not there", show(value)),
            Add(value, None) => format!("add of {}", show(value)),
            Remove(value, Some(true)) => format!("remove of {}, which was there", show(value)),
            Remove(value, Some(false)) => format!("remove of {}, which was not there", show(value)),
            Remove(value, None) => format!("remove of {}", show(value)),
            Contains(value, Some(true)) => format!("look that found {}", show(value)),
            Contains(value, Some(false)) => format!("look that did not find {}", show(value)),
            Contains(value, None) => format!("look for {}", show(value)),
            Read(Some(elements)) => format!("read of {}", self.names.list(elements)),
            Read(None) => "read of something unknown".to_string(),
        }
    }

    fn show_state(&self, state: &Multiset) -> String {
        self.names.list(&state.iter().take(64).collect::<Vec<_>>())
    }

    fn observes(&self, op: &SetOp) -> bool {
        matches!(op, Contains(..) | Read(_) | Add(_, Some(false)) | Remove(_, Some(false)))
    }

    /// Whatever only observes. A change of an element goes together with everything about that element, and only when no
    /// operation that observes all elements is left.
    fn leave_out_safely(&self, ops: &[&SetOp], left_out: &mut [bool]) {
        let reads_stay = ops.iter().zip(left_out.iter()).any(|(op, out)| !out && matches!(op, Read(_)));
        let changed = ops.iter().zip(left_out.iter()).filter(|(op, out)| **out && !self.observes(op));
        let out: HashSet<Value, FixedState> =
            changed.filter(|_| !reads_stay).filter_map(|(op, _)| op.element()).collect();
        for (left_out, op) in left_out.iter_mut().zip(ops) {
            let with_element = op.element().is_some_and(|element| out.contains(&element));
            *left_out = with_element || (*left_out && self.observes(op));
        }
    }

    fn part(&self, op: &SetOp) -> Option<u64> {
        op.element().map(|element| element.0 as u64)
    }

    fn monitor(&self, ops: &[Operation<SetOp>], budget: &Budget) -> Monitored {
        let initial: Vec<Value> = self.initial.iter().collect();
        set::grow_set(&initial, ops, budget)
    }

    fn supported(&self, ops: &[&SetOp]) -> bool {
        let added = ops.iter().filter_map(|op| if let Add(value, _) = op { Some(*value) } else { None });
        let ever: HashSet<Value, FixedState> = added.chain(self.initial.iter()).collect();
        ops.iter().all(|op| match op {
            Add(value, Some(false)) | Remove(value, Some(true)) | Contains(value, Some(true)) => ever.contains(value),
            Read(Some(elements)) => elements.iter().all(|element| ever.contains(element)),
            _ => true,
        })
    }
}
