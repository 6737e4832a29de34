//! Is there a legal order of these operations that keeps the order of each process?
//!
//! Sequential consistency (Lamport, 1979) asks for less than linearizability: real time binds only the operations of one process.
//! It is not local: keys that are sequentially consistent one by one need not be so together, so all keys are ordered
//! at once. Where they are linearizable, the merged linearization is an answer, found in a fraction of the time. Else:
//!
//! **Search.** Depth first over how far each process has come, trying first what was invoked first (a system that is nearly
//! linearizable then needs little backtracking). An operation that only observes is taken as soon as it is its process's turn and
//! it fits: any order that has it later is legal with it there. Crashed operations stand in no process's way: once their turn
//! has come they may happen at any time or never; equal ones are counted, not told apart. What was reached before
//! (positions, states, crashed operations used: compared exactly, not by a hash) is not entered again.
//!
//! **Cost.** NP-complete (Gibbons and Korach, 1997), even with unique values: operations to the power of processes at worst. Out of
//! budget is `unknown`.

use elench_formats::sorting::{pair, sort_by_wide};
use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::solve::by_moment;
use super::{Evidence, Operation, Problem, check_keys};
use crate::budget::{Budget, Spent};
use crate::model::Model;
use crate::outcome::{Answer, Certificate, Coverage, KeyOrder, Method, OpId, Outcome, Undecided, Violation, Why};

/// Decides all keys together. The certificate of a valid history is one order of all operations, given under no key.
pub fn check_sequential<M: Model>(problems: &[Problem<M>], budget: &Budget, evidence: &Evidence) -> Outcome {
    let mut coverage = problems.iter().fold(Coverage::default(), |mut all, problem| {
        all.add(problem.coverage());
        all
    });
    if let Some(op) = problems.iter().flat_map(Problem::ops).find(|op| op.process.is_none()) {
        let why =
            format!("sequential consistency needs to know which process did what, and of {} it is not known", op.id);
        return Outcome::unknown(coverage, Why::Other(why));
    }
    let keys = coverage.keys;
    let valid = |mut coverage: Coverage, order: Vec<OpId>| {
        coverage.keys_decided = keys;
        let orders = vec![KeyOrder { key: None, order: Some(order) }];
        Outcome::valid(coverage, evidence.orders.then_some(Certificate::Orders(orders)))
    };
    let all = Interleaving::new(problems);
    if let Some(order) = all.linearization(budget) {
        coverage.decided_by(Method::Monitor, 1);
        return valid(coverage, order);
    }
    coverage.decided_by(Method::Search, 1);
    let mut search = Search::new(&all);
    match search.run(budget) {
        Ok(true) => valid(coverage, search.order()),
        Ok(false) => {
            coverage.keys_decided = keys;
            Outcome::invalid(coverage, search.violation(), vec![])
        }
        Err(spent) => {
            let known = format!("{} configurations were tried", search.seen.len());
            coverage.undecided.push(Undecided { key: None, why: Why::Spent(spent), known });
            Outcome::unknown(coverage, Why::Spent(spent))
        }
    }
}

/// Does an order hold every completed operation of all keys once, any other at most once, each process's in turn, legally?
/// Knows nothing of the search.
pub fn verify_sequential<M: Model>(problems: &[Problem<M>], order: &[OpId]) -> Result<(), String> {
    let mut unplaced: BTreeMap<OpId, (usize, &Operation<M::Op>)> = BTreeMap::new();
    for (key, problem) in problems.iter().enumerate() {
        unplaced.extend(problem.ops().iter().map(|op| (op.id, (key, op))));
    }
    let mut states: Vec<M::State> = problems.iter().map(|problem| problem.model().init()).collect();
    let mut latest: BTreeMap<i64, (u64, OpId)> = BTreeMap::new();
    for id in order {
        let (key, op) =
            unplaced.remove(id).ok_or(format!("{id} stands in the order twice, or is not in the history"))?;
        let at = (op.call, op.id);
        if let Some(process) = op.process {
            let last = latest.entry(process).or_insert(at);
            if *last > at && op.ret.is_some() {
                return Err(format!("the process of {} had done {id} before, which stands after it", last.1));
            }
            *last = at.max(*last);
        }
        let step = problems[key].model().step(&states[key], &op.op);
        states[key] = step.ok_or(format!("the model does not allow {id} where it stands"))?;
    }
    match unplaced.iter().find(|(_, (_, op))| op.ret.is_some()) {
        Some((id, _)) => Err(format!("{id} completed but does not stand in the order")),
        None => Ok(()),
    }
}

