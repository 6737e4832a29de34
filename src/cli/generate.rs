//! `elench gen`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::columnar::{ParquetWriter, Plan, WriteOptions};
use elench_formats::event::EventBatch;
use elench_formats::write::{Target, stream, to_file, to_writer};
use elench_formats::{History, ReadError};
use elench_generate::{Fault, GenOptions, Generated, Isolation, Values, Workload, generate};

use super::args::GenArgs;
use super::convert::target;
use super::progress::Counting;
use super::{Exit, Stop};

/// Simulates, and writes what the clients saw.
pub(super) fn run(args: &GenArgs) -> Result<Exit, Stop> {
    let options = options(args)?;
    let target = target(args.to.as_deref(), &args.output)?;
    let bar = Counting::new("generating", args.ops);
    let done = match (target, args.output.as_str()) {
        (Target::Edn | Target::Jsonl, "-") => text(&options, target, &mut io::stdout().lock(), &bar),
        (Target::Edn | Target::Jsonl, path) => text_file(&options, target, Path::new(path), &bar),
        (Target::Parquet, path) if path != "-" => parquet(&options, Path::new(path), &bar),
        (_, path) => held(&options, target, path, &bar),
    }?;
    drop(bar);
    if let Some(injected) = &done.injected {
        let list = |ops: &[u64]| ops.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        eprintln!("injected {}: operations {}", injected.fault.name(), list(&injected.ops));
    }
    Ok(Exit::Passed)
}

fn options(args: &GenArgs) -> Result<GenOptions, Stop> {
    let workload = Workload::from_name(&args.workload)
        .ok_or_else(|| Stop::Error(format!("no workload is called `{}`", args.workload)))?;
    let names = || workload.faults().iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
    let fault = match args.fault.as_deref() {
        None => None,
        Some(name) => Some(
            Fault::from_name(name)
                .ok_or_else(|| Stop::Error(format!("faults of the workload {} are: {}", workload.name(), names())))?,
        ),
    };
    let usual = GenOptions::new(workload);
    let keys = args.keys.unwrap_or(usual.keys);
    Ok(GenOptions {
        ops: args.ops,
        clients: args.clients,
        seed: args.seed,
        mean_ns: u64::try_from(args.duration.as_nanos()).unwrap_or(u64::MAX),
        think: args.think,
        info: args.info,
        fail: args.fail,
        keys,
        skew: args.skew,
        values: args.values.map_or(Values::Unique, Values::Domain),
        mops: (1, args.txn_len),
        writes: args.writes.unwrap_or(usual.writes),
        independent: !workload.is_txn() && keys > 1,
        nemesis_ns: if args.nemesis { nemesis_ns(args) } else { 0 },
        isolation: if args.snapshot { Isolation::Snapshot } else { Isolation::Serial },
        fault,
        ..usual
    })
}

/// So that the nemesis starts and stops a few times during the run.
fn nemesis_ns(args: &GenArgs) -> u64 {
    let rounds = args.ops as f64 / f64::from(args.clients);
    let run = rounds * args.duration.as_nanos() as f64 * (1.0 + args.think);
    ((run / 8.0) as u64).max(1)
}

fn count(batch: &EventBatch) -> u64 {
    batch.len() as u64 / 2
}

/// Straight to text: memory is that of the simulation.
fn text(options: &GenOptions, target: Target, out: &mut dyn Write, bar: &Counting) -> Result<Generated, Stop> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let (mut done, mut broken) = (0, None);
    let result = generate(options, &mut |batch| {
        done += count(batch);
        bar.tell(done);
        let written = match target {
            Target::Edn => stream::edn(batch, &mut out),
            _ => stream::jsonl(batch, &mut out),
        };
        written.map_err(|e| {
            broken = Some(e.kind());
            ReadError::from(e)
        })
    });
    if broken == Some(io::ErrorKind::BrokenPipe) {
        return Err(Stop::Pipe);
    }
    let generated = result?;
    out.flush()?;
    Ok(generated)
}

fn text_file(options: &GenOptions, target: Target, path: &Path, bar: &Counting) -> Result<Generated, Stop> {
    let cannot = |e: io::Error| Stop::Error(format!("{}: cannot write: {e}", path.display()));
    let mut file = File::create(path).map_err(cannot)?;
    text(options, target, &mut file, bar)
}

/// Through the builder to Parquet, part by part: memory is that of a few parts of 65,536 operations.
fn parquet(options: &GenOptions, path: &Path, bar: &Counting) -> Result<Generated, Stop> {
    let mut builder = builder(options);
    let mut writer: Option<ParquetWriter> = None;
    let mut write = |part: &History| -> elench_formats::Result<()> {
        if writer.is_none() {
            let write = WriteOptions { workload: Some(options.workload.name().into()), ..WriteOptions::default() };
            writer = Some(ParquetWriter::create(path, &Plan::of(part), &write)?);
        }
        writer.as_mut().map_or(Ok(()), |w| w.write(part))
    };
    let mut done = 0;
    let generated = generate(options, &mut |batch| {
        done += count(batch);
        bar.tell(done);
        builder.push(batch)?;
        builder.take_packed().map_or(Ok(()), |part| write(&part))
    })?;
    let last = builder.finish()?;
    if !last.is_empty() {
        write(&last)?;
    }
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Ok(generated)
}

/// Held whole, for formats that need it.
fn held(options: &GenOptions, target: Target, path: &str, bar: &Counting) -> Result<Generated, Stop> {
    let mut builder = builder(options);
    let mut done = 0;
    let generated = generate(options, &mut |batch| {
        done += count(batch);
        bar.tell(done);
        builder.push(batch)
    })?;
    let history = builder.finish()?;
    if path == "-" {
        to_writer(&history, target, &mut io::stdout())?;
    } else {
        to_file(&history, target, Path::new(path))?;
    }
    Ok(generated)
}

fn builder(options: &GenOptions) -> HistoryBuilder {
    let lift = if options.independent { Lift::Always } else { Lift::Never };
    HistoryBuilder::new(BuildOptions { lift, format: "gen".into(), real_time: true, ..BuildOptions::default() })
}
