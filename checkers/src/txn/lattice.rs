//! Which consistency models do anomalies rule out, and what must be looked for to judge a model?
//!
//! Models form a partial order: what satisfies a model satisfies every weaker one. Each model forbids some kinds of anomaly
//! directly ([`Model::forbids`]) and, through the order of models and [`IMPLIES`](super::anomaly::IMPLIES), many more.
//! Both relations are small tables here; their closures are computed once, as words of bits.
//!
//! **No hollow models.** That nothing forbidden was found says something only if everything was looked for that could
//! have been. [`Model::decided_by`] names the kinds whose absence, over given version orders, proves that a model holds;
//! [`unchecked`] tells which requested models are therefore neither ruled out nor shown to hold. The kinds that Elle names in
//! its tables and never looks for, and those that its tables lack, are [`BEYOND`]. They are looked for where a requested model
//! rests on them, by [`weak`](super::weak): over serializable histories they would add nothing but further names of the same cycles.
//! What could not be decided of them (out of budget, or for the order of versions that nobody read) leaves a model unchecked.
//!
//! Sources: Adya's thesis (1999); Bailis et al., Highly Available Transactions (VLDB 2013); Cerone, Bernardi, Gotsman (CONCUR
//! 2015); Cerone, Gotsman, Yang, Algebraic Laws for Weak Consistency (CONCUR 2017), whose cycle conditions are these, with WR,
//! WW and RW as usual: read atomic `WR;RW`; causal `WR+;RW`; parallel snapshot isolation `(WR|WW)+;RW`; prefix
//! `((WR;RW?)|WW)+`; snapshot isolation `((WR|WW);RW?)+`: irreflexive each.

use std::fmt;
use std::sync::LazyLock;

use super::anomaly::{Anomaly, AnomalySet};

macro_rules! models {
    ($($model:ident $name:literal $canonical:literal,)*) => {
        /// A consistency model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Model {
            $(#[doc = concat!("`", $name, "`, canonically `", $canonical, "`.")] $model,)*
        }

        impl Model {
            /// All models, by name.
            pub const ALL: &[Model] = &[$(Model::$model,)*];

            /// The name under which results speak of it.
            pub fn name(self) -> &'static str {
                match self { $(Model::$model => $name,)* }
            }

            /// Adya's name for it, or its only one.
            pub fn canonical(self) -> &'static str {
                match self { $(Model::$model => $canonical,)* }
            }
        }
    };
}

models! {
    OneCopySerializable "1SR" "1SR",
    Pram "PRAM" "PRAM",
    Causal "causal" "causal",
    CausalCerone "causal-cerone" "causal-cerone",
    ConsistentView "consistent-view" "PL-2+",
    CursorStability "cursor-stability" "PL-CS",
    ForwardConsistentView "forward-consistent-view" "PL-FCV",
    Linearizable "linearizable" "linearizable",
    MonotonicAtomicView "monotonic-atomic-view" "monotonic-atomic-view",
    MonotonicReads "monotonic-reads" "monotonic-reads",
    MonotonicSnapshotRead "monotonic-snapshot-read" "PL-MSR",
    MonotonicView "monotonic-view" "PL-2L",
    MonotonicWrites "monotonic-writes" "monotonic-writes",
    ParallelSnapshotIsolation "parallel-snapshot-isolation" "parallel-snapshot-isolation",
    Prefix "prefix" "prefix",
    ReadAtomic "read-atomic" "read-atomic",
    ReadCommitted "read-committed" "PL-2",
    ReadUncommitted "read-uncommitted" "PL-1",
    ReadYourWrites "read-your-writes" "read-your-writes",
    RepeatableRead "repeatable-read" "PL-2.99",
    Sequential "sequential" "sequential",
    Serializable "serializable" "PL-3",
    SessionSerializable "session-serializable" "session-serializable",
    SnapshotIsolation "snapshot-isolation" "PL-SI",
    StrongReadCommitted "strong-read-committed" "strong-PL-2",
    StrongReadUncommitted "strong-read-uncommitted" "strong-PL-1",
    StrongSerializable "strong-serializable" "PL-SS",
    StrongSessionReadCommitted "strong-session-read-committed" "strong-session-PL-2",
    StrongSessionReadUncommitted "strong-session-read-uncommitted" "strong-session-PL-1",
    StrongSessionSerializable "strong-session-serializable" "strong-session-serializable",
    StrongSessionSnapshotIsolation "strong-session-snapshot-isolation" "strong-session-snapshot-isolation",
    StrongSnapshotIsolation "strong-snapshot-isolation" "strong-snapshot-isolation",
    UpdateAtomic "update-atomic" "update-atomic",
    UpdateSerializable "update-serializable" "PL-3U",
    ViewSerializable "view-serializable" "view-serializable",
    WritesFollowReads "writes-follow-reads" "writes-follow-reads",
}

