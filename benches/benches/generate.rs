//! How many operations a second of processor time are simulated?

use criterion::measurement::Measurement;
use criterion::{Criterion, Throughput};
use elench_benches::{brief_cpu, large, measuring};
use elench_formats::write::stream;
use elench_generate::{GenOptions, Isolation, Workload, generate};

fn main() {
    let ops = match (measuring(), large()) {
        (false, _) => 1_000,
        (true, false) => 100_000,
        (true, true) => 10_000_000,
    };
    let mut criterion = brief_cpu().configure_from_args();
    for workload in Workload::ALL {
        simulate(&mut criterion, workload.name(), &GenOptions { ops, ..GenOptions::new(workload) });
    }
    let snapshot = GenOptions { ops, isolation: Isolation::Snapshot, ..GenOptions::new(Workload::ListAppend) };
    simulate(&mut criterion, "list-append, snapshot isolation", &snapshot);
    let many = GenOptions {
        ops,
        clients: 1000,
        keys: 100_000,
        skew: 1.0,
        independent: true,
        info: 0.001,
        fail: 0.05,
        ..GenOptions::new(Workload::Register)
    };
    simulate(&mut criterion, "register, 1000 clients, 100000 skewed keys", &many);
    write(&mut criterion, &GenOptions { ops, ..GenOptions::new(Workload::CasRegister) });
    criterion.final_summary();
}

fn simulate<M: Measurement>(criterion: &mut Criterion<M>, name: &str, options: &GenOptions) {
    let mut group = criterion.benchmark_group("generate");
    group.throughput(Throughput::Elements(options.ops));
    group.bench_function(name, |b| {
        b.iter(|| generate(options, &mut |_| Ok(())).expect("the options are sound").events);
    });
    group.finish();
}

fn write<M: Measurement>(criterion: &mut Criterion<M>, options: &GenOptions) {
    let mut group = criterion.benchmark_group("generate");
    group.throughput(Throughput::Elements(options.ops));
    group.bench_function("cas-register, written as EDN", |b| {
        b.iter(|| {
            let mut sink = std::io::sink();
            generate(options, &mut |batch| Ok(stream::edn(batch, &mut sink)?)).expect("the options are sound").events
        });
    });
    group.finish();
}
