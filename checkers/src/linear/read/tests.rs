//! What histories say to models, by small histories.

use elench_formats::Value as Edn;
use elench_formats::notation::history;

use super::*;
use crate::budget::Budget;
use crate::linear::{Evidence, check_keys};
use crate::model::Transition;
use crate::outcome::Answer;

/// `ok`, `bad`, `unknown`, or why it was not read.
fn verdict(object: &Object, initial: &str, text: &str) -> String {
    let history = history(text).unwrap();
    let settings = Settings { initial: elench_formats::edn::parse(initial).unwrap(), ..Settings::default() };
    let reading = match read(&history, object, &settings) {
        Err(Unfit::Initial(why)) => return format!("initial: {why}"),
        Err(Unfit::Operation(misfit)) => return format!("op {}: {}", misfit.op.0, misfit.why),
        Ok(reading) => reading,
    };
    match check_keys(&reading.problems, &Budget::unlimited(), &Evidence::default()).answer() {
        Answer::Valid(_) => "ok".into(),
        Answer::Invalid(_) => "bad".into(),
        Answer::Unknown(_) => "unknown".into(),
    }
}

/// Histories that are `ok` or `bad` as an object that begins as is usual.
fn judge(object: &Object, cases: &[(&str, &str)]) {
    judge_from(object, "nil", cases);
}

fn judge_from(object: &Object, initial: &str, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let verdict = verdict(object, initial, text);
        assert!(verdict == *expected || (verdict.contains(expected) && !expected.is_empty()), "{text}: {verdict}");
    }
}

#[test]
fn a_counter_counts_what_happened_and_what_may_have() {
    judge(
        &Object::Counter,
        &[
            ("invoke 0 add 2 / ok 0 / invoke 0 read / ok 0 read 2", "ok"),
            ("invoke 0 add 2 / ok 0 / invoke 0 read / ok 0 read 0", "bad"),
            ("invoke 0 add 2 / fail 0 / invoke 0 read / ok 0 read 2", "bad"),
            ("invoke 0 add 2 / info 0 / invoke 1 read / ok 1 read 2 / invoke 1 read / ok 1 read 2", "ok"),
            ("invoke 0 add 2 / info 0 / invoke 1 read / ok 1 read 2 / invoke 1 read / ok 1 read 0", "bad"),
            ("invoke 0 inc / ok 0 / invoke 0 dec / ok 0 / invoke 0 read / ok 0 read 0", "ok"),
            ("invoke 0 inc-and-get / ok 0 inc-and-get 1 / invoke 0 inc-and-get / ok 0 inc-and-get 2", "ok"),
            ("invoke 0 inc-and-get / ok 0 inc-and-get 1 / invoke 0 inc_and_get / ok 0 inc_and_get 1", "bad"),
            ("invoke 0 inc-and-get / info 0 / invoke 1 inc-and-get / ok 1 inc-and-get 2", "ok"),
            ("invoke 0 get-and-add 3 / ok 0 get-and-add 0 / invoke 0 read / ok 0 read 3", "ok"),
            // Of `inc`, what is said is the number where anything says other than one.
            ("invoke 0 inc / ok 0 inc 1 / invoke 0 inc / ok 0 inc 2", "ok"),
            ("invoke 0 inc / ok 0 inc 2 / invoke 0 inc / ok 0 inc 1", "bad"),
            ("invoke 0 inc 1 / ok 0 inc 1 / invoke 0 inc 1 / ok 0 inc 1 / invoke 0 read / ok 0 read 2", "ok"),
            ("invoke 0 read / info 0 read 7 / invoke 1 read / ok 1 read 0", "ok"),
            ("invoke 0 enqueue 1 / ok 0", "op 0: `enqueue` is no operation of a counter"),
        ],
    );
    judge_from(
        &Object::Counter,
        "100",
        &[
            ("invoke 0 debit 6 / ok 0 debit 94 / invoke 0 credit 10 / ok 0 credit 104", "ok"),
            ("invoke 0 debit 6 / ok 0 debit 94 / invoke 0 credit 10 / ok 0 credit 110", "bad"),
        ],
    );
    judge_from(&Object::Counter, ":much", &[("", "initial: :much is not a number")]);
}

#[test]
fn keys_are_objects_of_their_own() {
    judge(
        &Object::Counter,
        &[(
            "invoke 0 add [1 5] / ok 0 / invoke 0 read [2 nil] / ok 0 read [2 0] / invoke 0 read [1 nil] / ok 0 read [1 5]",
            "ok",
        )],
    );
}

