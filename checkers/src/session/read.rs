//! What does each operation of a history say of versions? Accesses (reads and writes of one key by one session) as a flat list, in
//! the order of invocations. O(n).
//!
//! A session is what one process did; where operations bear a `session` field, each of its values begins another. A compare-and-set
//! that is known to have happened is a read followed by a write: that asks for less than that it be atomic. One that may have
//! happened is a write that may have happened. Failed writes are kept, for whoever reads what they wrote; failed reads, and reads
//! of which nothing is known, say nothing.

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::dense::{NO_ID, ScalarIds, group, grouped};
use crate::findings::ended;
use crate::named::{ByName, Tally};
use crate::outcome::{Coverage, Status};
use crate::parallel;

type Map<K, V> = HashMap<K, V, FixedState>;

/// Keys that a thread takes at once.
const AT_ONCE: usize = 16;

/// What tells which of two versions of a key is the newer?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Numbers that the system gave to versions.
    Versions,
    /// Offsets in a log.
    Offsets,
    /// Nothing but who read what, where each value is written once.
    Values,
}

/// A value; equal ones are equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Val {
    Nil,
    Int(i64),
    /// An id in the history's pool of texts.
    Text(u32),
    /// A collection, or what the history does not hold: an id in [`Accesses::others`].
    Other(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// One read or write, in 32 bytes: all that is asked of a history is asked of these, several times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The operation, by the index of its invocation.
    pub op: u64,
    pub session: u32,
    /// By position in [`Accesses::keys`].
    pub key: u32,
    pub kind: Kind,
    pub status: Status,
    /// Which of [`Val`] it is, and the integer or id.
    form: Form,
    bits: i64,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Nil,
    Int,
    Text,
    Other,
}

impl Access {
    #[inline]
    pub(crate) fn value(&self) -> Val {
        match self.form {
            Form::Nil => Val::Nil,
            Form::Int => Val::Int(self.bits),
            Form::Text => Val::Text(self.bits as u32),
            Form::Other => Val::Other(self.bits as u32),
        }
    }
}

/// All accesses of a history.
#[derive(Debug)]
pub(crate) struct Accesses {
    pub list: Vec<Access>,
    /// By access, its version or offset, where known. None at all where values tell the order.
    pub versions: Vec<Option<i64>>,
    pub sessions: u32,
    pub keys: Vec<Scalar>,
    pub order: Order,
    /// Operations that said something, by kind and outcome.
    pub coverage: Coverage,
    /// Acknowledged reads of nil that were taken to say nothing.
    pub silent: u64,
    others: Vec<String>,
}

impl Accesses {
    /// The text of a value.
    pub(crate) fn show(&self, history: &History, value: Val) -> String {
        match value {
            Val::Nil => "nil".into(),
            Val::Int(n) => n.to_string(),
            Val::Text(t) => history.texts().get(t).to_string(),
            Val::Other(id) => self.others[id as usize].clone(),
        }
    }

    /// What is found of each key's accesses, in parallel. Where there is but one key they are not copied.
    pub(crate) fn each_key<T: Send>(&self, of: impl Fn(usize, &[Access]) -> T + Sync) -> Vec<T> {
        if self.keys.len() == 1 {
            return vec![of(0, &self.list)];
        }
        let by_key = grouped(self.keys.len(), self.list.iter().enumerate().map(|(i, a)| (a.key, i as u32)));
        let own = |key| group(&by_key, key).iter().map(|&i| self.list[i as usize]).collect::<Vec<Access>>();
        parallel::map(self.keys.len(), AT_ONCE, |key| of(key, &own(key)))
    }

    /// The text of a key, where there is one.
    pub(crate) fn show_key(&self, history: &History, key: u32) -> Option<String> {
        let key = *self.keys.get(key as usize).filter(|key| **key != Scalar::Nil)?;
        let mut text = String::new();
        history.write_scalar(key, &mut text);
        Some(text)
    }
}

