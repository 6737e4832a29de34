//! From events to operations: how a [`History`] is built.
//!
//! Each completion finds the open operation of its process and is written beside it; a chunk of rows is turned into
//! Arrow arrays once no operation in it is open, so that at any time little more than the open chunks lies unpacked.
//! O(1) an event; memory linear in the columns.
//!
//! Two decisions can only be taken at the end, and are prepared on the way. *Keys*: while every client value so far is a
//! pair, pairs are stored split into key and value; the first that is none, or the verdict at the end that these are no
//! keys, puts them together again. *Order*: a source without indices whose times contradict its order is sorted by time
//! in the end.
//!
//! What is malformed is an error that names both operations; with [`BuildOptions::lenient`] it is repaired, and counted
//! by kind in [`Meta::repairs`](crate::history::Meta::repairs).

mod cells;
mod chunk;
mod fields;
mod keys;
mod plain;

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::columns::Scalar;
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventBatch, EventType, MopNames, NONE, Process, Span, TextId};
use crate::faults::finish_faults;
use crate::history::{ASIDE, BARE_NIL, CHUNK_ROWS, Chunk, History, KeyForm, Meta, Order, Shared, Status, is_read};
use crate::text::TextPool;

use chunk::{NO_TXN, OpenChunk, refines};
use keys::{Completion, Keys};

/// What to do about `[k v]` values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lift {
    /// Lift keys where every client operation of a register-like history has a pair whose second part fits.
    #[default]
    Auto,
    /// Lift whatever is a pair.
    Always,
    /// Leave values alone.
    Never,
}

/// How to build.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Keys.
    pub lift: Lift,
    /// Repair what is malformed instead of refusing it.
    pub lenient: bool,
    /// Order events by time even if the source's own order does not contradict it: for sources of one record an
    /// operation.
    pub by_time: bool,
    /// Name of the source's format.
    pub format: String,
    /// Do places count rows or records rather than lines?
    pub rows: bool,
    /// Is the order of events that of real time?
    pub real_time: bool,
}

pub(crate) const NO_TEXT: u32 = u32::MAX;
const NO_CODE: u16 = u16::MAX;
const NO_INDEX: u64 = u64::MAX;

/// Pairs events and gathers columns.
#[derive(Debug)]
pub struct HistoryBuilder {
    options: BuildOptions,
    shared: Shared,
    remaps: VecDeque<Remap>,
    chunks: Vec<Slot>,
    /// A packed chunk, for its memory.
    spare: Option<Box<OpenChunk>>,
    rows: u64,
    events: u64,
    indices: Option<bool>,
    last_index: i64,
    last_time: i64,
    times_fall: bool,
    times_missing: bool,
    /// Place of the first client event without a time.
    timeless: u64,
    clients: Clients,
    /// Numbers of client processes that have names instead.
    named: HashMap<u16, i64, FixedState>,
    actors: HashMap<u16, OpenOp, FixedState>,
    anonymous: HashMap<u16, VecDeque<OpenOp>, FixedState>,
    touching: HashMap<i64, VecDeque<(OpenOp, i64)>, FixedState>,
    keys: Keys,
    repairs: BTreeMap<&'static str, (u64, String)>,
    special: Special,
    /// Is the function of this code a read of a transaction?
    reads: Vec<bool>,
    /// Has any invocation a node of its own? Then completions' nodes are kept beside, too, to tell them apart.
    invoke_nodes: bool,
    /// Takes every event the general way.
    #[cfg(test)]
    never_plain: bool,
}

#[derive(Debug)]
enum Slot {
    Open(Box<OpenChunk>),
    Sealed(Box<Chunk>),
    /// Handed out by [`HistoryBuilder::take_packed`].
    Taken,
}

#[derive(Clone, Copy, Debug)]
struct OpenOp {
    row: u64,
    f: u16,
    place: u64,
    index: i64,
}

#[derive(Clone, Copy, Debug)]
struct ProcessState {
    open: Option<OpenOp>,
    last_time: i64,
    last_place: u64,
    last_index: i64,
}

const IDLE: ProcessState = ProcessState { open: None, last_time: i64::MIN, last_place: 0, last_index: -1 };

/// States of client processes: most processes have small numbers, and are found without hashing.
#[derive(Debug, Default)]
struct Clients {
    small: Vec<ProcessState>,
    others: HashMap<i64, ProcessState, FixedState>,
}

impl Clients {
    const SMALL: usize = 1 << 16;

    #[inline(always)]
    fn of(&mut self, p: i64) -> &mut ProcessState {
        // What is below zero becomes very large.
        match p as usize {
            known if known < self.small.len() => &mut self.small[known],
            _ => self.unknown(p),
        }
    }

