//! A model of one's own: a stock of things that are put in and taken out by number, and can be counted.
//!
//! ```sh
//! cargo run -p elench-checkers --example own_model
//! ```

use elench_checkers::linear::{Evidence, Operation, Problem, check};
use elench_checkers::{Answer, Budget, Model, OpId};

#[derive(Clone)]
struct Stock;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Op {
    Put(u64),
    Take(u64),
    Count(u64),
}

impl Model for Stock {
    type Op = Op;
    type State = u64;

    fn init(&self) -> u64 {
        0
    }

    fn step(&self, there: &u64, op: &Op) -> Option<u64> {
        match op {
            Op::Put(n) => there.checked_add(*n),
            Op::Take(n) => there.checked_sub(*n),
            Op::Count(n) => (n == there).then_some(*there),
        }
    }
}

fn main() {
    // What happened from when to when; of what never ended, nobody knows whether it happened.
    let happened = [
        (0, Some(3), Op::Put(5)),
        (1, None, Op::Take(2)),
        (2, Some(5), Op::Count(5)),
        (6, Some(7), Op::Count(3)),
        (8, Some(9), Op::Count(5)),
    ];
    let ops = happened.into_iter().map(|(call, ret, op)| Operation { id: OpId(call), process: None, call, ret, op });
    let problem = Problem::new(None, Stock, ops.collect()).expect("nothing ends before it begins");
    let outcome = check(&problem, &Budget::unlimited(), &Evidence::default());
    match outcome.answer() {
        Answer::Valid(_) => println!("linearizable"),
        Answer::Invalid(violations) => println!("not linearizable: {}", violations[0].explanation),
        Answer::Unknown(why) => println!("not known: {why}"),
    }
    assert!(outcome.is_invalid(), "once two were taken, there are no five any more");
}
