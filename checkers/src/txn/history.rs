//! What did the transactions do, as flat columns of small integers?
//!
//! Micro-operations of all transactions lie in columns one after the other; a transaction is a range of them. Keys and
//! processes are numbered densely in the order in which they first occur. Elements and values are 64-bit codes: an
//! integer is its own code where a history holds nothing but integers, so that lists stay where the history has
//! them and are never copied; else all of them are translated once into an [`Arena`].
//!
//! O(micro-operations), plus the list elements where they need translation. Memory: 29 bytes a transaction, 13 a
//! micro-operation, 16 a read of a list.

use elench_formats::History;
use elench_formats::columns::{MopRef, Scalar, ValueRef};
use elench_formats::history::{OpRef, Status, is_read};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::outcome::{Coverage, OpId};

/// A transaction, by its place in [`Txns`]: ascending by invocation.
pub type Txn = u32;

/// A micro-operation, by its place in the columns of [`Txns`].
pub type Mop = u32;

/// Stands for no transaction, no micro-operation, no number.
pub const NONE: u32 = u32::MAX;

/// The code of nil.
pub const NIL: i64 = i64::MIN;

/// Integers below this are translated where a history holds not only integers, as texts have codes there.
const LOW: i64 = i64::MIN + (1 << 34);
const FIRST_TEXT: i64 = i64::MIN + 1;
const FIRST_EXTRA: i64 = i64::MIN + (1 << 33);

/// What a micro-operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Appends an element to a list; [`Txns::value`] is its code.
    Append,
    /// Writes a register; [`Txns::value`] is the value's code.
    Write,
    /// Read a list, [`Txns::list`]. Nil is the empty list.
    ReadList,
    /// Read a register; [`Txns::value`] is the value's code, [`NIL`] for nil.
    Read,
    /// A read of which it is not known what it returned.
    ReadUnknown,
    /// None of the workload's.
    Other,
}

impl Kind {
    /// Does it change its key?
    #[inline]
    pub fn writes(self) -> bool {
        matches!(self, Kind::Append | Kind::Write)
    }
}

/// What transactions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Append to lists and read them whole.
    ListAppend,
    /// Write and read registers.
    Register,
}

/// A micro-operation that is none of the workload's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMop {
    /// Its transaction.
    pub op: OpId,
    /// Its text and why it says nothing, a clause.
    pub why: String,
}

/// Codes of lists that had to be translated.
#[derive(Debug, Default)]
pub struct Arena {
    codes: Vec<i64>,
    /// Values that are no scalar in the history, and integers in the range of the codes of texts.
    extra: HashMap<Box<str>, i64, FixedState>,
    texts: Vec<Box<str>>,
}

/// The transactions of a history.
#[derive(Debug, Default)]
pub struct Txns<'a> {
    /// Row in the history, by transaction.
    pub row: Vec<u32>,
    /// How it ended.
    pub status: Vec<Status>,
    /// Dense number of its process; [`NONE`] where unknown.
    pub process: Vec<u32>,
    /// Event index of the invocation.
    pub invoke: Vec<u64>,
    /// Event index of the completion of an `ok` one; `u64::MAX` for all others, as they have no known end.
    pub complete: Vec<u64>,
    /// Where each one's micro-operations begin, and the number of them all.
    pub offsets: Vec<u32>,
    /// What each micro-operation does.
    pub kind: Vec<Kind>,
    /// Dense number of its key.
    pub key: Vec<u32>,
    /// Code of its element or value; for a read of a list its place in [`lists`](Self::lists).
    pub value: Vec<i64>,
    /// The lists that were read.
    pub lists: Vec<&'a [i64]>,
    /// The keys by number.
    pub keys: Vec<Scalar>,
    /// Number of processes.
    pub processes: u32,
    /// The first few micro-operations that are none of the workload's.
    pub unknown: Vec<UnknownMop>,
    /// Number of all of them.
    pub unknown_count: u64,
    /// Operations of clients that are no transactions.
    pub left_out: Coverage,
    /// Texts of codes that are none of the history's.
    texts: &'a [Box<str>],
    translated: bool,
}

