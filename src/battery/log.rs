//! Does a log in the manner of Kafka keep what it acknowledged, once, and in order?

use clap::ValueEnum;
use elench_checkers::delivery::log::{Forbid, Options, check};
use elench_checkers::findings::Findings;

use super::{Entry, Run};
use crate::check::CheckerInfo;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Checker log: consumers subscribe, even where the history does not tell, so that a rebalance between two polls may move them
    #[arg(long)]
    pub subscribe: bool,
    /// Checker log: operations are no transactions: each send and poll takes place by itself
    #[arg(long)]
    pub no_txn: bool,
    /// Checker log: all messages that were acknowledged have to be polled by the end
    #[arg(long)]
    pub unseen: bool,
    /// Checker log: over which dependencies a cycle is a violation; others are noted [default: wr]
    #[arg(long, value_name = "DEPENDENCIES")]
    pub log_cycles: Option<CyclesArg>,
}

/// Over which dependencies a cycle is a violation.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CyclesArg {
    /// Who sent comes before who polled it
    Wr,
    /// And who sent, before who sent next
    Ww,
    /// And who polled, before who sent next
    Rw,
}

/// The checker of logs.
pub const ENTRIES: &[Entry] = &[Entry {
    info: CheckerInfo {
        name: "log",
        question: "Does a log in the manner of Kafka keep what it acknowledged, once, and in order?",
        needs: "sends [[:send k v] …] that complete with [:send k [offset v]], polls that return [:poll {k [[offset v] …]}], values \
                unique within a partition",
        example: "elench check --checker log history.edn",
        judges: true,
    },
    workloads: &["kafka"],
    run,
}];

fn run(run: &Run<'_>) -> Result<Findings, String> {
    let settings = &run.settings.log;
    let options = Options {
        examples: run.examples,
        transactional: !settings.no_txn,
        subscribe: settings.subscribe,
        unseen: settings.unseen,
        cycles: match settings.log_cycles {
            None | Some(CyclesArg::Wr) => Forbid::Wr,
            Some(CyclesArg::Ww) => Forbid::Ww,
            Some(CyclesArg::Rw) => Forbid::Rw,
        },
        real_time: true,
    };
    Ok(check(run.history, &options, run.budget))
}
