//! Could these columns have been recorded? What a hostile or damaged file can break, checked at about a nanosecond a row.
//!
//! Indices ascend and completions follow their invocations: two passes that vectorize. Processes do one thing at a time
//! and time does not run backwards within one: a table of the last operation of each process, direct-mapped for small
//! numbers. An operation may begin before the one before it completed only if it touches it in time, for where times are
//! equal recorders put invocations first.

use std::collections::BTreeMap;

use arrow_array::{Array, Int64Array};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::error::{Place, ReadError, Result};
use crate::history::{Chunk, Shared, Status};

/// Processes below this number have a place of their own.
const SMALL: usize = 1 << 12;

/// The last operation of a process.
#[derive(Clone, Copy)]
struct Last {
    /// Event index of its completion; `u64::MAX` if it is still open, 0 if it was given up.
    end: u64,
    /// The latest time at which the process was seen.
    time: i64,
    row: u64,
}

const FRESH: Last = Last { end: 0, time: i64::MIN, row: 0 };

struct Checker<'a> {
    chunks: &'a [Chunk],
    shared: &'a Shared,
    lenient: bool,
    repairs: BTreeMap<&'static str, (u64, String)>,
    small: Vec<Last>,
    large: HashMap<i64, Last, FixedState>,
}

/// Refuses what cannot have been recorded; with `lenient`, notes it.
pub(super) fn sound(chunks: &[Chunk], shared: &mut Shared, lenient: bool) -> Result<()> {
    // What a builder repaired stays as it is: the file says so.
    let lenient = lenient || !shared.meta.repairs.is_empty();
    let mut checker = Checker {
        chunks,
        shared,
        lenient,
        repairs: BTreeMap::new(),
        small: vec![FRESH; SMALL],
        large: HashMap::default(),
    };
    let (mut row, mut before) = (0, None);
    for chunk in chunks {
        indices(chunk, row, before)?;
        checker.completions(chunk, row)?;
        checker.processes(chunk, row)?;
        row += chunk.len() as u64;
        before = chunk.index().last().copied().or(before);
    }
    let repairs: Vec<String> =
        checker.repairs.iter().map(|(kind, (n, first))| format!("{kind}: {n} (first at {first})")).collect();
    if shared.meta.repairs.is_empty() {
        shared.meta.repairs = repairs;
    }
    Ok(())
}

/// Indices must ascend, leniently or not: rows are found by them.
fn indices(chunk: &Chunk, row: u64, before: Option<u64>) -> Result<()> {
    let index = chunk.index();
    let error = |i: usize, a: u64, b: u64| {
        ReadError::new(format!(
            "malformed history: a duplicate or falling index: index {b} comes after index {a} (row {})",
            row + i as u64
        ))
        .at(Place::Row(row + i as u64 + 1))
        .hint("rows of the columnar form are ordered by `index`")
    };
    if let (Some(before), Some(&first)) = (before, index.first())
        && before >= first
    {
        return Err(error(0, before, first));
    }
    // A fold, not a search: it vectorizes.
    if index.windows(2).fold(false, |bad, w| bad | (w[0] >= w[1])) {
        let at = index.windows(2).position(|w| w[0] >= w[1]).unwrap_or(0);
        return Err(error(at + 1, index[at], index[at + 1]));
    }
    match index.last() {
        Some(&last) if last >= i64::MAX as u64 => {
            Err(ReadError::new(format!("index {last} is beyond 63 bits")).at(Place::Row(row + index.len() as u64)))
        }
        _ => Ok(()),
    }
}

fn time(column: &Option<Int64Array>, i: usize) -> Option<i64> {
    column.as_ref().filter(|a| a.is_valid(i)).map(|a| a.value(i))
}

