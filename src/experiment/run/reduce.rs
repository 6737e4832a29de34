//! What is the least of a recording that still shows the violation?
//!
//! Delta debugging (Zeller and Hildebrandt, TSE 2002): the operations are halved again and again, then dropped one at a time, until leaving out anything more
//! makes the violation vanish. Nothing but the checker is asked, with the options that it was asked with. Leaving something out can also make a
//! violation that was not there: a read of a value whose write is gone, an element whose removal is. So what is left must show the very violation that
//! the whole recording showed first, among the same operations, and no kind that was not there before. Events of the nemesis stay, and so does the
//! history of faults. Of transactions on lists much stays, as every element that is read needs its writer; the cycle itself stands in `check.json`.
//!
//! A model's violations are reduced by its own checker, which knows what may be left out of a core, and not otherwise.
//!
//! At most [`MOST`] re-checks in [`PATIENCE`], each of them linear in what is left for most checkers.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use elench_checkers::Budget;
use elench_checkers::outcome::Certificate;
use elench_formats::History;
use elench_formats::write::{Target, to_file};
use serde::Serialize;
use serde_json::Value as Json;

use super::report::document_of;
use crate::check::{CheckOptions, Found, Report, check};

/// Re-checks at most.
const MOST: u64 = 4000;
/// For how long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was reduced, and to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reduced {
    /// The recording, or the schedule; and what judges it.
    pub what: String,
    /// Operations, or injections, at first.
    pub from: u64,
    /// And in the end.
    pub to: u64,
    /// Checks or runs that it took.
    pub rechecks: u64,
    /// Does leaving out any one more make the violation vanish? False where time ran out, or not everything was tried.
    pub fully: bool,
    /// The file below the run's directory that holds it; none of a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// What was violated, by kind.
pub(super) fn kinds(report: &Report) -> BTreeSet<(String, String)> {
    let mut out = BTreeSet::new();
    for finding in report.findings.iter().filter(|f| matches!(f.valid(), Some((crate::check::Valid::No, _)))) {
        let name = finding.checker.name.to_string();
        match &finding.result {
            Found::Isolation(i) => out.extend(i.listed().map(|(kind, _)| (name.clone(), kind.name().to_string()))),
            Found::Findings(f) => out.extend(f.violations().map(|(kind, _)| (name.clone(), kind.to_string()))),
            _ => drop(out.insert((name.clone(), name))),
        }
    }
    out
}

/// Reduces the recording for one report, and writes what is left into a directory.
///
/// # Errors
/// It cannot be written.
pub(super) fn recording(
    history: &History,
    (report, options): (&Report, &CheckOptions),
    dir: &Path,
    file: &str,
) -> Result<Option<Reduced>, String> {
    let Some((rows, rechecks, fully)) = by_its_own(history, report).or_else(|| by_halving(history, report, options))
    else {
        return Ok(None);
    };
    let clients = history.clients().count() as u64;
    let left = history.select(rows);
    to_file(&left, Target::Edn, &dir.join(file)).map_err(|e| e.to_string())?;
    Ok(Some(Reduced {
        what: format!("the recording, by {}", report.findings.first().map_or("?", |f| f.checker.name)),
        from: clients,
        to: left.clients().count() as u64,
        rechecks,
        fully,
        file: Some(file.to_string()),
    }))
}

/// The smallest sub-history that a model's checker found with the violation: rows, re-checks, and whether nothing more can go.
fn by_its_own(history: &History, report: &Report) -> Option<(Vec<usize>, u64, bool)> {
    let linear = report.findings.iter().find_map(|f| match &f.result {
        Found::Linear(linear) => Some(linear),
        _ => None,
    })?;
    let cores = linear.outcome.violations().iter().filter_map(|v| match &v.certificate {
        Some(Certificate::Stuck(stuck)) if !stuck.minimal.is_empty() => Some(stuck),
        _ => None,
    });
    let core = cores.min_by_key(|s| s.minimal.len())?;
    let rows = core.minimal.iter().filter_map(|id| history.row_of(id.0)).collect();
    Some((rows, core.rechecks, core.shrunk_fully))
}

