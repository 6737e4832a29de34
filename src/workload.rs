//! What kind of run is this? A guess from the operations, with its reason, so that the right checkers can be picked.

use elench_formats::History;
use elench_formats::columns::{Scalar, ValueRef};
use elench_formats::history::Status;

/// What a history's operations look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// A name of the field: `cas-register`, `list-append`, …; `unknown` where nothing fits.
    pub name: &'static str,
    /// Why, a clause.
    pub why: String,
}

/// Functions and shapes that occur, gathered in one pass.
#[derive(Default)]
struct Shape {
    fs: Vec<String>,
    mops: Vec<String>,
    txns: u64,
    /// A read whose output is a list or set, a map, an integer.
    reads_collection: bool,
    reads_map: bool,
    reads_scalar: bool,
    /// A transaction's read that returned a list.
    mop_reads_list: bool,
    clients: u64,
}

/// Guesses the workload. One pass, O(n).
pub fn guess(history: &History) -> Workload {
    let shape = shape(history);
    let of = |name, why: String| Workload { name, why };
    if shape.clients == 0 {
        return of("unknown", "no client operation".into());
    }
    if shape.txns > 0 {
        return transactional(&shape);
    }
    let has = |f: &str| shape.fs.iter().any(|x| x == f);
    let all = |allowed: &[&str]| shape.fs.iter().all(|f| allowed.contains(&f.as_str()));
    let fs = shape.fs.join(", ");
    match () {
        () if all(&["read", "write", "cas", "r", "w"]) && has("cas") => {
            of("cas-register", format!("operations are {fs}"))
        }
        () if all(&["read", "write", "r", "w"]) && shape.reads_collection && has("write") => {
            of("comments", "writes of values, and reads that return many".into())
        }
        () if all(&["read", "write", "r", "w"]) => of("register", format!("operations are {fs}")),
        () if has("transfer") || (has("read") && shape.reads_map) => {
            of("bank", "transfers, or reads of a map of balances".into())
        }
        () if has("credit") || has("debit") => of("bank-credit-debit", format!("operations are {fs}")),
        () if has("enqueue") || has("dequeue") || has("drain") => of("queue", format!("operations are {fs}")),
        () if has("send") || has("poll") => of("log", format!("operations are {fs}")),
        () if has("acquire") || has("release") => of("mutex", format!("operations are {fs}")),
        () if has("generate") => of("unique-ids", format!("operations are {fs}")),
        () if has("get") && (has("put") || has("append")) => of("kv-append", format!("operations are {fs}")),
        () if has("add") && shape.reads_collection => of("set", "adds, and reads that return many".into()),
        () if (has("add") || has("inc") || has("dec")) && shape.reads_scalar => {
            of("counter", "adds, and reads of a number".into())
        }
        () if has("add") => of("set", "adds, and no read that returned".into()),
        () if has("inc") => of("monotonic", format!("operations are {fs}")),
        () => of("unknown", format!("operations are {fs}")),
    }
}

fn transactional(shape: &Shape) -> Workload {
    let has = |f: &str| shape.mops.iter().any(|x| x == f);
    let of = |name, why: &str| Workload { name, why: why.into() };
    match () {
        () if has("append") => of("list-append", "transactions append to lists and read them"),
        () if has("w") || has("write") => of("rw-register", "transactions read and write registers"),
        () if shape.mop_reads_list => of("list-append", "transactions read lists"),
        () if has("r") || has("read") => of("rw-register", "transactions read registers"),
        () => of("txn", "transactions"),
    }
}

fn shape(history: &History) -> Shape {
    let mut shape = Shape::default();
    let mut seen = vec![false; history.functions().len() + 1];
    let mut seen_mops = vec![false; history.functions().len()];
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
        } else if op.status() == Status::Ok && matches!(op.f(), Some("read" | "r")) {
            match op.output() {
                ValueRef::List(_) | ValueRef::Set(_) => shape.reads_collection = true,
                ValueRef::Text(t) => {
                    let text = history.texts().get(t);
                    shape.reads_map |= text.starts_with('{');
                    shape.reads_collection |= text.starts_with("#{");
                    shape.reads_scalar |= !text.starts_with('{') && !text.starts_with('#');
                }
                ValueRef::Int(_) => shape.reads_scalar = true,
                ValueRef::Nil => {}
            }
        }
    }
    shape
}

/// Does any operation bear a key of its own?
pub fn is_keyed(history: &History) -> bool {
    history.chunks().iter().any(|c| (0..c.len()).any(|i| c.key().get(i) != Scalar::Nil))
}
