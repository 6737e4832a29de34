//! From a history to problems of a model: what does each operation say?
//!
//! For every object the same holds. An `ok` operation happened, and what it says it returned is held against the model. A failed
//! one did not happen and is left out. The outcome of all others is unknown: they may have happened, and what they claim to have
//! returned says nothing. Each key has a problem of its own, to which operations without a key belong too. An operation
//! that is none of the object's, or lacks what it needs, is a [`Misfit`]: then nothing is decided rather than something
//! else.
//!
//! A reader knows the names that an object's operations bear in the field and the shapes of their values, and gives one operation
//! of the model for one of the history, or none where it says nothing. What it had to assume it says
//! ([`Reading::assumptions`]). O(n) for each.

use std::borrow::Cow;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};
use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Operation, Problem};
use crate::model::{AnyModel, Model, Table};
use crate::outcome::{Coverage, KeyId, OpId};

mod bank;
mod collections;
mod counter;
mod lists;
mod locks;
pub mod registers;
mod table;
#[cfg(test)]
mod tests;
mod transactions;
mod values;
mod versioned;

use values::Values;

/// What an acknowledged read of nil says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NilReads {
    /// The register was unset, if it can be; else nothing.
    #[default]
    IfPossible,
    /// The register was unset.
    Unset,
    /// Nothing.
    SayNothing,
}

/// An operation that is none of the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Which.
    pub op: OpId,
    /// Why, a clause.
    pub why: String,
}

/// An object that a history can be read as, but for plain registers ([`registers`]).
#[derive(Clone, Debug)]
pub enum Object {
    /// Transactions of reads and writes over many registers.
    MultiRegister,
    /// A register that counts its versions.
    VersionedRegister,
    /// Keys and values.
    Map,
    /// A lock without owners.
    Mutex,
    /// A lock with owners that may lock it again.
    ReentrantMutex,
    /// A lock with owners that gives tokens.
    FencedMutex,
    /// Permits.
    Semaphore,
    /// A lock that ends by itself.
    Lease,
    /// A number.
    Counter,
    /// First in, first out.
    FifoQueue,
    /// Smallest first out.
    PriorityQueue,
    /// Last in, first out.
    Stack,
    /// In any order out.
    UnorderedQueue,
    /// A set.
    Set,
    /// A set without removals.
    GrowSet,
    /// Entries with offsets.
    Log,
    /// A list that is appended to and read whole.
    AppendList,
    /// Balances and transfers.
    Bank,
    /// A user's own table of transitions.
    Table(Table),
}

/// How to read a history.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the object is before the first operation; nil: what is usual.
    pub initial: Edn,
    /// What an acknowledged read of nil says, where a register may be unset.
    pub nil_reads: NilReads,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { initial: Edn::Nil, nil_reads: NilReads::default() }
    }
}

/// Why a history was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No object of this kind can be so at first; why, a clause.
    Initial(String),
    /// An operation is none of the object's.
    Operation(Misfit),
}

/// A history as an object.
#[derive(Debug, Default)]
pub struct Reading {
    /// One problem a key that has operations to order.
    pub problems: Vec<Problem<AnyModel>>,
    /// EDN texts of the keys, as [`KeyId`] numbers them.
    pub keys: Vec<Box<str>>,
    /// Operations that are in no problem: those that failed, and those that say nothing.
    pub left_out: Coverage,
    /// Acknowledged operations that say nothing to this model.
    pub silent: u64,
    /// What was assumed, sentences.
    pub assumptions: Vec<String>,
}

/// Reads a history as an object.
///
/// # Errors
/// The first operation that does not fit, or an initial state that is none.
pub fn read(history: &History, object: &Object, settings: &Settings) -> Result<Reading, Unfit> {
    let initial = &settings.initial;
    let of_initial = Unfit::Initial;
    match object {
        Object::MultiRegister => {
            let nil_reads = settings.nil_reads;
            problems(history, transactions::Transactions::new(history, initial, nil_reads).map_err(of_initial)?)
        }
        Object::VersionedRegister => {
            problems(history, versioned::Versioned::new(history, initial).map_err(of_initial)?)
        }
        Object::Map => lists::map(history, settings),
        Object::Mutex => problems(history, locks::Plain::new(initial).map_err(of_initial)?),
        Object::ReentrantMutex => problems(history, locks::Owned::reentrant(history, initial).map_err(of_initial)?),
        Object::FencedMutex => problems(history, locks::Owned::fenced(history, initial).map_err(of_initial)?),
        Object::Semaphore => problems(history, locks::Permits::new(initial).map_err(of_initial)?),
        Object::Lease => problems(history, locks::Leases::new(history, initial).map_err(of_initial)?),
        Object::Counter => problems(history, counter::Counting::new(history, initial).map_err(of_initial)?),
        Object::FifoQueue => problems(history, collections::Queue::fifo(history, initial).map_err(of_initial)?),
        Object::PriorityQueue => problems(history, collections::Queue::priority(history, initial).map_err(of_initial)?),
        Object::Stack => problems(history, collections::Queue::stack(history, initial).map_err(of_initial)?),
        Object::UnorderedQueue => problems(history, collections::Queue::bag(history, initial).map_err(of_initial)?),
        Object::Set => problems(history, collections::Elements::new(history, initial, true).map_err(of_initial)?),
        Object::GrowSet => problems(history, collections::Elements::new(history, initial, false).map_err(of_initial)?),
        Object::Log => problems(history, lists::Entries::new(history, initial).map_err(of_initial)?),
        Object::AppendList => problems(history, lists::Lists::append_list(history, initial).map_err(of_initial)?),
        Object::Bank => problems(history, bank::Accounts::new(history, initial).map_err(of_initial)?),
        Object::Table(table) => problems(history, table::Cells(table.clone())),
    }
}

