//! Twin of `membership`.

use std::collections::BTreeSet;

use super::super::membership::{self, Rules, membership};
use super::*;

fn bare(text: &str) -> String {
    text.trim_matches('"').to_string()
}

/// The members of a view.
fn shown(call: &Call<'_>) -> Option<Vec<String>> {
    match edn(call.output) {
        Value::Vector(all) | Value::Set(all) => Some(all.iter().map(|one| bare(&one.to_edn())).collect()),
        _ => None,
    }
}

/// The first of these that is acknowledged and began after all of the others had certainly ended.
fn settled<'a>(these: &[Call<'a>], others: &[Call<'_>]) -> Option<Call<'a>> {
    let oks = acknowledged(these);
    oks.into_iter().find(|one| others.iter().all(|other| other.is_ok() && other.ended < one.began))
}

fn twin(all: &[Call<'_>], rules: &Rules) -> Twin {
    let mut twin = Twin::default();
    let is_change = |call: &&Call<'_>| call.f != "view";
    let changes: Vec<Call<'_>> = all.iter().filter(is_change).filter(|call| call.may_be()).copied().collect();
    let views: Vec<Call<'_>> = acknowledged(all).into_iter().filter(|call| call.f == "view").collect();
    twin.undecided(!all.iter().any(Call::is_ok));
    twin.undecided(views.iter().any(|view| shown(view).is_none()));
    let views: Vec<Call<'_>> = views.into_iter().filter(|view| shown(view).is_some()).collect();

    let first_change = all.iter().find(is_change).map_or(usize::MAX, |call| call.began);
    let early: Vec<Vec<String>> =
        views.iter().filter(|view| view.ended < first_change).filter_map(|view| shown(view)).collect();
    let seen = (!early.is_empty()).then(|| early.concat());
    let initial: Option<BTreeSet<String>> = rules.members.clone().or(seen).map(BTreeSet::from_iter);

    let (rest, contradicted) = at_rest(&views, &changes, rules.quiescent);
    twin.undecided(contradicted || rest.is_empty());
    let nobody = changes.is_empty() && initial.as_ref().is_none_or(BTreeSet::is_empty);
    let empty = rest.iter().all(|view| shown(view).is_some_and(|all| all.is_empty()));
    twin.undecided(nobody && rules.members.is_none() && empty);

    for view in &rest {
        let shown = shown(view).unwrap();
        for name in (0..5).map(|i| format!("n{i}")) {
            let of = |f: &str| -> Vec<Call<'_>> {
                let fits = |call: &&Call<'_>| call.f == f && bare(call.input) == name && call.began < view.ended;
                changes.iter().filter(fits).copied().collect()
            };
            let (joins, leaves) = (of("join"), of("leave"));
            let at_first = initial.as_ref().map(|initial| initial.contains(&name));
            let times = shown.iter().filter(|one| **one == name).count();
            match settled(&joins, &leaves) {
                Some(join) if times == 0 => twin.broken("missing-member", &[view.began, join.began]),
                None if times == 0 && at_first == Some(true) && leaves.is_empty() => {
                    twin.broken("missing-member", &[view.began]);
                }
                _ => {}
            }
            if let Some(leave) = settled(&leaves, &joins).filter(|_| times > 0) {
                twin.broken("departed-member", &[view.began, leave.began]);
            }
            if times > 0 && at_first == Some(false) && joins.is_empty() {
                twin.broken("unexpected-member", &[view.began]);
            }
            (1..times).for_each(|_| twin.broken("duplicate-member", &[view.began]));
        }
    }
    let set = |view: &Call<'_>| BTreeSet::from_iter(shown(view).unwrap());
    if let [first, others @ ..] = &rest[..]
        && !changes.iter().any(Call::is_unknown)
    {
        for view in others.iter().filter(|view| set(view) != set(first)) {
            twin.broken("disagreement", &[first.began, view.began]);
        }
    }
    twin
}

#[test]
fn views_are_wrong_where_each_member_looked_at_alone_says_so() {
    let mut answers = Answers::default();
    for mut random in seeds(1000) {
        let members = random.chance(500).then(|| vec!["n1".to_string(), "n2".into()]);
        let rules = Rules { members, quiescent: random.chance(500) };
        let (odd, right) = (random.chance(50), random.chance(600));
        let view = |random: &mut Random, extra: &str| {
            let mut all: Vec<String> = ["\"n1\"", "\"n2\""].map(String::from).to_vec();
            if !right || random.chance(100) {
                all = (0..4).filter(|_| random.chance(500)).map(|i| format!("\"n{i}\"")).collect();
                all.extend((random.chance(200) && !all.is_empty()).then(|| all[0].clone()));
            }
            let output = if odd && random.chance(300) { "7".into() } else { format!("[{}]", all.join(" ")) };
            Made { f: "view", input: "nil".into(), output, extra: extra.into() }
        };
        let steps = random.below(9);
        let mut log = chaos(&mut random, 3, steps, |random| {
            if random.chance(400) {
                let extra = if random.chance(50) { FINAL } else { "" };
                return view(random, extra);
            }
            let name = format!("\"n{}\"", if right { 1 + random.below(2) } else { random.below(4) });
            let leaves = random.chance(if right { 100 } else { 500 });
            let f = if leaves { "leave" } else { "join" };
            Made { f, input: name.clone(), output: name, ..Made::default() }
        });
        let offset = log.len() as u64 * 10 + 10;
        // Then views, now and then with a change among them.
        let late = chaos(&mut random, 2, 5, |random| {
            let extra = if random.chance(600) { FINAL } else { "" };
            match random.chance(60) {
                true => Made { f: "leave", input: "\"n1\"".into(), output: "\"n1\"".into(), ..Made::default() },
                false => view(random, extra),
            }
        });
        log.extend(late.into_iter().map(|mut e| {
            e.process += offset;
            e
        }));
        let h = history(&log);
        let found = both(&h, membership(&h, &rules, 1000), membership::online(&rules, 1000));
        answers.agree(&twin(&calls(&log), &rules), &found, &log);
    }
    let kinds = ["missing-member", "departed-member", "unexpected-member", "duplicate-member", "disagreement"];
    answers.each_at_least(3, &kinds);
}
