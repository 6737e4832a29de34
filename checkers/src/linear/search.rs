//! Is there a legal order of these operations that respects real time? The search.
//!
//! **Idea.** Just-in-time linearization (Lowe, "Testing for linearizability", 2017; the frontier form of Wing and Gong's
//! search): walk the events in order, keeping every *configuration* that the past allows: the model's state, and which of
//! the operations still open have taken effect. An invocation opens an operation. At a return, each configuration in which
//! the returning operation has not taken effect is expanded, by letting open operations take effect, until it has; what
//! cannot get there dies. Then it stops: what is
//! open still may take effect later just as well. When none survives, the history up to this return has no legal order; when the events end, it has one.
//!
//! Five observations keep the frontier small. Each says that one configuration can do whatever another can, so that the
//! other need not be kept (an exchange argument: take the other's legal order and move an operation).
//!
//! 1. *Observers at once.* An operation that never changes the state takes effect as soon as it fits: the rest of any
//!    order that has it later is legal without it.
//! 2. *Absorption.* An overwriting operation x which is followed at once by another, y, changes nothing: x may be thought
//!    to stand just before any overwriting operation that takes effect while x is open. So when y takes effect, all
//!    open overwriting ones become *absorbable*: each may still take effect as such, but when it returns it need not. It is
//!    therefore never right to let x take effect only to be overwritten at once.
//! 3. *Equal operations* are interchangeable; the one that returns first goes first. One that never returns goes last.
//! 4. *Crashed operations* (which may have taken effect, at any time from their invocation on) are counted by what
//!    they do, not enumerated: a configuration holds how many of each it has used. Crashed observers are left out, and so
//!    are those of which the model says that nothing can come any more ([`Model::spent`]).
//! 5. *Dominance.* Among configurations with equal states, one with fewer crashed operations used, more observers done and more
//!    operations absorbable can do whatever the other can; only such as nothing dominates are kept. For the same reason an
//!    expansion goes through what needs no further crashed operation first, then one, then two.
//!
//! **Process order.** Where a recorder's clock is coarse, an operation may be invoked at the very time at which the one before it of
//! the same process returned. To all others the two count as concurrent, and no order of events says that they are not; so
//! while both are open, the second waits until the first has taken effect. Neither is equal to any other operation, the first
//! may well take effect only to be overwritten at once, and being able to absorb it is no substitute for having it done.
//!
//! **Attempts.** Where crashed operations repeat few values, the frontier can be vast although one of its most frugal
//! configurations leads to the end. So a first attempt keeps only so many configurations, those that have used the fewest
//! crashed operations. Reaching the end, it has an order, which is proof whatever was dropped. Dying, it has proved nothing if
//! it dropped anything, and a wider attempt follows, up to one that drops nothing.
//!
//! **From anywhere.** But perhaps nothing that was dropped matters. What was invoked after some time is searched alone, from
//! every state that it can tell from others ([`Model::any_state`]), with all that was open at that time free to happen later
//! or never. An order of the whole would give one of this. If there is none up to the return at which the attempt died,
//! then, since the attempt got as far as that, the whole has none from there on, and the past need not be enumerated. Tried
//! for windows of ever more returns, each first as though every crashed operation could happen any number of times, which
//! leaves nothing to count.
//!
//! **Cost.** Deciding is NP-complete; the frontier is exponential in the number of operations open at once at worst.
//! For a register, few configurations survive: with unique values about one for each value that can still be read. Time is events ×
//! frontier × open operations; memory the frontier, twelve bytes an operation, and eight more for the order (see
//! [`log`](super::log)).

use elench_formats::sorting::sort_by;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::Operation;
use super::frontier::Frontier;
use super::log::{Entry, Log, MAX_OPS, ROOT};
use crate::budget::{Budget, Reservation, Spent};
use crate::model::Model;
use crate::outcome::OpId;

/// What the search found. Operations are named by their place in the input.
#[derive(Debug)]
pub(super) enum Found {
    /// There is an order: this one, unless it was not wanted or its log outgrew the memory allowed.
    Order(Option<Vec<u32>>),
    /// There is none.
    Stuck(StuckAt),
    /// Not known.
    GaveUp {
        /// What was used up.
        spent: Spent,
        /// The last operation up to whose return there is an order.
        reached: Option<u32>,
        /// Configurations kept there.
        frontier: usize,
    },
}

/// Where no configuration is left.
#[derive(Debug)]
pub(super) struct StuckAt {
    /// The operation whose return none survives.
    pub(super) op: u32,
    /// How many there were before.
    pub(super) survivors: usize,
    /// A few of them.
    pub(super) samples: Vec<Sample>,
}

/// A configuration that does not survive.
#[derive(Debug)]
pub(super) struct Sample {
    /// The state as the search saw it, for a person.
    pub(super) state: String,
    /// Open operations that have taken effect.
    pub(super) applied: Vec<u32>,
    /// Open operations that have not.
    pub(super) waiting: Vec<u32>,
    /// What took effect, in order.
    pub(super) order: Option<Vec<u32>>,
}

const SAMPLES: usize = 5;
/// Expansions between two looks at the budget.
const TICK: u32 = 128;
/// Returns between two sweeps over crashed operations that nothing can come of any more.
const SWEEP: u32 = 64;
/// Configurations that one is compared with at most when looking for one that dominates it.
const DOMINATORS: usize = 1024;
/// Configurations kept in the first attempt, and by how much more in each that follows.
pub(super) const FIRST_BEAM: usize = 32;
const WIDER: usize = 8;
/// Returns to look back over at first when asking whether the past matters.
const FIRST_WINDOW: usize = 4;
/// Expansions at one return, in beams, after which anything found is enough.
const EXPANDED: usize = 2;
/// Flag beside the state: the last effect served nothing yet, so no overwriting one may follow at once.
const IDLE: u64 = 1 << 32;

/// Searches. `ops` must be sorted by invocation.
pub(super) fn search<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    budget: &Budget,
    keep_order: bool,
) -> Result<Found, TooMany> {
    search_from(FIRST_BEAM, model, ops, budget, keep_order)
}

