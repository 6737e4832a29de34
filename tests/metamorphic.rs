//! What says nothing about linearizability changes no verdict: names of processes, keys and values, what time it was, a key that
//! nobody else uses, crashed writes that nobody saw. Each history is generated, correct or broken, changed, and judged again.

#![allow(clippy::unwrap_used)]

use elench::check::{CheckOptions, Found, Valid, check};
use elench::generate::{Fault, GenOptions, Values, Workload, generate};
use elench_checkers::Budget;
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Process, Span, TextId};
use elench_formats::{History, Value};

/// The verdict, and the keys that are violated.
fn judge(history: &History) -> (Valid, Vec<String>) {
    let options = CheckOptions {
        checkers: vec!["linear".into()],
        model: Some("cas-register".into()),
        initial: Value::Nil,
        cross_check: true,
        budget: Budget::unlimited().threads(1),
        examples: 1,
        ..CheckOptions::default()
    };
    let report = check("", history, &options).unwrap();
    let Found::Linear(linear) = &report.findings[0].result else { panic!("{:?}", report.findings[0].result) };
    let key = |v: &elench_checkers::outcome::Violation| match &v.certificate {
        Some(elench_checkers::outcome::Certificate::Stuck(stuck)) => {
            stuck.key.map(|k| linear.case.keys[k.0 as usize].to_string())
        }
        _ => None,
    };
    let mut keys: Vec<String> = linear.outcome.violations().iter().filter_map(key).collect();
    keys.sort();
    (report.valid, keys)
}

fn build(options: &GenOptions, change: &dyn Fn(&mut EventBatch)) -> History {
    let lift = Lift::Always;
    let mut builder =
        HistoryBuilder::new(BuildOptions { lift, format: "gen".into(), real_time: true, ..BuildOptions::default() });
    // One batch, so that a change sees the history whole.
    let mut whole = EventBatch::default();
    generate(options, &mut |batch| {
        for i in 0..batch.len() {
            let range = |span: Span| span.start as usize..(span.start + span.len) as usize;
            let value = match batch.value[i] {
                Cell::List(span) => {
                    let start = whole.ints.len() as u32;
                    whole.ints.extend_from_slice(&batch.ints[range(span)]);
                    Cell::List(Span { start, ..span })
                }
                Cell::Seq(span) => {
                    let start = whole.cells.len() as u32;
                    whole.cells.extend_from_slice(&batch.cells[range(span)]);
                    Cell::Seq(Span { start, ..span })
                }
                other => panic!("{other:?} is no pair"),
            };
            let f = batch.f[i].map(|f| whole.name(batch.texts.get(f)));
            whole.push(event(batch, i, f, value));
        }
        Ok(())
    })
    .unwrap();
    change(&mut whole);
    builder.push(&whole).unwrap();
    builder.finish().unwrap()
}

fn event(batch: &EventBatch, i: usize, f: Option<TextId>, value: Cell) -> Event {
    Event {
        place: batch.place[i],
        index: Some(batch.index[i]),
        time: Some(batch.time[i]),
        kind: batch.kind[i],
        process: batch.process[i],
        f,
        value,
    }
}

/// Changes each pair of a key and a value; a read's invocation has no value, nor has one that found none.
fn pairs(batch: &mut EventBatch, mut change: impl FnMut(&mut i64, Option<&mut i64>)) {
    for i in 0..batch.len() {
        match batch.value[i] {
            Cell::List(span) => {
                let [key, value] = &mut batch.ints[span.start as usize..][..2] else { unreachable!() };
                change(key, Some(value));
            }
            Cell::Seq(span) => {
                let Cell::Int(key) = &mut batch.cells[span.start as usize] else { unreachable!() };
                change(key, None);
            }
            _ => unreachable!(),
        }
    }
}

/// Correct and broken.
fn histories() -> impl Iterator<Item = GenOptions> {
    (0..40u64).map(|seed| {
        let faults = [None, Some(Fault::StaleRead), Some(Fault::LostWrite), Some(Fault::DirtyFail)];
        GenOptions {
            seed,
            ops: 400,
            clients: 5,
            keys: 3,
            independent: true,
            info: if seed % 3 == 0 { 0.02 } else { 0.0 },
            fail: 0.02,
            values: Values::Unique,
            fault: faults[seed as usize % 4],
            ..GenOptions::new(Workload::Register)
        }
    })
}

#[test]
fn what_says_nothing_changes_no_verdict() {
    let mut seen = [0; 2];
    for options in histories() {
        let (verdict, keys) = judge(&build(&options, &|_| {}));
        seen[usize::from(verdict == Valid::No)] += 1;
        let same = |what: &str, change: &dyn Fn(&mut EventBatch)| {
            let (changed, changed_keys) = judge(&build(&options, change));
            assert_eq!((changed, changed_keys.len()), (verdict, keys.len()), "{what}, seed {}", options.seed);
            changed_keys
        };
        let named = same("processes renamed", &|batch| {
            for process in &mut batch.process {
                if let Process::Client(p) = process {
                    *process = Process::Client(1_000_003 - 7 * *p);
                }
            }
        });
        assert_eq!(named, keys);
        let named = same("times shifted and stretched", &|batch| batch.time.iter_mut().for_each(|t| *t = 17 + 3 * *t));
        assert_eq!(named, keys);
        let permuted = same("keys permuted", &|batch| {
            pairs(batch, |key, _| *key = (*key + 1) % 3);
        });
        let mut expected: Vec<String> =
            keys.iter().map(|k| ((k.parse::<i64>().unwrap() + 1) % 3).to_string()).collect();
        expected.sort();
        assert_eq!(permuted, expected);
        same("values renamed", &|batch| {
            pairs(batch, |_, value| value.into_iter().for_each(|v| *v = 5_000_000 - 3 * *v));
        });
    }
    println!("{seen:?} valid and invalid");
    assert!(seen[0] >= 8 && seen[1] >= 20, "{seen:?}");
}

#[test]
fn a_key_that_nobody_else_uses_and_crashed_writes_that_nobody_saw_change_no_verdict() {
    for options in histories() {
        let (verdict, keys) = judge(&build(&options, &|_| {}));
        let with = |process: i64, key: i64, kinds: &'static [EventType], value: i64| {
            judge(&build(&options, &move |batch| {
                let write = batch.name("write");
                for &kind in kinds {
                    let start = batch.ints.len() as u32;
                    batch.ints.extend([key, value]);
                    let index = Some(batch.index.last().unwrap() + 1);
                    let time = Some(*batch.time.last().unwrap());
                    let value = Cell::List(Span { start, len: 2 });
                    let (process, f) = (Process::Client(process), Some(write));
                    batch.push(Event { place: 1_000_000, index, time, kind, process, f, value });
                }
            }))
        };
        assert_eq!(with(-5, 99, &[EventType::Invoke, EventType::Ok], 1), (verdict, keys.clone()));
        assert_eq!(with(-6, 0, &[EventType::Invoke, EventType::Info], 77_777), (verdict, keys.clone()));
        assert_eq!(with(-7, 1, &[EventType::Invoke], 88_888), (verdict, keys));
    }
}
