//! Which consistency models does a history of transactions rule out?
//!
//! Runs the checker of the workload, and judges what it found by the models that were asked for: strict serializability, unless told
//! otherwise (serializability, where the history does not record real time).

use std::sync::{Arc, Mutex, PoisonError};

use elench_checkers::Budget;
use elench_checkers::outcome::Status;
use elench_checkers::txn::anomaly::{Anomaly, AnomalySet};
use elench_checkers::txn::explain::{Explained, ExplainedCycle, ExplainedRefutation};
use elench_checkers::txn::lattice::{Boundary, Demand, Model, ModelSet, boundary, unchecked};
use elench_checkers::txn::register::{Assumptions, check_rw_register};
use elench_checkers::txn::weak::KINDS;
use elench_checkers::txn::{Each, Finding, Options, TxnResult, check_list_append, verify};
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
    /// What was assumed of each register.
    pub assumptions: Assumptions,
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
        let open = self.workload == "rw-register" && self.result.order.is_none();
        (self.valid.0 == Valid::Yes && open).then_some(
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

/// Checks a history of transactions. `each` is told of every anomaly, if it is there.
///
/// # Errors
/// Why it cannot be judged.
pub fn judge(
    history: &History,
    workload: &'static str,
    asked: &Asked,
    budget: &Budget,
    examples: usize,
    each: Option<Each>,
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
    let flaw = Arc::new(Mutex::new(None));
    let holder = Holder::new(workload, asked.assumptions, asked.initial.as_deref());
    let holder = Arc::new(Mutex::new(holder));
    let everything = asked.all || demand.rests_on_stronger();
    let options = Options {
        real_time: real_time && (everything || demand.needs_realtime()),
        process: everything || demand.needs_process(),
        examples: examples.max(1),
        certificate: true,
        initial: asked.initial.clone(),
        each: each.map(|each| checked(history, each, &holder, &flaw)),
        extra: if asked.all { KINDS.union(demand.extra()) } else { demand.extra() },
    };
    let result = match workload {
        "list-append" => check_list_append(history, &options, budget),
        "rw-register" => check_rw_register(history, &options, asked.assumptions, budget),
        other => return Err(format!("no checker judges transactions of the workload {other}")),
    };
    let told = flaw.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut holder = holder.lock().unwrap_or_else(PoisonError::into_inner);
    let mut examples = result.findings.values().flat_map(|f| &f.examples);
    if let Some(why) = told.or_else(|| examples.find_map(|e| holder.fault(history, e))) {
        return Err(format!("fault of the checker, please report it: a cycle does not hold: {why}"));
    }
    drop(holder);
    let found = result.proven();
    let unchecked = unchecked(demand.models, result.looked_for, found);
    let valid = verdict(&result, demand, found, unchecked);
    Ok(Isolation {
        workload,
        demand,
        valid,
        boundary: boundary(found),
        unchecked,
        all: asked.all,
        real_time: options.real_time,
        assumptions: asked.assumptions,
        initial: asked.initial.clone().filter(|_| workload == "rw-register"),
        result,
    })
}

/// Holds cycles against a history, by code that shares nothing with the search.
pub struct Holder {
    workload: String,
    assumptions: Assumptions,
    initial: Option<String>,
    /// Of registers, once a cycle of them was asked for.
    registers: Option<verify::Registers>,
}

impl Holder {
    /// For a workload. Registers are assumed to be of a kind, and to hold the initial value (EDN, none for nil) before anybody writes them.
    pub fn new(workload: &str, assumptions: Assumptions, initial: Option<&str>) -> Holder {
        Holder { workload: workload.into(), assumptions, initial: initial.map(str::to_string), registers: None }
    }

    /// Does a cycle hold? None where there is no code that knows the workload. All calls must be about one history.
    pub fn holds(&mut self, history: &History, cycle: &ExplainedCycle) -> Option<Result<(), String>> {
        match &*self.workload {
            "list-append" => Some(verify::cycle(history, cycle)),
            _ => Some(self.registers(history)?.cycle(history, cycle)),
        }
    }

    /// Does a refutation hold, and show what it is said to? None where there is no code that knows the workload.
    pub fn refutes(&mut self, history: &History, refutation: &ExplainedRefutation) -> Option<Result<(), String>> {
        let registers = self.registers(history)?;
        Some(registers.refutation(history, &refutation.lemmas).and_then(|kind| match kind == refutation.kind {
            true => Ok(()),
            false => Err(format!("it is called {} and is {kind}", refutation.kind)),
        }))
    }

    fn registers(&mut self, history: &History) -> Option<&mut verify::Registers> {
        let new = || verify::Registers::new(history, self.assumptions, self.initial.as_deref());
        (self.workload == "rw-register").then(|| self.registers.get_or_insert_with(new))
    }

    /// Why an anomaly that was found does not hold.
    fn fault(&mut self, history: &History, anomaly: &Explained) -> Option<String> {
        match anomaly {
            Explained::Cycle(cycle) => self.holds(history, cycle)?.err(),
            Explained::Refutation(refutation) => self.refutes(history, refutation)?.err(),
            Explained::Case(_) => None,
        }
    }
}

/// Tells only of what holds, and keeps the first fault otherwise.
fn checked(history: &History, each: Each, holder: &Arc<Mutex<Holder>>, flaw: &Arc<Mutex<Option<String>>>) -> Each {
    let (history, holder, flaw) = (history.clone(), holder.clone(), flaw.clone());
    Each::new(move |anomaly| {
        let fault = holder.lock().unwrap_or_else(PoisonError::into_inner).fault(&history, anomaly);
        match fault {
            None => each.tell(anomaly),
            Some(why) => {
                flaw.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
        }
    })
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
    if let Some(why) = result.doubt(demand.prohibits()) {
        return unknown(why.to_string());
    }
    if let Some(kind) = result.open().iter().next() {
        return unknown(format!("{}: {}", kind.name(), kind.about()));
    }
    let open = demand.anomalies.without(AnomalySet::UNDECIDED).without(result.looked_for);
    if let Some(kind) = open.iter().next() {
        return unknown(format!("not decided: {kind}"));
    }
    if unchecked != ModelSet::default() {
        return unknown(format!("not checked in full: {}", unchecked.names().join(", ")));
    }
    (Valid::Yes, None)
}
