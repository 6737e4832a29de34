//! What is in a history, and in the logs beside it? These checkers never make a verdict alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use elench_checkers::Spent;
use elench_checkers::descriptive::{clock, latency, rate};
use elench_checkers::findings::{Example, Fact, Findings, Table};
use elench_checkers::outcome::{Status, Why};
use regex_lite::Regex;

use super::{Entry, Run};
use crate::check::CheckerInfo;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Checker log-pattern: regular expression to look for in each line of the nodes' logs (repeatable)
    #[arg(long = "log-pattern", value_name = "REGEX", value_parser = regex)]
    pub patterns: Vec<Regex>,
    /// Checker log-pattern: file or directory of logs (repeatable; default: what lies in the directories of a store directory)
    #[arg(long = "logs", value_name = "PATH")]
    pub logs: Vec<PathBuf>,
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| e.to_string())
}

/// The checkers of this group.
pub const ENTRIES: &[Entry] = &[
    Entry {
        info: CheckerInfo {
            name: "latency",
            question: "How long did operations take, by function, outcome, node and fault window?",
            needs: "times. Runs when asked for",
            example: "elench check --checker latency history.edn",
            judges: false,
        },
        workloads: &[],
        run: |run| Ok(latency(run.history)),
    },
    Entry {
        info: CheckerInfo {
            name: "rate",
            question: "How many operations ended in each second, by function, outcome, node and fault window?",
            needs: "times. Runs when asked for",
            example: "elench check --checker rate history.edn",
            judges: false,
        },
        workloads: &[],
        run: |run| Ok(rate(run.history)),
    },
    Entry {
        info: CheckerInfo {
            name: "clock",
            question: "How far were the nodes' clocks off?",
            needs: "the :clock-offsets of Jepsen's clock nemesis. Runs when asked for",
            example: "elench check --checker clock store/my-test/latest",
            judges: false,
        },
        workloads: &[],
        run: |run| Ok(clock(run.history)),
    },
    Entry {
        info: CheckerInfo {
            name: "log-pattern",
            question: "Which lines of the nodes' logs match a regular expression?",
            needs: "--log-pattern; logs below a store directory, or --logs",
            example: "elench check --log-pattern 'panic|assertion failed' store/my-test/latest",
            judges: false,
        },
        workloads: &[],
        run: log_pattern,
    },
];

/// The checkers that these flags ask for.
pub(super) fn asked(settings: &Settings) -> Vec<&'static str> {
    (!settings.patterns.is_empty()).then_some("log-pattern").into_iter().collect()
}

/// How deep directories of logs may nest.
const MAX_DEPTH: usize = 6;
/// Of a line, this many bytes are looked at.
const MAX_LINE: u64 = 1 << 16;

fn log_pattern(run: &Run<'_>) -> Result<Findings, String> {
    let settings = &run.settings.describe;
    if settings.patterns.is_empty() {
        return Err("no pattern is given (--log-pattern REGEX)".into());
    }
    let mut findings = Findings::new(run.examples);
    let mut counts: BTreeMap<(usize, String), u64> = BTreeMap::new();
    let mut seen = (0u64, 0u64);
    for path in logs(run)? {
        let shown = path.display().to_string();
        let lines = each_line(&path, |number, line| {
            if number.is_multiple_of(4096)
                && let Some(spent) = run.budget.spent()
            {
                return Err(spent);
            }
            for (i, pattern) in settings.patterns.iter().enumerate().filter(|(_, pattern)| pattern.is_match(line)) {
                *counts.entry((i, shown.clone())).or_default() += 1;
                findings.note("log-match", || {
                    let line: String = line.trim_end().chars().take(300).collect();
                    Example::new([], format!("{shown}:{number}: {line} (matches {})", pattern.as_str()))
                });
            }
            Ok(())
        });
        match lines {
            Err(e) => findings.fact(format!("not read: {shown}"), Fact::Text(e.to_string())),
            Ok(None) => {}
            Ok(Some(Ok(lines))) => seen = (seen.0 + 1, seen.1 + lines),
            Ok(Some(Err(spent))) => {
                findings.undecided(Why::Spent(spent));
                break;
            }
        }
    }
    findings.coverage.count("log line", Status::Ok, seen.1);
    findings.fact("files read", Fact::Count(seen.0));
    findings.fact("lines read", Fact::Count(seen.1));
    let columns = ["pattern", "file", "lines"].map(str::to_string).to_vec();
    let row = |((i, file), n): (&(usize, String), &u64)| {
        vec![Fact::Text(settings.patterns[*i].to_string()), Fact::Text(file.clone()), Fact::Count(*n)]
    };
    findings.fact("matches", Fact::Table(Table { columns, rows: counts.iter().map(row).collect() }));
    Ok(findings)
}

