//! Does a history hold the fields that the scenario says it records?
//!
//! `history.fields` names fields of the default schema, or extra ones. Whoever wrote them relies on them: a promise that the recording does not keep
//! makes it too weak. One pass a field.

use elench_formats::History;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};

/// The first promise that is not kept, in words. `fault`: was a fault active while this was recorded?
pub(super) fn broken(fields: &[String], history: &History, fault: bool) -> Option<String> {
    fields.iter().find_map(|field| {
        let why = one(field, history, fault)?;
        Some(format!("`history.fields` promises {field}, and {why}"))
    })
}

fn one(field: &str, history: &History, fault: bool) -> Option<String> {
    let answered = |op: &OpRef<'_>| matches!(op.status(), Status::Ok | Status::Fail);
    match field {
        // An operation without these is none, and no history holds one.
        "op_id" | "index" => None,
        "process_id" | "process" => each(history, |op| op.process().is_some()),
        "op_type" | "f" => each(history, |op| op.f().is_some()),
        "invoke_ts" | "invoke_time" => each(history, |op| op.invoke_time().is_some()),
        "complete_ts" | "complete_time" => each(history, |op| !answered(op) || op.complete_time().is_some()),
        "node_seen" | "node" => each(history, |op| op.node().is_some()),
        "error" => each(history, |op| op.status() != Status::Fail || op.error().is_some()),
        "timeout_marker" | "timeout" => each(history, |op| op.status() != Status::Pending),
        "fault_epoch" => some(history, |op| !fault || op.fault_epoch().is_some()),
        "key" => some(history, |op| op.txn().is_some() || !matches!(op.key(), Scalar::Nil)),
        "input" => some(history, |op| op.txn().is_some() || !matches!(op.input(), ValueRef::Nil)),
        "output" => some(history, |op| op.txn().is_some() || !matches!(op.output(), ValueRef::Nil)),
        "txn" => some(history, |op| op.txn().is_some()),
        extra => some(history, |op| op.extra(extra).is_some()),
    }
}

/// What every operation has to have.
fn each(history: &History, has: impl Fn(&OpRef<'_>) -> bool) -> Option<String> {
    let mut lacking = history.clients().filter(|op| !has(op)).map(|op| op.index());
    let first = lacking.next()?;
    let all = history.counts().iter().sum::<u64>();
    Some(format!("{} of {all} operations lack it (first: op {first})", 1 + lacking.count()))
}

/// What one operation at least has to have, as it does not apply to all.
fn some(history: &History, has: impl Fn(&OpRef<'_>) -> bool) -> Option<String> {
    let mut clients = history.clients().peekable();
    (clients.peek().is_some() && !clients.any(|op| has(&op))).then(|| "no operation has it".to_string())
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;

    fn kept(fields: &[&str], text: &str, fault: bool) -> Option<String> {
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        broken(&fields, &history(text).unwrap(), fault)
    }

    #[test]
    fn what_every_operation_has_is_kept_and_the_first_that_lacks_it_is_named() {
        let whole = "invoke 0 write 1 @1 / ok 0 write 1 @2 / invoke 0 read @3 / ok 0 read 1 @4";
        let all = ["op_id", "process_id", "op_type", "invoke_ts", "complete_ts", "input", "output", "error"];
        assert_eq!(kept(&all, whole, false), None);
        let torn = "invoke 0 write 1 @1 / ok 0 write 1 @2 / invoke 0 read / ok 0 read 1 @4";
        let why = kept(&all, torn, false).unwrap();
        assert!(why.contains("invoke_ts") && why.contains("1 of 2") && why.contains("op 2"), "{why}");
    }

    #[test]
    fn what_nobody_has_is_missing_and_an_epoch_is_only_due_under_a_fault() {
        let text = "invoke 0 write 1 @1 / ok 0 write 1 @2";
        for field in ["node_seen", "key", "version", "txn"] {
            assert!(kept(&[field], text, false).is_some(), "{field}");
        }
        assert_eq!(kept(&["fault_epoch"], text, false), None);
        assert!(kept(&["fault_epoch"], text, true).is_some());
    }
}
