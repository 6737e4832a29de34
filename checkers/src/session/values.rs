//! Session guarantees where nothing orders the versions of a key but who read what, each value being written once.
//!
//! A guarantee says of two versions which one is the newer (or that they are the same): of two of which one session saw or wrote first
//! one, then the other. A session's view is right if *some* order of the versions agrees with all that a guarantee says of
//! it: with what *read-your-writes* and *monotonic-reads* say of that session, and *monotonic-writes* and
//! *writes-follow-reads* of all sessions. Different sessions may see different orders, for nothing tells which is right. So a guarantee is violated where
//! what it says runs in a circle. Often no single one does, as where a session writes 1, then 2, then reads 1: either it does
//! not read its writes, or its writes were not applied in order. Then it is the first union that is violated that is named: `PRAM` (read-your-writes,
//! monotonic-reads and monotonic-writes), else `session-causality`, all four.
//!
//! What all four say of a session runs in a circle just where it returns to a version other than the last one it saw, after it saw a
//! version that comes after that one in causal order: one sweep with clocks over each key finds those. That causal consistency of a
//! single object is the four guarantees together: Brzeziński, Sobaniec, Wawrzyniak, "From session causality to causal consistency",
//! PDP 2004. Guarantees: Terry et al., "Session guarantees for weakly consistent replicated data", PDIS 1994.
//!
//! O(operations · sessions of the key); a session that is found wrong costs a search through its key.
//!
//! Only at the end of a history is it known that a value was written once, so this has no incremental form.

use std::collections::VecDeque;

use elench_formats::History;

use super::Guarantee;
use super::graph::{Beside, Graph, INITIAL, Map, NONE, Sweep};
use super::read::{Access, Accesses, Val};
use super::tell::{Step, Teller};
use crate::budget::Budget;
use crate::dense::grouped;
use crate::findings::{Example, Findings};
use crate::graph::component::{Components, Walk};
use crate::outcome::{KeyId, Undecided, Why};

/// Checks each key by itself, in parallel.
pub(super) fn check(history: &History, all: &Accesses, initial: Val, budget: &Budget, examples: usize) -> Findings {
    let parts = all.each_key(|key, own| {
        let teller = Teller { history, accesses: all };
        let mut findings = one_key(own, initial, &teller, budget, examples);
        findings.coverage.keys = 1;
        findings.coverage.keys_decided = 1;
        if let Some(why) = findings.why().filter(|why| *why != Why::NoEvidence) {
            findings.coverage.keys_decided = 0;
            let key = Some(KeyId(key as u32));
            findings.coverage.undecided.push(Undecided { key, why, known: String::new() });
        }
        findings
    });
    let mut whole = Findings::new(examples);
    parts.into_iter().for_each(|part| whole.merge(part));
    whole
}

fn one_key(own: &[Access], initial: Val, teller: &Teller<'_>, budget: &Budget, examples: usize) -> Findings {
    let mut findings = Findings::new(examples);
    let (graph, odd) = Graph::build(own, initial);
    teller.odd(&odd, &mut findings);
    let beside = Beside::nothing(&graph);
    let sweep = Sweep::new(&graph, &beside);
    let stuck = sweep.stuck();
    if !stuck.is_empty() {
        circles(&graph, &stuck, teller, &mut findings);
    }
    let lanes = match gone_back(&graph, &sweep, budget) {
        Ok(lanes) => lanes,
        Err(spent) => {
            findings.undecided(Why::Spent(spent));
            return findings;
        }
    };
    for lane in lanes {
        if budget.spent().is_some() {
            // All four are violated for sure; which of them alone is not known.
            findings.violation(Guarantee::All.name(), || {
                Example::new([], "one session goes back to a version before others")
            });
            continue;
        }
        blame(&graph, lane, teller, &mut findings);
    }
    findings
}

/// Writes that follow reads of what was written after them.
fn circles(graph: &Graph<'_>, stuck: &[u32], teller: &Teller<'_>, findings: &mut Findings) {
    for cycle in super::causal::causal_cycles(graph, stuck) {
        findings.violation(Guarantee::WritesFollowReads.name(), || {
            teller.example(graph, &cycle, |text| {
                format!(
                    "writes-follow-reads: each of these comes before the next, and the last before the first: {text}"
                )
            })
        });
    }
}

