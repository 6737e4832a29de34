//! What is a run of one scenario worth?
//!
//! [`classify`] is a pure function from recorded [`Facts`] to one of ten states: the decision tree first, then what caps a PASS, the
//! tier of the budget met, the red-flag audit and the weak-oracle audit. Whatever took part in the decision is told in
//! [`Classified::because`], so that a person can follow it. Nothing here measures, reads or runs anything.

pub mod audit;
pub mod blame;
pub mod session;

use std::fmt;

use serde::{Deserialize, Serialize};

use audit::{Answer, Audited, RedFlag, WeakOracle};

/// The ten states, the worst for the system first where it matters: see [`Verdict::rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// No fault was planned, the checker consumed a complete history, and nothing was violated.
    #[serde(rename = "PASS-smoke")]
    PassSmoke,
    /// A planned fault landed, the checker consumed the complete history across it, and nothing was violated.
    #[serde(rename = "PASS-hardening")]
    PassHardening,
    /// A violation that a re-run with the same seed, configuration and faults showed again.
    #[serde(rename = "FAIL-reproducible")]
    FailReproducible,
    /// A violation that a re-run did not show, or that was not run again.
    #[serde(rename = "FAIL-nondeterministic")]
    FailNondeterministic,
    /// A capability is missing; nothing was started.
    #[serde(rename = "INCONCLUSIVE-env")]
    InconclusiveEnv,
    /// The history lacks what the checker needs, or the checker does not fit the claim.
    #[serde(rename = "INCONCLUSIVE-oracle-too-weak")]
    OracleTooWeak,
    /// A fault was scheduled, and what should prove it is absent or ambiguous.
    #[serde(rename = "INCONCLUSIVE-fault-not-proven")]
    FaultNotProven,
    /// The surface is clean, but the declared checker did not run.
    #[serde(rename = "PARTIAL-surface")]
    PartialSurface,
    /// The checker ran on a part of what the scenario produced.
    #[serde(rename = "PARTIAL-model")]
    PartialModel,
    /// The session never reached it.
    #[serde(rename = "NOT-RUN")]
    NotRun,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 10] = [
        Verdict::PassSmoke,
        Verdict::PassHardening,
        Verdict::FailReproducible,
        Verdict::FailNondeterministic,
        Verdict::InconclusiveEnv,
        Verdict::OracleTooWeak,
        Verdict::FaultNotProven,
        Verdict::PartialSurface,
        Verdict::PartialModel,
        Verdict::NotRun,
    ];

    /// Its name, as everywhere: in reports, documents and the ledger.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::PassSmoke => "PASS-smoke",
            Verdict::PassHardening => "PASS-hardening",
            Verdict::FailReproducible => "FAIL-reproducible",
            Verdict::FailNondeterministic => "FAIL-nondeterministic",
            Verdict::InconclusiveEnv => "INCONCLUSIVE-env",
            Verdict::OracleTooWeak => "INCONCLUSIVE-oracle-too-weak",
            Verdict::FaultNotProven => "INCONCLUSIVE-fault-not-proven",
            Verdict::PartialSurface => "PARTIAL-surface",
            Verdict::PartialModel => "PARTIAL-model",
            Verdict::NotRun => "NOT-RUN",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|v| v.name() == name)
    }

    /// Is it a PASS of either kind?
    pub fn is_pass(self) -> bool {
        matches!(self, Verdict::PassSmoke | Verdict::PassHardening)
    }

    /// Is it a FAIL of either kind?
    pub fn is_fail(self) -> bool {
        matches!(self, Verdict::FailReproducible | Verdict::FailNondeterministic)
    }

    /// From the best, 0, to the worst: what the worst of several arms is.
    pub fn rank(self) -> u8 {
        match self {
            Verdict::PassHardening => 0,
            Verdict::PassSmoke => 1,
            Verdict::PartialModel => 2,
            Verdict::PartialSurface => 3,
            Verdict::OracleTooWeak => 4,
            Verdict::FaultNotProven => 5,
            Verdict::InconclusiveEnv => 6,
            Verdict::NotRun => 7,
            Verdict::FailNondeterministic => 8,
            Verdict::FailReproducible => 9,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Was a violation seen again?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rerun {
    /// No re-run was made, and why.
    NotMade(String),
    /// So many re-runs with the same seed, configuration and faults, and so many of them showed it.
    Made {
        /// Re-runs.
        runs: u32,
        /// Those that showed a violation again.
        shown: u32,
    },
}

/// What proves that a fault landed?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Landing {
    /// Both sides show it.
    Proven(String),
    /// One side shows it, the other does not, or the change is within the noise.
    Ambiguous(String),
    /// Nothing shows it, or nothing was declared that could.
    Absent(String),
}

/// What did the declared checkers do?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checking {
    /// They did not run, and why.
    DidNotRun(String),
    /// They ran and decided nothing.
    DecidedNothing(String),
    /// They decided a part: which, and why not the rest.
    Part(String),
    /// They consumed and decided everything.
    All,
}

