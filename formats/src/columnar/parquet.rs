//! Parquet: written whole or not at all, read in parallel by row groups.
//!
//! Integers are delta-encoded, texts have dictionaries, row groups hold 262,144 rows. The crate that writes pages writes
//! no page checksums, so each row group has one of all its bytes in the footer, and the footer, which says where columns
//! lie and how they are encoded, one of all its own bytes but those of that checksum: a flipped bit is an error, not
//! another history. (Page checksums of others are verified.)
//!
//! What a file claims is checked before it is believed: Thrift lengths against the bytes there are, pages against their
//! column, and everything decoded against [`FREE_BYTES`] and [`RATIO`] times the file's length.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter, ProjectionMask};
use parquet::basic::{Compression as Codec, Encoding, Type, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, Length};
use rayon::prelude::*;

use crate::History;
use crate::error::{Place, ReadError, Result};
use crate::history::{Chunk, Meta};

use super::meta::{self, FooterSum, GROUP_SUMS, META_SUM, VOID};
use super::read::{Decoder, Pools};
use super::schema::Plan;
use super::thrift::Walker;
use super::write::{Encoder, WholeFile};
use super::{Compression, ReadOptions, WriteOptions};

/// Name of the schema's root in our files: one that has it, but not our metadata, has lost that.
const ROOT: &str = "elench";
/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 18;
/// Rows decoded at once: small batches stay below the size from which glibc maps memory anew for each.
const BATCH_ROWS: usize = 1 << 13;
/// Bytes that a file of any length may decode to.
pub(super) const FREE_BYTES: u64 = 256 << 20;
/// Bytes that a byte of a file may decode to, beyond that.
pub(super) const RATIO: u64 = 512;

/// Bytes that a row takes in memory even where the file has no columns for them: indices, process, status, function.
const ROW_BYTES: u64 = 27;

/// Columns that are not compressed. After delta encoding, zstd would save 1 % of a large register file and 11 % of a
/// list-append one, and reading takes about 5 % longer for the latter (register: no difference to be seen); measured with
/// the example `columnar_speed`, 10^6 and 250,000 operations.
const TIGHT: [&str; 5] = ["index", "complete_index", "process", "invoke_time", "complete_time"];

/// The columns that a history is made of.
pub(super) const COLUMNS: [&str; 21] = [
    "index",
    "complete_index",
    "process",
    "actor",
    "status",
    "f",
    "invoke_time",
    "complete_time",
    "key",
    "input",
    "input_list",
    "input_set",
    "output",
    "output_list",
    "output_set",
    "txn",
    "error",
    "node",
    "fault_epoch",
    "extra",
    "invoke_extra",
];

/// Writes a history as a Parquet file.
///
/// # Errors
/// When the file cannot be written; nothing is left under its name then.
pub fn write_parquet(path: &Path, history: &History, options: &WriteOptions) -> Result<()> {
    let mut writer = ParquetWriter::create(path, &Plan::of(history), options)?;
    writer.write(history)?;
    writer.finish()
}

/// Writes a Parquet file part by part in bounded memory: a row group's encoded pages, and the part at hand.
pub struct ParquetWriter {
    target: WholeFile,
    writer: ArrowWriter<Summed>,
    plan: Plan,
    workload: Option<String>,
    meta: Option<Meta>,
    counts: [u64; 4],
    group_rows: usize,
    sums: Vec<u32>,
    /// Columns in which something is, by position.
    used: Vec<bool>,
}

/// Sums what passes through it.
struct Summed {
    file: File,
    sum: crc32fast::Hasher,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.sum.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ParquetWriter {
    /// Begins a file under a temporary name; `plan` must hold all that will be written.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path, plan: &Plan, options: &WriteOptions) -> Result<ParquetWriter> {
        let target = WholeFile::create(path)?;
        let schema = plan.schema();
        let properties = properties(&schema, options)?;
        let sink = Summed { file: target.file()?, sum: crc32fast::Hasher::new() };
        let settings = ArrowWriterOptions::new().with_properties(properties).with_schema_root(ROOT.into());
        let mut writer = ArrowWriter::try_new_with_options(sink, Arc::clone(&schema), settings).map_err(unwritten)?;
        writer.sync()?;
        writer.inner_mut().sum.reset();
        Ok(ParquetWriter {
            target,
            writer,
            plan: plan.clone(),
            workload: options.workload.clone(),
            meta: None,
            counts: [0; 4],
            group_rows: 0,
            sums: Vec::new(),
            used: vec![false; schema.fields().len()],
        })
    }

