//! Break a running system on purpose, prove that it broke, put it back, and say what its clients saw.
//!
//! [`scenario`] reads what was registered before anything is touched, [`context`] and [`perimeter`] refuse what must not be done,
//! [`injector`] breaks and mends, [`switch`] mends when nobody else does. Order of a run, evidence and ledger are those of the
//! specification.

pub mod config;
pub mod context;
pub mod evidence;
pub mod front;
pub mod hold;
pub mod injector;
pub mod perimeter;
pub mod run;
pub mod scenario;
pub mod sli;
pub mod switch;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an experiment is refused, or could not be ended. Users match on the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Code {
    /// The target is production, and nobody authorised it.
    #[serde(rename = "ERR_PROD_UNAUTHORIZED")]
    ProdUnauthorized,
    /// There is no cap, or one that is none.
    #[serde(rename = "ERR_BLAST_RADIUS_INVALID")]
    BlastRadiusInvalid,
    /// There is no steady state, or no timer.
    #[serde(rename = "ERR_NO_STEADY_STATE")]
    NoSteadyState,
    /// A rule of the context forbids it, or it would touch the tool's own evidence.
    #[serde(rename = "ERR_CONTEXT_CONFLICT")]
    ContextConflict,
    /// The injector's tool is not there.
    #[serde(rename = "ERR_INJECTOR_MISSING")]
    InjectorMissing,
    /// The fault could not be taken back.
    #[serde(rename = "ERR_ROLLBACK_FAILED")]
    RollbackFailed,
    /// The steady state could not be measured before anything was injected.
    #[serde(rename = "ERR_STEADY_STATE_UNMEASURABLE")]
    SteadyStateUnmeasurable,
}

impl Code {
    /// The code, as users match on it.
    pub fn name(self) -> &'static str {
        match self {
            Code::ProdUnauthorized => "ERR_PROD_UNAUTHORIZED",
            Code::BlastRadiusInvalid => "ERR_BLAST_RADIUS_INVALID",
            Code::NoSteadyState => "ERR_NO_STEADY_STATE",
            Code::ContextConflict => "ERR_CONTEXT_CONFLICT",
            Code::InjectorMissing => "ERR_INJECTOR_MISSING",
            Code::RollbackFailed => "ERR_ROLLBACK_FAILED",
            Code::SteadyStateUnmeasurable => "ERR_STEADY_STATE_UNMEASURABLE",
        }
    }

    /// Whose it is to mend: `user` or `system`.
    pub fn class(self) -> &'static str {
        match self {
            Code::ProdUnauthorized | Code::BlastRadiusInvalid | Code::NoSteadyState | Code::ContextConflict => "user",
            Code::InjectorMissing | Code::RollbackFailed | Code::SteadyStateUnmeasurable => "system",
        }
    }
}

/// A refusal: nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// Which key or rule, what is wrong with it, and what to do.
    pub why: String,
}

impl Refusal {
    /// With a reason.
    pub fn new(code: Code, why: impl Into<String>) -> Refusal {
        Refusal { code, why: why.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code.name(), self.code.class(), self.why)
    }
}

impl std::error::Error for Refusal {}
