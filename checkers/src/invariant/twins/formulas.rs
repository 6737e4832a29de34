//! Twins of `fairness` and `final-state`.

use elench_formats::build::Lift;

use super::super::fairness::{GroupBy, fairness};
use super::super::final_state::final_state;
use super::*;
use crate::expr::Expr;

/// What is measured of a group: how many, which of them were acknowledged, and how long each of those took, the first invoked first.
struct Group {
    all: usize,
    took: Vec<(usize, usize)>,
}

impl Group {
    fn of<'a>(calls: impl Iterator<Item = &'a Call<'a>> + Clone) -> Group {
        let took = calls.clone().filter(|call| call.is_ok()).map(|call| (call.began, call.ended - call.began));
        Group { all: calls.count(), took: took.collect() }
    }

    fn errors(&self) -> f64 {
        (self.all - self.took.len()) as f64 / self.all as f64
    }

    /// The least duration that so many per cent do not exceed.
    fn quantile(&self, per_cent: usize) -> Option<usize> {
        let within = |most: usize| self.took.iter().filter(|(_, took)| *took <= most).count();
        self.took.iter().map(|t| t.1).filter(|&most| within(most) * 100 >= per_cent * self.took.len()).min()
    }

    fn slowest(&self) -> Option<(usize, usize)> {
        self.took.iter().copied().max_by_key(|&(began, took)| (took, std::cmp::Reverse(began)))
    }
}

/// Formulas, and the same by hand: of all, the groups, and the group whose turn it is; nothing where something cannot be measured.
type ByHand = fn(&Group, &[Group], &Group) -> Option<bool>;

const OF_EACH: [(&str, ByHand); 5] = [
    ("max(group.latency) <= 7ns", |_, _, g| Some(g.slowest()?.1 <= 7)),
    ("p50(group.latency) <= p90(latency)", |all, _, g| Some(g.quantile(50)? <= all.quantile(90)?)),
    ("group.errors <= 50%", |_, _, g| Some(g.errors() <= 0.5)),
    ("group.count >= 2", |_, _, g| Some(g.all >= 2)),
    ("group.errors < 50% or p99(group.latency) > 2ns", |_, _, g| {
        if g.errors() < 0.5 { Some(true) } else { Some(g.quantile(99)? > 2) }
    }),
];

const OF_ALL: [(&str, ByHand); 6] = [
    ("p99(worst.latency) <= 4 * p99(best.latency)", |_, groups, _| {
        let all: Vec<usize> = groups.iter().filter_map(|g| g.quantile(99)).collect();
        Some(*all.iter().max()? <= 4 * all.iter().min()?)
    }),
    ("worst.errors <= 60%", |_, groups, _| Some(groups.iter().all(|g| g.errors() <= 0.6))),
    ("2 * worst.throughput >= best.throughput", |_, groups, _| {
        let oks = groups.iter().map(|g| g.took.len());
        Some(2 * oks.clone().min()? >= oks.max()?)
    }),
    ("worst.count * 2 >= best.count", |_, groups, _| {
        let counts = groups.iter().map(|g| g.all);
        Some(counts.clone().min()? * 2 >= counts.max()?)
    }),
    ("errors < 40% and groups > 1", |all, groups, _| Some(all.errors() < 0.4 && groups.len() > 1)),
    ("spread.count <= 0.75", |_, groups, _| {
        let counts = groups.iter().map(|g| g.all);
        let mean = counts.clone().sum::<usize>() as f64 / groups.len() as f64;
        Some((counts.clone().max()? - counts.min()?) as f64 <= 0.75 * mean)
    }),
];

