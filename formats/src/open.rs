//! From a name to a history: finds the format by content, takes off compression, reads, builds.
//!
//! Text formats stream, so that memory is bounded by the history's columns, not by the file. Formats that need random
//! access are mapped; where they come compressed or from standard input, they are first spooled to a temporary file.

use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::build::{BuildOptions, HistoryBuilder, Lift};
use crate::columnar;
use crate::error::{ReadError, Result};
use crate::event::EventBatch;
use crate::history::{History, KeyForm};
use crate::jepsen::store::Source;
use crate::listing;
use crate::peers::detect::PeerFormat;
use crate::peers::{Facts, awdit, chronos, cobra, dbcop, plume};
use crate::schema;

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Jepsen's `history.edn`.
    Edn,
    /// Jepsen-shaped JSON: an array, or an object a line.
    Json,
    /// Jepsen's `history.txt`.
    HistoryTxt,
    /// Operations in a process log, as in Porcupine's etcd logs.
    ProcessLog,
    /// Jepsen's `test.jepsen`.
    Jepsen,
    /// Jepsen's older `test.fressian`. Never detected: it has no magic.
    Fressian,
    /// The default operation schema as JSON, an object a line.
    Schema,
    /// The default operation schema as CSV.
    Csv,
    /// Parquet: the columnar form, or the default schema.
    Parquet,
    /// Arrow IPC file: the columnar form.
    Arrow,
    /// Transactions of another checker.
    Peer(PeerFormat),
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 16] = [
        Format::Edn,
        Format::Json,
        Format::HistoryTxt,
        Format::ProcessLog,
        Format::Jepsen,
        Format::Fressian,
        Format::Schema,
        Format::Csv,
        Format::Parquet,
        Format::Arrow,
        Format::Peer(PeerFormat::Plume),
        Format::Peer(PeerFormat::DbcopBincode),
        Format::Peer(PeerFormat::DbcopJson),
        Format::Peer(PeerFormat::Cobra),
        Format::Peer(PeerFormat::Awdit),
        Format::Peer(PeerFormat::Chronos),
    ];

    /// Its name, as `--format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Edn => "edn",
            Format::Json => "json",
            Format::HistoryTxt => "history-txt",
            Format::ProcessLog => "process-log",
            Format::Jepsen => "jepsen",
            Format::Fressian => "fressian",
            Format::Schema => "schema",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
            Format::Peer(PeerFormat::Plume) => "plume",
            Format::Peer(PeerFormat::DbcopBincode) => "dbcop",
            Format::Peer(PeerFormat::DbcopJson) => "dbcop-json",
            Format::Peer(PeerFormat::Cobra) => "cobra",
            Format::Peer(PeerFormat::Awdit) => "awdit",
            Format::Peer(PeerFormat::Chronos) => "chronos",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Does it need random access to the whole file?
    fn is_mapped(self) -> bool {
        matches!(
            self,
            Format::Jepsen
                | Format::Fressian
                | Format::Parquet
                | Format::Arrow
                | Format::Peer(PeerFormat::DbcopBincode | PeerFormat::DbcopJson | PeerFormat::Chronos)
        )
    }
}

/// How to open a history.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format; `None`: found by content.
    pub format: Option<Format>,
    /// What to do about `[k v]` values.
    pub lift: Lift,
    /// Repair what is malformed.
    pub lenient: bool,
    /// Threads for formats that can be read in parallel; 0: as many as there are cores.
    pub threads: usize,
}

/// Told how many bytes of how many have been read; the total is not known of standard input.
pub type Progress<'a> = &'a (dyn Fn(u64, Option<u64>) + Sync);

/// Opens a history: a file, a Jepsen store directory, a Cobra log directory, or `-` for standard input.
///
/// # Errors
/// One clear message when there is no such history, or it cannot be read, or it is malformed.
pub fn open(name: &str, options: &OpenOptions, progress: Progress<'_>) -> Result<History> {
    open_unnamed(name, options, progress)
        .and_then(some_operation)
        .map_err(|e| e.in_file(if name == "-" { "standard input" } else { name }))
}

