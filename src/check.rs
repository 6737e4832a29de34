//! One history in, one report out: picks the checkers that fit, runs them, merges their answers.
//!
//! Invalid beats unknown beats valid. What only describes a history (`stats`, `exceptions`) never makes the verdict;
//! where no checker judged, the answer is unknown and says so. A checker that panics is its own `unknown`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use elench_checkers::budget::Budget;
use elench_checkers::descriptive::{ExceptionGroup, Stats, exceptions, stats};
use elench_checkers::findings::Findings;
use elench_checkers::linear::read::registers::{FailedCas, NilReads};
use elench_checkers::linear::staleness::{Staleness, check_k_atomic, smallest_k, undefined};
use elench_checkers::linear::{Evidence, Problem, Problems};
use elench_checkers::model::Register;
use elench_checkers::outcome::Outcome;
use elench_checkers::txn::Each;
use elench_checkers::workload::{Workload, guess};
use elench_formats::{History, Value};

pub use crate::judge::{MODELS, ModelInfo};

use crate::battery::{self, Settings};
use crate::evidence::{Anomalies, Row};
use crate::isolation::{self, Asked, Isolation};
use crate::judge::{Case, Judge, Reads};
use crate::report::violation_key;

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

/// The checkers with reports of their own; [`checkers`] names all.
const CORE: [CheckerInfo; 6] = [
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

/// All checkers: those that judge first.
pub fn checkers() -> impl Iterator<Item = &'static CheckerInfo> {
    let all = || CORE.iter().chain(battery::entries().map(|entry| &entry.info));
    all().filter(|c| c.judges).chain(all().filter(|c| !c.judges))
}

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
    /// What is asked of deliveries, sessions and invariants.
    pub settings: Settings,
    /// Decide what a monitor decides by the search as well.
    pub cross_check: bool,
    /// Stop at the first violation; the other keys are then undecided.
    pub first: bool,
    /// How much the checkers may spend.
    pub budget: Budget,
    /// Violations of a kind to report in full.
    pub examples: usize,
    /// A table to write all anomalies to.
    pub anomalies: Option<Arc<Anomalies>>,
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
            settings: Settings::default(),
            cross_check: false,
            first: false,
            budget: Budget::unlimited(),
            examples: 3,
            anomalies: None,
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
    /// Of a checker of deliveries, sessions or invariants, or one that describes.
    Findings(Box<Findings>),
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
            Found::Findings(_) if !self.checker.judges => None,
            Found::Findings(f) if f.is_invalid() => Some((Valid::No, None)),
            Found::Findings(f) => Some(match f.why() {
                None => (Valid::Yes, None),
                Some(why) => (Valid::Unknown, Some(why.to_string())),
            }),
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
            let model = MODELS.iter().any(|m| m.name == name && !is_of_battery(name)).then_some(name);
            Workload { name, why: "as asked".into(), model }
        }
    };
    let model = options.model.as_deref().or(workload.model).map(Judge::named).transpose()?;
    if let Some(judge) = &model {
        judge.refuse_initial(history, &options.initial)?;
    }
    isolation::demand(&options.asked, true)?;
    options.settings.delivery.demand(&options.checkers).map_err(BadRequest)?;
    let picked = pick(options, model.is_some(), &workload)?;
    let findings: Vec<Finding> =
        picked.into_iter().map(|checker| run(checker, (name, history), &workload, model.as_ref(), options)).collect();
    let (valid, why) = merge(&findings, &workload, history);
    Ok(Report { history: name.to_string(), workload, valid, why, ops: history.counts(), findings, recorded: None })
}

fn known_workload(name: &str) -> Result<&'static str, BadRequest> {
    let transactional = ["list-append", "rw-register"].into_iter();
    let of_battery = battery::entries().flat_map(|entry| entry.workloads.iter().copied());
    let mut known: Vec<&'static str> = transactional.chain(MODELS.iter().map(|m| m.name)).chain(of_battery).collect();
    let mut seen = std::collections::BTreeSet::new();
    known.retain(|name| seen.insert(*name));
    known.iter().copied().find(|known| *known == name).ok_or_else(|| {
        BadRequest(format!("no checker judges the workload `{name}`: this version knows {}", known.join(", ")))
    })
}

/// Does a checker of deliveries, sessions or invariants judge this workload, unless a model is named?
fn is_of_battery(workload: &str) -> bool {
    battery::entries().any(|entry| entry.info.judges && entry.workloads.contains(&workload))
}

