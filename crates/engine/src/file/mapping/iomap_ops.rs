//! Mappings of a file's ranges: the border between `iomap` and the map.
//!
//! A mapping is a copy of what the map said, on disk or in memory, with the sequence of what it
//! depends on as its cookie. A write into a hole reserves space, and the hole becomes delayed: a
//! bit in the file's I/O tree; nothing on disk changes and no handle is started. Only when
//! reservations come close to the free space is the hole allocated at once, unwritten.

use extant_sync::atomic::Ordering;
use std::ops::Range;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::damage::MapDamage;
use extant_disk::inode::InodeFlags;
use extant_failpoint::Failpoint;
use extant_iomap::{
    DeviceFault, DeviceRequest, FillGuard, Iomap, IomapCounters, IomapKind, IomapOp, IomapOps,
    Outcome,
};
use extant_lock_order::{Rank, taking};
use extant_pagecache::{AddressSpace, FolioLocked};
use extant_range_lock::ByteRange;
use extant_units::{DevOff, Lblk, Pblk, Pos, at_most_u32};

use crate::config::BufferedPath;
use crate::file::encoding;
use crate::file::file_state_init::file_state;
use crate::file::size::block_span;
use crate::file::verity;
use crate::state::file::{DataPath, FileState};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, BlockMapping, MapState, WriteSpan};
use crate::types::Cred;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits};
use crate::{alloc, map};

/// The context of one operation on a regular file: the file, what it was when the operation began,
/// and the operation's rights. Implements what the data paths ask of a file system.
pub(in crate::file) struct FileContext<'a> {
    pub(in crate::file) fs: &'a Fs,
    pub(in crate::file) inode: &'a Arc<Inode>,
    pub(in crate::file) state: &'a FileState,
    /// The file's data path when the operation began.
    pub(in crate::file) data_path: DataPath,
    /// The inode's flags when the operation began.
    pub(in crate::file) flags: InodeFlags,
    /// The operation may use the blocks reserved for root.
    pub(in crate::file) privileged: bool,
    /// The end of what the operation has locked, if that is more than it writes.
    locked_to: Pos,
    /// Blocks that a search for data or holes has met so far.
    walked: map::Walked,
}

/// With fewer free blocks than this a volume counts as nearly full, whatever is reserved.
const WATERMARK_BLOCKS: u64 = 256;

/// How to treat space, given what is free and what is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Space {
    /// Dirty data is to be allocated soon: reservations are often larger than what is needed.
    allocate_soon: bool,
    /// No new reservations: a write allocates at once.
    low: bool,
}

impl Space {
    /// The answer for `free` blocks, of which delayed allocation has reserved `reserved`. Counts
    /// of a damaged volume may be anything: products and sums saturate.
    fn of(free: u64, reserved: u64) -> Self {
        Self {
            allocate_soon: reserved > 0 && free < reserved.saturating_mul(2),
            low: free.saturating_mul(2) < reserved.saturating_mul(3)
                || free < reserved.saturating_add(WATERMARK_BLOCKS),
        }
    }
}

impl<'a> FileContext<'a> {
    pub(in crate::file) fn new(fs: &'a Fs, inode: &'a Arc<Inode>) -> Self {
        let state = file_state(fs, inode);
        Self {
            fs,
            inode,
            state,
            data_path: state.data_path.get(),
            flags: inode.flags(),
            privileged: false,
            locked_to: Pos::ZERO,
            walked: map::Walked::default(),
        }
    }

    /// The same context, with the file's data path and flags read anew.
    pub(in crate::file) fn refreshed(&self) -> Self {
        Self {
            privileged: self.privileged,
            ..Self::new(self.fs, self.inode)
        }
    }

    /// The context of an operation with the rights of `cred`.
    pub(in crate::file) fn with_cred(mut self, cred: &Cred) -> Self {
        self.privileged = alloc::may_use_reserve(self.fs, cred);
        self
    }

    /// The context of a write that has locked the file up to `end`: its mappings may reach as far.
    pub(in crate::file) fn with_locked_to(mut self, end: Pos) -> Self {
        self.locked_to = end;
        self
    }

