//! Does a request that is tried again take effect once?
//!
//! Attempts that bear one *business key* (an idempotency key) are one request. Its effects are found in an audit log or a dump of the
//! end, or else in what consumers took, or else in the last read that returned many. Two effects or more of one key are a
//! `duplicate-effect`, none of an acknowledged one a `lost-effect`; two different payloads that were both accepted under one key, by
//! acknowledgement or by effect, a `conflicting-effect`; an effect of a key whose attempts all failed an `aborted-effect`.
//!
//! Exactly-once holds when nothing of these was found, at-least-once when none is lost, at-most-once when none is doubled; all
//! three are told, and the one that is demanded makes the verdict.
//!
//! An effect that bears no business key may be that of any request: as many requests as there are such effects are not lost but
//! undecided. Where no effect bears the key of a request, though there are effects, none is lost: the oracle does not see keys.
//!
//! A key that no two attempts share says nothing about trying again: of an operation's own id, or a key made for each attempt, every
//! system keeps each once. Then nothing passes (`oracle-too-weak`); what is doubled or lost even so is told.
//!
//! A key that is an integer is found without a text, others by theirs; payloads are compared by hash. O(n). Memory: 64 bytes a key, and the
//! text of one that is no integer. The question is about the end: what is missing may still come, and a dump is of the end, so that
//! there is no incremental form.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::{History, Value};
use foldhash::fast::FixedState;

use super::dump::Dump;
use super::elements::{ById, Elements};
use super::micro::refuse_micro_operations;
use super::reads::shows;
use super::set::{NONE, refuse_without_order};
use super::words::{Guarantee, Role, Roles};
use crate::findings::{Example, Fact, Findings, Weight, ended};
use crate::outcome::{OpId, Status, Why};

/// Where an operation bears its business key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPath {
    source: Source,
    steps: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A further field.
    Extra(String),
    /// The key of the operation.
    Key,
    /// What it sent.
    Input,
}

impl std::str::FromStr for KeyPath {
    type Err = String;

    /// `extra.NAME`, `key`, `value` or `input`, and steps into it: names of a map's entries, positions in a list.
    fn from_str(text: &str) -> Result<KeyPath, String> {
        let mut steps = text.split('.').map(str::to_string);
        let none = || format!("`{text}` names no place in an operation: extra.NAME, key, value.NAME or input.0");
        let source = match steps.next().as_deref() {
            Some("extra") => Source::Extra(steps.next().filter(|s| !s.is_empty()).ok_or_else(none)?),
            Some("key") => Source::Key,
            Some("input" | "value") => Source::Input,
            _ => return Err(none()),
        };
        let steps: Vec<String> = steps.collect();
        if steps.iter().any(String::is_empty) {
            return Err(none());
        }
        Ok(KeyPath { source, steps })
    }
}

impl KeyPath {
    /// The key of an operation, where it is an integer by itself.
    fn int_of_op(&self, op: &OpRef<'_>) -> Option<i64> {
        match (&self.source, op.key(), op.input()) {
            (Source::Key, Scalar::Int(n), _) => Some(n),
            (Source::Input, _, ValueRef::Int(n)) if self.steps.is_empty() => Some(n),
            _ => None,
        }
    }

    /// The key of an operation, as EDN text, appended.
    fn of_op(&self, history: &History, op: &OpRef<'_>, out: &mut String) -> bool {
        match &self.source {
            Source::Extra(name) => field(op, name).is_some_and(|text| self.within_text(text, out)),
            Source::Key => {
                history.write_scalar(op.key(), out);
                out != "nil"
            }
            Source::Input => match (op.input(), op.txn(), self.steps.first()) {
                (ValueRef::Nil, Some(_), _) => {
                    let mut text = String::new();
                    op.write_invoke_value(&mut text);
                    self.within_text(&text, out)
                }
                (ValueRef::List(list), _, Some(step)) if self.steps.len() == 1 => {
                    match step.parse::<usize>().ok().filter(|&i| i < list.len()) {
                        Some(i) => history.write_scalar(list.get(i), out),
                        None => return false,
                    }
                    out != "nil"
                }
                (value, _, _) => self.within(history, value, out),
            },
        }
    }

