//! Which kinds of cycles does a component hold, and what is a short one of each?
//!
//! A component is cut out of the graph with its own numbering. Whether it holds a cycle of a kind is decided exactly, and only
//! then a short one is looked for:
//!
//! - a cycle over some relations with at least one edge of one of them: an edge of it within a component of those relations;
//! - a cycle with exactly one such edge: an edge whose source its target reaches over the others. Candidates are only edges that
//!   lead backward in a topological order of the others; 64 of them are followed at once;
//! - a closed walk with such edges, no two adjacent: a component of the product with "the last edge was one";
//! - a closed walk in which such edges only follow ones of another relation: likewise, with "the last edge was of that one".
//!
//! All but the second are linear; that one is O(edges · candidates / 64) at worst, within the candidates' reach.
//! Examples come from breadth-first searches, in which what leads through nodes that are no transactions costs one step.

use elench_formats::sorting::{pair, sort_by, sort_by_wide};
use std::collections::VecDeque;

use super::build::{Graph, pack, unpack};
use super::component::{Components, Walk};
use super::{Rel, Rels};
use crate::budget::{Budget, Spent};

const NONE: u32 = u32::MAX;

/// Searches for examples that are tried before the shortest cycle so far is taken.
const TRIES: usize = 48;

/// A step of a cycle, from one transaction to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The one that comes before.
    pub from: u32,
    /// The one that comes after.
    pub to: u32,
    /// Why.
    pub rel: Rel,
}

/// A strongly connected part of a graph, by itself.
#[derive(Clone, Debug)]
pub struct Part {
    /// Transactions by node; none for nodes that are no transactions.
    txns: Vec<u32>,
    offsets: Vec<u32>,
    targets: Vec<u32>,
}

/// Cuts parts out of a graph.
#[derive(Debug)]
pub struct Cutter {
    local: Vec<u32>,
}

impl Cutter {
    /// For a graph.
    pub fn new(graph: &Graph<'_>) -> Cutter {
        Cutter { local: vec![NONE; graph.nodes()] }
    }

    /// What lies between these nodes. O(their edges).
    pub fn cut(&mut self, graph: &Graph<'_>, nodes: &[u32]) -> Part {
        nodes.iter().enumerate().for_each(|(i, &n)| self.local[n as usize] = i as u32);
        let mut offsets = vec![0u32];
        let mut targets = Vec::new();
        for &n in nodes {
            let mut cursor = 0;
            while let Some((to, rel)) = graph.step(n, &mut cursor) {
                if self.local[to as usize] != NONE {
                    targets.push(pack(self.local[to as usize], rel));
                }
            }
            offsets.push(targets.len() as u32);
        }
        nodes.iter().for_each(|&n| self.local[n as usize] = NONE);
        let txns = nodes.iter().map(|&n| if n < graph.txns() { n } else { NONE }).collect();
        Part { txns, offsets, targets }
    }
}

/// Components of a part under some relations.
struct Under<'a> {
    part: &'a Part,
    rels: Rels,
}

impl Walk for Under<'_> {
    fn nodes(&self) -> usize {
        self.part.len()
    }

    #[inline]
    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        let row = self.part.row(node);
        while let Some(&word) = row.get(*cursor as usize) {
            *cursor += 1;
            let (to, rel) = unpack(word);
            if self.rels.has(rel) {
                return Some(to);
            }
        }
        None
    }
}

/// After what an edge apart may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// After any edge that is not apart itself.
    NotAdjacent,
    /// Only after an edge of this relation.
    After(Rel),
}

/// The product of a part with what the last edge was, under a rule for edges apart.
struct Apart<'a> {
    part: &'a Part,
    rels: Rels,
    apart: Rel,
    rule: Rule,
}

