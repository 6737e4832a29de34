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
        let waits = |c: &&Clause| !(ran.has)(c.first) && self.holds(c, ran);
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
        let (mut guesses, mut seen) = (Vec::new(), Vec::<(Before, u32)>::new());
        while let Some((guess @ (first, then), below)) = open.pop() {
            let older = |c: &&Clause| c.number < below && c.first == first && self.holds(c, ran);
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
    fn holds<F: Fn(Txn) -> bool>(&self, clause: &Clause, ran: &Ran<'_, F>) -> bool {
        clause.given.iter().all(|&(first, then)| match (ran.at(first), ran.at(then)) {
            (Some(a), Some(b)) => a < b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => !self.is_later_turned(then, first, clause.number, ran),
        })
    }

    /// Was it learned after some clause that one comes before another one? Numbers grow from call to call within, so that it ends.
    fn is_later_turned<F: Fn(Txn) -> bool>(&self, first: Txn, then: Txn, number: u32, ran: &Ran<'_, F>) -> bool {
        let later = self.of(then).iter().rev().take_while(|c| c.number > number);
        later.filter(|c| c.first == first).any(|c| self.holds(c, ran))
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
