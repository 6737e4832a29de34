//! A twin that knows no columns: maps and sets, every pair of things looked at, straight from the definitions. It says of each violation
//! which operations have to be shown.

use std::collections::{BTreeMap, BTreeSet};

use super::random::{Did, Mop, NEVER, Op, Random, SOME, history, ids, runs, text, valid};
use super::*;
use crate::outcome::OpId;
use crate::txn::anomaly::Anomaly;

type Place = (usize, i64);

/// What shows one violation: of each of these groups of operations one at least, and besides none but the further ones.
#[derive(Debug)]
struct Shown {
    must: Vec<Vec<usize>>,
    may: Vec<usize>,
}

/// A kind: does it break anything, and what shows each instance?
#[derive(Debug)]
struct Told {
    weight: Weight,
    all: Vec<Shown>,
}

pub(super) struct Twin<'a> {
    pub(super) ops: Vec<&'a Op>,
    pub(super) committed: Vec<bool>,
    /// By partition and offset, the values there, and who says so.
    pub(super) log: BTreeMap<Place, BTreeMap<i64, Vec<usize>>>,
    /// What acknowledged polls returned.
    read: BTreeSet<(usize, i64)>,
    options: &'a Options,
    told: BTreeMap<&'static str, Told>,
}

pub(super) fn polls(op: &Op) -> Vec<(usize, i64, i64)> {
    let mut all = Vec::new();
    for mop in op.mops() {
        if let Mop::Poll(keys) = mop {
            keys.iter().for_each(|(k, m)| all.extend(m.iter().map(|&(o, v)| (*k, o, v))));
        }
    }
    all
}

/// Partitions, offsets and values; no offset where none, or -1, was told.
pub(super) fn sends(op: &Op) -> Vec<(usize, Option<i64>, i64)> {
    let send = |m: &Mop| if let Mop::Send(k, o, v) = m { Some((*k, o.filter(|o| *o >= 0), *v)) } else { None };
    op.mops().iter().filter_map(send).collect()
}