    fn within(&self, history: &History, value: ValueRef<'_>, out: &mut String) -> bool {
        if self.steps.is_empty() {
            history.write_value(value, out);
            return out != "nil";
        }
        let mut text = String::new();
        history.write_value(value, &mut text);
        self.within_text(&text, out)
    }

    fn within_text(&self, text: &str, out: &mut String) -> bool {
        if self.steps.is_empty() {
            out.push_str(text);
            return text != "nil";
        }
        let Ok(value) = elench_formats::edn::parse(text) else { return false };
        write(walk(&value, self.steps.iter().map(String::as_str)), out)
    }

    /// The key of a record that tells of an effect: what lies at the path, from the field's name on, or without it; of what is no
    /// collection, itself.
    fn of_record(&self, record: &Value, out: &mut String) -> bool {
        let steps = || self.steps.iter().map(String::as_str);
        let from = |first: &str| walk(record, std::iter::once(first).chain(steps()));
        let found = match &self.source {
            _ if !matches!(record, Value::Map(_) | Value::Vector(_)) => Some(record),
            Source::Extra(name) => from(name),
            Source::Key => from("key"),
            Source::Input => from("value").or_else(|| from("input")).or_else(|| walk(record, steps())),
        };
        write(found, out)
    }
}

/// A further field, of the invocation before the completion: it is the client that makes the key.
fn field<'a>(op: &OpRef<'a>, name: &str) -> Option<&'a str> {
    op.invoke_extras().find(|(n, _)| *n == name).map(|(_, text)| text).or_else(|| op.extra(name))
}

fn walk<'v, 's>(value: &'v Value, steps: impl Iterator<Item = &'s str>) -> Option<&'v Value> {
    let mut at = value;
    for step in steps {
        at = match at {
            Value::Vector(items) => items.get(step.parse::<usize>().ok()?)?,
            Value::Map(entries) => {
                let number = || step.parse::<i64>().ok();
                let by_number =
                    || entries.iter().find(|(k, _)| number().is_some() && k.as_int() == number()).map(|(_, v)| v);
                at.get(step).or_else(by_number)?
            }
            _ => return None,
        };
    }
    Some(at)
}

fn write(found: Option<&Value>, out: &mut String) -> bool {
    let Some(found) = found.filter(|v| !matches!(v, Value::Nil)) else { return false };
    found.write_edn(out);
    true
}

/// Where effects are found.
#[derive(Clone, Copy, Debug)]
pub enum Effects<'a> {
    /// In what consumers took, or in the last read that returned many.
    Consumers,
    /// In audit logs or dumps of the end: every entry is an effect.
    Records(&'a [Dump]),
    /// In histories: every acknowledged operation that does not read is an effect.
    Histories(&'a [History]),
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Attempts, and those that failed.
    attempts: u32,
    failed: u32,
    effects: u32,
    first: u64,
    second: u64,
    /// The first to be acknowledged: its operation, the event, and its payload.
    ack_op: u64,
    ack: u64,
    payload: u64,
    /// An operation that showed an effect.
    shown_by: u64,
}

const NO_REQUEST: Request = Request {
    attempts: 0,
    failed: 0,
    effects: 0,
    first: NONE,
    second: NONE,
    ack_op: NONE,
    ack: NONE,
    payload: 0,
    shown_by: NONE,
};

/// One of several payloads that a key was attempted with.
#[derive(Clone, Copy, Debug)]
struct Payload {
    hash: u64,
    /// The first operation that bore it.
    op: u64,
    /// The first that was acknowledged.
    acked_by: Option<u64>,
    took_effect: bool,
}

struct Requests<'a> {
    history: &'a History,
    path: &'a KeyPath,
    /// Business keys.
    keys: Elements,
    /// By key; one without attempts only has effects.
    list: ById<Request>,
    hasher: FixedState,
    /// Room for a text.
    text: String,
    findings: Findings,
    attempts: [u64; 3],
    keyless: u64,
    /// By key, where there are several.
    payloads: HashMap<u32, Vec<Payload>>,
    effects: u64,
    effects_without_key: u64,
}

