//! What does a checker answer?
//!
//! An [`Outcome`] is an [`Answer`] and its [`Coverage`]: what the answer rests on. It can only be built through
//! [`Outcome::valid`], [`Outcome::invalid`] and [`Outcome::unknown`], each of which asks for the coverage; `valid` on no
//! evidence becomes `unknown`. Merged, invalid beats unknown beats valid, and keys given up stay listed either way.

use std::collections::BTreeMap;
use std::fmt;

use crate::budget::Spent;

/// An operation, by the event index of its invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op {}", self.0)
    }
}

/// A key, by its position in the history's index of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u32);

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// It happened.
    Ok,
    /// It did not happen.
    Fail,
    /// Nobody knows, or it never ended.
    Info,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The budget was used up.
    Spent(Spent),
    /// The history holds no completed operation of the kind that the checker judges.
    NoEvidence,
    /// Anything else, in words: a panic, an input the checker cannot judge.
    Other(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Spent(spent) => spent.fmt(f),
            Why::NoEvidence => f.write_str("no completed operation of the kind that this checker judges"),
            Why::Other(text) => f.write_str(text),
        }
    }
}

/// A key that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The key, or none when the history has no keys.
    pub key: Option<KeyId>,
    /// Why.
    pub why: Why,
    /// What is known nevertheless, in words: up to where the history is fine, and what stood open there.
    pub known: String,
}

/// The way in which a key, or an independent part of one, was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// A search for an order.
    Search,
    /// A polynomial-time monitor, its order verified or its conflict confirmed by the search.
    Monitor,
    /// Monitor and search, which agree.
    Both,
}

impl Method {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Method::Search => "search",
            Method::Monitor => "monitor",
            Method::Both => "both",
        }
    }
}

/// What an answer rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Operations consumed, by kind and outcome.
    pub ops: BTreeMap<(String, Status), u64>,
    /// Keys seen; a history without keys counts as one.
    pub keys: u64,
    /// Keys decided either way.
    pub keys_decided: u64,
    /// Keys that hold no acknowledged operation of the kind judged, and so say nothing.
    pub keys_silent: u64,
    /// Keys given up.
    pub undecided: Vec<Undecided>,
    /// How many keys, or independent parts of them, were put to which way of deciding, where there is more than one.
    pub methods: BTreeMap<Method, u64>,
}

impl Coverage {
    /// Counts keys, or parts of them, decided in a way.
    pub fn decided_by(&mut self, method: Method, n: u64) {
        *self.methods.entry(method).or_default() += n;
    }

    /// Counts operations.
    pub fn count(&mut self, kind: &str, status: Status, n: u64) {
        if n > 0 {
            *self.ops.entry((kind.to_string(), status)).or_default() += n;
        }
    }

    /// Operations consumed in all.
    pub fn ops_consumed(&self) -> u64 {
        self.ops.values().sum()
    }

    /// Operations consumed that ended so.
    pub fn with_status(&self, status: Status) -> u64 {
        self.ops.iter().filter(|((_, s), _)| *s == status).map(|(_, n)| n).sum()
    }

    pub(crate) fn add(&mut self, other: Coverage) {
        for (key, n) in other.ops {
            *self.ops.entry(key).or_default() += n;
        }
        self.keys += other.keys;
        self.keys_decided += other.keys_decided;
        self.keys_silent += other.keys_silent;
        self.undecided.extend(other.undecided);
        for (method, n) in other.methods {
            self.decided_by(method, n);
        }
    }
}

/// An order of one key's operations that the model allows and real time too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// The key.
    pub key: Option<KeyId>,
    /// Every completed operation once, and those of the others that are taken to have happened. None when the log of orders
    /// outgrew the memory allowed: the answer stands, its certificate was dropped.
    pub order: Option<Vec<OpId>>,
}

