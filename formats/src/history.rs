//! The one form in memory that every checker reads: columns over operations, never changed once built.
//!
//! A row is an operation: its invocation and, if there is one, its completion. Rows are ordered by invocation. Columns
//! are cut into chunks of up to [`CHUNK_ROWS`] rows, each an Arrow array; the texts of all chunks lie in one pool, so
//! that an id means one value everywhere. Cloning and slicing share the arrays.
//!
//! Memory: about 60 bytes an operation of a register history, plus 8 bytes a list element.

use std::collections::BinaryHeap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, Int64Array, UInt16Array, UInt32Array, UInt64Array};
use arrow_buffer::ScalarBuffer;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::columns::{ExtraCol, Scalar, ScalarCol, TxnCol, TxnRef, ValueCol, ValueRef};
use crate::event::{TextId, write_ints};
use crate::faults::FaultWindow;
use crate::text::TextPool;
use crate::value::push_int;

/// Rows of a chunk that the builder makes.
pub const CHUNK_ROWS: usize = 1 << 16;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// It happened.
    Ok = 0,
    /// It certainly did not happen.
    Fail = 1,
    /// Nobody knows: the client was told so.
    Info = 2,
    /// Nobody knows: it never completed.
    Pending = 3,
}

impl Status {
    /// All of them, in the order of their codes.
    pub const ALL: [Status; 4] = [Status::Ok, Status::Fail, Status::Info, Status::Pending];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Fail => "fail",
            Status::Info => "info",
            Status::Pending => "pending",
        }
    }

    /// From its code.
    pub fn from_code(code: u8) -> Option<Status> {
        Status::ALL.get(code as usize).copied()
    }

    /// Info or pending: it may have happened, at any time from its invocation on, or never.
    pub fn is_unknown(self) -> bool {
        matches!(self, Status::Info | Status::Pending)
    }
}

/// Where keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// There are none (but for those of micro-operations).
    #[default]
    None,
    /// From `[k v]` values, as `jepsen.independent` writes them.
    Tuple,
    /// From a field of their own.
    Field,
}

impl KeyForm {
    const ALL: [KeyForm; 3] = [KeyForm::None, KeyForm::Tuple, KeyForm::Field];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            KeyForm::None => "none",
            KeyForm::Tuple => "tuple",
            KeyForm::Field => "field",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<KeyForm> {
        KeyForm::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// What is known of a history as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Name of the format that it was recorded in, through whatever conversions it went since.
    pub format: String,
    /// Name of the columnar format that it was read from just now, if it was one.
    pub container: Option<String>,
    /// Where keys come from.
    pub keys: KeyForm,
    /// Why keys were lifted or left, in a clause; empty when there was nothing to decide.
    pub key_reason: String,
    /// Is the order of events that of real time? Not so for the academic checkers' formats, which order only within a
    /// session.
    pub real_time: bool,
    /// How the order of events was found.
    pub order: Order,
    /// Was `fault_epoch` written by the recorder rather than derived from the fault timeline?
    pub epochs_recorded: bool,
    /// What `--lenient` repaired, a line each kind of repair.
    pub repairs: Vec<String>,
    /// Why its order or its keys cannot be relied on; empty for almost all histories.
    pub doubts: Vec<String>,
    /// Why it is only a part of what was recorded, if it is: a torn file read up to its last whole block.
    pub partial: Option<String>,
    /// What the reader has to say besides, such as a torn file read up to its last whole block.
    pub notes: Vec<String>,
}

/// How the order of events was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// By recorded indices.
    Index,
    /// There were no indices; the order of the source was kept.
    #[default]
    Source,
    /// There were no indices; by time, invocations before completions where times are equal.
    Time,
}

impl Order {
    const ALL: [Order; 3] = [Order::Index, Order::Source, Order::Time];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Index => "index",
            Order::Source => "source",
            Order::Time => "time",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Order> {
        Order::ALL.into_iter().find(|o| o.name() == name)
    }
}

