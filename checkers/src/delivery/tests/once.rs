//! Requests that are tried again.

use std::collections::BTreeMap;

use super::*;
use crate::delivery::*;
use crate::findings::Fact;

fn path(text: &str) -> KeyPath {
    text.parse().unwrap()
}

fn by_consumers(text: &str) -> Findings {
    exactly_once(&of(text), &path("value.id"), Effects::Consumers, None, 100)
}

fn by_file(text: &str, key: &str, effects: &str) -> Findings {
    let dumps = [parse_dump("effects", effects.as_bytes()).unwrap()];
    exactly_once(&of(text), &path(key), Effects::Records(&dumps), None, 100)
}

fn holds(found: &Findings) -> Vec<&'static str> {
    let of = |name: &&str| matches!(found.fact_of(name), Some(Fact::Text(text)) if text.starts_with("holds"));
    ["exactly-once", "at-least-once", "at-most-once"].into_iter().filter(of).collect()
}

/// One request tried twice, the first time without an answer, and another.
const RETRIED: &str =
    "invoke 0 pay {:id 7, :sum 5} / info 0 / invoke 1 pay {:id 7, :sum 5} / ok 1 / invoke 2 pay {:id 8, :sum 1} / ok 2";

#[test]
fn a_retried_request_with_one_effect_is_exactly_once() {
    let found = by_file(RETRIED, "value.id", "7\n8\n");
    assert!(found.is_valid(), "{found:?}");
    assert_eq!(holds(&found), ["exactly-once", "at-least-once", "at-most-once"]);
}

#[test]
fn two_effects_of_one_request_break_exactly_once_and_at_most_once() {
    let found = by_file(RETRIED, "value.id", "7\n8\n7\n");
    assert_eq!(violated(&found), [("duplicate-effect", 1)]);
    assert!(shows(&found, "duplicate-effect", 0) && shows(&found, "duplicate-effect", 2));
    assert_eq!(holds(&found), ["at-least-once"]);
    let dumps = [parse_dump("effects", b"[7 7 8]").unwrap()];
    let weaker =
        exactly_once(&of(RETRIED), &path("value.id"), Effects::Records(&dumps), Some(Guarantee::AtLeastOnce), 3);
    assert!(weaker.is_valid());
    assert_eq!(weaker.count("duplicate-effect"), 1);
}

#[test]
fn an_acknowledged_request_without_an_effect_is_lost() {
    let found = by_file(RETRIED, "value.id", "[8]");
    assert_eq!(violated(&found), [("lost-effect", 1)]);
    assert!(shows(&found, "lost-effect", 2));
    assert_eq!(holds(&found), ["at-most-once"]);
    let unknown = "invoke 0 pay {:id 7} / info 0 / invoke 1 pay {:id 7} / info 1 / invoke 2 pay {:id 8} / ok 2";
    assert!(by_file(unknown, "value.id", "[8]").is_valid(), "nobody acknowledged the other");
}

#[test]
fn a_key_that_no_two_attempts_share_shows_nothing() {
    let own = "invoke 0 pay {:id 0} / ok 0 / invoke 0 pay {:id 2} / ok 0";
    let found = by_file(own, "value.id", "[0 2]");
    let why = found.why().unwrap().to_string();
    assert!(why.starts_with("oracle-too-weak") && why.contains("own id"), "{why}");
    let unique = by_file(&own.replace(":id 2", ":id 9"), "value.id", "[0 9]");
    let why = unique.why().unwrap().to_string();
    assert!(why.starts_with("oracle-too-weak") && why.contains("share"), "{why}");
    assert_eq!(holds(&unique), [] as [&str; 0]);
    assert!(by_file(own, "value.key", "[0 2]").why().unwrap().to_string().starts_with("oracle-too-weak"));
    assert_eq!(
        violated(&by_file(own, "value.id", "[0 2 2]")),
        [("duplicate-effect", 1)],
        "what is doubled even so is told"
    );
}

