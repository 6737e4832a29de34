//! Histories: what the clients of a distributed system saw, as columns, and every way in and out of that form.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod edn;
pub mod error;
pub mod event;
pub mod json;
pub mod listing;
pub mod schema;
pub mod text;
pub mod value;

pub use error::{Place, ReadError, Result};
pub use value::Value;