/// A violation as the result document names it: the checker, the kind, the operations.
type Named = (String, String, BTreeSet<u64>);

/// Every violation that is told in full and names operations, in the order of the document.
fn named(report: &Report, history: &History) -> Vec<Named> {
    let document = document_of(report, history);
    let list = |json: &Json| json.as_array().cloned().unwrap_or_default();
    let text = |json: &Json| json.as_str().unwrap_or_default().to_string();
    let mut out = Vec::new();
    for checker in list(&document["checkers"]) {
        for violation in list(&checker["violations"]) {
            let ops: BTreeSet<u64> = list(&violation["ops"]).iter().filter_map(Json::as_u64).collect();
            if !ops.is_empty() {
                out.push((text(&checker["name"]), text(&violation["kind"]), ops));
            }
        }
    }
    out
}

fn by_halving(history: &History, report: &Report, options: &CheckOptions) -> Option<(Vec<usize>, u64, bool)> {
    // A read whose write is gone violates any model.
    if report.findings.iter().any(|f| matches!(f.result, Found::Linear(_))) {
        return None;
    }
    let wanted = kinds(report);
    let (checker, kind, ops) = named(report, history).into_iter().next()?;
    let (clients, others): (Vec<usize>, Vec<usize>) = (0..history.len()).partition(|row| history.op(*row).is_client());
    let (until, mut rechecks) = (Instant::now() + PATIENCE, 0);
    let mut fails = |rows: &[usize]| {
        if rechecks >= MOST || Instant::now() > until {
            return None;
        }
        rechecks += 1;
        let part = history.select(rows.iter().chain(&others).copied().collect());
        let budget = Budget::unlimited().within(until.saturating_duration_since(Instant::now()));
        let asked = CheckOptions { budget, anomalies: None, ..options.clone() };
        let Ok(report) = check("reduced", &part, &asked) else { return Some(false) };
        let same = |v: &Named| v.0 == checker && v.1 == kind && v.2.is_subset(&ops);
        Some(kinds(&report).is_subset(&wanted) && named(&report, &part).iter().any(same))
    };
    let (left, fully) = minimize(clients, &mut fails);
    Some((left.into_iter().chain(others.iter().copied()).collect(), rechecks, fully))
}

