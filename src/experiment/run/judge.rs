//! What a run is worth: its history is checked, facts are gathered, both audits answered, and everything written down.

use std::path::Path;
use std::time::Duration;

use elench_checkers::Budget as Budgeted;
use elench_checkers::outcome::Method;
use elench_checkers::weak::weaknesses;
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::open::{Format, OpenOptions, open};
use elench_formats::write::{Target, to_file};
use elench_formats::{History, Value};
use elench_generate::{GenOptions, Workload, generate};
use serde_json::{Value as Json, json};

use super::audit::{Looked, red_flags, topology, weak_oracle};
use super::load::Ended;
use super::reduce::{self, Reduced, kinds};
use super::stage::{Clocks, Stage};
use super::{Options, Ran, landing, once, page, promised, record, report};
use crate::check::{CheckOptions, Found, Report, Valid, check};
use crate::experiment::evidence::{Assertion, Evidence};
use crate::experiment::scenario::{Checker, Scenario, Schedule};
use crate::verdict::blame::{FaultClass, Ground, Question, blame, bug_type, severity};
use crate::verdict::{Budget, Checking, Facts, Landing, Rerun, Verdict, classify};
use crate::verify::Holds;

/// For how long a second way of checking may take.
const SECOND: Duration = Duration::from_secs(20);

/// What was checked.
pub(super) struct Checked {
    pub(super) history: Option<History>,
    pub(super) reports: Vec<Report>,
    /// What each of these was asked for.
    asked: Vec<CheckOptions>,
    unchecked: Option<String>,
}

/// The end of a run.
pub(super) fn conclude(
    mut stage: Stage<'_>,
    ended: Ended,
    mut evidence: Evidence,
    rerun_of: Option<&str>,
) -> Result<Ran, String> {
    (stage.options.tell)("checking the history");
    let scenario = stage.scenario;
    let checked = check_all(scenario, &stage.history, evidence.dir());
    let landing = match &scenario.fault {
        None => Landing::Absent("no fault was planned".into()),
        Some(_) => {
            let landings: Vec<Landing> = stage.rounds.iter().filter_map(|r| r.landing.clone()).collect();
            landing::of_rounds(&landings, scenario.schedule.times)
        }
    };
    let mut facts = facts(&stage, &ended, &checked, landing.clone());
    let topology = checked.history.as_ref().and_then(topology);
    let stuck =
        stage.rounds.iter().filter_map(|r| r.rollback.as_ref()).find(|r| !r.gone).and_then(|r| r.journal.clone());
    let proven = scenario.fault.is_none() || matches!(landing, Landing::Proven(_));
    let sound = proven
        && facts.checking == Checking::All
        && facts.violations == 0
        && facts.weak.is_none()
        && stuck.is_none()
        && stage.aborted.is_none()
        && rerun_of.is_none();
    let mut ran = Ran {
        run_id: stage.run_id.clone(),
        scenario: scenario.clone(),
        seed: stage.seed,
        dir: evidence.dir().to_path_buf(),
        rounds: std::mem::take(&mut stage.rounds),
        landing,
        reports: Vec::new(),
        unchecked: checked.unchecked.clone(),
        violated: checked.reports.iter().flat_map(kinds).collect(),
        verdict: classify(&facts),
        sound,
        labels: None,
        reduced: Vec::new(),
        aborted: stage.aborted.clone(),
        stuck,
    };
    if ran.verdict.verdict.is_fail() {
        reduce_recording(&mut ran, &checked, &mut evidence)?;
        if rerun_of.is_none() && ran.stuck.is_none() {
            facts.rerun = again(&mut ran, stage.options);
            ran.verdict = classify(&facts);
        }
    }
    if let Some(journal) = &ran.stuck {
        // What cannot be taken back is a failure of the experiment, whatever the clients saw.
        if !ran.verdict.verdict.is_fail() {
            ran.verdict.verdict = Verdict::FailNondeterministic;
        }
        ran.verdict.because.push(format!(
            "ERR_ROLLBACK_FAILED: the fault is still there; its journal is {0}: mend what is named there, then `elench revert {0}`",
            journal.display()
        ));
        ran.verdict.because.extend(page(&stage.options.home, journal));
    }
    let grounds = grounds(&checked, ended.seconds, Clocks::now().since(stage.clocks));
    if ran.verdict.verdict.is_fail() {
        let class = scenario.fault.as_ref().map_or(FaultClass::None, |f| f.class());
        let safety = facts.violations > 0;
        ran.labels = Some((blame(&grounds), bug_type(class, safety), severity(safety, ran.after().holds(), true)));
    }
    keep_traces(&stage, &mut evidence)?;
    write(&mut evidence, &stage.history, &ran, &facts, &grounds, &checked, &ended)?;
    ran.reports = checked.reports;
    evidence.write("findings", "findings.md", report::findings(&ran, &facts, &grounds).as_bytes())?;
    let steady = match ran.steady_state_held() {
        Some(true) => "held",
        Some(false) => "VIOLATED",
        None => "not to be told",
    };
    let assertions = assertions(&ran, &facts);
    evidence.seal(&scenario.name, ran.verdict.clone(), steady, assertions, environment(ran.seed))?;
    record::record(&stage.options.home, &ran, topology.as_deref())?;
    Ok(ran)
}

