//! From Arrow record batches, ours or anyone's, to chunks of a history.
//!
//! What already is what a chunk needs is used where it lies: integers, codes of a dictionary whose order is the pool's.
//! All else is mapped: each dictionary once into the pools, then rows through a table. Files of others may leave out
//! optional columns, and write integers of any width, strings of any kind, large lists, and columns of nulls. Their
//! columns that histories do not have become further fields (`extra`) where they are integers, floats, booleans or
//! strings, as EDN text; others are passed over, and so are the row labels of pandas.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::columns::{
    ExtraBuilder, ExtraCol, ListBuilder, ListCol, Scalar, ScalarBuilder, ScalarCol, TxnCol, ValueCol,
};
use crate::error::{Place, ReadError, Result};
use crate::event::{Cell, Span};
use crate::history::{Chunk, KeyForm, Meta, Order, Shared, Status};
use crate::json::events::field_name_of;
use crate::lists::ListArena;
use crate::text::TextPool;
use crate::value::Value;

use super::parquet::COLUMNS;
use super::schema::{SHAPE, TEXT, quote};
use super::{ReadOptions, check};

/// What a dictionary's strings are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Name,
    Plain,
    Edn,
}

/// The pools that ids of decoded chunks refer to.
#[derive(Default)]
pub(super) struct Pools {
    functions: TextPool,
    names: TextPool,
    texts: TextPool,
    /// The last dictionary of each column, kept alive so that its address stays its own, and what it maps to.
    tables: HashMap<String, (ArrayRef, Arc<Table>)>,
    /// Where lists that transactions read are held once, if they are copied at all.
    shared_lists: Option<ListArena>,
}

/// What each code of a dictionary means.
struct Table {
    values: Vec<Scalar>,
    /// Code i is text i.
    identity: bool,
    ints: bool,
    nils: bool,
}

/// The columns of a file, found by name.
pub(super) struct Decoder {
    columns: HashMap<String, usize>,
    fields: Vec<Arc<Field>>,
    has_index: bool,
    /// Columns of others that become further fields: their names in `extra`, and positions.
    further: Vec<(String, usize)>,
}

