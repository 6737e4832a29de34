//! All anomalies as a table, for those who want to ask it questions rather than read a report: Parquet, one row an anomaly.
//!
//! Any checker's violations fit a [`Row`]. The columns:
//!
//! | Column | Type | What |
//! |---|---|---|
//! | `history` | string | the history, as it was named to the check |
//! | `checker` | string | who found it |
//! | `kind` | string | its name from the literature |
//! | `key` | string, may be null | the key, as EDN; null where there is none or more than one |
//! | `ops` | list of u64 | the operations involved, by the indices of their invocations; of a cycle in its order |
//! | `relations` | list of string | of a cycle: `ww`, `wr`, `rw`, `process` or `realtime`, from each operation to the next; else empty |
//! | `explanation` | string | why, for a person |
//!
//! Of transactions these are as many rows of a kind as the report counts: for what is no cycle, each case (a read, an element, a
//! version); for cycles, of which there may be exponentially many, a shortest one that was found of each kind in each component
//! (see [`cycles`](elench_checkers::txn::cycles) for which components). What only says that something is undecided (a search
//! out of budget, a history that says nothing) has no row.
//!
//! Rows are written as they come: what is held is a batch of them and a row group's encoded pages.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::builder::{ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use elench_checkers::findings::Example;
use elench_checkers::outcome::Violation;
use elench_checkers::txn::explain::Explained;
use elench_formats::columnar::WholeFile;
use elench_formats::{History, ReadError};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::certificate;

/// An anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The history, as it was named to the check.
    pub history: &'a str,
    /// Who found it.
    pub checker: &'a str,
    /// Its name.
    pub kind: &'a str,
    /// The key, as EDN.
    pub key: Option<String>,
    /// The operations involved, by the indices of their invocations.
    pub ops: Vec<u64>,
    /// Of a cycle: the relation of each operation to the next.
    pub relations: Vec<&'static str>,
    /// Why, for a person.
    pub explanation: String,
}

impl<'a> Row<'a> {
    /// Of an instance of a violation of a delivery, session or invariant checker.
    pub fn of_example(history: &'a str, checker: &'a str, kind: &'a str, example: &Example) -> Row<'a> {
        Row {
            history,
            checker,
            kind,
            key: example.key.clone(),
            ops: example.ops.iter().map(|op| op.0).collect(),
            relations: Vec::new(),
            explanation: example.text.clone(),
        }
    }

    /// What a checker of objects found, on this key.
    pub fn of_violation(name: &'a str, checker: &'a str, key: Option<&str>, violation: &Violation) -> Row<'a> {
        Row {
            history: name,
            checker,
            kind: violation.kind,
            key: key.map(Into::into),
            ops: violation.ops.iter().map(|op| op.0).collect(),
            relations: Vec::new(),
            explanation: violation.explanation.clone(),
        }
    }

    /// What a checker of transactions found.
    pub fn of_transactions(name: &'a str, checker: &'a str, history: &History, anomaly: &Explained) -> Row<'a> {
        let (kind, key, relations) = match anomaly {
            Explained::Case(case) => (case.kind, Some(case.key.clone()), Vec::new()),
            Explained::Cycle(cycle) => {
                let mut keys: Vec<String> = cycle.steps.iter().filter_map(|s| certificate::key(history, s)).collect();
                keys.dedup();
                let only = if keys.len() == 1 { keys.pop() } else { None };
                (cycle.kind, only, cycle.steps.iter().map(|s| s.rel.name()).collect())
            }
            Explained::Refutation(refutation) => {
                // The last circle, which holds whatever is supposed.
                let last = refutation.lemmas.last().map_or(&[][..], |lemma| &lemma.steps);
                (refutation.kind, None, last.iter().map(|s| s.rel.name()).collect())
            }
        };
        let ops = anomaly.ops().iter().map(|op| op.0).collect();
        Row { history: name, checker, kind: kind.name(), key, ops, relations, explanation: anomaly.text() }
    }
}

/// Rows handed to the encoder at once.
const BATCH: usize = 1 << 12;
/// Encoded bytes of a row group.
const GROUP_BYTES: usize = 16 << 20;

