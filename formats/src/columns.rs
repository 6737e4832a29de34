//! The columns of a history: Arrow arrays under a few shapes that values shred into.
//!
//! A value is one of: nothing, an integer, a text (an id into the history's text pool), a list, a set. Each shape is an
//! Arrow array of its own, absent where no row needs it, so that a register history is plain integers and nothing else.

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, UInt16Array, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use crate::event::TextId;

/// A value that is not a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// `nil`, or nothing.
    Nil,
    /// An integer.
    Int(i64),
    /// Anything else, by the id of its canonical EDN text in the history's pool: equal ids are equal values.
    Text(TextId),
}

/// A column of scalars: integers and texts, of which a row has at most one.
#[derive(Clone, Debug, Default)]
pub struct ScalarCol {
    pub(crate) ints: Option<Int64Array>,
    pub(crate) texts: Option<UInt32Array>,
}

impl ScalarCol {
    /// The scalar of a row.
    #[inline]
    pub fn get(&self, i: usize) -> Scalar {
        if let Some(a) = &self.ints
            && a.is_valid(i)
        {
            return Scalar::Int(a.value(i));
        }
        match &self.texts {
            Some(a) if a.is_valid(i) => Scalar::Text(a.value(i)),
            _ => Scalar::Nil,
        }
    }

    /// All rows as integers, where no row holds anything else (nulls included).
    pub fn as_ints(&self) -> Option<&[i64]> {
        match (&self.ints, &self.texts) {
            (Some(a), None) if a.null_count() == 0 => Some(a.values()),
            _ => None,
        }
    }

    /// The integers, if any row has one.
    pub fn ints(&self) -> Option<&Int64Array> {
        self.ints.as_ref()
    }

    /// The ids of the texts, if any row has one.
    pub fn texts(&self) -> Option<&UInt32Array> {
        self.texts.as_ref()
    }

    /// Does no row hold anything?
    pub fn is_void(&self) -> bool {
        self.ints.is_none() && self.texts.is_none()
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Self {
        ScalarCol { ints: slice(&self.ints, at, len), texts: slice(&self.texts, at, len) }
    }
}

fn slice<T: ArrowPrimitiveType>(a: &Option<PrimitiveArray<T>>, at: usize, len: usize) -> Option<PrimitiveArray<T>> {
    a.as_ref().map(|a| a.slice(at, len))
}

/// Gathers a [`ScalarCol`].
///
/// While all rows are integers, that is all it holds; what else they are is noted from the first other one on.
#[derive(Debug, Default)]
pub struct ScalarBuilder {
    ints: Vec<i64>,
    /// Empty while all rows are integers; else a tag each row.
    tags: Vec<u8>,
    has_int: bool,
    has_text: bool,
}

const NIL: u8 = 0;
const INT: u8 = 1;
const TEXT: u8 = 2;

impl ScalarBuilder {
    /// With room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        ScalarBuilder { ints: Vec::with_capacity(n), ..Default::default() }
    }

    /// Appends a row.
    #[inline]
    pub fn push(&mut self, s: Scalar) {
        let (v, tag) = match s {
            Scalar::Nil => (0, NIL),
            Scalar::Int(n) => (n, INT),
            Scalar::Text(t) => (i64::from(t), TEXT),
        };
        if tag != INT && self.tags.is_empty() {
            self.tags.reserve(self.ints.capacity());
            self.tags.resize(self.ints.len(), INT);
        }
        self.ints.push(v);
        if tag != INT || !self.tags.is_empty() {
            self.tags.push(tag);
        }
        self.has_int |= tag == INT;
        self.has_text |= tag == TEXT;
    }

    /// Appends rows of integers.
    pub fn push_ints(&mut self, ints: &[i64]) {
        self.ints.extend_from_slice(ints);
        if !self.tags.is_empty() {
            self.tags.resize(self.ints.len(), INT);
        }
        self.has_int |= !ints.is_empty();
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.ints.len()
    }

    /// No row yet?
    pub fn is_empty(&self) -> bool {
        self.ints.is_empty()
    }

