//! What did a checker of deliveries, sessions or invariants find?
//!
//! [`Findings`] counts everything and explains a handful of each kind, so that evidence stays small however much is wrong; whoever
//! wants all asks for as many examples as there are. A kind is either a violation, or merely noted: something a reader of the
//! verdict should know and that breaks no promise (an unknown write that turned up, a duplicate under at-least-once). Beside them
//! stand facts: what holds, how late, how many.
//!
//! The answer follows from these by one rule for all checkers: any violation, invalid; else undecided for a reason, unknown; else
//! no acknowledged operation of the kind judged, unknown; else valid.
//!
//! [`by_key`] checks the keys of a history in parallel; [`Incremental`] is the form for those that check while a history is written.

use std::collections::BTreeMap;

use elench_formats::History;
use elench_formats::history::{OpRef, Side, Status as Ended};

use crate::latencies::Latencies;
use crate::outcome::{Coverage, KeyId, OpId, Outcome, Status, Undecided, Violation, Why};
pub use crate::parts::{Part, by_key};

/// What weighs a kind?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// It breaks what the checker holds the system to.
    Violation,
    /// It is worth knowing, and breaks nothing.
    Note,
}

/// One instance, explained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// The key, as EDN text, where the history has keys.
    pub key: Option<String>,
    /// The operations that show it.
    pub ops: Vec<OpId>,
    /// Why, for a person.
    pub text: String,
}

impl Example {
    /// Shown by these operations.
    pub fn new(ops: impl IntoIterator<Item = OpId>, text: impl Into<String>) -> Example {
        Example { key: None, ops: ops.into_iter().collect(), text: text.into() }
    }
}

/// All instances of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Violation or note.
    pub weight: Weight,
    /// How many.
    pub count: u64,
    /// Some of them, the first found first.
    pub examples: Vec<Example>,
}

/// Quantiles of a duration, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// How many durations.
    pub count: u64,
    /// Parts per thousand, and the duration that this part does not exceed.
    pub at: Vec<(u16, u64)>,
}

/// Something that describes a history.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A number of things: those of several keys add up.
    Count(u64),
    /// A number of any sign, by itself.
    Int(i128),
    /// A ratio or mean.
    Real(f64),
    /// In words.
    Text(String),
    /// A duration in nanoseconds.
    Nanos(i64),
    /// Many durations.
    Quantiles(Quantiles),
    /// Rows under named columns.
    Table(Table),
}

/// Rows under named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// A fact a column, each row as long as there are columns.
    pub rows: Vec<Vec<Fact>>,
}

/// Under names, in the order in which they were told.
type Named<T> = Vec<(String, T)>;

/// All that one checker found.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    kinds: BTreeMap<&'static str, Kind>,
    facts: Named<Fact>,
    /// Behind facts of these names that are quantiles: what they are the quantiles of.
    durations: Named<Latencies>,
    /// What this rests on.
    pub coverage: Coverage,
    undecided: Option<Why>,
    examples: usize,
}

impl Findings {
    /// Nothing yet; of each kind so many examples will be kept.
    pub fn new(examples: usize) -> Findings {
        Findings {
            kinds: BTreeMap::new(),
            facts: Vec::new(),
            durations: Vec::new(),
            coverage: Coverage::default(),
            undecided: None,
            examples,
        }
    }

    /// One more instance of a violation. The example is made only where it is kept.
    pub fn violation(&mut self, kind: &'static str, example: impl FnOnce() -> Example) {
        self.add(kind, Weight::Violation, example);
    }

    /// One more instance of what is merely noted.
    pub fn note(&mut self, kind: &'static str, example: impl FnOnce() -> Example) {
        self.add(kind, Weight::Note, example);
    }

    /// One more instance. A kind that was a violation once stays one.
    pub fn add(&mut self, kind: &'static str, weight: Weight, example: impl FnOnce() -> Example) {
        let found = self.kinds.entry(kind).or_insert_with(|| Kind { weight, count: 0, examples: Vec::new() });
        found.weight = found.weight.min(weight);
        found.count += 1;
        if found.examples.len() < self.examples {
            found.examples.push(example());
        }
    }

