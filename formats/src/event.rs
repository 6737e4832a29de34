//! Events as columns: what every event-shaped reader produces, and what the [builder](crate::build) pairs into
//! operations.
//!
//! A reader fills an [`EventBatch`] with a few thousand events, hands it over, clears it, and goes on. Nothing is
//! allocated per event: values are [`Cell`]s, 16 bytes each, whose variable parts lie in arenas beside them.
//!
//! ```
//! use elench_formats::event::{Cell, Event, EventBatch, EventType, Process};
//!
//! let mut batch = EventBatch::default();
//! let write = batch.name("write");
//! batch.push(Event {
//!     place: 1,
//!     index: Some(0),
//!     time: Some(5_000),
//!     kind: EventType::Invoke,
//!     process: Process::Client(3),
//!     f: Some(write),
//!     value: Cell::Int(7),
//! });
//! assert_eq!(batch.len(), 1);
//! ```

use crate::text::TextPool;
use crate::value::{Value, push_int};

/// An id in the text pool of the batch it stands in.
pub type TextId = u32;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventType {
    /// An operation begins.
    Invoke,
    /// It completed: it happened.
    Ok,
    /// It completed: it certainly did not happen.
    Fail,
    /// It completed: nobody knows. Nemesis operations both begin and end so.
    Info,
}

impl EventType {
    /// From its name, without a colon.
    pub fn from_name(name: &[u8]) -> Option<EventType> {
        match name {
            b"invoke" => Some(EventType::Invoke),
            b"ok" => Some(EventType::Ok),
            b"fail" => Some(EventType::Fail),
            b"info" => Some(EventType::Info),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            EventType::Invoke => "invoke",
            EventType::Ok => "ok",
            EventType::Fail => "fail",
            EventType::Info => "info",
        }
    }
}

/// Who did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// A client process.
    Client(i64),
    /// Something that is no client, by name: `nemesis`.
    Actor(TextId),
    /// The recorder did not say.
    Unknown,
}

/// A value, shredded. Ranges point into the arenas of the batch it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// `nil`, or nothing was said.
    Nil,
    /// A 64-bit integer.
    Int(i64),
    /// Anything that does not shred further, as canonical EDN text.
    Text(TextId),
    /// A vector of integers: a range of [`EventBatch::ints`].
    List(Span),
    /// A set of integers, sorted, no element twice: a range of [`EventBatch::ints`].
    Set(Span),
    /// Any other vector: a range of [`EventBatch::cells`].
    Seq(Span),
    /// A transaction: a range of [`EventBatch::mops`], never empty.
    Txn(Span),
}

/// A range of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// First element.
    pub start: u32,
    /// Number of elements.
    pub len: u32,
}

impl Span {
    /// As a range of indices.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// A micro-operation `[f key value]` of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mop {
    /// Its function's name: `r`, `w`, `append`.
    pub f: TextId,
    /// `Nil`, `Int` or `Text`.
    pub key: Cell,
    /// Any cell but `Txn`.
    pub value: Cell,
}

/// One event, as a reader gathers it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The line or record it came from, from 1.
    pub place: u64,
    /// Its index in the history, if recorded.
    pub index: Option<i64>,
    /// Nanoseconds since the start of the run, if recorded.
    pub time: Option<i64>,
    /// What happened.
    pub kind: EventType,
    /// Who did it.
    pub process: Process,
    /// The name of the function.
    pub f: Option<TextId>,
    /// The value.
    pub value: Cell,
}

/// A further field of an event: `:node "n1"`.
#[derive(Clone, Copy, Debug)]
pub struct Extra {
    /// Row of the event in its batch.
    pub row: u32,
    /// The field's name: a keyword without its colon, any other key as EDN text (with a `'` before it where that could be
    /// taken for a keyword's name). [`field_name`] makes it.
    pub name: TextId,
    /// Its value.
    pub value: Cell,
}

/// In `index` and `time`: nothing was recorded.
pub const NONE: i64 = i64::MIN;

/// Events as columns.
#[derive(Clone, Debug, Default)]
pub struct EventBatch {
    /// Line or record number of each.
    pub place: Vec<u64>,
    /// Index or [`NONE`].
    pub index: Vec<i64>,
    /// Nanoseconds or [`NONE`].
    pub time: Vec<i64>,
    /// What happened.
    pub kind: Vec<EventType>,
    /// Who did it.
    pub process: Vec<Process>,
    /// Function names.
    pub f: Vec<Option<TextId>>,
    /// Values.
    pub value: Vec<Cell>,
    /// Further fields, ascending by row.
    pub extras: Vec<Extra>,
    /// Did the source mark `[k v]` values as keyed (Fressian's map entries)? Then there is nothing to guess.
    pub tuples_marked: bool,
    /// Elements of `List` and `Set`.
    pub ints: Vec<i64>,
    /// Elements of `Seq`.
    pub cells: Vec<Cell>,
    /// Micro-operations of `Txn`.
    pub mops: Vec<Mop>,
    /// Names and EDN texts.
    pub texts: TextPool,
}

