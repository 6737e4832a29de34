//! Models by name, guessed, and of a user's own.

#![allow(clippy::unwrap_used)]

use elench::check::{BadRequest, CheckOptions, Found, MODELS, Report, Valid, check};
use elench_checkers::Budget;
use elench_checkers::workload::guess;
use elench_formats::notation::history;

fn options(model: Option<&str>, initial: &str) -> CheckOptions {
    CheckOptions {
        checkers: vec!["linear".into()],
        model: model.map(Into::into),
        initial: elench_formats::edn::parse(initial).unwrap(),
        cross_check: true,
        budget: Budget::unlimited(),
        examples: 1,
        ..CheckOptions::default()
    }
}

fn checked(model: Option<&str>, initial: &str, text: &str) -> Result<Report, BadRequest> {
    check("history", &history(text).unwrap(), &options(model, initial))
}

#[test]
fn every_model_that_is_listed_can_be_used() {
    let done = |name: &str| match name {
        "register" | "cas-register" => "invoke 0 write 1 / ok 0",
        "multi-register" => "invoke 0 txn [[:w :x 1]] / ok 0",
        "versioned-register" => "invoke 0 write [nil 1] / ok 0 write [1 1]",
        "map" => "invoke 0 put {:key :a, :value 1} / ok 0 / invoke 0 get :a / ok 0 get 1",
        "lease" => "invoke 0 acquire {:ttl 5} @0 / ok 0 @1",
        name if name.contains("mutex") || name == "semaphore" => "invoke 0 acquire / ok 0",
        "counter" | "set" | "grow-set" => "invoke 0 add 1 / ok 0",
        "log" | "append-list" => "invoke 0 append 1 / ok 0",
        "bank" => "invoke 0 transfer {:from 0, :to 1, :amount 1} / ok 0",
        _ => "invoke 0 enqueue 1 / ok 0",
    };
    for model in MODELS {
        let initial = if model.name == "semaphore" { "1" } else { "nil" };
        let report = checked(Some(model.name), initial, done(model.name)).unwrap();
        assert_eq!(report.valid, Valid::Yes, "{}: {:?}", model.name, report.why);
        elench_formats::edn::parse(model.example).unwrap_or_else(|e| panic!("{}: {e}", model.name));
    }
}

#[test]
fn an_unknown_model_or_an_initial_value_that_is_none_is_a_bad_request() {
    for (model, initial, why) in [
        ("no-such", "nil", "no model is called `no-such`: there are register"),
        ("counter", ":a", "--initial of a counter: :a is not a number"),
        ("semaphore", "nil", "the number of permits, which a semaphore needs"),
        ("bank", "[1]", "a map from accounts to balances"),
        ("no/such.toml", "nil", "no/such.toml: cannot read the model"),
    ] {
        let refused = checked(Some(model), initial, "invoke 0 add 1 / ok 0").unwrap_err();
        assert!(refused.0.contains(why), "{refused}");
    }
}

#[test]
fn what_does_not_fit_the_model_is_unknown_and_named() {
    let report = checked(Some("mutex"), "nil", "invoke 0 acquire / ok 0 / invoke 0 look / ok 0").unwrap();
    assert_eq!(report.valid, Valid::Unknown);
    assert_eq!(report.why.as_deref(), Some("not a history of a mutex: operation 2: `look` is no operation of a mutex"));
}

