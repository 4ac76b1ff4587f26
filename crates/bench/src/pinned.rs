//! Keeping the measuring thread on one processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// While it lives, this thread stays on the processor that it was on. Threads started meanwhile stay there too: nothing
/// is mounted under one.
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
