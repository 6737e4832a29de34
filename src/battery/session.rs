//! Does each client see a world that moves forward?

use elench_checkers::findings::Findings;
use elench_checkers::session::{CausalModel, CausalOptions, Order, check_causal, check_sessions, has_independent_keys};

use super::{Entry, Run};
use crate::check::CheckerInfo;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Checker session: what orders the versions of a key (default: found from the operations)
    #[arg(long, value_name = "ORDER")]
    pub session_order: Option<SessionOrder>,
    /// Checker causal: condition whose violation makes a history invalid; causal consistency (cc) is part of each (repeatable)
    /// [default: cc; the others are noted]
    #[arg(long = "causal", value_name = "CONDITION")]
    pub causal: Vec<Condition>,
    /// Checker causal: judge all keys together, or each by itself (default: by itself where keys are those of jepsen.independent)
    #[arg(long, value_name = "SCOPE")]
    pub causal_scope: Option<Scope>,
}

/// What orders versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SessionOrder {
    /// Numbers of versions: [version value], or a field `version`
    Versions,
    /// Offsets that appends are acknowledged with
    Offsets,
    /// Who read what, where each value is written once
    Values,
}

/// A condition on causal histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Condition {
    /// Causal consistency
    Cc,
    /// Causal convergence
    Ccv,
    /// Causal memory
    Cm,
}

/// What is judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// All keys
    Store,
    /// Each key by itself
    Key,
}

/// The checkers of this group.
pub const ENTRIES: &[Entry] = &[
    Entry {
        info: CheckerInfo {
            name: "session",
            question: "Does each session read its writes and see versions move forward? read-your-writes, monotonic-reads, monotonic-writes, writes-follow-reads, PRAM",
            needs: "reads and writes of registers, or appends and polls of a log; which process did what; versions, offsets, or values \
                    written once. Runs when asked for",
            example: "elench check --checker session history.edn",
            judges: true,
        },
        workloads: &[],
        run: session,
    },
    Entry {
        info: CheckerInfo {
            name: "causal",
            question: "Is the history of registers causally consistent (CC), convergent (CCv), causal memory (CM)?",
            needs: "reads and writes of registers whose values are written once; which process did what. Runs when asked for",
            example: "elench check --checker causal --causal ccv history.edn",
            judges: true,
        },
        workloads: &[],
        run: causal,
    },
];

fn session(run: &Run<'_>) -> Result<Findings, String> {
    let order = run.settings.session.session_order.map(|order| match order {
        SessionOrder::Versions => Order::Versions,
        SessionOrder::Offsets => Order::Offsets,
        SessionOrder::Values => Order::Values,
    });
    check_sessions(run.history, order, run.initial, run.budget, run.examples)
}

fn causal(run: &Run<'_>) -> Result<Findings, String> {
    let settings = &run.settings.session;
    let judged = settings.causal.iter().map(|condition| match condition {
        Condition::Cc => CausalModel::Cc,
        Condition::Ccv => CausalModel::Ccv,
        Condition::Cm => CausalModel::Cm,
    });
    let per_key = match settings.causal_scope {
        Some(scope) => scope == Scope::Key,
        None => has_independent_keys(run.history),
    };
    let options = CausalOptions { judged: judged.collect(), per_key };
    check_causal(run.history, &options, run.initial, run.budget, run.examples)
}

/// The checkers that these flags ask for.
pub(super) fn asked(settings: &Settings) -> Vec<&'static str> {
    let session = settings.session_order.map(|_| "session");
    let causal = (!settings.causal.is_empty() || settings.causal_scope.is_some()).then_some("causal");
    session.into_iter().chain(causal).collect()
}
