//! What was found, so that it can be found again long after the run.
//!
//! A record is a JSON file below `.elench/ledger/TABLE/`, canonical and written first; `.elench/ledger.db` is SQLite made from
//! these, and [`Ledger::rebuild`] makes it anew. Records are not deleted but marked. Queries are a fixed library
//! ([`query::QUERIES`]): nothing that comes from a scenario file is ever SQL.

pub mod query;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Systems.
    Projects,
    /// Plans.
    Strategies,
    /// Scenarios.
    Scenarios,
    /// Runs.
    Runs,
    /// Their verdicts.
    Verdicts,
    /// What is to be done about them.
    Tasks,
}

impl Table {
    /// All but `schema_migrations`, which is the database's own.
    pub const ALL: [Table; 6] =
        [Table::Projects, Table::Strategies, Table::Scenarios, Table::Runs, Table::Verdicts, Table::Tasks];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Table::Projects => "projects",
            Table::Strategies => "strategies",
            Table::Scenarios => "scenarios",
            Table::Runs => "runs",
            Table::Verdicts => "verdicts",
            Table::Tasks => "tasks",
        }
    }
}

/// A record: what every table has, and a body of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The table.
    pub table: Table,
    /// Its id: letters, digits, `-`, `_` and `.`.
    pub id: String,
    /// When it was made, UTC.
    pub created_at: String,
    /// When it was marked as deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<String>,
    /// The project, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The scenario, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The run, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// A run's or task's status, a verdict's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Whose it is to act on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Everything else.
    #[serde(default)]
    pub body: Map<String, Json>,
}

impl Record {
    /// A new one, made now.
    pub fn new(table: Table, id: &str) -> Record {
        Record {
            table,
            id: id.to_string(),
            created_at: crate::experiment::evidence::now(),
            deleted_at: None,
            project: None,
            scenario: None,
            run_id: None,
            status: None,
            assignee: None,
            body: Map::new(),
        }
    }
}

/// Migrations, by number from 1: each is applied once, in order.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE projects   (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, deleted_at TEXT, project TEXT, scenario TEXT, run_id TEXT, status TEXT, assignee TEXT, body TEXT NOT NULL);
    CREATE TABLE strategies (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, deleted_at TEXT, project TEXT, scenario TEXT, run_id TEXT, status TEXT, assignee TEXT, body TEXT NOT NULL);
    CREATE TABLE scenarios  (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, deleted_at TEXT, project TEXT, scenario TEXT, run_id TEXT, status TEXT, assignee TEXT, body TEXT NOT NULL);
    CREATE TABLE runs       (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, deleted_at TEXT, project TEXT, scenario TEXT, run_id TEXT, status TEXT, assignee TEXT, body TEXT NOT NULL);
    CREATE TABLE verdicts   (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, deleted_at TEXT, project TEXT, scenario TEXT, run_id TEXT, status TEXT, assignee TEXT, body TEXT NOT NULL);
    CREATE TABLE tasks      (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, deleted_at TEXT, project TEXT, scenario TEXT, run_id TEXT, status TEXT, assignee TEXT, body TEXT NOT NULL);
    CREATE INDEX verdicts_of_scenario ON verdicts (scenario, created_at);
    CREATE INDEX runs_by_time ON runs (created_at);
    CREATE INDEX tasks_by_status ON tasks (status, created_at);
"];

/// A ledger: files, and a database made from them.
#[derive(Debug)]
pub struct Ledger {
    records: PathBuf,
    database: Connection,
}

fn sql(e: rusqlite::Error) -> String {
    format!("ledger.db: {e}")
}

impl Ledger {
    /// Opens the ledger of a place, and makes it where there is none.
    ///
    /// # Errors
    /// It cannot be read or written, or a newer Elench wrote it.
    pub fn open(home: &Path) -> Result<Ledger, String> {
        let records = home.join("ledger");
        fs::create_dir_all(&records).map_err(|e| format!("{}: cannot write: {e}", records.display()))?;
        let path = home.join("ledger.db");
        let database = Connection::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        database.busy_timeout(std::time::Duration::from_secs(10)).map_err(sql)?;
        let mut ledger = Ledger { records, database };
        ledger.migrate()?;
        Ok(ledger)
    }

