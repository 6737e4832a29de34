//! Real systems for experiments: started on loopback for one test, on ports of their own, and gone when it ends.
//!
//! What is not installed is skipped, and said so. `.ci/run` installs them where it may.

// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Is a program there? Says so where it is not.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) || Path::new(program).is_file();
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

pub(crate) fn wait_for(port: u16) {
    let until = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that ends with its test.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// Held for as long as it runs.
    _dir: tempfile::TempDir,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its state, as `/proc` tells it.
    pub(crate) fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat[stat.rfind(')').unwrap() + 2..].chars().next().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.pid().to_string()]).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Redis that keeps nothing on disk.
pub(crate) fn redis() -> Option<Server> {
    has("redis-server").then(|| {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--dir", dir.path().to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(port);
        Server { child, port, _dir: dir }
    })
}

/// Three etcd nodes, and which of them leads.
pub(crate) struct Etcd {
    pub(crate) nodes: Vec<Server>,
}

impl Etcd {
    pub(crate) fn endpoints(&self) -> String {
        let all: Vec<String> = self.nodes.iter().map(|n| format!("\"127.0.0.1:{}\"", n.port)).collect();
        format!("[{}]", all.join(", "))
    }

    /// The place of the leader, asked of the nodes themselves.
    pub(crate) fn leader(&self) -> usize {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            for (i, node) in self.nodes.iter().enumerate() {
                let url = format!("http://127.0.0.1:{}/v3/maintenance/status", node.port);
                let Ok(answer) = minreq::post(url).with_body("{}").with_timeout(2).send() else { continue };
                let Ok(status) = serde_json::from_slice::<serde_json::Value>(answer.as_bytes()) else { continue };
                let (leader, own) = (&status["leader"], &status["header"]["member_id"]);
                if leader.is_string() && leader == own {
                    return i;
                }
            }
            assert!(Instant::now() < until, "no node leads");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(crate) fn etcd() -> Option<Etcd> {
    has("etcd").then(|| {
        let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
        let peer = |i: usize| format!("http://127.0.0.1:{}", ports[i].1);
        let cluster: Vec<String> = (0..3).map(|i| format!("n{i}={}", peer(i))).collect();
        let nodes: Vec<Server> = (0..3)
            .map(|i| {
                let (client, dir) = (format!("http://127.0.0.1:{}", ports[i].0), tempfile::tempdir().unwrap());
                let child = Command::new("etcd")
                    .args(["--name", &format!("n{i}"), "--data-dir", dir.path().join("data").to_str().unwrap()])
                    .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                    .args(["--listen-peer-urls", &peer(i), "--initial-advertise-peer-urls", &peer(i)])
                    .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                Server { child, port: ports[i].0, _dir: dir }
            })
            .collect();
        nodes.iter().for_each(|n| wait_for(n.port));
        let etcd = Etcd { nodes };
        etcd.leader();
        etcd
    })
}

/// Where PostgreSQL's programs lie: not on the path, on Debian.
fn postgres_programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("bin"))
        .collect();
    versions.sort();
    let found = versions.pop().filter(|dir| dir.join("initdb").is_file());
    if found.is_none() {
        eprintln!("SKIPPED: PostgreSQL is not installed");
    }
    found
}

/// A PostgreSQL that ends deadlocks quickly.
pub(crate) fn postgres() -> Option<Server> {
    let programs = postgres_programs()?;
    let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
    let data = dir.path().join("data");
    let root = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap_or(1) == 0;
    // It refuses to run as root.
    let command = |program: &str| {
        let program = programs.join(program);
        if !root {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
        command
    };
    if root {
        let chown = Command::new("chown").args(["-R", "postgres:postgres"]).arg(dir.path()).status().unwrap();
        assert!(chown.success());
    }
    let made = command("initdb")
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
        .arg(&data)
        .current_dir("/")
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let child = command("postgres")
        .arg("-D")
        .arg(&data)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
        .args(["-c", "fsync=off", "-c", "deadlock_timeout=20ms"])
        .current_dir("/")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(port);
    std::thread::sleep(Duration::from_millis(500));
    Some(Server { child, port, _dir: dir })
}

/// The scenarios that come with Elench, and what sets up their nodes.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios")
}

/// A system of several nodes in network namespaces, made by `examples/scenarios/nodes.sh`; gone when this is.
pub(crate) struct Nodes {
    name: String,
}

