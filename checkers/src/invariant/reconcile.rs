//! Do the replicas hold the same when all has come to rest?
//!
//! Each replica's final dump is compared with those of the others, each pair by itself: where they hold the same, all is well;
//! else what one has and the other has not, or has otherwise, is told (`replicas-differ`). Dumps are maps, compared key by key, or
//! collections, compared element by element; a vector's order does not count, the number of equal elements does.
//!
//! **Rest must be shown**, or two replicas may differ with right. A dump is final if it is marked so (`:final? true`), or if the
//! user vouches (`--quiescent`) for the last of each node and it began after every acknowledged operation that is no dump had ended. Where an
//! acknowledged operation overlaps or follows the earliest of the final dumps, nothing is decided; so the question only makes sense at the end.
//! An operation of unknown outcome that does not read, and began before the last dump had ended, may take effect while dumps are made: replicas
//! that hold the same do so even then, but nothing is said of those that differ.
//! A replica is the operation's node, else its process. Or each of some files is the dump of a replica; as nothing marks them, the user
//! has to vouch that they were made at rest, after the history.
//!
//! O(size of the dumps), and O(r²) for r distinct contents. Memory: a dump a replica.

use std::collections::BTreeMap;

use elench_formats::history::OpRef;
use elench_formats::{History, Value};

use super::{Online, State, acknowledged, atoms, check, is_final};
use crate::delivery::Dump as File;
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::{ByName, Tally, is_any};
use crate::outcome::{OpId, Why};

/// Checks each key of a history. `quiescent` vouches for the last dumps.
pub fn reconcile(history: &History, quiescent: bool, examples: usize) -> Findings {
    check(history, examples, &Reconcile::new(quiescent, examples))
}

/// The same of dumps in files, each of a replica, of the whole system. `quiescent` vouches that they were made at rest after the history.
pub fn reconcile_files(history: &History, files: &[File], quiescent: bool, examples: usize) -> Findings {
    let mut state = Reconcile { told_by_files: true, ..Reconcile::new(false, examples) };
    history.clients().for_each(|op| state.completed(&op));
    state.tally.tell(&mut state.found.coverage);
    let dump = |file: &File| (file.name.clone(), Dump { op: None, ended: None, holds: holds(file.content.clone()) });
    let dumps: Vec<(String, Dump)> = files.iter().map(dump).collect();
    state.found.fact("replicas", Fact::Int(dumps.len() as i128));
    match (quiescent, dumps.len()) {
        (_, ..2) => state.undecided("fewer than two replicas have a dump".into()),
        (false, _) => state.undecided("rest is not shown: files bear no mark; --quiescent vouches for them".into()),
        (true, _) => state.compare(&dumps),
    }
    state.found.of_all()
}

/// Checks while a history is written.
pub fn online(quiescent: bool, examples: usize) -> Box<dyn Incremental> {
    Online::new(Reconcile::new(quiescent, examples), examples)
}

const DUMPS: [&str; 7] = ["read", "dump", "read-all", "final-read", "snapshot", "scan", "local-read"];

/// Further names of what changes nothing.
const READS: [&str; 5] = ["r", "get", "list", "members", "view"];

#[derive(Clone, Debug)]
struct Dump {
    /// The operation that returned it, and where that ended; none of a file.
    op: Option<u64>,
    ended: Option<u64>,
    holds: Holds,
}

/// What entries mean: `{1 2}` is not two elements 1, nor `[nil nil]` the value 2. Nothing is nothing in any shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Nothing,
    /// Keys and values.
    Map,
    /// Elements, and how many of each.
    Many,
    /// A single value.
    One,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holds {
    shape: Shape,
    entries: BTreeMap<Value, Value>,
}

#[derive(Clone)]
struct Reconcile {
    quiescent: bool,
    found: Findings,
    tally: Tally,
    dumps: ByName<bool>,
    /// Are dumps in files, so that no operation's is kept?
    told_by_files: bool,
    /// Functions that only read, as their names say.
    reads: ByName<bool>,
    /// The first operation that may yet take effect.
    unknown: Option<u64>,
    marked: BTreeMap<String, Dump>,
    last: BTreeMap<String, Dump>,
    /// Where the last acknowledged operation ended that is no dump.
    last_change: u64,
}