/// How a source writes the first element of a micro-operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MopNames {
    /// As keywords or symbols (EDN, Fressian): any name makes a micro-operation.
    Keywords,
    /// As strings (JSON): only known names and keywords do, so that a list of strings is not taken for a transaction.
    Strings,
}

/// Does a name, with a colon before it, read back as the keyword of this name?
pub fn is_keyword_name(name: &str) -> bool {
    let delimits = |c: char| c.is_whitespace() || c.is_control() || ",;\"()[]{}\\@^`~".contains(c);
    !name.is_empty() && !name.starts_with(['\'', ':', '#', '/']) && !name.ends_with('/') && !name.contains(delimits)
}

/// The name of a further field (see [`Extra::name`]) whose key is this value.
pub fn field_name(key: &Value) -> String {
    match key {
        Value::Keyword(name) if is_keyword_name(name) => name.to_string(),
        other => match other.to_edn() {
            text if is_keyword_name(&text) => format!("'{text}"),
            text => text,
        },
    }
}

/// Appends the key that a further field's name stands for, as EDN.
pub(crate) fn write_field_key(name: &str, out: &mut String) {
    if is_keyword_name(name) {
        out.push(':');
    }
    out.push_str(name.strip_prefix('\'').unwrap_or(name));
}

/// Appends a function's or an actor's name: as a keyword, or as a string where it would not read back as one.
pub(crate) fn write_name(name: &str, out: &mut String) {
    if is_keyword_name(name) {
        out.push(':');
        out.push_str(name);
    } else {
        crate::value::write_str(out, name);
    }
}

/// Names that make a JSON array a micro-operation.
pub const STRING_MOPS: [&str; 12] =
    ["r", "w", "append", "read", "write", "inc", "dec", "add", "delete", "cas", "insert", "predicate-read"];

impl EventBatch {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.kind.len()
    }

    /// No event?
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// Forgets all events, keeping memory and texts (so that ids stay good from batch to batch).
    pub fn clear_events(&mut self) {
        self.place.clear();
        self.index.clear();
        self.time.clear();
        self.kind.clear();
        self.process.clear();
        self.f.clear();
        self.value.clear();
        self.extras.clear();
        self.ints.clear();
        self.cells.clear();
        self.mops.clear();
    }

    /// Appends an event; extras pushed since the last one are its.
    #[inline]
    pub fn push(&mut self, e: Event) {
        self.place.push(e.place);
        self.index.push(e.index.unwrap_or(NONE));
        self.time.push(e.time.unwrap_or(NONE));
        self.kind.push(e.kind);
        self.process.push(e.process);
        self.f.push(e.f);
        self.value.push(e.value);
    }

    /// A further field of the event that will be pushed next.
    pub fn extra(&mut self, name: TextId, value: Cell) {
        self.extras.push(Extra { row: self.kind.len() as u32, name, value });
    }

    /// Interns a name or an EDN text.
    ///
    /// # Panics
    /// When a batch holds over 4 GiB of distinct text; readers hand batches over long before.
    pub fn name(&mut self, text: &str) -> TextId {
        self.texts.try_intern(text).expect("a batch holds less than 4 GiB of text")
    }

    /// Shreds a value.
    pub fn value(&mut self, value: &Value, names: MopNames) -> Cell {
        match value {
            Value::Nil => Cell::Nil,
            Value::Int(n) => Cell::Int(*n),
            Value::Vector(items) => self.vector(items, names),
            Value::Set(items) if items.iter().all(|v| matches!(v, Value::Int(_))) => {
                Cell::Set(self.push_ints(items.iter().filter_map(Value::as_int)))
            }
            other => Cell::Text(self.name(&other.to_edn())),
        }
    }

    fn vector(&mut self, items: &[Value], names: MopNames) -> Cell {
        if items.iter().all(|v| matches!(v, Value::Int(_))) {
            return Cell::List(self.push_ints(items.iter().filter_map(Value::as_int)));
        }
        if items.iter().all(|v| mop_name(v, names).is_some()) {
            let mut mops = Vec::with_capacity(items.len());
            for item in items {
                let (Some(f), Some([_, k, v])) = (mop_name(item, names), item.as_vector()) else { continue };
                let f = self.name(f);
                let key = self.scalar(k);
                let value = match self.value(v, names) {
                    Cell::Txn(_) => Cell::Text(self.name(&v.to_edn())),
                    cell => cell,
                };
                mops.push(Mop { f, key, value });
            }
            let start = self.mops.len() as u32;
            self.mops.extend_from_slice(&mops);
            return Cell::Txn(Span { start, len: items.len() as u32 });
        }
        let cells: Vec<Cell> = items
            .iter()
            .map(|v| match self.value(v, names) {
                Cell::Txn(_) => Cell::Text(self.name(&v.to_edn())),
                cell => cell,
            })
            .collect();
        let start = self.cells.len() as u32;
        self.cells.extend_from_slice(&cells);
        Cell::Seq(Span { start, len: cells.len() as u32 })
    }

    fn scalar(&mut self, value: &Value) -> Cell {
        match value {
            Value::Nil => Cell::Nil,
            Value::Int(n) => Cell::Int(*n),
            other => Cell::Text(self.name(&other.to_edn())),
        }
    }

    fn push_ints(&mut self, ints: impl Iterator<Item = i64>) -> Span {
        let start = self.ints.len() as u32;
        self.ints.extend(ints);
        Span { start, len: self.ints.len() as u32 - start }
    }

    /// Appends the canonical EDN text of a cell.
    pub fn write_edn(&self, cell: Cell, out: &mut String) {
        let EventBatch { ints, cells, mops, texts, .. } = self;
        Arenas { ints, cells, mops, texts, functions: texts }.write_edn(cell, out);
    }
}

