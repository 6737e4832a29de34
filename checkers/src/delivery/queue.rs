//! Does what goes into a queue come out, and nothing else?
//!
//! `queue` judges what comes out: each message was enqueued before, by an attempt that did not fail, and comes out no more often than
//! it went in, at no time: when the n-th delivery ends, n attempts have begun. Under `fifo`, no message overtakes one whose enqueue
//! had ended before its own began; those of one drain come out in its order. `total-queue` judges besides that
//! what went in comes out: a message that was acknowledged and never came out is *lost*, if a drain that ended well began after
//! the acknowledgement. Of equal messages, a delivery counts for an enqueue that had begun before the delivery ended; so many are lost as no
//! assignment of deliveries to enqueues serves. Where no drain is recorded at all but `total-queue` was asked for by name, the queue is taken to have been
//! emptied by its last dequeue.
//!
//! A drain that crashed is a partial drain: what it returned came out. What a client may have taken and never heard of explains a
//! missing message, which is then not lost but undecided: any number a crashed drain that does not say what it gave, one each other crashed
//! drain or dequeue. Where a guarantee is demanded nothing is explained so: a queue that delivers at least once delivers again what
//! such a client took. (Jepsen's `total-queue` calls lost what only a crashed dequeue may have taken; but what may have happened accuses nobody.)
//! Under `fifo` such clients explain as many messages that were overtaken and never came out: each one, if it had begun
//! before the message that overtook came out.
//!
//! Duplicates are violations under exactly-once and at-most-once, and counted otherwise.
//!
//! One pass; `fifo` and equal messages are sorted: O(n log n). Memory: 80 bytes a message, and of one that goes in or comes out again 16
//! bytes each time.

use std::collections::HashMap;

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::sorting::{pair, sort_by, sort_by_wide};

use super::elements::{ById, Elements, Open};
use super::micro::{MICRO, has_micro_operations};
use super::reads::elements_of;
use super::set::{NONE, refuse_without_order};
use super::words::{Guarantee, Role, Roles};
use crate::findings::{Example, Fact, Findings, Incremental, Part, Weight, by_key, ended};
use crate::outcome::{OpId, Status, Why};

/// What is asked of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueOptions {
    /// What it promises; `None`: nothing that duplicates, or clients that took a message and crashed, would break.
    pub guarantee: Option<Guarantee>,
    /// Was the checker asked for by name? Then the queue is taken to have been emptied.
    pub named: bool,
    /// Does it keep order?
    pub fifo: bool,
}

const NOT_EMPTIED: &str = "nothing shows that the queue was emptied: no drain ended well (where none is recorded, total-queue takes it to \
                           have been if asked for by name)";

/// What became of a message.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Attempts that did not fail, those acknowledged, and how often it came out.
    tries: u32,
    acked: u32,
    out: u32,
    /// The first invocation of an attempt that did not fail.
    first: u64,
    /// The last acknowledgement, and its operation.
    ack: u64,
    ack_op: u64,
    /// The first completion of a dequeue that gave it, with its operation, and the operation of the last.
    out_at: u64,
    out_op: u64,
    out_last: u64,
    /// Its position in the drain that gave it first.
    place: u32,
}

const NOTHING: Flow = Flow {
    tries: 0,
    acked: 0,
    out: 0,
    first: NONE,
    ack: 0,
    ack_op: NONE,
    out_at: NONE,
    out_op: NONE,
    out_last: NONE,
    place: UNPLACED,
};

/// Not given by a drain that has an order.
const UNPLACED: u32 = u32::MAX;

/// An attempt that did not fail: its invocation, and its acknowledgement or [`NONE`].
type Attempt = (u64, u64);
/// A delivery: its completion and its operation.
type Delivery = (u64, u64);

/// A message and what became of it.
type Message<'a> = &'a (u32, Flow);

/// Which of the two?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Queue,
    Total,
}

