//! A history of a collection as columns of ranks.
//!
//! Invocations and returns are numbered in the order of time, invocations first where times are equal, as what happens at
//! the same time is concurrent; so one operation precedes another exactly if its return has the smaller rank than the other's invocation,
//! and no two ranks are equal. Each value, inserted once, is a [`Life`]: when it may have been inserted and taken. The same columns, cut at a rank,
//! show the history as it stood then, which finds the first return at which there is a conflict without building any history anew.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::{Conflict, Monitored};
use crate::budget::{Budget, Reservation};
use crate::linear::Operation;
use crate::model::{CollectionOp, Value};

/// Later than every rank: never.
pub(super) const NEVER: u32 = u32::MAX;
/// No operation.
pub(super) const NONE: u32 = u32::MAX;
/// Bytes held per operation while a monitor runs, about.
const BYTES_PER_OP: u64 = 120;

/// A history of which each value is inserted at most once.
pub(super) struct Columns {
    /// Rank of the invocation and of the return, by operation.
    call: Vec<u32>,
    ret: Vec<u32>,
    /// Operations that return, in that order.
    returns: Vec<u32>,
    /// One more than the largest rank.
    pub(super) ranks: u32,
    /// The operation that inserts a value and the first that takes it.
    values: Vec<(u32, u32)>,
    /// What each value is.
    pub(super) names: Vec<Value>,
    /// Values taken more than once, and the operation that does it again.
    again: Vec<(u32, u32)>,
    /// Values there at first; they are numbered first, and inserted at the rank equal to their number.
    initial: u32,
    /// Removals that found nothing.
    empties: Vec<u32>,
    /// Removals of which it is not known what they took, by invocation.
    unknown: Vec<u32>,
    _reservation: Reservation,
}

/// When a value may have been inserted and taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// The insertion takes effect no earlier than this,
    pub(super) insert_from: u32,
    /// and no later than this.
    pub(super) insert_to: u32,
    /// It is taken no earlier than this: [`NEVER`] if nothing takes it.
    pub(super) take_from: u32,
    /// And no later than this: [`NEVER`] if it need not be taken.
    pub(super) take_to: u32,
    pub(super) value: u32,
    /// The operation that takes it.
    pub(super) taker: u32,
}

impl Life {
    /// Must it have been taken?
    pub(super) fn is_taken(&self) -> bool {
        self.take_to != NEVER
    }

    /// Is it surely there at some time? Else it may be inserted and taken in one moment, any from `take_from` to `insert_to`.
    pub(super) fn stays(&self) -> bool {
        self.insert_to < self.take_from
    }
}

/// The history up to a rank.
pub(super) struct Cut {
    /// Values that must have been taken, by the one operation that says so.
    pub(super) taken: Vec<Life>,
    /// Values that were surely inserted and need not have been taken. Where an operation that has not returned says that
    /// it took the value, that is when it can be taken at no cost.
    pub(super) lost: Vec<Life>,
    /// Removals that found nothing: invocation, return, operation; by invocation.
    pub(super) empties: Vec<(u32, u32, u32)>,
    /// Unknown removals: invocation, operation; by invocation.
    pub(super) unknown: Vec<(u32, u32)>,
}

/// What was found of a cut.
pub(super) enum Verdict {
    /// This order is one.
    Order(Vec<u32>),
    /// These operations have none.
    Conflict(Vec<u32>),
    /// It is not of a kind that can be decided here.
    Unknown,
}

impl Columns {
    /// None when a value is inserted twice, or something that returned does not say what it took.
    fn new(initial: &[Value], ops: &[Operation<CollectionOp>], budget: &Budget) -> Option<Columns> {
        if ops.len() + initial.len() > (u32::MAX / 4) as usize {
            return None;
        }
        let mut reservation = budget.reserve();
        reservation.set(ops.len() as u64 * BYTES_PER_OP);
        let mut columns = Columns {
            call: Vec::with_capacity(ops.len()),
            ret: vec![NEVER; ops.len()],
            returns: Vec::new(),
            ranks: initial.len() as u32,
            values: Vec::with_capacity(ops.len() / 2),
            names: Vec::with_capacity(ops.len() / 2),
            again: Vec::new(),
            initial: initial.len() as u32,
            empties: Vec::new(),
            unknown: Vec::new(),
            _reservation: reservation,
        };
        columns.rank(ops);
        columns.number_values(initial, ops)?;
        Some(columns)
    }

    fn rank(&mut self, ops: &[Operation<CollectionOp>]) {
        let mut returns: Vec<(u64, u32)> = (0..).zip(ops).filter_map(|(i, op)| Some((op.ret?, i))).collect();
        returns.sort_unstable();
        let mut calls = ops.iter().peekable();
        for &(time, op) in &returns {
            while let Some(_call) = calls.next_if(|op| op.call <= time) {
                self.call.push(self.ranks);
                self.ranks += 1;
            }
            self.ret[op as usize] = self.ranks;
            self.ranks += 1;
        }
        for _ in calls {
            self.call.push(self.ranks);
            self.ranks += 1;
        }
        self.returns = returns.into_iter().map(|(_, op)| op).collect();
    }

