//! Which events do records of the default operation schema stand for?
//!
//! The schema has one record per operation with eleven [`FIELDS`]; it comes as JSON Lines (or one JSON array), as CSV, and
//! as Parquet ([`columnar::read_default_schema_parquet`](crate::columnar::read_default_schema_parquet)).
//! Each record becomes an invocation and, unless it is pending, a completion, back to back. Events carry no index: whoever
//! builds the history orders them by time, invocations before completions where times are equal.
//!
//! | Record | Completion |
//! |---|---|
//! | a further field `status` says `ok`, `fail`, `info` or `pending` | what it says: our writer adds it where the rest is not clear |
//! | else `timeout_marker` true | `info`, at `complete_ts` if there is one; an `output` is kept |
//! | else `error` not null, but `complete_ts` null, or `timeout_marker` null and the error speaks of a timeout | `info`: nobody answered, whatever the recorder forgot to mark |
//! | else `error` not null | `fail` |
//! | else `complete_ts` null | none: pending |
//! | else | `ok` |
//!
//! `op_type`, `process_id`, `invoke_ts` and `input` make the invocation; `complete_ts` and `output` the completion. What
//! would be lost becomes an extra, unless null: `op_id`, `key`, `fault_epoch` of the invocation; `error`, `node_seen` (as
//! `node`) and every unknown field of the completion, or of the invocation where there is none (there `output` too, which a
//! pending operation should not have). An unknown field called like a part of an event (`type`, `value`, …), or `node`, has
//! its name kept as a string, so that nothing collides. Null says that a field does not apply; an extra that *is* nil is
//! written `{"~edn": "nil"}`.
//!
//! A `process_id` may be a number or a name. A name becomes a number that no other process of the input has, the lowest
//! free one when it is first seen, and stays as the extra `process_id` of the invocation. So does a number that a name got
//! first. The name `nemesis` is not a client: it is an actor, and its events are `info`.
//!
//! **CSV.** The first line names the fields, in any order; missing ones are null. An empty cell is null. `op_type` is text.
//! In `process_id` a canonical integer is a number, other text a name; `invoke_ts` and `complete_ts` are integers (also
//! `12.0`, as data frames write them); `timeout_marker` is `true`, `false`, `1` or `0`, in any case. Every other cell is
//! - an integer if it is written `0` or `-?[1-9][0-9]*`, of any length;
//! - a double if it is written as we print it: `1.5`, `100000.0`; so `007`, `1e5` and `1.50` are strings;
//! - `true`, `false`, `null`: what they say;
//! - JSON if it begins with `"`, `[` or `{` and is whole JSON: `"5"` is the string `5`, `""` the empty string,
//!   `{"~edn": "#{1 2}"}` a set;
//! - a string otherwise, as it stands.
//!
//! Cost: linear in the input; memory is a block, a batch, the longest record, and one entry per process.

use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, Event, EventBatch, EventType, Extra, Process, TextId};
use crate::json::cells::{Mark, Shredder, intern};
use crate::json::cursor::{Cursor, Halt, Parse, Text, quoted};
use crate::json::events::{Who, canonical_int, extra_name, integer, keep_last_of_each, name, who, whole_number};
use crate::json::feed;
use crate::json::value::from_json;
use crate::value::Value;
use std::borrow::Cow;
use std::io::{self, Read};

/// Fast, and seeded anew in every run, so that no input can be made to collide.
type HashMap<K, V> = hashbrown::HashMap<K, V, foldhash::fast::RandomState>;
type HashSet<K> = hashbrown::HashSet<K, foldhash::fast::RandomState>;

/// The fields of the default operation schema (an operation's lifetime, `invoke_ts` and `complete_ts`, counts as one).
pub const FIELDS: [&str; 12] = [
    "op_id",
    "process_id",
    "invoke_ts",
    "complete_ts",
    "op_type",
    "key",
    "input",
    "output",
    "error",
    "timeout_marker",
    "node_seen",
    "fault_epoch",
];

