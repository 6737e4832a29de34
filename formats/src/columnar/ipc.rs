//! Arrow IPC files: columns that are used where they lie.
//!
//! Uncompressed and aligned, so that a mapped file is a history at once: only texts are read into the pools. The
//! buffers' places and declared sizes are checked before Arrow's reader sees them. There is no checksum: reading every
//! byte would cost more than everything else together; what is checked is what could not have been recorded.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, DictionaryArray, NullArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{Block, CompressionType, MessageHeader, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use bytes::Bytes;
use memmap2::Mmap;

use crate::History;
use crate::columns::{ValueCol, boxed};
use crate::error::{ReadError, Result};
use crate::history::{CHUNK_ROWS, Chunk};

use super::meta;
use super::parquet::{FREE_BYTES, RATIO};
use super::read::{Decoder, Pools};
use super::schema::Plan;
use super::write::{Encoder, WholeFile};
use super::{Compression, ReadOptions, WriteOptions};

const MAGIC: &[u8; 6] = b"ARROW1";

/// Writes a history as an Arrow IPC file.
///
/// # Errors
/// When the file cannot be written; nothing is left under its name then.
pub fn write_ipc(path: &Path, history: &History, options: &WriteOptions) -> Result<()> {
    let compression = match options.compression.unwrap_or(Compression::None) {
        Compression::None => None,
        Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
        Compression::Zstd => Some(CompressionType::ZSTD),
    };
    let write_options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5)
        .and_then(|o| o.try_with_compression(compression))
        .map_err(unwritten)?;
    let plan = Plan::of(history);
    let chunks: Vec<Chunk> = history.chunks().iter().flat_map(cut).collect();
    let encoder = Encoder::new(history, &plan, &chunks)?;
    let metadata = meta::encode(history.meta(), options.workload.as_deref(), history.counts());
    let fields = plan
        .schema()
        .fields()
        .iter()
        .map(|f| match is_void(&chunks, f.name()) {
            true => Arc::new(f.as_ref().clone().with_data_type(DataType::Null)),
            false => Arc::clone(f),
        })
        .collect::<Vec<_>>();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata.into_iter().collect()));
    let target = WholeFile::create(path)?;
    let sink = BufWriter::with_capacity(1 << 20, target.file()?);
    let mut writer = FileWriter::try_new_with_options(sink, &schema, write_options).map_err(unwritten)?;
    let mut small: Vec<RecordBatch> = Vec::new();
    let mut rows = 0;
    for chunk in &chunks {
        if rows + chunk.len() > CHUNK_ROWS {
            write_joined(&mut writer, &schema, &mut small)?;
            rows = 0;
        }
        small.push(without_void(&schema, &encoder.batch(chunk)?)?);
        rows += chunk.len();
    }
    write_joined(&mut writer, &schema, &mut small)?;
    writer.finish().map_err(unwritten)?;
    drop(writer);
    target.finish()
}

/// Is there nothing in a column of any chunk? Such columns are written as nulls, which take no bytes.
fn is_void(chunks: &[Chunk], column: &str) -> bool {
    let no_value = |v: &ValueCol| v.scalars.is_void() && v.lists.is_none() && v.sets.is_none();
    chunks.iter().all(|c| match column {
        "actor" => c.actor.is_none(),
        "invoke_time" => c.invoke_time.is_none(),
        "complete_time" => c.complete_time.is_none(),
        "key" => c.key.is_void(),
        "input" => no_value(&c.input),
        "output" => no_value(&c.output),
        "txn" => c.txn.is_none(),
        "error" => c.error.is_none(),
        "node" => c.node.is_none(),
        "fault_epoch" => c.fault_epoch.is_none(),
        "extra" => c.extra.is_none(),
        _ => false,
    })
}

/// A batch with nulls in the columns that are of type null in this schema.
fn without_void(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| match field.data_type() {
        DataType::Null => boxed(NullArray::new(batch.num_rows())),
        _ => Arc::clone(column),
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect()).map_err(unwritten)
}

