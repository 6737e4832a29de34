//! Which event is this map, as columns?
//!
//! The idea: what nearly every operation of a real history consists of (six known keys, integers, keywords, vectors
//! and sets of integers, transactions of those) is recognised directly, eight bytes at a time, and written straight
//! into the arenas of an [`EventBatch`]. The moment that anything else turns up, the arenas are rolled back to where
//! the value began and the complete reader takes it: the quick way never decides that a text is wrong, only that it is
//! not quick. What the quick way does recognise must be what [`EventBatch::value`] makes of the same value; a property
//! test holds the two together.

use std::cmp::Ordering::{Equal, Less};
use std::collections::HashSet;
use std::hint::select_unpredictable;
use std::ops::Range;

use crate::edn::token::{Cursor, Fault, Scan, is_end, newlines, utf8};
use crate::edn::value::shorten;
use crate::event::{
    Cell, EventBatch, EventType, Mop, MopNames, NONE, Process, Span, TextId, field_name, is_keyword_name,
};
use crate::value::Value;

/// A batch is handed over when it holds so many events,
const MAX_EVENTS: usize = 8192;
/// or so many elements in one of its arenas,
const MAX_ELEMENTS: usize = 4 << 20;
/// or so many bytes of text. Such a batch is not used again.
const MAX_TEXT: usize = 64 << 20;
/// Vectors nested deeper than this are left to the complete reader.
const QUICK_DEPTH: usize = 8;

/// A batch under construction and what speeds up filling it.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// The events so far.
    pub(crate) batch: EventBatch,
    memo: Memo,
    after: After,
    lists: Lists,
    cells: Vec<Cell>,
    entries: Vec<Entry>,
    text: Vec<u8>,
}

/// An entry of a map that is being read: where its key and its value are written.
#[derive(Debug)]
struct Entry {
    int: i64,
    key: Range<usize>,
    value: Range<usize>,
}

/// Why a run of events came to an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The batch is full.
    Full,
    /// The limit is reached, or the end of the text.
    Limit,
    /// More bytes are needed to read what begins here.
    More,
    /// Here is a bracket that belongs to what encloses the events.
    Bracket,
    /// The first map is no event but holds the history, whose value begins here.
    History,
}

/// A run of events: where it ended, how many lines it crossed, why it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) pos: usize,
    pub(crate) lines: u64,
    /// Was there an event?
    pub(crate) any: bool,
    pub(crate) stop: Scan<Stop>,
}

/// What comes next in the map of an event.
enum Next {
    Field(Field),
    /// An entry of another name, which was read.
    Other,
    /// The end of the map, or of the quick way.
    End(Option<Stop>),
}

/// Where the arenas stood when an event or a value began.
#[derive(Clone, Copy)]
struct Mark {
    extras: usize,
    ints: usize,
    cells: usize,
    mops: usize,
}

/// The fields of an event as they are gathered.
struct Fields {
    index: i64,
    time: i64,
    kind: Option<EventType>,
    process: Process,
    f: Option<TextId>,
}

impl Shard {
    /// Appends the events that begin in a range of the bytes, whose start is in line `line` and between two events;
    /// `first` tells that no event or bracket precedes them.
    pub(crate) fn run(&mut self, bytes: &[u8], range: Range<usize>, last: bool, first: bool, line: u64) -> Run {
        let Range { start, end: limit } = range;
        let mut cursor = Cursor::new(bytes, start, last);
        let (mut end, mut counted, mut lines, mut any) = (start, start, 0, false);
        let stop = loop {
            // Usually an event is one line, and the next event the next line: nothing to skip or to count.
            if !cursor.breaks && bytes[end..].starts_with(b"\n{") {
                cursor.pos += 1;
                lines += 1;
            } else {
                if let Err(fault) = cursor.skip_trivia(0) {
                    break Err(fault);
                }
                lines += newlines(&bytes[counted..cursor.pos]);
            }
            let at = cursor.pos;
            counted = at;
            cursor.breaks = false;
            let step = match cursor.peek() {
                _ if at >= limit => Ok(Some(Stop::Limit)),
                Some(b'{') => self.event(&mut cursor, line + lines, first && !any),
                _ => self.other(&mut cursor, line + lines, first && !any),
            };
            match step {
                Ok(stop) => {
                    end = cursor.pos;
                    any |= stop.is_none();
                    match stop {
                        None if self.is_full() => break Ok(Stop::Full),
                        None => {}
                        Some(stop) => break Ok(stop),
                    }
                }
                Err(fault) => break Err(fault),
            }
        };
        let stop = match stop {
            Err(fault) if !last && matches!(*fault, Fault::End { .. }) => Ok(Stop::More),
            stop => stop,
        };
        lines = lines + newlines(&bytes[counted.min(end)..end]) - newlines(&bytes[end.min(counted)..counted]);
        Run { pos: end, lines, any, stop }
    }

    /// What begins here with something else than a `{`: tags before an event, or a bracket around events.
    #[cold]
    fn other(&mut self, cursor: &mut Cursor<'_>, place: u64, first: bool) -> Scan<Option<Stop>> {
        let at = cursor.pos;
        loop {
            match (cursor.peek(), cursor.peek_second()) {
                (None, _) => return Fault::end(at, "tag"),
                (Some(b'{'), _) => return self.event(cursor, place, first),
                (Some(b'[' | b'('), _) => return Ok(Some(Stop::Bracket)),
                (Some(b']' | b')' | b'}'), _) if cursor.pos == at => return Ok(Some(Stop::Bracket)),
                (Some(b'#'), Some(b)) if !b"{\"#':<".contains(&b) => {
                    cursor.tag()?;
                    cursor.skip_trivia(0)?;
                }
                _ => {
                    let found = cursor.value_here(0)?.to_edn();
                    return Fault::bad_hint(
                        at,
                        format!("an operation map should begin here, but here is {}", shorten(&found)),
                        "a history is maps such as {:process 0, :type :invoke, :f :read, :value nil}",
                    );
                }
            }
        }
    }