/// Reads a history. The initial value matters only where reads of nil would be taken for it.
///
/// # Errors
/// Where an operation is none of a register's or log's, is not attributed to a process, has no key while others have, or is a
/// transaction of several micro-operations.
pub(crate) fn accesses(history: &History, order: Option<Order>, initial: &Value) -> Result<Accesses, String> {
    let order = order.unwrap_or_else(|| guess(history));
    let mut reader = Reader::new(order);
    reader.list.reserve(history.len());
    for op in history.clients() {
        reader.op(&op)?;
    }
    reader.finish(initial)
}

/// The initial value as accesses would have it.
pub(crate) fn initial(history: &History, accesses: &mut Accesses, initial: &Value) -> Val {
    match initial {
        Value::Nil => Val::Nil,
        Value::Int(n) => Val::Int(*n),
        other => {
            let text = other.to_edn();
            if let Some(id) = history.texts().find(&text) {
                return Val::Text(id);
            }
            let known = accesses.others.iter().position(|o| *o == text);
            Val::Other(known.unwrap_or_else(|| {
                accesses.others.push(text);
                accesses.others.len() - 1
            }) as u32)
        }
    }
}

/// Versions where operations bear them, offsets where appends are acknowledged with them, else values.
fn guess(history: &History) -> Order {
    let versions = history.names().find("version").is_some();
    let (mut names, mut paired, mut plain, mut offsets) = (Means::names(), false, false, false);
    for op in history.clients().filter(|op| op.txn().is_none()) {
        match names.of(&op) {
            Means::Write if !plain && ended(&op) != Status::Fail => {
                let is_pair = matches!(versioned(&op, op.input()), Some((None, _)));
                paired |= is_pair;
                plain |= !is_pair;
            }
            Means::Append if ended(&op) == Status::Ok => {
                offsets |= matches!(op.output(), ValueRef::Int(_)) && op.output() != op.input();
            }
            _ => {}
        }
    }
    match () {
        () if offsets => Order::Offsets,
        () if (paired && !plain) || (versions && says_versions(history)) => Order::Versions,
        () => Order::Values,
    }
}

fn says_versions(history: &History) -> bool {
    let mut names = Means::names();
    history.clients().any(|op| names.of(&op).gets() && ended(&op) == Status::Ok && version_field(&op).is_some())
}

/// What the name of an operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// It reads a register.
    Get,
    /// It reads a register or a log.
    Read,
    Poll,
    Write,
    Cas,
    Append,
    /// It may send a consumer of a log elsewhere.
    Move,
    Other,
}

impl Means {
    fn of(name: &str) -> Means {
        match name {
            "r" | "get" | "read-init" => Means::Get,
            "read" => Means::Read,
            "poll" => Means::Poll,
            "write" | "w" | "put" => Means::Write,
            "cas" => Means::Cas,
            "append" | "send" => Means::Append,
            "assign" | "subscribe" | "crash" => Means::Move,
            _ => Means::Other,
        }
    }

    fn names() -> ByName<Means> {
        ByName::new(Means::of, Means::Other)
    }

    fn gets(self) -> bool {
        matches!(self, Means::Get | Means::Read)
    }
}

fn version_field(op: &OpRef<'_>) -> Option<i64> {
    op.extra("version")?.parse().ok()
}

/// `[version value]` or `{:version v, :value x}`: the version, which may be nil, and the value.
fn versioned(op: &OpRef<'_>, value: ValueRef<'_>) -> Option<(Option<i64>, Raw)> {
    if let Some(list) = value.elements().filter(|list| list.len() == 2) {
        let version = match list.get(0) {
            Scalar::Nil => None,
            Scalar::Int(n) => Some(n),
            Scalar::Text(_) => return None,
        };
        return Some((version, Raw::Scalar(list.get(1))));
    }
    let ValueRef::Text(t) = value else { return None };
    let value = elench_formats::edn::parse(op.text(t)).ok()?;
    let (version, rest) = match value.as_vector() {
        Some([version, rest]) => (version.clone(), rest.clone()),
        Some(_) => return None,
        None => (value.get("version").cloned().unwrap_or(Value::Nil), value.get("value")?.clone()),
    };
    match version {
        Value::Nil => Some((None, Raw::Edn(rest))),
        version => Some((Some(version.as_int()?), Raw::Edn(rest))),
    }
}