/// Operations as columns, ordered by invocation.
#[derive(Clone, Debug)]
pub struct History {
    shared: Arc<Shared>,
    chunks: Arc<[Chunk]>,
    /// First row of each chunk, and the number of rows.
    starts: Arc<[usize]>,
    keys: Arc<OnceLock<KeyIndex>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    /// Names of functions, those of micro-operations and actors included: codes fit 16 bits.
    pub(crate) functions: TextPool,
    /// Names of nodes, fault epochs and further fields.
    pub(crate) names: TextPool,
    pub(crate) texts: TextPool,
    pub(crate) meta: Meta,
    pub(crate) faults: Vec<FaultWindow>,
}

/// A run of rows, a column each field.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub(crate) index: UInt64Array,
    pub(crate) complete_index: UInt64Array,
    pub(crate) process: Int64Array,
    pub(crate) actor: Option<UInt16Array>,
    pub(crate) status: ScalarBuffer<u8>,
    pub(crate) f: UInt16Array,
    pub(crate) invoke_time: Option<Int64Array>,
    pub(crate) complete_time: Option<Int64Array>,
    pub(crate) key: ScalarCol,
    pub(crate) input: ValueCol,
    pub(crate) output: ValueCol,
    pub(crate) txn: Option<TxnCol>,
    pub(crate) error: Option<UInt32Array>,
    pub(crate) node: Option<UInt32Array>,
    pub(crate) fault_epoch: Option<UInt32Array>,
    pub(crate) extra: Option<ExtraCol>,
    pub(crate) invoke_extra: Option<ExtraCol>,
}

impl Chunk {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// No row?
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Event indices of the invocations.
    pub fn index(&self) -> &[u64] {
        self.index.values()
    }

    /// Event indices of the completions; null where an operation never completed.
    pub fn complete_index(&self) -> &UInt64Array {
        &self.complete_index
    }

    /// Client processes; null for what is no client.
    pub fn process(&self) -> &Int64Array {
        &self.process
    }

    /// Codes of [`Status`].
    pub fn status(&self) -> &[u8] {
        &self.status
    }

    /// Codes of function names.
    pub fn f(&self) -> &UInt16Array {
        &self.f
    }

    /// The code of a row's function name.
    #[inline]
    pub fn f_code(&self, i: usize) -> Option<u16> {
        self.f.is_valid(i).then(|| self.f.value(i))
    }

    /// Keys.
    pub fn key(&self) -> &ScalarCol {
        &self.key
    }

    /// What was sent. For a transaction whose invocation follows from its micro-operations: nothing.
    pub fn input(&self) -> &ValueCol {
        &self.input
    }

    /// What came back. For a transaction whose completion is its micro-operations: nothing.
    pub fn output(&self) -> &ValueCol {
        &self.output
    }

    /// Transactions.
    pub fn txn(&self) -> Option<&TxnCol> {
        self.txn.as_ref()
    }

    /// Nanoseconds of the invocations, where recorded.
    pub fn invoke_time(&self) -> Option<&Int64Array> {
        self.invoke_time.as_ref()
    }

    /// Nanoseconds of the completions, where recorded.
    pub fn complete_time(&self) -> Option<&Int64Array> {
        self.complete_time.as_ref()
    }