/// An operation and its key, by places.
type At = (u32, u32);

/// The operations of all keys, by process.
struct Interleaving<'a, M: Model> {
    problems: &'a [Problem<M>],
    /// Of each process, by invocation. Crashed operations that only observe say nothing and are not there.
    chains: Vec<Vec<At>>,
}

impl<'a, M: Model> Interleaving<'a, M> {
    fn new(problems: &'a [Problem<M>]) -> Self {
        let mut chains: BTreeMap<Option<i64>, Vec<At>> = BTreeMap::new();
        for (key, problem) in (0..).zip(problems) {
            for (place, op) in (0..).zip(problem.ops()) {
                if op.ret.is_some() || !problem.model().observes(&op.op) {
                    chains.entry(op.process).or_default().push((key, place));
                }
            }
        }
        let mut all = Interleaving { problems, chains: chains.into_values().collect() };
        let mut chains = std::mem::take(&mut all.chains);
        chains.iter_mut().for_each(|chain| sort_by_wide(chain, |&at| pair(all.op(at).call, all.op(at).id.0)));
        all.chains = chains;
        all
    }

    fn op(&self, (key, place): At) -> &'a Operation<M::Op> {
        &self.problems[key as usize].ops()[place as usize]
    }

    fn model(&self, (key, _): At) -> &'a M {
        self.problems[key as usize].model()
    }

    fn name(&self, at: At) -> String {
        format!("{} ({})", self.op(at).id, self.model(at).show_op(&self.op(at).op))
    }

    /// One linearization of all keys, if each has one and together they keep the order of processes.
    fn linearization(&self, budget: &Budget) -> Option<Vec<OpId>> {
        let evidence = Evidence { shrunk_keys: 0, ..Evidence::default() };
        let (answer, _) = check_keys(self.problems, budget, &evidence).into_parts();
        let Answer::Valid(Some(Certificate::Orders(orders))) = answer else { return None };
        let calls: HashMap<OpId, u64, FixedState> =
            self.problems.iter().flat_map(Problem::ops).map(|op| (op.id, op.call)).collect();
        let orders: Option<Vec<Vec<OpId>>> = orders.into_iter().map(|order| order.order).collect();
        let order = by_moment(orders?, |id| calls.get(id).copied().unwrap_or(0));
        verify_sequential(self.problems, &order).is_ok().then_some(order)
    }
}

/// One step of the search, which can be taken back.
#[derive(Clone, Copy)]
enum Step {
    /// The next operation of a process took effect; the state of its key was this before.
    Took { chain: u32, at: At, before: u32 },
    /// A crashed operation of this class took effect.
    TookCrashed { class: u32, at: At, before: u32 },
    /// A process came to a crashed operation, which may take effect from now on.
    Released { chain: u32, class: u32 },
}

/// A choice: how many steps had been taken, and what is still to be tried.
struct Choice {
    steps: usize,
    rest: Vec<u32>,
}

/// Crashed operations that are equal to each other.
struct Class {
    at: At,
    /// Members whose turn has come, in that order; the first `used` of them have taken effect.
    released: Vec<At>,
    used: u32,
}

struct Search<'a, M: Model> {
    all: &'a Interleaving<'a, M>,
    /// Distinct states of any key, numbered.
    states: Vec<M::State>,
    numbers: HashMap<M::State, u32, FixedState>,
    /// How far each process has come, and the state of each key.
    position: Vec<u32>,
    state: Vec<u32>,
    classes: Vec<Class>,
    class_of: HashMap<(u32, M::Op), u32, FixedState>,
    steps: Vec<Step>,
    seen: HashSet<Box<[u32]>, FixedState>,
    /// The most operations that took effect on any way, and where each process stood then.
    furthest: (usize, Vec<u32>, Vec<u32>),
    ticks: u32,
}

const TICK: u32 = 256;

