//! Queues and ids.

use std::collections::BTreeMap;

use elench_formats::history::Status as Ended;

use super::*;
use crate::delivery::*;
use crate::findings::replay;

fn total(text: &str) -> Findings {
    total_queue(&of(text), &QueueOptions { named: true, ..QueueOptions::default() }, 100)
}

fn promised(text: &str, guarantee: Guarantee) -> Findings {
    total_queue(&of(text), &QueueOptions { guarantee: Some(guarantee), named: true, fifo: false }, 100)
}

#[test]
fn a_failed_enqueue_that_is_dequeued_is_an_aborted_effect_and_not_recovered() {
    let h = "invoke 0 enqueue 1 / fail 0 / invoke 1 dequeue / ok 1 dequeue 1";
    for found in [total(h), queue(&of(h), &QueueOptions::default(), 3)] {
        assert_eq!(violated(&found), [("aborted-effect", 1)]);
        assert_eq!(found.count("recovered"), 0);
        assert!(shows(&found, "aborted-effect", 0) && shows(&found, "aborted-effect", 2));
    }
}

#[test]
fn a_crashed_drain_is_a_partial_drain() {
    let gave = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 drain / info 1 drain [1] / invoke 2 drain / ok 2 drain [2]";
    assert!(total(gave).is_valid());
    let silent = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 drain / info 1 drain nil / invoke 2 drain / ok 2 drain [2]";
    let found = total(silent);
    assert!(!found.is_invalid() && found.why().is_some(), "{found:?}");
    assert_eq!(found.count("missing"), 1);
    assert_eq!(violated(&promised(silent, Guarantee::AtLeastOnce)), [("lost", 1)]);
}

#[test]
fn nothing_enqueued_or_dequeued_is_no_evidence() {
    for h in [
        "invoke 0 read / ok 0 read 1",
        "invoke 0 enqueue 1 / info 0",
        "invoke 0 enqueue 1 / ok 0",
        "invoke 0 dequeue / fail 0",
    ] {
        for found in [total(h), queue(&of(h), &QueueOptions::default(), 3)] {
            assert!(!found.is_invalid() && found.why().is_some(), "{h} {found:?}");
        }
    }
}

#[test]
fn a_message_that_a_drain_does_not_find_is_lost_and_without_a_drain_only_where_it_is_asked_for() {
    let drained = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 drain / ok 1 drain [2]";
    assert_eq!(violated(&total(drained)), [("lost", 1)]);
    assert!(shows(&total(drained), "lost", 0));
    let dequeued = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 dequeue / ok 1 dequeue 2";
    assert_eq!(violated(&total(dequeued)), [("lost", 1)]);
    let unasked = total_queue(&of(dequeued), &QueueOptions::default(), 3);
    assert!(!unasked.is_invalid() && unasked.why().is_some());
    let crashed = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 drain / info 1 drain [2]";
    assert!(!total(crashed).is_invalid() && total(crashed).why().is_some(), "it did not empty the queue");
    let late = "invoke 1 drain / invoke 0 enqueue 1 / ok 0 / ok 1 drain [] / invoke 0 enqueue 2 / info 0 / invoke 2 dequeue / ok 2 dequeue 2";
    assert_eq!(violated(&total(late)), [], "it was acknowledged after the drain began");
}

#[test]
fn a_crashed_dequeue_may_have_taken_one_message_and_no_more() {
    let h = |n: usize| {
        let enqueued: String = (0..n).map(|i| format!("invoke 0 enqueue {i} / ok 0 / ")).collect();
        format!("{enqueued}invoke 0 enqueue 100 / ok 0 / invoke 1 dequeue / info 1 / invoke 2 drain / ok 2 drain [100]")
    };
    let unasked = |n: usize| total_queue(&of(&h(n)), &QueueOptions::default(), 100);
    assert!(unasked(0).is_valid());
    assert_eq!(violated(&unasked(1)), []);
    assert!(unasked(1).why().is_some());
    assert_eq!(violated(&unasked(2)), [("lost", 2)]);
    // Jepsen's total-queue calls this one lost. A dequeue of unknown outcome may have taken it, and accuses nobody.
    assert_eq!(violated(&total(&h(1))), []);
    assert!(total(&h(1)).why().is_some());
    assert_eq!(violated(&total(&h(2))), [("lost", 2)]);
    assert_eq!(violated(&promised(&h(1), Guarantee::ExactlyOnce)), [("lost", 1)]);
    assert!(promised(&h(2), Guarantee::AtMostOnce).is_valid());
}