    fn number_values(&mut self, initial: &[Value], ops: &[Operation<CollectionOp>]) -> Option<()> {
        let mut numbers: HashMap<i64, u32, FixedState> =
            HashMap::with_capacity_and_hasher(ops.len() / 2 + initial.len(), FixedState::default());
        for value in initial {
            numbers.insert(value.0, self.values.len() as u32);
            self.values.push((NONE, NONE));
            self.names.push(*value);
        }
        if numbers.len() < initial.len() {
            return None;
        }
        for (i, op) in (0..).zip(ops) {
            let value = match op.op {
                CollectionOp::Insert(value) | CollectionOp::Remove(Some(value)) => value,
                CollectionOp::Remove(None) if op.ret.is_some() => return None,
                CollectionOp::Remove(None) => {
                    self.unknown.push(i);
                    continue;
                }
                CollectionOp::RemoveEmpty => {
                    self.empties.push(i);
                    continue;
                }
            };
            let number = match numbers.entry(value.0) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    self.values.push((NONE, NONE));
                    self.names.push(value);
                    *entry.insert(self.values.len() as u32 - 1)
                }
            };
            let (insert, remove) = &mut self.values[number as usize];
            if matches!(op.op, CollectionOp::Insert(_)) {
                if *insert != NONE || number < self.initial {
                    return None;
                }
                *insert = i;
            } else if *remove == NONE {
                *remove = i;
            } else {
                self.again.push((number, i));
            }
        }
        self.again.sort_unstable();
        Some(())
    }

    fn call_of(&self, op: u32, end: u32) -> u32 {
        let call = self.call.get(op as usize).map_or(NEVER, |&call| call);
        if call <= end { call } else { NEVER }
    }

    fn ret_of(&self, op: u32, end: u32) -> u32 {
        let ret = self.ret.get(op as usize).map_or(NEVER, |&ret| ret);
        if ret <= end { ret } else { NEVER }
    }

    /// All operations that name the value.
    pub(super) fn ops_of(&self, value: u32) -> impl Iterator<Item = u32> + '_ {
        let (insert, remove) = self.values[value as usize];
        let again = self.again.iter().filter(move |(v, _)| *v == value).map(|(_, op)| *op);
        [insert, remove].into_iter().filter(|op| *op != NONE).chain(again)
    }

    /// The operation that inserts the value; none if it was there at first.
    pub(super) fn insert_of(&self, value: u32) -> Option<u32> {
        Some(self.values[value as usize].0).filter(|op| *op != NONE)
    }

    /// The operations of all these values and these others, as a core. Values there at first cannot be left out, so
    /// neither can what takes them.
    pub(super) fn core(
        &self,
        values: impl IntoIterator<Item = u32>,
        others: impl IntoIterator<Item = u32>,
    ) -> Vec<u32> {
        let of_values = values.into_iter().chain(0..self.initial).flat_map(|value| self.ops_of(value));
        let mut core: Vec<u32> = of_values.chain(others).collect();
        if self.initial > 0 {
            core.extend(&self.unknown);
        }
        core.sort_unstable();
        core.dedup();
        core
    }

    /// The history up to a rank, or operations of one value that cannot be.
    pub(super) fn cut(&self, end: u32) -> Result<Cut, Vec<u32>> {
        let mut cut =
            Cut { taken: Vec::with_capacity(self.values.len()), lost: vec![], empties: vec![], unknown: vec![] };
        let mut again = self.again.iter().peekable();
        for (value, &(insert, remove)) in (0..).zip(&self.values) {
            let (insert_from, insert_to) = if value < self.initial {
                (value, value)
            } else {
                (self.call_of(insert, end), self.ret_of(insert, end))
            };
            let (mut taker, mut take_from, mut take_to) = (remove, self.call_of(remove, end), self.ret_of(remove, end));
            while let Some(&(_, other)) = again.next_if(|(v, _)| *v == value) {
                let (other_from, other_to) = (self.call_of(other, end), self.ret_of(other, end));
                if take_to != NEVER && other_to != NEVER {
                    return Err(self.core([value], []));
                }
                if other_to != NEVER || (take_to == NEVER && other_from < take_from) {
                    (taker, take_from, take_to) = (other, other_from, other_to);
                }
            }
            if take_to != NEVER && (insert_from == NEVER || take_to < insert_from) {
                return Err(self.core([value], []));
            }
            if take_to == NEVER && insert_to == NEVER {
                continue;
            }
            let insert_to = insert_to.min(take_to);
            let take_from = take_from.max(insert_from);
            let life = Life { insert_from, insert_to, take_from, take_to, value, taker };
            if life.is_taken() { cut.taken.push(life) } else { cut.lost.push(life) }
        }
        let empties = self.empties.iter().map(|&op| (self.call[op as usize], self.ret_of(op, end), op));
        cut.empties = empties.filter(|(_, ret, _)| *ret != NEVER).collect();
        let unknown = self.unknown.iter().map(|&op| (self.call_of(op, end), op));
        cut.unknown = unknown.filter(|(call, _)| *call != NEVER).collect();
        Ok(cut)
    }

    /// The first return at which there is a conflict, given one of the whole. The first two probes are just before the return that
    /// completes the conflict found last, which is mostly the first; bisection bounds the number of the others.
    fn earliest(&self, mut core: Vec<u32>, decide: impl Fn(u32) -> Verdict) -> Option<Conflict> {
        let place =
            |op: &u32| self.returns.partition_point(|&other| self.ret_of(other, NEVER) < self.ret[*op as usize]);
        // The place of the last return among the first few that the conflict needs.
        let completed = |core: &[u32], few: usize| core.iter().map(place).filter(|&place| place < few).max();
        let mut bad = completed(&core, self.returns.len())?;
        // So many returns, the first ones, are without conflict.
        let mut fine = 0;
        let mut probes = 0;
        while fine < bad {
            let few = if probes < 2 { bad } else { fine + (bad - fine).div_ceil(2) };
            probes += 1;
            match decide(self.ret[self.returns[few - 1] as usize]) {
                Verdict::Order(_) => fine = few,
                Verdict::Conflict(earlier) => {
                    core = earlier;
                    bad = completed(&core, few)?;
                }
                Verdict::Unknown => return None,
            }
        }
        let at = self.returns[bad];
        core.retain(|&op| self.call[op as usize] < self.ret[at as usize]);
        if !core.contains(&at) {
            return None;
        }
        core.sort_unstable();
        core.dedup();
        Some(Conflict { at, core })
    }
}

