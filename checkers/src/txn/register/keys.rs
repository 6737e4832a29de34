//! What does each key say about the order of its versions, and that about the order of transactions?
//!
//! One key at a time, with the micro-operations on it in order of transactions: what is wrong by itself (reads of failed, of intermediate
//! and of unwritten values, lost updates), then the order of versions from each source, then the edges between transactions.
//!
//! O(micro-operations · log), but for real-time order, where it is O(versions · those open at once).

use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Assumptions;
use super::entries::{Entries, Entry, by_transaction};
use crate::graph::component::{Components, Walk};
use crate::graph::{Rel, Sink};
use crate::txn::anomaly::Anomaly;
use crate::txn::history::{Mop, NIL, NONE, Txn, Txns};
use crate::txn::lists::{Cases, Index};

/// A number of a version of the key at hand.
pub(super) type Version = u32;

/// The version that was there before anyone wrote.
pub(super) const INITIAL: Version = 0;

/// What is known of a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub value: i64,
    /// The write that installed it, by a transaction that did not fail.
    write: Mop,
    writer: Txn,
    /// A write of it by a transaction that failed.
    failed: Mop,
    /// Its writer, failed or not, wrote the key again.
    overwritten: Mop,
    /// It was written more than once, or also initial: who reads it may have read from any of these.
    pub ambiguous: bool,
    /// Its writer committed, as far as anybody knows.
    committed: bool,
}

impl Known {
    fn new(value: i64) -> Known {
        Known { value, write: NONE, writer: NONE, failed: NONE, overwritten: NONE, ambiguous: false, committed: false }
    }

    /// Who installed it, if that is certain and it was not only in between.
    pub(super) fn installer(&self) -> Txn {
        if self.ambiguous || self.overwritten != NONE { NONE } else { self.writer }
    }
}

/// What a committed transaction did with the key, as others see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub txn: Txn,
    /// The version that it read before it wrote.
    pub read: Version,
    /// The version that it wrote last.
    pub wrote: Version,
}

impl Touch {
    /// The version that it met first. A read of the initial one is passed over if a write follows: that the key had been
    /// written before is a cycle by name (`rw`, and process or real-time order), which should not cost the key's whole order.
    pub(super) fn met(&self) -> Version {
        if self.wrote == NONE || (self.read != NONE && self.read != INITIAL) { self.read } else { self.wrote }
    }

    /// The version that it left behind.
    pub(super) fn left(&self) -> Version {
        if self.wrote != NONE { self.wrote } else { self.read }
    }
}

/// Each of these before each of those.
#[derive(Debug, Default)]
pub(super) struct Fan {
    from: Vec<(u32, Rel)>,
    to: Vec<u32>,
}

/// Some keys.
#[derive(Debug, Default)]
pub(super) struct Shard {
    edges: Vec<(Txn, Txn, Rel)>,
    fans: Vec<Fan>,
    /// Did a version say anything about a transaction, if only about the one that wrote it?
    pub said: bool,
    pub cases: Cases,
}

impl Shard {
    pub(super) fn edges<S: Sink>(&self, sink: &mut S) {
        self.edges.iter().for_each(|&(from, to, rel)| sink.edge(from, to, rel));
        self.fans.iter().for_each(|fan| sink.fan(&fan.from, &fan.to));
    }
}

/// Goes over keys, reusing its memory.
pub(super) struct Scan<'a> {
    txns: &'a Txns<'a>,
    committed: &'a [bool],
    assumptions: Assumptions,
    /// Who committed before whom, where that is believed.
    ranks: &'a [u32],
    index: Index,
    pub versions: Vec<Known>,
    /// Versions that were read though nobody wrote them.
    unwritten: HashMap<i64, Version, FixedState>,
    pub touches: Vec<Touch>,
    /// By process: the version that it last left in the key, with the key's number plus one where it did.
    last: Vec<(u32, Version)>,
    /// Who read a version first, and then wrote the key; counted already?
    updates: HashMap<Version, (Mop, bool), FixedState>,
    shard: Shard,
}

