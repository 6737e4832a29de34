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
//! O(n g log n) for n reads of g keys. Memory: 100 bytes a key, 8 more a key of each distinct state, 60 a state, 16 a read that may
//! become an example.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use elench_formats::History;
use elench_formats::columns::ValueRef;
use elench_formats::history::{OpRef, is_read};
use elench_formats::sorting::{pair, sort_by, sort_by_wide};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::atoms::Name;
use super::{Online, State, acknowledged, check_whole, failed};
use crate::dense::{NO_ID, ScalarIds, group, grouped};
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

/// No operation.
const NONE: u64 = u64::MAX;

/// What is known of a value of a key.
#[derive(Clone, Copy, Debug)]
struct Of {
    /// The first write of it, and has one of them not failed?
    write: u64,
    happened: bool,
    /// The first read of it, and how many there are.
    read: u64,
    reads: u64,
}

const UNSEEN: Of = Of { write: NONE, happened: false, read: NONE, reads: 0 };

/// What is known of a key.
#[derive(Clone, Debug)]
struct Key {
    name: Name,
    /// The first value that anything tells of, by its number or [`NO_ID`], and what is known of it.
    first: u32,
    of_first: Of,
    /// Of writes that did not fail, and of reads: the first value, or [`NO_ID`].
    value: u32,
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

/// No value.
const NIL: u32 = 0;

/// A key and its value as one number; in order, they are ordered by key.
fn pack(key: u32, value: u32) -> u64 {
    u64::from(key) << 32 | u64::from(value)
}

fn unpack(shown: u64) -> (u32, u32) {
    ((shown >> 32) as u32, shown as u32)
}

/// Distinct sequences of numbers, one after the other, and where they are found.
#[derive(Clone, Debug)]
struct Distinct<T> {
    items: Vec<T>,
    starts: Vec<usize>,
    table: HashTable<u32>,
    hasher: FixedState,
}

impl<T: Copy + Eq + std::hash::Hash> Distinct<T> {
    fn new() -> Self {
        Distinct { items: Vec::new(), starts: vec![0], table: HashTable::new(), hasher: FixedState::default() }
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, id: u32) -> &[T] {
        &self.items[self.starts[id as usize]..self.starts[id as usize + 1]]
    }

    /// The number of a sequence, from 0 on in the order in which they are met.
    fn id(&mut self, sequence: &[T]) -> u32 {
        let hash = self.hasher.hash_one(sequence);
        if let Some(known) = self.table.find(hash, |&id| self.of(id) == sequence) {
            return *known;
        }
        let id = self.len() as u32;
        self.items.extend_from_slice(sequence);
        self.starts.push(self.items.len());
        let Distinct { items, starts, table, hasher } = self;
        table.insert_unique(hash, id, |&id| hasher.hash_one(&items[starts[id as usize]..starts[id as usize + 1]]));
        id
    }
}

/// Reads of one state: how many, and the first and the last of those that are kept, in [`LongFork::kept`].
#[derive(Clone, Copy, Debug)]
struct Reads {
    count: u64,
    first: u32,
    last: u32,
}

/// What a part of a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    Other,
}

