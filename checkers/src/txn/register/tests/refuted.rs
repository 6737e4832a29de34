//! Is what no order explains refuted, by proofs that hold of no other history?

use super::orders::{has_order, seed_and_runs};
use super::*;
use crate::outcome::OpId;
use crate::txn::explain::{Derived, Lemma, Reason};

/// The only example of what is found with these relations.
fn refutation(history: &History, relations: Relations) -> (Anomaly, Vec<Lemma>, String) {
    let result = judged(history, Assumptions::default(), relations);
    let examples: Vec<&Explained> = result.findings.values().flat_map(|f| &f.examples).collect();
    let [example @ Explained::Refutation(refutation)] = examples[..] else { panic!("{examples:#?}") };
    (refutation.kind, refutation.lemmas.clone(), example.text())
}

#[test]
fn a_read_of_an_older_value_in_turn_is_not_strictly_serializable_whatever_the_order_of_versions() {
    let history = sequence(&["0 ok [[:w x 1]]", "1 ok [[:w x 2]]", "2 ok [[:r x 2]]", "3 ok [[:r x 1]]"]);
    let (kind, _, text) = refutation(&history, Relations::Realtime);
    assert_eq!(kind, Anomaly::PlSsCycle);
    let circle = "no order of the transactions, one after the other, that keeps real time explains what they read. In any: \
                  op 0 completed at event 1, before op 2 was invoked at event 2; op 2 completed at event 3, before op 6 was \
                  invoked at event 6; op 6 read x = 1, which op 0 wrote before op 2 wrote 2: a circle, 2 → 6 → 2.";
    assert_eq!(text, circle);
    // Without real time, the second write may have come first.
    assert!(judged(&history, Assumptions::default(), Relations::Process).order.is_some());
    let strict = judged(&history, Assumptions::default(), Relations::Realtime);
    let under = |name| strict.outcome(Demand::models(&[Model::from_name(name).unwrap()]));
    assert!(under("strict-serializable").is_invalid());
    for weaker in ["serializable", "snapshot-isolation", "read-committed", "read-uncommitted"] {
        assert!(!under(weaker).is_invalid(), "{weaker}");
    }
}

#[test]
fn the_same_in_one_process_is_not_serializable_in_sessions() {
    let history = sequence(&["0 ok [[:w x 1]]", "0 ok [[:w x 2]]", "0 ok [[:r x 2]]", "0 ok [[:r x 1]]"]);
    for relations in [Relations::Process, Relations::Realtime] {
        assert_eq!(refutation(&history, relations).0, Anomaly::StrongSessionPl3Cycle);
    }
}

#[test]
fn what_is_not_serializable_whatever_the_order_of_versions_rules_out_no_more_than_is_shown() {
    for (txns, at_once, lemmas) in [
        // Read half of one and half of the other.
        (&["0 ok [[:w x 1][:w y 1]]", "1 ok [[:w x 2][:w y 2]]", "2 ok [[:r x 1][:r y 2]]"][..], false, 3),
        (&["0 ok [[:w x 1][:w y 1]]", "1 ok [[:r x 1][:w x 2][:w y 2]]", "2 ok [[:r x 1][:r y 2]]"][..], true, 1),
        (&["0 ok [[:w x 1][:w y 1]]", "1 ok [[:r x 1][:w x 2][:w y 2]]", "2 ok [[:r x 1][:r y 2]]"][..], false, 1),
        // Two writers of x, neither of which can be the first.
        (
            &[
                "0 ok [[:w x 1][:w y 1][:w q 1]]",
                "1 ok [[:w x 2][:w y 2][:w z 2]]",
                "2 ok [[:r x 1][:r z 2]]",
                "3 ok [[:r y 2][:r q 1]]",
            ][..],
            true,
            3,
        ),
    ] {
        let history = recorded_as(txns, at_once);
        let (kind, proof, text) = refutation(&history, Relations::Data);
        assert_eq!(kind, Anomaly::Pl299Cycle, "{text}");
        assert!(proof.len() <= lemmas, "{text}");
        let result = judged(&history, Assumptions::default(), Relations::Realtime);
        let under = |name| result.outcome(Demand::models(&[Model::from_name(name).unwrap()]));
        for out in ["repeatable-read", "serializable", "strict-serializable"] {
            assert!(under(out).is_invalid(), "{out}: {text}");
        }
        // The third may hold: each value was committed when it was read.
        for not_out in ["read-committed", "read-uncommitted"] {
            assert!(!under(not_out).is_invalid(), "{not_out}: {text}");
        }
    }
}

#[test]
fn an_anomaly_of_real_time_hides_no_refutation_that_needs_none() {
    // The first three overlap; who wrote x and y last is not known. The last two show a stale read.
    let mut events = String::new();
    let mut event = |kind: &str, process: u32, mops: &str| {
        writeln!(events, "{{:type :{kind}, :process {process}, :f :txn, :value {mops}}}").unwrap();
    };
    let skew = ["[[:w x 1][:w y 1]]", "[[:r x 1][:w y 2]]", "[[:r y 1][:w x 2]]"];
    (0..3).for_each(|p| event("invoke", p, skew[p as usize]));
    (0..3).for_each(|p| event("ok", p, skew[p as usize]));
    for (process, mops) in [(3, "[[:w z 1]]"), (4, "[[:r z nil]]")] {
        event("invoke", process, mops);
        event("ok", process, mops);
    }
    let history = open_bytes(events.as_bytes(), &OpenOptions::default()).unwrap();
    let result = judged(&history, Assumptions::default(), Relations::Realtime);
    let found = AnomalySet::of(&[Anomaly::GSingleItemRealtime, Anomaly::Pl299Cycle]);
    assert_eq!(result.kinds(), found);
    let under = |name| result.outcome(Demand::models(&[Model::from_name(name).unwrap()]));
    assert!(under("repeatable-read").is_invalid() && under("serializable").is_invalid());
}