#[test]
fn a_mutex_is_held_once_and_a_failed_acquisition_did_not_happen() {
    judge(
        &Object::Mutex,
        &[
            ("invoke 0 acquire / ok 0 / invoke 1 acquire / fail 1 / invoke 0 release / ok 0", "ok"),
            ("invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1", "bad"),
            ("invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1 acquire false", "ok"),
            ("invoke 0 acquire / ok 0 / invoke 1 release / ok 1", "ok"),
            ("invoke 0 release / ok 0", "bad"),
            ("invoke 0 lock / info 0 / invoke 1 unlock / ok 1", "ok"),
        ],
    );
    judge_from(&Object::Mutex, "locked", &[("invoke 0 release / ok 0", "ok"), ("invoke 0 acquire / ok 0", "bad")]);
}

#[test]
fn a_reentrant_mutex_is_released_by_its_owner() {
    judge(
        &Object::ReentrantMutex,
        &[
            ("invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1", "bad"),
            ("invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0 / invoke 0 release / ok 0", "ok"),
            ("invoke 0 acquire / ok 0 / invoke 1 release / ok 1", "bad"),
            // One client in two processes, named by the value.
            (
                "invoke 0 acquire {:client :a} / ok 0 / invoke 1 release {:client :a} / ok 1 / \
             invoke 1 acquire {:client :b} / ok 1",
                "ok",
            ),
            ("invoke 0 acquire :a / ok 0 / invoke 1 acquire :b / fail 1 / invoke 2 release :a / ok 2", "bad"),
            ("invoke 0 acquire :a / ok 0 / invoke 2 release :a / ok 2 / invoke 1 acquire :b / ok 1", "ok"),
            // Unique texts are no owners.
            ("invoke 0 acquire \"x1\" / ok 0 / invoke 0 release \"x2\" / ok 0", "ok"),
            // Who crashed is not known, and may be the one who releases.
            (
                "invoke 0 acquire \"u1\" / info 0 / invoke 1 release \"u2\" / ok 1 release {:client :a} / \
             invoke 1 acquire \"u3\" / ok 1 acquire {:client :b}",
                "ok",
            ),
        ],
    );
    let thrice = "invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0";
    judge_from(&Object::ReentrantMutex, "nil", &[(thrice, "ok")]);
    judge_from(&Object::ReentrantMutex, "2", &[(thrice, "bad")]);
    judge_from(&Object::ReentrantMutex, "{:holds 3}", &[(thrice, "ok")]);
}

#[test]
fn fencing_tokens_grow() {
    judge(
        &Object::FencedMutex,
        &[
            ("invoke 0 acquire / ok 0 acquire 3 / invoke 0 release / ok 0 / invoke 1 acquire / ok 1 acquire 9", "ok"),
            ("invoke 0 acquire / ok 0 acquire 3 / invoke 0 release / ok 0 / invoke 1 acquire / ok 1 acquire 3", "bad"),
            (
                "invoke 0 acquire / ok 0 acquire {:client 1, :fence 3} / invoke 1 release / ok 1 release {:client 1} / \
             invoke 1 acquire / ok 1 acquire {:client 2, :fence 4}",
                "ok",
            ),
            ("invoke 0 acquire / ok 0 acquire {:fence 3} / invoke 1 acquire / ok 1 acquire {:fence 4}", "bad"),
        ],
    );
}

#[test]
fn a_semaphore_gives_no_more_permits_than_it_has() {
    judge_from(
        &Object::Semaphore,
        "2",
        &[
            ("invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1", "ok"),
            ("invoke 0 acquire 2 / ok 0 / invoke 1 acquire / ok 1", "bad"),
            ("invoke 0 acquire 2 / ok 0 / invoke 0 release 1 / ok 0 / invoke 1 acquire {:permits 1} / ok 1", "ok"),
            ("invoke 0 release / ok 0", "bad"),
        ],
    );
    judge(&Object::Semaphore, &[("", "initial: nil is not the number of permits")]);
}

