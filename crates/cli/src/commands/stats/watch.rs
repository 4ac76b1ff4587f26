//! `extant stats --watch`: what a mount does, again and again, for a person at a terminal.

mod latency;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::Stats;
use crate::failure::{At, Failure};
use crate::output::{Output, size_word};

/// Moves to the upper left and clears what follows.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Letters of the longest bar.
const BAR: u64 = 40;
/// The kinds of requests that are shown: the most frequent ones.
const KINDS: usize = 12;
/// The prefix of the counter of a kind of requests.
const REQUESTS: &str = "requests_";

type Counters = BTreeMap<String, u64>;

/// Shows the counters every few seconds, until the mount ends or enough was shown.
pub(super) fn run(args: &Stats, seconds: u32) -> Result<(), Failure> {
    let interval = Duration::from_secs(u64::from(seconds));
    let mut out = Output::new();
    let mut before = counters(&args.dir)?;
    let mut since = Instant::now();
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) && !out.closed() {
        sleep(interval);
        let now = counters(&args.dir)?;
        let passed = since.elapsed();
        since = Instant::now();
        if out.is_terminal() {
            out.text(CLEAR)?;
        }
        out.name(args.dir.as_os_str())?;
        out.text(screen(&before, &now, passed))?;
        out.flush()?;
        before = now;
        shown += 1;
    }
    out.finish()
}

fn counters(dir: &Path) -> Result<Counters, Failure> {
    Ok(extant_fuse::stats(dir)
        .at(dir.display())?
        .into_iter()
        .collect())
}

/// The events between two looks, and the state at the second.
fn screen(before: &Counters, now: &Counters, passed: Duration) -> String {
    let state = |name: &str| now.get(name).copied().unwrap_or(0);
    // A new mount at the same place begins at zero.
    let grown = |name: &str| state(name).saturating_sub(before.get(name).copied().unwrap_or(0));
    let rate = |name: &str| per_second(grown(name), passed);
    let size = |name: &str| size_word(state(name));
    let hits = |hits: &[&str], misses: &str| {
        let hits: u64 = hits.iter().map(|name| grown(name)).sum();
        match hits + grown(misses) {
            0 => "-".to_owned(),
            all => format!("{} %", hits * 100 / all),
        }
    };
    let mut out = format!(", per second over {:.1} s\n\n", passed.as_secs_f64());
    let mut kinds: Vec<(u64, &str)> = now
        .keys()
        .filter_map(|name| Some((rate(name), name.strip_prefix(REQUESTS)?)))
        .filter(|(rate, _)| *rate > 0)
        .collect();
    kinds.sort_by_key(|&(rate, name)| (std::cmp::Reverse(rate), name));
    let all: u64 = kinds.iter().map(|(rate, _)| rate).sum();
    let most = kinds.first().map_or(1, |(rate, _)| *rate);
    let _ = writeln!(out, "requests      {all}");
    for (rate, kind) in kinds.iter().take(KINDS) {
        let bar = usize::try_from((rate * BAR).div_ceil(most)).unwrap_or(0);
        let _ = writeln!(out, "  {kind:<12}{rate:>9}  {}", "#".repeat(bar));
    }
    out.push_str(&latency::table(
        kinds.iter().take(KINDS).map(|(_, kind)| *kind),
        |name| grown(name),
    ));
    let _ = write!(
        out,
        "\ncache         {} of {}, {} dirty, {} under writeback\n\
         names         {} found in memory; blocks of metadata: {}\n\
         data          {} read, {} written back\n\
         journal       {} handles, {} commits, {} blocks logged, {} written home\n\
         waits         {} for a lock, {} at the dirty limit, {} for memory, {} for a commit\n",
        size("page_cache_used_bytes"),
        size("page_cache_budget_bytes"),
        size("dirty_bytes"),
        size("writeback_bytes"),
        hits(&["name_hits", "name_negative_hits"], "name_misses"),
        hits(&["block_cache_hits"], "block_cache_misses"),
        size_word(rate("fill_bytes")),
        size_word(rate("wb_bytes")),
        rate("handles"),
        rate("commits"),
        rate("blocks_logged"),
        rate("blocks_checkpointed"),
        rate("lock_waits") + rate("range_lock_waits"),
        rate("throttle_waits"),
        rate("memory_waits"),
        rate("commit_waits"),
    );
    if state("faults") > 0 || state("device_flush_failed") > 0 {
        let _ = writeln!(out, "faults        {}", state("faults"));
    }
    out
}

/// Rounded up: what happened at all does not show as nothing.
fn per_second(count: u64, passed: Duration) -> u64 {
    let millis = passed.as_millis().max(1);
    u64::try_from((u128::from(count) * 1000).div_ceil(millis)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(list: &[(&str, u64)]) -> Counters {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect()
    }

    #[test]
    fn rates_are_of_the_time_between_and_states_of_now() {
        let before = counters(&[
            ("requests_lookup", 100),
            ("requests_read", 5),
            ("requests_write", 7),
            ("commits", 4),
            ("name_hits", 10),
            ("dirty_bytes", 0),
        ]);
        let now = counters(&[
            ("requests_lookup", 300),
            ("requests_read", 6),
            ("requests_write", 7),
            ("commits", 7),
            ("name_hits", 85),
            ("name_misses", 25),
            ("dirty_bytes", 20_480),
        ]);
        let text = screen(&before, &now, Duration::from_secs(2));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "requests      101");
        assert_eq!(
            lines[3],
            format!("  lookup            100  {}", "#".repeat(40))
        );
        assert_eq!(lines[4], "  read                1  #");
        assert_eq!(lines[5], "", "what is not used is not shown: {text}");
        assert!(text.contains(" 20 KiB dirty,"), "{text}");
        assert!(
            text.contains("75 % found in memory; blocks of metadata: -"),
            "{text}"
        );
        assert!(text.contains(" 2 commits,"), "{text}");
        assert!(!text.contains("faults"), "{text}");
        // Another mount took the place: nothing is below zero.
        let text = screen(&now, &before, Duration::from_millis(500));
        assert!(text.contains("requests      0\n"), "{text}");
        let faulty = screen(&before, &counters(&[("faults", 2)]), Duration::ZERO);
        assert!(faulty.ends_with("faults        2\n"), "{faulty}");
    }
}
