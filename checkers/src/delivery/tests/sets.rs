//! Sets, broadcasts, and what is acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use elench_formats::history::Status as Ended;
use elench_formats::open::{OpenOptions, open_bytes};

use super::*;
use crate::delivery::*;
use crate::findings::{Fact, replay};

const ALL: usize = 1000;

fn full(text: &str) -> Findings {
    set_full(&of(text), false, ALL)
}

#[test]
fn a_read_of_one_element_three_times_is_no_set() {
    let h = "invoke 0 add 1 / ok 0 / invoke 1 read / ok 1 read [1 1 1]";
    for found in [full(h), set(&of(h), 3)] {
        assert_eq!(violated(&found), [("duplicated", 1)]);
        assert!(shows(&found, "duplicated", 2));
    }
}

#[test]
fn a_failed_add_that_is_seen_is_an_aborted_effect_unless_another_attempt_explains_it() {
    let failed = "invoke 0 add 1 / fail 0 / invoke 1 read / ok 1 read [1]";
    let again = "invoke 0 add 1 / fail 0 / invoke 0 add 1 / info 0 / invoke 1 read / ok 1 read [1]";
    let too_late = "invoke 0 add 1 / fail 0 / invoke 1 read / ok 1 read [1] / invoke 0 add 1 / ok 0";
    for check in [|h| full(h), |h: &str| set(&of(h), 3), |h: &str| no_lost_ack(&of(h), &[], 3)] {
        assert_eq!(violated(&check(failed)), [("aborted-effect", 1)]);
        assert_eq!(violated(&check(again)), []);
        assert_eq!(check(again).count("recovered"), 1);
        assert_eq!(violated(&check(too_late)), [("aborted-effect", 1)]);
    }
}

#[test]
fn what_nobody_added_is_unexpected_and_so_is_what_is_added_only_later() {
    let never = "invoke 0 add 1 / ok 0 / invoke 1 read / ok 1 read [1 7]";
    let later = "invoke 1 read / ok 1 read [1] / invoke 0 add 1 / ok 0 / invoke 1 read / ok 1 read [1]";
    let meanwhile = "invoke 1 read / invoke 0 add 1 / ok 1 read [1] / ok 0 / invoke 1 read / ok 1 read [1]";
    assert_eq!(violated(&full(never)), [("unexpected", 1)]);
    assert_eq!(violated(&full(later)), [("unexpected", 1)]);
    assert_eq!(violated(&full(meanwhile)), []);
    assert!(full(meanwhile).is_valid());
}

#[test]
fn an_element_that_shows_late_is_stale_and_a_violation_of_a_linearizable_set_alone() {
    let h =
        "invoke 0 add 1 @0 / ok 0 @1000000 / invoke 1 read @2000000 / ok 1 read [] @3000000 / invoke 1 read @4000000
        ok 1 read [1] @5000000";
    let found = full(h);
    assert!(found.is_valid());
    assert_eq!(counts(&found, ["stale", "lost"]), [1, 0]);
    let Some(Fact::Quantiles(q)) = found.fact_of("latency to stability") else { panic!("{found:?}") };
    assert_eq!(q.at.last(), Some(&(1000, 1_000_000)));
    assert_eq!(violated(&set_full(&of(h), true, 1)), [("stale", 1)]);
    let acked = no_lost_ack(&of(h), &[], 3);
    assert!(acked.is_valid());
    assert_eq!(acked.count("late"), 1);
}

#[test]
fn an_element_that_was_known_and_is_absent_for_good_is_lost() {
    let acked = "invoke 0 add 1 / ok 0 / invoke 1 read / ok 1 read []";
    let seen = "invoke 0 add 1 / invoke 1 read / ok 1 read [1] / invoke 1 read / ok 1 read []";
    assert_eq!(violated(&full(acked)), [("lost", 1)]);
    assert_eq!(violated(&full(seen)), [("lost", 1)]);
    assert_eq!(violated(&no_lost_ack(&of(acked), &[], 3)), [("lost", 1)]);
    assert_eq!(violated(&no_lost_ack(&of(seen), &[], 3)), [], "nobody acknowledged it");
}