/// A budget of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// That the harness works.
    Smoke,
    /// That a claim survives a fault.
    Hardening,
    /// That it may be released.
    Release,
}

impl Tier {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Smoke => "smoke",
            Tier::Hardening => "hardening",
            Tier::Release => "release",
        }
    }
}

/// How much a tier asks for, or a run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Seconds of load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_sec: Option<u64>,
    /// Operations of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
    /// Faults that landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// Runs with seeds of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
}

impl Budget {
    /// What of this was not given, in words; empty when all was.
    pub fn unmet(&self, given: &Budget) -> Vec<String> {
        let parts = [
            ("seconds", self.duration_sec, given.duration_sec),
            ("operations", self.ops, given.ops),
            ("faults", self.faults, given.faults),
            ("seeds", self.seeds, given.seeds),
        ];
        let short = |(name, want, have): (&str, Option<u64>, Option<u64>)| {
            let (want, have) = (want?, have.unwrap_or(0));
            (have < want).then(|| format!("{have} of {want} {name}"))
        };
        parts.into_iter().filter_map(short).collect()
    }
}

/// The budgets of a scenario; a tier without one asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budgets {
    /// For [`Tier::Smoke`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoke: Option<Budget>,
    /// For [`Tier::Hardening`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardening: Option<Budget>,
    /// For [`Tier::Release`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Budget>,
}

impl Budgets {
    /// The highest tier whose budget, and those of the tiers below it, were met; `None` when not even smoke was. Where no budget is
    /// given above smoke, hardening is met; release must be asked for to be met.
    pub fn met(&self, given: &Budget) -> Option<Tier> {
        let meets = |budget: &Option<Budget>| budget.is_none_or(|b| b.unmet(given).is_empty());
        let mut met = None;
        for (tier, budget) in
            [(Tier::Smoke, &self.smoke), (Tier::Hardening, &self.hardening), (Tier::Release, &self.release)]
        {
            if !meets(budget) || (tier == Tier::Release && budget.is_none()) {
                break;
            }
            met = Some(tier);
        }
        met
    }
}

/// Everything recorded of a run that its verdict depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Was the scenario reached at all?
    pub reached: bool,
    /// A capability that was missing before the start, with how to get it.
    pub missing: Option<String>,
    /// Violations that the checkers found.
    pub violations: u64,
    /// Was the first of them seen again?
    pub rerun: Rerun,
    /// Was a fault planned?
    pub fault_planned: bool,
    /// What proves that it landed, where one was planned.
    pub landing: Landing,
    /// What the declared checkers did.
    pub checking: Checking,
    /// What the history lacks that the checkers need.
    pub weak: Option<String>,
    /// What the tiers ask for.
    pub budgets: Budgets,
    /// What the run gave.
    pub given: Budget,
    /// The ten automatic checks over the evidence.
    pub red_flags: Vec<Audited<RedFlag>>,
    /// What the oracle rests on.
    pub weak_oracle: Vec<Audited<WeakOracle>>,
}

/// A verdict, and what led to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classified {
    /// The verdict.
    pub verdict: Verdict,
    /// The tier that was met; `None` where not even smoke was.
    pub tier: Option<Tier>,
    /// The steps that decided, a sentence each.
    pub because: Vec<String>,
}

/// The verdict of a run. Total: every combination of facts has one.
pub fn classify(facts: &Facts) -> Classified {
    let tier = facts.budgets.met(&facts.given);
    let (verdict, why) = tree(facts);
    let mut out = Classified { verdict, tier, because: vec![why] };
    if verdict.is_pass() {
        cap(facts, &mut out);
    }
    out
}

