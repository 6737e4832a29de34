//! Small random histories, decided by definition: every order of transactions is run, every cycle of transactions is walked.

use super::*;
use crate::graph::Rel;
use crate::txn::cycles::kind_of;

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(usize, i64),
    Read(usize, Vec<i64>),
}

#[derive(Clone, Debug)]
pub(super) struct Small {
    pub(super) process: usize,
    pub(super) ops: Vec<Op>,
    pub(super) invoke: usize,
    pub(super) complete: usize,
    pub(super) ok: bool,
}

/// A few transactions; reads return prefixes of some order of each key's elements, rarely a list that is none.
fn small(random: &mut Random, info: bool) -> Vec<Small> {
    let (txns, keys, processes) = (1 + random.below(4), 1 + random.below(3), 1 + random.below(3));
    let mut elements = vec![Vec::new(); keys];
    let mut all: Vec<Small> = Vec::new();
    for _ in 0..txns {
        let ops = (0..1 + random.below(3)).map(|_| {
            let key = random.below(keys);
            if random.below(2) == 0 {
                let next = elements[key].len() as i64 + 1;
                elements[key].push(next);
                Op::Append(key, next)
            } else {
                Op::Read(key, Vec::new())
            }
        });
        let ops = ops.collect();
        let ok = !info || random.below(4) > 0;
        all.push(Small { process: random.below(processes), ops, invoke: 0, complete: 0, ok });
    }
    for list in &mut elements {
        for i in (1..list.len()).rev() {
            if random.below(3) == 0 {
                list.swap(i, random.below(i + 1));
            }
        }
    }
    for op in all.iter_mut().flat_map(|t| &mut t.ops) {
        if let Op::Read(key, list) = op {
            let order = &elements[*key];
            *list = order[..random.below(order.len() + 1)].to_vec();
            if list.len() > 1 && random.below(40) == 0 {
                list.reverse();
            }
        }
    }
    schedule(&mut all, random);
    all
}

/// Processes run their transactions one after the other, at random times.
pub(super) fn schedule(all: &mut [Small], random: &mut Random) {
    let (mut next, mut open, mut time) = (0, Vec::<usize>::new(), 0);
    while next < all.len() || !open.is_empty() {
        let busy = next < all.len() && open.iter().any(|&t| all[t].process == all[next].process);
        if next < all.len() && !busy && (open.is_empty() || random.below(2) == 0) {
            all[next].invoke = time;
            open.push(next);
            next += 1;
        } else {
            let t = open.swap_remove(random.below(open.len()));
            all[t].complete = time;
        }
        time += 1;
    }
}

pub(super) fn history(all: &[Small]) -> History {
    let mut events: Vec<(usize, String)> = Vec::new();
    for (i, t) in all.iter().enumerate() {
        let ops = |known: bool| {
            let one = |op: &Op| match op {
                Op::Append(k, e) => format!("[:append {k} {e}]"),
                Op::Read(k, list) if known => format!("[:r {k} {list:?}]").replace(',', ""),
                Op::Read(k, _) => format!("[:r {k} nil]"),
            };
            format!("[{}]", t.ops.iter().map(one).collect::<Vec<_>>().join(" "))
        };
        // A process whose operation ended as nobody knows is gone.
        let process = t.process + if all[..i].iter().any(|u| !u.ok && u.process == t.process) { 10 * i } else { 0 };
        events.push((t.invoke, format!("invoke {process} txn {}", ops(false))));
        events.push((t.complete, format!("{} {process} txn {}", if t.ok { "ok" } else { "info" }, ops(t.ok))));
    }
    events.sort();
    let lines: Vec<String> = events.into_iter().map(|(_, e)| e).collect();
    notation::history(&lines.join("\n")).unwrap()
}

/// Is there an order of all acknowledged transactions, and any of the others, that explains all reads?
fn serializable(all: &[Small], real_time: bool) -> bool {
    fn go(all: &[Small], done: u32, lists: &[Vec<i64>; 3], real_time: bool) -> bool {
        if (0..all.len()).all(|t| done >> t & 1 == 1 || !all[t].ok) {
            return true;
        }
        (0..all.len()).filter(|t| done >> t & 1 == 0).any(|t| {
            let blocked = |u: usize| done >> u & 1 == 0 && all[u].ok && all[u].complete < all[t].invoke;
            if real_time && (0..all.len()).any(blocked) {
                return false;
            }
            let mut lists = lists.clone();
            let fits = all[t].ops.iter().all(|op| match op {
                Op::Append(k, e) => {
                    lists[*k].push(*e);
                    true
                }
                Op::Read(k, list) => !all[t].ok || lists[*k] == *list,
            });
            fits && go(all, done | 1 << t, &lists, real_time)
        })
    }
    go(all, 0, &Default::default(), real_time)
}