    /// Is the row an operation of a client?
    #[inline]
    pub fn is_client(&self, i: usize) -> bool {
        self.actor.as_ref().is_none_or(|a| a.is_null(i))
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Chunk {
        fn part<A: Clone>(a: &Option<A>, cut: impl Fn(&A) -> A) -> Option<A> {
            a.as_ref().map(cut)
        }
        Chunk {
            index: self.index.slice(at, len),
            complete_index: self.complete_index.slice(at, len),
            process: self.process.slice(at, len),
            actor: part(&self.actor, |a| a.slice(at, len)),
            status: self.status.slice(at, len),
            f: self.f.slice(at, len),
            invoke_time: part(&self.invoke_time, |a| a.slice(at, len)),
            complete_time: part(&self.complete_time, |a| a.slice(at, len)),
            key: self.key.slice(at, len),
            input: self.input.slice(at, len),
            output: self.output.slice(at, len),
            txn: part(&self.txn, |a| a.slice(at, len)),
            error: part(&self.error, |a| a.slice(at, len)),
            node: part(&self.node, |a| a.slice(at, len)),
            fault_epoch: part(&self.fault_epoch, |a| a.slice(at, len)),
            extra: part(&self.extra, |a| a.slice(at, len)),
            invoke_extra: part(&self.invoke_extra, |a| a.slice(at, len)),
        }
    }
}

impl History {
    pub(crate) fn new(shared: Shared, chunks: Vec<Chunk>) -> History {
        History::of(Arc::new(shared), chunks)
    }

    /// Notes the columnar format that it was read from. For a history that nobody shares yet.
    pub(crate) fn came_in(mut self, container: &str) -> History {
        if let Some(shared) = Arc::get_mut(&mut self.shared)
            && shared.meta.format != container
        {
            shared.meta.container = Some(container.into());
        }
        self
    }

    fn of(shared: Arc<Shared>, chunks: Vec<Chunk>) -> History {
        let mut starts = Vec::with_capacity(chunks.len() + 1);
        let mut rows = 0;
        for c in &chunks {
            starts.push(rows);
            rows += c.len();
        }
        starts.push(rows);
        History { shared, chunks: chunks.into(), starts: starts.into(), keys: Arc::default() }
    }

    /// Number of operations, those of the nemesis included.
    pub fn len(&self) -> usize {
        self.starts[self.chunks.len()]
    }

    /// No operation?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of the whole.
    pub fn meta(&self) -> &Meta {
        &self.shared.meta
    }

    /// The fault timeline, by beginning.
    pub fn faults(&self) -> &[FaultWindow] {
        &self.shared.faults
    }

    /// Names of functions and actors, by code.
    pub fn functions(&self) -> &TextPool {
        &self.shared.functions
    }

    /// Names of nodes, fault epochs and further fields.
    pub fn names(&self) -> &TextPool {
        &self.shared.names
    }

    /// EDN texts of values.
    pub fn texts(&self) -> &TextPool {
        &self.shared.texts
    }

    /// The code of a function's name, if any operation bears it.
    pub fn f_code(&self, name: &str) -> Option<u16> {
        self.shared.functions.find(name).and_then(|id| u16::try_from(id).ok())
    }

    /// The columns, run by run.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// An operation by its row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn op(&self, row: usize) -> OpRef<'_> {
        assert!(row < self.len(), "row {row} of a history of {}", self.len());
        let c = self.starts.partition_point(|&s| s <= row) - 1;
        OpRef { shared: &self.shared, chunk: &self.chunks[c], i: row - self.starts[c] }
    }

