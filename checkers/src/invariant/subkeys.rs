//! Does a read in the opposite order see a later insert without an earlier one?
//!
//! CockroachDB's test `sequential`, under another name, as `sequential` here is the checker of sequential consistency, which asks
//! for much more. A client inserts the subkeys of a key one transaction after the other; another reads them one after the other,
//! the last inserted first. Once it has seen one, all that were inserted before are there when it comes to them. So in
//! the list of what it found nothing is missing after something was found (`missing-subkey`). CockroachDB's own checker crashes.
//!
//! A read returns `[key [found or nil …]]`, in the order of reading, or just the list where operations bear keys of their own.
//!
//! O(subkeys read). Memory: none that grows.

use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::OpRef;
use elench_formats::{History, Value};

use super::{Online, State, acknowledged, check_whole};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// Checks all reads of a history.
pub fn subkeys(history: &History, examples: usize) -> Findings {
    check_whole(history, Subkeys::new(examples))
}

/// Checks while a history is written.
pub fn online(examples: usize) -> Box<dyn Incremental> {
    Online::whole(Subkeys::new(examples))
}

#[derive(Clone)]
struct Subkeys {
    found: Findings,
    tally: Tally,
    reads: ByName<bool>,
    all: u64,
    some: u64,
    none: u64,
}

impl Subkeys {
    fn new(examples: usize) -> Self {
        let reads = ByName::new(|name| is_any(name, &["read", "r"]), false);
        Subkeys { found: Findings::new(examples), tally: Tally::default(), reads, all: 0, some: 0, none: 0 }
    }
}

/// Which subkeys were found, in the order of reading. A list of an operation without a key is `[key [found or nil …]]`: `[key nil]` found no list,
/// and not a key where a subkey is missing.
fn read(op: &OpRef<'_>) -> Option<Vec<bool>> {
    let ValueRef::List(list) = op.output() else { return None };
    if op.key() != Scalar::Nil {
        return Some(list.iter().map(|scalar| scalar != Scalar::Nil).collect());
    }
    let Scalar::Text(id) = (list.len() == 2).then(|| list.get(1))? else { return None };
    let Ok(Value::Vector(items)) = elench_formats::edn::parse(op.text(id)) else { return None };
    Some(items.iter().map(|item| !matches!(item, Value::Nil)).collect())
}

impl State for Subkeys {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        if !acknowledged(op) || !self.reads.of(op) {
            return;
        }
        let Some(found) = read(op) else {
            let why = format!("{} returned no list of subkeys", OpId(op.index()));
            return self.found.undecided(Why::Other(why));
        };
        let count = found.iter().filter(|is| **is).count();
        match count {
            0 => self.none += 1,
            n if n == found.len() => self.all += 1,
            _ => self.some += 1,
        }
        let first = found.iter().position(|is| *is).unwrap_or(found.len());
        if let Some(gap) = found[first..].iter().position(|is| !is) {
            self.found.violation("missing-subkey", || {
                let op = OpId(op.index());
                let text = format!(
                    "{op} found the subkey that it read as number {}, and then not number {}, inserted before that",
                    first + gap,
                    first + gap + 1
                );
                Example::new([op], text)
            });
        }
    }

    fn violated(&self) -> Option<&'static str> {
        self.found.is_invalid().then_some("missing-subkey")
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        if self.all + self.some == 0 {
            self.found.undecided(Why::NoEvidence);
        }
        for (name, n) in [("reads that found all", self.all), ("some", self.some), ("none", self.none)] {
            self.found.fact(name, Fact::Count(n));
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Event, both, oks, op_of, seeds, shows, then};
    use super::*;

    fn found_in(log: &[Event]) -> Findings {
        let h = testing::history(log);
        both(&h, subkeys(&h, 1000), online(1000))
    }

    #[test]
    fn a_prefix_of_the_inserts_is_never_accused_and_a_gap_always_is() {
        let mut gaps = 0;
        for mut random in seeds(1000) {
            let mut log = Vec::new();
            let mut expected = Vec::new();
            for key in 0..1 + random.below(4) {
                then(&mut log, "write", &key.to_string(), &key.to_string(), "");
                let n = 1 + random.below(6);
                let mut found: Vec<bool> = (0..n).map(|i| i >= random.below(n + 1).min(i + 1)).collect();
                let inserted = random.below(n + 1);
                if random.chance(500) {
                    // As many as were inserted, from the first on; read from the last.
                    found = (0..n).map(|i| n - i <= inserted).collect();
                }
                let gap = (0..found.len()).any(|i| found[i] && found[i..].contains(&false));
                let cells: Vec<String> = found
                    .iter()
                    .enumerate()
                    .map(|(i, is)| if *is { format!("\"{key}_{i}\"") } else { "nil".into() })
                    .collect();
                then(&mut log, "read", &key.to_string(), &format!("[{key} [{}]]", cells.join(" ")), "");
                expected.extend(gap.then(|| op_of(&log, log.len() - 1)));
            }
            let found = found_in(&log);
            assert_eq!(found.count("missing-subkey"), expected.len() as u64, "{log:#?}");
            assert!(expected.iter().all(|op| shows(&found, "missing-subkey", *op)));
            gaps += expected.len();
            assert!(!oks(&log, "read").is_empty());
        }
        assert!(gaps > 50, "{gaps}");
    }

    #[test]
    fn a_key_without_a_list_is_no_list_with_a_gap() {
        let mut log = Vec::new();
        then(&mut log, "read", "0", "[0 [\"0_1\"]]", "");
        then(&mut log, "read", "1", "[1 nil]", "");
        let found = found_in(&log);
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
    }

    #[test]
    fn reads_that_found_nothing_are_no_evidence() {
        let mut log = Vec::new();
        then(&mut log, "read", "0", "[0 [nil nil]]", "");
        let found = found_in(&log);
        assert!(!found.is_valid() && !found.is_invalid());
    }
}
