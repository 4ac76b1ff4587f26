//! Samples gathered per case and variant, and the rows that they become.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::times::Times;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds for the whole case.
    Milliseconds,
    /// Nanoseconds per call.
    Nanoseconds,
    /// MiB per second: more is better.
    MibPerSecond,
    /// Requests per second, in thousands: more is better.
    ThousandPerSecond,
    /// Memory at its peak.
    Mebibytes,
    /// Requests per operation.
    RoundTrips,
    /// Chunks of a stored image.
    Chunks,
}

impl Unit {
    /// Its name in rows.
    fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Nanoseconds => "ns",
            Unit::MibPerSecond => "MiB/s",
            Unit::ThousandPerSecond => "thousand/s",
            Unit::Mebibytes => "MiB",
            Unit::RoundTrips => "requests",
            Unit::Chunks => "chunks",
        }
    }
}

/// All samples of one family.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    cases: Vec<(String, Unit)>,
    /// By case and variant.
    samples: BTreeMap<(String, String), Samples>,
}

/// The samples of a case and variant.
#[derive(Debug, Default)]
struct Samples {
    figures: Vec<f64>,
    /// Counters of the last sample.
    counters: BTreeMap<String, u64>,
    /// Times of single steps, of all samples together.
    times: Times,
}

impl Rows {
    /// Adds a sample.
    pub(crate) fn add(&mut self, case: &str, unit: Unit, variant: &str, sample: f64) {
        if !self.cases.iter().any(|(c, _)| c == case) {
            self.cases.push((case.to_owned(), unit));
        }
        self.of(case, variant).figures.push(sample);
    }

    /// Stores the counters of the last sample of a case and variant.
    pub(crate) fn count(&mut self, case: &str, variant: &str, counters: BTreeMap<String, u64>) {
        self.of(case, variant).counters = counters;
    }

    /// Adds the times of single steps that were taken in a sample of a case and variant.
    pub(crate) fn time(&mut self, case: &str, variant: &str, times: &Times) {
        self.of(case, variant).times.add(times);
    }

    fn of(&mut self, case: &str, variant: &str) -> &mut Samples {
        let key = (case.to_owned(), variant.to_owned());
        self.samples.entry(key).or_default()
    }

    /// Returns whether any times of single steps were taken.
    pub(crate) fn has_times(&self) -> bool {
        self.samples.values().any(|samples| samples.times.count > 0)
    }

    /// The rows of a report, case by case.
    pub(crate) fn json(&self, bench: &str) -> Vec<Value> {
        let all = self.cases.iter().flat_map(|(case, unit)| {
            let of_case = self.samples.iter().filter(move |((of, _), _)| of == case);
            of_case.filter_map(move |((_, variant), samples)| {
                let figures = &samples.figures;
                Some(json!({
                    "bench": bench, "case": case, "variant": variant, "unit": unit.name(),
                    "median": median(figures)?, "runs": figures.len(), "samples": figures,
                    "min": figures.iter().copied().fold(f64::INFINITY, f64::min),
                    "max": figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    "counters": samples.counters, "times": samples.times.json(),
                }))
            })
        });
        all.collect()
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut all = samples.to_vec();
    all.sort_by(f64::total_cmp);
    let (low, high) = (
        all.get(all.len().saturating_sub(1) / 2)?,
        all.get(all.len() / 2)?,
    );
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_rows() {
        let mut rows = Rows::default();
        for sample in [3.0, 1.0, 2.0] {
            rows.add("create", Unit::Milliseconds, "a", sample);
        }
        rows.add("create", Unit::Milliseconds, "b", 100.0);
        rows.add("before", Unit::Nanoseconds, "b", 7.0);
        rows.count("before", "b", BTreeMap::from([("calls".into(), 5)]));
        let json = rows.json("x");
        let of = |at: usize, name: &str| json[at][name].clone();
        assert_eq!(
            (of(0, "case"), of(0, "variant")),
            ("create".into(), "a".into())
        );
        assert_eq!((of(0, "median"), of(0, "runs")), (2.0.into(), 3.into()));
        assert_eq!(of(0, "samples"), json!([3.0, 1.0, 2.0]));
        assert_eq!((of(0, "min"), of(0, "max")), (1.0.into(), 3.0.into()));
        assert_eq!((of(2, "unit"), of(2, "times")), ("ns".into(), Value::Null));
        assert_eq!(json[2]["counters"]["calls"], 5);
        assert_eq!(median(&[1.0, 4.0]), Some(2.5));
    }
}