/// Searches with a first attempt as narrow as given.
pub(super) fn search_from<M: Model>(
    mut beam: usize,
    model: &M,
    ops: &[Operation<M::Op>],
    budget: &Budget,
    keep_order: bool,
) -> Result<Found, TooMany> {
    if ops.len() > MAX_OPS {
        return Err(TooMany);
    }
    loop {
        let mut search = Search::new(model, ops, budget, keep_order, beam);
        let found = search.run();
        let narrowed = search.narrowed;
        drop(search);
        match found {
            Found::Stuck(mut stuck) if narrowed => {
                if refuted(model, ops, budget, stuck.op, beam.saturating_mul(WIDER)) {
                    // Others were dropped.
                    stuck.survivors += 1;
                    return Ok(Found::Stuck(stuck));
                }
            }
            found => return Ok(found),
        }
        beam = beam.saturating_mul(WIDER);
    }
}

/// A configuration by itself: what a search that goes on later needs of it.
#[derive(Clone, Debug)]
pub(super) struct Carried<S> {
    state: S,
    /// Open operations that have taken effect.
    done: Vec<OpId>,
    /// Open operations that may be thought to stand before the last overwriting one.
    absorbable: Vec<OpId>,
    /// Crashed operations used, by one that stands for all that are equal to it.
    used: Vec<(OpId, u64)>,
}

/// How far a part of a history could be followed.
pub(super) enum Followed<S> {
    /// These configurations are left at its end.
    Reached(Vec<Carried<S>>),
    /// None is.
    Stuck(StuckAt),
    /// Not known.
    GaveUp(Spent),
}

/// Goes on from where an earlier search ended, up to a time (what happens at it excluded), and drops no configuration that might
/// matter. The first `open` operations are those that were open or had crashed there; what is left at the beginning are
/// `from`, or, when there are none, the initial state.
pub(super) fn follow<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    open: usize,
    from: &[Carried<M::State>],
    until: u64,
    budget: &Budget,
) -> Followed<M::State> {
    let mut search = Search::new(model, ops, budget, false, usize::MAX);
    search.until = until;
    search.resume = (!from.is_empty()).then_some((open, from));
    match search.walk(&mut None) {
        Err(spent) => Followed::GaveUp(spent),
        Ok(Some(op)) => Followed::Stuck(search.stuck_at(op)),
        Ok(None) => Followed::Reached(search.carry()),
    }
}

/// Has what came shortly before the return of `last` no order from any state whatsoever? Then there is none from the initial
/// one either. Keeps so many configurations at most.
fn refuted<M: Model>(model: &M, ops: &[Operation<M::Op>], budget: &Budget, last: u32, beam: usize) -> bool {
    let Operation { call, ret: Some(end), .. } = ops[last as usize] else { return false };
    let mut returns: Vec<u64> = ops.iter().filter_map(|op| op.ret).filter(|&ret| ret < call).collect();
    sort_by(&mut returns, |&ret| !ret);
    let mut window = FIRST_WINDOW;
    let mut supplies: &[Supply] = &[Supply::Endless, Supply::Counted];
    while let Some(&start) = returns.get(window) {
        let (places, since) = since(ops, start, end);
        let Some(states) = model.any_state(&since.iter().map(|op| &op.op).collect::<Vec<_>>()) else { return false };
        for &supply in supplies {
            let mut search = Search::new(model, &since, budget, false, beam);
            (search.starts, search.supply) = (states.clone(), supply);
            match search.run() {
                Found::Stuck(stuck) if !search.narrowed => return places[stuck.op as usize] == last,
                Found::Order(_) => {}
                // What is too wide is so over a longer window.
                Found::Stuck(_) if supply == Supply::Counted => supplies = &[Supply::Endless],
                Found::Stuck(_) | Found::GaveUp { .. } => return false,
            }
        }
        window = window.saturating_mul(WIDER);
    }
    false
}

/// What is known of a history at `end` but for what had returned before `start`; what was open then may have happened
/// before, or happen at any time since. With the places of these operations.
fn since<O: Clone>(ops: &[Operation<O>], start: u64, end: u64) -> (Vec<u32>, Vec<Operation<O>>) {
    let known = (0..).zip(&ops[..ops.partition_point(|op| op.call <= end)]);
    let since = known.filter(|(_, op)| op.ret.is_none_or(|ret| ret >= start));
    let returned = |op: &Operation<O>| op.ret.filter(|&ret| op.call >= start && ret <= end);
    since.map(|(i, op)| (i, Operation { ret: returned(op), ..op.clone() })).unzip()
}

/// More operations on one key than the search can number.
#[derive(Debug)]
pub(super) struct TooMany;

/// Distinct states, numbered.
struct States<S> {
    list: Vec<S>,
    table: HashTable<u32>,
    hasher: FixedState,
    live: usize,
}

impl<S: Clone + Eq + std::hash::Hash> States<S> {
    fn new() -> Self {
        States { list: Vec::new(), table: HashTable::new(), hasher: FixedState::default(), live: 0 }
    }

    fn id(&mut self, state: S) -> u32 {
        let States { list, table, hasher, .. } = self;
        let hash = hasher.hash_one(&state);
        if let Some(&id) = table.find(hash, |&id| list[id as usize] == state) {
            return id;
        }
        let id = list.len() as u32;
        list.push(state);
        table.insert_unique(hash, id, |&id| hasher.hash_one(&list[id as usize]));
        id
    }

    fn get(&self, id: u64) -> &S {
        &self.list[id as u32 as usize]
    }

    fn bytes(&self) -> u64 {
        (self.list.capacity() * size_of::<S>() + self.table.capacity() * 5) as u64
    }
}

/// An open operation that returns and changes the state.
struct Mutator {
    op: u32,
    class: u32,
    slot: Slot,
    overwrites: bool,
    ret: u32,
    /// The open operation of the same process that comes before it.
    after: Option<Slot>,
    /// Open operations equal to it that return earlier and so go first.
    elders: Vec<Slot>,
}

