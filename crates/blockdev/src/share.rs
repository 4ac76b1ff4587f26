//! How much memory a process may take for a purpose that an image decides.

use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// Such a purpose gets one part of this many.
const PART: u64 = 4;
/// Where nothing is known of the machine.
const UNKNOWN: u64 = 256 << 20;

/// A quarter of the memory that this process may have: of the machine's, of its control group's, or
/// of its address space where that is limited (`ulimit -v`), whichever is the least. Asked for once
/// in the life of a process.
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

/// The limit of the control group that a container sees as the root.
fn control_group() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_a_part_of_what_there_is() {
        let all = machine().unwrap();
        assert!(memory_share() > 0 && memory_share() <= all / PART);
    }
}
