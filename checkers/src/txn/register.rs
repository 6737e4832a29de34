//! What do reads and writes of registers say about the order of transactions?
//!
//! A register shows one value at a time, and nobody says which came before. As values are written once, a read names its
//! transaction (`wr`); the order of a key's *versions* must be inferred, from sources that are trusted one after the other:
//!
//! - the initial value comes before all others, unless somebody wrote it: then who reads it read an unknown version;
//! - `wfr_keys`: who reads a version and writes the key installs a later one;
//! - `sequential_keys`: what a process meets in a key later is not older;
//! - `linearizable_keys`: what a transaction meets in a key is not older than what another one left there before it began.
//!
//! A source that makes a key's versions cyclic is told of (`cyclic-versions`) and left out for that key. The order then
//! gives `ww` (who installed a version, who installed the next) and `rw` (who read a version, who installed the next).
//!
//! Real-time order of versions has O(n²) pairs, too: a version was left, at the earliest, at `c`, and was met by a transaction
//! that began, at the latest, at `i`; one precedes another when its `c` is before the other's `i`. Sorted by `i`, the versions right
//! after one are a run, which ends where a version between begins to exist.
//!
//! Keys are independent of each other. O(micro-operations · log), but for real-time order, where it is O(versions · those open
//! at once). Memory: 8 bytes an edge.
//!
//! The idea is Elle's (Kingsbury and Alvaro, VLDB 2020). Here, other than there, a transaction of unknown end takes part when
//! somebody read what it wrote, and what nobody wrote, or what was written twice, is named.

use std::ops::Range;

use elench_formats::History;
use elench_formats::history::Status;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rayon::prelude::*;

use super::anomaly::Anomaly;
use super::cycles;
use super::explain::{Explained, ExplainedCase, ExplainedCycle, MopAt, Reason, Step};
use super::history::{Arena, ByKey, Kind, Mop, NIL, NONE, Txn, Txns, Workload};
use super::lists::{Case, Cases, EXAMPLES, Index};
use super::{Options, TxnResult};
use crate::budget::Budget;
use crate::graph::build::{Graph, MAX_NODES, Timeline};
use crate::graph::component::{Components, Walk};
use crate::graph::search::Link;
use crate::graph::{Dependencies, Rel, Sink};
use crate::outcome::{OpId, Why};

mod facts;

/// What is assumed of each key by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    /// A transaction that reads a key and then writes it installs a version later than the one it read.
    pub wfr_keys: bool,
    /// Each key is sequentially consistent.
    pub sequential_keys: bool,
    /// Each key is linearizable.
    pub linearizable_keys: bool,
}

/// A number of a version of the key at hand.
type Version = u32;

/// The version that was there before anyone wrote.
const INITIAL: Version = 0;

/// What is known of a version.
#[derive(Clone, Copy, Debug)]
struct Known {
    value: i64,
    /// The write that installed it, by a transaction that did not fail.
    write: Mop,
    writer: Txn,
    /// A write of it by a transaction that failed.
    failed: Mop,
    /// Its writer, failed or not, wrote the key again.
    overwritten: Mop,
    /// It was written more than once, or also initial: who reads it may have read from any of these.
    ambiguous: bool,
}

impl Known {
    fn new(value: i64) -> Known {
        Known { value, write: NONE, writer: NONE, failed: NONE, overwritten: NONE, ambiguous: false }
    }

    /// Who installed it, if that is certain and it was not only in between.
    fn installer(&self) -> Txn {
        if self.ambiguous || self.overwritten != NONE { NONE } else { self.writer }
    }
}

/// What a committed transaction did with the key, as others see it.
#[derive(Clone, Copy, Debug)]
struct Touch {
    txn: Txn,
    /// The version that it read before it wrote.
    read: Version,
    /// The version that it wrote last.
    wrote: Version,
}