impl<'a> Twin<'a> {
    pub(super) fn of(ops: &'a [Op], options: &'a Options) -> Twin<'a> {
        let mut ops: Vec<&Op> = ops.iter().collect();
        ops.sort_by_key(|op| (op.complete, op.invoke));
        let read: BTreeSet<(usize, i64)> =
            ops.iter().filter(|op| op.status == Status::Ok).flat_map(|op| polls(op)).map(|(k, _, v)| (k, v)).collect();
        let happened = |op: &&Op| match op.status {
            Status::Ok => true,
            Status::Fail => false,
            Status::Info => sends(op).iter().any(|(k, _, v)| read.contains(&(*k, *v)) && tries(&ops, *k, *v) == 1),
        };
        let committed: Vec<bool> = ops.iter().map(happened).collect();
        let mut twin = Twin { ops, committed, log: BTreeMap::new(), read, options, told: BTreeMap::new() };
        for i in 0..twin.ops.len() {
            for (k, o, v) in polls(twin.ops[i]) {
                twin.log.entry((k, o)).or_default().entry(v).or_default().push(i);
            }
            for (k, o, v) in sends(twin.ops[i]) {
                if let Some(o) = o.filter(|_| twin.happened(i, k, v)) {
                    twin.log.entry((k, o)).or_default().entry(v).or_default().push(i);
                }
            }
        }
        twin
    }

    /// Did this send happen? In a transaction all of them did, or none.
    fn happened(&self, i: usize, k: usize, v: i64) -> bool {
        match self.ops[i].status {
            Status::Ok => true,
            Status::Fail => false,
            Status::Info if self.options.transactional => self.committed[i],
            Status::Info => self.read.contains(&(k, v)),
        }
    }

    /// Operations that send this, and of which that holds.
    fn senders(&self, k: usize, v: i64, which: impl Fn(usize) -> bool) -> Vec<usize> {
        let sends_it = |i: &usize| sends(self.ops[*i]).iter().any(|(a, _, b)| (*a, *b) == (k, v));
        (0..self.ops.len()).filter(sends_it).filter(|i| which(*i)).collect()
    }

    fn tell(&mut self, kind: &'static str, breaks: bool, must: Vec<Vec<usize>>, may: Vec<usize>) {
        let weight = if breaks { Weight::Violation } else { Weight::Note };
        let told = self.told.entry(kind).or_insert(Told { weight, all: Vec::new() });
        told.weight = told.weight.min(weight);
        told.all.push(Shown { must, may });
    }

    fn places(&self, k: usize, v: i64) -> Vec<i64> {
        self.log.iter().filter(|((key, _), vs)| *key == k && vs.contains_key(&v)).map(|((_, o), _)| *o).collect()
    }

    /// How many positions lie from one offset to another one. None where either holds two values.
    fn step(&self, k: usize, a: Option<i64>, b: Option<i64>) -> Option<i64> {
        let (a, b) = (a?, b?);
        let sound = |o: i64| self.log.get(&(k, o)).is_some_and(|values| values.len() == 1);
        if !sound(a) || !sound(b) {
            return None;
        }
        let between = |low: i64, high: i64| self.log.range((k, low)..(k, high)).count() as i64;
        Some(if a <= b { between(a, b) } else { -between(b, a) })
    }

    /// Where an operation's send stands: where it was told if it happened, else where its value is known to stand.
    fn send_place(&self, i: usize, (k, o, v): (usize, Option<i64>, i64)) -> Option<i64> {
        if let Some(o) = o.filter(|_| self.happened(i, k, v)) {
            return Some(o);
        }
        match self.places(k, v)[..] {
            [only] if tries(&self.ops, k, v) == 1 => Some(only),
            _ => None,
        }
    }

    fn run(mut self) -> BTreeMap<&'static str, Told> {
        self.standing();
        self.unread();
        for i in 0..self.ops.len() {
            self.operation(i);
            self.goes_on(i);
        }
        self.told
    }

    /// One offset, two values; one value, more offsets than it was sent.
    fn standing(&mut self) {
        let log = self.log.clone();
        for values in log.values().filter(|values| values.len() > 1) {
            self.tell("inconsistent-offsets", true, values.values().cloned().collect(), vec![]);
        }
        let values: BTreeSet<(usize, i64)> =
            log.iter().flat_map(|((k, _), vs)| vs.keys().map(move |v| (*k, *v))).collect();
        for (k, v) in values {
            let places = self.places(k, v);
            if places.len() > live(&self.ops, k, v).max(1) {
                let tellers = places.iter().map(|o| log[&(k, *o)][&v].clone()).collect();
                let senders = self.senders(k, v, |_| true);
                self.tell("duplicate", true, tellers, senders);
            }
        }
    }

    fn unread(&mut self) {
        let sent: BTreeSet<(usize, i64)> = self.ops.iter().flat_map(|op| sends(op)).map(|(k, _, v)| (k, v)).collect();
        for (k, v) in sent.into_iter().filter(|s| !self.read.contains(s)).collect::<Vec<_>>() {
            let acked = self.senders(k, v, |i| self.ops[i].status == Status::Ok);
            let happened = self.senders(k, v, |i| self.happened(i, k, v));
            let of_key = |i: usize| polls(self.ops[i]).into_iter().filter(move |p| p.0 == k).map(|p| p.1);
            let oks = (0..self.ops.len()).filter(|&i| self.ops[i].status == Status::Ok);
            let bound = oks.clone().flat_map(of_key).max();
            let stands = self.places(k, v).last().copied();
            if !happened.is_empty() && stands.is_some_and(|o| Some(o) < bound) {
                let readers = oks.filter(|&i| of_key(i).any(|o| Some(o) == bound)).collect();
                self.tell("lost-write", true, vec![happened, readers], vec![]);
            }
            if !acked.is_empty() {
                self.tell("unseen", self.options.unseen, vec![acked], vec![]);
            }
        }
    }

    fn operation(&mut self, i: usize) {
        let op = self.ops[i];
        for (k, o, v) in polls(op) {
            let (live, tries) = (live(&self.ops, k, v), tries(&self.ops, k, v));
            if tries == 1 && sends(op).iter().any(|s| (s.0, s.2) == (k, v)) {
                self.tell("precommitted-read", self.options.transactional, vec![vec![i]], vec![]);
            }
            if op.status == Status::Ok && live == 0 {
                let is_sent = |((key, _), vs): &(&Place, &BTreeMap<i64, _>)| {
                    *key == k && vs.keys().any(|v| self::live(&self.ops, k, *v) > 0)
                };
                let lowest = self.log.iter().filter(is_sent).map(|((_, o), _)| *o).min();
                match tries {
                    0 if lowest.is_some_and(|lowest| o > lowest) => {
                        self.tell("unexpected", true, vec![vec![i]], vec![])
                    }
                    0 => self.tell("unknown-origin", false, vec![vec![i]], vec![]),
                    _ => {
                        let senders = self.senders(k, v, |_| true);
                        self.tell("G1a", true, vec![vec![i], senders], vec![]);
                    }
                }
            }
        }
        let keys: BTreeSet<usize> = polls(op).iter().map(|p| p.0).chain(sends(op).iter().map(|s| s.0)).collect();
        for k in keys.into_iter().filter(|k| !moved(op, *k)) {
            let own: Vec<_> = polls(op).into_iter().filter(|p| p.0 == k).collect();
            for pair in own.windows(2) {
                match self.step(k, Some(pair[0].1), Some(pair[1].1)) {
                    Some(1) | None => {}
                    Some(step) if step > 1 => self.tell("int-poll-skip", true, vec![vec![i]], vec![]),
                    Some(_) => self.tell("int-nonmonotonic-poll", true, vec![vec![i]], vec![]),
                }
            }
            let own: Vec<_> = sends(op).into_iter().filter(|s| s.0 == k && op.status != Status::Fail).collect();
            for pair in own.windows(2) {
                match self.step(k, self.send_place(i, pair[0]), self.send_place(i, pair[1])) {
                    Some(step) if step > 1 => self.tell("int-send-skip", false, vec![vec![i]], vec![]),
                    Some(step) if step < 0 => self.tell("int-nonmonotonic-send", true, vec![vec![i]], vec![]),
                    _ => {}
                }
            }
        }
    }

    /// Looks, for each partition, back through an operation's process for what it goes on from.
    fn goes_on(&mut self, i: usize) {
        let op = self.ops[i];
        let before: Vec<usize> = (0..i).rev().filter(|&j| self.ops[j].process == op.process).collect();
        let keys: BTreeSet<usize> = polls(op).iter().map(|p| p.0).collect();
        for k in keys.into_iter().filter(|k| !moved(op, *k)) {
            // Once its assignment changed, what it polled before says nothing.
            let kept = before
                .iter()
                .copied()
                .take_while(|&j| keeps(self.ops[j], k) && !rewinds(self.ops[j]) && !moved(self.ops[j], k));
            let polled = |j: usize| polls(self.ops[j]).into_iter().rfind(|p| p.0 == k).map(|p| (j, p.1));
            let Some((j, from)) = kept.filter(|&j| self.ops[j].status == Status::Ok).find_map(polled) else { continue };
            let to = polls(op).into_iter().find(|p| p.0 == k).map(|p| p.1);
            let free = self.options.subscribe
                || (j..=i).any(|at| self.ops[at].process == op.process && self.may_subscribe(at));
            match self.step(k, Some(from), to) {
                Some(1) | None => {}
                Some(step) => {
                    let kind = if step > 1 { "poll-skip" } else { "nonmonotonic-poll" };
                    self.tell(kind, !free, vec![vec![j], vec![i]], vec![]);
                }
            }
        }
        let keys: BTreeSet<usize> = sends(op).iter().map(|s| s.0).collect();
        for k in keys.into_iter().filter(|_| op.status != Status::Fail) {
            let kept = before.iter().copied().take_while(|&j| keeps(self.ops[j], k));
            let sound = |j: usize, s| self.send_place(j, s).filter(|&o| self.step(k, Some(o), Some(o)).is_some());
            let sent = |j: usize| {
                let last = sends(self.ops[j]).into_iter().rfind(|s| s.0 == k)?;
                Some((j, sound(j, last)?))
            };
            let from = kept.filter(|&j| self.ops[j].status != Status::Fail).find_map(sent);
            let to = sends(op).into_iter().find(|s| s.0 == k).and_then(|s| sound(i, s));
            if let Some((j, from)) = from
                && self.step(k, Some(from), to).is_some_and(|step| step < 0)
            {
                self.tell("nonmonotonic-send", true, vec![vec![j], vec![i]], vec![]);
            }
        }
    }

    /// After this operation, may the system be choosing the partitions of its process?
    fn may_subscribe(&self, at: usize) -> bool {
        let own = (0..=at).rev().map(|i| self.ops[i]).filter(|op| op.process == self.ops[at].process);
        let mut chooses = own.filter_map(|op| match (&op.did, op.status) {
            (_, Status::Fail) => None,
            (Did::Subscribe(_), _) => Some(true),
            (Did::Assign(_) | Did::Seek(_), Status::Ok) => Some(false),
            _ => None,
        });
        chooses.next().unwrap_or(false)
    }
}

