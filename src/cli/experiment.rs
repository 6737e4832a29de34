//! `elench run`, `revert`, `doctor`, `evidence`, `ledger`, and the switch.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::args::{EvidenceCommand, LedgerCommand, ListArgs, RevertArgs, RunArgs};
use super::{Exit, Stop};
use crate::experiment::evidence::{self as kept, MANIFEST};
use crate::experiment::hold::hold as hold_command;
use crate::experiment::injector::Readiness;
use crate::experiment::injector::doctor::{Capability, capabilities};
use crate::experiment::run::{End, Options, Whole, plan, report, run as run_scenario};
use crate::experiment::switch::{Journal, State, revert_by_hand, watch};
use crate::ledger::query::{QUERIES, Rows};
use crate::ledger::{Ledger, Table};
use crate::verdict::Verdict;

fn error(why: impl Into<String>) -> Stop {
    Stop::Error(why.into())
}

/// A run goes on also when nobody listens any more: its fault has to be taken back.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "elench: {line}");
}

/// Runs a scenario, or says what would be done.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Stop> {
    let name = args.scenario.display();
    let text = std::fs::read_to_string(&args.scenario).map_err(|e| error(format!("{name}: cannot read: {e}")))?;
    let program = std::env::current_exe().map_err(|e| error(format!("where this program lies is not known: {e}")))?;
    let home = std::path::absolute(&args.home).unwrap_or_else(|_| args.home.clone());
    let options = Options { home, program, seed: args.seed, confirm: args.confirm, tell };
    let mut out = io::stdout().lock();
    if args.dry_run {
        return match plan(&text, &options) {
            Ok((scenario, lines)) if args.json => {
                writeln!(out, "{}", json!({ "scenario": scenario, "would": lines }))?;
                Ok(Exit::Passed)
            }
            Ok((scenario, lines)) => {
                writeln!(out, "{}: the perimeter lets it pass; this would be done, and nothing was", scenario.name)?;
                lines.iter().try_for_each(|line| writeln!(out, "  {}", line.replace('\n', "\n            ")))?;
                Ok(Exit::Passed)
            }
            Err(end) => ended(&end, args, &mut out),
        };
    }
    ended(&run_scenario(&text, &options).map_err(error)?, args, &mut out)
}

fn ended(end: &End, args: &RunArgs, out: &mut impl Write) -> Result<Exit, Stop> {
    let name = args.scenario.display();
    match end {
        End::Refused(refusal) => {
            tell(&format!("{name}: {refusal}"));
            if args.json {
                writeln!(out, "{}", json!({ "refused": refusal, "class": refusal.code.class() }))?;
            }
            Ok(Exit::Refused)
        }
        End::Malformed(complaints) => {
            complaints.iter().for_each(|c| tell(&format!("{name}, {c}")));
            Ok(Exit::Bad)
        }
        End::Skipped(reason) => {
            tell(&format!("{name}: skipped, {reason}; VERDICT: {}", Verdict::InconclusiveEnv));
            if args.json {
                writeln!(out, "{}", json!({ "skipped": reason, "verdict": Verdict::InconclusiveEnv }))?;
            }
            Ok(Exit::Refused)
        }
        End::Ran(whole) => {
            // Whoever stopped reading still learns by the code.
            match shown(whole, args.json, out) {
                Ok(()) | Err(Stop::Pipe) => {}
                Err(stop) => return Err(stop),
            }
            Ok(match whole.verdict {
                _ if whole.is_stuck() => Exit::RollbackFailed,
                v if v.is_pass() => Exit::Passed,
                v if v.is_fail() => Exit::Violation,
                _ => Exit::Inconclusive,
            })
        }
    }
}

fn shown(whole: &Whole, json: bool, out: &mut impl Write) -> Result<(), Stop> {
    for ran in &whole.runs {
        match json {
            true => writeln!(out, "{}", json!(kept::manifest(&ran.dir).map_err(error)?))?,
            false => write!(out, "{}", report::summary(ran))?,
        }
    }
    let has_arms = whole.parts.iter().any(|p| p.name != whole.name);
    match (has_arms, json) {
        (true, true) => {
            writeln!(out, "{}", json!({ "scenario": whole.name, "verdict": whole.verdict, "arms": whole.parts }))?;
        }
        (true, false) => write!(out, "\n{}", report::arms(whole))?,
        (false, _) => {}
    }
    Ok(())
}

