//! What a check leaves behind: each anomaly as a row of a table, and certificates that the history alone confirms or refutes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use elench::check::{CheckOptions, check};
use elench::isolation::Asked;
use elench::report::document;
use elench::verify::{Holds, Verified, verify};
use elench_checkers::graph::Rel;
use elench_checkers::txn::anomaly::Anomaly;
use elench_checkers::txn::cycles::kind_of;
use elench_checkers::txn::register::Assumptions;
use elench_checkers::txn::weak::KINDS;
use elench_formats::History;
use elench_formats::build::{BuildOptions, HistoryBuilder};
use elench_formats::notation;
use elench_formats::write::{Target, to_file};
use elench_generate::{GenOptions, Isolation, Workload, generate};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value as Json, json};

fn elench(args: &[&str]) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_elench")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// A row as it is read back.
#[derive(Debug, PartialEq)]
struct Row {
    history: String,
    checker: String,
    kind: String,
    key: Option<String>,
    ops: Vec<u64>,
    relations: Vec<String>,
    explanation: String,
}

fn rows(path: &Path) -> Vec<Row> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap().build().unwrap();
    reader.flat_map(|batch| of_batch(&batch.unwrap())).collect()
}

fn of_batch(batch: &RecordBatch) -> Vec<Row> {
    let text = |name: &str, i: usize| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        (!column.is_null(i)).then(|| column.value(i).to_string())
    };
    let list = |name: &str, i: usize| batch.column_by_name(name).unwrap().as_list::<i32>().value(i);
    let row = |i| Row {
        history: text("history", i).unwrap(),
        checker: text("checker", i).unwrap(),
        kind: text("kind", i).unwrap(),
        key: text("key", i),
        ops: list("ops", i).as_primitive::<UInt64Type>().values().to_vec(),
        relations: list("relations", i).as_string::<i32>().iter().map(|r| r.unwrap().to_string()).collect(),
        explanation: text("explanation", i).unwrap(),
    };
    (0..batch.num_rows()).map(row).collect()
}

fn generated(workload: Workload, seed: u64) -> History {
    let mut builder =
        HistoryBuilder::new(BuildOptions { format: "gen".into(), real_time: true, ..BuildOptions::default() });
    let options =
        GenOptions { seed, ops: 20_000, isolation: Isolation::Snapshot, info: 0.01, ..GenOptions::new(workload) };
    generate(&options, &mut |batch| builder.push(batch)).unwrap();
    builder.finish().unwrap()
}

