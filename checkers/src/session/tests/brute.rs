//! The definitions, by trying everything.

use super::*;
use crate::linear::tests::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ok,
    Fail,
    Info,
}

/// One read or write of the initial value 0 or another.
#[derive(Clone, Copy, Debug)]
struct Op {
    session: usize,
    key: usize,
    write: bool,
    value: i64,
    end: End,
}

/// As events: the operations of each session one after the other, those of different ones mixed as they stand.
fn written(ops: &[Op]) -> History {
    let mut events = String::new();
    for op in ops {
        let (f, value) = (if op.write { "write" } else { "read" }, shown(op.value));
        let sent = if op.write { value.as_str() } else { "nil" };
        let end = match op.end {
            End::Ok => "ok",
            End::Fail => "fail",
            End::Info => "info",
        };
        let told = if op.end == End::Ok { value.as_str() } else { sent };
        let (p, k) = (op.session, op.key);
        events += &format!("invoke {p} {f} [{k} {sent}]\n{end} {p} {f} [{k} {told}]\n");
    }
    keyed(&events)
}

fn shown(value: i64) -> String {
    if value == 0 { "nil".into() } else { value.to_string() }
}

/// What happened, with the write that each read returns (or none for the initial value), and program order.
struct Execution {
    ops: Vec<Op>,
    source: Vec<Option<usize>>,
    po: Vec<Vec<bool>>,
}

/// Calls with each way to say which writes of unknown outcome happened and which write each read returned.
fn executions(ops: &[Op], mut found: impl FnMut(&Execution) -> bool) -> bool {
    let unknown: Vec<usize> = (0..ops.len()).filter(|&i| ops[i].write && ops[i].end == End::Info).collect();
    for chosen in 0..1u32 << unknown.len() {
        let happened = |i: &usize| match ops[*i].end {
            End::Ok => true,
            End::Fail => false,
            End::Info => unknown.iter().position(|u| u == i).is_some_and(|at| chosen >> at & 1 == 1),
        };
        let kept: Vec<Op> = (0..ops.len()).filter(happened).map(|i| ops[i]).collect();
        let n = kept.len();
        let mut po = vec![vec![false; n]; n];
        for a in 0..n {
            for b in a + 1..n {
                // What may take effect at any time comes before nothing.
                po[a][b] = kept[a].session == kept[b].session && kept[a].end != End::Info;
            }
        }
        let reads: Vec<usize> = (0..n).filter(|&i| !kept[i].write).collect();
        let choices: Vec<Vec<Option<usize>>> = reads
            .iter()
            .map(|&r| {
                let mut from: Vec<Option<usize>> = (0..n)
                    .filter(|&w| kept[w].write && kept[w].key == kept[r].key && kept[w].value == kept[r].value)
                    .map(Some)
                    .collect();
                if kept[r].value == 0 {
                    from.push(None);
                }
                from
            })
            .collect();
        let mut at = vec![0; reads.len()];
        if choices.iter().any(Vec::is_empty) {
            continue;
        }
        loop {
            let mut source = vec![None; n];
            for (i, &r) in reads.iter().enumerate() {
                source[r] = choices[i][at[i]];
            }
            if found(&Execution { ops: kept.clone(), source, po: po.clone() }) {
                return true;
            }
            let Some(next) = (0..at.len()).find(|&i| at[i] + 1 < choices[i].len()) else { break };
            at[next] += 1;
            at[..next].fill(0);
        }
    }
    false
}

impl Execution {
    fn len(&self) -> usize {
        self.ops.len()
    }

    /// The least causal order, if it is one.
    fn causal(&self) -> Option<Vec<Vec<bool>>> {
        let mut co = self.po.clone();
        for (read, source) in self.source.iter().enumerate() {
            if let Some(write) = source {
                co[*write][read] = true;
            }
        }
        close(&mut co);
        (0..self.len()).all(|i| !co[i][i]).then_some(co)
    }

