//! Every model against brute force, with its promises and without them.

use std::sync::Arc;

use super::lock::Ownership;
use super::*;
use crate::linear::Operation;
use crate::linear::tests::{Random, brute_force, decide_and_verify, every_overlap, seed};
use crate::outcome::OpId;

/// A model of which only the specification is known.
#[derive(Clone)]
struct Bare<M>(M);

impl<M: Model> Model for Bare<M> {
    type Op = M::Op;
    type State = M::State;

    fn init(&self) -> M::State {
        self.0.init()
    }

    fn step(&self, state: &M::State, op: &M::Op) -> Option<M::State> {
        self.0.step(state, op)
    }
}

/// The model of a history: some models are told all operations when they are made.
trait Made<M: Model>: Fn(&[Operation<M::Op>]) -> M {}

impl<M: Model, F: Fn(&[Operation<M::Op>]) -> M> Made<M> for F {}

fn decide<M: Model<State: Send> + 'static>(model: M, ops: &[Operation<M::Op>]) -> bool {
    let (model, ops) = AnyModel::new(model, ops.to_vec());
    decide_and_verify(&model, &ops)
}

/// Operations of a real execution: each takes effect at its moment, in the order of moments, between its invocation and its
/// return, with a result that the state allows. Some never return.
fn execution<M: Model>(
    model: &M,
    random: &mut Random,
    n: usize,
    op: &impl Fn(&mut Random) -> M::Op,
) -> Vec<Operation<M::Op>> {
    let mut state = model.init();
    let mut ops: Vec<Operation<M::Op>> = Vec::new();
    for i in 0..n as u64 {
        let Some((op, next)) = (0..50).map(|_| op(random)).find_map(|op| model.step(&state, &op).map(|s| (op, s)))
        else {
            break;
        };
        state = next;
        let moment = 100 + 10 * i;
        let (call, ret) = (moment - random.below(25), moment + 1 + random.below(25));
        ops.push(Operation { id: OpId(i), process: None, call, ret: (!random.chance(150)).then_some(ret), op });
    }
    ops.sort_by_key(|op| op.call);
    ops
}

struct Seen {
    valid: u64,
    all: u64,
}

impl Seen {
    fn check<M: Model<State: Send> + 'static>(&mut self, made: &impl Made<M>, ops: &[Operation<M::Op>]) -> bool {
        let model = made(ops);
        let expected = brute_force(&model, ops);
        assert_eq!(decide(model.clone(), ops), expected, "{ops:?}");
        if self.all.is_multiple_of(4) {
            assert_eq!(decide(Bare(model), ops), expected, "without promises: {ops:?}");
        }
        self.valid += u64::from(expected);
        self.all += 1;
        expected
    }
}

/// Holds a model against brute force: over every way in which a few operations overlap, over real executions, and over these
/// with one operation replaced by another; and its promises against the specification.
fn agrees<M: Model<State: Send> + 'static>(name: &str, made: impl Made<M>, op: impl Fn(&mut Random) -> M::Op) {
    let mut random = Random(seed());
    let mut seen = Seen { valid: 0, all: 0 };
    for round in 0..12 {
        every_overlap(if round == 0 { 5 } else { 4 }, |overlap| {
            let one = |&(call, ret): &(u64, Option<u64>)| Operation {
                id: OpId(call),
                process: None,
                call,
                ret,
                op: op(&mut random),
            };
            let ops: Vec<_> = overlap.iter().map(one).collect();
            seen.check(&made, &ops);
        });
    }
    let small = format!("{} of {}", seen.valid, seen.all);
    assert!(seen.all > 5_000 && seen.valid > seen.all / 50 && seen.valid < seen.all * 49 / 50, "{name}: {small}");
    let (mut executed, mut changed) = (Seen { valid: 0, all: 0 }, Seen { valid: 0, all: 0 });
    for _ in 0..4_000 {
        let n = 2 + random.below(9) as usize;
        let mut ops = execution(&made(&[]), &mut random, n, &op);
        assert!(executed.check(&made, &ops), "{name}: {ops:?}");
        keeps_its_promises(&made(&ops), &ops, &mut random, &op);
        for _ in 0..2 {
            let i = random.below(ops.len() as u64) as usize;
            ops[i].op = op(&mut random);
            changed.check(&made, &ops);
        }
    }
    println!("{name}: {small} small histories are valid, and {} of {} changed ones", changed.valid, changed.all);
    assert!(changed.valid > changed.all / 50 && changed.valid < changed.all * 49 / 50, "{name}");
}