/// Further names of models.
const ALIASES: &[(&str, Model)] =
    &[("strict-serializable", Model::StrongSerializable), ("conflict-serializable", Model::Serializable)];

/// Kinds that the reference never finds: each shows a violation of a model that the reference accepts it under.
pub const BEYOND: AnomalySet = AnomalySet::of(&[
    Anomaly::Vanished,
    Anomaly::FracturedRead,
    Anomaly::CausalityViolation,
    Anomaly::UpdateAtomicCycle,
    Anomaly::GCursor,
    Anomaly::GMonotonic,
    Anomaly::GMsr,
    Anomaly::LongFork,
    Anomaly::PrefixCycle,
    Anomaly::PsiCycle,
    Anomaly::GUpdate,
    Anomaly::GSiB,
    Anomaly::GSi,
]);

impl Model {
    /// By any of its names.
    pub fn from_name(name: &str) -> Option<Model> {
        let own = Model::ALL.iter().copied().find(|m| m.name() == name || m.canonical() == name);
        own.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == name).map(|&(_, m)| m))
    }

    /// Every name by which it can be asked for, the one used in results first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let canonical = (self.canonical() != self.name()).then(|| self.canonical());
        let aliases = ALIASES.iter().filter(move |(_, m)| *m == self).map(|(alias, _)| *alias);
        std::iter::once(self.name()).chain(canonical).chain(aliases)
    }

    /// Models right below it: whatever satisfies it satisfies these.
    pub fn directly_weaker(self) -> &'static [Model] {
        use Model::*;
        match self {
            StrongSerializable => &[
                Serializable,
                Linearizable,
                SnapshotIsolation,
                StrongSnapshotIsolation,
                StrongSessionSerializable,
                SessionSerializable,
            ],
            StrongSessionSerializable => &[Serializable, StrongSessionSnapshotIsolation],
            StrongSnapshotIsolation => &[StrongSessionSnapshotIsolation, StrongReadCommitted],
            StrongSessionSnapshotIsolation => &[SnapshotIsolation, StrongSessionReadCommitted],
            Serializable => &[RepeatableRead, UpdateSerializable, SnapshotIsolation, ViewSerializable],
            SessionSerializable => &[OneCopySerializable],
            SnapshotIsolation => {
                &[ForwardConsistentView, MonotonicAtomicView, MonotonicSnapshotRead, ParallelSnapshotIsolation, Prefix]
            }
            UpdateSerializable => &[ForwardConsistentView],
            ForwardConsistentView => &[ConsistentView],
            RepeatableRead => &[CursorStability, MonotonicAtomicView],
            ConsistentView => &[CursorStability, MonotonicView],
            ParallelSnapshotIsolation => &[CausalCerone, UpdateAtomic],
            Prefix => &[CausalCerone],
            CausalCerone | UpdateAtomic => &[ReadAtomic],
            ReadAtomic => &[MonotonicAtomicView],
            MonotonicAtomicView | CursorStability | MonotonicView | MonotonicSnapshotRead => &[ReadCommitted],
            ReadCommitted => &[ReadUncommitted],
            StrongReadCommitted => &[StrongSessionReadCommitted, StrongReadUncommitted],
            StrongSessionReadCommitted => &[ReadCommitted, StrongSessionReadUncommitted],
            StrongReadUncommitted => &[StrongSessionReadUncommitted],
            StrongSessionReadUncommitted => &[ReadUncommitted],
            Linearizable => &[Sequential],
            Sequential => &[Causal],
            Causal => &[WritesFollowReads, Pram],
            Pram => &[MonotonicReads, MonotonicWrites, ReadYourWrites],
            ReadUncommitted | ViewSerializable | OneCopySerializable | WritesFollowReads | MonotonicReads
            | MonotonicWrites | ReadYourWrites => &[],
        }
    }

    /// Kinds that it forbids and no weaker model does.
    pub fn forbids(self) -> &'static [Anomaly] {
        use Anomaly::*;
        match self {
            // Who reads what nobody wrote has no history at all in Adya's sense; the reference throws, or passes it.
            Model::ReadUncommitted => &[G0, DuplicateElements, CyclicVersions, Pl1Cycle, GarbageRead],
            Model::ReadCommitted => &[G1, Pl2Cycle],
            Model::CursorStability => &[G1, GCursor, LostUpdate],
            Model::MonotonicView => &[G1, GMonotonic],
            Model::MonotonicSnapshotRead => &[G1, GMsr],
            Model::ConsistentView => &[G1, GSingle],
            Model::ForwardConsistentView => &[G1, GSiB],
            Model::RepeatableRead => &[G1, G2Item, LostUpdate, Pl299Cycle],
            Model::MonotonicAtomicView => &[Vanished],
            Model::ReadAtomic => &[Internal, G1a, FutureRead, FracturedRead],
            Model::UpdateAtomic => &[LostUpdate, UpdateAtomicCycle],
            Model::CausalCerone => &[Internal, G1a, CausalityViolation],
            Model::ParallelSnapshotIsolation => &[Internal, G1a, PsiCycle],
            Model::Prefix => &[Internal, G1a, PrefixCycle],
            Model::SnapshotIsolation => &[Internal, G1, GSi, GNonadjacent, PlSiCycle],
            Model::UpdateSerializable => &[G1, GUpdate],
            Model::Serializable => &[Internal, G1, G2, PredicateReadMiss, Pl3Cycle],
            Model::StrongSerializable => &[G1, G1cRealtime, G2Realtime, PlSsCycle],
            Model::StrongSessionReadUncommitted => &[G0Process, StrongSessionPl1Cycle],
            Model::StrongSessionReadCommitted => &[G1cProcess, StrongSessionPl2Cycle],
            Model::StrongReadUncommitted => &[G0Realtime, StrongPl1Cycle],
            Model::StrongReadCommitted => &[G1cRealtime, StrongPl2Cycle],
            Model::StrongSessionSnapshotIsolation => &[Internal, G1Process, GNonadjacentProcess, StrongSessionSiCycle],
            Model::StrongSnapshotIsolation => &[Internal, G1Realtime, GNonadjacentRealtime, StrongSiCycle],
            Model::StrongSessionSerializable => &[G1Process, G2Process, StrongSessionPl3Cycle],
            Model::OneCopySerializable
            | Model::ViewSerializable
            | Model::SessionSerializable
            | Model::Linearizable
            | Model::Sequential
            | Model::Causal
            | Model::WritesFollowReads
            | Model::Pram
            | Model::MonotonicReads
            | Model::MonotonicWrites
            | Model::ReadYourWrites => &[],
        }
    }

    /// Kinds whose absence proves, given version orders and no predicates, that it holds. Nothing for a model that is only
    /// ever shown to hold through a stronger one.
    ///
    /// Forward consistent view asks for a start order under which no G-SIb arises; where none is recorded, that in which all
    /// transactions start first adds no edge, so that G-single alone decides. Snapshot isolation's G-SI asks for an order of starts
    /// and commits; there is one exactly where no cycle is without adjacent missed writes (Cerone and Gotsman, PODC 2016).
    pub fn decided_by(self) -> Option<AnomalySet> {
        use Anomaly::*;
        const UNCOMMITTED: AnomalySet = AnomalySet::of(&[G0, DuplicateElements, CyclicVersions, GarbageRead]);
        const COMMITTED: AnomalySet =
            UNCOMMITTED.union(AnomalySet::of(&[IncompatibleOrder, DirtyUpdate, G1a, G1b, FutureRead, G1c]));
        const ATOMIC: AnomalySet = COMMITTED.union(AnomalySet::of(&[Internal]));
        const SNAPSHOT: AnomalySet = ATOMIC.union(AnomalySet::of(&[GSingleItem, GNonadjacentItem]));
        const SERIAL: AnomalySet = SNAPSHOT.union(AnomalySet::of(&[G2Item]));
        const SESSION_COMMITTED: AnomalySet = AnomalySet::of(&[G0Process, G1cProcess]);
        const STRONG_COMMITTED: AnomalySet = SESSION_COMMITTED.union(AnomalySet::of(&[G0Realtime, G1cRealtime]));
        const SESSION_SNAPSHOT: AnomalySet =
            SESSION_COMMITTED.union(AnomalySet::of(&[GSingleItemProcess, GNonadjacentItemProcess]));
        const STRONG_SNAPSHOT: AnomalySet = SESSION_SNAPSHOT
            .union(STRONG_COMMITTED)
            .union(AnomalySet::of(&[GSingleItemRealtime, GNonadjacentItemRealtime]));
        let (base, more): (AnomalySet, &[Anomaly]) = match self {
            Model::ReadUncommitted => (UNCOMMITTED, &[]),
            Model::ReadCommitted => (COMMITTED, &[]),
            Model::CursorStability => (COMMITTED, &[LostUpdate, GCursor]),
            Model::MonotonicView => (COMMITTED, &[GMonotonic]),
            Model::MonotonicSnapshotRead => (COMMITTED, &[GMsr]),
            Model::ConsistentView | Model::ForwardConsistentView => (COMMITTED, &[GSingleItem]),
            Model::RepeatableRead => (COMMITTED, &[GSingleItem, GNonadjacentItem, G2Item]),
            Model::UpdateSerializable => (COMMITTED, &[GSingleItem, GUpdate]),
            Model::MonotonicAtomicView => (COMMITTED, &[Vanished]),
            Model::ReadAtomic => (ATOMIC, &[FracturedRead]),
            Model::UpdateAtomic => (ATOMIC, &[FracturedRead, LostUpdate, UpdateAtomicCycle]),
            Model::CausalCerone => (ATOMIC, &[CausalityViolation]),
            Model::ParallelSnapshotIsolation => (ATOMIC, &[PsiCycle]),
            Model::Prefix => (ATOMIC, &[LongFork, PrefixCycle]),
            Model::SnapshotIsolation => (SNAPSHOT, &[]),
            Model::Serializable => (SERIAL, &[]),
            Model::StrongSessionReadUncommitted => (UNCOMMITTED, &[G0Process]),
            Model::StrongReadUncommitted => (UNCOMMITTED, &[G0Process, G0Realtime]),
            Model::StrongSessionReadCommitted => (COMMITTED.union(SESSION_COMMITTED), &[]),
            Model::StrongReadCommitted => (COMMITTED.union(STRONG_COMMITTED), &[]),
            Model::StrongSessionSnapshotIsolation => (SNAPSHOT.union(SESSION_SNAPSHOT), &[]),
            Model::StrongSnapshotIsolation => (SNAPSHOT.union(STRONG_SNAPSHOT), &[]),
            Model::StrongSessionSerializable => (SERIAL.union(SESSION_SNAPSHOT), &[G2ItemProcess]),
            Model::StrongSerializable => (SERIAL.union(STRONG_SNAPSHOT), &[G2ItemProcess, G2ItemRealtime]),
            Model::OneCopySerializable
            | Model::ViewSerializable
            | Model::SessionSerializable
            | Model::Linearizable
            | Model::Sequential
            | Model::Causal
            | Model::WritesFollowReads
            | Model::Pram
            | Model::MonotonicReads
            | Model::MonotonicWrites
            | Model::ReadYourWrites => return None,
        };
        Some(base.union(AnomalySet::of(more)))
    }

    /// Itself and all models that it is stronger than.
    pub fn weaker(self) -> ModelSet {
        CLOSURE.weaker[self as usize]
    }

    /// Itself and all models that are stronger.
    pub fn stronger(self) -> ModelSet {
        CLOSURE.stronger[self as usize]
    }

    /// All kinds that show it not to hold.
    pub fn prohibits(self) -> AnomalySet {
        CLOSURE.prohibits[self as usize]
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of models.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ModelSet(u64);

impl ModelSet {
    /// No model.
    pub const EMPTY: ModelSet = ModelSet(0);

    /// These models.
    pub const fn of(models: &[Model]) -> ModelSet {
        let (mut bits, mut i) = (0, 0);
        while i < models.len() {
            bits |= 1 << models[i] as u8;
            i += 1;
        }
        ModelSet(bits)
    }

    /// Does it hold this model?
    pub const fn contains(self, m: Model) -> bool {
        self.0 >> m as u8 & 1 == 1
    }

    /// Adds a model.
    pub fn insert(&mut self, m: Model) {
        self.0 |= 1 << m as u8;
    }

    /// Models of either.
    #[must_use]
    pub const fn union(self, other: ModelSet) -> ModelSet {
        ModelSet(self.0 | other.0)
    }

    /// Models of both.
    #[must_use]
    pub const fn intersection(self, other: ModelSet) -> ModelSet {
        ModelSet(self.0 & other.0)
    }

    /// Models of this one that are none of the other.
    #[must_use]
    pub const fn without(self, other: ModelSet) -> ModelSet {
        ModelSet(self.0 & !other.0)
    }

    /// No model?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many?
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// By name.
    pub fn iter(self) -> impl Iterator<Item = Model> {
        Model::ALL.iter().copied().filter(move |&m| self.contains(m))
    }

    /// Their names, sorted.
    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(Model::name).collect()
    }
}

