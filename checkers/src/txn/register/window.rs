//! Which order explains all reads, if that cannot be guessed one transaction after the other?
//!
//! Where many write one key at once, a guess which of two writes came first shows to be wrong only later, and by then
//! much rests on it. (On a run of 10,000 transactions by 15 clients, half of whose operations are on few keys, [`serial`](super::serial)
//! is stuck after 4,559, with 49 guesses turned round; on one of 100,000 after 2,120. What it is stuck at is no transaction of unknown end, and no
//! value written twice: several blind writes of one key are open, who read them is open, too, and more than one guess is wrong at once.)
//! Here nothing is guessed that can be concluded. Some transactions are looked at together, in a *window* that
//! slides over the history in order of invocation, with the order known among them as a transitive closure of bits:
//!
//! - who was read, who completed before, who came earlier in a process comes first, if that counts;
//! - if one that read or wrote a version comes before one that read or wrote another version of the key, then all that read or wrote the
//!   former come before who wrote the latter.
//!
//! These are the rules by which a polygraph is pruned (Cobra: Tan et al., OSDI 2020), and they are followed to their end each time
//! that something new is known. A transaction that nothing in the window precedes may leave it and *take place*: first those that only read,
//! which costs nothing, then the one that has to have ended first, or who must come before it. If it writes, it then comes before the
//! others in the window that write the same key: where that was not known, it is a choice, noted with a copy of the window. A choice that
//! contradicts what is known is turned round at once; when both ways do, the choice before it is taken back.
//!
//! Transactions that are not in the window yet come in when one that has to take place needs them. What comes in later can contradict what
//! took place, so that no answer says nothing; but where all transactions fit into the window, all orders are tried until too many choices
//! were taken back. A small window is tried first, then a larger one. The number of steps is bounded by a multiple of that of transactions, so
//! that a history with no order that nothing shows to have none does not take long.
//!
//! O(micro-operations · slots), where few choices are wrong. Memory: 14 bytes a transaction, 8 a write, 20 a key (68 in the larger window), and
//! 1.5 KB (20 KB) a choice that is still remembered.

use std::collections::VecDeque;
use std::ops::{BitAnd, BitOr};

use super::resolve::{Clock, NEVER, Resolved};
use super::serial::{Keep, previous};
use super::timestamps::before;
use crate::budget::Budget;
use crate::txn::history::{NONE, Txn, Txns};

/// Choices that are remembered.
const CHOICES: usize = 256;

/// Choices taken back between two transactions that got further than any before.
const BACKS: u32 = 1024;

/// Steps between two looks at the budget.
const STEPS: usize = 1 << 12;

/// Steps that are allowed, beyond two a transaction.
const SLACK: usize = 100_000;

/// Steps that a contradiction counts for.
const TURN: usize = 8;

/// Where a transaction is that is in no slot.
const OUT: u16 = u16::MAX;
const PLACED: u16 = u16::MAX - 1;

/// A set of slots of a window, 64 a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots<const W: usize>([u64; W]);

impl<const W: usize> Slots<W> {
    const NONE: Slots<W> = Slots([0; W]);

    fn of(slot: u16) -> Self {
        let mut set = Self::NONE;
        set.add(slot);
        set
    }

    fn has(self, slot: u16) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn add(&mut self, slot: u16) {
        self.0[slot as usize / 64] |= 1 << (slot % 64);
    }

    fn remove(&mut self, slot: u16) {
        self.0[slot as usize / 64] &= !(1 << (slot % 64));
    }