/// Parts of up to [`CHUNK_ROWS`] rows.
fn cut(chunk: &Chunk) -> Vec<Chunk> {
    (0..chunk.len()).step_by(CHUNK_ROWS).map(|at| chunk.slice(at, CHUNK_ROWS.min(chunk.len() - at))).collect()
}

fn write_joined(
    writer: &mut FileWriter<BufWriter<File>>,
    schema: &SchemaRef,
    batches: &mut Vec<RecordBatch>,
) -> Result<()> {
    match &batches[..] {
        [] => return Ok(()),
        [one] => writer.write(one).map_err(unwritten)?,
        many => {
            let joined = arrow_select::concat::concat_batches(schema, many).map_err(unwritten)?;
            writer.write(&joined).map_err(unwritten)?;
        }
    }
    batches.clear();
    Ok(())
}

fn unwritten(e: impl std::fmt::Display) -> ReadError {
    ReadError::new(format!("cannot write Arrow IPC: {e}"))
}

/// Reads a history from an Arrow IPC file, mapped: the history's columns lie in the file for as long as it lives. The
/// file must be neither changed nor cut short meanwhile, as with any mapped file: what was validated would no longer be
/// so. Files that this program writes never are: they are replaced whole.
///
/// # Errors
/// When it is torn, damaged, or no history.
pub fn read_ipc(file: &File, options: &ReadOptions) -> Result<History> {
    if file.metadata()?.len() == 0 {
        return Err(torn("it is empty"));
    }
    // SAFETY: the map is read only and outlives every buffer, as `Bytes` owns it. What no code here can vouch for is that
    // nobody else writes to the file meanwhile: bytes that change behind shared references are undefined behaviour.
    // Arrow validates offsets, codes and UTF-8 once, when a batch is read, and relies on them after; written to later,
    // the file can break that, and cut short it ends this process (SIGBUS). Our own part of it is small: texts are
    // copied into the pools at once, and ids and list ranges are looked up with bounds checks, so that there a change
    // means wrong values or a panic. The documentation asks that the file be left alone, and our writer replaces files.
    let map = unsafe { Mmap::map(file)? };
    read_ipc_bytes(Bytes::from_owner(map), options)
}

/// Reads a history from the bytes of an Arrow IPC file, without copying them.
///
/// # Errors
/// As [`read_ipc`].
pub fn read_ipc_bytes(bytes: Bytes, options: &ReadOptions) -> Result<History> {
    let file = IpcFile::open(bytes)?;
    let meta = meta::decode(&file.schema.metadata)?;
    let decoder = Decoder::new(&file.schema, meta.is_none())?;
    let mut reader = BatchReader::new(&file);
    let mut budget = file.bytes.len() as u64 * RATIO + FREE_BYTES;
    for block in &file.dictionaries {
        let buffer = file.block(block, &mut budget)?;
        guarded(|| reader.whole.read_dictionary(block, &buffer))?;
    }
    let mut pools = Pools::default();
    let mut chunks = Vec::with_capacity(file.batches.len());
    let mut row = 0;
    for block in &file.batches {
        let buffer = file.block(block, &mut budget)?;
        let Some(batch) = guarded(|| reader.batch(block, &buffer))? else { continue };
        chunks.push(decoder.chunk(&batch, &mut pools, row)?);
        row += batch.num_rows() as u64;
    }
    decoder.finish(chunks, pools, meta, "arrow", options)
}

/// Reads batches. From the second on, columns of codes are read as such, and what they stand for is taken from the first:
/// for Arrow looks at each code by itself to see that it lies in its dictionary, and two columns of codes then cost half
/// as much as the checks of all others.
struct BatchReader {
    /// Of all columns in the first batch, of those that are no codes in later ones.
    whole: FileDecoder,
    codes: FileDecoder,
    file_schema: SchemaRef,
    /// What the codes of a column stand for, once known.
    values: Option<Vec<Option<ArrayRef>>>,
}

