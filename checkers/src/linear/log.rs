//! In which order did a configuration take its operations?
//!
//! Every configuration names the last node of a chain; a node is an operation and the node before it, eight bytes. Chains
//! share their beginnings. A node's number is always greater than its predecessor's, so one backward pass marks what the
//! living chains use and one forward pass moves it together; done whenever the log has doubled, this costs a constant per
//! node. What remains is the one long common past, plus the few last operations of each configuration.

/// No node: the beginning.
pub(super) const ROOT: u32 = u32::MAX;

const ABSORBED: u32 = 1 << 31;

/// Operations that one log can tell apart.
pub(super) const MAX_OPS: usize = ABSORBED as usize - 1;

/// How an operation entered an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It took effect here.
    Effect(u32),
    /// It took effect just before the last overwriting operation that did, and was overwritten at once.
    Absorbed(u32),
}

/// All chains.
#[derive(Debug, Default)]
pub(super) struct Log {
    nodes: Vec<(u32, u32)>,
    live: usize,
}

impl Log {
    /// A chain longer by one; none when the log is full.
    pub(super) fn push(&mut self, entry: Entry, before: u32) -> Option<u32> {
        let code = match entry {
            Entry::Effect(op) => op,
            Entry::Absorbed(op) => op | ABSORBED,
        };
        let id = u32::try_from(self.nodes.len()).ok().filter(|&id| id != ROOT)?;
        self.nodes.push((code, before));
        Some(id)
    }

    /// The chain that ends there, from its beginning.
    pub(super) fn chain(&self, mut tail: u32) -> Vec<Entry> {
        let mut chain = Vec::new();
        while tail != ROOT {
            let (code, before) = self.nodes[tail as usize];
            chain.push(if code & ABSORBED == 0 { Entry::Effect(code) } else { Entry::Absorbed(code & !ABSORBED) });
            tail = before;
        }
        chain.reverse();
        chain
    }

    /// Is it time to collect?
    pub(super) fn is_due(&self) -> bool {
        self.nodes.len() > 2 * self.live + (1 << 16)
    }

    /// Forgets what no tail leads to; renumbers the tails.
    pub(super) fn collect(&mut self, tails: &mut [u32]) {
        let mut new_id = vec![ROOT; self.nodes.len()];
        for &tail in tails.iter() {
            let mut at = tail;
            while at != ROOT && new_id[at as usize] == ROOT {
                new_id[at as usize] = 0;
                at = self.nodes[at as usize].1;
            }
        }
        let mut kept = 0;
        for i in 0..self.nodes.len() {
            if new_id[i] == ROOT {
                continue;
            }
            let (code, before) = self.nodes[i];
            let before = if before == ROOT { ROOT } else { new_id[before as usize] };
            self.nodes[kept] = (code, before);
            new_id[i] = kept as u32;
            kept += 1;
        }
        self.nodes.truncate(kept);
        self.live = kept;
        for tail in tails.iter_mut().filter(|t| **t != ROOT) {
            *tail = new_id[*tail as usize];
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.nodes.capacity() as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collecting_keeps_living_chains_and_only_those() {
        let mut log = Log::default();
        let push = |log: &mut Log, op, before| log.push(Entry::Effect(op), before).unwrap();
        let a = push(&mut log, 10, ROOT);
        let dead = push(&mut log, 11, a);
        push(&mut log, 12, dead);
        let c = push(&mut log, 13, a);
        let d = log.push(Entry::Absorbed(14), c).unwrap();
        let mut tails = [d, a, ROOT];
        log.collect(&mut tails);
        assert_eq!(log.nodes.len(), 3);
        assert_eq!(log.chain(tails[0]), [Entry::Effect(10), Entry::Effect(13), Entry::Absorbed(14)]);
        assert_eq!(log.chain(tails[1]), [Entry::Effect(10)]);
        assert_eq!(log.chain(tails[2]), []);
    }
}
