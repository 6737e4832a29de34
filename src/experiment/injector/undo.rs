//! What takes a fault back, written so that any process can do it.
//!
//! An [`Undo`] is steps of few kinds, each with a check that observes whether the fault is gone. It is journalled before the fault is
//! injected, and carried out by the run itself, by the dead man's switch, or by hand with `elench revert`. Carrying it out again is
//! harmless.

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Seconds that one step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What takes a fault back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// What it takes back, for a person.
    pub what: String,
    /// In this order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Lets a stopped process go on, if it is still the one that was stopped.
    Continue(Victim),
    /// Runs a command, then another whose success shows that the fault is gone.
    Run {
        /// The command and its arguments; no shell.
        argv: Vec<String>,
        /// Succeeds when the fault is gone. Empty: the first command's success says so.
        check: Vec<String>,
    },
    /// Runs a command without waiting for it: a server that is started again.
    Start {
        /// The command and its arguments; no shell.
        argv: Vec<String>,
        /// Succeeds when it is there.
        check: Vec<String>,
    },
    /// Removes a file.
    Remove(PathBuf),
    /// Runs commands whose success proves nothing, then lists what is there: the fault is gone when the list can be read and does not
    /// hold its name.
    Drop {
        /// The commands and their arguments; no shell.
        commands: Vec<Vec<String>>,
        /// Lists what is there.
        list: Vec<String>,
        /// The name, as a word of the list.
        name: String,
        /// What the fault lives in: where this file is gone, so is the fault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<PathBuf>,
    },
    /// Makes a file hold a text, at once for whoever reads it.
    Write {
        /// The file.
        path: PathBuf,
        /// What it holds then.
        text: String,
    },
    /// Asks a server to take something back, then reads from it whether it did.
    Http(Ask),
}

/// A request that takes something back, and one that shows that it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// `DELETE`, `POST`, …
    pub method: String,
    /// Where.
    pub url: String,
    /// JSON that is sent; empty: nothing.
    pub body: String,
    /// What is read afterwards, by GET.
    pub look: String,
    /// What shows there that it is gone.
    pub gone: Gone,
    /// The process with which the fault dies. While none is named, a server that does not answer proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Victim>,
}

/// What shows that a fault is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gone {
    /// What is looked at is not there: status 404.
    Missing,
    /// A value of the JSON that is looked at.
    Holds {
        /// Where in it (RFC 6901).
        pointer: String,
        /// What stands there.
        value: serde_json::Value,
    },
}

/// A process that must not be confused with a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Victim {
    /// Its number.
    pub pid: i32,
    /// When it began, in clock ticks since the machine did (`/proc/PID/stat`, field 22).
    pub started: u64,
}

impl Victim {
    /// The process that has this number now.
    pub fn of(pid: i32) -> Option<Victim> {
        stat(pid).map(|s| Victim { pid, started: s.started })
    }

    /// Its state now: `R`, `S`, `T`, …; none when it is gone.
    pub fn state(self) -> Option<char> {
        stat(self.pid).filter(|s| s.started == self.started).map(|s| s.state)
    }

    /// CPU time that it has used, in clock ticks; none when it is gone.
    pub fn cpu_ticks(self) -> Option<u64> {
        stat(self.pid).filter(|s| s.started == self.started).map(|s| s.cpu)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone, or may not be signalled.
    pub fn signal(self, signal: Signal) -> Result<(), String> {
        if self.state().is_none() {
            return Err(format!("process {} is gone", self.pid));
        }
        kill(Pid::from_raw(self.pid), signal).map_err(|e| format!("process {}: {e}", self.pid))
    }
}

struct Stat {
    state: char,
    started: u64,
    cpu: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses: what counts stands after the last one.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(Stat { state: fields.first()?.chars().next()?, started: number(19)?, cpu: number(11)? + number(12)? })
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Is the fault gone, as observed?
    pub gone: bool,
    /// What was done and seen.
    pub how: String,
}

impl Undo {
    /// Carries everything out, whatever fails on the way.
    pub fn carry_out(&self) -> Vec<Done> {
        self.steps.iter().map(Step::carry_out).collect()
    }
}

impl fmt::Display for Step {
    /// As it would be typed, for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = |f: &mut fmt::Formatter<'_>, check: &[String]| match check {
            [] => Ok(()),
            check => write!(f, "; then `{}` must succeed", typed(check)),
        };
        match self {
            Step::Continue(victim) => write!(f, "kill -CONT {}; then its state must not be T", victim.pid),
            Step::Run { argv, check } => write!(f, "{}", typed(argv)).and_then(|()| checked(f, check)),
            Step::Start { argv, check } => write!(f, "{} &", typed(argv)).and_then(|()| checked(f, check)),
            Step::Remove(path) => write!(f, "rm -f {}", path.display()),
            Step::Drop { commands, list, name, .. } => {
                let commands: Vec<String> = commands.iter().map(|c| typed(c)).collect();
                write!(f, "{}; then `{}` must not list {name}", commands.join("; "), typed(list))
            }
            Step::Write { path, text } => write!(f, "write `{}` to {}", text.trim(), path.display()),
            Step::Http(ask) => write!(f, "{} {}; then GET {} must show that it is gone", ask.method, ask.url, ask.look),
        }
    }
}

