//! Claims about single rules, the reference's own cases, random valid histories and what becomes of them when they are spoiled, and a
//! naive twin.

use std::fmt::Write as _;
use std::path::PathBuf;

use elench_formats::build::BuildOptions;
use elench_formats::notation::history_with;
use elench_formats::open::{OpenOptions, open_bytes};
use serde_json::Value as Json;

use super::*;
use crate::findings::{Weight, replay};

mod corpus;
mod cycles;
mod random;
mod twin;

/// A history from lines of EDN maps without index and time.
fn edn(lines: &str) -> History {
    open_bytes(lines.as_bytes(), &OpenOptions::default()).unwrap()
}

fn of(text: &str) -> History {
    let options = BuildOptions { format: "notation".into(), real_time: true, ..BuildOptions::default() };
    history_with(text, options).unwrap()
}

fn judged(text: &str) -> Findings {
    check(&of(text), &Options::default(), &Budget::unlimited())
}

/// Kinds found, violations first named plainly, notes with a question mark.
fn kinds(found: &Findings) -> Vec<String> {
    let of = |(kind, all): (&&'static str, &crate::findings::Kind)| match all.weight {
        Weight::Violation => kind.to_string(),
        Weight::Note => format!("{kind}?"),
    };
    found.kinds().iter().map(of).collect()
}

#[test]
fn a_history_without_a_poll_of_any_message_decides_nothing() {
    for text in ["", "invoke 0 send [[:send :x 1]] / ok 0 send [[:send :x [0 1]]]", "invoke 0 assign [:x] / ok 0"] {
        let found = judged(text);
        assert!(!found.is_valid() && !found.is_invalid(), "{text}: {found:?}");
    }
    let found = judged(
        "invoke 0 poll [[:poll]] / ok 0 poll [[:poll {}]] / invoke 1 send [[:send :x 1]] / ok 1 send [[:send :x [0 1]]]",
    );
    assert_eq!((found.is_valid(), kinds(&found)), (false, vec!["unseen?".to_string()]));
}

#[test]
fn what_is_no_send_or_poll_refuses_the_whole_history() {
    let found = judged(
        "invoke 0 send [[:send :x 1]] / ok 0 send [[:sent :x [0 1]]] / invoke 0 poll [[:poll]] / ok 0 poll [[:poll {:x [[0 2] [0 3]]}]]",
    );
    assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
    assert!(found.why().unwrap().to_string().contains("operation 0"), "{:?}", found.why());
}

#[test]
fn one_message_far_out_costs_nothing() {
    let found = judged(
        "invoke 0 send [[:send :x 1]] / ok 0 send [[:send :x [1000000000000000 1]]] / invoke 1 poll [[:poll]] / \
         ok 1 poll [[:poll {:x [[1000000000000000 1]]}]]",
    );
    assert!(found.is_valid(), "{found:?}");
}

#[test]
fn a_gap_of_offsets_that_holds_no_message_is_no_skip() {
    let sends = "invoke 0 send [[:send :x 1] [:send :x 2]] / ok 0 send [[:send :x [3 1]] [:send :x [9 2]]] / ";
    let found = judged(&format!("{sends} invoke 1 poll [[:poll]] / ok 1 poll [[:poll {{:x [[3 1] [9 2]]}}]]"));
    assert!(found.is_valid(), "{found:?}");
}

