//! The monitors against brute force and the search.

use std::time::Duration;

use super::Monitored;
use crate::budget::Budget;
use crate::linear::Operation;
use crate::linear::search::{Found, search};
use crate::linear::tests::{Random, brute_force, decide_every_way, every_overlap};
use crate::linear::verify::verify_places;
use crate::model::collection::{AnyFirst, Collection, Discipline, NewestFirst, OldestFirst, SmallestFirst};
use crate::model::{CollectionOp, Model, Set, SetOp, Value};
use crate::outcome::OpId;

use CollectionOp::{Insert, Remove, RemoveEmpty};

type Op = Operation<CollectionOp>;

/// How many were found to be what.
#[derive(Default, Debug)]
struct Tally {
    valid: u64,
    invalid: u64,
    not_applicable: u64,
    /// Too much for the search in the time it is given.
    not_searched: u64,
}

/// Asks monitor, search and, where asked to, brute force; they must agree, down to the operation at which the conflict appears.
fn agree<M: Model>(model: &M, ops: &[Operation<M::Op>], brute: bool, tally: &mut Tally) -> bool {
    let unlimited = Budget::unlimited();
    let budget = if brute { unlimited.clone() } else { Budget::unlimited().within(Duration::from_millis(20)) };
    let found = search(model, ops, &budget, true).unwrap();
    let valid = match &found {
        Found::Order(order) => {
            verify_places(model, ops, order.as_ref().unwrap()).unwrap_or_else(|flaw| panic!("{flaw}: {ops:?}"));
            true
        }
        Found::Stuck(_) => false,
        Found::GaveUp { .. } => {
            tally.not_searched += 1;
            true
        }
    };
    if brute {
        assert_eq!(valid, brute_force(model, ops), "{ops:?}");
    }
    match (model.monitor(ops, &unlimited), found) {
        (Monitored::NotApplicable, _) => tally.not_applicable += 1,
        (Monitored::Conflict(_), Found::GaveUp { .. }) => {}
        (Monitored::Order(order), Found::Order(_) | Found::GaveUp { .. }) => {
            verify_places(model, ops, &order).unwrap_or_else(|flaw| panic!("{flaw}: {order:?} {ops:?}"));
            tally.valid += 1;
        }
        (Monitored::Conflict(conflict), Found::Stuck(stuck)) => {
            assert_eq!(conflict.at, stuck.op, "{conflict:?} {ops:?}");
            let core: Vec<_> = conflict.core.iter().map(|&i| ops[i as usize].clone()).collect();
            let again = match search(model, &core, &budget, false).unwrap() {
                Found::Stuck(again) => again,
                Found::GaveUp { .. } => return valid,
                Found::Order(_) => panic!("{conflict:?} is none: {ops:?}"),
            };
            assert_eq!(conflict.core[again.op as usize], conflict.at, "{conflict:?} {ops:?}");
            tally.invalid += 1;
        }
        (monitored, found) => panic!("{monitored:?} but {found:?}: {ops:?}"),
    }
    valid
}

/// All histories of `n` operations over so many values, each inserted at most once; of values that differ in nothing but
/// their names (unless they have an order), one naming.
fn every_history(n: usize, values: i64, ordered: bool, mut visit: impl FnMut(&[Op])) {
    let mut words: Vec<Vec<CollectionOp>> = vec![vec![]];
    for _ in 0..n {
        let extended = words.iter().flat_map(|word| {
            let used = word.iter().filter_map(CollectionOp::value).map(|value| value.0 + 1).max().unwrap_or(0);
            let known = if ordered { values } else { values.min(used + 1) };
            let ops = (0..known).flat_map(|v| [Insert(Value(v)), Remove(Some(Value(v)))]);
            let ops =
                ops.chain([RemoveEmpty, Remove(None)]).filter(|op| !matches!(op, Insert(_)) || !word.contains(op));
            ops.map(|op| word.iter().copied().chain([op]).collect()).collect::<Vec<Vec<_>>>()
        });
        words = extended.collect();
    }
    let mut ops: Vec<Op> = Vec::new();
    every_overlap(n, |overlap| {
        for word in &words {
            let fits = |(&(_, ret), op): (&(u64, Option<u64>), &CollectionOp)| *op != Remove(None) || ret.is_none();
            // Crashed empty finds say nothing.
            let says = |(&(_, ret), op): (&(u64, Option<u64>), &CollectionOp)| *op != RemoveEmpty || ret.is_some();
            if !overlap.iter().zip(word).all(|pair| fits(pair) && says(pair)) {
                continue;
            }
            ops.clear();
            ops.extend(overlap.iter().zip(word).map(|(&(call, ret), &op)| Operation {
                id: OpId(call),
                process: None,
                call,
                ret,
                op,
            }));
            visit(&ops);
        }
    });
}

