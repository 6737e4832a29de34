//! One run of one scenario: register, refuse or go on, break, prove, mend, check, say what it is worth.
//!
//! The order is that of the specification, with one thing told apart: SLIs come from the history that the workload records, so the
//! workload starts before the steady state is measured, and nothing is injected until that held. The switch is armed right before the
//! injection, so that its timer counts from there.
//!
//! [`run()`] makes a run of each arm and each seed of a scenario ([`whole`]); `stage` breaks and mends, `judge` says what the run is worth.

mod audit;
mod judge;
mod landing;
mod load;
mod promised;
mod record;
mod reduce;
pub mod report;
mod stage;
pub mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

pub use self::landing::Shown;
pub use self::reduce::Reduced;
pub use self::whole::{Part, Whole, run};

use self::load::Running;
use self::stage::Stage;
use super::config::Config;
use super::context;
use super::evidence::{Evidence, now};
use super::front::Complaint;
use super::injector::{Cap, Injector};
use super::perimeter::{self, Place};
use super::scenario::{Draft, Scenario};
use super::sli::{self, Judged, Slis, Window};
use super::{Code, Refusal};
use crate::check::Report;
use crate::verdict::blame::{Blame, BugType, Severity};
use crate::verdict::{Classified, Landing};

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `.elench`: configuration, rules, evidence, ledger.
    pub home: PathBuf,
    /// The program that is started again as the dead man's switch, and to hold a workload that is a command.
    pub program: PathBuf,
    /// The seed, instead of the scenario's.
    pub seed: Option<u64>,
    /// How often a run that failed is run again.
    pub confirm: u32,
    /// Tells how it goes.
    pub tell: fn(&str),
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// The perimeter refused it; nothing was touched.
    Refused(Refusal),
    /// The file is no scenario.
    Malformed(Vec<Complaint>),
    /// A privilege is missing.
    Skipped(String),
    /// It ran, once for each arm and seed.
    Ran(Box<Whole>),
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

impl Phase {
    /// Does the steady state hold in it? `None`: it was not measured.
    pub fn holds(&self) -> Option<bool> {
        self.held.as_ref().and_then(|j| j.holds)
    }
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
    /// The journal.
    pub journal: Option<PathBuf>,
}

/// One injection, from the load before it to the recovery after it. A run without a fault is one without an injection.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// Before, during, after.
    pub phases: [Phase; 3],
    /// What showed that the fault landed.
    pub shown: Vec<Shown>,
    /// What that proves; none where nothing was injected.
    pub landing: Option<Landing>,
    /// How the fault was taken back.
    pub rollback: Option<Rollback>,
    /// How long until the steady state held again, in milliseconds.
    pub recovered_in_ms: Option<u64>,
}

/// Everything that a run leaves.
#[derive(Debug)]
pub struct Ran {
    /// Its id.
    pub run_id: String,
    /// What was run.
    pub scenario: Scenario,
    /// With which seed.
    pub seed: u64,
    /// Where its evidence lies.
    pub dir: PathBuf,
    /// Each injection of the schedule, in order; one at least.
    pub rounds: Vec<Round>,
    /// What proves that the fault landed, every time.
    pub landing: Landing,
    /// What the checkers say, one each.
    pub reports: Vec<Report>,
    /// Why they did not run.
    pub unchecked: Option<String>,
    /// What was violated: checker and kind.
    pub violated: BTreeSet<(String, String)>,
    /// What it is worth.
    pub verdict: Classified,
    /// Did it do all that was planned, proven and checked, so that its seed counts?
    pub sound: bool,
    /// Of a FAIL: whose it is, of what type, how bad.
    pub labels: Option<(Blame, BugType, Severity)>,
    /// Of a FAIL: what is left of it.
    pub reduced: Vec<Reduced>,
    /// Why it ended early.
    pub aborted: Option<String>,
    /// The journal of a fault that could not be taken back, by this run or by one that ran it again.
    pub stuck: Option<PathBuf>,
}

impl Ran {
    /// The load before the first injection.
    pub fn before(&self) -> &Phase {
        &self.rounds[0].phases[0]
    }

    /// The time of a fault: the first in which the steady state was violated, else the last.
    pub fn during(&self) -> &Phase {
        let mut all = self.rounds.iter().filter(|r| r.rollback.is_some()).map(|r| &r.phases[1]);
        let violated = all.clone().find(|p| p.holds() == Some(false));
        violated.or_else(|| all.next_back()).unwrap_or(&self.rounds[0].phases[1])
    }

    /// What came after the last injection.
    pub fn after(&self) -> &Phase {
        &self.rounds[self.rounds.len() - 1].phases[2]
    }

