//! What can be wrong with a history of transactions, by name?
//!
//! The kinds are those of Adya's thesis (1999), Elle's refinements of them, and what Cerone, Bernardi and Gotsman's axioms
//! (CONCUR 2015) forbid. They are declared worst first, and [`IMPLIES`] says which kind is also which other; everything
//! else (what to look for, what a model forbids, in which order to report) is computed from these two.
//! A set of kinds is one 128-bit word.

use std::fmt;
use std::sync::LazyLock;

macro_rules! anomalies {
    ($($kind:ident $name:literal $about:literal,)*) => {
        /// A kind of anomaly, declared in the order in which kinds are reported: worst first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Anomaly {
            $(#[doc = $about] $kind,)*
        }

        impl Anomaly {
            /// All kinds, worst first.
            pub const ALL: &[Anomaly] = &[$(Anomaly::$kind,)*];

            /// Its name in the literature and in results.
            pub fn name(self) -> &'static str {
                match self { $(Anomaly::$kind => $name,)* }
            }

            /// What it is, in a clause.
            pub fn about(self) -> &'static str {
                match self { $(Anomaly::$kind => $about,)* }
            }
        }
    };
}

anomalies! {
    GarbageRead "garbage-read" "a value that nobody wrote was read",
    DuplicateElements "duplicate-elements" "one element stands twice in one list",
    CyclicVersions "cyclic-versions" "the inferred order of a key's versions is cyclic",
    G0 "G0" "a cycle of overwrites",
    Pl1Cycle "PL-1-cycle-exists" "a cycle of overwrites of a kind that was not named",
    IncompatibleOrder "incompatible-order" "two committed reads of a list of which neither is a prefix of the other",
    DirtyUpdate "dirty-update" "a committed version builds on an aborted write",
    G1a "G1a" "a committed transaction read what an aborted one wrote",
    G1b "G1b" "a version was read that its writer itself overwrote later",
    FutureRead "future-read" "a transaction read its own later write",
    G1c "G1c" "a cycle of overwrites and reads",
    G1 "G1" "any of G1a, G1b and G1c",
    Pl2Cycle "PL-2-cycle-exists" "a cycle of overwrites and reads of a kind that was not named",
    Internal "internal" "a transaction disagrees with its own earlier reads and writes",
    Vanished "observed-transaction-vanishes" "a transaction saw another one's write and later missed one of its writes",
    FracturedRead "fractured-read" "a transaction saw some of another one's writes and missed some",
    CausalityViolation "causality-violation" "a transaction missed a write that what it read depends on",
    GCursor "G-cursor" "a key was overwritten between a transaction's read and its write of it",
    LostUpdate "lost-update" "two committed transactions read the same version of a key and both wrote it",
    UpdateAtomicCycle "update-atomic-cycle-exists" "a transaction missed a write of one that it read from or overwrote",
    GMonotonic "G-monotonic" "a transaction read a state older than one that it had seen before",
    GMsr "G-MSR" "no states of the database, in order, explain what the transactions' single reads saw",
    LongFork "long-fork" "transactions saw writes of others in orders that contradict each other",
    PrefixCycle "prefix-cycle-exists" "a cycle in which every missed write follows a read",
    PsiCycle "parallel-snapshot-isolation-cycle-exists" "a cycle with a single missed write",
    GSingleItem "G-single-item" "a cycle with a single missed write of an item",
    GSingle "G-single" "a cycle with a single missed write",
    GSiB "G-SIb" "a cycle with a single missed write, start order included",
    GsiB "GSIb" "the same, as another name of the literature",
    GsiA "GSIa" "a transaction depends on one that did not commit before it started",
    Gsi "GSI" "either of GSIa and GSIb",
    GUpdate "G-update" "a cycle with a missed write among the updating transactions and one more",
    GNonadjacentItem "G-nonadjacent-item" "a cycle with several missed writes of items, no two adjacent",
    GNonadjacent "G-nonadjacent" "a cycle with several missed writes, no two adjacent",
    GSi "G-SI" "no order of starts and commits explains what the transactions saw",
    PlSiCycle "PL-SI-cycle-exists" "a cycle that snapshot isolation forbids, of a kind that was not named",
    G2Item "G2-item" "a cycle with missed writes of items",
    Pl299Cycle "PL-2.99-cycle-exists" "a cycle that repeatable read forbids, of a kind that was not named",
    WriteSkew "write-skew" "transactions read what the other one wrote, and neither saw it",
    PredicateReadMiss "predicate-read-miss" "a predicate read missed a version although every version matches",
    G2 "G2" "a cycle with missed writes",
    Pl3Cycle "PL-3-cycle-exists" "a cycle of a kind that was not named",
    G0Process "G0-process" "a G0 cycle with the order within a process",
    StrongSessionPl1Cycle "strong-session-PL-1-cycle-exists" "a cycle of overwrites and process order, of a kind that was not named",
    G1cProcess "G1c-process" "a G1c cycle with the order within a process",
    G1Process "G1-process" "G1, or G1c with the order within a process",
    StrongSessionPl2Cycle "strong-session-PL-2-cycle-exists" "a cycle of overwrites, reads and process order, of a kind that was not named",
    GSingleItemProcess "G-single-item-process" "a G-single-item cycle with the order within a process",
    GSingleProcess "G-single-process" "a G-single cycle with the order within a process",
    GNonadjacentItemProcess "G-nonadjacent-item-process" "a G-nonadjacent-item cycle with the order within a process",
    GNonadjacentProcess "G-nonadjacent-process" "a G-nonadjacent cycle with the order within a process",
    StrongSessionSiCycle "strong-session-snapshot-isolation-cycle-exists" "a cycle that snapshot isolation with process order forbids, of a kind that was not named",
    G2ItemProcess "G2-item-process" "a G2-item cycle with the order within a process",
    G2Process "G2-process" "a G2 cycle with the order within a process",
    StrongSessionPl3Cycle "strong-session-serializable-cycle-exists" "a cycle with process order, of a kind that was not named",
    G0Realtime "G0-realtime" "a G0 cycle with real-time order",
    StrongPl1Cycle "strong-PL-1-cycle-exists" "a cycle of overwrites and real-time order, of a kind that was not named",
    G1cRealtime "G1c-realtime" "a G1c cycle with real-time order",
    G1Realtime "G1-realtime" "G1, or G1c with process or real-time order",
    StrongPl2Cycle "strong-PL-2-cycle-exists" "a cycle of overwrites, reads and real-time order, of a kind that was not named",
    GSingleItemRealtime "G-single-item-realtime" "a G-single-item cycle with real-time order",
    GSingleRealtime "G-single-realtime" "a G-single cycle with real-time order",
    GNonadjacentItemRealtime "G-nonadjacent-item-realtime" "a G-nonadjacent-item cycle with real-time order",
    GNonadjacentRealtime "G-nonadjacent-realtime" "a G-nonadjacent cycle with real-time order",
    StrongSiCycle "strong-snapshot-isolation-cycle-exists" "a cycle that snapshot isolation with real-time order forbids, of a kind that was not named",
    G2ItemRealtime "G2-item-realtime" "a G2-item cycle with real-time order",
    G2Realtime "G2-realtime" "a G2 cycle with real-time order",
    PlSsCycle "PL-SS-cycle-exists" "a cycle with real-time order, of a kind that was not named",
    DuplicateWrites "duplicate-writes" "one value was written twice to one key: who wrote what was read is not known",
    UnknownMicroOp "unknown-micro-operation" "a micro-operation that is neither a read nor a write of the workload",
    SearchTimeout "cycle-search-timeout" "the search for cycles ran out of its budget",
    EmptyGraph "empty-transaction-graph" "no transaction says anything about another one",
}

