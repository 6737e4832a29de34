//! Claims, and brute force: causal consistency and session guarantees from their definitions, on small random histories.

use std::collections::BTreeSet;

use elench_formats::build::{BuildOptions, Lift};
use elench_formats::notation;
use elench_formats::{History, Value};

use super::*;
use crate::findings::{Fact, replay};
use crate::linear::tests::{more, seed};

mod brute;
mod simulated;

const MODELS: [CausalModel; 3] = [CausalModel::Cc, CausalModel::Ccv, CausalModel::Cm];

fn keyed(text: &str) -> History {
    let options = BuildOptions { lift: Lift::Always, real_time: true, ..BuildOptions::default() };
    notation::history_with(text, options).unwrap()
}

fn causal(history: &History) -> Findings {
    let options = CausalOptions { judged: MODELS.to_vec(), per_key: false };
    check_causal(history, &options, &Value::Nil, &Budget::unlimited(), 3).unwrap()
}

fn sessions(history: &History) -> Findings {
    check_sessions(history, None, &Value::Nil, &Budget::unlimited(), 3).unwrap()
}

fn kinds(findings: &Findings) -> BTreeSet<&'static str> {
    findings.violations().map(|(kind, _)| kind).collect()
}

fn holds(findings: &Findings) -> [bool; 3] {
    MODELS.map(|model| matches!(findings.fact_of(model.name()), Some(Fact::Text(text)) if text == "holds"))
}

/// Whole operations one after the other: `0 w :x 1 / 1 r :x nil`, process, function, key, value.
fn history(text: &str) -> History {
    let mut events = String::new();
    for op in text.split(" / ") {
        let parts: Vec<&str> = op.split(' ').collect();
        let [process, f, key, value] = parts[..] else { panic!("{op}") };
        let f = if f == "w" { "write" } else { "read" };
        let sent = if f == "write" { value } else { "nil" };
        events += &format!("invoke {process} {f} [{key} {sent}]\nok {process} {f} [{key} {value}]\n");
    }
    keyed(&events)
}

#[test]
fn a_key_of_which_nothing_is_read_is_undecided_and_does_not_pass_with_the_others() {
    let judged = "invoke 0 write [:a 1] / ok 0 / invoke 1 read [:a nil] / ok 1 read [:a 1]";
    let unread = "invoke 0 write [:b 1] / ok 0";
    let silent = "invoke 0 write [:b 1] / fail 0";
    let check = |text: &str| {
        let h = keyed(text);
        let causal = CausalOptions { judged: vec![CausalModel::Cc], per_key: true };
        let budget = Budget::unlimited();
        let session = check_sessions(&h, Some(Order::Values), &Value::Nil, &budget, 3).unwrap();
        [session, check_causal(&h, &causal, &Value::Nil, &budget, 3).unwrap()]
    };
    for found in check(judged) {
        assert!(found.is_valid(), "{found:?}");
    }
    for found in check(&format!("{judged} / {unread}")) {
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
        assert_eq!((found.coverage.keys, found.coverage.keys_decided, found.coverage.undecided.len()), (2, 1, 1));
    }
    for found in check(&format!("{judged} / {silent}")) {
        assert!(found.is_valid(), "{found:?}");
        assert_eq!((found.coverage.keys_decided, found.coverage.keys_silent), (1, 1));
    }
}

#[test]
fn a_read_of_nil_where_nothing_was_written_proves_nothing() {
    let h = history("0 r :x nil");
    for found in [causal(&h), sessions(&h)] {
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
    }
}

#[test]
fn each_bad_pattern_of_causal_consistency_is_named_with_its_operations() {
    for (text, kind, ops, expected) in [
        // Each reads what the other writes only afterwards.
        ("0 r :x 1 / 1 r :y 1 / 0 w :y 1 / 1 w :x 1", "CyclicCO", vec![0, 2, 4, 6], [false; 3]),
        ("0 w :x 1 / 0 w :y 1 / 1 r :y 1 / 1 r :x nil", "WriteCOInitRead", vec![0, 2, 4, 6], [false; 3]),
        ("0 w :x 1 / 1 r :x 2", "ThinAirRead", vec![2], [false; 3]),
        ("0 w :x 1 / 1 r :x 1 / 1 w :x 2 / 2 r :x 2 / 2 r :x 1", "WriteCORead", vec![0, 2, 4, 6, 8], [false; 3]),
        // Two sessions see two concurrent writes in different orders: causal, but not convergent.
        (
            "0 w :x 1 / 1 w :x 2 / 2 r :x 1 / 2 r :x 2 / 3 r :x 2 / 3 r :x 1",
            "CyclicCF",
            vec![0, 2, 6, 10],
            [true, false, true],
        ),
        // One session goes back and forth between concurrent writes.
        ("0 w :x 1 / 1 w :x 2 / 2 r :x 1 / 2 r :x 2 / 2 r :x 1", "CyclicHB", vec![0, 2, 6, 8], [true, false, false]),
        // Figure 3c of the paper in other words: 1 of z is read, so y=1 came before y=2, which x=1 did before it.
        (
            "0 w :x 1 / 0 w :y 1 / 1 w :y 2 / 1 r :y 1 / 1 r :y 2 / 1 r :x nil",
            "WriteCOInitRead",
            vec![0, 2, 6, 10],
            [false; 3],
        ),
    ] {
        let found = causal(&history(text));
        assert!(kinds(&found).contains(kind), "{text}: {found:?}");
        let example = &found.kinds()[kind].examples[0];
        assert_eq!(example.ops.iter().map(|op| op.0).collect::<Vec<_>>(), ops, "{text}: {}", example.text);
        assert_eq!(holds(&found), expected, "{text}: {found:?}");
    }
}

