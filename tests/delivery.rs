//! What the command says of deliveries: which checkers run unasked, and what their flags do.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use elench::check::{CheckOptions, Finding, Found, Report, Valid, check};
use elench_checkers::findings::Findings;
use elench_formats::notation::history;
use serde_json::Value as Json;

fn report(text: &str, checkers: &[&str]) -> Report {
    let options =
        CheckOptions { checkers: checkers.iter().map(|c| c.to_string()).collect(), ..CheckOptions::default() };
    check("history", &history(text).unwrap(), &options).unwrap()
}

fn ran(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|f| f.checker.name).filter(|name| !["stats", "exceptions"].contains(name)).collect()
}

fn found(finding: &Finding) -> &Findings {
    let Found::Findings(found) = &finding.result else { panic!("{finding:?}") };
    found
}

#[test]
fn deliveries_are_checked_unasked_and_linearizability_only_when_it_is_claimed() {
    for (text, checker) in [
        ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read [1]", "set-full"),
        ("invoke 0 enqueue 1 / ok 0 / invoke 0 dequeue / ok 0 dequeue 1", "total-queue"),
        ("invoke 0 generate / ok 0 generate 1", "unique-ids"),
        ("invoke 0 broadcast 1 / ok 0 / invoke 0 read / ok 0 read [1]", "broadcast"),
    ] {
        let report = report(text, &[]);
        assert_eq!(ran(&report), [checker]);
        assert_eq!(report.valid, Valid::Yes, "{checker}: {:?}", report.why);
    }
    let options = CheckOptions { model: Some("set".into()), ..CheckOptions::default() };
    let stale =
        history("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read [] / invoke 0 read / ok 0 read [1]").unwrap();
    let claimed = check("history", &stale, &options).unwrap();
    assert_eq!((ran(&claimed), claimed.valid), (vec!["linear", "set-full"], Valid::No));
    assert_eq!(check("history", &stale, &CheckOptions::default()).unwrap().valid, Valid::Yes);
}

#[test]
fn what_was_not_drained_is_lost_only_where_the_checker_is_asked_for() {
    let text = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 0 dequeue / ok 0 dequeue 1";
    let unasked = report(text, &[]);
    assert_eq!(unasked.valid, Valid::Unknown);
    assert!(unasked.why.unwrap().contains("emptied"));
    let asked = report(text, &["total-queue"]);
    assert_eq!(asked.valid, Valid::No);
    assert_eq!(found(&asked.findings[0]).count("lost"), 1);
}

/// The exit code, and the first finding.
fn elench(args: &[&str], dir: &Path) -> (i32, Json) {
    let output = Command::new(env!("CARGO_BIN_EXE_elench")).current_dir(dir).args(args).output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!("{e}: {} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code().unwrap(), document)
}

#[test]
fn dumps_and_audit_logs_are_read_from_files_of_many_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let op = |process: u32, kind: &str, id: &str| {
        format!("{{:process {process}, :type {kind}, :f :add, :value {id}, :request-id \"r{id}\"}}\n")
    };
    let events = [
        (0, ":invoke", "1"),
        (0, ":info", "1"),
        (1, ":invoke", "1"),
        (1, ":ok", "1"),
        (1, ":invoke", "2"),
        (1, ":ok", "2"),
    ];
    write("history.edn", &events.map(|(p, kind, id)| op(p, kind, id)).concat());
    for (name, text, fine) in [
        ("n1.txt", "1\n2\n", true),
        ("n1.json", "[1, 2]", true),
        ("n1.edn", "#{1 2}", true),
        ("n1.jsonl", "2\n", false),
    ] {
        write(name, text);
        let (code, document) =
            elench(&["check", "--json", "--checker", "no-lost-ack", "--final", name, "history.edn"], dir.path());
        assert_eq!(code, i32::from(!fine), "{name}: {document}");
    }
    for (name, text, fine) in [
        ("audit.csv", "request_id,sum\nr1,5\nr2,1\n", true),
        ("audit.jsonl", "{\"request_id\": \"r1\"}\n{\"request_id\": \"r2\"}\n", true),
        ("audit.txt", "r1\nr2\nr1\n", false),
        ("audit.edn", &events.map(|(p, kind, id)| op(p, kind, id)).concat(), true),
    ] {
        write(name, &text.replace("request_id", "request-id"));
        let key = ["--idempotency-key", "extra.request-id", "--effects", name];
        let args = [&["check", "--json", "--checker", "exactly-once"], &key[..], &["history.edn"]].concat();
        let (code, document) = elench(&args, dir.path());
        assert_eq!(code, i32::from(!fine), "{name}: {document:#}");
    }
}
