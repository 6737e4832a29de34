//! From a history of reads, writes and compare-and-sets to one problem a key. O(n).
//!
//! What each operation means: an `ok` one happened; a failed one did not, and is left out, but for a compare-and-set
//! where failing means that it saw another value ([`FailedCas::Observed`]); the outcome of all others is unknown, and
//! what they claim to have read says nothing. Operations without a key belong to the history of every key.

use std::sync::Arc;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};
use elench_formats::{History, Value as Edn};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Operation, Problem};
use crate::model::{Register, RegisterOp, Value};
use crate::outcome::{Coverage, KeyId, OpId};

/// What a compare-and-set that failed says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FailedCas {
    /// It did not happen, for whatever reason: Jepsen's meaning.
    #[default]
    DidNotHappen,
    /// It ran and found another value: the meaning in Porcupine's etcd logs.
    Observed,
}

/// How to read a history as registers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The value before the first write.
    pub initial: Edn,
    /// What a failed compare-and-set says.
    pub failed_cas: FailedCas,
}

impl Default for Options {
    fn default() -> Self {
        Options { initial: Edn::Nil, failed_cas: FailedCas::default() }
    }
}

/// A history as registers.
#[derive(Debug)]
pub struct Registers {
    /// One problem a key that has operations to order.
    pub problems: Vec<Problem<Register>>,
    /// The keys, as [`KeyId`] numbers them.
    pub keys: Vec<Scalar>,
    /// Operations that failed, and so are in no problem.
    pub failed: Coverage,
}

/// An operation that is none of a register's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Which.
    pub op: OpId,
    /// Why, a clause.
    pub why: String,
}

/// The name of a register's operation, if this is one.
pub fn register_function(f: &str) -> Option<&'static str> {
    match f {
        "read" | "r" => Some("read"),
        "write" | "w" => Some("write"),
        "cas" => Some("cas"),
        _ => None,
    }
}

/// Reads a history as registers, a problem a key.
///
/// # Errors
/// The first operation that is none of a register's, or lacks what it needs.
pub fn registers(history: &History, options: &Options) -> Result<Registers, Misfit> {
    let mut values = Values::new(history);
    let initial = values.edn(&options.initial);
    let index = history.key_index();
    let mut failed = Coverage::default();
    let mut read = |rows: &[u32]| -> Result<Vec<Operation<RegisterOp>>, Misfit> {
        let mut ops = Vec::with_capacity(rows.len());
        for &row in rows {
            let op = history.op(row as usize);
            match operation(history, &op, options.failed_cas, &mut values)? {
                Some(op) => ops.push(op),
                None => failed.count(op.f().unwrap_or("operation"), crate::outcome::Status::Fail, 1),
            }
        }
        Ok(ops)
    };
    let keyless = read(index.keyless())?;
    let mut per_key = Vec::with_capacity(index.len());
    for key in 0..index.len() {
        let mut ops = read(index.rows(key))?;
        ops.extend_from_slice(&keyless);
        per_key.push((Some(KeyId(key as u32)), ops));
    }
    if index.is_empty() {
        per_key.push((None, keyless));
    }
    let mut model = Register::new(initial);
    if let Some(names) = values.names() {
        model = model.with_names(names);
    }
    let problems = per_key
        .into_iter()
        .filter(|(_, ops)| !ops.is_empty())
        .map(|(key, ops)| Problem::new(key, model.clone(), ops))
        .collect::<Result<_, OpId>>()
        .map_err(|op| Misfit { op, why: "it completes before it is invoked".into() })?;
    Ok(Registers { problems, keys: index.keys().to_vec(), failed })
}