#[test]
fn different_payloads_that_are_both_accepted_under_one_key_conflict() {
    let h = "invoke 0 pay {:id 7, :sum 5} / ok 0 / invoke 1 pay {:id 7, :sum 6} / ok 1";
    let found = by_file(h, "value.id", "[7]");
    assert_eq!(violated(&found), [("conflicting-effect", 1)]);
    assert!(shows(&found, "conflicting-effect", 0) && shows(&found, "conflicting-effect", 2));
    let refused = h.replace("ok 1", "fail 1");
    assert!(by_file(&refused, "value.id", "[7]").is_valid());
    let unknown = h.replace("ok 1", "info 1");
    assert!(by_file(&unknown, "value.id", "[{:id 7, :sum 5}]").is_valid());
    let both = by_file(&unknown, "value.id", "[{:id 7, :sum 5} {:id 7, :sum 6}]");
    assert_eq!(violated(&both), [("conflicting-effect", 1), ("duplicate-effect", 1)]);
}

#[test]
fn an_effect_of_a_request_whose_attempts_all_failed_is_an_aborted_effect() {
    let h = format!("{RETRIED} / invoke 3 pay {{:id 9}} / fail 3 / invoke 3 pay {{:id 9}} / fail 3");
    assert!(by_file(&h, "value.id", "[7 8]").is_valid());
    let found = by_file(&h, "value.id", "[7 8 9]");
    assert_eq!(violated(&found), [("aborted-effect", 1)]);
    assert!(shows(&found, "aborted-effect", 6));
}

#[test]
fn keys_stand_in_fields_or_within_values_and_effects_in_logs_of_any_kind() {
    let list = "invoke 0 pay [7 5] / info 0 / invoke 1 pay [7 5] / ok 1";
    assert!(by_file(list, "input.0", "7\n").is_valid());
    assert!(by_file(list, "input.0", "[[7 5]]").is_valid());
    assert_eq!(violated(&by_file(list, "input.0", "[[7 5] [7 5]]")), [("duplicate-effect", 1)]);
    for log in [
        "id,sum\n7,5\n8,1\n",
        "{\"id\": 7, \"sum\": 5}\n{\"id\": 8}\n",
        "[{:id 7} {:id 8}]",
        "[{:value {:id 7}} {:value {:id 8}}]",
        "{7 :done, 8 :done}",
    ] {
        let found = by_file(RETRIED, "value.id", log);
        assert!(found.is_valid(), "{log} {found:?}");
    }
    for bad in ["extra", "nowhere.x", "value..id", "extra."] {
        assert!(bad.parse::<KeyPath>().is_err(), "{bad}");
    }
    let whole = "invoke 0 pay 7 / info 0 / invoke 1 pay 7 / ok 1";
    assert!(by_file(whole, "value", "[7]").is_valid());
}

#[test]
fn keys_in_further_fields_are_those_of_the_invocation() {
    let jsonl = r#"{"process":0,"type":"invoke","f":"pay","value":5,"request_id":"a"}
{"process":0,"type":"info","f":"pay","value":5}
{"process":1,"type":"invoke","f":"pay","value":5,"request_id":"a"}
{"process":1,"type":"ok","f":"pay","value":5,"request_id":"a"}"#;
    let h = elench_formats::open::open_bytes(jsonl.as_bytes(), &Default::default()).unwrap();
    let by = |effects: &str| {
        let dumps = [parse_dump("effects", effects.as_bytes()).unwrap()];
        exactly_once(&h, &path("extra.request_id"), Effects::Records(&dumps), None, 3)
    };
    assert!(
        by("[{\"request_id\": \"a\", \"sum\": 5}]").is_valid(),
        "{:?}",
        by("[{\"request_id\": \"a\", \"sum\": 5}]")
    );
    assert_eq!(violated(&by("a\na\n")), [("duplicate-effect", 1)]);
    assert_eq!(violated(&by("[]")), [("lost-effect", 1)]);
    let log = of("invoke 0 pay 1 / ok 0");
    assert!(exactly_once(&log, &path("extra.request_id"), Effects::Consumers, None, 3).why().is_some());
}

