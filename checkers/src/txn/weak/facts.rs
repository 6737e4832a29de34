//! What did the transactions of a component do with which versions, micro-operation by micro-operation?
//!
//! The graph knows transactions only. Some kinds of cycle ask in which order a transaction read and wrote, or whether a version
//! of *this* key came later. A workload tells it, of the transactions asked for, as [`Event`]s over versions ([`Versions`]); a
//! `Local` is the part of that which one component needs, numbered densely.
//!
//! A read has two versions: the one that it shows (`version`), after which others are missed, and the one that somebody else
//! installed (`base`). They differ where a list ends with the transaction's own elements: what stands before them was seen
//! all the same, whatever the database does with blind appends. Of several writes of a key by one transaction the last counts,
//! as with Adya: it installs the version.
//!
//! O(micro-operations of the component · log) and as many versions.

use elench_formats::sorting;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::txn::history::{Mop, NONE, Txn};

/// A version of a key, by number.
pub type Version = u32;

/// What a micro-operation of a committed transaction did.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The micro-operation.
    pub mop: Mop,
    /// Its transaction.
    pub txn: Txn,
    /// Its key.
    pub key: u32,
    /// The version that it read or installed.
    pub version: Version,
    /// Of a read: the last version in it that another transaction installed, if it is known.
    pub base: Version,
    /// Did it install its version?
    pub write: bool,
}

/// In which order the versions of a key came.
#[derive(Clone, Debug)]
pub enum Order {
    /// By number up to this one; those above come after all of these, in an order that is not known.
    Line(Version),
    /// As far as these pairs say, sorted; and after the first one, if that is number 0.
    Partial {
        /// One before another one.
        pairs: Vec<(Version, Version)>,
        /// Is number 0 before all others?
        initial_first: bool,
    },
}

/// All that is known of some transactions.
#[derive(Debug, Default)]
pub struct Told {
    /// By micro-operation, so that those of a transaction are a run.
    pub events: Vec<Event>,
    /// By key.
    pub orders: HashMap<u32, Order, FixedState>,
}

/// Who knows versions.
pub trait Versions {
    /// What these transactions, ascending, did.
    fn told(&self, members: &[Txn]) -> Told;
}

/// Stands for no event.
pub(super) const NO: u32 = u32::MAX;

/// A key in a component. Versions are numbered anew, those of a line in order.
#[derive(Debug)]
pub(super) struct Key {
    /// By version: the event that installed it.
    pub installer: Vec<u32>,
    /// Number of its first version among those of all keys.
    pub first: u32,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// In order up to this one.
    Line { late: u32 },
    /// By version, those right after it; and is the first one before all others?
    Partial { next: Vec<Vec<Version>>, initial_first: bool },
}

impl Key {
    /// Versions in it.
    pub(super) fn len(&self) -> u32 {
        self.installer.len() as u32
    }

    /// Where its versions stop being in a known order; none if they do not form a line at all.
    pub(super) fn line(&self) -> Option<u32> {
        match self.shape {
            Shape::Line { late } => Some(late),
            Shape::Partial { .. } => None,
        }
    }

    /// Calls with each version that comes right after one.
    pub(super) fn next(&self, version: Version, mut visit: impl FnMut(Version)) {
        match &self.shape {
            Shape::Line { late } if version + 1 < *late => visit(version + 1),
            Shape::Line { late } if version < *late => (*late..self.len()).for_each(visit),
            Shape::Line { .. } => {}
            Shape::Partial { next, .. } => next[version as usize].iter().copied().for_each(visit),
        }
    }

    /// Is it known that one comes before the other? O(versions) where they form no line.
    pub(super) fn before(&self, earlier: Version, later: Version) -> bool {
        match &self.shape {
            Shape::Line { late } => earlier < later && earlier < *late,
            Shape::Partial { initial_first: true, .. } if earlier == 0 => later != 0,
            Shape::Partial { .. } => self.after(earlier).contains(&later),
        }
    }

    /// All that are known to come after one. O(versions).
    pub(super) fn after(&self, version: Version) -> Vec<Version> {
        if let Shape::Line { late } = self.shape {
            return if version < late { (version + 1..self.len()).collect() } else { Vec::new() };
        }
        let mut seen = vec![false; self.installer.len()];
        let mut found = Vec::new();
        let mut at = Some(version);
        let mut done = 0;
        while let Some(v) = at {
            self.next(v, |next| {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    found.push(next);
                }
            });
            at = found.get(done).copied();
            done += 1;
        }
        found
    }

    /// Writers whose order among each other is not known.
    pub(super) fn late(&self) -> std::ops::Range<u32> {
        match self.shape {
            Shape::Line { late } => late..self.len(),
            Shape::Partial { .. } => 0..0,
        }
    }
}

/// A component by itself.
#[derive(Debug)]
pub(super) struct Local {
    /// Its transactions, ascending.
    pub txns: Vec<Txn>,
    starts: Vec<u32>,
    /// Of each transaction in order. Transactions, keys and versions are local.
    pub events: Vec<Event>,
    /// Its keys.
    pub keys: Vec<Key>,
    /// Versions of all keys.
    pub versions: u32,
}

