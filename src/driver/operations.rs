//! What clients ask for: a stream of operations from a seed.
//!
//! Values that are written are unique, from counters that all clients share; which client wrote which may differ from run to run,
//! what a client asks for does not. A key of a list is used for so many appends and then makes way for a new one, so that lists
//! stay short however long a run is.

use std::sync::atomic::{AtomicU64, Ordering};

use elench_formats::Value;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What a workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Transactions that append to lists and read them.
    ListAppend,
    /// Transactions that write registers and read them.
    RwRegister,
    /// Transfers between accounts, and reads of all.
    Bank,
    /// Reads and writes of single registers.
    Register,
    /// With compare-and-set.
    CasRegister,
    /// Adds to a set, and reads of it.
    Set,
    /// Enqueues and dequeues.
    Queue,
    /// A lock.
    Lock,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::ListAppend,
        Kind::RwRegister,
        Kind::Bank,
        Kind::Register,
        Kind::CasRegister,
        Kind::Set,
        Kind::Queue,
        Kind::Lock,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ListAppend => "list-append",
            Kind::RwRegister => "rw-register",
            Kind::Bank => "bank",
            Kind::Register => "register",
            Kind::CasRegister => "cas-register",
            Kind::Set => "set",
            Kind::Queue => "queue",
            Kind::Lock => "lock",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// A part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mop {
    /// Reads a key.
    Read(u64),
    /// Appends to a key's list, or writes its register.
    Write(u64, i64),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A transaction of lists.
    Lists(Vec<Mop>),
    /// A transaction of registers.
    Registers(Vec<Mop>),
    /// Moves money.
    Transfer {
        /// From this account.
        from: u64,
        /// To this one.
        to: u64,
        /// So much.
        amount: i64,
    },
    /// Reads all accounts.
    Balances,
    /// Reads a register.
    Read(u64),
    /// Writes it.
    Write(u64, i64),
    /// Writes it if it holds a value.
    Cas(u64, i64, i64),
    /// Adds to the set.
    Add(i64),
    /// Reads the set.
    ReadSet,
    /// Enqueues.
    Enqueue(i64),
    /// Dequeues.
    Dequeue,
    /// Dequeues all there is.
    Drain,
    /// Takes the lock.
    Acquire,
    /// Gives it back.
    Release,
}

fn pair(key: u64, value: Value) -> Value {
    Value::Vector(vec![Value::Int(key as i64), value])
}

impl Operation {
    /// The function's name in a history.
    pub fn f(&self) -> &'static str {
        match self {
            Operation::Lists(_) | Operation::Registers(_) => "txn",
            Operation::Transfer { .. } => "transfer",
            Operation::Balances | Operation::Read(_) | Operation::ReadSet => "read",
            Operation::Write(..) => "write",
            Operation::Cas(..) => "cas",
            Operation::Add(_) => "add",
            Operation::Enqueue(_) => "enqueue",
            Operation::Dequeue => "dequeue",
            Operation::Drain => "drain",
            Operation::Acquire => "acquire",
            Operation::Release => "release",
        }
    }

    /// What its invocation says.
    pub fn value(&self) -> Value {
        match self {
            Operation::Lists(mops) => transaction("append", mops, &[]),
            Operation::Registers(mops) => transaction("w", mops, &[]),
            Operation::Transfer { from, to, amount } => Value::map(vec![
                (Value::keyword("from"), Value::Int(*from as i64)),
                (Value::keyword("to"), Value::Int(*to as i64)),
                (Value::keyword("amount"), Value::Int(*amount)),
            ]),
            Operation::Read(key) => pair(*key, Value::Nil),
            Operation::Write(key, value) => pair(*key, Value::Int(*value)),
            Operation::Cas(key, old, new) => pair(*key, Value::Vector(vec![Value::Int(*old), Value::Int(*new)])),
            Operation::Add(value) | Operation::Enqueue(value) => Value::Int(*value),
            _ => Value::Nil,
        }
    }
}

/// A transaction as histories write it, with what its reads returned, in order; those without an answer returned nothing.
pub fn transaction(write: &str, mops: &[Mop], reads: &[Value]) -> Value {
    let mut reads = reads.iter();
    let part = |mop: &Mop| match mop {
        Mop::Read(key) => Value::Vector(vec![
            Value::keyword("r"),
            Value::Int(*key as i64),
            reads.next().cloned().unwrap_or(Value::Nil),
        ]),
        Mop::Write(key, value) => {
            Value::Vector(vec![Value::keyword(write), Value::Int(*key as i64), Value::Int(*value)])
        }
    };
    Value::Vector(mops.iter().map(part).collect())
}

/// A register's answer, as histories of many registers write it.
pub fn keyed(key: u64, value: Value) -> Value {
    pair(key, value)
}

/// Appends to one key before another takes its place.
const APPENDS: u64 = 64;
/// Parts of a transaction at most.
const PARTS: u64 = 4;
/// Values that a compare-and-set register takes: few, so that some succeed.
const FEW: u64 = 5;

/// Where operations come from.
#[derive(Debug)]
pub struct Source {
    kind: Kind,
    keys: u64,
    /// Summed weights of the keys, the last one 1.
    skew: Vec<f64>,
    next_value: AtomicU64,
    /// Appends to each place; its key is `place + keys * (appends / APPENDS)`.
    appends: Vec<AtomicU64>,
}

