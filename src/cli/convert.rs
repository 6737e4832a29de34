//! `elench convert`.

use std::io;
use std::path::Path;

use elench_formats::write::{Target, to_file, to_writer};

use super::args::ConvertArgs;
use super::progress::{Reading, Working};
use super::{Exit, Stop};

/// Reads one history and writes it in another format.
pub(super) fn run(args: &ConvertArgs) -> Result<Exit, Stop> {
    let target = target(args.to.as_deref(), &args.output)?;
    let history = {
        let bar = Reading::new(&args.input);
        elench_formats::open::open(&args.input, &args.read.options(), &|read, total| bar.tell(read, total))?
    };
    let keeps_origin = matches!(target, Target::Parquet | Target::Arrow);
    if history.meta().format == "process-log" && !keeps_origin && history.clients().any(|op| op.f() == Some("cas")) {
        eprintln!(
            "note: in a process log a failed cas saw another value; {} does not say so: check it with --failed-cas observed",
            target.name()
        );
    }
    let _bar = Working::new(&format!("writing {}", args.output));
    if args.output == "-" {
        to_writer(&history, target, &mut io::stdout())?;
    } else {
        to_file(&history, target, Path::new(&args.output))?;
    }
    Ok(Exit::Passed)
}

/// The format to write: as asked, else by the file's extension.
pub(super) fn target(asked: Option<&str>, output: &str) -> Result<Target, Stop> {
    if let Some(target) = asked.and_then(Target::from_name) {
        return Ok(target);
    }
    Target::from_path(Path::new(output)).ok_or_else(|| {
        let names: Vec<_> = Target::ALL.iter().map(|t| t.name()).collect();
        Stop::Error(format!("`{output}` has no extension that names a format: say --to {}", names.join(", --to ")))
    })
}
