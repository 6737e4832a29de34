//! Did both of two inserts commit that exclude each other?
//!
//! Adya's test of anti-dependency cycles, as Jepsen has it: of each pair, one transaction inserts into one table if it saw no row of
//! the pair in either, the other into the other table likewise. In a serial order the second sees the row of the first. So
//! at most one insert of a pair commits; two that did each missed the other's write: `G2`.
//!
//! Only acknowledged inserts are held against each other: of an unknown one it is not known that it committed.
//!
//! O(1) an operation. Memory: 24 bytes a pair.
//!
//! Source: A. Adya, Weak Consistency, PhD thesis, MIT, 1999.

use elench_formats::columns::Scalar;
use elench_formats::history::OpRef;
use elench_formats::{History, Value};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Online, State, acknowledged, atoms, check_whole};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// Checks all pairs of a history. A pair is an operation's key, else the first element of its value `[pair [a b]]`.
pub fn g2(history: &History, examples: usize) -> Findings {
    check_whole(history, G2::new(examples))
}

/// Checks while a history is written.
pub fn online(examples: usize) -> Box<dyn Incremental> {
    Online::whole(G2::new(examples))
}

#[derive(Clone)]
struct G2 {
    found: Findings,
    tally: Tally,
    inserts: ByName<bool>,
    /// The first acknowledged insert of a pair, and how many there are.
    inserted: HashMap<Scalar, (u64, u32), FixedState>,
}

impl G2 {
    fn new(examples: usize) -> Self {
        let inserts = ByName::new(|name| is_any(name, &["insert"]), false);
        G2 { found: Findings::new(examples), tally: Tally::default(), inserts, inserted: HashMap::default() }
    }
}

/// The pair of an insert `[pair [a b]]`, of whose ids one is nil: into which table it goes.
fn pair(op: &OpRef<'_>) -> Option<Scalar> {
    let one_is_nil = |a: bool, b: bool| a != b;
    let list = op.input().elements().filter(|list| list.len() == 2)?;
    if op.key() != Scalar::Nil {
        return one_is_nil(list.get(0) == Scalar::Nil, list.get(1) == Scalar::Nil).then(|| op.key());
    }
    let Scalar::Text(ids) = list.get(1) else { return None };
    let Ok(Value::Vector(ids)) = elench_formats::edn::parse(op.text(ids)) else { return None };
    let nil = |id: &Value| matches!(id, Value::Nil);
    (ids.len() == 2 && one_is_nil(nil(&ids[0]), nil(&ids[1]))).then(|| list.get(0))
}

impl State for G2 {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        if !self.inserts.of(op) {
            return;
        }
        self.tally.count(op);
        let Some(pair) = pair(op) else {
            let why = format!("{} inserts what is no `[pair [a b]]` with one of a and b nil", OpId(op.index()));
            return self.found.undecided(Why::Other(why));
        };
        if !acknowledged(op) {
            return;
        }
        let (first, count) = self.inserted.entry(pair).or_insert((op.index(), 0));
        *count += 1;
        if *count > 1 {
            let (first, second) = (OpId(*first), OpId(op.index()));
            self.found.violation("G2", || {
                let text = format!(
                    "{first} and {second} both inserted for pair {}: neither saw the other",
                    atoms::written(op, pair)
                );
                Example::new([first, second], text)
            });
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.found.is_invalid().then_some("G2")
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        self.found.fact("pairs inserted", Fact::Count(self.inserted.len() as u64));
        self.found
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::build::Lift;

    use super::super::testing::{self, Event, FAULTS, Object, both, op_of, run, seeds, shows};
    use super::*;
    use crate::linear::tests::Random;

    fn found_in(log: &[Event], lift: Lift) -> Findings {
        let h = testing::history_lifting(log, lift);
        both(&h, g2(&h, 1000), online(1000))
    }

    struct Pairs(std::collections::BTreeSet<u64>, u64);

    impl Object for Pairs {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            self.1 += 1;
            let ids = if random.chance(500) { format!("[{} nil]", self.1) } else { format!("[nil {}]", self.1) };
            ("insert", format!("[{} {ids}]", random.below(8)))
        }

        fn apply(&mut self, _: u64, _: &'static str, value: &str) -> Option<String> {
            let pair: u64 = value[1..].split(' ').next().unwrap().parse().unwrap();
            self.0.insert(pair).then(|| value.into())
        }
    }

    #[test]
    fn one_insert_a_pair_is_never_accused_and_a_second_always_is() {
        for mut random in seeds(1000) {
            let mut log = run(&mut random, &mut Pairs(Default::default(), 0), 3, 40, FAULTS);
            if log.is_empty() {
                continue;
            }
            let lift = [Lift::Always, Lift::Never][random.below(2) as usize];
            assert!(!found_in(&log, lift).is_invalid(), "{log:#?}");
            // A failed one is said to have committed: right for a pair of which no other did.
            let fails: Vec<usize> = (0..log.len()).filter(|&i| log[i].kind == "fail").collect();
            let Some(&at) = fails.first() else { continue };
            log[at].kind = "ok";
            let pair = |e: &Event| e.value.split(' ').next().unwrap().to_string();
            let all = log.iter().filter(|e| e.kind == "ok" && pair(e) == pair(&log[at])).count() as u64;
            let found = found_in(&log, lift);
            assert_eq!(found.count("G2"), all - 1);
            assert_eq!(all > 1, shows(&found, "G2", op_of(&log, at)));
        }
    }

    #[test]
    fn inserts_of_another_kind_are_not_judged() {
        let mut log = Vec::new();
        testing::then(&mut log, "insert", "[1 2]", "[1 2]", "");
        testing::then(&mut log, "insert", "[1 3]", "[1 3]", "");
        for lift in [Lift::Always, Lift::Never] {
            let found = found_in(&log, lift);
            assert!(!found.is_valid() && !found.is_invalid());
        }
    }
}
