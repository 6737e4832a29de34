//! The order of producers.

use std::collections::BTreeMap;

use super::*;
use crate::delivery::prefix;

fn check(text: &str, window: u32) -> Findings {
    prefix(&of(text), window, 100)
}

const SENT: &str =
    "invoke 0 append 1 / ok 0 / invoke 0 append 2 / ok 0 / invoke 0 append 3 / ok 0 / invoke 1 append 10 / ok 1";

fn read(list: &str) -> String {
    format!("{SENT} / invoke 2 read / ok 2 read {list}")
}

#[test]
fn a_view_in_order_may_end_anywhere() {
    for list in ["[1]", "[1 2]", "[10 1 2 3]", "[1 10 2 3]"] {
        let found = check(&read(list), 1);
        assert!(found.is_valid(), "{list} {found:?}");
    }
    let nothing = check(&read("[]"), 1);
    assert!(!nothing.is_valid() && !nothing.is_invalid(), "a view of nothing shows no order: {nothing:?}");
}

#[test]
fn what_comes_after_its_successor_is_reordered_and_what_never_comes_is_skipped() {
    let reordered = check(&read("[2 1 3]"), 1);
    assert_eq!(violated(&reordered), [("reorder", 1)]);
    assert!(shows(&reordered, "reorder", 0) && shows(&reordered, "reorder", 2) && shows(&reordered, "reorder", 8));
    let skipped = check(&read("[1 3]"), 1);
    assert_eq!(violated(&skipped), [("skip", 1)]);
    assert!(shows(&skipped, "skip", 2));
    assert_eq!(violated(&check(&read("[3]"), 1)), [("skip", 2)]);
}

#[test]
fn within_the_window_elements_change_places() {
    assert!(check(&read("[2 1 3]"), 2).is_valid());
    assert_eq!(violated(&check(&read("[3 1 2]"), 2)), [("reorder", 1)]);
    assert!(check(&read("[3 1 2]"), 3).is_valid());
    assert!(check(&read("[1 3]"), 2).is_valid(), "it may still be in flight");
    assert_eq!(violated(&check(&read("[2 3]"), 2)), [("skip", 1)]);
}

#[test]
fn strangers_are_inserted_and_failures_aborted() {
    assert_eq!(violated(&check(&read("[1 77]"), 1)), [("insert", 1)]);
    let failed = format!("invoke 3 append 5 / fail 3 / {}", read("[5 1]"));
    assert_eq!(violated(&check(&failed, 1)), [("aborted-effect", 1)]);
    let unknown = "invoke 0 append 1 / info 0 / invoke 0 append 2 / ok 0 / invoke 2 read / ok 2 read [2]";
    assert!(check(unknown, 1).is_valid(), "nobody acknowledged what is missing");
    assert!(check(SENT, 1).why().is_some());
}

#[test]
fn consumers_share_what_they_take() {
    let taken = |values: &[(usize, u64)]| {
        let taken: String = values.iter().map(|(p, v)| format!(" / invoke {p} poll / ok {p} poll {v}")).collect();
        check(&format!("{SENT}{taken}"), 1)
    };
    assert!(taken(&[(5, 1), (6, 2), (5, 3)]).is_valid());
    assert_eq!(violated(&taken(&[(5, 3), (5, 1), (6, 2)])), [("reorder", 1)]);
    assert_eq!(violated(&taken(&[(5, 1), (6, 3)])), [("skip", 1)]);
}

#[test]
fn what_two_consumers_were_given_does_not_stand_for_what_nobody_was_given() {
    let taken =
        format!("{SENT} / invoke 5 poll / ok 5 poll 1 / invoke 6 poll / ok 6 poll 1 / invoke 6 poll / ok 6 poll 3");
    assert_eq!(violated(&check(&taken, 1)), [("skip", 1)]);
}

/// A list that clients append to and read whole, so many reads in a hundred.
fn a_list(random: &mut Random, mix: Mix, reads: u64) -> Vec<Event> {
    let mut next = 0;
    let choose = |random: &mut Random| {
        if random.chance(reads) {
            return ("read", String::new());
        }
        next += 1;
        ("append", next.to_string())
    };
    let mut log: Vec<String> = Vec::new();
    let apply = |_: &mut Random, f: &'static str, input: &str| {
        if f == "append" {
            log.push(input.into());
            return input.into();
        }
        format!("[{}]", log.join(" "))
    };
    simulate(random, mix, &[], choose, apply)
}