pub(super) fn tries(ops: &[&Op], k: usize, v: i64) -> usize {
    ops.iter().flat_map(|op| sends(op)).filter(|s| (s.0, s.2) == (k, v)).count()
}

fn live(ops: &[&Op], k: usize, v: i64) -> usize {
    ops.iter().filter(|op| op.status != Status::Fail).flat_map(|op| sends(op)).filter(|s| (s.0, s.2) == (k, v)).count()
}

/// Did a partition move while an operation ran?
fn moved(op: &Op, k: usize) -> bool {
    op.rebalanced.iter().any(|&of| of == k || of == SOME)
}

/// Does a process keep a partition over this operation?
fn keeps(op: &Op, k: usize) -> bool {
    match &op.did {
        Did::Mops(_) => true,
        _ if op.status == Status::Fail => true,
        Did::Assign(keys) | Did::Seek(keys) | Did::Subscribe(keys) => keys.contains(&k),
        Did::Crash => false,
    }
}

fn rewinds(op: &Op) -> bool {
    matches!(op.did, Did::Seek(_)) && op.status != Status::Fail
}

/// Can each instance be given an example of its own that shows it?
fn matched(all: &[Shown], examples: &[Vec<usize>]) -> bool {
    fn place(
        all: &[Shown],
        examples: &[Vec<usize>],
        i: usize,
        tried: &mut [bool],
        taken: &mut [Option<usize>],
    ) -> bool {
        for (e, ops) in examples.iter().enumerate() {
            let shows = all[i].must.iter().all(|group| group.iter().any(|op| ops.contains(op)));
            let known = |op: &usize| all[i].may.contains(op) || all[i].must.iter().any(|group| group.contains(op));
            if !shows || !ops.iter().all(known) || std::mem::replace(&mut tried[e], true) {
                continue;
            }
            if taken[e].is_none_or(|other| place(all, examples, other, tried, taken)) {
                taken[e] = Some(i);
                return true;
            }
        }
        false
    }
    let mut taken = vec![None; examples.len()];
    all.len() == examples.len()
        && (0..all.len()).all(|i| place(all, examples, i, &mut vec![false; examples.len()], &mut taken))
}

