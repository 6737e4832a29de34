//! Do the replicas of a counter arrive at what was added to it?
//!
//! A replicated counter (PN-counter; G-counter, where nothing is taken away) promises no more than to converge. So only reads made
//! when all had come to rest are judged: each is the sum of the acknowledged deltas and of *some* of those whose outcome is
//! unknown ([`Sums`]).
//!
//! **Rest must be shown.** A read is final if it is marked so (`:final? true`), or, where the user vouches for it (`--quiescent`), if it
//! is the last one of its process and began after the last acknowledged addition had ended. Without such a read there is no
//! evidence; a marked read that an acknowledged addition overlaps or follows shows that all was not at rest, and is undecided.
//!
//! The question only makes sense at the end: before it, nothing is known to be violated.
//!
//! O(n) and the cost of the sums. Memory: 24 bytes an addition of unknown outcome and a final read. The ranges are those
//! of Maelstrom's `pn-counter`, which enumerates the subsets.

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, Status as Ended};
use elench_formats::sorting::sort_by;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::counter::{Does, Means, does, foreign, names};
use super::sums::Sums;
use super::{Online, State, acknowledged, check, is_final};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally};
use crate::outcome::{OpId, Why};

/// What is told of a replicated counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// What every counter begins at.
    pub initial: i64,
    /// May it only grow?
    pub grows: bool,
    /// Are the last reads vouched to be of a system at rest?
    pub quiescent: bool,
}

/// Checks each key of a history.
pub fn replicated(history: &History, rules: Rules, examples: usize) -> Findings {
    check(history, examples, &Replicated::new(rules, examples))
}

/// Checks while a history is written.
pub fn online(rules: Rules, examples: usize) -> Box<dyn Incremental> {
    Online::new(Replicated::new(rules, examples), examples)
}

#[derive(Clone, Copy, Debug)]
struct Read {
    op: u64,
    ended: u64,
    /// None where it returned no whole number.
    value: Option<i128>,
}

#[derive(Clone)]
struct Replicated {
    rules: Rules,
    found: Findings,
    tally: Tally,
    names: ByName<Means>,
    acked: i128,
    last_ack: u64,
    /// Delta and invocation.
    unknown: Vec<(i128, u64)>,
    marked: Vec<Read>,
    last_of: HashMap<Option<i64>, Read, FixedState>,
}

impl Replicated {
    fn new(rules: Rules, examples: usize) -> Self {
        Replicated {
            rules,
            found: Findings::new(examples),
            tally: Tally::default(),
            names: names(),
            acked: rules.initial.into(),
            last_ack: 0,
            unknown: Vec::new(),
            marked: Vec::new(),
            last_of: HashMap::default(),
        }
    }

    fn added(&mut self, op: &OpRef<'_>, delta: i128) {
        match op.status() {
            Ended::Fail => return,
            Ended::Ok => {
                self.acked += delta;
                self.last_ack = self.last_ack.max(op.complete_index().unwrap_or(0));
            }
            Ended::Info | Ended::Pending => self.unknown.push((delta, op.index())),
        }
        if self.rules.grows && delta < 0 {
            let why =
                format!("{} takes {} away, which a g-counter cannot (pn-counter judges it)", OpId(op.index()), -delta);
            self.found.undecided(Why::Other(why));
        }
    }

    fn read(&mut self, op: &OpRef<'_>) {
        let marked = is_final(op);
        if !marked && !self.rules.quiescent {
            return;
        }
        let id = op.index();
        // One that cannot be read is the last all the same: an earlier one does not stand for it.
        let value = if let ValueRef::Int(value) = op.output() { Some(value.into()) } else { None };
        let read = Read { op: id, ended: op.complete_index().unwrap_or(u64::MAX), value };
        if marked {
            self.marked.push(read);
        } else {
            self.last_of.insert(op.process(), read);
        }
    }

    fn finals(&mut self) -> Vec<Read> {
        if !self.marked.is_empty() || !self.rules.quiescent {
            return std::mem::take(&mut self.marked);
        }
        let last_ack = self.last_ack;
        let mut last: Vec<Read> = self.last_of.values().copied().filter(|read| read.op >= last_ack).collect();
        sort_by(&mut last, |read| read.op);
        last
    }

