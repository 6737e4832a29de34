//! Does what a result claims hold of the history?
//!
//! Everything is looked up in the history by operation; nothing of the search, its graph or its columns is used. A cycle holds when
//! every step does, the steps close, and their relations make it what it is called. An order holds when running the
//! transactions one after the other gives every read what it returned, and no transaction stands after one that was invoked only when
//! it had completed. O(history) for an order; for a cycle O(lists that its steps name),
//! and O(history) once if a transaction of it was not acknowledged.

use elench_formats::History;
use elench_formats::columns::{MopRef, Scalar, ValueRef};
use elench_formats::history::{OpRef, Status, is_read};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::anomaly::Anomaly;
use super::cycles::kind_of;
use super::explain::{ExplainedCycle, MopAt, Reason, Step};
use crate::graph::Rel;
use crate::outcome::OpId;

/// Holds a cycle against the history.
///
/// # Errors
/// What does not hold.
pub fn cycle(history: &History, cycle: &ExplainedCycle) -> Result<(), String> {
    if cycle.steps.len() < 2 {
        return Err("it has fewer than two steps".into());
    }
    let mut facts = Facts::new(history);
    let mut passed: HashSet<OpId, FixedState> = HashSet::default();
    for (i, s) in cycle.steps.iter().enumerate() {
        let next = &cycle.steps[(i + 1) % cycle.steps.len()];
        if s.to != next.from {
            return Err(format!("it breaks off at {}", s.to));
        }
        if !passed.insert(s.from) {
            return Err(format!("it passes {} twice", s.from));
        }
        step(&mut facts, s).map_err(|why| format!("{} → {} ({}): {why}", s.from, s.to, s.rel))?;
    }
    if let Some(holds) = weaker(history, cycle) {
        return holds.and_then(|holds| holds.then_some(()).ok_or_else(|| format!("it is no {}", cycle.kind)));
    }
    let rels: Vec<Rel> = cycle.steps.iter().map(|s| s.rel).collect();
    match kind_of(&rels) {
        Some(kind) if kind == cycle.kind => Ok(()),
        kind => Err(format!("it is called {} and is {}", cycle.kind, kind.map_or("none", |k| k.name()))),
    }
}

/// Is a cycle what it is called, if that is a kind that only weaker models tell apart?
fn weaker(history: &History, cycle: &ExplainedCycle) -> Option<Result<bool, String>> {
    let steps = &cycle.steps;
    let count = |rel: Rel| steps.iter().filter(|s| s.rel == rel).count();
    let (missed, read, overwritten) = (count(Rel::Rw), count(Rel::Wr), count(Rel::Ww));
    let data = missed + read + overwritten == steps.len();
    // Each missed write with the step that leads to who missed it.
    let turns = || {
        (0..steps.len())
            .map(|i| (&steps[(i + steps.len() - 1) % steps.len()], &steps[i]))
            .filter(|(_, s)| s.rel == Rel::Rw)
    };
    let order = |(before, after): (&Step, &Step)| Some((entry(before)?, exit(after)?));
    let later = |turn| order(turn).is_some_and(|(entry, exit)| entry < exit);
    let after_reads = turns().all(|(before, _)| before.rel == Rel::Wr);
    let holds = match cycle.kind {
        Anomaly::Vanished => missed == 1 && read == 1 && steps.len() == 2 && turns().all(later),
        Anomaly::FracturedRead => missed == 1 && read == 1 && steps.len() == 2,
        Anomaly::CausalityViolation => missed == 1 && overwritten == 0,
        Anomaly::UpdateAtomicCycle => missed == 1 && steps.len() == 2,
        Anomaly::GMonotonic => missed == 1 && turns().all(later),
        Anomaly::GMsr => {
            let not_earlier = |turn| order(turn).is_some_and(|(entry, exit)| entry <= exit);
            missed > 0 && after_reads && turns().all(not_earlier)
        }
        Anomaly::PrefixCycle => missed > 0 && after_reads,
        Anomaly::LongFork => missed > 1 && after_reads,
        Anomaly::PsiCycle => missed == 1,
        Anomaly::GCursor => match keys(history, steps) {
            Ok(keys) => missed == 1 && overwritten + 1 == steps.len() && keys.windows(2).all(|k| k[0] == k[1]),
            Err(why) => return Some(Err(why)),
        },
        Anomaly::GUpdate => {
            let updates = |s: &&Step| {
                let mops = op(history, s.from).ok().and_then(|op| op.txn().map(|t| (op, t)));
                mops.is_some_and(|(op, t)| t.iter().any(|m| !is_read(op.mop_name(m.f))))
            };
            missed > 0 && steps.iter().filter(updates).count() + 1 >= steps.len()
        }
        _ => return None,
    };
    Some(Ok(holds && data))
}

