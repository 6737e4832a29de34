//! What was sent and polled, as flat columns?
//!
//! A *message* is a value of a partition, numbered when first seen. An operation is a run of *touches*: a touch is a message, sent
//! or polled, in four bytes. Where a message stands is written once, beside it; the few places that contradict that are kept
//! apart. So memory is 32 bytes a message, 4 a touch, 26 an operation, and a message costs the same at whatever offset it stands.
//!
//! Operations come as they complete. Offsets of polls are taken from all of them, as consumers are given safe data whatever becomes of
//! their transactions; offsets of sends only where they are known to have happened, for which those of unknown end wait.

use elench_formats::history::OpRef;
use elench_formats::text::TextPool;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::lag::Lag;
use super::read::{self, Moved, What};
use super::scan::{self, Sink, Val};
use crate::findings::ended;
use crate::outcome::Status;

/// Stands for no operation, no message, no position.
pub(super) const NONE: u32 = u32::MAX;

/// Stands for no offset.
pub(super) const NOWHERE: i64 = i64::MIN;

/// In a touch: it was sent, and its offset was told and is to be trusted.
pub(super) const SENT: u32 = 1 << 31;
pub(super) const TOLD: u32 = 1 << 30;
const MESSAGE: u32 = TOLD - 1;

/// Values below this are kept as texts: their codes stand for texts.
const LOW: i64 = i64::MIN + (1 << 33);

/// A value of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Its value's code.
    pub(super) value: i64,
    /// Where it first was said to stand.
    pub(super) offset: i64,
    /// Its partition.
    pub(super) key: u32,
    /// Who sent it: one that is known to have happened, if there is one; else one that may have.
    pub(super) writer: u32,
    /// Who said where it stands.
    pub(super) placed: u32,
    /// Sends that happened or may have, and sends that failed.
    pub(super) live: u8,
    pub(super) dead: u8,
    /// Was a send of it acknowledged?
    pub(super) acked: bool,
    /// Did an acknowledged poll return it?
    pub(super) read: bool,
}

impl Message {
    /// Did exactly one operation try to send it?
    pub(super) fn is_unique(&self) -> bool {
        self.live + self.dead == 1
    }
}

/// The message of a touch.
#[inline]
pub(super) fn message_of(touch: u32) -> u32 {
    touch & MESSAGE
}

/// Operations in the order in which they completed.
#[derive(Debug, Default)]
pub(super) struct Ops {
    /// Event indices of invocations and completions; `u64::MAX` for no completion.
    pub(super) index: Vec<u64>,
    pub(super) complete: Vec<u64>,
    /// Processes by number; [`NONE`] where unknown.
    pub(super) process: Vec<u32>,
    pub(super) status: Vec<Status>,
    pub(super) what: Vec<What>,
    /// Where its touches end. Those of an assignment are partitions.
    pub(super) end: Vec<u32>,
}

impl Ops {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The touches of an operation, by their places.
    pub(super) fn range(&self, op: u32) -> std::ops::Range<usize> {
        let start = if op == 0 { 0 } else { self.end[op as usize - 1] as usize };
        start..self.end[op as usize] as usize
    }
}

/// A partition.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// Its name, as first written.
    pub(super) name: String,
    messages: Numbers,
    /// The highest offset that an acknowledged poll returned, and which poll.
    pub(super) bound: Option<(i64, u32)>,
    /// What the last operation that touched it did there.
    pub(super) now: Now,
}

/// What one operation did to a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    op: u32,
    last_polled: i64,
    /// The highest offsets polled, and polled or sent; [`NOWHERE`] for none.
    pub(super) polled: i64,
    pub(super) known: i64,
}

impl Default for Now {
    fn default() -> Self {
        Now { op: NONE, last_polled: NOWHERE, polled: NOWHERE, known: NOWHERE }
    }
}

/// Numbers by code: small ones by table, as most values count up.
#[derive(Debug, Default)]
struct Numbers {
    table: Vec<u32>,
    rest: HashMap<i64, u32, FixedState>,
    count: usize,
}

impl Numbers {
    /// The number of a code, `new` if it was not seen before.
    #[inline]
    fn of(&mut self, code: i64, new: u32) -> u32 {
        let dense = code >= 0 && (code as u64) < 8 * self.count as u64 + 1024;
        let number = if dense {
            let at = code as usize;
            if at >= self.table.len() {
                self.grow(at);
            }
            &mut self.table[at]
        } else {
            self.rest.entry(code).or_insert(NONE)
        };
        if *number == NONE {
            *number = new;
            self.count += 1;
        }
        *number
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        let old = self.table.len() as i64;
        self.table.resize((at + 1).next_power_of_two(), NONE);
        let new = old..self.table.len() as i64;
        for (code, number) in self.rest.extract_if(|code, _| new.contains(code)) {
            self.table[code as usize] = number;
        }
    }
}