#[test]
fn a_duplicate_breaks_exactly_once_and_at_most_once_and_is_counted_otherwise() {
    let h = "invoke 0 enqueue 1 / ok 0 / invoke 1 dequeue / ok 1 dequeue 1 / invoke 2 dequeue / ok 2 dequeue 1";
    assert!(total(h).is_valid());
    assert_eq!(total(h).count("duplicate"), 1);
    assert!(promised(h, Guarantee::AtLeastOnce).is_valid());
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtMostOnce] {
        assert_eq!(violated(&promised(h, guarantee)), [("duplicate", 1)]);
        assert!(shows(&promised(h, guarantee), "duplicate", 4));
    }
    let twice = format!("invoke 0 enqueue 1 / info 0 / {h}");
    assert!(
        promised(
            &twice
                .replace("enqueue 1 / ok 0", "enqueue 1 / ok 3")
                .replace("invoke 0 enqueue 1 / ok 3", "invoke 3 enqueue 1 / ok 3"),
            Guarantee::ExactlyOnce
        )
        .is_valid()
    );
}

#[test]
fn nothing_is_dequeued_before_it_is_enqueued() {
    let h = "invoke 1 dequeue / ok 1 dequeue 1 / invoke 0 enqueue 1 / ok 0";
    assert_eq!(violated(&total(h)), [("dequeued-before-enqueued", 1)]);
    let meanwhile = "invoke 1 dequeue / invoke 0 enqueue 1 / ok 1 dequeue 1 / ok 0";
    assert!(total(meanwhile).is_valid());
}

#[test]
fn a_message_that_overtakes_another_breaks_the_order_of_a_fifo_queue() {
    let fifo = |text: &str| queue(&of(text), &QueueOptions { fifo: true, ..QueueOptions::default() }, 100);
    let both = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 dequeue / ok 1 dequeue 2 / invoke 1 dequeue / ok 1 dequeue 1";
    assert_eq!(violated(&fifo(both)), [("reorder", 1)]);
    assert!(shows(&fifo(both), "reorder", 0) && shows(&fifo(both), "reorder", 2));
    assert!(queue(&of(both), &QueueOptions::default(), 3).is_valid());
    let stays = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 1 dequeue / ok 1 dequeue 2";
    assert_eq!(violated(&fifo(stays)), [("reorder", 1)]);
    assert!(fifo(&format!("invoke 3 dequeue / info 3 / {stays}")).is_valid(), "a crashed client may have taken it");
    assert_eq!(violated(&fifo(&format!("{stays} / invoke 3 dequeue / info 3"))), [("reorder", 1)], "it began too late");
    let two = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 0 enqueue 3 / ok 0 / invoke 1 dequeue / ok 1 dequeue 3";
    let crashed =
        |n: usize| (10..10 + n).map(|p| format!("invoke {p} dequeue / info {p} / ")).collect::<String>() + two;
    assert_eq!(violated(&fifo(&crashed(1))), [("reorder", 1)], "one crashed client took one message");
    assert!(fifo(&crashed(2)).is_valid());
    let silent = format!("invoke 3 drain / info 3 drain nil / {two}");
    assert!(fifo(&silent).is_valid(), "it may have taken any number");
    let at_once = "invoke 0 enqueue 1 / invoke 2 enqueue 2 / ok 0 / ok 2 / invoke 1 dequeue / ok 1 dequeue 2 / invoke 1 dequeue / ok 1 dequeue 1";
    assert!(fifo(at_once).is_valid());
}

#[test]
fn messages_inside_micro_operations_are_not_taken_for_messages() {
    let sends = "invoke 0 send [[:send 0 1]] / ok 0 send [[:send 0 [0 1]]]";
    let polls = "invoke 1 poll [[:poll]] / ok 1 poll [[:poll {0 [[0 1]]}]]";
    for h in [format!("{sends} / {polls}"), sends.to_string(), polls.to_string()] {
        let (h, options) = (of(&h), QueueOptions { named: true, fifo: true, ..QueueOptions::default() });
        for found in [
            queue(&h, &options, 3),
            total_queue(&h, &options, 3),
            replay(&h, Queues::incremental_total(options, 3)),
            prefix(&h, 1, 3),
            no_lost_ack(&h, &[], 3),
            exactly_once(&h, &"value".parse().unwrap(), Effects::Consumers, None, 3),
        ] {
            assert_eq!(violated(&found), []);
            assert!(found.why().unwrap().to_string().contains("--checker log"), "{found:?}");
        }
    }
}