    /// Operations by their rows; those that ascend are found without a search.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn ops_at<'a>(&'a self, rows: impl Iterator<Item = usize> + 'a) -> impl Iterator<Item = OpRef<'a>> + 'a {
        let mut c = 0;
        rows.map(move |row| {
            let starts = &self.starts[c..];
            if !(starts[0] <= row && starts.get(1).is_some_and(|&next| row < next)) {
                assert!(row < self.len(), "row {row} of a history of {}", self.len());
                c = self.starts.partition_point(|&s| s <= row) - 1;
            }
            OpRef { shared: &self.shared, chunk: &self.chunks[c], i: row - self.starts[c] }
        })
    }

    /// All operations in order.
    pub fn ops(&self) -> impl Iterator<Item = OpRef<'_>> + '_ {
        self.chunks.iter().flat_map(|chunk| (0..chunk.len()).map(|i| OpRef { shared: &self.shared, chunk, i }))
    }

    /// All events in order. Memory: the operations open at once.
    pub fn events(&self) -> Events<'_> {
        Events { ops: Box::new(self.ops()), ahead: None, open: BinaryHeap::new() }
    }

    /// The operations of clients in order.
    pub fn clients(&self) -> impl Iterator<Item = OpRef<'_>> + '_ {
        self.ops().filter(|op| op.is_client())
    }

    /// The row of the operation whose invocation bears this index. O(log n).
    pub fn row_of(&self, index: u64) -> Option<usize> {
        let c = self.chunks.partition_point(|c| c.index().first().is_some_and(|&i| i <= index)).checked_sub(1)?;
        self.chunks[c].index().binary_search(&index).ok().map(|i| self.starts[c] + i)
    }

    /// A run of rows, sharing the columns. The fault timeline stays whole.
    ///
    /// # Panics
    /// When the range leaves the history.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> History {
        assert!(rows.start <= rows.end && rows.end <= self.len(), "rows {rows:?} of a history of {}", self.len());
        let chunks = self
            .chunks
            .iter()
            .zip(self.starts.iter())
            .filter_map(|(chunk, &start)| {
                let from = rows.start.max(start);
                let to = rows.end.min(start + chunk.len());
                (from < to).then(|| chunk.slice(from - start, to - from))
            })
            .collect();
        History::of(Arc::clone(&self.shared), chunks)
    }

    /// Operations of clients by outcome, indexed by the code of [`Status`].
    pub fn counts(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        for c in self.chunks.iter() {
            for (i, &s) in c.status().iter().enumerate() {
                counts[s as usize & 3] += u64::from(c.is_client(i));
            }
        }
        counts
    }

    /// Client operations by key, made at the first call and kept.
    pub fn key_index(&self) -> &KeyIndex {
        self.keys.get_or_init(|| KeyIndex::build(self))
    }

    /// Appends the canonical EDN text of a scalar of this history.
    pub fn write_scalar(&self, s: Scalar, out: &mut String) {
        self.shared.write_scalar(s, out);
    }

    /// Appends the canonical EDN text of a value of this history.
    pub fn write_value(&self, v: ValueRef<'_>, out: &mut String) {
        self.shared.write_value(v, out);
    }

    /// Does a raw value stand for an explicit, bare nil?
    pub(crate) fn is_bare_nil(&self, v: ValueRef<'_>) -> bool {
        matches!(v, ValueRef::Text(t) if self.shared.texts.get(t) == BARE_NIL)
    }

    /// These rows alone, in order, sharing the texts: a sub-history. O(rows chosen).
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn select(&self, mut rows: Vec<usize>) -> History {
        rows.sort_unstable();
        rows.dedup();
        let at: Vec<(u32, u32)> = rows
            .into_iter()
            .map(|row| {
                assert!(row < self.len(), "row {row} of a history of {}", self.len());
                let c = self.starts.partition_point(|&s| s <= row) - 1;
                (c as u32, (row - self.starts[c]) as u32)
            })
            .collect();
        let chunks = at.chunks(CHUNK_ROWS).map(|part| crate::order::gather(&self.chunks, part)).collect();
        History::of(Arc::clone(&self.shared), chunks)
    }

    /// Bytes that the columns take, texts included.
    pub fn memory(&self) -> usize {
        let columns: usize = self.chunks.iter().map(Chunk::memory).sum();
        columns + self.shared.texts.text_bytes() + self.shared.names.text_bytes()
    }
}

impl Chunk {
    fn memory(&self) -> usize {
        crate::columnar::chunk_bytes(self)
    }
}

impl Shared {
    pub(crate) fn write_scalar(&self, s: Scalar, out: &mut String) {
        match s {
            Scalar::Nil => out.push_str("nil"),
            Scalar::Int(n) => push_int(out, n),
            Scalar::Text(t) => out.push_str(self.texts.get(t)),
        }
    }

