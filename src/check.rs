//! One history in, one report out: picks the checkers that fit, runs them, merges their answers.
//!
//! Invalid beats unknown beats valid. What only describes a history (`stats`, `exceptions`) never makes the verdict;
//! where no checker judged, the answer is unknown and says so. A checker that panics is its own `unknown`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use elench_checkers::budget::Budget;
use elench_checkers::descriptive::{ExceptionGroup, Stats, exceptions, stats};
use elench_checkers::linear::registers::{FailedCas, NilReads, Options as RegisterOptions, Registers, registers};
use elench_checkers::linear::{Evidence, check_keys};
use elench_checkers::outcome::{Coverage, Outcome, Why};
use elench_formats::columns::Scalar;
use elench_formats::{History, Value};

use crate::workload::{Workload, guess};

/// A checker that `elench check` can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckerInfo {
    /// Its name.
    pub name: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// What it needs of a history.
    pub needs: &'static str,
    /// A command that runs it.
    pub example: &'static str,
    /// Does it judge, or only describe?
    pub judges: bool,
}

/// All checkers.
pub const CHECKERS: [CheckerInfo; 3] = [
    CheckerInfo {
        name: "linear",
        question: "Is there an order of the operations that respects real time and that the model allows?",
        needs: "operations of the model; the order of events is that of real time",
        example: "elench check --checker linear --model cas-register --initial 0 history.edn",
        judges: true,
    },
    CheckerInfo {
        name: "stats",
        question: "How many operations of each function ended how?",
        needs: "nothing",
        example: "elench check --checker stats history.edn",
        judges: false,
    },
    CheckerInfo {
        name: "exceptions",
        question: "What went wrong with the operations that did not succeed?",
        needs: "an :error or :exception field on operations",
        example: "elench check --checker exceptions history.edn",
        judges: false,
    },
];

/// A sequential specification that `elench check` can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub name: &'static str,
    /// Its operations.
    pub operations: &'static str,
    /// Its initial value, unless `--initial` says otherwise.
    pub initial: &'static str,
    /// An example in EDN.
    pub example: &'static str,
}

/// All models.
pub const MODELS: [ModelInfo; 2] = [
    ModelInfo {
        name: "register",
        operations: "read -> value, write value",
        initial: "nil",
        example: "{:process 0, :type :invoke, :f :write, :value 3}",
    },
    ModelInfo {
        name: "cas-register",
        operations: "read -> value, write value, cas [old new]",
        initial: "nil",
        example: "{:process 0, :type :invoke, :f :cas, :value [3 4]}",
    },
];

/// What to check, and with how much.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Names of checkers; empty: those that fit.
    pub checkers: Vec<String>,
    /// Name of the model; `None`: the one that fits.
    pub model: Option<String>,
    /// The state before the first operation.
    pub initial: Value,
    /// Name of the workload; `None`: guessed.
    pub workload: Option<String>,
    /// What a failed cas says; `None`: by format.
    pub failed_cas: Option<FailedCas>,
    /// What an acknowledged read of nil says.
    pub nil_reads: NilReads,
    /// How much the checkers may spend.
    pub budget: Budget,
    /// Violations of a kind to report in full.
    pub examples: usize,
}

/// Three truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Valid {
    /// Nothing found, everything decided.
    Yes,
    /// A violation.
    No,
    /// Not decided.
    Unknown,
}

impl fmt::Display for Valid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Valid::Yes => "valid",
            Valid::No => "invalid",
            Valid::Unknown => "unknown",
        })
    }
}

/// What one checker found.
#[derive(Debug)]
pub struct Finding {
    /// The checker.
    pub checker: &'static CheckerInfo,
    /// What it found.
    pub result: Found,
    /// How long it took.
    pub elapsed: Duration,
}

/// Results, by kind of checker.
#[derive(Debug)]
pub enum Found {
    /// Of `linear`.
    Linear(Box<Linear>),
    /// Of `stats`.
    Stats(Stats),
    /// Of `exceptions`.
    Exceptions(Vec<ExceptionGroup>),
    /// The checker does not fit this history, or failed.
    NotRun(String),
}

/// What the linearizability search found.
#[derive(Debug)]
pub struct Linear {
    /// The model that it ran on.
    pub model: &'static str,
    /// What a failed cas was taken to say.
    pub failed_cas: FailedCas,
    /// Its answer.
    pub outcome: Outcome,
    /// The keys that its evidence names.
    pub keys: Vec<Scalar>,
    /// Operations that failed and were left out.
    pub failed: Coverage,
    /// Acknowledged reads of nil that were taken to say nothing, as the register cannot be unset.
    pub silent_reads: u64,
}

/// What was found in one history.
#[derive(Debug)]
pub struct Report {
    /// Its name, as given.
    pub history: String,
    /// What kind of run it is.
    pub workload: Workload,
    /// The merged answer.
    pub valid: Valid,
    /// Why it is unknown.
    pub why: Option<String>,
    /// Client operations by outcome, indexed by the code of [`Status`](elench_formats::history::Status).
    pub ops: [u64; 4],
    /// What each checker found.
    pub findings: Vec<Finding>,
    /// What the run's own results say of it (`:valid?`, as EDN), where they stand beside the history.
    pub recorded: Option<String>,
}

impl Finding {
    /// The answer, if this checker judges.
    pub fn valid(&self) -> Option<(Valid, Option<String>)> {
        match &self.result {
            Found::Linear(l) if l.outcome.is_valid() => Some((Valid::Yes, None)),
            Found::Linear(l) if l.outcome.is_invalid() => Some((Valid::No, None)),
            Found::Linear(l) => Some((Valid::Unknown, Some(unknown_why(&l.outcome)))),
            Found::NotRun(why) if self.checker.judges => Some((Valid::Unknown, Some(why.clone()))),
            _ => None,
        }
    }
}

