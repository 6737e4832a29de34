//! A run under way: it measures, injects, proves, mends, and measures again, as often as the schedule says.
//!
//! Each injection is a [`Round`] of its own, with load before it, landing evidence and a rollback of its own. The next one begins only when the
//! steady state holds again, so that no fault is laid upon what is left of the last one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value as Json;

use super::landing::{self, Sample};
use super::load::{self, Ended, Running};
use super::{End, Options, Phase, Rollback, Round};
use crate::experiment::injector::{Injector, Observation};
use crate::experiment::scenario::{BASELINE_SEC, Scenario};
use crate::experiment::sli::{self, Judged, Phases, Slis, Window};
use crate::experiment::switch::{self, Armed, Journal, State};
use crate::experiment::{Code, Refusal};

/// How often SLIs are sampled.
const SAMPLE: Duration = Duration::from_secs(1);
/// How long a fault may take to land.
const LANDING: Duration = Duration::from_secs(10);
/// How long recovery is waited for.
const RECOVERY: Duration = Duration::from_secs(60);

/// What the injector saw, and when.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seen {
    /// Milliseconds since the run began.
    at_ms: u64,
    /// The injection, from 1.
    round: usize,
    /// `before`, `during` or `after`.
    phase: &'static str,
    /// Counters and states.
    seen: Observation,
    /// What each declared signal showed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    signals: Vec<Sample>,
}

/// A run under way.
pub(super) struct Stage<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) options: &'a Options,
    pub(super) run_id: String,
    pub(super) seed: u64,
    pub(super) history: PathBuf,
    pub(super) rounds: Vec<Round>,
    pub(super) timeline: Vec<Seen>,
    pub(super) trace: Option<(&'static str, Json)>,
    pub(super) aborted: Option<String>,
    pub(super) clocks: Clocks,
    running: Option<Running>,
    injector: Option<Box<dyn Injector>>,
    begun: Instant,
    mark: i64,
    pace: Pace,
}

/// What the clocks of this machine say at one moment, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    real: f64,
    monotonic: f64,
    boot: f64,
}

impl Clocks {
    pub(super) fn now() -> Clocks {
        use nix::time::{ClockId, clock_gettime};
        let of = |clock| clock_gettime(clock).map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 / 1e9);
        Clocks {
            real: of(ClockId::CLOCK_REALTIME),
            monotonic: of(ClockId::CLOCK_MONOTONIC),
            boot: of(ClockId::CLOCK_BOOTTIME),
        }
    }

    /// By how many seconds the wall clock was stepped since then, and for how many the machine slept.
    pub(super) fn since(self, then: Clocks) -> (f64, f64) {
        let ran = self.monotonic - then.monotonic;
        (self.real - then.real - ran, self.boot - then.boot - ran)
    }
}

/// What the clock of a history says now, also while nobody records anything because nobody is answered.
///
/// The time of the last event is what it says at least. Where that ran along with our own clock during the baseline, it is taken to go on so.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Our time and its last one, when it was first read, both in nanoseconds.
    first: Option<(i64, i64)>,
    /// By how much it is ahead of ours, at least.
    ahead: Option<i64>,
    /// Does it run as fast as ours? Not known before the baseline is over.
    steady: bool,
}

/// What may not be readable yet of what has happened.
const LATE: i64 = 100_000_000;

impl Pace {
    /// The history was read from `began` on until `ended`, by our clock, and its last event is of `last`. Gives what its clock says.
    fn read(&mut self, (began, ended): (i64, i64), last: i64) -> i64 {
        self.first.get_or_insert((ended, last));
        let ahead = self.ahead.unwrap_or(i64::MIN).max(last.saturating_sub(ended));
        self.ahead = Some(ahead);
        if self.steady { last.max(began.saturating_add(ahead).saturating_sub(LATE)) } else { last }
    }

