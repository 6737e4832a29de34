//! Is the history linearizable so far?
//!
//! The frontier search does not need the future: what it keeps after a completion is all that the past allows. [`Incremental`]
//! is given invocations and completions as they happen, and holds the operations that are open, those that crashed, and the
//! frontier; at a moment at which nothing is open, the frontier is the states that the object may be in.
//!
//! What an operation did, and whether it ever returned, is known only when it ends. So the search follows up to the
//! invocation of the oldest operation whose end is not known, and no further; what comes later waits. An operation that stays
//! open for more than [`PATIENCE`] events is taken for crashed, so that one client that hangs stops nobody; should it return
//! after all, that is counted and says nothing more. At the end what is open has crashed.
//!
//! A batch check looks ahead (a value that nobody will read again is not told from others, a crashed operation of
//! which nothing can come is dropped) and tries narrow frontiers first. Online neither is possible: every crashed operation
//! stays possible. The answers are the same.

use elench_formats::sorting::sort_by;
use std::collections::BTreeMap;

use super::search::{Carried, Followed, StuckAt, follow};
use super::{Operation, Problem, explain};
use crate::budget::{Budget, Spent};
use crate::model::Model;
use crate::outcome::{Coverage, KeyId, Method, OpId, Outcome, Status, Undecided, Violation, Why};

/// Events that an operation may stay open for.
pub const PATIENCE: u64 = 1 << 16;
/// Events after which the search follows, at least.
const BATCH: u64 = 256;

/// A model of which the future is not known.
#[derive(Clone)]
struct Now<M>(M);

impl<M: Model> Model for Now<M> {
    type Op = M::Op;
    type State = M::State;

    fn init(&self) -> M::State {
        self.0.init()
    }

    fn step(&self, state: &M::State, op: &M::Op) -> Option<M::State> {
        self.0.step(state, op)
    }

    fn kind(&self, op: &M::Op) -> &'static str {
        self.0.kind(op)
    }

    fn show_op(&self, op: &M::Op) -> String {
        self.0.show_op(op)
    }

    fn show_state(&self, state: &M::State) -> String {
        self.0.show_state(state)
    }

    fn observes(&self, op: &M::Op) -> bool {
        self.0.observes(op)
    }

    fn overwrites(&self, op: &M::Op) -> bool {
        self.0.overwrites(op)
    }
}

/// An operation whose end is not known.
struct Open<O> {
    process: Option<i64>,
    call: u64,
    event: u64,
    if_crashed: Option<O>,
}

/// How far it came.
enum Standing {
    Fine,
    Violated(Violation),
    GaveUp(Spent),
}

/// Checks one key while its history is written. Times are the recorder's event numbers, and never fall; names ascend with the
/// invocations.
pub struct Incremental<M: Model> {
    key: Option<KeyId>,
    model: Now<M>,
    budget: Budget,
    open: BTreeMap<OpId, Open<M::Op>>,
    /// Operations whose end is known, which the search has not left behind: by invocation once it follows.
    known: Vec<Operation<M::Op>>,
    /// How many of these the search has begun with.
    begun: usize,
    frontier: Vec<Carried<M::State>>,
    followed_to: u64,
    events: u64,
    followed_at: u64,
    now: u64,
    late: u64,
    coverage: Coverage,
    standing: Standing,
}

impl<M: Model> Incremental<M> {
    /// Nothing has happened yet.
    pub fn new(key: Option<KeyId>, model: M, budget: Budget) -> Self {
        Incremental {
            key,
            model: Now(model),
            budget,
            open: BTreeMap::new(),
            known: Vec::new(),
            begun: 0,
            frontier: Vec::new(),
            followed_to: 0,
            events: 0,
            followed_at: 0,
            now: 0,
            late: 0,
            coverage: Coverage { keys: 1, ..Coverage::default() },
            standing: Standing::Fine,
        }
    }

    /// An operation is invoked. `if_crashed`: what it may have done should it never return; nothing when it only observes.
    pub fn invoke(&mut self, id: OpId, process: Option<i64>, at: u64, if_crashed: Option<M::Op>) {
        self.now = at.max(self.now);
        self.events += 1;
        self.open.insert(id, Open { process, call: at, event: self.events, if_crashed });
    }

