//! From chunks of a history to Arrow record batches under a [`Plan`].
//!
//! Texts become dictionaries: first the distinct texts of each column are gathered over all chunks that share the
//! dictionaries (one chunk for Parquet, which makes its own; the whole history for Arrow IPC, which allows a file one
//! dictionary a column), then rows are written as codes. O(rows) in text columns; integer columns are shared, not copied.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int16Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, MapArray,
    PrimitiveArray, RecordBatch, StringArray, StructArray, UInt16Array, UInt32Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, SchemaRef};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::columns::{ExtraCol, ListCol, Scalar, ScalarCol, TxnCol, ValueCol, boxed};
use crate::error::{ReadError, Result};
use crate::history::{Chunk, History, Status};
use crate::text::TextPool;
use crate::value::push_int;

use super::schema::{Plan, Scalars, Shape, TextMode, Values, unquote};
use super::span;

/// A file under a temporary name beside the one that it will have when it is whole.
pub struct WholeFile {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Begins it.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn create(path: &Path) -> Result<WholeFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".elench-").suffix(".part");
        #[cfg(unix)]
        {
            // As any other new file; the umask takes away what it must.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let failed = |e: std::io::Error| ReadError::new(format!("cannot write: {e}")).in_file(&path.to_string_lossy());
        Ok(WholeFile { file: builder.tempfile_in(directory(path)).map_err(failed)?, path: path.to_path_buf() })
    }

    /// Where its bytes go.
    ///
    /// # Errors
    /// When the system is out of file handles.
    pub fn file(&self) -> Result<File> {
        Ok(self.file.as_file().try_clone()?)
    }

    /// Makes the file durable under its name.
    ///
    /// # Errors
    /// When it cannot be renamed or synced.
    pub fn finish(self) -> Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path).map_err(|e| ReadError::from(e.error).in_file(&self.path.to_string_lossy()))?;
        if cfg!(unix) {
            File::open(directory(&self.path))?.sync_all()?;
        }
        Ok(())
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes chunks as record batches that share their dictionaries.
pub(super) struct Encoder<'a> {
    history: &'a History,
    plan: &'a Plan,
    schema: SchemaRef,
    mop_fields: Fields,
    statuses: ArrayRef,
    functions: ArrayRef,
    key: Dictionary,
    input: ValueDictionaries,
    output: ValueDictionaries,
    txn_key: Dictionary,
    txn: ValueDictionaries,
    error: Dictionary,
    node: Dictionary,
    fault_epoch: Dictionary,
}

/// The distinct values of a column.
struct Dictionary {
    mode: Option<TextMode>,
    /// Code of each text of the pool, or -1.
    codes: Vec<i32>,
    ints: HashMap<i64, i32, FixedState>,
    values: Vec<Scalar>,
    array: ArrayRef,
}

#[derive(Default)]
struct ValueDictionaries {
    scalars: Dictionary,
    lists: Dictionary,
}

impl Default for Dictionary {
    fn default() -> Self {
        Dictionary::new(None)
    }
}

impl Dictionary {
    fn new(mode: Option<TextMode>) -> Self {
        Dictionary {
            mode,
            codes: Vec::new(),
            ints: HashMap::default(),
            values: Vec::new(),
            array: boxed(StringArray::new_null(0)),
        }
    }

    fn add(&mut self, s: Scalar) -> Result<()> {
        let next = i32::try_from(self.values.len()).map_err(|_| ReadError::new("more than 2^31 distinct texts"))?;
        match s {
            Scalar::Nil => return Ok(()),
            Scalar::Int(n) => {
                if *self.ints.entry(n).or_insert(next) != next {
                    return Ok(());
                }
            }
            Scalar::Text(t) => {
                let t = t as usize;
                if t >= self.codes.len() {
                    self.codes.resize((t + 1).max(self.codes.len() * 2), -1);
                }
                if self.codes[t] >= 0 {
                    return Ok(());
                }
                self.codes[t] = next;
            }
        }
        self.values.push(s);
        Ok(())
    }

