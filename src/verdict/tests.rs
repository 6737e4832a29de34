//! A row for every branch of the tree, every cap, and every question of blame.

use super::audit::{Answer, Audited, RedFlag, WeakOracle};
use super::blame::{Blame, BugType, FaultClass, Ground, Question, Severity, blame, bug_type, severity};
use super::session::{Session, concerns, of_arms, of_scenarios, of_seeds};
use super::*;

fn answered<T: Copy>(items: &[T], answer: Answer) -> Vec<Audited<T>> {
    items.iter().map(|item| Audited { item: *item, answer, looked_at: "the evidence".into() }).collect()
}

/// A run under a proven fault, checked in full, with nothing wrong.
fn clean() -> Facts {
    Facts {
        reached: true,
        missing: None,
        violations: 0,
        rerun: Rerun::NotMade("nothing failed".into()),
        fault_planned: true,
        landing: Landing::Proven("120 packets dropped".into()),
        checking: Checking::All,
        weak: None,
        budgets: Budgets::default(),
        given: Budget { duration_sec: Some(60), ops: Some(30_000), faults: Some(1), seeds: Some(3) },
        red_flags: answered(&RedFlag::ALL, Answer::No),
        weak_oracle: answered(&WeakOracle::ALL, Answer::No),
    }
}

fn of(change: impl FnOnce(&mut Facts)) -> Verdict {
    let mut facts = clean();
    change(&mut facts);
    classify(&facts).verdict
}

#[test]
fn every_branch_of_the_tree() {
    let ambiguous = || Landing::Ambiguous("within the noise".into());
    let absent = || Landing::Absent("no packet".into());
    type Row = (Verdict, Box<dyn FnOnce(&mut Facts)>);
    let rows: Vec<Row> = vec![
        (Verdict::PassHardening, Box::new(|_| {})),
        (Verdict::InconclusiveEnv, Box::new(|f| f.missing = Some("nft".into()))),
        (Verdict::NotRun, Box::new(|f| f.reached = false)),
        (Verdict::FailNondeterministic, Box::new(|f| f.violations = 1)),
        (Verdict::FailNondeterministic, Box::new(|f| (f.violations, f.rerun) = (1, Rerun::Made { runs: 3, shown: 0 }))),
        (Verdict::FailReproducible, Box::new(|f| (f.violations, f.rerun) = (1, Rerun::Made { runs: 3, shown: 1 }))),
        (Verdict::FaultNotProven, Box::new(move |f| f.landing = absent())),
        (Verdict::FaultNotProven, Box::new(move |f| f.landing = ambiguous())),
        (Verdict::PartialSurface, Box::new(|f| f.checking = Checking::DidNotRun("crashed".into()))),
        (Verdict::PartialSurface, Box::new(|f| f.checking = Checking::DecidedNothing("out of time".into()))),
        (Verdict::OracleTooWeak, Box::new(|f| f.weak = Some("no invocation times".into()))),
        (Verdict::PartialModel, Box::new(|f| f.checking = Checking::Part("3 of 5 keys".into()))),
        (Verdict::PassSmoke, Box::new(|f| f.fault_planned = false)),
    ];
    for (i, (expected, change)) in rows.into_iter().enumerate() {
        assert_eq!(of(change), expected, "row {i}");
    }
}

#[test]
fn a_violation_takes_precedence_over_all_that_happened_during_the_run() {
    let all_wrong = |f: &mut Facts| {
        f.violations = 1;
        f.landing = Landing::Absent("nothing".into());
        f.checking = Checking::Part("half".into());
        f.weak = Some("no nodes".into());
        f.red_flags = answered(&RedFlag::ALL, Answer::Yes);
    };
    assert_eq!(of(all_wrong), Verdict::FailNondeterministic);
}

#[test]
fn an_unproven_fault_comes_before_what_the_checker_did_and_a_weak_history_before_a_partial_one() {
    let (gone, part) = (|| Landing::Absent("nothing".into()), || Checking::Part("half".into()));
    assert_eq!(of(|f| (f.landing, f.checking) = (gone(), part())), Verdict::FaultNotProven);
    assert_eq!(of(|f| (f.weak, f.checking) = (Some("no times".into()), part())), Verdict::OracleTooWeak);
    let not_run = |f: &mut Facts| (f.weak, f.checking) = (Some("x".into()), Checking::DidNotRun("y".into()));
    assert_eq!(of(not_run), Verdict::PartialSurface);
}