impl Apart<'_> {
    /// From which state edges apart leave.
    fn leaves(&self) -> u32 {
        u32::from(self.rule != Rule::NotAdjacent)
    }

    /// Where an edge leads from such a state.
    #[inline]
    fn follow(&self, flag: u32, word: u32) -> Option<u32> {
        let (to, rel) = unpack(word);
        if rel == self.apart {
            (flag == self.leaves()).then_some(2 * to + 1 - flag)
        } else if rel == Rel::Pass {
            Some(2 * to + flag)
        } else {
            self.rels.has(rel).then_some(2 * to + u32::from(self.rule == Rule::After(rel)))
        }
    }
}

impl Walk for Apart<'_> {
    fn nodes(&self) -> usize {
        2 * self.part.len()
    }

    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        let row = self.part.row(node / 2);
        while let Some(&word) = row.get(*cursor as usize) {
            *cursor += 1;
            if let Some(to) = self.follow(node & 1, word) {
                return Some(to);
            }
        }
        None
    }
}

impl Part {
    /// Of nodes with their transactions, none for those that are no transactions, and edges between nodes by number.
    pub fn new(txns: Vec<u32>, edges: &[(u32, u32, Rel)]) -> Part {
        let mut offsets = vec![0u32; txns.len() + 2];
        edges.iter().for_each(|&(from, _, _)| offsets[from as usize + 2] += 1);
        for i in 2..offsets.len() {
            offsets[i] += offsets[i - 1];
        }
        let mut targets = vec![0u32; edges.len()];
        for &(from, to, rel) in edges {
            let at = &mut offsets[from as usize + 1];
            targets[*at as usize] = pack(to, rel);
            *at += 1;
        }
        offsets.pop();
        Part { txns, offsets, targets }
    }

    /// With more edges, between transactions. O(size · log).
    #[must_use]
    pub fn and(&self, more: &[(u32, u32, Rel)]) -> Part {
        let mut nodes: Vec<(u32, u32)> = self.nodes().map(|n| (self.txns[n as usize], n)).collect();
        nodes.sort_unstable();
        let node = |txn: u32| nodes.binary_search_by_key(&txn, |n| n.0).ok().map(|i| nodes[i].1);
        let mut edges: Vec<(u32, u32, Rel)> = self.edges().collect();
        edges.extend(more.iter().filter_map(|&(a, b, rel)| Some((node(a)?, node(b)?, rel))));
        Part::new(self.txns.clone(), &edges)
    }

    /// Without the edges of some transactions. O(size).
    #[must_use]
    pub fn without(&self, which: impl Fn(u32) -> bool) -> Part {
        let stays = |node: u32| self.txn(node).is_none_or(|txn| !which(txn));
        let edges: Vec<(u32, u32, Rel)> = self.edges().filter(|&(from, to, _)| stays(from) && stays(to)).collect();
        Part::new(self.txns.clone(), &edges)
    }

    /// Its parts that are strongly connected under some relations, and hold only edges of these. O(size).
    pub fn under(&self, rels: Rels) -> Vec<Part> {
        let components = self.components(rels);
        let (nodes, starts) = components.groups();
        let mut local = vec![NONE; self.len()];
        let mut parts = Vec::new();
        for bounds in starts.windows(2).filter(|w| w[1] - w[0] > 1) {
            let own = &nodes[bounds[0] as usize..bounds[1] as usize];
            own.iter().enumerate().for_each(|(i, &n)| local[n as usize] = i as u32);
            let inside = own.iter().flat_map(|&n| self.row(n).iter().map(move |&word| (n, unpack(word))));
            let edges: Vec<(u32, u32, Rel)> = inside
                .filter(|&(from, (to, rel))| rels.has(rel) && components.same(from, to))
                .map(|(from, (to, rel))| (local[from as usize], local[to as usize], rel))
                .collect();
            parts.push(Part::new(own.iter().map(|&n| self.txns[n as usize]).collect(), &edges));
        }
        parts
    }

