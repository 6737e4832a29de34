//! What did the clients of other checkers' histories see?
//!
//! The academic checkers record transactions, not events: who ran them (a session), what each read and wrote, and
//! whether it committed. Here every session becomes a client process, and every transaction an invocation `txn`
//! followed directly by its completion, so that the rest of Elench need not know these formats:
//!
//! ```text
//! r(5,0,1,7)       :invoke  txn  [[:r 5 nil] [:w 6 2]]
//! w(6,2,1,7)       :ok      txn  [[:r 5 nil] [:w 6 2]]
//! ```
//!
//! - **None of these histories has real-time order.** The order of events is one in which the sessions could have run,
//!   and no more: [`Facts::real_time`] says so, and models that need real time must be refused.
//! - An aborted transaction is `fail`, writes and all; what it read is kept in its completion. One whose end was not
//!   recorded is `info`.
//! - The initial value is nil. Where a format says that zero stands for it, a read of zero becomes a read of nil, unless
//!   somebody writes zero to that key: some tools write the initial transaction out, and its readers have read *it*.
//! - Integers are kept exactly, beyond 64 bits too.
//!
//! Cost: one pass over the input and nothing held but the transaction at hand, except where a format lets transactions
//! interleave or where zero must be understood first; each module says so.
//!
//! | Module | Source of the format |
//! |---|---|
//! | [`plume`] | PolySI (VLDB 2023), Plume (OOPSLA 2024), AWDIT (PLDI 2025) |
//! | [`dbcop`] | Biswas and Enea, OOPSLA 2019 |
//! | [`cobra`] | Tan et al., OSDI 2020 |
//! | [`awdit`] | Møldrup and Pavlogiannis, PLDI 2025 |
//! | [`chronos`] | Chronos and Aion, ICDE 2025 |

pub mod awdit;
mod bincode1;
pub mod chronos;
pub mod cobra;
pub mod dbcop;
pub mod detect;
mod json;
mod lines;
pub mod plume;

use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, Event, EventBatch, EventType, Mop, Process, Span, TextId};
use crate::value::Value;

/// Where readers send their events.
pub type Sink<'s> = &'s mut dyn FnMut(&mut EventBatch) -> Result<()>;

/// What a read of the initial value looks like in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Initial {
    /// There is no such read, or the format has its own mark for it: every other value was written by somebody.
    #[default]
    Marked,
    /// Zero stands for it, for keys to which nobody writes zero.
    Zero,
}

/// What a reader can say about a whole history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Facts {
    /// Is the order of events the order in which things happened? Never, in these formats.
    pub real_time: bool,
    /// What stood for the initial value; it is nil now.
    pub initial: Initial,
    /// Sessions; they are the processes 0, 1, 2 and so on.
    pub sessions: u64,
    /// Transactions, of any outcome; those neither committed nor aborted are of unknown end.
    pub transactions: u64,
    /// Of these, committed.
    pub committed: u64,
    /// Of these, aborted.
    pub aborted: u64,
    /// Reads and writes in all transactions, failed ones too.
    pub events: u64,
    /// Of these, reads and writes that failed on their own, and so are in no transaction here.
    pub failed_events: u64,
    /// Committed transactions in which something failed. What they did before that was probably rolled back, whatever
    /// the recorder thought, and a violation that rests on them proves little: see [`dbcop`].
    pub doubtful: u64,
}

/// How many events a batch holds at most.
const BATCH_EVENTS: usize = 8192;

/// When the arenas of a batch hold this many elements it is handed over, however few its events.
const BATCH_ELEMENTS: usize = 1 << 20;

/// The most elements that the arenas may hold within one transaction, so that spans fit their 32 bits.
const TRANSACTION_ELEMENTS: usize = 1 << 28;

/// What a transaction does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Append,
}

/// Turns transactions into pairs of events.
struct Emitter<'s> {
    batch: EventBatch,
    sink: Sink<'s>,
    facts: Facts,
    accesses: Vec<(Access, Cell, Cell)>,
    extras: Vec<(TextId, Cell)>,
    txn: TextId,
    read: TextId,
    write: TextId,
    append: TextId,
}

impl<'s> Emitter<'s> {
    fn new(sink: Sink<'s>) -> Self {
        let mut batch = EventBatch::default();
        let [txn, read, write, append] = ["txn", "r", "w", "append"].map(|name| batch.name(name));
        Emitter { batch, sink, facts: Facts::default(), accesses: vec![], extras: vec![], txn, read, write, append }
    }

    /// Adds to the transaction at hand.
    fn access(&mut self, access: Access, key: Cell, value: Cell) -> Result<()> {
        if self.accesses.len() >= TRANSACTION_ELEMENTS {
            return Err(too_large());
        }
        self.accesses.push((access, key, value));
        self.facts.events += 1;
        Ok(())
    }

    /// Drops the transaction at hand and what was stored for it.
    fn forget(&mut self) {
        self.accesses.clear();
        self.extras.clear();
        self.batch.clear_events();
    }

    /// A further field of the completion of the transaction at hand.
    fn extra(&mut self, name: &str, value: Cell) {
        let name = self.batch.name(name);
        self.extras.push((name, value));
    }

    /// Ends the transaction at hand.
    fn finish(&mut self, place: u64, process: u64, kind: EventType) -> Result<()> {
        self.facts.transactions += 1;
        match kind {
            EventType::Ok => self.facts.committed += 1,
            EventType::Fail => self.facts.aborted += 1,
            EventType::Invoke | EventType::Info => {}
        }
        let invoked = self.transaction(|access, value| if access == Access::Read { Cell::Nil } else { value })?;
        let says_more = self.accesses.iter().any(|&(access, _, value)| access == Access::Read && value != Cell::Nil);
        let completed = if says_more { self.transaction(|_, value| value)? } else { invoked };
        self.accesses.clear();
        self.event(place, process, EventType::Invoke, invoked);
        for (name, value) in self.extras.drain(..) {
            self.batch.extra(name, value);
        }
        self.event(place, process, kind, completed);
        self.hand_over_when_full()
    }

