//! Ways out of a history.
//!
//! What a format cannot say is refused, never dropped in silence.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::{ReadError, Result};
use crate::history::History;

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
    let name = path.display().to_string();
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = |e: &dyn std::fmt::Display| ReadError::new(format!("cannot write: {e}")).in_file(&name);
    let mut temporary = tempfile::NamedTempFile::new_in(dir).map_err(|e| cannot(&e))?;
    to_writer(history, target, temporary.as_file_mut()).map_err(|e| e.in_file(&name))?;
    temporary.as_file().sync_all().map_err(|e| cannot(&e))?;
    readable(temporary.as_file()).map_err(|e| cannot(&e))?;
    temporary.persist(path).map_err(|e| cannot(&e.error))?;
    Ok(())
}

/// Temporary files are private; what they become is as readable as any new file.
#[cfg(unix)]
fn readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Writes a history to anything.
///
/// # Errors
/// When the format cannot say what the history says, or writing fails.
pub fn to_writer(history: &History, target: Target, out: &mut (dyn Write + Send)) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    match target {
        Target::Edn => edn::write(history, &mut out)?,
        Target::Jsonl => json::write(history, &mut out)?,
        Target::Schema => schema::write_jsonl(history, &mut out)?,
        Target::Csv => schema::write_csv(history, &mut out)?,
        Target::Parquet => crate::columnar::write_parquet(history, &mut out)?,
        Target::Arrow => crate::columnar::write_ipc(history, &mut out)?,
    }
    out.flush()?;
    Ok(())
}
