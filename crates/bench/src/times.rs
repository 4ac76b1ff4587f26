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

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Histograms that threads share out among themselves.
const SHARDS: usize = 16;
/// Lines of a shown histogram.
const BUCKETS: i32 = 10;
/// Longest time that is distinguished from longer ones: a minute.
const LONGEST: u64 = 60_000_000_000;

static GATHERED: [Mutex<Option<Histogram<u64>>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];
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
    shard
        .get_or_insert_with(empty)
        .saturating_record(nanoseconds);
}

/// All that was recorded since the last call.
pub(crate) fn take() -> Times {
    let mut all = Times::default();
    for shard in &GATHERED {
        let part = shard.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(part) = part {
            all.add(&Times(Some(part)));
        }
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

#[allow(clippy::unwrap_used, reason = "the bounds are constants")]
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).unwrap()
}

/// Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Option<Histogram<u64>>);

/// A line of a shown histogram: times above `low`, up to `high`.
struct Bucket {
    low: f64,
    high: f64,
    count: u64,
}

impl Times {
    /// Adds the times of `more`.
    pub(crate) fn add(&mut self, more: &Times) {
        let Some(more) = &more.0 else { return };
        // Both have the same bounds.
        let _ = self.0.get_or_insert_with(empty).add(more);
    }

    /// The mean; 0 of none.
    pub(crate) fn mean(&self) -> f64 {
        self.0.as_ref().map_or(0.0, Histogram::mean)
    }

    /// Logarithmic buckets from the least to the largest.
    #[allow(clippy::cast_precision_loss, reason = "for display")]
    fn buckets(&self) -> Vec<Bucket> {
        let Some(times) = self.0.as_ref().filter(|times| !times.is_empty()) else {
            return Vec::new();
        };
        let least = times.min().max(1) as f64;
        let ratio = (times.max() as f64 / least).powf(1.0 / f64::from(BUCKETS));
        let edge = |i: i32| match i {
            0 => times.min() as f64,
            BUCKETS => times.max() as f64,
            _ => least * ratio.powi(i),
        };
        let mut buckets: Vec<Bucket> = (0..BUCKETS)
            .map(|i| Bucket {
                low: edge(i),
                high: edge(i + 1),
                count: 0,
            })
            .collect();
        for step in times.iter_recorded() {
            let value = step.value_iterated_to() as f64;
            let last = buckets.len() - 1;
            let at = buckets.iter().position(|b| value <= b.high);
            // Past the last bucket's end it is the last.
            buckets[at.unwrap_or(last)].count += step.count_at_value();
        }
        buckets
    }

    /// As the seed has it.
    #[allow(clippy::cast_precision_loss, reason = "for display")]
    pub(crate) fn text(&self) -> String {
        let Some(times) = &self.0 else {
            return "Count: 0\n".into();
        };
        let at = |quantile| times.value_at_quantile(quantile);
        let mut out = format!(
            "Count: {}\nRange: {} - {}; Mean: {:.3}; Median: {}; Stddev: {:.3}\n\
             Percentiles: 90th: {}; 95th: {}; 99th: {}\n",
            times.len(),
            times.min(),
            times.max(),
            times.mean(),
            at(0.5),
            times.stdev(),
            at(0.9),
            at(0.95),
            at(0.99),
        );
        let buckets = self.buckets();
        let most = buckets.iter().map(|b| b.count).max().unwrap_or(0).max(1);
        for Bucket { low, high, count } in buckets {
            let bar = usize::try_from(count * 53 / most).unwrap_or(0);
            let bar = "#".repeat(bar);
            out += format!("{low:>14.3} - {high:>14.3}: {count:>9} |{bar}").trim_end();
            out.push('\n');
        }
        out
    }

    pub(crate) fn json(&self) -> Value {
        let Some(times) = &self.0 else {
            return Value::Null;
        };
        let at = |quantile| times.value_at_quantile(quantile);
        let bucket = |b: &Bucket| json!({ "upper": b.high, "count": b.count });
        let buckets: Vec<Value> = self.buckets().iter().map(bucket).collect();
        json!({
            "count": times.len(), "min": times.min(), "max": times.max(), "mean": times.mean(),
            "median": at(0.5), "stddev": times.stdev(),
            "p90": at(0.9), "p95": at(0.95), "p99": at(0.99),
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
        assert_eq!(times.text(), "Count: 0\n");
        let mut more = Times(Some(empty()));
        if let Some(times) = &mut more.0 {
            (1..=1000).for_each(|i| times.saturating_record(i));
            times.saturating_record(1_000_000);
        }
        times.add(&more);
        times.add(&more);
        assert_eq!(times.json()["count"], 2002);
        let buckets = times.buckets();
        assert_eq!(buckets.len(), 10);
        assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), 2002);
        assert!(
            buckets
                .iter()
                .zip(&buckets[1..])
                .all(|(a, b)| a.high == b.low && a.low < a.high)
        );
        let json = times.json();
        assert_eq!((&json["median"], &json["min"]), (&json!(501), &json!(1)));
        assert!((times.mean() - 1499.5).abs() < 2.0, "{}", times.mean());
        assert!(times.text().contains("99th: 991"), "{}", times.text());
    }
}