#[test]
fn a_message_comes_out_a_second_time_only_once_its_second_enqueue_has_begun() {
    let early = "invoke 0 enqueue 1 / ok 0 / invoke 1 dequeue / ok 1 dequeue 1 / invoke 1 dequeue / ok 1 dequeue 1 / invoke 0 enqueue 1 / ok 0";
    let found = queue(&of(early), &QueueOptions::default(), 3);
    assert_eq!(violated(&found), [("duplicate", 1)]);
    assert!(shows(&found, "duplicate", 4));
    assert_eq!(violated(&promised(early, Guarantee::ExactlyOnce)), [("duplicate", 1)], "no dequeue looked after it");
    let emptied = format!("{early} / invoke 0 drain / ok 0 drain []");
    assert_eq!(violated(&total(&emptied)), [("lost", 1)], "the second enqueue was never delivered");
    assert!(shows(&total(&emptied), "lost", 6));
    let refused = format!("invoke 2 enqueue 1 / fail 2 / {early}");
    assert_eq!(violated(&queue(&of(&refused), &QueueOptions::default(), 3)), [("duplicate", 1)]);
    let open = "invoke 0 enqueue 1 / ok 0 / invoke 1 dequeue / ok 1 dequeue 1 / invoke 1 dequeue / invoke 0 enqueue 1 / ok 1 dequeue 1 / ok 0";
    assert!(queue(&of(open), &QueueOptions::default(), 3).is_valid());
}

#[test]
fn a_loss_shows_though_the_message_is_enqueued_again_after_the_drain() {
    let h = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 1 / ok 0 / invoke 0 drain / ok 0 drain [1] / invoke 0 enqueue 1 / ok 0";
    assert_eq!(violated(&total(h)), [("lost", 1)]);
    assert!(shows(&total(h), "lost", 2));
    assert!(total(&h.replace("drain [1]", "drain [1 1]")).is_valid());
    assert!(total(&h.replacen("enqueue 1 / ok 0", "enqueue 1 / fail 0", 1)).is_valid());
}

#[test]
fn the_messages_of_a_drain_come_out_in_its_order() {
    let h = |drained: &str| {
        format!(
            "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 0 enqueue 3 / ok 0 / invoke 1 drain / ok 1 drain {drained}"
        )
    };
    let fifo = |drained: &str| queue(&of(&h(drained)), &QueueOptions { fifo: true, ..QueueOptions::default() }, 9);
    assert_eq!(violated(&fifo("[2 1 3]")), [("reorder", 1)]);
    assert!([0, 2, 6].into_iter().all(|op| shows(&fifo("[2 1 3]"), "reorder", op)));
    assert_eq!(violated(&fifo("[3 1 2]")), [("reorder", 1)]);
    assert_eq!(violated(&fifo("[3 2 1]")), [("reorder", 2)]);
    for right in ["[1 2 3]", "#{3 1 2}"] {
        assert!(fifo(right).is_valid(), "{right}");
    }
    assert!(queue(&of(&h("[2 1 3]")), &QueueOptions::default(), 9).is_valid());
}

// Random histories.

fn run(random: &mut Random, repeats: bool) -> Vec<Event> {
    let mix = mix(random);
    let mut next = 0;
    let choose = |random: &mut Random| {
        if random.chance(45) {
            return ("dequeue", String::new());
        }
        next += 1;
        ("enqueue", if repeats { random.below(6).to_string() } else { next.to_string() })
    };
    let mut queue: Vec<String> = Vec::new();
    let apply = |_: &mut Random, f: &'static str, input: &str| match f {
        "enqueue" => {
            queue.push(input.into());
            input.into()
        }
        _ if queue.is_empty() => "nil".into(),
        _ => queue.remove(0),
    };
    let mut events = simulate(random, mix, &[], choose, apply);
    append(&mut events, "drain", "", &format!("[{}]", queue.join(" ")));
    events
}

