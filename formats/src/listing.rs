//! Which events does this listing hold: Jepsen's `history.txt`, or the log of the process that ran the test?
//!
//! A line of `history.txt` is `process TAB type TAB f TAB value`, and perhaps `TAB error`. Logs hold the same behind a
//! prefix that differs from version to version (`INFO  jepsen.util - `, time stamps, threads), older ones with
//! spaces for tabs. So a line tells of an event if one of the four types, as a keyword, stands in it with a process
//! before it and a name after it; every other line is skipped. There are neither indices nor times.
//!
//! Values are EDN. Errors were printed with Clojure's `str`, so an error that was a string has lost its quotes: what is not EDN
//! is taken for such a string. Linear in the text; memory is that of the longest line.

use std::io::{BufRead, BufReader, Read};

use crate::edn::op::Shard;
use crate::edn::token::{Cursor, Scan, utf8};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, Event, EventBatch, EventType, MopNames, Process};
use crate::value::Value;

/// The longest line.
const MAX_LINE: u64 = 256 << 20;

/// Reads a listing and hands its events, in order, to `sink`. An event's place is its line.
///
/// ```
/// use elench_formats::listing;
///
/// let log = "INFO  jepsen.util - 0\t:invoke\t:read\tnil\nINFO  jepsen.core - Run complete\n";
/// let mut count = 0;
/// listing::read(&mut log.as_bytes(), &mut |batch| {
///     count += batch.len();
///     Ok(())
/// })
/// .unwrap();
/// assert_eq!(count, 1);
/// ```
pub fn read(input: &mut dyn Read, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut shard = Shard::default();
    let mut text = Vec::new();
    let (mut line, mut any) = (0, false);
    loop {
        text.clear();
        if (&mut input).take(MAX_LINE).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        line += 1;
        if text.len() as u64 == MAX_LINE {
            let what = format!("a line is longer than {} MiB", MAX_LINE >> 20);
            return Err(ReadError::new(what).at(Place::Line(line)));
        }
        let Some(operation) = operation(text.trim_ascii_end()) else { continue };
        any = true;
        push(&mut shard, &operation, line).map_err(|fault| fault.error(operation.rest, 0, line))?;
        if shard.is_full() {
            shard.hand_over(&mut *sink)?;
        }
    }
    if !any {
        return Err(ReadError::new("no line of this text tells of an operation")
            .hint("a line of a listing is: process, type, function and value, with tabs between them"));
    }
    shard.hand_over(&mut *sink)
}

/// What kind of listing a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Jepsen's `history.txt`: every line is an event.
    HistoryTxt,
    /// The log of the process that ran the test: events behind prefixes, and other lines.
    ProcessLog,
}

/// Tells a listing by its beginning: the first event among the first lines, and whether something stands before it.
pub fn sniff(head: &[u8]) -> Option<Shape> {
    let opens_form = matches!(head.trim_ascii_start().first(), Some(b'{' | b'[' | b'(' | b'#' | b';'));
    if opens_form {
        return None;
    }
    for line in head.split(|&b| b == b'\n').take(1000).filter(|line| !line.trim_ascii().is_empty()) {
        if let Some(operation) = operation(line.trim_ascii_end()) {
            let alone = line.starts_with(operation.process);
            return Some(if alone { Shape::HistoryTxt } else { Shape::ProcessLog });
        }
    }
    None
}

/// A line that tells of an event.
struct Operation<'a> {
    process: &'a [u8],
    kind: EventType,
    f: &'a [u8],
    /// Value and error.
    rest: &'a [u8],
}

/// Finds an event in a line: the first type that has a process before it and a function after it.
fn operation(line: &[u8]) -> Option<Operation<'_>> {
    memchr::memchr_iter(b':', line).find_map(|colon| {
        let (before, after) = line.split_at(colon);
        let (kind, after) = word(&after[1..]);
        let kind = EventType::from_name(kind)?;
        let process = last_word(before)?;
        let is_name = |w: &[u8]| w.first() == Some(&b':') && w.len() > 1;
        let is_number = |w: &[u8]| std::str::from_utf8(w).is_ok_and(|w| w.parse::<i64>().is_ok());
        // Printed operation maps are no lines of a listing, though they may hold `:type :ok :f :read`.
        if !is_number(process) && (!is_name(process) || process == b":type") {
            return None;
        }
        let (f, rest) = word(after.trim_ascii_start());
        (is_name(f) || f == b"nil").then_some(Operation { process, kind, f, rest: rest.trim_ascii_start() })
    })
}

/// The bytes before the first blank, and those from it on.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len()))
}

/// The last word of a text that ends in blanks.
fn last_word(text: &[u8]) -> Option<&[u8]> {
    let trimmed = text.trim_ascii_end();
    let start = trimmed.iter().rposition(u8::is_ascii_whitespace).map_or(0, |i| i + 1);
    (trimmed.len() < text.len() && start < trimmed.len()).then_some(&trimmed[start..])
}