#[test]
fn each_red_flag_and_each_weak_oracle_takes_the_pass_away_and_is_named() {
    for flag in RedFlag::ALL {
        let mut facts = clean();
        facts.red_flags.iter_mut().filter(|a| a.item == flag).for_each(|a| a.answer = Answer::Yes);
        let out = classify(&facts);
        assert_eq!(out.verdict, flag.state());
        assert!(!out.verdict.is_pass() && out.because.iter().any(|b| b.contains(flag.about())), "{out:?}");
    }
    for item in WeakOracle::ALL {
        let mut facts = clean();
        facts.weak_oracle.iter_mut().filter(|a| a.item == item).for_each(|a| a.answer = Answer::Yes);
        let out = classify(&facts);
        assert_eq!(out.verdict, item.state());
        assert!(!out.verdict.is_pass() && out.because.iter().any(|b| b.contains(item.about())), "{out:?}");
    }
}

#[test]
fn an_item_that_nobody_checked_or_listed_bars_hardening_and_leaves_smoke() {
    assert_eq!(of(|f| f.weak_oracle[0].answer = Answer::Unchecked), Verdict::PassSmoke);
    assert_eq!(of(|f| f.red_flags[0].answer = Answer::Unchecked), Verdict::PassSmoke);
    assert_eq!(of(|f| f.weak_oracle.clear()), Verdict::PassSmoke);
    assert_eq!(of(|f| f.weak_oracle[0].answer = Answer::NotApplicable), Verdict::PassHardening);
}

#[test]
fn the_tier_that_was_met_caps_the_pass_and_stands_beside_it() {
    let ops = |n| Some(Budget { ops: Some(n), ..Budget::default() });
    let mut facts = clean();
    facts.budgets = Budgets { smoke: ops(1_000), hardening: ops(20_000), release: ops(1_000_000) };
    let met = |facts: &Facts| (classify(facts).verdict, classify(facts).tier);
    assert_eq!(met(&facts), (Verdict::PassHardening, Some(Tier::Hardening)));
    facts.given.ops = Some(1_000_000);
    assert_eq!(met(&facts), (Verdict::PassHardening, Some(Tier::Release)));
    facts.given.ops = Some(19_999);
    assert_eq!(met(&facts), (Verdict::PassSmoke, Some(Tier::Smoke)));
    assert!(classify(&facts).because.iter().any(|b| b.contains("19999 of 20000 operations")));
    facts.given.ops = Some(999);
    assert_eq!(met(&facts), (Verdict::PartialModel, None));
    facts.budgets = Budgets::default();
    assert_eq!(met(&facts), (Verdict::PassHardening, Some(Tier::Hardening)), "without budgets nothing is asked for");
    facts.given = Budget::default();
    facts.budgets.hardening = Some(Budget { seeds: Some(3), ..Budget::default() });
    assert_eq!(met(&facts), (Verdict::PassSmoke, Some(Tier::Smoke)), "what was not recorded was not given");
}

