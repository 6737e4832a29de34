//! What a linearizability check costs on histories like those that defeat other checkers. Generates its own: a register
//! that is linearizable by construction, used by N clients, perhaps with one read near its end that returns a value
//! long overwritten. Prints time and peak memory. `cargo run --release --example linear_speed [row]`.

use std::time::Instant;

use elench_checkers::linear::verify::verify;
use elench_checkers::linear::{Evidence, Operation, Problem, check};
use elench_checkers::model::{Register, RegisterOp, Value};
use elench_checkers::outcome::{Answer, Certificate};
use elench_checkers::{Budget, OpId};

struct Row {
    name: &'static str,
    clients: usize,
    ops: usize,
    /// Values to write; none: every write has its own.
    values: Option<u64>,
    info_per_mille: u64,
    cas_per_mille: u64,
    stale: bool,
    /// Use no monitor.
    search_only: bool,
}

const fn unique(name: &'static str, clients: usize, ops: usize, info_per_mille: u64, stale: bool) -> Row {
    Row { name, clients, ops, values: None, info_per_mille, cas_per_mille: 0, stale, search_only: false }
}

const fn five_values(name: &'static str, clients: usize, ops: usize, cas_per_mille: u64) -> Row {
    let values = Some(5);
    Row { name, clients, ops, values, info_per_mille: 10, cas_per_mille, stale: false, search_only: true }
}

const fn searched(row: Row) -> Row {
    Row { search_only: true, ..row }
}

const fn with_cas(row: Row) -> Row {
    Row { cas_per_mille: 300, ..row }
}

const fn all_cas(row: Row) -> Row {
    Row { cas_per_mille: 1000, ..row }
}

const fn bad(row: Row) -> Row {
    Row { stale: true, ..row }
}

const ROWS: [Row; 28] = [
    unique("100c x 1M unique, 1% info, ok", 100, 1_000_000, 10, false),
    unique("100c x 1M unique, 1% info, bad", 100, 1_000_000, 10, true),
    with_cas(unique("100c x 1M unique, cas, 1% info, ok", 100, 1_000_000, 10, false)),
    with_cas(unique("100c x 1M unique, cas, 1% info, bad", 100, 1_000_000, 10, true)),
    unique("100c x 4M unique, 1% info, ok", 100, 4_000_000, 10, false),
    searched(unique("5c x 100k unique ok, search", 5, 100_000, 0, false)),
    searched(unique("5c x 300k unique ok, search", 5, 300_000, 0, false)),
    searched(unique("5c x 3k unique, 1% info, bad, search", 5, 3_000, 10, true)),
    searched(unique("5c x 10k unique, 1% info, bad, search", 5, 10_000, 10, true)),
    searched(unique("10c x 30k unique ok, search", 10, 30_000, 0, false)),
    searched(unique("10c x 100k unique ok, search", 10, 100_000, 0, false)),
    searched(unique("10c x 100k unique bad, search", 10, 100_000, 0, true)),
    searched(unique("20c x 300 unique ok, search", 20, 300, 0, false)),
    searched(unique("20c x 3k unique ok, search", 20, 3_000, 0, false)),
    searched(unique("20c x 3k unique bad, search", 20, 3_000, 0, true)),
    searched(unique("50c x 300 unique ok, search", 50, 300, 0, false)),
    searched(unique("100c x 1M unique, 1% info, ok, search", 100, 1_000_000, 10, false)),
    five_values("20c x 3k five values, 1% info", 20, 3_000, 0),
    five_values("20c x 3k five values, 1% info, cas", 20, 3_000, 300),
    five_values("10c x 10k five values, 1% info", 10, 10_000, 0),
    five_values("10c x 10k five values, 1% info, cas", 10, 10_000, 300),
    all_cas(unique("100c x 1M unique, cas only, 1% info, ok", 100, 1_000_000, 10, false)),
    all_cas(unique("100c x 1M unique, cas only, 1% info, bad", 100, 1_000_000, 10, true)),
    bad(five_values("20c x 3k five values, 1% info, bad", 20, 3_000, 0)),
    bad(five_values("20c x 3k five values, 1% info, cas, bad", 20, 3_000, 300)),
    bad(five_values("5c x 10k five values, 1% info, bad", 5, 10_000, 0)),
    bad(five_values("10c x 10k five values, 1% info, cas, bad", 10, 10_000, 300)),
    five_values("10c x 100k five values, 1% info, cas", 10, 100_000, 300),
];

