//! Cells as two columns: of what kind they are, and what they hold.
//!
//! The idea: a pass over such columns needs no branch a cell, for nobody foresees which kind comes next, so that making Arrow
//! arrays of them costs little more than to copy them. And they take nine bytes a cell rather than sixteen.

use arrow_array::{Int64Array, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer};

use crate::columns::{ListCol, ScalarCol};
use crate::event::{Cell, Mop, Span};

// The kinds. What is at least `SEQ` has no column of its own.
pub(super) const NIL: u8 = 0;
const INT: u8 = 1;
const TEXT: u8 = 2;
pub(super) const LIST: u8 = 3;
pub(super) const SET: u8 = 4;
const SEQ: u8 = 5;
const TXN: u8 = 6;

/// Cells.
#[derive(Debug, Default)]
pub(super) struct Cells {
    kinds: Vec<u8>,
    words: Vec<i64>,
}

/// The kind of a cell and what it holds as one word.
#[inline]
fn split(cell: Cell) -> (u8, i64) {
    let word = |span: Span| (u64::from(span.start) | u64::from(span.len) << 32) as i64;
    match cell {
        Cell::Nil => (NIL, 0),
        Cell::Int(n) => (INT, n),
        Cell::Text(id) => (TEXT, i64::from(id)),
        Cell::List(span) => (LIST, word(span)),
        Cell::Set(span) => (SET, word(span)),
        Cell::Seq(span) => (SEQ, word(span)),
        Cell::Txn(span) => (TXN, word(span)),
    }
}

/// The cell of a kind that holds this.
#[inline]
fn join(kind: u8, word: i64) -> Cell {
    let span = Span { start: word as u32, len: (word as u64 >> 32) as u32 };
    match kind {
        NIL => Cell::Nil,
        INT => Cell::Int(word),
        TEXT => Cell::Text(word as u32),
        LIST => Cell::List(span),
        SET => Cell::Set(span),
        SEQ => Cell::Seq(span),
        _ => Cell::Txn(span),
    }
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn get(&self, i: usize) -> Cell {
        join(self.kinds[i], self.words[i])
    }

    /// Which kinds they are of.
    pub(super) fn kinds(&self) -> &[u8] {
        &self.kinds
    }

    /// Is this cell that one?
    #[inline]
    pub(super) fn is(&self, i: usize, cell: Cell) -> bool {
        let (kind, word) = split(cell);
        (self.kinds[i], self.words[i]) == (kind, word)
    }

    #[inline]
    pub(super) fn set(&mut self, i: usize, cell: Cell) {
        (self.kinds[i], self.words[i]) = split(cell);
    }

    #[inline]
    pub(super) fn push(&mut self, cell: Cell) {
        let (kind, word) = split(cell);
        self.kinds.push(kind);
        self.words.push(word);
    }

    pub(super) fn reserve_exact(&mut self, more: usize) {
        self.kinds.reserve_exact(more);
        self.words.reserve_exact(more);
    }

    pub(super) fn clear(&mut self) {
        self.kinds.clear();
        self.words.clear();
    }

    /// Is any of them a vector or a set of something else than integers, or a transaction?
    pub(super) fn any_mixed(&self) -> bool {
        self.kinds.iter().fold(0, |most, &kind| most.max(kind)) >= SEQ
    }

    /// Which of them are of a kind, if not all are; nothing if none is.
    fn of_kind(&self, kind: u8) -> Option<Option<NullBuffer>> {
        let (any, all) = self.kinds.iter().fold((false, true), |(any, all), &k| (any | (k == kind), all & (k == kind)));
        let which = || NullBuffer::new(BooleanBuffer::collect_bool(self.len(), |i| self.kinds[i] == kind));
        any.then(|| (!all).then(which))
    }

    /// What those of a kind hold, and a zero for each of the others.
    fn words_of(&self, kind: u8) -> impl ExactSizeIterator<Item = i64> {
        self.kinds.iter().zip(&self.words).map(move |(&k, &word)| if k == kind { word } else { 0 })
    }

    /// The scalars among them.
    pub(super) fn scalars(&self) -> ScalarCol {
        ScalarCol {
            ints: self.of_kind(INT).map(|nulls| Int64Array::new(self.words_of(INT).collect::<Vec<_>>().into(), nulls)),
            texts: self.of_kind(TEXT).map(|nulls| {
                UInt32Array::new(self.words_of(TEXT).map(|word| word as u32).collect::<Vec<_>>().into(), nulls)
            }),
        }
    }

    /// Those of a kind of lists as views of an arena, which becomes their items when a chunk is packed.
    pub(super) fn lists(&self, kind: u8) -> Option<ListCol> {
        let ends = || self.words_of(kind).map(|word| (word as u32).wrapping_add((word as u64 >> 32) as u32) as i32);
        self.of_kind(kind).map(|nulls| ListCol {
            starts: self.words_of(kind).map(|word| word as i32).collect(),
            ends: ends().collect(),
            nulls,
            items: ScalarCol::default(),
        })
    }
}

