//! Which connections does a fault hit, when it may hit a share of them?
//!
//! Tossing a coin for each would hit more than the cap half of the time, and none of a handful every so often. So hits are rationed: of the
//! first n connections at most ⌊n·share⌋ are hit, but one at least where there is any, as a fault that hits nothing is none; never less
//! than ⌊n·share⌋ − 1. Within these bounds a seed says which. O(1) a connection.

/// Millionths: shares are rounded down to them, so that no rounding reaches above the cap.
const WHOLE: u64 = 1_000_000;

/// Spreads a seed and a number over all bits (the finalizer of splitmix64).
pub(super) fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A ration of hits.
#[derive(Clone, Debug)]
pub(super) struct Ration {
    share: u64,
    seed: u64,
    seen: u64,
    hits: u64,
}

impl Ration {
    /// Of a share, 0 to 1.
    pub(super) fn new(share: f64, seed: u64) -> Ration {
        // Half a millionth more than nothing, so that 0.29 is not 0.289999.
        let share = (share.clamp(0.0, 1.0) * WHOLE as f64 + 1e-6).floor() as u64;
        Ration { share, seed, seen: 0, hits: 0 }
    }

    /// How many of so many may be hit.
    pub(super) fn allowed(&self, of: u64) -> u64 {
        let share = self.due(of);
        if self.share == 0 || of == 0 { 0 } else { share.max(1) }
    }

    fn due(&self, of: u64) -> u64 {
        (u128::from(of) * u128::from(self.share) / u128::from(WHOLE)) as u64
    }

    /// Those of a list that are hit, to begin with.
    pub(super) fn begin(&mut self, ids: &[u64]) -> Vec<u64> {
        let mut order = ids.to_vec();
        order.sort_by_key(|id| (mix(self.seed, *id), *id));
        self.seen += ids.len() as u64;
        order.truncate(self.allowed(ids.len() as u64) as usize);
        self.hits += order.len() as u64;
        order
    }

    /// Is the next one hit? `room`: may one more be hit of those that are there at once?
    pub(super) fn next(&mut self, room: bool) -> bool {
        self.seen += 1;
        if !room || self.hits >= self.allowed(self.seen) {
            return false;
        }
        let overdue = self.due(self.seen) >= self.hits + 2;
        let hit = overdue || mix(self.seed ^ 0x5eed, self.seen) % WHOLE < self.share;
        self.hits += u64::from(hit);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prefix_of_connections_is_hit_more_often_than_the_cap_nor_much_less() {
        for percent in [1u64, 3, 10, 29, 34, 50, 57, 99, 100] {
            for seed in 0..50 {
                let mut ration = Ration::new(percent as f64 / 100.0, seed);
                let mut hits = 0;
                for n in 1..=1000u64 {
                    hits += u64::from(ration.next(true));
                    let share = n * percent / 100;
                    assert!(hits <= share.max(1), "{percent} % of {n}, seed {seed}: {hits}");
                    assert!(hits + 2 > share, "{percent} % of {n}, seed {seed}: {hits}");
                }
            }
        }
    }

    #[test]
    fn which_are_hit_depends_on_the_seed_and_on_nothing_else() {
        let run = |seed| {
            let mut ration = Ration::new(0.3, seed);
            let first = ration.begin(&[3, 5, 8, 9, 11, 20, 21]);
            (first, (0..200).map(|_| ration.next(true)).collect::<Vec<_>>())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_eq!(run(1).0.len(), 2, "30 % of 7");
    }

    #[test]
    fn nothing_is_hit_of_nothing_and_one_at_least_of_few() {
        let mut none = Ration::new(0.0, 1);
        assert!(none.begin(&[1, 2]).is_empty());
        assert!(!(0..100).any(|_| none.next(true)));
        assert_eq!(Ration::new(0.1, 1).begin(&[7]), [7]);
        assert!(Ration::new(0.1, 1).begin(&[]).is_empty());
        let mut all = Ration::new(1.0, 1);
        assert!((0..100).all(|_| all.next(true)));
    }

    #[test]
    fn without_room_none_is_hit_and_the_ration_is_caught_up_with_later() {
        let mut ration = Ration::new(0.5, 4);
        assert!(!(0..100).any(|_| ration.next(false)));
        let later = (0..100).filter(|_| ration.next(true)).count();
        assert!((90..=100).contains(&later), "{later}");
    }
}
