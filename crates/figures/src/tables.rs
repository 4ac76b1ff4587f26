//! Tables of a family's rows: figures, ratios, gains, counters, histograms; and the figures that
//! cannot be.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::part::Table;

/// Pairs of variants whose ratio is shown: the first against the second.
const PAIRS: [(&str, &str); 22] = [
    ("iomap", "notrim"),
    ("iomap", "noslots"),
    ("noslots", "noslots-notrim"),
    ("iomap", "nojoint"),
    ("iomap", "memcpy"),
    ("iomap", "memset"),
    ("iomap", "iomap-order0"),
    ("iomap", "base"),
    ("bufferhead", "base"),
    ("bufferhead", "bufferhead-fullwalk"),
    ("base", "base-dirty-inode"),
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

/// Counters that are not listed with the others, since they are what the others are divided by.
const DIVISORS: [&str; 2] = ["calls", "bytes"];

/// Variants that nothing can be faster than.
const LIMITS: [&str; 2] = ["memcpy", "memset"];

/// Variants of the buffer-head path, which reads as the other one does.
const BY_PATH: [&str; 4] = [
    "bufferhead",
    "bufferhead-fullwalk",
    "base",
    "base-dirty-inode",
];

/// A case and the unit of its figures.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: &'a str,
}

/// The samples of a case and variant, put together. Of some only the bounds are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: Option<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The report has whole numbers: every digit is shown, and none more.
    pub(crate) whole: bool,
}

impl Figure {
    /// The median, or the middle of the bounds.
    pub(crate) fn middle(&self) -> f64 {
        self.median.unwrap_or(f64::midpoint(self.min, self.max))
    }

    /// Returns what `f` makes of the middle, the least and the largest.
    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> [f64; 3] {
        [f(self.middle()), f(self.min), f(self.max)]
    }

    /// The median without the bounds.
    pub(crate) fn alone(&self) -> Figure {
        let median = self.middle();
        Figure {
            median: Some(median),
            min: median,
            max: median,
            ..*self
        }
    }

    /// The figure as text: its median, and its bounds where they differ.
    #[allow(clippy::float_cmp, reason = "bounds of one sample are that sample")]
    pub(crate) fn shown(&self) -> String {
        let number = |value| match self.whole {
            true => format!("{value:.0}"),
            false => number(value),
        };
        let bounds = format!("{}–{}", number(self.min), number(self.max));
        match self.median {
            Some(median) if self.min == self.max => number(median),
            Some(median) => format!("{} ({bounds})", number(median)),
            None => bounds,
        }
    }

    fn overlaps(&self, other: &Figure) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// The rows of one family.
pub(crate) struct Family<'a> {
    pub(crate) name: &'a str,
    rows: Vec<&'a Value>,
    /// Names of the variants, in the order of their columns.
    variants: Vec<&'a str>,
}

impl<'a> Family<'a> {
    /// A family without rows, whose columns have this order.
    pub(crate) fn new(name: &'a str, order: &[&'a str]) -> Family<'a> {
        Family {
            name,
            rows: Vec::new(),
            variants: order.to_vec(),
        }
    }

    pub(crate) fn add(&mut self, row: &'a Value) {
        let variant = word(row, "variant");
        if !self.variants.contains(&variant) {
            self.variants.push(variant);
        }
        self.rows.push(row);
    }

    /// The cases, in the order in which they came.
    pub(crate) fn cases(&self) -> Vec<Case<'a>> {
        let mut all: Vec<Case<'a>> = Vec::new();
        for row in &self.rows {
            let (name, unit) = (word(row, "case"), word(row, "unit"));
            if !all.iter().any(|case| case.name == name) {
                all.push(Case { name, unit });
            }
        }
        all
    }

    /// The variants that have figures.
    pub(crate) fn variants(&self) -> Vec<&'a str> {
        let has = |variant: &&str| self.rows.iter().any(|row| row["variant"] == *variant);
        self.variants.iter().copied().filter(has).collect()
    }

    pub(crate) fn figure(&self, case: &str, variant: &str) -> Option<Figure> {
        let row = self.row(case, variant)?;
        let median = row["median"].as_f64();
        let is_whole = |name: &str| row[name].is_null() || row[name].as_i64().is_some();
        Some(Figure {
            whole: ["median", "min", "max"].into_iter().all(is_whole),
            median,
            min: row["min"].as_f64().or(median)?,
            max: row["max"].as_f64().or(median)?,
        })
    }

    /// The number of samples that the figures are of, in words: fewer where time was short. None of
    /// figures that no run of the bench has.
    pub(crate) fn rounds(&self) -> Option<String> {
        let counts = self.rows.iter().filter_map(|row| row["runs"].as_u64());
        let least = counts.clone().min()?;
        Some(match counts.max()? {
            1 => "1 round".into(),
            most if most == least => format!("{most} rounds"),
            most => format!("{least} to {most} rounds"),
        })
    }

    /// A counter of a variant in a case: per call for calls, per GiB for streams. None where
    /// nothing was counted.
    pub(crate) fn counted(&self, case: &Case<'_>, variant: &str, counter: &str) -> Option<f64> {
        let counters = self.row(case.name, variant)?["counters"].as_object()?;
        let (_, divisor) = per(case.unit, counters);
        (divisor > 0.0).then(|| counter_of(counters, counter) / divisor)
    }

    /// The samples of a case and variant, in the order of the rounds.
    fn samples(&self, case: &str, variant: &str) -> Vec<f64> {
        let samples = self.row(case, variant);
        let samples = samples.and_then(|row| row["samples"].as_array());
        let samples = samples.into_iter().flatten();
        samples.filter_map(Value::as_f64).collect()
    }

    fn row(&self, case: &str, variant: &str) -> Option<&'a Value> {
        let mut rows = self.rows.iter();
        rows.find(|row| row["case"] == case && row["variant"] == variant)
            .copied()
    }
}