/// Of a legal history: what may be left out safely leaves an order, and along the way operations observe and overwrite as
/// promised.
fn keeps_its_promises<M: Model>(
    model: &M,
    ops: &[Operation<M::Op>],
    random: &mut Random,
    op: &impl Fn(&mut Random) -> M::Op,
) {
    let mut out: Vec<bool> = ops.iter().map(|_| random.chance(200)).collect();
    model.leave_out_safely(&ops.iter().map(|op| &op.op).collect::<Vec<_>>(), &mut out);
    let rest: Vec<_> = ops.iter().zip(&out).filter(|(_, out)| !**out).map(|(op, _)| op.clone()).collect();
    assert!(brute_force(model, &rest), "{ops:?} without {out:?}");
    let mut state = model.init();
    let mut overwritten: Option<(M::Op, M::State)> = None;
    let among: Vec<M::Op> = ops.iter().map(|op| op.op.clone()).collect();
    for _ in 0..10 {
        // A model that is told all operations promises nothing of others.
        let op = if among.is_empty() { op(random) } else { among[random.below(among.len() as u64) as usize].clone() };
        let next = model.step(&state, &op);
        if model.observes(&op) {
            assert!(next.as_ref().is_none_or(|next| *next == state), "{op:?} changes {state:?}");
        }
        if model.overwrites(&op) {
            let next = next.clone().expect("an overwriting operation is always possible");
            if let Some((_, before)) = overwritten.as_ref().filter(|(other, _)| *other == op) {
                assert_eq!(*before, next, "{op:?}");
            }
            overwritten = Some((op, next));
        }
        state = next.unwrap_or(state);
    }
}

fn value(random: &mut Random, n: u64) -> Value {
    Value(random.below(n) as i64)
}

fn maybe<T>(random: &mut Random, value: T) -> Option<T> {
    random.chance(750).then_some(value)
}

fn values(random: &mut Random, most: u64) -> Arc<[Value]> {
    (0..random.below(most + 1)).map(|_| value(random, 2)).collect()
}

#[test]
fn a_counter_agrees_with_brute_force() {
    agrees(
        "counter",
        |_: &[_]| Counter::new(1),
        |random| {
            let (n, seen) = (random.below(4) as i64 - 1, random.below(5) as i64 - 1);
            match random.below(5) {
                0 | 1 => CounterOp::Add(n),
                2 => CounterOp::Read(maybe(random, seen)),
                3 => CounterOp::AddAndGet(n, seen),
                _ => CounterOp::GetAndAdd(n, seen),
            }
        },
    );
}

#[test]
fn a_mutex_agrees_with_brute_force() {
    let op = |random: &mut Random| if random.chance(500) { MutexOp::Acquire } else { MutexOp::Release };
    agrees("mutex", |_: &[_]| Mutex::new(false), op);
    agrees("locked mutex", |_: &[_]| Mutex::new(true), op);
}

fn owned(random: &mut Random, tokens: bool) -> OwnedOp {
    let owner = value(random, 2);
    let owner = random.chance(900).then_some(owner);
    if random.chance(450) {
        return OwnedOp::Release(owner);
    }
    let token = 1 + random.below(4) as i64;
    OwnedOp::Acquire(owner, (tokens && random.chance(700)).then_some(token))
}

