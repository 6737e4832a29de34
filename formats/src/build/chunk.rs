//! Rows that may still change, and how they become Arrow arrays.

use arrow_array::{BooleanArray, Int64Array, UInt16Array, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};

use super::{NO_CODE, NO_INDEX, NO_TEXT, intern};
use crate::columns::{
    ExtraBuilder, ExtraCol, Scalar, ScalarBuilder, ScalarCol, TxnCol, ValueBuilder, ValueCol, optional,
};
use crate::error::{ReadError, Result};
use crate::event::{Arenas, Cell, Mop, NONE, Span, TextId};
use crate::history::{Chunk, Shared, Status, is_read};

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

    pub(super) fn set(&mut self, r: usize, value: T) {
        if r >= self.values.len() {
            if value == self.none {
                return;
            }
            self.values.resize(r + 1, self.none);
        }
        self.values[r] = value;
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
    pub(super) input: Vec<Cell>,
    pub(super) output: Vec<Cell>,
    pub(super) txn: Rare<Span>,
    pub(super) error: Rare<u32>,
    pub(super) node: Rare<u32>,
    pub(super) fault_epoch: Rare<u32>,
    /// `(row, name, text)` of the completion, and of the invocation.
    pub(super) extra: Vec<(u32, TextId, TextId)>,
    pub(super) invoke_extra: Vec<(u32, TextId, TextId)>,
    pub(super) ints: Vec<i64>,
    pub(super) cells: Vec<Cell>,
    pub(super) mops: Vec<Mop>,
}

pub(super) const NO_TXN: Span = Span { start: u32::MAX, len: 0 };

impl OpenChunk {
    /// No row yet, and room for so many.
    pub(super) fn with_capacity(rows: usize) -> Self {
        OpenChunk {
            open: 0,
            index: Vec::with_capacity(rows),
            complete_index: Vec::with_capacity(rows),
            process: Vec::with_capacity(rows),
            actor: Rare::new(NO_CODE),
            status: Vec::with_capacity(rows),
            f: Vec::with_capacity(rows),
            invoke_time: Vec::with_capacity(rows),
            complete_time: Vec::with_capacity(rows),
            key: Rare::new(Scalar::Nil),
            input: Vec::with_capacity(rows),
            output: Vec::with_capacity(rows),
            txn: Rare::new(NO_TXN),
            error: Rare::new(NO_TEXT),
            node: Rare::new(NO_TEXT),
            fault_epoch: Rare::new(NO_TEXT),
            extra: Vec::new(),
            invoke_extra: Vec::new(),
            ints: Vec::new(),
            cells: Vec::new(),
            mops: Vec::new(),
        }
    }
}