    /// Some transactions split in two, so that who enters one leaves it only by an edge of a relation that occurs nowhere else.
    #[must_use]
    pub fn split(&self, which: impl Fn(u32) -> bool, by: Rel) -> Part {
        let mut txns = self.txns.clone();
        let mut entry: Vec<u32> = self.nodes().collect();
        let mut edges = Vec::with_capacity(self.targets.len());
        for node in self.nodes().filter(|&n| self.txns[n as usize] != NONE && which(self.txns[n as usize])) {
            entry[node as usize] = txns.len() as u32;
            edges.push((txns.len() as u32, node, by));
            txns.push(self.txns[node as usize]);
        }
        edges.extend(self.edges().map(|(from, to, rel)| (from, entry[to as usize], rel)));
        Part::new(txns, &edges)
    }

    /// The transactions, ascending, each once.
    pub fn txns(&self) -> Vec<u32> {
        let mut txns: Vec<u32> = self.txns.iter().copied().filter(|&t| t != NONE).collect();
        txns.sort_unstable();
        txns.dedup();
        txns
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// No node?
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty()
    }

    /// Number of transactions.
    pub fn txn_count(&self) -> usize {
        self.txns.iter().filter(|&&t| t != NONE).count()
    }

    /// The first transactions of it.
    pub fn some_txns(&self, count: usize) -> Vec<u32> {
        self.txns.iter().copied().filter(|&t| t != NONE).take(count).collect()
    }

    #[inline]
    fn row(&self, node: u32) -> &[u32] {
        &self.targets[self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize]
    }

    fn nodes(&self) -> std::ops::Range<u32> {
        0..self.len() as u32
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (u32, u32, Rel)> + '_ {
        self.nodes().flat_map(move |from| {
            self.row(from).iter().map(move |&word| {
                let (to, rel) = unpack(word);
                (from, to, rel)
            })
        })
    }

    /// Does any edge have this relation?
    pub fn has(&self, rel: Rel) -> bool {
        self.targets.iter().any(|&word| unpack(word).1 == rel)
    }

    /// Components under some relations.
    pub fn components(&self, rels: Rels) -> Components {
        Components::of(&Under { part: self, rels }, self.nodes())
    }

    /// A short cycle within one component of these relations, with at least one edge of one of them, for each component that holds one.
    ///
    /// # Errors
    /// When the budget was used up.
    pub fn with(&self, rels: Rels, must: Rel, budget: &Budget) -> Result<Vec<Vec<Link>>, Spent> {
        let components = self.components(rels);
        let mut search = Bfs::new(self.len());
        let inside = self.edges().filter(|&(from, to, rel)| rel == must && components.same(from, to));
        self.shortest(inside, &components, 1, budget, |from, to| {
            search.path(self, rels, from, to, |n| components.same(n, to))
        })
    }

    /// Of edges given, each with its component, the shortest cycle by component.
    fn shortest(
        &self,
        edges: impl Iterator<Item = (u32, u32, Rel)>,
        components: &Components,
        states: u32,
        budget: &Budget,
        mut path: impl FnMut(u32, u32) -> Option<Vec<(u32, Rel)>>,
    ) -> Result<Vec<Vec<Link>>, Spent> {
        let mut best: Vec<(u32, usize, Vec<Link>)> = Vec::new();
        let mut place = vec![NONE; components.len()];
        for (from, to, rel) in edges {
            let component = components.get(from).unwrap_or(0);
            if place[component as usize] == NONE {
                place[component as usize] = best.len() as u32;
                best.push((component, 0, Vec::new()));
            }
            let (_, tries, cycle) = &mut best[place[component as usize] as usize];
            if *tries >= TRIES || cycle.len() == 2 {
                continue;
            }
            *tries += 1;
            if let Some(spent) = budget.spent() {
                best.retain(|(_, _, cycle)| !cycle.is_empty());
                if best.is_empty() {
                    return Err(spent);
                }
                break;
            }
            if let Some(rest) = path(to, from) {
                let found = self.links((from, to, rel), &rest, states);
                if cycle.is_empty() || found.len() < cycle.len() {
                    *cycle = found;
                }
            }
        }
        Ok(best.into_iter().map(|(_, _, cycle)| cycle).filter(|c| !c.is_empty()).collect())
    }

