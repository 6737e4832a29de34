//! Did every message that was broadcast reach every node, and how soon?
//!
//! Each node's reads are a view ([`super::reads`]). A message that was known (acknowledged, or shown by a read of any node that had
//! ended) before a node's last read began, and that neither this read nor one that overlaps it shows, was *lost* there if the node
//! had shown it, and else never *reached* it. A broadcast may be asynchronous: unless the user asked for this checker by name, what
//! did not reach a node is judged only if the node's last read is marked as final (`:final? true`), and else nothing is decided. The time to converge is that from the acknowledgement to the end of the read by which the last node showed it. A node
//! that is never read proves nothing, and is named. Where the recorder says no node, the process stands for it.
//!
//! Memory: 24 bytes a message, and 12 a message and node.

use std::collections::BTreeMap;

use elench_formats::History;
use elench_formats::history::{OpRef, Status as Ended};

use roaring::RoaringBitmap;

use super::elements::Elements;
use super::reads::{End, ReadAt, Seen, View, elements_of, in_event_order};
use super::set::{Attempts, NONE, may_shrink, note_shrinking, refuse_without_order, tell_foreign};
use super::words::{Role, Roles};
use crate::findings::{Example, Fact, Findings, Incremental, Part, by_key, ended};
use crate::invariant::is_final;
use crate::latencies::Latencies;
use crate::outcome::{OpId, Status, Why};

#[derive(Debug, Default)]
struct Node {
    view: View,
    /// Elements that a read held twice, each once, with the first such read.
    twice: Vec<(u32, ReadAt)>,
    known_twice: RoaringBitmap,
    /// The last read, by invocation, that is marked as final.
    marked: Option<u64>,
}

#[derive(Debug)]
struct Broadcast {
    examples: usize,
    named: bool,
    shrinks: Option<(u64, String)>,
    roles: Roles,
    elements: Elements,
    attempts: Attempts,
    nodes: BTreeMap<String, Node>,
    reads: [u64; 3],
}

impl Broadcast {
    fn new(named: bool, examples: usize, copies: bool) -> Broadcast {
        Broadcast {
            examples,
            named,
            shrinks: None,
            roles: Roles::default(),
            elements: Elements::new(copies),
            attempts: Attempts::default(),
            nodes: BTreeMap::new(),
            reads: [0; 3],
        }
    }

    fn node(&mut self, op: &OpRef<'_>) -> &mut Node {
        let process = || op.process().map_or("unknown".into(), |p| format!("process {p}"));
        let name = op.node().map_or_else(process, str::to_string);
        self.nodes.entry(name).or_default()
    }

    fn add(&mut self, op: &OpRef<'_>) {
        self.elements.widen();
        if let Some(id) = self.elements.value(op, op.input()) {
            self.attempts.add(id, op);
        }
    }

    fn shrink(&mut self, role: Role, op: &OpRef<'_>) {
        if matches!(role, Role::Remove | Role::Take | Role::Drain) && op.status() != Ended::Fail {
            note_shrinking(&mut self.shrinks, op);
        }
    }

    fn read(&mut self, op: &OpRef<'_>) {
        let seen = match op.status() {
            Ended::Ok => elements_of(&mut self.elements, op, op.output()),
            _ => None,
        };
        if seen.is_some() || op.status() != Ended::Ok {
            self.reads[ended(op) as usize] += 1;
        }
        let node = self.node(op);
        match seen {
            Some(Seen { set, twice }) => {
                let read = ReadAt::of(op);
                let known = &mut node.known_twice;
                node.twice.extend(twice.into_iter().filter(|&id| known.insert(id)).map(|id| (id, read)));
                node.view.shows(read, set);
                if is_final(op) {
                    node.marked = node.marked.max(Some(read.invoke));
                }
            }
            None => node.view.shows_nothing(op.index()),
        }
    }

    fn told(mut self, history: Option<&History>) -> Findings {
        let mut findings = Findings::new(self.examples);
        self.nodes.values_mut().for_each(|node| node.view.close());
        self.attempts.count(&mut findings);
        for (status, n) in [Status::Ok, Status::Fail, Status::Info].into_iter().zip(self.reads) {
            findings.coverage.count("read", status, n);
        }
        let name = |id: u32| self.elements.name(id, history);
        for node in self.nodes.values() {
            for &(id, read) in &node.twice {
                findings.note("duplicated", || {
                    Example::new(
                        [OpId(read.invoke)],
                        format!("op {} returned {} more than once", read.invoke, name(id)),
                    )
                });
            }
            let foreign = node.view.ever().iter().filter_map(|id| Some((id, node.view.first_sight(id)?)));
            tell_foreign(foreign, &self.attempts, &name, &mut findings);
        }
        let (judged, converged) = self.tell_nodes(&name, &mut findings);
        let unread: Vec<_> =
            self.nodes.iter().filter(|(_, n)| n.view.reads() == 0).map(|(name, _)| name.clone()).collect();
        findings.fact("nodes read", Fact::Count((self.nodes.len() - unread.len()) as u64));
        if !unread.is_empty() {
            findings.fact("nodes never read", Fact::Text(unread.join(", ")));
        }
        findings.durations("time to converge", &converged);
        if let Some(first) = &self.shrinks {
            findings.undecided(may_shrink(first));
        }
        if judged == 0 {
            findings.undecided(Why::Other("no node was read after a message was acknowledged".into()));
        }
        findings
    }

