//! Which consistency models does a history of transactions rule out?
//!
//! Runs the checker of the workload, and judges what it found by the models that were asked for: strict serializability, unless told
//! otherwise (serializability, where the history does not record real time).

use elench_checkers::Budget;
use elench_checkers::outcome::Status;
use elench_checkers::txn::anomaly::{Anomaly, AnomalySet};
use elench_checkers::txn::explain::{Explained, ExplainedCycle};
use elench_checkers::txn::lattice::{BEYOND, Boundary, Demand, Model, ModelSet, boundary, unchecked};
use elench_checkers::txn::register::{Assumptions, check_rw_register};
use elench_checkers::txn::{Finding, Options, TxnResult, check_list_append, verify};
use elench_formats::History;

use crate::check::{BadRequest, Valid};

/// What is asked of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Names of models; empty: strict serializability.
    pub models: Vec<String>,
    /// Names of anomalies that make the history invalid besides.
    pub anomalies: Vec<String>,
    /// List everything found, whether or not the models forbid it.
    pub all: bool,
    /// What is assumed of each register.
    pub assumptions: Assumptions,
    /// The EDN text of the value that registers have before anybody writes them; none for nil.
    pub initial: Option<String>,
}

/// What was found, judged.
#[derive(Debug)]
pub struct Isolation {
    /// The workload: `list-append` or `rw-register`.
    pub workload: &'static str,
    /// What was asked for.
    pub demand: Demand,
    /// Everything found.
    pub result: TxnResult,
    /// The answer, and why it is unknown.
    pub valid: (Valid, Option<String>),
    /// Models ruled out.
    pub boundary: Boundary,
    /// Models asked for that were neither ruled out nor shown to hold.
    pub unchecked: ModelSet,
    /// List everything found?
    pub all: bool,
    /// Does the order that shows validity keep real time?
    pub real_time: bool,
    /// The initial value of registers, where it is not nil.
    pub initial: Option<String>,
}

impl Isolation {
    /// What is listed, the worst first.
    pub fn listed(&self) -> impl Iterator<Item = (Anomaly, &Finding)> {
        let lists = if self.all { AnomalySet::ALL } else { self.demand.lists() };
        self.result.findings.iter().filter(move |(kind, _)| lists.contains(**kind)).map(|(kind, f)| (*kind, f))
    }

    /// What a `valid` does not say.
    pub fn limits(&self) -> Option<&'static str> {
        (self.valid.0 == Valid::Yes && self.result.order.is_none()).then_some(
            "no anomaly can be proven from this history; as it does not tell the order of all versions, one may have happened \
             (--wfr-keys, --sequential-keys, --linearizable-keys and --commit-timestamps, where they are true, tell more)",
        )
    }

    /// The names of the models asked for.
    pub fn models(&self) -> String {
        self.demand.models.names().join(", ")
    }
}

/// The demand, from names.
///
/// # Errors
/// A name of no model or no anomaly.
pub fn demand(asked: &Asked, real_time: bool) -> Result<Demand, BadRequest> {
    let model = |name: &String| {
        let known = || Model::ALL.iter().map(|m| m.name()).collect::<Vec<_>>().join(", ");
        Model::from_name(name)
            .ok_or_else(|| BadRequest(format!("no consistency model is called `{name}`: there are {}", known())))
    };
    let anomaly = |name: &String| {
        let known = || Anomaly::ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ");
        Anomaly::from_name(name)
            .ok_or_else(|| BadRequest(format!("no anomaly is called `{name}`: there are {}", known())))
    };
    let mut models = asked.models.iter().map(model).collect::<Result<Vec<_>, _>>()?;
    if models.is_empty() {
        models.push(if real_time { Model::StrongSerializable } else { Model::Serializable });
    }
    let anomalies = asked.anomalies.iter().map(anomaly).collect::<Result<AnomalySet, _>>()?;
    Ok(Demand { anomalies, ..Demand::models(&models) })
}

/// Checks a history of transactions.
///
/// # Errors
/// Why it cannot be judged.
pub fn judge(
    history: &History,
    workload: &'static str,
    asked: &Asked,
    budget: &Budget,
    examples: usize,
) -> Result<Isolation, String> {
    if let Some(doubt) = history.meta().doubts.first() {
        return Err(doubt.clone());
    }
    let real_time = history.meta().real_time;
    let demand = demand(asked, real_time).map_err(|e| e.to_string())?;
    if demand.needs_realtime() && !real_time {
        let (models, format) = (demand.models.names().join(", "), &history.meta().format);
        return Err(format!("{models} needs the order of real time, and {format} does not record it"));
    }
    let options = Options {
        real_time: real_time && (asked.all || demand.needs_realtime()),
        process: asked.all || demand.needs_process(),
        examples: examples.max(1),
        certificate: true,
        initial: asked.initial.clone(),
    };
    let result = match workload {
        "list-append" => check_list_append(history, &options, budget),
        "rw-register" => check_rw_register(history, &options, asked.assumptions, budget),
        other => return Err(format!("no checker judges transactions of the workload {other}")),
    };
    verified(history, workload, asked, &result)
        .map_err(|why| format!("fault of the checker, please report it: a cycle does not hold: {why}"))?;
    let found = result.kinds();
    let looked_for = AnomalySet::ALL.without(BEYOND);
    let unchecked = unchecked(demand.models, looked_for, found);
    let valid = verdict(&result, demand, found, unchecked);
    Ok(Isolation {
        workload,
        demand,
        valid,
        boundary: boundary(found),
        unchecked,
        all: asked.all,
        real_time: options.real_time,
        initial: asked.initial.clone().filter(|_| workload == "rw-register"),
        result,
    })
}

/// Holds the cycles that are shown against the history.
fn verified(history: &History, workload: &str, asked: &Asked, result: &TxnResult) -> Result<(), String> {
    let mut cycles = result.findings.values().flat_map(|f| &f.examples).filter_map(cycle_of);
    if workload == "list-append" {
        return cycles.try_for_each(|cycle| verify::cycle(history, cycle));
    }
    let registers = verify::Registers::new(history, asked.assumptions, asked.initial.as_deref(), cycles.clone());
    cycles.try_for_each(|cycle| registers.cycle(cycle))
}

fn cycle_of(example: &Explained) -> Option<&ExplainedCycle> {
    if let Explained::Cycle(cycle) = example { Some(cycle) } else { None }
}

fn verdict(result: &TxnResult, demand: Demand, found: AnomalySet, unchecked: ModelSet) -> (Valid, Option<String>) {
    let unknown = |why: String| (Valid::Unknown, Some(why));
    if !found.intersection(demand.prohibits()).is_empty() {
        return (Valid::No, None);
    }
    if let Some(why) = &result.undecided {
        return unknown(why.to_string());
    }
    if result.coverage.with_status(Status::Ok) == 0 {
        return unknown("no transaction was acknowledged".into());
    }
    if let Some(kind) = result.open().iter().next() {
        return unknown(format!("{}: {}", kind.name(), kind.about()));
    }
    if unchecked != ModelSet::default() {
        return unknown(format!("not checked in full: {}", unchecked.names().join(", ")));
    }
    (Valid::Yes, None)
}
