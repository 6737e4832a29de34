//! Could these columns have been recorded? What a hostile or damaged file can break, checked at about a nanosecond a row.
//!
//! Indices ascend, completions follow their invocations, nothing lasts less than no time: the sign bits of differences,
//! or-ed over a block of rows, which vectorizes. (They may cry wolf: then the rows are looked at one by one.) Processes do
//! one thing at a time and time does not run backwards within one: a table of the last operation of each process,
//! direct-mapped for small numbers. An operation may begin before the one before it completed only if it touches it in
//! time, for where times are equal recorders put invocations first.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_array::{Array, ArrowPrimitiveType, Int64Array, PrimitiveArray};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::error::{Place, ReadError, Result};
use crate::history::{Chunk, Shared, Status};

/// Rows that are looked at in all ways before the next: their columns stay in the first-level cache meanwhile.
const BLOCK: usize = 1 << 8;

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

/// The columns of rows in which nothing is null.
struct Plain<'a> {
    process: &'a [i64],
    index: &'a [u64],
    end: &'a [u64],
    from: &'a [i64],
    to: &'a [i64],
}

impl<'a> Plain<'a> {
    /// Those of a chunk, if nothing is null in any.
    fn of(chunk: &'a Chunk, rows: &Range<usize>) -> Option<Plain<'a>> {
        fn whole<T: ArrowPrimitiveType>(a: &PrimitiveArray<T>) -> Option<&[T::Native]> {
            (a.null_count() == 0).then(|| &a.values()[..])
        }
        Some(Plain {
            process: &whole(&chunk.process)?[rows.clone()],
            index: &chunk.index()[rows.clone()],
            end: &whole(&chunk.complete_index)?[rows.clone()],
            from: &whole(chunk.invoke_time.as_ref()?)?[rows.clone()],
            to: &whole(chunk.complete_time.as_ref()?)?[rows.clone()],
        })
    }

    /// Is no row's time before its beginning? `false` too where their signs differ, as differences may overflow then.
    fn lasts(&self) -> bool {
        !any_negative(self.from, self.to, |from, to| to.wrapping_sub(from) | (to ^ from))
    }

    /// Goes through rows from `at`, to the first that needs another look, or to the end; `row` is that of the first.
    /// Times were found to [last](Self::lasts).
    // Not inlined: it needs all registers.
    #[inline(never)]
    fn pass(&self, at: usize, row: u64, small: &mut [Last; SMALL]) -> usize {
        let n = self.process.len();
        let (process, index, end) = (&self.process[..n], &self.index[..n], &self.end[..n]);
        let (from, to) = (&self.from[..n], &self.to[..n]);
        for i in at..n {
            let Some(last) = small.get_mut(process[i] as usize) else { return i };
            // Not `||`: one branch is cheaper than two.
            if (index[i] < last.end) | (from[i] < last.time) {
                return i;
            }
            *last = Last { end: end[i], time: to[i], row: row + i as u64 };
        }
        n
    }
}

/// Has what `f` makes of any pair a sign? A fold, not a search, and of signs, not of comparisons: so it vectorizes.
fn any_negative<A: Copy, B: Copy>(a: &[A], b: &[B], f: impl Fn(A, B) -> i64) -> bool {
    a.iter().zip(b).fold(0, |signs, (&a, &b)| signs | f(a, b)) < 0
}

/// Negative unless `a < b`, and both are below 2^63.
fn not_rising(a: u64, b: u64) -> i64 {
    (b.wrapping_sub(a).wrapping_sub(1) | a | b) as i64
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
    let next = index.get(1..).unwrap_or_default();
    if any_negative(index, next, not_rising)
        && let Some(at) = index.windows(2).position(|w| w[0] >= w[1])
    {
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
        let early = any_negative(&chunk.index()[rows.clone()], ends, not_rising);
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
        let Some(plain) = Plain::of(chunk, &rows).filter(Plain::lasts) else {
            let dense = chunk.process.null_count() == 0;
            return rows.filter(|&i| dense || chunk.process.is_valid(i)).try_for_each(|i| self.row(chunk, i, row));
        };
        let mut at = 0;
        while at < rows.len() {
            at = plain.pass(at, row + rows.start as u64, &mut self.small);
            if at < rows.len() {
                self.row(chunk, rows.start + at, row)?;
                at += 1;
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