impl BatchReader {
    fn new(file: &IpcFile) -> BatchReader {
        let fields = file.schema.fields();
        let codes = fields.iter().map(|f| match f.data_type() {
            DataType::Dictionary(key, _) => Arc::new(f.as_ref().clone().with_data_type(key.as_ref().clone())),
            _ => Arc::clone(f),
        });
        let codes = Arc::new(Schema::new(codes.collect::<Vec<_>>()));
        BatchReader {
            whole: FileDecoder::new(Arc::clone(&file.schema), file.version),
            codes: FileDecoder::new(codes, file.version).with_projection(
                (0..fields.len()).filter(|&i| matches!(fields[i].data_type(), DataType::Dictionary(..))).collect(),
            ),
            file_schema: Arc::clone(&file.schema),
            values: None,
        }
    }

    fn batch(&mut self, block: &Block, bytes: &Buffer) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        let whole = self.whole.read_record_batch(block, bytes)?;
        let Some(whole) = whole else { return Ok(None) };
        let Some(values) = &self.values else {
            self.keep_values(&whole);
            return Ok(Some(whole));
        };
        let Some(codes) = self.codes.read_record_batch(block, bytes)? else { return Ok(None) };
        let (mut codes, mut others) = (codes.columns().iter(), whole.columns().iter());
        let columns = values.iter().filter_map(|values| match values {
            Some(values) => codes.next().map(|codes| with_values(codes, values)),
            None => others.next().map(|column| Ok(Arc::clone(column))),
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(whole.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.file_schema), columns, &rows).map(Some)
    }

    fn keep_values(&mut self, first: &RecordBatch) {
        let values = |c: &ArrayRef| c.as_any_dictionary_opt().map(|d| Arc::clone(d.values()));
        let values: Vec<_> = first.columns().iter().map(values).collect();
        let others: Vec<usize> = (0..values.len()).filter(|&i| values[i].is_none()).collect();
        if others.len() < values.len() {
            let placeholder = FileDecoder::new(Arc::clone(&self.file_schema), MetadataVersion::V5);
            self.whole = std::mem::replace(&mut self.whole, placeholder).with_projection(others);
            self.values = Some(values);
        }
    }
}

