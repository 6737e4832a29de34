//! Is what is generated right, or wrong as claimed? Answered by brute force where histories are tiny, and by replaying
//! the order of effects where they are not.

use std::collections::{BTreeMap, HashMap};

use elench_formats::History;
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{KeyForm, Status};

use crate::*;

fn lift(options: &GenOptions) -> BuildOptions {
    let lift = if options.independent { Lift::Always } else { Lift::Never };
    BuildOptions { lift, real_time: true, ..BuildOptions::default() }
}

fn history(options: &GenOptions) -> (History, Generated) {
    let mut builder = HistoryBuilder::new(lift(options));
    let generated = generate(options, &mut |batch| builder.push(batch)).unwrap();
    (builder.finish().unwrap(), generated)
}

/// The history, and the order in which operations took effect.
fn traced(options: &GenOptions) -> (History, Vec<u64>) {
    options.check().unwrap();
    let mut builder = HistoryBuilder::new(lift(options));
    let mut simulation = Simulation::new(options, options.seed);
    simulation.run(false, &mut |batch| builder.push(batch)).unwrap();
    (builder.finish().unwrap(), simulation.effects)
}

fn tiny(workload: Workload, seed: u64) -> GenOptions {
    GenOptions {
        ops: if workload.is_txn() { 6 } else { 8 },
        clients: 3,
        seed,
        keys: if workload.is_txn() { 2 } else { 1 },
        fault_after: 0.0,
        ..GenOptions::new(workload)
    }
}

fn busy(workload: Workload) -> GenOptions {
    GenOptions {
        ops: 4000,
        clients: 20,
        info: 0.05,
        fail: 0.05,
        keys: if workload.is_txn() { 6 } else { 1 },
        nemesis_ns: 7_000_000,
        ..GenOptions::new(workload)
    }
}

#[derive(Clone, Debug)]
struct Reg {
    from: u64,
    to: u64,
    must: bool,
    f: String,
    input: Vec<Option<i64>>,
    output: Option<i64>,
}

fn int(s: Scalar) -> Option<i64> {
    match s {
        Scalar::Int(n) => Some(n),
        _ => None,
    }
}

fn ints(v: ValueRef<'_>) -> Vec<Option<i64>> {
    match v {
        ValueRef::Int(n) => vec![Some(n)],
        ValueRef::List(l) => l.iter().map(int).collect(),
        _ => vec![None],
    }
}

/// What may have happened, key by key.
fn registers(history: &History) -> Vec<Vec<Reg>> {
    let mut keys: BTreeMap<Option<i64>, Vec<Reg>> = BTreeMap::new();
    for op in history.clients().filter(|op| op.status() != Status::Fail) {
        let must = op.status() == Status::Ok;
        keys.entry(int(op.key())).or_default().push(Reg {
            from: op.index(),
            to: if must { op.complete_index().unwrap() } else { u64::MAX },
            must,
            f: op.f().unwrap().into(),
            input: ints(op.input()),
            output: ints(op.output())[0],
        });
    }
    keys.into_values().collect()
}

/// Brute force: is there an order?
fn linearizable(ops: &[Reg], state: Option<i64>) -> bool {
    let Some(deadline) = ops.iter().filter(|o| o.must).map(|o| o.to).min() else { return true };
    (0..ops.len()).filter(|&i| ops[i].from < deadline).any(|i| {
        let next = match (ops[i].f.as_str(), &ops[i].input[..]) {
            ("read", _) => (!ops[i].must || ops[i].output == state).then_some(state),
            ("write", [v]) => Some(*v),
            ("cas", [old, new]) => (*old == state).then_some(*new),
            _ => panic!("{:?}", ops[i]),
        };
        let mut rest = ops.to_vec();
        rest.remove(i);
        next.is_some_and(|next| linearizable(&rest, next))
    })
}

#[derive(Clone, Debug)]
struct Txn {
    index: u64,
    status: Status,
    /// Write?, key, and what was written or read.
    mops: Vec<(bool, i64, Vec<i64>)>,
}