    fn without(self, other: Self) -> Self {
        Slots(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    fn is_empty(self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }

    fn len(self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    fn iter(mut self) -> impl Iterator<Item = u16> {
        let mut word = 0;
        std::iter::from_fn(move || {
            while word < W {
                if self.0[word] != 0 {
                    let bit = self.0[word].trailing_zeros();
                    self.0[word] &= self.0[word] - 1;
                    return Some(word as u16 * 64 + bit as u16);
                }
                word += 1;
            }
            None
        })
    }
}

impl<const W: usize> BitAnd for Slots<W> {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Slots(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl<const W: usize> BitOr for Slots<W> {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Slots(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

/// What others see of what a transaction did with a key.
#[derive(Clone, Copy, Debug)]
struct Access<const W: usize> {
    key: u32,
    version: u32,
    write: bool,
    /// Who in the window read or wrote this version, this one too.
    same: Slots<W>,
}

/// Who in the window does something with a key.
#[derive(Clone, Copy, Debug)]
struct OnKey<const W: usize> {
    all: Slots<W>,
    writers: Slots<W>,
}

impl<const W: usize> OnKey<W> {
    const NOBODY: OnKey<W> = OnKey { all: Slots::NONE, writers: Slots::NONE };
}

/// Who is in the window, and what is known of their order.
#[derive(Clone)]
struct Window<const W: usize> {
    live: Slots<W>,
    txn: Vec<Txn>,
    /// By slot: who comes before it, and who after it.
    before: Vec<Slots<W>>,
    after: Vec<Slots<W>>,
}

/// One was to take place before others that write a key of its.
struct Choice<const W: usize> {
    window: Window<W>,
    done: usize,
    coming: usize,
    prefix: usize,
    slot: u16,
    others: Vec<u16>,
    /// The next thing to try: it comes before the first so many of the others, and after the one then.
    left: usize,
}

/// What is known contradicts itself.
struct Contradiction;

type Held = Result<(), Contradiction>;

/// May a transaction take place that nothing precedes?
enum Ready {
    Now,
    /// Another one is needed, which is not in the window.
    Needs(Txn),
    /// Not as long as nothing else happens.
    No,
}

struct Search<'a, const W: usize> {
    txns: &'a Txns<'a>,
    resolved: &'a mut Resolved,
    clock: &'a Clock,
    keep: Keep,
    ranks: Option<&'a [u32]>,
    previous: Vec<Txn>,
    window: Window<W>,
    /// By slot.
    accesses: Vec<Vec<Access<W>>>,
    deadline: Vec<u32>,
    rank: Vec<u32>,
    /// By slot: of whom it became known that they come before it, and nothing was concluded from that yet; and the slots with such.
    news: Vec<Slots<W>>,
    fresh: Slots<W>,
    /// By transaction.
    slot: Vec<u16>,
    /// By key: who in the window does something with it; and the version that is there.
    on_key: Vec<OnKey<W>>,
    there: Vec<u32>,
    /// Those that committed by invocation, and how many of these came in.
    schedule: &'a [Txn],
    coming: usize,
    /// All that completed among the first so many have taken place.
    prefix: usize,
    /// Those that took place, and where what each overwrote begins.
    done: Vec<(Txn, u32)>,
    undo: Vec<(u32, u32)>,
    choices: VecDeque<Choice<W>>,
    /// Copies of windows that are free to use.
    spare: Vec<Choice<W>>,
}

/// Finds an order of all transactions that committed.
pub(super) fn order(
    txns: &Txns<'_>,
    resolved: &mut Resolved,
    clock: &Clock,
    keep: Keep,
    ranks: Option<&[u32]>,
    budget: &Budget,
) -> Option<Vec<Txn>> {
    if resolved.twice || resolved.unexplained {
        return None;
    }
    let mut schedule: Vec<Txn> = (0..txns.len() as Txn).filter(|&t| txns.ok(t)).collect();
    schedule.extend(resolved.seen.iter().map(|s| s.0));
    schedule.sort_unstable();
    resolved.reset();
    let mut small = Search::<1>::new(txns, resolved, clock, keep, ranks, &schedule);
    if small.all(budget) {
        return Some(small.order());
    }
    drop(small);
    resolved.reset();
    let mut large = Search::<4>::new(txns, resolved, clock, keep, ranks, &schedule);
    large.all(budget).then(|| large.order())
}

impl<'a, const W: usize> Search<'a, W> {
    const SLOTS: usize = 64 * W;

    /// So many come in by themselves; the other slots are for those that are needed.
    const FILL: usize = 48 * W;

    fn new(
        txns: &'a Txns<'a>,
        resolved: &'a mut Resolved,
        clock: &'a Clock,
        keep: Keep,
        ranks: Option<&'a [u32]>,
        schedule: &'a [Txn],
    ) -> Search<'a, W> {
        let none = || vec![Slots::NONE; Self::SLOTS];
        let window = Window { live: Slots::NONE, txn: vec![NONE; Self::SLOTS], before: none(), after: none() };
        Search {
            txns,
            clock,
            keep,
            ranks,
            previous: if keep.process { previous(txns) } else { Vec::new() },
            window,
            accesses: vec![Vec::new(); Self::SLOTS],
            deadline: vec![NEVER; Self::SLOTS],
            rank: vec![NEVER; Self::SLOTS],
            news: none(),
            fresh: Slots::NONE,
            slot: vec![OUT; txns.len()],
            on_key: vec![OnKey::NOBODY; txns.keys.len()],
            there: resolved.initial.clone(),
            schedule,
            coming: 0,
            prefix: 0,
            done: Vec::with_capacity(schedule.len()),
            undo: Vec::new(),
            choices: VecDeque::new(),
            spare: Vec::new(),
            resolved,
        }
    }

    fn order(&self) -> Vec<Txn> {
        self.done.iter().map(|d| d.0).collect()
    }

    fn all(&mut self, budget: &Budget) -> bool {
        let (mut furthest, mut backs) = (0, 0);
        let (mut steps, mut asked, most) = (0, 0, 2 * self.schedule.len() + SLACK);
        loop {
            steps += 1;
            if steps > most || (steps >= asked && budget.spent().is_some()) {
                return false;
            }
            asked = if steps >= asked { steps + STEPS } else { asked };
            match self.fill().and_then(|()| self.step()) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(Contradiction) => {
                    steps += TURN;
                    backs = if self.done.len() > furthest { 0 } else { backs };
                    furthest = furthest.max(self.done.len());
                    if !self.back(&mut backs) {
                        return false;
                    }
                }
            }
        }
    }

    /// Lets transactions come in while there is room.
    fn fill(&mut self) -> Held {
        let mut room = Self::FILL.saturating_sub(self.window.live.len());
        while room > 0
            && let Some(&txn) = self.schedule.get(self.coming)
        {
            self.coming += 1;
            if self.slot[txn as usize] == OUT {
                self.admit(txn)?;
                room -= 1;
            }
        }
        Ok(())
    }

    /// Lets some take place, or one come in that is needed, or makes more known. True when none is left.
    fn step(&mut self) -> Result<bool, Contradiction> {
        let live = self.window.live;
        let Some(urgent) = live.iter().min_by_key(|&s| self.deadline[s as usize]) else { return Ok(true) };
        let needed = self.window.before[urgent as usize] | Slots::of(urgent);
        let mut best: Option<(usize, u16)> = None;
        let (mut missing, mut placed) = (None, false);
        for slot in live.iter() {
            if !self.window.before[slot as usize].is_empty() {
                continue;
            }
            let reads = !self.accesses[slot as usize].iter().any(|a| a.write);
            if !reads && !needed.has(slot) {
                continue;
            }
            match self.ready(slot) {
                Ready::Now if reads => {
                    self.place(slot);
                    placed = true;
                }
                Ready::Now => {
                    let open = self.undecided(slot).len();
                    best = best.filter(|b| b.0 <= open).or(Some((open, slot)));
                }
                Ready::Needs(other) if needed.has(slot) => missing = Some(other),
                _ => {}
            }
        }
        if placed {
            return Ok(false);
        }
        if let Some(other) = missing.filter(|_| live.len() < Self::SLOTS) {
            self.admit(other)?;
            return Ok(false);
        }
        let Some((_, slot)) = best else { return Err(Contradiction) };
        self.choose(slot)?;
        Ok(false)
    }

    /// May one take place that nothing in the window precedes?
    fn ready(&self, slot: u16) -> Ready {
        let txn = self.window.txn[slot as usize];
        let elsewhere = |other: Txn| if self.slot[other as usize] == OUT { Ready::Needs(other) } else { Ready::No };
        if self.keep.real_time && self.clock.before[txn as usize] as usize > self.prefix {
            return elsewhere(self.clock.order[self.prefix]);
        }
        if let Some(&previous) = self.previous.get(txn as usize)
            && previous != NONE
            && self.slot[previous as usize] != PLACED
        {
            return elsewhere(previous);
        }
        for access in &self.accesses[slot as usize] {
            let there = self.there[access.key as usize];
            if !access.write {
                if there != access.version {
                    let writer = self.resolved.versions[access.version as usize].writer;
                    return if writer == NONE { Ready::No } else { elsewhere(writer) };
                }
                continue;
            }
            let current = &self.resolved.versions[there as usize];
            if current.pending > 0 {
                let readers = &self.resolved.readers[current.readers as usize..][..current.outside as usize];
                let other = readers.iter().find(|&&r| r != txn && self.slot[r as usize] != PLACED);
                if let Some(&other) = other {
                    return elsewhere(other);
                }
            }
        }
        Ready::Now
    }

    /// Others in the window that write a key that one writes, too, and of which nothing says that they come after it.
    fn undecided(&self, slot: u16) -> Slots<W> {
        let mut others = Slots::NONE;
        for access in self.accesses[slot as usize].iter().filter(|a| a.write) {
            others = others | self.on_key[access.key as usize].writers;
        }
        others.remove(slot);
        others.without(self.window.after[slot as usize])
    }

    /// Lets one take place, before others that write the same keys; or makes known that it cannot.
    fn choose(&mut self, slot: u16) -> Held {
        let open = self.undecided(slot);
        if open.is_empty() {
            self.place(slot);
            return Ok(());
        }
        let mut choice = self.choice(slot);
        choice.others.extend(open.iter());
        choice.left = choice.others.len();
        for i in 0..choice.left {
            let other = choice.others[i];
            if self.precede(slot, other).is_ok() {
                continue;
            }
            self.know(&choice.window);
            if self.precede(slot, other).is_err() {
                self.know(&choice.window);
                self.spare.push(choice);
                return self.precede(other, slot);
            }
            choice.left = i + 1;
            self.remember(choice);
            return Err(Contradiction);
        }
        self.remember(choice);
        self.place(slot);
        Ok(())
    }

    /// Takes it back what was concluded since.
    fn know(&mut self, window: &Window<W>) {
        self.window.before.clone_from(&window.before);
        self.window.after.clone_from(&window.after);
    }

    /// All as it is.
    fn choice(&mut self, slot: u16) -> Choice<W> {
        let (done, coming, prefix) = (self.done.len(), self.coming, self.prefix);
        let Some(spare) = self.spare.pop() else {
            let window = self.window.clone();
            return Choice { window, done, coming, prefix, slot, others: Vec::new(), left: 0 };
        };
        let Choice { mut window, mut others, .. } = spare;
        others.clear();
        window.live = self.window.live;
        window.txn.clone_from(&self.window.txn);
        window.before.clone_from(&self.window.before);
        window.after.clone_from(&self.window.after);
        Choice { window, done, coming, prefix, slot, others, left: 0 }
    }

    fn remember(&mut self, choice: Choice<W>) {
        if self.choices.len() == CHOICES {
            self.spare.extend(self.choices.pop_front());
        }
        self.choices.push_back(choice);
    }

    /// Takes back choices until one can be otherwise.
    fn back(&mut self, backs: &mut u32) -> bool {
        while let Some(mut choice) = self.choices.pop_back() {
            *backs += 1;
            if *backs > BACKS {
                return false;
            }
            if choice.left == 0 {
                self.spare.push(choice);
                continue;
            }
            choice.left -= 1;
            self.restore(&choice);
            let (slot, other) = (choice.slot, choice.others[choice.left]);
            let earlier = choice.others[..choice.left].iter().try_for_each(|&o| self.precede(slot, o));
            let held = earlier.and_then(|()| self.precede(other, slot)).is_ok();
            self.choices.push_back(choice);
            if held {
                return true;
            }
        }
        false
    }

    /// Makes everything as it was.
    fn restore(&mut self, choice: &Choice<W>) {
        for slot in self.window.live.iter() {
            self.slot[self.window.txn[slot as usize] as usize] = OUT;
            self.accesses[slot as usize].iter().for_each(|a| self.on_key[a.key as usize] = OnKey::NOBODY);
        }
        while self.done.len() > choice.done
            && let Some((txn, undo)) = self.done.pop()
        {
            self.slot[txn as usize] = OUT;
            for (key, version) in self.undo.drain(undo as usize..).rev() {
                self.there[key as usize] = version;
            }
            for mop in self.txns.mops(txn).filter(|&m| !self.txns.kind[m].writes()) {
                let Some(named) = self.resolved.of(mop) else { continue };
                self.resolved.versions[named.version()].pending += u32::from(named.is_outside());
            }
        }
        (self.coming, self.prefix) = (choice.coming, choice.prefix);
        self.know(&choice.window);
        self.window.live = choice.window.live;
        for slot in self.window.live.iter() {
            let txn = choice.window.txn[slot as usize];
            if std::mem::replace(&mut self.window.txn[slot as usize], txn) != txn {
                self.look_at(slot, txn);
            }
            self.note(slot, txn);
        }
    }

    /// Finds out what a transaction does.
    fn look_at(&mut self, slot: u16, txn: Txn) {
        let accesses = &mut self.accesses[slot as usize];
        accesses.clear();
        for mop in self.txns.mops(txn) {
            let Some(named) = self.resolved.of(mop) else { continue };
            let (key, version) = (self.txns.key[mop], named.version() as u32);
            let write = self.txns.kind[mop].writes();
            if write || named.is_outside() {
                accesses.push(Access { key, version, write, same: Slots::NONE });
            }
        }
        // Others see only the last write of a key.
        if accesses.iter().filter(|a| a.write).count() > 1 {
            accesses.reverse();
            accesses.sort_by_key(|a| (a.write, a.key));
            accesses.dedup_by_key(|a| (a.write, a.key));
        }
        let ended = |a: &Access<W>| self.resolved.versions[a.version as usize].existed;
        let writes = accesses.iter().filter(|a| a.write).map(ended);
        self.rank[slot as usize] = self.clock.rank[txn as usize];
        self.deadline[slot as usize] = writes.fold(self.rank[slot as usize], u32::min);
    }

    /// Notes where a transaction is.
    fn note(&mut self, slot: u16, txn: Txn) {
        self.slot[txn as usize] = slot;
        let mut own = std::mem::take(&mut self.accesses[slot as usize]);
        for access in &mut own {
            access.same = Slots::of(slot);
            for other in self.on_key[access.key as usize].all.iter() {
                let its = self.accesses[other as usize].iter_mut();
                for a in its.filter(|a| a.version == access.version) {
                    a.same.add(slot);
                    access.same.add(other);
                }
            }
        }
        for access in &own {
            let on_key = &mut self.on_key[access.key as usize];
            on_key.all.add(slot);
            if access.write {
                on_key.writers.add(slot);
            }
        }
        self.accesses[slot as usize] = own;
    }

    /// Lets a transaction come in, with all that is then known.
    fn admit(&mut self, txn: Txn) -> Held {
        let Some(slot) = (0..Self::SLOTS as u16).find(|&s| !self.window.live.has(s)) else {
            return Err(Contradiction);
        };
        let others = self.window.live;
        self.window.live.add(slot);
        self.window.txn[slot as usize] = txn;
        self.look_at(slot, txn);
        self.note(slot, txn);
        self.in_time(slot, txn, others)?;
        for i in 0..self.accesses[slot as usize].len() {
            let access = self.accesses[slot as usize][i];
            match access.write {
                true => self.admit_write(slot, txn, access)?,
                false => self.admit_read(slot, access)?,
            }
        }
        Ok(())
    }

    /// What real time and processes say of one that came in.
    fn in_time(&mut self, slot: u16, txn: Txn, others: Slots<W>) -> Held {
        if self.keep.real_time {
            let (rank, invoked) = (self.rank[slot as usize], self.clock.before[txn as usize]);
            let mut earlier = Slots::NONE;
            for other in others.iter() {
                if self.rank[other as usize] < invoked {
                    earlier = earlier | self.window.before[other as usize];
                    earlier.add(other);
                }
            }
            self.window.before[slot as usize] = earlier;
            self.news[slot as usize] = earlier;
            self.fresh.add(slot);
            earlier.iter().for_each(|e| self.window.after[e as usize].add(slot));
            self.conclude()?;
            // Only one that is needed comes in after one that was invoked later.
            if rank != NEVER {
                for other in others.iter() {
                    if rank < self.clock.before[self.window.txn[other as usize] as usize] {
                        self.precede(slot, other)?;
                    }
                }
            }
        }
        if !self.keep.process {
            return Ok(());
        }
        let previous = self.previous[txn as usize];
        if let Some(first) = self.live(previous) {
            self.precede(first, slot)?;
        }
        for other in others.iter() {
            if self.previous[self.window.txn[other as usize] as usize] == txn {
                self.precede(slot, other)?;
            }
        }
        Ok(())
    }

    /// The slot of a transaction that is in the window.
    fn live(&self, txn: Txn) -> Option<u16> {
        self.slot.get(txn as usize).copied().filter(|&s| s < PLACED)
    }

    fn is_placed(&self, writer: Txn) -> bool {
        writer == NONE || self.slot[writer as usize] == PLACED
    }

    /// Who wrote the version comes before who read it, and that one before all that write later versions.
    fn admit_read(&mut self, slot: u16, access: Access<W>) -> Held {
        let writer = self.resolved.versions[access.version as usize].writer;
        let key = access.key as usize;
        if let Some(first) = self.live(writer) {
            let later = self.on_key[key].writers & self.window.after[first as usize];
            self.precede(first, slot)?;
            return later.iter().filter(|&s| s != slot).try_for_each(|s| self.precede(slot, s));
        }
        if self.is_placed(writer) {
            if self.there[key] != access.version {
                return Err(Contradiction);
            }
            let writers = self.on_key[key].writers;
            return writers.iter().filter(|&s| s != slot).try_for_each(|s| self.precede(slot, s));
        }
        // What is known of others that read what is yet to be written.
        for other in access.same.iter().filter(|&s| s != slot) {
            let later = self.on_key[key].all & self.window.after[other as usize];
            later.iter().for_each(|s| self.tell(other, s));
        }
        self.conclude()
    }

    /// Lets conclusions be drawn once more from what is known of two.
    fn tell(&mut self, first: u16, then: u16) {
        self.news[then as usize].add(first);
        self.fresh.add(then);
    }

    fn admit_write(&mut self, slot: u16, txn: Txn, access: Access<W>) -> Held {
        let key = access.key as usize;
        let there = self.there[key];
        let ranks = self.ranks;
        let ranked = |a: Txn, b: Txn| ranks.is_some_and(|ranks| a != NONE && b != NONE && before(ranks, a, b));
        if ranked(txn, self.resolved.versions[there as usize].writer) {
            return Err(Contradiction);
        }
        let own = self.resolved.versions[access.version as usize];
        for other in self.on_key[key].all.iter().filter(|&s| s != slot) {
            if let Some(read) = self.access(other, access.key, |a| !a.write) {
                if read.version == access.version {
                    self.precede(slot, other)?;
                    let earlier = self.on_key[key].all & self.window.before[other as usize];
                    earlier.iter().for_each(|e| self.tell(e, other));
                    self.conclude()?;
                } else if read.version == there {
                    self.precede(other, slot)?;
                }
            }
            let Some(write) = self.access(other, access.key, |a| a.write) else { continue };
            let its = self.resolved.versions[write.version as usize];
            let first = (self.keep.real_time && own.existed < its.lasted) || ranked(txn, its.writer);
            let last = (self.keep.real_time && its.existed < own.lasted) || ranked(its.writer, txn);
            match (first, last) {
                (true, true) => return Err(Contradiction),
                (true, false) => self.precede(slot, other)?,
                (false, true) => self.precede(other, slot)?,
                (false, false) => {}
            }
        }
        Ok(())
    }

    fn access(&self, slot: u16, key: u32, which: impl Fn(&Access<W>) -> bool) -> Option<Access<W>> {
        self.accesses[slot as usize].iter().copied().find(|a| a.key == key && which(a))
    }

    /// Makes known that one comes before another one, and all that follows.
    fn precede(&mut self, first: u16, then: u16) -> Held {
        let held = self.link(first, then);
        if held.is_err() {
            self.forget();
            return held;
        }
        self.conclude()
    }

    fn forget(&mut self) {
        self.fresh.iter().for_each(|s| self.news[s as usize] = Slots::NONE);
        self.fresh = Slots::NONE;
    }

    fn link(&mut self, first: u16, then: u16) -> Held {
        let Window { before, after, .. } = &mut self.window;
        if after[first as usize].has(then) {
            return Ok(());
        }
        if first == then || after[then as usize].has(first) {
            return Err(Contradiction);
        }
        let earlier = before[first as usize] | Slots::of(first);
        let later = after[then as usize] | Slots::of(then);
        for s in later.iter() {
            let new = earlier.without(before[s as usize]);
            before[s as usize] = before[s as usize] | new;
            self.news[s as usize] = self.news[s as usize] | new;
        }
        self.fresh = self.fresh | later;
        for s in earlier.iter() {
            after[s as usize] = after[s as usize] | later;
        }
        Ok(())
    }

    /// Draws all conclusions.
    fn conclude(&mut self) -> Held {
        while let Some(then) = self.fresh.iter().next() {
            self.fresh.remove(then);
            let news = std::mem::replace(&mut self.news[then as usize], Slots::NONE);
            if let Err(contradiction) = self.versions(news, then) {
                self.forget();
                return Err(contradiction);
            }
        }
        Ok(())
    }

    /// What follows for the versions of its keys if some come before one: who read or wrote a version comes before who wrote a later one.
    fn versions(&mut self, earlier: Slots<W>, then: u16) -> Held {
        for i in 0..self.accesses[then as usize].len() {
            let new = self.accesses[then as usize][i];
            let all = self.on_key[new.key as usize].all;
            let earlier = all & earlier;
            if earlier.is_empty() {
                continue;
            }
            let writer = self.resolved.versions[new.version as usize].writer;
            if self.is_placed(writer) {
                let older = |a: &Access<W>| a.version != new.version;
                if earlier.iter().any(|s| self.access(s, new.key, older).is_some()) {
                    return Err(Contradiction);
                }
                continue;
            }
            let Some(writer) = self.live(writer) else { continue };
            // That one which comes after the writer must come before it, too, is found where the writer of its version is looked at.
            let known = self.window.before[writer as usize] | self.window.after[writer as usize] | Slots::of(writer);
            for other in all.without(known).iter() {
                let older = |a: &Access<W>| a.version != new.version && !(a.same & earlier).is_empty();
                if self.access(other, new.key, older).is_some() {
                    self.link(other, writer)?;
                }
            }
        }
        Ok(())
    }

    /// Lets one take place.
    fn place(&mut self, slot: u16) {
        let txn = self.window.txn[slot as usize];
        self.done.push((txn, self.undo.len() as u32));
        for i in 0..self.accesses[slot as usize].len() {
            let access = self.accesses[slot as usize][i];
            let on_key = &mut self.on_key[access.key as usize];
            on_key.all.remove(slot);
            on_key.writers.remove(slot);
            if access.write {
                let there = &mut self.there[access.key as usize];
                self.undo.push((access.key, std::mem::replace(there, access.version)));
            }
            for other in access.same.iter().filter(|&s| s != slot) {
                self.accesses[other as usize].iter_mut().for_each(|a| a.same.remove(slot));
            }
        }
        for mop in self.txns.mops(txn).filter(|&m| !self.txns.kind[m].writes()) {
            let Some(named) = self.resolved.of(mop) else { continue };
            self.resolved.versions[named.version()].pending -= u32::from(named.is_outside());
        }
        let window = &mut self.window;
        window.live.remove(slot);
        for other in window.after[slot as usize].iter() {
            window.before[other as usize].remove(slot);
        }
        (window.before[slot as usize], window.after[slot as usize]) = (Slots::NONE, Slots::NONE);
        self.slot[txn as usize] = PLACED;
        let placed = |t: &Txn| self.slot[*t as usize] == PLACED;
        while self.clock.order.get(self.prefix).is_some_and(placed) {
            self.prefix += 1;
        }
    }
}
