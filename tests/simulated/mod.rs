//! A database in memory with several versions of each key, transactions that run at once, and an isolation level that it keeps,
//! but for a fault that it may be given.
//!
//! What a key holds is the sequence of all that was written to it. A list shows all of it, a register the last: so one database
//! serves both workloads. At each tick one client, chosen by the seed, takes a step: it invokes a transaction, runs its next
//! micro-operation, commits, or completes. Some transactions abort and say so; some crash, and then commit, at once or much later,
//! or never, while their process lives on under a new number.
//!
//! | Level | How it is kept | What it promises |
//! |---|---|---|
//! | serial | a transaction runs within one tick | strict serializability |
//! | two-phase | locks until the end, who finds one taken aborts | strict serializability |
//! | serializable snapshots | snapshots, first committer wins, no transaction with missed writes on both sides commits (Cahill, Röhm and Fekete, SIGMOD 2008) | strict serializability |
//! | snapshot | snapshots, first committer wins | snapshot isolation in real time |
//! | read committed | long write locks, reads of what is committed | read committed |
//! | read uncommitted | long write locks, reads of whatever is there | read uncommitted |

pub(crate) mod oracle;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Lists,
    Registers,
}

/// What the database promises, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Serial,
    TwoPhase,
    SerializableSnapshots,
    Snapshot,
    ReadCommitted,
    ReadUncommitted,
}

/// What it does wrong, some of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A commit does not look whether another one was first.
    LostUpdate,
    /// A read sees what is not committed.
    DirtyRead,
    /// A transaction that only reads gets a snapshot from before others that had completed.
    StaleSnapshot,
    /// A transaction that only reads gets each key from a snapshot of its own.
    FracturedRead,
    /// Of serializable snapshots: a transaction with missed writes on both sides commits.
    WriteSkew,
    /// As fractured reads; but nobody writes two keys, or reads and writes.
    LongFork,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    pub(crate) level: Level,
    pub(crate) fault: Option<Fault>,
    pub(crate) clients: u64,
    /// Keys in use at a time.
    pub(crate) keys: u64,
    /// Transactions after which a new key takes the place of an old one; 0: never.
    pub(crate) fresh: usize,
    pub(crate) txns: usize,
}

/// How a transaction ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Ok,
    Fail,
    Info,
}

/// A micro-operation: a write of this value, or a read, and what it returned.
#[derive(Clone, Debug)]
pub(crate) struct Mop {
    pub(crate) key: u64,
    pub(crate) write: Option<i64>,
    pub(crate) read: Option<Vec<i64>>,
}

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) struct Txn {
    pub(crate) mops: Vec<Mop>,
    pub(crate) end: End,
    /// Ticks.
    pub(crate) invoked: u64,
    pub(crate) completed: u64,
    /// Does it really count? Only the database knows.
    pub(crate) committed: bool,
    process: u64,
    next: usize,
    snapshot: u64,
    commit: u64,
    /// Somebody read what it had not committed.
    exposed: bool,
    /// Missed a write of another one; another one missed a write of it.
    missed: bool,
    was_missed: bool,
}

impl Txn {
    fn writes(&self, key: u64) -> impl Iterator<Item = i64> + '_ {
        self.mops[..self.next].iter().filter(move |m| m.key == key).filter_map(|m| m.write)
    }

    fn only_reads(&self) -> bool {
        self.mops.iter().all(|m| m.write.is_none())
    }

    /// All that it writes to a key.
    pub(crate) fn all_writes(&self, key: u64) -> Vec<i64> {
        self.mops.iter().filter(|m| m.key == key).filter_map(|m| m.write).collect()
    }

    /// What it read of keys before it wrote them.
    pub(crate) fn first_reads(&self) -> impl Iterator<Item = (u64, &[i64])> + '_ {
        let first = |i: usize| self.mops[..i].iter().all(|m| m.key != self.mops[i].key);
        let reads = self.mops.iter().enumerate().filter(move |&(i, _)| first(i));
        reads.filter_map(|(_, m)| Some((m.key, m.read.as_deref()?)))
    }
}

/// What happened.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) txns: Vec<Txn>,
    /// In the notation of histories.
    pub(crate) text: String,
}

/// A small generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// What a client is about.
#[derive(Clone, Copy)]
enum Client {
    Idle,
    Running(usize),
    /// It ended, and the client has yet to hear of it.
    Ended(usize, End),
}

struct Version {
    at: u64,
    held: Vec<i64>,
}

#[derive(Default)]
struct Lock {
    writer: Option<usize>,
    readers: BTreeSet<usize>,
}

