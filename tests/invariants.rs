//! Real runs and reference cases of banks, counters, long forks and the like get the right answers. The corpus stands beside the
//! repository; where it does not, these tests say so and pass.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use elench::check::{CheckOptions, Found, Report, Valid, check};
use elench_formats::History;
use elench_formats::build::Lift;
use elench_formats::notation::history;
use elench_formats::open::{OpenOptions, open, open_bytes};
use serde_json::Value as Json;

fn corpus() -> Option<PathBuf> {
    let dir = std::env::var_os("ELENCH_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: there is no corpus at {}", dir.display());
    None
}

fn run(h: &History, checker: &str, change: impl Fn(&mut CheckOptions)) -> Report {
    let mut options = CheckOptions { checkers: vec![checker.into()], ..CheckOptions::default() };
    change(&mut options);
    check("history", h, &options).unwrap()
}

fn kinds(report: &Report) -> Vec<(&'static str, u64)> {
    let found = report.findings.iter().filter_map(|f| match &f.result {
        Found::Findings(found) => Some(found),
        _ => None,
    });
    found.flat_map(|found| found.violations().map(|(name, kind)| (name, kind.count)).collect::<Vec<_>>()).collect()
}

fn file(dir: &Path, name: &str) -> History {
    let path = dir.join("jepsen-runs").join(name).display().to_string();
    open(&path, &OpenOptions::default(), &|_, _| {}).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn runs_of_the_manifest_get_its_verdict_from_the_checkers_of_their_workloads() {
    let Some(dir) = corpus() else { return };
    let text = std::fs::read_to_string(dir.join("jepsen-runs/MANIFEST.tsv")).unwrap();
    let mut checked = 0;
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let (name, workload, expected) = (row[0], row[2], row[4]);
        let checker = match workload {
            "counter" | "bank" | "long-fork" | "comments" => workload,
            "mutex" => "mutex-exclusion",
            _ => continue,
        };
        let expected = match expected {
            e if e.starts_with("true") => Valid::Yes,
            e if e.starts_with("false") => Valid::No,
            // The reference crashes: the read shows 430 and misses 425, acknowledged before 430 was begun.
            "-" if workload == "comments" => Valid::No,
            other => panic!("{name}: {other}"),
        };
        let h = file(&dir, name);
        // The reference passes a counter that nobody read: that is no evidence.
        let unread = workload == "counter" && !h.clients().any(|op| op.f() == Some("read"));
        let expected = if unread { Valid::Unknown } else { expected };
        let report = run(&h, checker, |_| {});
        assert_eq!(report.valid, expected, "{name}: {:?} {:?}", report.why, kinds(&report));
        checked += 1;
    }
    assert!(checked >= 15, "{checked}");
}

#[test]
fn an_overdrawn_account_is_a_violation_unless_allowed() {
    let Some(dir) = corpus() else { return };
    let h = file(&dir, "elle-cli/jepsen/bank-negative-balances.json");
    assert_eq!(kinds(&run(&h, "bank", |_| {})), [("negative-balance", 1)]);
    let allowed = run(&h, "bank", |options| options.settings.invariant.negative_balances = true);
    assert_eq!(allowed.valid, Valid::Yes);
}

#[test]
fn the_doubled_additions_of_a_real_run_are_found_as_its_own_checker_found_them() {
    let Some(dir) = corpus() else { return };
    let h = file(&dir, "ratis/ratis-3.2.2__EXPECTED-RED-q14-retry-cache-expiry/history.edn");
    let report = run(&h, "counter", |_| {});
    assert!(kinds(&report).iter().any(|(kind, n)| *kind == "above-attempted" && *n > 10), "{:?}", kinds(&report));
}

#[test]
fn a_bank_of_credits_and_debits_is_a_counter() {
    let Some(dir) = corpus() else { return };
    for name in ["history.edn", "history.txt", "test.jepsen"] {
        let h = file(&dir, &format!("redis-sentinel/bank-simple-test/{name}"));
        assert_eq!(run(&h, "bank", |_| {}).valid, Valid::Unknown);
        let report = run(&h, "counter", |options| options.initial = elench_formats::Value::Int(100));
        assert_eq!(report.valid, Valid::Yes, "{name}: {:?} {:?}", report.why, kinds(&report));
        assert_eq!(run(&h, "counter", |_| {}).valid, Valid::No, "it does not begin at 0");
    }
}