    /// The state of a process that is new, or that has a large number.
    #[cold]
    fn unknown(&mut self, p: i64) -> &mut ProcessState {
        match usize::try_from(p) {
            Ok(small) if small < Self::SMALL => {
                if small >= self.small.len() {
                    self.small.resize(small + 1, IDLE);
                }
                &mut self.small[small]
            }
            _ => self.others.entry(p).or_insert(IDLE),
        }
    }
}

/// Names of fields that have columns of their own, in the pool of names.
#[derive(Debug)]
struct Special {
    error: TextId,
    node: TextId,
    key: TextId,
    fault_epoch: TextId,
    kind: TextId,
    value: TextId,
    process_name: TextId,
    bare_nil: TextId,
}

/// From the ids of a batch's pool to those of the history's, filled as ids are met.
#[derive(Debug)]
struct Remap {
    pool: u64,
    functions: Vec<u32>,
    names: Vec<u32>,
    texts: Vec<u32>,
}

impl HistoryBuilder {
    /// An empty history.
    pub fn new(options: BuildOptions) -> Self {
        let mut shared = Shared::default();
        let name = |pool: &mut TextPool, text| pool.try_intern(text).unwrap_or(0);
        let special = Special {
            error: name(&mut shared.names, "error"),
            node: name(&mut shared.names, "node"),
            key: name(&mut shared.names, "key"),
            fault_epoch: name(&mut shared.names, "fault_epoch"),
            kind: name(&mut shared.names, "type"),
            value: name(&mut shared.names, ASIDE),
            process_name: name(&mut shared.names, "process_name"),
            bare_nil: name(&mut shared.texts, BARE_NIL),
        };
        let split = options.lift != Lift::Never;
        HistoryBuilder {
            options,
            shared,
            remaps: VecDeque::new(),
            chunks: Vec::new(),
            spare: None,
            rows: 0,
            events: 0,
            indices: None,
            last_index: -1,
            last_time: i64::MIN,
            times_fall: false,
            times_missing: false,
            timeless: 0,
            clients: Clients::default(),
            named: HashMap::default(),
            actors: HashMap::default(),
            anonymous: HashMap::default(),
            touching: HashMap::default(),
            keys: Keys {
                form: KeyForm::None,
                split,
                marked: false,
                nil_second: false,
                cas_fit: false,
                cas_misfit: false,
                pairs: 0,
                doubt: None,
            },
            repairs: BTreeMap::new(),
            special,
            reads: Vec::new(),
            invoke_nodes: false,
            #[cfg(test)]
            never_plain: false,
        }
    }

    /// Number of operations so far.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// No operation yet?
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a note to the history: something that a reader of the verdict should know of the source.
    pub fn note(&mut self, note: impl Into<String>) {
        self.shared.meta.notes.push(note.into());
    }

    /// Notes that the history is only a part of what was recorded, and why.
    pub fn partial(&mut self, why: impl Into<String>) {
        self.shared.meta.partial = Some(why.into());
    }

    /// Appends events.
    ///
    /// # Errors
    /// When they are malformed.
    pub fn push(&mut self, batch: &EventBatch) -> Result<()> {
        self.keys.marked |= batch.tuples_marked;
        let mut remap = self.take_remap(batch);
        let mut extra = 0;
        let result = (0..batch.len()).try_for_each(|i| {
            let first = extra;
            while batch.extras.get(extra).is_some_and(|e| e.row as usize == i) {
                extra += 1;
            }
            self.event(batch, &mut remap, i, first..extra)
        });
        self.remaps.push_front(remap);
        result
    }

    fn take_remap(&mut self, batch: &EventBatch) -> Remap {
        let pool = batch.texts.identity();
        let at = self.remaps.iter().position(|r| r.pool == pool);
        let mut remap = at.and_then(|at| self.remaps.remove(at)).unwrap_or(Remap {
            pool,
            functions: Vec::new(),
            names: Vec::new(),
            texts: Vec::new(),
        });
        self.remaps.truncate(15);
        for table in [&mut remap.functions, &mut remap.names, &mut remap.texts] {
            table.resize(batch.texts.len(), NO_TEXT);
        }
        remap
    }