#[test]
fn what_consumers_were_given_are_effects() {
    let sent = "invoke 0 send {:id 7} / info 0 / invoke 1 send {:id 7} / ok 1 / invoke 1 send {:id 8} / ok 1";
    let taken = |values: &[&str]| {
        let taken: String = values.iter().map(|v| format!(" / invoke 2 poll / ok 2 poll {v}")).collect();
        by_consumers(&format!("{sent}{taken}"))
    };
    assert!(taken(&["{:id 7}", "{:id 8}"]).is_valid());
    assert_eq!(violated(&taken(&["{:id 7}", "{:id 8}", "{:id 7}"])), [("duplicate-effect", 1)]);
    assert_eq!(violated(&taken(&["{:id 7}"])), [("lost-effect", 1)]);
    let read = |values: &str| by_consumers(&format!("{sent} / invoke 2 read / ok 2 read {values}"));
    assert!(read("[{:id 7} {:id 8}]").is_valid());
    assert_eq!(violated(&read("[{:id 7} {:id 8} {:id 8}]")), [("duplicate-effect", 1)]);
    assert_eq!(violated(&read("[{:id 8}]")), [("lost-effect", 1)]);
    let crashed = by_consumers(&format!("{sent} / invoke 2 poll / info 2 / invoke 3 poll / ok 3 poll {{:id 8}}"));
    assert!(!crashed.is_invalid() && crashed.why().is_some(), "{crashed:?}");
}

#[test]
fn the_effects_of_another_history_are_its_acknowledged_operations() {
    let log = [of("invoke 0 apply {:id 7} / ok 0 / invoke 0 apply {:id 8} / ok 0 / invoke 0 apply {:id 8} / fail 0")];
    assert!(exactly_once(&of(RETRIED), &path("value.id"), Effects::Histories(&log), None, 3).is_valid());
    let log = [of("invoke 0 apply {:id 8} / ok 0 / invoke 0 apply {:id 8} / ok 0")];
    let found = exactly_once(&of(RETRIED), &path("value.id"), Effects::Histories(&log), None, 3);
    assert_eq!(violated(&found), [("duplicate-effect", 1), ("lost-effect", 1)]);
}

/// Requests that are tried again until one is acknowledged, of a service that remembers their keys, or not.
fn run(random: &mut Random, remembers: bool) -> (Vec<Event>, Vec<usize>) {
    let mix = mix(random);
    let keys = 1 + random.below(6);
    let choose = |random: &mut Random| {
        let key = random.below(keys);
        ("pay", format!("{{:id {key}, :sum {}}}", key * 10))
    };
    let mut effects: Vec<usize> = Vec::new();
    let apply = |_: &mut Random, _: &'static str, input: &str| {
        let key = input.trim_start_matches("{:id ").split(',').next().unwrap().parse().unwrap();
        if !remembers || !effects.contains(&key) {
            effects.push(key);
        }
        input.to_string()
    };
    let events = simulate(random, mix, &[], choose, apply);
    (events, effects)
}

fn log(effects: &[usize]) -> String {
    format!("{effects:?}").replace(',', "")
}

#[test]
fn a_service_that_remembers_keys_is_never_accused_and_one_that_spoils_effects_always() {
    let (mut decided, mut doubled, mut lost) = (0, 0, 0);
    seeds(2000, |random| {
        let (events, effects) = run(random, true);
        let found = by_file(&text(&events), "value.id", &log(&effects));
        assert_eq!(violated(&found), [], "{}\n{found:?}", text(&events));
        decided += u64::from(found.is_valid());
        let Some(&key) = effects.first() else { return };
        let begun = events.iter().position(|e| e.value.starts_with(&format!("{{:id {key},"))).unwrap();
        let mut twice = effects.clone();
        twice.push(key);
        let found = by_file(&text(&events), "value.id", &log(&twice));
        assert!(shows(&found, "duplicate-effect", begun), "{}\n{found:?}", text(&events));
        doubled += 1;
        if events.iter().any(|e| e.kind == "ok" && e.value.starts_with(&format!("{{:id {key},"))) {
            let found = by_file(&text(&events), "value.id", &log(&effects[1..]));
            assert!(shows(&found, "lost-effect", begun), "{}\n{found:?}", text(&events));
            lost += 1;
        }
    });
    assert!(decided > 1000 && doubled > 1000 && lost > 500, "{decided} {doubled} {lost}");
}