    fn event(&mut self, cursor: &mut Cursor<'_>, place: u64, first: bool) -> Scan<Option<Stop>> {
        let mark = self.mark();
        let open = cursor.pos;
        let mut fields = Fields::default();
        match self.fields(cursor, &mut fields, first) {
            Ok(None) => {}
            other => {
                self.roll_back(mark);
                self.batch.value.truncate(self.batch.len());
                return other;
            }
        }
        let Some(kind) = fields.kind else {
            self.roll_back(mark);
            self.batch.value.truncate(self.batch.len());
            return Fault::bad_hint(
                open,
                "this map has no :type and so is no operation",
                "every event of a history is of a :type: invoke, ok, fail or info",
            );
        };
        if self.batch.extras.len() > mark.extras + 1 {
            self.keep_last_of_each_extra(mark.extras);
        }
        if self.batch.value.len() == self.batch.len() {
            self.batch.value.push(Cell::Nil);
        }
        let batch = &mut self.batch;
        batch.place.push(place);
        batch.index.push(fields.index);
        batch.time.push(fields.time);
        batch.kind.push(kind);
        batch.process.push(fields.process);
        batch.f.push(fields.f);
        Ok(None)
    }

    /// Reads the map here into `fields` and extras, up to the `}`, or up to the history that a first map holds.
    #[inline]
    fn fields(&mut self, cursor: &mut Cursor<'_>, fields: &mut Fields, first: bool) -> Scan<Option<Stop>> {
        let open = cursor.pos;
        let (mut last, mut foreseen) = (None, self.usual_fields(cursor, fields));
        if foreseen.is_none() {
            cursor.pos += 1;
        }
        loop {
            let field = match foreseen {
                Some(field) => field,
                None => match self.next(cursor, fields.kind.is_none(), open, first)? {
                    Next::Field(field) => {
                        self.after.learn(last, field);
                        field
                    }
                    Next::Other => {
                        foreseen = last.and_then(|last| self.after.ahead(cursor, last));
                        continue;
                    }
                    Next::End(stop) => return Ok(stop),
                },
            };
            last = Some(field);
            cursor.skip_spaces();
            match field {
                Field::Index => fields.index = integer(cursor, open, ":index")?,
                Field::Time => fields.time = integer(cursor, open, ":time")?,
                Field::Type => fields.kind = Some(kind(cursor, open)?),
                Field::Process => fields.process = self.process(cursor, open)?,
                Field::F => fields.f = self.function(cursor, open)?,
                Field::Value => {
                    // Straight into its column; of two values the later counts.
                    self.batch.value.truncate(self.batch.len());
                    self.cell_for(cursor, open, |shard, cell| shard.batch.value.push(cell))?;
                }
            }
            if cursor.peek() == Some(b'}') {
                cursor.pos += 1;
                return Ok(None);
            }
            foreseen = self.after.ahead(cursor, field);
        }
    }

    /// Reads the fields of the map here as far as it is written as Jepsen and we write it: these fields, in this order, with
    /// nothing but a comma and a space between them. Gives the field whose value comes next, the process or a later one;
    /// where that is not so, nothing is read.
    #[inline(always)]
    fn usual_fields(&self, cursor: &mut Cursor<'_>, fields: &mut Fields) -> Option<Field> {
        let mut rest = behind(cursor.bytes.get(cursor.pos..)?, b"{:index ")?;
        let index = usual_int(&mut rest)?;
        rest = behind(rest, b", :time ")?;
        let time = usual_int(&mut rest)?;
        rest = behind(rest, b", :type ")?;
        let (kind, len) = usual_kind(u64::from_le_bytes(*rest.first_chunk()?))?;
        rest = behind(&rest[len..], b", :process ")?;
        (fields.index, fields.time, fields.kind) = (index, time, Some(kind));
        cursor.pos = cursor.bytes.len() - rest.len();
        let process = usual_int(&mut rest);
        let (Some(process), Some(rest)) = (process, behind(rest, b", :f ")) else { return Some(Field::Process) };
        fields.process = Process::Client(process);
        cursor.pos = cursor.bytes.len() - rest.len();
        let Some((f, rest)) = self.usual_function(rest) else { return Some(Field::F) };
        fields.f = Some(f);
        cursor.pos = cursor.bytes.len() - rest.len();
        Some(Field::Value)
    }