/// The decision tree of the specification, in its order.
fn tree(facts: &Facts) -> (Verdict, String) {
    if let Some(missing) = &facts.missing {
        return (Verdict::InconclusiveEnv, format!("a capability is missing: {missing}"));
    }
    if !facts.reached {
        return (Verdict::NotRun, "the session ended before this was reached".into());
    }
    if facts.violations > 0 {
        return match &facts.rerun {
            Rerun::Made { runs, shown } if *shown > 0 => {
                (Verdict::FailReproducible, format!("a violation, seen again in {shown} of {runs} re-runs"))
            }
            Rerun::Made { runs, .. } => {
                (Verdict::FailNondeterministic, format!("a violation, not seen again in {runs} re-runs"))
            }
            Rerun::NotMade(why) => (Verdict::FailNondeterministic, format!("a violation, not run again: {why}")),
        };
    }
    if facts.fault_planned {
        match &facts.landing {
            Landing::Proven(_) => {}
            Landing::Ambiguous(why) => {
                return (Verdict::FaultNotProven, format!("what should prove the fault is ambiguous: {why}"));
            }
            Landing::Absent(why) => return (Verdict::FaultNotProven, format!("nothing proves the fault: {why}")),
        }
    }
    match &facts.checking {
        Checking::DidNotRun(why) => {
            return (Verdict::PartialSurface, format!("the declared checker did not run: {why}"));
        }
        Checking::DecidedNothing(why) => {
            return (Verdict::PartialSurface, format!("the declared checker decided nothing: {why}"));
        }
        Checking::Part(_) | Checking::All => {}
    }
    if let Some(weak) = &facts.weak {
        return (Verdict::OracleTooWeak, format!("the history is too weak for the checker: {weak}"));
    }
    if let Checking::Part(part) = &facts.checking {
        return (Verdict::PartialModel, format!("the checker covered only a part: {part}"));
    }
    match &facts.landing {
        Landing::Proven(how) if facts.fault_planned => {
            (Verdict::PassHardening, format!("no violation while a proven fault was active: {how}"))
        }
        _ => (Verdict::PassSmoke, "no violation, and no fault was planned".into()),
    }
}

/// What caps a PASS: the tier met, then the audits. Red flags and weak oracles take it away, what nobody looked at bars hardening.
fn cap(facts: &Facts, out: &mut Classified) {
    let worst = |out: &mut Classified, verdict: Verdict, why: String| {
        if verdict.rank() > out.verdict.rank() {
            out.verdict = verdict;
        }
        out.because.push(why);
    };
    for flag in &facts.red_flags {
        if flag.answer == Answer::Yes {
            worst(out, flag.item.state(), format!("red flag, {}: {}", flag.item.about(), flag.looked_at));
        }
    }
    for item in &facts.weak_oracle {
        if item.answer == Answer::Yes {
            worst(
                out,
                item.item.state(),
                format!("weak oracle, it rests on {}: {}", item.item.about(), item.looked_at),
            );
        }
    }
    if !out.verdict.is_pass() {
        return;
    }
    let unchecked = |answers: &[Answer], asked: usize| {
        asked - answers.len().min(asked) + answers.iter().filter(|a| **a == Answer::Unchecked).count()
    };
    let red: Vec<Answer> = facts.red_flags.iter().map(|a| a.answer).collect();
    let weak: Vec<Answer> = facts.weak_oracle.iter().map(|a| a.answer).collect();
    let open = unchecked(&red, RedFlag::ALL.len()) + unchecked(&weak, WeakOracle::ALL.len());
    if open > 0 && out.verdict == Verdict::PassHardening {
        worst(out, Verdict::PassSmoke, format!("{open} audit items were not checked, which bars PASS-hardening"));
    }
    match out.tier {
        None => {
            let unmet = facts.budgets.smoke.map(|b| b.unmet(&facts.given)).unwrap_or_default().join(", ");
            worst(out, Verdict::PartialModel, format!("not even the smoke budget was met: {unmet}"));
        }
        Some(Tier::Smoke) if out.verdict == Verdict::PassHardening => {
            let unmet = facts.budgets.hardening.map(|b| b.unmet(&facts.given)).unwrap_or_default().join(", ");
            worst(out, Verdict::PassSmoke, format!("only the smoke budget was met: {unmet}"));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests;