fn word<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

/// Returns whether more of a unit is better.
pub(crate) fn is_throughput(unit: &str) -> bool {
    unit.ends_with("/s")
}

/// A line for each figure that is better than its limit, by more than the spread of both: then the
/// limit is no limit, which is a fault of the bench.
pub(crate) fn faults(family: &Family<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for Case { name, unit } in family.cases() {
        for limit in LIMITS {
            let Some(least) = family.figure(name, limit) else {
                continue;
            };
            let others = family
                .variants()
                .into_iter()
                .filter(|v| !LIMITS.contains(v));
            let beating = others.filter(|variant| {
                let figure = family.figure(name, variant);
                figure.is_some_and(|figure| match is_throughput(unit) {
                    true => figure.min > least.max,
                    false => figure.max < least.min,
                })
            });
            all.extend(beating.map(|variant| {
                format!(
                    "fault of the bench: {variant} is faster than {limit}, its limit, in {name}"
                )
            }));
        }
    }
    all
}

/// A line per case, a column per variant.
pub(crate) fn figures(family: &Family<'_>) -> Table {
    let variants = family.variants();
    let mut table = vec![words(["case", "unit"])];
    table[0].extend(variants.iter().map(|variant| (*variant).to_owned()));
    for Case { name, unit } in family.cases() {
        let figures = variants.iter().map(|variant| family.figure(name, variant));
        let cells = figures.map(|figure| figure.map_or(String::new(), |f| f.shown()));
        table.push(
            [quoted(name), unit.to_owned()]
                .into_iter()
                .chain(cells)
                .collect(),
        );
    }
    table
}

/// A line per case, a column per pair that was measured.
pub(crate) fn ratios(family: &Family<'_>) -> Table {
    let variants = family.variants();
    let pairs = PAIRS
        .iter()
        .filter(|(a, b)| variants.contains(a) && variants.contains(b));
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        return Table::new();
    }
    let mut table = vec![words(["case"])];
    table[0].extend(pairs.iter().map(|(a, b)| format!("{a} / {b}")));
    for Case { name, unit } in family.cases() {
        let of = |(a, b): &&(&str, &str)| {
            let both = family.figure(name, a).zip(family.figure(name, b));
            let same = || same_code(name, (a, b)).to_owned();
            both.map_or_else(same, |(a, b)| ratio(unit, &a, &b))
        };
        table.push(
            [quoted(name)]
                .into_iter()
                .chain(pairs.iter().map(of))
                .collect(),
        );
    }
    table
}

fn ratio(unit: &str, a: &Figure, b: &Figure) -> String {
    let ratio = quotient(unit, a.middle(), b.middle());
    format!("{ratio:.2}{}", if a.overlaps(b) { " =" } else { "" })
}