/// All that operations said.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) messages: Vec<Message>,
    pub(super) ops: Ops,
    pub(super) touches: Vec<u32>,
    pub(super) keys: Vec<Key>,
    /// Where a touch says something else than its message: the offset, by the touch's place.
    pub(super) elsewhere: HashMap<u32, i64, FixedState>,
    /// Further offsets of messages, and who told them.
    pub(super) more: Vec<(u32, i64, u32)>,
    /// Offsets of sends of unknown end, by the touch's place.
    asides: Vec<(u32, i64, u32)>,
    /// Partitions that moved while an operation ran; none for all of them.
    pub(super) rebalanced: HashMap<u32, Option<Vec<u32>>, FixedState>,
    /// Assignments that start over.
    pub(super) rewinds: Vec<u32>,
    pub(super) counts: [[u64; 3]; 6],
    pub(super) lag: Lag,
    /// What cannot be judged, and why.
    pub(super) refused: Option<String>,
    /// What is known to be wrong whatever may follow.
    pub(super) early: Option<&'static str>,
    /// Processes by number.
    pub(super) processes: Vec<i64>,
    process_numbers: HashMap<i64, u32, FixedState>,
    int_keys: HashMap<i64, u32, FixedState>,
    text_keys: HashMap<String, u32, FixedState>,
    texts: TextPool,
    /// Partitions that the operation at hand touches.
    touched: Vec<u32>,
    last_key: Option<(i64, u32)>,
}

impl Collected {
    /// Takes an operation that ended, or never will.
    pub(super) fn completed(&mut self, op: &OpRef<'_>) {
        let Some(what) = op.f().and_then(What::of) else { return };
        let status = ended(op);
        self.counts[what as usize][status as usize] += 1;
        if self.refused.is_some() {
            return;
        }
        let number = self.ops.len() as u32;
        self.touched.clear();
        self.moves(op, number);
        let done = match what {
            What::Assign | What::Subscribe => self.assignment(op, number),
            What::Crash => Ok(()),
            What::Send | What::Poll | What::Txn => {
                read::operation(op, &mut Reader { all: self, op: number, status, quiet: None })
            }
        };
        if let Err(why) = done {
            self.refused.get_or_insert(why);
        }
        if self.messages.len() >= MESSAGE as usize || self.touches.len() >= NONE as usize {
            self.refused
                .get_or_insert("more than 1,073,741,822 messages, or four times as many sends and polls".into());
        }
        let process = op.process().map_or(NONE, |p| {
            let next = self.processes.len() as u32;
            let number = *self.process_numbers.entry(p).or_insert(next);
            if number == next {
                self.processes.push(p);
            }
            number
        });
        let ops = &mut self.ops;
        ops.index.push(op.index());
        ops.complete.push(op.complete_index().unwrap_or(u64::MAX));
        ops.process.push(process);
        ops.status.push(status);
        ops.what.push(what);
        ops.end.push(self.touches.len() as u32);
        self.measure(op, what, status, process, number);
    }

    fn measure(&mut self, op: &OpRef<'_>, what: What, status: Status, process: u32, number: u32) {
        let assigned = self.ops.range(number);
        let times = op.invoke_time().zip(op.complete_time());
        match what {
            What::Assign if status == Status::Ok => {
                let rewind = self.rewinds.last() == Some(&number);
                self.lag.assigned(process, &self.touches[assigned], rewind);
            }
            What::Subscribe if status == Status::Ok => self.lag.assigned(process, &[], true),
            What::Crash if status != Status::Fail => self.lag.assigned(process, &[], true),
            What::Send | What::Poll | What::Txn if status != Status::Fail => {
                let Some((invoked, completed)) = times else { return };
                let touched = self.touched.iter().map(|&key| (key, self.keys[key as usize].now));
                let polls = status == Status::Ok && what != What::Send;
                self.lag.completed(process, polls, (invoked, completed), touched);
            }
            _ => {}
        }
    }

