//! Naive twins: each reads the definitions of a checker word by word, against all operations, in as many loops as that takes. Histories have no
//! object behind them, so that all goes wrong; the checker has to give the same answer, the same violations, and name the same operations.

mod counts;
mod dumps;
mod formulas;
mod members;
mod monotonic;
mod pairs;
mod spoilt;

use elench_formats::Value;

use super::testing::{Answers, Call, Made, Twin, acknowledged, both, calls, chaos, history, history_lifting, seeds};
use crate::linear::tests::Random;

/// Marks an operation as made at rest.
const FINAL: &str = ", :final? true";

fn edn(text: &str) -> Value {
    elench_formats::edn::parse(text).unwrap()
}

/// One of these.
fn one_of<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len() as u64) as usize]
}

/// Those that count as made at rest. Where some are marked, these; else, where somebody vouches for them, the last one of each client that began
/// after all acknowledged changes had ended. With them: is one of the marked contradicted by a change that was acknowledged later?
fn at_rest<'a>(views: &[Call<'a>], changes: &[Call<'_>], vouched: bool) -> (Vec<Call<'a>>, bool) {
    let settled = |view: &Call<'_>| !changes.iter().any(|change| change.is_ok() && change.ended > view.began);
    let marked: Vec<Call<'a>> = views.iter().copied().filter(Call::is_final).collect();
    if !marked.is_empty() {
        let rest: Vec<Call<'a>> = marked.iter().copied().filter(settled).collect();
        let contradicted = rest.len() < marked.len();
        return (rest, contradicted);
    }
    let last = |view: &Call<'_>| !views.iter().any(|other| other.process == view.process && other.ended > view.ended);
    let mut rest: Vec<Call<'a>> = views.iter().copied().filter(|view| vouched && last(view) && settled(view)).collect();
    rest.sort_by_key(|view| view.process);
    (rest, false)
}
