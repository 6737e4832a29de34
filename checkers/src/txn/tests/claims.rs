//! Small histories whose answer is plain.

use super::*;
use crate::txn::lattice::{Demand, Model};

fn found(text: &str) -> Vec<&'static str> {
    names(&check(&notation::history(text).unwrap())).into_iter().collect()
}

/// Transactions that all overlap, each by a process of its own: `ok`, `fail` or `info`, and micro-operations.
fn at_once(txns: &[(&str, &str)]) -> Vec<&'static str> {
    let mut lines = Vec::new();
    for (p, (_, ops)) in txns.iter().enumerate() {
        lines.push(format!("invoke {p} txn [{ops}]"));
    }
    for (p, (status, ops)) in txns.iter().enumerate() {
        lines.push(format!("{status} {p} txn [{ops}]"));
    }
    found(&lines.join("\n"))
}

#[test]
fn two_appends_in_two_orders_are_g0() {
    let read = "[:r x [1 2]] [:r y [2 1]]";
    let found = at_once(&[("ok", "[:append x 1] [:append y 1]"), ("ok", "[:append x 2] [:append y 2]"), ("ok", read)]);
    assert_eq!(found, ["G0"]);
}

#[test]
fn reading_each_other_is_g1c() {
    assert_eq!(at_once(&[("ok", "[:append x 1] [:r y [1]]"), ("ok", "[:append y 1] [:r x [1]]")]), ["G1c"]);
}

#[test]
fn a_fractured_read_is_g_single() {
    assert_eq!(at_once(&[("ok", "[:append x 1] [:append y 1]"), ("ok", "[:r x [1]] [:r y []]")]), ["G-single-item"]);
}

#[test]
fn a_long_fork_is_g_nonadjacent() {
    let found = at_once(&[
        ("ok", "[:append x 1]"),
        ("ok", "[:append y 1]"),
        ("ok", "[:r x [1]] [:r y nil]"),
        ("ok", "[:r x nil] [:r y [1]]"),
    ]);
    assert_eq!(found, ["G-nonadjacent-item"]);
}

#[test]
fn write_skew_is_g2_item() {
    assert_eq!(at_once(&[("ok", "[:r x nil] [:append y 1]"), ("ok", "[:r y nil] [:append x 1]")]), ["G2-item"]);
}

#[test]
fn a_stale_read_after_a_completed_append_needs_real_time() {
    let history = "invoke 0 txn [[:append x 1]] / ok 0 / invoke 1 txn [[:r x nil]] / ok 1 txn [[:r x nil]]";
    assert_eq!(found(history), ["G-single-item-realtime"]);
    let own = "invoke 0 txn [[:append x 1]] / ok 0 / invoke 0 txn [[:r x nil]] / ok 0 txn [[:r x nil]]";
    assert_eq!(found(own), ["G-single-item-process"]);
}

#[test]
fn appends_that_nobody_saw_come_after_all_that_were_seen() {
    let history = "
        invoke 0 txn [[:append x 1]] / ok 0
        invoke 1 txn [[:append x 2]] / ok 1
        invoke 2 txn [[:r x nil]] / ok 2 txn [[:r x [2]]]";
    assert_eq!(found(history), ["G-single-item-realtime", "G0-realtime"]);
}

#[test]
fn reading_what_failed_is_g1a_and_building_on_it_a_dirty_update() {
    assert_eq!(at_once(&[("fail", "[:append x 1]"), ("ok", "[:r x [1]]")]), ["G1a"]);
    let found = at_once(&[("fail", "[:append x 1]"), ("ok", "[:append x 2]"), ("ok", "[:r x [1 2]]")]);
    assert_eq!(found, ["G1a", "dirty-update"]);
}

#[test]
fn an_append_that_failed_and_was_tried_again_is_no_aborted_one() {
    assert!(at_once(&[("fail", "[:append x 1]"), ("ok", "[:append x 1]"), ("ok", "[:r x [1]]")]).is_empty());
}

#[test]
fn an_intermediate_version_is_g1b() {
    let found = at_once(&[("ok", "[:append x 1] [:append x 2]"), ("ok", "[:r x [1]]")]);
    assert!(found.contains(&"G1b"), "{found:?}");
}

#[test]
fn a_transaction_must_agree_with_itself() {
    assert!(at_once(&[("ok", "[:append x 1] [:r x nil]")]).contains(&"internal"));
    assert!(at_once(&[("ok", "[:r x [1]] [:append x 1]")]).contains(&"future-read"));
    assert!(at_once(&[("ok", "[:r x nil] [:append x 1] [:r x [1]]"), ("ok", "[:append x 2]")]).is_empty());
}

#[test]
fn contradicting_lists_and_repeated_elements_are_named() {
    let appends = [("ok", "[:append x 1]"), ("ok", "[:append x 2]")];
    let with = |list: &'static str| at_once(&[&appends[..], &[("ok", "[:r x [1 2]]"), ("ok", list)]].concat());
    assert!(with("[:r x [2 1]]").contains(&"incompatible-order"));
    assert!(with("[:r x [1 2 1]]").contains(&"duplicate-elements"));
}

#[test]
fn a_garbage_read_is_a_violation_and_no_crash() {
    assert_eq!(at_once(&[("ok", "[:append x 1]"), ("ok", "[:r x [1 7]]")]), ["garbage-read"]);
}

