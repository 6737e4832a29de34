//! Is the history of registers causally consistent? CC, CCv and CM, each with its bad patterns.
//!
//! What a session did earlier causes what it does later, and a write causes the reads that return it; causal order is what follows
//! from both. Bouajjani, Enea, Guerraoui and Hamza ("On verifying causal consistency", POPL 2017) show that, where each value is written once, a
//! history satisfies
//!
//! * *causal consistency* (CC) unless causal order is circular (`CyclicCO`), a read returns what nobody wrote (`ThinAirRead`) or the
//!   initial value though it knows of a write (`WriteCOInitRead`), or a write that it knows to be overwritten (`WriteCORead`);
//! * *causal convergence* (CCv) if also there is no circle of causal order and *conflict order* (`CyclicCF`): a write comes before
//!   another one of its key if a read that knows of it returns the other;
//! * *causal memory* (CM) if, beyond CC, no session's *happened-before* is circular (`CyclicHB`) or puts a write before a read of the initial value
//!   (`WriteHBInitRead`): causal order, closed under the rule that a write of which a read of this session knows
//!   comes before the one that it returns.
//!
//! One sweep with clocks finds, for each read, the writes that it knows of and the write that it returns does not: per lane only the newest,
//! which all earlier ones of the lane come before. These pairs are conflict order, as far as it does not follow. Where they close no
//! circle with causal order, CC and CCv hold; of those on circles a second sweep says which were causally overwritten. CC and
//! CCv: O(operations · sessions), as in AWDIT (PLDI 2025). CM: for each session that reads against causal order the closure is
//! computed, as many sweeps as it takes: O(operations · sessions) each.
//!
//! Only at the end of a history is it known that a value was written once, so this has no incremental form.

use std::collections::VecDeque;

use elench_formats::History;

use super::graph::{Beside, Graph, INITIAL, Map, Sweep};
use super::read::{Access, Accesses, Val};
use super::tell::{Hop, How, Teller};
use crate::budget::{Budget, Spent};
use crate::dense::grouped;
use crate::findings::{Example, Fact, Findings, Weight};
use crate::graph::component::{Components, Walk};
use crate::outcome::Why;

/// A condition that causal histories may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CausalModel {
    /// Causal consistency.
    Cc,
    /// Causal convergence.
    Ccv,
    /// Causal memory.
    Cm,
}

impl CausalModel {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CausalModel::Cc => "CC",
            CausalModel::Ccv => "CCv",
            CausalModel::Cm => "CM",
        }
    }
}

/// Does a condition hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// It does.
    Yes,
    /// Something was used up first.
    NotDecided(Option<Spent>),
    /// It does not.
    No,
}

/// What is asked of a history.
#[derive(Clone, Debug)]
pub struct CausalOptions {
    /// What a violation violates; CC is part of each, and the rest is noted.
    pub judged: Vec<CausalModel>,
    /// Is each key an object by itself, so that nothing follows from one to another?
    pub per_key: bool,
}

/// The answers of some keys.
struct Part {
    findings: Findings,
    /// Of CC, CCv and CM.
    holds: [Holds; 3],
}

/// Of CM, how many steps are taken unless it is asked for: seconds.
const UNASKED: u64 = 4_000_000_000;

/// Checks all keys together, or each by itself in parallel.
pub(super) fn check(
    history: &History,
    all: &Accesses,
    initial: Val,
    options: &CausalOptions,
    budget: &Budget,
    examples: usize,
) -> Findings {
    let teller = Teller { history, accesses: all };
    let decide = |own: &[Access]| {
        let mut search = Search { teller, options, budget, findings: Findings::new(examples), holds: [Holds::Yes; 3] };
        search.run(own, initial);
        Part { findings: search.findings, holds: search.holds }
    };
    let parts: Vec<Part> = if options.per_key { all.each_key(|_, own| decide(own)) } else { vec![decide(&all.list)] };
    let mut whole = Findings::new(examples);
    let mut holds = [Holds::Yes; 3];
    for part in parts {
        let decided = part.findings.is_invalid() || !matches!(part.findings.why(), Some(Why::Other(_) | Why::Spent(_)));
        whole.coverage.keys += 1;
        whole.coverage.keys_decided += u64::from(decided);
        whole.merge(part.findings);
        (0..3).for_each(|i| holds[i] = holds[i].max(part.holds[i]));
    }
    let ambiguous = whole.count("ambiguous-read") > 0;
    for (model, holds) in [CausalModel::Cc, CausalModel::Ccv, CausalModel::Cm].into_iter().zip(holds) {
        whole.fact(model.name(), Fact::Text(in_words(holds, ambiguous)));
    }
    whole
}

