//! How long did it take, in quantiles? Few durations are kept as they are, many in a high dynamic range histogram of three digits, of at
//! most 200 KB whatever is recorded. Least and greatest are exact. What was recorded of parts is merged as if it had been
//! recorded together.

use hdrhistogram::Histogram;

use crate::findings::Quantiles;

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latencies {
    zeros: u64,
    /// Those above zero, up to [`FEW`].
    few: Vec<u64>,
    /// All above zero, once there are more.
    many: Option<Histogram<u64>>,
    least: u64,
    greatest: u64,
}

/// Parts per thousand that are told.
const PARTS: [u16; 5] = [0, 500, 950, 990, 1000];
/// So many durations take less memory than a histogram.
const FEW: usize = 512;

impl Latencies {
    /// One more; a negative one counts as zero.
    pub(crate) fn record(&mut self, nanoseconds: i64) {
        let n = nanoseconds.max(0).unsigned_abs();
        if n == 0 {
            self.zeros += 1;
            return;
        }
        let first = self.few.is_empty() && self.many.is_none();
        self.least = if first { n } else { self.least.min(n) };
        self.greatest = self.greatest.max(n);
        match &mut self.many {
            // It resizes itself, so that every duration has a place; `saturating_record` would not let it.
            Some(histogram) => drop(histogram.record(n)),
            None => {
                self.few.push(n);
                if self.few.len() > FEW {
                    self.pour();
                }
            }
        }
    }

    /// Those of another part.
    pub(crate) fn merge(&mut self, other: &Latencies) {
        let (own, theirs) = (self.above_zero(), other.above_zero());
        self.zeros += other.zeros;
        if theirs == 0 {
            return;
        }
        self.least = if own == 0 { other.least } else { self.least.min(other.least) };
        self.greatest = self.greatest.max(other.greatest);
        self.few.extend(&other.few);
        if self.few.len() > FEW || self.many.is_some() || other.many.is_some() {
            self.pour();
        }
        if let (Some(all), Some(more)) = (&mut self.many, &other.many) {
            // It resizes itself, as above.
            let _ = all.add(more);
        }
    }

    /// Into the histogram.
    fn pour(&mut self) {
        if self.many.is_none() {
            self.many = Histogram::new(3).ok();
        }
        if let Some(histogram) = &mut self.many {
            for n in std::mem::take(&mut self.few) {
                let _ = histogram.record(n);
            }
        }
    }

    fn above_zero(&self) -> u64 {
        self.few.len() as u64 + self.many.as_ref().map_or(0, Histogram::len)
    }

    /// The quantiles 0, 0.5, 0.95, 0.99 and 1; none of nothing.
    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let more = self.above_zero();
        let count = self.zeros + more;
        let mut sorted = self.few.clone();
        sorted.sort_unstable();
        let of = |part: u16| -> u64 {
            // The smallest rank that covers this part.
            let rank = (count * u64::from(part)).div_ceil(1000).max(1);
            let Some(rank) = rank.checked_sub(self.zeros).filter(|&rank| rank > 0) else { return 0 };
            match &self.many {
                _ if rank == 1 => self.least,
                _ if rank == more => self.greatest,
                None => sorted[rank as usize - 1],
                Some(many) => many.value_at_quantile(rank as f64 / more as f64).clamp(self.least, self.greatest),
            }
        };
        (count > 0).then(|| Quantiles { count, at: PARTS.iter().map(|&part| (part, of(part))).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: &[i64]) -> Latencies {
        let mut latencies = Latencies::default();
        durations.iter().for_each(|&d| latencies.record(d));
        latencies
    }

    fn at(latencies: &Latencies) -> Vec<u64> {
        latencies.quantiles().unwrap().at.into_iter().map(|(_, n)| n).collect()
    }

    #[test]
    fn quantiles_are_those_of_the_durations_recorded() {
        assert_eq!(at(&of(&[-5, 0, 0])), [0, 0, 0, 0, 0]);
        assert_eq!(at(&of(&[3_000_000, 4_000_000])), [3_000_000, 3_000_000, 4_000_000, 4_000_000, 4_000_000]);
        assert_eq!(at(&of(&[0, 0, 0, 123_456_789])), [0, 0, 123_456_789, 123_456_789, 123_456_789]);
        let many: Vec<i64> = (1..=100_000).collect();
        for (got, exact) in at(&of(&many)).into_iter().zip([1, 50_000, 95_000, 99_000, 100_000u64]) {
            assert!(got.abs_diff(exact) * 1000 <= exact, "{got} for {exact}");
        }
        assert!(Latencies::default().quantiles().is_none());
    }

    #[test]
    fn parts_merged_are_what_is_recorded_together() {
        let durations = |from: i64, n: i64| (from..from + n).map(|i| i * i * 7919 % 1_000_003 * 1000 - 5000);
        for sizes in [[0, 5], [5, 0], [300, 300], [5, 2000], [2000, 5], [2000, 3000]] {
            let [a, b] = [(0, sizes[0]), (7000, sizes[1])].map(|(from, n)| durations(from, n).collect::<Vec<_>>());
            let mut merged = of(&a);
            merged.merge(&of(&b));
            assert_eq!(merged.quantiles(), of(&[a, b].concat()).quantiles(), "{sizes:?}");
        }
    }
}