#[test]
fn the_checker_agrees_with_a_naive_count() {
    seeds(2000, |random| {
        let remembers = random.chance(50);
        let (events, mut effects) = run(random, remembers);
        effects.retain(|_| random.chance(80));
        let found = by_file(&text(&events), "value.id", &log(&effects));
        let mut expected = BTreeMap::<&str, u64>::new();
        let key_of =
            |e: &Event| e.value.trim_start_matches("{:id ").split(',').next().unwrap().parse::<usize>().unwrap();
        for key in 0..6 {
            let ended = |kind: &str| events.iter().filter(|e| e.kind == kind && key_of(e) == key).count();
            let (n, seen) = (ended("invoke"), effects.iter().filter(|&&e| e == key).count());
            let mut add = |kind, so| {
                if n > 0 && so {
                    *expected.entry(kind).or_default() += 1;
                }
            };
            add("duplicate-effect", seen > 1);
            add("lost-effect", seen == 0 && ended("ok") > 0);
            add("aborted-effect", seen > 0 && ended("fail") == n);
        }
        assert_eq!(
            violated(&found).into_iter().collect::<BTreeMap<_, _>>(),
            expected,
            "{}\n{effects:?}",
            text(&events)
        );
    });
}

#[test]
fn effects_that_bear_no_business_key_lose_nothing() {
    let enqueued = "invoke 0 enqueue {:id 7, :sum 5} / info 0 / invoke 1 enqueue {:id 7, :sum 5} / ok 1";
    for shown in [
        "invoke 2 dequeue / ok 2 dequeue {:sum 5}",
        "invoke 2 dequeue / ok 2 dequeue 5",
        "invoke 2 dequeue / ok 2 dequeue 5 / invoke 2 dequeue / ok 2 dequeue 5",
        "invoke 2 read / ok 2 read [5]",
    ] {
        let found = by_consumers(&format!("{enqueued} / {shown}"));
        assert_eq!(violated(&found), [], "{shown}");
        assert!(found.why().unwrap().to_string().starts_with("oracle-too-weak"), "{found:?}");
        assert_eq!(holds(&found), ["at-most-once"; 0]);
    }
    let key = "invoke 2 pay {:id 8, :sum 1} / ok 2 / invoke 3 dequeue / ok 3 dequeue {:id 8}";
    let one = by_consumers(&format!("{enqueued} / {key} / invoke 3 dequeue / ok 3 dequeue {{:sum 5}}"));
    assert!(!one.is_invalid() && one.why().is_some(), "the effect without a key may be the one missed: {one:?}");
    let none = by_consumers(&format!("{enqueued} / {key}"));
    assert_eq!(violated(&none), [("lost-effect", 1)]);
}

#[test]
fn a_key_beside_the_payload_is_not_looked_for_in_it() {
    let text = r#"{:process 0, :type :invoke, :f :enqueue, :value 1, :rid "a"}
{:process 0, :type :info, :f :enqueue, :value 1, :rid "a"}
{:process 1, :type :invoke, :f :enqueue, :value 1, :rid "a"}
{:process 1, :type :ok, :f :enqueue, :value 1, :rid "a"}
{:process 2, :type :invoke, :f :dequeue, :value nil}
{:process 2, :type :ok, :f :dequeue, :value 1}
"#;
    let options = elench_formats::open::OpenOptions { threads: 1, ..Default::default() };
    let h = elench_formats::open::open_bytes(text.as_bytes(), &options).unwrap();
    let found = exactly_once(&h, &path("extra.rid"), Effects::Consumers, None, 3);
    assert_eq!(violated(&found), []);
    assert!(found.why().unwrap().to_string().starts_with("oracle-too-weak"), "{found:?}");
}

#[test]
fn exactly_once_does_not_hold_beside_an_effect_that_failed() {
    let h = format!("{RETRIED} / invoke 3 pay {{:id 9}} / fail 3");
    let found = by_file(&h, "value.id", "[7 8 9]");
    assert_eq!(violated(&found), [("aborted-effect", 1)]);
    assert_eq!(holds(&found), ["at-least-once", "at-most-once"]);
}