/// Checker and twin find the same, cycles aside: kinds, what breaks anything, how many, and the operations that show each.
fn agrees(ops: &[Op], options: &Options) -> (Findings, Vec<&'static str>) {
    let found = check(&history(ops), options, &Budget::unlimited());
    let twin = Twin::of(ops, options);
    let events: BTreeMap<OpId, usize> = {
        let by_invoke: BTreeMap<usize, OpId> = ops.iter().map(|op| op.invoke).zip(ids(ops)).collect();
        twin.ops.iter().enumerate().map(|(i, op)| (by_invoke[&op.invoke], i)).collect()
    };
    let meant = twin.run();
    let cyclic = |kind: &str| kind != "G1a" && (Anomaly::from_name(kind).is_some() || kind.starts_with("empty-"));
    let mine: Vec<_> = found.kinds().iter().filter(|(kind, _)| !cyclic(kind)).collect();

    assert_eq!(
        mine.iter().map(|(kind, all)| (**kind, all.weight, all.count as usize)).collect::<Vec<_>>(),
        meant.iter().map(|(kind, told)| (*kind, told.weight, told.all.len())).collect::<Vec<_>>(),
        "found and meant {options:?}\n{meant:#?}\n{}",
        text(ops)
    );
    for (kind, all) in mine {
        let examples: Vec<Vec<usize>> =
            all.examples.iter().map(|e| e.ops.iter().map(|op| events[op]).collect()).collect();
        assert!(matched(&meant[kind].all, &examples), "{kind}: {all:#?} {:?}\n{}", meant[kind], text(ops));
    }
    let broken = meant.iter().filter(|(_, told)| told.weight == Weight::Violation).map(|(kind, _)| *kind).collect();
    (found, broken)
}

