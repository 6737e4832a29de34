//! Does a set keep what was added to it? `set` asks the last read, `set-full` asks every read.
//!
//! Where several reads overlap at the end, each may have been the last, and `set` calls lost only what none of them shows.
//!
//! `set-full` tells of each element what became of it, as Jepsen's checker of that name does: with reads in the order of their
//! invocations, an element is *stable* when the last one shows it, or one that overlaps the last; *lost* when it was known
//! (acknowledged, or seen by a read that had ended) before that last read began and is absent from it; else *never-read*. Jepsen's
//! calls lost also what an overlapping read shows: with right nobody can, for that read may have come after. A stable one is *stale* when some read that
//! began after it was known missed it, and its latency is the time from then on to the last such read. A stale element breaks no
//! promise of a set that is eventually consistent; it does of a linearizable one.
//!
//! What an element that somebody may have removed is at the end, nobody promised; and as `set-full` is about sets that only grow,
//! it decides nothing where something may have been taken away. Elements that one read holds twice are duplicated:
//! that is no set.
//!
//! One pass over the adds; a read costs what it holds ([`super::reads`]). Memory: 36 bytes an element, 48 a read.

use std::collections::HashMap;

use elench_formats::History;
use elench_formats::history::{OpRef, Status as Ended};
use roaring::RoaringBitmap;

use super::elements::{ById, Elements, Open};
use super::reads::{End, ReadAt, Seen, View, elements_of, in_event_order, shows};
use super::words::{Role, Roles};
use crate::findings::{Example, Fact, Findings, Incremental, Part, Weight, by_key, ended};
use crate::latencies::Latencies;
use crate::outcome::{OpId, Status, Why};

/// A read that may have been the last: what it shows, and what it shows twice.
#[derive(Debug)]
struct LastRead {
    read: ReadAt,
    set: RoaringBitmap,
    twice: Vec<u32>,
}

/// No event.
pub(crate) const NONE: u64 = u64::MAX;

/// How an element was attempted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The first invocation of one that did not fail.
    pub(crate) first: u64,
    /// The first acknowledgement, and when.
    pub(crate) ack: u64,
    ack_time: i64,
}

impl Attempt {
    /// When it was acknowledged first, in nanoseconds, where that is known.
    pub(crate) fn acked_at(&self) -> Option<i64> {
        Some(self.ack_time).filter(|&t| self.ack != NONE && t != i64::MIN)
    }
}

/// All attempts to add elements.
#[derive(Debug)]
pub(crate) struct Attempts {
    live: ById<Attempt>,
    /// By element: its first attempt that failed.
    failed: HashMap<u32, u64>,
    /// By element: the operation that was acknowledged first, where it is not the first of all.
    acked_by: HashMap<u32, u64>,
    removed: RoaringBitmap,
    counts: [u64; 3],
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts {
            live: ById::new(Attempt { first: NONE, ack: NONE, ack_time: i64::MIN }),
            failed: HashMap::new(),
            acked_by: HashMap::new(),
            removed: RoaringBitmap::new(),
            counts: [0; 3],
        }
    }
}

impl Attempts {
    /// An operation tried to add an element.
    pub(crate) fn add(&mut self, id: u32, op: &OpRef<'_>) {
        let (index, status) = (op.index(), ended(op));
        self.counts[status as usize] += 1;
        if status == Status::Fail {
            let first = self.failed.entry(id).or_insert(index);
            *first = (*first).min(index);
            return;
        }
        let attempt = self.live.at(id);
        attempt.first = attempt.first.min(index);
        let complete = op.complete_index().unwrap_or(NONE);
        if status == Status::Ok && complete < attempt.ack {
            attempt.ack = complete;
            attempt.ack_time = op.complete_time().unwrap_or(i64::MIN);
            if attempt.first == index {
                self.acked_by.remove(&id);
            } else {
                self.acked_by.insert(id, index);
            }
        }
    }

    /// An operation may have removed it.
    pub(crate) fn remove(&mut self, id: u32) {
        self.removed.insert(id);
    }

    pub(crate) fn of(&self, id: u32) -> Attempt {
        self.live.get(id)
    }

    pub(crate) fn is_removed(&self, id: u32) -> bool {
        self.removed.contains(id)
    }

