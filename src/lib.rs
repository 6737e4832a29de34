//! Elench.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod generate;