impl FromIterator<Model> for ModelSet {
    fn from_iter<I: IntoIterator<Item = Model>>(models: I) -> Self {
        let mut set = ModelSet::EMPTY;
        models.into_iter().for_each(|m| set.insert(m));
        set
    }
}

impl fmt::Debug for ModelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Model::name)).finish()
    }
}

/// What anomalies rule out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// The weakest models that cannot hold.
    pub not: ModelSet,
    /// The stronger ones, which fall with them.
    pub also_not: ModelSet,
}

/// What do these anomalies rule out?
pub fn boundary(found: AnomalySet) -> Boundary {
    let out: ModelSet = ruled_out(found);
    let not = out.iter().filter(|m| m.weaker().intersection(out).len() == 1).collect();
    Boundary { not, also_not: out.without(not) }
}

/// All models that cannot hold.
pub fn ruled_out(found: AnomalySet) -> ModelSet {
    Model::ALL.iter().copied().filter(|m| !m.prohibits().intersection(found).is_empty()).collect()
}

/// What is asked of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Models that it should satisfy.
    pub models: ModelSet,
    /// Kinds that it should be free of besides.
    pub anomalies: AnomalySet,
}

impl Default for Demand {
    /// Strict serializability.
    fn default() -> Self {
        Demand { models: ModelSet::of(&[Model::StrongSerializable]), anomalies: AnomalySet::EMPTY }
    }
}

