//! What does an operation on logs say?
//!
//! Sends alone are transactions in the columns; polls, and sends beside polls, are lists of texts, as their micro-operations are of
//! different lengths. Both are handed out as they stand. What looked keyed to the reader of the history (two polls are a vector
//! of two) is put together again.

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};

use super::scan::{self, Sends, Sink, Val};

/// What an operation is to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Sends, polls, or both.
    Send,
    Poll,
    Txn,
    /// Chooses the partitions to poll.
    Assign,
    /// Lets the system choose them.
    Subscribe,
    /// Throws a client away.
    Crash,
}

pub(super) const WHATS: [(What, &str); 6] = [
    (What::Send, "send"),
    (What::Poll, "poll"),
    (What::Txn, "txn"),
    (What::Assign, "assign"),
    (What::Subscribe, "subscribe"),
    (What::Crash, "crash"),
];

impl What {
    pub(super) fn of(name: &str) -> Option<What> {
        WHATS.iter().find(|(_, n)| *n == name).map(|(what, _)| *what)
    }

    /// Does it send or poll?
    pub(super) fn is_data(self) -> bool {
        matches!(self, What::Send | What::Poll | What::Txn)
    }
}

/// Hands out what an operation sent and polled; an error says what of it is neither.
pub(super) fn operation(op: &OpRef<'_>, sink: &mut impl Sink) -> Result<(), String> {
    if op.key() != Scalar::Nil {
        return keyed(op, sink);
    }
    let done = match (op.output(), op.txn()) {
        (ValueRef::Nil, Some(_)) => transaction(op, sink),
        (ValueRef::Nil, None) => value(op, op.input(), Sends::Invoked, sink),
        (output, _) => {
            // A completion that repeats its invocation acknowledges no offset.
            let sends = if output == op.input() { Sends::Invoked } else { Sends::Completed };
            value(op, output, sends, sink)
        }
    };
    done.ok_or_else(|| refusal(op))
}

fn value(op: &OpRef<'_>, value: ValueRef<'_>, sends: Sends, sink: &mut impl Sink) -> Option<()> {
    match value {
        ValueRef::Nil => Some(()),
        ValueRef::Text(text) => scan::operations(op.text(text), sends, sink),
        ValueRef::List(list) => list.iter().try_for_each(|item| match item {
            Scalar::Text(text) => scan::operation(op.text(text), sends, sink),
            _ => None,
        }),
        ValueRef::Int(_) | ValueRef::Set(_) => None,
    }
}

fn transaction(op: &OpRef<'_>, sink: &mut impl Sink) -> Option<()> {
    // Nothing beside the transaction says that invocation and completion are the same.
    let mut sends =
        if op.status() == Status::Pending || op.input().is_nil() { Sends::Invoked } else { Sends::Completed };
    for mop in op.txn()?.iter() {
        let name = op.mop_name(mop.f);
        if name == "poll" && mop.key == Scalar::Nil && mop.value.is_nil() {
            continue;
        }
        if name != "send" {
            return None;
        }
        let key = scalar(op, mop.key);
        match mop.value {
            ValueRef::List(list) if list.len() == 2 => {
                if sends == Sends::Invoked && invoked_nothing(op) {
                    sends = Sends::Completed;
                }
                match (sends, list.get(0)) {
                    (Sends::Completed, Scalar::Int(n)) => sink.send(key, Some(n), scalar(op, list.get(1))),
                    (Sends::Completed, Scalar::Nil) => sink.send(key, None, scalar(op, list.get(1))),
                    _ => shapely(op, key, mop.value, sink),
                }
            }
            ValueRef::List(_) | ValueRef::Set(_) => shapely(op, key, mop.value, sink),
            plain => sink.send(key, None, scalar(op, plain.scalar().unwrap_or(Scalar::Nil))),
        }
    }
    Some(())
}

/// Was it invoked without a value, and completed with one?
fn invoked_nothing(op: &OpRef<'_>) -> bool {
    let mut text = String::new();
    op.write_invoke_value(&mut text);
    text == "nil"
}

/// Sends a message that is a collection.
fn shapely(op: &OpRef<'_>, key: Val<'_>, value: ValueRef<'_>, sink: &mut impl Sink) {
    let mut text = String::new();
    op.write_value(value, &mut text);
    sink.send(key, None, Val::Text(&text));
}

fn scalar<'a>(op: &OpRef<'a>, scalar: Scalar) -> Val<'a> {
    match scalar {
        Scalar::Nil => Val::Text("nil"),
        Scalar::Int(n) => Val::Int(n),
        Scalar::Text(text) => Val::Text(op.text(text)),
    }
}

fn keyed(op: &OpRef<'_>, sink: &mut impl Sink) -> Result<(), String> {
    let (mut invoked, mut completed) = (String::new(), String::new());
    op.write_invoke_value(&mut invoked);
    op.write_complete_value(&mut completed);
    let done = match completed == "nil" || completed == invoked {
        true => scan::operations(&invoked, Sends::Invoked, sink),
        false => scan::operations(&completed, Sends::Completed, sink),
    };
    done.ok_or_else(|| refusal(op))
}

#[cold]
fn refusal(op: &OpRef<'_>) -> String {
    let mut text = String::new();
    op.write_complete_value(&mut text);
    let shown: String = text.chars().take(120).collect();
    let f = op.f().unwrap_or("nil");
    format!("operation {} ({f} {shown}) is no vector of [:send k v] and [:poll {{k [[offset v] …]}}]", op.index())
}

/// The keys that an assignment names; none where it is no vector.
pub(super) fn assigned(op: &OpRef<'_>, mut take: impl FnMut(Val<'_>)) -> Option<()> {
    let mut text = String::new();
    match (op.output(), op.key()) {
        (ValueRef::Nil, Scalar::Nil) => op.write_invoke_value(&mut text),
        _ => op.write_complete_value(&mut text),
    }
    if text == "nil" {
        return Some(());
    }
    if let Some(set) = text.strip_prefix('#') {
        text = format!("[{}]", set.trim_start_matches('{').trim_end_matches('}'));
    }
    scan::elements(&text).map(|keys| keys.into_iter().for_each(&mut take))
}

/// The partitions that moved between consumers while an operation ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// These, by name.
    Keys(Vec<String>),
    /// Nobody says which.
    Unknown,
}

/// What an operation's `:rebalance-log` says, if it is not empty: a vector of events `{:keys [k …]}`.
pub(super) fn rebalanced(op: &OpRef<'_>) -> Option<Moved> {
    let text = op.extra("rebalance-log").filter(|text| !matches!(*text, "nil" | "[]"))?;
    let keys = || {
        let log = elench_formats::edn::parse(text).ok()?;
        let mut keys = Vec::new();
        for event in log.as_vector()? {
            keys.extend(event.get("keys")?.as_vector()?.iter().map(elench_formats::Value::to_edn));
        }
        Some(keys)
    };
    Some(keys().map_or(Moved::Unknown, Moved::Keys))
}