    /// The mapping `map`, which is in blocks, in bytes.
    pub(in crate::file) fn to_iomap(&self, map: &BlockMapping) -> Result<Iomap> {
        debug_assert!(map.len > 0, "{map:?} is of a block at least");
        let bs = self.fs.layout.block_size;
        let at = |start: Pblk| {
            bs.dev_off(start).ok_or_else(|| {
                Error::corrupt(Location::Inode(self.inode.ino), MapDamage::PastDevice)
            })
        };
        let kind = match map.state {
            MapState::Hole => IomapKind::Hole,
            MapState::Delayed => IomapKind::Delalloc,
            MapState::Written(start) => IomapKind::Mapped(at(start)?),
            MapState::Unwritten(start) => IomapKind::Unwritten(at(start)?),
        };
        Ok(Iomap {
            offset: bs.pos(map.lblk),
            length: u64::from(map.len) * bs.bytes_u64(),
            kind,
            new: map.new,
            cookie: map.seq,
        })
    }

    /// The room for new reservations.
    fn space(&self) -> Space {
        let counts = &self.fs.alloc.counts;
        Space::of(counts.free_blocks().get(), counts.reserved_blocks().get())
    }

    /// Starts writeback when reservations come close to the free space, and returns whether they
    /// are so close that a write has to allocate at once (as `ext4_nonda_switch`). The caller holds
    /// no folio lock.
    pub(in crate::file) fn nonda_switch(&self) -> bool {
        let space = self.space();
        self.hurry_if_short(space);
        space.low
    }

    fn hurry_if_short(&self, space: Space) {
        if space.allocate_soon {
            self.fs.stats.low_space_flushes.bump();
            self.fs.files.pages.start_writeback();
        }
    }

    /// Space for a write, reserved or allocated. What has space already is mapped as far as it is
    /// locked.
    fn map_for_write(&self, lblk: Lblk, count: u32) -> Result<BlockMapping> {
        let locked_to = self.locked_to.get() >> self.fs.layout.block_size.log2();
        let locked = locked_to.saturating_sub(u64::from(lblk.get()));
        let span = WriteSpan {
            lblk,
            len: count,
            locked: at_most_u32(locked).max(count),
        };
        alloc::retry(self.fs, || {
            let space = self.space();
            let found = if self.fs.options.delalloc() && !space.low {
                map::reserve_delayed(self.fs, self.inode, span, self.privileged)
            } else {
                map::lookup(self.fs, self.inode, lblk, span.locked)
            };
            let has_space = |found: &BlockMapping| !found.new && found.state != MapState::Hole;
            if !found.as_ref().is_ok_and(has_space) {
                self.hurry_if_short(space);
            }
            let found = found?;
            match found.state {
                MapState::Hole => self.allocate_unwritten(lblk, found.len.min(count)),
                _ => Ok(found),
            }
        })
    }

    /// Allocates the hole at `lblk` at once, unwritten.
    pub(in crate::file) fn allocate_unwritten(
        &self,
        lblk: Lblk,
        count: u32,
    ) -> Result<BlockMapping> {
        self.fs.stats.direct_allocations.bump();
        let mut h = self.fs.start(credits::allocate(self.fs))?;
        let how = AllocateMode {
            unwritten: true,
            privileged: self.privileged,
            ..AllocateMode::default()
        };
        map::allocate(self.fs, &mut h, self.inode, lblk, count, how)
    }

    /// [`FileContext::allocate_unwritten`] for a write to the device; again after commits that may
    /// free space.
    pub(in crate::file) fn allocate_unwritten_retrying(
        &self,
        lblk: Lblk,
        count: u32,
    ) -> Result<BlockMapping> {
        self.counters().map_calls.bump();
        alloc::retry(self.fs, || self.allocate_unwritten(lblk, count))
    }
}

