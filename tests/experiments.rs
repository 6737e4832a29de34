//! Experiments on real systems: what is broken is proven and put back, what holds passes, what does not is found.

#![allow(clippy::unwrap_used)]

#[path = "experiments/contract.rs"]
mod contract;
#[path = "experiments/kills.rs"]
mod kills;
mod systems;

use std::time::{Duration, Instant};

use systems::{Place, etcd, postgres, redis};

/// What every scenario here has.
fn front(name: &str, target: u16, rest: &str) -> String {
    format!(
        "name: {name}\ntarget: 127.0.0.1:{target}\ntrust_level: sandbox\nhistory: {{path: history.parquet}}\n{rest}"
    )
}

const BUDGET: &str = "budgets: {hardening: {ops: 300, faults: 1}}\n";
const STEADY: &str = "steady_state: \"p95_latency_ms < 3000 AND error_rate < 0.95\"\nrollback_after_sec: 20\n";

fn paused_redis(server: &systems::Server, signal: &str) -> String {
    let rest = format!(
        "{STEADY}blast_radius_pct: 100\ntarget_class: single-shard-sandbox\nfault: {{injector: process, action: pause, pids: [{}], schedule: {{after_sec: 3, for_sec: 2}}}}\nlanding:\n  - signal: process_state\n{signal}workload: {{driver: redis, kind: register, clients: 4, duration_sec: 9, rate: 300, keys: 3, options: {{timeout_ms: 1000}}}}\nchecker:\n  - {{name: linear, model: register}}\n{BUDGET}",
        server.pid()
    );
    front("redis_pause", server.port, &rest)
}

#[test]
fn a_paused_redis_stays_linearizable_and_the_pause_is_proven_by_both_sides() {
    let Some(server) = redis() else { return };
    let place = Place::default();
    let run =
        place.run(&paused_redis(&server, "  - {signal: sli, expr: \"throughput during < 0.7 * throughput before\"}\n"));
    assert_eq!((run.code, run.verdict()), (Some(0), "PASS-hardening"), "{}{}", run.out, run.err);
    assert!(run.out.contains("rollback:   ok"));
    assert!(matches!(server.state(), 'S' | 'R'));
    let evidence = run.evidence();
    let verify = place.command(&["evidence", "verify", evidence.to_str().unwrap()]).output().unwrap();
    assert_eq!(verify.status.code(), Some(0), "{}", String::from_utf8_lossy(&verify.stdout));
    let query = place.command(&["ledger", "query", "last-verdict", "redis_pause"]).output().unwrap();
    assert!(String::from_utf8_lossy(&query.stdout).contains("PASS-hardening"));
}

#[test]
fn where_no_budget_says_how_many_faults_are_enough_a_pass_is_a_smoke_test() {
    let Some(server) = redis() else { return };
    let both = paused_redis(&server, "  - {signal: sli, expr: \"throughput during < 0.7 * throughput before\"}\n");
    let run = Place::default().run(&both.replace(BUDGET, ""));
    assert_eq!((run.code, run.verdict()), (Some(0), "PASS-smoke"), "{}{}", run.out, run.err);
    assert!(run.out.contains("audit items were not checked"), "{}", run.out);
}

#[test]
fn a_fault_that_only_one_side_shows_is_not_proven() {
    let Some(server) = redis() else { return };
    let run = Place::default().run(&paused_redis(&server, ""));
    assert_eq!((run.code, run.verdict()), (Some(3), "INCONCLUSIVE-fault-not-proven"), "{}{}", run.out, run.err);
    let none = "  - {signal: sli, expr: \"error_rate during > 0.99\"}\n";
    let run = Place::default().run(&paused_redis(&server, none));
    assert_eq!(run.verdict(), "INCONCLUSIVE-fault-not-proven", "{}{}", run.out, run.err);
}

#[test]
fn without_a_fault_a_pass_is_a_smoke_test() {
    let Some(server) = redis() else { return };
    let rest = format!(
        "{STEADY}blast_radius_pct: 10\nfault: none\nworkload: {{driver: redis, kind: set, clients: 4, duration_sec: 4, rate: 300}}\nchecker:\n  - {{name: no-lost-ack}}\n"
    );
    let run = Place::default().run(&front("redis_smoke", server.port, &rest));
    assert_eq!((run.code, run.verdict()), (Some(0), "PASS-smoke"), "{}{}", run.out, run.err);
}