    /// It returns, and did this. Gives the violation, if there is one by now.
    pub fn complete(&mut self, id: OpId, at: u64, op: M::Op) -> Option<&Violation> {
        self.end(id, Some(at), Some(op))
    }

    /// Its outcome is and stays unknown.
    pub fn crash(&mut self, id: OpId) -> Option<&Violation> {
        self.end(id, None, None)
    }

    /// It did not happen.
    pub fn fail(&mut self, id: OpId) -> Option<&Violation> {
        self.open.remove(&id);
        self.events += 1;
        self.follow_if_due()
    }

    /// Operations held: open, crashed, or not yet behind the search. Bounded by what is open and what has crashed.
    pub fn held(&self) -> usize {
        self.open.len() + self.known.len()
    }

    /// Configurations held.
    pub fn frontier(&self) -> usize {
        self.frontier.len()
    }

    /// Operations that returned so late that they had been taken for crashed.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Nothing more happens: what is open has crashed.
    pub fn finish(mut self) -> Outcome {
        while let Some((&id, _)) = self.open.first_key_value() {
            self.close(id, None, None);
        }
        self.follow();
        let mut coverage = self.coverage;
        coverage.decided_by(Method::Search, 1);
        match self.standing {
            Standing::Violated(violation) => {
                coverage.keys_decided = 1;
                Outcome::invalid(coverage, violation, vec![])
            }
            Standing::GaveUp(spent) => {
                let known = format!("linearizable up to event {}", self.followed_to);
                coverage.undecided.push(Undecided { key: self.key, why: Why::Spent(spent), known });
                Outcome::unknown(coverage, Why::Spent(spent))
            }
            Standing::Fine => {
                coverage.keys_decided = 1;
                Outcome::valid(coverage, None)
            }
        }
    }

    fn end(&mut self, id: OpId, ret: Option<u64>, op: Option<M::Op>) -> Option<&Violation> {
        self.events += 1;
        self.now = ret.unwrap_or(0).max(self.now);
        self.close(id, ret, op);
        self.follow_if_due()
    }

    /// The end of an operation is known.
    fn close(&mut self, id: OpId, ret: Option<u64>, op: Option<M::Op>) {
        let Some(open) = self.open.remove(&id) else {
            self.late += u64::from(ret.is_some());
            return;
        };
        let Some(op) = op.or(open.if_crashed) else { return };
        let status = if ret.is_some() { Status::Ok } else { Status::Info };
        self.coverage.count(self.model.kind(&op), status, 1);
        if ret.is_some() || !self.model.observes(&op) {
            self.known.push(Operation { id, process: open.process, call: open.call, ret, op });
        }
    }

    fn follow_if_due(&mut self) -> Option<&Violation> {
        while let Some((&id, oldest)) = self.open.first_key_value()
            && self.events - oldest.event > PATIENCE
        {
            self.close(id, None, None);
        }
        if self.events - self.followed_at >= BATCH {
            self.follow();
        }
        match &self.standing {
            Standing::Violated(violation) => Some(violation),
            _ => None,
        }
    }

    /// Follows up to the oldest operation whose end is not known.
    fn follow(&mut self) {
        self.followed_at = self.events;
        let until = self.open.first_key_value().map_or(self.now + 1, |(_, oldest)| oldest.call);
        if until <= self.followed_to || !matches!(self.standing, Standing::Fine) {
            return;
        }
        // Those that the search has begun with were invoked before all others.
        sort_by(&mut self.known, |op| op.call);
        let ripe = self.known.partition_point(|op| op.call < until);
        let (ops, open) = (&self.known[..ripe], self.begun);
        match follow(&self.model, ops, open, &self.frontier, until, &self.budget) {
            Followed::GaveUp(spent) => self.standing = Standing::GaveUp(spent),
            Followed::Stuck(stuck) => self.standing = Standing::Violated(self.violation(ripe, &stuck)),
            Followed::Reached(frontier) => self.frontier = frontier,
        }
        self.followed_to = until;
        let mut place = 0;
        let mut begun = 0;
        self.known.retain(|op| {
            let is_ripe = place < ripe;
            place += 1;
            let stays = !is_ripe || op.ret.is_none_or(|ret| ret >= until);
            begun += usize::from(is_ripe && stays);
            stays
        });
        self.begun = begun;
    }