/// Up to which event effects were looked for: an acknowledgement after it promises none that could have been seen.
struct Looked {
    until: u64,
    /// Effects that crashed consumers may have had; `None`: any number.
    maybe: Option<u64>,
}

/// The integer that a text is the canonical one of.
fn as_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits.starts_with(|c: char| c.is_ascii_digit()) && (digits == text || digits != "0");
    let canonical = canonical && (digits.len() == 1 || !digits.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

impl Requests<'_> {
    /// The key of this text. An integer is the same one however it is told.
    fn id(&mut self, key: &str) -> u32 {
        match as_int(key) {
            Some(n) => self.keys.int(n),
            None => self.keys.text(key, None),
        }
    }

    /// The key that an operation of this history bears.
    fn key_of(&mut self, history: &History, op: &OpRef<'_>) -> Option<u32> {
        if let Some(n) = self.path.int_of_op(op) {
            return Some(self.keys.int(n));
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let id = self.path.of_op(history, op, &mut text).then(|| self.id(&text));
        self.text = text;
        id
    }

    /// Stands for a payload; the same for an integer and its text.
    fn hash(&self, text: &str) -> u64 {
        match as_int(text) {
            Some(n) => self.hash_int(n),
            None => self.hasher.hash_one(text),
        }
    }

    fn hash_int(&self, n: i64) -> u64 {
        self.hasher.hash_one(n)
    }

    /// Of what an operation sent.
    fn payload(&mut self, op: &OpRef<'_>) -> u64 {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let hash = match (op.input(), op.txn()) {
            (ValueRef::Int(n), _) => self.hash_int(n),
            (ValueRef::Text(id), _) => self.hash(op.text(id)),
            (ValueRef::Nil, Some(_)) => {
                op.write_invoke_value(&mut text);
                self.hash(&text)
            }
            (value, _) => {
                op.write_value(value, &mut text);
                self.hash(&text)
            }
        };
        self.text = text;
        hash
    }

    fn attempt(&mut self, op: &OpRef<'_>) {
        self.keys.widen();
        let Some(id) = self.key_of(self.history, op) else {
            self.keyless += 1;
            return;
        };
        let status = ended(op);
        self.attempts[status as usize] += 1;
        let hash = self.payload(op);
        let acked = (status == Status::Ok).then(|| op.index());
        let request = self.list.at(id);
        request.attempts += 1;
        request.failed += u32::from(status == Status::Fail);
        if request.attempts == 1 {
            (request.first, request.payload) = (op.index(), hash);
        } else if request.second == NONE {
            request.second = op.index();
        }
        if request.payload != hash || self.payloads.contains_key(&id) {
            let (first, by) = (request.payload, request.first);
            let before = Some(request.ack_op).filter(|&op| op != NONE);
            let first = Payload { hash: first, op: by, acked_by: before, took_effect: false };
            let all = self.payloads.entry(id).or_insert_with(|| vec![first]);
            match all.iter_mut().find(|p| p.hash == hash) {
                Some(known) => known.acked_by = known.acked_by.or(acked),
                None => all.push(Payload { hash, op: op.index(), acked_by: acked, took_effect: false }),
            }
        }
        if acked.is_some() {
            let complete = op.complete_index().unwrap_or(NONE);
            if complete < request.ack {
                (request.ack_op, request.ack) = (op.index(), complete);
            }
        }
    }

    /// An effect of this key, with hashes of what its payload may be, and the operation that showed it.
    fn effect(&mut self, id: u32, payloads: &[u64], shown_by: u64) {
        self.effects += 1;
        let request = self.list.at(id);
        request.effects += 1;
        if request.shown_by == NONE {
            request.shown_by = shown_by;
        }
        if !self.payloads.is_empty()
            && let Some(all) = self.payloads.get_mut(&id)
        {
            all.iter_mut().filter(|p| payloads.contains(&p.hash)).for_each(|p| p.took_effect = true);
        }
    }

    fn record(&mut self, record: &Value, shown_by: u64) {
        let mut key = String::new();
        if !self.path.of_record(record, &mut key) {
            self.effects_without_key += 1;
            return;
        }
        let sent = record.get("value").or_else(|| record.get("input")).map(Value::to_edn);
        let payloads = [Some(record.to_edn()), sent].into_iter().flatten().map(|text| self.hash(&text));
        let payloads: Vec<u64> = payloads.collect();
        let id = self.id(&key);
        self.effect(id, &payloads, shown_by);
    }

    /// What a consumer was given.
    fn given(&mut self, op: &OpRef<'_>, value: ValueRef<'_>) {
        let beside = !matches!(self.path.source, Source::Input);
        let key = if beside { self.key_of(self.history, op) } else { None };
        let mut text = String::new();
        let hash = match value {
            ValueRef::Int(n) => self.hash_int(n),
            other => {
                op.write_value(other, &mut text);
                self.hash(&text)
            }
        };
        if let Some(id) = key {
            return self.effect(id, &[hash], op.index());
        }
        match (elements_text(&text), value) {
            (Some(record), _) => self.record(&record, op.index()),
            // The key stands beside the payload, and this is a payload.
            (None, _) if beside => self.effects_without_key += 1,
            (None, ValueRef::Int(n)) => {
                let id = self.keys.int(n);
                self.effect(id, &[hash], op.index());
            }
            (None, _) => {
                let id = self.id(&text);
                self.effect(id, &[hash], op.index());
            }
        }
    }
}

