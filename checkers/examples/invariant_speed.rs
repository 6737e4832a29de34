//! What the checkers of invariants cost on long histories, and what merely going through the columns that they touch costs.
//! Generates its own histories, right by construction, with a percent of operations of unknown outcome.
//! `cargo run --release -p elench-checkers --example invariant_speed [operations] [filter]`.

use std::time::Instant;

use elench_checkers::findings::Findings;
use elench_checkers::invariant::locks::Locks;
use elench_checkers::invariant::{
    bank, causal_reverse, counter, g2, locks, long_fork, membership, monotonic, reconcile, replicated, subkeys,
};
use elench_formats::History;
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::event::{Cell, Event, EventBatch, EventType, MopNames, Process};

const CLIENTS: i64 = 16;

/// A checker's name, the steps of its history, and how it is run.
type Row<'a> = (&'a str, &'a dyn Fn(u64) -> Step, &'a dyn Fn(&History) -> Findings);

fn main() {
    let ops = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let filter = std::env::args().nth(2).unwrap_or_default();
    println!("{:<16} {:>10} {:>9} {:>9} {:>7}  answer", "checker", "operations", "scan s", "check s", "MB");
    let all: [Row<'_>; 11] = [
        ("counter", &adds, &|h| counter::counter(h, 0, 3)),
        ("pn-counter", &adds, &|h| {
            replicated::replicated(h, replicated::Rules { quiescent: true, ..Default::default() }, 3)
        }),
        ("bank", &transfers, &|h| bank::bank(h, &bank::Rules::default(), 3)),
        ("long-fork", &groups, &|h| long_fork::long_fork(h, 3)),
        ("causal-reverse", &comments, &|h| causal_reverse::causal_reverse(h, 3)),
        ("adya-g2", &pairs, &|h| g2::g2(h, 3)),
        ("subkeys", &prefixes, &|h| subkeys::subkeys(h, 3)),
        ("monotonic", &increments, &|h| monotonic::monotonic(h, 3)),
        ("mutex-exclusion", &turns, &|h| locks::locks(h, Locks::One, 3)),
        ("membership", &members, &|h| {
            membership::membership(h, &membership::Rules { quiescent: true, members: None }, 3)
        }),
        ("reconcile", &dumps, &|h| reconcile::reconcile(h, true, 3)),
    ];
    for (name, step, check) in all.iter().filter(|(name, ..)| name.contains(&filter)) {
        measure(name, ops, step, check);
    }
}

