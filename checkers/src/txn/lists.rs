//! In which order were a list's elements appended, and what does that say?
//!
//! All committed reads of a list should be prefixes of the longest one, which then is the order of the key's versions: a
//! version is named by its last element. Every other read is compared with it as memory and stands for its length only.
//! Elements lead to the transactions that appended them by a table over the key's own elements.
//!
//! What is not in the longest list though committed comes after all of it, in an order that is not known: whoever read
//! the whole list comes before each of these. So an order of transactions that all edges allow explains every read.
//!
//! Keys are independent of each other. O(micro-operations + elements read); memory 4 bytes an element of the longest lists.

use std::ops::Range;

use elench_formats::history::Status;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::anomaly::Anomaly;
use super::history::{ByKey, Kind, Mop, NONE, Txn, Txns};
use crate::graph::{Dependencies, Rel, Sink};
use crate::outcome::OpId;
use crate::parallel;

mod facts;

/// Something wrong that is no cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What.
    pub kind: Anomaly,
    /// The key's number.
    pub key: u32,
    /// The micro-operations that show it; what each one is to it depends on the kind.
    pub mops: Vec<Mop>,
    /// The elements in question.
    pub elements: Vec<i64>,
}

/// Cases of each kind: how many, and the first few or all of them.
#[derive(Clone, Debug)]
pub struct Cases {
    counts: Vec<(Anomaly, u64)>,
    /// Of each kind as many as there are, [`most`](Self::most) at most.
    examples: Vec<Case>,
    most: u64,
}

/// Examples kept of each kind, unless all are wanted.
pub const EXAMPLES: u64 = 8;

impl Default for Cases {
    fn default() -> Self {
        Cases::keeping(EXAMPLES)
    }
}

impl Cases {
    /// None yet; so many of each kind are kept at most.
    pub(super) fn keeping(most: u64) -> Cases {
        Cases { counts: Vec::new(), examples: Vec::new(), most }
    }

    pub(super) fn add(&mut self, kind: Anomaly, case: impl FnOnce() -> (u32, Vec<Mop>, Vec<i64>)) {
        let at = match self.counts.iter().position(|&(k, _)| k == kind) {
            Some(at) => at,
            None => {
                self.counts.push((kind, 0));
                self.counts.len() - 1
            }
        };
        self.counts[at].1 += 1;
        if self.counts[at].1 <= self.most {
            let (key, mops, elements) = case();
            self.examples.push(Case { kind, key, mops, elements });
        }
    }

    /// How many of each kind.
    pub fn counts(&self) -> &[(Anomaly, u64)] {
        &self.counts
    }

    /// Some of each kind.
    pub fn examples(&self) -> &[Case] {
        &self.examples
    }

    pub(super) fn merge(&mut self, other: Cases) {
        let of = |counts: &[(Anomaly, u64)], kind| counts.iter().find(|&&(k, _)| k == kind).map_or(0, |&(_, n)| n);
        let mut room: Vec<(Anomaly, u64)> =
            other.counts.iter().map(|&(kind, _)| (kind, self.most.saturating_sub(of(&self.counts, kind)))).collect();
        for case in other.examples {
            if let Some((_, room)) = room.iter_mut().find(|(kind, room)| *kind == case.kind && *room > 0) {
                *room -= 1;
                self.examples.push(case);
            }
        }
        for (kind, n) in other.counts {
            match self.counts.iter_mut().find(|(k, _)| *k == kind) {
                Some((_, count)) => *count += n,
                None => self.counts.push((kind, n)),
            }
        }
    }
}

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    longest: &'a [i64],
    /// The read that returned it.
    read: Mop,
    /// Where in [`Shard::writers`] its transactions begin.
    writers: u32,
    /// Are there elements without a committed writer in the list? Then two further runs follow: the last writer before each position
    /// and the next one from it on, each one longer than the list.
    gaps: bool,
    /// Appends that may have been committed and that the longest list does not hold: a range of [`Shard::late`].
    late: (u32, u32),
    /// Reads that are no prefix of the longest: a range of [`Shard::odd`].
    odd: (u32, u32),
}

