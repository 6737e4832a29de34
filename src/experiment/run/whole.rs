//! A scenario from its file to its verdict: a run for each arm and each seed, and what they are worth together.

use serde::Serialize;

use super::record::{record_unstarted, record_whole};
use super::{End, Options, Ran, accepted, once};
use crate::experiment::Code;
use crate::experiment::scenario::Scenario;
use crate::verdict::Verdict;
use crate::verdict::session::{of_arms, of_seeds};

/// What a scenario came to.
#[derive(Debug)]
pub struct Whole {
    /// Its name.
    pub name: String,
    /// Every run, in order.
    pub runs: Vec<Ran>,
    /// The scenario itself, or each of its arms.
    pub parts: Vec<Part>,
    /// What they are worth together.
    pub verdict: Verdict,
}

/// A scenario without arms, or one of its arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// `SCENARIO`, or `SCENARIO/ARM`.
    pub name: String,
    /// What it is worth over all its seeds.
    pub verdict: Verdict,
    /// Its runs, in order.
    pub runs: Vec<String>,
    /// Why it was not run, or not to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Whole {
    /// Is a fault still there?
    pub fn is_stuck(&self) -> bool {
        self.runs.iter().any(|r| r.stuck.is_some())
    }
}

/// The seeds that a scenario is run with.
pub(super) fn seeds(scenario: &Scenario, options: &Options) -> Vec<u64> {
    match (options.seed, scenario.seeds.as_slice()) {
        (Some(seed), _) => vec![seed],
        (None, []) => vec![scenario.workload.seed],
        (None, seeds) => seeds.to_vec(),
    }
}

/// Runs a scenario. Whatever happens after an injection, the fault is taken back.
///
/// # Errors
/// In words, where evidence or ledger cannot be written.
pub fn run(text: &str, options: &Options) -> Result<End, String> {
    let scenario = match accepted(text, options) {
        Ok(scenario) => scenario,
        Err(end) => return Ok(end),
    };
    let mut whole = Whole { name: scenario.name.clone(), runs: vec![], parts: vec![], verdict: Verdict::NotRun };
    for part in scenario.parts() {
        if whole.is_stuck() {
            let why = "a fault of an earlier arm could not be taken back";
            record_unstarted(&options.home, &part.name, &part.target, Verdict::NotRun, why)?;
            whole.parts.push(Part { name: part.name, verdict: Verdict::NotRun, runs: vec![], why: Some(why.into()) });
            continue;
        }
        if !scenario.arms.is_empty() {
            (options.tell)(&format!("arm {}", part.name));
        }
        let (runs, ended) = with_each_seed(&part, options)?;
        if let Some(why) = ended.as_ref().filter(|_| runs.is_empty()).and_then(missing) {
            record_unstarted(&options.home, &part.name, &part.target, Verdict::InconclusiveEnv, &why)?;
        }
        match ended {
            Some(end) if runs.is_empty() && whole.parts.is_empty() => return Ok(end),
            ended => whole.add(&part, runs, ended.as_ref()),
        }
    }
    let verdicts: Vec<Verdict> = whole.parts.iter().map(|p| p.verdict).collect();
    whole.verdict = match (scenario.arms.is_empty(), verdicts.as_slice()) {
        (true, [one]) => *one,
        (_, all) => of_arms(all),
    };
    if !scenario.arms.is_empty() {
        record_whole(&options.home, &whole, &scenario.target)?;
    }
    Ok(End::Ran(Box::new(whole)))
}

/// A failure, and a fault that cannot be taken back, end the row of seeds.
fn with_each_seed(part: &Scenario, options: &Options) -> Result<(Vec<Ran>, Option<End>), String> {
    let mut runs: Vec<Ran> = Vec::new();
    for seed in seeds(part, options) {
        match once(part, options, seed, None)? {
            Ok(ran) => {
                let over = ran.stuck.is_some() || ran.verdict.verdict.is_fail();
                runs.push(ran);
                if over {
                    break;
                }
            }
            Err(end) => return Ok((runs, Some(end))),
        }
    }
    Ok((runs, None))
}

/// What was missing before the start, so that nothing was started.
fn missing(end: &End) -> Option<String> {
    match end {
        End::Skipped(why) => Some(why.clone()),
        End::Refused(r) if matches!(r.code, Code::InjectorMissing | Code::SteadyStateUnmeasurable) => {
            Some(r.to_string())
        }
        _ => None,
    }
}

impl Whole {
    fn add(&mut self, part: &Scenario, runs: Vec<Ran>, ended: Option<&End>) {
        let why = ended.map(|end| match end {
            End::Refused(refusal) => refusal.to_string(),
            End::Skipped(why) => why.clone(),
            End::Malformed(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            End::Ran(_) => String::new(),
        });
        let seeds: Vec<(Verdict, bool)> = runs.iter().map(|r| (r.verdict.verdict, r.sound)).collect();
        let verdict = if seeds.is_empty() { Verdict::InconclusiveEnv } else { of_seeds(&seeds, why.is_some()) };
        let ids = runs.iter().map(|r| r.run_id.clone()).collect();
        self.parts.push(Part { name: part.name.clone(), verdict, runs: ids, why });
        self.runs.extend(runs);
    }
}
