//! Moves the clocks of processes that were started under libfaketime.
//!
//! Each victim runs with the variables of [`environment`]: libfaketime reads a file before it answers what time it is, so that writing the file
//! moves the clock of a running process. A clock is moved by an offset, runs faster or slower by a rate, or both. Reverting writes what the
//! file held before (without a file: no offset, rate 1). libfaketime counts a rate from the start of the process, so a rate makes the clock of
//! an old process jump, too, and back when reverted.
//!
//! The cap bounds how many of the files are written. Landing is time read back: by a command of the scenario that asks the victim, else by a
//! probe process under the same file, which shows the file's effect but not that the victim was started under it; the state
//! `read by` tells which. Tool: libfaketime (Debian: faketime).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::tool::is_there;
use super::undo::{Step, Undo, replace_file, run};
use super::{Cap, Failed, Injector, Observation, Probe, Readiness};
use crate::experiment::front::{Complaint, Fields};
use crate::verdict::blame::FaultClass;

/// A clock that is right.
const NEUTRAL: &str = "+0 x1\n";
/// Between two readings that a rate is measured by.
const SPAN: Duration = Duration::from_millis(1000);
/// Seconds by which a reading may miss what is wanted: a command takes a while to ask.
const SLACK: f64 = 0.5;

/// What a scenario says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// The files that victims were started under (`FAKETIME_TIMESTAMP_FILE`), one per victim.
    pub file: Vec<String>,
    /// Seconds that are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_sec: Option<f64>,
    /// How fast time goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Prints the victim's time, in seconds since 1970; run with `ELENCH_CLOCK_FILE` set to the victim's file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
}

impl Spec {
    pub(super) fn take(fields: &mut Fields<'_>, wrong: &mut Vec<Complaint>) -> Option<Spec> {
        let file = fields.texts("file", wrong).unwrap_or_default();
        if file.is_empty() || file.iter().any(|f| !Path::new(f).is_absolute()) {
            wrong.push(fields.wrong("file", None, "names the files that victims were started under, by whole paths"));
        }
        let (offset_sec, rate) = (fields.number("offset_sec", wrong), fields.number("rate", wrong));
        if rate.is_some_and(|r| !(0.001..=1000.0).contains(&r)) {
            wrong.push(fields.wrong("rate", None, "is a factor from 0.001 to 1000"));
        }
        if offset_sec.is_some_and(|o| o.abs() > 1e9) {
            wrong.push(fields.wrong("offset_sec", None, "is a billion seconds at most"));
        }
        let moves = offset_sec.is_some_and(|o| o.abs() >= 2.0 * SLACK);
        let turns = rate.is_some_and(|r| (r - 1.0).abs() >= 0.1);
        if !moves && !turns {
            let least = 2.0 * SLACK;
            wrong.push(fields.wrong(
                "offset_sec",
                None,
                format_args!("or `rate` is missing, or too small to be seen: {least} s or a rate that differs by 0.1"),
            ));
        }
        let read = fields.texts("read", wrong).unwrap_or_default();
        let read = match read.as_slice() {
            [line] => ["sh", "-c", line].map(String::from).to_vec(),
            _ => read,
        };
        Some(Spec { file, offset_sec, rate, read })
    }

    pub(super) fn class(&self) -> FaultClass {
        FaultClass::Pause
    }

    /// The line that libfaketime reads.
    fn line(&self) -> String {
        format!("{:+} x{}\n", self.offset_sec.unwrap_or(0.0), self.rate.unwrap_or(1.0))
    }
}

/// The library that makes a process ask the file, if it is there.
pub fn library() -> Option<PathBuf> {
    let places = [
        "/usr/lib/x86_64-linux-gnu/faketime",
        "/usr/lib/aarch64-linux-gnu/faketime",
        "/usr/lib64/faketime",
        "/usr/lib/faketime",
        "/usr/local/lib/faketime",
    ];
    places.iter().map(|dir| Path::new(dir).join("libfaketimeMT.so.1")).find(|path| path.is_file())
}

