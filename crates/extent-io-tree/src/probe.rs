//! How long clears take, for a caller that measures that.

use std::time::Instant;

/// Told how many nanoseconds each call took that cleared or unlocked, the wait for the tree's
/// lock and one reading of the clock included.
///
/// Called in the thread that cleared, with no lock held. Without one, no clock is read.
#[derive(Clone, Copy, Debug)]
pub struct ClearProbe(pub fn(u64));

impl PartialEq for ClearProbe {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for ClearProbe {}

/// Does `work`, and tells `probe`, if there is one, how long that took.
#[inline]
pub fn probed<R>(probe: Option<ClearProbe>, work: impl FnOnce() -> R) -> R {
    match probe {
        None => work(),
        Some(probe) => timed(probe, work),
    }
}

#[cold]
fn timed<R>(probe: ClearProbe, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let done = work();
    let took = start.elapsed().as_nanos();
    (probe.0)(u64::try_from(took).unwrap_or(u64::MAX));
    done
}