#[test]
fn every_state_has_a_name_of_its_own_that_reads_back() {
    for v in Verdict::ALL {
        assert_eq!(Verdict::from_name(v.name()), Some(v));
        assert_eq!(serde_json::to_value(v).unwrap(), serde_json::json!(v.name()));
    }
    let mut ranks: Vec<u8> = Verdict::ALL.iter().map(|v| v.rank()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    assert_eq!(ranks.len(), 10);
}

#[test]
fn the_worst_arm_counts_and_one_that_was_not_run_or_partial_caps_at_partial_surface() {
    use Verdict::*;
    for (arms, expected) in [
        (vec![], NotRun),
        (vec![PassHardening, PassHardening], PassHardening),
        (vec![PassHardening, PassSmoke], PassSmoke),
        (vec![PassHardening, NotRun], PartialSurface),
        (vec![PassHardening, PartialModel], PartialSurface),
        (vec![PassHardening, FaultNotProven], FaultNotProven),
        (vec![NotRun, FaultNotProven], FaultNotProven),
        (vec![NotRun, NotRun], NotRun),
        (vec![PassHardening, NotRun, FailNondeterministic], FailNondeterministic),
        (vec![FailNondeterministic, FailReproducible], FailReproducible),
    ] {
        assert_eq!(of_arms(&arms), expected, "{arms:?}");
    }
}

#[test]
fn of_several_seeds_a_failure_counts_then_what_is_unsound_then_the_last() {
    use Verdict::*;
    for (runs, missing, expected) in [
        (vec![(PassSmoke, true), (PassSmoke, true), (PassHardening, true)], false, PassHardening),
        (vec![(PartialModel, true), (PartialModel, true), (PassHardening, true)], false, PassHardening),
        (vec![(FaultNotProven, false), (PassHardening, true)], false, FaultNotProven),
        (vec![(PassHardening, true), (FailNondeterministic, false)], false, FailNondeterministic),
        (vec![(PassHardening, true)], true, PartialModel),
        (vec![(FaultNotProven, false)], true, FaultNotProven),
        (vec![], true, NotRun),
    ] {
        assert_eq!(of_seeds(&runs, missing), expected, "{runs:?}");
    }
}

#[test]
fn a_session_is_what_its_scenarios_are() {
    use Verdict::*;
    for (scenarios, blocked, expected) in [
        (vec![PassHardening, FailReproducible], false, Session::Fail),
        (vec![PassHardening, PassSmoke], false, Session::Done),
        (vec![PassHardening, FailNondeterministic], false, Session::DoneWithConcerns),
        (vec![PassSmoke, NotRun], false, Session::DoneWithConcerns),
        (vec![PartialSurface, FailNondeterministic], false, Session::Inconclusive),
        (vec![InconclusiveEnv, NotRun], false, Session::Blocked),
        (vec![], false, Session::Blocked),
        (vec![PassSmoke], true, Session::Blocked),
    ] {
        assert_eq!(of_scenarios(&scenarios, blocked), expected, "{scenarios:?}");
    }
    let named = [("a", PassSmoke), ("b", PartialModel), ("c", FailNondeterministic)];
    assert_eq!(concerns(&named).iter().map(|c| c.0).collect::<Vec<_>>(), ["c", "b"]);
}

fn ground(question: Question, answer: Option<bool>) -> Ground {
    Ground { question, answer, looked_at: "it".into() }
}

#[test]
fn the_system_is_blamed_only_when_checker_record_and_hosts_are_cleared() {
    let good = [
        ground(Question::CertificateHolds, Some(true)),
        ground(Question::HistoryWellFormed, Some(true)),
        ground(Question::HostsSteady, Some(true)),
    ];
    assert_eq!(blame(&good), Blame::Sut);
    for missing in 0..good.len() {
        let mut some = good.to_vec();
        some[missing].answer = None;
        let Blame::Unknown(pending) = blame(&some) else { panic!("{some:?}") };
        assert!(!pending.is_empty());
    }
    assert!(matches!(blame(&[]), Blame::Unknown(_)));
}

#[test]
fn a_ground_that_accuses_decides_and_the_checker_comes_first() {
    let rows = [
        (Question::SecondChecker, Blame::Checker),
        (Question::CertificateHolds, Blame::Checker),
        (Question::KnownGoodAccepted, Blame::Checker),
        (Question::HistoryWellFormed, Blame::Harness),
        (Question::HarnessWithinContract, Blame::Harness),
        (Question::RecorderAgrees, Blame::Harness),
        (Question::HostsSteady, Blame::Environment),
    ];
    for (question, expected) in &rows {
        assert_eq!(blame(&[ground(*question, Some(false))]), *expected);
    }
    let both = [ground(Question::HostsSteady, Some(false)), ground(Question::SecondChecker, Some(false))];
    assert_eq!(blame(&both), Blame::Checker);
    let another = [ground(Question::OtherWorkload, Some(false))];
    assert!(matches!(blame(&another), Blame::Unknown(_)), "that another workload does not show it decides nothing");
}

#[test]
fn type_and_severity_follow_from_the_fault_and_from_what_users_saw() {
    assert_eq!(bug_type(FaultClass::Partition, true), BugType::Partition);
    assert_eq!(bug_type(FaultClass::Crash, true), BugType::CrashRecovery);
    assert_eq!(bug_type(FaultClass::None, true), BugType::Ordering);
    assert_eq!(bug_type(FaultClass::None, false), BugType::Performance);
    assert_eq!(severity(true, Some(true), false), Severity::P0);
    assert_eq!(severity(false, Some(false), true), Severity::P1);
    assert_eq!(severity(false, Some(true), true), Severity::P2);
    assert_eq!(severity(false, Some(true), false), Severity::P3);
    assert_eq!(severity(false, None, true), Severity::P2);
}