/// A command as it would be typed into a shell.
pub fn typed(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let word = |w: &String| match !w.is_empty() && w.chars().all(plain) {
        true => w.clone(),
        false => format!("'{}'", w.replace('\'', r"'\''")),
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

impl Step {
    /// Carries it out, and observes.
    pub fn carry_out(&self) -> Done {
        match self {
            Step::Continue(victim) => go_on(*victim),
            Step::Run { argv, check } => run_and_check(argv, check),
            Step::Start { argv, check } => start(argv, check),
            Step::Remove(path) => {
                let gone = match std::fs::remove_file(path) {
                    Ok(()) => true,
                    Err(e) => e.kind() == std::io::ErrorKind::NotFound,
                };
                Done { gone, how: format!("removed {}", path.display()) }
            }
            Step::Http(ask) => ask.carry_out(),
            Step::Drop { commands, list, name, place } => drop_and_list(commands, list, name, place.as_deref()),
            Step::Write { path, .. } if path.parent().is_some_and(|dir| matches!(dir.try_exists(), Ok(false))) => {
                Done { gone: true, how: format!("the directory of {} is gone, and what it held", path.display()) }
            }
            Step::Write { path, text } => match replace_file(path, text) {
                Ok(()) => Done { gone: true, how: format!("{} holds `{}`", path.display(), text.trim()) },
                Err(why) => Done { gone: false, how: why },
            },
        }
    }
}

impl Ask {
    fn carry_out(&self) -> Done {
        // That the request failed says little: the fault may have been gone before. What is observed counts.
        let asked = http(&self.method, &self.url, &self.body);
        let seen = http("GET", &self.look, "");
        let owner_ended = |owner: &Victim| matches!(owner.state(), None | Some('Z' | 'X'));
        if let Some(owner) = self.owner.filter(owner_ended) {
            return Done { gone: true, how: format!("process {} is gone, and the fault with it", owner.pid) };
        }
        let wanted = match &self.gone {
            Gone::Missing => "is not there".to_string(),
            Gone::Holds { pointer, value } => format!("holds {value} at {pointer}"),
        };
        let gone = match (&seen, &self.gone) {
            (Ok((404, _)), Gone::Missing) => true,
            (Ok((200, text)), Gone::Holds { pointer, value }) => {
                serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.pointer(pointer) == Some(value))
            }
            _ => false,
        };
        let said = |answer: Result<(u16, String), String>| match answer {
            Ok((status, text)) => format!("{status} {}", text.trim().chars().take(200).collect::<String>()),
            Err(why) => why,
        };
        let verb = format!("{} {}", self.method, self.url);
        let how = match gone {
            true => format!("{verb}; {} {wanted}", self.look),
            false => format!("{verb}: {}; it should be that {} {wanted}, but: {}", said(asked), self.look, said(seen)),
        };
        Done { gone, how }
    }
}

/// One request, within the time that a step may take; the status and the text of the answer.
///
/// # Errors
/// No answer.
pub fn http(method: &str, url: &str, body: &str) -> Result<(u16, String), String> {
    let method = match method {
        "GET" => minreq::Method::Get,
        "POST" => minreq::Method::Post,
        "PATCH" => minreq::Method::Patch,
        "DELETE" => minreq::Method::Delete,
        other => return Err(format!("`{other}` is no method that is used here")),
    };
    let mut request = minreq::Request::new(method, url).with_timeout(PATIENCE.as_secs()).with_follow_redirects(false);
    if !body.is_empty() {
        request = request.with_header("Content-Type", "application/json").with_body(body);
    }
    let response = request.send().map_err(|e| format!("{url}: {e}"))?;
    let text = response.as_str().map_err(|e| format!("{url}: an answer that is no text: {e}"))?;
    Ok((response.status_code, text.to_string()))
}

fn go_on(victim: Victim) -> Done {
    let Victim { pid, .. } = victim;
    if victim.state().is_none() {
        return Done { gone: true, how: format!("process {pid} is gone, so it is not stopped") };
    }
    if let Err(why) = victim.signal(Signal::SIGCONT) {
        return Done { gone: false, how: why };
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match victim.state() {
            Some('T' | 't') if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Some(state @ ('T' | 't')) => {
                return Done { gone: false, how: format!("process {pid} is still stopped ({state})") };
            }
            Some(state) => return Done { gone: true, how: format!("process {pid} goes on ({state})") },
            None => return Done { gone: true, how: format!("process {pid} is gone, so it is not stopped") },
        }
    }
}

fn run_and_check(argv: &[String], check: &[String]) -> Done {
    let ran = run(argv);
    if check.is_empty() {
        return match ran {
            Ok(_) => Done { gone: true, how: argv.join(" ") },
            Err(why) => Done { gone: false, how: why },
        };
    }
    // That the command failed says little: the fault may have been gone before. What is observed counts.
    match run(check) {
        Ok(_) => Done { gone: true, how: format!("{}; {} holds", argv.join(" "), check.join(" ")) },
        Err(why) => {
            let first = ran.err().map_or(String::new(), |e| format!("{e}; "));
            Done { gone: false, how: format!("{first}{why}") }
        }
    }
}

fn drop_and_list(commands: &[Vec<String>], list: &[String], name: &str, place: Option<&Path>) -> Done {
    if let Some(place) = place.filter(|p| matches!(p.try_exists(), Ok(false))) {
        return Done { gone: true, how: format!("{} is gone, and {name} with it", place.display()) };
    }
    let failed: Vec<String> = commands.iter().filter_map(|argv| run(argv).err()).collect();
    match run(list) {
        Ok(text) if !holds_word(&text, name) => {
            Done { gone: true, how: format!("{name} is not in what `{}` lists", list.join(" ")) }
        }
        Ok(_) => {
            let why = failed.join("; ");
            Done { gone: false, how: format!("{name} is still in what `{}` lists: {why}", list.join(" ")) }
        }
        Err(why) => Done { gone: false, how: why },
    }
}

/// Does a name stand in a text as a word of its own? Letters, digits, `-` and `_` make words.
pub(super) fn holds_word(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part) && !text[at + name.len()..].chars().next().is_some_and(part)
    })
}

