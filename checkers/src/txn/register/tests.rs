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

#[test]
fn answers_are_those_of_the_reference() {
    let mut differences: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut agree, mut histories, mut malformed) = (0, 0, 0);
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
            // The reference looks at real-time order, or at the order within processes, or at neither.
            let run = |real_time, process| {
                let options = Options { real_time, process, ..Options::default() };
                check_rw_register(&history, &options, assumptions(&case["options"]), &Budget::unlimited()).kinds()
            };
            let runs = [run(true, false), run(false, true), run(false, false)];
            let options = &case["options"];
            let named = |m: &Value| strings(m).into_iter().map(|n| Model::from_name(n).unwrap()).collect::<Vec<_>>();
            let demand = Demand {
                models: options
                    .get("consistency-models")
                    .map_or(Demand::default().models, |m| named(m).into_iter().collect()),
                anomalies: options.get("anomalies").map_or(AnomalySet::EMPTY, kinds),
            };
            let mut asked = vec![(demand, &case["expected"])];
            asked.extend(
                case["by_model"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, answer)| (Demand::models(&[Model::from_name(name).unwrap()]), answer)),
            );
            for (demand, answer) in asked {
                if answer.get("error").is_some() || answer["valid"] == "error" {
                    continue;
                }
                let found = match (demand.needs_realtime(), demand.needs_process()) {
                    (true, _) => runs[0],
                    (_, true) => runs[1],
                    _ => runs[2],
                };
                let listed = found.intersection(demand.lists());
                let theirs = kinds(&answer["anomaly_types"]);
                let all =
                    if listed.is_empty() { listed } else { found.intersection(demand.prohibits().union(ALWAYS_FOUND)) };
                let out = boundary(all);
                let same_models =
                    out.not.names() == strings(&answer["not"]) && out.also_not.names() == strings(&answer["also_not"]);
                if listed == theirs && same_models {
                    agree += 1;
                    continue;
                }
                let infos = case["history"].as_array().unwrap().iter().filter(|e| e["type"] == "info").count();
                let what = format!(
                    "info {} +{:?} -{:?} models {same_models}",
                    infos > 0,
                    listed.without(theirs),
                    theirs.without(listed)
                );
                differences
                    .entry(what)
                    .or_default()
                    .push(format!("{file} {} {} {:?}", case["id"], options, demand.models));
            }
        }
    }
    eprintln!("{histories} histories, {malformed} of them malformed, {agree} answers agree");
    for (what, which) in &differences {
        eprintln!("{} {what}\n     {:?}", which.len(), &which[..which.len().min(4)]);
    }
}
