//! The location of a file's bytes, as the ioctl FS_IOC_FIEMAP reports it.
//!
//! The same walk as [`Volume::map`], in the ioctl's terms: no holes, flags instead of states.

use std::fmt;
use std::iter::{FusedIterator, Peekable};
use std::ops::Range;

use bitflags::bitflags;
use extant_disk::inode::RawInode;
use extant_units::Pos;

use super::extents::{Extent, ExtentState, Extents};
use super::node::Node;
use super::volume::Volume;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::{file, inline_data};

bitflags! {
    /// The state of a [`FiemapExtent`]; the bits of `FIEMAP_EXTENT_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct FiemapFlags: u32 {
        /// No other extent follows in the requested range.
        const LAST = 0x1;
        /// Its location is not known.
        const UNKNOWN = 0x2;
        /// It is not allocated yet.
        const DELALLOC = 0x4;
        /// Its location or its length is not one of whole blocks.
        const NOT_ALIGNED = 0x100;
        /// It is inside of the inode.
        const DATA_INLINE = 0x200;
        /// It is allocated and reads as zeros.
        const UNWRITTEN = 0x800;
    }
}

/// A range of a file that has space. Whole blocks, in bytes, but for data inside of the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiemapExtent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device; 0 if there is none yet.
    pub physical: u64,
    /// Bytes.
    pub len: u64,
    /// Its state.
    pub flags: FiemapFlags,
}

/// The extents that a range of a file touches, see [`Volume::fiemap`].
pub struct Fiemap {
    extents: Peekable<Spaces>,
    /// The data inside of the inode, of a file that has its data there and so no extents.
    inside: Option<FiemapExtent>,
    /// The requested range, in whole blocks.
    range: Range<u64>,
}

impl fmt::Debug for Fiemap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fiemap")
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
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
    /// The extents that `len` bytes of a file from byte `start` on touch, as FS_IOC_FIEMAP reports
    /// them: cut at the ends of the range, without holes, those behind the end of the file
    /// included. The last in the range is flagged. With `sync` dirty data is written first, so that
    /// it is allocated (`FIEMAP_FLAG_SYNC`). Extents are looked up one by one, as with
    /// [`Volume::map`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for no bytes, or none that a file can have;
    /// [`crate::Error::FileTooBig`] if `start` is behind those.
    pub fn fiemap(&self, node: &Node, start: u64, len: u64, sync: bool) -> Result<Fiemap> {
        self.fs().fault.check_alive()?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        let most = file::max_size(self.fs(), node.inode());
        if start > most {
            return Err(Error::FileTooBig);
        }
        if start == most {
            // As on Linux: nothing of the range is left.
            return Err(Error::Invalid);
        }
        if sync {
            file::write_and_wait(self.fs(), node.inode());
        }
        let extents = Extents::new(self.clone(), node.clone(), start);
        let bs = self.fs().layout.block_size;
        let end = Pos::new(start.saturating_add(len).min(most));
        let inside = inside(self.fs(), node.inode())?;
        Ok(Fiemap {
            inside: inside.filter(|extent| start < extent.len),
            extents: Spaces(extents).peekable(),
            range: bs.round_down(Pos::new(start)).get()..bs.round_up(end).map_or(most, Pos::get),
        })
    }
}

impl Iterator for Fiemap {
    type Item = Result<FiemapExtent>;

    fn next(&mut self) -> Option<Result<FiemapExtent>> {
        if let Some(inside) = self.inside.take() {
            return Some(Ok(inside));
        }
        let extent = match self.extents.next()? {
            Ok(extent) if extent.logical < self.range.end => extent,
            Ok(_) => {
                // Later extents lie further right.
                self.range.end = 0;
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        let mut flags = match extent.state {
            ExtentState::Unwritten => FiemapFlags::UNWRITTEN,
            ExtentState::Delayed => FiemapFlags::DELALLOC | FiemapFlags::UNKNOWN,
            ExtentState::Written | ExtentState::Hole => FiemapFlags::empty(),
        };
        let follows = |next: &Result<Extent>| match next {
            Ok(next) => next.logical < self.range.end,
            Err(_) => true,
        };
        if !self.extents.peek().is_some_and(follows) {
            flags |= FiemapFlags::LAST;
        }
        let first = extent.logical.max(self.range.start);
        let end = (extent.logical + extent.len).min(self.range.end);
        debug_assert!(first < end, "{extent:?} in {:?}", self.range);
        let place = |at: u64| at + (first - extent.logical);
        Some(Ok(FiemapExtent {
            logical: first,
            physical: extent.physical.map_or(0, place),
            len: end - first,
            flags,
        }))
    }
}

/// The data inside of `inode`, which begins in `i_block`.
fn inside(fs: &Fs, inode: &Inode) -> Result<Option<FiemapExtent>> {
    if !inline_data::is_inline(inode) {
        return Ok(None);
    }
    let record = fs.groups.inode_location(&fs.layout, inode.ino)?;
    let block = fs.layout.block_size.dev_off(record.block);
    let block = block.ok_or(Error::FileTooBig)?.get();
    let len = inode.disk_size();
    Ok((len > 0).then_some(FiemapExtent {
        logical: 0,
        physical: block + (record.offset + RawInode::BLOCK_OFFSET) as u64,
        len,
        flags: FiemapFlags::DATA_INLINE | FiemapFlags::NOT_ALIGNED | FiemapFlags::LAST,
    }))
}

impl FusedIterator for Fiemap {}
