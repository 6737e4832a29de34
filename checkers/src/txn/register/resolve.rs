//! Which write does each read read?
//!
//! Values of a key are numbered as *versions*: 0 is the initial one, nil; those that a transaction wrote that did not fail follow. Each
//! micro-operation on registers gets the number of its version over all keys, and each version what is asked of it
//! later: who wrote it, who read it from outside, the first completion that shows that it existed, and the last
//! invocation of one that still met it.
//!
//! Keys are independent of each other. O(micro-operations), in expectation. Memory: 8 bytes a micro-operation and 36 a write or key.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::entries::{Entries, Entry, by_transaction};
use crate::graph::build::by_completion;
use crate::parallel;
use crate::txn::history::{Mop, NIL, NONE, Txn, Txns};

/// Micro-operations that are worth a task of their own.
const SHARD: usize = 1 << 15;

/// Set in the number of a micro-operation's version: of a read, that it is the first thing that its transaction does with the key; of a
/// write, that such a read stands before it.
const FROM_OUTSIDE: u32 = 1 << 31;

/// Rank of a completion that never came.
pub(super) const NEVER: u32 = u32::MAX;

/// What is known of a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// Who wrote it, the first of these that did not fail; [`NONE`] for the initial one.
    pub writer: Txn,
    /// Rank of the first completion of one that wrote or read it.
    pub existed: u32,
    /// Completions before the last invocation of one that read or wrote it.
    pub lasted: u32,
    /// Where its readers begin in [`Resolved::readers`].
    pub readers: u32,
    /// How many transactions read it from outside.
    pub outside: u32,
    /// Of these, how many have not run in the search for an order.
    pub pending: u32,
    /// The first so many readers may not have run: of the others it is known that they did.
    pub live: u32,
    /// Where the list of those begins that the search knows to come before who wrote it.
    pub earlier: u32,
}

const UNWRITTEN: Version =
    Version { writer: NONE, existed: NEVER, lasted: 0, readers: 0, outside: 0, pending: 0, live: 0, earlier: NONE };

/// The time of transactions as ranks among completions.
#[derive(Debug)]
pub(super) struct Clock {
    /// Those that completed, by completion.
    pub order: Vec<Txn>,
    /// By transaction: its place there, [`NEVER`] for one of unknown end.
    pub rank: Vec<u32>,
    /// By transaction: how many completed before it was invoked.
    pub before: Vec<u32>,
}

impl Clock {
    pub(super) fn new(txns: &Txns<'_>) -> Clock {
        let order = by_completion(&txns.complete);
        let mut rank = vec![NEVER; txns.len()];
        order.iter().enumerate().for_each(|(r, &t)| rank[t as usize] = r as u32);
        let mut done = 0;
        let completed = |r: usize| order.get(r).map_or(u64::MAX, |&t| txns.complete[t as usize]);
        let before = txns.invoke.iter().map(|&invoked| {
            while completed(done) < invoked {
                done += 1;
            }
            done as u32
        });
        let before = before.collect();
        Clock { order, rank, before }
    }
}

/// Reads and writes by version.
#[derive(Debug)]
pub(super) struct Resolved {
    /// By micro-operation.
    version: Vec<AtomicU32>,
    /// Those of a key lie together, the initial one first. What the search for an order needs lies in one line of the cache.
    pub versions: Vec<Version>,
    /// By key: its initial version.
    pub initial: Vec<u32>,
    pub readers: Vec<Txn>,
    /// Transactions of unknown end that a completed one saw, and when the first of these completed.
    pub seen: Vec<(Txn, u64)>,
    /// A read returned what nobody wrote that did not fail, or an update was lost: no order explains that.
    pub unexplained: bool,
    /// A value was written by two transactions.
    pub twice: bool,
}

/// The version of a micro-operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named(u32);

impl Named {
    #[inline]
    pub(super) fn version(self) -> usize {
        (self.0 & !FROM_OUTSIDE) as usize
    }

    /// Of a read: is it what others see of its transaction? Of a write: does such a read stand before it?
    #[inline]
    pub(super) fn is_outside(self) -> bool {
        self.0 & FROM_OUTSIDE != 0
    }
}