/// Who implies whom: whatever is the first is also each of the others.
pub const IMPLIES: &[(Anomaly, &[Anomaly])] = {
    use Anomaly::*;
    &[
        (G0, &[G1c, G0Process]),
        (G1a, &[G1]),
        (G1b, &[G1]),
        (G1c, &[G1, G1cProcess]),
        (G1, &[G1Process]),
        (GSingleItem, &[GSingle, GNonadjacentItem, GSingleItemProcess]),
        (GSingle, &[GNonadjacent, GsiB, GSingleProcess]),
        (GNonadjacentItem, &[GNonadjacent, G2Item, GNonadjacentItemProcess]),
        (GNonadjacent, &[G2, GNonadjacentProcess]),
        (G2Item, &[G2, G2ItemProcess]),
        (G2, &[G2Process]),
        (GsiA, &[Gsi]),
        (GsiB, &[Gsi]),
        (G0Process, &[G1cProcess, G0Realtime]),
        (G1cProcess, &[G1Process, G1cRealtime]),
        (G1Process, &[G1Realtime]),
        (GSingleItemProcess, &[GSingleProcess, GNonadjacentItemProcess, GSingleItemRealtime]),
        (GSingleProcess, &[GNonadjacentProcess, GSingleRealtime]),
        (GNonadjacentItemProcess, &[GNonadjacentProcess, G2ItemProcess, GNonadjacentItemRealtime]),
        (GNonadjacentProcess, &[G2Process, GNonadjacentRealtime]),
        (G2ItemProcess, &[G2Process, G2ItemRealtime]),
        (G2Process, &[G2Realtime]),
        (G0Realtime, &[G1cRealtime]),
        (G1cRealtime, &[G1Realtime]),
        (GSingleItemRealtime, &[GSingleRealtime, GNonadjacentItemRealtime]),
        (GSingleRealtime, &[GNonadjacentRealtime]),
        (GNonadjacentItemRealtime, &[GNonadjacentRealtime, G2ItemRealtime]),
        (GNonadjacentRealtime, &[G2Realtime]),
        (G2ItemRealtime, &[G2Realtime]),
        (IncompatibleOrder, &[G1a]),
        (DirtyUpdate, &[G1a]),
        (FutureRead, &[G1c]),
        (LostUpdate, &[WriteSkew, G2Item, UpdateAtomicCycle]),
        (WriteSkew, &[G2]),
        // What follows is not in the reference, which never finds what stands on the left. Over given version orders each is
        // a cycle with missed writes of items.
        (Vanished, &[FracturedRead, GMonotonic, GMsr]),
        (FracturedRead, &[CausalityViolation, UpdateAtomicCycle]),
        (CausalityViolation, &[GSingleItem, PsiCycle, PrefixCycle]),
        (UpdateAtomicCycle, &[PsiCycle]),
        (LongFork, &[PrefixCycle]),
        (GCursor, &[UpdateAtomicCycle]),
        (GMonotonic, &[GSingleItem, PsiCycle]),
        (GMsr, &[PrefixCycle]),
        (PrefixCycle, &[GNonadjacentItem]),
        (PsiCycle, &[GSingleItem]),
        (GUpdate, &[G2Item]),
        // Without recorded starts these say no more: see the lattice.
        (GSingle, &[GSiB]),
        (GSiB, &[GSi]),
        (GNonadjacent, &[GSi]),
    ]
};