impl Touch {
    /// The version that it met first. A read of the initial one is passed over if a write follows: that the key had been
    /// written before is a cycle by name (`rw`, and process or real-time order), which should not cost the key's whole order.
    fn met(&self) -> Version {
        if self.wrote == NONE || (self.read != NONE && self.read != INITIAL) { self.read } else { self.wrote }
    }

    /// The version that it left behind.
    fn left(&self) -> Version {
        if self.wrote != NONE { self.wrote } else { self.read }
    }
}

/// Each of these before each of those.
#[derive(Debug, Default)]
struct Fan {
    from: Vec<(u32, Rel)>,
    to: Vec<u32>,
}

/// Some keys.
#[derive(Debug, Default)]
struct Shard {
    edges: Vec<(Txn, Txn, Rel)>,
    fans: Vec<Fan>,
    /// Did a version say anything about a transaction, if only about the one that wrote it?
    said: bool,
    cases: Cases,
}

/// What is known of all keys.
#[derive(Debug)]
pub struct Registers<'a> {
    txns: &'a Txns<'a>,
    by_key: ByKey,
    assumptions: Assumptions,
    shards: Vec<Shard>,
    committed: Vec<bool>,
    seen: Vec<(Txn, u64)>,
    cases: Cases,
}

/// Micro-operations that are worth a task of their own.
const SHARD: usize = 1 << 15;

impl<'a> Registers<'a> {
    /// Of these transactions.
    pub fn new(txns: &'a Txns<'a>, assumptions: Assumptions) -> Registers<'a> {
        Registers::keeping(txns, assumptions, EXAMPLES)
    }

    /// The same, with so many cases of each kind kept at most: each takes some 150 bytes.
    pub fn keeping(txns: &'a Txns<'a>, assumptions: Assumptions, most: u64) -> Registers<'a> {
        let by_key = txns.by_key();
        let seen = seen(txns);
        let mut committed: Vec<bool> = txns.status.iter().map(|&s| s == Status::Ok).collect();
        seen.iter().for_each(|&(t, _)| committed[t as usize] = true);
        let scan = |keys: Range<usize>| {
            let mut scan = Scan::new(txns, &committed, assumptions);
            scan.shard.cases = Cases::keeping(most);
            for key in keys {
                let (mops, of) = by_key.get(key);
                scan.key(key as u32, mops, of);
            }
            scan.shard
        };
        let mut shards: Vec<Shard> = by_key.runs(SHARD).into_par_iter().map(scan).collect();
        let mut cases = Cases::keeping(most);
        shards.iter_mut().for_each(|shard| cases.merge(std::mem::take(&mut shard.cases)));
        Registers { txns, by_key, assumptions, shards, committed, seen, cases }
    }

    /// What is wrong besides cycles.
    pub fn cases(&self) -> &Cases {
        &self.cases
    }

    /// Did a transaction commit, as far as anybody knows?
    pub fn committed(&self, txn: Txn) -> bool {
        self.committed[txn as usize]
    }

    /// Transactions that were not acknowledged, but whose writes a committed one saw, and when the first of these completed.
    pub fn seen(&self) -> &[(Txn, u64)] {
        &self.seen
    }
}

impl Dependencies for Registers<'_> {
    fn parts(&self) -> usize {
        self.shards.len()
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        let shard = &self.shards[part];
        shard.edges.iter().for_each(|&(from, to, rel)| sink.edge(from, to, rel));
        shard.fans.iter().for_each(|fan| sink.fan(&fan.from, &fan.to));
    }
}

