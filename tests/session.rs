//! The checkers of sessions, final states and fairness, and those that describe, through the command.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use serde_json::Value as Json;

fn elench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elench")).args(args).output().unwrap()
}

fn json(output: &Output) -> Json {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Each line is `process function value milliseconds`: an invocation, and its acknowledgement a millisecond later.
fn history(ops: &[&str]) -> String {
    let mut text = String::new();
    for (i, op) in ops.iter().enumerate() {
        let parts: Vec<&str> = op.split(' ').collect();
        let [process, f, value, time] = parts[..] else { panic!("{op}") };
        let sent = if f == "write" { value } else { "nil" };
        let time = time.parse::<u64>().unwrap() * 1_000_000;
        for (j, (kind, value, time)) in [("invoke", sent, time), ("ok", value, time + 1_000_000)].iter().enumerate() {
            let index = 2 * i + j;
            text += &format!(
                "{{:index {index}, :type :{kind}, :process {process}, :f :{f}, :value {value}, :time {time}, :node \"n{process}\"}}\n"
            );
        }
    }
    text
}

struct File(tempfile::TempDir);

impl File {
    fn new(content: &str) -> File {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("history.edn"), content).unwrap();
        File(dir)
    }

    fn name(&self) -> String {
        self.path("history.edn")
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

const STALE: [&str; 5] = ["0 write 1 0", "1 read 1 10", "1 write 2 20", "2 read 2 30", "2 read 1 40"];

#[test]
fn a_session_that_goes_back_is_a_violation_of_session_and_causal() {
    let file = File::new(&history(&STALE.map(|op| op)));
    let output = elench(&["check", "--json", "--checker", "session", "--checker", "causal", &file.name()]);
    let doc = json(&output);
    assert_eq!((output.status.code(), &doc["valid"]), (Some(1), &Json::Bool(false)), "{doc:#}");
    assert_eq!(doc["checkers"][0]["anomalies"]["session-causality"], 1, "{doc:#}");
    assert_eq!(doc["checkers"][1]["anomalies"]["WriteCORead"], 1, "{doc:#}");
    assert_eq!(doc["checkers"][1]["facts"]["CC"], "violated");
    let human = elench(&["check", "--checker", "causal", &file.name()]);
    let human = String::from_utf8(human.stdout).unwrap();
    assert!(human.contains("op 8 of process 2 read 1, which it knows to be overwritten"), "{human}");
}

#[test]
fn a_good_history_passes_and_values_written_twice_are_inconclusive() {
    let good = File::new(&history(&STALE[..4]));
    assert_eq!(elench(&["check", "--causal", "ccv", "--checker", "causal", &good.name()]).status.code(), Some(0));
    let twice = File::new(&history(&["0 write 1 0", "1 write 1 10", "2 read 1 20"]));
    let output = elench(&["check", "--json", "--checker", "session", &twice.name()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(json(&output)["why"].as_str().unwrap().starts_with("oracle-too-weak"));
}

#[test]
fn the_initial_state_is_what_was_asked_for() {
    let file = File::new(&history(&["0 read 7 0", "0 write 1 10", "0 read 1 20"]));
    assert_eq!(elench(&["check", "--checker", "causal", &file.name()]).status.code(), Some(1));
    assert_eq!(elench(&["check", "--checker", "causal", "--initial", "7", &file.name()]).status.code(), Some(0));
}

#[test]
fn expressions_over_final_states_are_judged_and_mistakes_in_them_are_bad_requests() {
    let file = File::new(&history(&STALE[..3]));
    let dump = file.write("dump.json", "{\"accounts\": {\"alice\": 60, \"bob\": 40}}");
    let with = |rule: &str, dump: &str| {
        elench(&["check", "--checker", "final-state", "--holds", rule, "--final", dump, &file.name()])
    };
    assert_eq!(with("sum(accounts) == 100 and accounts.bob > 0", &dump).status.code(), Some(0));
    let wrong = with("sum(accounts) == 101", &dump);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("sum(accounts) == 101 is false"));
    assert_eq!(with("carol == 1", &dump).status.code(), Some(3));
    assert_eq!(with("sum(accounts) == 100", "/nonexistent/dump").status.code(), Some(2));
    let mistake = with("sum(accounts = 100", &dump);
    assert_eq!(mistake.status.code(), Some(2));
    let told = String::from_utf8_lossy(&mistake.stderr).to_string();
    assert!(told.contains("equality is written ==") && told.contains('^'), "{told}");
}

#[test]
fn a_rule_given_runs_its_checker_without_being_named() {
    let file = File::new(&history(&STALE[..4]));
    let output = elench(&["check", "--json", "--fair", "p99(worst.latency) <= 1.1ms and errors == 0", &file.name()]);
    let doc = json(&output);
    let fairness = doc["checkers"].as_array().unwrap().iter().find(|c| c["name"] == "fairness").expect("it ran");
    assert_eq!(fairness["valid"], true, "{doc:#}");
    let unfair = elench(&["check", "--fair", "p99(group.latency) < 1us", "--group-by", "process", &file.name()]);
    assert_eq!(unfair.status.code(), Some(1));
}

#[test]
fn what_describes_is_told_and_makes_no_verdict() {
    let file = File::new(&history(&STALE[..4]));
    file.write("n1/db.log", "starting\npanic: out of memory\n");
    file.write("n2/deep/er/db.log", "fine\n");
    let args = [
        "check",
        "--json",
        "--checker",
        "latency",
        "--checker",
        "rate",
        "--checker",
        "clock",
        "--log-pattern",
        "panic",
    ];
    let store = file.0.path().display().to_string();
    let output = elench(&[&args[..], &[store.as_str()]].concat());
    let doc = json(&output);
    assert_eq!(output.status.code(), Some(3), "{doc:#}");
    let all = doc["checkers"].as_array().unwrap();
    assert!(all.iter().all(|c| c["valid"].is_null()), "{doc:#}");
    let by = |name: &str| all.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{name}: {doc:#}"));
    assert!(by("latency")["facts"]["by node"].is_array(), "{doc:#}");
    assert_eq!(by("log-pattern")["noted"]["log-match"], 1, "{doc:#}");
    assert_eq!(by("log-pattern")["facts"]["files read"], 2);
    assert_eq!(elench(&["check", "--log-pattern", "(", &file.name()]).status.code(), Some(2));
}

/// The runs of registers whose values are written once. Linearizable ones keep every guarantee. Of those that are not, these break
/// a session's view as well: replicas that lost writes in a partition, and reads from a replica that lags behind.
#[test]
fn real_runs_of_the_corpus_are_judged_rightly() {
    let corpus = std::env::var_os("ELENCH_CORPUS").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"),
        std::path::PathBuf::from,
    );
    let runs = corpus.join("jepsen-runs");
    if !runs.is_dir() {
        eprintln!("skipped: no corpus at {}", corpus.display());
        return;
    }
    for (file, session, causal) in [
        ("redis-sentinel/redis-simple-test/history.edn", None, None),
        ("redis-sentinel/redis-intensive-test/history.edn", None, None),
        ("redis-sentinel/redis-intensive-concurrent-test/history.edn", None, None),
        ("couchbase/linearizable.edn", None, None),
        ("redis-sentinel/redis-split-brain-test/history.edn", Some("monotonic-reads"), Some("WriteCORead")),
        ("redis-sentinel/redis-flapping-partitions-test/history.edn", Some("monotonic-reads"), Some("WriteCORead")),
        (
            "ratis/ratis-3.2.2__EXPECTED-RED-seeded-stale-reads/history.edn",
            Some("read-your-writes"),
            Some("WriteCOInitRead"),
        ),
    ] {
        let path = runs.join(file).display().to_string();
        let doc = json(&elench(&["check", "--json", "--checker", "session", "--checker", "causal", &path]));
        for (found, expected) in [(&doc["checkers"][0], session), (&doc["checkers"][1], causal)] {
            assert_eq!(found["valid"], Json::Bool(expected.is_none()), "{file}: {:?}", found["why"]);
            if let Some(kind) = expected {
                assert!(found["anomalies"][kind].as_u64() > Some(0), "{file}: {:?}", found["anomalies"]);
            }
        }
    }
}

#[test]
fn lines_of_logs_are_counted_as_by_a_search_of_each_for_each_text() {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    let (patterns, words) =
        (["panic", "a", "lost it"], ["panic", "panicked", "a", "b", "lost it", "lost", "it", "é", "\r"]);
    let mut matched = 0;
    for _ in 0..12 {
        let file = File::new(&history(&STALE[..4]));
        let (mut files, mut lines) = (0, 0);
        let mut expected: Vec<(String, String, u64)> = Vec::new();
        for n in 0..1 + below(3) {
            let mut content = String::new();
            for _ in 0..below(30) {
                let line: Vec<&str> = (0..below(4)).map(|_| words[below(words.len())]).collect();
                content += &(line.join(" ") + "\n");
            }
            let is_text = below(4) > 0;
            let content = if is_text { content } else { format!("\0{content}") };
            let name = format!("n{n}/db.log");
            file.write(&name, &content);
            if !is_text {
                continue;
            }
            files += 1;
            lines += content.matches('\n').count();
            for pattern in patterns {
                let count = content.split('\n').filter(|line| line.contains(pattern)).count() as u64;
                if count > 0 {
                    expected.push((pattern.into(), name.clone(), count));
                }
            }
        }
        let store = file.0.path().display().to_string();
        let flags = patterns.iter().flat_map(|pattern| ["--log-pattern", pattern]);
        let args: Vec<&str> = ["check", "--json"].into_iter().chain(flags).chain([store.as_str()]).collect();
        let doc = json(&elench(&args));
        let all = doc["checkers"].as_array().unwrap();
        let found = all.iter().find(|c| c["name"] == "log-pattern").unwrap_or_else(|| panic!("{doc:#}"));
        let facts = &found["facts"];
        assert_eq!((&facts["files read"], &facts["lines read"]), (&files.into(), &lines.into()), "{doc:#}");
        let total: u64 = expected.iter().map(|(_, _, n)| n).sum();
        assert_eq!(found["noted"]["log-match"].as_u64().unwrap_or(0), total, "{doc:#}");
        let mut told: Vec<(String, String, u64)> = Vec::new();
        for row in facts["matches"].as_array().unwrap() {
            let text = |name: &str| row[name].as_str().unwrap_or_else(|| panic!("{row:#}")).to_string();
            let path = text("file");
            let at = path.find("/n").map_or(0, |_| path.len() - "n0/db.log".len());
            told.push((text("pattern"), path[at..].to_string(), row["lines"].as_u64().unwrap()));
        }
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "{doc:#}");
        matched += total;
    }
    assert!(matched > 50, "{matched}");
}
