//! What a run is worth: its history is checked, facts are gathered, both audits answered, and everything written down.

use std::path::Path;
use std::time::Duration;

use elench_formats::History;
use elench_formats::open::{Format, OpenOptions, open};
use elench_formats::write::{Target, to_file};
use serde_json::{Value as Json, json};

use super::landing::{self, since};
use super::load::Ended;
use super::{Ran, Stage, again, assertion, page, record, report};
use crate::check::{CheckOptions, Found, Report, Valid, check};
use crate::experiment::evidence::Evidence;
use crate::experiment::scenario::{Checker, Scenario};
use crate::verdict::audit::{Answer, Audited, RedFlag, WeakOracle};
use crate::verdict::blame::{Ground, Question, blame, bug_type, severity};
use crate::verdict::{Budget, Checking, Facts, Landing, Rerun, classify};
use crate::verify::Holds;
use crate::weak::weaknesses;

/// What was checked.
struct Checked {
    history: Option<History>,
    reports: Vec<Report>,
    unchecked: Option<String>,
}

/// The end of a run.
pub(super) fn conclude(
    stage: Stage<'_>,
    ended: Ended,
    mut evidence: Evidence,
    (seed, seeds): (u64, u64),
    rerun_of: Option<&str>,
) -> Result<Ran, String> {
    (stage.options.tell)("checking the history");
    let scenario = stage.scenario;
    let checked = check_all(scenario, &stage.history, evidence.dir());
    let landing = match (&scenario.fault, stage.injected) {
        (None, _) => Landing::Absent("no fault was planned".into()),
        (Some(_), false) => Landing::Absent("nothing was injected".into()),
        (Some(_), true) => landing::verdict(&stage.shown),
    };
    let mut facts = facts(&stage, &ended, &checked, landing.clone(), seeds);
    let mut ran = Ran {
        run_id: stage.run_id.clone(),
        scenario: scenario.clone(),
        dir: evidence.dir().to_path_buf(),
        phases: stage.phases.clone(),
        recovered_in_ms: stage.recovered_in_ms,
        shown: stage.shown,
        landing,
        rollback: stage.rollback,
        report: None,
        unchecked: checked.unchecked.clone(),
        verdict: classify(&facts),
        labels: None,
        aborted: stage.aborted.clone(),
    };
    if ran.verdict.verdict.is_fail() && rerun_of.is_none() {
        facts.rerun = again(&ran, stage.options, seed);
        ran.verdict = classify(&facts);
    }
    let stuck = ran.rollback.as_ref().filter(|r| !r.gone).and_then(|r| r.journal.clone());
    if let Some(journal) = &stuck {
        // What cannot be taken back is a failure of the experiment, whatever the clients saw.
        ran.verdict.verdict = crate::verdict::Verdict::FailNondeterministic;
        ran.verdict
            .because
            .push(format!("ERR_ROLLBACK_FAILED: the fault is still there; its journal is {}", journal.display()));
        ran.verdict.because.extend(page(&stage.options.home, journal));
    }
    let grounds = grounds(&checked, ended.seconds);
    if ran.verdict.verdict.is_fail() {
        let class = scenario.fault.as_ref().map_or(crate::verdict::blame::FaultClass::None, |f| f.class());
        let safety = facts.violations > 0;
        let recovered = ran.phases[2].held.as_ref().and_then(|j| j.holds);
        ran.labels = Some((blame(&grounds), bug_type(class, safety), severity(safety, recovered, true)));
    }
    if let Some(fault) = &scenario.fault {
        evidence.json("injector", &format!("{}-observed.json", fault.name()), &stage.observed)?;
        if let Some((name, trace)) = &stage.trace {
            evidence.json("injector", name, trace)?;
        }
    }
    write(&mut evidence, &stage.history, &ran, &facts, &grounds, &checked, &ended)?;
    ran.report = checked.reports.into_iter().next();
    let environment = environment(seed);
    let steady = match ran.steady_state_held() {
        Some(true) => "held",
        Some(false) => "VIOLATED",
        None => "not to be told",
    };
    let assertions = vec![
        assertion("steady state", ran.steady_state_held(), scenario.steady_state.clone()),
        assertion(
            "fault landed",
            Some(matches!(ran.landing, Landing::Proven(_))).filter(|_| scenario.fault.is_some()),
            format!("{:?}", ran.landing),
        ),
        assertion("fault reverted", ran.rollback.as_ref().map(|r| r.gone), "as observed"),
        assertion(
            "no violation",
            Some(facts.violations == 0).filter(|_| facts.checking == Checking::All),
            format!("{} violations", facts.violations),
        ),
    ];
    evidence.write("findings", "findings.md", report::findings(&ran, &grounds).as_bytes())?;
    evidence.seal(&scenario.name, ran.verdict.clone(), steady, assertions, environment)?;
    record(&stage.options.home, &ran)?;
    Ok(ran)
}