impl Anomaly {
    /// By its name.
    pub fn from_name(name: &str) -> Option<Anomaly> {
        Anomaly::ALL.iter().copied().find(|a| a.name() == name)
    }

    /// Itself and all that it also is.
    pub fn implied(self) -> AnomalySet {
        CLOSURE.implied[self as usize]
    }

    /// Itself and all that it follows from.
    pub fn implying(self) -> AnomalySet {
        CLOSURE.implying[self as usize]
    }

    /// Says that something could not be decided, rather than that something is wrong.
    pub fn is_undecided(self) -> bool {
        AnomalySet::UNDECIDED.contains(self)
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AnomalySet(u128);

impl AnomalySet {
    /// No kind.
    pub const EMPTY: AnomalySet = AnomalySet(0);

    /// Kinds that say that something could not be decided.
    pub const UNDECIDED: AnomalySet = AnomalySet::of(&[
        Anomaly::DuplicateWrites,
        Anomaly::UnknownMicroOp,
        Anomaly::SearchTimeout,
        Anomaly::EmptyGraph,
    ]);

    /// Every kind.
    pub const ALL: AnomalySet = AnomalySet::of(Anomaly::ALL);

    /// These kinds.
    pub const fn of(kinds: &[Anomaly]) -> AnomalySet {
        let (mut bits, mut i) = (0, 0);
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u8;
            i += 1;
        }
        AnomalySet(bits)
    }

    /// Does it hold this kind?
    pub const fn contains(self, a: Anomaly) -> bool {
        self.0 >> a as u8 & 1 == 1
    }

    /// Adds a kind; was it new?
    pub fn insert(&mut self, a: Anomaly) -> bool {
        let new = !self.contains(a);
        self.0 |= 1 << a as u8;
        new
    }

    /// Kinds of either.
    #[must_use]
    pub const fn union(self, other: AnomalySet) -> AnomalySet {
        AnomalySet(self.0 | other.0)
    }

    /// Kinds of both.
    #[must_use]
    pub const fn intersection(self, other: AnomalySet) -> AnomalySet {
        AnomalySet(self.0 & other.0)
    }

    /// Kinds of this one that are none of the other.
    #[must_use]
    pub const fn without(self, other: AnomalySet) -> AnomalySet {
        AnomalySet(self.0 & !other.0)
    }

    /// No kind?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many?
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Are all of these in the other?
    pub const fn is_subset(self, other: AnomalySet) -> bool {
        self.without(other).is_empty()
    }

    /// Worst first.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        Anomaly::ALL.iter().copied().filter(move |&a| self.contains(a))
    }

