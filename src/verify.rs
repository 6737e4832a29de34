//! Do a result's certificates hold?
//!
//! Starts from the result document and the history alone: reads the history anew for the model that the document names, and checks
//! what it claims with [`verify`](elench_checkers::linear::verify), which knows nothing of search and monitors. A lost acknowledgement is
//! looked up in the recording, without what the checkers of deliveries are made of.

use std::collections::HashSet;

use elench_checkers::linear::read::registers::{FailedCas, NilReads};
use elench_checkers::linear::verify::{has_order, verify as verify_order};
use elench_checkers::linear::{Operation, Problem, Problems};
use elench_checkers::model::Model;
use elench_checkers::outcome::OpId;
use elench_checkers::txn::explain::Explained;
use elench_checkers::txn::register::Assumptions;
use elench_checkers::txn::verify::{order as serial_order, register_order};
use elench_formats::History;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};
use serde_json::Value as Json;

use crate::certificate;
use crate::isolation::Holder;
use crate::judge::{Case, Judge, Reads};

/// Configurations to try at most for one core: some seconds.
const LIMIT: usize = 1 << 21;

/// Does a certificate hold?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    Yes,
    /// It does not; why.
    No(String),
    /// That was not found out; why.
    NotKnown(String),
}

/// What was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Which claim.
    pub what: String,
    /// Does it hold?
    pub holds: Holds,
}

/// Verifies every certificate of a result document.
///
/// # Errors
/// When the document is none, or the history is none of its model.
pub fn verify(document: &Json, history: &History) -> Result<Vec<Verified>, String> {
    let checkers = document["checkers"].as_array().ok_or("it is no result: it has no \"checkers\"")?;
    let mut verified = Vec::new();
    for checker in checkers {
        let name = checker["name"].as_str().unwrap_or("?");
        if name == "isolation" {
            verified.extend(isolation(checker, history));
            continue;
        }
        let claims = checker["violations"].as_array().map_or(&[][..], Vec::as_slice);
        let orders = &checker["certificate"]["orders"];
        if claims.is_empty() && orders.is_null() {
            continue;
        }
        if name == "k-atomic" {
            let holds = Holds::NotKnown("certificates of k-atomicity cannot be verified yet".into());
            verified.push(Verified { what: name.into(), holds });
            continue;
        }
        if name == "no-lost-ack" && claims.iter().all(|claim| claim["kind"] == "lost") {
            let of = |claim: &Json| Verified { what: "lost".into(), holds: lost(claim, history) };
            verified.extend(claims.iter().map(of));
            continue;
        }
        if checker["model"].is_null() {
            let holds = Holds::NotKnown(
                "what this checker finds bears no certificate; its evidence names the operations".into(),
            );
            verified.push(Verified { what: name.into(), holds });
            continue;
        }
        let case = read(checker, history)?;
        let decided = (checker["valid"] == true).then_some(orders);
        match &case.problems {
            Problems::Registers(problems) => one(name, decided, claims, problems, &case, &mut verified),
            Problems::Objects(problems) => one(name, decided, claims, problems, &case, &mut verified),
        }
    }
    Ok(verified)
}

/// The order of a valid history is replayed; each step of a cycle is looked up in the history.
fn isolation(checker: &Json, history: &History) -> Vec<Verified> {
    let certificate = &checker["certificate"];
    let (workload, initial) = (checker["workload"].as_str().unwrap_or("?"), checker["initial"].as_str());
    let mut verified = Vec::new();
    if let Some(order) = ids(&certificate["order"]) {
        let real_time = certificate["real_time"] == true;
        let what = format!(
            "a serial order of {} transactions{}",
            order.len(),
            if real_time { " that keeps real time" } else { "" }
        );
        let runs = match workload {
            "rw-register" => register_order(history, &order, initial, real_time),
            _ => serial_order(history, &order, real_time),
        };
        verified.push(Verified { what, holds: runs.map_or_else(Holds::No, |()| Holds::Yes) });
    }
    let assumptions = match assumptions(checker) {
        Ok(assumptions) => assumptions,
        Err(why) => {
            verified.push(Verified { what: "what was assumed".into(), holds: Holds::NotKnown(why) });
            return verified;
        }
    };
    let mut holder = Holder::new(workload, assumptions, initial);
    let claims = checker["violations"].as_array().map_or(&[][..], Vec::as_slice);
    verified.extend(claims.iter().map(|claim| {
        let what = claim["kind"].as_str().unwrap_or("?").to_string();
        Verified { holds: anomaly(history, &mut holder, workload, &what, claim), what }
    }));
    verified
}