    /// The baseline is over, and the last reading was this.
    fn settle(&mut self, ended: i64, last: i64) {
        let Some((at, then)) = self.first else { return };
        let (ours, its) = (ended.saturating_sub(at) as f64, last.saturating_sub(then) as f64);
        self.steady = ours > 1e9 && (0.5..=2.0).contains(&(its / ours));
    }
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        options: &'a Options,
        running: Running,
        injector: Option<Box<dyn Injector>>,
        run_id: &str,
        seed: u64,
    ) -> Stage<'a> {
        Stage {
            scenario,
            options,
            run_id: run_id.to_string(),
            seed,
            history: running.history.clone(),
            rounds: vec![Round::default()],
            timeline: Vec::new(),
            trace: None,
            aborted: None,
            clocks: Clocks::now(),
            running: Some(running),
            injector,
            begun: Instant::now(),
            mark: 0,
            pace: Pace::default(),
        }
    }

    /// The load before the first injection.
    pub(super) fn baseline(&self) -> &Phase {
        &self.rounds[0].phases[0]
    }

    /// The injection that is under way; there is always one.
    fn round(&mut self) -> &mut Round {
        let last = self.rounds.len() - 1;
        &mut self.rounds[last]
    }

    /// SLIs from the mark until now, and now, by the history's clock.
    fn measure(&mut self) -> Result<(Slis, Window), String> {
        let began = self.elapsed();
        let recorded = self.running.as_ref().and_then(Running::recorded);
        let history = sli::read(&self.history, self.scenario.history.format.as_deref())?;
        // Of our own recorder it is known what there is to read; of a command's only how its clock went so far.
        let until = match self.scenario.workload.driver {
            Some(_) => sli::known_until(&history, recorded),
            None => self.pace.read((began, self.elapsed()), sli::last_time(&history)),
        };
        let window = Window { after: self.mark, until };
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
                let held = sli::judge(&self.scenario.steady_state, &Phases { of: vec![("now", &slis)] }).ok();
                let here = &mut self.round().phases[phase];
                here.samples.push(slis.values.clone());
                here.held = held;
                here.window = Some(window);
                let ends = over(self, &slis);
                self.round().phases[phase].slis = slis;
                if ends {
                    return;
                }
            }
            if left.is_zero() || self.is_over() {
                return;
            }
            // A history that takes long to read is read less often.
            std::thread::sleep(SAMPLE.max(began.elapsed() * 4).min(left));
        }
    }

    /// Nanoseconds since the run began.
    fn elapsed(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    fn is_over(&mut self) -> bool {
        self.running.as_mut().is_none_or(Running::is_over)
    }

    fn left(&self) -> Duration {
        self.running.as_ref().map_or(Duration::ZERO, Running::left)
    }

    /// What follows is measured from here.
    fn begin_phase(&mut self) {
        let ends = self.rounds.iter().flat_map(|r| &r.phases).filter_map(|p| p.window).map(|w| w.until);
        self.mark = ends.max().unwrap_or(self.mark);
    }

    /// The steady state before anything is injected.
    pub(super) fn before(&mut self) -> Result<(), End> {
        (self.options.tell)("measuring the steady state before");
        self.load_before();
        if let Some(window) = self.baseline().window {
            self.pace.settle(self.elapsed(), window.until);
        }
        let unmeasurable = |why: String| Err(End::Refused(Refusal::new(Code::SteadyStateUnmeasurable, why)));
        match &self.baseline().held {
            None => unmeasurable(format!("nothing could be read from {}", self.history.display())),
            Some(Judged { holds: None, why, .. }) => unmeasurable(why.clone().unwrap_or_default()),
            Some(Judged { holds: Some(false), .. }) if self.injector.is_some() => {
                self.aborted = Some("the steady state was violated before anything was injected".into());
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Measures the load before an injection.
    fn load_before(&mut self) {
        let baseline = Duration::from_secs(self.scenario.schedule.after_sec.max(BASELINE_SEC));
        self.watch(0, Instant::now() + baseline, |_, _| false);
    }

    /// Every injection of the schedule, and what comes after each.
    pub(super) fn faults(&mut self) {
        let times = if self.injector.is_some() { self.scenario.schedule.times } else { 1 };
        for number in 1..=times {
            if self.aborted.is_some() || (number > 1 && !self.next_round(number, times)) {
                return;
            }
            if self.injector.is_some() {
                self.fault(times - number + 1);
            }
            if self.aborted.is_none() || self.round().landing.is_some() {
                self.after(number < times);
            }
            if self.round().rollback.as_ref().is_some_and(|r| !r.gone) {
                return;
            }
        }
    }

    /// Gets ready to break again. Whatever stands against it ends the run.
    fn next_round(&mut self, number: u64, times: u64) -> bool {
        let again = format!("injection {number} of {times}");
        if self.round().phases[2].holds() != Some(true) {
            self.aborted = Some(format!("the steady state did not hold again before {again}"));
            return false;
        }
        if let Some(Err(why)) = self.injector.as_mut().map(|i| i.again()) {
            self.aborted = Some(format!("{again} cannot be made: {why}"));
            return false;
        }
        (self.options.tell)(&format!("measuring the steady state before {again}"));
        self.begin_phase();
        self.rounds.push(Round::default());
        self.load_before();
        if self.is_over() {
            self.aborted = Some(format!("the workload was over before {again}"));
        } else if self.round().phases[0].holds() != Some(true) {
            self.aborted = Some(format!("the steady state was violated before {again}"));
        }
        self.aborted.is_none()
    }

    /// Injects, proves, watches and reverts. `left`: how many injections are left, this one included.
    fn fault(&mut self, left: u64) {
        self.begin_phase();
        let cap = Duration::from_secs(self.scenario.rollback_after_sec);
        let lasts = match self.scenario.schedule.for_sec {
            // Without a length of its own, a fault takes half of its share of the time, so that the recovery is seen.
            0 => cap
                .saturating_sub(Duration::from_secs(1))
                .min(self.left() / 2 / u32::try_from(left).unwrap_or(u32::MAX)),
            seconds => Duration::from_secs(seconds).min(cap),
        };
        let mut armed = match self.arm(cap) {
            Ok(armed) => armed,
            Err(why) => {
                self.aborted = Some(why);
                return;
            }
        };
        let before = self.sample("before");
        (self.options.tell)("injecting");
        let (name, what) = self.named();
        if let Some(running) = &self.running {
            running.fault_begins(&format!("start-{name}"), &what);
        }
        let until = Instant::now() + lasts;
        let injected = match armed.is_alive() {
            true => {
                self.injector.as_mut().map_or(Ok(()), |i| i.inject()).map_err(|e| format!("the injector failed: {e}"))
            }
            false => Err("the dead man's switch was gone before anything was injected".into()),
        };
        let failed = injected.is_err();
        match injected {
            Err(why) => self.aborted = Some(why),
            Ok(()) => {
                self.wait_for_landing(before, until);
                self.during(until, &mut armed);
            }
        }
        let during = self.sample("during");
        if !failed {
            self.judge_landing(before, during);
        }
        self.trace = self.injector.as_ref().and_then(|i| i.trace());
        self.revert(armed);
        self.sample("after");
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
        let name = match self.rounds.len() {
            1 => format!("{}.json", self.run_id),
            n => format!("{}-{n}.json", self.run_id),
        };
        switch::arm(&self.options.program, &journal, &dir.join(name))
    }

    /// What injector and signals show now; gives its place in the timeline.
    fn sample(&mut self, phase: &'static str) -> usize {
        let seen = self.injector.as_mut().and_then(|i| i.observe().ok()).unwrap_or_default();
        let signals = landing::sample(&self.scenario.landing);
        let at_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.timeline.push(Seen { at_ms, round: self.rounds.len(), phase, seen, signals });
        self.timeline.len() - 1
    }

    /// Waits until the injector's side shows it, not for a time; but no fault lasts longer than it should.
    fn wait_for_landing(&mut self, before: usize, until: Instant) {
        let until = until.min(Instant::now() + LANDING);
        while Instant::now() < until {
            let Some(injector) = self.injector.as_mut() else { return };
            let now = injector.observe().unwrap_or_default();
            if injector.landed(&self.timeline[before].seen, &now).0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn during(&mut self, until: Instant, armed: &mut Armed) {
        (self.options.tell)("the fault is active");
        let conditions = self.scenario.abort_when.clone();
        self.watch(1, until, |stage, slis| {
            let phases = Phases { of: vec![("during", slis)] };
            let met = conditions.iter().find(|c| sli::judge(c, &phases).is_ok_and(|j| j.holds == Some(true)));
            stage.aborted = met.map(|c| format!("the abort condition `{c}` was met"));
            if !armed.is_alive() {
                stage.aborted = Some("the dead man's switch was gone while the fault was active".into());
            }
            stage.aborted.is_some()
        });
    }

    fn judge_landing(&mut self, before: usize, during: usize) {
        let Some(injector) = &self.injector else { return };
        let Some(round) = self.rounds.last() else { return };
        let (before, during) = (&self.timeline[before], &self.timeline[during]);
        let shown = landing::judge(&landing::Seen {
            injector: injector.as_ref(),
            observed: (&before.seen, &during.seen),
            signals: &self.scenario.landing,
            samples: (&before.signals, &during.signals),
            slis: (&round.phases[0].slis, &round.phases[1].slis),
        });
        let round = self.round();
        round.landing = Some(landing::verdict(&shown));
        round.shown = shown;
    }

    /// Takes the fault back, always, and times it.
    fn revert(&mut self, armed: Armed) {
        (self.options.tell)("reverting");
        let began = Instant::now();
        let path = armed.journal().to_path_buf();
        let journal = Journal::read(&path);
        let mut rollback = Rollback { journal: Some(path.clone()), ..Rollback::default() };
        match journal {
            Err(why) => rollback.log.push(why),
            Ok(mut journal) => {
                rollback.gone = journal.revert("run");
                if rollback.gone {
                    if let Err(why) = armed.disarm(&journal) {
                        rollback.log.push(why);
                    }
                } else if let Ok(fired) = armed.fire("the run could not take the fault back") {
                    journal = fired;
                    // The switch may have been killed before it could fire.
                    if journal.state == State::Armed {
                        journal = switch::revert_by_hand(&path).unwrap_or(journal);
                    }
                    rollback.gone = journal.state == State::Reverted;
                }
                let told = journal
                    .log
                    .iter()
                    .flat_map(|e| e.done.iter().map(move |d| format!("{} ms, {}: {}", e.at_ms, e.who, d.how)));
                rollback.log.extend(told);
            }
        }
        rollback.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Some(running) = &self.running {
            running.fault_ends(&format!("stop-{}", self.named().0), "reverted");
        }
        self.round().rollback = Some(rollback);
    }

    /// Waits for recovery, and measures after: until the steady state holds, where another injection `follows`, else for as long as there is
    /// load.
    fn after(&mut self, follows: bool) {
        (self.options.tell)("measuring the steady state after");
        self.begin_phase();
        let began = Instant::now();
        let left = self.left().min(RECOVERY);
        let fault = self.injector.is_some();
        self.watch(2, began + left, |stage, _| {
            let holds = stage.round().phases[2].holds();
            if holds == Some(true) && fault && stage.round().recovered_in_ms.is_none() {
                let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                stage.round().recovered_in_ms = Some(took);
            }
            if holds == Some(false) {
                // What came before the recovery is not what comes after it.
                stage.begin_phase();
            }
            follows && holds == Some(true)
        });
    }

    pub(super) fn finish(&mut self, now: bool) -> Ended {
        (self.options.tell)("waiting for the workload");
        self.running.take().map(|r| r.end(now)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_history_goes_on_while_nobody_is_answered_if_it_ran_with_ours_before() {
        let second = 1_000_000_000;
        let mut pace = Pace::default();
        assert_eq!(pace.read((0, second / 10), 7 * second), 7 * second, "it began before ours");
        assert_eq!(
            pace.read((3 * second, 3 * second), 10 * second),
            10 * second,
            "what was read last, in the baseline"
        );
        pace.settle(3 * second, 10 * second);
        let blocked = pace.read((8 * second, 8 * second), 10 * second);
        assert_eq!(blocked, 15 * second - LATE, "five seconds later");
        assert_eq!(pace.read((9 * second, 9 * second), 16 * second), 16 * second);
        for (unit, last) in [("milliseconds", 3_000), ("one that stands", 0)] {
            let mut other = Pace::default();
            other.read((0, 0), 0);
            other.settle(3 * second, last);
            assert_eq!(other.read((8 * second, 8 * second), last), last, "{unit}");
        }
    }

    #[test]
    fn a_stepped_clock_and_a_machine_that_slept_are_told_apart() {
        let then = Clocks { real: 1000.0, monotonic: 10.0, boot: 20.0 };
        assert_eq!(Clocks { real: 1005.0, monotonic: 15.0, boot: 25.0 }.since(then), (0.0, 0.0));
        assert_eq!(Clocks { real: 1065.0, monotonic: 15.0, boot: 25.0 }.since(then), (60.0, 0.0), "a step");
        assert_eq!(Clocks { real: 1065.0, monotonic: 15.0, boot: 85.0 }.since(then), (60.0, 60.0), "a sleep");
    }
}