/// `queue` and `total-queue`, while a history is written. The state of both forms.
#[derive(Debug)]
pub struct Queues {
    asks: Asks,
    options: QueueOptions,
    examples: usize,
    roles: Roles,
    elements: Elements,
    flows: ById<Flow>,
    /// Of messages that went in or came out more than once: each time.
    attempts: HashMap<u32, Vec<Attempt>>,
    deliveries: HashMap<u32, Vec<Delivery>>,
    /// By message: its first attempt that failed.
    failed: HashMap<u32, u64>,
    enqueues: [u64; 3],
    dequeues: [u64; 3],
    /// Dequeues that were acknowledged and gave something.
    gave: u64,
    /// The last invocation of a drain that ended well, and of a dequeue; was there a drain that did not fail?
    drained: Option<u64>,
    looked: Option<u64>,
    drains: bool,
    /// Where clients began that crashed and may have taken a message. Did one drain without saying what?
    crashed: Vec<u64>,
    silent_drain: bool,
    open: Open,
    /// Do messages stand inside micro-operations?
    micro: bool,
    violated: Option<&'static str>,
}

impl Queues {
    fn new(asks: Asks, options: QueueOptions, examples: usize, copies: bool) -> Queues {
        Queues {
            asks,
            options,
            examples,
            roles: Roles::default(),
            elements: Elements::new(copies),
            flows: ById::new(NOTHING),
            attempts: HashMap::new(),
            deliveries: HashMap::new(),
            failed: HashMap::new(),
            enqueues: [0; 3],
            dequeues: [0; 3],
            gave: 0,
            drained: None,
            looked: None,
            drains: false,
            crashed: Vec::new(),
            silent_drain: false,
            open: Open::default(),
            micro: false,
            violated: None,
        }
    }

    /// `queue` while a history is written.
    pub fn incremental_queue(options: QueueOptions, examples: usize) -> Box<dyn Incremental> {
        Box::new(Queues::new(Asks::Queue, options, examples, true))
    }

    /// `total-queue` while a history is written.
    pub fn incremental_total(options: QueueOptions, examples: usize) -> Box<dyn Incremental> {
        Box::new(Queues::new(Asks::Total, options, examples, true))
    }

    /// An operation that ended.
    fn take_in(&mut self, op: &OpRef<'_>) {
        let status = ended(op);
        let role = self.roles.of(op);
        self.micro |= matches!(role, Role::Add | Role::Take | Role::Drain) && has_micro_operations(op);
        match role {
            Role::Add => {
                self.enqueues[status as usize] += 1;
                self.elements.widen();
                if let Some(id) = self.elements.value(op, op.input()) {
                    self.enqueue(id, op, status);
                }
            }
            Role::Take => {
                self.dequeues[status as usize] += 1;
                let given = if status == Status::Fail { None } else { self.elements.value(op, op.output()) };
                if status != Status::Fail {
                    self.looked = self.looked.max(Some(op.index()));
                }
                match given {
                    // What a crashed dequeue was invoked with is no message that it gave.
                    Some(id) if status == Status::Ok => self.dequeue(id, op, UNPLACED),
                    _ if status == Status::Info => self.crashed.push(op.index()),
                    _ => {}
                }
            }
            Role::Drain => self.drain(op, status),
            _ => {}
        }
    }

    fn enqueue(&mut self, id: u32, op: &OpRef<'_>, status: Status) {
        let index = op.index();
        if status == Status::Fail {
            let first = self.failed.entry(id).or_insert(index);
            *first = (*first).min(index);
            return;
        }
        let ack = if status == Status::Ok { op.complete_index().unwrap_or(NONE) } else { NONE };
        let flow = self.flows.at(id);
        if flow.tries > 0 {
            let first = (flow.first, if flow.acked > 0 { flow.ack } else { NONE });
            self.attempts.entry(id).or_insert_with(|| vec![first]).push((index, ack));
        }
        flow.tries += 1;
        flow.first = flow.first.min(index);
        if status == Status::Ok {
            flow.acked += 1;
            if ack >= flow.ack {
                (flow.ack, flow.ack_op) = (ack, index);
            }
        }
    }

    fn dequeue(&mut self, id: u32, op: &OpRef<'_>, place: u32) {
        self.gave += 1;
        let at = op.complete_index().unwrap_or(NONE);
        let flow = self.flows.at(id);
        if flow.out > 0 {
            let first = (flow.out_at, flow.out_op);
            self.deliveries.entry(id).or_insert_with(|| vec![first]).push((at, op.index()));
        }
        flow.out += 1;
        if flow.out == 1 || at < flow.out_at {
            (flow.out_at, flow.out_op, flow.place) = (at, op.index(), place);
        }
        flow.out_last = op.index();
        if flow.tries == 0 && !self.open.contains(id) {
            let failed = self.failed.contains_key(&id);
            self.violated = Some(if failed { "aborted-effect" } else { "unexpected" });
        }
    }

