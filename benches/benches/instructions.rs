//! How many instructions do the hot paths take?
//!
//! A noisy machine moves times by tens of percent, and instruction counts by fractions of one. Each path runs in a process of
//! its own under callgrind, which counts what lies within [`counted`]. Prints each count beside the one recorded in
//! `results/instructions.tsv`, and how they differ; `cargo bench -p elench-benches --bench instructions -- --record` writes
//! new ones. Needs valgrind; without it there is nothing to count, and that is said.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use elench_benches::{Samples, history, measuring};
use elench_checkers::Budget;
use elench_checkers::linear::read::registers::{Options, Registers, registers};
use elench_checkers::linear::{Evidence, Problems};
use elench_checkers::txn::register::{Assumptions, check_rw_register};
use elench_checkers::txn::{self, check_list_append};
use elench_formats::History;
use elench_formats::open::{Format, OpenOptions, open_bytes};
use elench_generate::{GenOptions, Isolation, Values, Workload};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The first argument of a child.
const CHILD: &str = "--count";
const OPS: u64 = 10_000;

/// Prepares what is to be counted.
type Prepare = fn() -> Result<Box<dyn FnOnce()>>;

/// What is counted.
const PATHS: [(&str, Prepare); 12] = [
    ("read edn cas-register", || read(Workload::CasRegister, "edn")),
    ("read edn list-append", || read(Workload::ListAppend, "edn")),
    ("read jsonl cas-register", || read(Workload::CasRegister, "jsonl")),
    ("read parquet cas-register", || read(Workload::CasRegister, "parquet")),
    ("read parquet list-append", || read(Workload::ListAppend, "parquet")),
    ("read arrow list-append", || read(Workload::ListAppend, "arrow")),
    ("monitor register, 20 clients", || check(20, Values::Unique, false)),
    ("search register, 10 clients", || check(10, Values::Unique, true)),
    ("search register, 5 clients, 5 values", || check(5, Values::Domain(5), true)),
    ("isolation list-append, clean", || isolation(Workload::ListAppend, Isolation::Serial)),
    ("isolation list-append, write skews", || isolation(Workload::ListAppend, Isolation::Snapshot)),
    ("isolation rw-register, clean", || isolation(Workload::RwRegister, Isolation::Serial)),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, path] = arguments.as_slice()
        && child == CHILD
    {
        let (_, prepare) = PATHS[path.parse::<usize>()?];
        // Only what the calling thread does is counted, so it is the one that works.
        rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global()?;
        counted(prepare()?);
        return Ok(());
    }
    if !measuring() {
        for (_, prepare) in PATHS {
            counted(prepare()?);
        }
        return Ok(());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind is not installed: nothing is counted");
        return Ok(());
    }
    let recorded = recorded();
    let mut lines = String::new();
    for (i, (name, _)) in PATHS.iter().enumerate() {
        let count = count(i)?;
        let before = recorded.iter().find(|(other, _)| other == name).map(|&(_, n)| n);
        let change = before.map_or("not recorded before".into(), |n| {
            format!("{:+.2}% against the recorded {n}", (count as f64 / n as f64 - 1.0) * 100.0)
        });
        println!("{name:40} {count:>14} instructions, {:.0} an operation; {change}", count as f64 / OPS as f64);
        lines.push_str(&format!("{name}\t{count}\n"));
    }
    if arguments.iter().any(|argument| argument == "--record") {
        std::fs::write(results(), lines)?;
    }
    Ok(())
}

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results/instructions.tsv")
}

fn recorded() -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(results()).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(name, n)| Some((name.into(), n.parse().ok()?)))
        .collect()
}

/// The only part that is counted.
#[inline(never)]
fn counted(path: Box<dyn FnOnce()>) {
    path();
}

fn count(path: usize) -> Result<u64> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("callgrind");
    let child = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*instructions*counted*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args([CHILD, &path.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&child.stderr);
    let count = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    count.filter(|&n| n > 0).ok_or_else(|| format!("callgrind counted nothing: {said}").into())
}

fn read(workload: Workload, format: &str) -> Result<Box<dyn FnOnce()>> {
    let samples = Samples::generate(&[OPS])?;
    let sample = samples.all.iter().find(|s| s.workload == workload.name() && s.format == format);
    let sample = sample.ok_or("no such sample")?;
    let (bytes, format) = (std::fs::read(&sample.path)?, sample.reader);
    Ok(Box::new(move || assert!(black_box(decode(&bytes, format)).is_some_and(|history| !history.is_empty()))))
}

fn decode(bytes: &[u8], format: Format) -> Option<History> {
    // As many as the global pool has: the one that is counted. A pool of its own would work unseen.
    let options = OpenOptions { format: Some(format), threads: 0, ..OpenOptions::default() };
    open_bytes(bytes, &options).ok()
}

fn check(clients: u32, values: Values, search_only: bool) -> Result<Box<dyn FnOnce()>> {
    let options = GenOptions { ops: OPS, clients, values, ..GenOptions::new(Workload::Register) };
    let Registers { problems, .. } = registers(&history(&options)?, &Options::default()).map_err(|m| m.why)?;
    let evidence = Evidence { search_only, ..Evidence::default() };
    let problems = Problems::Registers(problems);
    Ok(Box::new(move || drop(black_box(problems.linear(&Budget::unlimited().threads(1), &evidence)))))
}

fn isolation(workload: Workload, isolation: Isolation) -> Result<Box<dyn FnOnce()>> {
    let history = history(&GenOptions { ops: OPS, isolation, ..GenOptions::new(workload) })?;
    let (options, budget) = (txn::Options::default(), Budget::unlimited());
    Ok(match workload {
        Workload::RwRegister => Box::new(move || {
            drop(black_box(check_rw_register(&history, &options, Assumptions::default(), &budget)));
        }),
        _ => Box::new(move || drop(black_box(check_list_append(&history, &options, &budget)))),
    })
}
