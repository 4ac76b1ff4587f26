//! The mount around a process, and what its server must have come to.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use extant_engine::Volume;

use super::kernel::Kernel;
use crate::full_volume::admission::GRACE;
use crate::server::Server;

/// Time between two looks whether something has happened.
const LOOK: Duration = Duration::from_millis(1);

/// The mount as a process sees it: the kernel, and for its judgement what is behind it.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) server: &'a Server<'a>,
    pub(super) volume: &'a Volume,
    /// The volume has times of plenty.
    pub(super) has_plenty: bool,
    pub(super) patience: Duration,
    /// Writes in a hundred that make a new file as long as files are.
    pub(super) whole_files: u64,
}

impl Surroundings<'_> {
    /// The number of the shortage, if all files ask before writes.
    pub(super) fn asked_since(&self) -> Option<u64> {
        self.server.full.admission.lock().asked_since()
    }

    /// The end of the time in which the last write of a task has to reach the cache.
    pub(super) fn granted_until(&self, task: u32) -> Option<Instant> {
        let full = &self.server.full;
        let since = full.admission.lock().granted_since(task);
        since.map(|since| full.begun + since + GRACE)
    }

    /// Failures of the write-back of a file that the server knows of.
    pub(super) fn failures(&self, id: u64) -> u64 {
        self.server.full.admission.lock().failures(id)
    }

    /// Blocks that a file has on the volume.
    pub(super) fn blocks_of(&self, id: u64) -> u64 {
        let node = self.server.nodes.get(id).unwrap();
        self.volume.getattr(&node).unwrap().blocks
    }

    /// The server counts as many lookups of a node as the kernel, once it has heard of all that the
    /// kernel has forgotten.
    pub(super) fn check_lookups(&self, id: u64) {
        let ours = self.kernel.inode(id, |inode| inode.lookups);
        let theirs = || self.server.nodes.lookups_of(id);
        let is_right = || theirs() == ours;
        self.wait(is_right, || {
            format!("{} lookups of node {id}, not {ours}", theirs())
        });
    }

    pub(super) fn wait(&self, is_done: impl Fn() -> bool, what: impl Fn() -> String) {
        let begun = Instant::now();
        while !is_done() {
            assert!(begun.elapsed() < self.patience, "{}", what());
            self.kernel.check_is_there();
            thread::sleep(LOOK);
        }
    }

    /// Nothing waits, no reply is missing, and all is forgotten that was dropped.
    pub(super) fn check_at_end(&self, inodes: u64) {
        let quiet = || self.kernel.is_idle().is_ok() && self.server.in_flight.is_empty();
        self.wait(quiet, || format!("{:?}", self.kernel.is_idle()));
        let left = || self.server.nodes.lookups().len();
        self.wait(
            || left() == 0,
            || format!("{} nodes are not forgotten", left()),
        );
        let free = || self.volume.statfs().unwrap().inodes_free;
        self.wait(
            || free() == inodes,
            || format!("{} of {inodes} inodes are free", free()),
        );
        let failed = self.server.full.failed_drains.load(Ordering::Relaxed);
        assert_eq!(failed, 0, "drains failed");
        let (broken, _) = self.kernel.losses();
        assert_eq!(broken, 0, "pages that were promised space found none");
    }
}
