//! The workload of a run: a built-in driver or a command, loading the system while everything else happens.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use elench_formats::Value;
use elench_formats::record::Recorder;
use serde::Serialize;

use crate::driver::operations::Kind;
use crate::driver::{self, Done, Driver, Load, Target};
use crate::experiment::scenario::{Scenario, Workload};

/// How long a command may go on after its time.
const GRACE: Duration = Duration::from_secs(20);
/// How long an answer may take, unless the scenario says otherwise.
const ANSWER: Duration = Duration::from_secs(5);

/// A workload that is ready to run.
pub(super) enum Ready {
    Driver(Box<dyn Driver>, Load),
    Command(String),
}

/// Makes a workload ready: connects nowhere yet, but tells what is wrong with it.
pub(super) fn ready(scenario: &Scenario, seed: u64) -> Result<Ready, String> {
    let Workload { driver, command, .. } = &scenario.workload;
    if let Some(command) = command {
        return Ok(Ready::Command(command.clone()));
    }
    let name = driver.as_deref().ok_or("the workload names neither a driver nor a command")?;
    let workload = &scenario.workload;
    let endpoints = match workload.endpoints.is_empty() {
        true => vec![scenario.target.clone()],
        false => workload.endpoints.clone(),
    };
    let target = Target {
        endpoints,
        timeout: patience(workload),
        isolation: workload.isolation.clone(),
        options: workload.options.clone(),
    };
    let driver = driver::named(name, target)?;
    let usual = driver.kinds()[0];
    let kind = match &workload.kind {
        None => usual,
        Some(name) => Kind::from_name(name).filter(|k| driver.kinds().contains(k)).ok_or_else(|| {
            let known: Vec<_> = driver.kinds().iter().map(|k| k.name()).collect();
            format!("the workload `{name}` is none of this driver's: {}", known.join(", "))
        })?,
    };
    let load = Load {
        kind,
        clients: workload.clients,
        duration: Duration::from_secs(workload.duration_sec),
        most: workload.most_ops.unwrap_or(u64::MAX),
        rate: workload.rate,
        keys: workload.keys,
        skew: workload.key_skew,
        seed,
    };
    Ok(Ready::Driver(driver, load))
}

/// How long an answer may take; what has been open for longer counts as unknown.
pub(super) fn patience(workload: &Workload) -> Duration {
    let given = workload.options.iter().find(|(name, _)| name == "timeout_ms").and_then(|(_, v)| v.parse().ok());
    given.map_or(ANSWER, Duration::from_millis)
}

/// A workload that runs.
pub(super) struct Running {
    /// Where its history grows.
    pub(super) history: PathBuf,
    begun: Instant,
    most: Duration,
    stop: Arc<AtomicBool>,
    work: Work,
}

enum Work {
    Driver(Arc<Recorder>, JoinHandle<Done>),
    Command(Child),
}

/// What a workload came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Ended {
    /// How long it ran.
    pub(super) seconds: f64,
    /// Connections that broke, of a driver.
    pub(super) broken: Option<u64>,
    /// Times that no connection could be made, of a driver.
    pub(super) refused: Option<u64>,
    /// What went wrong with it.
    pub(super) trouble: Option<String>,
}