#[test]
fn each_anomaly_that_is_counted_is_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let name = |file: &str| dir.path().join(file).display().to_string();
    to_file(&generated(Workload::ListAppend, 1), Target::Edn, &dir.path().join("lists.edn")).unwrap();
    to_file(&generated(Workload::RwRegister, 2), Target::Edn, &dir.path().join("registers.edn")).unwrap();
    let broken = "
        {:process 0, :type :invoke, :f :txn, :value [[:append :x 1] [:append :x 2]]}
        {:process 1, :type :invoke, :f :txn, :value [[:r :x nil]]}
        {:process 2, :type :invoke, :f :txn, :value [[:append :x 3]]}
        {:process 2, :type :fail, :f :txn, :value [[:append :x 3]]}
        {:process 0, :type :ok, :f :txn, :value [[:append :x 1] [:append :x 2]]}
        {:process 1, :type :ok, :f :txn, :value [[:r :x [1]] [:r :x [1 2 3]]]}";
    std::fs::write(name("broken.edn"), broken).unwrap();
    let stale = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/register-stale-read.edn.gz").to_string();
    let histories = [name("lists.edn"), name("registers.edn"), name("broken.edn"), stale];
    let mut args = vec!["check", "--all-anomalies", "--json", "--examples", "2", "--linearizable-keys"];
    let out = name("out");
    args.extend(["-o", &out]);
    args.extend(histories.iter().map(String::as_str));
    let (code, said) = elench(&args);
    assert_eq!(code, 1, "{said}");
    let rows = rows(&dir.path().join("out/anomalies.parquet"));
    let documents: Vec<Json> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), histories.len());
    for (document, history) in documents.iter().zip(&histories) {
        let checker = document["checkers"].as_array().unwrap().iter().find(|c| c["anomalies"].is_object()).unwrap();
        let mut counted: BTreeMap<String, u64> = serde_json::from_value(checker["anomalies"].clone()).unwrap();
        counted.retain(|_, &mut n| n > 0);
        let mut written: BTreeMap<String, u64> = BTreeMap::new();
        let own: Vec<&Row> = rows.iter().filter(|row| row.history == *history).collect();
        own.iter().for_each(|row| *written.entry(row.kind.clone()).or_default() += 1);
        assert_eq!(written, counted, "{history}");
        assert!(!own.is_empty());
        for row in &own {
            assert_eq!(row.checker, checker["name"].as_str().unwrap());
            assert!(!row.explanation.is_empty() && !row.ops.is_empty(), "{row:?}");
            if !row.relations.is_empty() {
                let rels: Vec<Rel> = row.relations.iter().map(|r| Rel::from_name(r).unwrap()).collect();
                assert_eq!(rels.len(), row.ops.len());
                let kind = Anomaly::from_name(&row.kind).unwrap();
                let told = kind_of(&rels).unwrap();
                // What only weaker models tell apart may bear a wider name than its relations do.
                let weak = KINDS.contains(kind) && told.implied().contains(Anomaly::G2Item);
                assert!(weak || kind.implied().contains(told), "{row:?}");
            }
        }
        for violation in checker["violations"].as_array().unwrap() {
            let same = |row: &&&Row| {
                json!(row.kind) == violation["kind"]
                    && json!(row.ops) == violation["ops"]
                    && json!(row.explanation) == violation["explanation"]
            };
            assert!(own.iter().any(|row| same(&row)), "{violation:#}");
        }
    }
    let of = |history: &str, kind: &str| rows.iter().filter(|r| r.history == history && r.kind == kind).count();
    let skews = [of(&histories[0], "G2-item"), of(&histories[1], "G2-item")];
    assert!(skews[0] > 20 && skews[1] > 2, "there are more than the examples: {skews:?}");
    assert_eq!(of(&histories[2], "G1a"), 1);
    assert_eq!(rows.iter().find(|r| r.kind == "G1b").unwrap().key.as_deref(), Some(":x"));
    assert_eq!(of(&histories[3], "nonlinearizable"), 1);
}

#[test]
fn a_table_is_written_only_on_request_and_never_half() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    let good = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/list-append.edn.gz");
    assert_eq!(elench(&["check", "-q", "-o", &out, good]).0, 0);
    assert!(!dir.path().join("out/anomalies.parquet").exists());
    assert_eq!(elench(&["check", "-q", "--all-anomalies", "-o", &out, good]).0, 0);
    assert_eq!(rows(&dir.path().join("out/anomalies.parquet")).len(), 0);
    assert_eq!(elench(&["check", "-q", "--all-anomalies", "-o", "/proc/no/such", good]).0, 2);
}

/// The result document of a history, with everything that was found.
fn result(history: &History, workload: &str) -> Json {
    result_with(history, workload, Assumptions::default())
}

fn result_with(history: &History, workload: &str, assumptions: Assumptions) -> Json {
    let options = CheckOptions {
        checkers: vec!["isolation".into()],
        workload: Some(workload.into()),
        asked: Asked { all: true, assumptions, ..Asked::default() },
        ..CheckOptions::default()
    };
    document(&check("history", history, &options).unwrap(), history)
}

fn verified(document: &Json, history: &History) -> Vec<Verified> {
    verify(document, history).unwrap()
}