fn in_words(holds: Holds, ambiguous: bool) -> String {
    match holds {
        Holds::Yes if ambiguous => "not refuted".into(),
        Holds::Yes => "holds".into(),
        Holds::No => "violated".into(),
        Holds::NotDecided(Some(spent)) => format!("not decided: {spent}"),
        Holds::NotDecided(None) => "not decided: it would take long, --causal cm asks for it".into(),
    }
}

/// A pair of writes of one key: `knows` has `first` in its past and returns `second`, whose past has not.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    first: u32,
    second: u32,
    knows: u32,
}

struct Search<'a> {
    teller: Teller<'a>,
    options: &'a CausalOptions,
    budget: &'a Budget,
    findings: Findings,
    holds: [Holds; 3],
}

impl Search<'_> {
    fn weight(&self, model: CausalModel) -> Weight {
        let asked = model == CausalModel::Cc || self.options.judged.contains(&model);
        if asked { Weight::Violation } else { Weight::Note }
    }

    fn violated(&mut self, from: CausalModel) {
        self.holds[from as usize] = Holds::No;
        if from == CausalModel::Cc {
            self.holds = [Holds::No; 3];
        }
    }

    fn spent(&mut self, from: CausalModel, spent: Spent) {
        let models = [CausalModel::Cc, CausalModel::Ccv, CausalModel::Cm];
        for model in models.into_iter().filter(|m| from == CausalModel::Cc || *m == from) {
            let holds = &mut self.holds[model as usize];
            *holds = (*holds).max(Holds::NotDecided(Some(spent)));
            if self.weight(model) == Weight::Violation {
                self.findings.undecided(Why::Spent(spent));
            }
        }
    }

    fn run(&mut self, own: &[Access], initial: Val) {
        let (graph, odd) = Graph::build(own, initial);
        self.teller.odd(&odd, &mut self.findings);
        if self.findings.is_invalid() {
            self.violated(CausalModel::Cc);
        }
        let beside = Beside::nothing(&graph);
        let sweep = Sweep::new(&graph, &beside);
        let stuck = sweep.stuck();
        for cycle in causal_cycles(&graph, &stuck) {
            self.violated(CausalModel::Cc);
            let teller = self.teller;
            self.findings.violation("CyclicCO", || {
                teller.example(&graph, &cycle, |path| format!("causal order is circular: {path}"))
            });
        }
        let writers = Writers::of(&graph);
        let pasts = match self.hidden(&graph, &sweep, &writers) {
            Ok(pasts) => pasts,
            Err(spent) => return self.spent(CausalModel::Cc, spent),
        };
        if let Err(spent) = self.circles(&graph, &sweep, &pasts.hidden) {
            return self.spent(CausalModel::Cc, spent);
        }
        if self.holds[0] == Holds::Yes {
            self.causal_memory(&graph, &writers, &pasts);
        }
    }

    /// One sweep: reads of the initial value that know of a write, and pairs of writes whose order a read tells.
    fn hidden(&mut self, graph: &Graph<'_>, sweep: &Sweep<'_>, writers: &Writers) -> Result<Pasts, Spent> {
        let mut found: Map<(u32, u32, u32), u32> = Map::default();
        let mut ends: Map<u32, Vec<u32>> = Map::default();
        let mut bad = Vec::new();
        let mut reads_back = vec![false; graph.lanes()];
        sweep.clocks(self.budget, |known| {
            let (read, lane) = (known.node, graph.lane[known.node as usize]);
            match (graph.source[read as usize], known.source) {
                (INITIAL, _) => bad.extend(writers.first_known(graph, read, known.clock).map(|write| (write, read))),
                (second, Some(source)) if second < INITIAL => {
                    writers.known_beyond(graph, read, known.clock, source, |first| {
                        reads_back[lane as usize] = true;
                        found.entry((lane, first, second)).or_insert(read);
                    });
                }
                _ => {}
            }
            if reads_back[lane as usize] && graph.starts[lane as usize + 1] == read + 1 {
                let mut past = known.clock.to_vec();
                let source = known.source.unwrap_or(&[]);
                past.iter_mut().zip(source).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
                ends.insert(lane, past);
            }
        })?;
        for (write, read) in bad {
            self.violated(CausalModel::Cc);
            let teller = self.teller;
            self.findings.violation("WriteCOInitRead", || {
                let path = path(graph, write, read, &[]).unwrap_or_default();
                teller
                    .example(graph, &path, |path| format!("the initial value is read after a write was known: {path}"))
            });
        }
        let mut hidden: Vec<Hidden> =
            found.into_iter().map(|((_, first, second), knows)| Hidden { first, second, knows }).collect();
        hidden.sort_unstable_by_key(|h| (graph.op(h.knows), h.knows, h.first, h.second));
        Ok(Pasts { hidden, ends })
    }

    /// Which circles do these pairs close with causal order?
    fn circles(&mut self, graph: &Graph<'_>, sweep: &Sweep<'_>, hidden: &[Hidden]) -> Result<(), Spent> {
        // Circles of causal order alone were told already.
        if hidden.is_empty() {
            return Ok(());
        }
        let mut left = hidden.to_vec();
        let components = components(graph, &sweep.order, &left);
        let on_circle = |h: &Hidden| components.same(h.first, h.second);
        if !left.iter().any(on_circle) {
            return Ok(());
        }
        // Which of them follow causally what they hide?
        let mut asked: Map<u32, Vec<u32>> = Map::default();
        for (i, h) in left.iter().enumerate().filter(|(_, h)| on_circle(h)) {
            asked.entry(h.first).or_default().push(i as u32);
        }
        let mut overwritten = vec![false; left.len()];
        sweep.clocks(self.budget, |known| {
            for &i in asked.get(&known.node).into_iter().flatten() {
                let old = left[i as usize].second as usize;
                overwritten[i as usize] = known.clock[graph.lane[old] as usize] >= graph.place[old];
            }
        })?;
        let teller = self.teller;
        for h in left.iter().zip(&overwritten).filter(|(_, over)| **over).map(|(h, _)| *h) {
            self.violated(CausalModel::Cc);
            self.findings.violation("WriteCORead", || {
                let known = path(graph, h.first, h.knows, &[]).unwrap_or_default();
                let over = path(graph, h.second, h.first, &[]).unwrap_or_default();
                let all: Vec<Hop> = over.iter().chain(&known).copied().collect();
                let reads = teller.node(graph, h.knows);
                let (over, known) = (teller.path(graph, &over), teller.path(graph, &known));
                let text = format!("{reads}, which it knows to be overwritten: {over}; and {known}");
                Example { text, ..teller.example(graph, &all, |_| String::new()) }
            });
        }
        let mut i = 0;
        left.retain(|_| {
            i += 1;
            !overwritten[i - 1]
        });
        for cycle in conflict_cycles(graph, &sweep.order, &left) {
            self.violated(CausalModel::Ccv);
            let weight = self.weight(CausalModel::Ccv);
            self.findings.add("CyclicCF", weight, || {
                teller.example(graph, &cycle, |path| format!("causal and conflict order are circular: {path}"))
            });
        }
        Ok(())
    }

    /// Closes each session's happened-before. Sessions that never returned a write against causal order need none.
    fn causal_memory(&mut self, graph: &Graph<'_>, writers: &Writers, pasts: &Pasts) {
        let asked = self.weight(CausalModel::Cm) == Weight::Violation;
        let mut work = 0u64;
        let mut lanes: Vec<u32> = pasts.ends.keys().copied().collect();
        lanes.sort_unstable();
        for lane in lanes {
            let own: Vec<Hidden> =
                pasts.hidden.iter().copied().filter(|h| graph.lane[h.knows as usize] == lane).collect();
            let ends = writers.ends(graph, lane, &pasts.ends[&lane]);
            let mut session = Session { graph, writers, lane, beside: Beside { ends, edges: Vec::new() }, hidden: own };
            loop {
                work += graph.len() as u64 * graph.lanes() as u64;
                if !asked && work > UNASKED {
                    self.holds[2] = self.holds[2].max(Holds::NotDecided(None));
                    return;
                }
                match session.round(self.budget) {
                    Err(spent) => return self.spent(CausalModel::Cm, spent),
                    Ok(Round::Closed) => break,
                    Ok(Round::More) => {}
                    Ok(Round::Bad(kind, path)) => {
                        self.violated(CausalModel::Cm);
                        let (weight, teller) = (self.weight(CausalModel::Cm), self.teller);
                        self.findings.add(kind, weight, || {
                            teller.example(graph, &path, |path| match kind {
                                "CyclicHB" => format!("what one session sees is circular: {path}"),
                                _ => format!("the initial value is read after a write that happened before: {path}"),
                            })
                        });
                        break;
                    }
                }
            }
        }
    }
}