    fn add_scalars(&mut self, col: &ScalarCol, rows: usize) -> Result<()> {
        if self.mode.is_none() || col.is_void() {
            return Ok(());
        }
        (0..rows).try_for_each(|i| self.add(col.get(i)))
    }

    fn add_ids(&mut self, ids: &Option<UInt32Array>) -> Result<()> {
        ids.iter().flat_map(|a| a.iter().flatten()).try_for_each(|id| self.add(Scalar::Text(id)))
    }

    /// Makes the array of the values, in the mode's writing.
    fn seal(&mut self, pool: &TextPool) {
        let mode = self.mode;
        let texts = self.values.iter().map(|s| match s {
            Scalar::Text(t) if mode == Some(TextMode::Plain) => unquote(pool.get(*t)).unwrap_or_default(),
            Scalar::Text(t) => pool.get(*t).to_string(),
            Scalar::Int(n) => {
                let mut text = String::new();
                push_int(&mut text, *n);
                text
            }
            Scalar::Nil => String::new(),
        });
        self.array = boxed(StringArray::from_iter_values(texts));
    }

    fn code(&self, s: Scalar) -> Option<i32> {
        match s {
            Scalar::Nil => None,
            Scalar::Int(n) => self.ints.get(&n).copied(),
            Scalar::Text(t) => self.codes.get(t as usize).copied(),
        }
    }

    fn array(&self, keys: Int32Array) -> Result<ArrayRef> {
        dictionary::<Int32Type>(keys, &self.array)
    }

    fn ids(&self, ids: &Option<UInt32Array>, rows: usize) -> Result<ArrayRef> {
        self.array(match ids {
            None => Int32Array::new_null(rows),
            Some(ids) => ids.iter().map(|id| id.and_then(|t| self.code(Scalar::Text(t)))).collect(),
        })
    }

    fn scalars(&self, col: &ScalarCol, rows: usize) -> Result<ArrayRef> {
        match (self.mode, &col.ints) {
            (None, Some(ints)) => Ok(boxed(ints.clone())),
            (None, None) => Ok(boxed(Int64Array::new_null(rows))),
            _ if col.is_void() => self.array(Int32Array::new_null(rows)),
            _ => self.array((0..rows).map(|i| self.code(col.get(i))).collect()),
        }
    }
}

impl ValueDictionaries {
    fn new(plan: Values) -> Self {
        ValueDictionaries {
            scalars: Dictionary::new(plan.scalars.mode()),
            lists: Dictionary::new(plan.lists.and_then(Scalars::mode)),
        }
    }

    fn add(&mut self, col: &ValueCol, rows: usize) -> Result<()> {
        self.scalars.add_scalars(&col.scalars, rows)?;
        if let Some(lists) = &col.lists {
            let (at, len) = lists.extent();
            self.lists.add_scalars(&lists.items.slice(at, len), len)?;
        }
        Ok(())
    }

    fn seal(&mut self, pool: &TextPool) {
        self.scalars.seal(pool);
        self.lists.seal(pool);
    }

    fn column(&self, shape: Shape, field: &Field, col: &ValueCol, rows: usize) -> Result<ArrayRef> {
        match shape {
            Shape::Scalar => self.scalars.scalars(&col.scalars, rows),
            Shape::List => list(field, &col.lists, rows, &self.lists),
            Shape::Set => list(field, &col.sets, rows, &Dictionary::default()),
        }
    }
}

fn dictionary<K: arrow_array::types::ArrowDictionaryKeyType>(
    keys: PrimitiveArray<K>,
    values: &ArrayRef,
) -> Result<ArrayRef> {
    Ok(boxed(DictionaryArray::<K>::try_new(keys, Arc::clone(values)).map_err(internal)?))
}

/// Offsets that begin at zero.
fn rebased(offsets: &OffsetBuffer<i32>) -> OffsetBuffer<i32> {
    match offsets.first() {
        None | Some(0) => offsets.clone(),
        Some(&first) => OffsetBuffer::new(offsets.iter().map(|o| o - first).collect()),
    }
}

