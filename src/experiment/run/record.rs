//! What a run leaves in the ledger, and what earlier runs of the same scenario left there.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::Ran;
use super::whole::Whole;
use crate::experiment::evidence::sum_of_manifest;
use crate::experiment::scenario::Scenario;
use crate::ledger::{Ledger, Record, Table};
use crate::verdict::Verdict;

/// The project of what is run without a plan.
const PROJECT: &str = "default";

/// What earlier runs of the same scenario showed: only those count that did all that was planned, proven and checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// Their seeds.
    pub(super) seeds: BTreeSet<u64>,
    /// The nodes that their clients worked through, a text each.
    pub(super) topologies: BTreeSet<String>,
}

/// Of the ledger of a place; a ledger that cannot be read shows nothing.
pub(super) fn earlier(home: &Path, scenario: &Scenario) -> Earlier {
    let wanted = fingerprint(scenario);
    let verdicts = Ledger::open(home).and_then(|l| l.verdicts_of(&scenario.name)).unwrap_or_default();
    let mut out = Earlier::default();
    for body in verdicts.iter().map(|v| &v.body) {
        let same = body.get("fingerprint").and_then(Json::as_str) == Some(wanted.as_str());
        if same && body.get("sound") == Some(&Json::Bool(true)) {
            out.seeds.extend(body.get("seed").and_then(Json::as_u64));
            out.topologies.extend(body.get("topology").and_then(Json::as_str).map(String::from));
        }
    }
    out
}

