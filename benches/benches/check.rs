//! What does a check cost, and what makes it dear? Linearizability of one register, by operations, clients, the share of
//! operations with unknown outcomes, and whether values recur; of many registers; and counting, which reads one column.
//!
//! On one thread, by processor time. What cannot be decided within ten seconds and 1 GiB is named and left out: a bench
//! that measured its budget would say nothing.

use std::time::Duration;

use criterion::measurement::Measurement;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use elench_benches::{brief_cpu, history, large, measuring};
use elench_checkers::Budget;
use elench_checkers::descriptive::stats;
use elench_checkers::linear::read::registers::{Options, Registers, registers};
use elench_checkers::linear::{Evidence, check_keys};
use elench_generate::{GenOptions, Values, Workload};

fn main() {
    let mut criterion = brief_cpu().configure_from_args();
    for options in matrix() {
        linear(&mut criterion, &describe(&options), &options);
    }
    keyed(&mut criterion);
    count(&mut criterion);
    criterion.final_summary();
}

fn ops() -> Vec<u64> {
    match (measuring(), large()) {
        (false, _) => vec![100],
        (true, false) => vec![1_000, 10_000, 100_000],
        (true, true) => vec![1_000, 10_000, 100_000, 1_000_000],
    }
}

fn matrix() -> Vec<GenOptions> {
    let mut all = Vec::new();
    for ops in ops() {
        for clients in [5, 20] {
            for info in [0.0, 0.001] {
                for values in [Values::Unique, Values::Domain(5)] {
                    all.push(GenOptions { ops, clients, info, values, ..GenOptions::new(Workload::Register) });
                }
            }
        }
    }
    all
}

fn describe(options: &GenOptions) -> String {
    let values = match options.values {
        Values::Unique => "unique values".into(),
        Values::Domain(n) => format!("{n} values"),
    };
    format!("{} clients, {}% info, {values}", options.clients, options.info * 100.0)
}

fn budget() -> Budget {
    Budget::unlimited().threads(1).within(Duration::from_secs(10)).memory(1 << 30)
}

fn linear<M: Measurement>(criterion: &mut Criterion<M>, name: &str, options: &GenOptions) {
    let history = history(options).expect("the options are sound");
    let Registers { problems, .. } = registers(&history, &Options::default()).expect("it is a register's history");
    let check = || check_keys(&problems, &budget(), &Evidence::default());
    if !check().is_valid() {
        println!("linear/{name}/{}: not decided within 10 s and 1 GiB, left out", options.ops);
        return;
    }
    let mut group = criterion.benchmark_group("linear");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(options.ops));
    group.bench_function(BenchmarkId::new(name, options.ops), |b| b.iter_with_large_drop(check));
    group.finish();
}

fn keyed<M: Measurement>(criterion: &mut Criterion<M>) {
    let ops = if measuring() { 100_000 } else { 100 };
    let base = GenOptions::new(Workload::CasRegister);
    let options = GenOptions { ops, clients: 20, info: 0.001, keys: 1_000, independent: true, ..base };
    linear(criterion, "1000 keys, 20 clients, 0.1% info, cas, unique values", &options);
}

fn count<M: Measurement>(criterion: &mut Criterion<M>) {
    let ops = if measuring() { 1_000_000 } else { 100 };
    let history =
        history(&GenOptions { ops, ..GenOptions::new(Workload::CasRegister) }).expect("the options are sound");
    let mut group = criterion.benchmark_group("stats");
    group.throughput(Throughput::Elements(ops));
    group.bench_function(BenchmarkId::new("cas-register", ops), |b| b.iter(|| stats(&history)));
    group.finish();
}
