//! Is there a legal order of these operations that respects real time? Depth first.
//!
//! The search of Wing and Gong (1993) as Lowe (2017) does it: a list of invocations and returns by time; take the first
//! operation that the model allows now, lift it out of the list and begin anew; at the return of one that was not taken,
//! take back the last. What was reached before is not entered again. Three things differ from the usual:
//!
//! - *Compact keys.* What was taken is nearly a prefix, so that a configuration is the length of the prefix and the bits
//!   behind it, not one bit for each operation of the history: memory does not grow with the square of its length.
//! - *Observers* are taken as soon as they fit, and never put off: any order that has one later is legal with it here.
//! - *Crashed operations* stand in no list. Only at a return that nothing else can serve are they tried, equal ones counted,
//!   and only while something may come of them ([`Model::spent`]); states that nobody can tell apart any more are one
//!   ([`Model::settle`]).
//!
//! It needs luck: on a history with an order it may find one while the frontier ([`search`](super::search)) still widens, but a
//! history without one it must exhaust. The two run side by side where there are cores, and whichever ends first has the answer.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::Operation;
use super::search::{Events, Found, Sample, StuckAt, returns};
use crate::budget::{Budget, Spent};
use crate::model::Model;

const TICK: u32 = 256;
/// Bytes it may hold: what is not found by luck in so much is left to the other search.
const MEMORY: u64 = 512 << 20;
/// The list's first node, which is no event.
const HEAD: u32 = 0;

/// Searches. `ops` must be sorted by invocation, and only their times order them (no process does where times tie).
pub(super) fn search<M: Model>(model: &M, ops: &[Operation<M::Op>], budget: &Budget) -> Found {
    let mut search = Search::new(model, ops);
    match search.run(budget) {
        Err(spent) => Found::GaveUp { spent, reached: None, frontier: search.frames.len() },
        Ok(true) => Found::Order(Some(search.frames.iter().map(|frame| frame.op).collect())),
        Ok(false) => Found::Stuck(search.furthest),
    }
}

/// Crashed operations that are equal to each other.
struct Class {
    members: Vec<u32>,
    used: u32,
}

/// An operation that was taken, and how things were before.
struct Frame<S> {
    op: u32,
    /// Where the scan goes on when it is taken back: behind this node, or with the next class of crashed operations.
    from: From,
    state: S,
    prefix: u32,
    end: u32,
}

#[derive(Clone, Copy)]
enum From {
    Node(u32),
    Class(u32),
}

