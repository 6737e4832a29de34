//! Inputs of transactions that are special: unknown ends, unknown reads, nothing at all, keys of any type, and sizes that lean all
//! one way. Each in both workloads, where both have it; `benches/benches/txn.rs` measures those that are about size.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use elench::check::{CheckOptions, Found, Valid, check};
use elench::isolation::{Asked, Isolation};
use elench_checkers::Budget;
use elench_checkers::txn::verify;
use elench_formats::{History, notation};

const LISTS: &str = "list-append";
const REGISTERS: &str = "rw-register";

fn judge(history: &History, workload: &str) -> Isolation {
    let options = CheckOptions {
        checkers: vec!["isolation".into()],
        workload: Some(workload.into()),
        asked: Asked { all: true, ..Asked::default() },
        budget: Budget::unlimited(),
        ..CheckOptions::default()
    };
    match check("", history, &options).unwrap().findings.remove(0).result {
        Found::Isolation(found) => *found,
        other => panic!("{other:?}"),
    }
}

/// The answer, and the anomalies with their numbers.
fn found(text: &str, workload: &str) -> (Valid, Vec<(&'static str, u64)>) {
    of(&notation::history(text).unwrap(), workload)
}

fn of(history: &History, workload: &str) -> (Valid, Vec<(&'static str, u64)>) {
    let found = judge(history, workload);
    if let Some(order) = &found.result.order {
        match workload {
            LISTS => verify::order(history, order, true).unwrap(),
            _ => verify::register_order(history, order, None, true).unwrap(),
        }
    }
    (found.valid.0, found.result.findings.iter().map(|(kind, f)| (kind.name(), f.count)).collect())
}

/// A transaction saw one write of another one, and then missed another.
fn fractured() -> (Valid, Vec<(&'static str, u64)>) {
    (Valid::No, vec![("observed-transaction-vanishes", 1), ("G-single-item", 1), ("G-update", 1)])
}

/// What a transaction that reads `x` returned, after one of unknown end wrote it and `y`.
fn after_unknown(end: &str, reads: &str, workload: &str) -> (Valid, Vec<(&'static str, u64)>) {
    let (f, list) = if workload == LISTS { ("append", true) } else { ("w", false) };
    let reads = reads.split(' ').map(|read| match read.split_once('=').unwrap() {
        (key, "nil") => format!("[:r {key} nil]"),
        (key, value) if list => format!("[:r {key} [{value}]]"),
        (key, value) => format!("[:r {key} {value}]"),
    });
    let reads: String = reads.collect();
    found(
        &format!(
            "invoke 0 txn [[:{f} x 1] [:{f} y 1]] / {end} / invoke 1 txn [[:r x nil] [:r y nil]] / ok 1 txn [{reads}]"
        ),
        workload,
    )
}

#[test]
fn a_transaction_of_unknown_end_happened_if_it_was_seen_and_at_any_time() {
    for workload in [LISTS, REGISTERS] {
        for end in ["info 0", "# it never ended"] {
            assert_eq!(after_unknown(end, "x=1 y=1", workload), (Valid::Yes, vec![]), "{workload}");
            assert_eq!(after_unknown(end, "x=1 y=nil", workload), fractured(), "{workload}");
            let (_, unseen) = after_unknown(end, "x=nil y=nil", workload);
            assert_eq!(unseen, [("empty-transaction-graph", 1)], "{workload}");
        }
        let stale = after_unknown("ok 0", "x=nil y=nil", workload);
        assert_eq!(stale, (Valid::No, vec![("G-single-item-realtime", 1)]), "an acknowledged one must be seen");
    }
}

#[test]
fn a_read_of_a_transaction_that_was_not_acknowledged_says_nothing() {
    for end in ["fail", "info"] {
        // Were these reads believed, they would be garbage.
        let lists = format!(
            "invoke 0 txn [[:r x nil]] / {end} 0 txn [[:r x [7 8]]]
             invoke 1 txn [[:append x 1] [:r x nil]] / ok 1 txn [[:append x 1] [:r x [1]]]
             invoke 2 txn [[:r x nil]] / ok 2 txn [[:r x [1]]]"
        );
        assert_eq!(found(&lists, LISTS), (Valid::Yes, vec![]), "{end}");
        let registers = lists.replace("append", "w").replace("[7 8]", "7").replace("[1]", "1");
        assert_eq!(found(&registers, REGISTERS), (Valid::Yes, vec![]), "{end}");
    }
}

#[test]
fn nil_is_the_empty_list_and_the_initial_register() {
    let lists = "
        invoke 0 txn [[:r x nil]] / ok 0 txn [[:r x nil]] / invoke 0 txn [[:append x 1]] / ok 0
        invoke 0 txn [[:r x nil]] / ok 0 txn [[:r x [1]]]";
    assert_eq!(found(lists, LISTS), (Valid::Yes, vec![]));
    assert_eq!(found(&lists.replace("append", "w").replace("[1]", "1"), REGISTERS), (Valid::Yes, vec![]));
    let late = "invoke 0 txn [[:append x 1]] / ok 0 / invoke 1 txn [[:r x nil]] / ok 1 txn [[:r x nil]]";
    assert_eq!(found(late, LISTS).1, [("G-single-item-realtime", 1)]);
    assert_eq!(found(&late.replace("append", "w"), REGISTERS).1, [("G-single-item-realtime", 1)]);
}

#[test]
fn a_read_of_a_failed_write_is_g1a() {
    let lists = "
        invoke 0 txn [[:append x 1]] / fail 0 txn [[:append x 1]]
        invoke 1 txn [[:r x nil]] / ok 1 txn [[:r x [1]]] / invoke 2 txn [[:append y 1]] / ok 2";
    assert_eq!(found(lists, LISTS), (Valid::No, vec![("G1a", 1)]));
    assert_eq!(found(&lists.replace("append", "w").replace("[1]", "1"), REGISTERS), (Valid::No, vec![("G1a", 1)]));
}

#[test]
fn keys_and_values_are_of_any_type_and_equal_ones_are_one() {
    let things = ["7", "\"7\"", ":seven", "[7 [8]]", "{:a 1, :b 2}", "7.5", "#{1 2}", "true", "9223372036854775808"];
    for key in things {
        for value in things {
            // In EDN a map's entries and a set's elements have no order, and lists are vectors.
            let same = |text: &str| match text {
                "{:a 1, :b 2}" => "{:b 2 :a 1}".to_string(),
                "#{1 2}" => "#{2 1}".to_string(),
                "[7 [8]]" => "(7 (8))".to_string(),
                other => other.to_string(),
            };
            let text = |f: &str, read: String| {
                format!(
                    "invoke 0 txn [[:{f} {key} {value}] [:{f} z 1]] / ok 0
                     invoke 1 txn [[:r {key} nil] [:r z nil]] / ok 1 txn [[:r {} {read}] [:r z nil]]",
                    same(key)
                )
            };
            assert_eq!(found(&text("append", format!("[{}]", same(value))), LISTS), fractured(), "{key} {value}");
            assert_eq!(found(&text("w", same(value)), REGISTERS), fractured(), "{key} {value}");
        }
    }
}

#[test]
fn empty_transactions_say_nothing_and_alone_they_are_no_pass() {
    let lists = "
        invoke 0 txn [] / ok 0 txn [] / invoke 1 txn [[:append x 1]] / ok 1
        invoke 1 txn [] / fail 1 txn [] / invoke 2 txn [] / info 2 / invoke 1 txn [[:r x nil]] / ok 1 txn [[:r x [1]]]";
    assert_eq!(found(lists, LISTS), (Valid::Yes, vec![]));
    assert_eq!(found(&lists.replace("append", "w").replace("[1]", "1"), REGISTERS), (Valid::Yes, vec![]));
    for workload in [LISTS, REGISTERS] {
        let (valid, _) = found("invoke 0 txn [] / ok 0 txn []", workload);
        assert_eq!(valid, Valid::Unknown);
    }
}

/// Transactions one after the other by one process.
fn in_turn(txns: impl IntoIterator<Item = (String, String)>) -> History {
    let mut text = String::new();
    for (invoked, done) in txns {
        let _ = write!(text, "invoke 0 txn [{invoked}]\nok 0 txn [{done}]\n");
    }
    notation::history(&text).unwrap()
}

#[test]
fn very_many_keys_with_two_operations_each() {
    let n = 20_000;
    let lists = |broken: u32| {
        let read = move |k: u32| if k == broken { "nil".to_string() } else { format!("[{k}]") };
        in_turn((0..n).flat_map(move |k| {
            let write = format!("[:append {k} {k}]");
            [(write.clone(), write), (format!("[:r {k} nil]"), format!("[:r {k} {}]", read(k)))]
        }))
    };
    assert_eq!(of(&lists(n), LISTS), (Valid::Yes, vec![]));
    assert_eq!(of(&lists(n / 2), LISTS), (Valid::No, vec![("G-single-item-process", 1)]));
    let registers = in_turn((0..n).flat_map(|k| {
        let write = format!("[:w {k} {k}]");
        [(write.clone(), write), (format!("[:r {k} nil]"), format!("[:r {k} {k}]"))]
    }));
    assert_eq!(of(&registers, REGISTERS), (Valid::Yes, vec![]));
}

fn numbers(n: usize) -> String {
    (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_key_with_very_many_appends() {
    let n = 30_000;
    let appends = |read: String| {
        let append = |i| (format!("[:append x {i}]"), format!("[:append x {i}]"));
        in_turn((0..n).map(append).chain([("[:r x nil]".to_string(), read)]))
    };
    assert_eq!(of(&appends(format!("[:r x [{}]]", numbers(n))), LISTS), (Valid::Yes, vec![]));
    // One element stands a place too early.
    let swapped = numbers(n).replace(" 777 778 ", " 778 777 ");
    assert_eq!(of(&appends(format!("[:r x [{swapped}]]")), LISTS), (Valid::No, vec![("G0-process", 1)]));
    let lost = numbers(n).replace(" 777 778 ", " 778 ");
    assert_eq!(of(&appends(format!("[:r x [{lost}]]")), LISTS).0, Valid::No);
    // A cycle may be as long as the history: a person is told of its ends only.
    let found = judge(&appends(format!("[:r x [{lost}]]")), LISTS);
    let longest =
        found.result.findings.values().flat_map(|f| &f.examples).map(|e| (e.ops().len(), e.text().len())).max();
    assert!(longest.is_some_and(|(steps, text)| steps > 10_000 && text < 10_000), "{longest:?}");
    let write = |i| (format!("[:w x {i}]"), format!("[:w x {i}]"));
    let registers = in_turn((0..n).map(write).chain([("[:r x nil]".to_string(), format!("[:r x {}]", n - 1))]));
    assert_eq!(of(&registers, REGISTERS), (Valid::Yes, vec![]));
}

#[test]
fn one_long_list_that_is_read_again_and_again() {
    let (n, reads) = (2_000, 500);
    let whole = numbers(n);
    let history = |odd: &str| {
        let append = (0..n).map(|i| format!("[:append x {i}]")).collect::<String>();
        let read = |i| ("[:r x nil]".to_string(), format!("[:r x [{}]]", if i == reads / 2 { odd } else { &whole }));
        let reads: Vec<(String, String)> = (0..reads).map(read).collect();
        in_turn([(append.clone(), append)].into_iter().chain(reads))
    };
    assert_eq!(of(&history(&whole), LISTS), (Valid::Yes, vec![]));
    let stale = whole.rsplit_once(' ').unwrap().0;
    let (valid, anomalies) = of(&history(stale), LISTS);
    assert_eq!(valid, Valid::No);
    // The whole list is of one transaction, whose last append but one it ends with.
    assert!(anomalies.contains(&("G1b", 1)), "{anomalies:?}");
    let torn = whole.replace(" 777 778 ", " 778 777 ");
    assert!(of(&history(&torn), LISTS).1.contains(&("incompatible-order", 1)));
}
