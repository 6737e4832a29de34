//! The dead man's switch: a process of its own that takes a fault back when nobody else does.
//!
//! Before anything is injected, a [`Journal`] with the whole [`Undo`] is on disk, synced, and a switch has said that it read it. It
//! fires when its timer is over, when it is told to abort, and when its standard input ends: that is when the run died, however it
//! died. A run that took its fault back itself tells it so. Its timer counts the time that a machine sleeps, too. It ignores what a
//! closing terminal sends, and sits in a session of its own.
//!
//! A command that was injecting when the run was killed may end after the first revert, so whoever fires for a dead run carries the undo out
//! again until two looks in a row find the fault gone.
//!
//! `elench revert` does the same by hand, also after a reboot: a journal knows the boot that it belongs to, and processes of another
//! boot are none of ours.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::injector::undo::{Done, Step, Undo};

/// What stands in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The version of this form.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// The boot of the machine that it belongs to.
    pub boot_id: String,
    /// What takes the fault back.
    pub undo: Undo,
    /// When it must be gone, in milliseconds since the boot, sleep included.
    pub deadline_ms: u64,
    /// What became of it.
    pub state: State,
    /// What was done and seen, in order.
    pub log: Vec<Entry>,
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It may be there.
    Armed,
    /// It is gone, as observed.
    Reverted,
    /// It could not be taken back.
    Stuck,
}

/// A line of a journal's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since the boot.
    pub at_ms: u64,
    /// Who acted: `run`, `switch` or `revert`, and why.
    pub who: String,
    /// What came of each step.
    pub done: Vec<Done>,
}

/// Milliseconds since the machine was started, those it slept included.
pub fn since_boot_ms() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |t| t.tv_sec() as u64 * 1000 + t.tv_nsec() as u64 / 1_000_000)
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

impl Journal {
    /// Of a fault that must be gone after so long.
    pub fn new(run_id: &str, undo: Undo, within: Duration) -> Journal {
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        Journal {
            version: 1,
            run_id: run_id.to_string(),
            boot_id: boot_id(),
            undo,
            deadline_ms: since_boot_ms().saturating_add(within),
            state: State::Armed,
            log: Vec::new(),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is not there, or none.
    pub fn read(path: &Path) -> Result<Journal, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: cannot read: {e}", path.display()))?;
        let journal: Journal =
            serde_json::from_str(&text).map_err(|e| format!("{}: is no undo journal: {e}", path.display()))?;
        if journal.version != 1 {
            return Err(format!("{}: is a journal of version {}, this knows 1", path.display(), journal.version));
        }
        Ok(journal)
    }

    /// Writes it so that it is there whole, or as it was, also when the machine stops now.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let next = path.with_extension("next");
        let mut file = File::create(&next)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(&next, path)?;
        match path.parent().filter(|p| !p.as_os_str().is_empty()) {
            Some(dir) => File::open(dir)?.sync_all(),
            None => File::open(".")?.sync_all(),
        }
    }

    /// Takes the fault back, once, and notes what came of it.
    pub fn revert(&mut self, who: &str) -> bool {
        let done: Vec<Done> = self.undo.steps.iter().map(|step| self.carry_out(step)).collect();
        let gone = done.iter().all(|d| d.gone);
        self.state = if gone { State::Reverted } else { State::Stuck };
        self.log.push(Entry { at_ms: since_boot_ms(), who: who.to_string(), done });
        gone
    }

    fn carry_out(&self, step: &Step) -> Done {
        match step {
            Step::Continue(victim) if self.boot_id != boot_id() => {
                let how = format!("process {} was of another boot of this machine, so it is not stopped", victim.pid);
                Done { gone: true, how }
            }
            step => step.carry_out(),
        }
    }
}

/// A switch that watches over us.
#[derive(Debug)]
pub struct Armed {
    child: Child,
    line: Option<ChildStdin>,
    path: PathBuf,
}