/// Opens a history that lies in memory.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(bytes: &[u8], options: &OpenOptions) -> Result<History> {
    stream(Box::new(bytes), None, options, &|_, _| {}).and_then(some_operation)
}

fn some_operation(history: History) -> Result<History> {
    if history.is_empty() {
        return Err(ReadError::new("it holds no operation").hint("is it the right file?"));
    }
    Ok(history)
}

fn open_unnamed(name: &str, options: &OpenOptions, progress: Progress<'_>) -> Result<History> {
    if name == "-" {
        return stream(Box::new(io::stdin().lock()), None, options, progress);
    }
    let path = Path::new(name);
    let meta = std::fs::metadata(path).map_err(|e| ReadError::new(format!("cannot open: {}", plain(&e))))?;
    if meta.is_dir() {
        return directory(path, options, progress);
    }
    file(path, options, progress)
}

fn plain(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => e.to_string(),
    }
}

fn directory(path: &Path, options: &OpenOptions, progress: Progress<'_>) -> Result<History> {
    let format = options.format.or_else(|| crate::peers::detect::sniff_directory(path).map(Format::Peer));
    if let Some(cobra @ Format::Peer(PeerFormat::Cobra)) = format {
        return build(cobra, options, |sink| cobra::read(path, sink).map(note));
    }
    let store = crate::jepsen::store::locate(path)?;
    let Some(source) = store.history() else {
        return Err(ReadError::new("there is no history here"));
    };
    let format = match source {
        Source::Edn(_) => Format::Edn,
        Source::Jepsen(_) => Format::Jepsen,
        Source::Fressian(_) => Format::Fressian,
        Source::Listing(_) => Format::HistoryTxt,
    };
    let options = OpenOptions { format: options.format.or(Some(format)), ..options.clone() };
    file(source.path(), &options, progress).map_err(|e| e.in_file(&source.path().display().to_string()))
}

fn file(path: &Path, options: &OpenOptions, progress: Progress<'_>) -> Result<History> {
    let file = File::open(path).map_err(|e| ReadError::new(format!("cannot open: {}", plain(&e))))?;
    let total = file.metadata().map(|m| m.len()).ok();
    stream(Box::new(file), Some((path, total.unwrap_or(0))), options, progress)
}

/// Bytes to look at in order to tell a format.
const HEAD: usize = 1 << 16;

fn stream<'a>(
    raw: Box<dyn Read + 'a>,
    of_file: Option<(&Path, u64)>,
    options: &OpenOptions,
    progress: Progress<'a>,
) -> Result<History> {
    let counted = Box::new(Counted { inner: raw, read: 0, total: of_file.map(|(_, n)| n), progress });
    let (mut input, compressed) = decompress(counted)?;
    let head = take_head(&mut input)?;
    if head.iter().all(u8::is_ascii_whitespace) && head.len() < HEAD {
        return Err(ReadError::new("it is empty").hint("a history has at least one operation"));
    }
    let format = match options.format {
        Some(format) => format,
        None => detect(&head)?,
    };
    if !format.is_mapped() {
        let mut whole = Cursor::new(head).chain(input);
        return text(format, &mut whole, options);
    }
    let map = match of_file {
        Some((path, _)) if !compressed => map(&File::open(path)?)?,
        _ => spool(&mut Cursor::new(head).chain(input))?,
    };
    mapped(format, map, options)
}

/// Copies a stream to a temporary file that vanishes with its last user, and maps it.
fn spool(input: &mut dyn Read) -> Result<Mmap> {
    let mut file = tempfile::tempfile().map_err(|e| ReadError::new(format!("cannot make a temporary file: {e}")))?;
    io::copy(input, &mut file).map_err(|e| ReadError::new(format!("cannot unpack: {e}")))?;
    file.flush()?;
    map(&file)
}