#[test]
fn duplicate_appends_and_unknown_micro_operations_are_named() {
    assert!(at_once(&[("ok", "[:append x 1]"), ("ok", "[:append x 1]")]).contains(&"duplicate-writes"));
    assert_eq!(at_once(&[("ok", "[:append x 1]"), ("ok", "[:frob x 1] [:r x [1]]")]), ["unknown-micro-operation"]);
    // It may have done anything to the key.
    assert_eq!(at_once(&[("ok", "[:append x 1]"), ("ok", "[:pop x 1] [:r x [2]]")]), ["unknown-micro-operation"]);
}

#[test]
fn two_updates_of_one_version_lose_one_of_them() {
    let found =
        at_once(&[("ok", "[:r x nil] [:append x 1]"), ("ok", "[:r x nil] [:append x 2]"), ("ok", "[:r x [1 2]]")]);
    assert_eq!(found, ["G-single-item", "lost-update"]);
}

#[test]
fn an_unacknowledged_transaction_counts_when_it_was_seen() {
    let info = [("info", "[:append x 1] [:append y 1]")];
    let with = |read: &'static str| at_once(&[&info[..], &[("ok", read)]].concat());
    assert_eq!(with("[:r x [1]] [:r y nil]"), ["G-single-item"]);
    assert!(!with("[:r x nil] [:r y nil]").contains(&"G-single-item"));
}

#[test]
fn keys_and_elements_may_be_anything() {
    let found = at_once(&[
        ("ok", "[:append \"a\" :e] [:append [1 {:b 2}] [3 4]]"),
        ("ok", "[:r \"a\" [:e]] [:r [1 {:b 2}] []]"),
        ("ok", "[:append nil 1.5] [:r nil [1.5]] [:append q nil] [:r q [nil]]"),
        ("ok", "[:r [1 {:b 2}] [[3 4]]]"),
    ]);
    assert_eq!(found, ["G-single-item"]);
}

#[test]
fn integers_next_to_texts_keep_their_values() {
    let least = i64::MIN;
    let ops = format!("[:append x {least}] [:append x :k] [:append x {}]", least + 1);
    let read = format!("[:r x [{least} :k {}]]", least + 1);
    assert!(at_once(&[("ok", ops.as_str()), ("ok", read.as_str())]).is_empty());
}

#[test]
fn nothing_said_is_not_valid() {
    assert_eq!(at_once(&[("ok", "[:r x nil]"), ("ok", "[:r y nil]")]), ["empty-transaction-graph"]);
}

#[test]
fn many_readers_of_an_empty_list_and_many_unseen_appends_stay_linear() {
    let n = 3_000;
    let mut lines: Vec<String> = (0..n).map(|i| format!("invoke {i} txn [[:r x nil] [:append x {i}]]")).collect();
    lines.extend((0..n).map(|i| format!("ok {i} txn [[:r x nil] [:append x {i}]]")));
    let result = check(&notation::history(&lines.join("\n")).unwrap());
    assert_eq!(names(&result).into_iter().collect::<Vec<_>>(), ["G2-item", "lost-update"]);
    assert!(result.sizes.edges < 20 * n, "{:?}", result.sizes);
}

#[test]
fn a_spent_budget_says_so_and_names_nothing_falsely() {
    let text = "
        invoke 0 txn [[:append x 1] [:append y 1]] / invoke 1 txn [[:append x 2] [:append y 2]] / ok 0 / ok 1
        invoke 2 txn [[:r x nil] [:r y nil]] / ok 2 txn [[:r x [1 2]] [:r y [2 1]]]";
    let history = notation::history(text).unwrap();
    let none = Budget::unlimited().within(std::time::Duration::ZERO);
    let result = check_list_append(&history, &Options::default(), &none);
    assert!(names(&result).contains("cycle-search-timeout"), "{:?}", names(&result));
    assert!(result.undecided.is_some() && result.order.is_none());
}

#[test]
fn write_skew_is_fine_under_snapshot_isolation_and_a_violation_of_serializability() {
    let text = "
        invoke 0 txn [[:r x nil] [:append y 1]] / invoke 1 txn [[:r y nil] [:append x 1]]
        ok 0 txn [[:r x nil] [:append y 1]] / ok 1 txn [[:r y nil] [:append x 1]]";
    let result = check(&notation::history(text).unwrap());
    let under = |model| result.outcome(Demand::models(&[model]));
    assert!(under(Model::SnapshotIsolation).is_valid());
    assert!(under(Model::Serializable).is_invalid());
}

#[test]
fn a_valid_history_comes_with_its_order_and_silence_is_unknown() {
    let order = |text: &str| check(&notation::history(text).unwrap()).outcome(Demand::default());
    let valid = order("invoke 0 txn [[:append x 1]] / ok 0 / invoke 1 txn [[:r x nil]] / ok 1 txn [[:r x [1]]]");
    assert!(matches!(valid.answer(), crate::Answer::Valid(Some(_))), "{valid:?}");
    let silent = order("invoke 0 txn [[:r x nil]] / ok 0");
    assert!(matches!(silent.answer(), crate::Answer::Unknown(_)), "{silent:?}");
}