/// Halves, then drops one at a time, for as long as what is left still fails; `None` of a test: no more tests. Gives what is left, and whether
/// leaving out any one of it was tried and does not fail.
fn minimize<T: Copy>(mut items: Vec<T>, fails: &mut impl FnMut(&[T]) -> Option<bool>) -> (Vec<T>, bool) {
    let mut size = items.len().div_ceil(2).max(1);
    loop {
        let mut dropped = false;
        let mut at = 0;
        while at < items.len() && items.len() > 1 {
            let end = (at + size).min(items.len());
            let rest: Vec<T> = items[..at].iter().chain(&items[end..]).copied().collect();
            match fails(&rest) {
                None => return (items, false),
                Some(true) if !rest.is_empty() => (items, dropped) = (rest, true),
                Some(_) => at = end,
            }
        }
        if size == 1 && !dropped {
            return (items, true);
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;

    #[test]
    fn what_is_left_fails_and_without_any_one_of_it_does_not() {
        for (n, needed) in [(100, vec![3, 50, 99]), (7, vec![0]), (64, vec![31, 32]), (1, vec![0])] {
            let mut tests = 0;
            let (left, fully) = minimize((0..n).collect(), &mut |rest: &[i32]| {
                tests += 1;
                Some(needed.iter().all(|x| rest.contains(x)))
            });
            assert_eq!((left, fully), (needed, true));
            assert!(tests <= 200, "{tests} tests of {n} items");
        }
    }

    #[test]
    fn when_no_more_tests_are_allowed_what_is_left_still_fails() {
        let mut tests = 0;
        let (left, fully) = minimize((0..100).collect(), &mut |rest: &[i32]| {
            tests += 1;
            (tests <= 5).then(|| rest.contains(&70))
        });
        assert!(left.contains(&70) && left.len() < 100 && !fully);
    }

    #[test]
    fn what_is_left_is_the_violation_that_was_there_and_none_that_leaving_something_out_made() {
        // 1 is lost; 2 was removed, and would look lost without its removal.
        let text = "invoke 0 add 2 / ok 0 add 2 / invoke 0 remove 2 / ok 0 remove 2 / invoke 0 add 1 / ok 0 add 1 / invoke 0 add 3 / ok 0 add 3 / invoke 1 read / ok 1 read [3]";
        let h = history(text).unwrap();
        let options = CheckOptions { checkers: vec!["set".into()], ..CheckOptions::default() };
        let report = check("x", &h, &options).unwrap();
        let (_, kind, ops) = named(&report, &h).into_iter().next().unwrap();
        assert!(ops.contains(&4), "{kind} {ops:?}");
        let (rows, _, _) = by_halving(&h, &report, &options).unwrap();
        let left: Vec<u64> = rows.iter().map(|row| h.op(*row).index()).collect();
        assert!(left.contains(&4) && !left.contains(&0), "{left:?}");
    }

    #[test]
    fn an_anomaly_of_transactions_stays_what_it_was_and_nothing_that_was_read_loses_its_writer() {
        use elench_formats::build::{BuildOptions, HistoryBuilder, Lift};
        use elench_generate::{Fault, GenOptions, Workload, generate};
        for (seed, fault) in [(1, Fault::GSingle), (2, Fault::WriteSkew), (3, Fault::G1a), (4, Fault::LostUpdate)] {
            let mut builder =
                HistoryBuilder::new(BuildOptions { lift: Lift::Never, real_time: true, ..BuildOptions::default() });
            let options = GenOptions { ops: 400, seed, fault: Some(fault), ..GenOptions::new(Workload::ListAppend) };
            generate(&options, &mut |batch| builder.push(batch)).unwrap();
            let h = builder.finish().unwrap();
            let options = CheckOptions { checkers: vec!["isolation".into()], ..CheckOptions::default() };
            let report = check("x", &h, &options).unwrap();
            let (_, kind, ops) = named(&report, &h).into_iter().next().unwrap();
            let (rows, rechecks, _) = by_halving(&h, &report, &options).unwrap();
            assert!(rows.len() < h.len() && rechecks > 8, "{fault:?}: {} left after {rechecks}", rows.len());
            let left = h.select(rows);
            let after = check("y", &left, &options).unwrap();
            assert!(kinds(&after).is_subset(&kinds(&report)), "{fault:?}: {:?}", kinds(&after));
            let again = named(&after, &left);
            assert!(again.iter().any(|v| v.1 == kind && v.2.is_subset(&ops)), "{fault:?}: {kind} {again:?}");
        }
    }

    #[test]
    fn a_lost_acknowledged_element_is_reduced_to_its_addition_and_the_read_that_misses_it() {
        let mut text = String::new();
        for i in 0..40 {
            text.push_str(&format!("invoke 0 add {i} / ok 0 add {i} / "));
        }
        let kept: Vec<String> = (0..40).filter(|i| *i != 17).map(|i| i.to_string()).collect();
        text.push_str(&format!("invoke 1 read / ok 1 read [{}]", kept.join(" ")));
        let h = history(&text).unwrap();
        let options = CheckOptions { checkers: vec!["no-lost-ack".into()], ..CheckOptions::default() };
        let report = check("x", &h, &options).unwrap();
        assert!(!kinds(&report).is_empty(), "{report:?}");
        let dir = tempfile::tempdir().unwrap();
        let reduced = recording(&h, (&report, &options), dir.path(), "reduced.edn").unwrap().unwrap();
        assert!(reduced.from == 41 && reduced.fully && reduced.rechecks > 0, "{reduced:?}");
        let left = std::fs::read_to_string(dir.path().join("reduced.edn")).unwrap();
        assert!(left.contains("17") && left.contains(":read"), "{left}");
    }
}
