//! Rows that may still change, and how they become Arrow arrays.

use std::mem::take;

use arrow_array::{BooleanArray, Int64Array, UInt16Array, UInt64Array};
use arrow_buffer::{BooleanBuffer, OffsetBuffer};

use super::cells::{Cells, LIST, Mops, NIL, SET};
use super::{NO_CODE, NO_INDEX, NO_TEXT, intern};
use crate::columns::{
    ExtraBuilder, ExtraCol, ListCol, Scalar, ScalarBuilder, ScalarCol, TxnCol, ValueBuilder, ValueCol, optional,
    validity,
};
use crate::error::Result;
use crate::event::{Arenas, Cell, NONE, Span, TextId};
use crate::history::{Chunk, Shared, Status, is_read};
use crate::lists::ListArena;

/// A column that few histories have: nothing is stored until a row has a value.
#[derive(Debug)]
pub(super) struct Rare<T> {
    values: Vec<T>,
    none: T,
}

impl<T: Copy + PartialEq> Rare<T> {
    fn new(none: T) -> Self {
        Rare { values: Vec::new(), none }
    }

    pub(super) fn get(&self, r: usize) -> T {
        self.values.get(r).copied().unwrap_or(self.none)
    }

    #[inline]
    pub(super) fn set(&mut self, r: usize, value: T) {
        if r == self.values.len() && value != self.none {
            self.values.push(value);
        } else if let Some(old) = self.values.get_mut(r) {
            *old = value;
        } else if value != self.none {
            self.values.resize(r, self.none);
            self.values.push(value);
        }
    }

    /// The values of so many rows, if any row has one.
    pub(super) fn take(&mut self, rows: usize) -> Option<Vec<T>> {
        let mut values = std::mem::take(&mut self.values);
        if values.iter().all(|v| *v == self.none) {
            return None;
        }
        values.resize(rows, self.none);
        Some(values)
    }
}

/// Rows not yet packed.
#[derive(Debug)]
pub(super) struct OpenChunk {
    pub(super) open: u32,
    pub(super) index: Vec<u64>,
    pub(super) complete_index: Vec<u64>,
    pub(super) process: Vec<i64>,
    pub(super) actor: Rare<u16>,
    pub(super) status: Vec<u8>,
    pub(super) f: Vec<u16>,
    pub(super) invoke_time: Vec<i64>,
    pub(super) complete_time: Vec<i64>,
    pub(super) key: Rare<Scalar>,
    pub(super) input: Cells,
    pub(super) output: Cells,
    pub(super) txn: Rare<Span>,
    pub(super) error: Rare<u32>,
    pub(super) node: Rare<u32>,
    pub(super) fault_epoch: Rare<u32>,
    /// `(row, name, text)` of the completion, and of the invocation.
    pub(super) extra: Vec<(u32, TextId, TextId)>,
    pub(super) invoke_extra: Vec<(u32, TextId, TextId)>,
    /// Elements of lists and sets: packed, they are the columns' items as they are.
    pub(super) ints: ListArena,
    pub(super) cells: Vec<Cell>,
    pub(super) mops: Mops,
}

pub(super) const NO_TXN: Span = Span { start: u32::MAX, len: 0 };

impl OpenChunk {
    /// Makes room for so many rows in all.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.index.reserve_exact(rows);
        self.complete_index.reserve_exact(rows);
        self.process.reserve_exact(rows);
        self.status.reserve_exact(rows);
        self.f.reserve_exact(rows);
        self.invoke_time.reserve_exact(rows);
        self.complete_time.reserve_exact(rows);
        self.input.reserve_exact(rows);
        self.output.reserve_exact(rows);
    }
}

impl Default for OpenChunk {
    fn default() -> Self {
        OpenChunk {
            open: 0,
            index: Vec::new(),
            complete_index: Vec::new(),
            process: Vec::new(),
            actor: Rare::new(NO_CODE),
            status: Vec::new(),
            f: Vec::new(),
            invoke_time: Vec::new(),
            complete_time: Vec::new(),
            key: Rare::new(Scalar::Nil),
            input: Cells::default(),
            output: Cells::default(),
            txn: Rare::new(NO_TXN),
            error: Rare::new(NO_TEXT),
            node: Rare::new(NO_TEXT),
            fault_epoch: Rare::new(NO_TEXT),
            extra: Vec::new(),
            invoke_extra: Vec::new(),
            ints: ListArena::default(),
            cells: Vec::new(),
            mops: Mops::default(),
        }
    }
}

