//! Samples gathered per case and variant, their medians, and how they are shown.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::times::Times;

/// What a figure counts, and which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds for the whole case.
    Milliseconds,
    /// Nanoseconds per call.
    Nanoseconds,
    /// MiB per second: more is better.
    MibPerSecond,
    /// Memory at its peak.
    Mebibytes,
    /// Requests per operation.
    RoundTrips,
}

impl Unit {
    /// Its name in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Nanoseconds => "ns",
            Unit::MibPerSecond => "MiB/s",
            Unit::Mebibytes => "MiB",
            Unit::RoundTrips => "requests",
        }
    }
}

/// All samples of one benchmark.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    cases: Vec<(String, Unit)>,
    variants: Vec<String>,
    samples: BTreeMap<(String, String), Vec<f64>>,
    counters: BTreeMap<(String, String), BTreeMap<String, u64>>,
    times: BTreeMap<(String, String), Times>,
    /// Of each case, the curve that it is a point of, and where on it.
    points: BTreeMap<String, (String, u32)>,
}

/// The samples of a case and variant, put together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The sample in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
    /// How many.
    pub(crate) runs: usize,
}

impl Rows {
    /// Adds a sample.
    pub(crate) fn add(&mut self, case: &str, unit: Unit, variant: &str, sample: f64) {
        if !self.cases.iter().any(|(c, _)| c == case) {
            self.cases.push((case.to_owned(), unit));
        }
        if !self.variants.iter().any(|v| v == variant) {
            self.variants.push(variant.to_owned());
        }
        self.samples
            .entry((case.to_owned(), variant.to_owned()))
            .or_default()
            .push(sample);
    }

    /// Makes a case a point of a curve: its figure at a size.
    pub(crate) fn point(&mut self, case: &str, curve: &str, size: u32) {
        let point = (curve.to_owned(), size);
        self.points.insert(case.to_owned(), point);
    }

    /// The curve that a case is a point of, and the size there.
    pub(crate) fn point_of(&self, case: &str) -> Option<(&str, u32)> {
        let (curve, size) = self.points.get(case)?;
        Some((curve, *size))
    }

    /// Keeps what was counted during the last sample of a case and variant.
    pub(crate) fn count(&mut self, case: &str, variant: &str, counters: BTreeMap<String, u64>) {
        let key = (case.to_owned(), variant.to_owned());
        self.counters.insert(key, counters);
    }

    /// Adds the times of single steps that were taken in a sample of a case and variant.
    pub(crate) fn time(&mut self, case: &str, variant: &str, times: &Times) {
        let key = (case.to_owned(), variant.to_owned());
        self.times.entry(key).or_default().add(times);
    }