/// Takes back what is still there, all of it, whatever cannot be read or told on the way.
pub(super) fn revert(args: &RevertArgs) -> Result<Exit, Stop> {
    let journals = if args.journals.is_empty() { open_journals(&args.home) } else { args.journals.clone() };
    let mut lines = Vec::new();
    if journals.is_empty() {
        lines.push(format!("no fault is left to take back below {}", args.home.display()));
    }
    let mut exit = Exit::Passed;
    for path in journals {
        match revert_by_hand(&path) {
            Err(why) => {
                tell(&why);
                exit = if exit == Exit::Passed { Exit::Bad } else { exit };
            }
            Ok(journal) => {
                let gone = journal.state == State::Reverted;
                let word = if gone { "reverted" } else { "STILL THERE" };
                lines.push(format!("{word:<12} {} ({})", journal.undo.what, path.display()));
                let last = journal.log.last().map(|e| e.done.as_slice()).unwrap_or_default();
                lines.extend(last.iter().map(|done| format!("             {}", done.how)));
                if !gone {
                    exit = Exit::RollbackFailed;
                }
            }
        }
    }
    let mut out = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(exit)
}

/// Journals whose fault is not known to be gone: those that cannot be read are none that is known.
fn open_journals(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.join("switch")).into_iter().flatten().flatten();
    let mut open: Vec<PathBuf> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .filter(|p| Journal::read(p).map_or(true, |j| j.state != State::Reverted))
        .collect();
    open.sort();
    open
}

/// Watches over a journal.
pub(super) fn switch(journal: &Path) -> Result<Exit, Stop> {
    Ok(if watch(journal).map_err(error)? { Exit::Passed } else { Exit::RollbackFailed })
}

/// Holds a workload, and ends as it does.
pub(super) fn hold(command: &str) -> ExitCode {
    match hold_command(command) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            tell(&why);
            ExitCode::FAILURE
        }
    }
}

/// The capability matrix.
pub(super) fn doctor(args: &ListArgs) -> Result<Exit, Stop> {
    let mut out = io::stdout().lock();
    let all = capabilities();
    if args.json {
        all.iter().try_for_each(|line| writeln!(out, "{}", json!(line)))?;
        return Ok(Exit::Passed);
    }
    writeln!(out, "{:<11} {:<13} {:<52} {:<29} version", "injector", "state", "privilege", "kernel")?;
    for Capability { probe, privilege, kernel } in &all {
        let (word, how) = match &probe.state {
            Readiness::Ready => ("ready", None),
            Readiness::Missing(how) => ("missing", Some(how)),
            Readiness::Unprivileged(what) => ("unprivileged", Some(what)),
        };
        let version = probe.version.as_deref().unwrap_or("-");
        writeln!(out, "{:<11} {word:<13} {privilege:<52} {kernel:<29} {version}", probe.injector)?;
        if let Some(how) = how {
            writeln!(out, "            -> {how}")?;
        }
    }
    Ok(Exit::Passed)
}

/// Evidence of runs.
pub(super) fn evidence(command: &EvidenceCommand) -> Result<Exit, Stop> {
    let EvidenceCommand::Verify { run, home } = command;
    let dir = if Path::new(run).is_dir() { PathBuf::from(run) } else { home.join("evidence").join(run) };
    let mut wrong = kept::verify(&dir).map_err(error)?;
    let manifest = kept::manifest(&dir).map_err(error)?;
    // Whoever changes a file may change the manifest, too; the ledger knows what that was.
    let recorded = Ledger::recorded(home, Table::Runs, &manifest.run_id);
    let recorded = recorded.as_ref().and_then(|r| r.body.get("manifest_sha256")).and_then(|sum| sum.as_str());
    let sum = kept::sum_of_manifest(&dir).map_err(error)?;
    wrong.extend(recorded.filter(|r| **r != sum).map(|r| format!("{MANIFEST}: SHA-256 is {sum}, the ledger says {r}")));
    let mut out = io::stdout().lock();
    if wrong.is_empty() {
        let by = if recorded.is_some() { "the manifest is as the ledger says" } else { "the ledger does not know it" };
        let (files, verdict) = (manifest.artifacts.len(), manifest.verdict.verdict);
        writeln!(out, "{files} artifacts are as the manifest says, {by}; verdict {verdict}")?;
        return Ok(Exit::Passed);
    }
    wrong.iter().try_for_each(|line| writeln!(out, "CHANGED  {line}"))?;
    Ok(Exit::Violation)
}

/// Rows in columns; a record's body, which is a document, is only shown as JSON.
fn table(rows: &Rows, out: &mut impl Write) -> io::Result<()> {
    let shown: Vec<usize> = (0..rows.columns.len()).filter(|i| rows.columns[*i] != "body").collect();
    let head = shown.iter().map(|i| rows.columns[*i].clone()).collect();
    let lines: Vec<Vec<String>> =
        std::iter::once(head).chain(rows.rows.iter().map(|r| shown.iter().map(|i| cell(&r[*i])).collect())).collect();
    let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown.len()).map(width).collect();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".into(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
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
            if !home.join("ledger").is_dir() {
                return Err(error(format!("there is no ledger below {}: --home names another place", home.display())));
            }
            let rows = Ledger::open(home).and_then(|l| l.ask(name, arguments)).map_err(error)?;
            if *json {
                writeln!(out, "{}", json!(rows))?;
                return Ok(Exit::Passed);
            }
            table(&rows, &mut out)?;
        }
    }
    Ok(Exit::Passed)
}