/// The longest CSV record.
const MAX_RECORD: u64 = 128 << 20;
/// Reads records from JSON Lines, a JSON array, or the array under `"history"` of an object.
pub fn read_jsonl(input: &mut dyn Read, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    let mut shredder = Shredder::default();
    let mut processes = Processes::default();
    let mut others = Vec::new();
    let mut record = |cur: &mut Cursor<'_>, batch: &mut EventBatch| {
        others.clear();
        let record = json_record(cur, batch, &mut shredder, &mut others)?;
        record.push(&others, &mut processes, batch)
    };
    feed::read(input, &mut record, sink)
}

/// Reads records from CSV. Which fields are missing altogether is for others to judge; none of them is an error.
pub fn read_csv(input: &mut dyn Read, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    let meter = Meter::default();
    let mut reader = csv::ReaderBuilder::new().from_reader(Metered { input, meter: &meter });
    let columns = columns(reader.headers().map_err(|e| csv_error(e, &meter))?)?;
    let mut batch = EventBatch::default();
    let mut csv =
        CsvRows { columns, shredder: Shredder::default(), processes: Processes::default(), others: Vec::new() };
    let mut row = csv::StringRecord::new();
    loop {
        meter.taken.set(0);
        if !reader.read_record(&mut row).map_err(|e| csv_error(e, &meter))? {
            break;
        }
        let line = meter.line(&row, reader.position());
        if let Err(halt) = csv.push(&row, line, &mut batch) {
            feed::hand_over(&mut batch, sink)?;
            return Err(match halt {
                Halt::Bad(e) => e.at(Place::Line(line)),
                Halt::More | Halt::Odd => ReadError::new("this record is cut off").at(Place::Line(line)),
            });
        }
        feed::hand_over_if_full(&mut batch, sink)?;
    }
    feed::hand_over(&mut batch, sink)
}

/// A record, its values shredded already.
pub(crate) struct Record<'a> {
    place: u64,
    pub(crate) process: Who<'a>,
    pub(crate) f: Option<TextId>,
    pub(crate) invoked: Option<i64>,
    pub(crate) completed: Option<i64>,
    pub(crate) timed_out: Option<bool>,
    op_id: Cell,
    key: Cell,
    input: Cell,
    output: Cell,
    error: Cell,
    node: Cell,
    epoch: Cell,
}

