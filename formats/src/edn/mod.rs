//! What does this EDN text say, as one value or as the events of a history?
//!
//! EDN is what Clojure prints, and histories hold more of it than the EDN specification admits: ratios, `##Inf`,
//! `#object[…]`, records under their class names, integers of any size, lone surrogates, old `#<…>` objects. All of
//! it is read and kept.
//!
//! - [`parse`] reads one form into a [`Value`](crate::Value): the slow and complete way.
//! - [`events`] reads histories of any length into columns, with no tree in between: the fast way. What it does not
//!   recognise at once it hands to the slow way, so that both always agree.
//!
//! Cost: linear in the text, apart from the sorting of sets and maps; nesting is bounded by
//! [`MAX_DEPTH`](crate::value::MAX_DEPTH). The grammar is that of <https://github.com/edn-format/edn> widened by what
//! Clojure's own printer and reader do (`clojure.lang.EdnReader`, `clojure.core/print-method`).

pub mod events;
pub(crate) mod op;
pub(crate) mod token;
mod value;

#[cfg(test)]
pub(crate) mod tests;

pub use value::{parse, parse_bytes};