#[derive(Clone)]
struct LongFork {
    found: Findings,
    tally: Tally,
    /// What names of parts say, by their codes.
    does: Vec<Option<Does>>,
    key_ids: ScalarIds,
    keys: Vec<Key>,
    values: ScalarIds,
    value_names: Vec<Name>,
    /// What is known of other values than a key's first.
    others: HashMap<(u32, u32), Of, FixedState>,
    /// What reads show: keys with their values, packed.
    states: Distinct<u64>,
    reads: Vec<Reads>,
    /// Reads that are kept, and the next one of the same state.
    kept: Vec<(u64, u32)>,
    odd: Option<u64>,
    /// Room to work in.
    parts: Vec<Part>,
    shown: Vec<u64>,
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
            does: Vec::new(),
            key_ids: ScalarIds::default(),
            keys: Vec::new(),
            values: ScalarIds::default(),
            value_names: vec![Name::Nil],
            others: HashMap::default(),
            states: Distinct::new(),
            reads: Vec::new(),
            kept: Vec::new(),
            odd: None,
            parts: Vec::new(),
            shown: Vec::new(),
        }
    }

    fn does(&mut self, op: &OpRef<'_>, f: u16) -> Does {
        if let Some(Some(known)) = self.does.get(usize::from(f)) {
            return *known;
        }
        let does = match op.mop_name(f) {
            name if is_read(name) => Does::Read,
            "w" | "write" => Does::Write,
            _ => Does::Other,
        };
        self.does.resize(self.does.len().max(usize::from(f) + 1), None);
        self.does[usize::from(f)] = Some(does);
        does
    }

    /// Of a transaction of reads and writes, all parts.
    fn parts(&mut self, op: &OpRef<'_>, parts: &mut Vec<Part>) -> Option<()> {
        for mop in op.txn()?.iter() {
            let does = self.does(op, mop.f);
            if does == Does::Other {
                return None;
            }
            let value = match mop.value {
                ValueRef::Nil => NIL,
                ValueRef::List(_) | ValueRef::Set(_) => return None,
                value => {
                    let scalar = value.scalar()?;
                    let (id, new) = self.values.id(scalar);
                    if new {
                        self.value_names.push(Name::of(op, scalar));
                    }
                    id + 1
                }
            };
            let (key, new) = self.key_ids.id(mop.key);
            if new {
                let name = Name::of(op, mop.key);
                let (first, value) = (NO_ID, NO_ID);
                self.keys.push(Key { name, first, of_first: UNSEEN, value, written: false, rewritten: false });
            }
            parts.push(Part { key, value, reads: does == Does::Read, known: mop.known });
        }
        Some(())
    }

    /// What is known of a value of a key.
    fn of(&mut self, key: u32, value: u32) -> &mut Of {
        let own = &mut self.keys[key as usize];
        if own.first == NO_ID {
            own.first = value;
        }
        if own.first == value {
            return &mut own.of_first;
        }
        self.others.entry((key, value)).or_insert(UNSEEN)
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
        let of = self.of(part.key, part.value);
        of.write = of.write.min(op.index());
        of.happened |= happened;
        let key = &mut self.keys[part.key as usize];
        if happened {
            key.rewritten |= part.value == NIL;
            key.written = true;
            key.has(part.value);
        }
    }

    fn read(&mut self, op: &OpRef<'_>, parts: &[Part]) {
        let id = op.index();
        let writes = parts.iter().any(|part| !part.reads);
        let own = |key| writes && parts.iter().any(|part| !part.reads && part.key == key);
        let mut shown = std::mem::take(&mut self.shown);
        shown.clear();
        let told = parts.iter().filter(|part| part.reads && part.known && !own(part.key));
        shown.extend(told.map(|part| pack(part.key, part.value)));
        shown.sort_unstable();
        shown.dedup();
        self.shows(id, &shown);
        self.shown = shown;
    }

    fn shows(&mut self, id: u64, shown: &[u64]) {
        if let Some(twice) = shown.windows(2).find(|two| unpack(two[0]).0 == unpack(two[1]).0) {
            let ((key, a), (_, b)) = (unpack(twice[0]), unpack(twice[1]));
            let (key, names) = (self.keys[key as usize].name.clone(), &self.value_names);
            let text = format!("{} read key {key} as {} and as {}", OpId(id), names[a as usize], names[b as usize]);
            return self.found.violation("unrepeatable-read", || Example::new([OpId(id)], text));
        }
        for (key, value) in shown.iter().map(|&shown| unpack(shown)).filter(|(_, value)| *value != NIL) {
            self.keys[key as usize].has(value);
            let of = self.of(key, value);
            of.read = of.read.min(id);
            of.reads += 1;
        }
        if shown.is_empty() {
            return;
        }
        let state = self.states.id(shown) as usize;
        if state == self.reads.len() {
            self.reads.push(Reads { count: 0, first: NO_ID, last: NO_ID });
        }
        let (keep, next) = (self.found.examples() as u64, self.kept.len() as u32);
        let reads = &mut self.reads[state];
        if reads.count < keep {
            match reads.last {
                NO_ID => reads.first = next,
                last => self.kept[last as usize].1 = next,
            }
            reads.last = next;
            self.kept.push((id, NO_ID));
        }
        reads.count += 1;
    }

    fn judge_values(&mut self) {
        // Reads of what somebody wrote, or of what may have been written before the record began, are in order.
        let odd =
            |key: u32, of: &Of| of.reads > 0 && !of.happened && (of.write != NONE || self.keys[key as usize].written);
        let first = self.keys.iter().enumerate().map(|(key, own)| (key as u32, own.first, own.of_first));
        let others = self.others.iter().map(|(&(key, value), of)| (key, value, *of));
        let mut odd: Vec<(u32, u32, Of)> = first.chain(others).filter(|(key, _, of)| odd(*key, of)).collect();
        sort_by_wide(&mut odd, |(key, _, of)| pair(of.read, *key));
        for (key, value, of) in odd {
            let (name, text) = (&self.keys[key as usize].name, &self.value_names[value as usize]);
            let op = of.read;
            let (kind, ops, why) = match of.write {
                NONE => ("unexpected", vec![op], "nobody wrote that".into()),
                write => ("aborted-effect", vec![op, write], format!("{} wrote that and failed", OpId(write))),
            };
            for _ in 0..of.reads {
                self.found.violation(kind, || {
                    Example::new(
                        ops.iter().map(|&op| OpId(op)),
                        format!("{} read {text} from key {name}, and {why}", OpId(op)),
                    )
                });
            }
        }
    }

    /// The keys of a state that can be judged, with the values shown.
    fn judged(&self, state: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = self.states.of(state).iter().map(|&shown| unpack(shown));
        all.filter(|(key, _)| !self.keys[*key as usize].rewritten)
    }

    /// Groups by their keys, those left out that cannot be judged, and the states of each.
    fn groups(&self) -> (Distinct<u32>, (Vec<u32>, Vec<u32>)) {
        let mut groups = Distinct::new();
        let mut keys = Vec::new();
        let mut of_state = Vec::with_capacity(self.states.len());
        for state in 0..self.states.len() as u32 {
            keys.clear();
            keys.extend(self.judged(state).map(|(key, _)| key));
            of_state.push(groups.id(&keys));
        }
        let pairs = of_state.iter().enumerate().map(|(state, &of)| (of, state as u32));
        let states = grouped(groups.len(), pairs);
        (groups, states)
    }

    /// Does each of these states contain the ones before it, if they are ordered by size? Of groups of up to 64 keys.
    fn is_chain(&self, states: &[u32], sets: &mut Vec<u64>) -> bool {
        let bits = |state: u32| {
            let shown = self.judged(state).enumerate().filter(|(_, (_, value))| *value != NIL);
            shown.fold(0, |set, (i, _)| set | 1u64 << i)
        };
        sets.clear();
        sets.extend(states.iter().map(|&state| bits(state)));
        sort_by(sets, |set| set.count_ones().into());
        sets.windows(2).all(|two| two[0] & !two[1] == 0)
    }

    /// The states of a group, as sets of keys shown to be written.
    fn states_of(&self, keys: &[u32], states: &[u32]) -> Group {
        let keep = self.found.examples();
        let mut all: BTreeMap<Vec<u64>, Seen> = BTreeMap::new();
        for &state in states {
            let mut set = vec![0u64; keys.len().div_ceil(64)];
            for (i, _) in self.judged(state).enumerate().filter(|(_, (_, value))| *value != NIL) {
                set[i / 64] |= 1 << (i % 64);
            }
            let reads = self.reads[state as usize];
            let seen = all.entry(set).or_insert(Seen { count: 0, ops: Vec::new() });
            seen.count += reads.count;
            let mut next = reads.first;
            while let Some(&(op, after)) = self.kept.get(next as usize).filter(|_| seen.ops.len() < keep) {
                seen.ops.push(op);
                next = after;
            }
        }
        (keys.to_vec(), all.into_iter().collect())
    }

    /// Groups that share a key with another one.
    fn overlapping(&self, groups: &Distinct<u32>) -> Vec<u32> {
        let mut of_key = vec![NO_ID; self.keys.len()];
        let mut shares = vec![false; groups.len()];
        for g in (0..groups.len() as u32).filter(|&g| groups.of(g).len() > 1) {
            for &key in groups.of(g) {
                match of_key[key as usize] {
                    NO_ID => of_key[key as usize] = g,
                    other => (shares[other as usize], shares[g as usize]) = (true, true),
                }
            }
        }
        (0..groups.len() as u32).filter(|&g| shares[g as usize]).collect()
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
        sort_by(&mut order, |&i| states[i].0.iter().map(|word| u64::from(word.count_ones())).sum());
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
        if self.value == NO_ID {
            self.value = value;
        }
        self.rewritten |= self.value != value;
    }
}

