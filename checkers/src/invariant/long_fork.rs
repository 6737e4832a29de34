//! Do two reads of the same keys disagree on which of two writes came first?
//!
//! Where each key gets one value and keeps it, what a read shows of some keys is a set of writes. Reads of snapshots that follow one
//! another show sets of which one contains the other. If one read shows `x` and not `y`, and another `y` and not `x`, no order
//! of the writes explains both: a *long fork*, which parallel snapshot isolation allows and snapshot isolation does not
//! (Sovran et al., Transactional storage for geo-replicated systems, SOSP 2011).
//!
//! Groups are found from the data: reads of the same keys form one, whatever its size, and groups that share two keys or more
//! are compared on those. Within a group, reads that show the same are one *state*; states are sorted by size, and none forks where
//! each contains the one before. Only where that fails are they compared pair by pair.
//!
//! Keys that turn out to have two values cannot be judged in this way and are left out, and the answer is then not "valid" (checker
//! `isolation` judges them). That is only known at the end, so nothing is known to be violated before.
//!
//! Besides: a read of what a failed write wrote (`aborted-effect`), of what nobody wrote to a key that is written (`unexpected`), and of one
//! key twice with different results (`unrepeatable-read`).
//!
//! O(n g log n) for n reads of g keys. Memory: 16 bytes a key of each distinct state.

use std::collections::BTreeMap;

use elench_formats::History;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, is_read};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::atoms::Name;
use super::{Online, State, acknowledged, check_whole, failed};
use crate::findings::{Example, Fact, Findings, Incremental};
use crate::named::Tally;
use crate::outcome::{OpId, Why};

/// Distinct states of a group that are compared pair by pair.
const PAIRWISE: usize = 4096;
/// Pairs of groups that share keys and are compared.
const GROUP_PAIRS: usize = 1 << 16;

/// Checks all transactions of a history.
pub fn long_fork(history: &History, examples: usize) -> Findings {
    check_whole(history, LongFork::new(examples))
}