/// Does a completion's transaction say what its invocation's said, and what the reads returned?
pub(super) fn refines(chunk: &OpenChunk, invoked: Span, completed: Span, is_read: impl Fn(TextId) -> bool) -> bool {
    let (a, b) = (chunk.mops.of(invoked), chunk.mops.of(completed));
    a.len() == b.len()
        && a.zip(b).all(|(a, b)| {
            a.f == b.f
                && a.key == b.key
                && if is_read(a.f) {
                    a.value == Cell::Nil || chunk.same(a.value, b.value)
                } else {
                    chunk.same(a.value, b.value)
                }
        })
}

impl OpenChunk {
    pub(super) fn pair(&mut self, key: Cell, value: Cell) -> Result<Cell> {
        if let (Cell::Int(k), Cell::Int(v)) = (key, value) {
            return Ok(Cell::List(self.ints.push(&[k, v])?));
        }
        let start = self.cells.len() as u32;
        self.cells.extend([key, value]);
        Ok(Cell::Seq(Span { start, len: 2 }))
    }

    fn same(&self, a: Cell, b: Cell) -> bool {
        match (a, b) {
            (Cell::List(a), Cell::List(b)) | (Cell::Set(a), Cell::Set(b)) => self.ints.get(a) == self.ints.get(b),
            (Cell::Seq(a), Cell::Seq(b)) => {
                a.len == b.len
                    && self.cells[a.range()].iter().zip(&self.cells[b.range()]).all(|(&a, &b)| self.same(a, b))
            }
            _ => a == b,
        }
    }

    pub(super) fn write_edn(&self, cell: Cell, shared: &Shared, out: &mut String) {
        let OpenChunk { ints, cells, .. } = self;
        // Of micro-operations only those that are written are put together.
        let (cell, mops) = match cell {
            Cell::Txn(span) => (Cell::Txn(Span { start: 0, len: span.len }), self.mops.of(span).collect()),
            other => (other, Vec::new()),
        };
        Arenas { ints: ints.ints(), cells, mops: &mops, texts: &shared.texts, functions: &shared.functions }
            .write_edn(cell, out);
    }

    fn scalar(&self, cell: Cell, shared: &mut Shared) -> Result<Scalar> {
        Ok(match cell {
            Cell::Nil => Scalar::Nil,
            Cell::Int(n) => Scalar::Int(n),
            Cell::Text(t) => Scalar::Text(t),
            other => {
                let mut text = String::new();
                self.write_edn(other, shared, &mut text);
                Scalar::Text(intern(&mut shared.texts, &text)?)
            }
        })
    }

    fn push_value(&self, cell: Cell, shared: &mut Shared, out: &mut ValueBuilder) -> Result<()> {
        match cell {
            Cell::List(span) => {
                out.list().ints(self.ints.get(span));
                out.end_list();
            }
            Cell::Set(span) => {
                out.set().ints(self.ints.get(span));
                out.end_set();
            }
            Cell::Seq(span) => {
                for &c in &self.cells[span.range()] {
                    let s = self.scalar(c, shared)?;
                    out.list().item(s);
                }
                out.end_list();
            }
            other => {
                let s = self.scalar(other, shared)?;
                out.scalar(s);
            }
        }
        Ok(())
    }

    /// A column of these cells. Cells of integers, and of texts, become columns one shape at a time; any other vector
    /// makes them all go one by one.
    fn values(&self, cells: &Cells, shared: &mut Shared) -> Result<ValueCol> {
        if cells.any_mixed() {
            let all = || (0..cells.len()).map(|i| cells.get(i));
            let elements = |c| if let Cell::List(span) | Cell::Seq(span) = c { span.len as usize } else { 0 };
            let mut out = ValueBuilder::with_capacity(cells.len(), all().map(elements).sum());
            for cell in all() {
                self.push_value(cell, shared, &mut out)?;
            }
            return Ok(out.finish());
        }
        Ok(ValueCol { lists: cells.lists(LIST), sets: cells.lists(SET), scalars: cells.scalars() })
    }