/// Of two reads at once one sees the element. The reference goes by invocations; it might be there for all that is shown.
#[test]
fn a_read_that_overlaps_one_that_sees_the_element_loses_nothing() {
    let h = "invoke 0 add 1 / ok 0 / invoke 1 read / invoke 2 read / ok 2 read [] / ok 1 read [1]";
    assert_eq!(violated(&full(h)), []);
    assert_eq!(full(h).count("stale"), 1);
    let again = format!("{h} / invoke 2 read / ok 2 read []");
    assert_eq!(violated(&full(&again)), [("lost", 1)]);
    let found = no_lost_ack(&of(h), &[], 3);
    assert_eq!(violated(&found), []);
    assert_eq!(found.count("late"), 1);
}

#[test]
fn what_is_acknowledged_after_the_last_read_began_is_unread_and_not_lost() {
    let h = "invoke 0 add 1 / ok 0 / invoke 1 read / invoke 0 add 2 / ok 0 / ok 1 read [1]";
    for found in [full(h), set(&of(h), 3), no_lost_ack(&of(h), &[], 3)] {
        assert!(found.is_valid(), "{found:?}");
        assert_eq!(found.count("unread"), 1);
    }
}

#[test]
fn no_reads_and_nothing_to_see_are_no_evidence() {
    for h in [
        "invoke 0 add 1 / ok 0",
        "invoke 0 add 1 / ok 0 / invoke 1 read / ok 1 read nil",
        "invoke 0 read / ok 0 read []",
    ] {
        for found in [full(h), set(&of(h), 3), no_lost_ack(&of(h), &[], 3)] {
            assert!(!found.is_invalid() && found.why().is_some(), "{h} {found:?}");
        }
    }
}

#[test]
fn elements_may_be_anything_and_what_is_alike_is_not_the_same() {
    let h = "invoke 0 add [1 2] / ok 0 / invoke 0 add -1 / ok 0 / invoke 0 add :a / ok 0 / invoke 0 add \"a\" / ok 0
        invoke 0 add #{3 1} / ok 0 / invoke 0 add {:x 1} / ok 0 / invoke 0 add 9223372036854775807 / ok 0";
    let all = "[[1 2] -1 :a \"a\" #{1 3} {:x 1} 9223372036854775807]";
    assert!(full(&format!("{h} / invoke 1 read / ok 1 read {all}")).is_valid());
    let set_of_them = "#{[1 2] -1 :a \"a\" #{1 3} {:x 1} 9223372036854775807}";
    assert!(full(&format!("{h} / invoke 1 read / ok 1 read {set_of_them}")).is_valid());
    let found = full(&format!("{h} / invoke 1 read / ok 1 read [[1 2] :a #{{1 3}} {{:x 1}} 9223372036854775807]"));
    assert_eq!(violated(&found), [("lost", 2)]);
}

#[test]
fn what_somebody_may_have_removed_is_not_lost() {
    let h =
        "invoke 0 add 1 / ok 0 / invoke 0 add 2 / ok 0 / invoke 0 remove 1 / info 0 / invoke 1 read / ok 1 read [2]";
    for found in [set(&of(h), 3), no_lost_ack(&of(h), &[], 3)] {
        assert!(found.is_valid(), "{found:?}");
    }
    assert!(!full(h).is_invalid(), "it is about sets that only grow");
    let read = "invoke 0 add 1 / ok 0 / invoke 0 remove 1 / ok 0 / invoke 0 read / ok 0 read []";
    let found = broadcast(&of(read), true, 3);
    assert!(!found.is_invalid() && !found.is_valid(), "{found:?}");
}

#[test]
fn each_key_is_a_set_of_its_own() {
    let keyed = BuildOptions { format: "n".into(), real_time: true, lift: Lift::Always, ..BuildOptions::default() };
    let text = "invoke 0 add [:x 1] / ok 0 / invoke 1 add [:y 1] / ok 1 / invoke 0 read [:x nil] / ok 0 read [:x [1]]
        invoke 0 read [:y nil] / ok 0 read [:y []]";
    let h = history_with(text, keyed).unwrap();
    for found in [set_full(&h, false, 3), set(&h, 3), no_lost_ack(&h, &[], 3)] {
        assert_eq!(violated(&found), [("lost", 1)]);
        assert_eq!(found.kinds()["lost"].examples[0].key.as_deref(), Some(":y"));
    }
}

