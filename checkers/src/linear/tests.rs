//! The search against brute force, and properties that need no oracle.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::model::{Register, RegisterOp, Value};

type Op = Operation<RegisterOp>;

/// `process op` and `process ok|info`, separated by commas. Operations: `w1`, `r1`, `rn` (of nil), `c1-2`, `m1` (a cas from 1
/// that did not find it). An operation that does not end is pending.
pub(crate) fn history(text: &str) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (time, event) in text.split(',').enumerate() {
        let time = time as u64;
        let (process, what) = event.trim().split_once(' ').unwrap();
        match what {
            "ok" => ops[open.remove(process).unwrap()].ret = Some(time),
            "info" => drop(open.remove(process)),
            _ => {
                open.insert(process, ops.len());
                let process = process.parse().ok();
                ops.push(Operation { id: OpId(time), process, call: time, ret: None, op: register_op(what) });
            }
        }
    }
    ops
}

fn register_op(text: &str) -> RegisterOp {
    let value = |s: &str| if s == "n" { Value::NIL } else { Value(s.parse().unwrap()) };
    let (kind, rest) = text.split_at(1);
    match kind {
        "w" => RegisterOp::Write(value(rest)),
        "r" => RegisterOp::Read(Some(value(rest))),
        "m" => RegisterOp::CasMismatch(value(rest)),
        _ => rest.split_once('-').map(|(a, b)| RegisterOp::Cas(value(a), value(b))).unwrap(),
    }
}

/// Every order, tried one by one; only what is known to lead nowhere is not tried again.
pub(crate) fn brute_force<M: Model>(model: &M, ops: &[Operation<M::Op>]) -> bool {
    fn go<M: Model>(
        model: &M,
        ops: &[Operation<M::Op>],
        placed: u32,
        state: &M::State,
        dead: &mut HashSet<(u32, M::State)>,
    ) -> bool {
        let free = |i: usize| placed >> i & 1 == 0;
        if (0..ops.len()).all(|i| !free(i) || ops[i].ret.is_none()) {
            return true;
        }
        if !dead.insert((placed, state.clone())) {
            return false;
        }
        let first_ret = (0..ops.len()).filter(|&i| free(i)).filter_map(|i| ops[i].ret).min().unwrap_or(u64::MAX);
        let same_process = |i: usize, j: usize| ops[i].process.is_some() && ops[i].process == ops[j].process;
        let waits = |i: usize| (0..i).any(|j| free(j) && ops[j].ret.is_some() && same_process(i, j));
        (0..ops.len())
            .filter(|&i| free(i) && ops[i].call <= first_ret && !waits(i))
            .any(|i| model.step(state, &ops[i].op).is_some_and(|next| go(model, ops, placed | 1 << i, &next, dead)))
    }
    go(model, ops, 0, &model.init(), &mut HashSet::new())
}

/// Decides with certificates, which are verified; whatever the width of the first attempt, the answer is the same.
pub(crate) fn decide_and_verify<M: Model>(model: &M, ops: &[Operation<M::Op>]) -> bool {
    let stuck = [search::FIRST_BEAM, 1, usize::MAX].map(|beam| stuck_from(beam, model, ops));
    assert!(stuck[0] == stuck[1] && stuck[1] == stuck[2], "{stuck:?}: {ops:?}");
    assert_eq!(decide_every_way(model, ops), stuck[0].is_none(), "{ops:?}");
    assert_eq!(decide_depth_first(model, ops).unwrap_or(stuck[0].is_none()), stuck[0].is_none(), "{ops:?}");
    stuck[0].is_none()
}