/// What one sweep found.
struct Pasts {
    hidden: Vec<Hidden>,
    /// What the last operation knows, of lanes with such pairs.
    ends: Map<u32, Vec<u32>>,
}

/// A session whose happened-before is being closed.
struct Session<'a> {
    graph: &'a Graph<'a>,
    writers: &'a Writers,
    lane: u32,
    beside: Beside,
    hidden: Vec<Hidden>,
}

enum Round {
    Closed,
    More,
    Bad(&'static str, Vec<Hop>),
}

impl Session<'_> {
    /// One sweep over what the session knows, with all pairs so far: are there more?
    fn round(&mut self, budget: &Budget) -> Result<Round, Spent> {
        let graph = self.graph;
        self.beside.edges = self.hidden.iter().map(|h| (h.first, h.second)).collect();
        self.beside.edges.sort_unstable();
        self.beside.edges.dedup();
        let sweep = Sweep::new(graph, &self.beside);
        let stuck = sweep.stuck();
        if !stuck.is_empty() {
            let cycle = conflict_cycles(graph, &stuck, &self.hidden).into_iter().next();
            return Ok(Round::Bad("CyclicHB", cycle.unwrap_or_default()));
        }
        let known_pairs: Map<(u32, u32), ()> = self.beside.edges.iter().map(|&pair| (pair, ())).collect();
        let (mut more, mut bad) = (Vec::new(), None);
        sweep.clocks(budget, |known| {
            let read = known.node;
            if graph.lane[read as usize] != self.lane {
                return;
            }
            match (graph.source[read as usize], known.source) {
                (INITIAL, _) if bad.is_none() => {
                    bad = self.writers.first_known(graph, read, known.clock).map(|write| (write, read));
                }
                (second, Some(source)) if second < INITIAL => {
                    self.writers.known_beyond(graph, read, known.clock, source, |first| {
                        if !known_pairs.contains_key(&(first, second)) {
                            more.push(Hidden { first, second, knows: read });
                        }
                    });
                }
                _ => {}
            }
        })?;
        if let Some((write, read)) = bad {
            let path = path(graph, write, read, &self.hidden).unwrap_or_default();
            return Ok(Round::Bad("WriteHBInitRead", path));
        }
        let round = if more.is_empty() { Round::Closed } else { Round::More };
        self.hidden.extend(more);
        Ok(round)
    }
}