    /// The column.
    pub fn finish(self) -> ScalarCol {
        if self.tags.is_empty() {
            return ScalarCol { ints: self.has_int.then(|| self.ints.into()), texts: None };
        }
        let nulls = |tag: u8| validity(self.tags.len(), |i| self.tags[i] == tag);
        let texts = self.has_text.then(|| {
            let id = |(&v, &t): (&i64, &u8)| if t == TEXT { v as u32 } else { 0 };
            let ids: Vec<u32> = self.ints.iter().zip(&self.tags).map(id).collect();
            UInt32Array::new(ids.into(), nulls(TEXT))
        });
        let ints = self.has_int.then(|| {
            let nulls = nulls(INT);
            let mut values = self.ints;
            if self.has_text {
                values.iter_mut().zip(&self.tags).for_each(|(v, &t)| *v = if t == INT { *v } else { 0 });
            }
            Int64Array::new(values.into(), nulls)
        });
        ScalarCol { ints, texts }
    }
}

/// A column of lists of scalars; a row may have none.
///
/// Rows are views, as in Arrow's `ListView`: several may show the same elements, or one a prefix of another's, so that a
/// list which is read again and again while it grows is held once. Arrow's plain layout is the case in which each view
/// begins where the last one ended, and becomes views without copying, as both bounds are parts of its one buffer.
#[derive(Clone, Debug)]
pub struct ListCol {
    /// Where each row's elements begin; as many as there are rows.
    pub(crate) starts: ScalarBuffer<i32>,
    /// Where they end.
    pub(crate) ends: ScalarBuffer<i32>,
    pub(crate) nulls: Option<NullBuffer>,
    pub(crate) items: ScalarCol,
}

impl ListCol {
    /// From Arrow's layout: each row begins where the last one ended.
    pub(crate) fn flat(offsets: &OffsetBuffer<i32>, nulls: Option<NullBuffer>, items: ScalarCol) -> Self {
        let rows = offsets.len() - 1;
        let bounds: &ScalarBuffer<i32> = offsets.inner();
        ListCol { starts: bounds.slice(0, rows), ends: bounds.slice(1, rows), nulls, items }
    }

    /// The list of a row.
    #[inline]
    pub fn get(&self, i: usize) -> Option<ListRef<'_>> {
        if self.nulls.as_ref().is_some_and(|n| n.is_null(i)) {
            return None;
        }
        let (start, end) = (self.starts[i] as usize, self.ends[i] as usize);
        Some(ListRef { items: &self.items, start, len: end - start })
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.starts.len()
    }

    /// The elements that rows show, and maybe others between them: first, and number.
    pub(crate) fn extent(&self) -> (usize, usize) {
        let views = || self.starts.iter().zip(self.ends.iter()).filter(|(start, end)| start < end);
        let first = views().map(|(&start, _)| start).min().unwrap_or(0);
        let last = views().map(|(_, &end)| end).max().unwrap_or(0);
        (first as usize, (last - first) as usize)
    }

    /// Arrow's layout: offsets from zero, and the elements of all rows one after the other. `None` when those are more
    /// than 2^31. Copies elements only where views overlap or leave gaps.
    pub(crate) fn flattened(&self) -> Option<(OffsetBuffer<i32>, ScalarCol)> {
        let lengths = || (0..self.rows()).map(|i| self.get(i).map_or(0, |l| l.len()));
        let total: usize = lengths().sum();
        i32::try_from(total).ok()?;
        let offsets = OffsetBuffer::from_lengths(lengths());
        let (first, extent) = self.extent();
        let in_order = extent == total
            && (0..self.rows())
                .all(|i| self.get(i).is_none_or(|l| l.len == 0 || l.start - first == offsets[i] as usize));
        if in_order {
            return Some((offsets, self.items.slice(first, total)));
        }
        let mut items = ScalarBuilder::with_capacity(total);
        for list in (0..self.rows()).filter_map(|i| self.get(i)) {
            match list.as_ints() {
                Some(ints) => items.push_ints(ints),
                None => list.iter().for_each(|s| items.push(s)),
            }
        }
        Some((offsets, items.finish()))
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Self {
        ListCol {
            starts: self.starts.slice(at, len),
            ends: self.ends.slice(at, len),
            nulls: self.nulls.as_ref().map(|n| n.slice(at, len)),
            items: self.items.clone(),
        }
    }
}

/// A list in a column.
#[derive(Clone, Copy, Debug)]
pub struct ListRef<'a> {
    items: &'a ScalarCol,
    start: usize,
    len: usize,
}