impl Decoder {
    /// For these columns; of a file of others (`foreign`), unknown simple ones become further fields.
    pub(super) fn new(schema: &Schema, foreign: bool) -> Result<Decoder> {
        let mut columns = HashMap::new();
        for (i, field) in schema.fields().iter().enumerate() {
            if columns.insert(field.name().clone(), i).is_some() {
                return Err(ReadError::new(format!("the file has two columns `{}`", field.name())));
            }
        }
        let missing: Vec<&str> = ["status", "f"].into_iter().filter(|c| !columns.contains_key(*c)).collect();
        if !missing.is_empty() {
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).take(20).collect();
            return Err(ReadError::new(format!(
                "no column `{}`; the file has: {}",
                missing.join("`, no column `"),
                names.join(", ")
            ))
            .hint("the columnar form needs at least `status` and `f`, a row an operation"));
        }
        let has_index = columns.contains_key("index") && columns.contains_key("complete_index");
        let further = schema.fields().iter().enumerate().filter(|(_, f)| foreign && is_simple(f));
        let further = further.map(|(i, f)| (field_name_of(f.name()).into_owned(), i)).collect();
        Ok(Decoder { columns, fields: schema.fields().to_vec(), has_index, further })
    }

    /// Does a column become a further field?
    pub(super) fn is_further(&self, field: &Field) -> bool {
        self.columns.get(field.name()).is_some_and(|i| self.further.iter().any(|(_, at)| at == i))
    }

    fn column<'a>(&'a self, batch: &'a RecordBatch, name: &str) -> Option<(&'a ArrayRef, &'a Field)> {
        let &i = self.columns.get(name)?;
        Some((batch.column(i), &self.fields[i]))
    }

    /// A batch as a chunk; `row` is the file's row of its first.
    pub(super) fn chunk(&self, batch: &RecordBatch, pools: &mut Pools, row: u64) -> Result<Chunk> {
        let rows = batch.num_rows();
        let ints = |name: &str| match self.column(batch, name) {
            Some((array, _)) => ints(array).map_err(|e| in_column(e, name)),
            None => Ok(None),
        };
        let indices = |name: &str| match self.column(batch, name) {
            Some((array, _)) if self.has_index => indices(array).map_err(|e| in_column(e, name)),
            _ => Ok(None),
        };
        let actor = pools.functions(self, batch, "actor")?;
        let f = pools.functions(self, batch, "f")?.unwrap_or_else(|| UInt16Array::new_null(rows));
        let status = self.status(batch, row)?;
        let (invoke_time, complete_time) = (ints("invoke_time")?, ints("complete_time")?);
        let index = match indices("index")? {
            None if self.has_index && rows > 0 => return Err(no_index(row)),
            Some(a) if a.null_count() > 0 => {
                return Err(no_index(row + (0..rows).find(|&i| a.is_null(i)).unwrap_or(0) as u64));
            }
            Some(a) => a,
            None => UInt64Array::from_iter_values((0..rows as u64).map(|i| 2 * (row + i))),
        };
        let complete_index = match indices("complete_index")? {
            Some(a) => a,
            None if self.has_index => UInt64Array::new_null(rows),
            None => completions(&status, &complete_time, &actor, row),
        };
        let chunk = Chunk {
            index,
            complete_index,
            process: ints("process")?.unwrap_or_else(|| Int64Array::new_null(rows)),
            actor,
            status,
            f,
            invoke_time,
            complete_time,
            key: match self.column(batch, "key") {
                Some((array, field)) => pools.scalars("key", array, kind(field))?,
                None => ScalarCol::default(),
            },
            input: self.values(batch, pools, "input")?,
            output: self.values(batch, pools, "output")?,
            txn: match self.column(batch, "txn") {
                Some((array, _)) => pools.txns(array).map_err(|e| in_column(e, "txn"))?,
                None => None,
            },
            error: self.ids(batch, pools, "error", None)?,
            node: self.ids(batch, pools, "node", Some(Kind::Name))?,
            fault_epoch: self.ids(batch, pools, "fault_epoch", Some(Kind::Name))?,
            extra: self.with_further(batch, pools)?,
            invoke_extra: self.extras(batch, pools, "invoke_extra")?,
        };
        for (name, col, rows) in [("input", &chunk.input, rows), ("output", &chunk.output, rows)] {
            one_shape(col, rows).map_err(|i| {
                ReadError::new(format!("column `{name}` has two values in one row"))
                    .at(Place::Row(row + i as u64 + 1))
                    .hint("a value is a scalar, a list, or a set")
            })?;
        }
        Ok(chunk)
    }

    fn status(&self, batch: &RecordBatch, row: u64) -> Result<ScalarBuffer<u8>> {
        let Some((array, _)) = self.column(batch, "status") else { return Ok(ScalarBuffer::from(Vec::new())) };
        let bad = |i: usize, text: &str| {
            ReadError::new(format!("status {text} is none of ok, fail, info, pending"))
                .at(Place::Row(row + i as u64 + 1))
        };
        let code = |text: Option<&str>| match text {
            Some("ok") => 0,
            Some("fail") => 1,
            Some("info") => 2,
            Some("pending") => 3,
            _ => u8::MAX,
        };
        if array.logical_null_count() > 0 || array.data_type() == &DataType::Null {
            let i = array.logical_nulls().and_then(|n| (0..n.len()).find(|&i| n.is_null(i))).unwrap_or(0);
            return if array.is_empty() { Ok(ScalarBuffer::from(Vec::new())) } else { Err(bad(i, "null")) };
        }
        let out: ScalarBuffer<u8> = match array.as_any_dictionary_opt() {
            Some(dictionary) => {
                let values =
                    Strings::of(dictionary.values()).ok_or_else(|| unsupported("status", array.data_type()))?;
                let table: Vec<u8> = (0..values.len()).map(|i| code(values.get(i))).collect();
                let identity = table.iter().enumerate().all(|(i, &c)| i == usize::from(c));
                match array.as_dictionary_opt::<Int8Type>() {
                    Some(d) if identity => ScalarBuffer::from(d.keys().values().inner().clone()),
                    _ => map_keys(array, &table, u8::MAX)?.into(),
                }
            }
            None => {
                let strings = Strings::of(array).ok_or_else(|| unsupported("status", array.data_type()))?;
                (0..strings.len()).map(|i| code(strings.get(i))).collect()
            }
        };
        // A fold, not a search: it is a vector instruction for each 16 rows.
        if out.iter().fold(0, |max, &c| max.max(c)) > Status::Pending as u8 {
            let i = out.iter().position(|&c| c > Status::Pending as u8).unwrap_or(0);
            return Err(bad(i, &string_at(array, i)));
        }
        Ok(out)
    }

    fn values(&self, batch: &RecordBatch, pools: &mut Pools, name: &str) -> Result<ValueCol> {
        let mut out = ValueCol::default();
        for (suffix, shape) in [("", None), ("_list", Some("list")), ("_set", Some("set"))] {
            let slot = format!("{name}{suffix}");
            let Some((array, field)) = self.column(batch, &slot) else { continue };
            let shape = shape.or(field.metadata().get(SHAPE).map(String::as_str));
            if !is_list(array.data_type()) {
                if suffix.is_empty() {
                    out.scalars = pools.scalars(&slot, array, kind(field))?;
                } else if array.null_count() < array.len() && array.data_type() != &DataType::Null {
                    return Err(unsupported(&slot, array.data_type()));
                }
            } else if shape == Some("set") {
                out.sets = pools.sets(&slot, array)?;
            } else {
                out.lists = pools.lists(&slot, array)?;
            }
        }
        Ok(out)
    }

    fn ids(
        &self,
        batch: &RecordBatch,
        pools: &mut Pools,
        name: &str,
        as_kind: Option<Kind>,
    ) -> Result<Option<UInt32Array>> {
        let Some((array, field)) = self.column(batch, name) else { return Ok(None) };
        let col = pools.scalars(name, array, as_kind.unwrap_or_else(|| kind(field)))?;
        let Some(ints) = &col.ints else { return Ok(col.texts) };
        // A column of integers where texts are wanted: their digits.
        let pool = if as_kind.is_some() { &mut pools.names } else { &mut pools.texts };
        let mut ids = Vec::with_capacity(ints.len());
        for i in 0..ints.len() {
            ids.push(match col.get(i) {
                Scalar::Nil => None,
                Scalar::Text(t) => Some(t),
                Scalar::Int(n) => Some(intern(pool, &n.to_string())?),
            });
        }
        Ok(Some(UInt32Array::from(ids)))
    }

    fn extras(&self, batch: &RecordBatch, pools: &mut Pools, name: &str) -> Result<Option<ExtraCol>> {
        let Some((array, field)) = self.column(batch, name) else { return Ok(None) };
        let Some(map) = array.as_map_opt() else {
            let void = array.data_type() == &DataType::Null || array.null_count() == array.len();
            return if void { Ok(None) } else { Err(unsupported(name, array.data_type())) };
        };
        if map.null_count() == map.len() {
            return Ok(None);
        }
        let names = pools.scalars(&format!("{name}.key"), map.keys(), Kind::Name)?;
        let values = pools.scalars(&format!("{name}.value"), map.values(), kind(field))?;
        let nil = intern(&mut pools.texts, "nil")?;
        let mut out = ExtraBuilder::default();
        for i in 0..map.len() {
            let range = map.value_offsets()[i] as usize..map.value_offsets()[i + 1] as usize;
            for j in range.filter(|_| map.is_valid(i)) {
                let Scalar::Text(name) = names.get(j) else { continue };
                let value = match values.get(j) {
                    Scalar::Text(t) => t,
                    Scalar::Int(n) => intern(&mut pools.texts, &n.to_string())?,
                    Scalar::Nil => nil,
                };
                out.field(name, value);
            }
            out.end();
        }
        Ok(out.finish())
    }

    /// Further fields, those that are columns of their own included.
    fn with_further(&self, batch: &RecordBatch, pools: &mut Pools) -> Result<Option<ExtraCol>> {
        let own = self.extras(batch, pools, "extra")?;
        let mut columns = Vec::with_capacity(self.further.len());
        for (name, at) in &self.further {
            let slot = format!("extra.{}", self.fields[*at].name());
            columns.push((intern(&mut pools.names, name)?, pools.scalars(&slot, batch.column(*at), Kind::Plain)?));
        }
        columns.retain(|(_, c)| !c.is_void());
        if columns.is_empty() {
            return Ok(own);
        }
        let mut out = ExtraBuilder::default();
        for i in 0..batch.num_rows() {
            let before: Vec<(u32, u32)> = own.iter().flat_map(|x| x.get(i)).collect();
            before.iter().for_each(|&(name, value)| out.field(name, value));
            for (name, column) in columns.iter().filter(|(n, _)| !before.iter().any(|(b, _)| b == n)) {
                match column.get(i) {
                    Scalar::Nil => {}
                    Scalar::Text(t) => out.field(*name, t),
                    Scalar::Int(n) => out.field(*name, intern(&mut pools.texts, &n.to_string())?),
                }
            }
            out.end();
        }
        Ok(out.finish())
    }

    /// The history of these chunks.
    pub(super) fn finish(
        &self,
        mut chunks: Vec<Chunk>,
        pools: Pools,
        meta: Option<Meta>,
        format: &str,
        options: &ReadOptions,
    ) -> Result<crate::History> {
        chunks.retain(|c| !c.is_empty());
        let foreign = meta.is_none();
        let meta = meta.unwrap_or_else(|| Meta {
            format: format.into(),
            keys: if chunks.iter().any(|c| !c.key.is_void()) { KeyForm::Field } else { KeyForm::None },
            real_time: true,
            order: if self.has_index { Order::Index } else { Order::Source },
            epochs_recorded: chunks.iter().any(|c| c.fault_epoch.is_some()),
            ..Meta::default()
        });
        let Pools { functions, names, texts, .. } = pools;
        let mut shared = Shared { functions, names, texts, meta, faults: Vec::new() };
        if !self.has_index {
            chunks = without_index(chunks, &mut shared, options)?;
        }
        check::sound(&chunks, &mut shared, options.lenient)?;
        if foreign || !self.columns.contains_key("fault_epoch") {
            crate::faults::finish_faults(&mut chunks, &mut shared)?;
        } else {
            crate::faults::find_faults(&chunks, &mut shared);
        }
        Ok(crate::History::new(shared, chunks))
    }
}