    /// A drain gives many. One that failed took nothing; of one that crashed, what it gave came out, and it may have taken more: one
    /// message if it says what it gave, else any number.
    fn drain(&mut self, op: &OpRef<'_>, status: Status) {
        self.dequeues[status as usize] += 1;
        if status == Status::Fail {
            return;
        }
        self.drains = true;
        let given = drained(&mut self.elements, op);
        match (status, given.is_some()) {
            (Status::Ok, _) => self.drained = self.drained.max(Some(op.index())),
            (_, true) => self.crashed.push(op.index()),
            (_, false) => self.silent_drain = true,
        }
        let ordered = matches!(op.output(), ValueRef::List(_));
        for (place, id) in (0..).zip(given.unwrap_or_default()) {
            self.dequeue(id, op, if ordered { place } else { UNPLACED });
        }
    }

    fn told(self, history: Option<&History>) -> Findings {
        let mut findings = Findings::new(self.examples);
        for (i, status) in [Status::Ok, Status::Fail, Status::Info].into_iter().enumerate() {
            findings.coverage.count("enqueue", status, self.enqueues[i]);
            findings.coverage.count("dequeue", status, self.dequeues[i]);
        }
        if self.micro {
            findings.undecided(Why::Other(MICRO.into()));
            return findings;
        }
        let name = |id: u32| self.elements.name(id, history);
        for (id, flow) in self.flows.iter().filter(|(_, flow)| flow.out > 0) {
            self.tell_out(id, flow, &name, &mut findings);
        }
        if self.options.fifo {
            self.tell_order(&name, &mut findings);
        }
        match self.asks {
            Asks::Queue if self.gave == 0 => {
                findings.undecided(Why::Other("nothing was dequeued, so nothing was shown".into()))
            }
            Asks::Queue => {}
            Asks::Total => self.tell_lost(&name, &mut findings),
        }
        findings
    }

    fn tell_out(&self, id: u32, flow: &Flow, name: &dyn Fn(u32) -> String, findings: &mut Findings) {
        let out = flow.out_op;
        let failed = self.failed.get(&id).copied().filter(|&failed| failed < flow.out_at);
        if flow.first > flow.out_at {
            match failed {
                Some(failed) => findings.violation("aborted-effect", || {
                    Example::new(
                        [OpId(failed), OpId(out)],
                        format!("op {out} dequeued {}, and op {failed}, which enqueued it, failed", name(id)),
                    )
                }),
                None if flow.tries == 0 => findings.violation("unexpected", || {
                    Example::new([OpId(out)], format!("op {out} dequeued {}, which nobody ever enqueued", name(id)))
                }),
                None => findings.violation("dequeued-before-enqueued", || {
                    let text =
                        format!("op {out} had dequeued {} before op {} began to enqueue it", name(id), flow.first);
                    Example::new([OpId(out), OpId(flow.first)], text)
                }),
            }
        }
        if flow.tries == 0 {
            return;
        }
        let early = self.too_early(id, flow);
        if flow.out > flow.tries || early.is_some() {
            let weight = match (self.asks, self.options.guarantee) {
                (Asks::Queue, None) => Weight::Violation,
                (_, Some(guarantee)) if !guarantee.may_repeat() => Weight::Violation,
                _ => Weight::Note,
            };
            findings.add("duplicate", weight, || {
                let (text, last) = match early {
                    Some((outs, tries, op)) => {
                        let text = format!(
                            "when op {op} had ended, {} had come out {} and gone in {} at most",
                            name(id),
                            times(outs),
                            times(tries)
                        );
                        (text, op)
                    }
                    None => {
                        let (outs, tries) = (times(flow.out), times(flow.tries));
                        (format!("{} came out {outs} and went in {tries} at most", name(id)), flow.out_last)
                    }
                };
                let mut ops = vec![OpId(flow.first), OpId(flow.out_op), OpId(last)];
                ops.dedup();
                Example::new(ops, text)
            });
        }
        if flow.out.min(flow.tries) > flow.acked {
            findings.note("recovered", || {
                let ops = [OpId(flow.first), OpId(out)];
                Example::new(
                    ops,
                    format!("{} was enqueued with an outcome that nobody knows, and op {out} dequeued it", name(id)),
                )
            });
        }
    }