#[test]
fn atomic_fifo_queues_are_never_accused() {
    let mut decided = 0;
    seeds(2000, |random| {
        let repeats = random.chance(40);
        let events = run(random, repeats);
        let h = built(&events);
        let options = QueueOptions { guarantee: None, named: false, fifo: true };
        for found in [total_queue(&h, &options, 1), queue(&h, &options, 1), no_lost_ack(&h, &[], 1)] {
            assert_eq!(violated(&found), [], "{}\n{found:?}", text(&events));
            decided += u64::from(found.is_valid());
        }
    });
    assert!(decided > 2000, "{decided}");
}

#[derive(Default)]
struct Message {
    tries: Vec<u64>,
    failed: Vec<u64>,
    /// Beginning and end of those acknowledged.
    acks: Vec<(u64, u64)>,
    outs: Vec<(u64, u64)>,
}

fn messages(h: &History) -> (BTreeMap<String, Message>, Vec<u64>, Option<u64>, Vec<String>) {
    let word = |v| {
        let mut text = String::new();
        h.write_value(v, &mut text);
        text
    };
    let (mut all, mut maybe, mut drained) = (BTreeMap::<String, Message>::new(), Vec::new(), None);
    let mut given = Vec::new();
    for op in h.clients() {
        let (begin, end) = (op.index(), op.complete_index().unwrap_or(u64::MAX));
        match (op.f(), op.status()) {
            (Some("enqueue"), status) => {
                let message = all.entry(word(op.input())).or_default();
                if status == Ended::Fail {
                    message.failed.push(begin);
                } else {
                    message.tries.push(begin);
                }
                if status == Ended::Ok {
                    message.acks.push((begin, end));
                }
            }
            (Some("dequeue"), Ended::Ok) if !op.output().is_nil() => {
                all.entry(word(op.output())).or_default().outs.push((begin, end))
            }
            (Some("dequeue"), Ended::Info | Ended::Pending) => maybe.push(begin),
            (Some("drain"), _) => {
                drained = Some(begin);
                for e in word(op.output()).trim_matches(['[', ']']).split_whitespace() {
                    all.entry(e.into()).or_default().outs.push((begin, end));
                    given.push(e.to_string());
                }
            }
            _ => {}
        }
    }
    (all, maybe, drained, given)
}

/// Every message against the definitions, and every two of them.
fn naive(h: &History) -> BTreeMap<&'static str, u64> {
    let (all, maybe, drained, given) = messages(h);
    let mut out = BTreeMap::new();
    let mut lost = 0;
    for m in all.values() {
        let first_try = m.tries.iter().min().copied().unwrap_or(u64::MAX);
        let first_failed = m.failed.iter().min().copied().unwrap_or(u64::MAX);
        if let Some(out_at) = m.outs.iter().map(|o| o.1).min().filter(|&o| o < first_try) {
            let kind = match () {
                () if first_failed < out_at => "aborted-effect",
                () if m.tries.is_empty() => "unexpected",
                () => "dequeued-before-enqueued",
            };
            *out.entry(kind).or_default() += 1;
        }
        let early = |o: &(u64, u64)| {
            let outs = m.outs.iter().filter(|other| other.1 <= o.1).count();
            outs > m.tries.iter().filter(|&&t| t < o.1).count()
        };
        let told = m.outs.iter().any(|o| o.1 < first_try) && m.outs.len() <= m.tries.len();
        if !m.tries.is_empty() && !told && m.outs.iter().any(early) {
            *out.entry("duplicate").or_default() += 1;
        }
        // Each enqueue, the last first, takes the first delivery left that ended after it began.
        let mut left: Vec<u64> = m.outs.iter().map(|o| o.1).collect();
        left.sort_unstable();
        let mut due: Vec<u64> = m.acks.iter().filter(|a| drained.is_some_and(|d| a.1 < d)).map(|a| a.0).collect();
        due.sort_unstable();
        for begun in due.into_iter().rev() {
            match left.iter().position(|&at| at > begun) {
                Some(i) => drop(left.remove(i)),
                None => lost += 1,
            }
        }
    }
    if lost > maybe.len() as u64 {
        out.insert("lost", lost);
    }
    let single = |m: &&Message| m.tries.len() == 1 && m.outs.len() <= 1;
    let place = |name: &String| given.iter().position(|other| other == name);
    for (b_name, b) in all.iter().filter(|(_, b)| single(b) && b.outs.len() == 1) {
        let overtakes = all.iter().filter(|(_, a)| single(a)).any(|(a_name, a)| {
            let in_one = || matches!((place(a_name), place(b_name)), (Some(a), Some(b)) if b < a);
            a.acks.first().is_some_and(|ack| ack.1 < b.tries[0])
                && match a.outs.first() {
                    Some(out) => b.outs[0].1 < out.0 || in_one(),
                    None => maybe.is_empty(),
                }
        });
        if overtakes {
            *out.entry("reorder").or_default() += 1;
        }
    }
    // Each client that crashed explains a message that was overtaken and never came out: as many as an assignment can serve.
    let stay = all.values().filter(|a| a.tries.len() == 1 && a.acks.len() == 1 && a.outs.is_empty());
    let overtaken: Vec<u64> = stay
        .filter_map(|a| {
            let later = all.values().filter(|b| single(b) && b.outs.len() == 1 && a.acks[0].1 < b.tries[0]);
            later.map(|b| b.outs[0].1).min()
        })
        .collect();
    let mut by = vec![None; maybe.len()];
    let served = (0..overtaken.len()).filter(|&i| serve(i, &overtaken, &maybe, &mut by, &mut vec![false; maybe.len()]));
    let served = served.count();
    if !maybe.is_empty() && overtaken.len() > served {
        *out.entry("reorder").or_default() += (overtaken.len() - served) as u64;
    }
    out
}