    /// The name of a function that was seen before, and what comes behind it and the key of the value.
    #[inline(always)]
    fn usual_function<'a>(&self, bytes: &'a [u8]) -> Option<(TextId, &'a [u8])> {
        let rest = behind(bytes, b":")?;
        let (f, len) = self.memo.find_word(u64::from_le_bytes(*rest.first_chunk()?))?;
        Some((f, behind(&rest[len..], b", :value ")?))
    }

    /// The name of the next field, or all of an entry that is none of the six; `untyped` tells that no type was read yet.
    fn next(&mut self, cursor: &mut Cursor<'_>, untyped: bool, open: usize, first: bool) -> Scan<Next> {
        cursor.skip_spaces();
        match cursor.peek() {
            Some(b':') => {}
            Some(b'}') => {
                cursor.pos += 1;
                return Ok(Next::End(None));
            }
            None => return Fault::end(open, "map"),
            Some(_) => {
                self.other_key(cursor, open)?;
                return Ok(Next::Other);
            }
        }
        if let Some(field) = quick_field(cursor) {
            return Ok(Next::Field(field));
        }
        let start = cursor.pos;
        let name = cursor.token()?;
        match field(&name[1..]) {
            Some(field) => Ok(Next::Field(field)),
            None if first && untyped && name == b":history" => {
                cursor.skip_trivia(0)?;
                Ok(Next::End(Some(Stop::History)))
            }
            None => {
                self.extra(cursor, start, &name[1..], open)?;
                Ok(Next::Other)
            }
        }
    }

    /// A key that does not begin with a colon, or what stands before one.
    #[cold]
    fn other_key(&mut self, cursor: &mut Cursor<'_>, open: usize) -> Scan<()> {
        cursor.skip_trivia(1)?;
        match cursor.peek() {
            None => return Fault::end(open, "map"),
            Some(b':' | b'}') => return Ok(()),
            Some(_) => {}
        }
        let name = field_name(&cursor.value_here(1)?);
        let name = self.batch.name(&name);
        let value = self.cell(cursor, open)?;
        self.batch.extra(name, value);
        Ok(())
    }

    fn extra(&mut self, cursor: &mut Cursor<'_>, at: usize, name: &[u8], open: usize) -> Scan<()> {
        let keyword = utf8(name, at)?;
        let name = match is_keyword_name(keyword) {
            true => self.batch.name(keyword),
            false => self.batch.name(&field_name(&Value::keyword(keyword))),
        };
        let value = self.cell(cursor, open)?;
        self.batch.extra(name, value);
        Ok(())
    }

    /// A map has no key twice: the later one counts.
    fn keep_last_of_each_extra(&mut self, from: usize) {
        let extras = &mut self.batch.extras;
        let mut kept = extras.len();
        let mut seen = HashSet::new();
        for i in (from..extras.len()).rev() {
            let new = if extras.len() - from <= 16 {
                extras[i + 1..].iter().all(|later| later.name != extras[i].name)
            } else {
                seen.insert(extras[i].name)
            };
            if new {
                kept -= 1;
                extras.swap(i, kept);
            }
        }
        extras.drain(from..kept);
    }

    fn process(&mut self, cursor: &mut Cursor<'_>, open: usize) -> Scan<Process> {
        if let Some(n) = quick_int(cursor) {
            return Ok(Process::Client(n));
        }
        match cursor.value(1, open, "map")? {
            Value::Int(n) => Ok(Process::Client(n)),
            Value::Nil => Ok(Process::Unknown),
            other => Ok(Process::Actor(self.name_of(&other))),
        }
    }

    #[inline]
    fn function(&mut self, cursor: &mut Cursor<'_>, open: usize) -> Scan<Option<TextId>> {
        if let Some(id) = self.quick_name(cursor) {
            return Ok(Some(id));
        }
        if cursor.peek() == Some(b':') {
            let at = cursor.pos;
            let name = cursor.token()?;
            return Ok(Some(self.name(&name[1..], at)?));
        }
        Ok(match cursor.value(1, open, "map")? {
            Value::Nil => None,
            other => Some(self.name_of(&other)),
        })
    }

    /// The name that a value is, or its text if it is none.
    pub(crate) fn name_of(&mut self, value: &Value) -> TextId {
        match value.as_name() {
            Some(name) => self.batch.name(name),
            None => self.batch.name(&value.to_edn()),
        }
    }

    /// Interns a name that stands at `at`.
    #[inline]
    fn name(&mut self, name: &[u8], at: usize) -> Scan<TextId> {
        match self.memo.find(name) {
            Some(id) => Ok(id),
            None => {
                let id = self.batch.name(utf8(name, at)?);
                self.memo.keep(name, id);
                Ok(id)
            }
        }
    }

    /// The value that begins here or after white space, inside of what began at `open`.
    pub(crate) fn cell(&mut self, cursor: &mut Cursor<'_>, open: usize) -> Scan<Cell> {
        self.cell_for(cursor, open, |_, cell| cell)
    }

    /// As [`Self::cell`], for `keep`.
    #[inline(always)]
    fn cell_for<R>(
        &mut self,
        cursor: &mut Cursor<'_>,
        open: usize,
        keep: impl Fn(&mut Self, Cell) -> R + Copy,
    ) -> Scan<R> {
        let (start, mark) = (cursor.pos, self.mark());
        cursor.skip_spaces();
        if let Some(kept) = self.quick_cell(cursor, 0, keep) {
            return Ok(kept);
        }
        self.cells.clear();
        self.roll_back(mark);
        cursor.pos = start;
        let cell = self.any_cell(cursor, open)?;
        Ok(keep(self, cell))
    }

    #[cold]
    fn any_cell(&mut self, cursor: &mut Cursor<'_>, open: usize) -> Scan<Cell> {
        let value = cursor.value(0, open, "map")?;
        Ok(self.batch.value(&value, MopNames::Keywords))
    }

    /// Every kind of cell is handed to `keep` where it is made: a cell that is first written to memory in pieces and then
    /// read as a whole makes the processor wait.
    #[inline(always)]
    fn quick_cell<R>(
        &mut self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        keep: impl Fn(&mut Self, Cell) -> R + Copy,
    ) -> Option<R> {
        let cell = match cursor.peek()? {
            b'-' | b'0'..=b'9' => {
                let n = quick_int(cursor)?;
                return Some(keep(self, Cell::Int(n)));
            }
            b'n' => {
                quick_nil(cursor)?;
                return Some(keep(self, Cell::Nil));
            }
            b'[' | b'(' => return self.quick_vector(cursor, depth, keep),
            b'#' => Cell::Set(self.quick_set(cursor)?),
            b'{' => Cell::Text(self.quick_map(cursor)?),
            _ => Cell::Text(self.quick_text(cursor)?),
        };
        Some(keep(self, cell))
    }

    /// A keyword or string.
    fn quick_text(&mut self, cursor: &mut Cursor<'_>) -> Option<TextId> {
        let start = cursor.pos;
        match cursor.peek()? {
            b':' => {
                let token = cursor.token().ok()?;
                Some(self.batch.name(std::str::from_utf8(token).ok()?))
            }
            b'"' => {
                let (raw, escapes) = cursor.string().ok()?;
                // Only what is written as it would be printed.
                if escapes || has_controls(raw) {
                    return None;
                }
                Some(self.batch.name(utf8(&cursor.bytes[start..cursor.pos], start).ok()?))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn quick_vector<R>(
        &mut self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        keep: impl Fn(&mut Self, Cell) -> R + Copy,
    ) -> Option<R> {
        let close = closing(cursor.peek()?);
        cursor.pos += 1;
        cursor.skip_spaces();
        let elements = if !matches!(cursor.peek()?, b'[' | b'(') {
            let start = self.batch.ints.len();
            if read_ints(cursor, close, &mut self.batch.ints) != Read::Part {
                let ints = span(start, self.batch.ints.len());
                return Some(keep(self, Cell::List(ints)));
            }
            self.quick_mixed(cursor, close, depth, start)?
        } else if micro_operation_ahead(cursor) {
            let start = self.batch.mops.len();
            if depth > 0 {
                return None;
            }
            self.quick_transaction(cursor, close)?;
            let mops = span(start, self.batch.mops.len());
            return Some(keep(self, Cell::Txn(mops)));
        } else {
            self.quick_seq(cursor, close, depth, self.cells.len())?
        };
        Some(keep(self, Cell::Seq(elements)))
    }

    /// A vector of integers, whose elements begin at `at`, beside a key, and where it ends: what one list of that key has in
    /// common with the last one is not read again. Of any other vector, or one that breaks lines, nothing is read.
    #[inline(never)]
    fn quick_list(&mut self, bytes: &[u8], at: usize, key: i64) -> Option<(Span, usize)> {
        let start = self.batch.ints.len();
        let last = self.lists.of(key);
        let known = last.begins(&bytes[at..], &mut self.batch.ints);
        let mut end = at + known;
        if known == 0 || bytes[end] != b']' {
            let mut cursor = Cursor::new(bytes, end + usize::from(known > 0), false);
            let read = read_ints(&mut cursor, b']', &mut self.batch.ints);
            end = cursor.pos - 1;
            if read == Read::Part || cursor.breaks {
                self.batch.ints.truncate(start);
                return None;
            }
            last.keep(known, &bytes[at..end], &self.batch.ints[start..], read == Read::Plain);
        }
        Some((span(start, self.batch.ints.len()), end + 1))
    }

    /// The rest of a vector that begins with the integers from `start` on.
    #[inline(never)]
    fn quick_mixed(&mut self, cursor: &mut Cursor<'_>, close: u8, depth: usize, start: usize) -> Option<Span> {
        let base = self.cells.len();
        self.cells.extend(self.batch.ints.drain(start..).map(Cell::Int));
        self.quick_seq(cursor, close, depth, base)
    }

    /// The rest of a vector of which the cells from `base` on are known.
    #[inline(never)]
    fn quick_seq(&mut self, cursor: &mut Cursor<'_>, close: u8, depth: usize, base: usize) -> Option<Span> {
        if depth >= QUICK_DEPTH {
            return None;
        }
        while cursor.peek()? != close {
            self.quick_cell(cursor, depth + 1, |shard, cell| shard.cells.push(cell))?;
            cursor.skip_spaces();
        }
        cursor.pos += 1;
        let start = self.batch.cells.len();
        self.batch.cells.extend(self.cells.drain(base..));
        Some(span(start, self.batch.cells.len()))
    }

    /// A map of scalars, all of whose keys are of one kind: its entries are put in order as they are written.
    #[inline(never)]
    fn quick_map(&mut self, cursor: &mut Cursor<'_>) -> Option<TextId> {
        self.entries.clear();
        cursor.pos += 1;
        cursor.skip_spaces();
        let kind = key_kind(cursor.peek()?);
        while cursor.peek()? != b'}' {
            if key_kind(cursor.peek()?) != kind {
                return None;
            }
            let (key, int) = plain_scalar(cursor)?;
            cursor.skip_spaces();
            let (value, _) = plain_scalar(cursor)?;
            cursor.skip_spaces();
            self.entries.push(Entry { int, key, value });
        }
        cursor.pos += 1;
        let Shard { entries, text, .. } = self;
        // The quote that ends a string is no part of what is compared.
        let name = |e: &Entry| &cursor.bytes[e.key.start..e.key.end - usize::from(kind == b'"')];
        let order = |a: &Entry, b: &Entry| {
            a.int.cmp(&b.int).then_with(|| if kind == b'0' { Equal } else { name(a).cmp(name(b)) })
        };
        if !entries.is_sorted_by(|a, b| order(a, b) == Less) {
            entries.reverse();
            entries.sort_by(order);
            entries.dedup_by(|a, b| order(a, b) == Equal);
        }
        text.clear();
        text.push(b'{');
        for (i, entry) in entries.iter().enumerate() {
            text.extend_from_slice(if i > 0 { b", " } else { b"" });
            text.extend_from_slice(&cursor.bytes[entry.key.clone()]);
            text.push(b' ');
            text.extend_from_slice(&cursor.bytes[entry.value.clone()]);
        }
        text.push(b'}');
        Some(self.batch.name(utf8(text, 0).ok()?))
    }

    #[inline(never)]
    fn quick_set(&mut self, cursor: &mut Cursor<'_>) -> Option<Span> {
        if cursor.peek_second()? != b'{' {
            return None;
        }
        cursor.pos += 2;
        let start = self.batch.ints.len();
        cursor.skip_spaces();
        while cursor.peek()? != b'}' {
            self.batch.ints.push(quick_int(cursor)?);
            cursor.skip_spaces();
        }
        cursor.pos += 1;
        self.sort_and_dedup(start);
        Some(span(start, self.batch.ints.len()))
    }

    fn sort_and_dedup(&mut self, start: usize) {
        let ints = &mut self.batch.ints;
        if ints[start..].is_sorted_by(|a, b| a < b) {
            return;
        }
        ints[start..].sort_unstable();
        let mut kept = start;
        for i in start..ints.len() {
            if kept == start || ints[kept - 1] != ints[i] {
                ints[kept] = ints[i];
                kept += 1;
            }
        }
        ints.truncate(kept);
    }

    /// The rest of a vector whose first element looks like a micro-operation; all must be.
    fn quick_transaction(&mut self, cursor: &mut Cursor<'_>, close: u8) -> Option<()> {
        let mut at = cursor.pos;
        loop {
            if let Some(end) = self.usual_mop(cursor.bytes, at) {
                at = end;
                match *cursor.bytes.get(at..at + 2)? {
                    [b' ', b'['] => {
                        at += 1;
                        continue;
                    }
                    [b, _] if b == close => {
                        cursor.pos = at + 1;
                        return Some(());
                    }
                    _ => {}
                }
            }
            cursor.pos = at;
            cursor.skip_spaces();
            let b = cursor.peek()?;
            if b == close {
                cursor.pos += 1;
                return Some(());
            }
            if b != b'[' && b != b'(' {
                return None;
            }
            self.quick_mop(cursor, closing(b))?;
            at = cursor.pos;
        }
    }

    /// A micro-operation as most are: one of the last two names, a short integer, and nil, a short integer or a vector of
    /// integers, with one space between them; where it ends. Of anything else nothing is read.
    #[inline(always)]
    fn usual_mop(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let rest = behind(bytes.get(at..)?, b"[")?;
        let (f, len) = self.memo.recent(u64::from_le_bytes(*rest.first_chunk()?))?;
        let rest = &rest[len..];
        let w = u64::from_le_bytes(*rest.first_chunk()?);
        let (len, key) = digits(w);
        if len == 0 || len == 8 || (w >> (8 * len)) as u8 != b' ' {
            return None;
        }
        let (key, rest) = (key as i64, &rest[len + 1..]);
        let w = u64::from_le_bytes(*rest.first_chunk()?);
        let here = bytes.len() - rest.len();
        if w as u8 == b'[' {
            let (list, end) = self.quick_list(bytes, here + 1, key)?;
            if bytes.get(end) != Some(&b']') {
                self.batch.ints.truncate(list.start as usize);
                return None;
            }
            self.batch.mops.push(Mop { f, key: Cell::Int(key), value: Cell::List(list) });
            return Some(end + 1);
        }
        // Without a branch, for nobody foresees which of the two it is.
        let is_nil = w & 0xff_ffff == word(b"nil");
        let len = select_unpredictable(is_nil, 3, count_digits(w));
        if len == 0 || len == 8 || (w >> (8 * len)) as u8 != b']' {
            return None;
        }
        let value = match select_unpredictable(is_nil, None, Some(number(w, len) as i64)) {
            Some(n) => Cell::Int(n),
            None => Cell::Nil,
        };
        self.batch.mops.push(Mop { f, key: Cell::Int(key), value });
        Some(here + len + 1)
    }

    /// A micro-operation of any kind that is quick.
    #[inline(never)]
    fn quick_mop(&mut self, cursor: &mut Cursor<'_>, close: u8) -> Option<()> {
        cursor.pos += 1;
        let f = match load(cursor.bytes, cursor.pos).and_then(|w| self.memo.recent(w)) {
            Some((f, len)) => {
                cursor.pos += len;
                f
            }
            None => self.operation(cursor)?,
        };
        cursor.skip_spaces();
        let key = match cursor.peek()? {
            b'-' | b'0'..=b'9' => Cell::Int(quick_int(cursor)?),
            b'n' => {
                quick_nil(cursor)?;
                Cell::Nil
            }
            _ => Cell::Text(self.quick_text(cursor)?),
        };
        cursor.skip_spaces();
        let list = match (cursor.peek()?, key) {
            (b'[', Cell::Int(of)) => self.quick_list(cursor.bytes, cursor.pos + 1, of),
            _ => None,
        };
        match list {
            Some((list, end)) => {
                cursor.pos = end;
                self.batch.mops.push(Mop { f, key, value: Cell::List(list) });
            }
            None => self.quick_cell(cursor, 1, |shard, value| shard.batch.mops.push(Mop { f, key, value }))?,
        }
        cursor.skip_spaces();
        if cursor.peek()? != close {
            return None;
        }
        cursor.pos += 1;
        Some(())
    }

    /// The name of a micro-operation.
    fn operation(&mut self, cursor: &mut Cursor<'_>) -> Option<TextId> {
        let at = cursor.pos;
        if let Some(f) = self.quick_name(cursor) {
            self.memo.use_again(&cursor.bytes[at..=cursor.pos], f);
            return Some(f);
        }
        cursor.skip_spaces();
        if cursor.peek()? != b':' {
            return None;
        }
        let at = cursor.pos;
        let name = cursor.token().ok()?;
        self.name(&name[1..], at).ok()
    }

    /// A keyword of up to seven characters that was seen before and that a space or comma follows. That it was seen
    /// before makes it a keyword: only whole names are kept.
    #[inline]
    fn quick_name(&self, cursor: &mut Cursor<'_>) -> Option<TextId> {
        if cursor.peek()? != b':' {
            return None;
        }
        let (id, len) = self.memo.find_word(load(cursor.bytes, cursor.pos + 1)?)?;
        cursor.pos += 1 + len;
        Some(id)
    }

    fn mark(&self) -> Mark {
        Mark {
            extras: self.batch.extras.len(),
            ints: self.batch.ints.len(),
            cells: self.batch.cells.len(),
            mops: self.batch.mops.len(),
        }
    }

    fn roll_back(&mut self, mark: Mark) {
        self.batch.extras.truncate(mark.extras);
        self.batch.ints.truncate(mark.ints);
        self.batch.cells.truncate(mark.cells);
        self.batch.mops.truncate(mark.mops);
    }

    pub(crate) fn is_full(&self) -> bool {
        let EventBatch { ints, cells, mops, extras, .. } = &self.batch;
        self.batch.len() >= MAX_EVENTS
            || ints.len() + cells.len() + mops.len() + extras.len() >= MAX_ELEMENTS
            || self.has_much_text()
    }

    fn has_much_text(&self) -> bool {
        self.batch.texts.text_bytes() >= MAX_TEXT
    }

    /// Hands the events over, if there are any, and empties the batch. Its texts stay, unless they have become many:
    /// then a new batch takes its place.
    pub(crate) fn hand_over<E>(&mut self, sink: impl FnOnce(&mut EventBatch) -> Result<(), E>) -> Result<(), E> {
        let texts = self.batch.texts.len();
        if !self.batch.is_empty() {
            sink(&mut self.batch)?;
        }
        if self.has_much_text() {
            *self = Shard::default();
        } else if self.batch.texts.len() != texts {
            // The receiver kept the texts, or added to them.
            self.memo = Memo::default();
        }
        self.batch.clear_events();
        Ok(())
    }
}

impl Default for Fields {
    fn default() -> Self {
        Fields { index: NONE, time: NONE, kind: None, process: Process::Unknown, f: None }
    }
}

/// What [`read_ints`] read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// All of a vector, which holds nothing but integers with spaces between them,
    Plain,
    /// or with other white space, too.
    Whole,
    /// Integers that something else follows.
    Part,
}

/// The rest of a vector, as far as it is integers; goes behind it if it is nothing else.
fn read_ints(cursor: &mut Cursor<'_>, close: u8, ints: &mut Vec<i64>) -> Read {
    let (mut at, mut read) = (*cursor, Read::Plain);
    let read = loop {
        // Elements of lists are mostly small and near each other: foreseen lengths beat computed ones.
        match at.bytes.get(at.pos..at.pos + 3) {
            Some(&[a @ b'0'..=b'9', b' ', _]) => {
                ints.push(i64::from(a - b'0'));
                at.pos += 2;
                continue;
            }
            Some(&[a @ b'0'..=b'9', b @ b'0'..=b'9', b' ']) => {
                ints.push(i64::from(a - b'0') * 10 + i64::from(b - b'0'));
                at.pos += 3;
                continue;
            }
            _ => {}
        }
        if let Some((n, after)) = short_int(&mut at) {
            ints.push(n);
            if after == b' ' {
                continue;
            }
            if after == close {
                break read;
            }
            at.pos -= 1;
        }
        let before = at.pos;
        at.skip_spaces();
        if at.bytes[before..at.pos].iter().any(|&b| b != b' ') {
            read = Read::Whole;
        }
        match quick_int(&mut at) {
            Some(n) => ints.push(n),
            None if at.peek() == Some(close) => {
                at.pos += 1;
                break read;
            }
            None => break Read::Part,
        }
    };
    *cursor = at;
    read
}

fn span(start: usize, end: usize) -> Span {
    Span { start: start as u32, len: (end - start) as u32 }
}

#[inline]
fn closing(open: u8) -> u8 {
    if open == b'[' { b']' } else { b')' }
}

/// Here is an opening bracket; does a keyword follow?
#[inline]
fn micro_operation_ahead(cursor: &Cursor<'_>) -> bool {
    let mut ahead = *cursor;
    ahead.pos += 1;
    ahead.skip_spaces();
    ahead.peek() == Some(b':')
}

/// The six keys that every history has.
#[derive(Clone, Copy, Debug)]
enum Field {
    Index,
    Time,
    Type,
    Process,
    F,
    Value,
}

impl Field {
    /// Its name and the space after it: the bytes, and how many.
    const NAMES: [(u64, u32); 6] = [
        (word(b"index "), 6),
        (word(b"time "), 5),
        (word(b"type "), 5),
        (word(b"process "), 8),
        (word(b"f "), 2),
        (word(b"value "), 6),
    ];
}

/// Which field follows each field: programs write them in one order.
#[derive(Debug, Default)]
struct After([Option<(Field, u64, u64)>; 6]);

impl After {
    /// Is the field that is foreseen after this one the next, written as usual? Then the cursor goes behind its name.
    #[inline]
    fn ahead(&self, cursor: &mut Cursor<'_>, last: Field) -> Option<Field> {
        let (field, name, mask) = self.0[last as usize]?;
        let comma = load(cursor.bytes, cursor.pos)? & 0xff_ffff == word(b", :");
        if !comma || load(cursor.bytes, cursor.pos + 3)? & mask != name {
            return None;
        }
        cursor.pos += 3 + Field::NAMES[field as usize].1 as usize;
        Some(field)
    }

    fn learn(&mut self, last: Option<Field>, field: Field) {
        let Some(last) = last else { return };
        let (name, len) = Field::NAMES[field as usize];
        self.0[last as usize] = Some((field, name, u64::MAX >> (64 - 8 * len)));
    }
}

fn field(name: &[u8]) -> Option<Field> {
    match name {
        b"index" => Some(Field::Index),
        b"time" => Some(Field::Time),
        b"type" => Some(Field::Type),
        b"process" => Some(Field::Process),
        b"f" => Some(Field::F),
        b"value" => Some(Field::Value),
        _ => None,
    }
}

/// Up to eight bytes as they lie in memory.
const fn word(bytes: &[u8]) -> u64 {
    let mut w = 0;
    let mut i = 0;
    while i < bytes.len() {
        w |= (bytes[i] as u64) << (8 * i);
        i += 1;
    }
    w
}

#[inline]
fn load(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// What comes behind this text, if it is here.
#[inline(always)]
fn behind<'a, const N: usize>(bytes: &'a [u8], text: &[u8; N]) -> Option<&'a [u8]> {
    let (here, rest) = bytes.split_first_chunk()?;
    (here == text).then_some(rest)
}

