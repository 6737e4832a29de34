//! One fault: how the system goes wrong, and why no correct system could have answered so.
//!
//! A fault changes what a read sees or what a write does at the point of effect, under conditions that make the result
//! a contradiction. Values are unique, so a read says whose write it saw. `<` is real time: completed before invoked.
//!
//! - *stale-read*: `A` wrote a, `A < B`, `B` wrote b, `B < R`, all acknowledged; `R` returns a. Any order that respects
//!   real time has `A`, `B`, `R` in this order, and nobody else writes a. (a may be nil, which nobody writes at all.)
//! - *lost-write*: the register holds a, whose writer `A` was acknowledged before `B` began; `B` has no effect but is
//!   acknowledged; `R`, begun after that, finds a. The same three operations as in a stale read. Should nobody look before
//!   the next write, then nothing contradicts `B` having happened just before it, and another write is lost.
//! - *dirty-fail*, *g1a*: `A` takes effect, but says that it failed; `R` reads what only `A` wrote.
//! - *g1b*: `A` appends twice to k in one transaction; `R` returns a list that ends between the two.
//! - *lost-update*: `A` read version v of k and wrote the next one; `B` reads v as well, and writes k. Whichever comes
//!   second in a serial order should have read what the other wrote.
//! - *g0*: `A` appended to x and y, `B` does after it; but on y, which nobody read meanwhile, the elements of `B` are put
//!   before those of `A`. Later reads show `A` before `B` on x and `B` before `A` on y.
//! - *g-single*: `A` wrote x and y; `R` reads what `A` wrote to y, so it comes after `A`, but the version of x that `A`
//!   replaced. On lists that is a list without the elements of `A`; on registers `A` read that version itself, so that its
//!   writer comes before `A` in any order.
//! - *write-skew*: `A` read x and wrote y; `B`, the next to write anything, concurrent with `A`, writes x and reads y as it
//!   was before `A`. In a serial order each would come before the other. `B` touches nothing else that `A` wrote, so that
//!   the cycle has two anti-dependencies and no shorter one stands beside it.

use std::collections::VecDeque;

use elench_formats::event::EventType;

use crate::keys::{Keys, NOBODY, Overwritten, Settled};
use crate::simulation::{Kind, Op, Step};
use crate::{Fault, Injected};

/// Transactions among which a partner is looked for: those that wrote last.
const RECENT: usize = 512;

#[derive(Debug)]
pub(super) struct FaultState {
    fault: Fault,
    lists: bool,
    recent: VecDeque<Committed>,
    /// Who wrote last, whatever its outcome.
    last_writer: u64,
    /// What the operation that is just taking effect has begun.
    begun: Option<Pending>,
    pending: Option<Pending>,
    pub(super) landed: Option<Injected>,
}

/// A transaction that wrote, and was or will be acknowledged.
#[derive(Debug)]
struct Committed {
    index: u64,
    completed: Option<u64>,
    steps: Vec<Step>,
}

/// A fault that has still to be seen.
#[derive(Debug)]
struct Pending {
    ops: Vec<u64>,
    witnesses: Vec<u64>,
    /// What has to be seen by others.
    unseen: Vec<Sight>,
    /// Whoever sees any of it is a party to the contradiction; otherwise all has to be seen, to show an order.
    by_party: bool,
    /// The event index after which whoever sees it was invoked; none while that is not yet known.
    after: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Sight {
    key: u32,
    id: i64,
    value: i64,
}

impl Sight {
    fn of(step: &Step) -> Sight {
        Sight { key: step.key, id: step.id, value: step.value }
    }

    /// Can it still be seen?
    fn lasts(&self, keys: &Keys, lists: bool) -> bool {
        let key = keys.at(self.key);
        key.id == self.id && (lists || key.value == self.value)
    }

