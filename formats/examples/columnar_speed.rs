//! How fast are Parquet files decoded and mapped Arrow files opened? Rows per second of processor time, and bytes on disk
//! per operation: `cargo run --release -p elench-formats --example columnar_speed [rows [directory for the files]]`.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use elench_formats::History;
use elench_formats::build::{BuildOptions, HistoryBuilder};
use elench_formats::columnar::{
    Compression, ReadOptions, WriteOptions, read_ipc, read_parquet, write_ipc, write_parquet,
};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Mop, Process, Span};

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(2_000_000), |n| n.parse())?;
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args().nth(2).map_or(temporary.path().to_path_buf(), Into::into);
    for (name, history) in [("register", register(rows)?), ("list-append", list_append(rows / 4)?)] {
        println!("{name}: {} operations, {} bytes of memory each", history.len(), history.memory() / history.len());
        measure(&history, &dir.join(name))?;
    }
    Ok(())
}

const RUNS: u32 = 10;

/// Processor time of this process, ended threads included, as Linux counts it: in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn measure(history: &History, base: &Path) -> Result<(), Box<dyn Error>> {
    let per_second = |from: f64| history.len() as f64 / from / 1e6;
    for compression in [Compression::Zstd, Compression::Lz4, Compression::None] {
        let options = WriteOptions { compression: Some(compression), workload: None };
        for parquet in [true, false] {
            let format = if parquet { "parquet" } else { "arrow" };
            let path = base.with_extension(format!("{compression:?}.{format}"));
            let start = processor_seconds();
            if parquet {
                write_parquet(&path, history, &options)?
            } else {
                write_ipc(&path, history, &options)?
            };
            let written = processor_seconds() - start;
            let start = processor_seconds();
            for _ in 0..RUNS {
                let file = File::open(&path)?;
                let options = ReadOptions::default();
                let read = if parquet { read_parquet(&file, &options)? } else { read_ipc(&file, &options)? };
                assert_eq!(read.len(), history.len());
            }
            let read = (processor_seconds() - start) / f64::from(RUNS);
            println!(
                "  {format:8} {compression:?}: {:6.1} M rows/s read, {:5.1} M rows/s written, {:6.2} bytes an operation",
                per_second(read),
                per_second(written),
                std::fs::metadata(&path)?.len() as f64 / history.len() as f64,
            );
        }
    }
    Ok(())
}

/// Events of ten processes that take turns, in an order that the seed gives.
struct Run {
    builder: HistoryBuilder,
    batch: EventBatch,
    seed: u64,
    index: i64,
    time: i64,
}

impl Run {
    fn new() -> Self {
        let options = BuildOptions { format: "generated".into(), real_time: true, ..Default::default() };
        let builder = HistoryBuilder::new(options);
        Run { builder, batch: EventBatch::default(), seed: 0x9e37_79b9_7f4a_7c15, index: 0, time: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % n
    }

    fn event(&mut self, kind: EventType, p: i64, f: &str, value: Cell) -> Result<(), Box<dyn Error>> {
        let f = Some(self.batch.name(f));
        self.time += 500 + self.below(40_000) as i64;
        let (index, time) = (Some(self.index), Some(self.time));
        self.batch.push(Event { place: 1, index, time, kind, process: Process::Client(p), f, value });
        self.index += 1;
        if self.batch.len() > 8000 {
            self.builder.push(&self.batch)?;
            self.batch.clear_events();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<History, Box<dyn Error>> {
        self.builder.push(&self.batch)?;
        Ok(self.builder.finish()?)
    }
}

fn register(rows: usize) -> Result<History, Box<dyn Error>> {
    let mut run = Run::new();
    let mut open: [Option<(bool, i64)>; 10] = [None; 10];
    let mut begun = 0;
    while begun < rows || open.iter().any(Option::is_some) {
        let p = run.below(10) as usize;
        match open[p].take() {
            Some((write, value)) => {
                let kind = if run.below(50) == 0 { EventType::Fail } else { EventType::Ok };
                run.event(kind, p as i64, if write { "write" } else { "read" }, Cell::Int(value))?;
            }
            None if begun < rows => {
                let (write, value) = (run.below(2) == 0, run.below(1000) as i64);
                let (f, sent) = if write { ("write", Cell::Int(value)) } else { ("read", Cell::Nil) };
                run.event(EventType::Invoke, p as i64, f, sent)?;
                open[p] = Some((write, value));
                begun += 1;
            }
            None => (),
        }
    }
    run.finish()
}

fn list_append(rows: usize) -> Result<History, Box<dyn Error>> {
    let mut run = Run::new();
    for row in 0..rows as i64 {
        for kind in [EventType::Invoke, EventType::Ok] {
            let start = run.batch.mops.len() as u32;
            for mop in 0..4 {
                let key = Cell::Int(row / 100 * 3 + mop % 3);
                let (f, value) = match (mop % 2, kind) {
                    (0, _) => ("append", Cell::Int(row * 4 + mop)),
                    (_, EventType::Ok) => {
                        let first = run.batch.ints.len() as u32;
                        let n = (row % 30) as u32;
                        run.batch.ints.extend((0..n).map(|i| row * 4 - i64::from(i)));
                        ("r", Cell::List(Span { start: first, len: n }))
                    }
                    _ => ("r", Cell::Nil),
                };
                let f = run.batch.name(f);
                run.batch.mops.push(Mop { f, key, value });
            }
            run.event(kind, row % 10, "txn", Cell::Txn(Span { start, len: 4 }))?;
        }
    }
    run.finish()
}