    /// A short cycle with exactly one edge apart from these relations.
    ///
    /// # Errors
    /// When the budget was used up.
    pub fn single(&self, rels: Rels, apart: Rel, budget: &Budget) -> Result<Option<Vec<Link>>, Spent> {
        let components = self.components(rels);
        let rank = |n: u32| components.get(n).unwrap_or(0);
        let mut candidates: Vec<(u32, u32)> = self
            .edges()
            .filter(|&(from, to, rel)| rel == apart && rank(to) <= rank(from))
            .map(|(from, to, _)| (from, to))
            .collect();
        sort_by_wide(&mut candidates, |&(from, to)| {
            pair(u64::from(rank(from) - rank(to)), u64::from(from) << 32 | u64::from(to))
        });
        let mut search = Bfs::new(self.len());
        let mut best: Option<Vec<Link>> = None;
        let mut tries = 0;
        for (from, to) in self.closing(&components, rels, &candidates, budget)? {
            let limit = rank(from);
            if let Some(rest) = search.path(self, rels, to, from, |n| rank(n) <= limit) {
                let found = self.links((from, to, apart), &rest, 1);
                if best.as_ref().is_none_or(|b| found.len() < b.len()) {
                    best = Some(found);
                }
            }
            tries += 1;
            if tries >= TRIES || best.as_ref().is_some_and(|b| b.len() == 2) {
                break;
            }
            if let Some(spent) = budget.spent() {
                return if best.is_some() { Ok(best) } else { Err(spent) };
            }
        }
        Ok(best)
    }

    /// Those of the candidates whose source their target reaches; the first [`TRIES`] of them at least. 64 at once: a bit each goes from
    /// component to component in topological order.
    fn closing(
        &self,
        components: &Components,
        rels: Rels,
        candidates: &[(u32, u32)],
        budget: &Budget,
    ) -> Result<Vec<(u32, u32)>, Spent> {
        let mut found: Vec<(u32, u32)> = candidates.iter().copied().filter(|&(a, b)| components.same(a, b)).collect();
        if found.len() >= TRIES || candidates.is_empty() {
            return Ok(found);
        }
        let (nodes, starts) = components.groups();
        let mut reached = vec![0u64; components.len()];
        let rank = |n: u32| components.get(n).unwrap_or(0);
        let mut rest: Vec<(u32, u32)> = candidates.iter().copied().filter(|&(a, b)| !components.same(a, b)).collect();
        sort_by(&mut rest, |&(_, to)| rank(to).into());
        for block in rest.chunks(64) {
            if let Some(spent) = budget.spent() {
                return if found.is_empty() { Err(spent) } else { Ok(found) };
            }
            let first = block.iter().map(|&(_, to)| rank(to)).min().unwrap_or(0);
            let last = block.iter().map(|&(from, _)| rank(from)).max().unwrap_or(0);
            block.iter().enumerate().for_each(|(bit, &(_, to))| reached[rank(to) as usize] |= 1 << bit);
            for c in first..=last {
                let bits = reached[c as usize];
                if bits == 0 {
                    continue;
                }
                for &node in &nodes[starts[c as usize] as usize..starts[c as usize + 1] as usize] {
                    for &word in self.row(node) {
                        let (to, rel) = unpack(word);
                        let r = rank(to);
                        if rels.has(rel) && r > c && r <= last {
                            reached[r as usize] |= bits;
                        }
                    }
                }
            }
            let closes = |&(bit, &(from, _)): &(usize, &(u32, u32))| reached[rank(from) as usize] >> bit & 1 == 1;
            found.extend(block.iter().enumerate().filter(closes).map(|(_, &edge)| edge));
            reached[first as usize..=last as usize].fill(0);
            if found.len() >= TRIES {
                break;
            }
        }
        sort_by(&mut found, |&(from, to)| rank(from).abs_diff(rank(to)).into());
        Ok(found)
    }