fn pick(options: &CheckOptions, has_model: bool, workload: &Workload) -> Result<Vec<&'static CheckerInfo>, BadRequest> {
    let asked = battery::asked(&options.settings);
    if !options.checkers.is_empty() {
        let more = asked.iter().filter(|name| !options.checkers.iter().any(|c| c == *name));
        let named = options.checkers.iter().map(String::as_str).chain(more.copied()).map(|name| {
            checkers().find(|c| c.name == name).ok_or_else(|| {
                let known: Vec<_> = checkers().map(|c| c.name).collect();
                BadRequest(format!("no checker is called `{name}`: there are {}", known.join(", ")))
            })
        });
        return named.collect();
    }
    let fits = |c: &&CheckerInfo| match c.name {
        name if asked.contains(&name) => true,
        "linear" => has_model,
        "isolation" => workload.is_transactional() && options.model.is_none(),
        "stats" | "exceptions" => true,
        name => battery::entry(name).is_some_and(|entry| entry.workloads.contains(&workload.name)),
    };
    Ok(checkers().filter(fits).collect())
}

fn run(
    checker: &'static CheckerInfo,
    (name, history): (&str, &History),
    workload: &Workload,
    model: Option<&Judge>,
    options: &CheckOptions,
) -> Finding {
    let start = Instant::now();
    let work = || match checker.name {
        "linear" | "sequential" | "k-atomic" => against_model(checker.name, history, model, options)
            .inspect(|found| tell_violations(checker.name, name, found, options))
            .map_or_else(Found::NotRun, |found| Found::Linear(Box::new(found))),
        "isolation" => {
            let each = options.anomalies.as_ref().map(|table| tell_each(checker.name, name, history, table));
            isolation::judge(history, workload.name, &asked(options), &options.budget, options.examples, each)
                .map_or_else(Found::NotRun, |found| Found::Isolation(Box::new(found)))
        }
        "stats" => Found::Stats(stats(history)),
        "exceptions" => Found::Exceptions(exceptions(history)),
        other => in_battery(other, name, history, options)
            .map_or_else(Found::NotRun, |found| Found::Findings(Box::new(found))),
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

/// Checkers to which a value `[k v]` says the same whether it is keyed or a pair.
const READS_BOTH: [&str; 1] = ["adya-g2"];
/// How a doubt begins that asks for keys.
const DOUBTS_KEYS: &str = "are values keyed?";

/// Runs a checker of deliveries, sessions or invariants. Of a history whose order or keys are in doubt it says nothing.
fn in_battery(checker: &str, name: &str, history: &History, options: &CheckOptions) -> Result<Findings, String> {
    let entry = battery::entry(checker).ok_or("no such checker")?;
    let matters = |doubt: &&String| !(READS_BOTH.contains(&checker) && doubt.starts_with(DOUBTS_KEYS));
    if let Some(doubt) = history.meta().doubts.iter().find(matters).filter(|_| entry.info.judges) {
        return Err(doubt.clone());
    }
    let CheckOptions { settings, initial, budget, .. } = options;
    let (kept, named) = (options.examples.max(1), options.checkers.iter().any(|c| c == checker));
    let examples = if options.anomalies.is_some() { usize::MAX } else { kept };
    let mut found = (entry.run)(&battery::Run { history, name, settings, initial, budget, examples, named })?;
    if let Some(table) = &options.anomalies {
        for (kind, all) in found.violations() {
            all.examples.iter().for_each(|example| table.push(&Row::of_example(name, checker, kind, example)));
        }
        found.keep(kept);
    }
    Ok(found)
}

/// Writes each anomaly of transactions to the table.
fn tell_each(checker: &'static str, name: &str, history: &History, table: &Arc<Anomalies>) -> Each {
    let (name, history, table) = (name.to_string(), history.clone(), table.clone());
    Each::new(move |anomaly| table.push(&Row::of_transactions(&name, checker, &history, anomaly)))
}

/// Writes each violation of a model to the table.
fn tell_violations(checker: &str, name: &str, found: &Linear, options: &CheckOptions) {
    let Some(table) = &options.anomalies else { return };
    for violation in found.outcome.violations() {
        table.push(&Row::of_violation(name, checker, violation_key(found, violation), violation));
    }
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