    fn event(&mut self, batch: &EventBatch, remap: &mut Remap, i: usize, extras: std::ops::Range<usize>) -> Result<()> {
        let place = batch.place[i];
        let index = match batch.index[i] {
            recorded if recorded > self.last_index && self.indices == Some(true) => {
                self.events += 1;
                self.last_index = recorded;
                recorded
            }
            recorded => self.next_index(recorded, place)?,
        };
        let time = batch.time[i];
        // The record of an operation without an answer may have no time of completion; sorting finds it a place.
        let no_answer = self.options.by_time && batch.kind[i] != EventType::Invoke;
        let is_client = !matches!(batch.process[i], Process::Actor(_));
        if time == NONE && !no_answer && is_client && !self.times_missing {
            self.times_missing = true;
            self.timeless = place;
        }
        self.times_fall |= time != NONE && time < self.last_time;
        self.last_time = if time == NONE { self.last_time } else { time };
        let f = match batch.f[i] {
            None => NO_CODE,
            Some(id) => match remap.functions[id as usize] {
                known if known < u32::from(NO_CODE) => known as u16,
                _ => self.function(remap, &batch.texts, id)?,
            },
        };
        let e = At { batch, i, place, index, time, f };
        if let Process::Client(p) = batch.process[i]
            && let Some(row) = self.plain_event(&e, remap, p)?
        {
            if extras.is_empty() {
                return Ok(());
            }
            return self.fields(&e, remap, row, extras, batch.kind[i] == EventType::Invoke);
        }
        match (batch.process[i], batch.kind[i]) {
            (Process::Client(p), EventType::Invoke) => self.client_invokes(&e, remap, p, extras),
            (Process::Client(p), kind) => self.client_completes(&e, remap, p, kind, extras),
            (Process::Actor(a), kind) => {
                let actor = self.function(remap, &batch.texts, a)?;
                match (self.named_client(actor, kind), kind) {
                    (Some(p), EventType::Invoke) => {
                        self.client_invokes(&e, remap, p, extras)?;
                        self.keep_name(actor)
                    }
                    (Some(p), kind) => self.client_completes(&e, remap, p, kind, extras),
                    (None, kind) => self.actor_event(&e, remap, actor, kind, extras),
                }
            }
            (Process::Unknown, EventType::Invoke) => {
                let open = self.begin(&e, remap, None, NO_CODE, true, extras)?;
                self.anonymous.entry(f).or_default().push_back(open);
                Ok(())
            }
            (Process::Unknown, kind) => match self.anonymous_open(&e, remap)? {
                Some(open) => self.complete(&e, remap, open, kind, extras),
                None => self.orphan(&e, kind, "an operation without a process"),
            },
        }
    }

    /// A process with a name that invokes is a client, if it is not the nemesis: it gets a number, from -1 down.
    fn named_client(&mut self, name: u16, kind: EventType) -> Option<i64> {
        if let Some(&p) = self.named.get(&name) {
            return Some(p);
        }
        if kind == EventType::Info || self.function_is(name, "nemesis") {
            return None;
        }
        let p = -1 - self.named.len() as i64;
        if self.named.is_empty() {
            self.note("processes that are no integers are numbered from -1 down; their names are in process_name");
        }
        self.named.insert(name, p);
        Some(p)
    }

    /// Keeps the name of a numbered process beside the operation that it just invoked.
    fn keep_name(&mut self, name: u16) -> Result<()> {
        let text = crate::Value::str(self.function_name(name)).to_edn();
        let text = intern(&mut self.shared.texts, &text)?;
        let field = self.special.process_name;
        let row = self.rows - 1;
        let (chunk, r) = self.open_row(row)?;
        chunk.invoke_extra.push((r as u32, field, text));
        Ok(())
    }

    /// Which open operation does a completion without a process complete? Of a record, its own. Else the only one of its
    /// function, or the only one of its value; where that does not tell, the first, and the history bears a doubt.
    fn anonymous_open(&mut self, e: &At<'_>, remap: &mut Remap) -> Result<Option<OpenOp>> {
        let Some(open) = self.anonymous.get(&e.f).filter(|open| !open.is_empty()) else { return Ok(None) };
        let mut at = if self.options.by_time { open.len() - 1 } else { 0 };
        if open.len() > 1 && !self.options.by_time {
            let open = open.clone();
            let said = self.cell_text(e, remap, e.value())?;
            let mut fitting = Vec::new();
            for (i, op) in open.iter().enumerate() {
                if self.invoked_with(*op)? == said {
                    fitting.push(i);
                }
            }
            match fitting[..] {
                [only] => at = only,
                _ => {
                    let doubt = "several operations without a process were open, and nothing tells which one completed";
                    self.doubt(doubt, e.place);
                }
            }
        }
        Ok(self.anonymous.get_mut(&e.f).and_then(|open| open.remove(at)))
    }

