//! Are the values of this history `[key value]` pairs, as `jepsen.independent` writes them?
//!
//! Nothing in EDN tells such a pair from any other vector of two. So pairs are stored split for as long as every client
//! value is one. An invocation that is none ends that, and pairs are put together again, unless what came before shows
//! keys: reads of `[k nil]`, a cas of `[k [old new]]`. Then one without any value is an operation without a key, and one with
//! another value contradicts them (a map's `get k` beside its `cas [k [old new]]`). What a
//! completion says that is not ok, and is no pair of its invocation's key, says nothing and is kept aside.
//!
//! Where the evidence contradicts itself, the history bears a doubt, and whoever would judge registers must refuse.

use super::{At, HistoryBuilder, Lift, NO_CODE, NO_INDEX, OpenOp, Remap, Slot, Special, intern, open_chunk};
use crate::columns::{Scalar, ScalarCol, ValueBuilder, ValueRef};
use crate::error::Result;
use crate::event::{Cell, EventBatch, EventType, TextId};
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
    /// A cas of `[k [old new]]`?
    pub(super) cas_fit: bool,
    pub(super) cas_misfit: bool,
    pub(super) pairs: u64,
    /// Where an event's value looked keyed although pairs are not stored split, and why.
    pub(super) doubt: Option<(u64, &'static str)>,
}

impl Keys {
    /// Did anything show keys beyond doubt?
    fn shown(&self) -> bool {
        self.marked || (self.nil_second || self.cas_fit) && !self.cas_misfit
    }
}

