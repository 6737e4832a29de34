//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Checks what the clients of a distributed system saw, and says what it proves.
#[derive(Debug, Parser)]
#[command(name = "elench", version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 every check passed; 1 a violation; 2 the request or the input is bad (nothing was checked);
3 inconclusive (unknown, partial, history too weak); 4 an experiment was refused or could not run; 5 a rollback failed.

Examples:
  elench check store/my-test/latest
  elench info history.edn
  elench convert history.edn history.parquet";

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check histories, print a verdict for each, exit by the worst
    Check(Box<CheckArgs>),
    /// Say what is in histories, and what to check them with
    Info(InfoArgs),
    /// Check a result's certificates again, independently of the checker
    Verify(VerifyArgs),
    /// Find the smallest part of a history that still fails
    Shrink(ShrinkArgs),
    /// Convert a history from one format to another
    Convert(ConvertArgs),
    /// Break a running system on purpose, prove that it broke, put it back, and check what its clients saw
    Run(RunArgs),
    /// Take back a fault that is still there, from its undo journal
    Revert(RevertArgs),
    /// Say which injectors can work here, and how to get the others
    Doctor(ListArgs),
    /// Look at the evidence of runs
    #[command(subcommand)]
    Evidence(EvidenceCommand),
    /// Ask the ledger of runs
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// The dead man's switch: watches over an undo journal until its standard input says `done`
    #[command(hide = true)]
    Switch {
        /// The journal
        journal: PathBuf,
    },
    /// Runs a workload's command until it ends or standard input does
    #[command(hide = true)]
    Hold {
        /// For `sh -c`
        command: String,
    },
    /// Generate a history from a simulated system, correct or with a named fault
    Gen(GenArgs),
    /// List the checkers, with what each needs and an example
    Checkers(ListArgs),
    /// List the models that linearizability is checked against
    Models(ListArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  elench completions bash > ~/.local/share/bash-completion/completions/elench")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Example:\n  elench man > elench.1 && man ./elench.1")]
    Man,
}

/// How to read a history: the same flags everywhere.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    /// Format of the input, instead of detecting it by content
    #[arg(long, value_name = "NAME", value_parser = format_names())]
    pub format: Option<String>,
    /// Repair what is malformed where possible, say what was repaired, and cap the verdict at PARTIAL-model
    #[arg(long)]
    pub lenient: bool,
    /// Take [k v] values apart into keys and values, as jepsen.independent writes them
    #[arg(long, conflicts_with = "no_independent")]
    pub independent: bool,
    /// Leave [k v] values as they are
    #[arg(long)]
    pub no_independent: bool,
    /// Threads to use (default: all cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

fn format_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(elench_formats::Format::ALL.map(|f| f.name()))
}

