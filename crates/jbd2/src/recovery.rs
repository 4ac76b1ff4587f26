//! Recovery.

use extant_blockdev::BlockDevice;
use extant_units::{BlockSize, Blocks};

use crate::error::JournalError;
use crate::log_map::LogMap;

/// What a recovery found and did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log was empty, so that nothing was done.
    pub was_clean: bool,
    /// Transactions replayed.
    pub transactions: u64,
    /// Blocks written home.
    pub replayed: u64,
    /// Logged copies that a revoke record suppressed.
    pub revoked: u64,
    /// The error number an earlier user of the journal left in it (`s_errno`), zero for none.
    pub errno: i32,
}

/// Replays a dirty log onto the device and marks it empty.
///
/// # Errors
/// The log is damaged or unsupported, or the device failed or is read-only.
pub fn recover(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    device_blocks: Blocks,
) -> Result<Recovery, JournalError> {
    let _ = (dev, bs, log, device_blocks);
    todo!()
}