impl Demand {
    /// These models and nothing else.
    pub fn models(models: &[Model]) -> Demand {
        Demand { models: ModelSet::of(models), anomalies: AnomalySet::EMPTY }
    }

    /// Kinds of which one alone makes the history invalid.
    pub fn prohibits(self) -> AnomalySet {
        let by_models = self.models.iter().map(Model::prohibits).fold(AnomalySet::EMPTY, AnomalySet::union);
        by_models.union(self.anomalies.implying()).without(AnomalySet::UNDECIDED)
    }

    /// Kinds that a result lists when they were found.
    pub fn lists(self) -> AnomalySet {
        self.prohibits().union(AnomalySet::UNDECIDED)
    }

    /// Kinds to look for. Of those [`BEYOND`] the reference only what decides a requested model, or was asked for by
    /// name: a kind that merely follows from another one that is looked for anyway would be found twice.
    pub fn seeks(self) -> AnomalySet {
        let decisive = self.models.iter().filter_map(Model::decided_by).fold(AnomalySet::EMPTY, AnomalySet::union);
        let beyond = decisive.union(self.anomalies).intersection(BEYOND).implying().intersection(BEYOND);
        self.prohibits().without(BEYOND).union(beyond)
    }

    /// Kinds that are to be looked for besides those that always are, and those whose absence must hold in some order of the versions
    /// that nobody read. Any cycle at all rules out what is serializable, so that this concerns only weaker models.
    pub fn extra(self) -> AnomalySet {
        const BY_ORDER: AnomalySet = AnomalySet::of(&[
            Anomaly::GSingleItem,
            Anomaly::GNonadjacentItem,
            Anomaly::GSingleItemProcess,
            Anomaly::GNonadjacentItemProcess,
            Anomaly::GSingleItemRealtime,
            Anomaly::GNonadjacentItemRealtime,
        ]);
        let weaker = self.models.iter().filter_map(Model::decided_by).filter(|by| !by.contains(Anomaly::G2Item));
        let by_models = weaker.fold(AnomalySet::EMPTY, AnomalySet::union);
        let by_order = by_models.union(self.anomalies.implying()).intersection(BY_ORDER);
        self.seeks().intersection(super::weak::KINDS).union(by_order)
    }

