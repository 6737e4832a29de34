//! What do histories cost in memory, and what does reading them cost in processor time?
//!
//! Criterion measures time only, and one process's peak of memory is that of its greediest part. So this program starts
//! itself anew for each file: the child reads it once, looks at its peak (`VmHWM` of `/proc/self/status`, less what it
//! had before), reads it again until the best of several times is known, and says what it saw. Mapped files (Parquet,
//! Arrow, `test.jepsen`) count with the pages that were touched. One thread.
//!
//! Prints a table, and writes it to `results/read.tsv` and as a plot to `results/read.svg`. Linux only.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use elench_benches::plot::{Line, chart};
use elench_benches::process::{circumstances, status_bytes};
use elench_benches::{Sample, Samples, cpu_time, jepsen_samples, large, measuring};
use elench_formats::open::Format;
use plotters::coord::Shift;
use plotters::prelude::*;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, reader, path] = arguments.as_slice()
        && child == CHILD
    {
        return measure_here(reader, path);
    }
    let mut sizes = if measuring() { vec![10_000, 100_000, 1_000_000] } else { vec![100] };
    sizes.extend(large().then_some(10_000_000));
    let samples = Samples::generate(&sizes)?;
    let rows = samples.all.iter().chain(&jepsen_samples()).map(measure).collect::<Result<Vec<Row>>>()?;
    print!("{}", table(&rows));
    if measuring() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        std::fs::create_dir_all(&results)?;
        std::fs::write(results.join("read.tsv"), tsv(&rows))?;
        plot(&rows, &results.join("read.svg"))?;
    }
    Ok(())
}

/// The first argument of a child.
const CHILD: &str = "--measure";

/// What a child saw.
struct Row {
    sample: Sample,
    peak: u64,
    columns: u64,
    seconds: f64,
}

/// Processor time to spend on finding the best time of a file, and most rounds.
const ENOUGH_SECONDS: f64 = 1.0;
const ROUNDS: u32 = 50;

fn measure_here(reader: &str, path: &str) -> Result<()> {
    let reader = Format::from_name(reader).ok_or("no such format")?;
    let sample =
        Sample { workload: String::new(), format: reader.name(), reader, path: path.into(), bytes: 0, operations: 0 };
    let before = status_bytes("VmRSS:")?;
    let (mut best, mut spent, mut rounds) = (f64::INFINITY, 0.0, 0);
    let (mut peak, mut columns) = (0, 0);
    while rounds < 2 || (spent < ENOUGH_SECONDS && rounds < ROUNDS) {
        let start = cpu_time();
        let history = sample.read(1)?;
        let took = (cpu_time() - start).as_secs_f64();
        if rounds == 0 {
            peak = status_bytes("VmHWM:")?.saturating_sub(before);
            columns = history.memory();
        }
        (best, spent, rounds) = (took.min(best), spent + took, rounds + 1);
    }
    println!("{peak} {columns} {best}");
    Ok(())
}

fn measure(sample: &Sample) -> Result<Row> {
    let child =
        Command::new(std::env::current_exe()?).args([CHILD, sample.reader.name()]).arg(&sample.path).output()?;
    let (said, failed) = (String::from_utf8(child.stdout)?, String::from_utf8_lossy(&child.stderr).into_owned());
    let [peak, columns, seconds] = said.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("{} {}: {failed}", sample.workload, sample.format).into());
    };
    Ok(Row { sample: sample.clone(), peak: peak.parse()?, columns: columns.parse()?, seconds: seconds.parse()? })
}

const COLUMNS: [&str; 9] = [
    "workload",
    "format",
    "operations",
    "file_bytes_per_op",
    "peak_bytes_per_op",
    "column_bytes_per_op",
    "cpu_seconds",
    "mb_per_cpu_second",
    "million_ops_per_cpu_second",
];

impl Row {
    fn cells(&self) -> [String; 9] {
        let operations = self.sample.operations as f64;
        let each = |bytes: u64| format!("{:.1}", bytes as f64 / operations);
        [
            self.sample.workload.clone(),
            self.sample.format.into(),
            self.sample.operations.to_string(),
            each(self.sample.bytes),
            each(self.peak),
            each(self.columns),
            format!("{:.6}", self.seconds),
            format!("{:.1}", self.sample.bytes as f64 / 1e6 / self.seconds),
            format!("{:.3}", operations / 1e6 / self.seconds),
        ]
    }
}

fn table(rows: &[Row]) -> String {
    let header = COLUMNS.map(String::from);
    let lines: Vec<[String; 9]> = std::iter::once(header).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut out = String::new();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let _ = if column < 2 { write!(out, "{cell:width$}  ") } else { write!(out, "{cell:>width$}  ") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

fn tsv(rows: &[Row]) -> String {
    let mut out = format!("# {}\n{}\n", circumstances(), COLUMNS.join("\t"));
    for row in rows {
        out.push_str(&row.cells().join("\t"));
        out.push('\n');
    }
    out
}

/// Colours that those who see few colours tell apart (Okabe and Ito), in the order of formats in the legend.
const COLOURS: [(&str, RGBColor); 7] = [
    ("edn", RGBColor(213, 94, 0)),
    ("jsonl", RGBColor(0, 114, 178)),
    ("schema", RGBColor(86, 180, 233)),
    ("csv", RGBColor(0, 158, 115)),
    ("history.txt", RGBColor(230, 159, 0)),
    ("parquet", RGBColor(204, 121, 167)),
    ("arrow", RGBColor(0, 0, 0)),
];

fn plot(rows: &[Row], path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, (1200, 620)).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, panels) = root.split_vertically(50);
    title.titled("Processor time from file to columns, one thread", ("sans-serif", 24))?;
    for (panel, workload) in panels.split_evenly((1, 2)).iter().zip(["cas-register", "list-append"]) {
        plot_workload(rows, workload, panel)?;
    }
    root.present()?;
    Ok(())
}

fn plot_workload(rows: &[Row], workload: &str, panel: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
    let generated = || rows.iter().filter(|r| COLOURS.iter().any(|(f, _)| *f == r.sample.format));
    let at = |r: &Row| (r.sample.operations as f64, r.seconds);
    let lines = COLOURS.map(|(format, colour)| {
        let of = rows.iter().filter(|r| r.sample.format == format && r.sample.workload == workload);
        Line { label: format.into(), colour, points: of.map(at).collect() }
    });
    chart(panel, workload, &generated().map(at).collect::<Vec<_>>(), &lines)
}