    /// Notes, once a kind, why nobody can rely on this history's order or keys.
    fn doubt(&mut self, what: &str, place: u64) {
        if !self.shared.meta.doubts.iter().any(|d| d.starts_with(what)) {
            let doubt = format!("{what} (first at {})", self.place(place));
            self.shared.meta.doubts.push(doubt);
        }
    }

    /// The event's index: as recorded, or its position.
    #[cold]
    fn next_index(&mut self, recorded: i64, place: u64) -> Result<i64> {
        let position = self.events as i64;
        self.events += 1;
        let has = recorded != NONE;
        if *self.indices.get_or_insert(has) != has {
            self.malformed(place, "some events have an :index and some have none", |_| {
                "give every event an index, or none".into()
            })?;
        }
        self.last_index = if self.indices == Some(false) {
            position
        } else if !has {
            self.last_index + 1
        } else if recorded > self.last_index {
            recorded
        } else {
            let last = self.last_index;
            let kind = if recorded < 0 { "a negative index" } else { "a duplicate or falling index" };
            self.malformed(place, kind, |_| format!("index {recorded} comes after index {last}"))?;
            last + 1
        };
        Ok(self.last_index)
    }

    fn client_invokes(&mut self, e: &At<'_>, remap: &mut Remap, p: i64, extras: std::ops::Range<usize>) -> Result<()> {
        let Some(open) = self.tick(e, p)? else {
            let open = self.begin(e, remap, Some(p), NO_CODE, true, extras)?;
            self.set_open(p, Some(open));
            return Ok(());
        };
        if e.time != NONE && self.indices == Some(true) {
            // Legal if the open operation completes at this very time: where times are equal, invocations come first.
            let next = self.begin(e, remap, Some(p), NO_CODE, true, extras)?;
            self.touching.entry(p).or_default().push_back((next, e.time));
            return Ok(());
        }
        self.double_invoke(p, open, OpenOp { row: u64::MAX, f: e.f, place: e.place, index: e.index })?;
        self.abandon(open);
        let open = self.begin(e, remap, Some(p), NO_CODE, true, extras)?;
        self.set_open(p, Some(open));
        Ok(())
    }

    fn set_open(&mut self, p: i64, open: Option<OpenOp>) {
        self.clients.of(p).open = open;
    }

    fn double_invoke(&mut self, p: i64, open: OpenOp, next: OpenOp) -> Result<()> {
        self.malformed(next.place, "a process invokes while its operation is open", |this| {
            format!(
                "process {p} invokes {} (index {}) but its {} (index {}, {}) has not completed",
                this.function_name(next.f),
                next.index,
                this.function_name(open.f),
                open.index,
                this.place(open.place),
            )
        })
    }

    /// Operations that their process invoked at the very time at which the one before completed. The completion must fit
    /// the one that it is taken to complete: it must not bear the value that only the later one was invoked with.
    fn next_touching(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        p: i64,
        mut open: OpenOp,
    ) -> Result<(OpenOp, Option<OpenOp>)> {
        loop {
            let Some((next, at)) = self.touching.get_mut(&p).and_then(VecDeque::pop_front) else {
                self.touching.remove(&p);
                return Ok((open, None));
            };
            if at == e.time && self.fits(e, remap, open, next)? {
                return Ok((open, Some(next)));
            }
            self.double_invoke(p, open, next)?;
            self.abandon(open);
            open = next;
        }
    }

    /// The EDN text of the value that an open operation was invoked with.
    fn invoked_with(&mut self, op: OpenOp) -> Result<TextId> {
        let (chunk, r) = self.open_row(op.row)?;
        let (key, cell) = (chunk.key.get(r), chunk.input.get(r));
        let value = self.render(op.row as usize / CHUNK_ROWS, cell)?;
        if key == Scalar::Nil || self.keys.form == KeyForm::Field {
            return Ok(value);
        }
        let mut pair = String::from("[");
        self.shared.write_scalar(key, &mut pair);
        pair.push(' ');
        pair.push_str(self.shared.texts.get(value));
        pair.push(']');
        intern(&mut self.shared.texts, &pair)
    }

    fn fits(&mut self, e: &At<'_>, remap: &mut Remap, open: OpenOp, next: OpenOp) -> Result<bool> {
        let said = self.cell_text(e, remap, e.value())?;
        let (ours, theirs) = (self.invoked_with(open)?, self.invoked_with(next)?);
        Ok((e.f == NO_CODE || e.f == open.f) && (ours == said || theirs != said || ours == self.special.bare_nil))
    }