#[test]
fn a_read_of_the_initial_value_after_a_write_that_happened_before_is_not_causal_memory() {
    // Session 2 reads y=2, then y=1: for it, y=2 came before y=1 and so x=1, which came before y=2, before its read of x.
    let text = "0 w :x 1 / 0 w :y 2 / 1 w :y 1 / 1 w :z 1 / 2 r :x nil / 2 r :z 1 / 2 r :y 1";
    assert_eq!(holds(&causal(&history(text))), [true; 3]);
    let text = "0 w :a 1 / 0 w :x 1 / 1 w :x 2 / 1 r :a nil / 1 w :b 1 / 1 r :x 2 / 1 r :x 1 / 1 r :x 2";
    let found = causal(&history(text));
    assert!(kinds(&found).contains("CyclicHB"), "{found:?}");
}

#[test]
fn what_is_not_asked_for_is_noted() {
    let h = history("0 w :x 1 / 1 w :x 2 / 2 r :x 1 / 2 r :x 2 / 3 r :x 2 / 3 r :x 1");
    let options = CausalOptions { judged: vec![CausalModel::Cc], per_key: false };
    let found = check_causal(&h, &options, &Value::Nil, &Budget::unlimited(), 3).unwrap();
    assert!(found.is_valid() && found.count("CyclicCF") == 1, "{found:?}");
}

#[test]
fn keys_that_are_objects_by_themselves_say_nothing_of_each_other() {
    let h = history("0 w :x 1 / 0 w :y 1 / 1 r :y 1 / 1 r :x nil");
    let options = CausalOptions { judged: MODELS.to_vec(), per_key: true };
    let found = check_causal(&h, &options, &Value::Nil, &Budget::unlimited(), 3).unwrap();
    assert!(found.is_valid(), "{found:?}");
    assert_eq!(found.coverage.keys, 2);
}

#[test]
fn a_read_of_a_failed_write_is_an_aborted_effect() {
    let h = notation::history("invoke 0 write 1 / fail 0 / invoke 1 read / ok 1 read 1").unwrap();
    for found in [causal(&h), sessions(&h)] {
        assert_eq!(kinds(&found), BTreeSet::from(["aborted-effect"]), "{found:?}");
        assert_eq!(found.kinds()["aborted-effect"].examples[0].ops, [crate::OpId(2), crate::OpId(0)]);
    }
}

#[test]
fn a_write_of_unknown_outcome_may_take_effect_after_what_its_session_did_next() {
    let text = "invoke 0 write 1 / info 0 / invoke 0 write 2 / ok 0 / invoke 1 read / ok 1 read 2 / invoke 1 read / ok 1 read 1";
    let h = notation::history(text).unwrap();
    assert!(sessions(&h).is_valid(), "{:?}", sessions(&h));
    assert!(causal(&h).is_valid(), "{:?}", causal(&h));
    // Nobody read it: it says nothing.
    let h = notation::history("invoke 0 write 1 / info 0 / invoke 1 read / ok 1 read nil").unwrap();
    assert!(sessions(&h).is_valid() && causal(&h).is_valid());
}

#[test]
fn what_led_to_a_write_of_unknown_outcome_belongs_to_the_past_of_who_read_it() {
    let text = "invoke 0 write 1 / ok 0 / invoke 0 write 2 / ok 0 / invoke 1 read / ok 1 read 1 / invoke 1 write 4 / info 1 / \
                invoke 0 read / ok 0 read 4 / invoke 1 read / ok 1 read 4";
    let found = causal(&notation::history(text).unwrap());
    assert_eq!(holds(&found), [true; 3], "{found:?}");
}

#[test]
fn guarantees_are_named_alone_or_in_the_least_union_that_fails() {
    for (text, kind) in [
        ("0 w :x 1 / 0 r :x nil", "read-your-writes"),
        ("0 w :x 1 / 0 w :x 2 / 0 r :x 1", "PRAM"),
        ("0 w :x 1 / 1 w :x 2 / 2 r :x 1 / 2 r :x 2 / 2 r :x 1", "monotonic-reads"),
        ("0 w :x 1 / 0 w :x 2 / 1 r :x 2 / 1 r :x 1", "PRAM"),
        ("0 r :x 2 / 0 w :x 1 / 1 r :x 1 / 1 w :x 2", "writes-follow-reads"),
        ("0 w :x 1 / 1 r :x 1 / 1 w :x 2 / 2 r :x 2 / 2 r :x 1", "session-causality"),
    ] {
        let found = sessions(&history(text));
        assert_eq!(kinds(&found), BTreeSet::from([kind]), "{text}: {found:?}");
    }
    for text in ["0 w :x 1 / 1 w :x 2 / 2 r :x 1 / 2 r :x 2 / 3 r :x 2 / 3 r :x 1", "0 w :x 1 / 1 r :x nil / 1 r :x 1"]
    {
        assert!(sessions(&history(text)).is_valid(), "{text}");
    }
}

