//! Is there an order of all transactions that, run one after the other, gives every read what it returned?
//!
//! Deciding that is NP-complete in general (Papadimitriou, 1979). But what a database did is mostly not hard to find: here the
//! transactions are run in the order of their completions, each as late as it may be, and before each what it demands:
//!
//! - a read demands that who wrote its version ran;
//! - a write demands that all who read the version that it overwrites ran, since none of them can later;
//! - a write demands that each other write of its key ran whose version existed before the last one began that still met its own
//!   (where real time counts);
//! - a transaction demands that the one before it in its process ran (where that counts).
//!
//! Each of these is necessary, given what ran before; only which of two writes that nothing orders runs first is a guess. When demands
//! run in a circle, or ask for what is not invoked yet, one of the guesses that they rest on was wrong: the latest that can be
//! otherwise is turned round for good, and all that ran since is taken back. Each turn adds a constraint, so that comes to an end,
//! at the latest when the steps allowed are spent. Then there is no answer: there may be no such order, or more guesses were wrong.
//!
//! An order that was found is *run*: every read returned what is there. So it proves (strict) serializability, whatever is not
//! known of versions, and no anomaly can be found in the history by any means. O(micro-operations), where few
//! transactions are open at once and few guesses are wrong. Memory: 25 bytes a transaction, 8 a write and 8 a key.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::resolve::{Clock, NEVER, Resolved};
use super::timestamps::before;
use super::window;
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

/// A transaction's place in the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// Others run before it at its demand.
    Demands,
    Ran,
}

/// Steps of the search between two looks at the budget.
const STEPS: u64 = 1 << 16;

/// The end of a list.
const END: u32 = NONE - 1;

/// Was in a list, and is no more.
const UNLINKED: u32 = NONE - 2;

/// How much the search may do beyond one step a micro-operation.
const SLACK: u64 = 16;

/// Readers of a version that are looked at before it is written.
const LOOKAHEAD: usize = 16;

/// Steps that turning a guess round counts for.
const TURN: u64 = 64;

/// Finds an order of all transactions that committed, and runs it.
pub(super) fn order(
    txns: &Txns<'_>,
    resolved: &mut Resolved,
    clock: &Clock,
    keep: Keep,
    ranks: Option<&[u32]>,
    budget: &Budget,
) -> Option<Vec<Txn>> {
    if resolved.unexplained {
        return None;
    }
    let mut run = Run::new(txns, resolved, clock, keep);
    run.ranks = ranks;
    run.all(budget).then(|| run.done.iter().map(|d| d.txn).collect())
}

/// The same, where that was not managed: with more thought, and more time. See [`window`].
pub(super) fn hard_order(
    txns: &Txns<'_>,
    resolved: &mut Resolved,
    clock: &Clock,
    keep: Keep,
    ranks: Option<&[u32]>,
    budget: &Budget,
) -> Option<Vec<Txn>> {
    let order = window::order(txns, resolved, clock, keep, ranks, budget)?;
    keeps(txns, resolved, clock, keep, ranks, &order).then_some(order)
}