/// Finds a client for a message, if need be by giving others another one.
fn serve(i: usize, due: &[u64], crashed: &[u64], by: &mut [Option<usize>], tried: &mut Vec<bool>) -> bool {
    (0..crashed.len()).any(|c| {
        if crashed[c] >= due[i] || std::mem::replace(&mut tried[c], true) {
            return false;
        }
        let free = by[c].is_none_or(|other| serve(other, due, crashed, by, tried));
        if free {
            by[c] = Some(i);
        }
        free
    })
}

#[test]
fn the_checkers_agree_with_a_naive_reading_of_the_definitions() {
    let mut violations = 0;
    seeds(2000, |random| {
        let repeats = random.chance(40);
        let mut events = run(random, repeats);
        for event in events.iter_mut().filter(|e| e.kind == "ok" && e.f != "enqueue") {
            if random.chance(25) && event.f == "dequeue" {
                event.value = random.below(12).to_string();
            } else if random.chance(30) && event.f == "drain" {
                event.value =
                    format!("[{}]", (0..random.below(4)).map(|i| (i * 3).to_string()).collect::<Vec<_>>().join(" "));
            }
        }
        let h = built(&events);
        let options = QueueOptions { guarantee: None, named: false, fifo: true };
        let mut found: BTreeMap<_, _> = violated(&total_queue(&h, &options, 1)).into_iter().collect();
        let doubled = total_queue(&h, &options, 1).count("duplicate");
        if doubled > 0 {
            found.insert("duplicate", doubled);
        }
        let expected = naive(&h);
        assert_eq!(found, expected, "{}", text(&events));
        let mut of_queue = expected.clone();
        of_queue.remove("lost");
        assert_eq!(
            violated(&queue(&h, &options, 1)).into_iter().collect::<BTreeMap<_, _>>(),
            of_queue,
            "{}",
            text(&events)
        );
        let replayed = replay(&h, Queues::incremental_total(options, 1));
        assert_eq!(violated(&replayed), violated(&total_queue(&h, &options, 1)), "{}", text(&events));
        violations += expected.values().sum::<u64>();
    });
    assert!(violations > 2000, "{violations}");
}

