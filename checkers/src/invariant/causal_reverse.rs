//! Does a read show a write, and miss one that was acknowledged before it began?
//!
//! Writes of unique values, and reads of all that was written. If `a` was acknowledged before `b` began, every order that respects
//! real time has `a` before `b`, so a read that shows `b` shows `a` (`causal-reverse`). Strict serializability demands it;
//! serializability alone does not. Jepsen's `causal-reverse` and CockroachDB's `comments` ask this; the latter's checker
//! crashes.
//!
//! Of a read, the latest begun among the writes that it shows began at some time: every write acknowledged before must be
//! there. How many those are is a binary search, how many of them the read shows is counted while going through it; only where the numbers
//! differ are the missing ones looked for. A value that several wrote is taken to be written by the one that accuses least, of those that did not
//! fail and had begun when the read ended; where that is not known yet, the read waits for the end.
//!
//! Besides: a value that only failed writes had begun to write is an `aborted-effect`, one whose every write began only after the read had ended is
//! `unexpected`. One that nobody ever wrote is noted: it may be older than the record.
//!
//! What was removed may be missed: once a removal has begun, nothing is said of what reads miss.
//!
//! O(1) an element read, O(log n) a read. Memory: 40 bytes a value. What a write's fate is, is only known at its end, so reads are
//! judged as they complete but for aborted effects.

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::OpRef;
use elench_formats::sorting::{pair, sort_by, sort_by_wide};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::{Online, State, acknowledged, check, failed};
use crate::delivery::elements::{ById, Elements};
use crate::delivery::reads::{Seen, elements_of};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// Checks each key of a history.
pub fn causal_reverse(history: &History, examples: usize) -> Findings {
    check(history, examples, &Reverse::new(examples))
}

/// Checks while a history is written.
pub fn online(examples: usize) -> Box<dyn Incremental> {
    Online::new(Reverse::new(examples), examples)
}

const READS: [&str; 4] = ["read", "r", "read-all", "scan"];
const WRITES: [&str; 5] = ["write", "w", "insert", "add", "append"];

/// What the name of an operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Reads,
    Writes,
    Removes,
    Other,
}

const REMOVALS: [&str; 12] =
    ["delete", "del", "remove", "rem", "discard", "clear", "truncate", "drop", "evict", "expire", "purge", "pop"];

/// Does the name begin with that of a removal?
fn removes(name: &str) -> bool {
    REMOVALS.contains(&name.split(['-', '_', ' ', '/', '!']).next().unwrap_or(name))
}

fn means(name: &str) -> Means {
    match () {
        () if is_any(name, &WRITES) => Means::Writes,
        () if is_any(name, &READS) => Means::Reads,
        () if removes(name) => Means::Removes,
        () => Means::Other,
    }
}

/// A value that somebody attempted to write.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// The first that wrote it began here.
    began: u64,
    op: u64,
    /// The first acknowledgement, or [`NEVER`].
    acked: u64,
    /// Attempts, those that have not failed, and those that have not ended.
    attempts: u32,
    alive: u32,
    open: u32,
}

/// One of several attempts to write a value.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: u64,
    failed: bool,
}

/// Reads of a value whose writes may yet all fail: the first, how many, and how many attempts had begun.
#[derive(Clone, Copy, Debug)]
struct Early {
    op: u64,
    count: u64,
    attempts: u32,
}

const NEVER: u64 = u64::MAX;
const NOBODY: Write = Write { began: NEVER, op: NEVER, acked: NEVER, attempts: 0, alive: 0, open: 0 };

#[derive(Clone)]
struct Reverse {
    found: Findings,
    tally: Tally,
    names: ByName<Means>,
    elements: Elements,
    writes: ById<Write>,
    /// Values that somebody attempted to write, in the order of their first attempts.
    begun: Vec<u32>,
    /// Values that were acknowledged, and when, in order.
    acked: RoaringBitmap,
    acks: Vec<u64>,
    /// The first read of a value that was not known to be written when it was read.
    unwritten: HashMap<u32, u64, FixedState>,
    /// Values read whose writes may yet all fail.
    seen_open: HashMap<u32, Vec<Early>, FixedState>,
    /// Values attempted several times: the attempts in order.
    twins: HashMap<u32, Vec<Attempt>, FixedState>,
    twin_values: RoaringBitmap,
    /// Those of them with an attempt that has not ended.
    unsettled: RoaringBitmap,
    /// Reads that are judged at the end: the operation, its end, and what it shows.
    waiting: Vec<(u64, u64, RoaringBitmap)>,
    reads: u64,
    /// Has a removal begun?
    removed: bool,
}

