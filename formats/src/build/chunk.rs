//! Rows that may still change, and how they become Arrow arrays.

use std::borrow::Cow;
use std::mem::take;

use arrow_array::{BooleanArray, Int64Array, UInt16Array, UInt32Array, UInt64Array};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};

use super::{NO_CODE, NO_INDEX, NO_TEXT, intern};
use crate::columns::{
    ExtraBuilder, ExtraCol, ListCol, Scalar, ScalarBuilder, ScalarCol, TxnCol, ValueBuilder, ValueCol, optional,
    validity,
};
use crate::error::Result;
use crate::event::{Arenas, Cell, Mop, NONE, Span, TextId};
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
    pub(super) input: Vec<Cell>,
    pub(super) output: Vec<Cell>,
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
    pub(super) mops: Vec<Mop>,
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
            input: Vec::new(),
            output: Vec::new(),
            txn: Rare::new(NO_TXN),
            error: Rare::new(NO_TEXT),
            node: Rare::new(NO_TEXT),
            fault_epoch: Rare::new(NO_TEXT),
            extra: Vec::new(),
            invoke_extra: Vec::new(),
            ints: ListArena::default(),
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
        let OpenChunk { ints, cells, mops, .. } = self;
        Arenas { ints: ints.ints(), cells, mops, texts: &shared.texts, functions: &shared.functions }
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
    fn values<'a>(
        &self,
        cells: impl ExactSizeIterator<Item = &'a Cell> + Clone,
        shared: &mut Shared,
    ) -> Result<ValueCol> {
        let kinds = Kinds::of(cells.clone());
        if kinds.other {
            let elements = |c: &Cell| if let Cell::List(span) | Cell::Seq(span) = c { span.len as usize } else { 0 };
            let mut out = ValueBuilder::with_capacity(cells.len(), cells.clone().map(elements).sum());
            for &cell in cells {
                self.push_value(cell, shared, &mut out)?;
            }
            return Ok(out.finish());
        }
        let list = |c: &Cell| if let Cell::List(span) = c { Some(*span) } else { None };
        let set = |c: &Cell| if let Cell::Set(span) = c { Some(*span) } else { None };
        Ok(ValueCol {
            lists: kinds.list.then(|| self.lists(cells.clone().map(list))),
            sets: kinds.set.then(|| self.lists(cells.clone().map(set))),
            scalars: scalars(cells, kinds),
        })
    }

    /// Views of the arena, which becomes their items when the chunk is packed.
    fn lists(&self, spans: impl ExactSizeIterator<Item = Option<Span>> + Clone) -> ListCol {
        let bounds = spans.clone().map(Option::unwrap_or_default);
        ListCol {
            starts: bounds.clone().map(|s| s.start as i32).collect(),
            ends: bounds.map(|s| (s.start + s.len) as i32).collect(),
            nulls: validity_of(spans.map(|s| s.is_some())),
            items: ScalarCol::default(),
        }
    }

    fn txns(&self, txn: &[Span], shared: &mut Shared) -> Result<TxnCol> {
        let reads: Vec<bool> = shared.functions.iter().map(is_read).collect();
        let mops = self.mops_in_order(txn);
        let (mut offsets, mut known) = (Vec::with_capacity(txn.len() + 1), Vec::with_capacity(mops.len()));
        offsets.push(0i32);
        for (r, span) in txn.iter().enumerate() {
            // An acknowledgement that says something else than a transaction says nothing of what was read.
            let ok = self.status[r] == Status::Ok as u8 && self.output[r] == Cell::Nil;
            let of_row = &mops[known.len()..][..span.len as usize];
            // Without a branch, for nobody foresees whether a read comes next.
            known.extend(of_row.iter().map(|m| ok | !matches!(m.value, Cell::Nil) | !reads[m.f as usize]));
            offsets.push(known.len().min(i32::MAX as usize) as i32);
        }
        let keys = mops.iter().map(|m| &m.key);
        Ok(TxnCol {
            offsets: OffsetBuffer::new(offsets.into()),
            nulls: validity_of(txn.iter().map(|&t| t != NO_TXN)),
            f: mops.iter().map(|m| m.f as u16).collect::<Vec<u16>>().into(),
            key: scalars(keys.clone(), Kinds::of(keys)),
            value: self.values(mops.iter().map(|m| &m.value), shared)?,
            known: BooleanArray::new(BooleanBuffer::collect_bool(known.len(), |i| known[i]), None),
        })
    }

    /// The micro-operations of these transactions: mostly they lie in this very order.
    fn mops_in_order(&self, txn: &[Span]) -> Cow<'_, [Mop]> {
        let spans = || txn.iter().filter(|&&t| t != NO_TXN);
        let mut end = 0;
        let in_order = spans().all(|t| {
            let follows = t.start as usize == end;
            end += t.len as usize;
            follows
        });
        match in_order {
            true => Cow::Borrowed(&self.mops[..end]),
            false => Cow::Owned(spans().flat_map(|t| &self.mops[t.range()]).copied().collect()),
        }
    }

    /// Makes the arena the items of the columns that are views of it.
    fn show_items<'a>(&mut self, lists: impl Iterator<Item = &'a mut ListCol>) {
        let Some(items) = self.ints.take() else { return };
        lists.filter(|l| l.items.is_void()).for_each(|l| l.items.ints = Some(items.clone()));
    }

    /// Arrow arrays of these rows, of which none is left. The memory of what is no column is kept for the next rows.
    pub(super) fn pack(&mut self, shared: &mut Shared) -> Result<Chunk> {
        let rows = self.index.len();
        let mut input = self.values(self.input.iter(), shared)?;
        let mut output = self.values(self.output.iter(), shared)?;
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

/// Which kinds of cells there are.
#[derive(Clone, Copy)]
struct Kinds {
    nil: bool,
    int: bool,
    text: bool,
    list: bool,
    set: bool,
    other: bool,
}

impl Kinds {
    fn of<'a>(cells: impl Iterator<Item = &'a Cell>) -> Kinds {
        // Without a branch a cell, for nobody foresees which kind comes next.
        let seen = cells.fold(0, |seen, cell| seen | 1 << kind(cell));
        let has = |kind: u8| seen & 1 << kind != 0;
        Kinds { nil: has(0), int: has(1), text: has(2), list: has(3), set: has(4), other: has(5) | has(6) }
    }
}

