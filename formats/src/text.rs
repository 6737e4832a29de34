//! Interning: each distinct text once, known by a dense integer.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Distinct texts in the order in which they were first seen; ids are dense from 0.
///
/// Cost: one hash and one comparison a look-up; the bytes of each distinct text once, and 12 bytes beside.
#[derive(Debug)]
pub struct TextPool {
    identity: u64,
    bytes: String,
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: FixedState,
}

impl Default for TextPool {
    fn default() -> Self {
        TextPool {
            identity: next_identity(),
            bytes: String::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::default(),
        }
    }
}

impl Clone for TextPool {
    fn clone(&self) -> Self {
        TextPool {
            identity: next_identity(),
            bytes: self.bytes.clone(),
            ends: self.ends.clone(),
            table: self.table.clone(),
            hasher: self.hasher.clone(),
        }
    }
}

fn next_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl TextPool {
    /// The id of a text, new if it was not seen before. `None` when the pool would outgrow 4 GiB of text.
    pub fn try_intern(&mut self, text: &str) -> Option<u32> {
        let TextPool { bytes, ends, table, hasher, .. } = self;
        let hash = hasher.hash_one(text);
        if let Some(&id) = table.find(hash, |&id| slice(bytes, ends, id) == text) {
            return Some(id);
        }
        let end = u32::try_from(bytes.len() + text.len()).ok()?;
        let id = u32::try_from(ends.len()).ok().filter(|&id| id < u32::MAX)?;
        bytes.push_str(text);
        ends.push(end);
        table.insert_unique(hash, id, |&id| hasher.hash_one(slice(bytes, ends, id)));
        Some(id)
    }

    /// The id of a text, if it is there.
    pub fn find(&self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |&id| self.get(id) == text).copied()
    }

    /// The text of an id that this pool gave out.
    #[inline]
    pub fn get(&self, id: u32) -> &str {
        slice(&self.bytes, &self.ends, id)
    }

    /// How many distinct texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No text yet?
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All texts in id order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        (0..self.ends.len() as u32).map(|id| self.get(id))
    }

    /// Bytes of all texts together.
    pub fn text_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Says which pool this is: an id, once given out, means the same text for as long as the identity stays.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Forgets every text, keeping the memory; the identity changes.
    pub fn clear(&mut self) {
        self.identity = next_identity();
        self.bytes.clear();
        self.ends.clear();
        self.table.clear();
    }
}

#[inline]
fn slice<'a>(bytes: &'a str, ends: &[u32], id: u32) -> &'a str {
    let i = id as usize;
    let start = if i == 0 { 0 } else { ends[i - 1] as usize };
    &bytes[start..ends[i] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_id() {
        let mut pool = TextPool::default();
        let ids: Vec<_> = ["read", "", "write", "read", ""].iter().map(|t| pool.try_intern(t)).collect();
        assert_eq!(ids, [Some(0), Some(1), Some(2), Some(0), Some(1)]);
        assert_eq!(pool.iter().collect::<Vec<_>>(), ["read", "", "write"]);
        assert_eq!(pool.find("write"), Some(2));
        assert_eq!(pool.find("cas"), None);
    }
}
