//! The default operation schema: a record an operation, as JSON Lines or CSV.
//!
//! The schema orders events by time, so a history without times is refused; where times tie, order is lost to the tie
//! rule. Beyond the eleven fields stand `status` where the eleven cannot tell it (a failure without an error, an answer
//! that says nothing) and whatever else the source carried.

use std::io::Write;

use super::json::{op_value, scalar, string, write_edn_as_json};
use crate::columns::Scalar;
use crate::error::{ReadError, Result};
use crate::history::{History, KeyForm, OpRef, Status};
use crate::json::cursor::Text;
use crate::json::events::EDN_FIELD;
use crate::schema::{FIELDS, is_bare_string, other_name};
use crate::value::{Value, push_int};

/// Writes a history as JSON Lines of records.
///
/// # Errors
/// When it has no times, or writing fails.
pub fn write_jsonl(history: &History, out: &mut dyn Write) -> Result<()> {
    check(history)?;
    let mut line = String::new();
    for op in history.ops() {
        line.clear();
        line.push('{');
        for (i, (name, json)) in record(history, &op).iter().enumerate() {
            if i > 0 {
                line.push(',');
            }
            string(name, &mut line);
            line.push(':');
            line.push_str(json);
        }
        line.push_str("}\n");
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Writes a history as CSV of records: the eleven fields, and a column each further field that occurs.
///
/// # Errors
/// When it has no times, or writing fails.
pub fn write_csv(history: &History, out: &mut dyn Write) -> Result<()> {
    check(history)?;
    let mut header: Vec<String> = FIELDS.iter().map(|f| f.to_string()).collect();
    for op in history.ops() {
        for (name, _) in record(history, &op) {
            if !header.contains(&name) {
                header.push(name);
            }
        }
    }
    let cannot = |e: csv::Error| ReadError::new(format!("cannot write: {e}"));
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(&header).map_err(cannot)?;
    for op in history.ops() {
        let record = record(history, &op);
        let cell = |name: &String| match name.as_str() {
            "op_type" => op.f().unwrap_or_default().to_string(),
            _ => record.iter().find(|(n, _)| n == name).map_or(String::new(), |(_, json)| csv_cell(json)),
        };
        csv.write_record(header.iter().map(cell)).map_err(cannot)?;
    }
    csv.flush()?;
    Ok(())
}

/// A CSV cell for a JSON text: nothing for null; a string bare, where it reads back as one.
fn csv_cell(json: &str) -> String {
    if json == "null" {
        return String::new();
    }
    let inner = json.strip_prefix('"').and_then(|j| j.strip_suffix('"'));
    match inner {
        Some(bare) if is_bare_string(bare) && !bare.contains('\\') => bare.to_string(),
        _ => json.to_string(),
    }
}

/// Refuses what the schema cannot say.
fn check(history: &History) -> Result<()> {
    let other = "convert to edn, jsonl, parquet or arrow instead";
    if let Some(op) = history.ops().find(|op| op.invoke_time().is_none()) {
        let what = format!("the default schema orders operations by time, and operation {} has none", op.index());
        return Err(ReadError::new(what).hint(other));
    }
    if let Some(op) = history.ops().find(|op| op.actor().is_some_and(|a| a != "nemesis")) {
        let what = format!("the default schema has clients and the nemesis, and operation {} is neither's", op.index());
        return Err(ReadError::new(what).hint(other));
    }
    Ok(())
}

/// Was the history recorded in this schema, where processes may have names?
fn is_named(history: &History) -> bool {
    matches!(history.meta().format.as_str(), "schema" | "csv")
}

/// The field's key, from which reading finds its name again, and takes it for no field of the schema.
fn key(name: &str) -> String {
    let bare = if name.starts_with('"') { crate::edn::parse(name).ok() } else { Some(Value::str(name)) };
    match bare {
        Some(Value::Str(key))
            if !FIELDS.contains(&&*key) && *key != *"status" && other_name(&Text::Raw(&key)) == name =>
        {
            key.to_string()
        }
        _ => format!("{EDN_FIELD}{name}"),
    }
}

/// The process, by the name that a source in this schema gave it.
fn process(history: &History, op: &OpRef<'_>) -> Option<String> {
    let number = op.process()?;
    let name = op.invoke_extras().find(|(name, _)| is_named(history) && *name == "process_id");
    Some(name.map_or_else(
        || number.to_string(),
        |(_, name)| {
            let mut json = String::new();
            write_edn_as_json(name, &mut json);
            json
        },
    ))
}

/// The fields of an operation, each as JSON text.
fn record(history: &History, op: &OpRef<'_>) -> Vec<(String, String)> {
    let json = |write: &dyn Fn(&mut String)| {
        let mut text = String::new();
        write(&mut text);
        text
    };
    let int = |n: Option<i64>| n.map_or("null".into(), |n| json(&|out| push_int(out, n)));
    let text = |s: Option<&str>| s.map_or("null".into(), |s| json(&|out| string(s, out)));
    let edn = |s: Option<&str>| s.map_or("null".into(), |s| json(&|out| write_edn_as_json(s, out)));
    let tuple = history.meta().keys == KeyForm::Tuple;
    // The invocation may bear one.
    let error = op.error().or_else(|| op.extra("error")).filter(|error| *error != "nil");
    let mut fields: Vec<(String, String)> = vec![
        ("op_id".into(), op.extra("op_id").map_or_else(|| op.index().to_string(), |id| edn(Some(id)))),
        ("process_id".into(), process(history, op).unwrap_or_else(|| text(op.actor()))),
        ("invoke_ts".into(), int(op.invoke_time())),
        ("complete_ts".into(), int(op.complete_time())),
        ("op_type".into(), text(op.f())),
        (
            "key".into(),
            if op.key() == Scalar::Nil { "null".into() } else { json(&|out| scalar(history, op.key(), out)) },
        ),
        (
            "input".into(),
            json(&|out| {
                if tuple { super::json::value(history, op.input(), out) } else { op_value(history, op, true, out) }
            }),
        ),
        (
            "output".into(),
            json(&|out| {
                if tuple { super::json::value(history, op.output(), out) } else { op_value(history, op, false, out) }
            }),
        ),
        ("error".into(), edn(error)),
        ("timeout_marker".into(), op.status().is_unknown().to_string()),
        ("node_seen".into(), op.node().map_or_else(|| edn(op.extra("node")), |node| text(Some(node)))),
        ("fault_epoch".into(), text(op.fault_epoch())),
    ];
    let implied = match op.status() {
        Status::Ok => error.is_none(),
        Status::Fail => error.is_some() && op.complete_time().is_some(),
        Status::Info => true,
        Status::Pending => false,
    };
    if !implied {
        fields.push(("status".into(), text(Some(op.status().name()))));
    }
    let told = ["op_id", "error", "node", if is_named(history) { "process_id" } else { "op_id" }];
    for (name, value) in op.extras().chain(op.invoke_extras()).filter(|(name, _)| !told.contains(name)) {
        let key = key(name);
        if !fields.iter().any(|(k, _)| *k == key) {
            let value = if value == "nil" { r#"{"~edn":"nil"}"#.into() } else { edn(Some(value)) };
            fields.push((key, value));
        }
    }
    fields
}
