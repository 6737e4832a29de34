//! Many registers, read and written by transactions, each of which happens at once: strict serializability, decided by
//! search.
//!
//! Registers that no transactions connect know nothing of each other, so that a history is divided into what they connect
//! ([`MultiRegister::of`]). A state lists the registers that differ from what they held at first. As in a plain register, a value that no
//! read sees any more is as good as any other such value.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::collection::Names;
use super::{Model, Value};

/// One step of a transaction, on the register of the first value's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MultiOp {
    /// A read that returned this; none when what it returned is not known.
    Read(Value, Option<Value>),
    /// A write.
    Write(Value, Value),
}

use MultiOp::{Read, Write};

impl MultiOp {
    fn key(&self) -> Value {
        match *self {
            Read(key, _) | Write(key, _) => key,
        }
    }
}

/// Registers that a person is shown at most.
const SHOWN: usize = 12;

/// A transaction.
pub type Transaction = Arc<[MultiOp]>;

/// What a transaction finds: registers that it reads before it writes them, and what they held.
fn needs(txn: &[MultiOp]) -> impl Iterator<Item = (Value, Value)> + '_ {
    txn.iter().enumerate().filter_map(|(i, op)| match *op {
        Read(key, Some(value)) if !txn[..i].iter().any(|op| matches!(*op, Write(k, _) if k == key)) => {
            Some((key, value))
        }
        _ => None,
    })
}

/// What it leaves in the registers that it writes.
fn leaves(txn: &[MultiOp]) -> impl Iterator<Item = (Value, Value)> + '_ {
    txn.iter().enumerate().filter_map(|(i, op)| match *op {
        Write(key, value) if !txn[i + 1..].iter().any(|op| matches!(*op, Write(k, _) if k == key)) => {
            Some((key, value))
        }
        _ => None,
    })
}

/// Values that no read of a register sees any more are the same to it. By register and value: when the last transaction
/// returns that finds it.
type LastFound = HashMap<(Value, Value), u64, FixedState>;

/// The model.
#[derive(Clone, Debug, Default)]
pub struct MultiRegister {
    initial: Arc<HashMap<Value, Value>>,
    others: Option<Value>,
    names: Names,
    keys: Names,
    /// Of each register, a name for those that transactions connect it with.
    groups: Arc<HashMap<Value, u64>>,
    last_found: LastFound,
}

impl MultiRegister {
    /// Registers of which some hold these values at first, and all others this one.
    pub fn new(initial: impl IntoIterator<Item = (Value, Value)>, others: Value) -> Self {
        let initial: HashMap<Value, Value> = initial.into_iter().collect();
        MultiRegister { initial: Arc::new(initial), others: Some(others), ..MultiRegister::default() }
    }

    /// Divides the registers by what these transactions, which are all that there will be, connect.
    #[must_use]
    pub fn of<'a>(mut self, transactions: impl IntoIterator<Item = &'a Transaction>) -> Self {
        let mut leaders: HashMap<Value, Value> = HashMap::new();
        for txn in transactions {
            let mut first = None;
            for key in txn.iter().map(MultiOp::key) {
                leaders.entry(key).or_insert(key);
                let leader = leader(&mut leaders, key);
                let first = *first.get_or_insert(leader);
                leaders.insert(leader, first);
            }
        }
        let keys: Vec<Value> = leaders.keys().copied().collect();
        self.groups = Arc::new(keys.into_iter().map(|key| (key, leader(&mut leaders, key).0 as u64)).collect());
        self
    }

    /// Speaks of the value `n` as `values[n]` and of the register `n` as `keys[n]`.
    #[must_use]
    pub fn with_names(mut self, values: Option<Arc<[Box<str>]>>, keys: Option<Arc<[Box<str>]>>) -> Self {
        (self.names, self.keys) = (Names(values), Names(keys));
        self
    }

    fn at_first(&self, key: Value) -> Value {
        self.initial.get(&key).copied().or(self.others).unwrap_or(Value::NIL)
    }

    fn unseen_after(&self, register: (Value, Value), now: u64) -> bool {
        self.last_found.get(&register).is_none_or(|&last| last <= now)
    }

    fn show(&self, value: Value) -> String {
        match value {
            Value::UNSEEN => "a value that nobody reads any more".to_string(),
            value => self.names.show(value),
        }
    }
}

/// The name of a register's group so far; the way to it is halved.
fn leader(leaders: &mut HashMap<Value, Value>, mut key: Value) -> Value {
    while let Some(&next) = leaders.get(&key).filter(|next| **next != key) {
        let over = leaders.get(&next).copied().unwrap_or(next);
        leaders.insert(key, over);
        key = over;
    }
    key
}

impl Model for MultiRegister {
    type Op = Transaction;
    type State = Vec<(Value, Value)>;

    fn init(&self) -> Vec<(Value, Value)> {
        Vec::new()
    }