    fn assignment(&mut self, op: &OpRef<'_>, number: u32) -> Result<(), String> {
        let mut keys = Vec::new();
        let all = read::assigned(op, |key| keys.push(self.key(key)));
        self.touches.append(&mut keys);
        if op.extra("seek-to-beginning?").or_else(|| op.extra("seek-to-beginning")) == Some("true") {
            self.rewinds.push(number);
        }
        all.ok_or_else(|| {
            format!("operation {} ({}) names no vector of partitions", op.index(), op.f().unwrap_or("nil"))
        })
    }

    fn moves(&mut self, op: &OpRef<'_>, number: u32) {
        match read::rebalanced(op) {
            None => {}
            Some(Moved::Unknown) => {
                self.rebalanced.insert(number, None);
            }
            Some(Moved::Keys(names)) => {
                let keys = names.iter().map(|name| match name.parse() {
                    Ok(n) => self.key(Val::Int(n)),
                    Err(_) => self.key(Val::Text(name)),
                });
                let keys = keys.collect();
                self.rebalanced.insert(number, Some(keys));
            }
        }
    }

    /// Did a partition move between consumers while an operation ran?
    pub(super) fn is_moved(&self, op: u32, key: u32) -> bool {
        !self.rebalanced.is_empty()
            && self.rebalanced.get(&op).is_some_and(|keys| keys.as_ref().is_none_or(|keys| keys.contains(&key)))
    }

    /// The number of a partition.
    #[inline]
    fn key(&mut self, named: Val<'_>) -> u32 {
        match scan::name(named) {
            Val::Int(n) => match self.last_key {
                Some((last, key)) if last == n => key,
                _ => {
                    let next = self.keys.len() as u32;
                    let key = *self.int_keys.entry(n).or_insert(next);
                    if key == next {
                        self.keys.push(Key { name: n.to_string(), ..Key::default() });
                    }
                    self.last_key = Some((n, key));
                    key
                }
            },
            Val::Text(name) => match self.text_keys.get(name) {
                Some(&key) => key,
                None => {
                    let key = self.keys.len() as u32;
                    self.text_keys.insert(name.to_string(), key);
                    let Val::Text(full) = named else { return key };
                    self.keys.push(Key { name: full.to_string(), ..Key::default() });
                    key
                }
            },
        }
    }

    /// The code of a value; none when there is no more room for texts.
    #[inline]
    fn code(&mut self, value: Val<'_>) -> Option<i64> {
        match value {
            Val::Int(n) if n >= LOW => Some(n),
            Val::Int(n) => self.texts.try_intern(&n.to_string()).map(|id| i64::MIN + i64::from(id)),
            Val::Text(text) => self.texts.try_intern(text).map(|id| i64::MIN + i64::from(id)),
        }
    }

    /// A message's value as EDN.
    pub(super) fn value(&self, message: u32) -> String {
        match self.messages[message as usize].value {
            n if n >= LOW => n.to_string(),
            code => self.texts.get((code - i64::MIN) as u32).to_string(),
        }
    }

    /// A message's partition by name.
    pub(super) fn key_name(&self, message: u32) -> &str {
        &self.keys[self.messages[message as usize].key as usize].name
    }

    /// The number of a message.
    #[inline]
    fn message(&mut self, key: u32, value: Val<'_>) -> Option<u32> {
        let code = self.code(value)?;
        let new = self.messages.len() as u32;
        let number = self.keys[key as usize].messages.of(code, new);
        if number == new {
            self.messages.push(Message {
                value: code,
                offset: NOWHERE,
                key,
                writer: NONE,
                placed: NONE,
                live: 0,
                dead: 0,
                acked: false,
                read: false,
            });
        }
        Some(number)
    }

    /// A touch says where its message stands.
    #[inline]
    fn place(&mut self, touch: u32, offset: i64, op: u32) {
        let number = message_of(self.touches[touch as usize]);
        self.touches[touch as usize] |= TOLD;
        let message = &mut self.messages[number as usize];
        if message.offset == NOWHERE {
            message.offset = offset;
            message.placed = op;
        } else if message.offset != offset {
            self.elsewhere.insert(touch, offset);
            self.more.push((number, offset, op));
        }
    }

    /// Takes the offsets of those sends of unknown end that are now known to have happened.
    pub(super) fn settle(&mut self, happened: impl Fn(u32, &Message) -> bool) {
        for (touch, offset, op) in std::mem::take(&mut self.asides) {
            let message = self.messages[message_of(self.touches[touch as usize]) as usize];
            if happened(op, &message) {
                self.place(touch, offset, op);
            }
        }
    }