impl<'a> Record<'a> {
    /// One of which only its place is known: from 1.
    pub(crate) fn at(place: u64) -> Record<'a> {
        Record {
            place,
            process: Who::Unknown,
            f: None,
            invoked: None,
            completed: None,
            timed_out: None,
            op_id: Cell::Nil,
            key: Cell::Nil,
            input: Cell::Nil,
            output: Cell::Nil,
            error: Cell::Nil,
            node: Cell::Nil,
            epoch: Cell::Nil,
        }
    }

    /// Where a field that is not read in a special way goes.
    pub(crate) fn cell(&mut self, field: &str) -> Option<&mut Cell> {
        match field {
            "op_id" => Some(&mut self.op_id),
            "key" => Some(&mut self.key),
            "input" => Some(&mut self.input),
            "output" => Some(&mut self.output),
            "error" => Some(&mut self.error),
            "node_seen" => Some(&mut self.node),
            "fault_epoch" => Some(&mut self.epoch),
            _ => None,
        }
    }

    /// What completed it; `None` while it is pending.
    fn completion(&self, said: Option<Said>, batch: &EventBatch) -> Option<EventType> {
        let forgotten = || self.completed.is_none() || (self.timed_out.is_none() && is_timeout(self.error, batch));
        if let Some(said) = said {
            said.0
        } else if self.timed_out == Some(true) {
            Some(EventType::Info)
        } else if self.error != Cell::Nil {
            Some(if forgotten() { EventType::Info } else { EventType::Fail })
        } else {
            self.completed.map(|_| EventType::Ok)
        }
    }

    /// Pushes its events. Nothing can fail any more but the text pool, which is why the events come last.
    pub(crate) fn push(
        &self,
        others: &[(TextId, Cell)],
        processes: &mut Processes,
        batch: &mut EventBatch,
    ) -> Parse<()> {
        let (process, alias) = processes.assign(&self.process, batch)?;
        let said = others.iter().find_map(|&(name, cell)| Said::of(name, cell, batch));
        let mut completion = self.completion(said, batch);
        let mut kind = EventType::Invoke;
        if matches!(process, Process::Actor(_)) {
            kind = EventType::Info;
            completion = completion.map(|_| EventType::Info);
        }
        let late = self.late_extras(others, completion.is_none(), batch)?;
        for (name, cell) in
            [("process_id", alias), ("op_id", self.op_id), ("key", self.key), ("fault_epoch", self.epoch)]
        {
            push_extra(name, cell, batch)?;
        }
        if completion.is_none() {
            push_all(&late, batch);
        }
        let invocation =
            Event { place: self.place, index: None, time: self.invoked, kind, process, f: self.f, value: self.input };
        batch.push(invocation);
        if let Some(kind) = completion {
            push_all(&late, batch);
            batch.push(Event { kind, time: self.completed, value: self.output, ..invocation });
        }
        Ok(())
    }

    /// What belongs to the completion.
    fn late_extras(
        &self,
        others: &[(TextId, Cell)],
        is_pending: bool,
        batch: &mut EventBatch,
    ) -> Parse<Vec<(TextId, Cell)>> {
        let output = if is_pending { self.output } else { Cell::Nil };
        let mut late = Vec::with_capacity(others.len() + 3);
        for (name, cell) in [("error", self.error), ("node", self.node), ("output", output)] {
            if cell != Cell::Nil {
                late.push((intern(batch, name)?, cell));
            }
        }
        late.extend(others.iter().filter(|&&(name, cell)| Said::of(name, cell, batch).is_none()));
        Ok(late)
    }
}

/// Does an error say that there was no answer in time?
fn is_timeout(error: Cell, batch: &EventBatch) -> bool {
    let Cell::Text(text) = error else { return false };
    let text = batch.texts.get(text).to_ascii_lowercase();
    ["timeout", "timed out", "timed-out", "timed_out", "deadline"].iter().any(|sign| text.contains(sign))
}

/// What a further field `status` says: the type of the completion, or that there is none.
#[derive(Clone, Copy)]
struct Said(Option<EventType>);

impl Said {
    fn of(name: TextId, cell: Cell, batch: &EventBatch) -> Option<Said> {
        let Cell::Text(text) = cell else { return None };
        if batch.texts.get(name) != "status" {
            return None;
        }
        match batch.texts.get(text) {
            "\"ok\"" => Some(Said(Some(EventType::Ok))),
            "\"fail\"" => Some(Said(Some(EventType::Fail))),
            "\"info\"" => Some(Said(Some(EventType::Info))),
            "\"pending\"" => Some(Said(None)),
            _ => None,
        }
    }
}

fn push_extra(name: &str, cell: Cell, batch: &mut EventBatch) -> Parse<()> {
    if cell != Cell::Nil {
        let name = intern(batch, name)?;
        batch.extra(name, cell);
    }
    Ok(())
}

fn push_all(extras: &[(TextId, Cell)], batch: &mut EventBatch) {
    for &(name, cell) in extras {
        batch.extra(name, cell);
    }
}

/// Gives processes known by name numbers of their own.
#[derive(Default)]
pub(crate) struct Processes {
    /// Numbers that processes known by number have.
    numbers: HashSet<i64>,
    /// Numbers given out.
    names: HashMap<String, i64>,
    given: HashSet<i64>,
    next: i64,
}

impl Processes {
    /// The process, and its name as a cell where the number does not say it.
    fn assign(&mut self, who: &Who<'_>, batch: &mut EventBatch) -> Parse<(Process, Cell)> {
        match who {
            Who::Unknown => Ok((Process::Unknown, Cell::Nil)),
            Who::Number(n) if self.given.contains(n) => {
                Ok((Process::Client(self.number_for(&n.to_string())), Cell::Int(*n)))
            }
            Who::Number(n) => {
                self.numbers.insert(*n);
                Ok((Process::Client(*n), Cell::Nil))
            }
            Who::Name(name) if name == "nemesis" => Ok((Process::Actor(intern(batch, name)?), Cell::Nil)),
            Who::Name(name) => {
                let text = intern(batch, &Value::str(name).to_edn())?;
                Ok((Process::Client(self.number_for(name)), Cell::Text(text)))
            }
        }
    }

