//! What does linearizability cost in processor time and memory, and what makes it dear?
//!
//! One register, by operations, clients, the share of operations with unknown outcomes, and whether written values recur:
//! unique values are decided by a monitor, and by the search alone for comparison. Each case runs in a process of its own,
//! which generates its history, notes its memory, checks, and says what that took beyond it. One thread. What is not decided within
//! twenty seconds by the wall clock and 2 GiB is shown as such, and larger ones of its kind are not tried.
//!
//! Prints a table, and writes it to `results/linear.tsv` and as a plot to `results/linear.svg`. Linux only.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use elench_benches::plot::{Line, chart};
use elench_benches::process::{circumstances, reset_peak, status_bytes};
use elench_benches::{cpu_time, history, large, measuring};
use elench_checkers::Budget;
use elench_checkers::linear::read::registers::{Options, Registers, registers};
use elench_checkers::linear::{Evidence, check_keys};
use elench_generate::{GenOptions, Values, Workload};
use plotters::prelude::*;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The first argument of a child.
const CHILD: &str = "--measure";
const SECONDS: u64 = 20;
const MEMORY: u64 = 2 << 30;

/// A kind of history, and how it is decided.
#[derive(Clone, Copy, Debug)]
struct Kind {
    clients: u32,
    info_per_mille: u32,
    /// Values that recur; 0: each is written once.
    values: u32,
    search_only: bool,
}

const KINDS: [Kind; 10] = [
    Kind { clients: 5, info_per_mille: 0, values: 0, search_only: false },
    Kind { clients: 20, info_per_mille: 10, values: 0, search_only: false },
    Kind { clients: 100, info_per_mille: 10, values: 0, search_only: false },
    Kind { clients: 5, info_per_mille: 0, values: 0, search_only: true },
    Kind { clients: 20, info_per_mille: 0, values: 0, search_only: true },
    Kind { clients: 20, info_per_mille: 10, values: 0, search_only: true },
    Kind { clients: 5, info_per_mille: 0, values: 5, search_only: true },
    Kind { clients: 5, info_per_mille: 10, values: 5, search_only: true },
    Kind { clients: 20, info_per_mille: 0, values: 5, search_only: true },
    Kind { clients: 20, info_per_mille: 10, values: 5, search_only: true },
];

struct Row {
    kind: Kind,
    ops: u64,
    /// Processor seconds and bytes; none when it was not decided.
    cost: Option<(f64, u64)>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, kind, ops] = arguments.as_slice()
        && child == CHILD
    {
        return measure_here(KINDS[kind.parse::<usize>()?], ops.parse()?);
    }
    let mut sizes = if measuring() { vec![1_000, 10_000, 100_000, 1_000_000] } else { vec![100] };
    sizes.extend(large().then_some(10_000_000));
    let mut rows = Vec::new();
    for (i, kind) in KINDS.iter().enumerate() {
        for &ops in &sizes {
            let row = Row { kind: *kind, ops, cost: measure(i, ops)? };
            let is_decided = row.cost.is_some();
            print!("{}", row.line());
            rows.push(row);
            if !is_decided {
                break;
            }
        }
    }
    if measuring() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let lines: String = rows.iter().map(Row::line).collect();
        let header = "decided by\tclients\tinfo %\tvalues\toperations\tCPU seconds\tpeak MB\n";
        std::fs::write(results.join("linear.tsv"), format!("# {}\n{header}{lines}", circumstances()))?;
        plot(&rows, &results.join("linear.svg"))?;
    }
    Ok(())
}

fn measure_here(kind: Kind, ops: u64) -> Result<()> {
    let values = if kind.values == 0 { Values::Unique } else { Values::Domain(kind.values) };
    let info = f64::from(kind.info_per_mille) / 1000.0;
    let options = GenOptions { ops, clients: kind.clients, info, values, ..GenOptions::new(Workload::Register) };
    let Registers { problems, .. } = registers(&history(&options)?, &Options::default()).map_err(|m| m.why)?;
    let budget = Budget::unlimited().threads(1).within(Duration::from_secs(SECONDS)).memory(MEMORY);
    let evidence = Evidence { search_only: kind.search_only, ..Evidence::default() };
    reset_peak()?;
    let (held, start) = (status_bytes("VmRSS:")?, cpu_time());
    let outcome = check_keys(&problems, &budget, &evidence);
    let took = (cpu_time() - start).as_secs_f64();
    assert!(!outcome.is_invalid(), "a history that is linearizable by construction was refused");
    let peak = status_bytes("VmHWM:")?.saturating_sub(held);
    println!("{} {took} {peak}", u8::from(outcome.is_valid()));
    Ok(())
}

fn measure(kind: usize, ops: u64) -> Result<Option<(f64, u64)>> {
    let child = Command::new(std::env::current_exe()?).args([CHILD, &kind.to_string(), &ops.to_string()]).output()?;
    let said = String::from_utf8(child.stdout)?;
    match said.split_whitespace().collect::<Vec<_>>()[..] {
        ["1", seconds, peak] => Ok(Some((seconds.parse()?, peak.parse()?))),
        ["0", ..] => Ok(None),
        _ => Err(format!("{:?}, {ops} operations: {}", KINDS[kind], String::from_utf8_lossy(&child.stderr)).into()),
    }
}

impl Kind {
    fn values(self) -> String {
        if self.values == 0 { "unique".into() } else { format!("{} recurring", self.values) }
    }

    fn name(self) -> String {
        let by = if self.search_only { "search" } else { "monitor" };
        format!(
            "{by}, {} clients, {}% info, {} values",
            self.clients,
            f64::from(self.info_per_mille) / 10.0,
            self.values()
        )
    }
}

impl Row {
    fn line(&self) -> String {
        let Kind { clients, info_per_mille, search_only, .. } = self.kind;
        let cost = match self.cost {
            Some((seconds, peak)) => format!("{seconds:.4}\t{:.1}", peak as f64 / 1e6),
            None => format!("not within {SECONDS}\t-"),
        };
        let by = if search_only { "search" } else { "monitor" };
        let (info, values) = (f64::from(info_per_mille) / 10.0, self.kind.values());
        format!("{by}\t{clients}\t{info}\t{values}\t{}\t{cost}\n", self.ops)
    }
}

/// Colours that those who see few colours tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 5] =
    [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(204, 121, 167), RGBColor(0, 0, 0)];

fn plot(rows: &[Row], path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, (1200, 620)).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, panels) = root.split_vertically(50);
    title.titled("Processor time to decide the linearizability of one register, one thread", ("sans-serif", 24))?;
    let at = |r: &Row| r.cost.map(|(seconds, _)| (r.ops as f64, seconds));
    let within: Vec<(f64, f64)> = rows.iter().filter_map(at).collect();
    for (panel, recurs) in panels.split_evenly((1, 2)).iter().zip([false, true]) {
        let mut lines: Vec<Line> = Vec::new();
        for row in rows.iter().filter(|r| (r.kind.values > 0) == recurs) {
            let label = row.kind.name();
            if lines.last().is_none_or(|line| line.label != label) {
                lines.push(Line { label, colour: COLOURS[lines.len() % COLOURS.len()], points: Vec::new() });
            }
            if let (Some(line), Some(at)) = (lines.last_mut(), at(row)) {
                line.points.push(at);
            }
        }
        let caption = if recurs { "five values that recur" } else { "unique values" };
        chart(panel, caption, &within, &lines)?;
    }
    root.present()?;
    Ok(())
}
