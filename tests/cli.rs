//! What the command does, as a user sees it.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

fn elench(args: &[&str]) -> Output {
    elench_with(args, b"")
}

fn elench_with(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_elench"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes it early.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stdout)))
}

fn corpus(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(file).display().to_string()
}

fn manifest() -> Vec<Vec<String>> {
    let rows = std::fs::read_to_string(corpus("MANIFEST.tsv")).unwrap();
    rows.lines().skip(1).map(|l| l.split('\t').map(String::from).collect()).collect()
}

/// A place for files of one test.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.name(name)
    }
}

const VALID: &str = "{:process 0, :type :invoke, :f :write, :value 1, :index 0, :time 1}
{:process 0, :type :ok, :f :write, :value 1, :index 1, :time 2}
{:process 1, :type :invoke, :f :read, :value nil, :index 2, :time 3}
{:process 1, :type :ok, :f :read, :value 1, :index 3, :time 4}
";

#[test]
fn every_history_of_the_corpus_gets_its_verdict_and_exit_code() {
    for row in manifest() {
        let output = elench(&["check", "--json", &corpus(&row[0])]);
        let doc = json(&output);
        let (valid, exit) = match row[3].as_str() {
            "valid" => (Json::Bool(true), 0),
            "invalid" => (Json::Bool(false), 1),
            _ => (Json::from("unknown"), 3),
        };
        assert_eq!((&doc["valid"], code(&output)), (&valid, exit), "{}: {doc:#}", row[0]);
        assert_eq!(doc["workload"], row[1].as_str());
    }
}

#[test]
fn the_evidence_of_an_injected_fault_names_its_operations() {
    // Of what was recorded from a real system nobody injected an operation.
    for row in manifest().iter().filter(|row| row[3] == "invalid" && !row[4].is_empty()) {
        let doc = json(&elench(&["check", "--json", &corpus(&row[0])]));
        let violation = &doc["checkers"][0]["violations"][0];
        let named = if doc["checkers"][0]["name"] == "linear" {
            &violation["certificate"]["minimal"]
        } else {
            &violation["ops"]
        };
        let minimal: Vec<u64> = named.as_array().unwrap().iter().filter_map(Json::as_u64).collect();
        let injected: Vec<u64> = row[4].split(' ').map(|i| i.parse().unwrap()).collect();
        assert!(injected.iter().any(|i| minimal.contains(i)), "{}: {minimal:?} of {injected:?}", row[0]);
        assert!(minimal.len() <= 6, "{}: {minimal:?}", row[0]);
    }
}

#[test]
fn the_corpus_is_what_the_generator_makes() {
    let scratch = Scratch::new();
    for row in manifest().iter().filter(|row| row[5].starts_with("elench gen")) {
        let out = scratch.name("again.edn");
        let mut args: Vec<&str> = row[5].split(' ').skip(1).collect();
        args.extend(["-o", &out]);
        let output = elench(&args);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let kept = std::fs::File::open(corpus(&row[0])).unwrap();
        let mut expected = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(kept), &mut expected).unwrap();
        assert!(std::fs::read_to_string(&out).unwrap() == expected, "{} differs from `{}`", row[0], row[5]);
    }
}

#[test]
fn the_result_document_has_the_fields_of_the_contract() {
    let doc = json(&elench(&["check", "--json", &corpus("cas-register-keyed.edn.gz")]));
    assert_eq!(doc["format"], "edn");
    assert_eq!(doc["valid"], true);
    let ops = &doc["ops"];
    let sum: u64 = ["ok", "fail", "info"].iter().map(|s| ops[s].as_u64().unwrap()).sum();
    assert_eq!(sum, 5000);
    let linear = &doc["checkers"][0];
    assert_eq!(
        (&linear["name"], &linear["valid"], &linear["model"]),
        (&Json::from("linear"), &true.into(), &"cas-register".into())
    );
    assert!(linear["anomalies"].is_object() && linear["violations"].is_array() && linear["elapsed_ms"].is_number());
    let coverage = &linear["coverage"];
    assert_eq!(
        (&coverage["ops_consumed"], &coverage["keys"], &coverage["keys_decided"]),
        (&5000.into(), &5.into(), &5.into())
    );
    assert_eq!(coverage["undecided"], Json::Array(vec![]));
    assert_eq!(linear["certificate"]["orders"].as_array().unwrap().len(), 5);
    let invalid = json(&elench(&["check", "--json", &corpus("register-stale-read.edn.gz")]));
    let violation = &invalid["checkers"][0]["violations"][0];
    assert_eq!(violation["kind"], "nonlinearizable");
    assert!(violation["ops"].is_array() && violation["explanation"].as_str().unwrap().contains("read of"));
    assert_eq!(invalid["checkers"][0]["anomalies"]["nonlinearizable"], 1);
}