/// Lanes that return to a version which they know to be older.
fn gone_back(graph: &Graph<'_>, sweep: &Sweep<'_>, budget: &Budget) -> Result<Vec<u32>, crate::Spent> {
    let mut last = vec![NONE; graph.lanes()];
    let mut wrong = vec![false; graph.lanes()];
    sweep.clocks(budget, |known| {
        let lane = graph.lane[known.node as usize] as usize;
        match graph.source[known.node as usize] {
            INITIAL => wrong[lane] |= last[lane] != NONE,
            source if source < INITIAL => {
                let (of, place) = (graph.lane[source as usize] as usize, graph.place[source as usize]);
                wrong[lane] |= last[lane] != source && known.clock[of] >= place;
                last[lane] = source;
            }
            _ => last[lane] = known.node,
        }
    })?;
    Ok((0..graph.lanes() as u32).filter(|&lane| wrong[lane as usize]).collect())
}

/// What a guarantee says: the version of node `from` comes before that of node `to`, for the operations of these nodes stand so in a
/// session. A version that is only a step (the versions before a write, say) is no node's.
#[derive(Clone, Copy, Debug)]
struct Says {
    from: u32,
    to: u32,
    by: Guarantee,
    /// The nodes whose operations stand so, or [`NONE`]: a step between takes one from either side.
    nodes: [u32; 2],
}

/// All that guarantees say of one session's view of a key.
struct Constraints {
    nodes: usize,
    says: Vec<Says>,
}

impl Constraints {
    /// Versions are numbered by the nodes of their writes, the initial one by the number of nodes; further numbers are steps.
    fn of(graph: &Graph<'_>, lane: u32) -> Constraints {
        let mut all = Constraints { nodes: graph.len() + 1, says: Vec::new() };
        let initial = graph.len() as u32;
        for node in (0..graph.len() as u32).filter(|&node| graph.is_write(node)) {
            all.say(initial, node, Guarantee::Initial, [node, NONE]);
        }
        for each in 0..graph.lanes() as u32 {
            all.writes(graph, each, initial);
        }
        all.reads(graph, lane, initial);
        all
    }

    fn say(&mut self, from: u32, to: u32, by: Guarantee, nodes: [u32; 2]) {
        self.says.push(Says { from, to, by, nodes });
    }

    fn step(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes as u32 - 1
    }

    /// Monotonic writes and writes that follow reads, of any session.
    fn writes(&mut self, graph: &Graph<'_>, lane: u32, initial: u32) {
        let own = graph.starts[lane as usize]..graph.starts[lane as usize + 1];
        let mut before: Vec<u32> = Vec::new();
        // A write on a lane of its own follows all that its session did before it.
        if let Some(led_by) = graph.led_by(own.start) {
            before.extend(graph.starts[graph.lane[led_by as usize] as usize]..=led_by);
        }
        let (mut last, mut seen) = (NONE, NONE);
        for node in before.into_iter().chain(own) {
            match graph.source[node as usize] {
                source if source <= INITIAL => {
                    let version = if source == INITIAL { initial } else { source };
                    let step = self.step();
                    self.say(version, step, Guarantee::WritesFollowReads, [node, NONE]);
                    if seen != NONE {
                        self.say(seen, step, Guarantee::WritesFollowReads, [NONE; 2]);
                    }
                    seen = step;
                }
                _ => {
                    if last != NONE {
                        self.say(last, node, Guarantee::MonotonicWrites, [last, node]);
                    }
                    if seen != NONE {
                        self.say(seen, node, Guarantee::WritesFollowReads, [NONE, node]);
                    }
                    last = node;
                }
            }
        }
    }

    /// Reading one's writes and monotonic reads, of this session.
    fn reads(&mut self, graph: &Graph<'_>, lane: u32, initial: u32) {
        let own = graph.starts[lane as usize]..graph.starts[lane as usize + 1];
        // Own writes so far, the step that they all come before, and up to which of them each was already said to be the newest.
        let mut written: Vec<(u32, u32)> = Vec::new();
        let mut newest: Vec<usize> = Vec::new();
        let mut last = (NONE, NONE);
        let mut place: Map<u32, usize> = Map::default();
        for node in own {
            let source = graph.source[node as usize];
            if source > INITIAL {
                let step = self.step();
                self.say(node, step, Guarantee::ReadYourWrites, [node, NONE]);
                if let Some(&(_, before)) = written.last() {
                    self.say(before, step, Guarantee::ReadYourWrites, [NONE; 2]);
                }
                written.push((node, step));
                place.insert(node, newest.len());
                newest.push(written.len());
                continue;
            }
            let version = if source == INITIAL { initial } else { source };
            match place.get(&version).copied() {
                None => {
                    if let Some(&(_, step)) = written.last() {
                        self.say(step, version, Guarantee::ReadYourWrites, [NONE, node]);
                    }
                }
                Some(at) => {
                    if at > 0 {
                        self.say(written[at - 1].1, version, Guarantee::ReadYourWrites, [NONE, node]);
                    }
                    for &(later, _) in &written[newest[at]..] {
                        self.say(later, version, Guarantee::ReadYourWrites, [later, node]);
                    }
                    newest[at] = written.len();
                }
            }
            if last.0 != NONE && last.0 != version {
                self.say(last.0, version, Guarantee::MonotonicReads, [last.1, node]);
            }
            last = (version, node);
        }
    }