    fn client_completes(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        p: i64,
        kind: EventType,
        extras: std::ops::Range<usize>,
    ) -> Result<()> {
        let Some(open) = self.tick(e, p)? else {
            return self.orphan(e, kind, &format!("process {p}"));
        };
        let (open, next) = if self.touching.is_empty() { (open, None) } else { self.next_touching(e, remap, p, open)? };
        self.set_open(p, next);
        self.complete(e, remap, open, kind, extras)
    }

    /// Notes that a process did something, and gives its open operation.
    fn tick(&mut self, e: &At<'_>, p: i64) -> Result<Option<OpenOp>> {
        let state = self.clients.of(p);
        let before = *state;
        if e.time != NONE {
            *state = ProcessState { last_time: e.time, last_place: e.place, last_index: e.index, ..before };
            if e.time < before.last_time {
                self.malformed(e.place, "time runs backwards within a process", |this| {
                    format!(
                        "process {p} is at {} ns (index {}) after {} ns (index {}, {})",
                        e.time,
                        e.index,
                        before.last_time,
                        before.last_index,
                        this.place(before.last_place)
                    )
                })?;
            }
        }
        Ok(before.open)
    }

    fn actor_event(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        actor: u16,
        kind: EventType,
        extras: std::ops::Range<usize>,
    ) -> Result<()> {
        let open = self.actors.remove(&actor);
        let closes = kind != EventType::Invoke && open.is_some_and(|o| o.f == e.f);
        if let (true, Some(open)) = (closes, open) {
            return self.complete(e, remap, open, kind, extras);
        }
        if let Some(open) = open {
            self.abandon(open);
        }
        let open = self.begin(e, remap, None, actor, false, extras)?;
        let begun_by_invoke = kind == EventType::Invoke;
        let (chunk, row) = self.open_row(open.row)?;
        chunk.status[row] = if begun_by_invoke { Status::Pending } else { Status::Info } as u8;
        self.actors.insert(actor, open);
        Ok(())
    }

    /// Appends a row for an invocation.
    fn begin(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        process: Option<i64>,
        actor: u16,
        client: bool,
        extras: std::ops::Range<usize>,
    ) -> Result<OpenOp> {
        let (key, value) = if client { self.split(e, remap)? } else { (Scalar::Nil, e.value()) };
        let row = self.rows;
        let at = (row as usize) / CHUNK_ROWS;
        if at == self.chunks.len() {
            self.next_chunk()?;
        }
        let input = self.import_plain(e, remap, at, value)?;
        let chunk = open_chunk(&mut self.chunks, at)?;
        chunk.open += 1;
        chunk.index.push(e.index as u64);
        chunk.complete_index.push(NO_INDEX);
        chunk.process.push(process.unwrap_or(NONE));
        chunk.status.push(Status::Pending as u8);
        chunk.f.push(e.f);
        chunk.invoke_time.push(e.time);
        chunk.complete_time.push(NONE);
        chunk.output.push(Cell::Nil);
        let r = row as usize % CHUNK_ROWS;
        chunk.actor.set(r, actor);
        chunk.key.set(r, key);
        match input {
            Cell::Txn(span) => {
                chunk.txn.set(r, span);
                chunk.input.push(Cell::Nil);
            }
            cell => chunk.input.push(cell),
        }
        self.rows += 1;
        if let Cell::Txn(span) = input
            && !self.is_plain_invocation(at, span)
        {
            let text = self.render(at, input)?;
            let chunk = open_chunk(&mut self.chunks, at)?;
            chunk.input.set(r, Cell::Text(text));
        }
        self.fields(e, remap, row, extras, true)?;
        Ok(OpenOp { row, f: e.f, place: e.place, index: e.index })
    }

    /// Writes a completion beside its invocation.
    fn complete(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        open: OpenOp,
        kind: EventType,
        extras: std::ops::Range<usize>,
    ) -> Result<()> {
        let (at, r) = (open.row as usize / CHUNK_ROWS, open.row as usize % CHUNK_ROWS);
        if e.f != NO_CODE && e.f != open.f {
            self.malformed(e.place, "a completion whose :f differs from its invocation's", |this| {
                format!(
                    "{} (index {}) completes {} (index {}, {})",
                    this.function_name(e.f),
                    e.index,
                    this.function_name(open.f),
                    open.index,
                    this.place(open.place)
                )
            })?;
        }
        let value = self.split_completion(e, remap, open)?;
        let output = match value {
            Completion::Bare => Cell::Text(self.special.bare_nil),
            Completion::Aside(text) => {
                let name = self.special.value;
                open_chunk(&mut self.chunks, at)?.extra.push((r as u32, name, text));
                Cell::Text(self.special.bare_nil)
            }
            Completion::Value(v) => self.import_plain(e, remap, at, v)?,
        };
        let chunk = open_chunk(&mut self.chunks, at)?;
        chunk.open -= 1;
        chunk.complete_index[r] = e.index as u64;
        chunk.complete_time[r] = e.time;
        let begun_by_invoke = chunk.status[r] == Status::Pending as u8;
        chunk.status[r] = status_of(kind) as u8;
        let odd_begin = chunk.actor.get(r) != NO_CODE && begun_by_invoke != (kind != EventType::Info);
        if odd_begin {
            let text = if begun_by_invoke { ":invoke" } else { ":info" };
            let id = intern(&mut self.shared.texts, text)?;
            chunk.invoke_extra.push((r as u32, self.special.kind, id));
        }
        self.store_output(at, r, output)?;
        self.fields(e, remap, open.row, extras, false)
    }

