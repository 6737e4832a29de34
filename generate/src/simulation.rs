//! The simulation: clients, the heap of what happens next, and what an operation does to the state.
//!
//! Each client has one entry in the heap, which moves from invocation to snapshot to effect to completion and on to the
//! next invocation. An unknown operation that takes effect after its completion gets an entry of its own for that. What
//! has no effect has no point of effect. Ties in time are broken by entry, and as invocations and completions come out in
//! the very order in which points of effect are worked off, ties need no argument.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use elench_formats::Result;
use elench_formats::event::{EventBatch, EventType};

use crate::emit::Emitter;
use crate::fault::FaultState;
use crate::keys::{Keys, NIL};
use crate::random::{Odds, Random};
use crate::{GenOptions, Generated, Isolation, Values, Workload};

/// An operation, or a micro-operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Cas,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) key: u32,
    /// What clients call the key.
    pub(super) id: i64,
    /// What is written, or what a read of a register returned.
    pub(super) value: i64,
    /// What a cas expects.
    pub(super) old: i64,
    /// In the snapshot: the length of the list, or the value of the register.
    pub(super) seen: i64,
    /// In the snapshot: the key's version.
    pub(super) version: u64,
    /// Where in [`Op::lists`] lies what a read of a list returned.
    span: (u32, u32),
    /// A fault: the append goes before that many elements.
    pub(super) tuck: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Snapshot,
    Effect,
    Complete,
}

#[derive(Clone, Debug)]
pub(super) struct Op {
    /// Event index of its invocation.
    pub(super) index: u64,
    stage: Stage,
    pub(super) outcome: EventType,
    /// Does it take effect after its completion?
    late: bool,
    effect_at: u64,
    complete_at: u64,
    pub(super) steps: Vec<Step>,
    lists: Vec<i64>,
    /// A fault: its writes are forgotten.
    pub(super) lost: bool,
}

impl Default for Op {
    fn default() -> Self {
        Op {
            index: 0,
            stage: Stage::Idle,
            outcome: EventType::Ok,
            late: false,
            effect_at: 0,
            complete_at: 0,
            steps: Vec::new(),
            lists: Vec::new(),
            lost: false,
        }
    }
}

impl Op {
    /// What a read of a list returned.
    pub(super) fn list(&self, step: &Step) -> &[i64] {
        &self.lists[step.span.0 as usize..step.span.1 as usize]
    }

    /// Does it write this key before its `before`-th step?
    pub(super) fn writes_before(&self, key: u32, before: usize) -> bool {
        self.steps[..before].iter().any(|s| s.kind != Kind::Read && s.key == key)
    }

    /// Does it write this key?
    pub(super) fn writes(&self, key: u32) -> bool {
        self.writes_before(key, self.steps.len())
    }

    /// Takes a snapshot of what it touches.
    fn snapshot(&mut self, keys: &Keys, lists: bool) {
        for step in &mut self.steps {
            let key = keys.at(step.key);
            step.seen = if lists { key.list.len() as i64 } else { key.value };
            step.version = key.version;
        }
    }

    /// Reads from the snapshot and writes to the state, unless a key that it writes has changed since, or a cas finds
    /// another value than it expects. Did it?
    fn commit(&mut self, keys: &mut Keys, lists: bool) -> bool {
        let unchanged = |s: &Step| match s.kind {
            Kind::Read => true,
            Kind::Write => keys.at(s.key).version == s.version,
            Kind::Cas => keys.at(s.key).value == s.old,
        };
        if !self.steps.iter().all(unchanged) {
            return false;
        }
        for i in 0..self.steps.len() {
            if self.steps[i].kind == Kind::Read {
                if lists { self.read_list(i, keys) } else { self.read_register(i) }
            }
        }
        if !self.lost {
            self.write(keys, lists);
        }
        for step in self.steps.iter().filter(|s| s.kind == Kind::Read) {
            keys.at_mut(step.key).read_since = true;
        }
        true
    }

