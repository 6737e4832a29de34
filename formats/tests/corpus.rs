//! Every real history is read, and read rightly. The corpus stands beside the repository; where it does not, these tests
//! say so and pass.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use elench_formats::History;
use elench_formats::history::{Side, Status};
use elench_formats::open::{OpenOptions, open};

fn corpus() -> Option<PathBuf> {
    let dir = std::env::var_os("ELENCH_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus"), PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: there is no corpus at {}", dir.display());
    None
}

/// Rows of a manifest: file, format, workload.
fn manifest(dir: &Path) -> Vec<(PathBuf, String, String)> {
    let text = std::fs::read_to_string(dir.join("MANIFEST.tsv")).unwrap();
    text.lines()
        .skip(1)
        .map(|line| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().unwrap_or_default().to_string();
            (dir.join(next()), next(), next())
        })
        .collect()
}

fn read(path: &Path) -> History {
    open(&path.display().to_string(), &OpenOptions::default(), &|_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// Counts of a history's events by type, as its source has them.
fn event_counts(h: &History) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (op, side) in h.events() {
        let name = match (side, op.status(), op.is_client()) {
            (Side::Invocation, Status::Info, false) => "info",
            (Side::Invocation, _, _) => "invoke",
            (Side::Completion, status, _) => status.name(),
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// The same counts by looking for `:type :ok` and the like in the text, or for the word in a listing.
fn text_counts(path: &Path, format: &str) -> BTreeMap<&'static str, u64> {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let mut counts = BTreeMap::new();
    for name in ["invoke", "ok", "fail", "info"] {
        let word = format!(":{name}");
        let count = match format {
            "txt" | "log" => text.split_whitespace().filter(|w| *w == word).count(),
            "json" => text.replace(' ', "").matches(&format!("\"type\":\"{name}\"")).count(),
            _ => text.matches(&format!(":type {word}")).count(),
        };
        if count > 0 {
            counts.insert(name, count as u64);
        }
    }
    counts
}

/// Reports of anomalies that the manifest lists among the histories.
fn is_report(path: &Path) -> bool {
    path.ends_with("anomalies.edn") || path.ends_with("sample_anomalies.edn")
}

#[test]
fn every_jepsen_run_is_read_with_its_operations_counted_as_in_its_text() {
    let Some(dir) = corpus() else { return };
    let (mut files, mut wrong) = (0, Vec::new());
    for (path, format, workload) in manifest(&dir.join("jepsen-runs")) {
        if workload == "results" || workload == "evidence" || path.ends_with("results.edn") || is_report(&path) {
            continue;
        }
        files += 1;
        match open(&path.display().to_string(), &OpenOptions::default(), &|_, _| {}) {
            Ok(h) if format != "jepsen" && event_counts(&h) != text_counts(&path, &format) => {
                wrong.push(format!(
                    "{}: {:?} is not {:?}",
                    path.display(),
                    event_counts(&h),
                    text_counts(&path, &format)
                ));
            }
            Ok(_) => {}
            Err(e) => wrong.push(e.to_string()),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files > 130, "{files} files");
    eprintln!("{files} histories");
}

#[test]
fn results_and_reports_are_whole_edn_and_no_histories() {
    let Some(dir) = corpus() else { return };
    let mut files = 0;
    for (path, format, workload) in manifest(&dir.join("jepsen-runs")) {
        if format == "edn" && (workload == "results" || path.ends_with("results.edn") || is_report(&path)) {
            elench_formats::edn::parse_bytes(&std::fs::read(&path).unwrap())
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let e = open(&path.display().to_string(), &OpenOptions::default(), &|_, _| {}).expect_err("no history");
            assert!(e.to_string().contains("no :type") || e.to_string().contains(":history"), "{e}");
            files += 1;
        }
    }
    assert!(files >= 40, "{files} files");
}

#[test]
fn one_run_is_the_same_history_in_edn_text_and_binary() {
    let Some(dir) = corpus() else { return };
    let mut runs = 0;
    for (path, format, _) in
        manifest(&dir.join("jepsen-runs")).into_iter().filter(|(p, _, _)| p.ends_with("test.jepsen"))
    {
        assert_eq!(format, "jepsen");
        let binary = read(&path);
        for sibling in ["history.edn", "history.txt"] {
            let sibling = path.with_file_name(sibling);
            if !sibling.is_file() {
                continue;
            }
            let other = read(&sibling);
            let times = sibling.ends_with("history.edn");
            same_operations(&binary, &other, times, &sibling);
            runs += 1;
        }
    }
    assert!(runs >= 10, "{runs} pairs of files");
}

/// The same operations, one by one; a listing has neither times nor further fields.
fn same_operations(a: &History, b: &History, times: bool, file: &Path) {
    assert_eq!(a.len(), b.len(), "{}", file.display());
    assert_eq!(a.meta().keys, b.meta().keys, "{}", file.display());
    for (x, y) in a.ops().zip(b.ops()) {
        let values = |op: &elench_formats::history::OpRef<'_>| {
            let (mut input, mut output) = (String::new(), String::new());
            op.write_invoke_value(&mut input);
            op.write_complete_value(&mut output);
            (input, output)
        };
        let at = format!("{}: operation {}", file.display(), x.index());
        assert_eq!((x.process(), x.actor(), x.f(), x.status()), (y.process(), y.actor(), y.f(), y.status()), "{at}");
        assert_eq!(values(&x), values(&y), "{at}");
        assert_eq!(
            x.key() == elench_formats::columns::Scalar::Nil,
            y.key() == elench_formats::columns::Scalar::Nil,
            "{at}"
        );
        if times {
            assert_eq!((x.index(), x.complete_index()), (y.index(), y.complete_index()), "{at}");
            assert_eq!((x.invoke_time(), x.complete_time()), (y.invoke_time(), y.complete_time()), "{at}");
            assert_eq!((x.error(), x.node()), (y.error(), y.node()), "{at}");
            let extras = |op: &elench_formats::history::OpRef<'_>| {
                op.extras()
                    .chain(op.invoke_extras())
                    .map(|(n, v)| format!("{n} {v}"))
                    .collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(extras(&x), extras(&y), "{at}");
        }
    }
}

#[test]
fn every_history_of_the_linear_and_isolation_folders_is_read() {
    let Some(dir) = corpus() else { return };
    let mut files = 0;
    for folder in ["linear", "isolation", "isolation/big"] {
        for entry in std::fs::read_dir(dir.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".edn.gz") {
                continue;
            }
            let h = read(&path);
            files += 1;
            let expected = if name.contains("100k") {
                100_000
            } else if name.contains("10k") {
                10_000
            } else {
                continue;
            };
            let clients = h.clients().count();
            assert!((expected..expected + expected / 50).contains(&clients), "{name}: {clients} operations");
        }
    }
    assert!(files >= 22, "{files} files");
}

#[test]
fn every_peer_history_is_read_as_transactions_without_real_time() {
    let Some(dir) = corpus() else { return };
    let mut files = 0;
    let mut totals = [0u64; 4];
    for (path, _, _) in manifest(&dir.join("peers")) {
        let h = read(&path);
        assert!(!h.meta().real_time, "{}", path.display());
        assert!(h.clients().all(|op| op.f() == Some("txn")), "{}", path.display());
        if h.meta().format == "dbcop" {
            totals.iter_mut().zip(h.counts()).for_each(|(t, n)| *t += n);
        }
        files += 1;
    }
    assert_eq!(files, 163);
    // Counted once by an independent decoder: transactions committed and aborted in the 149 dbcop files.
    assert_eq!(totals, [30_819, 1_161, 0, 0]);
}
