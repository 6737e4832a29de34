//! What is in a history? Counts and groups that describe it, and never alone make a verdict.

mod exceptions;
mod stats;

pub use exceptions::{ExceptionGroup, exceptions};
pub use stats::{FunctionCounts, Stats, stats};