/// An open operation that returns and only observes.
struct Observer {
    op: u32,
    slot: Slot,
    after: Option<Slot>,
}

/// Crashed operations that are equal to each other.
struct Crashed {
    class: u32,
    overwrites: bool,
    /// Those invoked so far, in that order; the first `used` of them are used.
    members: Vec<u32>,
    /// Where configurations count how many of them they have used.
    lane: Lane,
    /// Can nothing come of them at the return at hand?
    spent: bool,
    /// The open operation of the same process that comes before; then there is only one member.
    after: Option<Slot>,
    /// Open operations equal to them, which go first.
    elders: Vec<Slot>,
}

/// The bit of an open operation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    fn word(self) -> usize {
        self.0 as usize / 64
    }

    fn mask(self) -> u64 {
        1 << (self.0 % 64)
    }

    fn is_in(self, bits: &[u64]) -> bool {
        bits[self.word()] & self.mask() != 0
    }

    fn add_to(self, bits: &mut [u64]) {
        bits[self.word()] |= self.mask();
    }

    fn remove_from(self, bits: &mut [u64]) {
        bits[self.word()] &= !self.mask();
    }
}

/// Some bits of a word of a configuration. The highest of them is never set, so that all counts of a word can be compared at once.
#[derive(Clone, Copy)]
struct Lane {
    word: usize,
    shift: u32,
    bits: u32,
}

impl Lane {
    fn get(self, config: &[u64]) -> u64 {
        config[self.word] >> self.shift & ((1 << self.bits) - 1)
    }
}

/// How often crashed operations can happen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Supply {
    /// Once each.
    Counted,
    /// Any number of times: allows more than there is.
    Endless,
}

/// The operation that returns.
#[derive(Clone, Copy)]
struct Goal {
    op: u32,
    slot: Slot,
    now: u64,
}

/// Places of configurations in a set, by state.
type ByState = HashMap<u32, Vec<u32>, FixedState>;

const NO_CLASS: u32 = u32::MAX;
/// The event at which an operation returns that never does.
const NEVER: u32 = u32::MAX;

