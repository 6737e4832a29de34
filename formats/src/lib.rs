//! Histories: what the clients of a distributed system saw, as columns, and every way in and out of that form.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod build;
pub mod columnar;
pub mod columns;
pub mod error;
pub mod event;
pub mod faults;
pub mod history;
mod order;
pub mod text;
pub mod value;

pub use error::{Place, ReadError, Result};
pub use history::History;
pub use value::Value;