/// What makes two runs runs of the same scenario: what drives it, what judges it, what must hold and what is broken; not the seed, nor where.
fn fingerprint(scenario: &Scenario) -> String {
    let mut workload = json!(scenario.workload);
    if let Some(workload) = workload.as_object_mut() {
        workload.retain(|key, _| !matches!(key.as_str(), "seed" | "endpoints"));
    }
    let of = json!([
        workload,
        scenario.checkers,
        scenario.steady_state,
        scenario.fault.as_ref().map(|f| f.name()),
        scenario.schedule,
        scenario.blast_radius_pct
    ]);
    Sha256::digest(of.to_string()).iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// A name of a file for a scenario, whose arms bear a slash.
fn id_of(name: &str) -> String {
    name.replace('/', ".")
}

fn of(table: Table, id: &str, scenario: &str, verdict: Verdict) -> Record {
    let mut record = Record::new(table, id);
    record.project = Some(PROJECT.into());
    record.scenario = Some(scenario.into());
    record.status = Some(verdict.name().into());
    record
}

/// A scenario and its project, known from now on.
fn known(ledger: &mut Ledger, name: &str, target: &str) -> Result<(), String> {
    if ledger.get(Table::Projects, PROJECT).is_err() {
        ledger.put(&Record::new(Table::Projects, PROJECT))?;
    }
    let mut scenario = Record::new(Table::Scenarios, &id_of(name));
    scenario.project = Some(PROJECT.into());
    scenario.scenario = Some(name.into());
    scenario.body.insert("target".into(), json!(target));
    ledger.put(&scenario)
}

/// Writes run, verdict and task.
pub(super) fn record(home: &Path, ran: &Ran, topology: Option<&str>) -> Result<(), String> {
    let mut ledger = Ledger::open(home)?;
    let scenario = &ran.scenario;
    known(&mut ledger, &scenario.name, &scenario.target)?;
    let of = |table| {
        let mut record = of(table, &ran.run_id, &scenario.name, ran.verdict.verdict);
        record.run_id = Some(ran.run_id.clone());
        record
    };
    let mut run = of(Table::Runs);
    run.body.insert("evidence".into(), json!(ran.dir));
    run.body.insert("manifest_sha256".into(), json!(sum_of_manifest(&ran.dir)?));
    ledger.put(&run)?;
    let mut verdict = of(Table::Verdicts);
    let entries = [
        ("tier", json!(ran.verdict.tier)),
        ("because", json!(ran.verdict.because)),
        ("steady_state_held", json!(ran.steady_state_held())),
        ("seed", json!(ran.seed)),
        ("sound", json!(ran.sound)),
        ("topology", json!(topology)),
        ("fingerprint", json!(fingerprint(scenario))),
    ];
    verdict.body.extend(entries.map(|(name, value)| (name.to_string(), value)));
    ledger.put(&verdict)?;
    let stuck = ran.stuck.is_some();
    let mut task = of(Table::Tasks);
    task.status = Some(if stuck || ran.verdict.verdict.is_fail() { "open" } else { "done" }.into());
    task.assignee = Some(if stuck { "incident-responder" } else { "chaos-test-engineer" }.into());
    let rollbacks: Vec<Json> = ran
        .rounds
        .iter()
        .filter_map(|r| r.rollback.as_ref())
        .map(|r| json!({ "gone": r.gone, "elapsed_ms": r.elapsed_ms }))
        .collect();
    let entries = [
        ("hypothesis", json!(scenario.name)),
        ("verdict", json!(ran.verdict.verdict)),
        ("steady_state", json!(scenario.steady_state)),
        ("injector", json!(scenario.fault.as_ref().map(|f| f.name()))),
        ("blast_radius_pct", json!(scenario.blast_radius_pct)),
        ("rollback_after_sec", json!(scenario.rollback_after_sec)),
        ("trust_level", json!(scenario.trust_level)),
        ("change_ticket", json!(scenario.change_ticket)),
        ("before", json!(ran.before().slis.values)),
        ("during", json!(ran.during().slis.values)),
        ("after", json!(ran.after().slis.values)),
        ("rollback", json!(rollbacks)),
        ("stuck", json!(ran.stuck)),
    ];
    task.body.extend(entries.map(|(name, value)| (name.to_string(), value)));
    ledger.put(&task)
}

/// Writes that something was never started, and why: verdict and task.
pub(super) fn record_unstarted(
    home: &Path,
    name: &str,
    target: &str,
    verdict: Verdict,
    why: &str,
) -> Result<(), String> {
    let mut ledger = Ledger::open(home)?;
    known(&mut ledger, name, target)?;
    let id = uuid::Uuid::new_v4().to_string();
    let mut row = of(Table::Verdicts, &id, name, verdict);
    row.body.insert("because".into(), json!([why]));
    ledger.put(&row)?;
    let mut task = of(Table::Tasks, &id, name, verdict);
    task.status = Some("open".into());
    task.assignee = Some("chaos-test-engineer".into());
    task.body.insert("why".into(), json!(why));
    ledger.put(&task)
}

/// Writes the verdict of a scenario over its arms.
pub(super) fn record_whole(home: &Path, whole: &Whole, target: &str) -> Result<(), String> {
    let mut ledger = Ledger::open(home)?;
    known(&mut ledger, &whole.name, target)?;
    let mut row = of(Table::Verdicts, &uuid::Uuid::new_v4().to_string(), &whole.name, whole.verdict);
    row.body.insert("arms".into(), json!(whole.parts));
    ledger.put(&row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::scenario::Draft;

    fn scenario(more: &str) -> Scenario {
        let text = format!(
            "---\nname: s\ntarget: 127.0.0.1:1\ntrust_level: sandbox\nblast_radius_pct: 10\nsteady_state: error_rate < 1\nrollback_after_sec: 5\nfault: none\nhistory: {{path: h}}\nchecker: {{name: linear}}\n{more}---\n"
        );
        Draft::parse(&text).unwrap().finish().unwrap()
    }

    #[test]
    fn only_sound_runs_of_the_same_scenario_count_each_seed_once() {
        let home = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(home.path()).unwrap();
        let same = scenario("workload: {driver: redis, seed: 1}\n");
        let mut put = |id: &str, seed: u64, sound: bool, fingerprint: String| {
            let mut row = of(Table::Verdicts, id, "s", Verdict::PassSmoke);
            row.body.insert("seed".into(), json!(seed));
            row.body.insert("sound".into(), json!(sound));
            row.body.insert("topology".into(), json!("n1"));
            row.body.insert("fingerprint".into(), json!(fingerprint));
            ledger.put(&row).unwrap();
        };
        put("a", 1, true, fingerprint(&same));
        put("b", 1, true, fingerprint(&same));
        put("c", 2, true, fingerprint(&scenario("workload: {driver: redis, seed: 2}\n")));
        put("d", 3, false, fingerprint(&same));
        put("e", 4, true, fingerprint(&scenario("workload: {driver: etcd}\n")));
        let seen = earlier(home.path(), &same);
        assert_eq!(seen.seeds, BTreeSet::from([1, 2]));
        assert_eq!(seen.topologies, BTreeSet::from(["n1".to_string()]));
    }
}
