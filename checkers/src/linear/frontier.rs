//! Sets of configurations, each a few words wide, in one allocation.
//!
//! A configuration is `width` words; all of a set lie one after another in one vector, each with the tail of its order in
//! the [log](super::log). A hash table of indices finds equal ones: by fingerprint first, then by comparing all words.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A set of configurations.
#[derive(Debug)]
pub(super) struct Frontier {
    width: usize,
    words: Vec<u64>,
    tails: Vec<u32>,
    table: HashTable<u32>,
    hasher: FixedState,
}

impl Frontier {
    /// An empty set of configurations of so many words.
    pub(super) fn new(width: usize) -> Self {
        let (words, tails, table) = (Vec::new(), Vec::new(), HashTable::new());
        Frontier { width, words, tails, table, hasher: FixedState::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.tails.len()
    }

    pub(super) fn get(&self, i: usize) -> &[u64] {
        &self.words[i * self.width..(i + 1) * self.width]
    }

    pub(super) fn tail(&self, i: usize) -> u32 {
        self.tails[i]
    }

    /// For changes that keep unequal ones unequal. Nothing may be inserted from then on.
    pub(super) fn get_mut(&mut self, i: usize) -> &mut [u64] {
        &mut self.words[i * self.width..(i + 1) * self.width]
    }

    /// Sets the tail of what was inserted last.
    pub(super) fn set_last_tail(&mut self, tail: u32) {
        if let Some(last) = self.tails.last_mut() {
            *last = tail;
        }
    }

    pub(super) fn tails_mut(&mut self) -> &mut [u32] {
        &mut self.tails
    }

    /// Empties the set; what it holds from now on is `width` words wide.
    pub(super) fn clear(&mut self, width: usize) {
        self.width = width;
        self.words.clear();
        self.tails.clear();
        self.table.clear();
    }

    /// Adds a configuration unless an equal one is there.
    pub(super) fn insert(&mut self, config: &[u64], tail: u32) -> bool {
        debug_assert_eq!(config.len(), self.width);
        let hash = fingerprint(&self.hasher, config);
        let Frontier { width, words, tails, table, hasher } = self;
        let at = |i: u32| &words[i as usize * *width..(i as usize + 1) * *width];
        if table.find(hash, |&i| at(i) == config).is_some() {
            return false;
        }
        table.insert_unique(hash, tails.len() as u32, |&i| fingerprint(hasher, at(i)));
        words.extend_from_slice(config);
        tails.push(tail);
        true
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        (self.words.capacity() * 8 + self.tails.capacity() * 4 + self.table.capacity() * 5) as u64
    }
}

#[inline]
fn fingerprint(hasher: &FixedState, config: &[u64]) -> u64 {
    let mut state = hasher.build_hasher();
    for &word in config {
        state.write_u64(word);
    }
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_configurations_are_kept_once_and_a_cleared_set_may_change_width() {
        let mut set = Frontier::new(2);
        assert!(set.insert(&[1, 2], 0) && set.insert(&[2, 1], 1) && !set.insert(&[1, 2], 2));
        assert_eq!((set.len(), set.get(1), set.tail(1)), (2, &[2, 1][..], 1));
        set.clear(3);
        assert!(set.insert(&[1, 2, 0], 0));
        assert_eq!(set.get(0), [1, 2, 0]);
    }
}
