//! One history in, one report out: picks the checkers that fit, runs them, merges their answers.
//!
//! Invalid beats unknown beats valid. What only describes a history (`stats`, `exceptions`) never makes the verdict;
//! where no checker judged, the answer is unknown and says so. A checker that panics is its own `unknown`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use elench_checkers::budget::Budget;
use elench_checkers::descriptive::{ExceptionGroup, Stats, exceptions, stats};
use elench_checkers::linear::read::registers::{FailedCas, NilReads};
use elench_checkers::linear::staleness::{Staleness, check_k_atomic, smallest_k, undefined};
use elench_checkers::linear::{Evidence, Problem};
use elench_checkers::model::Register;
use elench_checkers::outcome::Outcome;
use elench_formats::{History, Value};

pub use crate::judge::{MODELS, ModelInfo};

use crate::isolation::{self, Asked, Isolation};
use crate::judge::{Case, Judge, Problems, Reads};
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
pub const CHECKERS: [CheckerInfo; 6] = [
    CheckerInfo {
        name: "linear",
        question: "Is there an order of the operations that respects real time and that the model allows?",
        needs: "operations of the model; the order of events is that of real time",
        example: "elench check --checker linear --model cas-register --initial 0 history.edn",
        judges: true,
    },
    CheckerInfo {
        name: "sequential",
        question: "Is there an order of all keys' operations that keeps the order of each process and that the model allows?",
        needs: "operations of the model; which process did what. Runs when asked for",
        example: "elench check --checker sequential history.edn",
        judges: true,
    },
    CheckerInfo {
        name: "k-atomic",
        question: "Does every read return one of the last k values written? For which k?",
        needs: "reads and writes of registers; the order of events is that of real time. Runs when asked for",
        example: "elench check --checker k-atomic --k 2 history.edn",
        judges: true,
    },
    CheckerInfo {
        name: "isolation",
        question: "Which anomalies does the history of transactions prove, and which consistency models do they rule out?",
        needs: "transactions of [:append k v] and [:r k [v …]], or of [:w k v] and [:r k v]; real-time order for strict models",
        example: "elench check --checker isolation --consistency serializable history.edn",
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

/// What to check, and with how much.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Names of checkers; empty: those that fit.
    pub checkers: Vec<String>,
    /// Name of the model, or path of a table in TOML; `None`: the one that fits.
    pub model: Option<String>,
    /// The state before the first operation.
    pub initial: Value,
    /// Name of the workload; `None`: guessed.
    pub workload: Option<String>,
    /// What a failed cas says; `None`: by format.
    pub failed_cas: Option<FailedCas>,
    /// What an acknowledged read of nil says.
    pub nil_reads: NilReads,
    /// The k of k-atomicity; `None`: the smallest that holds.
    pub k: Option<usize>,
    /// What is asked of transactions.
    pub asked: Asked,
    /// Decide what a monitor decides by the search as well.
    pub cross_check: bool,
    /// Stop at the first violation; the other keys are then undecided.
    pub first: bool,
    /// How much the checkers may spend.
    pub budget: Budget,
    /// Violations of a kind to report in full.
    pub examples: usize,
}

impl Default for CheckOptions {
    /// The checkers and the model that fit, the usual initial state, without bounds.
    fn default() -> Self {
        CheckOptions {
            checkers: Vec::new(),
            model: None,
            initial: Value::Nil,
            workload: None,
            failed_cas: None,
            nil_reads: NilReads::default(),
            k: None,
            asked: Asked::default(),
            cross_check: false,
            first: false,
            budget: Budget::unlimited(),
            examples: 3,
        }
    }
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
    /// Of `linear`, `sequential` and `k-atomic`.
    Linear(Box<Linear>),
    /// Of `isolation`.
    Isolation(Box<Isolation>),
    /// Of `stats`.
    Stats(Stats),
    /// Of `exceptions`.
    Exceptions(Vec<ExceptionGroup>),
    /// The checker does not fit this history, or failed.
    NotRun(String),
}

/// What a checker found that holds a history against a model.
#[derive(Debug)]
pub struct Linear {
    /// What the model sees; its problems are gone.
    pub case: Case,
    /// The state before the first operation, as asked for.
    pub initial: Value,
    /// What an acknowledged read of nil was taken to say.
    pub nil_reads: NilReads,
    /// Its answer.
    pub outcome: Outcome,
    /// Of `k-atomic`: the k that holds or was asked for.
    pub k: Option<usize>,
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
            Found::Isolation(i) => Some(i.valid.clone()),
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
/// When a checker or model is named that does not exist, or an initial value that is none.
pub fn check(name: &str, history: &History, options: &CheckOptions) -> Result<Report, BadRequest> {
    let workload = match &options.workload {
        None => guess(history),
        Some(name) => {
            let name = known_workload(name)?;
            let model = MODELS.iter().any(|m| m.name == name).then_some(name);
            Workload { name, why: "as asked".into(), model }
        }
    };
    let model = options.model.as_deref().or(workload.model).map(Judge::named).transpose()?;
    if let Some(judge) = &model {
        judge.refuse_initial(history, &options.initial)?;
    }
    isolation::demand(&options.asked, true)?;
    let picked = pick(options, model.is_some(), &workload)?;
    let findings: Vec<Finding> =
        picked.into_iter().map(|checker| run(checker, history, &workload, model.as_ref(), options)).collect();
    let (valid, why) = merge(&findings, &workload, history);
    Ok(Report { history: name.to_string(), workload, valid, why, ops: history.counts(), findings, recorded: None })
}

fn known_workload(name: &str) -> Result<&'static str, BadRequest> {
    let transactional = ["list-append", "rw-register"].into_iter();
    MODELS.iter().map(|m| m.name).chain(transactional).find(|m| *m == name).ok_or_else(|| {
        BadRequest(format!(
            "no checker judges the workload `{name}`: this version knows list-append, rw-register, {}",
            list(MODELS.map(|m| m.name))
        ))
    })
}

fn list<const N: usize>(names: [&str; N]) -> String {
    names.join(", ")
}

fn pick(options: &CheckOptions, has_model: bool, workload: &Workload) -> Result<Vec<&'static CheckerInfo>, BadRequest> {
    if !options.checkers.is_empty() {
        let named = options.checkers.iter().map(|name| {
            CHECKERS.iter().find(|c| c.name == name).ok_or_else(|| {
                BadRequest(format!("no checker is called `{name}`: there are {}", list(CHECKERS.map(|c| c.name))))
            })
        });
        return named.collect();
    }
    Ok(CHECKERS
        .iter()
        .filter(|c| match c.name {
            "linear" => has_model,
            "isolation" => workload.is_transactional() && options.model.is_none(),
            "sequential" | "k-atomic" => false,
            _ => true,
        })
        .collect())
}

