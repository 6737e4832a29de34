mod orders;
mod refuted;

use std::collections::BTreeMap;
use std::fmt::Write;

use elench_formats::open::{OpenOptions, open_bytes};
use serde_json::Value;

use super::*;
use crate::txn::anomaly::AnomalySet;
use crate::txn::explain::Explained;
use crate::txn::lattice::tests::{ALWAYS_FOUND, corpus, kinds, strings};
use crate::txn::lattice::{Demand, Model, Relations, boundary};
use crate::txn::verify;

fn edn(v: &Value, out: &mut String) {
    match v {
        Value::Null => out.push_str("nil"),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { " " } else { "" });
                edn(item, out);
            }
            out.push(']');
        }
        other => write!(out, "{other}").unwrap(),
    }
}

/// An event without its kind.
fn fields(event: &Value) -> String {
    let process = match event["process"].as_str() {
        Some(actor) => format!(":{actor}"),
        None => event["process"].to_string(),
    };
    let mut text = format!(":process {process}, :f :txn, :value ");
    match event["value"].as_array() {
        None => text.push_str("nil"),
        Some(mops) => {
            text.push('[');
            for mop in mops {
                write!(text, "[:{} ", mop[0].as_str().unwrap()).unwrap();
                edn(&mop[1], &mut text);
                text.push(' ');
                edn(&mop[2], &mut text);
                text.push(']');
            }
            text.push(']');
        }
    }
    text
}

/// The history of a case, through the reader. A completion without an invocation gets one right before it: the
/// reference's own cases have such.
fn history(events: &Value) -> Option<History> {
    let mut text = String::new();
    let mut open = std::collections::HashSet::new();
    for event in events.as_array().unwrap() {
        let (kind, process) = (event["type"].as_str().unwrap(), event["process"].to_string());
        if kind == "invoke" {
            open.insert(process);
        } else if !open.remove(&process) {
            writeln!(text, "{{:type :invoke, {}}}", fields(event)).unwrap();
        }
        writeln!(text, "{{:type :{kind}, {}}}", fields(event)).unwrap();
    }
    open_bytes(text.as_bytes(), &OpenOptions::default()).ok()
}

fn assumptions(options: &Value) -> Assumptions {
    let on = |name: &str| options[name].as_bool().unwrap_or(false);
    Assumptions {
        commit_timestamps: false,
        wfr_keys: on("wfr-keys?"),
        sequential_keys: on("sequential-keys?"),
        linearizable_keys: on("linearizable-keys?"),
    }
}

/// Holds cycles and the order against the history.
fn holds(history: &History, assumptions: Assumptions, initial: Option<&str>, real_time: bool, result: &TxnResult) {
    let mut registers = verify::Registers::new(history, assumptions, initial);
    for example in result.findings.values().flat_map(|f| &f.examples) {
        match example {
            Explained::Cycle(cycle) => {
                registers.cycle(history, cycle).unwrap_or_else(|why| panic!("{why}: {cycle:#?}"));
            }
            Explained::Refutation(refutation) => {
                assert_eq!(registers.refutation(history, &refutation.lemmas), Ok(refutation.kind));
                assert!(refutation.lemmas.iter().flat_map(|l| &l.steps).all(|s| s.reason.is_some()));
            }
            Explained::Case(_) => {}
        }
    }
    if let Some(order) = &result.order {
        assert!(result.kinds().is_subset(EXPLAINABLE));
        verify::register_order(history, order, initial, real_time && history.meta().real_time).unwrap();
    }
}

/// Everything found, with real-time order, with that of processes, and with neither: the reference looks at one of them at a time.
struct Found([AnomalySet; 3]);

impl Found {
    fn of(history: &History, assumptions: Assumptions) -> Found {
        let run = |real_time, process| {
            let options = Options { real_time, process, ..Options::default() };
            let result = check_rw_register(history, &options, assumptions, &Budget::unlimited());
            for example in result.findings.values().flat_map(|f| &f.examples) {
                if let Explained::Cycle(cycle) = example {
                    assert!(cycle.steps.iter().all(|s| s.reason.is_some()), "{}", example.text());
                }
            }
            holds(history, assumptions, None, real_time, &result);
            result.kinds()
        };
        Found([run(true, false), run(false, true), run(false, false)])
    }

    fn under(&self, demand: Demand) -> AnomalySet {
        match (demand.needs_realtime(), demand.needs_process()) {
            (true, _) => self.0[0],
            (_, true) => self.0[1],
            _ => self.0[2],
        }
    }

    fn map(&self, f: impl Fn(AnomalySet) -> AnomalySet) -> Found {
        Found(self.0.map(f))
    }
}

/// The reference's answer to one question.
struct Asked<'a> {
    demand: Demand,
    answer: &'a Value,
    /// What it listed when asked other things about the same history.
    elsewhere: AnomalySet,
}

impl Asked<'_> {
    fn is_answered_by(&self, found: &Found) -> bool {
        let found = found.under(self.demand);
        let listed = found.intersection(self.demand.lists());
        if listed != kinds(&self.answer["anomaly_types"]) {
            return false;
        }
        let hidden = found.intersection(ALWAYS_FOUND).union(found.intersection(self.demand.prohibits()));
        let same = |more: AnomalySet| {
            let out = boundary(if listed.is_empty() { listed } else { hidden.union(more) });
            out.not.names() == strings(&self.answer["not"]) && out.also_not.names() == strings(&self.answer["also_not"])
        };
        // It rules models out by kinds, too, that it does not list.
        same(AnomalySet::EMPTY) || self.elsewhere.iter().any(|more| same(AnomalySet::of(&[more])))
    }
}

/// The history without transactions of unknown end.
fn without_infos(events: &Value) -> Value {
    let events = events.as_array().unwrap();
    let ends = |i: usize| {
        let process = &events[i]["process"];
        events[i + 1..].iter().find(|e| e["process"] == *process).map_or("info", |e| e["type"].as_str().unwrap())
    };
    let known = |(i, e): &(usize, &Value)| e["type"] != "info" && (e["type"] != "invoke" || ends(*i) != "info");
    events.iter().enumerate().filter(known).map(|(_, e)| e.clone()).collect()
}