/// One way the search could go, up to the completion that no way survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadEnd {
    /// The model's state there.
    pub state: String,
    /// Open operations that had taken effect.
    pub applied: Vec<OpId>,
    /// The other operations open then, and why none of them helps.
    pub blocked: Vec<(OpId, String)>,
    /// The order that led there, unless the log of orders was dropped.
    pub order: Option<Vec<OpId>>,
}

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The key.
    pub key: Option<KeyId>,
    /// Everything before this operation's completion has a legal order; nothing up to and with it has.
    pub op: OpId,
    /// Different ways that were left just before (after those were dropped that others cover), or how many at least where the
    /// past was too wide to go all of them. Where a monitor found the
    /// conflict, these are ways of its core alone.
    pub survivors: u64,
    /// A handful of them.
    pub dead_ends: Vec<DeadEnd>,
    /// Operations that have no legal order among themselves, such that this proves the whole history to have none: only
    /// operations were left out whose leaving cannot turn a legal order into an illegal one.
    pub core: Vec<OpId>,
    /// A subset of the core that still has no legal order, in which every value observed is still written or initial:
    /// shorter to read, but where a value is written more than once not a proof about the whole.
    pub minimal: Vec<OpId>,
    /// Checks it took to find them.
    pub rechecks: u64,
    /// Does leaving out any one more operation (within those rules) make the rest linearizable? False when the time for
    /// shrinking ran out.
    pub shrunk_fully: bool,
}

/// What an independent verifier can check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Legal orders, by key.
    Orders(Vec<KeyOrder>),
    /// The place where no order is left.
    Stuck(Box<Stuck>),
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name in the literature.
    pub kind: &'static str,
    /// The operations involved.
    pub ops: Vec<OpId>,
    /// Why, for a person.
    pub explanation: String,
    /// Why, for a program.
    pub certificate: Option<Certificate>,
}

/// The three truth values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing wrong, with what shows it where there is such a thing.
    Valid(Option<Certificate>),
    /// These are wrong; never empty.
    Invalid(Vec<Violation>),
    /// Not known.
    Unknown(Why),
}

/// An answer and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    answer: Answer,
    coverage: Coverage,
}

impl Outcome {
    /// Nothing wrong; `unknown` when no completed operation was consumed or a key was given up.
    pub fn valid(coverage: Coverage, certificate: Option<Certificate>) -> Self {
        if let Some(first) = coverage.undecided.first() {
            return Outcome { answer: Answer::Unknown(first.why.clone()), coverage };
        }
        if coverage.keys_decided + coverage.keys_silent < coverage.keys {
            return Outcome { answer: Answer::Unknown(Why::Other("not every key was decided".into())), coverage };
        }
        if coverage.with_status(Status::Ok) == 0 {
            return Outcome { answer: Answer::Unknown(Why::NoEvidence), coverage };
        }
        Outcome { answer: Answer::Valid(certificate), coverage }
    }

    /// A first violation and all others.
    pub fn invalid(coverage: Coverage, first: Violation, rest: Vec<Violation>) -> Self {
        let mut violations = vec![first];
        violations.extend(rest);
        Outcome { answer: Answer::Invalid(violations), coverage }
    }

    /// Not known.
    pub fn unknown(coverage: Coverage, why: Why) -> Self {
        Outcome { answer: Answer::Unknown(why), coverage }
    }

    /// The answer.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// What it rests on.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Is it `valid`?
    pub fn is_valid(&self) -> bool {
        matches!(self.answer, Answer::Valid(_))
    }

    /// Is it `invalid`?
    pub fn is_invalid(&self) -> bool {
        matches!(self.answer, Answer::Invalid(_))
    }

    /// The violations; none unless invalid.
    pub fn violations(&self) -> &[Violation] {
        if let Answer::Invalid(violations) = &self.answer { violations } else { &[] }
    }

    /// Both parts.
    pub fn into_parts(self) -> (Answer, Coverage) {
        (self.answer, self.coverage)
    }

