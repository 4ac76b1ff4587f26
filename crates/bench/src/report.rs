//! What was measured, for people, for scripts, and for documents.

use std::fmt::Write as _;
use std::path::Path;

use extant_host::Result;
use serde_json::{Value, json};

use crate::machine;
use crate::plan::Bench;
use crate::plot;
use crate::rows::{Rows, Summary, Unit, align, number};
use crate::times;

/// Everything that was measured.
#[derive(Debug)]
pub struct Report {
    benches: Vec<(Bench, Rows)>,
    variants: Vec<(&'static str, &'static str)>,
    missing: Vec<String>,
}

/// What is worth a ratio: the first against the second.
const PAIRS: [(&str, &str); 8] = [
    ("iomap", "notrim"),
    ("iomap", "memcpy"),
    ("iomap", "memset"),
    ("iomap", "iomap-order0"),
    ("iomap", "kernel-ext4"),
    ("mount", "kernel-ext4"),
    ("mount", "fuse2fs"),
    ("mount", "passthrough"),
];

/// Variants whose counters are listed.
const EXPLAINED: [&str; 2] = ["iomap", "notrim"];

/// Counters that are not listed with the others, since they are what the others are divided by.
const DIVISORS: [&str; 2] = ["calls", "bytes"];

impl Report {
    pub(crate) fn new(benches: &[Bench]) -> Report {
        Report {
            benches: benches.iter().map(|b| (*b, Rows::default())).collect(),
            variants: Vec::new(),
            missing: Vec::new(),
        }
    }

    pub(crate) fn rows(&mut self, bench: Bench) -> &mut Rows {
        let at = self.benches.iter().position(|(b, _)| *b == bench);
        let at = at.unwrap_or_else(|| {
            self.benches.push((bench, Rows::default()));
            self.benches.len() - 1
        });
        &mut self.benches[at].1
    }

    pub(crate) fn variant(&mut self, name: &'static str, about: &'static str) {
        self.variants.push((name, about));
    }

    /// Puts everything into the order in which the variants were named.
    pub(crate) fn order(&mut self) {
        let names: Vec<&str> = self.variants.iter().map(|(name, _)| *name).collect();
        for (_, rows) in &mut self.benches {
            rows.order(&names);
        }
    }

    pub(crate) fn missing(&mut self, what: String) {
        self.missing.push(what);
    }

    /// What could not be measured, and why.
    pub fn not_measured(&self) -> &[String] {
        &self.missing
    }

    /// `{"machine":{..},"rows":[..],"missing":[..]}`.
    pub fn json(&self) -> Value {
        let rows = self
            .benches
            .iter()
            .map(|(bench, rows)| rows.json(bench.name()));
        let rows: Vec<Value> = rows
            .flat_map(|rows| rows.as_array().cloned().unwrap_or_default())
            .collect();
        json!({ "machine": machine::describe(), "rows": rows, "missing": self.missing })
    }

    /// Tables for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (bench, rows) in &self.benches {
            let _ = writeln!(out, "{}\n\n{}", bench.name(), rows.table());
            out.push_str(&align(&ratios(rows)).replace('`', ""));
            out.push('\n');
            out.push_str(&histograms(rows));
        }
        for (name, about) in self.measured() {
            let _ = writeln!(out, "{name}: {about}");
        }
        for what in &self.missing {
            let _ = writeln!(out, "not measured: {what}");
        }
        out
    }

    /// The same as Markdown, with the counters that explain the figures.
    pub fn markdown(&self) -> String {
        let machine = machine::describe();
        let mut out = format!(
            "Measured on {} processors ({}), {} GiB, Linux {}. Medians, and the least and largest of all runs.\n",
            machine["cores"],
            machine["cpu"].as_str().unwrap_or("unknown"),
            machine["memory_gib"],
            machine["kernel"].as_str().unwrap_or("unknown"),
        );
        for (bench, rows) in &self.benches {
            let _ = writeln!(out, "\n### {}\n", bench.name());
            out.push_str(&table(&figures(rows)));
            let lines = ratios(rows);
            if lines.len() > 1 {
                out.push_str("\nRatios; above 1 the first is faster, `=`: their runs overlap.\n\n");
                out.push_str(&table(&lines));
            }
            for variant in EXPLAINED {
                let lines = explained(rows, variant);
                if lines.len() > 1 {
                    let _ = writeln!(out, "\nWhat was counted meanwhile (`{variant}`):\n");
                    out.push_str(&table(&lines));
                }
            }
            let times = histograms(rows);
            if !times.is_empty() {
                let _ = writeln!(out, "\n```\n{}\n```", times.trim_end());
            }
        }
        out.push_str("\nThe variants:\n\n");
        for (name, about) in self.measured() {
            let _ = writeln!(out, "- `{name}`: {about}");
        }
        for what in &self.missing {
            let _ = writeln!(out, "- not measured: {what}");
        }
        out
    }

    /// The variants that there are figures of.
    fn measured(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        let has = |name: &str| {
            let mut benches = self.benches.iter();
            benches.any(|(_, rows)| rows.variants().iter().any(|v| v == name))
        };
        self.variants.iter().filter(move |(name, _)| has(name))
    }

    /// Draws a plot per bench and unit below `dir`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn plot(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        for (bench, rows) in &self.benches {
            plot::draw(rows, bench.name(), dir)?;
        }
        Ok(())
    }
}