impl<'a> ListRef<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No element?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An element.
    pub fn get(&self, i: usize) -> Scalar {
        debug_assert!(i < self.len);
        self.items.get(self.start + i)
    }

    /// All elements as a slice of integers, where the whole column holds nothing else.
    pub fn as_ints(&self) -> Option<&'a [i64]> {
        if self.len == 0 {
            return Some(&[]);
        }
        self.items.as_ints().map(|a| &a[self.start..self.start + self.len])
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Scalar> + 'a {
        let (items, start) = (self.items, self.start);
        (0..self.len).map(move |i| items.get(start + i))
    }
}

/// Two lists are equal when their elements are.
impl PartialEq for ListRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

/// Gathers a [`ListCol`].
#[derive(Debug)]
pub struct ListBuilder {
    offsets: Vec<i32>,
    valid: Vec<bool>,
    items: ScalarBuilder,
    any: bool,
}

impl Default for ListBuilder {
    fn default() -> Self {
        ListBuilder { offsets: vec![0], valid: Vec::new(), items: ScalarBuilder::default(), any: false }
    }
}

impl ListBuilder {
    /// With room for so many rows and elements.
    pub fn with_capacity(rows: usize, elements: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        ListBuilder {
            offsets,
            valid: Vec::with_capacity(rows),
            items: ScalarBuilder::with_capacity(elements),
            any: false,
        }
    }

    /// Appends an element to the list that [`end`](Self::end) closes.
    #[inline]
    pub fn item(&mut self, s: Scalar) {
        self.items.push(s);
    }

    /// Appends integers to the list that [`end`](Self::end) closes.
    pub fn ints(&mut self, ints: &[i64]) {
        self.items.push_ints(ints);
    }

    /// Closes a row that has a list.
    pub fn end(&mut self) {
        self.any = true;
        self.close(true);
    }

    /// Appends a row without one.
    pub fn none(&mut self) {
        self.close(false);
    }

    fn close(&mut self, valid: bool) {
        // Chunks hold 65,536 rows and are refused by the reader long before 2^31 elements.
        self.offsets.push(self.items.len().min(i32::MAX as usize) as i32);
        self.valid.push(valid);
    }

    /// The column, if any row has a list.
    pub fn finish(self) -> Option<ListCol> {
        self.any.then(|| {
            let nulls = if self.valid.iter().all(|&v| v) { None } else { Some(NullBuffer::from(self.valid)) };
            ListCol::flat(&OffsetBuffer::new(ScalarBuffer::from(self.offsets)), nulls, self.items.finish())
        })
    }
}

/// A column of values of any shape; a row has at most one.
#[derive(Clone, Debug, Default)]
pub struct ValueCol {
    /// Integers and texts.
    pub(crate) scalars: ScalarCol,
    /// Vectors.
    pub(crate) lists: Option<ListCol>,
    /// Sets of integers, sorted.
    pub(crate) sets: Option<ListCol>,
}

/// A value in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// `nil`, or nothing.
    Nil,
    /// An integer.
    Int(i64),
    /// Anything that does not shred further, by the id of its EDN text.
    Text(TextId),
    /// A vector.
    List(ListRef<'a>),
    /// A set of integers, ascending.
    Set(ListRef<'a>),
}

impl<'a> ValueRef<'a> {
    /// The scalar that this is, if it is one.
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            ValueRef::Nil => Some(Scalar::Nil),
            ValueRef::Int(n) => Some(Scalar::Int(n)),
            ValueRef::Text(t) => Some(Scalar::Text(t)),
            ValueRef::List(_) | ValueRef::Set(_) => None,
        }
    }

    /// The list or set that this is.
    pub fn elements(self) -> Option<ListRef<'a>> {
        match self {
            ValueRef::List(l) | ValueRef::Set(l) => Some(l),
            _ => None,
        }
    }

    /// Is there anything?
    pub fn is_nil(self) -> bool {
        matches!(self, ValueRef::Nil)
    }
}

impl From<Scalar> for ValueRef<'_> {
    fn from(s: Scalar) -> Self {
        match s {
            Scalar::Nil => ValueRef::Nil,
            Scalar::Int(n) => ValueRef::Int(n),
            Scalar::Text(t) => ValueRef::Text(t),
        }
    }
}

