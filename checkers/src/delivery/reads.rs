//! Which elements did a reader see, and which did it miss?
//!
//! A read is a roaring bitmap of element ids; a run of consecutive ones is put in as a range. Of each element a [`View`] knows the
//! first read that saw it (by completion), and, as reads are taken in the order of their invocations, since when it has been seen
//! without a gap, or which read saw it last. Only the difference between a read and the one before it is looked at, element by
//! element, so that a read costs what it holds, and no element costs anything in a read that misses it.
//!
//! The order of invocations is made from that of completions by a buffer: a read waits for those that were invoked before it and
//! are still open. A view by completions asks less of the order: there an element is gone for good only when a read that began after
//! the last sight of it had ended misses it. Memory: 12 bytes an element, and a bitmap each read that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use elench_formats::Value;
use elench_formats::columns::{ListRef, Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};
use elench_formats::sorting::sort_by;
use roaring::RoaringBitmap;

use super::elements::{ById, Elements};

/// What one read returned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) set: RoaringBitmap,
    /// Elements that it held more than once, ascending.
    pub(crate) twice: Vec<u32>,
}

/// The elements of a read: of a list, a set, or the values of a map, whose lists are taken apart. `None` where it is nothing of
/// that kind, and so says nothing.
pub(crate) fn elements_of(elements: &mut Elements, op: &OpRef<'_>, value: ValueRef<'_>) -> Option<Seen> {
    match value {
        ValueRef::List(list) | ValueRef::Set(list) => Some(match list.as_ints() {
            Some(ints) => of_ints(elements, ints),
            None => of_scalars(elements, op, list),
        }),
        ValueRef::Text(t) => {
            let text = op.text(t);
            if !text.starts_with(['{', '#', '[']) {
                return None;
            }
            let value = elench_formats::edn::parse(text).ok()?;
            of_tree(elements, &value, &|text| op.find_text(text))
        }
        ValueRef::Nil | ValueRef::Int(_) => None,
    }
}

/// Did a read return a collection?
pub(crate) fn shows(op: &OpRef<'_>) -> bool {
    op.status() == Status::Ok
        && match op.output() {
            ValueRef::List(_) | ValueRef::Set(_) => true,
            ValueRef::Text(t) => op.text(t).starts_with(['{', '#', '[']),
            ValueRef::Nil | ValueRef::Int(_) => false,
        }
}

/// The elements of a value that stands in no column. What lies at the places of a map is taken together; where lists lie there, as
/// those of several nodes, what is no list tells of none (`:unreachable`), and nothing is doubled that lies at two places.
pub(crate) fn of_tree(elements: &mut Elements, value: &Value, texts: &dyn Fn(&str) -> Option<u32>) -> Option<Seen> {
    let mut of =
        |items: &mut dyn Iterator<Item = &Value>| of_ids(items.filter_map(|e| elements.tree(e, texts)).collect());
    match value {
        Value::Vector(items) | Value::Set(items) => Some(of(&mut items.iter())),
        Value::Map(entries) if entries.iter().any(|(_, place)| is_many(place)) => {
            let mut all = Seen::default();
            for (_, place) in entries {
                if let Value::Vector(items) | Value::Set(items) = place {
                    let Seen { set, twice } = of(&mut items.iter());
                    all.set |= set;
                    all.twice.extend(twice);
                }
            }
            all.twice.sort_unstable();
            all.twice.dedup();
            Some(all)
        }
        Value::Map(entries) => Some(of(&mut entries.iter().map(|(_, place)| place))),
        _ => None,
    }
}

fn is_many(value: &Value) -> bool {
    matches!(value, Value::Vector(_) | Value::Set(_))
}

/// Runs shorter than this are not worth a range.
const RUN: usize = 16;

fn of_ints(elements: &mut Elements, ints: &[i64]) -> Seen {
    let ascending = ints.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending {
        return of_ids(ints.iter().map(|&n| elements.int(n)).collect());
    }
    let mut set = RoaringBitmap::new();
    let mut rest = ints;
    while let Some(&first) = rest.first() {
        let (run, after) = rest.split_at(run_length(rest));
        rest = after;
        match (run.last(), run.len() >= RUN) {
            (Some(&last), true) if let_range(elements, first, last, &mut set) => {}
            _ => run.iter().for_each(|&n| {
                set.insert(elements.int(n));
            }),
        }
    }
    Seen { set, twice: Vec::new() }
}

fn let_range(elements: &mut Elements, first: i64, last: i64, set: &mut RoaringBitmap) -> bool {
    let Some((first, last)) = elements.range(first, last) else { return false };
    set.insert_range(first..=last);
    true
}

