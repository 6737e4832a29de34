//! How many megabytes of JSON history a CPU second turns into cells.
//!
//! `cargo run --release -p elench-formats --example json_speed [FILE…]`; without a file, over made-up histories.

use elench_formats::event::EventBatch;
use elench_formats::{json::events, schema};
use std::fmt::Write;

type Read = fn(
    &mut dyn std::io::Read,
    &mut dyn FnMut(&mut EventBatch) -> elench_formats::Result<()>,
) -> elench_formats::Result<()>;

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        measure("register", &operations(|n, s| write!(s, "{}", n % 7)), as_events);
        measure("keyed cas", &operations(|n, s| write!(s, "[{},[{},{}]]", n % 50, n % 5, n % 7)), as_events);
        measure(
            "set reads",
            &operations(|n, s| write!(s, "[{n},{},{},{},{},{}]", n + 1, n + 2, n + 3, n + 4, n + 5)),
            as_events,
        );
        let txn = |n: u64, s: &mut String| {
            write!(s, "[[\"r\",{},[1,2,{n}]],[\"append\",{},{n}],[\"r\",{},null]]", n % 9, n % 5, n % 8)
        };
        measure("list-append", &operations(txn), as_events);
        measure(
            "bank maps",
            &operations(|n, s| write!(s, "{{\"0\":{},\"1\":{n},\"2\":7,\"3\":{}}}", n % 99, n % 42)),
            as_events,
        );
        measure("schema JSON", &records_json(), schema::read_jsonl);
        measure("schema CSV", &records_csv(), schema::read_csv);
    }
    for file in files {
        match std::fs::read(&file) {
            Ok(bytes) => measure(&file, &bytes, as_events),
            Err(e) => eprintln!("{file}: {e}"),
        }
    }
}

fn as_events(
    input: &mut dyn std::io::Read,
    sink: &mut dyn FnMut(&mut EventBatch) -> elench_formats::Result<()>,
) -> elench_formats::Result<()> {
    events::read(input, 1, sink)
}

/// Seconds of processor time of this thread: the machine may be busy.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn measure(what: &str, bytes: &[u8], read: Read) {
    let mut best = f64::INFINITY;
    let mut events = 0;
    for _ in 0..3 {
        events = 0;
        let start = cpu_seconds();
        let done = read(&mut &*bytes, &mut |batch| {
            events += batch.len();
            Ok(())
        });
        if let Err(e) = done {
            eprintln!("{what}: {e}");
            return;
        }
        best = best.min(cpu_seconds() - start);
    }
    let megabytes = bytes.len() as f64 / 1e6;
    println!(
        "{what:12} {megabytes:6.1} MB {events:9} events {:7.0} MB/s {:6.1} M events/s",
        megabytes / best,
        events as f64 / 1e6 / best
    );
}

fn operations(value: impl Fn(u64, &mut String) -> std::fmt::Result) -> Vec<u8> {
    let mut out = String::new();
    for n in 0..400_000_u64 {
        let kind = if n % 2 == 0 { "invoke" } else { "ok" };
        let _ = write!(
            out,
            "{{\"index\":{n},\"time\":{},\"type\":\"{kind}\",\"process\":{},\"f\":\"txn\",\"value\":",
            n * 12_345,
            n / 2 % 10
        );
        let _ = value(n, &mut out);
        out.push_str("}\n");
    }
    out.into_bytes()
}

fn records_json() -> Vec<u8> {
    let mut out = String::new();
    for n in 0..200_000_u64 {
        let _ = writeln!(
            out,
            "{{\"op_id\":{n},\"process_id\":{},\"invoke_ts\":{},\"complete_ts\":{},\"op_type\":\"read\",\"key\":{},\"input\":null,\
             \"output\":{},\"error\":null,\"timeout_marker\":false,\"node_seen\":\"n1\",\"fault_epoch\":null}}",
            n % 10,
            n * 1_000,
            n * 1_000 + 345,
            n % 50,
            n % 7
        );
    }
    out.into_bytes()
}

fn records_csv() -> Vec<u8> {
    let mut out = schema::FIELDS.join(",") + "\n";
    for n in 0..200_000_u64 {
        let _ = writeln!(out, "{n},{},{},{},read,{},,{},,false,n1,", n % 10, n * 1_000, n * 1_000 + 345, n % 50, n % 7);
    }
    out.into_bytes()
}