impl Reverse {
    fn new(examples: usize) -> Self {
        Reverse {
            found: Findings::new(examples),
            tally: Tally::default(),
            names: ByName::new(means, Means::Other),
            elements: Elements::new(true),
            writes: ById::new(NOBODY),
            begun: Vec::new(),
            acked: RoaringBitmap::new(),
            acks: Vec::new(),
            unwritten: HashMap::default(),
            seen_open: HashMap::default(),
            twins: HashMap::default(),
            twin_values: RoaringBitmap::new(),
            unsettled: RoaringBitmap::new(),
            waiting: Vec::new(),
            reads: 0,
            removed: false,
        }
    }

    fn value(&mut self, op: &OpRef<'_>) -> Option<u32> {
        self.elements.scalar(op, op.input().scalar()?)
    }

    fn read(&mut self, op: &OpRef<'_>) {
        let id = op.index();
        // A map is no collection of values here.
        let map = matches!(op.output(), ValueRef::Text(text) if op.text(text).starts_with('{'));
        let seen = if map { None } else { elements_of(&mut self.elements, op, op.output()) };
        let Some(Seen { set: shown, .. }) = seen else {
            let why = format!("{} returned no collection of values", OpId(id));
            return self.found.undecided(Why::Other(why));
        };
        self.reads += 1;
        for value in &shown - &self.acked {
            let write = self.writes.get(value);
            if write.began == NEVER {
                self.unwritten.entry(value).or_insert(id);
                continue;
            }
            let reads = self.seen_open.entry(value).or_default();
            match reads.last_mut() {
                Some(last) if last.attempts == write.attempts => last.count += 1,
                _ => reads.push(Early { op: id, count: 1, attempts: write.attempts }),
            }
        }
        if self.removed {
            return;
        }
        let ended = op.complete_index().unwrap_or(NEVER);
        if self.unsettled.is_disjoint(&shown) {
            self.judge(id, ended, &shown, false);
        } else {
            self.waiting.push((id, ended, shown));
        }
    }

    /// Of a read: does it miss what was acknowledged before something that it shows began? What shows that may yet fail, unless all has ended.
    fn judge(&mut self, op: u64, ended: u64, shown: &RoaringBitmap, all_ended: bool) {
        let Some(latest) = self.latest(shown, ended) else { return };
        let due = |value: &u32| self.writes.get(*value).acked < latest.began;
        let absent = self.acked.len() - self.acked.intersection_len(shown);
        // What is looked at one by one is no more than what is shown, unless something is missing.
        let all_there = || {
            let due_in_all = self.acks.partition_point(|&acked| acked < latest.began);
            absent > shown.len() && shown.iter().filter(due).count() == due_in_all
        };
        if absent == 0 || all_there() {
            return;
        }
        let mut missing: Vec<u32> = (&self.acked - shown).iter().filter(due).collect();
        sort_by(&mut missing, |&value| self.writes.get(value).acked);
        let may_fail = latest.open > 0 && latest.acked == NEVER;
        if may_fail && !all_ended && !missing.is_empty() {
            return self.waiting.push((op, ended, shown.clone()));
        }
        if let Some(&first) = missing.first() {
            self.missing(op, latest, first, missing.len());
        }
    }

    /// Of the values shown that were not written in vain, the one whose writing began last. It is mostly among the last begun,
    /// and else looked for among those shown: at most twice as many steps as there are. Those attempted several times are looked at one by one.
    fn latest(&self, shown: &RoaringBitmap, ended: u64) -> Option<Write> {
        // When all has ended, some may have begun only after the read.
        let lives = |write: &Write| write.alive > 0 && write.attempts == 1 && write.began < ended;
        let alive = |value: u32| Some(self.writes.get(value)).filter(lives);
        let steps = shown.len() as usize;
        let last = self.begun.iter().rev().take(steps).filter(|&&value| shown.contains(value));
        let once = match last.copied().find_map(alive) {
            Some(found) => Some(found),
            None => shown.iter().filter_map(alive).max_by_key(|write| write.began),
        };
        if self.twin_values.is_disjoint(shown) {
            return once;
        }
        let twins = (&self.twin_values & shown).into_iter().filter_map(|value| self.twin(value, ended));
        twins.chain(once).max_by_key(|write| write.began)
    }