#[test]
fn a_lease_is_accused_only_where_it_cannot_have_ended() {
    judge(
        &Object::Lease,
        &[
            ("invoke 0 acquire {:ttl 10} @0 / ok 0 @2 / invoke 1 acquire {:ttl 10} @5 / ok 1 @9", "bad"),
            ("invoke 0 acquire {:ttl 10} @0 / ok 0 @2 / invoke 1 acquire {:ttl 10} @5 / ok 1 @10", "ok"),
            ("invoke 0 acquire {:ttl_ms 1} @0 / ok 0 @2 / invoke 1 acquire {:ttl 10} @5 / ok 1 @999999", "bad"),
            (
                "invoke 0 acquire {:ttl 10} @0 / ok 0 @2 / invoke 0 renew {:ttl 9} @5 / ok 0 @6 / \
          invoke 1 acquire {:ttl 10} @8 / ok 1 @12",
                "bad",
            ),
            (
                "invoke 0 acquire {:ttl 10} @0 / ok 0 @2 / invoke 0 release @3 / ok 0 @4 / \
          invoke 1 acquire {:ttl 10} @5 / ok 1 @6",
                "ok",
            ),
            ("invoke 0 acquire @0 / ok 0 @2", "how long the lease lasts is not known"),
            ("invoke 0 acquire {:ttl 10} / ok 0", "needs the times"),
        ],
    );
    judge_from(
        &Object::Lease,
        "{:ttl-ms 1}",
        &[
            ("invoke 0 acquire @0 / ok 0 @2 / invoke 1 acquire @5 / ok 1 @999999", "bad"),
            ("invoke 0 acquire @0 / ok 0 @2 / invoke 1 acquire @5 / ok 1 @1000000", "ok"),
        ],
    );
}

#[test]
fn queues_stacks_and_bags_differ_in_what_comes_out_first() {
    let put = "invoke 0 enqueue 2 / ok 0 / invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 3 / ok 0 / ";
    let take = |n: &str| format!("{put}invoke 0 dequeue / ok 0 dequeue {n}");
    for (object, first) in
        [(Object::FifoQueue, "2"), (Object::PriorityQueue, "1"), (Object::Stack, "3"), (Object::UnorderedQueue, "123")]
    {
        for n in ["1", "2", "3"] {
            let expected = if first.contains(n) { "ok" } else { "bad" };
            assert_eq!(verdict(&object, "nil", &take(n)), expected, "{object:?} {n}");
        }
        assert_eq!(verdict(&object, "nil", &take("4")), "bad");
        assert_eq!(verdict(&object, "nil", &take("nil")), "bad");
        assert_eq!(verdict(&object, "nil", "invoke 0 poll / ok 0 poll :empty"), "ok");
        assert_eq!(verdict(&object, "nil", "invoke 0 dequeue / fail 0 / invoke 0 put 1 / ok 0"), "ok");
        let crashed = "invoke 0 enqueue 1 / ok 0 / invoke 1 dequeue / info 1 / invoke 0 dequeue / ok 0 dequeue";
        assert_eq!(verdict(&object, "nil", crashed), "ok");
        assert_eq!(verdict(&object, "[7]", "invoke 0 dequeue / ok 0 dequeue 7"), "ok");
        let drained = "invoke 0 enqueue 1 / ok 0 / invoke 0 drain / ok 0 drain [1]";
        assert_eq!(verdict(&object, "nil", drained), "ok");
        assert!(
            verdict(&object, "nil", &format!("{drained} / invoke 0 dequeue / ok 0 dequeue 1"))
                .contains("after a drain")
        );
    }
    let lists = "invoke 0 enqueue 0 / ok 0 / invoke 0 enqueue [7 8] / ok 0 / invoke 0 enqueue 1 / ok 0 / ";
    let taken =
        "invoke 0 dequeue / ok 0 dequeue 0 / invoke 0 dequeue / ok 0 dequeue [7 8] / invoke 0 dequeue / ok 0 dequeue 1";
    judge(&Object::FifoQueue, &[(&format!("{lists}{taken}"), "ok")]);
    judge(
        &Object::PriorityQueue,
        &[
            ("invoke 0 enqueue -5 / ok 0 / invoke 0 enqueue :a / ok 0", "op 2: values of a priority queue are numbers"),
            (
                "invoke 0 enqueue 10 / ok 0 / invoke 0 enqueue 9 / ok 0 / invoke 0 dequeue / ok 0 dequeue 9 / \
          invoke 0 dequeue / ok 0 dequeue 10 / invoke 0 dequeue / ok 0 dequeue :empty",
                "ok",
            ),
        ],
    );
}