struct Search<'a, M: Model> {
    model: M,
    ops: &'a [Operation<M::Op>],
    budget: &'a Budget,
    reservation: Reservation,
    /// Those that return, by time.
    returns: Vec<u32>,
    /// The number of the event at which an operation returns.
    ret: Vec<u32>,
    /// The operation of the same process, not yet returned when this one is invoked, that comes before it; mostly none.
    before: HashMap<u32, u32, FixedState>,
    /// The operations that others come after in this way.
    awaited_ops: HashSet<u32, FixedState>,
    /// Equal operations that change the state share a class; observers have none.
    class: Vec<u32>,
    /// How many of a class crash.
    crashes: Vec<u32>,
    /// Index into `crashed`, by class.
    crashed_of: Vec<u32>,

    mutators: Vec<Mutator>,
    observers: Vec<Observer>,
    crashed: Vec<Crashed>,
    slot_of: HashMap<u32, Slot, FixedState>,
    free_slots: Vec<Slot>,
    free_lanes: Vec<Lane>,
    /// Words of a bit set over slots.
    set_words: usize,
    /// Words of a configuration: the state, operations done, operations absorbable, counts of crashed ones used.
    width: usize,
    /// Bits taken in the last word of counts.
    last_word_bits: u32,
    /// The highest bit of each lane, by word of counts.
    guards: Vec<u64>,
    overwriting: Vec<u64>,
    observing: Vec<u64>,
    /// Those that another of their process waits for, or will.
    awaited: Vec<u64>,

    states: States<M::State>,
    /// Where it may begin.
    starts: Vec<M::State>,
    supply: Supply,
    log: Option<Log>,
    /// What the past allows. Changed in place at invocations, so never inserted into.
    front: Frontier,
    next: Frontier,
    /// To be expanded at this return, and those to follow when these are, which have used one crashed operation more.
    work: Frontier,
    later: Frontier,
    /// Those in `next`, and those expanded, by state.
    next_of: ByState,
    expanded: Frontier,
    expanded_of: ByState,
    scratch: Vec<u64>,
    after: Vec<u64>,
    gained: Vec<u32>,
    ticks: u32,
    /// Configurations to keep at most, and whether more were dropped: then death proves nothing.
    beam: usize,
    narrowed: bool,
    /// What the frontier is once so many operations are open.
    resume: Option<(usize, &'a [Carried<M::State>])>,
    /// The time at which to stop.
    until: u64,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &M, ops: &'a [Operation<M::Op>], budget: &'a Budget, keep_order: bool, beam: usize) -> Self {
        let mut model = model.clone();
        let returns = returns(ops);
        let mut ret = vec![NEVER; ops.len()];
        let (mut open, mut most_open) = (0usize, 0);
        for (time, (op, returns)) in (0..).zip(Events::new(ops, &returns)) {
            if returns {
                ret[op as usize] = time;
                open -= 1;
            } else if ops[op as usize].ret.is_some() {
                open += 1;
                most_open = most_open.max(open);
            }
        }
        model.foresee(&ops.iter().zip(&ret).map(|(op, &ret)| (&op.op, time_of(ret))).collect::<Vec<_>>());
        let before = touching(ops);
        let awaited_ops: HashSet<u32, FixedState> = before.values().copied().collect();
        let unlike_all = |op: u32| before.contains_key(&op) || awaited_ops.contains(&op);
        let (class, crashes) = classes(&model, ops, unlike_all);
        let set_words = most_open.div_ceil(64);
        let width = 1 + 2 * set_words;
        Search {
            ops,
            budget,
            reservation: budget.reserve(),
            returns,
            ret,
            awaited_ops,
            before,
            class,
            crashed_of: vec![NO_CLASS; crashes.len()],
            crashes,
            mutators: Vec::new(),
            observers: Vec::new(),
            crashed: Vec::new(),
            slot_of: HashMap::default(),
            free_slots: (0..most_open as u32).rev().map(Slot).collect(),
            free_lanes: Vec::new(),
            set_words,
            width,
            last_word_bits: 64,
            guards: Vec::new(),
            overwriting: vec![0; set_words],
            observing: vec![0; set_words],
            awaited: vec![0; set_words],
            states: States::new(),
            starts: vec![model.init()],
            supply: Supply::Counted,
            log: keep_order.then(Log::default),
            front: Frontier::new(width),
            next: Frontier::new(width),
            work: Frontier::new(width),
            later: Frontier::new(width),
            next_of: ByState::default(),
            expanded: Frontier::new(width),
            expanded_of: ByState::default(),
            scratch: vec![0; width],
            after: Vec::new(),
            gained: Vec::new(),
            ticks: 0,
            beam,
            narrowed: false,
            resume: None,
            until: u64::MAX,
            model,
        }
    }

    fn run(&mut self) -> Found {
        let mut reached = None;
        match self.walk(&mut reached) {
            Err(spent) => Found::GaveUp { spent, reached, frontier: self.front.len() },
            Ok(Some(op)) => Found::Stuck(self.stuck_at(op)),
            Ok(None) => Found::Order(self.order(self.front.tail(0))),
        }
    }

    /// Goes through the events; gives the operation whose return nothing survives.
    fn walk(&mut self, reached: &mut Option<u32>) -> Result<Option<u32>, Spent> {
        for state in std::mem::take(&mut self.starts) {
            let mut initial = vec![0; self.width];
            initial[0] = u64::from(self.states.id(state));
            self.front.insert(&initial, ROOT);
        }
        let mut returns_seen = 0u32;
        let (ops, returns) = (self.ops, std::mem::take(&mut self.returns));
        for (time, (op, returns)) in Events::new(ops, &returns).enumerate() {
            if self.resume.is_some_and(|(open, _)| open == time) {
                self.resume_front();
            }
            let Operation { call, ret, .. } = ops[op as usize];
            if (if returns { ret.unwrap_or(u64::MAX) } else { call }) >= self.until {
                break;
            }
            self.tick()?;
            if !returns {
                self.on_invocation(op, time as u64);
                continue;
            }
            if !self.on_return(op, time as u64)? {
                return Ok(Some(op));
            }
            *reached = Some(op);
            returns_seen = returns_seen.wrapping_add(1);
            if returns_seen.is_multiple_of(SWEEP) {
                self.sweep(time as u64);
            }
            self.collect();
        }
        if self.resume.is_some() {
            self.resume_front();
        }
        Ok(None)
    }

    /// The frontier becomes what an earlier search left.
    fn resume_front(&mut self) {
        let Some((open, from)) = self.resume.take() else { return };
        let places: HashMap<OpId, u32, FixedState> = (0..).zip(&self.ops[..open]).map(|(i, op)| (op.id, i)).collect();
        let slot = |search: &Self, id: &OpId| places.get(id).and_then(|place| search.slot_of.get(place)).copied();
        self.front.clear(self.width);
        for carried in from {
            let mut config = vec![0; self.width];
            config[0] = u64::from(self.states.id(carried.state.clone()));
            carried.done.iter().filter_map(|id| slot(self, id)).for_each(|s| s.add_to(&mut config[1..]));
            let absorbable = carried.absorbable.iter().filter_map(|id| slot(self, id));
            absorbable.for_each(|s| s.add_to(&mut config[1 + self.set_words..]));
            for (id, used) in &carried.used {
                let class = places.get(id).map(|&place| self.crashed_of[self.class[place as usize] as usize]);
                if let Some(crashed) = class.and_then(|class| self.crashed.get(class as usize)) {
                    config[crashed.lane.word] += used << crashed.lane.shift;
                }
            }
            self.front.insert(&config, ROOT);
        }
    }

    /// The frontier by itself.
    fn carry(&self) -> Vec<Carried<M::State>> {
        let ids = |bits: &[u64]| {
            let open = self.slot_of.iter().filter(|(_, slot)| slot.is_in(bits));
            open.map(|(&op, _)| self.ops[op as usize].id).collect()
        };
        let carry = |i: usize| {
            let config = self.front.get(i);
            let used = self.crashed.iter().map(|c| (self.ops[c.members[0] as usize].id, c.lane.get(config)));
            Carried {
                state: self.states.get(config[0]).clone(),
                done: ids(self.done(config)),
                absorbable: ids(self.absorbable(config)),
                used: used.filter(|&(_, used)| used > 0).collect(),
            }
        };
        (0..self.front.len()).map(carry).collect()
    }

    /// Looks at the budget now and then.
    fn tick(&mut self) -> Result<(), Spent> {
        self.ticks += 1;
        if self.ticks < TICK {
            return Ok(());
        }
        self.ticks = 0;
        self.account();
        match self.budget.spent() {
            Some(Spent::Memory) if self.log.is_some() => {
                self.log = None;
                self.account();
                self.budget.spent().map_or(Ok(()), Err)
            }
            Some(spent) => Err(spent),
            None => Ok(()),
        }
    }

    fn account(&mut self) {
        let fixed = self.ops.len() * 3 * size_of::<u32>();
        let sets =
            [&self.front, &self.next, &self.work, &self.later, &self.expanded].map(Frontier::bytes).iter().sum::<u64>();
        let log = self.log.as_ref().map_or(0, Log::bytes);
        self.reservation.set(fixed as u64 + sets + log + self.states.bytes() + self.model.held());
    }

    fn on_invocation(&mut self, op: u32, now: u64) {
        let returns = self.ret[op as usize] != NEVER;
        let observes = self.class[op as usize] == NO_CLASS;
        match (returns, observes) {
            (true, true) => self.open_observer(op),
            (true, false) => self.open_mutator(op),
            (false, true) => {}
            (false, false) => self.open_crashed(op, now),
        }
    }

    fn take_slot(&mut self, op: u32) -> Slot {
        let slot = self.free_slots.pop().expect("there are as many slots as operations open at once");
        self.slot_of.insert(op, slot);
        if self.awaited_ops.contains(&op) {
            slot.add_to(&mut self.awaited);
        }
        slot
    }

    /// The place of the open operation that must come before this one.
    fn waits_for(&self, op: u32) -> Option<Slot> {
        self.slot_of.get(self.before.get(&op)?).copied()
    }

    fn open_observer(&mut self, op: u32) {
        let (slot, after) = (self.take_slot(op), self.waits_for(op));
        slot.add_to(&mut self.observing);
        self.observers.push(Observer { op, slot, after });
        for i in 0..self.front.len() {
            let config = self.front.get(i);
            let state = self.states.get(config[0]);
            let waits = after.is_some_and(|slot| !slot.is_in(self.done(config)));
            if waits || self.model.step(state, &self.ops[op as usize].op).is_none() {
                continue;
            }
            slot.add_to(&mut self.front.get_mut(i)[1..=self.set_words]);
            let tail = append(&mut self.log, Entry::Effect(op), self.front.tail(i));
            self.front.tails_mut()[i] = tail;
        }
    }

    fn open_mutator(&mut self, op: u32) {
        let (slot, after) = (self.take_slot(op), self.waits_for(op));
        let (class, ret) = (self.class[op as usize], self.ret[op as usize]);
        let overwrites = self.model.overwrites(&self.ops[op as usize].op);
        if overwrites {
            slot.add_to(&mut self.overwriting);
        }
        let mut elders = Vec::new();
        for other in self.mutators.iter_mut().filter(|m| m.class == class) {
            if other.ret < ret { elders.push(other.slot) } else { other.elders.push(slot) }
        }
        if let Some(crashed) = self.crashed.get_mut(self.crashed_of[class as usize] as usize) {
            crashed.elders.push(slot);
        }
        self.mutators.push(Mutator { op, class, slot, overwrites, ret, after, elders });
    }

    fn open_crashed(&mut self, op: u32, now: u64) {
        let model_op = &self.ops[op as usize].op;
        if self.model.spent(model_op, now) {
            return;
        }
        let class = self.class[op as usize];
        if let Some(crashed) = self.crashed.get_mut(self.crashed_of[class as usize] as usize) {
            crashed.members.push(op);
            return;
        }
        let overwrites = self.model.overwrites(model_op);
        let lane = self.take_lane(33 - self.crashes[class as usize].leading_zeros());
        let elders = self.mutators.iter().filter(|m| m.class == class).map(|m| m.slot).collect();
        self.crashed_of[class as usize] = self.crashed.len() as u32;
        let after = self.waits_for(op);
        self.crashed.push(Crashed { class, overwrites, members: vec![op], lane, spent: false, after, elders });
    }

    fn take_lane(&mut self, bits: u32) -> Lane {
        if let Some(i) = self.free_lanes.iter().position(|lane| lane.bits == bits) {
            return self.free_lanes.swap_remove(i);
        }
        if self.last_word_bits + bits > 64 {
            self.widen();
        }
        let lane = Lane { word: self.width - 1, shift: self.last_word_bits, bits };
        self.last_word_bits += bits;
        *self.guards.last_mut().expect("each word of counts has guards") |= 1 << (self.last_word_bits - 1);
        lane
    }

    /// One more word of counts.
    fn widen(&mut self) {
        self.width += 1;
        self.last_word_bits = 0;
        self.guards.push(0);
        self.rebuild(|config| config.push(0));
    }

    /// Changes every configuration of the frontier; equal ones become one.
    fn rebuild(&mut self, change: impl Fn(&mut Vec<u64>)) {
        self.next.clear(self.width);
        for i in 0..self.front.len() {
            self.scratch.clear();
            self.scratch.extend_from_slice(self.front.get(i));
            change(&mut self.scratch);
            self.next.insert(&self.scratch, self.front.tail(i));
        }
        std::mem::swap(&mut self.front, &mut self.next);
        self.scratch.resize(self.width, 0);
    }

    /// Forgets crashed operations of which nothing can come any more.
    fn sweep(&mut self, now: u64) {
        let mut forgotten = Vec::new();
        let mut i = 0;
        while i < self.crashed.len() {
            let op = &self.ops[self.crashed[i].members[0] as usize].op;
            if !self.model.spent(op, now) {
                i += 1;
                continue;
            }
            let gone = self.crashed.swap_remove(i);
            self.crashed_of[gone.class as usize] = NO_CLASS;
            if let Some(moved) = self.crashed.get(i) {
                self.crashed_of[moved.class as usize] = i as u32;
            }
            forgotten.push(gone.lane);
        }
        if forgotten.is_empty() {
            return;
        }
        self.rebuild(|config| {
            for lane in &forgotten {
                config[lane.word] &= !(((1 << lane.bits) - 1) << lane.shift);
            }
        });
        self.free_lanes.extend(forgotten);
    }

    /// Keeps what survives the return; false when nothing does.
    fn on_return(&mut self, op: u32, now: u64) -> Result<bool, Spent> {
        let slot = self.slot_of.remove(&op).expect("what returns was open");
        let goal = Goal { op, slot, now };
        for set in [&mut self.next, &mut self.work, &mut self.later, &mut self.expanded] {
            set.clear(self.width);
        }
        self.next_of.clear();
        self.expanded_of.clear();
        for crashed in &mut self.crashed {
            crashed.spent = self.model.spent(&self.ops[crashed.members[0] as usize].op, now - 1);
        }
        let mut config = vec![0; self.width];
        for i in 0..self.front.len() {
            config.copy_from_slice(self.front.get(i));
            self.seed(&config, self.front.tail(i), goal);
        }
        while self.work.len() > 0 {
            let mut i = 0;
            while i < self.work.len() {
                config.copy_from_slice(self.work.get(i));
                self.expand(&config, self.work.tail(i), goal)?;
                i += 1;
            }
            let enough = self.next.len() > 0 && self.expanded.len() >= self.beam.saturating_mul(EXPANDED);
            if self.later.len() > 0 && (enough || self.next.len() >= self.beam) {
                self.narrowed = true;
                break;
            }
            std::mem::swap(&mut self.work, &mut self.later);
            self.later.clear(self.width);
        }
        if self.next.len() == 0 {
            self.slot_of.insert(op, slot);
            return Ok(false);
        }
        self.close(goal);
        std::mem::swap(&mut self.front, &mut self.next);
        self.prune();
        Ok(true)
    }

    fn close(&mut self, goal: Goal) {
        let slot = goal.slot;
        slot.remove_from(&mut self.overwriting);
        slot.remove_from(&mut self.observing);
        slot.remove_from(&mut self.awaited);
        self.observers.retain(|o| o.op != goal.op);
        self.mutators.retain(|m| m.op != goal.op);
        if !self.before.is_empty() {
            let afters = self.observers.iter_mut().map(|o| &mut o.after);
            let afters = afters.chain(self.mutators.iter_mut().map(|m| &mut m.after));
            for after in afters.chain(self.crashed.iter_mut().map(|c| &mut c.after)) {
                *after = after.filter(|other| *other != slot);
            }
        }
        let class = self.class[goal.op as usize];
        if class != NO_CLASS {
            for other in self.mutators.iter_mut().filter(|m| m.class == class) {
                other.elders.retain(|e| *e != slot);
            }
            if let Some(crashed) = self.crashed.get_mut(self.crashed_of[class as usize] as usize) {
                crashed.elders.retain(|e| *e != slot);
            }
        }
        self.free_slots.push(slot);
    }

    /// Where a configuration of the frontier goes at a return.
    fn seed(&mut self, config: &[u64], tail: u32, goal: Goal) {
        if goal.slot.is_in(self.done(config)) {
            self.survive(config, goal, |_| tail);
            return;
        }
        if goal.slot.is_in(self.absorbable(config)) {
            self.survive(config, goal, |log| append(log, Entry::Absorbed(goal.op), tail));
        }
        self.work.insert(config, tail);
    }

    fn done<'c>(&self, config: &'c [u64]) -> &'c [u64] {
        &config[1..=self.set_words]
    }

    fn absorbable<'c>(&self, config: &'c [u64]) -> &'c [u64] {
        &config[1 + self.set_words..1 + 2 * self.set_words]
    }

    /// A configuration in which the goal is reached joins the next frontier.
    fn survive(&mut self, config: &[u64], goal: Goal, tail: impl FnOnce(&mut Option<Log>) -> u32) {
        let mut config_after = std::mem::take(&mut self.scratch);
        config_after.copy_from_slice(config);
        config_after[0] &= !IDLE;
        if let Some(simpler) = self.model.settle(self.states.get(config[0]), goal.now) {
            config_after[0] = u64::from(self.states.id(simpler));
        }
        goal.slot.remove_from(&mut config_after[1..=self.set_words]);
        goal.slot.remove_from(&mut config_after[1 + self.set_words..]);
        let state = config_after[0] as u32;
        if !self.is_dominated(&self.next, &self.next_of, &config_after) && self.next.insert(&config_after, ROOT) {
            self.next_of.entry(state).or_default().push(self.next.len() as u32 - 1);
            let tail = tail(&mut self.log);
            self.next.set_last_tail(tail);
        }
        self.scratch = config_after;
    }

    /// Lets each operation that may go next take effect.
    fn expand(&mut self, config: &[u64], tail: u32, goal: Goal) -> Result<(), Spent> {
        self.tick()?;
        if self.is_dominated(&self.expanded, &self.expanded_of, config) {
            return Ok(());
        }
        self.expanded_of.entry(config[0] as u32).or_default().push(self.expanded.len() as u32);
        self.expanded.insert(config, tail);
        let idle = config[0] & IDLE != 0;
        for i in 0..self.mutators.len() {
            let Mutator { op, slot, overwrites, after, ref elders, .. } = self.mutators[i];
            let done = self.done(config);
            let waits = || !elders.iter().chain(&after).all(|e| e.is_in(done));
            if slot.is_in(done) || (idle && overwrites) || waits() {
                continue;
            }
            self.take(config, tail, goal, Taken { op, overwrites, from: From::Open(slot) })?;
        }
        for i in 0..self.crashed.len() {
            let Crashed { overwrites, ref members, lane, spent, after, ref elders, .. } = self.crashed[i];
            if spent || idle && overwrites {
                continue;
            }
            let Some(&op) = members.get(lane.get(config) as usize) else { continue };
            let done = self.done(config);
            let waits = !elders.iter().chain(&after).all(|e| e.is_in(done));
            if waits {
                continue;
            }
            self.take(config, tail, goal, Taken { op, overwrites, from: From::Crashed(lane) })?;
        }
        Ok(())
    }

    /// Lets an operation take effect, if the model allows it.
    fn take(&mut self, config: &[u64], tail: u32, goal: Goal, taken: Taken) -> Result<(), Spent> {
        self.tick()?;
        let Some(mut state) = self.model.step(self.states.get(config[0]), &self.ops[taken.op as usize].op) else {
            return Ok(());
        };
        if let Some(simpler) = self.model.settle(&state, goal.now - 1) {
            state = simpler;
        }
        let mut after = std::mem::take(&mut self.after);
        after.clear();
        after.extend_from_slice(config);
        self.go_on(&mut after, config, tail, goal, taken, state);
        self.after = after;
        Ok(())
    }

    /// Where that leads: a copy of the configuration becomes what it is then.
    fn go_on(&mut self, after: &mut [u64], config: &[u64], tail: u32, goal: Goal, taken: Taken, state: M::State) {
        let (done, rest) = after[1..].split_at_mut(self.set_words);
        match taken.from {
            From::Open(slot) => {
                slot.add_to(done);
                slot.remove_from(rest);
            }
            From::Crashed(_) if self.supply == Supply::Endless => {}
            From::Crashed(lane) => rest[lane.word - 1 - self.set_words] += 1 << lane.shift,
        }
        if taken.overwrites {
            for ((absorbable, open), done) in rest.iter_mut().zip(&self.overwriting).zip(&*done) {
                *absorbable |= open & !done;
            }
            for waiting in self.mutators.iter().filter(|m| m.after.is_some_and(|slot| !slot.is_in(self.done(config)))) {
                waiting.slot.remove_from(rest);
            }
        }
        self.gained.clear();
        for observer in &self.observers {
            let fits = || self.model.step(&state, &self.ops[observer.op as usize].op).is_some();
            if !observer.slot.is_in(done) && observer.after.is_none_or(|slot| slot.is_in(done)) && fits() {
                observer.slot.add_to(done);
                self.gained.push(observer.op);
            }
        }
        let idle = self.before.is_empty()
            && self.gained.is_empty()
            && (taken.overwrites || matches!(taken.from, From::Crashed(_)));
        let reached = goal.slot.is_in(done);
        if !reached && idle && !self.something_needs(&state) {
            return;
        }
        after[0] = u64::from(self.states.id(state));
        let gained = std::mem::take(&mut self.gained);
        let chain = |log: &mut Option<Log>| {
            let tail = append(log, Entry::Effect(taken.op), tail);
            gained.iter().fold(tail, |tail, &op| append(log, Entry::Effect(op), tail))
        };
        if reached {
            self.survive(after, goal, chain);
        } else {
            after[0] |= if idle { IDLE } else { 0 };
            let set = if matches!(taken.from, From::Open(_)) { &mut self.work } else { &mut self.later };
            if set.insert(after, ROOT) {
                let tail = chain(&mut self.log);
                set.set_last_tail(tail);
            }
        }
        self.gained = gained;
    }

    /// Could an operation that depends on the state go next? (Perhaps one that is done already: this only saves work.)
    fn something_needs(&self, state: &M::State) -> bool {
        let fits = |op: u32| self.model.step(state, &self.ops[op as usize].op).is_some();
        self.mutators.iter().any(|m| !m.overwrites && fits(m.op))
            || self.crashed.iter().any(|c| !c.overwrites && fits(c.members[0]))
    }

    /// Drops configurations that another dominates. The sort puts whatever may dominate before what it may dominate.
    fn prune(&mut self) {
        let n = self.front.len();
        if n < 2 {
            return;
        }
        let mut order: Vec<(u64, u64, u32, u32, u32)> = (0..n)
            .map(|i| {
                let config = self.front.get(i);
                let used = self.crashed.iter().map(|c| c.lane.get(config)).sum();
                let zeros = |words: &[u64]| words.iter().map(|w| w.count_zeros()).sum::<u32>();
                let seen: u32 = self.done(config).iter().zip(&self.observing).map(|(d, o)| (d & o).count_zeros()).sum();
                (config[0], used, zeros(self.absorbable(config)), seen, i as u32)
            })
            .collect();
        order.sort_unstable();
        self.next.clear(self.width);
        let (mut group, mut group_start) = (u64::MAX, 0);
        for &(state, _, _, _, i) in &order {
            if state != group {
                (group, group_start) = (state, self.next.len());
            }
            let config = self.front.get(i as usize);
            let end = self.next.len().min(group_start + DOMINATORS);
            if !(group_start..end).any(|j| self.dominates(self.next.get(j), config)) {
                self.next.insert(config, self.front.tail(i as usize));
            }
        }
        std::mem::swap(&mut self.front, &mut self.next);
        self.narrow();
    }

    /// Keeps the most promising: those that have used the fewest crashed operations.
    fn narrow(&mut self) {
        if self.front.len() <= self.beam {
            return;
        }
        self.narrowed = true;
        let used = |config: &[u64]| self.crashed.iter().map(|c| c.lane.get(config)).sum::<u64>();
        let mut order: Vec<(u64, usize)> = (0..self.front.len()).map(|i| (used(self.front.get(i)), i)).collect();
        order.sort_unstable();
        self.next.clear(self.width);
        for &(_, i) in &order[..self.beam] {
            self.next.insert(self.front.get(i), self.front.tail(i));
        }
        std::mem::swap(&mut self.front, &mut self.next);
    }

    /// Does one of these do whatever this one can? Looks at the first few with the same state.
    fn is_dominated(&self, set: &Frontier, by_state: &ByState, config: &[u64]) -> bool {
        let same_state = by_state.get(&(config[0] as u32)).map_or(&[][..], Vec::as_slice);
        same_state.iter().take(DOMINATORS).any(|&i| {
            let other = set.get(i as usize);
            other[0] & IDLE <= config[0] & IDLE && self.dominates(other, config)
        })
    }

    /// Given equal states, can the first do whatever the second can?
    fn dominates(&self, a: &[u64], b: &[u64]) -> bool {
        let words = self.set_words;
        let ((a_done, a_rest), (b_done, b_rest)) = (a[1..].split_at(words), b[1..].split_at(words));
        let ((a_free, a_counts), (b_free, b_counts)) = (a_rest.split_at(words), b_rest.split_at(words));
        // A guard bit that is lent to a lane and comes back shows that nothing had to be borrowed.
        let counts = a_counts.iter().zip(b_counts).zip(&self.guards);
        if counts.into_iter().any(|((a, b), guards)| ((b | guards) - a) & guards != *guards) {
            return false;
        }
        let sets =
            a_done.iter().zip(b_done).zip(a_free.iter().zip(b_free)).zip(self.observing.iter().zip(&self.awaited));
        sets.into_iter().all(|(((a_done, b_done), (a_free, b_free)), (observing, awaited))| {
            let differs = (a_done ^ b_done) & !(a_free & !awaited) & !observing;
            let unseen = b_done & !a_done & observing;
            (b_free & !a_free) | differs | unseen == 0
        })
    }

    /// Forgets orders and states that no configuration of the frontier leads back to.
    fn collect(&mut self) {
        if let Some(log) = self.log.as_mut().filter(|log| log.is_due()) {
            log.collect(self.front.tails_mut());
        }
        if self.states.list.len() <= 2 * self.states.live + (1 << 16) {
            return;
        }
        let old = std::mem::replace(&mut self.states, States::new());
        for i in 0..self.front.len() {
            let state = old.get(self.front.get(i)[0]).clone();
            self.front.get_mut(i)[0] = u64::from(self.states.id(state));
        }
        self.states.live = self.states.list.len();
    }

    /// The order that a chain stands for: absorbed operations just before the last overwriting one that took effect.
    fn order(&self, tail: u32) -> Option<Vec<u32>> {
        let chain = self.log.as_ref()?.chain(tail);
        let mut order = Vec::with_capacity(chain.len());
        let mut absorbed = Vec::new();
        for entry in chain.iter().rev() {
            match *entry {
                Entry::Absorbed(op) => absorbed.push(op),
                Entry::Effect(op) => {
                    order.push(op);
                    if self.model.overwrites(&self.ops[op as usize].op) {
                        order.append(&mut absorbed);
                    }
                }
            }
        }
        debug_assert!(absorbed.is_empty());
        order.reverse();
        Some(order)
    }

    fn stuck_at(&self, op: u32) -> StuckAt {
        let sample = |i: usize| {
            let config = self.front.get(i);
            let mut open: Vec<(u32, Slot)> = self.slot_of.iter().map(|(&op, &slot)| (op, slot)).collect();
            sort_by(&mut open, |&(op, _)| op.into());
            let (applied, waiting): (Vec<_>, Vec<_>) = open.iter().partition(|(_, slot)| slot.is_in(self.done(config)));
            let ops = |list: Vec<(u32, Slot)>| list.into_iter().map(|(op, _)| op).collect();
            let state = self.model.show_state(self.states.get(config[0]));
            Sample { state, applied: ops(applied), waiting: ops(waiting), order: self.order(self.front.tail(i)) }
        };
        let samples = (0..self.front.len().min(SAMPLES)).map(sample).collect();
        StuckAt { op, survivors: self.front.len(), samples }
    }
}

