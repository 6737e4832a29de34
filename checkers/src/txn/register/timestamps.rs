//! In which order did transactions commit, according to the database?
//!
//! A recorder that knows gives a transaction's operation a field `commit-ts` (or `commit_ts`, `commit-timestamp`, `commit_timestamp`): an
//! integer, or `[p l]` of a hybrid clock. A transaction's number in an order that the database gives is one, too. It is
//! a claim of the database that is judged, so it is believed only where that is asked for.
//!
//! Of transactions that committed at the same time, or do not say when, no order is assumed. O(transactions · log).

use elench_formats::History;
use elench_formats::edn;
use elench_formats::value::Value;

use crate::txn::history::{NONE, Txn, Txns};

/// Names of the field.
pub const FIELDS: [&str; 4] = ["commit-ts", "commit_ts", "commit-timestamp", "commit_timestamp"];

/// By transaction: the rank of its commit, the same for those that committed at the same time; [`NONE`] where it is not said.
pub(super) fn ranks(history: &History, txns: &Txns<'_>) -> Vec<u32> {
    let when = |t: Txn| {
        let op = history.op(txns.row[t as usize] as usize);
        FIELDS.iter().find_map(|name| op.extra(name)).and_then(timestamp)
    };
    let mut all: Vec<([i64; 2], Txn)> = (0..txns.len() as Txn).filter_map(|t| Some((when(t)?, t))).collect();
    all.sort_unstable();
    let mut ranks = vec![NONE; txns.len()];
    for (rank, same) in all.chunk_by(|a, b| a.0 == b.0).enumerate() {
        same.iter().for_each(|&(_, t)| ranks[t as usize] = rank as u32);
    }
    ranks
}

/// A time from its EDN text; none where it is neither an integer nor two of them.
pub fn timestamp(text: &str) -> Option<[i64; 2]> {
    match edn::parse(text).ok()? {
        Value::Int(n) => Some([n, 0]),
        Value::Vector(parts) => match parts[..] {
            [Value::Int(physical), Value::Int(logical)] => Some([physical, logical]),
            _ => None,
        },
        _ => None,
    }
}

/// Is it known that one committed before another one?
#[inline]
pub(super) fn before(ranks: &[u32], one: Txn, other: Txn) -> bool {
    let rank = |t: Txn| ranks.get(t as usize).copied().filter(|&r| r != NONE);
    rank(one).zip(rank(other)).is_some_and(|(a, b)| a < b)
}
