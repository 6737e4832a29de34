//! What do Parquet files hold that have the fields of the default operation schema, a row a record?
//!
//! The files of pandas, DuckDB and Polars: rows become the records that [`schema`](crate::schema) makes events of, as
//! from JSON Lines. A file is one of these if it has `op_type`, and `process_id` or `op_id`, but not both `status` and
//! `f`, which the columnar form has. (`status` alone is a further field, and so is what `reset_index` calls `index`.)
//!
//! | Column | Value |
//! |---|---|
//! | integers of any width | the integer |
//! | floats | the integer, where it is whole and below 2^53 (pandas makes floats of integers with gaps); NaN is null; else the float |
//! | booleans, nulls | what they say |
//! | timestamps, durations | nanoseconds |
//! | strings, dictionaries of strings | the string as it stands; in `input` and `output` the value that a CSV cell with this text has, for a string column is the only one that holds values of mixed kinds; an empty one is the empty string |
//! | lists of any of these | a vector; strings within are strings |
//! | structs | a map of strings, without the fields that are null: a column's structs all have the same ones |
//! | maps | a map |
//!
//! `process_id` may be text, as in CSV. The labels of rows that pandas keeps (`__index_level_0__`) are left out.
//!
//! Cost: linear; memory is a row group's bytes, a batch, and one entry per process.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use bytes::Bytes;

use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, EventBatch, MopNames, NONE, Span, TextId};
use crate::json::cells::{Shredder, intern};
use crate::json::cursor::{Halt, Parse, Text};
use crate::json::events::{Who, whole_number};
use crate::json::feed;
use crate::schema::{FIELDS, Processes, Record, csv_cell, csv_flag, csv_who, keep_others, other_name};
use crate::value::{MAX_DEPTH, Value};

use super::parquet::{for_each_batch, parquet_schema};
use super::read::{Strings, in_column, ints, is_row_label, key_at, unsupported};
use super::schema::quote;

/// Does a Parquet file hold records of the default operation schema, and not the columnar form?
///
/// # Errors
/// When it is torn or damaged.
pub fn is_default_schema_parquet(bytes: &Bytes) -> Result<bool> {
    let schema = parquet_schema(bytes)?;
    let has = |name: &str| schema.column_with_name(name).is_some();
    Ok(has("op_type") && (has("process_id") || has("op_id")) && !(has("status") && has("f")))
}

