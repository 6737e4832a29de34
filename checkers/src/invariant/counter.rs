//! Does a counter show what was added to it?
//!
//! A read is between what had been added for certain when it began and what may have been added when it ended. With
//! deltas of both signs, the lower end takes the acknowledged positive ones and every negative one that was attempted; the
//! upper end the other way round. What failed counts for neither end, whenever the failure was told.
//!
//! Besides: while no negative delta may have been added, no process reads less than it read before (`went-down`). And the last read
//! that no addition overlaps, save those whose outcome is unknown, is what was acknowledged and the sum of *some* of the unknown deltas
//! ([`Sums`]), not just anything between (`impossible-final-value`): this is what exactly-once means for a counter.
//!
//! An acknowledged read of nil tells no number and is noted.
//!
//! An addition still open when a read ends may yet fail. A read that is right only thanks to such ones is kept until
//! they have ended, so that the online answer is that of the batch.
//!
//! O(1) an addition, O(log c) a read with c additions open. Memory: 16 bytes an addition of unknown outcome, 64 a read that rests on an
//! open one. The interval is that of Jepsen's `counter`, which aborts on negative deltas and does not look at processes.

use std::collections::{BTreeMap, VecDeque};

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, Status as Ended};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::sums::Sums;
use super::{Online, State, acknowledged, check};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// Checks each key of a history. Every counter begins at `initial`.
pub fn counter(history: &History, initial: i64, examples: usize) -> Findings {
    check(history, examples, &Counter::new(initial, examples))
}

/// Checks while a history is written.
pub fn online(initial: i64, examples: usize) -> Box<dyn Incremental> {
    Online::new(Counter::new(initial, examples), examples)
}

const READS: [&str; 5] = ["read", "r", "get", "value", "read-balance"];
const UP: [&str; 6] = ["add", "inc", "incr", "increment", "credit", "deposit"];
const DOWN: [&str; 7] = ["dec", "decr", "decrement", "sub", "subtract", "debit", "withdraw"];

/// What an operation does to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Add(i128),
    Read,
    /// An addition of what is no number.
    Odd,
    Other,
}

/// What the name of an operation says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Means {
    /// It adds its input, times this.
    Adds(i128),
    Reads,
    Other,
}

/// What the names of operations on counters say.
pub(super) fn names() -> ByName<Means> {
    let means = |name: &str| match () {
        () if is_any(name, &READS) => Means::Reads,
        () if is_any(name, &UP) => Means::Adds(1),
        () if is_any(name, &DOWN) => Means::Adds(-1),
        () => Means::Other,
    };
    ByName::new(means, Means::Other)
}

/// What an operation whose name says this does.
pub(super) fn does(means: Means, op: &OpRef<'_>) -> Does {
    let sign = match means {
        Means::Adds(sign) => sign,
        Means::Reads => return Does::Read,
        Means::Other => return Does::Other,
    };
    match op.input() {
        ValueRef::Int(n) => Does::Add(sign * i128::from(n)),
        ValueRef::Nil => Does::Add(sign),
        _ => Does::Odd,
    }
}

/// An operation is none of a counter.
pub(super) fn foreign(op: &OpRef<'_>) -> Why {
    let (id, f) = (OpId(op.index()), op.f().unwrap_or("nil"));
    Why::Other(format!("{id} ({f}) is neither an addition of a whole number nor a read"))
}

/// Sums of positive and of negative deltas.
#[derive(Clone, Copy, Debug, Default)]
struct Both {
    up: i128,
    down: i128,
}

impl Both {
    fn add(&mut self, delta: i128, times: i128) {
        *(if delta > 0 { &mut self.up } else { &mut self.down }) += delta * times;
    }
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    acked: Both,
    acks: u64,
}

/// A read that is right only if some open addition does not fail.
#[derive(Clone, Copy, Debug)]
struct Resting {
    op: u64,
    ended: u64,
    value: i128,
    lower: i128,
    upper: i128,
}

/// A read that no acknowledged addition overlaps, so far.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    op: u64,
    ended: u64,
    value: i128,
    acked: i128,
}

