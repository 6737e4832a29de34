//! One history in, one report out: picks the checkers that fit, runs them, merges their answers.
//!
//! Invalid beats unknown beats valid. What only describes a history (`stats`, `exceptions`) never makes the verdict;
//! where no checker judged, the answer is unknown and says so. A checker that panics is its own `unknown`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use elench_checkers::budget::Budget;
use elench_checkers::descriptive::{ExceptionGroup, Stats, exceptions, stats};
use elench_checkers::linear::read::{Misfit, Object, Reading, Settings, Unfit, read};
use elench_checkers::linear::registers::{FailedCas, NilReads, Options as RegisterOptions, Registers, registers};
use elench_checkers::linear::{Evidence, check_keys};
use elench_checkers::outcome::{Coverage, Outcome};
use elench_formats::{History, Value};

use crate::table;
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
pub const MODELS: [ModelInfo; 20] = [
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
    ModelInfo {
        name: "multi-register",
        operations: "transactions of [:r key value] and [:w key value]; or read -> {key value …}, write {key value …}",
        initial: "nil: all unset; {key value …}",
        example: "{:process 0, :type :ok, :f :txn, :value [[:r :x 1] [:w :y 2]]}",
    },
    ModelInfo {
        name: "versioned-register",
        operations: "read -> [version value], write [nil value] -> [version value], cas [nil [old new]] -> [version [old new]]; each change makes the version one more",
        initial: "nil: [0 nil]; [version value]",
        example: "{:process 0, :type :ok, :f :write, :value [7 3]}",
    },
    ModelInfo {
        name: "map",
        operations: "get key -> value, put [key value], append [key value], delete key, cas [key [old new]]; or with a :key field",
        initial: "nil: no entries; a value: what every entry holds",
        example: "{:process 0, :type :invoke, :f :put, :key \"a\", :value 3}",
    },
    ModelInfo {
        name: "mutex",
        operations: "acquire, release (lock, unlock), by whomever",
        initial: "unlocked; locked",
        example: "{:process 0, :type :invoke, :f :acquire, :value nil}",
    },
    ModelInfo {
        name: "reentrant-mutex",
        operations: "acquire, release; the owner is the process, or :client in the value",
        initial: "unlocked; a number: how often one owner may hold it at once",
        example: "{:process 0, :type :invoke, :f :acquire, :value {:client \"a\"}}",
    },
    ModelInfo {
        name: "fenced-mutex",
        operations: "acquire -> token, or {:fence token}; release; tokens grow, 0 is none; the owner as for reentrant-mutex",
        initial: "unlocked; a number: how often one owner may hold it at once (once)",
        example: "{:process 0, :type :ok, :f :acquire, :value {:client \"a\", :fence 7}}",
    },
    ModelInfo {
        name: "semaphore",
        operations: "acquire n, release n (one, where no number is given)",
        initial: "a number of permits, which must be given",
        example: "{:process 0, :type :invoke, :f :acquire, :value 2}",
    },
    ModelInfo {
        name: "lease",
        operations: "acquire {:ttl nanoseconds} or {:ttl-ms n}, renew, release; the owner as for reentrant-mutex; needs times",
        initial: "nil; a number: how many nanoseconds a lease lasts where operations do not say",
        example: "{:process 0, :type :invoke, :f :acquire, :value {:ttl-ms 500}, :time 1000}",
    },
    ModelInfo {
        name: "counter",
        operations: "inc, dec, add n, sub n, read -> n; inc-and-get -> n, add-and-get, get-and-add and the like",
        initial: "0",
        example: "{:process 0, :type :invoke, :f :add, :value 5}",
    },
    ModelInfo {
        name: "fifo-queue",
        operations: "enqueue value, dequeue -> value or nil (offer, poll; put, take)",
        initial: "nil: empty; [first second …]",
        example: "{:process 0, :type :ok, :f :dequeue, :value 3}",
    },
    ModelInfo {
        name: "priority-queue",
        operations: "enqueue number, dequeue -> the smallest, or nil",
        initial: "nil: empty; [number …]",
        example: "{:process 0, :type :ok, :f :dequeue, :value 3}",
    },
    ModelInfo {
        name: "stack",
        operations: "push value, pop -> value or nil",
        initial: "nil: empty; [lowest … top]",
        example: "{:process 0, :type :ok, :f :pop, :value 3}",
    },
    ModelInfo {
        name: "unordered-queue",
        operations: "enqueue value, dequeue -> any value or nil",
        initial: "nil: empty; [value …]",
        example: "{:process 0, :type :ok, :f :dequeue, :value 3}",
    },
    ModelInfo {
        name: "set",
        operations: "add value, remove value, contains value -> true or false, read -> all elements",
        initial: "nil: empty; #{value …}",
        example: "{:process 0, :type :ok, :f :contains, :value [3 true]}",
    },
    ModelInfo {
        name: "grow-set",
        operations: "add value, contains value -> true or false, read -> all elements",
        initial: "nil: empty; #{value …}",
        example: "{:process 0, :type :ok, :f :read, :value #{1 2}}",
    },
    ModelInfo {
        name: "log",
        operations: "append value -> offset, read offset -> value or [value …], read {:from a :to b} -> [value …]; offsets count from 0",
        initial: "nil: empty; [value …]",
        example: "{:process 0, :type :ok, :f :append, :value {:offset 4}}",
    },
    ModelInfo {
        name: "append-list",
        operations: "append value, read -> [value …]",
        initial: "nil: empty; [value …]",
        example: "{:process 0, :type :ok, :f :read, :value [1 2]}",
    },
    ModelInfo {
        name: "bank",
        operations: "transfer {:from a, :to b, :amount n}, read -> {account balance …}",
        initial: "nil: not known; {account balance …}, with :negative-balances? true where allowed",
        example: "{:process 0, :type :invoke, :f :transfer, :value {:from 0, :to 1, :amount 5}}",
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
    pub model: String,
    /// What a failed cas was taken to say.
    pub failed_cas: FailedCas,
    /// Its answer.
    pub outcome: Outcome,
    /// The keys that its evidence names.
    pub keys: Vec<Box<str>>,
    /// Operations that were left out: those that failed, and those that say nothing.
    pub left_out: Coverage,
    /// What was assumed of the operations, sentences.
    pub assumptions: Vec<String>,
    /// Acknowledged operations that say nothing to the model, but for reads of nil.
    pub silent: u64,
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
/// When a checker or model is named that does not exist, or an initial value that is none.
pub fn check(name: &str, history: &History, options: &CheckOptions) -> Result<Report, BadRequest> {
    let workload = match &options.workload {
        None => guess(history),
        Some(name) => {
            let name = known_workload(name)?;
            Workload { name, why: "as asked".into(), model: Some(name) }
        }
    };
    let model = options.model.as_deref().or(workload.model).map(Judge::named).transpose()?;
    if let Some(judge) = &model {
        judge.refuse_initial(history, &options.initial)?;
    }
    let picked = pick(options, model.is_some())?;
    let findings: Vec<Finding> =
        picked.into_iter().map(|checker| run(checker, history, model.as_ref(), options)).collect();
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

fn pick(options: &CheckOptions, has_model: bool) -> Result<Vec<&'static CheckerInfo>, BadRequest> {
    if !options.checkers.is_empty() {
        let named = options.checkers.iter().map(|name| {
            CHECKERS.iter().find(|c| c.name == name).ok_or_else(|| {
                BadRequest(format!("no checker is called `{name}`: there are {}", list(CHECKERS.map(|c| c.name))))
            })
        });
        return named.collect();
    }
    Ok(CHECKERS.iter().filter(|c| c.name != "linear" || has_model).collect())
}

fn run(checker: &'static CheckerInfo, history: &History, model: Option<&Judge>, options: &CheckOptions) -> Finding {
    let start = Instant::now();
    let work = || match checker.name {
        "linear" => linear(history, model, options).map_or_else(Found::NotRun, |found| Found::Linear(Box::new(found))),
        "stats" => Found::Stats(stats(history)),
        _ => Found::Exceptions(exceptions(history)),
    };
    let result = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Found::NotRun("the checker failed: this is a fault of Elench, please report it".into()));
    Finding { checker, result, elapsed: start.elapsed() }
}

/// A model, and how a history is read for it.
enum Judge {
    /// A register, with compare-and-set or without.
    Register { cas: bool },
    /// Any other object, by name.
    Object(String, Object),
}

impl Judge {
    fn named(name: &str) -> Result<Judge, BadRequest> {
        let object = match name {
            "register" => return Ok(Judge::Register { cas: false }),
            "cas-register" => return Ok(Judge::Register { cas: true }),
            "multi-register" => Object::MultiRegister,
            "versioned-register" => Object::VersionedRegister,
            "map" => Object::Map,
            "mutex" => Object::Mutex,
            "reentrant-mutex" => Object::ReentrantMutex,
            "fenced-mutex" => Object::FencedMutex,
            "semaphore" => Object::Semaphore,
            "lease" => Object::Lease,
            "counter" => Object::Counter,
            "fifo-queue" => Object::FifoQueue,
            "priority-queue" => Object::PriorityQueue,
            "stack" => Object::Stack,
            "unordered-queue" => Object::UnorderedQueue,
            "set" => Object::Set,
            "grow-set" => Object::GrowSet,
            "log" => Object::Log,
            "append-list" => Object::AppendList,
            "bank" => Object::Bank,
            path if path.ends_with(".toml") => {
                let (name, table) = table::load(path)?;
                return Ok(Judge::Object(name, Object::Table(table)));
            }
            _ => {
                let known = list(MODELS.map(|m| m.name));
                return Err(BadRequest(format!("no model is called `{name}`: there are {known}, or give a TOML file")));
            }
        };
        Ok(Judge::Object(name.to_string(), object))
    }

    fn name(&self) -> &str {
        match self {
            Judge::Register { cas: false } => "register",
            Judge::Register { cas: true } => "cas-register",
            Judge::Object(name, _) => name,
        }
    }

    /// An initial value that is none of the model's is a bad request, whatever is in the history.
    fn refuse_initial(&self, history: &History, initial: &Value) -> Result<(), BadRequest> {
        let Judge::Object(name, object) = self else { return Ok(()) };
        let settings = Settings { initial: initial.clone(), ..Settings::default() };
        match read(&history.slice(0..0), object, &settings) {
            Err(Unfit::Initial(why)) => Err(BadRequest(format!("--initial of a {name}: {why}"))),
            _ => Ok(()),
        }
    }
}

fn linear(history: &History, model: Option<&Judge>, options: &CheckOptions) -> Result<Linear, String> {
    if !history.meta().real_time {
        return Err(format!(
            "linearizability needs the order of real time, and {} does not record it",
            history.meta().format
        ));
    }
    if let Some(doubt) = history.meta().doubts.first() {
        return Err(doubt.clone());
    }
    let model = model.ok_or("no model fits these operations: name one with --model")?;
    let misfit = |m: Misfit| format!("not a history of a {}: operation {}: {}", model.name(), m.op.0, m.why);
    match model {
        Judge::Register { cas } => as_registers(history, *cas, options).map_err(misfit),
        Judge::Object(name, object) => as_object(history, name, object, options).map_err(|unfit| match unfit {
            Unfit::Operation(m) => misfit(m),
            Unfit::Initial(why) => why,
        }),
    }
}

fn evidence(options: &CheckOptions) -> Evidence {
    Evidence { shrunk_keys: options.examples, ..Evidence::default() }
}

fn as_registers(history: &History, cas: bool, options: &CheckOptions) -> Result<Linear, Misfit> {
    let by_format = if history.meta().format == "process-log" { FailedCas::Observed } else { FailedCas::DidNotHappen };
    let failed_cas = options.failed_cas.unwrap_or(by_format);
    let reading = RegisterOptions { initial: options.initial.clone(), failed_cas, nil_reads: options.nil_reads, cas };
    let Registers { problems, keys, failed, silent_reads } = registers(history, &reading)?;
    let text = |key| {
        let mut text = String::new();
        history.write_scalar(key, &mut text);
        text.into()
    };
    Ok(Linear {
        model: if cas { "cas-register" } else { "register" }.to_string(),
        failed_cas,
        outcome: check_keys(&problems, &options.budget, &evidence(options)),
        keys: keys.into_iter().map(text).collect(),
        left_out: failed,
        assumptions: Vec::new(),
        silent: 0,
        silent_reads,
    })
}

fn as_object(history: &History, name: &str, object: &Object, options: &CheckOptions) -> Result<Linear, Unfit> {
    let settings = Settings { initial: options.initial.clone(), nil_reads: options.nil_reads };
    let Reading { problems, keys, left_out, silent, assumptions } = read(history, object, &settings)?;
    Ok(Linear {
        model: name.to_string(),
        failed_cas: FailedCas::DidNotHappen,
        outcome: check_keys(&problems, &options.budget, &evidence(options)),
        keys,
        left_out,
        assumptions,
        silent,
        silent_reads: 0,
    })
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