// Dumps.

fn dump(text: &str) -> Dump {
    parse_dump("dump", text.as_bytes()).unwrap()
}

#[test]
fn an_acknowledged_write_that_no_dump_holds_is_lost_and_one_that_some_hold_is_not_everywhere() {
    let h = of("invoke 0 add 1 / ok 0 / invoke 0 add 2 / ok 0 / invoke 0 add 3 / info 0 / invoke 1 add 4 / fail 1");
    let found = no_lost_ack(&h, &[dump("[1 3]"), dump("1\n")], 3);
    assert_eq!(violated(&found), [("lost", 1)]);
    assert!(shows(&found, "lost", 2));
    assert_eq!(counts(&found, ["not-everywhere", "recovered"]), [0, 1]);
    let found = no_lost_ack(&h, &[dump("[1 2]"), dump("[1 2 4 9]"), dump("{\"row\": 2}")], 3);
    assert_eq!(violated(&found), [("aborted-effect", 1), ("unexpected", 1)]);
    assert_eq!(counts(&found, ["not-everywhere", "recovered"]), [1, 0]);
}

#[test]
fn strings_of_a_dump_may_be_keywords_of_the_history() {
    let h = of("invoke 0 add :a / ok 0 / invoke 0 add :b / ok 0");
    assert!(no_lost_ack(&h, &[dump("[\"a\", \"b\"]")], 3).is_valid());
    assert!(no_lost_ack(&h, &[dump("a\nb\n")], 3).is_valid());
    assert_eq!(violated(&no_lost_ack(&h, &[dump("a\n")], 3)), [("lost", 1)]);
}

#[test]
fn at_a_key_lies_the_last_acknowledged_write_or_one_that_overlaps_it_or_comes_later() {
    let keyed = BuildOptions { format: "n".into(), real_time: true, lift: Lift::Always, ..BuildOptions::default() };
    let h = history_with(
        "invoke 0 write [:x 1] / ok 0 / invoke 0 write [:x 2] / invoke 1 write [:x 3] / ok 1 / ok 0 / invoke 0 write [:x 4] / info 0",
        keyed,
    )
    .unwrap();
    for fine in ["{:x 2}", "{:x 3}", "{:x 4}", "{\"x\": 4}"] {
        let found = no_lost_ack(&h, &[dump(fine)], 3);
        assert!(found.is_valid(), "{fine} {found:?}");
    }
    for lost in ["{:x 1}", "{:x nil}", "{:y 1}", "{:x 17}"] {
        let found = no_lost_ack(&h, &[dump(lost)], 3);
        assert_eq!(found.count("lost"), 1, "{lost} {found:?}");
        assert!(found.is_invalid());
    }
    assert!(no_lost_ack(&h, &[dump("{:x 2, :y 0}")], 3).is_valid(), "nobody wrote :y, which is as it was");
    assert!(no_lost_ack(&h, &[dump("{:x 1}"), dump("{:x 3}")], 3).is_valid(), "one replica has it");
    assert!(no_lost_ack(&h, &[dump("[1 2]")], 3).why().is_some());
}

#[test]
fn appends_within_transactions_are_kept() {
    let fine = "invoke 0 txn [[:append :x 1] [:append :y 2]] / ok 0 / invoke 1 txn [[:r :x nil] [:r :y nil]] / ok 1 txn [[:r :x [1]] [:r :y [2]]]";
    let lost = fine.replace("[:r :y [2]]", "[:r :y []]");
    assert!(no_lost_ack(&of(fine), &[], 3).is_valid());
    let found = no_lost_ack(&of(&lost), &[], 3);
    assert_eq!(violated(&found), [("lost", 1)]);
    assert!(shows(&found, "lost", 0) && shows(&found, "lost", 2));
    assert!(no_lost_ack(&of(fine), &[dump("{:x [1], :y [2]}")], 3).is_valid());
    assert_eq!(violated(&no_lost_ack(&of(fine), &[dump("{:x [1], :y []}")], 3)), [("lost", 1)]);
    assert_eq!(violated(&no_lost_ack(&of(fine), &[dump("{:x [1]}")], 3)), [("lost", 1)]);
    assert_eq!(violated(&no_lost_ack(&of(fine), &[dump("{:x [1 9], :y [2]}")], 3)), [("unexpected", 1)]);
}

