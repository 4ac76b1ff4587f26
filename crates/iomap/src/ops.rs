//! The traits that a file system implements. `docs/IOMAP.md` is the guide to them.

use std::fmt;
use std::io;
use std::ops::Range;

use extant_blockdev::BlockDevice;
use extant_pagecache::{AddressSpace, FolioLocked, WritebackFault};
use extant_units::{DevOff, Pos};

use crate::counters::IomapCounters;
use crate::fill_guard::FillGuard;
use crate::ioend::Ioend;
use crate::map::Iomap;

/// The operation that wants a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IomapOp {
    /// Reading into the cache.
    Read,
    /// Writing into the cache: the answer has space, allocated or reserved.
    Write,
    /// Zeroing what exists: never allocates.
    Zero,
    /// Looking only, for `SEEK_DATA`, `SEEK_HOLE` and reports of extents.
    Report,
}

/// How an operation on a mapping ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Bytes processed, from the position that was asked for.
    pub done: u64,
    /// The mapping was found stale; the rest is mapped again.
    pub stale: bool,
}

impl Outcome {
    /// `done` bytes were processed.
    pub fn done(done: u64) -> Self {
        Self { done, stale: false }
    }

    /// The mapping was found stale after `done` bytes.
    pub fn stale(done: u64) -> Self {
        Self { done, stale: true }
    }
}

/// A request to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceRequest {
    /// A read of file data.
    Read,
    /// A write of file data.
    Write,
}

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// The device failed under a file. The cause is the error's source, with its errno.
#[derive(Debug, thiserror::Error)]
#[error("{request} of {len} bytes at byte {at} of the device: {source}")]
pub struct DeviceFault {
    /// The request that failed.
    pub request: DeviceRequest,
    /// Its first byte.
    pub at: DevOff,
    /// How many bytes.
    pub len: u64,
    /// The device's error.
    pub source: io::Error,
}

/// One file, as buffered I/O sees it.
pub trait IomapOps: Sync {
    /// The file system's error.
    type Error: From<DeviceFault>;

    /// The file's folios.
    fn address_space(&self) -> &AddressSpace;
    /// The device that has the file's data.
    fn device(&self) -> &dyn BlockDevice;
    /// The counters to use.
    fn counters(&self) -> &IomapCounters;

    /// The file's size in memory.
    fn size(&self) -> u64;

    /// Raises the size in memory to `end` if it is smaller. `_locked` is the lock of the folio with
    /// byte `end - 1`: writeback, which zeroes a folio past the end of the file, waits for it.
    fn raise_size(&self, _locked: FolioLocked<'_>, end: u64);

    /// The mapping at `pos`, for an operation on `len` bytes.
    ///
    /// # Errors
    /// The file system's.
    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, Self::Error>;

    /// Ends the operation on `len` bytes at `pos` of `map`. Gives back the space that `begin` made
    /// ([`Iomap::new`]) and `outcome` did not use, and tells the cache
    /// ([`AddressSpace::clear_backed`]): where a block is known to have space, a write of all of it
    /// asks no map.
    ///
    /// Called with no folio locked for writes. An implementation that looks into the cache does so
    /// before it locks the file's map, as `begin` locks the map with folios locked.
    ///
    /// # Errors
    /// The file system's.
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

    /// Returns whether `map` is true at this moment. If so, the cache as it was seen since `begin`
    /// returned `map` belongs to it: data that left the cache before that look is in a newer map.
    /// Takes short locks only.
    fn is_current(&self, map: &Iomap) -> bool;

    /// [`IomapOps::is_current`] under the lock of a folio of the range, which keeps the answer true
    /// for that folio.
    fn is_valid(&self, _locked: FolioLocked<'_>, map: &Iomap) -> bool {
        self.is_current(map)
    }

    /// Returns whether small writes in order may make folios that are larger than they are. What is
    /// mapped of such a folio has to be locked against all that would change its space.
    fn folios_may_grow(&self) -> bool {
        true
    }

    /// Returns whether what is read has to pass [`IomapOps::check_filled`]: then all of it goes
    /// through the cache, holes too. Never changes.
    fn checks_fills(&self) -> bool {
        false
    }

    /// Checks whole blocks from `pos` on before they count as uptodate: what the device has, zeros
    /// for holes, and zeros behind the end of the file.
    ///
    /// # Errors
    /// They are not what the file system vouches for.
    fn check_filled(&self, pos: Pos, bytes: &[u8]) -> Result<(), Self::Error> {
        let _ = (pos, bytes);
        Ok(())
    }

    /// Returns whether the device has the file's bytes in another form ([`IomapOps::decode`],
    /// [`IomapOps::encode`]). Then all of them go through the cache, which has them as they are.
    /// Never changes.
    fn is_encoded(&self) -> bool {
        false
    }

    /// Turns whole blocks at `pos`, as the device has them, into the file's bytes. Called where
    /// [`IomapOps::is_encoded`].
    ///
    /// # Errors
    /// The file system's: they cannot be had.
    fn decode(&self, pos: Pos, bytes: &mut [u8]) -> Result<(), Self::Error> {
        let _ = (pos, bytes);
        Ok(())
    }

    /// The form that the device gets of whole blocks at `pos`. Called where
    /// [`IomapOps::is_encoded`], with the bytes in a buffer of their own.
    ///
    /// # Errors
    /// The file system's: they have no other form.
    fn encode(&self, pos: Pos, bytes: &mut [u8]) -> Result<(), Self::Error> {
        let _ = (pos, bytes);
        Ok(())
    }

    /// Returns whether a fill needs a [`FillGuard`], as the file may be written directly. It
    /// becomes true before the first direct write (the file system may set it for a direct read,
    /// too) and stays so; a write need not be under way. The thread that sets it then takes the
    /// invalidate lock exclusively for a moment, and so waits for fills that have not seen it.
    fn fills_need_lock(&self) -> bool {
        false
    }

    /// Locks a part of `wanted`, whole blocks, against direct writes. With `needed`, a part of
    /// `wanted`, the guard covers at least that, and is waited for. Without it, `None` if a direct
    /// write to `wanted` is under way. The caller holds no lock that comes after the inode's.
    fn lock_fill(&self, wanted: Range<Pos>, needed: Option<Range<Pos>>) -> Option<FillGuard<'_>> {
        let _ = needed;
        Some(FillGuard::without_lock(wanted))
    }
}

/// A file whose dirty folios can be written.
pub trait WritebackOps: IomapOps {
    /// The mapping for `len` dirty bytes at `pos`, whole blocks. Reserved space is allocated here,
    /// unwritten, as much as possible at once; the answer may be longer than `len`. A hole means
    /// that the data has no space.
    ///
    /// # Errors
    /// No space; damage; a stopped journal.
    fn map_blocks(&self, pos: Pos, len: u64) -> Result<Iomap, Self::Error>;

    /// The data of `ioend` is on the device: converts unwritten space, and then moves the size on
    /// disk. Folios leave writeback after this.
    ///
    /// # Errors
    /// The journal's.
    fn complete(&self, ioend: &Ioend) -> Result<(), Self::Error>;

    /// The `len` bytes at `pos` could not be mapped and are lost: gives their reservation back.
    fn discard(&self, pos: Pos, len: u64);

    /// The error to report for dirty data that gets no space because of `error`, and is lost.
    fn lost_data_error(&self, error: Self::Error) -> Self::Error {
        error
    }

    /// The fault to record for fsync.
    fn fault_of(error: &Self::Error) -> WritebackFault;
}