#[test]
fn a_log_is_never_accused_and_a_view_agrees_with_a_naive_reading() {
    let mut violations = 0;
    seeds(2000, |random| {
        let mut mix = mix(random);
        mix.clients += 1;
        let events = a_list(random, mix, 25);
        assert_eq!(violated(&prefix(&built(&events), 1, 1)), [], "{}", text(&events));
        let window = 1 + random.below(3);
        let mut spoilt = events;
        for event in spoilt.iter_mut().filter(|e| e.kind == "ok" && e.f == "read") {
            let mut list: Vec<String> =
                event.value.trim_matches(['[', ']']).split_whitespace().map(Into::into).collect();
            if random.chance(50) && !list.is_empty() {
                let moved = list.remove(random.below(list.len()));
                if random.chance(70) {
                    list.insert(random.below(list.len() + 1), moved);
                }
            }
            if random.chance(10) {
                list.push("4242".into());
            }
            event.value = format!("[{}]", list.join(" "));
        }
        let expected = naive(&spoilt, window);
        let found: BTreeMap<_, _> = violated(&prefix(&built(&spoilt), window as u32, 1)).into_iter().collect();
        assert_eq!(found, expected, "window {window}\n{}", text(&spoilt));
        violations += expected.values().sum::<u64>();
    });
    assert!(violations > 1000, "{violations}");
}

/// Every element of every view against every other.
fn naive(events: &[Event], window: usize) -> BTreeMap<&'static str, u64> {
    let mut out = BTreeMap::new();
    let failed = |e: &str| events.iter().any(|x| x.f == "append" && x.kind == "fail" && x.value == e);
    let acked = |e: &str| events.iter().any(|x| x.f == "append" && x.kind == "ok" && x.value == e);
    let mut of_process: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for e in events.iter().filter(|e| e.f == "append" && e.kind == "invoke" && !failed(&e.value)) {
        of_process.entry(e.process).or_default().push(&e.value);
    }
    let place = |e: &str| of_process.iter().find_map(|(p, list)| Some((*p, list.iter().position(|x| *x == e)?)));
    let mut skipped = std::collections::BTreeSet::new();
    for event in events.iter().filter(|e| e.kind == "ok" && e.f == "read") {
        let list: Vec<&str> = event.value.trim_matches(['[', ']']).split_whitespace().collect();
        for (i, e) in list.iter().enumerate() {
            let Some((producer, number)) = place(e) else {
                *out.entry(if failed(e) { "aborted-effect" } else { "insert" }).or_default() += 1;
                continue;
            };
            let overtaken =
                list[..i].iter().filter_map(|x| place(x)).any(|(p, n)| p == producer && n >= number + window);
            if overtaken {
                *out.entry("reorder").or_default() += 1;
            }
        }
        for (producer, produced) in &of_process {
            for (n, e) in produced.iter().enumerate() {
                let later = list.iter().filter_map(|x| place(x)).any(|(p, m)| p == *producer && m >= n + window);
                if later && acked(e) && !list.contains(e) && skipped.insert(e.to_string()) {
                    *out.entry("skip").or_default() += 1;
                }
            }
        }
    }
    out
}

#[test]
fn a_view_shows_nothing_that_was_produced_only_after_it() {
    let early = "invoke 1 read / ok 1 read [1] / invoke 0 append 1 / ok 0";
    let found = prefix(&of(early), 1, 9);
    assert_eq!(violated(&found), [("unexpected", 1)]);
    assert!(shows(&found, "unexpected", 0) && shows(&found, "unexpected", 2));
    let taken = "invoke 1 dequeue / ok 1 dequeue 1 / invoke 0 enqueue 1 / ok 0";
    assert_eq!(violated(&prefix(&of(taken), 1, 9)), [("unexpected", 1)]);
    let failed = format!("invoke 2 append 1 / fail 2 / {early}");
    assert_eq!(violated(&prefix(&of(&failed), 1, 9)), [("aborted-effect", 1)]);
    let meanwhile = "invoke 1 read / invoke 0 append 1 / ok 1 read [1] / ok 0";
    assert!(prefix(&of(meanwhile), 1, 9).is_valid());
}

