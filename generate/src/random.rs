//! Random choices from a seed: the same on every machine, so nothing here touches a float's logarithm.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

#[derive(Debug)]
pub(super) struct Random(Xoshiro256PlusPlus);

/// A probability, as a bound on 53 random bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odds(u64);

impl Odds {
    pub(super) fn new(p: f64) -> Odds {
        Odds((p * (1u64 << 53) as f64) as u64)
    }
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Evenly below `n`, but for a bias of `n` in 2^64.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    #[inline]
    pub(super) fn chance(&mut self, odds: Odds) -> bool {
        self.unit() < odds.0
    }

    /// One draw that falls into the first share, the second, or neither.
    #[inline]
    pub(super) fn either(&mut self, first: Odds, second: Odds) -> Option<bool> {
        let x = self.unit();
        if x < first.0 {
            Some(true)
        } else if x < first.0 + second.0 {
            Some(false)
        } else {
            None
        }
    }

    /// 53 random bits.
    #[inline]
    pub(super) fn unit(&mut self) -> u64 {
        self.0.next_u64() >> 11
    }

    /// Exponentially distributed but for a few per cent: the number of tails before the first head, plus an even
    /// fraction, has mean 3/2 and halves from each whole number to the next.
    #[inline]
    pub(super) fn spread(&mut self, mean: u64) -> u64 {
        let bits = self.0.next_u64();
        let tails = u64::from((bits as u32).trailing_zeros());
        let units = (tails << 32) | (bits >> 32);
        ((u128::from(units) * u128::from(mean) / 3) >> 31) as u64
    }
}