    pub(crate) fn write_value(&self, v: ValueRef<'_>, out: &mut String) {
        let (open, list, close) = match v {
            ValueRef::List(l) => ("[", l, "]"),
            ValueRef::Set(l) => ("#{", l, "}"),
            ValueRef::Nil => return out.push_str("nil"),
            ValueRef::Int(n) => return push_int(out, n),
            ValueRef::Text(t) => return out.push_str(self.texts.get(t)),
        };
        if let Some(ints) = list.as_ints() {
            return write_ints(out, open, ints, close);
        }
        out.push_str(open);
        for (i, s) in list.iter().enumerate() {
            if i > 0 {
                out.push(' ');
            }
            self.write_scalar(s, out);
        }
        out.push_str(close);
    }
}

/// One operation, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct OpRef<'a> {
    shared: &'a Shared,
    chunk: &'a Chunk,
    i: usize,
}

impl<'a> OpRef<'a> {
    /// Its id: the event index of its invocation.
    #[inline]
    pub fn index(&self) -> u64 {
        self.chunk.index.value(self.i)
    }

    /// The event index of its completion; `None` if it never completed.
    #[inline]
    pub fn complete_index(&self) -> Option<u64> {
        let a = &self.chunk.complete_index;
        a.is_valid(self.i).then(|| a.value(self.i))
    }

    /// The client process, if a client did it and the recorder said which.
    #[inline]
    pub fn process(&self) -> Option<i64> {
        let a = &self.chunk.process;
        a.is_valid(self.i).then(|| a.value(self.i))
    }

