//! Is there an order of all transactions that, run one after the other, gives every read what it returned?
//!
//! Deciding that is NP-complete in general (Papadimitriou, 1979). But what a database did is mostly not hard to find. One
//! [search] proposes an order, and what it proposes is believed only after it was *run* here once more, on its own: every read returned
//! what is there, and all that had to be kept was. So an order proves (strict) serializability, whatever is not
//! known of versions, and no anomaly can be found in the history by any means. That none was found proves nothing by itself; where the
//! search was led to a contradiction, that becomes a [proof](super::refute).
//!
//! O(micro-operations), and what the search takes.

use super::resolve::{Clock, NEVER, Resolved};
use super::search;
use super::timestamps::before;
use crate::budget::Budget;
use crate::txn::history::{NONE, Txn, Txns};

/// What an order must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keep {
    /// Who completed before another one was invoked comes before it.
    pub real_time: bool,
    /// The order within processes.
    pub process: bool,
}

/// An order of which transactions is looked for, and what it must keep.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub txns: &'a Txns<'a>,
    pub clock: &'a Clock,
    pub keep: Keep,
    /// Who committed before whom: writes of a key must run so.
    pub ranks: Option<&'a [u32]>,
    pub budget: &'a Budget,
}

/// What is known of an order that is looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// This is one.
    Order(Vec<Txn>),
    /// The search came to the end that there is none, which is yet to be [shown](super::refute).
    Refuted,
    /// None was found.
    Unknown,
}

/// Finds an order of all transactions that committed.
pub(super) fn order(question: Question<'_>, resolved: &mut Resolved) -> Answer {
    if resolved.unexplained {
        return Answer::Unknown;
    }
    match search::order(question, resolved) {
        Answer::Order(order) if !question.is_answered_by(resolved, &order) => Answer::Unknown,
        answer => answer,
    }
}

impl Question<'_> {
    /// Is an order one of all that committed, does it keep what it must, and does each read return what is there?
    fn is_answered_by(&self, resolved: &Resolved, order: &[Txn]) -> bool {
        let Question { txns, clock, keep, .. } = *self;
        let mut place = vec![NONE; txns.len()];
        order.iter().enumerate().for_each(|(at, &t)| place[t as usize] = at as u32);
        let has_place = |&t: &Txn| place[t as usize] != NONE;
        // As many places as transactions, and each of these has one: none has two.
        let each_once = order.len() == clock.order.len() + resolved.seen.len()
            && clock.order.iter().all(has_place)
            && resolved.seen.iter().all(|s| has_place(&s.0));
        let mut earliest = NEVER;
        let mut in_time = || {
            order.iter().rev().all(|&t| {
                let kept = clock.before[t as usize] <= earliest;
                earliest = earliest.min(clock.rank[t as usize]);
                kept
            })
        };
        let follows =
            |t: usize, previous: Txn| previous == NONE || place[t] == NONE || place[previous as usize] < place[t];
        each_once
            && (!keep.real_time || in_time())
            && (!keep.process || previous(txns).iter().enumerate().all(|(t, &p)| follows(t, p)))
            && self.ranks.is_none_or(|ranks| follows_ranks(txns, ranks, order))
            && runs(txns, resolved, order)
    }
}

/// Does none write a key after one that committed later?
fn follows_ranks(txns: &Txns<'_>, ranks: &[u32], order: &[Txn]) -> bool {
    let mut last = vec![NONE; txns.keys.len()];
    order.iter().all(|&txn| {
        txns.mops(txn).filter(|&m| txns.kind[m].writes()).all(|m| {
            let last = &mut last[txns.key[m] as usize];
            let kept = *last == NONE || !before(ranks, txn, *last);
            if ranks[txn as usize] != NONE {
                *last = txn;
            }
            kept
        })
    })
}

/// Runs an order.
pub(super) fn runs(txns: &Txns<'_>, resolved: &Resolved, order: &[Txn]) -> bool {
    let mut state = resolved.initial.clone();
    !resolved.unexplained && order.iter().all(|&txn| applied(txns, resolved, txn, &mut state))
}

/// Runs a transaction on a state; false when a read returned something else.
fn applied(txns: &Txns<'_>, resolved: &Resolved, txn: Txn, state: &mut [u32]) -> bool {
    txns.mops(txn).all(|mop| {
        let Some(named) = resolved.of(mop) else { return true };
        let there = &mut state[txns.key[mop] as usize];
        if txns.kind[mop].writes() {
            *there = named.version() as u32;
            return true;
        }
        *there == named.version() as u32
    })
}

/// By transaction: the last one that its process completed before it, or none.
pub(super) fn previous(txns: &Txns<'_>) -> Vec<Txn> {
    let mut last = vec![NONE; txns.processes as usize];
    let previous = (0..txns.len()).map(|t| match last.get_mut(txns.process[t] as usize) {
        Some(last) if txns.ok(t as Txn) => std::mem::replace(last, t as Txn),
        Some(last) => *last,
        None => NONE,
    });
    previous.collect()
}