/// A read that is no prefix of the longest.
#[derive(Clone, Copy, Debug)]
struct Odd {
    read: Mop,
    /// Who appended its last element.
    writer: Txn,
    /// Who appended the first element of the longest list that it does not hold.
    missed: Txn,
}

/// Some keys.
#[derive(Debug, Default)]
struct Shard<'a> {
    keys: Range<usize>,
    known: Vec<Known<'a>>,
    writers: Vec<Txn>,
    late: Vec<Txn>,
    odd: Vec<Odd>,
    /// Do lists show the appends of an acknowledged transaction in another order than it made them in?
    backward: bool,
    /// Unacknowledged transactions that a committed one saw, and when the first that did completed.
    seen: Vec<(Txn, u64)>,
    cases: Cases,
}

/// What is known of all keys.
#[derive(Debug)]
pub struct Lists<'a> {
    txns: &'a Txns<'a>,
    by_key: ByKey,
    shards: Vec<Shard<'a>>,
    committed: Vec<bool>,
    seen: Vec<(Txn, u64)>,
    cases: Cases,
}

/// Micro-operations that are worth a task of their own.
const SHARD: usize = 1 << 15;

impl<'a> Lists<'a> {
    /// Of these transactions.
    pub fn new(txns: &'a Txns<'a>) -> Lists<'a> {
        Lists::keeping(txns, EXAMPLES)
    }

    /// The same, with so many cases of each kind kept at most: each takes some 150 bytes.
    pub fn keeping(txns: &'a Txns<'a>, most: u64) -> Lists<'a> {
        let by_key = txns.by_key();
        let scan = |keys| Scan::keeping(txns, most).run(&by_key, keys);
        let mut shards: Vec<Shard<'a>> = parallel::map_items(by_key.runs(SHARD), scan);
        let mut committed: Vec<bool> = txns.status.iter().map(|&s| s == Status::Ok).collect();
        let mut seen: Vec<(Txn, u64)> = Vec::new();
        let mut cases = Cases::keeping(most);
        for shard in &mut shards {
            seen.append(&mut shard.seen);
            cases.merge(std::mem::take(&mut shard.cases));
        }
        seen.sort_unstable();
        seen.dedup_by_key(|&mut (t, _)| t);
        seen.iter().for_each(|&(t, _)| committed[t as usize] = true);
        Lists { txns, by_key, shards, committed, seen, cases }
    }

    /// The transactions.
    pub fn txns(&self) -> &'a Txns<'a> {
        self.txns
    }

    /// The operation that a transaction is.
    pub fn op(&self, txn: Txn) -> OpId {
        self.txns.op(txn)
    }

    /// What is wrong besides cycles.
    pub fn cases(&self) -> &Cases {
        &self.cases
    }

    /// Do lists show the appends of an acknowledged transaction in another order than it made them in?
    pub fn is_backward(&self) -> bool {
        self.shards.iter().any(|shard| shard.backward)
    }

    /// Did a transaction commit, as far as anybody knows?
    pub fn committed(&self, txn: Txn) -> bool {
        self.committed[txn as usize]
    }

    /// Transactions that were not acknowledged, but whose writes a committed one saw, and when the first of these completed.
    pub fn seen(&self) -> &[(Txn, u64)] {
        &self.seen
    }

    /// The longest list of a key that was read, and the read.
    pub fn longest(&self, key: u32) -> Option<(&'a [i64], Mop)> {
        let shard = self.shards.iter().find(|s| s.keys.contains(&(key as usize)))?;
        let known = &shard.known[key as usize - shard.keys.start];
        (known.read != NONE).then_some((known.longest, known.read))
    }

    /// Does every read of every key fit in one order of versions?
    pub fn is_regular(&self) -> bool {
        self.shards.iter().all(|s| s.odd.is_empty())
    }

    fn edges_of_key<S: Sink>(&self, shard: &Shard<'a>, key: usize, sink: &mut S, fan: &mut Fan) {
        let known = &shard.known[key - shard.keys.start];
        if known.read == NONE && known.late.0 == known.late.1 {
            return;
        }
        let len = known.longest.len();
        let at = known.writers as usize;
        let writers = &shard.writers[at..at + len];
        let mut last = NONE;
        for &w in writers.iter().filter(|&&w| w != NONE) {
            if last != NONE && last != w {
                sink.edge(last, w, Rel::Ww);
            }
            last = w;
        }
        let (before, from_on) = match known.gaps {
            true => (&shard.writers[at + len..at + 2 * len + 1], &shard.writers[at + 2 * len + 1..at + 3 * len + 2]),
            false => (&[][..], &[][..]),
        };
        fan.to.clear();
        fan.from.clear();
        let late = &shard.late[known.late.0 as usize..known.late.1 as usize];
        fan.to.extend(late.iter().copied().filter(|&t| self.committed[t as usize]));
        let whole = !fan.to.is_empty();
        // Where lists contradict each other, what is in none of those that agree may still come before them.
        let agreed = known.odd.0 == known.odd.1;
        if last != NONE && agreed {
            fan.from.push((last, Rel::Ww));
        }
        let mut odd = &shard.odd[known.odd.0 as usize..known.odd.1 as usize];
        let (mops, txns) = self.by_key.get(key);
        for (&mop, &txn) in mops.iter().zip(txns) {
            if self.txns.kind[mop as usize] != Kind::ReadList {
                continue;
            }
            let (writer, next) = if let Some((first, rest)) = odd.split_first().filter(|(o, _)| o.read == mop) {
                odd = rest;
                (first.writer, first.missed)
            } else {
                let n = self.txns.list(mop).len();
                if whole && n == len {
                    fan.from.push((txn, Rel::Rw));
                }
                match known.gaps {
                    true => (before[n], from_on[n]),
                    false => (if n > 0 { writers[n - 1] } else { NONE }, writers.get(n).copied().unwrap_or(NONE)),
                }
            };
            if writer != NONE && writer != txn {
                sink.edge(writer, txn, Rel::Wr);
            }
            if next != NONE && next != txn {
                sink.edge(txn, next, Rel::Rw);
            }
        }
        if whole && !fan.from.is_empty() {
            sink.fan(&fan.from, &fan.to);
        }
    }
}

