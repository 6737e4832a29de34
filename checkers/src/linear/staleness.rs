//! How stale may a read be, in writes?
//!
//! k-atomicity on the engine of linearizability: the model is a register that remembers its last k values
//! ([`StaleRegister`]). For k = 1 that is a register, and decided as one. A history that is k-atomic is (k + 1)-atomic, so the
//! smallest k is found by doubling and then bisecting: 2 log k checks. A key's reads can be explained by all its writes, if
//! at all: what is not atomic for their number, plus one for the initial value, is not so for any k.

use super::{Evidence, Problem, check_keys};
use crate::budget::Budget;
use crate::model::{AnyModel, Register, RegisterOp, StaleRegister};
use crate::outcome::{Coverage, OpId, Outcome};

/// The first operation that k-atomicity is not defined for.
pub fn undefined(problems: &[Problem<Register>]) -> Option<OpId> {
    let is_cas = |op: &RegisterOp| matches!(op, RegisterOp::Cas(..) | RegisterOp::CasMismatch(_));
    problems.iter().flat_map(Problem::ops).find(|op| is_cas(&op.op)).map(|op| op.id)
}

/// Is each key k-atomic? There must be no compare-and-set ([`undefined`]).
pub fn check_k_atomic(problems: &[Problem<Register>], k: usize, budget: &Budget, evidence: &Evidence) -> Outcome {
    if k <= 1 {
        return check_keys(problems, budget, evidence);
    }
    let stale = |problem: &Problem<Register>| {
        let (model, ops) = AnyModel::new(StaleRegister::new(problem.model.clone(), k), problem.ops.clone());
        Problem { key: problem.key, model, ops }
    };
    check_keys(&problems.iter().map(stale).collect::<Vec<_>>(), budget, evidence)
}

/// What is known of the staleness of reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// All keys are k-atomic for this k and no smaller one; the outcome for it, and, unless k is 1, for one less, with the
    /// violation that needs k.
    Smallest(usize, Outcome, Option<Outcome>),
    /// Some read is not explained by any k: the outcome for the largest that could matter.
    Never(Outcome),
    /// Not decided for this k; smaller ones do not suffice.
    Unknown(usize, Outcome),
}

/// The smallest k for which every key is k-atomic.
pub fn smallest_k(problems: &[Problem<Register>], budget: &Budget, evidence: &Evidence) -> Staleness {
    let writes =
        |problem: &Problem<Register>| problem.ops.iter().filter(|op| matches!(op.op, RegisterOp::Write(_))).count();
    let most = 1 + problems.iter().map(writes).max().unwrap_or(0);
    let (mut too_small, mut refused) = (0, None);
    let mut k = 1;
    let mut best = loop {
        let outcome = check_k_atomic(problems, k, budget, evidence);
        match (outcome.is_valid(), outcome.is_invalid()) {
            (true, _) => break (k, outcome),
            (_, true) if k >= most => return Staleness::Never(outcome),
            (_, true) => (too_small, refused) = (k, Some(outcome)),
            _ => return Staleness::Unknown(k, outcome),
        }
        k = (2 * k).min(most);
    };
    while best.0 - too_small > 1 {
        let k = too_small + (best.0 - too_small) / 2;
        let outcome = check_k_atomic(problems, k, budget, evidence);
        match (outcome.is_valid(), outcome.is_invalid()) {
            (true, _) => best = (k, outcome),
            (_, true) => (too_small, refused) = (k, Some(outcome)),
            _ => return Staleness::Unknown(k, outcome),
        }
    }
    Staleness::Smallest(best.0, best.1, refused)
}

impl Staleness {
    /// What the answer rests on.
    pub fn coverage(&self) -> &Coverage {
        match self {
            Staleness::Smallest(_, outcome, _) | Staleness::Never(outcome) | Staleness::Unknown(_, outcome) => {
                outcome.coverage()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::Operation;
    use crate::linear::tests::{Random, brute_force, decide_and_verify, history, seed};
    use crate::model::{Model, Value};

    /// The same with no promises.
    #[derive(Clone)]
    struct Plain(StaleRegister);

    impl Model for Plain {
        type Op = RegisterOp;
        type State = <StaleRegister as Model>::State;

        fn init(&self) -> Self::State {
            self.0.init()
        }

        fn step(&self, state: &Self::State, op: &RegisterOp) -> Option<Self::State> {
            self.0.step(state, op)
        }
    }

    fn random_ops(random: &mut Random) -> Vec<Operation<RegisterOp>> {
        let mut ops: Vec<Operation<RegisterOp>> = (0..2 + random.below(6))
            .map(|id| {
                let call = random.below(14);
                let value = Value(1 + random.below(3) as i64);
                let op = if random.chance(500) { RegisterOp::Write(value) } else { RegisterOp::Read(Some(value)) };
                let ret = (!random.chance(100)).then(|| call + random.below(5));
                Operation { id: OpId(id), process: None, call, ret, op }
            })
            .collect();
        ops.sort_by_key(|op| op.call);
        ops
    }

    #[test]
    fn k_atomicity_agrees_with_brute_force_and_one_is_linearizable() {
        let mut random = Random(seed());
        let mut valid = [0; 3];
        const RUNS: u32 = 40_000;
        for _ in 0..RUNS {
            let ops = random_ops(&mut random);
            let mut before = false;
            for (k, valid) in (1..).zip(&mut valid) {
                let model = StaleRegister::new(Register::default(), k);
                let expected = brute_force(&Plain(model.clone()), &ops);
                assert_eq!(decide_and_verify(&model, &ops), expected, "k = {k}: {ops:?}");
                assert!(expected || !before, "k = {k}: {ops:?}");
                assert!(k > 1 || expected == brute_force(&Register::default(), &ops));
                before = expected;
                *valid += u32::from(expected);
            }
        }
        println!("of {RUNS}: {valid:?}");
        assert!(valid[0] > RUNS / 20 && valid[1] > valid[0] + RUNS / 100 && valid[2] > valid[1] + RUNS / 500);
    }

    #[test]
    fn the_smallest_k_is_found_with_what_needs_it() {
        let smallest = |text: &str| {
            let problem = Problem::new(None, Register::default(), history(text)).unwrap();
            smallest_k(&[problem], &Budget::unlimited(), &Evidence::default())
        };
        let writes = "0 w1, 0 ok, 0 w2, 0 ok, 0 w3, 0 ok, 0 w4, 0 ok, 0 w5, 0 ok, 0 w6, 0 ok";
        for (read, k) in [("6", 1), ("5", 2), ("4", 3), ("2", 5), ("1", 6), ("n", 7)] {
            let Staleness::Smallest(found, at, below) = smallest(&format!("{writes}, 1 r{read}, 1 ok")) else {
                panic!()
            };
            assert!(found == k && at.is_valid() && below.as_ref().is_some_and(Outcome::is_invalid) == (k > 1));
        }
        assert!(matches!(smallest("0 w1, 0 ok, 1 r9, 1 ok"), Staleness::Never(_)));
    }

    #[test]
    fn a_compare_and_set_is_named() {
        let problem = Problem::new(None, Register::default(), history("0 w1, 0 ok, 0 c1-2, 0 ok")).unwrap();
        assert_eq!(undefined(&[problem]), Some(OpId(2)));
    }
}
