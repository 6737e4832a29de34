//! Which writes of a key surely come before which others, beyond what completions say?
//!
//! A write must be before another one of its key whose version was still met by one that began after the former's version existed: it
//! cannot be after that, nor between. Only pairs of writes that were open at once are told: the others are in order anyway, as none runs
//! before all that completed before it was invoked. And where commit timestamps are believed, those with an earlier one come first.
//!
//! Not all need be told: what is left out is found by the search, later. So what is kept is bounded.
//! O(writes · those open at once), at most [`OPEN`] of them. Memory: 8 bytes a pair, at most [`PAIRS`] a write, and [`SAME`]
//! more by commit timestamps.

use super::resolve::{NEVER, Resolved, Version};
use super::serial::Question;
use crate::txn::history::{NONE, Txn};

/// Open writes of a key that are looked at.
const OPEN: usize = 64;

/// Pairs that are kept of one write by real time.
const PAIRS: usize = 4;

/// Transactions of the same commit timestamp that are told of one that follows.
const SAME: usize = 64;

/// A write that is open.
#[derive(Clone, Copy)]
struct Open {
    writer: Txn,
    version: u32,
    existed: u32,
    lasted: u32,
}

/// Lists of transactions, each linked through the places of its members.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    pairs: Vec<(Txn, u32)>,
}

impl Earlier {
    /// Finds them; where a version's list begins is noted with it.
    pub(super) fn new(question: Question<'_>, resolved: &mut Resolved) -> Earlier {
        let mut earlier = Earlier::default();
        let (mut open, mut ranked) = (Vec::new(), Vec::new());
        for key in 0..resolved.initial.len() - 1 {
            // The first is the initial one.
            let versions = resolved.initial[key] as usize + 1..resolved.initial[key + 1] as usize;
            if question.keep.real_time {
                earlier.in_time(question, resolved, versions.clone(), &mut open);
            }
            if let Some(ranks) = question.ranks {
                earlier.ranked(question, ranks, resolved, versions, &mut ranked);
            }
        }
        earlier
    }

    /// Those of a list.
    pub(super) fn of(&self, first: u32) -> impl Iterator<Item = Txn> {
        let mut at = first;
        std::iter::from_fn(move || {
            let &(txn, next) = self.pairs.get(at as usize)?;
            at = next;
            Some(txn)
        })
    }

    /// One comes before who wrote a version, unless so many are known to already, or it is among these.
    fn add(&mut self, first: Txn, resolved: &mut Resolved, version: usize, most: usize) {
        let list = &mut resolved.versions[version].earlier;
        let mut known = 0;
        let mut again = false;
        for other in self.of(*list) {
            known += 1;
            again |= other == first;
        }
        if known < most && !again {
            self.pairs.push((first, *list));
            *list = self.pairs.len() as u32 - 1;
        }
    }

    /// By real time. Versions are in order of invocation of who wrote them.
    fn in_time(
        &mut self,
        question: Question<'_>,
        resolved: &mut Resolved,
        versions: std::ops::Range<usize>,
        open: &mut Vec<Open>,
    ) {
        open.clear();
        for version in versions {
            let own = resolved.versions[version];
            if own.writer == NONE || own.existed == NEVER {
                continue;
            }
            let invoked = question.clock.before[own.writer as usize];
            open.retain(|o| o.existed >= invoked);
            for its in open.iter().filter(|o| o.writer != own.writer) {
                if its.existed < own.lasted {
                    self.add(its.writer, resolved, version, PAIRS);
                }
                if own.existed < its.lasted {
                    self.add(own.writer, resolved, its.version as usize, PAIRS);
                }
            }
            if open.len() == OPEN {
                open.remove(0);
            }
            let Version { writer, existed, lasted, .. } = own;
            open.push(Open { writer, version: version as u32, existed, lasted });
        }
    }

    /// By commit timestamps: of each, those with the one before.
    fn ranked(
        &mut self,
        question: Question<'_>,
        ranks: &[u32],
        resolved: &mut Resolved,
        versions: std::ops::Range<usize>,
        ranked: &mut Vec<(u32, u32)>,
    ) {
        ranked.clear();
        let seen = |t: Txn| resolved.seen.binary_search_by_key(&t, |s| s.0).is_ok();
        let rank = |v: usize| match resolved.versions[v].writer {
            NONE => NONE,
            writer if question.txns.ok(writer) || seen(writer) => ranks[writer as usize],
            _ => NONE,
        };
        ranked.extend(versions.map(|v| (rank(v), v as u32)).filter(|r| r.0 != NONE));
        ranked.sort_unstable();
        let mut groups = ranked.chunk_by(|a, b| a.0 == b.0);
        let Some(mut last) = groups.next() else { return };
        for group in groups {
            for &(_, version) in group {
                for &(_, other) in last.iter().take(4 * SAME) {
                    self.add(resolved.versions[other as usize].writer, resolved, version as usize, PAIRS + SAME);
                }
            }
            last = group;
        }
    }
}
