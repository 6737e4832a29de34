//! Arms, schedules, seeds, re-runs, promised fields, and what becomes of a fault that cannot be taken back: with a workload of the shell, so that
//! nothing has to be installed.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::systems::Place;

/// A process that waits, and ends with its test.
struct Waiting(Child);

impl Waiting {
    fn start() -> Waiting {
        Waiting(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A loop that records ten reads a second, of a register that nobody writes: the last shows `last`.
fn reads(history: &Path, seconds: u64, last: &str) -> String {
    let line = r#"{\"op_id\":%d,\"process_id\":0,\"invoke_ts\":%d00000000,\"complete_ts\":%d00000001,\"op_type\":\"read\",\"key\":\"x\",\"input\":null,\"output\":%s,\"error\":null,\"timeout_marker\":false,\"node_seen\":\"n\",\"fault_epoch\":null}\\n"#;
    format!(
        "i=0; v=null; while [ $i -lt {0} ]; do i=$((i+1)); if [ $i = {0} ]; then v={last}; fi; printf '{line}' $i $i $i $v >> {1}; sleep 0.1; done",
        seconds * 10,
        history.display()
    )
}

const FRONT: &str = "name: s\ntarget: 127.0.0.1:1\ntrust_level: sandbox\ntarget_class: single-shard-sandbox\nblast_radius_pct: 100\nsteady_state: \"error_rate < 0.5\"\nrollback_after_sec: 20\n";

fn paused(pid: u32, schedule: &str) -> String {
    format!(
        "fault: {{injector: process, action: pause, pids: [{pid}], schedule: {{{schedule}}}}}\nlanding:\n  - signal: command\n    command: \"grep -c stopped /proc/{pid}/status || true\"\n    expr: \"value during > value before\"\n"
    )
}

/// Few operations are enough.
const ENOUGH: &str = "budgets: {hardening: {ops: 30}}\n";

const CHECKER: &str = "checker: [{name: linear, model: register}]\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(place: &Place, front: &str, more: &[&str]) -> Output {
    let scenario = place.scenario(front);
    let words: Vec<&str> = ["run", scenario.to_str().unwrap()].into_iter().chain(more.iter().copied()).collect();
    place.command(&words).output().unwrap()
}

fn evidence(out: &str) -> std::path::PathBuf {
    let line = out.lines().rev().find(|l| l.starts_with("RUN_ID: ")).unwrap();
    line.rsplit("evidence: ").next().unwrap().trim().into()
}

fn document(out: &str, name: &str) -> serde_json::Value {
    let path = evidence(out).join(name);
    serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
}

fn asked(place: &Place, query: &[&str]) -> String {
    let words: Vec<&str> = ["ledger", "query"].into_iter().chain(query.iter().copied()).collect();
    text(&place.command(&words).output().unwrap().stdout)
}

#[test]
fn each_arm_has_a_checker_and_a_verdict_of_its_own_and_a_failing_arm_fails_the_scenario() {
    let place = Place::default();
    let history = place.dir.path().join("h.jsonl");
    let arm = |name: &str, last: &str, fields: &str| {
        format!(
            "  - name: {name}\n    checker: {{name: linear, model: register}}\n    workload: {{command: \"{}\", duration_sec: 4}}\n    history: {{path: {}{fields}}}\n",
            reads(&history, 4, last),
            history.display()
        )
    };
    let arms =
        [arm("good", "null", ", fields: [node_seen]"), arm("weak", "null", ", fields: [version]"), arm("bad", "7", "")];
    let both = format!("{FRONT}{ENOUGH}fault: none\narms:\n{}{}", arms[0], arms[1]);
    let done = run(&place, &both, &[]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(3), "{out}{}", text(&done.stderr));
    assert!(out.contains("arm s/good: PASS-smoke"), "{out}");
    assert!(out.contains("arm s/weak: INCONCLUSIVE-oracle-too-weak"), "{out}");
    assert!(out.contains("`history.fields` promises version, and no operation has it"), "{out}");
    assert!(out.contains("SCENARIO s: INCONCLUSIVE-oracle-too-weak"), "{out}");
    let done = run(&place, &format!("{both}{}", arms[2]), &[]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{out}");
    assert!(
        out.contains("arm s/bad: FAIL-nondeterministic") && out.contains("SCENARIO s: FAIL-nondeterministic"),
        "{out}"
    );
    assert!(out.contains("reduced:    the recording, by linear: from 40 operations to 1, over"), "{out}");
    assert!(evidence(&out).join("reduced.edn").exists());
    assert!(asked(&place, &["last-verdict", "s/good"]).contains("PASS-smoke"));
    assert!(asked(&place, &["last-verdict", "s"]).contains("FAIL-nondeterministic"));
    assert!(asked(&place, &["scenarios", "default"]).contains("s.bad"));
}

#[test]
fn a_fault_that_comes_twice_is_proven_and_reverted_twice() {
    let (place, victim) = (Place::default(), Waiting::start());
    let history = place.dir.path().join("h.jsonl");
    let front = format!(
        "{FRONT}{}workload: {{command: \"{}\", duration_sec: 14}}\nhistory: {{path: {}}}\n{CHECKER}budgets: {{hardening: {{faults: 2}}}}\n",
        paused(victim.pid(), "after_sec: 3, for_sec: 1, times: 2"),
        reads(&history, 14, "null"),
        history.display()
    );
    let done = run(&place, &front, &[]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{out}{}", text(&done.stderr));
    assert!(out.contains("PROVEN, 2 of 2 times"), "{out}");
    assert_eq!(out.lines().filter(|l| l.starts_with("rollback:")).count(), 2, "{out}");
    let rounds = document(&out, "rounds.json");
    assert_eq!(rounds.as_array().map(Vec::len), Some(2));
    let windows: Vec<i64> = (0..2).map(|i| rounds[i]["phases"][1]["window"]["until"].as_i64().unwrap()).collect();
    assert!(windows[0] < windows[1], "{windows:?}");
    assert_eq!(document(&out, "facts.json")["given"]["faults"], 2);
    let timeline = document(&out, "process-timeline.json");
    let phases: Vec<&str> = timeline.as_array().unwrap().iter().map(|s| s["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["before", "during", "after", "before", "during", "after"]);
    assert_eq!(std::fs::read_dir(place.home().join("switch")).unwrap().count(), 2, "a journal each");
}

#[test]
fn a_schedule_that_cannot_be_carried_out_to_its_end_is_not_proven() {
    let (place, victim) = (Place::default(), Waiting::start());
    let history = place.dir.path().join("h.jsonl");
    let killed = paused(victim.pid(), "after_sec: 3, for_sec: 1, times: 2")
        .replace("pause", "kill")
        .replace("stopped", "zombie");
    let front = format!(
        "{FRONT}{killed}workload: {{command: \"{}\", duration_sec: 14}}\nhistory: {{path: {}}}\n{CHECKER}",
        reads(&history, 14, "null"),
        history.display()
    );
    let done = run(&place, &front, &[]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(3), "{out}{}", text(&done.stderr));
    assert!(out.contains("1 of 2 injections are proven"), "{out}");
    assert!(out.contains("VERDICT: INCONCLUSIVE-fault-not-proven"), "{out}");
}

#[test]
fn a_failure_that_shows_again_is_reproducible_and_fewer_injections_are_tried() {
    let (place, victim) = (Place::default(), Waiting::start());
    let history = place.dir.path().join("h.jsonl");
    let front = format!(
        "{FRONT}{}workload: {{command: \"{}\", duration_sec: 12}}\nhistory: {{path: {}}}\n{CHECKER}",
        paused(victim.pid(), "after_sec: 3, for_sec: 1, times: 2"),
        reads(&history, 12, "7"),
        history.display()
    );
    let done = run(&place, &front, &["--confirm", "1"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{out}{}", text(&done.stderr));
    assert!(out.contains("VERDICT: FAIL-reproducible") && out.contains("seen again in 1 of 1 re-runs"), "{out}");
    assert!(out.contains("from 2 injections to 1, over 1 re-runs"), "{out}");
}

#[test]
fn a_failure_that_does_not_show_again_is_a_lead_only() {
    let place = Place::default();
    let (history, once) = (place.dir.path().join("h.jsonl"), place.dir.path().join("once"));
    let last = format!("$(test -e {0} && echo null || echo 7; touch {0})", once.display());
    let front = format!(
        "{FRONT}fault: none\nworkload: {{command: \"{}\", duration_sec: 4}}\nhistory: {{path: {}}}\n{CHECKER}",
        reads(&history, 4, &last),
        history.display()
    );
    let done = run(&place, &front, &["--confirm", "1"]);
    let out = text(&done.stdout);
    assert!(out.contains("VERDICT: FAIL-nondeterministic") && out.contains("not seen again in 1 re-runs"), "{out}");
}

#[test]
fn seeds_are_counted_over_all_sound_runs_in_the_ledger_each_once() {
    let place = Place::default();
    let history = place.dir.path().join("h.jsonl");
    let front = format!(
        "{FRONT}fault: none\nworkload: {{command: \"{}\", duration_sec: 4}}\nhistory: {{path: {}}}\n{CHECKER}budgets: {{hardening: {{seeds: 3}}}}\n",
        reads(&history, 4, "null"),
        history.display()
    );
    let given = |seed: &str| {
        let out = text(&run(&place, &front, &["--seed", seed]).stdout);
        (document(&out, "facts.json")["given"]["seeds"].clone(), out)
    };
    assert_eq!(given("1").0, 1);
    assert_eq!(given("1").0, 1);
    assert_eq!(given("2").0, 2);
    let (seeds, out) = given("3");
    assert!(seeds == 3 && out.contains("tier: hardening"), "{out}");
    let findings = std::fs::read_to_string(evidence(&out).join("findings.md")).unwrap();
    assert!(findings.contains("sound ones in the ledger: 1, 2, 3"), "{findings}");
}

#[test]
fn a_history_of_an_earlier_run_is_never_judged_for_this_one() {
    let place = Place::default();
    let history = place.dir.path().join("h.jsonl");
    std::fs::write(&history, "{\"op_id\":1,\"process_id\":0,\"invoke_ts\":1,\"complete_ts\":2,\"op_type\":\"read\",\"key\":null,\"input\":null,\"output\":null,\"error\":null,\"timeout_marker\":false,\"node_seen\":null,\"fault_epoch\":null}\n").unwrap();
    let front = format!(
        "{FRONT}fault: none\nworkload: {{command: \"sleep 5\", duration_sec: 5}}\nhistory: {{path: {}}}\n{CHECKER}",
        history.display()
    );
    let done = run(&place, &front, &[]);
    assert_eq!(done.status.code(), Some(4), "{}", text(&done.stdout));
    assert!(text(&done.stderr).contains("ERR_STEADY_STATE_UNMEASURABLE"), "{}", text(&done.stderr));
    assert!(history.with_extension("jsonl.earlier").exists(), "nothing is lost");
    assert!(asked(&place, &["last-verdict", "s"]).contains("INCONCLUSIVE-env"));
}

#[test]
fn a_fault_that_cannot_be_taken_back_fails_calls_a_person_and_can_be_reverted_later() {
    let place = Place::default();
    let (history, mended, called) =
        (place.dir.path().join("h.jsonl"), place.dir.path().join("mended"), place.dir.path().join("called"));
    std::fs::create_dir_all(place.home()).unwrap();
    let page = format!("page = [\"sh\", \"-c\", \"echo $0 > {}\"]\n", called.display());
    std::fs::write(place.home().join("config.toml"), page).unwrap();
    let front = format!(
        "{FRONT}fault:\n  injector: command\n  inject: \"true\"\n  status: \"date +%s%N\"\n  revert: \"test -e {}\"\n  schedule: {{for_sec: 1}}\nworkload: {{command: \"{}\", duration_sec: 6}}\nhistory: {{path: {}}}\n{CHECKER}",
        mended.display(),
        reads(&history, 6, "null"),
        history.display()
    );
    let done = run(&place, &front, &["--confirm", "1"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(5), "{out}{}", text(&done.stderr));
    assert!(out.contains("VERDICT: FAIL-nondeterministic") && out.contains("ERR_ROLLBACK_FAILED"), "{out}");
    let journal = std::fs::read_to_string(&called).unwrap();
    assert!(Path::new(journal.trim()).exists() && out.contains(journal.trim()), "{journal}");
    let tasks = asked(&place, &["tasks", "open"]);
    assert!(tasks.contains("incident-responder"), "{tasks}");
    std::fs::write(&mended, "").unwrap();
    let reverted = place.command(&["revert"]).output().unwrap();
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted.stdout));
}

#[test]
fn a_dry_run_prints_each_command_and_touches_nothing() {
    let (place, victim) = (Place::default(), Waiting::start());
    let history = place.dir.path().join("h.jsonl");
    let front = format!(
        "{FRONT}{}workload: {{command: \"touch {}\", duration_sec: 60}}\nhistory: {{path: h}}\n{CHECKER}",
        paused(victim.pid(), "after_sec: 5, for_sec: 2, times: 3"),
        history.display()
    );
    let done = run(&place, &front, &["--dry-run"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{out}{}", text(&done.stderr));
    for line in [
        format!("inject:   kill -STOP {}", victim.pid()),
        format!("revert:   kill -CONT {}", victim.pid()),
        "schedule: after 5 s of load, for 2 s, 3 times; gone after 20 s whatever happens".into(),
        "check:    elench check --checker linear --model register history.parquet".into(),
    ] {
        assert!(out.contains(&line), "{line} is not in\n{out}");
    }
    assert!(!history.exists() && !place.home().exists());
}

#[test]
fn a_changed_manifest_is_found_by_what_the_ledger_recorded() {
    let place = Place::default();
    let history = place.dir.path().join("h.jsonl");
    let front = format!(
        "{FRONT}{ENOUGH}fault: none\nworkload: {{command: \"{}\", duration_sec: 4}}\nhistory: {{path: {}}}\n{CHECKER}",
        reads(&history, 4, "null"),
        history.display()
    );
    let out = text(&run(&place, &front, &[]).stdout);
    let dir = evidence(&out);
    let verify = || place.command(&["evidence", "verify", dir.to_str().unwrap()]).output().unwrap();
    assert_eq!(verify().status.code(), Some(0), "{}", text(&verify().stdout));
    let path = dir.join("manifest.json");
    let manifest = std::fs::read_to_string(&path).unwrap().replace("PASS-smoke", "PASS-hardening");
    assert!(Command::new("chmod").args(["-R", "u+w", dir.to_str().unwrap()]).status().unwrap().success());
    std::fs::write(&path, manifest).unwrap();
    assert_eq!(verify().status.code(), Some(1));
    assert!(text(&verify().stdout).contains("CHANGED  manifest.json"), "{}", text(&verify().stdout));
}

#[test]
fn a_manifest_of_chaos_mesh_is_held_to_the_rules_before_its_tool_is_called() {
    let place = Place::default();
    let (shim, calls) = (place.dir.path().join("bin"), place.dir.path().join("calls"));
    std::fs::create_dir_all(&shim).unwrap();
    std::fs::create_dir_all(place.home()).unwrap();
    std::fs::write(shim.join("kubectl"), format!("#!/bin/sh\necho \"$*\" >> {}\nexit 1\n", calls.display())).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(shim.join("kubectl")).status().unwrap().success());
    std::fs::write(place.home().join("config.toml"), "sandbox = [\"kube:kind\"]\n").unwrap();
    std::fs::write(place.home().join("context.md"), "- deny target auth-*\n").unwrap();
    let manifest = place.dir.path().join("kill.yaml");
    let of = |app: &str| {
        let text = format!(
            "apiVersion: chaos-mesh.org/v1alpha1\nkind: PodChaos\nmetadata: {{name: x}}\nspec: {{action: pod-kill, mode: one, selector: {{labelSelectors: {{app: {app}}}}}}}\n"
        );
        std::fs::write(&manifest, text).unwrap();
        let front = format!(
            "{}fault: {{injector: chaos-mesh, context: kind, file: {}}}\nworkload: {{command: \"true\"}}\nhistory: {{path: h}}\n{CHECKER}",
            FRONT.replace("127.0.0.1:1", "kube:kind"),
            manifest.display()
        );
        let scenario = place.scenario(&front);
        let path = format!("{}:{}", shim.display(), std::env::var("PATH").unwrap());
        place.command(&["run", scenario.to_str().unwrap()]).env("PATH", path).output().unwrap()
    };
    for (app, code) in [("auth-7", "ERR_CONTEXT_CONFLICT"), ("production", "ERR_PROD_UNAUTHORIZED")] {
        let done = of(app);
        assert_eq!(done.status.code(), Some(4));
        assert!(text(&done.stderr).contains(code), "{}", text(&done.stderr));
        assert!(!calls.exists(), "{}", std::fs::read_to_string(&calls).unwrap());
    }
    assert!(text(&of("web").stderr).contains("ERR_INJECTOR_MISSING"), "only now its tool is asked");
    assert!(calls.exists());
}