#[test]
fn what_was_put_into_a_queue_is_a_value_whatever_it_is_called() {
    for object in [Object::FifoQueue, Object::Stack, Object::UnorderedQueue] {
        judge(
            &object,
            &[
                ("invoke 0 enqueue \"empty\" / ok 0 / invoke 0 dequeue / ok 0 dequeue \"empty\"", "ok"),
                ("invoke 0 enqueue \"none\" / ok 0 / invoke 0 dequeue / ok 0 dequeue :empty", "bad"),
                ("invoke 0 dequeue / ok 0 dequeue \"none\" / invoke 0 enqueue \"none\" / ok 0", "bad"),
                ("invoke 0 enqueue false / ok 0 enqueue false / invoke 0 dequeue / ok 0 dequeue false", "ok"),
                ("invoke 0 enqueue 1 / ok 0 enqueue false / invoke 0 dequeue / ok 0 dequeue nil", "ok"),
                ("invoke 0 enqueue / info 0 / invoke 1 dequeue / ok 1 dequeue 5", "op 0: what it put in is not known"),
            ],
        );
        let taken = "invoke 0 dequeue / ok 0 dequeue :none";
        judge_from(&object, "[:none]", &[(taken, "ok")]);
    }
}

#[test]
fn a_set_of_truth_values_is_not_told_by_its_echo_that_anything_changed() {
    let twice = "invoke 0 add true / ok 0 add true / invoke 0 add true / ok 0 add true / ";
    judge(
        &Object::Set,
        &[
            (&format!("{twice}invoke 0 read / ok 0 read #{{true}}"), "ok"),
            ("invoke 0 add false / ok 0 add false / invoke 0 read / ok 0 read #{false}", "ok"),
            ("invoke 0 add true / ok 0 add false", "bad"),
        ],
    );
}

#[test]
fn a_set_holds_what_was_added_and_not_removed() {
    judge(
        &Object::Set,
        &[
            ("invoke 0 add 1 / ok 0 / invoke 0 add :a / ok 0 / invoke 0 read / ok 0 read [:a 1]", "ok"),
            ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read #{}", "bad"),
            ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read [1 1]", "bad"),
            (
                "invoke 0 add 0 / ok 0 / invoke 0 add [5 6] / ok 0 / invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read [0 1 [5 6]]",
                "ok",
            ),
            ("invoke 0 add 1 / fail 0 / invoke 0 read / ok 0 read [1]", "bad"),
            (
                "invoke 0 add 1 / info 0 / invoke 1 contains 1 / ok 1 contains true / invoke 1 remove 1 / ok 1 remove true",
                "ok",
            ),
            ("invoke 0 add 1 / ok 0 / invoke 0 remove 1 / ok 0 / invoke 0 contains 1 / ok 0 contains [1 true]", "bad"),
            ("invoke 0 add 1 / ok 0 add false", "bad"),
            ("invoke 0 add 1 / ok 0 add 2", "invoked with 1 and acknowledged with 2"),
        ],
    );
    judge(
        &Object::GrowSet,
        &[
            ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read [1]", "ok"),
            ("invoke 0 remove 1 / ok 0", "no operation of a set that only grows"),
        ],
    );
    judge_from(&Object::Set, "#{4}", &[("invoke 0 contains 4 / ok 0 contains true", "ok")]);
}

