//! Limits that the kernel sets for FUSE mounts because it does not trust their servers, and that
//! root may raise.
//!
//! A FUSE mount reads ahead 128 KiB and may hold one percent of the memory in dirty pages before
//! its writers are made to wait. For a mount made by root both are raised to what a disk file
//! system has. Where that is not permitted the mount works all the same, with slower streams.

use std::fs;
use std::io;
use std::path::Path;

/// Read-ahead in KiB.
const READ_AHEAD_KIB: &str = "1024";
/// Share of the dirty pages that the system allows, in percent.
const MAX_DIRTY_RATIO: &str = "100";

/// Raises the limits of the mount with this device number.
pub(super) fn raise_limits((major, minor): (u32, u32)) -> io::Result<()> {
    let limits = format!("/sys/class/bdi/{major}:{minor}");
    let limits = Path::new(&limits);
    fs::write(limits.join("read_ahead_kb"), READ_AHEAD_KIB)?;
    fs::write(limits.join("max_ratio"), MAX_DIRTY_RATIO)?;
    // Since Linux 6.2; before, the ratio alone has to do.
    match fs::write(limits.join("strict_limit"), "0") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