struct Database {
    plan: Plan,
    random: Random,
    clock: u64,
    tick: u64,
    versions: BTreeMap<u64, Vec<Version>>,
    locks: BTreeMap<u64, Lock>,
    txns: Vec<Txn>,
    /// Crashed, and not yet over.
    zombies: Vec<usize>,
    text: String,
    value: i64,
}

/// Runs a plan to its end.
pub(crate) fn run(plan: Plan) -> Run {
    let mut db = Database {
        plan,
        random: Random::new(plan.seed),
        clock: 0,
        tick: 0,
        versions: BTreeMap::new(),
        locks: BTreeMap::new(),
        txns: Vec::new(),
        zombies: Vec::new(),
        text: String::new(),
        value: 0,
    };
    let mut clients: Vec<(u64, Client)> = (0..plan.clients).map(|p| (p, Client::Idle)).collect();
    loop {
        db.tick += 1;
        if !db.zombies.is_empty() && db.random.percent(10) {
            let at = db.random.below(db.zombies.len() as u64) as usize;
            let zombie = db.zombies.swap_remove(at);
            db.end_zombie(zombie);
        }
        let who = db.random.below(plan.clients) as usize;
        let (process, state) = clients[who];
        clients[who].1 = match state {
            Client::Idle if db.txns.len() < plan.txns => Client::Running(db.invoke(process)),
            Client::Idle if clients.iter().all(|(_, c)| matches!(c, Client::Idle)) => break,
            Client::Idle => Client::Idle,
            Client::Running(txn) => match db.step(txn) {
                None => Client::Running(txn),
                Some(end) => Client::Ended(txn, end),
            },
            Client::Ended(txn, end) => {
                db.complete(txn, end);
                if end == End::Info {
                    clients[who].0 += plan.clients;
                }
                Client::Idle
            }
        };
    }
    Run { plan, txns: db.txns, text: db.text }
}

impl Database {
    fn invoke(&mut self, process: u64) -> usize {
        let mops = self.micro_operations();
        let txn = Txn {
            mops,
            end: End::Open,
            invoked: self.tick,
            completed: u64::MAX,
            committed: false,
            process,
            next: 0,
            snapshot: u64::MAX,
            commit: u64::MAX,
            exposed: false,
            missed: false,
            was_missed: false,
        };
        self.tell("invoke", &txn);
        self.txns.push(txn);
        self.txns.len() - 1
    }

    fn micro_operations(&mut self) -> Vec<Mop> {
        let (keys, fault) = (self.plan.keys, self.plan.fault);
        let oldest = self.txns.len().checked_div(self.plan.fresh).unwrap_or(0) as u64;
        let read = |key| Mop { key, write: None, read: None };
        if fault == Some(Fault::LongFork) {
            let first = self.random.below(keys);
            if self.random.percent(30) {
                return vec![self.write(oldest + first)];
            }
            return vec![read(oldest + first), read(oldest + (first + 1) % keys)];
        }
        let many = 1 + self.random.below(5);
        let reads_only = self.random.percent(30);
        let mut mops: Vec<Mop> = Vec::new();
        for _ in 0..many {
            let key = oldest + self.random.below(keys);
            let written = mops.iter().any(|m| m.key == key && m.write.is_some());
            // Where a commit loses updates, a transaction's own view of what it wrote would contradict the others'.
            let blind = written && fault == Some(Fault::LostUpdate);
            if reads_only || (!blind && self.random.percent(50)) {
                mops.push(read(key));
            } else {
                let write = self.write(key);
                mops.push(write);
            }
        }
        mops
    }

    fn write(&mut self, key: u64) -> Mop {
        self.value += 1;
        Mop { key, write: Some(self.value), read: None }
    }

    /// An event in the notation of histories.
    fn tell(&mut self, kind: &str, txn: &Txn) {
        let _ = write!(self.text, "{kind} {} txn [", txn.process);
        for mop in &txn.mops {
            let _ = match (mop.write, &mop.read, self.plan.workload) {
                (Some(v), _, Workload::Lists) => write!(self.text, "[:append {} {v}]", mop.key),
                (Some(v), _, Workload::Registers) => write!(self.text, "[:w {} {v}]", mop.key),
                (None, Some(held), Workload::Registers) if kind == "ok" => {
                    write!(self.text, "[:r {} {}]", mop.key, held.last().map_or("nil".into(), i64::to_string))
                }
                (None, Some(held), Workload::Lists) if kind == "ok" => {
                    let held: Vec<String> = held.iter().map(i64::to_string).collect();
                    write!(self.text, "[:r {} [{}]]", mop.key, held.join(" "))
                }
                (None, ..) => write!(self.text, "[:r {} nil]", mop.key),
            };
        }
        self.text.push_str("]\n");
    }

