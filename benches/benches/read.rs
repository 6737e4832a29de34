//! How fast do histories in each format become columns? In bytes and operations a second of processor time, on one thread;
//! for EDN also on all cores, by the wall clock.

use criterion::measurement::Measurement;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use elench_benches::{Sample, Samples, brief, brief_cpu, jepsen_samples, sizes};

fn main() {
    let samples = Samples::generate(&sizes()).expect("histories can be generated and written");
    let mut one_thread = brief_cpu().configure_from_args();
    samples.all.iter().chain(&jepsen_samples()).for_each(|s| read(&mut one_thread, "read", s, 1));
    one_thread.final_summary();
    let mut all_cores = brief().configure_from_args();
    samples.all.iter().filter(|s| s.format == "edn").for_each(|s| read(&mut all_cores, "read, all cores, wall", s, 0));
    all_cores.final_summary();
}

fn read<M: Measurement>(criterion: &mut Criterion<M>, group: &str, sample: &Sample, threads: usize) {
    let mut group = criterion.benchmark_group(format!("{group}/{}/{}", sample.workload, sample.format));
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::ElementsAndBytes { elements: sample.operations, bytes: sample.bytes });
    group.bench_function(BenchmarkId::from_parameter(sample.operations), |b| {
        b.iter_with_large_drop(|| sample.read(threads).expect("what was written can be read"));
    });
    group.finish();
}
