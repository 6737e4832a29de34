//! From a history of reads, writes and compare-and-sets to one problem a key. O(n).
//!
//! What each operation means: an `ok` one happened; a failed one did not, and is left out, but for a compare-and-set
//! where failing means that it saw another value ([`FailedCas::Observed`]); the outcome of all others is unknown, and
//! what they claim to have read says nothing. Operations without a key belong to the history of every key.
//!
//! A read that returned nil saw an unset register, where a register can be unset: initially, or as somebody wrote nil.
//! Where it cannot, nil is taken for a client that got no value, as Knossos does, and the read says nothing; how many such
//! there were is reported, so that nobody mistakes silence for evidence.

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};
use elench_formats::{History, Value as Edn};

use super::values::{Values, is_plain, is_plain_value};
pub use super::{Misfit, NilReads};
use crate::linear::{Operation, Problem};
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
    /// What an acknowledged read of nil says.
    pub nil_reads: NilReads,
    /// Has the register a compare-and-set?
    pub cas: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { initial: Edn::Nil, failed_cas: FailedCas::default(), nil_reads: NilReads::default(), cas: true }
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
    /// Acknowledged reads of nil that were taken to say nothing.
    pub silent_reads: u64,
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
    let mut values = Values::new(history, &options.initial, plain);
    let initial = values.edn(&options.initial);
    let index = history.key_index();
    let (mut failed, mut silent_reads) = (Coverage::default(), 0);
    let mut read = |keyed: &[u32], keyless: &[u32]| -> Result<Vec<Operation<RegisterOp>>, Misfit> {
        let rows = || keyed.iter().chain(keyless).map(|&row| row as usize);
        let nil_says_nothing = match options.nil_reads {
            NilReads::Unset => false,
            NilReads::SayNothing => true,
            NilReads::IfPossible => options.initial != Edn::Nil && !rows().any(|row| writes_nil(&history.op(row))),
        };
        let mut ops = Vec::with_capacity(keyed.len() + keyless.len());
        for row in rows() {
            let op = history.op(row);
            match operation(history, &op, options, &mut values)? {
                Some(read) if nil_says_nothing && read.op == RegisterOp::Read(Some(Value::NIL)) => silent_reads += 1,
                Some(op) => ops.push(op),
                None => failed.count(op.f().unwrap_or("operation"), crate::outcome::Status::Fail, 1),
            }
        }
        Ok(ops)
    };
    let mut per_key = Vec::with_capacity(index.len());
    for key in 0..index.len() {
        per_key.push((Some(KeyId(key as u32)), read(index.rows(key), index.keyless())?));
    }
    if index.is_empty() {
        per_key.push((None, read(&[], index.keyless())?));
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
    Ok(Registers { problems, keys: index.keys().to_vec(), failed, silent_reads })
}

/// Does an operation write nil, or may it have?
fn writes_nil(op: &OpRef<'_>) -> bool {
    let wrote = match op.f().and_then(register_function) {
        Some("write") => written(op).is_none_or(|v| v.is_nil()),
        Some("cas") => cas_arguments(op).is_some_and(|(_, new)| new == Scalar::Nil),
        _ => false,
    };
    wrote && op.status() != Status::Fail
}

/// What a write wrote: what it was invoked with, or, where that was nothing, what its acknowledgement says. `None` where
/// the two contradict each other.
fn written<'a>(op: &OpRef<'a>) -> Option<ValueRef<'a>> {
    match (op.input(), op.output()) {
        (input, output) if op.status() != Status::Ok || output.is_nil() || input == output => Some(input),
        (input, output) if input.is_nil() => Some(output),
        _ => None,
    }
}

fn operation(
    history: &History,
    op: &OpRef<'_>,
    options: &Options,
    values: &mut Values<'_>,
) -> Result<Option<Operation<RegisterOp>>, Misfit> {
    let misfit = |why: String| Misfit { op: OpId(op.index()), why };
    let f = op.f().unwrap_or("nil");
    let kind = register_function(f).ok_or_else(|| misfit(format!("`{f}` is no operation of a register")))?;
    if kind == "cas" && !options.cas {
        return Err(misfit("`cas` is no operation of a plain register".into()));
    }
    let ok = op.status() == Status::Ok;
    if op.status() == Status::Fail && !(kind == "cas" && options.failed_cas == FailedCas::Observed) {
        return Ok(None);
    }
    let register_op = match kind {
        "read" => RegisterOp::Read(ok.then(|| values.value(op.output()))),
        "write" => {
            let value =
                written(op).ok_or_else(|| misfit("it was acknowledged with another value than it wrote".into()))?;
            RegisterOp::Write(values.value(value))
        }
        _ => {
            let Some((old, new)) = cas_arguments(op) else {
                let mut text = String::new();
                history.write_value(op.input(), &mut text);
                return Err(misfit(format!("a cas needs [old new], not {text}")));
            };
            if ok && !acknowledges_cas(history, op) {
                return Err(misfit("a cas was acknowledged with something else than what it was to do".into()));
            }
            let (old, new) = (values.scalar(old), values.scalar(new));
            if op.status() == Status::Fail { RegisterOp::CasMismatch(old) } else { RegisterOp::Cas(old, new) }
        }
    };
    let known = matches!(op.status(), Status::Ok | Status::Fail);
    let ret = if known { op.complete_index() } else { None };
    Ok(Some(Operation { id: OpId(op.index()), process: op.process(), call: op.index(), ret, op: register_op }))
}

/// Does an ok cas say nothing, `true`, or what it was invoked with?
fn acknowledges_cas(history: &History, op: &OpRef<'_>) -> bool {
    match op.output() {
        ValueRef::Nil => true,
        ValueRef::Text(t) => history.texts().get(t) == "true",
        said => said == op.input(),
    }
}

fn cas_arguments(op: &OpRef<'_>) -> Option<(Scalar, Scalar)> {
    let list = op.input().elements()?;
    (list.len() == 2).then(|| (list.get(0), list.get(1)))
}

/// Is all that the operation says of values plain?
fn plain(op: &OpRef<'_>) -> bool {
    let output = op.status() == Status::Ok && op.f().and_then(register_function) == Some("read");
    let is_cas = op.f() == Some("cas");
    let input = if is_cas { op.input() } else { written(op).unwrap_or(ValueRef::Nil) };
    (if is_cas { is_plain(input) } else { is_plain_value(input) }) && (!output || is_plain_value(op.output()))
}
