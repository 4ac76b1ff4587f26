//! How long each clear in an I/O tree takes: gathered in any thread, put together, shown as the
//! seed shows it.
//!
//! The tree reads the clock before and after a clear and passes them to [`record`], which adds the
//! time to the histogram of the calling thread's shard. What is recorded has one reading of the
//! clock in it ([`clock_cost`]); the rest of measuring happens outside of the measured span, but in
//! the measured thread: throughput is measured without.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

/// Histograms that threads share out among themselves.
const SHARDS: usize = 16;
/// Lines of a shown histogram.
const BUCKETS: i32 = 10;
/// Times below this are exact; above, three digits are.
const EXACT: u64 = 1 << 11;

static GATHERED: [Mutex<Times>; SHARDS] = [const { Mutex::new(Times::NONE) }; SHARDS];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Adds a time, in nanoseconds.
pub(crate) fn record(nanoseconds: u64) {
    let mut mine = SHARD.get();
    if mine == usize::MAX {
        mine = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
        SHARD.set(mine);
    }
    let mut shard = GATHERED[mine]
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    shard.record(nanoseconds);
}

/// All that was recorded since the last call.
pub(crate) fn take() -> Times {
    let mut all = Times::default();
    for shard in &GATHERED {
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(&std::mem::take(&mut *shard));
    }
    all
}

/// Nanoseconds that one reading of the clock takes, undisturbed.
pub(crate) fn clock_cost() -> f64 {
    let readings = 1000;
    let batch = || {
        let start = Instant::now();
        for _ in 0..readings {
            std::hint::black_box(Instant::now());
        }
        start.elapsed()
    };
    let least = (0..100).map(|_| batch()).min().unwrap_or_default();
    least.as_secs_f64() * 1e9 / f64::from(readings)
}

/// The slot in which a time is counted: [`EXACT`] slots of one nanosecond, then half as many for
/// each further power of two.
fn slot(time: u64) -> usize {
    let coarse = time
        .checked_ilog2()
        .unwrap_or(0)
        .saturating_sub(EXACT.ilog2() - 1);
    usize::try_from(u64::from(coarse) * EXACT / 2 + (time >> coarse)).unwrap_or(usize::MAX)
}

/// The least time of a slot.
fn time_of(slot: usize) -> u64 {
    let (slot, half) = (slot as u64, EXACT / 2);
    let coarse = (slot / half).saturating_sub(1);
    (slot - coarse * half) << coarse
}

/// Times in nanoseconds, how often each came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// By [`slot`]. Recording a time has to cost as little as reading the clock.
    counts: Vec<u64>,
    pub(crate) count: u64,
    sum: f64,
    squares: f64,
}

impl Times {
    const NONE: Times = Times {
        counts: Vec::new(),
        count: 0,
        sum: 0.0,
        squares: 0.0,
    };

    #[allow(clippy::cast_precision_loss, reason = "of times below a day")]
    fn record(&mut self, time: u64) {
        let slot = slot(time);
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] += 1;
        self.count += 1;
        self.sum += time as f64;
        self.squares += (time as f64).powi(2);
    }

    /// Adds the times of `more`.
    pub(crate) fn add(&mut self, more: &Times) {
        let len = self.counts.len().max(more.counts.len());
        self.counts.resize(len, 0);
        for (mine, theirs) in self.counts.iter_mut().zip(&more.counts) {
            *mine += theirs;
        }
        self.count += more.count;
        self.sum += more.sum;
        self.squares += more.squares;
    }

    /// The mean; 0 of none.
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// The median; 0 of none.
    pub(crate) fn median(&self) -> u64 {
        self.at(50)
    }

    /// The least time that `hundredths` of all are not above.
    fn at(&self, hundredths: u64) -> u64 {
        let mut left = (self.count * hundredths).div_ceil(100).max(1);
        let found = self.counted().find(|(_, count)| {
            left = left.saturating_sub(*count);
            left == 0
        });
        found.map_or(0, |(time, _)| time)
    }

    /// The times that came, each with its count.
    fn counted(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(slot, count)| (time_of(slot), *count))
    }

    /// Logarithmic buckets from the least to the largest: the end of each, and its count.
    #[allow(clippy::cast_precision_loss, reason = "for display")]
    fn buckets(&self) -> Vec<(f64, u64)> {
        let (least, most) = (self.at(0), self.at(100));
        let ratio = (most as f64 / least.max(1) as f64).powf(1.0 / f64::from(BUCKETS));
        let end = |i: i32| match i {
            BUCKETS => most as f64,
            i => least.max(1) as f64 * ratio.powi(i),
        };
        let mut buckets: Vec<(f64, u64)> = (1..=BUCKETS).map(|i| (end(i), 0)).collect();
        for (time, count) in self.counted() {
            if let Some(bucket) = buckets.iter_mut().find(|(end, _)| time as f64 <= *end) {
                bucket.1 += count;
            }
        }
        buckets
    }

    /// Null of no times.
    #[allow(clippy::cast_precision_loss, reason = "for display")]
    pub(crate) fn json(&self) -> Value {
        if self.count == 0 {
            return Value::Null;
        }
        let variance = self.squares / self.count as f64 - self.mean().powi(2);
        let bucket = |(end, count)| json!({ "upper": end, "count": count });
        let buckets: Vec<Value> = self.buckets().into_iter().map(bucket).collect();
        json!({
            "count": self.count, "min": self.at(0), "max": self.at(100), "mean": self.mean(),
            "median": self.at(50), "stddev": variance.max(0.0).sqrt(),
            "p90": self.at(90), "p95": self.at(95), "p99": self.at(99),
            "buckets": buckets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_everything_once() {
        let mut times = Times::default();
        assert_eq!(times.json(), Value::Null);
        let mut more = Times::default();
        (1..=1000).for_each(|i| more.record(i));
        more.record(1_000_000);
        times.add(&more);
        times.add(&more);
        let json = times.json();
        assert_eq!((&json["count"], &json["min"]), (&json!(2002), &json!(1)));
        assert_eq!(times.median(), 501);
        assert_eq!((&json["median"], &json["p99"]), (&json!(501), &json!(991)));
        let buckets = times.buckets();
        assert_eq!(buckets.len(), 10);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 2002);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0), "{buckets:?}");
        assert!((times.mean() - 1499.5).abs() < 2.0, "{}", times.mean());
    }

    /// No time is more than a thousandth off, and exact below two thousand.
    #[test]
    fn times_have_three_digits() {
        for time in [0, 1, 2047, 2048, 123_456, u64::MAX / 2] {
            let mut times = Times::default();
            times.record(time);
            let off = time - times.at(50);
            assert!(
                off <= time / 1000 && (time >= EXACT || off == 0),
                "{time}: {off}"
            );
        }
    }
}