    /// The accesses at hand as a transaction; one that does nothing is an empty vector.
    fn transaction(&mut self, value_of: impl Fn(Access, Cell) -> Cell) -> Result<Cell> {
        let Emitter { batch, accesses, read, write, append, .. } = self;
        if accesses.is_empty() {
            return Ok(Cell::List(Span { start: span_start(batch.ints.len())?, len: 0 }));
        }
        let start = span_start(batch.mops.len())?;
        batch.mops.extend(accesses.iter().map(|&(access, key, value)| {
            let f = match access {
                Access::Read => *read,
                Access::Write => *write,
                Access::Append => *append,
            };
            Mop { f, key, value: value_of(access, value) }
        }));
        Ok(Cell::Txn(Span { start, len: accesses.len() as u32 }))
    }

    fn event(&mut self, place: u64, process: u64, kind: EventType, value: Cell) {
        let process = Process::Client(process as i64);
        self.batch.push(Event { place, index: None, time: None, kind, process, f: Some(self.txn), value });
    }

    fn hand_over_when_full(&mut self) -> Result<()> {
        let elements = self.batch.mops.len() + self.batch.ints.len() + self.batch.cells.len();
        if self.batch.len() + 2 > BATCH_EVENTS || elements > BATCH_ELEMENTS { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            (self.sink)(&mut self.batch)?;
            self.batch.clear_events();
        }
        Ok(())
    }

    /// Hands over what is left.
    fn end(mut self, sessions: u64) -> Result<Facts> {
        self.hand_over()?;
        self.facts.sessions = sessions;
        Ok(self.facts)
    }

    /// An integer that may be beyond 64 bits.
    fn unsigned(&mut self, n: u64) -> Cell {
        match i64::try_from(n) {
            Ok(n) => Cell::Int(n),
            Err(_) => Cell::Text(self.batch.name(&n.to_string())),
        }
    }

    /// Decimal digits of any number, a minus sign before them or not.
    fn integer(&mut self, digits: &str) -> Option<Cell> {
        Some(match Value::integer(digits)? {
            Value::Int(n) => Cell::Int(n),
            other => Cell::Text(self.batch.name(&other.to_edn())),
        })
    }

    /// A list of 64-bit integers.
    fn ints(&mut self, ints: impl IntoIterator<Item = i64>) -> Result<Cell> {
        let start = span_start(self.batch.ints.len())?;
        self.batch.ints.extend(ints);
        let len = span_start(self.batch.ints.len())? - start;
        Ok(Cell::List(Span { start, len }))
    }

    /// A list of integers, some of which may be beyond 64 bits.
    fn list(&mut self, cells: &[Cell]) -> Result<Cell> {
        let int = |&cell: &Cell| if let Cell::Int(n) = cell { Some(n) } else { None };
        if cells.iter().all(|cell| int(cell).is_some()) {
            return self.ints(cells.iter().filter_map(int));
        }
        let start = span_start(self.batch.cells.len())?;
        self.batch.cells.extend_from_slice(cells);
        let len = span_start(self.batch.cells.len())? - start;
        Ok(Cell::Seq(Span { start, len }))
    }
}

fn span_start(elements: usize) -> Result<u32> {
    if elements > 2 * TRANSACTION_ELEMENTS + BATCH_ELEMENTS { Err(too_large()) } else { Ok(elements as u32) }
}

fn too_large() -> ReadError {
    ReadError::new(format!("a transaction holds over {TRANSACTION_ELEMENTS} elements"))
        .hint("no checker could take it; is this the right format?")
}

/// A scalar cell of one batch as something to look up: equal for equal keys.
fn scalar_id(cell: Cell) -> (u8, i64) {
    match cell {
        Cell::Int(n) => (0, n),
        Cell::Text(id) => (1, i64::from(id)),
        _ => (2, 0),
    }
}

/// Numbers for sessions in the order in which they are first met.
#[derive(Default)]
struct Sessions(foldhash::HashMap<(u8, i64), u64>);

impl Sessions {
    fn process(&mut self, session: Cell) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(scalar_id(session)).or_insert(next)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Keys to which somebody writes zero: a read of zero from these is a read of that write.
#[derive(Default)]
struct ZeroWritten(foldhash::HashSet<(u8, i64)>);

impl ZeroWritten {
    fn note(&mut self, key: Cell, value: Cell) {
        if value == Cell::Int(0) {
            self.0.insert(scalar_id(key));
        }
    }

    /// The value that a read really saw.
    fn read(&self, key: Cell, value: Cell) -> Cell {
        if value == Cell::Int(0) && !self.0.contains(&scalar_id(key)) { Cell::Nil } else { value }
    }
}

/// At most this much of a bad input is quoted in a message.
const QUOTED: usize = 40;

/// Input as it can be shown in a message.
fn quoted(bytes: &[u8]) -> String {
    let shown = String::from_utf8_lossy(bytes.get(..QUOTED).unwrap_or(bytes));
    format!("\"{}\"{}", shown.escape_debug(), if bytes.len() > QUOTED { "…" } else { "" })
}

fn at_line(line: u64) -> impl Fn(ReadError) -> ReadError {
    move |e| if e.place == Place::Whole { e.at(Place::Line(line)) } else { e }
}

#[cfg(test)]
mod testing;
