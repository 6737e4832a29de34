//! The columnar form on disk: a history as a Parquet or Arrow IPC file, and the way back.
//!
//! One row an operation, real types, no blobs, so that DuckDB, Polars and pandas can ask a history questions. The
//! [`Plan`] says which shape each column has; it is taken over all chunks, so that a register history is plain integers
//! and nothing else. Texts are plain strings where all of a column are strings, canonical EDN where not. Nothing is
//! lost: what is read back is the same history.
//!
//! Parquet is for keeping: small, checksummed, read in parallel by row groups. Arrow IPC is for checking again and
//! again: its columns are used where they lie in the mapped file. Files of others are read too, whatever their integer
//! widths and string types; see [`read_parquet`].

mod check;
mod ipc;
mod meta;
mod parquet;
mod read;
mod records;
mod schema;
mod thrift;
mod write;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use arrow_array::Array;

pub use ipc::{read_ipc, read_ipc_bytes, write_ipc};
pub use parquet::{ParquetWriter, read_parquet, read_parquet_bytes, write_parquet};
pub use records::{is_default_schema_parquet, read_default_schema_parquet};
pub use schema::Plan;
pub use write::WholeFile;

use crate::columns::{ListCol, ScalarCol, ValueCol, array_bytes};
use crate::history::Chunk;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of Arrow's crates; if it should panic on a damaged file, that is no more than `None`.
pub(super) fn guarded_run<T>(f: impl FnOnce() -> T) -> Option<T> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f)).ok();
    GUARDED.set(before);
    result
}

/// Keeps panics that the readers of columnar files catch, and turn into errors, from being printed. For a program to
/// call once, as the hook for panics is the whole process's.
pub fn silence_caught_panics() {
    let otherwise = take_hook();
    set_hook(Box::new(move |info| {
        if !GUARDED.get() {
            otherwise(info);
        }
    }));
}

/// How to write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Compression; `None` leaves the choice to the format: zstd for Parquet, none for Arrow IPC.
    pub compression: Option<Compression>,
    /// The shape of the workload (`register`, `list-append`, …), noted in the file for those who read it.
    pub workload: Option<String>,
}

/// Compression of a columnar file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None: an Arrow IPC file is then used where it is mapped.
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard at its fastest level: small.
    Zstd,
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// Threads to read with; 0 for as many as there are processors.
    pub threads: usize,
    /// Note what is malformed in [`Meta::repairs`](crate::history::Meta::repairs) instead of refusing it, where the
    /// columns can still be read.
    pub lenient: bool,
}

/// Bytes of memory that a chunk's columns take, its own part of shared buffers only.
pub(crate) fn chunk_bytes(c: &Chunk) -> usize {
    fn of<A: Array>(a: &Option<A>) -> usize {
        a.as_ref().map_or(0, |a| array_bytes(a))
    }
    let txn = c.txn.as_ref().map_or(0, |t| {
        let (at, len) = span(&t.offsets);
        t.offsets.len() * 4
            + len * 2
            + len.div_ceil(8)
            + scalar_bytes(&t.key.slice(at, len))
            + value_bytes(&t.value.slice(at, len))
    });
    let extra = [&c.extra, &c.invoke_extra].into_iter().flatten().map(|x| x.offsets.len() * 4 + span(&x.offsets).1 * 8);
    [array_bytes(&c.index), array_bytes(&c.complete_index), array_bytes(&c.process), c.status.len(), array_bytes(&c.f)]
        .into_iter()
        .chain([of(&c.actor), of(&c.invoke_time), of(&c.complete_time), of(&c.error), of(&c.node), of(&c.fault_epoch)])
        .chain([scalar_bytes(&c.key), value_bytes(&c.input), value_bytes(&c.output), txn])
        .chain(extra)
        .sum()
}

fn scalar_bytes(s: &ScalarCol) -> usize {
    s.ints.as_ref().map_or(0, |a| array_bytes(a)) + s.texts.as_ref().map_or(0, |a| array_bytes(a))
}

fn value_bytes(v: &ValueCol) -> usize {
    let lists = [&v.lists, &v.sets].into_iter().flatten().map(list_bytes);
    scalar_bytes(&v.scalars) + lists.sum::<usize>()
}

fn list_bytes(l: &ListCol) -> usize {
    let (at, len) = l.extent();
    l.rows() * 8 + l.rows().div_ceil(8) + scalar_bytes(&l.items.slice(at, len))
}

/// First element and number of elements that offsets cover.
pub(crate) fn span(offsets: &[i32]) -> (usize, usize) {
    let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
    (first as usize, (last - first) as usize)
}