fn operation(
    history: &History,
    op: &OpRef<'_>,
    failed_cas: FailedCas,
    values: &mut Values<'_>,
) -> Result<Option<Operation<RegisterOp>>, Misfit> {
    let misfit = |why: String| Misfit { op: OpId(op.index()), why };
    let f = op.f().unwrap_or("nil");
    let kind = register_function(f).ok_or_else(|| misfit(format!("`{f}` is no operation of a register")))?;
    let ok = op.status() == Status::Ok;
    if op.status() == Status::Fail && !(kind == "cas" && failed_cas == FailedCas::Observed) {
        return Ok(None);
    }
    let register_op = match kind {
        "read" => RegisterOp::Read(ok.then(|| values.value(op.output()))),
        "write" => RegisterOp::Write(values.value(op.input())),
        _ => {
            let Some((old, new)) = cas_arguments(op) else {
                let mut text = String::new();
                history.write_value(op.input(), &mut text);
                return Err(misfit(format!("a cas needs [old new], not {text}")));
            };
            let (old, new) = (values.scalar(old), values.scalar(new));
            if op.status() == Status::Fail { RegisterOp::CasMismatch(old) } else { RegisterOp::Cas(old, new) }
        }
    };
    let known = matches!(op.status(), Status::Ok | Status::Fail);
    let ret = if known { op.complete_index() } else { None };
    Ok(Some(Operation { id: OpId(op.index()), call: op.index(), ret, op: register_op }))
}

fn cas_arguments(op: &OpRef<'_>) -> Option<(Scalar, Scalar)> {
    let list = op.input().elements()?;
    (list.len() == 2).then(|| (list.get(0), list.get(1)))
}

/// Values as the integers that the search runs on: integers stand for themselves where all of them do; else each
/// distinct value gets a number.
struct Values<'a> {
    history: &'a History,
    ids: Option<HashMap<Box<str>, i64, FixedState>>,
}

impl<'a> Values<'a> {
    fn new(history: &'a History) -> Self {
        let plain = |v: ValueRef<'_>| match v {
            ValueRef::Nil => true,
            // The two smallest integers are the model's own names for `nil` and `unseen`.
            ValueRef::Int(n) => n > Value::UNSEEN.0,
            ValueRef::List(l) => l.as_ints().is_some_and(|ints| ints.iter().all(|&n| n > Value::UNSEEN.0)),
            ValueRef::Text(_) | ValueRef::Set(_) => false,
        };
        let is_plain = |op: &OpRef<'_>| {
            let output = op.status() == Status::Ok && op.f().and_then(register_function) == Some("read");
            let is_cas = op.f() == Some("cas");
            let input = op.input();
            plain(input)
                && (is_cas || input.elements().is_none())
                && (!output || (plain(op.output()) && op.output().elements().is_none()))
        };
        let ids = if history.clients().all(|op| is_plain(&op)) { None } else { Some(HashMap::default()) };
        Values { history, ids }
    }

    fn scalar(&mut self, s: Scalar) -> Value {
        self.value(s.into())
    }

    fn value(&mut self, v: ValueRef<'_>) -> Value {
        match (v, &self.ids) {
            (ValueRef::Nil, _) => Value::NIL,
            (ValueRef::Int(n), None) => Value(n),
            _ => {
                let mut text = String::new();
                self.history.write_value(v, &mut text);
                self.named(text)
            }
        }
    }

    /// The initial value, which need not occur in the history.
    fn edn(&mut self, v: &Edn) -> Value {
        match (v, &self.ids) {
            (Edn::Nil, _) => Value::NIL,
            (Edn::Int(n), None) if *n > Value::UNSEEN.0 => Value(*n),
            // Every value of the history is a plain integer, and this is not one of them: any other integer will do.
            (_, None) => Value(Value::UNSEEN.0 + 1),
            _ => self.named(v.to_edn()),
        }
    }

    fn named(&mut self, text: String) -> Value {
        let ids = self.ids.get_or_insert_with(HashMap::default);
        let next = ids.len() as i64;
        Value(*ids.entry(text.into()).or_insert(next))
    }

    fn names(&self) -> Option<Arc<[Box<str>]>> {
        let ids = self.ids.as_ref()?;
        let mut names: Vec<(&Box<str>, &i64)> = ids.iter().collect();
        names.sort_unstable_by_key(|(_, id)| **id);
        Some(names.into_iter().map(|(name, _)| name.clone()).collect())
    }
}