/// Unknown micro-operations that are told one by one.
const TOLD: usize = 16;

impl<'a> Txns<'a> {
    /// Reads them. The arena holds what could not stay where it is.
    pub fn read(history: &'a History, workload: Workload, arena: &'a mut Arena) -> Txns<'a> {
        if let Some(txns) = Reader::new(workload, None, &[]).read(history) {
            return txns;
        }
        translate(history, workload, arena);
        let Arena { codes, extra, texts } = arena;
        Reader::new(workload, Some(extra), codes)
            .read(history)
            .map_or_else(Txns::default, |txns| Txns { texts, ..txns })
    }

    /// Number of transactions.
    pub fn len(&self) -> usize {
        self.row.len()
    }

    /// No transaction?
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// Number of micro-operations.
    pub fn mop_count(&self) -> usize {
        self.kind.len()
    }

    /// The micro-operations of a transaction.
    #[inline]
    pub fn mops(&self, txn: Txn) -> std::ops::Range<usize> {
        self.offsets[txn as usize] as usize..self.offsets[txn as usize + 1] as usize
    }

    /// The transaction of a micro-operation. O(log n).
    pub fn txn_of(&self, mop: Mop) -> Txn {
        (self.offsets.partition_point(|&o| o <= mop) - 1) as Txn
    }

    /// Is it acknowledged?
    #[inline]
    pub fn ok(&self, txn: Txn) -> bool {
        self.status[txn as usize] == Status::Ok
    }

    /// The list that a micro-operation of kind [`Kind::ReadList`] read.
    #[inline]
    pub fn list(&self, mop: Mop) -> &'a [i64] {
        self.lists[self.value[mop as usize] as usize]
    }

    /// The operation of the history.
    pub fn op(&self, txn: Txn) -> OpId {
        OpId(self.invoke[txn as usize])
    }

    /// The EDN text of an element or a value by its code.
    pub fn text(&self, history: &History, code: i64) -> String {
        let mut out = String::new();
        if !self.translated || code >= LOW {
            history.write_scalar(Scalar::Int(code), &mut out);
        } else if code >= FIRST_EXTRA {
            out.push_str(self.texts.get((code - FIRST_EXTRA) as usize).map_or("?", |t| t));
        } else if code == NIL {
            out.push_str("nil");
        } else {
            history.write_scalar(Scalar::Text((code - FIRST_TEXT) as u32), &mut out);
        }
        out
    }

    /// The code of a value by its canonical EDN text, if the history holds such a value.
    pub fn code_of(&self, history: &History, text: &str) -> Option<i64> {
        match text.parse::<i64>() {
            Ok(n) if n != NIL && (!self.translated || n >= LOW) => return Some(n),
            _ if text == "nil" => return Some(NIL),
            _ if !self.translated => return None,
            _ => {}
        }
        let own = || self.texts.iter().position(|t| **t == *text).map(|i| FIRST_EXTRA + i as i64);
        history.texts().find(text).map(|t| FIRST_TEXT + i64::from(t)).or_else(own)
    }

    /// The EDN text of a key by its number.
    pub fn key_text(&self, history: &History, key: u32) -> String {
        let mut out = String::new();
        history.write_scalar(self.keys[key as usize], &mut out);
        out
    }

    /// Micro-operations by key, those of a key in order of transactions and within them. O(micro-operations).
    pub fn by_key(&self) -> ByKey {
        let mut offsets = vec![0u32; self.keys.len() + 2];
        for &k in &self.key {
            offsets[k as usize + 2] += 1;
        }
        for k in 2..offsets.len() {
            offsets[k] += offsets[k - 1];
        }
        let mut mops = vec![0u32; self.key.len()];
        let mut txns = vec![0u32; self.key.len()];
        for txn in 0..self.len() {
            for mop in self.mops(txn as Txn) {
                let at = &mut offsets[self.key[mop] as usize + 1];
                mops[*at as usize] = mop as Mop;
                txns[*at as usize] = txn as Txn;
                *at += 1;
            }
        }
        offsets.pop();
        ByKey { offsets, mops, txns }
    }

    /// Bytes that the columns take.
    pub fn memory(&self) -> usize {
        self.len() * 33 + self.mop_count() * 13 + self.lists.len() * 16
    }
}

