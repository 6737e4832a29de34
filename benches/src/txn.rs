//! Histories of transactions: generated ones of many shapes, clean and broken, and those that lean all one way.

use elench_formats::build::{BuildOptions, HistoryBuilder};
use elench_formats::event::{Cell, Event, EventBatch, EventType, Mop, Process, Span};
use elench_formats::{History, Result};
use elench_generate::{Fault, GenOptions, Isolation, Workload};

/// A kind of history.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// List-append or rw-register.
    pub workload: Workload,
    /// Keys in use at a time.
    pub keys: u32,
    /// Writes after which a key gives way to a new one: how long lists get.
    pub length: u32,
    /// Clients at once.
    pub clients: u32,
    /// What is wrong.
    pub broken: Broken,
}

/// What is wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Nothing: serial execution.
    No,
    /// Snapshot isolation: write skews all along, judged by strict serializability.
    Skews,
    /// One transaction that sees one write of another, and misses one.
    Once,
}

const USUAL: Shape = Shape { workload: Workload::ListAppend, keys: 10, length: 32, clients: 10, broken: Broken::No };

/// What is measured: each dimension by itself, from the usual shape on.
pub const SHAPES: [Shape; 12] = [
    USUAL,
    Shape { keys: 1_000, ..USUAL },
    Shape { length: 4, ..USUAL },
    Shape { length: 512, ..USUAL },
    Shape { clients: 100, ..USUAL },
    Shape { broken: Broken::Skews, ..USUAL },
    Shape { broken: Broken::Once, ..USUAL },
    Shape { workload: Workload::RwRegister, ..USUAL },
    Shape { workload: Workload::RwRegister, keys: 1_000, ..USUAL },
    Shape { workload: Workload::RwRegister, clients: 100, ..USUAL },
    Shape { workload: Workload::RwRegister, broken: Broken::Skews, ..USUAL },
    Shape { workload: Workload::RwRegister, broken: Broken::Once, ..USUAL },
];

impl Shape {
    /// What distinguishes it.
    pub fn name(&self) -> String {
        let broken = match self.broken {
            Broken::No => "clean",
            Broken::Skews => "write skews",
            Broken::Once => "one G-single",
        };
        let Shape { workload, keys, length, clients, .. } = self;
        format!("{}, {keys} keys, {length} writes a key, {clients} clients, {broken}", workload.name())
    }

    /// How to generate so many transactions of it.
    pub fn options(&self, transactions: u64) -> GenOptions {
        GenOptions {
            ops: transactions,
            clients: self.clients,
            keys: self.keys,
            writes_per_key: self.length,
            info: 0.001,
            fail: 0.01,
            isolation: if self.broken == Broken::Skews { Isolation::Snapshot } else { Isolation::Serial },
            fault: (self.broken == Broken::Once).then_some(Fault::GSingle),
            ..GenOptions::new(self.workload)
        }
    }
}

/// A history that leans all one way, of one client that runs transactions in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// So many keys, each written once and read once.
    ManyKeys(u64),
    /// So many appends to one key, read once.
    ManyAppends(u64),
    /// One list of so many elements, read so many times.
    LongList(u64, u64),
    /// So many reads of which none is acknowledged, beside as many appends.
    Unknown(u64),
    /// So many transactions that read what a failed one wrote.
    ReadsOfFailed(u64),
    /// So many keys and elements that are texts.
    Texts(u64),
}

impl Special {
    /// What it is.
    pub fn name(self) -> String {
        match self {
            Special::ManyKeys(n) => format!("{n} keys with two operations each"),
            Special::ManyAppends(n) => format!("one key with {n} appends"),
            Special::LongList(n, reads) => format!("one list of {n} elements, read {reads} times"),
            Special::Unknown(n) => format!("{n} transactions of unknown end"),
            Special::ReadsOfFailed(n) => format!("{n} reads of failed writes"),
            Special::Texts(n) => format!("{n} keys and elements that are texts"),
        }
    }