impl Reconcile {
    fn new(quiescent: bool, examples: usize) -> Self {
        Reconcile {
            quiescent,
            found: Findings::new(examples),
            tally: Tally::default(),
            dumps: ByName::new(|name| is_any(name, &DUMPS), false),
            told_by_files: false,
            reads: ByName::new(|name| is_any(name, &DUMPS) || is_any(name, &READS), false),
            unknown: None,
            marked: BTreeMap::new(),
            last: BTreeMap::new(),
            last_change: 0,
        }
    }

    fn dump(&mut self, op: &OpRef<'_>) {
        let marked = is_final(op);
        if (!marked && !self.quiescent) || self.told_by_files {
            return;
        }
        let Some(replica) = op.node().map(str::to_string).or_else(|| Some(format!("process {}", op.process()?))) else {
            let why = format!("{} bears neither node nor process", OpId(op.index()));
            return self.found.undecided(Why::Other(why));
        };
        let dump =
            Dump { op: Some(op.index()), ended: op.complete_index(), holds: holds(atoms::tree(op, op.output())) };
        if marked { &mut self.marked } else { &mut self.last }.insert(replica, dump);
    }

    fn undecided(&mut self, why: String) {
        self.found.undecided(Why::Other(why));
    }

    /// Dumps of replicas at rest.
    fn compare(&mut self, dumps: &[(String, Dump)]) {
        let differ = dumps.windows(2).any(|two| two[0].1.holds != two[1].1.holds);
        // What began only when all dumps of operations had ended excuses none of them.
        let over = dumps.iter().map(|(_, dump)| dump.ended.unwrap_or(u64::MAX)).max();
        if let Some(op) = self.unknown.filter(|op| differ && Some(*op) < over) {
            return self.undecided(format!(
                "rest is not shown: replicas differ, and {}, whose outcome nobody knows, may have taken effect while they were dumped or after",
                OpId(op)
            ));
        }
        for (i, (one, a)) in dumps.iter().enumerate() {
            for (other, b) in &dumps[i + 1..] {
                if a.holds == b.holds {
                    continue;
                }
                self.found.violation("replicas-differ", || {
                    let place = |dump: &Dump| dump.op.map_or(String::new(), |op| format!(" ({})", OpId(op)));
                    let text = format!("{one}{} and {other}{} differ: {}", place(a), place(b), difference(a, b));
                    Example::new([a.op, b.op].into_iter().flatten().map(OpId), text)
                });
            }
        }
    }
}

fn holds(value: Value) -> Holds {
    let (shape, entries) = match value {
        Value::Map(entries) => (Shape::Map, entries.into_iter().collect()),
        Value::Vector(items) | Value::Set(items) => {
            let mut counts: BTreeMap<Value, i64> = BTreeMap::new();
            items.into_iter().for_each(|item| *counts.entry(item).or_default() += 1);
            (Shape::Many, counts.into_iter().map(|(item, n)| (item, Value::Int(n))).collect())
        }
        Value::Nil => (Shape::Nothing, BTreeMap::new()),
        one => (Shape::One, BTreeMap::from([(Value::Nil, one)])),
    };
    Holds { shape: if entries.is_empty() { Shape::Nothing } else { shape }, entries }
}

/// A few entries that only one has, or that differ, and how many there are.
fn difference(a: &Dump, b: &Dump) -> String {
    let (a, b) = (&a.holds, &b.holds);
    if a.shape != b.shape && a.shape != Shape::Nothing && b.shape != Shape::Nothing {
        return format!("one is {}, the other {}", a.shape.in_words(), b.shape.in_words());
    }
    let keys: std::collections::BTreeSet<&Value> = a.entries.keys().chain(b.entries.keys()).collect();
    let differ: Vec<&Value> = keys.into_iter().filter(|key| a.entries.get(key) != b.entries.get(key)).collect();
    let side = |of: &Holds, key: &Value| of.entries.get(key).map_or("absent".into(), Value::to_edn);
    let told = differ.iter().take(5).map(|key| format!("{} {} / {}", key.to_edn(), side(a, key), side(b, key)));
    let told: Vec<String> = told.collect();
    let more = if differ.len() > 5 { format!(" and {} more", differ.len() - 5) } else { String::new() };
    format!("{}{more}", told.join(", "))
}