/// One client's state.
#[derive(Debug)]
pub struct Random {
    generator: Xoshiro256PlusPlus,
    holds: bool,
}

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.generator.next_u64()) * u128::from(n)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Source {
    /// Of a kind, over keys with a skew (Zipf's exponent).
    pub fn new(kind: Kind, keys: u64, skew: f64) -> Source {
        let keys = keys.clamp(1, 1 << 20);
        let weights: Vec<f64> = (0..keys).map(|k| 1.0 / ((k + 1) as f64).powf(skew.max(0.0))).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let skew = weights.iter().map(|w| {
            sum += w / total;
            sum
        });
        Source {
            kind,
            keys,
            skew: skew.collect(),
            next_value: AtomicU64::new(1),
            appends: (0..keys).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The state of one client.
    pub fn random(&self, seed: u64, client: u64) -> Random {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ client.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Random { generator: Xoshiro256PlusPlus::seed_from_u64(seed), holds: false }
    }

    fn key(&self, random: &mut Random) -> u64 {
        let at = random.unit();
        (self.skew.partition_point(|sum| *sum < at) as u64).min(self.keys - 1)
    }

    fn value(&self) -> i64 {
        self.next_value.fetch_add(1, Ordering::Relaxed) as i64
    }

    /// What a client asks for next.
    pub fn next(&self, random: &mut Random) -> Operation {
        match self.kind {
            Kind::ListAppend => Operation::Lists(self.mops(random, true)),
            Kind::RwRegister => Operation::Registers(self.mops(random, false)),
            Kind::Bank if random.below(2) == 0 || self.keys < 2 => Operation::Balances,
            Kind::Bank => {
                let from = random.below(self.keys);
                let to = (from + 1 + random.below(self.keys - 1)) % self.keys;
                Operation::Transfer { from, to, amount: 1 + random.below(5) as i64 }
            }
            Kind::Register if random.below(2) == 0 => Operation::Read(self.key(random)),
            Kind::Register => Operation::Write(self.key(random), self.value()),
            Kind::CasRegister => {
                let (key, a, b) = (self.key(random), random.below(FEW) as i64, random.below(FEW) as i64);
                match random.below(3) {
                    0 => Operation::Read(key),
                    1 => Operation::Write(key, a),
                    _ => Operation::Cas(key, a, b),
                }
            }
            Kind::Set if random.below(20) == 0 => Operation::ReadSet,
            Kind::Set => Operation::Add(self.value()),
            Kind::Queue if random.below(2) == 0 => Operation::Dequeue,
            Kind::Queue => Operation::Enqueue(self.value()),
            Kind::Lock => {
                random.holds = !random.holds;
                if random.holds { Operation::Acquire } else { Operation::Release }
            }
        }
    }

    fn mops(&self, random: &mut Random, lists: bool) -> Vec<Mop> {
        let n = 1 + random.below(PARTS);
        let part = |_| {
            let place = self.key(random);
            let count = &self.appends[place as usize];
            let key = |appends: u64| if lists { place + self.keys * (appends / APPENDS) } else { place };
            if random.below(2) == 0 {
                return Mop::Read(key(count.load(Ordering::Relaxed)));
            }
            Mop::Write(key(count.fetch_add(1, Ordering::Relaxed)), self.value())
        };
        (0..n).map(part).collect()
    }

    /// What is asked for when the load is over.
    pub fn last(&self) -> Vec<Operation> {
        match self.kind {
            Kind::Set => vec![Operation::ReadSet],
            Kind::Queue => vec![Operation::Drain],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(kind: Kind, seed: u64) -> Vec<Operation> {
        let source = Source::new(kind, 7, 0.9);
        let mut random = source.random(seed, 3);
        (0..500).map(|_| source.next(&mut random)).collect()
    }

    #[test]
    fn a_seed_asks_for_the_same_operations_and_another_for_others() {
        for kind in Kind::ALL {
            assert_eq!(some(kind, 1), some(kind, 1), "{}", kind.name());
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_ne!(some(Kind::ListAppend, 1), some(Kind::ListAppend, 2));
    }

    #[test]
    fn values_are_written_once_and_keys_of_lists_make_way() {
        let mut seen = std::collections::HashSet::new();
        let mut keys = std::collections::HashMap::new();
        for operation in some(Kind::ListAppend, 5) {
            let Operation::Lists(mops) = operation else { panic!() };
            for mop in mops {
                if let Mop::Write(key, value) = mop {
                    assert!(seen.insert(value));
                    *keys.entry(key).or_insert(0) += 1;
                }
            }
        }
        assert!(keys.values().all(|n| *n <= APPENDS) && keys.len() > 7);
    }

    #[test]
    fn a_transaction_is_written_as_histories_write_it() {
        let mops = [Mop::Read(1), Mop::Write(2, 9), Mop::Read(3)];
        let value = transaction("append", &mops, &[Value::Vector(vec![Value::Int(4)])]);
        assert_eq!(value.to_edn(), "[[:r 1 [4]] [:append 2 9] [:r 3 nil]]");
    }
}