fn agree_on_every_history<D: Discipline>(n: usize, values: i64, ordered: bool) {
    let mut tally = Tally::default();
    every_history(n, values, ordered, |ops| {
        agree(&Collection::<D>::default(), ops, true, &mut tally);
    });
    println!("{n} operations, {values} values: {tally:?}");
    assert!(n < 3 || (tally.valid > 100 && tally.invalid > 100), "{tally:?}");
}

#[test]
fn a_queue_is_decided_as_by_brute_force_on_every_small_history() {
    (1..=4).for_each(|n| agree_on_every_history::<OldestFirst>(n, 3, false));
}

#[test]
fn a_bag_is_decided_as_by_brute_force_on_every_small_history() {
    (1..=4).for_each(|n| agree_on_every_history::<AnyFirst>(n, 3, false));
}

#[test]
fn a_stack_is_decided_as_by_brute_force_on_every_small_history() {
    (1..=4).for_each(|n| agree_on_every_history::<NewestFirst>(n, 3, false));
}

#[test]
fn a_priority_queue_is_decided_as_by_brute_force_on_every_small_history() {
    (1..=4).for_each(|n| agree_on_every_history::<SmallestFirst>(n, 2, true));
}

#[test]
#[ignore = "takes minutes"]
fn collections_are_decided_as_by_brute_force_on_every_history_of_five_operations() {
    agree_on_every_history::<OldestFirst>(5, 2, false);
    agree_on_every_history::<NewestFirst>(5, 2, false);
    agree_on_every_history::<AnyFirst>(5, 2, false);
    agree_on_every_history::<SmallestFirst>(5, 2, true);
}

/// What a random history should look like.
#[derive(Clone, Copy, Debug)]
struct Shape {
    clients: u64,
    ops: usize,
    /// Per mille of operations that crash.
    info: u64,
    /// Per mille of operations that are inserts.
    inserts: u64,
    /// Values there at first.
    initial: i64,
    /// Per mille of operations whose effect is moved in time, so that the history may be no true one.
    lies: u64,
    /// Values to insert; none: each is inserted once.
    values: Option<u64>,
    /// Do the times of different events coincide at times?
    coarse: bool,
}

fn random_shape(random: &mut Random, ops: u64) -> Shape {
    Shape {
        clients: 2 + random.below(5),
        ops: 1 + random.below(ops) as usize,
        info: [0, 0, 50, 200, 400][random.below(5) as usize],
        inserts: [400, 500, 600][random.below(3) as usize],
        initial: [0, 0, 3][random.below(3) as usize],
        lies: [0, 100, 300, 600][random.below(4) as usize],
        values: None,
        coarse: random.chance(300),
    }
}

/// A run by clients: each operation takes effect at some moment between its invocation and its return, or, when it
/// crashes, perhaps never, perhaps later.
fn simulate<D: Discipline>(random: &mut Random, shape: Shape) -> (Collection<D>, Vec<Op>) {
    let initial: Vec<Value> = (0..shape.initial).map(|i| Value(-1 - i)).collect();
    let model = Collection::<D>::new(initial);
    let mut state = model.init();
    let mut ops: Vec<Op> = Vec::new();
    let mut clients: Vec<Option<(usize, bool)>> = vec![None; shape.clients as usize];
    let mut ghosts: Vec<usize> = Vec::new();
    let mut time = 0;
    let mut next_value = 0;
    let apply = |random: &mut Random, state: &mut D::Contents, op: &mut CollectionOp| match *op {
        Insert(value) => *state = D::insert(state, value),
        _ => {
            let first = D::first(state, 4);
            // A bag gives any.
            let choice =
                first.iter().skip(if D::INDEPENDENT { random.below(4) as usize } else { 0 }).chain(&first).next();
            match choice.and_then(|&value| Some((value, D::remove(state, value)?))) {
                Some((value, rest)) => (*op, *state) = (Remove(Some(value)), rest),
                None => *op = RemoveEmpty,
            }
        }
    };
    while ops.len() < shape.ops || clients.iter().any(Option::is_some) {
        time += u64::from(!shape.coarse || random.chance(600));
        if !ghosts.is_empty() && random.chance(150) {
            let ghost = ghosts.swap_remove(random.below(ghosts.len() as u64) as usize);
            let mut op = ops[ghost].op;
            apply(random, &mut state, &mut op);
        }
        let client = random.below(shape.clients) as usize;
        match clients[client] {
            None if ops.len() == shape.ops => {}
            None => {
                let op = if random.chance(shape.inserts) {
                    next_value += 1;
                    Insert(Value(shape.values.map_or(spread(next_value), |n| random.below(n) as i64)))
                } else {
                    Remove(None)
                };
                clients[client] = Some((ops.len(), false));
                ops.push(Operation { id: OpId(ops.len() as u64), process: None, call: time, ret: None, op });
            }
            Some((op, true)) => {
                ops[op].ret = Some(time);
                clients[client] = None;
            }
            Some((op, false)) if random.chance(shape.info) => {
                ghosts.extend(random.chance(500).then_some(op));
                clients[client] = None;
            }
            Some((op, false)) => {
                apply(random, &mut state, &mut ops[op].op);
                clients[client] = Some((op, true));
            }
        }
    }
    for _ in 0..ops.len() {
        if random.chance(shape.lies) {
            lie(random, &mut ops);
        }
    }
    ops.sort_by_key(|op| op.call);
    (model, ops)
}

