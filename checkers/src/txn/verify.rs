//! Does what a result claims hold of the history?
//!
//! Everything is looked up in the history by operation; nothing of the search, its graph or its columns is used. A cycle holds when
//! every step does, the steps close, and their relations make it what it is called. An order holds when running the
//! transactions one after the other gives every read what it returned, and no transaction stands after one that was invoked only when
//! it had completed. O(history) for an order; for a cycle of lists O(lists that its steps name), and O(history) once if a transaction
//! of it was not acknowledged.
//!
//! Cycles of registers also rest on what is assumed of keys ([`Registers`]): O(history) for all of them together, and O(transactions on
//! a key), in the worst case, a step. A step holds when it follows from the assumptions, also where these contradict each other on a key;
//! the checker, which trusts no source that does, claims fewer.

use elench_formats::History;
use elench_formats::columns::{MopRef, Scalar, ValueRef};
use elench_formats::history::{OpRef, Status, is_read};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::anomaly::Anomaly;
use super::cycles::kind_of;
use super::explain::{Derived, ExplainedCycle, Lemma, MopAt, Reason, Step};
use super::register::{Assumptions, timestamps};
use crate::graph::Rel;
use crate::outcome::OpId;

/// Holds a cycle against the history.
///
/// # Errors
/// What does not hold.
pub fn cycle(history: &History, cycle: &ExplainedCycle) -> Result<(), String> {
    let mut facts = Facts::new(history);
    closed(history, cycle, |s| step(&mut facts, s))
}

/// Does a cycle close, does each step hold, and is it what it is called?
fn closed(
    history: &History,
    cycle: &ExplainedCycle,
    mut step: impl FnMut(&Step) -> Result<(), String>,
) -> Result<(), String> {
    if cycle.steps.len() < 2 {
        return Err("it has fewer than two steps".into());
    }
    let mut passed: HashSet<OpId, FixedState> = HashSet::default();
    for (i, s) in cycle.steps.iter().enumerate() {
        let next = &cycle.steps[(i + 1) % cycle.steps.len()];
        if s.to != next.from {
            return Err(format!("it breaks off at {}", s.to));
        }
        if !passed.insert(s.from) {
            return Err(format!("it passes {} twice", s.from));
        }
        step(s).map_err(|why| format!("{} → {} ({}): {why}", s.from, s.to, s.rel))?;
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
        (_, reason) => in_time(facts.history, step, reason),
    }
}

