//! Times of an inode in memory: which are newer than on disk, and which a read or a write need not
//! look at.

use extant_sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A time that is to be stored within seconds.
pub(crate) const SOON: u8 = 1;
/// A time that waits for another reason to be stored (`lazytime`).
pub(crate) const LAZY: u8 = 2;
/// The inode is on the list, whether or not a time is still to be stored.
const LISTED: u8 = 4;

/// Each has a bit of its own.
const _: () = assert!((SOON | LAZY | LISTED).count_ones() == 3);

/// Before every tick of the clock.
pub(crate) const NEVER: u64 = 0;

/// Which times in memory are newer than on disk, and whether the inode is listed for that.
#[derive(Default)]
pub(crate) struct Deferred(AtomicU8);

impl Deferred {
    /// Returns whether a time of a kind in `which` is newer than the stored one.
    #[inline]
    pub(crate) fn has(&self, which: u8) -> bool {
        self.0.load(Ordering::Acquire) & which != 0
    }

    /// Marks times of the kinds `how`, and the inode as listed. Returns whether it was not: the
    /// caller then puts it on the list.
    #[must_use]
    #[inline]
    pub(crate) fn mark(&self, how: u8) -> bool {
        debug_assert!(how & !(SOON | LAZY) == 0, "kinds {how:#x} of times");
        self.0.fetch_or(how | LISTED, Ordering::AcqRel) & LISTED == 0
    }

    /// Notes that all times were stored.
    pub(crate) fn stored(&self) {
        self.0.fetch_and(LISTED, Ordering::AcqRel);
    }

    /// Notes that the inode is not on the list any more.
    pub(crate) fn unlist(&self) {
        self.0.fetch_and(!LISTED, Ordering::AcqRel);
    }
}

/// Time updates that reads and writes can skip. Set with `core` locked, after a look at the times;
/// cleared with `core` locked exclusively, by every change of them.
#[derive(Default)]
pub(crate) struct Noted {
    /// The tick in which a write noted its time, or found it noted.
    pub(crate) write: AtomicU64,
    /// The tick before which no read changes the access time.
    pub(crate) read_until: AtomicU64,
}

impl Noted {
    /// The times changed: nothing is known to be noted.
    pub(crate) fn forget(&self) {
        self.write.store(NEVER, Ordering::Release);
        self.read_until.store(NEVER, Ordering::Release);
    }
}