#[test]
fn a_person_sees_at_a_glance_what_was_checked() {
    let output = elench(&["check", &corpus("cas-register-keyed.edn.gz")]);
    let shown = text(&output.stdout);
    assert!(shown.starts_with("VALID    "), "{shown}");
    for part in [
        "5,000 operations",
        "cas-register",
        "keys       5, lifted from [k v]",
        "5 of 5 keys decided",
        "nothing here proves",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let output = elench(&["check", "--quiet", &corpus("register.edn.gz")]);
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

/// Nothing was acknowledged, so nothing can be said.
const CRASHED: &[u8] =
    b"{:process 0, :type :invoke, :f :write, :value 1}\n{:process 0, :type :info, :f :write, :value 1}\n";

#[test]
fn the_worst_answer_is_the_exit_code() {
    let scratch = Scratch::new();
    let bad = scratch.file("bad.edn", b"{:process 0");
    let (valid, invalid, unknown) =
        (corpus("register.edn.gz"), corpus("register-dirty-fail.edn.gz"), scratch.file("unknown.edn", CRASHED));
    for (files, expected) in [
        (vec![&valid, &valid], 0),
        (vec![&valid, &unknown], 3),
        (vec![&unknown, &bad, &valid], 2),
        (vec![&bad, &unknown, &invalid], 1),
    ] {
        let mut args = vec!["check", "--json"];
        args.extend(files.iter().map(|f| f.as_str()));
        let output = elench(&args);
        assert_eq!(code(&output), expected, "{files:?}");
        assert_eq!(text(&output.stdout).lines().count(), files.len(), "a document each");
    }
}

/// Bad input gives exit code 2, one message that names the file, and no document.
fn refused(file: &str, args: &[&str], expect: &str) {
    let mut all = vec!["check"];
    all.extend(args);
    all.push(file);
    let output = elench(&all);
    let message = text(&output.stderr);
    assert_eq!(code(&output), 2, "{file}: {message} {}", text(&output.stdout));
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("elench: ") && message.contains(file), "{message}");
    assert!(message.contains(expect), "{message} should say: {expect}");
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn bad_input_of_every_kind_is_one_clear_message() {
    let s = Scratch::new();
    refused(&s.name("absent.edn"), &[], "there is no such file");
    refused(&s.file("empty.edn", b""), &[], "it is empty");
    refused(&s.file("blank.edn", b" \n\n"), &[], "it is empty");
    std::fs::create_dir(s.path("dir")).unwrap();
    refused(&s.name("dir"), &[], "there is no history here");
    refused(&s.file("cut.edn", &VALID.as_bytes()[..VALID.len() - 10]), &[], "line 4");
    refused(&s.file("words.edn", b"all work and no play"), &[], "no history format that is known");
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    refused(&s.file("noise.edn", &noise), &[], "binary data");
    refused(&s.file("noise2.edn", &noise), &["--format", "edn"], "");
    for format in
        ["json", "history-txt", "jepsen", "schema", "csv", "parquet", "arrow", "dbcop", "plume", "awdit", "chronos"]
    {
        refused(&s.file("noise3", &noise), &["--format", format], "");
    }
    let two = [VALID, "[{\"type\":\"invoke\",\"process\":0,\"f\":\"read\",\"value\":null}]\n"].concat();
    refused(&s.file("two.edn", two.as_bytes()), &[], "line 5");
    refused(&s.file("wrong.parquet", b"PAR1 but nothing else PAR1"), &[], "Parquet");
    refused(&s.file("wrong.arrow", b"ARROW1\0\0nothing"), &[], "Arrow");
    refused(&s.file("wrong.jepsen", b"JEPSEN\0\0\0\x09\0\0\0\0\0\0\0\0"), &[], "version");
    refused(
        &s.file("double.edn", b"{:process 0, :type :invoke, :f :read}\n{:process 0, :type :invoke, :f :write}"),
        &[],
        "line 2: malformed history",
    );
}

#[test]
fn a_file_cut_or_flipped_anywhere_never_panics() {
    let s = Scratch::new();
    let source = s.file("h.edn", VALID.as_bytes());
    for target in ["edn", "jsonl", "schema", "csv", "parquet", "arrow"] {
        let whole = s.name("whole");
        assert_eq!(code(&elench(&["convert", &source, &whole, "--to", target])), 0);
        let bytes = std::fs::read(&whole).unwrap();
        for i in (0..bytes.len()).step_by(bytes.len() / 12 + 1) {
            let mut flipped = bytes.clone();
            flipped[i] ^= 1 << (i % 8);
            for damaged in [&bytes[..i], &flipped] {
                let output = elench(&["check", "-q", &s.file("damaged", damaged)]);
                assert!([0, 1, 2, 3].contains(&code(&output)), "{target} at {i}");
                assert!(!text(&output.stderr).contains("panicked"), "{target} at {i}: {}", text(&output.stderr));
            }
        }
    }
}

#[test]
fn a_request_that_makes_no_sense_is_refused_with_advice() {
    let valid = corpus("register.edn.gz");
    for (args, expect) in [
        (vec!["check", "--model", "stack-of-cards", &valid], "there are register, cas-register"),
        (vec!["check", "--checker", "guess", &valid], "there are linear, sequential, k-atomic, isolation, "),
        (vec!["check", "--workload", "chess", &valid], "register, cas-register"),
        (vec!["check", "--initial", "{", &valid], "--initial"),
        (vec!["check", "--checker", "no-lost-ack", "--final", "no-such.edn", &valid], "no-such.edn: cannot read"),
        (vec!["check", "--checker", "exactly-once", &valid], "--idempotency-key"),
        (vec!["check", "--idempotency-key", "nowhere", &valid], "names no place in an operation"),
        (vec!["check", "--time", "5", &valid], "90s"),
        (vec!["convert", &valid, "out.xyz"], "--to"),
        (vec!["gen", "register", "--fault", "help", "-o", "x.edn"], "stale-read"),
        (vec!["frobnicate"], "frobnicate"),
    ] {
        let output = elench(&args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(text(&output.stderr).contains(expect), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn converting_there_and_back_through_every_format_changes_nothing() {
    let s = Scratch::new();
    for row in manifest() {
        let first = s.name("first.edn");
        assert_eq!(code(&elench(&["convert", &corpus(&row[0]), &first])), 0);
        let expected = std::fs::read(&first).unwrap();
        let mut from = first.clone();
        for name in ["a.parquet", "b.arrow", "c.jsonl", "d.parquet", "e.edn"] {
            let to = s.name(name);
            let output = elench(&["convert", &from, &to]);
            assert_eq!(code(&output), 0, "{name}: {}", text(&output.stderr));
            from = to;
        }
        assert!(std::fs::read(&from).unwrap() == expected, "{}", row[0]);
    }
}

#[test]
fn histories_come_from_standard_input_compressed_or_not() {
    let gz = std::fs::read(corpus("register.edn.gz")).unwrap();
    assert_eq!(code(&elench_with(&["check", "-"], &gz)), 0);
    assert_eq!(code(&elench_with(&["check", "-"], VALID.as_bytes())), 0);
    let zst = zstd::encode_all(VALID.as_bytes(), 1).unwrap();
    assert_eq!(code(&elench_with(&["check", "-"], &zst)), 0);
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(VALID.as_bytes()).unwrap();
    assert_eq!(code(&elench_with(&["check", "-"], &lz4.finish().unwrap())), 0);
    let s = Scratch::new();
    let parquet = s.name("h.parquet");
    assert_eq!(code(&elench_with(&["convert", "-", &parquet], VALID.as_bytes())), 0);
    assert_eq!(code(&elench_with(&["check", "-"], &std::fs::read(&parquet).unwrap())), 0);
    let out = elench_with(&["convert", "-", "-", "--to", "jsonl"], VALID.as_bytes());
    assert_eq!(text(&out.stdout).lines().count(), 4);
}

#[test]
fn a_store_directory_is_a_history() {
    let s = Scratch::new();
    std::fs::create_dir_all(s.path("run")).unwrap();
    std::fs::write(s.path("run/history.edn"), VALID).unwrap();
    std::fs::write(s.path("run/results.edn"), "{:valid? true}").unwrap();
    let output = elench(&["check", &s.name("run")]);
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).contains("results.edn says :valid? true, as here"), "{}", text(&output.stdout));
}

#[test]
fn a_repaired_history_is_never_a_pass() {
    let s = Scratch::new();
    let file = s
        .file("h.edn", format!("{VALID}{{:process 7, :type :ok, :f :read, :value 1, :index 4, :time 9}}\n").as_bytes());
    refused(&file, &[], "a completion without an invocation");
    let output = elench(&["check", "--lenient", &file]);
    assert_eq!(code(&output), 3);
    let shown = text(&output.stdout);
    assert!(shown.contains("PARTIAL-model") && shown.contains("a completion without an invocation: 1"), "{shown}");
}

#[test]
fn info_says_what_is_there_and_how_to_check_it() {
    let output = elench(&["info", &corpus("cas-register-keyed.edn.gz")]);
    let shown = text(&output.stdout);
    for part in ["cas-register", "processes", "fault ", "start#1", "elench check --model cas-register --independent"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let doc = json(&elench(&["info", "--json", &corpus("cas-register-keyed.edn.gz")]));
    assert_eq!(
        (&doc["keys"]["count"], &doc["keys"]["form"], &doc["workload"]),
        (&5.into(), &"tuple".into(), &"cas-register".into())
    );
    assert!(!doc["faults"].as_array().unwrap().is_empty());
}

#[test]
fn evidence_is_written_where_it_is_asked_for_and_still_fails() {
    let s = Scratch::new();
    let output = elench(&["check", "-q", "-o", &s.name("out"), &corpus("register-stale-read.edn.gz")]);
    assert_eq!(code(&output), 1);
    let dir = std::fs::read_dir(s.path("out")).unwrap().next().unwrap().unwrap().path();
    let result: Json = serde_json::from_str(&std::fs::read_to_string(dir.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["valid"], false);
    let small = dir.join("nonlinearizable-1.edn").display().to_string();
    let again = json(&elench(&["check", "--json", &small]));
    assert_eq!(again["valid"], false);
    assert!(again["ops"]["ok"].as_u64().unwrap() <= 5);
}

#[test]
fn generated_histories_depend_on_the_seed_alone() {
    let s = Scratch::new();
    let make = |name: &str, seed: &str| {
        let out = s.name(name);
        assert_eq!(
            code(&elench(&["gen", "cas-register", "--ops", "500", "--keys", "3", "--seed", seed, "-o", &out])),
            0
        );
        std::fs::read(&out).unwrap()
    };
    assert_eq!(make("a.edn", "1"), make("b.edn", "1"));
    assert_ne!(make("a.edn", "1"), make("c.edn", "2"));
}

#[test]
fn generated_parquet_holds_what_generated_edn_does() {
    let s = Scratch::new();
    for workload in [["cas-register", "--keys", "4"], ["list-append", "--fail", "0.1"], ["register", "--info", "0.05"]]
    {
        let (edn, parquet, back) = (s.name("a.edn"), s.name("a.parquet"), s.name("back.edn"));
        for out in [&edn, &parquet] {
            let mut args = vec!["gen", workload[0], workload[1], workload[2], "--ops", "70000", "-o"];
            args.push(out);
            assert_eq!(code(&elench(&args)), 0);
        }
        assert_eq!(code(&elench(&["convert", &parquet, &back])), 0);
        assert!(std::fs::read(&back).unwrap() == std::fs::read(&edn).unwrap(), "{workload:?}");
    }
}

#[test]
fn help_completions_and_the_manual_are_there() {
    for command in ["check", "info", "verify", "shrink", "convert", "gen", "completions", "man"] {
        let output = elench(&[command, "--help"]);
        assert_eq!(code(&output), 0);
        assert!(text(&output.stdout).contains("Example"), "{command} --help has examples");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&elench(&["completions", shell]).stdout).contains("elench"));
    }
    assert!(text(&elench(&["man"]).stdout).contains(".TH elench"));
    assert!(text(&elench(&["checkers"]).stdout).contains("linear"));
    assert!(text(&elench(&["models"]).stdout).contains("cas-register"));
    assert_eq!(text(&elench(&["models", "--json"]).stdout).lines().count(), elench::judge::MODELS.len());
}

#[test]
fn a_spent_budget_is_unknown_with_coverage() {
    let s = Scratch::new();
    let hard = s.name("hard.edn");
    let args =
        ["gen", "cas-register", "--ops", "4000", "--clients", "40", "--values", "3", "--info", "0.2", "-o", &hard];
    assert_eq!(code(&elench(&args)), 0);
    let output = elench(&["check", "--json", "--memory", "1B", "--checker", "linear", &hard]);
    let doc = json(&output);
    assert_eq!((code(&output), &doc["valid"]), (3, &Json::from("unknown")), "{doc:#}");
    let undecided = &doc["checkers"][0]["coverage"]["undecided"][0];
    assert!(undecided["why"].as_str().unwrap().contains("memory"), "{doc:#}");
}

#[test]
fn certificates_are_verified_from_the_history_alone_and_a_forged_one_is_refused() {
    let s = Scratch::new();
    let (good, bad) = (corpus("cas-register-keyed.edn.gz"), corpus("register-stale-read.edn.gz"));
    for (history, exit) in [(&good, 0), (&bad, 1)] {
        let output = elench(&["check", "--json", history]);
        assert_eq!(code(&output), exit);
        let result = s.file("result.json", &output.stdout);
        let verified = elench(&["verify", &result, history]);
        assert_eq!(code(&verified), 0, "{}", text(&verified.stdout));
        assert!(text(&verified.stdout).starts_with("holds"));
    }
    let honest = text(&elench(&["check", "--json", &good]).stdout);
    let at = honest.find("\"order\":[").unwrap() + "\"order\":[".len();
    let (first, rest) = honest[at..].split_once(',').unwrap();
    let (second, rest) = rest.split_once(',').unwrap();
    let forged = s.file("forged.json", format!("{}{second},{first},{second},{rest}", &honest[..at]).as_bytes());
    let verified = elench(&["verify", &forged, &good]);
    assert_eq!(code(&verified), 1, "{}", text(&verified.stdout));
    assert!(text(&verified.stdout).contains("DOES NOT HOLD"));
    let accused = text(&elench(&["check", "--json", &bad]).stdout);
    let at = accused.find("\"core\":[").unwrap() + "\"core\":[".len();
    let end = at + accused[at..].find(']').unwrap();
    let core = accused[at..end].split_once(',').unwrap().1;
    let forged = s.file("forged.json", format!("{}{core}{}", &accused[..at], &accused[end..]).as_bytes());
    assert_eq!(code(&elench(&["verify", &forged, &bad])), 1);
    assert_eq!(code(&elench(&["verify", &s.file("no.json", b"{}"), &bad])), 2);
}

#[test]
fn a_shrunk_history_still_fails_and_one_that_passes_is_not_shrunk() {
    let s = Scratch::new();
    let small = s.name("small.edn");
    assert_eq!(code(&elench(&["shrink", &corpus("register-stale-read.edn.gz"), "-o", &small])), 0);
    assert!(std::fs::read_to_string(&small).unwrap().lines().count() <= 10);
    assert_eq!(code(&elench(&["check", &small])), 1);
    let none = s.name("none.edn");
    assert_eq!(code(&elench(&["shrink", &corpus("cas-register-keyed.edn.gz"), "-o", &none])), 3);
    assert!(!std::path::Path::new(&none).exists());
}

#[test]
fn weaker_conditions_are_checked_when_asked_for() {
    let s = Scratch::new();
    let line = |p: u32, t: &str, f: &str, v: &str| format!("{{:process {p}, :type :{t}, :f :{f}, :value {v}}}\n");
    let write = |v: &str| line(0, "invoke", "write", v) + &line(0, "ok", "write", v);
    let read = |p: u32, v: &str| line(p, "invoke", "read", "nil") + &line(p, "ok", "read", v);
    let stale = s.file("stale.edn", (write("1") + &write("2") + &write("3") + &read(1, "1")).as_bytes());
    assert_eq!(code(&elench(&["check", &stale])), 1);
    assert_eq!(code(&elench(&["check", "--checker", "sequential", &stale])), 0);
    assert_eq!(code(&elench(&["check", "--checker", "k-atomic", "--k", "2", &stale])), 1);
    let output = elench(&["check", "--checker", "k-atomic", "--json", &stale]);
    assert_eq!((code(&output), text(&output.stdout).contains("\"k\":3")), (0, true));
    let disagree = write("1") + &write("2") + &read(1, "2") + &read(1, "1");
    let disagree = s.file("disagree.edn", disagree.as_bytes());
    assert_eq!(code(&elench(&["check", "--checker", "sequential", &disagree])), 1);
}