/// Transactions of unknown end that a completed one saw, and the first completion of such a one. O(micro-operations) where there
/// is any such transaction.
fn seen(txns: &Txns<'_>) -> Vec<(Txn, u64)> {
    struct Unknown {
        txn: Txn,
        first: u64,
        ambiguous: bool,
    }
    let mut writes: HashMap<(u32, i64), Unknown, FixedState> = HashMap::default();
    let every = || (0..txns.len() as Txn).flat_map(|t| txns.mops(t).map(move |m| (t, m)));
    for (txn, mop) in every().filter(|&(t, m)| txns.status[t as usize].is_unknown() && txns.kind[m].writes()) {
        let unknown = writes.entry((txns.key[mop], txns.value[mop]));
        let unknown = unknown.or_insert(Unknown { txn, first: u64::MAX, ambiguous: txns.value[mop] == NIL });
        unknown.ambiguous |= unknown.txn != txn;
    }
    if writes.is_empty() {
        return Vec::new();
    }
    for (txn, mop) in every().filter(|&(t, _)| txns.ok(t)) {
        if let Some(unknown) = writes.get_mut(&(txns.key[mop], txns.value[mop])) {
            match txns.kind[mop] {
                Kind::Read => unknown.first = unknown.first.min(txns.complete[txn as usize]),
                kind => unknown.ambiguous |= kind.writes(),
            }
        }
    }
    let mut seen: Vec<(Txn, u64)> =
        writes.into_values().filter(|u| u.first != u64::MAX && !u.ambiguous).map(|u| (u.txn, u.first)).collect();
    seen.sort_unstable();
    seen.dedup_by_key(|&mut (t, _)| t);
    seen
}

/// Goes over keys, reusing its memory.
struct Scan<'a> {
    txns: &'a Txns<'a>,
    committed: &'a [bool],
    assumptions: Assumptions,
    index: Index,
    versions: Vec<Known>,
    /// Versions that were read though nobody wrote them.
    unwritten: HashMap<i64, Version, FixedState>,
    touches: Vec<Touch>,
    /// By process: the version that it last left in the key, with the key's number plus one where it did.
    last: Vec<(u32, Version)>,
    /// Who read a version first, and then wrote the key; counted already?
    updates: HashMap<Version, (Mop, bool), FixedState>,
    shard: Shard,
}

impl<'a> Scan<'a> {
    fn new(txns: &'a Txns<'a>, committed: &'a [bool], assumptions: Assumptions) -> Self {
        Scan {
            txns,
            committed,
            assumptions,
            index: Index::default(),
            versions: Vec::new(),
            unwritten: HashMap::default(),
            touches: Vec::new(),
            last: Vec::new(),
            updates: HashMap::default(),
            shard: Shard::default(),
        }
    }

    fn key(&mut self, key: u32, mops: &[Mop], of: &[Txn]) {
        let order = self.infer(key, mops, of);
        self.dependencies(&order);
    }

    fn infer(&mut self, key: u32, mops: &[Mop], of: &[Txn]) -> Vec<(Version, Version)> {
        self.writes(key, mops, of);
        self.touches.clear();
        self.updates.clear();
        for (txn, mops) in by_transaction(mops, of) {
            if self.txns.ok(txn) {
                self.reads(key, txn, mops);
            }
            if self.committed[txn as usize] {
                self.touch(key, txn, mops);
            }
        }
        self.order(key)
    }

    fn is_write(&self, mop: Mop) -> bool {
        self.txns.kind[mop as usize].writes()
    }

    fn is_read(&self, mop: Mop) -> bool {
        self.txns.kind[mop as usize] == Kind::Read
    }

    fn value(&self, mop: Mop) -> i64 {
        self.txns.value[mop as usize]
    }