    /// Answers about disjoint parts of one history as one: invalid beats unknown beats valid. A part that consumed no
    /// completed operation (a key whose only one never completed) does not make the whole unknown while another has some; one
    /// that consumed some and is without evidence does. No parts at all are no evidence.
    pub fn merge(parts: impl IntoIterator<Item = Outcome>) -> Outcome {
        let mut coverage = Coverage::default();
        let (mut violations, mut orders, mut unknown) = (Vec::new(), Vec::new(), None);
        for part in parts {
            let silent = part.coverage.with_status(Status::Ok) == 0;
            coverage.add(part.coverage);
            match part.answer {
                Answer::Valid(Some(Certificate::Orders(more))) => orders.extend(more),
                Answer::Valid(_) => {}
                Answer::Unknown(Why::NoEvidence) if silent => {}
                Answer::Invalid(more) => violations.extend(more),
                Answer::Unknown(why) => unknown = unknown.or(Some(why)),
            }
        }
        let mut violations = violations.into_iter();
        if let Some(first) = violations.next() {
            return Outcome::invalid(coverage, first, violations.collect());
        }
        match unknown {
            Some(why) => Outcome::unknown(coverage, why),
            None => Outcome::valid(coverage, (!orders.is_empty()).then_some(Certificate::Orders(orders))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(n: u64) -> Coverage {
        let mut coverage = Coverage { keys: 1, keys_decided: 1, ..Coverage::default() };
        coverage.count("read", Status::Ok, n);
        coverage
    }

    fn violation() -> Violation {
        Violation { kind: "nonlinearizable", ops: vec![OpId(1)], explanation: String::new(), certificate: None }
    }

    fn given_up() -> Outcome {
        let undecided = Undecided { key: Some(KeyId(7)), why: Why::Spent(Spent::Time), known: String::new() };
        let coverage = Coverage { keys_decided: 0, undecided: vec![undecided], ..seen(2) };
        Outcome::unknown(coverage, Why::Spent(Spent::Time))
    }

    #[test]
    fn valid_on_no_evidence_is_unknown() {
        let mut only_info = Coverage::default();
        only_info.count("write", Status::Info, 3);
        for coverage in [Coverage::default(), only_info] {
            assert_eq!(*Outcome::valid(coverage, None).answer(), Answer::Unknown(Why::NoEvidence));
        }
        assert_eq!(*Outcome::merge([]).answer(), Answer::Unknown(Why::NoEvidence));
    }

    #[test]
    fn valid_with_a_key_given_up_is_unknown() {
        let coverage = Coverage { undecided: given_up().coverage().undecided.clone(), ..seen(2) };
        assert_eq!(*Outcome::valid(coverage, None).answer(), Answer::Unknown(Why::Spent(Spent::Time)));
    }

    #[test]
    fn invalid_beats_unknown_beats_valid_and_the_key_given_up_stays_listed() {
        let valid = || Outcome::valid(seen(2), None);
        let invalid = || Outcome::invalid(seen(2), violation(), vec![]);
        assert!(Outcome::merge([valid(), valid()]).is_valid());
        assert!(matches!(Outcome::merge([valid(), given_up()]).answer(), Answer::Unknown(_)));
        let all = Outcome::merge([valid(), given_up(), invalid()]);
        assert!(all.is_invalid());
        assert_eq!((all.coverage().keys, all.coverage().keys_decided, all.coverage().undecided.len()), (3, 2, 1));
        assert_eq!(all.coverage().ops_consumed(), 6);
    }

    #[test]
    fn a_key_without_evidence_does_not_hide_the_others() {
        let empty = Outcome::valid(Coverage { keys: 1, keys_decided: 1, ..Coverage::default() }, None);
        assert!(Outcome::merge([empty, Outcome::valid(seen(1), None)]).is_valid());
    }

    #[test]
    fn a_key_with_operations_but_without_evidence_makes_the_whole_unknown() {
        let vain = || Outcome::unknown(seen(1), Why::NoEvidence);
        for parts in [vec![vain(), vain()], vec![vain(), Outcome::valid(seen(1), None)]] {
            assert_eq!(*Outcome::merge(parts).answer(), Answer::Unknown(Why::NoEvidence));
        }
    }
}
