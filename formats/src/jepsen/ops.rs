//! How do Fressian operations become event columns without a tree of values between?
//!
//! Operations name their type, their function and the first element of a micro-operation through the priority cache,
//! and the rest is mostly small integers. So each field is looked at where it lies: integers, `nil`, vectors and sets of
//! integers, micro-operations, map entries, keywords and strings go straight into the batch. Whatever else stands there
//! is read as a [`Value`] and shredded; so are vectors that turn out not to be that simple, from their beginning, which
//! is sound because the fast way stops before anything that changes a cache. Both ways give the same cells.

use super::fressian::{Decoder, Kind, Role, clip};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, Event, EventBatch, EventType, Mop, MopNames, Process, Span, TextId, field_name};
use crate::value::{Value, write_str};

/// Events handed over at a time.
const BATCH_EVENTS: usize = 2048;
/// A batch is handed over early when its texts or its arenas grow beyond this.
const BATCH_TEXT: usize = 32 << 20;
const BATCH_CELLS: usize = 8 << 20;
/// What one event may take to read: its texts and cells must stay far below 4 GiB.
const MAX_EVENT: u64 = 256 << 20;

/// Where events go.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(&mut EventBatch) -> Result<()>;

/// Gathers events and hands them over.
pub(crate) struct Emitter<'s> {
    batch: EventBatch,
    sink: Sink<'s>,
    /// Events so far.
    pub(crate) events: u64,
    /// Text ids are good for one generation: the sink may do with the batch's texts what it likes.
    generation: u32,
    /// How much effort of the decoder the current operation may end at.
    limit: u64,
    tuples: bool,
    scratch: String,
    map: MapText,
}

/// An event of which not all fields were read yet.
struct Draft {
    index: Option<i64>,
    time: Option<i64>,
    kind: Option<EventType>,
    process: Process,
    f: Option<TextId>,
    value: Cell,
    tuple: bool,
    first_extra: usize,
}

/// A field of an operation.
#[derive(Clone, Copy)]
enum Field {
    Known(Role),
    Extra(TextId),
}

impl<'s> Emitter<'s> {
    pub(crate) fn new(sink: Sink<'s>) -> Self {
        Emitter {
            batch: EventBatch::default(),
            sink,
            events: 0,
            generation: 1,
            limit: 0,
            tuples: false,
            scratch: String::new(),
            map: MapText::default(),
        }
    }

