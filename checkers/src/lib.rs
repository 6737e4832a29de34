//! Pure functions from a history to what it proves: no files, no printing, no clock but the one in [`Budget`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod budget;
pub mod delivery;
mod dense;
pub mod descriptive;
pub mod expr;
pub mod findings;
pub mod graph;
pub mod invariant;
mod latencies;
pub mod linear;
pub mod model;
mod named;
pub mod outcome;
mod parallel;
mod parts;
pub mod session;
pub mod txn;
pub mod weak;
pub mod workload;

pub use budget::{Budget, Spent};
pub use model::Model;
pub use outcome::{Answer, Coverage, KeyId, OpId, Outcome, Status, Violation, Why};