    /// Is there a causal order and, for each operation, an order of its past in which what `checked` chooses is legal?
    fn explained(&self, co: &[Vec<bool>], checked: impl Fn(usize, usize) -> bool) -> bool {
        (0..self.len()).all(|o| {
            let past: Vec<usize> = (0..self.len()).filter(|&p| p == o || co[p][o]).collect();
            orders(&past, co, &mut |order| self.is_legal(order, |read| checked(read, o)))
        })
    }

    fn is_legal(&self, order: &[usize], checked: impl Fn(usize) -> bool) -> bool {
        let mut last: Vec<Option<usize>> = vec![None; 4];
        order.iter().all(|&i| {
            let op = &self.ops[i];
            if op.write {
                last[op.key] = Some(i);
                return true;
            }
            !checked(i) || last[op.key] == self.source[i]
        })
    }

    fn is_cc(&self, co: &[Vec<bool>]) -> bool {
        self.explained(co, |read, o| read == o)
    }

    fn is_cm(&self, co: &[Vec<bool>]) -> bool {
        self.explained(co, |read, o| read == o || self.po[read][o])
    }

    fn is_ccv(&self, co: &[Vec<bool>]) -> bool {
        let all: Vec<usize> = (0..self.len()).collect();
        orders(&all, co, &mut |arbitration| {
            (0..self.len()).all(|o| {
                let past: Vec<usize> = arbitration.iter().copied().filter(|&p| p == o || co[p][o]).collect();
                self.is_legal(&past, |read| read == o)
            })
        })
    }
}

fn close(order: &mut [Vec<bool>]) {
    let n = order.len();
    for k in 0..n {
        for i in 0..n {
            for j in 0..n {
                order[i][j] |= order[i][k] && order[k][j];
            }
        }
    }
}

/// Is there a total order of these that keeps a partial one and that is accepted?
fn orders(of: &[usize], partial: &[Vec<bool>], accept: &mut impl FnMut(&[usize]) -> bool) -> bool {
    fn go(
        left: &mut Vec<usize>,
        order: &mut Vec<usize>,
        partial: &[Vec<bool>],
        accept: &mut impl FnMut(&[usize]) -> bool,
    ) -> bool {
        if left.is_empty() {
            return accept(order);
        }
        for i in 0..left.len() {
            let next = left[i];
            if left.iter().any(|&other| partial[other][next]) {
                continue;
            }
            left.remove(i);
            order.push(next);
            let found = go(left, order, partial, accept);
            order.pop();
            left.insert(i, next);
            if found {
                return true;
            }
        }
        false
    }
    go(&mut of.to_vec(), &mut Vec::new(), partial, accept)
}

fn random(random: &mut Random, most: u64, doubles: bool) -> Vec<Op> {
    let n = 2 + random.below(most - 1) as usize;
    let (sessions, keys) = (1 + random.below(3), 1 + random.below(3));
    let mut next = 0;
    let mut ops: Vec<Op> = (0..n)
        .map(|_| {
            let write = random.below(2) == 0;
            next += 1;
            let end = if write {
                [End::Ok, End::Ok, End::Ok, End::Ok, End::Info, End::Fail][random.below(6) as usize]
            } else {
                End::Ok
            };
            let value = if doubles && random.below(4) == 0 { 1 + random.below(2) as i64 } else { next };
            Op { session: random.below(sessions) as usize, key: random.below(keys) as usize, write, value, end }
        })
        .collect();
    for i in 0..n {
        if !ops[i].write {
            let values: Vec<i64> = ops.iter().filter(|w| w.write && w.key == ops[i].key).map(|w| w.value).collect();
            let at = random.below(values.len() as u64 + 1) as usize;
            ops[i].value = values.get(at).copied().unwrap_or(0);
        }
    }
    ops
}

