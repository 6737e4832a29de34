//! The scenarios of `examples/scenarios/` on real systems: several nodes in network namespaces, connections through the built-in proxy, and
//! faults that do not land. What holds passes, what does not is found, and what did not break proves nothing.

#![allow(clippy::unwrap_used)]

mod systems;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use systems::{Nodes, Place, Run, free_port, has, postgres, redis};

/// A run's place, so that its evidence is there, and what it said.
struct Done {
    place: Place,
    run: Run,
}

impl Done {
    #[track_caller]
    fn expect(&self, code: i32, verdict: &str) {
        let Run { out, err, .. } = &self.run;
        assert_eq!((self.run.code, self.run.verdict()), (Some(code), verdict), "{out}{err}");
        let dir = self.run.evidence();
        let verify = self.place.command(&["evidence", "verify", dir.to_str().unwrap()]).output().unwrap();
        assert_eq!(verify.status.code(), Some(0), "{}", String::from_utf8_lossy(&verify.stdout));
    }

    #[track_caller]
    fn says(&self, words: &[&str]) {
        words.iter().for_each(|w| assert!(self.run.out.contains(w), "no `{w}` in\n{}", self.run.out));
    }

    /// What the first checker said.
    fn told(&self) -> String {
        std::fs::read_to_string(self.run.evidence().join("check-1.txt")).unwrap_or_default()
    }
}

fn on(nodes: &Nodes, example: &str, words: &[(&str, &str)]) -> Done {
    let place = Place::default();
    let mut all = words.to_vec();
    if std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios").join(example))
        .unwrap()
        .contains(nodes.name().0)
    {
        all.push(nodes.name());
    }
    let scenario = place.example(example, &all);
    let run = nodes.run(&place, &scenario);
    Done { place, run }
}

fn here(example: &str, words: &[(&str, &str)]) -> Done {
    let place = Place::default();
    let run = place.run_file(&place.example(example, words));
    Done { place, run }
}

#[test]
fn etcd_loses_nothing_when_its_leader_crashes_stops_or_is_killed() {
    let Some(nodes) = Nodes::up("etcd") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios/nodes.sh").display().to_string();
    let again = format!("sh, {script},");
    let started: &[(&str, &str)] = &[("sh, examples/scenarios/nodes.sh,", &again)];
    // The one that stays dead comes last.
    for (example, words, state) in [
        ("etcd_leader_crash.md", started, "-> gone"),
        ("etcd_leader_pause.md", &[], "-> T"),
        ("etcd_leader_kill.md", &[], "-> gone"),
    ] {
        nodes.lead();
        let done = on(&nodes, example, words);
        done.expect(0, "PASS-hardening");
        done.says(&[state, "during.etcd_server_leader_changes_seen_total", "rollback:   ok"]);
    }
}

#[test]
fn etcd_reads_are_the_newest_while_its_leader_is_not_heard_and_those_of_one_node_are_found_stale() {
    let Some(nodes) = Nodes::up("etcd") else { return };
    let done = on(&nodes, "etcd_leader_one_way.md", &[]);
    done.expect(0, "PASS-hardening");
    done.says(&["packets dropped of 10.231.7.1: 0 -> ", "during.etcd_server_leader_changes_seen_total"]);
    assert_eq!(nodes.tables("1"), "", "no rule is left");
    nodes.lead();
    let done = on(&nodes, "etcd_stale_reads.md", &[]);
    done.expect(1, "FAIL-nondeterministic");
    done.says(&["blame: SUT", "type: Partition", "severity: P0", "landing:    PROVEN"]);
    assert!(done.told().contains("linear"), "{}", done.told());
    assert!(done.run.evidence().join("reduced.edn").exists());
    assert_eq!(nodes.tables("1"), "", "no rule is left");
}

#[test]
fn a_redis_that_fails_over_under_a_partition_loses_what_it_acknowledged_and_without_a_fault_nothing() {
    let Some(nodes) = Nodes::up("redis") else { return };
    on(&nodes, "redis_replica.md", &[]).expect(0, "PASS-smoke");
    let done = on(&nodes, "redis_failover.md", &[]);
    done.expect(1, "FAIL-nondeterministic");
    done.says(&["landing:    PROVEN", "blame: SUT", "type: Partition", "severity: P0", "checker: no-lost-ack"]);
    assert!(done.told().contains("no-lost-ack lost"), "{}", done.told());
    assert_eq!(nodes.tables("1"), "", "no rule is left");
}

/// A scenario of PostgreSQL, on a server of its own.
fn of_postgres(server: &systems::Server, example: &str, words: &[(&str, &str)]) -> Done {
    let (server, proxy) = (format!("127.0.0.1:{}", server.port), format!("127.0.0.1:{}", free_port()));
    let mut all = vec![("127.0.0.1:25432", proxy.as_str()), ("127.0.0.1:5432", server.as_str())];
    all.extend(words);
    here(example, &all)
}

