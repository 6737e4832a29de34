//! Cycles, against a walk along all of them.

use std::collections::BTreeSet;

use super::random::{Did, Mop, Op, Random, checked, runs, text, valid};
use super::twin::{Twin, polls, sends, shake, tries};
use super::*;
use crate::graph::Rel;
use crate::txn::anomaly::Anomaly;
use crate::txn::cycles::kind_of;

impl Twin<'_> {
    /// Kinds of cycles: every simple cycle of operations is walked.
    pub(super) fn cycles(&self, items: &[Rel]) -> BTreeSet<Anomaly> {
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
            own.filter_map(|((_, o), vs)| writer(k, *vs.keys().next().unwrap()).map(|w| (*o, w))).collect()
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

/// A few transactions of three clients, each sending to and polling from two short partitions whose order is settled beforehand.
fn tangled(random: &mut Random) -> Vec<Op> {
    let mut open: Vec<Option<usize>> = vec![None; 3];
    let mut ops: Vec<Op> = Vec::new();
    let mut left: Vec<(usize, i64)> =
        (0..2).flat_map(|k| (0..2 + random.below(3) as i64).map(move |o| (k, o))).collect();
    let all = left.clone();
    for place in 0..12 {
        let process = random.below(3);
        if let Some(i) = open[process].take() {
            ops[i].complete = place;
            continue;
        }
        open[process] = Some(ops.len());
        let mut mops = Vec::new();
        for _ in 0..1 + random.below(2) {
            if !left.is_empty() && random.below(2) == 0 {
                let (k, o) = left.swap_remove(random.below(left.len()));
                mops.push(Mop::Send(k, Some(o), o));
            } else {
                let (k, from) = all[random.below(all.len())];
                let run = all.iter().filter(|(of, o)| *of == k && *o >= from).map(|(_, o)| (*o, *o));
                mops.push(Mop::Poll(vec![(k, run.take(1 + random.below(2)).collect())]));
            }
        }
        let status = if random.below(8) == 0 { Status::Info } else { Status::Ok };
        ops.push(Op {
            process: process as i64,
            did: Did::Mops(mops),
            status,
            rebalanced: vec![],
            invoke: place,
            complete: 0,
        });
    }
    for (process, place) in (12..).enumerate().take(3) {
        if let Some(i) = open[process] {
            ops[i].complete = place;
        }
    }
    ops
}

#[test]
fn cycles_are_those_that_walking_all_of_them_finds() {
    let (first, count) = runs(1_500);
    let mut cyclic = 0;
    for seed in (0..count).map(|i| first.wrapping_add(i)) {
        let mut random = Random::new(seed);
        let ops = if seed % 2 == 0 {
            tangled(&mut random)
        } else {
            let mut ops = valid(&mut random, 2 + seed as usize % 6);
            shake(&mut random, &mut ops);
            ops
        };
        let found = checked(&ops);
        let options = Options::default();
        let twin = Twin::of(&ops, &options);
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
    assert!(cyclic > count / 10 && cyclic < count * 9 / 10);
}