impl Resolved {
    pub(super) fn new(txns: &Txns<'_>, entries: &Entries, clock: &Clock) -> Resolved {
        let mops = txns.mop_count();
        let initial = first_versions(txns);
        let count = initial.last().map_or(0, |&n| n as usize);
        let mut resolved = Resolved {
            version: (0..mops).map(|_| AtomicU32::new(NONE)).collect(),
            versions: vec![UNWRITTEN; count],
            initial,
            readers: vec![0; mops],
            seen: Vec::new(),
            unexplained: false,
            twice: false,
        };
        let mut tasks = Vec::new();
        let (mut versions, mut readers) = (&mut resolved.versions[..], &mut resolved.readers[..]);
        for keys in entries.runs(SHARD) {
            let own = resolved.initial[keys.end] - resolved.initial[keys.start];
            let (own_versions, rest) = versions.split_at_mut(own as usize);
            let (own_readers, others) = readers.split_at_mut(entries.count(keys.clone()));
            (versions, readers) = (rest, others);
            tasks.push((keys, own_versions, own_readers));
        }
        let (version, initial) = (&resolved.version, &resolved.initial[..]);
        let found: Vec<Found> = parallel::map_items(tasks, |(keys, versions, readers)| {
            let first = Place { versions: initial[keys.start] as usize, readers: entries.count(0..keys.start) };
            let found = Found::default();
            let mut shard = Shard { txns, clock, initial, version, first, versions, readers, found };
            shard.keys(entries, keys);
            shard.found
        });
        for mut found in found {
            resolved.seen.append(&mut found.seen);
            resolved.unexplained |= found.unexplained || found.lost;
            resolved.twice |= found.twice;
        }
        resolved.seen.sort_unstable();
        resolved.seen.dedup_by_key(|&mut (t, _)| t);
        resolved
    }

    /// The version that a micro-operation read or wrote, if it did either.
    #[inline]
    pub(super) fn of(&self, mop: usize) -> Option<Named> {
        let version = self.version[mop].load(Ordering::Relaxed);
        (version != NONE).then_some(Named(version))
    }

    /// Makes the search for an order begin anew.
    pub(super) fn reset(&mut self) {
        for version in &mut self.versions {
            (version.pending, version.live, version.earlier) = (version.outside, version.outside, NONE);
        }
    }

    /// Did one transaction read what another one wrote?
    pub(super) fn connects(&self) -> bool {
        let other = |v: &Version| {
            let readers = &self.readers[v.readers as usize..][..v.outside as usize];
            v.writer != NONE && readers.iter().any(|&r| r != v.writer)
        };
        self.versions.iter().any(other)
    }
}

/// Where a key's versions and readers begin.
#[derive(Clone, Copy, Debug)]
struct Place {
    versions: usize,
    readers: usize,
}

/// Where the versions of each key begin, if each write makes one; and the number of all.
fn first_versions(txns: &Txns<'_>) -> Vec<u32> {
    let mut first = vec![1u32; txns.keys.len() + 1];
    first[0] = 0;
    for (kind, &key) in txns.kind.iter().zip(&txns.key) {
        first[key as usize + 1] += u32::from(kind.writes());
    }
    for key in 1..first.len() {
        first[key] += first[key - 1];
    }
    first
}

#[derive(Debug, Default)]
struct Found {
    seen: Vec<(Txn, u64)>,
    unexplained: bool,
    lost: bool,
    twice: bool,
}

/// Some keys.
struct Shard<'a> {
    txns: &'a Txns<'a>,
    clock: &'a Clock,
    initial: &'a [u32],
    version: &'a [AtomicU32],
    first: Place,
    versions: &'a mut [Version],
    readers: &'a mut [Txn],
    found: Found,
}

/// Versions of the key at hand by value.
#[derive(Default)]
struct Values {
    slots: Vec<(i64, u32)>,
    shift: u32,
}

impl Values {
    fn clear(&mut self, count: usize) {
        let size = (2 * count).next_power_of_two().max(4);
        self.shift = 64 - size.trailing_zeros();
        self.slots.clear();
        self.slots.resize(size, (0, NONE));
    }