    /// Appends the operations of a history, whose indices go on where the last one's ended. What is known of the whole
    /// is taken from the last.
    ///
    /// # Errors
    /// When values have a shape that the plan does not hold, or the file cannot be written.
    pub fn write(&mut self, history: &History) -> Result<()> {
        self.plan.admit(&Plan::of(history))?;
        let keys = history.meta().keys;
        if let Some(before) = &self.meta
            && before.keys != keys
        {
            return Err(ReadError::new(format!(
                "keys are {keys:?} in a later part of the history, {:?} before",
                before.keys
            )));
        }
        for (total, n) in self.counts.iter_mut().zip(history.counts()) {
            *total += n;
        }
        self.meta = Some(history.meta().clone());
        for chunk in history.chunks() {
            self.chunk(history, chunk)?;
        }
        Ok(())
    }

    fn chunk(&mut self, history: &History, chunk: &Chunk) -> Result<()> {
        let plan = self.plan.clone();
        let batch = Encoder::new(history, &plan, std::slice::from_ref(chunk))?.batch(chunk)?;
        for (used, column) in self.used.iter_mut().zip(batch.columns()) {
            *used |= column.null_count() < column.len();
        }
        let mut at = 0;
        while at < batch.num_rows() {
            let n = (batch.num_rows() - at).min(GROUP_ROWS - self.group_rows);
            self.writer.write(&batch.slice(at, n)).map_err(unwritten)?;
            at += n;
            self.group_rows += n;
            if self.group_rows == GROUP_ROWS {
                self.end_group()?;
            }
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        if self.group_rows > 0 {
            self.writer.flush().map_err(unwritten)?;
            self.writer.sync()?;
            let sum = std::mem::take(&mut self.writer.inner_mut().sum);
            self.sums.push(sum.finalize());
            self.group_rows = 0;
        }
        Ok(())
    }

    /// Ends the file and gives it its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.end_group()?;
        let meta = self.meta.take().unwrap_or_default();
        let schema = self.plan.schema();
        let mut pairs = meta::encode(&meta, self.workload.as_deref(), self.counts);
        let sums: Vec<String> = self.sums.iter().map(|s| format!("{s:08x}")).collect();
        pairs.push((GROUP_SUMS.into(), sums.join(",")));
        let void: Vec<&str> = schema
            .fields()
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used)
            .map(|(f, _)| f.name().as_str())
            .collect();
        pairs.push((VOID.into(), void.join(",")));
        // Last, as nothing that a history holds may come after it: see `FooterSum`.
        pairs.push((META_SUM.into(), meta::NO_SUM.into()));
        for (k, v) in pairs {
            self.writer.append_key_value_metadata(KeyValue::new(k, v));
        }
        self.writer.close().map_err(unwritten)?;
        sum_footer(self.target.file()?)?;
        self.target.finish()
    }
}

/// Puts the footer's checksum into the footer of a file.
fn sum_footer(mut file: File) -> Result<()> {
    let (bytes, start) = footer_bytes(&Source::File(&file, file.metadata()?.len()))?;
    let sum = FooterSum::find(&bytes).ok_or_else(|| unwritten("its footer has no place for a checksum"))?;
    file.seek(SeekFrom::Start(start + sum.at as u64))?;
    Ok(file.write_all(sum.computed.as_bytes())?)
}