/// Checks while a history is written.
pub fn online(examples: usize) -> Box<dyn Incremental> {
    Online::whole(LongFork::new(examples))
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Key {
    name: Name,
    /// Of writes that did not fail, and of reads: the first value, by its number.
    value: Option<u32>,
    written: bool,
    /// Has it two values?
    rewritten: bool,
}

/// Reads that show the same.
#[derive(Clone, Debug)]
struct Seen {
    count: u64,
    ops: Vec<u64>,
}

/// The states of a group: which of its keys each shows to be written, as bits.
type States = Vec<(Vec<u64>, Seen)>;

/// Keys that are read together, and their states.
type Group = (Vec<u32>, States);

/// A state with its keys and whether each was shown to be written.
type Shown = Box<[(u32, u32)]>;

/// No value.
const NIL: u32 = 0;

#[derive(Clone)]
struct LongFork {
    found: Findings,
    tally: Tally,
    key_ids: HashMap<Scalar, u32, FixedState>,
    keys: Vec<Key>,
    values: HashMap<Scalar, u32, FixedState>,
    value_names: Vec<Name>,
    states: HashMap<Shown, Seen, FixedState>,
    /// Writes by key and value: the first operation, and has one of them not failed?
    writes: HashMap<(u32, u32), (u64, bool), FixedState>,
    /// The first read of a value of a key.
    reads: HashMap<(u32, u32), (u64, u64), FixedState>,
    odd: Option<u64>,
    /// Room to work in.
    parts: Vec<Part>,
    shown: Vec<(u32, u32)>,
}

/// One part of a transaction.
#[derive(Clone, Copy, Debug)]
struct Part {
    key: u32,
    value: u32,
    reads: bool,
    known: bool,
}

impl LongFork {
    fn new(examples: usize) -> Self {
        LongFork {
            found: Findings::new(examples),
            tally: Tally::default(),
            key_ids: HashMap::default(),
            keys: Vec::new(),
            values: HashMap::default(),
            value_names: vec![Name::Nil],
            states: HashMap::default(),
            writes: HashMap::default(),
            reads: HashMap::default(),
            odd: None,
            parts: Vec::new(),
            shown: Vec::new(),
        }
    }

    fn key(&mut self, op: &OpRef<'_>, key: Scalar) -> u32 {
        *self.key_ids.entry(key).or_insert_with(|| {
            self.keys.push(Key { name: Name::of(op, key), ..Key::default() });
            self.keys.len() as u32 - 1
        })
    }

    fn value(&mut self, op: &OpRef<'_>, value: Scalar) -> u32 {
        if value == Scalar::Nil {
            return NIL;
        }
        *self.values.entry(value).or_insert_with(|| {
            self.value_names.push(Name::of(op, value));
            self.value_names.len() as u32 - 1
        })
    }

    /// Of a transaction of reads and writes, all parts.
    fn parts(&mut self, op: &OpRef<'_>, parts: &mut Vec<Part>) -> Option<()> {
        for mop in op.txn()?.iter() {
            let name = op.mop_name(mop.f);
            let reads = is_read(name);
            if !reads && !matches!(name, "w" | "write") {
                return None;
            }
            let value = match mop.value {
                ValueRef::List(_) | ValueRef::Set(_) => return None,
                value => value.scalar()?,
            };
            let (key, value) = (self.key(op, mop.key), self.value(op, value));
            parts.push(Part { key, value, reads, known: mop.known });
        }
        Some(())
    }

    fn transaction(&mut self, op: &OpRef<'_>, parts: &[Part]) {
        self.tally.count(op);
        parts.iter().filter(|part| !part.reads).for_each(|part| self.wrote(op, part));
        if acknowledged(op) {
            self.read(op, parts);
        }
    }

    fn wrote(&mut self, op: &OpRef<'_>, part: &Part) {
        let happened = !failed(op);
        self.writes.entry((part.key, part.value)).or_insert((op.index(), happened)).1 |= happened;
        let key = &mut self.keys[part.key as usize];
        if happened {
            key.rewritten |= part.value == NIL;
            key.written = true;
            key.has(part.value);
        }
    }

    fn read(&mut self, op: &OpRef<'_>, parts: &[Part]) {
        let id = op.index();
        let own = |key| parts.iter().any(|part| !part.reads && part.key == key);
        let mut shown = std::mem::take(&mut self.shown);
        shown.clear();
        let told = parts.iter().filter(|part| part.reads && part.known && !own(part.key));
        shown.extend(told.map(|part| (part.key, part.value)));
        shown.sort_unstable();
        shown.dedup();
        if let Some(twice) = shown.windows(2).find(|two| two[0].0 == two[1].0) {
            let (key, a, b) = (twice[0].0, twice[0].1, twice[1].1);
            let (key, names) = (self.keys[key as usize].name.clone(), &self.value_names);
            let text = format!("{} read key {key} as {} and as {}", OpId(id), names[a as usize], names[b as usize]);
            return self.found.violation("unrepeatable-read", || Example::new([OpId(id)], text));
        }
        for &(key, value) in shown.iter().filter(|(_, value)| *value != NIL) {
            self.keys[key as usize].has(value);
            self.reads.entry((key, value)).or_insert((id, 0)).1 += 1;
        }
        if shown.is_empty() {
            return;
        }
        let keep = self.found.examples();
        match self.states.get_mut(shown.as_slice()) {
            Some(seen) => {
                seen.count += 1;
                if seen.ops.len() < keep {
                    seen.ops.push(id);
                }
            }
            None => {
                let ops = [id].into_iter().take(keep).collect();
                self.states.insert(shown.as_slice().into(), Seen { count: 1, ops });
            }
        }
        self.shown = shown;
    }

    fn judge_values(&mut self) {
        let mut reads: Vec<_> = std::mem::take(&mut self.reads).into_iter().collect();
        reads.sort_unstable_by_key(|&(_, (op, _))| op);
        for ((key, value), (op, count)) in reads {
            let (name, text) = (&self.keys[key as usize].name, &self.value_names[value as usize]);
            let (kind, ops, why) = match self.writes.get(&(key, value)) {
                Some((_, true)) => continue,
                Some((write, false)) => {
                    ("aborted-effect", vec![op, *write], format!("{} wrote that and failed", OpId(*write)))
                }
                None if self.keys[key as usize].written => ("unexpected", vec![op], "nobody wrote that".into()),
                // Its writes may lie before the record began.
                None => continue,
            };
            for _ in 0..count {
                self.found.violation(kind, || {
                    Example::new(
                        ops.iter().map(|&op| OpId(op)),
                        format!("{} read {text} from key {name}, and {why}", OpId(op)),
                    )
                });
            }
        }
    }

    /// Groups by their keys, those left out that cannot be judged; of each, the states as sets of keys shown to be written.
    fn groups(&mut self) -> BTreeMap<Vec<u32>, States> {
        let keep = self.found.examples();
        let mut groups: BTreeMap<Vec<u32>, BTreeMap<Vec<u64>, Seen>> = BTreeMap::new();
        let mut states: Vec<(Shown, Seen)> = std::mem::take(&mut self.states).into_iter().collect();
        states.sort_unstable_by_key(|(_, seen)| seen.ops.first().copied());
        for (shown, seen) in states {
            let judged = || shown.iter().filter(|(key, _)| !self.keys[*key as usize].rewritten);
            let keys: Vec<u32> = judged().map(|(key, _)| *key).collect();
            let mut set = vec![0u64; keys.len().div_ceil(64)];
            for (i, _) in judged().enumerate().filter(|(_, (_, value))| *value != NIL) {
                set[i / 64] |= 1 << (i % 64);
            }
            groups
                .entry(keys)
                .or_default()
                .entry(set)
                .and_modify(|all| {
                    all.count += seen.count;
                    let room = keep.saturating_sub(all.ops.len());
                    all.ops.extend(seen.ops.iter().take(room));
                })
                .or_insert(seen);
        }
        groups.into_iter().map(|(keys, states)| (keys, states.into_iter().collect())).collect()
    }

    fn fork(&mut self, keys: &[u32], (a, of_a): (&[u64], &Seen), (b, of_b): (&[u64], &Seen)) {
        let only = |x: &[u64], y: &[u64]| (0..keys.len()).find(|&i| x[i / 64] & !y[i / 64] & 1 << (i % 64) != 0);
        let (Some(x), Some(y)) = (only(a, b), only(b, a)) else { return };
        let [x, y] = [x, y].map(|i| self.keys[keys[i] as usize].name.clone());
        let pairs = of_a.ops.iter().flat_map(|&i| of_b.ops.iter().map(move |&j| (i, j)));
        let mut pairs = pairs.collect::<Vec<_>>().into_iter();
        for _ in 0..of_a.count.saturating_mul(of_b.count) {
            self.found.violation("long-fork", || {
                let (i, j) = pairs.next().unwrap_or((of_a.ops[0], of_b.ops[0]));
                let (i, j) = (OpId(i), OpId(j));
                Example::new(
                    [i, j],
                    format!("{i} shows the write of key {x} and not that of {y}, {j} that of {y} and not that of {x}"),
                )
            });
        }
    }

    fn judge_group(&mut self, keys: &[u32], states: &[(Vec<u64>, Seen)]) {
        let mut order: Vec<usize> = (0..states.len()).collect();
        order.sort_by_key(|&i| states[i].0.iter().map(|word| word.count_ones()).sum::<u32>());
        let contains = |big: &[u64], small: &[u64]| small.iter().zip(big).all(|(s, b)| s & !b == 0);
        if order.windows(2).all(|two| contains(&states[two[1]].0, &states[two[0]].0)) {
            return;
        }
        let pair = |i: usize| (states[i].0.as_slice(), &states[i].1);
        if states.len() > PAIRWISE {
            self.found.fact(
                "forks of the largest group",
                Fact::Text("at least; its states are too many to compare all".into()),
            );
            return order.windows(2).for_each(|two| self.fork(keys, pair(two[0]), pair(two[1])));
        }
        for i in 0..states.len() {
            for j in i + 1..states.len() {
                self.fork(keys, pair(i), pair(j));
            }
        }
    }

    /// Different groups, on the keys that they share.
    fn judge_across(&mut self, groups: &[Group]) {
        let mut of_key: HashMap<u32, Vec<usize>, FixedState> = HashMap::default();
        for (g, (keys, _)) in groups.iter().enumerate() {
            keys.iter().for_each(|key| of_key.entry(*key).or_default().push(g));
        }
        let mut compared = 0;
        for (g, (keys, states)) in groups.iter().enumerate() {
            let mut others: BTreeMap<usize, u32> = BTreeMap::new();
            for other in keys.iter().filter_map(|key| of_key.get(key)).flatten().filter(|&&other| other > g) {
                *others.entry(*other).or_default() += 1;
            }
            for (other, _) in others.into_iter().filter(|(_, shared)| *shared > 1) {
                compared += states.len() * groups[other].1.len();
                if compared > GROUP_PAIRS * 64 {
                    let why = "groups of keys overlap in too many ways to compare all of them";
                    return self.found.undecided(Why::Other(why.into()));
                }
                self.judge_shared((keys, states), (&groups[other].0, &groups[other].1));
            }
        }
    }

    fn judge_shared(&mut self, a: (&[u32], &[(Vec<u64>, Seen)]), b: (&[u32], &[(Vec<u64>, Seen)])) {
        let shared: Vec<u32> = a.0.iter().copied().filter(|key| b.0.binary_search(key).is_ok()).collect();
        let project = |keys: &[u32], set: &[u64]| {
            let mut part = vec![0u64; shared.len().div_ceil(64)];
            for (i, key) in shared.iter().enumerate() {
                let at = keys.binary_search(key).unwrap_or_default();
                part[i / 64] |= (set[at / 64] >> (at % 64) & 1) << (i % 64);
            }
            part
        };
        let of_b: Vec<(Vec<u64>, &Seen)> = b.1.iter().map(|(set, seen)| (project(b.0, set), seen)).collect();
        for (set, seen) in a.1 {
            let part = project(a.0, set);
            for (other, of_other) in &of_b {
                self.fork(&shared, (&part, seen), (other, of_other));
            }
        }
    }
}

impl Key {
    fn has(&mut self, value: u32) {
        let first = *self.value.get_or_insert(value);
        self.rewritten |= first != value;
    }
}

impl State for LongFork {
    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let told = self.parts(op, &mut parts);
        if told.is_some() {
            self.transaction(op, &parts);
        } else {
            self.odd.get_or_insert(op.index());
        }
        self.parts = parts;
    }

    fn violated(&self) -> Option<&'static str> {
        None
    }

    fn finish(mut self) -> Findings {
        self.tally.tell(&mut self.found.coverage);
        if let Some(op) = self.odd {
            let why = format!("{} is no transaction of reads `[:r k v]` and writes `[:w k v]`", OpId(op));
            self.found.undecided(Why::Other(why));
        }
        self.judge_values();
        let rewritten = self.keys.iter().filter(|key| key.rewritten).count();
        if let Some(key) = self.keys.iter().find(|key| key.rewritten) {
            let why = format!(
                "{rewritten} keys have more than one value, key {} among them: checker isolation judges such",
                key.name
            );
            self.found.undecided(Why::Other(why));
        }
        let groups: Vec<_> = self.groups().into_iter().filter(|(keys, _)| keys.len() > 1).collect();
        if groups.is_empty() {
            self.found.undecided(Why::NoEvidence);
        }
        let sizes = groups.iter().map(|(keys, _)| keys.len());
        let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        let size = if least == most { most.to_string() } else { format!("{least} to {most}") };
        self.found.fact("group size", Fact::Text(size));
        self.found.fact("groups", Fact::Count(groups.len() as u64));
        let reads = |(_, states): &Group| states.iter().map(|(_, seen)| seen.count).sum::<u64>();
        self.found.fact("reads of groups", Fact::Count(groups.iter().map(reads).sum()));
        for (keys, states) in &groups {
            self.judge_group(keys, states);
        }
        self.judge_across(&groups);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, Event, FAULTS, Object, both, oks, op_of, run, seeds, shows};
    use super::*;
    use crate::linear::tests::Random;

    fn found_in(log: &[Event]) -> Findings {
        let h = testing::history(log);
        both(&h, long_fork(&h, 10_000), online(10_000))
    }

    fn kinds(found: &Findings) -> Vec<(&'static str, u64)> {
        found.violations().map(|(name, kind)| (name, kind.count)).collect()
    }

    /// Keys in groups of `size`, each written once.
    struct Groups {
        size: u64,
        next: u64,
        written: std::collections::BTreeSet<u64>,
    }

    impl Object for Groups {
        fn next(&mut self, random: &mut Random, _: u64) -> (&'static str, String) {
            if random.chance(300) || self.next == 0 {
                self.next += 1;
                return ("write", format!("[[:w {} 1]]", self.next - 1));
            }
            let group = random.below(self.next.div_ceil(self.size));
            let mut keys: Vec<u64> = (group * self.size..(group + 1) * self.size).collect();
            keys.rotate_left(random.below(self.size) as usize);
            let reads: Vec<String> = keys.iter().map(|key| format!("[:r {key} nil]")).collect();
            ("read", format!("[{}]", reads.join(" ")))
        }

        fn apply(&mut self, _: u64, f: &'static str, value: &str) -> Option<String> {
            let parts = parts_of(value);
            if f == "write" {
                self.written.insert(parts[0].0);
                return Some(value.into());
            }
            let read = |(key, _): &(u64, bool)| (*key, self.written.contains(key));
            Some(text_of(&parts.iter().map(read).collect::<Vec<_>>()))
        }
    }

    fn parts_of(value: &str) -> Vec<(u64, bool)> {
        let value = elench_formats::edn::parse(value).unwrap();
        let part = |part: &elench_formats::Value| {
            let part = part.as_vector().unwrap();
            (part[1].as_int().unwrap() as u64, part[2].as_int().is_some())
        };
        value.as_vector().unwrap().iter().map(part).collect()
    }

    fn text_of(parts: &[(u64, bool)]) -> String {
        let parts: Vec<String> =
            parts.iter().map(|(key, is)| format!("[:r {key} {}]", if *is { "1" } else { "nil" })).collect();
        format!("[{}]", parts.join(" "))
    }

    fn a_run(random: &mut Random) -> Vec<Event> {
        let mut object = Groups { size: 2 + random.below(3), next: 0, written: Default::default() };
        run(random, &mut object, 4, 80, FAULTS)
    }

    #[test]
    fn snapshots_of_one_order_never_fork() {
        let mut valid = 0;
        for mut random in seeds(1000) {
            let log = a_run(&mut random);
            if !log.is_empty() {
                let found = found_in(&log);
                assert_eq!(kinds(&found), [], "{log:#?}");
                valid += u32::from(found.is_valid());
            }
        }
        assert!(valid > 500, "{valid}");
    }

    #[test]
    fn reads_fork_exactly_where_two_of_them_say_so() {
        let mut forks = 0;
        for mut random in seeds(800) {
            let mut log = a_run(&mut random);
            let reads = oks(&log, "read");
            for &at in &reads {
                if random.chance(150) {
                    // Some reads leave a key out, so that groups overlap.
                    let mut parts = parts_of(&log[at].value);
                    if parts.len() > 2 && random.chance(500) {
                        parts.pop();
                    }
                    parts.iter_mut().for_each(|(_, is)| *is ^= random.chance(300));
                    log[at].value = text_of(&parts);
                }
            }
            let mut expected = std::collections::BTreeSet::new();
            let shown: Vec<(usize, Vec<(u64, bool)>)> =
                reads.iter().map(|&at| (at, parts_of(&log[at].value))).collect();
            for (i, a) in &shown {
                for (j, b) in shown.iter().filter(|(j, _)| j > i) {
                    let only = |a: &[(u64, bool)], b: &[(u64, bool)]| {
                        a.iter().any(|(key, is)| *is && b.contains(&(*key, false)))
                    };
                    if only(a, b) && only(b, a) {
                        let (i, j) = (op_of(&log, *i), op_of(&log, *j));
                        expected.insert((i.min(j), i.max(j)));
                    }
                }
            }
            if reads.is_empty() {
                continue;
            }
            let found = found_in(&log);
            let told = found.kinds().get("long-fork").map_or(&[][..], |kind| &kind.examples);
            let told: std::collections::BTreeSet<_> =
                told.iter().map(|e| (e.ops[0].min(e.ops[1]), e.ops[0].max(e.ops[1]))).collect();
            assert_eq!(told, expected, "{log:#?}");
            assert_eq!(found.count("long-fork"), expected.len() as u64);
            forks += u32::from(!expected.is_empty());
        }
        assert!(forks > 100, "{forks}");
    }

    #[test]
    fn the_group_size_is_found_and_a_fork_is_invalid_without_being_told_it() {
        let mut log = Vec::new();
        testing::then(&mut log, "read", "[[:r 0 nil] [:r 1 nil] [:r 2 nil]]", "[[:r 0 1] [:r 1 1] [:r 2 nil]]", "");
        testing::then(&mut log, "read", "[[:r 2 nil] [:r 0 nil] [:r 1 nil]]", "[[:r 2 1] [:r 0 1] [:r 1 nil]]", "");
        let found = found_in(&log);
        assert_eq!(kinds(&found), [("long-fork", 1)]);
        assert_eq!(found.fact_of("group size"), Some(&Fact::Text("3".into())));
        assert!(shows(&found, "long-fork", OpId(0)) && shows(&found, "long-fork", OpId(2)));
    }

    #[test]
    fn other_faults_of_reads_have_names_of_their_own() {
        let mut log = Vec::new();
        let event = |kind, value: &str| Event { kind, process: 0, f: "txn", value: value.into(), extra: String::new() };
        log.push(event("invoke", "[[:w 0 1]]"));
        log.push(event("fail", "[[:w 0 1]]"));
        testing::then(&mut log, "txn", "[[:w 1 1]]", "[[:w 1 1]]", "");
        testing::then(&mut log, "txn", "[[:r 0 nil] [:r 1 nil]]", "[[:r 0 1] [:r 1 1]]", "");
        assert_eq!(kinds(&found_in(&log)), [("aborted-effect", 1)]);
        let mut log = Vec::new();
        testing::then(&mut log, "txn", "[[:w 1 1]]", "[[:w 1 1]]", "");
        testing::then(&mut log, "txn", "[[:r 1 nil] [:r 2 nil]]", "[[:r 1 7] [:r 2 nil]]", "");
        assert_eq!(kinds(&found_in(&log)), [("unexpected", 1)]);
        let mut log = Vec::new();
        testing::then(&mut log, "txn", "[[:r 1 nil] [:r 2 nil] [:r 1 nil]]", "[[:r 1 7] [:r 2 nil] [:r 1 nil]]", "");
        assert_eq!(kinds(&found_in(&log)), [("unrepeatable-read", 1)]);
    }

    #[test]
    fn a_key_with_two_values_is_left_to_others() {
        let mut log = Vec::new();
        testing::then(&mut log, "txn", "[[:w 0 1]]", "[[:w 0 1]]", "");
        testing::then(&mut log, "txn", "[[:w 0 2]]", "[[:w 0 2]]", "");
        testing::then(&mut log, "txn", "[[:r 0 nil] [:r 1 nil]]", "[[:r 0 1] [:r 1 nil]]", "");
        testing::then(&mut log, "txn", "[[:r 0 nil] [:r 1 nil]]", "[[:r 0 nil] [:r 1 1]]", "");
        let found = found_in(&log);
        assert!(!found.is_valid() && !found.is_invalid(), "{found:?}");
    }
}