impl State for LongFork {
    const AT_END: bool = true;

    fn invoked(&mut self, _: &OpRef<'_>) {}

    fn completed(&mut self, op: &OpRef<'_>) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let told = self.parts(op, &mut parts);
        if told.is_some() {
            self.transaction(op, &parts);
        } else {
            self.odd = Some(self.odd.map_or(op.index(), |odd| odd.min(op.index())));
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
        let rewritten = || self.keys.iter().filter(|key| key.rewritten);
        if let Some(key) = rewritten().map(|key| &key.name).min() {
            let why = format!(
                "{} keys have more than one value, key {key} among them: checker isolation judges such",
                rewritten().count()
            );
            self.found.undecided(Why::Other(why));
        }
        let (groups, states) = self.groups();
        let several = || (0..groups.len() as u32).filter(|&g| groups.of(g).len() > 1);
        if several().next().is_none() {
            self.found.undecided(Why::NoEvidence);
        }
        let sizes = several().map(|g| groups.of(g).len());
        let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        let size = if least == most { most.to_string() } else { format!("{least} to {most}") };
        self.found.fact("group size", Fact::Text(size));
        self.found.fact("groups", Fact::Count(several().count() as u64));
        let reads = several().flat_map(|g| group(&states, g as usize)).map(|&state| self.reads[state as usize].count);
        let reads = reads.sum();
        self.found.fact("reads of groups", Fact::Count(reads));
        let mut sets = Vec::new();
        for g in several() {
            let (keys, own) = (groups.of(g), group(&states, g as usize));
            if keys.len() > 64 || !self.is_chain(own, &mut sets) {
                let (keys, states) = self.states_of(keys, own);
                self.judge_group(&keys, &states);
            }
        }
        let shared = self.overlapping(&groups).into_iter();
        let shared: Vec<Group> = shared.map(|g| self.states_of(groups.of(g), group(&states, g as usize))).collect();
        self.judge_across(&shared);
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