/// An operation that takes effect.
#[derive(Clone, Copy)]
struct Taken {
    op: u32,
    overwrites: bool,
    from: From,
}

/// Where it stands.
#[derive(Clone, Copy)]
enum From {
    Open(Slot),
    Crashed(Lane),
}

/// Appends to a chain, if orders are kept; drops them all when there are too many.
#[inline]
fn append(log: &mut Option<Log>, entry: Entry, before: u32) -> u32 {
    match log.as_mut().map(|log| log.push(entry, before)) {
        Some(Some(id)) => id,
        Some(None) => {
            *log = None;
            ROOT
        }
        None => ROOT,
    }
}

/// The operations that return, by time.
pub(super) fn returns<O>(ops: &[Operation<O>]) -> Vec<u32> {
    let mut returns: Vec<u32> = (0..).zip(ops).filter(|(_, op)| op.ret.is_some()).map(|(i, _)| i).collect();
    sort_by(&mut returns, |&i| ops[i as usize].ret.unwrap_or(0));
    returns
}

/// Invocations and returns by time: an operation, and whether it returns. What happens at the same time counts as concurrent, so
/// invocations come first.
pub(super) struct Events<'a, O> {
    ops: &'a [Operation<O>],
    returns: &'a [u32],
    invoked: u32,
}

