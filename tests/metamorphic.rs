//! What says nothing about linearizability changes no verdict: names of processes, keys and values, what time it was, a key that
//! nobody else uses, crashed writes that nobody saw. Nor do such things change which anomalies of transactions there are, and how
//! many: nor reads that agree with what others read at the time, nor the format that a history was written in. Each history is
//! generated, correct or broken, changed, and judged again.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "what happened is known by another test")]
mod simulated;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use elench::check::{CheckOptions, Found, Valid, check};
use elench::isolation::Asked;
use elench_checkers::Budget;
use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Process, Span, TextId};
use elench_formats::notation;
use elench_formats::open::{OpenOptions, open, open_bytes};
use elench_formats::write::{Target, to_file};
use elench_formats::{History, Value};
use elench_generate::{Fault as Injected, GenOptions, Values, Workload, generate};
use simulated::{Fault, Level, Plan, run};

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
        let faults = [None, Some(Injected::StaleRead), Some(Injected::LostWrite), Some(Injected::DirtyFail)];
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

/// An event of a transaction, as text.
#[derive(Clone)]
struct Said {
    kind: &'static str,
    process: i64,
    mops: Vec<MicroOperation>,
}

#[derive(Clone)]
struct MicroOperation {
    f: String,
    key: String,
    value: What,
}

#[derive(Clone)]
enum What {
    Nothing,
    One(String),
    List(Vec<String>),
}

fn said(text: &str) -> Vec<Said> {
    let kinds = ["invoke", "ok", "fail", "info"];
    let line = |line: &str| {
        let [kind, process, _, value] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let mops = elench_formats::edn::parse(value).unwrap();
        Said {
            kind: kinds.into_iter().find(|k| *k == kind).unwrap(),
            process: process.parse().unwrap(),
            mops: mops.as_vector().unwrap().iter().map(micro_operation).collect(),
        }
    };
    text.lines().map(line).collect()
}

fn micro_operation(value: &Value) -> MicroOperation {
    let Some([Value::Keyword(f), key, value]) = value.as_vector() else { panic!("{value:?}") };
    let value = match value {
        Value::Nil => What::Nothing,
        Value::Vector(items) => What::List(items.iter().map(Value::to_edn).collect()),
        other => What::One(other.to_edn()),
    };
    MicroOperation { f: f.to_string(), key: key.to_edn(), value }
}

fn notation_of(events: &[Said]) -> String {
    let mut out = String::new();
    for Said { kind, process, mops } in events {
        let _ = write!(out, "{kind} {process} txn [");
        for MicroOperation { f, key, value } in mops {
            let value = match value {
                What::Nothing => "nil".into(),
                What::One(value) => value.clone(),
                What::List(items) => format!("[{}]", items.join(" ")),
            };
            let _ = write!(out, "[:{f} {key} {value}]");
        }
        out.push_str("]\n");
    }
    out
}

/// How many there are of each anomaly.
type Anomalies = BTreeMap<&'static str, u64>;

fn anomalies(history: &History, workload: simulated::Workload) -> Anomalies {
    let options = CheckOptions {
        checkers: vec!["isolation".into()],
        workload: Some(if workload == simulated::Workload::Lists { "list-append" } else { "rw-register" }.into()),
        asked: Asked { all: true, ..Asked::default() },
        budget: Budget::unlimited().threads(1),
        ..CheckOptions::default()
    };
    let report = check("", history, &options).unwrap();
    let Found::Isolation(found) = &report.findings[0].result else { panic!("{:?}", report.findings[0].result) };
    found.result.findings.iter().map(|(kind, f)| (kind.name(), f.count)).collect()
}

fn of_events(events: &[Said], workload: simulated::Workload) -> Anomalies {
    anomalies(&notation::history(&notation_of(events)).unwrap(), workload)
}

