use std::collections::BTreeMap;
use std::fmt::Write;

use elench_formats::open::{OpenOptions, open_bytes};
use serde_json::Value;

use super::*;
use crate::txn::anomaly::AnomalySet;
use crate::txn::lattice::tests::{ALWAYS_FOUND, corpus, kinds, strings};
use crate::txn::lattice::{Demand, Model, boundary};

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
        wfr_keys: on("wfr-keys?"),
        sequential_keys: on("sequential-keys?"),
        linearizable_keys: on("linearizable-keys?"),
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
    if ours.contains(Anomaly::FutureRead) && asked.is_answered_by(&without(Anomaly::FutureRead)) {
        return Some("a read of one's own later write is not looked for there");
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

const EVERY_ASSUMPTION: Assumptions = Assumptions { wfr_keys: true, sequential_keys: true, linearizable_keys: true };

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