    fn complete(&mut self, txn: usize, end: End) {
        let kind = match end {
            End::Ok => "ok",
            End::Fail => "fail",
            _ => "info",
        };
        let (tick, t) = (self.tick, &mut self.txns[txn]);
        (t.end, t.completed) = (end, if end == End::Ok { tick } else { u64::MAX });
        let t = t.clone();
        self.tell(kind, &t);
    }

    /// The next step of a transaction; how it ended, if that was the last.
    fn step(&mut self, txn: usize) -> Option<End> {
        if self.txns[txn].snapshot == u64::MAX {
            self.txns[txn].snapshot = self.clock;
        }
        // Any client may lose its connection at any moment, and any transaction be aborted. Where others see what is not committed,
        // it is lost at the end only: see `end_zombie`.
        let exposing = self.plan.level == Level::ReadUncommitted || self.plan.fault == Some(Fault::DirtyRead);
        let done = self.txns[txn].next == self.txns[txn].mops.len();
        if self.random.percent(1) && (done || !exposing) {
            self.zombies.push(txn);
            return Some(End::Info);
        }
        if self.random.percent(2) {
            self.abort(txn);
            return Some(End::Fail);
        }
        if self.plan.level == Level::Serial {
            self.run_whole(txn);
        } else if self.txns[txn].next < self.txns[txn].mops.len() {
            if self.micro_operation(txn) {
                return None;
            }
            self.abort(txn);
            return Some(End::Fail);
        }
        if !self.try_commit(txn) {
            self.abort(txn);
            return Some(End::Fail);
        }
        Some(if self.random.percent(3) { End::Info } else { End::Ok })
    }

    /// Whatever a crashed transaction had still to do, it does now, or it never happens. If somebody saw its writes it is not
    /// rolled back: the checker takes such a one to have committed, or else the reader is at fault (G1a). Under levels that allow that,
    /// the one or the other is all that can be said.
    fn end_zombie(&mut self, txn: usize) {
        let goes_on = self.txns[txn].exposed || self.random.percent(60);
        while goes_on && self.plan.level != Level::Serial && self.txns[txn].next < self.txns[txn].mops.len() {
            if self.micro_operation(txn) {
                continue;
            }
            return self.abort(txn);
        }
        if goes_on && self.plan.level == Level::Serial {
            self.run_whole(txn);
        }
        if !goes_on || !self.try_commit(txn) {
            self.abort(txn);
        }
    }

    fn run_whole(&mut self, txn: usize) {
        let mut lags = BTreeMap::new();
        let wrong = self.txns[txn].only_reads() && self.random.percent(70);
        let whole = if self.plan.fault == Some(Fault::StaleSnapshot) && wrong { 1 + self.random.below(6) } else { 0 };
        for i in 0..self.txns[txn].mops.len() {
            let key = self.txns[txn].mops[i].key;
            if self.txns[txn].mops[i].write.is_none() {
                let each = matches!(self.plan.fault, Some(Fault::FracturedRead | Fault::LongFork)) && wrong;
                let lag = if each { *lags.entry(key).or_insert(self.random.below(10)) } else { whole };
                let mut held = self.held(key, self.clock.saturating_sub(lag));
                held.extend(self.txns[txn].writes(key));
                self.txns[txn].mops[i].read = Some(held);
            }
            self.txns[txn].next = i + 1;
        }
    }

    /// What a key held at a time.
    fn held(&self, key: u64, at: u64) -> Vec<i64> {
        let versions = self.versions.get(&key).map_or(&[][..], Vec::as_slice);
        versions.iter().rev().find(|v| v.at <= at).map_or(Vec::new(), |v| v.held.clone())
    }

    fn last_change(&self, key: u64) -> u64 {
        self.versions.get(&key).and_then(|v| v.last()).map_or(0, |v| v.at)
    }

    /// Runs the next micro-operation; false if it cannot be.
    fn micro_operation(&mut self, txn: usize) -> bool {
        let t = &self.txns[txn];
        let Mop { key, write, .. } = t.mops[t.next];
        let done = if write.is_some() { self.may_write(txn, key) } else { self.read(txn, key) };
        self.txns[txn].next += usize::from(done);
        done
    }

    fn may_write(&mut self, txn: usize, key: u64) -> bool {
        match self.plan.level {
            Level::SerializableSnapshots => self.missed_by_others(txn, key),
            Level::Snapshot => true,
            _ => {
                let lock = self.locks.entry(key).or_default();
                let free = lock.writer.is_none_or(|w| w == txn) && lock.readers.iter().all(|&r| r == txn);
                if free {
                    lock.writer = Some(txn);
                }
                free
            }
        }
    }