/// How many of ascending integers follow each other without a gap. By doubling, then halving: O(log n) a run, for they ascend.
fn run_length(ints: &[i64]) -> usize {
    let consecutive = |n: usize| ints[n - 1].wrapping_sub(ints[0]) as u64 == (n - 1) as u64;
    let mut known = 1;
    while known * 2 <= ints.len() && consecutive(known * 2) {
        known *= 2;
    }
    let mut too_many = (known * 2).min(ints.len() + 1);
    while too_many - known > 1 {
        let middle = known + (too_many - known) / 2;
        if consecutive(middle) {
            known = middle;
        } else {
            too_many = middle;
        }
    }
    known
}

fn of_scalars(elements: &mut Elements, op: &OpRef<'_>, list: ListRef<'_>) -> Seen {
    of_ids(list.iter().filter(|s| *s != Scalar::Nil).filter_map(|s| elements.scalar(op, s)).collect())
}

/// The set of these ids, and which of them came more than once.
pub(crate) fn of_ids(mut ids: Vec<u32>) -> Seen {
    ids.sort_unstable();
    let mut twice: Vec<u32> = ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    twice.dedup();
    ids.dedup();
    let mut set = RoaringBitmap::new();
    // They ascend, so that each is accepted.
    let _ = set.append(ids);
    Seen { set, twice }
}

/// Where a read stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAt {
    /// Event indices.
    pub(crate) invoke: u64,
    pub(crate) complete: u64,
    /// Nanoseconds, where known.
    pub(crate) invoke_time: Option<i64>,
    pub(crate) complete_time: Option<i64>,
}

impl ReadAt {
    pub(crate) fn of(op: &OpRef<'_>) -> ReadAt {
        ReadAt {
            invoke: op.index(),
            complete: op.complete_index().unwrap_or(u64::MAX),
            invoke_time: op.invoke_time(),
            complete_time: op.complete_time(),
        }
    }
}

const NEVER: u32 = u32::MAX;

/// When was an element seen? Numbers of reads.
#[derive(Clone, Copy, Debug)]
struct Sight {
    /// The first read to complete that saw it.
    first: u32,
    /// Seen by each read from this on, in the order of invocations; or until `last`.
    since: u32,
    /// The last to be invoked that saw it, once one did not.
    last: u32,
}

/// What one reader, or all together, saw.
#[derive(Debug)]
pub(crate) struct View {
    /// By completion.
    reads: Vec<ReadAt>,
    /// By invocation, unless by completion: positions in `reads`.
    in_order: Vec<u32>,
    sights: ById<Sight>,
    ever: RoaringBitmap,
    now: Arc<RoaringBitmap>,
    open: BTreeSet<u64>,
    waiting: BTreeMap<u64, (u32, Arc<RoaringBitmap>)>,
    /// Where the last read by invocation began, and the reads that had not ended by then: where they end, and what they show.
    began: u64,
    beside: Vec<(u64, Arc<RoaringBitmap>)>,
    by_completion: bool,
}

impl Default for View {
    fn default() -> View {
        View {
            reads: Vec::new(),
            in_order: Vec::new(),
            sights: ById::new(Sight { first: NEVER, since: NEVER, last: NEVER }),
            ever: RoaringBitmap::new(),
            now: Arc::default(),
            open: BTreeSet::new(),
            waiting: BTreeMap::new(),
            began: 0,
            beside: Vec::new(),
            by_completion: false,
        }
    }
}

impl View {
    /// Of reads in the order of their completions, none of which waits.
    pub(crate) fn by_completion() -> View {
        View { by_completion: true, ..View::default() }
    }

    /// A read begins, at this event.
    pub(crate) fn opens(&mut self, invoke: u64) {
        self.open.insert(invoke);
    }

    /// It ended, and showed nothing.
    pub(crate) fn shows_nothing(&mut self, invoke: u64) {
        self.open.remove(&invoke);
        self.release();
    }

    /// It ended, and showed these. Returns those that no read had shown before. Reads come in the order of their completions.
    pub(crate) fn shows(&mut self, read: ReadAt, set: RoaringBitmap) -> RoaringBitmap {
        let number = self.reads.len() as u32;
        self.reads.push(read);
        let new = &set - &self.ever;
        for id in &new {
            self.sights.at(id).first = number;
        }
        self.ever |= &new;
        let set = Arc::new(set);
        if self.by_completion {
            self.take(number, set);
            return new;
        }
        self.began = self.began.max(read.invoke);
        self.beside.push((read.complete, set.clone()));
        self.beside.retain(|(complete, _)| *complete > self.began);
        self.open.remove(&read.invoke);
        self.waiting.insert(read.invoke, (number, set));
        self.release();
        new
    }