    /// The first delivery of a message that went in several times by whose end it had come out more often than it had begun to go in;
    /// how often either. Not where the first attempt came after the first delivery, which is told by itself.
    fn too_early(&self, id: u32, flow: &Flow) -> Option<(u32, u32, u64)> {
        if flow.tries >= flow.out && flow.first > flow.out_at {
            return None;
        }
        let mut begun: Vec<u64> = self.attempts.get(&id)?.iter().map(|(invoke, _)| *invoke).collect();
        let mut ended = self.deliveries.get(&id)?.clone();
        begun.sort_unstable();
        ended.sort_unstable();
        let tries = |at: u64| begun.partition_point(|&invoke| invoke < at);
        let all = ended.iter().zip(1..).map(|(&(at, op), outs)| (outs, tries(at) as u32, op));
        // Of a drain that never ended, it is not known when the messages came out.
        all.zip(&ended).find(|((outs, tries, _), (at, _))| outs > tries && *at != NONE).map(|(found, _)| found)
    }

    /// How many acknowledged enqueues of a message, acknowledged before `emptied`, no delivery serves. A delivery serves an enqueue that had
    /// begun before it ended: so the enqueues from a time on have only the deliveries after it.
    fn unserved(&self, id: u32, flow: &Flow, emptied: u64) -> u32 {
        let Some(attempts) = self.attempts.get(&id) else {
            let served = flow.out > 0 && self.ends_after(id, flow, flow.first) > 0;
            return u32::from(flow.acked > 0 && flow.ack < emptied && !served);
        };
        let mut due: Vec<u64> = attempts.iter().filter(|(_, ack)| *ack < emptied).map(|(invoke, _)| *invoke).collect();
        sort_by(&mut due, |&invoke| !invoke);
        let short = |(invoke, n): (&u64, u32)| n.saturating_sub(self.ends_after(id, flow, *invoke));
        due.iter().zip(1..).map(short).max().unwrap_or(0)
    }

    /// How many deliveries of a message ended after this event.
    fn ends_after(&self, id: u32, flow: &Flow, event: u64) -> u32 {
        match self.deliveries.get(&id) {
            Some(all) => all.iter().filter(|(at, _)| *at > event).count() as u32,
            None => u32::from(flow.out > 0 && flow.out_at > event),
        }
    }

    fn tell_lost(&self, name: &dyn Fn(u32) -> String, findings: &mut Findings) {
        let (mut acked, mut missing, mut unread, mut arrived) = (0, Vec::new(), 0u64, 0);
        let emptied = self.drained.or(self.looked.filter(|_| self.options.named && !self.drains));
        for (id, flow) in self.flows.iter() {
            acked += u64::from(flow.acked);
            arrived += u64::from(flow.out.min(flow.tries));
            let gone = emptied.map_or(0, |emptied| self.unserved(id, flow, emptied));
            if gone > 0 {
                missing.push((id, *flow, gone));
            }
            unread += u64::from(flow.acked.saturating_sub(flow.out).saturating_sub(gone));
        }
        let lost: u64 = missing.iter().map(|(_, _, gone)| u64::from(*gone)).sum();
        findings.fact("acknowledged", Fact::Count(acked));
        findings.fact("arrived", Fact::Count(arrived));
        if unread > 0 {
            findings.fact("still in the queue, for all that is known", Fact::Count(unread));
        }
        let excused = match self.options.guarantee {
            Some(_) => false,
            None => self.silent_drain || lost <= self.crashed.len() as u64,
        };
        if lost > 0 && excused {
            let why = format!(
                "{lost} acknowledged messages never came out, and clients that crashed may have taken them; --delivery says what is promised"
            );
            findings.undecided(Why::Other(why));
        }
        let weight = match self.options.guarantee {
            Some(guarantee) if guarantee.may_lose() => Weight::Note,
            _ if excused => Weight::Note,
            _ => Weight::Violation,
        };
        let kind = if excused { "missing" } else { "lost" };
        for (id, flow, gone) in &missing {
            // The last of those that the drain had to find.
            let due = |all: &Vec<Attempt>| {
                all.iter()
                    .filter(|(_, ack)| emptied.is_some_and(|emptied| *ack < emptied))
                    .max_by_key(|(_, ack)| *ack)
                    .map(|a| a.0)
            };
            let enqueue = self.attempts.get(id).and_then(due).unwrap_or(flow.ack_op);
            for _ in 0..*gone {
                findings.add(kind, weight, || {
                    let text =
                        format!("op {enqueue} enqueued {} and was acknowledged, and it never came out", name(*id));
                    Example::new([OpId(enqueue)], text)
                });
            }
        }
        if unread > 0 && emptied.is_none() && !self.options.guarantee.is_some_and(Guarantee::may_lose) {
            findings.undecided(Why::Other(NOT_EMPTIED.into()));
        }
        if acked + arrived == 0 || (missing.is_empty() && arrived == 0) {
            findings.undecided(Why::NoEvidence);
        }
    }