impl Running {
    /// Starts it. A driver's raw history goes to `raw`, a command's to where the scenario says.
    /// `program` is Elench, which holds a command.
    pub(super) fn start(
        ready: Ready,
        scenario: &Scenario,
        raw: &Path,
        seed: u64,
        program: &Path,
    ) -> Result<Running, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let most = Duration::from_secs(scenario.workload.duration_sec);
        let (history, work) = match ready {
            Ready::Driver(driver, load) => {
                driver.prepare(load.kind, load.keys)?;
                let recorder = Recorder::create(raw).map_err(|e| format!("{}: cannot write: {e}", raw.display()))?;
                let recorder = Arc::new(recorder);
                let (theirs, told) = (recorder.clone(), stop.clone());
                let thread = std::thread::spawn(move || driver::load(driver.as_ref(), &load, &theirs, &told));
                (raw.to_path_buf(), Work::Driver(recorder, thread))
            }
            Ready::Command(command) => {
                let history = PathBuf::from(&scenario.history.path);
                set_aside(&history)?;
                (history, Work::Command(spawn(program, &command, scenario, raw, seed)?))
            }
        };
        Ok(Running { history, begun: Instant::now(), most, stop, work })
    }

    /// Marks the beginning of a fault in what a driver records.
    pub(super) fn fault_begins(&self, f: &str, what: &str) {
        if let Work::Driver(recorder, _) = &self.work {
            recorder.fault_begins(f, Value::str(what));
        }
    }

    /// Marks its end.
    pub(super) fn fault_ends(&self, f: &str, what: &str) {
        if let Work::Driver(recorder, _) = &self.work {
            recorder.fault_ends(f, Value::str(what));
        }
    }

    /// How many events a driver has recorded by now, and what time it is by the history's clock.
    pub(super) fn recorded(&self) -> Option<(u64, i64)> {
        match &self.work {
            // The time first: what is recorded in between is then missed in what is read, and not the other way round.
            Work::Driver(recorder, thread) if !thread.is_finished() => {
                let now = i64::try_from(recorder.elapsed().as_nanos()).unwrap_or(i64::MAX);
                Some((recorder.events(), now))
            }
            _ => None,
        }
    }

    /// Is the load over?
    pub(super) fn is_over(&mut self) -> bool {
        match &mut self.work {
            Work::Driver(_, thread) => thread.is_finished() || self.begun.elapsed() > self.most,
            Work::Command(child) => !matches!(child.try_wait(), Ok(None)),
        }
    }

    /// How much of its time is left.
    pub(super) fn left(&self) -> Duration {
        self.most.saturating_sub(self.begun.elapsed())
    }

    /// Waits for its end; `now`: asks it to end at once.
    pub(super) fn end(mut self, now: bool) -> Ended {
        self.stop.store(now, Ordering::Relaxed);
        let mut ended = Ended::default();
        match self.work {
            Work::Driver(recorder, thread) => {
                match thread.join() {
                    Ok(done) => (ended.broken, ended.refused) = (Some(done.broken), Some(done.refused)),
                    Err(_) => ended.trouble = Some("the driver panicked".into()),
                }
                match Arc::try_unwrap(recorder).map(Recorder::finish) {
                    Ok(Ok(_)) => {}
                    Ok(Err(e)) => ended.trouble = Some(format!("the history could not be written: {e}")),
                    Err(_) => ended.trouble = Some("the recorder is still held".into()),
                }
            }
            Work::Command(ref mut child) => {
                let until = Instant::now()
                    + if now { Duration::ZERO } else { self.most.saturating_sub(self.begun.elapsed()) + GRACE };
                ended.trouble = wait(child, until);
            }
        }
        ended.seconds = self.begun.elapsed().as_secs_f64();
        ended
    }
}

/// Waits for a command until a time; then it and all that it started are ended.
fn wait(child: &mut Child, until: Instant) -> Option<String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("the workload ended with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) => {
                // Whoever holds it kills all of it when the line ends.
                drop(child.stdin.take());
                let _ = child.wait();
                return Some("the workload did not end in time and was killed".into());
            }
            Err(e) => return Some(format!("the workload cannot be waited for: {e}")),
        }
    }
}

/// A history of an earlier run would be taken for this one's, or mixed with it: it is kept beside.
fn set_aside(history: &Path) -> Result<(), String> {
    if !history.exists() {
        return Ok(());
    }
    let mut earlier = history.as_os_str().to_os_string();
    earlier.push(".earlier");
    std::fs::rename(history, &earlier)
        .map_err(|e| format!("{}: an earlier history is there and cannot be set aside: {e}", history.display()))
}

fn spawn(program: &Path, command: &str, scenario: &Scenario, raw: &Path, seed: u64) -> Result<Child, String> {
    let path = raw.with_file_name("workload.log");
    let log = File::create(&path).map_err(|e| format!("{}: cannot write: {e}", path.display()))?;
    let errors = log.try_clone().map_err(|e| e.to_string())?;
    let workload = &scenario.workload;
    Command::new(program)
        .args(["hold", "--", command])
        .env("ELENCH_HISTORY", &scenario.history.path)
        .env("ELENCH_TARGET", &scenario.target)
        .env("ELENCH_SEED", seed.to_string())
        .env("ELENCH_CLIENTS", workload.clients.to_string())
        .env("ELENCH_DURATION_SEC", workload.duration_sec.to_string())
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{} hold `{command}`: {e}", program.display()))
}