/// What an operation of a history says to a model.
struct Said<O> {
    /// The part of the object that it is about, where that is not the history's key.
    key: Option<Box<str>>,
    op: O,
}

impl<O> Said<O> {
    fn of(op: O) -> Result<Option<Self>, String> {
        Ok(Some(Said { key: None, op }))
    }
}

/// Reads operations of one kind of object.
trait Reader {
    type Model: Model<State: Send> + 'static;

    /// What an operation that did not fail says; none if nothing.
    ///
    /// # Errors
    /// Why it is none of the object's, a clause.
    fn read(&mut self, call: &Call<'_>) -> Result<Option<Said<<Self::Model as Model>::Op>>, String>;

    /// The model of what was read.
    fn model(&self, ops: &[Operation<<Self::Model as Model>::Op>]) -> Self::Model;

    /// What had to be assumed, sentences.
    fn assumptions(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An operation of a history that did not fail.
struct Call<'a> {
    history: &'a History,
    row: OpRef<'a>,
    f: &'a str,
    /// Did it happen, as far as is known?
    ok: bool,
}

impl<'a> Call<'a> {
    fn of(history: &'a History, row: OpRef<'a>) -> Self {
        Call { history, row, f: row.f().unwrap_or("nil"), ok: row.status() == Status::Ok }
    }

    /// What it sent.
    fn input(&self) -> Edn {
        edn(self.history, self.row.input())
    }

    /// What it received; nil when that is not known.
    fn output(&self) -> Edn {
        if self.ok { edn(self.history, self.row.output()) } else { Edn::Nil }
    }

    /// What it was about: what it sent or, where that is nothing, what its acknowledgement says.
    ///
    /// # Errors
    /// When the two contradict each other.
    fn argument(&self) -> Result<Edn, String> {
        let (input, output) = (self.input(), self.output());
        match (input, output) {
            (input, Edn::Nil) => Ok(input),
            (Edn::Nil, output) => Ok(output),
            (input, output) if input == output => Ok(input),
            (input, output) => {
                Err(format!("it was invoked with {} and acknowledged with {}", input.to_edn(), output.to_edn()))
            }
        }
    }

    fn none_of(&self, what: &str) -> String {
        format!("`{}` is no operation of {what}", self.f)
    }
}

/// The calls of clients that did not fail.
fn calls(history: &History) -> impl Iterator<Item = Call<'_>> {
    history.clients().filter(|op| op.status() != Status::Fail).map(|row| Call::of(history, row))
}

/// A value of a history as a tree.
fn edn(history: &History, v: ValueRef<'_>) -> Edn {
    let scalar = |s: Scalar| match s {
        Scalar::Nil => Edn::Nil,
        Scalar::Int(n) => Edn::Int(n),
        // What the history holds is EDN; were it none, it would be a text like any other.
        Scalar::Text(t) => elench_formats::edn::parse(history.texts().get(t)).unwrap_or_else(|_| {
            let text = history.texts().get(t);
            Edn::str(text)
        }),
    };
    match v {
        ValueRef::List(l) => Edn::Vector(l.iter().map(scalar).collect()),
        ValueRef::Set(l) => Edn::set(l.iter().map(scalar).collect()),
        v => v.scalar().map_or(Edn::Nil, scalar),
    }
}

/// The first entry of a map under any of these names.
fn field<'a>(map: &'a Edn, names: &[&str]) -> Option<&'a Edn> {
    names.iter().find_map(|name| map.get(name))
}