    /// Overtaking: `a`'s enqueue had ended before `b`'s began, and `b`'s dequeue before `a`'s began. With the enqueues of `b` in
    /// order, the one to compare with is that `a`, among those before it, which was dequeued last.
    fn tell_order(&self, name: &dyn Fn(u32) -> String, findings: &mut Findings) {
        let once: Vec<(u32, Flow)> =
            self.flows.iter().filter(|(_, f)| f.tries == 1 && f.out <= 1).map(|(id, f)| (id, *f)).collect();
        let several = self.flows.iter().filter(|(_, f)| f.tries > 1 || f.out > 1).count() as u64;
        if several > 0 {
            findings.fact(
                "messages whose order was not judged, as they went in or came out more than once",
                Fact::Count(several),
            );
        }
        // What crashed clients may have taken is not known to be in the queue still.
        let all_known = self.crashed.is_empty() && !self.silent_drain;
        let mut before: Vec<&(u32, Flow)> =
            once.iter().filter(|(_, f)| f.acked == 1 && (f.out == 1 || all_known)).collect();
        sort_by(&mut before, |(_, f)| f.ack);
        let mut after: Vec<&(u32, Flow)> = once.iter().filter(|(_, f)| f.out == 1).collect();
        sort_by(&mut after, |(_, f)| f.first);
        let mut before = before.into_iter().peekable();
        let mut latest: Option<&(u32, Flow)> = None;
        // By drain that has an order: that which it gave last.
        let mut in_drain: HashMap<u64, &(u32, Flow)> = HashMap::new();
        for (b, flow) in after {
            while let Some(a) = before.next_if(|(_, a)| a.ack < flow.first) {
                // Never dequeued is last of all.
                if latest.is_none_or(|l| a.1.out_op > l.1.out_op) {
                    latest = Some(a);
                }
                if a.1.place != UNPLACED {
                    let last = in_drain.entry(a.1.out_op).or_insert(a);
                    *last = if last.1.place < a.1.place { a } else { last };
                }
            }
            let later = latest.filter(|(_, a)| a.out_op > flow.out_at);
            let behind = || in_drain.get(&flow.out_op).copied().filter(|(_, a)| a.place > flow.place);
            let Some((a, overtaken)) = later.or_else(behind) else { continue };
            findings.violation("reorder", || {
                let then = match overtaken.out_op {
                    NONE => "never was".to_string(),
                    op if op == flow.out_op => "stands behind it there".to_string(),
                    op => format!("was by op {op} only later"),
                };
                let ops = [overtaken.ack_op, flow.first, flow.out_op, overtaken.out_op];
                let text = format!(
                    "{} was enqueued before {}, which op {} dequeued, and {then}",
                    name(*a),
                    name(*b),
                    flow.out_op
                );
                Example::new(ops.into_iter().filter(|&op| op != NONE).map(OpId), text)
            });
        }
        for ((a, overtaken), (b, flow)) in self.unexplained(&once) {
            findings.violation("reorder", || {
                let text = format!(
                    "{} was enqueued before {}, which op {} dequeued, and never was; that crashed clients took what is missing explains others, not all",
                    name(*a),
                    name(*b),
                    flow.out_op
                );
                Example::new([overtaken.ack_op, flow.first, flow.out_op].map(OpId), text)
            });
        }
    }