#[test]
fn registers_without_a_dump_are_refused_with_the_reason() {
    let found = no_lost_ack(&of("invoke 0 write 1 / ok 0 / invoke 1 read / ok 1 read 1"), &[], 3);
    assert!(found.why().unwrap().to_string().contains("--final"), "{found:?}");
}

// Broadcasts.

#[test]
fn a_message_that_one_node_never_shows_did_not_reach_it() {
    let h = "invoke 0 broadcast 1 / ok 0 / invoke 0 read / ok 0 read [1] / invoke 1 read / ok 1 read []";
    let found = broadcast(&of(h), true, 3);
    assert_eq!(violated(&found), [("unreached", 1)]);
    assert!(shows(&found, "unreached", 0) && shows(&found, "unreached", 4));
    let late = format!("{h} / invoke 1 read / ok 1 read [1]");
    assert!(broadcast(&of(&late), true, 3).is_valid());
    let forgotten = format!("{late} / invoke 0 read / ok 0 read []");
    assert_eq!(violated(&broadcast(&of(&forgotten), true, 3)), [("lost", 1)]);
}

#[test]
fn the_time_to_converge_ends_with_the_read_by_which_the_last_node_shows_a_message() {
    let h = "invoke 0 broadcast 1 @0 / ok 0 @10 / invoke 0 read @20 / ok 0 read [1] @30 / invoke 1 read @40 / ok 1 read [1] @50";
    let found = broadcast(&of(h), true, 3);
    let Some(Fact::Quantiles(q)) = found.fact_of("time to converge") else { panic!("{found:?}") };
    assert_eq!((q.count, q.at[4]), (1, (1000, 40)));
}

#[test]
fn messages_are_judged_in_their_own_key() {
    let of = |text: &str| {
        let options = BuildOptions { lift: Lift::Always, real_time: true, ..BuildOptions::default() };
        history_with(text, options).unwrap()
    };
    let sent = "invoke 0 broadcast [:x 1] / ok 0 / invoke 0 broadcast [:y 2] / ok 0";
    let fine =
        format!("{sent} / invoke 1 read [:x nil] / ok 1 read [:x [1]] / invoke 1 read [:y nil] / ok 1 read [:y [2]]");
    assert!(broadcast(&of(&fine), true, 3).is_valid());
    let sent = "invoke 0 broadcast [:x 1] / ok 0 / invoke 0 broadcast [:y 1] / ok 0";
    let bad =
        format!("{sent} / invoke 1 read [:y nil] / ok 1 read [:y []] / invoke 1 read [:x nil] / ok 1 read [:x [1]]");
    assert_eq!(violated(&broadcast(&of(&bad), true, 3)), [("unreached", 1)]);
}

#[test]
fn unasked_a_message_is_unreached_only_by_a_read_marked_as_final() {
    let of = |marked: &str| {
        let mut text = String::new();
        for (f, sent, got, extra) in [("broadcast", "1", "1", ""), ("read", "nil", "[]", marked)] {
            for (kind, value) in [("invoke", sent), ("ok", got)] {
                text += &format!("{{:process 0, :type :{kind}, :f :{f}, :value {value}{extra}}}\n");
            }
        }
        open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap()
    };
    let (plain, marked) = (of(""), of(", :final? true"));
    for (h, named) in [(&plain, true), (&marked, true), (&marked, false)] {
        assert_eq!(violated(&broadcast(h, named, 3)), [("unreached", 1)]);
    }
    let found = broadcast(&plain, false, 3);
    assert!(!found.is_invalid() && found.why().unwrap().to_string().contains("rest is not shown"), "{found:?}");
}

