//! Direct writes, as a file system makes them: the protocol of `FillGuard`.

use std::ops::Range;

use extant_blockdev::BlockDevice;
use extant_extent_io_tree::{Bits, ByteRange};
use extant_iomap::FillGuard;
use extant_units::{DevOff, Pos};
use shuttle::sync::atomic::{AtomicBool, Ordering};

use super::tiny::{BLOCK, Tiny};

/// How a direct write excludes fills of the cache.
#[derive(Clone, Copy)]
pub(crate) struct Care {
    /// Waits for fills that began before they had to take a guard.
    pub(crate) waits: bool,
    /// Locks the range against fills that begin later.
    pub(crate) locks: bool,
}

impl Care {
    pub(crate) const FULL: Self = Self {
        waits: true,
        locks: true,
    };
}

/// Set once the file was written directly.
#[derive(Default)]
pub(crate) struct Bypass(AtomicBool);

impl Bypass {
    pub(crate) fn is_used(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Tiny {
    /// As the file system answers [`extant_iomap::IomapOps::hold`].
    pub(crate) fn hold_blocks(
        &self,
        wanted: Range<Pos>,
        needed: Option<Range<Pos>>,
    ) -> Option<FillGuard<'_>> {
        let bytes =
            |range: &Range<Pos>| ByteRange::new(range.start.get(), range.end.get() - 1).unwrap();
        let bits = Bits::DIO_LOCKED;
        if let Some(guard) = self.ranges.try_lock(bytes(&wanted), bits) {
            return Some(FillGuard::new(wanted, guard));
        }
        let needed = needed?;
        let guard = self.ranges.lock(bytes(&needed), bits);
        Some(FillGuard::new(needed, guard))
    }

    /// Writes block `number`, which has a place, past the cache, in two steps.
    pub(crate) fn write_direct(&self, number: usize, with: u8, care: Care) {
        let pos = (number * BLOCK) as u64;
        let mine = self.lock_for_write(pos, BLOCK);
        self.bypass.0.store(true, Ordering::SeqCst);
        if care.waits {
            drop(self.pages.invalidate_lock().write());
        }
        let lock = || self.ranges.lock(mine.range(), Bits::DIO_LOCKED);
        let _fills = care.locks.then(lock);
        let (start, end) = (Pos::new(pos), Pos::new(pos + BLOCK as u64));
        if !self.pages.invalidate(start, end, false) {
            self.sync();
            assert!(self.pages.invalidate(start, end, true), "the range is ours");
        }
        let place = self.place(number) * BLOCK as u64;
        for half in [0, BLOCK as u64 / 2] {
            let at = DevOff::new(place + half);
            self.device.write_at(at, &[with; BLOCK / 2]).unwrap();
        }
    }
}