/// The table, while it is written. It appears under its name when it is whole.
pub struct Anomalies {
    state: Mutex<State>,
}

struct State {
    /// None when it was finished, or writing failed.
    target: Option<(WholeFile, ArrowWriter<File>)>,
    failed: Option<ReadError>,
    rows: u64,
    columns: Columns,
}

#[derive(Default)]
struct Columns {
    history: StringBuilder,
    checker: StringBuilder,
    kind: StringBuilder,
    key: StringBuilder,
    ops: ListBuilder<UInt64Builder>,
    relations: ListBuilder<StringBuilder>,
    explanation: StringBuilder,
    rows: usize,
}

fn schema() -> Arc<Schema> {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let list = |name: &str, item| Field::new(name, DataType::List(Arc::new(Field::new("item", item, true))), false);
    Arc::new(Schema::new(vec![
        text("history", false),
        text("checker", false),
        text("kind", false),
        text("key", true),
        list("ops", DataType::UInt64),
        list("relations", DataType::Utf8),
        text("explanation", false),
    ]))
}

impl Columns {
    fn push(&mut self, row: &Row<'_>) {
        self.history.append_value(row.history);
        self.checker.append_value(row.checker);
        self.kind.append_value(row.kind);
        self.key.append_option(row.key.as_deref());
        row.ops.iter().for_each(|&op| self.ops.values().append_value(op));
        self.ops.append(true);
        row.relations.iter().for_each(|rel| self.relations.values().append_value(rel));
        self.relations.append(true);
        self.explanation.append_value(&row.explanation);
        self.rows += 1;
    }

    fn take(&mut self) -> Result<RecordBatch, ReadError> {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.history.finish()),
            Arc::new(self.checker.finish()),
            Arc::new(self.kind.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.ops.finish()),
            Arc::new(self.relations.finish()),
            Arc::new(self.explanation.finish()),
        ];
        RecordBatch::try_new(schema(), columns).map_err(|e| ReadError::new(format!("a table of anomalies: {e}")))
    }
}

impl Anomalies {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> Result<Anomalies, ReadError> {
        let target = WholeFile::create(path)?;
        let level = ZstdLevel::try_new(1).map_err(failed)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
        let writer = ArrowWriter::try_new(target.file()?, schema(), Some(properties)).map_err(failed)?;
        let state = State { target: Some((target, writer)), failed: None, rows: 0, columns: Columns::default() };
        Ok(Anomalies { state: Mutex::new(state) })
    }

    /// Adds a row. That writing failed is told in the end.
    pub fn push(&self, row: &Row<'_>) {
        // What another thread's panic left is a row's beginning at worst, which encoding will refuse.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.target.is_none() {
            return;
        }
        state.columns.push(row);
        state.rows += 1;
        if state.columns.rows >= BATCH {
            state.flush();
        }
    }

    /// Makes the file appear under its name, and says how many rows it has.
    ///
    /// # Errors
    /// When writing failed, now or before, or it was finished before.
    pub fn finish(&self) -> Result<u64, ReadError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.flush();
        if let Some(failed) = state.failed.take() {
            return Err(failed);
        }
        let (target, writer) = state.target.take().ok_or_else(|| ReadError::new("the table was finished before"))?;
        writer.close().map_err(failed)?;
        target.finish()?;
        Ok(state.rows)
    }
}

impl State {
    fn flush(&mut self) {
        let Some((_, writer)) = &mut self.target else { return };
        let written = self.columns.take().and_then(|batch| {
            writer.write(&batch).map_err(failed)?;
            if writer.in_progress_size() > GROUP_BYTES { writer.flush().map_err(failed) } else { Ok(()) }
        });
        if let Err(e) = written {
            self.failed = Some(e);
            self.target = None;
        }
    }
}

fn failed(e: parquet::errors::ParquetError) -> ReadError {
    ReadError::new(format!("a table of anomalies cannot be written: {e}"))
}

impl std::fmt::Debug for Anomalies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Anomalies")
    }
}