const CYCLE_EXISTS: AnomalySet = AnomalySet::of(&[
    Anomaly::SearchTimeout,
    Anomaly::StrongSessionSiCycle,
    Anomaly::StrongSiCycle,
    Anomaly::StrongSessionPl1Cycle,
]);

/// Why an answer differs from the reference's, if there is a reason.
fn reason(case: &Value, asked: &Asked<'_>, found: &Found) -> Option<&'static str> {
    let with = assumptions(&case["options"]);
    let theirs = kinds(&asked.answer["anomaly_types"]);
    let ours = found.under(asked.demand);
    let without = |kind: Anomaly| found.map(|f| f.without(AnomalySet::of(&[kind])));
    if case["options"].get("transaction-order").is_some() {
        return Some("an order of transactions was given, which no recorder does");
    }
    if ours.contains(Anomaly::DuplicateWrites) {
        return Some("one value was written twice: named here, passed over there");
    }
    if ours.contains(Anomaly::GarbageRead) {
        return Some("a garbage read is a violation here, and passed over there");
    }
    let shown = AnomalySet::of(&SERIAL.map(|(.., kind)| kind)).intersection(ours);
    if !shown.is_empty() && asked.is_answered_by(&found.map(|f| f.without(shown))) {
        return Some(
            "no order of all transactions explains the reads, by a proof that holds; it looks only at inferred orders of versions",
        );
    }
    if ours.contains(Anomaly::FutureRead) && asked.is_answered_by(&without(Anomaly::FutureRead)) {
        return Some("a read of one's own later write is not looked for there");
    }
    if ours.contains(Anomaly::DirtyUpdate) && asked.is_answered_by(&without(Anomaly::DirtyUpdate)) {
        return Some("a dirty update of a register is not looked for there");
    }
    if !theirs.intersection(CYCLE_EXISTS).is_empty() {
        return Some("its search timed out; the kind is decided here");
    }
    if asked.is_answered_by(&without(Anomaly::EmptyGraph)) {
        return Some("its graph is not empty for it holds failed transactions");
    }
    let more = found.map(|f| f.union(AnomalySet::of(&[Anomaly::LostUpdate])));
    if theirs.contains(Anomaly::LostUpdate) && asked.is_answered_by(&more) {
        return Some("its lost update takes one who read its own write for a reader of another's version");
    }
    let history_without = history(&without_infos(&case["history"]));
    if let Some(history) = history_without.filter(|h| case["history"].as_array().unwrap().len() > 2 * h.len()) {
        let found = Found::of(&history, with).map(|f| f.without(AnomalySet::of(&[Anomaly::GarbageRead])));
        if asked.is_answered_by(&found) {
            return Some("a transaction of unknown end takes part here as somebody read its write");
        }
    }
    if ours.contains(Anomaly::CyclicVersions) {
        let history = history(&case["history"])?;
        for fewer in [Assumptions { linearizable_keys: false, ..with }, Assumptions::default()] {
            let cyclic = AnomalySet::of(&[Anomaly::CyclicVersions]);
            if asked.is_answered_by(&Found::of(&history, fewer).map(|f| f.union(cyclic))) {
                return Some("it gives up a source for all keys when one is cyclic");
            }
        }
    }
    let completions = case["history"].as_array().unwrap().iter().filter(|e| e["type"] != "invoke").count();
    if case["history"].as_array().unwrap().len() < 2 * completions {
        return Some("completions without invocations, which got some here, have no real-time order there");
    }
    if theirs.is_subset(ours.implied()) && ours.contains(Anomaly::CyclicVersions) {
        return Some("one more cycle, or a worse one, beside cyclic versions; each of its steps has its reason");
    }
    None
}

#[test]
fn answers_are_those_of_the_reference_or_differ_for_a_reason() {
    let (mut agree, mut histories, mut malformed) = (0, 0, 0);
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for file in ["elle-cases.jsonl", "fuzz-rw-register.jsonl.gz"] {
        let Some(lines) = corpus(file) else { continue };
        for line in std::io::BufRead::lines(lines) {
            let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if case["workload"] != "rw-register" {
                continue;
            }
            histories += 1;
            let Some(history) = history(&case["history"]) else {
                malformed += 1;
                continue;
            };
            let found = Found::of(&history, assumptions(&case["options"]));
            for asked in questions(&case) {
                if asked.is_answered_by(&found) {
                    agree += 1;
                } else if let Some(reason) = reason(&case, &asked, &found) {
                    *reasons.entry(reason).or_default() += 1;
                } else {
                    let theirs = kinds(&asked.answer["anomaly_types"]);
                    let ours = found.under(asked.demand).intersection(asked.demand.lists());
                    let models = asked.demand.models;
                    unexplained.push(format!("{file} {} {models:?}: {ours:?}, there {theirs:?}", case["id"]));
                }
            }
        }
    }
    eprintln!("{histories} histories, {malformed} of them malformed; {agree} answers agree, {reasons:#?}");
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
}

fn questions(case: &Value) -> Vec<Asked<'_>> {
    let options = &case["options"];
    let models = |m: &Value| strings(m).into_iter().map(|n| Model::from_name(n).unwrap()).collect();
    let first = Demand {
        models: options.get("consistency-models").map_or(Demand::default().models, models),
        anomalies: options.get("anomalies").map_or(AnomalySet::EMPTY, kinds),
    };
    let by_model = case["by_model"].as_object().into_iter().flatten();
    let by_model = by_model.map(|(name, answer)| (Demand::models(&[Model::from_name(name).unwrap()]), answer));
    let all: Vec<(Demand, &Value)> = std::iter::once((first, &case["expected"]))
        .chain(by_model)
        .filter(|(_, answer)| answer.get("error").is_none() && answer["valid"] != "error")
        .collect();
    let elsewhere = all.iter().map(|(_, a)| kinds(&a["anomaly_types"])).fold(AnomalySet::EMPTY, AnomalySet::union);
    all.into_iter().map(|(demand, answer)| Asked { demand, answer, elsewhere }).collect()
}

