//! The reference's own cases.

use super::*;

/// Where the reference and this checker find different kinds, and why. Kinds of the reference that this checker does not report come
/// with a minus, further ones with a plus.
const DIFFERENCES: &[(u64, &[&str], &str)] = &[
    (
        44,
        &["-unseen"],
        "the reference's difference of two maps keeps a partition that only the polled one has: y c was polled, by operation 4",
    ),
    (45, &["-unseen"], "as 44: y c was polled; y b, the lost one, was never acknowledged"),
    (
        61,
        &["-unseen", "+empty-transaction-graph"],
        "as 44: x 2 was polled, and its send failed; failed operations take part in no order, and only one is left",
    ),
];

/// An element of a case's value as EDN: names of micro-operations, partitions and messages as keywords.
fn to_edn(value: &Json, out: &mut String) {
    match value {
        Json::String(s) => {
            let _ = write!(out, ":{s}");
        }
        Json::Array(items) => {
            out.push('[');
            for item in items {
                to_edn(item, out);
                out.push(' ');
            }
            out.push(']');
        }
        Json::Object(entries) => {
            out.push('{');
            for (key, item) in entries {
                let _ = write!(out, ":{key} ");
                to_edn(item, out);
                out.push(' ');
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn as_edn(case: &Json) -> String {
    if let Some(text) = case["history_edn"].as_str() {
        return text.to_string();
    }
    let mut out = String::new();
    for event in case["history"].as_array().unwrap() {
        let (kind, f) = (event["type"].as_str().unwrap(), event["f"].as_str().unwrap());
        let _ = write!(out, "{{:type :{kind} :process {} :time {} :f :{f} :value ", event["process"], event["time"]);
        to_edn(&event["value"], &mut out);
        out.push_str("}\n");
    }
    out
}

fn as_json(case: &Json) -> Option<String> {
    let lines = case["history"].as_array()?.iter().map(|event| {
        let mut event = event.as_object().unwrap().clone();
        event.remove("index");
        Json::from(event).to_string()
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Kinds that the reference has too: no cycles over ww and rw unless it was told to look for the former, and never over the latter.
fn comparable(found: &Findings, ww: bool) -> Vec<String> {
    let of_cycles = |kind: &str| kind.starts_with("G0") || kind.starts_with("G-") || kind.starts_with("G2");
    let keeps = |kind: &str, weight: Weight| {
        let pure = weight == Weight::Violation || !(of_cycles(kind) || kind.starts_with("G1c"));
        pure || (ww && (kind == "G0" || kind == "G1c"))
    };
    found.kinds().iter().filter(|(kind, all)| keeps(kind, all.weight)).map(|(kind, _)| kind.to_string()).collect()
}

#[test]
fn the_references_own_cases_have_the_kinds_that_they_should() {
    let root = std::env::var_os("ELENCH_CORPUS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus")), PathBuf::from);
    let Ok(text) = std::fs::read_to_string(root.join("checker-cases.jsonl")) else {
        println!("skipped: no {}", root.display());
        return;
    };
    let mut cases = 0;
    for case in text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()).filter(|c| c["checker"] == "kafka")
    {
        let id = case["id"].as_u64().unwrap();
        let name = format!("{id} {}", case["name"]);
        let mut expected: Vec<String> = case["expected"]["error_types"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kind| kind.as_str().unwrap().to_string())
            // A less precise name of a cycle that is named beside it.
            .filter(|kind| !kind.ends_with("-cycle-exists"))
            .collect();
        for (_, changes, _) in DIFFERENCES.iter().filter(|(of, _, _)| *of == id) {
            for change in *changes {
                let (sign, kind) = change.split_at(1);
                match sign {
                    "-" => expected.retain(|k| k != kind),
                    _ => expected.push(kind.to_string()),
                }
            }
        }
        expected.sort();
        let ww = case["options"]["ww-deps"] == true;
        for text in std::iter::once(as_edn(&case)).chain(as_json(&case)) {
            let history = edn(&text);
            let found = check(&history, &Options::default(), &Budget::unlimited());
            assert_eq!(comparable(&found, ww), expected, "{name}\n{text}\n{found:#?}");
            let streamed = replay(&history, Box::new(Log::new(Options::default(), Budget::unlimited())));
            assert_eq!(streamed, found, "{name}");
        }
        cases += 1;
    }
    assert_eq!(cases, 37);
}
