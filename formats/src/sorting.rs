//! Stable sorting by an integer key, compiled once.
//!
//! The standard library's sorts are compiled anew for every closure that they compare with, five to thirty kilobytes of
//! machine code each: with a hundred of them a sixth of the checkers was sorting, and as much of the time to build them.
//! Here only the gathering of the keys and the moving of the items is generic; what sorts is one function a width of key.
//! Keys are read once an item, which is also faster than reading them through an index at each comparison.
//!
//! O(n log n) time, O(n) for what is sorted already; 16 or 32 bytes an item while it sorts, nothing for few items.

/// So few items are put in order where they stand.
const FEW: usize = 20;

/// Sorts by a key of up to 64 bits; items of one key keep their order.
pub fn sort_by<T>(items: &mut [T], key: impl Fn(&T) -> u64) {
    if items.len() <= FEW {
        return insert(items, key);
    }
    if items.is_sorted_by_key(&key) {
        return;
    }
    let mut keyed: Vec<_> = items.iter().map(key).zip(0..).collect();
    sort_narrow(&mut keyed);
    arrange(items, &mut keyed);
}

/// Sorts by a key of up to 128 bits, such as a [`pair`]; items of one key keep their order.
pub fn sort_by_wide<T>(items: &mut [T], key: impl Fn(&T) -> u128) {
    if items.len() <= FEW {
        return insert(items, key);
    }
    if items.is_sorted_by_key(&key) {
        return;
    }
    let mut keyed: Vec<_> = items.iter().map(key).zip(0..).collect();
    sort_wide(&mut keyed);
    arrange(items, &mut keyed);
}

/// The key that orders by `first`, then by `second`.
pub fn pair(first: u64, second: impl Into<u64>) -> u128 {
    u128::from(first) << 64 | u128::from(second.into())
}

/// The key that orders as signed numbers are ordered.
pub fn signed(number: i64) -> u64 {
    number as u64 ^ 1 << 63
}

#[inline(never)]
fn sort_narrow(keyed: &mut [(u64, usize)]) {
    keyed.sort_unstable();
}

#[inline(never)]
fn sort_wide(keyed: &mut [(u128, usize)]) {
    keyed.sort_unstable();
}

fn insert<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && key(&items[at]) < key(&items[at - 1]) {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Moves to every place the item whose old place is noted there. A place that was passed tells where its old item went.
fn arrange<T, K>(items: &mut [T], origins: &mut [(K, usize)]) {
    for i in 0..items.len() {
        let mut from = origins[i].1;
        while from < i {
            from = origins[from].1;
        }
        origins[i].1 = from;
        items.swap(i, from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sorting_is_that_of_the_standard_library(keys in vec((0_u64..30, any::<u32>()), 0..200)) {
            let named: Vec<_> = keys.into_iter().zip(0_usize..).collect();
            let mut expected = named.clone();
            expected.sort_by_key(|&((a, _), _)| a);
            let mut found = named.clone();
            sort_by(&mut found, |&((a, _), _)| a);
            prop_assert_eq!(&found, &expected);

            expected.sort_by_key(|&(key, _)| key);
            sort_by_wide(&mut found, |&((a, b), _)| pair(a, b));
            prop_assert_eq!(&found, &expected);
        }
    }
}