#[derive(Default)]
struct Fan {
    from: Vec<(u32, Rel)>,
    to: Vec<u32>,
}

impl Dependencies for Lists<'_> {
    fn parts(&self) -> usize {
        self.shards.len()
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        let shard = &self.shards[part];
        let mut fan = Fan::default();
        for key in shard.keys.clone() {
            self.edges_of_key(shard, key, sink, &mut fan);
        }
    }
}

/// An append to the key at hand.
#[derive(Clone, Copy, Debug)]
struct Append {
    element: i64,
    mop: Mop,
    txn: Txn,
    failed: bool,
    /// Others appended the same element, and it is not known whose was read.
    ambiguous: bool,
    /// Its place in the longest list.
    place: u32,
}

/// Appends of the key at hand by element.
#[derive(Debug, Default)]
pub(super) struct Index {
    base: i64,
    table: Vec<u32>,
    map: HashMap<i64, u32, FixedState>,
    mapped: bool,
}

impl Index {
    pub(super) fn clear(&mut self, appends: usize, least: i64, most: i64) {
        let span = most.wrapping_sub(least) as u64;
        self.mapped = span > 8 * appends as u64 + 64;
        self.base = least;
        self.map.clear();
        self.table.clear();
        if !self.mapped && appends > 0 {
            self.table.resize(span as usize + 1, NONE);
        }
    }

    #[inline]
    pub(super) fn get(&self, element: i64) -> Option<usize> {
        let found = match self.mapped {
            true => self.map.get(&element).copied(),
            false => self.table.get(element.wrapping_sub(self.base) as u64 as usize).copied(),
        };
        found.filter(|&i| i != NONE).map(|i| i as usize)
    }

