//! What kind of run is this? A guess from the operations, with its reason, so that the right checkers can be picked.

use std::collections::HashMap;

use elench_formats::History;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::{OpRef, Status};

/// What a history's operations look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// A name of the field: `cas-register`, `list-append`, …; `unknown` where nothing fits.
    pub name: &'static str,
    /// Why, a clause.
    pub why: String,
    /// The model that linearizability is checked against unless another is named; none where the workload does not promise
    /// it, or what would have to be known is not in the history.
    pub model: Option<&'static str>,
}

impl Workload {
    /// Are its operations transactions that `isolation` judges?
    pub fn is_transactional(&self) -> bool {
        matches!(self.name, "list-append" | "rw-register")
    }
}

/// Functions and shapes that occur, gathered in one pass.
#[derive(Default)]
struct Shape {
    fs: Vec<String>,
    mops: Vec<String>,
    txns: u64,
    /// A read whose output is a list or set, a map, an integer.
    reads_collection: bool,
    /// A read whose output is a set.
    reads_set: bool,
    reads_map: bool,
    reads_scalar: bool,
    /// A transaction's read that returned a list.
    mop_reads_list: bool,
    /// A write invoked with `[nil value]`.
    writes_versions: bool,
    /// A cas invoked with `[nil [old new]]`.
    cas_of_pairs: bool,
    /// An acknowledged append that says a number other than it appended.
    gives_offsets: bool,
    /// A value that names a time to live; one that names a fencing token; one that names permits.
    names_ttl: bool,
    names_token: bool,
    names_permits: bool,
    /// One process acquired twice before it began to release.
    acquires_again: bool,
    /// A process released what it had not acquired.
    releases_others: bool,
    /// Micro-operations that send to partitions and poll them.
    sends_or_polls: bool,
    /// A read was invoked with something: where to read, say.
    reads_somewhere: bool,
    clients: u64,
}

const REGISTER: [&str; 4] = ["read", "write", "r", "w"];
const INSERTS: [&str; 3] = ["enqueue", "offer", "push"];
const REMOVES: [&str; 4] = ["dequeue", "drain", "pop", "take"];
const LOCKS: [&str; 6] = ["acquire", "release", "lock", "unlock", "renew", "extend"];
const COUNTS: [&str; 6] = ["inc", "incr", "increment", "dec", "decr", "decrement"];

/// Guesses the workload. One pass, O(n).
///
/// Where names leave a choice, the shapes of results decide; else the model that accuses less is taken, and the reason
/// says so: whether a queue keeps an order, say, or whose a lock is, is for the user to claim (`--model`).
pub fn guess(history: &History) -> Workload {
    let shape = shape(history);
    let of = |name, model, why: String| Workload { name, why, model };
    let same = |name, why| of(name, Some(name), why);
    if shape.clients == 0 {
        return of("unknown", None, "no client operation".into());
    }
    let has = |f: &str| shape.fs.iter().any(|x| x == f);
    if shape.txns > 0 && !shape.sends_or_polls {
        return transactional(&shape);
    }
    let any = |names: &[&str]| names.iter().any(|f| has(f));
    let all = |allowed: &[&str]| shape.fs.iter().all(|f| allowed.contains(&f.as_str()));
    let fs = shape.fs.join(", ");
    let is = format!("operations are {fs}");
    let register = shape.fs.iter().all(|f| f == "cas" || REGISTER.contains(&f.as_str()));
    match () {
        () if shape.sends_or_polls => {
            of("kafka", None, format!("{is}, of [:send k v] or [:poll {{k [[offset v] …]}}]"))
        }
        () if register && shape.writes_versions => same("versioned-register", "writes of [nil value]".into()),
        () if register && shape.cas_of_pairs => {
            let why = "a cas of [nil [old new]], but no write of [nil value]";
            of(
                "versioned-register",
                None,
                format!("{why}; --model versioned-register or cas-register says which it is"),
            )
        }
        () if register && has("cas") => same("cas-register", is),
        () if register && shape.reads_set && has("write") => {
            of("comments", None, "writes of values, and reads that return sets".into())
        }
        () if register && shape.reads_collection && has("write") => {
            // A list may as well be a version and a value.
            let asked = "--checker comments judges them if each read shows all that was written";
            of("unknown", None, format!("writes of values, and reads that return lists; {asked}"))
        }
        () if register && !any(&["write", "w"]) && shape.reads_map => {
            of("bank", None, "reads of a map of balances".into())
        }
        () if register && !any(&["write", "w"]) => {
            of("register", None, format!("{is}, which says nothing of what is read"))
        }
        () if register => same("register", is),
        () if has("transfer") || (has("read") && shape.reads_map) => {
            of("bank", None, "transfers, or reads of a map of balances".into())
        }
        () if has("credit") || has("debit") => of("bank-credit-debit", None, is),
        () if any(&INSERTS) || any(&REMOVES) => {
            let more = "no order is assumed; --model unordered-queue, fifo-queue, stack or priority-queue claims more";
            of("queue", None, format!("{is}; {more}"))
        }
        () if has("send") || has("poll") => of("log", None, is),
        () if any(&LOCKS) => lock(&shape, is),
        () if has("generate") => of("unique-ids", None, is),
        () if has("get") && has("append") => of("kv-append", Some("map"), is),
        () if has("get") && any(&["put", "delete", "cas"]) => same("map", is),
        () if has("append") && shape.gives_offsets && all(&["append", "read"]) => {
            let dense = "--model log claims that offsets count from 0 without gaps";
            of("log", None, format!("appends that give offsets, and reads; {dense}"))
        }
        () if has("append") && shape.reads_somewhere && all(&["append", "read"]) => {
            of("log", None, "appends, and reads at some place; --model log claims offsets that count from 0".into())
        }
        () if has("append") && shape.reads_collection && all(&["append", "read"]) => {
            same("append-list", "appends, and reads that return lists".into())
        }
        () if has("broadcast") => of("broadcast", None, is),
        () if any(&["write-set", "add-set"]) && shape.reads_collection => {
            of("set", None, "adds to a set, and reads that return many".into())
        }
        () if has("add") && (shape.reads_collection || any(&["contains", "contains?", "member"])) => {
            of("set", None, "adds, and reads that return many; --model set claims that it is linearizable".into())
        }
        () if (has("add") || any(&COUNTS)) && shape.reads_scalar => {
            let begins = "it is taken to begin at 0, --initial says otherwise; --model counter claims linearizability";
            of("counter", None, format!("adds, and reads of a number; {begins}"))
        }
        () if has("add") => of("set", None, "adds, and no read that returned".into()),
        () if has("inc") && all(&["inc", "read", "read-at"]) => of("monotonic", None, is),
        () if all(&["insert"]) => of("adya-g2", None, "inserts alone".into()),
        () => of("unknown", None, is),
    }
}