/// Decides depth first; no order goes beyond the return at which the frontier dies. Nothing where only processes tell times apart.
fn decide_depth_first<M: Model>(model: &M, ops: &[Operation<M::Op>]) -> Option<bool> {
    if search::has_touching(ops) {
        return None;
    }
    match (
        depth::search(model, ops, &Budget::unlimited().memory(1 << 20)),
        search::search(model, ops, &Budget::unlimited(), false),
    ) {
        (Found::Order(order), Ok(Found::Order(_))) => {
            let flaw = verify::verify_places(model, ops, &order.unwrap());
            assert_eq!(flaw, Ok(()), "{ops:?}");
            Some(true)
        }
        (Found::Stuck(deep), Ok(Found::Stuck(wide))) => {
            assert_eq!(deep.op, wide.op, "{ops:?}");
            Some(false)
        }
        (Found::GaveUp { .. }, _) => None,
        (deep, wide) => panic!("{deep:?} {wide:?} {ops:?}"),
    }
}

/// Decides by parts and monitors, cross-checked by the search.
pub(crate) fn decide_every_way<M: Model>(model: &M, ops: &[Operation<M::Op>]) -> bool {
    let evidence = Evidence { cross_check: true, ..Evidence::default() };
    let solved = solve::solve(model, ops, &Budget::unlimited().threads(1), &evidence);
    match solved.unwrap_or_else(|failure| panic!("{failure:?}: {ops:?}")).found {
        Found::Order(order) => {
            let order: Vec<OpId> = order.unwrap().iter().map(|&i| ops[i as usize].id).collect();
            verify::verify(model, ops, &order).unwrap_or_else(|flaw| panic!("{flaw}: {order:?} of {ops:?}"));
            true
        }
        Found::Stuck(_) => false,
        Found::GaveUp { .. } => panic!("nothing limits the search"),
    }
}

/// The operation whose return no order survives, if there is one.
fn stuck_from<M: Model>(beam: usize, model: &M, ops: &[Operation<M::Op>]) -> Option<u32> {
    match search::search_from(beam, model, ops, &Budget::unlimited(), true).unwrap() {
        Found::Order(order) => {
            let order: Vec<OpId> = order.unwrap().iter().map(|&i| ops[i as usize].id).collect();
            if let Err(flaw) = verify::verify(model, ops, &order) {
                panic!("{flaw}: {order:?} of {ops:?}");
            }
            None
        }
        Found::Stuck(stuck) => Some(stuck.op),
        Found::GaveUp { .. } => panic!("nothing limits the search"),
    }
}

/// A register of which only the specification is known.
#[derive(Clone)]
struct Plain(Register);

impl Model for Plain {
    type Op = RegisterOp;
    type State = Value;

    fn init(&self) -> Value {
        self.0.init()
    }

    fn step(&self, state: &Value, op: &RegisterOp) -> Option<Value> {
        self.0.step(state, op)
    }
}

/// A small generator of random numbers (splitmix64), so that a failure can be repeated from its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What a history should look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) processes: u64,
    pub(crate) ops: usize,
    pub(crate) values: u64,
    pub(crate) info: u64,
    pub(crate) cas: u64,
    pub(crate) mismatch: u64,
    /// Per mille of reads that return anything at all.
    pub(crate) lies: u64,
}

