//! In which order do a partition's messages stand?
//!
//! Offsets have gaps: transactions leave markers, logs are compacted. So what counts is the *position*: the how-manieth of the known
//! offsets of its partition. Positions of all partitions are numbered through, partition after partition.
//!
//! Messages are sorted by offset within their partitions, in parallel: O(n log n) at worst, 20 bytes a message. An offset far out costs
//! no more than any other.

use super::collect::{Collected, NONE, NOWHERE, TOLD, message_of};
use crate::parallel;

/// All partitions' messages by offset.
#[derive(Debug)]
pub(super) struct Order {
    /// Messages; where each position's begin.
    entries: Vec<u32>,
    starts: Vec<u32>,
    offsets: Vec<i64>,
    /// Where each partition's positions begin.
    keys: Vec<u32>,
    /// The position of each message's own offset; [`NONE`] where nobody told it.
    at: Vec<u32>,
    /// Messages at more than one offset, ascending, with all of these.
    spread: Vec<(u32, i64, u32)>,
}

impl Order {
    pub(super) fn of(all: &Collected) -> Order {
        let spread = spread(all);
        let further = spread.iter().filter(|&&(m, offset, _)| all.messages[m as usize].offset != offset);
        let own = all.messages.iter().enumerate().filter(|(_, m)| m.offset != NOWHERE);
        let told = own.map(|(i, m)| (m.key, m.offset, i as u32));
        let told = told.chain(further.map(|&(m, offset, _)| (all.messages[m as usize].key, offset, m)));
        let (mut sorted, bounds) = by_key(told, all.keys.len());
        let mut slices = Vec::with_capacity(all.keys.len());
        let mut rest = sorted.as_mut_slice();
        for w in bounds.windows(2) {
            let (own, more) = rest.split_at_mut(w[1] - w[0]);
            slices.push(own);
            rest = more;
        }
        parallel::map_items(slices, |own| own.sort_unstable());
        Order::number(all, &sorted, &bounds, spread)
    }

    fn number(all: &Collected, sorted: &[(i64, u32)], bounds: &[usize], spread: Vec<(u32, i64, u32)>) -> Order {
        let mut order = Order {
            entries: Vec::with_capacity(sorted.len()),
            starts: Vec::new(),
            offsets: Vec::new(),
            keys: Vec::with_capacity(bounds.len()),
            at: vec![NONE; all.messages.len()],
            spread,
        };
        for w in bounds.windows(2) {
            order.keys.push(order.offsets.len() as u32);
            let mut last = None;
            for &(offset, message) in &sorted[w[0]..w[1]] {
                if last != Some(offset) {
                    order.starts.push(order.entries.len() as u32);
                    order.offsets.push(offset);
                    last = Some(offset);
                }
                order.entries.push(message);
                if all.messages[message as usize].offset == offset {
                    order.at[message as usize] = order.offsets.len() as u32 - 1;
                }
            }
        }
        order.starts.push(order.entries.len() as u32);
        order.keys.push(order.offsets.len() as u32);
        order
    }

    /// Number of positions.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// The positions of a partition.
    pub(super) fn of_key(&self, key: u32) -> std::ops::Range<u32> {
        self.keys[key as usize]..self.keys[key as usize + 1]
    }

    /// What stands at a position.
    #[inline]
    pub(super) fn messages(&self, position: u32) -> &[u32] {
        &self.entries[self.starts[position as usize] as usize..self.starts[position as usize + 1] as usize]
    }

    /// The message at a position, if there is but one.
    #[inline]
    pub(super) fn message(&self, position: u32) -> Option<u32> {
        if let [message] = self.messages(position) { Some(*message) } else { None }
    }

    /// A position's offset.
    pub(super) fn offset(&self, position: u32) -> i64 {
        self.offsets[position as usize]
    }

    /// Messages at more than one offset: each with these, ascending, and who told them first.
    pub(super) fn spread(&self) -> impl Iterator<Item = &[(u32, i64, u32)]> {
        self.spread.chunk_by(|a, b| a.0 == b.0)
    }

    /// The highest offset at which a message stands; [`NOWHERE`] where nobody told one.
    pub(super) fn highest(&self, all: &Collected, message: u32) -> i64 {
        let end = self.spread.partition_point(|&(m, _, _)| m <= message);
        match self.spread.get(end.wrapping_sub(1)) {
            Some(&(m, offset, _)) if m == message => offset,
            _ => all.messages[message as usize].offset,
        }
    }

    /// The position that a touch speaks of. None where nothing tells it, and at an offset that holds two values, for then there is
    /// no telling where in the order either stands.
    #[inline]
    pub(super) fn position(&self, all: &Collected, touch: usize) -> Option<u32> {
        let word = all.touches[touch];
        let number = message_of(word);
        let position = if word & TOLD != 0 {
            match all.elsewhere.get(&(touch as u32)).filter(|_| !all.elsewhere.is_empty()) {
                Some(&offset) => self.find(all.messages[number as usize].key, offset)?,
                None => self.at[number as usize],
            }
        } else {
            let only = all.messages[number as usize].is_unique() && (self.spread.is_empty() || !self.is_spread(number));
            if only { self.at[number as usize] } else { NONE }
        };
        (position != NONE && self.messages(position).len() == 1).then_some(position)
    }

    /// The offset that a touch speaks of; [`NOWHERE`] where nothing tells it.
    pub(super) fn offset_of(&self, all: &Collected, touch: usize) -> i64 {
        let own = all.messages[message_of(all.touches[touch]) as usize].offset;
        all.elsewhere.get(&(touch as u32)).copied().unwrap_or(own)
    }

    fn is_spread(&self, message: u32) -> bool {
        self.spread.binary_search_by_key(&message, |&(m, _, _)| m).is_ok()
    }

    fn find(&self, key: u32, offset: i64) -> Option<u32> {
        let own = self.of_key(key);
        let offsets = &self.offsets[own.start as usize..own.end as usize];
        offsets.binary_search(&offset).ok().map(|i| own.start + i as u32)
    }
}

/// Messages that were said to stand at more than one offset, with all of these.
fn spread(all: &Collected) -> Vec<(u32, i64, u32)> {
    let mut spread = all.more.clone();
    for &(m, _, _) in &all.more {
        let message = &all.messages[m as usize];
        spread.push((m, message.offset, message.placed));
    }
    spread.sort_unstable();
    spread.dedup_by_key(|&mut (m, offset, _)| (m, offset));
    spread
}

/// A counting sort: pairs by partition, and where each partition's begin.
fn by_key(told: impl Iterator<Item = (u32, i64, u32)> + Clone, keys: usize) -> (Vec<(i64, u32)>, Vec<usize>) {
    let mut bounds = vec![0usize; keys + 2];
    told.clone().for_each(|(key, _, _)| bounds[key as usize + 2] += 1);
    for i in 2..bounds.len() {
        bounds[i] += bounds[i - 1];
    }
    let mut sorted = vec![(0, 0); bounds.last().copied().unwrap_or(0)];
    told.for_each(|(key, offset, message)| {
        let at = &mut bounds[key as usize + 1];
        sorted[*at] = (offset, message);
        *at += 1;
    });
    bounds.pop();
    (sorted, bounds)
}
