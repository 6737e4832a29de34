//! Which guesses of the [search](super::search) were turned round, and what for?
//!
//! A guess is that one of two transactions that write a key comes before the other. Some guesses that contradict each other
//! are a clause: at least one is wrong. One of them is kept as turned round *given* the others: as long as these hold, or are still
//! open. Where two such contradict each other, the one that was learned later counts.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::txn::history::Txn;

/// A transaction that comes before another one.
pub(super) type Before = (Txn, Txn);

/// Which transactions ran, and when.
pub(super) struct Ran<'a, F> {
    pub has: F,
    /// By transaction: how many had run when it last did.
    pub at: &'a [u32],
}

impl<F: Fn(Txn) -> bool> Ran<'_, F> {
    /// How many had run when one did, if it did.
    pub(super) fn at(&self, txn: Txn) -> Option<u32> {
        (self.has)(txn).then(|| self.at[txn as usize])
    }
}

/// A guess turned round.
#[derive(Debug)]
struct Clause {
    first: Txn,
    /// The other guesses of which, with this one, some are wrong.
    given: Box<[Before]>,
    number: u32,
}

/// What is known of clauses as long as nothing else runs.
#[derive(Default)]
struct Known {
    /// By number: does what it was learned for hold, or is it open?
    holds: HashMap<u32, bool, FixedState>,
    /// How many questions wait for the answers of others.
    depth: u32,
}

/// No more questions wait at once: what is asked then is answered with no. (Whether a clause holds decides what the search tries next,
/// never what it has shown.)
const DEEPEST: u32 = 1 << 10;

/// Guesses turned round, by the transaction that comes later now.
#[derive(Debug)]
pub(super) struct Turned {
    clauses: HashMap<Txn, Vec<Clause>, FixedState>,
    /// By transaction, 64 a word: is there any?
    has: Vec<u64>,
    added: u32,
    /// When so many transactions have some, most are of no use any more.
    crowded: usize,
}

const CROWDED: usize = 1 << 12;

impl Turned {
    /// None, of so many transactions.
    pub(super) fn new(txns: usize) -> Turned {
        let clauses = HashMap::default();
        Turned { clauses, has: vec![0; txns.div_ceil(64)], added: 0, crowded: CROWDED }
    }

    /// Is there any that a transaction comes later by?
    #[inline]
    pub(super) fn has(&self, then: Txn) -> bool {
        self.has[then as usize / 64] >> (then % 64) & 1 == 1
    }

    fn of(&self, then: Txn) -> &[Clause] {
        if self.has(then) { self.clauses.get(&then).map_or(&[], Vec::as_slice) } else { &[] }
    }

    /// One comes before another one now, given other guesses.
    pub(super) fn add(&mut self, first: Txn, then: Txn, given: Vec<Before>) {
        self.added += 1;
        self.has[then as usize / 64] |= 1 << (then % 64);
        let clauses = self.clauses.entry(then).or_default();
        clauses.retain(|c| c.first != first || *c.given != given[..]);
        clauses.push(Clause { first, given: given.into(), number: self.added });
    }

    /// Another one that has to run before this one.
    pub(super) fn first<F: Fn(Txn) -> bool>(&self, then: Txn, ran: &Ran<'_, F>) -> Option<Txn> {
        let mut known = Known::default();
        let waits = |c: &&Clause| !(ran.has)(c.first) && self.holds(c, ran, &mut known);
        self.of(then).iter().rev().find(waits).map(|c| c.first)
    }

    /// The guesses that some rest on: instead of each that was turned round, those that it was turned round for. These may themselves have
    /// been turned round, but only before it: else two could be the reasons of each other, and nothing would be left. Which were turned
    /// round, and by which clause, is noted.
    pub(super) fn reasons<F: Fn(Txn) -> bool>(
        &self,
        open: Vec<Before>,
        ran: &Ran<'_, F>,
        used: &mut Vec<(Before, u32)>,
    ) -> Vec<Before> {
        let mut open: Vec<(Before, u32)> = open.into_iter().map(|guess| (guess, u32::MAX)).collect();
        let (mut guesses, mut seen, mut known) = (Vec::new(), Vec::<(Before, u32)>::new(), Known::default());
        while let Some((guess @ (first, then), below)) = open.pop() {
            let older = |c: &&Clause| c.number < below && c.first == first && self.holds(c, ran, &mut known);
            let clause = self.of(then).iter().rev().find(older);
            let by = (guess, clause.map_or(0, |c| c.number));
            if seen.contains(&by) {
                continue;
            }
            seen.push(by);
            match clause {
                Some(clause) => {
                    used.push(by);
                    open.extend(clause.given.iter().map(|&given| (given, clause.number)));
                }
                None => guesses.push(guess),
            }
        }
        guesses
    }