impl IomapOps for FileContext<'_> {
    type Error = Error;

    fn address_space(&self) -> &AddressSpace {
        if self.data_path.kind == BufferedPath::Iomap {
            // Every path to a folio begins here. On this data path no thread waits for a folio
            // while it has a handle (J24).
            self.fs.journal.assert_no_handle();
        }
        &self.state.address_space
    }

    fn device(&self) -> &dyn BlockDevice {
        // Read anew: a read may have begun before the switch of the data path.
        if self.state.data_path.get().journalled {
            &self.fs.files.logged
        } else {
            &*self.fs.dev
        }
    }

    fn counters(&self) -> &IomapCounters {
        &self.fs.files.stats
    }

    fn size(&self) -> u64 {
        self.inode.size()
    }

    fn raise_size(&self, _locked: FolioLocked<'_>, end: u64) {
        debug_assert!(
            end <= crate::file::max_size(self.fs, self.inode).max(self.inode.size()),
            "{end} bytes do not fit the map"
        );
        self.inode.size.fetch_max(end, Ordering::AcqRel);
    }

    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap> {
        self.fs.fault.check_alive()?;
        if self.flags.contains(InodeFlags::INLINE_DATA) {
            return Err(Error::OutOfRange);
        }
        let (lblk, count) = require_mappable(block_span(self.fs, pos, len))?;
        if matches!(op, IomapOp::Write | IomapOp::Zero) {
            // The dirty limit, writeback and allocation may all have to wait for a commit.
            self.fs.journal.assert_no_handle();
        }
        let map = match op {
            IomapOp::Write => self.map_for_write(lblk, count)?,
            IomapOp::Report => {
                self.fs.check_interrupted()?;
                let map = map::lookup(self.fs, self.inode, lblk, count)?;
                let met = self.walked.add(self.fs, self.inode, map.len, map.state);
                met.map(|()| map)?
            }
            _ => map::lookup(self.fs, self.inode, lblk, count)?,
        };
        let found = self.to_iomap(&map)?;
        debug_assert!(
            found.offset <= pos && pos < found.end(),
            "{found:?} covers {pos}"
        );
        Ok(found)
    }

    fn end(&self, op: IomapOp, map: &Iomap, pos: Pos, len: u64, outcome: Outcome) -> Result<()> {
        debug_assert!(outcome.done <= len, "{} of {len} bytes", outcome.done);
        let reserved = map.kind == IomapKind::Delalloc && map.new;
        if op != IomapOp::Write || !reserved || outcome.done >= len {
            return Ok(());
        }
        // More was reserved than written.
        let bs = self.fs.layout.block_size;
        let from = match outcome.done {
            // The first block got no data either, wherever in it the write was to begin.
            0 => bs.round_down(pos),
            done => bs.round_up(pos.plus(done)).unwrap_or(Pos::MAX),
        };
        let cache = &self.state.address_space;
        let no_fills = cache.invalidate_lock().write();
        let size = bs.round_up(Pos::new(self.inode.size()));
        let past_end = from.max(size.unwrap_or(Pos::MAX));
        // Behind the end of the file every reservation goes; before it, dirty blocks keep theirs.
        cache.drop_range(&no_fills, past_end, map.end().max(past_end));
        for clean in cache.clean_ranges(from, map.end()) {
            self.drop_reservations(clean.start, clean.end);
        }
        // Folios assumed that the whole mapping is theirs.
        cache.clear_backed(from, map.end());
        Ok(())
    }

    fn folios_may_grow(&self) -> bool {
        self.locked_to > Pos::ZERO
    }

    fn checks_fills(&self) -> bool {
        // Asked for anew: a fill may have waited while the file was protected.
        verity::is_protected(self.inode.flags())
    }

    fn check_filled(&self, pos: Pos, bytes: &[u8]) -> Result<()> {
        match self.checks_fills() {
            true => verity::check(self.fs, self.inode, self.state, pos, bytes),
            false => Ok(()),
        }
    }

    fn is_encoded(&self) -> bool {
        self.flags.contains(InodeFlags::ENCRYPT)
    }

    fn decode(&self, pos: Pos, bytes: &mut [u8]) -> Result<()> {
        encoding::decode(self.fs, self.inode, pos, bytes)
    }

    fn encode(&self, pos: Pos, bytes: &mut [u8]) -> Result<()> {
        encoding::encode(self.fs, self.inode, pos, bytes)
    }

    fn fills_need_lock(&self) -> bool {
        self.state.direct.is_announced()
    }

    fn lock_fill(&self, wanted: Range<Pos>, needed: Option<Range<Pos>>) -> Option<FillGuard<'_>> {
        let ranges = &self.state.ranges;
        let bytes = |range: &Range<Pos>| {
            let bytes = ByteRange::from_len(range.start.get(), range.end.since(range.start));
            debug_assert!(bytes.is_some(), "a fill of no bytes");
            bytes.unwrap_or(ByteRange::ALL)
        };
        // All of `wanted` if no thread writes there directly, otherwise what is waited for.
        let held = taking(Rank::Fill);
        if self
            .fs
            .tuning
            .failpoint
            .is(Failpoint::FillBesideDirectWrite)
        {
            return Some(FillGuard::new(wanted, ()));
        }
        if let Some(guard) = ranges.try_lock_fill(bytes(&wanted)) {
            return Some(FillGuard::new(wanted, (guard, held)));
        }
        let needed = needed?;
        self.fs.stats.direct_fill_waits.bump();
        let guard = ranges.lock_fill(bytes(&needed));
        Some(FillGuard::new(needed, (guard, held)))
    }

    fn is_current(&self, map: &Iomap) -> bool {
        self.fs.tuning.failpoint.is(Failpoint::PunchLooksOnce) || self.is_true(map)
    }

    fn is_valid(&self, _locked: FolioLocked<'_>, map: &Iomap) -> bool {
        self.fs.tuning.failpoint.is(Failpoint::StaleMappingUsed) || self.is_true(map)
    }
}

