//! Where a file's bytes are, as the ioctl FS_IOC_FIEMAP tells it.
//!
//! The same walk as [`Volume::map`], in the ioctl's terms: no holes, flags instead of states.

use std::iter::{FusedIterator, Peekable};

use bitflags::bitflags;

use super::extents::{Extent, ExtentState, Extents};
use super::node::Node;
use super::volume::Volume;
use crate::error::{Error, Result};
use crate::file;

bitflags! {
    /// What a [`FiemapExtent`] is; the bits of `FIEMAP_EXTENT_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct FiemapFlags: u32 {
        /// No other follows in the file.
        const LAST = 0x1;
        /// Its place is not known.
        const UNKNOWN = 0x2;
        /// It has no place yet.
        const DELALLOC = 0x4;
        /// It is allocated and reads as zeros.
        const UNWRITTEN = 0x800;
    }
}

/// A range of a file that has space. Whole blocks, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiemapExtent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device; 0 if there is none yet.
    pub physical: u64,
    /// Bytes.
    pub len: u64,
    /// What it is.
    pub flags: FiemapFlags,
}

/// The extents that a range of a file touches, see [`Volume::fiemap`].
pub struct Fiemap {
    extents: Peekable<Spaces>,
    /// The byte after the range.
    end: u64,
}

/// Extents without the holes.
struct Spaces(Extents);

impl Iterator for Spaces {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Result<Extent>> {
        let space = |extent: &Result<Extent>| {
            extent
                .as_ref()
                .is_ok_and(|extent| extent.state == ExtentState::Hole)
        };
        self.0.find(|extent| !space(extent))
    }
}

impl Volume {
    /// The extents that `len` bytes of a file from byte `start` on touch, as FS_IOC_FIEMAP tells them: whole, without holes, those behind the
    /// end of the file included. With `sync` what is dirty gets its place first (`FIEMAP_FLAG_SYNC`). Looked up one by one, as with
    /// [`Volume::map`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for no bytes; [`crate::Error::FileTooBig`] if `start` is behind the last byte that a file can have.
    pub fn fiemap(&self, node: &Node, start: u64, len: u64, sync: bool) -> Result<Fiemap> {
        self.fs().fault.check_alive()?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        if start > file::max_size(self.fs(), node.inode()) {
            return Err(Error::FileTooBig);
        }
        if sync {
            file::settle(self.fs(), node.inode());
        }
        let extents = Extents::new(self.clone(), node.clone(), start);
        Ok(Fiemap {
            extents: Spaces(extents).peekable(),
            end: start.saturating_add(len),
        })
    }
}

impl Iterator for Fiemap {
    type Item = Result<FiemapExtent>;

    fn next(&mut self) -> Option<Result<FiemapExtent>> {
        let extent = match self.extents.next()? {
            Ok(extent) if extent.logical < self.end => extent,
            Ok(_) => {
                // Those behind it lie further right.
                self.end = 0;
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        let mut flags = match extent.state {
            ExtentState::Unwritten => FiemapFlags::UNWRITTEN,
            ExtentState::Delayed => FiemapFlags::DELALLOC | FiemapFlags::UNKNOWN,
            ExtentState::Written | ExtentState::Hole => FiemapFlags::empty(),
        };
        if self.extents.peek().is_none() {
            flags |= FiemapFlags::LAST;
        }
        Some(Ok(FiemapExtent {
            logical: extent.logical,
            physical: extent.physical.unwrap_or(0),
            len: extent.len,
            flags,
        }))
    }
}

impl FusedIterator for Fiemap {}