/// Every level, and every fault in one that has it.
const KINDS: [(Level, Option<Fault>); 9] = [
    (Level::SerializableSnapshots, None),
    (Level::Snapshot, None),
    (Level::ReadCommitted, None),
    (Level::ReadUncommitted, None),
    (Level::Snapshot, Some(Fault::LostUpdate)),
    (Level::ReadCommitted, Some(Fault::DirtyRead)),
    (Level::Serial, Some(Fault::StaleSnapshot)),
    (Level::Serial, Some(Fault::FracturedRead)),
    (Level::Serial, Some(Fault::LongFork)),
];

/// Runs of each kind and workload.
fn runs(each: u64) -> impl Iterator<Item = (Plan, Vec<Said>, Anomalies)> {
    let workloads = [simulated::Workload::Lists, simulated::Workload::Registers];
    let plans = workloads.into_iter().flat_map(move |workload| {
        KINDS.into_iter().flat_map(move |(level, fault)| {
            (0..each).map(move |seed| {
                let (clients, keys, fresh) = (3 + seed % 4, 2 + seed % 3, [0, 8][seed as usize % 2]);
                Plan { seed, workload, level, fault, clients, keys, fresh, txns: 60 }
            })
        })
    });
    plans.map(|plan| {
        let events = said(&run(plan).text);
        let before = of_events(&events, plan.workload);
        (plan, events, before)
    })
}

fn rename(events: &[Said], key: impl Fn(&str) -> String, value: impl Fn(&str) -> String) -> Vec<Said> {
    let mut events = events.to_vec();
    for mop in events.iter_mut().flat_map(|e| &mut e.mops) {
        mop.key = key(&mop.key);
        match &mut mop.value {
            What::Nothing => {}
            What::One(v) => *v = value(v),
            What::List(items) => items.iter_mut().for_each(|v| *v = value(v)),
        }
    }
    events
}

/// Something of a type that depends on the number.
fn of_any_type(n: &str) -> String {
    match n.parse::<i64>().unwrap() % 6 {
        0 => format!(":k{n}"),
        1 => format!("\"{n}\""),
        2 => format!("[{n} {{:a #{{{n}}}}}]"),
        3 => format!("{n}.5"),
        4 => format!("{{:nested [[{n}] nil]}}"),
        _ => n.to_string(),
    }
}

#[test]
fn names_of_processes_keys_and_values_change_no_anomaly() {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for (plan, events, before) in runs(12) {
        before.keys().for_each(|kind| *found.entry(kind).or_default() += 1);
        let same = |what: &str, events: &[Said]| {
            assert_eq!(of_events(events, plan.workload), before, "{what}: {plan:?}\n{}", notation_of(events));
        };
        let mut others = events.clone();
        others.iter_mut().for_each(|e| e.process = 1_000_003 - 7 * e.process);
        same("processes renamed", &others);
        let number = |n: &str| n.parse::<i64>().unwrap();
        let keep = |text: &str| text.to_string();
        same("keys permuted", &rename(&events, |k| (100 - number(k)).to_string(), keep));
        same("keys of any type", &rename(&events, of_any_type, keep));
        same("values permuted", &rename(&events, keep, |v| (5_000_000_000 - 3 * number(v)).to_string()));
        same("values of any type", &rename(&events, keep, of_any_type));
        same("keys and values of any type", &rename(&events, of_any_type, of_any_type));
    }
    println!("histories with each anomaly: {found:?}");
    let few = ["G1a", "G1b", "G1c", "internal", "lost-update", "G-single-item", "G2-item", "G-nonadjacent-item"];
    few.iter().for_each(|kind| assert!(found.get(kind).is_some_and(|&n| n >= 2), "{kind}: {found:?}"));
}