    fn is_seen_by(&self, op: &Op, lists: bool) -> bool {
        op.steps.iter().filter(|s| s.id == self.id).any(|s| match s.kind {
            Kind::Read if lists => op.list(s).contains(&self.value),
            Kind::Read => s.value == self.value,
            Kind::Cas => s.old == self.value,
            Kind::Write => false,
        })
    }
}

impl Committed {
    fn appends(&self, key: u32) -> usize {
        self.steps.iter().filter(|s| s.kind == Kind::Write && s.key == key).count()
    }

    /// The last thing that it wrote to a key.
    fn last_write(&self, key: u32) -> Option<&Step> {
        self.steps.iter().rfind(|s| s.kind == Kind::Write && s.key == key)
    }

    /// What it read of a key before it wrote it.
    fn read(&self, key: u32) -> Option<i64> {
        self.steps.iter().find(|s| s.key == key).filter(|s| s.kind == Kind::Read).map(|s| s.seen)
    }
}

impl Op {
    /// Keys that it reads and does not write.
    fn only_read(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.iter().map(|s| s.key).filter(|&k| !self.writes(k))
    }

    /// Keys that it writes, each with its last write.
    fn last_writes(&self) -> impl Iterator<Item = &Step> + '_ {
        self.steps.iter().enumerate().filter_map(|(i, s)| {
            let again = self.steps[i + 1..].iter().any(|t| t.kind != Kind::Read && t.key == s.key);
            (s.kind != Kind::Read && !again).then_some(s)
        })
    }

    fn reads(&self, key: u32) -> bool {
        self.steps.iter().any(|s| s.kind == Kind::Read && s.key == key)
    }

    /// Lets it read another version of a key.
    fn misread(&mut self, key: u32, seen: i64) {
        self.steps.iter_mut().filter(|s| s.key == key).for_each(|s| s.seen = seen);
    }
}

impl FaultState {
    pub(super) fn new(fault: Fault, lists: bool) -> FaultState {
        FaultState {
            fault,
            lists,
            recent: VecDeque::with_capacity(RECENT),
            last_writer: NOBODY,
            begun: None,
            pending: None,
            landed: None,
        }
    }

    /// An operation is about to take effect: is this the moment?
    pub(super) fn before(&mut self, op: &mut Op, keys: &Keys) {
        self.begun = None;
        if op.outcome != EventType::Ok {
            return;
        }
        if self.pending.as_ref().is_some_and(|p| p.is_over(keys, self.lists)) {
            self.pending = None;
        }
        if self.pending.is_some() {
            return;
        }
        self.begun = match self.fault {
            Fault::StaleRead => stale_read(op, keys),
            Fault::LostWrite => lost_write(op, keys),
            Fault::DirtyFail | Fault::G1a => failed_write(op),
            Fault::LostUpdate => self.lost_update(op, keys),
            Fault::G0 => self.g0(op, keys),
            Fault::G1b => self.g1b(op, keys),
            Fault::GSingle => self.g_single(op, keys),
            Fault::WriteSkew => self.write_skew(op, keys),
        };
    }

    /// An operation has taken effect.
    pub(super) fn after(&mut self, op: &mut Op, keys: &Keys) {
        if let Some(begun) = self.begun.take() {
            if matches!(self.fault, Fault::DirtyFail | Fault::G1a) {
                op.outcome = EventType::Fail;
            }
            self.pending = Some(begun);
        } else if op.outcome == EventType::Ok {
            let lists = self.lists;
            if let Some(p) = &mut self.pending {
                p.look(op, lists);
            }
        }
        if let Some(p) = self.pending.take_if(|p| p.unseen.is_empty()) {
            self.landed = Some(Injected { fault: self.fault, ops: p.ops, witnesses: p.witnesses });
        }
        self.remember(op, keys);
    }

    fn remember(&mut self, op: &Op, keys: &Keys) {
        if !op.steps.iter().any(|s| s.kind != Kind::Read && keys.at(s.key).writer == op.index) {
            return;
        }
        self.last_writer = op.index;
        if op.outcome != EventType::Ok {
            return;
        }
        let mut steps = match self.recent.len() {
            RECENT => self.recent.pop_front().map(|c| c.steps).unwrap_or_default(),
            _ => Vec::new(),
        };
        steps.clone_from(&op.steps);
        self.recent.push_back(Committed { index: op.index, completed: None, steps });
    }