#[test]
fn versions_name_the_guarantee_and_both_operations() {
    for (text, kind) in [
        ("invoke 0 write [nil 5] / ok 0 write [3 5] / invoke 0 read / ok 0 read [2 4]", "read-your-writes"),
        ("invoke 0 read / ok 0 read [3 5] / invoke 0 read / ok 0 read [2 4]", "monotonic-reads"),
        ("invoke 0 write [nil 5] / ok 0 write [3 5] / invoke 0 write [nil 6] / ok 0 write [2 6]", "monotonic-writes"),
        ("invoke 0 read / ok 0 read [3 5] / invoke 0 write [nil 6] / ok 0 write [2 6]", "writes-follow-reads"),
    ] {
        let text = format!("invoke 9 write [nil 1] / ok 9 write [1 1] / {text}");
        let h = notation::history(&text).unwrap();
        let found = sessions(&h);
        assert_eq!(kinds(&found), BTreeSet::from([kind]), "{text}: {found:?}");
        assert_eq!(found.kinds()[kind].examples[0].ops, [crate::OpId(2), crate::OpId(4)]);
        let online = replay(&h, incremental(Order::Versions, 3));
        assert_eq!(online.kinds(), found.kinds());
    }
}

#[test]
fn what_cannot_be_ordered_is_an_oracle_too_weak() {
    let twice = "invoke 0 write 1 / ok 0 / invoke 1 write 1 / ok 1 / invoke 2 read / ok 2 read 1";
    let only_writes = "invoke 0 write 1 / ok 0 / invoke 0 write 2 / ok 0";
    for text in [twice, only_writes] {
        let h = notation::history(text).unwrap();
        for found in [sessions(&h), causal(&h)] {
            let why = found.why().expect("it is not decided").to_string();
            assert!(why.starts_with("oracle-too-weak"), "{text}: {why}");
        }
    }
    let h = notation::history("invoke 0 write [nil 1] / ok 0 write [4 1] / invoke 0 write [nil 2] / ok 0 write [4 2]")
        .unwrap();
    assert!(sessions(&h).why().expect("not decided").to_string().contains("the numbers are no order"));
}

#[test]
fn a_history_without_accesses_is_no_evidence() {
    let h = notation::history("invoke 0 read / info 0").unwrap();
    assert!(sessions(&h).why().is_some() && causal(&h).why().is_some());
    assert!(
        check_sessions(
            &notation::history("invoke 0 enqueue 1 / ok 0").unwrap(),
            None,
            &Value::Nil,
            &Budget::unlimited(),
            1
        )
        .is_err()
    );
}

#[test]
fn transactions_of_one_micro_operation_are_accesses_and_longer_ones_are_not() {
    let txn = |mops: &str| {
        notation::history(&format!("invoke 0 txn [[:w :x 1]] / ok 0 / invoke 0 txn {mops} / ok 0 txn {mops}")).unwrap()
    };
    assert_eq!(kinds(&sessions(&txn("[[:r :x nil]]"))), BTreeSet::from(["read-your-writes"]));
    let options = CausalOptions { judged: MODELS.to_vec(), per_key: false };
    let longer = check_causal(&txn("[[:r :x 1] [:r :y nil]]"), &options, &Value::Nil, &Budget::unlimited(), 1);
    assert!(longer.unwrap_err().contains("--checker isolation"));
}

#[test]
fn offsets_of_a_log_that_go_back_are_named() {
    let text = "invoke 0 append 7 / ok 0 append 3 / invoke 0 append 8 / ok 0 append 2 / \
                invoke 1 poll / ok 1 poll [[3 7] [4 9]] / invoke 1 poll / ok 1 poll [[2 8]]";
    let h = notation::history_with(text, BuildOptions { lift: Lift::Never, ..BuildOptions::default() }).unwrap();
    assert_eq!(kinds(&sessions(&h)), BTreeSet::from(["monotonic-reads", "monotonic-writes"]));
}

#[test]
fn a_spent_budget_is_no_answer() {
    let h = history("0 w :x 1 / 1 w :x 2 / 2 r :x 1 / 2 r :x 2 / 3 r :x 2 / 3 r :x 1");
    let budget = Budget::unlimited();
    budget.cancel();
    let options = CausalOptions { judged: MODELS.to_vec(), per_key: false };
    // So small a history is decided between two questions to the budget; nothing must be decided wrongly.
    let found = check_causal(&h, &options, &Value::Nil, &budget, 3).unwrap();
    assert!(!found.is_valid());
}
