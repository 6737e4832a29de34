//! How histories are read decides verdicts as much as how they are searched. Each test is a small history that was, or
//! could be, accused or passed falsely by a plausible reading.

#![allow(clippy::unwrap_used)]

use elench::check::{CheckOptions, Found, Report, Valid, check};
use elench_checkers::Budget;
use elench_formats::build::{BuildOptions, Lift};
use elench_formats::notation::history_with;
use elench_formats::open::{OpenOptions, open_bytes};
use elench_formats::write::{Target, to_writer};
use elench_formats::{Format, History, Value};

fn options(initial: Value) -> CheckOptions {
    CheckOptions {
        checkers: vec!["linear".into()],
        model: Some("cas-register".into()),
        initial,
        cross_check: true,
        budget: Budget::unlimited(),
        examples: 1,
        ..CheckOptions::default()
    }
}

fn judged(history: &History, initial: Value) -> Report {
    check("", history, &options(initial)).unwrap()
}

fn notation(text: &str) -> History {
    history_with(text, BuildOptions { real_time: true, ..BuildOptions::default() }).unwrap()
}

fn verdict(text: &str) -> Valid {
    judged(&notation(text), Value::Nil).valid
}

fn verdict_from(text: &str, initial: i64) -> Valid {
    judged(&notation(text), Value::Int(initial)).valid
}

