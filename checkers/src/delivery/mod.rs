//! Was anything acknowledged lost, doubled, or out of order?

pub mod log;