    fn number_for(&mut self, name: &str) -> i64 {
        if let Some(&n) = self.names.get(name) {
            return n;
        }
        while self.numbers.contains(&self.next) {
            self.next += 1;
        }
        let n = self.next;
        self.next += 1;
        self.names.insert(name.to_string(), n);
        self.given.insert(n);
        n
    }
}

/// The record that begins at this brace; its unknown fields go to `others`.
fn json_record<'a>(
    cur: &mut Cursor<'a>,
    batch: &mut EventBatch,
    shredder: &mut Shredder,
    others: &mut Vec<(TextId, Cell)>,
) -> Parse<Record<'a>> {
    let start = cur.clone();
    let mut record = Record::at(start.line());
    let mut is_ours = false;
    cur.enter(0)?;
    let mut first = true;
    while let Some(key) = cur.next_key(&mut first)? {
        is_ours = is_ours || key.as_str().is_some_and(|k| FIELDS.contains(&k));
        match key.as_str() {
            Some("process_id") => record.process = who(cur, "process_id")?,
            Some("op_type") => record.f = name(cur, batch, "op_type")?,
            Some("invoke_ts") => record.invoked = integer(cur, "invoke_ts")?,
            Some("complete_ts") => record.completed = integer(cur, "complete_ts")?,
            Some("timeout_marker") => record.timed_out = json_flag(cur)?,
            _ => {
                let is_null = cur.peek()? == b'n';
                let value = shredder.field(cur, batch)?;
                match key.as_str().and_then(|k| record.cell(k)) {
                    Some(cell) => *cell = value,
                    None => others.push((intern(batch, &other_name(&key))?, said(value, is_null, batch)?)),
                }
            }
        }
    }
    if !is_ours {
        return Err(start.bad("a record has none of the fields of the default operation schema", &fields_hint()));
    }
    keep_others(others);
    Ok(record)
}

/// A value of an unknown field: a nil that somebody wrote is kept as its text, as nothing is told by `Nil`.
fn said(value: Cell, is_null: bool, batch: &mut EventBatch) -> Parse<Cell> {
    if value == Cell::Nil && !is_null { Ok(Cell::Text(intern(batch, "nil")?)) } else { Ok(value) }
}

/// Of unknown fields with one name the last stays, if it is not null.
pub(crate) fn keep_others(others: &mut Vec<(TextId, Cell)>) {
    if others.is_empty() {
        return;
    }
    let mut extras: Vec<Extra> = others.drain(..).map(|(name, value)| Extra { row: 0, name, value }).collect();
    keep_last_of_each(&mut extras, 0);
    others.extend(extras.iter().filter(|e| e.value != Cell::Nil).map(|e| (e.name, e.value)));
}

fn json_flag(cur: &mut Cursor<'_>) -> Parse<Option<bool>> {
    if matches!(cur.peek()?, b't' | b'f' | b'n') {
        return cur.literal();
    }
    let here = cur.clone();
    match integer(cur, "timeout_marker") {
        Ok(Some(n @ 0..=1)) => Ok(Some(n == 1)),
        Err(Halt::More) => Err(Halt::More),
        _ => Err(here.bad("\"timeout_marker\" must be true, false or null", "")),
    }
}

/// The name of an unknown field as an extra.
pub(crate) fn other_name<'a>(key: &'a Text<'_>) -> Cow<'a, str> {
    if key.as_str() == Some("node") { Cow::Borrowed("\"node\"") } else { extra_name(key) }
}

fn fields_hint() -> String {
    format!("they are {}", FIELDS.join(", "))
}

