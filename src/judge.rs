//! Which model is a history held against, and what does it say to it?
//!
//! A [`Judge`] is a model by name, or a user's table; [`Judge::read`] turns a history into problems of it, a key each.

use elench_checkers::linear::Problems;
use elench_checkers::linear::read::registers::{FailedCas, NilReads, Options as RegisterOptions, Registers, registers};
use elench_checkers::linear::read::{Misfit, Object, Reading, Settings, Unfit, read};
use elench_checkers::outcome::Coverage;
use elench_formats::{History, Value};

use crate::check::BadRequest;
use crate::table;

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

/// A model, and how a history is read for it.
pub enum Judge {
    /// A register, with compare-and-set or without.
    Register {
        /// Has it one?
        cas: bool,
    },
    /// Any other object, by name.
    Object(String, Object),
}

impl Judge {
    /// The model of this name, or that a TOML file of this path describes.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<Judge, BadRequest> {
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
                let known = MODELS.map(|m| m.name).join(", ");
                return Err(BadRequest(format!("no model is called `{name}`: there are {known}, or give a TOML file")));
            }
        };
        Ok(Judge::Object(name.to_string(), object))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Judge::Register { cas: false } => "register",
            Judge::Register { cas: true } => "cas-register",
            Judge::Object(name, _) => name,
        }
    }

    /// An initial value that is none of the model's is a bad request, whatever is in the history.
    ///
    /// # Errors
    /// When it is.
    pub fn refuse_initial(&self, history: &History, initial: &Value) -> Result<(), BadRequest> {
        let Judge::Object(name, object) = self else { return Ok(()) };
        let settings = Settings { initial: initial.clone(), ..Settings::default() };
        match read(&history.slice(0..0), object, &settings) {
            Err(Unfit::Initial(why)) => Err(BadRequest(format!("--initial of a {name}: {why}"))),
            _ => Ok(()),
        }
    }

    /// What a history says to this model.
    ///
    /// # Errors
    /// Why it is none of the model's, or can be held against none.
    pub fn read(&self, history: &History, how: &Reads) -> Result<Case, String> {
        if let Some(doubt) = history.meta().doubts.first() {
            return Err(doubt.clone());
        }
        let misfit = |m: Misfit| format!("not a history of a {}: operation {}: {}", self.name(), m.op.0, m.why);
        match self {
            Judge::Register { cas } => as_registers(history, *cas, how).map_err(misfit),
            Judge::Object(name, object) => as_object(history, name, object, how).map_err(|unfit| match unfit {
                Unfit::Operation(m) => misfit(m),
                Unfit::Initial(why) => why,
            }),
        }
    }
}

/// How operations are to be read.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The state before the first operation; nil: the usual one.
    pub initial: Value,
    /// What a failed cas says; `None`: by format.
    pub failed_cas: Option<FailedCas>,
    /// What an acknowledged read of nil says.
    pub nil_reads: NilReads,
}

/// A history as a model sees it.
#[derive(Debug)]
pub struct Case {
    /// The model's name.
    pub model: String,
    /// What is to be decided, a key each.
    pub problems: Problems,
    /// The keys' EDN texts, as problems number them.
    pub keys: Vec<Box<str>>,
    /// Operations that are in no problem: those that failed, and those that say nothing.
    pub left_out: Coverage,
    /// What was assumed of the operations, sentences.
    pub assumptions: Vec<String>,
    /// Acknowledged operations that say nothing to the model, but for reads of nil.
    pub silent: u64,
    /// Acknowledged reads of nil that were taken to say nothing, as the register cannot be unset.
    pub silent_reads: u64,
    /// What a failed cas was taken to say.
    pub failed_cas: FailedCas,
}

fn as_registers(history: &History, cas: bool, how: &Reads) -> Result<Case, Misfit> {
    let by_format = if history.meta().format == "process-log" { FailedCas::Observed } else { FailedCas::DidNotHappen };
    let failed_cas = how.failed_cas.unwrap_or(by_format);
    let reading = RegisterOptions { initial: how.initial.clone(), failed_cas, nil_reads: how.nil_reads, cas };
    let Registers { problems, keys, failed, silent_reads } = registers(history, &reading)?;
    let text = |key| {
        let mut text = String::new();
        history.write_scalar(key, &mut text);
        text.into()
    };
    Ok(Case {
        model: if cas { "cas-register" } else { "register" }.to_string(),
        problems: Problems::Registers(problems),
        keys: keys.into_iter().map(text).collect(),
        left_out: failed,
        assumptions: Vec::new(),
        silent: 0,
        silent_reads,
        failed_cas,
    })
}

fn as_object(history: &History, name: &str, object: &Object, how: &Reads) -> Result<Case, Unfit> {
    let settings = Settings { initial: how.initial.clone(), nil_reads: how.nil_reads };
    let Reading { problems, keys, left_out, silent, assumptions } = read(history, object, &settings)?;
    Ok(Case {
        model: name.to_string(),
        problems: Problems::Objects(problems),
        keys,
        left_out,
        assumptions,
        silent,
        silent_reads: 0,
        failed_cas: FailedCas::DidNotHappen,
    })
}