/// The EDN text of a scalar that an operation bears.
pub(crate) fn shown(op: &OpRef<'_>, scalar: Scalar) -> String {
    match scalar {
        Scalar::Nil => "nil".into(),
        Scalar::Int(n) => n.to_string(),
        Scalar::Text(t) => op.text(t).to_string(),
    }
}

fn foreign(op: &OpRef<'_>, of: &str) -> String {
    format!("operation {}: `{}` is no operation of {of}", op.index(), op.f().unwrap_or("nil"))
}

/// A value not yet interned.
enum Raw {
    Scalar(Scalar),
    Edn(Value),
}

/// Reads operation by operation.
#[derive(Debug)]
pub(crate) struct Reader {
    order: Order,
    names: ByName<Means>,
    /// What was read so far, and versions where they tell the order.
    pub list: Vec<Access>,
    pub versions: Vec<Option<i64>>,
    processes: ScalarIds,
    /// By process: the session of what it did without beginning anew and without a name, or [`NO_ID`].
    plain: Vec<u32>,
    /// Of all else: by process, how often it began anew, and the name of the session.
    named: Map<(i64, u32, u32), u32>,
    /// How many there are.
    sessions: u32,
    /// Of logs: how often each process has begun anew.
    begun: Map<i64, u32>,
    keys: Vec<Scalar>,
    key_ids: Map<Scalar, u32>,
    others: Vec<String>,
    other_ids: Map<String, u32>,
    /// Operations that said something, by name and outcome.
    pub tally: Tally,
}

impl Reader {
    pub(crate) fn new(order: Order) -> Reader {
        Reader {
            order,
            names: Means::names(),
            list: Vec::new(),
            versions: Vec::new(),
            processes: ScalarIds::default(),
            plain: Vec::new(),
            named: Map::default(),
            sessions: 0,
            begun: Map::default(),
            keys: Vec::new(),
            key_ids: Map::default(),
            others: Vec::new(),
            other_ids: Map::default(),
            tally: Tally::default(),
        }
    }

    /// One more operation, once it is known how it ended.
    pub(crate) fn op(&mut self, op: &OpRef<'_>) -> Result<(), String> {
        let status = ended(op);
        if let Some(txn) = op.txn() {
            if txn.len() != 1 {
                return Err(format!(
                    "operation {} is a transaction of {} micro-operations: --checker isolation judges those",
                    op.index(),
                    txn.len()
                ));
            }
            let mop = txn.get(0);
            let name = op.mop_name(mop.f);
            let kind = match name {
                "r" | "read" => Kind::Read,
                "w" | "write" => Kind::Write,
                _ => return Err(format!("operation {}: `{name}` is no access of a register", op.index())),
            };
            if kind == Kind::Write || (mop.known && status == Status::Ok) {
                let value = self.value(op, mop.value);
                self.push(op, mop.key, kind, value, None)?;
            }
            self.tally.count_as(mop.f, op);
            return Ok(());
        }
        let means = self.names.of(op);
        match self.order {
            Order::Offsets => self.log_op(op, means, status)?,
            Order::Versions => self.versioned_op(op, means, status)?,
            Order::Values => self.register_op(op, means, status)?,
        }
        self.tally.count(op);
        Ok(())
    }

    fn register_op(&mut self, op: &OpRef<'_>, means: Means, status: Status) -> Result<(), String> {
        let ok = status == Status::Ok;
        match means {
            Means::Get | Means::Read => {
                if ok {
                    let value = self.value(op, op.output());
                    self.push(op, op.key(), Kind::Read, value, None)?;
                }
            }
            Means::Write => {
                let told = if op.input().is_nil() && ok { op.output() } else { op.input() };
                let value = self.value(op, told);
                self.push(op, op.key(), Kind::Write, value, None)?;
            }
            Means::Cas => {
                let Some(change) = op.input().elements().filter(|list| list.len() == 2) else {
                    return Err(format!("operation {}: a cas needs [old new]", op.index()));
                };
                let (old, new) = (self.scalar(change.get(0)), self.scalar(change.get(1)));
                if ok {
                    self.push(op, op.key(), Kind::Read, old, None)?;
                }
                self.push(op, op.key(), Kind::Write, new, None)?;
            }
            _ => return Err(foreign(op, "a register")),
        }
        Ok(())
    }