/// The writes of each key by lane.
struct Writers {
    first_key: u32,
    /// Where the runs of each key begin, from the first on.
    starts: Vec<u32>,
    /// Lane, and where its writes of the key begin and end.
    runs: Vec<(u32, u32, u32)>,
    writes: Vec<u32>,
}

impl Writers {
    fn of(graph: &Graph<'_>) -> Writers {
        let nodes = (0..graph.len() as u32).filter(|&node| graph.is_write(node));
        let (first_key, keys) = graph.keys;
        // Nodes ascend by lane and within a lane, and grouping keeps their order.
        let (of_key, writes) = match keys {
            1 => {
                let writes: Vec<u32> = nodes.collect();
                (vec![0, writes.len() as u32], writes)
            }
            _ => grouped(keys, nodes.map(|node| (graph.access(node).key - first_key, node))),
        };
        let (mut starts, mut runs) = (vec![0], Vec::new());
        for key in 0..keys {
            let mut begin = of_key[key];
            for at in of_key[key]..of_key[key + 1] {
                let lane = graph.lane[writes[at as usize] as usize];
                let last = at + 1 == of_key[key + 1] || graph.lane[writes[at as usize + 1] as usize] != lane;
                if last {
                    runs.push((lane, begin, at + 1));
                    begin = at + 1;
                }
            }
            starts.push(runs.len() as u32);
        }
        Writers { first_key, starts, runs, writes }
    }