    /// Is a model asked for that nothing decides by itself? It is shown to hold only through a stronger one, so that every relation
    /// there is should be looked at.
    pub fn rests_on_stronger(self) -> bool {
        self.models.iter().any(|m| m.decided_by().is_none())
    }

    /// Is a kind that needs the order within processes looked for?
    pub fn needs_process(self) -> bool {
        self.seeks().iter().any(|a| a.relations() >= Relations::Process)
    }

    /// Is a kind that needs real-time order looked for?
    pub fn needs_realtime(self) -> bool {
        self.seeks().iter().any(|a| a.relations() == Relations::Realtime)
    }
}

/// Which relations between transactions a kind may rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relations {
    /// What they read and wrote.
    Data,
    /// The order within a process too.
    Process,
    /// Real-time order too.
    Realtime,
}

impl Anomaly {
    /// Which relations it may rest on.
    pub fn relations(self) -> Relations {
        match self {
            a if a.is_undecided() || a < Anomaly::G0Process => Relations::Data,
            a if a < Anomaly::G0Realtime => Relations::Process,
            _ => Relations::Realtime,
        }
    }
}

/// Which requested models are neither ruled out by what was found nor shown to hold by what was looked for, to its end?
///
/// A model is shown to hold by itself or by a stronger one.
pub fn unchecked(requested: ModelSet, looked_for: AnomalySet, found: AnomalySet) -> ModelSet {
    let out = ruled_out(found);
    let holds = |m: Model| !out.contains(m) && m.decided_by().is_some_and(|needed| needed.is_subset(looked_for));
    requested.without(out).iter().filter(|m| !m.stronger().iter().any(holds)).collect()
}

struct Closure {
    weaker: Vec<ModelSet>,
    stronger: Vec<ModelSet>,
    prohibits: Vec<AnomalySet>,
}

static CLOSURE: LazyLock<Closure> = LazyLock::new(|| {
    let mut weaker: Vec<ModelSet> = Model::ALL.iter().map(|&m| ModelSet::of(&[m])).collect();
    loop {
        let before = weaker.clone();
        for &m in Model::ALL {
            let more = m.directly_weaker().iter().fold(ModelSet::EMPTY, |s, &w| s.union(weaker[w as usize]));
            weaker[m as usize] = weaker[m as usize].union(more);
        }
        if weaker == before {
            break;
        }
    }
    let stronger =
        Model::ALL.iter().map(|&w| Model::ALL.iter().copied().filter(|&s| weaker[s as usize].contains(w)).collect());
    let prohibits = weaker.iter().map(|set| {
        let direct = set.iter().flat_map(|m| m.forbids().iter().copied());
        direct.collect::<AnomalySet>().implying()
    });
    Closure { prohibits: prohibits.collect(), stronger: stronger.collect(), weaker }
});

#[cfg(test)]
pub(crate) mod tests;
