//! `elench check`.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use elench_checkers::budget::Budget;
use elench_checkers::linear::read::registers::{FailedCas, NilReads};
use elench_checkers::txn::register::Assumptions;
use elench_formats::History;
use elench_formats::write::{Target, to_file};

use clap::Parser;

use super::args::{CheckArgs, Cli, Command, FailedCasArg, JudgeArgs, NilReadsArg, ReadArgs};
use super::progress::{Reading, Working};
use super::{Exit, Stop};
use crate::check::{CheckOptions, Found, Report, Valid, check};
use crate::evidence::Anomalies;
use crate::isolation::Asked;
use crate::report;

/// Checks each history and prints its report. The worst answer is the exit code: a violation, then bad input, then
/// anything inconclusive.
pub(super) fn run(args: &CheckArgs) -> Result<Exit, Stop> {
    let mut options = options(args)?;
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).map_err(|e| Stop::Error(format!("{}: cannot write: {e}", dir.display())))?;
        if args.all_anomalies {
            options.anomalies = Some(Arc::new(Anomalies::create(&dir.join("anomalies.parquet"))?));
        }
    }
    let mut exits = Vec::with_capacity(args.histories.len());
    for name in &args.histories {
        exits.push(one(name, args, &options)?);
    }
    if let Some(table) = &options.anomalies {
        table.finish()?;
    }
    let worst = [Exit::Violation, Exit::Bad, Exit::Inconclusive].into_iter().find(|e| exits.contains(e));
    Ok(worst.unwrap_or(Exit::Passed))
}

/// The options that flags of `check` say, for those who run checkers within something else.
///
/// # Errors
/// A flag that is none, or makes no sense.
pub(crate) fn options_of(flags: &[String]) -> Result<CheckOptions, String> {
    let words =
        ["elench".to_string(), "check".to_string()].into_iter().chain(flags.iter().cloned()).chain(["-".to_string()]);
    let cli = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
    match cli.command {
        Command::Check(args) => options(&args).map_err(|stop| match stop {
            Stop::Error(why) => why,
            Stop::Pipe => String::new(),
        }),
        _ => Err("no flags of check".into()),
    }
}

fn options(args: &CheckArgs) -> Result<CheckOptions, Stop> {
    Ok(CheckOptions {
        checkers: args.checkers.clone(),
        workload: args.workload.clone(),
        k: args.k.map(|k| k.get() as usize),
        asked: Asked {
            models: args.consistency.clone(),
            anomalies: args.anomalies.clone(),
            all: args.all_anomalies,
            assumptions: Assumptions {
                commit_timestamps: args.commit_timestamps,
                wfr_keys: args.wfr_keys,
                sequential_keys: args.sequential_keys,
                linearizable_keys: args.linearizable_keys,
            },
            initial: None,
        },
        settings: args.settings.clone(),
        cross_check: args.cross_check,
        first: args.first,
        examples: args.examples,
        ..judging(&args.judging, &args.read)?
    })
}

/// How to judge, by the checkers that fit.
pub(super) fn judging(args: &JudgeArgs, read: &ReadArgs) -> Result<CheckOptions, Stop> {
    let initial = elench_formats::edn::parse(&args.initial)
        .map_err(|e| Stop::Error(format!("--initial `{}` is no EDN value: {e}", args.initial)))?;
    let mut budget = Budget::unlimited().threads(read.threads.map_or(0, usize::from));
    if let Some(time) = args.time {
        budget = budget.within(time);
    }
    if let Some(memory) = args.memory.or_else(most_of_memory) {
        budget = budget.memory(memory);
    }
    Ok(CheckOptions {
        model: args.model.clone(),
        initial,
        failed_cas: args.failed_cas.map(|f| match f {
            FailedCasArg::DidNotHappen => FailedCas::DidNotHappen,
            FailedCasArg::Observed => FailedCas::Observed,
        }),
        nil_reads: match args.nil_reads {
            None => NilReads::IfPossible,
            Some(NilReadsArg::Unset) => NilReads::Unset,
            Some(NilReadsArg::SayNothing) => NilReads::SayNothing,
        },
        budget,
        ..CheckOptions::default()
    })
}

/// Three quarters of the memory that is free now, or that the control group leaves, so that a check ends with an answer and not
/// by the system's hand; none where the system does not say.
fn most_of_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024;
    let group = |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    let left = group("memory.max").map(|most| most.saturating_sub(group("memory.current").unwrap_or(0)));
    Some(left.map_or(free, |left| left.min(free)) / 4 * 3)
}

fn one(name: &str, args: &CheckArgs, options: &CheckOptions) -> Result<Exit, Stop> {
    let history = {
        let bar = Reading::new(name);
        elench_formats::open::open(name, &args.read.options(), &|read, total| bar.tell(read, total))
    };
    let history = match history {
        Ok(history) => history,
        Err(e) => {
            eprintln!("elench: {e}");
            if args.json {
                say(&format!("{}\n", report::error_document(name, &e.to_string())))?;
            }
            return Ok(Exit::Bad);
        }
    };
    let mut result = {
        let _bar = Working::new(&format!("checking {name}"));
        check(name, &history, options)?
    };
    result.recorded = recorded_verdict(name);
    if args.json {
        say(&format!("{}\n", report::document(&result, &history)))?;
    } else {
        say(&report::human(&result, &history, args.quiet))?;
    }
    if let Some(dir) = &args.output {
        evidence(&result, &history, dir)?;
    }
    Ok(match result.valid {
        Valid::Yes => Exit::Passed,
        Valid::No => Exit::Violation,
        Valid::Unknown => Exit::Inconclusive,
    })
}

/// Prints. That nobody listens any more changes nothing about the verdict, which is also the exit code.
fn say(text: &str) -> Result<(), Stop> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// What the run's own `results.edn` says, where the history is a Jepsen store directory that has one.
fn recorded_verdict(name: &str) -> Option<String> {
    let dir = Path::new(name);
    if !dir.is_dir() {
        return None;
    }
    let results = elench_formats::jepsen::store::locate(dir).ok()?.results_edn?;
    let results = elench_formats::edn::parse_bytes(&std::fs::read(results).ok()?).ok()?;
    results.get("valid?").map(|valid| valid.to_edn())
}

/// Writes `result.json`, `report.txt` and each violation's smallest sub-history below a directory named after the history.
fn evidence(result: &Report, history: &History, dir: &Path) -> Result<(), Stop> {
    let slug: String = result.history.trim_matches(['/', '.']).replace(['/', '\\'], "_");
    let dir = dir.join(if slug == "-" { "stdin" } else { slug.as_str() });
    let cannot = |e: io::Error| Stop::Error(format!("{}: cannot write: {e}", dir.display()));
    std::fs::create_dir_all(&dir).map_err(cannot)?;
    std::fs::write(dir.join("result.json"), format!("{:#}\n", report::document(result, history))).map_err(cannot)?;
    std::fs::write(dir.join("report.txt"), report::human(result, history, false)).map_err(cannot)?;
    for finding in &result.findings {
        let Found::Linear(linear) = &finding.result else { continue };
        for (i, violation) in linear.outcome.violations().iter().enumerate() {
            let rows: Vec<usize> = report::minimal(violation).iter().filter_map(|id| history.row_of(id.0)).collect();
            if !rows.is_empty() {
                let file = dir.join(format!("{}-{}.edn", violation.kind, i + 1));
                to_file(&history.select(rows), Target::Edn, &file)?;
            }
        }
    }
    Ok(())
}