/// Flags of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  elench check history.edn
  elench check --model cas-register --initial 0 history.edn
  elench check --json store/*/latest > results.jsonl
  zcat history.edn.gz | elench check -

The history's format, workload, keys and model are found from its content, and what was found is printed. A line of the
output says what was consumed, so that a pass can be judged.")]
pub struct CheckArgs {
    /// Files, Jepsen store directories, or - for standard input
    #[arg(required = true, value_name = "HISTORY")]
    pub histories: Vec<String>,
    /// How to read
    #[command(flatten)]
    pub read: ReadArgs,
    /// Checker to run (repeatable; default: those that fit the history)
    #[arg(long = "checker", value_name = "NAME")]
    pub checkers: Vec<String>,
    /// Workload, instead of guessing it
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// How to judge
    #[command(flatten)]
    pub judging: JudgeArgs,
    /// Checker isolation: consistency model that transactions should satisfy (repeatable) [default: strict-serializable]
    #[arg(long = "consistency", value_name = "MODEL")]
    pub consistency: Vec<String>,
    /// Checker isolation: anomaly that makes a history invalid besides (repeatable)
    #[arg(long = "anomaly", value_name = "NAME")]
    pub anomalies: Vec<String>,
    /// Checker isolation: list every anomaly found, whether or not the models forbid it; with -o, also write each one of them, and
    /// each violation that other checkers found, as a row of DIR/anomalies.parquet
    #[arg(long)]
    pub all_anomalies: bool,
    /// Checker isolation, rw-register: assume that each key is linearizable
    #[arg(long)]
    pub linearizable_keys: bool,
    /// Checker isolation, rw-register: assume that each key is sequentially consistent
    #[arg(long)]
    pub sequential_keys: bool,
    /// Checker isolation, rw-register: assume that a write follows what its transaction read
    #[arg(long)]
    pub wfr_keys: bool,
    /// Checker isolation, rw-register: believe commit-ts, the time or place at which the database says that a transaction committed
    #[arg(long)]
    pub commit_timestamps: bool,
    /// Checker k-atomic: how many of the last values a read may return (default: finds the smallest number)
    #[arg(long, value_name = "K")]
    pub k: Option<std::num::NonZeroU32>,
    /// What is asked of deliveries, sessions and invariants
    #[command(flatten)]
    pub settings: crate::battery::Settings,
    /// Decide everything twice, by monitor and by search; where they disagree, say so instead of answering
    #[arg(long)]
    pub cross_check: bool,
    /// Stop at the first key with a violation; the others stay undecided
    #[arg(long)]
    pub first: bool,
    /// Examples of each kind of violation
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub examples: usize,
    /// Directory for reports and evidence: result.json and, for a violation, its smallest sub-history
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print one JSON document a history instead of text
    #[arg(long)]
    pub json: bool,
    /// Print only the verdict line
    #[arg(long, short)]
    pub quiet: bool,
}

/// How to hold operations against a model: the same flags everywhere.
#[derive(Clone, Debug, Args)]
pub struct JudgeArgs {
    /// Model that operations are checked against (see `elench models`), or a TOML file with a table of transitions
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// State before the first operation, as EDN (see `elench models`; nil: what is usual)
    #[arg(long, value_name = "VALUE", default_value = "nil")]
    pub initial: String,
    /// What a failed cas says: that it did not happen, or that it saw another value (default: by format)
    #[arg(long, value_name = "MEANING")]
    pub failed_cas: Option<FailedCasArg>,
    /// What an ok read of nil says: that the register was unset, or nothing (default: unset, if it can be: where it is so
    /// initially or somebody writes nil)
    #[arg(long, value_name = "MEANING")]
    pub nil_reads: Option<NilReadsArg>,
    /// Time that checking may take, such as 90s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time: Option<Duration>,
    /// Memory that the checkers may take, such as 500MB, 4GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
}

/// Flags of `verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  elench check --json history.edn > result.json; elench verify result.json history.edn
  elench check -o evidence history.edn; elench verify evidence/history.edn/result.json history.edn

An order is replayed against the model, real time and each process's order. Of a violation, the operations of its core are tried in
every order, by a few lines that share nothing with the checker; of a cycle of transactions, each step is looked up. Exit codes: 0 every certificate holds; 1 one does not; 2 the
request or the input is bad; 3 there is nothing to verify, or it is too large to try.")]
pub struct VerifyArgs {
    /// What `elench check --json` printed, or its result.json
    #[arg(value_name = "RESULT")]
    pub result: PathBuf,
    /// The history that was checked
    #[arg(value_name = "HISTORY")]
    pub history: String,
    /// How to read it: as it was read for the check
    #[command(flatten)]
    pub read: ReadArgs,
}

/// Flags of `shrink`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  elench shrink history.edn -o small.edn
  elench shrink --model cas-register --initial 0 --time 5m test.jepsen -o small.edn

Exit codes: 0 a smaller history that still fails was written; 2 the request or the input is bad; 3 nothing fails, or nothing is
known to.")]
pub struct ShrinkArgs {
    /// File, Jepsen store directory, or - for standard input
    #[arg(value_name = "HISTORY")]
    pub history: String,
    /// File to write; its extension names the format
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    pub output: String,
    /// How to read
    #[command(flatten)]
    pub read: ReadArgs,
    /// How to judge
    #[command(flatten)]
    pub judging: JudgeArgs,
}

/// What an acknowledged read of nil says.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum NilReadsArg {
    /// The register was unset
    Unset,
    /// Nothing: the client got no value
    SayNothing,
}

/// What a failed compare-and-set says.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FailedCasArg {
    /// It did not happen, for whatever reason
    DidNotHappen,
    /// It ran and found another value than the expected one
    Observed,
}

/// Flags of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  elench run --dry-run examples/scenarios/etcd_leader_pause.md
  elench run examples/scenarios/postgres_serializable.md --confirm 2

Exit codes: 0 a PASS; 1 a FAIL; 2 the scenario is malformed (nothing was touched); 3 inconclusive or partial; 4 refused by the
perimeter, or it could not run; 5 the fault could not be taken back.")]
pub struct RunArgs {
    /// The scenario: Markdown with YAML front matter
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Do everything up to the injection, and print each command that would run
    #[arg(long)]
    pub dry_run: bool,
    /// Seed of the workload, instead of the scenario's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run it again so many times where it fails, to see whether it does again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub confirm: u32,
    /// Directory of configuration, rules, evidence and ledger
    #[arg(long, value_name = "DIR", default_value = ".elench")]
    pub home: PathBuf,
    /// Print the manifest of the evidence instead of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of `revert`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  elench revert\n  elench revert .elench/switch/4f0c….json")]
pub struct RevertArgs {
    /// Undo journals (default: all below the home that are not reverted)
    #[arg(value_name = "JOURNAL")]
    pub journals: Vec<PathBuf>,
    /// Directory of configuration, rules, evidence and ledger
    #[arg(long, value_name = "DIR", default_value = ".elench")]
    pub home: PathBuf,
}

/// What can be done with evidence.
#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// Recompute every hash of a run's evidence
    #[command(after_help = "Example:\n  elench evidence verify 4f0c…")]
    Verify {
        /// The run, or its directory
        run: String,
        /// Directory of configuration, rules, evidence and ledger
        #[arg(long, value_name = "DIR", default_value = ".elench")]
        home: PathBuf,
    },
}

/// What can be done with the ledger.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Ask one of the named queries
    #[command(
        after_help = "Examples:\n  elench ledger query\n  elench ledger query last-verdict acknowledged_writes_survive\n  elench ledger query failed-since 2026-01-01"
    )]
    Query {
        /// Its name; without one, the queries are listed
        name: Option<String>,
        /// Its arguments
        arguments: Vec<String>,
        /// Directory of configuration, rules, evidence and ledger
        #[arg(long, value_name = "DIR", default_value = ".elench")]
        home: PathBuf,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Make the database anew from the records
    Rebuild {
        /// Directory of configuration, rules, evidence and ledger
        #[arg(long, value_name = "DIR", default_value = ".elench")]
        home: PathBuf,
    },
}

/// Flags of `info`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  elench info history.edn\n  elench info --json test.jepsen")]
pub struct InfoArgs {
    /// Files, Jepsen store directories, or - for standard input
    #[arg(required = true, value_name = "HISTORY")]
    pub histories: Vec<String>,
    /// How to read
    #[command(flatten)]
    pub read: ReadArgs,
    /// Print one JSON document a history instead of text
    #[arg(long)]
    pub json: bool,
}

/// Flags of `convert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  elench convert history.edn history.parquet
  elench convert test.jepsen - --to jsonl | head
  elench convert --format plume history.txt history.arrow")]
pub struct ConvertArgs {
    /// File, Jepsen store directory, or - for standard input
    #[arg(value_name = "IN")]
    pub input: String,
    /// File to write, or - for standard output; its extension names the format
    #[arg(value_name = "OUT")]
    pub output: String,
    /// How to read
    #[command(flatten)]
    pub read: ReadArgs,
    /// Format to write
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(elench_formats::write::Target::ALL.map(|t| t.name())))]
    pub to: Option<String>,
}

/// Flags of lists.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `gen`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  elench gen cas-register --ops 10000 --clients 10 -o history.edn
  elench gen register --ops 100000000 --clients 50 --info 0.01 -o big.parquet
  elench gen list-append --fault g-single --seed 7 -o broken.edn")]
pub struct GenArgs {
    /// What the clients do
    #[arg(value_name = "WORKLOAD", value_parser = clap::builder::PossibleValuesParser::new(["register", "cas-register", "list-append", "rw-register"]))]
    pub workload: String,
    /// File to write, or - for standard output; its extension names the format
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    pub output: String,
    /// Format to write
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(elench_formats::write::Target::ALL.map(|t| t.name())))]
    pub to: Option<String>,
    /// Number of operations
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub ops: u64,
    /// Clients working at once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: u32,
    /// Seed: the same seed and flags give the same history
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Share of operations whose outcome stays unknown
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub info: f64,
    /// Share of operations that fail
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub fail: f64,
    /// Mean duration of an operation, such as 1ms
    #[arg(long, default_value = "1ms", value_parser = duration)]
    pub duration: Duration,
    /// Mean pause between a client's operations, as a share of their duration
    #[arg(long, default_value_t = 0.1)]
    pub think: f64,
    /// Keys (registers: values become [k v] where there is more than one)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub keys: Option<u32>,
    /// Zipf exponent of the choice of keys: 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    pub skew: f64,
    /// Registers: draw values from this many instead of writing each once
    #[arg(long, value_name = "N")]
    pub values: Option<u32>,
    /// Registers: share of writes
    #[arg(long, value_parser = share)]
    pub writes: Option<f64>,
    /// Transactions: the most micro-operations in one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub txn_len: u32,
    /// Transactions: snapshot isolation instead of serial execution
    #[arg(long)]
    pub snapshot: bool,
    /// Break the system once, in a named way (`--fault help` lists them)
    #[arg(long, value_name = "NAME")]
    pub fault: Option<String>,
    /// Record a nemesis that does nothing
    #[arg(long)]
    pub nemesis: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("a share is from 0 to 1".into()) }
}

/// A duration such as `90s`, `1.5m`, `200ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let (number, scale) =
        scaled(text, &units).ok_or("a duration is a number and ns, us, ms, s, m, h or d: 90s, 1.5m")?;
    Duration::try_from_secs_f64(number * scale).map_err(|e| e.to_string())
}

/// A size such as `500MB`, `4GiB`.
fn size(text: &str) -> Result<u64, String> {
    let units = [
        ("KiB", 1024.0),
        ("MiB", 1024.0 * 1024.0),
        ("GiB", 1024.0 * 1024.0 * 1024.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
    ];
    let (number, scale) = scaled(text, &units).ok_or("a size is a number and B, KB, MB, GB, KiB, MiB or GiB: 500MB")?;
    let bytes = number * scale;
    if (1.0..=1e18).contains(&bytes) { Ok(bytes as u64) } else { Err("that is no size of memory".into()) }
}

/// A number before the first unit that the text ends with.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<(f64, f64)> {
    units.iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some((number, *scale))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_and_sizes_are_numbers_with_units() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        assert!(duration("90").is_err());
        assert!(duration("-1s").is_err());
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("500MB"), Ok(500_000_000));
        assert!(size("0B").is_err());
    }
}
