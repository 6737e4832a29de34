//! What does judging a log cost, beside reading the history?
//!
//! `cargo run --release --example log_speed -- [MESSAGES]`: as many messages are sent to 16 partitions, one, or ten, an operation, and
//! polled in runs. CPU time is what `/usr/bin/time` says of the parts, wall time is printed.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use elench_checkers::Budget;
use elench_checkers::delivery::log::{Options, check};
use elench_formats::open::{OpenOptions, open_bytes};

const PARTITIONS: usize = 16;
const CLIENTS: usize = 8;

/// Operations of one client after the other, each a batch sent to a partition or polled from it. Consumers are so many batches behind.
fn text(messages: usize, batch: usize, behind: usize) -> String {
    let mut text = String::with_capacity(messages * 60);
    let mut time = 0;
    for first in (0..messages).step_by(batch) {
        let number = first / batch;
        let (key, process) = (number % PARTITIONS, number % CLIENTS);
        let start = number / PARTITIONS * batch;
        let range = start..start + batch;
        let mut event = |kind: &str, process: usize, f: &str, mops: &dyn Fn(&mut String)| {
            time += 1000;
            let _ = write!(text, "{{:type :{kind}, :process {process}, :time {time}, :f :{f}, :value [");
            mops(&mut text);
            text.push_str("]}\n");
        };
        event("invoke", process, "send", &|out| {
            range.clone().for_each(|v| write!(out, "[:send {key} {v}] ").unwrap_or_default());
        });
        event("ok", process, "send", &|out| {
            range.clone().for_each(|v| write!(out, "[:send {key} [{} {v}]] ", v + v / 100).unwrap_or_default());
        });
        // Each partition has one consumer.
        let Some(start) = start.checked_sub(behind * batch) else { continue };
        let range = start..start + batch;
        event("invoke", CLIENTS + key, "poll", &|out| out.push_str("[:poll]"));
        event("ok", CLIENTS + key, "poll", &|out| {
            let _ = write!(out, "[:poll {{{key} [");
            range.clone().for_each(|v| write!(out, "[{} {v}] ", v + v / 100).unwrap_or_default());
            out.push_str("]}]");
        });
    }
    text
}

fn main() {
    let messages = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    for (batch, behind) in [(10, 0), (1, 0), (10, 100)] {
        let text = text(messages, batch, behind);
        let start = Instant::now();
        let history = match open_bytes(text.as_bytes(), &OpenOptions::default()) {
            Ok(history) => history,
            Err(why) => return eprintln!("{why}"),
        };
        let read = start.elapsed();
        let start = Instant::now();
        let mut bytes = 0usize;
        for op in history.clients() {
            let text = |s| {
                if let elench_formats::columns::Scalar::Text(t) = s {
                    op.text(t).bytes().map(usize::from).sum()
                } else {
                    1
                }
            };
            bytes += op.output().elements().map_or(0, |list| list.iter().map(text).sum::<usize>());
            bytes += op
                .txn()
                .map_or(0, |txn| txn.iter().map(|mop| mop.value.elements().map_or(0, |l| l.iter().count())).sum());
        }
        black_box(bytes);
        let touched = start.elapsed();
        let start = Instant::now();
        let found = check(&history, &Options::default(), &Budget::unlimited());
        let judged = start.elapsed();
        println!(
            "{messages} messages, {batch} an operation, consumers {behind} behind: read {read:.2?} ({} MB), columns touched {touched:.2?}, judged {judged:.2?}: \
             valid {}, {:?}",
            text.len() >> 20,
            found.is_valid(),
            found.kinds().keys()
        );
    }
}