    fn read(&mut self, txn: usize, key: u64) -> bool {
        let writer = self.locks.get(&key).and_then(|lock| lock.writer).filter(|&w| w != txn);
        let (now, snapshot) = (self.clock, self.txns[txn].snapshot);
        let dirty = match (self.plan.level, self.plan.fault) {
            (Level::ReadUncommitted, _) => true,
            (_, Some(Fault::DirtyRead)) => self.random.percent(30),
            _ => false,
        };
        let mut held = match self.plan.level {
            Level::SerializableSnapshots | Level::Snapshot => self.held(key, snapshot),
            _ => self.held(key, now),
        };
        let level = self.plan.level;
        match level {
            Level::TwoPhase if writer.is_some() => return false,
            Level::TwoPhase => {
                self.locks.entry(key).or_default().readers.insert(txn);
            }
            Level::SerializableSnapshots if !self.misses(txn, key) => return false,
            _ => {}
        }
        if let Some(writer) = writer.filter(|_| dirty) {
            let seen = held.len();
            held.extend(self.txns[writer].writes(key));
            self.txns[writer].exposed |= held.len() > seen;
        }
        held.extend(self.txns[txn].writes(key));
        let at = self.txns[txn].next;
        self.txns[txn].mops[at].read = Some(held);
        true
    }

    /// Is a transaction still running, or did it commit after another one's snapshot?
    fn overlaps(&self, other: usize, txn: usize) -> bool {
        let o = &self.txns[other];
        let over = o.commit == 0;
        other != txn && !over && o.snapshot != u64::MAX && (!o.committed || o.commit > self.txns[txn].snapshot)
    }

    /// Serializable snapshots: whose writes of a key does a read miss? False if the transaction must abort.
    fn misses(&mut self, txn: usize, key: u64) -> bool {
        for other in 0..self.txns.len() {
            if self.overlaps(other, txn) && self.txns[other].writes(key).next().is_some() {
                if self.txns[other].committed && self.txns[other].missed && !self.overlooks() {
                    return false;
                }
                self.txns[other].was_missed = true;
                self.txns[txn].missed = true;
            }
        }
        true
    }

    /// Serializable snapshots: who read a key without this write? False if the transaction must abort.
    fn missed_by_others(&mut self, txn: usize, key: u64) -> bool {
        for other in 0..self.txns.len() {
            let o = &self.txns[other];
            let reads = o.mops[..o.next].iter().any(|m| m.key == key && m.read.is_some());
            if reads && self.overlaps(other, txn) {
                if self.txns[other].committed && self.txns[other].was_missed && !self.overlooks() {
                    return false;
                }
                self.txns[other].missed = true;
                self.txns[txn].was_missed = true;
            }
        }
        true
    }

    /// Does the check of serializable snapshots fail to be made?
    fn overlooks(&mut self) -> bool {
        self.plan.fault == Some(Fault::WriteSkew) && self.random.percent(90)
    }

    fn try_commit(&mut self, txn: usize) -> bool {
        let keys: BTreeSet<u64> = self.txns[txn].mops.iter().filter(|m| m.write.is_some()).map(|m| m.key).collect();
        let snapshots = matches!(self.plan.level, Level::Snapshot | Level::SerializableSnapshots);
        let beaten = keys.iter().any(|&k| self.last_change(k) > self.txns[txn].snapshot);
        let overlooked = self.plan.fault == Some(Fault::LostUpdate) && self.random.percent(50);
        if snapshots && beaten && !overlooked {
            return false;
        }
        let pivot = self.txns[txn].missed && self.txns[txn].was_missed;
        if self.plan.level == Level::SerializableSnapshots && pivot && !self.overlooks() {
            return false;
        }
        self.clock += 1;
        for &key in &keys {
            let mut held = self.held(key, self.clock);
            held.extend(self.txns[txn].all_writes(key));
            self.versions.entry(key).or_default().push(Version { at: self.clock, held });
        }
        (self.txns[txn].committed, self.txns[txn].commit) = (true, self.clock);
        self.release(txn);
        true
    }

    fn abort(&mut self, txn: usize) {
        self.txns[txn].commit = 0;
        self.release(txn);
    }

    fn release(&mut self, txn: usize) {
        for lock in self.locks.values_mut() {
            lock.writer = lock.writer.filter(|&w| w != txn);
            lock.readers.remove(&txn);
        }
    }
}