/// A file of the corpus of whole runs.
fn run(name: &str) -> Option<History> {
    let near = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus");
    let root = std::env::var_os("ELENCH_CORPUS").map_or_else(|| near.into(), std::path::PathBuf::from);
    let path = root.join("isolation").join(name);
    if !path.is_file() {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(elench_formats::open::open(path.to_str().unwrap(), &OpenOptions::default(), &|_, _| {}).unwrap())
}

const EVERY_ASSUMPTION: Assumptions =
    Assumptions { commit_timestamps: false, wfr_keys: true, sequential_keys: true, linearizable_keys: true };

#[test]
fn long_runs_are_what_their_names_say_under_any_assumption_that_holds_of_them() {
    for (name, expected) in [
        ("rw-ser-10k.edn.gz", AnomalySet::EMPTY),
        ("rw-ser-100k.edn.gz", AnomalySet::EMPTY),
        ("rw-inj-lost-update-100k.edn.gz", AnomalySet::of(&[Anomaly::LostUpdate])),
    ] {
        let Some(history) = run(name) else { continue };
        let [wfr, all] = [Assumptions { wfr_keys: true, ..Assumptions::default() }, EVERY_ASSUMPTION];
        for with in [Assumptions::default(), wfr, all] {
            let start = std::time::Instant::now();
            let result = check_rw_register(&history, &Options::default(), with, &Budget::unlimited());
            eprintln!("{name} {with:?}: {:?} in {:?}, {:?}", result.kinds(), start.elapsed(), result.sizes);
            let found = result.kinds();
            assert!(
                if expected.is_empty() { found.is_empty() } else { expected.is_subset(found) },
                "{name}: {found:?}"
            );
        }
    }
}

/// Xorshift, seeded.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A transaction of a small history: micro-operations are (is a write, key, value), nil being 0.
#[derive(Clone, Debug)]
struct Small {
    mops: Vec<(bool, usize, u64)>,
    status: &'static str,
    process: usize,
    invoke: usize,
    complete: usize,
}

/// A random history of up to four transactions on two keys, each of its own process or two in a row in one.
fn small(random: &mut Random) -> Vec<Small> {
    let count = 2 + random.below(3) as usize;
    let mut written = [0u64; 2];
    let mut txns: Vec<Small> = (0..count)
        .map(|process| {
            let mops = (0..1 + random.below(3)).map(|_| {
                let (write, key) = (random.below(2) == 0, random.below(2) as usize);
                written[key] += u64::from(write);
                (write, key, written[key])
            });
            let mops = mops.collect();
            let status = ["ok", "ok", "ok", "ok", "ok", "ok", "info", "fail"][random.below(8) as usize];
            Small { mops, status, process, invoke: 0, complete: 0 }
        })
        .collect();
    for mop in txns.iter_mut().flat_map(|t| &mut t.mops).filter(|m| !m.0) {
        mop.2 = random.below(written[mop.1] + 1);
    }
    timed(&mut txns, random);
    for a in 0..count {
        for b in 0..count {
            let free = !txns.iter().enumerate().any(|(c, t)| c != b && t.process == a);
            if txns[a].process == a && free && txns[a].status == "ok" && txns[a].complete < txns[b].invoke && a != b {
                txns[b].process = a;
                break;
            }
        }
    }
    txns
}

/// A random history of up to so many transactions whose writes are blind, and whose reads return what somebody wrote: nearly nothing is
/// known of the order of versions.
fn blind(random: &mut Random, most: u64) -> Vec<Small> {
    let count = 3 + random.below(most - 2) as usize;
    let mut written = [0u64; 2];
    let txn = |process| {
        let writes = random.below(2) == 0;
        let keys = [&[0, 1][..], &[1, 0], &[0], &[1]][random.below(4) as usize];
        let mops = keys.iter().map(|&key| {
            let write = writes == (random.below(8) > 0);
            written[key] += u64::from(write);
            (write, key, written[key])
        });
        let mops = mops.collect();
        let status = if random.below(16) == 0 { "info" } else { "ok" };
        Small { mops, status, process, invoke: 0, complete: 0 }
    };
    let mut txns: Vec<Small> = (0..count).map(txn).collect();
    for mop in txns.iter_mut().flat_map(|t| &mut t.mops).filter(|m| !m.0) {
        mop.2 = (1 + random.below(written[mop.1].max(1))) * u64::from(written[mop.1] > 0 && random.below(16) > 0);
    }
    timed(&mut txns, random);
    // Most go on where an earlier one was acknowledged.
    let mut by_invocation: Vec<usize> = (0..count).collect();
    by_invocation.sort_unstable_by_key(|&t| txns[t].invoke);
    for (i, &t) in by_invocation.iter().enumerate() {
        let ended = |&o: &usize| txns[o].status == "ok" && txns[o].complete < txns[t].invoke;
        let last = |&&o: &&usize| by_invocation[..i].iter().rfind(|&&e| txns[e].process == txns[o].process) == Some(&o);
        if let Some(&earlier) = by_invocation[..i].iter().filter(|o| ended(o)).rfind(last)
            && random.below(4) > 0
        {
            txns[t].process = txns[earlier].process;
        }
    }
    txns
}

/// Gives transactions their times.
fn timed(txns: &mut [Small], random: &mut Random) {
    let count = txns.len();
    let mut event = 0;
    let (mut waiting, mut open): (Vec<usize>, Vec<usize>) = ((0..count).collect(), Vec::new());
    while !waiting.is_empty() || !open.is_empty() {
        if !waiting.is_empty() && (open.is_empty() || random.below(2) == 0) {
            let txn = waiting.swap_remove(random.below(waiting.len() as u64) as usize);
            txns[txn].invoke = event;
            open.push(txn);
        } else {
            let txn = open.swap_remove(random.below(open.len() as u64) as usize);
            txns[txn].complete = event;
        }
        event += 1;
    }
}

fn recorded(txns: &[Small]) -> History {
    let mut events: Vec<(usize, String)> = Vec::new();
    for t in txns {
        let mut mops = String::new();
        for &(write, key, value) in &t.mops {
            let value = if value == 0 { "nil".into() } else { value.to_string() };
            write!(mops, "[:{} {key} {value}]", if write { "w" } else { "r" }).unwrap();
        }
        let event = |kind: &str| format!("{{:type :{kind}, :process {}, :f :txn, :value [{mops}]}}\n", t.process);
        events.push((t.invoke, event("invoke")));
        events.push((t.complete, event(t.status)));
    }
    events.sort();
    let text: String = events.into_iter().map(|e| e.1).collect();
    open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Every order of some of these.
fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |&first: &usize| {
        let rest: Vec<usize> = of.iter().copied().filter(|&t| t != first).collect();
        orders(&rest).into_iter().map(move |mut order| {
            order.insert(0, first);
            order
        })
    };
    of.iter().flat_map(with_first).collect()
}

/// Sets of transactions that may be what committed.
fn committed(txns: &[Small]) -> Vec<Vec<usize>> {
    let sets = (0..1usize << txns.len()).map(|bits| (0..txns.len()).filter(|t| bits >> t & 1 == 1).collect::<Vec<_>>());
    let may = |set: &Vec<usize>| {
        (0..txns.len()).all(|t| match txns[t].status {
            "ok" => set.contains(&t),
            "fail" => !set.contains(&t),
            _ => true,
        })
    };
    sets.filter(may).collect()
}

/// Runs a transaction on a state; none when a read of an acknowledged one returned something else.
fn applied(t: &Small, mut state: [u64; 2]) -> Option<[u64; 2]> {
    for &(write, key, value) in &t.mops {
        if write {
            state[key] = value;
        } else if t.status == "ok" && state[key] != value {
            return None;
        }
    }
    Some(state)
}

/// Is there an order of those that committed that gives all reads what they returned, and keeps these relations?
fn serializable(txns: &[Small], keeps: Relations) -> bool {
    let kept = |order: &[usize]| {
        let before = |a: usize, b: usize| {
            let counts = keeps == Relations::Realtime || txns[a].process == txns[b].process;
            keeps != Relations::Data && counts && txns[a].status == "ok" && txns[a].complete < txns[b].invoke
        };
        (0..order.len()).all(|i| order[i + 1..].iter().all(|&later| !before(later, order[i])))
    };
    let runs = |order: &[usize]| order.iter().try_fold([0; 2], |state, &t| applied(&txns[t], state)).is_some();
    committed(txns).iter().flat_map(|set| orders(set)).any(|o| kept(&o) && runs(&o))
}

/// Is there an order of starts and commits in which each reads what had been committed at its start, and no two that overlap wrote
/// one key?
fn snapshot_isolated(txns: &[Small]) -> bool {
    committed(txns).iter().any(|set| {
        let events: Vec<usize> = set.iter().flat_map(|&t| [2 * t, 2 * t + 1]).collect();
        places(&events, &mut Vec::new(), txns)
    })
}

fn places(left: &[usize], order: &mut Vec<usize>, txns: &[Small]) -> bool {
    if left.is_empty() {
        return snapshots(order, txns);
    }
    let next: Vec<usize> = left.iter().copied().filter(|e| e % 2 == 0 || order.contains(&(e - 1))).collect();
    next.into_iter().any(|event| {
        order.push(event);
        let rest: Vec<usize> = left.iter().copied().filter(|&e| e != event).collect();
        let found = places(&rest, order, txns);
        order.pop();
        found
    })
}

fn snapshots(order: &[usize], txns: &[Small]) -> bool {
    let mut state = [0u64; 2];
    let mut starts = vec![([0u64; 2], 0); txns.len()];
    let mut last = [0usize; 2];
    order.iter().enumerate().all(|(at, &event)| {
        let txn = &txns[event / 2];
        if event % 2 == 0 {
            starts[event / 2] = (state, at);
            return applied(txn, state).is_some();
        }
        let writes = txn.mops.iter().filter(|m| m.0);
        if writes.clone().any(|m| last[m.1] > starts[event / 2].1) {
            return false;
        }
        for &(_, key, value) in writes {
            (state[key], last[key]) = (value, at);
        }
        true
    })
}

#[test]
fn nothing_is_ruled_out_that_brute_force_explains() {
    let mut random = Random(0x5eed);
    let wfr = Assumptions { wfr_keys: true, ..Assumptions::default() };
    let (mut not, mut missed) = ([0; 3], [0; 3]);
    let (mut ordered, mut unordered) = ([0; 2], [0; 2]);
    for _ in 0..4_000 {
        let txns = small(&mut random);
        let history = recorded(&txns);
        let out = |with| {
            let result = check_rw_register(&history, &Options::default(), with, &Budget::unlimited());
            holds(&history, with, None, true, &result);
            (crate::txn::lattice::ruled_out(result.kinds()), result)
        };
        let free = Options { real_time: false, process: false, ..Options::default() };
        let free = check_rw_register(&history, &free, Assumptions::default(), &Budget::unlimited());
        holds(&history, Assumptions::default(), None, false, &free);
        let (plain, result) = out(wfr);
        let (strict, strictly) = out(EVERY_ASSUMPTION);
        let explained =
            [serializable(&txns, Relations::Data), snapshot_isolated(&txns), serializable(&txns, Relations::Realtime)];
        let judged = [
            plain.contains(Model::Serializable),
            plain.contains(Model::SnapshotIsolation),
            strict.contains(Model::StrongSerializable),
        ];
        for (i, order, explained) in [(0, &free.order, explained[0]), (1, &strictly.order, explained[2])] {
            assert!(explained || order.is_none(), "{txns:#?} is not explained by {order:?}");
            ordered[i] += u32::from(order.is_some());
            unordered[i] += u32::from(explained && order.is_none());
        }
        for i in 0..3 {
            let found = if i < 2 { &result.findings } else { &strictly.findings };
            assert!(!(explained[i] && judged[i]), "{i}: {txns:#?}\n{found:#?}");
            not[i] += u32::from(!explained[i]);
            missed[i] += u32::from(!explained[i] && !judged[i]);
        }
    }
    eprintln!(
        "not serializable, not snapshot isolated, not strictly serializable: {not:?}; of these not shown: {missed:?}"
    );
    eprintln!("serializable, strictly so, and shown by an order: {ordered:?}; not shown: {unordered:?}");
    assert!(not.iter().zip(missed).all(|(&not, missed)| missed * 4 < not));
    assert!(ordered.iter().zip(unordered).all(|(&ordered, unordered)| unordered * 20 < ordered));
}

/// Models by the relations that they rest on, the weakest first.
const SERIAL: [(Model, Relations, Anomaly); 3] = [
    (Model::Serializable, Relations::Data, Anomaly::Pl299Cycle),
    (Model::StrongSessionSerializable, Relations::Process, Anomaly::StrongSessionPl3Cycle),
    (Model::StrongSerializable, Relations::Realtime, Anomaly::PlSsCycle),
];

/// Checks a history with the order in processes, with real time, or with neither, and holds what is found against it.
fn judged(history: &History, with: Assumptions, relations: Relations) -> TxnResult {
    let (real_time, process) = (relations == Relations::Realtime, relations != Relations::Data);
    let options = Options { real_time, process, ..Options::default() };
    let result = check_rw_register(history, &options, with, &Budget::unlimited());
    holds(history, with, None, real_time, &result);
    result
}

#[test]
fn of_small_histories_exactly_those_are_ruled_out_that_brute_force_does_not_explain() {
    let (mut random, runs) = orders::seed_and_runs(6_000);
    let mut refuted: BTreeMap<Anomaly, u32> = BTreeMap::new();
    let mut longest = 0;
    for round in 0..runs {
        let txns = if round % 2 == 0 { small(&mut random) } else { blind(&mut random, 5) };
        let history = recorded(&txns);
        let explained = SERIAL.map(|(_, relations, _)| serializable(&txns, relations));
        for (level, (model, relations, _)) in SERIAL.into_iter().enumerate() {
            let result = judged(&history, Assumptions::default(), relations);
            let out = crate::txn::lattice::ruled_out(result.kinds());
            assert_eq!(out.contains(model), !explained[level], "{round}: {model}, {txns:#?}, {:#?}", result.findings);
            for (lower, (_, _, kind)) in SERIAL.into_iter().enumerate() {
                let Some(finding) = result.findings.get(&kind) else { continue };
                *refuted.entry(kind).or_default() += 1;
                let Explained::Refutation(refutation) = &finding.examples[0] else { panic!("{finding:#?}") };
                longest = longest.max(refutation.lemmas.len());
                // It is given no worse name than it has.
                assert!(!explained[lower] && explained[..lower].iter().all(|&e| e), "{kind}, {txns:#?}");
            }
        }
    }
    eprintln!("refuted, of {}: {refuted:?}, by up to {longest} lemmas", 3 * runs);
    assert!(refuted.values().all(|&n| n > 20) && refuted.len() == 3 && longest > 2);
}

/// A history in which transactions follow each other, each `process kind [mops]`.
fn sequence(txns: &[&str]) -> History {
    recorded_as(txns, false)
}

/// As [`sequence`], or all at once.
fn recorded_as(txns: &[&str], at_once: bool) -> History {
    let (mut text, mut ends) = (String::new(), String::new());
    for txn in txns {
        let mut parts = txn.splitn(3, ' ');
        let (process, kind, mops) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        writeln!(text, "{{:type :invoke, :process {process}, :f :txn, :value {mops}}}").unwrap();
        let end = if at_once { &mut ends } else { &mut text };
        writeln!(end, "{{:type :{kind}, :process {process}, :f :txn, :value {mops}}}").unwrap();
    }
    open_bytes((text + &ends).as_bytes(), &OpenOptions::default()).unwrap()
}

fn found(history: &History, with: Assumptions) -> AnomalySet {
    check_rw_register(history, &Options::default(), with, &Budget::unlimited()).kinds()
}

#[test]
fn a_write_that_equals_the_initial_value_makes_no_lost_update() {
    let history =
        sequence(&["0 ok [[:w x nil]]", "0 ok [[:r x nil][:w x 1]]", "0 ok [[:w x nil]]", "1 ok [[:r x nil][:w x 2]]"]);
    assert!(found(&history, Assumptions::default()).is_subset(AnomalySet::of(&[Anomaly::DuplicateWrites])));
    let honest = sequence(&["0 ok [[:r x nil][:w x 1]]", "1 ok [[:r x nil][:w x 2]]"]);
    assert!(found(&honest, Assumptions::default()).contains(Anomaly::LostUpdate));
}

#[test]
fn a_garbage_read_is_named() {
    assert_eq!(
        found(&sequence(&["0 ok [[:r x 7]]"]), Assumptions::default()).iter().next(),
        Some(Anomaly::GarbageRead)
    );
}

#[test]
fn a_read_of_ones_own_later_write_is_a_future_read() {
    assert!(found(&sequence(&["0 ok [[:r x 1][:w x 1]]"]), Assumptions::default()).contains(Anomaly::FutureRead));
}

#[test]
fn a_cycle_of_reads_and_process_order_is_found() {
    let text = "{:type :invoke, :process 0, :f :txn, :value [[:r x nil]]}
        {:type :invoke, :process 1, :f :txn, :value [[:w y 1] [:r z nil]]}
        {:type :ok, :process 0, :f :txn, :value [[:r x 1]]}
        {:type :invoke, :process 0, :f :txn, :value [[:w z 1]]}
        {:type :ok, :process 1, :f :txn, :value [[:w y 1] [:r z 1]]}
        {:type :invoke, :process 1, :f :txn, :value [[:w x 1]]}
        {:type :ok, :process 0, :f :txn, :value [[:w z 1]]}
        {:type :ok, :process 1, :f :txn, :value [[:w x 1]]}";
    let history = open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap();
    assert!(found(&history, Assumptions::default()).contains(Anomaly::G1cProcess));
}

#[test]
fn opposite_orders_of_writes_on_two_keys_are_g0_given_the_order_of_versions() {
    let text = "{:type :invoke, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}
        {:type :invoke, :process 1, :f :txn, :value [[:w x 2][:w y 2]]}
        {:type :ok, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}
        {:type :ok, :process 1, :f :txn, :value [[:w x 2][:w y 2]]}
        {:type :invoke, :process 0, :f :txn, :value [[:r x nil][:r y nil]]}
        {:type :ok, :process 0, :f :txn, :value [[:r x 2][:r y 1]]}";
    let history = open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap();
    let sequential = Assumptions { sequential_keys: true, ..Assumptions::default() };
    let both = format!(
        "{text}\n{}",
        "{:type :invoke, :process 1, :f :txn, :value [[:r y nil]]}
        {:type :ok, :process 1, :f :txn, :value [[:r y 1]]}"
    );
    assert!(found(&open_bytes(both.as_bytes(), &OpenOptions::default()).unwrap(), sequential).contains(Anomaly::G0));
    assert!(!found(&history, sequential).contains(Anomaly::G0));
}

#[test]
fn a_value_written_twice_says_nothing_about_who_was_read() {
    let history = sequence(&["0 ok [[:w x 1]]", "1 ok [[:w x 1]]", "2 ok [[:r x 1]]", "2 ok [[:r x nil]]"]);
    let kinds = found(&history, Assumptions::default());
    assert!(kinds.contains(Anomaly::DuplicateWrites) && !kinds.contains(Anomaly::G1c));
    // By real time, the last read missed both writes, whoever was read.
    assert!(kinds.contains(Anomaly::PlSsCycle));
}

#[test]
fn a_cycle_is_shown_by_a_value_that_one_wrote_alone_and_that_was_not_there_first() {
    // Of y, two wrote what was read, or it was there first; z shows who was read.
    let read = ["1 ok [[:r y 1][:r z 4]]", "1 ok [[:w y 1][:w z 4]]"];
    let missed = ["1 ok [[:w y 1][:w z 4]]", "1 ok [[:r y nil][:r z nil]]"];
    for (first, [one, other], initial, kind) in [
        ("0 ok [[:w y 1]]", read, None, Anomaly::G1cProcess),
        ("0 ok [[:w q 1]]", read, Some("1"), Anomaly::G1cProcess),
        ("0 ok [[:w y 1]]", missed, None, Anomaly::GSingleItemProcess),
        ("0 info [[:w y 1]]", missed, None, Anomaly::GSingleItemProcess),
    ] {
        let history = sequence(&[first, one, other]);
        let options = Options { initial: initial.map(String::from), ..Options::default() };
        let result = check_rw_register(&history, &options, Assumptions::default(), &Budget::unlimited());
        assert!(result.kinds().contains(kind), "{:?}", result.kinds());
        holds(&history, Assumptions::default(), initial, true, &result);
    }
}

#[test]
fn what_nobody_knows_was_done_to_a_key_accuses_nobody() {
    let cas = ["0 ok [[:w x 1]]", "0 ok [[:w x 2]]", "0 ok [[:r x 2]]", "0 ok [[:cas x [2 1]]]", "0 ok [[:r x 1]]"];
    let delete = ["0 ok [[:w x 1]]", "0 ok [[:delete x nil]]", "0 ok [[:r x nil]]"];
    let written = ["0 ok [[:w x 1]]", "0 ok [[:add x 4]]", "0 ok [[:r x 5]]"];
    for txns in [&cas[..], &delete, &written] {
        let history = sequence(txns);
        assert_eq!(found(&history, EVERY_ASSUMPTION), AnomalySet::of(&[Anomaly::UnknownMicroOp]), "{txns:?}");
        // No certificate rests on such a key, either.
        let known: Vec<&str> = txns.iter().filter(|t| !t.contains(":cas")).copied().collect();
        let claimed = judged(&sequence(&known), Assumptions::default(), Relations::Realtime);
        for example in claimed.findings.values().flat_map(|f| &f.examples) {
            let mut registers = verify::Registers::new(&history, Assumptions::default(), None);
            match example {
                Explained::Refutation(refutation) => {
                    assert!(registers.refutation(&history, &refutation.lemmas).is_err())
                }
                Explained::Cycle(cycle) => assert!(registers.cycle(&history, cycle).is_err()),
                Explained::Case(_) => {}
            }
        }
    }
    // On other keys, all is as ever; and what failed was not done.
    let other = ["0 ok [[:cas y [2 1]][:w x 1]]", "0 ok [[:r x nil]]"];
    assert!(found(&sequence(&other), Assumptions::default()).contains(Anomaly::GSingleItemProcess));
    let failed = ["0 fail [[:cas x [2 1]]]", "0 ok [[:w x 1]]", "0 ok [[:r x nil]]"];
    assert!(found(&sequence(&failed), Assumptions::default()).contains(Anomaly::GSingleItemProcess));
}

#[test]
fn what_a_transaction_reads_twice_and_differently_hides_no_refutation_under_repeatable_read() {
    let history = recorded_as(
        &[
            "0 ok [[:w x 1][:w y 1]]",
            "1 ok [[:w x 2][:w y 2]]",
            "2 ok [[:r x 1][:r y 2]]",
            "3 ok [[:w v 1]]",
            "4 ok [[:w v 2]]",
            "5 ok [[:r v 1][:r v 2]]",
        ],
        true,
    );
    let result = judged(&history, Assumptions::default(), Relations::Data);
    assert!(result.kinds().contains(Anomaly::Internal) && result.kinds().contains(Anomaly::Pl299Cycle));
}

#[test]
fn an_unacknowledged_write_that_somebody_read_took_place() {
    let seen = sequence(&["0 info [[:w x 1][:w y 1]]", "1 ok [[:r x 1][:r y nil]]"]);
    assert!(found(&seen, Assumptions::default()).contains(Anomaly::GSingleItem));
    let unseen = sequence(&["0 info [[:w x 1][:w y 1]]", "1 ok [[:r x nil][:r y nil]]"]);
    assert!(found(&unseen, Assumptions::default()).without(AnomalySet::UNDECIDED).is_empty());
}

#[test]
fn the_least_integer_is_not_nil() {
    let history = sequence(&["0 ok [[:w x -9223372036854775808]]", "1 ok [[:r x -9223372036854775808]]"]);
    assert!(found(&history, EVERY_ASSUMPTION).is_empty());
}

/// Micro-operations: is it a write, key, value.
type Mops = Vec<(bool, usize, u64)>;

/// A strictly serializable history: transactions take effect at once, some time while they are open.
fn serial_history(random: &mut Random, count: u64, clients: u64, keys: u64) -> History {
    let mut there = vec![0u64; keys as usize];
    // By client: what it is to do, and what it did once that took effect.
    let mut open: Vec<Option<(Mops, bool)>> = vec![None; clients as usize];
    let (mut text, mut value, mut invoked) = (String::new(), 0, 0);
    let mops_of = |mops: &[(bool, usize, u64)]| {
        let mop = |&(write, key, value): &(bool, usize, u64)| match value {
            0 => format!("[:r {key} nil]"),
            _ => format!("[:{} {key} {value}]", if write { "w" } else { "r" }),
        };
        mops.iter().map(mop).collect::<String>()
    };
    while invoked < count || open.iter().any(Option::is_some) {
        let client = random.below(clients) as usize;
        match &mut open[client] {
            place @ None if invoked < count => {
                let mops = (0..1 + random.below(3)).map(|_| {
                    value += 1;
                    (random.below(2) == 0, random.below(keys) as usize, value)
                });
                let mops: Vec<_> = mops.collect();
                writeln!(text, "{{:type :invoke, :process {client}, :f :txn, :value [{}]}}", mops_of(&mops)).unwrap();
                *place = Some((mops, false));
                invoked += 1;
            }
            None => {}
            Some((mops, done @ false)) => {
                for (write, key, value) in mops.iter_mut() {
                    match write {
                        true => there[*key] = *value,
                        false => *value = there[*key],
                    }
                }
                *done = true;
            }
            Some((mops, true)) => {
                writeln!(text, "{{:type :ok, :process {client}, :f :txn, :value [{}]}}", mops_of(mops)).unwrap();
                open[client] = None;
            }
        }
    }
    open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn a_strictly_serializable_history_is_never_accused_and_mostly_shown_to_be_one() {
    let mut random = Random(0xfeed);
    let mut shown = 0;
    for round in 0..60 {
        let (clients, keys) = (1 + random.below(8), 1 + random.below(12));
        let history = serial_history(&mut random, 120, clients, keys);
        for with in [Assumptions::default(), EVERY_ASSUMPTION] {
            let result = check_rw_register(&history, &Options::default(), with, &Budget::unlimited());
            assert_eq!(result.kinds(), AnomalySet::EMPTY, "{round}");
            holds(&history, with, None, true, &result);
            shown += u32::from(result.order.is_some());
        }
    }
    eprintln!("{shown} of 120 shown by an order");
    assert!(shown > 80);
}

#[test]
fn what_is_valid_by_an_order_is_valid_though_values_were_written_twice() {
    let history = sequence(&["0 ok [[:w x 1]]", "1 ok [[:w x 1]]", "2 ok [[:r x 1]]"]);
    let result = check_rw_register(&history, &Options::default(), Assumptions::default(), &Budget::unlimited());
    assert_eq!(result.kinds(), AnomalySet::of(&[Anomaly::DuplicateWrites]));
    assert!(result.order.is_some() && result.open().is_empty());
}

#[test]
fn an_order_with_two_transactions_exchanged_is_refused() {
    let history = sequence(&["0 ok [[:w x 1]]", "1 ok [[:r x 1][:w x 2]]", "2 ok [[:r x 2]]"]);
    let result = check_rw_register(&history, &Options::default(), Assumptions::default(), &Budget::unlimited());
    let mut order = result.order.unwrap();
    assert_eq!(verify::register_order(&history, &order, None, true), Ok(()));
    order.swap(0, 1);
    assert!(verify::register_order(&history, &order, None, false).is_err());
    order.swap(0, 1);
    order.pop();
    assert!(verify::register_order(&history, &order, None, true).unwrap_err().contains("missing"));
}

#[test]
fn a_cycle_does_not_hold_without_what_it_assumes_or_with_another_name() {
    let history =
        sequence(&["0 ok [[:w x 1]]", "1 ok [[:r x 1][:w x 2]]", "2 ok [[:r x 1][:r y nil]]", "2 ok [[:w y 1]]"]);
    let with = Assumptions { wfr_keys: true, ..Assumptions::default() };
    let result = check_rw_register(&history, &Options::default(), with, &Budget::unlimited());
    let example = result.findings.values().flat_map(|f| &f.examples);
    let cycle = example.filter_map(|e| if let Explained::Cycle(c) = e { Some(c) } else { None }).next().unwrap();
    let check = |with, cycle: &crate::txn::explain::ExplainedCycle| {
        verify::Registers::new(&history, with, None).cycle(&history, cycle)
    };
    assert_eq!(check(with, cycle), Ok(()));
    assert!(check(Assumptions::default(), cycle).unwrap_err().contains("nothing that is assumed"));
    let named = crate::txn::explain::ExplainedCycle { kind: Anomaly::G0, ..cycle.clone() };
    assert!(check(with, &named).unwrap_err().contains("is called"));
}

#[test]
fn a_write_upon_a_failed_one_is_a_dirty_update_where_writes_follow_reads() {
    let history = sequence(&["0 fail [[:w x 1]]", "1 ok [[:r x 1][:w x 2]]"]);
    let wfr = Assumptions { wfr_keys: true, ..Assumptions::default() };
    assert_eq!(
        found(&history, wfr).without(AnomalySet::UNDECIDED),
        AnomalySet::of(&[Anomaly::DirtyUpdate, Anomaly::G1a])
    );
    assert_eq!(found(&history, Assumptions::default()).without(AnomalySet::UNDECIDED), AnomalySet::of(&[Anomaly::G1a]));
    let read = sequence(&["0 fail [[:w x 1]]", "1 ok [[:r x 1]]"]);
    assert_eq!(found(&read, wfr).without(AnomalySet::UNDECIDED), AnomalySet::of(&[Anomaly::G1a]));
}

#[test]
fn overwrites_in_opposite_orders_make_a_history_invalid_under_read_uncommitted() {
    let text = "{:type :invoke, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}
        {:type :invoke, :process 1, :f :txn, :value [[:w x 2][:w y 2]]}
        {:type :ok, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}
        {:type :ok, :process 1, :f :txn, :value [[:w x 2][:w y 2]]}
        {:type :invoke, :process 0, :f :txn, :value [[:r x nil][:r y nil]]}
        {:type :ok, :process 0, :f :txn, :value [[:r x 2][:r y 1]]}
        {:type :invoke, :process 1, :f :txn, :value [[:r y nil]]}
        {:type :ok, :process 1, :f :txn, :value [[:r y 1]]}";
    let history = open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap();
    let with = Assumptions { sequential_keys: true, ..Assumptions::default() };
    let result = check_rw_register(&history, &Options::default(), with, &Budget::unlimited());
    let outcome = result.outcome(Demand::models(&[Model::from_name("read-uncommitted").unwrap()]));
    assert!(outcome.violations().iter().any(|v| v.kind == "G0"));
    holds(&history, with, None, true, &result);
}

#[test]
fn commit_timestamps_order_versions_only_where_they_are_believed() {
    let stamped = |first: &str, second: &str| {
        let text = format!(
            "{{:type :invoke, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}}
            {{:type :invoke, :process 1, :f :txn, :value [[:r x nil][:w x 2]]}}
            {{:type :invoke, :process 2, :f :txn, :value [[:r x nil][:r y nil]]}}
            {{:type :ok, :process 0, :f :txn, :value [[:w x 1][:w y 1]], :commit-ts {first}}}
            {{:type :ok, :process 1, :f :txn, :value [[:w x 2]], :commit-ts {second}}}
            {{:type :ok, :process 2, :f :txn, :value [[:r x 2][:r y nil]]}}"
        );
        open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap()
    };
    let believed = Assumptions { commit_timestamps: true, ..Assumptions::default() };
    for (first, second, kinds) in [
        ("1", "2", AnomalySet::of(&[Anomaly::GSingleItem])),
        ("[5 1]", "[5 2]", AnomalySet::of(&[Anomaly::GSingleItem])),
        ("2", "1", AnomalySet::EMPTY),
        ("1", "1", AnomalySet::EMPTY),
        ("\"soon\"", "2", AnomalySet::EMPTY),
    ] {
        let history = stamped(first, second);
        let result = check_rw_register(&history, &Options::default(), believed, &Budget::unlimited());
        assert_eq!(result.kinds(), kinds, "{first} {second}");
        holds(&history, believed, None, true, &result);
        assert_eq!(result.order.is_some(), kinds.is_empty(), "{first} {second}");
        assert!(found(&history, Assumptions::default()).is_empty());
    }
}

#[test]
fn the_initial_value_may_be_another_one_than_nil() {
    let check = |txns: &[&str], initial: &str| {
        let history = sequence(txns);
        let options = Options { initial: Some(initial.into()), ..Options::default() };
        let result = check_rw_register(&history, &options, Assumptions::default(), &Budget::unlimited());
        holds(&history, Assumptions::default(), Some(initial), true, &result);
        result
    };
    let zero = ["0 ok [[:r x 0]]", "1 ok [[:w x 1]]", "2 ok [[:r x 1]]"];
    assert!(check(&zero, "0").order.is_some());
    assert!(found(&sequence(&zero), Assumptions::default()).contains(Anomaly::GarbageRead));
    let stale = check(&["0 ok [[:w x 1]]", "1 ok [[:r x 0]]"], "0");
    assert_eq!(stale.kinds(), AnomalySet::of(&[Anomaly::GSingleItemRealtime]));
    assert!(stale.findings[&Anomaly::GSingleItemRealtime].examples[0].text().contains("x = 0, which was there first"));
    let nil = check(&["0 ok [[:w x 1]]", "1 ok [[:r y nil]]"], "0");
    assert!(nil.findings[&Anomaly::GarbageRead].examples[0].text().contains("y = nil"));
    let text = ["0 ok [[:r x :none]]", "1 ok [[:w x :some]]", "2 ok [[:r x :some]]"];
    assert!(check(&text, ":none").order.is_some());
}

#[test]
fn an_order_shows_a_model_only_where_it_kept_what_the_model_asks_for() {
    // Serial, but neither in the order of the process nor in that of time.
    let stale = sequence(&["0 ok [[:w x 1]]", "0 ok [[:r x nil][:w y 1]]", "1 ok [[:r y 1]]"]);
    let fresh = sequence(&["0 ok [[:w x 1]]", "0 ok [[:r x 1][:w y 1]]", "1 ok [[:r y 1]]"]);
    let models = [Model::Serializable, Model::StrongSessionSerializable, Model::StrongSerializable];
    for (history, valid) in [(&stale, [true, false, false]), (&fresh, [true; 3])] {
        for (process, real_time) in [(false, false), (true, false), (true, true)] {
            let options = Options { process, real_time, ..Options::default() };
            let result = check_rw_register(history, &options, Assumptions::default(), &Budget::unlimited());
            for ((model, valid), looked_at) in models.into_iter().zip(valid).zip([true, process, process && real_time])
            {
                let outcome = result.outcome(Demand::models(&[model]));
                assert_eq!(outcome.is_valid(), valid && looked_at, "{model} {process} {real_time}");
                assert!(valid || !outcome.is_valid());
            }
        }
    }
}

#[test]
fn overwrites_by_one_that_may_have_been_rolled_back_are_a_violation_above_read_uncommitted() {
    let with = Assumptions { sequential_keys: true, ..Assumptions::default() };
    for (end, sure) in [("ok", true), ("info", false)] {
        let text = format!(
            "{{:type :invoke, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}}
            {{:type :invoke, :process 1, :f :txn, :value [[:w x 2][:w y 2]]}}
            {{:type :{end}, :process 0, :f :txn, :value [[:w x 1][:w y 1]]}}
            {{:type :ok, :process 1, :f :txn, :value [[:w x 2][:w y 2]]}}
            {{:type :invoke, :process 2, :f :txn, :value [[:r x nil]]}}
            {{:type :ok, :process 2, :f :txn, :value [[:r x 1]]}}
            {{:type :invoke, :process 2, :f :txn, :value [[:r x nil]]}}
            {{:type :ok, :process 2, :f :txn, :value [[:r x 2]]}}
            {{:type :invoke, :process 1, :f :txn, :value [[:r y nil]]}}
            {{:type :ok, :process 1, :f :txn, :value [[:r y 1]]}}"
        );
        let history = open_bytes(text.as_bytes(), &OpenOptions::default()).unwrap();
        let result = check_rw_register(&history, &Options::default(), with, &Budget::unlimited());
        assert!(result.kinds().contains(Anomaly::G0), "{:?}", result.kinds());
        let under = |model| result.outcome(Demand::models(&[model]));
        let uncommitted = under(Model::ReadUncommitted);
        assert_eq!((uncommitted.is_invalid(), uncommitted.is_valid()), (sure, false), "{end}");
        assert!(under(Model::ReadCommitted).is_invalid(), "{end}");
        holds(&history, with, None, true, &result);
    }
}