#[test]
fn mutexes_with_owners_agree_with_brute_force() {
    agrees("owned mutex", |_: &[_]| OwnedMutex::once(), |random| owned(random, false));
    agrees("reentrant mutex", |_: &[_]| OwnedMutex::reentrant(2), |random| owned(random, false));
    agrees("fenced mutex", |_: &[_]| OwnedMutex::once(), |random| owned(random, true));
    agrees("reentrant fenced mutex", |_: &[_]| OwnedMutex::reentrant(3), |random| owned(random, true));
}

/// All that a mutex with owners may be, when each owner that is not known is guessed anew at every operation: the
/// specification with names, without the shortcut for unknown ones.
fn guessed(holds: u32, ops: &[OwnedOp]) -> bool {
    let mut states = vec![(None::<i64>, 0u32)];
    for op in ops {
        let who: Vec<i64> = op.owner_known().map_or((0..4).collect(), |owner| vec![owner.0]);
        let next = |&(held, times): &(Option<i64>, u32), who: i64| match op {
            OwnedOp::Acquire(..) if held.is_none_or(|h| h == who) && times < holds => Some((Some(who), times + 1)),
            OwnedOp::Release(_) if held == Some(who) => Some((Some(who).filter(|_| times > 1), times - 1)),
            _ => None,
        };
        states = states.iter().flat_map(|state| who.iter().filter_map(move |&who| next(state, who))).collect();
        states.sort_unstable();
        states.dedup();
    }
    !states.is_empty()
}

impl OwnedOp {
    fn owner_known(&self) -> Option<Value> {
        match *self {
            OwnedOp::Acquire(owner, _) | OwnedOp::Release(owner) => owner,
        }
    }
}

#[test]
fn an_unknown_owner_is_whoever_fits() {
    let mut random = Random(seed());
    let mut legal = 0;
    for _ in 0..50_000 {
        let holds = 1 + random.below(3) as u32;
        let mut ops: Vec<OwnedOp> = (0..1 + random.below(6)).map(|_| owned(&mut random, false)).collect();
        ops.retain(|_| random.chance(900));
        let model = OwnedMutex::reentrant(holds);
        let last = ops.iter().try_fold(Ownership::default(), |state, op| model.step(&state, op));
        assert_eq!(last.is_some(), guessed(holds, &ops), "{holds} {ops:?}");
        legal += u32::from(last.is_some());
    }
    assert!(legal > 5_000 && legal < 45_000);
}

#[test]
fn a_semaphore_agrees_with_brute_force() {
    agrees(
        "semaphore",
        |_: &[_]| Semaphore::new(3),
        |random| {
            let n = random.below(4);
            if random.chance(500) { SemaphoreOp::Acquire(n) } else { SemaphoreOp::Release(n) }
        },
    );
}

#[test]
fn a_lease_agrees_with_brute_force() {
    agrees(
        "lease",
        |_: &[_]| Lease::default(),
        |random| {
            let owner = value(random, 3);
            let owner = random.chance(900).then_some(owner);
            if random.chance(200) {
                return LeaseOp::Release(owner);
            }
            let from = random.below(6) as i64;
            let until = if random.chance(150) { i64::MAX } else { from + random.below(3) as i64 };
            LeaseOp::Grant { owner, from, until, ttl: random.below(5) as i64 }
        },
    );
}

/// A lease service with a clock: it grants to whoever asks when nobody holds an unexpired lease. Whatever the delays between asking, granting
/// and hearing of it, and whatever is never heard of, it is not accused.
#[test]
fn a_correct_lease_service_is_never_accused() {
    let mut random = Random(seed());
    for _ in 0..20_000 {
        let (mut now, mut held): (i64, Option<(i64, i64)>) = (100, None);
        let mut ops = Vec::new();
        for i in 0..8u64 {
            now += random.below(6) as i64;
            let who = random.below(3) as i64;
            let (call, ret) = (now - random.below(5) as i64, now + random.below(5) as i64);
            let heard = random.chance(850);
            let free = held.is_none_or(|(holder, end)| holder == who || end <= now);
            let op = if random.chance(250) && held.is_some_and(|(holder, _)| holder == who) {
                held = None;
                LeaseOp::Release(Some(Value(who)))
            } else if free {
                let ttl = random.below(8) as i64;
                held = Some((who, now + ttl));
                let until = if heard { ret } else { i64::MAX };
                LeaseOp::Grant { owner: Some(Value(who)), from: call, until, ttl }
            } else {
                continue;
            };
            let (call, ret) = (4 * call as u64, heard.then_some(4 * ret as u64 + 1));
            ops.push(Operation { id: OpId(i), process: None, call, ret, op });
        }
        ops.sort_by_key(|op| op.call);
        assert!(decide(Lease::default(), &ops), "{ops:?}");
    }
}