    fn judge(&mut self, reads: &[Read]) {
        // All unknown additions mostly began before all final reads: then one computation serves them all.
        let mut known: Option<(usize, Sums)> = None;
        sort_by(&mut self.unknown, |(_, began)| *began);
        for read in reads {
            if read.op < self.last_ack {
                let why = format!(
                    "{} is marked as final, but an addition was acknowledged after it began: all was not at rest",
                    OpId(read.op)
                );
                self.found.undecided(Why::Other(why));
                continue;
            }
            let Some(value) = read.value else {
                self.found.undecided(Why::Other(format!("{} returned no whole number", OpId(read.op))));
                continue;
            };
            let n = self.unknown.partition_point(|(_, began)| *began < read.ended);
            let sums = match known.take() {
                Some((m, sums)) if m == n => sums,
                _ => Sums::of(self.unknown[..n].iter().map(|(delta, _)| *delta)),
            };
            self.judge_one(OpId(read.op), value, &sums);
            known = Some((n, sums));
        }
        if let Some((_, sums)) = known {
            self.found.fact("a final value may be", Fact::Text(sums.in_words(self.acked, 8)));
        }
    }

    fn judge_one(&mut self, op: OpId, value: i128, sums: &Sums) {
        let acked = self.acked;
        match sums.contains(value - acked) {
            Some(true) => {}
            Some(false) => self.found.violation("impossible-final-value", || {
                let may = sums.in_words(acked, 4);
                Example::new(
                    [op],
                    format!("{op} returned {value} at rest; what was acknowledged and some of the rest make {may}"),
                )
            }),
            None => {
                let (low, high) = sums.bounds();
                let why = format!(
                    "whether {value} ({op}) is a sum of additions could not be decided within bounds; it is within {} to {}",
                    acked + low,
                    acked + high
                );
                self.found.undecided(Why::Other(why));
            }
        }
    }
}