    fn violation(&self, ripe: usize, stuck: &StuckAt) -> Violation {
        let ops = self.known[..ripe].to_vec();
        explain::violation(&Problem { key: self.key, model: self.model.clone(), ops }, stuck, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::tests::{Random, Shape, brute_force, decide_every_way, random_shape, seed, simulate};
    use crate::model::{Register, RegisterOp, Value};

    /// Plays a history; gives the answer, when the violation was told (as an event), and the most that was held.
    fn play(ops: &[Operation<RegisterOp>]) -> (bool, Option<u64>, usize) {
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            events.push((op.call, false, i));
            events.extend(op.ret.map(|ret| (ret, true, i)));
        }
        events.sort_unstable();
        let mut online = Incremental::new(None, Register::default(), Budget::unlimited());
        let (mut told, mut held) = (None, 0);
        for &(at, returns, i) in &events {
            let op = &ops[i];
            if !returns {
                let observes = Register::default().observes(&op.op);
                online.invoke(op.id, op.process, at, (!observes).then_some(op.op));
            } else if online.complete(op.id, at, op.op).is_some() && told.is_none() {
                told = Some(at);
            }
            held = held.max(online.held());
        }
        let outcome = online.finish();
        assert!(outcome.coverage().undecided.is_empty(), "{outcome:?}");
        (!outcome.is_invalid(), told, held)
    }

    #[test]
    fn online_says_what_a_batch_check_says() {
        let mut random = Random(seed());
        let mut valid = 0;
        const RUNS: u32 = 20_000;
        for run in 0..RUNS {
            // Online every crashed operation stays possible, so long histories get few of them.
            let long = run % 10 == 0;
            let shape = random_shape(&mut random, if long { 300 } else { 12 });
            let shape = if long { Shape { info: random.below(2) * 10, ..shape } } else { shape };
            let ops = simulate(&mut random, shape);
            let expected = decide_every_way(&Register::default(), &ops);
            assert_eq!(play(&ops).0, expected, "{shape:?} {ops:?}");
            assert!(ops.len() > 14 || expected == brute_force(&Register::default(), &ops));
            valid += u32::from(expected);
        }
        println!("{valid} of {RUNS} linearizable");
        assert!(valid > RUNS / 10 && valid < RUNS * 9 / 10);
    }

    #[test]
    fn what_is_held_does_not_grow_and_a_violation_is_told_soon() {
        let mut random = Random(seed());
        let shape = Shape { processes: 6, ops: 20_000, values: 1 << 40, info: 0, cas: 200, mismatch: 0, lies: 0 };
        let mut ops = simulate(&mut random, shape);
        let (valid, told, held) = play(&ops);
        assert!(valid && told.is_none() && held < 1000, "{held}");
        let lie = ops.iter().position(|op| op.call > 10_000 && matches!(op.op, RegisterOp::Read(_))).unwrap();
        ops[lie].op = RegisterOp::Read(Some(Value(-1)));
        let (valid, told, _) = play(&ops);
        assert!(!valid && told.is_some_and(|told| told < ops[lie].call + 1000), "{told:?}");
    }

    #[test]
    fn a_client_that_hangs_stops_nobody() {
        let write = |v| RegisterOp::Write(Value(v));
        let mut online = Incremental::new(None, Register::default(), Budget::unlimited());
        online.invoke(OpId(0), Some(0), 0, Some(write(7)));
        for i in 1..PATIENCE {
            online.invoke(OpId(2 * i), Some(1), 2 * i, Some(write(i as i64)));
            assert!(online.complete(OpId(2 * i), 2 * i + 1, write(i as i64)).is_none());
        }
        assert!(online.held() < 1000, "{}", online.held());
        online.complete(OpId(0), 2 * PATIENCE, write(7));
        assert_eq!(online.late(), 1);
        // The write that hung may have taken effect long ago, or now.
        online.invoke(OpId(1), Some(1), 2 * PATIENCE + 1, None);
        online.complete(OpId(1), 2 * PATIENCE + 2, RegisterOp::Read(Some(Value(7))));
        online.invoke(OpId(3), Some(1), 2 * PATIENCE + 3, None);
        online.complete(OpId(3), 2 * PATIENCE + 4, RegisterOp::Read(Some(Value(3))));
        let outcome = online.finish();
        assert!(outcome.is_invalid() && outcome.violations()[0].ops == [OpId(3)], "{outcome:?}");
    }
}