impl ValueCol {
    /// The value of a row.
    #[inline]
    pub fn get(&self, i: usize) -> ValueRef<'_> {
        let s = self.scalars.get(i);
        if s != Scalar::Nil {
            return s.into();
        }
        if let Some(l) = self.lists.as_ref().and_then(|l| l.get(i)) {
            return ValueRef::List(l);
        }
        if let Some(l) = self.sets.as_ref().and_then(|l| l.get(i)) {
            return ValueRef::Set(l);
        }
        ValueRef::Nil
    }

    /// The rows that are integers or texts.
    pub fn scalars(&self) -> &ScalarCol {
        &self.scalars
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Self {
        ValueCol {
            scalars: self.scalars.slice(at, len),
            lists: self.lists.as_ref().map(|l| l.slice(at, len)),
            sets: self.sets.as_ref().map(|l| l.slice(at, len)),
        }
    }
}

/// Gathers a [`ValueCol`].
#[derive(Debug, Default)]
pub struct ValueBuilder {
    scalars: ScalarBuilder,
    lists: ListBuilder,
    sets: ListBuilder,
}

impl ValueBuilder {
    /// With room for so many rows, and so many elements of lists.
    pub fn with_capacity(rows: usize, elements: usize) -> Self {
        ValueBuilder {
            scalars: ScalarBuilder::with_capacity(rows),
            lists: ListBuilder::with_capacity(rows, elements),
            sets: ListBuilder::default(),
        }
    }

    /// Appends a scalar.
    #[inline]
    pub fn scalar(&mut self, s: Scalar) {
        self.scalars.push(s);
        self.lists.none();
        self.sets.none();
    }

    /// The list under construction: push its items, then call [`end_list`](Self::end_list).
    pub fn list(&mut self) -> &mut ListBuilder {
        &mut self.lists
    }

    /// The set under construction: push its items, then call [`end_set`](Self::end_set).
    pub fn set(&mut self) -> &mut ListBuilder {
        &mut self.sets
    }

    /// Closes a row that is a list.
    pub fn end_list(&mut self) {
        self.scalars.push(Scalar::Nil);
        self.lists.end();
        self.sets.none();
    }

    /// Closes a row that is a set.
    pub fn end_set(&mut self) {
        self.scalars.push(Scalar::Nil);
        self.lists.none();
        self.sets.end();
    }

    /// Appends a value from another column.
    pub fn value(&mut self, v: ValueRef<'_>) {
        match v {
            ValueRef::Nil => self.scalar(Scalar::Nil),
            ValueRef::Int(n) => self.scalar(Scalar::Int(n)),
            ValueRef::Text(t) => self.scalar(Scalar::Text(t)),
            ValueRef::List(l) => {
                l.iter().for_each(|s| self.lists.item(s));
                self.end_list();
            }
            ValueRef::Set(l) => {
                l.iter().for_each(|s| self.sets.item(s));
                self.end_set();
            }
        }
    }

    /// The column.
    pub fn finish(self) -> ValueCol {
        ValueCol { scalars: self.scalars.finish(), lists: self.lists.finish(), sets: self.sets.finish() }
    }
}

/// Transactions: lists of micro-operations as flat columns. A row may have none.
#[derive(Clone, Debug)]
pub struct TxnCol {
    pub(crate) offsets: OffsetBuffer<i32>,
    pub(crate) nulls: Option<NullBuffer>,
    /// Codes of function names.
    pub(crate) f: UInt16Array,
    pub(crate) key: ScalarCol,
    pub(crate) value: ValueCol,
    /// False where a read says nothing, as its transaction is not known to have committed.
    pub(crate) known: BooleanArray,
}

impl TxnCol {
    /// The transaction of a row.
    #[inline]
    pub fn get(&self, i: usize) -> Option<TxnRef<'_>> {
        if self.nulls.as_ref().is_some_and(|n| n.is_null(i)) {
            return None;
        }
        let (start, end) = (self.offsets[i] as usize, self.offsets[i + 1] as usize);
        Some(TxnRef { col: self, start, len: end - start })
    }

    /// Codes of the functions of all micro-operations, as flat as [`offsets`](Self::offsets) says.
    pub fn functions(&self) -> &[u16] {
        self.f.values()
    }

    /// Where each row's micro-operations begin and end in the flat columns.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// Keys of all micro-operations.
    pub fn keys(&self) -> &ScalarCol {
        &self.key
    }

    /// Values of all micro-operations.
    pub fn values(&self) -> &ValueCol {
        &self.value
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Self {
        TxnCol {
            offsets: self.offsets.slice(at, len),
            nulls: self.nulls.as_ref().map(|n| n.slice(at, len)),
            ..self.clone()
        }
    }
}