/// Changes values, offsets and outcomes at random.
pub(super) fn shake(random: &mut Random, ops: &mut [Op]) {
    for _ in 0..(1 + random.below(4)).min(4 * ops.len()) {
        let i = random.below(ops.len());
        let Did::Mops(mops) = &mut ops[i].did else { continue };
        let m = random.below(mops.len());
        let (offset, value) = (random.below(6) as i64, 1 + random.below(8) as i64);
        match &mut mops[m] {
            Mop::Send(_, o, v) => match random.below(3) {
                0 => *o = Some(offset),
                1 => *o = None,
                _ => *v = value,
            },
            Mop::Poll(all) => {
                if all.is_empty() {
                    all.push((0, vec![]));
                }
                let (_, messages) = &mut all[0];
                match random.below(4) {
                    0 => messages.push((offset, value)),
                    1 if !messages.is_empty() => drop(messages.remove(0)),
                    2 => messages.reverse(),
                    _ => messages.insert(0, (offset, value)),
                }
            }
        }
        if random.below(3) == 0 {
            ops[i].status = [Status::Ok, Status::Fail, Status::Info][random.below(3)];
        }
    }
}

/// A few clients that send, poll and assign, mostly what a log would give and take, and now and then something else. Ends come in any order.
pub(super) fn hostile(random: &mut Random) -> Vec<Op> {
    let clients = 1 + random.below(3);
    let gap = [1, 3, 1_000_000_000][random.below(3)];
    let noise = [0, 0, 25, 12, 6][random.below(5)];
    let mut sent = [0i64; 2];
    let mut open: Vec<(i64, Option<usize>)> = (0..clients as i64).map(|p| (p, None)).collect();
    let mut at: BTreeMap<(i64, usize), i64> = BTreeMap::new();
    let mut ops: Vec<Op> = Vec::new();
    for place in 0..8 + random.below(26) {
        let client = &mut open[random.below(clients)];
        let process = client.0;
        let wrong = |random: &mut Random| noise > 0 && random.below(noise) == 0;
        let Some(i) = client.1.take() else {
            client.1 = Some(ops.len());
            let keys = (0..2).filter(|_| random.below(4) > 0).collect();
            let did = match random.below(20) {
                0 => Did::Assign(keys),
                1 => Did::Seek(keys),
                2 => Did::Subscribe(keys),
                3 => Did::Crash,
                _ => Did::Mops(sends_and_polls(random, &mut sent, wrong)),
            };
            ops.push(Op { process, did, status: Status::Info, rebalanced: vec![], invoke: place, complete: NEVER });
            continue;
        };
        let op = &mut ops[i];
        op.status = match random.below(12) {
            0 => Status::Fail,
            1 => Status::Info,
            _ => Status::Ok,
        };
        op.complete = place;
        if op.status == Status::Info {
            client.0 += clients as i64;
        }
        if random.below(20) == 0 {
            op.rebalanced = vec![[0, 1, SOME][random.below(3)]];
        }
        let Did::Mops(mops) = &mut op.did else { continue };
        for mop in mops {
            match mop {
                Mop::Send(_, o, v) => {
                    let told = if wrong(random) { random.below(7) as i64 } else { *v };
                    *o = match random.below(10) {
                        0 => None,
                        1 => Some(-1),
                        _ => Some(told * gap),
                    };
                }
                Mop::Poll(all) => {
                    for k in (0..2).filter(|_| random.below(3) > 0).collect::<Vec<_>>() {
                        let from = at.entry((process, k)).or_default();
                        let mut run = Vec::new();
                        for _ in 0..random.below(4) {
                            if wrong(random) {
                                *from = random.below(6) as i64;
                            }
                            if *from >= sent[k] && !wrong(random) {
                                break;
                            }
                            *from += 1;
                            let v = if wrong(random) { random.below(7) as i64 } else { *from };
                            run.push((*from * gap, v));
                        }
                        all.push((k, run));
                    }
                }
            }
        }
    }
    ops
}