/// The place in the transaction at which a step arrives.
fn entry(step: &Step) -> Option<u32> {
    match step.reason {
        Some(Reason::Wr { read, .. }) => Some(read.at),
        Some(Reason::Ww { later, .. }) => Some(later.at),
        _ => None,
    }
}

/// The place in the transaction at which a missed write was missed.
fn exit(step: &Step) -> Option<u32> {
    if let Some(Reason::Rw { read, .. }) = step.reason { Some(read.at) } else { None }
}

/// The key of each step.
fn keys(history: &History, steps: &[Step]) -> Result<Vec<Scalar>, String> {
    let shown = |s: &Step| match s.reason {
        Some(Reason::Ww { later, .. }) => Ok(later),
        Some(Reason::Wr { read, .. } | Reason::Rw { read, .. }) => Ok(read),
        _ => Err(format!("{} → {} has no key", s.from, s.to)),
    };
    steps.iter().map(|s| Ok(mop(history, shown(s)?, None)?.1.key)).collect()
}

fn op(history: &History, id: OpId) -> Result<OpRef<'_>, String> {
    history.row_of(id.0).map(|row| history.op(row)).ok_or_else(|| format!("there is no {id}"))
}

fn mop(history: &History, at: MopAt, of: Option<OpId>) -> Result<(OpRef<'_>, MopRef<'_>), String> {
    if of.is_some_and(|of| of != at.op) {
        return Err(format!("{} is not of this step", at.op));
    }
    let op = op(history, at.op)?;
    let txn = op.txn().filter(|t| (at.at as usize) < t.len());
    let mop = txn.ok_or_else(|| format!("{} has no micro-operation {}", at.op, at.at))?.get(at.at as usize);
    Ok((op, mop))
}

/// What steps of a cycle ask the history for more than once.
struct Facts<'h> {
    history: &'h History,
    /// Where elements stand in lists that show in which order they were appended.
    places: HashMap<MopAt, HashMap<Item, usize, FixedState>, FixedState>,
    /// Unacknowledged transactions of which an acknowledged read returned something.
    seen: Option<HashSet<OpId, FixedState>>,
}

impl<'h> Facts<'h> {
    fn new(history: &'h History) -> Self {
        Facts { history, places: HashMap::default(), seen: None }
    }

    /// A committed read: its key, and the list that it returned.
    fn read(&self, at: MopAt, of: Option<OpId>) -> Result<(Scalar, ValueRef<'h>), String> {
        let (op, mop) = mop(self.history, at, of)?;
        if op.status() != Status::Ok || !mop.known || !is_read(op.mop_name(mop.f)) {
            return Err(format!("micro-operation {} of {} is no acknowledged read", at.at, at.op));
        }
        Ok((mop.key, mop.value))
    }

    fn holds(&self, list: ValueRef<'h>, element: &Item) -> bool {
        elements(list).any(|s| item(self.history, s.into()) == *element)
    }

    fn places(&mut self, at: MopAt, list: ValueRef<'h>) -> &HashMap<Item, usize, FixedState> {
        let history = self.history;
        self.places.entry(at).or_insert_with(|| {
            let mut places = HashMap::default();
            for (i, s) in elements(list).enumerate() {
                places.entry(item(history, s.into())).or_insert(i);
            }
            places
        })
    }