/// Reads the history as it is, strictly, keeps it in columns, and runs every checker over it.
fn check_all(scenario: &Scenario, path: &Path, dir: &Path) -> Checked {
    let mut out = Checked { history: None, reports: Vec::new(), unchecked: None };
    let format = scenario.history.format.as_deref().and_then(Format::from_name);
    let options = OpenOptions { format, ..OpenOptions::default() };
    let history = match open(&path.to_string_lossy(), &options, &|_, _| {}) {
        Ok(history) => history,
        Err(e) => {
            out.unchecked = Some(format!("the history cannot be read: {e}"));
            return out;
        }
    };
    if let Err(e) = to_file(&history, Target::Parquet, &dir.join("history.parquet")) {
        out.unchecked = Some(format!("the history cannot be kept: {e}"));
    }
    for checker in &scenario.checkers {
        match options_of(checker).and_then(|o| check("history.parquet", &history, &o).map_err(|e| e.to_string())) {
            Ok(report) => out.reports.push(report),
            Err(why) => out.unchecked = Some(format!("checker {}: {why}", checker.name)),
        }
    }
    if scenario.checkers.is_empty() {
        out.unchecked = Some("no checker is declared".into());
    }
    out.history = Some(history);
    out
}

/// Flags of `elench check`, as a scenario gives them.
fn options_of(checker: &Checker) -> Result<CheckOptions, String> {
    let mut flags = vec!["--checker".to_string(), checker.name.clone()];
    for (name, value) in &checker.options {
        let flag = format!("--{}", name.replace('_', "-"));
        match value.as_str() {
            "true" => flags.push(flag),
            "false" => {}
            _ => flags.extend([flag, value.clone()]),
        }
    }
    crate::cli::check::options_of(&flags)
}

fn violations(report: &Report) -> u64 {
    let of = |found: &Found| match found {
        Found::Linear(l) => l.outcome.violations().len() as u64,
        Found::Isolation(i) if i.valid.0 == Valid::No => i.listed().map(|(_, f)| f.count).sum::<u64>().max(1),
        Found::Findings(f) => f.violations().map(|(_, k)| k.count).sum(),
        _ => 0,
    };
    report.findings.iter().filter(|f| matches!(f.valid(), Some((Valid::No, _)))).map(|f| of(&f.result)).sum()
}

/// Operations that the checkers of a report consumed: the most that one of them did.
fn consumed(report: &Report) -> u64 {
    let of = |found: &Found| match found {
        Found::Linear(l) => l.outcome.coverage().ops_consumed() + l.case.left_out.ops_consumed(),
        Found::Isolation(i) => i.result.coverage.ops_consumed(),
        Found::Findings(f) => f.coverage.ops_consumed(),
        _ => 0,
    };
    report.findings.iter().map(|f| of(&f.result)).max().unwrap_or(0)
}

fn checking(checked: &Checked) -> Checking {
    if let Some(why) = &checked.unchecked {
        return match checked.reports.is_empty() {
            true => Checking::DidNotRun(why.clone()),
            false => Checking::Part(why.clone()),
        };
    }
    let unknown = checked.reports.iter().find(|r| r.valid == Valid::Unknown);
    let decided = checked.reports.iter().any(|r| r.valid != Valid::Unknown);
    match unknown {
        None => Checking::All,
        Some(report) => {
            let why = report.why.clone().unwrap_or_else(|| "unknown".into());
            let some = report
                .findings
                .iter()
                .any(|f| matches!(&f.result, Found::Linear(l) if l.outcome.coverage().keys_decided > 0));
            if decided || some { Checking::Part(why) } else { Checking::DecidedNothing(why) }
        }
    }
}