/// A function's name in one spelling: `Inc_and_get` is `inc-and-get`.
fn spelled(f: &str) -> Cow<'_, str> {
    if f.contains(|c: char| c == '_' || c.is_ascii_uppercase()) {
        Cow::Owned(f.replace('_', "-").to_ascii_lowercase())
    } else {
        Cow::Borrowed(f)
    }
}

/// Problems of a history, a key each.
fn problems<R: Reader>(history: &History, reader: R) -> Result<Reading, Unfit> {
    let mut gathered = Gathered { reader, groups: Vec::new() };
    let (keys, mut reading) = walk(history, &mut gathered).map_err(Unfit::Operation)?;
    for (key, ops) in keys.into_iter().zip(gathered.groups) {
        let (model, ops) = AnyModel::new(gathered.reader.model(&ops), ops);
        let early = |op| Unfit::Operation(Misfit { op, why: "it completes before it is invoked".into() });
        reading.problems.push(Problem::new(key, model, ops).map_err(early)?);
    }
    reading.assumptions = gathered.reader.assumptions();
    Ok(reading)
}

/// What the walk over a history gives its operations to, whatever the model: the walk is compiled once, not once a model.
trait Gather {
    /// Reads an operation and puts what it says into the group that `place` names for the part of the object it is about;
    /// false if it says nothing. Groups are numbered as they come.
    fn take(&mut self, call: &Call<'_>, place: &mut Placing<'_>) -> Result<bool, String>;
}

/// Numbers the parts of an object.
type Placing<'a> = dyn FnMut(Option<Box<str>>) -> usize + 'a;

/// Operations by the problem that they belong to.
struct Gathered<R: Reader> {
    reader: R,
    groups: Vec<Vec<Operation<<R::Model as Model>::Op>>>,
}

impl<R: Reader> Gather for Gathered<R> {
    fn take(&mut self, call: &Call<'_>, place: &mut Placing<'_>) -> Result<bool, String> {
        let Some(Said { key, op }) = self.reader.read(call)? else { return Ok(false) };
        let place = place(key);
        if place == self.groups.len() {
            self.groups.push(Vec::new());
        }
        let row = &call.row;
        let ret = if call.ok { row.complete_index() } else { None };
        let operation = Operation { id: OpId(row.index()), process: row.process(), call: row.index(), ret, op };
        self.groups[place].push(operation);
        Ok(true)
    }
}

/// Gathers a history's operations. Gives the keys of the groups, and what there is to say but for their problems.
fn walk(history: &History, gather: &mut dyn Gather) -> Result<(Vec<Option<KeyId>>, Reading), Misfit> {
    let index = history.key_index();
    let mut reading = Reading::default();
    let mut groups = Vec::new();
    let mut of_history = |key: Option<Scalar>, rows: &mut dyn Iterator<Item = &u32>| -> Result<(), Misfit> {
        let key = key.map(|key| text_of(history, key));
        let mut places: HashMap<Option<Box<str>>, usize, FixedState> = HashMap::default();
        let (keys, groups) = (&mut reading.keys, &mut groups);
        let mut place = |part: Option<Box<str>>| {
            *places.entry(part).or_insert_with_key(|part| {
                let name = match (&key, part) {
                    (key, None) => key.clone(),
                    (None, Some(part)) => Some(part.clone()),
                    (Some(key), Some(part)) => Some(format!("[{key} {part}]").into()),
                };
                groups.push(name.map(|name| {
                    keys.push(name);
                    KeyId(keys.len() as u32 - 1)
                }));
                groups.len() - 1
            })
        };
        for &row in rows {
            let row = history.op(row as usize);
            let mut left_out = |status| reading.left_out.count(row.f().unwrap_or("nil"), status, 1);
            if row.status() == Status::Fail {
                left_out(crate::outcome::Status::Fail);
                continue;
            }
            let call = Call::of(history, row);
            if !gather.take(&call, &mut place).map_err(|why| Misfit { op: OpId(row.index()), why })? {
                left_out(if call.ok { crate::outcome::Status::Ok } else { crate::outcome::Status::Info });
                reading.silent += u64::from(call.ok);
            }
        }
        Ok(())
    };
    for (i, &key) in index.keys().iter().enumerate() {
        of_history(Some(key), &mut index.rows(i).iter().chain(index.keyless()))?;
    }
    if index.is_empty() {
        of_history(None, &mut index.keyless().iter())?;
    }
    Ok((groups, reading))
}

fn text_of(history: &History, key: Scalar) -> Box<str> {
    let mut text = String::new();
    history.write_scalar(key, &mut text);
    text.into()
}

/// Why an initial state is none.
fn no_initial(initial: &Edn, wanted: &str) -> String {
    format!("{} is not {wanted}", initial.to_edn())
}
