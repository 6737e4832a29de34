//! Isolation of transactions.

pub mod anomaly;
pub mod lattice;