    #[inline]
    fn slot(&self, value: i64) -> usize {
        let wide = u128::from(value as u64 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        let mut at = ((wide as u64 ^ (wide >> 64) as u64) >> self.shift) as usize;
        while self.slots[at].1 != NONE && self.slots[at].0 != value {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }
}

/// What is used for one key after the other.
#[derive(Default)]
struct Own {
    values: Values,
    /// By version: was it written by several?
    ambiguous: Vec<bool>,
    /// By version: is the end of its writer unknown?
    unknown: Vec<bool>,
    /// Who read which version from outside.
    shown: Vec<(u32, Txn)>,
    /// By version: did one that read it write the key?
    updated: Vec<bool>,
}

impl Shard<'_> {
    fn keys(&mut self, entries: &Entries, keys: Range<usize>) {
        let mut own = Own::default();
        for key in keys {
            let readers = entries.count(0..key) - self.first.readers;
            let at = Place { versions: self.initial[key] as usize - self.first.versions, readers };
            self.writes(at, entries.get(key), &mut own);
            self.reads(at, entries.get(key), &mut own);
        }
    }

    fn name(&self, mop: Mop, version: usize, from_outside: bool) {
        let number = (self.first.versions + version) as u32 | if from_outside { FROM_OUTSIDE } else { 0 };
        self.version[mop as usize].store(number, Ordering::Relaxed);
    }

    fn writes(&mut self, at: Place, entries: &[Entry], own: &mut Own) {
        own.values.clear(entries.iter().filter(|e| e.writes()).count());
        own.ambiguous.clear();
        own.ambiguous.push(false);
        own.unknown.clear();
        own.unknown.push(false);
        for entry in entries.iter().filter(|e| e.writes() && !e.failed()) {
            let &Entry { value, txn, .. } = entry;
            let version = if value == NIL { 0 } else { self.write(at, *entry, own) };
            own.ambiguous[version] |= version == 0;
            self.name(entry.mop(), at.versions + version, false);
            self.met(at.versions + version, txn);
        }
    }

    fn write(&mut self, at: Place, entry: Entry, own: &mut Own) -> usize {
        let Own { values, ambiguous, unknown, .. } = own;
        let Entry { value, txn, .. } = entry;
        let slot = values.slot(value);
        if values.slots[slot].1 == NONE {
            let version = ambiguous.len();
            values.slots[slot] = (value, version as u32);
            self.versions[at.versions + version].writer = txn;
            ambiguous.push(false);
            unknown.push(!entry.ok());
            return version;
        }
        let version = values.slots[slot].1 as usize;
        if self.versions[at.versions + version].writer != txn {
            (ambiguous[version], self.found.twice) = (true, true);
        }
        version
    }

    fn reads(&mut self, at: Place, entries: &[Entry], own: &mut Own) {
        let Own { values, ambiguous, unknown, shown, updated } = own;
        shown.clear();
        updated.clear();
        updated.resize(ambiguous.len(), false);
        for (txn, entries) in by_transaction(entries) {
            let mut met = false;
            let mut outside = None;
            for entry in entries {
                if entry.writes() {
                    met = true;
                    if let Some(version) = outside {
                        self.updates(entry.mop());
                        // Of two that read a version and wrote the next, the second should have read what the first wrote.
                        let more = entries.iter().find(|e| e.writes()).is_some_and(|first| first.mop() == entry.mop());
                        self.found.lost |= more && std::mem::replace(&mut updated[version], true);
                    }
                    continue;
                }
                let value = entry.value;
                let version = if value == NIL { 0 } else { values.slots[values.slot(value)].1 as usize };
                if version == NONE as usize {
                    self.found.unexplained = true;
                    continue;
                }
                let first = !std::mem::replace(&mut met, true) && !ambiguous[version];
                if first {
                    outside = Some(version);
                }
                self.name(entry.mop(), at.versions + version, first);
                self.met(at.versions + version, txn);
                if unknown[version] && !ambiguous[version] {
                    let writer = self.versions[at.versions + version].writer;
                    self.found.seen.push((writer, self.txns.complete[txn as usize]));
                }
                if first {
                    shown.push((version as u32, txn));
                    self.versions[at.versions + version].outside += 1;
                }
            }
        }
        for version in &mut self.versions[at.versions..at.versions + ambiguous.len()] {
            let last = version.lasted.checked_sub(1);
            version.lasted = last.map_or(0, |txn| self.clock.before[txn as usize]);
        }
        // Where several could have been read, nothing can be asked of the version.
        for (version, _) in ambiguous.iter().enumerate().filter(|a| *a.1) {
            let version = &mut self.versions[at.versions + version];
            (version.existed, version.lasted) = (NEVER, 0);
        }
        let mut next = (self.first.readers + at.readers) as u32;
        for version in &mut self.versions[at.versions..at.versions + ambiguous.len()] {
            version.readers = next;
            next += version.outside;
        }
        for &(version, txn) in shown.iter() {
            let Version { readers, .. } = &mut self.versions[at.versions + version as usize];
            self.readers[*readers as usize - self.first.readers] = txn;
            *readers += 1;
        }
        for version in &mut self.versions[at.versions..at.versions + ambiguous.len()] {
            version.readers -= version.outside;
            (version.pending, version.live) = (version.outside, version.outside);
        }
    }

    /// Notes that a write follows a read of the key from outside.
    fn updates(&self, mop: Mop) {
        self.version[mop as usize].fetch_or(FROM_OUTSIDE, Ordering::Relaxed);
    }

    /// Notes that a transaction met a version. Who was invoked last stands for when that was until all are known.
    fn met(&mut self, version: usize, txn: Txn) {
        let known = &mut self.versions[version];
        known.existed = known.existed.min(self.clock.rank[txn as usize]);
        known.lasted = known.lasted.max(txn + 1);
    }
}
