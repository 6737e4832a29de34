//! What does a history lack that checkers may need? The weak-history report.
//!
//! A finding names the field, how many operations lack it, and the first. Whether it matters depends on the checker:
//! order by index needs no times, replication claims need nodes.

use std::collections::HashMap;

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, Order, Side, Status, is_read};

/// Something that operations lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weakness {
    /// The field, as the default schema names it.
    pub field: &'static str,
    /// What is wrong, a clause.
    pub what: &'static str,
    /// How many operations.
    pub count: u64,
    /// The first, by the index of its invocation.
    pub first: u64,
}

/// Every weakness, in one pass. O(n).
pub fn weaknesses(history: &History) -> Vec<Weakness> {
    let mut found = Found::default();
    let mut outputs: HashMap<&str, (u64, Status, String)> = HashMap::new();
    let by_record = matches!(history.meta().format.as_str(), "schema" | "csv");
    for op in history.clients() {
        let unknown = op.status().is_unknown();
        found.note("invoke_ts", "missing", op.invoke_time().is_none(), &op);
        found.note(
            "complete_ts",
            "missing although the operation was answered",
            !unknown && op.complete_time().is_none(),
            &op,
        );
        let unmarked = by_record && op.status() == Status::Pending;
        found.note("timeout_marker", "missing although there was no answer", unmarked, &op);
        found.note(
            "node_seen",
            "missing: claims about replication, leadership or membership need it",
            op.node().is_none(),
            &op,
        );
        let said = unknown && op.f().is_some_and(is_read) && !matches!(op.output(), ValueRef::Nil);
        found.note("output", "present on an operation of unknown outcome: it says nothing", said, &op);
        if let Some(id) = op.extra("op_id") {
            let mut output = String::new();
            op.write_complete_value(&mut output);
            let record = (op.index(), op.status(), output);
            let differs = outputs.get(id).is_some_and(|before| (before.1, &before.2) != (record.1, &record.2));
            found.note("op_id", "one id with two different outcomes: a fault of the recorder", differs, &op);
            outputs.entry(id).or_insert(record);
        }
    }
    if let Some(first) = falling(history) {
        found.list.push(Weakness {
            field: "invoke_ts",
            what: "times fall along the order of the recording: wall clocks of several machines?",
            count: first.0,
            first: first.1,
        });
    }
    found.list
}

/// Events whose time falls, where the order is not that of time: how many, and the operation of the first.
fn falling(history: &History) -> Option<(u64, u64)> {
    if history.meta().order == Order::Time {
        return None;
    }
    let mut last = i64::MIN;
    let mut found = None;
    for (op, side) in history.events().filter(|(op, _)| op.is_client()) {
        let time = if side == Side::Invocation { op.invoke_time() } else { op.complete_time() };
        let Some(time) = time else { continue };
        if time < last {
            let (count, _) = found.get_or_insert((0, op.index()));
            *count += 1;
        }
        last = last.max(time);
    }
    found
}

#[derive(Default)]
struct Found {
    list: Vec<Weakness>,
}

impl Found {
    fn note(&mut self, field: &'static str, what: &'static str, weak: bool, op: &OpRef<'_>) {
        if !weak {
            return;
        }
        match self.list.iter_mut().find(|w| w.field == field && w.what == what) {
            Some(w) => w.count += 1,
            None => self.list.push(Weakness { field, what, count: 1, first: op.index() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elench_formats::notation::history;

    fn fields(text: &str) -> Vec<(&'static str, u64, u64)> {
        let weak = weaknesses(&history(text).unwrap());
        weak.into_iter().filter(|w| w.field != "node_seen").map(|w| (w.field, w.count, w.first)).collect()
    }

    #[test]
    fn missing_times_are_named_with_their_number_and_the_first() {
        assert_eq!(
            fields("invoke 0 read @1 / ok 0 read 1 @2 / invoke 0 read / ok 0 read 1"),
            [("invoke_ts", 1, 2), ("complete_ts", 1, 2)]
        );
    }

    #[test]
    fn what_an_unknown_read_returned_says_nothing() {
        assert_eq!(fields("invoke 0 read @1 / info 0 read 7 @2"), [("output", 1, 0)]);
    }
}