    /// An operation has completed, at this event index.
    pub(super) fn completed(&mut self, op: &Op, index: u64, keys: &mut Keys) {
        if self.landed.is_some() || op.outcome != EventType::Ok {
            return;
        }
        if let Some(p) = self.pending.as_mut().filter(|p| p.after.is_none() && p.ops.contains(&op.index)) {
            p.after = Some(index as i64);
        }
        if let Some(c) = self.recent.iter_mut().rfind(|c| c.index == op.index) {
            c.completed = Some(index);
        }
        for step in op.steps.iter().filter(|s| s.kind != Kind::Read) {
            acknowledge(op.index, step, index as i64, keys);
        }
    }

    /// Who wrote this key last, if it was not long ago.
    fn writer(&self, key: u32, keys: &Keys) -> Option<&Committed> {
        let writer = keys.at(key).writer;
        self.recent.iter().rfind(|c| c.index == writer)
    }

    /// Something that others have to see, on lists only: on registers the order follows from what was read.
    fn order_of<const N: usize>(&self, ops: [u64; 2], sights: [Option<Sight>; N]) -> Pending {
        let unseen = if self.lists { sights.into_iter().flatten().collect() } else { Vec::new() };
        Pending { ops: ops.into(), witnesses: Vec::new(), unseen, by_party: false, after: Some(-1) }
    }

    fn lost_update(&self, op: &mut Op, keys: &Keys) -> Option<Pending> {
        let (key, first, seen, last) = op.last_writes().find_map(|last| {
            let key = last.key;
            let reads_first = op.steps.iter().find(|s| s.key == key)?.kind == Kind::Read;
            let reads_own = (0..op.steps.len())
                .any(|i| op.steps[i].kind == Kind::Read && op.steps[i].key == key && op.writes_before(key, i));
            let first = self.writer(key, keys)?;
            let seen = first.read(key)?;
            (reads_first && !reads_own).then(|| (key, first.index, seen, Sight::of(last)))
        })?;
        op.misread(key, seen);
        Some(self.order_of([first, op.index], [Some(last)]))
    }

    fn g0(&self, op: &mut Op, keys: &Keys) -> Option<Pending> {
        let blind: Vec<Step> = op.last_writes().filter(|s| !op.reads(s.key)).copied().collect();
        let (x, y, first) = blind.iter().find_map(|y| {
            let first = self.writer(y.key, keys).filter(|_| !keys.at(y.key).read_since)?;
            let x = blind.iter().find(|x| x.key != y.key && keys.at(x.key).writer == first.index)?;
            Some((*x, *y, first))
        })?;
        let tuck = first.appends(y.key);
        op.steps.iter_mut().filter(|s| s.key == y.key).for_each(|s| s.tuck = tuck);
        let sights = [Some(Sight::of(&x)), first.last_write(y.key).map(Sight::of)];
        Some(self.order_of([first.index, op.index], sights))
    }

    fn g1b(&self, op: &mut Op, keys: &Keys) -> Option<Pending> {
        let twice = |key| Some((key, self.writer(key, keys).filter(|first| first.appends(key) > 1)?));
        let (key, first) = op.only_read().find_map(twice)?;
        op.misread(key, keys.at(key).list.len() as i64 - 1);
        Some(self.order_of([first.index, op.index], [None]))
    }

    fn g_single(&self, op: &mut Op, keys: &Keys) -> Option<Pending> {
        let (x, first) = op.only_read().find_map(|x| {
            let first = self.writer(x, keys).filter(|first| self.lists || first.read(x).is_some())?;
            let sees = op.only_read().any(|y| y != x && keys.at(y).writer == first.index);
            sees.then_some((x, first))
        })?;
        op.misread(x, self.without(first, x, keys)?);
        Some(self.order_of([first.index, op.index], [first.last_write(x).map(Sight::of)]))
    }