    /// The times of single steps, of all samples together: case, variant, times.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&str, &str, &Times)> {
        let all = self.times.iter();
        all.map(|((case, variant), times)| (case.as_str(), variant.as_str(), times))
    }

    /// What was counted.
    pub(crate) fn counters(&self, case: &str, variant: &str) -> Option<&BTreeMap<String, u64>> {
        self.counters.get(&(case.to_owned(), variant.to_owned()))
    }

    /// Names and units of the cases, in the order in which they came.
    pub(crate) fn cases(&self) -> &[(String, Unit)] {
        &self.cases
    }

    /// Names of the variants, in the order in which they came.
    pub(crate) fn variants(&self) -> &[String] {
        &self.variants
    }

    /// Puts the variants into this order.
    pub(crate) fn order(&mut self, names: &[&str]) {
        self.variants
            .sort_by_key(|v| names.iter().position(|n| n == v));
    }

    /// How many samples the figures are of, in words: fewer where time was short.
    pub(crate) fn rounds(&self) -> String {
        let counts = self.samples.values().map(Vec::len);
        let least = counts.clone().min().unwrap_or(0);
        match counts.max().unwrap_or(0) {
            1 => "1 round".into(),
            most if most == least => format!("{most} rounds"),
            most => format!("{least} to {most} rounds"),
        }
    }

    /// The samples of a case and variant.
    pub(crate) fn summary(&self, case: &str, variant: &str) -> Option<Summary> {
        let samples = self.samples.get(&(case.to_owned(), variant.to_owned()))?;
        let (min, max) = bounds(samples);
        Some(Summary {
            median: median(samples)?,
            min,
            max,
            runs: samples.len(),
        })
    }

    /// The median of a case and variant.
    pub(crate) fn median(&self, case: &str, variant: &str) -> Option<f64> {
        self.summary(case, variant).map(|s| s.median)
    }

    /// A table: a line per case, a column per variant, spreads in brackets.
    pub(crate) fn table(&self) -> String {
        let mut head = vec!["case".to_owned(), "unit".to_owned()];
        head.extend(self.variants.iter().cloned());
        let mut lines = vec![head];
        for (case, unit) in &self.cases {
            let mut line = vec![case.clone(), unit.name().to_owned()];
            for v in &self.variants {
                let s = self.samples.get(&(case.clone(), v.clone()));
                line.push(s.map_or_else(|| "-".to_owned(), |s| shown(s)));
            }
            lines.push(line);
        }
        align(&lines)
    }

    /// The rows as `{"bench","case","variant","unit","median","min","max","runs","counters"}`.
    pub(crate) fn json(&self, bench: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        for (case, unit) in &self.cases {
            for variant in &self.variants {
                let Some(s) = self.summary(case, variant) else {
                    continue;
                };
                rows.push(json!({
                    "bench": bench, "case": case, "variant": variant, "unit": unit.name(),
                    "median": s.median, "min": s.min, "max": s.max, "runs": s.runs,
                    "counters": self.counters(case, variant).cloned().unwrap_or_default(),
                    "times": self.times.get(&(case.clone(), (*variant).clone())).map(Times::json),
                }));
            }
        }
        rows
    }
}

fn median(s: &[f64]) -> Option<f64> {
    let mut s = s.to_vec();
    s.sort_by(f64::total_cmp);
    let (low, high) = (s.get(s.len().saturating_sub(1) / 2)?, s.get(s.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

fn bounds(s: &[f64]) -> (f64, f64) {
    s.iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| {
            (l.min(*v), h.max(*v))
        })
}

fn shown(s: &[f64]) -> String {
    let (low, high) = bounds(s);
    let m = median(s).unwrap_or(f64::NAN);
    if s.len() < 2 {
        number(m)
    } else {
        format!("{} [{}..{}]", number(m), number(low), number(high))
    }
}

/// Three digits that matter.
pub(crate) fn number(v: f64) -> String {
    match v {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Lines of cells as text, in columns.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |c: usize| {
        lines
            .iter()
            .filter_map(|l| l.get(c))
            .map(|t| t.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in lines {
        for (i, (cell, w)) in line.iter().zip(&widths).enumerate() {
            // Names to the left, figures to the right.
            let pad = " ".repeat(w - cell.chars().count());
            let cell = if i < 2 {
                format!("{cell}{pad}")
            } else {
                format!("{pad}{cell}")
            };
            let _ = write!(out, "{}{cell}", if i > 0 { "  " } else { "" });
        }
        out = out.trim_end().to_owned();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Rows, Unit};

    #[test]
    fn medians_and_columns() {
        let mut r = Rows::default();
        for v in [3.0, 1.0, 2.0] {
            r.add("create", Unit::Milliseconds, "a", v);
        }
        r.add("create", Unit::Milliseconds, "b", 100.0);
        r.add("only b", Unit::Nanoseconds, "b", 7.0);
        assert_eq!(r.median("create", "a"), Some(2.0));
        let t = r.table();
        assert!(t.contains("2.00 [1.00..3.00]") && t.contains("100"), "{t}");
        assert!(
            t.lines()
                .any(|l| l.starts_with("only b") && l.contains(" - ")),
            "{t}"
        );
        let j = r.json("x");
        assert_eq!(j[0]["case"], "create");
        assert_eq!((&j[0]["median"], &j[0]["runs"]), (&2.0.into(), &3.into()));
    }
}