/// One of the six keys with a space after it; goes behind both.
#[inline]
fn quick_field(cursor: &mut Cursor<'_>) -> Option<Field> {
    const FIELDS: [Field; 6] = [Field::Index, Field::Process, Field::Type, Field::F, Field::Value, Field::Time];
    let w = load(cursor.bytes, cursor.pos + 1)?;
    let is_here = |&field: &Field| {
        let (name, len) = Field::NAMES[field as usize];
        w & (u64::MAX >> (64 - 8 * len)) == name
    };
    let field = FIELDS.into_iter().find(is_here)?;
    cursor.pos += 1 + Field::NAMES[field as usize].1 as usize;
    Some(field)
}

/// An integer of one to seven digits, without a sign, that a space or a closing bracket follows; goes behind that byte
/// and returns it too.
#[inline]
fn short_int(cursor: &mut Cursor<'_>) -> Option<(i64, u8)> {
    let w = load(cursor.bytes, cursor.pos)?;
    let (len, n) = digits(w);
    if len == 0 || len == 8 {
        return None;
    }
    let after = (w >> (8 * len)) as u8;
    if after != b' ' && !matches!(after, b']' | b')') {
        return None;
    }
    cursor.pos += len + 1;
    Some((n as i64, after))
}

/// An integer of one to fifteen digits, without a sign, that something follows; goes behind it.
#[inline(always)]
fn usual_int(rest: &mut &[u8]) -> Option<i64> {
    let (len, n) = digits(u64::from_le_bytes(*rest.first_chunk()?));
    *rest = &rest[len..];
    if len < 8 {
        return (len > 0).then_some(n as i64);
    }
    let (more, low) = digits(u64::from_le_bytes(*rest.first_chunk()?));
    *rest = &rest[more..];
    (more < 8).then_some((n * POWERS[more] + low) as i64)
}