#[test]
fn a_map_is_read_by_key_wherever_the_key_stands() {
    judge(
        &Object::Map,
        &[
            ("invoke 0 put [:a 1] / ok 0 / invoke 0 get :a / ok 0 get 1 / invoke 0 get :b / ok 0 get nil", "ok"),
            ("invoke 0 put [:a 1] / ok 0 / invoke 0 get :b / ok 0 get 1", "bad"),
            ("invoke 0 put {:key 3, :value 1} / ok 0 / invoke 0 get {:key 3} / ok 0 get {:key 3, :value 1}", "ok"),
            ("invoke 0 put [:a 1] / ok 0 / invoke 0 delete :a / ok 0 / invoke 0 get :a / ok 0 get 1", "bad"),
            ("invoke 0 put [:a 1] / ok 0 / invoke 0 cas [:a [1 2]] / ok 0 / invoke 0 get :a / ok 0 get 2", "ok"),
            (
                "invoke 0 put [:a 1] / ok 0 / invoke 0 cas [:a [1 2]] / ok 0 cas false / invoke 0 get :a / ok 0 get 1",
                "bad",
            ),
            ("invoke 0 put [1 5] / ok 0 / invoke 0 get [1 nil] / ok 0 get [1 5]", "ok"),
            ("invoke 0 put [[1 2] 5] / ok 0 / invoke 0 get [1 2] / ok 0 get 5", "ok"),
            // A value that looks like its key and a value, and was put as it is.
            ("invoke 0 put [1 [1 2]] / ok 0 / invoke 0 get 1 / ok 0 get [1 2]", "ok"),
            ("invoke 0 cas [1 [nil [1 2]]] / ok 0 / invoke 0 get 1 / ok 0 get [1 2]", "ok"),
            // An entry that is not there and an empty one are the same, without appends too.
            (
                "invoke 0 get :a / ok 0 get \"\" / invoke 0 put [:a \"x\"] / ok 0 / invoke 0 get :a / ok 0 get \"x\"",
                "ok",
            ),
            ("invoke 0 put [:a \"x\"] / ok 0 / invoke 0 get :a / ok 0 get \"\"", "bad"),
            ("invoke 0 put [:a \"\"] / ok 0 / invoke 0 get :a / ok 0 get \"\"", "ok"),
            ("invoke 0 put 5 / ok 0 / invoke 0 get :a / ok 0 get 5", "op 0: a map needs [key value], not 5"),
            (
                "invoke 0 append [:a \"x\"] / ok 0 / invoke 0 append [:a \"yz\"] / ok 0 / invoke 0 get :a / ok 0 get \"xyz\"",
                "ok",
            ),
            (
                "invoke 0 append [:a \"x\"] / ok 0 / invoke 0 append [:b \"y\"] / ok 0 / invoke 0 get :a / ok 0 get \"xy\"",
                "bad",
            ),
            (
                "invoke 0 append [:a \"x\"] / info 0 / invoke 1 get :a / ok 1 get \"\" / invoke 1 get :a / ok 1 get \"x\"",
                "ok",
            ),
            ("invoke 0 append [:a 1] / ok 0 / invoke 0 append [:a 2] / ok 0 / invoke 0 get :a / ok 0 get [1 2]", "ok"),
        ],
    );
    judge_from(
        &Object::Map,
        "\"s\"",
        &[("invoke 0 append [:a \"x\"] / ok 0 / invoke 0 get :a / ok 0 get \"sx\"", "ok")],
    );
}

#[test]
fn a_list_and_a_log_are_read_as_they_were_appended_to() {
    judge(
        &Object::AppendList,
        &[
            ("invoke 0 append 1 / ok 0 / invoke 1 append 2 / info 1 / invoke 0 read / ok 0 read [1 2]", "ok"),
            ("invoke 0 append 1 / ok 0 / invoke 0 append 2 / ok 0 / invoke 0 read / ok 0 read [2 1]", "bad"),
        ],
    );
    judge(
        &Object::Log,
        &[
            (
                "invoke 0 append :a / ok 0 append 0 / invoke 0 append :b / ok 0 append {:offset 1} / invoke 0 read 1 / ok 0 read :b",
                "ok",
            ),
            ("invoke 0 append :a / ok 0 append 1", "bad"),
            ("invoke 0 append :a / ok 0 append [0 :a] / invoke 0 read 0 / ok 0 read [[0 :a]]", "ok"),
            ("invoke 0 append :a / ok 0 append 0 / invoke 0 read 0 / ok 0 read nil", "bad"),
            (
                "invoke 0 append :a / info 0 / invoke 1 append :b / ok 1 append 1 / invoke 1 read / ok 1 read [:a :b]",
                "ok",
            ),
            ("invoke 0 append :a / ok 0 / invoke 0 read {:from 0, :to 5} / ok 0 read [:a]", "ok"),
            ("invoke 0 append :a / ok 0 / invoke 0 read {:from 0, :to 5} / ok 0 read []", "bad"),
            // An entry that is a list, alone and among others.
            ("invoke 0 append [1 2] / ok 0 append {:offset 0} / invoke 0 read 0 / ok 0 read [1 2]", "ok"),
            ("invoke 0 append [1 2] / ok 0 append {:offset 0} / invoke 0 read 0 / ok 0 read [[1 2]]", "ok"),
            ("invoke 0 append [1 2] / ok 0 append {:offset 0} / invoke 0 read 1 / ok 0 read [1 2]", "bad"),
            ("invoke 0 append :a / ok 0 append :odd", "an append gives an offset, not :odd"),
        ],
    );
}