/// Without being asked for anything, no run that its manifest calls good is accused.
#[test]
fn no_checker_that_runs_unasked_accuses_a_run_that_is_good() {
    let Some(dir) = corpus() else { return };
    let text = std::fs::read_to_string(dir.join("jepsen-runs/MANIFEST.tsv")).unwrap();
    let (mut judged, mut valid) = (0, 0);
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let [name, format, workload, _, expected, ..] = row[..] else { panic!("{line}") };
        let history = ["edn", "txt", "jepsen", "log", "json"].contains(&format) && workload != "results";
        if !history || name.ends_with("results.edn") || !expected.starts_with("true") {
            continue;
        }
        let h = file(&dir, name);
        let guessed = elench_checkers::workload::guess(&h).name;
        for entry in elench::battery::invariant::ENTRIES.iter().filter(|entry| entry.workloads.contains(&guessed)) {
            let report = run(&h, entry.info.name, |_| {});
            assert_ne!(report.valid, Valid::No, "{name}: {guessed} {:?}", kinds(&report));
            judged += 1;
            valid += u32::from(report.valid == Valid::Yes);
        }
    }
    assert!(judged > 5 && valid > 5, "{judged} {valid}");
}

#[test]
fn reference_cases_are_answered_as_the_reference_does_where_it_is_right() {
    let Some(dir) = corpus() else { return };
    let text = std::fs::read_to_string(dir.join("checker-cases.jsonl")).unwrap();
    let mut checked = 0;
    for line in text.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let checker = match case["checker"].as_str().unwrap() {
            "Counter" => "counter",
            "causal-reverse" => "causal-reverse",
            "long-fork" => "long-fork",
            _ => continue,
        };
        let options = OpenOptions { lift: Lift::Never, ..OpenOptions::default() };
        let mut events = case["history"].clone();
        // Writes of one process that overlap are no history: where the reference lets them, each gets a process of its own.
        let mut process = 100;
        let mut open: Vec<(Json, u64)> = Vec::new();
        for event in events.as_array_mut().unwrap() {
            let (f, kind) = (event["f"].clone(), event["type"].as_str().unwrap().to_string());
            let told =
                [f.clone(), if f == "write" { event["value"].clone() } else { Json::Null }, event["process"].clone()];
            let key = Json::from(told.to_vec());
            if kind == "invoke" {
                process += 1;
                open.push((key, process));
                event["process"] = process.into();
            } else {
                let at = open.iter().position(|(k, _)| *k == key).unwrap();
                event["process"] = open.remove(at).1.into();
            }
            event.as_object_mut().unwrap().remove("time");
        }
        let h = open_bytes(events.to_string().as_bytes(), &options).unwrap();
        let expected = if case["expected"]["valid"] == Json::Bool(true) { Valid::Yes } else { Valid::No };
        let report = run(&h, checker, |_| {});
        assert_eq!(report.valid, expected, "{}: {:?} {:?}", case["name"], report.why, kinds(&report));
        checked += 1;
    }
    assert_eq!(checked, 13);
}