#[test]
fn every_mutation_is_flagged_by_its_name_with_its_operation() {
    let mut tried = BTreeMap::<&str, u64>::new();
    seeds(600, |random| {
        let events = run(random, false);
        let strict = QueueOptions { guarantee: Some(Guarantee::ExactlyOnce), named: true, fifo: false };
        let mut check = |kind: &'static str, event: usize, events: &[Event]| {
            *tried.entry(kind).or_default() += 1;
            let found = total_queue(&built(events), &strict, 1000);
            assert!(shows(&found, kind, event), "{kind} {event}\n{}\n{found:?}", text(events));
        };
        let drain = events.len() - 2;
        let with = |value: &str| {
            let mut all = events.clone();
            all[drain + 1].value = value.into();
            all
        };
        let drained = events[drain + 1].value.trim_matches(['[', ']']).to_string();
        check("unexpected", drain, &with(&format!("[{drained} 4242]")));
        let begun = |value: &str| events.iter().position(|e| e.kind == "invoke" && e.value == value).unwrap();
        let acked = |value: &str| events.iter().any(|e| e.kind == "ok" && e.f == "enqueue" && e.value == value);
        if let Some(failed) = events.iter().find(|e| e.kind == "fail" && e.f == "enqueue") {
            check("aborted-effect", begun(&failed.value), &with(&format!("[{drained} {}]", failed.value)));
        }
        if let Some(gone) = drained.split_whitespace().find(|e| acked(e)) {
            let rest: Vec<&str> = drained.split_whitespace().filter(|e| *e != gone).collect();
            check("lost", begun(gone), &with(&format!("[{}]", rest.join(" "))));
            check("duplicate", begun(gone), &with(&format!("[{drained} {gone}]")));
        }
        if let Some(first) = events.iter().find(|e| e.f == "enqueue" && e.kind == "ok") {
            let mut early = events.clone();
            early.splice(
                0..0,
                [("invoke", ""), ("ok", first.value.as_str())].map(|(kind, value)| Event {
                    kind,
                    process: 3000,
                    f: "dequeue",
                    value: value.into(),
                }),
            );
            check("dequeued-before-enqueued", begun(&first.value) + 2, &early);
        }
    });
    assert!(tried.len() == 5 && tried.values().all(|&n| n > 50), "{tried:?}");
}

// Ids.

#[test]
fn an_id_that_is_generated_twice_is_a_duplicate_each_time() {
    let h = "invoke 0 generate / ok 0 generate 0 / invoke 1 generate / ok 1 generate 1 / invoke 2 generate / ok 2 generate 0
        invoke 3 generate / ok 3 generate 0 / invoke 4 generate / info 4 generate 1 / invoke 5 generate / fail 5 generate 1";
    let found = unique_ids(&of(h), false, 3);
    assert_eq!(violated(&found), [("duplicate", 2)]);
    assert!(shows(&found, "duplicate", 4) && shows(&found, "duplicate", 6));
    assert_eq!(replay(&of(h), UniqueIds::incremental(false, 3)).facts(), found.facts());
    for nothing in
        ["invoke 0 read / ok 0 read 1", "invoke 0 generate / info 0", "invoke 0 generate / ok 0 generate nil"]
    {
        assert!(unique_ids(&of(nothing), false, 3).why().is_some());
    }
    assert!(
        unique_ids(&of("invoke 0 generate / ok 0 generate \"1\" / invoke 0 generate / ok 0 generate 1"), false, 3)
            .is_valid()
    );
}

#[test]
fn ids_of_any_kind_agree_with_a_count_of_each() {
    seeds(500, |random| {
        let (mut lines, mut count) = (String::new(), BTreeMap::<String, u64>::new());
        for _ in 0..random.below(40) {
            let n = random.below(30);
            let id = [
                n.to_string(),
                format!("\"{n}\""),
                format!("[{n} 1]"),
                (n as i64 - 1_000_000_000_000).to_string(),
                format!("-{n}"),
            ][random.below(5)]
            .clone();
            lines += &format!("invoke 0 generate / ok 0 generate {id} / ");
            *count.entry(if id == "-0" { "0".into() } else { id }).or_default() += 1;
        }
        if !lines.is_empty() {
            let found = unique_ids(&of(&lines), false, 1);
            assert_eq!(found.count("duplicate"), count.values().map(|n| n - 1).sum::<u64>(), "{lines}");
        }
    });
}