#[test]
fn a_bank_moves_money_and_makes_none() {
    let bank = "{:a 10, :b 0}";
    judge_from(
        &Object::Bank,
        bank,
        &[
            ("invoke 0 transfer {:from :a, :to :b, :amount 4} / ok 0 / invoke 0 read / ok 0 read {:a 6, :b 4}", "ok"),
            ("invoke 0 transfer {:from :a, :to :b, :amount 4} / ok 0 / invoke 0 read / ok 0 read {:a 10, :b 0}", "bad"),
            ("invoke 0 transfer [:a :b 11] / ok 0", "bad"),
            ("invoke 0 transfer {:from :a, :to :b, :amount 4} / info 0 / invoke 1 read / ok 1 read {:a 6, :b 4}", "ok"),
            ("invoke 0 read / ok 0 read {:a nil}", "a balance in {:a nil} is no number"),
        ],
    );
    judge_from(&Object::Bank, "{:a 10, :negative-balances? true}", &[("invoke 0 transfer [:a :b 11] / ok 0", "ok")]);
    judge(
        &Object::Bank,
        &[
            (
                "invoke 0 read / ok 0 read {\"0\" 5} / invoke 0 transfer [0 1 5] / ok 0 / invoke 0 read / ok 0 read {\"1\" 5}",
                "ok",
            ),
            ("invoke 0 read / ok 0 read {0 5} / invoke 0 read / ok 0 read {0 6}", "bad"),
        ],
    );
}

#[test]
fn versions_count_changes() {
    judge(
        &Object::VersionedRegister,
        &[
            ("invoke 0 write [nil 3] / ok 0 write [1 3] / invoke 0 read [nil nil] / ok 0 read [1 3]", "ok"),
            ("invoke 0 write [nil 3] / ok 0 write [2 3]", "bad"),
            ("invoke 0 write [nil 3] / info 0 / invoke 1 cas [nil [3 4]] / ok 1 cas [2 [3 4]]", "ok"),
            ("invoke 0 write [nil 3] / ok 0 write [1 3] / invoke 0 read [nil nil] / ok 0 read [2 3]", "bad"),
            ("invoke 0 read [nil nil] / ok 0 read [0 nil]", "ok"),
            ("invoke 0 write 3 / ok 0", "op 0: a write needs [nil value], not 3"),
        ],
    );
}

#[test]
fn transactions_happen_at_once() {
    let txns = "invoke 0 txn [[:w :x 1] [:w :y 1]] / ok 0 / ";
    let read = |what: &str| format!("{txns}invoke 0 txn [[:r :x nil] [:r :y nil]] / ok 0 txn {what}");
    judge(
        &Object::MultiRegister,
        &[
            (&read("[[:r :x 1] [:r :y 1]]"), "ok"),
            (&read("[[:r :x 1] [:r :y nil]]"), "bad"),
            ("invoke 0 txn [[:w :x 1] [:r :x nil]] / ok 0 txn [[:w :x 1] [:r :x 2]]", "bad"),
            ("invoke 0 write {:x 1, :y 2} / ok 0 / invoke 0 read / ok 0 read {:y 2}", "ok"),
            ("invoke 0 txn [[:append :x 1]] / ok 0", "is no operation on a register"),
            ("invoke 0 txn [[:w :x 1]] / info 0 / invoke 1 txn [[:r :x nil]] / info 1", "unknown"),
        ],
    );
    // A register that is never unset is not seen unset: the read says nothing.
    judge_from(
        &Object::MultiRegister,
        "{:x 0, :y 0}",
        &[
            ("invoke 0 txn [[:r :x nil]] / ok 0 txn [[:r :x nil]]", "ok"),
            ("invoke 0 txn [[:r :x nil]] / ok 0 txn [[:r :x 1]]", "bad"),
        ],
    );
}

#[test]
fn a_table_says_which_operations_there_are() {
    let transition = |from: u32, f: &str, to: u32| Transition {
        from: Some(from),
        f: f.into(),
        input: None,
        output: None,
        to: Some(to),
    };
    let states = vec!["unlocked".into(), "locked".into()];
    let table = Table::new(states, 0, vec![transition(0, "acquire", 1), transition(1, "release", 0)]).unwrap();
    judge(
        &Object::Table(table),
        &[
            ("invoke 0 acquire / ok 0 / invoke 0 release / ok 0", "ok"),
            ("invoke 0 acquire / ok 0 / invoke 1 acquire / ok 1", "bad"),
            ("invoke 0 steal / ok 0", "op 0: no transition of the model is named `steal`"),
        ],
    );
}

