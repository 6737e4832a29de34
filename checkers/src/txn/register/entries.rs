//! What is done with each key?
//!
//! Whoever goes over one key after the other finds its reads and writes lying together with all that they say: to look each of them up
//! in the columns of transactions would miss the cache more than once a micro-operation. O(micro-operations). Memory: 16 bytes a read
//! or write, 4 a key.

use std::ops::Range;

use elench_formats::history::Status;

use crate::txn::history::{Kind, Mop, NONE, Txn, Txns};

/// A read that returned, or a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The code of its value.
    pub value: i64,
    /// Its transaction.
    pub txn: Txn,
    /// Its number, of which there are [fewer](crate::graph::build::MAX_NODES) than 2²⁹, and in the highest bits what is below.
    mop: u32,
}

const WRITES: u32 = 1 << 31;
const OK: u32 = 1 << 30;
const FAILED: u32 = 1 << 29;

impl Entry {
    /// The micro-operation.
    #[inline]
    pub(super) fn mop(self) -> Mop {
        self.mop & !(WRITES | OK | FAILED)
    }

    /// Does it write? Else it reads.
    #[inline]
    pub(super) fn writes(self) -> bool {
        self.mop & WRITES != 0
    }

    /// Was its transaction acknowledged?
    #[inline]
    pub(super) fn ok(self) -> bool {
        self.mop & OK != 0
    }

    /// Did its transaction fail?
    #[inline]
    pub(super) fn failed(self) -> bool {
        self.mop & FAILED != 0
    }
}

/// Reads and writes by key, those of a key in order of transactions and within them.
#[derive(Debug)]
pub(super) struct Entries {
    offsets: Vec<u32>,
    entries: Vec<Entry>,
}

impl Entries {
    /// Of all transactions.
    pub(super) fn new(txns: &Txns<'_>) -> Entries {
        let says = |kind: Kind| kind == Kind::Read || kind.writes();
        let mut offsets = vec![0u32; txns.keys.len() + 2];
        for (&key, &kind) in txns.key.iter().zip(&txns.kind) {
            offsets[key as usize + 2] += u32::from(says(kind));
        }
        for k in 2..offsets.len() {
            offsets[k] += offsets[k - 1];
        }
        let count = offsets.last().map_or(0, |&n| n as usize);
        let mut entries = vec![Entry { value: 0, txn: NONE, mop: NONE }; count];
        for txn in 0..txns.len() as Txn {
            let end = match txns.status[txn as usize] {
                Status::Ok => OK,
                Status::Fail => FAILED,
                _ => 0,
            };
            for mop in txns.mops(txn).filter(|&m| says(txns.kind[m])) {
                let at = &mut offsets[txns.key[mop] as usize + 1];
                let writes = if txns.kind[mop].writes() { WRITES } else { 0 };
                entries[*at as usize] = Entry { value: txns.value[mop], txn, mop: mop as Mop | writes | end };
                *at += 1;
            }
        }
        offsets.pop();
        Entries { offsets, entries }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Those of a key.
    #[inline]
    pub(super) fn get(&self, key: usize) -> &[Entry] {
        &self.entries[self.offsets[key] as usize..self.offsets[key + 1] as usize]
    }

    /// How many there are of some keys.
    #[inline]
    pub(super) fn count(&self, keys: Range<usize>) -> usize {
        (self.offsets[keys.end] - self.offsets[keys.start]) as usize
    }

    /// Keys cut into runs with about so many each.
    pub(super) fn runs(&self, most: usize) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut start = 0;
        for key in 0..self.len() {
            if self.count(start..key + 1) >= most || key + 1 == self.len() {
                runs.push(start..key + 1);
                start = key + 1;
            }
        }
        runs
    }
}

/// Entries of each transaction.
pub(super) fn by_transaction(entries: &[Entry]) -> impl Iterator<Item = (Txn, &[Entry])> {
    entries.chunk_by(|a, b| a.txn == b.txn).map(|own| (own[0].txn, own))
}