    /// The operation whose acknowledgement counts, or the first attempt.
    pub(crate) fn op(&self, id: u32) -> u64 {
        self.acked_by.get(&id).copied().unwrap_or_else(|| self.live.get(id).first)
    }

    /// The first attempt that failed.
    pub(crate) fn failed(&self, id: u32) -> Option<u64> {
        self.failed.get(&id).copied()
    }

    /// Elements attempted without failing, and how.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, Attempt)> {
        self.live.iter().filter(|(_, a)| a.first != NONE).map(|(id, a)| (id, *a))
    }

    /// Counts the attempts in a coverage.
    pub(crate) fn count(&self, findings: &mut Findings) {
        for (status, n) in [Status::Ok, Status::Fail, Status::Info].into_iter().zip(self.counts) {
            findings.coverage.count("add", status, n);
        }
    }
}

/// Which reads are asked?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Last,
    Every { linearizable: bool },
}

/// `set` and `set-full`, while a history is written. The state of both forms.
#[derive(Debug)]
pub struct SetFull {
    asks: Asks,
    examples: usize,
    roles: Roles,
    elements: Elements,
    attempts: Attempts,
    view: View,
    /// Of `set`: the last read to complete.
    /// For `set`: reads that no other one followed, in the order of completions.
    last: Vec<LastRead>,
    /// Elements that a read held twice, with the first such read.
    twice: Vec<(u32, ReadAt)>,
    /// The first operation that may have taken something away.
    shrinks: Option<(u64, String)>,
    doubled: RoaringBitmap,
    reads: [u64; 3],
    /// Of the incremental form: by element, attempts that have not ended.
    open: Open,
    violated: Option<&'static str>,
}

impl SetFull {
    fn new(asks: Asks, examples: usize, copies: bool) -> SetFull {
        SetFull {
            asks,
            examples,
            roles: Roles::default(),
            elements: Elements::new(copies),
            attempts: Attempts::default(),
            view: View::default(),
            last: Vec::new(),
            twice: Vec::new(),
            shrinks: None,
            doubled: RoaringBitmap::new(),
            reads: [0; 3],
            open: Open::default(),
            violated: None,
        }
    }

    /// `set-full` while a history is written. With `linearizable`, a stale element is a violation.
    pub fn incremental(linearizable: bool, examples: usize) -> Box<dyn Incremental> {
        Box::new(SetFull::new(Asks::Every { linearizable }, examples, true))
    }

    /// `set` while a history is written.
    pub fn incremental_last(examples: usize) -> Box<dyn Incremental> {
        Box::new(SetFull::new(Asks::Last, examples, true))
    }

    /// An operation that ended, unless it read.
    fn change(&mut self, role: Role, op: &OpRef<'_>) {
        match role {
            Role::Add => {
                self.elements.widen();
                if let Some(id) = self.elements.value(op, op.input()) {
                    self.attempts.add(id, op);
                }
            }
            Role::Drain if op.status() != Ended::Fail => note_shrinking(&mut self.shrinks, op),
            Role::Remove | Role::Take if op.status() != Ended::Fail => {
                note_shrinking(&mut self.shrinks, op);
                let value = if role == Role::Remove { op.input() } else { op.output() };
                if let Some(id) = self.elements.value(op, value) {
                    self.attempts.remove(id);
                }
            }
            _ => {}
        }
    }

    /// A read that ended.
    fn read(&mut self, op: &OpRef<'_>) {
        let seen = match op.status() {
            Ended::Ok => elements_of(&mut self.elements, op, op.output()),
            _ => None,
        };
        let Some(Seen { set, twice }) = seen else {
            if op.status() != Ended::Ok {
                self.reads[ended(op) as usize] += 1;
            }
            return self.view.shows_nothing(op.index());
        };
        self.reads[Status::Ok as usize] += 1;
        let read = ReadAt::of(op);
        if self.asks == Asks::Last {
            self.last.retain(|before| before.read.complete > read.invoke);
            return self.last.push(LastRead { read, set, twice });
        }
        for id in twice {
            if self.doubled.insert(id) {
                self.twice.push((id, read));
            }
        }
        if !self.twice.is_empty() {
            self.violated = Some("duplicated");
        }
        for id in self.view.shows(read, set) {
            if self.attempts.of(id).first == NONE && !self.open.contains(id) {
                let failed = self.attempts.failed(id).is_some();
                self.violated = Some(if failed { "aborted-effect" } else { "unexpected" });
            }
        }
    }