/// What a CSV column holds.
enum Column {
    Known(&'static str),
    Other(String),
}

struct CsvRows {
    columns: Vec<Column>,
    shredder: Shredder,
    processes: Processes,
    others: Vec<(TextId, Cell)>,
}

impl CsvRows {
    fn push(&mut self, row: &csv::StringRecord, line: u64, batch: &mut EventBatch) -> Parse<()> {
        let mut record = Record::at(line);
        self.others.clear();
        for (column, text) in self.columns.iter().zip(row) {
            match column {
                _ if text.is_empty() => {}
                Column::Known("process_id") => record.process = csv_who(text),
                Column::Known("op_type") => record.f = Some(intern(batch, text)?),
                Column::Known("invoke_ts") => record.invoked = Some(csv_integer(text, "invoke_ts")?),
                Column::Known("complete_ts") => record.completed = Some(csv_integer(text, "complete_ts")?),
                Column::Known("timeout_marker") => record.timed_out = Some(csv_flag(text)?),
                Column::Known(field) => {
                    let value = csv_cell(text, batch, &mut self.shredder)?;
                    if let Some(cell) = record.cell(field) {
                        *cell = value;
                    }
                }
                Column::Other(name) => {
                    let value = csv_cell(text, batch, &mut self.shredder)?;
                    let value = said(value, text == "null", batch)?;
                    if value != Cell::Nil {
                        self.others.push((intern(batch, name)?, value));
                    }
                }
            }
        }
        record.push(&self.others, &mut self.processes, batch)
    }
}

fn columns(header: &csv::StringRecord) -> Result<Vec<Column>> {
    let mut seen = HashSet::default();
    let mut columns = Vec::with_capacity(header.len());
    for name in header {
        if !seen.insert(name) {
            return Err(ReadError::new(format!("two columns are called {}", quoted(name))).at(Place::Line(1)));
        }
        columns.push(match FIELDS.iter().find(|f| **f == name) {
            Some(field) => Column::Known(field),
            None => Column::Other(other_name(&Text::Raw(name)).into_owned()),
        });
    }
    if columns.iter().all(|c| matches!(c, Column::Other(_))) {
        return Err(ReadError::new("the first line names no field of the default operation schema")
            .at(Place::Line(1))
            .hint(fields_hint()));
    }
    Ok(columns)
}

/// The process that a text names.
pub(crate) fn csv_who(text: &str) -> Who<'_> {
    let number = canonical_int(text).or_else(|| text.strip_suffix(".0").and_then(canonical_int));
    number.map_or(Who::Name(Cow::Borrowed(text)), Who::Number)
}

fn csv_integer(text: &str, field: &str) -> Parse<i64> {
    let as_double = || text.parse().ok().and_then(whole_number);
    let n = canonical_int(text).or_else(as_double).filter(|&n| n != crate::event::NONE);
    n.ok_or_else(|| {
        ReadError::new(format!("{field:?} is {}, not an integer of 64 bits", quoted(text)))
            .hint("times are whole nanoseconds on a monotonic clock")
            .into()
    })
}

/// What a text says of a timeout.
pub(crate) fn csv_flag(text: &str) -> Parse<bool> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        t if t.eq_ignore_ascii_case("true") => Ok(true),
        t if t.eq_ignore_ascii_case("false") => Ok(false),
        t => Err(ReadError::new(format!("\"timeout_marker\" is {}, not true or false", quoted(t))).into()),
    }
}

/// Does a CSV cell with this text stand for the string that it shows?
pub(crate) fn is_bare_string(text: &str) -> bool {
    let mut batch = EventBatch::default();
    let cell = csv_cell(text, &mut batch, &mut Shredder::default());
    !text.is_empty() && matches!(cell, Ok(Cell::Text(id)) if batch.texts.get(id) == Value::str(text).to_edn())
}

