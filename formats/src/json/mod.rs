//! How are histories read from JSON, and values written to it?
//!
//! JSON cannot say everything that a history can hold (keywords, sets, ratios), and JSON libraries cannot say everything
//! that JSON can: they refuse lone surrogates, round large numbers, and count no lines across blocks. So the tokenizer
//! is our own, strict and small (`cursor`); one driver reads records block by block, whatever encloses them
//! (`feed`); one shredder turns what stands in a field into cells without building trees (`cells`). On these stand the
//! [Jepsen-shaped reader](events) and the [default schema](crate::schema), and beside them exact [values](value).
//!
//! Cost: one pass over the text; memory is one block, one batch, and the longest record.

pub(crate) mod cells;
pub(crate) mod cursor;
pub mod events;
pub(crate) mod feed;
pub mod sniff;
pub mod value;
