//! The command: arguments to calls, nothing else.

pub mod args;
pub(crate) mod check;
mod convert;
mod experiment;
mod generate;
mod info;
mod progress;
mod shrink;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use elench_formats::build::Lift;
use elench_formats::open::{Format, OpenOptions};
use serde_json::json;

use args::{Cli, Command, ListArgs, ReadArgs};

/// Exit codes, from `ARCHITECTURE.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every check passed.
    Passed = 0,
    /// A violation.
    Violation = 1,
    /// The request or the input is bad.
    Bad = 2,
    /// Inconclusive.
    Inconclusive = 3,
    /// An experiment was refused, or could not run.
    Refused = 4,
    /// A rollback failed.
    RollbackFailed = 5,
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    elench_formats::columnar::silence_caught_panics();
    if let Command::Hold { command } = &cli.command {
        return experiment::hold(command);
    }
    match run(cli) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(Stop::Pipe) => ExitCode::SUCCESS,
        Err(Stop::Error(message)) => {
            eprintln!("elench: {message}");
            ExitCode::from(Exit::Bad as u8)
        }
    }
}

/// Why a command stopped early.
enum Stop {
    /// Whoever read our output went away.
    Pipe,
    /// Something to tell the user.
    Error(String),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Stop::Pipe } else { Stop::Error(e.to_string()) }
    }
}

impl From<elench_formats::ReadError> for Stop {
    fn from(e: elench_formats::ReadError) -> Self {
        Stop::Error(e.to_string())
    }
}

impl From<crate::check::BadRequest> for Stop {
    fn from(e: crate::check::BadRequest) -> Self {
        Stop::Error(e.to_string())
    }
}

fn run(cli: Cli) -> Result<Exit, Stop> {
    match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Shrink(args) => shrink::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Run(args) => experiment::run(&args),
        Command::Revert(args) => experiment::revert(&args),
        Command::Doctor(args) => experiment::doctor(&args),
        Command::Evidence(command) => experiment::evidence(&command),
        Command::Ledger(command) => experiment::ledger(&command),
        Command::Switch { journal } => experiment::switch(&journal),
        // Its code is the command's, not one of ours: see `main`.
        Command::Hold { .. } => Ok(Exit::Passed),
        Command::Gen(args) => generate::run(&args),
        Command::Checkers(args) => checkers(&args),
        Command::Models(args) => models(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "elench", &mut script);
            io::stdout().write_all(&script)?;
            Ok(Exit::Passed)
        }
        Command::Man => man(),
    }
}

/// One page for the command and all its subcommands.
fn man() -> Result<Exit, Stop> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands() {
        let name = format!("elench-{}", sub.get_name());
        clap_mangen::Man::new(sub.clone().name(name)).render(&mut page)?;
    }
    io::stdout().write_all(&page)?;
    Ok(Exit::Passed)
}

fn checkers(args: &ListArgs) -> Result<Exit, Stop> {
    let mut out = io::stdout().lock();
    for c in crate::check::checkers() {
        if args.json {
            let line = json!({ "name": c.name, "question": c.question, "needs": c.needs, "example": c.example, "judges": c.judges });
            writeln!(out, "{line}")?;
            continue;
        }
        let describes = if c.judges { "" } else { " (describes; makes no verdict)" };
        writeln!(
            out,
            "{}{describes}\n  asks     {}\n  needs    {}\n  example  {}\n",
            c.name, c.question, c.needs, c.example
        )?;
    }
    Ok(Exit::Passed)
}

fn models(args: &ListArgs) -> Result<Exit, Stop> {
    let mut out = io::stdout().lock();
    for m in &crate::check::MODELS {
        if args.json {
            let line =
                json!({ "name": m.name, "operations": m.operations, "initial": m.initial, "example": m.example });
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(
            out,
            "{}\n  operations  {}\n  initial     {}\n  example     {}\n",
            m.name, m.operations, m.initial, m.example
        )?;
    }
    Ok(Exit::Passed)
}

impl ReadArgs {
    fn options(&self) -> OpenOptions {
        OpenOptions {
            format: self.format.as_deref().and_then(Format::from_name),
            lift: match (self.independent, self.no_independent) {
                (_, true) => Lift::Never,
                (true, false) => Lift::Always,
                (false, false) => Lift::Auto,
            },
            lenient: self.lenient,
            threads: self.threads.map_or(0, usize::from),
        }
    }
}
