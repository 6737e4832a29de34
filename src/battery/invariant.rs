//! Does a number hold?

use elench_checkers::findings::Findings;
use elench_checkers::invariant::locks::Locks;
use elench_checkers::invariant::{
    bank, causal_reverse, counter, g2, locks, long_fork, membership, monotonic, reconcile, replicated, subkeys,
};
use elench_formats::Value;

use super::{Entry, Run};
use crate::check::CheckerInfo;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Checker bank: what all balances add up to (default: what most reads show)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub total: Option<i64>,
    /// Checker bank: names of all accounts, with commas between (default: those read before the first transfer, and those that
    /// transfers name)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub accounts: Option<Vec<String>>,
    /// Checker bank: accounts may be overdrawn
    #[arg(long)]
    pub negative_balances: bool,
    /// Checker membership: who was a member before the first change, with commas between (default: those viewed before it)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub members: Option<Vec<String>>,
    /// Checkers pn-counter, g-counter, membership, reconcile: vouch that the last reads are of a system at rest, where none is marked
    /// `:final? true`
    #[arg(long)]
    pub quiescent: bool,
}

const fn judges(name: &'static str, question: &'static str, needs: &'static str, example: &'static str) -> CheckerInfo {
    CheckerInfo { name, question, needs, example, judges: true }
}