    /// These kinds and all that they also are.
    #[must_use]
    pub fn implied(self) -> AnomalySet {
        self.iter().map(Anomaly::implied).fold(AnomalySet::EMPTY, AnomalySet::union)
    }

    /// These kinds and all that they follow from.
    #[must_use]
    pub fn implying(self) -> AnomalySet {
        self.iter().map(Anomaly::implying).fold(AnomalySet::EMPTY, AnomalySet::union)
    }
}

impl FromIterator<Anomaly> for AnomalySet {
    fn from_iter<I: IntoIterator<Item = Anomaly>>(kinds: I) -> Self {
        let mut set = AnomalySet::EMPTY;
        kinds.into_iter().for_each(|a| {
            set.insert(a);
        });
        set
    }
}

impl fmt::Debug for AnomalySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Anomaly::name)).finish()
    }
}

struct Closure {
    implied: Vec<AnomalySet>,
    implying: Vec<AnomalySet>,
}

static CLOSURE: LazyLock<Closure> = LazyLock::new(|| {
    let mut implied: Vec<AnomalySet> = Anomaly::ALL.iter().map(|&a| AnomalySet::of(&[a])).collect();
    loop {
        let before = implied.clone();
        for (from, to) in IMPLIES {
            let more = to.iter().fold(AnomalySet::EMPTY, |s, &t| s.union(implied[t as usize]));
            implied[*from as usize] = implied[*from as usize].union(more);
        }
        if implied == before {
            break;
        }
    }
    let implying = Anomaly::ALL
        .iter()
        .map(|&to| Anomaly::ALL.iter().copied().filter(|&from| implied[from as usize].contains(to)).collect());
    Closure { implying: implying.collect(), implied }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for &a in Anomaly::ALL {
            assert_eq!(Anomaly::from_name(a.name()), Some(a));
        }
        assert_eq!(Anomaly::from_name("G3"), None);
    }

    #[test]
    fn kinds_fit_their_word_and_are_declared_by_number() {
        assert!(Anomaly::ALL.len() <= 128);
        assert!(Anomaly::ALL.iter().enumerate().all(|(i, &a)| a as usize == i));
        assert_eq!(AnomalySet::ALL.len(), Anomaly::ALL.len());
    }

    #[test]
    fn plain_kinds_are_reported_before_process_ones_and_those_before_real_time_ones() {
        let rank = |a: Anomaly| match a.name() {
            n if n.ends_with("-process") || n.starts_with("strong-session") => 1,
            n if n.ends_with("-realtime") || n.starts_with("strong-") || n == "PL-SS-cycle-exists" => 2,
            _ => 0,
        };
        let ranks: Vec<_> = Anomaly::ALL.iter().filter(|a| !a.is_undecided()).map(|&a| rank(a)).collect();
        assert!(ranks.is_sorted());
        let order = [Anomaly::G0, Anomaly::G1c, Anomaly::GSingleItem, Anomaly::G2Item, Anomaly::G0Process];
        assert!(order.is_sorted());
    }
}
