//! How is it told to a person? Operations, the steps of circles between versions, and paths of causes.

use elench_formats::History;

use super::Guarantee;
use super::graph::{Graph, NONE, Odd};
use super::read::{Access, Accesses, Kind};
use crate::findings::{Example, Findings};
use crate::outcome::{OpId, Why};

/// One version before another one, by what a session did.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The node that wrote the version; the number of nodes for the initial one.
    pub from: u32,
    pub to: u32,
    pub by: Guarantee,
    /// What the session did, in order.
    pub nodes: Vec<u32>,
}

/// Why one node comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The same session did it later.
    Session,
    /// It reads what the one wrote.
    Reads,
    /// Both wrote one key; this read, which knows of the one, returned the other.
    Hides(u32),
}

/// One node before another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub from: u32,
    pub to: u32,
    pub how: How,
}

/// Words for what is found in a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Teller<'a> {
    pub history: &'a History,
    pub accesses: &'a Accesses,
}

impl Teller<'_> {
    fn process(&self, op: u64) -> String {
        let row = self.history.row_of(op);
        row.and_then(|row| self.history.op(row).process()).map_or(String::new(), |p| format!(" of process {p}"))
    }

    fn value(&self, graph: &Graph<'_>, node: u32) -> String {
        let value = self.accesses.show(self.history, graph.access(node).value());
        match self.accesses.show_key(self.history, graph.access(node).key) {
            Some(key) => format!("{value} (key {key})"),
            None => value,
        }
    }

    /// `op 3 of process 1 wrote 5`.
    pub(super) fn node(&self, graph: &Graph<'_>, node: u32) -> String {
        let op = graph.op(node);
        let did = if graph.is_write(node) { "wrote" } else { "read" };
        format!("op {op}{} {did} {}", self.process(op), self.value(graph, node))
    }

    fn version(&self, graph: &Graph<'_>, version: u32) -> String {
        if version as usize == graph.len() { "the initial value".into() } else { self.value(graph, version) }
    }

    /// A circle of versions in words, and its operations.
    pub(super) fn circle(&self, graph: &Graph<'_>, steps: &[Step]) -> (Vec<OpId>, String) {
        let mut nodes: Vec<u32> = Vec::new();
        let mut texts = Vec::new();
        for step in steps {
            nodes.extend(&step.nodes);
            let (from, to) = (self.version(graph, step.from), self.version(graph, step.to));
            texts.push(match (step.by, step.nodes.as_slice()) {
                (Guarantee::Initial, _) => format!("{from} comes before {to}"),
                (by, nodes) => {
                    let did: Vec<String> = nodes.iter().map(|&node| self.node(graph, node)).collect();
                    format!("{} in one session, so {from} comes before {to} ({})", did.join(", then "), by.name())
                }
            });
        }
        (ops(graph, nodes), texts.join("; "))
    }

    /// A path of causes in words: what one session did in between is left out.
    pub(super) fn path(&self, graph: &Graph<'_>, hops: &[Hop]) -> String {
        let Some(first) = hops.first() else { return String::new() };
        let mut text = self.node(graph, first.from);
        for hop in shortened(hops) {
            let to = self.node(graph, hop.to);
            text += &match hop.how {
                How::Session => format!(", then in the same session {to}"),
                How::Reads => format!(", which {to}"),
                How::Hides(read) => {
                    format!(", which comes before {to}, for {} while knowing of the former", self.node(graph, read))
                }
            };
        }
        text
    }

    /// A path or circle as an example.
    pub(super) fn example(&self, graph: &Graph<'_>, hops: &[Hop], words: impl FnOnce(&str) -> String) -> Example {
        let hops = shortened(hops);
        let mut nodes: Vec<u32> = hops.iter().flat_map(|hop| [hop.from, hop.to]).collect();
        nodes.extend(hops.iter().filter_map(|hop| if let How::Hides(read) = hop.how { Some(read) } else { None }));
        Example { key: None, ops: ops(graph, nodes), text: words(&self.path(graph, &hops)) }
    }

    /// Reads that are wrong by themselves, or that say nothing.
    pub(super) fn odd(&self, odd: &[Odd], findings: &mut Findings) {
        let show = |read: &Access| {
            let value = self.accesses.show(self.history, read.value());
            let key = self.accesses.show_key(self.history, read.key);
            let did = if read.kind == Kind::Read { "read" } else { "wrote" };
            (key, format!("op {}{} {did} {value}", read.op, self.process(read.op)))
        };
        let mut ambiguous = 0u64;
        for odd in odd {
            match odd {
                Odd::Aborted { read, write } => findings.violation("aborted-effect", || {
                    let (key, text) = show(read);
                    let text = format!("{text}, which only op {write} wrote, and that failed");
                    Example { key, ops: vec![OpId(read.op), OpId(*write)], text }
                }),
                Odd::ThinAir { read } => findings.violation("ThinAirRead", || {
                    let (key, text) = show(read);
                    let text = format!("{text}, which nobody wrote, and which is not the initial value (--initial)");
                    Example { key, ops: vec![OpId(read.op)], text }
                }),
                Odd::Ambiguous { read } => {
                    ambiguous += 1;
                    findings.note("ambiguous-read", || {
                        let (key, text) = show(read);
                        let text = format!("{text}, which was written more than once, or was there at first");
                        Example { key, ops: vec![OpId(read.op)], text }
                    });
                }
            }
        }
        if ambiguous > 0 {
            let s = if ambiguous == 1 { "read returns a value" } else { "reads return values" };
            findings.undecided(Why::Other(format!(
                "oracle-too-weak: {ambiguous} {s} written more than once, so which write it was cannot be told"
            )));
        }
    }
}

/// Without the nodes that one session did between two others.
fn shortened(hops: &[Hop]) -> Vec<Hop> {
    let mut short: Vec<Hop> = Vec::new();
    for hop in hops {
        match short.last_mut() {
            Some(last) if last.how == How::Session && hop.how == How::Session => last.to = hop.to,
            _ => short.push(*hop),
        }
    }
    short
}

/// The operations of nodes, each once, in order of invocation.
fn ops(graph: &Graph<'_>, nodes: Vec<u32>) -> Vec<OpId> {
    let mut ops: Vec<OpId> = nodes.into_iter().filter(|&n| n != NONE).map(|n| OpId(graph.op(n))).collect();
    ops.sort_unstable();
    ops.dedup();
    ops
}