/// A dictionary column of codes and of what they stand for.
fn with_values(codes: &ArrayRef, values: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    fn of<K>(codes: &ArrayRef, values: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError>
    where
        K: ArrowDictionaryKeyType,
        K::Native: Ord,
    {
        let codes = codes.as_primitive::<K>().clone();
        let values = Arc::clone(values);
        let none = K::Native::default();
        // Folds, not a search: they vectorize. A code where nothing is may lie anywhere; then `try_new` looks closer.
        let least = codes.values().iter().fold(none, |least, &code| least.min(code));
        let most = codes.values().iter().fold(none, |most, &code| most.max(code));
        Ok(if least >= none && most.as_usize() < values.len() {
            // SAFETY: it is as `try_new`, which would not give an error: no code is below zero or beyond the values.
            boxed(unsafe { DictionaryArray::new_unchecked(codes, values) })
        } else {
            boxed(DictionaryArray::try_new(codes, values)?)
        })
    }
    match codes.data_type() {
        DataType::Int8 => of::<Int8Type>(codes, values),
        DataType::Int16 => of::<Int16Type>(codes, values),
        DataType::Int32 => of::<Int32Type>(codes, values),
        DataType::Int64 => of::<Int64Type>(codes, values),
        DataType::UInt8 => of::<UInt8Type>(codes, values),
        DataType::UInt16 => of::<UInt16Type>(codes, values),
        DataType::UInt32 => of::<UInt32Type>(codes, values),
        DataType::UInt64 => of::<UInt64Type>(codes, values),
        other => Err(ArrowError::SchemaError(format!("a dictionary has codes of type {other}"))),
    }
}

struct IpcFile {
    bytes: Buffer,
    schema: Arc<Schema>,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
}

fn damaged(what: impl std::fmt::Display) -> ReadError {
    ReadError::new(format!("damaged Arrow IPC file: {what}"))
}

fn torn(what: &str) -> ReadError {
    ReadError::new(format!("torn Arrow IPC file: {what}"))
        .hint("its writer was interrupted or the copy is incomplete; write or copy it again")
}

/// Runs Arrow's code; if it should panic on a damaged file after all, that is an error like any other.
fn guarded<T>(f: impl FnOnce() -> std::result::Result<T, ArrowError>) -> Result<T> {
    super::guarded_run(f)
        .unwrap_or_else(|| Err(ArrowError::IpcError("its columns cannot be decoded".into())))
        .map_err(damaged)
}

impl IpcFile {
    fn open(bytes: Bytes) -> Result<IpcFile> {
        let bytes = Buffer::from(bytes);
        let len = bytes.len();
        if len < 24 || &bytes[..6] != MAGIC {
            return Err(if len < 24 { torn("it is too short to be one") } else { damaged("it does not begin as one") });
        }
        if &bytes[len - 6..] != MAGIC {
            return Err(torn("it does not end as one"));
        }
        let size = u32::from_le_bytes([bytes[len - 10], bytes[len - 9], bytes[len - 8], bytes[len - 7]]) as usize;
        let start = (len - 10).checked_sub(size).filter(|&s| s >= 8).ok_or_else(|| torn("its footer is cut off"))?;
        let footer = arrow_ipc::root_as_footer(&bytes[start..len - 10]).map_err(damaged)?;
        let schema = footer.schema().ok_or_else(|| damaged("it has no schema"))?;
        let schema = guarded(|| Ok(arrow_ipc::convert::fb_to_schema(schema)))?;
        Ok(IpcFile {
            schema: Arc::new(schema),
            version: footer.version(),
            dictionaries: footer.dictionaries().into_iter().flatten().copied().collect(),
            batches: footer.recordBatches().into_iter().flatten().copied().collect(),
            bytes,
        })
    }

    /// The bytes of a block, after a look at what it claims; `budget` is what decompression may yet yield.
    fn block(&self, block: &Block, budget: &mut u64) -> Result<Buffer> {
        let beyond = || damaged("a block lies outside the file");
        let offset = usize::try_from(block.offset()).map_err(|_| beyond())?;
        let head = usize::try_from(block.metaDataLength()).map_err(|_| beyond())?;
        let body = usize::try_from(block.bodyLength()).map_err(|_| beyond())?;
        let total = head.checked_add(body).filter(|&n| head >= 8 && n <= self.bytes.len()).ok_or_else(beyond)?;
        if offset > self.bytes.len() - total {
            return Err(beyond());
        }
        let bytes = self.bytes.slice_with_length(offset, total);
        self.claims(&bytes[..head], &bytes[head..], budget)?;
        Ok(bytes)
    }

    fn claims(&self, head: &[u8], body: &[u8], budget: &mut u64) -> Result<()> {
        let skip = if head[..4] == [0xff; 4] { 8 } else { 4 };
        let message = arrow_ipc::root_as_message(&head[skip..]).map_err(damaged)?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|d| d.data()),
            _ => return Err(damaged("a block is neither a batch nor a dictionary")),
        };
        let Some(batch) = batch else { return Err(damaged("a block holds nothing")) };
        if batch.length() < 0 || batch.nodes().into_iter().flatten().any(|n| n.length() < 0 || n.null_count() < 0) {
            return Err(damaged("a column has fewer than no rows"));
        }
        for buffer in batch.buffers().into_iter().flatten() {
            let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
            let bytes = range.and_then(|(at, n)| body.get(at..at.checked_add(n)?));
            let Some(bytes) = bytes else { return Err(damaged("a buffer lies outside its block")) };
            if batch.compression().is_none() || bytes.is_empty() {
                continue;
            }
            let claimed = bytes
                .first_chunk::<8>()
                .map(|b| i64::from_le_bytes(*b))
                .ok_or_else(|| damaged("a buffer is cut off"))?;
            // -1 stands for bytes that are not compressed after all.
            let claimed = if claimed == -1 { 0 } else { u64::try_from(claimed).unwrap_or(u64::MAX) };
            *budget = budget.checked_sub(claimed).ok_or_else(|| {
                damaged("its buffers claim to hold far more than the file's length")
                    .hint("a history does not compress so well")
            })?;
        }
        Ok(())
    }
}