impl HistoryBuilder {
    /// The key and value of a client's invocation.
    pub(super) fn split(&mut self, e: &At<'_>, remap: &mut Remap) -> Result<(Scalar, Cell)> {
        if !self.keys.split {
            self.look_keyed(e);
            return Ok((Scalar::Nil, e.value()));
        }
        match pair(e.batch, e.value(), self.options.lift) {
            Some((key, value)) => {
                let key = self.scalar(e.batch, remap, key)?;
                self.keys.pairs += 1;
                self.keys.nil_second |= value == Cell::Nil;
                if self.function_is(e.f, "cas") && value != Cell::Nil {
                    let fits = pair(e.batch, value, Lift::Always).is_some();
                    self.keys.cas_fit |= fits;
                    self.keys.cas_misfit |= !fits;
                }
                Ok((key, value))
            }
            None => {
                let contradicts = self.keys.shown() && !self.keys.marked && e.value() != Cell::Nil;
                if self.options.lift == Lift::Auto && (contradicts || !self.keys.shown()) {
                    if contradicts {
                        let what =
                            "an invocation with [k nil] or [k [old new]], but another with a value that is no pair";
                        self.keys.doubt = Some((e.place, what));
                    }
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
        match pair(e.batch, e.value(), self.options.lift) {
            Some((k, value)) if self.scalar(e.batch, remap, k)? == key => Ok(Completion::Value(value)),
            _ if e.value() == Cell::Nil => Ok(Completion::Bare),
            _ if e.batch.kind[e.i] != EventType::Ok => Ok(Completion::Aside(self.cell_text(e, remap, e.value())?)),
            _ if self.options.lift == Lift::Auto && !self.keys.marked => {
                if self.keys.shown() {
                    self.keys.doubt =
                        Some((e.place, "a read of [k nil] or the like, but an ok value that is no such pair"));
                }
                self.unsplit()?;
                Ok(Completion::Value(e.value()))
            }
            _ => {
                self.malformed(e.place, "a completion whose key differs from its invocation's", |this| {
                    format!("index {} completes index {} ({})", e.index, open.index, this.place(open.place))
                })?;
                Ok(Completion::Value(pair(e.batch, e.value(), self.options.lift).map_or(e.value(), |(_, v)| v)))
            }
        }
    }

    /// Notes an invocation that looks keyed where pairs are not split any more.
    fn look_keyed(&mut self, e: &At<'_>) {
        if self.options.lift != Lift::Auto || self.keys.doubt.is_some() || !matches!(e.value(), Cell::Seq(_)) {
            return;
        }
        let Some((_, value)) = pair(e.batch, e.value(), Lift::Auto) else { return };
        let keyed_cas = self.function_is(e.f, "cas") && pair(e.batch, value, Lift::Always).is_some();
        if value == Cell::Nil || keyed_cas {
            self.keys.doubt = Some((e.place, "a value like [k nil] or [k [old new]], but earlier ones are no pairs"));
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
                    unsplit_sealed(chunk, &mut self.shared, &self.special)?;
                    continue;
                }
                Slot::Taken => continue,
                Slot::Open(chunk) => chunk.key.take(chunk.index.len()).unwrap_or_default(),
            };
            for (r, key) in keys_of.into_iter().enumerate().filter(|(_, k)| *k != Scalar::Nil) {
                self.unsplit_row(at, r, key)?;
            }
        }
        Ok(())
    }

    fn unsplit_row(&mut self, at: usize, r: usize, key: Scalar) -> Result<()> {
        let key = match key {
            Scalar::Int(n) => Cell::Int(n),
            Scalar::Text(t) => Cell::Text(t),
            Scalar::Nil => Cell::Nil,
        };
        let special = (self.special.value, Cell::Text(self.special.bare_nil));
        let chunk = open_chunk(&mut self.chunks, at)?;
        let input = chunk.pair(key, chunk.input.get(r))?;
        chunk.input.set(r, input);
        if chunk.complete_index[r] == NO_INDEX {
            return Ok(());
        }
        if !chunk.output.is(r, special.1) {
            let output = chunk.pair(key, chunk.output.get(r))?;
            chunk.output.set(r, output);
            return Ok(());
        }
        chunk.output.set(r, Cell::Nil);
        let aside = chunk.extra.iter().position(|&(row, name, _)| (row as usize, name) == (r, special.0));
        let Some(aside) = aside else { return Ok(()) };
        // There is no key any more that it could contradict.
        let (_, _, text) = chunk.extra.remove(aside);
        let text = self.shared.texts.get(text).to_string();
        let output = self.import_text(at, &text)?;
        self.store_output(at, r, output)
    }

    /// A `:key` field that is not nil becomes the operation's key; says whether it did.
    pub(super) fn key_field(&mut self, e: &At<'_>, remap: &mut Remap, row: u64, value: Cell) -> Result<bool> {
        if value == Cell::Nil {
            return Ok(false);
        }
        if self.keys.split {
            self.unsplit()?;
        }
        self.keys.form = KeyForm::Field;
        let key = self.scalar(e.batch, remap, value)?;
        let (chunk, r) = self.open_row(row)?;
        let before = chunk.key.get(r);
        if before == Scalar::Nil {
            chunk.key.set(r, key);
        }
        if before == Scalar::Nil || before == key {
            return Ok(true);
        }
        self.malformed(e.place, "a completion whose key differs from its invocation's", |_| {
            format!("index {} completes an operation on another key", e.index)
        })?;
        Ok(false)
    }

    /// Decides, at the end, whether pairs that are stored split are keys and values.
    pub(super) fn decide_keys(&mut self) -> Result<()> {
        self.judge_keys()?;
        if let (Some((place, what)), Lift::Auto) = (self.keys.doubt, self.options.lift) {
            self.doubt(&format!("are values keyed? there is {what}; say --independent or --no-independent"), place);
        }
        Ok(())
    }

    fn judge_keys(&mut self) -> Result<()> {
        let keys = &self.keys;
        if keys.split && keys.cas_misfit && (keys.nil_second || keys.cas_fit) {
            self.keys.doubt = Some((0, "reads of [k nil], but a cas that is no [k [old new]]"));
        }
        if !self.keys.split || self.keys.pairs == 0 || self.options.lift == Lift::Never {
            return Ok(());
        }
        let (lifted, reason) = match self.options.lift {
            Lift::Always => (true, "as asked"),
            _ if self.keys.marked => (true, "the source marks its values as keyed"),
            _ if self.keys.cas_misfit => {
                (false, "every value is a pair, but a cas on one key would need [k [old new]]")
            }
            _ if self.keys.cas_fit && !self.keys.nil_second => {
                (true, "every client value is a pair [key value], and a cas is [key [old new]]")
            }
            _ if self.keys.nil_second => (true, "every client value is a pair [key value], and reads are [key nil]"),
            _ => {
                self.keys.doubt = Some((0, "a pair in every client value, but nothing that shows keys"));
                (false, "every client value is a pair, but no [key nil] shows that they are keyed")
            }
        };
        self.shared.meta.key_reason = reason.into();
        if lifted { Ok(()) } else { self.unsplit() }
    }
}

pub(super) enum Completion {
    /// An explicit nil, without a key.
    Bare,
    /// Something else without the operation's key, as EDN text.
    Aside(TextId),
    Value(Cell),
}

/// The two parts of a `[k v]` value. Keys that are collections are only seen where keys were asked for.
fn pair(batch: &EventBatch, cell: Cell, lift: Lift) -> Option<(Cell, Cell)> {
    match cell {
        Cell::List(span) if span.len == 2 => {
            let ints = &batch.ints[span.range()];
            Some((Cell::Int(ints[0]), Cell::Int(ints[1])))
        }
        Cell::Seq(span) if span.len == 2 => {
            let cells = &batch.cells[span.range()];
            let is_scalar = matches!(cells[0], Cell::Int(_) | Cell::Text(_));
            (is_scalar || lift == Lift::Always && cells[0] != Cell::Nil).then_some((cells[0], cells[1]))
        }
        _ => None,
    }
}

/// Puts the keys of a packed chunk back into its values.
fn unsplit_sealed(chunk: &mut Chunk, shared: &mut Shared, special: &Special) -> Result<()> {
    let (mut input, mut output) = (ValueBuilder::default(), ValueBuilder::default());
    for i in 0..chunk.len() {
        let key = chunk.key.get(i);
        let completed = chunk.complete_index.nulls().is_none_or(|n| n.is_valid(i));
        for (col, out, present) in [(&chunk.input, &mut input, true), (&chunk.output, &mut output, completed)] {
            match col.get(i) {
                v if key == Scalar::Nil || !present => out.value(v),
                ValueRef::Text(t) if t == special.bare_nil => {
                    let aside = chunk.extra.as_ref().is_some_and(|x| x.get(i).any(|(n, _)| n == special.value));
                    out.scalar(if aside { Scalar::Text(t) } else { Scalar::Nil });
                }
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
