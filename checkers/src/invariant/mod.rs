//! Does a number hold? Totals, counters, locks, memberships, and orders of writes that every reader must agree on.
//!
//! A checker is a `State` that takes the events of one key in their order and says at the end what it found. The batch form
//! gives each key's events to a state of its own, in parallel (`check`); the online form routes them by key (`Online`). Both
//! therefore give the same answer, and a test holds them to it.
//!
//! Cost: what a state does, and O(log c) an operation to find the next completion among the c open ones.
//!
//! Measured, in processor time and peak memory an operation (one thread, 10^7 operations, `benches/results/checkers.tsv`):
//! `counter` 102 ns and 9 bytes, `pn-counter` 67 and 9, `bank` with eight accounts 254 and 9, `long-fork` 328 and 47, `adya-g2` 888 and 87
//! (its values are texts, each read once), `subkeys` 165 and 1, `monotonic` 83 and 29, with timestamps 590 and 64, `mutex-exclusion` 68 and 12 where most
//! are refused, `lock-set` 221 and 87, `membership` 217 and 25, `reconcile` 113 and 9, `final-state` 11 and 1, `fairness` 46 and 20. Each is within three times
//! decoding the file.

mod atoms;
pub mod bank;
pub mod causal_reverse;
pub mod counter;
pub mod fairness;
pub mod final_state;
pub mod g2;
pub mod locks;
pub mod long_fork;
pub mod membership;
pub mod monotonic;
pub mod reconcile;
pub mod replicated;
pub mod subkeys;
pub mod sums;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod twins;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use elench_formats::History;
use elench_formats::columns::Scalar;
use elench_formats::history::{OpRef, Status as Ended};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::findings::{Findings, Incremental, Part, by_key};
use crate::outcome::KeyId;
use crate::parts::Keys;

/// What a checker knows of one key so far.
pub(crate) trait State: Clone + Send + Sync + 'static {
    /// Is all that it is given looked at together, at the end, in whatever order it came? Then nothing is invoked, and there is no need to
    /// wait for completions.
    const AT_END: bool = false;

    /// An operation begins; only what its invocation says may be asked of it.
    fn invoked(&mut self, op: &OpRef<'_>);

    /// It ends, or never will.
    fn completed(&mut self, op: &OpRef<'_>);

    /// What is violated whatever may follow.
    fn violated(&self) -> Option<&'static str>;

    /// Nothing follows.
    fn finish(self) -> Findings;
}

/// Checks each key by itself, beginning with `blank`.
pub(crate) fn check<S: State>(history: &History, examples: usize, blank: &S) -> Findings {
    by_key(history, examples, |part| drive(part, blank.clone()))
}

/// Checks all operations together: for checkers whose keys are not those of the history.
pub(crate) fn check_whole<S: State>(history: &History, blank: S) -> Findings {
    drive(Part::whole(history), blank).of_all()
}

/// A completion that is to come.
struct Next<'a> {
    at: Reverse<u64>,
    op: OpRef<'a>,
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Next<'_> {}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// Gives the events of a part to a state, those that never end last.
fn drive<S: State>(part: Part<'_>, mut state: S) -> Findings {
    if S::AT_END {
        part.ops().for_each(|op| state.completed(&op));
        return state.finish();
    }
    let mut open: BinaryHeap<Next<'_>> = BinaryHeap::new();
    let mut never = Vec::new();
    part.ops().for_each(|op| {
        while open.peek().is_some_and(|next| next.at.0 < op.index()) {
            if let Some(next) = open.pop() {
                state.completed(&next.op);
            }
        }
        state.invoked(&op);
        match op.complete_index() {
            Some(at) => open.push(Next { at: Reverse(at), op }),
            None => never.push(op),
        }
    });
    while let Some(next) = open.pop() {
        state.completed(&next.op);
    }
    never.iter().for_each(|op| state.completed(op));
    state.finish()
}

/// The online form: a state a key, made when the key first occurs. An operation without a key belongs to every key.
pub(crate) struct Online<S> {
    blank: S,
    keys: Vec<(S, String)>,
    by_key: HashMap<Scalar, usize, FixedState>,
    examples: usize,
    /// Do the checker's keys differ from those of the history?
    whole: bool,
}

impl<S: State> Online<S> {
    /// Beginning with `blank`.
    pub(crate) fn new(blank: S, examples: usize) -> Box<Self> {
        Box::new(Online { blank, keys: Vec::new(), by_key: HashMap::default(), examples, whole: false })
    }

    /// For a checker whose keys are not those of the history.
    pub(crate) fn whole(blank: S) -> Box<Self> {
        Box::new(Online { whole: true, ..*Online::new(blank, 0) })
    }

    fn route(&mut self, op: &OpRef<'_>, give: impl Fn(&mut S, &OpRef<'_>)) {
        let key = op.key();
        if self.whole || key == Scalar::Nil {
            give(&mut self.blank, op);
            return self.keys.iter_mut().for_each(|(state, _)| give(state, op));
        }
        let at = *self.by_key.entry(key).or_insert_with(|| {
            let text = match key {
                Scalar::Text(id) => op.text(id).to_string(),
                Scalar::Int(n) => n.to_string(),
                Scalar::Nil => "nil".into(),
            };
            self.keys.push((self.blank.clone(), text));
            self.keys.len() - 1
        });
        give(&mut self.keys[at].0, op);
    }
}

impl<S: State> Incremental for Online<S> {
    fn invoked(&mut self, op: &OpRef<'_>) {
        self.route(op, S::invoked);
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.route(op, S::completed);
    }

    fn violated(&self) -> Option<&'static str> {
        if self.keys.is_empty() {
            return self.blank.violated();
        }
        self.keys.iter().find_map(|(state, _)| state.violated())
    }

    fn finish(self: Box<Self>) -> Findings {
        if self.keys.is_empty() {
            return self.blank.finish().of_all();
        }
        let of = |(k, (state, text)): (usize, (S, String))| (state.finish().of_key(KeyId(k as u32), &text), text);
        self.keys.into_iter().enumerate().map(of).fold(Keys::new(self.examples), Keys::with).together()
    }
}

/// Did it certainly not happen?
pub(crate) fn failed(op: &OpRef<'_>) -> bool {
    op.status() == Ended::Fail
}

/// Did it happen?
pub(crate) fn acknowledged(op: &OpRef<'_>) -> bool {
    op.status() == Ended::Ok
}

/// Is it marked as made when all had come to rest? `:final? true`, as Jepsen's generators write it.
pub(crate) fn is_final(op: &OpRef<'_>) -> bool {
    ["final?", "final"].iter().any(|name| op.extra(name) == Some("true"))
}