    /// How many pairs of message and node were judged, and how long messages took to be everywhere.
    fn tell_nodes(&self, name: &dyn Fn(u32) -> String, findings: &mut Findings) -> (u64, Latencies) {
        let (mut judged, mut converged) = (0, Latencies::default());
        let nodes = || self.nodes.iter().filter(|(_, node)| node.view.reads() > 0);
        // Most are everywhere, and then it is only asked how late they came to the last node.
        let all = nodes().map(|(_, node)| node.view.shown_now()).cloned().reduce(|all, own| all & own);
        let all = all.unwrap_or_default();
        let count = nodes().count() as u64;
        for (id, attempt) in self.attempts.live() {
            if all.contains(id) && !self.attempts.is_removed(id) {
                judged += count;
                let times = nodes().map(|(_, node)| node.view.first_sight(id)?.complete_time);
                let latest = times.reduce(|a, b| Some(a?.max(b?))).flatten();
                if let (Some(latest), Some(acked)) = (latest, attempt.acked_at()) {
                    converged.record(latest.saturating_sub(acked));
                }
                continue;
            }
            let sight = nodes().filter_map(|(_, node)| node.view.first_sight(id)).map(|read| read.complete).min();
            let known = attempt.ack.min(sight.unwrap_or(NONE));
            if known == NONE || self.attempts.is_removed(id) {
                continue;
            }
            let op = self.attempts.op(id);
            let (mut everywhere, mut latest) = (true, Some(i64::MIN));
            for (node, of) in nodes() {
                if of.view.shown_at_end(id) {
                    judged += 1;
                    let time = of.view.first_sight(id).and_then(|read| read.complete_time);
                    latest = latest.zip(time).map(|(a, b)| a.max(b));
                    continue;
                }
                everywhere = false;
                let Some(miss) = of.view.last_miss(id).filter(|miss| miss.invoke > known) else { continue };
                if self.shrinks.as_ref().is_some_and(|(removal, _)| *removal < miss.complete) {
                    // It may have been removed; that something was makes the answer unknown.
                    continue;
                }
                judged += 1;
                let before = of.view.last_sight(id);
                if before.is_none() && !self.named && of.marked != Some(miss.invoke) {
                    findings.undecided(Why::Other(format!(
                        "rest is not shown: {} had not reached {node} by its last read, op {}, which is not marked as final \
                         (`:final? true`); --checker broadcast judges it all the same",
                        name(id),
                        miss.invoke
                    )));
                    continue;
                }
                findings.violation(if before.is_some() { "lost" } else { "unreached" }, || {
                    let showed = before.map_or(String::new(), |b| format!(" and shown there by op {}", b.invoke));
                    let text = format!(
                        "{} was broadcast by op {op}{showed}, and the last read of {node}, op {}, misses it",
                        name(id),
                        miss.invoke
                    );
                    let ops = [OpId(op)].into_iter().chain(before.map(|b| OpId(b.invoke)));
                    Example::new(ops.chain([OpId(miss.invoke)]), text)
                });
            }
            if let (true, Some(latest), Some(acked)) = (everywhere, latest, attempt.acked_at()) {
                converged.record(latest.saturating_sub(acked));
            }
        }
        (judged, converged)
    }
}

impl Incremental for Broadcast {
    fn invoked(&mut self, op: &OpRef<'_>) {
        if self.roles.of(op) == Role::Read {
            self.node(op).view.opens(op.index());
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        match self.roles.of(op) {
            Role::Read => self.read(op),
            Role::Add => self.add(op),
            role => self.shrink(role, op),
        }
    }

    /// What is late is not lost until nothing follows.
    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(self: Box<Self>) -> Findings {
        self.told(None)
    }
}

/// `broadcast` while a history without keys is written.
pub fn incremental_broadcast(named: bool, examples: usize) -> Box<dyn Incremental> {
    Box::new(Broadcast::new(named, examples, true))
}

/// Did every message of each key reach every node? See the module. `named`: the user asked for it, and so vouches for the last reads.
///
/// Violations: `unreached`, `lost`, `aborted-effect`, `unexpected`. Noted: `duplicated`.
pub fn broadcast(history: &History, named: bool, examples: usize) -> Findings {
    if let Some(refused) = refuse_without_order(history, examples) {
        return refused;
    }
    by_key(history, examples, |part: Part<'_>| one(part, named, examples))
}

fn one(part: Part<'_>, named: bool, examples: usize) -> Findings {
    let mut state = Broadcast::new(named, examples, false);
    let mut reads = Vec::new();
    for op in part.ops() {
        match state.roles.of(&op) {
            Role::Read => reads.push(op),
            Role::Add => state.add(&op),
            role => state.shrink(role, &op),
        }
    }
    let mut begun: BTreeMap<u64, OpRef<'_>> = reads.iter().map(|op| (op.index(), *op)).collect();
    in_event_order(reads, |end| match end {
        End::Opens(invoke) => {
            if let Some(op) = begun.remove(&invoke) {
                state.node(&op).view.opens(invoke);
            }
        }
        End::Ends(op) => state.read(&op),
    });
    state.told(Some(part.history()))
}