/// A run of a register by `processes` clients: every operation takes effect at some moment between its invocation and
/// its completion, or, when it crashes, perhaps never, perhaps after; results are true except for lies.
pub(crate) fn simulate(random: &mut Random, shape: Shape) -> Vec<Op> {
    #[derive(Clone)]
    struct Running {
        op: usize,
        applied: bool,
    }
    let mut ops: Vec<Op> = Vec::new();
    let mut clients: Vec<Option<Running>> = vec![None; shape.processes as usize];
    let mut ghosts: Vec<usize> = Vec::new();
    let mut state = Value::NIL;
    let mut time = 0;
    let any = |random: &mut Random| Value(random.below(shape.values) as i64);
    while ops.len() < shape.ops || clients.iter().any(Option::is_some) {
        if !ghosts.is_empty() && random.chance(100) {
            let op = ghosts.swap_remove(random.below(ghosts.len() as u64) as usize);
            state = Register::default().step(&state, &ops[op].op).unwrap_or(state);
        }
        let client = random.below(shape.processes) as usize;
        let Some(running) = clients[client].clone() else {
            if ops.len() == shape.ops {
                continue;
            }
            let op = if random.chance(shape.cas) {
                RegisterOp::Cas(any(random), any(random))
            } else if random.chance(500) {
                RegisterOp::Write(any(random))
            } else {
                RegisterOp::Read(None)
            };
            clients[client] = Some(Running { op: ops.len(), applied: false });
            ops.push(Operation { id: OpId(time), process: None, call: time, ret: None, op });
            time += 1;
            continue;
        };
        let op = &mut ops[running.op];
        if running.applied {
            op.ret = Some(time);
            clients[client] = None;
            time += 1;
        } else if random.chance(shape.info) {
            ghosts.extend(random.chance(500).then_some(running.op));
            clients[client] = None;
            time += 1;
        } else {
            match op.op {
                RegisterOp::Read(_) if random.chance(shape.lies) => op.op = RegisterOp::Read(Some(any(random))),
                RegisterOp::Read(_) => op.op = RegisterOp::Read(Some(state)),
                RegisterOp::Write(value) => state = value,
                RegisterOp::Cas(old, new) if old == state => state = new,
                RegisterOp::Cas(old, _) if random.chance(shape.mismatch) => op.op = RegisterOp::CasMismatch(old),
                // It failed: it did not happen. As a read that says nothing it is as good as not there.
                RegisterOp::Cas(..) | RegisterOp::CasMismatch(_) => op.op = RegisterOp::Read(None),
            }
            clients[client] = Some(Running { applied: true, ..running });
        }
    }
    ops
}

pub(crate) fn random_shape(random: &mut Random, ops: u64) -> Shape {
    Shape {
        processes: 2 + random.below(4),
        ops: 1 + random.below(ops) as usize,
        values: 1 + random.below(4),
        info: [0, 100, 400][random.below(3) as usize],
        cas: [0, 200, 700][random.below(3) as usize],
        mismatch: [0, 500, 1000][random.below(3) as usize],
        lies: [0, 200, 700][random.below(3) as usize],
    }
}

