//! How is an order of all transactions found that explains every read?
//!
//! The transactions are run in the order of their completions, each as late as it may be, and before each what it demands:
//!
//! - a read demands that who wrote its version ran;
//! - a write demands that all who read the version that it overwrites ran, since none of them can later;
//! - a write demands that those writes of its key ran that [surely](super::earlier) come before it;
//! - a transaction demands that the one before it in its process ran (where that counts).
//!
//! Each of these is necessary, given what ran before; only which of two writes that nothing orders runs first is a guess. When demands
//! run in a circle, or ask for what is not invoked yet, one of the guesses that they rest on was wrong. As in a SAT
//! solver that learns clauses (Marques-Silva and Sakallah, 1996), the latest of them is turned round as long as the others
//! [hold](super::turned), all that ran since is taken back, and the search goes on from there: what lies before is not touched. Where
//! demands that rest on no guess contradict each other, there is no order, and that is found where it is, at once.
//!
//! So much may be done for every micro-operation, and so much without getting any further; then there is no answer.
//! O(micro-operations), where few guesses are wrong. Memory: 25 bytes a transaction, 8 a micro-operation and 4 a key, and some 100 a guess
//! turned round that may still matter.

use super::earlier::Earlier;
use super::refute::Log;
use super::resolve::{Clock, NEVER, Resolved};
use super::serial::{Answer, Question, previous};
use super::timestamps::before;
use super::turned::{Before, Ran, Turned};
use crate::txn::history::{NONE, Txn, Txns};

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

/// How much the search may do a micro-operation, and beyond that.
const SLACK: u64 = 16;
const BEYOND: u64 = 1 << 20;

/// Steps without getting further than ever before.
const FRUITLESS: u64 = 1 << 18;

/// Micro-operations that are looked at once more each time that another transaction ran, rather than when all were.
const SHORT: u32 = 8;

/// Steps that turning a guess round counts for.
const TURN: u64 = 64;

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

/// Why a transaction cannot run.
enum Conflict {
    /// Demands that cannot be met, each of the first for the second to run before it.
    Demands(Vec<(Txn, Txn, Why)>),
    /// The steps are used up, or something is asked for that no demand explains.
    Unclear,
}

/// What became of the search, or of one guess.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Managed,
    /// Demands that rest on no guess contradict each other.
    Refuted,
    Unclear,
}

/// Finds an order of all transactions that committed. It is yet to be shown to be one.
pub(super) fn order(question: Question<'_>, resolved: &mut Resolved) -> Answer {
    let mut search = Search::new(question, resolved, None);
    match search.all() {
        End::Managed => Answer::Order(search.done.iter().map(|d| d.txn).collect()),
        End::Refuted => Answer::Refuted,
        End::Unclear => Answer::Unknown,
    }
}

/// Searches once more, and tells all conflicts, if the last of them rests on no guess.
pub(super) fn conflicts(question: Question<'_>, resolved: &mut Resolved) -> Option<Log> {
    let mut search = Search::new(question, resolved, Some(Log::default()));
    (search.all() == End::Refuted).then_some(search.log).flatten()
}

struct Search<'a> {
    question: Question<'a>,
    resolved: &'a mut Resolved,
    earlier: Earlier,
    /// By key: the version that is there.
    there: Vec<u32>,
    state: Vec<State>,
    /// By transaction: the one before it in its process; none at all where real time says as much.
    previous: Vec<Txn>,
    /// Nothing that was invoked after this rank may run yet.
    limit: u32,
    frames: Vec<Frame>,
    done: Vec<Done>,
    /// By transaction: how many had run when it last did.
    ran_at: Vec<u32>,
    /// Keys, and what was there before.
    undo: Vec<(u32, u32)>,
    turned: Turned,
    /// All conflicts, where they are to be told.
    log: Option<Log>,
    /// Where the schedule stands.
    at: u32,
    steps: u64,
    most: u64,
}