#[inline]
fn kind(cell: &Cell) -> u8 {
    match cell {
        Cell::Nil => 0,
        Cell::Int(_) => 1,
        Cell::Text(_) => 2,
        Cell::List(_) => 3,
        Cell::Set(_) => 4,
        Cell::Seq(_) => 5,
        Cell::Txn(_) => 6,
    }
}

/// The scalars among these cells.
fn scalars<'a>(cells: impl ExactSizeIterator<Item = &'a Cell> + Clone, kinds: Kinds) -> ScalarCol {
    let int = |c: &Cell| if let Cell::Int(n) = c { *n } else { 0 };
    let text = |c: &Cell| if let Cell::Text(t) = c { *t } else { 0 };
    let only_ints = !(kinds.nil || kinds.text || kinds.list || kinds.set || kinds.other);
    let ints = kinds.int.then(|| {
        let nulls = if only_ints { None } else { validity_of(cells.clone().map(|c| matches!(c, Cell::Int(_)))) };
        Int64Array::new(cells.clone().map(int).collect::<Vec<_>>().into(), nulls)
    });
    let texts = kinds.text.then(|| {
        let nulls = validity_of(cells.clone().map(|c| matches!(c, Cell::Text(_))));
        UInt32Array::new(cells.map(text).collect::<Vec<_>>().into(), nulls)
    });
    ScalarCol { ints, texts }
}

/// Which of these rows hold something, if not all do.
fn validity_of(mut holds: impl ExactSizeIterator<Item = bool>) -> Option<NullBuffer> {
    validity(holds.len(), |_| holds.next().unwrap_or(false))
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