/// Starts a switch for a journal, which is on disk when this returns, and waits until it says that it is armed.
///
/// # Errors
/// The journal cannot be written, or the switch does not start.
pub fn arm(program: &Path, journal: &Journal, path: &Path) -> Result<Armed, String> {
    journal.write(path).map_err(|e| format!("{}: cannot write the undo journal: {e}", path.display()))?;
    let mut child = Command::new(program)
        .arg("switch")
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: cannot start the dead man's switch: {e}", program.display()))?;
    let line = child.stdin.take();
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out.take(64)).read_line(&mut said);
    }
    if said.trim() != "armed" || line.is_none() {
        let _ = child.kill();
        let _ = child.wait();
        return Err("the dead man's switch did not say that it is armed".into());
    }
    Ok(Armed { child, line, path: path.to_path_buf() })
}

impl Armed {
    /// Is the switch still there? Nothing may be injected without one.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Where its journal lies.
    pub fn journal(&self) -> &Path {
        &self.path
    }

    /// Tells it that the fault was taken back, with the journal that says so.
    ///
    /// # Errors
    /// The journal cannot be written; then the switch fires.
    pub fn disarm(mut self, journal: &Journal) -> Result<(), String> {
        journal.write(&self.path).map_err(|e| format!("{}: cannot write: {e}", self.path.display()))?;
        if let Some(mut line) = self.line.take() {
            let _ = line.write_all(b"done\n");
        }
        let _ = self.child.wait();
        Ok(())
    }

    /// Tells it to fire, and waits until it has.
    ///
    /// # Errors
    /// The journal that it leaves cannot be read.
    pub fn fire(mut self, why: &str) -> Result<Journal, String> {
        if let Some(mut line) = self.line.take() {
            let _ = writeln!(line, "abort {}", why.replace('\n', " "));
        }
        let _ = self.child.wait();
        Journal::read(&self.path)
    }
}

/// Why a switch fired.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fired {
    Disarmed,
    Timer,
    Orphaned,
    Asked(String),
}

/// How often a switch looks at its clock.
const TICK: u16 = 100;
/// Between two looks at a fault that should be gone.
const SETTLE: Duration = Duration::from_millis(300);
/// For how long a revert is tried.
const TRYING: Duration = Duration::from_secs(30);

/// What `elench switch` does: watches over a journal until it is told that all is well, or fires. Gives whether the fault is gone.
///
/// # Errors
/// The journal cannot be read.
pub fn watch(path: &Path) -> Result<bool, String> {
    let mut journal = Journal::read(path)?;
    leave_the_terminal();
    let mut out = io::stdout();
    let _ = out.write_all(b"armed\n").and_then(|()| out.flush());
    match wait(journal.deadline_ms) {
        Fired::Disarmed => Ok(true),
        Fired::Timer => Ok(fire(&mut journal, path, "switch: the timer was over")),
        Fired::Orphaned => Ok(fire(&mut journal, path, "switch: the run was gone")),
        Fired::Asked(why) => Ok(fire(&mut journal, path, &format!("switch: {why}"))),
    }
}

/// Reverts until two looks in a row find the fault gone: a command that was injecting when the run died may end in between. Until then the
/// journal does not say that it is reverted, so that it is found again if we are killed, too.
fn fire(journal: &mut Journal, path: &Path, who: &str) -> bool {
    let until = Instant::now() + TRYING;
    let mut before = false;
    loop {
        let now = journal.revert(who);
        let (settled, late) = (before && now, Instant::now() > until);
        if now && !settled {
            journal.state = if late { State::Stuck } else { State::Armed };
        }
        let _ = journal.write(path);
        if settled || late {
            return settled;
        }
        before = now;
        std::thread::sleep(SETTLE);
    }
}

