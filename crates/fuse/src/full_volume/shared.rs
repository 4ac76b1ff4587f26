//! State of the promise that a mount's threads share.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use extant_engine::DirtyBound;
use parking_lot::Mutex;

use super::admission::{A_WRITE, Admission, Limits};
use super::drainer::Drainer;
use super::parking::Parking;

/// Distance of the state's thresholds from the bound, and from each other.
const MARGIN: u64 = 48 << 20;
/// The last bytes of a volume, where it is large.
const LAST: u64 = A_WRITE + (512 << 10);
/// How long a drain waits at most until all WRITEs are answered: other writers may keep the queue
/// from being empty.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a direct write waits for space.
const PATIENCE_OF_WRITES: Duration = Duration::from_secs(2);
/// Shared state of one mount.
pub(crate) struct FullVolume {
    pub(crate) admission: Mutex<Admission>,
    /// As the admission says.
    pub(crate) is_short: AtomicBool,
    pub(crate) last_handle: AtomicU64,
    pub(crate) begun: Instant,
    pub(crate) parking: Parking,
    pub(crate) drainer: Mutex<Option<Drainer>>,
    /// Times that the kernel was made to write back what is dirty.
    pub(crate) drains: AtomicU64,
    /// Times that it did not do so in time.
    pub(crate) failed_drains: AtomicU64,
    /// See [`PATIENCE`].
    pub(crate) patience: Duration,
    /// See [`PATIENCE_OF_WRITES`].
    pub(crate) patience_of_writes: Duration,
    /// Setter of what operations leave free.
    pub(crate) bound: DirtyBound,
    /// The last bytes of the volume.
    pub(crate) last: u64,
}

impl FullVolume {
    /// State of a mount of which the kernel holds `dirty_limit` bytes dirty at most, for a volume
    /// of `len` bytes that has so much room. `can_drain`: the kernel can be made to write back.
    pub(crate) fn new(
        dirty_limit: u64,
        (len, room): (u64, u64),
        can_drain: bool,
        bound: DirtyBound,
    ) -> FullVolume {
        let limits = Limits {
            bound: dirty_limit,
            margin: MARGIN,
            last: LAST.min(len / 32),
            can_drain,
        };
        let admission = Admission::new(limits, room);
        FullVolume {
            is_short: AtomicBool::new(admission.is_short()),
            admission: Mutex::new(admission),
            last_handle: AtomicU64::new(0),
            begun: Instant::now(),
            parking: Parking::default(),
            drainer: Mutex::new(None),
            drains: AtomicU64::new(0),
            failed_drains: AtomicU64::new(0),
            patience: PATIENCE,
            patience_of_writes: PATIENCE_OF_WRITES,
            bound,
            last: limits.last,
        }
    }
}