#[test]
fn acknowledged_writes_that_a_system_forgets_are_found_and_blamed_on_it() {
    let Some(server) = redis() else { return };
    // A restart of a Redis that keeps nothing on disk forgets everything.
    let script = format!("redis-cli -p {} flushall", server.port);
    let rest = format!(
        "{STEADY}blast_radius_pct: 10\nfault:\n  injector: command\n  inject: \"{script}\"\n  status: \"redis-cli -p {0} info commandstats | grep -c flushall || true\"\n  revert: \"true\"\n  schedule: {{after_sec: 3, for_sec: 1}}\nlanding:\n  - signal: command\n    command: \"redis-cli -p {0} scard elench:set\"\n    expr: \"value during < value before\"\nworkload: {{driver: redis, kind: set, clients: 4, duration_sec: 7, rate: 300}}\nchecker:\n  - {{name: no-lost-ack}}\n",
        server.port
    );
    let run = Place::default().run(&front("redis_forgets", server.port, &rest));
    assert_eq!((run.code, run.verdict()), (Some(1), "FAIL-nondeterministic"), "{}{}", run.out, run.err);
    assert!(run.out.contains("severity: P0"), "{}", run.out);
}

#[test]
fn postgres_keeps_what_its_level_promises_and_what_it_does_not_is_found() {
    let Some(server) = postgres() else { return };
    let at = |level: &str, judged: &str| {
        let rest = format!(
            "{STEADY}blast_radius_pct: 10\nfault: none\nworkload: {{driver: postgres, kind: list-append, isolation: {level}, clients: 8, duration_sec: 6, keys: 3}}\nchecker:\n  - {{name: isolation, consistency: {judged}}}\nbudgets: {{hardening: {{ops: 200}}}}\n"
        );
        let place = Place::default();
        let run = place.run(&front("postgres", server.port, &rest));
        let told = std::fs::read_to_string(run.evidence().join("check-1.txt")).unwrap_or_default();
        (run, told)
    };
    let (strict, _) = at("serializable", "strict-serializable");
    assert_eq!(strict.verdict(), "PASS-smoke", "{}{}", strict.out, strict.err);
    let (skewed, told) = at("repeatable read", "serializable");
    assert_eq!(skewed.verdict(), "FAIL-nondeterministic", "{}{}", skewed.out, skewed.err);
    assert!(told.contains("G2-item") && !told.contains("G-single"), "{told}");
    assert!(skewed.out.contains("blame: SUT") && skewed.out.contains("severity: P0"), "{}", skewed.out);
    let (snapshots, _) = at("repeatable read", "snapshot-isolation");
    assert_eq!(snapshots.verdict(), "PASS-smoke", "{}{}", snapshots.out, snapshots.err);
    let (committed, _) = at("read committed", "read-committed");
    assert_eq!(committed.verdict(), "PASS-smoke", "{}{}", committed.out, committed.err);
    let (torn, _) = at("read committed", "snapshot-isolation");
    assert_eq!(torn.verdict(), "FAIL-nondeterministic", "{}{}", torn.out, torn.err);
}

#[test]
fn etcd_stays_linearizable_while_its_leader_is_paused() {
    let Some(cluster) = etcd() else { return };
    let leader = &cluster.nodes[cluster.leader()];
    let rest = format!(
        "{STEADY}blast_radius_pct: 34\nfault: {{injector: process, action: pause, pids: [{}], schedule: {{after_sec: 3, for_sec: 4}}}}\nlanding:\n  - signal: process_state\n  - signal: sli\n    expr: 'node.\"127.0.0.1:{}\".ok during < 0.8 * node.\"127.0.0.1:{1}\".ok before'\nworkload: {{driver: etcd, kind: cas-register, clients: 6, duration_sec: 14, rate: 150, keys: 3, endpoints: {}, options: {{timeout_ms: 1000}}}}\nchecker:\n  - {{name: linear, model: cas-register}}\nbudgets: {{hardening: {{ops: 300, faults: 1}}}}\n",
        leader.pid(),
        leader.port,
        cluster.endpoints()
    );
    let run = Place::default().run(&front("etcd_leader_pause", cluster.nodes[0].port, &rest));
    assert_eq!((run.code, run.verdict()), (Some(0), "PASS-hardening"), "{}{}", run.out, run.err);
}

