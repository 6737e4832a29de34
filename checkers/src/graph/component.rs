//! Which nodes lie on cycles with each other?
//!
//! Strongly connected components by Pearce's form of Tarjan's algorithm ("A space-efficient algorithm for finding strongly
//! connected components", 2016): one word a node besides an explicit stack. Components come out numbered in topological
//! order. O(nodes + edges), no recursion.

/// Nodes and what they point to.
pub trait Walk {
    /// Number of nodes.
    fn nodes(&self) -> usize;

    /// The next node that one points to; the cursor starts at 0 and is the walk's own.
    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32>;
}

/// Components by node.
#[derive(Debug)]
pub struct Components {
    label: Vec<u32>,
    count: u32,
}

const UNSEEN: u32 = 0;

impl Components {
    /// Of the nodes that can be reached from the roots.
    pub fn of<W: Walk>(walk: &W, roots: impl Iterator<Item = u32>) -> Components {
        let mut search = Search { label: vec![UNSEEN; walk.nodes()], index: 1, count: 0, pending: Vec::new() };
        let mut frames: Vec<Frame> = Vec::new();
        for root in roots {
            if search.label[root as usize] == UNSEEN {
                search.from(walk, root, &mut frames);
            }
        }
        Components { label: search.label, count: search.count }
    }

    /// Number of components.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// No component?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The component of a node, if it was reached: along edges between components numbers ascend.
    #[inline]
    pub fn get(&self, node: u32) -> Option<u32> {
        let label = self.label[node as usize];
        (label != UNSEEN).then(|| label - (u32::MAX - self.count))
    }

    /// Are both in the same component?
    #[inline]
    pub fn same(&self, a: u32, b: u32) -> bool {
        self.label[a as usize] == self.label[b as usize] && self.label[a as usize] != UNSEEN
    }

    /// The nodes reached, grouped by component, in topological order; and where each component begins.
    pub fn groups(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0u32; self.len() + 2];
        for node in 0..self.label.len() as u32 {
            if let Some(c) = self.get(node) {
                starts[c as usize + 2] += 1;
            }
        }
        for c in 2..starts.len() {
            starts[c] += starts[c - 1];
        }
        let mut nodes = vec![0u32; starts.last().map_or(0, |&n| n as usize)];
        for node in 0..self.label.len() as u32 {
            if let Some(c) = self.get(node) {
                let at = &mut starts[c as usize + 1];
                nodes[*at as usize] = node;
                *at += 1;
            }
        }
        starts.pop();
        (nodes, starts)
    }
}

struct Frame {
    node: u32,
    cursor: u32,
    is_root: bool,
}

/// Labels are indices of visits while a node is open, which count up from 1, and components once it is closed, which count
/// down from the largest number: a closed node never looks older than an open one.
struct Search {
    label: Vec<u32>,
    index: u32,
    count: u32,
    pending: Vec<u32>,
}

impl Search {
    fn open(&mut self, node: u32) -> Frame {
        self.label[node as usize] = self.index;
        self.index += 1;
        Frame { node, cursor: 0, is_root: true }
    }

    fn from<W: Walk>(&mut self, walk: &W, root: u32, frames: &mut Vec<Frame>) {
        frames.push(self.open(root));
        while let Some(frame) = frames.last_mut() {
            match walk.next(frame.node, &mut frame.cursor) {
                Some(to) if self.label[to as usize] == UNSEEN => {
                    let frame = self.open(to);
                    frames.push(frame);
                }
                Some(to) => self.lower(frame, to),
                None => {
                    let Some(done) = frames.pop() else { return };
                    self.close(&done);
                    if let Some(parent) = frames.last_mut() {
                        self.lower(parent, done.node);
                    }
                }
            }
        }
    }

    #[inline]
    fn lower(&mut self, frame: &mut Frame, to: u32) {
        if self.label[to as usize] < self.label[frame.node as usize] {
            self.label[frame.node as usize] = self.label[to as usize];
            frame.is_root = false;
        }
    }

    fn close(&mut self, frame: &Frame) {
        if !frame.is_root {
            self.pending.push(frame.node);
            return;
        }
        let component = u32::MAX - 1 - self.count;
        let own = self.label[frame.node as usize];
        self.index -= 1;
        while let Some(&member) = self.pending.last()
            && self.label[member as usize] >= own
        {
            self.pending.pop();
            self.label[member as usize] = component;
            self.index -= 1;
        }
        self.label[frame.node as usize] = component;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Rows(Vec<Vec<u32>>);

    impl Walk for Rows {
        fn nodes(&self) -> usize {
            self.0.len()
        }
        fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
            *cursor += 1;
            self.0[node as usize].get(*cursor as usize - 1).copied()
        }
    }

    fn reach(rows: &[Vec<u32>]) -> Vec<Vec<bool>> {
        let n = rows.len();
        let mut r = vec![vec![false; n]; n];
        for (a, to) in rows.iter().enumerate() {
            r[a][a] = true;
            to.iter().for_each(|&b| r[a][b as usize] = true);
        }
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    r[i][j] |= r[i][k] && r[k][j];
                }
            }
        }
        r
    }

    proptest! {
        #[test]
        fn two_nodes_share_a_component_when_each_reaches_the_other_and_numbers_ascend_along_edges(
            edges in proptest::collection::vec((0u32..12, 0u32..12), 0..40)
        ) {
            let mut rows = vec![Vec::new(); 12];
            edges.iter().for_each(|&(a, b)| rows[a as usize].push(b));
            let r = reach(&rows);
            let walk = Rows(rows);
            let c = Components::of(&walk, 0..12);
            for a in 0..12u32 {
                for b in 0..12u32 {
                    let mutual = r[a as usize][b as usize] && r[b as usize][a as usize];
                    prop_assert_eq!(c.same(a, b), mutual);
                    if r[a as usize][b as usize] {
                        prop_assert!(c.get(a) <= c.get(b));
                    }
                }
            }
            let (nodes, starts) = c.groups();
            prop_assert_eq!(nodes.len(), 12);
            prop_assert_eq!(starts.len(), c.len() + 1);
        }
    }

    #[test]
    fn a_chain_of_a_million_nodes_needs_no_call_stack() {
        struct Chain;
        impl Walk for Chain {
            fn nodes(&self) -> usize {
                1_000_000
            }
            fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
                *cursor += 1;
                (*cursor == 1).then_some((node + 1) % 1_000_000)
            }
        }
        assert_eq!(Components::of(&Chain, 0..1).len(), 1);
    }
}