    fn read_list(&mut self, i: usize, keys: &Keys) {
        let Step { key, seen, .. } = self.steps[i];
        let start = self.lists.len();
        self.lists.extend_from_slice(&keys.at(key).list[..seen as usize]);
        let own = self.steps[..i].iter().filter(|s| s.kind == Kind::Write && s.key == key);
        self.lists.extend(own.map(|s| s.value));
        self.steps[i].span = (start as u32, self.lists.len() as u32);
    }

    fn read_register(&mut self, i: usize) {
        let Step { key, seen, .. } = self.steps[i];
        let own = self.steps[..i].iter().rfind(|s| s.kind == Kind::Write && s.key == key);
        self.steps[i].value = own.map_or(seen, |s| s.value);
    }

    fn write(&mut self, keys: &mut Keys, lists: bool) {
        for step in self.steps.iter().filter(|s| s.kind != Kind::Read) {
            keys.elements += u64::from(lists);
            let key = keys.at_mut(step.key);
            if lists {
                let at = key.list.len().saturating_sub(step.tuck);
                key.list.insert(at, step.value);
            } else {
                key.value = step.value;
            }
            key.version += 1;
            key.writer = self.index;
            key.read_since = false;
            key.acknowledged = None;
        }
    }
}

/// What happens next to a client, the earliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    at: u64,
    slot: u32,
}

const NEMESIS: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Simulation<'a> {
    options: &'a GenOptions,
    odds: Shares,
    lists: bool,
    random: Random,
    keys: Keys,
    /// One a client, and behind them operations that will take effect late.
    slots: Vec<Op>,
    free: Vec<u32>,
    /// The process of each client.
    processes: Vec<i64>,
    heap: BinaryHeap<Reverse<Next>>,
    emitter: Emitter,
    fault: Option<FaultState>,
    fault_from: u64,
    invoked: u64,
    open: u64,
    nemesis_active: bool,
    outcomes: [u64; 3],
    lasted: u64,
    peak_held: u64,
    #[cfg(test)]
    pub(super) effects: Vec<u64>,
}