#[test]
fn what_says_nothing_is_counted_and_what_was_assumed_is_told() {
    let history =
        history("invoke 0 inc / ok 0 inc 7 / invoke 0 read / ok 0 / invoke 1 read / info 1 / invoke 0 inc / fail 0")
            .unwrap();
    let reading = read(&history, &Object::Counter, &Settings { initial: Edn::Int(6), ..Settings::default() }).unwrap();
    assert_eq!((reading.silent, reading.left_out.ops_consumed(), reading.problems[0].ops().len()), (1, 3, 1));
    assert!(reading.assumptions[0].contains("`inc`"), "{:?}", reading.assumptions);
}

/// Whatever a history holds, it is read or refused, and decided or not: nothing fails.
#[test]
fn no_reader_and_no_model_fails_on_odd_histories() {
    const FS: [&str; 22] = [
        "read",
        "write",
        "cas",
        "add",
        "inc-and-get",
        "get_and_add",
        "enqueue",
        "dequeue",
        "drain",
        "acquire",
        "release",
        "renew",
        "append",
        "get",
        "put",
        "delete",
        "contains",
        "remove",
        "transfer",
        "txn",
        "dec",
        "cas-version",
    ];
    const VALUES: [&str; 26] = [
        "nil",
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "-9223372036854775792",
        "99999999999999999999",
        ":a",
        "\"x\"",
        "\"\"",
        "true",
        "false",
        "[]",
        "[1 2]",
        "[nil 1]",
        "[0 [1 2]]",
        "[[:r :x 1] [:w :y 2]]",
        "#{1 2}",
        "{}",
        "{:key 1, :value 2}",
        "{:from 0, :to 1, :amount 9223372036854775807}",
        "{:client :a, :fence 3, :ttl 5}",
        "{0 5, 1 nil}",
        "{:offset 0}",
        "[1 true]",
    ];
    let door = Transition { from: None, f: "read".into(), input: None, output: Some("1".into()), to: None };
    let objects = [
        Object::MultiRegister,
        Object::VersionedRegister,
        Object::Map,
        Object::Mutex,
        Object::ReentrantMutex,
        Object::FencedMutex,
        Object::Semaphore,
        Object::Lease,
        Object::Counter,
        Object::FifoQueue,
        Object::PriorityQueue,
        Object::Stack,
        Object::UnorderedQueue,
        Object::Set,
        Object::GrowSet,
        Object::Log,
        Object::AppendList,
        Object::Bank,
        Object::Table(Table::new(vec!["s".into()], 0, vec![door]).unwrap()),
    ];
    let mut random = crate::linear::tests::Random(crate::linear::tests::seed());
    let mut decided = vec![0; objects.len()];
    for _ in 0..20_000 {
        let mut any = |list: &[&'static str]| list[random.below(list.len() as u64) as usize];
        let (f, g) = (any(&FS), any(&FS));
        let mut text = String::new();
        for i in 0..4 {
            let (value, result) = (any(&VALUES), any(&VALUES));
            let f = any(&[f, g]);
            let end = any(&["ok", "ok", "fail", "info"]);
            let time = any(&["0", "1", "2"]);
            text += &format!("invoke {i} {f} {value} @{}{time} / {end} {i} {f} {result} @{}{time}\n", 2 * i, 2 * i + 1);
        }
        let Ok(history) = history(&text) else { continue };
        for (object, decided) in objects.iter().zip(&mut decided) {
            for initial in ["nil", any(&VALUES)] {
                let initial = elench_formats::edn::parse(initial).unwrap();
                let Ok(reading) = read(&history, object, &Settings { initial, ..Settings::default() }) else {
                    continue;
                };
                let evidence = Evidence { cross_check: true, ..Evidence::default() };
                let outcome = check_keys(&reading.problems, &Budget::unlimited().threads(1), &evidence);
                let why = format!("{outcome:?}");
                assert!(!why.contains("panicked") && !why.contains("fault"), "{object:?} {text}: {why}");
                *decided += 1;
            }
        }
    }
    println!("{decided:?}");
    assert!(decided.iter().all(|n| *n > 50), "{decided:?}");
}
