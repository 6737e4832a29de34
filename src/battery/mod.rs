//! The checkers that answer with [`Findings`]: deliveries, sessions, invariants, and those that describe.
//!
//! A group a file: the list of its checkers, the settings that its flags set, and how to run each. A list is all that
//! `elench checkers`, `check` and the reports know of a checker.

pub mod delivery;
pub mod describe;
pub mod formula;
pub mod invariant;
pub mod log;
pub mod session;

use elench_checkers::Budget;
use elench_checkers::findings::Findings;
use elench_formats::{History, Value};

use crate::check::CheckerInfo;

/// What the flags of all groups say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Of deliveries.
    #[command(flatten)]
    pub delivery: delivery::Settings,
    /// Of logs.
    #[command(flatten)]
    pub log: log::Settings,
    /// Of sessions.
    #[command(flatten)]
    pub session: session::Settings,
    /// Of invariants.
    #[command(flatten)]
    pub invariant: invariant::Settings,
    /// Of formulas.
    #[command(flatten)]
    pub formula: formula::Settings,
    /// Of what describes.
    #[command(flatten)]
    pub describe: describe::Settings,
}

/// What a checker is run with.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What the clients saw.
    pub history: &'a History,
    /// The name of its file or directory, as given: what belongs to it lies beside.
    pub name: &'a str,
    /// What the flags say.
    pub settings: &'a Settings,
    /// The state before the first operation; nil: what is usual.
    pub initial: &'a Value,
    /// How much it may spend.
    pub budget: &'a Budget,
    /// Examples of each kind to keep.
    pub examples: usize,
    /// Was the checker asked for by name? Else it runs because the workload looks like its kind.
    pub named: bool,
}

/// A checker of one of the groups.
#[derive(Debug)]
pub struct Entry {
    /// What it is.
    pub info: CheckerInfo,
    /// Workloads for which it runs without being named.
    pub workloads: &'static [&'static str],
    /// Runs it; an error says why it cannot judge this history, or what it lacks.
    pub run: fn(&Run<'_>) -> Result<Findings, String>,
}

/// All checkers of all groups.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    [delivery::ENTRIES, log::ENTRIES, session::ENTRIES, invariant::ENTRIES, formula::ENTRIES, describe::ENTRIES]
        .into_iter()
        .flatten()
}

/// The checker of this name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.info.name == name)
}

/// The checkers that are asked for by a flag that only they know, without being named.
pub fn asked(settings: &Settings) -> Vec<&'static str> {
    [session::asked(&settings.session), formula::asked(&settings.formula), describe::asked(&settings.describe)].concat()
}