fn facts(stage: &Stage<'_>, ended: &Ended, checked: &Checked, landing: Landing, seeds: u64) -> Facts {
    let ops = checked.history.as_ref().map_or(0, |h| h.counts().iter().sum());
    let landed = u64::from(matches!(landing, Landing::Proven(_)));
    let given = Budget {
        duration_sec: Some(ended.seconds.round() as u64),
        ops: Some(ops),
        faults: Some(landed),
        seeds: Some(seeds),
    };
    let weak = checked.history.as_ref().and_then(|h| {
        let list = weaknesses(h);
        let counts = list.iter().find(|w| w.field != "node_seen");
        counts.map(|w| format!("{}: {} ({} operations, first: op {})", w.field, w.what, w.count, w.first))
    });
    Facts {
        reached: true,
        missing: None,
        violations: checked.reports.iter().map(violations).sum(),
        rerun: Rerun::NotMade("no re-run was asked for (--confirm N)".into()),
        fault_planned: stage.scenario.fault.is_some(),
        landing: landing.clone(),
        checking: checking(checked),
        weak,
        budgets: stage.scenario.budgets,
        given,
        red_flags: red_flags(stage, ended, checked, &landing, ops),
        weak_oracle: weak_oracle(stage, checked, ops),
    }
}

fn answer<T>(item: T, so: Option<bool>, looked_at: impl Into<String>) -> Audited<T> {
    let answer = match so {
        Some(true) => Answer::Yes,
        Some(false) => Answer::No,
        None => Answer::NotApplicable,
    };
    Audited { item, answer, looked_at: looked_at.into() }
}

fn red_flags(
    stage: &Stage<'_>,
    ended: &Ended,
    checked: &Checked,
    landing: &Landing,
    ops: u64,
) -> Vec<Audited<RedFlag>> {
    let scenario = stage.scenario;
    let wanted = Duration::from_secs(scenario.workload.duration_sec).as_secs_f64();
    let rate = scenario.workload.rate.map(|r| (ops as f64 / ended.seconds.max(0.001), r));
    let too_small = ops == 0 || rate.is_some_and(|(had, want)| had < want / 2.0) || ended.trouble.is_some();
    let counted: u64 = checked.reports.iter().map(consumed).max().unwrap_or(0);
    let fault = scenario.fault.is_some();
    let proven = matches!(landing, Landing::Proven(_));
    let logs = panics(&scenario.logs);
    let recovered = stage.phases[2].held.as_ref().and_then(|j| j.holds);
    let limited = scenario.workload.most_ops.is_some_and(|most| ops >= most);
    vec![
        answer(
            RedFlag::LoadTooSmall,
            Some(too_small),
            format!(
                "{ops} operations in {:.1} s{}{}",
                ended.seconds,
                rate.map_or(String::new(), |(h, w)| format!(", {h:.0} of {w:.0} a second")),
                ended.trouble.as_ref().map_or(String::new(), |t| format!("; {t}"))
            ),
        ),
        answer(RedFlag::OperationsNotConsumed, Some(counted < ops), format!("{counted} of {ops} consumed")),
        answer(
            RedFlag::OneSidedProof,
            fault.then_some(matches!(landing, Landing::Ambiguous(_))),
            format!("{landing:?}"),
        ),
        answer(RedFlag::FaultDidNothing, fault.then_some(!proven), format!("{landing:?}")),
        answer(
            RedFlag::WallClock,
            Some(
                stage.scenario.workload.command.is_some()
                    && checked.history.as_ref().is_some_and(|h| !h.meta().real_time),
            ),
            if scenario.workload.command.is_some() {
                "the order that the workload recorded"
            } else {
                "the recorder's monotonic clock and counter"
            },
        ),
        answer(
            RedFlag::TooShort,
            Some(!limited && ended.seconds + 1.0 < wanted),
            format!("{:.1} of {wanted:.0} s", ended.seconds),
        ),
        answer(
            RedFlag::SwallowedErrors,
            logs.as_ref().map(|found| !found.is_empty()),
            logs.map_or("no logs are named".into(), |found| {
                if found.is_empty() { "no panic in the logs".into() } else { found }
            }),
        ),
        answer(
            RedFlag::NotRecovered,
            fault.then_some(recovered != Some(true)),
            format!(
                "after the rollback the steady state {}",
                match recovered {
                    Some(true) => "holds",
                    Some(false) => "is violated",
                    None => "was not measured",
                }
            ),
        ),
        answer(RedFlag::UnlikeBaseline, Some(false), "before, during and after come from one recording, by one clock"),
        answer(RedFlag::NotReplicated, None, "the claim is about every run, not about a share of them"),
    ]
}