#[test]
fn ids_that_have_to_grow_grow_per_process_and_in_real_time() {
    let per_process = "invoke 0 generate / ok 0 generate 2 / invoke 0 generate / ok 0 generate 1";
    let found = unique_ids(&of(per_process), true, 3);
    assert_eq!(violated(&found), [("nonmonotonic-process", 1), ("nonmonotonic-real-time", 1)]);
    assert!(unique_ids(&of(per_process), false, 3).is_valid());
    let real_time = "invoke 0 generate / ok 0 generate 2 / invoke 1 generate / ok 1 generate 1";
    assert_eq!(violated(&unique_ids(&of(real_time), true, 3)), [("nonmonotonic-real-time", 1)]);
    let at_once = "invoke 0 generate / invoke 1 generate / ok 0 generate 2 / ok 1 generate 1 / invoke 1 generate / ok 1 generate 3";
    assert!(unique_ids(&of(at_once), true, 3).is_valid());
    assert!(unique_ids(&of("invoke 0 generate / ok 0 generate :a"), true, 3).why().is_some());
}

/// Clients that draw ids from one counter.
fn ids(random: &mut Random) -> Vec<Event> {
    let (mix, mut next) = (mix(random), 0);
    let apply = |_: &mut Random, _: &'static str, _: &str| {
        next += 1;
        next.to_string()
    };
    simulate(random, mix, &[], |_| ("generate", String::new()), apply)
}

/// Ids from one counter grow; one that is put back is found, by the two operations that show it.
#[test]
fn ids_of_one_counter_are_never_accused() {
    seeds(500, |random| {
        let events = ids(random);
        let h = built(&events);
        let found = unique_ids(&h, true, 1);
        assert_eq!(violated(&found), [], "{}", text(&events));
        let naive = |h: &History| {
            let ids: Vec<_> = h
                .clients()
                .filter(|op| op.status() == Ended::Ok)
                .map(|op| (op.index(), op.complete_index().unwrap(), format!("{:?}", op.output())))
                .collect();
            let value = |t: &str| t.trim_matches(|c: char| !c.is_ascii_digit() && c != '-').parse::<i64>().unwrap();
            ids.iter().filter(|b| ids.iter().any(|a| a.1 < b.0 && value(&a.2) >= value(&b.2))).count() as u64
        };
        let mut spoilt = events;
        for event in spoilt.iter_mut().filter(|e| e.kind == "ok") {
            if random.chance(20) {
                event.value = random.below(20).to_string();
            }
        }
        let h = built(&spoilt);
        assert_eq!(unique_ids(&h, true, 1).count("nonmonotonic-real-time"), naive(&h), "{}", text(&spoilt));
    });
}

/// An id that was given before is given once more, or one that is lower than any.
#[test]
fn an_id_out_of_line_is_told_with_the_one_before_it() {
    let mut tried = [0; 3];
    seeds(500, |random| {
        let events = ids(random);
        let oks: Vec<usize> = (0..events.len()).filter(|&i| events[i].kind == "ok").collect();
        let begun = |i: usize| (0..i).rfind(|&j| events[j].process == events[i].process).unwrap();
        let kinds = ["duplicate", "nonmonotonic-process", "nonmonotonic-real-time"];
        for (kind, tried) in kinds.into_iter().zip(&mut tried) {
            let own = |a: usize, b: usize| match kind {
                "duplicate" => true,
                // Just before it, as its process saw them.
                "nonmonotonic-process" => {
                    events[a].process == events[b].process
                        && !oks.iter().any(|&c| a < c && c < b && events[c].process == events[a].process)
                }
                _ => a < begun(b) && events[a].process != events[b].process,
            };
            let pairs: Vec<(usize, usize)> = oks
                .iter()
                .flat_map(|&a| oks.iter().map(move |&b| (a, b)))
                .filter(|&(a, b)| a < b && own(a, b))
                .collect();
            if pairs.is_empty() {
                continue;
            }
            let (a, b) = pairs[random.below(pairs.len())];
            let mut spoilt = events.clone();
            spoilt[b].value = if kind == "duplicate" { events[a].value.clone() } else { "-5".into() };
            let found = unique_ids(&built(&spoilt), kind != "duplicate", 1000);
            assert!(shows(&found, kind, begun(b)), "{kind}: {found:#?}\n{}", text(&spoilt));
            let before = kind == "nonmonotonic-real-time" || shows(&found, kind, begun(a));
            assert!(before, "{kind}: {found:#?}\n{}", text(&spoilt));
            *tried += 1;
        }
    });
    assert!(tried.iter().all(|&n| n > 100), "{tried:?}");
}