#[test]
fn a_bank_agrees_with_brute_force() {
    let op = |random: &mut Random| {
        if random.chance(500) {
            return BankOp::Transfer(value(random, 2), value(random, 2), 1 + random.below(2) as i64);
        }
        let a = random.below(4) as i128;
        let b = if random.chance(800) { 3 - a } else { random.below(3) as i128 };
        if random.chance(100) { BankOp::Read(None) } else { BankOp::read([(Value(0), a), (Value(1), b)]) }
    };
    let initial = || Some(vec![(Value(0), 2), (Value(1), 1)]);
    agrees("bank", |_: &[_]| Bank::new(initial()), op);
    agrees("bank with overdrafts", |_: &[_]| Bank::new(initial()).with_overdrafts(), op);
    agrees("bank that begins somehow", |_: &[_]| Bank::new(None), op);
}

#[test]
fn a_versioned_register_agrees_with_brute_force() {
    agrees(
        "versioned register",
        |_: &[_]| VersionedRegister::new(0, Value::NIL),
        |random| {
            let version = random.below(4);
            let version = random.chance(600).then_some(version);
            match random.below(6) {
                0 | 1 => VersionedOp::Read(version, random.chance(600).then_some(value(random, 2))),
                2 | 3 => VersionedOp::Write(version, value(random, 2)),
                4 => VersionedOp::Cas(version, value(random, 2), value(random, 2)),
                _ => VersionedOp::CasVersion(random.below(3), value(random, 2)),
            }
        },
    );
}

fn list_op(random: &mut Random) -> AppendOp {
    if random.chance(500) {
        return AppendOp::Append(Arc::new([value(random, 2)]));
    }
    let read = values(random, 3);
    AppendOp::Read(maybe(random, read))
}

fn text_op(random: &mut Random) -> AppendOp {
    match random.below(8) {
        0..=2 => AppendOp::Append(values(random, 2)),
        3 => AppendOp::Write(values(random, 2)),
        4 => AppendOp::Cas(values(random, 2), values(random, 2)),
        _ => AppendOp::Read(Some(values(random, 2))),
    }
}

#[test]
fn a_list_agrees_with_brute_force() {
    agrees("append list", |_: &[_]| AppendList::default(), list_op);
    agrees("text", |_: &[_]| AppendList::new(&[Value(0)]), text_op);
}

#[test]
fn a_list_that_knows_what_is_observed_gives_the_same_answers() {
    let mut random = Random(seed());
    let (mut valid, mut all) = (0, 0);
    every_overlap(4, |overlap| {
        for round in 0..12 {
            let mut one = |&(call, ret): &(u64, Option<u64>)| {
                let op = if round % 2 == 0 { list_op(&mut random) } else { text_op(&mut random) };
                Operation { id: OpId(call), process: None, call, ret, op }
            };
            let ops: Vec<_> = overlap.iter().map(&mut one).collect();
            let model = AppendList::new(&[Value(0)][..round / 6]);
            let expected = brute_force(&model, &ops);
            assert_eq!(decide(model.of(ops.iter().map(|op| &op.op)), &ops), expected, "{ops:?}");
            valid += u32::from(expected);
            all += 1;
        }
    });
    for _ in 0..5_000 {
        let n = 2 + random.below(9) as usize;
        let mut ops = execution(&AppendList::default(), &mut random, n, &|random| {
            if random.chance(700) { list_op(random) } else { text_op(random) }
        });
        for _ in 0..2 {
            let expected = brute_force(&AppendList::default(), &ops);
            assert_eq!(decide(AppendList::default().of(ops.iter().map(|op| &op.op)), &ops), expected, "{ops:?}");
            valid += u32::from(expected);
            all += 1;
            let i = random.below(ops.len() as u64) as usize;
            ops[i].op = list_op(&mut random);
        }
    }
    println!("{valid} of {all} are valid");
    assert!(valid > all / 10 && valid < all * 9 / 10);
}