/// Micro-operations grouped by key.
#[derive(Debug)]
pub struct ByKey {
    offsets: Vec<u32>,
    mops: Vec<Mop>,
    txns: Vec<Txn>,
}

impl ByKey {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// No key?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The micro-operations on a key, and their transactions.
    #[inline]
    pub fn get(&self, key: usize) -> (&[Mop], &[Txn]) {
        let range = self.offsets[key] as usize..self.offsets[key + 1] as usize;
        (&self.mops[range.clone()], &self.txns[range])
    }

    /// How many micro-operations there are on some keys.
    #[inline]
    pub fn count(&self, keys: std::ops::Range<usize>) -> usize {
        (self.offsets[keys.end] - self.offsets[keys.start]) as usize
    }

    /// Keys cut into runs with about so many micro-operations each.
    pub fn runs(&self, mops: usize) -> Vec<std::ops::Range<usize>> {
        let mut runs = Vec::new();
        let mut start = 0;
        for key in 0..self.len() {
            if (self.offsets[key + 1] - self.offsets[start]) as usize >= mops || key + 1 == self.len() {
                runs.push(start..key + 1);
                start = key + 1;
            }
        }
        runs
    }
}

/// Numbers things that are mostly small integers: a table for those, a map for all others.
#[derive(Debug, Default)]
struct Numbers {
    table: Vec<u32>,
    map: HashMap<Scalar, u32, FixedState>,
    count: u32,
}

impl Numbers {
    /// The number of a thing, and whether it is new. The table stays within a few words per thing asked for.
    #[inline]
    fn of(&mut self, s: Scalar, asked: usize) -> (u32, bool) {
        if let Scalar::Int(n) = s
            && n >= 0
            && (n as usize) < self.table.len().max((4 * asked).saturating_add(1024).min(1 << 28))
        {
            let n = n as usize;
            if n >= self.table.len() {
                self.grow(n);
            }
            if self.table[n] == NONE {
                self.table[n] = self.count;
                self.count += 1;
                return (self.count - 1, true);
            }
            return (self.table[n], false);
        }
        let count = self.count;
        let id = *self.map.entry(s).or_insert(count);
        self.count += u32::from(id == count);
        (id, id == count)
    }

    /// Those that were too large for the table when they were first seen move into it.
    fn grow(&mut self, n: usize) {
        let old = self.table.len();
        self.table.resize((n + 1).next_power_of_two(), NONE);
        if !self.map.is_empty() {
            let new = old as i64..self.table.len() as i64;
            for (s, id) in self.map.extract_if(|s, _| matches!(s, Scalar::Int(n) if new.contains(n))) {
                if let Scalar::Int(n) = s {
                    self.table[n as usize] = id;
                }
            }
        }
    }
}

struct Reader<'a> {
    workload: Workload,
    /// By code of a function's name.
    kinds: Vec<Kind>,
    /// Present where codes are not the integers themselves.
    extra: Option<&'a HashMap<Box<str>, i64, FixedState>>,
    /// Lists not yet handed out.
    codes: &'a [i64],
    keys: Numbers,
    processes: Numbers,
    /// Keys to which something was done of which it is not known what it does.
    altered: Vec<u32>,
    txns: Txns<'a>,
}

