//! A model that is a table: states, and what leads from which to which.
//!
//! An operation may fit several transitions from one state: because the table is not deterministic, or because its
//! result is not known. So the model's state is the set of the table's states in which the object may be; an operation leads to all
//! that its transitions lead to, and is illegal where there are none.

use std::sync::Arc;

use super::Model;

/// A transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state before, by its place among the states; none: any.
    pub from: Option<u32>,
    /// The operation.
    pub f: Box<str>,
    /// What it was invoked with, as EDN text; none: anything.
    pub input: Option<Box<str>>,
    /// What it returned, as EDN text; none: anything.
    pub output: Option<Box<str>>,
    /// The state after; none: the same.
    pub to: Option<u32>,
}

/// An operation as a table sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableOp {
    /// Its name.
    pub f: Box<str>,
    /// What it was invoked with, as EDN text.
    pub input: Box<str>,
    /// What it returned, as EDN text; none when that is not known.
    pub output: Option<Box<str>>,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Table {
    states: Arc<[Box<str>]>,
    initial: u32,
    transitions: Arc<[Transition]>,
}

impl Table {
    /// A table of states, by name, the place of the first one, and transitions. None when a place is none.
    pub fn new(states: Vec<Box<str>>, initial: u32, transitions: Vec<Transition>) -> Option<Self> {
        let is_state = |place: u32| (place as usize) < states.len();
        let all = transitions.iter().flat_map(|t| [t.from, t.to]).flatten().all(is_state);
        (all && is_state(initial)).then(|| Table { states: states.into(), initial, transitions: transitions.into() })
    }

    /// Does any transition bear this name?
    pub fn has(&self, f: &str) -> bool {
        self.transitions.iter().any(|t| &*t.f == f)
    }

    fn fitting<'a>(&'a self, op: &'a TableOp) -> impl Iterator<Item = &'a Transition> {
        self.transitions.iter().filter(|t| {
            t.f == op.f
                && t.input.as_ref().is_none_or(|input| *input == op.input)
                && (t.output.is_none() || op.output.is_none() || t.output == op.output)
        })
    }
}

impl Model for Table {
    type Op = TableOp;
    type State = Box<[u32]>;

    fn init(&self) -> Box<[u32]> {
        Box::new([self.initial])
    }

    fn step(&self, state: &Box<[u32]>, op: &TableOp) -> Option<Box<[u32]>> {
        let next = |t: &Transition| {
            let (from, to) = (t.from, t.to);
            let from = state.iter().filter(move |&&at| from.is_none_or(|from| from == at));
            from.map(move |&at| to.unwrap_or(at)).collect::<Vec<u32>>()
        };
        let mut reached: Vec<u32> = self.fitting(op).flat_map(next).collect();
        reached.sort_unstable();
        reached.dedup();
        (!reached.is_empty()).then(|| reached.into())
    }

    fn show_op(&self, op: &TableOp) -> String {
        let output = op.output.as_ref().map_or("something unknown", |output| output);
        format!("{} {} that gave {output}", op.f, op.input)
    }

    fn show_state(&self, state: &Box<[u32]>) -> String {
        let names: Vec<&str> = state.iter().map(|&at| &*self.states[at as usize]).collect();
        names.join(" or ")
    }
}