impl<'a, M: Model> Search<'a, M> {
    fn new(all: &'a Interleaving<'a, M>) -> Self {
        let mut search = Search {
            all,
            states: Vec::new(),
            numbers: HashMap::default(),
            position: vec![0; all.chains.len()],
            state: Vec::new(),
            classes: Vec::new(),
            class_of: HashMap::default(),
            steps: Vec::new(),
            seen: HashSet::default(),
            furthest: (0, Vec::new(), Vec::new()),
            ticks: 0,
        };
        search.state = all.problems.iter().map(|problem| search.number(problem.model().init())).collect();
        search
    }

    fn number(&mut self, state: M::State) -> u32 {
        let next = self.states.len() as u32;
        let number = *self.numbers.entry(state.clone()).or_insert(next);
        if number == next {
            self.states.push(state);
        }
        number
    }

    /// Finds an order: then `steps` says it.
    fn run(&mut self, budget: &Budget) -> Result<bool, Spent> {
        let mut reservation = budget.reserve();
        let mut choices: Vec<Choice> = Vec::new();
        loop {
            self.go_on();
            if self.is_over() {
                return Ok(true);
            }
            if self.enter() {
                let rest = self.candidates();
                choices.push(Choice { steps: self.steps.len(), rest });
            }
            self.ticks += 1;
            if self.ticks.is_multiple_of(TICK) {
                let entry = 4 * (self.position.len() + self.state.len() + self.classes.len()) + 24;
                reservation.set((self.seen.capacity() * entry) as u64);
                if let Some(spent) = budget.spent() {
                    return Err(spent);
                }
            }
            loop {
                let Some(choice) = choices.last_mut() else { return Ok(false) };
                let (steps, next) = (choice.steps, choice.rest.pop());
                self.take_back(steps);
                match next {
                    None => drop(choices.pop()),
                    Some(candidate) => {
                        self.take(candidate);
                        break;
                    }
                }
            }
        }
    }

    fn head(&self, chain: usize) -> Option<At> {
        self.all.chains[chain].get(self.position[chain] as usize).copied()
    }

    fn is_over(&self) -> bool {
        (0..self.position.len()).all(|chain| self.head(chain).is_none())
    }

    fn after(&self, at: At) -> Option<M::State> {
        self.all.model(at).step(&self.states[self.state[at.0 as usize] as usize], &self.all.op(at).op)
    }

    /// Takes what need not wait: observers that fit, and crashed operations out of their process's way.
    fn go_on(&mut self) {
        for chain in 0..self.position.len() {
            while let Some(at) = self.head(chain) {
                let op = self.all.op(at);
                let chain_id = chain as u32;
                if op.ret.is_none() {
                    let class = self.release(at);
                    self.steps.push(Step::Released { chain: chain_id, class });
                } else if self.all.model(at).observes(&op.op) && self.after(at).is_some() {
                    let before = self.state[at.0 as usize];
                    self.steps.push(Step::Took { chain: chain_id, at, before });
                } else {
                    break;
                }
                self.position[chain] += 1;
            }
        }
    }

    fn release(&mut self, at: At) -> u32 {
        let next = self.classes.len() as u32;
        let class = *self.class_of.entry((at.0, self.all.op(at).op.clone())).or_insert(next);
        if class == next {
            self.classes.push(Class { at, released: Vec::new(), used: 0 });
        }
        self.classes[class as usize].released.push(at);
        class
    }

    /// Was it never here before? Classes are numbered in the order in which they are first met, and stay.
    fn enter(&mut self) -> bool {
        let taken = self.steps.iter().filter(|step| !matches!(step, Step::Released { .. })).count();
        if taken >= self.furthest.0 {
            self.furthest = (taken, self.position.clone(), self.state.clone());
        }
        let mut used: Vec<u32> = self.classes.iter().map(|class| class.used).collect();
        used.truncate(used.len() - used.iter().rev().take_while(|used| **used == 0).count());
        let here = self.position.iter().chain(&self.state).chain(&used).copied().collect();
        self.seen.insert(here)
    }