/// The value in a CSV cell that is not empty; see the module for the rules.
pub(crate) fn csv_cell(text: &str, batch: &mut EventBatch, shredder: &mut Shredder) -> Parse<Cell> {
    if let Some(n) = canonical_int(text) {
        return Ok(Cell::Int(n));
    }
    let value = match text.as_bytes() {
        b"null" => return Ok(Cell::Nil),
        [b'"' | b'[' | b'{', ..] => match whole_json(text, batch, shredder) {
            Some(cell) => return Ok(cell),
            None => None,
        },
        [b'-' | b'0'..=b'9', ..] | b"true" | b"false" => from_json(text).ok().filter(|v| v.to_edn() == text),
        _ => None,
    };
    let value = value.unwrap_or_else(|| Value::str(text));
    Ok(Cell::Text(intern(batch, &value.to_edn())?))
}

fn whole_json(text: &str, batch: &mut EventBatch, shredder: &mut Shredder) -> Option<Cell> {
    let mark = Mark::of(batch);
    let mut cur = Cursor::whole(text);
    match shredder.field(&mut cur, batch) {
        Ok(cell) if cur.at_end() => Some(cell),
        _ => {
            mark.restore(batch);
            None
        }
    }
}

fn csv_error(e: csv::Error, meter: &Meter) -> ReadError {
    let line =
        |pos: &Option<csv::Position>| pos.as_ref().map_or(Place::Whole, |p| Place::Line(p.line() + meter.behind(p)));
    match e.kind() {
        csv::ErrorKind::Io(io) => ReadError::new(io.to_string()),
        csv::ErrorKind::Utf8 { pos, .. } => ReadError::new("not UTF-8").at(line(pos)).hint("CSV is read as UTF-8"),
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            ReadError::new(format!("a record has {len} cells where the first line names {expected_len}"))
                .at(line(pos))
                .hint("cells with commas, quotes or line ends stand in double quotes")
        }
        _ => ReadError::new(e.to_string()),
    }
}

/// Passes input on, and knows of it what the CSV reader does not.
struct Metered<'a> {
    input: &'a mut dyn Read,
    meter: &'a Meter,
}

/// What was seen of the input of a CSV reader.
#[derive(Default)]
struct Meter {
    /// Bytes since the last record: an open quote would otherwise swallow the whole file.
    taken: std::cell::Cell<u64>,
    /// The last byte before the first line feed, once there was one.
    last: std::cell::Cell<Option<u8>>,
    seen_line_end: std::cell::Cell<bool>,
    /// The input has ended. It is asked only when a record needs more of it, so the record read last had no line end.
    is_over: std::cell::Cell<bool>,
}

impl Meter {
    /// Do lines end in a carriage return and a line feed? The CSV reader ends a record at the first and counts a line
    /// at the second, which it has not seen then: it is one line behind.
    fn is_crlf(&self) -> bool {
        self.seen_line_end.get() && self.last.get() == Some(b'\r')
    }

    /// How many lines the CSV reader is behind at this place.
    fn behind(&self, at: &csv::Position) -> u64 {
        u64::from(self.is_crlf() && at.byte() > 0)
    }

    /// The line on which a record begins, counted back from where the reader is now: its own answer does not know of
    /// blank lines before the record. A record that the end of the input ended has no line end to take off.
    fn line(&self, row: &csv::StringRecord, now: &csv::Position) -> u64 {
        let inner = memchr::memchr_iter(b'\n', row.as_slice().as_bytes()).count() as u64;
        now.line().saturating_sub(inner + u64::from(!self.is_crlf() && !self.is_over.get()))
    }
}

impl Read for Metered<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        let Meter { taken, last, seen_line_end, is_over } = self.meter;
        is_over.set(n == 0 && !buf.is_empty());
        if !seen_line_end.get() {
            let bytes = buf.get(..n).unwrap_or_default();
            let end = memchr::memchr(b'\n', bytes);
            seen_line_end.set(end.is_some());
            let before = bytes.get(..end.unwrap_or(n)).unwrap_or_default();
            last.set(before.last().copied().or(last.get()));
        }
        taken.set(taken.get() + n as u64);
        if taken.get() > MAX_RECORD {
            return Err(io::Error::other("a record is longer than 128 MiB: a double quote that is not closed?"));
        }
        Ok(n)
    }
}