    /// The slowest recovery, where each was seen.
    pub fn recovered_in_ms(&self) -> Option<u64> {
        let injected = self.rounds.iter().filter(|r| r.rollback.is_some());
        injected.map(|r| r.recovered_in_ms).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// Did the steady state hold while the fault was there (or, without one, at all)? As a plain chaos experiment would say it.
    pub fn steady_state_held(&self) -> Option<bool> {
        match self.scenario.fault {
            Some(_) => self.during().holds(),
            None => self.before().holds().or(self.after().holds()),
        }
    }
}

/// Reads a scenario, judges it, and says what would be done, without doing it: refusals, complaints, or the plan.
///
/// # Errors
/// As [`run()`] ends without running.
pub fn plan(text: &str, options: &Options) -> Result<(Scenario, Vec<String>), End> {
    let scenario = accepted(text, options)?;
    let mut lines = Vec::new();
    let parts = scenario.parts();
    for part in &parts {
        let injector = prepared(part)?;
        if parts.len() > 1 || !scenario.arms.is_empty() {
            lines.push(format!("arm:      {}", part.name));
        }
        lines.extend(steps(part, injector.as_deref(), options));
    }
    Ok((scenario, lines))
}

/// What is done in one run, a line each, in order.
fn steps(scenario: &Scenario, injector: Option<&dyn Injector>, options: &Options) -> Vec<String> {
    let workload = &scenario.workload;
    let mut lines = vec![match (&workload.command, &workload.driver) {
        (Some(command), _) => format!("workload: sh -c '{command}'"),
        (None, driver) => format!(
            "workload: driver {} {}, {} clients for {} s on {}",
            driver.as_deref().unwrap_or("?"),
            workload.kind.as_deref().unwrap_or("(its usual kind)"),
            workload.clients,
            workload.duration_sec,
            if workload.endpoints.is_empty() { scenario.target.clone() } else { workload.endpoints.join(", ") }
        ),
    }];
    let seeds: Vec<String> = whole::seeds(scenario, options).iter().map(u64::to_string).collect();
    lines.push(format!("seeds:    {}", seeds.join(", ")));
    lines.push(format!("steady:   {}", scenario.steady_state));
    if let Some(injector) = injector {
        let schedule = &scenario.schedule;
        let lasts =
            if schedule.for_sec == 0 { "half of what is left".into() } else { format!("{} s", schedule.for_sec) };
        let times = if schedule.times > 1 { format!(", {} times", schedule.times) } else { String::new() };
        lines.push(format!(
            "schedule: after {} s of load, for {lasts}{times}; gone after {} s whatever happens",
            schedule.after_sec.max(super::scenario::BASELINE_SEC),
            scenario.rollback_after_sec
        ));
        lines.push(format!("switch:   {} switch JOURNAL", options.program.display()));
        lines.extend(injector.plan().into_iter().map(|line| format!("inject:   {line}")));
        lines.push("landing:  the injector's own counters and states, before, during and after".into());
        lines.extend(
            scenario.landing.iter().filter(|s| !s.injector_side).map(|s| format!("landing:  {}", landing::looks(s))),
        );
        if !scenario.landing.iter().any(|s| !s.injector_side) {
            lines.push(
                "landing:  no victim's signal is declared, so the verdict will be INCONCLUSIVE-fault-not-proven at best; add one of sli, log, http, command, heartbeat"
                    .into(),
            );
        }
        let undo = injector.undo();
        lines.extend(undo.steps.iter().map(|step| format!("revert:   {step}")));
        if undo.steps.is_empty() {
            lines.push("revert:   nothing: what is killed stays so (`start` or `unit` brings it back)".into());
        }
    }
    for checker in &scenario.checkers {
        lines.push(format!("check:    elench check {} history.parquet", judge::flags_of(checker).join(" ")));
    }
    lines
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
    let parts = scenario.parts();
    for part in &parts {
        load::ready(part, part.workload.seed).map_err(|why| malformed(format!("`workload`: {why}")))?;
    }
    for checker in parts.iter().flat_map(|p| &p.checkers) {
        judge::options_of(checker).map_err(|why| malformed(format!("checker {}: {}", checker.name, why.trim())))?;
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

/// One run, and its re-runs where it failed. `again`: this is a re-run, of this run.
fn once(scenario: &Scenario, options: &Options, seed: u64, again: Option<&str>) -> Result<Result<Ran, End>, String> {
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
    let running = match Running::start(ready, scenario, &raw, seed, &options.program) {
        Ok(running) => running,
        Err(why) => return Ok(Err(End::Refused(Refusal::new(Code::SteadyStateUnmeasurable, why)))),
    };
    let mut stage = Stage::new(scenario, options, running, injector, &run_id, seed);
    if let Err(end) = stage.before() {
        let ended = stage.finish(true);
        evidence.json("steady-state", "steady-state-before.json", stage.baseline())?;
        evidence.json("workload", "workload.json", &ended)?;
        return Ok(Err(end));
    }
    stage.faults();
    let ended = stage.finish(stage.aborted.is_some());
    judge::conclude(stage, ended, evidence, again).map(Ok)
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

/// Calls a person, by the command that the configuration names: with the path of the journal of what is stuck.
fn page(home: &Path, journal: &Path) -> Option<String> {
    let config = Config::read(&home.join("config.toml")).ok().filter(|c| !c.page.is_empty())?;
    let argv: Vec<String> = config.page.into_iter().chain([journal.display().to_string()]).collect();
    Some(match super::injector::undo::run(&argv) {
        Ok(_) => format!("paged: {}", argv.join(" ")),
        Err(why) => format!("could not page: {why}"),
    })
}