    fn versioned_op(&mut self, op: &OpRef<'_>, means: Means, status: Status) -> Result<(), String> {
        let ok = status == Status::Ok;
        let kind = match means {
            Means::Get | Means::Read => Kind::Read,
            Means::Write | Means::Cas => Kind::Write,
            _ => return Err(foreign(op, "a versioned register")),
        };
        if kind == Kind::Read && !ok {
            return Ok(());
        }
        let field = if ok { version_field(op) } else { None };
        let (version, value) = match (field, kind) {
            (Some(version), Kind::Read) => (Some(version), self.value(op, op.output())),
            (Some(version), Kind::Write) => (Some(version), self.value(op, op.input())),
            (None, _) => {
                let answer = if ok { versioned(op, op.output()) } else { None };
                match (answer, kind) {
                    (Some((version, raw)), _) => (version, self.raw(raw)),
                    (None, Kind::Read) => (None, self.value(op, op.output())),
                    (None, Kind::Write) => match versioned(op, op.input()) {
                        Some((_, raw)) => (None, self.raw(raw)),
                        None => (None, self.value(op, op.input())),
                    },
                }
            }
        };
        self.push(op, op.key(), kind, value, version)
    }

    fn log_op(&mut self, op: &OpRef<'_>, means: Means, status: Status) -> Result<(), String> {
        let ok = status == Status::Ok;
        match means {
            Means::Append => {
                let offset = match op.output() {
                    ValueRef::Int(n) if ok => Some(n),
                    _ => None,
                };
                let value = self.value(op, op.input());
                self.push(op, op.key(), Kind::Write, value, offset)
            }
            // A read at a place that the reader chose says nothing of where the reader had got to.
            Means::Poll | Means::Read if ok && op.input().is_nil() => {
                let Some(found) = op.output().elements() else { return Ok(()) };
                for message in found.iter() {
                    let Scalar::Text(t) = message else { continue };
                    if let Some((Some(offset), raw)) = versioned(op, ValueRef::Text(t)) {
                        let value = self.raw(raw);
                        self.push(op, op.key(), Kind::Read, value, Some(offset))?;
                    }
                }
                Ok(())
            }
            Means::Poll | Means::Read => Ok(()),
            // From here on the process may be sent back to where somebody else had got to.
            Means::Move => {
                if let Some(process) = op.process() {
                    *self.begun.entry(process).or_default() += 1;
                }
                Ok(())
            }
            _ => Err(foreign(op, "a log")),
        }
    }

