//! Is a PASS too good to be true? Two lists of questions over the evidence of a run.
//!
//! Each item is answered yes (it is so, and takes the PASS away), no, not applicable, or is left unchecked, which bars a hardening
//! verdict; and says what was looked at. The lists are those of the specification; [`RedFlag::state`] and [`WeakOracle::state`] say
//! what a PASS becomes.

use serde::{Deserialize, Serialize};

use super::Verdict;

/// An answer to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is so: the PASS falls.
    Yes,
    /// It is not so.
    No,
    /// The question makes no sense here.
    NotApplicable,
    /// Nobody looked.
    Unchecked,
}

/// An item, answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited<T> {
    /// The item.
    pub item: T,
    /// The answer.
    pub answer: Answer,
    /// What was looked at, with the numbers found.
    pub looked_at: String,
}

/// What should never be so in the evidence of a PASS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedFlag {
    /// The workload did not produce the intended load for the intended time.
    LoadTooSmall,
    /// The checker did not consume every operation recorded.
    OperationsNotConsumed,
    /// The fault is not proven on the injector's side and on a victim's side.
    OneSidedProof,
    /// The fault silently did nothing.
    FaultDidNothing,
    /// Timing assertions rest on a clock that is not monotonic.
    WallClock,
    /// The run was shorter than its exit criterion.
    TooShort,
    /// Panics or internal errors stand in the system's logs.
    SwallowedErrors,
    /// The steady state did not return after the rollback.
    NotRecovered,
    /// What is compared was not measured alike.
    UnlikeBaseline,
    /// A statistical claim was not replicated.
    NotReplicated,
}

impl RedFlag {
    /// All ten.
    pub const ALL: [RedFlag; 10] = [
        RedFlag::LoadTooSmall,
        RedFlag::OperationsNotConsumed,
        RedFlag::OneSidedProof,
        RedFlag::FaultDidNothing,
        RedFlag::WallClock,
        RedFlag::TooShort,
        RedFlag::SwallowedErrors,
        RedFlag::NotRecovered,
        RedFlag::UnlikeBaseline,
        RedFlag::NotReplicated,
    ];

    /// What is wrong, a clause.
    pub fn about(self) -> &'static str {
        match self {
            RedFlag::LoadTooSmall => "the workload did not produce the intended load for the intended time",
            RedFlag::OperationsNotConsumed => "the checker did not consume every operation",
            RedFlag::OneSidedProof => "the fault is not proven on the injector's side and on a victim's side",
            RedFlag::FaultDidNothing => "the fault silently did nothing",
            RedFlag::WallClock => "timing assertions rest on a clock that is not monotonic",
            RedFlag::TooShort => "the run was shorter than its exit criterion",
            RedFlag::SwallowedErrors => "panics or internal errors stand in the system's logs",
            RedFlag::NotRecovered => "the steady state did not return after the rollback",
            RedFlag::UnlikeBaseline => "what is compared was not measured alike",
            RedFlag::NotReplicated => "a statistical claim was not replicated",
        }
    }

    /// What a PASS becomes.
    pub fn state(self) -> Verdict {
        match self {
            RedFlag::OneSidedProof | RedFlag::FaultDidNothing => Verdict::FaultNotProven,
            RedFlag::WallClock | RedFlag::UnlikeBaseline | RedFlag::SwallowedErrors => Verdict::OracleTooWeak,
            RedFlag::LoadTooSmall
            | RedFlag::OperationsNotConsumed
            | RedFlag::TooShort
            | RedFlag::NotRecovered
            | RedFlag::NotReplicated => Verdict::PartialModel,
        }
    }
}

/// What a PASS may not rest on alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeakOracle {
    /// The state at the end.
    FinalState,
    /// Logs.
    Logs,
    /// Health checks.
    HealthChecks,
    /// One failover.
    SingleFailover,
    /// Metrics that show no error.
    NoErrorMetrics,
    /// A short run.
    ShortRun,
    /// Partitions that cut both ways.
    SymmetricPartitions,
    /// A client library that hides retries.
    HiddenRetries,
    /// Timestamps of a wall clock.
    WallClockTimestamps,
    /// One topology.
    OneTopology,
    /// Fewer than three seeds.
    FewSeeds,
}

impl WeakOracle {
    /// All of them.
    pub const ALL: [WeakOracle; 11] = [
        WeakOracle::FinalState,
        WeakOracle::Logs,
        WeakOracle::HealthChecks,
        WeakOracle::SingleFailover,
        WeakOracle::NoErrorMetrics,
        WeakOracle::ShortRun,
        WeakOracle::SymmetricPartitions,
        WeakOracle::HiddenRetries,
        WeakOracle::WallClockTimestamps,
        WeakOracle::OneTopology,
        WeakOracle::FewSeeds,
    ];

    /// What it rests on.
    pub fn about(self) -> &'static str {
        match self {
            WeakOracle::FinalState => "the final state alone",
            WeakOracle::Logs => "logs alone",
            WeakOracle::HealthChecks => "health checks alone",
            WeakOracle::SingleFailover => "a single failover",
            WeakOracle::NoErrorMetrics => "metrics without errors alone",
            WeakOracle::ShortRun => "a short run",
            WeakOracle::SymmetricPartitions => "symmetric partitions alone",
            WeakOracle::HiddenRetries => "a client library that hides retries",
            WeakOracle::WallClockTimestamps => "timestamps of a wall clock",
            WeakOracle::OneTopology => "one topology",
            WeakOracle::FewSeeds => "fewer than three seeds, where the claim is statistical",
        }
    }

    /// What a PASS becomes: what is too little of a good oracle leaves a part shown, what is no oracle leaves nothing.
    pub fn state(self) -> Verdict {
        match self {
            WeakOracle::SingleFailover
            | WeakOracle::ShortRun
            | WeakOracle::SymmetricPartitions
            | WeakOracle::OneTopology
            | WeakOracle::FewSeeds => Verdict::PartialModel,
            WeakOracle::FinalState
            | WeakOracle::Logs
            | WeakOracle::HealthChecks
            | WeakOracle::NoErrorMetrics
            | WeakOracle::HiddenRetries
            | WeakOracle::WallClockTimestamps => Verdict::OracleTooWeak,
        }
    }
}
