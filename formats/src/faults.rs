//! When was what broken? The fault timeline, from the nemesis' operations.
//!
//! A nemesis operation that begins a fault (`start`, `kill`, `pause`, `start-partition`) opens a window that the
//! operation undoing it (`stop`, `start` after `kill`, `resume`, `stop-partition`) closes; one that neither opens nor
//! closes is a window of its own, from its beginning to its end. Names follow Jepsen's nemeses.

use arrow_array::{Array, Int64Array};
use arrow_buffer::NullBuffer;

use crate::build::{NO_TEXT, intern};
use crate::columns::optional;
use crate::error::Result;
use crate::history::{Chunk, Shared};

/// A stretch of the run in which a fault was, or may have been, active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultWindow {
    /// Its label, unique in the history: `kill#2`.
    pub label: String,
    /// The function that opened it.
    pub f: String,
    /// Who did it: `nemesis`.
    pub actor: String,
    /// EDN text of the value of the opening operation's completion, else of its invocation.
    pub value: String,
    /// Event index at which it may have begun.
    pub start: u64,
    /// Event index after which it was over; `None` if it never was.
    pub end: Option<u64>,
    /// Nanoseconds of its beginning, if recorded.
    pub start_time: Option<i64>,
    /// Nanoseconds of its end, if recorded.
    pub end_time: Option<i64>,
}

/// An operation of the nemesis, as the timeline needs it.
#[derive(Clone, Debug)]
struct FaultOp {
    actor: String,
    f: String,
    value: String,
    start: u64,
    end: Option<u64>,
    start_time: Option<i64>,
    end_time: Option<i64>,
}

/// The windows of a run, by beginning. O(n) in nemesis operations times windows open at once.
fn timeline(ops: &[FaultOp]) -> Vec<FaultWindow> {
    let mut windows: Vec<FaultWindow> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for op in ops {
        if let Some(at) = open.iter().rposition(|&w| windows[w].actor == op.actor && undoes(&op.f, &windows[w].f)) {
            let w = &mut windows[open.remove(at)];
            (w.end, w.end_time) = (op.end, op.end_time);
            continue;
        }
        if is_undoing(&op.f) {
            continue;
        }
        let count = windows.iter().filter(|w| w.f == op.f).count() + 1;
        let lasting = opens(&op.f);
        if lasting {
            open.push(windows.len());
        }
        windows.push(FaultWindow {
            label: format!("{}#{count}", op.f),
            f: op.f.clone(),
            actor: op.actor.clone(),
            value: op.value.clone(),
            start: op.start,
            end: if lasting { None } else { op.end },
            start_time: op.start_time,
            end_time: if lasting { None } else { op.end_time },
        });
    }
    windows
}

/// Functions that open a fault, and what undoes each.
const PAIRS: [(&str, &[&str]); 11] = [
    ("start", &["stop", "heal", "recover"]),
    ("kill", &["start", "restart", "recover", "revive"]),
    ("crash", &["start", "restart", "recover", "revive"]),
    ("stop", &["start", "restart", "resume"]),
    ("pause", &["resume", "unpause", "cont", "continue"]),
    ("partition", &["heal", "unpartition", "stop-partition", "recover"]),
    ("isolate", &["heal", "rejoin", "recover"]),
    ("isolate-completely", &["heal", "rejoin", "recover"]),
    ("split", &["heal", "join"]),
    ("slow", &["fast"]),
    ("leave", &["join"]),
];

fn opens(f: &str) -> bool {
    PAIRS.iter().any(|(open, _)| *open == f) || f.strip_prefix("start-").is_some()
}

fn undoes(f: &str, opened: &str) -> bool {
    if let (Some(a), Some(b)) = (f.strip_prefix("stop-"), opened.strip_prefix("start-")) {
        return a == b;
    }
    PAIRS.iter().any(|(open, closers)| *open == opened && closers.contains(&f))
}

/// Functions that only ever undo: with nothing open they are no fault.
fn is_undoing(f: &str) -> bool {
    f.starts_with("stop-")
        || matches!(f, "heal" | "resume" | "unpause" | "recover" | "restart" | "rejoin" | "reset" | "fast")
}

