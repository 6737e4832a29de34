//! Why is there no order of all transactions?
//!
//! The [search](super::search) learns from each conflict that some guesses contradict each other, and ends when a conflict rests on none.
//! What it did then is a proof by resolution (as SAT solvers give one; Goldberg and Novikov, 2003): each conflict is a *lemma*, that not
//! all that it supposes can be, as else transactions would come before themselves; and what earlier lemmas exclude is used the
//! other way round, as of two transactions one comes first. The last lemma supposes nothing.
//!
//! Here the conflicts that the last one rests on are kept, and each step of their circles gets a reason that can be looked up in the
//! history: who read what whom wrote; who read what was overwritten by one that comes after its writer; the order within
//! processes; real time. Nothing that the search did is believed: a step without such a reason is the end of the proof, and the
//! whole is [held against the history](crate::txn::verify) before anything is claimed.
//!
//! O(conflicts · what a conflict names). Memory: 8 bytes for each transaction, guess and lemma that a conflict names, at most [`MOST`].

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::resolve::{Resolved, Version};
use super::serial::Question;
use super::turned::Before;
use crate::txn::history::{Kind, Mop, NONE, Txn};

/// Transactions, guesses and lemmas that are kept of all conflicts.
const MOST: usize = 1 << 22;

/// The conflicts of a search, in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Transactions, each of which demands that the next one ran before it; the last one of a conflict comes after the first.
    demands: Vec<Txn>,
    guesses: Vec<Before>,
    /// Guesses that were turned round, and by which conflict, counted from 1.
    used: Vec<(Before, u32)>,
    /// Where the next conflict begins in each of these.
    ends: Vec<[usize; 3]>,
}

impl Log {
    /// Adds a conflict: who demands whom, which guesses that rests on, and by which earlier conflicts others were turned round.
    pub(super) fn add(
        &mut self,
        demands: impl IntoIterator<Item = (Txn, Txn)>,
        guesses: &[Before],
        used: &[(Before, u32)],
    ) {
        if self.is_full() {
            return;
        }
        let from = self.demands.len();
        for (txn, other) in demands {
            if self.demands.len() == from {
                self.demands.push(txn);
            }
            self.demands.push(other);
        }
        // A circle ends where it began.
        if self.demands.len() > from + 1 && self.demands.last() == self.demands.get(from) {
            self.demands.pop();
        }
        self.guesses.extend_from_slice(guesses);
        self.used.extend_from_slice(used);
        self.ends.push([self.demands.len(), self.guesses.len(), self.used.len()]);
    }

    /// Were there too many to keep all?
    fn is_full(&self) -> bool {
        self.demands.len() + self.guesses.len() + self.used.len() > MOST
    }

    fn get(&self, conflict: usize) -> Conflict<'_> {
        let [from, to] = [conflict.checked_sub(1), Some(conflict)].map(|c| c.map_or([0; 3], |c| self.ends[c]));
        Conflict {
            demands: &self.demands[from[0]..to[0]],
            guesses: &self.guesses[from[1]..to[1]],
            used: &self.used[from[2]..to[2]],
        }
    }

    /// Those that the last one rests on, with it.
    fn needed(&self) -> Vec<usize> {
        let mut needed = vec![false; self.ends.len()];
        needed.iter_mut().next_back().into_iter().for_each(|last| *last = true);
        for conflict in (0..needed.len()).rev() {
            if needed[conflict] {
                self.get(conflict).used.iter().for_each(|&(_, by)| needed[by as usize - 1] = true);
            }
        }
        (0..needed.len()).filter(|&c| needed[c]).collect()
    }
}

struct Conflict<'a> {
    demands: &'a [Txn],
    guesses: &'a [Before],
    used: &'a [(Before, u32)],
}

/// Why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// It is supposed, or follows from an earlier lemma.
    Supposed,
    /// The other one read there what it wrote.
    Wr(Mop),
    /// It read there what this one wrote, or what was there first, and the other one, which comes after that, overwrote.
    Rw(Mop, Txn),
    Process,
    RealTime,
}

/// One transaction comes before another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub before: Before,
    pub by: By,
}

/// Some transactions cannot all come before others.
#[derive(Debug)]
pub(super) struct Lemma {
    pub supposed: Vec<Before>,
    /// What earlier lemmas, by number, leave no choice of, in order.
    pub derived: Vec<(Before, usize)>,
    /// A circle.
    pub steps: Vec<Step>,
}

/// A proof that there is no order, of lemmas of which the last supposes nothing. None where not all conflicts were kept, or a step has no
/// reason.
pub(super) fn prove(question: Question<'_>, resolved: &Resolved, log: &Log) -> Option<Vec<Lemma>> {
    if log.is_full() {
        return None;
    }
    let (lemmas, alone, of) = (Vec::new(), HashMap::default(), HashMap::default());
    let mut prover = Prover { question, resolved, log, lemmas, alone, of };
    log.needed().into_iter().try_for_each(|conflict| prover.conflict(conflict))?;
    prover.lemmas.last().is_some_and(|last| last.supposed.is_empty()).then_some(prover.lemmas)
}

