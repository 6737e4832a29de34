//! What is in a history? Counts and groups that describe it, and never alone make a verdict.

mod clock;
mod exceptions;
mod latency;
mod rate;
mod stats;

pub use clock::clock;
pub use exceptions::{ExceptionGroup, exceptions};
pub use latency::{Latencies, latency};
pub use rate::{Rates, rate};
pub use stats::{FunctionCounts, Stats, stats};
