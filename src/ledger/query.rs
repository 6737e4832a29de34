//! What can be asked of a ledger: a fixed library of named queries.

use rusqlite::types::ValueRef;
use serde::Serialize;
use serde_json::Value as Json;

use super::{Ledger, sql};

/// A query.
#[derive(Debug)]
pub struct Query {
    /// Its name.
    pub name: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// Its arguments, in order.
    pub arguments: &'static [&'static str],
    statement: &'static str,
}

/// All queries.
pub const QUERIES: [Query; 10] = [
    Query {
        name: "last-verdict",
        about: "The last verdict of a scenario",
        arguments: &["SCENARIO"],
        statement: "SELECT created_at, status AS verdict, run_id, body FROM verdicts \
                    WHERE scenario = ?1 AND deleted_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 1",
    },
    Query {
        name: "failed-since",
        about: "Runs that failed since a time",
        arguments: &["TIME"],
        statement: "SELECT created_at, scenario, status AS verdict, run_id FROM verdicts \
                    WHERE status LIKE 'FAIL-%' AND created_at >= ?1 AND deleted_at IS NULL ORDER BY created_at",
    },
    Query {
        name: "verdicts-since",
        about: "Verdicts since a time",
        arguments: &["TIME"],
        statement: "SELECT created_at, scenario, status AS verdict, run_id FROM verdicts \
                    WHERE created_at >= ?1 AND deleted_at IS NULL ORDER BY created_at",
    },
    Query {
        name: "tasks",
        about: "Tasks of a status (open, done), with whose they are",
        arguments: &["STATUS"],
        statement: "SELECT created_at, id, assignee, scenario, run_id FROM tasks \
                    WHERE status = ?1 AND deleted_at IS NULL ORDER BY created_at",
    },
    Query {
        name: "recent-runs",
        about: "The last runs, so many",
        arguments: &["N"],
        statement: "SELECT created_at, id, scenario, status FROM runs \
                    WHERE deleted_at IS NULL ORDER BY created_at DESC, id DESC LIMIT ?1",
    },
    Query {
        name: "runs-by-status",
        about: "How many runs there are of each status",
        arguments: &[],
        statement: "SELECT status, count(*) AS runs FROM runs WHERE deleted_at IS NULL GROUP BY status ORDER BY status",
    },
    Query {
        name: "scenarios",
        about: "The scenarios of a project",
        arguments: &["PROJECT"],
        statement: "SELECT id, created_at, body FROM scenarios WHERE project = ?1 AND deleted_at IS NULL ORDER BY id",
    },
    Query {
        name: "verdicts-of-run",
        about: "The verdict of a run",
        arguments: &["RUN_ID"],
        statement: "SELECT created_at, scenario, status AS verdict, body FROM verdicts \
                    WHERE run_id = ?1 AND deleted_at IS NULL",
    },
    Query {
        name: "counts",
        about: "How many records each table holds",
        arguments: &[],
        statement: "SELECT 'projects' AS name, count(*) AS records FROM projects \
                    UNION ALL SELECT 'strategies', count(*) FROM strategies \
                    UNION ALL SELECT 'scenarios', count(*) FROM scenarios \
                    UNION ALL SELECT 'runs', count(*) FROM runs \
                    UNION ALL SELECT 'verdicts', count(*) FROM verdicts \
                    UNION ALL SELECT 'tasks', count(*) FROM tasks",
    },
    Query {
        name: "schema",
        about: "The version of the database's schema",
        arguments: &[],
        statement: "SELECT version, applied_at FROM schema_migrations ORDER BY version",
    },
];

/// Rows under named columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// A value a column.
    pub rows: Vec<Vec<Json>>,
}

impl Ledger {
    /// Asks a query by its name. Arguments are bound as texts or numbers, never put into the statement.
    ///
    /// # Errors
    /// A name or a number of arguments that is none of the query's, or what the database says.
    pub fn ask(&self, name: &str, arguments: &[String]) -> Result<Rows, String> {
        let query = QUERIES.iter().find(|q| q.name == name).ok_or_else(|| {
            let known: Vec<_> = QUERIES.iter().map(|q| q.name).collect();
            format!("no query is called `{name}`: there are {}", known.join(", "))
        })?;
        if arguments.len() != query.arguments.len() {
            let wanted = if query.arguments.is_empty() { "nothing".into() } else { query.arguments.join(" ") };
            return Err(format!("`{name}` asks for {wanted}, not for {} arguments", arguments.len()));
        }
        let mut statement = self.database.prepare(query.statement).map_err(sql)?;
        let columns: Vec<String> = statement.column_names().map(String::from).collect();
        let bound = query.arguments.iter().zip(arguments).map(|(kind, text)| match (*kind, text.parse::<i64>()) {
            ("N", Ok(n)) => Ok(rusqlite::types::Value::Integer(n.max(0))),
            ("N", Err(_)) => Err(format!("`{text}` is no number")),
            _ => Ok(rusqlite::types::Value::Text(text.clone())),
        });
        let bound = bound.collect::<Result<Vec<_>, _>>()?;
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns.len()).map(|i| row.get_ref(i).map(|v| json(&columns[i], v))).collect()
        };
        let rows = statement.query_map(rusqlite::params_from_iter(bound), row).map_err(sql)?;
        let rows = rows.collect::<Result<Vec<Vec<Json>>, _>>().map_err(sql)?;
        Ok(Rows { columns, rows })
    }
}

fn json(column: &str, value: ValueRef<'_>) -> Json {
    match value {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(n) => n.into(),
        ValueRef::Real(x) => x.into(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            match (column, serde_json::from_str(&text)) {
                ("body", Ok(body)) => body,
                _ => text.into(),
            }
        }
    }
}