    /// Writes what a completion said beside its invocation.
    fn store_output(&mut self, at: usize, r: usize, output: Cell) -> Result<()> {
        let bare_nil = self.special.bare_nil;
        let chunk = open_chunk(&mut self.chunks, at)?;
        let invoked = chunk.txn.get(r);
        match output {
            Cell::Txn(span) if invoked == NO_TXN => {
                // The invocation was no transaction: what it was is kept beside.
                if chunk.input.is(r, Cell::Nil) {
                    chunk.input.set(r, Cell::Text(bare_nil));
                }
                chunk.txn.set(r, span);
            }
            Cell::Txn(span) => {
                let same = refines(chunk, invoked, span, |f| self.reads[f as usize]);
                if same {
                    chunk.txn.set(r, span);
                } else {
                    let invoked_text =
                        if chunk.input.is(r, Cell::Nil) { Some(self.render(at, Cell::Txn(invoked))?) } else { None };
                    let chunk = open_chunk(&mut self.chunks, at)?;
                    if let Some(text) = invoked_text {
                        chunk.input.set(r, Cell::Text(text));
                    }
                    chunk.txn.set(r, span);
                }
            }
            Cell::Nil if invoked != NO_TXN => chunk.output.set(r, Cell::Text(bare_nil)),
            cell => chunk.output.set(r, cell),
        }
        Ok(())
    }

    /// Copies a value, given as EDN text, to a chunk.
    fn import_text(&mut self, at: usize, text: &str) -> Result<Cell> {
        let mut batch = EventBatch::default();
        let cell = batch.value(&crate::edn::parse(text)?, MopNames::Keywords);
        let mut remap = self.take_remap(&batch);
        let e = At { batch: &batch, i: 0, place: 0, index: 0, time: NONE, f: NO_CODE };
        self.import(&e, &mut remap, at, cell)
    }

    fn scalar(&mut self, batch: &EventBatch, remap: &mut Remap, cell: Cell) -> Result<Scalar> {
        Ok(match cell {
            Cell::Int(n) => Scalar::Int(n),
            Cell::Text(id) => Scalar::Text(map_id(&mut remap.texts, id, &batch.texts, &mut self.shared.texts)?),
            Cell::Nil => Scalar::Nil,
            collection => {
                let mut text = String::new();
                batch.write_edn(collection, &mut text);
                Scalar::Text(intern(&mut self.shared.texts, &text)?)
            }
        })
    }

    /// As [`import`](Self::import), quickly for what refers to nothing.
    #[inline]
    fn import_plain(&mut self, e: &At<'_>, remap: &mut Remap, at: usize, cell: Cell) -> Result<Cell> {
        match cell {
            Cell::Nil | Cell::Int(_) => Ok(cell),
            _ => self.import(e, remap, at, cell),
        }
    }

    /// Copies a cell and what it refers to from a batch to a chunk.
    fn import(&mut self, e: &At<'_>, remap: &mut Remap, at: usize, cell: Cell) -> Result<Cell> {
        let batch = e.batch;
        let chunk = open_chunk(&mut self.chunks, at)?;
        Ok(match cell {
            Cell::Nil | Cell::Int(_) => cell,
            Cell::Text(id) => Cell::Text(map_id(&mut remap.texts, id, &batch.texts, &mut self.shared.texts)?),
            Cell::List(span) => Cell::List(chunk.ints.push(&batch.ints[span.range()])?),
            Cell::Set(span) => Cell::Set(chunk.ints.push(&batch.ints[span.range()])?),
            Cell::Seq(span) => {
                let mut cells = Vec::with_capacity(span.len as usize);
                for &c in &batch.cells[span.range()] {
                    cells.push(self.import(e, remap, at, c)?);
                }
                let chunk = open_chunk(&mut self.chunks, at)?;
                let start = chunk.cells.len() as u32;
                chunk.cells.extend(cells);
                Cell::Seq(Span { start, len: span.len })
            }
            Cell::Txn(span) => {
                let start = chunk.mops.len() as u32;
                for &mop in &batch.mops[span.range()] {
                    let f = self.function(remap, &batch.texts, mop.f)?;
                    let key = self.import_plain(e, remap, at, mop.key)?;
                    let value = match mop.value {
                        Cell::List(span) if self.reads[usize::from(f)] => Cell::List(
                            open_chunk(&mut self.chunks, at)?.ints.push_read(key, &batch.ints[span.range()])?,
                        ),
                        value => self.import_plain(e, remap, at, value)?,
                    };
                    open_chunk(&mut self.chunks, at)?.mops.push(f, key, value);
                }
                Cell::Txn(Span { start, len: span.len })
            }
        })
    }

