//! Which sums can some of these numbers have?
//!
//! The idea: a negative number that may be left out is a positive one that may be left out, seen from a lower start. So all are
//! positive; divided by their greatest common divisor, and taken in ascending order, the sums reached so far are a few
//! intervals, and mostly one: a number no greater than what is reached by one more only makes it longer. Where the intervals grow too many,
//! a bit a sum decides, within bounds; beyond those the least, the greatest and the divisor are all that is known.
//!
//! O(n log n) where the intervals stay few; else n times the intervals, or n times the greatest sum over 64. (Subset sum is
//! NP-complete in the length of its numbers, so some bound there must be.)

/// Intervals that are kept, at most.
const INTERVALS: usize = 1 << 12;
/// Bits that are kept, at most: 8 MB.
const BITS: u128 = 1 << 26;
/// Words of 64 bits that may be worked through.
const WORDS: u128 = 1 << 28;

/// The sums of all subsets of some numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The sum of the negative numbers: the least sum.
    least: i128,
    /// All sums are this far from the least times a whole number; 0 where there is but one sum.
    step: i128,
    /// The greatest sum, in steps from the least.
    reach: i128,
    known: Known,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// Sorted, disjoint and not adjacent, in steps from the least.
    Intervals(Vec<(i128, i128)>),
    /// A bit a step from the least.
    Bits(Vec<u64>),
    Bounds,
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Sums {
    /// Of these numbers, each less in size than 2^64 and fewer than 2^62 of them.
    pub fn of(numbers: impl IntoIterator<Item = i128>) -> Sums {
        let numbers: Vec<i128> = numbers.into_iter().filter(|&n| n != 0).collect();
        let least = numbers.iter().filter(|&&n| n < 0).sum();
        let step = numbers.iter().fold(0, |g, &n| gcd(g, n.abs()));
        let mut sizes: Vec<i128> = numbers.iter().map(|n| n.abs() / step).collect();
        sizes.sort_unstable();
        let reach = sizes.iter().sum();
        let known = intervals(&sizes).or_else(|| bits(&sizes, reach)).unwrap_or(Known::Bounds);
        Sums { least, step, reach, known }
    }

    /// Is this one of the sums? None where that is not known.
    pub fn contains(&self, sum: i128) -> Option<bool> {
        let above = sum - self.least;
        if above < 0 || (self.step == 0 && above != 0) || (self.step != 0 && above % self.step != 0) {
            return Some(false);
        }
        let steps = if self.step == 0 { 0 } else { above / self.step };
        if steps > self.reach {
            return Some(false);
        }
        match &self.known {
            Known::Intervals(all) => {
                let at = all.partition_point(|&(from, _)| from <= steps);
                Some(at > 0 && steps <= all[at - 1].1)
            }
            Known::Bits(words) => Some(words[(steps / 64) as usize] >> (steps % 64) & 1 == 1),
            // The numbers' own ends are always sums.
            Known::Bounds => (steps == 0 || steps == self.reach).then_some(true),
        }
    }

    /// The least and the greatest.
    pub fn bounds(&self) -> (i128, i128) {
        (self.least, self.least + self.reach * self.step)
    }

    /// In words, all moved by `base`: `7`, `0 to 9`, `0 to 9 or 20`, at most `n` runs of them.
    pub fn in_words(&self, base: i128, n: usize) -> String {
        let at = |steps: i128| base + self.least + steps * self.step;
        let by = if self.step > 1 { format!(" by {}", self.step) } else { String::new() };
        let run = |&(from, to): &(i128, i128)| match from == to {
            true => at(from).to_string(),
            false => format!("{} to {}{by}", at(from), at(to)),
        };
        match &self.known {
            Known::Intervals(all) => {
                let mut words: Vec<String> = all.iter().take(n).map(run).collect();
                if all.len() > n {
                    words.push(format!("{} more runs up to {}", all.len() - n, at(self.reach)));
                }
                words.join(" or ")
            }
            Known::Bits(_) | Known::Bounds => format!("some numbers from {} to {}", at(0), at(self.reach)),
        }
    }
}

fn intervals(sizes: &[i128]) -> Option<Known> {
    let mut all: Vec<(i128, i128)> = vec![(0, 0)];
    let mut merged = Vec::new();
    let mut work = 0u128;
    for &size in sizes {
        work += all.len() as u128;
        if work > WORDS {
            return None;
        }
        merged.clear();
        let (mut plain, mut moved) = (0, 0);
        while plain < all.len() || moved < all.len() {
            let shifted = all.get(moved).map(|&(from, to)| (from + size, to + size));
            let next = match (all.get(plain).copied(), shifted) {
                (Some(a), Some(b)) if a.0 <= b.0 => {
                    plain += 1;
                    a
                }
                (_, Some(b)) => {
                    moved += 1;
                    b
                }
                (Some(a), None) => {
                    plain += 1;
                    a
                }
                (None, None) => break,
            };
            push(&mut merged, next);
        }
        if merged.len() > INTERVALS {
            return None;
        }
        std::mem::swap(&mut all, &mut merged);
    }
    Some(Known::Intervals(all))
}