    /// What was appended by a transaction that committed.
    fn append(&mut self, at: MopAt, of: OpId) -> Result<(Scalar, Item), String> {
        let (op, mop) = mop(self.history, at, Some(of))?;
        if op.mop_name(mop.f) != "append" {
            return Err(format!("micro-operation {} of {} is no append", at.at, at.op));
        }
        if op.status() == Status::Fail || (op.status() != Status::Ok && !self.was_seen(at.op)) {
            return Err(format!("{} did not commit, as far as anybody knows", at.op));
        }
        Ok((mop.key, item(self.history, mop.value)))
    }

    /// Did an acknowledged read return something that an operation appended? The first time O(history).
    fn was_seen(&mut self, op: OpId) -> bool {
        let history = self.history;
        self.seen.get_or_insert_with(|| seen(history)).contains(&op)
    }
}

fn mops<'h>(op: OpRef<'h>) -> impl Iterator<Item = MopRef<'h>> {
    op.txn().map(|t| t.iter()).into_iter().flatten()
}

fn elements<'h>(value: ValueRef<'h>) -> impl Iterator<Item = Scalar> + use<'h> {
    let list = value.elements();
    (0..list.map_or(0, |list| list.len())).filter_map(move |i| list.map(|list| list.get(i)))
}

fn seen(history: &History) -> HashSet<OpId, FixedState> {
    let mut unknown: HashMap<(Scalar, Item), Vec<OpId>, FixedState> = HashMap::default();
    for op in history.clients().filter(|op| !matches!(op.status(), Status::Ok | Status::Fail)) {
        for m in mops(op).filter(|m| op.mop_name(m.f) == "append") {
            unknown.entry((m.key, item(history, m.value))).or_default().push(OpId(op.index()));
        }
    }
    let mut seen = HashSet::default();
    for reader in history.clients().filter(|op| op.status() == Status::Ok && !unknown.is_empty()) {
        for m in mops(reader).filter(|m| is_read(reader.mop_name(m.f)) && m.known) {
            for element in elements(m.value) {
                seen.extend(unknown.get(&(m.key, item(history, element.into()))).into_iter().flatten());
            }
        }
    }
    seen
}

fn text(history: &History, value: ValueRef<'_>) -> String {
    let mut out = String::new();
    history.write_value(value, &mut out);
    out
}

fn step(facts: &mut Facts<'_>, step: &Step) -> Result<(), String> {
    let (from, to) = (op(facts.history, step.from)?, op(facts.history, step.to)?);
    let Some(reason) = &step.reason else { return Err("no reason is given".into()) };
    let same_key = |keys: &[Scalar]| match keys.windows(2).all(|k| k[0] == k[1]) {
        true => Ok(()),
        false => Err("the micro-operations are on different keys".to_string()),
    };
    let element = |history: &History, at: MopAt| {
        mop(history, at, None).map_or_else(|why| why, |(_, mop)| text(history, mop.value))
    };
    match (step.rel, reason) {
        (Rel::Ww, &Reason::Ww { earlier, later, shown_by }) => {
            let (a, first) = facts.append(earlier, step.from)?;
            let (b, second) = facts.append(later, step.to)?;
            let (r, list) = facts.read(shown_by, None)?;
            same_key(&[a, b, r])?;
            let places = facts.places(shown_by, list);
            match (places.get(&first), places.get(&second)) {
                (Some(i), Some(j)) if i < j => Ok(()),
                (Some(_), None) => Ok(()),
                _ => {
                    let (first, second) = (element(facts.history, earlier), element(facts.history, later));
                    Err(format!("the list does not hold {first} before {second}"))
                }
            }
        }
        (Rel::Wr, &Reason::Wr { write, read }) => {
            let (a, item) = facts.append(write, step.from)?;
            let (r, list) = facts.read(read, Some(step.to))?;
            same_key(&[a, r])?;
            let was_read = facts.holds(list, &item);
            was_read.then_some(()).ok_or_else(|| format!("{} was not read", element(facts.history, write)))
        }
        (Rel::Rw, &Reason::Rw { read, write }) => {
            let (r, list) = facts.read(read, Some(step.from))?;
            let (a, item) = facts.append(write, step.to)?;
            same_key(&[a, r])?;
            let was_read = facts.holds(list, &item);
            (!was_read).then_some(()).ok_or_else(|| format!("{} was read", element(facts.history, write)))
        }
        (Rel::Process, &Reason::Process(process)) => {
            let same = from.process() == Some(process) && to.process() == Some(process);
            let earlier = from.index() < to.index() && from.status() == Status::Ok;
            (same && earlier).then_some(()).ok_or_else(|| "the process did not run them in this order".into())
        }
        (Rel::RealTime, &Reason::RealTime { completed, invoked }) => {
            let holds = from.status() == Status::Ok
                && from.complete_index() == Some(completed)
                && to.index() == invoked
                && completed < invoked;
            holds.then_some(()).ok_or_else(|| "one had not completed when the other was invoked".into())
        }
        _ => Err("the reason is one of another relation".into()),
    }
}

