//! Jepsen's `history.edn`: one operation map a line. Nothing is lost: reading it gives the same history.

use std::io::{self, Write};

use super::each_event;
use crate::event::{write_field_key, write_name};
use crate::history::{History, KeyForm, OpRef, Side, Status};
use crate::value::{push_int, write_str};

/// Writes a history as EDN, an event a line. O(bytes written); memory: the operations open at once.
///
/// Indices are written where the source had them or where the order was found by time; a source that had none and
/// was kept in its order gets none.
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
        out.push_str(":index ");
        let index = if invocation { Some(op.index()) } else { op.complete_index() };
        push_int(out, index.unwrap_or_default() as i64);
        out.push_str(", ");
    }
    if let Some(t) = if invocation { op.invoke_time() } else { op.complete_time() } {
        out.push_str(":time ");
        push_int(out, t);
        out.push_str(", ");
    }
    let said = if invocation { op.invoke_extras().find(|(n, _)| *n == "type").map(|(_, v)| v) } else { None };
    out.push_str(":type ");
    out.push_str(said.unwrap_or_else(|| type_name(op, invocation)));
    match (op.process(), op.actor()) {
        (Some(p), _) => {
            out.push_str(", :process ");
            push_int(out, p);
        }
        (None, Some(actor)) => {
            out.push_str(", :process ");
            write_name(actor, out);
        }
        (None, None) => {}
    }
    out.push_str(", :f ");
    match op.f() {
        Some(f) => write_name(f, out),
        None => out.push_str("nil"),
    }
    out.push_str(", :value ");
    if invocation {
        op.write_invoke_value(out);
    } else {
        op.write_complete_value(out);
    }
    if history.meta().keys == KeyForm::Field && op.key() != crate::columns::Scalar::Nil {
        out.push_str(", :key ");
        history.write_scalar(op.key(), out);
    }
    fields(history, op, invocation, out);
    out.push('}');
}

fn type_name(op: &OpRef<'_>, invocation: bool) -> &'static str {
    match (op.status(), invocation) {
        (Status::Info, true) if op.actor().is_some() => ":info",
        (_, true) => ":invoke",
        (Status::Ok, _) => ":ok",
        (Status::Fail, _) => ":fail",
        (Status::Info | Status::Pending, _) => ":info",
    }
}

fn fields(history: &History, op: &OpRef<'_>, invocation: bool, out: &mut String) {
    if invocation {
        if history.meta().epochs_recorded
            && let Some(epoch) = op.fault_epoch()
        {
            out.push_str(", :fault_epoch ");
            write_str(out, epoch);
        }
        op.invoke_extras().filter(|(n, _)| *n != "type").for_each(|(n, v)| field(n, v, out));
        return;
    }
    if let Some(error) = op.error() {
        field("error", error, out);
    }
    let noded = op.extras().any(|(n, _)| n == "node") || op.invoke_extras().any(|(n, _)| n == "node");
    if let (Some(node), false) = (op.node(), noded) {
        out.push_str(", :node ");
        write_str(out, node);
    }
    op.extras().for_each(|(n, v)| field(n, v, out));
}

fn field(key: &str, value: &str, out: &mut String) {
    out.push_str(", ");
    write_field_key(key, out);
    out.push(' ');
    out.push_str(value);
}