/// The checkers of this group.
pub const ENTRIES: &[Entry] = &[
    Entry {
        info: judges(
            "bank",
            "Do balances always add up to the same total, with no account overdrawn, missing its balance or unexpected?",
            "transfers, and reads that return all balances as a map or list",
            "elench check --checker bank --total 100 --accounts 0,1,2 history.edn",
        ),
        workloads: &["bank"],
        run: |run| {
            let asked = asked(run);
            let rules = bank::Rules {
                total: asked.total.map(i128::from),
                accounts: asked.accounts.clone(),
                negative_balances: asked.negative_balances,
            };
            Ok(bank::bank(run.history, &rules, run.examples))
        },
    },
    Entry {
        info: judges(
            "counter",
            "Is every read between what was added for certain and what may have been, and the last one a sum of additions?",
            "additions (add, inc, dec) and reads of a number; the order of events is that of real time",
            "elench check --checker counter --initial 0 history.edn",
        ),
        workloads: &["counter"],
        run: |run| {
            in_real_time(run)?;
            Ok(counter::counter(run.history, initial(run)?, run.examples))
        },
    },
    Entry {
        info: judges(
            "pn-counter",
            "Do the replicas of a counter arrive at what was added to it, and some of what may have been?",
            "additions; reads marked `:final? true`, or --quiescent. Runs when asked for",
            "elench check --checker pn-counter history.edn",
        ),
        workloads: &[],
        run: |run| replicas(run, false),
    },
    Entry {
        info: judges(
            "g-counter",
            "Do the replicas of a counter that only grows arrive at what was added to it, and some of what may have been?",
            "additions of positive numbers; reads marked `:final? true`, or --quiescent. Runs when asked for",
            "elench check --checker g-counter --quiescent history.edn",
        ),
        workloads: &[],
        run: |run| replicas(run, true),
    },
    Entry {
        info: judges(
            "long-fork",
            "Do two reads of the same keys disagree on which of two writes came first?",
            "transactions that write each key at most once and read several; groups of any size. Runs when asked for",
            "elench check --checker long-fork history.edn",
        ),
        workloads: &["long-fork"],
        run: |run| Ok(long_fork::long_fork(run.history, run.examples)),
    },
    Entry {
        info: judges(
            "causal-reverse",
            "Does a read show a write, and miss one that was acknowledged before it began?",
            "writes of unique values, and reads of all of them; the order of events is that of real time. Runs when asked for",
            "elench check --checker causal-reverse history.edn",
        ),
        workloads: &["causal-reverse"],
        run: reversed,
    },
    Entry {
        info: judges(
            "comments",
            "Is a comment visible without one that was acknowledged before it was written? (CockroachDB's name of causal-reverse)",
            "writes of unique values, and reads of all of them; the order of events is that of real time",
            "elench check --checker comments history.edn",
        ),
        workloads: &["comments"],
        run: reversed,
    },
    Entry {
        info: judges(
            "adya-g2",
            "Did both of two inserts commit that exclude each other?",
            "inserts of `[pair [a b]]`, of which at most one of a pair may commit",
            "elench check --checker adya-g2 history.edn",
        ),
        workloads: &["adya-g2"],
        run: |run| Ok(g2::g2(run.history, run.examples)),
    },
    Entry {
        info: judges(
            "subkeys",
            "Does a read in the opposite order see a later insert without an earlier one? (CockroachDB's test `sequential`)",
            "reads that return `[key [found or nil …]]`, the subkeys from the last inserted to the first. Runs when asked for",
            "elench check --checker subkeys history.edn",
        ),
        workloads: &["subkeys"],
        run: |run| Ok(subkeys::subkeys(run.history, run.examples)),
    },
    Entry {
        info: judges(
            "monotonic",
            "Do values that the database assigns grow, in the order of its timestamps and for each client?",
            "inserts or increments that return a value, `[timestamp value]` or `{:val v :sts t}`; reads of such, or of all rows",
            "elench check --checker monotonic --no-independent history.edn",
        ),
        workloads: &["monotonic"],
        run: |run| {
            in_real_time(run)?;
            Ok(monotonic::monotonic(run.history, run.examples))
        },
    },
    Entry {
        info: judges(
            "mutex-exclusion",
            "Do two hold a lock at once? Do fencing tokens grow? Is a lease renewed after its end?",
            "acquisitions and releases, renewals; owners are a field or the processes; the order of events is that of real time. Runs when asked for",
            "elench check --checker mutex-exclusion history.edn",
        ),
        workloads: &[],
        run: |run| exclusion(run, Locks::One),
    },
    Entry {
        info: judges(
            "lock-set",
            "Do two hold a lock at once, where a value names the locks that are taken together?",
            "as mutex-exclusion, with names of locks as values: `:a`, or `[:a :b]`. Runs when asked for",
            "elench check --checker lock-set history.edn",
        ),
        workloads: &[],
        run: |run| exclusion(run, Locks::Named),
    },
    Entry {
        info: judges(
            "membership",
            "At rest, does a view lack a member, show one twice, or one that left or never joined?",
            "joinings and leavings that name a node; views marked `:final? true`, or --quiescent. Runs when asked for",
            "elench check --checker membership --members n1,n2,n3 history.edn",
        ),
        workloads: &[],
        run: |run| {
            in_real_time(run)?;
            let asked = asked(run);
            let rules = membership::Rules { members: asked.members.clone(), quiescent: asked.quiescent };
            Ok(membership::membership(run.history, &rules, run.examples))
        },
    },
    Entry {
        info: judges(
            "reconcile",
            "Do the replicas hold the same when all has come to rest?",
            "a dump (or read) of each node, marked `:final? true`, or --quiescent; or a file a replica (--final FILE, with --quiescent). Runs when asked for",
            "elench check --checker reconcile history.edn",
        ),
        workloads: &[],
        run: |run| {
            in_real_time(run)?;
            let (files, quiescent) = (super::delivery::dumps(run)?, asked(run).quiescent);
            Ok(match files.is_empty() {
                true => reconcile::reconcile(run.history, quiescent, run.examples),
                false => reconcile::reconcile_files(run.history, &files, quiescent, run.examples),
            })
        },
    },
];

fn asked<'a>(run: &Run<'a>) -> &'a Settings {
    &run.settings.invariant
}

fn in_real_time(run: &Run<'_>) -> Result<(), String> {
    let meta = run.history.meta();
    if meta.real_time {
        return Ok(());
    }
    Err(format!("the checker needs the order of real time, and {} does not record it", meta.format))
}

fn initial(run: &Run<'_>) -> Result<i64, String> {
    match run.initial {
        Value::Nil => Ok(0),
        Value::Int(n) => Ok(*n),
        other => Err(format!("--initial of a counter: {} is not a number", other.to_edn())),
    }
}

fn replicas(run: &Run<'_>, grows: bool) -> Result<Findings, String> {
    in_real_time(run)?;
    let rules = replicated::Rules { initial: initial(run)?, grows, quiescent: asked(run).quiescent };
    Ok(replicated::replicated(run.history, rules, run.examples))
}

fn reversed(run: &Run<'_>) -> Result<Findings, String> {
    in_real_time(run)?;
    Ok(causal_reverse::causal_reverse(run.history, run.examples))
}

fn exclusion(run: &Run<'_>, kind: Locks) -> Result<Findings, String> {
    in_real_time(run)?;
    Ok(locks::locks(run.history, kind, run.examples))
}
