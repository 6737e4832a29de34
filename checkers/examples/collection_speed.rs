//! What a linearizability check costs on queues, stacks, priority queues, bags and sets whose values are unique.
//! Generates its own histories: true runs by many clients, some of whose operations crash, perhaps with one violation near
//! the end. Prints CPU time and the growth of peak memory. `cargo run --release --example collection_speed [filter] [seed]`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use elench_checkers::linear::{Evidence, Operation, Problem, check};
use elench_checkers::model::collection::{AnyFirst, Collection, Discipline, NewestFirst, OldestFirst, SmallestFirst};
use elench_checkers::model::{CollectionOp, Model, Set, SetOp, Value};
use elench_checkers::outcome::Certificate;
use elench_checkers::{Budget, OpId};

const CLIENTS: usize = 100;
const INFO_PER_MILLE: u64 = 10;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let seed = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("{:<34} {:>9} {:>9} {:>10}  answer", "history", "CPU s", "wall s", "memory MB");
    for ops in [10_000, 100_000, 1_000_000] {
        for bad in [false, true] {
            let end = if bad { "bad" } else { "ok" };
            let run = |name: &str| format!("{name} {ops} {end}").contains(&filter);
            let title = |name: &str| format!("{name} {ops} {end}");
            if run("queue") {
                collection::<OldestFirst>(&title("queue"), ops, bad, seed);
            }
            if run("stack") {
                collection::<NewestFirst>(&title("stack"), ops, bad, seed);
            }
            if run("priority queue") {
                collection::<SmallestFirst>(&title("priority queue"), ops, bad, seed);
            }
            if run("bag") {
                collection::<AnyFirst>(&title("bag"), ops, bad, seed);
            }
            if run("set") {
                measure(&title("set"), Set::default(), set(&mut Random(seed), ops, bad));
            }
            if run("grow-set with reads") {
                measure(&title("grow-set with reads"), Set::default(), grow_set(&mut Random(seed), ops, bad));
            }
        }
    }
}

fn measure<M: Model>(title: &str, model: M, ops: Vec<Operation<M::Op>>) {
    let problem = Problem::new(None, model, ops).expect("no operation returns before it is invoked");
    let (cpu, wall, before) = (cpu_seconds(), Instant::now(), peak_mb(true));
    let outcome = check(&problem, &Budget::unlimited(), &Evidence::default());
    let (cpu, wall) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
    let minimal = outcome.violations().first().and_then(|violation| match &violation.certificate {
        Some(Certificate::Stuck(stuck)) => Some(format!(", {} operations suffice", stuck.minimal.len())),
        _ => None,
    });
    let methods = format!("{:?}", outcome.coverage().methods);
    let answer =
        ["unknown", "invalid", "valid"][usize::from(outcome.is_invalid()) + 2 * usize::from(outcome.is_valid())];
    let memory = peak_mb(false) - before;
    println!("{title:<34} {cpu:>9.2} {wall:>9.2} {memory:>10.0}  {answer}{} {methods}", minimal.unwrap_or_default());
}

fn collection<D: Discipline>(title: &str, ops: usize, bad: bool, seed: u64) {
    let mut random = Random(seed);
    let mut held = D::Contents::default();
    let mut next_value = 0;
    let mut history = simulate(
        &mut random,
        ops,
        |random| {
            if random.below(2) == 0 {
                next_value += 1;
                CollectionOp::Insert(Value((next_value as u64).wrapping_mul(0x9e37_79b9) as i64 >> 1))
            } else {
                CollectionOp::Remove(None)
            }
        },
        |op| match *op {
            CollectionOp::Insert(value) => held = D::insert(&held, value),
            _ => match D::first(&held, 1).first().and_then(|&value| Some((value, D::remove(&held, value)?))) {
                Some((value, rest)) => (*op, held) = (CollectionOp::Remove(Some(value)), rest),
                None => *op = CollectionOp::RemoveEmpty,
            },
        },
    );
    if bad {
        take_twice(&mut history);
    }
    measure(title, Collection::<D>::default(), history);
}

/// The last removal returns what one somewhat earlier had taken.
fn take_twice(history: &mut [Operation<CollectionOp>]) {
    let removals: Vec<usize> = (history.len() * 9 / 10..history.len())
        .filter(|&i| matches!(history[i].op, CollectionOp::Remove(Some(_))) && history[i].ret.is_some())
        .collect();
    let (first, last) = (removals[0], removals[removals.len() - 1]);
    history[last].op = history[first].op;
}