impl<'a> Scan<'a> {
    pub(super) fn new(txns: &'a Txns<'a>, committed: &'a [bool], assumptions: Assumptions, ranks: &'a [u32]) -> Self {
        Scan {
            txns,
            committed,
            assumptions,
            ranks,
            index: Index::default(),
            versions: Vec::new(),
            unwritten: HashMap::default(),
            touches: Vec::new(),
            last: Vec::new(),
            updates: HashMap::default(),
            shard: Shard::default(),
        }
    }

    /// Keeps so many cases of each kind at most.
    pub(super) fn keeping(mut self, most: u64) -> Self {
        self.shard.cases = Cases::keeping(most);
        self
    }

    /// Goes over keys.
    pub(super) fn keys(mut self, entries: &Entries, keys: Range<usize>) -> Shard {
        for key in keys {
            self.key(key as u32, entries.get(key));
        }
        self.shard
    }

    fn key(&mut self, key: u32, entries: &[Entry]) {
        let order = self.infer(key, entries);
        self.dependencies(&order);
    }

    /// The order of a key's versions besides that of the initial one: pairs, sorted.
    pub(super) fn infer(&mut self, key: u32, entries: &[Entry]) -> Vec<(Version, Version)> {
        self.writes(key, entries);
        self.touches.clear();
        self.updates.clear();
        for (txn, own) in by_transaction(entries) {
            let ok = own[0].ok();
            if ok {
                self.reads(key, txn, own);
            }
            if ok || self.committed[txn as usize] {
                self.touch(key, txn, own);
            }
        }
        self.order(key)
    }

    /// Numbers the versions: the initial one, then those written.
    fn writes(&mut self, key: u32, entries: &[Entry]) {
        self.versions.clear();
        self.unwritten.clear();
        self.versions.push(Known::new(NIL));
        let values = entries.iter().filter(|e| e.writes() && e.value != NIL).map(|e| e.value);
        let (least, most, count) =
            values.fold((i64::MAX, i64::MIN, 0), |(a, b, count), v| (a.min(v), b.max(v), count + 1));
        self.index.clear(count, if count > 0 { least } else { 0 }, if count > 0 { most } else { 0 });
        for (txn, own) in by_transaction(entries) {
            let mut before: Option<usize> = None;
            for entry in own.iter().filter(|e| e.writes()) {
                let version = self.write(key, *entry);
                let failed = entry.failed();
                let mine = |known: &Known| if failed { known.writer == NONE } else { known.writer == txn };
                if let Some(before) = before.filter(|&b| b != version && mine(&self.versions[b])) {
                    self.versions[before].overwritten = entry.mop();
                }
                if mine(&self.versions[version]) {
                    self.versions[version].overwritten = NONE;
                }
                before = Some(version);
            }
        }
    }

    fn write(&mut self, key: u32, entry: Entry) -> usize {
        let Entry { value, txn, .. } = entry;
        let mop = entry.mop();
        let version = if value == NIL { Some(INITIAL as usize) } else { self.index.get(value) };
        let version = version.unwrap_or_else(|| {
            self.versions.push(Known::new(value));
            self.index.set(value, self.versions.len() - 1);
            self.versions.len() - 1
        });
        let known = &mut self.versions[version];
        if entry.failed() {
            known.failed = if known.failed == NONE { mop } else { known.failed };
        } else if known.writer == NONE {
            (known.write, known.writer, known.overwritten) = (mop, txn, NONE);
            known.committed = entry.ok() || self.committed[txn as usize];
            known.ambiguous = value == NIL;
        } else if known.writer != txn {
            known.ambiguous = true;
            let first = known.write;
            self.shard.cases.add(Anomaly::DuplicateWrites, || (key, vec![first, mop], vec![value]));
        }
        version
    }

    /// The version that a value is. One that nobody wrote gets a number, too.
    fn version(&mut self, value: i64) -> Version {
        if value == NIL {
            return INITIAL;
        }
        if let Some(version) = self.index.get(value) {
            return version as Version;
        }
        let versions = &mut self.versions;
        *self.unwritten.entry(value).or_insert_with(|| {
            versions.push(Known::new(value));
            versions.len() as Version - 1
        })
    }