/// What a closing terminal sends is ignored from here on.
pub(super) fn leave_the_terminal() {
    let _ = nix::unistd::setsid();
    for sent in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGPIPE, Signal::SIGTSTP] {
        // SAFETY: ignoring a signal installs no handler, so no code runs in a signal's context.
        let _ = unsafe { signal(sent, SigHandler::SigIgn) };
    }
}

/// Waits for word, the end of the line, or the timer.
fn wait(deadline_ms: u64) -> Fired {
    let input = io::stdin();
    let mut said = Vec::new();
    loop {
        if since_boot_ms() >= deadline_ms {
            return Fired::Timer;
        }
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(TICK)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(_) => return Fired::Orphaned,
        }
        let mut buffer = [0; 256];
        match nix::unistd::read(input.as_fd(), &mut buffer) {
            Ok(0) | Err(_) => return Fired::Orphaned,
            Ok(n) => said.extend_from_slice(&buffer[..n]),
        }
        if let Some(end) = said.iter().position(|b| *b == b'\n') {
            let word = String::from_utf8_lossy(&said[..end]).into_owned();
            return match word.strip_prefix("abort") {
                Some(why) => Fired::Asked(why.trim().to_string()),
                None if word == "done" => Fired::Disarmed,
                None => Fired::Asked(format!("`{word}` is no word that a switch knows")),
            };
        }
    }
}

/// Takes a fault back by hand, as often as it takes. Gives the journal as it is then.
///
/// # Errors
/// The journal cannot be read.
pub fn revert_by_hand(path: &Path) -> Result<Journal, String> {
    let mut journal = Journal::read(path)?;
    fire(&mut journal, path, "revert: by hand");
    journal.write(path).map_err(|e| format!("{}: cannot write: {e}", path.display()))?;
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::injector::undo::Victim;

    fn journal(steps: Vec<Step>) -> Journal {
        Journal::new("r1", Undo { what: "it".into(), steps }, Duration::from_secs(5))
    }

    fn run(words: &str) -> Step {
        Step::Run { argv: words.split_whitespace().map(String::from).collect(), check: vec![] }
    }

    #[test]
    fn a_journal_is_read_back_as_it_was_written_and_a_torn_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r1.json");
        let written = journal(vec![run("true")]);
        written.write(&path).unwrap();
        assert_eq!(Journal::read(&path).unwrap(), written);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(Journal::read(&path).unwrap_err().contains("no undo journal"));
    }

    #[test]
    fn a_revert_that_fails_is_stuck_and_says_what_failed() {
        let mut stuck = journal(vec![run("true"), run("false")]);
        assert!(!stuck.revert("revert"));
        assert_eq!(stuck.state, State::Stuck);
        assert!(stuck.log[0].done[0].gone && !stuck.log[0].done[1].gone);
        let mut fine = journal(vec![run("true")]);
        assert!(fine.revert("revert") && fine.revert("revert"));
        assert_eq!((fine.state, fine.log.len()), (State::Reverted, 2));
    }

    #[test]
    fn a_fault_that_comes_back_after_the_first_look_is_taken_back_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = (dir.path().join("r1.json"), dir.path().join("broken"));
        let late = file.clone();
        let injecting = std::thread::spawn(move || {
            std::thread::sleep(SETTLE / 2);
            std::fs::write(late, "").unwrap();
        });
        journal(vec![Step::Remove(file.clone())]).write(&path).unwrap();
        let left = revert_by_hand(&path).unwrap();
        injecting.join().unwrap();
        assert_eq!(left.state, State::Reverted);
        assert!(!file.exists() && left.log.len() >= 2, "{:?}", left.log);
    }

    #[test]
    fn a_process_of_another_boot_is_none_of_ours() {
        let me = Victim::of(std::process::id() as i32).unwrap();
        let mut old = journal(vec![Step::Continue(me)]);
        old.boot_id = "another".into();
        assert!(old.revert("revert"));
        assert!(old.log[0].done[0].how.contains("another boot"));
    }
}
