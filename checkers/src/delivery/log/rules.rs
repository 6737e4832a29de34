//! Which rules did sends and polls break?
//!
//! One walk over all touches in the order in which operations completed, and one over all messages. O(touches + messages), and a look
//! into a small table per operation and partition.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Options;
use super::collect::{Collected, NONE, NOWHERE, SENT, message_of};
use super::cycles::Links;
use super::order::Order;
use super::read::What;
use crate::findings::{Example, Findings, Weight};
use crate::outcome::{OpId, Status};

/// Where a process last was in a partition.
#[derive(Clone, Copy, Debug)]
struct Last {
    op: u32,
    touch: u32,
    position: Option<u32>,
    subscribed: bool,
}

#[derive(Debug, Default)]
struct Process {
    polls: HashMap<u32, Last, FixedState>,
    sends: HashMap<u32, Last, FixedState>,
    subscribed: bool,
}

/// What the operation at hand did to a partition so far.
#[derive(Clone, Copy, Debug)]
struct Within {
    op: u32,
    polled: Option<Last>,
    sent: Option<Last>,
    /// The highest position polled, and whether some poll has none.
    top: Option<u32>,
    clouded: bool,
}

const OUTSIDE: Within = Within { op: NONE, polled: None, sent: None, top: None, clouded: false };

/// Two touches of one partition, one after the other.
#[derive(Clone, Copy)]
struct Pair {
    before: Last,
    after: Last,
}

impl Pair {
    /// By how many positions it goes on; 1 is the next one. None where that is not known.
    fn step(&self) -> Option<i64> {
        Some(i64::from(self.after.position?) - i64::from(self.before.position?))
    }
}

pub(super) struct Rules<'a> {
    pub(super) all: &'a Collected,
    pub(super) order: &'a Order,
    pub(super) committed: &'a [bool],
    pub(super) options: &'a Options,
    pub(super) findings: &'a mut Findings,
    pub(super) links: Links,
}

