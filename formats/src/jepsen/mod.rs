//! What happened in this Jepsen run? Reads what Jepsen leaves behind in its binary formats.
//!
//! `test.jepsen` is a container of checksummed blocks whose contents are [Fressian](fressian) objects; the history
//! lies in chunks of 16,384 operations. Its events are handed over in batches, so memory is bounded by the batch and by
//! the largest single operation (version 1), and the file itself is best mapped. The older `test.fressian` is one object.
//!
//! A run that crashed leaves a torn file: what is whole in it is read, and the summary says where the rest begins. A
//! block that is whole but damaged is an error that names it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blocks;
#[cfg(test)]
mod encode;
pub mod fressian;
mod ops;
pub mod store;
#[cfg(test)]
mod tests;

pub use blocks::Torn;
pub use store::{Source, StoreDir, locate};

use crate::error::{ReadError, Result};
use crate::event::EventBatch;
use crate::value::Value;
use blocks::{Block, BlockKind, Container, block_ref};
use fressian::{Decoder, clip};
use ops::Emitter;
use std::collections::HashSet;

/// Big vectors of big vectors deeper than this are refused; Jepsen writes one level.
const MAX_NESTED_VECTORS: usize = 4;

/// What a file says about its run, beside the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestSummary {
    /// The container's version; `None` for a `test.fressian`, which has none.
    pub version: Option<i32>,
    /// The test's name.
    pub name: Option<String>,
    /// When the run began, as written.
    pub start_time: Option<String>,
    /// Are there results? A run that crashed has none.
    pub has_results: bool,
    /// The results' `:valid?`.
    pub valid: Option<Value>,
    /// How many events the history has.
    pub events: u64,
    /// Where the whole part of a torn file ends; `None` if the file is whole.
    pub torn: Option<Torn>,
}

impl TestSummary {
    fn take(&mut self, key: &str, value: &Value) {
        match (key, value) {
            ("name", name) => self.name = name.as_name().map(str::to_string),
            ("start-time", Value::Tagged(_, time)) => self.start_time = time.as_name().map(str::to_string),
            ("start-time", time) => self.start_time = time.as_name().map(str::to_string),
            _ => {}
        }
    }
}

/// Reads a `test.jepsen`: hands its events to `sink` in order, a few thousand at a time in one reused batch.
pub fn read(bytes: &[u8], sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<TestSummary> {
    let mut file = Container::open(bytes)?;
    let root = file.root()?;
    let mut summary = TestSummary { version: Some(file.version), ..TestSummary::default() };
    for key in ["name", "start-time"] {
        if let Some(value) = root.get(key) {
            summary.take(key, value);
        }
    }
    summarize_results(&file, &root, &mut summary)?;
    let mut emitter = Emitter::new(sink);
    if let Some(history) = root.get("history") {
        emit_history(&file, history, &mut emitter)?;
    }
    let listed = emitter.events;
    emit_tail(&file, &mut emitter)?;
    summary.events = emitter.finish()?;
    summary.torn = file.torn.take().map(|torn| Torn { recovered: summary.events - listed, ..torn });
    Ok(summary)
}

/// The `:results` of a `test.jepsen`, whole; `None` when the run has none.
pub fn results(bytes: &[u8]) -> Result<Option<Value>> {
    let file = Container::open(bytes)?;
    let root = file.root()?;
    match root.get("results") {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => match block_ref(value) {
            Some(0) => Ok(None),
            Some(id) => file.whole_map(id).map(Some),
            None => Ok(Some(value.clone())),
        },
    }
}

fn summarize_results(file: &Container<'_>, root: &Value, summary: &mut TestSummary) -> Result<()> {
    let results = root.get("results").filter(|v| **v != Value::Nil);
    match results.map(|v| (v, block_ref(v))) {
        None | Some((_, Some(0))) => {}
        Some((_, Some(id))) => {
            summary.has_results = true;
            summary.valid = file.entry(id, "valid?")?;
        }
        Some((inline, None)) => {
            summary.has_results = true;
            summary.valid = inline.get("valid?").cloned();
        }
    }
    Ok(())
}

fn emit_history(file: &Container<'_>, history: &Value, emitter: &mut Emitter<'_>) -> Result<()> {
    match (block_ref(history), history) {
        (Some(id), _) => emit_block(file, id, &mut HashSet::new(), 0, emitter),
        (None, Value::Vector(ops)) => ops.iter().try_for_each(|op| emitter.value(op)),
        (None, Value::Nil) => Ok(()),
        (None, other) => Err(ReadError::new(format!("the test's :history is {}, not operations", clip(other)))),
    }
}

/// The operations in a block and in those it refers to, each of which may be referred to once.
fn emit_block(
    file: &Container<'_>,
    id: i32,
    seen: &mut HashSet<i32>,
    depth: usize,
    emitter: &mut Emitter<'_>,
) -> Result<()> {
    let Some(block) = file.block(id)? else { return Ok(()) };
    if !seen.insert(id) || depth > MAX_NESTED_VECTORS {
        return Err(ReadError::new(format!("the history refers to block {id} more than once or too deep")));
    }
    match block.kind {
        BlockKind::Fressian => emitter.list(&mut block.decoder(0)),
        BlockKind::Stream => emitter.stream(&mut block.decoder(0)),
        BlockKind::BigVector => emit_chunks(file, id, &block, seen, depth, emitter),
        kind => Err(ReadError::new(format!("block {id} of the history is of kind {kind:?}"))),
    }
}

fn emit_chunks(
    file: &Container<'_>,
    id: i32,
    vector: &Block<'_>,
    seen: &mut HashSet<i32>,
    depth: usize,
    emitter: &mut Emitter<'_>,
) -> Result<()> {
    let (count, chunks) = blocks::chunks(vector)?;
    let base = emitter.events;
    let in_place = |first: i64, emitter: &Emitter<'_>| {
        let have = emitter.events - base;
        if u64::try_from(first) == Ok(have) {
            return Ok(());
        }
        Err(ReadError::new(format!("block {id} says that {first} operations stand before a point, and {have} do")))
    };
    for (first, chunk) in chunks {
        in_place(first, emitter)?;
        emit_block(file, chunk, seen, depth + 1, emitter)?;
    }
    in_place(count, emitter)
}

