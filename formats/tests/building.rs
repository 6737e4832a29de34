//! What the builder makes of events, well formed or not.

#![allow(clippy::unwrap_used)]

use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Process};
use elench_formats::history::{CHUNK_ROWS, KeyForm, Order, Status};
use elench_formats::notation::{events, history, history_with};
use elench_formats::{History, Result};

fn with(text: &str, change: impl FnOnce(&mut BuildOptions)) -> Result<History> {
    let mut options = BuildOptions { real_time: true, ..BuildOptions::default() };
    change(&mut options);
    history_with(text, options)
}

fn error(text: &str) -> String {
    history(text).expect_err("a malformed history").to_string()
}

fn edn(h: &History) -> String {
    let mut out = Vec::new();
    elench_formats::write::edn::write(h, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn statuses(h: &History) -> Vec<Status> {
    h.ops().map(|op| op.status()).collect()
}

/// Events with indices, for what the notation leaves out: `(index, time, type, process, f)`.
fn indexed(rows: &[(i64, i64, EventType, i64, &str)]) -> Result<History> {
    let mut batch = EventBatch::default();
    for (i, &(index, time, kind, process, f)) in rows.iter().enumerate() {
        let f = batch.name(f);
        batch.push(Event {
            place: i as u64 + 1,
            index: Some(index),
            time: Some(time),
            kind,
            process: Process::Client(process),
            f: Some(f),
            value: Cell::Nil,
        });
    }
    let mut builder = HistoryBuilder::new(BuildOptions::default());
    builder.push(&batch)?;
    builder.finish()
}

#[test]
fn each_completion_finds_the_open_operation_of_its_process() {
    let h =
        history("invoke 0 write 1 / invoke 1 read / ok 1 read 1 / fail 0 / invoke 1 read / info 1 / invoke 2 write 9")
            .unwrap();
    assert_eq!(statuses(&h), [Status::Fail, Status::Ok, Status::Info, Status::Pending]);
    assert_eq!(h.op(0).complete_index(), Some(3));
    assert_eq!(h.op(1).output(), ValueRef::Int(1));
    assert_eq!(h.op(3).complete_index(), None);
    assert_eq!(h.counts(), [1, 1, 1, 1]);
}

#[test]
fn malformed_histories_are_refused_with_both_operations_named() {
    let e = error("invoke 0 write 1\ninvoke 0 read");
    assert!(
        e.contains("line 2") && e.contains("process 0 invokes read (index 1)") && e.contains("write (index 0, line 1)"),
        "{e}"
    );
    let e = error("invoke 0 write 1 / ok 0\nok 0 write 1");
    assert!(e.contains("line 2") && e.contains("a completion without an invocation"), "{e}");
    let e = error("invoke 0 write 1\nok 0 read 1");
    assert!(e.contains("read (index 1) completes write (index 0, line 1)"), "{e}");
    let e = error("invoke 0 write 1 @5\nok 0 write 1 @4");
    assert!(e.contains("time runs backwards within a process") && e.contains("after 5 ns (index 0, line 1)"), "{e}");
    assert!(error("ok 0 read 1 / invoke 0 read").contains("completes nothing"));
}

#[test]
fn indices_must_rise() {
    use EventType::{Invoke, Ok};
    for second in [0, -5] {
        let e = indexed(&[(0, 1, Invoke, 0, "read"), (second, 2, Ok, 0, "read")]).expect_err("falls").to_string();
        assert!(e.contains(&format!("index {second} comes after index 0")), "{e}");
    }
    assert_eq!(indexed(&[(7, 1, Invoke, 0, "read"), (90, 2, Ok, 0, "read")]).unwrap().op(0).index(), 7);
}

#[test]
fn operations_of_one_process_may_touch_in_time_where_invocations_come_first() {
    use EventType::{Invoke, Ok};
    let touching =
        [(0, 1, Invoke, 0, "write"), (1, 5, Invoke, 0, "read"), (2, 5, Ok, 0, "write"), (3, 9, Ok, 0, "read")];
    let h = indexed(&touching).unwrap();
    assert_eq!((h.op(0).complete_index(), h.op(1).complete_index()), (Some(2), Some(3)));
    let overlapping =
        [(0, 1, Invoke, 0, "write"), (1, 4, Invoke, 0, "read"), (2, 5, Ok, 0, "write"), (3, 9, Ok, 0, "read")];
    assert!(indexed(&overlapping).expect_err("overlaps").to_string().contains("process 0 invokes read (index 1)"));
    assert!(indexed(&touching[..2]).expect_err("never completes").to_string().contains("has not completed"));
}

#[test]
fn lenient_repairs_and_says_what() {
    let h = with("invoke 0 write 1 / invoke 0 read / ok 0 read 1 / ok 5 read 2", |o| o.lenient = true).unwrap();
    assert_eq!(statuses(&h), [Status::Pending, Status::Ok]);
    assert_eq!(h.meta().repairs.len(), 2);
    assert!(
        h.meta().repairs.iter().any(|r| r.contains("a completion without an invocation: 1 (first at line 1)")),
        "{:?}",
        h.meta().repairs
    );
}

#[test]
fn keys_are_lifted_where_every_client_value_is_a_pair_and_reads_are_keyed() {
    let text = "invoke 0 write [1 5] / invoke 1 read [1 nil] / ok 0 / ok 1 read [1 5] / invoke 2 cas [2 [3 4]] / fail 2 / info nemesis kill";
    let h = history(text).unwrap();
    assert_eq!(h.meta().keys, KeyForm::Tuple);
    assert_eq!(h.op(0).key(), Scalar::Int(1));
    assert_eq!(h.op(0).input(), ValueRef::Int(5));
    assert_eq!(h.op(1).input(), ValueRef::Nil);
    assert_eq!(h.op(1).output(), ValueRef::Int(5));
    assert_eq!(h.op(2).input().elements().unwrap().as_ints(), Some(&[3, 4][..]));
    let index = h.key_index();
    assert_eq!(
        (index.keys(), index.rows(0), index.rows(1)),
        (&[Scalar::Int(1), Scalar::Int(2)][..], &[0, 1][..], &[2][..])
    );
    assert!(edn(&h).contains(":f :cas, :value [2 [3 4]]"), "{}", edn(&h));
    let left = with(text, |o| o.lift = Lift::Never).unwrap();
    assert_eq!(left.meta().keys, KeyForm::None);
    assert_eq!(edn(&left), edn(&h));
}

#[test]
fn pairs_that_are_no_keys_are_put_together_again() {
    for text in [
        "invoke 0 cas [1 2] / ok 0 / invoke 0 cas [2 3] / ok 0",
        "invoke 0 write [1 2] / ok 0 / invoke 0 read / ok 0 read [1 2]",
        "invoke 0 write [1 2] / ok 0 / invoke 0 write [1 nil] / ok 0 write 7",
        "invoke 0 write [1 [2]] / ok 0 / invoke 0 write [\"a\" 1] / ok 0 write nil / invoke 0 read / ok 0",
    ] {
        let h = history(text).unwrap();
        assert_eq!(h.meta().keys, KeyForm::None, "{text}");
        assert!(h.ops().all(|op| op.key() == Scalar::Nil));
        assert_eq!(edn(&h), edn(&with(text, |o| o.lift = Lift::Never).unwrap()), "{text}");
    }
}

#[test]
fn a_value_that_is_no_pair_contradicts_what_shows_keys() {
    let map = "invoke 0 cas [1 [2 3]] / ok 0 / invoke 0 get 1 / ok 0 get 3";
    let h = history(map).unwrap();
    assert_eq!((h.meta().keys, h.meta().doubts.len()), (KeyForm::None, 1));
    assert_eq!(edn(&h), edn(&with(map, |o| o.lift = Lift::Never).unwrap()));
    let keyless = history("invoke 0 cas [1 [2 3]] / ok 0 / invoke 0 reset / ok 0").unwrap();
    assert_eq!((keyless.meta().keys, keyless.meta().doubts.len()), (KeyForm::Tuple, 0));
}

#[test]
fn pairs_in_chunks_long_sealed_are_put_together_again() {
    let mut text = String::new();
    for i in 0..CHUNK_ROWS + 10 {
        text.push_str(&format!("invoke 0 write [{} {i}]\nok 0\n", i % 7));
    }
    text.push_str("invoke 0 read\nok 0 read 5\n");
    let h = history(&text).unwrap();
    assert_eq!(h.chunks().len(), 2);
    assert_eq!(h.op(3).input().elements().unwrap().as_ints(), Some(&[3, 3][..]));
    assert_eq!(h.op(3).output().elements().unwrap().as_ints(), Some(&[3, 3][..]));
}

#[test]
fn a_bare_nil_stays_apart_from_a_keyed_one() {
    let h = with("invoke 0 read [1 nil] / info 0 read nil / invoke 1 read [1 nil] / ok 1 read [1 nil]", |o| {
        o.lift = Lift::Always
    })
    .unwrap();
    let text = edn(&h);
    assert!(text.contains(":type :info, :process 0, :f :read, :value nil"), "{text}");
    assert!(text.contains(":type :ok, :process 1, :f :read, :value [1 nil]"), "{text}");
    assert_eq!(h.op(0).output(), ValueRef::Nil);
}

#[test]
fn a_transaction_is_kept_once_with_what_its_reads_returned() {
    let text = "invoke 0 txn [[:r 1 nil] [:append 2 3]] / ok 0 txn [[:r 1 [4 5]] [:append 2 3]] / invoke 1 txn [[:r 1 nil]] / info 1";
    let h = history(text).unwrap();
    let txn = h.op(0).txn().unwrap();
    assert_eq!(txn.len(), 2);
    assert_eq!(txn.get(0).value.elements().unwrap().as_ints(), Some(&[4, 5][..]));
    assert!(txn.get(0).known && txn.get(1).known);
    assert!(!h.op(1).txn().unwrap().get(0).known);
    let text = edn(&h);
    assert!(text.contains(":type :invoke, :process 0, :f :txn, :value [[:r 1 nil] [:append 2 3]]"), "{text}");
    assert!(text.contains(":type :ok, :process 0, :f :txn, :value [[:r 1 [4 5]] [:append 2 3]]"), "{text}");
}

#[test]
fn a_completion_that_says_other_than_its_invocation_is_kept_as_it_was() {
    for (invoked, completed) in [
        ("[[:w 1 2]]", "[[:w 1 3]]"),
        ("[[:r 1 7]]", "[[:r 1 7]]"),
        ("[[:r 1 nil]]", "nil"),
        ("[[:r 1 nil]]", ":timed-out"),
        ("nil", "[[:r 1 2]]"),
        ("[[:r 1 nil] [:w 1 2]]", "[[:r 1 nil]]"),
    ] {
        let h = history(&format!("invoke 0 txn {invoked} / info 0 txn {completed}")).unwrap();
        let text = edn(&h);
        assert!(text.contains(&format!(":type :invoke, :process 0, :f :txn, :value {invoked}}}")), "{text}");
        assert!(text.contains(&format!(":type :info, :process 0, :f :txn, :value {completed}}}")), "{text}");
    }
}

#[test]
fn an_acknowledgement_that_is_no_transaction_says_nothing_of_what_was_read() {
    let h = history(
        "invoke 0 txn [[:r 1 nil] [:w 2 3]] / ok 0 txn nil / invoke 0 txn [[:r 1 nil]] / ok 0 txn [[:r 1 nil]]",
    )
    .unwrap();
    let known = |row: usize| h.op(row).txn().unwrap().iter().map(|m| m.known).collect::<Vec<_>>();
    assert_eq!((known(0), known(1)), (vec![false, true], vec![true]));
}

#[test]
fn events_without_a_process_pair_by_function() {
    let h = history("invoke _ read / invoke _ write 1 / ok _ write 1 / ok _ read 1").unwrap();
    assert_eq!(statuses(&h), [Status::Ok, Status::Ok]);
    assert_eq!(h.op(0).complete_index(), Some(3));
    assert!(h.op(0).is_client() && h.op(0).process().is_none());
}

#[test]
fn the_nemesis_makes_the_fault_timeline_and_epochs() {
    let h = history(
        "invoke 0 read / ok 0 read 1 / info nemesis start :n1 / info nemesis start [:isolated] / invoke 0 read / ok 0 read 1 / info nemesis stop / info nemesis stop / invoke 0 read / ok 0 read 1",
    )
    .unwrap();
    let [w] = h.faults() else { panic!("{:?}", h.faults()) };
    assert_eq!((w.label.as_str(), w.start, w.end, w.value.as_str()), ("start#1", 2, Some(7), "[:isolated]"));
    let epochs: Vec<_> = h.clients().map(|op| op.fault_epoch()).collect();
    assert_eq!(epochs, [None, Some("start#1"), None]);
    assert_eq!(h.counts(), [3, 0, 0, 0]);
}

#[test]
fn without_indices_times_that_contradict_the_order_decide() {
    let h = history("invoke 0 write 1 @10 / ok 0 @20 / invoke 1 read @12 / ok 1 read 1 @14").unwrap();
    assert_eq!(h.meta().order, Order::Time);
    assert_eq!((h.op(0).index(), h.op(0).complete_index()), (0, Some(3)));
    assert_eq!((h.op(1).index(), h.op(1).complete_index()), (1, Some(2)));
}

#[test]
fn operations_that_touch_at_a_point_count_as_concurrent() {
    let h =
        with("invoke 0 write 1 @10 / ok 0 @20 / invoke 1 read @20 / ok 1 read nil @30", |o| o.by_time = true).unwrap();
    let (write, read) = (h.op(0), h.op(1));
    assert!(read.index() < write.complete_index().unwrap());
}

#[test]
fn a_slice_shares_the_columns() {
    let mut text = String::new();
    for i in 0..CHUNK_ROWS + 100 {
        text.push_str(&format!("invoke {} write {i}\nok {}\n", i % 3, i % 3));
    }
    let h = history(&text).unwrap();
    let part = h.slice(CHUNK_ROWS - 5..CHUNK_ROWS + 5);
    assert_eq!(part.len(), 10);
    assert_eq!(part.op(0).input(), ValueRef::Int(CHUNK_ROWS as i64 - 5));
    assert_eq!(part.op(9).input(), ValueRef::Int(CHUNK_ROWS as i64 + 4));
    let whole = h.chunks()[1].input().scalars().ints().unwrap().values().as_ptr();
    assert_eq!(part.chunks()[1].input().scalars().ints().unwrap().values().as_ptr(), whole);
    let row = h.row_of(2 * CHUNK_ROWS as u64).unwrap();
    assert_eq!(row, CHUNK_ROWS);
    assert_eq!(h.row_of(1), None);
}

#[test]
fn batches_from_several_pools_name_the_same_things() {
    let mut builder = HistoryBuilder::new(BuildOptions::default());
    for text in ["invoke 0 read / ok 0 read :a", "invoke 1 write :a / ok 1", "invoke 0 read / ok 0 read :a"] {
        builder.push(&events(text).unwrap()).unwrap();
    }
    let h = builder.finish().unwrap();
    assert_eq!(h.op(0).output(), h.op(1).input());
    assert_eq!(h.op(0).output(), h.op(2).output());
    assert_eq!(h.op(0).f_code(), h.op(2).f_code());
}

/// A list-append history in which each of `reads` transactions appends once to a key of its own choice and reads that key.
fn growing(reads: usize, keys: usize, show: impl Fn(usize, usize) -> String) -> String {
    let mut out = String::new();
    for i in 0..reads {
        let (key, grown) = (i % keys, i / keys + 1);
        let value = |read: &str| format!("[[:append {key} {grown}] [:r {key} {read}]]");
        for (kind, value) in [("invoke", value("nil")), ("ok", value(&show(key, grown)))] {
            out += &format!("{{:index {}, :time 0, :type :{kind}, :process 0, :f :txn, :value {value}}}\n", {
                2 * i + usize::from(kind == "ok")
            });
        }
    }
    out
}

fn read_edn(text: &str) -> History {
    let mut builder = HistoryBuilder::new(BuildOptions::default());
    elench_formats::edn::events::read(&mut text.as_bytes(), 1, &mut |batch| builder.push(batch)).unwrap();
    builder.finish().unwrap()
}

fn list_of(n: usize) -> String {
    let elements: Vec<String> = (1..=n).map(|i| i.to_string()).collect();
    format!("[{}]", elements.join(" "))
}

#[test]
fn a_list_that_is_read_while_it_grows_is_held_once() {
    let (reads, keys) = (3000, 3);
    let text = growing(reads, keys, |_, grown| list_of(grown));
    let h = read_edn(&text);
    // Each of the keys has 1,000 reads of 500 elements on average: twelve megabytes if each were held by itself.
    assert!(h.memory() < 600_000, "{} bytes", h.memory());
    assert_eq!(edn(&h), text);
}

#[test]
fn reads_that_contradict_each_other_are_all_held() {
    let shows = |key: usize, grown: usize| match grown % 7 {
        0 => "[]".to_string(),
        1 => format!("[{key} 9 9 9 9 9 9]"),
        2 => "nil".to_string(),
        3 => format!("[1 2 {grown}]"),
        _ => list_of(grown),
    };
    let text = growing(500, 5, shows);
    assert_eq!(edn(&read_edn(&text)), text);
}

#[test]
fn lists_of_keys_that_look_alike_do_not_mix() {
    let one = |index: usize, kind: &str, key: &str, list: &str| {
        format!("{{:index {index}, :time 0, :type :{kind}, :process 0, :f :txn, :value [[:r {key} {list}]]}}\n")
    };
    let keys = ["1", "\"1\"", "nil", ":a", "1", "4095", "4096", "-1", "99999999999"];
    let text: String = keys
        .iter()
        .enumerate()
        .flat_map(|(i, key)| [one(2 * i, "invoke", key, "nil"), one(2 * i + 1, "ok", key, &format!("[{i} 7]"))])
        .collect();
    assert_eq!(edn(&read_edn(&text)), text);
}