/// One cycle with every relation: each transaction has no more than the micro-operations that it takes.
const CYCLES: &str = "
    invoke 0 txn [[:append x 1] [:append y 2]]
    invoke 1 txn [[:append x 2] [:append y 1]]
    ok 0
    ok 1
    invoke 2 txn [[:r x nil] [:r y nil]]
    ok 2 txn [[:r x [1 2]] [:r y [1 2]]]
    invoke 3 txn [[:append z 1] [:r w nil]]
    invoke 4 txn [[:append w 1] [:r z nil]]
    ok 3 txn [[:append z 1] [:r w [1]]]
    ok 4 txn [[:append w 1] [:r z [1]]]
    invoke 5 txn [[:r a nil] [:append b 1]]
    invoke 6 txn [[:r b nil] [:append a 1]]
    ok 5 txn [[:r a nil] [:append b 1]]
    ok 6 txn [[:r b nil] [:append a 1]]
    invoke 7 txn [[:append c 1]]
    ok 7
    invoke 8 txn [[:r c nil]]
    ok 8 txn [[:r c nil]]
    invoke 9 txn [[:append d 1]]
    ok 9
    invoke 9 txn [[:r d nil]]
    ok 9 txn [[:r d nil]]";

#[test]
fn cycles_are_verified_from_the_document_alone() {
    let history = notation::history(CYCLES).unwrap();
    let document = result(&history, "list-append");
    let verified = verified(&document, &history);
    for kind in ["G0", "G1c", "G2-item", "G-single-item-process", "G-single-item-realtime"] {
        assert_eq!(verified.iter().filter(|v| v.what == kind).count(), 1, "{kind}: {verified:#?}");
    }
    assert!(verified.iter().all(|v| v.holds == Holds::Yes), "{verified:#?}");
}

/// Every number of a certificate, a little off; every relation, another one; every field gone.
fn forgeries(certificate: &Json) -> Vec<Json> {
    let mut paths = vec![Vec::new()];
    let mut at = 0;
    while at < paths.len() {
        let here = paths[at].iter().fold(certificate, |json, step: &String| match step.parse::<usize>() {
            Ok(i) => &json[i],
            Err(_) => &json[step],
        });
        let below: Vec<String> = match here {
            Json::Array(items) => (0..items.len()).map(|i| i.to_string()).collect(),
            Json::Object(fields) => fields.keys().filter(|k| *k != "because" && *k != "key").cloned().collect(),
            _ => Vec::new(),
        };
        let more: Vec<Vec<String>> = below.into_iter().map(|step| [paths[at].clone(), vec![step]].concat()).collect();
        paths.extend(more);
        at += 1;
    }
    let mut forged = Vec::new();
    for path in paths {
        let pointer: String = path.iter().map(|step| format!("/{step}")).collect();
        let mut with = |new: Json| {
            let mut whole = certificate.clone();
            *whole.pointer_mut(&pointer).unwrap() = new;
            forged.push(whole);
        };
        with(Json::Null);
        match certificate.pointer(&pointer).unwrap() {
            Json::Number(n) => {
                let n = n.as_i64().unwrap();
                [n - 1, n + 1, n + 2, -1, 1 << 40].into_iter().for_each(|n| with(json!(n)));
            }
            Json::String(text) => {
                let others = ["ww", "wr", "rw", "process", "realtime", "pass", "nonsense", "stuck"];
                others.into_iter().filter(|o| o != text).for_each(|o| with(json!(o)));
            }
            Json::Array(items) if path.last().is_some_and(|p| p == "steps") => {
                (0..items.len()).for_each(|i| {
                    let mut fewer = items.clone();
                    fewer.remove(i);
                    with(json!(fewer));
                });
                with(json!(items.iter().rev().collect::<Vec<_>>()));
                with(json!([items.clone(), items.clone()].concat()));
            }
            _ => {}
        }
    }
    forged
}

