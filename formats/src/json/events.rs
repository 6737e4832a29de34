//! Which events does a Jepsen-shaped JSON history hold?
//!
//! An operation is an object with the keys `type`, `f`, `process`, `value`, `time` and `index`, as `elle-cli` reads it; any
//! further key (`error`, `node`, `key`, …) is an extra. Operations stand in an array, on lines of their own, or in the array
//! under `"history"` of an object. Names (`type`, `f`, first elements of micro-operations) are strings, as JSON has no
//! keywords. Keys may come in any order; of two equal ones the later counts.
//!
//! Decided here, because recorders differ:
//! - `process`: an integer is a client, also where it was written `3.0` (data frames do) or `"3"` (JavaScript does); any
//!   other string is an actor such as `nemesis`; null or missing is unknown; `3.5` is an error.
//! - `time`, `index`: integers of 64 bits, by the same rule; null is missing.
//! - `type` must be there and be one of the four; `f` is a string, null or missing.
//! - an extra's key is taken for a keyword where it can be one, else kept as a string.
//! - a `value` written `{"~edn": "…"}` is shredded as EDN is: there, names are keywords.

use super::cells::{Shredder, intern};
use super::cursor::{Cursor, Number, Parse, Text, quoted};
use super::feed;
use super::value::text_value;
use crate::error::Result;
use crate::event::{Cell, Event, EventBatch, EventType, Extra, NONE, Process, TextId};
use std::borrow::Cow;
use std::io::Read;

/// Reads a history and hands its events over in batches, in order.
///
/// One thread reads, whatever `threads` allows: order and text ids stay as they are with no merging.
pub fn read(input: &mut dyn Read, threads: usize, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    let _ = threads;
    let mut shredder = Shredder::default();
    feed::read(input, &mut |cur, batch| operation(cur, batch, &mut shredder), sink)
}

/// The operation that begins at this brace.
fn operation(cur: &mut Cursor<'_>, batch: &mut EventBatch, shredder: &mut Shredder) -> Parse<()> {
    let start = cur.clone();
    let extras = batch.extras.len();
    let (mut kind, mut process, mut value) = (None, Process::Unknown, Cell::Nil);
    let (mut f, mut time, mut index) = (None, None, None);
    cur.enter(0)?;
    let mut first = true;
    while let Some(key) = cur.next_key(&mut first)? {
        match key.as_str() {
            Some("type") => kind = Some(event_type(cur)?),
            Some("f") => f = name(cur, batch, "f")?,
            Some("process") => process = process_of(cur, batch)?,
            Some("value") => value = shredder.field(cur, batch)?,
            Some("time") => time = integer(cur, "time")?,
            Some("index") => index = integer(cur, "index")?,
            _ => {
                let name = intern(batch, &extra_name(&key))?;
                let value = shredder.field(cur, batch)?;
                batch.extra(name, value);
            }
        }
    }
    let Some(kind) = kind else {
        return Err(start.bad("an operation has no \"type\"", "it is one of invoke, ok, fail, info"));
    };
    keep_last_of_each(&mut batch.extras, extras);
    batch.push(Event { place: start.line(), index, time, kind, process, f, value });
    Ok(())
}

fn event_type(cur: &mut Cursor<'_>) -> Parse<EventType> {
    const HINT: &str = "\"type\" is one of invoke, ok, fail, info";
    if cur.peek()? != b'"' {
        let here = cur.clone();
        cur.skip_value(0)?;
        return Err(here.bad("\"type\" must be a string", HINT));
    }
    let text = cur.string()?;
    let kind = text.as_str().and_then(|name| EventType::from_name(name.as_bytes()));
    kind.ok_or_else(|| cur.bad(format!("unknown type {}", quoted(text.as_str().unwrap_or("?"))), HINT))
}

/// A field that holds a name or null.
pub(crate) fn name(cur: &mut Cursor<'_>, batch: &mut EventBatch, field: &str) -> Parse<Option<TextId>> {
    if cur.peek()? == b'"' {
        let text = cur.string()?;
        return match text.as_str() {
            Some(name) => Ok(Some(intern(batch, name)?)),
            None => Err(cur.bad(format!("{field:?} is not Unicode"), "")),
        };
    }
    null(cur, field, "a string")?;
    Ok(None)
}

/// A field that, not being what it might be, must be null.
fn null(cur: &mut Cursor<'_>, field: &str, wanted: &str) -> Parse<()> {
    let here = cur.clone();
    let is_null = cur.peek()? == b'n';
    cur.skip_value(0)?;
    if is_null { Ok(()) } else { Err(here.bad(format!("{field:?} must be {wanted} or null"), "")) }
}

