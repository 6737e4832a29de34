//! Real runs get the verdicts that their manifest gives them. The corpus stands beside the repository; where it does not,
//! these tests say so and pass.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use elench::check::{CheckOptions, Found, Valid, check};
use elench_checkers::Budget;
use elench_formats::build::Lift;
use elench_formats::open::{OpenOptions, open};
use elench_formats::{History, Value};

fn corpus() -> Option<PathBuf> {
    let dir = std::env::var_os("ELENCH_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: there is no corpus at {}", dir.display());
    None
}

fn options(initial: &str) -> CheckOptions {
    CheckOptions {
        checkers: vec!["linear".into()],
        model: None,
        initial: elench_formats::edn::parse(initial).unwrap_or(Value::Nil),
        cross_check: true,
        budget: Budget::unlimited(),
        examples: 1,
        ..CheckOptions::default()
    }
}

fn read(path: &Path, options: &OpenOptions) -> History {
    open(&path.display().to_string(), options, &|_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn register_runs_get_the_verdict_of_the_manifest() {
    let Some(dir) = corpus() else { return };
    let dir = dir.join("jepsen-runs");
    let text = std::fs::read_to_string(dir.join("MANIFEST.tsv")).unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let [file, format, workload, _, expected, _, _, initial] = row[..] else { panic!("{line}") };
        let is_register = ["register", "register-rw", "cas-register", "cas-register-independent"].contains(&workload);
        if !is_register || !["edn", "txt", "jepsen", "log"].contains(&format) || file.ends_with("results.edn") {
            continue;
        }
        let expected = match expected {
            "true" | "true (linearizable)" => Valid::Yes,
            "false" => Valid::No,
            other => panic!("{file}: {other}"),
        };
        let history = read(&dir.join(file), &OpenOptions::default());
        let report = check(file, &history, &options(initial)).unwrap();
        checked += 1;
        // Knossos passes these two; but every operation in them failed, so that nothing was shown of the register.
        let vacuous =
            ["mongodb-v0-ack-rollback-9.edn", "mongodb-v0-ack-rollback-11.edn"].iter().any(|f| file.ends_with(f));
        if vacuous {
            assert_eq!(report.valid, Valid::Unknown, "{file}");
            assert_eq!(history.counts()[0], 0, "{file}");
        } else if report.valid != expected {
            wrong.push(format!("{file}: {} instead of {expected} {:?}", report.valid, report.why));
        }
    }
    assert!(checked >= 160, "{checked} runs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What to ask of a run besides what its operations tell: a model that its workload does not promise of itself, and what it begins
/// with.
fn asked(workload: &str, initial: &str) -> Option<CheckOptions> {
    let with =
        |model: Option<&str>, initial: &str| Some(CheckOptions { model: model.map(Into::into), ..options(initial) });
    match workload {
        "mutex" => with(None, "nil"),
        // Quoted as CSV does it.
        "kv-append" => with(None, if initial.trim_matches('"').is_empty() { "\"\"" } else { initial }),
        "multi-register" => with(Some("multi-register"), initial),
        "counter" => with(Some("counter"), "nil"),
        "bank" => with(Some("bank"), "nil"),
        // Accounts of one, where each change says what it made of it; the test opens them with a hundred.
        "bank-credit-debit" => with(Some("counter"), "100"),
        "set-full" => with(Some("set"), "nil"),
        _ => None,
    }
}

#[test]
fn runs_of_other_objects_get_the_verdict_of_the_manifest() {
    let Some(dir) = corpus() else { return };
    let dir = dir.join("jepsen-runs");
    let text = std::fs::read_to_string(dir.join("MANIFEST.tsv")).unwrap();
    let (mut checked, mut wrong) = (Vec::new(), Vec::new());
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let [file, format, workload, _, expected, _, _, initial] = row[..] else { panic!("{line}") };
        let Some(options) = asked(workload, initial).filter(|_| format != "results" && !file.ends_with("results.edn"))
        else {
            continue;
        };
        let expected = match expected {
            // A read that differs from the one before it with nothing in between is not linearizable, whatever balances may be.
            "false" | "false (neg); true with --allow-negative-balances" => Valid::No,
            "true" => Valid::Yes,
            other => panic!("{file}: {other}"),
        };
        // Elements are pairs, and look like keys and elements.
        let lift = if workload == "set-full" { Lift::Never } else { Lift::Auto };
        let history = read(&dir.join(file), &OpenOptions { lift, ..OpenOptions::default() });
        let report = check(file, &history, &options).unwrap();
        if report.valid != expected {
            wrong.push(format!("{file}: {} instead of {expected} {:?}", report.valid, report.why));
        }
        match checked.iter_mut().find(|(w, _)| *w == workload) {
            Some((_, n)) => *n += 1,
            None => checked.push((workload, 1)),
        }
    }
    println!("{checked:?}");
    assert!(checked.iter().map(|(_, n)| n).sum::<u32>() >= 22, "{checked:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without being asked for anything, no run that its manifest calls good is accused.
#[test]
fn no_guess_accuses_a_run_that_is_good() {
    let Some(dir) = corpus() else { return };
    let dir = dir.join("jepsen-runs");
    let text = std::fs::read_to_string(dir.join("MANIFEST.tsv")).unwrap();
    let mut guessed = 0;
    for line in text.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let [file, format, workload, _, expected, _, _, initial] = row[..] else { panic!("{line}") };
        let history = ["edn", "txt", "jepsen", "log", "json"].contains(&format) && workload != "results";
        if !history || file.ends_with("results.edn") || !expected.starts_with("true") || workload == "kv-append" {
            continue;
        }
        let history = read(&dir.join(file), &OpenOptions::default());
        let initial = if workload == "cas-register" { initial } else { "nil" };
        let report = check(file, &history, &options(initial)).unwrap();
        assert_ne!(report.valid, Valid::No, "{file}: {}", report.workload.name);
        guessed += u32::from(report.valid == Valid::Yes);
    }
    assert!(guessed > 100, "{guessed}");
}

#[test]
fn a_keyed_run_read_without_lifting_would_be_accused_falsely() {
    let Some(dir) = corpus() else { return };
    let run = dir.join("jepsen-runs/ratis/ratis-3.2.2__membership/history.edn");
    let lifted = read(&run, &OpenOptions::default());
    let report = check("", &lifted, &options("nil")).unwrap();
    assert_eq!(report.valid, Valid::Yes);
    let Found::Linear(linear) = &report.findings[0].result else { panic!("linear ran") };
    assert_eq!((linear.outcome.coverage().keys, linear.outcome.coverage().keys_decided), (5, 5));
    assert_eq!(lifted.key_index().len(), 5);
}

#[test]
fn the_walls_of_the_peers_are_decided() {
    let Some(dir) = corpus() else { return };
    for (file, expected) in [
        ("redis-latency.edn.gz", Valid::No),
        ("reg-uniq-c10-100k-ok.edn.gz", Valid::Yes),
        ("reg-uniq-c20-3k-bad.edn.gz", Valid::No),
        ("reg-uniq-c20-3k-ok.edn.gz", Valid::Yes),
        ("reg-uniq-c5-i1-10k-bad.edn.gz", Valid::No),
        ("reg-uniq-c50-300-ok.edn.gz", Valid::Yes),
        ("reg-vals5-c10-i1-10k-ok.edn.gz", Valid::Yes),
        // Its name says ok, for fifty registers with [k v] values; but its values bear no keys, and as one register it is
        // not linearizable: a read of nil (operation 30) begins after a write of 4 (operation 16) was acknowledged.
        ("reg-keys50-c20-100k-ok.edn.gz", Valid::No),
    ] {
        let history = read(&dir.join("linear").join(file), &OpenOptions::default());
        assert_eq!(check(file, &history, &options("nil")).unwrap().valid, expected, "{file}");
    }
}