/// The collection that a text is, if it is one.
fn elements_text(text: &str) -> Option<Value> {
    text.starts_with(['{', '[', '#']).then(|| elench_formats::edn::parse(text).ok()).flatten()
}

/// Which of exactly-once, at-least-once and at-most-once holds? See the module. `guarantee`: the one demanded; none: exactly-once, where
/// what a crashed consumer may have taken is not lost.
///
/// Violations: `duplicate-effect`, `lost-effect`, as the guarantee forbids them; `conflicting-effect`, `aborted-effect`.
pub fn exactly_once(
    history: &History,
    path: &KeyPath,
    effects: Effects<'_>,
    guarantee: Option<Guarantee>,
    examples: usize,
) -> Findings {
    if let Some(refused) =
        refuse_without_order(history, examples).or_else(|| refuse_micro_operations(history, examples))
    {
        return refused;
    }
    let mut requests = Requests {
        history,
        path,
        keys: Elements::new(false),
        list: ById::new(NO_REQUEST),
        hasher: FixedState::default(),
        text: String::new(),
        findings: Findings::new(examples),
        attempts: [0; 3],
        keyless: 0,
        payloads: HashMap::new(),
        effects: 0,
        effects_without_key: 0,
    };
    let mut roles = Roles::default();
    history.clients().for_each(|op| {
        if matches!(roles.of(&op), Role::Add | Role::Remove | Role::Other) {
            requests.attempt(&op);
        }
    });
    let looked = match effects {
        Effects::Consumers => requests.consumers(),
        Effects::Records(dumps) => {
            for dump in dumps {
                requests.records(&dump.content);
            }
            Some(Looked { until: NONE, maybe: Some(0) })
        }
        Effects::Histories(histories) => {
            for log in histories {
                requests.log(log);
            }
            Some(Looked { until: NONE, maybe: Some(0) })
        }
    };
    requests.told(looked, guarantee)
}

