//! One run of one scenario: register, refuse or go on, break, prove, mend, check, say what it is worth.
//!
//! The order is that of the specification, with one thing told apart: SLIs come from the history that the workload records, so the
//! workload starts before the steady state is measured, and nothing is injected until that held. The switch is armed right before the
//! injection, so that its timer counts from there.

mod judge;
mod landing;
mod load;
pub mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

pub use self::landing::Shown;

use self::landing::Sample;
use self::load::{Ended, Running};
use super::config::Config;
use super::context;
use super::evidence::{Assertion, Evidence, now};
use super::front::Complaint;
use super::injector::{Cap, Injector, Observation};
use super::perimeter::{self, Place};
use super::scenario::{Draft, Scenario};
use super::sli::{self, Judged, Phases, Slis, Window};
use super::switch::{self, Armed, Journal};
use super::{Code, Refusal};
use crate::check::Report;
use crate::ledger::{Ledger, Record, Table};
use crate::verdict::blame::{Blame, BugType, Severity};
use crate::verdict::{Classified, Landing, Rerun};

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `.elench`: configuration, rules, evidence, ledger.
    pub home: PathBuf,
    /// The program that is started again as the dead man's switch.
    pub program: PathBuf,
    /// The seed, instead of the scenario's.
    pub seed: Option<u64>,
    /// How often a run that failed is run again.
    pub confirm: u32,
    /// Tells how it goes.
    pub tell: fn(&str),
}

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// The perimeter refused it; nothing was touched.
    Refused(Refusal),
    /// The file is no scenario.
    Malformed(Vec<Complaint>),
    /// A privilege is missing.
    Skipped(String),
    /// It ran, once for each seed.
    Ran(Vec<Ran>),
}

/// One phase, measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// The window, by the history's clock.
    pub window: Option<Window>,
    /// What was measured over all of it.
    pub slis: Slis,
    /// Does the steady state hold in it?
    pub held: Option<Judged>,
    /// Samples on the way.
    pub samples: Vec<BTreeMap<String, f64>>,
}

/// What became of a fault.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rollback {
    /// Is it gone, as observed?
    pub gone: bool,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// What was done and seen.
    pub log: Vec<String>,
    /// The journal, where it could not be taken back.
    pub journal: Option<PathBuf>,
}

/// Everything that a run leaves.
#[derive(Debug)]
pub struct Ran {
    /// Its id.
    pub run_id: String,
    /// What was run.
    pub scenario: Scenario,
    /// Where its evidence lies.
    pub dir: PathBuf,
    /// Before, during, after.
    pub phases: [Phase; 3],
    /// How long until the steady state held again, in milliseconds.
    pub recovered_in_ms: Option<u64>,
    /// What showed that the fault landed.
    pub shown: Vec<Shown>,
    /// What that proves.
    pub landing: Landing,
    /// How the fault was taken back; none without a fault.
    pub rollback: Option<Rollback>,
    /// What the checkers say.
    pub report: Option<Report>,
    /// Why they did not run.
    pub unchecked: Option<String>,
    /// What it is worth.
    pub verdict: Classified,
    /// Of a FAIL: whose it is, of what type, how bad.
    pub labels: Option<(Blame, BugType, Severity)>,
    /// Why it ended early.
    pub aborted: Option<String>,
}

impl Ran {
    /// Did the steady state hold while the fault was there (or, without one, at all)? As a plain chaos experiment would say it.
    pub fn steady_state_held(&self) -> Option<bool> {
        let of = |i: usize| self.phases[i].held.as_ref().and_then(|j| j.holds);
        if self.scenario.fault.is_some() { of(1) } else { of(0).or(of(2)) }
    }
}

/// How often SLIs are sampled.
const SAMPLE: Duration = Duration::from_secs(1);
/// How long a baseline is at least.
const BASELINE: Duration = Duration::from_secs(3);
/// How long a fault may take to land.
const LANDING: Duration = Duration::from_secs(10);
/// How long recovery is waited for.
const RECOVERY: Duration = Duration::from_secs(60);

