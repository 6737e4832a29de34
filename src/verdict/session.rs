//! What are the arms of one scenario worth together, and the scenarios of one session?

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Verdict;

/// The verdict of a scenario with arms: the worst of them; an arm that was not run, or only in part, caps it at `PARTIAL-surface`.
/// No arm at all is `NOT-RUN`.
pub fn of_arms(arms: &[Verdict]) -> Verdict {
    let Some(worst) = arms.iter().copied().max_by_key(|v| v.rank()) else { return Verdict::NotRun };
    let capped = |v: &Verdict| matches!(v, Verdict::NotRun | Verdict::PartialSurface | Verdict::PartialModel);
    if worst.is_fail() || !arms.iter().any(capped) {
        return worst;
    }
    if arms.iter().all(|v| *v == Verdict::NotRun) {
        return Verdict::NotRun;
    }
    let others = arms.iter().copied().filter(|v| *v != Verdict::NotRun).max_by_key(|v| v.rank());
    match others {
        Some(worst) if worst.rank() > Verdict::PartialSurface.rank() => worst,
        _ => Verdict::PartialSurface,
    }
}

/// The verdict of a scenario over runs with several seeds, at least one of them: each with whether it was sound, that is did all that was
/// planned, proven and checked. A failure counts; else what was not sound, the worst of it; else the last, which met the highest tier.
/// `missing`: seeds that were asked for were not run, so that only a part is covered.
pub fn of_seeds(runs: &[(Verdict, bool)], missing: bool) -> Verdict {
    let worst =
        |of: &dyn Fn(&(Verdict, bool)) -> bool| runs.iter().filter(|r| of(r)).map(|r| r.0).max_by_key(|v| v.rank());
    let last = runs.last().map_or(Verdict::NotRun, |r| r.0);
    let verdict = worst(&|r| r.0.is_fail()).or_else(|| worst(&|r| !r.1)).unwrap_or(last);
    let part = Verdict::PartialModel;
    if missing && part.rank() > verdict.rank() { part } else { verdict }
}

/// What a session came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Session {
    /// A scenario failed, with a reproducer.
    Fail,
    /// All passed, with evidence.
    Done,
    /// One passed at least, others did not say.
    DoneWithConcerns,
    /// None passed.
    Inconclusive,
    /// Nothing could run at all.
    Blocked,
}

impl Session {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Session::Fail => "FAIL",
            Session::Done => "DONE",
            Session::DoneWithConcerns => "DONE_WITH_CONCERNS",
            Session::Inconclusive => "INCONCLUSIVE",
            Session::Blocked => "BLOCKED",
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The verdict of a session over its scenarios. `blocked`: the plan could not be read, or the system not be reached.
///
/// A failure without a reproducer, and no pass beside it, leaves the session inconclusive: it is a lead.
pub fn of_scenarios(scenarios: &[Verdict], blocked: bool) -> Session {
    let any = |f: fn(&Verdict) -> bool| scenarios.iter().any(f);
    match () {
        () if any(|v| *v == Verdict::FailReproducible) => Session::Fail,
        () if blocked || scenarios.is_empty() => Session::Blocked,
        () if scenarios.iter().all(|v| v.is_pass()) => Session::Done,
        () if any(|v| v.is_pass()) => Session::DoneWithConcerns,
        () if scenarios.iter().all(|v| matches!(v, Verdict::NotRun | Verdict::InconclusiveEnv)) => Session::Blocked,
        () => Session::Inconclusive,
    }
}

/// The scenarios that a person should look at, the first first: failures with a reproducer, those without, then the other ones that did
/// not pass, the worst first.
pub fn concerns<T>(scenarios: &[(T, Verdict)]) -> Vec<&(T, Verdict)> {
    let mut out: Vec<_> = scenarios.iter().filter(|(_, v)| !v.is_pass()).collect();
    out.sort_by_key(|(_, v)| std::cmp::Reverse(v.rank()));
    out
}
