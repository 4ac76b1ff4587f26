//! The gains that the seeds report, beside those of a run.
//!
//! The first five mailing-list threads measured Linux, each with its patches and without. A gain is
//! that of a pair of variants here, the first of which has the patches. The machines differ, so
//! signs and shapes are to be compared.

use crate::part::Table;
use crate::tables::{Case, Family, number, pair_cell, quoted, words};

/// A pair of variants: with the patches, and without.
pub(crate) type Pair = (&'static str, &'static str);

const IOMAP: Pair = ("iomap", "base");
const LARGE_FOLIOS: Pair = ("bufferhead", "base");
const WALK: Pair = ("bufferhead", "bufferhead-fullwalk");
const APPEND: Pair = ("base", "base-dirty-inode");
const TRIM: Pair = ("noslots", "noslots-notrim");

/// All pairs, in the order of their columns.
const PAIRS: [Pair; 5] = [WALK, IOMAP, LARGE_FOLIOS, APPEND, TRIM];

/// MiB/s of `base`, `iomap` and `bufferhead` (threads 001 and 003): a RAM disk is `ram`, an NVMe
/// disk is `disk`.
#[rustfmt::skip]
const STREAMS: &[(&str, [f64; 3])] = &[
    ("read/hole/4K", [2253.0, 2975.0, 2918.0]),
    ("read/hole/64K", [3043.0, 4860.0, 4767.0]),
    ("read/hole/1M", [2960.0, 4942.0, 4738.0]),
    ("read/ram/4K", [1732.0, 2069.0, 1930.0]),
    ("read/ram/64K", [2156.0, 2850.0, 2584.0]),
    ("read/ram/1M", [2093.0, 2841.0, 2586.0]),
    ("read/disk/4K", [1323.0, 1425.0, 1341.0]),
    ("read/disk/64K", [1471.0, 1574.0, 1586.0]),
    ("read/disk/1M", [2012.0, 2153.0, 2122.0]),
    ("write/cache/new/4K", [1631.0, 1719.0, 1655.0]),
    ("write/cache/new/64K", [2088.0, 5092.0, 3690.0]),
    ("write/cache/new/1M", [2143.0, 5716.0, 3901.0]),
    ("write/cache/overwrite/4K", [1755.0, 1834.0, 1767.0]),
    ("write/cache/overwrite/64K", [2290.0, 5142.0, 4200.0]),
    ("write/cache/overwrite/1M", [2352.0, 5577.0, 4276.0]),
    ("write/ram/new+writeback/4K", [1424.0, 1384.0, 1449.0]),
    ("write/ram/new+writeback/64K", [1950.0, 4640.0, 3528.0]),
    ("write/ram/new+writeback/1M", [1968.0, 5201.0, 3814.0]),
    ("write/ram/new+sync/4K", [39.0, 51.0, 39.0]),
    ("write/ram/new+sync/64K", [371.0, 560.0, 395.0]),
    ("write/ram/new+sync/1M", [1050.0, 1835.0, 1657.0]),
    ("write/ram/overwrite+writeback/4K", [1609.0, 1731.0, 1723.0]),
    ("write/ram/overwrite+writeback/64K", [2134.0, 4844.0, 4151.0]),
    ("write/ram/overwrite+writeback/1M", [2248.0, 5372.0, 4210.0]),
    ("write/ram/overwrite+sync/4K", [711.0, 730.0, 711.0]),
    ("write/ram/overwrite+sync/64K", [1170.0, 2171.0, 1969.0]),
    ("write/ram/overwrite+sync/1M", [1229.0, 2269.0, 1944.0]),
    ("write/disk/new+writeback/4K", [1458.0, 1512.0, 1559.0]),
    ("write/disk/new+writeback/64K", [1827.0, 4431.0, 3390.0]),
    ("write/disk/new+writeback/1M", [1835.0, 4919.0, 3658.0]),
    ("write/disk/new+sync/4K", [46.0, 46.0, 45.0]),
    ("write/disk/new+sync/64K", [403.0, 541.0, 470.0]),
    ("write/disk/new+sync/1M", [649.0, 1351.0, 886.0]),
    ("write/disk/overwrite+writeback/4K", [1456.0, 1693.0, 1637.0]),
    ("write/disk/overwrite+writeback/64K", [2064.0, 4669.0, 4010.0]),
    ("write/disk/overwrite+writeback/1M", [2131.0, 5273.0, 4260.0]),
    ("write/disk/overwrite+sync/4K", [222.0, 220.0, 232.0]),
    ("write/disk/overwrite+sync/64K", [840.0, 1214.0, 1156.0]),
    ("write/disk/overwrite+sync/1M", [714.0, 1504.0, 1320.0]),
];