    fn told(mut self, history: Option<&History>) -> Findings {
        for LastRead { read, twice, .. } in &self.last {
            let new = twice.iter().filter(|id| self.doubled.insert(**id));
            self.twice.extend(new.map(|id| (*id, *read)));
        }
        let mut findings = Findings::new(self.examples);
        self.attempts.count(&mut findings);
        for (status, n) in [Status::Ok, Status::Fail, Status::Info].into_iter().zip(self.reads) {
            findings.coverage.count("read", status, n);
        }
        let name = |id: u32| self.elements.name(id, history);
        for &(id, read) in &self.twice {
            findings.violation("duplicated", || {
                Example::new([OpId(read.invoke)], format!("op {} returned {} more than once", read.invoke, name(id)))
            });
        }
        match self.asks {
            Asks::Last => self.tell_last(&name, &mut findings),
            Asks::Every { linearizable } => self.tell_all(linearizable, &name, &mut findings),
        }
        findings
    }

    fn tell_last(&self, name: &dyn Fn(u32) -> String, findings: &mut Findings) {
        let Some(LastRead { read, .. }) = self.last.iter().max_by_key(|last| last.read.invoke) else {
            return findings
                .undecided(Why::Other("the set was never read: no read that returned a collection is ok".into()));
        };
        let mut set = RoaringBitmap::new();
        for last in &self.last {
            let new = &last.set - &set;
            tell_foreign(new.iter().map(|id| (id, last.read)), &self.attempts, name, findings);
            set |= new;
        }
        let mut shown = 0;
        for (id, attempt) in self.attempts.live() {
            let present = set.contains(id);
            shown += u64::from(present || attempt.ack < read.invoke);
            match (present, attempt.ack) {
                (true, NONE) => findings.note("recovered", || {
                    let op = self.attempts.op(id);
                    Example::new(
                        [OpId(op), OpId(read.invoke)],
                        format!("{}: op {op} never heard, and it is there", name(id)),
                    )
                }),
                (true, _) | (false, NONE) => {}
                (false, _) if self.attempts.is_removed(id) => {}
                (false, ack) if ack < read.invoke => findings.violation("lost", || {
                    let op = self.attempts.op(id);
                    let text =
                        format!("op {op} added {}, and the last read, op {}, does not show it", name(id), read.invoke);
                    Example::new([OpId(op), OpId(read.invoke)], text)
                }),
                (false, _) => findings.note("unread", || unread(self.attempts.op(id), &name(id))),
            }
        }
        findings.fact("elements shown", Fact::Count(set.len()));
        if shown == 0 {
            findings.undecided(Why::NoEvidence);
        }
    }

    fn tell_all(&self, linearizable: bool, name: &dyn Fn(u32) -> String, findings: &mut Findings) {
        let view = &self.view;
        let Some(last) = view.last_read() else {
            return findings
                .undecided(Why::Other("the set was never read: no read that returned a collection is ok".into()));
        };
        let foreign = view.ever().iter().filter_map(|id| Some((id, view.first_sight(id)?)));
        tell_foreign(foreign, &self.attempts, name, findings);
        let weight = if linearizable { Weight::Violation } else { Weight::Note };
        let (mut stable, mut lost, mut never, mut acked) = (0, 0, 0, 0);
        let (mut late, mut gone) = (Latencies::default(), Latencies::default());
        for (id, attempt) in self.attempts.live() {
            acked += u64::from(attempt.ack != NONE);
            let (known, known_time) = known(&attempt, view.first_sight(id));
            let missed = view.last_miss(id).filter(|miss| miss.invoke > known);
            let judged = !self.attempts.is_removed(id);
            if view.shown_at_end(id) {
                stable += 1;
                if attempt.ack == NONE {
                    findings.note("recovered", || {
                        let op = self.attempts.op(id);
                        let sight = view.last_sight(id).unwrap_or(last).invoke;
                        let text = format!("{}: op {op} never heard, and op {sight} shows it", name(id));
                        Example::new([OpId(op), OpId(sight)], text)
                    });
                }
                let miss = missed.filter(|_| judged);
                record(&mut late, miss.map_or(Some(0), |m| Some(m.invoke_time? - known_time?)));
                if let Some(miss) = miss {
                    findings.add("stale", weight, || self.stale(id, &attempt, miss, name));
                }
            } else if let Some(miss) = missed.filter(|_| judged) {
                lost += 1;
                let sight = view.last_sight(id);
                let time = sight.map_or(Some(0), |s| s.invoke_time.zip(known_time).map(|(a, b)| a.saturating_sub(b)));
                record(&mut gone, time);
                findings.violation("lost", || self.lost(id, &attempt, sight, miss, name));
            } else {
                never += 1;
                if attempt.ack != NONE && judged && view.first_sight(id).is_none() {
                    findings.note("unread", || unread(self.attempts.op(id), &name(id)));
                }
            }
        }
        for (what, n) in [
            ("acknowledged", acked),
            ("stable", stable),
            ("lost", lost),
            ("never-read", never),
            ("reads", view.reads() as u64),
        ] {
            findings.fact(what, Fact::Count(n));
        }
        for (what, latencies) in [("latency to stability", late), ("latency to loss", gone)] {
            findings.durations(what, &latencies);
        }
        if let Some(first) = &self.shrinks {
            findings.undecided(may_shrink(first));
        }
        if stable == 0 {
            findings.undecided(Why::Other(
                "no element that was added is shown by the last read, and none had to be".into(),
            ));
        }
    }