#[test]
fn what_a_rebalance_moved_is_excused_and_nothing_else() {
    let head = "{:type :invoke :process 0 :f :send :value [[:send 5 1] [:send 5 2] [:send 5 3]]}
                {:type :ok :process 0 :f :send :value [[:send 5 [0 1]] [:send 5 [1 2]] [:send 5 [2 3]]]}
                {:type :invoke :process 1 :f :poll :value [[:poll] [:poll]]}\n";
    let poll = ":type :ok :process 1 :f :poll :value [[:poll {5 [[0 1] [2 3]]}] [:poll {5 [[1 2]]}]]";
    let of = |log: &str| check(&edn(&format!("{head}{{{poll}{log}}}")), &Options::default(), &Budget::unlimited());
    assert_eq!(kinds(&of("")), ["int-nonmonotonic-poll", "int-poll-skip"]);
    assert_eq!(kinds(&of(" :rebalance-log []")), ["int-nonmonotonic-poll", "int-poll-skip"]);
    assert_eq!(kinds(&of(" :rebalance-log [{:keys [6]}]")), ["int-nonmonotonic-poll", "int-poll-skip"]);
    assert!(of(" :rebalance-log [{:keys [6]} {:keys [5]}]").is_valid());
    assert!(of(" :rebalance-log [{:type :lost}]").is_valid());
}

#[test]
fn where_a_process_polled_before_a_partition_moved_says_nothing_of_where_it_goes_on() {
    let of = |between: &str| {
        edn(&format!(
            "{{:type :invoke :process 0 :f :send :value [[:send 5 1] [:send 5 2] [:send 5 3]]}}
             {{:type :ok :process 0 :f :send :value [[:send 5 [0 1]] [:send 5 [1 2]] [:send 5 [2 3]]]}}
             {{:type :invoke :process 2 :f :poll :value [[:poll]]}}
             {{:type :ok :process 2 :f :poll :value [[:poll {{5 [[0 1] [1 2] [2 3]]}}]]}}
             {{:type :invoke :process 1 :f :poll :value [[:poll]]}}
             {{:type :ok :process 1 :f :poll :value [[:poll {{5 [[0 1]]}}]]}}
             {{:type :invoke :process 1 {between}}}
             {{:type :invoke :process 1 :f :poll :value [[:poll]]}}
             {{:type :ok :process 1 :f :poll :value [[:poll {{5 [[2 3]]}}]]}}"
        ))
    };
    let found = |between: &str| {
        let found = check(&of(between), &Options::default(), &Budget::unlimited());
        kinds(&found).into_iter().filter(|kind| kind.contains("poll")).collect::<Vec<_>>()
    };
    for (kind, f, value) in
        [("fail", "poll", "[[:poll]]"), ("ok", "poll", "[[:poll]]"), ("ok", "send", "[]"), ("ok", "assign", "[5]")]
    {
        let of =
            |log: &str| format!(":f :{f} :value {value}}} {{:type :{kind} :process 1 :f :{f} :value {value} {log}");
        assert_eq!(found(&of("")), ["poll-skip"], "{kind} {f}");
        assert_eq!(found(&of(":rebalance-log [{:keys [6]}]")), ["poll-skip"], "{kind} {f}");
        for log in [":rebalance-log [{:keys [5]}]", ":rebalance-log [{:type :lost}]"] {
            assert_eq!(found(&of(log)), [] as [&str; 0], "{kind} {f} {log}");
        }
    }
}

#[test]
fn a_lost_message_that_several_sent_is_ascribed_to_one_that_is_known_to_have_sent_it() {
    // The first may never have happened; of the second a poll returned another message, or it was acknowledged.
    let text = |end: &str| {
        format!(
            "invoke 0 send [[:send :x 1]] / info 0 / invoke 1 send [[:send :x 1] [:send :y 2]] / \
             {end} 1 send [[:send :x [0 1]] [:send :y [0 2]]] / invoke 2 send [[:send :x 3]] / ok 2 send [[:send :x [1 3]]] / \
             invoke 3 poll [[:poll]] / ok 3 poll [[:poll {{:x [[1 3]] :y [[0 2]]}}]]"
        )
    };
    for end in ["info", "ok"] {
        let found = judged(&text(end));
        let lost = &found.kinds()["lost-write"];
        assert_eq!(lost.examples[0].ops, [crate::outcome::OpId(2), crate::outcome::OpId(6)], "{end}");
        if let Some(unseen) = found.kinds().get("unseen") {
            assert_eq!((end, &unseen.examples[0].ops[..]), ("ok", &[crate::outcome::OpId(2)][..]));
        }
    }
}

