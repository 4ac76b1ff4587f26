//! The latencies of requests as histograms, a line per kind.

use std::fmt::Write as _;

/// Buckets of a histogram, as a mount counts them: the first is of less than a microsecond, each
/// other one begins at a power of two, and the last one has no end.
const BUCKETS: usize = 24;
/// A line with the units, each where it begins among the buckets.
const RULER: &str = "us        ms        s";
/// From no request to the most of a bucket. The bar of any request at all can be seen.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The histograms of `kinds`, whose counters have grown by `grown`. Empty if there are none.
pub(super) fn table<'a>(
    kinds: impl Iterator<Item = &'a str>,
    grown: impl Fn(&str) -> u64,
) -> String {
    let mut lines = String::new();
    for kind in kinds {
        let counts: [u64; BUCKETS] =
            std::array::from_fn(|bucket| grown(&format!("latency_{kind}_{}us", begin(bucket))));
        let (Some(half), Some(most)) = (quantile(&counts, 50), quantile(&counts, 99)) else {
            continue;
        };
        let (half, most) = (bound(half), bound(most));
        let line = format!("  {kind:<12}{half:>9}{most:>9}  {}", picture(&counts));
        let _ = writeln!(lines, "{}", line.trim_end());
    }
    if !lines.is_empty() {
        let (what, half, most) = ("served in", "median", "99 %");
        let head = format!("\n{what:<14}{half:>9}{most:>9}   {RULER}\n");
        lines.insert_str(0, &head);
    }
    lines
}

/// The shortest latency of a bucket, in microseconds.
fn begin(bucket: usize) -> u64 {
    (1 << bucket) >> 1
}

/// The bucket below whose end `percent` of the requests are; `None` if there are no requests.
fn quantile(counts: &[u64; BUCKETS], percent: u64) -> Option<usize> {
    let all: u64 = counts.iter().sum();
    let mut seen = 0;
    counts.iter().position(|count| {
        seen += count;
        all > 0 && u128::from(seen) * 100 >= u128::from(all) * u128::from(percent)
    })
}

/// The latency that all of a bucket are below.
fn bound(bucket: usize) -> String {
    match (1_u64 << bucket, bucket + 1 < BUCKETS) {
        (_, false) => "> 4 s".to_owned(),
        (end, _) if end < 1 << 10 => format!("< {end} us"),
        (end, _) if end < 1 << 20 => format!("< {} ms", end >> 10),
        (end, _) => format!("< {} s", end >> 20),
    }
}

/// A bar per bucket.
fn picture(counts: &[u64; BUCKETS]) -> String {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bars = (BARS.len() - 1) as u128;
    let height = |count: u64| (u128::from(count) * bars).div_ceil(u128::from(most));
    let bar = |&count: &u64| BARS.get(usize::try_from(height(count)).unwrap_or(0));
    counts.iter().filter_map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_bars_below_the_ruler() {
        let grown = |name: &str| match name {
            "latency_read_0us" => 1,
            "latency_read_1us" => 90,
            "latency_read_1024us" => 45,
            "latency_read_4194304us" => 1,
            "latency_fsync_2us" => 7,
            _ => 0,
        };
        let text = table(["read", "lookup", "fsync"].into_iter(), grown);
        assert_eq!(
            text,
            "\nserved in        median     99 %   us        ms        s\n\
             \x20 read           < 2 us   < 2 ms  ▁█         ▄           ▁\n\
             \x20 fsync          < 4 us   < 4 us    █\n"
        );
        assert_eq!(table(["lookup"].into_iter(), grown), "");
    }

    #[test]
    fn latencies_are_named_by_what_they_are_below() {
        let names = [0, 1, 9, 10, 19, 20, 22, 23].map(bound);
        let expected = [
            "< 1 us", "< 2 us", "< 512 us", "< 1 ms", "< 512 ms", "< 1 s", "< 4 s", "> 4 s",
        ];
        assert_eq!(names, expected);
    }
}