#[test]
fn where_something_may_be_taken_away_neither_sets_that_grow_nor_broadcasts_are_decided() {
    let h = |add: &str, f: &str| {
        format!(
            "invoke 0 {add} 1 / ok 0 / invoke 0 {add} 2 / ok 0 / invoke 0 {f} 1 / ok 0 / invoke 1 read / ok 1 read [1 2]"
        )
    };
    for f in ["remove", "delete"] {
        for found in [full(&h("add", f)), broadcast(&of(&h("broadcast", f)), true, 3)] {
            assert!(!found.is_invalid(), "{found:?}");
            assert!(found.why().unwrap().to_string().contains(&format!("op 4 ({f})")), "{found:?}");
        }
    }
}

#[test]
fn a_node_whose_reads_overlap_lost_no_message() {
    let line = |process: u64, kind: &str, f: &str, value: &str| {
        format!("{{:process {process}, :type :{kind}, :f :{f}, :value {value}, :node \"n1\"}}\n")
    };
    let text = [
        line(0, "invoke", "broadcast", "1"),
        line(0, "ok", "broadcast", "1"),
        line(1, "invoke", "read", "nil"),
        line(2, "invoke", "read", "nil"),
        line(2, "ok", "read", "[]"),
        line(1, "ok", "read", "[1]"),
    ];
    let h = open_bytes(text.concat().as_bytes(), &OpenOptions::default()).unwrap();
    assert_eq!(violated(&broadcast(&h, true, 3)), []);
    let later = [line(2, "invoke", "read", "nil"), line(2, "ok", "read", "[]")];
    let h = open_bytes((text.concat() + &later.concat()).as_bytes(), &OpenOptions::default()).unwrap();
    assert_eq!(violated(&broadcast(&h, true, 3)), [("lost", 1)]);
}

// Random histories.

/// A set that may be read while it is written, its elements integers near each other, or not.
fn run(random: &mut Random) -> Vec<Event> {
    let mix = mix(random);
    let mut next = [0_i64, -5, 1 << 40][random.below(3)];
    let step = [1, 1, 1 << 20][random.below(3)];
    let mut added: Vec<String> = Vec::new();
    let retried = random.chance(30);
    let choose = |random: &mut Random| {
        if random.chance(35) {
            return ("read", String::new());
        }
        if !added.is_empty() && retried && random.chance(20) {
            return ("add", added[random.below(added.len())].clone());
        }
        next += step;
        let element = if random.chance(10) { format!(":k{next}") } else { next.to_string() };
        added.push(element.clone());
        ("add", element)
    };
    let mut state: Vec<String> = Vec::new();
    let read = |state: &[String]| format!("[{}]", state.join(" "));
    let apply = |random: &mut Random, f: &'static str, input: &str| {
        if f == "read" {
            // In any order.
            let mut shown = state.clone();
            if random.chance(30) {
                shown.reverse();
            }
            return read(&shown);
        }
        if !state.iter().any(|e| e == input) {
            state.push(input.into());
        }
        input.into()
    };
    let mut events = simulate(random, mix, &[], choose, apply);
    if random.chance(80) {
        let mut last: BTreeSet<String> = BTreeSet::new();
        // What every read of an atomic set may still show: all it ever showed, and all that was acknowledged.
        for event in events.iter().filter(|e| e.kind == "ok") {
            match event.f {
                "add" => drop(last.insert(event.value.clone())),
                _ => last.extend(elements(&event.value)),
            }
        }
        let shown: Vec<String> = last.into_iter().collect();
        append(&mut events, "read", "", &read(&shown));
    }
    events
}

fn elements(list: &str) -> Vec<String> {
    list.trim_matches(['[', ']']).split_whitespace().map(str::to_string).collect()
}

#[test]
fn atomic_sets_are_never_accused() {
    let mut decided = 0;
    seeds(2000, |random| {
        let events = run(random);
        let h = built(&events);
        for found in [set_full(&h, true, 1), set(&h, 1), no_lost_ack(&h, &[], 1)] {
            assert_eq!(violated(&found), [], "{}\n{found:?}", text(&events));
            decided += u64::from(found.is_valid());
        }
    });
    assert!(decided > 3000, "{decided}");
}

/// A read of the events, with what it showed: where it begins and ends, and its elements.
struct Shown {
    invoke: u64,
    complete: u64,
    set: Vec<String>,
}

