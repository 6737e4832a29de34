//! Does an integer occur twice?
//!
//! Integers in a range not much longer than they are many are marked in a bitmap. Others are dealt by hash into parts that fit into the
//! processor's cache, and each part goes through a small table: a table of them all would miss the cache at every one.
//! O(n). Memory: 4 bytes an integer at most for the bitmap, 8 for the parts.

/// Bits of a bitmap for each integer.
const SPREAD: u64 = 32;
/// Integers of a part, on average.
const PART: usize = 4096;
/// More parts at once would miss the cache while dealing.
const PARTS: usize = 2048;
/// An odd number near 2^64 divided by the golden ratio: multiplied by it, integers differ in their upper bits.
const SPREADING: u64 = 0x9e37_79b9_7f4a_7c15;

/// Are all of them different?
pub(super) fn all_differ(ints: &[i64]) -> bool {
    let (Some(&least), Some(&greatest)) = (ints.iter().min(), ints.iter().max()) else { return true };
    let span = greatest.abs_diff(least);
    if span / SPREAD < ints.len() as u64 {
        return differ_within(ints, least, span);
    }
    let bits = (ints.len() / PART).clamp(1, PARTS).next_power_of_two().trailing_zeros();
    let (starts, dealt) = deal(ints, bits);
    let mut table = Vec::new();
    starts.windows(2).all(|part| differ_in_table(&dealt[part[0]..part[1]], bits, &mut table))
}

fn differ_within(ints: &[i64], least: i64, span: u64) -> bool {
    let mut seen = vec![0u64; (span / 64 + 1) as usize];
    ints.iter().all(|n| {
        let at = n.abs_diff(least);
        let (word, bit) = (&mut seen[(at / 64) as usize], 1 << (at % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    })
}

/// Hashed, which is one to one, and dealt by the upper bits: where each part begins, and where the last ends.
fn deal(ints: &[i64], bits: u32) -> (Vec<usize>, Vec<u64>) {
    let hashed = |n: &i64| (*n as u64).wrapping_mul(SPREADING);
    let part = |hash: u64| if bits == 0 { 0 } else { (hash >> (64 - bits)) as usize };
    let mut starts = vec![0; (1 << bits) + 1];
    ints.iter().for_each(|n| starts[part(hashed(n)) + 1] += 1);
    (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
    let mut next = starts.clone();
    let mut dealt = vec![0; ints.len()];
    for hash in ints.iter().map(hashed) {
        let at = &mut next[part(hash)];
        dealt[*at] = hash;
        *at += 1;
    }
    (starts, dealt)
}

/// Of hashes that share their uppermost bits. The table has places in the part, from 1, and is left as it is.
fn differ_in_table(part: &[u64], shared: u32, table: &mut Vec<u32>) -> bool {
    let bits = (part.len() * 2).next_power_of_two().max(2).trailing_zeros();
    table.clear();
    table.resize(1 << bits, 0);
    let mask = table.len() - 1;
    part.iter().enumerate().all(|(i, hash)| {
        // Multiplied once more, as those below the shared ones mix too little.
        let mut at = ((hash << shared).wrapping_mul(SPREADING) >> (64 - bits)) as usize;
        loop {
            match table[at] {
                0 => break,
                known if part[known as usize - 1] == *hash => return false,
                _ => at = (at + 1) & mask,
            }
        }
        table[at] = i as u32 + 1;
        true
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::linear::tests::{Random, more, seed};

    #[test]
    fn what_a_set_of_all_says_is_said_whatever_the_integers_are() {
        let first = seed();
        let mut repeated = 0;
        for i in 0..400 * more() {
            let mut random = Random(first.wrapping_add(i));
            let n = random.below(300) as usize;
            let spread = [n as u64 + 1, n as u64 * n as u64 + 1, 1 << 40, u64::MAX][random.below(4) as usize];
            let shift = [0, 1, 32][random.below(3) as usize];
            let mut ints: Vec<i64> = (0..n).map(|_| (random.below(spread) << shift) as i64).collect();
            if random.chance(300) && n > 1 {
                ints[n - 1] = ints[random.below(n as u64 - 1) as usize];
            }
            let expected = ints.iter().collect::<HashSet<_>>().len() == n;
            repeated += u32::from(!expected);
            assert_eq!(all_differ(&ints), expected, "seed {first}, run {i}: {ints:?}");
        }
        assert!(repeated > 50, "{repeated}");
    }

    #[test]
    fn one_repeated_integer_among_many_parts_is_seen() {
        for far in [i64::MAX, i64::MIN, 0] {
            let mut ints: Vec<i64> = (1..100_000i64).map(|n| n.wrapping_mul(0x1234_5678_9abc_def1)).collect();
            ints.push(far);
            assert!(all_differ(&ints));
            ints.insert(7, far);
            assert!(!all_differ(&ints));
        }
    }
}
