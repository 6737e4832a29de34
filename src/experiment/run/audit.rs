//! Both audits of a run, each item answered from what the run, its recording and the ledger show; what nobody looked at stays unchecked.

use std::collections::{BTreeMap, BTreeSet};

use elench_formats::History;
use elench_formats::history::is_read;

use super::judge::{Checked, consumed};
use super::landing::since;
use super::load::Ended;
use super::record::Earlier;
use super::stage::Stage;
use crate::experiment::scenario::Scenario;
use crate::experiment::sli::Window;
use crate::verdict::Landing;
use crate::verdict::audit::{Answer, Audited, RedFlag, WeakOracle};
use crate::verdict::blame::FaultClass;

/// Everything that is looked at.
pub(super) struct Looked<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) ended: &'a Ended,
    pub(super) checked: &'a Checked,
    pub(super) landing: &'a Landing,
    pub(super) ops: u64,
    /// What this run counts for, and what earlier ones did.
    pub(super) earlier: &'a Earlier,
}

/// Operations of a baseline at least, for anything to be compared with it.
const FEW: u64 = 20;
/// Seeds that a statistical claim needs (verdicts.md).
const SEEDS: usize = 3;

fn answer<T>(item: T, so: Option<bool>, looked_at: impl Into<String>) -> Audited<T> {
    let answer = match so {
        Some(true) => Answer::Yes,
        Some(false) => Answer::No,
        None => Answer::NotApplicable,
    };
    Audited { item, answer, looked_at: looked_at.into() }
}

fn unchecked<T>(item: T, looked_at: impl Into<String>) -> Audited<T> {
    Audited { item, answer: Answer::Unchecked, looked_at: looked_at.into() }
}

pub(super) fn red_flags(l: &Looked<'_>) -> Vec<Audited<RedFlag>> {
    let scenario = l.stage.scenario;
    let wanted = scenario.workload.duration_sec as f64;
    let counted: u64 = l.checked.reports.iter().map(consumed).max().unwrap_or(0);
    let fault = scenario.fault.is_some();
    let proven = matches!(l.landing, Landing::Proven(_));
    let limited = scenario.workload.most_ops.is_some_and(|most| l.ops >= most);
    vec![
        load_too_small(l),
        answer(RedFlag::OperationsNotConsumed, Some(counted < l.ops), format!("{counted} of {} consumed", l.ops)),
        answer(
            RedFlag::OneSidedProof,
            fault.then_some(matches!(l.landing, Landing::Ambiguous(_))),
            format!("{:?}", l.landing),
        ),
        answer(RedFlag::FaultDidNothing, fault.then_some(!proven), format!("{:?}", l.landing)),
        wall_clock(l),
        match &l.stage.aborted {
            Some(why) => answer(RedFlag::TooShort, Some(true), format!("it was ended early: {why}")),
            None => answer(
                RedFlag::TooShort,
                Some(!limited && l.ended.seconds + 1.0 < wanted),
                format!("{:.1} of {wanted:.0} s", l.ended.seconds),
            ),
        },
        swallowed_errors(&scenario.logs),
        not_recovered(l, fault),
        unlike_baseline(l),
        not_replicated(l),
    ]
}

/// Was the load there, at the intended rate, and also while the fault was?
fn load_too_small(l: &Looked<'_>) -> Audited<RedFlag> {
    let workload = &l.stage.scenario.workload;
    let rate = workload.rate.map(|want| (l.ops as f64 / l.ended.seconds.max(0.001), want));
    let slow = rate.is_some_and(|(had, want)| had < want / 2.0);
    let idle = l.checked.history.as_ref().and_then(|h| {
        let windows = l.stage.rounds.iter().enumerate().filter(|(_, r)| r.landing.is_some());
        let mut windows = windows.filter_map(|(i, r)| Some((i + 1, r.phases[1].window?)));
        windows
            .find(|(_, w)| open_in(h, *w) == 0)
            .map(|(i, _)| format!("; no operation was under way during fault {i}"))
    });
    let looked_at = format!(
        "{} operations in {:.1} s{}{}{}",
        l.ops,
        l.ended.seconds,
        rate.map_or(String::new(), |(had, want)| format!(", {had:.0} of {want:.0} a second")),
        idle.clone().unwrap_or_default(),
        l.ended.trouble.as_ref().map_or(String::new(), |t| format!("; {t}"))
    );
    answer(RedFlag::LoadTooSmall, Some(l.ops == 0 || slow || idle.is_some() || l.ended.trouble.is_some()), looked_at)
}