fn txns(history: &History) -> Vec<Txn> {
    let txn = |op: elench_formats::history::OpRef<'_>| Txn {
        index: op.index(),
        status: op.status(),
        mops: op
            .txn()
            .unwrap()
            .iter()
            .map(|m| (op.mop_name(m.f) != "r", int(m.key).unwrap(), ints(m.value).into_iter().flatten().collect()))
            .collect(),
    };
    history.clients().map(txn).collect()
}

type State = HashMap<i64, Vec<i64>>;

/// Applies a transaction; are its reads explained?
fn replay(txn: &Txn, lists: bool, state: &mut State) -> bool {
    txn.mops.iter().all(|(write, key, value)| {
        let at = state.entry(*key).or_default();
        match (write, lists) {
            (true, true) => at.extend(value),
            (true, false) => at.clone_from(value),
            (false, _) => return txn.status != Status::Ok || at == value,
        }
        true
    })
}

/// Brute force: is there a serial order of those that were acknowledged?
fn serializable(txns: &[Txn], lists: bool, state: &State) -> bool {
    txns.is_empty()
        || (0..txns.len()).any(|i| {
            let (mut rest, mut state) = (txns.to_vec(), state.clone());
            let txn = rest.remove(i);
            replay(&txn, lists, &mut state) && serializable(&rest, lists, &state)
        })
}

fn acknowledged(history: &History) -> Vec<Txn> {
    txns(history).into_iter().filter(|t| t.status == Status::Ok).collect()
}