#[test]
fn formulas_of_groups_are_false_where_measuring_by_hand_says_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let (clients, steps) = (1 + random.below(4), 4 + random.below(24));
        let log = chaos(&mut random, clients, steps, |random| Made {
            f: ["read", "write", "cas"][random.below(3) as usize],
            input: "1".into(),
            output: "1".into(),
            ..Made::default()
        });
        let all = calls(&log);
        if log.len() < 2 {
            continue;
        }
        let by_process = random.chance(500);
        let name = |call: &Call<'_>| if by_process { call.process.to_string() } else { call.f.to_string() };
        let mut names: Vec<String> = all.iter().map(name).collect();
        names.sort();
        names.dedup();
        let groups: Vec<Group> =
            names.iter().map(|of| Group::of(all.iter().filter(|call| name(call) == *of))).collect();
        let whole = Group::of(all.iter());
        let each = random.chance(500);
        let (rule, by_hand) = match each {
            true => OF_EACH[random.below(5) as usize],
            false => OF_ALL[random.below(6) as usize],
        };
        let mut twin = Twin::default();
        twin.undecided(whole.took.is_empty());
        for group in &groups[..if each { groups.len() } else { 1 }] {
            let slowest: Vec<usize> = group.slowest().map(|(op, _)| op).into_iter().collect();
            match by_hand(&whole, &groups, group) {
                Some(holds) if !holds => twin.broken("fairness", if each { &slowest } else { &[] }),
                Some(_) => {}
                None => twin.undecided(true),
            }
        }
        let by = if by_process { GroupBy::Process } else { GroupBy::F };
        let found = fairness(&history(&log), &by, &[Expr::parse(rule).unwrap()], 1000);
        if let Some(kind) = found.kinds().get("fairness").filter(|_| !each) {
            // Which of several equally bad groups is shown is left open; it is shown by its slowest operation.
            let ops = kind.examples[0].ops.iter().map(|op| op.0 as usize);
            let ops: Vec<usize> = ops.collect();
            let slowest: Vec<usize> = groups.iter().filter_map(|g| Some(g.slowest()?.0)).collect();
            assert!(ops.iter().all(|op| slowest.contains(op)), "{ops:?} {log:#?}");
            twin.broken.insert("fairness", vec![ops; twin.broken["fairness"].len()]);
        }
        answers.agree(&twin, &found, &log);
    }
    answers.each_at_least(10, &["fairness"]);
}

fn last_reads(all: &[Call<'_>], keyed: bool) -> Option<Vec<(String, i64, usize)>> {
    let split = |text: &str| match edn(text) {
        Value::Vector(pair) => (pair[0].to_edn(), pair[1].as_int().unwrap_or(0)),
        other => (String::new(), other.as_int().unwrap_or(0)),
    };
    let mut keys: Vec<String> = all.iter().map(|call| split(call.input).0).collect();
    keys.sort();
    keys.dedup();
    assert!(keyed || keys.len() <= 1);
    let mut last = Vec::new();
    for key in keys {
        let of: Vec<&Call<'_>> = all.iter().filter(|call| call.is_ok() && split(call.input).0 == key).collect();
        let Some(read) = of.iter().rfind(|call| call.f == "read") else { continue };
        if of.iter().any(|call| call.f != "read" && call.ended > read.began) {
            return None;
        }
        last.push((key, split(read.output).1, read.began));
    }
    (!last.is_empty()).then_some(last)
}

#[test]
fn final_states_are_wrong_where_the_last_reads_looked_up_by_hand_say_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let keyed = random.chance(500);
        let steps = 4 + random.below(20);
        let log = chaos(&mut random, 2, steps, |random| {
            let (key, value) = (one_of(random, &[":x", ":y"]), random.below(3));
            let of = |value: &str| if keyed { format!("[{key} {value}]") } else { value.to_string() };
            let f = if random.chance(650) { "read" } else { "write" };
            let input = if f == "read" { of("nil") } else { of(&value.to_string()) };
            Made { f, input, output: of(&value.to_string()), ..Made::default() }
        });
        if log.is_empty() {
            continue;
        }
        let last = last_reads(&calls(&log), keyed);
        let by_key = |key: &str| last.as_ref()?.iter().find(|(of, ..)| of == key).map(|(_, value, _)| *value);
        let sum = last.as_ref().map(|all| all.iter().map(|(_, value, _)| value).sum::<i64>());
        let (rule, holds) = match (keyed, random.below(3)) {
            (true, 0) => ("x == 1 or x == 2", by_key(":x").map(|x| x > 0)),
            (true, 1) => ("sum(final) >= 2", sum.map(|sum| sum >= 2)),
            (true, _) => ("not (x == y)", by_key(":x").zip(by_key(":y")).map(|(x, y)| x != y)),
            (false, 0) => ("final == 1 or final == 2", sum.map(|v| v > 0)),
            (false, _) => ("final < 2", sum.map(|v| v < 2)),
        };
        let mut twin = Twin::default();
        match holds {
            None => twin.undecided(true),
            Some(true) => {}
            Some(false) => {
                let ops: Vec<usize> = last.iter().flatten().map(|(_, _, op)| *op).collect();
                twin.broken("final-state", &ops);
            }
        }
        let h = history_lifting(&log, if keyed { Lift::Always } else { Lift::Never });
        answers.agree(&twin, &final_state(&h, &[], &[Expr::parse(rule).unwrap()], 1000), &log);
    }
    answers.each_at_least(10, &["final-state"]);
}