    /// How many examples of a kind are kept.
    pub fn examples(&self) -> usize {
        self.examples
    }

    /// Keeps so many examples of each kind.
    pub fn keep(&mut self, examples: usize) {
        self.examples = examples;
        self.kinds.values_mut().for_each(|kind| kind.examples.truncate(examples));
    }

    /// Describes.
    pub fn fact(&mut self, name: impl Into<String>, fact: Fact) {
        self.facts.push((name.into(), fact));
    }

    /// Describes durations by their quantiles, if there are any. Those of several keys are merged.
    pub(crate) fn durations(&mut self, name: &str, all: &Latencies) {
        if let Some(quantiles) = all.quantiles() {
            self.fact(name, Fact::Quantiles(quantiles));
            self.durations.push((name.to_string(), all.clone()));
        }
    }

    /// What describes, with the durations behind it.
    pub(crate) fn take_facts(&mut self) -> (Named<Fact>, Named<Latencies>) {
        (std::mem::take(&mut self.facts), std::mem::take(&mut self.durations))
    }

    /// Something could not be decided; the first reason is kept.
    pub fn undecided(&mut self, why: Why) {
        self.undecided.get_or_insert(why);
    }

    /// Kinds, by name.
    pub fn kinds(&self) -> &BTreeMap<&'static str, Kind> {
        &self.kinds
    }

    /// How many of a kind there are.
    pub fn count(&self, kind: &str) -> u64 {
        self.kinds.get(kind).map_or(0, |k| k.count)
    }

    /// Facts, in the order in which they were told.
    pub fn facts(&self) -> &[(String, Fact)] {
        &self.facts
    }

    /// The fact of this name.
    pub fn fact_of(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|(n, _)| n == name).map(|(_, fact)| fact)
    }

    /// Violations, by name.
    pub fn violations(&self) -> impl Iterator<Item = (&'static str, &Kind)> {
        self.kinds.iter().filter(|(_, k)| k.weight == Weight::Violation).map(|(name, k)| (*name, k))
    }

    /// Why it is neither valid nor invalid, if so.
    pub fn why(&self) -> Option<Why> {
        if self.violations().next().is_some() {
            return None;
        }
        let given_up = self.coverage.undecided.first().map(|u| u.why.clone());
        self.undecided
            .clone()
            .or(given_up)
            .or_else(|| (self.coverage.with_status(Status::Ok) == 0).then_some(Why::NoEvidence))
    }

    /// Is something violated?
    pub fn is_invalid(&self) -> bool {
        self.violations().next().is_some()
    }

    /// Is everything decided, on evidence, and nothing violated?
    pub fn is_valid(&self) -> bool {
        !self.is_invalid() && self.why().is_none()
    }

    /// The answer in the form that all checkers share.
    pub fn outcome(&self) -> Outcome {
        let mut violations = self.violations().map(|(kind, found)| {
            let first = found.examples.first();
            Violation {
                kind,
                ops: first.map(|e| e.ops.clone()).unwrap_or_default(),
                explanation: first.map(|e| e.text.clone()).unwrap_or_default(),
                certificate: None,
            }
        });
        if let Some(first) = violations.next() {
            return Outcome::invalid(self.coverage.clone(), first, violations.collect());
        }
        match self.why() {
            Some(why) => Outcome::unknown(self.coverage.clone(), why),
            None => Outcome::valid(self.coverage.clone(), None),
        }
    }

    /// As what was found in the operations of one key.
    #[must_use]
    pub(crate) fn of_key(mut self, key: KeyId, text: &str) -> Findings {
        self.kinds.values_mut().flat_map(|kind| &mut kind.examples).for_each(|e| e.key = Some(text.to_string()));
        self.coverage.keys = 1;
        let silent = self.is_silent();
        self.coverage.keys_silent = u64::from(silent);
        self.coverage.keys_decided = u64::from(!silent && self.undecided.is_none());
        if let Some(why) = self.undecided.clone().filter(|_| !silent) {
            self.coverage.undecided.push(Undecided { key: Some(key), why, known: String::new() });
        }
        self
    }

    /// Does it hold nothing of the kind judged, so that it says nothing about a history of which it is a part? A part that consumed
    /// acknowledged operations and yet cannot judge them is undecided instead.
    fn is_silent(&self) -> bool {
        let vain = self.undecided.as_ref().is_none_or(|why| *why == Why::NoEvidence);
        vain && self.coverage.with_status(Status::Ok) == 0 && !self.is_invalid()
    }

    /// As what was found in a history without keys.
    #[must_use]
    pub(crate) fn of_all(mut self) -> Findings {
        self.coverage.keys = 1;
        self.coverage.keys_decided = u64::from(self.undecided.is_none());
        self
    }

    /// Everything found so far is about this key.
    pub fn name_key(&mut self, key: Option<String>) {
        self.kinds.values_mut().flat_map(|kind| &mut kind.examples).for_each(|e| e.key = key.clone());
    }

    /// Takes in what was found in another part of the same history. The facts of a part are its own and are dropped; a part
    /// that consumed no acknowledged operation leaves the whole as it is.
    pub fn merge(&mut self, part: Findings) {
        let silent = part.is_silent();
        for (name, more) in part.kinds {
            let kind =
                self.kinds.entry(name).or_insert_with(|| Kind { weight: more.weight, count: 0, examples: vec![] });
            kind.weight = kind.weight.min(more.weight);
            kind.count += more.count;
            let room = self.examples.saturating_sub(kind.examples.len());
            kind.examples.extend(more.examples.into_iter().take(room));
        }
        self.coverage.add(part.coverage);
        if let Some(why) = part.undecided.filter(|_| !silent) {
            self.undecided(why);
        }
    }
}

