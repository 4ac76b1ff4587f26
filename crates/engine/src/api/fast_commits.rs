//! Fast commits in the log of a volume that is not mounted: for a check and a repair, which read
//! the volume as it is once they are replayed.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};

use crate::mount;
use crate::types::error::Result;

/// Replays the journal of the volume on `device` if it holds fast commits, within `memory` bytes
/// for each list of changes. Returns the number of its transactions and fast commits; zero if it
/// has no fast commits, or if it cannot be told: nothing was written then.
///
/// # Errors
/// The fast commits are damaged, or change what is only read; the device failed.
pub fn replay_fast_commits(device: &Arc<dyn BlockDevice>, memory: u64) -> Result<u64> {
    mount::replay_fast_commits(device, memory)
}

/// The volume on `device` as it is once its journal is replayed, and the number of transactions and
/// fast commits, if it holds fast commits. The device is not written; the changes take at most
/// `memory` bytes.
///
/// # Errors
/// As [`replay_fast_commits`].
pub fn after_fast_commits(
    device: &Arc<dyn BlockDevice>,
    memory: u64,
) -> Result<Option<(Arc<dyn BlockDevice>, u64)>> {
    let copy = Arc::new(CowDevice::with_limit(Arc::clone(device), memory));
    let view: Arc<dyn BlockDevice> = Arc::clone(&copy) as _;
    match mount::replay_fast_commits(&view, memory)? {
        0 => Ok(None),
        count => {
            copy.freeze();
            Ok(Some((view, count)))
        }
    }
}
