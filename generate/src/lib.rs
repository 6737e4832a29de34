//! What would clients of a correct system have seen? And of a system that is wrong in one known way?
//!
//! Clients call a simulated system. Each operation is invoked, takes effect at one point strictly within its lifetime
//! (on the state that all share, atomically), and completes; one heap orders the next event of every client, so events
//! come out in the order of simulated time, and the order of the points of effect is a witness that the history is
//! right: linearizable for registers, strictly serializable for transactions. Under snapshot isolation a transaction
//! has two points, its snapshot and its commit, and fails where another committed to a key that it writes in between.
//!
//! A [`Fault`] leaves the simulation as it is up to the moment at which the system goes wrong: it changes what one read
//! sees, or what one write does, where an argument says that no order of the operations explains the result (see
//! `fault.rs`, which gives the argument for each). Where a seed gives no such moment the next one is tried, before the
//! first event is handed out.
//!
//! O(log clients) an event. Memory: the open operations and the keys in use; nothing grows with the run. Every choice
//! comes from the seed, in integer arithmetic, so the same options give the same events on every machine (a Zipf skew,
//! whose weights are powers of floats, may differ where the platform's `pow` does).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod emit;
mod fault;
mod keys;
mod random;
mod simulation;
#[cfg(test)]
mod tests;

use elench_formats::event::EventBatch;
use elench_formats::{ReadError, Result};

use simulation::Simulation;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Reads and writes.
    Register,
    /// Reads, writes and compare-and-sets.
    CasRegister,
    /// Transactions that append to lists and read them.
    ListAppend,
    /// Transactions that write registers and read them.
    RwRegister,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 4] =
        [Workload::Register, Workload::CasRegister, Workload::ListAppend, Workload::RwRegister];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Register => "register",
            Workload::CasRegister => "cas-register",
            Workload::ListAppend => "list-append",
            Workload::RwRegister => "rw-register",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|w| w.name() == name)
    }

    /// Are its operations transactions?
    pub fn is_txn(self) -> bool {
        matches!(self, Workload::ListAppend | Workload::RwRegister)
    }

    /// The faults that a system under this workload can be given.
    pub fn faults(self) -> &'static [Fault] {
        match self {
            Workload::Register | Workload::CasRegister => &[Fault::StaleRead, Fault::LostWrite, Fault::DirtyFail],
            Workload::ListAppend => {
                &[Fault::LostUpdate, Fault::G0, Fault::G1a, Fault::G1b, Fault::GSingle, Fault::WriteSkew]
            }
            Workload::RwRegister => &[Fault::LostUpdate, Fault::G1a, Fault::GSingle],
        }
    }
}

/// How a system is wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read returns a value that was overwritten before the read began.
    StaleRead,
    /// An acknowledged write has no effect, and a later read shows it.
    LostWrite,
    /// A write that failed is read.
    DirtyFail,
    /// Two transactions read the same version of a key, and both write it.
    LostUpdate,
    /// Two transactions write two keys, in a different order each.
    G0,
    /// A transaction that failed is read.
    G1a,
    /// What a transaction wrote first, and then overwrote, is read.
    G1b,
    /// Read skew: a transaction sees one write of another, and misses one.
    GSingle,
    /// Two transactions each miss the write of the other (G2-item).
    WriteSkew,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 9] = [
        Fault::StaleRead,
        Fault::LostWrite,
        Fault::DirtyFail,
        Fault::LostUpdate,
        Fault::G0,
        Fault::G1a,
        Fault::G1b,
        Fault::GSingle,
        Fault::WriteSkew,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Fault::StaleRead => "stale-read",
            Fault::LostWrite => "lost-write",
            Fault::DirtyFail => "dirty-fail",
            Fault::LostUpdate => "lost-update",
            Fault::G0 => "g0",
            Fault::G1a => "g1a",
            Fault::G1b => "g1b",
            Fault::GSingle => "g-single",
            Fault::WriteSkew => "write-skew",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|f| f.name() == name)
    }
}

/// What is written to registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// 1, 2, 3, … on each key: no value twice. Transactions always write so.
    Unique,
    /// Any of `0..n`.
    Domain(u32),
}

/// What transactions are promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each takes effect at one point.
    Serial,
    /// Each reads a snapshot, and the first committer wins: under load there are write skews.
    Snapshot,
}