impl Checker<'_> {
    fn malformed(&mut self, row: u64, kind: &'static str, detail: impl FnOnce(&Self) -> String) -> Result<()> {
        let place = Place::Row(row + 1);
        if self.lenient {
            self.repairs.entry(kind).or_insert((0, place.to_string())).0 += 1;
            return Ok(());
        }
        Err(ReadError::new(format!("malformed history: {kind}: {}", detail(self)))
            .at(place)
            .hint("--lenient repairs what it can and says what it repaired"))
    }

    fn completions(&mut self, chunk: &Chunk, row: u64) -> Result<()> {
        let ends = chunk.complete_index.values();
        let pairs = || chunk.index().iter().zip(ends.iter());
        let early = pairs().fold(false, |bad, (i, end)| bad | (end <= i));
        let pending = chunk.status.iter().fold(false, |any, &s| any | (s == Status::Pending as u8));
        let completed = chunk.complete_index.null_count() < chunk.len();
        let suspicious = early || (pending && completed);
        if !suspicious {
            return Ok(());
        }
        for (i, (&from, &to)) in pairs().enumerate().filter(|&(i, _)| chunk.complete_index.is_valid(i)) {
            if to <= from {
                let what = format!("index {to} completes index {from}, which is not before it");
                return Err(ReadError::new(format!("malformed history: a completion before its invocation: {what}"))
                    .at(Place::Row(row + i as u64 + 1)));
            }
            if chunk.status[i] == Status::Pending as u8 {
                self.malformed(row + i as u64, "a pending operation that completes", |_| {
                    format!("index {from} is pending, yet completes at index {to}")
                })?;
            }
        }
        Ok(())
    }

    fn processes(&mut self, chunk: &Chunk, row: u64) -> Result<()> {
        if chunk.process.null_count() == chunk.len() {
            return Ok(());
        }
        let dense = chunk.process.null_count() == 0;
        let ended = chunk.complete_index.null_count() == 0;
        let untimed = |a: &Option<Int64Array>| a.as_ref().is_none_or(|a| a.null_count() > 0);
        let whole = dense && ended && !untimed(&chunk.invoke_time) && !untimed(&chunk.complete_time);
        let (Some(begins), Some(ends), true) = (&chunk.invoke_time, &chunk.complete_time, whole) else {
            return (0..chunk.len())
                .filter(|&i| dense || chunk.process.is_valid(i))
                .try_for_each(|i| self.row(chunk, i, row));
        };
        let columns = chunk.process.values().iter().zip(chunk.index()).zip(chunk.complete_index.values());
        let times = begins.values().iter().zip(ends.values());
        for (i, (((&p, &index), &end), (&from, &to))) in columns.zip(times).enumerate() {
            let Some(last) = self.small.get_mut(p as usize) else {
                self.row(chunk, i, row)?;
                continue;
            };
            if index < last.end || from < last.time || to < from {
                self.row(chunk, i, row)?;
                continue;
            }
            *last = Last { end, time: to, row: row + i as u64 };
        }
        Ok(())
    }

    /// A row with all its cases.
    fn row(&mut self, chunk: &Chunk, i: usize, base: u64) -> Result<()> {
        let (p, row) = (chunk.process.value(i), base + i as u64);
        let last = match usize::try_from(p).ok().and_then(|p| self.small.get_mut(p)) {
            Some(slot) => slot,
            None => self.large.entry(p).or_insert(FRESH),
        };
        let before = *last;
        let (from, to) = (time(&chunk.invoke_time, i), time(&chunk.complete_time, i));
        last.row = row;
        last.end = match chunk.complete_index.is_valid(i) {
            true => chunk.complete_index.value(i),
            false if chunk.status[i] == Status::Pending as u8 => u64::MAX,
            false => 0,
        };
        last.time = to.or(from).unwrap_or(i64::MIN).max(before.time);
        if chunk.index()[i] < before.end && !self.touches(before.row, from) {
            self.malformed(row, "a process invokes while its operation is open", |this| {
                format!("process {p} invokes {} but its {} has not completed", this.name(row), this.name(before.row))
            })?;
        }
        if from.is_some_and(|t| t < before.time) {
            self.malformed(row, "time runs backwards within a process", |this| {
                format!(
                    "process {p} invokes {} at {} ns after its {} was at {} ns",
                    this.name(row),
                    from.unwrap_or(0),
                    this.name(before.row),
                    before.time
                )
            })?;
        }
        if let (Some(from), Some(to)) = (from, to)
            && to < from
        {
            self.malformed(row, "time runs backwards within a process", |this| {
                format!("process {p} completes {} at {to} ns, invoked at {from} ns", this.name(row))
            })?;
        }
        Ok(())
    }

    fn find(&self, mut row: u64) -> Option<(&Chunk, usize)> {
        for chunk in self.chunks {
            if row < chunk.len() as u64 {
                return Some((chunk, row as usize));
            }
            row -= chunk.len() as u64;
        }
        None
    }

    /// Did the operation of a row complete at this very time?
    fn touches(&self, row: u64, at: Option<i64>) -> bool {
        let end = self.find(row).and_then(|(chunk, i)| time(&chunk.complete_time, i));
        end.is_some() && end == at
    }

    fn name(&self, row: u64) -> String {
        let Some((chunk, i)) = self.find(row) else { return format!("row {}", row + 1) };
        let f =
            if chunk.f.is_valid(i) { self.shared.functions.get(u32::from(chunk.f.value(i))) } else { "an operation" };
        format!("{f} (index {}, row {})", chunk.index()[i], row + 1)
    }
}
