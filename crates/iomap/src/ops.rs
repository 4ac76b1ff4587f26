//! What a file system implements.

use std::io;
use std::ops::Range;

use extant_blockdev::BlockDevice;
use extant_pagecache::{AddressSpace, WritebackFault};
use extant_units::{DevOff, Pos};

use crate::hold::FillGuard;
use crate::ioend::Ioend;
use crate::map::Iomap;
use crate::stats::IomapCounters;

/// What a mapping is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IomapOp {
    /// Reading into the cache.
    Read,
    /// Writing into the cache: the answer has space, allocated or promised.
    Write,
    /// Zeroing what exists: never allocates.
    Zero,
    /// Looking only.
    Report,
}

/// How an operation on a mapping ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Bytes processed, from the position that was asked for.
    pub done: u64,
    /// The mapping was found stale; the rest is mapped again.
    pub stale: bool,
    /// The file's size was raised.
    pub size_changed: bool,
}

/// The device failed under a file.
#[derive(Debug, thiserror::Error)]
#[error("{what} of {len} bytes at byte {at} of the device: {source}")]
pub struct DeviceFault {
    /// "read" or "write".
    pub what: &'static str,
    /// Where.
    pub at: DevOff,
    /// How much.
    pub len: u64,
    /// Why.
    pub source: io::Error,
}

/// One file, as seen by buffered I/O.
pub trait IomapOps: Sync {
    /// The file system's error.
    type Error: From<DeviceFault>;

    /// The file's folios.
    fn address_space(&self) -> &AddressSpace;
    /// Where its data is.
    fn device(&self) -> &dyn BlockDevice;
    /// Where to count.
    fn counters(&self) -> &IomapCounters;

    /// The file's size in memory.
    fn size(&self) -> u64;
    /// Raises the size in memory to `end` if it is smaller. Called with the folio that holds byte `end - 1` locked.
    fn raise_size(&self, end: u64);

    /// The mapping at `pos`, for an operation on `len` bytes.
    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, Self::Error>;

    /// Ends the operation on `len` bytes at `pos` of `map`. A promise of space that `begin` made
    /// ([`crate::IomapFlags::NEW`]) and that `outcome` did not use is given back here. Called with no folio locked for
    /// writes; whoever looks into the cache here does so before taking the lock of its map, which `begin` takes with
    /// folios locked.
    fn end(
        &self,
        op: IomapOp,
        map: &Iomap,
        pos: Pos,
        len: u64,
        outcome: Outcome,
    ) -> Result<(), Self::Error> {
        let _ = (op, map, pos, len, outcome);
        Ok(())
    }

    /// Whether `map` is still true. Called with a folio locked: takes only short locks.
    fn is_valid(&self, map: &Iomap) -> bool;

    /// Whether the device under this file is written past the cache, or was: reads of it then need a [`FillGuard`]. Once
    /// true, it stays so; it becomes true before the first such write, and then the invalidate lock is taken exclusively for
    /// a moment, so that no read goes on that has not seen it.
    fn has_direct_writes(&self) -> bool {
        false
    }

    /// Keeps writes past the cache away from a part of `wanted`, whole blocks, while the device is read there. With `needed`, a
    /// part of `wanted` that somebody waits for, the answer covers at least that, and is waited for; `None`
    /// without it if somebody writes there. No lock after the inode's may be held.
    fn lock_fill(&self, wanted: Range<Pos>, needed: Option<Range<Pos>>) -> Option<FillGuard<'_>> {
        let _ = needed;
        Some(FillGuard::without_lock(wanted))
    }
}

/// A file whose dirty folios can be written.
pub trait WritebackOps: IomapOps {
    /// The mapping for `len` dirty bytes at `pos`, whole blocks: promised space becomes allocated here, unwritten, as
    /// much as possible at once, and the answer may be longer than `len`. A hole means that the data has
    /// nowhere to go.
    fn map_blocks(&self, pos: Pos, len: u64) -> Result<Iomap, Self::Error>;

    /// The data of `ioend` is on the device: converts unwritten space, and then moves the size on disk. Folios
    /// leave writeback after this.
    fn complete(&self, ioend: &Ioend) -> Result<(), Self::Error>;

    /// The `len` bytes at `pos` could not be mapped and are lost: gives back what was promised for them.
    fn discard(&self, pos: Pos, len: u64);

    /// Dirty data finds no place because of `error`, and is given up: what to tell of that.
    fn data_lost(&self, error: Self::Error) -> Self::Error {
        error
    }

    /// What to record for fsync.
    fn fault_of(error: &Self::Error) -> WritebackFault;
}