fn sends_and_polls(random: &mut Random, sent: &mut [i64; 2], wrong: impl Fn(&mut Random) -> bool) -> Vec<Mop> {
    let (polls, sends) = [(true, false), (false, true), (true, true)][random.below(3)];
    let mut mops = Vec::new();
    for _ in 0..1 + random.below(3) {
        let k = random.below(2);
        if polls && (!sends || random.below(2) == 0) {
            mops.push(Mop::Poll(vec![]));
        } else if wrong(random) {
            mops.push(Mop::Send(k, None, 1 + random.below(6) as i64));
        } else {
            sent[k] += 1;
            mops.push(Mop::Send(k, None, sent[k]));
        }
    }
    mops
}

/// Anything there is to ask for.
fn any_options(random: &mut Random) -> Options {
    Options {
        examples: 1000,
        transactional: random.below(3) > 0,
        subscribe: random.below(5) == 0,
        unseen: random.below(6) == 0,
        ..Options::default()
    }
}

#[test]
fn the_twin_agrees_on_shaken_histories() {
    let (first, count) = runs(1_500);
    let mut wrong = 0;
    for seed in (0..count).map(|i| first.wrapping_add(i)) {
        let mut random = Random::new(seed);
        let mut ops = valid(&mut random, 2 + seed as usize % 12);
        if ops.is_empty() {
            continue;
        }
        shake(&mut random, &mut ops);
        let (found, _) = agrees(&ops, &any_options(&mut random));
        wrong += u64::from(found.is_invalid());
    }
    println!("{wrong} of {count} invalid");
    assert!(wrong > count / 4 && wrong < count * 3 / 4);
}

#[test]
fn the_twin_agrees_on_histories_of_no_broker() {
    let (first, count) = runs(2_000);
    let (mut valid, mut invalid) = (0, 0);
    let mut by_kind: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in (0..count).map(|i| first.wrapping_add(i)) {
        let mut random = Random::new(seed);
        let ops = hostile(&mut random);
        let (found, broken) = agrees(&ops, &any_options(&mut random));
        valid += u64::from(found.is_valid());
        invalid += u64::from(found.is_invalid());
        broken.iter().for_each(|kind| *by_kind.entry(kind).or_default() += 1);
    }
    println!("{valid} valid and {invalid} invalid of {count}: {by_kind:?}");
    assert!(valid > count / 10 && invalid > count / 4, "{valid} {invalid}");
    let enough = by_kind.values().filter(|n| **n > count / 200).count();
    assert_eq!(enough, 13, "{by_kind:?}");
}
