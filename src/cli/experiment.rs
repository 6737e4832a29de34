//! `elench run`, `revert`, `doctor`, `evidence`, `ledger`, and the switch.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::{EvidenceCommand, LedgerCommand, ListArgs, RevertArgs, RunArgs};
use super::{Exit, Stop};
use crate::experiment::evidence as kept;
use crate::experiment::injector::Readiness;
use crate::experiment::injector::doctor::probes;
use crate::experiment::run::{End, Options, Ran, plan, report, run as run_scenario};
use crate::experiment::switch::{Journal, State, revert_by_hand, watch};
use crate::ledger::Ledger;
use crate::ledger::query::QUERIES;
use crate::verdict::Verdict;

fn error(why: impl Into<String>) -> Stop {
    Stop::Error(why.into())
}

/// Runs a scenario, or says what would be done.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Stop> {
    let name = args.scenario.display();
    let text = std::fs::read_to_string(&args.scenario).map_err(|e| error(format!("{name}: cannot read: {e}")))?;
    let program = std::env::current_exe().map_err(|e| error(format!("where this program lies is not known: {e}")))?;
    let home = std::path::absolute(&args.home).unwrap_or_else(|_| args.home.clone());
    let options =
        Options { home, program, seed: args.seed, confirm: args.confirm, tell: |line| eprintln!("elench: {line}") };
    if args.dry_run {
        return match plan(&text, &options) {
            Ok((scenario, lines)) => {
                println!("{}: the perimeter lets it pass; this would be done", scenario.name);
                lines.iter().for_each(|line| println!("  {line}"));
                Ok(Exit::Passed)
            }
            Err(end) => ended(&end, args),
        };
    }
    ended(&run_scenario(&text, &options).map_err(error)?, args)
}

fn ended(end: &End, args: &RunArgs) -> Result<Exit, Stop> {
    let name = args.scenario.display();
    match end {
        End::Refused(refusal) => {
            if args.json {
                println!("{}", json!({ "refused": refusal, "class": refusal.code.class() }));
            }
            eprintln!("elench: {name}: {refusal}");
            Ok(Exit::Refused)
        }
        End::Malformed(complaints) => {
            complaints.iter().for_each(|c| eprintln!("elench: {name}, {c}"));
            Ok(Exit::Bad)
        }
        End::Skipped(reason) => {
            if args.json {
                println!("{}", json!({ "skipped": reason, "verdict": Verdict::InconclusiveEnv }));
            }
            eprintln!("elench: {name}: skipped, {reason}; VERDICT: {}", Verdict::InconclusiveEnv);
            Ok(Exit::Refused)
        }
        End::Ran(runs) => {
            for ran in runs {
                match args.json {
                    true => println!("{}", json!(kept::manifest(&ran.dir).map_err(error)?)),
                    false => print!("{}", report::summary(ran)),
                }
            }
            Ok(runs.iter().map(exit_of).max_by_key(|e| weight(*e)).unwrap_or(Exit::Inconclusive))
        }
    }
}

/// Of several seeds the worst counts, and where none is bad the last, which met the highest tier.
fn weight(exit: Exit) -> u8 {
    match exit {
        Exit::RollbackFailed => 3,
        Exit::Violation => 2,
        Exit::Inconclusive => 1,
        _ => 0,
    }
}

fn exit_of(ran: &Ran) -> Exit {
    let stuck = ran.rollback.as_ref().is_some_and(|r| !r.gone);
    match ran.verdict.verdict {
        _ if stuck => Exit::RollbackFailed,
        v if v.is_pass() => Exit::Passed,
        v if v.is_fail() => Exit::Violation,
        _ => Exit::Inconclusive,
    }
}

/// Takes back what is still there.
pub(super) fn revert(args: &RevertArgs) -> Result<Exit, Stop> {
    let journals = if args.journals.is_empty() { open_journals(&args.home) } else { args.journals.clone() };
    if journals.is_empty() {
        println!("no fault is left to take back below {}", args.home.display());
    }
    let mut exit = Exit::Passed;
    for path in journals {
        let journal = revert_by_hand(&path).map_err(error)?;
        let word = if journal.state == State::Reverted { "reverted" } else { "STILL THERE" };
        println!("{word:<12} {} ({})", journal.undo.what, path.display());
        for done in journal.log.last().map(|e| e.done.as_slice()).unwrap_or_default() {
            println!("             {}", done.how);
        }
        if journal.state != State::Reverted {
            exit = Exit::RollbackFailed;
        }
    }
    Ok(exit)
}

/// Journals whose fault is not known to be gone.
fn open_journals(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.join("switch")).into_iter().flatten().flatten();
    let mut open: Vec<PathBuf> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .filter(|p| Journal::read(p).is_ok_and(|j| j.state != State::Reverted))
        .collect();
    open.sort();
    open
}

/// Watches over a journal.
pub(super) fn switch(journal: &Path) -> Result<Exit, Stop> {
    Ok(if watch(journal).map_err(error)? { Exit::Passed } else { Exit::RollbackFailed })
}

/// The capability matrix.
pub(super) fn doctor(args: &ListArgs) -> Result<Exit, Stop> {
    let mut out = io::stdout().lock();
    for probe in probes() {
        if args.json {
            writeln!(out, "{}", json!(probe))?;
            continue;
        }
        let (word, how) = match &probe.state {
            Readiness::Ready => ("ready", String::new()),
            Readiness::Missing(how) => ("missing", format!(": {how}")),
            Readiness::Unprivileged(what) => ("unprivileged", format!(": {what}")),
        };
        let version = probe.version.as_ref().map_or(String::new(), |v| format!(" ({v})"));
        writeln!(out, "{:<12} {word}{version}{how}", probe.injector)?;
    }
    Ok(Exit::Passed)
}

/// Evidence of runs.
pub(super) fn evidence(command: &EvidenceCommand) -> Result<Exit, Stop> {
    let EvidenceCommand::Verify { run, home } = command;
    let dir = if Path::new(run).is_dir() { PathBuf::from(run) } else { home.join("evidence").join(run) };
    let wrong = kept::verify(&dir).map_err(error)?;
    let manifest = kept::manifest(&dir).map_err(error)?;
    if wrong.is_empty() {
        println!(
            "{} artifacts are as the manifest says; verdict {}",
            manifest.artifacts.len(),
            manifest.verdict.verdict
        );
        return Ok(Exit::Passed);
    }
    wrong.iter().for_each(|line| println!("CHANGED  {line}"));
    Ok(Exit::Violation)
}

/// The ledger.
pub(super) fn ledger(command: &LedgerCommand) -> Result<Exit, Stop> {
    let mut out = io::stdout().lock();
    match command {
        LedgerCommand::Rebuild { home } => {
            let records = Ledger::open(home).and_then(|mut l| l.rebuild()).map_err(error)?;
            writeln!(out, "{records} records")?;
        }
        LedgerCommand::Query { name: None, .. } => {
            for query in &QUERIES {
                writeln!(out, "{:<16} {:<12} {}", query.name, query.arguments.join(" "), query.about)?;
            }
        }
        LedgerCommand::Query { name: Some(name), arguments, home, json } => {
            let rows = Ledger::open(home).and_then(|l| l.ask(name, arguments)).map_err(error)?;
            if *json {
                writeln!(out, "{}", json!(rows))?;
                return Ok(Exit::Passed);
            }
            writeln!(out, "{}", rows.columns.join("\t"))?;
            for row in rows.rows {
                let cells: Vec<String> =
                    row.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), String::from)).collect();
                writeln!(out, "{}", cells.join("\t"))?;
            }
        }
    }
    Ok(Exit::Passed)
}