fn unknown_why(outcome: &Outcome) -> String {
    match outcome.answer() {
        elench_checkers::outcome::Answer::Unknown(why) => why.to_string(),
        _ => String::new(),
    }
}

/// A request that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRequest(pub String);

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadRequest {}

/// Checks one history.
///
/// # Errors
/// When a checker or model is named that does not exist.
pub fn check(name: &str, history: &History, options: &CheckOptions) -> Result<Report, BadRequest> {
    let workload = match &options.workload {
        None => guess(history),
        Some(name) => Workload { name: known_workload(name)?, why: "as asked".into() },
    };
    let picked = pick(options, &workload)?;
    let findings: Vec<Finding> = picked.into_iter().map(|c| run(c, history, &workload, options)).collect();
    let (valid, why) = merge(&findings, &workload, history);
    Ok(Report { history: name.to_string(), workload, valid, why, ops: history.counts(), findings, recorded: None })
}

fn known_workload(name: &str) -> Result<&'static str, BadRequest> {
    MODELS.iter().map(|m| m.name).find(|m| *m == name).ok_or_else(|| {
        BadRequest(format!(
            "no checker judges the workload `{name}`: this version knows {}",
            list(MODELS.map(|m| m.name))
        ))
    })
}

fn list<const N: usize>(names: [&str; N]) -> String {
    names.join(", ")
}

fn pick(options: &CheckOptions, workload: &Workload) -> Result<Vec<&'static CheckerInfo>, BadRequest> {
    if let Some(model) = &options.model
        && !MODELS.iter().any(|m| m.name == model)
    {
        return Err(BadRequest(format!("no model is called `{model}`: there are {}", list(MODELS.map(|m| m.name)))));
    }
    if !options.checkers.is_empty() {
        let named = options.checkers.iter().map(|name| {
            CHECKERS.iter().find(|c| c.name == name).ok_or_else(|| {
                BadRequest(format!("no checker is called `{name}`: there are {}", list(CHECKERS.map(|c| c.name))))
            })
        });
        return named.collect();
    }
    let fits = options.model.is_some() || MODELS.iter().any(|m| m.name == workload.name);
    Ok(CHECKERS.iter().filter(|c| c.name != "linear" || fits).collect())
}

fn run(checker: &'static CheckerInfo, history: &History, workload: &Workload, options: &CheckOptions) -> Finding {
    let start = Instant::now();
    let work = || match checker.name {
        "linear" => {
            linear(history, workload, options).map_or_else(Found::NotRun, |found| Found::Linear(Box::new(found)))
        }
        "stats" => Found::Stats(stats(history)),
        _ => Found::Exceptions(exceptions(history)),
    };
    let result = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Found::NotRun("the checker failed: this is a fault of Elench, please report it".into()));
    Finding { checker, result, elapsed: start.elapsed() }
}

fn linear(history: &History, workload: &Workload, options: &CheckOptions) -> Result<Linear, String> {
    if !history.meta().real_time {
        return Err(format!(
            "linearizability needs the order of real time, and {} does not record it",
            history.meta().format
        ));
    }
    if let Some(doubt) = history.meta().doubts.first() {
        return Err(doubt.clone());
    }
    let name = options.model.as_deref().unwrap_or(workload.name);
    let model =
        MODELS.iter().find(|m| m.name == name).ok_or("no model fits these operations: name one with --model")?.name;
    let by_format = if history.meta().format == "process-log" { FailedCas::Observed } else { FailedCas::DidNotHappen };
    let failed_cas = options.failed_cas.unwrap_or(by_format);
    let reading = RegisterOptions {
        initial: options.initial.clone(),
        failed_cas,
        nil_reads: options.nil_reads,
        cas: model == "cas-register",
    };
    let Registers { problems, keys, failed, silent_reads } = registers(history, &reading)
        .map_err(|m| format!("not a history of a {model}: operation {}: {}", m.op.0, m.why))?;
    let evidence = Evidence { shrunk_keys: options.examples, ..Evidence::default() };
    let outcome = if problems.is_empty() {
        Outcome::unknown(Coverage::default(), Why::NoEvidence)
    } else {
        check_keys(&problems, &options.budget, &evidence)
    };
    Ok(Linear { model, failed_cas, outcome, keys, failed, silent_reads })
}

/// Invalid beats unknown beats valid; nothing judged is unknown. Of a repaired history no answer stands: a repair may
/// have made the violation, or hidden it. Of a part of a history a violation stands, and nothing else.
fn merge(findings: &[Finding], workload: &Workload, history: &History) -> (Valid, Option<String>) {
    let meta = history.meta();
    let answers: Vec<(Valid, Option<String>)> = findings.iter().filter_map(Finding::valid).collect();
    let of = |valid| answers.iter().find(|(v, _)| *v == valid);
    let violated = of(Valid::No).is_some();
    if !meta.repairs.is_empty() && !answers.is_empty() {
        let found = if violated { "a violation" } else { "no violation" };
        let why = format!("PARTIAL-model: {found} in what --lenient left ({})", meta.repairs.join("; "));
        return (Valid::Unknown, Some(why));
    }
    if violated {
        return (Valid::No, None);
    }
    if let Some((_, why)) = of(Valid::Unknown) {
        return (Valid::Unknown, why.clone());
    }
    if answers.is_empty() {
        let none = format!("no checker judges this history (workload {}: {})", workload.name, workload.why);
        return (Valid::Unknown, Some(none));
    }
    if let Some(partial) = &meta.partial {
        return (Valid::Unknown, Some(format!("PARTIAL-model: no violation in a part of the history ({partial})")));
    }
    (Valid::Yes, None)
}
