//! What does it cost to check transactions, in processor time and memory, and what makes it dear?
//!
//! Transactions × keys × length of lists × clients, clean and broken, in both workloads; and histories that lean all one way
//! (very many keys, one key with very many appends, one long list that is read again and again, ends that nobody knows, keys and
//! elements that are texts). All are judged by strict serializability, from the columnar form, with everything explained and verified
//! that would be in a report.
//!
//! Criterion measures times; for peaks of memory the program starts itself anew for each case, which checks once on one thread, notes
//! what that took beyond the history, and says so. These go to `results/txn.tsv`, and as a plot to `results/txn.svg`. Linux only.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use criterion::measurement::Measurement;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use elench::check::{CheckOptions, Found, Valid, check};
use elench_benches::plot::{Line, chart};
use elench_benches::process::{circumstances, reset_peak, status_bytes};
use elench_benches::txn::{Broken, SHAPES, Special};
use elench_benches::{brief_cpu, cpu_time, history, large, measuring};
use elench_checkers::Budget;
use elench_checkers::txn::{Options, TxnResult, check_list_append, register::check_rw_register};
use elench_formats::History;
use elench_generate::Workload;
use plotters::prelude::*;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The first argument of a child.
const CHILD: &str = "--measure";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, case, size] = arguments.as_slice()
        && child == CHILD
    {
        return measure_here(case.parse()?, size.parse()?);
    }
    let mut criterion = brief_cpu().configure_from_args();
    for (i, shape) in SHAPES.iter().enumerate() {
        for transactions in if measuring() { vec![10_000, 100_000] } else { vec![100] } {
            bench(&mut criterion, "shape", &shape.name(), transactions, || made(i, transactions).map(|(h, _)| h))?;
        }
    }
    for special in specials(if measuring() { 100_000 } else { 100 }) {
        bench(&mut criterion, "special", &special.name(), 1, || Ok(special.history()?))?;
    }
    criterion.final_summary();
    // With a filter only what it names is wanted.
    if !arguments.iter().skip(1).any(|a| !a.starts_with('-')) { costs() } else { Ok(()) }
}

/// Those that are special, of about so many operations.
fn specials(n: u64) -> [Special; 6] {
    [
        Special::ManyKeys(n),
        Special::ManyAppends(n),
        Special::LongList(n, n / 100),
        Special::Unknown(n),
        Special::ReadsOfFailed(n),
        Special::Texts(n),
    ]
}

fn checked(history: &History, workload: Workload) -> TxnResult {
    let (options, budget) = (Options::default(), Budget::unlimited().threads(1));
    match workload {
        Workload::RwRegister => check_rw_register(history, &options, Default::default(), &budget),
        _ => check_list_append(history, &options, &budget),
    }
}

fn bench<M: Measurement>(
    criterion: &mut Criterion<M>,
    group: &str,
    name: &str,
    size: u64,
    make: impl Fn() -> Result<History>,
) -> Result<()> {
    let history = make()?;
    let workload = if name.starts_with("rw-register") { Workload::RwRegister } else { Workload::ListAppend };
    let mut group = criterion.benchmark_group(format!("txn/{group}"));
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(checked(&history, workload).sizes.micro_operations));
    group.bench_function(BenchmarkId::new(name, size), |b| b.iter_with_large_drop(|| checked(&history, workload)));
    group.finish();
    Ok(())
}

/// A case by its number: a shape, or one that is special.
fn made(case: usize, size: u64) -> Result<(History, String)> {
    Ok(match SHAPES.get(case) {
        Some(shape) => (history(&shape.options(size))?, shape.name()),
        None => {
            let special = specials(size)[case - SHAPES.len()];
            (special.history()?, special.name())
        }
    })
}