    /// Is an invocation's transaction what would be written for its micro-operations (no read with a value)?
    fn is_plain_invocation(&self, at: usize, span: Span) -> bool {
        let Slot::Open(chunk) = &self.chunks[at] else { return true };
        chunk.mops.of(span).all(|m| m.value == Cell::Nil || !self.reads[m.f as usize])
    }

    /// The id of the EDN text of a chunk's cell.
    fn render(&mut self, at: usize, cell: Cell) -> Result<TextId> {
        let Slot::Open(chunk) = &self.chunks[at] else { return Ok(self.special.bare_nil) };
        let mut text = String::new();
        chunk.write_edn(cell, &self.shared, &mut text);
        intern(&mut self.shared.texts, &text)
    }

    fn function(&mut self, remap: &mut Remap, texts: &TextPool, id: TextId) -> Result<u16> {
        let code = map_id(&mut remap.functions, id, texts, &mut self.shared.functions)?;
        if self.reads.len() < self.shared.functions.len() {
            self.reads = self.shared.functions.iter().map(is_read).collect();
        }
        u16::try_from(code).ok().filter(|&c| c != NO_CODE).ok_or_else(|| {
            ReadError::new("more than 65,534 distinct functions").hint("is the :f of the operations what it should be?")
        })
    }

    fn function_is(&self, f: u16, name: &str) -> bool {
        f != NO_CODE && self.shared.functions.get(u32::from(f)) == name
    }

    fn function_name(&self, f: u16) -> &str {
        if f == NO_CODE { "an operation" } else { self.shared.functions.get(u32::from(f)) }
    }

    fn open_row(&mut self, row: u64) -> Result<(&mut OpenChunk, usize)> {
        Ok((open_chunk(&mut self.chunks, row as usize / CHUNK_ROWS)?, row as usize % CHUNK_ROWS))
    }

    /// An operation that nothing will complete any more.
    fn abandon(&mut self, open: OpenOp) {
        if let Slot::Open(chunk) = &mut self.chunks[open.row as usize / CHUNK_ROWS] {
            chunk.open -= 1;
        }
    }

    fn orphan(&mut self, e: &At<'_>, kind: EventType, who: &str) -> Result<()> {
        self.malformed(e.place, "a completion without an invocation", |this| {
            format!("{who}: {} {} (index {}) completes nothing", kind.name(), this.function_name(e.f), e.index)
        })
    }

    /// Refuses what is malformed, or notes that it was repaired.
    fn malformed(&mut self, place: u64, kind: &'static str, detail: impl FnOnce(&Self) -> String) -> Result<()> {
        if self.options.lenient {
            let first = format!("{}", self.place(place));
            self.repairs.entry(kind).or_insert((0, first)).0 += 1;
            return Ok(());
        }
        Err(ReadError::new(format!("malformed history: {kind}: {}", detail(self)))
            .at(self.place(place))
            .hint("--lenient repairs what it can and says what it repaired"))
    }

    fn place(&self, place: u64) -> Place {
        if self.options.rows { Place::Row(place) } else { Place::Line(place) }
    }

    fn next_chunk(&mut self) -> Result<()> {
        for at in 0..self.chunks.len() {
            if matches!(&self.chunks[at], Slot::Open(c) if c.open == 0) {
                self.seal(at)?;
            }
        }
        let mut chunk = self.spare.take().unwrap_or_default();
        // The first chunk grows, so that a small history costs little.
        if !self.chunks.is_empty() {
            chunk.reserve(CHUNK_ROWS);
        }
        self.chunks.push(Slot::Open(chunk));
        Ok(())
    }

