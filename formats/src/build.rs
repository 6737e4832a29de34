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

use std::collections::{BTreeMap, VecDeque};

use arrow_array::{Array, BooleanArray, Int64Array, UInt16Array, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::columns::{
    ExtraBuilder, Scalar, ScalarBuilder, ScalarCol, TxnCol, ValueBuilder, ValueCol, ValueRef, optional,
};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventBatch, EventType, Mop, NONE, Process, Span, TextId};
use crate::faults::{FaultOp, timeline};
use crate::history::{BARE_NIL, CHUNK_ROWS, Chunk, History, KeyForm, Meta, Order, Shared, Status, is_read};
use crate::text::TextPool;

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

const NO_TEXT: u32 = u32::MAX;
const NO_CODE: u16 = u16::MAX;
const NO_INDEX: u64 = u64::MAX;

/// Pairs events and gathers columns.
#[derive(Debug)]
pub struct HistoryBuilder {
    options: BuildOptions,
    shared: Shared,
    remaps: VecDeque<Remap>,
    chunks: Vec<Slot>,
    rows: u64,
    events: u64,
    indices: Option<bool>,
    last_index: i64,
    last_time: i64,
    times_fall: bool,
    times_missing: bool,
    clients: HashMap<i64, ProcessState, FixedState>,
    actors: HashMap<u16, OpenOp, FixedState>,
    anonymous: HashMap<u16, VecDeque<OpenOp>, FixedState>,
    touching: HashMap<i64, VecDeque<(OpenOp, i64)>, FixedState>,
    keys: Keys,
    repairs: BTreeMap<&'static str, (u64, String)>,
    special: Special,
    /// Has any invocation a node of its own? Then completions' nodes are kept beside, too, to tell them apart.
    invoke_nodes: bool,
}