/// Where a file has no indices, events are ordered by time, or else taken one operation after the other, which is no
/// real-time order.
fn without_index(chunks: Vec<Chunk>, shared: &mut Shared, options: &ReadOptions) -> Result<Vec<Chunk>> {
    let timed = |c: &Chunk| {
        c.invoke_time.as_ref().is_some_and(|t| t.null_count() == 0)
            && (0..c.len())
                .all(|i| c.complete_index.is_null(i) || c.complete_time.as_ref().is_some_and(|t| t.is_valid(i)))
    };
    if chunks.is_empty() || !chunks.iter().all(timed) {
        shared.meta.real_time = false;
        shared
            .meta
            .notes
            .push("no indices and not all times: the order of rows is taken, not as that of real time".into());
        return Ok(chunks);
    }
    shared.meta.order = Order::Time;
    let mut repairs = std::collections::BTreeMap::new();
    let chunks = crate::order::by_time(chunks, shared, options.lenient, &mut repairs)?;
    let repairs = repairs.iter().map(|(kind, (n, first))| format!("{kind}: {n} (first at {first})"));
    shared.meta.repairs.extend(repairs);
    Ok(chunks)
}

/// Which operations completed, where a file has no indices: all that are ok or fail, and unknown ones with a time.
fn completions(status: &[u8], times: &Option<Int64Array>, actor: &Option<UInt16Array>, row: u64) -> UInt64Array {
    let timed = |i: usize| times.as_ref().is_some_and(|t| t.is_valid(i));
    UInt64Array::from_iter((0..status.len()).map(|i| {
        let client = actor.as_ref().is_none_or(|a| a.is_null(i));
        let answered = status[i] <= Status::Fail as u8 || (status[i] == Status::Info as u8 && (timed(i) || !client));
        answered.then_some(2 * (row + i as u64) + 1)
    }))
}