    /// Hands over what is left; gives the number of events.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.events)
    }

    fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch.tuples_marked = self.tuples;
        (self.sink)(&mut self.batch)?;
        self.batch.clear_events();
        if self.batch.texts.text_bytes() > BATCH_TEXT {
            self.batch.texts.clear();
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        Ok(())
    }

    /// All operations until the data end.
    pub(crate) fn stream(&mut self, dec: &mut Decoder<'_>) -> Result<()> {
        while !dec.at_end()? {
            self.event(dec)?;
        }
        Ok(())
    }

    /// The operations of the vector that stands next.
    pub(crate) fn list(&mut self, dec: &mut Decoder<'_>) -> Result<()> {
        dec.peek()?;
        let start = dec.position();
        self.limit = dec.effort() + MAX_EVENT;
        if let Some(mut extent) = dec.try_any_list()? {
            while dec.more(&mut extent)? {
                self.event(dec)?;
            }
            return Ok(());
        }
        match self.read(dec)? {
            Value::Nil => Ok(()),
            Value::Vector(ops) => ops.iter().try_for_each(|op| self.value(op)),
            other => Err(dec.wrong(start, format!("a history is wanted, and this is {}", clip(&other)))),
        }
    }

    /// The operation that stands next.
    fn event(&mut self, dec: &mut Decoder<'_>) -> Result<()> {
        let start = dec.position();
        self.limit = dec.effort() + MAX_EVENT;
        match dec.peek()? {
            0xA0..=0xAF | 0xEF | 0xF0 => {
                let header = dec.open_struct()?;
                if header.kind == Kind::Op {
                    self.op(dec)?;
                } else {
                    let value = dec.finish_struct(header, start)?;
                    self.value(&value)?;
                }
            }
            0xC0 => {
                dec.skip(1);
                match dec.try_list()? {
                    Some(n) => self.plain_map(dec, n)?,
                    None => {
                        dec.rewind(start);
                        let value = self.read(dec)?;
                        self.value(&value)?;
                    }
                }
            }
            _ => {
                let value = self.read(dec)?;
                self.value(&value)?;
            }
        }
        self.affordable(dec)
    }

    /// Reads an object that belongs to the current operation.
    fn read(&self, dec: &mut Decoder<'_>) -> Result<Value> {
        let value = dec.read()?;
        self.affordable(dec)?;
        Ok(value)
    }

    fn affordable(&self, dec: &Decoder<'_>) -> Result<()> {
        if dec.effort() <= self.limit { Ok(()) } else { Err(self.wrong(format!("it takes over {MAX_EVENT} bytes"))) }
    }

    /// An `Op`, whose head was read.
    fn op(&mut self, dec: &mut Decoder<'_>) -> Result<()> {
        let mut draft = self.draft();
        for role in [Role::Index, Role::Time, Role::Type, Role::Process, Role::F, Role::Value] {
            self.field(dec, &mut draft, Field::Known(role))?;
        }
        // −1 is how an `Op` says that it has none.
        draft.index = draft.index.filter(|&n| n != -1);
        draft.time = draft.time.filter(|&n| n != -1);
        self.extension(dec, &mut draft)?;
        self.push(draft)
    }

    fn extension(&mut self, dec: &mut Decoder<'_>, draft: &mut Draft) -> Result<()> {
        let start = dec.position();
        if dec.peek()? == 0xC0 {
            dec.skip(1);
            if let Some(n) = dec.try_list()? {
                return self.entries(dec, draft, n);
            }
            dec.rewind(start);
        }
        match self.read(dec)? {
            Value::Nil => Ok(()),
            Value::Map(entries) => self.value_entries(&entries, draft),
            _ => Err(dec.wrong(start, "the further fields of an operation are not a map")),
        }
    }

    /// A map whose head was read, of `n` keys and values.
    fn plain_map(&mut self, dec: &mut Decoder<'_>, n: usize) -> Result<()> {
        let mut draft = self.draft();
        self.entries(dec, &mut draft, n)?;
        self.push(draft)
    }

    fn entries(&mut self, dec: &mut Decoder<'_>, draft: &mut Draft, n: usize) -> Result<()> {
        if !n.is_multiple_of(2) {
            return Err(dec.wrong(dec.position(), "a map has a key without a value"));
        }
        for _ in 0..n / 2 {
            let field = self.key(dec)?;
            self.field(dec, draft, field)?;
        }
        Ok(())
    }

    fn key(&mut self, dec: &mut Decoder<'_>) -> Result<Field> {
        if let Some((slot, length)) = dec.short_keyword() {
            let field = match slot.role() {
                Role::Other => slot.name_id(self.generation, &mut self.batch.texts).map(Field::Extra),
                role => Some(Field::Known(role)),
            };
            if let Some(field) = field {
                dec.skip(length);
                return Ok(field);
            }
        }
        let key = self.read(dec)?;
        Ok(self.value_key(&key))
    }

    fn value_key(&mut self, key: &Value) -> Field {
        match key {
            Value::Keyword(name) if Role::of(name) != Role::Other => Field::Known(Role::of(name)),
            other => Field::Extra(self.batch.name(&field_name(other))),
        }
    }

    fn field(&mut self, dec: &mut Decoder<'_>, draft: &mut Draft, field: Field) -> Result<()> {
        match field {
            Field::Known(Role::Index) => draft.index = self.integer(dec, "index")?,
            Field::Known(Role::Time) => draft.time = self.integer(dec, "time")?,
            Field::Known(Role::Type) => draft.kind = Some(self.event_type(dec)?),
            Field::Known(Role::Process) => draft.process = self.process(dec)?,
            Field::Known(Role::F) => draft.f = self.function(dec)?,
            Field::Known(Role::Value | Role::Other) => {
                let start = dec.position();
                draft.value = self.cell(dec)?;
                draft.tuple = dec.tuple_since(start);
            }
            Field::Extra(name) => {
                let value = self.cell(dec)?;
                self.batch.extra(name, value);
            }
        }
        Ok(())
    }

    fn integer(&mut self, dec: &mut Decoder<'_>, name: &str) -> Result<Option<i64>> {
        if let Some(n) = dec.try_int()? {
            return Ok(Some(n));
        }
        let value = self.read(dec)?;
        self.integer_of(&value, name)
    }

    fn integer_of(&self, value: &Value, name: &str) -> Result<Option<i64>> {
        match value {
            Value::Nil => Ok(None),
            Value::Int(n) => Ok(Some(*n)),
            other => Err(self.wrong(format!("its :{name} is {}, not an integer", clip(other)))),
        }
    }

    fn event_type(&mut self, dec: &mut Decoder<'_>) -> Result<EventType> {
        if let Some((slot, length)) = dec.short_keyword()
            && let Some(kind) = EventType::from_name(slot.name().as_bytes())
        {
            dec.skip(length);
            return Ok(kind);
        }
        let value = self.read(dec)?;
        self.event_type_of(&value)
    }

    fn event_type_of(&self, value: &Value) -> Result<EventType> {
        let name = if let Value::Keyword(name) = value { EventType::from_name(name.as_bytes()) } else { None };
        name.ok_or_else(|| self.wrong(format!("its :type is {}, not :invoke, :ok, :fail or :info", clip(value))))
    }

    fn process(&mut self, dec: &mut Decoder<'_>) -> Result<Process> {
        if let Some(n) = dec.try_int()? {
            return Ok(Process::Client(n));
        }
        if let Some(name) = self.short_name(dec) {
            return Ok(Process::Actor(name));
        }
        let value = self.read(dec)?;
        Ok(self.process_of(&value))
    }

    fn process_of(&mut self, value: &Value) -> Process {
        match value {
            Value::Int(n) => Process::Client(*n),
            other => self.name_of(other).map_or(Process::Unknown, Process::Actor),
        }
    }

    fn function(&mut self, dec: &mut Decoder<'_>) -> Result<Option<TextId>> {
        if let Some(name) = self.short_name(dec) {
            return Ok(Some(name));
        }
        let value = self.read(dec)?;
        Ok(self.name_of(&value))
    }

    /// The name of a keyword that stands next and is written shortly.
    fn short_name(&mut self, dec: &mut Decoder<'_>) -> Option<TextId> {
        let (slot, length) = dec.short_keyword()?;
        let id = slot.name_id(self.generation, &mut self.batch.texts)?;
        dec.skip(length);
        Some(id)
    }

    fn name_of(&mut self, value: &Value) -> Option<TextId> {
        match (value, value.as_name()) {
            (Value::Nil, _) => None,
            (_, Some(name)) => Some(self.batch.name(name)),
            _ => Some(self.batch.name(&value.to_edn())),
        }
    }

    // --- Values

    fn cell(&mut self, dec: &mut Decoder<'_>) -> Result<Cell> {
        if let Some(n) = dec.try_int()? {
            return Ok(Cell::Int(n));
        }
        let fast = match dec.peek()? {
            0xF7 => {
                dec.skip(1);
                Some(Cell::Nil)
            }
            0xE4..=0xEC => self.vector(dec)?,
            0xA0..=0xAF => self.cached_struct(dec)?,
            0xC0 => self.map(dec)?,
            0xCA | 0xCC | 0x80..=0x9F => self.keyword(dec)?,
            0xDA..=0xE1 | 0xE3 => self.string(dec)?,
            _ => None,
        };
        if let Some(cell) = fast {
            return Ok(cell);
        }
        let value = self.read(dec)?;
        Ok(self.batch.value(&value, MopNames::Keywords))
    }

    /// A vector of integers or of simple micro-operations.
    fn vector(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        let start = dec.position();
        let Some(n) = dec.try_list()? else { return Ok(None) };
        let (ints, mops) = (self.batch.ints.len(), self.batch.mops.len());
        let cell = match self.integers(dec, n)? {
            Some(span) => Some(Cell::List(span)),
            None if self.batch.ints.len() == ints => self.transaction(dec, n)?.map(Cell::Txn),
            None => None,
        };
        if cell.is_none() {
            self.batch.ints.truncate(ints);
            self.batch.mops.truncate(mops);
            dec.rewind(start);
        }
        Ok(cell)
    }

    /// `n` integers; stops at anything else.
    fn integers(&mut self, dec: &mut Decoder<'_>, n: usize) -> Result<Option<Span>> {
        let start = self.batch.ints.len();
        let all = dec.ints(n, &mut self.batch.ints)? == n;
        Ok(if all { span(start, n) } else { None })
    }

    /// A list of nothing but integers.
    fn integer_list(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Span>> {
        match dec.try_list()? {
            Some(n) => self.integers(dec, n),
            None => Ok(None),
        }
    }

    fn transaction(&mut self, dec: &mut Decoder<'_>, n: usize) -> Result<Option<Span>> {
        let start = self.batch.mops.len();
        for _ in 0..n {
            match self.micro_operation(dec)? {
                Some(mop) => self.batch.mops.push(mop),
                None => return Ok(None),
            }
        }
        Ok(span(start, n))
    }

    fn micro_operation(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Mop>> {
        if dec.try_list()? != Some(3) {
            return Ok(None);
        }
        let Some(f) = self.short_name(dec) else { return Ok(None) };
        let key = match dec.try_int()? {
            Some(n) => Cell::Int(n),
            None => match self.short_text(dec)? {
                Some(text) => text,
                None => return Ok(None),
            },
        };
        Ok(self.simple(dec)?.map(|value| Mop { f, key, value }))
    }

    /// `nil`, an integer, a list of integers, a keyword or a string.
    fn simple(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        if let Some(n) = dec.try_int()? {
            return Ok(Some(Cell::Int(n)));
        }
        match self.short_text(dec)? {
            Some(cell) => Ok(Some(cell)),
            None => Ok(self.integer_list(dec)?.map(Cell::List)),
        }
    }

    /// `nil`, a keyword or a string.
    fn short_text(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        match dec.peek_raw() {
            Some(0xF7) => {
                dec.skip(1);
                Ok(Some(Cell::Nil))
            }
            Some(0xCA | 0xCC | 0x80..=0x9F) => self.keyword(dec),
            Some(0xDA..=0xE1 | 0xE3) => self.string(dec),
            _ => Ok(None),
        }
    }

    /// Sets of integers and map entries.
    fn cached_struct(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        let start = dec.position();
        let (ints, cells) = (self.batch.ints.len(), self.batch.cells.len());
        let cell = match dec.peek_cached_struct() {
            Some((Kind::Set, 1)) => {
                dec.skip(1);
                self.integer_set(dec)?
            }
            Some((Kind::MapEntry, _)) => {
                dec.skip(1);
                self.map_entry(dec, start)?
            }
            _ => None,
        };
        if cell.is_none() {
            self.batch.ints.truncate(ints);
            self.batch.cells.truncate(cells);
            dec.rewind(start);
        }
        Ok(cell)
    }

    fn integer_set(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        let start = self.batch.ints.len();
        if dec.peek_raw() == Some(0xF7) {
            dec.skip(1);
        } else if self.integer_list(dec)?.is_none() {
            return Ok(None);
        }
        let mut elements = self.batch.ints.split_off(start);
        elements.sort_unstable();
        elements.dedup();
        self.batch.ints.append(&mut elements);
        Ok(span(start, self.batch.ints.len() - start).map(Cell::Set))
    }

    /// `[k v]` with an integer key and a simple value.
    fn map_entry(&mut self, dec: &mut Decoder<'_>, start: usize) -> Result<Option<Cell>> {
        let Some(key) = dec.try_int()? else { return Ok(None) };
        let cell = match self.simple(dec)? {
            None => return Ok(None),
            Some(Cell::Int(value)) => {
                let at = self.batch.ints.len();
                self.batch.ints.extend([key, value]);
                span(at, 2).map(Cell::List)
            }
            Some(value) => {
                let at = self.batch.cells.len();
                self.batch.cells.extend([Cell::Int(key), value]);
                span(at, 2).map(Cell::Seq)
            }
        };
        dec.mark_tuple(start);
        Ok(cell)
    }

    /// A map of simple keys and values, as text: what each node answered.
    fn map(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        let start = dec.position();
        dec.skip(1);
        let mut map = std::mem::take(&mut self.map);
        map.clear();
        let whole = match dec.try_list()? {
            Some(n) if n.is_multiple_of(2) => self.entries_of_map(dec, n / 2, &mut map)?,
            _ => false,
        };
        let text = if whole { map.text() } else { None };
        let cell = text.and_then(|text| self.batch.texts.try_intern(text)).map(Cell::Text);
        self.map = map;
        match cell {
            Some(_) => self.affordable(dec)?,
            None => dec.rewind(start),
        }
        Ok(cell)
    }

    /// Are the next `n` entries simple? Then they are added to the map.
    fn entries_of_map(&mut self, dec: &mut Decoder<'_>, n: usize, map: &mut MapText) -> Result<bool> {
        for _ in 0..n {
            let Some(key) = short_scalar(dec)? else { return Ok(false) };
            let ints = self.batch.ints.len();
            match dec.peek_raw() {
                Some(0xF7) => {
                    dec.skip(1);
                    map.name("nil");
                }
                Some(0xE4..=0xEC) => {
                    let list = self.integer_list(dec)?;
                    list.iter().for_each(|list| map.list(&self.batch.ints[list.range()]));
                    self.batch.ints.truncate(ints);
                    if list.is_none() {
                        return Ok(false);
                    }
                }
                _ => match short_scalar(dec)? {
                    Some(Value::Int(n)) => map.int(n),
                    Some(value) => map.name(&value.to_edn()),
                    None => return Ok(false),
                },
            }
            map.end_entry(key);
        }
        Ok(true)
    }

    /// A keyword without namespace whose name is cached, or a cached keyword, as text.
    fn keyword(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        let Some((slot, length)) = dec.short_keyword() else { return Ok(None) };
        self.scratch.clear();
        self.scratch.push(':');
        self.scratch.push_str(slot.name());
        dec.skip(length);
        Ok(self.batch.texts.try_intern(&self.scratch).map(Cell::Text))
    }

    /// A string of plain Unicode, as text.
    fn string(&mut self, dec: &mut Decoder<'_>) -> Result<Option<Cell>> {
        let start = dec.position();
        let text = dec.try_whole_string()?.and_then(|bytes| simdutf8::basic::from_utf8(bytes).ok());
        let Some(text) = text else {
            dec.rewind(start);
            return Ok(None);
        };
        self.affordable(dec)?;
        self.scratch.clear();
        write_str(&mut self.scratch, text);
        Ok(self.batch.texts.try_intern(&self.scratch).map(Cell::Text))
    }

    // --- Events from values

    /// An operation that was read as a value: a map, or a record of one.
    pub(crate) fn value(&mut self, value: &Value) -> Result<()> {
        let entries = match value {
            Value::Map(entries) => entries,
            Value::Tagged(_, inner) if matches!(**inner, Value::Map(_)) => return self.value(inner),
            other => return Err(self.wrong(format!("it is {}, not a map", clip(other)))),
        };
        let mut draft = self.draft();
        self.value_entries(entries, &mut draft)?;
        self.push(draft)
    }

    fn value_entries(&mut self, entries: &[(Value, Value)], draft: &mut Draft) -> Result<()> {
        for (key, value) in entries {
            match self.value_key(key) {
                Field::Known(Role::Index) => draft.index = self.integer_of(value, "index")?,
                Field::Known(Role::Time) => draft.time = self.integer_of(value, "time")?,
                Field::Known(Role::Type) => draft.kind = Some(self.event_type_of(value)?),
                Field::Known(Role::Process) => draft.process = self.process_of(value),
                Field::Known(Role::F) => draft.f = self.name_of(value),
                Field::Known(Role::Value | Role::Other) => {
                    (draft.value, draft.tuple) = (self.batch.value(value, MopNames::Keywords), false);
                }
                Field::Extra(name) => {
                    let cell = self.batch.value(value, MopNames::Keywords);
                    self.batch.extra(name, cell);
                }
            }
        }
        Ok(())
    }

    fn draft(&self) -> Draft {
        Draft {
            index: None,
            time: None,
            kind: None,
            process: Process::Unknown,
            f: None,
            value: Cell::Nil,
            tuple: false,
            first_extra: self.batch.extras.len(),
        }
    }

    fn push(&mut self, draft: Draft) -> Result<()> {
        let Some(kind) = draft.kind else { return Err(self.wrong("it has no :type")) };
        self.order_extras(draft.first_extra);
        self.tuples |= draft.tuple && matches!(draft.process, Process::Client(_));
        self.events += 1;
        self.batch.push(Event {
            place: self.events,
            index: draft.index,
            time: draft.time,
            kind,
            process: draft.process,
            f: draft.f,
            value: draft.value,
        });
        let cells = self.batch.ints.len() + self.batch.cells.len() + self.batch.mops.len();
        if self.batch.len() >= BATCH_EVENTS || self.batch.texts.text_bytes() > BATCH_TEXT || cells > BATCH_CELLS {
            self.flush()?;
        }
        Ok(())
    }

    /// Puts the further fields of an event in the order of their names; of two with one name the later stays.
    fn order_extras(&mut self, first: usize) {
        let EventBatch { extras, texts, .. } = &mut self.batch;
        if extras.len() - first < 2 {
            return;
        }
        extras[first..].sort_by(|a, b| texts.get(a.name).cmp(texts.get(b.name)));
        let mut kept = first;
        for i in first..extras.len() {
            if kept > first && extras[kept - 1].name == extras[i].name {
                kept -= 1;
            }
            extras[kept] = extras[i];
            kept += 1;
        }
        extras.truncate(kept);
    }

    fn wrong(&self, what: impl std::fmt::Display) -> ReadError {
        ReadError::new(format!("the operation is unusable: {what}"))
            .at(Place::Row(self.events + 1))
            .hint("an operation is a map with :type, :process, :f and :value")
    }
}

/// An integer, a keyword that is written shortly, or a string of plain Unicode.
fn short_scalar(dec: &mut Decoder<'_>) -> Result<Option<Value>> {
    if let Some(n) = dec.try_int()? {
        return Ok(Some(Value::Int(n)));
    }
    if let Some((slot, length)) = dec.short_keyword() {
        let key = Value::keyword(slot.name());
        dec.skip(length);
        return Ok(Some(key));
    }
    let start = dec.position();
    let key = match dec.peek_raw() {
        Some(0xDA..=0xE1 | 0xE3) => dec.try_whole_string()?.and_then(|bytes| simdutf8::basic::from_utf8(bytes).ok()),
        _ => None,
    };
    if key.is_none() {
        dec.rewind(start);
    }
    Ok(key.map(Value::str))
}

/// The canonical text of a map whose values come as text, so that long lists in them need no tree of values.
#[derive(Default)]
struct MapText {
    /// Keys, and where their values end in `values`, one after the other.
    entries: Vec<(Value, std::ops::Range<usize>)>,
    values: Vec<u8>,
    text: Vec<u8>,
}

impl MapText {
    fn clear(&mut self) {
        self.entries.clear();
        self.values.clear();
    }

    fn name(&mut self, text: &str) {
        self.values.extend_from_slice(text.as_bytes());
    }

    fn int(&mut self, n: i64) {
        push_digits(&mut self.values, n);
    }

    fn list(&mut self, ints: &[i64]) {
        self.values.reserve(ints.len() * 5 + 2);
        self.values.push(b'[');
        for &n in ints {
            push_digits(&mut self.values, n);
            self.values.push(b' ');
        }
        if !ints.is_empty() {
            self.values.pop();
        }
        self.values.push(b']');
    }

    /// What was added since the last entry is the value of this key.
    fn end_entry(&mut self, key: Value) {
        let start = self.entries.last().map_or(0, |(_, value)| value.end);
        self.entries.push((key, start..self.values.len()));
    }

    /// As [`Value::map`] would have it: by key, and of two entries with one key the later stays.
    fn text(&mut self) -> Option<&str> {
        self.entries.sort_by(|a, b| a.0.cmp(&b.0));
        self.text.clear();
        self.text.push(b'{');
        for (i, (key, value)) in self.entries.iter().enumerate() {
            if self.entries.get(i + 1).is_some_and(|(next, _)| next == key) {
                continue;
            }
            if self.text.len() > 1 {
                self.text.extend_from_slice(b", ");
            }
            self.text.extend_from_slice(key.to_edn().as_bytes());
            self.text.push(b' ');
            self.text.extend_from_slice(&self.values[value.clone()]);
        }
        self.text.push(b'}');
        simdutf8::basic::from_utf8(&self.text).ok()
    }
}

/// Appends a decimal integer. Short ones, which most are, without a branch or a call.
fn push_digits(out: &mut Vec<u8>, n: i64) {
    if !(0..10_000).contains(&n) {
        return out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    }
    let n = n as u32;
    let digits = [n / 1000, n / 100 % 10, n / 10 % 10, n % 10].map(|digit| b'0' + digit as u8);
    let length = 1 + usize::from(n >= 10) + usize::from(n >= 100) + usize::from(n >= 1000);
    let start = out.len();
    out.extend_from_slice(&(u32::from_be_bytes(digits) << (8 * (4 - length))).to_be_bytes());
    out.truncate(start + length);
}

fn span(start: usize, len: usize) -> Option<Span> {
    Some(Span { start: u32::try_from(start).ok()?, len: u32::try_from(len).ok()? })
}
