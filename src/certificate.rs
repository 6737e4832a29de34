//! How does a cycle, or a proof that there is one, stand in a result document, so that it can be held against the history by whoever has
//! only the two?
//!
//! Each step names its two transactions, their relation, and what shows it: micro-operations as `[operation, place in it]`,
//! a process, or the two events of real time. A refutation is a list of lemmas, each with what it supposes, what follows from earlier ones,
//! and its circle. Reading it back trusts nothing: what is missing or of another shape is named, and
//! what is there still has to hold of the history.

use elench_checkers::graph::Rel;
use elench_checkers::outcome::OpId;
use elench_checkers::txn::anomaly::Anomaly;
use elench_checkers::txn::explain::{
    Derived, Explained, ExplainedCycle, ExplainedRefutation, Lemma, MopAt, Reason, Step,
};
use elench_formats::History;
use serde_json::{Map, Value as Json, json};

/// The certificate of an anomaly.
pub fn to_json(history: &History, anomaly: &Explained) -> Json {
    match anomaly {
        Explained::Case(case) => json!({
            "kind": "micro-operations",
            "key": case.key,
            "micro_operations": case.mops.iter().map(|&m| place(m)).collect::<Vec<_>>(),
        }),
        Explained::Cycle(cycle) => json!({
            "kind": "cycle",
            "steps": cycle.steps.iter().map(|step| step_json(history, step)).collect::<Vec<_>>(),
        }),
        Explained::Refutation(refutation) => json!({
            "kind": "refutation",
            "lemmas": refutation.lemmas.iter().map(|lemma| lemma_json(history, lemma)).collect::<Vec<_>>(),
        }),
    }
}

fn lemma_json(history: &History, lemma: &Lemma) -> Json {
    let pair = |before: &(OpId, OpId)| json!([before.0.0, before.1.0]);
    let derived = |d: &Derived| json!({ "before": pair(&d.before), "lemma": d.lemma });
    json!({
        "supposed": lemma.supposed.iter().map(pair).collect::<Vec<_>>(),
        "derived": lemma.derived.iter().map(derived).collect::<Vec<_>>(),
        "steps": lemma.steps.iter().map(|step| step_json(history, step)).collect::<Vec<_>>(),
    })
}

fn place(mop: MopAt) -> Json {
    json!([mop.op.0, mop.at])
}

fn step_json(history: &History, step: &Step) -> Json {
    let mut out = Map::new();
    out.insert("from".into(), json!(step.from.0));
    out.insert("to".into(), json!(step.to.0));
    out.insert("relation".into(), json!(step.rel.name()));
    if let Some(key) = key(history, step) {
        out.insert("key".into(), json!(key));
    }
    if let Some(reason) = &step.reason {
        out.insert("reason".into(), reason_json(reason));
    }
    out.insert("because".into(), json!(step.text));
    Json::Object(out)
}

fn reason_json(reason: &Reason) -> Json {
    match *reason {
        Reason::Ww { earlier, later, shown_by } => {
            json!({ "earlier": place(earlier), "later": place(later), "shown_by": place(shown_by) })
        }
        Reason::Wr { write, read } => json!({ "write": place(write), "read": place(read) }),
        Reason::Rw { read, write } => json!({ "read": place(read), "write": place(write) }),
        Reason::Supposed => json!({ "supposed": true }),
        Reason::Process(process) => json!({ "process": process }),
        Reason::RealTime { completed, invoked } => json!({ "completed": completed, "invoked": invoked }),
    }
}

/// The key that a step is about, as EDN; none for the order within processes and that of real time.
pub fn key(history: &History, step: &Step) -> Option<String> {
    let at = match *step.reason.as_ref()? {
        Reason::Ww { earlier: at, .. } | Reason::Wr { write: at, .. } | Reason::Rw { read: at, .. } => at,
        Reason::Supposed | Reason::Process(_) | Reason::RealTime { .. } => return None,
    };
    let txn = history.op(history.row_of(at.op.0)?).txn()?;
    let mop = ((at.at as usize) < txn.len()).then(|| txn.get(at.at as usize))?;
    let mut key = String::new();
    history.write_scalar(mop.key, &mut key);
    Some(key)
}