impl Nodes {
    /// `etcd` or `redis`; `None`, loudly, where this machine does not allow it, or lacks a program.
    pub(crate) fn up(system: &str) -> Option<Nodes> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let programs: &[&str] = match system {
            "etcd" => &["ip", "nft", "etcd", "etcdctl"],
            _ => &["ip", "nft", "iptables", "redis-server", "redis-cli"],
        };
        if !programs.iter().all(|p| has(p)) {
            return None;
        }
        let nodes = Nodes { name: format!("elt-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)) };
        if let Err(why) = nodes.may_be_made() {
            eprintln!("SKIPPED: no network namespaces with a bridge here: {why}");
            return None;
        }
        sweep();
        nodes.script(&["up", system]);
        Some(nodes)
    }

    fn may_be_made(&self) -> Result<(), String> {
        let name = format!("{}-trial", self.name);
        let ip = |words: &[&str]| {
            let output = Command::new("ip").args(words).output().map_err(|e| e.to_string())?;
            let said = || String::from_utf8_lossy(&output.stderr).trim().to_string();
            if output.status.success() { Ok(()) } else { Err(said()) }
        };
        let made =
            ip(&["netns", "add", &name]).and_then(|()| ip(&["-n", &name, "link", "add", "br0", "type", "bridge"]));
        let _ = ip(&["netns", "delete", &name]);
        made
    }

    fn script(&self, words: &[&str]) {
        let output = script(&self.name, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nodes.sh {}: {said}", words.join(" "));
    }

    /// Makes the first node of etcd lead.
    pub(crate) fn lead(&self) {
        self.script(&["lead"]);
    }

    /// What its scenarios call `elench-nodes` is this.
    pub(crate) fn name(&self) -> (&str, &str) {
        ("elench-nodes", &self.name)
    }

    /// A command in one of its namespaces: `hub`, or the number of a node.
    pub(crate) fn within(&self, place: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{place}", self.name)]);
        command
    }

    /// Tables of rules that are there in a node's namespace.
    pub(crate) fn tables(&self, node: &str) -> String {
        let output = self.within(node).args(["nft", "list", "tables"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a scenario to its end, from where all nodes are reached.
    pub(crate) fn run(&self, place: &Place, scenario: &Path) -> Run {
        std::fs::create_dir_all(place.home()).unwrap();
        std::fs::write(place.home().join("config.toml"), "sandbox = [\"10.231.7.0/24\"]\n").unwrap();
        let mut command = self.within("hub");
        command.arg(env!("CARGO_BIN_EXE_elench")).arg("run").arg(scenario).arg("--home").arg(place.home());
        Run::of(command.current_dir(place.dir.path()).output().unwrap())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        script(&self.name, &["down"]);
    }
}

fn script(name: &str, words: &[&str]) -> Output {
    // To files: what it starts may hold its pipes open for longer than it runs.
    let said = tempfile::tempfile().unwrap();
    let status = Command::new("sh")
        .arg(examples().join("nodes.sh"))
        .args(words)
        .env("NODES", name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.try_clone().unwrap())
        .status()
        .unwrap();
    let mut said = said;
    let mut stderr = Vec::new();
    std::io::Seek::rewind(&mut said).and_then(|()| std::io::Read::read_to_end(&mut said, &mut stderr)).unwrap();
    Output { status, stdout: Vec::new(), stderr }
}

/// Ends the nodes of tests that were killed.
fn sweep() {
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in namespaces.filter_map(|e| e.file_name().into_string().ok()) {
        let Some(set) = name.strip_suffix("-hub").filter(|set| set.starts_with("elt-")) else { continue };
        let test = set.split('-').nth(1).filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()));
        if test.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            script(set, &["down"]);
        }
    }
}

/// A place of its own for runs: a home, and a scenario in it.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Default for Place {
    fn default() -> Self {
        Place { dir: tempfile::tempdir().unwrap() }
    }
}

impl Place {
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join(".elench")
    }

    /// A scenario from the lines of its front matter.
    pub(crate) fn scenario(&self, front: &str) -> PathBuf {
        let path = self.dir.path().join("scenario.md");
        std::fs::write(&path, format!("---\n{front}---\nA test.\n")).unwrap();
        path
    }

    /// A scenario that comes with Elench, with some of its words replaced by others.
    pub(crate) fn example(&self, name: &str, words: &[(&str, &str)]) -> PathBuf {
        let mut text = std::fs::read_to_string(examples().join(name)).unwrap();
        // In two steps, as what is put in may hold what is looked for.
        let mark = |i: usize| format!("\u{1}{i}\u{1}");
        for (i, (is, _)) in words.iter().enumerate() {
            assert!(text.contains(is), "{name} does not hold `{is}`");
            text = text.replace(is, &mark(i));
        }
        for (i, (_, shall)) in words.iter().enumerate() {
            text = text.replace(&mark(i), shall);
        }
        let path = self.dir.path().join("scenario.md");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elench"));
        command.args(arguments).args(["--home", self.home().to_str().unwrap()]).current_dir(self.dir.path());
        command
    }

    /// Runs a scenario to its end.
    pub(crate) fn run(&self, front: &str) -> Run {
        let scenario = self.scenario(front);
        self.run_file(&scenario)
    }

    /// Runs the scenario of a file to its end.
    pub(crate) fn run_file(&self, scenario: &Path) -> Run {
        Run::of(self.command(&["run", scenario.to_str().unwrap()]).output().unwrap())
    }

    /// Runs it, and does something once it says that it is at this stage.
    pub(crate) fn run_and(&self, scenario: &Path, stage: &str, then: impl FnOnce()) -> Run {
        let mut child = self
            .command(&["run", scenario.to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut err: Vec<String> = Vec::new();
        let there = lines.by_ref().any(|line| {
            err.push(line);
            err.last().is_some_and(|line| line.contains(stage))
        });
        assert!(there, "it ended before it was {stage}: {err:?}");
        then();
        err.extend(lines);
        let mut run = Run::of(child.wait_with_output().unwrap());
        run.err = err.join("\n");
        run
    }

    /// Begins to run it, and waits until it says that it is at this stage.
    pub(crate) fn begin(&self, front: &str, stage: &str) -> Child {
        let scenario = self.scenario(front);
        let mut child = self
            .command(&["run", scenario.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if line.contains(stage) {
                return child;
            }
        }
        let status = child.wait().unwrap();
        panic!("it ended with {status} before it was {stage}");
    }
}

/// What a run said.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Run {
        Run {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The verdict that it printed.
    pub(crate) fn verdict(&self) -> &str {
        let line = self.out.lines().find_map(|l| l.strip_prefix("VERDICT: "));
        line.and_then(|l| l.split_whitespace().next()).unwrap_or("none")
    }

    /// Where its evidence lies.
    pub(crate) fn evidence(&self) -> PathBuf {
        let line = self.out.lines().find(|l| l.starts_with("RUN_ID: ")).unwrap_or_default();
        PathBuf::from(line.rsplit("evidence: ").next().unwrap_or_default().trim())
    }
}