/// Client operations that were open at some moment of a window.
fn open_in(history: &History, w: Window) -> usize {
    let overlaps = |from: Option<i64>, to: Option<i64>| {
        from.is_some_and(|from| from <= w.until) && to.is_none_or(|to| to > w.after)
    };
    history.clients().filter(|op| overlaps(op.invoke_time(), op.complete_time())).count()
}

fn wall_clock(l: &Looked<'_>) -> Audited<RedFlag> {
    if l.stage.scenario.workload.driver.is_some() {
        return answer(RedFlag::WallClock, Some(false), "the recorder's monotonic clock and counter");
    }
    let real_time = l.checked.history.as_ref().map(|h| h.meta().real_time);
    match real_time {
        None => unchecked(RedFlag::WallClock, "there is no history that could be read"),
        Some(real_time) => answer(RedFlag::WallClock, Some(!real_time), "the order that the workload recorded"),
    }
}

fn swallowed_errors(logs: &[String]) -> Audited<RedFlag> {
    let signs =
        ["panic", "PANIC", "FATAL", "internal error", "Assertion", "assertion failed", "segfault", "stack overflow"];
    let item = RedFlag::SwallowedErrors;
    if logs.is_empty() {
        return answer(item, None, "no logs are named");
    }
    for log in logs {
        let text = match since(log, 0) {
            Ok(text) => text,
            Err(e) => return unchecked(item, format!("{log}: cannot read: {e}")),
        };
        if let Some(line) = text.lines().find(|line| signs.iter().any(|s| line.contains(s))) {
            return answer(item, Some(true), format!("{log}: {}", line.chars().take(200).collect::<String>()));
        }
    }
    answer(item, Some(false), format!("no panic in {}", logs.join(", ")))
}

/// After every rollback the steady state has to hold again.
fn not_recovered(l: &Looked<'_>, fault: bool) -> Audited<RedFlag> {
    let injected: Vec<Option<bool>> =
        l.stage.rounds.iter().filter(|r| r.rollback.is_some()).map(|r| r.phases[2].holds()).collect();
    let words: Vec<&str> = injected
        .iter()
        .map(|held| match held {
            Some(true) => "holds",
            Some(false) => "is violated",
            None => "was not measured",
        })
        .collect();
    let bad = injected.is_empty() || injected.iter().any(|held| *held != Some(true));
    let looked_at = match words.is_empty() {
        true => "nothing was rolled back".to_string(),
        false => format!("after the rollback the steady state {}", words.join(", then ")),
    };
    answer(RedFlag::NotRecovered, fault.then_some(bad), looked_at)
}

/// How often each function was invoked in a window.
fn mix(history: &History, w: Window) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for op in history.clients() {
        if op.invoke_time().is_some_and(|t| t > w.after && t <= w.until) {
            *out.entry(op.f().unwrap_or_default().to_string()).or_insert(0) += 1;
        }
    }
    out
}

/// Half the sum of the differences of shares (total variation), 0 to 1, and how many operations the smaller one has.
fn apart(a: &BTreeMap<String, u64>, b: &BTreeMap<String, u64>) -> (f64, u64) {
    let (all_a, all_b) = (a.values().sum::<u64>(), b.values().sum::<u64>());
    let share =
        |of: &BTreeMap<String, u64>, f: &String, all: u64| of.get(f).copied().unwrap_or(0) as f64 / all.max(1) as f64;
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let sum: f64 = names.iter().map(|f| (share(a, f, all_a) - share(b, f, all_b)).abs()).sum();
    (sum / 2.0, all_a.min(all_b))
}

/// Was what is compared with the baseline the same kind of load? Held against each other are the shares of the functions that were invoked,
/// before each fault and during it; a small sample may differ by more.
fn unlike_baseline(l: &Looked<'_>) -> Audited<RedFlag> {
    let item = RedFlag::UnlikeBaseline;
    if l.stage.scenario.fault.is_none() {
        return answer(item, None, "without a fault nothing is compared");
    }
    let Some(history) = &l.checked.history else { return unchecked(item, "there is no history that could be read") };
    let mut told = Vec::new();
    let mut unlike = false;
    for round in l.stage.rounds.iter().filter(|r| r.landing.is_some()) {
        let Some(base) = round.phases[0].window.map(|w| mix(history, w)) else {
            return unchecked(item, "the baseline has no window");
        };
        let all: u64 = base.values().sum();
        if all < FEW {
            return unchecked(item, format!("{all} operations before the fault are too few to compare with"));
        }
        if round.phases[0].holds() != Some(true) {
            return answer(item, Some(true), "the steady state did not hold in the baseline itself");
        }
        for (name, phase) in ["during", "after"].iter().zip(&round.phases[1..]) {
            let Some(other) = phase.window.map(|w| mix(history, w)).filter(|m| !m.is_empty()) else { continue };
            let (distance, least) = apart(&base, &other);
            // A workload may end with another phase, such as last reads: what shows the fault is what happened during it.
            unlike |= *name == "during" && distance > 0.1 + 1.5 / (least as f64).sqrt();
            told.push(format!("{name} differs by {:.0} % of {least} operations", distance * 100.0));
        }
        if told.is_empty() {
            return unchecked(item, "nothing was invoked during the fault or after it");
        }
    }
    if told.is_empty() {
        return answer(item, None, "nothing was injected, so nothing is compared");
    }
    answer(item, Some(unlike), format!("shares of functions against the load before: {}", told.join(", ")))
}

