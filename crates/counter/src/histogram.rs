//! A histogram of durations, by powers of two of a microsecond.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{OWNED, add_to, own_cell};

/// Buckets of a [`Histogram`]. The last but one ends at 4.2 s, later than any request of a sound
/// device.
pub const BUCKETS: usize = 24;

/// How many durations there were of each order of magnitude. Bucket 0 counts those below 1 µs, and
/// each other bucket `b` those from `2^(b-1)` µs on that are below `2^b` µs; the last one has no
/// upper bound. Each of the first threads has a cell of its own, of whole cache lines.
#[derive(Default)]
pub struct Histogram {
    cells: [BucketCell; OWNED + 1],
}

#[derive(Default)]
#[repr(align(64))]
struct BucketCell([AtomicU64; BUCKETS]);

/// The shortest duration of a bucket, in microseconds.
pub const fn lower_bound(bucket: usize) -> u64 {
    (1 << bucket) >> 1
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn count(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bits = u64::BITS - micros.leading_zeros();
        let number = own_cell();
        add_to(
            &self.cells[number].0[(bits as usize).min(BUCKETS - 1)],
            number,
            1,
        );
    }

    /// The number of durations so far, by bucket.
    pub fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| {
            let counts = self
                .cells
                .iter()
                .map(|cell| cell.0[bucket].load(Ordering::Relaxed));
            counts.fold(0, u64::wrapping_add)
        })
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.buckets().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn buckets_begin_at_powers_of_two() {
        let histogram = Histogram::default();
        let most = Duration::MAX;
        for bucket in 1..BUCKETS {
            let begin = Duration::from_micros(lower_bound(bucket));
            histogram.count(begin);
            histogram.count(begin - Duration::from_nanos(1));
        }
        histogram.count(most);
        let mut expected = [2; BUCKETS];
        expected[0] = 1;
        assert_eq!(histogram.buckets(), expected);
        assert_eq!((lower_bound(0), lower_bound(1), lower_bound(4)), (0, 1, 8));
    }

    #[test]
    fn no_duration_is_lost_with_more_threads_than_cells() {
        // Interpreted, a step takes a thousand times as long.
        const EACH: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let histogram = Histogram::default();
        // All at once: a thread that ends gives its cell to the next.
        let start = Barrier::new(3 * OWNED);
        std::thread::scope(|scope| {
            for _ in 0..3 * OWNED {
                scope.spawn(|| {
                    start.wait();
                    (0..EACH).for_each(|_| histogram.count(Duration::ZERO));
                });
            }
        });
        assert_eq!(histogram.buckets()[0], 3 * OWNED as u64 * EACH);
    }
}