/// What a naive reading of the definitions says: every element against every read.
#[derive(Debug, Default, PartialEq)]
struct Naive {
    full: BTreeMap<&'static str, u64>,
    acked: BTreeMap<&'static str, u64>,
    last: BTreeMap<&'static str, u64>,
}

fn naive(h: &History) -> Naive {
    let mut out = Naive::default();
    let word = |v| {
        let mut text = String::new();
        h.write_value(v, &mut text);
        text
    };
    let mut reads: Vec<Shown> = Vec::new();
    let mut all: BTreeMap<String, Vec<(u64, Option<u64>, Ended)>> = BTreeMap::new();
    for op in h.clients() {
        if op.f() == Some("add") {
            all.entry(word(op.input())).or_default().push((op.index(), op.complete_index(), op.status()));
        } else if op.status() == Ended::Ok {
            let set = elements(&word(op.output()));
            reads.push(Shown { invoke: op.index(), complete: op.complete_index().unwrap(), set });
        }
    }
    for read in &reads {
        for element in &read.set {
            all.entry(element.clone()).or_default();
        }
    }
    // Each read that none followed may have been the last.
    let followed = |r: &Shown| reads.iter().any(|other| other.invoke > r.complete);
    let ends: Vec<&Shown> = reads.iter().filter(|r| !followed(r)).collect();
    let mut doubled = BTreeSet::new();
    for read in &reads {
        for e in &read.set {
            if read.set.iter().filter(|x| *x == e).count() > 1 && doubled.insert(e.clone()) {
                *out.full.entry("duplicated").or_default() += 1;
            }
        }
    }
    for (element, attempts) in &all {
        let shows = |r: &&Shown| r.set.contains(element);
        let ack = attempts.iter().filter(|a| a.2 == Ended::Ok).filter_map(|a| a.1).min();
        let first_live = attempts.iter().filter(|a| a.2 != Ended::Fail).map(|a| a.0).min();
        let first_failed = attempts.iter().filter(|a| a.2 == Ended::Fail).map(|a| a.0).min();
        let foreign = |seen: u64| match (first_live, first_failed) {
            (Some(live), _) if live < seen => None,
            (_, Some(failed)) if failed < seen => Some("aborted-effect"),
            _ => Some("unexpected"),
        };
        let first_seen = reads.iter().filter(shows).map(|r| r.complete).min();
        if let Some(kind) = first_seen.and_then(foreign) {
            *out.full.entry(kind).or_default() += 1;
            *out.acked.entry(kind).or_default() += 1;
        }
        match ends.iter().copied().filter(shows).map(|r| r.complete).min() {
            Some(seen) => foreign(seen).into_iter().for_each(|kind| *out.last.entry(kind).or_default() += 1),
            None if ends.iter().any(|r| ack.is_some_and(|ack| ack < r.invoke)) => {
                *out.last.entry("lost").or_default() += 1;
            }
            None => {}
        }
        if first_live.is_none() {
            continue;
        }
        let known = ack.unwrap_or(u64::MAX).min(first_seen.unwrap_or(u64::MAX));
        let last_present = reads.iter().filter(shows).map(|r| r.invoke).max();
        let last_absent = reads.iter().filter(|r| !shows(r)).map(|r| r.invoke).max();
        let over = |a: u64| reads.iter().filter(shows).all(|r| r.complete < a);
        match (last_present, last_absent) {
            (_, Some(a)) if over(a) && a > known => *out.full.entry("lost").or_default() += 1,
            (Some(_), Some(a)) if a > known => *out.full.entry("stale").or_default() += 1,
            _ => {}
        }
        let gone = |r: &Shown| {
            let after_all = reads.iter().filter(shows).all(|s| s.complete < r.invoke);
            !r.set.contains(element) && after_all && ack.is_some_and(|ack| ack < r.invoke)
        };
        if reads.iter().any(gone) {
            *out.acked.entry("lost").or_default() += 1;
        }
    }
    out
}