    /// Of a value attempted several times: the first attempt that did not fail, if it began before the read ended.
    fn twin(&self, value: u32, ended: u64) -> Option<Write> {
        let began = self.twins.get(&value)?.iter().find(|attempt| !attempt.failed)?.began;
        let known = self.writes.get(value);
        (began < ended).then_some(Write { began, op: if known.acked == NEVER { began } else { known.op }, ..known })
    }

    /// An attempt to write a value failed.
    fn fails(&mut self, value: u32, began: u64) {
        self.writes.at(value).alive -= 1;
        let twins = self.twins.get_mut(&value).into_iter().flatten();
        twins.filter(|attempt| attempt.began == began).for_each(|attempt| attempt.failed = true);
    }

    fn missing(&mut self, op: u64, witness: Write, first: u32, all: usize) {
        let (earlier, value) = (self.writes.get(first).op, self.elements.name(first, None));
        self.found.violation("causal-reverse", || {
            let (read, later, earlier) = (OpId(op), OpId(witness.op), OpId(earlier));
            let more = if all > 1 { format!(" and {} more", all - 1) } else { String::new() };
            let text = format!("{read} shows the write of {later}, but not that of {value} by {earlier}{more}, acknowledged before {later} began");
            Example::new([read, later, earlier], text)
        });
    }
}

impl Reverse {
    /// Did all attempts fail that had begun when a value was read?
    fn in_vain(&self, value: u32, early: &Early) -> bool {
        match self.twins.get(&value) {
            None => self.writes.get(value).alive == 0,
            Some(attempts) => attempts.iter().take(early.attempts as usize).all(|attempt| attempt.failed),
        }
    }
}

