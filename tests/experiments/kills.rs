//! Elench is killed at random moments, and so is its dead man's switch: what is broken comes back, and what was recorded can be read.
//!
//! The systems are cheap: a process that waits, a network namespace with nothing in it, a file system in memory, a proxy, a script. `ELENCH_RUNS` says
//! how many kills, `ELENCH_SEED` which.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::systems::{Place, free_port, has};
use elench::experiment::switch::{Journal, State};
use elench_formats::open::{OpenOptions, open};

/// Runs at once: they mostly wait.
const WORKERS: u64 = 6;
/// How long nothing but time may take a fault back.
const PATIENCE: Duration = Duration::from_secs(12);

fn of_env(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// SplitMix64 (Steele and others, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn command(words: &[&str]) -> bool {
    let output = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.is_ok_and(|s| s.success())
}

fn printed(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Something that can be broken, and whose soundness can be seen from outside.
enum System {
    /// A process that may be stopped.
    Process(Child),
    /// A network namespace that packets may be dropped in.
    Namespace(String),
    /// A file system in memory that may be full.
    Mount(PathBuf),
    /// A port that a proxy may listen on, and nothing behind it.
    Proxy(u16),
    /// A file that a script may make.
    Script(PathBuf),
}

impl System {
    fn all(worker: u64, dir: &Path) -> Vec<System> {
        let mut out = vec![
            System::Process(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()),
            System::Proxy(free_port()),
            System::Script(dir.join("broken")),
        ];
        let name = format!("elench-k{}-{worker}", std::process::id());
        if has("nft") && has("ip") && command(&["ip", "netns", "add", &name]) {
            assert!(command(&["ip", "netns", "exec", &name, "ip", "link", "set", "lo", "up"]));
            out.push(System::Namespace(name));
        }
        let mount = dir.join("mount");
        std::fs::create_dir(&mount).unwrap();
        if command(&["mount", "-t", "tmpfs", "-o", "size=1m", "elench-test", mount.to_str().unwrap()]) {
            out.push(System::Mount(mount));
        }
        out
    }

    fn fault(&self) -> String {
        match self {
            System::Process(child) => format!("injector: process, action: pause, pids: [{}]", child.id()),
            System::Namespace(name) => {
                format!("injector: nft, action: full, from: 127.0.0.1:7, to: 127.0.0.1:9, netns: {name}")
            }
            System::Mount(path) => format!("injector: disk, max_mb: 2, mount: {}", path.display()),
            System::Proxy(port) => format!(
                "injector: proxy, listen: \"127.0.0.1:{port}\", upstream: \"127.0.0.1:1\", toxics: [{{type: latency, latency: 100}}]"
            ),
            System::Script(file) => {
                let (file, slowly) = (file.display(), "sleep 0.05");
                format!(
                    "injector: command, inject: \"{slowly}; touch {file}; {slowly}\", status: \"ls {file} || true\", revert: \"{slowly}; rm -f {file}; {slowly}\", check: \"test ! -e {file}\""
                )
            }
        }
    }

    /// What is still broken.
    fn broken(&self) -> Option<String> {
        match self {
            System::Process(child) => {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
                let state = stat[stat.rfind(')').unwrap() + 2..].chars().next().unwrap();
                matches!(state, 'T' | 't' | 'Z').then(|| format!("the process is {state}"))
            }
            System::Namespace(name) => {
                let rules = printed(&["ip", "netns", "exec", name, "nft", "list", "ruleset"]);
                (!rules.trim().is_empty()).then_some(rules)
            }
            System::Mount(path) => {
                let left: Vec<_> = std::fs::read_dir(path).unwrap().flatten().map(|e| e.path()).collect();
                (!left.is_empty()).then(|| format!("{left:?}"))
            }
            System::Proxy(port) => {
                let there = std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok();
                there.then(|| "the proxy still listens".to_string())
            }
            System::Script(file) => file.exists().then(|| format!("{} is there", file.display())),
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        match self {
            System::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            System::Namespace(name) => drop(command(&["ip", "netns", "del", name])),
            System::Mount(path) => drop(command(&["umount", path.to_str().unwrap()])),
            System::Proxy(_) | System::Script(_) => {}
        }
    }
}

/// A run of a few seconds, whose workload is a loop of the shell.
fn front(system: &System, history: &Path) -> String {
    let history = history.display();
    let line = r#"{\"op_id\":%d,\"process_id\":0,\"invoke_ts\":%d00000000,\"complete_ts\":%d00000001,\"op_type\":\"read\",\"key\":\"x\",\"input\":null,\"output\":null,\"error\":null,\"timeout_marker\":false,\"node_seen\":\"n\",\"fault_epoch\":null}\\n"#;
    let script =
        format!("i=0; while [ $i -lt 65 ]; do i=$((i+1)); printf '{line}' $i $i $i >> {history}; sleep 0.1; done");
    format!(
        "name: killed\ntarget: 127.0.0.1:1\ntrust_level: sandbox\ntarget_class: single-shard-sandbox\nblast_radius_pct: 100\nsteady_state: \"error_rate < 1\"\nrollback_after_sec: 4\nfault: {{{}, schedule: {{for_sec: 1}}}}\nlanding: [{{signal: sli, expr: \"error_rate during >= 0\"}}]\nworkload: {{command: \"{script}\", duration_sec: 6}}\nhistory: {{path: {history}}}\nchecker: [{{name: linear, model: register}}]\n",
        system.fault(),
    )
}

/// Processes whose command line holds a text.
fn processes_of(text: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let of = |pid: i32| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
    };
    pids.filter(|pid| of(*pid).contains(text)).collect()
}

/// The switch of a place: the process that was told of a journal in it.
fn switch_of(place: &Place) -> Option<i32> {
    processes_of(place.home().join("switch").to_str().unwrap()).into_iter().next()
}

fn kill(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The run.
    Run,
    /// The run, and the switch a moment later: in the middle of what it undoes.
    ThenSwitch,
    /// Both at once.
    Both,
    /// The switch alone.
    Switch,
}

const STAGES: [(&str, u64); 8] = [
    ("starting the workload", 100),
    ("measuring the steady state before", 3400),
    ("injecting", 150),
    ("the fault is active", 1100),
    ("reverting", 150),
    ("measuring the steady state after", 500),
    ("waiting for the workload", 500),
    ("checking the history", 100),
];

fn waits_for(what: impl Fn() -> Option<String>) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match what() {
            None => return Ok(()),
            Some(left) if Instant::now() > until => return Err(left),
            Some(_) => std::thread::sleep(Duration::from_millis(30)),
        }
    }
}