/// Makes a file hold a text: whoever reads it sees it as it was, or whole.
///
/// # Errors
/// What the file system says.
pub(super) fn replace_file(path: &Path, text: &str) -> Result<(), String> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".elench-next");
    let next = path.with_file_name(name);
    std::fs::write(&next, text)
        .and_then(|()| std::fs::rename(&next, path))
        .map_err(|e| format!("{}: cannot write: {e}", path.display()))
}

fn start(argv: &[String], check: &[String]) -> Done {
    if !check.is_empty() && run(check).is_ok() {
        return Done { gone: true, how: format!("{} holds already", check.join(" ")) };
    }
    if let Err(why) = detached(argv) {
        return Done { gone: false, how: why };
    }
    let until = Instant::now() + PATIENCE;
    while !check.is_empty() {
        match run(check) {
            Ok(_) => break,
            Err(why) if Instant::now() >= until => return Done { gone: false, how: why },
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Done { gone: true, how: format!("started {}", argv.join(" ")) }
}

/// Starts a command that outlives us.
fn detached(argv: &[String]) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let (program, arguments) = argv.split_first().ok_or("no command to run")?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map(|_| ())
        .map_err(|e| format!("{program}: {e}"))
}

/// Runs a command to its end, but not for longer than a step may take, and gives what it printed.
///
/// # Errors
/// It could not be run, failed, or took too long: with what it printed to standard error.
pub fn run(argv: &[String]) -> Result<String, String> {
    run_fed(argv, None)
}

/// Like [`run`], with a text on standard input.
///
/// # Errors
/// Those of [`run`].
pub fn run_fed(argv: &[String], input: Option<&str>) -> Result<String, String> {
    let (program, arguments) = argv.split_first().ok_or("no command to run")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    if let (Some(text), Some(mut pipe)) = (input.map(String::from), child.stdin.take()) {
        // A command that does not read is found out by its status or by the time it takes.
        std::thread::spawn(move || pipe.write_all(text.as_bytes()));
    }
    let reader = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.by_ref().take(1 << 20).read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|p| Box::new(p) as _));
    let err = reader(child.stderr.take().map(|p| Box::new(p) as _));
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("`{}` did not end within {} s", argv.join(" "), PATIENCE.as_secs()));
            }
            Err(e) => return Err(format!("{program}: {e}")),
        }
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if status.success() {
        return Ok(out);
    }
    Err(format!("`{}` failed ({status}): {}", argv.join(" "), err.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn a_stopped_process_goes_on_and_doing_it_again_is_harmless() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let victim = Victim::of(child.id() as i32).unwrap();
        victim.signal(Signal::SIGSTOP).unwrap();
        while victim.state() != Some('T') {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..2 {
            let done = Step::Continue(victim).carry_out();
            assert!(done.gone, "{done:?}");
            assert!(matches!(victim.state(), Some('S' | 'R')));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Step::Continue(victim).carry_out().gone, "what is gone is not stopped");
    }

    #[test]
    fn a_process_of_the_same_number_that_began_at_another_time_is_left_alone() {
        let me = Victim::of(std::process::id() as i32).unwrap();
        let other = Victim { started: me.started + 1, ..me };
        assert_eq!(other.state(), None);
        assert!(other.signal(Signal::SIGKILL).is_err());
    }

    #[test]
    fn a_command_counts_by_what_is_observed_after_it() {
        let step = |argv, check| Step::Run { argv: words(argv), check: words(check) };
        assert!(step("true", "").carry_out().gone);
        assert!(!step("false", "").carry_out().gone);
        assert!(step("false", "true").carry_out().gone, "the fault was gone before");
        assert!(!step("true", "false").carry_out().gone, "success of the command proves nothing");
        assert!(!step("no-such-command-anywhere", "").carry_out().gone);
    }

    #[test]
    fn what_is_dropped_is_gone_only_when_a_list_that_can_be_read_lacks_its_name() {
        let step = |list: &str, place: Option<&str>| Step::Drop {
            commands: vec![words("false")],
            list: words(list),
            name: "elench_1".into(),
            place: place.map(PathBuf::from),
        };
        assert!(step("echo table inet elench_12", None).carry_out().gone, "another's name that begins alike");
        assert!(!step("echo table inet elench_1", None).carry_out().gone);
        assert!(!step("false", None).carry_out().gone, "a list that cannot be read proves nothing");
        assert!(!step("false", Some("/proc")).carry_out().gone);
        assert!(step("false", Some("/run/netns/never-was")).carry_out().gone);
    }

    #[test]
    fn a_file_is_made_to_hold_a_text_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rc");
        let step = Step::Write { path: path.clone(), text: "+0\n".into() };
        assert!(step.carry_out().gone && step.carry_out().gone);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "+0\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(
            Step::Write { path: dir.path().join("none/rc"), text: String::new() }.carry_out().gone,
            "nobody reads it"
        );
        let unwritable = Step::Write { path: "/proc/rc".into(), text: String::new() };
        assert!(!unwritable.carry_out().gone);
    }

    #[test]
    fn a_command_reads_what_it_is_fed() {
        assert_eq!(run_fed(&words("cat"), Some("a table")).unwrap(), "a table");
    }

    #[test]
    fn an_undo_goes_to_disk_and_back() {
        let undo = Undo {
            what: "pause".into(),
            steps: vec![
                Step::Continue(Victim { pid: 1, started: 2 }),
                Step::Run { argv: words("nft delete table inet elench"), check: vec![] },
            ],
        };
        let text = serde_json::to_string(&undo).unwrap();
        assert_eq!(serde_json::from_str::<Undo>(&text).unwrap(), undo);
    }
}