fn measure_here(case: usize, size: u64) -> Result<()> {
    let (history, name) = made(case, size)?;
    let workload = if name.starts_with("rw-register") { "rw-register" } else { "list-append" };
    let options = CheckOptions {
        checkers: vec!["isolation".into()],
        workload: Some(workload.into()),
        budget: Budget::unlimited().threads(1),
        ..CheckOptions::default()
    };
    reset_peak()?;
    let (held, start) = (status_bytes("VmRSS:")?, cpu_time());
    let report = check("", &history, &options)?;
    let took = (cpu_time() - start).as_secs_f64();
    let peak = status_bytes("VmHWM:")?.saturating_sub(held);
    let Found::Isolation(found) = &report.findings[0].result else { return Err("the checker did not run".into()) };
    let clean = match SHAPES.get(case) {
        Some(shape) => shape.broken == Broken::No,
        None => !matches!(specials(size)[case - SHAPES.len()], Special::ReadsOfFailed(_)),
    };
    if clean && report.valid == Valid::No {
        return Err(format!("{name}: a history that is right by construction was accused").into());
    }
    let sizes = &found.result.sizes;
    println!("{took} {peak} {} {} {}", sizes.transactions, sizes.micro_operations, history.memory());
    Ok(())
}

struct Row {
    case: usize,
    name: String,
    seconds: f64,
    peak: u64,
    transactions: u64,
    mops: u64,
    columns: u64,
}

fn costs() -> Result<()> {
    let mut sizes = if measuring() { vec![10_000, 100_000, 1_000_000] } else { vec![100] };
    sizes.extend(large().then_some(10_000_000));
    let mut rows = Vec::new();
    for case in 0..SHAPES.len() + specials(1_000).len() {
        for &size in &sizes {
            // Elements read grow with the square of the size there.
            let special = case.checked_sub(SHAPES.len()).map(|i| specials(size)[i]);
            if matches!(special, Some(Special::LongList(n, reads)) if n * reads > 1 << 34) {
                continue;
            }
            let row = measure(case, size)?;
            print!("{}", row.line());
            rows.push(row);
        }
    }
    if measuring() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let lines: String = rows.iter().map(Row::line).collect();
        let header = "case\ttransactions\tmicro-operations\tCPU seconds\tns a micro-operation\tpeak bytes a micro-operation\tcolumn MB\n";
        std::fs::write(results.join("txn.tsv"), format!("# {}\n{header}{lines}", circumstances()))?;
        plot(&rows, &results.join("txn.svg"))?;
    }
    Ok(())
}

fn measure(case: usize, size: u64) -> Result<Row> {
    let child = Command::new(std::env::current_exe()?).args([CHILD, &case.to_string(), &size.to_string()]).output()?;
    let said = String::from_utf8(child.stdout)?;
    let [seconds, peak, transactions, mops, columns] = said.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("case {case}, {size}: {}", String::from_utf8_lossy(&child.stderr)).into());
    };
    let name = SHAPES.get(case).map_or_else(|| specials(size)[case - SHAPES.len()].name(), |shape| shape.name());
    Ok(Row {
        case,
        name,
        seconds: seconds.parse()?,
        peak: peak.parse()?,
        transactions: transactions.parse()?,
        mops: mops.parse()?,
        columns: columns.parse()?,
    })
}

impl Row {
    fn line(&self) -> String {
        let each = |x: f64| x / self.mops.max(1) as f64;
        format!(
            "{}\t{}\t{}\t{:.4}\t{:.1}\t{:.1}\t{:.1}\n",
            self.name,
            self.transactions,
            self.mops,
            self.seconds,
            each(self.seconds * 1e9),
            each(self.peak as f64),
            self.columns as f64 / 1e6,
        )
    }
}

/// Colours that those who see few colours tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

fn plot(rows: &[Row], path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, (1300, 640)).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, panels) = root.split_vertically(50);
    title.titled("Processor time to check transactions to strict serializability, one thread", ("sans-serif", 24))?;
    let at = |r: &Row| (r.transactions as f64, r.seconds);
    let shapes = || rows.iter().filter(|r| r.case < SHAPES.len());
    let within: Vec<(f64, f64)> = shapes().map(at).collect();
    for (panel, workload) in panels.split_evenly((1, 2)).iter().zip([Workload::ListAppend, Workload::RwRegister]) {
        let of = (0..SHAPES.len()).filter(|&i| SHAPES[i].workload == workload);
        let lines: Vec<Line> = of
            .zip(COLOURS)
            .map(|(i, colour)| Line {
                label: SHAPES[i].name().split_once(", ").map_or_else(String::new, |(_, rest)| rest.to_string()),
                colour,
                points: shapes().filter(|r| r.case == i).map(at).collect(),
            })
            .collect();
        chart(panel, workload.name(), &within, &lines)?;
    }
    root.present()?;
    Ok(())
}