/// Lines of logs that tell of panics and internal errors; `None` where no logs are named.
fn panics(logs: &[String]) -> Option<String> {
    if logs.is_empty() {
        return None;
    }
    let signs =
        ["panic", "PANIC", "FATAL", "internal error", "Assertion", "assertion failed", "segfault", "stack overflow"];
    let found = logs.iter().find_map(|log| {
        let text = since(log, 0).ok()?;
        text.lines()
            .find(|l| signs.iter().any(|s| l.contains(s)))
            .map(|l| format!("{log}: {}", l.chars().take(200).collect::<String>()))
    });
    Some(found.unwrap_or_default())
}

fn weak_oracle(stage: &Stage<'_>, checked: &Checked, ops: u64) -> Vec<Audited<WeakOracle>> {
    let scenario = stage.scenario;
    let judged = checked.reports.iter().any(|r| r.findings.iter().any(|f| f.checker.judges));
    let names: Vec<&str> = scenario.checkers.iter().map(|c| c.name.as_str()).collect();
    let by = if judged {
        format!("checkers over the whole history: {}", names.join(", "))
    } else {
        "no checker judged".into()
    };
    let final_only = judged && names.iter().all(|n| matches!(*n, "final-state" | "no-lost-ack" | "set" | "reconcile"));
    let driver = scenario.workload.driver.is_some();
    let class = scenario.fault.as_ref().map(|f| f.class());
    let partition = class == Some(crate::verdict::blame::FaultClass::Partition);
    let failover =
        matches!(class, Some(crate::verdict::blame::FaultClass::Crash | crate::verdict::blame::FaultClass::Pause));
    let budgeted = scenario.budgets.hardening.is_some();
    let told = |what: &str| {
        if budgeted {
            format!("{what}; the hardening budget of the scenario says how much is enough")
        } else {
            format!("{what}; no hardening budget says how much is enough")
        }
    };
    // How many faults, or which, are enough is the scenario's to say; what it does not say, nobody has checked.
    let counted = scenario.budgets.hardening.is_some_and(|b| b.faults.is_some());
    let stated = |item, applies: bool, what: &str| {
        let answered =
            if applies && !counted { Answer::Unchecked } else { answer(item, applies.then_some(false), "").answer };
        Audited { item, answer: answered, looked_at: told(what) }
    };
    let own = |item, no: &str| match driver {
        true => answer(item, Some(false), no),
        false => Audited {
            item,
            answer: Answer::Unchecked,
            looked_at: "the workload is a command, and nobody looked into it".into(),
        },
    };
    let reads = checked.history.as_ref().is_some_and(|h| {
        h.clients().any(|op| op.f().is_some_and(elench_formats::history::is_read) || op.txn().is_some())
    });
    vec![
        answer(WeakOracle::FinalState, Some(final_only && !reads), by.clone()),
        answer(WeakOracle::Logs, Some(!judged), by.clone()),
        answer(WeakOracle::HealthChecks, Some(!judged), by.clone()),
        stated(WeakOracle::SingleFailover, failover, &format!("{} fault of this kind", scenario.schedule.times)),
        answer(WeakOracle::NoErrorMetrics, Some(!judged), by),
        answer(WeakOracle::ShortRun, Some(!budgeted && ops < 100), told(&format!("{ops} operations"))),
        stated(WeakOracle::SymmetricPartitions, partition, "one partition, as the scenario declares it"),
        own(WeakOracle::HiddenRetries, "the built-in drivers never retry"),
        own(WeakOracle::WallClockTimestamps, "order is by event index, times by one monotonic clock"),
        answer(WeakOracle::OneTopology, None, "the claim is about this topology"),
        answer(WeakOracle::FewSeeds, None, "the claim is about every run, not about a share of them"),
    ]
}

