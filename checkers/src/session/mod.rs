//! Does each client see a world that moves forward? Session guarantees, and causal consistency of registers.
//!
//! What a session sees is held against itself and against what others did before, never against the recorder's clock: versions are
//! ordered by numbers that the system gave them (`versions`), or by who read what, where each value is written once
//! (`values`, `causal`). With neither there is no answer: `oracle-too-weak`.
//!
//! Measured (one thread, 10^7 operations, `benches/results/checkers.tsv`) with sixteen sessions on one register, of processor time and peak
//! memory an operation: `session` by values 142 ns and 62 bytes, by versions 99 and 40; `causal` (CC and CCv) 150 and 65. Decoding took 53 ns, and of texts
//! 96. Time grows with the sessions.

mod causal;
mod graph;
mod read;
mod tell;
#[cfg(test)]
mod tests;
mod values;
mod versions;

use elench_formats::{History, Value};

pub use causal::{CausalModel, CausalOptions, Holds};
pub use read::Order;
pub use versions::incremental;

use crate::budget::Budget;
use crate::findings::{Fact, Findings};
use crate::outcome::{KeyId, Status, Undecided, Why};

/// What a session may be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Guarantee {
    /// A read returns no version older than one that the session wrote.
    ReadYourWrites,
    /// A read returns no version older than one that the session read.
    MonotonicReads,
    /// A write makes a version newer than those that the session wrote.
    MonotonicWrites,
    /// A write makes a version newer than those that the session read.
    WritesFollowReads,
    /// The first three.
    Pram,
    /// All four.
    All,
    /// What is no guarantee: the initial version is the oldest.
    Initial,
}

impl Guarantee {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::ReadYourWrites => "read-your-writes",
            Guarantee::MonotonicReads => "monotonic-reads",
            Guarantee::MonotonicWrites => "monotonic-writes",
            Guarantee::WritesFollowReads => "writes-follow-reads",
            Guarantee::Pram => "PRAM",
            Guarantee::All => "session-causality",
            Guarantee::Initial => "initial",
        }
    }
}

/// Holds sessions to the four guarantees, on each key by itself. The order of versions is found from the history unless given.
/// O(n) where versions bear numbers; O(n · sessions of a key) else.
///
/// # Errors
/// Where the operations are none of a register or log, or not attributed to processes.
pub fn check_sessions(
    history: &History,
    order: Option<Order>,
    initial: &Value,
    budget: &Budget,
    examples: usize,
) -> Result<Findings, String> {
    let mut accesses = read::accesses(history, order, initial)?;
    let initial = read::initial(history, &mut accesses, initial);
    let mut findings = match accesses.order {
        Order::Values => values::check(history, &accesses, initial, budget, examples),
        Order::Versions | Order::Offsets => versions::check(history, &accesses, examples),
    };
    let order = match accesses.order {
        Order::Versions => "versions that the system gave",
        Order::Offsets => "offsets",
        Order::Values => "who read what, each value being written once",
    };
    findings.fact("order of versions", Fact::Text(order.into()));
    described(&mut findings, &accesses);
    count_keys(&mut findings, &accesses);
    Ok(findings)
}

/// Holds registers whose values are written once to causal consistency. CC and CCv: O(n · sessions); CM: as often as its closure
/// takes.
///
/// # Errors
/// Where the operations are none of a register, or not attributed to processes.
pub fn check_causal(
    history: &History,
    options: &CausalOptions,
    initial: &Value,
    budget: &Budget,
    examples: usize,
) -> Result<Findings, String> {
    let mut accesses = read::accesses(history, Some(Order::Values), initial)?;
    let initial = read::initial(history, &mut accesses, initial);
    let mut findings = causal::check(history, &accesses, initial, options, budget, examples);
    let scope = if options.per_key { "each key by itself" } else { "all keys together" };
    findings.fact("judged", Fact::Text(scope.into()));
    described(&mut findings, &accesses);
    match options.per_key {
        true => count_keys(&mut findings, &accesses),
        false => count_all(&mut findings, &accesses),
    }
    Ok(findings)
}

/// Are the keys of a history such as `jepsen.independent` makes, each an object by itself?
pub fn has_independent_keys(history: &History) -> bool {
    history.meta().keys == elench_formats::history::KeyForm::Tuple
}

fn described(findings: &mut Findings, accesses: &read::Accesses) {
    findings.coverage.ops = accesses.coverage.ops.clone();
    findings.fact("sessions", Fact::Count(u64::from(accesses.sessions)));
    if accesses.silent > 0 {
        findings.fact("reads of nil that say nothing", Fact::Count(accesses.silent));
    }
}

/// What the accesses of a key, or of all, have that can be judged.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    acknowledged: bool,
    read: bool,
    written: bool,
    numbered: bool,
}

impl Evidence {
    fn of(accesses: &read::Accesses, i: usize) -> Evidence {
        let access = &accesses.list[i];
        let (acknowledged, read) = (access.status == Status::Ok, access.kind == read::Kind::Read);
        let numbered = acknowledged && accesses.versions.get(i).is_some_and(Option::is_some);
        Evidence { acknowledged, read: read && acknowledged, written: !read, numbered }
    }

    fn add(&mut self, more: Evidence) {
        self.acknowledged |= more.acknowledged;
        self.read |= more.read;
        self.written |= more.written;
        self.numbered |= more.numbered;
    }

    /// Why there is nothing to judge, though something was acknowledged.
    fn lacking(self, order: Order) -> Option<Why> {
        match order {
            _ if !self.acknowledged => None,
            Order::Values if self.read && self.written => None,
            Order::Values => {
                Some(Why::Other("oracle-too-weak: no read, or nothing that was written, tells of an order".into()))
            }
            Order::Versions | Order::Offsets if self.numbered => None,
            Order::Versions | Order::Offsets => Some(versions::no_versions()),
        }
    }
}

/// Counts keys as decided, silent where nothing of them was acknowledged, or undecided where what was says nothing of an order; those that were
/// given up stay so.
fn count_keys(findings: &mut Findings, accesses: &read::Accesses) {
    let mut keys = vec![Evidence::default(); accesses.keys.len()];
    for (i, access) in accesses.list.iter().enumerate() {
        keys[access.key as usize].add(Evidence::of(accesses, i));
    }
    let mut given_up = vec![false; keys.len()];
    findings.coverage.undecided.iter().filter_map(|u| u.key).for_each(|key| given_up[key.0 as usize] = true);
    if keys.iter().all(|key| !key.acknowledged) {
        findings.undecided(Why::NoEvidence);
    }
    let coverage = &mut findings.coverage;
    coverage.keys = keys.len() as u64;
    (coverage.keys_decided, coverage.keys_silent) = (0, 0);
    for (k, key) in keys.into_iter().enumerate() {
        let id = Some(KeyId(k as u32));
        match key.lacking(accesses.order) {
            _ if given_up[k] => {}
            _ if !key.acknowledged => coverage.keys_silent += 1,
            None => coverage.keys_decided += 1,
            Some(why) => coverage.undecided.push(Undecided { key: id, why, known: String::new() }),
        }
    }
}

/// The same of all keys together.
fn count_all(findings: &mut Findings, accesses: &read::Accesses) {
    let mut all = Evidence::default();
    (0..accesses.list.len()).for_each(|i| all.add(Evidence::of(accesses, i)));
    if !all.acknowledged {
        findings.undecided(Why::NoEvidence);
    }
    if let Some(why) = all.lacking(accesses.order) {
        findings.undecided(why);
    }
}