    /// Numbers the versions: the initial one, then those written.
    fn writes(&mut self, key: u32, mops: &[Mop], of: &[Txn]) {
        self.versions.clear();
        self.unwritten.clear();
        self.versions.push(Known::new(NIL));
        let values = || mops.iter().filter(|&&m| self.is_write(m)).map(|&m| self.value(m)).filter(|&v| v != NIL);
        let (least, most) = values().fold((i64::MAX, i64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        let count = values().count();
        let txns = self.txns;
        self.index.clear(count, if count > 0 { least } else { 0 }, if count > 0 { most } else { 0 });
        for (txn, mops) in by_transaction(mops, of) {
            let mut before: Option<usize> = None;
            for &mop in mops.iter().filter(|&&m| txns.kind[m as usize].writes()) {
                let version = self.write(key, txn, mop);
                let failed = txns.status[txn as usize] == Status::Fail;
                let own = |known: &Known| if failed { known.writer == NONE } else { known.writer == txn };
                if let Some(before) = before.filter(|&b| b != version && own(&self.versions[b])) {
                    self.versions[before].overwritten = mop;
                }
                if own(&self.versions[version]) {
                    self.versions[version].overwritten = NONE;
                }
                before = Some(version);
            }
        }
    }

    fn write(&mut self, key: u32, txn: Txn, mop: Mop) -> usize {
        let value = self.value(mop);
        let version = if value == NIL { Some(INITIAL as usize) } else { self.index.get(value) };
        let version = version.unwrap_or_else(|| {
            self.versions.push(Known::new(value));
            self.index.set(value, self.versions.len() - 1);
            self.versions.len() - 1
        });
        let known = &mut self.versions[version];
        if self.txns.status[txn as usize] == Status::Fail {
            known.failed = if known.failed == NONE { mop } else { known.failed };
        } else if known.writer == NONE {
            (known.write, known.writer, known.overwritten) = (mop, txn, NONE);
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
    fn reads(&mut self, key: u32, txn: Txn, mops: &[Mop]) {
        let mut before: Option<Mop> = None;
        let mut disagrees = false;
        for (i, &mop) in mops.iter().enumerate() {
            if self.is_read(mop) {
                self.read(key, txn, mop, &mops[i + 1..]);
                if let Some(earlier) = before.filter(|&b| !disagrees && self.value(b) != self.value(mop)) {
                    disagrees = true;
                    let values = vec![self.value(earlier), self.value(mop)];
                    self.shard.cases.add(Anomaly::Internal, || (key, vec![earlier, mop], values));
                }
            }
            if self.is_read(mop) || self.is_write(mop) {
                before = Some(mop);
            }
        }
    }

    fn read(&mut self, key: u32, txn: Txn, mop: Mop, later: &[Mop]) {
        let value = self.value(mop);
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
            }
            Some(known) if known.ambiguous => {}
            Some(known) if known.writer == txn => {
                if later.contains(&known.write) {
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
    fn touch(&mut self, key: u32, txn: Txn, mops: &[Mop]) {
        let known = mops.iter().copied().find(|&m| self.is_read(m) || self.is_write(m));
        let read =
            known.filter(|&m| self.is_read(m) && self.txns.ok(txn)).map_or(NONE, |m| self.version(self.value(m)));
        let wrote = mops.iter().rev().copied().find(|&m| self.is_write(m));
        let wrote = wrote.map_or(NONE, |m| self.version(self.value(m)));
        // Of the transaction's own later write it says nothing about others.
        let read = if read != NONE && self.versions[read as usize].writer == txn { NONE } else { read };
        if read == NONE && wrote == NONE {
            return;
        }
        if read != NONE && wrote != NONE && !self.versions[read as usize].ambiguous {
            self.update(key, read, mops);
        }
        self.touches.push(Touch { txn, read, wrote });
    }

    /// Did two transactions update the same version?
    fn update(&mut self, key: u32, version: Version, mops: &[Mop]) {
        let Some(read) = mops.iter().copied().find(|&m| self.is_read(m)) else { return };
        let value = self.value(read);
        let (first, counted) = self.updates.entry(version).or_insert((read, false));
        if *first != read && !*counted {
            *counted = true;
            let first = *first;
            self.shard.cases.add(Anomaly::LostUpdate, || (key, vec![first, read], vec![value]));
        }
    }

    fn certain(&self, version: Version) -> bool {
        version != NONE && !self.versions[version as usize].ambiguous
    }

    /// The order of versions besides that of the initial one: pairs, without repetition.
    fn order(&mut self, key: u32) -> Vec<(Version, Version)> {
        let mut order = Vec::new();
        let Assumptions { wfr_keys, sequential_keys, linearizable_keys } = self.assumptions;
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
            let writer = self.versions[t.read as usize].installer();
            if writer != NONE && writer != t.txn && self.committed[writer as usize] {
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
            let txn = self.versions[v as usize].installer();
            (txn != NONE && self.committed[txn as usize]).then_some(txn)
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

/// Micro-operations of each transaction.
fn by_transaction<'m>(mops: &'m [Mop], of: &'m [Txn]) -> impl Iterator<Item = (Txn, &'m [Mop])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let &txn = of.get(start)?;
        let end = start + of[start..].iter().take_while(|&&t| t == txn).count();
        let own = &mops[start..end];
        start = end;
        Some((txn, own))
    })
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

/// Which edges there are, with the order within processes.
struct WithProcesses<'a> {
    registers: &'a Registers<'a>,
    process: bool,
}

impl Dependencies for WithProcesses<'_> {
    fn parts(&self) -> usize {
        self.registers.parts() + usize::from(self.process)
    }

    fn edges<S: Sink>(&self, part: usize, sink: &mut S) {
        if part < self.registers.parts() {
            return self.registers.edges(part, sink);
        }
        let txns = self.registers.txns;
        let mut last = vec![NONE; txns.processes as usize];
        for txn in 0..txns.len() as Txn {
            let process = txns.process[txn as usize];
            if process == NONE || !self.registers.committed(txn) {
                continue;
            }
            let last = &mut last[process as usize];
            if *last != NONE {
                sink.edge(*last, txn, Rel::Process);
            }
            if txns.ok(txn) {
                *last = txn;
            }
        }
    }
}

/// Checks a history of transactions that write and read registers.
pub fn check_rw_register(history: &History, options: &Options, assumptions: Assumptions, budget: &Budget) -> TxnResult {
    let run = || {
        let mut arena = Arena::default();
        let txns = Txns::read(history, Workload::Register, &mut arena);
        of_registers(history, &txns, options, assumptions, budget)
    };
    match rayon::ThreadPoolBuilder::new().num_threads(budget.thread_count()).build() {
        Ok(pool) => pool.install(run),
        Err(_) => run(),
    }
}

fn of_registers(
    history: &History,
    txns: &Txns<'_>,
    options: &Options,
    assumptions: Assumptions,
    budget: &Budget,
) -> TxnResult {
    let coverage = super::coverage(history, txns);
    let mut result = TxnResult { coverage, unknown: txns.unknown.clone(), ..TxnResult::default() };
    result.sizes.transactions = txns.len() as u64;
    result.sizes.micro_operations = txns.mop_count() as u64;
    result.sizes.keys = txns.keys.len() as u64;
    if txns.len().saturating_add(txns.mop_count()) > MAX_NODES {
        result.undecided = Some(Why::Other(format!("more than {MAX_NODES} transactions and micro-operations")));
        return result;
    }
    let mut held = budget.reserve();
    held.set(txns.memory() as u64 * 2);
    if txns.unknown_count > 0 {
        result.add(Anomaly::UnknownMicroOp, txns.unknown_count);
    }
    let registers = Registers::keeping(txns, assumptions, options.cases());
    for &(kind, count) in registers.cases().counts() {
        result.add(kind, count);
    }
    let real_time = options.real_time && history.meta().real_time;
    let timeline = Timeline::new(&txns.invoke, &txns.complete, registers.seen(), real_time);
    let all = WithProcesses { registers: &registers, process: options.process };
    let graph = Graph::build(&timeline, &all);
    result.sizes.edges = graph.edges() as u64;
    result.sizes.in_windows = graph.roots().count() as u64;
    let mut found = cycles::find(&graph, options.cycles(), budget);
    result.weaker(&registers, txns, &timeline, &mut found, (options, real_time), budget);
    let said = registers.shards.iter().any(|shard| shard.said);
    if found.components == 0 && !said && super::says_nothing(&timeline, txns, &all, real_time) {
        result.add(Anomaly::EmptyGraph, 1);
    }
    result.sizes.components = found.components;
    result.sizes.largest = found.largest as u64;
    for (&kind, &count) in &found.counts {
        result.add(kind, count);
    }
    for unnamed in &found.unnamed {
        result.add(unnamed.kind, 1);
        result.undecided = Some(Why::Spent(unnamed.spent));
    }
    if found.unnamed_count > 0 {
        result.add(Anomaly::SearchTimeout, found.unnamed_count);
    }
    result.unnamed = found.unnamed.clone();
    explain(history, &registers, &found, options, &mut result);
    result
}

/// Gives examples their reasons.
fn explain(
    history: &History,
    registers: &Registers<'_>,
    found: &cycles::Cycles,
    options: &Options,
    result: &mut TxnResult,
) {
    let mut explainer = Explainer { history, registers, keys: HashMap::default() };
    for case in registers.cases().examples() {
        result.tell(case.kind, options, || Explained::Case(explainer.case(case)));
    }
    for cycle in found.examples.values().flatten() {
        result.tell(cycle.kind, options, || {
            let steps = cycle.steps().map(|(link, at)| explainer.step(link, at)).collect();
            Explained::Cycle(ExplainedCycle { kind: cycle.kind, steps })
        });
    }
}

/// A key's versions and their order, inferred once more for explanations.
struct Ordered {
    versions: Vec<Known>,
    touches: Vec<Touch>,
    order: Vec<(Version, Version)>,
}

impl Ordered {
    /// Does one version come before another one, if not right before it? O(versions).
    fn precedes(&self, earlier: Version, later: Version) -> bool {
        let mut seen = vec![false; self.versions.len()];
        let mut open = vec![earlier];
        while let Some(version) = open.pop() {
            let from = self.order.partition_point(|p| p.0 < version);
            for &(_, next) in self.order[from..].iter().take_while(|p| p.0 == version) {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    open.push(next);
                }
            }
        }
        seen[later as usize]
    }
}

/// Finds the reasons of what was found.
struct Explainer<'a> {
    history: &'a History,
    registers: &'a Registers<'a>,
    keys: HashMap<u32, Ordered, FixedState>,
}

impl Explainer<'_> {
    fn txns(&self) -> &Txns<'_> {
        self.registers.txns
    }