/// The same of registers, given that keys are sequential and that writes follow reads.
const REGISTERS: &str = "
    invoke 0 txn [[:w x 1] [:w y 1]]
    invoke 1 txn [[:w x 2] [:w y 2]]
    ok 0
    ok 1
    invoke 0 txn [[:r x nil]]
    ok 0 txn [[:r x 2]]
    invoke 1 txn [[:r y nil]]
    ok 1 txn [[:r y 1]]
    invoke 3 txn [[:w z 1] [:r w nil]]
    invoke 4 txn [[:w w 1] [:r z nil]]
    ok 3 txn [[:w z 1] [:r w 1]]
    ok 4 txn [[:w w 1] [:r z 1]]
    invoke 5 txn [[:r a nil] [:w b 1]]
    invoke 6 txn [[:r b nil] [:w a 1]]
    ok 5 txn [[:r a nil] [:w b 1]]
    ok 6 txn [[:r b nil] [:w a 1]]
    invoke 7 txn [[:w c 1]]
    ok 7
    invoke 8 txn [[:r c nil]]
    ok 8 txn [[:r c nil]]
    invoke 13 txn [[:w g 1]]
    invoke 14 txn [[:r g nil] [:w h 1]]
    invoke 15 txn [[:r h nil]]
    ok 13
    ok 14 txn [[:r g 1] [:w h 1]]
    ok 15 txn [[:r h 1]]
    invoke 15 txn [[:r g nil]]
    ok 15 txn [[:r g nil]]
    invoke 10 txn [[:w e 1]]
    invoke 11 txn [[:r e nil] [:w e 2] [:w f 1]]
    invoke 12 txn [[:r e nil] [:r f nil]]
    ok 10
    ok 11 txn [[:r e 1] [:w e 2] [:w f 1]]
    ok 12 txn [[:r e 1] [:r f 1]]";

fn of_registers() -> (History, Json) {
    let assumptions = Assumptions { wfr_keys: true, sequential_keys: true, ..Assumptions::default() };
    let history = notation::history(REGISTERS).unwrap();
    let document = result_with(&history, "rw-register", assumptions);
    (history, document)
}

#[test]
fn cycles_of_registers_are_verified_from_the_document_alone_by_what_it_says_was_assumed() {
    let (history, honest) = of_registers();
    let found = verified(&honest, &history);
    for kind in ["G0", "G1c", "G-single-item", "G2-item", "G-single-item-process", "G-single-item-realtime"] {
        assert_eq!(found.iter().filter(|v| v.what == kind).count(), 1, "{kind}: {found:#?}");
    }
    assert!(found.iter().all(|v| v.holds == Holds::Yes), "{found:#?}");
    let place = honest["checkers"].as_array().unwrap().iter().position(|c| c["name"] == "isolation").unwrap();
    let with = |field: &str, value: Json| {
        let mut document = honest.clone();
        document["checkers"][place][field] = value;
        verified(&document, &history)
    };
    let refused =
        |found: &[Verified], kind: &str| found.iter().any(|v| v.what == kind && matches!(v.holds, Holds::No(_)));
    assert_eq!(honest["checkers"][place]["assumed"], json!(["wfr-keys", "sequential-keys"]));
    let less = with("assumed", json!(["wfr-keys"]));
    assert!(refused(&less, "G0") && !refused(&less, "G-single-item"), "{less:#?}");
    let less = with("assumed", json!(["sequential-keys"]));
    assert!(refused(&less, "G-single-item") && !refused(&less, "G0"), "{less:#?}");
    let other = with("initial", json!("1"));
    assert!(refused(&other, "G2-item") && refused(&other, "G1c"), "{other:#?}");
}

#[test]
fn a_forged_step_of_lists_or_registers_is_refused() {
    let history = notation::history(CYCLES).unwrap();
    refuses_forgeries(&history, &result(&history, "list-append"));
    let (history, document) = of_registers();
    refuses_forgeries(&history, &document);
}