/// Distinct numbers in no order.
fn spread(n: u64) -> i64 {
    (n.wrapping_mul(0x9e37_79b9) % 65_537) as i64
}

/// Two removals swap what they returned, or one of the operations moves in time.
fn lie(random: &mut Random, ops: &mut [Op]) {
    let any = |random: &mut Random| random.below(ops.len() as u64) as usize;
    let (a, b) = (any(random), any(random));
    let swaps = |op: &Op| !matches!(op.op, Insert(_)) && op.ret.is_some();
    if swaps(&ops[a]) && swaps(&ops[b]) {
        (ops[a].op, ops[b].op) = (ops[b].op, ops[a].op);
    } else if let Some(ret) = ops[a].ret {
        let by = 1 + random.below(8);
        ops[a].call += by;
        ops[a].ret = Some(ret + by);
    }
}

fn seed() -> u64 {
    let seed = std::env::var("ELENCH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    println!("ELENCH_SEED={seed}");
    seed
}

fn agree_on_random_histories<D: Discipline>(runs: u64, ops: u64, brute: bool) -> Tally {
    let mut random = Random(seed());
    let mut tally = Tally::default();
    for _ in 0..runs {
        let mut shape = random_shape(&mut random, ops);
        if !brute {
            (shape.info, shape.lies) = (shape.info / 4, shape.lies / 6);
        }
        let (model, ops) = simulate::<D>(&mut random, shape);
        let valid = agree(&model, &ops, brute, &mut tally);
        assert!(valid || shape.lies > 0, "{shape:?} {ops:?}");
    }
    println!("{runs} histories of up to {ops} operations: {tally:?}");
    assert!(tally.valid > runs / 4 && tally.invalid > runs / 20, "{tally:?}");
    tally
}

#[test]
fn a_queue_is_decided_as_by_brute_force_and_search_on_random_histories() {
    agree_on_random_histories::<OldestFirst>(20_000, 12, true);
    agree_on_random_histories::<OldestFirst>(3_000, 60, false);
}

#[test]
fn a_bag_is_decided_as_by_brute_force_and_search_on_random_histories() {
    agree_on_random_histories::<AnyFirst>(20_000, 12, true);
    agree_on_random_histories::<AnyFirst>(3_000, 40, false);
}

#[test]
fn a_stack_is_decided_as_by_brute_force_and_search_on_random_histories() {
    agree_on_random_histories::<NewestFirst>(20_000, 12, true);
    agree_on_random_histories::<NewestFirst>(3_000, 60, false);
}

#[test]
fn a_priority_queue_is_decided_as_by_brute_force_and_search_on_random_histories() {
    agree_on_random_histories::<SmallestFirst>(20_000, 12, true);
    agree_on_random_histories::<SmallestFirst>(3_000, 40, false);
}

#[test]
fn histories_with_repeated_values_are_left_to_the_search_which_agrees_with_brute_force() {
    fn repeated<D: Discipline>() {
        let mut random = Random(seed());
        let (mut valid, mut all) = (0, 0);
        for _ in 0..5_000 {
            let shape = Shape { values: Some(2), ..random_shape(&mut random, 10) };
            let (model, ops) = simulate::<D>(&mut random, shape);
            let expected = brute_force(&model, &ops);
            assert_eq!(decide_every_way(&model, &ops), expected, "{shape:?} {ops:?}");
            (valid, all) = (valid + u64::from(expected), all + 1);
        }
        assert!(valid > all / 4 && valid < all);
    }
    repeated::<OldestFirst>();
    repeated::<NewestFirst>();
    repeated::<SmallestFirst>();
    repeated::<AnyFirst>();
}

/// A removal that names what another took, or what was never inserted, cannot be, whatever else happens.
#[test]
fn one_operation_that_cannot_be_makes_a_true_run_invalid_and_is_in_the_evidence() {
    fn mutated<D: Discipline>(runs: u64) {
        let mut random = Random(seed());
        let mut seen = 0;
        for _ in 0..runs {
            let shape = Shape { lies: 0, initial: 0, ..random_shape(&mut random, 200) };
            let (model, mut ops) = simulate::<D>(&mut random, shape);
            let end = ops.iter().filter_map(|op| op.ret).max().unwrap_or(0).max(ops.last().map_or(0, |op| op.call));
            let removed = |op: &Op| matches!(op.op, Remove(Some(_))) && op.ret.is_some();
            let Some(earlier) = ops.iter().position(removed) else { continue };
            let wrong = match random.below(2) {
                0 => ops[earlier].op,
                _ => Remove(Some(Value(1_000_000))),
            };
            let op = Operation { id: OpId(9_999), process: None, call: end + 1, ret: Some(end + 2), op: wrong };
            ops.push(op);
            let Monitored::Conflict(conflict) = model.monitor(&ops, &Budget::unlimited()) else {
                panic!("{shape:?} {ops:?}")
            };
            assert_eq!(ops[conflict.at as usize].id, OpId(9_999));
            assert!(conflict.core.len() <= 3 && conflict.core.contains(&conflict.at), "{conflict:?}");
            seen += 1;
        }
        assert!(seen > runs / 2);
    }
    mutated::<OldestFirst>(2_000);
    mutated::<NewestFirst>(2_000);
    mutated::<AnyFirst>(2_000);
}

/// A run of a set, perhaps with lies.
fn simulate_set(random: &mut Random, ops: usize, reads: bool, grows: bool) -> Vec<Operation<SetOp>> {
    let model = Set::default();
    let mut state = model.init();
    let mut history: Vec<Operation<SetOp>> = Vec::new();
    let mut clients: Vec<Option<(usize, bool)>> = vec![None; 3];
    let (mut time, says, lies) = (0, random.chance(500), [0, 200][random.below(2) as usize]);
    while history.len() < ops || clients.iter().any(Option::is_some) {
        time += u64::from(random.chance(800));
        let client = random.below(3) as usize;
        match clients[client] {
            None if history.len() == ops => {}
            None => {
                let element = Value(random.below(3) as i64);
                let op = match random.below(5) {
                    0 | 1 => SetOp::Add(element, None),
                    2 if !grows => SetOp::Remove(element, None),
                    3 if reads => SetOp::Read(None),
                    _ if grows => SetOp::Add(element, None),
                    _ => SetOp::Contains(element, None),
                };
                clients[client] = Some((history.len(), false));
                history.push(Operation { id: OpId(history.len() as u64), process: None, call: time, ret: None, op });
            }
            Some((op, true)) => {
                history[op].ret = Some(time);
                clients[client] = None;
            }
            Some((op, false)) if random.chance(100) => {
                if random.chance(500) {
                    state = model.step(&state, &history[op].op).unwrap();
                }
                clients[client] = None;
            }
            Some((op, false)) => {
                let mut there = |element: Value| Some(state.contains(element) ^ random.chance(lies)).filter(|_| says);
                let result = match history[op].op.clone() {
                    SetOp::Add(element, _) => {
                        SetOp::Add(element, there(element).map(|there| !there).filter(|_| !grows))
                    }
                    SetOp::Remove(element, _) => SetOp::Remove(element, there(element)),
                    SetOp::Contains(element, _) => SetOp::Contains(element, there(element)),
                    SetOp::Read(_) => {
                        let keep = |_: &Value| !random.chance(lies / 2);
                        SetOp::read(state.iter().filter(keep).collect())
                    }
                };
                let silent = match result {
                    SetOp::Add(element, _) => SetOp::Add(element, None),
                    SetOp::Remove(element, _) => SetOp::Remove(element, None),
                    _ => SetOp::Read(None),
                };
                state = model.step(&state, &silent).unwrap();
                history[op].op = result;
                clients[client] = Some((op, true));
            }
        }
    }
    history
}

#[test]
fn a_set_is_decided_as_by_brute_force_on_random_histories() {
    let mut random = Random(seed());
    let (mut valid, mut all, mut tally) = (0, 0, Tally::default());
    for _ in 0..20_000 {
        let (reads, grows) = (random.chance(500), random.chance(500));
        let n = 1 + random.below(10) as usize;
        let ops = simulate_set(&mut random, n, reads, grows);
        let expected = brute_force(&Set::default(), &ops);
        assert_eq!(decide_every_way(&Set::default(), &ops), expected, "{ops:?}");
        agree(&Set::default(), &ops, false, &mut tally);
        (valid, all) = (valid + u64::from(expected), all + 1);
    }
    println!("{valid} of {all} linearizable; {tally:?}");
    assert!(valid > all / 3 && valid < all * 19 / 20);
}