fn properties(schema: &Schema, options: &WriteOptions) -> Result<WriterProperties> {
    let codec = match options.compression.unwrap_or(Compression::Zstd) {
        Compression::None => Codec::UNCOMPRESSED,
        Compression::Lz4 => Codec::LZ4_RAW,
        Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(1).map_err(unwritten)?),
    };
    let mut properties = WriterProperties::builder()
        .set_compression(codec)
        .set_created_by(concat!("elench ", env!("CARGO_PKG_VERSION")).into())
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    let converted = ArrowSchemaConverter::new().convert(schema).map_err(unwritten)?;
    for column in converted.columns() {
        if matches!(column.physical_type(), Type::INT64 | Type::INT32) {
            properties = properties
                .set_column_dictionary_enabled(column.path().clone(), false)
                .set_column_encoding(column.path().clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if TIGHT.contains(&column.path().string().as_str()) {
            properties = properties.set_column_compression(column.path().clone(), Codec::UNCOMPRESSED);
        }
    }
    Ok(properties.build())
}

fn unwritten(e: impl std::fmt::Display) -> ReadError {
    ReadError::new(format!("cannot write Parquet: {e}"))
}

/// Reads a history from a Parquet file, ours or one with the same columns.
///
/// # Errors
/// When it is torn, damaged, or no history.
pub fn read_parquet(file: &File, options: &ReadOptions) -> Result<History> {
    read(&Source::File(file, file.metadata()?.len()), options)
}

/// Reads a history from the bytes of a Parquet file.
///
/// # Errors
/// As [`read_parquet`].
pub fn read_parquet_bytes(bytes: Bytes, options: &ReadOptions) -> Result<History> {
    read(&Source::Bytes(bytes), options)
}

/// Where bytes come from. Files are read at positions, so that threads share them, and never mapped, so that a file cut
/// short under the reader is an error.
enum Source<'a> {
    File(&'a File, u64),
    Bytes(Bytes),
}

impl Source<'_> {
    fn len(&self) -> u64 {
        match self {
            Source::File(_, len) => *len,
            Source::Bytes(bytes) => bytes.len() as u64,
        }
    }

    fn get(&self, range: Range<u64>) -> Result<Bytes> {
        if range.start > range.end || range.end > self.len() {
            return Err(damaged("it refers to bytes beyond its end"));
        }
        let n = (range.end - range.start) as usize;
        match self {
            Source::Bytes(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Source::File(file, _) => {
                let mut out = vec![0; n];
                read_at(file, &mut out, range.start)?;
                Ok(out.into())
            }
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    while !out.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, out, at)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (out, at) = (&mut out[n..], at + n as u64);
    }
    Ok(())
}

/// The part of a file that holds a row group, under its positions in the file.
struct Window {
    bytes: Bytes,
    start: u64,
}

/// Columns that are decoded even if nothing is in them: what they mean hangs on their being there.
const REQUIRED: [&str; 4] = ["index", "complete_index", "status", "f"];

impl Length for Window {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Window {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let n = self.len().saturating_sub(start);
        Ok(self.get_bytes(start, n as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let at = start.checked_sub(self.start).map(|at| at as usize);
        match at.and_then(|at| Some(at..at.checked_add(length)?)) {
            Some(range) if range.end <= self.bytes.len() => Ok(self.bytes.slice(range)),
            _ => Err(ParquetError::EOF("a page lies outside its row group".into())),
        }
    }
}

fn damaged(what: impl std::fmt::Display) -> ReadError {
    ReadError::new(format!("damaged Parquet file: {what}"))
}

fn torn(what: &str) -> ReadError {
    ReadError::new(format!("torn Parquet file: {what}"))
        .hint("its writer was interrupted or the copy is incomplete; write or copy it again")
}

fn read(source: &Source<'_>, options: &ReadOptions) -> Result<History> {
    if options.threads == 0 {
        return read_groups(source, options);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    pool.map_err(|e| ReadError::new(format!("cannot start threads: {e}")))?.install(|| read_groups(source, options))
}

/// A file whose metadata is read and was found to be sound.
struct Opened {
    arrow: ArrowReaderMetadata,
    pairs: HashMap<String, String>,
    sums: Option<Vec<u32>>,
}

impl Opened {
    fn of(source: &Source<'_>) -> Result<Opened> {
        let (metadata, summed) = footer(source)?;
        let metadata = Arc::new(metadata);
        let pairs: HashMap<String, String> = metadata
            .file_metadata()
            .key_value_metadata()
            .into_iter()
            .flatten()
            .filter_map(|kv| Some((kv.key.clone(), kv.value.clone()?)))
            .collect();
        let ours = pairs.contains_key(GROUP_SUMS) || metadata.file_metadata().schema().name() == ROOT;
        if ours && !summed {
            return Err(damaged("it is ours, but its metadata's checksum is lost"));
        }
        let sums = match pairs.get(GROUP_SUMS) {
            Some(sums) => Some(
                group_sums(sums)
                    .filter(|s| s.len() == metadata.num_row_groups())
                    .ok_or_else(|| damaged("its checksums are not those of its row groups"))?,
            ),
            None => None,
        };
        plausible(&metadata, source.len())?;
        let load = |options| guarded(|| ArrowReaderMetadata::try_new(Arc::clone(&metadata), options));
        let mut arrow = load(ArrowReaderOptions::new())?;
        if arrow.schema().fields().iter().any(|f| has_void_dictionary(f.data_type())) {
            // pandas writes an empty category so, and the Parquet crate cannot decode it. Parquet's own types will do.
            arrow = load(ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
        }
        Ok(Opened { arrow, pairs, sums })
    }

    /// The row of the file at which each row group begins.
    fn first_rows(&self) -> Vec<u64> {
        let rows = self.arrow.metadata().row_groups().iter().map(|g| g.num_rows() as u64);
        rows.scan(0, |next, n| Some(std::mem::replace(next, *next + n))).collect()
    }
}

/// The types of a file's columns.
pub(super) fn parquet_schema(bytes: &Bytes) -> Result<Arc<Schema>> {
    Ok(Arc::clone(Opened::of(&Source::Bytes(bytes.clone()))?.arrow.schema()))
}

/// All rows of a file in order, batch by batch, with the row at which each begins.
pub(super) fn for_each_batch(bytes: Bytes, each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>) -> Result<()> {
    let source = Source::Bytes(bytes);
    let opened = Opened::of(&source)?;
    let roots: Vec<usize> = (0..opened.arrow.schema().fields().len()).collect();
    let reader = GroupReader { source: &source, opened: &opened, roots: &roots };
    opened.first_rows().into_iter().enumerate().try_for_each(|(i, row)| reader.batches(i, row, each))
}

fn read_groups(source: &Source<'_>, options: &ReadOptions) -> Result<History> {
    let opened = Opened::of(source)?;
    let meta = meta::decode(&opened.pairs)?;
    // Of all the file's columns, so that an error can name them.
    let schema = opened.arrow.schema();
    let whole = Decoder::new(schema, meta.is_none())?;
    let void: Vec<&str> = opened.pairs.get(VOID).map(|v| v.split(',').collect()).unwrap_or_default();
    let wanted = |name: &str| COLUMNS.contains(&name) && (REQUIRED.contains(&name) || !void.contains(&name));
    let roots: Vec<usize> = (0..schema.fields().len())
        .filter(|&i| wanted(schema.field(i).name()) || whole.is_further(schema.field(i)))
        .collect();
    let decoder = Decoder::new(&schema.project(&roots).map_err(damaged)?, meta.is_none())?;
    let reader = GroupReader { source, opened: &opened, roots: &roots };
    let groups: Vec<(Vec<Chunk>, Pools)> = opened
        .first_rows()
        .par_iter()
        .enumerate()
        .map(|(i, &row)| {
            let (mut pools, mut chunks) = (Pools::sharing(), Vec::new());
            reader.batches(i, row, &mut |batch, at| {
                chunks.push(decoder.chunk(&batch, &mut pools, at)?);
                Ok(())
            })?;
            pools.show_lists(&mut chunks);
            Ok((chunks, pools))
        })
        .collect::<Result<_>>()?;
    let (chunks, pools) = join(groups)?;
    whole.finish(chunks, pools, meta, "parquet", options)
}

/// Is there a dictionary of nulls in a type?
fn has_void_dictionary(t: &DataType) -> bool {
    match t {
        DataType::Dictionary(_, values) => values.as_ref() == &DataType::Null,
        DataType::List(f) | DataType::LargeList(f) | DataType::Map(f, _) => has_void_dictionary(f.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| has_void_dictionary(f.data_type())),
        _ => false,
    }
}

/// One history's chunks from those of row groups that have pools of their own; ids follow the order of the file.
fn join(groups: Vec<(Vec<Chunk>, Pools)>) -> Result<(Vec<Chunk>, Pools)> {
    let mut groups = groups.into_iter();
    let Some((first, mut pools)) = groups.next() else { return Ok((Vec::new(), Pools::default())) };
    let mut rest = Vec::new();
    for (chunks, theirs) in groups {
        rest.push((chunks, pools.merge(&theirs)?));
    }
    rest.par_iter_mut().for_each(|(chunks, remap)| chunks.iter_mut().for_each(|c| remap.apply(c)));
    let chunks = first.into_iter().chain(rest.into_iter().flat_map(|(chunks, _)| chunks)).collect();
    Ok((chunks, pools))
}

fn group_sums(text: &str) -> Option<Vec<u32>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|s| u32::from_str_radix(s, 16).ok()).collect()
}

/// Runs the Parquet crate's code; if it should panic on a damaged file after all, that is an error like any other.
fn guarded<T>(f: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let otherwise = || Err(ParquetError::General("its pages cannot be decoded".into()));
    super::guarded_run(f).unwrap_or_else(otherwise).map_err(damaged)
}

/// The metadata of a file, and whether it has a checksum.
fn footer(source: &Source<'_>) -> Result<(ParquetMetaData, bool)> {
    let (bytes, _) = footer_bytes(source)?;
    let sum = FooterSum::find(&bytes);
    if sum.as_ref().is_some_and(|sum| !sum.holds()) {
        return Err(damaged("its metadata does not have the checksum that it was written with")
            .hint("it was damaged, or rewritten by another program that kept the checksum; copy or write it again"));
    }
    Walker::new(&bytes).structure().ok_or_else(|| damaged("its metadata is not sound"))?;
    Ok((guarded(|| ParquetMetaDataReader::decode_metadata(&bytes))?, sum.is_some()))
}

/// The bytes of a file's metadata, and where they begin.
fn footer_bytes(source: &Source<'_>) -> Result<(Bytes, u64)> {
    let len = source.len();
    if len < 12 || &source.get(0..4)?[..] != b"PAR1" {
        return Err(if len < 12 { torn("it is too short to be one") } else { damaged("it does not begin as one") });
    }
    let tail = source.get(len - 8..len)?;
    if &tail[4..] != b"PAR1" {
        return Err(torn("it does not end as one"));
    }
    let size = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let start = (len - 8).checked_sub(size).filter(|&s| s >= 4).ok_or_else(|| torn("its metadata is cut off"))?;
    Ok((source.get(start..len - 8)?, start))
}

/// Refuses a file that claims to hold far more than its length can.
fn plausible(metadata: &ParquetMetaData, len: u64) -> Result<()> {
    let mut bytes = 0u64;
    let mut rows = 0u64;
    for group in metadata.row_groups() {
        let n = u64::try_from(group.num_rows()).map_err(|_| damaged("a row group has fewer than no rows"))?;
        rows = rows.saturating_add(n);
        bytes = bytes.saturating_add(n.saturating_mul(ROW_BYTES));
        for column in group.columns() {
            let width = match column.column_type() {
                Type::INT64 | Type::DOUBLE => 8,
                Type::BOOLEAN => 1,
                _ => 4,
            };
            let values =
                u64::try_from(column.num_values()).map_err(|_| damaged("a column has fewer than no values"))?;
            let nested = column.column_descr().max_rep_level() > 0;
            if !nested && values != n {
                return Err(damaged("a column has more or fewer values than its row group has rows"));
            }
            let declared =
                u64::try_from(column.uncompressed_size()).map_err(|_| damaged("a column has a size below zero"))?;
            bytes = bytes.saturating_add(values.saturating_mul(width)).saturating_add(declared);
        }
    }
    if bytes > len.saturating_mul(RATIO).saturating_add(FREE_BYTES) {
        return Err(damaged(format!("{len} bytes claim to hold {rows} rows, {bytes} bytes decoded"))
            .hint("a history does not compress so well"));
    }
    Ok(())
}

struct GroupReader<'a> {
    source: &'a Source<'a>,
    opened: &'a Opened,
    roots: &'a [usize],
}

impl GroupReader<'_> {
    /// The batches of a row group whose first row this is.
    fn batches(&self, i: usize, row: u64, each: &mut dyn FnMut(RecordBatch, u64) -> Result<()>) -> Result<()> {
        let arrow = &self.opened.arrow;
        let group = arrow.metadata().row_group(i);
        let range = extent(group)?;
        let bytes = self.source.get(range.clone())?;
        if self.opened.sums.as_ref().is_some_and(|sums| sums[i] != crc32fast::hash(&bytes)) {
            let what = format!("row group {} does not have the checksum that it was written with", i + 1);
            return Err(damaged(what).at(Place::Row(row + 1)));
        }
        let window = Window { bytes, start: range.start };
        pages(group, &window)?;
        let mut next = row;
        let mask = ProjectionMask::roots(arrow.parquet_schema(), self.roots.iter().copied());
        let mut batches = guarded(|| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(window, arrow.clone())
                .with_row_groups(vec![i])
                .with_batch_size(BATCH_ROWS)
                .with_projection(mask)
                .build()
        })?;
        while let Some(batch) = guarded(|| Ok(batches.next()))? {
            let batch = batch.map_err(damaged)?;
            let n = batch.num_rows() as u64;
            each(batch, next)?;
            next += n;
        }
        if next - row != group.num_rows() as u64 {
            return Err(damaged("a row group has fewer rows than it claims"));
        }
        Ok(())
    }
}