/// Holds a serial order against the history.
///
/// # Errors
/// What does not hold.
pub fn order(history: &History, order: &[OpId], real_time: bool) -> Result<(), String> {
    let mut lists: HashMap<Scalar, Vec<Item>, FixedState> = HashMap::default();
    let mut placed = vec![false; history.len()];
    let mut latest_invocation = 0;
    for &id in order {
        let row = history.row_of(id.0).ok_or_else(|| format!("there is no {id}"))?;
        let op = history.op(row);
        if std::mem::replace(&mut placed[row], true) {
            return Err(format!("{id} stands there twice"));
        }
        if op.status() == Status::Fail {
            return Err(format!("{id} failed"));
        }
        if real_time && op.status() == Status::Ok && op.complete_index().is_some_and(|c| c < latest_invocation) {
            return Err(format!("{id} stands after one that was invoked only when it had completed"));
        }
        latest_invocation = latest_invocation.max(op.index());
        run(history, op, &mut lists).map_err(|why| format!("{id} {why}"))?;
    }
    let missing = |&(row, op): &(usize, OpRef<'_>)| {
        op.is_client() && op.status() == Status::Ok && op.txn().is_some() && !placed[row]
    };
    match history.ops().enumerate().find(missing) {
        Some((_, op)) => Err(format!("{} is missing", OpId(op.index()))),
        None => Ok(()),
    }
}

/// An element as the history has it, so that equal ones are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Item {
    Scalar(Scalar),
    Text(Box<str>),
}

fn item(history: &History, value: ValueRef<'_>) -> Item {
    match value.scalar() {
        Some(s) => Item::Scalar(s),
        None => {
            let text = text(history, value);
            match history.texts().find(&text) {
                Some(id) => Item::Scalar(Scalar::Text(id)),
                None => Item::Text(text.into()),
            }
        }
    }
}

fn run(history: &History, op: OpRef<'_>, lists: &mut HashMap<Scalar, Vec<Item>, FixedState>) -> Result<(), String> {
    for mop in op.txn().into_iter().flat_map(|t| t.iter()) {
        let list = lists.entry(mop.key).or_default();
        if !is_read(op.mop_name(mop.f)) {
            list.push(item(history, mop.value));
        } else if op.status() == Status::Ok && mop.known {
            let seen = mop.value.elements();
            let same = seen.map_or(list.is_empty(), |seen| {
                seen.len() == list.len() && seen.iter().zip(list.iter()).all(|(a, b)| Item::Scalar(a) == *b)
            });
            if !same {
                return Err(format!("would have read {} elements, or others than it did", list.len()));
            }
        }
    }
    Ok(())
}
