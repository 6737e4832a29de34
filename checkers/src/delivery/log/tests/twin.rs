//! A twin that knows no columns: maps and sets, every pair of things looked at, straight from the definitions.

use std::collections::{BTreeMap, BTreeSet};

use super::random::{Did, Mop, Op, Random, checked, runs, text, valid};
use super::*;
use crate::graph::Rel;
use crate::txn::anomaly::Anomaly;
use crate::txn::cycles::kind_of;

type Place = (usize, i64);

struct Twin<'a> {
    ops: Vec<&'a Op>,
    committed: Vec<bool>,
    /// By partition and offset, the values there.
    log: BTreeMap<Place, BTreeSet<i64>>,
    read: BTreeSet<(usize, i64)>,
    counts: BTreeMap<&'static str, u64>,
}

fn polls(op: &Op) -> Vec<(usize, i64, i64)> {
    let mut all = Vec::new();
    for mop in op.mops() {
        if let Mop::Poll(keys) = mop {
            keys.iter().for_each(|(k, m)| all.extend(m.iter().map(|&(o, v)| (*k, o, v))));
        }
    }
    all
}

fn sends(op: &Op) -> Vec<(usize, Option<i64>, i64)> {
    let send = |m: &Mop| if let Mop::Send(k, o, v) = m { Some((*k, *o, *v)) } else { None };
    op.mops().iter().filter_map(send).collect()
}