/// A step that rests on when transactions ran.
fn in_time(history: &History, step: &Step, reason: &Reason) -> Result<(), String> {
    let (from, to) = (op(history, step.from)?, op(history, step.to)?);
    match (step.rel, reason) {
        (Rel::Process, &Reason::Process(process)) => {
            let same = from.process() == Some(process) && to.process() == Some(process);
            let earlier = from.index() < to.index() && from.status() == Status::Ok;
            (same && earlier).then_some(()).ok_or_else(|| "the process did not run them in this order".into())
        }
        (Rel::RealTime, &Reason::RealTime { completed, invoked }) => {
            let holds = history.meta().real_time
                && from.status() == Status::Ok
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

/// What a transaction that did not fail did with a register.
struct Access {
    op: OpId,
    acknowledged: bool,
    process: Option<i64>,
    completed: Option<u64>,
    /// Places and values, in order: of all writes, and of reads whose answer is known.
    mops: Vec<(u32, bool, Value)>,
    /// What others see it read: first of all, and not its own later write.
    read: Option<Value>,
    /// What it left, if it wrote.
    wrote: Option<Value>,
}

/// The number of a value of a register.
type Value = u32;

/// What transactions did with one register. Those that failed are left out.
#[derive(Default)]
struct OnKey {
    numbers: HashMap<Item, Value, FixedState>,
    /// In order of invocation.
    accesses: Vec<Access>,
    by_op: HashMap<OpId, u32, FixedState>,
    /// By process, its accesses in order; and by access, its place there.
    processes: HashMap<i64, Vec<u32>, FixedState>,
    places: Vec<u32>,
    /// By value: how many transactions wrote it.
    writers: Vec<u32>,
    /// By value: acknowledged accesses that left it.
    left: Vec<Vec<u32>>,
    /// By value: who read it and then wrote something.
    updates: Vec<Vec<u32>>,
    /// Something was done to it of which it is not known what it does.
    altered: bool,
    /// By value: when it was committed, if that is said. And committed values by that, the latest first.
    when: Vec<Option<[i64; 2]>>,
    stamped: Vec<([i64; 2], Value)>,
}

/// What is known of registers, to hold cycles against: what is assumed of keys, and what transactions did with those that cycles were
/// about until now.
pub struct Registers {
    assumptions: Assumptions,
    initial: Item,
    /// By key: rows of operations that did something with it and did not fail.
    rows: HashMap<Scalar, Vec<u32>, FixedState>,
    /// Unacknowledged transactions of which an acknowledged read returned what nobody else wrote.
    seen: HashSet<OpId, FixedState>,
    keys: HashMap<Scalar, OnKey, FixedState>,
}

impl Registers {
    /// Goes over the history. `initial` is the EDN text of the value that keys have before anybody writes them; none is nil.
    pub fn new(history: &History, assumptions: Assumptions, initial: Option<&str>) -> Registers {
        let initial = match initial.unwrap_or("nil") {
            "nil" => Item::Scalar(Scalar::Nil),
            text => match (text.parse(), history.texts().find(text)) {
                (Ok(number), _) => Item::Scalar(Scalar::Int(number)),
                (_, Some(id)) => Item::Scalar(Scalar::Text(id)),
                _ => Item::Text(text.into()),
            },
        };
        let mut rows: HashMap<Scalar, Vec<u32>, FixedState> = HashMap::default();
        for (row, op) in history.ops().enumerate().filter(|(_, op)| op.is_client() && op.status() != Status::Fail) {
            for mop in mops(op) {
                let rows = rows.entry(mop.key).or_default();
                if rows.last() != Some(&(row as u32)) {
                    rows.push(row as u32);
                }
            }
        }
        let seen = seen_writers(history, &rows, &initial);
        Registers { assumptions, initial, rows, seen, keys: HashMap::default() }
    }

    /// Holds a cycle against the history, the same one as before.
    ///
    /// # Errors
    /// What does not hold.
    pub fn cycle(&mut self, history: &History, cycle: &ExplainedCycle) -> Result<(), String> {
        closed(history, cycle, |s| self.step(history, s))
    }

    /// Holds a refutation against the history, the same one as before. Nothing is assumed of keys. Gives what its last lemma shows.
    ///
    /// # Errors
    /// What does not hold.
    pub fn refutation(&mut self, history: &History, lemmas: &[Lemma]) -> Result<Anomaly, String> {
        let mut rels: HashSet<Rel, FixedState> = HashSet::default();
        for (number, lemma) in lemmas.iter().enumerate() {
            let wrong = |why| format!("lemma {}: {why}", number + 1);
            let holds = self.holding(history, &lemmas[..number], lemma).map_err(wrong)?;
            let steps = &lemma.steps;
            if steps.is_empty() {
                return Err(wrong("there is no circle".into()));
            }
            let mut passed: HashSet<OpId, FixedState> = HashSet::default();
            for (i, s) in steps.iter().enumerate() {
                if s.to != steps[(i + 1) % steps.len()].from {
                    return Err(wrong(format!("it breaks off at {}", s.to)));
                }
                if !passed.insert(s.from) {
                    return Err(wrong(format!("it passes {} twice", s.from)));
                }
                let step = self.refuting(history, s, &holds);
                step.map_err(|why| wrong(format!("{} → {} ({}): {why}", s.from, s.to, s.rel)))?;
                rels.insert(s.rel);
            }
        }
        match lemmas.last() {
            Some(last) if last.supposed.is_empty() => {
                Ok(match (rels.contains(&Rel::RealTime), rels.contains(&Rel::Process)) {
                    (true, _) => Anomaly::PlSsCycle,
                    (_, true) => Anomaly::StrongSessionPl3Cycle,
                    _ => Anomaly::Pl299Cycle,
                })
            }
            Some(_) => Err("its last lemma supposes something".into()),
            None => Err("it has no lemmas".into()),
        }
    }

    /// All that a lemma supposes, and that follows. Of two transactions that took place one comes first; so what is supposed are such.
    fn holding(&self, history: &History, earlier: &[Lemma], lemma: &Lemma) -> Result<Holding, String> {
        let committed = |id: OpId| match op(history, id)?.status() {
            Status::Ok => Ok(()),
            Status::Fail => Err(format!("{id} failed")),
            _ if self.seen.contains(&id) => Ok(()),
            _ => Err(format!("{id} did not commit, as far as anybody knows")),
        };
        for &(one, other) in &lemma.supposed {
            committed(one).and(committed(other))?;
        }
        let mut holds: Holding = lemma.supposed.iter().copied().collect();
        for Derived { before: (one, other), lemma } in &lemma.derived {
            let by = earlier.get(*lemma).ok_or_else(|| format!("there is no lemma {} before it", lemma + 1))?;
            let opposite = (*other, *one);
            let rest_holds = by.supposed.iter().all(|pair| *pair == opposite || holds.contains(pair));
            if one == other || !by.supposed.contains(&opposite) || !rest_holds {
                return Err(format!("that {one} comes before {other} does not follow from lemma {}", lemma + 1));
            }
            holds.insert((*one, *other));
        }
        Ok(holds)
    }

    /// Does a step of a refutation hold, where such come before others?
    fn refuting(&mut self, history: &History, step: &Step, holds: &Holding) -> Result<(), String> {
        let Some(reason) = &step.reason else { return Err("no reason is given".into()) };
        if step.from == step.to {
            return Err("nothing comes before itself".into());
        }
        match (step.rel, reason) {
            (Rel::Ww, Reason::Supposed) => {
                let held = holds.contains(&(step.from, step.to));
                held.then_some(()).ok_or_else(|| "that neither is supposed nor follows".into())
            }
            (Rel::Wr, Reason::Wr { .. }) => self.step(history, step),
            (Rel::Rw, &Reason::Rw { read, write }) => {
                let register = self.register(history, step, read, write)?;
                let (old, new) = (register.read(read)?, register.left(write)?);
                let (overwriter, others) = (register.on_key.access(write)?, &register.on_key.accesses);
                let is_writer = |a: &&Access| a.op != step.to && a.mops.iter().any(|m| m.1 && m.2 == old);
                let comes_later = Some(old) == register.initial
                    || overwriter.read == Some(old)
                    || others.iter().find(is_writer).is_some_and(|w| holds.contains(&(w.op, step.to)));
                let shown = comes_later && old != new;
                shown.then_some(()).ok_or_else(|| "nothing shows that what was read was overwritten by that".into())
            }
            (Rel::Process | Rel::RealTime, reason) => in_time(history, step, reason),
            _ => Err("the reason is one of another relation".into()),
        }
    }

    fn step(&mut self, history: &History, step: &Step) -> Result<(), String> {
        let Some(reason) = &step.reason else { return Err("no reason is given".into()) };
        let (first, second) = match *reason {
            Reason::Ww { earlier, later, .. } if step.rel == Rel::Ww => (earlier, later),
            Reason::Wr { write, read } if step.rel == Rel::Wr => (write, read),
            Reason::Rw { read, write } if step.rel == Rel::Rw => (read, write),
            _ => return in_time(history, step, reason),
        };
        let register = self.register(history, step, first, second)?;
        if let Reason::Ww { shown_by, .. } = *reason
            && mop(history, shown_by, None)?.1.key != mop(history, first, None)?.1.key
        {
            return Err("what shows it is on another key".into());
        }
        let shown = |value: Value| register.on_key.text(history, value);
        match step.rel {
            Rel::Wr => match (register.write(first)?, register.read(second)?) {
                (written, read) if written == read => Ok(()),
                (written, read) => Err(format!("{} was written, and {} read", shown(written), shown(read))),
            },
            rel => {
                let old = if rel == Rel::Rw { register.read(first)? } else { register.write(first)? };
                let new = register.write(second)?;
                register.is_before(old, new).then_some(()).ok_or_else(|| {
                    format!("nothing that is assumed shows that {} comes before {}", shown(old), shown(new))
                })
            }
        }
    }
}

impl Registers {
    /// The register that two micro-operations of a step are on.
    fn register(
        &mut self,
        history: &History,
        step: &Step,
        first: MopAt,
        second: MopAt,
    ) -> Result<Register<'_>, String> {
        let key = mop(history, first, Some(step.from))?.1.key;
        if mop(history, second, Some(step.to))?.1.key != key {
            return Err("the micro-operations are on different keys".into());
        }
        if !self.keys.contains_key(&key) {
            let rows = self.rows.get(&key).map_or(&[][..], Vec::as_slice);
            self.keys.insert(key, OnKey::new(history, key, rows, &self.seen));
        }
        let Some(on_key) = self.keys.get(&key) else { return Err("nobody did anything with the key".into()) };
        if on_key.altered {
            return Err("what is neither a read nor a write was done with the key".into());
        }
        Ok(Register { with: self, on_key, initial: on_key.numbers.get(&self.initial).copied() })
    }
}

/// Pairs of transactions, the first of which comes before the second.
type Holding = HashSet<(OpId, OpId), FixedState>;

impl OnKey {
    fn new(history: &History, key: Scalar, rows: &[u32], seen: &HashSet<OpId, FixedState>) -> OnKey {
        let mut on_key = OnKey::default();
        for op in rows.iter().map(|&row| history.op(row as usize)) {
            on_key.note(history, key, op);
        }
        let (values, accesses) = (on_key.numbers.len(), &on_key.accesses);
        let mut writers = vec![0; values];
        let (mut left, mut updates) = (vec![Vec::new(); values], vec![Vec::new(); values]);
        for (a, access) in (0..).zip(accesses) {
            let mut own: Vec<Value> = access.mops.iter().filter(|m| m.1).map(|m| m.2).collect();
            own.sort_unstable();
            own.dedup();
            own.into_iter().for_each(|v| writers[v as usize] += 1);
            if let Some(value) = access.wrote.or(access.read).filter(|_| access.acknowledged) {
                left[value as usize].push(a);
            }
            if let Some(read) = access.read.filter(|_| access.wrote.is_some()) {
                updates[read as usize].push(a);
            }
            let processes = access.process.map(|process| on_key.processes.entry(process).or_default());
            on_key.places.push(processes.as_ref().map_or(0, |of| of.len() as u32));
            processes.into_iter().for_each(|of| of.push(a));
        }
        let stamp = |a: &Access| {
            let op = op(history, a.op).ok().filter(|_| a.acknowledged || seen.contains(&a.op))?;
            let when = timestamps::FIELDS.iter().find_map(|f| op.extra(f)).and_then(timestamps::timestamp)?;
            Some((when, a.wrote?))
        };
        on_key.stamped = accesses.iter().filter_map(stamp).collect();
        on_key.stamped.sort_unstable_by(|a, b| b.cmp(a));
        on_key.when = vec![None; values];
        on_key.stamped.iter().for_each(|&(when, value)| on_key.when[value as usize] = Some(when));
        (on_key.writers, on_key.left, on_key.updates) = (writers, left, updates);
        on_key
    }

    fn note(&mut self, history: &History, key: Scalar, op: OpRef<'_>) {
        let acknowledged = op.status() == Status::Ok;
        let mut mops: Vec<(u32, bool, Value)> = Vec::new();
        for (at, mop) in (0..).zip(self::mops(op)).filter(|(_, mop)| mop.key == key) {
            let name = op.mop_name(mop.f);
            let write = is_write(name);
            self.altered |= !write && !is_read(name);
            if write || (is_read(name) && mop.known && acknowledged) {
                let next = self.numbers.len() as Value;
                mops.push((at, write, *self.numbers.entry(item(history, mop.value)).or_insert(next)));
            }
        }
        let own = |value: Value| mops.iter().any(|m| m.1 && m.2 == value);
        let read = mops.first().filter(|m| !m.1 && !own(m.2)).map(|m| m.2);
        let wrote = mops.iter().rev().find(|m| m.1).map(|m| m.2);
        let id = OpId(op.index());
        self.by_op.insert(id, self.accesses.len() as u32);
        let (process, completed) = (op.process(), op.complete_index());
        self.accesses.push(Access { op: id, acknowledged, process, completed, mops, read, wrote });
    }

    fn access(&self, at: MopAt) -> Result<&Access, String> {
        let access = self.by_op.get(&at.op).map(|&a| &self.accesses[a as usize]);
        access.ok_or_else(|| format!("{} did not commit, as far as anybody knows", at.op))
    }

    fn text(&self, history: &History, value: Value) -> String {
        let mut out = String::new();
        match self.numbers.iter().find(|(_, v)| **v == value).map(|(item, _)| item) {
            Some(Item::Scalar(scalar)) => history.write_scalar(*scalar, &mut out),
            Some(Item::Text(text)) => out.push_str(text),
            None => out.push('?'),
        }
        out
    }
}

/// A register, and what is assumed of it.
#[derive(Clone, Copy)]
struct Register<'a> {
    with: &'a Registers,
    on_key: &'a OnKey,
    initial: Option<Value>,
}

impl Register<'_> {
    /// Nobody else wrote it, so that all who read it read the same.
    fn is_certain(self, value: Value) -> bool {
        self.on_key.writers[value as usize] <= u32::from(Some(value) != self.initial)
    }

    fn committed(self, access: &Access) -> bool {
        access.acknowledged || self.with.seen.contains(&access.op)
    }

    /// What a transaction left in a key that committed.
    fn left(self, at: MopAt) -> Result<Value, String> {
        let access = self.on_key.access(at)?;
        let last = access.mops.iter().rev().find(|m| m.1).filter(|m| m.0 == at.at);
        let value = last.ok_or_else(|| format!("micro-operation {} of {} is not its last write", at.at, at.op))?.2;
        match self.committed(access) {
            true => Ok(value),
            false => Err(format!("{} did not commit, as far as anybody knows", at.op)),
        }
    }

    /// The same, if nobody else wrote that.
    fn write(self, at: MopAt) -> Result<Value, String> {
        let value = self.left(at)?;
        let certain = Some(value) != self.initial && self.is_certain(value);
        certain.then_some(value).ok_or_else(|| format!("others wrote what {} wrote, or it was there first", at.op))
    }

    /// What others see a transaction read.
    fn read(self, at: MopAt) -> Result<Value, String> {
        let access = self.on_key.access(at)?;
        let first = access.mops.first().filter(|m| m.0 == at.at && access.read == Some(m.2));
        let value = first.map(|m| m.2).filter(|&v| self.is_certain(v));
        value
            .ok_or_else(|| format!("micro-operation {} of {} is no first read of what at most one wrote", at.at, at.op))
    }

    /// What a transaction met first. A read of the initial value says nothing where a write follows it.
    fn met(self, access: &Access) -> Option<Value> {
        match (access.read, access.wrote) {
            (read, Some(wrote)) if read.is_none() || read == self.initial => Some(wrote),
            (read, _) => read,
        }
    }

    /// Does one value come before another one, by what is assumed? What follows from each source are ends of rows, so that all that comes
    /// later is found in O(accesses).
    fn is_before(self, old: Value, new: Value) -> bool {
        if old == new || !self.is_certain(old) || !self.is_certain(new) {
            return false;
        }
        if Some(old) == self.initial {
            return true;
        }
        let OnKey { accesses, stamped, .. } = self.on_key;
        let with = self.with.assumptions;
        let mut reached = vec![false; self.on_key.numbers.len()];
        let mut open = vec![old];
        // Beyond these all are reached: by process, by invocation and by time of commitment.
        let mut in_process: HashMap<i64, usize, FixedState> = HashMap::default();
        let (mut in_time, mut in_commits) = (accesses.len(), 0);
        while let Some(value) = open.pop() {
            let mut reach = |next: Option<Value>| {
                if let Some(next) = next.filter(|&n| n != value && self.is_certain(n))
                    && !std::mem::replace(&mut reached[next as usize], true)
                {
                    open.push(next);
                }
            };
            let reach_by = |access: &Access| self.met(access).filter(|_| self.committed(access));
            if with.wfr_keys {
                let updates = &self.on_key.updates[value as usize];
                updates.iter().for_each(|&a| reach(accesses[a as usize].wrote));
            }
            for &a in &self.on_key.left[value as usize] {
                let access = &accesses[a as usize];
                if let Some(process) = access.process.filter(|_| with.sequential_keys) {
                    let row = &self.on_key.processes[&process];
                    let first = self.on_key.places[a as usize] as usize + 1;
                    let end = in_process.entry(process).or_insert(row.len());
                    row[first.min(*end)..*end].iter().for_each(|&b| reach(reach_by(&accesses[b as usize])));
                    *end = first.min(*end);
                }
                while with.linearizable_keys
                    && let Some(b) = in_time.checked_sub(1).map(|b| &accesses[b])
                    && access.completed.is_some_and(|c| c < b.op.0)
                {
                    reach(reach_by(b));
                    in_time -= 1;
                }
            }
            let when = self.on_key.when[value as usize].filter(|_| with.commit_timestamps);
            while let Some(&(later, next)) = stamped.get(in_commits)
                && when.is_some_and(|when| when < later)
            {
                reach(Some(next));
                in_commits += 1;
            }
        }
        reached[new as usize]
    }
}