#[test]
fn a_consumer_that_subscribes_may_skip_between_polls_and_one_that_assigns_may_not() {
    let sends = "invoke 0 send [[:send :x 1] [:send :x 2] [:send :x 3]] / ok 0 send [[:send :x [0 1]] [:send :x [1 2]] [:send :x [2 3]]] / ";
    let polls = "invoke 1 poll [[:poll]] / ok 1 poll [[:poll {:x [[0 1]]}]] / invoke 1 poll [[:poll]] / ok 1 poll [[:poll {:x [[2 3]]}]] / \
                 invoke 2 poll [[:poll]] / ok 2 poll [[:poll {:x [[1 2]]}]]";
    for (first, kind) in [
        ("", "poll-skip"),
        ("invoke 1 assign [:x] / ok 1 / ", "poll-skip"),
        ("invoke 1 subscribe [:x] / ok 1 / ", "poll-skip?"),
        ("invoke 1 subscribe [:x] / ok 1 / invoke 1 assign [:x] / info 1 / ", "poll-skip?"),
        ("invoke 1 subscribe [:x] / ok 1 / invoke 1 assign [:x] / ok 1 / ", "poll-skip"),
        ("invoke 1 assign [:x] / ok 1 / invoke 1 subscribe [:x] / fail 1 / ", "poll-skip"),
    ] {
        let found = judged(&format!("{sends}{first}{polls}"));
        let kinds: Vec<_> = kinds(&found).into_iter().filter(|k| k.starts_with("poll-skip")).collect();
        assert_eq!(kinds, [kind], "{first}");
    }
    let options = Options { subscribe: true, ..Options::default() };
    let found = check(&of(&format!("{sends}{polls}")), &options, &Budget::unlimited());
    assert!(found.is_valid(), "{found:?}");
}

#[test]
fn seeking_to_the_beginning_starts_over() {
    let text = |seek: &str| {
        format!(
            "{{:type :invoke :process 0 :f :send :value [[:send 1 7]]}}
         {{:type :ok :process 0 :f :send :value [[:send 1 [0 7]]]}}
         {{:type :invoke :process 1 :f :poll :value [[:poll]]}}
         {{:type :ok :process 1 :f :poll :value [[:poll {{1 [[0 7]]}}]]}}
         {{:type :invoke :process 1 :f :assign :value [1]{seek}}}
         {{:type :ok :process 1 :f :assign :value [1]{seek}}}
         {{:type :invoke :process 1 :f :poll :value [[:poll]]}}
         {{:type :ok :process 1 :f :poll :value [[:poll {{1 [[0 7]]}}]]}}"
        )
    };
    assert_eq!(kinds(&check(&edn(&text("")), &Options::default(), &Budget::unlimited())), ["nonmonotonic-poll"]);
    let found = check(&edn(&text(" :seek-to-beginning? true")), &Options::default(), &Budget::unlimited());
    assert!(found.is_valid(), "{found:?}");
}

#[test]
fn a_value_sent_twice_may_stand_twice_but_not_three_times() {
    let sends = "invoke 0 send [[:send :x 1]] / ok 0 send [[:send :x [0 1]]] / invoke 0 send [[:send :x 1]] / ok 0 send [[:send :x [1 1]]] / ";
    let two = judged(&format!("{sends} invoke 1 poll [[:poll]] / ok 1 poll [[:poll {{:x [[0 1] [1 1]]}}]]"));
    assert!(two.is_valid(), "{two:?}");
    let three = judged(&format!("{sends} invoke 1 poll [[:poll]] / ok 1 poll [[:poll {{:x [[0 1] [1 1] [2 1]]}}]]"));
    assert_eq!(kinds(&three), ["duplicate"]);
}

