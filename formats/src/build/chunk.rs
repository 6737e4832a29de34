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

/// Rows not yet packed.
#[derive(Debug, Default)]
pub(super) struct OpenChunk {
    pub(super) open: u32,
    pub(super) index: Vec<u64>,
    pub(super) complete_index: Vec<u64>,
    pub(super) process: Vec<i64>,
    pub(super) actor: Vec<u16>,
    pub(super) status: Vec<u8>,
    pub(super) f: Vec<u16>,
    pub(super) invoke_time: Vec<i64>,
    pub(super) complete_time: Vec<i64>,
    pub(super) key: Vec<Scalar>,
    pub(super) input: Vec<Cell>,
    pub(super) output: Vec<Cell>,
    pub(super) txn: Vec<Span>,
    pub(super) error: Vec<u32>,
    pub(super) node: Vec<u32>,
    pub(super) fault_epoch: Vec<u32>,
    /// `(row, name, text)` of the completion, and of the invocation.
    pub(super) extra: Vec<(u32, TextId, TextId)>,
    pub(super) invoke_extra: Vec<(u32, TextId, TextId)>,
    pub(super) ints: Vec<i64>,
    pub(super) cells: Vec<Cell>,
    pub(super) mops: Vec<Mop>,
}

pub(super) const NO_TXN: Span = Span { start: u32::MAX, len: 0 };

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
        let mut out = ValueBuilder::default();
        for &cell in cells {
            self.push_value(cell, shared, &mut out)?;
        }
        Ok(out.finish())
    }

    fn txns(&self, shared: &mut Shared) -> Result<Option<TxnCol>> {
        if self.txn.iter().all(|&t| t == NO_TXN) {
            return Ok(None);
        }
        let (mut offsets, mut f, mut known) = (vec![0i32], Vec::new(), Vec::new());
        let mut key = ScalarBuilder::default();
        let mut value = ValueBuilder::default();
        for (r, span) in self.txn.iter().enumerate() {
            let ok = self.status[r] == Status::Ok as u8;
            let mops = if *span == NO_TXN { &[][..] } else { &self.mops[span.range()] };
            for mop in mops {
                f.push(mop.f as u16);
                key.push(self.scalar(mop.key, shared)?);
                self.push_value(mop.value, shared, &mut value)?;
                known.push(ok || mop.value != Cell::Nil || !is_read(shared.functions.get(mop.f)));
            }
            offsets.push(f.len().min(i32::MAX as usize) as i32);
        }
        let nulls = NullBuffer::from_iter(self.txn.iter().map(|&t| t != NO_TXN));
        Ok(Some(TxnCol {
            offsets: OffsetBuffer::new(offsets.into()),
            nulls: (nulls.null_count() > 0).then_some(nulls),
            f: UInt16Array::from(f),
            key: key.finish(),
            value: value.finish(),
            known: BooleanArray::from(known),
        }))
    }

    /// Arrow arrays of these rows.
    pub(super) fn pack(self, shared: &mut Shared) -> Result<Chunk> {
        let rows = self.index.len();
        let input = self.values(&self.input, shared)?;
        let output = self.values(&self.output, shared)?;
        let txn = self.txns(shared)?;
        let mut key = ScalarBuilder::with_capacity(if self.key.iter().any(|k| *k != Scalar::Nil) { rows } else { 0 });
        let keyed = self.key.iter().any(|k| *k != Scalar::Nil);
        let key = if keyed {
            self.key.iter().for_each(|&k| key.push(k));
            key.finish()
        } else {
            ScalarCol::default()
        };
        Ok(Chunk {
            index: self.index.into(),
            complete_index: optional::<arrow_array::types::UInt64Type>(self.complete_index, NO_INDEX)
                .unwrap_or_else(|| UInt64Array::new_null(rows)),
            process: optional::<arrow_array::types::Int64Type>(self.process, NONE)
                .unwrap_or_else(|| Int64Array::new_null(rows)),
            actor: optional(self.actor, NO_CODE),
            status: self.status.into(),
            f: optional(self.f, NO_CODE).unwrap_or_else(|| UInt16Array::new_null(rows)),
            invoke_time: optional(self.invoke_time, NONE),
            complete_time: optional(self.complete_time, NONE),
            key,
            input,
            output,
            txn,
            error: optional(self.error, NO_TEXT),
            node: optional(self.node, NO_TEXT),
            fault_epoch: optional(self.fault_epoch, NO_TEXT),
            extra: pack_extras(self.extra, rows),
            invoke_extra: pack_extras(self.invoke_extra, rows),
        })
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