fn map(file: &File) -> Result<Mmap> {
    // SAFETY: the map is only read. What no code here can vouch for is that nobody else writes to the file while it is
    // mapped: that would change bytes behind shared references, which Rust calls undefined. Cut short, the file ends
    // this process (SIGBUS). Changed, it breaks what was validated but once: that texts are UTF-8, and that Arrow's
    // offsets and dictionary codes lie within bounds, which Arrow and we rely on after. Histories are written once and
    // replaced whole; a file that is still being written should be given through a pipe.
    unsafe { Mmap::map(file) }.map_err(|e| ReadError::new(format!("cannot map: {e}")))
}

/// Takes off gzip, zstd or lz4, by magic; says whether there was any.
fn decompress<'a>(mut raw: Box<dyn Read + 'a>) -> Result<(Box<dyn Read + 'a>, bool)> {
    let mut magic = Vec::with_capacity(4);
    raw.by_ref().take(4).read_to_end(&mut magic).map_err(cannot_read)?;
    let kind = magic.clone();
    let whole = Cursor::new(magic).chain(raw);
    Ok(match kind.as_slice() {
        [0x1f, 0x8b, ..] => (Box::new(flate2::read::MultiGzDecoder::new(whole)), true),
        [0x28, 0xb5, 0x2f, 0xfd] => (Box::new(zstd::stream::read::Decoder::new(whole).map_err(cannot_read)?), true),
        [0x04, 0x22, 0x4d, 0x18] => (Box::new(lz4_flex::frame::FrameDecoder::new(whole)), true),
        _ => (Box::new(whole), false),
    })
}

fn cannot_read(e: io::Error) -> ReadError {
    ReadError::new(format!("cannot read: {}", plain(&e)))
}

fn take_head(input: &mut dyn Read) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    input.take(HEAD as u64).read_to_end(&mut head).map_err(cannot_read)?;
    Ok(head)
}

/// Tells progress of what is read.
struct Counted<'a> {
    inner: Box<dyn Read + 'a>,
    read: u64,
    total: Option<u64>,
    progress: Progress<'a>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read += n as u64;
        (self.progress)(self.read, self.total);
        Ok(n)
    }
}

/// Finds a format by the beginning of the content.
///
/// # Errors
/// When it looks like none that is known.
pub fn detect(head: &[u8]) -> Result<Format> {
    match head {
        [b'J', b'E', b'P', b'S', b'E', b'N', ..] => return Ok(Format::Jepsen),
        [b'P', b'A', b'R', b'1', ..] => return Ok(Format::Parquet),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => return Ok(Format::Arrow),
        _ => {}
    }
    if let Some(peer) = crate::peers::detect::sniff(head) {
        return Ok(Format::Peer(peer));
    }
    if let Some(shape) = crate::json::sniff::sniff(head) {
        return Ok(match shape {
            crate::json::sniff::Shape::Events => Format::Json,
            crate::json::sniff::Shape::Records => Format::Schema,
            crate::json::sniff::Shape::Csv => Format::Csv,
        });
    }
    if let Some(shape) = listing::sniff(head) {
        return Ok(match shape {
            listing::Shape::HistoryTxt => Format::HistoryTxt,
            listing::Shape::ProcessLog => Format::ProcessLog,
        });
    }
    let text = std::str::from_utf8(head).or_else(|e| {
        // The head may be cut within a character.
        if e.error_len().is_none() { std::str::from_utf8(&head[..e.valid_up_to()]) } else { Err(e) }
    });
    match text.map(|t| t.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '\u{feff}')) {
        Ok(t) if t.starts_with(['{', '[', '(', '#', ';']) => Ok(Format::Edn),
        Ok(_) => Err(ReadError::new("this looks like no history format that is known").hint(formats_hint())),
        Err(_) => Err(ReadError::new("this is binary data of no format that is known").hint(formats_hint())),
    }
}

fn formats_hint() -> String {
    let names: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
    format!("--format names one of {}", names.join(", "))
}

type Sink<'a> = &'a mut dyn FnMut(&mut EventBatch) -> Result<()>;

/// What a reader has to say of a history beside its events.
#[derive(Default)]
struct Said {
    note: Option<String>,
    /// Why the history is not whole.
    partial: Option<String>,
}