    /// A short closed walk with edges apart, no two of which are adjacent.
    ///
    /// # Errors
    /// When the budget was used up.
    pub fn nonadjacent(&self, rels: Rels, apart: Rel, budget: &Budget) -> Result<Option<Vec<Link>>, Spent> {
        self.walk(&Apart { part: self, rels, apart, rule: Rule::NotAdjacent }, budget)
    }

    /// A short closed walk with edges apart, each of which follows an edge of another relation.
    ///
    /// # Errors
    /// When the budget was used up.
    pub fn following(&self, rels: Rels, after: Rel, apart: Rel, budget: &Budget) -> Result<Option<Vec<Link>>, Spent> {
        self.walk(&Apart { part: self, rels, apart, rule: Rule::After(after) }, budget)
    }

    fn walk(&self, product: &Apart<'_>, budget: &Budget) -> Result<Option<Vec<Link>>, Spent> {
        let components = Components::of(product, 0..product.nodes() as u32);
        let leaves = product.leaves();
        let states = |(from, to, rel)| (2 * from + leaves, 2 * to + 1 - leaves, rel);
        let edges = self.edges().filter(|&(_, _, rel)| rel == product.apart).map(states);
        let mut search = Bfs::new(product.nodes());
        let walks = self.shortest(
            edges.filter(|&(from, to, _)| components.same(from, to)),
            &components,
            2,
            budget,
            |start, goal| search.apart(product, start, goal, |n| components.same(n, goal)),
        )?;
        Ok(walks.into_iter().min_by_key(Vec::len))
    }

    /// A short closed walk with at least two edges apart, each of which follows an edge of another relation, that passes the source
    /// of one of them only once. O(edges · edges apart): none is looked for where that is more than `work`, and then nothing
    /// is known.
    ///
    /// # Errors
    /// When the budget was used up.
    pub fn several_following(
        &self,
        rels: Rels,
        (after, apart): (Rel, Rel),
        work: usize,
        budget: &Budget,
    ) -> Result<Option<Vec<Link>>, Option<Spent>> {
        let product = Apart { part: self, rels, apart, rule: Rule::After(after) };
        let components = Components::of(&product, 0..product.nodes() as u32);
        let inside = |&(from, to, rel): &(u32, u32, Rel)| rel == apart && components.same(2 * from + 1, 2 * to);
        let edges: Vec<(u32, u32, Rel)> = self.edges().filter(inside).collect();
        let mut search = Bfs::new(2 * product.nodes());
        let mut best: Option<Vec<Link>> = None;
        let size = self.targets.len() + self.len();
        for (tries, &(from, to, rel)) in edges.iter().enumerate() {
            if best.is_some() && tries >= TRIES {
                break;
            }
            if tries.saturating_mul(size) > work {
                return if best.is_some() { Ok(best) } else { Err(None) };
            }
            if let Some(spent) = budget.spent() {
                return if best.is_some() { Ok(best) } else { Err(Some(spent)) };
            }
            // A state is that of the product, and whether a further edge apart was passed.
            let goal = 2 * (2 * from + 1) + 1;
            let allowed = |state: u32| state == goal || (state / 4 != from && components.same(state / 2, 2 * to));
            let walk = search.run(2 * (2 * to), goal, allowed, |state, visit| {
                for &word in self.row(state / 4) {
                    if let Some(next) = product.follow((state / 2) & 1, word) {
                        let rel = unpack(word).1;
                        visit(2 * next + ((state & 1) | u32::from(rel == apart)), rel);
                    }
                }
            });
            if let Some(rest) = walk {
                let found = self.links((4 * from, 4 * to, rel), &rest, 4);
                if best.as_ref().is_none_or(|b| found.len() < b.len()) {
                    best = Some(found);
                }
            }
        }
        Ok(best)
    }

