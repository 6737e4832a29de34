//! Who is to blame for a FAIL, of what type is it, and how bad? One label each, from evidence.
//!
//! Blame is what is left when grounds rule the others out: every check that a machine can make is a [`Ground`] with its outcome,
//! and [`blame`] only reads those. What no ground decides stays unknown, with what would decide it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who is to blame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// The system under test.
    #[serde(rename = "SUT")]
    Sut,
    /// What drove it.
    #[serde(rename = "harness")]
    Harness,
    /// The checker.
    #[serde(rename = "checker")]
    Checker,
    /// The hosts.
    #[serde(rename = "environment")]
    Environment,
    /// Not known, pending what would decide it.
    #[serde(rename = "unknown")]
    Unknown(String),
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blame::Sut => f.write_str("SUT"),
            Blame::Harness => f.write_str("harness"),
            Blame::Checker => f.write_str("checker"),
            Blame::Environment => f.write_str("environment"),
            Blame::Unknown(pending) => write!(f, "unknown — pending {pending}"),
        }
    }
}

/// A question whose answer bears on blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Does a second, independent way of checking find it, too?
    SecondChecker,
    /// Does the certificate of the violation hold when it is checked by itself?
    CertificateHolds,
    /// Is the history well formed, without repairs and doubts?
    HistoryWellFormed,
    /// Does the checker accept a history that is known to be good?
    KnownGoodAccepted,
    /// Did the harness send only what the system accepts, and record what it sent?
    HarnessWithinContract,
    /// Do the recorder and the system's own record agree?
    RecorderAgrees,
    /// Did the hosts' clocks run on, without a step or a pause of the machine?
    HostsSteady,
    /// Does it survive another generator of the workload?
    OtherWorkload,
}

impl Question {
    /// The question, to be answered by yes or no.
    pub fn about(self) -> &'static str {
        match self {
            Question::SecondChecker => "a second, independent way of checking finds it, too",
            Question::CertificateHolds => "the violation's certificate holds when checked by itself",
            Question::HistoryWellFormed => "the history is well formed",
            Question::KnownGoodAccepted => "the checker accepts a history that is known to be good",
            Question::HarnessWithinContract => "the harness sent only what the system accepts",
            Question::RecorderAgrees => "the recorder and the system's own record agree",
            Question::HostsSteady => "the hosts' clocks ran on without a step or a pause",
            Question::OtherWorkload => "it survives another generator of the workload",
        }
    }

    /// Who is to blame when the answer is no.
    fn accused(self) -> Option<Blame> {
        match self {
            Question::SecondChecker | Question::CertificateHolds | Question::KnownGoodAccepted => Some(Blame::Checker),
            Question::HistoryWellFormed | Question::HarnessWithinContract | Question::RecorderAgrees => {
                Some(Blame::Harness)
            }
            Question::HostsSteady => Some(Blame::Environment),
            Question::OtherWorkload => None,
        }
    }
}

/// A question, answered: `None` where it could not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// The question.
    pub question: Question,
    /// The answer.
    pub answer: Option<bool>,
    /// What was looked at.
    pub looked_at: String,
}

/// Blame, from its grounds.
///
/// A ground that accuses checker, harness or environment decides, in this order: a wrong checker makes every other ground doubtful, a
/// wrong record all of those after it. The system is blamed when the checker was confirmed one way at least (another checker, or the
/// certificate by itself), the history is well formed, and the hosts were steady.
pub fn blame(grounds: &[Ground]) -> Blame {
    let answer = |q: Question| grounds.iter().find(|g| g.question == q).and_then(|g| g.answer);
    let order = [
        Question::CertificateHolds,
        Question::SecondChecker,
        Question::KnownGoodAccepted,
        Question::HistoryWellFormed,
        Question::HarnessWithinContract,
        Question::RecorderAgrees,
        Question::HostsSteady,
    ];
    if let Some(accused) = order.into_iter().find(|q| answer(*q) == Some(false)).and_then(Question::accused) {
        return accused;
    }
    let confirmed = [Question::CertificateHolds, Question::SecondChecker].iter().any(|q| answer(*q) == Some(true));
    let pending = [
        (confirmed, "a second checker or a certificate that holds by itself"),
        (answer(Question::HistoryWellFormed) == Some(true), "a history known to be well formed"),
        (answer(Question::HostsSteady) == Some(true), "a look for clock steps and pauses on the hosts"),
    ];
    match pending.into_iter().find(|(known, _)| !known) {
        Some((_, what)) => Blame::Unknown(what.into()),
        None => Blame::Sut,
    }
}

/// Types of bugs, after TaxDC (Leesatapornwongsa and others, ASPLOS 2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BugType {
    /// Depends on when something happens.
    Timing,
    /// Depends on the order of messages or operations.
    Ordering,
    /// Shown by a partition.
    Partition,
    /// Shown by a crash and recovery.
    CrashRecovery,
    /// Shown by an upgrade.
    Upgrade,
    /// Shown by a configuration.
    Config,
    /// An error handled wrongly.
    FaultHandling,
    /// Too slow.
    Performance,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Data lost or corrupted, or safety violated.
    P0,
    /// Unavailable until someone acts.
    P1,
    /// Degraded, recovers alone.
    P2,
    /// Users notice nothing.
    P3,
}

/// What a fault does, as far as the type of a bug is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultClass {
    /// None.
    None,
    /// Cuts the network.
    Partition,
    /// Slows, resets or mangles connections.
    Network,
    /// Kills or restarts.
    Crash,
    /// Stops and continues, or moves clocks.
    Pause,
    /// Fills or breaks disks.
    Disk,
}

/// The type, from the fault during which it was seen: what a machine can say. A violation without a fault is one of order.
pub fn bug_type(fault: FaultClass, safety: bool) -> BugType {
    match fault {
        FaultClass::Partition => BugType::Partition,
        FaultClass::Crash => BugType::CrashRecovery,
        FaultClass::Pause => BugType::Timing,
        FaultClass::Network | FaultClass::Disk => BugType::FaultHandling,
        FaultClass::None if safety => BugType::Ordering,
        FaultClass::None => BugType::Performance,
    }
}

/// How bad: a violated safety property is P0 always; else by what it took to come back.
pub fn severity(safety: bool, recovered_alone: Option<bool>, users_noticed: bool) -> Severity {
    match (safety, recovered_alone, users_noticed) {
        (true, ..) => Severity::P0,
        (false, Some(false), _) => Severity::P1,
        (false, _, true) => Severity::P2,
        (false, _, false) => Severity::P3,
    }
}
