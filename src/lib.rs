//! Elench takes the history that the clients of a distributed system recorded, and tries to refute what the system
//! claims.
//!
//! [`check::check`] is the main entry: a [`History`](elench_formats::History) in, a [`check::Report`] out.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod battery;
pub mod certificate;
pub mod check;
pub mod cli;
pub mod driver;
pub mod evidence;
pub mod experiment;
pub mod isolation;
pub mod judge;
pub mod ledger;
pub mod report;
pub mod table;
pub mod verdict;
pub mod verify;