/// Without the patches, and with them: microseconds of a call (thread 000, a file of 10 MiB that
/// was written 1 MiB at a time; builds of one tree, but `writev`, which is on 6.18), milliseconds
/// of all appends (thread 004), the reciprocal of MiB/s and nanoseconds of a mean clear (thread
/// 002: all of its eleven patches, two of which trim).
#[rustfmt::skip]
const TIMES: &[(&str, Pair, [f64; 2])] = &[
    ("write_u1k", WALK, [1.418, 0.3405]),
    ("write_u10k", WALK, [1.887, 0.4175]),
    ("pwrite_u1k", WALK, [1.6775, 0.339]),
    ("pwrite_u10k", WALK, [1.9035, 0.413]),
    ("writev_u1k", WALK, [5.277, 1.179]),
    ("writev_u10k", WALK, [8.029, 4.219]),
    ("append/32x1KiB", APPEND, [7705.0, 5066.0]),
    ("randwrite/sparse/4K", TRIM, [1.0 / 74.8, 1.0 / 82.2]),
    ("randwrite/sparse/4K/clear", TRIM, [2011.308, 1896.482]),
];

/// Counters that tell the two of a pair apart.
const COUNTED: &[(Pair, &[&str])] = &[
    (WALK, &["begin_visits", "commit_visits"]),
    (APPEND, &["handles", "inode_dirty_calls"]),
    (
        TRIM,
        &[
            "trim_first",
            "trim_last",
            "prealloc_allocs",
            "clear_ns_at_median",
            "processor_ns",
        ],
    ),
];

/// The gain that a seed reports of a pair in a case, above 1 where its patches are faster.
pub(crate) fn gain(case: &str, pair: (&str, &str)) -> Option<f64> {
    let case = case.strip_prefix("large/").unwrap_or(case);
    if let Some((_, [base, iomap, bufferhead])) = STREAMS.iter().find(|(name, _)| *name == case) {
        return match pair {
            IOMAP => Some(iomap / base),
            LARGE_FOLIOS => Some(bufferhead / base),
            _ => None,
        };
    }
    let mut times = TIMES.iter();
    let (.., [without, with]) = times.find(|(name, of, _)| *name == case && *of == pair)?;
    Some(without / with)
}

/// A line for each case that a seed has measured: each pair's gain and beside it the seed's, and
/// what the variants counted. Without lines where no seed has any.
pub(crate) fn beside_seeds(family: &Family<'_>) -> Table {
    let variants = family.variants();
    let cases: Vec<Case<'_>> = family.cases();
    let reported = |pair: &Pair| cases.iter().any(|case| gain(case.name, *pair).is_some());
    let mut pairs = PAIRS.to_vec();
    pairs.retain(|pair| variants.contains(&pair.0) && variants.contains(&pair.1));
    pairs.retain(reported);
    let mut table = vec![words(["case"])];
    for (a, b) in &pairs {
        table[0].extend([format!("{a} / {b}"), "the seed".to_owned()]);
    }
    let width = table[0].len();
    for case in &cases {
        let gains = pairs.iter().map(|pair| (pair, gain(case.name, *pair)));
        let gains: Vec<_> = gains.collect();
        if gains.iter().all(|(_, gain)| gain.is_none()) {
            continue;
        }
        let cells = gains.iter().flat_map(|(pair, gain)| match gain {
            Some(gain) => [pair_cell(family, case, **pair), number(*gain)],
            None => [String::new(), String::new()],
        });
        let counted = gains.iter().filter(|(_, gain)| gain.is_some());
        let counted: Vec<String> = counted
            .flat_map(|(pair, _)| counted_by(family, case, **pair))
            .collect();
        let mut line = vec![quoted(case.name)];
        line.extend(cells);
        if !counted.is_empty() {
            line.push(counted.join(", "));
        }
        table.push(line);
    }
    let widest = table.iter().map(Vec::len).max().unwrap_or(width);
    if widest > width {
        table[0].push("counted by the one and the other".to_owned());
    }
    table
        .iter_mut()
        .for_each(|line| line.resize(widest, String::new()));
    table
}

