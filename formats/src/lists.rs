//! Elements of lists, held once where lists are prefixes of one another.
//!
//! In histories of appends most reads of a key show a prefix of what others show. An arena keeps a key's longest list so far
//! with some room behind it: a read that is a prefix of it is a view of the same elements, one that continues it adds only
//! what is new. A list moves when its room is used up and gets twice as much, so an arena holds O(longest list) elements a
//! key unless reads contradict each other, and each read costs one comparison.
//!
//! Which keys these are is kept in a table that forgets: two keys a slot, the one that was read last first. Few keys are in use
//! at a time, and one that was forgotten only begins anew.

use arrow_array::Int64Array;

use crate::error::{ReadError, Result};
use crate::event::{Cell, Span};

/// Elements, and the longest lists of keys among them.
#[derive(Debug, Default)]
pub(crate) struct ListArena {
    ints: Vec<i64>,
    /// Empty, or two keys for each of the slots.
    longest: Vec<[(Cell, Room); 2]>,
}

/// A list, and how many elements there is room for where it lies.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    list: Span,
    room: u32,
}

/// Slots of the table of keys: a power of two.
const SLOTS: usize = 1 << 11;

/// A key that is in no slot reads as one that has no list, which is what it is.
const FREE: (Cell, Room) = (Cell::Nil, Room { list: Span { start: 0, len: 0 }, room: 0 });

impl ListArena {
    /// The elements of a list.
    pub(crate) fn get(&self, span: Span) -> &[i64] {
        &self.ints[span.range()]
    }

    /// All elements.
    pub(crate) fn ints(&self) -> &[i64] {
        &self.ints
    }

    /// Adds a list.
    ///
    /// # Errors
    /// When there are more than 2^31 elements, as for all that adds.
    pub(crate) fn push(&mut self, ints: &[i64]) -> Result<Span> {
        let start = self.ints.len();
        room_for(start + ints.len())?;
        self.ints.extend_from_slice(ints);
        Ok(Span { start: start as u32, len: ints.len() as u32 })
    }

    /// Adds a list that was read of a key.
    pub(crate) fn push_read(&mut self, key: Cell, ints: &[i64]) -> Result<Span> {
        let known_room = Self::longest(&mut self.longest, key);
        let Room { list: longest, room } = *known_room;
        let known = &self.ints[longest.range()];
        let list = Span { start: longest.start, len: ints.len() as u32 };
        if ints.len() <= known.len() {
            return if known[..ints.len()] == *ints { Ok(list) } else { self.push(ints) };
        }
        if ints[..known.len()] != *known {
            return self.push(ints);
        }
        if list.len <= room {
            let new = longest.len as usize..ints.len();
            self.ints[list.range()][new.clone()].copy_from_slice(&ints[new]);
            known_room.list = list;
            return Ok(list);
        }
        let list = self.push(ints)?;
        let room = if longest.len == 0 { list.len } else { list.len.saturating_mul(2) };
        let end = list.start as usize + room as usize;
        room_for(end)?;
        self.ints.resize(end, 0);
        *Self::longest(&mut self.longest, key) = Room { list, room };
        Ok(list)
    }

    /// What is known of a key, which from now on is the first of its slot.
    #[inline]
    fn longest(table: &mut Vec<[(Cell, Room); 2]>, key: Cell) -> &mut Room {
        if table.is_empty() {
            table.resize(SLOTS, [FREE; 2]);
        }
        let number = match key {
            Cell::Int(n) => n as u64,
            Cell::Text(t) => u64::from(t) ^ 1 << 63,
            _ => 1 << 62,
        };
        let slot = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2());
        let [first, second] = &mut table[slot as usize];
        if first.0 != key {
            std::mem::swap(first, second);
            if first.0 != key {
                *first = (key, Room::default());
            }
        }
        &mut first.1
    }

    /// All elements as an array, if there are any; none is left.
    pub(crate) fn take(&mut self) -> Option<Int64Array> {
        self.longest.fill([FREE; 2]);
        let mut ints = std::mem::take(&mut self.ints);
        if ints.is_empty() {
            return None;
        }
        // The next ones mostly need about as much; pages that are not touched cost nothing.
        self.ints.reserve(ints.len() + ints.len() / 4);
        ints.shrink_to_fit();
        Some(Int64Array::new(ints.into(), None))
    }
}

fn room_for(elements: usize) -> Result<()> {
    if elements <= i32::MAX as usize {
        return Ok(());
    }
    Err(ReadError::new("more than 2^31 list elements within 65,536 operations")
        .hint("lists that are prefixes of one another are held once; these differ. Is this a history?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_what_is_there_and_prefixes_share() {
        let mut seed = 7u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut arena = ListArena::default();
        let mut added = Vec::new();
        for _ in 0..20_000 {
            let key = if random(2) == 0 { Cell::Int(random(3) as i64 * 4_000) } else { Cell::Text(random(2) as u32) };
            let list: Vec<i64> = (0..random(40)).map(|i| if random(200) == 0 { -1 } else { i as i64 }).collect();
            let span = if random(10) == 0 { arena.push(&list) } else { arena.push_read(key, &list) };
            added.push((span.expect("there is room"), list));
        }
        for (span, list) in &added {
            assert_eq!(arena.get(*span), list);
        }
        let total: usize = added.iter().map(|(_, list)| list.len()).sum();
        assert!(arena.ints().len() < total / 2, "{} of {total}", arena.ints().len());
        assert_eq!(arena.take().map(|a| a.len() > 40), Some(true));
        assert!(arena.take().is_none());
    }

    #[test]
    fn one_growing_list_takes_linear_room() {
        let mut arena = ListArena::default();
        let list: Vec<i64> = (0..10_000).collect();
        for n in 0..=list.len() {
            let span = arena.push_read(Cell::Nil, &list[..n]).expect("there is room");
            assert_eq!(arena.get(span), &list[..n]);
        }
        assert!(arena.ints().len() < 4 * list.len(), "{}", arena.ints().len());
    }
}