    /// A shortest circle of what these guarantees say, if there is one.
    fn circle(&self, of: &[Guarantee]) -> Option<Vec<Says>> {
        let said: Vec<Says> =
            self.says.iter().copied().filter(|s| s.by == Guarantee::Initial || of.contains(&s.by)).collect();
        let (starts, items) = grouped(self.nodes, said.iter().enumerate().map(|(i, s)| (s.from, i as u32)));
        let walk = Saying { said: &said, starts: &starts, items: &items };
        let components = Components::of(&walk, 0..self.nodes as u32);
        let inside = |s: &Says| components.same(s.from, s.to);
        let first = said.iter().position(|s| inside(s) && s.by != Guarantee::Initial)?;
        // Breadth first from the end of one step back to its beginning.
        let (begin, end) = (said[first].to, said[first].from);
        let mut came: Vec<u32> = vec![NONE; self.nodes];
        let mut queue = VecDeque::from([begin]);
        while let Some(node) = queue.pop_front() {
            if node == end {
                break;
            }
            for &i in &items[starts[node as usize] as usize..starts[node as usize + 1] as usize] {
                let to = said[i as usize].to;
                if to != begin && came[to as usize] == NONE && components.same(to, begin) {
                    came[to as usize] = i;
                    queue.push_back(to);
                }
            }
        }
        let mut circle = vec![said[first]];
        let mut node = end;
        while node != begin {
            let step = said[came[node as usize] as usize];
            circle.push(step);
            node = step.from;
        }
        circle.reverse();
        Some(circle)
    }
}

struct Saying<'a> {
    said: &'a [Says],
    starts: &'a [u32],
    items: &'a [u32],
}

impl Walk for Saying<'_> {
    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        let own = &self.items[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize];
        let at = own.get(*cursor as usize)?;
        *cursor += 1;
        Some(self.said[*at as usize].to)
    }
}

/// Names what a session's view of a key violates: each guarantee that is by itself, else the least union.
fn blame(graph: &Graph<'_>, lane: u32, teller: &Teller<'_>, findings: &mut Findings) {
    use Guarantee::{All, MonotonicReads, MonotonicWrites, Pram, ReadYourWrites, WritesFollowReads};
    let constraints = Constraints::of(graph, lane);
    let mut tell = |by: Guarantee, circle: &[Says]| {
        findings.violation(by.name(), || {
            let (ops, text) = teller.circle(graph, &steps(graph, circle));
            let key = teller.accesses.show_key(teller.history, graph.access(graph.starts[lane as usize]).key);
            let which: Vec<&str> = parts(circle).into_iter().map(Guarantee::name).collect();
            let text = match which.len() {
                1 => format!("{} fails: {text}", which[0]),
                _ => format!("one of {} fails: {text}", which.join(", ")),
            };
            Example { key, ops, text }
        });
    };
    let alone = [ReadYourWrites, MonotonicReads].map(|by| (by, constraints.circle(&[by])));
    let mut any = false;
    for (by, circle) in alone {
        if let Some(circle) = circle {
            any = true;
            tell(by, &circle);
        }
    }
    if any {
        return;
    }
    if let Some(circle) = constraints.circle(&[ReadYourWrites, MonotonicReads, MonotonicWrites]) {
        tell(Pram, &circle);
    } else if let Some(circle) =
        constraints.circle(&[ReadYourWrites, MonotonicReads, MonotonicWrites, WritesFollowReads])
    {
        tell(All, &circle);
    }
}

/// The guarantees that a circle rests on.
fn parts(circle: &[Says]) -> Vec<Guarantee> {
    let mut parts: Vec<Guarantee> = circle.iter().map(|s| s.by).filter(|by| *by != Guarantee::Initial).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// A circle as steps between versions: by which guarantee, and by which operations.
fn steps(graph: &Graph<'_>, circle: &[Says]) -> Vec<Step> {
    let mut circle: Vec<Says> = circle.to_vec();
    // Begin at a version.
    if let Some(at) = circle.iter().position(|s| s.from as usize <= graph.len()) {
        circle.rotate_left(at);
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    for says in circle {
        if !open {
            steps.push(Step { from: says.from, to: says.to, by: says.by, nodes: Vec::new() });
        }
        if let Some(step) = steps.last_mut() {
            step.nodes.extend(says.nodes.into_iter().filter(|&node| node != NONE));
            step.to = says.to;
        }
        open = says.to as usize > graph.len();
    }
    steps
}