/// Decides a history by deciding cuts of it.
pub(super) fn monitor(
    initial: &[Value],
    ops: &[Operation<CollectionOp>],
    budget: &Budget,
    of_cut: impl Fn(&Columns, &Cut) -> Verdict,
) -> Monitored {
    let Some(columns) = Columns::new(initial, ops, budget) else { return Monitored::NotApplicable };
    let decide = |end: u32| match columns.cut(end) {
        Ok(cut) => of_cut(&columns, &cut),
        Err(core) => Verdict::Conflict(core),
    };
    if let Some(spent) = budget.spent() {
        return Monitored::GaveUp(spent);
    }
    match decide(NEVER - 1) {
        Verdict::Order(order) => Monitored::Order(order),
        Verdict::Unknown => Monitored::NotApplicable,
        Verdict::Conflict(core) => {
            let conflict = columns.earliest(core, decide);
            let complete = conflict.and_then(|conflict| complete(&columns, conflict, initial, ops, budget, of_cut));
            complete.map_or(Monitored::NotApplicable, Monitored::Conflict)
        }
    }
}

/// Adds to the core as many unknown removals as it takes for the conflict to appear no earlier in the core than in the whole: what a
/// later return says of a value may have been another possibility before. Those invoked first can do whatever others can.
fn complete(
    columns: &Columns,
    conflict: Conflict,
    initial: &[Value],
    ops: &[Operation<CollectionOp>],
    budget: &Budget,
    decide: impl Fn(&Columns, &Cut) -> Verdict,
) -> Option<Conflict> {
    let Conflict { at, core } = conflict;
    let mut removals = 0;
    loop {
        let mut all = core.clone();
        let before = |op: &&u32| columns.call[**op as usize] < columns.ret[at as usize];
        all.extend(columns.unknown.iter().take(removals).take_while(before));
        all.sort_unstable();
        all.dedup();
        let few: Vec<Operation<CollectionOp>> = all.iter().map(|&op| ops[op as usize].clone()).collect();
        let of_core = Columns::new(initial, &few, budget)?;
        let place = of_core.returns.iter().position(|&op| all[op as usize] == at)?;
        let fine = place == 0 || {
            let cut = of_core.cut(of_core.ret[of_core.returns[place - 1] as usize]);
            cut.is_ok_and(|cut| matches!(decide(&of_core, &cut), Verdict::Order(_)))
        };
        if fine {
            return Some(Conflict { at, core: all });
        }
        if removals >= columns.unknown.len() {
            return None;
        }
        removals = 2 * removals + 1;
    }
}

/// The places of `items` by this key, a stable counting sort. Keys are less than `ranks` or [`NEVER`].
pub(super) fn by_rank<T>(items: &[T], ranks: u32, key: impl Fn(&T) -> u32) -> Vec<u32> {
    let slot = |item: &T| key(item).min(ranks) as usize;
    let mut starts = vec![0u32; ranks as usize + 2];
    for item in items {
        starts[slot(item) + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut sorted = vec![0; items.len()];
    for (i, item) in (0..).zip(items) {
        let start = &mut starts[slot(item)];
        sorted[*start as usize] = i;
        *start += 1;
    }
    sorted
}