/// The files to look through: those named, else those in the directories of the run's store directory.
fn logs(run: &Run<'_>) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let named = &run.settings.describe.logs;
    for path in named {
        match path.is_dir() {
            true => below(path, &mut found).map_err(|e| format!("{}: {e}", path.display()))?,
            false => found.push(path.clone()),
        }
    }
    if !named.is_empty() {
        return Ok(found);
    }
    let name = Path::new(run.name);
    if !name.is_dir() {
        return Err("where the logs are is not known: check a store directory, or name them (--logs PATH)".into());
    }
    let store = elench_formats::jepsen::store::locate(name).map_err(|e| e.to_string())?;
    let cannot = |e: std::io::Error| format!("{}: {e}", store.dir.display());
    for entry in std::fs::read_dir(&store.dir).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_dir() {
            below(&path, &mut found).map_err(cannot)?;
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(format!("there are no logs of nodes below {}", store.dir.display()));
    }
    Ok(found)
}

/// All files below a directory, in order. Links are not followed.
fn below(dir: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut open = vec![(dir.to_path_buf(), 0)];
    let begin = found.len();
    while let Some((dir, depth)) = open.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                found.push(entry.path());
            } else if kind.is_dir() && depth < MAX_DEPTH {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found[begin..].sort();
    Ok(())
}

/// Shows each line of a file with its number, until told to stop, and counts them. Nothing where the file is no text.
fn each_line(
    path: &Path,
    mut visit: impl FnMut(u64, &str) -> Result<(), Spent>,
) -> std::io::Result<Option<Result<u64, Spent>>> {
    let mut file = BufReader::new(File::open(path)?);
    if file.fill_buf()?.iter().take(1024).any(|&b| b == 0) {
        return Ok(None);
    }
    let (mut number, mut line) = (0, Vec::new());
    loop {
        line.clear();
        if (&mut file).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(Some(Ok(number)));
        }
        number += 1;
        if let Err(spent) = visit(number, &String::from_utf8_lossy(&line)) {
            return Ok(Some(Err(spent)));
        }
        if line.last() != Some(&b'\n') {
            skip_line(&mut file)?;
        }
    }
}

fn skip_line(file: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        let end = buffer.iter().position(|&b| b == b'\n');
        let (used, done) = end.map_or((buffer.len(), buffer.is_empty()), |end| (end + 1, true));
        file.consume(used);
        if done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(content: &[u8]) -> Option<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.log");
        std::fs::write(&path, content).unwrap();
        let mut lines = Vec::new();
        let counted = each_line(&path, |number, line| {
            assert_eq!(number as usize, lines.len() + 1);
            lines.push(line.trim_end().to_string());
            Ok(())
        });
        let counted = counted.unwrap()?;
        assert_eq!(counted.unwrap() as usize, lines.len());
        Some(lines)
    }

    #[test]
    fn lines_are_shown_whole_up_to_a_bound_and_what_is_no_text_is_not() {
        assert_eq!(lines(b"a\nb\n\nc").unwrap(), ["a", "b", "", "c"]);
        assert_eq!(lines(b"").unwrap(), [""; 0]);
        assert_eq!(lines(b"\x7fELF\0\0"), None);
        let long = [vec![b'x'; MAX_LINE as usize * 3], b"\nend".to_vec()].concat();
        let lines = lines(&long).unwrap();
        assert_eq!((lines.len(), lines[0].len(), lines[1].as_str()), (2, MAX_LINE as usize, "end"));
    }
}
