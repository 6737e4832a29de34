//! Was anything acknowledged lost, doubled or out of order?

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use elench_checkers::delivery::{
    Dump, Effects, Guarantee, KeyPath, QueueOptions, broadcast, exactly_once, no_lost_ack, parse_dump, prefix, queue,
    set, set_full, total_queue, unique_ids,
};
use elench_checkers::findings::Findings;
use elench_formats::History;
use elench_formats::open::{OpenOptions, open};

use super::{Entry, Run};
use crate::check::CheckerInfo;

/// What their flags say.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// Checker set-full: the set is linearizable, so that an element that shows late is a violation
    #[arg(long)]
    pub linearizable: bool,
    /// Checkers queue, total-queue, exactly-once: how often each message has to arrive. Unless it is said, total-queue counts duplicates
    /// and exactly-once forbids them, and what a crashed consumer may have taken is not lost
    #[arg(long, value_name = "GUARANTEE")]
    pub delivery: Option<DeliveryArg>,
    /// Checkers queue, total-queue: messages come out in the order in which they went in
    #[arg(long)]
    pub fifo: bool,
    /// Checkers no-lost-ack, reconcile: file of what is there at the end, of the whole system or of a replica (repeatable): a list, or a map of keys
    /// to what lies there, as EDN, JSON, JSON Lines, CSV, or a value a line
    #[arg(long = "final", value_name = "FILE")]
    pub finals: Vec<PathBuf>,
    /// Checker exactly-once: where operations bear the business key that attempts of one request share: extra.NAME, key, value.NAME,
    /// input.0
    #[arg(long, value_name = "PATH")]
    pub idempotency_key: Option<KeyPath>,
    /// Checker exactly-once: file of effects (repeatable), instead of what consumers saw: an audit log or a final dump, in any
    /// format of histories, or a list as EDN, JSON, JSON Lines, CSV, or a value a line
    #[arg(long, value_name = "FILE")]
    pub effects: Vec<PathBuf>,
    /// Checker unique-ids: ids have to grow, for each process and in real time
    #[arg(long)]
    pub monotonic_ids: bool,
    /// Checker prefix: elements of a producer that may be in flight at once, and so change places [default: 1, none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub in_flight: Option<u32>,
}

impl Settings {
    /// Refuses what no history can be checked with: files that cannot be opened, and a checker without its key.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn demand(&self, checkers: &[String]) -> Result<(), String> {
        for file in self.finals.iter().chain(&self.effects) {
            std::fs::metadata(file).map_err(|e| format!("{}: cannot read: {e}", file.display()))?;
        }
        if self.idempotency_key.is_none() && checkers.iter().any(|name| name == "exactly-once") {
            return Err(NO_KEY.into());
        }
        Ok(())
    }
}

const NO_KEY: &str = "exactly-once needs the key that attempts of one request share: --idempotency-key extra.NAME, key, value.NAME or input.0";

/// How often each message has to arrive.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DeliveryArg {
    /// Once
    ExactlyOnce,
    /// Once or more
    AtLeastOnce,
    /// Once or never
    AtMostOnce,
}

impl From<DeliveryArg> for Guarantee {
    fn from(arg: DeliveryArg) -> Guarantee {
        match arg {
            DeliveryArg::ExactlyOnce => Guarantee::ExactlyOnce,
            DeliveryArg::AtLeastOnce => Guarantee::AtLeastOnce,
            DeliveryArg::AtMostOnce => Guarantee::AtMostOnce,
        }
    }
}

const fn judges(name: &'static str, question: &'static str, needs: &'static str, example: &'static str) -> CheckerInfo {
    CheckerInfo { name, question, needs, example, judges: true }
}