/// Beside each process another one, which copies those of its transactions that only read: it reads one key as they do, invoked
/// right after them and done right before. A copy can only lie on cycles on which the original lies as well.
fn with_readers_that_agree(events: &[Said]) -> Vec<Said> {
    let copied = |event: &Said| event.kind == "ok" && event.mops.iter().all(|m| m.f == "r");
    let copy = |of: &Said, kind, nothing: bool| {
        let mut mop = of.mops[0].clone();
        if nothing {
            mop.value = What::Nothing;
        }
        Said { kind, process: 10_000 + of.process, mops: vec![mop] }
    };
    let mut out: Vec<Said> = Vec::new();
    for (i, event) in events.iter().enumerate() {
        if copied(event) {
            out.push(copy(event, "ok", false));
        }
        out.push(event.clone());
        let end = events[i + 1..].iter().find(|e| event.kind == "invoke" && e.process == event.process);
        out.extend(end.filter(|end| copied(end)).map(|end| copy(end, "invoke", true)));
    }
    out
}

#[test]
fn reads_that_agree_and_transactions_on_a_key_of_their_own_change_no_anomaly() {
    let mut more = 0;
    for (plan, events, before) in runs(12) {
        let lists = plan.workload == simulated::Workload::Lists;
        // What saw something wrong is counted once more when it is copied.
        let dirty = plan.level == Level::ReadUncommitted || plan.fault == Some(Fault::DirtyRead);
        if !dirty {
            let agreeing = with_readers_that_agree(&events);
            more += agreeing.len() - events.len();
            let after = of_events(&agreeing, plan.workload);
            assert_eq!(after, before, "readers: {plan:?}\n{}", notation_of(&agreeing));
        }
        let mut apart = Vec::new();
        let mut written: Vec<String> = Vec::new();
        for (i, event) in events.iter().enumerate() {
            apart.push(event.clone());
            if i % 5 == 4 {
                let value = format!("{}", 1_000_000 + i);
                let (f, seen) = match lists {
                    true => ("append", What::List(written.clone())),
                    false => ("w", written.last().cloned().map_or(What::Nothing, What::One)),
                };
                let mop = |f: &str, value| MicroOperation { f: f.into(), key: "unrelated".into(), value };
                let (read, write) = (mop("r", What::Nothing), mop(f, What::One(value.clone())));
                let process = -1 - (i as i64 / 5) % 2;
                apart.push(Said { kind: "invoke", process, mops: vec![read, write.clone()] });
                apart.push(Said { kind: "ok", process, mops: vec![mop("r", seen), write] });
                written.push(value);
            }
        }
        let after = of_events(&apart, plan.workload);
        assert_eq!(after, before, "unrelated: {plan:?}\n{}", notation_of(&apart));
    }
    assert!(more > 2_000, "{more} events of readers");
}

#[test]
fn formats_change_no_anomaly_and_neither_do_two_files_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &Path| open(&path.display().to_string(), &OpenOptions::default(), &|_, _| {}).unwrap();
    for (plan, events, before) in runs(2) {
        let events = if plan.seed == 0 { events } else { rename(&events, of_any_type, |v| format!("\"{v}\"")) };
        let mut history = notation::history(&notation_of(&events)).unwrap();
        for (i, target) in
            [Target::Edn, Target::Jsonl, Target::Parquet, Target::Arrow, Target::Edn].into_iter().enumerate()
        {
            let path = dir.path().join(format!("{i}.{}", target.name()));
            to_file(&history, target, &path).unwrap();
            history = read(&path);
            assert_eq!(anomalies(&history, plan.workload), before, "{}: {plan:?}", target.name());
        }
        let whole = std::fs::read_to_string(dir.path().join("4.edn")).unwrap();
        let middle = whole.match_indices('\n').nth(whole.lines().count() / 2).unwrap().0 + 1;
        let (first, second) = whole.split_at(middle);
        let files = [gzip(first), gzip(second)].concat();
        let merged = open_bytes(&files, &OpenOptions::default()).unwrap();
        assert_eq!(anomalies(&merged, plan.workload), before, "two files: {plan:?}");
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
    out.finish().unwrap()
}