#[test]
fn among_eight_transactions_exactly_those_are_refuted_that_brute_force_does_not_explain() {
    let (mut random, runs) = seed_and_runs(1_500);
    let (mut refuted, mut longest) = (0, 0);
    for _ in 0..runs {
        let txns = blind(&mut random, 8);
        let history = recorded(&txns);
        for (model, relations, _) in [SERIAL[0], SERIAL[2]] {
            let explained = has_order(&txns, relations == Relations::Realtime, None);
            let result = judged(&history, Assumptions::default(), relations);
            let out = crate::txn::lattice::ruled_out(result.kinds());
            assert_eq!(out.contains(model), !explained, "{model}, {txns:#?}, {:#?}", result.findings);
            for example in result.findings.values().flat_map(|f| &f.examples) {
                if let Explained::Refutation(refutation) = example {
                    refuted += 1;
                    longest = longest.max(refutation.lemmas.len());
                }
            }
        }
    }
    eprintln!("{refuted} refuted, by up to {longest} lemmas");
    assert!(refuted > runs / 10 && longest > 3);
}

/// Changes a proof somewhere.
fn changed(mut lemmas: Vec<Lemma>, random: &mut Random, ops: u64) -> Vec<Lemma> {
    let mut any = |n: usize| random.below(n.max(1) as u64) as usize;
    let id = |n: usize| OpId(n as u64);
    let at = any(lemmas.len());
    let (count, lemma) = (lemmas.len(), &mut lemmas[at]);
    match any(10) {
        0 => lemma.supposed.clear(),
        1 => lemma.supposed.push((id(any(ops as usize)), id(any(ops as usize)))),
        2 => lemma.supposed.iter_mut().for_each(|(one, other)| std::mem::swap(one, other)),
        3 => lemma.derived.clear(),
        4 => {
            let before = (id(any(ops as usize)), id(any(ops as usize)));
            lemma.derived.push(Derived { before, lemma: any(count) });
        }
        5 => {
            let step = any(lemma.steps.len());
            lemma.steps.remove(step);
        }
        6 => lemma.steps.reverse(),
        7 => {
            let step = any(lemma.steps.len());
            lemma.steps[step].to = lemma.steps[step].from;
            lemma.steps = vec![lemma.steps[step].clone()];
        }
        8 => {
            let step = any(lemma.steps.len());
            if let Some(Reason::Rw { read, .. } | Reason::Wr { read, .. }) = &mut lemma.steps[step].reason {
                read.at = any(3) as u32;
            }
        }
        _ => {
            lemmas.remove(at);
        }
    }
    lemmas
}

#[test]
fn no_proof_and_no_change_of_one_holds_of_a_history_that_has_an_order() {
    let (mut random, runs) = seed_and_runs(3_000);
    let (mut tried, mut broken, mut changes) = (0, 0, 0);
    for _ in 0..runs {
        let txns = blind(&mut random, 5);
        let history = recorded(&txns);
        let result = judged(&history, Assumptions::default(), Relations::Realtime);
        let examples = result.findings.values().flat_map(|f| &f.examples);
        let Some(lemmas) = examples.into_iter().find_map(|e| match e {
            Explained::Refutation(refutation) => Some(&refutation.lemmas),
            _ => None,
        }) else {
            continue;
        };
        // The last may suppose nothing, and none may rest on itself or later ones.
        let mut registers = verify::Registers::new(&history, Assumptions::default(), None);
        assert!(registers.refutation(&history, &[]).is_err());
        let mut supposing = lemmas.clone();
        let last = supposing.last_mut().unwrap();
        let before = (last.steps[0].from, last.steps[0].to);
        last.supposed.push(before);
        assert!(registers.refutation(&history, &supposing).is_err());
        let mut circular = lemmas.clone();
        for (number, lemma) in circular.iter_mut().enumerate() {
            let from = lemma.supposed.iter().map(|&(one, other)| Derived { before: (other, one), lemma: number });
            lemma.derived.splice(0..0, from.chain([Derived { before, lemma: number }]).collect::<Vec<_>>());
        }
        assert!(registers.refutation(&history, &circular).is_err());
        // Other answers of the same reads.
        for t in 0..txns.len() {
            for m in (0..txns[t].mops.len()).filter(|&m| !txns[t].mops[m].0) {
                for value in 0..4 {
                    let mut other = txns.clone();
                    other[t].mops[m].2 = value;
                    if !serializable(&other, Relations::Realtime) {
                        continue;
                    }
                    tried += 1;
                    let other = recorded(&other);
                    let mut registers = verify::Registers::new(&other, Assumptions::default(), None);
                    broken += u32::from(registers.refutation(&other, lemmas).is_err());
                    for _ in 0..20 {
                        let changed = changed(lemmas.clone(), &mut random, other.len() as u64 * 2);
                        let held = registers.refutation(&other, &changed);
                        assert!(held.is_err(), "{held:?}, {txns:#?}, {changed:#?}");
                        changes += 1;
                    }
                }
            }
        }
    }
    eprintln!("{tried} histories that have an order, {changes} changes");
    assert!(tried == broken && changes > 2_000, "{broken} of {tried}");
}