#[test]
fn causal_answers_agree_with_the_definitions_on_random_histories() {
    let mut rng = Random(seed());
    let mut seen = [[0u64; 2]; 3];
    for run in 0..6_000 * more() {
        let ops = random(&mut rng, 7, false);
        let mut expected = [false; 3];
        executions(&ops, |execution| {
            if let Some(co) = execution.causal() {
                expected[0] |= execution.is_cc(&co);
                expected[1] |= execution.is_ccv(&co);
                expected[2] |= execution.is_cm(&co);
            }
            expected == [true; 3]
        });
        let found = causal(&written(&ops));
        assert_eq!(holds(&found), expected, "run {run}: {ops:?}\n{found:?}");
        (0..3).for_each(|i| seen[i][usize::from(expected[i])] += 1);
        let judged = ops.iter().any(|op| !op.write) && ops.iter().any(|op| op.write);
        assert_eq!(found.is_invalid(), expected != [true; 3], "{found:?}");
        assert!(found.is_invalid() || !judged || found.is_valid(), "{ops:?}\n{found:?}");
    }
    println!("violated and held, of CC, CCv, CM: {seen:?}");
    assert!(seen.iter().flatten().all(|&n| n > 50));
}

#[test]
fn the_least_causal_order_explains_what_any_does() {
    let mut rng = Random(seed());
    for _ in 0..400 * more() {
        let ops = random(&mut rng, 4, false);
        executions(&ops, |execution| {
            let least = execution.causal();
            let expected =
                least.map_or([false; 3], |co| [execution.is_cc(&co), execution.is_ccv(&co), execution.is_cm(&co)]);
            let n = execution.len();
            let pairs: Vec<(usize, usize)> =
                (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
            let mut any = [false; 3];
            for chosen in 0..1u32 << pairs.len() {
                let mut co = execution.po.clone();
                pairs.iter().enumerate().for_each(|(i, &(a, b))| co[a][b] |= chosen >> i & 1 == 1);
                let given = co.clone();
                close(&mut co);
                if co != given || (0..n).any(|i| co[i][i]) {
                    continue;
                }
                any[0] |= execution.is_cc(&co);
                any[1] |= execution.is_ccv(&co);
                any[2] |= execution.is_cm(&co);
            }
            assert_eq!(any, expected, "{ops:?}");
            false
        });
    }
}

#[test]
fn values_written_twice_never_lead_to_a_wrong_answer() {
    let mut rng = Random(seed());
    let mut decided = [0u64; 2];
    for run in 0..3_000 * more() {
        let ops = random(&mut rng, 6, true);
        let is_cc = executions(&ops, |execution| execution.causal().is_some_and(|co| execution.is_cc(&co)));
        let h = written(&ops);
        let options = CausalOptions { judged: vec![CausalModel::Cc], per_key: false };
        let found = check_causal(&h, &options, &Value::Nil, &Budget::unlimited(), 3).unwrap();
        assert!(!found.is_invalid() || !is_cc, "run {run}: {ops:?}\n{found:?}");
        assert!(!found.is_valid() || is_cc, "run {run}: {ops:?}\n{found:?}");
        decided[0] += u64::from(found.is_invalid());
        decided[1] += u64::from(found.is_valid());
    }
    assert!(decided[0] > 100 && decided[1] > 100, "{decided:?}");
}

/// Is there an order of one key's versions, the initial one first, that agrees with what these guarantees say?
fn some_order(execution: &Execution, key: usize, session: usize, of: &[Guarantee]) -> bool {
    let n = execution.len();
    // Versions by the operations that wrote them; n is the initial one.
    let versions: Vec<usize> = (0..n).filter(|&i| execution.ops[i].write && execution.ops[i].key == key).collect();
    let version = |i: usize| if execution.ops[i].write { i } else { execution.source[i].unwrap_or(n) };
    let mut said: Vec<(usize, usize, bool)> = versions.iter().map(|&v| (n, v, true)).collect();
    for a in 0..n {
        for b in 0..n {
            let (x, y) = (&execution.ops[a], &execution.ops[b]);
            if !execution.po[a][b] || x.key != key || y.key != key {
                continue;
            }
            let by = match (x.write, y.write) {
                (true, false) => Guarantee::ReadYourWrites,
                (false, false) => Guarantee::MonotonicReads,
                (true, true) => Guarantee::MonotonicWrites,
                (false, true) => Guarantee::WritesFollowReads,
            };
            if of.contains(&by) && (y.write || y.session == session) {
                said.push((version(a), version(b), y.write));
            }
        }
    }
    let mut all = versions;
    all.push(n);
    let free = vec![vec![false; n + 1]; n + 1];
    orders(&all, &free, &mut |order| {
        let place = |v: usize| order.iter().position(|&o| o == v);
        said.iter().all(|&(a, b, strictly)| if strictly { place(a) < place(b) } else { place(a) <= place(b) })
    })
}

fn expected_kinds(execution: &Execution) -> BTreeSet<&'static str> {
    use Guarantee::{All, MonotonicReads, MonotonicWrites, Pram, ReadYourWrites, WritesFollowReads};
    let mut kinds = BTreeSet::new();
    for key in 0..3 {
        if !some_order(execution, key, 0, &[WritesFollowReads]) {
            kinds.insert(WritesFollowReads.name());
        }
        for session in 0..3 {
            let fails = |of: &[Guarantee]| !some_order(execution, key, session, of);
            let alone = [ReadYourWrites, MonotonicReads].into_iter().filter(|by| fails(&[*by])).collect::<Vec<_>>();
            kinds.extend(alone.iter().map(|by| by.name()));
            if !alone.is_empty() {
                continue;
            }
            if fails(&[ReadYourWrites, MonotonicReads, MonotonicWrites]) {
                kinds.insert(Pram.name());
            } else if fails(&[ReadYourWrites, MonotonicReads, MonotonicWrites, WritesFollowReads]) {
                kinds.insert(All.name());
            }
        }
    }
    kinds
}