#[test]
fn no_known_fault_of_todays_tools_is_ours() {
    let of = |checker: &str, text: &str| run(&history(text).unwrap(), checker, |_| {});
    let negative = of("counter", "invoke 0 add 5 / ok 0 / invoke 0 add -2 / ok 0 / invoke 0 read / ok 0 read 3");
    assert_eq!(negative.valid, Valid::Yes, "a negative addition aborts nothing");
    let down = of("counter", "invoke 1 add 5 / invoke 0 read / ok 0 read 5 / invoke 0 read / ok 0 read 0 / ok 1");
    assert_eq!(kinds(&down), [("went-down", 1)], "a process that reads less than before");
    assert_eq!(of("counter", "invoke 0 add 5 / ok 0").valid, Valid::Unknown, "no read is no evidence");
    let two = run(&history("invoke 0 read / ok 0 read {0 9, 1 -1}").unwrap(), "bank", |options| {
        options.settings.invariant.total = Some(10);
    });
    assert_eq!(kinds(&two), [("negative-balance", 1), ("wrong-total", 1)], "both broken rules of one read");
    let fork = "invoke 0 txn [[:r 0 nil] [:r 1 nil]] / invoke 1 txn [[:r 0 nil] [:r 1 nil]] / \
                ok 0 txn [[:r 0 1] [:r 1 nil]] / ok 1 txn [[:r 0 nil] [:r 1 1]]";
    assert_eq!(of("long-fork", fork).valid, Valid::No, "no group size was told");
    let comments = "invoke 0 write 1 / ok 0 / invoke 0 write 2 / ok 0 / invoke 0 read / ok 0 read #{2}";
    assert_eq!(kinds(&of("comments", comments)), [("causal-reverse", 1)], "comments does not crash");
    let subkeys = "invoke 0 write 5 / ok 0 / invoke 0 read 5 / ok 0 read [5 [\"5_1\" nil]]";
    assert_eq!(kinds(&of("subkeys", subkeys)), [("missing-subkey", 1)], "sequential does not crash");
    let tagged = of("bank", "invoke 0 read / ok 0 read {0 10, 1 #object \"x\"}");
    assert_eq!(tagged.valid, Valid::Unknown, "a tagged literal is read, and no balance");
}

#[test]
fn the_checker_of_the_workload_runs_unasked_and_linearizability_only_when_asked_for() {
    let names = |text: &str, model: Option<&str>| -> Vec<&'static str> {
        let options = CheckOptions { model: model.map(Into::into), ..CheckOptions::default() };
        let report = check("history", &history(text).unwrap(), &options).unwrap();
        report.findings.iter().filter(|f| f.checker.judges).map(|f| f.checker.name).collect()
    };
    let counter = "invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read 1";
    assert_eq!(names(counter, None), ["counter"]);
    assert_eq!(names(counter, Some("counter")), ["linear", "counter"]);
    assert_eq!(names("invoke 0 read / ok 0 read {0 1}", None), ["bank"]);
    assert_eq!(names("invoke 0 write 1 / ok 0 / invoke 0 read / ok 0 read #{1}", None), ["comments"]);
    let versions = "invoke 0 write 4 / ok 0 / invoke 0 write 5 / ok 0 / invoke 0 read / ok 0 read [2 5]";
    assert!(names(versions, None).is_empty(), "a pair may be a version and a value");
    assert_eq!(names("invoke 0 insert [1 [2 nil]] / ok 0", None), ["adya-g2"]);
}

#[test]
fn inserts_of_pairs_are_judged_though_nothing_shows_whether_they_are_keyed() {
    let jepsen = |second: &str| {
        let op =
            |process, kind, value: &str| format!("{{:process {process}, :type {kind}, :f :insert, :value {value}}}\n");
        let (first, second) = ("[1 [1 nil]]", format!("[{second} [nil 2]]"));
        let text = op(0, ":invoke", first) + &op(0, ":ok", first) + &op(1, ":invoke", &second) + &op(1, ":ok", &second);
        run(&open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap(), "adya-g2", |_| {})
    };
    let (wrong, right) = (jepsen("1"), jepsen("2"));
    assert_eq!((wrong.valid, kinds(&wrong)), (Valid::No, vec![("G2", 1)]));
    assert_eq!(right.valid, Valid::Yes, "{:?}", right.why);
}

#[test]
fn a_history_without_real_time_is_refused_where_it_matters() {
    use elench_formats::build::BuildOptions;
    use elench_formats::notation::history_with;
    let text = "invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read 5";
    let h = history_with(text, BuildOptions { format: "sessions".into(), real_time: false, ..BuildOptions::default() });
    let report = run(&h.unwrap(), "counter", |_| {});
    assert_eq!(report.valid, Valid::Unknown);
    assert!(report.why.unwrap().contains("real time"));
}
