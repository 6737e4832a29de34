//! What do the checkers of deliveries cost in processor time, beside a pass over the columns that they read?
//!
//! A set with reads of all that was added so far, a queue whose every message comes out, ids, requests that are each tried twice. The
//! baseline visits each operation's function, outcome and values, and each element of what reads returned. One thread.
//!
//! Prints a table. Sizes as of the other benches: 10^7 operations with ELENCH_BENCH_LARGE=1.

use std::error::Error;
use std::hint::black_box;

use elench_benches::{cpu_time, sizes};
use elench_checkers::delivery::{
    Effects, KeyPath, QueueOptions, exactly_once, no_lost_ack, prefix, queue, set, set_full, total_queue, unique_ids,
};
use elench_checkers::findings::Findings;
use elench_formats::History;
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Process, Span};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Reads of a set, whatever its size.
const READS: u64 = 20;
/// Clients that take turns.
const CLIENTS: u64 = 10;
/// Events of a batch.
const BATCH: usize = 1 << 16;

/// Hands over operations one after another.
struct Writer {
    builder: HistoryBuilder,
    batch: EventBatch,
    ops: u64,
}

impl Writer {
    fn new() -> Writer {
        let options =
            BuildOptions { format: "generated".into(), real_time: true, lift: Lift::Never, ..BuildOptions::default() };
        Writer { builder: HistoryBuilder::new(options), batch: EventBatch::default(), ops: 0 }
    }

    fn op(&mut self, f: &str, input: Option<i64>, output: impl FnOnce(&mut EventBatch) -> Cell) -> Result<()> {
        let process = Process::Client((self.ops % CLIENTS) as i64);
        self.ops += 1;
        let f = Some(self.batch.name(f));
        let input = input.map_or(Cell::Nil, Cell::Int);
        let at = self.ops as i64 * 1000;
        let event = |kind, value, time| Event { place: 0, index: None, time: Some(time), kind, process, f, value };
        self.batch.push(event(EventType::Invoke, input, at));
        let output = output(&mut self.batch);
        self.batch.push(event(EventType::Ok, output, at + 500));
        if self.batch.len() >= BATCH {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        self.builder.push(&self.batch)?;
        self.batch = EventBatch::default();
        Ok(())
    }

    fn finish(mut self) -> Result<History> {
        self.hand_over()?;
        Ok(self.builder.finish()?)
    }
}

fn some(n: i64) -> impl FnOnce(&mut EventBatch) -> Cell {
    move |_| Cell::Int(n)
}

fn a_set(ops: u64) -> Result<History> {
    let mut writer = Writer::new();
    let every = (ops / READS).max(1);
    for n in 0..ops as i64 {
        writer.op("add", Some(n), some(n))?;
        if (n as u64 + 1).is_multiple_of(every) {
            writer.op("read", None, |batch| {
                let start = batch.ints.len() as u32;
                batch.ints.extend(0..=n);
                Cell::List(Span { start, len: (n + 1) as u32 })
            })?;
            // A batch addresses its arenas by 32 bits.
            writer.hand_over()?;
        }
    }
    writer.finish()
}

fn a_queue(ops: u64) -> Result<History> {
    let mut writer = Writer::new();
    for n in 0..(ops / 2) as i64 {
        writer.op("enqueue", Some(n), some(n))?;
        writer.op("dequeue", None, some(n))?;
    }
    writer.finish()
}

fn ids(ops: u64) -> Result<History> {
    let mut writer = Writer::new();
    for n in 0..ops as i64 {
        // Spread over all integers, as ids are.
        writer.op("generate", None, some(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)))?;
    }
    writer.finish()
}

fn requests(ops: u64) -> Result<History> {
    let mut writer = Writer::new();
    for n in 0..(ops / 3) as i64 {
        writer.op("send", Some(n), some(n))?;
        writer.op("send", Some(n), some(n))?;
        writer.op("poll", None, some(n))?;
    }
    writer.finish()
}

/// A pass over what the checkers read.
fn visit(history: &History) -> u64 {
    let mut sum = 0;
    for op in history.clients() {
        sum += u64::from(op.f_code().unwrap_or(0)) + op.status() as u64 + op.complete_index().unwrap_or(0);
        for value in [op.input(), op.output()] {
            match (value.scalar(), value.elements().and_then(|list| list.as_ints())) {
                (Some(scalar), _) => drop(black_box(scalar)),
                (None, ints) => sum += ints.unwrap_or(&[]).iter().map(|n| *n as u64).sum::<u64>(),
            }
        }
    }
    sum
}

type Checker = fn(&History) -> Findings;

/// A name, how it is made from a number of operations, and what checks it.
type Kind = (&'static str, fn(u64) -> Result<History>, Vec<(&'static str, Checker)>);

fn main() -> Result<()> {
    let kinds: [Kind; 4] = [
        (
            "set",
            a_set,
            vec![
                ("set-full", |h| set_full(h, false, 1)),
                ("set", |h| set(h, 1)),
                ("no-lost-ack", |h| no_lost_ack(h, &[], 1)),
                ("prefix", |h| prefix(h, 1, 1)),
            ],
        ),
        (
            "queue",
            a_queue,
            vec![
                ("queue", |h| queue(h, &QueueOptions { fifo: true, ..QueueOptions::default() }, 1)),
                ("total-queue", |h| total_queue(h, &QueueOptions { named: true, ..QueueOptions::default() }, 1)),
            ],
        ),
        ("ids", ids, vec![("unique-ids", |h| unique_ids(h, false, 1))]),
        (
            "requests",
            requests,
            vec![("exactly-once", |h| {
                let path: KeyPath = "value".parse().unwrap_or_else(|e| panic!("{e}"));
                exactly_once(h, &path, Effects::Consumers, None, 1)
            })],
        ),
    ];
    println!("history\tchecker\toperations\tseconds\ta pass\ttimes\tvalid");
    for size in sizes() {
        for (name, make, checkers) in &kinds {
            let history = make(size)?;
            let start = cpu_time();
            black_box(visit(&history));
            let pass = (cpu_time() - start).as_secs_f64();
            for (checker, run) in checkers {
                let start = cpu_time();
                let found = run(&history);
                let seconds = (cpu_time() - start).as_secs_f64();
                let times = seconds / pass.max(1e-9);
                println!("{name}\t{checker}\t{size}\t{seconds:.3}\t{pass:.3}\t{times:.1}\t{}", found.is_valid());
            }
        }
    }
    Ok(())
}
