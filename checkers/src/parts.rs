//! What do the parts of a history say together? Its operations by key, and what was found in each key.
//!
//! Violations, notes and coverage add up. Of what describes a key, counts add up and durations are merged, so that quantiles are
//! those of all keys; a text that is the same in each stays; all else is told of the first keys in a table.

use elench_formats::History;
use elench_formats::history::OpRef;

use crate::findings::{Fact, Findings, Table};
use crate::latencies::Latencies;
use crate::outcome::KeyId;
use crate::parallel;

/// The operations of one key, and those without a key, which belong to every key; or all, where no operation bears a key.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    history: &'a History,
    rows: Option<(&'a [u32], &'a [u32])>,
}

impl<'a> Part<'a> {
    /// All operations, as if they had no keys.
    pub fn whole(history: &'a History) -> Part<'a> {
        Part { history, rows: None }
    }

    /// The history that it is a part of.
    pub fn history(&self) -> &'a History {
        self.history
    }

    /// Operations of clients, in the order of their invocations. `for_each` is the quickest way through.
    pub fn ops(&self) -> impl Iterator<Item = OpRef<'a>> + use<'a> {
        let history = self.history;
        let all = self.rows.is_none().then(|| history.clients());
        let (own, common) = self.rows.unwrap_or_default();
        let (alone, own): (&[u32], &[u32]) = if common.is_empty() { (own, &[]) } else { (&[], own) };
        let (mut own, mut common) = (own.iter().peekable(), common.iter().peekable());
        let merged = std::iter::from_fn(move || match (own.peek(), common.peek()) {
            (Some(a), Some(b)) if a < b => own.next(),
            (_, Some(_)) => common.next(),
            (_, None) => own.next(),
        });
        let rows = alone.iter().chain(merged).map(|&row| row as usize);
        all.into_iter().flatten().chain(history.ops_at(rows).filter(OpRef::is_client))
    }
}