    /// Holds what a transaction read against who wrote it, and against what it did itself.
    fn reads(&mut self, key: u32, txn: Txn, entries: &[Entry]) {
        let mut before: Option<Entry> = None;
        let mut disagrees = false;
        for (i, &entry) in entries.iter().enumerate() {
            if !entry.writes() {
                self.read(key, txn, entry, &entries[i + 1..]);
                if let Some(earlier) = before.filter(|b| !disagrees && b.value != entry.value) {
                    disagrees = true;
                    let values = vec![earlier.value, entry.value];
                    self.shard.cases.add(Anomaly::Internal, || (key, vec![earlier.mop(), entry.mop()], values));
                }
            }
            before = Some(entry);
        }
    }

    fn read(&mut self, key: u32, txn: Txn, entry: Entry, later: &[Entry]) {
        let (value, mop) = (entry.value, entry.mop());
        let known = match value {
            NIL => return,
            value => self.index.get(value).map(|v| self.versions[v]),
        };
        let cases = &mut self.shard.cases;
        match known {
            None => cases.add(Anomaly::GarbageRead, || (key, vec![mop], vec![value])),
            Some(known) if known.writer == NONE => {
                cases.add(Anomaly::G1a, || (key, vec![mop, known.failed], vec![value]));
                if known.overwritten != NONE {
                    cases.add(Anomaly::G1b, || (key, vec![mop, known.failed, known.overwritten], vec![value]));
                }
                let write = later.iter().find(|e| e.writes());
                if let Some(write) = write.filter(|_| self.assumptions.wfr_keys) {
                    let values = vec![value, write.value];
                    cases.add(Anomaly::DirtyUpdate, || (key, vec![mop, known.failed, write.mop()], values));
                }
            }
            Some(known) if known.ambiguous => {}
            Some(known) if known.writer == txn => {
                if later.iter().any(|e| e.mop() == known.write) {
                    cases.add(Anomaly::FutureRead, || (key, vec![mop, known.write], vec![value]));
                }
            }
            Some(known) if known.overwritten != NONE => {
                cases.add(Anomaly::G1b, || (key, vec![mop, known.write, known.overwritten], vec![value]));
            }
            Some(_) => {}
        }
    }

    /// What others see of a committed transaction.
    fn touch(&mut self, key: u32, txn: Txn, entries: &[Entry]) {
        let first = entries.first().filter(|e| !e.writes() && e.ok()).map(|e| e.value);
        let read = first.map_or(NONE, |value| self.version(value));
        let last = entries.iter().rev().find(|e| e.writes()).map(|e| e.value);
        let wrote = last.map_or(NONE, |value| self.version(value));
        // Of the transaction's own later write it says nothing about others.
        let read = if read != NONE && self.versions[read as usize].writer == txn { NONE } else { read };
        if read == NONE && wrote == NONE {
            return;
        }
        if read != NONE && wrote != NONE && !self.versions[read as usize].ambiguous {
            self.update(key, read, entries[0]);
        }
        self.touches.push(Touch { txn, read, wrote });
    }

    /// Did two transactions update the same version?
    fn update(&mut self, key: u32, version: Version, read: Entry) {
        let (value, read) = (read.value, read.mop());
        let (first, counted) = self.updates.entry(version).or_insert((read, false));
        if *first != read && !*counted {
            *counted = true;
            let first = *first;
            self.shard.cases.add(Anomaly::LostUpdate, || (key, vec![first, read], vec![value]));
        }
    }

    pub(super) fn certain(&self, version: Version) -> bool {
        version != NONE && !self.versions[version as usize].ambiguous
    }

    /// The order of versions besides that of the initial one: pairs, without repetition.
    fn order(&mut self, key: u32) -> Vec<(Version, Version)> {
        let mut order = Vec::new();
        let Assumptions { commit_timestamps, wfr_keys, sequential_keys, linearizable_keys } = self.assumptions;
        if commit_timestamps {
            let more = self.by_commit();
            self.trust(key, &mut order, more);
        }
        if wfr_keys {
            let more = self.after_reads();
            self.trust(key, &mut order, more);
        }
        if sequential_keys {
            let more = self.by_process(key);
            self.trust(key, &mut order, more);
        }
        if linearizable_keys {
            let more = self.by_time();
            self.trust(key, &mut order, more);
        }
        order
    }