    fn text(&self, value: i64) -> String {
        if value == NIL { "nil".to_string() } else { self.txns().text(self.history, value) }
    }

    fn key_text(&self, key: u32) -> String {
        self.txns().key_text(self.history, key)
    }

    fn at(&self, mop: Mop) -> MopAt {
        let txn = self.txns().txn_of(mop);
        MopAt { op: self.txns().op(txn), at: mop - self.txns().offsets[txn as usize] }
    }

    fn op(&self, mop: Mop) -> OpId {
        self.at(mop).op
    }

    fn case(&self, case: &Case) -> ExplainedCase {
        let key = self.key_text(case.key);
        let values: Vec<String> = case.elements.iter().map(|&v| self.text(v)).collect();
        let ops: Vec<String> = case.mops.iter().map(|&m| self.op(m).to_string()).collect();
        let (value, ops) = (|i: usize| values.get(i).map_or("?", |v| v), |i: usize| ops.get(i).map_or("?", |o| o));
        let text = match case.kind {
            Anomaly::GarbageRead => format!("{} read {} = {}, which nobody wrote", ops(0), key, value(0)),
            Anomaly::G1a => format!("{} read {} = {}, which {} wrote, which failed", ops(0), key, value(0), ops(1)),
            Anomaly::G1b => {
                format!("{} read {} = {}, which {} wrote and itself overwrote", ops(0), key, value(0), ops(1))
            }
            Anomaly::FutureRead => format!("{} read {} = {} before it wrote that itself", ops(0), key, value(0)),
            Anomaly::Internal => {
                format!("{} read {} = {}, though it had read or written {} before", ops(1), key, value(1), value(0))
            }
            Anomaly::LostUpdate => format!("{} and {} both read {} = {} and wrote it", ops(0), ops(1), key, value(0)),
            Anomaly::DuplicateWrites => format!("{} and {} both wrote {} = {}", ops(0), ops(1), key, value(0)),
            _ => format!("the versions {} of {} come before each other", values.join(", "), key),
        };
        ExplainedCase { kind: case.kind, mops: case.mops.iter().map(|&m| self.at(m)).collect(), key, text }
    }