/// Checks while a history is written.
///
/// Events come in their order. Until an operation is completed, nothing but what its invocation said may be asked of it. Those
/// still open at the end are given to [`Incremental::completed`] as [`Ended::Pending`], in the order of their invocations.
pub trait Incremental: Send {
    /// An operation begins.
    fn invoked(&mut self, op: &OpRef<'_>);

    /// It ends.
    fn completed(&mut self, op: &OpRef<'_>);

    /// What is known to be violated so far, whatever may follow.
    fn violated(&self) -> Option<&'static str>;

    /// Nothing follows.
    fn finish(self: Box<Self>) -> Findings;
}

/// Gives a whole history to an incremental checker, event by event.
pub fn replay(history: &History, mut checker: Box<dyn Incremental>) -> Findings {
    for (op, side) in history.events().filter(|(op, _)| op.is_client()) {
        match side {
            Side::Invocation => checker.invoked(&op),
            Side::Completion => checker.completed(&op),
        }
    }
    let never = history.clients().filter(|op| op.complete_index().is_none() && op.status() == Ended::Pending);
    never.for_each(|op| checker.completed(&op));
    checker.finish()
}

/// How an operation ended, in the three ways that count.
#[inline]
pub fn ended(op: &OpRef<'_>) -> Status {
    match op.status() {
        Ended::Ok => Status::Ok,
        Ended::Fail => Status::Fail,
        Ended::Info | Ended::Pending => Status::Info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumed(n: u64) -> Findings {
        let mut findings = Findings::new(1);
        findings.coverage.count("read", Status::Ok, n);
        findings
    }

    #[test]
    fn nothing_consumed_is_unknown_and_a_violation_beats_what_is_undecided() {
        assert_eq!(consumed(0).why(), Some(Why::NoEvidence));
        assert!(consumed(1).is_valid());
        let mut findings = consumed(1);
        findings.undecided(Why::Other("too much".into()));
        assert!(!findings.is_valid() && !findings.is_invalid());
        findings.note("recovered", Example::default);
        assert!(!findings.is_invalid());
        findings.violation("lost", || Example::new([OpId(3)], "gone"));
        findings.violation("lost", || unreachable!("only one example is kept"));
        assert!(findings.is_invalid() && findings.outcome().is_invalid());
        assert_eq!(findings.count("lost"), 2);
    }
}