/// Spoils some reads: elements gone, elements of others, elements twice.
fn spoil(random: &mut Random, events: &mut [Event]) {
    let known: Vec<String> = events.iter().filter(|e| e.f == "add").map(|e| e.value.clone()).collect();
    for event in events.iter_mut().filter(|e| e.f == "read" && e.kind == "ok") {
        let mut set = elements(&event.value);
        if random.chance(40) && !set.is_empty() {
            set.remove(random.below(set.len()));
        }
        if random.chance(20) && !known.is_empty() {
            set.push(known[random.below(known.len())].clone());
        }
        if random.chance(10) {
            set.push("999".into());
        }
        event.value = format!("[{}]", set.join(" "));
    }
}

#[test]
fn what_an_overlapping_read_shows_at_the_end_is_not_lost() {
    let h = |shown: &str| {
        format!("invoke 0 add 1 / ok 0 / invoke 1 read / invoke 2 read / ok 1 read {shown} / ok 2 read []")
    };
    assert_eq!(violated(&set(&of(&h("[1]")), 3)), [], "that read may have been the last");
    assert_eq!(violated(&set(&of(&h("[]")), 3)), [("lost", 1)]);
    let after = format!("{} / invoke 1 read / ok 1 read []", h("[1]"));
    assert_eq!(violated(&set(&of(&after), 3)), [("lost", 1)], "both came before");
}

#[test]
fn the_checkers_agree_with_a_naive_reading_of_the_definitions() {
    let mut violations = 0;
    seeds(2000, |random| {
        let mut events = run(random);
        spoil(random, &mut events);
        let h = built(&events);
        let expected = naive(&h);
        let (full, last, acked) = (set_full(&h, true, 1), set(&h, 1), no_lost_ack(&h, &[], 1));
        let map = |found: &Findings, kinds: &[&'static str]| {
            found.violations().filter(|(k, _)| kinds.contains(k)).map(|(k, v)| (k, v.count)).collect::<BTreeMap<_, _>>()
        };
        let all = ["lost", "stale", "unexpected", "aborted-effect", "duplicated"];
        assert_eq!(map(&full, &all), expected.full, "set-full\n{}\n{full:?}", text(&events));
        assert_eq!(map(&last, &all[..4]), expected.last, "set\n{}\n{last:?}", text(&events));
        assert_eq!(map(&acked, &all[..4]), expected.acked, "no-lost-ack\n{}\n{acked:?}", text(&events));
        violations += expected.full.values().sum::<u64>();
        let replayed =
            [(replay(&h, SetFull::incremental(true, 1)), &full), (replay(&h, SetFull::incremental_last(1)), &last)];
        for (incremental, batch) in replayed {
            assert_eq!(violated(&incremental), violated(batch), "{}", text(&events));
            assert_eq!(incremental.facts(), batch.facts(), "{}", text(&events));
            assert_eq!(incremental.coverage.ops, batch.coverage.ops, "{}", text(&events));
        }
    });
    assert!(violations > 2000, "{violations}");
}

/// An element that the last read shows, was acknowledged before that read, and stands in other reads or not; with the event of its add.
fn victim(events: &[Event]) -> Option<(usize, String)> {
    let last = events.last().filter(|e| e.f == "read" && e.process == 1000)?;
    let shown = elements(&last.value);
    let mut ok = events.iter().filter(|e| e.f == "add" && e.kind == "ok" && shown.contains(&e.value));
    let element = ok.next()?.value.clone();
    let at = events.iter().position(|e| e.kind == "invoke" && e.value == element)?;
    let attempts = events.iter().filter(|e| e.kind == "invoke" && e.value == element).count();
    (attempts == 1).then_some((at, element))
}