    /// Where clients crashed: messages that were overtaken, never came out, and cannot all have been taken by these clients; with the one
    /// that overtook each first. A client that began before that one came out explains one; those that have to be explained first
    /// come first, so that as few as possible are left. O(n log n).
    fn unexplained<'a>(&self, once: &'a [(u32, Flow)]) -> Vec<(Message<'a>, Message<'a>)> {
        if self.crashed.is_empty() || self.silent_drain {
            return Vec::new();
        }
        let mut after: Vec<&(u32, Flow)> = once.iter().filter(|(_, f)| f.out == 1).collect();
        sort_by(&mut after, |(_, f)| f.first);
        // Of each and those after it, the one that came out first.
        let mut soonest = after.clone();
        for i in (1..soonest.len()).rev() {
            if soonest[i].1.out_at < soonest[i - 1].1.out_at {
                soonest[i - 1] = soonest[i];
            }
        }
        let overtakes = |a: &Flow| soonest.get(after.partition_point(|(_, b)| b.first <= a.ack)).copied();
        let stay = once.iter().filter(|(_, f)| f.acked == 1 && f.out == 0);
        let mut overtaken: Vec<_> = stay.filter_map(|a| Some((a, overtakes(&a.1)?))).collect();
        sort_by_wide(&mut overtaken, |(a, b)| pair(b.1.out_at, a.0));
        let mut crashed = self.crashed.clone();
        crashed.sort_unstable();
        let mut explained = 0;
        overtaken.retain(|(_, b)| {
            let explains = explained < crashed.partition_point(|&began| began < b.1.out_at);
            explained += usize::from(explains);
            !explains
        });
        overtaken
    }
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

/// What a drain gave, each as often as it stands there; `None` where it does not say.
fn drained(elements: &mut Elements, op: &OpRef<'_>) -> Option<Vec<u32>> {
    let output = op.output();
    if let Some(list) = output.elements() {
        return Some(list.iter().filter_map(|scalar| elements.scalar(op, scalar)).collect());
    }
    let seen = elements_of(elements, op, output);
    match seen {
        Some(seen) => Some(seen.set.iter().collect()),
        None => elements.value(op, output).map(|id| vec![id]),
    }
}

impl Incremental for Queues {
    fn invoked(&mut self, op: &OpRef<'_>) {
        if self.roles.of(op) == Role::Add
            && let Some(id) = self.elements.value(op, op.input())
        {
            self.open.begins(id);
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.take_in(op);
        if self.roles.of(op) == Role::Add
            && let Some(id) = self.elements.value(op, op.input())
        {
            self.open.ends(id);
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.violated.filter(|_| !self.micro)
    }

    fn finish(self: Box<Self>) -> Findings {
        self.told(None)
    }
}

/// Did everything that came out go in before? See the module.
///
/// Violations: `unexpected`, `aborted-effect`, `dequeued-before-enqueued`, `duplicate` unless the guarantee allows it, `reorder` under
/// fifo. Nothing dequeued: unknown.
pub fn queue(history: &History, options: &QueueOptions, examples: usize) -> Findings {
    checked(history, Asks::Queue, options, examples)
}

/// Did everything that went in come out, and nothing else? See the module.
///
/// Violations: `lost`, and those of [`queue`]; `duplicate` is noted unless the guarantee forbids it.
pub fn total_queue(history: &History, options: &QueueOptions, examples: usize) -> Findings {
    checked(history, Asks::Total, options, examples)
}

fn checked(history: &History, asks: Asks, options: &QueueOptions, examples: usize) -> Findings {
    if let Some(refused) = refuse_without_order(history, examples) {
        return refused;
    }
    by_key(history, examples, |part: Part<'_>| {
        let mut state = Queues::new(asks, *options, examples, false);
        part.ops().for_each(|op| state.take_in(&op));
        // Out of order of completions, what was found on the way says nothing.
        state.violated = None;
        state.told(Some(part.history()))
    })
}

/// Did the operation end well and give something?
pub(crate) fn gave(op: &OpRef<'_>) -> bool {
    op.status() == Ended::Ok && !op.output().is_nil()
}
