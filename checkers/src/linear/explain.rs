//! Why is there no order, in words?
//!
//! The search names the completion that nothing survives and a few configurations from just before. Replaying the
//! order that led to one of them says more: after which operation the completing one would last have fitted, and which
//! operation then spoiled it.

use std::fmt::Write as _;

use super::search::{Sample, StuckAt};
use super::{Operation, Problem};
use crate::model::Model;
use crate::outcome::{Certificate, DeadEnd, OpId, Stuck, Violation};

/// Operations of a small sub-history that are listed one by one in the text.
pub(super) const LISTED: usize = 12;

/// What is known of a key that was given up.
pub(super) fn known<M: Model>(problem: &Problem<M>, reached: Option<u32>, frontier: usize) -> String {
    let Some(reached) = reached else {
        return format!("not even the first completion was decided; {frontier} configurations");
    };
    let op = &problem.ops[reached as usize];
    let done = problem.ops.iter().filter(|other| other.ret.is_some_and(|ret| Some(ret) <= op.ret)).count();
    format!("linearizable up to the completion of {}, the {done}th; {frontier} configurations there", op.id)
}

/// The violation, still without its small sub-history.
pub(super) fn violation<M: Model>(problem: &Problem<M>, stuck: &StuckAt, core: &[u32]) -> Violation {
    let op = &problem.ops[stuck.op as usize];
    let explanation =
        if stuck.samples.is_empty() { of_monitor(problem, stuck, core) } else { explanation(problem, stuck) };
    let dead_ends = stuck.samples.iter().map(|sample| dead_end(problem, sample, op)).collect();
    let stuck = Stuck {
        key: problem.key,
        op: op.id,
        survivors: stuck.survivors as u64,
        dead_ends,
        core: core.iter().map(|&i| problem.ops[i as usize].id).collect(),
        minimal: Vec::new(),
        rechecks: 0,
        shrunk_fully: false,
    };
    let certificate = Some(Certificate::Stuck(Box::new(stuck)));
    Violation { kind: "nonlinearizable", ops: vec![op.id], explanation, certificate }
}

/// What is known when the search could not try all orders of a monitor's core.
fn of_monitor<M: Model>(problem: &Problem<M>, stuck: &StuckAt, core: &[u32]) -> String {
    let (name, n) = (name(problem, stuck.op as usize), core.len());
    format!(
        "{name} completed, but no order of what was invoked before allows it. {n} operations contradict each other, says the \
         monitor; they have too many orders for the search to try them all."
    )
}

fn explanation<M: Model>(problem: &Problem<M>, stuck: &StuckAt) -> String {
    let name = name(problem, stuck.op as usize);
    let mut states: Vec<String> = stuck.samples.iter().map(|sample| last_state(problem, sample)).collect();
    states.sort();
    states.dedup();
    let states = match states.as_slice() {
        [state] if stuck.survivors == stuck.samples.len() => format!("{state} in every possible order"),
        _ if stuck.survivors == stuck.samples.len() => format!("one of {}, by order", states.join(", ")),
        _ => format!("for example {} ({} orders differ in what matters)", states.join(", "), stuck.survivors),
    };
    let mut text =
        format!("{name} completed, but no order of what was invoked before allows it: the state was {states}.");
    if let Some(spoiled) = stuck.samples.first().and_then(|sample| spoiled(problem, sample, stuck.op as usize)) {
        let _ = write!(text, " {spoiled}");
    }
    text
}

fn name<M: Model>(problem: &Problem<M>, i: usize) -> String {
    let op = &problem.ops[i];
    format!("{} ({})", op.id, problem.model.show_op(&op.op))
}

/// The states that an order goes through, the initial one first.
fn replay<M: Model>(problem: &Problem<M>, order: &[u32]) -> Vec<M::State> {
    let mut states = vec![problem.model.init()];
    for &i in order {
        let next = states.last().and_then(|state| problem.model.step(state, &problem.ops[i as usize].op));
        states.extend(next);
    }
    states
}

/// The last state of the order if it is known, else as the search saw it.
fn last_state<M: Model>(problem: &Problem<M>, sample: &Sample) -> String {
    let replayed = sample.order.as_ref().and_then(|order| replay(problem, order).pop());
    replayed.map_or_else(|| sample.state.clone(), |state| problem.model.show_state(&state))
}

/// When the operation last fitted in the order of a dead end, and what spoiled it.
fn spoiled<M: Model>(problem: &Problem<M>, sample: &Sample, op: usize) -> Option<String> {
    let order = sample.order.as_ref()?;
    let states = replay(problem, order);
    let fits = |state: &M::State| problem.model.step(state, &problem.ops[op].op).is_some();
    let Some(last) = states.iter().rposition(fits) else {
        return Some(format!("In the order tried last, no state before its completion allows {}.", problem.ops[op].id));
    };
    let spoiler = *order.get(last)? as usize;
    let since = order[..last].iter().rev().find(|&&i| !problem.model.observes(&problem.ops[i as usize].op));
    let since = since.map_or("at the beginning".to_string(), |&i| format!("after {}", name(problem, i as usize)));
    let spoiled_by = name(problem, spoiler);
    let too_early = problem.ops[spoiler].ret.is_some_and(|ret| ret < problem.ops[op].call);
    let order_is_forced = if too_early { ", which had returned before it was invoked" } else { "" };
    Some(format!("In one of them it last fitted {since}, until {spoiled_by} took effect{order_is_forced}."))
}

fn dead_end<M: Model>(problem: &Problem<M>, sample: &Sample, goal: &Operation<M::Op>) -> DeadEnd {
    let ids = |list: &[u32]| -> Vec<OpId> { list.iter().map(|&i| problem.ops[i as usize].id).collect() };
    let state = sample.order.as_ref().and_then(|order| replay(problem, order).pop());
    let blocked = |&i: &u32| {
        let op = &problem.ops[i as usize];
        let possible = state.as_ref().map(|state| problem.model.step(state, &op.op).is_some());
        let why = match possible {
            Some(false) => "does not fit this state".to_string(),
            _ if op.id == goal.id => "cannot be reached".to_string(),
            Some(true) => format!("could go next, but nothing that follows lets {} fit", goal.id),
            None => format!("does not fit, or leads nowhere that lets {} fit", goal.id),
        };
        (op.id, format!("{}: {why}", problem.model.show_op(&op.op)))
    };
    DeadEnd {
        state: last_state(problem, sample),
        applied: ids(&sample.applied),
        blocked: sample.waiting.iter().map(blocked).collect(),
        order: sample.order.as_deref().map(ids),
    }
}

/// The small sub-history, as a sentence.
pub(super) fn small_history<M: Model>(problem: &Problem<M>, stuck: &Stuck) -> String {
    if stuck.minimal.is_empty() {
        return String::new();
    }
    let ids: Vec<OpId> = stuck.minimal.iter().take(LISTED).copied().collect();
    let listed = problem.ops.iter().filter(|op| ids.contains(&op.id)).map(|op| {
        let ret = op.ret.map_or("never known to return".to_string(), |ret| format!("until {ret}"));
        format!("{} ({}, from {} {ret})", op.id, problem.model.show_op(&op.op), op.call)
    });
    let listed: Vec<String> = listed.collect();
    let more = match stuck.minimal.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (n, rechecks) = (stuck.minimal.len(), stuck.rechecks);
    let suffice = if n == 1 { "operation suffices" } else { "operations suffice" };
    format!(" {n} {suffice}, found in {rechecks} re-checks: {}{more}.", listed.join(", "))
}