/// Is an order one of all that committed, does it keep what it must, and does each read return what is there?
fn keeps(
    txns: &Txns<'_>,
    resolved: &Resolved,
    clock: &Clock,
    keep: Keep,
    ranks: Option<&[u32]>,
    order: &[Txn],
) -> bool {
    let mut place = vec![NONE; txns.len()];
    order.iter().enumerate().for_each(|(at, &t)| place[t as usize] = at as u32);
    let has_place = |&t: &Txn| place[t as usize] != NONE;
    let each_once = order.len() == clock.order.len() + resolved.seen.len()
        && clock.order.iter().all(has_place)
        && resolved.seen.iter().all(|s| has_place(&s.0));
    let mut earliest = NEVER;
    let in_time = order.iter().rev().all(|&t| {
        let kept = clock.before[t as usize] <= earliest;
        earliest = earliest.min(clock.rank[t as usize]);
        kept
    });
    let follows = |t: usize, previous: Txn| previous == NONE || place[t] == NONE || place[previous as usize] < place[t];
    let mut state = resolved.initial.clone();
    let mut runs = |txn: Txn| {
        let writes = |&m: &usize| txns.kind[m].writes();
        let ranked = ranks.is_none_or(|ranks| {
            txns.mops(txn).filter(writes).all(|m| {
                let there = state[txns.key[m] as usize];
                let writer = resolved.versions[there as usize].writer;
                writer == NONE || !before(ranks, txn, writer)
            })
        });
        ranked && applied(txns, resolved, txn, &mut state)
    };
    each_once
        && (!keep.real_time || in_time)
        && (!keep.process || previous(txns).iter().enumerate().all(|(t, &p)| follows(t, p)))
        && order.iter().all(|&t| runs(t))
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

/// Those that completed: the first of each process, then the second of each, and so on.
fn in_turn(txns: &Txns<'_>, clock: &Clock) -> Vec<Txn> {
    let mut count = vec![0u32; txns.processes as usize];
    let mut starts = vec![0u32; clock.order.len() + 2];
    let completed = || (0..txns.len()).filter(|&t| clock.rank[t] != NEVER);
    let mut turn = vec![0u32; txns.len()];
    for t in completed() {
        if let Some(count) = count.get_mut(txns.process[t] as usize) {
            turn[t] = *count;
            *count += 1;
        }
        starts[turn[t] as usize + 2] += 1;
    }
    for i in 2..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut order = vec![NONE; clock.order.len()];
    for t in completed() {
        let at = &mut starts[turn[t] as usize + 1];
        order[*at as usize] = t as Txn;
        *at += 1;
    }
    order
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

/// What must be before a transaction runs.
enum Demand {
    Nothing,
    Run(Txn, Why),
    Impossible,
}

/// Why a transaction must run before another one.
#[derive(Clone, Copy)]
enum Why {
    Certain,
    /// A guess was turned round.
    Turned,
    /// As one demands it that reads what the other one writes.
    Implied,
    /// It read the version that is there, and the other one writes this one, which is guessed to come later.
    Overwritten {
        there: u32,
        by: u32,
    },
}

/// A transaction whose demands are being met.
#[derive(Clone, Copy)]
struct Frame {
    txn: Txn,
    /// Why the one below demands it.
    why: Why,
    /// The micro-operation to look at next.
    next: u32,
    /// Did others run since all of them were looked at?
    again: bool,
}

/// A transaction that ran.
#[derive(Clone, Copy)]
struct Done {
    txn: Txn,
    /// Where the schedule stood.
    at: u32,
    /// Where what it overwrote begins.
    undo: u32,
}

/// Demands that cannot be met, each of the first for the second to run before it. One of these must be otherwise.
struct Conflict(Vec<(Txn, Txn, Why)>);

/// A transaction that must run before another one.
type Before = (Txn, Txn);

/// A guess turned round.
#[derive(Debug)]
struct Turned {
    first: Txn,
    /// What else could have been turned round instead.
    instead: Vec<Before>,
}

struct Run<'a> {
    txns: &'a Txns<'a>,
    resolved: &'a mut Resolved,
    clock: &'a Clock,
    keep: Keep,
    /// Who committed before whom: writes of a key must run so.
    ranks: Option<&'a [u32]>,
    /// By key: the version that is there.
    there: Vec<u32>,
    /// By key: its writes by transactions that were invoked and, when last looked at, had not run: a list through `next`.
    open: Vec<u32>,
    state: Vec<State>,
    /// By transaction: the one before it in its process.
    previous: Vec<Txn>,
    /// Nothing that was invoked after this rank may run yet.
    limit: u32,
    frames: Vec<Frame>,
    done: Vec<Done>,
    /// By transaction: how many had run when it last did.
    ran_at: Vec<u32>,
    /// Keys, and what was there before.
    undo: Vec<(u32, u32)>,
    /// Who must run before a transaction as a guess was wrong.
    turned: HashMap<Txn, Vec<Turned>, FixedState>,
    /// What was implied, and led to a conflict.
    doubted: HashSet<Before, FixedState>,
    /// Where the schedule stands.
    at: u32,
    steps: u64,
    most: u64,
}

impl<'a> Run<'a> {
    fn new(txns: &'a Txns<'a>, resolved: &'a mut Resolved, clock: &'a Clock, keep: Keep) -> Run<'a> {
        Run {
            txns,
            clock,
            keep,
            ranks: None,
            there: resolved.initial.clone(),
            open: vec![END; resolved.initial.len()],
            state: vec![State::Waits; txns.len()],
            previous: if keep.process { previous(txns) } else { Vec::new() },
            limit: 0,
            frames: Vec::new(),
            done: Vec::with_capacity(clock.order.len() + resolved.seen.len()),
            ran_at: vec![0; txns.len()],
            undo: Vec::with_capacity(txns.mop_count()),
            turned: HashMap::default(),
            doubted: HashSet::default(),
            at: 0,
            steps: 0,
            resolved,
            most: SLACK * (txns.mop_count() + txns.len()) as u64 + (1 << 20),
        }
    }

    /// Notes what an invoked transaction is going to write, if it committed.
    fn opens(&mut self, txn: Txn) {
        let seen = || self.resolved.seen.binary_search_by_key(&txn, |s| s.0).is_ok();
        if !self.txns.ok(txn) && !seen() {
            return;
        }
        for mop in self.txns.mops(txn).filter(|&m| self.txns.kind[m].writes()) {
            let Some(version) = self.resolved.of(mop).map(|n| n.version()) else { continue };
            // A version is in the list once, though it may be written more often.
            if self.resolved.versions[version].next == NONE && self.resolved.versions[version].writer != NONE {
                let first = &mut self.open[self.txns.key[mop] as usize];
                self.resolved.versions[version].next = std::mem::replace(first, version as u32);
            }
        }
    }

    /// Runs all that committed. False when that was not managed.
    fn all(&mut self, budget: &Budget) -> bool {
        let mut schedule = if self.keep.real_time { self.clock.order.clone() } else { in_turn(self.txns, self.clock) };
        let completed = schedule.len();
        schedule.extend(self.resolved.seen.iter().map(|s| s.0));
        let (mut invoked, mut asked) = (0, STEPS);
        while let Some(&txn) = schedule.get(self.at as usize) {
            self.limit = if self.keep.real_time && (self.at as usize) < completed { self.at } else { NEVER };
            while self.keep.real_time && invoked < self.txns.len() && self.clock.before[invoked] <= self.limit {
                self.opens(invoked as Txn);
                invoked += 1;
            }
            if self.steps > asked {
                if self.steps > self.most || budget.spent().is_some() {
                    return false;
                }
                asked = self.steps + STEPS;
            }
            if self.state[txn as usize] == State::Waits
                && let Err(conflict) = self.root(txn)
            {
                if !self.turn(&conflict) {
                    return false;
                }
                continue;
            }
            self.at += 1;
        }
        true
    }

    /// Runs a transaction and before it what it demands.
    fn root(&mut self, txn: Txn) -> Result<(), Conflict> {
        self.frames.clear();
        self.begin(txn, Why::Certain)?;
        while let Some(&frame) = self.frames.last() {
            self.steps += 1;
            match self.demand(frame) {
                _ if self.steps > self.most => return Err(Conflict(Vec::new())),
                Demand::Run(other, why) => self.begin(other, why)?,
                Demand::Impossible => return Err(Conflict(Vec::new())),
                Demand::Nothing if self.frames.last().is_some_and(|f| f.again) => {
                    // What ran meanwhile may have changed what was found right.
                    if let Some(frame) = self.frames.last_mut() {
                        (frame.next, frame.again) = (self.txns.offsets[frame.txn as usize], false);
                    }
                }
                Demand::Nothing if self.run(frame.txn) => {
                    self.frames.pop();
                    self.frames.last_mut().into_iter().for_each(|f| f.again = true);
                }
                Demand::Nothing => return Err(Conflict(Vec::new())),
            }
        }
        Ok(())
    }

    /// Takes up a transaction.
    fn begin(&mut self, txn: Txn, why: Why) -> Result<(), Conflict> {
        let of = |frames: &[Frame]| {
            let demanded = frames.windows(2).map(|w| (w[0].txn, w[1].txn, w[1].why));
            Conflict(demanded.chain(frames.last().map(|f| (f.txn, txn, why))).collect())
        };
        match self.state[txn as usize] {
            State::Ran => return Err(Conflict(Vec::new())),
            State::Demands => {
                let circle = self.frames.iter().position(|f| f.txn == txn).unwrap_or(0);
                return Err(of(&self.frames[circle..]));
            }
            // The first that demands must not wait for one that was invoked when it had completed.
            State::Waits if self.is_later(txn) => return Err(of(&self.frames)),
            State::Waits => {}
        }
        self.state[txn as usize] = State::Demands;
        self.frames.push(Frame { txn, why, next: self.txns.offsets[txn as usize], again: false });
        Ok(())
    }

    /// Was it invoked after what now has to run?
    fn is_later(&self, txn: Txn) -> bool {
        self.keep.real_time && self.clock.before[txn as usize] > self.limit
    }

    /// Turns one guess round of those that demands rest on. False when none can be.
    fn turn(&mut self, conflict: &Conflict) -> bool {
        self.frames.drain(..).for_each(|f| self.state[f.txn as usize] = State::Waits);
        self.steps += TURN;
        let implied = conflict.0.iter().filter(|c| matches!(c.2, Why::Implied)).map(|&(then, first, _)| (first, then));
        let doubted = self.doubted.len();
        self.doubted.extend(implied);
        if self.doubted.len() > doubted {
            return true;
        }
        let mut ways: Vec<(Before, Option<Before>)> = Vec::new();
        for &(txn, other, why) in &conflict.0 {
            match why {
                Why::Certain | Why::Implied => {}
                Why::Turned => self.instead_of((other, txn), &mut ways),
                Why::Overwritten { there, by } => {
                    let writer = self.resolved.versions[there as usize].writer;
                    if self.is_turned(writer, txn) {
                        self.instead_of((writer, txn), &mut ways);
                    } else if !self.is_certain(txn, there, by) {
                        ways.push(((txn, writer), None));
                    }
                }
            }
        }
        ways.sort_unstable();
        ways.dedup_by_key(|w| w.0);
        // The fewer are taken back, the better.
        let ran = |&((_, then), instead): &(Before, Option<Before>)| (instead.is_none(), self.ran_at[then as usize]);
        let Some(best) = (0..ways.len()).max_by_key(|&i| ran(&ways[i])) else { return false };
        let ((first, then), replaced) = ways.swap_remove(best);
        while self.state[then as usize] == State::Ran {
            let Some(done) = self.done.pop() else { return false };
            self.undo(done);
        }
        if let Some((first, then)) = replaced {
            self.turned.entry(then).or_default().retain(|t| t.first != first);
        }
        let instead = ways.into_iter().map(|w| w.0).collect();
        self.turned.entry(then).or_default().push(Turned { first, instead });
        true
    }

    /// Must one run before another one since a guess was turned round?
    fn is_turned(&self, first: Txn, then: Txn) -> bool {
        self.turned.get(&then).is_some_and(|all| all.iter().any(|t| t.first == first))
    }

    /// What else could be turned round instead of this.
    fn instead_of(&self, turned: Before, ways: &mut Vec<(Before, Option<Before>)>) {
        let all = self.turned.get(&turned.1).map_or(&[][..], Vec::as_slice);
        let instead = all.iter().filter(|t| t.first == turned.0).flat_map(|t| &t.instead);
        let possible = instead.filter(|&&(first, then)| !self.is_turned(then, first) && !self.is_turned(first, then));
        ways.extend(possible.map(|&way| (way, Some(turned))));
    }

    /// Does the version that is there surely come before the one that a transaction is to write?
    fn is_certain(&self, txn: Txn, there: u32, by: u32) -> bool {
        let [old, new] = [there, by].map(|v| self.resolved.versions[v as usize]);
        old.writer == NONE
            || (self.keep.real_time && old.existed < new.lasted)
            || (self.keep.process && self.is_same_process(old.writer, txn) && old.writer < txn)
    }

    fn is_same_process(&self, one: Txn, other: Txn) -> bool {
        let process = self.txns.process[one as usize];
        process != NONE && process == self.txns.process[other as usize]
    }

    /// Takes back the last transaction that ran.
    fn undo(&mut self, done: Done) {
        self.steps += 1;
        self.at = done.at;
        self.state[done.txn as usize] = State::Waits;
        for (key, version) in self.undo.drain(done.undo as usize..).rev() {
            self.there[key as usize] = version;
        }
        for mop in self.txns.mops(done.txn) {
            let Some(named) = self.resolved.of(mop) else { continue };
            let version = named.version();
            if !self.txns.kind[mop].writes() {
                self.resolved.versions[version].pending += u32::from(named.is_outside());
                self.resolved.versions[version].live = self.resolved.versions[version].outside;
            } else if self.resolved.versions[version].next == UNLINKED {
                let first = &mut self.open[self.txns.key[mop] as usize];
                self.resolved.versions[version].next = std::mem::replace(first, version as u32);
            }
        }
    }

    /// What has yet to run before a transaction can.
    fn demand(&mut self, frame: Frame) -> Demand {
        let txn = frame.txn;
        if let Some(&previous) = self.previous.get(txn as usize)
            && previous != NONE
            && self.state[previous as usize] != State::Ran
        {
            return Demand::Run(previous, Why::Certain);
        }
        if !self.turned.is_empty()
            && let Some(&first) = self
                .turned
                .get(&txn)
                .and_then(|all| all.iter().map(|t| &t.first).find(|&&t| self.state[t as usize] != State::Ran))
        {
            return Demand::Run(first, Why::Turned);
        }
        let end = self.txns.offsets[txn as usize + 1];
        for mop in frame.next..end {
            self.steps += 1;
            let demand = self.demand_of(txn, mop as usize);
            if !matches!(demand, Demand::Nothing) {
                if let Some(frame) = self.frames.last_mut() {
                    frame.next = mop;
                }
                return demand;
            }
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.next = end;
        }
        Demand::Nothing
    }

    fn demand_of(&mut self, txn: Txn, mop: usize) -> Demand {
        let Some(named) = self.resolved.of(mop) else { return Demand::Nothing };
        let (key, version) = (self.txns.key[mop] as usize, named.version());
        let there = self.there[key] as usize;
        if !self.txns.kind[mop].writes() {
            let writer = self.resolved.versions[version].writer;
            return match (named.is_outside() && version != there, writer) {
                (false, _) => Demand::Nothing,
                (true, NONE) => Demand::Impossible,
                (true, writer) => Demand::Run(writer, Why::Certain),
            };
        }
        if self.resolved.versions[there].pending > u32::from(named.is_outside()) {
            let guessed = Why::Overwritten { there: there as u32, by: version as u32 };
            let why = if named.is_outside() { Why::Certain } else { guessed };
            return self.reader(txn, there).map_or(Demand::Impossible, |reader| Demand::Run(reader, why));
        }
        if !self.keep.real_time {
            return Demand::Nothing;
        }
        match self.earlier_write(txn, key, version) {
            Demand::Nothing => self.implied_write(txn, key, version),
            demand => demand,
        }
    }

    /// Another open write of a key that must run before one of a version, as one that reads this version demands it, or what it
    /// demands does. Looks at a bounded number of transactions: it only makes guesses better.
    fn implied_write(&mut self, txn: Txn, key: usize, version: usize) -> Demand {
        let mut latest = 0;
        let mut at = self.open[key];
        while at != END {
            let writer = self.resolved.versions[at as usize].writer;
            if writer != txn && !self.is_later(writer) {
                latest = latest.max(self.clock.rank[writer as usize]);
            }
            at = self.resolved.versions[at as usize].next;
        }
        if latest == 0 {
            return Demand::Nothing;
        }
        let readers = self.resolved.readers[self.resolved.versions[version].readers as usize..]
            .iter()
            .take(self.resolved.versions[version].live as usize)
            .filter(|&&r| r != txn && self.state[r as usize] != State::Ran && self.clock.before[r as usize] <= latest);
        let mut demanded: Vec<Txn> = readers.take(LOOKAHEAD).copied().collect();
        let readers = demanded.len();
        let mut looked_at = 0;
        while looked_at < demanded.len() && demanded.len() < 4 * LOOKAHEAD {
            let other = demanded[looked_at];
            self.steps += 1;
            let waits = self.state[other as usize] == State::Waits && !self.is_later(other);
            if looked_at >= readers && waits && self.writes_blindly(other, key) && !self.doubted.contains(&(other, txn))
            {
                return Demand::Run(other, Why::Implied);
            }
            self.demanded_by(other, txn, &mut demanded);
            looked_at += 1;
        }
        Demand::Nothing
    }

    /// Does a transaction write a key that it does not read?
    fn writes_blindly(&self, txn: Txn, key: usize) -> bool {
        let mut named = self.txns.mops(txn).filter(|&m| self.txns.key[m] as usize == key).map(|m| self.resolved.of(m));
        named.next().flatten().is_some_and(|first| !first.is_outside())
    }

    /// Adds what a transaction demands as things stand, directly.
    fn demanded_by(&self, by: Txn, but: Txn, demanded: &mut Vec<Txn>) {
        let mut add = |t: Txn| {
            if t != NONE && t != by && t != but && self.state[t as usize] != State::Ran && !demanded.contains(&t) {
                demanded.push(t);
            }
        };
        for mop in self.txns.mops(by) {
            let Some(named) = self.resolved.of(mop) else { continue };
            let there = self.there[self.txns.key[mop] as usize] as usize;
            if !self.txns.kind[mop].writes() {
                if named.version() != there {
                    add(self.resolved.versions[named.version()].writer);
                }
            } else if self.resolved.versions[there].pending > 0 {
                let first = self.resolved.versions[there].readers as usize;
                self.resolved.readers[first..][..(self.resolved.versions[there].live as usize).min(LOOKAHEAD)]
                    .iter()
                    .for_each(|&r| add(r));
            }
        }
    }

    /// Another one that read a version and has not run. O(1), over all calls.
    fn reader(&mut self, txn: Txn, version: usize) -> Option<Txn> {
        let first = self.resolved.versions[version].readers as usize;
        loop {
            let live = self.resolved.versions[version].live as usize;
            let last = (first + live).checked_sub(1).filter(|_| live > 0)?;
            let reader = self.resolved.readers[last];
            if self.state[reader as usize] == State::Ran {
                self.resolved.versions[version].live -= 1;
            } else if reader != txn {
                return Some(reader);
            } else if self.resolved.readers[first] != txn {
                self.resolved.readers.swap(first, last);
            } else {
                return None;
            }
        }
    }

    /// Another open write of a key that must run before one of a version.
    fn earlier_write(&mut self, txn: Txn, key: usize, version: usize) -> Demand {
        let lasted = self.resolved.versions[version].lasted;
        let mut kept = END;
        let mut at = self.open[key];
        while at != END {
            self.steps += 1;
            let known = self.resolved.versions[at as usize];
            let next = self.resolved.versions[at as usize].next;
            if self.state[known.writer as usize] == State::Ran {
                match kept {
                    END => self.open[key] = next,
                    kept => self.resolved.versions[kept as usize].next = next,
                }
                self.resolved.versions[at as usize].next = UNLINKED;
            } else if known.writer != txn && known.existed < lasted && !self.is_later(known.writer) {
                return Demand::Run(known.writer, Why::Certain);
            } else {
                kept = at;
            }
            at = next;
        }
        Demand::Nothing
    }

    /// Runs a transaction on what is there.
    fn run(&mut self, txn: Txn) -> bool {
        if self.ranks.is_some_and(|ranks| !self.follows_ranks(txn, ranks)) {
            return false;
        }
        let undo = self.undo.len() as u32;
        for mop in self.txns.mops(txn).filter(|&m| self.txns.kind[m].writes() && self.resolved.of(m).is_some()) {
            let key = self.txns.key[mop];
            self.undo.push((key, self.there[key as usize]));
        }
        let done = Done { txn, at: self.at, undo };
        if !applied(self.txns, self.resolved, txn, &mut self.there) {
            return false;
        }
        for mop in self.txns.mops(txn).filter(|&m| !self.txns.kind[m].writes()) {
            let Some(named) = self.resolved.of(mop) else { continue };
            self.resolved.versions[named.version()].pending -= u32::from(named.is_outside());
        }
        for mop in self.txns.mops(txn).filter(|&m| self.txns.kind[m].writes()) {
            let Some(version) = self.resolved.of(mop).map(|n| n.version()) else { continue };
            // Mostly it is the only open write of its key; and later nobody has to look at it, far away in memory, to find that it ran.
            let first = &mut self.open[self.txns.key[mop] as usize];
            if *first == version as u32 {
                *first = std::mem::replace(&mut self.resolved.versions[version].next, UNLINKED);
            }
        }
        self.state[txn as usize] = State::Ran;
        self.ran_at[txn as usize] = self.done.len() as u32;
        self.done.push(done);
        true
    }

    /// Did all whose versions a transaction overwrites commit before it?
    fn follows_ranks(&self, txn: Txn, ranks: &[u32]) -> bool {
        let later = |key: u32| {
            let version = self.there[key as usize] as usize;
            let writer = self.resolved.versions[version].writer;
            version == self.resolved.initial[key as usize] as usize || !before(ranks, txn, writer)
        };
        self.txns.mops(txn).filter(|&m| self.txns.kind[m].writes()).all(|m| later(self.txns.key[m]))
    }
}