    fn step(&mut self, link: Link, at: (Mop, Mop)) -> Step {
        let (from, to) = (self.txns().op(link.from), self.txns().op(link.to));
        let found = match link.rel {
            Rel::Wr => self.wr(link, at.1),
            Rel::Ww | Rel::Rw => self.versions(link, at.1),
            Rel::Process => self.process(link),
            Rel::RealTime | Rel::Pass => self.real_time(link),
        };
        let (reason, text) = match found {
            Some((reason, text)) => (Some(reason), text),
            None => (None, format!("{from} comes before {to} ({})", link.rel)),
        };
        Step { from, to, rel: link.rel, reason, text }
    }

    fn wr(&self, link: Link, shown_by: Mop) -> Option<(Reason, String)> {
        let txns = self.txns();
        let given = |m: usize| shown_by == NONE || m as Mop == shown_by;
        let reads = txns.mops(link.to).filter(|&m| txns.kind[m] == Kind::Read && given(m));
        let (write, read) = reads
            .filter_map(|r| {
                let same =
                    |&w: &usize| txns.kind[w].writes() && txns.key[w] == txns.key[r] && txns.value[w] == txns.value[r];
                txns.mops(link.from).rfind(same).map(|w| (w as Mop, r as Mop))
            })
            .next()?;
        let (key, value) = (self.key_text(txns.key[read as usize]), self.text(txns.value[read as usize]));
        let text = format!("{} read {key} = {value}, which {} wrote", self.op(read), self.op(write));
        Some((Reason::Wr { write: self.at(write), read: self.at(read) }, text))
    }

