//! Who must come before whom, and where does that run in circles?
//!
//! Nodes are transactions; edges say why one comes before the other. There are far more edges than are ever needed: most
//! histories are valid or nearly so, and in the order in which transactions completed, almost all edges point forward. A cycle
//! must go backward somewhere, and all of it lies between the first and the last position that backward edges next to and over
//! each other cover: a *window* ([`build`]). Only what lies in windows becomes a graph.
//!
//! Real-time order has O(n²) pairs, of which none is stored: a transaction points to the *time node* of its completion, a
//! time node to the next one and to the transactions invoked between the two, which are a run of rows.
//! Where each of some transactions comes before each of others, [`Sink::fan`] keeps that linear too.
//!
//! Everything is O(transactions + edges), without recursion.

pub mod build;
pub mod component;
pub mod search;

use std::fmt;

/// Why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rel {
    /// The other installs a later version of what the one installed, the next one that is known.
    Ww = 0,
    /// The other reads what the one installed.
    Wr = 1,
    /// The one reads a version after which the other installs one, the next that is known.
    Rw = 2,
    /// The same process ran the one earlier.
    Process = 3,
    /// The one completed before the other was invoked.
    RealTime = 4,
    /// Part of a step that goes through a node that is no transaction: it continues the edge that led there.
    Pass = 5,
}

impl Rel {
    const ALL: [Rel; 6] = [Rel::Ww, Rel::Wr, Rel::Rw, Rel::Process, Rel::RealTime, Rel::Pass];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Rel::Ww => "ww",
            Rel::Wr => "wr",
            Rel::Rw => "rw",
            Rel::Process => "process",
            Rel::RealTime => "realtime",
            Rel::Pass => "pass",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Rel> {
        Rel::ALL.into_iter().find(|rel| rel.name() == name)
    }
}

impl fmt::Display for Rel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rels(u8);

impl Rels {
    /// Only versions installed after each other.
    pub const WW: Rels = Rels::of(&[Rel::Ww]);
    /// Those and reads.
    pub const WW_WR: Rels = Rels::of(&[Rel::Ww, Rel::Wr]);
    /// All between items.
    pub const ITEM: Rels = Rels::of(&[Rel::Ww, Rel::Wr, Rel::Rw]);
    /// None.
    pub const NO: Rels = Rels::of(&[]);
    /// The order within processes.
    pub const PROCESS: Rels = Rels::of(&[Rel::Process]);
    /// That and the order of real time.
    pub const REAL_TIME: Rels = Rels::of(&[Rel::Process, Rel::RealTime]);

    /// These. Steps through nodes that are no transaction always belong.
    pub const fn of(rels: &[Rel]) -> Rels {
        let mut bits = 1 << Rel::Pass as u8;
        let mut i = 0;
        while i < rels.len() {
            bits |= 1 << rels[i] as u8;
            i += 1;
        }
        Rels(bits)
    }

    /// Is it one of them?
    #[inline]
    pub fn has(self, rel: Rel) -> bool {
        self.0 >> rel as u8 & 1 == 1
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Rels) -> Rels {
        Rels(self.0 | other.0)
    }
}

/// Takes edges as they are found.
pub trait Sink {
    /// One transaction comes before another one. An edge to itself is none.
    fn edge(&mut self, from: u32, to: u32, rel: Rel);

    /// Each of `from` comes before each of `to` other than itself; `to` holds none twice. O(from + to), not their product.
    fn fan(&mut self, from: &[(u32, Rel)], to: &[u32]);
}

/// What version orders say about the order of transactions, in parts that may be asked at once, and more than once. All
/// transactions named are committed.
pub trait Dependencies: Sync {
    /// Number of parts.
    fn parts(&self) -> usize;

    /// Tells all edges of a part, the same ones each time.
    fn edges<S: Sink>(&self, part: usize, sink: &mut S);
}