/// What an operation is: its function, and its values as EDN when it begins and when it ends.
struct Step(&'static str, Text, Text);

enum Text {
    Nil,
    Int(i64),
    Edn(String),
}

fn measure(name: &str, ops: u64, step: &dyn Fn(u64) -> Step, check: &dyn Fn(&History) -> Findings) {
    let h = history(ops, step);
    let start = Instant::now();
    let mut sum = 0u64;
    for op in h.clients() {
        let value = |v| match v {
            elench_formats::columns::ValueRef::Int(n) => n as u64,
            elench_formats::columns::ValueRef::Text(t) => u64::from(t),
            elench_formats::columns::ValueRef::List(l) | elench_formats::columns::ValueRef::Set(l) => l.len() as u64,
            elench_formats::columns::ValueRef::Nil => 0,
        };
        sum = sum.wrapping_add(value(op.input()) ^ value(op.output())).wrapping_add(op.status() as u64);
    }
    let scan = start.elapsed().as_secs_f64();
    std::hint::black_box(sum);
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = memory("VmRSS");
    let start = Instant::now();
    let found = check(&h);
    let took = start.elapsed().as_secs_f64();
    let answer =
        if found.is_valid() { "valid".into() } else { format!("{:?} {:?}", found.why(), found.kinds().keys()) };
    let mb = memory("VmHWM").saturating_sub(before) / 1024;
    println!("{name:<16} {ops:>10} {scan:>9.2} {took:>9.2} {mb:>7}  {answer}");
}

fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Clients take turns: each operation ends when its client's next begins, so that as many are open as there are clients.
fn history(ops: u64, step: &dyn Fn(u64) -> Step) -> History {
    let options =
        BuildOptions { format: "generated".into(), real_time: true, lift: Lift::Never, ..BuildOptions::default() };
    let mut builder = HistoryBuilder::new(options);
    let mut batch = EventBatch::default();
    let mut place = 0;
    let mut process: Vec<i64> = (0..CLIENTS).collect();
    let mut push = |batch: &mut EventBatch, kind, process, f: &str, text: &Text| {
        place += 1;
        let value = match text {
            Text::Nil => Cell::Nil,
            Text::Int(n) => Cell::Int(*n),
            Text::Edn(text) => {
                let value = elench_formats::edn::parse(text).unwrap_or(elench_formats::Value::Nil);
                batch.value(&value, MopNames::Keywords)
            }
        };
        let f = Some(batch.name(f));
        batch.push(Event {
            place,
            index: None,
            time: Some(place as i64),
            kind,
            process: Process::Client(process),
            f,
            value,
        });
    };
    for i in 0..ops + CLIENTS as u64 {
        let client = (i % CLIENTS as u64) as usize;
        if let Some(last) = i.checked_sub(CLIENTS as u64) {
            let Step(f, _, output) = step(last);
            if last % 100 == 7 && matches!(f, "add" | "write" | "transfer") {
                push(&mut batch, EventType::Info, process[client], f, &Text::Nil);
                process[client] += CLIENTS;
            } else {
                push(&mut batch, EventType::Ok, process[client], f, &output);
            }
        }
        if i < ops {
            let Step(f, input, _) = step(i);
            push(&mut batch, EventType::Invoke, process[client], f, &input);
        }
        if batch.len() >= 1 << 16 {
            builder.push(&batch).unwrap_or_else(|e| panic!("{e}"));
            batch.clear_events();
        }
    }
    builder.push(&batch).unwrap_or_else(|e| panic!("{e}"));
    builder.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// Every other operation adds 1; reads show all that was added by those before them, crashed ones included.
fn adds(i: u64) -> Step {
    match i % 2 {
        0 => Step("add", Text::Int(1), Text::Int(1)),
        _ => Step("read", Text::Nil, Text::Int(i as i64 / 2 + 1)),
    }
}

fn transfers(i: u64) -> Step {
    if i.is_multiple_of(2) {
        let text = format!("{{:from {}, :to {}, :amount 1}}", i % 10, (i + 3) % 10);
        return Step("transfer", Text::Edn(text.clone()), Text::Edn(text));
    }
    let moved = i % 90;
    let text = format!("{{0 {}, 1 {moved}, 2 10, 3 10, 4 10, 5 10, 6 10, 7 10, 8 10, 9 10}}", 90 - moved);
    Step("read", Text::Nil, Text::Edn(text))
}

fn groups(i: u64) -> Step {
    let group = i / 8 * 2;
    let text = |a: &str, b: &str| Text::Edn(format!("[[:r {group} {a}] [:r {} {b}]]", group + 1));
    let write = |key| Step("txn", Text::Edn(format!("[[:w {key} 1]]")), Text::Edn(format!("[[:w {key} 1]]")));
    match i % 8 {
        0 => write(group),
        1 => write(group + 1),
        n => Step("txn", text("nil", "nil"), if n < 4 { text("1", "nil") } else { text("1", "1") }),
    }
}

fn comments(i: u64) -> Step {
    if !i.is_multiple_of(100) {
        return Step("write", Text::Int(i as i64), Text::Int(i as i64));
    }
    // The first reads show everything before them, later ones nothing: a read of all of millions would measure itself.
    let shown: Vec<String> =
        (0..if i > 1000 { 0 } else { i }).filter(|n| n % 100 != 0).map(|n| n.to_string()).collect();
    Step("read", Text::Nil, Text::Edn(format!("[{}]", shown.join(" "))))
}

fn pairs(i: u64) -> Step {
    let text = format!("[{i} [{i} nil]]");
    Step("insert", Text::Edn(text.clone()), Text::Edn(text))
}

fn prefixes(i: u64) -> Step {
    let subkeys = ["[nil nil nil]", "[nil nil 0]", "[nil 1 0]", "[2 1 0]"][(i % 4) as usize];
    Step("read", Text::Int(i as i64), Text::Edn(format!("[{i} {subkeys}]")))
}

fn increments(i: u64) -> Step {
    Step("inc", Text::Nil, Text::Int(i as i64))
}

fn turns(i: u64) -> Step {
    // One client at a time: all others read nothing and are refused.
    match i % (2 * CLIENTS as u64) {
        0 => Step("acquire", Text::Nil, Text::Int(i as i64 + 1)),
        n if n == CLIENTS as u64 => Step("release", Text::Nil, Text::Nil),
        _ => Step("acquire", Text::Nil, Text::Edn("false".into())),
    }
}

fn members(i: u64) -> Step {
    match i % 3 {
        0 => Step("join", Text::Int(i as i64 % 7), Text::Int(i as i64 % 7)),
        1 => Step("leave", Text::Int(i as i64 % 7 + 10), Text::Int(i as i64 % 7 + 10)),
        _ => Step("view", Text::Nil, Text::Edn("[0 1 2 3 4 5 6]".into())),
    }
}

fn dumps(i: u64) -> Step {
    match i % 8 {
        0 => Step("dump", Text::Nil, Text::Edn("[1 2 3 4 5]".into())),
        _ => Step("write", Text::Int(i as i64), Text::Int(i as i64)),
    }
}