    fn stale(&self, id: u32, attempt: &Attempt, miss: ReadAt, name: &dyn Fn(u32) -> String) -> Example {
        let (op, how) = self.how_known(id, attempt);
        let text = format!(
            "{} was {how}, op {} began after that and misses it; it is there at the end",
            name(id),
            miss.invoke
        );
        Example::new(op.into_iter().chain([OpId(miss.invoke)]), text)
    }

    fn lost(
        &self,
        id: u32,
        attempt: &Attempt,
        sight: Option<ReadAt>,
        miss: ReadAt,
        name: &dyn Fn(u32) -> String,
    ) -> Example {
        let (mut ops, how) = self.how_known(id, attempt);
        let mut text = format!("{} was {how}", name(id));
        if let Some(sight) = sight {
            text += &format!(", op {} still shows it", sight.invoke);
            ops.push(OpId(sight.invoke));
        }
        text += &format!(", and the last read, op {}, misses it", miss.invoke);
        ops.push(OpId(miss.invoke));
        ops.dedup();
        Example::new(ops, text)
    }

    /// Since when is it known to be there, in words and operations?
    fn how_known(&self, id: u32, attempt: &Attempt) -> (Vec<OpId>, String) {
        let op = self.attempts.op(id);
        match self.view.first_sight(id).filter(|sight| sight.complete < attempt.ack) {
            Some(sight) => (
                vec![OpId(op), OpId(sight.invoke)],
                format!("added by op {op} and shown by op {}, which had ended", sight.invoke),
            ),
            None => (vec![OpId(op)], format!("added by op {op}, which was acknowledged")),
        }
    }
}

/// Keeps the first operation, by invocation, that may have taken something away.
pub(crate) fn note_shrinking(first: &mut Option<(u64, String)>, op: &OpRef<'_>) {
    if first.as_ref().is_none_or(|(known, _)| op.index() < *known) {
        *first = Some((op.index(), op.f().unwrap_or("nil").to_string()));
    }
}

/// Why nothing is decided where something may have been taken away.
pub(crate) fn may_shrink((op, f): &(u64, String)) -> Why {
    Why::Other(format!("op {op} ({f}) may have taken elements away, and the checker judges only what grows"))
}

fn unread(op: u64, name: &str) -> Example {
    Example::new([OpId(op)], format!("op {op} added {name}, and no read began after that was acknowledged"))
}

fn record(latencies: &mut Latencies, time: Option<i64>) {
    if let Some(time) = time {
        latencies.record(time);
    }
}

/// The event, and the time, from which on an element is known to be there.
fn known(attempt: &Attempt, sight: Option<ReadAt>) -> (u64, Option<i64>) {
    let acked = (attempt.ack, attempt.acked_at());
    match sight {
        Some(sight) if sight.complete < attempt.ack => (sight.complete, sight.complete_time),
        _ => acked,
    }
}