/// The gain of `a` over `b`, above 1 where `a` is better.
fn quotient(unit: &str, a: f64, b: f64) -> f64 {
    match is_throughput(unit) {
        true => a / b,
        false => b / a,
    }
}

/// The gain of the first of a pair over the second: of their medians, and beside it the least and
/// the largest of a round, where both were measured in each.
pub(crate) fn pair_cell(family: &Family<'_>, case: &Case<'_>, (a, b): (&str, &str)) -> String {
    let both = family.figure(case.name, a).zip(family.figure(case.name, b));
    let Some((of_a, of_b)) = both else {
        return same_code(case.name, (a, b)).to_owned();
    };
    let (each_a, each_b) = (family.samples(case.name, a), family.samples(case.name, b));
    if each_a.len() != each_b.len() || each_a.len() < 2 {
        return ratio(case.unit, &of_a, &of_b);
    }
    let each = each_a.iter().zip(&each_b);
    let each = each.map(|(a, b)| quotient(case.unit, *a, *b));
    let (least, most) = each.fold((f64::INFINITY, 0.0_f64), |(least, most), gain| {
        (least.min(gain), most.max(gain))
    });
    let gain = quotient(case.unit, of_a.middle(), of_b.middle());
    let same = if least <= 1.0 && most >= 1.0 {
        " ="
    } else {
        ""
    };
    format!("{gain:.2} ({least:.2}–{most:.2}){same}")
}

/// Stands for a ratio that is not measured, where both data paths read by the same code.
fn same_code(case: &str, pair: (&str, &str)) -> &'static str {
    let reads = case.split('/').any(|word| word == "read");
    match reads && BY_PATH.contains(&pair.0) && BY_PATH.contains(&pair.1) {
        true => "same code",
        false => "",
    }
}

/// The times of single steps, in nanoseconds, as the seed shows them.
pub(crate) fn histograms(family: &Family<'_>) -> String {
    let mut out = String::new();
    for row in family.rows.iter().filter(|row| row["times"].is_object()) {
        let (case, variant) = (word(row, "case"), word(row, "variant"));
        let _ = writeln!(
            out,
            "{case}, {variant}, ns of each clear\n{}",
            histogram(&row["times"])
        );
    }
    out
}