fn digest(options: &GenOptions) -> u64 {
    let mut text = String::new();
    generate(options, &mut |batch| {
        for i in 0..batch.len() {
            let head = (batch.index[i], batch.time[i], batch.kind[i], batch.process[i], batch.f[i]);
            text.push_str(&format!("{head:?}"));
            batch.write_edn(batch.value[i], &mut text);
        }
        Ok(())
    })
    .unwrap();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn a_seed_gives_the_same_events_for_ever() {
    let digests: Vec<_> = Workload::ALL.into_iter().map(|w| digest(&busy(w))).collect();
    assert_eq!(digests, Workload::ALL.into_iter().map(|w| digest(&busy(w))).collect::<Vec<_>>());
    assert_eq!(digests, PINNED);
    assert_ne!(digest(&GenOptions { seed: 1, ..busy(Workload::Register) }), digests[0]);
}

const PINNED: [u64; 4] = [2006953576506012731, 3204765841385447841, 14169552278562970249, 14109662523354394767];

#[test]
fn every_history_is_well_formed_and_counted() {
    for workload in Workload::ALL {
        let (history, generated) = history(&busy(workload));
        let [ok, fail, info, pending] = history.counts();
        assert_eq!([ok, fail, info], generated.outcomes);
        assert_eq!((pending, ok + fail + info, generated.ops), (0, 4000, 4000));
        assert!(fail > 100 && info > 100 && ok > 2000, "{workload:?}: {:?}", generated.outcomes);
        let nemesis = history.ops().filter(|op| !op.is_client()).count() as u64;
        assert!(nemesis >= 2 && nemesis.is_multiple_of(2));
        assert_eq!(generated.events, 2 * (generated.ops + nemesis));
        assert!(history.faults().iter().all(|w| w.end.is_some()));
        for op in history.clients() {
            assert!(op.invoke_time() < op.complete_time());
        }
    }
}

#[test]
fn an_unknown_operation_ends_its_process() {
    let (history, _) = history(&busy(Workload::Register));
    let mut dead = HashMap::new();
    for op in history.clients() {
        let process = op.process().unwrap();
        assert!(!dead.contains_key(&process));
        if op.status() == Status::Info {
            dead.insert(process, ());
        }
    }
}

#[test]
fn clean_registers_are_linearizable() {
    for seed in 0..400 {
        for workload in [Workload::Register, Workload::CasRegister] {
            for values in [Values::Unique, Values::Domain(3)] {
                let shares = GenOptions { values, info: 0.2, fail: 0.1, ..tiny(workload, seed) };
                let keyed = GenOptions { independent: true, keys: 2, writes_per_key: 3, ..shares.clone() };
                for options in [shares, keyed] {
                    let (history, _) = history(&options);
                    for ops in registers(&history) {
                        assert!(linearizable(&ops, None), "{options:?}: {ops:#?}");
                    }
                }
            }
        }
    }
}

#[test]
fn faulty_registers_are_not_linearizable() {
    for seed in 0..150 {
        for workload in [Workload::Register, Workload::CasRegister] {
            for &fault in workload.faults() {
                let bare = GenOptions { fault: Some(fault), info: 0.1, ..tiny(workload, seed) };
                let keyed = GenOptions { independent: true, keys: 2, ..bare.clone() };
                for options in [bare, keyed] {
                    let (history, generated) = history(&options);
                    let right = registers(&history).iter().all(|ops| linearizable(ops, None));
                    assert!(!right, "{options:?}: {generated:?} {:#?}", registers(&history));
                }
            }
        }
    }
}

#[test]
fn the_operations_named_contradict_each_other_by_themselves() {
    for workload in [Workload::Register, Workload::CasRegister] {
        for &fault in workload.faults() {
            for seed in 0..10 {
                let options = GenOptions { fault: Some(fault), seed, ..busy(workload) };
                let (history, generated) = history(&options);
                let named = generated.injected.unwrap().ops;
                let ops: Vec<_> = registers(&history).remove(0);
                let named: Vec<_> = ops.into_iter().filter(|o| named.contains(&o.from)).collect();
                // A cas among them is only known to have written its second value.
                let as_write = |o: &Reg| match o.f.as_str() {
                    "cas" if o.from != named[named.len() - 1].from => {
                        Reg { f: "write".into(), input: vec![o.input[1]], ..o.clone() }
                    }
                    _ => o.clone(),
                };
                let alone: Vec<_> = named.iter().map(as_write).collect();
                assert!(!linearizable(&alone, None), "{fault:?}: {alone:#?}");
            }
        }
    }
}

#[test]
fn the_order_of_effects_explains_every_read_of_a_serial_system() {
    for workload in [Workload::ListAppend, Workload::RwRegister] {
        for seed in 0..5 {
            let options = GenOptions { seed, skew: seed as f64 / 2.0, ..busy(workload) };
            let (history, effects) = traced(&options);
            let all: HashMap<u64, Txn> = txns(&history).into_iter().map(|t| (t.index, t)).collect();
            let (mut state, mut latest) = (State::new(), 0);
            for index in &effects {
                let op = history.op(history.row_of(*index).unwrap());
                assert!(op.status() != Status::Ok || op.complete_index().unwrap() > latest);
                latest = latest.max(*index);
                let lists = workload == Workload::ListAppend;
                assert!(replay(&all[index], lists, &mut state), "{:?}", all[index]);
            }
            assert!(all.values().all(|t| t.status != Status::Ok || effects.contains(&t.index)));
            assert!(all.values().all(|t| t.status != Status::Fail || !effects.contains(&t.index)));
        }
    }
}

#[test]
fn faulty_transactions_are_not_serializable() {
    for seed in 0..60 {
        for workload in [Workload::ListAppend, Workload::RwRegister] {
            let lists = workload == Workload::ListAppend;
            let (clean, _) = history(&tiny(workload, seed));
            assert!(serializable(&acknowledged(&clean), lists, &State::new()));
            for &fault in workload.faults() {
                let options = GenOptions { fault: Some(fault), ..tiny(workload, seed) };
                let (history, generated) = history(&options);
                let txns = acknowledged(&history);
                assert!(!serializable(&txns, lists, &State::new()), "{generated:?} {txns:#?}");
            }
        }
    }
}

#[test]
fn up_to_its_fault_a_history_is_the_clean_one() {
    let clean = busy(Workload::ListAppend);
    let (right, _) = history(&clean);
    let (wrong, generated) = history(&GenOptions { fault: Some(Fault::LostUpdate), ..clean });
    assert_eq!(generated.attempts, 1);
    let (mut differ, mut seen) = (Vec::new(), 0);
    for (a, b) in right.ops().zip(wrong.ops()) {
        let (mut x, mut y) = (String::new(), String::new());
        a.write_complete_value(&mut x);
        b.write_complete_value(&mut y);
        assert_eq!((a.index(), a.complete_index(), a.status()), (b.index(), b.complete_index(), b.status()));
        if x != y {
            differ.push(a.index());
        }
        seen += 1;
    }
    assert!(seen >= 4000);
    assert_eq!(differ, generated.injected.unwrap().ops[1..]);
}

/// A faulty list-append history, its transactions by index, and the fault.
fn faulty(fault: Fault, seed: u64) -> (HashMap<u64, Txn>, Injected) {
    let options = GenOptions { fault: Some(fault), seed, ..busy(Workload::ListAppend) };
    let (history, generated) = history(&options);
    (txns(&history).into_iter().map(|t| (t.index, t)).collect(), generated.injected.unwrap())
}

fn writes(txn: &Txn) -> Vec<(i64, i64)> {
    txn.mops.iter().filter(|m| m.0).map(|m| (m.1, m.2[0])).collect()
}

fn reads(txn: &Txn) -> impl Iterator<Item = (i64, &Vec<i64>)> {
    txn.mops.iter().filter(|m| !m.0).map(|m| (m.1, &m.2))
}

/// Does `reader` see an element that `writer` appended? Does it read a key and miss one?
fn sees(reader: &Txn, writer: &Txn) -> (bool, bool) {
    let pairs = || {
        let of = |(k, v)| reads(reader).filter(move |r| r.0 == k).map(move |r| r.1.contains(&v)).collect::<Vec<_>>();
        writes(writer).into_iter().flat_map(of)
    };
    (pairs().any(|x| x), pairs().any(|x| !x))
}

#[test]
fn each_fault_of_transactions_is_what_it_claims_to_be() {
    for seed in 0..10 {
        for fault in [Fault::G1a, Fault::G1b, Fault::GSingle, Fault::LostUpdate, Fault::WriteSkew, Fault::G0] {
            let (all, injected) = faulty(fault, seed);
            let [a, b] = [&all[&injected.ops[0]], &all[&injected.ops[1]]];
            assert_eq!((injected.fault, b.status), (fault, Status::Ok));
            assert_eq!(a.status, if fault == Fault::G1a { Status::Fail } else { Status::Ok });
            match fault {
                Fault::G1a => assert!(sees(b, a).0),
                Fault::G1b => {
                    let first = |k, v: &i64| writes(a).iter().any(|w| w.0 == k && w.1 > *v);
                    assert!(
                        reads(b).any(|(k, l)| l.last().is_some_and(|v| writes(a).contains(&(k, *v)) && first(k, v)))
                    );
                }
                Fault::GSingle => assert_eq!(sees(b, a), (true, true)),
                Fault::WriteSkew => assert!(sees(b, a).1 && sees(a, b).1 && !sees(b, a).0),
                Fault::LostUpdate => {
                    let same =
                        |(k, l): (i64, &Vec<i64>)| reads(a).any(|r| r == (k, l)) && writes(b).iter().any(|w| w.0 == k);
                    assert!(reads(b).any(same));
                }
                _ => assert!(orders(a, b, &injected, &all)),
            }
            if !matches!(fault, Fault::G1a | Fault::G1b) {
                assert!(!injected.witnesses.is_empty());
            }
        }
    }
}

/// Do the witnesses see `a` before `b` on one key and `b` before `a` on another?
fn orders(a: &Txn, b: &Txn, injected: &Injected, all: &HashMap<u64, Txn>) -> bool {
    let mut found = [false; 2];
    for witness in &injected.witnesses {
        for (k, list) in reads(&all[witness]) {
            let at =
                |t: &Txn| writes(t).into_iter().filter(|w| w.0 == k).find_map(|w| list.iter().position(|v| *v == w.1));
            if let (Some(x), Some(y)) = (at(a), at(b)) {
                found[usize::from(x < y)] = true;
            }
        }
    }
    found == [true; 2]
}

#[test]
fn snapshot_isolation_has_write_skews_and_loses_no_update() {
    let options = GenOptions { isolation: Isolation::Snapshot, info: 0.02, ..busy(Workload::ListAppend) };
    let (history, generated) = history(&options);
    assert!(generated.outcomes[1] > 400, "the first committer wins: {:?}", generated.outcomes);
    let done = acknowledged(&history);
    let mut updates = HashMap::new();
    let mut longest: HashMap<i64, Vec<i64>> = HashMap::new();
    for txn in &done {
        for (i, (write, key, list)) in txn.mops.iter().enumerate() {
            let own = txn.mops[..i].iter().any(|m| m.0 && m.1 == *key);
            if !write && !own && writes(txn).iter().any(|w| w.0 == *key) {
                let other = updates.insert((*key, list.len()), txn.index);
                assert!(other.is_none_or(|o| o == txn.index), "{other:?} and {txn:?}");
            }
            let long = longest.entry(*key).or_default();
            if !write && list.len() > long.len() {
                long.clone_from(list);
            }
        }
    }
    assert!(done.iter().flat_map(reads).all(|(k, l)| longest[&k].starts_with(l)));
    let near = |i: usize| &done[i + 1..done.len().min(i + 20)];
    let missed = |i: usize, b: &&Txn| sees(b, &done[i]) == (false, true) && sees(&done[i], b) == (false, true);
    let skewed = |i: usize| near(i).iter().filter(|b| missed(i, b)).count();
    assert!((0..done.len()).map(skewed).sum::<usize>() > 10);
}

#[test]
fn what_is_held_does_not_grow_with_the_run() {
    for workload in [Workload::Register, Workload::ListAppend] {
        let ops = if workload == Workload::Register { 1_000_000 } else { 200_000 };
        let options = GenOptions { ops, info: 0.01, nemesis_ns: 0, ..busy(workload) };
        let generated = generate(&options, &mut |batch| {
            assert!(batch.len() <= 4096 + 2);
            Ok(())
        });
        assert!(generated.unwrap().peak_held < 1500);
    }
}

#[test]
fn a_skewed_key_is_chosen_more_often() {
    let keyed = GenOptions { independent: true, keys: 100, ..GenOptions::new(Workload::Register) };
    let share = |skew| {
        let (history, _) = history(&GenOptions { skew, ..keyed.clone() });
        history.clients().filter(|op| int(op.key()) == Some(0)).count() as f64 / 10_000.0
    };
    assert!((0.005..0.02).contains(&share(0.0)));
    assert!((0.15..0.25).contains(&share(1.0)), "1/H(100) is 0.193");
}

#[test]
fn options_that_contradict_themselves_are_refused() {
    let base = GenOptions::new(Workload::Register);
    let bad = [
        GenOptions { keys: 2, ..base.clone() },
        GenOptions { cas: 0.5, ..base.clone() },
        GenOptions { info: 0.6, fail: 0.6, ..base.clone() },
        GenOptions { info: f64::NAN, ..base.clone() },
        GenOptions { clients: 0, ..base.clone() },
        GenOptions { fault: Some(Fault::G0), ..base.clone() },
        GenOptions { fault: Some(Fault::StaleRead), values: Values::Domain(5), ..base.clone() },
        GenOptions { isolation: Isolation::Snapshot, ..base.clone() },
        GenOptions { ops: u64::MAX, ..base },
    ];
    for options in bad {
        assert!(generate(&options, &mut |_| panic!("nothing may come out")).is_err(), "{options:?}");
    }
}

#[test]
fn a_fault_that_finds_no_moment_is_an_error_before_any_event() {
    let options = GenOptions { writes: 0.0, fault: Some(Fault::StaleRead), ..tiny(Workload::Register, 0) };
    let error = generate(&options, &mut |_| panic!("nothing may come out")).unwrap_err();
    assert!(error.what.contains("stale-read"));
}

#[test]
fn an_empty_run_is_empty() {
    let options = GenOptions { ops: 0, nemesis_ns: 1000, ..GenOptions::new(Workload::ListAppend) };
    assert_eq!(generate(&options, &mut |_| Ok(())).unwrap().events, 0);
}

#[test]
fn a_reader_that_guesses_finds_keys_where_there_are_some() {
    let bare = GenOptions { ops: 500, ..busy(Workload::CasRegister) };
    let keyed = GenOptions { independent: true, keys: 5, writes_per_key: 20, ..bare.clone() };
    for options in [bare, keyed] {
        let mut builder = HistoryBuilder::new(BuildOptions { real_time: true, ..BuildOptions::default() });
        generate(&options, &mut |batch| builder.push(batch)).unwrap();
        let history = builder.finish().unwrap();
        assert_eq!(history.meta().keys == KeyForm::Tuple, options.independent);
        assert_eq!(history.key_index().len() > 5, options.independent);
    }
}