#[test]
fn postgres_at_serializable_is_strict_on_connections_that_are_slow_or_break() {
    let Some(server) = postgres() else { return };
    let slow = of_postgres(&server, "postgres_latency.md", &[]);
    slow.expect(0, "PASS-hardening");
    slow.says(&["latency_upstream: acted 0 -> ", "latency_downstream: acted 0 -> "]);
    let reset = of_postgres(&server, "postgres_resets.md", &[]);
    reset.expect(0, "PASS-hardening");
    reset.says(&["reset_peer_downstream: acted 0 -> ", "during.throughput"]);
    let cut = of_postgres(&server, "postgres_cut_short.md", &[]);
    cut.expect(0, "PASS-hardening");
    cut.says(&["limit_data_downstream: acted 0 -> ", "during.timeout_rate"]);
}

#[test]
fn postgres_at_repeatable_read_allows_write_skew_through_a_slow_proxy_and_nothing_that_snapshots_forbid() {
    let Some(server) = postgres() else { return };
    let skewed = of_postgres(&server, "postgres_write_skew_slow.md", &[]);
    skewed.expect(1, "FAIL-nondeterministic");
    skewed.says(&["landing:    PROVEN", "blame: SUT", "severity: P0"]);
    let told = skewed.told();
    assert!(told.contains("G2-item") && !told.contains("G-single") && !told.contains("G0"), "{told}");
    let snapshots = [("consistency: serializable", "consistency: snapshot-isolation")];
    of_postgres(&server, "postgres_write_skew_slow.md", &snapshots).expect(0, "PASS-hardening");
}

const NOT_PROVEN: &str = "INCONCLUSIVE-fault-not-proven";

#[test]
fn rules_in_the_wrong_chain_prove_nothing_and_in_the_right_one_they_do() {
    let Some(nodes) = Nodes::up("redis") else { return };
    for injector in ["nft", "iptables"] {
        let by = format!("injector: {injector}");
        let done = on(&nodes, "not_landing/wrong_chain.md", &[("injector: nft", &by)]);
        done.expect(3, NOT_PROVEN);
        done.says(&["packets dropped of 10.231.7.1: 0 -> 0", "rollback:   ok"]);
        let right =
            [("injector: nft", by.as_str()), ("  hook: forward\n", ""), ("duration_sec: 8", "duration_sec: 10")];
        let done = on(&nodes, "not_landing/wrong_chain.md", &right);
        done.expect(0, "PASS-hardening");
    }
}

#[test]
fn a_proxy_that_clients_do_not_go_through_proves_nothing_and_one_that_they_do_does() {
    let Some(server) = redis() else { return };
    let (server, proxy) = (format!("127.0.0.1:{}", server.port), format!("127.0.0.1:{}", free_port()));
    let words = [("127.0.0.1:26379", proxy.as_str()), ("127.0.0.1:6379", server.as_str())];
    let done = here("not_landing/proxy_bypassed.md", &words);
    done.expect(3, NOT_PROVEN);
    done.says(&["no connection ever came through the proxy"]);
    let endpoints = format!("endpoints: [\"{proxy}\"]");
    // While the fault lasts nobody is answered and nobody gives up: that nothing is recorded is what shows it.
    let patient = ("timeout_ms: 1000", "timeout_ms: 5000");
    let through = [("endpoints: [\"127.0.0.1:6379\"]", endpoints.as_str()), patient, words[0], words[1]];
    here("not_landing/proxy_bypassed.md", &through).expect(0, "PASS-hardening");
}

/// A child that nobody has waited for.
fn dead() -> Child {
    let child = Command::new("true").stdout(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        assert!(Instant::now() < until, "`true` does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_signal_to_a_dead_process_proves_nothing() {
    let Some(server) = redis() else { return };
    let address = format!("127.0.0.1:{}", server.port);
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("pid").display().to_string();
    let words = [("127.0.0.1:6379", address.as_str()), ("/run/redis/redis-server.pid", file.as_str())];

    let mut zombie = dead();
    std::fs::write(&file, zombie.id().to_string()).unwrap();
    let done = here("not_landing/dead_process.md", &words);
    done.expect(3, NOT_PROVEN);
    done.says(&["Z -> Z"]);
    let gone = zombie.id();
    zombie.wait().unwrap();

    let mut dies = Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(&file, dies.id().to_string()).unwrap();
    let place = Place::default();
    let scenario = place.example("not_landing/dead_process.md", &words);
    let run = place.run_and(&scenario, "measuring the steady state before", || {
        dies.kill().unwrap();
        dies.wait().unwrap();
    });
    Done { place, run }.expect(3, NOT_PROVEN);

    std::fs::write(&file, gone.to_string()).unwrap();
    let done = here("not_landing/dead_process.md", &words);
    assert_eq!(done.run.code, Some(4), "{}", done.run.err);
    assert!(done.run.err.contains("ERR_INJECTOR_MISSING") && done.run.err.contains("no process"), "{}", done.run.err);
    assert!(!done.place.home().join("evidence").exists(), "nothing was begun");
}

/// An `aws` whose FIS completes every action at once, and whose instances never stop.
const AWS: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$*" in
--version) echo "aws-cli/2 of a test" ;;
*get-experiment-template*) echo '{"experimentTemplate": {"id": "EXT1", "targets": {"db": {"resourceType": "aws:ec2:instance",
  "selectionMode": "COUNT(1)", "resourceArns": ["arn:aws:ec2:eu-west-1:1:instance/i-1", "arn:aws:ec2:eu-west-1:1:instance/i-2",
  "arn:aws:ec2:eu-west-1:1:instance/i-3"]}}}}' ;;
