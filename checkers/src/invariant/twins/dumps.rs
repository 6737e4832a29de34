//! Twin of `reconcile`.

use super::super::reconcile::{self, reconcile};
use super::*;

fn is_dump(call: &Call<'_>) -> bool {
    call.f == "dump"
}

/// Do they hold the same? Maps the same at each key, collections each element as often; nothing is nothing, whatever is around it.
fn same(a: &Value, b: &Value) -> bool {
    let items = |value: &Value| match value {
        Value::Vector(all) | Value::Set(all) => Some(all.to_vec()),
        _ => None,
    };
    let nothing = |value: &Value| match value {
        Value::Nil => true,
        Value::Map(all) => all.is_empty(),
        other => items(other).is_some_and(|all| all.is_empty()),
    };
    if nothing(a) || nothing(b) {
        return nothing(a) && nothing(b);
    }
    match (a, b, items(a), items(b)) {
        (Value::Map(a), Value::Map(b), ..) => {
            let within = |a: &[(Value, Value)], b: &[(Value, Value)]| a.iter().all(|entry| b.contains(entry));
            within(a, b) && within(b, a)
        }
        (_, _, Some(a), Some(b)) => {
            let times = |one: &Value, all: &[Value]| all.iter().filter(|other| *other == one).count();
            a.iter().chain(&b).all(|one| times(one, &a) == times(one, &b))
        }
        _ => a == b,
    }
}

fn twin(all: &[Call<'_>], vouched: bool) -> Twin {
    let mut twin = Twin::default();
    let dumps: Vec<Call<'_>> = acknowledged(all).into_iter().filter(is_dump).collect();
    let marked: Vec<Call<'_>> = dumps.iter().copied().filter(Call::is_final).collect();
    let from = match marked.is_empty() {
        true if vouched => dumps,
        _ => marked,
    };
    let last = |one: &Call<'_>| !from.iter().any(|other| other.process == one.process && other.ended > one.ended);
    let rest: Vec<Call<'_>> = from.iter().copied().filter(last).collect();
    let disturbed = |dump: &Call<'_>| all.iter().any(|call| call.is_ok() && !is_dump(call) && call.ended > dump.began);
    if rest.len() < 2 || rest.iter().any(disturbed) {
        twin.undecided(true);
        return twin;
    }
    let over = rest.iter().map(|dump| dump.ended).max().unwrap();
    let open = all.iter().any(|call| call.is_unknown() && !is_dump(call) && call.f != "get" && call.began < over);
    for (i, a) in rest.iter().enumerate() {
        for b in rest[i + 1..].iter().filter(|b| !same(&edn(a.output), &edn(b.output))) {
            twin.undecided(open);
            if !open {
                twin.broken("replicas-differ", &[a.began, b.began]);
            }
        }
    }
    twin
}

#[test]
fn replicas_differ_where_a_look_at_each_pair_says_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let (vouched, like) = (random.chance(600), random.below(6));
        let alike = [
            "[1 2]",
            "#{1 2}",
            "[2 1]",
            "{1 1, 2 1}",
            "{2 1, 1 1}",
            "7",
            "{nil 7}",
            "[1 1]",
            "{1 2}",
            "[]",
            "{}",
            "nil",
            "[nil 7]",
        ];
        let dump = |random: &mut Random, mark: u64| {
            let output = if random.chance(250) { one_of(random, &alike) } else { alike[like as usize] };
            let extra = if random.chance(mark) { FINAL } else { "" };
            Made { f: "dump", input: "nil".into(), output: output.into(), extra: extra.into() }
        };
        let other = |random: &mut Random| {
            let f = if random.chance(500) { "get" } else { "write" };
            Made { f, input: "1".into(), output: "1".into(), ..Made::default() }
        };
        let steps = random.below(8);
        let mut log = chaos(&mut random, 3, steps, |random| match random.chance(200) {
            true => dump(random, 50),
            false => other(random),
        });
        let offset = log.len() as u64 * 10 + 10;
        let late = chaos(&mut random, 3, 12, |random| match random.chance(20) {
            true => other(random),
            false => dump(random, 400),
        });
        log.extend(late.into_iter().map(|mut e| {
            e.process += offset;
            e
        }));
        let h = history(&log);
        let found = both(&h, reconcile(&h, vouched, 1000), reconcile::online(vouched, 1000));
        answers.agree(&twin(&calls(&log), vouched), &found, &log);
    }
    answers.each_at_least(10, &["replicas-differ"]);
}