fn refuses_forgeries(history: &History, honest: &Json) {
    let place = honest["checkers"].as_array().unwrap().iter().position(|c| c["name"] == "isolation").unwrap();
    let claims = honest["checkers"][place]["violations"].as_array().unwrap().len();
    let mut refused = 0;
    for claim in 0..claims {
        let pointer = format!("/checkers/{place}/violations/{claim}/certificate");
        for forgery in forgeries(honest.pointer(&pointer).unwrap()) {
            let mut document = honest.clone();
            *document.pointer_mut(&pointer).unwrap() = forgery.clone();
            let holds = &verified(&document, history)[claim].holds;
            assert_ne!(*holds, Holds::Yes, "{forgery:#}");
            refused += 1;
        }
        for (field, other) in [("kind", json!("G1b")), ("kind", json!("G-single-item")), ("ops", json!([0, 1, 2]))] {
            let mut document = honest.clone();
            let steps = honest.pointer(&pointer).unwrap()["steps"].as_array().unwrap().iter();
            let rels: Vec<Rel> = steps.map(|s| Rel::from_name(s["relation"].as_str().unwrap()).unwrap()).collect();
            // What only weaker models tell apart has another name by its relations alone.
            if field == "kind" && kind_of(&rels).is_some_and(|kind| other == kind.name()) {
                continue;
            }
            document["checkers"][place]["violations"][claim][field] = other;
            assert!(matches!(verified(&document, history)[claim].holds, Holds::No(_)), "{document:#}");
        }
    }
    assert!(refused > 300, "{refused}");
}

/// Neither of the writers of x can be the first; none of the values was read by who overwrote it.
const NO_ORDER: &str = "
    invoke 0 txn [[:w x 1] [:w y 1] [:w q 1]]
    invoke 1 txn [[:w x 2] [:w y 2] [:w z 2]]
    invoke 2 txn [[:r x nil] [:r z nil]]
    invoke 3 txn [[:r y nil] [:r q nil]]
    ok 0
    ok 1
    ok 2 txn [[:r x 1] [:r z 2]]
    ok 3 txn [[:r y 2] [:r q 1]]";

#[test]
fn a_refutation_is_verified_from_the_document_alone_and_a_forged_one_refused() {
    let history = notation::history(NO_ORDER).unwrap();
    let honest = result(&history, "rw-register");
    let found = verified(&honest, &history);
    assert!(found.iter().any(|v| v.what == "PL-2.99-cycle-exists"), "{found:#?}");
    assert!(found.iter().all(|v| v.holds == Holds::Yes), "{found:#?}");
    let place = honest["checkers"].as_array().unwrap().iter().position(|c| c["name"] == "isolation").unwrap();
    assert_eq!(honest["checkers"][place]["not"], json!(["repeatable-read"]));
    let pointer = format!("/checkers/{place}/violations/0/certificate");
    let certificate = honest.pointer(&pointer).unwrap();
    assert_eq!(certificate["kind"], "refutation");
    let mut refused = 0;
    for forgery in forgeries(certificate) {
        let mut document = honest.clone();
        *document.pointer_mut(&pointer).unwrap() = forgery.clone();
        assert_ne!(verified(&document, &history)[0].holds, Holds::Yes, "{forgery:#}");
        refused += 1;
    }
    for (field, other) in [("kind", "G1c"), ("kind", "PL-SS-cycle-exists"), ("kind", "nonsense")] {
        let mut document = honest.clone();
        document["checkers"][place]["violations"][0][field] = json!(other);
        assert!(matches!(verified(&document, &history)[0].holds, Holds::No(_)), "{other}");
    }
    assert!(refused > 100, "{refused}");
    // The second writer as the last, and as the first, explains one of the reads each.
    for (old, new) in [("[:r x 1] [:r z 2]", "[:r x 2] [:r z 2]"), ("[:r y 2] [:r q 1]", "[:r y 1] [:r q 1]")] {
        let history = notation::history(&NO_ORDER.replace(old, new)).unwrap();
        assert!(matches!(verified(&honest, &history)[0].holds, Holds::No(_)));
        assert!(result(&history, "rw-register")["checkers"][place]["valid"] == json!(true));
    }
}

#[test]
fn a_certificate_is_refused_by_another_history() {
    let document = result(&notation::history(CYCLES).unwrap(), "list-append");
    // The same, but every read saw everything, and in the order in which it was appended.
    let good = CYCLES.replace("y [1 2]", "y [2 1]").replace("nil]]\n    ok", "]]\n    ok");
    for (other, first) in [(good, 0), ("invoke 0 txn [[:append x 1]] / ok 0".to_string(), 0)] {
        let history = notation::history(&other).unwrap();
        let verified = verified(&document, &history);
        assert!(matches!(verified[first].holds, Holds::No(_)), "{verified:#?}");
    }
}