#[test]
fn a_message_that_is_a_vector_is_no_offset_and_value() {
    let text = "invoke 0 send [[:send :x [5 6]]] / info 0 send [[:send :x [5 6]]] / invoke 2 poll [[:poll]] / ok 2 poll [[:poll {:x [[0 [5 6]]]}]]";
    let found = judged(text);
    assert!(found.is_valid(), "{found:?}");
    assert_eq!(found.fact_of("messages"), Some(&Fact::Count(1)));
    let told = judged(
        "invoke 0 send [[:send :x [5 6]]] / ok 0 send [[:send :x [0 [5 6]]]] / invoke 2 poll [[:poll]] / ok 2 poll [[:poll {:x [[0 [5 6]]]}]]",
    );
    assert!(told.is_valid() && told.fact_of("messages") == Some(&Fact::Count(1)), "{told:?}");
}

#[test]
fn polled_but_never_sent_is_unexpected_among_what_was_sent_and_of_unknown_origin_below() {
    let sends = "invoke 0 send [[:send :x 1]] / ok 0 send [[:send :x [5 1]]] / invoke 1 poll [[:poll]] / ";
    assert_eq!(kinds(&judged(&format!("{sends} ok 1 poll [[:poll {{:x [[4 9] [5 1]]}}]]"))), ["unknown-origin?"]);
    assert_eq!(kinds(&judged(&format!("{sends} ok 1 poll [[:poll {{:x [[5 1] [6 9]]}}]]"))), ["unexpected"]);
}

#[test]
fn a_message_polled_and_never_acknowledged_is_not_unseen() {
    let found =
        judged("invoke 0 send [[:send :x 1]] / info 0 / invoke 1 poll [[:poll]] / ok 1 poll [[:poll {:x [[0 1]]}]]");
    assert!(found.is_valid() && found.kinds().is_empty(), "{found:?}");
    assert_eq!(found.fact_of("unseen"), Some(&Fact::Count(0)));
}

#[test]
fn unseen_is_a_violation_when_all_must_be_seen() {
    let text = "invoke 0 send [[:send :x 1] [:send :x 2]] / ok 0 send [[:send :x [0 1]] [:send :x [1 2]]] / invoke 1 poll [[:poll]] / ok 1 poll [[:poll {:x [[0 1]]}]]";
    let found = check(&of(text), &Options { unseen: true, ..Options::default() }, &Budget::unlimited());
    assert_eq!(kinds(&found), ["G-single-item?", "unseen"]);
    assert!(judged(text).is_valid());
}

#[test]
fn in_no_transaction_a_send_of_unknown_end_says_nothing_of_the_others() {
    let text = "invoke 0 send [[:send :x 1] [:send :y 2]] / info 0 send [[:send :x 1] [:send :y [0 2]]] / invoke 1 send [[:send :y 3]] / ok 1 send [[:send :y [1 3]]] / \
                invoke 2 poll [[:poll]] / ok 2 poll [[:poll {:x [[0 1]] :y [[1 3]]}]]";
    assert!(judged(text).kinds().contains_key("lost-write"));
    let found = check(&of(text), &Options { transactional: false, ..Options::default() }, &Budget::unlimited());
    assert!(found.is_valid(), "{found:?}");
}

#[test]
fn lag_is_how_long_a_later_offset_had_been_known() {
    let text = "invoke 0 assign [:x] @0 / ok 0 @0 / invoke 1 send [[:send :x 1]] @10 / ok 1 send [[:send :x [0 1]]] @20 / \
                invoke 0 poll [[:poll]] @50 / ok 0 poll [[:poll {}]] @55 / invoke 0 poll [[:poll]] @60 / ok 0 poll [[:poll {:x [[0 1]]}]] @70";
    let found = judged(text);
    assert_eq!(found.fact_of("worst realtime lag"), Some(&Fact::Nanos(30)));
    assert_eq!(found.fact_of("unseen at most"), Some(&Fact::Count(1)));
}

