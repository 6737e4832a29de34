//! `elench shrink`.

use std::path::Path;
use std::time::Duration;

use elench_checkers::linear::Evidence;
use elench_checkers::outcome::{Answer, OpId};
use elench_checkers::workload::guess;
use elench_formats::write::to_file;

use super::args::ShrinkArgs;
use super::check::judging;
use super::convert::target;
use super::progress::{Reading, Working};
use super::{Exit, Stop};
use crate::judge::{Judge, Reads};
use crate::report;

/// For how long to seek what is smaller, where no time was given.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks a history, and writes the smallest part of it that still fails.
pub(super) fn run(args: &ShrinkArgs) -> Result<Exit, Stop> {
    let target = target(None, &args.output)?;
    let history = {
        let bar = Reading::new(&args.history);
        elench_formats::open::open(&args.history, &args.read.options(), &|read, total| bar.tell(read, total))?
    };
    let options = judging(&args.judging, &args.read)?;
    let workload = guess(&history);
    let Some(name) = options.model.as_deref().or(workload.model) else {
        return Err(Stop::Error(format!("no model fits ({}): name one with --model", workload.why)));
    };
    let judge = Judge::named(name)?;
    judge.refuse_initial(&history, &options.initial)?;
    let reads = Reads { initial: options.initial, failed_cas: options.failed_cas, nil_reads: options.nil_reads };
    let case = judge.read(&history, &reads).map_err(Stop::Error)?;
    let shrink_time = args.judging.time.unwrap_or(PATIENCE);
    let evidence = Evidence { shrunk_keys: usize::MAX, shrink_time, orders: false, ..Evidence::default() };
    let outcome = {
        let _bar = Working::new(&format!("shrinking {}", args.history));
        case.problems.linear(&options.budget, &evidence)
    };
    match outcome.answer() {
        Answer::Valid(_) => eprintln!("{}: linearizable as a {name}: nothing fails", args.history),
        Answer::Unknown(why) => eprintln!("{}: not decided: {why}", args.history),
        Answer::Invalid(violations) => {
            let smallest =
                violations.iter().map(report::minimal).filter(|ops| !ops.is_empty()).min_by_key(|ops| ops.len());
            let Some(ops) = smallest else {
                eprintln!("{}: it fails, but nothing smaller was found in {shrink_time:?}", args.history);
                return Ok(Exit::Inconclusive);
            };
            let mut rows: Vec<usize> = ops.iter().filter_map(|&OpId(id)| history.row_of(id)).collect();
            rows.sort_unstable();
            to_file(&history.select(rows), target, Path::new(&args.output))?;
            let (kept, all) = (ops.len(), history.len());
            println!("{}: {kept} of {all} operations, which are not linearizable as a {name}", args.output);
            return Ok(Exit::Passed);
        }
    }
    Ok(Exit::Inconclusive)
}
