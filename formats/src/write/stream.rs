//! Histories that come as events and need not be held: straight from batches to text, in memory of a batch.
//!
//! What is written is what [`edn`](super::edn) and [`json`](super::json) would write for the history that the events make.

use std::io::{self, Write};

use super::json::{string, write_edn_as_json};
use crate::event::{Cell, EventBatch, NONE, Process, STRING_MOPS, is_keyword_name};
use crate::value::{push_int, write_str};

/// Appends a batch as EDN, an event a line.
///
/// # Errors
/// When writing fails.
pub fn edn(batch: &EventBatch, out: &mut dyn Write) -> io::Result<()> {
    let mut line = String::new();
    let mut extras = batch.extras.iter().peekable();
    for i in 0..batch.len() {
        line.clear();
        line.push('{');
        for (label, n) in [(":index ", batch.index[i]), (":time ", batch.time[i])] {
            if n != NONE {
                line.push_str(label);
                push_int(&mut line, n);
                line.push_str(", ");
            }
        }
        line.push_str(":type :");
        line.push_str(batch.kind[i].name());
        match batch.process[i] {
            Process::Client(p) => {
                line.push_str(", :process ");
                push_int(&mut line, p);
            }
            Process::Actor(a) => {
                line.push_str(", :process ");
                edn_name(batch.texts.get(a), &mut line);
            }
            Process::Unknown => {}
        }
        line.push_str(", :f ");
        match batch.f[i] {
            Some(f) => edn_name(batch.texts.get(f), &mut line),
            None => line.push_str("nil"),
        }
        line.push_str(", :value ");
        batch.write_edn(batch.value[i], &mut line);
        while let Some(extra) = extras.next_if(|e| e.row as usize == i) {
            line.push_str(", ");
            let name = batch.texts.get(extra.name);
            line.push_str(if is_keyword_name(name) { ":" } else { "" });
            line.push_str(name.trim_start_matches('\''));
            line.push(' ');
            batch.write_edn(extra.value, &mut line);
        }
        line.push_str("}\n");
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn edn_name(name: &str, out: &mut String) {
    if is_keyword_name(name) {
        out.push(':');
        out.push_str(name);
    } else {
        write_str(out, name);
    }
}

/// Appends a batch as JSON Lines.
///
/// # Errors
/// When writing fails.
pub fn jsonl(batch: &EventBatch, out: &mut dyn Write) -> io::Result<()> {
    let mut line = String::new();
    let mut extras = batch.extras.iter().peekable();
    for i in 0..batch.len() {
        line.clear();
        line.push('{');
        for (label, n) in [("\"index\":", batch.index[i]), ("\"time\":", batch.time[i])] {
            if n != NONE {
                line.push_str(label);
                push_int(&mut line, n);
                line.push(',');
            }
        }
        line.push_str("\"type\":");
        string(batch.kind[i].name(), &mut line);
        match batch.process[i] {
            Process::Client(p) => {
                line.push_str(",\"process\":");
                push_int(&mut line, p);
            }
            Process::Actor(a) => {
                line.push_str(",\"process\":");
                string(batch.texts.get(a), &mut line);
            }
            Process::Unknown => {}
        }
        line.push_str(",\"f\":");
        match batch.f[i] {
            Some(f) => string(batch.texts.get(f), &mut line),
            None => line.push_str("null"),
        }
        line.push_str(",\"value\":");
        cell(batch, batch.value[i], &mut line);
        while let Some(extra) = extras.next_if(|e| e.row as usize == i) {
            line.push(',');
            string(batch.texts.get(extra.name), &mut line);
            line.push(':');
            cell(batch, extra.value, &mut line);
        }
        line.push_str("}\n");
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Appends a cell as JSON.
fn cell(batch: &EventBatch, c: Cell, out: &mut String) {
    match c {
        Cell::Nil => out.push_str("null"),
        Cell::Int(n) => push_int(out, n),
        Cell::Text(id) => write_edn_as_json(batch.texts.get(id), out),
        Cell::List(span) => crate::event::write_joined(out, &batch.ints[span.range()], ("[", ",", "]")),
        Cell::Set(_) => {
            let mut text = String::new();
            batch.write_edn(c, &mut text);
            write_edn_as_json(&text, out);
        }
        Cell::Seq(span) => {
            out.push('[');
            for (i, &item) in batch.cells[span.range()].iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                cell(batch, item, out);
            }
            out.push(']');
        }
        Cell::Txn(span) => {
            out.push('[');
            for (i, mop) in batch.mops[span.range()].iter().enumerate() {
                out.push_str(if i > 0 { ",[" } else { "[" });
                mop_name(batch.texts.get(mop.f), out);
                out.push(',');
                cell(batch, mop.key, out);
                out.push(',');
                cell(batch, mop.value, out);
                out.push(']');
            }
            out.push(']');
        }
    }
}

/// The name of a micro-operation: a string where reading takes it for one, else a keyword.
pub(super) fn mop_name(name: &str, out: &mut String) {
    if STRING_MOPS.contains(&name) { string(name, out) } else { write_edn_as_json(&format!(":{name}"), out) }
}