impl Shape {
    fn in_words(self) -> &'static str {
        match self {
            Shape::Nothing => "nothing",
            Shape::Map => "a map",
            Shape::Many => "a collection",
            Shape::One => "a single value",
        }
    }
}

impl State for Reconcile {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        self.tally.count(op);
        if op.status().is_unknown() && !self.reads.of(op) {
            self.unknown = Some(self.unknown.map_or(op.index(), |first| first.min(op.index())));
        }
        if !acknowledged(op) {
            return;
        }
        if self.dumps.of(op) {
            self.dump(op);
        } else {
            self.last_change = self.last_change.max(op.complete_index().unwrap_or(u64::MAX));
        }
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        let marked = std::mem::take(&mut self.marked);
        let dumps: Vec<(String, Dump)> =
            if marked.is_empty() { std::mem::take(&mut self.last) } else { marked }.into_iter().collect();
        self.found.fact("replicas", Fact::Int(dumps.len() as i128));
        if dumps.len() < 2 {
            let why = "rest is not shown: fewer than two replicas have a dump that is marked as final (`:final? true`); --quiescent vouches for the last ones";
            self.found.undecided(Why::Other(why.into()));
            return self.found;
        }
        if let Some((replica, dump)) = dumps.iter().find(|(_, dump)| dump.op < Some(self.last_change)) {
            let why = format!(
                "rest is not shown: {replica} was dumped ({}) before the last acknowledged operation ended",
                OpId(dump.op.unwrap_or_default())
            );
            self.found.undecided(Why::Other(why));
            return self.found;
        }
        self.compare(&dumps);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Event, both, op_of, seeds, shows, then};
    use super::*;

    const FINAL: &str = ", :final? true";

    fn found_with(log: &[Event], quiescent: bool) -> Findings {
        let h = testing::history(log);
        both(&h, reconcile(&h, quiescent, 1000), online(quiescent, 1000))
    }

    #[test]
    fn equal_replicas_are_never_accused_and_each_pair_that_differs_is() {
        for mut random in seeds(1000) {
            let mut log = Vec::new();
            then(&mut log, "write", "1", "1", "");
            let n = 2 + random.below(3);
            let map = random.chance(500);
            let text = |items: &[u64]| {
                let cells: Vec<String> =
                    items.iter().map(|i| if map { format!("{i} :v{i}") } else { i.to_string() }).collect();
                if map { format!("{{{}}}", cells.join(", ")) } else { format!("[{}]", cells.join(" ")) }
            };
            let items: Vec<u64> = (0..random.below(5)).collect();
            for _ in 0..n {
                let mut shuffled = items.clone();
                let turn = random.below(items.len().max(1) as u64) as usize;
                shuffled.rotate_left(turn.min(items.len()));
                then(&mut log, "dump", "nil", &text(&shuffled), FINAL);
            }
            assert!(found_with(&log, false).is_valid(), "{log:#?}");
            let at = log.len() - 1;
            let mut wrong = items.clone();
            if random.chance(500) || wrong.is_empty() {
                wrong.push(77)
            } else {
                wrong.pop().unwrap_or_default();
            }
            log[at].value = text(&wrong);
            let found = found_with(&log, false);
            assert_eq!(found.count("replicas-differ"), n - 1);
            assert!(shows(&found, "replicas-differ", op_of(&log, at)));
        }
    }

    #[test]
    fn without_rest_nothing_is_decided() {
        let mut log = Vec::new();
        then(&mut log, "dump", "nil", "[1]", "");
        then(&mut log, "dump", "nil", "[2]", "");
        let found = found_with(&log, false);
        assert!(!found.is_valid() && !found.is_invalid());
        assert_eq!(found_with(&log, true).count("replicas-differ"), 1);
        then(&mut log, "write", "3", "3", "");
        let found = found_with(&log, true);
        assert!(!found.is_valid() && !found.is_invalid(), "a write came after the dumps");
        let mut log = Vec::new();
        then(&mut log, "dump", "nil", "[1]", FINAL);
        assert!(!found_with(&log, false).is_valid(), "one replica agrees with nobody");
    }

    #[test]
    fn a_write_of_unknown_outcome_may_explain_replicas_that_differ() {
        for (f, dumps, invalid) in
            [("write", ["[1]", "[]"], false), ("write", ["[1]", "[1]"], false), ("read", ["[1]", "[]"], true)]
        {
            for ends in [0, 1, 5] {
                let mut log = Vec::new();
                let event = |kind| Event { kind, process: 7, f, value: "1".into(), extra: String::new() };
                log.push(event("invoke"));
                dumps.iter().for_each(|dump| then(&mut log, "dump", "nil", dump, FINAL));
                if ends > 0 {
                    log.insert(ends, event("info"));
                }
                for quiescent in [false, true] {
                    let found = found_with(&log, quiescent);
                    assert_eq!((found.is_invalid(), found.is_valid()), (invalid, dumps[0] == dumps[1]), "{log:#?}");
                }
            }
        }
    }

    #[test]
    fn replicas_may_be_dumped_into_files_for_which_somebody_vouches() {
        let file = |name: &str, content: &str| crate::delivery::parse_dump(name, content.as_bytes()).unwrap();
        let mut log = Vec::new();
        then(&mut log, "write", "1", "1", "");
        let same = [file("a", "[1 2]"), file("b", "[2 1]")];
        let other = [file("a", "[1 2]"), file("b", "[1]"), file("c", "[2 1]")];
        let check =
            |log: &[Event], files: &[File], vouched| reconcile_files(&testing::history(log), files, vouched, 1000);
        assert!(check(&log, &same, true).is_valid());
        assert_eq!(check(&log, &other, true).count("replicas-differ"), 2);
        for undecided in [check(&log, &other, false), check(&log, &same[..1], true)] {
            assert!(!undecided.is_valid() && !undecided.is_invalid());
        }
        let event = |kind| Event { kind, process: 7, f: "write", value: "2".into(), extra: String::new() };
        log.extend([event("invoke"), event("info")]);
        assert!(!check(&log, &other, true).is_invalid(), "it may come later");
        assert!(check(&log, &same, true).is_valid());
    }

    #[test]
    fn what_is_kept_alike_and_means_something_else_differs() {
        for (a, b, differ) in [
            ("{1 2}", "[1 1]", 1),
            ("[nil nil]", "2", 1),
            ("{nil 7}", "7", 1),
            ("{1 1}", "#{1}", 1),
            ("[1]", "#{1}", 0),
            ("{}", "[]", 0),
            ("nil", "[]", 0),
        ] {
            let mut log = Vec::new();
            then(&mut log, "dump", "nil", a, FINAL);
            then(&mut log, "dump", "nil", b, FINAL);
            assert_eq!(found_with(&log, false).count("replicas-differ"), differ, "{a} {b}");
        }
    }

    #[test]
    fn a_write_that_began_after_all_dumps_excuses_none() {
        let mut log = Vec::new();
        then(&mut log, "dump", "nil", "[1]", FINAL);
        then(&mut log, "dump", "nil", "[]", FINAL);
        log.push(Event { kind: "invoke", process: 7, f: "write", value: "1".into(), extra: String::new() });
        assert_eq!(found_with(&log, false).count("replicas-differ"), 1);
    }

    #[test]
    fn an_element_that_one_replica_holds_twice_is_a_difference() {
        let mut log = Vec::new();
        then(&mut log, "dump", "nil", "[1 1]", FINAL);
        then(&mut log, "dump", "nil", "[1]", FINAL);
        assert_eq!(found_with(&log, false).count("replicas-differ"), 1);
    }
}