fn process_of(cur: &mut Cursor<'_>, batch: &mut EventBatch) -> Parse<Process> {
    Ok(match who(cur, "process")? {
        Who::Unknown => Process::Unknown,
        Who::Number(n) => Process::Client(n),
        Who::Name(name) => Process::Actor(intern(batch, &name)?),
    })
}

/// A process as recorders write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who<'a> {
    /// Null.
    Unknown,
    /// By number.
    Number(i64),
    /// By name.
    Name(Cow<'a, str>),
}

/// The process in a field.
pub(crate) fn who<'a>(cur: &mut Cursor<'a>, field: &str) -> Parse<Who<'a>> {
    if cur.peek()? != b'"' {
        return Ok(integer(cur, field)?.map_or(Who::Unknown, Who::Number));
    }
    let name = match cur.string()? {
        Text::Raw(s) => Cow::Borrowed(s),
        Text::Owned(s) => Cow::Owned(s),
        Text::Utf16(_) => return Err(cur.bad(format!("{field:?} is not Unicode"), "")),
    };
    Ok(canonical_int(&name).map_or(Who::Name(name), Who::Number))
}

/// A field that holds a 64-bit integer or null.
pub(crate) fn integer(cur: &mut Cursor<'_>, field: &str) -> Parse<Option<i64>> {
    let n = match cur.peek()? {
        b'-' | b'0'..=b'9' => match cur.number()? {
            Number::Int(n) => Some(n),
            Number::Float(x, _) => whole_number(x),
            Number::Big(_) => None,
        },
        b'"' => cur.string()?.as_str().and_then(canonical_int),
        _ => {
            null(cur, field, "an integer")?;
            return Ok(None);
        }
    };
    match n.filter(|&n| n != NONE) {
        Some(n) => Ok(Some(n)),
        None => Err(cur.bad(format!("{field:?} must be an integer of 64 bits"), "times are whole nanoseconds")),
    }
}

/// The integer that this text is, if it is written in the one way in which integers are printed.
pub(crate) fn canonical_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = match digits.as_bytes() {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if is_canonical { text.parse().ok() } else { None }
}

/// The integer that this double is, where doubles still tell neighbouring integers apart.
pub(crate) fn whole_number(x: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (x.fract() == 0.0 && x.abs() < EXACT).then_some(x as i64)
}

/// The name of an extra: as it is where it can be a keyword and means nothing else, otherwise as a string in EDN.
pub(crate) fn extra_name<'a>(key: &'a Text<'_>) -> Cow<'a, str> {
    const TAKEN: [&str; 9] = ["type", "f", "process", "value", "time", "index", "nil", "true", "false"];
    match key.as_str() {
        Some(s) if can_be_keyword(s) && !TAKEN.contains(&s) => Cow::Borrowed(s),
        Some(s) => Cow::Owned(crate::Value::str(s).to_edn()),
        None => match key {
            Text::Utf16(units) => Cow::Owned(text_value(Text::Utf16(units.clone())).to_edn()),
            Text::Raw(_) | Text::Owned(_) => Cow::Borrowed(""),
        },
    }
}

/// Can this be a keyword that looks like no other EDN: a letter first, then no delimiter, at most one inner slash?
fn can_be_keyword(s: &str) -> bool {
    let mut chars = s.chars();
    let begins = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    let goes_on = chars.all(|c| c.is_alphanumeric() || "-_?!*+.<>=&%$/".contains(c));
    begins && goes_on && s.matches('/').count() <= 1 && !s.ends_with('/')
}

/// Of the extras from `start` on that have one name, only the last stays.
pub(crate) fn keep_last_of_each(extras: &mut Vec<Extra>, start: usize) {
    let Some(own) = extras.get(start..).filter(|own| own.len() > 1) else { return };
    let is_repeated = |(i, e): (usize, &Extra)| own.iter().take(i).any(|before| before.name == e.name);
    if own.len() <= 16 && !own.iter().enumerate().any(is_repeated) {
        return;
    }
    let own = extras.split_off(start);
    let mut last: Vec<(TextId, usize)> = own.iter().enumerate().map(|(i, e)| (e.name, i)).collect();
    last.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    last.dedup_by_key(|(name, _)| *name);
    let mut keep: Vec<usize> = last.into_iter().map(|(_, i)| i).collect();
    keep.sort_unstable();
    extras.extend(keep.into_iter().filter_map(|i| own.get(i).copied()));
}