    fn write_skew(&self, op: &mut Op, keys: &Keys) -> Option<Pending> {
        let first = self.recent.back().filter(|first| {
            let concurrent = first.completed.is_none_or(|at| at > op.index);
            first.index == self.last_writer && concurrent
        })?;
        let x = op.last_writes().find(|s| first.read(s.key).is_some() && first.appends(s.key) == 0).map(Sight::of)?;
        let y = op.only_read().find(|&y| first.appends(y) > 0)?;
        if op.steps.iter().any(|s| s.key != y && first.appends(s.key) > 0) {
            return None;
        }
        let index = op.index;
        op.misread(y, self.without(first, y, keys)?);
        Some(self.order_of([first.index, index], [Some(x), first.last_write(y).map(Sight::of)]))
    }

    /// The version of a key that its last writer replaced.
    fn without(&self, writer: &Committed, key: u32, keys: &Keys) -> Option<i64> {
        if self.lists { Some((keys.at(key).list.len() - writer.appends(key)) as i64) } else { writer.read(key) }
    }
}

impl Pending {
    /// Will what has to be seen never be?
    fn is_over(&self, keys: &Keys, lists: bool) -> bool {
        let mut lasting = self.unseen.iter().map(|s| s.lasts(keys, lists));
        if self.by_party { !lasting.any(|l| l) } else { !lasting.all(|l| l) }
    }

    /// Does an acknowledged operation see what has to be seen?
    fn look(&mut self, op: &Op, lists: bool) {
        if self.after.is_none_or(|after| op.index as i64 <= after) {
            return;
        }
        let before = self.unseen.len();
        self.unseen.retain(|s| !s.is_seen_by(op, lists));
        if self.unseen.len() < before && self.by_party {
            self.unseen.clear();
            self.ops.push(op.index);
        } else if self.unseen.len() < before {
            self.witnesses.push(op.index);
        }
    }
}

fn stale_read(op: &mut Op, keys: &Keys) -> Option<Pending> {
    let step = op.steps.first_mut().filter(|s| s.kind == Kind::Read)?;
    let stale = keys.at(step.key).overwritten.filter(|o| o.since < op.index as i64)?;
    step.seen = stale.value;
    let ops = [stale.op, stale.by, op.index].into_iter().filter(|&o| o != NOBODY).collect();
    Some(Pending { ops, witnesses: Vec::new(), unseen: Vec::new(), by_party: true, after: None })
}

fn lost_write(op: &mut Op, keys: &Keys) -> Option<Pending> {
    let step = op.steps.first().filter(|s| s.kind == Kind::Write)?;
    let key = keys.at(step.key);
    key.acknowledged.filter(|&at| at < op.index as i64)?;
    op.lost = true;
    let unseen = vec![Sight { value: key.value, ..Sight::of(step) }];
    let ops = [key.writer, op.index].into_iter().filter(|&o| o != NOBODY).collect();
    Some(Pending { ops, witnesses: Vec::new(), unseen, by_party: true, after: None })
}

fn failed_write(op: &Op) -> Option<Pending> {
    let unseen: Vec<_> = op.last_writes().map(Sight::of).collect();
    let writes = !unseen.is_empty();
    writes.then(|| Pending { ops: vec![op.index], witnesses: Vec::new(), unseen, by_party: true, after: Some(-1) })
}

/// Notes what an acknowledged write proves: its value is there, and what was settled before it began is gone.
fn acknowledge(op: u64, step: &Step, at: i64, keys: &mut Keys) {
    let key = keys.at_mut(step.key);
    if key.writer == op {
        key.acknowledged = Some(at);
    }
    if key.settled.at < op as i64 {
        let Settled { value, op: before, .. } = key.settled;
        key.overwritten = Some(Overwritten { value, op: before, by: op, since: at });
        key.settled = Settled { value: step.value, op, at };
    }
}
