//! Tables of what was measured: figures, ratios, gains, counters, faults of the bench.

use std::fmt::Write as _;

use crate::gains::SEEDS;
use crate::rows::{Rows, Summary, Unit, number};
use crate::times;

/// What is worth a ratio: the first against the second.
const PAIRS: [(&str, &str); 17] = [
    ("iomap", "notrim"),
    ("iomap", "memcpy"),
    ("iomap", "memset"),
    ("iomap", "iomap-order0"),
    ("iomap", "base"),
    ("bufferhead", "base"),
    ("iomap", "kernel-ext4"),
    ("mount", "kernel-ext4"),
    ("mount-uring", "mount"),
    ("mount-uring", "kernel-ext4"),
    ("mount", "fuse2fs"),
    ("mount", "passthrough"),
    ("build", "mke2fs"),
    ("build", "genext2fs"),
    ("build", "kernel-ext4"),
    ("build-tar", "kernel-ext4"),
    ("build-tar", "tar2ext4"),
];

/// Variants whose counters are listed.
pub(crate) const EXPLAINED: [&str; 2] = ["iomap", "notrim"];

/// Counters that are not listed with the others, since they are what the others are divided by.
const DIVISORS: [&str; 2] = ["calls", "bytes"];

/// What nothing can be faster than.
const LIMITS: [&str; 2] = ["memcpy", "memset"];

/// A line for each figure that is better than its limit, by more than the spread of both: then the
/// limit is no limit, which is a fault of the bench.
pub(crate) fn faults(rows: &Rows) -> Vec<String> {
    let mut all = Vec::new();
    for (case, unit) in rows.cases() {
        for limit in LIMITS {
            let Some(least) = rows.summary(case, limit) else {
                continue;
            };
            for variant in rows
                .variants()
                .iter()
                .filter(|v| !LIMITS.contains(&v.as_str()))
            {
                let better = rows.summary(case, variant).is_some_and(|s| match unit {
                    Unit::MibPerSecond => s.min > least.max,
                    _ => s.max < least.min,
                });
                if better {
                    all.push(format!(
                        "fault of the bench: {variant} is faster than {limit}, its limit, in {case}"
                    ));
                }
            }
        }
    }
    all
}

/// Gains over the base, beside the seeds'.
pub(crate) fn gains(rows: &Rows) -> Vec<Vec<String>> {
    let head = ["case", "bufferhead", "seed", "iomap", "seed"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (case, of_bufferhead, of_iomap) in SEEDS {
        let gain = |variant: &str| {
            let (ours, base) = (rows.median(case, variant)?, rows.median(case, "base")?);
            Some(format!("{:+.0} %", (ours / base - 1.0) * 100.0))
        };
        let of_ranges = gain("iomap");
        if of_ranges.is_some() {
            lines.push(vec![
                format!("`{case}`"),
                gain("bufferhead").unwrap_or_default(),
                format!("{of_bufferhead:+} %"),
                of_ranges.unwrap_or_default(),
                format!("{of_iomap:+} %"),
            ]);
        }
    }
    lines
}

/// Lines of cells as a table of Markdown; the first line is its head.
pub(crate) fn markdown(lines: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let _ = writeln!(out, "| {} |", line.join(" | "));
        if i == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
        }
    }
    out
}

pub(crate) fn figures(rows: &Rows) -> Vec<Vec<String>> {
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
pub(crate) fn ratios(rows: &Rows) -> Vec<Vec<String>> {
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
pub(crate) fn histograms(rows: &Rows) -> String {
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
pub(crate) fn explained(rows: &Rows, variant: &str) -> Vec<Vec<String>> {
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

#[allow(clippy::cast_precision_loss, reason = "for display")]
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
    fn a_limit_that_is_beaten_is_a_fault_of_the_bench() {
        let mut rows = Rows::default();
        for (case, iomap) in [("a", [9.0, 11.0]), ("b", [7.0, 8.0]), ("c", [20.0, 21.0])] {
            for (limit, figure) in [10.0, 12.0].into_iter().zip(iomap) {
                rows.add(case, Unit::Nanoseconds, "memcpy", limit);
                rows.add(case, Unit::Nanoseconds, "iomap", figure);
            }
        }
        rows.add("d", Unit::MibPerSecond, "memcpy", 100.0);
        rows.add("d", Unit::MibPerSecond, "iomap", 101.0);
        let faults = faults(&rows);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].ends_with("in b") && faults[1].ends_with("in d"));
    }

    #[test]
    fn gains_stand_beside_the_seeds() {
        let mut rows = Rows::default();
        for (variant, figure) in [("iomap", 250.0), ("base", 100.0), ("bufferhead", 90.0)] {
            rows.add("read/hole/4K", Unit::MibPerSecond, variant, figure);
        }
        let lines = gains(&rows);
        assert_eq!(
            lines[1],
            ["`read/hole/4K`", "-10 %", "+29 %", "+150 %", "+32 %"]
        );
        assert_eq!(lines.len(), 2);
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