/// Starts a run, reads on until a stage, and kills after a while.
fn kill_at(place: &Place, front: &str, stage: &str, after: Duration, who: Who, lag: Duration) {
    let scenario = place.scenario(front);
    let mut run = place.command(&["run", scenario.to_str().unwrap()]);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        if line.contains(stage) {
            break;
        }
    }
    std::thread::sleep(after);
    let switch = if who == Who::Run { None } else { switch_of(place) };
    match who {
        Who::Run => child.kill().unwrap(),
        Who::ThenSwitch => {
            child.kill().unwrap();
            std::thread::sleep(lag);
            switch.into_iter().for_each(kill);
        }
        Who::Both => {
            switch.into_iter().for_each(kill);
            child.kill().unwrap();
        }
        Who::Switch => switch.into_iter().for_each(kill),
    }
    child.wait().unwrap();
}

/// Journals that say that a fault may still be there.
fn open_journals(place: &Place) -> Option<String> {
    let entries = std::fs::read_dir(place.home().join("switch")).into_iter().flatten().flatten();
    let mut journals = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
    journals.find(|p| Journal::read(p).unwrap().state != State::Reverted).map(|p| p.display().to_string())
}

/// Every document below a directory, and every history, can be read.
fn readable(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.display().to_string();
        if path.is_dir() {
            readable(&path);
        } else if name.ends_with(".json") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{name} is torn: {text}");
        } else if name.ends_with(".parquet") {
            assert!(open(&name, &OpenOptions::default(), &|_, _| {}).is_ok(), "{name} is torn");
        }
    }
}