/// Reads the history as it is, strictly, keeps it in columns, and runs every checker over it.
fn check_all(scenario: &Scenario, path: &Path, dir: &Path) -> Checked {
    let mut out = Checked { history: None, reports: Vec::new(), asked: Vec::new(), unchecked: None };
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
        let checked = options_of(checker)
            .and_then(|o| check("history.parquet", &history, &o).map(|r| (r, o)).map_err(|e| e.to_string()));
        match checked {
            Ok((report, asked)) => {
                out.reports.push(report);
                out.asked.push(asked);
            }
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
pub(super) fn flags_of(checker: &Checker) -> Vec<String> {
    let mut flags = vec!["--checker".to_string(), checker.name.clone()];
    for (name, value) in &checker.options {
        let flag = format!("--{}", name.replace('_', "-"));
        match value.as_str() {
            "true" => flags.push(flag),
            "false" => {}
            _ => flags.extend([flag, value.clone()]),
        }
    }
    flags
}

/// What they ask for.
///
/// # Errors
/// A flag that is none, or a value that is none of its.
pub(super) fn options_of(checker: &Checker) -> Result<CheckOptions, String> {
    crate::cli::check::options_of(&flags_of(checker))
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

/// Violations that the checkers of a run found.
pub(super) fn anomalies(reports: &[Report]) -> u64 {
    reports.iter().map(violations).sum()
}

/// Operations that the checkers of a report consumed: the most that one of them did.
pub(super) fn consumed(report: &Report) -> u64 {
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

fn facts(stage: &Stage<'_>, ended: &Ended, checked: &Checked, landing: Landing) -> Facts {
    let scenario = stage.scenario;
    let ops = checked.history.as_ref().map_or(0, |h| h.counts().iter().sum());
    let landed = stage.rounds.iter().filter(|r| matches!(r.landing, Some(Landing::Proven(_)))).count();
    let mut earlier = record::earlier(&stage.options.home, scenario);
    earlier.seeds.insert(stage.seed);
    let given = Budget {
        duration_sec: Some(ended.seconds.round() as u64),
        ops: Some(ops),
        faults: Some(landed as u64),
        seeds: Some(earlier.seeds.len() as u64),
    };
    let looked = Looked { stage, ended, checked, landing: &landing, ops, earlier: &earlier };
    let (red_flags, weak_oracle) = (red_flags(&looked), weak_oracle(&looked));
    Facts {
        reached: true,
        missing: None,
        violations: anomalies(&checked.reports),
        rerun: Rerun::NotMade("no re-run was asked for (--confirm N)".into()),
        fault_planned: scenario.fault.is_some(),
        checking: checking(checked),
        weak: checked.history.as_ref().and_then(|h| weak(scenario, h, landed > 0)),
        budgets: scenario.budgets,
        given,
        red_flags,
        weak_oracle,
        landing,
    }
}

/// What the history lacks that the checkers need, or that the scenario says it holds.
fn weak(scenario: &Scenario, history: &History, fault: bool) -> Option<String> {
    let list = weaknesses(history);
    let lacking = list.iter().find(|w| w.field != "node_seen");
    lacking
        .map(|w| format!("{}: {} ({} operations, first: op {})", w.field, w.what, w.count, w.first))
        .or_else(|| promised::broken(&scenario.history.fields, history, fault))
}

/// What is left of a failing recording, for each checker that found something.
fn reduce_recording(ran: &mut Ran, checked: &Checked, evidence: &mut Evidence) -> Result<(), String> {
    let Some(history) = &checked.history else { return Ok(()) };
    for (i, (report, asked)) in checked.reports.iter().zip(&checked.asked).enumerate() {
        if report.valid != Valid::No {
            continue;
        }
        let file = if i == 0 { "reduced.edn".to_string() } else { format!("reduced-{}.edn", i + 1) };
        if let Some(reduced) = reduce::recording(history, (report, asked), evidence.dir(), &file)? {
            evidence.list("reduction", &file)?;
            ran.reduced.push(reduced);
        }
    }
    Ok(())
}

/// One re-run: did it show what the first run showed? `None`: it did not come to its end.
fn shows_again(ran: &mut Ran, options: &Options, schedule: Schedule) -> Option<bool> {
    let scenario = Scenario { schedule, ..ran.scenario.clone() };
    let options = Options { confirm: 0, ..options.clone() };
    let second = once(&scenario, &options, ran.seed, Some(&ran.run_id)).ok()?.ok()?;
    if let Some(journal) = second.stuck {
        ran.stuck = Some(journal);
    }
    Some(!second.violated.is_disjoint(&ran.violated))
}

/// Was a violation seen again, by so many re-runs? Where it was, and the fault came more than once, fewer injections are tried, too.
fn again(ran: &mut Ran, options: &Options) -> Rerun {
    if options.confirm == 0 {
        return Rerun::NotMade("no re-run was asked for (--confirm N)".into());
    }
    let (mut runs, mut shown) = (0, 0);
    for _ in 0..options.confirm {
        (options.tell)("running it again");
        let schedule = ran.scenario.schedule;
        if let Some(shows) = shows_again(ran, options, schedule) {
            runs += 1;
            shown += u32::from(shows);
        }
        if ran.stuck.is_some() {
            break;
        }
    }
    if runs == 0 {
        return Rerun::NotMade("no re-run came to an end".into());
    }
    if shown > 0 && ran.stuck.is_none() {
        reduce_schedule(ran, options);
    }
    Rerun::Made { runs, shown }
}

/// Halves the number of injections for as long as the violation shows again.
fn reduce_schedule(ran: &mut Ran, options: &Options) {
    let from = ran.scenario.schedule.times;
    if ran.scenario.fault.is_none() || from < 2 {
        return;
    }
    let (mut times, mut runs) = (from, 0);
    while times > 1 && ran.stuck.is_none() {
        (options.tell)("running it again with fewer injections");
        let schedule = Schedule { times: times / 2, ..ran.scenario.schedule };
        runs += 1;
        if shows_again(ran, options, schedule) != Some(true) {
            break;
        }
        times /= 2;
    }
    let what = "the schedule, by running it again".to_string();
    ran.reduced.push(Reduced { what, from, to: times, rechecks: runs, fully: times == 1, file: None });
}

/// What a machine can find out by itself about who is to blame.
fn grounds(checked: &Checked, seconds: f64, (stepped, slept): (f64, f64)) -> Vec<Ground> {
    let ground = |question, answer, looked_at: String| Ground { question, answer, looked_at };
    let failed: Vec<(&Report, &CheckOptions)> =
        checked.reports.iter().zip(&checked.asked).filter(|(r, _)| r.valid == Valid::No).collect();
    let history = checked.history.as_ref();
    let mut out = Vec::new();
    let verified = failed.first().zip(history).and_then(|((report, _), history)| {
        let document = report::document_of(report, history);
        crate::verify::verify(&document, history).ok()
    });
    let holds = verified.and_then(|all| {
        let of = |wanted: fn(&Holds) -> bool| all.iter().any(|v| wanted(&v.holds));
        if of(|h| matches!(h, Holds::No(_))) { Some(false) } else { of(|h| *h == Holds::Yes).then_some(true) }
    });
    out.push(ground(Question::CertificateHolds, holds, "the violation's certificate, by `elench verify`".into()));
    out.extend(failed.first().zip(history).and_then(|((report, asked), history)| second(report, asked, history)));
    out.extend(failed.first().map(|(report, asked)| known_good(report, asked)));
    let clean = history.map(|h| h.meta().repairs.is_empty() && h.meta().doubts.is_empty());
    out.push(ground(Question::HistoryWellFormed, clean, "the recording, read strictly".into()));
    let span = history.map(|h| crate::report::span(h).unwrap_or(0) as f64 / 1e9);
    let steady = span.map(|span| span <= seconds + 5.0 && stepped.abs() < 1.0 && slept < 1.0);
    let looked_at = format!(
        "the recording spans {:.1} s of a run of {seconds:.1} s; the wall clock was stepped by {stepped:.3} s, the machine slept for {slept:.3} s",
        span.unwrap_or(0.0)
    );
    out.push(ground(Question::HostsSteady, steady, looked_at));
    out
}

/// Do search and monitor, which share no code, both find a violation of a model? No monitor is for every model.
fn second(report: &Report, asked: &CheckOptions, history: &History) -> Option<Ground> {
    report.findings.iter().find(|f| matches!(f.result, Found::Linear(_)))?;
    let budget = Budgeted::unlimited().within(SECOND);
    let again = check("second", history, &CheckOptions { cross_check: true, budget, ..asked.clone() }).ok()?;
    let both = again
        .findings
        .iter()
        .any(|f| matches!(&f.result, Found::Linear(l) if l.outcome.coverage().methods.contains_key(&Method::Both)));
    let (answer, looked_at) = match (again.valid, again.why) {
        (Valid::No, _) if both => (Some(true), "search and monitor agree, by `--cross-check`".to_string()),
        (Valid::No, _) => (None, "only one way of checking knows this model".to_string()),
        (Valid::Yes, _) => (Some(false), "a second check by `--cross-check` finds nothing".to_string()),
        // That they contradict each other is a fault of the checker.
        (Valid::Unknown, Some(why)) => (why.contains("the monitor").then_some(false), why),
        (Valid::Unknown, None) => (None, "a second check did not decide".to_string()),
    };
    Some(Ground { question: Question::SecondChecker, answer, looked_at })
}

/// Does the checker, asked in the same way, accept what a correct system shows under the same workload? Only of claims that every correct system
/// keeps: what a formula demands of one system, another need not do.
fn known_good(report: &Report, asked: &CheckOptions) -> Ground {
    let question = Question::KnownGoodAccepted;
    let name = report.workload.name;
    let universal = asked.checkers.iter().all(|c| matches!(c.as_str(), "linear" | "sequential" | "isolation"));
    let usual = asked.model.as_deref().is_none_or(|model| model == name);
    let Some(workload) = Workload::from_name(name).filter(|_| universal && usual) else {
        let looked_at = format!("no correct system is simulated for the workload {name}, asked so");
        return Ground { question, answer: None, looked_at };
    };
    let options = GenOptions { ops: 1000, ..GenOptions::new(workload) };
    // What is simulated begins as nothing.
    let asked = CheckOptions { initial: Value::Nil, anomalies: None, ..asked.clone() };
    let answer = simulated(&options).and_then(|h| check("known-good", &h, &asked).ok()).and_then(|r| match r.valid {
        Valid::Yes => Some(true),
        Valid::No => Some(false),
        Valid::Unknown => None,
    });
    Ground { question, answer, looked_at: format!("1000 operations of a simulated, correct {name}") }
}

fn simulated(options: &GenOptions) -> Option<History> {
    let mut builder =
        HistoryBuilder::new(BuildOptions { lift: Lift::Never, real_time: true, ..BuildOptions::default() });
    generate(options, &mut |batch| builder.push(batch)).ok()?;
    builder.finish().ok()
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

fn assertions(ran: &Ran, facts: &Facts) -> Vec<Assertion> {
    let assertion = |name: &str, held: Option<bool>, detail: String| Assertion { name: name.into(), held, detail };
    let rollbacks: Vec<bool> = ran.rounds.iter().filter_map(|r| r.rollback.as_ref()).map(|r| r.gone).collect();
    vec![
        assertion("steady state", ran.steady_state_held(), ran.scenario.steady_state.clone()),
        assertion(
            "fault landed",
            Some(matches!(ran.landing, Landing::Proven(_))).filter(|_| ran.scenario.fault.is_some()),
            format!("{:?}", ran.landing),
        ),
        assertion(
            "fault reverted",
            (!rollbacks.is_empty()).then(|| rollbacks.iter().all(|gone| *gone)),
            format!("as observed, {} times", rollbacks.len()),
        ),
        assertion(
            "no violation",
            Some(facts.violations == 0).filter(|_| facts.checking == Checking::All),
            format!("{} violations", facts.violations),
        ),
    ]
}

/// What the injector saw and did, under the names that the specification gives.
fn keep_traces(stage: &Stage<'_>, evidence: &mut Evidence) -> Result<(), String> {
    let Some(fault) = &stage.scenario.fault else { return Ok(()) };
    let name = match fault.name() {
        "aws-fis" => "fis-experiment.json".to_string(),
        // Its own record of every connection is called so.
        "proxy" => "proxy-observed.json".to_string(),
        name => format!("{name}-timeline.json"),
    };
    evidence.json("injector", &name, &stage.timeline)?;
    match &stage.trace {
        Some((name, trace)) => evidence.json("injector", name, trace),
        None => Ok(()),
    }
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
    for (phase, name) in [ran.before(), ran.during(), ran.after()].iter().zip(["before", "during", "after"]) {
        evidence.json("steady-state", &format!("steady-state-{name}.json"), phase)?;
    }
    if ran.scenario.schedule.times > 1 {
        evidence.json("rounds", "rounds.json", &ran.rounds)?;
    }
    let signals: Vec<_> = ran.rounds.iter().map(|r| &r.shown).collect();
    let landings: Vec<_> = ran.rounds.iter().map(|r| &r.landing).collect();
    evidence.json(
        "landing",
        "landing.json",
        &json!({ "verdict": ran.landing, "injections": landings, "signals": signals }),
    )?;
    let rollbacks: Vec<&str> =
        ran.rounds.iter().filter_map(|r| r.rollback.as_ref()).flat_map(|r| r.log.iter().map(String::as_str)).collect();
    if ran.rounds.iter().any(|r| r.rollback.is_some()) {
        evidence.write("rollback", "rollback.log", format!("{}\n", rollbacks.join("\n")).as_bytes())?;
    }
    if let Some(history) = &checked.history {
        let documents: Vec<Json> = checked.reports.iter().map(|r| report::document_of(r, history)).collect();
        evidence.json("check", "check.json", &documents)?;
        for (i, report) in checked.reports.iter().enumerate() {
            let text = crate::report::human(report, history, false);
            evidence.write("check", &format!("check-{}.txt", i + 1), text.as_bytes())?;
        }
    }
    if !ran.reduced.is_empty() {
        evidence.json("reduction", "reduction.json", &ran.reduced)?;
    }
    evidence.json("facts", "facts.json", facts)?;
    evidence.json("blame", "grounds.json", &grounds)?;
    evidence.json("workload", "workload.json", ended)?;
    keep_recording(evidence, raw)
}

/// The raw recording, beside its columns.
fn keep_recording(evidence: &mut Evidence, raw: &Path) -> Result<(), String> {
    if evidence.dir().join("history.parquet").exists() {
        evidence.list("history", "history.parquet")?;
    }
    if raw.parent() == Some(evidence.dir()) && raw.exists() {
        let name = raw.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        evidence.list("history", &name)?;
    } else if raw.is_file() {
        evidence.adopt("history", "history.raw", raw)?;
    }
    if evidence.dir().join("workload.log").exists() {
        evidence.list("workload", "workload.log")?;
    }
    Ok(())
}