fn list(field: &Field, col: &Option<ListCol>, rows: usize, dictionary: &Dictionary) -> Result<ArrayRef> {
    let DataType::List(element) = field.data_type() else { return Err(internal("a list column is none")) };
    let Some(col) = col else { return Ok(boxed(ListArray::new_null(Arc::clone(element), rows))) };
    let (offsets, items) = col.flattened().ok_or_else(|| {
        ReadError::new("more than 2^31 list elements within a chunk of operations do not fit the columnar form")
            .hint("check the history in the format that it has")
    })?;
    let len = offsets.last().map_or(0, |&end| end as usize);
    let items = dictionary.scalars(&items, len)?;
    Ok(boxed(ListArray::try_new(Arc::clone(element), offsets, items, col.nulls.clone()).map_err(internal)?))
}

fn internal(e: impl std::fmt::Display) -> ReadError {
    ReadError::new(format!("internal error while writing columns: {e}"))
}

fn signed(codes: &UInt16Array) -> Int16Array {
    // Codes stay below 2^15, so the bits are the same number.
    Int16Array::new(ScalarBuffer::from(codes.values().inner().clone()), codes.nulls().cloned())
}

impl<'a> Encoder<'a> {
    /// For these chunks of a history.
    pub(super) fn new(history: &'a History, plan: &'a Plan, chunks: &[Chunk]) -> Result<Self> {
        if history.functions().len() > i16::MAX as usize {
            return Err(ReadError::new("more than 32,767 distinct functions do not fit the columnar form"));
        }
        let functions: ArrayRef = boxed(StringArray::from_iter_values(history.functions().iter()));
        let mut this = Encoder {
            history,
            plan,
            schema: plan.schema(),
            mop_fields: plan.mop_fields(),
            statuses: boxed(StringArray::from_iter_values(Status::ALL.map(Status::name))),
            functions,
            key: Dictionary::new(plan.key.mode()),
            input: ValueDictionaries::new(plan.input),
            output: ValueDictionaries::new(plan.output),
            txn_key: Dictionary::new(plan.txn_key.mode()),
            txn: ValueDictionaries::new(plan.txn),
            error: Dictionary::new(Some(plan.error)),
            node: Dictionary::default(),
            fault_epoch: Dictionary::default(),
        };
        for chunk in chunks {
            this.gather(chunk)?;
        }
        this.seal();
        Ok(this)
    }

    fn gather(&mut self, chunk: &Chunk) -> Result<()> {
        let rows = chunk.len();
        self.key.add_scalars(&chunk.key, rows)?;
        self.input.add(&chunk.input, rows)?;
        self.output.add(&chunk.output, rows)?;
        if let Some(txn) = &chunk.txn {
            let (at, len) = span(&txn.offsets);
            self.txn_key.add_scalars(&txn.key.slice(at, len), len)?;
            self.txn.add(&txn.value.slice(at, len), len)?;
        }
        self.error.add_ids(&chunk.error)?;
        self.node.add_ids(&chunk.node)?;
        self.fault_epoch.add_ids(&chunk.fault_epoch)
    }

    fn seal(&mut self) {
        let texts = self.history.texts();
        for dictionary in [&mut self.key, &mut self.txn_key, &mut self.error] {
            dictionary.seal(texts);
        }
        for dictionaries in [&mut self.input, &mut self.output, &mut self.txn] {
            dictionaries.seal(texts);
        }
        self.node.seal(self.history.names());
        self.fault_epoch.seal(self.history.names());
    }

