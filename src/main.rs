//! The command.

use std::process::ExitCode;

fn main() -> ExitCode {
    elench::cli::main()
}