#[test]
fn a_guess_says_its_reason_and_takes_what_accuses_less() {
    for (text, name, model, reason) in [
        ("invoke 0 enqueue 1 / ok 0 / invoke 0 dequeue / ok 0 dequeue 1", "queue", None, "no order is assumed"),
        ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read 1", "counter", None, "reads of a number"),
        ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read [1]", "set", None, "reads that return many"),
        ("invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read #{1}", "set", None, "reads that return many"),
        ("invoke 0 add 1 / ok 0", "set", None, "no read"),
        ("invoke 0 acquire / ok 0", "mutex", Some("mutex"), "one lock without owners is assumed"),
        (
            "invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0",
            "reentrant-mutex",
            Some("reentrant-mutex"),
            "acquires again",
        ),
        (
            "invoke 0 acquire / ok 0 / invoke 1 release / ok 1 / invoke 0 acquire / ok 0",
            "mutex",
            None,
            "releases what it has not acquired",
        ),
        (
            "invoke 0 acquire / ok 0 / invoke 0 acquire / ok 0 / invoke 0 release / ok 0 / invoke 0 release / ok 0",
            "reentrant-mutex",
            Some("reentrant-mutex"),
            "acquires again",
        ),
        (
            "invoke 0 append 5 / ok 0 append [0 5] / invoke 0 read {:from 0, :to 1} / ok 0 read [5]",
            "log",
            None,
            "reads at some place",
        ),
        (
            "invoke 0 read [nil nil] / ok 0 read [0 nil] / invoke 0 cas [nil [1 2]] / fail 0",
            "versioned-register",
            None,
            "no write of [nil value]",
        ),
        ("invoke 0 cas [1 2] / fail 0 / invoke 0 read / ok 0", "cas-register", Some("cas-register"), "cas, read"),
        ("invoke 0 acquire / ok 0 acquire {:fence 3}", "fenced-mutex", Some("fenced-mutex"), "fencing tokens"),
        ("invoke 0 acquire {:ttl 3} / ok 0", "lease", Some("lease"), "time to live"),
        ("invoke 0 acquire {:permits 3} / ok 0", "semaphore", None, "--initial"),
        ("invoke 0 append 5 / ok 0 append 0 / invoke 0 read 0 / ok 0 read 5", "log", None, "offsets"),
        (
            "invoke 0 append 5 / ok 0 / invoke 0 read / ok 0 read [5]",
            "append-list",
            Some("append-list"),
            "return lists",
        ),
        ("invoke 0 put [:a 5] / ok 0 / invoke 0 get :a / ok 0 get 5", "map", Some("map"), "put, get"),
        ("invoke 0 write [nil 5] / ok 0 write [1 5]", "versioned-register", Some("versioned-register"), "[nil value]"),
        ("invoke 0 read / ok 0 read {0 1}", "bank", None, "balances"),
        ("invoke 0 txn [[:w :x 1]] / ok 0", "rw-register", None, "registers"),
        ("invoke 0 send 1 / ok 0 / invoke 0 poll / ok 0 poll 1", "log", None, "send"),
        ("invoke 0 send [[:send :x 1]] / ok 0 send [[:send :x [0 1]]]", "kafka", None, "[:send k v]"),
        ("invoke 0 poll [[:poll]] / ok 0 poll [[:poll {:x [[0 1]]}]]", "kafka", None, "[:poll {k"),
    ] {
        let workload = guess(&history(text).unwrap());
        assert_eq!((workload.name, workload.model), (name, model), "{text}");
        assert!(workload.why.contains(reason), "{}", workload.why);
    }
    let out_of_order = "invoke 0 enqueue 1 / ok 0 / invoke 0 enqueue 2 / ok 0 / invoke 0 dequeue / ok 0 dequeue 2 / invoke 0 dequeue / ok 0 dequeue 1";
    assert_eq!(checked(Some("unordered-queue"), "nil", out_of_order).unwrap().valid, Valid::Yes);
    assert_eq!(checked(Some("fifo-queue"), "nil", out_of_order).unwrap().valid, Valid::No);
}

#[test]
fn a_table_in_toml_is_a_model() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let model = r#"
        name = "door"
        initial = "shut"

        [[transition]]
        from = "shut"
        f = "open"
        output = true
        to = "open"

        [[transition]]
        from = "open"
        f = "open"
        output = false

        [[transition]]
        from = ["open", "shut"]
        f = "close"
        input = ":gently"
        to = "shut"

        [[transition]]
        from = "*"
        f = "pass"
    "#;
    std::fs::write(file.path(), model).unwrap();
    let path = file.path().to_str();
    for (text, expected) in [
        ("invoke 0 open / ok 0 open true / invoke 0 open / ok 0 open false", Valid::Yes),
        ("invoke 0 open / ok 0 open true / invoke 0 open / ok 0 open true", Valid::No),
        ("invoke 0 open / info 0 / invoke 1 open / ok 1 open false / invoke 1 close :gently / ok 1", Valid::Yes),
        ("invoke 0 close :hard / ok 0", Valid::No),
        ("invoke 0 pass 7 / ok 0", Valid::Yes),
    ] {
        let report = checked(path, "nil", text).unwrap();
        assert_eq!(report.valid, expected, "{text}: {:?}", report.why);
        let Found::Linear(linear) = &report.findings[0].result else { panic!("linear ran") };
        assert_eq!(linear.case.model, "door");
    }
    std::fs::write(file.path(), "initial = \"shut\"\n[[transition]]\nfrom = \"shut\"\nf = 3\n").unwrap();
    let refused = checked(path, "nil", "invoke 0 pass / ok 0").unwrap_err();
    assert!(refused.0.ends_with(": line 4: a string is needed, not integer"), "{refused}");
}
