//! How a check runs.

use std::fmt;
use std::sync::Arc;

use extant_blockdev::BlockDevice;

/// How to check.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// Threads to use; at least one.
    pub threads: usize,
    /// The most findings to collect; those past it are counted only.
    pub max_findings: usize,
    /// The most memory that a replay of the journal may take in bytes; `None` takes a quarter of
    /// the host's.
    pub replay_bytes: Option<u64>,
    /// The device with the journal, for a volume that has it elsewhere. It is never written.
    pub journal: Option<&'a Arc<dyn BlockDevice>>,
    /// Called now and then with the work done and the work in all, in no unit.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// The most threads that are used by default: past this, the device limits a check.
const DEFAULT_THREADS: usize = 8;

impl fmt::Debug for CheckOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckOptions")
            .field("threads", &self.threads)
            .field("max_findings", &self.max_findings)
            .field("replay_bytes", &self.replay_bytes)
            .field("journal", &self.journal.map(|_| ".."))
            .field("progress", &self.progress.map(|_| ".."))
            .finish()
    }
}

impl Default for CheckOptions<'_> {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(DEFAULT_THREADS),
            max_findings: 10_000,
            replay_bytes: None,
            journal: None,
            progress: None,
        }
    }
}