/// Reads a scenario, judges it, and says what would be done, without doing it: refusals, complaints, or the plan.
///
/// # Errors
/// As [`run`] ends without running.
pub fn plan(text: &str, options: &Options) -> Result<(Scenario, Vec<String>), End> {
    let scenario = accepted(text, options)?;
    let mut lines = Vec::new();
    let injector = prepared(&scenario)?;
    if let Err(why) = load::ready(&scenario, scenario.workload.seed) {
        return Err(End::Malformed(vec![Complaint { line: 1, what: format!("`workload`: {why}") }]));
    }
    lines.push(match &scenario.workload.command {
        Some(command) => format!("workload: sh -c '{command}'"),
        None => format!("workload: driver {}", scenario.workload.driver.as_deref().unwrap_or("?")),
    });
    if let Some(injector) = &injector {
        lines.extend(injector.plan().into_iter().map(|line| format!("inject:   {line}")));
        let undo = serde_json::to_string(&injector.undo()).unwrap_or_default();
        lines.push(format!("revert:   {undo}"));
    }
    Ok((scenario, lines))
}

/// A scenario that the perimeter lets pass and that is whole.
fn accepted(text: &str, options: &Options) -> Result<Scenario, End> {
    let malformed = |what: String| End::Malformed(vec![Complaint { line: 1, what }]);
    let draft = Draft::parse(text).map_err(|c| End::Malformed(vec![c]))?;
    let config = Config::read(&options.home.join("config.toml")).map_err(malformed)?;
    let rules = match std::fs::read_to_string(options.home.join("context.md")) {
        Ok(text) => context::parse(&text).map_err(End::Refused)?,
        Err(_) => Vec::new(),
    };
    let place = Place {
        config: &config,
        rules: &rules,
        own_addresses: &[],
        home: &options.home,
        minute: minute_of_day(),
        resolve: &perimeter::resolve,
    };
    perimeter::judge(&draft, &place).map_err(End::Refused)?;
    let scenario = draft.finish().map_err(End::Malformed)?;
    let conditions = std::iter::once(&scenario.steady_state)
        .chain(&scenario.abort_when)
        .chain(scenario.landing.iter().filter_map(|s| s.expr.as_ref()));
    for condition in conditions {
        sli::condition(condition).map_err(|why| malformed(format!("`{condition}`: {why}")))?;
    }
    Ok(scenario)
}

fn minute_of_day() -> u16 {
    use chrono::Timelike;
    let now = chrono::Utc::now();
    (now.hour() * 60 + now.minute()) as u16
}

/// The injector, probed: ready to break.
fn prepared(scenario: &Scenario) -> Result<Option<Box<dyn Injector>>, End> {
    let Some(fault) = &scenario.fault else { return Ok(None) };
    let missing =
        |why: String| End::Refused(Refusal::new(Code::InjectorMissing, format!("injector {}: {why}", fault.name())));
    let injector = fault.prepare(Cap { percent: scenario.blast_radius_pct }).map_err(missing)?;
    match perimeter::ready(&injector.probe()).map_err(End::Refused)? {
        Some(reason) => Err(End::Skipped(reason)),
        None => Ok(Some(injector)),
    }
}

/// Runs a scenario. Whatever happens after the injection, the fault is taken back.
///
/// # Errors
/// In words, where evidence or ledger cannot be written.
pub fn run(text: &str, options: &Options) -> Result<End, String> {
    let scenario = match accepted(text, options) {
        Ok(scenario) => scenario,
        Err(end) => return Ok(end),
    };
    let seeds = match (options.seed, scenario.seeds.as_slice()) {
        (Some(seed), _) => vec![seed],
        (None, []) => vec![scenario.workload.seed],
        (None, seeds) => seeds.to_vec(),
    };
    let mut all: Vec<Ran> = Vec::new();
    for (i, seed) in seeds.into_iter().enumerate() {
        match once(&scenario, options, seed, i as u64 + 1, None)? {
            Ok(ran) => all.push(ran),
            Err(end) if all.is_empty() => return Ok(end),
            Err(_) => break,
        }
        let stuck = all.last().and_then(|r| r.rollback.as_ref()).is_some_and(|r| !r.gone);
        if stuck || all.last().is_some_and(|r| r.verdict.verdict.is_fail()) {
            break;
        }
    }
    Ok(End::Ran(all))
}