impl<'a> Reader<'a> {
    fn new(workload: Workload, extra: Option<&'a HashMap<Box<str>, i64, FixedState>>, codes: &'a [i64]) -> Self {
        let txns = Txns { translated: extra.is_some(), offsets: vec![0], ..Txns::default() };
        Reader {
            workload,
            kinds: Vec::new(),
            extra,
            codes,
            keys: Numbers::default(),
            processes: Numbers::default(),
            altered: Vec::new(),
            txns,
        }
    }

    /// None when codes have to be translated first.
    fn read(mut self, history: &'a History) -> Option<Txns<'a>> {
        self.kinds = history.functions().iter().map(|name| self.workload.kind(name)).collect();
        self.reserve(history);
        for (row, op) in history.ops().enumerate() {
            if !op.is_client() {
                continue;
            }
            let Some(txn) = op.txn() else {
                let status = match op.status() {
                    Status::Ok => crate::outcome::Status::Ok,
                    Status::Fail => crate::outcome::Status::Fail,
                    _ => crate::outcome::Status::Info,
                };
                self.txns.left_out.count(op.f().unwrap_or("nil"), status, 1);
                continue;
            };
            let ok = op.status() == Status::Ok;
            for mop in txn.iter() {
                self.mop(history, op, mop, ok)?;
            }
            let t = &mut self.txns;
            t.offsets.push(t.kind.len() as u32);
            t.row.push(row as u32);
            t.status.push(op.status());
            t.process.push(op.process().map_or(NONE, |p| self.processes.of(Scalar::Int(p), row).0));
            t.invoke.push(op.index());
            t.complete.push(if ok { op.complete_index().unwrap_or(op.index()) } else { u64::MAX });
        }
        self.txns.processes = self.processes.count;
        if !self.altered.is_empty() {
            self.leave_out_altered();
        }
        Some(self.txns)
    }

    /// What was read of a key that somebody altered, nobody knows how, shows nothing.
    #[cold]
    fn leave_out_altered(&mut self) {
        let mut altered = vec![false; self.txns.keys.len()];
        self.altered.iter().for_each(|&key| altered[key as usize] = true);
        let Txns { kind, key, .. } = &mut self.txns;
        kind.iter_mut().zip(key).filter(|(_, key)| altered[**key as usize]).for_each(|(kind, _)| *kind = Kind::Other);
    }

    fn reserve(&mut self, history: &History) {
        let rows = history.len();
        let columns = history.chunks().iter().filter_map(|c| c.txn());
        let mops =
            columns.map(|t| t.offsets().last().zip(t.offsets().first()).map_or(0, |(b, a)| (b - a) as usize)).sum();
        let t = &mut self.txns;
        t.row.reserve(rows);
        t.status.reserve(rows);
        t.process.reserve(rows);
        t.invoke.reserve(rows);
        t.complete.reserve(rows);
        t.offsets.reserve(rows);
        t.kind.reserve(mops);
        t.key.reserve(mops);
        t.value.reserve(mops);
    }

    #[inline]
    fn mop(&mut self, history: &'a History, op: OpRef<'a>, mop: MopRef<'a>, ok: bool) -> Option<()> {
        let kind = self.kinds.get(mop.f as usize).copied().unwrap_or(Kind::Other);
        let (kind, value) = match kind {
            Kind::ReadList | Kind::Read if !mop.known || !ok => (Kind::ReadUnknown, NIL),
            Kind::ReadList => match self.list(mop.value)? {
                Some(list) => {
                    self.txns.lists.push(list);
                    (Kind::ReadList, self.txns.lists.len() as i64 - 1)
                }
                None => (Kind::Other, NIL),
            },
            Kind::Other => (Kind::Other, NIL),
            kind => (kind, self.code(history, mop.value)?),
        };
        let (key, new) = self.keys.of(mop.key, self.txns.key.len());
        if new {
            self.txns.keys.push(mop.key);
        }
        if kind == Kind::Other {
            self.unknown(history, op, mop);
            if op.status() != Status::Fail && !is_read(op.mop_name(mop.f)) {
                self.altered.push(key);
            }
        }
        self.txns.kind.push(kind);
        self.txns.key.push(key);
        self.txns.value.push(value);
        Some(())
    }

    /// The list that a value is, if it is one; None outside when it needs translation.
    fn list(&mut self, value: ValueRef<'a>) -> Option<Option<&'a [i64]>> {
        match value {
            ValueRef::Nil => Some(Some(&[])),
            ValueRef::List(list) if self.extra.is_none() => list.as_ints().map(Some),
            ValueRef::List(list) => {
                let (own, rest) = self.codes.split_at_checked(list.len())?;
                self.codes = rest;
                Some(Some(own))
            }
            _ => Some(None),
        }
    }

    #[inline]
    fn code(&self, history: &History, value: ValueRef<'_>) -> Option<i64> {
        match (value, self.extra) {
            // Of registers this one number stands for nil.
            (ValueRef::Int(NIL), None) if self.workload == Workload::Register => None,
            (ValueRef::Int(n), None) => Some(n),
            (ValueRef::Nil, None) if self.workload == Workload::Register => Some(NIL),
            (_, None) => None,
            (value, Some(extra)) => Some(coded(history, value, |text| extra.get(text).copied().unwrap_or(NIL))),
        }
    }

    #[cold]
    fn unknown(&mut self, history: &History, op: OpRef<'_>, mop: MopRef<'_>) {
        self.txns.unknown_count += 1;
        if self.txns.unknown.len() < TOLD {
            let mut why = format!("[:{} ", op.mop_name(mop.f));
            history.write_scalar(mop.key, &mut why);
            why.push(' ');
            history.write_value(mop.value, &mut why);
            why.push_str(match self.workload {
                Workload::ListAppend => "] is neither an append nor a read of a list",
                Workload::Register => "] is neither a write nor a read of a register",
            });
            self.txns.unknown.push(UnknownMop { op: OpId(op.index()), why });
        }
    }
}

impl Workload {
    #[inline]
    fn kind(self, name: &str) -> Kind {
        match (self, name) {
            (Workload::ListAppend, "append") => Kind::Append,
            (Workload::Register, "w" | "write") => Kind::Write,
            (Workload::ListAppend, name) if is_read(name) => Kind::ReadList,
            (Workload::Register, name) if is_read(name) => Kind::Read,
            _ => Kind::Other,
        }
    }
}

/// The code of a value, where codes are not the integers themselves.
fn coded(history: &History, value: ValueRef<'_>, extra: impl FnOnce(&str) -> i64) -> i64 {
    match value {
        ValueRef::Nil => NIL,
        ValueRef::Int(n) if n >= LOW => n,
        ValueRef::Text(t) => FIRST_TEXT + i64::from(t),
        other => {
            let mut text = String::new();
            history.write_value(other, &mut text);
            match history.texts().find(&text) {
                Some(t) => FIRST_TEXT + i64::from(t),
                None => extra(&text),
            }
        }
    }
}

/// Fills the arena with the codes of all lists that were read, in order.
fn translate(history: &History, workload: Workload, arena: &mut Arena) {
    let Arena { codes, extra, texts } = arena;
    let mut code = |value: ValueRef<'_>| {
        coded(history, value, |text| {
            *extra.entry(text.into()).or_insert_with_key(|text| {
                texts.push(text.clone());
                FIRST_EXTRA + texts.len() as i64 - 1
            })
        })
    };
    for op in history.clients() {
        let ok = op.status() == Status::Ok;
        for mop in op.txn().iter().flat_map(|t| t.iter()) {
            match (workload.kind(op.mop_name(mop.f)), mop.value) {
                (Kind::ReadList, ValueRef::List(list)) if mop.known && ok => {
                    codes.extend(list.iter().map(|s| code(s.into())));
                }
                (Kind::ReadList, _) => {}
                (_, value) => {
                    code(value);
                }
            }
        }
    }
}