/// What a machine can find out by itself about who is to blame.
fn grounds(checked: &Checked, seconds: f64) -> Vec<Ground> {
    let ground = |question, answer, looked_at: &str| Ground { question, answer, looked_at: looked_at.to_string() };
    let mut out = Vec::new();
    let verified = checked.reports.first().zip(checked.history.as_ref()).and_then(|(report, history)| {
        let document = report::document_of(report, history);
        crate::verify::verify(&document, history).ok()
    });
    let holds = verified.and_then(|all| {
        let of = |wanted: fn(&Holds) -> bool| all.iter().any(|v| wanted(&v.holds));
        if of(|h| matches!(h, Holds::No(_))) { Some(false) } else { of(|h| *h == Holds::Yes).then_some(true) }
    });
    out.push(ground(Question::CertificateHolds, holds, "the violation's certificate, by `elench verify`"));
    let clean = checked.history.as_ref().map(|h| h.meta().repairs.is_empty() && h.meta().doubts.is_empty());
    out.push(ground(Question::HistoryWellFormed, clean, "the recording, read strictly"));
    let steady = checked.history.as_ref().map(|h| {
        let span = crate::report::span(h).unwrap_or(0) as f64 / 1e9;
        span <= seconds + 5.0
    });
    out.push(ground(Question::HostsSteady, steady, "the span of the recording against the run's own monotonic clock"));
    out
}

fn environment(seed: u64) -> Json {
    let read = |path: &str| std::fs::read_to_string(path).map(|t| t.trim().to_string()).unwrap_or_default();
    json!({
        "elench": env!("CARGO_PKG_VERSION"),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "host": read("/proc/sys/kernel/hostname"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "command": std::env::args().collect::<Vec<_>>(),
        "seed": seed,
    })
}

fn write(
    evidence: &mut Evidence,
    raw: &Path,
    ran: &Ran,
    facts: &Facts,
    grounds: &[Ground],
    checked: &Checked,
    ended: &Ended,
) -> Result<(), String> {
    for (phase, name) in ran.phases.iter().zip(["before", "during", "after"]) {
        evidence.json("steady-state", &format!("steady-state-{name}.json"), phase)?;
    }
    evidence.json("landing", "landing.json", &json!({ "verdict": ran.landing, "signals": ran.shown }))?;
    if let Some(rollback) = &ran.rollback {
        evidence.write("rollback", "rollback.log", format!("{}\n", rollback.log.join("\n")).as_bytes())?;
    }
    if let Some(history) = &checked.history {
        let documents: Vec<Json> = checked.reports.iter().map(|r| report::document_of(r, history)).collect();
        evidence.json("check", "check.json", &documents)?;
        for (i, report) in checked.reports.iter().enumerate() {
            evidence.write(
                "check",
                &format!("check-{}.txt", i + 1),
                crate::report::human(report, history, false).as_bytes(),
            )?;
            reduce(evidence, report, history)?;
        }
    }
    evidence.json("facts", "facts.json", facts)?;
    evidence.json("blame", "grounds.json", &grounds)?;
    evidence.json("workload", "workload.json", ended)?;
    if evidence.dir().join("history.parquet").exists() {
        evidence.list("history", "history.parquet")?;
    }
    if raw.parent() == Some(evidence.dir()) && raw.exists() {
        let name = raw.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        evidence.list("history", &name)?;
    } else if raw.exists() {
        evidence.adopt("history", "history.raw", raw)?;
    }
    if evidence.dir().join("workload.log").exists() {
        evidence.list("workload", "workload.log")?;
    }
    Ok(())
}

/// The smallest part of a history that still fails, where the checker found one.
fn reduce(evidence: &mut Evidence, report: &Report, history: &History) -> Result<(), String> {
    for finding in &report.findings {
        let Found::Linear(linear) = &finding.result else { continue };
        for violation in linear.outcome.violations().iter().take(1) {
            let rows: Vec<usize> =
                crate::report::minimal(violation).iter().filter_map(|id| history.row_of(id.0)).collect();
            if !rows.is_empty() {
                let path = evidence.dir().join("reduced.edn");
                to_file(&history.select(rows), Target::Edn, &path).map_err(|e| e.to_string())?;
                evidence.list("reduction", "reduced.edn")?;
            }
        }
    }
    Ok(())
}