    fn value(&mut self, op: &OpRef<'_>, value: ValueRef<'_>) -> Val {
        match value.scalar() {
            Some(scalar) => self.scalar(scalar),
            None => {
                let set = matches!(value, ValueRef::Set(_));
                let items = value.elements().map(|list| list.iter().map(|s| shown(op, s)).collect::<Vec<_>>());
                let items = items.unwrap_or_default().join(" ");
                Val::Other(self.other(if set { format!("#{{{items}}}") } else { format!("[{items}]") }))
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> Val {
        match scalar {
            Scalar::Nil => Val::Nil,
            Scalar::Int(n) => Val::Int(n),
            Scalar::Text(t) => Val::Text(t),
        }
    }

    fn raw(&mut self, raw: Raw) -> Val {
        match raw {
            Raw::Scalar(scalar) => self.scalar(scalar),
            Raw::Edn(Value::Nil) => Val::Nil,
            Raw::Edn(Value::Int(n)) => Val::Int(n),
            Raw::Edn(value) => {
                let text = value.to_edn();
                Val::Other(self.other(text))
            }
        }
    }

    fn other(&mut self, text: String) -> u32 {
        let others = &mut self.others;
        *self.other_ids.entry(text).or_insert_with_key(|text| {
            others.push(text.clone());
            others.len() as u32 - 1
        })
    }

    fn push(
        &mut self,
        op: &OpRef<'_>,
        key: Scalar,
        kind: Kind,
        value: Val,
        version: Option<i64>,
    ) -> Result<(), String> {
        let process = op.process().ok_or_else(|| {
            format!("the recorder does not say which process did operation {}, so its session is not known", op.index())
        })?;
        let session = self.session(op, process);
        let key = self.key(key);
        let (form, bits) = match value {
            Val::Nil => (Form::Nil, 0),
            Val::Int(n) => (Form::Int, n),
            Val::Text(id) => (Form::Text, i64::from(id)),
            Val::Other(id) => (Form::Other, i64::from(id)),
        };
        self.list.push(Access { op: op.index(), session, key, kind, status: ended(op), form, bits });
        if self.order != Order::Values {
            self.versions.push(version);
        }
        Ok(())
    }

    fn session(&mut self, op: &OpRef<'_>, process: i64) -> u32 {
        let begun = if self.begun.is_empty() { 0 } else { self.begun.get(&process).copied().unwrap_or(0) };
        let named = op.extra("session").map_or(0, |text| self.other(text.to_string()) + 1);
        let next = self.sessions;
        let session = if begun == 0 && named == 0 {
            let (id, new) = self.processes.id(Scalar::Int(process));
            if new {
                self.plain.push(NO_ID);
            }
            let known = &mut self.plain[id as usize];
            if *known == NO_ID {
                *known = next;
            }
            *known
        } else {
            *self.named.entry((process, begun, named)).or_insert(next)
        };
        self.sessions += u32::from(session == next);
        session
    }

    fn key(&mut self, key: Scalar) -> u32 {
        // Mostly that of the operation before.
        if let Some(last) = self.list.last().filter(|last| self.keys[last.key as usize] == key) {
            return last.key;
        }
        let keys = &mut self.keys;
        *self.key_ids.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() as u32 - 1
        })
    }

    fn finish(self, initial: &Value) -> Result<Accesses, String> {
        if self.keys.len() > 1 && self.keys.contains(&Scalar::Nil) {
            let nil = self.key_ids[&Scalar::Nil];
            let op = self.list.iter().find(|a| a.key == nil).map_or(0, |a| a.op);
            return Err(format!("operation {op} has no key, while others have: whose it is cannot be told"));
        }
        let mut coverage = Coverage::default();
        self.tally.tell(&mut coverage);
        let mut all = Accesses {
            list: self.list,
            versions: self.versions,
            sessions: self.sessions,
            keys: self.keys,
            order: self.order,
            coverage,
            silent: 0,
            others: self.others,
        };
        if *initial != Value::Nil {
            all.forget_silent_reads();
        }
        Ok(all)
    }
}

impl Accesses {
    /// Where a register can never be nil, a read of nil is a client that got no value.
    fn forget_silent_reads(&mut self) {
        let says = |i: usize, a: &Access| a.value() != Val::Nil || self.versions.get(i).is_some_and(Option::is_some);
        let silent: Vec<bool> = self.list.iter().enumerate().map(|(i, a)| !says(i, a)).collect();
        let writes = |(a, silent): (&Access, &bool)| *silent && a.kind == Kind::Write && a.status != Status::Fail;
        if self.list.iter().zip(&silent).any(writes) {
            return;
        }
        let before = self.list.len();
        let stays = self.list.iter().zip(&silent).map(|(a, silent)| a.kind == Kind::Write || !silent);
        let stays: Vec<bool> = stays.collect();
        let mut of = stays.iter();
        self.list.retain(|_| of.next().copied().unwrap_or(true));
        let mut of = stays.iter();
        self.versions.retain(|_| of.next().copied().unwrap_or(true));
        self.silent = (before - self.list.len()) as u64;
    }
}