    fn migrate(&mut self) -> Result<(), String> {
        self.database
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)",
            )
            .map_err(sql)?;
        let applied = self.version()?;
        if applied > MIGRATIONS.len() as i64 {
            return Err(format!(
                "ledger.db: has schema {applied}, this Elench knows {}; use a newer one",
                MIGRATIONS.len()
            ));
        }
        for (i, migration) in MIGRATIONS.iter().enumerate().skip(applied.max(0) as usize) {
            let step = self.database.transaction().map_err(sql)?;
            step.execute_batch(migration).map_err(sql)?;
            let now = crate::experiment::evidence::now();
            step.execute("INSERT INTO schema_migrations VALUES (?1, ?2)", params![i as i64 + 1, now]).map_err(sql)?;
            step.commit().map_err(sql)?;
        }
        Ok(())
    }

    /// The version of the database's schema.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn version(&self) -> Result<i64, String> {
        let version = "SELECT coalesce(max(version), 0) FROM schema_migrations";
        self.database.query_row(version, [], |row| row.get(0)).map_err(sql)
    }

    /// Writes a record: the file first, to the disk itself, then the row. A record of the same id takes the place of an older one.
    ///
    /// # Errors
    /// An id that is no name of a file, or what file system or database say.
    pub fn put(&mut self, record: &Record) -> Result<(), String> {
        let path = self.path(record.table, &record.id)?;
        let cannot = |e: std::io::Error| format!("{}: cannot write: {e}", path.display());
        let dir = self.records.join(record.table.name());
        fs::create_dir_all(&dir).map_err(cannot)?;
        let next = path.with_extension("next");
        let bytes = serde_json::to_vec_pretty(record).map_err(|e| format!("{}: {e}", record.id))?;
        let mut file = File::create(&next).map_err(cannot)?;
        file.write_all(&bytes).and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all()).map_err(cannot)?;
        fs::rename(&next, &path).map_err(cannot)?;
        insert(&self.database, record)
    }

    /// Reads a record's file.
    ///
    /// # Errors
    /// It is not there, or none.
    pub fn get(&self, table: Table, id: &str) -> Result<Record, String> {
        read(&self.path(table, id)?)
    }

    /// A record of a place, from its file; none where there is none, or no ledger.
    pub fn recorded(home: &Path, table: Table, id: &str) -> Option<Record> {
        read(&path_in(&home.join("ledger"), table, id).ok()?).ok()
    }

    /// The verdicts of a scenario that are not deleted, the oldest first.
    ///
    /// # Errors
    /// What the database says, or a record that cannot be read.
    pub fn verdicts_of(&self, scenario: &str) -> Result<Vec<Record>, String> {
        let select = "SELECT id FROM verdicts WHERE scenario = ?1 AND deleted_at IS NULL ORDER BY created_at, id";
        let mut statement = self.database.prepare(select).map_err(sql)?;
        let ids = statement.query_map([scenario], |row| row.get::<_, String>(0)).map_err(sql)?;
        let ids = ids.collect::<Result<Vec<String>, _>>().map_err(sql)?;
        ids.iter().map(|id| self.get(Table::Verdicts, id)).collect()
    }

    /// Marks a record as deleted; its file stays.
    ///
    /// # Errors
    /// As of [`Ledger::get`] and [`Ledger::put`].
    pub fn delete(&mut self, table: Table, id: &str) -> Result<(), String> {
        let mut record = self.get(table, id)?;
        record.deleted_at.get_or_insert_with(crate::experiment::evidence::now);
        self.put(&record)
    }

    fn path(&self, table: Table, id: &str) -> Result<PathBuf, String> {
        path_in(&self.records, table, id)
    }

    /// Makes the database anew from the files. Gives how many records there are.
    ///
    /// # Errors
    /// A file that is no record, named; the database is then as it was.
    pub fn rebuild(&mut self) -> Result<u64, String> {
        let mut all = Vec::new();
        for table in Table::ALL {
            let dir = self.records.join(table.name());
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
            paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
            paths.sort();
            for path in paths {
                let record = read(&path)?;
                if record.table != table || path.file_stem().is_none_or(|stem| *stem != *record.id) {
                    return Err(format!("{}: holds {} of {}", path.display(), record.id, record.table.name()));
                }
                all.push(record);
            }
        }
        let step = self.database.transaction().map_err(sql)?;
        for table in Table::ALL {
            step.execute(&format!("DELETE FROM {}", table.name()), []).map_err(sql)?;
        }
        for record in &all {
            insert(&step, record)?;
        }
        step.commit().map_err(sql)?;
        Ok(all.len() as u64)
    }
}

fn path_in(records: &Path, table: Table, id: &str) -> Result<PathBuf, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() || id.len() > 200 || id.starts_with('.') || !id.chars().all(fine) {
        return Err(format!("`{id}` is no id of a record: letters, digits, -, _ and ."));
    }
    Ok(records.join(table.name()).join(format!("{id}.json")))
}

fn read(path: &Path) -> Result<Record, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: cannot read: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: is no record: {e}", path.display()))
}

fn insert(database: &Connection, r: &Record) -> Result<(), String> {
    let body = serde_json::to_string(&r.body).map_err(|e| format!("{}: {e}", r.id))?;
    let insert = format!(
        "INSERT OR REPLACE INTO {} (id, created_at, deleted_at, project, scenario, run_id, status, assignee, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        r.table.name()
    );
    let row = params![r.id, r.created_at, r.deleted_at, r.project, r.scenario, r.run_id, r.status, r.assignee, body];
    database.execute(&insert, row).map(|_| ()).map_err(sql)
}

#[cfg(test)]
mod tests;