fn set(random: &mut Random, ops: usize, bad: bool) -> Vec<Operation<SetOp>> {
    let mut held: HashMap<Value, bool> = HashMap::new();
    let mut started = 0;
    // Four operations on each element, not far from each other.
    let mut history = simulate(
        random,
        ops,
        |random| {
            started += 1;
            let element = Value((started / 4 + random.below(50)) as i64);
            match random.below(4) {
                0 | 1 => SetOp::Add(element, None),
                2 => SetOp::Remove(element, None),
                _ => SetOp::Contains(element, None),
            }
        },
        |op| {
            let element = op.element().expect("no reads");
            let there = held.entry(element).or_default();
            *op = match *op {
                SetOp::Add(..) => SetOp::Add(element, Some(!std::mem::replace(there, true))),
                SetOp::Remove(..) => SetOp::Remove(element, Some(std::mem::replace(there, false))),
                _ => SetOp::Contains(element, Some(*there)),
            };
        },
    );
    if bad {
        let from = ops * 9 / 10;
        let found = |op: &&mut Operation<SetOp>| matches!(op.op, SetOp::Contains(_, Some(true))) && op.ret.is_some();
        if let Some(op) = history[from..].iter_mut().find(found) {
            op.op = SetOp::Contains(Value(-1), Some(true));
        }
    }
    history
}

/// Adds, and some forty reads of everything.
fn grow_set(random: &mut Random, ops: usize, bad: bool) -> Vec<Operation<SetOp>> {
    let mut held: Vec<Value> = Vec::new();
    let mut started = 0;
    let every = ops / 40;
    let mut history = simulate(
        random,
        ops,
        |_| {
            started += 1;
            if started % every == 0 { SetOp::Read(None) } else { SetOp::Add(Value(started as i64), None) }
        },
        |op| match *op {
            SetOp::Add(element, _) => held.push(element),
            _ => *op = SetOp::read(held.clone()),
        },
    );
    if bad {
        let read = |op: &&mut Operation<SetOp>| matches!(op.op, SetOp::Read(Some(_))) && op.ret.is_some();
        if let Some(op) = history.iter_mut().filter(read).last()
            && let SetOp::Read(Some(elements)) = &op.op
        {
            // One element that was there long ago is missing.
            op.op = SetOp::Read(Some(elements.iter().skip(1).copied().collect::<Arc<[Value]>>()));
        }
    }
    history
}

/// A run: each operation takes effect at some moment between invocation and return, or, if it crashes, perhaps later, perhaps
/// never, its result unknown.
fn simulate<O: Clone>(
    random: &mut Random,
    count: usize,
    mut start: impl FnMut(&mut Random) -> O,
    mut apply: impl FnMut(&mut O),
) -> Vec<Operation<O>> {
    let mut history: Vec<Operation<O>> = Vec::with_capacity(count);
    let mut clients: Vec<Option<(usize, bool)>> = vec![None; CLIENTS];
    let mut processes: Vec<i64> = (0..CLIENTS as i64).collect();
    let mut time = 0;
    while history.len() < count || clients.iter().any(Option::is_some) {
        time += 1;
        let client = random.below(CLIENTS as u64) as usize;
        match clients[client] {
            None if history.len() == count => {}
            None => {
                clients[client] = Some((history.len(), false));
                let (id, process) = (OpId(history.len() as u64), Some(processes[client]));
                history.push(Operation { id, process, call: time, ret: None, op: start(random) });
            }
            Some((op, true)) => {
                history[op].ret = Some(time);
                clients[client] = None;
            }
            Some((op, false)) if random.below(1000) < INFO_PER_MILLE => {
                if random.below(2) == 0 {
                    apply(&mut history[op].op.clone());
                }
                processes[client] += CLIENTS as i64;
                clients[client] = None;
            }
            Some((op, false)) => {
                apply(&mut history[op].op);
                clients[client] = Some((op, true));
            }
        }
    }
    history
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// Of this process, all its threads (Linux; elsewhere 0).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>();
    ticks / 100.0
}

/// Peak memory of this process; may begin anew from what is held now.
fn peak_mb(anew: bool) -> f64 {
    if anew {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}
