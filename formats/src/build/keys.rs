//! Are the values of this history `[key value]` pairs, as `jepsen.independent` writes them?
//!
//! Nothing in EDN tells such a pair from any other vector of two. So pairs are stored split for as long as every client
//! value is one; the first that is none, or the verdict at the end, puts them together again.

use super::{At, HistoryBuilder, Lift, NO_CODE, NO_INDEX, OpenOp, Remap, Slot, intern, open_chunk};
use crate::columns::{Scalar, ScalarCol, ValueBuilder, ValueRef};
use crate::error::Result;
use crate::event::{Cell, EventBatch, TextId};
use crate::history::{CHUNK_ROWS, Chunk, KeyForm, Shared};
use arrow_array::Array;

/// What is known so far about `[k v]` values.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) form: KeyForm,
    /// Are pairs stored split?
    pub(super) split: bool,
    pub(super) marked: bool,
    pub(super) nil_second: bool,
    pub(super) cas_misfit: bool,
    pub(super) pairs: u64,
}

impl HistoryBuilder {
    /// The key and value of a client's invocation.
    pub(super) fn split(&mut self, e: &At<'_>, remap: &mut Remap) -> Result<(Scalar, Cell)> {
        if !self.keys.split {
            return Ok((Scalar::Nil, e.value()));
        }
        match pair(e.batch, e.value()) {
            Some((key, value)) => {
                let key = self.scalar(e.batch, remap, key)?;
                self.keys.pairs += 1;
                self.keys.nil_second |= value == Cell::Nil;
                self.keys.cas_misfit |=
                    self.function_is(e.f, "cas") && pair(e.batch, value).is_none() && value != Cell::Nil;
                Ok((key, value))
            }
            None => {
                if self.options.lift == Lift::Auto && !self.keys.marked {
                    self.unsplit()?;
                }
                Ok((Scalar::Nil, e.value()))
            }
        }
    }

    /// The value of a client's completion, without the key that its invocation has.
    pub(super) fn split_completion(&mut self, e: &At<'_>, remap: &mut Remap, open: OpenOp) -> Result<Completion> {
        let (at, r) = (open.row as usize / CHUNK_ROWS, open.row as usize % CHUNK_ROWS);
        let chunk = open_chunk(&mut self.chunks, at)?;
        let key = chunk.key.get(r);
        if !self.keys.split || self.keys.form == KeyForm::Field || key == Scalar::Nil || chunk.actor.get(r) != NO_CODE {
            return Ok(Completion::Value(e.value()));
        }
        match pair(e.batch, e.value()) {
            Some((k, value)) if self.scalar(e.batch, remap, k)? == key => Ok(Completion::Value(value)),
            _ if e.value() == Cell::Nil => Ok(Completion::Bare),
            _ if self.options.lift == Lift::Auto && !self.keys.marked => {
                self.unsplit()?;
                Ok(Completion::Value(e.value()))
            }
            _ => {
                self.malformed(e.place, "a completion whose key differs from its invocation's", |this| {
                    format!("index {} completes index {} ({})", e.index, open.index, this.place(open.place))
                })?;
                Ok(Completion::Value(pair(e.batch, e.value()).map_or(e.value(), |(_, v)| v)))
            }
        }
    }

    /// Puts split pairs together again: they were no keys.
    pub(super) fn unsplit(&mut self) -> Result<()> {
        self.keys.split = false;
        if self.keys.pairs == 0 {
            return Ok(());
        }
        self.keys.pairs = 0;
        for at in 0..self.chunks.len() {
            let keys_of = match &mut self.chunks[at] {
                Slot::Sealed(chunk) => {
                    unsplit_sealed(chunk, &mut self.shared, self.special.bare_nil)?;
                    continue;
                }
                Slot::Taken => continue,
                Slot::Open(chunk) => chunk.key.take(chunk.index.len()).unwrap_or_default(),
            };
            let chunk = open_chunk(&mut self.chunks, at)?;
            for (r, key) in keys_of.into_iter().enumerate().filter(|(_, k)| *k != Scalar::Nil) {
                let key = match key {
                    Scalar::Int(n) => Cell::Int(n),
                    Scalar::Text(t) => Cell::Text(t),
                    Scalar::Nil => Cell::Nil,
                };
                chunk.input[r] = chunk.pair(key, chunk.input[r]);
                if chunk.complete_index[r] != NO_INDEX {
                    let bare = chunk.output[r] == Cell::Text(self.special.bare_nil);
                    chunk.output[r] = if bare { Cell::Nil } else { chunk.pair(key, chunk.output[r]) };
                }
            }
        }
        Ok(())
    }

