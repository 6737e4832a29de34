//! Jepsen-shaped JSON, an event a line. What JSON has no word for (keywords, sets, characters, …) stands as
//! `{"~edn": "…"}`, so that reading it gives the same history.

use std::io::{self, Write};

use super::each_event;
use crate::Value;
use crate::columns::{ListRef, Scalar, ValueRef};
use crate::history::{History, KeyForm, OpRef, Side, Status, is_read};
use crate::json::events::EDN_FIELD;
use crate::json::value::{write_json, write_json_str as string_json};
use crate::value::push_int;

/// Writes a history as JSON Lines. O(bytes written); memory: the operations open at once.
///
/// # Errors
/// When writing fails.
pub fn write(history: &History, out: &mut dyn Write) -> io::Result<()> {
    each_event(history, out, event)
}

fn event(history: &History, op: &OpRef<'_>, side: Side, indexed: bool, out: &mut String) {
    let invocation = side == Side::Invocation;
    out.push('{');
    if indexed {
        let index = if invocation { Some(op.index()) } else { op.complete_index() };
        out.push_str("\"index\":");
        push_int(out, index.unwrap_or_default() as i64);
        out.push(',');
    }
    if let Some(t) = if invocation { op.invoke_time() } else { op.complete_time() } {
        out.push_str("\"time\":");
        push_int(out, t);
        out.push(',');
    }
    out.push_str("\"type\":\"");
    let said = if invocation { op.invoke_extras().find(|(n, _)| *n == "type").map(|(_, v)| v) } else { None };
    out.push_str(match (said.map(|s| s.trim_start_matches(':')), op.status(), invocation) {
        (Some(said), _, _) => said,
        (None, Status::Info, true) if op.actor().is_some() => "info",
        (None, _, true) => "invoke",
        (None, Status::Pending, false) => "info",
        (None, status, false) => status.name(),
    });
    out.push('"');
    if let Some(p) = op.process() {
        out.push_str(",\"process\":");
        push_int(out, p);
    } else if let Some(actor) = op.actor() {
        out.push_str(",\"process\":");
        string(actor, out);
    }
    out.push_str(",\"f\":");
    match op.f() {
        Some(f) => string(f, out),
        None => out.push_str("null"),
    }
    out.push_str(",\"value\":");
    op_value(history, op, invocation, out);
    if history.meta().keys == KeyForm::Field && op.key() != Scalar::Nil {
        out.push_str(",\"key\":");
        scalar(history, op.key(), out);
    }
    fields(history, op, invocation, out);
    out.push('}');
}

/// The value of an event: that of an invocation or of a completion.
pub(super) fn op_value(history: &History, op: &OpRef<'_>, invocation: bool, out: &mut String) {
    if let (false, Some(aside)) = (invocation, op.aside()) {
        return write_edn_as_json(aside, out);
    }
    let v = if invocation { op.raw_input() } else { op.raw_output() };
    match (v, op.txn()) {
        (ValueRef::Nil, Some(txn)) => {
            out.push('[');
            for (i, mop) in txn.iter().enumerate() {
                let name = op.mop_name(mop.f);
                out.push_str(if i > 0 { ",[" } else { "[" });
                super::stream::mop_name(name, out);
                out.push(',');
                scalar(history, mop.key, out);
                out.push(',');
                value(history, if invocation && is_read(name) { ValueRef::Nil } else { mop.value }, out);
                out.push(']');
            }
            out.push(']');
        }
        (v, _) if history.meta().keys == KeyForm::Tuple && op.key() != Scalar::Nil && !history.is_bare_nil(v) => {
            out.push('[');
            scalar(history, op.key(), out);
            out.push(',');
            value(history, v, out);
            out.push(']');
        }
        (v, _) => value(history, v, out),
    }
}

fn fields(history: &History, op: &OpRef<'_>, invocation: bool, out: &mut String) {
    let mut field = |name: &str, text: &str| {
        out.push(',');
        field_key(name, out);
        out.push(':');
        write_edn_as_json(text, out);
    };
    if invocation {
        if history.meta().epochs_recorded
            && let Some(epoch) = op.fault_epoch()
        {
            field("fault_epoch", &Value::str(epoch).to_edn());
        }
        op.invoke_extras().filter(|(n, _)| *n != "type").for_each(|(n, v)| field(n, v));
        return;
    }
    if let Some(error) = op.error() {
        field("error", error);
    }
    let noded = op.extras().any(|(n, _)| n == "node") || op.invoke_extras().any(|(n, _)| n == "node");
    if let (Some(node), false) = (op.node(), noded) {
        field("node", &Value::str(node).to_edn());
    }
    op.extras().for_each(|(n, v)| field(n, v));
}

/// A value as JSON.
pub(super) fn value(history: &History, v: ValueRef<'_>, out: &mut String) {
    match v {
        ValueRef::Nil => out.push_str("null"),
        ValueRef::Int(n) => push_int(out, n),
        ValueRef::Text(t) => write_edn_as_json(history.texts().get(t), out),
        ValueRef::List(list) => array(history, list, out),
        ValueRef::Set(_) => {
            let mut text = String::new();
            history.write_value(v, &mut text);
            write_edn_as_json(&text, out);
        }
    }
}

fn array(history: &History, list: ListRef<'_>, out: &mut String) {
    out.push('[');
    for (i, s) in list.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        scalar(history, s, out);
    }
    out.push(']');
}

/// A scalar as JSON.
pub(super) fn scalar(history: &History, s: Scalar, out: &mut String) {
    value(history, s.into(), out);
}

/// A further field's name as a JSON key, from which reading finds the name again.
pub(super) fn field_key(name: &str, out: &mut String) {
    let bare = if name.starts_with('"') { crate::edn::parse(name).ok() } else { Some(Value::str(name)) };
    match bare {
        Some(Value::Str(key)) if crate::json::events::field_name_of(&key) == name => string(&key, out),
        Some(key @ Value::Utf16(_)) => write_json(&key, out),
        _ => string(&format!("{EDN_FIELD}{name}"), out),
    }
}

/// A string as JSON.
pub(super) fn string(s: &str, out: &mut String) {
    string_json(s, out);
}

/// A value given as EDN text, as JSON.
pub(super) fn write_edn_as_json(edn: &str, out: &mut String) {
    match crate::edn::parse(edn) {
        Ok(value) => write_json(&value, out),
        // Texts of a history are EDN; should one not be, it is kept as the string that it is.
        Err(_) => string(edn, out),
    }
}