/// What cells refer to.
pub(crate) struct Arenas<'a> {
    pub(crate) ints: &'a [i64],
    pub(crate) cells: &'a [Cell],
    pub(crate) mops: &'a [Mop],
    /// Of `Text` cells.
    pub(crate) texts: &'a TextPool,
    /// Of the functions of micro-operations.
    pub(crate) functions: &'a TextPool,
}

impl Arenas<'_> {
    /// Appends the canonical EDN text of a cell.
    pub(crate) fn write_edn(&self, cell: Cell, out: &mut String) {
        match cell {
            Cell::Nil => out.push_str("nil"),
            Cell::Int(n) => push_int(out, n),
            Cell::Text(id) => out.push_str(self.texts.get(id)),
            Cell::List(span) => write_ints(out, "[", &self.ints[span.range()], "]"),
            Cell::Set(span) => write_ints(out, "#{", &self.ints[span.range()], "}"),
            Cell::Seq(span) => {
                out.push('[');
                for (i, &c) in self.cells[span.range()].iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    self.write_edn(c, out);
                }
                out.push(']');
            }
            Cell::Txn(span) => {
                out.push('[');
                for (i, mop) in self.mops[span.range()].iter().enumerate() {
                    out.push_str(if i > 0 { " [:" } else { "[:" });
                    out.push_str(self.functions.get(mop.f));
                    out.push(' ');
                    self.write_edn(mop.key, out);
                    out.push(' ');
                    self.write_edn(mop.value, out);
                    out.push(']');
                }
                out.push(']');
            }
        }
    }
}

/// The name of a micro-operation that this value is: three elements, the first a name.
fn mop_name(value: &Value, names: MopNames) -> Option<&str> {
    let [first, _, _] = value.as_vector()? else { return None };
    match (first, names) {
        (Value::Keyword(name), _) => Some(name),
        (Value::Str(name), MopNames::Strings) if STRING_MOPS.contains(&&**name) => Some(name),
        _ => None,
    }
}

/// Appends integers between brackets.
pub(crate) fn write_ints(out: &mut String, open: &str, ints: &[i64], close: &str) {
    write_joined(out, ints, (open, " ", close));
}

/// Appends integers with what opens, parts and closes them.
pub(crate) fn write_joined(out: &mut String, ints: &[i64], (open, between, close): (&str, &str, &str)) {
    out.push_str(open);
    for (i, &n) in ints.iter().enumerate() {
        if i > 0 {
            out.push_str(between);
        }
        push_int(out, n);
    }
    out.push_str(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_shred_and_print_as_they_were() {
        let mut batch = EventBatch::default();
        let r = |k: i64, v: Value| Value::Vector(vec![Value::keyword("r"), k.into(), v]);
        let cases = [
            (Value::Vector(vec![1.into(), 2.into()]), "[1 2]"),
            (Value::Vector(vec![]), "[]"),
            (Value::Vector(vec![1.into(), Value::Nil]), "[1 nil]"),
            (Value::Vector(vec![2.into(), Value::Vector(vec![3.into(), 1.into()])]), "[2 [3 1]]"),
            (Value::set(vec![2.into(), 1.into()]), "#{1 2}"),
            (Value::Vector(vec![r(1, Value::Nil), r(2, Value::Vector(vec![4.into()]))]), "[[:r 1 nil] [:r 2 [4]]]"),
            (Value::map(vec![("a".into(), 1.into())]), "{\"a\" 1}"),
        ];
        for (value, text) in cases {
            let cell = batch.value(&value, MopNames::Keywords);
            let mut out = String::new();
            batch.write_edn(cell, &mut out);
            assert_eq!(out, text);
            assert_eq!(value.to_edn(), text);
        }
    }
}