/// Derives the fault timeline.
pub(crate) fn find_faults(chunks: &[Chunk], shared: &mut Shared) {
    shared.faults = timeline(&fault_ops(chunks, shared));
}

/// Derives the fault timeline, and each operation's fault epoch where the recorder did not write it.
pub(crate) fn finish_faults(chunks: &mut [Chunk], shared: &mut Shared) -> Result<()> {
    find_faults(chunks, shared);
    if shared.meta.epochs_recorded || shared.faults.is_empty() {
        return Ok(());
    }
    let mut labels = Vec::with_capacity(shared.faults.len());
    for w in &shared.faults {
        labels.push(intern(&mut shared.names, &w.label)?);
    }
    for chunk in chunks {
        let mut epochs = vec![NO_TEXT; chunk.len()];
        for (i, epoch) in epochs.iter_mut().enumerate().filter(|&(i, _)| chunk.is_client(i)) {
            let from = chunk.index.value(i);
            let to = if chunk.complete_index.nulls().is_none_or(|n| n.is_valid(i)) {
                chunk.complete_index.value(i)
            } else {
                u64::MAX
            };
            let after = shared.faults.partition_point(|w| w.start < to);
            let active = shared.faults[..after].iter().rposition(|w| w.end.is_none_or(|end| end > from));
            if let Some(w) = active {
                *epoch = labels[w];
            }
        }
        chunk.fault_epoch = optional(epochs, NO_TEXT);
    }
    Ok(())
}

fn fault_ops(chunks: &[Chunk], shared: &Shared) -> Vec<FaultOp> {
    let mut ops = Vec::new();
    for chunk in chunks {
        let Some(actors) = &chunk.actor else { continue };
        for (i, actor) in actors.iter().enumerate() {
            let (Some(actor), true) = (actor, chunk.f.nulls().is_none_or(|n| n.is_valid(i))) else { continue };
            let valid = |nulls: Option<&NullBuffer>| nulls.is_none_or(|n| n.is_valid(i));
            let time = |a: &Option<Int64Array>| a.as_ref().filter(|a| valid(a.nulls())).map(|a| a.value(i));
            let mut value = String::new();
            let said = chunk.output.get(i);
            shared.write_value(if said.is_nil() { chunk.input.get(i) } else { said }, &mut value);
            ops.push(FaultOp {
                actor: shared.functions.get(u32::from(actor)).into(),
                f: shared.functions.get(u32::from(chunk.f.value(i))).into(),
                value,
                start: chunk.index.value(i),
                end: valid(chunk.complete_index.nulls()).then(|| chunk.complete_index.value(i)),
                start_time: time(&chunk.invoke_time),
                end_time: time(&chunk.complete_time),
            });
        }
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(f: &str, start: u64) -> FaultOp {
        FaultOp {
            actor: "nemesis".into(),
            f: f.into(),
            value: "nil".into(),
            start,
            end: Some(start + 1),
            start_time: None,
            end_time: None,
        }
    }

    fn windows(fs: &[&str]) -> Vec<(String, u64, Option<u64>)> {
        let ops: Vec<_> = fs.iter().enumerate().map(|(i, f)| op(f, 10 * i as u64)).collect();
        timeline(&ops).into_iter().map(|w| (w.label, w.start, w.end)).collect()
    }

    #[test]
    fn a_fault_lasts_until_it_is_undone() {
        assert_eq!(
            windows(&["start", "stop", "start"]),
            [("start#1".into(), 0, Some(11)), ("start#2".into(), 20, None)]
        );
        assert_eq!(windows(&["kill", "start"]), [("kill#1".into(), 0, Some(11))]);
        assert_eq!(
            windows(&["start-partition", "start-kill", "stop-partition"]),
            [("start-partition#1".into(), 0, Some(21)), ("start-kill#1".into(), 10, None)]
        );
    }

    #[test]
    fn undoing_what_was_not_done_is_no_fault() {
        assert_eq!(windows(&["heal", "resume"]), []);
    }

    #[test]
    fn an_unknown_operation_is_a_window_of_its_own() {
        assert_eq!(windows(&["bump-clock"]), [("bump-clock#1".into(), 0, Some(1))]);
    }
}