impl<'a> Twin<'a> {
    fn of(ops: &'a [Op]) -> Twin<'a> {
        let mut ops: Vec<&Op> = ops.iter().collect();
        ops.sort_by_key(|op| op.complete);
        let read: BTreeSet<(usize, i64)> =
            ops.iter().filter(|op| op.status == Status::Ok).flat_map(|op| polls(op)).map(|(k, _, v)| (k, v)).collect();
        let happened = |op: &&Op| match op.status {
            Status::Ok => true,
            Status::Fail => false,
            Status::Info => sends(op).iter().any(|(k, _, v)| read.contains(&(*k, *v)) && tries(&ops, *k, *v) == 1),
        };
        let committed: Vec<bool> = ops.iter().map(happened).collect();
        let mut log: BTreeMap<Place, BTreeSet<i64>> = BTreeMap::new();
        for (op, committed) in ops.iter().zip(&committed) {
            polls(op).into_iter().for_each(|(k, o, v)| {
                log.entry((k, o)).or_default().insert(v);
            });
            for (k, o, v) in sends(op).into_iter().filter(|_| *committed) {
                if let Some(o) = o {
                    log.entry((k, o)).or_default().insert(v);
                }
            }
        }
        Twin { ops, committed, log, read, counts: BTreeMap::new() }
    }

    fn add(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    fn places(&self, k: usize, v: i64) -> Vec<i64> {
        self.log.iter().filter(|((key, _), values)| *key == k && values.contains(&v)).map(|((_, o), _)| *o).collect()
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
    fn send_place(&self, op: usize, (k, o, v): (usize, Option<i64>, i64)) -> Option<i64> {
        if let Some(o) = o.filter(|_| self.committed[op]) {
            return Some(o);
        }
        match self.places(k, v)[..] {
            [only] if tries(&self.ops, k, v) == 1 => Some(only),
            _ => None,
        }
    }

    fn run(mut self) -> BTreeMap<&'static str, u64> {
        let crowded = self.log.values().filter(|values| values.len() > 1).count();
        (0..crowded).for_each(|_| self.add("inconsistent-offsets"));
        let values: BTreeSet<(usize, i64)> =
            self.log.iter().flat_map(|((k, _), vs)| vs.iter().map(move |v| (*k, *v))).collect();
        for &(k, v) in &values {
            if self.places(k, v).len() > live(&self.ops, k, v).max(1) {
                self.add("duplicate");
            }
        }
        self.unread();
        for i in 0..self.ops.len() {
            self.operation(i);
        }
        self.successive();
        self.counts
    }

    fn unread(&mut self) {
        let sent: BTreeSet<(usize, i64)> = self.ops.iter().flat_map(|op| sends(op)).map(|(k, _, v)| (k, v)).collect();
        for (k, v) in sent.into_iter().filter(|s| !self.read.contains(s)).collect::<Vec<_>>() {
            let by = |i: usize| sends(self.ops[i]).iter().any(|(a, _, b)| (*a, *b) == (k, v));
            let acked = (0..self.ops.len()).any(|i| by(i) && self.ops[i].status == Status::Ok);
            let happened = (0..self.ops.len()).any(|i| by(i) && self.committed[i]);
            let bound = self.ops.iter().filter(|op| op.status == Status::Ok).flat_map(|op| polls(op));
            let bound = bound.filter(|p| p.0 == k).map(|p| p.1).max();
            if happened && self.places(k, v).last().is_some_and(|&o| Some(o) < bound) {
                self.add("lost-write");
            }
            if acked {
                self.add("unseen");
            }
        }
    }

    fn operation(&mut self, i: usize) {
        let op = self.ops[i];
        for (k, o, v) in polls(op) {
            let (live, tries) = (live(&self.ops, k, v), tries(&self.ops, k, v));
            if tries == 1 && sends(op).iter().any(|s| (s.0, s.2) == (k, v)) {
                self.add("precommitted-read");
            }
            if op.status == Status::Ok && live == 0 {
                let lowest = self
                    .log
                    .iter()
                    .filter(|((key, _), vs)| *key == k && vs.iter().any(|v| self::live(&self.ops, k, *v) > 0));
                let lowest = lowest.map(|((_, o), _)| *o).min();
                match tries {
                    0 if lowest.is_some_and(|lowest| o > lowest) => self.add("unexpected"),
                    0 => self.add("unknown-origin"),
                    _ => self.add("G1a"),
                }
            }
        }
        let keys: BTreeSet<usize> = polls(op).iter().map(|p| p.0).chain(sends(op).iter().map(|s| s.0)).collect();
        for k in keys.into_iter().filter(|k| !op.rebalanced.contains(k)) {
            let own: Vec<_> = polls(op).into_iter().filter(|p| p.0 == k).collect();
            for pair in own.windows(2) {
                match self.step(k, Some(pair[0].1), Some(pair[1].1)) {
                    Some(1) | None => {}
                    Some(step) if step > 1 => self.add("int-poll-skip"),
                    Some(_) => self.add("int-nonmonotonic-poll"),
                }
            }
            let own: Vec<_> = sends(op).into_iter().filter(|s| s.0 == k && op.status != Status::Fail).collect();
            for pair in own.windows(2) {
                match self.step(k, self.send_place(i, pair[0]), self.send_place(i, pair[1])) {
                    Some(step) if step > 1 => self.add("int-send-skip"),
                    Some(step) if step < 0 => self.add("int-nonmonotonic-send"),
                    _ => {}
                }
            }
        }
    }

    /// Looks, for each operation and partition, back through its process for what it goes on from.
    fn successive(&mut self) {
        for i in 0..self.ops.len() {
            let keys: BTreeSet<usize> = polls(self.ops[i]).iter().map(|p| p.0).collect();
            for k in keys {
                let back = (0..i).rev().filter(|&j| self.ops[j].process == self.ops[i].process);
                let kept = back.take_while(|&j| keeps(self.ops[j], k));
                let from = kept
                    .filter(|&j| self.ops[j].status == Status::Ok)
                    .find_map(|j| polls(self.ops[j]).into_iter().rfind(|p| p.0 == k).map(|p| (j, p.1)));
                let Some((_, from)) = from.filter(|_| !self.ops[i].rebalanced.contains(&k)) else { continue };
                let to = polls(self.ops[i]).into_iter().find(|p| p.0 == k).map(|p| p.1);
                match self.step(k, Some(from), to) {
                    Some(1) | None => {}
                    Some(step) if step > 1 => self.add("poll-skip"),
                    Some(_) => self.add("nonmonotonic-poll"),
                }
            }
            let keys: BTreeSet<usize> = sends(self.ops[i]).iter().map(|s| s.0).collect();
            for k in keys {
                if self.ops[i].status == Status::Fail {
                    continue;
                }
                let back = (0..i).rev().filter(|&j| self.ops[j].process == self.ops[i].process);
                let kept = back.take_while(|&j| keeps(self.ops[j], k)).filter(|&j| self.ops[j].status != Status::Fail);
                let sound = |j: usize, s| self.send_place(j, s).filter(|&o| self.step(k, Some(o), Some(o)).is_some());
                let from = kept
                    .filter_map(|j| sends(self.ops[j]).into_iter().rfind(|s| s.0 == k).and_then(|s| sound(j, s)))
                    .next();
                let to = sends(self.ops[i]).into_iter().find(|s| s.0 == k).and_then(|s| sound(i, s));
                if self.step(k, from, to).is_some_and(|step| step < 0) {
                    self.add("nonmonotonic-send");
                }
            }
        }
    }

    /// Kinds of cycles: every simple cycle of operations is walked.
    fn cycles(&self, items: &[Rel]) -> BTreeSet<Anomaly> {
        let n = self.ops.len();
        let mut edges = vec![Vec::new(); n];
        let writer = |k: usize, v: i64| {
            let by = (0..n).filter(|&i| sends(self.ops[i]).iter().any(|s| (s.0, s.2) == (k, v))).collect::<Vec<_>>();
            (tries(&self.ops, k, v) == 1 && self.committed[by[0]]).then(|| by[0])
        };
        let mut add = |from: usize, to: usize, rel: Rel| {
            if from != to && self.committed[from] && self.committed[to] {
                edges[from].push((to, rel));
            }
        };
        let known = |k: usize| -> Vec<(i64, usize)> {
            let own = self.log.iter().filter(|((key, _), vs)| *key == k && vs.len() == 1);
            own.filter_map(|((_, o), vs)| writer(k, *vs.first().unwrap()).map(|w| (*o, w))).collect()
        };
        for (i, op) in self.ops.iter().enumerate() {
            for (k, _, v) in polls(op) {
                if let Some(w) = writer(k, v) {
                    add(w, i, Rel::Wr);
                }
            }
            let keys: BTreeSet<usize> = polls(op).iter().map(|p| p.0).collect();
            for k in keys.into_iter().filter(|_| items.contains(&Rel::Rw)) {
                let own: Vec<i64> = polls(op).iter().filter(|p| p.0 == k).map(|p| p.1).collect();
                let sound = own.iter().all(|&o| self.log[&(k, o)].len() == 1);
                let top = own.iter().max().copied().unwrap();
                if let Some((_, w)) = known(k).into_iter().find(|&(o, _)| o > top).filter(|_| sound) {
                    add(i, w, Rel::Rw);
                }
            }
        }
        for k in (0..4).filter(|_| items.contains(&Rel::Ww)) {
            for pair in known(k).windows(2) {
                add(pair[0].1, pair[1].1, Rel::Ww);
            }
        }
        for (i, a) in self.ops.iter().enumerate() {
            for (j, b) in self.ops.iter().enumerate() {
                let data = matches!(a.did, Did::Mops(_)) && matches!(b.did, Did::Mops(_));
                if data && a.status == Status::Ok && a.complete < b.invoke {
                    add(i, j, Rel::RealTime);
                    if a.process == b.process {
                        add(i, j, Rel::Process);
                    }
                }
            }
        }
        let mut kinds = BTreeSet::new();
        for start in 0..n {
            walk(&edges, start, &mut vec![start], &mut Vec::new(), &mut kinds);
        }
        kinds
    }
}

fn walk(
    edges: &[Vec<(usize, Rel)>],
    start: usize,
    path: &mut Vec<usize>,
    rels: &mut Vec<Rel>,
    kinds: &mut BTreeSet<Anomaly>,
) {
    for &(to, rel) in &edges[path[path.len() - 1]] {
        rels.push(rel);
        if to == start {
            kinds.extend(kind_of(rels));
        } else if to > start && !path.contains(&to) {
            path.push(to);
            walk(edges, start, path, rels, kinds);
            path.pop();
        }
        rels.pop();
    }
}

fn tries(ops: &[&Op], k: usize, v: i64) -> usize {
    ops.iter().flat_map(|op| sends(op)).filter(|s| (s.0, s.2) == (k, v)).count()
}

fn live(ops: &[&Op], k: usize, v: i64) -> usize {
    ops.iter().filter(|op| op.status != Status::Fail).flat_map(|op| sends(op)).filter(|s| (s.0, s.2) == (k, v)).count()
}

/// Does a process keep its place in a partition over this operation?
fn keeps(op: &Op, k: usize) -> bool {
    match &op.did {
        Did::Assign(keys) | Did::Subscribe(keys) => op.status == Status::Fail || keys.contains(&k),
        Did::Mops(_) => true,
    }
}

/// Changes values, offsets and outcomes at random.
fn shake(random: &mut Random, ops: &mut [Op]) {
    for _ in 0..1 + random.below(4) {
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

#[test]
fn the_twin_agrees_on_random_histories() {
    let (first, count) = runs(3_000);
    let mut wrong = 0;
    for seed in first..first + count {
        let mut random = Random::new(seed + 77);
        let mut ops = valid(&mut random, 2 + seed as usize % 12);
        if ops.is_empty() {
            continue;
        }
        shake(&mut random, &mut ops);
        let found = checked(&ops);
        let cyclic = |kind: &str| Anomaly::from_name(kind).is_some() && kind != "G1a";
        let mine = found.kinds().iter().filter(|(kind, _)| !cyclic(kind) && !kind.starts_with("empty-"));
        let mine: BTreeMap<&str, u64> = mine.map(|(kind, all)| (*kind, all.count)).collect();
        assert_eq!(mine, Twin::of(&ops).run(), "seed {seed}\n{}", text(&ops));
        wrong += u64::from(found.is_invalid());
    }
    println!("{wrong} of {count} invalid");
    assert!(wrong > count / 4);
}

#[test]
fn cycles_are_those_that_walking_all_of_them_finds() {
    let (first, count) = runs(1_500);
    let mut cyclic = 0;
    for seed in first..first + count {
        let mut random = Random::new(seed + 770_000);
        let mut ops = valid(&mut random, 2 + seed as usize % 6);
        if ops.is_empty() {
            continue;
        }
        shake(&mut random, &mut ops);
        let found = checked(&ops);
        let twin = Twin::of(&ops);
        let (wr, all) = (twin.cycles(&[Rel::Wr]), twin.cycles(&[Rel::Wr, Rel::Ww, Rel::Rw]));
        for (kind, all_of_it) in
            found.kinds().iter().filter_map(|(kind, all)| Anomaly::from_name(kind).map(|a| (a, all)))
        {
            if kind.name() == "G1a" || kind.name().starts_with("empty") {
                continue;
            }
            assert!(all.contains(&kind), "seed {seed}: {kind} is none\n{}", text(&ops));
            assert_eq!(
                all_of_it.weight == Weight::Violation,
                wr.contains(&kind),
                "seed {seed}: {kind}\n{}",
                text(&ops)
            );
        }
        let any = |of: &BTreeSet<Anomaly>, weight: Weight| {
            let has = found
                .kinds()
                .iter()
                .any(|(k, all)| all.weight <= weight && Anomaly::from_name(k).is_some_and(|a| of.contains(&a)));
            assert_eq!(has, !of.is_empty(), "seed {seed}: {of:?} {:?}\n{}", kinds(&found), text(&ops));
        };
        any(&wr, Weight::Violation);
        any(&all, Weight::Note);
        cyclic += u64::from(!wr.is_empty());
    }
    println!("{cyclic} of {count} with cycles over wr");
    assert!(cyclic > 0);
}