/// Tells of elements that came back though nobody had attempted them, or only in vain: with the first read that showed each.
pub(crate) fn tell_foreign(
    seen: impl Iterator<Item = (u32, ReadAt)>,
    attempts: &Attempts,
    name: &dyn Fn(u32) -> String,
    findings: &mut Findings,
) {
    for (id, read) in seen {
        let attempt = attempts.of(id);
        if attempt.first < read.complete {
            continue;
        }
        match attempts.failed(id).filter(|&failed| failed < read.complete) {
            Some(failed) => findings.violation("aborted-effect", || {
                let text = format!("op {} shows {}, and op {failed}, which added it, failed", read.invoke, name(id));
                Example::new([OpId(failed), OpId(read.invoke)], text)
            }),
            None => findings.violation("unexpected", || {
                let mut ops = vec![OpId(read.invoke)];
                let text = if attempt.first == NONE {
                    format!("op {} shows {}, which nobody ever added", read.invoke, name(id))
                } else {
                    ops.push(OpId(attempt.first));
                    format!("op {} shows {}, which op {} added only later", read.invoke, name(id), attempt.first)
                };
                Example::new(ops, text)
            }),
        }
    }
}

impl Incremental for SetFull {
    fn invoked(&mut self, op: &OpRef<'_>) {
        match self.roles.of(op) {
            Role::Add => {
                if let Some(id) = self.elements.value(op, op.input()) {
                    self.open.begins(id);
                }
            }
            Role::Read => self.view.opens(op.index()),
            _ => {}
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        match self.roles.of(op) {
            Role::Read => self.read(op),
            role => {
                self.change(role, op);
                if role == Role::Add
                    && let Some(id) = self.elements.value(op, op.input())
                {
                    self.open.ends(id);
                }
            }
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.violated
    }

    fn finish(mut self: Box<Self>) -> Findings {
        self.view.close();
        self.told(None)
    }
}

/// Is everything that was acknowledged before the last read began in that read, and nothing else but what may be?
///
/// Violations: `lost`, `aborted-effect`, `unexpected`, `duplicated`. Never read: unknown. O(adds + what the last read holds).
pub fn set(history: &History, examples: usize) -> Findings {
    checked(history, Asks::Last, examples)
}

/// What became of each element, through all reads? See the module.
///
/// Violations: `lost`, `aborted-effect`, `unexpected`, `duplicated`; with `linearizable`, `stale`. O(adds + what reads hold).
pub fn set_full(history: &History, linearizable: bool, examples: usize) -> Findings {
    checked(history, Asks::Every { linearizable }, examples)
}

fn checked(history: &History, asks: Asks, examples: usize) -> Findings {
    if let Some(refused) = refuse_without_order(history, examples) {
        return refused;
    }
    by_key(history, examples, |part: Part<'_>| {
        let mut state = SetFull::new(asks, examples, false);
        let mut reads = Vec::new();
        for op in part.ops() {
            match state.roles.of(&op) {
                Role::Read => reads.push(op),
                role => state.change(role, &op),
            }
        }
        if asks == Asks::Last {
            only_the_last(&mut reads, &mut state);
        }
        in_event_order(reads, |end| match end {
            End::Opens(invoke) => state.view.opens(invoke),
            End::Ends(op) => state.read(&op),
        });
        state.view.close();
        state.told(Some(part.history()))
    })
}

/// What was last, and what came before what, is known only where the order of events is that of real time.
pub(crate) fn refuse_without_order(history: &History, examples: usize) -> Option<Findings> {
    if history.meta().real_time {
        return None;
    }
    let mut findings = Findings::new(examples);
    let why = format!("the checker needs the order of real time, and {} does not record it", history.meta().format);
    findings.undecided(Why::Other(why));
    Some(findings)
}

/// Of these reads, leaves those that returned a collection and that no other such followed, and counts the others.
fn only_the_last(reads: &mut Vec<OpRef<'_>>, state: &mut SetFull) {
    let began = reads.iter().filter(|op| shows(op)).map(OpRef::index).max();
    let stays = |op: &OpRef<'_>| shows(op) && op.complete_index() > began;
    for op in reads.iter().filter(|op| !stays(op) && (op.status() != Ended::Ok || shows(op))) {
        state.reads[ended(op) as usize] += 1;
    }
    reads.retain(stays);
}