fn histogram(times: &Value) -> String {
    let at = |name: &str| times[name].as_f64().unwrap_or_default();
    let mut out = format!(
        "Count: {}\nRange: {} - {}; Mean: {:.3}; Median: {}; Stddev: {:.3}\n\
         Percentiles: 90th: {}; 95th: {}; 99th: {}\n",
        at("count"),
        at("min"),
        at("max"),
        at("mean"),
        at("median"),
        at("stddev"),
        at("p90"),
        at("p95"),
        at("p99"),
    );
    let buckets = times["buckets"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |bucket: &Value| bucket["count"].as_u64().unwrap_or_default();
    let most = buckets.iter().map(count).max().unwrap_or(0).max(1);
    let mut low = at("min");
    for bucket in buckets {
        let (high, count) = (bucket["upper"].as_f64().unwrap_or_default(), count(bucket));
        let bar = "#".repeat(usize::try_from(count * 53 / most).unwrap_or(0));
        out += format!("{low:>14.3} - {high:>14.3}: {count:>9} |{bar}").trim_end();
        out.push('\n');
        low = high;
    }
    out
}

/// The counters of a variant: per call for calls, per GiB for streams.
pub(crate) fn explained(family: &Family<'_>, variant: &str) -> Table {
    let none = Map::new();
    let mut table = vec![words(["case", "per", "counters"])];
    for Case { name, unit } in family.cases() {
        let counters = family
            .row(name, variant)
            .and_then(|row| row["counters"].as_object());
        let counters = counters.unwrap_or(&none);
        let (per, divisor) = per(unit, counters);
        if divisor > 0.0 {
            let listed = counters
                .keys()
                .filter(|name| !DIVISORS.contains(&name.as_str()));
            let each = listed.map(|name| (name, counter_of(counters, name) / divisor));
            let each = each.filter(|(_, value)| *value >= 0.01);
            let each: Vec<String> = each
                .map(|(name, value)| format!("{name} {}", number(value)))
                .collect();
            table.push(vec![quoted(name), per.to_owned(), each.join(", ")]);
        }
    }
    table
}

/// The divisor of a case's counters in a table: its name, and how many of it there were.
fn per(unit: &str, counters: &Map<String, Value>) -> (&'static str, f64) {
    match is_throughput(unit) {
        true => ("GiB", counter_of(counters, "bytes") / f64::from(1 << 30)),
        false => ("call", counter_of(counters, "calls")),
    }
}

fn counter_of(counters: &Map<String, Value>, name: &str) -> f64 {
    counters.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Three digits that matter.
pub(crate) fn number(v: f64) -> String {
    match v {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The name of a case, as code unless it is a phrase.
pub(crate) fn quoted(case: &str) -> String {
    match case.contains(' ') {
        true => case.to_owned(),
        false => format!("`{case}`"),
    }
}

pub(crate) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(median: f64, min: f64, max: f64) -> Figure {
        Figure {
            median: Some(median),
            min,
            max,
            whole: false,
        }
    }

    fn family(rows: &[Value]) -> Family<'_> {
        let mut family = Family::new("b", &[]);
        rows.iter().for_each(|row| family.add(row));
        family
    }

    /// Calls `shown` with the family of these rows: case, unit, variant, least and largest.
    fn of<T>(rows: &[(&str, &str, &str, [f64; 2])], shown: impl Fn(&Family<'_>) -> T) -> T {
        let row = |(case, unit, variant, [min, max]): &(&str, &str, &str, [f64; 2])| {
            json!({ "case": case, "unit": unit, "variant": variant,
                    "median": f64::midpoint(*min, *max), "min": min, "max": max })
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        shown(&family(&rows))
    }

    #[test]
    fn ratios_say_when_there_is_no_difference() {
        let (a, b) = (at(50.0, 45.0, 55.0), at(100.0, 90.0, 110.0));
        assert_eq!(ratio("ns", &a, &b), "2.00");
        assert_eq!(ratio("MiB/s", &a, &b), "0.50");
        assert_eq!(ratio("ns", &a, &at(54.0, 52.0, 60.0)), "1.08 =");
    }

    #[test]
    fn a_figure_shows_what_is_known_of_it() {
        assert_eq!(at(50.0, 45.0, 155.0).shown(), "50.0 (45.0–155)");
        assert_eq!(at(5.0, 5.0, 5.0).shown(), "5.00");
        let bounds = Figure {
            median: None,
            ..at(0.0, 1.0, 2.0)
        };
        assert_eq!(
            (bounds.shown().as_str(), bounds.middle()),
            ("1.00–2.00", 1.5)
        );
    }

    #[test]
    fn a_limit_that_is_beaten_is_a_fault_of_the_bench() {
        let faults = of(
            &[
                ("a", "ns", "memcpy", [10.0, 12.0]),
                ("a", "ns", "iomap", [9.0, 11.0]),
                ("b", "ns", "memcpy", [10.0, 12.0]),
                ("b", "ns", "iomap", [7.0, 8.0]),
                ("c", "MiB/s", "memcpy", [100.0, 100.0]),
                ("c", "MiB/s", "iomap", [101.0, 101.0]),
            ],
            faults,
        );
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].ends_with("in b") && faults[1].ends_with("in c"));
    }

    #[test]
    fn counters_are_shown_per_call_and_per_gib() {
        let rows = [
            json!({ "case": "a", "unit": "ns", "variant": "iomap",
                    "counters": { "calls": 10, "overwrites": 5, "bytes": 1 } }),
            json!({ "case": "b", "unit": "MiB/s", "variant": "iomap",
                    "counters": { "calls": 1, "handles": 7, "bytes": 1 << 29 } }),
        ];
        let table = explained(&family(&rows), "iomap");
        assert_eq!(table[1], ["`a`", "call", "overwrites 0.50"]);
        assert_eq!(table[2], ["`b`", "GiB", "handles 14.0"]);
    }

    #[test]
    fn a_histogram_is_shown_as_the_seed_shows_it() {
        let times = json!({ "count": 3, "min": 1, "max": 100, "mean": 34.5, "median": 2,
            "stddev": 1, "p90": 100, "p95": 100, "p99": 100,
            "buckets": [{ "upper": 10.0, "count": 2 }, { "upper": 100.0, "count": 1 }] });
        let text = histogram(&times);
        assert!(
            text.contains("Range: 1 - 100; Mean: 34.500; Median: 2;"),
            "{text}"
        );
        let bar = "#".repeat(26);
        assert!(
            text.ends_with(&format!("10.000 -        100.000:         1 |{bar}\n")),
            "{text}"
        );
    }
}