/// Builds a history from what a reader delivers.
fn build(format: Format, options: &OpenOptions, read: impl FnOnce(Sink<'_>) -> Result<Said>) -> Result<History> {
    let mut builder = HistoryBuilder::new(BuildOptions {
        lift: options.lift,
        lenient: options.lenient,
        // Of Parquet files only those of the default schema are built.
        by_time: matches!(format, Format::Schema | Format::Csv | Format::Parquet),
        format: format.name().into(),
        rows: format.is_mapped(),
        real_time: !matches!(format, Format::Peer(_)),
    });
    let said = read(&mut |batch| builder.push(batch))?;
    if let Some(note) = said.note {
        builder.note(note);
    }
    if let Some(partial) = said.partial {
        builder.partial(partial);
    }
    builder.finish()
}

fn text(format: Format, input: &mut dyn Read, options: &OpenOptions) -> Result<History> {
    let threads = if options.threads == 0 { rayon::current_num_threads() } else { options.threads };
    build(format, options, |sink| {
        match format {
            Format::Edn => crate::edn::events::read(input, threads, sink)?,
            Format::Json => crate::json::events::read(input, threads, sink)?,
            Format::HistoryTxt | Format::ProcessLog => listing::read(input, sink)?,
            Format::Schema => schema::read_jsonl(input, sink)?,
            Format::Csv => schema::read_csv(input, sink)?,
            Format::Peer(PeerFormat::Plume) => return plume::read(input, sink).map(note),
            Format::Peer(PeerFormat::Awdit) => return awdit::read(input, sink).map(note),
            Format::Peer(PeerFormat::Cobra) => {
                return Err(ReadError::new("Cobra's logs are a directory, not a file"));
            }
            _ => return Err(ReadError::new("internal error: a format that is mapped was streamed")),
        }
        Ok(Said::default())
    })
}

/// Columns are as they were written: their keys can be neither lifted nor put back here.
fn as_asked(history: History, lift: Lift) -> Result<History> {
    let tuple = history.meta().keys == KeyForm::Tuple;
    match lift {
        Lift::Always if history.meta().keys == KeyForm::None => {
            Err(ReadError::new("its columns were written without keys")
                .hint("convert the original again with --independent"))
        }
        Lift::Never if tuple => Err(ReadError::new("its columns were written with keys lifted")
            .hint("convert the original again with --no-independent")),
        _ => Ok(history),
    }
}

fn mapped(format: Format, map: Mmap, options: &OpenOptions) -> Result<History> {
    let columnar = columnar::ReadOptions { threads: options.threads, lenient: options.lenient };
    match format {
        Format::Arrow => {
            let history = columnar::read_ipc_bytes(Bytes::from_owner(map), &columnar)?;
            as_asked(history.came_in(format.name()), options.lift)
        }
        Format::Parquet => {
            let bytes = Bytes::from_owner(map);
            if !columnar::is_default_schema_parquet(&bytes)? {
                let history = columnar::read_parquet_bytes(bytes, &columnar)?;
                return as_asked(history.came_in(format.name()), options.lift);
            }
            build(format, options, |sink| columnar::read_default_schema_parquet(bytes, sink).map(|()| Said::default()))
        }
        Format::Jepsen => build(format, options, |sink| {
            let torn = crate::jepsen::read(&map, sink)?.torn;
            let partial = torn.map(|t| {
                format!("the file is torn: read up to byte {}, {} events beyond its last index", t.at, t.recovered)
            });
            Ok(Said { partial, note: None })
        }),
        Format::Fressian => {
            build(format, options, |sink| crate::jepsen::read_fressian(&map, sink).map(|_| Said::default()))
        }
        Format::Peer(PeerFormat::Chronos) => build(format, options, |sink| chronos::read(&map, sink).map(note)),
        _ => build(format, options, |sink| dbcop::read(&map, sink).map(note)),
    }
}

/// What a reader of a verdict should know of a peer's history.
fn note(facts: Facts) -> Said {
    let note = (facts.doubtful > 0).then(|| {
        format!(
            "{} committed transactions hold operations that failed; what they did before was probably rolled back, so a \
             violation that rests on them proves little",
            facts.doubtful
        )
    });
    Said { note, partial: None }
}