/// A process that read less than before.
#[derive(Clone, Copy, Debug)]
struct Down {
    before: (u64, i128),
    after: (u64, i128),
    ended: u64,
}

#[derive(Clone)]
struct Counter {
    initial: i128,
    found: Findings,
    tally: Tally,
    names: ByName<Means>,
    open_adds: BTreeMap<u64, i128>,
    open_reads: HashMap<u64, Begun, FixedState>,
    acked: Both,
    acks: u64,
    /// Of all that did not fail, so far.
    attempted: Both,
    open: Both,
    /// Delta and invocation of those of unknown outcome.
    unknown: Vec<(i128, u64)>,
    resting: VecDeque<Resting>,
    quiet: Vec<Quiet>,
    last_of: HashMap<i64, (u64, i128), FixedState>,
    downs: Vec<Down>,
    /// Negative deltas that may yet fail; and where the first began that did not.
    open_negatives: u64,
    first_negative: u64,
    reads: u64,
}

impl Counter {
    fn new(initial: i64, examples: usize) -> Self {
        Counter {
            initial: initial.into(),
            found: Findings::new(examples),
            tally: Tally::default(),
            names: names(),
            open_adds: BTreeMap::new(),
            open_reads: HashMap::default(),
            acked: Both::default(),
            acks: 0,
            attempted: Both::default(),
            open: Both::default(),
            unknown: Vec::new(),
            resting: VecDeque::new(),
            quiet: Vec::new(),
            last_of: HashMap::default(),
            downs: Vec::new(),
            open_negatives: 0,
            first_negative: u64::MAX,
            reads: 0,
        }
    }

    fn added(&mut self, op: &OpRef<'_>, delta: i128) {
        let began = op.index();
        self.open_adds.remove(&began);
        self.open.add(delta, -1);
        self.open_negatives -= u64::from(delta < 0);
        match op.status() {
            Ended::Fail => {
                self.attempted.add(delta, -1);
                self.take_back(began, delta);
            }
            Ended::Ok => {
                self.acked.add(delta, 1);
                self.acks += 1;
                while self.quiet.last().is_some_and(|read| read.ended > began) {
                    self.quiet.pop();
                }
            }
            Ended::Info | Ended::Pending => self.unknown.push((delta, began)),
        }
        if delta < 0 && op.status() != Ended::Fail {
            self.first_negative = self.first_negative.min(began);
        }
        self.settle();
    }

    /// An addition that overlapped the end of these reads turns out not to have happened.
    fn take_back(&mut self, began: u64, delta: i128) {
        let from = self.resting.partition_point(|read| read.ended <= began);
        let mut at = from;
        while at < self.resting.len() {
            let read = &mut self.resting[at];
            *(if delta > 0 { &mut read.upper } else { &mut read.lower }) -= delta;
            let read = *read;
            if (read.lower..=read.upper).contains(&read.value) {
                at += 1;
            } else {
                self.resting.remove(at);
                self.outside(read);
            }
        }
    }

    /// Lets go of what no open addition can change any more.
    fn settle(&mut self) {
        let first = self.open_adds.keys().next().copied().unwrap_or(u64::MAX);
        while self.resting.front().is_some_and(|read| read.ended < first) {
            self.resting.pop_front();
        }
        if self.open_negatives == 0 {
            self.tell_downs();
        }
    }

    fn tell_downs(&mut self) {
        for down in std::mem::take(&mut self.downs) {
            if down.ended < self.first_negative {
                let ((a, was), (b, is)) = (down.before, down.after);
                self.found.violation("went-down", || {
                    let text = format!(
                        "the process of {} read {was} there and {is} in {} later, and nothing was taken away",
                        OpId(a),
                        OpId(b)
                    );
                    Example::new([OpId(a), OpId(b)], text)
                });
            }
        }
    }