    /// What may take effect next, the best last: processes by invocation, after crashed operations, which are named by class
    /// plus the number of processes.
    fn candidates(&self) -> Vec<u32> {
        let chains = self.position.len();
        let mut fitting: Vec<(bool, u64, u32)> = Vec::new();
        for (class, crashed) in self.classes.iter().enumerate() {
            if (crashed.used as usize) < crashed.released.len() && self.after(crashed.at).is_some() {
                fitting.push((true, self.all.op(crashed.at).call, (chains + class) as u32));
            }
        }
        for chain in 0..chains {
            if let Some(at) = self.head(chain)
                && self.after(at).is_some()
            {
                fitting.push((false, self.all.op(at).call, chain as u32));
            }
        }
        sort_by_wide(&mut fitting, |&(crashed, call, place)| !(u128::from(crashed) << 127 | pair(call, place)));
        fitting.into_iter().map(|(_, _, candidate)| candidate).collect()
    }

    fn take(&mut self, candidate: u32) {
        let chains = self.position.len() as u32;
        let at = if candidate < chains {
            self.head(candidate as usize)
        } else {
            let crashed = &self.classes[(candidate - chains) as usize];
            crashed.released.get(crashed.used as usize).copied()
        };
        let Some((at, next)) = at.and_then(|at| Some((at, self.after(at)?))) else { return };
        let before = self.state[at.0 as usize];
        self.state[at.0 as usize] = self.number(next);
        if candidate < chains {
            self.position[candidate as usize] += 1;
            self.steps.push(Step::Took { chain: candidate, at, before });
        } else {
            let class = candidate - chains;
            self.classes[class as usize].used += 1;
            self.steps.push(Step::TookCrashed { class, at, before });
        }
    }

    fn take_back(&mut self, steps: usize) {
        for step in self.steps.drain(steps..).rev() {
            match step {
                Step::Took { chain, at, before } => {
                    self.position[chain as usize] -= 1;
                    self.state[at.0 as usize] = before;
                }
                Step::TookCrashed { class, at, before } => {
                    self.classes[class as usize].used -= 1;
                    self.state[at.0 as usize] = before;
                }
                Step::Released { chain, class } => {
                    self.position[chain as usize] -= 1;
                    self.classes[class as usize].released.pop();
                }
            }
        }
    }

    fn order(&self) -> Vec<OpId> {
        let took = self.steps.iter().filter_map(|step| match *step {
            Step::Took { at, .. } | Step::TookCrashed { at, .. } => Some(self.all.op(at).id),
            Step::Released { .. } => None,
        });
        took.collect()
    }