impl Rules<'_> {
    /// Applies all of them.
    pub(super) fn apply(mut self) -> Links {
        self.positions();
        self.duplicates();
        self.messages();
        let mut processes: Vec<Process> = Vec::new();
        processes.resize_with(self.all.processes.len(), Process::default);
        let mut within = vec![OUTSIDE; self.all.keys.len()];
        let mut touched = Vec::new();
        let lowest_sent = self.lowest_sent();
        for op in 0..self.all.ops.len() as u32 {
            // Whoever is unknown has no past.
            let mut nobody = Process::default();
            let process = processes.get_mut(self.all.ops.process[op as usize] as usize).unwrap_or(&mut nobody);
            match self.all.ops.what[op as usize] {
                What::Assign | What::Subscribe | What::Crash => self.assigned(op, process),
                _ => self.operation(op, process, &mut within, &mut touched, &lowest_sent),
            }
            // Where it polled before a partition moved says nothing of where it goes on.
            match self.all.rebalanced.get(&op) {
                None => {}
                Some(None) => process.polls.clear(),
                Some(Some(keys)) => process.polls.retain(|key, _| !keys.contains(key)),
            }
        }
        self.links
    }

    /// A process keeps its place in those partitions that it keeps, unless it starts over.
    fn assigned(&self, op: u32, process: &mut Process) {
        let ops = &self.all.ops;
        if ops.status[op as usize] == Status::Fail {
            return;
        }
        let mut keys = self.all.touches[ops.range(op)].to_vec();
        keys.sort_unstable();
        let kept = |key: &u32| keys.binary_search(key).is_ok();
        process.polls.retain(|key, _| kept(key));
        process.sends.retain(|key, _| kept(key));
        if self.all.rewinds.binary_search(&op).is_ok() {
            process.polls.clear();
        }
        match ops.what[op as usize] {
            What::Subscribe => {
                process.subscribed = true;
                // However it goes on, in between the system chose.
                process.polls.values_mut().for_each(|last| last.subscribed = true);
            }
            // Of one of unknown end the system may still be choosing.
            What::Assign if ops.status[op as usize] == Status::Ok => process.subscribed = false,
            _ => {}
        }
    }

    fn operation(
        &mut self,
        op: u32,
        process: &mut Process,
        within: &mut [Within],
        touched: &mut Vec<u32>,
        lowest_sent: &[i64],
    ) {
        touched.clear();
        let status = self.all.ops.status[op as usize];
        let subscribed = process.subscribed || self.options.subscribe;
        for touch in self.all.ops.range(op) {
            let word = self.all.touches[touch];
            let number = message_of(word);
            let key = self.all.messages[number as usize].key;
            let slot = &mut within[key as usize];
            if slot.op != op {
                *slot = Within { op, ..OUTSIDE };
                touched.push(key);
            }
            let position = self.order.position(self.all, touch);
            let now = Last { op, touch: touch as u32, position, subscribed };
            if word & SENT == 0 {
                slot.top = slot.top.max(position);
                slot.clouded |= position.is_none();
                match slot.polled.replace(now) {
                    Some(before) => self.polled_within(key, Pair { before, after: now }),
                    None => self.polled_after(key, process.polls.get(&key).copied(), now),
                }
                self.poll(op, touch, status, lowest_sent);
            } else if status != Status::Fail {
                match slot.sent.replace(now) {
                    Some(before) => self.sent_within(key, Pair { before, after: now }),
                    None => self.sent_after(process.sends.get(&key).copied(), now),
                }
            }
        }
        for &key in touched.iter() {
            let slot = &within[key as usize];
            // A transaction that does not commit leaves its consumer where it was.
            if let Some(last) = slot.polled.filter(|_| status == Status::Ok) {
                process.polls.insert(key, last);
            }
            if let Some(last) = slot.sent.filter(|last| last.position.is_some()) {
                process.sends.insert(key, last);
            }
            if let Some(top) = slot.top.filter(|_| !slot.clouded && self.committed[op as usize]) {
                self.links.polled_up_to.push((op, top));
            }
        }
    }

    /// What a poll says of the message that it returned, and of who sent it.
    fn poll(&mut self, op: u32, touch: usize, status: Status, lowest_sent: &[i64]) {
        let number = message_of(self.all.touches[touch]);
        let message = &self.all.messages[number as usize];
        let writer = message.writer;
        let (all, findings) = (self.all, &mut *self.findings);
        let ids = || [writer, op].map(|op| OpId(all.ops.index[op as usize]));
        let told = || format!("{} of partition {}", all.value(number), all.key_name(number));
        if message.is_unique() && writer == op {
            let weight = if self.options.transactional { Weight::Violation } else { Weight::Note };
            findings.add("precommitted-read", weight, || {
                let text = format!("{} polls {}, which it sent itself and had not committed", ids()[1], told());
                Example::new([ids()[1]], text)
            });
        }
        if status == Status::Ok && message.live == 0 {
            if message.dead > 0 {
                findings.violation("G1a", || {
                    Example::new(ids(), format!("{} polled {}, which {} failed to send", ids()[1], told(), ids()[0]))
                });
            } else {
                let inside = self.order.offset_of(all, touch) > lowest_sent[message.key as usize];
                let (kind, weight) =
                    if inside { ("unexpected", Weight::Violation) } else { ("unknown-origin", Weight::Note) };
                findings.add(kind, weight, || {
                    let reader = OpId(all.ops.index[op as usize]);
                    let more = if inside { ", though it stands among messages that were sent" } else { "" };
                    Example::new([reader], format!("{reader} polled {}, which nobody sent{more}", told()))
                });
            }
        }
        let live = message.is_unique() && message.live == 1 && writer != op;
        if live && self.committed[op as usize] && self.committed[writer as usize] {
            if self.links.wr.last() != Some(&(writer, op)) {
                self.links.wr.push((writer, op));
            }
            if status == Status::Ok && all.ops.status[writer as usize] != Status::Ok {
                self.links.seen.entry(writer).or_insert(all.ops.complete[op as usize]);
            }
        }
    }

    fn polled_within(&mut self, key: u32, pair: Pair) {
        let Some(step) = pair.step().filter(|&step| step != 1 && !self.all.is_moved(pair.after.op, key)) else {
            return;
        };
        let kind = if step > 1 { "int-poll-skip" } else { "int-nonmonotonic-poll" };
        self.report(kind, Weight::Violation, pair, "polled");
    }

    fn polled_after(&mut self, key: u32, before: Option<Last>, after: Last) {
        let Some(before) = before else { return };
        let pair = Pair { before, after };
        let Some(step) = pair.step().filter(|&step| step != 1 && !self.all.is_moved(after.op, key)) else { return };
        let kind = if step > 1 { "poll-skip" } else { "nonmonotonic-poll" };
        let free = before.subscribed || after.subscribed;
        self.report(kind, if free { Weight::Note } else { Weight::Violation }, pair, "polled");
    }

    fn sent_within(&mut self, key: u32, pair: Pair) {
        match pair.step() {
            _ if self.all.is_moved(pair.after.op, key) => {}
            Some(step) if step > 1 => self.report("int-send-skip", Weight::Note, pair, "sent"),
            Some(step) if step < 0 => self.report("int-nonmonotonic-send", Weight::Violation, pair, "sent"),
            _ => {}
        }
    }

    fn sent_after(&mut self, before: Option<Last>, after: Last) {
        let Some(before) = before else { return };
        let pair = Pair { before, after };
        if pair.step().is_some_and(|step| step < 0) {
            self.report("nonmonotonic-send", Weight::Violation, pair, "sent");
        }
    }

    fn report(&mut self, kind: &'static str, weight: Weight, pair: Pair, did: &str) {
        let (all, order) = (self.all, self.order);
        self.findings.add(kind, weight, || {
            let place = |last: Last| {
                let number = message_of(all.touches[last.touch as usize]);
                let offset = last.position.map_or(NOWHERE, |p| order.offset(p));
                format!("{} at offset {offset}", all.value(number))
            };
            let id = |last: Last| OpId(all.ops.index[last.op as usize]);
            let (before, after) = (pair.before, pair.after);
            let key = all.key_name(message_of(all.touches[after.touch as usize]));
            let between = match (before.position, after.position) {
                (Some(a), Some(b)) if b > a + 1 => {
                    let first = order.messages(a + 1).first().map_or(String::new(), |&m| all.value(m));
                    format!(", past {} more, the first {first} at offset {}", b - a - 1, order.offset(a + 1))
                }
                _ => String::new(),
            };
            let (then, ids) = match before.op == after.op {
                true => ("then".to_string(), vec![id(after)]),
                false => (format!("and {} {did} next", id(after)), vec![id(before), id(after)]),
            };
            let (before_text, after_text) = (place(before), place(after));
            Example {
                key: Some(key.to_string()),
                text: format!("{} {did} {before_text}, {then} {after_text}{between}", id(before)),
                ops: ids,
            }
        });
    }

    /// Offsets that hold more than one value.
    fn positions(&mut self) {
        let (all, order) = (self.all, self.order);
        for position in 0..order.len() as u32 {
            let messages = order.messages(position);
            if messages.len() < 2 {
                continue;
            }
            let offset = order.offset(position);
            self.findings.violation("inconsistent-offsets", || {
                let told = |&m: &u32| {
                    let spread = order.spread().find(|all| all[0].0 == m);
                    let teller = spread.and_then(|s| s.iter().find(|&&(_, o, _)| o == offset)).map(|&(_, _, op)| op);
                    let teller = OpId(all.ops.index[teller.unwrap_or(all.messages[m as usize].placed) as usize]);
                    (teller, format!("{} ({teller})", all.value(m)))
                };
                let (ops, texts): (Vec<_>, Vec<_>) = messages.iter().take(8).map(told).unzip();
                let key = all.key_name(messages[0]);
                let text = format!("offset {offset} holds {} values: {}", messages.len(), texts.join(", "));
                Example { key: Some(key.to_string()), ops, text }
            });
        }
    }

    /// Messages that stand more often than they were sent.
    fn duplicates(&mut self) {
        let all = self.all;
        for places in self.order.spread() {
            let number = places[0].0;
            let message = &all.messages[number as usize];
            if places.len() <= usize::from(message.live.max(1)) {
                continue;
            }
            self.findings.violation("duplicate", || {
                let at =
                    |&(_, offset, op): &(u32, i64, u32)| format!("{offset} ({})", OpId(all.ops.index[op as usize]));
                let offsets: Vec<_> = places.iter().take(8).map(at).collect();
                let tellers = places.iter().take(8).map(|&(_, _, op)| op);
                let writer = Some(message.writer).filter(|&w| w != NONE);
                let mut ops: Vec<_> =
                    writer.into_iter().chain(tellers).map(|op| OpId(all.ops.index[op as usize])).collect();
                ops.sort_unstable();
                ops.dedup();
                let text = format!("{} stands at {} offsets: {}", all.value(number), places.len(), offsets.join(", "));
                Example { key: Some(all.key_name(number).to_string()), ops, text }
            });
        }
    }

    /// Messages that should have been polled, or may yet be.
    fn messages(&mut self) {
        let all = self.all;
        for (number, message) in all.messages.iter().enumerate().filter(|(_, m)| !m.read && m.writer != NONE) {
            let number = number as u32;
            let writer = OpId(all.ops.index[message.writer as usize]);
            let happened = message.acked || self.options.transactional && self.committed[message.writer as usize];
            let offset = self.order.highest(all, number);
            let bound =
                all.keys[message.key as usize].bound.filter(|&(highest, _)| offset != NOWHERE && offset < highest);
            let key = || Some(all.key_name(number).to_string());
            if let Some((highest, reader)) = bound.filter(|_| happened) {
                self.findings.violation("lost-write", || {
                    let reader = OpId(all.ops.index[reader as usize]);
                    let text = format!(
                        "{writer} sent {} to offset {offset}, which no acknowledged poll returned, though {reader} polled up to offset {highest}",
                        all.value(number)
                    );
                    Example { key: key(), ops: vec![writer, reader], text }
                });
            }
            if message.acked {
                let weight = if self.options.unseen { Weight::Violation } else { Weight::Note };
                self.findings.add("unseen", weight, || {
                    let text = format!("{writer} sent {}, which no acknowledged poll returned", all.value(number));
                    Example { key: key(), ops: vec![writer], text }
                });
            }
        }
    }

    /// By partition: the lowest offset of a message that was sent. What stands below may have been there before.
    fn lowest_sent(&self) -> Vec<i64> {
        let sent =
            |&position: &u32| self.order.messages(position).iter().any(|&m| self.all.messages[m as usize].live > 0);
        let lowest =
            |key: u32| self.order.of_key(key).find(sent).map_or(i64::MAX, |position| self.order.offset(position));
        (0..self.all.keys.len() as u32).map(lowest).collect()
    }
}
