//! Limits that the kernel has for a mount: read-ahead, and the bound of its dirty pages.
//!
//! The kernel reads ahead 128 KiB of a FUSE mount, and lets it have a hundredth of the system's
//! dirty pages, since it does not trust the server: less than streams need on a small host, and
//! more than is good on a large one. For a mount made by root both are set. The bound is what a
//! full volume has to leave free (`full_volume`), so it is small, and strict: it holds also while
//! the system has few dirty pages. Where it may not be set, the kernel's own bound is used.

use std::fs;
use std::io;
use std::path::Path;

use tracing::debug;

/// Read-ahead in KiB: four of the largest requests, so that one is served while the kernel takes
/// the reply to another.
const READ_AHEAD_KIB: &str = "4096";
/// Bytes of dirty pages that a mount may have. Streams are as fast with it as without a bound
/// (`docs/DECISIONS.md`).
const MOST_DIRTY: u64 = 64 << 20;
/// Dirty bytes of the system where its limit cannot be read.
const DIRTY_LIMIT: u64 = 1 << 30;
/// The unit of `max_ratio_fine`: parts of the system's limit.
const PARTS: u64 = 1_000_000;

/// Sets the limits of the mount with this device number, as far as that is permitted. Returns the
/// bytes that the kernel then holds dirty of the mount at most.
pub(super) fn set_limits((major, minor): (u32, u32)) -> u64 {
    let limits = format!("/sys/class/bdi/{major}:{minor}");
    let (limits, system) = (Path::new(&limits), dirty_limit());
    if let Err(error) = set(limits, system) {
        debug!("limits of the mount stay as they are: {error}");
    }
    in_force(limits, system)
}

fn set(limits: &Path, system: u64) -> io::Result<()> {
    fs::write(limits.join("read_ahead_kb"), READ_AHEAD_KIB)?;
    // A share of the most that the system may have dirty: `max_bytes` would be turned into a share
    // of what it may have now, which grows when memory is freed.
    let parts = (MOST_DIRTY.saturating_mul(PARTS) / system.max(1)).clamp(1, PARTS);
    // Since Linux 6.2.
    fs::write(limits.join("max_ratio_fine"), parts.to_string())?;
    fs::write(limits.join("strict_limit"), "1")
}

/// The bound that the kernel has for a mount, with what tasks dirty before they look at it.
fn in_force(limits: &Path, system: u64) -> u64 {
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(limits.join(name)).ok()?;
        text.trim().parse().ok()
    };
    match (number("strict_limit"), number("max_ratio_fine")) {
        (Some(1), Some(parts)) => {
            let bound = system / PARTS * parts.min(PARTS);
            system.min(bound + bound / 4)
        }
        _ => system,
    }
}

/// The dirty pages that the kernel lets all writers of the system have, in bytes, with all memory
/// free.
pub(crate) fn dirty_limit() -> u64 {
    measured().unwrap_or(DIRTY_LIMIT)
}

fn measured() -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(Path::new("/proc/sys/vm").join(name)).ok()?;
        text.trim().parse().ok()
    };
    match number("dirty_bytes")? {
        0 => {
            let memory = fs::read_to_string("/proc/meminfo").ok()?;
            let line = memory
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some((kib << 10) / 100 * number("dirty_ratio")?.min(100))
        }
        bytes => Some(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::TempDir;

    #[test]
    fn a_bound_counts_only_where_it_is_strict() {
        let dir = TempDir::new("limits").unwrap();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        let system = 4000 * PARTS;
        assert_eq!(in_force(dir.path(), system), system, "an old kernel");
        set(dir.path(), system).unwrap();
        let read_ahead = fs::read_to_string(dir.join("read_ahead_kb")).unwrap();
        assert_eq!(
            read_ahead.parse::<u32>().unwrap() << 10,
            4 * crate::init::MAX_IO
        );
        let parts = MOST_DIRTY / 4000;
        let bound = 4000 * parts;
        assert!(bound <= MOST_DIRTY && bound > MOST_DIRTY - 4000);
        assert_eq!(in_force(dir.path(), system), bound + bound / 4);
        write("strict_limit", "0\n");
        assert_eq!(in_force(dir.path(), system), system);
        // A host with less memory than the bound.
        set(dir.path(), MOST_DIRTY / 2).unwrap();
        assert_eq!(in_force(dir.path(), MOST_DIRTY / 2), MOST_DIRTY / 2);
    }
}
