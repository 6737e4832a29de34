//! What is in a history? Counts and groups that describe it, and never alone make a verdict.
//!
//! Measured (one thread, 10^6 operations, `benches/results/checkers.tsv`): `latency` and `rate` 30 ns of processor time an operation, the others less
//! than 10; a byte or two of peak memory an operation.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::outcome::Status;

mod clock;
mod exceptions;
mod latency;
mod rate;
mod stats;
#[cfg(test)]
mod twins;

pub use clock::clock;
pub use exceptions::{ExceptionGroup, exceptions};
pub use latency::{Latencies, latency};
pub use rate::{Rates, rate};
pub use stats::{FunctionCounts, Stats, stats};

/// Something by name and outcome. O(1) an operation, and no text but the first time.
#[derive(Debug)]
struct ByOutcome<T>(HashMap<String, [T; 3], FixedState>);

impl<T> Default for ByOutcome<T> {
    fn default() -> Self {
        ByOutcome(HashMap::default())
    }
}

impl<T: Default> ByOutcome<T> {
    fn at(&mut self, name: &str, status: Status) -> &mut T {
        &mut self.0.entry_ref(name).or_default()[status as usize]
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut().flatten()
    }

    /// By name, then by the outcome's.
    fn iter(&self) -> impl Iterator<Item = (&str, &'static str, &T)> {
        let order = [(Status::Fail, "fail"), (Status::Info, "info"), (Status::Ok, "ok")];
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        sorted.into_iter().flat_map(move |(name, all)| order.map(|(s, end)| (name.as_str(), end, &all[s as usize])))
    }
}
