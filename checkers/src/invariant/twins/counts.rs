//! Twin of `pn-counter` and `g-counter`.

use super::super::replicated::{self, Rules, replicated};
use super::*;

/// What an operation adds, if it is an addition.
fn delta(call: &Call<'_>) -> Option<i64> {
    match call.f {
        "add" => call.input.parse().ok(),
        "dec" => call.input.parse().ok().map(|n: i64| -n),
        _ => None,
    }
}

/// Is it a sum of some of these?
fn is_sum(of: &[i64], value: i64) -> bool {
    match of {
        [] => value == 0,
        [one, rest @ ..] => is_sum(rest, value) || is_sum(rest, value - one),
    }
}

fn twin(all: &[Call<'_>], rules: Rules) -> Twin {
    let mut twin = Twin::default();
    twin.undecided(all.iter().any(|call| call.f != "read" && delta(call).is_none()));
    twin.undecided(!all.iter().any(Call::is_ok));
    let adds: Vec<Call<'_>> = all.iter().copied().filter(|call| call.may_be() && delta(call).is_some()).collect();
    twin.undecided(rules.grows && adds.iter().any(|add| delta(add) < Some(0)));
    let reads: Vec<Call<'_>> = acknowledged(all).into_iter().filter(|call| call.f == "read").collect();
    let (rest, contradicted) = at_rest(&reads, &adds, rules.quiescent);
    twin.undecided(contradicted || rest.is_empty());
    for read in &rest {
        let Ok(value) = read.output.parse::<i64>() else {
            twin.undecided(true);
            continue;
        };
        let known: i64 = adds.iter().filter(|add| add.is_ok()).filter_map(delta).sum();
        let unknown = adds.iter().filter(|add| add.is_unknown() && add.began < read.ended);
        let unknown: Vec<i64> = unknown.filter_map(delta).collect();
        if !is_sum(&unknown, value - known - rules.initial) {
            twin.broken("impossible-final-value", &[read.began]);
        }
    }
    twin
}

#[test]
fn final_values_of_counters_are_impossible_where_no_subset_makes_them() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let rules =
            Rules { initial: random.below(2) as i64 * 5, grows: random.chance(300), quiescent: random.chance(500) };
        let (odd, low) = (random.chance(100), if random.chance(500) { 0 } else { -2 });
        let made = |random: &mut Random, rest: bool| {
            if rest || random.chance(200) {
                let output = if odd && random.chance(300) {
                    one_of(random, &["nil", ":x", "[1]"]).to_string()
                } else {
                    (rules.initial + random.below(4) as i64).to_string()
                };
                let extra = if rest && random.chance(700) || random.chance(50) { FINAL } else { "" };
                return Made { f: "read", input: "nil".into(), output, extra: extra.into() };
            }
            let value = (low + random.below(4) as i64).to_string();
            let f = if odd && random.chance(50) { "reset" } else { ["add", "dec"][usize::from(random.chance(100))] };
            Made { f, input: value.clone(), output: value, ..Made::default() }
        };
        let mut log = chaos(&mut random, 3, 10, |random| made(random, false));
        // Then reads, which overlap additions that never ended.
        let offset = log.len() as u64 * 10 + 10;
        log.extend(chaos(&mut random, 2, 7, |random| made(random, true)).into_iter().map(|mut e| {
            e.process += offset;
            e
        }));
        let h = history(&log);
        let found = both(&h, replicated(&h, rules, 1000), replicated::online(rules, 1000));
        answers.agree(&twin(&calls(&log), rules), &found, &log);
    }
    answers.each_at_least(5, &["impossible-final-value"]);
}