pub(crate) fn seed() -> u64 {
    let seed = std::env::var("ELENCH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    println!("ELENCH_SEED={seed}");
    seed
}

/// How many times as many random histories to try as usual.
pub(crate) fn more() -> u64 {
    std::env::var("ELENCH_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

/// Calls with every way in which `n` operations can overlap, some of them never returning.
pub(crate) fn every_overlap(n: usize, mut visit: impl FnMut(&[(u64, Option<u64>)])) {
    fn go(
        n: usize,
        time: u64,
        open: &mut Vec<usize>,
        all: &mut Vec<(u64, Option<u64>)>,
        visit: &mut impl FnMut(&[(u64, Option<u64>)]),
    ) {
        if all.len() == n {
            visit(all);
        } else {
            open.push(all.len());
            all.push((time, None));
            go(n, time + 1, open, all, visit);
            all.pop();
            open.pop();
        }
        for i in 0..open.len() {
            let op = open.remove(i);
            all[op].1 = Some(time);
            go(n, time + 1, open, all, visit);
            all[op].1 = None;
            open.insert(i, op);
        }
    }
    go(n, 0, &mut Vec::new(), &mut Vec::new(), &mut visit);
}

fn every_history(n: usize, alphabet: &[&str], mut visit: impl FnMut(&[Op])) {
    let alphabet: Vec<RegisterOp> = alphabet.iter().map(|text| register_op(text)).collect();
    let mut ops: Vec<Op> = Vec::new();
    every_overlap(n, |overlap| {
        for word in 0..alphabet.len().pow(n as u32) {
            ops.clear();
            let mut rest = word;
            for &(call, ret) in overlap {
                let op = alphabet[rest % alphabet.len()];
                ops.push(Operation { id: OpId(call), process: None, call, ret, op });
                rest /= alphabet.len();
            }
            visit(&ops);
        }
    });
}

fn agree_on_every_history(n: usize, alphabet: &[&str]) {
    let (mut valid, mut all) = (0u64, 0u64);
    every_history(n, alphabet, |ops| {
        let answer = decide_and_verify(&Register::default(), ops);
        assert_eq!(answer, brute_force(&Register::default(), ops), "{ops:?}");
        valid += u64::from(answer);
        all += 1;
    });
    println!("{all} histories of {n} operations, {valid} of them linearizable");
    assert!(valid > all / 50 && valid < all - all / 50);
}

#[test]
fn the_search_agrees_with_brute_force_on_every_history_of_three_operations() {
    for n in 1..=3 {
        agree_on_every_history(n, &["rn", "r1", "r2", "w1", "w2", "c1-2", "c2-1", "c1-1", "m1"]);
    }
}

#[test]
fn the_search_agrees_with_brute_force_on_every_history_of_four_operations_over_two_values() {
    agree_on_every_history(4, &["r1", "r2", "w1", "w2", "c1-2"]);
}

#[test]
fn the_search_agrees_with_brute_force_on_random_histories() {
    let mut random = Random(seed());
    let mut valid = 0;
    let runs = 100_000 * more();
    for run in 0..runs {
        let shape = random_shape(&mut random, if run % 4 == 0 { 14 } else { 7 });
        let ops = simulate(&mut random, shape);
        let expected = brute_force(&Register::default(), &ops);
        assert_eq!(decide_and_verify(&Register::default(), &ops), expected, "{shape:?} {ops:?}");
        valid += u64::from(expected);
    }
    println!("{valid} of {runs} linearizable");
    assert!(valid > runs / 5 && valid < runs * 9 / 10);
}

/// Processes that do one thing after another by a clock so coarse that many things happen at once.
fn touching_history(random: &mut Random) -> Vec<Op> {
    const NAMES: [&str; 8] = ["r1", "r2", "w1", "w2", "c1-2", "c2-1", "rn", "w1"];
    let mut ops: Vec<Op> = Vec::new();
    for process in 0..2 + random.below(2) as i64 {
        let mut time = random.below(2);
        for _ in 0..1 + random.below(4) {
            time += random.below(3) / 2;
            let call = time;
            time += random.below(2);
            let ret = (!random.chance(100)).then_some(time);
            let op = register_op(NAMES[random.below(8) as usize]);
            ops.push(Operation { id: OpId(ops.len() as u64), process: Some(process), call, ret, op });
        }
    }
    ops.sort_by_key(|op| op.call);
    ops
}

#[test]
fn the_order_of_a_process_holds_where_times_do_not_tell_it() {
    let mut random = Random(seed());
    let (mut valid, mut told) = (0, 0);
    let runs = 100_000 * more();
    for _ in 0..runs {
        let mut ops = touching_history(&mut random);
        let expected = brute_force(&Register::default(), &ops);
        assert_eq!(decide_and_verify(&Register::default(), &ops), expected, "{ops:?}");
        assert_eq!(decide_and_verify(&Plain(Register::default()), &ops), expected, "{ops:?}");
        ops.iter_mut().for_each(|op| op.process = None);
        told += u64::from(!expected && brute_force(&Register::default(), &ops));
        valid += u64::from(expected);
    }
    println!("{valid} of {runs} linearizable, {told} of the others but for the order of a process");
    assert!(valid > runs / 20 && valid < runs / 2 && told > runs / 100);
}

#[test]
fn a_model_that_promises_nothing_gets_the_same_answers() {
    let mut random = Random(seed());
    for _ in 0..20_000 * more() {
        let shape = random_shape(&mut random, 10);
        let ops = simulate(&mut random, shape);
        let expected = brute_force(&Register::default(), &ops);
        assert_eq!(decide_and_verify(&Plain(Register::default()), &ops), expected, "{shape:?} {ops:?}");
    }
}

/// A counter: no operation but the read observes, none overwrites.
#[derive(Clone)]
struct Counter;

impl Model for Counter {
    type Op = (bool, u64);
    type State = u64;

    fn init(&self) -> u64 {
        0
    }

    fn step(&self, state: &u64, &(read, n): &(bool, u64)) -> Option<u64> {
        if read { (*state == n).then_some(n) } else { Some(state + n) }
    }

    fn observes(&self, op: &(bool, u64)) -> bool {
        op.0
    }
}

#[test]
fn a_counter_agrees_with_brute_force() {
    let mut random = Random(seed());
    let (mut valid, mut all) = (0, 0);
    every_overlap(5, |overlap| {
        for _ in 0..4 {
            let op = |&(call, ret): &(u64, Option<u64>)| {
                let op = if random.chance(500) { (true, random.below(3)) } else { (false, 1) };
                Operation { id: OpId(call), process: None, call, ret, op }
            };
            let ops: Vec<_> = overlap.iter().map(op).collect();
            let expected = brute_force(&Counter, &ops);
            assert_eq!(decide_and_verify(&Counter, &ops), expected, "{ops:?}");
            valid += u64::from(expected);
            all += 1;
        }
    });
    assert!(valid > all / 20 && valid < all - all / 20);
}

#[test]
fn renaming_values_changes_no_answer_and_widening_intervals_keeps_valid() {
    let mut random = Random(seed());
    for _ in 0..3_000 {
        let shape = random_shape(&mut random, 60);
        let mut ops = simulate(&mut random, shape);
        let answer = decide_and_verify(&Register::default(), &ops);

        let renamed = |v: Value| if v == Value::NIL { v } else { Value(1000 - 7 * v.0) };
        let mut others = ops.clone();
        for op in &mut others {
            op.op = match op.op {
                RegisterOp::Read(v) => RegisterOp::Read(v.map(renamed)),
                RegisterOp::Write(v) => RegisterOp::Write(renamed(v)),
                RegisterOp::Cas(a, b) => RegisterOp::Cas(renamed(a), renamed(b)),
                RegisterOp::CasMismatch(v) => RegisterOp::CasMismatch(renamed(v)),
            };
        }
        assert_eq!(decide_and_verify(&Register::default(), &others), answer);

        if answer {
            for op in &mut ops {
                op.call = op.call.saturating_sub(random.below(4));
                op.ret = op.ret.filter(|_| !random.chance(20)).map(|ret| ret + random.below(4));
            }
            ops.sort_by_key(|op| op.call);
            assert!(decide_and_verify(&Register::default(), &ops), "{ops:?}");
        }
    }
}

#[test]
fn crashed_operations_that_nobody_observes_change_no_answer() {
    let mut random = Random(seed());
    for _ in 0..3_000 {
        let shape = random_shape(&mut random, 40);
        let mut ops = simulate(&mut random, Shape { mismatch: 0, ..shape });
        let answer = decide_and_verify(&Register::default(), &ops);
        let end = ops.iter().map(|op| op.call).max().unwrap_or(0);
        for i in 0..20 {
            let new = Value(100 + random.below(10) as i64);
            let op = if random.chance(500) { RegisterOp::Write(new) } else { RegisterOp::Cas(Value(0), new) };
            ops.push(Operation { id: OpId(1_000_000 + i), process: None, call: random.below(end + 1), ret: None, op });
        }
        ops.sort_by_key(|op| op.call);
        assert_eq!(decide_and_verify(&Register::default(), &ops), answer);
    }
}

#[test]
fn a_small_sub_history_has_no_order_either_and_none_smaller_within_the_rules() {
    let mut random = Random(seed());
    let mut seen = 0;
    for _ in 0..8_000 {
        let shape = random_shape(&mut random, 14);
        let problem = Problem::new(None, Register::default(), simulate(&mut random, shape)).unwrap();
        let outcome =
            check(&problem, &Budget::unlimited(), &Evidence { shrink_time: Duration::MAX, ..Evidence::default() });
        let [violation] = outcome.violations() else { continue };
        let Some(Certificate::Stuck(stuck)) = &violation.certificate else { panic!("no certificate") };
        let pick =
            |ids: &[OpId]| -> Vec<Op> { problem.ops.iter().filter(|op| ids.contains(&op.id)).cloned().collect() };
        let (core, minimal) = (pick(&stuck.core), pick(&stuck.minimal));
        assert_eq!(verify::has_order(&Register::default(), &core, usize::MAX), Some(false), "{core:?}");
        let by_brute_force = brute_force(&Register::default(), &problem.ops);
        assert_eq!(verify::has_order(&Register::default(), &problem.ops, usize::MAX), Some(by_brute_force));
        assert!(stuck.shrunk_fully && minimal.len() <= core.len() && core.len() <= problem.ops.len());
        assert!(!brute_force(&Register::default(), &core), "{core:?}");
        assert!(core.iter().all(|op| Some(op.call) <= pick(&[stuck.op])[0].ret));
        assert!(!brute_force(&Register::default(), &minimal), "{minimal:?}");
        let model = Register::default();
        let end = pick(&[stuck.op])[0].ret;
        for i in 0..minimal.len() {
            let mut rest = minimal.clone();
            rest.remove(i);
            rest.iter_mut().for_each(|op| op.ret = op.ret.filter(|_| op.ret <= end));
            let supported = model.supported(&rest.iter().map(|op| &op.op).collect::<Vec<_>>());
            assert!(!supported || brute_force(&model, &rest), "{minimal:?} without its {i}th");
        }
        seen += 1;
    }
    assert!(seen > 500);
}

#[test]
fn what_may_be_left_out_safely_leaves_a_legal_order_legal() {
    let mut random = Random(seed());
    let model = Register::default();
    for _ in 0..20_000 {
        let shape = random_shape(&mut random, 10);
        let ops = simulate(&mut random, Shape { lies: 0, ..shape });
        let mut out: Vec<bool> = ops.iter().map(|_| random.chance(200)).collect();
        model.leave_out_safely(&ops.iter().map(|op| &op.op).collect::<Vec<_>>(), &mut out);
        let rest: Vec<Op> = ops.iter().zip(&out).filter(|(_, out)| !**out).map(|(op, _)| op.clone()).collect();
        assert!(brute_force(&model, &rest), "{ops:?} without {out:?}");
    }
}

fn answer(text: &str) -> Outcome {
    let problem = Problem::new(None, Register::default(), history(text)).unwrap();
    check(&problem, &Budget::unlimited(), &Evidence::default())
}

#[test]
fn a_stale_read_after_a_completed_write_is_not_linearizable_and_the_text_says_why() {
    let outcome = answer("0 w3, 0 ok, 1 w5, 1 ok, 0 r3, 0 ok, 1 r5, 1 ok");
    let [violation] = outcome.violations() else { panic!("{outcome:?}") };
    assert_eq!(violation.ops, [OpId(4), OpId(0), OpId(2)]);
    assert_eq!(
        violation.explanation,
        "op 4 (read of 3) completed, but no order of what was invoked before allows it: the state was 5 in every possible \
         order. In one of them it last fitted after op 0 (write of 3), until op 2 (write of 5) took effect, which had \
         returned before it was invoked. 3 operations suffice, found in 5 re-checks: op 0 (write of 3, from 0 until 1), \
         op 2 (write of 5, from 2 until 3), op 4 (read of 3, from 4 until 5)."
    );
}

#[test]
fn a_pending_write_may_take_effect_late_or_never() {
    assert!(answer("0 w1, 1 rn, 1 ok, 1 r1, 1 ok").is_valid());
    assert!(answer("0 w1, 1 rn, 1 ok, 1 rn, 1 ok").is_valid());
    assert!(answer("0 w1, 1 r1, 1 ok, 1 rn, 1 ok").is_invalid());
}

#[test]
fn a_history_without_a_completed_operation_is_no_evidence() {
    for text in ["0 w1", "0 r1, 1 c1-2"] {
        assert_eq!(*answer(text).answer(), Answer::Unknown(Why::NoEvidence));
    }
}

#[test]
fn an_operation_that_returns_before_it_is_invoked_is_refused() {
    let op = Operation { id: OpId(5), process: None, call: 5, ret: Some(3), op: RegisterOp::Write(Value(1)) };
    assert_eq!(Problem::new(None, Register::default(), vec![op]).err(), Some(OpId(5)));
}

#[test]
fn keys_are_decided_alone_and_together_whatever_the_threads() {
    let key = |k: u32, text: &str| Problem::new(Some(KeyId(k)), Register::default(), history(text)).unwrap();
    let good = "0 w1, 0 ok, 0 r1, 0 ok";
    let problems = [key(0, good), key(1, "0 w1, 0 ok, 0 rn, 0 ok"), key(2, good), key(3, "0 w1")];
    for threads in [1, 2, 0] {
        let outcome = check_keys(&problems, &Budget::unlimited().threads(threads), &Evidence::default());
        let [violation] = outcome.violations() else { panic!("{outcome:?}") };
        let Some(Certificate::Stuck(stuck)) = &violation.certificate else { panic!("no certificate") };
        assert_eq!(stuck.key, Some(KeyId(1)));
        assert_eq!((outcome.coverage().keys, outcome.coverage().keys_decided), (4, 4));
        assert!(check_keys(&[key(0, good), key(3, "0 w1")], &Budget::unlimited(), &Evidence::default()).is_valid());
    }
}

#[test]
fn what_a_register_can_do_from_any_state_it_can_from_one_of_a_few() {
    const NAMES: [&str; 8] = ["r1", "r2", "w1", "w2", "c1-2", "c2-1", "m1", "m2"];
    let (mut random, model) = (Random(seed()), Register::default());
    let legal =
        |ops: &[RegisterOp], from: Value| ops.iter().try_fold(from, |state, op| model.step(&state, op)).is_some();
    for _ in 0..20_000 {
        let ops: Vec<RegisterOp> =
            (0..1 + random.below(4)).map(|_| register_op(NAMES[random.below(8) as usize])).collect();
        let few = model.any_state(&ops.iter().collect::<Vec<_>>()).unwrap();
        let from_any = [Value::NIL, Value(1), Value(2), Value(3)].into_iter().any(|state| legal(&ops, state));
        assert_eq!(few.into_iter().any(|state| legal(&ops, state)), from_any, "{ops:?}");
    }
}

#[test]
fn a_read_that_nothing_explains_is_refuted_without_enumerating_what_may_have_happened_before() {
    let mut random = Random(seed());
    for _ in 0..5 {
        let shape = Shape { processes: 10, ops: 3_000, values: 5, info: 20, cas: 300, mismatch: 100, lies: 0 };
        let mut ops = simulate(&mut random, shape);
        let liar = ops.iter().rposition(|op| op.ret.is_some() && matches!(op.op, RegisterOp::Read(_))).unwrap();
        ops[liar].op = RegisterOp::Read(Some(Value(100)));
        let Ok(Found::Stuck(stuck)) = search::search(&Register::default(), &ops, &Budget::unlimited(), false) else {
            panic!("not refuted")
        };
        assert_eq!(stuck.op as usize, liar);
    }
}

/// Many clients, all writing at once, with compare-and-sets between few values: what blows up any search.
fn hard() -> Problem<Plain> {
    let mut ops = Vec::new();
    for i in 0..40 {
        let op = RegisterOp::Write(Value(i));
        ops.push(Operation { id: OpId(i as u64), process: None, call: i as u64, ret: Some(1000 + i as u64), op });
    }
    Problem::new(Some(KeyId(9)), Plain(Register::default()), ops).unwrap()
}

#[test]
fn a_spent_budget_gives_unknown_with_what_is_known() {
    let budgets = [
        Budget::unlimited().memory(20 << 20),
        Budget::unlimited().within(Duration::from_millis(100)),
        Budget::unlimited().memory(1 << 30).within(Duration::from_millis(300)),
    ];
    for budget in budgets {
        let outcome = check_keys(&[hard()], &budget, &Evidence::default());
        assert!(matches!(outcome.answer(), Answer::Unknown(Why::Spent(_))), "{outcome:?}");
        let [undecided] = outcome.coverage().undecided.as_slice() else { panic!("{outcome:?}") };
        assert_eq!(undecided.key, Some(KeyId(9)));
        assert!(undecided.known.contains("configurations"), "{}", undecided.known);
        assert_eq!(outcome.coverage().keys_decided, 0);
    }
}

#[test]
fn when_only_the_log_of_orders_is_too_large_the_answer_stands_without_it() {
    let mut random = Random(seed());
    let shape = Shape { processes: 4, ops: 100_000, values: 1000, info: 0, cas: 0, mismatch: 0, lies: 0 };
    let problem = Problem::new(None, Register::default(), simulate(&mut random, shape)).unwrap();
    let outcome = check(&problem, &Budget::unlimited().memory(100_000 * 12 + 500_000), &Evidence::default());
    let Answer::Valid(Some(Certificate::Orders(orders))) = outcome.answer() else { panic!("{:?}", outcome.answer()) };
    assert_eq!(orders[0].order, None);
}

/// A model with a bug.
#[derive(Clone)]
struct Panics;

impl Model for Panics {
    type Op = ();
    type State = ();

    fn init(&self) {}

    fn step(&self, (): &(), (): &()) -> Option<()> {
        panic!("a bug in the model")
    }
}

#[test]
fn a_panic_in_a_model_is_that_keys_unknown() {
    let op = Operation { id: OpId(0), process: None, call: 0, ret: Some(1), op: () };
    let problem = Problem::new(None, Panics, vec![op]).unwrap();
    let outcome = check_keys(&[problem], &Budget::unlimited(), &Evidence::default());
    assert_eq!(*outcome.answer(), Answer::Unknown(Why::Other("the check panicked: a bug in the model".into())));
}

#[test]
fn thousands_of_crashed_operations_and_more_than_64_open_at_once_are_handled() {
    let mut ops = Vec::new();
    let mut push = |call: u64, ret, op| ops.push(Operation { id: OpId(call), process: None, call, ret, op });
    for i in 0..3000 {
        push(i, None, RegisterOp::Write(Value(i as i64)));
    }
    for i in 0..100 {
        push(3000 + i, Some(5000 + i), RegisterOp::Write(Value(10_000 + i as i64)));
    }
    for i in 0..1500 {
        push(6000 + 2 * i, Some(6001 + 2 * i), RegisterOp::Read(Some(Value(i as i64))));
    }
    assert!(decide_and_verify(&Register::default(), &ops));
    let again = RegisterOp::Read(Some(Value(7)));
    ops.push(Operation { id: OpId(20_000), process: None, call: 20_000, ret: Some(20_001), op: again });
    assert!(!decide_and_verify(&Register::default(), &ops));
}

/// Elements of a set know nothing of each other, but a process that goes on from one to another at the very time at which it
/// ended binds them: here each of two adds is seen before it was made.
#[test]
fn parts_that_touching_operations_bind_are_not_decided_apart() {
    use crate::model::{Set, SetOp};
    let op = |id, process, call, op| Operation { id: OpId(id), process: Some(process), call, ret: Some(call + 4), op };
    let saw = |element| SetOp::Contains(Value(element), Some(true));
    let add = |element| SetOp::Add(Value(element), None);
    let ops = vec![op(0, 0, 1, saw(1)), op(1, 1, 1, saw(2)), op(2, 0, 5, add(2)), op(3, 1, 5, add(1))];
    let invalid = |ops: &[Operation<SetOp>]| {
        let problem = Problem::new(None, Set::default(), ops.to_vec()).unwrap();
        let outcome = check(&problem, &Budget::unlimited(), &Evidence::default());
        assert_eq!(outcome.is_valid(), brute_force(&Set::default(), problem.ops()));
        outcome.is_invalid()
    };
    assert!(invalid(&ops));
    let of_many: Vec<_> = ops.iter().map(|op| Operation { process: None, ..op.clone() }).collect();
    assert!(!invalid(&of_many));
}