    /// Who did it, if it was no client: `nemesis`.
    pub fn actor(&self) -> Option<&'a str> {
        let a = self.chunk.actor.as_ref()?;
        a.is_valid(self.i).then(|| self.shared.functions.get(u32::from(a.value(self.i))))
    }

    /// Did a client do it?
    #[inline]
    pub fn is_client(&self) -> bool {
        self.chunk.is_client(self.i)
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_code(self.chunk.status[self.i]).unwrap_or(Status::Pending)
    }

    /// The code of its function's name.
    #[inline]
    pub fn f_code(&self) -> Option<u16> {
        let a = &self.chunk.f;
        a.is_valid(self.i).then(|| a.value(self.i))
    }

    /// Its function's name.
    #[inline]
    pub fn f(&self) -> Option<&'a str> {
        self.f_code().map(|c| self.shared.functions.get(u32::from(c)))
    }

    /// Nanoseconds of its invocation.
    #[inline]
    pub fn invoke_time(&self) -> Option<i64> {
        let a = self.chunk.invoke_time.as_ref()?;
        a.is_valid(self.i).then(|| a.value(self.i))
    }

    /// Nanoseconds of its completion.
    #[inline]
    pub fn complete_time(&self) -> Option<i64> {
        let a = self.chunk.complete_time.as_ref()?;
        a.is_valid(self.i).then(|| a.value(self.i))
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> Scalar {
        self.chunk.key.get(self.i)
    }

    /// What it sent, without its key. Nothing for a transaction: see [`txn`](Self::txn).
    #[inline]
    pub fn input(&self) -> ValueRef<'a> {
        self.plain(&self.chunk.input)
    }

    /// What it received, without its key. Nothing for a transaction: see [`txn`](Self::txn).
    #[inline]
    pub fn output(&self) -> ValueRef<'a> {
        self.plain(&self.chunk.output)
    }

    /// What stands in the column of inputs: nothing where it follows from the transaction.
    pub(crate) fn raw_input(&self) -> ValueRef<'a> {
        self.chunk.input.get(self.i)
    }

    /// What stands in the column of outputs: nothing where it is the transaction.
    pub(crate) fn raw_output(&self) -> ValueRef<'a> {
        self.chunk.output.get(self.i)
    }

    #[inline]
    fn plain(&self, col: &'a ValueCol) -> ValueRef<'a> {
        match col.get(self.i) {
            ValueRef::Text(t) if self.shared.texts.get(t) == BARE_NIL => ValueRef::Nil,
            v => v,
        }
    }

    /// Its micro-operations, with what reads returned where that is known.
    #[inline]
    pub fn txn(&self) -> Option<TxnRef<'a>> {
        self.chunk.txn.as_ref()?.get(self.i)
    }

    /// The EDN text of an id that one of its values bears.
    pub fn text(&self, id: TextId) -> &'a str {
        self.shared.texts.get(id)
    }

    /// The name of a micro-operation's function.
    pub fn mop_name(&self, f: u16) -> &'a str {
        self.shared.functions.get(u32::from(f))
    }

    /// The EDN text of its error.
    pub fn error(&self) -> Option<&'a str> {
        let a = self.chunk.error.as_ref()?;
        a.is_valid(self.i).then(|| self.shared.texts.get(a.value(self.i)))
    }

    /// The node that it talked to.
    pub fn node(&self) -> Option<&'a str> {
        let a = self.chunk.node.as_ref()?;
        a.is_valid(self.i).then(|| self.shared.names.get(a.value(self.i)))
    }

    /// The fault window that was active.
    pub fn fault_epoch(&self) -> Option<&'a str> {
        let a = self.chunk.fault_epoch.as_ref()?;
        a.is_valid(self.i).then(|| self.shared.names.get(a.value(self.i)))
    }

    /// The id of an EDN text, if some value or key of this history bears it.
    pub fn find_text(&self, text: &str) -> Option<TextId> {
        self.shared.texts.find(text)
    }

    /// A further field by name, as EDN text: the completion's, else the invocation's.
    #[inline]
    pub fn extra(&self, name: &str) -> Option<&'a str> {
        if self.chunk.extra.is_none() && self.chunk.invoke_extra.is_none() {
            return None;
        }
        let id = self.shared.names.find(name)?;
        let of = |col: &'a Option<ExtraCol>| col.as_ref()?.get(self.i).find(|&(n, _)| n == id).map(|(_, v)| v);
        of(&self.chunk.extra).or_else(|| of(&self.chunk.invoke_extra)).map(|v| self.shared.texts.get(v))
    }

    /// Further fields of the completion (of the operation, where the source does not tell them apart): names, EDN texts.
    pub fn extras(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.fields(&self.chunk.extra).filter(|(name, _)| *name != ASIDE)
    }

    /// Further fields of the invocation.
    pub fn invoke_extras(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.fields(&self.chunk.invoke_extra)
    }

    fn fields(&self, col: &'a Option<ExtraCol>) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let (shared, i) = (self.shared, self.i);
        col.iter().flat_map(move |c| c.get(i)).map(move |(n, v)| (shared.names.get(n), shared.texts.get(v)))
    }

    /// Appends the canonical EDN text of a value of its history.
    pub fn write_value(&self, v: ValueRef<'_>, out: &mut String) {
        self.shared.write_value(v, out);
    }

    /// Appends the EDN text of the value that its invocation bore: `[k v]` if keys came so, the transaction if it is one.
    pub fn write_invoke_value(&self, out: &mut String) {
        match (self.chunk.input.get(self.i), self.txn()) {
            (ValueRef::Nil, Some(txn)) => self.write_txn(txn, true, out),
            (v, _) => self.write_keyed(v, out),
        }
    }

    /// Appends the EDN text of the value that its completion bore.
    pub fn write_complete_value(&self, out: &mut String) {
        if let Some(aside) = self.aside() {
            return out.push_str(aside);
        }
        match (self.chunk.output.get(self.i), self.txn()) {
            (ValueRef::Nil, Some(txn)) => self.write_txn(txn, false, out),
            (v, _) => self.write_keyed(v, out),
        }
    }

    /// The EDN text of a completion's value that was kept aside, for it is none of this operation's key.
    pub(crate) fn aside(&self) -> Option<&'a str> {
        match self.raw_output() {
            ValueRef::Text(t) if self.shared.texts.get(t) == BARE_NIL => self.extra(ASIDE),
            _ => None,
        }
    }

    fn write_keyed(&self, v: ValueRef<'a>, out: &mut String) {
        let bare = matches!(v, ValueRef::Text(t) if self.shared.texts.get(t) == BARE_NIL);
        if self.shared.meta.keys != KeyForm::Tuple || bare || self.key() == Scalar::Nil {
            return self.shared.write_value(v, out);
        }
        out.push('[');
        self.shared.write_scalar(self.key(), out);
        out.push(' ');
        self.shared.write_value(v, out);
        out.push(']');
    }

    fn write_txn(&self, txn: TxnRef<'a>, invocation: bool, out: &mut String) {
        out.push('[');
        for (i, mop) in txn.iter().enumerate() {
            let name = self.mop_name(mop.f);
            out.push_str(if i > 0 { " [:" } else { "[:" });
            out.push_str(name);
            out.push(' ');
            self.shared.write_scalar(mop.key, out);
            out.push(' ');
            let value = if invocation && is_read(name) { ValueRef::Nil } else { mop.value };
            self.shared.write_value(value, out);
            out.push(']');
        }
        out.push(']');
    }
}