impl Local {
    /// Of these transactions, ascending. Given ranks, writers in an order that is not known are taken in that of their ranks.
    pub(super) fn new(told: &Told, txns: Vec<Txn>, ranks: Option<&HashMap<Txn, u32, FixedState>>) -> Local {
        let mut events = Vec::new();
        let mut starts = vec![0];
        for (local, &txn) in txns.iter().enumerate() {
            let from = told.events.partition_point(|e| e.txn < txn);
            let own = told.events[from..].iter().take_while(|e| e.txn == txn);
            events.extend(own.map(|e| Event { txn: local as u32, ..*e }));
            starts.push(events.len() as u32);
        }
        let mut by_key: Vec<u32> = (0..events.len() as u32).collect();
        sorting::sort_by(&mut by_key, |&e| events[e as usize].key.into());
        let same = |a: &u32, b: &u32| events[*a as usize].key == events[*b as usize].key;
        let groups: Vec<&[u32]> = by_key.chunk_by(same).collect();
        let mut local = Local { txns, starts, events: events.clone(), keys: Vec::new(), versions: 0 };
        groups.into_iter().for_each(|own| local.key(told, own, ranks));
        local
    }

    fn key(&mut self, told: &Told, own: &[u32], ranks: Option<&HashMap<Txn, u32, FixedState>>) {
        let key = self.events[own[0] as usize].key;
        let mut versions: Vec<Version> =
            own.iter().flat_map(|&e| [self.events[e as usize].version, self.events[e as usize].base]).collect();
        versions.retain(|&v| v != NONE);
        versions.sort_unstable();
        versions.dedup();
        let shape = match told.orders.get(&key) {
            Some(&Order::Line(known)) => {
                let late = versions.partition_point(|&v| v <= known);
                if let Some(ranks) = ranks {
                    let writes = own.iter().map(|&e| &self.events[e as usize]).filter(|e| e.write);
                    let rank = |e: &Event| ranks.get(&self.txns[e.txn as usize]).copied();
                    let by_version: HashMap<Version, Option<u32>, FixedState> =
                        writes.map(|e| (e.version, rank(e))).collect();
                    let rank = |v: &Version| by_version.get(v).copied().flatten();
                    sorting::sort_by(&mut versions[late..], |v| rank(v).map_or(0, |rank| 1 + u64::from(rank)));
                }
                Shape::Line { late: if ranks.is_some() { versions.len() as u32 } else { late as u32 } }
            }
            Some(Order::Partial { pairs, initial_first }) => {
                let initial_first = *initial_first && versions.first() == Some(&0);
                Shape::Partial { next: partial(&versions, pairs, initial_first), initial_first }
            }
            None => Shape::Partial { next: vec![Vec::new(); versions.len()], initial_first: false },
        };
        let mut numbers: Vec<(Version, u32)> = versions.iter().zip(0..).map(|(&v, i)| (v, i)).collect();
        numbers.sort_unstable();
        let number = |v: Version| numbers.binary_search_by_key(&v, |n| n.0).map_or(NONE, |i| numbers[i].1);
        let mut installer = vec![NO; versions.len()];
        for &e in own {
            let event = &mut self.events[e as usize];
            event.key = self.keys.len() as u32;
            (event.version, event.base) = (number(event.version), number(event.base));
            if event.write {
                installer[event.version as usize] = e;
            }
        }
        self.keys.push(Key { installer, first: self.versions, shape });
        self.versions += versions.len() as u32;
    }

    /// The events of a transaction.
    pub(super) fn of(&self, txn: u32) -> std::ops::Range<u32> {
        self.starts[txn as usize]..self.starts[txn as usize + 1]
    }

    /// An event.
    pub(super) fn event(&self, event: u32) -> &Event {
        &self.events[event as usize]
    }

    /// The key of an event.
    pub(super) fn key_of(&self, event: u32) -> &Key {
        &self.keys[self.event(event).key as usize]
    }

    /// The event that wrote what a read read, if another transaction of the component did.
    pub(super) fn read_from(&self, read: u32) -> Option<u32> {
        let event = self.event(read);
        let writer = *self.key_of(read).installer.get(event.base as usize).filter(|_| !event.write)?;
        (writer != NO && self.event(writer).txn != event.txn).then_some(writer)
    }

    /// Did an event read, or install, what comes before what another one, on the same key, installed?
    pub(super) fn precedes(&self, event: u32, write: u32) -> bool {
        let (a, b) = (self.event(event), self.event(write));
        b.write && a.key == b.key && a.txn != b.txn && self.key_of(event).before(a.version, b.version)
    }
}

/// By version, those right after it, of those that matter.
fn partial(versions: &[Version], pairs: &[(Version, Version)], initial_first: bool) -> Vec<Vec<Version>> {
    let number = |v: Version| versions.binary_search(&v).ok().map(|i| i as Version);
    let next = |&version: &Version| -> Vec<Version> {
        if version == 0 && initial_first {
            return (1..versions.len() as Version).collect();
        }
        let from = pairs.partition_point(|p| p.0 < version);
        pairs[from..].iter().take_while(|p| p.0 == version).filter_map(|p| number(p.1)).collect()
    };
    versions.iter().map(next).collect()
}
