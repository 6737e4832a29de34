//! What do benches need to measure Elench by: which histories, in which files, and which clock?
//!
//! Histories come from the generator, so a fresh clone has all that it needs; they are written once a run to a directory
//! that vanishes with it. The clock is that of the processor, not that of the wall: a machine that does other work
//! meanwhile slows the latter only.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use elench_formats::build::{BuildOptions, HistoryBuilder};
use elench_formats::event::Process;
use elench_formats::open::{Format, OpenOptions, open};
use elench_formats::write::{Target, to_file};
use elench_formats::{History, Result};
use elench_generate::{GenOptions, Values, Workload, generate};
use tempfile::TempDir;

pub mod plot;
pub mod process;
pub mod shapes;
pub mod txn;

/// Is this `cargo bench`, and not a test run that only asks whether benches work?
pub fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Are histories of 10^7 operations wanted?
pub fn large() -> bool {
    std::env::var("ELENCH_BENCH_LARGE").is_ok_and(|v| v == "1")
}

/// Sizes to read, in operations.
pub fn sizes() -> Vec<u64> {
    match (measuring(), large()) {
        (false, _) => vec![1_000],
        (true, false) => vec![100_000, 1_000_000],
        (true, true) => vec![100_000, 1_000_000, 10_000_000],
    }
}

/// What is generated for benches of readers: registers that are compared and set, and lists that transactions append to,
/// by twenty clients; one operation in a thousand has an unknown outcome, one in a hundred fails.
pub fn read_options(workload: Workload, ops: u64) -> GenOptions {
    let values = if workload.is_txn() { Values::Unique } else { Values::Domain(1_000) };
    GenOptions { ops, clients: 20, info: 0.001, fail: 0.01, values, ..GenOptions::new(workload) }
}

/// Generates a history.
///
/// # Errors
/// As [`generate`], and as building.
pub fn history(options: &GenOptions) -> Result<History> {
    let mut builder =
        HistoryBuilder::new(BuildOptions { format: "generated".into(), real_time: true, ..BuildOptions::default() });
    generate(options, &mut |batch| builder.push(batch))?;
    builder.finish()
}

/// A history in a file.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What its clients do, or where it is from.
    pub workload: String,
    /// How it is written.
    pub format: &'static str,
    /// How to read it.
    pub reader: Format,
    /// Where.
    pub path: PathBuf,
    /// How long the file is.
    pub bytes: u64,
    /// How many operations it holds.
    pub operations: u64,
}

impl Sample {
    /// Reads it into columns.
    ///
    /// # Errors
    /// As [`open`].
    pub fn read(&self, threads: usize) -> Result<History> {
        let options = OpenOptions { format: Some(self.reader), threads, ..OpenOptions::default() };
        open(&self.path.display().to_string(), &options, &|_, _| {})
    }
}

/// Histories in files that vanish when this is dropped.
#[derive(Debug)]
pub struct Samples {
    dir: TempDir,
    /// The histories.
    pub all: Vec<Sample>,
}

/// Files that [`to_file`] writes, and what reads them.
const WRITTEN: [(Target, &str, Format); 6] = [
    (Target::Edn, "edn", Format::Edn),
    (Target::Jsonl, "jsonl", Format::Json),
    (Target::Schema, "schema", Format::Schema),
    (Target::Csv, "csv", Format::Csv),
    (Target::Parquet, "parquet", Format::Parquet),
    (Target::Arrow, "arrow", Format::Arrow),
];

impl Samples {
    /// Generates a history of each size and writes it in each format. A format that cannot say what the history says is
    /// left out, with a message.
    ///
    /// # Errors
    /// When generating or writing fails.
    pub fn generate(sizes: &[u64]) -> Result<Samples> {
        let mut samples = Samples { dir: tempfile::tempdir()?, all: Vec::new() };
        for workload in [Workload::CasRegister, Workload::ListAppend] {
            for &ops in sizes {
                samples.write(workload, ops)?;
            }
        }
        Ok(samples)
    }

    fn write(&mut self, workload: Workload, ops: u64) -> Result<()> {
        let options = read_options(workload, ops);
        let history = history(&options)?;
        let base = self.dir.path().join(format!("{}-{ops}", workload.name()));
        for (target, format, reader) in WRITTEN {
            let path = base.with_extension(format);
            match to_file(&history, target, &path) {
                Ok(()) => self.add(workload, format, reader, path, ops)?,
                Err(e) => eprintln!("{} as {format}: left out: {e}", workload.name()),
            }
        }
        let path = base.with_extension("txt");
        write_listing(&options, &path)?;
        self.add(workload, "history.txt", Format::HistoryTxt, path, ops)
    }

    fn add(&mut self, w: Workload, format: &'static str, reader: Format, path: PathBuf, operations: u64) -> Result<()> {
        let bytes = std::fs::metadata(&path)?.len();
        self.all.push(Sample { workload: w.name().into(), format, reader, path, bytes, operations });
        Ok(())
    }
}

/// Jepsen's `history.txt`, for which Elench has no writer.
fn write_listing(options: &GenOptions, path: &Path) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut line = String::new();
    generate(options, &mut |batch| {
        for i in 0..batch.len() {
            line.clear();
            match batch.process[i] {
                Process::Client(p) => line.push_str(&p.to_string()),
                Process::Actor(a) => line.extend([":", batch.texts.get(a)]),
                Process::Unknown => line.push_str("nil"),
            }
            line.push_str("\t:");
            line.push_str(batch.kind[i].name());
            line.push('\t');
            batch.f[i].into_iter().for_each(|f| line.extend([":", batch.texts.get(f)]));
            line.push('\t');
            batch.write_edn(batch.value[i], &mut line);
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(())
}

/// Runs of Jepsen in the corpus of real files, of which no writer exists; none, with a message, without the corpus.
pub fn jepsen_samples() -> Vec<Sample> {
    let near = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus");
    let corpus = PathBuf::from(std::env::var("ELENCH_CORPUS").unwrap_or_else(|_| near.into()));
    let files = ["craft", "redis-sentinel/redis-set-split-brain-test", "redis-sentinel/redis-intensive-test", "braft"];
    let sample = |run: &&str| {
        let path = corpus.join("jepsen-runs").join(run).join("test.jepsen");
        let bytes = std::fs::metadata(&path).ok()?.len();
        let name = run.rsplit('/').next().unwrap_or(run);
        let mut sample =
            Sample { workload: name.into(), format: "test.jepsen", reader: Format::Jepsen, path, bytes, operations: 0 };
        match sample.read(1) {
            Ok(history) => sample.operations = history.len() as u64,
            Err(e) => eprintln!("{name}: left out: {e}"),
        }
        (sample.operations > 0).then_some(sample)
    };
    let found: Vec<Sample> = files.iter().filter_map(sample).collect();
    if found.is_empty() {
        eprintln!("test.jepsen: skipped, there is no corpus at {} (ELENCH_CORPUS names another)", corpus.display());
    }
    found
}

/// Time that this process's threads, ended ones included, were on a processor.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours, which the call fills and does not keep.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "this system has no clock of a process's processor time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Criterion's measure of processor time.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        cpu_time() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Few samples and short ones: a whole run takes minutes.
pub fn brief() -> Criterion {
    let (warm, measure) = (Duration::from_millis(100), Duration::from_millis(500));
    Criterion::default().sample_size(10).warm_up_time(warm).measurement_time(measure)
}

/// The same by processor time.
pub fn brief_cpu() -> Criterion<CpuTime> {
    brief().with_measurement(CpuTime)
}