/// A transaction in a column.
#[derive(Clone, Copy, Debug)]
pub struct TxnRef<'a> {
    col: &'a TxnCol,
    start: usize,
    len: usize,
}

/// A micro-operation in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MopRef<'a> {
    /// Code of its function's name.
    pub f: u16,
    /// Its key.
    pub key: Scalar,
    /// What it wrote or read.
    pub value: ValueRef<'a>,
    /// Is the value what happened? False for a read of a transaction that is not known to have committed.
    pub known: bool,
}

impl<'a> TxnRef<'a> {
    /// Number of micro-operations.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No micro-operation?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A micro-operation.
    pub fn get(&self, i: usize) -> MopRef<'a> {
        let (col, at) = (self.col, self.start + i);
        MopRef { f: col.f.value(at), key: col.key.get(at), value: col.value.get(at), known: col.known.value(at) }
    }

    /// The micro-operations in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = MopRef<'a>> + use<'a> {
        let this = *self;
        (0..self.len).map(move |i| this.get(i))
    }
}

/// Further fields of each row: names and EDN texts.
#[derive(Clone, Debug)]
pub struct ExtraCol {
    pub(crate) offsets: OffsetBuffer<i32>,
    /// Ids of names.
    pub(crate) names: UInt32Array,
    /// Ids of EDN texts.
    pub(crate) values: UInt32Array,
}

impl ExtraCol {
    /// Names and values of a row, as ids of the name and text pools.
    pub fn get(&self, i: usize) -> impl ExactSizeIterator<Item = (TextId, TextId)> + '_ {
        (self.offsets[i] as usize..self.offsets[i + 1] as usize).map(|j| (self.names.value(j), self.values.value(j)))
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Self {
        ExtraCol { offsets: self.offsets.slice(at, len), ..self.clone() }
    }
}

/// Gathers an [`ExtraCol`].
#[derive(Debug)]
pub struct ExtraBuilder {
    offsets: Vec<i32>,
    names: Vec<u32>,
    values: Vec<u32>,
}

impl Default for ExtraBuilder {
    fn default() -> Self {
        ExtraBuilder { offsets: vec![0], names: Vec::new(), values: Vec::new() }
    }
}

impl ExtraBuilder {
    /// Appends a field to the row that [`end`](Self::end) closes.
    pub fn field(&mut self, name: TextId, value: TextId) {
        self.names.push(name);
        self.values.push(value);
    }

    /// Closes a row.
    pub fn end(&mut self) {
        self.offsets.push(self.names.len().min(i32::MAX as usize) as i32);
    }

    /// The column, if any row has a field.
    pub fn finish(self) -> Option<ExtraCol> {
        (!self.names.is_empty()).then(|| ExtraCol {
            offsets: OffsetBuffer::new(self.offsets.into()),
            names: self.names.into(),
            values: self.values.into(),
        })
    }
}

/// An optional primitive column from values and a sentinel that stands for nothing.
pub(crate) fn optional<T: ArrowPrimitiveType>(values: Vec<T::Native>, none: T::Native) -> Option<PrimitiveArray<T>>
where
    T::Native: PartialEq,
{
    let missing = values.iter().filter(|&&v| v == none).count();
    if missing == values.len() {
        return None;
    }
    let nulls = if missing > 0 { validity(values.len(), |i| values[i] != none) } else { None };
    Some(PrimitiveArray::new(values.into(), nulls))
}

/// Which of so many rows hold something, if not all do.
pub(crate) fn validity(rows: usize, holds: impl FnMut(usize) -> bool) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, holds));
    (nulls.null_count() > 0).then_some(nulls)
}

/// Bytes that an array's own part of its buffers takes.
pub(crate) fn array_bytes(array: &dyn Array) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or(0)
}

/// The same array behind a pointer.
pub(crate) fn boxed<A: Array + 'static>(a: A) -> ArrayRef {
    std::sync::Arc::new(a)
}
