//! Transactions as simulated databases ran them: a level is never accused of breaking what it keeps, and each fault is found where
//! clients could see it, under its name, with no worse one beside it.
//!
//! `ELENCH_SEED` names the first seed, `ELENCH_RUNS` how many there are of each kind.

#![allow(clippy::unwrap_used)]

mod simulated;

use std::collections::BTreeMap;

use elench::check::{CheckOptions, Found, Valid, check};
use elench::isolation::{Asked, Isolation};
use elench_checkers::Budget;
use elench_checkers::txn::Finding;
use elench_checkers::txn::anomaly::Anomaly;
use elench_checkers::txn::lattice::{Demand, Model};
use elench_checkers::txn::register::Assumptions;
use elench_checkers::txn::verify::{order as order_holds, register_order};
use elench_formats::notation;
use simulated::oracle::Seen;
use simulated::{Fault, Level, Plan, Run, Workload, run};

const WORKLOADS: [Workload; 2] = [Workload::Lists, Workload::Registers];

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |n| n.parse().unwrap());
    let first = number("ELENCH_SEED", 0);
    first..first + number("ELENCH_RUNS", usual)
}

fn plan(seed: u64, workload: Workload, level: Level, fault: Option<Fault>) -> Plan {
    let (clients, keys, fresh) = (2 + seed % 6, 2 + seed % 4, [0, 3, 10][seed as usize % 3]);
    // Registers fork in view of clients only while they are new.
    let (keys, fresh) = if fault == Some(Fault::LongFork) { (2, 8) } else { (keys, fresh) };
    Plan { seed, workload, level, fault, clients, keys, fresh, txns: 20 + (seed % 5 * 20) as usize }
}

/// All that can be found in a run.
fn judge(run: &Run, assumptions: Assumptions) -> Isolation {
    let history = notation::history(&run.text).unwrap_or_else(|e| panic!("{e}\n{}", run.text));
    let workload = match run.plan.workload {
        Workload::Lists => "list-append",
        Workload::Registers => "rw-register",
    };
    let options = CheckOptions {
        checkers: vec!["isolation".into()],
        workload: Some(workload.into()),
        asked: Asked { all: true, assumptions, ..Asked::default() },
        budget: Budget::unlimited().threads(1),
        ..CheckOptions::default()
    };
    let report = check("", &history, &options).unwrap();
    let found = match report.findings.into_iter().next().unwrap().result {
        Found::Isolation(found) => *found,
        other => panic!("{:?}: {other:?}", run.plan),
    };
    if let Some(order) = &found.result.order {
        let holds = match run.plan.workload {
            Workload::Lists => order_holds(&history, order, true),
            Workload::Registers => register_order(&history, order, None, true),
        };
        holds.unwrap_or_else(|why| panic!("{:?}: {why}\n{}", run.plan, run.text));
    }
    found
}

fn rules_out(found: &Isolation, model: &str) -> bool {
    let model = Model::from_name(model).unwrap_or_else(|| panic!("{model}"));
    found.result.outcome(Demand::models(&[model])).is_invalid()
}

fn kinds(found: &Isolation) -> Vec<&'static str> {
    found.result.findings.keys().map(|k| k.name()).collect()
}

/// What was found, with an example of each.
fn told(found: &Isolation) -> String {
    let example = |(kind, f): (&Anomaly, &Finding)| {
        format!("{kind}: {}\n", f.examples.first().map_or(String::new(), |e| e.text()))
    };
    found.result.findings.iter().map(example).collect()
}

/// The strongest that a level keeps.
fn promise(level: Level) -> &'static str {
    match level {
        Level::Serial | Level::TwoPhase | Level::SerializableSnapshots => "strict-serializable",
        Level::Snapshot => "strong-snapshot-isolation",
        Level::ReadCommitted => "strong-PL-2",
        Level::ReadUncommitted => "strong-PL-1",
    }
}

const LEVELS: [Level; 6] = [
    Level::Serial,
    Level::TwoPhase,
    Level::SerializableSnapshots,
    Level::Snapshot,
    Level::ReadCommitted,
    Level::ReadUncommitted,
];

/// What may be assumed of each register, from least to most. Where reads see what is rolled back, nothing may.
fn assumptions(level: Level, workload: Workload) -> Vec<Assumptions> {
    let none = Assumptions::default();
    if workload == Workload::Lists || level == Level::ReadUncommitted {
        return vec![none];
    }
    let wfr = Assumptions { wfr_keys: true, ..none };
    let sequential = Assumptions { sequential_keys: true, ..none };
    let all = Assumptions { wfr_keys: true, sequential_keys: true, linearizable_keys: true, ..none };
    vec![none, wfr, sequential, all]
}