#[derive(Debug)]
struct Shares {
    info: Odds,
    fail: Odds,
    half: Odds,
    writes: Odds,
    cas: Odds,
    think_ns: u64,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(options: &'a GenOptions, seed: u64) -> Simulation<'a> {
        let mut random = Random::new(seed);
        let mut heap: BinaryHeap<_> =
            (0..options.clients).map(|slot| Reverse(Next { at: random.below(options.mean_ns), slot })).collect();
        if options.nemesis_ns > 0 {
            heap.push(Reverse(Next { at: options.nemesis_ns, slot: NEMESIS }));
        }
        Simulation {
            options,
            odds: Shares {
                info: Odds::new(options.info),
                fail: Odds::new(options.fail),
                half: Odds::new(0.5),
                writes: Odds::new(options.writes),
                cas: Odds::new(options.cas),
                think_ns: (options.mean_ns as f64 * options.think) as u64,
            },
            lists: options.workload == Workload::ListAppend,
            random,
            keys: Keys::new(options),
            slots: vec![Op::default(); options.clients as usize],
            free: Vec::new(),
            processes: (0..i64::from(options.clients)).collect(),
            heap,
            emitter: Emitter::new(options),
            fault: options.fault.map(|f| FaultState::new(f, options.workload == Workload::ListAppend)),
            fault_from: (options.ops as f64 * options.fault_after) as u64,
            invoked: 0,
            open: 0,
            nemesis_active: false,
            outcomes: [0; 3],
            lasted: 0,
            peak_held: 0,
            #[cfg(test)]
            effects: Vec::new(),
        }
    }

    /// Runs to the end, or up to the moment at which the fault has come about.
    pub(super) fn run(&mut self, to_fault: bool, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
        while let Some(&Reverse(next)) = self.heap.peek() {
            if self.invoked == self.options.ops && self.open == 0 && !self.nemesis_active {
                break;
            }
            let again = if next.slot == NEMESIS { self.nemesis(next.at) } else { self.step(next) };
            // Whatever was pushed meanwhile is later, so that the top is still the entry just worked off.
            match (self.heap.peek_mut(), again) {
                (Some(mut top), Some(at)) => top.0.at = at,
                (Some(top), None) => drop(PeekMut::pop(top)),
                (None, _) => {}
            }
            if self.emitter.is_full() {
                self.note_peak();
                self.emitter.flush(sink)?;
            }
            if to_fault && self.fault.as_ref().is_some_and(|f| f.landed.is_some()) {
                return Ok(());
            }
        }
        self.note_peak();
        self.emitter.flush(sink)
    }

    pub(super) fn generated(&self) -> Generated {
        Generated {
            events: self.emitter.events,
            ops: self.invoked,
            outcomes: self.outcomes,
            lasted_ns: self.lasted as i64,
            injected: self.fault.as_ref().and_then(|f| f.landed.clone()),
            peak_held: self.peak_held,
            ..Generated::default()
        }
    }

    fn note_peak(&mut self) {
        let ops = (self.slots.len() - self.free.len()) as u64;
        self.peak_held = self.peak_held.max(ops + self.keys.held() + self.keys.elements);
    }

    /// Starts or stops what does no harm, and stops it before the end.
    fn nemesis(&mut self, at: u64) -> Option<u64> {
        if self.invoked == self.options.ops && !self.nemesis_active {
            return None;
        }
        self.nemesis_active = !self.nemesis_active;
        self.emitter.nemesis(at, self.nemesis_active);
        self.lasted = at;
        Some(at + self.options.nemesis_ns)
    }

    /// Works off an entry, and says when it is due again.
    fn step(&mut self, next: Next) -> Option<u64> {
        let op = &mut self.slots[next.slot as usize];
        match op.stage {
            Stage::Idle => self.invoke(next),
            Stage::Snapshot => {
                op.snapshot(&self.keys, self.lists);
                op.stage = Stage::Effect;
                Some(op.effect_at)
            }
            Stage::Effect => self.take_effect(next),
            Stage::Complete => self.complete(next),
        }
    }

    fn invoke(&mut self, Next { at, slot }: Next) -> Option<u64> {
        if self.invoked == self.options.ops {
            return None;
        }
        self.invoked += 1;
        self.open += 1;
        let lasts = 4 + self.random.spread(self.options.mean_ns - 4);
        let (outcome, effect, late) = match self.random.either(self.odds.info, self.odds.fail) {
            None => (EventType::Ok, true, false),
            Some(false) => (EventType::Fail, false, false),
            Some(true) => (EventType::Info, self.random.chance(self.odds.half), self.random.chance(self.odds.half)),
        };
        let effect_at = at + 2 + self.random.below(lasts - 3);
        let snapshot = self.options.isolation == Isolation::Snapshot;
        let op = &mut self.slots[slot as usize];
        op.outcome = outcome;
        op.late = effect && late;
        op.effect_at = effect_at;
        op.complete_at = at + lasts;
        op.lost = false;
        op.lists.clear();
        op.stage = match effect && !late {
            false => Stage::Complete,
            true if snapshot => Stage::Snapshot,
            true => Stage::Effect,
        };
        let due = match op.stage {
            Stage::Complete => op.complete_at,
            Stage::Snapshot => at + 1 + self.random.below(effect_at - at - 1),
            _ => effect_at,
        };
        self.choose_steps(slot as usize);
        let op = &mut self.slots[slot as usize];
        op.index = self.emitter.client(at, EventType::Invoke, self.processes[slot as usize], op);
        Some(due)
    }

    fn choose_steps(&mut self, slot: usize) {
        let mut steps = std::mem::take(&mut self.slots[slot].steps);
        let (low, high) = if self.options.workload.is_txn() { self.options.mops } else { (1, 1) };
        let count = low + if high > low { self.random.below(u64::from(high - low) + 1) as u32 } else { 0 };
        for _ in 0..count {
            steps.push(self.choose_step());
        }
        self.slots[slot].steps = steps;
    }

    fn choose_step(&mut self) -> Step {
        let place = self.keys.place(&mut self.random);
        let key = self.keys.hold(place);
        let id = self.keys.at(key).id;
        let (kind, old, value) = match self.random.either(self.odds.writes, self.odds.cas) {
            None => (Kind::Read, NIL, NIL),
            Some(true) => (Kind::Write, NIL, self.new_value(key, place)),
            Some(false) => match self.expected(key) {
                NIL => (Kind::Write, NIL, self.new_value(key, place)),
                old => (Kind::Cas, old, self.new_value(key, place)),
            },
        };
        Step { kind, key, id, value, old, seen: NIL, version: 0, span: (0, 0), tuck: 0 }
    }

    fn new_value(&mut self, key: u32, place: usize) -> i64 {
        let given = self.keys.give(key, place);
        match self.options.values {
            Values::Unique => given,
            Values::Domain(n) => self.random.below(u64::from(n)) as i64,
        }
    }

    /// What a cas expects: of a domain, anything; of unique values, the present one or one not long ago, else hardly
    /// any would ever succeed. There is none before the first write.
    fn expected(&mut self, key: u32) -> i64 {
        if let Values::Domain(n) = self.options.values {
            return self.random.below(u64::from(n)) as i64;
        }
        let present = self.keys.at(key).value;
        if present == NIL || self.random.chance(self.odds.half) {
            return present;
        }
        let recent = self.keys.given(key).clamp(1, 8);
        self.keys.given(key) - self.random.below(recent as u64) as i64
    }

    fn take_effect(&mut self, Next { at: _, slot }: Next) -> Option<u64> {
        let armed = self.invoked > self.fault_from;
        let op = &mut self.slots[slot as usize];
        let late = slot >= self.options.clients;
        if late || self.options.isolation == Isolation::Serial {
            op.snapshot(&self.keys, self.lists);
        }
        let mut fault = self.fault.as_mut().filter(|f| armed && f.landed.is_none());
        if let Some(fault) = &mut fault {
            fault.before(op, &self.keys);
        }
        let done = op.commit(&mut self.keys, self.lists);
        if !done && op.outcome == EventType::Ok {
            op.outcome = EventType::Fail;
        }
        if let (Some(fault), true) = (fault, done) {
            fault.after(op, &self.keys);
        }
        #[cfg(test)]
        if done {
            self.effects.push(op.index);
        }
        if late {
            self.forget_steps(slot as usize);
            self.free.push(slot);
            return None;
        }
        op.stage = Stage::Complete;
        Some(op.complete_at)
    }

    fn complete(&mut self, Next { at, slot }: Next) -> Option<u64> {
        let client = slot as usize;
        let op = &mut self.slots[client];
        let index = self.emitter.client(at, op.outcome, self.processes[client], op);
        if let Some(fault) = &mut self.fault {
            fault.completed(op, index, &mut self.keys);
        }
        op.stage = Stage::Idle;
        let (outcome, late) = (op.outcome, op.late);
        self.open -= 1;
        self.lasted = at;
        match outcome {
            EventType::Ok => self.outcomes[0] += 1,
            EventType::Fail => self.outcomes[1] += 1,
            _ => {
                self.outcomes[2] += 1;
                self.processes[client] += i64::from(self.options.clients);
            }
        }
        if late {
            self.put_off(client, at)
        } else {
            self.forget_steps(client)
        }
        Some(at + 1 + self.random.spread(self.odds.think_ns))
    }

    /// Lets an operation take effect after its completion: soon, or after hundreds of others.
    fn put_off(&mut self, client: usize, at: u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Op::default());
            self.slots.len() as u32 - 1
        });
        let longer = 1 << self.random.below(6);
        let due = at + 1 + self.random.spread(self.options.mean_ns * longer);
        self.slots.swap(client, slot as usize);
        self.slots[client].stage = Stage::Idle;
        self.slots[slot as usize].stage = Stage::Effect;
        self.heap.push(Reverse(Next { at: due, slot }));
    }

    fn forget_steps(&mut self, slot: usize) {
        for step in self.slots[slot].steps.drain(..) {
            self.keys.release(step.key);
        }
    }
}