fn main() {
    let only: Option<usize> = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    for (i, row) in ROWS.iter().enumerate().filter(|(i, _)| only.is_none_or(|only| only == *i)) {
        let ops = generate(row, 7);
        let generated_mb = peak_memory_mb();
        let (started, cpu) = (Instant::now(), cpu_time());
        let problem = match Problem::new(None, Register::default(), ops) {
            Ok(problem) => problem,
            Err(op) => panic!("{op} returns before it is invoked"),
        };
        let budget = Budget::unlimited().within(std::time::Duration::from_secs(60)).memory(8 << 30);
        let evidence = Evidence { search_only: row.search_only, ..Evidence::default() };
        let outcome = check(&problem, &budget, &evidence);
        let (took, cpu, peak) = (started.elapsed(), cpu_time() - cpu, peak_memory_mb());
        let answer = match outcome.answer() {
            Answer::Valid(Some(Certificate::Orders(orders))) => match &orders[0].order {
                Some(order) => format!("valid, order verified: {:?}", verify(problem.model(), problem.ops(), order)),
                None => "valid, order dropped".to_string(),
            },
            Answer::Valid(_) => "valid".to_string(),
            Answer::Unknown(why) => format!("unknown: {why}; {}", outcome.coverage().undecided[0].known),
            Answer::Invalid(violations) => format!("invalid: {}", violations[0].explanation),
        };
        println!("{i:2} {:38} {took:>10.3?} cpu {cpu:.2} s, {generated_mb} then {peak} MB  {answer}", row.name);
    }
}

/// Processor seconds of this process so far; of hundredths.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// splitmix64.
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

/// What a compare-and-set finds, before it has.
const UNKNOWN: Value = Value(-1);

#[derive(Clone, Copy)]
enum Client {
    Idle,
    Waiting(usize),
    Done(usize),
}

/// Each step a random client goes on: invokes, takes effect (or crashes before or after that), returns.
fn generate(row: &Row, seed: u64) -> Vec<Operation<RegisterOp>> {
    let mut random = Random(seed);
    let mut ops: Vec<Operation<RegisterOp>> = Vec::new();
    let mut clients = vec![Client::Idle; row.clients];
    let mut failed: Vec<bool> = Vec::new();
    let (mut state, mut time, mut written) = (Value::NIL, 0u64, 0i64);
    while ops.len() < row.ops || clients.iter().any(|c| !matches!(c, Client::Idle)) {
        let client = random.below(row.clients as u64) as usize;
        clients[client] = match clients[client] {
            Client::Idle if ops.len() == row.ops => Client::Idle,
            Client::Idle => {
                let mut value = |random: &mut Random| match row.values {
                    Some(n) => Value(random.below(n) as i64),
                    None => {
                        written += 1;
                        Value(written)
                    }
                };
                let op = match random.below(1000) {
                    // With unique values it finds what is there, whatever that is.
                    n if n < row.cas_per_mille => match row.values {
                        Some(_) => RegisterOp::Cas(value(&mut random), value(&mut random)),
                        None => RegisterOp::Cas(UNKNOWN, value(&mut random)),
                    },
                    n if n % 2 == 0 => RegisterOp::Write(value(&mut random)),
                    _ => RegisterOp::Read(None),
                };
                ops.push(Operation { id: OpId(time), process: None, call: time, ret: None, op });
                failed.push(false);
                time += 1;
                Client::Waiting(ops.len() - 1)
            }
            Client::Waiting(op) => {
                let crashes = random.below(1000) < row.info_per_mille;
                if !crashes || random.below(2) == 0 {
                    failed[op] = !apply(&mut state, &mut ops[op].op);
                }
                if crashes {
                    time += 1;
                    failed[op] = false;
                    Client::Idle
                } else {
                    Client::Done(op)
                }
            }
            Client::Done(op) => {
                ops[op].ret = Some(time);
                time += 1;
                Client::Idle
            }
        };
    }
    let mut failed = failed.into_iter();
    ops.retain(|_| failed.next() != Some(true));
    if row.stale {
        let from = ops.len() * 19 / 20;
        let seen = |op: &RegisterOp| match *op {
            RegisterOp::Read(value) => value,
            RegisterOp::Cas(old, _) => Some(old).filter(|old| *old != UNKNOWN),
            _ => None,
        };
        let old = match row.values {
            // Any of them may have been written again: one that never was.
            Some(values) => Some(Value(values as i64)),
            None => ops.iter().take(from / 2).rev().find_map(|op| seen(&op.op)),
        };
        let liar = ops[from..].iter_mut().find(|op| op.ret.is_some() && seen(&op.op).is_some());
        if let Some((op, old)) = liar.zip(old) {
            op.op = match op.op {
                RegisterOp::Cas(_, new) => RegisterOp::Cas(old, new),
                _ => RegisterOp::Read(Some(old)),
            };
        }
    }
    ops
}

fn apply(state: &mut Value, op: &mut RegisterOp) -> bool {
    match op {
        RegisterOp::Read(seen) => *seen = Some(*state),
        RegisterOp::Write(value) => *state = *value,
        RegisterOp::Cas(old, new) if old == state || *old == UNKNOWN => (*old, *state) = (*state, *new),
        RegisterOp::Cas(..) | RegisterOp::CasMismatch(_) => return false,
    }
    true
}