/// One kill, from its number alone.
fn one(system: &System, random: &mut Random) {
    let place = Place::default();
    let history = place.dir.path().join("history.jsonl");
    let (stage, most) = STAGES[random.below(STAGES.len() as u64) as usize];
    // The end of the wait is where the switch is armed.
    let least = if most == 3400 && random.below(2) == 0 { 2900 } else { 0 };
    let after = Duration::from_millis(least + random.below(most - least));
    let who = match random.below(10) {
        0 => Who::ThenSwitch,
        1 => Who::Both,
        2 => Who::Switch,
        _ => Who::Run,
    };
    let lag = Duration::from_millis(random.below(700));
    let told = format!("{}; {who:?} killed {after:?} after `{stage}`, lag {lag:?}", system.fault());
    kill_at(&place, &front(system, &history), stage, after, who, lag);
    if matches!(who, Who::ThenSwitch | Who::Both) {
        if random.below(2) == 0 {
            // Who mends by hand may be killed, too.
            let mut by_hand = place.command(&["revert"]).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(random.below(400)));
            by_hand.kill().unwrap();
            by_hand.wait().unwrap();
        }
        let revert = place.command(&["revert"]).output().unwrap();
        assert_eq!(revert.status.code(), Some(0), "{told}: {}", String::from_utf8_lossy(&revert.stdout));
    }
    for what in [&|| system.broken() as Option<String>, &|| open_journals(&place)] as [&dyn Fn() -> Option<String>; 2] {
        waits_for(what).unwrap_or_else(|left| panic!("{told}: left broken: {left}"));
    }
    let dir = place.dir.path().to_str().unwrap().to_string();
    waits_for(|| processes_of(&dir).first().map(|pid| format!("process {pid}")))
        .unwrap_or_else(|left| panic!("{told}: left running: {left}"));
    assert_eq!(system.broken(), None, "{told}: broken again");
    let again = place.command(&["revert"]).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("no fault is left"), "{told}");
    readable(&place.home());
    // A recording that was killed before its first line is none.
    if std::fs::read_to_string(&history).is_ok_and(|text| text.contains('\n')) {
        let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
        assert!(open(history.to_str().unwrap(), &lenient, &|_, _| {}).is_ok(), "{told}: the history is torn");
    }
    let rebuilt = place.command(&["ledger", "rebuild"]).output().unwrap();
    assert_eq!(rebuilt.status.code(), Some(0), "{told}: {}", String::from_utf8_lossy(&rebuilt.stderr));
    for run in std::fs::read_dir(place.home().join("evidence")).into_iter().flatten().flatten() {
        if run.path().join("manifest.json").exists() {
            let verify = place.command(&["evidence", "verify", run.path().to_str().unwrap()]).output().unwrap();
            assert_eq!(verify.status.code(), Some(0), "{told}: {}", String::from_utf8_lossy(&verify.stdout));
        }
    }
}

#[test]
fn whoever_is_killed_at_whatever_moment_nothing_stays_broken_and_what_was_recorded_can_be_read() {
    let (kills, seed) = (of_env("ELENCH_RUNS", 12), of_env("ELENCH_SEED", 1));
    eprintln!("ELENCH_SEED={seed} ELENCH_RUNS={kills}");
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS.min(kills) {
            let next = &next;
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                let systems = System::all(worker, dir.path());
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= kills {
                        return;
                    }
                    let mut random = Random(seed.wrapping_mul(1 << 32).wrapping_add(i));
                    one(&systems[random.below(systems.len() as u64) as usize], &mut random);
                    if i % 25 == 24 {
                        eprintln!("{} kills", i + 1);
                    }
                }
            });
        }
    });
}