    fn runs(&self, key: u32) -> &[(u32, u32, u32)] {
        let key = (key - self.first_key) as usize;
        &self.runs[self.starts[key] as usize..self.starts[key + 1] as usize]
    }

    /// Some write of the read's key that the clock knows.
    fn first_known(&self, graph: &Graph<'_>, read: u32, clock: &[u32]) -> Option<u32> {
        let runs = self.runs(graph.access(read).key).iter();
        runs.map(|&(lane, begin, _)| (lane, self.writes[begin as usize]))
            .find(|&(lane, write)| graph.place[write as usize] <= clock[lane as usize])
            .map(|(_, write)| write)
    }

    /// Of each lane the newest write of the read's key that the clock knows, unless the write that is read knows it too.
    fn known_beyond(&self, graph: &Graph<'_>, read: u32, clock: &[u32], source: &[u32], mut tell: impl FnMut(u32)) {
        for &(lane, begin, end) in self.runs(graph.access(read).key) {
            let (known, before) = (clock[lane as usize], source[lane as usize]);
            if known <= before {
                continue;
            }
            let run = &self.writes[begin as usize..end as usize];
            let newest = run.partition_point(|&write| graph.place[write as usize] <= known).checked_sub(1);
            if let Some(write) = newest.map(|at| run[at]).filter(|&write| graph.place[write as usize] > before) {
                tell(write);
            }
        }
    }

    /// Where each lane ends for one that knows this much of it: after its last write known, or the last operation that led to a
    /// known write on a lane of its own; and its own lane at its end.
    fn ends(&self, graph: &Graph<'_>, own: u32, past: &[u32]) -> Vec<u32> {
        let mut ends: Vec<u32> = (0..graph.lanes())
            .map(|lane| {
                let nodes = graph.starts[lane]..graph.starts[lane + 1];
                if lane as u32 == own {
                    return nodes.end;
                }
                // The first node whose place is the number of known writes is the last of them.
                let places = &graph.place[nodes.start as usize..nodes.end as usize];
                match past[lane] {
                    0 => nodes.start,
                    known => nodes.start + places.partition_point(|&place| place < known) as u32 + 1,
                }
            })
            .collect();
        for lane in (0..graph.lanes()).filter(|&lane| past[lane] > 0) {
            if let Some(led_by) = graph.led_by(graph.starts[lane]) {
                let end = &mut ends[graph.lane[led_by as usize] as usize];
                *end = (*end).max(led_by + 1);
            }
        }
        ends
    }
}

/// The graph with pairs of writes beside its own edges.
struct Full<'a> {
    graph: &'a Graph<'a>,
    out_starts: Vec<u32>,
    out: Vec<u32>,
    starts: Vec<u32>,
    more: Vec<u32>,
    inside: Option<Vec<bool>>,
}