/// Does a completion's transaction say what its invocation's said, and what the reads returned?
pub(super) fn refines(chunk: &OpenChunk, invoked: Span, completed: Span, is_read: impl Fn(TextId) -> bool) -> bool {
    let (a, b) = (&chunk.mops[invoked.range()], &chunk.mops[completed.range()]);
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
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
    pub(super) fn push_ints(&mut self, ints: &[i64]) -> Result<Span> {
        let start = self.ints.len();
        if start + ints.len() > i32::MAX as usize {
            return Err(ReadError::new("more than 2^31 list elements within 65,536 operations")
                .hint("no checker could hold such lists; is this a history?"));
        }
        self.ints.extend_from_slice(ints);
        Ok(Span { start: start as u32, len: ints.len() as u32 })
    }

    pub(super) fn pair(&mut self, key: Cell, value: Cell) -> Cell {
        if let (Cell::Int(k), Cell::Int(v)) = (key, value) {
            let start = self.ints.len() as u32;
            self.ints.extend([k, v]);
            return Cell::List(Span { start, len: 2 });
        }
        let start = self.cells.len() as u32;
        self.cells.extend([key, value]);
        Cell::Seq(Span { start, len: 2 })
    }

    fn same(&self, a: Cell, b: Cell) -> bool {
        match (a, b) {
            (Cell::List(a), Cell::List(b)) | (Cell::Set(a), Cell::Set(b)) => {
                self.ints[a.range()] == self.ints[b.range()]
            }
            (Cell::Seq(a), Cell::Seq(b)) => {
                a.len == b.len
                    && self.cells[a.range()].iter().zip(&self.cells[b.range()]).all(|(&a, &b)| self.same(a, b))
            }
            _ => a == b,
        }
    }

    pub(super) fn write_edn(&self, cell: Cell, shared: &Shared, out: &mut String) {
        let OpenChunk { ints, cells, mops, .. } = self;
        Arenas { ints, cells, mops, texts: &shared.texts, functions: &shared.functions }.write_edn(cell, out);
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
                out.list().ints(&self.ints[span.range()]);
                out.end_list();
            }
            Cell::Set(span) => {
                out.set().ints(&self.ints[span.range()]);
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

    fn values(&self, cells: &[Cell], shared: &mut Shared) -> Result<ValueCol> {
        if cells.iter().all(|c| matches!(c, Cell::Nil | Cell::Int(_) | Cell::Text(_))) {
            return Ok(ValueCol { scalars: scalars(cells), lists: None, sets: None });
        }
        let elements = |c: &Cell| match c {
            Cell::List(span) | Cell::Seq(span) => span.len as usize,
            _ => 0,
        };
        let mut out = ValueBuilder::with_capacity(cells.len(), cells.iter().map(elements).sum());
        for &cell in cells {
            self.push_value(cell, shared, &mut out)?;
        }
        Ok(out.finish())
    }

    fn txns(&self, txn: &[Span], shared: &mut Shared) -> Result<TxnCol> {
        let reads: Vec<bool> = shared.functions.iter().map(is_read).collect();
        let spans = || txn.iter().enumerate().filter(|(_, t)| **t != NO_TXN);
        let total = spans().map(|(_, t)| t.len as usize).sum();
        let (mut offsets, mut f, mut known) =
            (Vec::with_capacity(txn.len() + 1), Vec::with_capacity(total), Vec::with_capacity(total));
        let (mut keys, mut values) = (Vec::with_capacity(total), Vec::with_capacity(total));
        offsets.push(0i32);
        for (r, span) in txn.iter().enumerate() {
            // An acknowledgement that says something else than a transaction says nothing of what was read.
            let ok = self.status[r] == Status::Ok as u8 && self.output[r] == Cell::Nil;
            let mops = if *span == NO_TXN { &[][..] } else { &self.mops[span.range()] };
            for mop in mops {
                f.push(mop.f as u16);
                keys.push(mop.key);
                values.push(mop.value);
                known.push(ok || mop.value != Cell::Nil || !reads[mop.f as usize]);
            }
            offsets.push(f.len().min(i32::MAX as usize) as i32);
        }
        let nulls = NullBuffer::from_iter(txn.iter().map(|&t| t != NO_TXN));
        Ok(TxnCol {
            offsets: OffsetBuffer::new(offsets.into()),
            nulls: (nulls.null_count() > 0).then_some(nulls),
            f: UInt16Array::from(f),
            key: scalars(&keys),
            value: self.values(&values, shared)?,
            known: BooleanArray::from(known),
        })
    }

    /// Arrow arrays of these rows.
    pub(super) fn pack(mut self, shared: &mut Shared) -> Result<Chunk> {
        let rows = self.index.len();
        let input = self.values(&self.input, shared)?;
        let output = self.values(&self.output, shared)?;
        let txn = match self.txn.take(rows) {
            Some(spans) => Some(self.txns(&spans, shared)?),
            None => None,
        };
        let key = self.key.take(rows).map_or_else(ScalarCol::default, |keys| {
            let mut out = ScalarBuilder::with_capacity(rows);
            keys.into_iter().for_each(|k| out.push(k));
            out.finish()
        });
        Ok(Chunk {
            index: self.index.into(),
            complete_index: optional::<arrow_array::types::UInt64Type>(self.complete_index, NO_INDEX)
                .unwrap_or_else(|| UInt64Array::new_null(rows)),
            process: optional::<arrow_array::types::Int64Type>(self.process, NONE)
                .unwrap_or_else(|| Int64Array::new_null(rows)),
            actor: self.actor.take(rows).and_then(|v| optional(v, NO_CODE)),
            status: self.status.into(),
            f: optional(self.f, NO_CODE).unwrap_or_else(|| UInt16Array::new_null(rows)),
            invoke_time: optional(self.invoke_time, NONE),
            complete_time: optional(self.complete_time, NONE),
            key,
            input,
            output,
            txn,
            error: self.error.take(rows).and_then(|v| optional(v, NO_TEXT)),
            node: self.node.take(rows).and_then(|v| optional(v, NO_TEXT)),
            fault_epoch: self.fault_epoch.take(rows).and_then(|v| optional(v, NO_TEXT)),
            extra: pack_extras(self.extra, rows),
            invoke_extra: pack_extras(self.invoke_extra, rows),
        })
    }
}

/// Cells of which none is a collection.
fn scalars(cells: &[Cell]) -> ScalarCol {
    if cells.iter().all(|c| matches!(c, Cell::Int(_))) {
        let ints: Vec<i64> = cells.iter().map(|c| if let Cell::Int(n) = c { *n } else { 0 }).collect();
        return ScalarCol { ints: (!ints.is_empty()).then(|| ints.into()), texts: None };
    }
    let mut out = ScalarBuilder::with_capacity(cells.len());
    for cell in cells {
        out.push(match *cell {
            Cell::Int(n) => Scalar::Int(n),
            Cell::Text(t) => Scalar::Text(t),
            _ => Scalar::Nil,
        });
    }
    out.finish()
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