/// Was what the first operation added, and was told that it had, gone for good when the last one read? Looked up in the recording of a set that
/// is only added to and read as a whole. O(elements of all reads).
fn lost(claim: &Json, history: &History) -> Holds {
    let not_known = |why: &str| Holds::NotKnown(why.into());
    if !history.meta().real_time {
        return not_known("the recording does not say what came before what");
    }
    let of_a_set =
        |op: &OpRef<'_>| op.key() == Scalar::Nil && op.txn().is_none() && matches!(op.f(), Some("add" | "read"));
    if !history.clients().all(|op| of_a_set(&op)) {
        return not_known("what was lost is only looked up in sets that are only added to and read as a whole");
    }
    let named = ids(&claim["ops"]).unwrap_or_default();
    let find = |id: Option<&OpId>| history.row_of(id?.0).map(|row| history.op(row)).filter(OpRef::is_client);
    let (Some(added), Some(missed)) = (find(named.first()), find(named.last())) else {
        return Holds::No("it names no operations of the history".into());
    };
    let acknowledged = added.complete_index().filter(|_| added.f() == Some("add") && added.status() == Status::Ok);
    let Some(acknowledged) = acknowledged else {
        return Holds::No(format!("op {} is no addition that was acknowledged", added.index()));
    };
    let element = match added.input() {
        ValueRef::Int(n) => Scalar::Int(n),
        ValueRef::Text(text) => Scalar::Text(text),
        _ => return not_known("what was added is no single value"),
    };
    let shows = |op: &OpRef<'_>| match op.output() {
        ValueRef::List(list) | ValueRef::Set(list) => Some(list.iter().any(|other| other == element)),
        _ => None,
    };
    let is_read = |op: &OpRef<'_>| op.f() == Some("read") && op.status() == Status::Ok;
    if !is_read(&missed) || shows(&missed) != Some(false) {
        return Holds::No(format!("op {} is no read that misses it", missed.index()));
    }
    if missed.index() < acknowledged {
        return Holds::No(format!("op {} began before the addition was acknowledged", missed.index()));
    }
    for read in history.clients().filter(is_read) {
        match shows(&read) {
            None => return not_known("a read returned what is no list of values"),
            Some(true) if read.complete_index().is_none_or(|end| end > missed.index()) => {
                return Holds::No(format!(
                    "op {} shows it, and had not ended before op {} began",
                    read.index(),
                    missed.index()
                ));
            }
            Some(_) => {}
        }
    }
    Holds::Yes
}

/// What the document says was assumed of registers.
fn assumptions(checker: &Json) -> Result<Assumptions, String> {
    let names = checker["assumed"].as_array().map_or(&[][..], Vec::as_slice);
    let names = names.iter().map(|name| name.as_str().ok_or("\"assumed\" holds what is no name"));
    Assumptions::from_names(names.collect::<Result<Vec<_>, _>>()?)
}

fn anomaly(history: &History, holder: &mut Holder, workload: &str, kind: &str, claim: &Json) -> Holds {
    let certificate = &claim["certificate"];
    if certificate["kind"] == "refutation" {
        return refutation(history, holder, workload, kind, claim);
    }
    if certificate["kind"] != "cycle" {
        return Holds::NotKnown("what is no cycle cannot be verified yet".into());
    }
    let cycle = match certificate::cycle(kind, certificate) {
        Ok(cycle) => cycle,
        Err(why) => return Holds::No(why),
    };
    if ids(&claim["ops"]) != Some(cycle.steps.iter().map(|s| s.from).collect()) {
        return Holds::No("its operations are not those of its cycle".into());
    }
    match holder.holds(history, &cycle) {
        Some(Ok(())) => Holds::Yes,
        Some(Err(why)) => Holds::No(why),
        None => Holds::NotKnown(format!("cycles of the workload {workload} cannot be verified yet")),
    }
}

fn refutation(history: &History, holder: &mut Holder, workload: &str, kind: &str, claim: &Json) -> Holds {
    let refutation = match certificate::refutation(kind, &claim["certificate"]) {
        Ok(refutation) => refutation,
        Err(why) => return Holds::No(why),
    };
    let held = holder.refutes(history, &refutation);
    if ids(&claim["ops"]) != Some(Explained::Refutation(refutation).ops()) {
        return Holds::No("its operations are not those of its circles".into());
    }
    match held {
        Some(Ok(())) => Holds::Yes,
        Some(Err(why)) => Holds::No(why),
        None => Holds::NotKnown(format!("refutations of the workload {workload} cannot be verified")),
    }
}

fn read(checker: &Json, history: &History) -> Result<Case, String> {
    let text = |name: &str| checker[name].as_str().ok_or(format!("a checker has no \"{name}\""));
    let reads = Reads {
        initial: elench_formats::edn::parse(text("initial")?).map_err(|e| format!("\"initial\": {e}"))?,
        failed_cas: Some(if text("failed_cas")? == "observed" { FailedCas::Observed } else { FailedCas::DidNotHappen }),
        nil_reads: match text("nil_reads")? {
            "unset" => NilReads::Unset,
            "say-nothing" => NilReads::SayNothing,
            _ => NilReads::IfPossible,
        },
    };
    let judge = Judge::named(text("model")?).map_err(|e| e.to_string())?;
    judge.read(history, &reads)
}