#[test]
fn no_level_is_accused_of_breaking_what_it_keeps() {
    let mut beyond: BTreeMap<(Level, &str), u32> = BTreeMap::new();
    let mut outcomes = [0; 4];
    for workload in WORKLOADS {
        for level in LEVELS {
            for seed in seeds(60) {
                let run = run(plan(seed, workload, level, None));
                run.txns.iter().for_each(|t| outcomes[t.end as usize] += 1);
                for assumptions in assumptions(level, workload) {
                    let found = judge(&run, assumptions);
                    let names = kinds(&found);
                    let accused = rules_out(&found, promise(level));
                    assert!(!accused, "{:?}, {assumptions:?}: {}\n{}", run.plan, told(&found), run.text);
                    if promise(level) == "strict-serializable" {
                        assert_eq!(found.valid, (Valid::Yes, None), "{:?}: {}\n{}", run.plan, told(&found), run.text);
                    }
                    names.into_iter().for_each(|name| *beyond.entry((level, name)).or_default() += 1);
                }
            }
        }
    }
    println!("open, ok, fail, info: {outcomes:?}; found beyond the promise: {beyond:#?}");
    assert!(outcomes[1] > 10_000 && outcomes[2] > 1_000 && outcomes[3] > 300, "{outcomes:?}");
    // What weaker levels allow does happen, or else nothing was shown of them.
    for (level, name) in [
        (Level::Snapshot, "G2-item"),
        (Level::ReadCommitted, "lost-update"),
        (Level::ReadCommitted, "G-single-item"),
        (Level::ReadUncommitted, "G1a"),
        (Level::ReadUncommitted, "G1b"),
        (Level::ReadUncommitted, "G1c"),
    ] {
        assert!(beyond.contains_key(&(level, name)), "{name} never happened under {level:?}");
    }
}

/// A fault: the level that it is put into, what is found of it, what it breaks, what it does not break.
struct Case {
    fault: Fault,
    level: Level,
    breaks: &'static str,
    keeps: &'static [&'static str],
    seen: &'static [(Seen, Anomaly)],
}

const CASES: [Case; 6] = [
    Case {
        fault: Fault::LostUpdate,
        level: Level::Snapshot,
        breaks: "snapshot-isolation",
        keeps: &["strong-PL-2"],
        seen: &[(Seen::LostUpdate, Anomaly::LostUpdate)],
    },
    Case {
        fault: Fault::DirtyRead,
        level: Level::ReadCommitted,
        breaks: "read-committed",
        keeps: &["strong-PL-1"],
        seen: &[(Seen::AbortedRead, Anomaly::G1a), (Seen::IntermediateRead, Anomaly::G1b)],
    },
    Case {
        fault: Fault::StaleSnapshot,
        level: Level::Serial,
        breaks: "strict-serializable",
        keeps: &["serializable", "strong-PL-2"],
        seen: &[(Seen::StaleSnapshot, Anomaly::GSingleItemRealtime)],
    },
    Case {
        fault: Fault::FracturedRead,
        level: Level::Serial,
        breaks: "snapshot-isolation",
        keeps: &["strong-PL-2"],
        seen: &[(Seen::FracturedRead, Anomaly::GSingleItem)],
    },
    Case {
        fault: Fault::WriteSkew,
        level: Level::SerializableSnapshots,
        breaks: "serializable",
        keeps: &["strong-snapshot-isolation"],
        seen: &[(Seen::WriteSkew, Anomaly::G2Item)],
    },
    Case {
        fault: Fault::LongFork,
        level: Level::Serial,
        breaks: "snapshot-isolation",
        keeps: &["strong-PL-2", "parallel-snapshot-isolation"],
        seen: &[(Seen::LongFork, Anomaly::GNonadjacentItem)],
    },
];

#[test]
fn every_fault_is_found_where_it_shows_and_rightly_named() {
    let mut counts: BTreeMap<(Fault, Seen, bool), u32> = BTreeMap::new();
    for case in &CASES {
        for workload in WORKLOADS {
            for seed in seeds(300) {
                let run = run(plan(seed, workload, case.level, Some(case.fault)));
                let found = judge(&run, Assumptions::default());
                let context = || format!("{:?}: {}\n{}", run.plan, told(&found), run.text);
                for &innocent in case.keeps {
                    assert!(!rules_out(&found, innocent), "{innocent} is accused: {}", context());
                }
                for seen in run.seen() {
                    let (_, name) = case.seen.iter().find(|(s, _)| *s == seen).unwrap();
                    let named = found.result.findings.keys().any(|k| k.implied().contains(*name));
                    assert!(named, "{seen:?} is not found: {}", context());
                    assert!(rules_out(&found, case.breaks), "{} is not ruled out: {}", case.breaks, context());
                    *counts.entry((case.fault, seen, workload == Workload::Lists)).or_default() += 1;
                }
            }
        }
    }
    println!("runs in which a fault showed and was found, by fault, what was seen, and whether of lists: {counts:#?}");
    for case in &CASES {
        for (seen, _) in case.seen {
            for lists in [false, true] {
                let n = counts.get(&(case.fault, *seen, lists)).copied().unwrap_or(0);
                assert!(
                    u64::from(n) >= seeds(300).count() as u64 / 100,
                    "{seen:?} showed in {n} runs only (lists: {lists})"
                );
            }
        }
    }
}