/// Operations in whole blocks that were written after the last index: a chunk that goes on where the listed history
/// ends, or (version 0) the whole history.
fn emit_tail(file: &Container<'_>, emitter: &mut Emitter<'_>) -> Result<()> {
    for block in &file.tail {
        match block.kind {
            BlockKind::Stream if continues(block, emitter.events)? => emitter.stream(&mut block.decoder(0))?,
            BlockKind::Fressian if file.version == 0 && emitter.events == 0 && holds_list(block) => {
                emitter.list(&mut block.decoder(0))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn continues(chunk: &Block<'_>, events: u64) -> Result<bool> {
    let mut dec = chunk.decoder(0);
    if dec.at_end()? {
        return Ok(false);
    }
    let first = dec.read()?;
    Ok(first.get("index").and_then(Value::as_int).is_some_and(|n| u64::try_from(n) == Ok(events)))
}

fn holds_list(block: &Block<'_>) -> bool {
    matches!(block.data.first(), Some(0xE4..=0xEE))
}

/// Reads a `test.fressian`, what older Jepsens left: one map of the whole test, its history in `:history`.
pub fn read_fressian(bytes: &[u8], sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<TestSummary> {
    let mut dec = Decoder::new(bytes, 0);
    let mut summary = TestSummary::default();
    let mut emitter = Emitter::new(sink);
    let not_a_test = |what: &str| {
        ReadError::new(format!("this is no Fressian file of a Jepsen test: {what}"))
            .hint("a test is a map with a :history")
    };
    if dec.peek()? != 0xC0 {
        return Err(not_a_test("it does not begin with a map"));
    }
    dec.skip(1);
    let Some(mut extent) = dec.try_any_list()? else { return Err(not_a_test("its map is not made of a list")) };
    let mut has_history = false;
    while dec.more(&mut extent)? {
        let key = dec.read()?;
        if !dec.more(&mut extent)? {
            return Err(not_a_test("a key has no value"));
        }
        if key == Value::keyword("history") {
            has_history = true;
            emitter.list(&mut dec)?;
            continue;
        }
        let value = dec.read()?;
        match key.as_name() {
            Some("results") if value != Value::Nil => {
                summary.has_results = true;
                summary.valid = value.get("valid?").cloned();
            }
            Some(name) => summary.take(name, &value),
            None => {}
        }
    }
    if !has_history {
        return Err(not_a_test("it has no :history"));
    }
    summary.events = emitter.finish()?;
    Ok(summary)
}