    /// Adds a source, unless that makes the order cyclic.
    fn trust(&mut self, key: u32, order: &mut Vec<(Version, Version)>, more: Vec<(Version, Version)>) {
        if more.is_empty() {
            return;
        }
        let mut both = more;
        both.extend_from_slice(order);
        both.sort_unstable();
        both.dedup();
        let cyclic = self.cyclic(&both);
        if cyclic.is_empty() {
            *order = both;
        }
        for versions in cyclic {
            let known = versions.iter().map(|&v| self.versions[v as usize]);
            let mops = known.clone().map(|k| k.write).filter(|&m| m != NONE).collect();
            let values = known.map(|k| k.value).collect();
            self.shard.cases.add(Anomaly::CyclicVersions, || (key, mops, values));
        }
    }

    fn pair(&self, earlier: Version, later: Version) -> Option<(Version, Version)> {
        (earlier != later && self.certain(earlier) && self.certain(later)).then_some((earlier, later))
    }

    /// Versions right after each other in the order in which their transactions committed.
    fn by_commit(&self) -> Vec<(Version, Version)> {
        let rank = |v: Version| self.ranks.get(self.versions[v as usize].installer() as usize).copied();
        let mut known: Vec<(u32, Version)> = (1..self.versions.len() as Version)
            .filter_map(|v| Some((rank(v).filter(|&r| r != NONE)?, v)))
            .filter(|&(_, v)| self.committed[self.versions[v as usize].installer() as usize])
            .collect();
        known.sort_unstable();
        known.windows(2).filter(|w| w[0].0 < w[1].0).filter_map(|w| self.pair(w[0].1, w[1].1)).collect()
    }

    fn after_reads(&self) -> Vec<(Version, Version)> {
        let both = self.touches.iter().filter(|t| t.read != NONE && t.wrote != NONE);
        both.filter_map(|t| self.pair(t.read, t.wrote)).collect()
    }

    fn by_process(&mut self, key: u32) -> Vec<(Version, Version)> {
        self.last.resize(self.txns.processes as usize, (0, NONE));
        let mut pairs = Vec::new();
        for t in &self.touches {
            let process = self.txns.process[t.txn as usize];
            if process == NONE {
                continue;
            }
            let (of_key, last) = self.last[process as usize];
            if of_key == key + 1 {
                pairs.extend(self.pair(last, t.met()));
            }
            // One whose end is unknown may take effect after its process went on.
            if self.txns.ok(t.txn) && self.certain(t.left()) {
                self.last[process as usize] = (key + 1, t.left());
            }
        }
        pairs
    }

    fn by_time(&self) -> Vec<(Version, Version)> {
        let mut left = vec![u64::MAX; self.versions.len()];
        let mut met = vec![None; self.versions.len()];
        for t in &self.touches {
            let (first, last) = (t.met() as usize, t.left() as usize);
            left[last] = left[last].min(self.txns.complete[t.txn as usize]);
            met[first] = met[first].max(Some(self.txns.invoke[t.txn as usize]));
        }
        let certain = |&v: &Version| self.certain(v);
        let all = || (0..self.versions.len() as Version).filter(certain);
        let ended = all().filter(|&v| left[v as usize] != u64::MAX).map(|v| (left[v as usize], v)).collect();
        let began = all().filter_map(|v| met[v as usize].map(|at| (at, v))).collect();
        right_after(ended, began, &left)
    }

    /// What versions say about transactions.
    fn dependencies(&mut self, order: &[(Version, Version)]) {
        let mut readers: Vec<(Version, Txn)> = Vec::new();
        for t in &self.touches {
            if !self.certain(t.read) {
                continue;
            }
            let known = &self.versions[t.read as usize];
            let writer = known.installer();
            if writer != NONE && writer != t.txn && known.committed {
                self.shard.edges.push((writer, t.txn, Rel::Wr));
            }
            if t.read == INITIAL || !order.is_empty() {
                readers.push((t.read, t.txn));
            }
        }
        readers.sort_unstable();
        if self.certain(INITIAL) {
            let every: Vec<Version> = (1..self.versions.len() as Version).collect();
            self.before(INITIAL, &every, &readers);
        }
        for next in order.chunk_by(|a, b| a.0 == b.0) {
            let later: Vec<Version> = next.iter().map(|p| p.1).collect();
            self.before(next[0].0, &later, &readers);
        }
    }

