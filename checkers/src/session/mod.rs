//! Does each client see a world that moves forward? Session guarantees, and causal consistency of registers.
//!
//! What a session sees is held against itself and against what others did before, never against the recorder's clock: versions are
//! ordered by numbers that the system gave them (`versions`), or by who read what, where each value is written once
//! (`values`, `causal`). With neither there is no answer: `oracle-too-weak`.
//!
//! Measured (one thread, 10^6 operations, `benches/results/checkers.tsv`) with sixteen sessions on one register: `session` by values 400 ns of processor
//! time and 202 bytes of peak memory an operation, by versions 80 and 57; `causal` (CC and CCv) 340 and 135. Time grows with the sessions.

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
use crate::outcome::{Status, Why};

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
    let reads: u64 =
        accesses.list.iter().filter(|a| a.kind == read::Kind::Read && a.status == Status::Ok).count() as u64;
    let versions = accesses.order == Order::Values || accesses.list.iter().any(|a| a.version.is_some());
    if !versions {
        findings.undecided(versions::no_versions());
    }
    let written = accesses.list.iter().any(|a| a.kind == read::Kind::Write);
    if accesses.order == Order::Values && (reads == 0 || !written) {
        findings
            .undecided(Why::Other("oracle-too-weak: no read, or nothing that was written, tells of an order".into()));
    }
}