    fn step(&self, state: &Vec<(Value, Value)>, txn: &Transaction) -> Option<Vec<(Value, Value)>> {
        let mut state = state.clone();
        for op in txn.iter() {
            let place = state.binary_search_by_key(&op.key(), |(key, _)| *key);
            match (*op, place) {
                (Read(_, None), _) => {}
                (Read(key, Some(seen)), place) => {
                    let held = place.map_or_else(|_| self.at_first(key), |i| state[i].1);
                    if held != seen {
                        return None;
                    }
                }
                (Write(key, value), place) => match (place, value == self.at_first(key)) {
                    (Ok(i), true) => drop(state.remove(i)),
                    (Ok(i), false) => state[i].1 = value,
                    (Err(_), true) => {}
                    (Err(i), false) => state.insert(i, (key, value)),
                },
            }
        }
        Some(state)
    }

    fn kind(&self, _txn: &Transaction) -> &'static str {
        "txn"
    }

    fn show_op(&self, txn: &Transaction) -> String {
        let show = |op: &MultiOp| match *op {
            Read(key, None) => format!("reads {}", self.keys.show(key)),
            Read(key, Some(value)) => format!("reads {} in {}", self.show(value), self.keys.show(key)),
            Write(key, value) => format!("writes {} to {}", self.show(value), self.keys.show(key)),
        };
        format!("transaction that {}", txn.iter().map(show).collect::<Vec<_>>().join(", "))
    }

    fn show_state(&self, state: &Vec<(Value, Value)>) -> String {
        if state.is_empty() {
            return "as at first".to_string();
        }
        let show = |(key, value): &(Value, Value)| format!("{} in {}", self.show(*value), self.keys.show(*key));
        let shown = state.iter().take(SHOWN).map(show).collect::<Vec<_>>().join(", ");
        if state.len() > SHOWN { format!("{shown}, and {} more", state.len() - SHOWN) } else { shown }
    }

    fn observes(&self, txn: &Transaction) -> bool {
        txn.iter().all(|op| matches!(op, Read(..)))
    }

    /// A transaction that finds nothing and writes all the registers that there are. It must read what it wrote.
    fn overwrites(&self, txn: &Transaction) -> bool {
        !self.groups.is_empty()
            && leaves(txn).count() == self.groups.len()
            && needs(txn).next().is_none()
            && self.step(&self.init(), txn).is_some()
    }

    fn foresee(&mut self, ops: &[(&Transaction, u64)]) {
        self.last_found.clear();
        for &(txn, ret) in ops {
            // A transaction of unknown outcome that only reads says nothing: the search leaves it out.
            if ret == u64::MAX && self.observes(txn) {
                continue;
            }
            for register in needs(txn) {
                let last = self.last_found.entry(register).or_default();
                *last = ret.max(*last);
            }
        }
    }

    fn settle(&self, state: &Vec<(Value, Value)>, now: u64) -> Option<Vec<(Value, Value)>> {
        let unseen = |&(key, value): &(Value, Value)| value != Value::UNSEEN && self.unseen_after((key, value), now);
        if !state.iter().any(unseen) {
            return None;
        }
        let settled = |entry: &(Value, Value)| if unseen(entry) { (entry.0, Value::UNSEEN) } else { *entry };
        Some(state.iter().map(settled).collect())
    }

    /// What it leaves is found by nobody, so that each of its registers is written before it is read, if it is read
    /// again.
    fn spent(&self, txn: &Transaction, now: u64) -> bool {
        leaves(txn).all(|register| self.unseen_after(register, now))
    }

    /// A transaction goes only together with all that find anything that it left. Then whoever wrote what a remaining one found
    /// last before it remains too, and everything between that wrote the register is gone or was not there.
    fn leave_out_safely(&self, ops: &[&Transaction], left_out: &mut [bool]) {
        let mut finders: HashMap<(Value, Value), Vec<usize>> = HashMap::new();
        for (i, txn) in ops.iter().enumerate() {
            for register in needs(txn) {
                finders.entry(register).or_default().push(i);
            }
        }
        let mut todo: Vec<usize> = (0..ops.len()).filter(|&i| left_out[i]).collect();
        while let Some(i) = todo.pop() {
            for j in leaves(ops[i]).filter_map(|register| finders.remove(&register)).flatten() {
                if !std::mem::replace(&mut left_out[j], true) {
                    todo.push(j);
                }
            }
        }
    }

    /// What transactions connect. One that touches no register belongs anywhere.
    fn part(&self, txn: &Transaction) -> Option<u64> {
        match txn.first() {
            Some(op) => self.groups.get(&op.key()).copied(),
            None => self.groups.values().min().copied(),
        }
    }

    fn supported(&self, ops: &[&Transaction]) -> bool {
        let left: HashSet<(Value, Value)> = ops.iter().flat_map(|txn| leaves(txn)).collect();
        ops.iter().all(|txn| needs(txn).all(|(key, value)| value == self.at_first(key) || left.contains(&(key, value))))
    }
}