    fn outside(&mut self, read: Resting) {
        let Resting { op, value, lower, upper, .. } = read;
        let below = value < lower;
        let kind = if below { "below-acknowledged" } else { "above-attempted" };
        self.found.violation(kind, || {
            let why = match below {
                true => format!("{lower} at least had been added for certain when it began"),
                false => format!("{upper} at most had been attempted when it ended"),
            };
            Example::new([OpId(op)], format!("{} returned {value}, but {why}", OpId(op)))
        });
    }

    fn read(&mut self, op: &OpRef<'_>, begun: Begun) {
        let (id, ended) = (op.index(), op.complete_index().unwrap_or(u64::MAX));
        let value = match op.output() {
            ValueRef::Int(value) => i128::from(value),
            // Nobody had set it, or the client got nothing: neither tells a number.
            ValueRef::Nil => {
                return self.found.note("nil-read", || Example::new([OpId(id)], format!("{} returned nil", OpId(id))));
            }
            _ => {
                let why = format!("{} returned no whole number", OpId(id));
                return self.found.undecided(Why::Other(why));
            }
        };
        self.reads += 1;
        let lower = self.initial + begun.acked.up + self.attempted.down;
        let upper = self.initial + self.attempted.up + begun.acked.down;
        let read = Resting { op: id, ended, value, lower, upper };
        if !(lower..=upper).contains(&value) {
            self.outside(read);
        } else if !(lower - self.open.down..=upper - self.open.up).contains(&value) {
            self.resting.push_back(read);
        }
        if begun.acks == self.acks {
            if self.open_adds.is_empty() {
                self.quiet.clear();
            }
            let acked = self.initial + self.acked.up + self.acked.down;
            self.quiet.push(Quiet { op: id, ended, value, acked });
        }
        self.follow(op, value, ended);
    }

    fn follow(&mut self, op: &OpRef<'_>, value: i128, ended: u64) {
        let Some(process) = op.process() else { return };
        let after = (op.index(), value);
        if let Some(before) = self.last_of.insert(process, after)
            && before.1 > value
            && ended < self.first_negative
        {
            self.downs.push(Down { before, after, ended });
            if self.open_negatives == 0 {
                self.tell_downs();
            }
        }
    }

    fn judge_final(&mut self) {
        let Some(last) = self.quiet.last().copied() else { return };
        let unknown = self.unknown.iter().filter(|(_, began)| *began < last.ended).map(|(delta, _)| *delta);
        let sums = Sums::of(unknown);
        self.found.fact("last undisturbed read", Fact::Text(format!("{} in {}", last.value, OpId(last.op))));
        self.found.fact("it may be", Fact::Text(sums.in_words(last.acked, 8)));
        let (low, high) = sums.bounds();
        let extra = last.value - last.acked;
        match sums.contains(extra) {
            Some(true) => {}
            // Outside the interval it is told already.
            Some(false) if extra < low || extra > high => {}
            Some(false) => self.found.violation("impossible-final-value", || {
                let text = format!(
                    "{} returned {} when no addition of known outcome overlapped it: {} was acknowledged, and no choice of the unknown additions makes the rest",
                    OpId(last.op), last.value, last.acked
                );
                Example::new([OpId(last.op)], text)
            }),
            None => {
                let why = "whether the last read is a sum of additions could not be decided within bounds; it lies between what it may be at least and at most";
                self.found.undecided(Why::Other(why.into()));
            }
        }
    }
}