/// One run, and its re-runs where it failed. `seeds`: how many seeds it was run with, this one included; `again`: this is a
/// re-run, of this run.
fn once(
    scenario: &Scenario,
    options: &Options,
    seed: u64,
    seeds: u64,
    again: Option<&str>,
) -> Result<Result<Ran, End>, String> {
    let injector = match prepared(scenario) {
        Ok(injector) => injector,
        Err(end) => return Ok(Err(end)),
    };
    let ready = match load::ready(scenario, seed) {
        Ok(ready) => ready,
        Err(what) => return Ok(Err(End::Malformed(vec![Complaint { line: 1, what: format!("`workload`: {what}") }]))),
    };
    let run_id = uuid::Uuid::new_v4().to_string();
    let mut evidence = Evidence::create(&options.home, &run_id)?;
    evidence.json("hypothesis", "hypothesis.json", &hypothesis(scenario, &run_id, seed, again))?;
    let raw = evidence.dir().join("history.raw.edn");
    (options.tell)("starting the workload");
    let running = match Running::start(ready, scenario, &raw, seed) {
        Ok(running) => running,
        Err(why) => return Ok(Err(End::Refused(Refusal::new(Code::SteadyStateUnmeasurable, why)))),
    };
    let mut stage = Stage::new(scenario, options, running, injector, &run_id);
    if let Err(end) = stage.before() {
        let ended = stage.finish(true);
        evidence.json("steady-state", "steady-state-before.json", &stage.phases[0])?;
        evidence.json("workload", "workload.json", &ended)?;
        return Ok(Err(end));
    }
    stage.fault();
    stage.after();
    let ended = stage.finish(stage.aborted.is_some());
    judge::conclude(stage, ended, evidence, (seed, seeds), again).map(Ok)
}

fn hypothesis(scenario: &Scenario, run_id: &str, seed: u64, again: Option<&str>) -> serde_json::Value {
    json!({
        "run_id": run_id,
        "registered_at": now(),
        "hypothesis": scenario.name,
        "falsifies": scenario.falsifies,
        "steady_state": scenario.steady_state,
        "blast_radius_pct": scenario.blast_radius_pct,
        "rollback_after_sec": scenario.rollback_after_sec,
        "abort_when": scenario.abort_when,
        "seed": seed,
        "again": again,
        "scenario": scenario,
    })
}

/// A run under way.
struct Stage<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    run_id: String,
    running: Option<Running>,
    injector: Option<Box<dyn Injector>>,
    history: PathBuf,
    phases: [Phase; 3],
    mark: i64,
    observed: Vec<Observation>,
    trace: Option<(&'static str, serde_json::Value)>,
    samples: Vec<Vec<Sample>>,
    shown: Vec<Shown>,
    rollback: Option<Rollback>,
    recovered_in_ms: Option<u64>,
    aborted: Option<String>,
    injected: bool,
}

