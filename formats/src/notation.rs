//! A history in a line: the notation of tests.
//!
//! Events are separated by line ends or ` / `. Each is `TYPE WHO [F [VALUE]] [@TIME]`: the value is EDN, the time
//! nanoseconds. A completion may leave out what its invocation said: `ok 0` completes the open operation of process 0
//! with the value it was invoked with.
//!
//! ```
//! let history = elench_formats::notation::history("
//!     invoke 0 write 1 / invoke 1 read
//!     ok 0
//!     ok 1 read 1
//! ").unwrap();
//! assert_eq!(history.len(), 2);
//! ```

use std::collections::HashMap;

use crate::build::{BuildOptions, HistoryBuilder};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, Event, EventBatch, EventType, MopNames, Process, TextId};
use crate::history::History;

/// A history from its notation.
///
/// # Errors
/// When the notation or the history is malformed.
pub fn history(text: &str) -> Result<History> {
    history_with(text, BuildOptions { format: "notation".into(), real_time: true, ..BuildOptions::default() })
}

/// A history from its notation, built as asked.
///
/// # Errors
/// When the notation or the history is malformed.
pub fn history_with(text: &str, options: BuildOptions) -> Result<History> {
    let mut builder = HistoryBuilder::new(options);
    builder.push(&events(text)?)?;
    builder.finish()
}

/// The events of a notation.
///
/// # Errors
/// When the notation is malformed.
pub fn events(text: &str) -> Result<EventBatch> {
    let mut batch = EventBatch::default();
    let mut open: HashMap<String, (Option<TextId>, Cell)> = HashMap::new();
    for (i, line) in text.lines().enumerate() {
        for part in line.split(" / ").map(str::trim).filter(|p| !p.is_empty() && !p.starts_with('#')) {
            let event =
                event(part, i as u64 + 1, &mut batch, &mut open).map_err(|e| e.at(Place::Line(i as u64 + 1)))?;
            batch.push(event);
        }
    }
    Ok(batch)
}

fn event(
    part: &str,
    place: u64,
    batch: &mut EventBatch,
    open: &mut HashMap<String, (Option<TextId>, Cell)>,
) -> Result<Event> {
    let (part, time) = match part.rsplit_once(" @") {
        Some((rest, t)) => (rest, Some(t.parse().map_err(|_| ReadError::new(format!("`{t}` is no time")))?)),
        None => (part, None),
    };
    let mut words = part.splitn(4, ' ').map(str::trim);
    let (Some(kind), Some(who)) = (words.next(), words.next()) else {
        return Err(ReadError::new(format!("`{part}` is no event")).hint("TYPE WHO [F [VALUE]] [@TIME]"));
    };
    let kind = EventType::from_name(kind.as_bytes()).ok_or_else(|| ReadError::new(format!("`{kind}` is no type")))?;
    let process = match who.parse() {
        Ok(p) => Process::Client(p),
        Err(_) if who == "_" => Process::Unknown,
        Err(_) => Process::Actor(batch.name(who)),
    };
    let before = open.remove(who);
    let f = match words.next() {
        Some(f) => Some(batch.name(f)),
        None => before.and_then(|(f, _)| f),
    };
    let value = match words.next().filter(|v| !v.is_empty()) {
        Some(v) => {
            let value = crate::edn::parse(v)?;
            batch.value(&value, MopNames::Keywords)
        }
        None if kind == EventType::Invoke => Cell::Nil,
        None => before.map_or(Cell::Nil, |(_, v)| v),
    };
    if kind == EventType::Invoke || (before.is_none() && matches!(process, Process::Actor(_))) {
        open.insert(who.to_string(), (f, value));
    }
    Ok(Event { place, index: None, time, kind, process, f, value })
}