    #[inline]
    pub(super) fn set(&mut self, element: i64, at: usize) {
        match self.mapped {
            true => {
                self.map.insert(element, at as u32);
            }
            false => self.table[element.wrapping_sub(self.base) as u64 as usize] = at as u32,
        }
    }
}

/// Goes over keys, reusing its memory.
struct Scan<'a> {
    txns: &'a Txns<'a>,
    appends: Vec<Append>,
    index: Index,
    /// By place in the longest list: the append, if known.
    at: Vec<u32>,
    /// Where the longest list first holds what it should not.
    bad: Bad,
    /// By length: the first transaction that read that version and wrote the key, or those that were counted.
    updates: HashMap<u32, Update, FixedState>,
    /// What the transaction at hand appended since its last read.
    own: Vec<i64>,
    shard: Shard<'a>,
}

/// Is a list a prefix of the longest? Histories hold most of them as parts of the same elements, which need no comparison.
#[inline]
fn is_prefix(list: &[i64], longest: &[i64]) -> bool {
    list.len() <= longest.len() && (list.as_ptr() == longest.as_ptr() || list == &longest[..list.len()])
}

/// First places in the longest list of what should not be there, its length where nothing is wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Bad {
    aborted: usize,
    garbage: usize,
    duplicate: usize,
}

#[derive(Clone, Copy, Debug)]
struct Update {
    first: Mop,
    counted: bool,
}

impl<'a> Scan<'a> {
    fn keeping(txns: &'a Txns<'a>, cases: u64) -> Self {
        Scan {
            txns,
            appends: Vec::new(),
            index: Index::default(),
            at: Vec::new(),
            bad: Bad::default(),
            updates: HashMap::default(),
            own: Vec::new(),
            shard: Shard { cases: Cases::keeping(cases), ..Shard::default() },
        }
    }

