//! Files first, rows from them, and nothing but the library's questions.

use super::*;

fn verdict(id: &str, scenario: &str, state: &str, at: &str) -> Record {
    let mut record = Record::new(Table::Verdicts, id);
    record.created_at = at.into();
    record.scenario = Some(scenario.into());
    record.status = Some(state.into());
    record.run_id = Some(format!("run-{id}"));
    record
}

fn filled(home: &Path) -> Ledger {
    let mut ledger = Ledger::open(home).unwrap();
    for record in [
        verdict("a", "s1", "PASS-smoke", "2026-01-01T00:00:00.000Z"),
        verdict("b", "s1", "FAIL-reproducible", "2026-01-02T00:00:00.000Z"),
        verdict("c", "s2", "PASS-hardening", "2026-01-03T00:00:00.000Z"),
    ] {
        ledger.put(&record).unwrap();
    }
    ledger
}

fn ask(ledger: &Ledger, name: &str, arguments: &[&str]) -> Vec<Vec<Json>> {
    ledger.ask(name, &arguments.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap().rows
}

#[test]
fn the_last_verdict_and_the_failures_since_a_time_are_found() {
    let home = tempfile::tempdir().unwrap();
    let ledger = filled(home.path());
    assert_eq!(ask(&ledger, "last-verdict", &["s1"])[0][1], "FAIL-reproducible");
    assert_eq!(ask(&ledger, "last-verdict", &["none"]).len(), 0);
    assert_eq!(ask(&ledger, "failed-since", &["2026-01-01"]).len(), 1);
    assert_eq!(ask(&ledger, "failed-since", &["2026-01-03"]).len(), 0);
    assert_eq!(ask(&ledger, "verdicts-since", &["2026-01-02"]).len(), 2);
    assert_eq!(ask(&ledger, "verdicts-of-run", &["run-c"])[0][2], "PASS-hardening");
    assert_eq!(ask(&ledger, "schema", &[]).len(), MIGRATIONS.len());
}

#[test]
fn every_query_can_be_asked() {
    let home = tempfile::tempdir().unwrap();
    let ledger = filled(home.path());
    for query in &query::QUERIES {
        let arguments: Vec<String> = query.arguments.iter().map(|_| "1".to_string()).collect();
        let rows = ledger.ask(query.name, &arguments).unwrap();
        assert!(!rows.columns.is_empty(), "{}", query.name);
        assert!(ledger.ask(query.name, &["1".into(), "2".into(), "3".into()]).is_err());
    }
    assert!(ledger.ask("drop", &[]).unwrap_err().contains("last-verdict"));
}

#[test]
fn an_argument_is_never_a_part_of_a_statement() {
    let home = tempfile::tempdir().unwrap();
    let ledger = filled(home.path());
    assert_eq!(ask(&ledger, "last-verdict", &["s1' OR '1'='1"]).len(), 0);
    assert_eq!(ask(&ledger, "verdicts-since", &["'; DROP TABLE verdicts; --"]).len(), 3, "a text like any other");
    assert_eq!(ask(&ledger, "counts", &[])[4][1], 3);
}

#[test]
fn the_database_is_made_anew_from_the_files() {
    let home = tempfile::tempdir().unwrap();
    let before = ask(&filled(home.path()), "verdicts-since", &["0"]);
    fs::remove_file(home.path().join("ledger.db")).unwrap();
    let mut ledger = Ledger::open(home.path()).unwrap();
    assert_eq!(ask(&ledger, "verdicts-since", &["0"]).len(), 0);
    assert_eq!(ledger.rebuild().unwrap(), 3);
    assert_eq!(ask(&ledger, "verdicts-since", &["0"]), before);
    fs::write(home.path().join("ledger/verdicts/a.json"), "{").unwrap();
    assert!(ledger.rebuild().unwrap_err().contains("a.json"));
    assert_eq!(ask(&ledger, "verdicts-since", &["0"]), before, "a failed rebuild changes nothing");
}

#[test]
fn what_is_deleted_is_not_found_and_not_gone() {
    let home = tempfile::tempdir().unwrap();
    let mut ledger = filled(home.path());
    ledger.delete(Table::Verdicts, "b").unwrap();
    assert_eq!(ask(&ledger, "last-verdict", &["s1"])[0][1], "PASS-smoke");
    assert!(ledger.get(Table::Verdicts, "b").unwrap().deleted_at.is_some());
    assert_eq!(ledger.rebuild().unwrap(), 3);
    assert_eq!(ask(&ledger, "last-verdict", &["s1"])[0][1], "PASS-smoke");
}

#[test]
fn an_id_is_a_name_of_a_file_and_no_path() {
    let home = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::open(home.path()).unwrap();
    for id in ["", "../x", "a/b", ".hidden", "a b"] {
        assert!(ledger.put(&Record::new(Table::Runs, id)).is_err(), "{id}");
    }
}

#[test]
fn a_ledger_of_a_newer_elench_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(home.path()).unwrap();
    ledger.database.execute("INSERT INTO schema_migrations VALUES (99, 'later')", []).unwrap();
    drop(ledger);
    assert!(Ledger::open(home.path()).unwrap_err().contains("newer"));
}
