//! What the reference checkers say, and where they are wrong.

use std::path::PathBuf;

use elench_formats::build::Lift;
use elench_formats::open::{Format, OpenOptions, open, open_bytes};
use serde_json::Value as Json;

use super::*;
use crate::delivery::*;

fn corpus() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus").into();
    let root: PathBuf = std::env::var_os("ELENCH_CORPUS").map_or(default, PathBuf::from);
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: there is no corpus at {}", root.display());
    None
}

/// The answer in the words of the reference.
fn answer(found: &Findings) -> &'static str {
    match (found.is_invalid(), found.is_valid()) {
        (true, _) => "false",
        (_, true) => "true",
        _ => "unknown",
    }
}

#[test]
fn cases_of_the_reference_are_answered_as_there_or_rightly() {
    let Some(dir) = corpus() else { return };
    let text = std::fs::read_to_string(dir.join("checker-cases.jsonl")).unwrap();
    let mut checked = 0;
    for case in text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()) {
        let name = case["name"].as_str().unwrap_or_default();
        let options = OpenOptions { format: Some(Format::Json), lift: Lift::Never, ..OpenOptions::default() };
        let run: fn(&History) -> Findings = match case["checker"].as_str().unwrap() {
            "SetFull" => |h| set_full(h, false, 3),
            "Set" => |h| set(h, 3),
            "Queue" => |h| queue(h, &QueueOptions::default(), 3),
            "TotalQueue" => |h| total_queue(h, &QueueOptions { named: true, ..QueueOptions::default() }, 3),
            "UniqueIds" => |h| unique_ids(h, false, 3),
            _ => continue,
        };
        let events: String = case["history"].as_array().unwrap().iter().map(|e| format!("{e}\n")).collect();
        let history = match open_bytes(events.as_bytes(), &options) {
            Ok(history) => history,
            Err(e) => {
                // Completions without invocations: no client recorded that.
                assert!(
                    name.contains("Definite enqueue but no dequeue") || name.contains("dequeue but no enqueue"),
                    "{name}: {e}"
                );
                continue;
            }
        };
        let found = run(&history);
        let expected = case["expected"]["valid"].to_string().replace('"', "");
        // A queue from which nothing is dequeued shows nothing, whatever the reference says.
        let vacuous =
            name.contains("Possible enqueue but no dequeue") || name.contains("Definite enqueue but no dequeue");
        let expected = if vacuous { "unknown" } else { expected.as_str() };
        checked += 1;
        if name.ends_with("set-full-test/write, flutter, stable/lost") {
            // The last read to be invoked misses 0, and the one that shows it was under way all that time: it may have come after.
            // The reference goes by invocations and calls 0 lost.
            assert!(found.is_valid() && found.count("stale") == 2, "{found:?}");
            continue;
        }
        assert_eq!(answer(&found), expected, "{name} {found:?}");
        if name.ends_with("total-queue-test/pathological") {
            // The reference calls the acknowledged message lost. A dequeue crashed, which may have taken it.
            assert_eq!(
                (found.count("missing"), found.count("lost"), found.count("unexpected")),
                (1, 0, 1),
                "{found:?}"
            );
            continue;
        }
        counts_agree(name, &case["expected"]["result"], &found);
    }
    assert!(checked >= 20, "{checked}");
}

/// Counts that both tell, where they mean the same.
fn counts_agree(name: &str, expected: &Json, found: &Findings) {
    for (theirs, ours) in [("lost-count", "lost"), ("stale-count", "stale")] {
        if let Some(n) = expected[theirs].as_u64() {
            assert_eq!(found.count(ours), n, "{name}: {theirs} {found:?}");
        }
    }
    if let Some(n) = expected["unexpected-count"].as_u64() {
        assert_eq!(found.count("unexpected"), n, "{name}");
    }
    if let Some(n) = expected["stable-count"].as_u64() {
        use crate::findings::Fact;
        let undecided = !found.is_valid() && !found.is_invalid();
        assert!(undecided || found.fact_of("stable") == Some(&Fact::Count(n)), "{name} {found:?}");
    }
}

#[test]
fn runs_of_sets_get_the_verdict_of_the_manifest() {
    let Some(dir) = corpus() else { return };
    let runs = dir.join("jepsen-runs");
    // Elements are pairs, and reads show numbers: nothing that was added is there.
    for file in ["elle-cli/jepsen/set_full.edn", "elle-cli/jepsen/set_full.json"] {
        let options = OpenOptions { lift: Lift::Never, ..OpenOptions::default() };
        let h = open(&runs.join(file).display().to_string(), &options, &|_, _| {}).unwrap();
        let found = set_full(&h, false, 3);
        assert!(found.count("lost") > 0 && found.count("unexpected") > 0, "{file} {found:?}");
    }
    // Redis lost one write when its primary was replaced: no read came after it, but what the nodes held at the end tells.
    let dir = runs.join("redis-sentinel/redis-set-split-brain-test");
    let results = elench_formats::edn::parse(&std::fs::read_to_string(dir.join("results.edn")).unwrap()).unwrap();
    let content = results.get("split-brain-analysis").and_then(|a| a.get("final-node-states")).unwrap().clone();
    let dumps = [Dump { name: "final-node-states".into(), content }];
    for file in ["history.txt", "test.jepsen"] {
        let h = open(&dir.join(file).display().to_string(), &OpenOptions::default(), &|_, _| {}).unwrap();
        for found in [set_full(&h, false, 3), set(&h, 3), no_lost_ack(&h, &[], 3)] {
            assert_eq!(violated(&found), [], "{file} {found:?}");
            assert!(found.count("unread") > 0);
        }
        let found = no_lost_ack(&h, &dumps, 3);
        assert_eq!(violated(&found), [("lost", 1)], "{file} {found:?}");
        assert!(found.kinds()["lost"].examples[0].text.contains("4612"), "{found:?}");
    }
}
