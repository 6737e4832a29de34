//! Where does the next record begin, whatever encloses it, when only a block of the input is in memory?
//!
//! Records are objects in one array, objects one after another (JSON Lines), or objects in the array under `"history"` of
//! one enclosing object. Text is read in blocks; a record that the block cuts off is taken back and parsed again when
//! there is more, so that a record is parsed twice at most once per block (and once per doubling where it is longer than a
//! block). What is whole is handed over before more is read: a slow pipe never holds back an event.
//!
//! Cost: linear in the input; memory is a block, a batch, and at most [`MAX_RECORD`] for one record.

use super::cells::Mark;
use super::cursor::{Cursor, Halt, Parse};
use crate::error::{Place, ReadError, Result};
use crate::event::{EventBatch, EventType};
use std::io::{ErrorKind, Read};

/// How much is read at once.
const BLOCK: usize = 4 << 20;
/// How much is read at first; it doubles up to [`BLOCK`], so that a small input costs little.
const FIRST_BLOCK: usize = 64 << 10;
/// The longest record that is read.
const MAX_RECORD: usize = 128 << 20;
/// The most distinct text of one input. Far enough below a pool's 4 GiB that no record can overflow it.
const MAX_TEXT: usize = 2 << 30;
/// A batch is handed over when it holds as many events, or as many elements of arenas.
const BATCH_EVENTS: usize = 4096;
const BATCH_ELEMENTS: usize = 1 << 20;
/// What is shorter is parsed again whenever there is a little more of it; what is longer, when there is twice as much.
const CHEAP: usize = 64 << 10;

/// Takes the events of a batch; the batch is cleared afterwards.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&mut EventBatch) -> Result<()>;
/// Parses the record that begins at the cursor and pushes its events, all of them or none.
pub(crate) type Record<'a> = &'a mut dyn FnMut(&mut Cursor<'_>, &mut EventBatch) -> Parse<()>;

/// Where in the enclosing text the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Start,
    Lines,
    Array { first: bool, wrapped: bool },
    Tail,
    End,
}

/// Reads all records of an input.
pub(crate) fn read(input: &mut dyn Read, record: Record<'_>, sink: Sink<'_>) -> Result<()> {
    let mut window = Window { bytes: Vec::new(), start: 0, end: 0, at_end: false };
    let mut batch = EventBatch::default();
    let (mut shape, mut line) = (Shape::Start, 1);
    loop {
        window.fill(input)?;
        let (text, is_text) = window.text();
        let mut cur = Cursor::new(text, line);
        let mut halted = records(&mut cur, &mut shape, &mut batch, record, sink);
        if matches!(halted, Halt::More) && !is_text {
            let lines = text[cur.at()..].matches('\n').count() as u64;
            halted = ReadError::new("not UTF-8")
                .at(Place::Line(cur.line() + lines))
                .hint("JSON is UTF-8: is the file damaged, compressed or in another encoding?")
                .into();
        }
        (window.start, line) = (window.start + cur.at(), cur.line());
        hand_over(&mut batch, sink)?;
        match halted {
            Halt::Bad(e) => return Err(*e),
            Halt::More | Halt::Odd if window.at_end => return at_end(&window, shape, line),
            Halt::More | Halt::Odd => {}
        }
    }
}

/// Parses records until something stops it; the cursor is then after the last whole one.
fn records(
    cur: &mut Cursor<'_>,
    shape: &mut Shape,
    batch: &mut EventBatch,
    record: Record<'_>,
    sink: Sink<'_>,
) -> Halt {
    loop {
        let (ahead, mark) = (&mut cur.clone(), Mark::of(batch));
        match step(ahead, *shape, batch, record) {
            Ok(next) => (*cur, *shape) = (ahead.clone(), next),
            Err(halt) => {
                mark.restore(batch);
                return halt;
            }
        }
        if let Err(e) = hand_over_if_full(batch, sink) {
            return e.into();
        }
    }
}

/// Hands a batch over once it is large enough, and bounds the text that is kept from batch to batch.
pub(crate) fn hand_over_if_full(batch: &mut EventBatch, sink: Sink<'_>) -> Result<()> {
    if batch.texts.text_bytes() > MAX_TEXT {
        return Err(ReadError::new("more than 2 GiB of distinct text in one history").hint("split it"));
    }
    let elements = batch.ints.len() + batch.cells.len() + batch.mops.len();
    if batch.len() >= BATCH_EVENTS || elements >= BATCH_ELEMENTS { hand_over(batch, sink) } else { Ok(()) }
}

/// Hands a batch over, unless it is empty.
pub(crate) fn hand_over(batch: &mut EventBatch, sink: Sink<'_>) -> Result<()> {
    if !batch.is_empty() {
        sink(batch)?;
        batch.clear_events();
    }
    Ok(())
}