/// Locks of all kinds bear the same names.
fn lock(shape: &Shape, is: String) -> Workload {
    let of = |name, model, why| Workload { name, why: format!("{is}; {why}"), model };
    let others = "--model reentrant-mutex, fenced-mutex, semaphore or lease claims another";
    match () {
        () if shape.names_ttl => of("lease", Some("lease"), "values name a time to live".to_string()),
        () if shape.names_permits => {
            of("semaphore", None, "values name permits (--model semaphore --initial N, with how many there are)".into())
        }
        () if shape.names_token => of("fenced-mutex", Some("fenced-mutex"), "values name fencing tokens".into()),
        () if shape.acquires_again && shape.releases_others => {
            let why = "a process acquires again what it has not released, and one releases what it has not acquired";
            of("mutex", None, format!("{why}, so whose it is is not clear; --model mutex or reentrant-mutex says it"))
        }
        () if shape.acquires_again => {
            let again = "a process acquires again what it has not released";
            of("reentrant-mutex", Some("reentrant-mutex"), format!("{again}, so a lock that allows it is assumed"))
        }
        () => of("mutex", Some("mutex"), format!("one lock without owners is assumed, {others}")),
    }
}

fn transactional(shape: &Shape) -> Workload {
    let has = |f: &str| shape.mops.iter().any(|x| x == f);
    // What transactions promise is for the isolation checker; `--model multi-register` asks for strict serializability by
    // search.
    let of = |name, why: &str| Workload { name, why: why.into(), model: None };
    match () {
        () if has("append") => of("list-append", "transactions append to lists and read them"),
        () if has("w") || has("write") => of("rw-register", "transactions read and write registers"),
        () if shape.mop_reads_list => of("list-append", "transactions read lists"),
        () if has("r") || has("read") => of("rw-register", "transactions read registers"),
        () => of("txn", "transactions"),
    }
}

/// By process: did it acquire last, and how many of its acquisitions has it not released?
type Holds = HashMap<i64, (bool, u64)>;