struct Prover<'a> {
    question: Question<'a>,
    resolved: &'a Resolved,
    log: &'a Log,
    lemmas: Vec<Lemma>,
    /// Lemmas that rest on no guess, by what they show.
    alone: HashMap<Before, Option<usize>, FixedState>,
    /// The lemma of each conflict.
    of: HashMap<usize, usize, FixedState>,
}

/// A lemma in the making.
struct Draft {
    lemma: Lemma,
    /// All that is supposed, or follows.
    holds: HashSet<Before, FixedState>,
    /// What may be derived, and from which conflict.
    used: HashMap<Before, usize, FixedState>,
}

impl Prover<'_> {
    fn conflict(&mut self, conflict: usize) -> Option<()> {
        let Conflict { demands, guesses, used } = self.log.get(conflict);
        let mut draft = Draft {
            lemma: Lemma { supposed: guesses.to_vec(), derived: Vec::new(), steps: Vec::new() },
            holds: guesses.iter().copied().collect(),
            used: HashMap::default(),
        };
        // The earliest, which rests on earlier ones alone.
        for &(before, by) in used {
            let earliest = draft.used.entry(before).or_insert(by as usize - 1);
            *earliest = (*earliest).min(by as usize - 1);
        }
        let closing = (*demands.first()?, *demands.last()?);
        for before in demands.windows(2).map(|w| (w[1], w[0])).chain([closing]).rev() {
            let by = self.why(before, &mut draft)?;
            let step = Step { before, by };
            match draft.lemma.steps.last_mut() {
                Some(last) if self.goes_on(*last, step) => last.before.1 = before.1,
                _ => draft.lemma.steps.push(step),
            }
        }
        self.of.insert(conflict, self.lemmas.len());
        self.lemmas.push(draft.lemma);
        Some(())
    }

    /// Does a step follow another one in the same process, or in real time, so that the two are one?
    fn goes_on(&self, step: Step, next: Step) -> bool {
        let both = (step.before.0, next.before.1);
        match (step.by, next.by) {
            (By::Process, By::Process) => self.is_in_process(both),
            (By::RealTime, By::RealTime) => self.is_in_time(both),
            _ => false,
        }
    }

    /// Why does one come before another one?
    fn why(&mut self, before: Before, draft: &mut Draft) -> Option<By> {
        let (from, to) = before;
        let wrote = |&(_, version): &(Mop, &Version)| version.writer == from;
        if let Some((read, _)) = self.reads(to).find(wrote) {
            return Some(By::Wr(read));
        }
        if self.is_in_process(before) {
            return Some(By::Process);
        }
        if self.holds(before, draft) {
            return Some(By::Supposed);
        }
        let missed: Vec<(Mop, Txn)> = self.reads(from).map(|(read, version)| (read, version.writer)).collect();
        for (read, writer) in missed {
            if writer != to && self.writes(to, self.question.txns.key[read as usize]) {
                let updates =
                    self.reads(to).any(|(own, version)| self.is_on_one_key(own, read) && version.writer == writer);
                if writer == NONE || updates || self.comes((writer, to), draft) {
                    return Some(By::Rw(read, writer));
                }
            }
        }
        if self.is_in_time(before) {
            return Some(By::RealTime);
        }
        self.comes(before, draft).then_some(By::Supposed)
    }

    /// Is it supposed, or does it follow from earlier conflicts?
    fn holds(&self, before: Before, draft: &mut Draft) -> bool {
        let mut open = vec![(before, false)];
        let mut begun: HashSet<Before, FixedState> = HashSet::default();
        while let Some((what, again)) = open.pop() {
            if draft.holds.contains(&what) {
                continue;
            }
            let Some(&conflict) = draft.used.get(&what) else { return false };
            let others = || self.log.get(conflict).guesses.iter().copied().filter(|&g| g != (what.1, what.0));
            if others().all(|other| draft.holds.contains(&other)) {
                draft.holds.insert(what);
                draft.lemma.derived.push((what, self.of[&conflict]));
            } else if again || !begun.insert(what) {
                return false;
            } else {
                open.push((what, true));
                open.extend(others().map(|other| (other, false)));
            }
        }
        true
    }

    /// Does one come before another one by what is supposed, by earlier conflicts, or by a circle alone?
    fn comes(&mut self, before: Before, draft: &mut Draft) -> bool {
        if self.holds(before, draft) {
            return true;
        }
        let lemma = match self.alone.get(&before) {
            Some(&known) => known,
            None => {
                let lemma = self.circle_alone(before).map(|steps| {
                    self.lemmas.push(Lemma { supposed: vec![(before.1, before.0)], derived: Vec::new(), steps });
                    self.lemmas.len() - 1
                });
                self.alone.insert(before, lemma);
                lemma
            }
        };
        if let Some(lemma) = lemma {
            draft.holds.insert(before);
            draft.lemma.derived.push((before, lemma));
        }
        lemma.is_some()
    }

    /// The circle in which transactions would run if one that wrote a key came after another one that did, although the other one read what
    /// it wrote; or although it, or one that read what it wrote, had ended before the other one, or one that read what that wrote, began.
    fn circle_alone(&self, before: Before) -> Option<Vec<Step>> {
        let (from, to) = before;
        let reversed = Step { before: (to, from), by: By::Supposed };
        let direct = |by| Some(vec![reversed, Step { before, by }]);
        if let Some((read, _)) = self.reads(to).find(|(_, version)| version.writer == from) {
            return direct(By::Wr(read));
        }
        if self.is_in_process(before) {
            return direct(By::Process);
        }
        if self.is_in_time(before) {
            return direct(By::RealTime);
        }
        let clock = self.question.clock;
        self.written(from).find_map(|(key, own)| {
            let (_, others) = self.written(to).find(|&(other, _)| other == key)?;
            let first = self.met(from, own).min_by_key(|&t| clock.rank[t as usize])?;
            let last = self.met(to, others).max_by_key(|&t| clock.before[t as usize])?;
            let in_time = Some(Step { before: (first, last), by: By::RealTime }).filter(|s| self.is_in_time(s.before));
            let seen = match first == from {
                true => None,
                false => Some(Step { before: (from, first), by: By::Wr(self.read_of(first, own)?) }),
            };
            // Who meets the one version after the other had been met came before who wrote that, if the other one is the later.
            let end = match last == to {
                true => reversed,
                false => Step { before: (last, from), by: By::Rw(self.read_of(last, others)?, to) },
            };
            Some(seen.into_iter().chain([in_time?, end]).collect())
        })
    }

    /// Where a transaction read a version from outside.
    fn read_of(&self, txn: Txn, version: usize) -> Option<Mop> {
        let is = |&m: &usize| self.resolved.of(m).is_some_and(|n| n.is_outside() && n.version() == version);
        let txns = self.question.txns;
        txns.mops(txn).filter(|&m| txns.kind[m] == Kind::Read).find(is).map(|m| m as Mop)
    }

    /// Who wrote a version, and all that read it from outside.
    fn met(&self, writer: Txn, version: usize) -> impl Iterator<Item = Txn> {
        let version = &self.resolved.versions[version];
        let readers = &self.resolved.readers[version.readers as usize..][..version.outside as usize];
        readers.iter().copied().chain([writer])
    }

    /// What a transaction read from outside: where, and which version.
    fn reads(&self, txn: Txn) -> impl Iterator<Item = (Mop, &Version)> {
        let txns = self.question.txns;
        txns.mops(txn).filter(|&m| txns.kind[m] == Kind::Read).filter_map(|m| {
            let named = self.resolved.of(m).filter(|n| n.is_outside())?;
            Some((m as Mop, &self.resolved.versions[named.version()]))
        })
    }

    /// The keys that a transaction wrote, and the versions that it left there.
    fn written(&self, txn: Txn) -> impl Iterator<Item = (u32, usize)> {
        let txns = self.question.txns;
        let last =
            move |m: usize| txns.mops(txn).rfind(|&n| txns.kind[n].writes() && txns.key[n] == txns.key[m]) == Some(m);
        let lasts = txns.mops(txn).filter(move |&m| txns.kind[m].writes() && last(m));
        lasts.filter_map(move |m| Some((txns.key[m], self.resolved.of(m)?.version())))
    }

    fn writes(&self, txn: Txn, key: u32) -> bool {
        let txns = self.question.txns;
        txns.mops(txn).any(|m| txns.kind[m].writes() && txns.key[m] == key)
    }

    fn is_on_one_key(&self, one: Mop, other: Mop) -> bool {
        let key = |mop: Mop| self.question.txns.key[mop as usize];
        key(one) == key(other)
    }

    /// Did one process run both in this order, and does that count?
    fn is_in_process(&self, (from, to): Before) -> bool {
        let Question { txns, keep, .. } = self.question;
        let process = txns.process[from as usize];
        keep.process && from < to && process != NONE && process == txns.process[to as usize] && txns.ok(from)
    }

    /// Had the one completed when the other one was invoked, and does that count?
    fn is_in_time(&self, (from, to): Before) -> bool {
        let Question { clock, keep, .. } = self.question;
        keep.real_time && clock.rank[from as usize] < clock.before[to as usize]
    }
}
