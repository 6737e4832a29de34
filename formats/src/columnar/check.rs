//! Could these columns have been recorded? What a hostile or damaged file can break, checked at about a nanosecond a row.
//!
//! Indices ascend and completions follow their invocations: two passes that vectorize. Processes do one thing at a time
//! and time does not run backwards within one: a table of the last operation of each process, direct-mapped for small
//! numbers. An operation may begin before the one before it completed only if it touches it in time, for where times are
//! equal recorders put invocations first.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_array::{Array, Int64Array};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::error::{Place, ReadError, Result};
use crate::history::{Chunk, Shared, Status};

/// Rows that are looked at in all ways before the next: their columns stay in the cache meanwhile.
const BLOCK: usize = 1 << 12;

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

/// The columns of a chunk in which nothing is null.
struct Plain<'a> {
    process: &'a [i64],
    index: &'a [u64],
    end: &'a [u64],
    from: &'a [i64],
    to: &'a [i64],
}

impl Plain<'_> {
    /// Goes through rows, to the first that needs another look, or to the end.
    fn pass(&self, rows: Range<usize>, row: u64, small: &mut [Last; SMALL]) -> usize {
        let Range { start, end: stop } = rows.clone();
        let indices = self.process[rows.clone()].iter().zip(&self.index[rows.clone()]).zip(&self.end[rows.clone()]);
        let times = self.from[rows.clone()].iter().zip(&self.to[rows]);
        for (i, (((&p, &index), &end), (&from, &to))) in indices.zip(times).enumerate() {
            let Some(last) = small.get_mut(p as usize) else { return start + i };
            // Not `||`: one branch is cheaper than three.
            if (index < last.end) | (from < last.time) | (to < from) {
                return start + i;
            }
            *last = Last { end, time: to, row: row + (start + i) as u64 };
        }
        stop
    }
}

struct Checker<'a> {
    chunks: &'a [Chunk],
    shared: &'a Shared,
    lenient: bool,
    repairs: BTreeMap<&'static str, (u64, String)>,
    small: Box<[Last; SMALL]>,
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
        small: Box::new([FRESH; SMALL]),
        large: HashMap::default(),
    };
    let (mut row, mut before) = (0, None);
    for chunk in chunks {
        for at in (0..chunk.len()).step_by(BLOCK) {
            let rows = at..chunk.len().min(at + BLOCK);
            let index = &chunk.index()[rows.clone()];
            indices(index, row + at as u64, before)?;
            checker.completions(chunk, rows.clone(), row)?;
            checker.processes(chunk, rows, row)?;
            before = index.last().copied();
        }
        row += chunk.len() as u64;
    }
    let repairs: Vec<String> =
        checker.repairs.iter().map(|(kind, (n, first))| format!("{kind}: {n} (first at {first})")).collect();
    if shared.meta.repairs.is_empty() {
        shared.meta.repairs = repairs;
    }
    Ok(())
}

/// Indices must ascend, leniently or not: rows are found by them.
fn indices(index: &[u64], row: u64, before: Option<u64>) -> Result<()> {
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

    fn completions(&mut self, chunk: &Chunk, rows: Range<usize>, row: u64) -> Result<()> {
        let ends = &chunk.complete_index.values()[rows.clone()];
        let pairs = || chunk.index()[rows.clone()].iter().zip(ends.iter());
        let early = pairs().fold(false, |bad, (i, end)| bad | (end <= i));
        let pending = chunk.status[rows.clone()].iter().fold(false, |any, &s| any | (s == Status::Pending as u8));
        let completed = chunk.complete_index.null_count() < chunk.len();
        let suspicious = early || (pending && completed);
        if !suspicious {
            return Ok(());
        }
        for (i, (&from, &to)) in rows.clone().zip(pairs()).filter(|&(i, _)| chunk.complete_index.is_valid(i)) {
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

    fn processes(&mut self, chunk: &Chunk, rows: Range<usize>, row: u64) -> Result<()> {
        if chunk.process.null_count() == chunk.len() {
            return Ok(());
        }
        let dense = chunk.process.null_count() == 0;
        let ended = chunk.complete_index.null_count() == 0;
        let untimed = |a: &Option<Int64Array>| a.as_ref().is_none_or(|a| a.null_count() > 0);
        let whole = dense && ended && !untimed(&chunk.invoke_time) && !untimed(&chunk.complete_time);
        let (Some(begins), Some(ends), true) = (&chunk.invoke_time, &chunk.complete_time, whole) else {
            return rows.filter(|&i| dense || chunk.process.is_valid(i)).try_for_each(|i| self.row(chunk, i, row));
        };
        let columns = Plain {
            process: chunk.process.values(),
            index: chunk.index(),
            end: chunk.complete_index.values(),
            from: begins.values(),
            to: ends.values(),
        };
        let mut i = rows.start;
        while i < rows.end {
            i = columns.pass(i..rows.end, row, &mut self.small);
            if i < rows.end {
                self.row(chunk, i, row)?;
                i += 1;
            }
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