#[test]
fn registers_called_lists_are_refused_and_an_unknown_workload_or_assumption_is_not_verified() {
    let text = "
        invoke 0 txn [[:r x nil] [:w y 1]] / invoke 1 txn [[:r y nil] [:w x 1]]
        ok 0 txn [[:r x nil] [:w y 1]] / ok 1 txn [[:r y nil] [:w x 1]]";
    let history = notation::history(text).unwrap();
    let mut document = result(&history, "rw-register");
    let found = verified(&document, &history);
    assert!(found.iter().any(|v| v.what == "G2-item"), "{found:?}");
    assert!(found.iter().all(|v| v.holds == Holds::Yes), "{found:?}");
    let place = document["checkers"].as_array().unwrap().iter().position(|c| c["name"] == "isolation").unwrap();
    document["checkers"][place]["workload"] = json!("list-append");
    assert!(verified(&document, &history).iter().all(|v| matches!(v.holds, Holds::No(_))));
    for (field, other) in [("workload", json!("trees")), ("assumed", json!(["luck"])), ("assumed", json!([7]))] {
        let mut document = result(&history, "rw-register");
        document["checkers"][place][field] = other;
        let found = verified(&document, &history);
        assert!(!found.is_empty() && found.iter().all(|v| matches!(v.holds, Holds::NotKnown(_))), "{found:?}");
    }
}

/// What `verify` says of the first lost element, with the evidence as it is or with other operations.
fn lost(text: &str, ops: Option<&[u64]>) -> Holds {
    let history = notation::history(text).unwrap();
    let options = CheckOptions { checkers: vec!["no-lost-ack".into()], ..CheckOptions::default() };
    let mut document = document(&check("history", &history, &options).unwrap(), &history);
    if let Some(ops) = ops {
        document["checkers"][0]["violations"] = json!([{ "kind": "lost", "ops": ops, "certificate": {} }]);
    }
    verified(&document, &history).remove(0).holds
}

#[test]
fn a_lost_acknowledgement_is_looked_up_in_the_history_and_a_forged_one_is_not_there() {
    // Indices: add 1 is 0 and 1, the read that shows it 2 and 3, add 2 4 and 5, the read that misses 1 is 6 and 7.
    let set = "invoke 0 add 1 / ok 0 add 1 / invoke 1 read / ok 1 read [1] / invoke 0 add 2 / ok 0 add 2 / invoke 1 read / ok 1 read [2]";
    assert_eq!(lost(set, None), Holds::Yes);
    assert_eq!(lost(set, Some(&[0, 6])), Holds::Yes, "the read that showed it is not needed");
    let refuted = |ops: &[u64], why: &str| match lost(set, Some(ops)) {
        Holds::No(said) => assert!(said.contains(why), "{said}"),
        other => panic!("{ops:?}: {other:?}"),
    };
    refuted(&[4, 6], "no read that misses it");
    refuted(&[2, 6], "no addition");
    refuted(&[0, 4], "no read that misses it");
    refuted(&[4, 2], "before the addition was acknowledged");
    refuted(&[0, 99], "no operations");
    let back = format!("{set} / invoke 1 read / ok 1 read [1 2]");
    assert!(matches!(lost(&back, Some(&[0, 6])), Holds::No(why) if why.contains("shows it")), "it was late");
    let open = "invoke 0 add 1 / invoke 1 read / ok 1 read [] / ok 0 add 1 / invoke 1 read / ok 1 read [1]";
    assert!(matches!(lost(open, Some(&[0, 1])), Holds::No(_)), "it was not acknowledged yet");
    let removed = format!("invoke 2 remove 1 / ok 2 remove 1 / {set}");
    assert!(matches!(lost(&removed, Some(&[2, 8])), Holds::NotKnown(_)), "it may have been removed");
}
