//! A list that is appended to and read whole; with writes and compare-and-sets, also the entry of a map of texts.
//!
//! What is appended, written and read are *pieces*: a piece of a list of values is some values, a piece of a text its
//! characters ([`character`]). Reading a list of n values costs O(n) where it is as long as the list is and ends alike, else O(1);
//! states share what they have in common.

use std::collections::HashSet;
use std::sync::Arc;

use super::collection::Names;
use super::persistent::List;
use super::{Model, Value};

/// Some values one after another.
pub type Piece = Arc<[Value]>;

/// An operation on a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AppendOp {
    /// Puts values at the end.
    Append(Piece),
    /// A read of everything; none when what it returned is not known.
    Read(Option<Piece>),
    /// Replaces everything.
    Write(Piece),
    /// Replaces everything, if it was the first, by the second.
    Cas(Piece, Piece),
}

use AppendOp::{Append, Cas, Read, Write};

/// Where the values begin that stand for characters; no others are as small but for [`Value::NIL`] and [`Value::UNSEEN`].
const CHARACTERS: i64 = i64::MIN + 16;
/// The least value that stands for no character and is not special.
pub(crate) const LEAST_VALUE: i64 = CHARACTERS + 0x11_0000;

/// Characters that a person is shown at most.
const SHOWN: usize = 80;

/// The value that stands for a character of a text.
pub fn character(c: char) -> Value {
    Value(CHARACTERS + i64::from(u32::from(c)))
}

fn as_character(value: Value) -> Option<char> {
    value.0.checked_sub(CHARACTERS).and_then(|code| char::from_u32(u32::try_from(code).ok()?))
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct AppendList {
    initial: List,
    names: Names,
}

impl AppendList {
    /// A list that holds these at first.
    pub fn new(initial: &[Value]) -> Self {
        AppendList { initial: list(initial), names: Names::default() }
    }

    /// Speaks of the value `n` as `names[n]`.
    #[must_use]
    pub fn with_names(mut self, names: Arc<[Box<str>]>) -> Self {
        self.names = Names(Some(names));
        self
    }

    fn show(&self, values: &[Value]) -> String {
        let text: Option<String> = values.iter().map(|&value| as_character(value)).collect();
        match text.filter(|text| !text.is_empty()) {
            Some(text) if values.len() > SHOWN => {
                let end: String = text.chars().skip(values.len() - SHOWN).collect();
                format!("{} characters that end in {end:?}", values.len())
            }
            Some(text) => format!("{text:?}"),
            None => self.names.list(values),
        }
    }
}

fn list(values: &[Value]) -> List {
    extended(&List::default(), values)
}

fn extended(list: &List, values: &[Value]) -> List {
    values.iter().fold(list.clone(), |list, &value| list.push(value))
}

/// Are these the values of the list?
fn is(list: &List, values: &[Value]) -> bool {
    list.len() == values.len() && list.iter().eq(values.iter().rev().copied())
}

impl Model for AppendList {
    type Op = AppendOp;
    type State = List;

    fn init(&self) -> List {
        self.initial.clone()
    }

    fn step(&self, state: &List, op: &AppendOp) -> Option<List> {
        match op {
            Append(piece) => Some(extended(state, piece)),
            Read(None) => Some(state.clone()),
            Read(Some(all)) => is(state, all).then(|| state.clone()),
            Write(all) => Some(list(all)),
            Cas(old, new) => is(state, old).then(|| list(new)),
        }
    }

    fn kind(&self, op: &AppendOp) -> &'static str {
        match op {
            Append(_) => "append",
            Read(_) => "read",
            Write(_) => "write",
            Cas(..) => "cas",
        }
    }

    fn show_op(&self, op: &AppendOp) -> String {
        match op {
            Append(piece) => match **piece {
                [value] if as_character(value).is_none() => format!("append of {}", self.names.show(value)),
                _ => format!("append of {}", self.show(piece)),
            },
            Read(None) => "read of something unknown".to_string(),
            Read(Some(all)) => format!("read of {}", self.show(all)),
            Write(all) => format!("write of {}", self.show(all)),
            Cas(old, new) => format!("cas from {} to {}", self.show(old), self.show(new)),
        }
    }

    fn show_state(&self, state: &List) -> String {
        let mut values: Vec<Value> = state.iter().collect();
        values.reverse();
        self.show(&values)
    }

    fn observes(&self, op: &AppendOp) -> bool {
        match op {
            Append(piece) => piece.is_empty(),
            Read(_) => true,
            Cas(old, new) => old == new,
            Write(_) => false,
        }
    }

    fn overwrites(&self, op: &AppendOp) -> bool {
        matches!(op, Write(_))
    }

    fn supported(&self, ops: &[&AppendOp]) -> bool {
        let mut there: HashSet<Value> = self.initial.iter().collect();
        for op in ops {
            if let Append(piece) | Write(piece) | Cas(_, piece) = op {
                there.extend(piece.iter());
            }
        }
        ops.iter().all(|op| match op {
            Read(Some(all)) | Cas(all, _) => all.iter().all(|value| there.contains(value)),
            _ => true,
        })
    }
}