/// Checks each key of a history by itself, in parallel, and merges. A history without keys is one part. A key that holds no
/// acknowledged operation of the kind judged does not make the others unknown; one that holds some and not enough to judge does. Memory: what was found, not a key at a time but merged as it comes.
pub fn by_key(history: &History, examples: usize, check: impl Fn(Part<'_>) -> Findings + Sync) -> Findings {
    of_keys(history, examples, &check)
}

fn of_keys(history: &History, examples: usize, check: &(dyn Fn(Part<'_>) -> Findings + Sync)) -> Findings {
    let index = history.key_index();
    if index.is_empty() {
        return check(Part::whole(history)).of_all();
    }
    let of = |k: usize| {
        let mut text = String::new();
        history.write_scalar(index.keys()[k], &mut text);
        let part = Part { history, rows: Some((index.rows(k), index.keyless())) };
        (check(part).of_key(KeyId(k as u32), &text), text)
    };
    let at_once = index.len().div_ceil(BLOCKS);
    let block = |i: usize| {
        let keys = i * at_once..index.len().min((i + 1) * at_once);
        keys.map(of).fold(Keys::new(examples), Keys::with)
    };
    let blocks = parallel::map(index.len().div_ceil(at_once), 1, block);
    blocks.into_iter().fold(Keys::new(examples), Keys::and).together()
}

/// Runs of keys that are checked at once and merged then.
const BLOCKS: usize = 1024;
/// Keys of which those facts are told that do not add up.
const TOLD: usize = 16;
/// The column of keys in their table, and its name.
const KEY: &str = "key";
const BY_KEY: &str = "by key";

/// What was found in some keys, one after the other.
pub(crate) struct Keys {
    all: Findings,
    keys: u64,
    facts: Vec<Together>,
}

/// What keys say under one name.
struct Together {
    name: String,
    /// The first one said this; counts are added to it.
    fact: Fact,
    durations: Option<Latencies>,
    /// Keys that said it; did all say the same?
    keys: u64,
    same: bool,
    /// Of the first keys.
    rows: Vec<(String, Fact)>,
}

impl Keys {
    pub(crate) fn new(examples: usize) -> Keys {
        Keys { all: Findings::new(examples), keys: 0, facts: Vec::new() }
    }

    /// And those of one more key, which has this name.
    pub(crate) fn with(mut self, (mut found, key): (Findings, String)) -> Keys {
        let (facts, mut durations) = found.take_facts();
        for (name, fact) in facts {
            let at = durations.iter().position(|(of, _)| *of == name);
            let durations = at.map(|at| durations.swap_remove(at).1);
            let rows = vec![(key.clone(), fact.clone())];
            self.say(Together { name, fact, durations, keys: 1, same: true, rows });
        }
        self.all.merge(found);
        self.keys += 1;
        self
    }

    /// And those of more keys, which come after these.
    pub(crate) fn and(mut self, other: Keys) -> Keys {
        other.facts.into_iter().for_each(|more| self.say(more));
        self.all.merge(other.all);
        self.keys += other.keys;
        self
    }

    fn say(&mut self, more: Together) {
        let Some(known) = self.facts.iter_mut().find(|known| known.name == more.name) else {
            return self.facts.push(more);
        };
        known.same &= more.same && known.fact == more.fact;
        known.keys += more.keys;
        if let (Fact::Count(sum), Fact::Count(n)) = (&mut known.fact, &more.fact) {
            *sum += n;
        }
        if let (Some(all), Some(own)) = (&mut known.durations, &more.durations) {
            all.merge(own);
        }
        let room = TOLD.saturating_sub(known.rows.len());
        known.rows.extend(more.rows.into_iter().take(room));
    }

    /// All of it as what was found in one history.
    pub(crate) fn together(mut self) -> Findings {
        if self.keys == 1 {
            self.facts.into_iter().for_each(|of| self.all.fact(of.name, of.fact));
            return self.all;
        }
        let mut by_key = Vec::new();
        for of in self.facts {
            match of.fact {
                Fact::Count(_) => self.all.fact(of.name, of.fact),
                Fact::Quantiles(_) if of.durations.is_some() => {
                    of.durations.iter().for_each(|all| self.all.durations(&of.name, all));
                }
                Fact::Text(_) if of.same && of.keys == self.keys => self.all.fact(of.name, of.fact),
                // A table does not fit into a cell.
                Fact::Table(_) => {}
                _ => by_key.push((of.name, of.rows)),
            }
        }
        if let Some(table) = by_name(by_key) {
            self.all.fact(BY_KEY, Fact::Table(table));
        }
        self.all
    }
}

/// A row a key, a column a name.
fn by_name(said: Vec<(String, Vec<(String, Fact)>)>) -> Option<Table> {
    let mut keys: Vec<String> = Vec::new();
    for (key, _) in said.iter().flat_map(|(_, rows)| rows) {
        if keys.len() < TOLD && !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    let cell = |rows: &[(String, Fact)], key: &str| {
        rows.iter().find(|(of, _)| of == key).map_or(Fact::Text(String::new()), |(_, fact)| fact.clone())
    };
    let row = |key: &String| {
        let cells = said.iter().map(|(_, rows)| cell(rows, key));
        std::iter::once(Fact::Text(key.clone())).chain(cells).collect()
    };
    let rows: Vec<Vec<Fact>> = keys.iter().map(row).collect();
    let columns = std::iter::once(KEY.to_string()).chain(said.iter().map(|(name, _)| name.clone())).collect();
    (!rows.is_empty()).then_some(Table { columns, rows })
}

#[cfg(test)]
mod tests {
    use elench_formats::build::{BuildOptions, Lift};
    use elench_formats::notation::history_with;

    use super::*;
    use crate::findings::{Example, ended};
    use crate::outcome::{OpId, Status, Why};

    fn keyed(text: &str) -> History {
        history_with(text, BuildOptions { lift: Lift::Always, ..BuildOptions::default() }).unwrap()
    }

    #[test]
    fn a_key_without_evidence_does_not_make_the_others_unknown() {
        let h = keyed("invoke 0 add [:k 1] / ok 0 / invoke 1 add [:j 2] / info 1 / invoke 2 read / ok 2 read 5");
        let found = by_key(&h, 3, |part| {
            let mut findings = Findings::new(3);
            for op in part.ops() {
                findings.coverage.count("add", ended(&op), u64::from(op.f() == Some("add")));
                if op.f() == Some("add") && ended(&op) == Status::Ok {
                    findings.note("added", || Example::new([OpId(op.index())], "added"));
                }
            }
            if findings.count("added") == 0 {
                findings.undecided(Why::NoEvidence);
            }
            findings
        });
        let coverage = &found.coverage;
        assert_eq!((coverage.keys, coverage.keys_decided, coverage.keys_silent), (2, 1, 1), "{found:?}");
        assert!(found.is_valid() && found.outcome().is_valid(), "{found:?}");
    }

    #[test]
    fn a_key_that_holds_operations_but_no_evidence_makes_the_whole_unknown() {
        let unread = "invoke 0 add [:x 1] / ok 0 / invoke 0 read [:x nil] / info 0";
        let unread_too = "invoke 1 add [:y 1] / ok 1 / invoke 1 read [:y nil] / info 1";
        let read = "invoke 1 add [:y 1] / ok 1 / invoke 1 read [:y nil] / ok 1 read [:y [1]]";
        for (text, decided) in [
            (unread.to_string(), 0),
            (format!("{unread} / {unread_too}"), 0),
            (format!("{unread} / {read}"), 1),
            (format!("{read} / {unread}"), 1),
        ] {
            let found = by_key(&keyed(&text), 3, |part| {
                let mut findings = Findings::new(3);
                let mut judged = 0;
                for op in part.ops() {
                    findings.coverage.count(op.f().unwrap(), ended(&op), 1);
                    judged += u64::from(op.f() == Some("read") && ended(&op) == Status::Ok);
                }
                if judged == 0 {
                    findings.undecided(Why::NoEvidence);
                }
                findings
            });
            assert!(!found.is_invalid());
            assert_eq!(found.why(), Some(Why::NoEvidence), "{text}: {found:?}");
            assert_eq!(found.coverage.keys_decided, decided, "{text}");
            assert_eq!(found.coverage.undecided.len() as u64, found.coverage.keys - decided, "{text}");
        }
    }

    #[test]
    fn a_part_has_its_own_operations_and_those_without_a_key_in_order() {
        let text = "invoke 0 read / ok 0 read 1 / invoke 1 add [:a 1] / ok 1 / invoke 1 add [:b 2] / ok 1 / \
                    invoke 2 read / ok 2 read 1 / invoke 1 add [:a 3] / ok 1";
        let h = keyed(text);
        let index = h.key_index();
        let seen = |k: usize| {
            let part = Part { history: &h, rows: Some((index.rows(k), index.keyless())) };
            part.ops().map(|op| op.index()).collect::<Vec<_>>()
        };
        assert_eq!((seen(0), seen(1)), (vec![0, 2, 6, 8], vec![0, 4, 6]));
        let alone = keyed("invoke 1 add [:a 1] / ok 1 / invoke 1 add [:b 2] / ok 1 / invoke 1 add [:a 3] / ok 1");
        let index = alone.key_index();
        let part = Part { history: &alone, rows: Some((index.rows(0), index.keyless())) };
        assert_eq!(part.ops().map(|op| op.index()).collect::<Vec<_>>(), [0, 4]);
        assert_eq!(Part::whole(&alone).ops().count(), 3);
    }

    fn one(n: u64, text: &str, took: &[i64]) -> Findings {
        let mut found = Findings::new(1);
        found.fact("count", Fact::Count(n));
        found.fact("place", Fact::Int(n.into()));
        found.fact("words", Fact::Text(text.into()));
        let mut durations = Latencies::default();
        took.iter().for_each(|&t| durations.record(t));
        found.durations("time", &durations);
        found
    }

    #[test]
    fn counts_add_up_durations_merge_and_the_rest_is_told_by_key() {
        let keys = [("a", one(1, "x", &[1, 3])), ("b", one(2, "x", &[])), ("c", one(3, "x", &[2]))];
        let all = keys.into_iter().fold(Keys::new(1), |all, (key, found)| all.with((found, key.into()))).together();
        assert_eq!(all.fact_of("count"), Some(&Fact::Count(6)));
        assert_eq!(all.fact_of("words"), Some(&Fact::Text("x".into())));
        let Some(Fact::Quantiles(time)) = all.fact_of("time") else { panic!("{all:?}") };
        assert_eq!((time.count, &time.at[..2]), (3, &[(0, 1), (500, 2)][..]));
        let Some(Fact::Table(table)) = all.fact_of("by key") else { panic!("{all:?}") };
        assert_eq!(table.columns, ["key", "place"]);
        assert_eq!(table.rows[2], [Fact::Text("c".into()), Fact::Int(3)]);
        assert_eq!(all.facts().len(), 4, "{all:?}");
    }

    #[test]
    fn groups_of_keys_merge_as_single_ones_do() {
        let found = |i: u64| (one(i, if i == 9 { "y" } else { "x" }, &[i as i64 + 1]), format!("k{i}"));
        let alone = (0..40).map(found).fold(Keys::new(2), Keys::with).together();
        let group = |from, to| (from..to).map(found).fold(Keys::new(2), Keys::with);
        let grouped = group(0, 7).and(Keys::new(2)).and(group(7, 30)).and(group(30, 40)).together();
        assert_eq!(alone, grouped);
        let Some(Fact::Table(table)) = alone.fact_of("by key") else { panic!("{alone:?}") };
        assert_eq!((table.columns.len(), table.rows.len()), (3, TOLD), "what differs is told of the first keys");
    }

    #[test]
    fn facts_of_the_only_key_stay_as_they_are() {
        let only = Keys::new(1).with((one(5, "x", &[7]), "k".into())).together();
        assert_eq!(only.facts(), one(5, "x", &[7]).facts());
    }
}