impl State for Replicated {
    fn invoked(&mut self, op: &OpRef<'_>) {
        if matches!(does(self.names.of(op), op), Does::Odd | Does::Other) {
            self.found.undecided(foreign(op));
        }
    }

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        match does(self.names.of(op), op) {
            Does::Add(delta) => self.added(op, delta),
            Does::Read if acknowledged(op) => self.read(op),
            _ => {}
        }
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        let reads = self.finals();
        if reads.is_empty() {
            let why = match self.rules.quiescent {
                true => "no read began after the last acknowledged addition had ended",
                false => {
                    "no read is marked as final (`:final? true`); --quiescent vouches that the last reads are of a system at rest"
                }
            };
            self.found.undecided(Why::Other(why.into()));
        }
        self.found.fact("acknowledged", Fact::Int(self.acked));
        self.found.fact("additions of unknown outcome", Fact::Count(self.unknown.len() as u64));
        self.found.fact("final reads", Fact::Count(reads.len() as u64));
        self.judge(&reads);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Event, FAULTS, Object, both, op_of, run, seeds, shows, then};
    use super::*;
    use crate::linear::tests::Random;

    const FINAL: &str = ", :final? true";

    fn found_in(log: &[Event], rules: Rules) -> Findings {
        let h = testing::history(log);
        both(&h, replicated(&h, rules, 3), online(rules, 3))
    }

    /// Two replicas that exchange their counts now and then.
    struct Replicas([i64; 2]);

    impl Object for Replicas {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            match random.below(3) {
                0 => ("read", "nil".into()),
                _ => ("add", (random.below(40) as i64 - 10).to_string()),
            }
        }

        fn apply(&mut self, process: u64, f: &'static str, value: &str) -> Option<String> {
            let own = &mut self.0[(process % 2) as usize];
            if f == "read" {
                return Some(own.to_string());
            }
            *own += value.parse::<i64>().unwrap();
            Some(value.into())
        }
    }

    fn a_run(random: &mut Random) -> (Vec<Event>, i64) {
        let mut object = Replicas([0, 0]);
        let clients = 1 + random.below(4);
        let mut log = run(random, &mut object, clients, 40, FAULTS);
        let sum = object.0[0] + object.0[1];
        for _ in 0..1 + random.below(2) {
            then(&mut log, "read", "nil", &sum.to_string(), FINAL);
        }
        (log, sum)
    }

    #[test]
    fn replicas_that_converge_are_never_accused_and_others_are() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let (mut log, sum) = a_run(&mut random);
            let found = found_in(&log, Rules::default());
            assert!(found.is_valid(), "{found:?} {log:#?}");
            valid += 1;
            let at = log.len() - 1;
            log[at].value = (sum + 5000).to_string();
            let found = found_in(&log, Rules::default());
            assert_eq!(found.count("impossible-final-value"), 1);
            assert!(shows(&found, "impossible-final-value", op_of(&log, at)));
        }
        assert!(valid > 0);
    }

    /// Every subset by itself.
    #[test]
    fn final_values_are_those_of_some_subset() {
        let mut wrong = 0;
        for mut random in seeds(500) {
            let (mut log, sum) = a_run(&mut random);
            let at = log.len() - 1;
            let value = sum + random.below(7) as i64 - 3;
            log[at].value = value.to_string();
            let (mut acked, mut unknown) = (0, Vec::new());
            for (i, e) in log.iter().enumerate().filter(|(_, e)| e.kind == "invoke" && e.f == "add") {
                let delta: i64 = e.value.parse().unwrap();
                match log[i + 1..].iter().find(|x| x.process == e.process).map_or("info", |x| x.kind) {
                    "ok" => acked += delta,
                    "info" => unknown.push(delta),
                    _ => {}
                }
            }
            let sums = (0..1u32 << unknown.len().min(20)).any(|mask| {
                let some = unknown.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
                acked + some.map(|(_, d)| d).sum::<i64>() == value
            });
            let found = found_in(&log, Rules::default());
            assert_eq!(found.is_invalid(), !sums, "{log:#?}");
            wrong += u32::from(!sums);
        }
        assert!(wrong > 30, "{wrong}");
    }

    #[test]
    fn without_rest_nothing_is_known() {
        let mut log = Vec::new();
        then(&mut log, "add", "5", "5", "");
        then(&mut log, "read", "nil", "3", "");
        let found = found_in(&log, Rules::default());
        assert!(!found.is_valid() && !found.is_invalid());
        let vouched = Rules { quiescent: true, ..Rules::default() };
        assert_eq!(found_in(&log, vouched).count("impossible-final-value"), 1);
        then(&mut log, "read", "nil", "5", FINAL);
        assert!(found_in(&log, Rules::default()).is_valid());
        then(&mut log, "add", "5", "5", "");
        let found = found_in(&log, Rules::default());
        assert!(!found.is_valid() && !found.is_invalid(), "an addition came after the final read");
        assert!(!found_in(&log, vouched).is_invalid());
    }

    #[test]
    fn an_earlier_read_does_not_stand_for_a_last_one_that_cannot_be_read() {
        let mut log = Vec::new();
        then(&mut log, "read", "nil", "7", "");
        then(&mut log, "read", "nil", ":x", "");
        log.iter_mut().for_each(|e| e.process = 0);
        let vouched = Rules { quiescent: true, ..Rules::default() };
        let found = found_in(&log, vouched);
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
        log[2..].iter_mut().for_each(|e| e.extra = FINAL.into());
        assert!(!found_in(&log, vouched).is_invalid(), "what is marked counts alone");
    }

    #[test]
    fn the_first_event_of_a_history_may_be_a_last_read() {
        let mut log = Vec::new();
        then(&mut log, "read", "nil", "7", "");
        let found = found_in(&log, Rules { quiescent: true, ..Rules::default() });
        assert!(shows(&found, "impossible-final-value", OpId(0)), "{found:?}");
    }

    #[test]
    fn a_g_counter_that_takes_away_is_none() {
        let mut log = Vec::new();
        then(&mut log, "add", "-5", "-5", "");
        then(&mut log, "read", "nil", "-5", FINAL);
        let found = found_in(&log, Rules { grows: true, ..Rules::default() });
        assert!(!found.is_valid() && !found.is_invalid());
        assert!(found_in(&log, Rules::default()).is_valid());
    }
}