    /// Do the guesses hold, or are they open, that one was turned round for?
    fn holds<F: Fn(Txn) -> bool>(&self, clause: &Clause, ran: &Ran<'_, F>, known: &mut Known) -> bool {
        clause.given.iter().all(|&(first, then)| match (ran.at(first), ran.at(then)) {
            (Some(a), Some(b)) => a < b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => !self.is_later_turned(then, first, clause.number, ran, known),
        })
    }

    /// Was it learned after some clause that one comes before another one? Numbers grow from call to call within, so that it ends; what
    /// is known of a clause is not asked again, or many that rest on one another would be asked exponentially often.
    fn is_later_turned<F: Fn(Txn) -> bool>(
        &self,
        first: Txn,
        then: Txn,
        number: u32,
        ran: &Ran<'_, F>,
        known: &mut Known,
    ) -> bool {
        let later = self.of(then).iter().rev().take_while(|c| c.number > number);
        later.filter(|c| c.first == first).any(|c| match known.holds.get(&c.number) {
            Some(&holds) => holds,
            None if known.depth == DEEPEST => false,
            None => {
                known.depth += 1;
                let holds = self.holds(c, ran, known);
                known.depth -= 1;
                known.holds.insert(c.number, holds);
                holds
            }
        })
    }

    /// Do many transactions have some?
    pub(super) fn is_crowded(&self) -> bool {
        self.clauses.len() > self.crowded
    }

    /// Forgets those of other transactions than such.
    pub(super) fn retain(&mut self, such: impl Fn(Txn) -> bool) {
        self.clauses.retain(|&then, _| such(then));
        self.has.fill(0);
        self.clauses.keys().for_each(|then| self.has[*then as usize / 64] |= 1 << (then % 64));
        self.crowded = CROWDED + 2 * self.clauses.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_a_clause_holds_is_asked_once_however_many_others_rest_on_it() {
        // Two clauses a level, each given that neither of the two of the next level does: by itself every question would be asked twice
        // as often as the one before.
        let levels = 121;
        let pair = |level: Txn, which: Txn| (4 * level + 2 * which, 4 * level + 2 * which + 1);
        let mut turned = Turned::new(4 * levels as usize + 4);
        for level in 0..levels {
            let next = || [0, 1].map(|which| pair(level + 1, which)).map(|(first, then)| (then, first));
            for (first, then) in [pair(level, 0), pair(level, 1)] {
                turned.add(first, then, if level + 1 < levels { next().to_vec() } else { Vec::new() });
            }
        }
        // The two of the last level hold, those of the one before do not, and so on.
        let at = vec![0; 4 * levels as usize + 4];
        let ran = Ran { has: |_: Txn| false, at: &at };
        for level in 0..levels {
            let (first, then) = pair(level, 1);
            assert_eq!(turned.first(then, &ran), (level % 2 == 0).then_some(first), "{level}");
        }
        let mut used = Vec::new();
        assert_eq!(turned.reasons(vec![pair(0, 0)], &ran, &mut used), [pair(1, 1), pair(1, 0)].map(|(a, b)| (b, a)));
        assert_eq!(used, [(pair(0, 0), 1)]);
    }

    #[test]
    fn a_chain_of_very_many_clauses_takes_no_more_stack_than_there_is() {
        let levels = 1 << 20;
        let mut turned = Turned::new(2 * levels as usize + 2);
        for level in 0..levels {
            turned.add(2 * level, 2 * level + 1, vec![(2 * level + 3, 2 * level + 2)]);
        }
        let at = vec![0; 2 * levels as usize + 2];
        let ran = Ran { has: |_: Txn| false, at: &at };
        let last = levels - 1;
        assert_eq!(turned.first(2 * last + 1, &ran), Some(2 * last));
        assert_eq!(turned.first(2 * last - 1, &ran), None);
        // So far nobody looks; whatever is answered, it is.
        turned.first(1, &ran);
    }
}