/// Is what is claimed about a share of what clients see, rather than about all of it? So are formulas over groups.
fn statistical(scenario: &Scenario) -> Option<&str> {
    scenario.checkers.iter().map(|c| c.name.as_str()).find(|name| *name == "fairness")
}

fn seeds_seen(l: &Looked<'_>) -> String {
    let seeds: Vec<String> = l.earlier.seeds.iter().map(u64::to_string).collect();
    format!("seeds of this run and of sound ones in the ledger: {}", seeds.join(", "))
}

fn every_run(l: &Looked<'_>) -> String {
    let names: Vec<&str> = l.stage.scenario.checkers.iter().map(|c| c.name.as_str()).collect();
    format!("{} judge every history by itself, no share of them; {}", names.join(", "), seeds_seen(l))
}

fn not_replicated(l: &Looked<'_>) -> Audited<RedFlag> {
    let item = RedFlag::NotReplicated;
    match statistical(l.stage.scenario) {
        None => answer(item, None, every_run(l)),
        Some(name) => {
            answer(item, Some(l.earlier.seeds.len() < 2), format!("{name} is a claim about shares; {}", seeds_seen(l)))
        }
    }
}

pub(super) fn weak_oracle(l: &Looked<'_>) -> Vec<Audited<WeakOracle>> {
    let scenario = l.stage.scenario;
    let judged = l.checked.reports.iter().any(|r| r.findings.iter().any(|f| f.checker.judges));
    let names: Vec<&str> = scenario.checkers.iter().map(|c| c.name.as_str()).collect();
    let by = if judged {
        format!("checkers over the whole history: {}", names.join(", "))
    } else {
        "no checker judged".into()
    };
    let final_only = judged && names.iter().all(|n| matches!(*n, "final-state" | "no-lost-ack" | "set" | "reconcile"));
    let reads = l
        .checked
        .history
        .as_ref()
        .is_some_and(|h| h.clients().any(|op| op.f().is_some_and(is_read) || op.txn().is_some()));
    let budget = match scenario.budgets.hardening {
        Some(_) => "the hardening budget of the scenario says how much is enough",
        None => "no hardening budget says how much is enough",
    };
    let short = scenario.budgets.hardening.is_none() && l.ops < 100;
    vec![
        answer(WeakOracle::FinalState, Some(final_only && !reads), by.clone()),
        answer(WeakOracle::Logs, Some(!judged), by.clone()),
        answer(WeakOracle::HealthChecks, Some(!judged), by.clone()),
        single_failover(l),
        answer(WeakOracle::NoErrorMetrics, Some(!judged), by),
        answer(WeakOracle::ShortRun, Some(short), format!("{} operations; {budget}", l.ops)),
        symmetric_partitions(l),
        of_driver(l, WeakOracle::HiddenRetries, "the built-in drivers never retry"),
        of_driver(l, WeakOracle::WallClockTimestamps, "order is by event index, times by one monotonic clock"),
        one_topology(l),
        few_seeds(l),
    ]
}

fn class(l: &Looked<'_>) -> Option<FaultClass> {
    l.stage.scenario.fault.as_ref().map(|f| f.class())
}

/// Faults that landed.
fn landed(l: &Looked<'_>) -> usize {
    l.stage.rounds.iter().filter(|r| matches!(r.landing, Some(Landing::Proven(_)))).count()
}

/// How many faults, or which, are enough is the scenario's to say; what it does not say, nobody has checked.
fn stated(l: &Looked<'_>, item: WeakOracle, what: String) -> Audited<WeakOracle> {
    match l.stage.scenario.budgets.hardening.and_then(|b| b.faults) {
        Some(n) => answer(item, Some(false), format!("{what}; the hardening budget says that {n} are enough")),
        None => unchecked(item, format!("{what}; no hardening budget says how many are enough")),
    }
}

