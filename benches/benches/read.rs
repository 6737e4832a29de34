//! How fast do histories in each format become columns? In bytes and operations a second of processor time, on one thread;
//! for EDN also on all cores, by the wall clock. For the formats of Jepsen's events, what decoding alone costs stands beside:
//! the rest is pairing events and packing columns.

use std::fs::File;
use std::io::Read;

use criterion::measurement::Measurement;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use elench_benches::{Sample, Samples, brief, brief_cpu, jepsen_samples, sizes};
use elench_formats::event::EventBatch;
use elench_formats::{Result, edn, json};

fn main() {
    let samples = Samples::generate(&sizes()).expect("histories can be generated and written");
    let mut one_thread = brief_cpu().configure_from_args();
    samples.all.iter().chain(&jepsen_samples()).for_each(|s| read(&mut one_thread, "read", s, 1));
    samples.all.iter().filter_map(|s| Some((s, decoder(s.format)?))).for_each(|(s, d)| decode(&mut one_thread, s, d));
    one_thread.final_summary();
    let mut all_cores = brief().configure_from_args();
    samples.all.iter().filter(|s| s.format == "edn").for_each(|s| read(&mut all_cores, "read, all cores, wall", s, 0));
    all_cores.final_summary();
}

type Sink<'a> = &'a mut dyn FnMut(&mut EventBatch) -> Result<()>;
type Decoder = fn(&mut dyn Read, usize, Sink<'_>) -> Result<()>;

fn decoder(format: &str) -> Option<Decoder> {
    match format {
        "edn" => Some(edn::events::read),
        "jsonl" => Some(json::events::read),
        _ => None,
    }
}

fn decode<M: Measurement>(criterion: &mut Criterion<M>, sample: &Sample, decoder: Decoder) {
    let mut group = criterion.benchmark_group(format!("decode only/{}/{}", sample.workload, sample.format));
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::ElementsAndBytes { elements: sample.operations, bytes: sample.bytes });
    group.bench_function(BenchmarkId::from_parameter(sample.operations), |b| {
        b.iter(|| {
            let mut file = File::open(&sample.path).expect("the file was written");
            decoder(&mut file, 1, &mut |_| Ok(())).expect("what was written can be read");
        });
    });
    group.finish();
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