impl Isolation {
    /// Both of them.
    pub const ALL: [Isolation; 2] = [Isolation::Serial, Isolation::Snapshot];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Serial => "serial",
            Isolation::Snapshot => "snapshot",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Isolation> {
        Isolation::ALL.into_iter().find(|i| i.name() == name)
    }
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct GenOptions {
    /// What the clients do.
    pub workload: Workload,
    /// Number of client operations.
    pub ops: u64,
    /// Clients, each with at most one operation open.
    pub clients: u32,
    /// Where every choice comes from.
    pub seed: u64,
    /// Mean nanoseconds from invocation to completion; at least 16.
    pub mean_ns: u64,
    /// Mean time between the operations of a client, as a fraction of `mean_ns`.
    pub think: f64,
    /// Share of operations with an unknown outcome: half of them take effect, some of these long after they completed.
    /// The process of such an operation is replaced by `process + clients`.
    pub info: f64,
    /// Share of operations that fail and have no effect (beside those that fail for a reason: a cas that finds another
    /// value, a transaction that another one beat).
    pub fail: f64,
    /// Keys in use at a time.
    pub keys: u32,
    /// Exponent of the Zipf distribution by which keys are chosen; 0 means evenly.
    pub skew: f64,
    /// What is written to registers.
    pub values: Values,
    /// Least and most micro-operations of a transaction.
    pub mops: (u32, u32),
    /// Share of operations, or of micro-operations, that write.
    pub writes: f64,
    /// Share of operations that compare and set: of a cas-register only.
    pub cas: f64,
    /// A key that was written so often gives way to a new one; 0 means never. What a list holds, every read returns.
    pub writes_per_key: u32,
    /// Registers with keys, whose values are `[k v]`.
    pub independent: bool,
    /// Nanoseconds between events of a nemesis that starts and stops something harmless; 0 means no nemesis.
    pub nemesis_ns: u64,
    /// What transactions are promised.
    pub isolation: Isolation,
    /// How the system is wrong, once; `None` means never.
    pub fault: Option<Fault>,
    /// The share of operations before which it is not yet wrong.
    pub fault_after: f64,
}

impl GenOptions {
    /// What is usual for a workload: 10,000 operations of 10 clients, nothing unknown, nothing wrong.
    pub fn new(workload: Workload) -> GenOptions {
        let txn = workload.is_txn();
        GenOptions {
            workload,
            ops: 10_000,
            clients: 10,
            seed: 0,
            mean_ns: 1_000_000,
            think: 0.1,
            info: 0.0,
            fail: 0.0,
            keys: if txn { 10 } else { 1 },
            skew: 0.0,
            values: Values::Unique,
            mops: (1, 4),
            writes: if workload == Workload::CasRegister { 1.0 / 3.0 } else { 0.5 },
            cas: if workload == Workload::CasRegister { 1.0 / 3.0 } else { 0.0 },
            writes_per_key: if txn { 32 } else { 0 },
            independent: false,
            nemesis_ns: 0,
            isolation: Isolation::Serial,
            fault: None,
            fault_after: 0.75,
        }
    }

    fn check(&self) -> Result<()> {
        self.check_sizes()?;
        self.check_shares()?;
        self.check_workload()?;
        self.check_fault()
    }

    fn check_sizes(&self) -> Result<()> {
        let (low, high) = self.mops;
        let lasts = u128::from(self.ops) * u128::from(self.mean_ns.max(self.nemesis_ns));
        refuse(self.clients == 0 || self.clients > 1 << 20, "the number of clients is not within 1 and 2^20", "")?;
        refuse(self.keys == 0 || self.keys > 1 << 24, "the number of keys is not within 1 and 2^24", "")?;
        refuse(low == 0 || low > high || high > 1024, "transactions need 1 to 1024 micro-operations", "")?;
        refuse(self.mean_ns < 16, "operations last less than 16 ns in the mean", "they need time to overlap")?;
        refuse(lasts >= 1 << 58, "the run would last longer than nanoseconds in 64 bits can say", "shorten operations")
    }

    fn check_shares(&self) -> Result<()> {
        let shares = [self.info, self.fail, self.writes, self.cas, self.info + self.fail, self.writes + self.cas];
        let unit = |x: &f64| (0.0..=1.0).contains(x);
        refuse(
            !shares.iter().all(unit),
            "a share, or the sum of two that exclude each other, is not within 0 and 1",
            "",
        )?;
        refuse(!unit(&self.fault_after), "the share of operations before the fault is not within 0 and 1", "")?;
        refuse(!(0.0..=10.0).contains(&self.skew), "the skew of keys is not within 0 and 10", "")?;
        refuse(!(0.0..=1000.0).contains(&self.think), "the think time is not within 0 and 1000 durations", "")
    }