/// Histories to try; `ELENCH_ROUNDS` asks for more.
pub(super) fn rounds() -> usize {
    std::env::var("ELENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6_000)
}

#[test]
fn a_history_is_valid_exactly_when_some_order_in_real_time_explains_it() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut valid, mut invalid) = (0, 0);
    for round in 0..rounds() {
        let all = small(&mut random, round % 2 == 1);
        let history = history(&all);
        for real_time in [true, false] {
            let result = check_with(&history, &Options { real_time, process: false, ..Options::default() });
            let expected = serializable(&all, real_time);
            assert_eq!(result.order.is_some(), expected, "{all:#?} {:?}", names(&result));
            assert_eq!(result.kinds().without(AnomalySet::UNDECIDED).is_empty(), expected, "{all:#?}");
            *(if expected { &mut valid } else { &mut invalid }) += 1;
        }
    }
    assert!(
        valid > rounds() / 3 && invalid > rounds() / 3,
        "{valid} valid and {invalid} invalid ones are no good mixture"
    );
}

/// Edges by definition, over acknowledged transactions.
fn edges(all: &[Small]) -> Option<Vec<(usize, usize, Rel)>> {
    let mut edges = Vec::new();
    for key in 0..3 {
        let reads = || {
            all.iter().enumerate().flat_map(move |(t, s)| {
                s.ops.iter().filter_map(move |op| match op {
                    Op::Read(k, list) if *k == key => Some((t, list)),
                    _ => None,
                })
            })
        };
        let longest = reads().map(|(_, l)| l.clone()).max_by_key(Vec::len).unwrap_or_default();
        if reads().any(|(_, l)| !longest.starts_with(l)) {
            return None;
        }
        let writers: Vec<(usize, i64)> = all
            .iter()
            .enumerate()
            .flat_map(|(t, s)| {
                s.ops.iter().filter_map(move |op| match op {
                    Op::Append(k, e) if *k == key => Some((t, *e)),
                    _ => None,
                })
            })
            .collect();
        let writer = |e: i64| writers.iter().find(|w| w.1 == e).unwrap().0;
        let late: Vec<usize> = writers.iter().filter(|w| !longest.contains(&w.1)).map(|w| w.0).collect();
        for pair in longest.windows(2) {
            edges.push((writer(pair[0]), writer(pair[1]), Rel::Ww));
        }
        if let Some(&last) = longest.last() {
            edges.extend(late.iter().map(|&t| (writer(last), t, Rel::Ww)));
        }
        for (t, list) in reads() {
            if let Some(&last) = list.last() {
                edges.push((writer(last), t, Rel::Wr));
            }
            match longest.get(list.len()) {
                Some(&next) => edges.push((t, writer(next), Rel::Rw)),
                None => edges.extend(late.iter().map(|&w| (t, w, Rel::Rw))),
            }
        }
    }
    for (a, s) in all.iter().enumerate() {
        for (b, t) in all.iter().enumerate().filter(|&(b, _)| b != a) {
            if s.complete < t.invoke {
                edges.push((a, b, Rel::RealTime));
            }
            if s.process == t.process && a < b {
                edges.push((a, b, Rel::Process));
            }
        }
    }
    edges.retain(|(a, b, _)| a != b);
    Some(edges)
}

/// The kinds of all simple cycles.
fn kinds(n: usize, edges: &[(usize, usize, Rel)]) -> AnomalySet {
    fn go(
        start: usize,
        at: usize,
        seen: u32,
        rels: &mut Vec<Rel>,
        edges: &[(usize, usize, Rel)],
        out: &mut AnomalySet,
    ) {
        for &(_, to, rel) in edges.iter().filter(|e| e.0 == at) {
            rels.push(rel);
            if to == start {
                kind_of(rels).map(|k| out.insert(k));
            } else if to > start && seen >> to & 1 == 0 {
                go(start, to, seen | 1 << to, rels, edges, out);
            }
            rels.pop();
        }
    }
    let mut out = AnomalySet::EMPTY;
    (0..n).for_each(|s| go(s, s, 1 << s, &mut Vec::new(), edges, &mut out));
    out
}

#[test]
fn the_kinds_found_are_those_of_all_simple_cycles_but_for_what_they_imply() {
    let mut random = Random(0xD1B5_4A32_D192_ED03);
    let mut met = AnomalySet::EMPTY;
    for _ in 0..rounds() {
        let all = small(&mut random, false);
        let Some(edges) = edges(&all) else { continue };
        let expected = kinds(all.len(), &edges);
        let result = check(&history(&all));
        let cyclic: AnomalySet = result
            .findings
            .iter()
            .filter(|(_, f)| f.examples.iter().any(|e| matches!(e, Explained::Cycle(_))))
            .map(|(k, _)| *k)
            .collect();
        assert!(cyclic.is_subset(expected), "{all:#?}: {cyclic:?} and {expected:?}");
        assert!(expected.is_subset(cyclic.implied()), "{all:#?}: {cyclic:?} and {expected:?}");
        met = met.union(cyclic);
    }
    assert!(met.len() >= 10, "only {met:?} were met");
}