    /// The transaction that a node is, if it is one.
    pub(crate) fn txn(&self, node: u32) -> Option<u32> {
        Some(self.txns[node as usize]).filter(|&t| t != NONE)
    }

    /// An edge and a path back as steps between transactions; nodes are states of a product with so many to a node. Several nodes
    /// in a row may be of one transaction.
    fn links(&self, edge: (u32, u32, Rel), rest: &[(u32, Rel)], states: u32) -> Vec<Link> {
        let (mut at, mut by) = (self.txns[(edge.0 / states) as usize], edge.2);
        let mut links = Vec::new();
        for &(state, rel) in std::iter::once(&(edge.1, edge.2)).chain(rest) {
            if rel != Rel::Pass {
                by = rel;
            }
            let txn = self.txns[(state / states) as usize];
            if txn != NONE && txn != at {
                links.push(Link { from: at, to: txn, rel: by });
                at = txn;
            }
        }
        links
    }
}

/// Breadth-first searches that share their memory.
struct Bfs {
    from: Vec<u32>,
    by: Vec<Rel>,
    /// By node: `current` when it was seen, one more when its distance is known.
    round: Vec<u32>,
    current: u32,
    queue: VecDeque<u32>,
}

impl Bfs {
    fn new(nodes: usize) -> Bfs {
        Bfs {
            from: vec![NONE; nodes],
            by: vec![Rel::Pass; nodes],
            round: vec![0; nodes],
            current: 0,
            queue: VecDeque::new(),
        }
    }

    /// A shortest path, without its start.
    fn path(
        &mut self,
        part: &Part,
        rels: Rels,
        start: u32,
        goal: u32,
        allowed: impl Fn(u32) -> bool,
    ) -> Option<Vec<(u32, Rel)>> {
        self.run(start, goal, allowed, |node, visit| {
            for &word in part.row(node) {
                let (to, rel) = unpack(word);
                if rels.has(rel) {
                    visit(to, rel);
                }
            }
        })
    }

    fn apart(
        &mut self,
        product: &Apart<'_>,
        start: u32,
        goal: u32,
        allowed: impl Fn(u32) -> bool,
    ) -> Option<Vec<(u32, Rel)>> {
        self.run(start, goal, allowed, |state, visit| {
            for &word in product.part.row(state / 2) {
                if let Some(to) = product.follow(state & 1, word) {
                    visit(to, unpack(word).1);
                }
            }
        })
    }

    fn run(
        &mut self,
        start: u32,
        goal: u32,
        allowed: impl Fn(u32) -> bool,
        neighbours: impl Fn(u32, &mut dyn FnMut(u32, Rel)),
    ) -> Option<Vec<(u32, Rel)>> {
        if start == goal {
            return Some(Vec::new());
        }
        self.current += 2;
        self.queue.clear();
        self.round[start as usize] = self.current + 1;
        self.queue.push_back(start);
        while let Some(node) = self.queue.pop_front() {
            if node == goal {
                return Some(self.back(start, goal));
            }
            let Bfs { from, by, round, current, queue } = self;
            let (seen, fixed) = (*current, *current + 1);
            round[node as usize] = fixed;
            neighbours(node, &mut |to, rel| {
                let known = round[to as usize];
                if known == fixed || (known == seen && rel != Rel::Pass) || !allowed(to) {
                    return;
                }
                from[to as usize] = node;
                by[to as usize] = rel;
                if rel == Rel::Pass {
                    round[to as usize] = fixed;
                    queue.push_front(to);
                } else {
                    round[to as usize] = seen;
                    queue.push_back(to);
                }
            });
        }
        None
    }

    fn back(&self, start: u32, goal: u32) -> Vec<(u32, Rel)> {
        let mut path = Vec::new();
        let mut at = goal;
        while at != start {
            path.push((at, self.by[at as usize]));
            at = self.from[at as usize];
        }
        path.reverse();
        path
    }
}