    fn process(&self, link: Link) -> Option<(Reason, String)> {
        let row = self.txns().row[link.from as usize] as usize;
        let process = self.history.op(row).process()?;
        let (from, to) = (self.txns().op(link.from), self.txns().op(link.to));
        Some((Reason::Process(process), format!("process {process} ran {from} before {to}")))
    }

    fn real_time(&self, link: Link) -> Option<(Reason, String)> {
        let (completed, invoked) = (self.txns().complete[link.from as usize], self.txns().invoke[link.to as usize]);
        let (from, to) = (self.txns().op(link.from), self.txns().op(link.to));
        let text = format!("{from} completed at event {completed}, before {to} was invoked at event {invoked}");
        (completed < invoked).then_some((Reason::RealTime { completed, invoked }, text))
    }

    fn ordered(&mut self, key: u32) -> &Ordered {
        let registers = self.registers;
        self.keys.entry(key).or_insert_with(|| {
            let mut scan = Scan::new(registers.txns, &registers.committed, registers.assumptions);
            let (mops, of) = registers.by_key.get(key as usize);
            let order = scan.infer(key, mops, of);
            Ordered { versions: scan.versions, touches: scan.touches, order }
        })
    }

    /// Why what the one read or wrote comes before what the other one wrote.
    fn versions(&mut self, link: Link, shown_by: Mop) -> Option<(Reason, String)> {
        let registers = self.registers;
        let given = |m: usize| shown_by == NONE || m as Mop == shown_by;
        let written = registers.txns.mops(link.to).filter(|&m| registers.txns.kind[m].writes() && given(m));
        let mut keys: Vec<u32> = written.map(|m| registers.txns.key[m]).collect();
        keys.dedup();
        keys.into_iter().find_map(|key| self.versions_of(link, key))
    }

