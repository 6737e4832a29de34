//! How long did it take, in quantiles? A high dynamic range histogram with three digits: at most 200 KB, whatever is recorded, and
//! nothing while all durations are zero. Least and greatest are exact.

use hdrhistogram::Histogram;

use crate::findings::{Fact, Quantiles};

/// Durations in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    zeros: u64,
    some: Option<Histogram<u64>>,
    least: u64,
    greatest: u64,
}

/// Parts per thousand that are told.
const PARTS: [u16; 5] = [0, 500, 950, 990, 1000];

impl Latencies {
    /// One more; a negative one counts as zero.
    pub(crate) fn record(&mut self, nanoseconds: i64) {
        let n = nanoseconds.max(0).unsigned_abs();
        if n == 0 {
            self.zeros += 1;
            return;
        }
        if self.some.is_none() {
            self.some = Histogram::new(3).ok();
            self.least = n;
        }
        if let Some(histogram) = &mut self.some {
            // It resizes itself, so that every duration has a place.
            let _ = histogram.record(n);
        }
        self.least = self.least.min(n);
        self.greatest = self.greatest.max(n);
    }

    /// The quantiles 0, 0.5, 0.95, 0.99 and 1; none of nothing.
    pub(crate) fn fact(&self) -> Option<Fact> {
        let more = self.some.as_ref().map_or(0, Histogram::len);
        let count = self.zeros + more;
        let of = |part: u16| -> u64 {
            // The smallest rank that covers this part.
            let rank = (count * u64::from(part)).div_ceil(1000).max(1);
            match &self.some {
                _ if rank <= self.zeros => 0,
                None => 0,
                Some(_) if rank == self.zeros + 1 => self.least,
                Some(_) if rank == count => self.greatest,
                Some(histogram) => histogram
                    .value_at_quantile((rank - self.zeros) as f64 / more as f64)
                    .clamp(self.least, self.greatest),
            }
        };
        let quantiles = Quantiles { count, at: PARTS.iter().map(|&part| (part, of(part))).collect() };
        (count > 0).then_some(Fact::Quantiles(quantiles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(durations: &[i64]) -> Vec<u64> {
        let mut latencies = Latencies::default();
        durations.iter().for_each(|&d| latencies.record(d));
        match latencies.fact() {
            Some(Fact::Quantiles(q)) => q.at.into_iter().map(|(_, n)| n).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn quantiles_are_those_of_the_durations_recorded() {
        assert_eq!(at(&[-5, 0, 0]), [0, 0, 0, 0, 0]);
        assert_eq!(at(&[3_000_000, 4_000_000]), [3_000_000, 3_000_000, 4_000_000, 4_000_000, 4_000_000]);
        assert_eq!(at(&[0, 0, 0, 123_456_789]), [0, 0, 123_456_789, 123_456_789, 123_456_789]);
        let many: Vec<i64> = (1..=100_000).collect();
        for (got, exact) in at(&many).into_iter().zip([1, 50_000, 95_000, 99_000, 100_000u64]) {
            assert!(got.abs_diff(exact) * 1000 <= exact, "{got} for {exact}");
        }
        assert!(Latencies::default().fact().is_none());
    }
}