fn table(lines: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let _ = writeln!(out, "| {} |", line.join(" | "));
        if i == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
        }
    }
    out
}

fn figures(rows: &Rows) -> Vec<Vec<String>> {
    let mut head = vec!["case".to_owned(), "unit".to_owned()];
    head.extend(rows.variants().iter().cloned());
    let mut lines = vec![head];
    for (case, unit) in rows.cases() {
        let mut line = vec![format!("`{case}`"), unit.name().to_owned()];
        for variant in rows.variants() {
            line.push(rows.summary(case, variant).map_or_else(String::new, |s| {
                format!("{} ({}–{})", number(s.median), number(s.min), number(s.max))
            }));
        }
        lines.push(line);
    }
    lines
}

/// A line per case, a column per pair that was measured.
fn ratios(rows: &Rows) -> Vec<Vec<String>> {
    let has = |name: &str| rows.variants().iter().any(|v| v == name);
    let pairs: Vec<_> = PAIRS.iter().filter(|(a, b)| has(a) && has(b)).collect();
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut head = vec!["case".to_owned()];
    head.extend(pairs.iter().map(|(a, b)| format!("{a} / {b}")));
    let mut lines = vec![head];
    for (case, unit) in rows.cases() {
        let mut line = vec![format!("`{case}`")];
        for (a, b) in &pairs {
            let both = rows.summary(case, a).zip(rows.summary(case, b));
            line.push(both.map_or_else(String::new, |(a, b)| ratio(*unit, &a, &b)));
        }
        lines.push(line);
    }
    lines
}

fn ratio(unit: Unit, a: &Summary, b: &Summary) -> String {
    let ratio = if unit == Unit::MibPerSecond {
        a.median / b.median
    } else {
        b.median / a.median
    };
    let overlap = a.min <= b.max && b.min <= a.max;
    format!("{ratio:.2}{}", if overlap { " =" } else { "" })
}

/// The times of single steps, in nanoseconds, as the seed shows them.
fn histograms(rows: &Rows) -> String {
    let mut out = String::new();
    for (case, variant, times) in rows.times() {
        let _ = writeln!(out, "{case}, {variant}, ns of each clear\n{}", times.text());
    }
    if !out.is_empty() {
        let clock = times::clock_cost();
        let _ = writeln!(out, "Reading the clock takes {clock:.1} ns of each.\n");
    }
    out
}

/// The counters of a variant: per call for calls, per GiB for streams.
fn explained(rows: &Rows, variant: &str) -> Vec<Vec<String>> {
    let mut lines = vec![vec![
        "case".to_owned(),
        "per".to_owned(),
        "counters".to_owned(),
    ]];
    for (case, unit) in rows.cases() {
        let Some(counters) = rows.counters(case, variant) else {
            continue;
        };
        let (per, divisor) = if *unit == Unit::MibPerSecond {
            (
                "GiB",
                counters
                    .get("bytes")
                    .map(|b| as_f64(*b) / f64::from(1 << 30)),
            )
        } else {
            ("call", counters.get("calls").map(|c| as_f64(*c)))
        };
        let Some(divisor) = divisor.filter(|d| *d > 0.0) else {
            continue;
        };
        let list: Vec<String> = counters
            .iter()
            .filter(|(name, _)| !DIVISORS.contains(&name.as_str()))
            .map(|(name, value)| (name, as_f64(*value) / divisor))
            .filter(|(_, value)| *value >= 0.01)
            .map(|(name, value)| format!("{name} {}", number(value)))
            .collect();
        lines.push(vec![format!("`{case}`"), per.to_owned(), list.join(", ")]);
    }
    lines
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_say_when_there_is_no_difference() {
        let at = |median, min, max| Summary {
            median,
            min,
            max,
            runs: 3,
        };
        let (a, b) = (at(50.0, 45.0, 55.0), at(100.0, 90.0, 110.0));
        assert_eq!(ratio(Unit::Nanoseconds, &a, &b), "2.00");
        assert_eq!(ratio(Unit::MibPerSecond, &a, &b), "0.50");
        assert_eq!(
            ratio(Unit::Nanoseconds, &a, &at(54.0, 52.0, 60.0)),
            "1.08 ="
        );
    }

    #[test]
    fn counters_are_shown_per_call_and_per_gib() {
        let mut rows = Rows::default();
        rows.add("a", Unit::Nanoseconds, "iomap", 1.0);
        rows.add("b", Unit::MibPerSecond, "iomap", 1.0);
        let counted =
            |list: &[(&str, u64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        rows.count(
            "a",
            "iomap",
            counted(&[("calls", 10), ("overwrites", 5), ("bytes", 1)]),
        );
        rows.count(
            "b",
            "iomap",
            counted(&[("calls", 1), ("handles", 7), ("bytes", 1 << 29)]),
        );
        let lines = explained(&rows, "iomap");
        assert_eq!(lines[1], ["`a`", "call", "overwrites 0.50"]);
        assert_eq!(lines[2], ["`b`", "GiB", "handles 14.0"]);
    }
}