    /// One version comes right before others.
    fn before(&mut self, version: Version, later: &[Version], readers: &[(Version, Txn)]) {
        let installer = |v: Version| {
            let known = &self.versions[v as usize];
            Some(known.installer()).filter(|&txn| txn != NONE && known.committed)
        };
        let from = readers.partition_point(|r| r.0 < version);
        let own = readers[from..].iter().take_while(|r| r.0 == version).map(|r| (r.1, Rel::Rw));
        let from: Vec<(Txn, Rel)> = installer(version).map(|t| (t, Rel::Ww)).into_iter().chain(own).collect();
        if from.is_empty() {
            return;
        }
        let to: Vec<Txn> = later.iter().filter_map(|&v| installer(v)).collect();
        self.shard.said |= !to.is_empty();
        if from.len() > 2 && to.len() > 2 {
            return self.shard.fans.push(Fan { from, to });
        }
        for (txn, rel) in from {
            let others = to.iter().filter(|&&t| t != txn);
            self.shard.edges.extend(others.map(|&t| (txn, t, rel)));
        }
    }

    /// Versions that are before themselves, by component. The initial one is before all others.
    fn cyclic(&self, order: &[(Version, Version)]) -> Vec<Vec<Version>> {
        let versions = self.versions.len();
        let initial_is_first = !self.versions[INITIAL as usize].ambiguous;
        let mut starts = vec![0u32; versions + 1];
        order.iter().for_each(|&(v, _)| starts[v as usize + 1] += 1);
        for v in 0..versions {
            starts[v + 1] += starts[v];
        }
        let rows = Rows { starts, order, initial_is_first };
        let components = Components::of(&rows, 0..versions as u32);
        if components.len() == versions {
            return Vec::new();
        }
        let (nodes, starts) = components.groups();
        let groups = starts.windows(2).map(|w| nodes[w[0] as usize..w[1] as usize].to_vec());
        groups.filter(|g| g.len() > 1).collect()
    }
}

/// Versions and what comes right after them.
struct Rows<'a> {
    starts: Vec<u32>,
    /// Sorted.
    order: &'a [(Version, Version)],
    initial_is_first: bool,
}

impl Walk for Rows<'_> {
    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        *cursor += 1;
        if node == INITIAL && self.initial_is_first {
            return ((*cursor as usize) < self.nodes()).then_some(*cursor);
        }
        let at = self.starts[node as usize] + *cursor - 1;
        (at < self.starts[node as usize + 1]).then(|| self.order[at as usize].1)
    }
}

/// Pairs of versions, one left before the other was met, without those that follow from others. Gets versions with the time
/// at which they were first left, and with that at which they were last met.
fn right_after(
    mut ended: Vec<(u64, Version)>,
    mut began: Vec<(u64, Version)>,
    left: &[u64],
) -> Vec<(Version, Version)> {
    ended.sort_unstable();
    began.sort_unstable();
    let mut pairs = Vec::new();
    // Of those met after the version at hand was left, the three that were themselves left first.
    let mut soonest: Vec<(u64, Version)> = Vec::with_capacity(4);
    let mut start = began.len();
    for &(end, version) in ended.iter().rev() {
        while start > 0 && began[start - 1].0 > end {
            start -= 1;
            let later = began[start].1;
            let at = soonest.partition_point(|s| s.0 <= left[later as usize]);
            if at < 3 {
                soonest.insert(at, (left[later as usize], later));
                soonest.truncate(3);
            }
        }
        let Some(&(bound, next)) = soonest.iter().find(|s| s.1 != version) else { continue };
        // Also where something lies between: so a cycle stays one.
        pairs.push((version, next));
        let run = began[start..].iter().take_while(|b| b.0 <= bound).map(|b| b.1);
        pairs.extend(run.filter(|&later| later != version && later != next).map(|later| (version, later)));
    }
    pairs
}