struct Search<'a, M: Model> {
    model: M,
    ops: &'a [Operation<M::Op>],
    /// Invocations and returns of operations that return, in a list: node i is event i - 1.
    events: Vec<(u32, bool)>,
    /// When each event is, crashed operations' invocations counted.
    times: Vec<u64>,
    next: Vec<u32>,
    previous: Vec<u32>,
    /// The nodes of each operation; for one that crashed the time of its invocation in events, and nothing.
    nodes: Vec<(u32, u32)>,
    /// Each operation's number among those that return, by invocation.
    number: Vec<u32>,
    numbered: Vec<u32>,
    /// Which of those were taken; all before `prefix`, none from `end` on.
    taken: Vec<u64>,
    prefix: u32,
    end: u32,
    left: usize,
    classes: Vec<Class>,
    state: M::State,
    frames: Vec<Frame<M::State>>,
    states: HashMap<M::State, u32, FixedState>,
    seen: HashSet<Box<[u64]>, FixedState>,
    seen_words: u64,
    /// The last return that was ever waited for: no order goes beyond it.
    furthest: StuckAt,
    furthest_node: u32,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &M, ops: &'a [Operation<M::Op>]) -> Self {
        let returning = ops.iter().filter(|op| op.ret.is_some()).count();
        let mut search = Search {
            model: model.clone(),
            ops,
            times: Vec::with_capacity(2 * returning),
            events: Vec::with_capacity(2 * returning),
            next: vec![1],
            previous: vec![HEAD],
            nodes: vec![(0, 0); ops.len()],
            number: vec![0; ops.len()],
            numbered: Vec::with_capacity(returning),
            taken: vec![0; returning.div_ceil(64) + 1],
            prefix: 0,
            end: 0,
            left: returning,
            classes: Vec::new(),
            state: model.init(),
            frames: Vec::new(),
            states: HashMap::default(),
            seen: HashSet::default(),
            seen_words: 0,
            furthest: StuckAt { op: 0, survivors: 0, samples: Vec::new() },
            furthest_node: 0,
        };
        search.link();
        search
    }

    fn link(&mut self) {
        let mut class_of: HashMap<&M::Op, usize, FixedState> = HashMap::default();
        let mut ret = vec![u64::MAX; self.ops.len()];
        let by_return = returns(self.ops);
        for (time, (op, returns)) in (0..).zip(Events::new(self.ops, &by_return)) {
            let operation = &self.ops[op as usize];
            let node = self.events.len() as u32 + 1;
            if operation.ret.is_none() {
                self.nodes[op as usize] = (node, u32::MAX);
                if !self.model.observes(&operation.op) {
                    let class = *class_of.entry(&operation.op).or_insert(self.classes.len());
                    if class == self.classes.len() {
                        self.classes.push(Class { members: Vec::new(), used: 0 });
                    }
                    self.classes[class].members.push(op);
                }
                continue;
            }
            if returns {
                ret[op as usize] = time;
                self.nodes[op as usize].1 = node;
            } else {
                self.nodes[op as usize].0 = node;
                self.number[op as usize] = self.numbered.len() as u32;
                self.numbered.push(op);
            }
            self.times.push(time);
            self.events.push((op, returns));
            self.previous.push(node - 1);
            self.next.push(node + 1);
        }
        self.model.foresee(&self.ops.iter().zip(&ret).map(|(op, &ret)| (&op.op, ret)).collect::<Vec<_>>());
    }

    /// A time before which everything that was not taken has not returned.
    fn now(&self) -> u64 {
        self.times.get(self.next[HEAD as usize] as usize - 1).map_or(u64::MAX, |time| time.saturating_sub(1))
    }

    fn event(&self, node: u32) -> (u32, bool) {
        self.events[node as usize - 1]
    }

    fn run(&mut self, budget: &Budget) -> Result<bool, Spent> {
        let mut reservation = budget.reserve();
        let (mut node, mut class, mut ticks) = (self.next[HEAD as usize], 0, 0u32);
        while self.left > 0 {
            ticks = ticks.wrapping_add(1);
            if ticks.is_multiple_of(TICK) {
                let bytes = self.bytes();
                reservation.set(bytes);
                if let Some(spent) = budget.spent().or((bytes > MEMORY).then_some(Spent::Memory)) {
                    return Err(spent);
                }
            }
            let (op, returns) = self.event(node);
            let taken = if returns { self.take_crashed(node, class) } else { self.take(op, From::Node(node)) };
            if taken {
                (node, class) = (self.next[HEAD as usize], 0);
            } else if !returns {
                node = self.next[node as usize];
            } else {
                self.note(node, op);
                let Some(from) = self.take_back() else { return Ok(false) };
                (node, class) = match from {
                    From::Node(node) => (self.next[node as usize], 0),
                    From::Class(class) => (self.first_return(), class + 1),
                };
            }
        }
        Ok(true)
    }

    fn bytes(&self) -> u64 {
        let fixed = self.ops.len() * 40;
        let frame = size_of::<Frame<M::State>>() + 16;
        (fixed + self.frames.capacity() * frame + self.states.capacity() * 2 * size_of::<M::State>()) as u64
            + self.seen.capacity() as u64 * 20
            + self.seen_words * 8
    }

    /// The first return of what was not taken: nothing that begins after it may be taken before.
    fn first_return(&self) -> u32 {
        let mut node = self.next[HEAD as usize];
        while !self.event(node).1 {
            node = self.next[node as usize];
        }
        node
    }

    /// Takes a crashed operation of this class or a later one, if one fits that was invoked before this return.
    fn take_crashed(&mut self, node: u32, class: u32) -> bool {
        for class in class..self.classes.len() as u32 {
            let Class { members, used } = &self.classes[class as usize];
            let member = members.get(*used as usize).filter(|&&op| self.nodes[op as usize].0 <= node);
            if let Some(&op) = member
                && !self.model.spent(&self.ops[op as usize].op, self.now())
                && self.take(op, From::Class(class))
            {
                return true;
            }
        }
        false
    }

    /// Lets an operation take effect, unless the model does not allow it or that was tried before.
    fn take(&mut self, op: u32, from: From) -> bool {
        let Some(mut state) = self.model.step(&self.state, &self.ops[op as usize].op) else { return false };
        if let Some(simpler) = self.model.settle(&state, self.now()) {
            state = simpler;
        }
        let (prefix, end) = (self.prefix, self.end);
        self.mark(op, from, 1);
        let key = self.key(&state);
        if self.seen.contains(&key[..]) {
            (self.prefix, self.end) = (prefix, end);
            self.mark(op, from, -1);
            return false;
        }
        self.seen_words += key.len() as u64;
        self.seen.insert(key.into());
        let before = std::mem::replace(&mut self.state, state);
        self.frames.push(Frame { op, from, state: before, prefix, end });
        if let From::Node(_) = from {
            let (call, ret) = self.nodes[op as usize];
            for node in [call, ret] {
                let (next, previous) = (self.next[node as usize], self.previous[node as usize]);
                self.next[previous as usize] = next;
                if let Some(link) = self.previous.get_mut(next as usize) {
                    *link = previous;
                }
            }
            self.left -= 1;
        }
        true
    }

    /// Takes back the last operation, and with it all observers that it was taken after: these were no choice. Says where
    /// the scan goes on.
    fn take_back(&mut self) -> Option<From> {
        loop {
            let frame = self.frames.pop()?;
            if let From::Node(_) = frame.from {
                let (call, ret) = self.nodes[frame.op as usize];
                for node in [ret, call] {
                    let (next, previous) = (self.next[node as usize], self.previous[node as usize]);
                    self.next[previous as usize] = node;
                    if let Some(link) = self.previous.get_mut(next as usize) {
                        *link = node;
                    }
                }
                self.left += 1;
            }
            (self.prefix, self.end) = (frame.prefix, frame.end);
            self.mark(frame.op, frame.from, -1);
            self.state = frame.state;
            if !self.model.observes(&self.ops[frame.op as usize].op) {
                return Some(frame.from);
            }
        }
    }

    /// Marks an operation as taken (1), or as not taken any more (-1; then prefix and end are already as they were).
    fn mark(&mut self, op: u32, from: From, by: i32) {
        if let From::Class(class) = from {
            let used = &mut self.classes[class as usize].used;
            *used = used.wrapping_add_signed(by);
            return;
        }
        let number = self.number[op as usize];
        self.taken[number as usize / 64] ^= 1 << (number % 64);
        if by > 0 {
            self.end = self.end.max(number + 1);
            while self.prefix < self.end && self.taken[self.prefix as usize / 64] >> (self.prefix % 64) & 1 == 1 {
                self.prefix += 1;
            }
        }
    }

    /// The configuration: the state and the length of the prefix, the bits behind it, the crashed operations used.
    fn key(&mut self, state: &M::State) -> Vec<u64> {
        let next = self.states.len() as u32;
        let state = match self.states.get(state) {
            Some(&id) => id,
            None => *self.states.entry(state.clone()).or_insert(next),
        };
        let mut key = vec![u64::from(state) << 32 | u64::from(self.prefix)];
        if self.prefix < self.end {
            key.extend_from_slice(&self.taken[self.prefix as usize / 64..=(self.end as usize - 1) / 64]);
        }
        let used = self.classes.iter().enumerate().filter(|(_, class)| class.used > 0);
        let counts = key.len();
        key.extend(used.map(|(i, class)| (i as u64) << 32 | u64::from(class.used)));
        key.push(counts as u64);
        key
    }

    /// Notes how far an order came, the first time that one comes so far: O(operations open there), without the order.
    fn note(&mut self, node: u32, op: u32) {
        if node <= self.furthest_node {
            return;
        }
        self.furthest_node = node;
        let mut waiting = Vec::new();
        let mut other = self.next[HEAD as usize];
        while other != node {
            waiting.push(self.event(other).0);
            other = self.next[other as usize];
        }
        let is_taken = |number: u32| self.taken[number as usize / 64] >> (number % 64) & 1 == 1;
        let applied = (self.prefix..self.end).filter(|&n| is_taken(n)).map(|n| self.numbered[n as usize]);
        let applied = applied.filter(|&op| self.nodes[op as usize].1 > node).collect();
        let sample = Sample { state: self.model.show_state(&self.state), applied, waiting, order: None };
        self.furthest = StuckAt { op, survivors: 1, samples: vec![sample] };
    }
}