/// Unacknowledged operations that wrote what an acknowledged read returned and nobody else wrote. Given are, by key, the rows that did
/// something with it and did not fail; only those of keys that such an operation wrote are looked at.
fn seen_writers(
    history: &History,
    rows: &HashMap<Scalar, Vec<u32>, FixedState>,
    initial: &Item,
) -> HashSet<OpId, FixedState> {
    let mut unknown: HashMap<(Scalar, Item), Option<OpId>, FixedState> = HashMap::default();
    let mut keys: HashSet<Scalar, FixedState> = HashSet::default();
    let is_open = |op: &OpRef<'_>| !matches!(op.status(), Status::Ok | Status::Fail);
    for op in history.clients().filter(is_open) {
        let id = OpId(op.index());
        for m in mops(op).filter(|m| is_write(op.mop_name(m.f))) {
            let writer = unknown.entry((m.key, item(history, m.value))).or_insert(Some(id));
            *writer = writer.filter(|&w| w == id);
            keys.insert(m.key);
        }
    }
    let mut seen: HashMap<(Scalar, Item), OpId, FixedState> = HashMap::default();
    for key in keys {
        let rows = rows.get(&key).into_iter().flatten();
        for op in rows.map(|&row| history.op(row as usize)).filter(|op| op.status() == Status::Ok) {
            for m in mops(op).filter(|m| m.key == key) {
                let (name, value) = (op.mop_name(m.f), (key, item(history, m.value)));
                if is_write(name) {
                    unknown.entry(value).and_modify(|writer| *writer = None);
                } else if is_read(name)
                    && m.known
                    && value.1 != *initial
                    && let Some(&Some(writer)) = unknown.get(&value)
                {
                    seen.insert(value, writer);
                }
            }
        }
    }
    // What was read may have been written by another one later on.
    seen.retain(|value, _| unknown.get(value).is_some_and(Option::is_some));
    seen.into_values().collect()
}