/// Micro-operations.
#[derive(Debug, Default)]
pub(super) struct Mops(Vec<Row>);

/// A micro-operation, with its cells split.
#[derive(Clone, Copy, Debug)]
struct Row {
    f: u16,
    key_kind: u8,
    value_kind: u8,
    key: i64,
    value: i64,
}

impl Mops {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The code of a function.
    #[inline]
    pub(super) fn f(&self, i: usize) -> u16 {
        self.0[i].f
    }

    #[inline]
    pub(super) fn key(&self, i: usize) -> Cell {
        join(self.0[i].key_kind, self.0[i].key)
    }

    /// Is the key this one?
    #[inline]
    pub(super) fn key_is(&self, i: usize, key: Cell) -> bool {
        (self.0[i].key_kind, self.0[i].key) == split(key)
    }

    /// Is the value this one?
    #[inline]
    pub(super) fn value_is(&self, i: usize, value: Cell) -> bool {
        (self.0[i].value_kind, self.0[i].value) == split(value)
    }

    #[inline]
    pub(super) fn set_value(&mut self, i: usize, value: Cell) {
        (self.0[i].value_kind, self.0[i].value) = split(value);
    }

    /// Those of a transaction.
    pub(super) fn of(&self, txn: Span) -> impl ExactSizeIterator<Item = Mop> {
        self.0[txn.range()].iter().map(|row| Mop {
            f: u32::from(row.f),
            key: join(row.key_kind, row.key),
            value: join(row.value_kind, row.value),
        })
    }

    #[inline]
    pub(super) fn push(&mut self, f: u16, key: Cell, value: Cell) {
        let ((key_kind, key), (value_kind, value)) = (split(key), split(value));
        self.0.push(Row { f, key_kind, value_kind, key, value });
    }

    /// Appends one whose value is an integer or nil, without a branch on which it is.
    #[inline]
    pub(super) fn push_plain(&mut self, f: u16, key: Cell, int: Option<i64>) {
        let (key_kind, key) = split(key);
        let value_kind = if int.is_some() { INT } else { NIL };
        self.0.push(Row { f, key_kind, value_kind, key, value: int.unwrap_or(0) });
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Copies those of some transactions, in their order.
    pub(super) fn gather(&self, txns: impl Iterator<Item = Span>) -> Mops {
        Mops(txns.flat_map(|txn| &self.0[txn.range()]).copied().collect())
    }

    /// The codes of all functions.
    pub(super) fn functions(&self) -> Vec<u16> {
        self.0.iter().map(|row| row.f).collect()
    }

    pub(super) fn keys(&self) -> Cells {
        let rows = self.0.iter();
        Cells { kinds: rows.clone().map(|row| row.key_kind).collect(), words: rows.map(|row| row.key).collect() }
    }

    pub(super) fn values(&self) -> Cells {
        let rows = self.0.iter();
        Cells { kinds: rows.clone().map(|row| row.value_kind).collect(), words: rows.map(|row| row.value).collect() }
    }
}