impl<'a, O> Events<'a, O> {
    pub(super) fn new(ops: &'a [Operation<O>], returns: &'a [u32]) -> Self {
        Events { ops, returns, invoked: 0 }
    }
}

impl<O> Iterator for Events<'_, O> {
    type Item = (u32, bool);

    #[inline]
    fn next(&mut self) -> Option<(u32, bool)> {
        let first_return = self.returns.first().and_then(|&op| self.ops[op as usize].ret);
        let op = self.invoked;
        if let Some(next) = self.ops.get(op as usize)
            && first_return.is_none_or(|ret| next.call <= ret)
        {
            self.invoked += 1;
            return Some((op, false));
        }
        let (&op, rest) = self.returns.split_first()?;
        self.returns = rest;
        Some((op, true))
    }
}

/// The time of an event, for the model.
fn time_of(event: u32) -> u64 {
    if event == NEVER { u64::MAX } else { u64::from(event) }
}

/// For each operation that is invoked when the one before it of the same process has not yet returned, that one.
pub(super) fn touching<O>(ops: &[Operation<O>]) -> HashMap<u32, u32, FixedState> {
    let mut last: HashMap<i64, (u32, u64), FixedState> = HashMap::default();
    let mut before = HashMap::default();
    for (i, op) in ops.iter().enumerate() {
        let Some(process) = op.process else { continue };
        if let Some(&(previous, ret)) = last.get(&process)
            && ret >= op.call
        {
            before.insert(i as u32, previous);
        }
        if let Some(ret) = op.ret {
            last.insert(process, (i as u32, ret));
        }
    }
    before
}

/// Is there an order of operations that only their process tells?
pub(super) fn has_touching<O>(ops: &[Operation<O>]) -> bool {
    !touching(ops).is_empty()
}

/// The class of each operation that changes the state, and how many of each class crash; some have a class of their own.
fn classes<M: Model>(model: &M, ops: &[Operation<M::Op>], unlike_all: impl Fn(u32) -> bool) -> (Vec<u32>, Vec<u32>) {
    let mut ids: HashMap<&M::Op, u32, FixedState> = HashMap::default();
    let mut crashes: Vec<u32> = Vec::new();
    let class = ops.iter().enumerate().map(|(i, op)| {
        if model.observes(&op.op) {
            return NO_CLASS;
        }
        let next = crashes.len() as u32;
        let id = if unlike_all(i as u32) { next } else { *ids.entry(&op.op).or_insert(next) };
        if id as usize == crashes.len() {
            crashes.push(0);
        }
        crashes[id as usize] += u32::from(op.ret.is_none());
        id
    });
    (class.collect(), crashes)
}