/// In `input` and `output`: the value was an explicit, bare nil where a keyed value or a transaction would be expected.
/// No other value has this text, for nil itself is no text.
pub(crate) const BARE_NIL: &str = "nil";

/// Name of the further field that holds the value of a completion that is not what its operation's key or transaction
/// would have it be. No event has another field of this name.
pub(crate) const ASIDE: &str = "value";

/// Is a micro-operation of this name a read, which its invocation bears without a value?
pub fn is_read(name: &str) -> bool {
    matches!(name, "r" | "read")
}

/// Which end of an operation an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its beginning.
    Invocation,
    /// Its end.
    Completion,
}

/// The events of a history in order.
pub struct Events<'a> {
    ops: Box<dyn Iterator<Item = OpRef<'a>> + 'a>,
    ahead: Option<OpRef<'a>>,
    open: BinaryHeap<Completing<'a>>,
}

struct Completing<'a> {
    at: u64,
    op: OpRef<'a>,
}

impl Ord for Completing<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Completing<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Completing<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Completing<'_> {}

impl<'a> Iterator for Events<'a> {
    type Item = (OpRef<'a>, Side);

    fn next(&mut self) -> Option<Self::Item> {
        self.ahead = self.ahead.take().or_else(|| self.ops.next());
        let completes_first = match (&self.ahead, self.open.peek()) {
            (Some(op), Some(c)) => c.at < op.index(),
            (None, Some(_)) => true,
            _ => false,
        };
        if completes_first {
            return self.open.pop().map(|c| (c.op, Side::Completion));
        }
        let op = self.ahead.take()?;
        if let Some(at) = op.complete_index() {
            self.open.push(Completing { at, op });
        }
        Some((op, Side::Invocation))
    }
}

/// Are two histories the same, operation by operation and in all that is known of the whole?
///
/// # Errors
/// The first difference, in words.
pub fn same(a: &History, b: &History) -> Result<(), String> {
    if a.meta() != b.meta() {
        return Err(format!("what is known of the whole: {:?} and {:?}", a.meta(), b.meta()));
    }
    same_operations(a, b)
}

/// Are two histories the same, operation by operation? Ids and chunks may differ, and so may the order of further fields.
///
/// # Errors
/// The first difference, in words.
pub fn same_operations(a: &History, b: &History) -> Result<(), String> {
    let differ = |what: &str, x: &dyn Debug, y: &dyn Debug| Err(format!("{what}: {x:?} and {y:?}"));
    if a.len() != b.len() {
        return differ("number of operations", &a.len(), &b.len());
    }
    for (row, (x, y)) in a.ops().zip(b.ops()).enumerate() {
        for ((name, x), (_, y)) in x.facts().iter().zip(y.facts()) {
            if *x != y {
                return differ(&format!("{name} of row {}", row + 1), x, &y);
            }
        }
    }
    Ok(())
}

impl OpRef<'_> {
    /// All that is known of an operation, as texts to compare.
    fn facts(&self) -> [(&'static str, String); 17] {
        let text = |write: &dyn Fn(&mut String)| {
            let mut out = String::new();
            write(&mut out);
            out
        };
        let sorted = |mut fields: Vec<(&str, &str)>| {
            fields.sort_unstable();
            format!("{fields:?}")
        };
        let known = self.txn().map(|t| t.iter().map(|m| m.known).collect::<Vec<_>>());
        [
            ("index", self.index().to_string()),
            ("complete_index", format!("{:?}", self.complete_index())),
            ("process", format!("{:?}", self.process())),
            ("actor", format!("{:?}", self.actor())),
            ("status", self.status().name().into()),
            ("f", format!("{:?}", self.f())),
            ("invoke_time", format!("{:?}", self.invoke_time())),
            ("complete_time", format!("{:?}", self.complete_time())),
            ("key", text(&|out| self.shared.write_scalar(self.key(), out))),
            ("the invocation's value", text(&|out| self.write_invoke_value(out))),
            ("the completion's value", text(&|out| self.write_complete_value(out))),
            ("what is known of txn", format!("{known:?}")),
            ("error", format!("{:?}", self.error())),
            ("node", format!("{:?}", self.node())),
            ("fault_epoch", format!("{:?}", self.fault_epoch())),
            ("extra", sorted(self.extras().collect())),
            ("invoke_extra", sorted(self.invoke_extras().collect())),
        ]
    }
}

/// Rows of client operations by key.
#[derive(Debug, Default)]
pub struct KeyIndex {
    keys: Vec<Scalar>,
    offsets: Vec<usize>,
    rows: Vec<u32>,
    keyless: Vec<u32>,
}

impl KeyIndex {
    /// O(n), keys in the order in which they first occur.
    fn build(history: &History) -> KeyIndex {
        let mut ids: HashMap<Scalar, u32, FixedState> = HashMap::default();
        let mut keys = Vec::new();
        let mut of_row = Vec::with_capacity(history.len());
        let mut keyless = Vec::new();
        const NO_KEY: u32 = u32::MAX;
        for (row, op) in history.ops().enumerate() {
            let key = op.key();
            of_row.push(if !op.is_client() {
                NO_KEY
            } else if key == Scalar::Nil {
                keyless.push(row as u32);
                NO_KEY
            } else {
                *ids.entry(key).or_insert_with(|| {
                    keys.push(key);
                    keys.len() as u32 - 1
                })
            });
        }
        let mut offsets = vec![0usize; keys.len() + 1];
        for &k in of_row.iter().filter(|&&k| k != NO_KEY) {
            offsets[k as usize + 1] += 1;
        }
        for i in 0..keys.len() {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut rows = vec![0u32; offsets[keys.len()]];
        for (row, &k) in of_row.iter().enumerate().filter(|&(_, &k)| k != NO_KEY) {
            rows[next[k as usize]] = row as u32;
            next[k as usize] += 1;
        }
        KeyIndex { keys, offsets, rows, keyless }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// No key?
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys, in the order in which they first occur.
    pub fn keys(&self) -> &[Scalar] {
        &self.keys
    }

    /// Rows of the operations on the `i`-th key, ascending.
    pub fn rows(&self, i: usize) -> &[u32] {
        &self.rows[self.offsets[i]..self.offsets[i + 1]]
    }

    /// Rows of client operations with no key.
    pub fn keyless(&self) -> &[u32] {
        &self.keyless
    }
}