impl<'a> Stage<'a> {
    fn new(
        scenario: &'a Scenario,
        options: &'a Options,
        running: Running,
        injector: Option<Box<dyn Injector>>,
        run_id: &str,
    ) -> Stage<'a> {
        Stage {
            scenario,
            options,
            run_id: run_id.to_string(),
            history: running.history.clone(),
            running: Some(running),
            injector,
            phases: Default::default(),
            mark: 0,
            observed: Vec::new(),
            trace: None,
            samples: Vec::new(),
            shown: Vec::new(),
            rollback: None,
            recovered_in_ms: None,
            aborted: None,
            injected: false,
        }
    }

    /// SLIs from the mark until now, and now, by the history's clock.
    fn measure(&self) -> Result<(Slis, Window), String> {
        let recorded = self.running.as_ref().and_then(Running::recorded);
        let history = sli::read(&self.history, self.scenario.history.format.as_deref())?;
        let window = Window { after: self.mark, until: sli::known_until(&history, recorded) };
        let mut slis = sli::measure(&history, window, load::patience(&self.scenario.workload));
        if let Some(source) = &self.scenario.sli {
            slis.values.extend(sli::ask(source)?);
        }
        Ok((slis, window))
    }

    /// Samples a phase until `until`, or until `over` says so; then measures it as a whole.
    fn watch(&mut self, phase: usize, until: Instant, mut over: impl FnMut(&mut Self, &Slis) -> bool) {
        loop {
            let began = Instant::now();
            let sampled = self.measure();
            let left = until.saturating_duration_since(Instant::now());
            if let Ok((slis, window)) = sampled {
                self.phases[phase].samples.push(slis.values.clone());
                self.phases[phase].held =
                    sli::judge(&self.scenario.steady_state, &Phases { of: vec![("now", &slis)] }).ok();
                self.phases[phase].window = Some(window);
                if over(self, &slis) {
                    self.phases[phase].slis = slis;
                    return;
                }
                self.phases[phase].slis = slis;
            }
            if left.is_zero() || self.running.as_mut().is_none_or(Running::is_over) {
                return;
            }
            // A history that takes long to read is read less often.
            std::thread::sleep(SAMPLE.max(began.elapsed() * 4).min(left));
        }
    }

    /// What follows is measured from here.
    fn begin_phase(&mut self) {
        if let Some(window) = self.phases.iter().filter_map(|p| p.window).map(|w| w.until).max() {
            self.mark = window;
        }
    }

    /// The steady state before anything is injected.
    fn before(&mut self) -> Result<(), End> {
        (self.options.tell)("measuring the steady state before");
        let baseline = Duration::from_secs(self.scenario.schedule.after_sec).max(BASELINE);
        self.watch(0, Instant::now() + baseline, |_, _| false);
        let unmeasurable = |why: String| Err(End::Refused(Refusal::new(Code::SteadyStateUnmeasurable, why)));
        match &self.phases[0].held {
            None => unmeasurable(format!("nothing could be read from {}", self.history.display())),
            Some(Judged { holds: None, why, .. }) => unmeasurable(why.clone().unwrap_or_default()),
            Some(Judged { holds: Some(false), .. }) if self.injector.is_some() => {
                self.aborted = Some("the steady state was violated before anything was injected".into());
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Injects, proves, watches and reverts.
    fn fault(&mut self) {
        if self.aborted.is_some() || self.injector.is_none() {
            return;
        }
        self.begin_phase();
        let cap = Duration::from_secs(self.scenario.rollback_after_sec);
        let lasts = match self.scenario.schedule.for_sec {
            0 => cap.saturating_sub(Duration::from_secs(1)).min(self.half_of_what_is_left()),
            seconds => Duration::from_secs(seconds).min(cap),
        };
        let armed = match self.arm(cap) {
            Ok(armed) => armed,
            Err(why) => {
                self.aborted = Some(why);
                return;
            }
        };
        self.sample();
        (self.options.tell)("injecting");
        let (name, what) = self.named();
        if let Some(running) = &self.running {
            running.fault_begins(&format!("start-{name}"), &what);
        }
        let until = Instant::now() + lasts;
        let injected = self.injector.as_mut().map_or(Ok(()), |i| i.inject());
        self.injected = injected.is_ok();
        if let Err(failed) = injected {
            self.aborted = Some(format!("the injector failed: {failed}"));
        } else {
            self.wait_for_landing(until);
            self.during(until);
        }
        self.sample();
        self.revert(armed);
    }

    /// Without a length of its own, a fault takes the first half of what is left, so that the recovery is seen.
    fn half_of_what_is_left(&self) -> Duration {
        self.running.as_ref().map_or(Duration::ZERO, Running::left) / 2
    }

    fn named(&self) -> (String, String) {
        let what = self.injector.as_ref().map(|i| i.plan().join("; ")).unwrap_or_default();
        (self.scenario.fault.as_ref().map_or("none", |f| f.name()).to_string(), what)
    }

    fn arm(&self, cap: Duration) -> Result<Armed, String> {
        let injector = self.injector.as_ref().ok_or("no injector")?;
        let dir = self.options.home.join("switch");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: cannot write: {e}", dir.display()))?;
        let journal = Journal::new(&self.run_id, injector.undo(), cap);
        switch::arm(&self.options.program, &journal, &dir.join(format!("{}.json", self.run_id)))
    }

    /// What injector and signals show now.
    fn sample(&mut self) {
        if let Some(injector) = self.injector.as_mut() {
            self.observed.push(injector.observe().unwrap_or_default());
        }
        self.samples.push(landing::sample(&self.scenario.landing));
    }

    /// Waits until the injector's side shows it, not for a time; but no fault lasts longer than it should.
    fn wait_for_landing(&mut self, until: Instant) {
        let until = until.min(Instant::now() + LANDING);
        while Instant::now() < until {
            let Some(injector) = self.injector.as_mut() else { return };
            let now = injector.observe().unwrap_or_default();
            if self.observed.first().is_some_and(|before| injector.landed(before, &now).0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn during(&mut self, until: Instant) {
        (self.options.tell)("the fault is active");
        let conditions = self.scenario.abort_when.clone();
        self.watch(1, until, |stage, slis| {
            let phases = Phases { of: vec![("during", slis)] };
            let met = conditions.iter().find(|c| sli::judge(c, &phases).is_ok_and(|j| j.holds == Some(true)));
            stage.aborted = met.map(|c| format!("the abort condition `{c}` was met"));
            stage.aborted.is_some()
        });
    }

    /// Takes the fault back, always, and times it.
    fn revert(&mut self, armed: Armed) {
        (self.options.tell)("reverting");
        let Some(injector) = self.injector.as_ref() else { return };
        if let (Some(before), Some(during)) = (self.observed.first(), self.observed.last()) {
            let empty = Vec::new();
            self.shown = landing::judge(&landing::Seen {
                injector: injector.as_ref(),
                observed: (before, during),
                signals: &self.scenario.landing,
                samples: (self.samples.first().unwrap_or(&empty), self.samples.last().unwrap_or(&empty)),
                slis: (&self.phases[0].slis, &self.phases[1].slis),
            });
        }
        self.trace = injector.trace();
        let began = Instant::now();
        let path = armed.journal().to_path_buf();
        let journal = Journal::read(&path);
        let mut rollback = Rollback { journal: Some(path), ..Rollback::default() };
        match journal {
            Err(why) => rollback.log.push(why),
            Ok(mut journal) => {
                rollback.gone = journal.revert("run");
                if rollback.gone {
                    if let Err(why) = armed.disarm(&journal) {
                        rollback.log.push(why);
                    }
                } else if let Ok(fired) = armed.fire("the run could not take the fault back") {
                    rollback.gone = fired.state == switch::State::Reverted;
                    journal = fired;
                }
                let told = journal
                    .log
                    .iter()
                    .flat_map(|e| e.done.iter().map(move |d| format!("{} ms, {}: {}", e.at_ms, e.who, d.how)));
                rollback.log.extend(told);
            }
        }
        rollback.elapsed_ms = began.elapsed().as_millis() as u64;
        if let Some(running) = &self.running {
            running.fault_ends(&format!("stop-{}", self.named().0), "reverted");
        }
        self.rollback = Some(rollback);
    }

    /// Waits for recovery, and measures after.
    fn after(&mut self) {
        if self.aborted.is_some() && !self.injected {
            return;
        }
        (self.options.tell)("measuring the steady state after");
        self.begin_phase();
        let began = Instant::now();
        let left = self.running.as_ref().map_or(Duration::ZERO, Running::left).min(RECOVERY);
        let fault = self.injector.is_some();
        self.watch(2, began + left, |stage, _| {
            let holds = stage.phases[2].held.as_ref().and_then(|j| j.holds);
            if holds == Some(true) && fault && stage.recovered_in_ms.is_none() {
                stage.recovered_in_ms = Some(began.elapsed().as_millis() as u64);
            }
            if holds == Some(false) {
                // What came before the recovery is not what comes after it.
                stage.begin_phase();
            }
            false
        });
    }

    fn finish(&mut self, now: bool) -> Ended {
        (self.options.tell)("waiting for the workload");
        self.running.take().map(|r| r.end(now)).unwrap_or_default()
    }
}

fn assertion(name: &str, held: Option<bool>, detail: impl Into<String>) -> Assertion {
    Assertion { name: name.into(), held, detail: detail.into() }
}

/// Writes run, verdict and task to the ledger.
fn record(home: &Path, ran: &Ran) -> Result<(), String> {
    let mut ledger = Ledger::open(home)?;
    let of = |table, id: &str| {
        let mut record = Record::new(table, id);
        record.scenario = Some(ran.scenario.name.clone());
        record.run_id = Some(ran.run_id.clone());
        record.status = Some(ran.verdict.verdict.name().into());
        record
    };
    let mut scenario = Record::new(Table::Scenarios, &ran.scenario.name);
    scenario.project = Some("default".into());
    scenario.body.insert("target".into(), json!(ran.scenario.target));
    ledger.put(&scenario)?;
    let mut run = of(Table::Runs, &ran.run_id);
    run.body.insert("evidence".into(), json!(ran.dir));
    ledger.put(&run)?;
    let mut verdict = of(Table::Verdicts, &ran.run_id);
    verdict.body.insert("tier".into(), json!(ran.verdict.tier));
    verdict.body.insert("because".into(), json!(ran.verdict.because));
    verdict.body.insert("steady_state_held".into(), json!(ran.steady_state_held()));
    ledger.put(&verdict)?;
    let stuck = ran.rollback.as_ref().is_some_and(|r| !r.gone);
    let mut task = of(Table::Tasks, &ran.run_id);
    task.status = Some(if stuck || ran.verdict.verdict.is_fail() { "open" } else { "done" }.into());
    task.assignee = Some(if stuck { "incident-responder" } else { "chaos-test-engineer" }.into());
    let slis = |i: usize| json!(ran.phases[i].slis.values);
    let rollback = json!({
        "gone": ran.rollback.as_ref().map(|r| r.gone),
        "elapsed_ms": ran.rollback.as_ref().map(|r| r.elapsed_ms),
    });
    let entries = [
        ("hypothesis", json!(ran.scenario.name)),
        ("steady_state", json!(ran.scenario.steady_state)),
        ("injector", json!(ran.scenario.fault.as_ref().map(|f| f.name()))),
        ("blast_radius_pct", json!(ran.scenario.blast_radius_pct)),
        ("rollback_after_sec", json!(ran.scenario.rollback_after_sec)),
        ("trust_level", json!(ran.scenario.trust_level)),
        ("change_ticket", json!(ran.scenario.change_ticket)),
        ("before", slis(0)),
        ("during", slis(1)),
        ("after", slis(2)),
        ("rollback", rollback),
    ];
    task.body.extend(entries.into_iter().map(|(name, value)| (name.to_string(), value)));
    ledger.put(&task)
}

/// Was a violation seen again, by so many re-runs?
fn again(ran: &Ran, options: &Options, seed: u64) -> Rerun {
    if options.confirm == 0 {
        return Rerun::NotMade("no re-run was asked for (--confirm N)".into());
    }
    let (mut runs, mut shown) = (0, 0);
    for _ in 0..options.confirm {
        (options.tell)("running it again");
        if let Ok(Ok(second)) =
            once(&ran.scenario, &Options { confirm: 0, ..options.clone() }, seed, 1, Some(&ran.run_id))
        {
            runs += 1;
            shown += u32::from(second.verdict.verdict.is_fail());
        }
    }
    if runs == 0 {
        return Rerun::NotMade("no re-run came to an end".into());
    }
    Rerun::Made { runs, shown }
}

/// Calls a person, by the command that the configuration names: with the path of the journal of what is stuck.
fn page(home: &Path, journal: &Path) -> Option<String> {
    let config = Config::read(&home.join("config.toml")).ok().filter(|c| !c.page.is_empty())?;
    let argv: Vec<String> = config.page.into_iter().chain([journal.display().to_string()]).collect();
    Some(match super::injector::undo::run(&argv) {
        Ok(_) => format!("paged: {}", argv.join(" ")),
        Err(why) => format!("could not page: {why}"),
    })
}