#[test]
fn every_mutation_is_flagged_by_its_name_with_its_operation() {
    let mut tried = BTreeMap::<&str, u64>::new();
    seeds(400, |random| {
        let events = run(random);
        let Some((add, element)) = victim(&events) else { return };
        let last = events.len() - 2;
        let all =
            [set_full as fn(&History, bool, usize) -> Findings, |h, _, n| set(h, n), |h, _, n| no_lost_ack(h, &[], n)];
        let mut check = |kind: &'static str, event: usize, events: &[Event]| {
            *tried.entry(kind).or_default() += 1;
            for checker in all {
                let found = checker(&built(events), false, ALL);
                assert!(shows(&found, kind, event), "{kind} {event}\n{}\n{found:?}", text(events));
            }
        };
        let mut lost = events.clone();
        lost[last + 1].value = format!(
            "[{}]",
            elements(&events[last + 1].value).into_iter().filter(|e| *e != element).collect::<Vec<_>>().join(" ")
        );
        check("lost", add, &lost);
        let mut unexpected = events.clone();
        unexpected[last + 1].value = events[last + 1].value.replace('[', "[77777777 ");
        check("unexpected", last, &unexpected);
        if let Some(failed) = events.iter().position(|e| e.kind == "fail" && e.f == "add") {
            let element = events[failed].value.clone();
            let live = events.iter().filter(|e| e.kind == "invoke" && e.value == element).count() > 1;
            if !live {
                let mut aborted = events.clone();
                aborted[last + 1].value = events[last + 1].value.replace('[', &format!("[{element} "));
                check("aborted-effect", last, &aborted);
            }
        }
        let mut doubled = events.clone();
        doubled[last + 1].value = events[last + 1].value.replace('[', &format!("[{element} "));
        for found in [set_full(&built(&doubled), false, ALL), set(&built(&doubled), ALL)] {
            assert!(shows(&found, "duplicated", last), "{}\n{found:?}", text(&doubled));
        }
        let mut stale = events.clone();
        let (at, process) = (events.len() - 2, 2000);
        stale.insert(at, Event { kind: "invoke", process, f: "read", value: String::new() });
        stale.insert(at + 1, Event { kind: "ok", process, f: "read", value: lost[last + 1].value.clone() });
        let found = set_full(&built(&stale), true, ALL);
        assert!(shows(&found, "stale", at) && shows(&found, "stale", add), "{}\n{found:?}", text(&stale));
    });
    assert!(tried.len() == 3 && tried.values().all(|&n| n > 50), "{tried:?}");
}

/// Nodes that gossip whenever, and are read when all is said.
#[test]
fn nodes_that_converge_are_never_accused_and_a_node_that_misses_a_message_always() {
    seeds(1000, |random| {
        let nodes = 1 + random.below(4);
        let mut known: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        let (mut lines, mut sent) = (Vec::new(), Vec::new());
        for message in 0..random.below(20) {
            let to = random.below(nodes);
            known[to].push(message);
            sent.push(lines.len());
            lines.push(format!("invoke {to} broadcast {message} / ok {to}"));
            let reads = random.below(nodes);
            lines.push(format!("invoke {reads} read / ok {reads} read {:?}", known[reads]).replace(',', ""));
            let (a, b) = (random.below(nodes), random.below(nodes));
            let from = known[a].clone();
            from.into_iter().for_each(|m| {
                if !known[b].contains(&m) {
                    known[b].push(m)
                }
            });
        }
        if sent.is_empty() {
            return;
        }
        let mut all: Vec<usize> = (0..sent.len()).collect();
        let end = |node: usize, all: &[usize]| format!("invoke {node} read / ok {node} read {all:?}").replace(',', "");
        let mut fine = lines.clone();
        (0..nodes).for_each(|node| fine.push(end(node, &all)));
        let found = broadcast(&of(&fine.join("\n")), true, 3);
        assert!(found.is_valid(), "{fine:?} {found:?}");
        let gone = all.remove(random.below(all.len()));
        let node = random.below(nodes);
        let mut bad = lines;
        (0..nodes).filter(|n| *n != node).for_each(|n| bad.push(end(n, &(0..sent.len()).collect::<Vec<_>>())));
        bad.push(end(node, &all));
        let found = broadcast(&of(&bad.join("\n")), true, ALL);
        let kind = if known[node].contains(&gone) { ["lost", "unreached"] } else { ["unreached", "unreached"] };
        assert!(kind.iter().any(|k| shows(&found, k, sent[gone] * 2)), "{bad:?} {found:?}");
        assert_eq!(found.violations().map(|(_, k)| k.count).sum::<u64>(), 1, "{bad:?} {found:?}");
        let replayed = replay(&of(&bad.join("\n")), incremental_broadcast(true, ALL));
        assert_eq!(violated(&replayed), violated(&found));
    });
}