fn run(
    checker: &'static CheckerInfo,
    history: &History,
    workload: &Workload,
    model: Option<&Judge>,
    options: &CheckOptions,
) -> Finding {
    let start = Instant::now();
    let work = || match checker.name {
        "linear" | "sequential" | "k-atomic" => against_model(checker.name, history, model, options)
            .map_or_else(Found::NotRun, |found| Found::Linear(Box::new(found))),
        "isolation" => isolation::judge(history, workload.name, &asked(options), &options.budget, options.examples)
            .map_or_else(Found::NotRun, |found| Found::Isolation(Box::new(found))),
        "stats" => Found::Stats(stats(history)),
        _ => Found::Exceptions(exceptions(history)),
    };
    let result = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Found::NotRun("the checker failed: this is a fault of Elench, please report it".into()));
    Finding { checker, result, elapsed: start.elapsed() }
}

/// What is asked of transactions, with the initial value.
fn asked(options: &CheckOptions) -> Asked {
    let initial = Some(options.initial.to_edn()).filter(|text| text != "nil");
    Asked { initial: options.asked.initial.clone().or(initial), ..options.asked.clone() }
}

/// Holds a history against a model: `linear`, `sequential` or `k-atomic`.
fn against_model(
    checker: &str,
    history: &History,
    model: Option<&Judge>,
    options: &CheckOptions,
) -> Result<Linear, String> {
    if checker != "sequential" && !history.meta().real_time {
        return Err(format!(
            "the checker needs the order of real time, and {} does not record it",
            history.meta().format
        ));
    }
    let model = model.ok_or("no model fits these operations: name one with --model")?;
    let (initial, nil_reads) = (options.initial.clone(), options.nil_reads);
    let how = Reads { initial: initial.clone(), failed_cas: options.failed_cas, nil_reads };
    let mut case = model.read(history, &how)?;
    let evidence = Evidence {
        shrunk_keys: options.examples,
        cross_check: options.cross_check,
        first_only: options.first,
        ..Evidence::default()
    };
    let problems = std::mem::replace(&mut case.problems, Problems::Objects(Vec::new()));
    let (outcome, k) = match (checker, &problems) {
        ("linear", problems) => (problems.linear(&options.budget, &evidence), None),
        ("sequential", problems) => (problems.sequential(&options.budget, &evidence), None),
        (_, Problems::Registers(problems)) => {
            if let Some(op) = undefined(problems) {
                return Err(format!("k-atomicity is not defined for a compare-and-set, and operation {} is one", op.0));
            }
            atomic(problems, options.k, &options.budget, &evidence)
        }
        _ => return Err(format!("k-atomicity is a condition on registers, not on a {}", case.model)),
    };
    Ok(Linear { case, initial, nil_reads, outcome, k })
}

/// For this k, or for the smallest that holds.
fn atomic(
    problems: &[Problem<Register>],
    k: Option<usize>,
    budget: &Budget,
    evidence: &Evidence,
) -> (Outcome, Option<usize>) {
    if let Some(k) = k {
        return (check_k_atomic(problems, k, budget, evidence), Some(k));
    }
    match smallest_k(problems, budget, evidence) {
        Staleness::Smallest(k, outcome, _) => (outcome, Some(k)),
        Staleness::Never(outcome) => (outcome, None),
        Staleness::Unknown(k, outcome) => (outcome, Some(k)),
    }
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
