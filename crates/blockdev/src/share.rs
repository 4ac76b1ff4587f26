//! The memory that a process may use for a purpose whose size an image decides.

use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// The divisor: such a purpose gets a quarter.
const PART: u64 = 4;
/// The share in bytes where the memory of the machine is unknown.
const UNKNOWN: u64 = 256 << 20;

/// A quarter of the memory that this process may use: the least of the machine's memory, the limit
/// of the control group and the limit of the address space (`ulimit -v`). Measured once per
/// process.
pub fn memory_share() -> u64 {
    static SHARE: OnceLock<u64> = OnceLock::new();
    *SHARE.get_or_init(measured)
}

fn measured() -> u64 {
    let limits = [
        machine(),
        control_group(),
        getrlimit(Resource::As).current,
        getrlimit(Resource::Data).current,
    ];
    limits
        .into_iter()
        .flatten()
        .min()
        .map_or(UNKNOWN, |least| least / PART)
}

/// The memory of the machine, in bytes.
fn machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The memory limit of the control group, if this process sees it as the root.
fn control_group() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_a_part_of_the_memory() {
        let all = machine().unwrap();
        assert!(memory_share() > 0 && memory_share() <= all / PART);
    }
}