/// The checkers of this group.
pub const ENTRIES: &[Entry] = &[
    Entry {
        info: judges(
            "set-full",
            "What became of each element of a set: stable, lost, never read, stale? How late does it show?",
            "adds, and reads that return all elements; the order of events is that of real time",
            "elench check --checker set-full --linearizable history.edn",
        ),
        workloads: &["set"],
        run: |run| Ok(set_full(run.history, delivery(run).linearizable, run.examples)),
    },
    Entry {
        info: judges(
            "set",
            "Does the last read show all that was added before it, and nothing else?",
            "adds, and a read at the end that returns all elements. Runs when asked for",
            "elench check --checker set history.edn",
        ),
        workloads: &[],
        run: |run| Ok(set(run.history, run.examples)),
    },
    Entry {
        info: judges(
            "no-lost-ack",
            "Is everything that was acknowledged still there at the end, and nothing that failed?",
            "writes, adds, appends or enqueues; reads that return many, drains, or a dump of the end (--final FILE, repeatable). Runs when asked for",
            "elench check --checker no-lost-ack --final n1.json --final n2.json history.edn",
        ),
        workloads: &[],
        run: run_no_lost_ack,
    },
    Entry {
        info: judges(
            "exactly-once",
            "Do requests that are tried again take effect once? Which of exactly-once, at-least-once, at-most-once holds?",
            "a business key that attempts share (--idempotency-key PATH); effects: what consumers saw, or --effects FILE. Runs when asked for",
            "elench check --checker exactly-once --idempotency-key extra.request_id --effects audit.jsonl history.edn",
        ),
        workloads: &[],
        run: run_exactly_once,
    },
    Entry {
        info: judges(
            "total-queue",
            "Does what goes into a queue come out, and nothing else?",
            "enqueues and dequeues, and a drain at the end; asked for by name, the queue is taken to be empty at the end",
            "elench check --checker total-queue --delivery exactly-once history.edn",
        ),
        workloads: &["queue"],
        run: |run| Ok(total_queue(run.history, &queues(run), run.examples)),
    },
    Entry {
        info: judges(
            "queue",
            "Did everything that came out of a queue go in before, and in that order if it is one of order (--fifo)?",
            "enqueues and dequeues. Runs when asked for",
            "elench check --checker queue --fifo history.edn",
        ),
        workloads: &[],
        run: |run| Ok(queue(run.history, &queues(run), run.examples)),
    },
    Entry {
        info: judges(
            "unique-ids",
            "Was every id generated once? Do ids grow (--monotonic-ids)?",
            "operations that generate ids and return them",
            "elench check --checker unique-ids history.edn",
        ),
        workloads: &["unique-ids"],
        run: |run| Ok(unique_ids(run.history, delivery(run).monotonic_ids, run.examples)),
    },
    Entry {
        info: judges(
            "broadcast",
            "Did every message reach every node, and how soon?",
            "broadcasts, and reads that return all messages, of each node (a :node field, else the process)",
            "elench check --checker broadcast history.edn",
        ),
        workloads: &["broadcast"],
        run: |run| Ok(broadcast(run.history, run.named, run.examples)),
    },
    Entry {
        info: judges(
            "prefix",
            "Does each consumer see each producer's elements in order, without gaps and without strangers?",
            "appends or sends of elements that differ; reads that return lists, or consumers that take. Runs when asked for",
            "elench check --checker prefix --in-flight 5 history.edn",
        ),
        workloads: &[],
        run: |run| Ok(prefix(run.history, delivery(run).in_flight.unwrap_or(1), run.examples)),
    },
];

fn delivery<'a>(run: &Run<'a>) -> &'a Settings {
    &run.settings.delivery
}

fn queues(run: &Run<'_>) -> QueueOptions {
    let asked = delivery(run);
    QueueOptions { guarantee: asked.delivery.map(Into::into), named: run.named, fifo: asked.fifo }
}

fn run_no_lost_ack(run: &Run<'_>) -> Result<Findings, String> {
    Ok(no_lost_ack(run.history, &dumps(run)?, run.examples))
}

/// What is there at the end, as files say.
pub(super) fn dumps(run: &Run<'_>) -> Result<Vec<Dump>, String> {
    delivery(run).finals.iter().map(|file| read_dump(file)).collect()
}

fn read_dump(file: &Path) -> Result<Dump, String> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).map_err(|e| format!("{name}: cannot read: {e}"))?;
    parse_dump(&name, &bytes)
}

fn run_exactly_once(run: &Run<'_>) -> Result<Findings, String> {
    let asked = delivery(run);
    let Some(path) = &asked.idempotency_key else { return Err(NO_KEY.into()) };
    let guarantee = asked.delivery.map(Into::into);
    let judge = |effects: Effects<'_>| exactly_once(run.history, path, effects, guarantee, run.examples);
    if asked.effects.is_empty() {
        return Ok(judge(Effects::Consumers));
    }
    let histories: Vec<_> = asked.effects.iter().map(|file| read_history(file)).collect();
    if let Some(histories) = histories.into_iter().collect::<Option<Vec<History>>>() {
        return Ok(judge(Effects::Histories(&histories)));
    }
    let dumps = asked.effects.iter().map(|file| read_dump(file)).collect::<Result<Vec<_>, _>>()?;
    Ok(judge(Effects::Records(&dumps)))
}

/// The history that a file of effects is, if it is one.
fn read_history(file: &Path) -> Option<History> {
    open(&file.display().to_string(), &OpenOptions::default(), &|_, _| {}).ok()
}