#[test]
fn a_log_agrees_with_brute_force() {
    agrees(
        "log",
        |_: &[_]| Log::default(),
        |random| {
            let at = random.below(3);
            match random.below(8) {
                0..=3 => LogOp::Append(value(random, 2), random.chance(500).then_some(at)),
                4 | 5 => LogOp::Read(at, random.chance(700).then_some(value(random, 2))),
                6 => LogOp::Range(at, random.chance(500).then_some(at + random.below(3)), values(random, 2)),
                _ => LogOp::Batch(at, values(random, 2)),
            }
        },
    );
}

/// One register of three, or two of them, read, written, or both.
fn transaction(random: &mut Random) -> Arc<[MultiOp]> {
    let one = |random: &mut Random| {
        let (key, what) = (value(random, 3), value(random, 2));
        if random.chance(500) {
            return MultiOp::Write(key, what);
        }
        MultiOp::Read(key, random.chance(850).then_some(what))
    };
    (0..1 + random.below(5) / 3).map(|_| one(random)).collect()
}

#[test]
fn many_registers_agree_with_brute_force() {
    let whole = |_: &[_]| MultiRegister::new([], Value(0));
    let divided = |ops: &[Operation<Arc<[MultiOp]>>]| {
        MultiRegister::new([(Value(1), Value(1))], Value(0)).of(ops.iter().map(|op| &op.op))
    };
    agrees("many registers", whole, transaction);
    agrees("many registers, divided", divided, transaction);
    let of_one_or_all = |random: &mut Random| match random.below(3) {
        0 => [0, 1].map(|key| MultiOp::Write(Value(key), value(random, 2))).into(),
        _ => transaction(random)
            .iter()
            .filter(|op| !matches!(op, MultiOp::Read(Value(2), _) | MultiOp::Write(Value(2), _)))
            .copied()
            .collect(),
    };
    agrees("two registers, overwritten", divided, of_one_or_all);
}

fn door() -> Table {
    let transition = |from: u32, f: &str, output: Option<&str>, to: Option<u32>| Transition {
        from: Some(from),
        f: f.into(),
        input: None,
        output: output.map(Into::into),
        to,
    };
    let transitions = vec![
        transition(0, "open", Some("true"), Some(1)),
        transition(1, "open", Some("false"), None),
        transition(1, "close", None, Some(0)),
        transition(1, "slam", None, Some(0)),
        transition(1, "slam", None, Some(2)),
        transition(0, "look", Some(":shut"), None),
        transition(2, "look", Some(":broken"), None),
    ];
    Table::new(["shut", "open", "broken"].map(Into::into).to_vec(), 0, transitions).unwrap()
}

#[test]
fn a_table_agrees_with_brute_force() {
    agrees(
        "table",
        |_: &[_]| door(),
        |random| {
            let (f, outputs): (&str, &[&str]) = match random.below(4) {
                0 => ("open", &["true", "false"]),
                1 => ("close", &["nil"]),
                2 => ("slam", &["nil"]),
                _ => ("look", &[":shut", ":broken"]),
            };
            let output = outputs[random.below(outputs.len() as u64) as usize];
            TableOp { f: f.into(), input: "nil".into(), output: random.chance(700).then(|| output.into()) }
        },
    );
}

#[test]
fn a_state_that_no_table_has_is_refused() {
    let to_nowhere = Transition { from: None, f: "go".into(), input: None, output: None, to: Some(7) };
    assert!(Table::new(vec!["here".into()], 0, vec![to_nowhere]).is_none());
    assert!(Table::new(vec![], 0, vec![]).is_none());
}