fn one<M: Model>(
    checker: &str,
    orders: Option<&Json>,
    claims: &[Json],
    problems: &[Problem<M>],
    case: &Case,
    verified: &mut Vec<Verified>,
) {
    let mut say = |what: String, holds: Holds| verified.push(Verified { what, holds });
    if let Some(orders) = orders {
        let orders = orders.as_array().map_or(&[][..], Vec::as_slice);
        if checker == "sequential" {
            let holds = match orders.first().and_then(|order| ids(&order["order"])) {
                Some(order) => case.problems.verify_sequential(&order).map_or_else(Holds::No, |()| Holds::Yes),
                None => Holds::NotKnown("the order was not kept".into()),
            };
            say("an order of all operations".into(), holds);
        } else {
            for problem in problems {
                let key = key_of(problem, case);
                let own = orders.iter().find(|order| order["key"].as_str() == key);
                let what = format!("an order of {} operations{}", problem.ops().len(), of_key(key));
                say(what, own.map_or(Holds::No("there is none for this key".into()), |order| is_order(order, problem)));
            }
        }
    }
    for claim in claims {
        let certificate = &claim["certificate"];
        let key = certificate["key"].as_str();
        let kind = claim["kind"].as_str().unwrap_or("?");
        let what = format!("{kind}{}", of_key(key));
        match problems.iter().find(|problem| key_of(problem, case) == key) {
            Some(problem) if certificate["kind"] == "stuck" => say(what, has_none(certificate, problem)),
            Some(_) => say(what, Holds::NotKnown("it bears no certificate".into())),
            None => say(what, Holds::No("the history has no such key".into())),
        }
    }
}

fn key_of<'c, M: Model>(problem: &Problem<M>, case: &'c Case) -> Option<&'c str> {
    case.keys.get(problem.key()?.0 as usize).map(|key| &**key)
}

fn of_key(key: Option<&str>) -> String {
    key.map_or(String::new(), |key| format!(" of key {key}"))
}

fn ids(list: &Json) -> Option<Vec<OpId>> {
    list.as_array()?.iter().map(|id| id.as_u64().map(OpId)).collect()
}

fn is_order<M: Model>(order: &Json, problem: &Problem<M>) -> Holds {
    let Some(order) = ids(&order["order"]) else { return Holds::NotKnown("the order was not kept".into()) };
    verify_order(problem.model(), problem.ops(), &order)
        .map_or_else(|flaw| Holds::No(flaw.to_string()), |()| Holds::Yes)
}

/// Have the operations of a core no order, as they stand when the stuck one returns, and could all others be left out of
/// an order of the whole?
fn has_none<M: Model>(certificate: &Json, problem: &Problem<M>) -> Holds {
    let core: Option<HashSet<OpId>> = ids(&certificate["core"]).map(|ids| ids.into_iter().collect());
    let Some(core) = core.filter(|core| !core.is_empty()) else { return Holds::NotKnown("it names no core".into()) };
    let known: HashSet<OpId> = problem.ops().iter().map(|op| op.id).collect();
    if let Some(stranger) = core.iter().find(|op| !known.contains(op)) {
        return Holds::No(format!("its core names {stranger}, which is not in the history of this key"));
    }
    let stuck = certificate["op"].as_u64().map(OpId);
    let Some(end) = problem.ops().iter().find(|op| Some(op.id) == stuck).and_then(|op| op.ret) else {
        return Holds::No("the operation at which it is stuck never completed".into());
    };
    // What is invoked later, or crashed and only observes, takes part in no order up to there.
    let takes_part = |op: &&Operation<M::Op>| {
        op.call <= end && (op.ret.is_some_and(|ret| ret <= end) || !problem.model().observes(&op.op))
    };
    let before: Vec<&Operation<M::Op>> = problem.ops().iter().filter(takes_part).collect();
    let ops: Vec<&M::Op> = before.iter().map(|op| &op.op).collect();
    let wish: Vec<bool> = before.iter().map(|op| !core.contains(&op.id)).collect();
    let mut left_out = wish.clone();
    problem.model().leave_out_safely(&ops, &mut left_out);
    if left_out != wish {
        return Holds::No("the operations outside its core cannot all be left out of a legal order".into());
    }
    let few: Vec<Operation<M::Op>> = before
        .into_iter()
        .filter(|op| core.contains(&op.id))
        .map(|op| Operation { ret: op.ret.filter(|&ret| ret <= end), ..op.clone() })
        .collect();
    match has_order(problem.model(), &few, LIMIT) {
        Some(false) => Holds::Yes,
        Some(true) => Holds::No(format!("the {} operations of its core have an order", few.len())),
        None => Holds::NotKnown(format!("its core of {} operations has too many orders to try", few.len())),
    }
}
