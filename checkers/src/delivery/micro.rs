//! Are messages wrapped in micro-operations? `send [[:send 0 1]]` and `poll [[:poll {0 [[0 1]]}]]`, as Jepsen's Kafka workload
//! has them, hand over and take out what lies inside. A checker that asks of whole values would take the list for one message, and
//! accuse: what was sent is completed with offsets, and what is polled is never what was sent. O(1) an operation.

use elench_formats::History;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;

use crate::findings::Findings;
use crate::named::is_any;
use crate::outcome::Why;

/// Why such histories are not judged.
pub(crate) const MICRO: &str = "messages stand inside micro-operations (send, poll): use --checker log";

const OPENINGS: [&str; 4] = ["[:send", "[:poll", "[\"send\"", "[\"poll\""];

/// Is what the operation sent or got back made of micro-operations that send or poll?
pub(crate) fn has_micro_operations(op: &OpRef<'_>) -> bool {
    let first = op.txn().and_then(|txn| txn.iter().next());
    first.is_some_and(|mop| is_any(op.mop_name(mop.f), &["send", "poll"])) || is(op, op.input()) || is(op, op.output())
}

fn is(op: &OpRef<'_>, value: ValueRef<'_>) -> bool {
    let opens = |text: &str| OPENINGS.iter().any(|opening| text.starts_with(opening));
    match value {
        ValueRef::List(list) => !list.is_empty() && matches!(list.get(0), Scalar::Text(text) if opens(op.text(text))),
        ValueRef::Text(text) => op.text(text).strip_prefix('[').is_some_and(|inner| opens(inner.trim_start())),
        _ => false,
    }
}

/// The answer to a history whose messages stand inside micro-operations.
pub(crate) fn refuse_micro_operations(history: &History, examples: usize) -> Option<Findings> {
    history.clients().any(|op| has_micro_operations(&op)).then(|| {
        let mut findings = Findings::new(examples);
        findings.undecided(Why::Other(MICRO.into()));
        findings
    })
}
