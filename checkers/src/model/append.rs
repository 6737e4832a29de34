//! A list that is appended to and read whole; with writes and compare-and-sets, also the entry of a map of texts.
//!
//! What is appended, written and read are *pieces*: a piece of a list of values is some values, a piece of a text its
//! characters ([`character`]). Reading a list of n values costs O(n) where it is as long as the list is and ends alike, else O(1);
//! states share what they have in common.
//!
//! Appends that nothing tells apart can stand in any order, and so many orders would each be a state of their own. But a model
//! that knows all operations ([`AppendList::of`]) need not tell two lists apart of which no observed one is a
//! continuation: whatever is appended to them, no read and no compare-and-set finds what it saw, until something is written. All these are
//! one state, and of the others, which are the beginnings of what was observed, there are as many as in a trie of that.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

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
    observed: Option<Arc<Beginnings>>,
}

/// What a list holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// These values.
    Values(List),
    /// The beginning of something observed, by its place in the trie.
    Beginning(u32),
    /// Something that continues in nothing observed.
    Other,
}

/// A trie of observed lists; the first node is the empty list.
#[derive(Debug, Default)]
struct Beginnings {
    next: HashMap<(u32, Value), u32, FixedState>,
    /// The node before each but the first, and the value after it.
    last: Vec<(u32, Value)>,
    /// Where whole observed lists end.
    ends: HashMap<Piece, u32, FixedState>,
}

impl Beginnings {
    fn add(&mut self, list: &Piece) {
        if self.ends.contains_key(list) {
            return;
        }
        let mut node = 0;
        for &value in list.iter() {
            let fresh = self.last.len() as u32 + 1;
            let next = *self.next.entry((node, value)).or_insert(fresh);
            if next == fresh {
                self.last.push((node, value));
            }
            node = next;
        }
        self.ends.insert(Arc::clone(list), node);
    }

    fn continued(&self, node: u32, values: &[Value]) -> Contents {
        let walk = values.iter().try_fold(node, |node, &value| self.next.get(&(node, value)).copied());
        walk.map_or(Contents::Other, Contents::Beginning)
    }

    fn values(&self, mut node: u32) -> Vec<Value> {
        let mut values = Vec::new();
        while let Some(&(before, value)) = (node as usize).checked_sub(1).and_then(|i| self.last.get(i)) {
            values.push(value);
            node = before;
        }
        values.reverse();
        values
    }
}

impl AppendList {
    /// A list that holds these at first.
    pub fn new(initial: &[Value]) -> Self {
        AppendList { initial: list(initial), names: Names::default(), observed: None }
    }

    /// Knows these operations, which are all that there will be.
    #[must_use]
    pub fn of<'a>(mut self, ops: impl IntoIterator<Item = &'a AppendOp>) -> Self {
        let mut observed = Beginnings::default();
        for op in ops {
            if let Read(Some(list)) | Cas(list, _) = op {
                observed.add(list);
            }
        }
        self.observed = Some(Arc::new(observed));
        self
    }

    fn written(&self, values: &[Value]) -> Contents {
        match &self.observed {
            Some(observed) => observed.continued(0, values),
            None => Contents::Values(list(values)),
        }
    }

    fn appended(&self, state: &Contents, piece: &[Value]) -> Contents {
        match (state, &self.observed) {
            (Contents::Values(list), _) => Contents::Values(extended(list, piece)),
            (Contents::Beginning(node), Some(observed)) => observed.continued(*node, piece),
            (Contents::Beginning(_) | Contents::Other, _) => Contents::Other,
        }
    }

    fn is(&self, state: &Contents, values: &Piece) -> bool {
        match state {
            Contents::Values(list) => is(list, values),
            Contents::Beginning(node) => self.observed.as_ref().is_some_and(|seen| seen.ends.get(values) == Some(node)),
            Contents::Other => false,
        }
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
    type State = Contents;

    fn init(&self) -> Contents {
        let mut values: Vec<Value> = self.initial.iter().collect();
        values.reverse();
        self.written(&values)
    }

    fn step(&self, state: &Contents, op: &AppendOp) -> Option<Contents> {
        match op {
            Append(piece) => Some(self.appended(state, piece)),
            Read(None) => Some(state.clone()),
            Read(Some(all)) => self.is(state, all).then(|| state.clone()),
            Write(all) => Some(self.written(all)),
            Cas(old, new) => self.is(state, old).then(|| self.written(new)),
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

    fn show_state(&self, state: &Contents) -> String {
        match (state, &self.observed) {
            (Contents::Values(list), _) => {
                let mut values: Vec<Value> = list.iter().collect();
                values.reverse();
                self.show(&values)
            }
            (Contents::Beginning(node), Some(observed)) => self.show(&observed.values(*node)),
            (Contents::Beginning(_) | Contents::Other, _) => "something that nothing read begins with".to_string(),
        }
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

    /// As often as a value is observed at once, it was appended or written.
    fn supported(&self, ops: &[&AppendOp]) -> bool {
        let mut there: HashMap<Value, usize, FixedState> = HashMap::default();
        self.initial.iter().for_each(|value| *there.entry(value).or_default() += 1);
        for op in ops {
            if let Append(piece) | Write(piece) | Cas(_, piece) = op {
                piece.iter().for_each(|&value| *there.entry(value).or_default() += 1);
            }
        }
        ops.iter().all(|op| match op {
            Read(Some(all)) | Cas(all, _) => {
                let mut seen: HashMap<Value, usize, FixedState> = HashMap::default();
                all.iter().all(|value| {
                    let seen = seen.entry(*value).or_default();
                    *seen += 1;
                    there.get(value).is_some_and(|there| *seen <= *there)
                })
            }
            _ => true,
        })
    }
}