    /// A `:key` field becomes the operation's key, if it is the same on both events.
    pub(super) fn key_field(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        at: usize,
        r: usize,
        value: Cell,
    ) -> Result<bool> {
        if !matches!(value, Cell::Int(_) | Cell::Text(_)) {
            return Ok(false);
        }
        if self.keys.split {
            self.unsplit()?;
        }
        self.keys.form = KeyForm::Field;
        let key = self.scalar(e.batch, remap, value)?;
        let chunk = open_chunk(&mut self.chunks, at)?;
        let free = chunk.key.get(r) == Scalar::Nil;
        if free {
            chunk.key.set(r, key);
        }
        Ok(free || chunk.key.get(r) == key)
    }

    pub(super) fn decide_keys(&mut self) -> Result<()> {
        if !self.keys.split || self.keys.pairs == 0 || self.options.lift == Lift::Never {
            return Ok(());
        }
        let (lifted, reason) = match self.options.lift {
            Lift::Always => (true, "as asked"),
            _ if self.keys.marked => (true, "the source marks its values as keyed"),
            _ if self.keys.cas_misfit => {
                (false, "every value is a pair, but a cas on one key would need [k [old new]]")
            }
            _ if self.keys.nil_second => (true, "every client value is a pair [key value], and reads are [key nil]"),
            _ => (false, "every client value is a pair, but no [key nil] shows that they are keyed"),
        };
        self.shared.meta.key_reason = reason.into();
        if lifted { Ok(()) } else { self.unsplit() }
    }
}

pub(super) enum Completion {
    Bare,
    Value(Cell),
}

/// The two parts of a `[k v]` value whose first part is a scalar.
fn pair(batch: &EventBatch, cell: Cell) -> Option<(Cell, Cell)> {
    match cell {
        Cell::List(span) if span.len == 2 => {
            let ints = &batch.ints[span.range()];
            Some((Cell::Int(ints[0]), Cell::Int(ints[1])))
        }
        Cell::Seq(span) if span.len == 2 => {
            let cells = &batch.cells[span.range()];
            matches!(cells[0], Cell::Int(_) | Cell::Text(_)).then_some((cells[0], cells[1]))
        }
        _ => None,
    }
}

/// Puts the keys of a packed chunk back into its values.
fn unsplit_sealed(chunk: &mut Chunk, shared: &mut Shared, bare_nil: TextId) -> Result<()> {
    let (mut input, mut output) = (ValueBuilder::default(), ValueBuilder::default());
    for i in 0..chunk.len() {
        let key = chunk.key.get(i);
        let completed = chunk.complete_index.nulls().is_none_or(|n| n.is_valid(i));
        for (col, out, present) in [(&chunk.input, &mut input, true), (&chunk.output, &mut output, completed)] {
            match col.get(i) {
                v if key == Scalar::Nil || !present => out.value(v),
                ValueRef::Text(t) if t == bare_nil => out.scalar(Scalar::Nil),
                v => {
                    let second = match v.scalar() {
                        Some(s) => s,
                        None => {
                            let mut text = String::new();
                            shared.write_value(v, &mut text);
                            Scalar::Text(intern(&mut shared.texts, &text)?)
                        }
                    };
                    out.list().item(key);
                    out.list().item(second);
                    out.end_list();
                }
            }
        }
    }
    chunk.key = ScalarCol::default();
    chunk.input = input.finish();
    chunk.output = output.finish();
    Ok(())
}
