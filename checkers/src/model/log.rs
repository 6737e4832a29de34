//! A log: an append gives an offset, reads are at an offset or over a range.
//!
//! Offsets count entries: the first is 0 and the next one more. (Logs whose offsets leave gaps are for the checker `log`, which is not
//! about linearizability.) A read at an offset costs O(entries after it).

use std::collections::HashSet;
use std::sync::Arc;

use super::append::Piece;
use super::collection::Names;
use super::persistent::List;
use super::{Model, Value};

/// An operation on a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogOp {
    /// Puts a value at the end; with the offset that it was given, where that is known.
    Append(Value, Option<u64>),
    /// A read of the entry at an offset; none when there was no entry.
    Read(u64, Option<Value>),
    /// A read from an offset, up to another and not including it, or to the end: exactly these were there.
    Range(u64, Option<u64>, Piece),
    /// A read from an offset of as many entries as were given out: these were the first, and where there are none, the log
    /// ended before.
    Batch(u64, Piece),
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Log {
    initial: List,
    names: Names,
}

impl Log {
    /// A log that holds these at first.
    pub fn new(initial: &[Value]) -> Self {
        let push = |list: List, value: &Value| list.push(*value);
        Log { initial: initial.iter().fold(List::default(), push), names: Names::default() }
    }

    /// Speaks of the value `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }

    /// What an operation says was at which offset.
    fn says(op: &LogOp) -> (u64, &[Value]) {
        match op {
            LogOp::Read(at, Some(value)) => (*at, std::slice::from_ref(value)),
            LogOp::Range(from, _, values) | LogOp::Batch(from, values) => (*from, values),
            _ => (0, &[]),
        }
    }
}

/// Do these values stand from this offset on?
fn holds(list: &List, from: u64, values: &[Value]) -> bool {
    let len = list.len() as u64;
    let Some(end) = from.checked_add(values.len() as u64).filter(|end| *end <= len) else { return values.is_empty() };
    list.iter().skip((len - end) as usize).take(values.len()).eq(values.iter().rev().copied())
}

impl Model for Log {
    type Op = LogOp;
    type State = List;

    fn init(&self) -> List {
        self.initial.clone()
    }

    fn step(&self, state: &List, op: &LogOp) -> Option<List> {
        let len = state.len() as u64;
        let fits = match op {
            LogOp::Append(value, offset) => {
                return offset.is_none_or(|offset| offset == len).then(|| state.push(*value));
            }
            LogOp::Read(at, None) => len <= *at,
            LogOp::Read(at, Some(value)) => holds(state, *at, &[*value]),
            LogOp::Range(from, to, values) => {
                let there = to.unwrap_or(len).min(len).saturating_sub(*from);
                values.len() as u64 == there && holds(state, *from, values)
            }
            LogOp::Batch(from, values) => {
                if values.is_empty() {
                    len <= *from
                } else {
                    holds(state, *from, values)
                }
            }
        };
        fits.then(|| state.clone())
    }

    fn kind(&self, op: &LogOp) -> &'static str {
        if matches!(op, LogOp::Append(..)) { "append" } else { "read" }
    }

    fn show_op(&self, op: &LogOp) -> String {
        let names = &self.names;
        match op {
            LogOp::Append(value, None) => format!("append of {}", names.show(*value)),
            LogOp::Append(value, Some(offset)) => format!("append of {} at {offset}", names.show(*value)),
            LogOp::Read(at, None) => format!("read of nothing at {at}"),
            LogOp::Read(at, Some(value)) => format!("read of {} at {at}", names.show(*value)),
            LogOp::Range(from, None, values) => format!("read of {} from {from} on", names.list(values)),
            LogOp::Range(from, Some(to), values) => format!("read of {} from {from} up to {to}", names.list(values)),
            LogOp::Batch(from, values) => format!("read of {} at {from} and after", names.list(values)),
        }
    }

    fn show_state(&self, state: &List) -> String {
        let last: Vec<Value> = state.iter().take(4).collect();
        let last: Vec<String> = last.iter().rev().map(|&value| self.names.show(value)).collect();
        format!("{} entries, the last of them {}", state.len(), last.join(" "))
    }

    fn observes(&self, op: &LogOp) -> bool {
        !matches!(op, LogOp::Append(..))
    }

    /// Values that were read were appended, and no offset lies beyond the number of entries.
    fn supported(&self, ops: &[&LogOp]) -> bool {
        let appended = ops.iter().filter_map(|op| if let LogOp::Append(value, _) = op { Some(*value) } else { None });
        let there: Vec<Value> = self.initial.iter().chain(appended).collect();
        let len = there.len() as u64;
        let there: HashSet<Value> = there.into_iter().collect();
        ops.iter().all(|op| {
            let (from, values) = Log::says(op);
            let end = if let LogOp::Append(_, Some(offset)) = op {
                offset.saturating_add(1)
            } else {
                from.saturating_add(values.len() as u64)
            };
            (values.is_empty() || end <= len) && values.iter().all(|value| there.contains(value))
        })
    }
}
