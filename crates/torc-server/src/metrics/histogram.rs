//! A histogram of durations: one atomic per bucket and one for the sum.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in microseconds: from a commit into the page cache to a disk that hangs.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// How long something took, how often.
#[derive(Default, Debug)]
pub struct Histogram {
    /// Not cumulative; the last one has no bound.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// It took so long.
    pub fn observe(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Bounds in seconds with how many took at most that long, and at the end all of them.
    pub(super) fn cumulative(&self) -> (Vec<(f64, u64)>, u64) {
        let mut count = 0;
        let mut bounds = Vec::with_capacity(BOUNDS_US.len());
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_US) {
            count += bucket.load(Relaxed);
            bounds.push((bound as f64 / 1e6, count));
        }
        (bounds, count + self.buckets[BOUNDS_US.len()].load(Relaxed))
    }

    /// How many.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.cumulative().1
    }

    /// All of it together, in seconds.
    pub(super) fn sum(&self) -> f64 {
        self.sum_ns.load(Relaxed) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_their_bounds_belong_to_them() {
        let histogram = Histogram::default();
        for us in [100, 101, 3_000_000, 60_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let (bounds, all) = histogram.cumulative();
        assert_eq!((bounds[0], bounds[1]), ((0.0001, 1), (0.00025, 2)));
        assert_eq!((bounds[14], bounds[15], all), ((5.0, 3), (10.0, 3), 4));
        assert!((histogram.sum() - 63.000_201).abs() < 1e-9);
    }
}