impl State for Counter {
    fn invoked(&mut self, op: &OpRef<'_>) {
        match does(self.names.of(op), op) {
            Does::Add(delta) => {
                self.open_adds.insert(op.index(), delta);
                self.open.add(delta, 1);
                self.attempted.add(delta, 1);
                self.open_negatives += u64::from(delta < 0);
            }
            Does::Read => {
                self.open_reads.insert(op.index(), Begun { acked: self.acked, acks: self.acks });
            }
            Does::Odd | Does::Other => {
                self.found.undecided(foreign(op));
            }
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        match does(self.names.of(op), op) {
            Does::Add(delta) => self.added(op, delta),
            Does::Read => {
                if let Some(begun) = self.open_reads.remove(&op.index()).filter(|_| acknowledged(op)) {
                    self.read(op, begun);
                }
            }
            Does::Odd | Does::Other => {}
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.found.violations().next().map(|(kind, _)| kind)
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        if self.reads == 0 {
            self.found.undecided(Why::NoEvidence);
        }
        self.tell_downs();
        let acked = self.initial + self.acked.up + self.acked.down;
        self.found.fact("acknowledged", Fact::Int(acked));
        self.found.fact("additions of unknown outcome", Fact::Count(self.unknown.len() as u64));
        self.judge_final();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history as notation;

    use super::super::testing::{self, Call, Event, FAULTS, Object, both, oks, op_of, run, seeds, shows};
    use super::*;
    use crate::linear::tests::Random;

    fn found_in(h: &History) -> Findings {
        both(h, counter(h, 0, 100), online(0, 100))
    }

    fn found(text: &str) -> Findings {
        found_in(&notation(text).unwrap())
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    struct Number {
        value: i64,
        negative: bool,
        step: i64,
    }

    impl Object for Number {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            match random.below(5) {
                0 | 1 => ("read", "nil".into()),
                2 if self.negative => ("dec", (self.step * (1 + random.below(4) as i64)).to_string()),
                3 if self.negative => ("add", (-self.step * (1 + random.below(4) as i64)).to_string()),
                _ => ("add", (self.step * (1 + random.below(4) as i64)).to_string()),
            }
        }

        fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
            match f {
                "read" => return Some(self.value.to_string()),
                "dec" => self.value -= value.parse::<i64>().unwrap(),
                _ => self.value += value.parse::<i64>().unwrap(),
            }
            Some(value.into())
        }
    }

    fn a_run(random: &mut Random) -> Vec<Event> {
        let mut object = Number { value: 0, negative: random.chance(500), step: [1, 10][random.below(2) as usize] };
        let clients = 1 + random.below(4);
        let mut log = run(random, &mut object, clients, 60, FAULTS);
        if random.chance(500) {
            let value = object.value.to_string();
            testing::then(&mut log, "read", "nil", &value, "");
        }
        log
    }

    #[test]
    fn a_right_counter_is_never_accused() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let log = a_run(&mut random);
            if log.is_empty() {
                continue;
            }
            let found = found_in(&testing::history(&log));
            assert_eq!(kinds(&found), [], "{log:#?}");
            valid += u64::from(found.is_valid());
        }
        assert!(valid > 500, "{valid}");
    }

    fn delta(call: &Call<'_>) -> Option<i64> {
        match call.f {
            "add" => Some(call.input.parse().unwrap()),
            "dec" => Some(-call.input.parse::<i64>().unwrap()),
            _ => None,
        }
    }

    fn value(read: &Call<'_>) -> i64 {
        read.output.parse().unwrap()
    }