#[test]
fn only_a_poll_that_goes_back_within_an_operation_is_known_before_the_end() {
    let sends = "invoke 0 send [[:send :x 1] [:send :x 2]] / ok 0 send [[:send :x [0 1]] [:send :x [1 2]]] / ";
    let history = of(&format!("{sends} invoke 1 poll [[:poll]] / ok 1 poll [[:poll {{:x [[1 2] [0 1]]}}]]"));
    let mut log = Log::new(Options::default(), Budget::unlimited());
    for op in history.clients() {
        assert_eq!(log.violated(), None);
        log.completed(&op);
    }
    assert_eq!(log.violated(), Some("int-nonmonotonic-poll"));
    let found = replay(&history, Box::new(log));
    assert!(found.is_invalid());
}

#[test]
fn cycles_over_ww_and_rw_are_noted_unless_they_are_forbidden() {
    let g0 = "invoke 0 send [[:send :x 1] [:send :y 1]] / invoke 1 send [[:send :x 2] [:send :y 2]] / \
              ok 0 send [[:send :x [0 1]] [:send :y [1 1]]] / ok 1 send [[:send :x [1 2]] [:send :y [0 2]]] / \
              invoke 2 poll [[:poll]] / ok 2 poll [[:poll {:x [[0 1] [1 2]] :y [[0 2] [1 1]]}]]";
    let single = "invoke 0 send [[:send :x 1] [:send :y 1]] / invoke 2 poll [[:poll]] / ok 0 send [[:send :x [0 1]] [:send :y [0 1]]] / \
                  ok 2 poll [[:poll {:x [[0 1]] :y []}]] / invoke 0 send [[:send :x 2] [:send :y 2]] / invoke 2 poll [[:poll]] / \
                  ok 0 send [[:send :x [1 2]] [:send :y [1 2]]] / ok 2 poll [[:poll {:x [[1 2]] :y [[0 1]]}]]";
    let weight = |text: &str, kind: &str, cycles: Forbid| {
        let found = check(&of(text), &Options { cycles, ..Options::default() }, &Budget::unlimited());
        found.kinds()[kind].weight
    };
    use Weight::{Note, Violation};
    for (text, kind, expected) in
        [(g0, "G0", [Note, Violation, Violation]), (single, "G-single-item", [Note, Note, Violation])]
    {
        let found = [Forbid::Wr, Forbid::Ww, Forbid::Rw].map(|cycles| weight(text, kind, cycles));
        assert_eq!(found, expected, "{kind}");
        let found = judged(text);
        let examples = &found.kinds()[kind].examples;
        assert!(examples[0].ops.len() == 2 && examples[0].text.contains("sent the next"), "{examples:?}");
    }
}

#[test]
fn polling_what_is_sent_later_is_a_cycle_over_wr_even_outside_transactions() {
    let text = "invoke 0 poll [[:poll]] / ok 0 poll [[:poll {:x [[0 1]]}]] / invoke 1 send [[:send :x 1]] / ok 1 send [[:send :x [0 1]]]";
    for transactional in [true, false] {
        let found = check(&of(text), &Options { transactional, ..Options::default() }, &Budget::unlimited());
        assert_eq!(kinds(&found), ["G1c-realtime"]);
    }
    let own = text.replace("invoke 1", "invoke 0").replace("ok 1", "ok 0");
    assert_eq!(kinds(&judged(&own)), ["G1c-process"]);
    let mutual = "invoke 0 txn [[:send :x 1] [:poll]] / invoke 1 txn [[:send :y 2] [:poll]] / \
                  ok 0 txn [[:send :x [0 1]] [:poll {:y [[0 2]]}]] / ok 1 txn [[:send :y [0 2]] [:poll {:x [[0 1]]}]]";
    assert_eq!(kinds(&judged(mutual)), ["G1c"]);
}
