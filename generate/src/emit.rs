//! From operations to events in a batch.

use elench_formats::Result;
use elench_formats::event::{Cell, Event, EventBatch, EventType, Mop, Process, Span, TextId};

use crate::keys::NIL;
use crate::simulation::{Kind, Op, Step};
use crate::{GenOptions, Workload};

/// Events, and list elements, after which a batch is handed over.
const BATCH_EVENTS: usize = 4096;
const BATCH_INTS: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Emitter {
    batch: EventBatch,
    form: Form,
    names: Names,
    pub(super) events: u64,
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bare,
    Keyed,
    Lists,
    Registers,
}

#[derive(Debug)]
struct Names {
    read: TextId,
    write: TextId,
    cas: TextId,
    txn: TextId,
    r: TextId,
    w: TextId,
    nemesis: TextId,
    start: TextId,
    stop: TextId,
}

impl Emitter {
    pub(super) fn new(options: &GenOptions) -> Emitter {
        let mut batch = EventBatch::default();
        let form = match options.workload {
            Workload::ListAppend => Form::Lists,
            Workload::RwRegister => Form::Registers,
            _ if options.independent => Form::Keyed,
            _ => Form::Bare,
        };
        let names = Names {
            read: batch.name("read"),
            write: batch.name("write"),
            cas: batch.name("cas"),
            txn: batch.name("txn"),
            r: batch.name("r"),
            w: batch.name(if form == Form::Lists { "append" } else { "w" }),
            nemesis: batch.name("nemesis"),
            start: batch.name("start"),
            stop: batch.name("stop"),
        };
        Emitter { batch, form, names, events: 0 }
    }

    /// Appends an event of a client, and gives its index.
    pub(super) fn client(&mut self, time: u64, kind: EventType, process: i64, op: &Op) -> u64 {
        let told = kind == EventType::Ok;
        let (f, value) = match (self.form, op.steps.first()) {
            (Form::Lists | Form::Registers, _) => (self.names.txn, self.transaction(op, told)),
            (_, Some(step)) => self.single(step, told),
            (_, None) => (self.names.read, Cell::Nil),
        };
        self.push(time, kind, Process::Client(process), f, value)
    }

    /// Appends both events of a nemesis' operation.
    pub(super) fn nemesis(&mut self, time: u64, start: bool) {
        let f = if start { self.names.start } else { self.names.stop };
        let who = Process::Actor(self.names.nemesis);
        self.push(time, EventType::Info, who, f, Cell::Nil);
        self.push(time, EventType::Info, who, f, Cell::Nil);
    }

    fn push(&mut self, time: u64, kind: EventType, process: Process, f: TextId, value: Cell) -> u64 {
        let index = self.events;
        self.events += 1;
        self.batch.push(Event {
            place: index + 1,
            index: Some(index as i64),
            time: Some(time as i64),
            kind,
            process,
            f: Some(f),
            value,
        });
        index
    }

    fn single(&mut self, step: &Step, told: bool) -> (TextId, Cell) {
        let (f, value) = match step.kind {
            Kind::Read => (self.names.read, if told { scalar(step.value) } else { Cell::Nil }),
            Kind::Write => (self.names.write, scalar(step.value)),
            Kind::Cas => (self.names.cas, self.ints(&[step.old, step.value])),
        };
        (f, if self.form == Form::Keyed { self.keyed(step.id, value) } else { value })
    }

    fn keyed(&mut self, key: i64, value: Cell) -> Cell {
        if let Cell::Int(v) = value {
            return self.ints(&[key, v]);
        }
        let start = self.batch.cells.len() as u32;
        self.batch.cells.extend([Cell::Int(key), value]);
        Cell::Seq(Span { start, len: 2 })
    }

    fn transaction(&mut self, op: &Op, told: bool) -> Cell {
        let start = self.batch.mops.len() as u32;
        for step in &op.steps {
            let (f, value) = match step.kind {
                Kind::Read if !told => (self.names.r, Cell::Nil),
                Kind::Read if self.form == Form::Lists => (self.names.r, self.ints(op.list(step))),
                Kind::Read => (self.names.r, scalar(step.value)),
                Kind::Write | Kind::Cas => (self.names.w, scalar(step.value)),
            };
            self.batch.mops.push(Mop { f, key: Cell::Int(step.id), value });
        }
        Cell::Txn(Span { start, len: op.steps.len() as u32 })
    }

    fn ints(&mut self, ints: &[i64]) -> Cell {
        let start = self.batch.ints.len() as u32;
        self.batch.ints.extend_from_slice(ints);
        Cell::List(Span { start, len: ints.len() as u32 })
    }

    pub(super) fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_EVENTS || self.batch.ints.len() >= BATCH_INTS
    }

    /// Hands the events over, if there are any.
    pub(super) fn flush(&mut self, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let result = sink(&mut self.batch);
        self.batch.clear_events();
        result
    }
}

fn scalar(value: i64) -> Cell {
    if value == NIL { Cell::Nil } else { Cell::Int(value) }
}