/// The counters of [`COUNTED`] that either of a pair has in a case.
fn counted_by(family: &Family<'_>, case: &Case<'_>, pair: Pair) -> Vec<String> {
    let counters = COUNTED.iter().find(|(of, _)| *of == pair);
    let counters = counters.map_or(&[][..], |(_, counters)| *counters);
    let each = |variant, counter: &str| family.counted(case, variant, counter);
    let shown = counters.iter().filter_map(|counter| {
        let (a, b) = (each(pair.0, counter)?, each(pair.1, counter)?);
        let any = a.max(b) >= 0.01;
        any.then(|| format!("{counter} {} and {}", number(a), number(b)))
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row(case: &str, variant: &str, samples: [f64; 2], counters: &Value) -> Value {
        json!({ "bench": "b", "case": case, "unit": "MiB/s", "variant": variant,
                "median": f64::midpoint(samples[0], samples[1]), "min": samples[0],
                "max": samples[1], "samples": samples, "counters": counters })
    }

    fn table(rows: &[Value]) -> Table {
        let mut family = Family::new("b", &[]);
        rows.iter().for_each(|row| family.add(row));
        beside_seeds(&family)
    }

    #[test]
    fn gains_are_those_of_the_threads() {
        let close = |case, pair, expected: f64| {
            let gain = gain(case, pair).unwrap();
            assert!((gain - expected).abs() < 0.005, "{case}: {gain}");
        };
        // As their tables say: +144 %, +100 %, 76.0 %, 34 %, 5.7 %.
        close("write/cache/new/64K", IOMAP, 2.44);
        close("write/disk/overwrite+writeback/1M", LARGE_FOLIOS, 2.0);
        close("write_u1k", WALK, 1.0 / (1.0 - 0.760));
        close("large/append/32x1KiB", APPEND, 1.0 / (1.0 - 0.3425));
        close("randwrite/sparse/4K", TRIM, 1.099);
        close("randwrite/sparse/4K/clear", TRIM, 1.0 / (1.0 - 0.0571));
        assert_eq!(gain("write_u1k", IOMAP), None);
        assert_eq!(gain("read/cache/4K", IOMAP), None);
    }

    #[test]
    fn every_gain_has_its_seeds_beside_it() {
        let none = json!({});
        let shown = table(&[
            row("read/disk/4K", "iomap", [200.0, 240.0], &none),
            row("read/disk/4K", "base", [100.0, 100.0], &none),
            row("write/disk/new+sync/4K", "iomap", [98.0, 110.0], &none),
            row("write/disk/new+sync/4K", "base", [100.0, 100.0], &none),
            row(
                "write/disk/new+sync/4K",
                "bufferhead",
                [100.0, 101.0],
                &none,
            ),
            row("read/cache/4K", "iomap", [1.0, 1.0], &none),
        ]);
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert_eq!(
            shown[0][1..5],
            ["iomap / base", "the seed", "bufferhead / base", "the seed"]
        );
        assert_eq!(
            shown[1][1..5],
            ["2.20 (2.00–2.40)", "1.08", "same code", "1.01"]
        );
        assert_eq!(
            shown[2][1..5],
            ["1.04 (0.98–1.10) =", "1.00", "1.00 (1.00–1.01) =", "0.98"]
        );
    }

    #[test]
    fn counters_stand_beside_the_pair_that_they_explain() {
        let visits =
            |visits: u32| json!({ "calls": 10, "bytes": 1 << 30, "commit_visits": visits });
        let shown = table(&[
            row("write_u1k", "bufferhead", [3.0, 3.0], &visits(10)),
            row(
                "write_u1k",
                "bufferhead-fullwalk",
                [1.0, 1.0],
                &visits(2560),
            ),
        ]);
        assert_eq!(shown[1].last().unwrap(), "commit_visits 10.0 and 2560");
    }
}