fn push(all: &mut Vec<(i128, i128)>, next: (i128, i128)) {
    match all.last_mut() {
        Some(last) if next.0 <= last.1 + 1 => last.1 = last.1.max(next.1),
        _ => all.push(next),
    }
}

fn bits(sizes: &[i128], reach: i128) -> Option<Known> {
    let words = reach as u128 / 64 + 1;
    if reach as u128 >= BITS || words * sizes.len() as u128 > WORDS {
        return None;
    }
    let mut all = vec![0u64; words as usize];
    all[0] = 1;
    for &size in sizes {
        let (jump, by) = ((size / 64) as usize, (size % 64) as u32);
        // From above, so that a number is not added twice.
        for at in (jump..all.len()).rev() {
            let from = at - jump;
            let low = if by > 0 && from > 0 { all[from - 1] >> (64 - by) } else { 0 };
            all[at] |= all[from] << by | low;
        }
    }
    Some(Known::Bits(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::tests::{Random, more, seed};

    fn all_sums(numbers: &[i128]) -> Vec<i128> {
        let subset = |mask: u32| numbers.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, n)| n).sum();
        let mut sums: Vec<i128> = (0..1u32 << numbers.len()).map(subset).collect();
        sums.sort_unstable();
        sums.dedup();
        sums
    }

    #[test]
    fn sums_are_those_of_all_subsets_whichever_way_they_are_kept() {
        let mut random = Random(seed());
        for _ in 0..3000 * more() {
            let scale = [1, 1, 7, 100][random.below(4) as usize];
            let width = [3, 10, 1000][random.below(3) as usize];
            let numbers: Vec<i128> = (0..random.below(9))
                .map(|_| (random.below(2 * width + 1) as i128 - i128::from(width)) * scale)
                .collect();
            let expected = all_sums(&numbers);
            let sums = Sums::of(numbers.iter().copied());
            assert_eq!(sums.bounds(), (expected[0], expected[expected.len() - 1]), "{numbers:?}");
            let mut sizes: Vec<i128> = numbers.iter().filter(|&&n| n != 0).map(|n| n.abs() / sums.step).collect();
            sizes.sort_unstable();
            let by_bits = Sums { known: bits(&sizes, sums.reach).unwrap(), ..sums.clone() };
            let by_bounds = Sums { known: Known::Bounds, ..sums.clone() };
            let (low, high) = sums.bounds();
            let mut near: Vec<i128> = (0..50).map(|_| low - 3 + (random.next() as i128) % (high - low + 7)).collect();
            near.extend(expected.iter().flat_map(|n| [n - 1, *n, n + 1]));
            for n in near {
                let is = expected.binary_search(&n).is_ok();
                assert_eq!(sums.contains(n), Some(is), "{n} of {numbers:?}");
                assert_eq!(by_bits.contains(n), Some(is), "{n} of {numbers:?}, by bits");
                assert!(by_bounds.contains(n).is_none_or(|told| told == is), "{n} of {numbers:?}, by bounds");
            }
        }
    }

    #[test]
    fn many_small_numbers_are_one_interval_and_many_odd_ones_still_have_bounds() {
        let sums = Sums::of((0..100_000).map(|n| n % 5 + 1));
        assert_eq!(sums.known, Known::Intervals(vec![(0, 300_000)]));
        assert_eq!(sums.in_words(10, 3), "10 to 300010");
        let mut random = Random(1);
        let sums = Sums::of((0..200).map(|_| (random.next() >> 2) as i128));
        assert_eq!(sums.known, Known::Bounds);
        assert_eq!(sums.contains(-1), Some(false));
        assert_eq!(sums.contains(sums.bounds().1), Some(true));
        let mut random = Random(2);
        let sums = Sums::of((0..40).map(|_| 100_000 + random.below(100_000) as i128));
        assert!(matches!(sums.known, Known::Bits(_)), "{:?}", sums.known);
    }

    #[test]
    fn no_number_has_one_sum() {
        let sums = Sums::of([0, 0]);
        assert_eq!((sums.contains(0), sums.contains(1), sums.contains(-1)), (Some(true), Some(false), Some(false)));
        assert_eq!(sums.in_words(5, 3), "5");
    }
}