    fn check_workload(&self) -> Result<()> {
        let txn = self.workload.is_txn();
        let hint = "its values are unique, so that each read says whom it read from";
        refuse(txn && self.values != Values::Unique, "a transactional workload has no domain of values", hint)?;
        refuse(self.values == Values::Domain(0), "the domain of values is empty", "")?;
        refuse(txn && self.independent, "transactions have keys of their own", "leave out independent")?;
        let bare = !txn && !self.independent;
        refuse(bare && self.keys > 1, "a bare register has one key", "ask for independent ones")?;
        refuse(
            bare && self.writes_per_key > 0,
            "a bare register cannot give way to a new one",
            "ask for independent ones",
        )?;
        let cas = self.workload != Workload::CasRegister && self.cas > 0.0;
        refuse(cas, "only a cas-register has compare-and-sets", "choose the workload cas-register")?;
        let snapshot = !txn && self.isolation != Isolation::Serial;
        refuse(snapshot, "registers have no isolation level", "choose list-append or rw-register")
    }

    fn check_fault(&self) -> Result<()> {
        let Some(fault) = self.fault else { return Ok(()) };
        if !self.workload.faults().contains(&fault) {
            let names: Vec<_> = self.workload.faults().iter().map(|f| f.name()).collect();
            let (fault, workload) = (fault.name(), self.workload.name());
            return Err(ReadError::new(format!("the fault {fault} is none of the workload {workload}"))
                .hint(format!("it has {}", names.join(", "))));
        }
        let snapshot = self.isolation != Isolation::Serial;
        refuse(snapshot, "a fault is put into a serial system only", "snapshot isolation has anomalies of its own")?;
        let hint = "else another write of the same value may explain the read";
        refuse(self.values != Values::Unique, "a fault needs unique values", hint)
    }
}

fn refuse(bad: bool, what: &str, hint: &str) -> Result<()> {
    if bad { Err(ReadError::new(what).hint(hint)) } else { Ok(()) }
}

/// Where the system went wrong. Operations are named by the indices of their invocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// How.
    pub fault: Fault,
    /// The operations that contradict each other, in the order in which they took effect.
    pub ops: Vec<u64>,
    /// Reads by others that show in which order they wrote, where that takes one.
    pub witnesses: Vec<u64>,
}

/// What was generated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generated {
    /// Events handed out.
    pub events: u64,
    /// Client operations.
    pub ops: u64,
    /// Those that completed as `ok`, `fail` and `info`.
    pub outcomes: [u64; 3],
    /// Nanoseconds of simulated time at the last event.
    pub lasted_ns: i64,
    /// What went wrong: there is always something if a fault was asked for.
    pub injected: Option<Injected>,
    /// The seed that was used, and how many were tried until the fault found its moment.
    pub seed: u64,
    /// See `seed`; 1 if the given one was good, or nothing was to go wrong.
    pub attempts: u32,
    /// The most operations, keys and list elements that were held at once.
    pub peak_held: u64,
}

/// Simulates, and hands events out batch by batch. A sink may not touch the texts of the batch, which live on; events
/// are forgotten when it returns.
///
/// # Errors
/// When the options contradict themselves, when a fault found no moment in many seeds (nothing was handed out then), or
/// when the sink says so.
pub fn generate(options: &GenOptions, sink: &mut dyn FnMut(&mut EventBatch) -> Result<()>) -> Result<Generated> {
    options.check()?;
    let attempts = match options.fault {
        None => 1,
        Some(fault) => attempts_until(options, fault)?,
    };
    let seed = nth_seed(options.seed, attempts);
    let mut simulation = Simulation::new(options, seed);
    simulation.run(false, sink)?;
    Ok(Generated { seed, attempts, ..simulation.generated() })
}

/// Operations simulated in search of a seed before giving up, and seeds at least tried.
const SEARCH_OPS: u64 = 8_000_000;
const SEARCH_SEEDS: u32 = 3;

/// Which seed, from the first on, gives the fault its moment? Each is simulated up to that moment.
fn attempts_until(options: &GenOptions, fault: Fault) -> Result<u32> {
    let most = (SEARCH_OPS / options.ops.max(8)) as u32;
    for attempt in 1..=most.max(SEARCH_SEEDS) {
        let mut simulation = Simulation::new(options, nth_seed(options.seed, attempt));
        simulation.run(true, &mut |_| Ok(()))?;
        if simulation.generated().injected.is_some() {
            return Ok(attempt);
        }
    }
    Err(ReadError::new(format!("the fault {} found no moment in many seeds", fault.name()))
        .hint("give it more operations, fewer keys, more of both reads and writes, or let it begin earlier"))
}

fn nth_seed(seed: u64, attempt: u32) -> u64 {
    seed.wrapping_add(u64::from(attempt - 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