    fn run(mut self, by_key: &ByKey, keys: Range<usize>) -> Shard<'a> {
        self.shard.keys = keys.clone();
        self.shard.known.reserve(keys.len());
        for key in keys {
            let (mops, txns) = by_key.get(key);
            self.key(key as u32, mops, txns);
        }
        self.shard
    }

    fn key(&mut self, key: u32, mops: &[Mop], txns: &[Txn]) {
        self.gather(key, mops, txns);
        let (longest, read) = self.longest(mops);
        let place = self.shard.writers.len() as u32;
        let (odd, late) = (self.shard.odd.len() as u32, self.shard.late.len() as u32);
        let gaps = self.place(key, longest, read);
        if read != NONE {
            self.reads(key, longest, mops, txns);
            self.observe(longest.len(), mops, txns);
        }
        self.within(key, longest, mops, txns);
        self.backward(key, read);
        self.late(late as usize);
        self.shard.known.push(Known {
            longest,
            read,
            writers: place,
            gaps,
            late: (late, self.shard.late.len() as u32),
            odd: (odd, self.shard.odd.len() as u32),
        });
    }

    /// The appends of a key, by element.
    fn gather(&mut self, key: u32, mops: &[Mop], txns: &[Txn]) {
        self.appends.clear();
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for (&mop, &txn) in mops.iter().zip(txns) {
            if self.txns.kind[mop as usize] == Kind::Append {
                let element = self.txns.value[mop as usize];
                (least, most) = (least.min(element), most.max(element));
                let failed = self.txns.status[txn as usize] == Status::Fail;
                self.appends.push(Append { element, mop, txn, failed, ambiguous: false, place: NONE });
            }
        }
        self.index.clear(self.appends.len(), least, most);
        for i in 0..self.appends.len() {
            let new = self.appends[i];
            let Some(j) = self.index.get(new.element) else {
                self.index.set(new.element, i);
                continue;
            };
            // An append that failed and was tried again is no second writer.
            match (self.appends[j].failed, new.failed) {
                (_, true) => {}
                (true, false) => self.index.set(new.element, i),
                (false, false) => {
                    self.appends[j].ambiguous = true;
                    self.appends[i].ambiguous = true;
                    let first = self.appends[j].mop;
                    self.shard.cases.add(Anomaly::DuplicateWrites, || (key, vec![first, new.mop], vec![new.element]));
                }
            }
        }
    }

    fn longest(&self, mops: &[Mop]) -> (&'a [i64], Mop) {
        let mut best: (&[i64], Mop) = (&[], NONE);
        for &mop in mops {
            if self.txns.kind[mop as usize] == Kind::ReadList {
                let list = self.txns.list(mop);
                if best.1 == NONE || list.len() > best.0.len() {
                    best = (list, mop);
                }
            }
        }
        best
    }

    /// Finds the writers of the longest list; says whether some element has none that is committed.
    fn place(&mut self, key: u32, longest: &[i64], read: Mop) -> bool {
        self.at.clear();
        self.bad = Bad { aborted: longest.len(), garbage: longest.len(), duplicate: longest.len() };
        let from = self.shard.writers.len();
        let mut gaps = false;
        for (place, &element) in longest.iter().enumerate() {
            let found = self.index.get(element);
            let mut writer = NONE;
            match found {
                None => self.bad.garbage = self.bad.garbage.min(place),
                Some(i) if self.appends[i].place != NONE => self.bad.duplicate = self.bad.duplicate.min(place),
                Some(i) => {
                    let append = &mut self.appends[i];
                    append.place = place as u32;
                    if append.failed {
                        self.bad.aborted = self.bad.aborted.min(place);
                    } else if !append.ambiguous {
                        writer = append.txn;
                    }
                }
            }
            gaps |= writer == NONE;
            self.at.push(found.map_or(NONE, |i| i as u32));
            self.shard.writers.push(writer);
        }
        if gaps {
            self.bridge(from, longest.len());
            self.dirty_updates(key, from, longest, read);
        }
        gaps
    }

    /// For each position the last writer before it, and the next one from it on.
    fn bridge(&mut self, from: usize, len: usize) {
        let writers = &mut self.shard.writers;
        let mut last = NONE;
        writers.push(last);
        for place in 0..len {
            if writers[from + place] != NONE {
                last = writers[from + place];
            }
            writers.push(last);
        }
        let start = writers.len();
        writers.resize(start + len + 1, NONE);
        for place in (0..len).rev() {
            let own = writers[from + place];
            writers[start + place] = if own != NONE { own } else { writers[start + place + 1] };
        }
    }

    /// Committed elements right after aborted ones.
    fn dirty_updates(&mut self, key: u32, from: usize, longest: &[i64], read: Mop) {
        let mut aborted = NONE;
        for place in 0..longest.len() {
            let Some(append) = self.appends.get(self.at[place] as usize).copied() else { continue };
            if append.failed {
                aborted = self.at[place];
            } else if self.shard.writers[from + place] != NONE && aborted != NONE {
                let first = self.appends[aborted as usize];
                self.shard.cases.add(Anomaly::DirtyUpdate, || {
                    (key, vec![first.mop, append.mop, read], vec![first.element, append.element])
                });
                aborted = NONE;
            }
        }
    }

    /// Holds every read against the longest.
    fn reads(&mut self, key: u32, longest: &[i64], mops: &[Mop], txns: &[Txn]) {
        for (&mop, &txn) in mops.iter().zip(txns) {
            if self.txns.kind[mop as usize] != Kind::ReadList {
                continue;
            }
            let list = self.txns.list(mop);
            let n = list.len();
            if is_prefix(list, longest) {
                if n > self.bad.aborted || n > self.bad.garbage || n > self.bad.duplicate {
                    self.tainted(key, list, mop);
                }
                if n > 0 {
                    self.intermediate(key, self.at[n - 1], mop, txn);
                }
            } else {
                self.odd(key, longest, list, mop, txn);
            }
        }
    }

    /// A read that ends with an append that its own transaction followed by another one.
    fn intermediate(&mut self, key: u32, append: u32, mop: Mop, txn: Txn) {
        let Some(&own) = self.appends.get(append as usize) else { return };
        let followed = self.appends.get(append as usize + 1).filter(|next| next.txn == own.txn);
        if let Some(next) = followed.filter(|_| own.txn != txn && !own.ambiguous) {
            self.shard.cases.add(Anomaly::G1b, || (key, vec![mop, own.mop, next.mop], vec![own.element, next.element]));
        }
    }

    /// A read that holds what it should not.
    fn tainted(&mut self, key: u32, list: &[i64], mop: Mop) {
        let mut met: HashSet<i64, FixedState> = HashSet::default();
        let (mut aborted, mut garbage, mut duplicate) = (None, None, None);
        for &element in list {
            if !met.insert(element) {
                duplicate = duplicate.or(Some(element));
                continue;
            }
            match self.index.get(element) {
                None => garbage = garbage.or(Some(element)),
                Some(i) if self.appends[i].failed => aborted = aborted.or(Some(self.appends[i])),
                Some(_) => {}
            }
        }
        let cases = &mut self.shard.cases;
        if let Some(append) = aborted {
            cases.add(Anomaly::G1a, || (key, vec![mop, append.mop], vec![append.element]));
        }
        if let Some(element) = garbage {
            cases.add(Anomaly::GarbageRead, || (key, vec![mop], vec![element]));
        }
        if let Some(element) = duplicate {
            cases.add(Anomaly::DuplicateElements, || (key, vec![mop], vec![element]));
        }
    }

    fn odd(&mut self, key: u32, longest: &[i64], list: &[i64], mop: Mop, txn: Txn) {
        let differ = list.iter().zip(longest).position(|(a, b)| a != b).unwrap_or(0);
        let both = vec![list[differ], longest[differ]];
        self.shard.cases.add(Anomaly::IncompatibleOrder, || (key, vec![mop], both));
        self.tainted(key, list, mop);
        let last = list.last().and_then(|&e| self.index.get(e));
        let mut odd = Odd { read: mop, writer: NONE, missed: self.missed(list) };
        if let Some(i) = last {
            self.intermediate(key, i as u32, mop, txn);
            let append = self.appends[i];
            if !append.failed && !append.ambiguous {
                odd.writer = append.txn;
            }
        }
        self.shard.odd.push(odd);
        for i in list.iter().filter_map(|&e| self.index.get(e)) {
            let append = self.appends[i];
            if !append.failed && self.txns.status[append.txn as usize] != Status::Ok {
                self.shard.seen.push((append.txn, self.txns.complete[txn as usize]));
            }
        }
    }

    /// Who appended the first element of the longest list that a read does not hold?
    fn missed(&self, list: &[i64]) -> Txn {
        let held: HashSet<i64, FixedState> = list.iter().copied().collect();
        let known = self.at.iter().filter_map(|&i| self.appends.get(i as usize));
        known.filter(|a| !a.failed && !a.ambiguous).find(|a| !held.contains(&a.element)).map_or(NONE, |a| a.txn)
    }

    /// When were unacknowledged appends first seen? O(reads · log of these).
    fn observe(&mut self, len: usize, mops: &[Mop], txns: &[Txn]) {
        let unknown = |a: &Append| !a.failed && self.txns.status[a.txn as usize] != Status::Ok;
        let places: Vec<(usize, Txn)> = (0..len)
            .filter_map(|p| self.appends.get(self.at[p] as usize).filter(|a| unknown(a)).map(|a| (p, a.txn)))
            .collect();
        if places.is_empty() {
            return;
        }
        let mut first = vec![u64::MAX; places.len()];
        for (&mop, &txn) in mops.iter().zip(txns) {
            if self.txns.kind[mop as usize] == Kind::ReadList {
                let n = self.txns.list(mop).len();
                let within = places.partition_point(|&(p, _)| p < n);
                if within > 0 {
                    first[within - 1] = first[within - 1].min(self.txns.complete[txn as usize]);
                }
            }
        }
        let mut least = u64::MAX;
        for (i, &(_, txn)) in places.iter().enumerate().rev() {
            least = least.min(first[i]);
            self.shard.seen.push((txn, least));
        }
    }

    /// Appends that may have been committed and that are in no list.
    fn late(&mut self, start: usize) {
        let late = &mut self.shard.late;
        for append in self.appends.iter().filter(|a| !a.failed && !a.ambiguous && a.place == NONE) {
            if late[start..].last() != Some(&append.txn) {
                late.push(append.txn);
            }
        }
    }

    /// Appends of one transaction that stand in the longest list in another order than it made them in, or of which only the later
    /// one does.
    fn backward(&mut self, key: u32, read: Mop) {
        let cases = &mut self.shard.cases;
        for pair in self.appends.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            let known = !first.failed && !first.ambiguous && !second.ambiguous;
            if first.txn == second.txn && known && second.place != NONE && second.place < first.place {
                let both = vec![first.element, second.element];
                self.shard.backward |= self.txns.ok(first.txn);
                cases.add(Anomaly::CyclicVersions, || (key, vec![first.mop, second.mop, read], both));
            }
        }
    }

    /// What single transactions did with the key: did they agree with themselves, and who else updated the version they read?
    fn within(&mut self, key: u32, longest: &[i64], mops: &[Mop], txns: &[Txn]) {
        self.updates.clear();
        let mut start = 0;
        while start < mops.len() {
            let mut end = start + 1;
            while end < mops.len() && txns[end] == txns[start] {
                end += 1;
            }
            if end - start > 1 && self.txns.status[txns[start] as usize] == Status::Ok {
                self.transaction(key, longest, &mops[start..end]);
            }
            start = end;
        }
    }

    fn transaction(&mut self, key: u32, longest: &[i64], mops: &[Mop]) {
        self.internal(key, mops);
        self.future(key, mops);
        let kind = |m: Mop| self.txns.kind[m as usize];
        let Some(at) = mops.iter().position(|&m| kind(m) == Kind::ReadList) else { return };
        let first = mops[at];
        if !mops[at..].iter().any(|&m| kind(m) == Kind::Append) {
            return;
        }
        let list = self.txns.list(first);
        if !is_prefix(list, longest) {
            return;
        }
        let update = self.updates.entry(list.len() as u32).or_insert(Update { first, counted: false });
        if update.first != first && !update.counted {
            update.counted = true;
            let one = update.first;
            let elements = list.last().copied().into_iter().collect();
            self.shard.cases.add(Anomaly::LostUpdate, || (key, vec![one, first], elements));
        }
    }

    /// Does a transaction's read hold what it had read and appended before?
    fn internal(&mut self, key: u32, mops: &[Mop]) {
        let mut read: Option<Mop> = None;
        self.own.clear();
        for &mop in mops {
            let own = &mut self.own;
            match self.txns.kind[mop as usize] {
                Kind::Append => own.push(self.txns.value[mop as usize]),
                Kind::ReadList => {
                    let list = self.txns.list(mop);
                    let agrees = match read {
                        Some(earlier) => {
                            list.strip_prefix(self.txns.list(earlier)).is_some_and(|rest| rest == &own[..])
                        }
                        None => list.ends_with(own),
                    };
                    if !agrees {
                        let before = read.unwrap_or(mops[0]);
                        let own = &self.own;
                        self.shard.cases.add(Anomaly::Internal, || (key, vec![before, mop], own.clone()));
                        return;
                    }
                    read = Some(mop);
                    own.clear();
                }
                _ => {}
            }
        }
    }

    /// Does a transaction's read hold what it appended only afterwards?
    fn future(&mut self, key: u32, mops: &[Mop]) {
        for (i, &mop) in mops.iter().enumerate() {
            if self.txns.kind[mop as usize] != Kind::ReadList {
                continue;
            }
            let list = self.txns.list(mop);
            for &later in &mops[i + 1..] {
                let element = self.txns.value[later as usize];
                if self.txns.kind[later as usize] == Kind::Append
                    && let Some(j) = self.index.get(element)
                    && self.appends[j].mop == later
                    && !self.appends[j].ambiguous
                    && ((self.appends[j].place as usize) < list.len() || self.appends[j].place == NONE)
                    && list.contains(&element)
                {
                    self.shard.cases.add(Anomaly::FutureRead, || (key, vec![mop, later], vec![element]));
                    return;
                }
            }
        }
    }
}
