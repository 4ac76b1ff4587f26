//! Keeping the measuring thread on one processor, and asking what threads use of them.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The processor time that this thread has used so far.
pub(crate) fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    // A clock of the processor is never negative.
    Duration::try_from(now).unwrap_or_default()
}

/// The processor time that this process has used so far, all its threads and the kernel's for it.
pub(crate) fn processor_time_of_all() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    // A clock of the processor is never negative.
    Duration::try_from(now).unwrap_or_default()
}

/// Runs `work`; returns the processor time that it took on this thread, in nanoseconds.
pub(crate) fn processor_nanos<E>(work: impl FnOnce() -> Result<(), E>) -> Result<u64, E> {
    let before = processor_time();
    work()?;
    let took = processor_time().saturating_sub(before);
    Ok(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
}

/// While it lives, this thread stays on the processor that it was on. Threads started meanwhile
/// stay there too: nothing is mounted under one.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// Stays here; where that is not allowed, nothing happens.
    pub(crate) fn here() -> Pinned {
        let before = sched_getaffinity(None).ok();
        let mut only = CpuSet::new();
        only.set(sched_getcpu());
        let set = sched_setaffinity(None, &only).is_ok();
        Pinned {
            before: before.filter(|_| set),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}