impl<'a> Search<'a> {
    fn new(question: Question<'a>, resolved: &'a mut Resolved, log: Option<Log>) -> Search<'a> {
        let Question { txns, clock, keep, .. } = question;
        resolved.reset();
        Search {
            earlier: Earlier::new(question, resolved),
            there: resolved.initial.clone(),
            state: vec![State::Waits; txns.len()],
            previous: if keep.process { demanded(question) } else { Vec::new() },
            limit: 0,
            frames: Vec::new(),
            done: Vec::with_capacity(clock.order.len() + resolved.seen.len()),
            ran_at: vec![0; txns.len()],
            undo: Vec::with_capacity(txns.mop_count()),
            turned: Turned::new(txns.len()),
            log,
            at: 0,
            steps: 0,
            most: SLACK * (txns.mop_count() + txns.len()) as u64 + BEYOND,
            question,
            resolved,
        }
    }

    /// Runs all that committed.
    fn all(&mut self) -> End {
        let Question { txns, clock, keep, budget, .. } = self.question;
        let in_time = keep.real_time;
        let mut schedule = if in_time { clock.order.clone() } else { in_turn(txns, clock) };
        let completed = schedule.len();
        schedule.extend(self.resolved.seen.iter().map(|s| s.0));
        let (mut asked, mut furthest, mut since) = (STEPS, 0, 0);
        while let Some(&txn) = schedule.get(self.at as usize) {
            if self.steps > asked {
                if self.steps > self.most || self.steps - since > FRUITLESS || budget.spent().is_some() {
                    return End::Unclear;
                }
                asked = self.steps + STEPS;
            }
            if self.at > furthest {
                (furthest, since) = (self.at, self.steps);
            }
            self.limit = if in_time && (self.at as usize) < completed { self.at } else { NEVER };
            if self.state[txn as usize] == State::Waits
                && let Err(conflict) = self.root(txn)
            {
                match self.turn(&conflict) {
                    End::Managed => continue,
                    end => return end,
                }
            }
            self.at += 1;
        }
        End::Managed
    }

    /// Runs a transaction and before it what it demands.
    fn root(&mut self, txn: Txn) -> Result<(), Conflict> {
        self.frames.clear();
        self.begin(txn, Why::Certain)?;
        while let Some(&frame) = self.frames.last() {
            self.steps += 1;
            match self.demand(frame) {
                _ if self.steps > self.most => return Err(Conflict::Unclear),
                Demand::Run(other, why) => self.begin(other, why)?,
                Demand::Impossible => return Err(Conflict::Unclear),
                Demand::Nothing if self.frames.last().is_some_and(|f| f.again) => {
                    // What ran meanwhile may have changed what was found right.
                    if let Some(frame) = self.frames.last_mut() {
                        (frame.next, frame.again) = (self.question.txns.offsets[frame.txn as usize], false);
                    }
                }
                Demand::Nothing => {
                    self.run(frame.txn);
                    self.frames.pop();
                    if let Some(frame) = self.frames.last_mut() {
                        // What was found right may be so no more: what is short is looked at once more right away.
                        let start = self.question.txns.offsets[frame.txn as usize];
                        (frame.next, frame.again) =
                            if frame.next < start + SHORT { (start, false) } else { (frame.next, true) };
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes up a transaction.
    fn begin(&mut self, txn: Txn, why: Why) -> Result<(), Conflict> {
        let of = |frames: &[Frame]| {
            let demanded = frames.windows(2).map(|w| (w[0].txn, w[1].txn, w[1].why));
            Conflict::Demands(demanded.chain(frames.last().map(|f| (f.txn, txn, why))).collect())
        };
        match self.state[txn as usize] {
            State::Ran => return Err(Conflict::Unclear),
            State::Demands => {
                let circle = self.frames.iter().position(|f| f.txn == txn).unwrap_or(0);
                return Err(of(&self.frames[circle..]));
            }
            // The first that demands must not wait for one that was invoked when it had completed.
            State::Waits if self.is_later(txn) => return Err(of(&self.frames)),
            State::Waits => {}
        }
        self.state[txn as usize] = State::Demands;
        self.frames.push(Frame { txn, why, next: self.question.txns.offsets[txn as usize], again: false });
        Ok(())
    }

    /// Was it invoked after what now has to run?
    fn is_later(&self, txn: Txn) -> bool {
        self.question.keep.real_time && self.question.clock.before[txn as usize] > self.limit
    }

    /// Turns the latest guess round of those that demands rest on. They are refuted when they rest on none.
    fn turn(&mut self, conflict: &Conflict) -> End {
        self.frames.drain(..).for_each(|f| self.state[f.txn as usize] = State::Waits);
        self.steps += TURN;
        let Conflict::Demands(demands) = conflict else { return End::Unclear };
        let (mut guesses, mut turned) = (Vec::new(), Vec::new());
        for &(txn, other, why) in demands {
            match why {
                Why::Certain => {}
                Why::Turned => turned.push((other, txn)),
                Why::Overwritten { there, by } if !self.is_certain(txn, there, by) => {
                    guesses.push((self.resolved.versions[there as usize].writer, txn));
                }
                Why::Overwritten { .. } => {}
            }
        }
        guesses.extend(turned);
        let mut used = Vec::new();
        let mut guesses = self.turned.reasons(guesses, &self.ran(), &mut used);
        if let Some(log) = &mut self.log {
            log.add(demands.iter().map(|&(txn, other, _)| (txn, other)), &guesses, &used);
        }
        // What has yet to run was guessed last of all.
        let when = |guess: &Before| self.ran().at(guess.0).unwrap_or(NEVER);
        let Some(latest) = (0..guesses.len()).max_by_key(|&i| when(&guesses[i])) else { return End::Refuted };
        let (then, first) = guesses.swap_remove(latest);
        while self.state[then as usize] == State::Ran {
            let Some(done) = self.done.pop() else { return End::Unclear };
            self.undo(done);
        }
        self.turned.add(first, then, guesses);
        if self.turned.is_crowded() {
            let near = self.done.len().saturating_sub(NEAR) as u32;
            let (state, ran_at) = (&self.state, &self.ran_at);
            self.turned.retain(|t| state[t as usize] != State::Ran || ran_at[t as usize] >= near);
        }
        End::Managed
    }

    fn ran(&self) -> Ran<'_, impl Fn(Txn) -> bool> {
        Ran { has: |t: Txn| self.state[t as usize] == State::Ran, at: &self.ran_at }
    }

    /// Does the version that is there surely come before the one that a transaction is to write?
    fn is_certain(&self, txn: Txn, there: u32, by: u32) -> bool {
        let Question { keep, ranks, .. } = self.question;
        let [old, new] = [there, by].map(|v| self.resolved.versions[v as usize]);
        old.writer == NONE
            || (keep.real_time && old.existed < new.lasted)
            || (keep.process && self.is_same_process(old.writer, txn) && old.writer < txn)
            || ranks.is_some_and(|ranks| before(ranks, old.writer, txn))
    }

    /// Did one process run both, and acknowledge the first?
    fn is_same_process(&self, first: Txn, other: Txn) -> bool {
        let txns = self.question.txns;
        let process = txns.process[first as usize];
        process != NONE && process == txns.process[other as usize] && txns.ok(first)
    }

    /// Takes back the last transaction that ran.
    fn undo(&mut self, done: Done) {
        let txns = self.question.txns;
        self.steps += 1;
        self.at = done.at;
        self.state[done.txn as usize] = State::Waits;
        for (key, version) in self.undo.drain(done.undo as usize..).rev() {
            self.there[key as usize] = version;
        }
        for mop in txns.mops(done.txn).filter(|&m| !txns.kind[m].writes()) {
            let Some(named) = self.resolved.of(mop) else { continue };
            let version = &mut self.resolved.versions[named.version()];
            version.pending += u32::from(named.is_outside());
            version.live = version.outside;
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
        if self.turned.has(txn)
            && let Some(first) = self.turned.first(txn, &self.ran())
        {
            return Demand::Run(first, Why::Turned);
        }
        let end = self.question.txns.offsets[txn as usize + 1];
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
        let txns = self.question.txns;
        let Some(named) = self.resolved.of(mop) else { return Demand::Nothing };
        let version = named.version();
        let there = self.there[txns.key[mop] as usize] as usize;
        if !txns.kind[mop].writes() {
            if !named.is_outside() || version == there {
                return Demand::Nothing;
            }
            return match self.resolved.versions[version].writer {
                NONE => Demand::Impossible,
                writer => Demand::Run(writer, Why::Certain),
            };
        }
        if self.resolved.versions[there].pending > u32::from(named.is_outside()) {
            let guessed = Why::Overwritten { there: there as u32, by: version as u32 };
            let why = if named.is_outside() { Why::Certain } else { guessed };
            return self.reader(txn, there).map_or(Demand::Impossible, |reader| Demand::Run(reader, why));
        }
        let first = self.resolved.versions[version].earlier;
        let waits = |&t: &Txn| self.state[t as usize] != State::Ran;
        self.earlier.of(first).find(waits).map_or(Demand::Nothing, |other| Demand::Run(other, Why::Certain))
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

    /// Runs a transaction on what is there.
    fn run(&mut self, txn: Txn) {
        let txns = self.question.txns;
        let undo = self.undo.len() as u32;
        for mop in txns.mops(txn) {
            let Some(named) = self.resolved.of(mop) else { continue };
            if txns.kind[mop].writes() {
                let key = txns.key[mop];
                let there = &mut self.there[key as usize];
                self.undo.push((key, std::mem::replace(there, named.version() as u32)));
            } else if named.is_outside() {
                self.resolved.versions[named.version()].pending -= 1;
            }
        }
        self.state[txn as usize] = State::Ran;
        self.ran_at[txn as usize] = self.done.len() as u32;
        self.done.push(Done { txn, at: self.at, undo });
    }
}

/// By transaction: the one before it in its process; empty where each had completed when the next was invoked, and that counts.
fn demanded(question: Question<'_>) -> Vec<Txn> {
    let Question { txns, clock, keep, .. } = question;
    let previous = previous(txns);
    let in_time = |(t, &p): (usize, &Txn)| p == NONE || clock.rank[p as usize] < clock.before[t];
    if keep.real_time && previous.iter().enumerate().all(in_time) { Vec::new() } else { previous }
}

/// What ran so long ago is hardly taken back: guesses turned round for it may be forgotten.
const NEAR: usize = 1 << 12;

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
