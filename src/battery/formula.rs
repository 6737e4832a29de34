//! Does a formula hold, over what a system held in the end, or over how groups were served?

use elench_checkers::expr::Expr;
use elench_checkers::findings::Findings;
use elench_checkers::invariant::fairness::{GroupBy, fairness};
use elench_checkers::invariant::final_state::final_state;
use elench_formats::Value;
use elench_formats::json::value::from_json;

use super::{Entry, Run};
use crate::check::CheckerInfo;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Checker final-state: expression that has to hold of what the system held in the end, such as `sum(accounts) == 100`
    /// (repeatable)
    #[arg(long = "holds", value_name = "EXPR", value_parser = expression)]
    pub holds: Vec<Expr>,
    /// Checker fairness: formula over groups of operations, such as `p99(worst.latency) <= 2 * p99(latency)` (repeatable)
    #[arg(long = "fair", value_name = "EXPR", value_parser = expression)]
    pub fair: Vec<Expr>,
    /// Checker fairness: what groups operations: node, process, key, f, or a further field [default: node]
    #[arg(long, value_name = "FIELD")]
    pub group_by: Option<String>,
}

fn expression(text: &str) -> Result<Expr, String> {
    Expr::parse(text).map_err(|e| e.to_string())
}

/// The checkers of this group.
pub const ENTRIES: &[Entry] = &[
    Entry {
        info: CheckerInfo {
            name: "final-state",
            question: "Is what the system held in the end what it should be?",
            needs: "an expression; a dump, or a read after all writes. Runs when asked for",
            example: "elench check --holds 'sum(accounts) == 100' --final dump.json history.edn",
            judges: true,
        },
        workloads: &[],
        run: run_final_state,
    },
    Entry {
        info: CheckerInfo {
            name: "fairness",
            question: "Are all nodes, processes, keys or repeats served alike?",
            needs: "a formula over latency, throughput, errors and count, of all, group, worst, best and spread. Runs when asked for",
            example: "elench check --fair 'p99(worst.latency) <= 3 * p99(latency)' --group-by node history.edn",
            judges: true,
        },
        workloads: &[],
        run: run_fairness,
    },
];

fn run_final_state(run: &Run<'_>) -> Result<Findings, String> {
    let dumps = run.settings.delivery.finals.iter().map(|path| {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        // What is JSON is read as that: `{"a":1}` would also be a map of EDN, from "a" to :1.
        let read: Result<Value, String> = from_json(text.trim()).or_else(|_| {
            elench_formats::edn::parse(text.trim()).map_err(|e| format!("{name}: neither JSON nor EDN: {e}"))
        });
        read.map(|content| (name.clone(), content))
    });
    let dumps = dumps.collect::<Result<Vec<_>, String>>()?;
    Ok(final_state(run.history, &dumps, &run.settings.formula.holds, run.examples))
}

fn run_fairness(run: &Run<'_>) -> Result<Findings, String> {
    let settings = &run.settings.formula;
    let by = GroupBy::named(settings.group_by.as_deref().unwrap_or("node"));
    Ok(fairness(run.history, &by, &settings.fair, run.examples))
}

/// The checkers that these flags ask for.
pub(super) fn asked(settings: &Settings) -> Vec<&'static str> {
    let final_state = (!settings.holds.is_empty()).then_some("final-state");
    let fairness = (!settings.fair.is_empty()).then_some("fairness");
    final_state.into_iter().chain(fairness).collect()
}