    /// Takes in, in the order of invocations, the reads that wait for no other.
    fn release(&mut self) {
        while let Some(entry) = self.waiting.first_entry() {
            if self.open.first().is_some_and(|open| open < entry.key()) {
                return;
            }
            let (number, set) = entry.remove();
            self.take(number, set);
        }
    }

    fn take(&mut self, number: u32, set: Arc<RoaringBitmap>) {
        let ordinal = self.in_order.len() as u32;
        self.in_order.push(number);
        for id in &*self.now - &*set {
            self.sights.at(id).last = ordinal - 1;
        }
        for id in &*set - &*self.now {
            self.sights.at(id).since = ordinal;
        }
        self.now = set;
    }

    /// Nothing follows: what waits for reads that never ended waits no longer.
    pub(crate) fn close(&mut self) {
        self.open.clear();
        self.release();
    }

    /// How many reads showed something.
    pub(crate) fn reads(&self) -> usize {
        self.reads.len()
    }

    /// Elements that some read showed.
    pub(crate) fn ever(&self) -> &RoaringBitmap {
        &self.ever
    }

    /// What the last read shows.
    pub(crate) fn shown_now(&self) -> &RoaringBitmap {
        &self.now
    }

    /// Does the last read show it?
    pub(crate) fn shown_at_last(&self, id: u32) -> bool {
        self.now.contains(id)
    }

    /// Does the last read show it, by invocation, or one that overlaps that, so that it may have come after? What none of these shows
    /// was gone when every read that had shown it was over. O(reads that overlap the last).
    pub(crate) fn shown_at_end(&self, id: u32) -> bool {
        self.shown_at_last(id) || self.beside.iter().any(|(_, set)| set.contains(id))
    }

    /// The last read, by invocation.
    pub(crate) fn last_read(&self) -> Option<ReadAt> {
        self.in_order.last().map(|&n| self.reads[n as usize])
    }

    /// The first read to complete that showed it.
    pub(crate) fn first_sight(&self, id: u32) -> Option<ReadAt> {
        self.reads.get(self.sights.get(id).first as usize).copied()
    }

    /// Of a view by completions: for each position in that order, the read from there on that began last.
    pub(crate) fn latest_from(&self) -> Vec<ReadAt> {
        let mut latest = self.reads.clone();
        for i in (1..latest.len()).rev() {
            if latest[i].invoke > latest[i - 1].invoke {
                latest[i - 1] = latest[i];
            }
        }
        latest
    }

    /// Of a view by completions: the read that misses it, though it began after this event and after the last read that showed it
    /// had ended. `latest` is [`latest_from`](Self::latest_from).
    pub(crate) fn gone(&self, id: u32, after: u64, latest: &[ReadAt]) -> Option<ReadAt> {
        if self.shown_at_last(id) {
            return None;
        }
        let sight = self.sights.get(id).last;
        let (from, ended) = match self.by_order(sight) {
            Some(read) => (sight as usize + 1, read.complete),
            None => (0, 0),
        };
        latest.get(from).copied().filter(|read| read.invoke > after.max(ended))
    }

    fn by_order(&self, ordinal: u32) -> Option<ReadAt> {
        self.in_order.get(ordinal as usize).map(|&n| self.reads[n as usize])
    }

    /// The last to be invoked that showed it.
    pub(crate) fn last_sight(&self, id: u32) -> Option<ReadAt> {
        if self.shown_at_last(id) { self.last_read() } else { self.by_order(self.sights.get(id).last) }
    }

    /// The last to be invoked that did not show it.
    pub(crate) fn last_miss(&self, id: u32) -> Option<ReadAt> {
        if !self.shown_at_last(id) {
            return self.last_read();
        }
        self.sights.get(id).since.checked_sub(1).and_then(|before| self.by_order(before))
    }
}

/// An end of a read.
pub(crate) enum End<'a> {
    /// It begins, at this event.
    Opens(u64),
    /// It ends.
    Ends(OpRef<'a>),
}

/// Visits the ends of reads in their order. O(n log n).
pub(crate) fn in_event_order<'a>(mut reads: Vec<OpRef<'a>>, mut visit: impl FnMut(End<'a>)) {
    let mut invocations: Vec<u64> = reads.iter().map(OpRef::index).collect();
    invocations.sort_unstable();
    sort_by(&mut reads, |op| op.complete_index().unwrap_or(u64::MAX));
    let mut begun = invocations.into_iter().peekable();
    for op in reads {
        let end = op.complete_index().unwrap_or(u64::MAX);
        while let Some(invoke) = begun.next_if(|&invoke| invoke < end) {
            visit(End::Opens(invoke));
        }
        visit(End::Ends(op));
    }
}
