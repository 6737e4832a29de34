//! Which came first, when a source has only times? Sorting, and gathering rows anew.
//!
//! Events are sorted by time; where times are equal, invocations come before completions, so that operations that touch
//! count as concurrent: the reading that accuses nobody falsely. An operation that timed out, with no time of completion,
//! ends where its process goes on, or at the end of all: its outcome is unknown, so the place says nothing.
//! O(n log n), and one more copy of the columns.

use std::collections::BTreeMap;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, PrimitiveArray, UInt16Array, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};

use crate::columns::{ExtraBuilder, ExtraCol, ScalarBuilder, ScalarCol, TxnCol, ValueBuilder, ValueCol};
use crate::error::{Place, ReadError, Result};
use crate::history::{CHUNK_ROWS, Chunk, Shared, Status};

/// A row: chunk, and row within it.
type At = (u32, u32);

/// The same operations with indices given by time.
pub(crate) fn by_time(
    chunks: Vec<Chunk>,
    shared: &mut Shared,
    lenient: bool,
    repairs: &mut BTreeMap<&'static str, (u64, String)>,
) -> Result<Vec<Chunk>> {
    let rows: Vec<At> =
        chunks.iter().enumerate().flat_map(|(c, chunk)| (0..chunk.len()).map(move |i| (c as u32, i as u32))).collect();
    const TIMED_OUT: u8 = 0;
    const INVOCATION: u8 = 1;
    const COMPLETION: u8 = 2;
    let mut events: Vec<(i64, u8, u32)> = Vec::with_capacity(rows.len() * 2);
    let mut timed_out = Vec::new();
    // Only the nemesis may lack times; its events stay with those that the source has before them.
    let mut last = i64::MIN;
    for (row, &at) in rows.iter().enumerate() {
        let (chunk, i) = (&chunks[at.0 as usize], at.1 as usize);
        let invoked = time(&chunk.invoke_time, i).unwrap_or(last);
        last = invoked;
        events.push((invoked, INVOCATION, row as u32));
        if chunk.complete_index.is_valid(i) {
            match time(&chunk.complete_time, i) {
                Some(t) => events.push((t, COMPLETION, row as u32)),
                None if !chunk.is_client(i) => events.push((invoked, COMPLETION, row as u32)),
                None => timed_out.push(row as u32),
            }
        }
    }
    if !timed_out.is_empty() {
        let next = next_invocation_of_process(&chunks, &rows);
        events.extend(timed_out.into_iter().map(|row| (next[row as usize], TIMED_OUT, row)));
    }
    events.sort_unstable();
    let mut index = vec![0u64; rows.len()];
    let mut complete_index = vec![u64::MAX; rows.len()];
    let mut order = Vec::with_capacity(rows.len());
    for (position, &(_, kind, row)) in events.iter().enumerate() {
        let column = if kind == INVOCATION { &mut index } else { &mut complete_index };
        column[row as usize] = position as u64;
        if kind == INVOCATION {
            order.push(row);
        }
    }
    one_operation_at_a_time(&chunks, &rows, &order, shared, lenient, repairs)?;
    let out = order
        .chunks(CHUNK_ROWS)
        .map(|part| {
            let at: Vec<At> = part.iter().map(|&r| rows[r as usize]).collect();
            let mut chunk = gather(&chunks, &at);
            chunk.index = part.iter().map(|&r| index[r as usize]).collect::<Vec<_>>().into();
            chunk.complete_index = UInt64Array::from_iter(
                part.iter().map(|&r| Some(complete_index[r as usize]).filter(|&i| i != u64::MAX)),
            );
            chunk
        })
        .collect();
    Ok(out)
}

fn time(column: &Option<arrow_array::Int64Array>, i: usize) -> Option<i64> {
    column.as_ref().filter(|a| a.is_valid(i)).map(|a| a.value(i))
}

/// For each row, when its process invokes next; the end of time if never.
fn next_invocation_of_process(chunks: &[Chunk], rows: &[At]) -> Vec<i64> {
    let mut by_process: Vec<(i64, i64, u32)> = Vec::with_capacity(rows.len());
    for (row, &(c, i)) in rows.iter().enumerate() {
        let (chunk, i) = (&chunks[c as usize], i as usize);
        if chunk.process.is_valid(i) {
            by_process.push((chunk.process.value(i), time(&chunk.invoke_time, i).unwrap_or(0), row as u32));
        }
    }
    by_process.sort_unstable();
    let mut next = vec![i64::MAX; rows.len()];
    for pair in by_process.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        next[pair[0].2 as usize] = pair[1].1;
    }
    next
}

/// Refuses a process that invokes before its last operation completed.
fn one_operation_at_a_time(
    chunks: &[Chunk],
    rows: &[At],
    order: &[u32],
    shared: &Shared,
    lenient: bool,
    repairs: &mut BTreeMap<&'static str, (u64, String)>,
) -> Result<()> {
    let mut last: hashbrown::HashMap<i64, u32, foldhash::fast::FixedState> = hashbrown::HashMap::default();
    for &row in order {
        let of = |row: u32| (&chunks[rows[row as usize].0 as usize], rows[row as usize].1 as usize);
        let (chunk, i) = of(row);
        if chunk.process.is_null(i) {
            continue;
        }
        let Some(before) = last.insert(chunk.process.value(i), row) else { continue };
        let (previous, j) = of(before);
        let pending = previous.status[j] == Status::Pending as u8;
        let overlaps =
            time(&previous.complete_time, j).is_some_and(|end| time(&chunk.invoke_time, i).is_some_and(|t| t < end));
        if !pending && !overlaps {
            continue;
        }
        let kind = "a process invokes while its operation is open";
        let place = Place::Row(u64::from(row) + 1);
        if lenient {
            repairs.entry(kind).or_insert((0, place.to_string())).0 += 1;
            continue;
        }
        let name = |chunk: &Chunk, i: usize| {
            if chunk.f.is_valid(i) { shared.functions.get(u32::from(chunk.f.value(i))) } else { "an operation" }
        };
        return Err(ReadError::new(format!(
            "malformed history: {kind}: process {} invokes {} at {} ns but its {} (row {}, invoked at {} ns) has not completed",
            chunk.process.value(i),
            name(chunk, i),
            time(&chunk.invoke_time, i).unwrap_or(0),
            name(previous, j),
            before + 1,
            time(&previous.invoke_time, j).unwrap_or(0),
        ))
        .at(place)
        .hint("--lenient repairs what it can and says what it repaired"));
    }
    Ok(())
}