impl Requests<'_> {
    fn records(&mut self, content: &Value) {
        match content {
            Value::Vector(items) | Value::Set(items) => items.iter().for_each(|record| self.record(record, NONE)),
            Value::Map(entries) => {
                for (key, place) in entries {
                    // What lies at a key in a dump: records, or one, or a state that the key alone tells of.
                    let mut found = String::new();
                    match place {
                        Value::Vector(items)
                            if items.iter().all(|i| matches!(i, Value::Map(_))) && !items.is_empty() =>
                        {
                            items.iter().for_each(|record| self.record(record, NONE));
                        }
                        place if matches!(place, Value::Map(_)) && self.path.of_record(place, &mut found) => {
                            self.record(place, NONE)
                        }
                        _ => self.record(key, NONE),
                    }
                }
            }
            one => self.record(one, NONE),
        }
    }

    fn log(&mut self, log: &History) {
        let mut roles = Roles::default();
        for op in log.clients().filter(|op| op.status() == Ended::Ok) {
            if roles.of(&op) == Role::Read {
                continue;
            }
            match self.key_of(log, &op) {
                Some(id) => {
                    let sent = self.payload(&op);
                    self.effect(id, &[sent], NONE);
                }
                None => self.effects_without_key += 1,
            }
        }
    }

    /// Effects that consumers were given: what they took, or else the last read that returned many.
    fn consumers(&mut self) -> Option<Looked> {
        let history = self.history;
        let (mut drained, mut looked, mut maybe) = (None, None, Some(0));
        let (mut roles, mut counts) = (Roles::default(), [0; 3]);
        history.clients().for_each(|op| {
            let role = roles.of(&op);
            if !matches!(role, Role::Take | Role::Drain) {
                return;
            }
            counts[ended(&op) as usize] += 1;
            if op.status() == Ended::Fail {
                return;
            }
            looked = looked.max(Some(op.index()));
            let is_drain = role == Role::Drain;
            if op.status().is_unknown() {
                let says = is_drain && op.output().elements().is_some();
                maybe = if is_drain && !says { None } else { maybe.map(|n: u64| n + 1) };
                if !says {
                    return;
                }
            }
            if is_drain && op.status() == Ended::Ok {
                drained = drained.max(Some(op.index()));
            }
            self.take(&op, is_drain);
        });
        for (status, n) in [Status::Ok, Status::Fail, Status::Info].into_iter().zip(counts) {
            self.findings.coverage.count("dequeue", status, n);
        }
        if let Some(until) = drained.or(looked) {
            return Some(Looked { until, maybe });
        }
        let reads = history.clients().filter(|op| roles.of(op) == Role::Read && shows(op));
        let last = reads.max_by_key(|op| op.complete_index())?;
        self.findings.coverage.count("read", Status::Ok, 1);
        match last.output().elements() {
            Some(list) => list.iter().for_each(|scalar| self.given(&last, scalar.into())),
            None => {
                let mut text = String::new();
                history.write_value(last.output(), &mut text);
                if let Some(value) = elements_text(&text) {
                    self.records(&value);
                }
            }
        }
        Some(Looked { until: last.index(), maybe: Some(0) })
    }

    /// What one consumer was given: of a drain, each element.
    fn take(&mut self, op: &OpRef<'_>, is_drain: bool) {
        match op.output() {
            ValueRef::Nil => {}
            ValueRef::List(list) | ValueRef::Set(list) if is_drain => {
                list.iter().for_each(|scalar| self.given(op, scalar.into()));
            }
            value => self.given(op, value),
        }
    }

    /// Requests: keys that were attempted.
    fn requests(&self) -> impl Iterator<Item = (u32, &Request)> {
        self.list.iter().filter(|(_, request)| request.attempts > 0)
    }

    fn key(&self, id: u32) -> String {
        self.keys.name(id, Some(self.history))
    }

    fn told(mut self, looked: Option<Looked>, guarantee: Option<Guarantee>) -> Findings {
        let mut findings = std::mem::replace(&mut self.findings, Findings::new(0));
        for (status, n) in [Status::Ok, Status::Fail, Status::Info].into_iter().zip(self.attempts) {
            findings.coverage.count("attempt", status, n);
        }
        findings.coverage.keys = 1;
        findings.coverage.keys_decided = 1;
        let known = self.requests().count() as u64;
        let retried = self.requests().filter(|(_, r)| r.attempts > 1).count() as u64;
        let foreign = self.list.iter().filter(|(_, r)| r.attempts == 0).map(|(_, r)| u64::from(r.effects)).sum();
        for (what, n, always) in [
            ("requests", known, true),
            ("requests attempted more than once", retried, true),
            ("effects", self.effects, true),
            ("operations without a business key", self.keyless, false),
            ("effects without a business key", self.effects_without_key, false),
            ("effects of keys that nobody attempted", foreign, false),
        ] {
            if always || n > 0 {
                findings.fact(what, Fact::Count(n));
            }
        }
        let Some(looked) = looked else {
            findings.undecided(Why::Other(
                "there are no effects to look at: nothing was consumed or read, and no --effects FILE".into(),
            ));
            return findings;
        };
        let demanded = guarantee.unwrap_or(Guarantee::ExactlyOnce);
        let Told { doubled, lost, undecided, mut broken } =
            self.tell_effects(&looked, demanded, guarantee.is_some(), &mut findings);
        broken.extend(self.tell_conflicts(&mut findings));
        let weak = self.weakness(retried);
        let broken = broken.len() as u64;
        for (name, broken) in [("exactly-once", broken), ("at-least-once", lost), ("at-most-once", doubled)] {
            let open = weak.is_some() || (undecided > 0 && name != "at-most-once");
            let text = match (broken, open) {
                (0, false) => "holds in this history".to_string(),
                (0, true) => "not refuted, and not shown".to_string(),
                (n, _) => format!("does not hold: {n} requests break it"),
            };
            findings.fact(name, Fact::Text(text));
        }
        if let Some(why) = weak {
            findings.undecided(Why::Other(why));
        }
        if undecided > 0 {
            let why = format!(
                "{undecided} acknowledged requests show no effect, and consumers that crashed (--delivery says what is promised) or effects without a business key may be it"
            );
            findings.undecided(Why::Other(why));
        }
        findings
    }

    /// Why a pass would show nothing, if so.
    fn weakness(&self, retried: u64) -> Option<String> {
        if self.requests().next().is_none() {
            return Some("oracle-too-weak: no operation bears a business key there (--idempotency-key)".into());
        }
        if retried == 0 {
            let own = self.requests().all(|(id, r)| self.key(id) == r.first.to_string());
            let what =
                if own { "the business key is the operation's own id" } else { "no two attempts share a business key" };
            return Some(format!("oracle-too-weak: {what}, so that nothing is shown of trying again"));
        }
        self.is_blind().then(|| "oracle-too-weak: no effect bears the business key of a request".to_string())
    }

    /// Are there effects, and is none that of a request?
    fn is_blind(&self) -> bool {
        self.effects + self.effects_without_key > 0 && self.requests().all(|(_, request)| request.effects == 0)
    }

    fn tell_effects(&self, looked: &Looked, demanded: Guarantee, strict: bool, findings: &mut Findings) -> Told {
        let weigh = |allowed: bool| if allowed { Weight::Note } else { Weight::Violation };
        let key = |id: u32| self.key(id);
        let ops =
            |r: &Request| [r.first, r.second, r.ack_op, r.shown_by].into_iter().filter(|&op| op != NONE).map(OpId);
        let distinct = |r: &Request| {
            let mut ops: Vec<OpId> = ops(r).collect();
            ops.sort_unstable();
            ops.dedup();
            ops
        };
        let (mut doubled, mut missing, mut broken) = (0, Vec::new(), BTreeSet::new());
        for (id, r) in self.requests() {
            if r.effects > 1 {
                doubled += 1;
                broken.insert(id);
                findings.add("duplicate-effect", weigh(demanded.may_repeat()), || {
                    let text = format!("key {} has {} effects, of attempts {}", key(id), r.effects, attempts(r));
                    Example::new(distinct(r), text)
                });
            }
            if r.effects > 0 && r.failed == r.attempts {
                broken.insert(id);
                findings.violation("aborted-effect", || {
                    Example::new(
                        distinct(r),
                        format!("every attempt of key {} failed, op {} first, and it has an effect", key(id), r.first),
                    )
                });
            }
            if r.effects > 0 && r.ack == NONE && r.failed < r.attempts {
                findings.note("recovered", || {
                    Example::new(distinct(r), format!("key {} was never acknowledged, and it has an effect", key(id)))
                });
            }
            if r.effects == 0 && r.ack != NONE {
                if r.ack < looked.until {
                    missing.push((id, *r));
                } else {
                    findings.note("unread", || {
                        Example::new(
                            [OpId(r.ack_op)],
                            format!("key {} was acknowledged after effects were last looked for", key(id)),
                        )
                    });
                }
            }
        }
        let n = missing.len() as u64;
        let crashed = if strict { Some(0) } else { looked.maybe };
        let excused =
            self.is_blind() || crashed.is_none_or(|crashed| n <= crashed.saturating_add(self.effects_without_key));
        for (id, r) in &missing {
            let (kind, allowed) = if excused { ("missing-effect", true) } else { ("lost-effect", demanded.may_lose()) };
            findings.add(kind, weigh(allowed), || {
                Example::new(
                    distinct(r),
                    format!("key {} was acknowledged by op {}, and it has no effect", key(*id), r.ack_op),
                )
            });
        }
        let (lost, undecided) = if excused { (0, n) } else { (n, 0) };
        if !excused {
            broken.extend(missing.iter().map(|(id, _)| *id));
        }
        Told { doubled, lost, undecided, broken }
    }

    /// Tells of keys with conflicting payloads, and returns them.
    fn tell_conflicts(&self, findings: &mut Findings) -> Vec<u32> {
        let mut conflicting = Vec::new();
        let mut ids: Vec<u32> = self.payloads.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let all = &self.payloads[&id];
            let acked: Vec<u64> = all.iter().filter_map(|p| p.acked_by).collect();
            let effective: Vec<u64> = all.iter().filter(|p| p.took_effect).map(|p| p.op).collect();
            let (ops, how) = match (acked.len() > 1, effective.len() > 1) {
                (true, _) => (acked, "were acknowledged"),
                (false, true) => (effective, "took effect"),
                _ => continue,
            };
            conflicting.push(id);
            findings.violation("conflicting-effect", || {
                let named: Vec<String> = ops.iter().map(|op| format!("op {op}")).collect();
                let text =
                    format!("key {}: different payloads under one key {how}, of {}", self.key(id), named.join(" and "));
                Example::new(ops.iter().map(|&op| OpId(op)), text)
            });
        }
        conflicting
    }
}

/// How many requests have too many effects, too few, and perhaps too few; and those that took effect otherwise than once.
struct Told {
    doubled: u64,
    lost: u64,
    undecided: u64,
    broken: BTreeSet<u32>,
}

fn attempts(request: &Request) -> String {
    match request.second {
        NONE => format!("op {}", request.first),
        second if request.attempts == 2 => format!("op {} and op {second}", request.first),
        second => format!("op {}, op {second} and {} more", request.first, request.attempts - 2),
    }
}
