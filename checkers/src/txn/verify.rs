//! Does what a result claims hold of the history?
//!
//! Everything is looked up in the history by operation; nothing of the search, its graph or its columns is used. A cycle holds when
//! every step does, the steps close, and their relations make it what it is called. An order holds when running the
//! transactions one after the other gives every read what it returned, and no transaction stands after one that was invoked only when
//! it had completed. O(history) for an order, O(lists read) for a cycle.
//!
//! Cycles of registers also rest on what is assumed of keys ([`Registers`]): O(history) for all of them together, and O(transactions on
//! a key) a step.

use elench_formats::History;
use elench_formats::columns::{MopRef, Scalar, ValueRef};
use elench_formats::history::{OpRef, Status, is_read};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::cycles::kind_of;
use super::explain::{ExplainedCycle, MopAt, Reason, Step};
use super::register::{Assumptions, timestamps};
use crate::graph::Rel;
use crate::outcome::OpId;

/// Holds a cycle against the history.
///
/// # Errors
/// What does not hold.
pub fn cycle(history: &History, cycle: &ExplainedCycle) -> Result<(), String> {
    closed(cycle, |s| step(history, s))
}

/// Does a cycle close, does each step hold, and is it what it is called?
fn closed(cycle: &ExplainedCycle, mut step: impl FnMut(&Step) -> Result<(), String>) -> Result<(), String> {
    if cycle.steps.len() < 2 {
        return Err("it has fewer than two steps".into());
    }
    for (i, s) in cycle.steps.iter().enumerate() {
        let next = &cycle.steps[(i + 1) % cycle.steps.len()];
        if s.to != next.from {
            return Err(format!("it breaks off at {}", s.to));
        }
        if cycle.steps[..i].iter().any(|earlier| earlier.from == s.from) {
            return Err(format!("it passes {} twice", s.from));
        }
        step(s).map_err(|why| format!("{} → {} ({}): {why}", s.from, s.to, s.rel))?;
    }
    let rels: Vec<Rel> = cycle.steps.iter().map(|s| s.rel).collect();
    match kind_of(&rels) {
        Some(kind) if kind == cycle.kind => Ok(()),
        kind => Err(format!("it is called {} and is {}", cycle.kind, kind.map_or("none", |k| k.name()))),
    }
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

/// What a committed read returned.
fn read(history: &History, at: MopAt, of: Option<OpId>) -> Result<(Scalar, Vec<String>), String> {
    let (op, mop) = mop(history, at, of)?;
    if op.status() != Status::Ok || !mop.known || !is_read(op.mop_name(mop.f)) {
        return Err(format!("micro-operation {} of {} is no acknowledged read", at.at, at.op));
    }
    Ok((mop.key, elements(history, mop.value)))
}

fn elements(history: &History, value: ValueRef<'_>) -> Vec<String> {
    value.elements().map_or_else(Vec::new, |l| l.iter().map(|s| text(history, s.into())).collect())
}

fn text(history: &History, value: ValueRef<'_>) -> String {
    let mut out = String::new();
    history.write_value(value, &mut out);
    out
}

/// What was appended by a transaction that committed.
fn append(history: &History, at: MopAt, of: OpId) -> Result<(Scalar, String), String> {
    let (op, mop) = mop(history, at, Some(of))?;
    if op.mop_name(mop.f) != "append" {
        return Err(format!("micro-operation {} of {} is no append", at.at, at.op));
    }
    if op.status() == Status::Fail || (op.status() != Status::Ok && !was_seen(history, op)) {
        return Err(format!("{} did not commit, as far as anybody knows", at.op));
    }
    Ok((mop.key, text(history, mop.value)))
}

/// Did an acknowledged read return something that an operation appended?
fn was_seen(history: &History, op: OpRef<'_>) -> bool {
    let appends: Vec<(Scalar, String)> = op
        .txn()
        .into_iter()
        .flat_map(|t| t.iter())
        .filter(|m| op.mop_name(m.f) == "append")
        .map(|m| (m.key, text(history, m.value)))
        .collect();
    let holds = |reader: OpRef<'_>, m: MopRef<'_>| {
        is_read(reader.mop_name(m.f))
            && m.known
            && appends.iter().any(|(k, e)| *k == m.key && elements(history, m.value).contains(e))
    };
    history
        .clients()
        .filter(|reader| reader.status() == Status::Ok)
        .any(|reader| reader.txn().into_iter().flat_map(|t| t.iter()).any(|m| holds(reader, m)))
}

fn step(history: &History, step: &Step) -> Result<(), String> {
    let (from, to) = (op(history, step.from)?, op(history, step.to)?);
    let Some(reason) = &step.reason else { return Err("no reason is given".into()) };
    let same_key = |keys: &[Scalar]| match keys.windows(2).all(|k| k[0] == k[1]) {
        true => Ok(()),
        false => Err("the micro-operations are on different keys".to_string()),
    };
    match (step.rel, reason) {
        (Rel::Ww, &Reason::Ww { earlier, later, shown_by }) => {
            let (a, first) = append(history, earlier, step.from)?;
            let (b, second) = append(history, later, step.to)?;
            let (r, list) = read(history, shown_by, None)?;
            same_key(&[a, b, r])?;
            let place = |e: &String| list.iter().position(|x| x == e);
            match (place(&first), place(&second)) {
                (Some(i), Some(j)) if i < j => Ok(()),
                (Some(_), None) => Ok(()),
                _ => Err(format!("the list does not hold {first} before {second}")),
            }
        }
        (Rel::Wr, &Reason::Wr { write, read: by }) => {
            let (a, element) = append(history, write, step.from)?;
            let (r, list) = read(history, by, Some(step.to))?;
            same_key(&[a, r])?;
            list.contains(&element).then_some(()).ok_or_else(|| format!("{element} was not read"))
        }
        (Rel::Rw, &Reason::Rw { read: by, write }) => {
            let (r, list) = read(history, by, Some(step.from))?;
            let (a, element) = append(history, write, step.to)?;
            same_key(&[a, r])?;
            (!list.contains(&element)).then_some(()).ok_or_else(|| format!("{element} was read"))
        }
        (rel, reason) => in_time(from, to, rel, reason),
    }
}

/// A step that rests on when transactions ran.
fn in_time(from: OpRef<'_>, to: OpRef<'_>, rel: Rel, reason: &Reason) -> Result<(), String> {
    match (rel, reason) {
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

/// Holds a serial order of transactions on lists against the history.
///
/// # Errors
/// What does not hold.
pub fn order(history: &History, order: &[OpId], real_time: bool) -> Result<(), String> {
    let mut lists: HashMap<Scalar, Vec<Item>, FixedState> = HashMap::default();
    in_order(history, order, real_time, |op| run(history, op, &mut lists))
}

/// Holds a serial order of transactions on registers against the history. `initial` is the EDN text of the value that keys have before
/// anybody writes them; none is nil.
///
/// # Errors
/// What does not hold.
pub fn register_order(history: &History, order: &[OpId], initial: Option<&str>, real_time: bool) -> Result<(), String> {
    let initial = initial.unwrap_or("nil");
    let mut there: HashMap<Scalar, ValueRef<'_>, FixedState> = HashMap::default();
    let same = |seen: ValueRef<'_>, written: Option<&ValueRef<'_>>| match (seen.scalar(), written.map(|w| w.scalar())) {
        (Some(seen), Some(Some(written))) => seen == written,
        _ => text(history, seen) == written.map_or(initial.to_string(), |&w| text(history, w)),
    };
    in_order(history, order, real_time, |op| {
        for mop in op.txn().into_iter().flat_map(|t| t.iter()) {
            let name = op.mop_name(mop.f);
            if is_write(name) {
                there.insert(mop.key, mop.value);
            } else if !is_read(name) {
                return Err(format!("does what is neither a read nor a write: {name}"));
            } else if op.status() == Status::Ok && mop.known && !same(mop.value, there.get(&mop.key)) {
                let seen = there.get(&mop.key).map_or(initial.to_string(), |&w| text(history, w));
                return Err(format!("would have read {seen}, not {}", text(history, mop.value)));
            }
        }
        Ok(())
    })
}

fn is_write(name: &str) -> bool {
    matches!(name, "w" | "write")
}

/// Runs transactions in an order, which must hold every one that completed, none that failed, and keep real time where that is asked.
fn in_order<'h>(
    history: &'h History,
    order: &[OpId],
    real_time: bool,
    mut run: impl FnMut(OpRef<'h>) -> Result<(), String>,
) -> Result<(), String> {
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
        run(op).map_err(|why| format!("{id} {why}"))?;
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
#[derive(Clone, PartialEq, Eq)]
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

/// What a transaction did with a key.
struct Access<'h> {
    op: OpRef<'h>,
    /// Places and texts of values, in order; of reads only those whose answer is known.
    mops: Vec<(u32, bool, String)>,
}

impl Access<'_> {
    fn reads(&self) -> bool {
        self.op.status() == Status::Ok
    }

    /// What it read before it wrote.
    fn read(&self) -> Option<&str> {
        let first = self.mops.iter().find(|m| m.1 || self.reads())?;
        (!first.1).then_some(&first.2)
    }

    fn wrote(&self) -> Option<&str> {
        self.mops.iter().rev().find(|m| m.1).map(|m| &*m.2)
    }
}

/// What transactions did with the registers that some cycles are about, and what is assumed of these.
pub struct Registers<'h> {
    history: &'h History,
    assumptions: Assumptions,
    initial: String,
    keys: HashMap<Scalar, Vec<Access<'h>>, FixedState>,
}

impl<'h> Registers<'h> {
    /// Goes over the history once. `initial` is the EDN text of the value that keys have before anybody writes them; none is nil.
    pub fn new<'c>(
        history: &'h History,
        assumptions: Assumptions,
        initial: Option<&str>,
        cycles: impl Iterator<Item = &'c ExplainedCycle>,
    ) -> Registers<'h> {
        let mut keys: HashMap<Scalar, Vec<Access<'h>>, FixedState> = HashMap::default();
        for step in cycles.flat_map(|c| &c.steps) {
            let at = match step.reason {
                Some(Reason::Ww { earlier, .. }) => earlier,
                Some(Reason::Wr { write, .. } | Reason::Rw { write, .. }) => write,
                _ => continue,
            };
            if let Ok((_, mop)) = mop(history, at, None) {
                keys.entry(mop.key).or_default();
            }
        }
        if !keys.is_empty() {
            history.clients().for_each(|op| note(history, op, &mut keys));
        }
        Registers { history, assumptions, initial: initial.unwrap_or("nil").to_string(), keys }
    }

    /// Holds a cycle, one of those given before, against the history.
    ///
    /// # Errors
    /// What does not hold.
    pub fn cycle(&self, cycle: &ExplainedCycle) -> Result<(), String> {
        closed(cycle, |s| self.step(s))
    }

    fn step(&self, step: &Step) -> Result<(), String> {
        let (from, to) = (op(self.history, step.from)?, op(self.history, step.to)?);
        let Some(reason) = &step.reason else { return Err("no reason is given".into()) };
        match (step.rel, reason) {
            (Rel::Wr, &Reason::Wr { write, read }) => {
                let (key, written) = self.write(write, step.from)?;
                let (of, seen) = self.read(read, step.to)?;
                same("the keys", key, of)?;
                same("what was written and what was read", &written, &seen)
            }
            (Rel::Ww, &Reason::Ww { earlier, later, .. }) => {
                let (key, old) = self.write(earlier, step.from)?;
                let (of, new) = self.write(later, step.to)?;
                same("the keys", key, of)?;
                self.before(key, &old, &new)
            }
            (Rel::Rw, &Reason::Rw { read, write }) => {
                let (key, old) = self.read(read, step.from)?;
                let (of, new) = self.write(write, step.to)?;
                same("the keys", key, of)?;
                self.before(key, &old, &new)
            }
            (rel, reason) => in_time(from, to, rel, reason),
        }
    }

    fn on(&self, key: Scalar) -> &[Access<'h>] {
        self.keys.get(&key).map_or(&[], Vec::as_slice)
    }

    fn access(&self, at: MopAt, of: OpId) -> Result<(Scalar, &Access<'h>), String> {
        let (_, mop) = mop(self.history, at, Some(of))?;
        let access = self.on(mop.key).iter().find(|a| a.op.index() == at.op.0);
        access.map(|a| (mop.key, a)).ok_or_else(|| format!("{} does nothing with the key", at.op))
    }

    /// What a transaction left in a key that committed, and nobody else wrote.
    fn write(&self, at: MopAt, of: OpId) -> Result<(Scalar, String), String> {
        let (key, access) = self.access(at, of)?;
        let last = access.mops.iter().rev().find(|m| m.1).filter(|m| m.0 == at.at);
        let value = &last.ok_or_else(|| format!("micro-operation {} of {of} is not its last write", at.at))?.2;
        if !self.is_only_writer(key, value, access) {
            return Err(format!("{value} was written by others, too, or was there first"));
        }
        let seen = || self.on(key).iter().any(|a| a.reads() && a.mops.iter().any(|m| !m.1 && m.2 == *value));
        match access.op.status() {
            Status::Ok => Ok((key, value.clone())),
            Status::Fail => Err(format!("{of} failed")),
            _ if seen() || self.was_seen(access.op) => Ok((key, value.clone())),
            _ => Err(format!("{of} did not commit, as far as anybody knows")),
        }
    }

    fn is_only_writer(&self, key: Scalar, value: &str, access: &Access<'_>) -> bool {
        let other = |a: &&Access<'_>| a.op.index() != access.op.index() && a.op.status() != Status::Fail;
        value != self.initial && !self.on(key).iter().filter(other).any(|a| a.mops.iter().any(|m| m.1 && m.2 == value))
    }

    /// Did an acknowledged read return what an operation, and nobody else, wrote, to whatever key? O(history).
    fn was_seen(&self, op: OpRef<'h>) -> bool {
        let mut keys: HashMap<Scalar, Vec<Access<'h>>, FixedState> =
            op.txn().into_iter().flat_map(|t| t.iter()).map(|m| (m.key, Vec::new())).collect();
        self.history.clients().for_each(|op| note(self.history, op, &mut keys));
        let all =
            Registers { history: self.history, assumptions: self.assumptions, initial: self.initial.clone(), keys };
        all.keys.iter().any(|(&key, accesses)| {
            let own = accesses.iter().find(|a| a.op.index() == op.index());
            let written = own.into_iter().flat_map(|own| own.mops.iter().filter(|m| m.1).map(move |m| (own, &m.2)));
            let read =
                |value: &String| accesses.iter().any(|a| a.reads() && a.mops.iter().any(|m| !m.1 && m.2 == *value));
            written.filter(|(_, value)| read(value)).any(|(own, value)| all.is_only_writer(key, value, own))
        })
    }

    /// What others see a transaction read.
    fn read(&self, at: MopAt, of: OpId) -> Result<(Scalar, String), String> {
        let (key, access) = self.access(at, of)?;
        let first = access.mops.first().filter(|m| !m.1 && m.0 == at.at && access.reads());
        let value = first.ok_or_else(|| format!("micro-operation {} of {of} is no acknowledged first read", at.at))?;
        Ok((key, value.2.clone()))
    }

    /// Does one value of a key come before another one, by what is assumed?
    fn before(&self, key: Scalar, old: &str, new: &str) -> Result<(), String> {
        let all = self.on(key);
        let committed =
            |a: &&Access<'h>| a.op.status() == Status::Ok || (a.op.status() != Status::Fail && self.was_seen(a.op));
        let written = |value: &str| {
            all.iter().filter(|a| a.op.status() != Status::Fail).any(|a| a.mops.iter().any(|m| m.1 && m.2 == value))
        };
        if old == new {
            return Err(format!("{old} does not come before itself"));
        }
        if old == self.initial && !written(old) {
            return Ok(());
        }
        // A read of the initial value says nothing where a write follows it.
        let met = |a: &Access<'h>| match (a.read(), a.wrote()) {
            (Some(read), Some(wrote)) if read == self.initial => wrote == new,
            (Some(read), _) => read == new,
            (None, wrote) => wrote == Some(new),
        };
        let left = |a: &Access<'h>| a.op.status() == Status::Ok && a.wrote().or(a.read()) == Some(old);
        let with = self.assumptions;
        let updated = |a: &Access<'h>| a.op.status() == Status::Ok && a.read() == Some(old) && a.wrote() == Some(new);
        if with.wfr_keys && all.iter().any(updated) {
            return Ok(());
        }
        let after = |a: &Access<'h>, b: &Access<'h>| {
            let process = a.op.process().is_some() && a.op.process() == b.op.process() && a.op.index() < b.op.index();
            let ended = a.op.complete_index().is_some_and(|c| c < b.op.index());
            (with.sequential_keys && process) || (with.linearizable_keys && ended)
        };
        let earlier: Vec<&Access<'h>> = all.iter().filter(|a| left(a)).collect();
        let mut later = all.iter().filter(|b| met(b));
        if later.any(|b| earlier.iter().any(|a| after(a, b)) && committed(&b)) {
            return Ok(());
        }
        let time = |value: &str| {
            let writer = all.iter().find(|a| a.op.status() != Status::Fail && a.wrote() == Some(value))?;
            timestamps::FIELDS.iter().find_map(|f| writer.op.extra(f)).and_then(timestamps::timestamp)
        };
        match time(old).zip(time(new)) {
            Some((a, b)) if with.commit_timestamps && a < b => Ok(()),
            _ => Err(format!("nothing that is assumed shows that {old} comes before {new}")),
        }
    }
}

/// Notes what an operation did with some keys.
fn note<'h>(history: &History, op: OpRef<'h>, keys: &mut HashMap<Scalar, Vec<Access<'h>>, FixedState>) {
    for (at, mop) in op.txn().into_iter().flat_map(|t| t.iter()).enumerate() {
        let name = op.mop_name(mop.f);
        let write = is_write(name);
        let Some(accesses) = keys.get_mut(&mop.key) else { continue };
        if !write && (!is_read(name) || !mop.known || op.status() != Status::Ok) {
            continue;
        }
        if accesses.last().is_none_or(|a| a.op.index() != op.index()) {
            accesses.push(Access { op, mops: Vec::new() });
        }
        if let Some(access) = accesses.last_mut() {
            access.mops.push((at as u32, write, text(history, mop.value)));
        }
    }
}

fn same<T: PartialEq>(what: &str, one: T, other: T) -> Result<(), String> {
    (one == other).then_some(()).ok_or_else(|| format!("{what} are not the same"))
}