    /// The definitions as they read, every read against every addition.
    fn naive(log: &[Event]) -> Vec<(&'static str, u64)> {
        let all = testing::calls(log);
        let adds: Vec<(&Call<'_>, i64)> =
            all.iter().filter(|c| c.kind != "fail").filter_map(|c| Some((c, delta(c)?))).collect();
        let reads: Vec<&Call<'_>> = all.iter().filter(|c| c.f == "read" && c.is_ok()).collect();
        let mut counts = BTreeMap::new();
        let mut broken = |kind, is: bool| *counts.entry(kind).or_insert(0) += u64::from(is);
        for read in &reads {
            let (mut lower, mut upper, shown) = (0, 0, value(read));
            for &(add, delta) in &adds {
                if add.kind == "ok" && add.ended < read.began {
                    lower += delta;
                    upper += delta;
                } else if add.began < read.ended {
                    lower += delta.min(0);
                    upper += delta.max(0);
                }
            }
            broken("below-acknowledged", shown < lower);
            broken("above-attempted", shown > upper);
            let before = reads.iter().rfind(|r| r.process == read.process && r.began < read.began);
            let taken = adds.iter().any(|(add, delta)| *delta < 0 && add.began < read.ended);
            broken("went-down", !taken && before.is_some_and(|before| value(before) > shown));
        }
        let undisturbed = |read: &&&Call<'_>| {
            !adds.iter().any(|(add, _)| add.kind == "ok" && add.began < read.ended && add.ended > read.began)
        };
        if let Some(last) = reads.iter().filter(undisturbed).max_by_key(|read| read.ended) {
            let acked: i64 = adds.iter().filter(|(a, _)| a.kind == "ok" && a.ended < last.began).map(|(_, d)| d).sum();
            let unknown: Vec<i64> =
                adds.iter().filter(|(a, _)| a.kind != "ok" && a.began < last.ended).map(|(_, d)| *d).collect();
            let (low, high) =
                (unknown.iter().map(|d| d.min(&0)).sum::<i64>(), unknown.iter().map(|d| d.max(&0)).sum::<i64>());
            let extra = value(last) - acked;
            let mut sums = std::collections::BTreeSet::from([0]);
            for delta in unknown {
                sums = sums.iter().flat_map(|sum| [*sum, sum + delta]).collect();
            }
            broken("impossible-final-value", (low..=high).contains(&extra) && !sums.contains(&extra));
        }
        counts.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    #[test]
    fn wrong_counters_are_accused_as_the_definitions_say() {
        let mut told = BTreeMap::new();
        for mut random in seeds(2000) {
            let mut log = a_run(&mut random);
            for at in oks(&log, "read") {
                if random.chance(250) {
                    let value: i64 = log[at].value.parse().unwrap();
                    log[at].value = (value + random.below(9) as i64 - 4).to_string();
                }
            }
            if log.is_empty() {
                continue;
            }
            let found = found_in(&testing::history(&log));
            assert_eq!(kinds(&found), naive(&log), "{log:#?}");
            kinds(&found).into_iter().for_each(|(kind, _)| *told.entry(kind).or_insert(0) += 1);
        }
        assert!(told.len() == 4 && told.values().all(|&n| n > 5), "{told:?}");
    }

    #[test]
    fn each_mutation_of_a_read_is_named_and_the_read_is_shown() {
        for mut random in seeds(500) {
            let mut log = a_run(&mut random);
            let reads = oks(&log, "read");
            if reads.is_empty() {
                continue;
            }
            let at = reads[random.below(reads.len() as u64) as usize];
            let (kind, by) = [("below-acknowledged", -1000), ("above-attempted", 1000)][random.below(2) as usize];
            log[at].value = by.to_string();
            let found = found_in(&testing::history(&log));
            assert_eq!(found.count(kind), 1, "{log:#?}");
            assert!(shows(&found, kind, op_of(&log, at)));
        }
    }

    #[test]
    fn a_process_that_is_made_to_read_less_than_before_is_told_with_both_reads() {
        let (mut tried, mut mutated) = (0, 0);
        for mut random in seeds(500) {
            tried += 1;
            let mut object = Number { value: 0, negative: false, step: 1 };
            let clients = 1 + random.below(4);
            let mut log = run(&mut random, &mut object, clients, 60, FAULTS);
            let reads = oks(&log, "read");
            let later = |&at: &usize| {
                let before = reads.iter().rfind(|&&other| other < at && log[other].process == log[at].process);
                Some((*before?, at))
            };
            let twice: Vec<(usize, usize)> = reads.iter().filter_map(later).collect();
            if twice.is_empty() {
                continue;
            }
            let (before, after) = twice[random.below(twice.len() as u64) as usize];
            let less = log[before].value.parse::<i64>().unwrap() - 1 - random.below(3) as i64;
            log[after].value = less.to_string();
            let found = found_in(&testing::history(&log));
            assert_eq!(found.count("went-down"), 1, "{log:#?}");
            assert!(shows(&found, "went-down", op_of(&log, before)) && shows(&found, "went-down", op_of(&log, after)));
            mutated += 1;
        }
        assert!(mutated * 2 > tried, "{mutated} of {tried}");
    }

    #[test]
    fn a_last_read_between_the_possible_sums_is_told_alone() {
        for mut random in seeds(500) {
            // Whatever took effect is a multiple of ten, and one more ten may have: nothing makes the rest.
            let mut object = Number { value: 0, negative: random.chance(500), step: 10 };
            let clients = 1 + random.below(4);
            let mut log = run(&mut random, &mut object, clients, 60, FAULTS);
            testing::then(&mut log, "add", "10", "10", "");
            log.last_mut().unwrap().kind = "info";
            let between = object.value + 1 + random.below(9) as i64;
            testing::then(&mut log, "read", "nil", &between.to_string(), "");
            let found = found_in(&testing::history(&log));
            assert_eq!(kinds(&found), [("impossible-final-value", 1)], "{log:#?}");
            assert!(shows(&found, "impossible-final-value", op_of(&log, log.len() - 1)));
        }
    }

    #[test]
    fn negative_and_mixed_additions_are_legal() {
        assert!(found("invoke 0 add -5 / ok 0 / invoke 0 read / ok 0 read -5").is_valid());
        assert!(found("invoke 0 add 3 / ok 0 / invoke 1 add -5 / invoke 0 read / ok 0 read -2 / ok 1").is_valid());
        assert!(found("invoke 0 add 3 / ok 0 / invoke 1 add -5 / invoke 0 read / ok 0 read 3 / ok 1").is_valid());
        assert_eq!(kinds(&found("invoke 0 add -5 / ok 0 / invoke 0 read / ok 0 read 0")), [("above-attempted", 1)]);
    }

    #[test]
    fn a_process_that_reads_less_than_before_is_told_even_within_bounds() {
        let text = "invoke 1 add 5 / invoke 0 read / ok 0 read 5 / invoke 0 read / ok 0 read 0 / ok 1";
        let found = found(text);
        assert_eq!(kinds(&found), [("went-down", 1)]);
        assert!(shows(&found, "went-down", OpId(1)) && shows(&found, "went-down", OpId(3)));
    }

    #[test]
    fn a_process_may_read_less_while_something_may_have_been_taken_away() {
        let text = |end| {
            format!(
                "invoke 2 add 4 / ok 2 / invoke 1 add -3 / invoke 0 read / ok 0 read 4 / invoke 0 read / ok 0 read 1{end}"
            )
        };
        assert!(found(&text(" / ok 1")).is_valid());
        assert!(found(&text("")).is_valid());
        assert_eq!(kinds(&found(&text(" / fail 1"))), [("below-acknowledged", 1), ("went-down", 1)]);
    }

    #[test]
    fn a_final_value_is_a_sum_of_additions_and_not_anything_between() {
        let text = |n| {
            format!(
                "invoke 0 add 10 / ok 0 / invoke 1 add 5 / info 1 / invoke 2 add 5 / info 2 / invoke 0 read / ok 0 read {n}"
            )
        };
        for n in [10, 15, 20] {
            assert!(found(&text(n)).is_valid());
        }
        assert_eq!(kinds(&found(&text(13))), [("impossible-final-value", 1)]);
    }

    #[test]
    fn an_observed_addition_that_later_fails_is_above_what_was_attempted() {
        let found = found("invoke 0 add 7 / invoke 1 read / ok 1 read 7 / fail 0");
        assert_eq!(kinds(&found), [("above-attempted", 1)]);
    }

    #[test]
    fn a_read_of_nil_says_nothing() {
        let noted = found("invoke 0 read / ok 0 read nil / invoke 0 add 1 / ok 0 / invoke 0 read / ok 0 read 1");
        assert!(noted.is_valid() && noted.count("nil-read") == 1, "{noted:?}");
        assert!(!found("invoke 0 read / ok 0 read nil").is_valid());
    }

    #[test]
    fn without_a_read_or_with_operations_that_are_no_counters_nothing_is_known() {
        for text in [
            "invoke 0 add 1 / ok 0",
            "invoke 0 add :x / ok 0 / invoke 0 read / ok 0 read 0",
            "invoke 0 read / ok 0 read :x",
            "invoke 0 swap / ok 0 / invoke 0 read / ok 0 read 0",
        ] {
            let found = found(text);
            assert!(!found.is_valid() && !found.is_invalid(), "{text}");
        }
    }
}