    /// Where the furthest way ended.
    fn violation(&self) -> Violation {
        let (taken, positions, states) = &self.furthest;
        let completed: usize = self.all.problems.iter().flat_map(Problem::ops).filter(|op| op.ret.is_some()).count();
        let mut waiting = Vec::new();
        let mut ops = Vec::new();
        for (chain, &position) in self.all.chains.iter().zip(positions) {
            let Some(&at) = chain.get(position as usize) else { continue };
            let state = &self.states[states[at.0 as usize] as usize];
            ops.push(self.all.op(at).id);
            waiting.push(format!(
                "{} waits where the state is {}",
                self.all.name(at),
                self.all.model(at).show_state(state)
            ));
        }
        let more = waiting.len().saturating_sub(super::explain::LISTED);
        waiting.truncate(super::explain::LISTED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let explanation = format!(
            "No order of all operations keeps the order of each process. The furthest places {taken} operations of {completed} that \
             completed; then {}{more}.",
            waiting.join("; ")
        );
        Violation { kind: "nonsequential", ops, explanation, certificate: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::tests::{Random, brute_force, history, seed};
    use crate::model::{Register, RegisterOp, Value};

    /// Two registers as one object.
    #[derive(Clone)]
    struct Two;

    impl Model for Two {
        type Op = (usize, RegisterOp);
        type State = [Value; 2];

        fn init(&self) -> [Value; 2] {
            [Value::NIL; 2]
        }

        fn step(&self, state: &[Value; 2], (key, op): &(usize, RegisterOp)) -> Option<[Value; 2]> {
            let mut after = *state;
            after[*key] = Register::default().step(&state[*key], op)?;
            Some(after)
        }
    }

    fn sequential(problems: &[Problem<Register>]) -> bool {
        let outcome = check_sequential(problems, &Budget::unlimited().threads(1), &Evidence::default());
        if let Answer::Valid(Some(Certificate::Orders(orders))) = outcome.answer() {
            let order = orders[0].order.as_ref().unwrap();
            verify_sequential(problems, order).unwrap_or_else(|flaw| panic!("{flaw}: {order:?}"));
        }
        assert!(outcome.is_valid() != outcome.is_invalid(), "{outcome:?}");
        outcome.is_valid()
    }

    /// Processes that each do a few things, one after another, to two registers.
    fn random_history(random: &mut Random) -> Vec<Operation<(usize, RegisterOp)>> {
        let mut ops = Vec::new();
        for process in 0..2 + random.below(2) as i64 {
            let mut time = random.below(8);
            for _ in 0..1 + random.below(4) {
                let (call, end) = (time, time + 1 + random.below(6));
                time = end + random.below(4);
                let v = |random: &mut Random| Value(1 + random.below(2) as i64);
                let op = match random.below(10) {
                    0..4 => RegisterOp::Read(Some(if random.chance(100) { Value::NIL } else { v(random) })),
                    4..8 => RegisterOp::Write(v(random)),
                    _ => RegisterOp::Cas(v(random), v(random)),
                };
                let (id, ret) = (OpId(ops.len() as u64), (!random.chance(120)).then_some(end));
                ops.push(Operation { id, process: Some(process), call, ret, op: (random.below(2) as usize, op) });
            }
        }
        ops.sort_by_key(|op| op.call);
        ops
    }

    #[test]
    fn every_answer_is_that_of_brute_force_over_all_keys_at_once() {
        let mut random = Random(seed());
        let (mut valid, mut not_linearizable, mut not_local) = (0, 0, 0);
        const RUNS: u32 = 60_000;
        for _ in 0..RUNS {
            let ops = random_history(&mut random);
            let problems: Vec<Problem<Register>> = (0..2)
                .map(|key| {
                    let own = ops.iter().filter(|op| op.op.0 == key);
                    let own = own.map(|op| Operation {
                        id: op.id,
                        process: op.process,
                        call: op.call,
                        ret: op.ret,
                        op: op.op.1,
                    });
                    Problem::new(None, Register::default(), own.collect()).unwrap()
                })
                .filter(|problem| problem.ops().iter().any(|op| op.ret.is_some()))
                .collect();
            let at_once: Vec<_> =
                ops.iter().map(|op| Operation { call: 0, ret: op.ret.map(|_| 1), ..op.clone() }).collect();
            let expected = brute_force(&Two, &at_once);
            if problems.is_empty() {
                continue;
            }
            assert_eq!(sequential(&problems), expected, "{ops:?}");
            valid += u32::from(expected);
            not_linearizable += u32::from(expected && !brute_force(&Two, &ops));
            not_local += u32::from(!expected && problems.iter().all(|p| sequential(std::slice::from_ref(p))));
        }
        println!(
            "{valid} of {RUNS} sequential, {not_linearizable} of these not linearizable; {not_local} only key by key"
        );
        assert!(valid > RUNS / 10 && valid < RUNS * 9 / 10 && not_linearizable > RUNS / 20 && not_local > RUNS / 500);
    }

    #[test]
    fn a_stale_read_is_sequential_and_two_that_disagree_about_the_order_of_writes_are_not() {
        let one = |text: &str| sequential(&[Problem::new(None, Register::default(), history(text)).unwrap()]);
        assert!(one("0 w1, 0 ok, 0 w2, 0 ok, 1 r1, 1 ok"));
        assert!(!one("0 w1, 0 ok, 1 w2, 1 ok, 2 r1, 2 ok, 2 r2, 2 ok, 3 r2, 3 ok, 3 r1, 3 ok"));
    }

    #[test]
    fn unknown_processes_are_no_evidence() {
        let mut ops = history("0 w1, 0 ok, 1 r1, 1 ok");
        ops[1].process = None;
        let problem = Problem::new(None, Register::default(), ops).unwrap();
        let outcome = check_sequential(&[problem], &Budget::unlimited(), &Evidence::default());
        assert!(!outcome.is_valid() && !outcome.is_invalid());
    }
}