/// One record, or one step between records.
#[inline]
fn step(cur: &mut Cursor<'_>, shape: Shape, batch: &mut EventBatch, record: Record<'_>) -> Parse<Shape> {
    match shape {
        Shape::Start => start(cur),
        Shape::Lines => {
            if cur.peek()? == b',' {
                return Err(cur.bad("a comma between operations", "outside an array they stand on lines of their own"));
            }
            one(cur, batch, record)?;
            Ok(Shape::Lines)
        }
        Shape::Array { mut first, wrapped } => {
            if cur.next_element(&mut first)? {
                one(cur, batch, record)?;
                Ok(Shape::Array { first, wrapped })
            } else {
                Ok(if wrapped { Shape::Tail } else { Shape::End })
            }
        }
        Shape::Tail => tail(cur),
        Shape::End => {
            cur.peek()?;
            Err(cur.bad("something follows the end of the history", "a file holds one history"))
        }
    }
}

fn one(cur: &mut Cursor<'_>, batch: &mut EventBatch, record: Record<'_>) -> Parse<()> {
    match cur.peek()? {
        b'{' => record(cur, batch),
        _ => {
            // Says what stands there where that is no JSON at all.
            let here = cur.clone();
            cur.skip_value(0)?;
            Err(here.bad("an operation must be an object", "like {\"type\":\"invoke\",\"f\":\"read\",…}"))
        }
    }
}

fn start(cur: &mut Cursor<'_>) -> Parse<Shape> {
    cur.skip_bom();
    if cur.eat(b'[')? {
        return Ok(Shape::Array { first: true, wrapped: false });
    }
    let mut ahead = cur.clone();
    if cur.peek()? == b'{' && opens_history(&mut ahead)? {
        *cur = ahead;
        return Ok(Shape::Array { first: true, wrapped: true });
    }
    Ok(Shape::Lines)
}

/// Is this object not a record, but has its records under `"history"`? Then the cursor is inside that array.
pub(crate) fn opens_history(cur: &mut Cursor<'_>) -> Parse<bool> {
    cur.expect(b'{', "an object")?;
    let mut first = true;
    while let Some(key) = cur.next_key(&mut first)? {
        let kind = cur.peek()?;
        match (key.as_str(), kind) {
            (Some("type"), b'"') => {
                let name = cur.string()?;
                if name.as_str().is_some_and(|n| EventType::from_name(n.as_bytes()).is_some()) {
                    return Ok(false);
                }
            }
            (Some("history"), b'[') => {
                let mut ahead = cur.clone();
                ahead.enter(0)?;
                if matches!(ahead.peek()?, b'{' | b']') {
                    *cur = ahead;
                    return Ok(true);
                }
                cur.skip_value(0)?;
            }
            _ => cur.skip_value(0)?,
        }
    }
    Ok(false)
}

/// What follows the history in the object that encloses it.
fn tail(cur: &mut Cursor<'_>) -> Parse<Shape> {
    match cur.next_key(&mut false)? {
        None => Ok(Shape::End),
        Some(key) if key.as_str() == Some("history") => {
            Err(cur.bad("a second \"history\" in one object", "a file holds one history"))
        }
        Some(_) => {
            cur.skip_value(0)?;
            Ok(Shape::Tail)
        }
    }
}

/// The input ended: was that a good place?
fn at_end(window: &Window, shape: Shape, line: u64) -> Result<()> {
    let rest = window.text().0;
    let rest = rest.strip_prefix('\u{feff}').filter(|_| shape == Shape::Start).unwrap_or(rest);
    let is_blank = rest.bytes().all(|b| b.is_ascii_whitespace());
    let blank = rest.bytes().take_while(u8::is_ascii_whitespace);
    let line = line + blank.filter(|&b| b == b'\n').count() as u64;
    match shape {
        Shape::Start | Shape::Lines | Shape::End if is_blank => Ok(()),
        _ => {
            let what = match shape {
                _ if !is_blank => "the file ends inside an operation",
                Shape::Tail => "the file ends before the closing } of the object around the history",
                _ => "the file ends before the closing ] of the history",
            };
            Err(ReadError::new(what)
                .at(Place::Line(line))
                .hint("is it truncated? everything before this line is whole"))
        }
    }
}

/// The part of the input that is in memory and not yet consumed.
struct Window {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    at_end: bool,
}

impl Window {
    /// Reads on: at least a byte, unless the input ends.
    fn fill(&mut self, input: &mut dyn Read) -> Result<()> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end > MAX_RECORD {
            return Err(ReadError::new("an operation is longer than 128 MiB").hint("is a bracket or quote missing?"));
        }
        let room = (2 * self.bytes.len()).clamp(FIRST_BLOCK, BLOCK).max(2 * self.end);
        if self.bytes.len() < room {
            self.bytes.resize(room, 0);
        }
        let wanted = if self.end > CHEAP { 2 * self.end } else { self.end + 1 };
        while self.end < wanted && !self.at_end {
            match input.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// As much of it as is text, and whether no byte can be wrong (a character cut off by the block is not wrong).
    fn text(&self) -> (&str, bool) {
        let bytes = &self.bytes[self.start..self.end];
        if let Ok(text) = simdutf8::basic::from_utf8(bytes) {
            return (text, true);
        }
        match simdutf8::compat::from_utf8(bytes) {
            Ok(text) => (text, true),
            Err(e) => {
                let (good, _) = bytes.split_at(e.valid_up_to());
                let is_cut = e.error_len().is_none() && !self.at_end;
                (std::str::from_utf8(good).unwrap_or_default(), is_cut)
            }
        }
    }
}