    fn txns(&self, txn: &[Span], shared: &mut Shared) -> Result<TxnCol> {
        let reads: Vec<bool> = shared.functions.iter().map(is_read).collect();
        let gathered = self.mops_in_order(txn);
        let mops = gathered.as_ref().unwrap_or(&self.mops);
        let (f, values) = (mops.functions(), mops.values());
        let (mut offsets, mut known) = (Vec::with_capacity(txn.len() + 1), Vec::with_capacity(mops.len()));
        offsets.push(0i32);
        for (r, span) in txn.iter().enumerate() {
            // An acknowledgement that says something else than a transaction says nothing of what was read.
            let ok = self.status[r] == Status::Ok as u8 && self.output.is(r, Cell::Nil);
            known.resize(known.len() + span.len as usize, ok);
            offsets.push(known.len().min(i32::MAX as usize) as i32);
        }
        // Without a branch, for nobody foresees whether a read comes next.
        let is_known = |i: usize| known[i] | (values.kinds()[i] != NIL) | !reads[usize::from(f[i])];
        Ok(TxnCol {
            offsets: OffsetBuffer::new(offsets.into()),
            nulls: validity(txn.len(), |r| txn[r] != NO_TXN),
            known: BooleanArray::new(BooleanBuffer::collect_bool(known.len(), is_known), None),
            f: f.into(),
            key: mops.keys().scalars(),
            value: self.values(&values, shared)?,
        })
    }

    /// The micro-operations of these transactions, if they are not all there are, in this very order, as they mostly are.
    fn mops_in_order(&self, txn: &[Span]) -> Option<Mops> {
        let spans = || txn.iter().filter(|&&t| t != NO_TXN);
        let mut end = 0;
        let in_order = spans().all(|t| {
            let follows = t.start as usize == end;
            end += t.len as usize;
            follows
        });
        let all = in_order && end == self.mops.len();
        (!all).then(|| self.mops.gather(spans().copied()))
    }

    /// Makes the arena the items of the columns that are views of it.
    fn show_items<'a>(&mut self, lists: impl Iterator<Item = &'a mut ListCol>) {
        let Some(items) = self.ints.take() else { return };
        lists.filter(|l| l.items.is_void()).for_each(|l| l.items.ints = Some(items.clone()));
    }

    /// Arrow arrays of these rows, of which none is left. The memory of what is no column is kept for the next rows.
    pub(super) fn pack(&mut self, shared: &mut Shared) -> Result<Chunk> {
        let rows = self.index.len();
        let mut input = self.values(&self.input, shared)?;
        let mut output = self.values(&self.output, shared)?;
        let mut txn = match self.txn.take(rows) {
            Some(spans) => Some(self.txns(&spans, shared)?),
            None => None,
        };
        let values = [Some(&mut input), Some(&mut output), txn.as_mut().map(|t| &mut t.value)];
        self.show_items(values.into_iter().flatten().flat_map(|v| [&mut v.lists, &mut v.sets]).flatten());
        let key = self.key.take(rows).map_or_else(ScalarCol::default, |keys| {
            let mut out = ScalarBuilder::with_capacity(rows);
            keys.into_iter().for_each(|k| out.push(k));
            out.finish()
        });
        let chunk = Chunk {
            index: take(&mut self.index).into(),
            complete_index: optional::<arrow_array::types::UInt64Type>(take(&mut self.complete_index), NO_INDEX)
                .unwrap_or_else(|| UInt64Array::new_null(rows)),
            process: optional::<arrow_array::types::Int64Type>(take(&mut self.process), NONE)
                .unwrap_or_else(|| Int64Array::new_null(rows)),
            actor: self.actor.take(rows).and_then(|v| optional(v, NO_CODE)),
            status: take(&mut self.status).into(),
            f: optional(take(&mut self.f), NO_CODE).unwrap_or_else(|| UInt16Array::new_null(rows)),
            invoke_time: optional(take(&mut self.invoke_time), NONE),
            complete_time: optional(take(&mut self.complete_time), NONE),
            key,
            input,
            output,
            txn,
            error: self.error.take(rows).and_then(|v| optional(v, NO_TEXT)),
            node: self.node.take(rows).and_then(|v| optional(v, NO_TEXT)),
            fault_epoch: self.fault_epoch.take(rows).and_then(|v| optional(v, NO_TEXT)),
            extra: pack_extras(take(&mut self.extra), rows),
            invoke_extra: pack_extras(take(&mut self.invoke_extra), rows),
        };
        self.open = 0;
        self.input.clear();
        self.output.clear();
        self.cells.clear();
        self.mops.clear();
        Ok(chunk)
    }
}

fn pack_extras(mut fields: Vec<(u32, TextId, TextId)>, rows: usize) -> Option<ExtraCol> {
    if fields.is_empty() {
        return None;
    }
    fields.sort_unstable();
    let mut out = ExtraBuilder::default();
    let mut next = fields.into_iter().peekable();
    for row in 0..rows as u32 {
        while let Some((_, name, value)) = next.next_if(|f| f.0 == row) {
            out.field(name, value);
        }
        out.end();
    }
    out.finish()
}
