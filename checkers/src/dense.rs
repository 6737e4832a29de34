//! How do scattered things come under small numbers? Ids for scalars, and groups by id.
//!
//! An integer near the first one met, and a text of a small id in its history's pool, are looked up in an array, all others in a hash
//! table. What is near grows with the number of ids, so that memory stays linear however many there are of these tables: 64 bytes an
//! id at most.

use elench_formats::columns::Scalar;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// No id.
pub(crate) const NO_ID: u32 = u32::MAX;

/// The window that is always there, how far below the first integer it begins, and by how much an id widens it.
const WINDOW: u64 = 64;
const BELOW: i64 = 32;
const WIDENS: u64 = 8;

/// Ids of scalars, from 0 on in the order in which these are met.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScalarIds {
    base: Option<i64>,
    ints: Vec<u32>,
    texts: Vec<u32>,
    far: HashMap<Scalar, u32, FixedState>,
    met: u32,
}

impl ScalarIds {
    /// The id of a scalar, and whether this is the first time that it is met. O(1).
    #[inline]
    pub(crate) fn id(&mut self, scalar: Scalar) -> (u32, bool) {
        let next = self.met;
        let window = WINDOW + WIDENS * u64::from(next);
        // What was far when it was first met stays where it is.
        let stays = !self.far.is_empty() && self.far.contains_key(&scalar);
        let known = match (self.offset(scalar), scalar) {
            (Some(off), Scalar::Int(_)) if off < window && !stays => at(&mut self.ints, off as usize),
            (Some(off), Scalar::Text(_)) if off < window && !stays => at(&mut self.texts, off as usize),
            _ => self.far.entry(scalar).or_insert(NO_ID),
        };
        let new = *known == NO_ID;
        if new {
            *known = next;
        }
        let id = *known;
        self.met += u32::from(new);
        (id, new)
    }

    /// From where its window begins.
    #[inline]
    fn offset(&mut self, scalar: Scalar) -> Option<u64> {
        match scalar {
            Scalar::Nil => None,
            Scalar::Text(text) => Some(u64::from(text)),
            Scalar::Int(n) => {
                let first = || if (0..BELOW).contains(&n) { 0 } else { n.saturating_sub(BELOW) };
                let base = *self.base.get_or_insert_with(first);
                (n >= base).then(|| n.wrapping_sub(base) as u64)
            }
        }
    }
}

#[inline]
fn at(list: &mut Vec<u32>, i: usize) -> &mut u32 {
    if i >= list.len() {
        list.resize(i + 1, NO_ID);
    }
    &mut list[i]
}

/// Pairs grouped by their first part, which is below `n`: where each group begins and the last ends, and the second parts in the order of
/// the pairs. Goes through the pairs twice.
pub(crate) fn grouped(n: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; n + 2];
    let mut len = 0;
    pairs.clone().for_each(|(from, _)| {
        starts[from as usize + 2] += 1;
        len += 1;
    });
    for i in 2..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut items = vec![0; len];
    pairs.for_each(|(from, to)| {
        let at = &mut starts[from as usize + 1];
        items[*at as usize] = to;
        *at += 1;
    });
    starts.pop();
    (starts, items)
}

/// The items of a group.
#[inline]
pub(crate) fn group((starts, items): &(Vec<u32>, Vec<u32>), of: usize) -> &[u32] {
    &items[starts[of] as usize..starts[of + 1] as usize]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::linear::tests::{Random, more, seed};

    #[test]
    fn scalars_get_the_ids_that_a_table_of_all_would_give() {
        let first = seed();
        for i in 0..200 * more() {
            let mut random = Random(first.wrapping_add(i));
            let (mut ids, mut table) = (ScalarIds::default(), HashMap::new());
            let spread = [100, 10_000, 1 << 40][random.below(3) as usize];
            for _ in 0..2000 {
                let n = random.below(spread) as i64;
                let scalar = match random.below(20) {
                    0 => Scalar::Nil,
                    1..4 => Scalar::Text(random.below(50) as u32),
                    4 => Scalar::Int([i64::MIN, i64::MAX, -n][random.below(3) as usize]),
                    _ => Scalar::Int(n),
                };
                let next = table.len() as u32;
                let known = table.get(&scalar).copied();
                table.entry(scalar).or_insert(next);
                assert_eq!(ids.id(scalar), (known.unwrap_or(next), known.is_none()), "seed {first}, run {i}");
            }
            assert_eq!(ids.met as usize, table.len());
        }
    }

    #[test]
    fn groups_keep_the_order_of_their_pairs() {
        let pairs = [(2, 5), (0, 7), (2, 4), (2, 5), (3, 1)];
        let all = grouped(5, pairs.into_iter());
        let groups: Vec<&[u32]> = (0..5).map(|of| group(&all, of)).collect();
        assert_eq!(groups, [&[7][..], &[], &[5, 4, 5], &[1], &[]]);
        assert_eq!(grouped(0, std::iter::empty()).0, [0]);
    }
}