    fn versions_of(&mut self, link: Link, key: u32) -> Option<(Reason, String)> {
        let ordered = self.ordered(key);
        let touch = |txn| ordered.touches.iter().find(|t| t.txn == txn).copied();
        let (one, other) = (touch(link.from)?, touch(link.to)?);
        let earlier = if link.rel == Rel::Ww { one.wrote } else { one.read };
        let later = other.wrote;
        if earlier == NONE || later == NONE {
            return None;
        }
        let (old, new) = (ordered.versions[earlier as usize], ordered.versions[later as usize]);
        let initial = earlier == INITIAL && !old.ambiguous;
        if !initial && !ordered.precedes(earlier, later) {
            return None;
        }
        let witness = if initial { None } else { self.witness(key, earlier, later) };
        let txns = self.txns();
        let write = txns.mops(link.to).rfind(|&m| txns.kind[m].writes() && txns.key[m] == key)? as Mop;
        let (key_text, old, new) = (self.key_text(key), self.text(old.value), self.text(new.value));
        let why = match witness {
            None if initial => "which was there first".to_string(),
            None => format!("which comes before {new}"),
            Some((_, ref why)) => format!("which comes before {new} as {why}"),
        };
        let (from, to) = (txns.op(link.from), txns.op(link.to));
        if link.rel == Rel::Rw {
            let read = txns.mops(link.from).find(|&m| txns.kind[m] == Kind::Read && txns.key[m] == key)? as Mop;
            let text = format!("{from} read {key_text} = {old}, {why}, and {to} wrote {new}");
            return Some((Reason::Rw { read: self.at(read), write: self.at(write) }, text));
        }
        let first = txns.mops(link.from).rfind(|&m| txns.kind[m].writes() && txns.key[m] == key)? as Mop;
        let shown_by = self.at(witness.map_or(write, |(mop, _)| mop));
        let text = format!("{from} wrote {key_text} = {old}, {why}, and {to} wrote {new}");
        Some((Reason::Ww { earlier: self.at(first), later: self.at(write), shown_by }, text))
    }

    /// What shows that a version comes before another one: a micro-operation and, in words, how.
    fn witness(&self, key: u32, earlier: Version, later: Version) -> Option<(Mop, String)> {
        let Ordered { touches, .. } = self.keys.get(&key)?;
        let (txns, assumed) = (self.txns(), self.registers.assumptions);
        let on_key = |txn: Txn| txns.mops(txn).find(|&m| txns.key[m] == key).map(|m| m as Mop);
        if assumed.wfr_keys
            && let Some(t) = touches.iter().find(|t| t.read == earlier && t.wrote == later)
        {
            return Some((on_key(t.txn)?, format!("{} read the one and wrote the other", txns.op(t.txn))));
        }
        let left = || touches.iter().filter(|t| t.left() == earlier && txns.ok(t.txn));
        let met = || touches.iter().filter(|t| t.met() == later);
        if assumed.sequential_keys {
            for b in met() {
                let process = txns.process[b.txn as usize];
                let mine = left().find(|a| txns.process[a.txn as usize] == process && a.txn < b.txn);
                if let Some(a) = mine.filter(|_| process != NONE) {
                    let (a, b) = (txns.op(a.txn), (on_key(b.txn)?, txns.op(b.txn)));
                    return Some((b.0, format!("one process met the one in {a} and the other in {}", b.1)));
                }
            }
        }
        let a = left().min_by_key(|t| txns.complete[t.txn as usize])?;
        let b = met().max_by_key(|t| txns.invoke[t.txn as usize])?;
        let holds = assumed.linearizable_keys && txns.complete[a.txn as usize] < txns.invoke[b.txn as usize];
        let (one, other) = (txns.op(a.txn), txns.op(b.txn));
        holds.then_some((
            on_key(b.txn)?,
            format!("{one}, which left the one, ended before {other}, which met the other, began"),
        ))
    }
}

#[cfg(test)]
mod tests;