*start-experiment*) touch "$here/started"; echo '{"experiment": {"id": "EXP1"}}' ;;
*list-experiments*) ;;
*get-experiment*) echo '{"experiment": {"state": {"status": "completed"}, "actions": {"stop": {"state": {"status": "completed"}}}}}' ;;
*describe-instances*) for i in 1 2 3; do echo "i-$i"; done | sed 's/.*/{"InstanceId": "&", "State": {"Name": "running"}}/' | paste -sd, |
  sed 's/.*/{"Reservations": [{"Instances": [&]}]}/' ;;
*) echo "it does not know $*" >&2; exit 1 ;;
esac
"#;

/// Runs the scenario of FIS with an `aws` that is found first on this path.
fn of_fis(server: &systems::Server, template: &str, endpoint: &str, path: &str) -> Done {
    let place = Place::default();
    let address = format!("127.0.0.1:{}", server.port);
    let words = [("127.0.0.1:6379", address.as_str()), ("http://127.0.0.1:5000", endpoint), ("EXT1", template)];
    let scenario = place.example("not_landing/fis_without_effect.md", &words);
    std::fs::create_dir_all(place.home()).unwrap();
    std::fs::write(place.home().join("config.toml"), format!("sandbox = [\"{template}\"]\n")).unwrap();
    let mut command = place.command(&["run", scenario.to_str().unwrap()]);
    command.env("PATH", path).env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
    let run = Run::of(command.output().unwrap());
    Done { place, run }
}

#[test]
fn an_experiment_of_fis_that_is_completed_without_effect_proves_nothing() {
    let Some(server) = redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("written");
    std::fs::write(&written, AWS).unwrap();
    // Copied by another process: a child that another test has forked may still hold open what this one has written.
    let install = Command::new("install").arg("-m755").arg(&written).arg(dir.path().join("aws")).status().unwrap();
    assert!(install.success());
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", dir.path().display());
    let done = of_fis(&server, "EXT1", "http://127.0.0.1:5000", &path);
    done.expect(3, NOT_PROVEN);
    assert!(dir.path().join("started").exists(), "an experiment was started");
    done.says(&["action stop: completed", "victim i-1: running -> running", "rollback:   ok"]);
}

/// moto on loopback, with the AWS CLI; gone when this is.
struct Moto {
    child: Child,
    endpoint: String,
}

impl Moto {
    fn start() -> Option<Moto> {
        let module = "import moto.server; from moto.fis.models import FISBackend; FISBackend.start_experiment";
        let works = |words: &[&str]| {
            let output = Command::new(words[0]).args(&words[1..]).output();
            output.is_ok_and(|o| o.status.success())
        };
        if !has("python3") || !has("aws") || !works(&["python3", "-c", module]) || !works(&["aws", "--version"]) {
            eprintln!("SKIPPED: no moto with FIS and AWS CLI here");
            return None;
        }
        let port = free_port();
        let child = Command::new("python3")
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        systems::wait_for(port);
        Some(Moto { child, endpoint: format!("http://127.0.0.1:{port}") })
    }

    fn aws(&self, words: &[&str]) -> String {
        let output = Command::new("aws")
            .args(["--region", "eu-west-1", "--output", "text", "--endpoint-url", &self.endpoint])
            .args(words)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// A template that stops one of three instances that run.
    fn template(&self) -> String {
        let run =
            ["ec2", "run-instances", "--image-id", "ami-12c6146b", "--count", "3", "--query", "Instances[].InstanceId"];
        let ids = self.aws(&run);
        let arns: Vec<String> =
            ids.split_whitespace().map(|id| format!("arn:aws:ec2:eu-west-1:123456789012:instance/{id}")).collect();
        let template = serde_json::json!({
            "clientToken": "t1", "description": "stop one", "roleArn": "arn:aws:iam::123456789012:role/fis",
            "stopConditions": [{ "source": "none" }],
            "targets": { "db": { "resourceType": "aws:ec2:instance", "resourceArns": arns, "selectionMode": "COUNT(1)" } },
            "actions": { "stop": { "actionId": "aws:ec2:stop-instances", "targets": { "Instances": "db" } } } });
        let create = ["fis", "create-experiment-template", "--query", "experimentTemplate.id", "--cli-input-json"];
        self.aws(&[&create[..], &[&template.to_string()]].concat())
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_experiment_of_moto_is_completed_while_every_instance_runs_and_proves_nothing() {
    let Some(moto) = Moto::start() else { return };
    let Some(server) = redis() else { return };
    let done = of_fis(&server, &moto.template(), &moto.endpoint, &std::env::var("PATH").unwrap());
    done.expect(3, NOT_PROVEN);
    done.says(&["running -> running", "rollback:   ok"]);
}