    fn seal(&mut self, at: usize) -> Result<()> {
        let slot = std::mem::replace(&mut self.chunks[at], Slot::Taken);
        self.chunks[at] = match slot {
            Slot::Open(mut chunk) => {
                let packed = chunk.pack(&mut self.shared)?;
                self.spare = Some(chunk);
                Slot::Sealed(Box::new(packed))
            }
            other => other,
        };
        Ok(())
    }

    /// Takes out the operations at the front that are packed, for streams that need not be held: keys are as decided so
    /// far, there is no fault timeline, and [`finish`](Self::finish) gives what was not taken.
    pub fn take_packed(&mut self) -> Option<History> {
        let from = self.chunks.iter().position(|slot| !matches!(slot, Slot::Taken))?;
        let packed = self.chunks[from..].iter().take_while(|slot| matches!(slot, Slot::Sealed(_))).count();
        if packed == 0 {
            return None;
        }
        let taken = self.chunks[from..from + packed].iter_mut().filter_map(|slot| {
            if let Slot::Sealed(chunk) = std::mem::replace(slot, Slot::Taken) { Some(*chunk) } else { None }
        });
        let chunks = taken.collect();
        let shared = Shared { meta: self.meta(), ..self.shared.clone() };
        Some(History::new(shared, chunks))
    }

    fn meta(&self) -> Meta {
        let keyed = self.keys.form == KeyForm::None && self.keys.split && self.keys.pairs > 0;
        let order = if self.indices == Some(true) { Order::Index } else { Order::Source };
        Meta {
            format: self.options.format.clone(),
            keys: if keyed { KeyForm::Tuple } else { self.keys.form },
            real_time: self.options.real_time,
            order,
            repairs: self.repairs.iter().map(|(kind, (n, first))| format!("{kind}: {n} (first at {first})")).collect(),
            ..self.shared.meta.clone()
        }
    }

    /// The history.
    ///
    /// # Errors
    /// When a process had two operations open at once, which only sorting by time, or the end, may show.
    pub fn finish(mut self) -> Result<History> {
        let mut left: Vec<_> =
            self.touching.iter().filter_map(|(&p, q)| q.front().map(|&(next, _)| (p, next))).collect();
        left.sort_unstable_by_key(|(_, next)| next.index);
        for (p, next) in left {
            if let Some(open) = self.clients.of(p).open {
                self.double_invoke(p, open, next)?;
            }
        }
        self.decide_keys()?;
        if self.indices != Some(true) && self.times_missing && (self.times_fall || self.options.by_time) {
            self.doubt("times contradict the order of the source, and some are missing", self.timeless);
        }
        for at in 0..self.chunks.len() {
            self.seal(at)?;
        }
        let mut chunks: Vec<Chunk> =
            self.chunks.drain(..).filter_map(|s| if let Slot::Sealed(c) = s { Some(*c) } else { None }).collect();
        let by_time = self.indices != Some(true) && !self.times_missing && (self.times_fall || self.options.by_time);
        if by_time {
            chunks = crate::order::by_time(chunks, &mut self.shared, self.options.lenient, &mut self.repairs)?;
        }
        self.shared.meta = self.meta();
        if by_time {
            self.shared.meta.order = Order::Time;
        }
        finish_faults(&mut chunks, &mut self.shared)?;
        Ok(History::new(self.shared, chunks))
    }
}

fn status_of(kind: EventType) -> Status {
    match kind {
        EventType::Ok => Status::Ok,
        EventType::Fail => Status::Fail,
        EventType::Info | EventType::Invoke => Status::Info,
    }
}

/// An event under way.
struct At<'a> {
    batch: &'a EventBatch,
    i: usize,
    place: u64,
    index: i64,
    time: i64,
    f: u16,
}

impl At<'_> {
    fn value(&self) -> Cell {
        self.batch.value[self.i]
    }
}

fn open_chunk(chunks: &mut [Slot], at: usize) -> Result<&mut OpenChunk> {
    match &mut chunks[at] {
        Slot::Open(chunk) => Ok(chunk),
        Slot::Sealed(_) | Slot::Taken => Err(ReadError::new("internal error: an operation completed twice")),
    }
}

pub(crate) fn intern(pool: &mut TextPool, text: &str) -> Result<TextId> {
    pool.try_intern(text).ok_or_else(|| {
        ReadError::new("more than 4 GiB of distinct text").hint("split the history, or use integer values")
    })
}

fn map_id(table: &mut [u32], id: TextId, from: &TextPool, to: &mut TextPool) -> Result<u32> {
    let slot = &mut table[id as usize];
    if *slot == NO_TEXT {
        *slot = intern(to, from.get(id))?;
    }
    Ok(*slot)
}