/// These rows, in this order, as a chunk of their own.
pub(crate) fn gather(chunks: &[Chunk], rows: &[At]) -> Chunk {
    let required = |column: fn(&Chunk) -> &UInt64Array| primitive(chunks, rows, |c| Some(column(c)));
    Chunk {
        index: required(|c| &c.index).unwrap_or_else(|| UInt64Array::new_null(rows.len())),
        complete_index: required(|c| &c.complete_index).unwrap_or_else(|| UInt64Array::new_null(rows.len())),
        process: primitive(chunks, rows, |c| Some(&c.process)).unwrap_or_else(|| PrimitiveArray::new_null(rows.len())),
        actor: primitive(chunks, rows, |c| c.actor.as_ref()),
        status: rows.iter().map(|&(c, i)| chunks[c as usize].status[i as usize]).collect(),
        f: primitive(chunks, rows, |c| Some(&c.f)).unwrap_or_else(|| UInt16Array::new_null(rows.len())),
        invoke_time: primitive(chunks, rows, |c| c.invoke_time.as_ref()),
        complete_time: primitive(chunks, rows, |c| c.complete_time.as_ref()),
        key: scalars(chunks, rows, |c| &c.key),
        input: values(chunks, rows, |c| &c.input),
        output: values(chunks, rows, |c| &c.output),
        txn: txns(chunks, rows),
        error: primitive(chunks, rows, |c| c.error.as_ref()),
        node: primitive(chunks, rows, |c| c.node.as_ref()),
        fault_epoch: primitive(chunks, rows, |c| c.fault_epoch.as_ref()),
        extra: extras(chunks, rows, |c| c.extra.as_ref()),
        invoke_extra: extras(chunks, rows, |c| c.invoke_extra.as_ref()),
    }
}

/// A column of the rows, or `None` where none of them has a value.
fn primitive<T: ArrowPrimitiveType>(
    chunks: &[Chunk],
    rows: &[At],
    column: impl for<'a> Fn(&'a Chunk) -> Option<&'a PrimitiveArray<T>>,
) -> Option<PrimitiveArray<T>> {
    let gathered =
        PrimitiveArray::<T>::from_iter(rows.iter().map(|&(c, i)| {
            column(&chunks[c as usize]).filter(|a| a.is_valid(i as usize)).map(|a| a.value(i as usize))
        }));
    match gathered.null_count() {
        n if n == rows.len() => None,
        0 => Some(PrimitiveArray::new(gathered.values().clone(), None)),
        _ => Some(gathered),
    }
}

fn scalars(chunks: &[Chunk], rows: &[At], column: impl for<'a> Fn(&'a Chunk) -> &'a ScalarCol) -> ScalarCol {
    if chunks.iter().all(|c| column(c).is_void()) {
        return ScalarCol::default();
    }
    let mut out = ScalarBuilder::with_capacity(rows.len());
    rows.iter().for_each(|&(c, i)| out.push(column(&chunks[c as usize]).get(i as usize)));
    out.finish()
}

fn values(chunks: &[Chunk], rows: &[At], column: impl for<'a> Fn(&'a Chunk) -> &'a ValueCol) -> ValueCol {
    let mut out = ValueBuilder::default();
    rows.iter().for_each(|&(c, i)| out.value(column(&chunks[c as usize]).get(i as usize)));
    out.finish()
}

fn txns(chunks: &[Chunk], rows: &[At]) -> Option<TxnCol> {
    let of = |&(c, i): &At| chunks[c as usize].txn.as_ref().and_then(|t| t.get(i as usize));
    if rows.iter().all(|at| of(at).is_none()) {
        return None;
    }
    let (mut offsets, mut f, mut known) = (vec![0i32], Vec::new(), Vec::new());
    let (mut key, mut value) = (ScalarBuilder::default(), ValueBuilder::default());
    for txn in rows.iter().map(of) {
        for mop in txn.iter().flat_map(|t| t.iter()) {
            f.push(mop.f);
            key.push(mop.key);
            value.value(mop.value);
            known.push(mop.known);
        }
        offsets.push(f.len() as i32);
    }
    let nulls = NullBuffer::from_iter(rows.iter().map(|at| of(at).is_some()));
    Some(TxnCol {
        offsets: OffsetBuffer::new(offsets.into()),
        nulls: (nulls.null_count() > 0).then_some(nulls),
        f: f.into(),
        key: key.finish(),
        value: value.finish(),
        known: known.into(),
    })
}

fn extras(
    chunks: &[Chunk],
    rows: &[At],
    column: impl for<'a> Fn(&'a Chunk) -> Option<&'a ExtraCol>,
) -> Option<ExtraCol> {
    let mut out = ExtraBuilder::default();
    for &(c, i) in rows {
        for (name, value) in column(&chunks[c as usize]).into_iter().flat_map(|x| x.get(i as usize)) {
            out.field(name, value);
        }
        out.end();
    }
    out.finish()
}