fn push(shard: &mut Shard, operation: &Operation<'_>, line: u64) -> Scan<()> {
    let mut cursor = Cursor::new(operation.rest, 0, true);
    let value = if operation.rest.is_empty() { Cell::Nil } else { shard.cell(&mut cursor, 0)? };
    let error = operation.rest[cursor.pos..].trim_ascii();
    if !error.is_empty() {
        let name = shard.batch.name("error");
        let error = self::error(shard, error, cursor.pos)?;
        shard.batch.extra(name, error);
    }
    let process = match std::str::from_utf8(operation.process).ok().and_then(Value::integer) {
        Some(Value::Int(n)) => Process::Client(n),
        _ => Process::Actor(shard.batch.name(utf8(operation.process, 0)?.trim_start_matches(':'))),
    };
    let f = match operation.f {
        b"nil" => None,
        name => Some(shard.batch.name(utf8(&name[1..], 0)?)),
    };
    shard.batch.push(Event { place: line, index: None, time: None, kind: operation.kind, process, f, value });
    Ok(())
}

/// An error as it was printed: EDN, or else the text of a string.
fn error(shard: &mut Shard, text: &[u8], at: usize) -> Scan<Cell> {
    let value = match crate::edn::parse_bytes(text) {
        Ok(value) => value,
        Err(_) => Value::str(utf8(text, at)?),
    };
    Ok(shard.batch.value(&value, MopNames::Keywords))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edn::tests::{corpus, describe_all};

    fn events(text: &str) -> Result<Vec<String>> {
        describe_all(|sink| read(&mut text.as_bytes(), sink))
    }

    #[test]
    fn tabs_or_spaces_prefix_or_none_the_event_is_the_same() {
        let expected = ["1 None None Ok Client(3) Some(\"read\") Int(7) []"];
        for line in [
            "3\t:ok\t:read\t7",
            "INFO  jepsen.util - 3\t:ok\t:read\t7\r\n",
            "INFO  jepsen.util - 3   :ok     :read   7",
            "2024-01-02 03:04:05,678{GMT}\tINFO\t[jepsen worker 3] jepsen.util: 3\t:ok\t:read\t7\n",
        ] {
            assert_eq!(events(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn an_error_that_was_a_string_lost_its_quotes_and_gets_them_back() {
        let text = "0\t:info\t:write\t[1 nil]\tConnection refused\n:nemesis\t:info\t:start\tnil\t[:a \"b\"]\n";
        assert_eq!(
            events(text).unwrap(),
            [
                "1 None None Info Client(0) Some(\"write\") Seq[Int(1) Nil] [error=Text(\"Connection refused\")]",
                "2 None None Info Actor(\"nemesis\") Some(\"start\") Nil [error=Seq[Text(:a) Text(\"b\")]]",
            ]
        );
    }

    #[test]
    fn other_lines_are_skipped_but_a_file_of_other_lines_is_refused() {
        let text = "INFO  jepsen.core - Run complete, writing\n\n0\t:invoke\t:read\tnil\n{:type :ok :f :read}\n";
        assert_eq!(events(text).unwrap().len(), 1);
        let error = events("INFO  jepsen.core - :info :start\n").unwrap_err();
        assert_eq!(error.what, "no line of this text tells of an operation");
        assert!(events("").is_err());
    }

    #[test]
    fn an_operation_whose_value_does_not_parse_is_an_error_with_its_line() {
        let error = events("0\t:invoke\t:read\tnil\n0\t:ok\t:read\t[1 2\n").unwrap_err();
        assert_eq!(error.place, Place::Line(2));
        assert_eq!(error.what, "the text ends inside a vector that begins at line 2");
    }

    #[test]
    fn every_listing_of_the_corpus_is_read_line_by_line() {
        let Some(root) = corpus() else { return };
        let mut files = 0;
        for (path, bytes) in crate::edn::tests::files(&root.join("jepsen-runs"), &["txt", "log"]) {
            let name = path.to_string_lossy().into_owned();
            if name.contains("/kv/") || name.contains("node-log-excerpts") {
                continue;
            }
            let text = String::from_utf8(bytes).unwrap();
            let found = events(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let expected = text.lines().filter(|line| !line.is_empty()).count();
            assert_eq!(found.len(), expected, "{name}");
            for kind in ["invoke", "ok", "fail", "info"] {
                let capital = format!("None None {}{} ", kind[..1].to_uppercase(), &kind[1..]);
                let found = found.iter().filter(|event| event.contains(&capital)).count();
                let marker = |line: &&str| line.split_whitespace().take(6).any(|w| w == format!(":{kind}"));
                assert_eq!(found, text.lines().filter(marker).count(), "{name} {kind}");
            }
            files += 1;
        }
        println!("{files} listings");
        assert!(files > 70);
    }

    #[test]
    fn the_text_and_the_edn_of_a_run_tell_the_same() {
        let Some(root) = corpus() else { return };
        let strip = |events: Vec<String>| -> Vec<String> {
            let tail = |e: &str| e.splitn(4, ' ').nth(3).unwrap().to_string();
            events.iter().map(|e| tail(e).rsplit_once(" [").unwrap().0.to_string()).collect()
        };
        let run = root.join("jepsen-runs/redis-sentinel/redis-intensive-test");
        let listing = events(&std::fs::read_to_string(run.join("history.txt")).unwrap()).unwrap();
        let edn = std::fs::read(run.join("history.edn")).unwrap();
        let edn = describe_all(|sink| crate::edn::events::read(&mut &edn[..], 1, sink)).unwrap();
        assert_eq!(strip(listing), strip(edn));
    }
}