fn file(format: &str, text: &str) -> History {
    let options = OpenOptions { format: Format::from_name(format), threads: 1, ..OpenOptions::default() };
    open_bytes(text.as_bytes(), &options).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

const KEYED: &str = "invoke 0 write [1 3] / ok 0 / invoke 1 read [1 nil] / ok 1 read [1 3] / invoke 2 write [2 9] / ok 2 / \
                     invoke 0 cas [1 [3 5]] / ok 0 / invoke 1 read [2 nil] / ok 1 read [2 9] / ";

#[test]
fn one_odd_value_does_not_throw_all_keys_into_one_register() {
    assert_eq!(verdict(KEYED), Valid::Yes);
    for odd in [
        "invoke 3 read [1 nil] / info 3 read :timed-out",
        "invoke 3 read [1 nil] / info 3 read [2 7]",
        "invoke 3 read / info 3 read",
        "invoke 3 write [1 4] / fail 3 write :refused",
    ] {
        let h = notation(&format!("{KEYED}{odd}"));
        assert_eq!(judged(&h, Value::Nil).valid, Valid::Yes, "{odd}");
        assert_eq!(h.key_index().len(), 2, "{odd}");
        let mut text = Vec::new();
        elench_formats::write::edn::write(&h, &mut text).unwrap();
        let said = odd.rsplit(" read ").next().filter(|s| s.starts_with([':', '['])).unwrap_or("");
        assert!(String::from_utf8(text).unwrap().contains(&format!(":value {said}")), "{odd} is kept");
    }
}

#[test]
fn contradictory_evidence_of_keys_is_a_doubt_and_never_an_accusation() {
    for text in [
        // The first value is no pair; later ones look keyed.
        "invoke 3 write 5 / ok 3 / invoke 0 write [1 3] / ok 0 / invoke 1 read [1 nil] / ok 1 read [1 4]",
        // An ok value that is none of its key's.
        "invoke 0 write [1 3] / ok 0 / invoke 1 read [1 nil] / ok 1 read 7",
        // Nothing but pairs, and nothing that shows what they are.
        "invoke 0 write [1 3] / ok 0 / invoke 1 write [1 4] / ok 1",
        // Keyed reads, and a cas that would be unkeyed.
        "invoke 0 cas [1 2] / ok 0 / invoke 1 read [1 nil] / ok 1 read [1 3]",
    ] {
        let report = judged(&notation(text), Value::Nil);
        assert_eq!(report.valid, Valid::Unknown, "{text}");
        assert!(report.why.unwrap().contains("--independent"), "{text}");
    }
    let keys_asked = BuildOptions { lift: Lift::Always, real_time: true, ..BuildOptions::default() };
    let text = "invoke 0 write [[1 2] 1] / ok 0 / invoke 0 write [[1 3] 2] / ok 0 / invoke 1 read [[1 2] nil] / ok 1 read [[1 2] 1]";
    assert_eq!(
        judged(&history_with(text, keys_asked).unwrap(), Value::Nil).valid,
        Valid::Yes,
        "keys may be collections"
    );
}

#[test]
fn a_cas_of_a_key_and_two_values_shows_keys() {
    assert_eq!(
        verdict("invoke 0 write [7 1] / ok 0 / invoke 0 cas [7 [1 2]] / ok 0 / invoke 0 cas [7 [2 3]] / ok 0"),
        Valid::Yes
    );
}

#[test]
fn keys_of_a_field_may_be_collections_and_must_agree() {
    let row = |id: u32, f: &str, key: &str, input: &str, output: &str, at: u32| {
        format!(
            "{{\"op_id\":{id},\"process_id\":0,\"op_type\":\"{f}\",\"key\":{key},\"input\":{input},\"output\":{output},\"invoke_ts\":{at},\"complete_ts\":{}}}\n",
            at + 1
        )
    };
    let text = row(0, "write", "[\"a\",1]", "1", "null", 0)
        + &row(1, "write", "[\"a\",2]", "2", "null", 10)
        + &row(2, "read", "[\"a\",1]", "null", "1", 20);
    let h = file("schema", &text);
    assert_eq!((judged(&h, Value::Nil).valid, h.key_index().len()), (Valid::Yes, 2));
    let options = OpenOptions { format: Some(Format::Edn), ..OpenOptions::default() };
    let text = "{:process 0, :type :invoke, :f :read, :key 2}\n{:process 0, :type :ok, :f :read, :key 3, :value 7}";
    let e = open_bytes(text.as_bytes(), &options).expect_err("another key").to_string();
    assert!(e.contains("line 2") && e.contains("key differs"), "{e}");
}

#[test]
fn records_without_a_process_complete_themselves() {
    let text = "{\"op_id\":0,\"op_type\":\"write\",\"input\":1,\"invoke_ts\":0}
{\"op_id\":1,\"op_type\":\"write\",\"input\":2,\"invoke_ts\":1,\"complete_ts\":2,\"error\":\"no\"}
{\"op_id\":2,\"op_type\":\"read\",\"output\":1,\"invoke_ts\":3,\"complete_ts\":4}
";
    assert_eq!(judged(&file("schema", text), Value::Nil).valid, Valid::Yes);
}

#[test]
fn events_without_a_process_pair_by_value_or_leave_a_doubt() {
    assert_eq!(
        verdict("invoke _ write 1 / invoke _ write 2 / fail _ write 2 / ok _ write 1 / invoke 0 read / ok 0 read 1"),
        Valid::Yes
    );
    let report = judged(&notation("invoke _ read / invoke _ read / ok _ read 1 / ok _ read nil"), Value::Nil);
    assert_eq!(report.valid, Valid::Unknown);
    assert!(report.why.unwrap().contains("without a process"));
}

#[test]
fn a_missing_time_never_makes_concurrent_operations_sequential() {
    // Ordered by time this is legal; in the order of the source it is not.
    let blocks =
        "invoke 0 write 1 @10 / ok 0 @30 / invoke 1 write 2 @5 / ok 1 @15 / invoke 2 read @16 / ok 2 read 2 @17";
    assert_eq!(verdict(blocks), Valid::Yes);
    assert_eq!(verdict(&format!("info nemesis start / {blocks}")), Valid::Yes, "the nemesis may lack times");
    assert_eq!(verdict(&format!("{blocks} / invoke 3 read / ok 3 read 2")), Valid::Unknown);
}

#[test]
fn an_acknowledged_write_that_contradicts_itself_is_not_judged() {
    assert_eq!(verdict("invoke 0 write 1 / ok 0 write 2 / invoke 0 read / ok 0 read 2"), Valid::Unknown);
    assert_eq!(verdict("invoke 0 write / ok 0 write 5 / invoke 0 read / ok 0 read 5"), Valid::Yes);
    assert_eq!(
        verdict("invoke 0 write 1 / ok 0 / invoke 0 cas [1 2] / ok 0 cas false / invoke 0 read / ok 0 read 2"),
        Valid::Unknown
    );
}

#[test]
fn reads_of_nil_say_nothing_where_a_register_is_never_unset_and_prove_nothing_either() {
    let silent = "invoke 0 write 1 / ok 0 / invoke 1 read / ok 1 read nil / invoke 1 read / ok 1 read 1";
    assert_eq!(verdict_from(silent, 0), Valid::Yes);
    assert_eq!(verdict(silent), Valid::No);
    assert_eq!(verdict_from("invoke 1 read / ok 1 read nil", 0), Valid::Unknown, "silence is no evidence");
    assert_eq!(
        verdict_from("invoke 2 write nil / fail 2 / invoke 0 write 1 / ok 0 / invoke 1 read / ok 1 read nil", 0),
        Valid::Yes
    );
    assert_eq!(
        verdict_from("invoke 2 write nil / ok 2 / invoke 0 write 1 / ok 0 / invoke 1 read / ok 1 read nil", 0),
        Valid::No
    );
    let other_key =
        "invoke 2 write [1 nil] / ok 2 / invoke 0 write [2 1] / ok 0 / invoke 1 read [2 nil] / ok 1 read [2 nil]";
    assert_eq!(verdict_from(other_key, 0), Valid::Yes, "another key says nothing about this one");
}

#[test]
fn an_initial_value_that_is_no_integer_is_no_integer() {
    let h = notation("invoke 0 read / ok 0 read -9223372036854775806");
    assert_eq!(judged(&h, Value::str("foo")).valid, Valid::No);
    assert_eq!(judged(&notation("invoke 0 read / ok 0 read \"foo\""), Value::str("foo")).valid, Valid::Yes);
}

#[test]
fn clients_may_have_names() {
    let stale = |who: &str| {
        format!(
            "{{:process 0, :type :invoke, :f :write, :value 1}} {{:process 0, :type :ok, :f :write, :value 1}}
             {{:process 0, :type :invoke, :f :write, :value 2}} {{:process 0, :type :ok, :f :write, :value 2}}
             {{:process {who}, :type :invoke, :f :read, :value nil}} {{:process {who}, :type :ok, :f :read, :value 1}}"
        )
    };
    for who in ["1", "\"b\"", ":reader", "1.0", "123456789012345678901234567890"] {
        let h = file("edn", &stale(who));
        assert_eq!(judged(&h, Value::Nil).valid, Valid::No, "{who}");
        assert!(h.faults().is_empty() && h.counts() == [3, 0, 0, 0], "{who}");
    }
    assert_eq!(file("edn", &stale("\"b\"")).op(2).extra("process_name"), Some("\"b\""));
}

#[test]
fn operations_that_touch_complete_in_their_own_order_or_are_malformed() {
    let text = "{:index 0, :time 1, :process 0, :type :invoke, :f :cas, :value [1 2]}
{:index 1, :time 5, :process 0, :type :invoke, :f :cas, :value [1 3]}
{:index 2, :time 5, :process 0, :type :ok, :f :cas, :value [1 3]}";
    let options = OpenOptions { format: Some(Format::Edn), ..OpenOptions::default() };
    let e = open_bytes(text.as_bytes(), &options).expect_err("the wrong one completes").to_string();
    assert!(e.contains("invokes cas (index 1) but its cas (index 0"), "{e}");
}

#[test]
fn a_plain_register_has_no_cas() {
    let h = notation("invoke 0 cas [nil 1] / ok 0 / invoke 0 read / ok 0 read 1");
    let mut options = options(Value::Nil);
    assert_eq!(check("", &h, &options).unwrap().valid, Valid::Yes);
    options.model = Some("register".into());
    let report = check("", &h, &options).unwrap();
    assert_eq!(report.valid, Valid::Unknown);
    assert!(matches!(&report.findings[0].result, Found::NotRun(why) if why.contains("plain register")));
}

#[test]
fn no_answer_about_a_repaired_history_stands() {
    let lenient = BuildOptions { lenient: true, real_time: true, ..BuildOptions::default() };
    let h = history_with("ok 3 write 5 / invoke 0 read / ok 0 read 5", lenient).unwrap();
    let report = judged(&h, Value::Nil);
    assert_eq!(report.valid, Valid::Unknown);
    assert!(report.why.unwrap().contains("a violation in what --lenient left"));
}

fn record(process: &str, rest: &str) -> String {
    format!("{{\"process_id\":{process},{rest}}}\n")
}

#[test]
fn a_process_that_reads_what_it_overwrote_is_stale_even_at_one_time() {
    let writes = record("0", r#""op_type":"write","input":1,"invoke_ts":0,"complete_ts":1"#)
        + &record("0", r#""op_type":"write","input":2,"invoke_ts":1,"complete_ts":2"#);
    let read = |process| record(process, r#""op_type":"read","output":1,"invoke_ts":2,"complete_ts":3"#);
    assert_eq!(judged(&file("schema", &(writes.clone() + &read("0"))), Value::Nil).valid, Valid::No);
    // Another client's read touches the second write, and may come before it.
    assert_eq!(judged(&file("schema", &(writes + &read("1"))), Value::Nil).valid, Valid::Yes);
}

#[test]
fn a_write_that_nobody_answered_may_have_happened_whatever_the_recorder_forgot_to_mark() {
    let read = record("1", r#""op_type":"read","output":1,"invoke_ts":5,"complete_ts":6"#);
    let judge = |write: &str| judged(&file("schema", &(record("0", write) + &read)), Value::Nil).valid;
    let write = r#""op_type":"write","input":1,"invoke_ts":0,"#;
    assert_eq!(judge(&format!(r#"{write}"complete_ts":4,"error":"request timed out""#)), Valid::Yes);
    assert_eq!(judge(&format!(r#"{write}"error":"connection reset""#)), Valid::Yes);
    assert_eq!(judge(&format!(r#"{write}"complete_ts":4,"error":"conflict""#)), Valid::No);
    assert_eq!(judge(&format!(r#"{write}"complete_ts":4,"error":"timeout","timeout_marker":false"#)), Valid::No);
}

#[test]
fn processes_known_by_name_keep_it_through_the_default_schema() {
    let text = record("\"b\"", r#""op_type":"read","output":null,"invoke_ts":0,"complete_ts":2"#)
        + &record("\"a\"", r#""op_type":"write","input":1,"invoke_ts":1,"complete_ts":3,"mark":{"~edn":"nil"}"#);
    for (target, format) in [(Target::Schema, "schema"), (Target::Csv, "csv")] {
        let mut bytes = Vec::new();
        to_writer(&file("schema", &text), target, &mut bytes).unwrap();
        let back = file(format, std::str::from_utf8(&bytes).unwrap());
        let names: Vec<_> = back.ops().map(|op| op.extra("process_id").map(str::to_string)).collect();
        assert_eq!(names, [Some("\"b\"".to_string()), Some("\"a\"".to_string())]);
        assert_eq!(back.op(1).extra("mark"), Some("nil"));
    }
}
