//! The reference's own cases and its answers to random histories, and the larger files of the corpus.

use super::*;

struct Case {
    name: String,
    history: History,
    /// Did the case hold invocations?
    real_time: bool,
    expected: Json,
    options: Json,
}

/// The events of a case as lines of JSON. Some cases hold completions alone: these get invocations, whose times say nothing.
/// `[r x]` stands for a read of nil.
fn events(history: &[Json]) -> (Vec<String>, bool) {
    let has_invocations = history.iter().any(|o| o["type"] == "invoke");
    let mut lines = Vec::new();
    for event in history {
        let mut event = event.clone();
        for mop in event["value"].as_array_mut().into_iter().flatten().filter_map(Json::as_array_mut) {
            if mop.len() == 2 {
                mop.push(Json::Null);
            }
        }
        let fields = event.as_object_mut().unwrap();
        fields.entry("f").or_insert("txn".into());
        if fields["f"].is_null() {
            fields.insert("f".into(), "txn".into());
        }
        fields.remove("index");
        fields.remove("time");
        if !has_invocations {
            fields.entry("process").or_insert(lines.len().into());
            let mut invocation = fields.clone();
            invocation.insert("type".into(), "invoke".into());
            lines.push(Json::from(invocation).to_string());
        }
        lines.push(event.to_string());
    }
    (lines, has_invocations)
}

fn cases(text: &str) -> Vec<Case> {
    let list_append = text.lines().filter_map(|line| {
        let case: Json = serde_json::from_str(line).unwrap();
        if case["workload"] != "list-append" {
            return None;
        }
        let (lines, real_time) = events(case["history"].as_array().unwrap());
        let history = open_bytes(lines.join("\n").as_bytes(), &OpenOptions::default());
        let name = format!("{} {}", case["name"].as_str().unwrap_or("?"), case["id"]);
        match history {
            Ok(history) => Some(Case {
                name,
                history,
                real_time,
                expected: case["expected"].clone(),
                options: case["options"].clone(),
            }),
            Err(e) => {
                eprintln!("{name}: {e}");
                None
            }
        }
    });
    list_append.collect()
}

fn gunzip(path: &std::path::Path) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn compare(cases: &[Case]) {
    let mut incompatible = 0u64;
    let (mut same, mut explained, mut differ) = (0, 0, BTreeMap::<String, Vec<String>>::new());
    for case in cases {
        let options = Options { real_time: case.real_time, ..Options::default() };
        let ours = check_with(&case.history, &options).kinds();
        let theirs: AnomalySet = case.expected["anomaly_types"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .map(|n| Anomaly::from_name(n).unwrap())
            .collect();
        if ours.contains(Anomaly::IncompatibleOrder) && theirs.contains(Anomaly::IncompatibleOrder) {
            incompatible += u64::from(ours != theirs);
        }
        let more: AnomalySet = ours.without(theirs).iter().filter(|a| !is_process_of(*a, theirs)).collect();
        let less = theirs.without(ours).without(ours.implied());
        if ours == theirs {
            same += 1;
        } else if more.is_empty() && less.is_empty() {
            explained += 1;
        } else if ours.contains(Anomaly::IncompatibleOrder) && theirs.contains(Anomaly::IncompatibleOrder) {
        } else {
            if case.history.len() < 30 {
                eprintln!("{} ours {ours:?} theirs {theirs:?}", case.name);
                for op in case.history.ops() {
                    let mut v = String::new();
                    op.write_complete_value(&mut v);
                    eprintln!(
                        "   {} {:?} p{} {} {v}",
                        op.index(),
                        op.complete_index(),
                        op.process().unwrap_or(-1),
                        op.status().name()
                    );
                }
            }
            differ
                .entry(format!("+{more:?} -{less:?}"))
                .or_default()
                .push(format!("{} {} {}", case.name, case.options, case.expected["error"]));
        }
    }
    eprintln!("{same} of {} agree, {explained} explained, {incompatible} incompatible", cases.len());
    let mut all: Vec<_> = differ.into_iter().collect();
    all.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    for (difference, names) in all {
        eprintln!("{:4} {difference}: {:?}", names.len(), &names[..names.len().min(3)]);
    }
}

/// The reference does not look at process order when it is asked for strict serializability, and calls real-time order what is already one within
/// a process.
fn is_process_of(ours: Anomaly, theirs: AnomalySet) -> bool {
    let plain = ours.name().strip_suffix("-process");
    plain.and_then(|p| Anomaly::from_name(&format!("{p}-realtime"))).is_some_and(|a| theirs.contains(a))
}

#[test]
fn look_cases() {
    let Some(corpus) = corpus() else { return };
    compare(&cases(&std::fs::read_to_string(corpus.join("isolation/elle-cases.jsonl")).unwrap()));
}

#[test]
fn look_fuzz() {
    let Some(corpus) = corpus() else { return };
    compare(&cases(&gunzip(&corpus.join("isolation/fuzz-list-append.jsonl.gz"))));
}
