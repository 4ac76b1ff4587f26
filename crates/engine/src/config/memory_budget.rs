//! Memory for file data where the caller sets no bound.

use extant_blockdev::memory_share;

/// Bounds of the budget.
const LEAST: u64 = 32 << 20;
const MOST: u64 = 8 << 30;

/// A quarter of the memory that the host can give now.
pub(crate) fn page_cache_budget() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info.lines().find_map(|line| {
        let rest = line.strip_prefix("MemAvailable:")?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let bytes = available.unwrap_or(0).saturating_mul(1024);
    // Limits of this process count where there are any.
    let share = memory_share().max(LEAST);
    (bytes / 4).clamp(LEAST, MOST).min(share)
}
