//! Was anything acknowledged lost, doubled, invented or put out of order?
//!
//! These checkers ask of elements: things that clients hand to a system (adds, sends, enqueues, writes of unique values) and that
//! others get back (reads, dequeues, dumps). All share a few rules.
//!
//! - An element that was acknowledged has to come back, if something looked for it *after* the acknowledgement. What was acknowledged
//!   after the last look is neither lost nor safe: it is counted as `unread`.
//! - An attempt that failed did not happen. If its element comes back and no other attempt explains it, that is an
//!   `aborted-effect`.
//! - An attempt of unknown outcome may have happened at any time from its invocation on. Present, it is `recovered`; absent, it is fine.
//! - What nobody attempted before it came back is `unexpected`.
//! - What removes elements and may or may not have happened explains missing ones.
//!
//! Elements are small integers (`elements`): an integer near the others is its own id, so that a read of consecutive elements is a
//! range, and sets of them are roaring bitmaps.
//!
//! Measured, in processor time an operation and peak memory an element (one thread, 10^7 operations, `benches/results/checkers.tsv`):
//! `set` 80 ns and 31 bytes, `set-full` 134 and 43, `no-lost-ack` 181 and 43, `prefix` 298 and 43, with ten elements read an operation; `total-queue` 65 and 74,
//! `queue --fifo` 109 and 162, `exactly-once` 54 and 67, `unique-ids` 46 and 21, wherever ids lie. Each is within three times decoding the file.

mod ack;
mod broadcast;
mod distinct;
mod dump;
pub(crate) mod elements;
mod ids;
pub mod log;
mod micro;
mod once;
mod prefix;
mod queue;
pub(crate) mod reads;
mod set;
#[cfg(test)]
mod tests;
mod words;

pub use ack::no_lost_ack;
pub use broadcast::{broadcast, incremental_broadcast};
pub use dump::{Dump, parse_dump};
pub use ids::{UniqueIds, unique_ids};
pub use once::{Effects, KeyPath, exactly_once};
pub use prefix::prefix;
pub use queue::{QueueOptions, Queues, queue, total_queue};
pub use set::{SetFull, set, set_full};
pub use words::{Guarantee, Role};