#[derive(Debug)]
enum Slot {
    Open(Box<OpenChunk>),
    Sealed(Chunk),
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

/// Names of fields that have columns of their own, in the pool of names.
#[derive(Debug)]
struct Special {
    error: TextId,
    node: TextId,
    key: TextId,
    fault_epoch: TextId,
    kind: TextId,
    bare_nil: TextId,
}

/// What is known so far about `[k v]` values.
#[derive(Debug)]
struct Keys {
    form: KeyForm,
    /// Are pairs stored split?
    split: bool,
    marked: bool,
    nil_second: bool,
    cas_misfit: bool,
    pairs: u64,
}

/// From the ids of a batch's pool to those of the history's, filled as ids are met.
#[derive(Debug)]
struct Remap {
    pool: u64,
    functions: Vec<u32>,
    names: Vec<u32>,
    texts: Vec<u32>,
}

/// Rows not yet packed.
#[derive(Debug, Default)]
struct OpenChunk {
    open: u32,
    index: Vec<u64>,
    complete_index: Vec<u64>,
    process: Vec<i64>,
    actor: Vec<u16>,
    status: Vec<u8>,
    f: Vec<u16>,
    invoke_time: Vec<i64>,
    complete_time: Vec<i64>,
    key: Vec<Scalar>,
    input: Vec<Cell>,
    output: Vec<Cell>,
    txn: Vec<Span>,
    error: Vec<u32>,
    node: Vec<u32>,
    fault_epoch: Vec<u32>,
    /// `(row, name, text)` of the completion, and of the invocation.
    extra: Vec<(u32, TextId, TextId)>,
    invoke_extra: Vec<(u32, TextId, TextId)>,
    ints: Vec<i64>,
    cells: Vec<Cell>,
    mops: Vec<Mop>,
}

const NO_TXN: Span = Span { start: u32::MAX, len: 0 };

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
            bare_nil: name(&mut shared.texts, BARE_NIL),
        };
        let split = options.lift != Lift::Never;
        HistoryBuilder {
            options,
            shared,
            remaps: VecDeque::new(),
            chunks: Vec::new(),
            rows: 0,
            events: 0,
            indices: None,
            last_index: -1,
            last_time: i64::MIN,
            times_fall: false,
            times_missing: false,
            clients: HashMap::default(),
            actors: HashMap::default(),
            anonymous: HashMap::default(),
            touching: HashMap::default(),
            keys: Keys { form: KeyForm::None, split, marked: false, nil_second: false, cas_misfit: false, pairs: 0 },
            repairs: BTreeMap::new(),
            special,
            invoke_nodes: false,
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

    /// Appends events.
    ///
    /// # Errors
    /// When they are malformed; see `spec/history.md`.
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
        let index = self.next_index(batch.index[i], place)?;
        let time = batch.time[i];
        // The record of an operation without an answer may have no time of completion; sorting finds it a place.
        let no_answer = self.options.by_time && batch.kind[i] != EventType::Invoke;
        self.times_missing |= time == NONE && !no_answer;
        self.times_fall |= time != NONE && time < self.last_time;
        self.last_time = if time == NONE { self.last_time } else { time };
        let f = match batch.f[i] {
            None => NO_CODE,
            Some(id) => self.function(remap, &batch.texts, id)?,
        };
        let e = At { batch, i, place, index, time, f };
        match (batch.process[i], batch.kind[i]) {
            (Process::Client(p), EventType::Invoke) => self.client_invokes(&e, remap, p, extras),
            (Process::Client(p), kind) => self.client_completes(&e, remap, p, kind, extras),
            (Process::Actor(a), kind) => {
                let actor = self.function(remap, &batch.texts, a)?;
                self.actor_event(&e, remap, actor, kind, extras)
            }
            (Process::Unknown, EventType::Invoke) => {
                let open = self.begin(&e, remap, None, NO_CODE, true, extras)?;
                self.anonymous.entry(f).or_default().push_back(open);
                Ok(())
            }
            (Process::Unknown, kind) => match self.anonymous.get_mut(&f).and_then(VecDeque::pop_front) {
                Some(open) => self.complete(&e, remap, open, kind, extras),
                None => self.orphan(&e, kind, "an operation without a process"),
            },
        }
    }

    /// The event's index: as recorded, or its position.
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
            return self.set_open(p, Some(open));
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
        self.set_open(p, Some(open))
    }

    fn set_open(&mut self, p: i64, open: Option<OpenOp>) -> Result<()> {
        if let Some(state) = self.clients.get_mut(&p) {
            state.open = open;
        }
        Ok(())
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

    /// Operations that their process invoked at the very time at which the one before completed.
    fn next_touching(&mut self, p: i64, open: OpenOp, time: i64) -> Result<(OpenOp, Option<OpenOp>)> {
        let Some(queue) = self.touching.get_mut(&p) else { return Ok((open, None)) };
        let Some((next, at)) = queue.pop_front() else { return Ok((open, None)) };
        if queue.is_empty() {
            self.touching.remove(&p);
        }
        if at == time {
            return Ok((open, Some(next)));
        }
        self.double_invoke(p, open, next)?;
        self.abandon(open);
        self.next_touching(p, next, time)
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
        let (open, next) = if self.touching.is_empty() { (open, None) } else { self.next_touching(p, open, e.time)? };
        self.set_open(p, next)?;
        self.complete(e, remap, open, kind, extras)
    }

    /// Notes that a process did something, and gives its open operation.
    fn tick(&mut self, e: &At<'_>, p: i64) -> Result<Option<OpenOp>> {
        let fresh = ProcessState { open: None, last_time: i64::MIN, last_place: 0, last_index: -1 };
        let state = self.clients.entry(p).or_insert(fresh);
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
            self.chunks.push(Slot::Open(Box::default()));
            self.seal_finished()?;
        }
        let input = self.import(e, remap, at, value)?;
        let chunk = open_chunk(&mut self.chunks, at)?;
        chunk.open += 1;
        chunk.index.push(e.index as u64);
        chunk.complete_index.push(NO_INDEX);
        chunk.process.push(process.unwrap_or(NONE));
        chunk.actor.push(actor);
        chunk.status.push(Status::Pending as u8);
        chunk.f.push(e.f);
        chunk.invoke_time.push(e.time);
        chunk.complete_time.push(NONE);
        chunk.key.push(key);
        chunk.output.push(Cell::Nil);
        chunk.error.push(NO_TEXT);
        chunk.node.push(NO_TEXT);
        chunk.fault_epoch.push(NO_TEXT);
        match input {
            Cell::Txn(span) => {
                chunk.txn.push(span);
                chunk.input.push(Cell::Nil);
            }
            cell => {
                chunk.txn.push(NO_TXN);
                chunk.input.push(cell);
            }
        }
        self.rows += 1;
        let r = row as usize % CHUNK_ROWS;
        if let Cell::Txn(span) = input
            && !self.is_plain_invocation(at, span)
        {
            let text = self.render(at, input)?;
            let chunk = open_chunk(&mut self.chunks, at)?;
            chunk.input[r] = Cell::Text(text);
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
            Completion::Value(v) => self.import(e, remap, at, v)?,
        };
        let bare_nil = self.special.bare_nil;
        let chunk = open_chunk(&mut self.chunks, at)?;
        chunk.open -= 1;
        chunk.complete_index[r] = e.index as u64;
        chunk.complete_time[r] = e.time;
        let begun_by_invoke = chunk.status[r] == Status::Pending as u8;
        chunk.status[r] = match kind {
            EventType::Ok => Status::Ok,
            EventType::Fail => Status::Fail,
            EventType::Info | EventType::Invoke => Status::Info,
        } as u8;
        let odd_begin = chunk.actor[r] != NO_CODE && begun_by_invoke != (kind != EventType::Info);
        if odd_begin {
            let text = if begun_by_invoke { ":invoke" } else { ":info" };
            let id = intern(&mut self.shared.texts, text)?;
            chunk.invoke_extra.push((r as u32, self.special.kind, id));
        }
        let invoked = chunk.txn[r];
        match output {
            Cell::Txn(span) if invoked == NO_TXN => {
                // The invocation was no transaction: what it was is kept beside.
                if chunk.input[r] == Cell::Nil {
                    chunk.input[r] = Cell::Text(bare_nil);
                }
                chunk.txn[r] = span;
            }
            Cell::Txn(span) => {
                let same = refines(chunk, invoked, span, |f| is_read(self.shared.functions.get(f)));
                if same {
                    chunk.txn[r] = span;
                } else {
                    let invoked_text =
                        if chunk.input[r] == Cell::Nil { Some(self.render(at, Cell::Txn(invoked))?) } else { None };
                    let chunk = open_chunk(&mut self.chunks, at)?;
                    if let Some(text) = invoked_text {
                        chunk.input[r] = Cell::Text(text);
                    }
                    chunk.txn[r] = span;
                }
            }
            Cell::Nil if invoked != NO_TXN => chunk.output[r] = Cell::Text(bare_nil),
            cell => chunk.output[r] = cell,
        }
        self.fields(e, remap, open.row, extras, false)
    }

    /// The key and value of a client's invocation.
    fn split(&mut self, e: &At<'_>, remap: &mut Remap) -> Result<(Scalar, Cell)> {
        if !self.keys.split {
            return Ok((Scalar::Nil, e.value()));
        }
        match pair(e.batch, e.value()) {
            Some((key, value)) => {
                let key = self.scalar(e.batch, remap, key)?;
                self.keys.pairs += 1;
                self.keys.nil_second |= value == Cell::Nil;
                self.keys.cas_misfit |=
                    self.function_is(e.f, "cas") && pair(e.batch, value).is_none() && value != Cell::Nil;
                Ok((key, value))
            }
            None => {
                if self.options.lift == Lift::Auto && !self.keys.marked {
                    self.unsplit()?;
                }
                Ok((Scalar::Nil, e.value()))
            }
        }
    }

    /// The value of a client's completion, without the key that its invocation has.
    fn split_completion(&mut self, e: &At<'_>, remap: &mut Remap, open: OpenOp) -> Result<Completion> {
        let (at, r) = (open.row as usize / CHUNK_ROWS, open.row as usize % CHUNK_ROWS);
        let chunk = open_chunk(&mut self.chunks, at)?;
        let key = chunk.key[r];
        if !self.keys.split || self.keys.form == KeyForm::Field || key == Scalar::Nil || chunk.actor[r] != NO_CODE {
            return Ok(Completion::Value(e.value()));
        }
        match pair(e.batch, e.value()) {
            Some((k, value)) if self.scalar(e.batch, remap, k)? == key => Ok(Completion::Value(value)),
            _ if e.value() == Cell::Nil => Ok(Completion::Bare),
            _ if self.options.lift == Lift::Auto && !self.keys.marked => {
                self.unsplit()?;
                Ok(Completion::Value(e.value()))
            }
            _ => {
                self.malformed(e.place, "a completion whose key differs from its invocation's", |this| {
                    format!("index {} completes index {} ({})", e.index, open.index, this.place(open.place))
                })?;
                Ok(Completion::Value(pair(e.batch, e.value()).map_or(e.value(), |(_, v)| v)))
            }
        }
    }

    /// Puts split pairs together again: they were no keys.
    fn unsplit(&mut self) -> Result<()> {
        self.keys.split = false;
        if self.keys.pairs == 0 {
            return Ok(());
        }
        self.keys.pairs = 0;
        for at in 0..self.chunks.len() {
            let keys_of = match &mut self.chunks[at] {
                Slot::Sealed(chunk) => {
                    unsplit_sealed(chunk, &mut self.shared, self.special.bare_nil)?;
                    continue;
                }
                Slot::Taken => continue,
                Slot::Open(chunk) => std::mem::take(&mut chunk.key),
            };
            let chunk = open_chunk(&mut self.chunks, at)?;
            chunk.key = vec![Scalar::Nil; keys_of.len()];
            for (r, key) in keys_of.into_iter().enumerate().filter(|(_, k)| *k != Scalar::Nil) {
                let key = match key {
                    Scalar::Int(n) => Cell::Int(n),
                    Scalar::Text(t) => Cell::Text(t),
                    Scalar::Nil => Cell::Nil,
                };
                chunk.input[r] = chunk.pair(key, chunk.input[r]);
                if chunk.complete_index[r] != NO_INDEX {
                    let bare = chunk.output[r] == Cell::Text(self.special.bare_nil);
                    chunk.output[r] = if bare { Cell::Nil } else { chunk.pair(key, chunk.output[r]) };
                }
            }
        }
        Ok(())
    }

    /// Puts an event's further fields where they belong.
    fn fields(
        &mut self,
        e: &At<'_>,
        remap: &mut Remap,
        row: u64,
        extras: std::ops::Range<usize>,
        invocation: bool,
    ) -> Result<()> {
        let (at, r) = (row as usize / CHUNK_ROWS, row as usize % CHUNK_ROWS);
        for extra in &e.batch.extras[extras] {
            let name = map_id(&mut remap.names, extra.name, &e.batch.texts, &mut self.shared.names)?;
            if name == self.special.key && self.key_field(e, remap, at, r, extra.value)? {
                continue;
            }
            if name == self.special.node && !invocation {
                // A node that is a plain string stands in its column alone; any other kind is kept beside, too.
                if let Some((plain, exact)) = self.plain_string(e.batch, extra.value)? {
                    open_chunk(&mut self.chunks, at)?.node[r] = plain;
                    if exact && !self.invoke_nodes {
                        continue;
                    }
                }
            }
            let text = self.cell_text(e, remap, extra.value)?;
            let is_epoch = name == self.special.fault_epoch;
            if is_epoch && extra.value != Cell::Nil {
                self.shared.meta.epochs_recorded = true;
                let plain = match self.plain_string(e.batch, extra.value)? {
                    Some((plain, _)) => plain,
                    None => intern(&mut self.shared.names, self.shared.texts.get(text))?,
                };
                open_chunk(&mut self.chunks, at)?.fault_epoch[r] = plain;
                continue;
            }
            if name == self.special.node && invocation {
                self.invoke_nodes = true;
                let plain = self.plain_string(e.batch, extra.value)?;
                let chunk = open_chunk(&mut self.chunks, at)?;
                chunk.node[r] = plain.map_or(NO_TEXT, |(p, _)| p);
            }
            let chunk = open_chunk(&mut self.chunks, at)?;
            if name == self.special.error && !invocation {
                chunk.error[r] = text;
            } else if invocation {
                chunk.invoke_extra.push((r as u32, name, text));
            } else {
                chunk.extra.push((r as u32, name, text));
            }
        }
        Ok(())
    }

    /// A `:key` field becomes the operation's key, if it is the same on both events.
    fn key_field(&mut self, e: &At<'_>, remap: &mut Remap, at: usize, r: usize, value: Cell) -> Result<bool> {
        if !matches!(value, Cell::Int(_) | Cell::Text(_)) {
            return Ok(false);
        }
        if self.keys.split {
            self.unsplit()?;
        }
        self.keys.form = KeyForm::Field;
        let key = self.scalar(e.batch, remap, value)?;
        let chunk = open_chunk(&mut self.chunks, at)?;
        let free = chunk.key[r] == Scalar::Nil;
        if free {
            chunk.key[r] = key;
        }
        Ok(free || chunk.key[r] == key)
    }

    /// A name's id for a string (exactly so) or keyword (not exactly).
    fn plain_string(&mut self, batch: &EventBatch, value: Cell) -> Result<Option<(TextId, bool)>> {
        let Cell::Text(id) = value else { return Ok(None) };
        let text = batch.texts.get(id);
        if let Some(keyword) = text.strip_prefix(':') {
            return Ok(Some((intern(&mut self.shared.names, keyword)?, false)));
        }
        let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) else { return Ok(None) };
        if inner.contains(['\\', '"']) {
            return Ok(None);
        }
        Ok(Some((intern(&mut self.shared.names, inner)?, true)))
    }

    fn cell_text(&mut self, e: &At<'_>, remap: &mut Remap, cell: Cell) -> Result<TextId> {
        if let Cell::Text(id) = cell {
            return map_id(&mut remap.texts, id, &e.batch.texts, &mut self.shared.texts);
        }
        let mut text = String::new();
        e.batch.write_edn(cell, &mut text);
        intern(&mut self.shared.texts, &text)
    }

    fn scalar(&mut self, batch: &EventBatch, remap: &mut Remap, cell: Cell) -> Result<Scalar> {
        Ok(match cell {
            Cell::Int(n) => Scalar::Int(n),
            Cell::Text(id) => Scalar::Text(map_id(&mut remap.texts, id, &batch.texts, &mut self.shared.texts)?),
            _ => Scalar::Nil,
        })
    }

    /// Copies a cell and what it refers to from a batch to a chunk.
    fn import(&mut self, e: &At<'_>, remap: &mut Remap, at: usize, cell: Cell) -> Result<Cell> {
        let batch = e.batch;
        let chunk = open_chunk(&mut self.chunks, at)?;
        Ok(match cell {
            Cell::Nil | Cell::Int(_) => cell,
            Cell::Text(id) => Cell::Text(map_id(&mut remap.texts, id, &batch.texts, &mut self.shared.texts)?),
            Cell::List(span) => Cell::List(chunk.push_ints(&batch.ints[span.range()])?),
            Cell::Set(span) => Cell::Set(chunk.push_ints(&batch.ints[span.range()])?),
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
                    let f = u32::from(self.function(remap, &batch.texts, mop.f)?);
                    let key = self.import(e, remap, at, mop.key)?;
                    let value = self.import(e, remap, at, mop.value)?;
                    open_chunk(&mut self.chunks, at)?.mops.push(Mop { f, key, value });
                }
                Cell::Txn(Span { start, len: span.len })
            }
        })
    }

    /// Is an invocation's transaction what would be written for its micro-operations (no read with a value)?
    fn is_plain_invocation(&self, at: usize, span: Span) -> bool {
        let Slot::Open(chunk) = &self.chunks[at] else { return true };
        chunk.mops[span.range()].iter().all(|m| m.value == Cell::Nil || !is_read(self.shared.functions.get(m.f)))
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

    fn seal_finished(&mut self) -> Result<()> {
        let last = self.chunks.len() - 1;
        for at in 0..last {
            if matches!(&self.chunks[at], Slot::Open(c) if c.open == 0) {
                self.seal(at)?;
            }
        }
        Ok(())
    }

    fn seal(&mut self, at: usize) -> Result<()> {
        let slot = std::mem::replace(&mut self.chunks[at], Slot::Open(Box::default()));
        self.chunks[at] = match slot {
            Slot::Open(chunk) => Slot::Sealed(chunk.pack(&mut self.shared)?),
            sealed => sealed,
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
            if let Slot::Sealed(chunk) = std::mem::replace(slot, Slot::Taken) { Some(chunk) } else { None }
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
    /// When sorting by time shows that a process had two operations open at once.
    pub fn finish(mut self) -> Result<History> {
        let mut left: Vec<_> =
            self.touching.iter().filter_map(|(&p, q)| q.front().map(|&(next, _)| (p, next))).collect();
        left.sort_unstable_by_key(|(_, next)| next.index);
        for (p, next) in left {
            if let Some(open) = self.clients.get(&p).and_then(|state| state.open) {
                self.double_invoke(p, open, next)?;
            }
        }
        self.decide_keys()?;
        for at in 0..self.chunks.len() {
            self.seal(at)?;
        }
        let mut chunks: Vec<Chunk> =
            self.chunks.drain(..).filter_map(|s| if let Slot::Sealed(c) = s { Some(c) } else { None }).collect();
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

    fn decide_keys(&mut self) -> Result<()> {
        if !self.keys.split || self.keys.pairs == 0 || self.options.lift == Lift::Never {
            return Ok(());
        }
        let (lifted, reason) = match self.options.lift {
            Lift::Always => (true, "as asked"),
            _ if self.keys.marked => (true, "the source marks its values as keyed"),
            _ if self.keys.cas_misfit => {
                (false, "every value is a pair, but a cas on one key would need [k [old new]]")
            }
            _ if self.keys.nil_second => (true, "every client value is a pair [key value], and reads are [key nil]"),
            _ => (false, "every client value is a pair, but no [key nil] shows that they are keyed"),
        };
        self.shared.meta.key_reason = reason.into();
        if lifted { Ok(()) } else { self.unsplit() }
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

enum Completion {
    Bare,
    Value(Cell),
}

/// The two parts of a `[k v]` value whose first part is a scalar.
fn pair(batch: &EventBatch, cell: Cell) -> Option<(Cell, Cell)> {
    match cell {
        Cell::List(span) if span.len == 2 => {
            let ints = &batch.ints[span.range()];
            Some((Cell::Int(ints[0]), Cell::Int(ints[1])))
        }
        Cell::Seq(span) if span.len == 2 => {
            let cells = &batch.cells[span.range()];
            matches!(cells[0], Cell::Int(_) | Cell::Text(_)).then_some((cells[0], cells[1]))
        }
        _ => None,
    }
}

fn open_chunk(chunks: &mut [Slot], at: usize) -> Result<&mut OpenChunk> {
    match &mut chunks[at] {
        Slot::Open(chunk) => Ok(chunk),
        Slot::Sealed(_) | Slot::Taken => Err(ReadError::new("internal error: an operation completed twice")),
    }
}

fn intern(pool: &mut TextPool, text: &str) -> Result<TextId> {
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

/// Does a completion's transaction say what its invocation's said, and what the reads returned?
fn refines(chunk: &OpenChunk, invoked: Span, completed: Span, is_read: impl Fn(TextId) -> bool) -> bool {
    let (a, b) = (&chunk.mops[invoked.range()], &chunk.mops[completed.range()]);
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.f == b.f
                && a.key == b.key
                && if is_read(a.f) {
                    a.value == Cell::Nil || chunk.same(a.value, b.value)
                } else {
                    chunk.same(a.value, b.value)
                }
        })
}

impl OpenChunk {
    fn push_ints(&mut self, ints: &[i64]) -> Result<Span> {
        let start = self.ints.len();
        if start + ints.len() > i32::MAX as usize {
            return Err(ReadError::new("more than 2^31 list elements within 65,536 operations")
                .hint("no checker could hold such lists; is this a history?"));
        }
        self.ints.extend_from_slice(ints);
        Ok(Span { start: start as u32, len: ints.len() as u32 })
    }

    fn pair(&mut self, key: Cell, value: Cell) -> Cell {
        if let (Cell::Int(k), Cell::Int(v)) = (key, value) {
            let start = self.ints.len() as u32;
            self.ints.extend([k, v]);
            return Cell::List(Span { start, len: 2 });
        }
        let start = self.cells.len() as u32;
        self.cells.extend([key, value]);
        Cell::Seq(Span { start, len: 2 })
    }

    fn same(&self, a: Cell, b: Cell) -> bool {
        match (a, b) {
            (Cell::List(a), Cell::List(b)) | (Cell::Set(a), Cell::Set(b)) => {
                self.ints[a.range()] == self.ints[b.range()]
            }
            (Cell::Seq(a), Cell::Seq(b)) => {
                a.len == b.len
                    && self.cells[a.range()].iter().zip(&self.cells[b.range()]).all(|(&a, &b)| self.same(a, b))
            }
            _ => a == b,
        }
    }

    fn write_edn(&self, cell: Cell, shared: &Shared, out: &mut String) {
        match cell {
            Cell::Nil => out.push_str("nil"),
            Cell::Int(n) => crate::value::push_int(out, n),
            Cell::Text(id) => out.push_str(shared.texts.get(id)),
            Cell::List(span) => crate::event::write_ints(out, "[", &self.ints[span.range()], "]"),
            Cell::Set(span) => crate::event::write_ints(out, "#{", &self.ints[span.range()], "}"),
            Cell::Seq(span) => {
                out.push('[');
                for (i, &c) in self.cells[span.range()].iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    self.write_edn(c, shared, out);
                }
                out.push(']');
            }
            Cell::Txn(span) => {
                out.push('[');
                for (i, mop) in self.mops[span.range()].iter().enumerate() {
                    out.push_str(if i > 0 { " [:" } else { "[:" });
                    out.push_str(shared.functions.get(mop.f));
                    out.push(' ');
                    self.write_edn(mop.key, shared, out);
                    out.push(' ');
                    self.write_edn(mop.value, shared, out);
                    out.push(']');
                }
                out.push(']');
            }
        }
    }

    fn scalar(&self, cell: Cell, shared: &mut Shared) -> Result<Scalar> {
        Ok(match cell {
            Cell::Nil => Scalar::Nil,
            Cell::Int(n) => Scalar::Int(n),
            Cell::Text(t) => Scalar::Text(t),
            other => {
                let mut text = String::new();
                self.write_edn(other, shared, &mut text);
                Scalar::Text(intern(&mut shared.texts, &text)?)
            }
        })
    }

    fn push_value(&self, cell: Cell, shared: &mut Shared, out: &mut ValueBuilder) -> Result<()> {
        match cell {
            Cell::List(span) => {
                out.list().ints(&self.ints[span.range()]);
                out.end_list();
            }
            Cell::Set(span) => {
                out.set().ints(&self.ints[span.range()]);
                out.end_set();
            }
            Cell::Seq(span) => {
                for &c in &self.cells[span.range()] {
                    let s = self.scalar(c, shared)?;
                    out.list().item(s);
                }
                out.end_list();
            }
            other => {
                let s = self.scalar(other, shared)?;
                out.scalar(s);
            }
        }
        Ok(())
    }

    fn values(&self, cells: &[Cell], shared: &mut Shared) -> Result<ValueCol> {
        let mut out = ValueBuilder::default();
        for &cell in cells {
            self.push_value(cell, shared, &mut out)?;
        }
        Ok(out.finish())
    }

    fn txns(&self, shared: &mut Shared) -> Result<Option<TxnCol>> {
        if self.txn.iter().all(|&t| t == NO_TXN) {
            return Ok(None);
        }
        let (mut offsets, mut f, mut known) = (vec![0i32], Vec::new(), Vec::new());
        let mut key = ScalarBuilder::default();
        let mut value = ValueBuilder::default();
        for (r, span) in self.txn.iter().enumerate() {
            let ok = self.status[r] == Status::Ok as u8;
            let mops = if *span == NO_TXN { &[][..] } else { &self.mops[span.range()] };
            for mop in mops {
                f.push(mop.f as u16);
                key.push(self.scalar(mop.key, shared)?);
                self.push_value(mop.value, shared, &mut value)?;
                known.push(ok || mop.value != Cell::Nil || !is_read(shared.functions.get(mop.f)));
            }
            offsets.push(f.len().min(i32::MAX as usize) as i32);
        }
        let nulls = NullBuffer::from_iter(self.txn.iter().map(|&t| t != NO_TXN));
        Ok(Some(TxnCol {
            offsets: OffsetBuffer::new(offsets.into()),
            nulls: (nulls.null_count() > 0).then_some(nulls),
            f: UInt16Array::from(f),
            key: key.finish(),
            value: value.finish(),
            known: BooleanArray::from(known),
        }))
    }

    /// Arrow arrays of these rows.
    fn pack(self, shared: &mut Shared) -> Result<Chunk> {
        let rows = self.index.len();
        let input = self.values(&self.input, shared)?;
        let output = self.values(&self.output, shared)?;
        let txn = self.txns(shared)?;
        let mut key = ScalarBuilder::with_capacity(if self.key.iter().any(|k| *k != Scalar::Nil) { rows } else { 0 });
        let keyed = self.key.iter().any(|k| *k != Scalar::Nil);
        let key = if keyed {
            self.key.iter().for_each(|&k| key.push(k));
            key.finish()
        } else {
            ScalarCol::default()
        };
        Ok(Chunk {
            index: self.index.into(),
            complete_index: optional::<arrow_array::types::UInt64Type>(self.complete_index, NO_INDEX)
                .unwrap_or_else(|| UInt64Array::new_null(rows)),
            process: optional::<arrow_array::types::Int64Type>(self.process, NONE)
                .unwrap_or_else(|| Int64Array::new_null(rows)),
            actor: optional(self.actor, NO_CODE),
            status: self.status.into(),
            f: optional(self.f, NO_CODE).unwrap_or_else(|| UInt16Array::new_null(rows)),
            invoke_time: optional(self.invoke_time, NONE),
            complete_time: optional(self.complete_time, NONE),
            key,
            input,
            output,
            txn,
            error: optional(self.error, NO_TEXT),
            node: optional(self.node, NO_TEXT),
            fault_epoch: optional(self.fault_epoch, NO_TEXT),
            extra: pack_extras(self.extra, rows),
            invoke_extra: pack_extras(self.invoke_extra, rows),
        })
    }
}

fn pack_extras(mut fields: Vec<(u32, TextId, TextId)>, rows: usize) -> Option<crate::columns::ExtraCol> {
    if fields.is_empty() {
        return None;
    }
    fields.sort_unstable();
    let mut out = ExtraBuilder::default();
    let mut next = fields.into_iter().peekable();
    for row in 0..rows as u32 {
        while let Some((_, name, value)) = next.next_if(|f| f.0 == row) {
            out.field(name, value);
        }
        out.end();
    }
    out.finish()
}

/// Puts the keys of a packed chunk back into its values.
fn unsplit_sealed(chunk: &mut Chunk, shared: &mut Shared, bare_nil: TextId) -> Result<()> {
    let (mut input, mut output) = (ValueBuilder::default(), ValueBuilder::default());
    for i in 0..chunk.len() {
        let key = chunk.key.get(i);
        let completed = chunk.complete_index.nulls().is_none_or(|n| n.is_valid(i));
        for (col, out, present) in [(&chunk.input, &mut input, true), (&chunk.output, &mut output, completed)] {
            match col.get(i) {
                v if key == Scalar::Nil || !present => out.value(v),
                ValueRef::Text(t) if t == bare_nil => out.scalar(Scalar::Nil),
                v => {
                    let second = match v.scalar() {
                        Some(s) => s,
                        None => {
                            let mut text = String::new();
                            shared.write_value(v, &mut text);
                            Scalar::Text(intern(&mut shared.texts, &text)?)
                        }
                    };
                    out.list().item(key);
                    out.list().item(second);
                    out.end_list();
                }
            }
        }
    }
    chunk.key = ScalarCol::default();
    chunk.input = input.finish();
    chunk.output = output.finish();
    Ok(())
}

/// Derives the fault timeline.
pub(crate) fn find_faults(chunks: &[Chunk], shared: &mut Shared) {
    shared.faults = timeline(&fault_ops(chunks, shared));
}

/// Derives the fault timeline, and each operation's fault epoch where the recorder did not write it.
pub(crate) fn finish_faults(chunks: &mut [Chunk], shared: &mut Shared) -> Result<()> {
    find_faults(chunks, shared);
    if shared.meta.epochs_recorded || shared.faults.is_empty() {
        return Ok(());
    }
    let mut labels = Vec::with_capacity(shared.faults.len());
    for w in &shared.faults {
        labels.push(intern(&mut shared.names, &w.label)?);
    }
    for chunk in chunks {
        let mut epochs = vec![NO_TEXT; chunk.len()];
        for (i, epoch) in epochs.iter_mut().enumerate().filter(|&(i, _)| chunk.is_client(i)) {
            let from = chunk.index.value(i);
            let to = if chunk.complete_index.nulls().is_none_or(|n| n.is_valid(i)) {
                chunk.complete_index.value(i)
            } else {
                u64::MAX
            };
            let after = shared.faults.partition_point(|w| w.start < to);
            let active = shared.faults[..after].iter().rposition(|w| w.end.is_none_or(|end| end > from));
            if let Some(w) = active {
                *epoch = labels[w];
            }
        }
        chunk.fault_epoch = optional(epochs, NO_TEXT);
    }
    Ok(())
}

fn fault_ops(chunks: &[Chunk], shared: &Shared) -> Vec<FaultOp> {
    let mut ops = Vec::new();
    for chunk in chunks {
        let Some(actors) = &chunk.actor else { continue };
        for (i, actor) in actors.iter().enumerate() {
            let (Some(actor), true) = (actor, chunk.f.nulls().is_none_or(|n| n.is_valid(i))) else { continue };
            let valid = |nulls: Option<&NullBuffer>| nulls.is_none_or(|n| n.is_valid(i));
            let time = |a: &Option<Int64Array>| a.as_ref().filter(|a| valid(a.nulls())).map(|a| a.value(i));
            let mut value = String::new();
            let said = chunk.output.get(i);
            shared.write_value(if said.is_nil() { chunk.input.get(i) } else { said }, &mut value);
            ops.push(FaultOp {
                actor: shared.functions.get(u32::from(actor)).into(),
                f: shared.functions.get(u32::from(chunk.f.value(i))).into(),
                value,
                start: chunk.index.value(i),
                end: valid(chunk.complete_index.nulls()).then(|| chunk.complete_index.value(i)),
                start_time: time(&chunk.invoke_time),
                end_time: time(&chunk.complete_time),
            });
        }
    }
    ops
}