impl FileContext<'_> {
    /// Returns whether reads and writes have to go through the cache: what the device has is not
    /// the file's bytes as they are, or not all that there is of them.
    #[inline]
    pub(in crate::file) fn needs_cache(&self) -> bool {
        self.data_path.journalled || self.checks_fills() || self.is_encoded()
    }

    /// Returns whether the map says at this moment what `map` says.
    fn is_true(&self, map: &Iomap) -> bool {
        // Changes elsewhere in the file move the sequence as well, and writers make many.
        let state = self.map_state_of(map);
        map.cookie == self.inode.known.cookie(state) || self.is_still_mapped(map, state)
    }

    /// The state of the blocks of `map`: the inverse of [`FileContext::to_iomap`].
    fn map_state_of(&self, map: &Iomap) -> MapState {
        let pblk = |at: DevOff| Pblk::new(at.get() >> self.fs.layout.block_size.log2());
        match map.kind {
            IomapKind::Hole => MapState::Hole,
            IomapKind::Delalloc => MapState::Delayed,
            IomapKind::Mapped(at) => MapState::Written(pblk(at)),
            IomapKind::Unwritten(at) => MapState::Unwritten(pblk(at)),
        }
    }

    /// Returns whether the range is still mapped as `map` says, whatever changed elsewhere.
    fn is_still_mapped(&self, map: &Iomap, state: MapState) -> bool {
        block_span(self.fs, map.offset, map.length).is_some_and(|(lblk, len)| {
            let mapping = BlockMapping {
                lblk,
                len,
                state,
                new: false,
                seq: map.cookie,
            };
            map::still_holds(self.fs, self.inode, &mapping)
        })
    }

    /// Returns the reservations of the blocks of `[start, end)`.
    pub(in crate::file) fn drop_reservations(&self, start: Pos, end: Pos) {
        let Some(len) = end.distance_from(start).filter(|&len| len > 0) else {
            return;
        };
        if let Some((first, count)) = block_span(self.fs, start, len) {
            let end = u64::from(first.get()) + u64::from(count);
            map::drop_delayed(self.fs, self.inode, first, end);
        }
    }
}

/// The blocks of an operation. Fails if they lie past the last block that a file can have.
fn require_mappable(blocks: Option<(Lblk, u32)>) -> Result<(Lblk, u32)> {
    blocks
        .filter(|(first, _)| *first < Lblk::MAX)
        .ok_or(Error::Invalid)
}

impl From<DeviceFault> for Error {
    fn from(fault: DeviceFault) -> Self {
        // A thinly provisioned device can run out of space as well.
        if fault.request == DeviceRequest::Write
            && fault.source.kind() == std::io::ErrorKind::StorageFull
        {
            return Self::NoSpace;
        }
        Self::io(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::Space;

    #[test]
    fn iomap_15_promises_end_before_space_does() {
        for (free, reserved, allocate_soon, low) in [
            (1000, 0, false, false),
            (255, 0, false, true),
            (256, 0, false, false),
            (2000, 1000, false, false),
            (1999, 1000, true, false),
            (1500, 1000, true, false),
            (1499, 1000, true, true),
            // Where little is reserved, the watermark decides.
            (355, 100, false, true),
            (356, 100, false, false),
        ] {
            let space = Space::of(free, reserved);
            assert_eq!(
                (space.allocate_soon, space.low),
                (allocate_soon, low),
                "{free} {reserved}"
            );
        }
    }
}