impl State for Reverse {
    fn invoked(&mut self, op: &OpRef<'_>) {
        let means = self.names.of(op);
        if means != Means::Writes {
            if means == Means::Removes {
                self.removed = true;
                let (op, f) = (OpId(op.index()), op.f().unwrap_or("nil"));
                let why = format!("{op} ({f}) removes: what reads miss after it may have been removed");
                self.found.undecided(Why::Other(why));
            } else if means == Means::Other {
                let why = format!("{} ({}) is neither a write nor a read", OpId(op.index()), op.f().unwrap_or("nil"));
                self.found.undecided(Why::Other(why));
            }
            return;
        }
        let Some(value) = self.value(op) else {
            let why = format!("{} writes no single value", OpId(op.index()));
            return self.found.undecided(Why::Other(why));
        };
        let id = op.index();
        self.elements.widen();
        let write = self.writes.at(value);
        if write.attempts == 0 {
            *write = Write { began: id, op: id, ..NOBODY };
            self.begun.push(value);
        } else {
            let first = Attempt { began: write.began, failed: write.alive == 0 };
            self.twins.entry(value).or_insert_with(|| vec![first]).push(Attempt { began: id, failed: false });
            self.twin_values.insert(value);
            self.unsettled.insert(value);
        }
        write.attempts += 1;
        write.alive += 1;
        write.open += 1;
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        let means = self.names.of(op);
        if means == Means::Reads {
            if acknowledged(op) {
                self.read(op);
            }
            return;
        }
        let Some(value) = self.value(op).filter(|_| means == Means::Writes) else { return };
        let write = self.writes.at(value);
        write.open -= 1;
        if write.open == 0 && write.attempts > 1 {
            self.unsettled.remove(value);
        }
        if failed(op) {
            self.fails(value, op.index());
        } else if acknowledged(op) && write.acked == NEVER {
            let at = op.complete_index().unwrap_or(NEVER);
            (write.acked, write.op) = (at, op.index());
            self.acks.push(at);
            self.acked.insert(value);
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.found.violations().next().map(|(kind, _)| kind)
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        if self.reads == 0 || self.begun.is_empty() {
            self.found.undecided(Why::NoEvidence);
        }
        for (op, ended, shown) in std::mem::take(&mut self.waiting) {
            self.judge(op, ended, &shown, true);
        }
        let all = self.seen_open.iter().flat_map(|(value, reads)| reads.iter().map(|early| (*value, *early)));
        let mut seen: Vec<(u32, Early)> = all.filter(|(value, early)| self.in_vain(*value, early)).collect();
        sort_by_wide(&mut seen, |(value, early)| pair(early.op, *value));
        for (value, early) in seen {
            let write = self.writes.get(value).began;
            for _ in 0..early.count {
                self.found.violation("aborted-effect", || {
                    let (read, write) = (OpId(early.op), OpId(write));
                    Example::new([read, write], format!("{read} shows what {write} wrote, which failed"))
                });
            }
        }
        let mut strange: Vec<(u64, u32)> = self.unwritten.iter().map(|(value, op)| (*op, *value)).collect();
        strange.sort_unstable();
        for (op, value) in strange {
            let write = self.writes.get(value);
            if write.began != NEVER {
                self.found.violation("unexpected", || {
                    let (read, write) = (OpId(op), OpId(write.began));
                    let value = self.elements.name(value, None);
                    Example::new([read, write], format!("{read} had shown {value} before {write} began to write it"))
                });
                continue;
            }
            self.found.note("unwritten", || {
                let value = self.elements.name(value, None);
                Example::new([OpId(op)], format!("{} shows {value}, which nobody wrote before", OpId(op)))
            });
        }
        self.found.fact("values acknowledged", Fact::Count(self.acks.len() as u64));
        self.found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use elench_formats::notation::history as notation;

    use super::super::testing::{self, Event, FAULTS, Object, both, oks, op_of, run, seeds, shows};
    use super::*;
    use crate::linear::tests::Random;

    fn found_in(h: &History) -> Findings {
        both(h, causal_reverse(h, 1000), online(1000))
    }

    fn found(text: &str) -> Findings {
        found_in(&notation(text).unwrap())
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    struct Rows(BTreeSet<u64>, u64);

    impl Object for Rows {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            if random.chance(300) {
                return ("read", "nil".into());
            }
            self.1 += 1;
            ("write", self.1.to_string())
        }

        fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
            if f == "read" {
                let all: Vec<String> = self.0.iter().map(u64::to_string).collect();
                return Some(format!("#{{{}}}", all.join(" ")));
            }
            self.0.insert(value.parse().unwrap());
            Some(value.into())
        }
    }

    fn a_run(random: &mut Random) -> Vec<Event> {
        let clients = 1 + random.below(4);
        run(random, &mut Rows(BTreeSet::new(), 0), clients, 60, FAULTS)
    }

    #[test]
    fn reads_of_one_order_are_never_accused() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let log = a_run(&mut random);
            if !log.is_empty() {
                let found = found_in(&testing::history(&log));
                assert_eq!(kinds(&found), [], "{log:#?}");
                valid += u32::from(found.is_valid());
            }
        }
        assert!(valid > 500, "{valid}");
    }

    fn read_of(log: &[Event], at: usize) -> BTreeSet<i64> {
        let value = elench_formats::edn::parse(&log[at].value).unwrap();
        let elench_formats::Value::Set(items) = value else { panic!() };
        items.iter().map(|v| v.as_int().unwrap()).collect()
    }

    #[test]
    fn a_read_is_accused_exactly_where_a_pair_of_writes_says_so() {
        let mut wrong = 0;
        for mut random in seeds(1000) {
            let mut log = a_run(&mut random);
            let reads = oks(&log, "read");
            for &at in &reads {
                if random.chance(300) {
                    let mut read = read_of(&log, at);
                    read.retain(|_| !random.chance(300));
                    let all: Vec<String> = read.iter().map(i64::to_string).collect();
                    log[at].value = format!("#{{{}}}", all.join(" "));
                }
            }
            if log.is_empty() {
                continue;
            }
            // Value, where it began, where it was acknowledged.
            let mut writes: Vec<(i64, usize, Option<usize>)> = Vec::new();
            for (i, e) in log.iter().enumerate().filter(|(_, e)| e.kind == "invoke" && e.f == "write") {
                let end = (i + 1..log.len()).find(|&j| log[j].process == e.process);
                if end.is_none_or(|end| log[end].kind != "fail") {
                    writes.push((e.value.parse().unwrap(), i, end.filter(|&end| log[end].kind == "ok")));
                }
            }
            let mut expected = BTreeSet::new();
            for &at in &reads {
                let read = read_of(&log, at);
                let reversed = writes.iter().any(|(b, began, _)| {
                    let missed = |(a, _, acked): &(i64, usize, Option<usize>)| {
                        acked.is_some_and(|acked| acked < *began) && !read.contains(a)
                    };
                    read.contains(b) && writes.iter().any(missed)
                });
                if reversed {
                    expected.insert(op_of(&log, at));
                }
            }
            let found = found_in(&testing::history(&log));
            assert_eq!(found.count("causal-reverse"), expected.len() as u64, "{log:#?}");
            assert!(expected.iter().all(|op| shows(&found, "causal-reverse", *op)));
            wrong += u32::from(!expected.is_empty());
        }
        assert!(wrong > 50, "{wrong}");
    }

    /// Clients that write few values, over and over, and reads of anything.
    fn any_log(random: &mut Random) -> Vec<Event> {
        let mut log = Vec::new();
        let mut open: Vec<Option<(&'static str, String)>> = vec![None; 3];
        let mut process = [0, 1, 2];
        for _ in 0..30 {
            let at = random.below(3) as usize;
            let event = |kind, f, value: &str| Event {
                kind,
                process: process[at],
                f,
                value: value.into(),
                extra: String::new(),
            };
            match open[at].take() {
                None if random.chance(650) => {
                    let value = random.below(4).to_string();
                    log.push(event("invoke", "write", &value));
                    open[at] = Some(("write", value));
                }
                None => {
                    log.push(event("invoke", "read", "nil"));
                    open[at] = Some(("read", String::new()));
                }
                Some(("read", _)) => {
                    let shown: Vec<String> =
                        (0..4).filter(|_| random.chance(500)).map(|v: u64| v.to_string()).collect();
                    log.push(event("ok", "read", &format!("#{{{}}}", shown.join(" "))));
                }
                Some((f, value)) => {
                    let kind = ["ok", "ok", "fail", "fail", "info"][random.below(5) as usize];
                    log.push(event(kind, f, &value));
                    process[at] += if kind == "info" { 3 } else { 0 };
                }
            }
        }
        log
    }

    #[test]
    fn of_what_is_written_several_times_those_that_failed_excuse_nothing() {
        let (mut reversed, mut aborted) = (0, 0);
        for mut random in seeds(1500) {
            let log = any_log(&mut random);
            // Value, beginning, acknowledgement, and did it fail?
            let mut writes: Vec<(i64, usize, Option<usize>, bool)> = Vec::new();
            for (i, e) in log.iter().enumerate().filter(|(_, e)| e.kind == "invoke" && e.f == "write") {
                let end = (i + 1..log.len()).find(|&j| log[j].process == e.process);
                let ended = |kind| end.filter(|&end| log[end].kind == kind);
                writes.push((e.value.parse().unwrap(), i, ended("ok"), ended("fail").is_some()));
            }
            let (mut expected, mut in_vain) = (0, 0);
            for at in oks(&log, "read") {
                let read = read_of(&log, at);
                let began = |v: &i64| writes.iter().filter(|w| w.0 == *v && !w.3 && w.1 < at).map(|w| w.1).min();
                let latest = read.iter().filter_map(began).max();
                let missed = |(a, _, acked, _): &(i64, usize, Option<usize>, bool)| {
                    acked.zip(latest).is_some_and(|(acked, latest)| acked < latest) && !read.contains(a)
                };
                expected += u64::from(writes.iter().any(missed));
                let tried = |v: &&i64| writes.iter().any(|w| w.0 == **v && w.1 < at) && began(v).is_none();
                in_vain += read.iter().filter(tried).count() as u64;
            }
            let found = found_in(&testing::history(&log));
            let told = (found.count("causal-reverse"), found.count("aborted-effect"));
            assert_eq!(told, (expected, in_vain), "{log:#?}");
            (reversed, aborted) = (reversed + expected, aborted + in_vain);
        }
        assert!(reversed > 200 && aborted > 200, "{reversed} {aborted}");
    }

    #[test]
    fn a_twin_that_failed_excuses_no_read() {
        let text = "invoke 1 write 2 / fail 1 / invoke 0 write 1 / ok 0 / invoke 2 write 2 / ok 2 / invoke 0 read / ok 0 read [2]";
        assert_eq!(kinds(&found(text)), [("causal-reverse", 1)]);
        assert!(found(&text.replace("fail 1", "info 1")).is_valid(), "the first may have happened");
        // That it failed is only known after the read.
        let late = text.replace(" / fail 1", "") + " / fail 1";
        assert_eq!(kinds(&found(&late)), [("causal-reverse", 1)]);
        let after = "invoke 1 write 1 / fail 1 / invoke 0 read / ok 0 read [1] / invoke 1 write 1 / ok 1";
        assert_eq!(kinds(&found(after)), [("aborted-effect", 1)], "what began only later was not read");
    }

    #[test]
    fn a_read_that_shows_the_later_and_misses_the_earlier_is_reversed() {
        let text =
            |read| format!("invoke 0 write 1 / ok 0 / invoke 0 write 2 / ok 0 / invoke 0 read / ok 0 read {read}");
        let wrong = found(&text("[2]"));
        assert_eq!(kinds(&wrong), [("causal-reverse", 1)]);
        assert!([0, 2, 4].into_iter().all(|op| shows(&wrong, "causal-reverse", OpId(op))));
        for right in ["[1]", "[1 2]", "#{1 2}", "[]"] {
            assert!(found(&text(right)).is_valid(), "{right}");
        }
        let texts = "invoke 0 write :a / ok 0 / invoke 0 write :b / ok 0 / invoke 0 read / ok 0 read #{:b}";
        assert_eq!(kinds(&found(texts)), [("causal-reverse", 1)]);
    }

    #[test]
    fn what_failed_must_not_be_seen_and_what_is_older_than_the_record_is_noted() {
        let failed = found("invoke 0 write 1 / fail 0 / invoke 0 read / ok 0 read [1]");
        assert_eq!(kinds(&failed), [("aborted-effect", 1)]);
        let older = found("invoke 0 write 1 / ok 0 / invoke 0 read / ok 0 read [1 77]");
        assert!(older.is_valid() && older.count("unwritten") == 1, "{older:?}");
    }

    #[test]
    fn what_is_written_only_after_a_read_had_shown_it_is_unexpected() {
        let early = "invoke 1 write 5 / ok 1 / invoke 0 read / ok 0 read [5 1] / invoke 1 write 1";
        for end in ["ok 1", "fail 1", "info 1"] {
            let future = found(&format!("{early} / {end}"));
            assert_eq!(kinds(&future), [("unexpected", 1)], "{end}");
            assert!(shows(&future, "unexpected", OpId(2)) && shows(&future, "unexpected", OpId(4)));
        }
        assert!(found("invoke 0 read / invoke 1 write 1 / ok 0 read [1] / ok 1").is_valid());
    }

    #[test]
    fn what_was_removed_may_be_missed() {
        for f in ["delete", "remove", "del-row"] {
            let removal = format!("invoke 0 {f} 1 / ok 0");
            let h = |at_once: &str, last: &str| {
                format!(
                    "invoke 0 write 1 / ok 0 / {at_once} / invoke 0 write 2 / ok 0 / invoke 0 read / ok 0 read [2] {last}"
                )
            };
            let missed = found(&h(&removal, ""));
            assert_eq!(kinds(&missed), []);
            assert!(missed.why().unwrap().to_string().contains(f), "{missed:?}");
            let before = found(&h("invoke 3 read / ok 3 read [1]", &format!("/ {removal}")));
            assert_eq!(kinds(&before), [("causal-reverse", 1)], "the removal came only later");
        }
    }

    #[test]
    fn without_reads_or_with_reads_of_single_values_nothing_is_known() {
        for text in ["invoke 0 write 1 / ok 0", "invoke 0 write 1 / ok 0 / invoke 0 read / ok 0 read 1"] {
            let found = found(text);
            assert!(!found.is_valid() && !found.is_invalid());
        }
    }
}
