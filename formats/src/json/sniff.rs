//! Is this the beginning of a history in JSON or CSV, and of which shape?
//!
//! The first record's keys tell: an operation of a Jepsen-shaped history has a `type` that is one of the four, a record of
//! the default schema has a field that only that schema has. Other people's JSON has neither and is nobody's here.
//! Where the beginning breaks off inside the first record, what was seen so far decides.
//!
//! Cost: linear in the beginning.

use super::cursor::{Cursor, Halt, Parse};
use super::feed::opens_history;
use crate::event::EventType;
use crate::schema::FIELDS;

/// What a beginning looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Jepsen-shaped JSON: read by [`events`](super::events::read).
    Events,
    /// The default schema as JSON: read by [`read_jsonl`](crate::schema::read_jsonl).
    Records,
    /// The default schema as CSV: read by [`read_csv`](crate::schema::read_csv).
    Csv,
}

/// Fields so common that one of them alone tells nothing.
const COMMON: [&str; 4] = ["key", "input", "output", "error"];

/// The shape of what begins with these bytes; `None` where it is none of ours.
pub fn sniff(head: &[u8]) -> Option<Shape> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() => std::str::from_utf8(head.get(..e.valid_up_to())?).ok()?,
        Err(_) => return None,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match text.trim_start().as_bytes().first()? {
        b'{' | b'[' => json(text),
        _ => csv(text),
    }
}

fn json(text: &str) -> Option<Shape> {
    let mut cur = Cursor::new(text, 1);
    if cur.eat(b'[').ok()? {
        return first_record(&mut cur);
    }
    let mut inside = cur.clone();
    match opens_history(&mut inside) {
        Ok(true) => first_record(&mut inside),
        _ => first_record(&mut cur),
    }
}

/// What the keys of a record told.
#[derive(Default)]
struct Seen {
    events: usize,
    records: usize,
    others: usize,
}

fn first_record(cur: &mut Cursor<'_>) -> Option<Shape> {
    if cur.peek().ok()? != b'{' {
        return None;
    }
    let mut seen = Seen::default();
    match keys(cur, &mut seen) {
        Ok(shape) => shape,
        // Cut off before the key that decides: then all that was seen must fit.
        Err(Halt::More) if seen.events > 0 && seen.records + seen.others == 0 => Some(Shape::Events),
        Err(_) => None,
    }
}

/// Reads keys until one decides.
fn keys(cur: &mut Cursor<'_>, seen: &mut Seen) -> Parse<Option<Shape>> {
    cur.enter(0)?;
    let mut first = true;
    while let Some(key) = cur.next_key(&mut first)? {
        match key.as_str().unwrap_or_default() {
            "type" if cur.peek()? == b'"' => {
                let name = cur.string()?;
                if name.as_str().is_some_and(|n| EventType::from_name(n.as_bytes()).is_some()) {
                    return Ok(Some(Shape::Events));
                }
                seen.others += 1;
                continue;
            }
            field if is_telling(field) => return Ok(Some(Shape::Records)),
            "f" | "process" | "value" | "time" | "index" => seen.events += 1,
            field if COMMON.contains(&field) => seen.records += 1,
            _ => seen.others += 1,
        }
        cur.skip_value(0)?;
    }
    Ok((seen.records >= 2).then_some(Shape::Records))
}

fn is_telling(field: &str) -> bool {
    FIELDS.contains(&field) && !COMMON.contains(&field)
}

/// A header with a field that tells, or two that do not.
fn csv(text: &str) -> Option<Shape> {
    let line = text.lines().next()?;
    let names = || line.split(',').map(|name| name.trim_matches('"'));
    let is_ours = names().any(is_telling) || names().filter(|n| FIELDS.contains(n)).count() >= 2;
    is_ours.then_some(Shape::Csv)
}