#[test]
fn session_guarantees_agree_with_their_definitions_on_random_histories() {
    let mut rng = Random(seed());
    let mut counts: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for run in 0..8_000 * more() {
        let mut ops = random(&mut rng, 8, false);
        if run % 2 == 0 {
            ops.iter_mut().for_each(|op| op.key = 0);
            let written: Vec<i64> = ops.iter().filter(|w| w.write).map(|w| w.value).collect();
            for op in ops.iter_mut().filter(|op| !op.write) {
                op.value = written.get(rng.below(written.len() as u64 + 1) as usize).copied().unwrap_or(0);
            }
        }
        let found = kinds(&sessions(&written(&ops)));
        // A write of unknown outcome that nobody read adds nothing, so that the least set of kinds is that of one execution.
        let mut expected: Option<BTreeSet<&str>> = None;
        executions(&ops, |execution| {
            let kinds = expected_kinds(execution);
            if expected.as_ref().is_none_or(|least| kinds.len() < least.len()) {
                expected = Some(kinds);
            }
            false
        });
        match expected {
            None => assert!(found.contains("aborted-effect"), "run {run}: {ops:?}: {found:?}"),
            Some(expected) if expected.contains("writes-follow-reads") => {
                assert!(found.contains("writes-follow-reads"), "run {run}: {ops:?}: {found:?}");
                assert!(
                    found.is_subset(&expected) || found.contains("session-causality"),
                    "run {run}: {ops:?}: {found:?}, {expected:?}"
                );
            }
            Some(expected) => assert_eq!(found, expected, "run {run}: {ops:?}"),
        }
        found.into_iter().for_each(|kind| *counts.entry(kind).or_default() += 1);
        *counts.entry("histories").or_default() += 1;
    }
    println!("{counts:?}");
    for kind in ["read-your-writes", "monotonic-reads", "writes-follow-reads", "PRAM", "session-causality"] {
        assert!(counts.get(kind).is_some_and(|&n| n > 10), "{kind}: {counts:?}");
    }
}
