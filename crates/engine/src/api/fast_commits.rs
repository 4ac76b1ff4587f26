//! Fast commits in the log of a volume that is not mounted: for a check and a repair, which read
//! the volume as it is once they are replayed.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};

use crate::mount;
use crate::types::error::Result;

/// A volume whose fast commits were replayed in memory.
pub struct AfterFastCommits {
    /// The volume. It cannot be written.
    pub device: Arc<dyn BlockDevice>,
    /// The device of its journal, where that is another one, with the empty log.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// The number of transactions and fast commits.
    pub replayed: u64,
}

/// Replays the journal of the volume on `device`, which is on `journal` if that is given, if it
/// holds fast commits, within `memory` bytes for each list of changes. Returns the number of its
/// transactions and fast commits; zero if it has no fast commits, or if it cannot be told: nothing
/// was written then.
///
/// # Errors
/// The fast commits are damaged, or change what is only read; the device failed.
pub fn replay_fast_commits(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    memory: u64,
) -> Result<u64> {
    mount::replay_fast_commits(device, journal, memory)
}

/// The volume on `device` as it is once its journal, which is on `journal` if that is given, is
/// replayed, if it holds fast commits. No device is written; the changes of each take at most
/// `memory` bytes.
///
/// # Errors
/// As [`replay_fast_commits`].
pub fn after_fast_commits(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    memory: u64,
) -> Result<Option<AfterFastCommits>> {
    let copy_of = |device: &Arc<_>| Arc::new(CowDevice::with_limit(Arc::clone(device), memory));
    let (volume, log) = (copy_of(device), journal.map(copy_of));
    let device: Arc<dyn BlockDevice> = Arc::clone(&volume) as _;
    let journal = log.clone().map(|log| log as Arc<dyn BlockDevice>);
    let replayed = mount::replay_fast_commits(&device, journal.as_ref(), memory)?;
    if replayed == 0 {
        return Ok(None);
    }
    volume.freeze();
    log.iter().for_each(|log| log.freeze());
    Ok(Some(AfterFastCommits {
        device,
        journal,
        replayed,
    }))
}