    /// Of messages that several sent and none acknowledged, takes as the writer one that is known to have committed, if there is one.
    pub(super) fn attribute(&mut self, committed: &[bool]) {
        for op in (0..self.ops.len() as u32).filter(|&op| committed[op as usize]) {
            if self.ops.status[op as usize] != Status::Info {
                continue;
            }
            for &touch in &self.touches[self.ops.range(op)] {
                let message = &mut self.messages[message_of(touch) as usize];
                if touch & SENT != 0 && !message.acked && !message.is_unique() {
                    message.writer = op;
                }
            }
        }
    }

    /// Bytes held, nearly.
    pub(super) fn memory(&self) -> u64 {
        let messages = self.messages.capacity() * size_of::<Message>();
        let numbers: usize =
            self.keys.iter().map(|k| k.messages.table.capacity() * 4 + k.messages.rest.capacity() * 17).sum();
        (messages + numbers + self.touches.capacity() * 4 + self.ops.len() * 26 + self.texts.text_bytes()) as u64
    }
}

/// Takes in what one operation says.
struct Reader<'a> {
    all: &'a mut Collected,
    op: u32,
    status: Status,
    quiet: Option<bool>,
}

impl Reader<'_> {
    #[inline]
    fn touch(&mut self, key: u32, value: Val<'_>, sent: u32) -> Option<u32> {
        let all = &mut *self.all;
        let Some(message) = all.message(key, value) else {
            all.refused.get_or_insert("messages are more than 4 GiB of text".into());
            return None;
        };
        let now = &mut all.keys[key as usize].now;
        if now.op != self.op {
            *now = Now { op: self.op, ..Now::default() };
            all.touched.push(key);
        }
        all.touches.push(message | sent);
        Some(message)
    }

    /// Is a poll that goes back within its operation to be excused, as partitions moved?
    fn is_excused(&mut self, key: u32) -> bool {
        let any = *self.quiet.get_or_insert_with(|| self.all.rebalanced.contains_key(&self.op));
        any && self.all.is_moved(self.op, key)
    }
}

impl Sink for Reader<'_> {
    #[inline]
    fn send(&mut self, key: Val<'_>, offset: Option<i64>, value: Val<'_>) {
        let key = self.all.key(key);
        let Some(number) = self.touch(key, value, SENT) else { return };
        let all = &mut *self.all;
        let message = &mut all.messages[number as usize];
        let ok = self.status == Status::Ok;
        if self.status == Status::Fail {
            message.dead = (message.dead + 1).min(99);
        } else {
            message.live = (message.live + 1).min(99);
        }
        let first_that_may = self.status != Status::Fail && message.live == 1;
        if message.writer == NONE || first_that_may || ok && !message.acked {
            message.writer = self.op;
        }
        if ok && !message.acked {
            message.acked = true;
            all.lag.unseen += u64::from(!message.read);
        }
        // What is not acknowledged by the leader of a partition has no offset: clients say -1.
        let Some(offset) = offset.filter(|&o| o >= 0 && self.status != Status::Fail) else { return };
        let now = &mut all.keys[key as usize].now;
        now.known = now.known.max(offset);
        let touch = all.touches.len() as u32 - 1;
        if ok {
            all.place(touch, offset, self.op);
        } else {
            all.asides.push((touch, offset, self.op));
        }
    }

    #[inline]
    fn poll(&mut self, key: Val<'_>, offset: Option<i64>, value: Val<'_>) {
        let key = self.all.key(key);
        let Some(number) = self.touch(key, value, 0) else { return };
        let ok = self.status == Status::Ok;
        let all = &mut *self.all;
        let message = &mut all.messages[number as usize];
        if ok && !message.read {
            message.read = true;
            all.lag.unseen -= u64::from(message.acked);
        }
        let Some(offset) = offset.filter(|&o| o >= 0) else { return };
        let state = &mut all.keys[key as usize];
        let back = offset <= state.now.last_polled;
        state.now.last_polled = offset;
        state.now.polled = state.now.polled.max(offset);
        state.now.known = state.now.known.max(offset);
        if ok && state.bound.is_none_or(|(highest, _)| offset > highest) {
            state.bound = Some((offset, self.op));
        }
        all.place(all.touches.len() as u32 - 1, offset, self.op);
        if back && self.all.early.is_none() && !self.is_excused(key) {
            self.all.early = Some("int-nonmonotonic-poll");
        }
    }
}
