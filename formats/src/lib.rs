//! Histories: what the clients of a distributed system saw, as columns, and every way in and out of that form.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod build;
pub mod columnar;
pub mod columns;
pub mod edn;
pub mod error;
pub mod event;
pub mod faults;
pub mod history;
pub mod jepsen;
pub mod json;
pub mod listing;
mod lists;
pub mod notation;
pub mod open;
mod order;
pub mod peers;
pub mod record;
pub mod schema;
pub mod sorting;
pub mod text;
pub mod value;
pub mod write;

pub use error::{Place, ReadError, Result};
pub use history::History;
pub use open::Format;
pub use value::Value;