/// What a process needs in its environment so that a file moves its clock; `None` without libfaketime.
pub fn environment(file: &Path) -> Option<Vec<(String, String)>> {
    let pairs = [
        ("LD_PRELOAD", library()?.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        // Else a process looks at the file every ten seconds only.
        ("FAKETIME_NO_CACHE", "1".into()),
    ];
    Some(pairs.map(|(name, value)| (name.to_string(), value)).to_vec())
}

/// The injector.
#[derive(Debug)]
pub struct Clock {
    spec: Spec,
    listed: usize,
    /// Files that are written, with what they held before.
    victims: Vec<(PathBuf, String)>,
}

/// A clock against ours.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Seconds that it is ahead.
    skew: f64,
    /// How fast it goes.
    rate: f64,
}

impl Clock {
    pub(super) fn prepare(spec: &Spec, cap: Cap) -> Result<Clock, String> {
        let mut victims = Vec::new();
        for file in &spec.file[..cap.of(spec.file.len())] {
            let path = PathBuf::from(file);
            let held = match std::fs::read_to_string(&path) {
                Ok(text) if text.len() <= 64 && text.trim_start().starts_with(['+', '-']) => text,
                // The probe of whoever started the victim, or nothing yet.
                Ok(text) if text.trim().is_empty() => NEUTRAL.into(),
                Ok(_) => {
                    return Err(format!("{file}: is there and holds no offset of libfaketime, so it is left alone"));
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => NEUTRAL.into(),
                Err(e) => return Err(format!("{file}: cannot read: {e}")),
            };
            // Without a rate, libfaketime would go on with the one that it read last.
            let held = if held.contains('x') { held } else { format!("{} x1\n", held.trim()) };
            victims.push((path, held));
        }
        Ok(Clock { spec: spec.clone(), listed: spec.file.len(), victims })
    }

    fn read(&self, file: &Path) -> Result<Reading, String> {
        if self.spec.read.is_empty() {
            return probe_process(file);
        }
        let ask = || {
            let at = format!("ELENCH_CLOCK_FILE={}", file.display());
            let argv: Vec<String> = ["env".to_string(), at].into_iter().chain(self.spec.read.iter().cloned()).collect();
            let before = now();
            let text = run(&argv)?;
            let ours = (before + now()) / 2.0;
            let theirs: f64 = text.trim().parse().map_err(|_| format!("`{}` is no time in seconds", text.trim()))?;
            Ok::<_, String>((ours, theirs))
        };
        let first = ask()?;
        if self.spec.rate.is_none() {
            return Ok(Reading { skew: first.1 - first.0, rate: 1.0 });
        }
        std::thread::sleep(SPAN);
        let second = ask()?;
        Ok(Reading { skew: first.1 - first.0, rate: (second.1 - first.1) / (second.0 - first.0).max(0.001) })
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Asks a process of our own under the file: `date` answers each line that it reads with the time of that moment.
fn probe_process(file: &Path) -> Result<Reading, String> {
    let environment = environment(file).ok_or("libfaketime is not there")?;
    let mut child = Command::new("date")
        .args(["-u", "-f", "-", "+%s.%N"])
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("date: {e}"))?;
    let mut ours = Vec::new();
    if let Some(mut pipe) = child.stdin.take() {
        // The first is asked before the process has started; only the others are timed well.
        for pause in [Duration::ZERO, Duration::from_millis(200), SPAN] {
            std::thread::sleep(pause);
            ours.push((now(), Instant::now()));
            pipe.write_all(b"now\n").map_err(|e| format!("date: {e}"))?;
        }
    }
    let out = child.wait_with_output().map_err(|e| format!("date: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let theirs: Vec<f64> = text.lines().filter_map(|l| l.trim().parse().ok()).collect();
    match (theirs.as_slice(), ours.as_slice()) {
        ([_, a, b], [_, at, then]) => {
            let span = then.1.duration_since(at.1).as_secs_f64();
            Ok(Reading { skew: a - at.0, rate: (b - a) / span.max(0.001) })
        }
        _ => Err(format!("date answered `{}`, which is no three times", text.trim())),
    }
}

impl Injector for Clock {
    fn probe(&self) -> Probe {
        let unwritable = self
            .victims
            .iter()
            .map(|(file, _)| file.parent().unwrap_or(Path::new("/")))
            .find(|dir| nix::unistd::access(*dir, nix::unistd::AccessFlags::W_OK).is_err());
        let state = match (library(), unwritable) {
            (None, _) => Readiness::Missing("libfaketime is not there: install the Debian package faketime".into()),
            _ if !is_there("date") => {
                Readiness::Missing("`date` is not there: install the Debian package coreutils".into())
            }
            (_, Some(dir)) => Readiness::Unprivileged(format!("{} may not be written to", dir.display())),
            _ => Readiness::Ready,
        };
        Probe { injector: "clock", state, version: library().map(|p| p.display().to_string()) }
    }

    fn plan(&self) -> Vec<String> {
        let line = self.spec.line();
        self.victims.iter().map(|(file, _)| format!("echo '{}' > {}", line.trim(), file.display())).collect()
    }

    fn undo(&self) -> Undo {
        let write = |(path, text): &(PathBuf, String)| Step::Write { path: path.clone(), text: text.clone() };
        let what = format!("clocks moved by {}", self.spec.line().trim());
        Undo { what, steps: self.victims.iter().map(write).collect() }
    }

    fn inject(&mut self) -> Result<(), Failed> {
        let line = self.spec.line();
        self.victims.iter().try_for_each(|(file, _)| replace_file(file, &line)).map_err(Failed)
    }

    fn observe(&mut self) -> Result<Observation, Failed> {
        let mut out = Observation::default();
        out.counters.insert("listed".into(), self.listed as f64);
        out.counters.insert("victims".into(), self.victims.len() as f64);
        let by = if self.spec.read.is_empty() { "a process under the same file" } else { "the victim" };
        out.states.insert("read by".into(), by.into());
        for (file, _) in &self.victims {
            let reading = self.read(file).map_err(Failed)?;
            out.counters.insert(format!("skew of {} in s", file.display()), reading.skew);
            out.counters.insert(format!("rate of {}", file.display()), reading.rate);
        }
        Ok(out)
    }

    fn landed(&self, before: &Observation, during: &Observation) -> (bool, String) {
        let mut all = !self.victims.is_empty();
        let mut said = Vec::new();
        for (file, _) in &self.victims {
            let of = |o: &Observation, name: String| o.counters.get(&name).copied().unwrap_or(f64::NAN);
            let (skew, rate) = (format!("skew of {} in s", file.display()), format!("rate of {}", file.display()));
            let moved = of(during, skew.clone()) - of(before, skew.clone());
            let turned = of(during, rate.clone()) - of(before, rate.clone());
            // A rate moves a clock, too: by how much depends on how old the process is.
            let right = match (self.spec.offset_sec, self.spec.rate) {
                (_, Some(wanted)) => (turned - (wanted - 1.0)).abs() <= (wanted - 1.0).abs() / 2.0,
                (Some(wanted), None) => (moved - wanted).abs() <= SLACK.max(wanted.abs() / 100.0),
                (None, None) => false,
            };
            // Not a number is never right.
            all &= right;
            said.push(format!("{skew}: moved by {moved:.3}, {rate}: changed by {turned:.3}"));
        }
        (all, said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdin, ChildStdout};

    use super::*;

    fn spec(files: &[&Path], offset_sec: Option<f64>, rate: Option<f64>) -> Spec {
        Spec { file: files.iter().map(|f| f.display().to_string()).collect(), offset_sec, rate, read: vec![] }
    }

    fn clock(spec: &Spec) -> Option<Clock> {
        if library().is_none() {
            eprintln!("SKIPPED: no libfaketime here");
            return None;
        }
        let clock = Clock::prepare(spec, Cap { percent: 50 }).unwrap();
        assert_eq!(clock.probe().state, Readiness::Ready);
        Some(clock)
    }

    /// A process that lives through the fault and tells its time when asked.
    struct Teller {
        child: Child,
        asks: ChildStdin,
        tells: BufReader<ChildStdout>,
    }

    impl Teller {
        /// `None`, loudly, without Python.
        fn start(file: &Path) -> Option<Teller> {
            let program = "import sys, time\nfor line in sys.stdin:\n    print(time.time(), flush=True)";
            let mut child = Command::new("python3")
                .args(["-c", program])
                .envs(environment(file)?)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .inspect_err(|e| eprintln!("SKIPPED: no python3 here: {e}"))
                .ok()?;
            let (asks, tells) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
            Some(Teller { child, asks, tells })
        }

        /// Seconds that it is ahead of us.
        fn skew(&mut self) -> f64 {
            self.asks.write_all(b"\n").unwrap();
            let mut line = String::new();
            self.tells.read_line(&mut line).unwrap();
            line.trim().parse::<f64>().unwrap() - now()
        }
    }

    impl Drop for Teller {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn an_offset_reaches_a_process_that_runs_already_and_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n1.rc");
        let Some(mut clock) = clock(&spec(&[&file], Some(-100.0), None)) else { return };
        let Some(mut victim) = Teller::start(&file) else { return };
        assert!(victim.skew().abs() < 5.0);
        let before = clock.observe().unwrap();
        clock.inject().unwrap();
        let during = clock.observe().unwrap();
        assert!((victim.skew() + 100.0).abs() < 5.0);
        let (landed, words) = clock.landed(&before, &during);
        assert!(landed, "{words}");
        for _ in 0..2 {
            assert!(clock.undo().carry_out().iter().all(|d| d.gone));
            assert!(victim.skew().abs() < 5.0);
        }
        let seen = clock.observe().unwrap();
        assert!(!clock.landed(&before, &seen).0);
    }

    #[test]
    fn a_rate_is_measured_and_gone_after_the_revert() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n1.rc");
        let Some(mut clock) = clock(&spec(&[&file], None, Some(3.0))) else { return };
        let before = clock.observe().unwrap();
        clock.inject().unwrap();
        let seen = clock.observe().unwrap();
        let (landed, words) = clock.landed(&before, &seen);
        assert!(landed, "{words}");
        clock.undo().carry_out();
        let seen = clock.observe().unwrap();
        assert!(!clock.landed(&before, &seen).0);
    }

    #[test]
    fn a_victim_that_does_not_ask_the_file_has_not_moved() {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = spec(&[&dir.path().join("n1.rc")], Some(100.0), None);
        spec.read = ["date", "+%s.%N"].map(String::from).to_vec();
        let Some(mut clock) = clock(&spec) else { return };
        let before = clock.observe().unwrap();
        clock.inject().unwrap();
        let during = clock.observe().unwrap();
        assert_eq!(during.states["read by"], "the victim");
        let (landed, words) = clock.landed(&before, &during);
        assert!(!landed, "the file says so, the victim does not: {words}");
    }

    #[test]
    fn what_a_file_held_comes_back_and_a_file_of_another_kind_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c"].map(|n| dir.path().join(n));
        std::fs::write(&files[0], "+7\n").unwrap();
        let all = spec(&[&files[0], &files[1], &files[2]], Some(60.0), None);
        let mut clock = Clock::prepare(&all, Cap { percent: 67 }).unwrap();
        clock.inject().unwrap();
        assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), "+60 x1\n");
        assert!(!files[2].exists(), "the cap leaves the third alone");
        clock.undo().carry_out();
        assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), "+7 x1\n");
        assert_eq!(std::fs::read_to_string(&files[1]).unwrap(), NEUTRAL);
        std::fs::write(&files[0], "root:x:0:0\n").unwrap();
        assert!(Clock::prepare(&all, Cap { percent: 34 }).unwrap_err().contains("left alone"));
    }
}