/// Waits until a server is in one of these states.
fn becomes(server: &systems::Server, states: &[char]) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if states.contains(&server.state()) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn a_run_that_is_killed_at_any_stage_leaves_nothing_broken() {
    let Some(server) = redis() else { return };
    let runs = std::env::var("ELENCH_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(1u64);
    let stages =
        ["starting the workload", "measuring the steady state before", "injecting", "the fault is active", "reverting"];
    for round in 0..runs {
        for (i, stage) in stages.iter().enumerate() {
            let place = Place::default();
            let mut child = place.begin(&paused_redis(&server, ""), stage);
            std::thread::sleep(Duration::from_millis((round * 37 + i as u64 * 13) % 200));
            child.kill().unwrap();
            child.wait().unwrap();
            std::thread::sleep(Duration::from_millis(700));
            assert!(becomes(&server, &['S', 'R']), "killed while {stage}: the server is {}", server.state());
            let left = place.command(&["revert"]).output().unwrap();
            assert_eq!(left.status.code(), Some(0));
            let home = std::fs::read_dir(place.home().join("evidence")).unwrap().next();
            assert!(home.is_none_or(|run| run.unwrap().path().join("hypothesis.json").exists()));
        }
    }
}

#[test]
fn refusals_come_before_anything_is_run() {
    let place = Place::default();
    let shim = place.dir.path().join("touched");
    let script = format!("touch {}", shim.display());
    let base = |target: &str, more: &str| {
        format!(
            "name: refused\ntarget: {target}\ntrust_level: sandbox\nhistory: {{path: h.edn}}\n{more}fault: {{injector: command, inject: \"{script}\", status: \"{script}\", revert: \"{script}\"}}\nworkload: {{command: \"{script}\"}}\nchecker: [{{name: linear}}]\n"
        )
    };
    let steady = "steady_state: \"error_rate < 1\"\nrollback_after_sec: 5\n";
    for (text, code) in [
        (base("db-prod:5432", &format!("{steady}blast_radius_pct: 10\n")), "ERR_PROD_UNAUTHORIZED"),
        (base("10.1.2.3:5432", &format!("{steady}blast_radius_pct: 10\n")), "ERR_PROD_UNAUTHORIZED"),
        (base("127.0.0.1:1", steady), "ERR_BLAST_RADIUS_INVALID"),
        (base("127.0.0.1:1", &format!("{steady}blast_radius_pct: 100\n")), "ERR_BLAST_RADIUS_INVALID"),
        (base("127.0.0.1:1", "blast_radius_pct: 10\nrollback_after_sec: 5\n"), "ERR_NO_STEADY_STATE"),
        (base("127.0.0.1:1", "blast_radius_pct: 10\nsteady_state: x < 1\n"), "ERR_NO_STEADY_STATE"),
    ] {
        let run = place.run(&text);
        assert_eq!(run.code, Some(4), "{text}{}", run.err);
        assert!(run.err.contains(code), "{}", run.err);
        assert!(!shim.exists(), "something was run: {text}");
        assert!(!place.home().join("evidence").exists());
    }
    let typo = base("127.0.0.1:1", &format!("{steady}blast_radius_pct: 10\nlandign: []\n"));
    let run = place.run(&typo);
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains("did you mean `landing`?"), "{}", run.err);
    std::fs::create_dir_all(place.home()).unwrap();
    std::fs::write(place.home().join("context.md"), "- deny injector command\n").unwrap();
    let run = place.run(&base("127.0.0.1:1", &format!("{steady}blast_radius_pct: 10\n")));
    assert!(run.code == Some(4) && run.err.contains("ERR_CONTEXT_CONFLICT"), "{}", run.err);
    assert!(!shim.exists());
}

#[test]
fn a_steady_state_that_cannot_be_measured_is_refused_and_one_that_is_violated_aborts_before_the_fault() {
    let Some(server) = redis() else { return };
    let with = |steady: &str| {
        let rest = format!(
            "steady_state: \"{steady}\"\nrollback_after_sec: 5\nblast_radius_pct: 100\ntarget_class: single-shard-sandbox\nfault: {{injector: process, action: kill, pids: [{}]}}\nlanding: [{{signal: process_state}}]\nworkload: {{driver: redis, kind: register, clients: 2, duration_sec: 6, rate: 100}}\nchecker: [{{name: linear}}]\n",
            server.pid()
        );
        Place::default().run(&front("steady", server.port, &rest))
    };
    let unmeasurable = with("no_such_sli < 1");
    assert_eq!(unmeasurable.code, Some(4), "{}", unmeasurable.err);
    assert!(unmeasurable.err.contains("ERR_STEADY_STATE_UNMEASURABLE"));
    let violated = with("error_rate > 0.5");
    assert_eq!(violated.verdict(), "INCONCLUSIVE-fault-not-proven", "{}{}", violated.out, violated.err);
    assert!(violated.out.contains("violated before anything was injected"), "{}", violated.out);
    assert!(matches!(server.state(), 'S' | 'R'), "nothing was injected");
}