/// The cycle that a certificate claims, as a violation of this kind.
///
/// # Errors
/// What is missing, or no cycle's.
pub fn cycle(kind: &str, certificate: &Json) -> Result<ExplainedCycle, String> {
    Ok(ExplainedCycle { kind: anomaly(kind)?, steps: steps(certificate)? })
}

/// The refutation that a certificate claims, as a violation of this kind.
///
/// # Errors
/// What is missing, or no refutation's.
pub fn refutation(kind: &str, certificate: &Json) -> Result<ExplainedRefutation, String> {
    let lemmas = certificate["lemmas"].as_array().ok_or("it has no lemmas")?;
    let lemmas = lemmas.iter().enumerate().map(|(i, l)| lemma(l).map_err(|why| format!("lemma {}: {why}", i + 1)));
    Ok(ExplainedRefutation { kind: anomaly(kind)?, lemmas: lemmas.collect::<Result<_, _>>()? })
}

fn anomaly(kind: &str) -> Result<Anomaly, String> {
    Anomaly::from_name(kind).ok_or_else(|| format!("no anomaly is called `{kind}`"))
}

fn steps(json: &Json) -> Result<Vec<Step>, String> {
    let steps = json["steps"].as_array().ok_or("it has no steps")?;
    steps.iter().enumerate().map(|(i, s)| step(s).map_err(|why| format!("step {i} {why}"))).collect()
}

fn lemma(json: &Json) -> Result<Lemma, String> {
    let list = |name: &str| json[name].as_array().ok_or_else(|| format!("it has no list \"{name}\""));
    let supposed = list("supposed")?.iter().map(pair).collect::<Result<_, _>>()?;
    let derived = list("derived")?.iter().map(|d| {
        let lemma = number(d, "lemma").map_err(|why| format!("what is derived {why}"))?;
        Ok(Derived { before: pair(&d["before"])?, lemma: usize::try_from(lemma).map_err(|e| e.to_string())? })
    });
    Ok(Lemma { supposed, derived: derived.collect::<Result<_, String>>()?, steps: steps(json)? })
}

/// Transactions, the first of which comes before the second.
fn pair(json: &Json) -> Result<(OpId, OpId), String> {
    let ops = json.as_array().map(Vec::as_slice);
    let (one, other) = if let Some([one, other]) = ops { (one.as_u64(), other.as_u64()) } else { (None, None) };
    Ok((OpId(one.ok_or("a pair has no first operation")?), OpId(other.ok_or("a pair has no second operation")?)))
}

fn step(json: &Json) -> Result<Step, String> {
    let name = json["relation"].as_str().ok_or("names no relation")?;
    let rel = Rel::from_name(name).ok_or_else(|| format!("has an unknown relation `{name}`"))?;
    let (from, to) = (OpId(number(json, "from")?), OpId(number(json, "to")?));
    Ok(Step { from, to, rel, reason: Some(reason(rel, &json["reason"])?), text: String::new() })
}

fn reason(rel: Rel, json: &Json) -> Result<Reason, String> {
    Ok(match rel {
        Rel::Ww if json["supposed"] == true => Reason::Supposed,
        Rel::Ww => {
            Reason::Ww { earlier: mop(json, "earlier")?, later: mop(json, "later")?, shown_by: mop(json, "shown_by")? }
        }
        Rel::Wr => Reason::Wr { write: mop(json, "write")?, read: mop(json, "read")? },
        Rel::Rw => Reason::Rw { read: mop(json, "read")?, write: mop(json, "write")? },
        Rel::Process => Reason::Process(json["process"].as_i64().ok_or("names no process")?),
        Rel::RealTime => Reason::RealTime { completed: number(json, "completed")?, invoked: number(json, "invoked")? },
        Rel::Pass => return Err("has a relation of which no cycle is made".into()),
    })
}

fn number(json: &Json, name: &str) -> Result<u64, String> {
    json[name].as_u64().ok_or_else(|| format!("has no number \"{name}\""))
}

fn mop(json: &Json, name: &str) -> Result<MopAt, String> {
    let pair = json[name].as_array().map(Vec::as_slice);
    let at = |at: &Json| at.as_u64().and_then(|at| u32::try_from(at).ok());
    match pair {
        Some([op, place]) => op.as_u64().map(OpId).zip(at(place)).map(|(op, at)| MopAt { op, at }),
        _ => None,
    }
    .ok_or_else(|| format!("has no micro-operation \"{name}\""))
}
