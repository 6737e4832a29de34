//! The events of which histories mostly consist: what a client invokes, or its completion, without further fields, with
//! a value of integers or a transaction of those.
//!
//! The idea: what is written here is what the general way of the parent module would write, with neither look-ups nor
//! copies. Whether an event is plain is decided before anything is written, but for arenas, whose ends are put back:
//! `false` means that nothing happened yet, and the general way, which knows every case, takes the event. A property
//! test holds the two together.

use super::chunk::{NO_TXN, OpenChunk};
use super::{At, HistoryBuilder, NO_CODE, NO_INDEX, NO_TEXT, OpenOp, Remap, open_chunk, status_of};
use crate::columns::Scalar;
use crate::error::Result;
use crate::event::{Cell, EventType, Mop, NONE, Span};
use crate::history::{CHUNK_ROWS, Status};

/// What plain values are copied by.
struct Tables<'a> {
    ints: &'a [i64],
    mops: &'a [Mop],
    functions: &'a [u32],
    texts: &'a [u32],
    /// Is the function of this code a read of a transaction?
    reads: &'a [bool],
}

impl HistoryBuilder {
    /// Takes a client's event, but for its further fields, if it is plain; gives its row if it was.
    #[inline]
    pub(super) fn plain_event(&mut self, e: &At<'_>, remap: &Remap, p: i64) -> Result<Option<u64>> {
        let state = self.clients.of(p);
        if e.time == NONE || e.time < state.last_time || !self.touching.is_empty() {
            return Ok(None);
        }
        let tables = Tables {
            ints: &e.batch.ints,
            mops: &e.batch.mops,
            functions: &remap.functions,
            texts: &remap.texts,
            reads: &self.reads,
        };
        let row = match (e.batch.kind[e.i], &state.open) {
            (EventType::Invoke, None) => {
                let (row, at) = (self.rows, self.rows as usize / CHUNK_ROWS);
                // As long as there may be keys, values may have to be split.
                if self.keys.split || at == self.chunks.len() {
                    return Ok(None);
                }
                if !open_chunk(&mut self.chunks, at)?.begin_plainly(e, &tables, p)? {
                    return Ok(None);
                }
                self.rows += 1;
                state.open = Some(OpenOp { row, f: e.f, place: e.place, index: e.index });
                row
            }
            (kind, Some(open)) if kind != EventType::Invoke && open.f == e.f => {
                let (row, at, r) = (open.row, open.row as usize / CHUNK_ROWS, open.row as usize % CHUNK_ROWS);
                let chunk = open_chunk(&mut self.chunks, at)?;
                if self.keys.split && chunk.key.get(r) != Scalar::Nil || !chunk.complete_plainly(e, &tables, r, kind)? {
                    return Ok(None);
                }
                state.open = None;
                row
            }
            _ => return Ok(None),
        };
        state.last_time = e.time;
        state.last_place = e.place;
        state.last_index = e.index;
        Ok(Some(row))
    }
}

impl OpenChunk {
    #[inline]
    fn begin_plainly(&mut self, e: &At<'_>, tables: &Tables<'_>, p: i64) -> Result<bool> {
        let mut txn = NO_TXN;
        let input = match e.value() {
            plain @ (Cell::Nil | Cell::Int(_)) => plain,
            Cell::List(span) => Cell::List(self.push_ints(&tables.ints[span.range()])?),
            Cell::Txn(span) => match self.import_mops(&tables.mops[span.range()], tables) {
                Some(span) => {
                    txn = span;
                    Cell::Nil
                }
                None => return Ok(false),
            },
            _ => return Ok(false),
        };
        let r = self.index.len();
        self.open += 1;
        self.index.push(e.index as u64);
        self.complete_index.push(NO_INDEX);
        self.process.push(p);
        self.status.push(Status::Pending as u8);
        self.f.push(e.f);
        self.invoke_time.push(e.time);
        self.complete_time.push(NONE);
        self.input.push(input);
        self.output.push(Cell::Nil);
        self.txn.set(r, txn);
        Ok(true)
    }

    /// Copies the micro-operations of an invocation, if all are plain and no read says what it read.
    fn import_mops(&mut self, mops: &[Mop], tables: &Tables<'_>) -> Option<Span> {
        let start = self.mops.len();
        for mop in mops {
            let f = tables.functions[mop.f as usize];
            let key = plain_key(mop.key, tables);
            let plain = f < u32::from(NO_CODE)
                && match mop.value {
                    Cell::Nil => true,
                    Cell::Int(_) => !tables.reads[f as usize],
                    _ => false,
                };
            match key {
                Some(key) if plain => self.mops.push(Mop { f, key, value: mop.value }),
                _ => {
                    self.mops.truncate(start);
                    return None;
                }
            }
        }
        Some(Span { start: start as u32, len: mops.len() as u32 })
    }

    #[inline]
    fn complete_plainly(&mut self, e: &At<'_>, tables: &Tables<'_>, r: usize, kind: EventType) -> Result<bool> {
        let invoked = self.txn.get(r);
        match e.value() {
            Cell::Txn(span) if invoked != NO_TXN => {
                if !self.refine(invoked, &tables.mops[span.range()], tables)? {
                    return Ok(false);
                }
            }
            _ if invoked != NO_TXN => return Ok(false),
            plain @ (Cell::Nil | Cell::Int(_)) => self.output[r] = plain,
            Cell::List(span) => self.output[r] = Cell::List(self.push_ints(&tables.ints[span.range()])?),
            _ => return Ok(false),
        }
        self.open -= 1;
        self.complete_index[r] = e.index as u64;
        self.complete_time[r] = e.time;
        self.status[r] = status_of(kind) as u8;
        Ok(true)
    }

    /// Writes what a transaction read into the micro-operations that it was invoked with, if the completion says the same
    /// but for that; says whether it did.
    fn refine(&mut self, invoked: Span, completed: &[Mop], tables: &Tables<'_>) -> Result<bool> {
        if invoked.len as usize != completed.len() {
            return Ok(false);
        }
        for (ours, mop) in self.mops[invoked.range()].iter().zip(completed) {
            let same_value = match mop.value {
                _ if tables.reads[ours.f as usize] => {
                    ours.value == Cell::Nil && matches!(mop.value, Cell::Nil | Cell::Int(_) | Cell::List(_))
                }
                value => matches!(value, Cell::Nil | Cell::Int(_)) && value == ours.value,
            };
            let same_f = tables.functions[mop.f as usize] == ours.f;
            if !(same_f && same_value && plain_key(mop.key, tables) == Some(ours.key)) {
                return Ok(false);
            }
        }
        for (i, mop) in completed.iter().enumerate() {
            self.mops[invoked.start as usize + i].value = match mop.value {
                Cell::List(span) => Cell::List(self.push_ints(&tables.ints[span.range()])?),
                value => value,
            };
        }
        Ok(true)
    }
}

/// The key of a micro-operation in terms of the history, if its text is known there.
#[inline]
fn plain_key(key: Cell, tables: &Tables<'_>) -> Option<Cell> {
    match key {
        Cell::Text(id) => Some(tables.texts[id as usize]).filter(|&t| t != NO_TEXT).map(Cell::Text),
        Cell::Nil | Cell::Int(_) => Some(key),
        _ => None,
    }
}