fn shape(history: &History) -> Shape {
    let mut shape = Shape::default();
    let mut seen = vec![false; history.functions().len() + 1];
    let mut seen_mops = vec![false; history.functions().len()];
    let mut holds: Holds = HashMap::new();
    for op in history.clients() {
        shape.clients += 1;
        let code = op.f_code().map_or(seen.len() - 1, usize::from);
        if !std::mem::replace(&mut seen[code], true) {
            shape.fs.push(op.f().unwrap_or("nil").to_string());
        }
        if let Some(txn) = op.txn() {
            shape.txns += 1;
            for mop in txn.iter() {
                if !std::mem::replace(&mut seen_mops[usize::from(mop.f)], true) {
                    shape.mops.push(op.mop_name(mop.f).to_string());
                }
                shape.mop_reads_list |= matches!(mop.value, ValueRef::List(_));
            }
            shape.sends_or_polls |= op.f().is_some_and(is_log) && txn.iter().any(|mop| op.mop_name(mop.f) == "send");
            continue;
        }
        if op.f().is_some_and(is_log) && !shape.sends_or_polls {
            let heads = ["[:poll", "[:send", "[\"poll\"", "[\"send\""];
            let is = |item: Scalar| match item {
                Scalar::Text(text) => heads.iter().any(|head| op.text(text).starts_with(head)),
                _ => false,
            };
            let values = [op.input(), op.output()];
            shape.sends_or_polls = values.iter().any(|value| value.elements().is_some_and(|list| list.iter().any(is)));
        }
        look_closer(history, &op, &mut shape, &mut holds);
        if op.status() == Status::Ok
            && matches!(op.f(), Some("read" | "r" | "read-all" | "read-set-all" | "read-set" | "value"))
        {
            match op.output() {
                ValueRef::List(_) => shape.reads_collection = true,
                ValueRef::Set(_) => (shape.reads_collection, shape.reads_set) = (true, true),
                ValueRef::Text(t) => {
                    let text = history.texts().get(t);
                    shape.reads_map |= text.starts_with('{');
                    shape.reads_collection |= text.starts_with("#{");
                    shape.reads_set |= text.starts_with("#{");
                    shape.reads_scalar |= !text.starts_with('{') && !text.starts_with('#');
                }
                ValueRef::Int(_) => shape.reads_scalar = true,
                ValueRef::Nil => {}
            }
        }
    }
    shape
}

fn is_log(f: &str) -> bool {
    matches!(f, "send" | "poll" | "txn")
}

/// What tells objects apart whose operations bear the same names.
fn look_closer(history: &History, op: &OpRef<'_>, shape: &mut Shape, holds: &mut Holds) {
    let Some(f) = op.f() else { return };
    if REGISTER.contains(&f) {
        let pair = op.input().elements().filter(|list| f != "read" && list.len() == 2);
        shape.writes_versions |= pair.is_some_and(|list| list.get(0) == Scalar::Nil);
        shape.reads_somewhere |= matches!(f, "read" | "r") && !op.input().is_nil();
    } else if f == "cas" {
        // From nil to a pair; a versioned register's cas bears no version and a pair.
        let parts = op.input().elements().filter(|list| list.len() == 2 && list.get(0) == Scalar::Nil);
        let Some(Scalar::Text(change)) = parts.map(|list| list.get(1)) else { return };
        let change = elench_formats::edn::parse(history.texts().get(change));
        shape.cas_of_pairs |= change.is_ok_and(|change| change.as_vector().is_some_and(|pair| pair.len() == 2));
    } else if f == "append" {
        let (told, ok) = (op.output(), op.status() == Status::Ok);
        shape.gives_offsets |= ok && matches!(told, ValueRef::Int(_)) && told != op.input();
    } else if LOCKS.contains(&f) {
        for value in [op.input(), op.output()] {
            let ValueRef::Text(t) = value else { continue };
            let Ok(value) = elench_formats::edn::parse(history.texts().get(t)) else { continue };
            let names = |names: &[&str]| names.iter().any(|name| value.get(name).is_some());
            shape.names_ttl |=
                names(&["ttl", "ttl-ms", "ttl_ms", "duration", "duration-ms", "duration_ms", "ttl-s", "ttl_s"]);
            shape.names_token |= names(&["fence", "token", "fencing-token", "fencing_token"]);
            shape.names_permits |= names(&["permits"]);
        }
        if let Some(process) = op.process() {
            let acquires = matches!(f, "acquire" | "lock");
            let ok = acquires && op.status() == Status::Ok;
            let (held, times) = holds.entry(process).or_default();
            shape.acquires_again |= ok && *held;
            *held = ok || (acquires && *held);
            if op.status() != Status::Fail && acquires {
                *times += 1;
            } else if op.status() != Status::Fail && matches!(f, "release" | "unlock") {
                shape.releases_others |= *times == 0;
                *times = times.saturating_sub(1);
            }
        }
    }
}

/// Does any operation bear a key of its own?
pub fn is_keyed(history: &History) -> bool {
    history.chunks().iter().any(|c| (0..c.len()).any(|i| c.key().get(i) != Scalar::Nil))
}