fn no_index(row: u64) -> ReadError {
    ReadError::new("an operation has no index").at(Place::Row(row + 1))
}

fn kind(field: &Field) -> Kind {
    if field.metadata().get(TEXT).is_some_and(|mode| mode == "edn") { Kind::Edn } else { Kind::Plain }
}

pub(super) fn in_column(e: ReadError, name: &str) -> ReadError {
    ReadError { what: format!("column `{name}`: {}", e.what), ..e }
}

pub(super) fn unsupported(name: &str, found: &DataType) -> ReadError {
    ReadError::new(format!("column `{name}` is of type {found}, which is not understood there"))
}

fn intern(pool: &mut TextPool, text: &str) -> Result<u32> {
    pool.try_intern(text).ok_or_else(|| ReadError::new("more than 4 GiB of distinct text"))
}

/// Is a column none that histories have, and of a type that fits `extra`?
fn is_simple(field: &Field) -> bool {
    let simple = |t: &DataType| {
        t.is_integer()
            || t.is_floating()
            || matches!(t, DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    let name = field.name().as_str();
    // `timeout` is what `status` says.
    let known = COLUMNS.contains(&name) || name == "timeout" || is_row_label(name);
    !known
        && match field.data_type() {
            DataType::Dictionary(_, values) => {
                matches!(values.as_ref(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
            }
            t => simple(t),
        }
}

fn is_list(t: &DataType) -> bool {
    matches!(t, DataType::List(_) | DataType::LargeList(_))
}

/// The first row with two values, if there is one.
fn one_shape(col: &ValueCol, rows: usize) -> std::result::Result<(), usize> {
    let ints = col.scalars.ints.is_some().then(|| col.scalars.ints.as_ref().and_then(|a| a.nulls()));
    let texts = col.scalars.texts.is_some().then(|| col.scalars.texts.as_ref().and_then(|a| a.nulls()));
    let lists = col.lists.as_ref().map(|l| l.nulls.as_ref());
    let sets = col.sets.as_ref().map(|l| l.nulls.as_ref());
    let mut seen: Option<NullBuffer> = None;
    for nulls in [ints, texts, lists, sets].into_iter().flatten() {
        let nulls = nulls.cloned().unwrap_or_else(|| NullBuffer::new_valid(rows));
        if let Some(before) = &seen {
            let both = before.inner() & nulls.inner();
            if both.count_set_bits() > 0 {
                return Err(both.set_indices().next().unwrap_or(0));
            }
            seen = Some(NullBuffer::new(before.inner() | nulls.inner()));
        } else {
            seen = Some(nulls);
        }
    }
    Ok(())
}

/// Strings of any kind.
pub(super) enum Strings<'a> {
    Small(&'a arrow_array::StringArray),
    Large(&'a arrow_array::LargeStringArray),
    View(&'a arrow_array::StringViewArray),
}

impl<'a> Strings<'a> {
    pub(super) fn of(array: &'a ArrayRef) -> Option<Strings<'a>> {
        Some(match array.data_type() {
            DataType::Utf8 => Strings::Small(array.as_string()),
            DataType::LargeUtf8 => Strings::Large(array.as_string()),
            DataType::Utf8View => Strings::View(array.as_string_view()),
            _ => return None,
        })
    }

    fn len(&self) -> usize {
        match self {
            Strings::Small(a) => a.len(),
            Strings::Large(a) => a.len(),
            Strings::View(a) => a.len(),
        }
    }

    pub(super) fn get(&self, i: usize) -> Option<&'a str> {
        match self {
            Strings::Small(a) => a.is_valid(i).then(|| a.value(i)),
            Strings::Large(a) => a.is_valid(i).then(|| a.value(i)),
            Strings::View(a) => a.is_valid(i).then(|| a.value(i)),
        }
    }
}

fn string_at(array: &ArrayRef, i: usize) -> String {
    let (array, i) = match array.as_any_dictionary_opt() {
        Some(d) => match d.normalized_keys().get(i) {
            Some(&i) => (d.values(), i),
            None => return String::new(),
        },
        None => (array, i),
    };
    let text = Strings::of(array).and_then(|s| s.get(i)).unwrap_or_default();
    format!("`{}`", text.chars().take(40).collect::<String>())
}

macro_rules! each_integer {
    ($type:expr, $do:ident, $otherwise:expr) => {
        match $type {
            DataType::Int8 => $do!(Int8Type),
            DataType::Int16 => $do!(Int16Type),
            DataType::Int32 => $do!(Int32Type),
            DataType::Int64 => $do!(Int64Type),
            DataType::UInt8 => $do!(UInt8Type),
            DataType::UInt16 => $do!(UInt16Type),
            DataType::UInt32 => $do!(UInt32Type),
            DataType::UInt64 => $do!(UInt64Type),
            _ => $otherwise,
        }
    };
}

/// The rows of a dictionary column through a table. Null rows become anything.
fn map_keys<T: Copy>(array: &ArrayRef, table: &[T], none: T) -> Result<Vec<T>> {
    let DataType::Dictionary(key, _) = array.data_type() else { return Ok(Vec::new()) };
    macro_rules! map {
        ($t:ty) => {{
            let keys = array.as_dictionary::<$t>().keys().values();
            Ok(keys.iter().map(|k| table.get(k.as_usize()).copied().unwrap_or(none)).collect())
        }};
    }
    each_integer!(key.as_ref(), map, Ok(Vec::new()))
}

/// The place in its dictionary of a row that is not null.
pub(super) fn key_at(array: &ArrayRef, i: usize) -> Option<usize> {
    let DataType::Dictionary(key, _) = array.data_type() else { return None };
    macro_rules! at {
        ($t:ty) => {{
            let keys = array.as_dictionary::<$t>().keys();
            keys.is_valid(i).then(|| keys.value(i).as_usize())
        }};
    }
    each_integer!(key.as_ref(), at, None)
}

/// Is a column what pandas keeps the labels of its rows in? They say nothing of operations.
pub(super) fn is_row_label(name: &str) -> bool {
    name.starts_with("__index_level_")
}

/// A column of integers of any kind as 64-bit ones; `None` when it is all null.
pub(super) fn ints(array: &ArrayRef) -> Result<Option<Int64Array>> {
    if array.null_count() == array.len() || array.data_type() == &DataType::Null {
        return Ok(None);
    }
    let nulls = || array.nulls().filter(|n| n.null_count() > 0).cloned();
    if let Some(a) = array.as_primitive_opt::<Int64Type>() {
        return Ok(Some(Int64Array::new(a.values().clone(), nulls())));
    }
    if let Some(a) = array.as_primitive_opt::<UInt64Type>() {
        let large = (0..a.len()).find(|&i| a.is_valid(i) && a.value(i) > i64::MAX as u64);
        if let Some(i) = large {
            return Err(ReadError::new(format!("{} is beyond 64 bits with a sign", a.value(i))));
        }
    }
    if let Some(a) = array.as_primitive_opt::<Float64Type>() {
        return integral(a).map(Some);
    }
    macro_rules! widen {
        ($t:ty) => {
            array.as_primitive::<$t>().values().iter().map(|&v| v as i64).collect()
        };
    }
    macro_rules! scaled {
        ($t:ty, $by:expr) => {{
            let a = array.as_primitive::<$t>();
            let mut out = Vec::with_capacity(a.len());
            for (i, v) in a.values().iter().enumerate() {
                let v = if a.is_valid(i) { v.checked_mul($by) } else { Some(0) };
                out.push(v.ok_or_else(|| ReadError::new("a time is beyond 64 bits of nanoseconds"))?);
            }
            out.into()
        }};
    }
    let values: ScalarBuffer<i64> = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => scaled!(TimestampSecondType, 1_000_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => scaled!(TimestampMillisecondType, 1_000_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => scaled!(TimestampMicrosecondType, 1_000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => scaled!(TimestampNanosecondType, 1),
        DataType::Duration(TimeUnit::Second) => scaled!(DurationSecondType, 1_000_000_000),
        DataType::Duration(TimeUnit::Millisecond) => scaled!(DurationMillisecondType, 1_000_000),
        DataType::Duration(TimeUnit::Microsecond) => scaled!(DurationMicrosecondType, 1_000),
        DataType::Duration(TimeUnit::Nanosecond) => scaled!(DurationNanosecondType, 1),
        other => each_integer!(
            other,
            widen,
            return Err(ReadError::new(format!("type {other}, where integers are expected")))
        ),
    };
    Ok(Some(Int64Array::new(values, nulls())))
}

/// Floats that are integers, as pandas makes of an integer column with gaps.
fn integral(a: &PrimitiveArray<Float64Type>) -> Result<Int64Array> {
    let mut out = Vec::with_capacity(a.len());
    for x in a.iter() {
        out.push(match x {
            Some(x) if x.is_nan() => None,
            Some(x) if x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0 => Some(x as i64),
            Some(x) => return Err(ReadError::new(format!("{x} is no integer"))),
            None => None,
        });
    }
    Ok(Int64Array::from(out))
}

fn indices(array: &ArrayRef) -> Result<Option<UInt64Array>> {
    if let Some(a) = array.as_primitive_opt::<UInt64Type>() {
        return Ok(Some(UInt64Array::new(a.values().clone(), a.nulls().filter(|n| n.null_count() > 0).cloned())));
    }
    let Some(a) = ints(array)? else { return Ok(None) };
    if let Some(i) = (0..a.len()).find(|&i| a.is_valid(i) && a.value(i) < 0) {
        return Err(ReadError::new(format!("a negative index, {}", a.value(i))));
    }
    Ok(Some(UInt64Array::new(ScalarBuffer::from(a.values().inner().clone()), a.nulls().cloned())))
}

/// An id column without the nulls buffer where nothing is null, and `None` where all is.
fn tidy<T: ArrowPrimitiveType>(
    values: ScalarBuffer<T::Native>,
    nulls: Option<NullBuffer>,
) -> Option<PrimitiveArray<T>> {
    match nulls {
        Some(n) if n.null_count() == values.len() => None,
        Some(n) if n.null_count() > 0 => Some(PrimitiveArray::new(values, Some(n))),
        _ if values.is_empty() => None,
        _ => Some(PrimitiveArray::new(values, None)),
    }
}

impl Pools {
    fn pool(&mut self, kind: Kind) -> &mut TextPool {
        match kind {
            Kind::Function => &mut self.functions,
            Kind::Name => &mut self.names,
            Kind::Plain | Kind::Edn => &mut self.texts,
        }
    }

    fn scalar(&mut self, text: &str, kind: Kind) -> Result<Scalar> {
        let text = match kind {
            Kind::Plain => return Ok(Scalar::Text(intern(&mut self.texts, &quote(text))?)),
            Kind::Edn if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => match text.parse::<i64>() {
                Ok(n) => return Ok(Scalar::Int(n)),
                Err(_) => text,
            },
            _ => text,
        };
        Ok(Scalar::Text(intern(self.pool(kind), text)?))
    }

    fn table(&mut self, slot: &str, values: &ArrayRef, kind: Kind) -> Result<Arc<Table>> {
        if let Some((known, table)) = self.tables.get(slot)
            && (Arc::ptr_eq(known, values) || known.to_data().ptr_eq(&values.to_data()))
        {
            return Ok(Arc::clone(table));
        }
        let strings = Strings::of(values).ok_or_else(|| unsupported(slot, values.data_type()))?;
        let mut out = Vec::with_capacity(strings.len());
        for i in 0..strings.len() {
            out.push(match strings.get(i) {
                Some(text) => self.scalar(text, kind)?,
                None => Scalar::Nil,
            });
        }
        let table = Arc::new(Table {
            identity: out.iter().enumerate().all(|(i, s)| *s == Scalar::Text(i as u32)),
            ints: out.iter().any(|s| matches!(s, Scalar::Int(_))),
            nils: out.contains(&Scalar::Nil),
            values: out,
        });
        self.tables.insert(slot.into(), (Arc::clone(values), Arc::clone(&table)));
        Ok(table)
    }

    /// A column of function or actor names as codes.
    fn functions(&mut self, decoder: &Decoder, batch: &RecordBatch, name: &str) -> Result<Option<UInt16Array>> {
        match decoder.column(batch, name) {
            Some((array, _)) => self.codes(name, array),
            None => Ok(None),
        }
    }

    fn codes(&mut self, slot: &str, array: &ArrayRef) -> Result<Option<UInt16Array>> {
        if array.null_count() == array.len() || array.data_type() == &DataType::Null {
            return Ok(None);
        }
        let many = || ReadError::new("more than 65,534 distinct functions");
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            let table = self.table(slot, dictionary.values(), Kind::Function)?;
            if let (true, Some(d)) = (table.identity, array.as_dictionary_opt::<Int16Type>()) {
                return Ok(tidy(ScalarBuffer::from(d.keys().values().inner().clone()), d.keys().nulls().cloned()));
            }
            if !table.nils {
                let code = |s: &Scalar| if let Scalar::Text(t) = s { u16::try_from(*t).ok() } else { None };
                let codes: Option<Vec<u16>> = table.values.iter().map(code).collect();
                let codes = codes.filter(|c| c.len() < usize::from(u16::MAX)).ok_or_else(many)?;
                return Ok(tidy(map_keys(array, &codes, 0)?.into(), array.nulls().cloned()));
            }
        }
        let col = self.scalars(slot, array, Kind::Function)?;
        if col.ints.is_some() || self.functions.len() > usize::from(u16::MAX) - 1 {
            return Err(if col.ints.is_some() { unsupported(slot, array.data_type()) } else { many() });
        }
        Ok(col.texts.and_then(|t| tidy(t.values().iter().map(|&t| t as u16).collect(), t.nulls().cloned())))
    }

    /// A column of scalars.
    fn scalars(&mut self, slot: &str, array: &ArrayRef, kind: Kind) -> Result<ScalarCol> {
        if array.data_type() == &DataType::Null || array.null_count() == array.len() {
            return Ok(ScalarCol::default());
        }
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            let table = self.table(slot, dictionary.values(), kind)?;
            return coded(array, &table);
        }
        if let Some(strings) = Strings::of(array) {
            let mut out = ScalarBuilder::with_capacity(strings.len());
            for i in 0..strings.len() {
                out.push(match strings.get(i) {
                    Some(text) => self.scalar(text, kind)?,
                    None => Scalar::Nil,
                });
            }
            return Ok(out.finish());
        }
        match array.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::Boolean | DataType::UInt64 => {
                self.odd(array)
            }
            _ => Ok(ScalarCol { ints: ints(array).map_err(|e| in_column(e, slot))?, texts: None }),
        }
    }

    /// Scalars that are neither strings nor 64-bit integers: their EDN text.
    fn odd(&mut self, array: &ArrayRef) -> Result<ScalarCol> {
        let mut out = ScalarBuilder::with_capacity(array.len());
        for i in 0..array.len() {
            let value = match array.data_type() {
                _ if array.is_null(i) => Value::Nil,
                DataType::Boolean => Value::Bool(array.as_boolean().value(i)),
                DataType::Float16 => Value::Float(array.as_primitive::<Float16Type>().value(i).to_f64()),
                DataType::Float32 => Value::Float(f64::from(array.as_primitive::<Float32Type>().value(i))),
                DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(i)),
                _ => Value::integer(&array.as_primitive::<UInt64Type>().value(i).to_string()).unwrap_or(Value::Nil),
            };
            out.push(match value {
                Value::Nil => Scalar::Nil,
                Value::Int(n) => Scalar::Int(n),
                other => Scalar::Text(intern(&mut self.texts, &other.to_edn())?),
            });
        }
        Ok(out.finish())
    }

    fn lists(&mut self, slot: &str, array: &ArrayRef) -> Result<Option<ListCol>> {
        if array.null_count() == array.len() {
            return Ok(None);
        }
        let (offsets, items) = list_parts(array, slot)?;
        let element = match array.data_type() {
            DataType::List(field) | DataType::LargeList(field) => kind(field),
            _ => Kind::Plain,
        };
        let items = self.scalars(&format!("{slot}[]"), &items, element)?;
        Ok(Some(ListCol::flat(&offsets, array.nulls().filter(|n| n.null_count() > 0).cloned(), items)))
    }

    /// Sets are integers, ascending; those of others are made so.
    fn sets(&mut self, slot: &str, array: &ArrayRef) -> Result<Option<ListCol>> {
        let Some(list) = self.lists(slot, array)? else { return Ok(None) };
        if list.items.texts.is_some() || list.items.ints.as_ref().is_some_and(|a| a.null_count() > 0) {
            return Err(ReadError::new(format!("column `{slot}`: a set holds integers only")));
        }
        let values = list.items.ints.as_ref().map_or(&[][..], |a| a.values());
        let ascending = |(&from, &to): (&i32, &i32)| values[from as usize..to as usize].windows(2).all(|v| v[0] < v[1]);
        if list.starts.iter().zip(list.ends.iter()).all(ascending) {
            return Ok(Some(list));
        }
        let mut out = ListBuilder::default();
        for i in 0..list.rows() {
            match list.get(i).and_then(|l| l.as_ints()) {
                None => out.none(),
                Some(ints) => {
                    let mut ints = ints.to_vec();
                    ints.sort_unstable();
                    ints.dedup();
                    out.ints(&ints);
                    out.end();
                }
            }
        }
        Ok(out.finish())
    }

    fn txns(&mut self, array: &ArrayRef) -> Result<Option<TxnCol>> {
        if array.data_type() == &DataType::Null || array.null_count() == array.len() {
            return Ok(None);
        }
        let (offsets, mops) = list_parts(array, "txn")?;
        let Some(mops) = mops.as_struct_opt() else { return Err(unsupported("txn", array.data_type())) };
        if mops.null_count() > 0 {
            return Err(ReadError::new("a micro-operation is null"));
        }
        let column = |name: &str| mops.column_by_name(name);
        let kind_of = |name: &str| mops.fields().find(name).map_or(Kind::Plain, |(_, f)| kind(f));
        let f = match column("f") {
            Some(f) => self.codes("txn.f", f)?,
            None => return Err(ReadError::new("no field `f` in its micro-operations")),
        };
        let f = f.unwrap_or_else(|| UInt16Array::new_null(mops.len()));
        if f.null_count() > 0 {
            return Err(ReadError::new("a micro-operation has no `f`"));
        }
        let mut scalars = |name: &str| match column(name) {
            Some(a) => self.scalars(&format!("txn.{name}"), a, kind_of(name)),
            None => Ok(ScalarCol::default()),
        };
        let (key, value) = (scalars("key")?, scalars("value")?);
        let lists = column("list").filter(|a| is_list(a.data_type())).map(|a| self.lists("txn.list", a)).transpose()?;
        let sets = column("set").filter(|a| is_list(a.data_type())).map(|a| self.sets("txn.set", a)).transpose()?;
        let known = match column("known").and_then(|a| a.as_boolean_opt()) {
            Some(known) if known.null_count() == 0 => known.clone(),
            _ => BooleanArray::new(BooleanBuffer::new_set(mops.len()), None),
        };
        let mut value = ValueCol { scalars: value, lists: lists.flatten(), sets: sets.flatten() };
        one_shape(&value, mops.len())
            .map_err(|i| ReadError::new(format!("micro-operation {} of the batch has two values", i + 1)))?;
        if let (Some(arena), Some(lists)) = (&mut self.shared_lists, &mut value.lists) {
            share(lists, &key, arena);
        }
        let nulls = array.nulls().filter(|n| n.null_count() > 0).cloned();
        Ok(Some(TxnCol { offsets, nulls, f, key, value, known }))
    }

    /// Pools of columns that are decoded, and not mapped: lists that share elements are held once.
    pub(super) fn sharing() -> Pools {
        Pools { shared_lists: Some(ListArena::default()), ..Pools::default() }
    }

    /// Gives the chunks decoded so far the elements of the lists that they share.
    pub(super) fn show_lists(&mut self, chunks: &mut [Chunk]) {
        let Some(items) = self.shared_lists.as_mut().and_then(ListArena::take) else { return };
        let lists = chunks.iter_mut().filter_map(|c| c.txn.as_mut()?.value.lists.as_mut());
        lists.filter(|l| l.items.is_void()).for_each(|l| l.items.ints = Some(items.clone()));
    }

    /// Takes another's texts in: what each of its ids is here.
    pub(super) fn merge(&mut self, other: &Pools) -> Result<Remap> {
        let map = |mine: &mut TextPool, theirs: &TextPool| -> Result<Option<Vec<u32>>> {
            let ids: Vec<u32> = theirs.iter().map(|t| intern(mine, t)).collect::<Result<_>>()?;
            let identity = ids.iter().enumerate().all(|(i, &id)| id as usize == i);
            Ok(if identity { None } else { Some(ids) })
        };
        let functions = map(&mut self.functions, &other.functions)?;
        if self.functions.len() >= usize::from(u16::MAX) {
            return Err(ReadError::new("more than 65,534 distinct functions"));
        }
        Ok(Remap { functions, names: map(&mut self.names, &other.names)?, texts: map(&mut self.texts, &other.texts)? })
    }
}

/// Makes lists of integers views of the arena. Where that would hold too much, they stay as they are.
fn share(lists: &mut ListCol, keys: &ScalarCol, arena: &mut ListArena) {
    let key = |i: usize| match keys.get(i) {
        Scalar::Nil => Cell::Nil,
        Scalar::Int(n) => Cell::Int(n),
        Scalar::Text(t) => Cell::Text(t),
    };
    if lists.items.as_ints().is_none() {
        return;
    }
    let span = |i: usize| match lists.get(i) {
        None => Some(Span::default()),
        Some(list) => arena.push_read(key(i), list.as_ints()?).ok(),
    };
    let Some(spans) = (0..lists.rows()).map(span).collect::<Option<Vec<Span>>>() else { return };
    lists.starts = spans.iter().map(|s| s.start as i32).collect();
    lists.ends = spans.iter().map(|s| (s.start + s.len) as i32).collect();
    lists.items = ScalarCol::default();
}

/// Rows of a dictionary column through its table.
fn coded(array: &ArrayRef, table: &Table) -> Result<ScalarCol> {
    if table.ints || table.nils {
        let nulls = array.nulls();
        let mut out = ScalarBuilder::with_capacity(array.len());
        for (i, s) in map_keys(array, &table.values, Scalar::Nil)?.into_iter().enumerate() {
            out.push(if nulls.is_some_and(|n| n.is_null(i)) { Scalar::Nil } else { s });
        }
        return Ok(out.finish());
    }
    let ids: ScalarBuffer<u32> = match array.as_dictionary_opt::<Int32Type>() {
        Some(d) if table.identity => ScalarBuffer::from(d.keys().values().inner().clone()),
        _ => {
            let id = |s: &Scalar| if let Scalar::Text(t) = s { *t } else { 0 };
            map_keys(array, &table.values.iter().map(id).collect::<Vec<u32>>(), 0)?.into()
        }
    };
    Ok(ScalarCol { ints: None, texts: tidy(ids, array.nulls().cloned()) })
}

fn list_parts(array: &ArrayRef, slot: &str) -> Result<(OffsetBuffer<i32>, ArrayRef)> {
    if let Some(list) = array.as_list_opt::<i32>() {
        return Ok((list.offsets().clone(), Arc::clone(list.values())));
    }
    let Some(list) = array.as_list_opt::<i64>() else { return Err(unsupported(slot, array.data_type())) };
    let offsets: Vec<i32> = list
        .offsets()
        .iter()
        .map(|&o| i32::try_from(o).map_err(|_| ReadError::new("more than 2^31 list elements in a batch")))
        .collect::<Result<_>>()?;
    Ok((OffsetBuffer::new(offsets.into()), Arc::clone(list.values())))
}

/// From the ids of one set of pools to those of another; `None` where they are the same.
pub(super) struct Remap {
    functions: Option<Vec<u32>>,
    names: Option<Vec<u32>>,
    texts: Option<Vec<u32>>,
}

impl Remap {
    pub(super) fn apply(&self, c: &mut Chunk) {
        if let Some(table) = &self.functions {
            let table: Vec<u16> = table.iter().map(|&id| id as u16).collect();
            map(&mut c.f, &table);
            c.actor.iter_mut().for_each(|a| map(a, &table));
            c.txn.iter_mut().for_each(|t| map(&mut t.f, &table));
        }
        if let Some(table) = &self.names {
            [&mut c.node, &mut c.fault_epoch].into_iter().flatten().for_each(|a| map(a, table));
            [&mut c.extra, &mut c.invoke_extra].into_iter().flatten().for_each(|x| map(&mut x.names, table));
        }
        if let Some(table) = &self.texts {
            let scalars = |s: &mut ScalarCol| s.texts.iter_mut().for_each(|a| map(a, table));
            let values = |v: &mut ValueCol| {
                scalars(&mut v.scalars);
                [&mut v.lists, &mut v.sets].into_iter().flatten().for_each(|l| scalars(&mut l.items));
            };
            scalars(&mut c.key);
            values(&mut c.input);
            values(&mut c.output);
            if let Some(txn) = &mut c.txn {
                scalars(&mut txn.key);
                values(&mut txn.value);
            }
            c.error.iter_mut().for_each(|a| map(a, table));
            [&mut c.extra, &mut c.invoke_extra].into_iter().flatten().for_each(|x| map(&mut x.values, table));
        }
    }
}

fn map<T: ArrowPrimitiveType>(a: &mut PrimitiveArray<T>, table: &[T::Native]) {
    // Slots of nulls may hold anything: they become zero.
    let values = a.values().iter().map(|id| table.get(id.as_usize()).copied().unwrap_or_default()).collect();
    *a = PrimitiveArray::new(values, a.nulls().cloned());
}