fn single_failover(l: &Looked<'_>) -> Audited<WeakOracle> {
    let item = WeakOracle::SingleFailover;
    let n = landed(l);
    match class(l) {
        Some(FaultClass::Crash | FaultClass::Pause) if n > 1 => answer(item, Some(false), format!("{n} landed")),
        Some(FaultClass::Crash | FaultClass::Pause) => stated(l, item, format!("{n} fault of this kind landed")),
        _ => answer(item, None, "the fault is no failover"),
    }
}

fn symmetric_partitions(l: &Looked<'_>) -> Audited<WeakOracle> {
    let item = WeakOracle::SymmetricPartitions;
    let cuts_both_ways = l.stage.scenario.fault.as_ref().and_then(|f| f.is_symmetric());
    match (class(l), cuts_both_ways) {
        (Some(FaultClass::Partition), Some(false)) => answer(item, Some(false), "the partition cuts one way"),
        (Some(FaultClass::Partition), _) => {
            stated(l, item, format!("{} partitions that cut both ways landed", landed(l)))
        }
        _ => answer(item, None, "the fault is no partition"),
    }
}

/// What is so of the built-in drivers, and unknown of a command.
fn of_driver(l: &Looked<'_>, item: WeakOracle, no: &str) -> Audited<WeakOracle> {
    match l.stage.scenario.workload.driver {
        Some(_) => answer(item, Some(false), no),
        None => unchecked(item, "the workload is a command, and nobody looked into it"),
    }
}

/// Nodes that clients worked through, as they were recorded; none where none were.
pub(super) fn topology(history: &History) -> Option<String> {
    let nodes: BTreeSet<&str> = history.clients().filter_map(|op| op.node()).collect();
    (!nodes.is_empty()).then(|| nodes.into_iter().collect::<Vec<_>>().join(" "))
}

/// Did clients see the system from one place only? More than one node in the recording, or other nodes in earlier sound runs, are more than one
/// topology. Where the scenario names one address, and the recording shows no other, there is none to vary; nor has a single shard another.
fn one_topology(l: &Looked<'_>) -> Audited<WeakOracle> {
    let item = WeakOracle::OneTopology;
    let scenario = l.stage.scenario;
    let here = l.checked.history.as_ref().and_then(topology);
    let nodes = here.as_deref().map_or(0, |t| t.split(' ').count());
    let told = format!(
        "clients worked through {}; sound runs in the ledger know {} topologies",
        here.as_deref().unwrap_or("nodes that were not recorded"),
        l.earlier.topologies.len()
    );
    if nodes > 1 || l.earlier.topologies.len() > 1 {
        return answer(item, Some(false), told);
    }
    if scenario.target_class.as_deref() == Some(crate::experiment::scenario::SINGLE_SHARD) {
        return answer(item, None, format!("the target is declared a single shard; {told}"));
    }
    if nodes == 1 && scenario.workload.endpoints.len() <= 1 {
        return answer(item, None, format!("the scenario names one address; {told}"));
    }
    unchecked(item, told)
}

fn few_seeds(l: &Looked<'_>) -> Audited<WeakOracle> {
    let item = WeakOracle::FewSeeds;
    let enough = l.earlier.seeds.len() >= SEEDS;
    match statistical(l.stage.scenario) {
        _ if enough => answer(item, Some(false), seeds_seen(l)),
        Some(name) => answer(item, Some(true), format!("{name} is a claim about shares; {}", seeds_seen(l))),
        None => answer(item, None, every_run(l)),
    }
}

#[cfg(test)]
mod tests {
    use elench_formats::notation::history;

    use super::*;

    #[test]
    fn mixes_of_functions_differ_by_the_share_that_would_have_to_move() {
        let of = |reads: u64, writes: u64| BTreeMap::from([("read".to_string(), reads), ("write".to_string(), writes)]);
        assert_eq!(apart(&of(50, 50), &of(5, 5)), (0.0, 10));
        let (distance, least) = apart(&of(100, 0), &of(0, 40));
        assert!((distance - 1.0).abs() < 1e-9 && least == 40);
        assert!((apart(&of(80, 20), &of(60, 40)).0 - 0.2).abs() < 1e-9);
    }

    #[test]
    fn an_operation_that_stays_open_through_a_fault_is_load_and_one_that_ended_before_is_none() {
        let h = history("invoke 0 read @1 / ok 0 read 1 @5 / invoke 1 read @6").unwrap();
        assert_eq!(open_in(&h, Window { after: 10, until: 20 }), 1);
        assert_eq!(open_in(&h, Window { after: 2, until: 3 }), 1);
        assert_eq!(open_in(&history("invoke 0 read @1 / ok 0 read 1 @5").unwrap(), Window { after: 5, until: 9 }), 0);
        assert_eq!(mix(&h, Window { after: 0, until: 6 })["read"], 2);
    }
}