/// The top bit of every byte that is zero, and perhaps of some above the first such byte.
#[inline]
fn zeros(w: u64) -> u64 {
    w.wrapping_sub(0x0101_0101_0101_0101) & !w & 0x8080_8080_8080_8080
}

/// An integer of 64 bits, without a plus sign, that something follows.
#[inline(always)]
fn quick_int(cursor: &mut Cursor<'_>) -> Option<i64> {
    let negative = cursor.peek()? == b'-';
    let start = cursor.pos + usize::from(negative);
    let (mut len, mut n) = digits(load(cursor.bytes, start)?);
    if len == 8 {
        let (more, low) = digits(load(cursor.bytes, start + 8)?);
        n = n * POWERS[more] + low;
        len += more;
    }
    if len == 16 {
        let (more, low) = digits(load(cursor.bytes, start + 16)?);
        // Nineteen digits fit an unsigned word of 64 bits.
        n = n * POWERS.get(more).filter(|_| more <= 3)? + low;
        len += more;
    }
    let end = start + len;
    if len == 0 || !is_end(*cursor.bytes.get(end)?) {
        return None;
    }
    let n = i64::try_from(n).ok()?;
    cursor.pos = end;
    Some(if negative { -n } else { n })
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Eight times the digit 0.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// How many of the first of eight bytes are digits, and the number they write: the digits are moved to the end, zeros
/// before them, and then paired, the pairs paired, and the fours paired, by multiplication.
#[inline]
fn digits(w: u64) -> (usize, u64) {
    match count_digits(w) {
        0 => (0, 0),
        len => (len, number(w, len)),
    }
}

/// How many of the first of eight bytes are digits.
#[inline]
fn count_digits(w: u64) -> usize {
    let t = w ^ ZEROS;
    let others = (t.wrapping_add(0x7676_7676_7676_7676) | t) & 0x8080_8080_8080_8080;
    (others.trailing_zeros() / 8) as usize
}

/// The number that the first so many of eight bytes write, if that is one to eight digits.
#[inline]
fn number(w: u64, len: usize) -> u64 {
    let t = (w ^ ZEROS).wrapping_shl(64 - 8 * len as u32);
    let pairs = t.wrapping_mul(10).wrapping_add(t >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff
}

/// What kind of key begins with this byte: all keys of one kind are ordered alike.
fn key_kind(first: u8) -> u8 {
    if first == b'-' || first.is_ascii_digit() { b'0' } else { first }
}

/// A scalar that is written as it would be printed: where, and the number if it is one. UTF-8 is not checked.
fn plain_scalar(cursor: &mut Cursor<'_>) -> Option<(Range<usize>, i64)> {
    let start = cursor.pos;
    let int = match cursor.peek()? {
        b':' => {
            cursor.token().ok()?;
            0
        }
        b'"' => {
            let (raw, escapes) = cursor.string().ok()?;
            if escapes || has_controls(raw) {
                return None;
            }
            0
        }
        b'n' | b't' | b'f' if matches!(cursor.token().ok()?, b"nil" | b"true" | b"false") => 0,
        b'-' | b'0'..=b'9' => {
            let int = quick_int(cursor)?;
            let digits = &cursor.bytes[start + usize::from(cursor.bytes[start] == b'-')..cursor.pos];
            if digits[0] == b'0' && cursor.pos - start > 1 {
                return None;
            }
            int
        }
        _ => return None,
    };
    Some((start..cursor.pos, int))
}

fn has_controls(text: &[u8]) -> bool {
    text.iter().any(|&b| b < 0x20 || b == 0x7f)
}

#[inline]
fn quick_nil(cursor: &mut Cursor<'_>) -> Option<()> {
    match cursor.bytes.get(cursor.pos..cursor.pos + 4)? {
        [b'n', b'i', b'l', b] if is_end(*b) => {
            cursor.pos += 3;
            Some(())
        }
        _ => None,
    }
}

#[inline]
fn kind(cursor: &mut Cursor<'_>, open: usize) -> Scan<EventType> {
    if let Some(w) = load(cursor.bytes, cursor.pos)
        && let Some((found, len)) = usual_kind(w)
        && is_end((w >> (8 * len)) as u8)
    {
        cursor.pos += len;
        return Ok(found);
    }
    any_kind(cursor, open)
}

/// The type of an event that these eight bytes begin with, whatever follows it, and how long it is.
#[inline]
fn usual_kind(w: u64) -> Option<(EventType, usize)> {
    if w & 0x00ff_ffff_ffff_ffff == word(b":invoke") {
        Some((EventType::Invoke, 7))
    } else if w & 0xff_ffff == word(b":ok") {
        Some((EventType::Ok, 3))
    } else if w & 0xff_ffff_ffff == word(b":fail") {
        Some((EventType::Fail, 5))
    } else if w & 0xff_ffff_ffff == word(b":info") {
        Some((EventType::Info, 5))
    } else {
        None
    }
}

#[cold]
fn any_kind(cursor: &mut Cursor<'_>, open: usize) -> Scan<EventType> {
    let at = cursor.pos;
    let value = cursor.value(1, open, "map")?;
    match value.as_name().and_then(|name| EventType::from_name(name.as_bytes())) {
        Some(kind) => Ok(kind),
        None => Fault::bad_hint(
            at,
            format!("{} is no :type of an event", shorten(&value.to_edn())),
            "it is one of :invoke, :ok, :fail and :info",
        ),
    }
}

/// A time or an index.
#[inline]
fn integer(cursor: &mut Cursor<'_>, open: usize, name: &str) -> Scan<i64> {
    match quick_int(cursor) {
        Some(n) => Ok(n),
        None => any_integer(cursor, open, name),
    }
}

#[cold]
fn any_integer(cursor: &mut Cursor<'_>, open: usize, name: &str) -> Scan<i64> {
    let at = cursor.pos;
    let value = cursor.value(1, open, "map")?;
    match value {
        Value::Nil => return Ok(NONE),
        Value::Int(n) if n != NONE => return Ok(n),
        Value::Float(x) if name == ":time" && x.abs() < i64::MAX as f64 => return Ok(x.round() as i64),
        _ => {}
    }
    let shown = value.to_edn();
    Fault::bad_hint(at, format!("{} is no {name}", shorten(&shown)), "it must be an integer of at most 64 bits")
}

/// Short names seen before, by the bytes they are made of: a direct-mapped cache before the pool.
#[derive(Debug)]
struct Memo {
    slots: [(u64, TextId); MEMO_SLOTS],
    /// The last two names of micro-operations, with their colons and the space behind them: bytes, which of eight, and how many.
    recent: [(u64, u64, usize, TextId); 2],
}

const MEMO_SLOTS: usize = 64;

impl Default for Memo {
    fn default() -> Self {
        // No name is so long that this word stands for it.
        Memo { slots: [(u64::MAX, 0); MEMO_SLOTS], recent: [(u64::MAX, 0, 0, 0); 2] }
    }
}

impl Memo {
    /// The bytes of a name of up to seven, and their number.
    #[inline]
    fn key(name: &[u8]) -> Option<u64> {
        if name.len() > 7 {
            return None;
        }
        let bytes = name.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
        Some(bytes | (name.len() as u64) << 56)
    }

    #[inline]
    fn slot(key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<TextId> {
        self.find_key(Self::key(name)?)
    }

    #[inline]
    fn find_key(&self, key: u64) -> Option<TextId> {
        let (known, id) = self.slots[Self::slot(key)];
        (known == key).then_some(id)
    }

    /// The name that these eight bytes begin with and that a space or comma follows, and how long it is.
    #[inline(always)]
    fn find_word(&self, w: u64) -> Option<(TextId, usize)> {
        let ends = zeros(w ^ 0x2020_2020_2020_2020) | zeros(w ^ 0x2c2c_2c2c_2c2c_2c2c);
        let len = ends.trailing_zeros() / 8;
        if len > 7 {
            return None;
        }
        let name = w & ((1 << (8 * len)) - 1) | u64::from(len) << 56;
        Some((self.find_key(name)?, len as usize))
    }

    /// The one of the last two names that these eight bytes begin with, and how long it is with the space behind it.
    #[inline(always)]
    fn recent(&self, w: u64) -> Option<(TextId, usize)> {
        let [first, second] = &self.recent;
        // Without a branch, for nobody foresees which of the two it is.
        let &(name, mask, len, id) = select_unpredictable(w & first.1 == first.0, first, second);
        (w & mask == name).then_some((id, len.min(8)))
    }

    /// Here is a name with its colon and what follows it.
    fn use_again(&mut self, name: &[u8], id: TextId) {
        if name.len() <= 8 && name.ends_with(b" ") {
            self.recent = [(word(name), u64::MAX >> (64 - 8 * name.len()), name.len(), id), self.recent[0]];
        }
    }

    fn keep(&mut self, name: &[u8], id: TextId) {
        if let Some(key) = Self::key(name) {
            self.slots[Self::slot(key)] = (key, id);
        }
    }
}

/// The last lists of keys, as they are written and as numbers: in a history of appends a list mostly begins with the one that was
/// read of the same key before.
#[derive(Debug, Default)]
struct Lists(Vec<List>);

/// What is the same text is the same numbers, whatever it was read from.
#[derive(Clone, Debug, Default)]
struct List {
    key: i64,
    text: Vec<u8>,
    ints: Vec<i64>,
}

impl Lists {
    const SLOTS: usize = 1 << 10;

    /// The last list of a key, or one that is empty.
    #[inline]
    fn of(&mut self, key: i64) -> &mut List {
        if self.0.is_empty() {
            self.0.resize(Self::SLOTS, List::default());
        }
        let slot = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Self::SLOTS.ilog2());
        let list = &mut self.0[slot as usize];
        if list.key != key {
            list.key = key;
            list.text.clear();
            list.ints.clear();
        }
        list
    }
}

impl List {
    /// No more of a list than this is kept, in bytes of its text.
    const MOST: usize = 1 << 14;

    /// Does this text begin with the list, and go on with a space or the end? Then its numbers are added to `ints`, and how
    /// long its text is is the answer; else nothing.
    #[inline]
    fn begins(&self, text: &[u8], ints: &mut Vec<i64>) -> usize {
        let len = self.text.len();
        let goes_on = matches!(text.get(len), Some(b' ' | b']'));
        if len == 0 || !goes_on || text[..len] != self.text {
            return 0;
        }
        ints.extend_from_slice(&self.ints);
        len
    }

    /// Remembers a list, of which so many bytes of text are remembered already, if all of it is `plain`.
    #[inline]
    fn keep(&mut self, known: usize, text: &[u8], ints: &[i64], plain: bool) {
        if known == 0 {
            self.text.clear();
            self.ints.clear();
        }
        // What ends in white space would end elsewhere the next time.
        if plain && text.len() <= Self::MOST && text.last().is_some_and(u8::is_ascii_digit) {
            self.text.extend_from_slice(&text[known..]);
            self.ints.extend_from_slice(&ints[self.ints.len()..]);
        }
    }
}
