//! Twins of `adya-g2` and `subkeys`.

use elench_formats::build::Lift;

use super::super::{g2, subkeys};
use super::*;

/// The pair of an insert `[pair [a b]]` of which exactly one of a and b is nil.
fn pair(call: &Call<'_>) -> Option<Value> {
    let value = edn(call.input);
    let [pair, ids] = value.as_vector()? else { return None };
    let [a, b] = ids.as_vector()? else { return None };
    ((*a == Value::Nil) != (*b == Value::Nil)).then(|| pair.clone())
}

#[test]
fn pairs_are_inserted_twice_where_a_look_at_all_of_them_says_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let odd = random.chance(300);
        let log = chaos(&mut random, 3, 14, |random| {
            let ids = ["[1 nil]", "[nil 2]", "[nil 3]", "[1 2]", "[nil nil]", "7"];
            let ids = ids[random.below(if odd { 6 } else { 3 }) as usize];
            let value = format!("[{} {ids}]", random.below(9));
            Made { f: "insert", input: value.clone(), output: value, ..Made::default() }
        });
        if log.is_empty() {
            continue;
        }
        let all = calls(&log);
        let mut twin = Twin::default();
        twin.undecided(all.iter().any(|call| pair(call).is_none()) || !all.iter().any(Call::is_ok));
        let oks = acknowledged(&all);
        for (i, call) in oks.iter().enumerate() {
            let Some(of) = pair(call) else { continue };
            if let Some(first) = oks[..i].iter().find(|other| pair(other) == Some(of.clone())) {
                twin.broken("G2", &[first.began, call.began]);
            }
        }
        let lift = if odd || random.chance(500) { Lift::Never } else { Lift::Always };
        let h = history_lifting(&log, lift);
        answers.agree(&twin, &both(&h, g2::g2(&h, 1000), g2::online(1000)), &log);
    }
    answers.each_at_least(10, &["G2"]);
}

#[test]
fn a_subkey_is_missing_where_two_of_them_say_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let keyed = random.chance(300);
        let log = chaos(&mut random, 3, 12, |random| {
            let key = random.below(3);
            if random.chance(300) {
                return Made { f: "write", input: key.to_string(), output: key.to_string(), ..Made::default() };
            }
            // Mostly right: nothing up to some place, and all from there on.
            let (n, from) = (random.below(5), random.below(5));
            let cell = |i: u64| if i >= from { format!("\"{key}_{i}\"") } else { "nil".into() };
            let mut cells: Vec<String> = (0..n).map(cell).collect();
            if random.chance(300) && n > 0 {
                cells[random.below(n) as usize] = "nil".into();
            }
            let odd = !keyed && random.chance(60);
            let value = if odd { one_of(random, &["nil", "7"]).into() } else { format!("[{}]", cells.join(" ")) };
            Made { f: "read", input: format!("[{key} nil]"), output: format!("[{key} {value}]"), ..Made::default() }
        });
        // Values with keys are lifted where all are pairs of a key and something.
        let log: Vec<_> = log.into_iter().filter(|e| !keyed || e.f == "read").collect();
        if log.is_empty() {
            continue;
        }
        let all = calls(&log);
        let mut twin = Twin::default();
        let mut found_any = false;
        for call in all.iter().filter(|call| call.f == "read" && call.is_ok()) {
            let value = edn(call.output);
            let Some(cells) = value.as_vector().and_then(|pair| pair[1].as_vector()) else {
                twin.undecided(true);
                continue;
            };
            let found = |i: usize| cells[i] != Value::Nil;
            found_any |= (0..cells.len()).any(found);
            if (0..cells.len()).any(|j| !found(j) && (0..j).any(found)) {
                twin.broken("missing-subkey", &[call.began]);
            }
        }
        twin.undecided(!found_any);
        let h = history_lifting(&log, if keyed { Lift::Always } else { Lift::Never });
        answers.agree(&twin, &both(&h, subkeys::subkeys(&h, 1000), subkeys::online(1000)), &log);
    }
    answers.each_at_least(8, &["missing-subkey"]);
}
