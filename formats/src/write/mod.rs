//! Ways out of a history.
//!
//! What a format cannot say is refused, never dropped in silence.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::columnar::{self, WholeFile, WriteOptions};
use crate::error::Result;
use crate::history::{History, OpRef, Order, Side};

pub mod edn;
pub mod json;
pub mod schema;
pub mod stream;

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Jepsen's `history.edn`.
    Edn,
    /// Jepsen-shaped JSON, an event a line.
    Jsonl,
    /// The default operation schema, a JSON object a line.
    Schema,
    /// The default operation schema as CSV.
    Csv,
    /// The columnar form as Parquet.
    Parquet,
    /// The columnar form as an Arrow IPC file, to be mapped.
    Arrow,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 6] =
        [Target::Edn, Target::Jsonl, Target::Schema, Target::Csv, Target::Parquet, Target::Arrow];

    /// Its name, as `--to` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Edn => "edn",
            Target::Jsonl => "jsonl",
            Target::Schema => "schema",
            Target::Csv => "csv",
            Target::Parquet => "parquet",
            Target::Arrow => "arrow",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.name() == name)
    }

    /// From a file's extension.
    pub fn from_path(path: &Path) -> Option<Target> {
        match path.extension()?.to_str()? {
            "edn" => Some(Target::Edn),
            "jsonl" | "ndjson" | "json" => Some(Target::Jsonl),
            "csv" => Some(Target::Csv),
            "parquet" | "pq" => Some(Target::Parquet),
            "arrow" | "ipc" | "feather" => Some(Target::Arrow),
            _ => None,
        }
    }
}

/// Writes a history to a file, whole or not at all: to a temporary name first, renamed when it is whole.
///
/// # Errors
/// When the format cannot say what the history says, or writing fails.
pub fn to_file(history: &History, target: Target, path: &Path) -> Result<()> {
    let options = WriteOptions::default();
    match target {
        Target::Parquet => columnar::write_parquet(path, history, &options),
        Target::Arrow => columnar::write_ipc(path, history, &options),
        _ => {
            let file = WholeFile::create(path)?;
            to_writer(history, target, &mut file.file()?).map_err(|e| e.in_file(&path.display().to_string()))?;
            file.finish()
        }
    }
}

/// Writes a history to anything. Columnar formats, which end with an index, pass through a temporary file.
///
/// # Errors
/// When the format cannot say what the history says, or writing fails.
pub fn to_writer(history: &History, target: Target, out: &mut dyn Write) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    match target {
        Target::Edn => edn::write(history, &mut out)?,
        Target::Jsonl => json::write(history, &mut out)?,
        Target::Schema => schema::write_jsonl(history, &mut out)?,
        Target::Csv => schema::write_csv(history, &mut out)?,
        Target::Parquet | Target::Arrow => {
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("history");
            to_file(history, target, &path)?;
            io::copy(&mut File::open(&path)?, &mut out)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Writes each event of a history as a line. Indices are written unless the source had none and was kept in its order.
fn each_event(
    history: &History,
    out: &mut dyn Write,
    event: impl Fn(&History, &OpRef<'_>, Side, bool, &mut String),
) -> io::Result<()> {
    let mut line = String::new();
    let indexed = history.meta().order != Order::Source;
    for (op, side) in history.events() {
        line.clear();
        event(history, &op, side, indexed, &mut line);
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}