    /// A chunk as a record batch.
    pub(super) fn batch(&self, chunk: &Chunk) -> Result<RecordBatch> {
        let rows = chunk.len();
        let time = |a: &Option<Int64Array>| boxed(a.clone().unwrap_or_else(|| Int64Array::new_null(rows)));
        let status = Int8Array::new(ScalarBuffer::from(chunk.status.inner().clone()), None);
        let actor = chunk.actor.as_ref().map_or_else(|| Int16Array::new_null(rows), signed);
        let mut columns: Vec<ArrayRef> = vec![
            boxed(chunk.index.clone()),
            boxed(chunk.complete_index.clone()),
            boxed(chunk.process.clone()),
            dictionary::<Int16Type>(actor, &self.functions)?,
            dictionary::<Int8Type>(status, &self.statuses)?,
            dictionary::<Int16Type>(signed(&chunk.f), &self.functions)?,
            time(&chunk.invoke_time),
            time(&chunk.complete_time),
            self.key.scalars(&chunk.key, rows)?,
        ];
        for (shape, field) in self.plan.input.columns("input") {
            columns.push(self.input.column(shape, &field, &chunk.input, rows)?);
        }
        for (shape, field) in self.plan.output.columns("output") {
            columns.push(self.output.column(shape, &field, &chunk.output, rows)?);
        }
        columns.push(self.txns(&chunk.txn, rows)?);
        columns.push(self.error.ids(&chunk.error, rows)?);
        columns.push(self.node.ids(&chunk.node, rows)?);
        columns.push(self.fault_epoch.ids(&chunk.fault_epoch, rows)?);
        columns.push(boxed(BooleanArray::from_iter(chunk.status.iter().map(|&s| Some(s >= Status::Info as u8)))));
        columns.push(self.extras("extra", &chunk.extra, rows)?);
        if self.plan.invoke_extra {
            columns.push(self.extras("invoke_extra", &chunk.invoke_extra, rows)?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(internal)
    }

    fn txns(&self, txn: &Option<TxnCol>, rows: usize) -> Result<ArrayRef> {
        let element = Arc::new(Field::new("element", DataType::Struct(self.mop_fields.clone()), false));
        let Some(txn) = txn else { return Ok(boxed(ListArray::new_null(element, rows))) };
        let (at, len) = span(&txn.offsets);
        let value = txn.value.slice(at, len);
        let mut columns = vec![
            dictionary::<Int16Type>(signed(&txn.f.slice(at, len)), &self.functions)?,
            self.txn_key.scalars(&txn.key.slice(at, len), len)?,
        ];
        for (shape, field) in self.plan.txn.txn_columns() {
            columns.push(self.txn.column(shape, &field, &value, len)?);
        }
        columns.push(boxed(txn.known.slice(at, len)));
        let mops = StructArray::try_new(self.mop_fields.clone(), columns, None).map_err(internal)?;
        let nulls = txn.nulls.clone();
        Ok(boxed(ListArray::try_new(element, rebased(&txn.offsets), boxed(mops), nulls).map_err(internal)?))
    }

    fn extras(&self, name: &str, extra: &Option<ExtraCol>, rows: usize) -> Result<ArrayRef> {
        let field = self.schema.field_with_name(name).map_err(internal)?;
        let DataType::Map(entries, _) = field.data_type() else { return Err(internal("a map column is none")) };
        let DataType::Struct(fields) = entries.data_type() else { return Err(internal("a map column is none")) };
        let offsets = extra.as_ref().map_or_else(|| OffsetBuffer::new_zeroed(rows), |x| rebased(&x.offsets));
        let pairs: Vec<_> = extra.iter().flat_map(|x| (0..rows).flat_map(|i| x.get(i))).collect();
        let names = StringArray::from_iter_values(pairs.iter().map(|&(n, _)| self.history.names().get(n)));
        let values = StringArray::from_iter_values(pairs.iter().map(|&(_, v)| self.history.texts().get(v)));
        let nulls = NullBuffer::from_iter(offsets.windows(2).map(|w| w[0] < w[1]));
        let pairs = StructArray::try_new(fields.clone(), vec![boxed(names), boxed(values)], None).map_err(internal)?;
        let map = MapArray::try_new(Arc::clone(entries), offsets, pairs, Some(nulls), false);
        Ok(boxed(map.map_err(internal)?))
    }
}