#[test]
fn an_element_that_a_list_holds_twice_is_a_duplicate_unless_it_was_appended_twice() {
    let h = "invoke 0 append 1 / ok 0 / invoke 0 append 2 / ok 0 / invoke 1 read / ok 1 read [1 2 1]";
    let found = prefix(&of(h), 1, 9);
    assert_eq!(violated(&found), [("duplicate", 1)]);
    assert!(shows(&found, "duplicate", 0) && shows(&found, "duplicate", 4));
    assert_eq!(violated(&prefix(&of(&format!("invoke 2 append 1 / ok 2 / {h}")), 1, 9)), []);
    let taken = "invoke 0 enqueue 1 / ok 0 / invoke 1 dequeue / ok 1 dequeue 1 / invoke 1 dequeue / ok 1 dequeue 1";
    let again = prefix(&of(taken), 1, 9);
    assert!(again.is_valid() && again.count("duplicate") == 1, "{again:?}");
}

/// One view, spoiled in one place.
#[test]
fn each_fault_of_a_view_is_named_with_the_read_and_what_it_misplaces() {
    let mut tried: BTreeMap<&str, u64> = BTreeMap::new();
    seeds(600, |random| {
        let mut mix = mix(random);
        mix.ops += 10;
        let events = a_list(random, mix, 35);
        let reads: Vec<usize> =
            (0..events.len()).filter(|&i| events[i].kind == "ok" && events[i].f == "read").collect();
        if reads.is_empty() {
            return;
        }
        let at = reads[random.below(reads.len())];
        let view: Vec<String> = events[at].value.trim_matches(['[', ']']).split_whitespace().map(Into::into).collect();
        let begun = |i: usize| (0..i).rfind(|&j| events[j].process == events[i].process && events[j].kind == "invoke");
        let append =
            |value: &str| events.iter().position(|e| e.f == "append" && e.kind == "invoke" && e.value == value);
        let ended = |value: &str, kind| events.iter().any(|e| e.f == "append" && e.kind == kind && e.value == value);
        // Two elements of one producer, one before the other.
        let producer = |value: &str| append(value).map(|i| events[i].process);
        let two = (0..view.len())
            .flat_map(|a| (a + 1..view.len()).map(move |b| (a, b)))
            .find(|&(a, b)| producer(&view[a]) == producer(&view[b]));
        let check = |kind: &'static str, view: Vec<String>, shown: &[usize]| {
            let mut spoilt = events.clone();
            spoilt[at].value = format!("[{}]", view.join(" "));
            let found = prefix(&built(&spoilt), 1, 1000);
            for &op in shown {
                assert!(shows(&found, kind, op), "{kind} without {op}: {found:#?}\n{}", text(&spoilt));
            }
            // What its producer handed over before what comes too early is left out besides.
            let implied = |other: &str| other == kind || kind == "unexpected" && other == "skip";
            let others: Vec<_> = violated(&found).into_iter().filter(|(other, _)| !implied(other)).collect();
            assert!(others.is_empty(), "{kind}: {others:?}\n{}", text(&spoilt));
        };
        let read = begun(at).unwrap();
        let mut count = |kind| *tried.entry(kind).or_insert(0) += 1;
        if let Some((a, b)) = two {
            let mut turned = view.clone();
            let moved = turned.remove(a);
            turned.insert(b, moved.clone());
            // What else of that producer stands between is behind its successor no more than it was.
            check("reorder", turned, &[read, append(&moved).unwrap()]);
            count("reorder");
            if ended(&view[a], "ok") {
                let without = view.iter().filter(|v| **v != view[a]).cloned().collect();
                check("skip", without, &[append(&view[a]).unwrap()]);
                count("skip");
            }
        }
        let with = |value: &str| view.iter().cloned().chain([value.to_string()]).collect::<Vec<_>>();
        check("insert", with("4242"), &[read]);
        count("insert");
        if let Some(again) = view.first() {
            check("duplicate", with(again), &[read]);
            count("duplicate");
        }
        let values = || (1..=events.len()).map(|v| v.to_string());
        let late = |v: &String| append(v).is_some_and(|i| i > at) && !ended(v, "fail");
        if let Some(late) = values().find(late) {
            check("unexpected", with(&late), &[read, append(&late).unwrap()]);
            count("unexpected");
        }
        let failed = |v: &String| append(v).is_some_and(|i| i < read) && ended(v, "fail");
        if let Some(failed) = values().find(failed) {
            check("aborted-effect", with(&failed), &[read, append(&failed).unwrap()]);
            count("aborted-effect");
        }
    });
    assert!(tried.len() == 6 && tried.values().all(|&n| n > 40), "{tried:?}");
}