fn column_range(column: &parquet::file::metadata::ColumnChunkMetaData) -> Result<Range<u64>> {
    let start = column.dictionary_page_offset().filter(|&o| o > 0).unwrap_or_else(|| column.data_page_offset());
    let start = start.min(column.data_page_offset());
    let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
    range.and_then(|(s, n)| Some(s..s.checked_add(n)?)).ok_or_else(|| damaged("a column lies outside the file"))
}

/// The bytes of a row group.
fn extent(group: &RowGroupMetaData) -> Result<Range<u64>> {
    let mut out: Option<Range<u64>> = None;
    for column in group.columns() {
        let range = column_range(column)?;
        out = Some(out.map_or(range.clone(), |o| o.start.min(range.start)..o.end.max(range.end)));
    }
    out.ok_or_else(|| damaged("a row group has no columns"))
}

/// Refuses pages that claim more than their column does.
fn pages(group: &RowGroupMetaData, window: &Window) -> Result<()> {
    for column in group.columns() {
        let range = column_range(column)?;
        let bytes = window.get_bytes(range.start, (range.end - range.start) as usize).map_err(damaged)?;
        let mut left = column.uncompressed_size();
        let mut values = column.num_values();
        let mut at = 0;
        while values > 0 && at < bytes.len() {
            let head = Walker::new(&bytes[at..]).page_head().ok_or_else(|| damaged("a page's head is not sound"))?;
            let size = usize::try_from(head.compressed).ok();
            let end = size.and_then(|n| n.checked_add(at + head.len)).filter(|&e| e <= bytes.len());
            left = left.saturating_sub(head.uncompressed);
            if !head.dictionary {
                values -= head.values;
            }
            let odd_dictionary = head.dictionary && head.values > head.uncompressed;
            let negative = head.uncompressed < 0 || head.values < 0;
            let (Some(end), false) = (end, left < 0 || values < 0 || odd_dictionary || negative) else {
                return Err(damaged(format!("a page of column `{}` claims more than there is", column.column_path())));
            };
            at = end;
        }
    }
    Ok(())
}