    /// Builds it.
    ///
    /// # Errors
    /// When it holds more than a history can.
    pub fn history(self) -> Result<History> {
        let mut out = Events::new();
        match self {
            Special::ManyKeys(n) => {
                for k in 0..n as i64 {
                    out.append(k, Cell::Int(k), EventType::Ok)?;
                    out.read(k, &[k], EventType::Ok)?;
                }
            }
            Special::ManyAppends(n) => {
                (0..n as i64).try_for_each(|i| out.append(0, Cell::Int(i), EventType::Ok))?;
                out.read(0, &(0..n as i64).collect::<Vec<_>>(), EventType::Ok)?;
            }
            Special::LongList(n, reads) => {
                (0..n as i64).try_for_each(|i| out.append(0, Cell::Int(i), EventType::Ok))?;
                let list: Vec<i64> = (0..n as i64).collect();
                (0..reads).try_for_each(|_| out.read(0, &list, EventType::Ok))?;
            }
            Special::Unknown(n) => {
                for k in 0..n as i64 {
                    out.append(k / 10, Cell::Int(k), EventType::Info)?;
                    out.read(k / 10, &[], EventType::Info)?;
                    if k % 10 == 9 {
                        out.read(k / 10, &(k - 9..=k).collect::<Vec<_>>(), EventType::Ok)?;
                    }
                }
            }
            Special::ReadsOfFailed(n) => {
                for k in 0..n as i64 {
                    out.append(k, Cell::Int(k), EventType::Fail)?;
                    out.read(k, &[k], EventType::Ok)?;
                }
            }
            Special::Texts(n) => {
                for k in 0..n {
                    let text = out.batch.name(&format!(":k{k}"));
                    out.transaction("append", Cell::Text(text), Cell::Text(text), EventType::Ok)?;
                    let start = out.batch.cells.len() as u32;
                    out.batch.cells.push(Cell::Text(text));
                    out.transaction("r", Cell::Text(text), Cell::Seq(Span { start, len: 1 }), EventType::Ok)?;
                }
            }
        }
        out.flush()?;
        out.builder.finish()
    }
}

struct Events {
    batch: EventBatch,
    builder: HistoryBuilder,
    count: u64,
    process: i64,
}

impl Events {
    fn new() -> Events {
        let options = BuildOptions { format: "generated".into(), real_time: true, ..BuildOptions::default() };
        Events { batch: EventBatch::default(), builder: HistoryBuilder::new(options), count: 0, process: 0 }
    }

    fn append(&mut self, key: i64, element: Cell, end: EventType) -> Result<()> {
        self.transaction("append", Cell::Int(key), element, end)
    }

    fn read(&mut self, key: i64, list: &[i64], end: EventType) -> Result<()> {
        let start = self.batch.ints.len() as u32;
        self.batch.ints.extend_from_slice(list);
        self.transaction("r", Cell::Int(key), Cell::List(Span { start, len: list.len() as u32 }), end)
    }

    fn transaction(&mut self, f: &str, key: Cell, value: Cell, end: EventType) -> Result<()> {
        let (txn, read) = (self.batch.name("txn"), f == "r");
        let f = self.batch.name(f);
        for kind in [EventType::Invoke, end] {
            let value = if read && kind != EventType::Ok { Cell::Nil } else { value };
            let start = self.batch.mops.len() as u32;
            self.batch.mops.push(Mop { f, key, value });
            self.batch.push(Event {
                place: self.count + 1,
                index: Some(self.count as i64),
                time: Some(1_000 * self.count as i64),
                kind,
                process: Process::Client(self.process),
                f: Some(txn),
                value: Cell::Txn(Span { start, len: 1 }),
            });
            self.count += 1;
        }
        self.process += i64::from(end == EventType::Info);
        if self.batch.len() >= 4096 || self.batch.ints.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.builder.push(&self.batch)?;
        self.batch.clear_events();
        Ok(())
    }
}
