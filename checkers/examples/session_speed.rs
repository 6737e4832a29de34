//! What the checkers of sessions, fairness, latency and rate cost. Generates a run of a register by many clients, with its writes unique, and
//! reads that lag behind by a few writes where asked. Prints wall time against that of going through the columns once.
//! `cargo run --release --example session_speed [operations] [clients] [lag]`.

use std::time::Instant;

use elench_checkers::Budget;
use elench_checkers::descriptive::{latency, rate};
use elench_checkers::expr::Expr;
use elench_checkers::invariant::fairness::{GroupBy, fairness};
use elench_checkers::session::{CausalModel, CausalOptions, Order, check_causal, check_sessions};
use elench_formats::build::{BuildOptions, HistoryBuilder};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Process};
use elench_formats::{History, Value};

fn main() {
    let arg = |n: usize, or: u64| std::env::args().nth(n).and_then(|s| s.parse().ok()).unwrap_or(or);
    let (ops, clients, lag) = (arg(1, 1_000_000), arg(2, 20), arg(3, 0));
    let history = generate(ops, clients, lag);
    let start = Instant::now();
    let sum = history.clients().fold(0u64, |sum, op| {
        let read = |v: elench_formats::columns::ValueRef<'_>| v.scalar().map_or(0, number);
        sum.wrapping_add(read(op.input()))
            .wrapping_add(read(op.output()))
            .wrapping_add(op.complete_index().unwrap_or(0))
    });
    let decode = start.elapsed().as_secs_f64();
    println!("{ops} operations, {clients} clients, lag {lag}; columns once {decode:.3} s ({sum})");
    let measure = |name: &str, run: &dyn Fn() -> String| {
        let start = Instant::now();
        let answer = run();
        println!("{name:<22} {:>8.3} s  {answer}", start.elapsed().as_secs_f64());
    };
    let (budget, nil) = (Budget::unlimited(), Value::Nil);
    let told = |f: elench_checkers::findings::Findings| {
        let kinds: Vec<String> = f.kinds().iter().map(|(name, kind)| format!("{name} ×{}", kind.count)).collect();
        format!("{:?} {}", f.why(), kinds.join(", "))
    };
    measure("session, by values", &|| {
        told(check_sessions(&history, Some(Order::Values), &nil, &budget, 3).unwrap_or_else(|e| panic!("{e}")))
    });
    let causal = |judged| {
        let options = CausalOptions { judged, per_key: false };
        check_causal(&history, &options, &nil, &budget, 3).unwrap_or_else(|e| panic!("{e}"))
    };
    measure("causal", &|| told(causal(vec![CausalModel::Cc])));
    measure("latency", &|| told(latency(&history)));
    measure("rate", &|| told(rate(&history)));
    let rule = Expr::parse("p99(worst.latency) <= 2 * p99(latency)").unwrap_or_else(|e| panic!("{e}"));
    measure("fairness", &|| told(fairness(&history, &GroupBy::Process, std::slice::from_ref(&rule), 3)));
}

fn number(scalar: elench_formats::columns::Scalar) -> u64 {
    match scalar {
        elench_formats::columns::Scalar::Int(n) => n as u64,
        elench_formats::columns::Scalar::Text(t) => u64::from(t),
        elench_formats::columns::Scalar::Nil => 0,
    }
}

/// Half of the operations write. A read returns one of the newest writes, none older than its client saw.
fn generate(ops: u64, clients: u64, lag: u64) -> History {
    let mut builder = HistoryBuilder::new(BuildOptions { real_time: true, ..BuildOptions::default() });
    let mut batch = EventBatch::default();
    let (read, write) = (batch.name("read"), batch.name("write"));
    let mut random = 1u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % n
    };
    let (mut newest, mut seen) = (0u64, vec![0u64; clients as usize]);
    for i in 0..ops {
        let client = below(clients) as usize;
        let is_read = below(2) == 0 && newest > 0;
        let value = if is_read { newest.saturating_sub(below(lag + 1)).max(seen[client]).max(1) } else { newest + 1 };
        newest = newest.max(value);
        seen[client] = value;
        let f = Some(if is_read { read } else { write });
        let event = |kind, value, time| Event {
            place: i + 1,
            index: None,
            time: Some(time),
            kind,
            process: Process::Client(client as i64),
            f,
            value,
        };
        let cell = Cell::Int(value as i64);
        let at = i as i64 * 10_000;
        batch.push(event(EventType::Invoke, if is_read { Cell::Nil } else { cell }, at));
        batch.push(event(EventType::Ok, cell, at + 1_000 + below(5_000) as i64));
        if batch.len() > 8192 {
            builder.push(&batch).unwrap_or_else(|e| panic!("{e}"));
            batch.clear_events();
        }
    }
    builder.push(&batch).unwrap_or_else(|e| panic!("{e}"));
    builder.finish().unwrap_or_else(|e| panic!("{e}"))
}