/// Reads records from Parquet. Which fields are missing altogether is for others to judge; none of them is an error.
///
/// # Errors
/// When the file is torn or damaged, or a column is of a type that its field cannot have.
pub fn read_default_schema_parquet(bytes: Bytes, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<()> {
    let schema = parquet_schema(&bytes)?;
    let roles = roles(&schema)?;
    let mut batch = EventBatch::default();
    let mut rows = Rows::default();
    for_each_batch(bytes, &mut |columns, first| {
        let times = times(&roles, &columns)?;
        for i in 0..columns.num_rows() {
            let place = first + i as u64 + 1;
            if let Err(halt) = rows.push(&roles, &columns, &times, i, place, &mut batch) {
                feed::hand_over(&mut batch, sink)?;
                return Err(match halt {
                    Halt::Bad(e) => e.at(Place::Row(place)),
                    Halt::More | Halt::Odd => ReadError::new("this record is not sound").at(Place::Row(place)),
                });
            }
            feed::hand_over_if_full(&mut batch, sink)?;
        }
        Ok(())
    })?;
    feed::hand_over(&mut batch, sink)
}

/// What a column is.
enum Role {
    Process,
    Function,
    Invoked,
    Completed,
    TimedOut,
    Known(&'static str),
    Other(String),
    RowLabel,
}

fn roles(schema: &Schema) -> Result<Vec<Role>> {
    let mut seen = HashSet::new();
    let role = |name: &str| match FIELDS.iter().find(|f| **f == name) {
        Some(&"process_id") => Role::Process,
        Some(&"op_type") => Role::Function,
        Some(&"invoke_ts") => Role::Invoked,
        Some(&"complete_ts") => Role::Completed,
        Some(&"timeout_marker") => Role::TimedOut,
        Some(field) => Role::Known(field),
        None if is_row_label(name) => Role::RowLabel,
        None => Role::Other(other_name(&Text::Raw(name)).into_owned()),
    };
    let names = schema.fields().iter().map(|f| f.name().as_str());
    names
        .map(|name| match seen.insert(name) {
            true => Ok(role(name)),
            false => Err(ReadError::new(format!("the file has two columns `{name}`"))),
        })
        .collect()
}

/// The times of a batch, by column.
fn times(roles: &[Role], batch: &RecordBatch) -> Result<Vec<Option<Int64Array>>> {
    let named = roles.iter().zip(batch.columns()).map(|(role, array)| match role {
        Role::Invoked => ints(array).map_err(|e| in_column(e, "invoke_ts")),
        Role::Completed => ints(array).map_err(|e| in_column(e, "complete_ts")),
        _ => Ok(None),
    });
    named.collect()
}

fn time(column: &Option<Int64Array>, i: usize) -> Parse<Option<i64>> {
    match column.as_ref().filter(|a| a.is_valid(i)).map(|a| a.value(i)) {
        Some(NONE) => Err(ReadError::new("a time is beyond 63 bits of nanoseconds").into()),
        time => Ok(time),
    }
}

#[derive(Default)]
struct Rows {
    shredder: Shredder,
    processes: Processes,
    others: Vec<(TextId, Cell)>,
}

impl Rows {
    fn push(
        &mut self,
        roles: &[Role],
        columns: &RecordBatch,
        times: &[Option<Int64Array>],
        i: usize,
        place: u64,
        batch: &mut EventBatch,
    ) -> Parse<()> {
        let mut record = Record::at(place);
        self.others.clear();
        for ((role, array), times) in roles.iter().zip(columns.columns()).zip(times) {
            match role {
                Role::Process => record.process = who(array, i)?,
                Role::Function => record.f = function(array, i, batch)?,
                Role::Invoked => record.invoked = time(times, i)?,
                Role::Completed => record.completed = time(times, i)?,
                Role::TimedOut => record.timed_out = flag(array, i)?,
                Role::Known(field) => {
                    let mixed = matches!(*field, "input" | "output");
                    let value = self.cell(array, i, mixed, batch).map_err(|e| named(e, field))?;
                    if let Some(cell) = record.cell(field) {
                        *cell = value;
                    }
                }
                Role::Other(name) => {
                    let value = self.cell(array, i, false, batch).map_err(|e| named(e, name))?;
                    if value != Cell::Nil {
                        self.others.push((intern(batch, name)?, value));
                    }
                }
                Role::RowLabel => {}
            }
        }
        keep_others(&mut self.others);
        record.push(&self.others, &mut self.processes, batch)
    }

    /// A value; `mixed`: strings may stand for other values.
    fn cell(&mut self, array: &ArrayRef, i: usize, mixed: bool, batch: &mut EventBatch) -> Parse<Cell> {
        if let Some(text) = text_at(array, i) {
            return match mixed {
                true => csv_cell(text, batch, &mut self.shredder),
                false => Ok(Cell::Text(intern(batch, &quote(text))?)),
            };
        }
        if let Some(a) = array.as_primitive_opt::<Int64Type>() {
            return Ok(if a.is_valid(i) { Cell::Int(a.value(i)) } else { Cell::Nil });
        }
        if let Some(list) = array.as_list_opt::<i32>()
            && let Some(items) = list.values().as_primitive_opt::<Int64Type>()
            && items.null_count() == 0
            && list.is_valid(i)
        {
            let range = list.value_offsets()[i] as usize..list.value_offsets()[i + 1] as usize;
            let span = Span { start: batch.ints.len() as u32, len: range.len() as u32 };
            batch.ints.extend_from_slice(&items.values()[range]);
            return Ok(Cell::List(span));
        }
        let value = value(array, i, 0)?;
        Ok(batch.value(&value, MopNames::Strings))
    }
}

fn named(halt: Halt, name: &str) -> Halt {
    match halt {
        Halt::Bad(e) => in_column(*e, name).into(),
        other => other,
    }
}

/// The string in a column of strings or in a dictionary of such.
fn text_at(array: &ArrayRef, i: usize) -> Option<&str> {
    if let Some(strings) = Strings::of(array) {
        return strings.get(i);
    }
    let values = array.as_any_dictionary_opt()?.values();
    Strings::of(values)?.get(key_at(array, i)?)
}

fn who(array: &ArrayRef, i: usize) -> Parse<Who<'_>> {
    if let Some(text) = text_at(array, i) {
        return Ok(csv_who(text));
    }
    match value(array, i, 0)? {
        Value::Nil => Ok(Who::Unknown),
        Value::Int(n) if n != NONE => Ok(Who::Number(n)),
        other => Err(ReadError::new(format!("\"process_id\" is {other}, not a number or a name")).into()),
    }
}

fn function(array: &ArrayRef, i: usize, batch: &mut EventBatch) -> Parse<Option<TextId>> {
    match text_at(array, i) {
        Some(text) => Ok(Some(intern(batch, text)?)),
        None => match value(array, i, 0)? {
            Value::Nil => Ok(None),
            other => Err(ReadError::new(format!("\"op_type\" is {other}, not a string")).into()),
        },
    }
}

fn flag(array: &ArrayRef, i: usize) -> Parse<Option<bool>> {
    if let Some(text) = text_at(array, i) {
        return csv_flag(text).map(Some);
    }
    match value(array, i, 0)? {
        Value::Nil => Ok(None),
        Value::Int(0) => Ok(Some(false)),
        Value::Int(1) => Ok(Some(true)),
        Value::Bool(b) => Ok(Some(b)),
        other => Err(ReadError::new(format!("\"timeout_marker\" is {other}, not true or false")).into()),
    }
}

fn float(x: f64) -> Value {
    match whole_number(x) {
        Some(n) => Value::Int(n),
        None if x.is_nan() => Value::Nil,
        None => Value::Float(x),
    }
}

/// Any value of a column; `depth`: of the lists and structs that it stands in.
fn value(array: &ArrayRef, i: usize, depth: usize) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(ReadError::new(format!("values are nested deeper than {MAX_DEPTH}")));
    }
    if array.is_null(i) {
        return Ok(Value::Nil);
    }
    let all = |items: &ArrayRef| (0..items.len()).map(|j| value(items, j, depth + 1)).collect::<Result<Vec<_>>>();
    Ok(match array.data_type() {
        DataType::Null => Value::Nil,
        DataType::Boolean => Value::Bool(array.as_boolean().value(i)),
        DataType::Float16 => float(array.as_primitive::<Float16Type>().value(i).to_f64()),
        DataType::Float32 => float(f64::from(array.as_primitive::<Float32Type>().value(i))),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(i)),
        DataType::UInt64 => {
            Value::integer(&array.as_primitive::<UInt64Type>().value(i).to_string()).unwrap_or(Value::Nil)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => text_at(array, i).map_or(Value::Nil, Value::str),
        DataType::Dictionary(..) => match (array.as_any_dictionary_opt(), key_at(array, i)) {
            (Some(d), Some(key)) if key < d.values().len() => value(d.values(), key, depth + 1)?,
            _ => Value::Nil,
        },
        DataType::List(_) => Value::Vector(all(&array.as_list::<i32>().value(i))?),
        DataType::LargeList(_) => Value::Vector(all(&array.as_list::<i64>().value(i))?),
        DataType::FixedSizeList(..) => Value::Vector(all(&array.as_fixed_size_list().value(i))?),
        DataType::Struct(fields) => {
            let mut entries = Vec::with_capacity(fields.len());
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                match value(column, i, depth + 1)? {
                    Value::Nil => {}
                    value => entries.push((Value::str(field.name()), value)),
                }
            }
            Value::map(entries)
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(i);
            let (keys, values) = (all(entries.column(0))?, all(entries.column(1))?);
            Value::map(keys.into_iter().zip(values).collect())
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            return Err(ReadError::new("it is bytes, not text").hint("write strings as UTF-8 strings"));
        }
        _ => match ints(&array.slice(i, 1))? {
            Some(n) if n.is_valid(0) => Value::Int(n.value(0)),
            _ => return Err(unsupported("a value", array.data_type())),
        },
    })
}