impl<'a> Full<'a> {
    fn new(graph: &'a Graph<'a>, nodes: &[u32], hidden: &[Hidden]) -> Full<'a> {
        let (starts, more) = grouped(graph.len(), hidden.iter().map(|h| (h.first, h.second)));
        let (out_starts, out) = graph.forward();
        let inside = (nodes.len() < graph.len()).then(|| {
            let mut inside = vec![false; graph.len()];
            nodes.iter().for_each(|&node| inside[node as usize] = true);
            inside
        });
        Full { graph, out_starts, out, starts, more, inside }
    }
}

impl Walk for Full<'_> {
    fn nodes(&self) -> usize {
        self.graph.len()
    }

    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        let out = &self.out[self.out_starts[node as usize] as usize..self.out_starts[node as usize + 1] as usize];
        let more = (self.starts[node as usize], self.starts[node as usize + 1]);
        loop {
            let at = *cursor as usize;
            *cursor += 1;
            let to = match at {
                0 => match self.graph.next(node) {
                    Some(next) => next,
                    None => continue,
                },
                at if at <= out.len() => out[at - 1],
                at => *self.more[more.0 as usize..more.1 as usize].get(at - 1 - out.len())?,
            };
            if self.inside.as_ref().is_none_or(|inside| inside[to as usize]) {
                return Some(to);
            }
        }
    }
}

fn components(graph: &Graph<'_>, nodes: &[u32], hidden: &[Hidden]) -> Components {
    Components::of(&Full::new(graph, nodes, hidden), nodes.iter().copied())
}

/// A circle of causal order for each set of nodes among these that lie on circles with each other.
pub(super) fn causal_cycles(graph: &Graph<'_>, nodes: &[u32]) -> Vec<Vec<Hop>> {
    conflict_cycles(graph, nodes, &[])
}

fn conflict_cycles(graph: &Graph<'_>, nodes: &[u32], hidden: &[Hidden]) -> Vec<Vec<Hop>> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let components = components(graph, nodes, hidden);
    let (grouped_nodes, starts) = components.groups();
    let mut cycles = Vec::new();
    for pair in starts.windows(2) {
        let group = &grouped_nodes[pair[0] as usize..pair[1] as usize];
        if group.len() < 2 {
            continue;
        }
        // The circle begins at its earliest operation.
        let begin = group.iter().copied().min_by_key(|&n| (graph.op(n), n)).unwrap_or(group[0]);
        cycles.extend(search(graph, begin, begin, hidden, |node| components.same(node, begin)));
    }
    cycles
}

/// A shortest way from one node to another along causal order and these pairs.
fn path(graph: &Graph<'_>, from: u32, to: u32, hidden: &[Hidden]) -> Option<Vec<Hop>> {
    search(graph, from, to, hidden, |_| true)
}

/// Breadth first, backward; from a node to itself a circle.
fn search(graph: &Graph<'_>, from: u32, to: u32, hidden: &[Hidden], inside: impl Fn(u32) -> bool) -> Option<Vec<Hop>> {
    let mut into: Map<u32, Vec<Hidden>> = Map::default();
    hidden.iter().for_each(|h| into.entry(h.second).or_default().push(*h));
    let mut next: Map<u32, Hop> = Map::default();
    let mut queue = VecDeque::from([to]);
    while let Some(node) = queue.pop_front() {
        let session = graph.before(node).into_iter().chain(graph.led_by(node)).map(|from| (from, How::Session));
        let reads = graph.writer(node).into_iter().map(|from| (from, How::Reads));
        let hides = into.get(&node).into_iter().flatten().map(|h| (h.first, How::Hides(h.knows)));
        for (before, how) in session.chain(reads).chain(hides) {
            if before != from && (next.contains_key(&before) || before == to || !inside(before)) {
                continue;
            }
            next.insert(before, Hop { from: before, to: node, how });
            if before == from {
                let mut hops = Vec::new();
                let mut at = from;
                loop {
                    let hop = next[&at];
                    hops.push(hop);
                    at = hop.to;
                    if at == to {
                        return Some(hops);
                    }
                }
            }
            queue.push_back(before);
        }
    }
    None
}
