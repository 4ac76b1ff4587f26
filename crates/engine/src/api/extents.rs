//! The location of a file's bytes on the device.

use std::fmt;
use std::iter::FusedIterator;

use extant_disk::damage::MapDamage;
use extant_units::{Lblk, at_most_u32};

use super::node::Node;
use super::volume::Volume;
use crate::state::map::{MapState, Status};
use crate::types::error::{Error, Location};
use crate::volume::Fs;
use crate::{Result, inode, map};

/// The state of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentState {
    /// Blocks with data.
    Written,
    /// Blocks that are allocated and read as zeros.
    Unwritten,
    /// Data in memory, with space reserved and nothing allocated yet.
    Delayed,
    /// Nothing: reads as zeros.
    Hole,
}

impl ExtentState {
    /// Its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            ExtentState::Written => "written",
            ExtentState::Unwritten => "unwritten",
            ExtentState::Delayed => "delayed",
            ExtentState::Hole => "hole",
        }
    }
}

/// A range of a file in one state and, if it is allocated, in one run on the device. Whole blocks,
/// in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device; `None` for holes and delayed data.
    pub physical: Option<u64>,
    /// Bytes.
    pub len: u64,
    /// Its state.
    pub state: ExtentState,
}

/// The extents of a file, see [`Volume::map`].
pub struct Extents {
    volume: Volume,
    node: Node,
    /// The file block that the next extent starts with; `None` at the end.
    next: Option<u64>,
    walked: map::Walked,
}

impl fmt::Debug for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extents")
            .field("node", &self.node)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// The location of the bytes of a file, directory or long symbolic link, from byte `pos` on:
    /// extents in order, holes and delayed data included, up to the end of the file or the last
    /// block behind it. A file with its content in the inode has none. Each extent is looked up
    /// when it is asked for, so other threads may change the file meanwhile, and only one is in
    /// memory.
    pub fn map(&self, node: &Node, pos: u64) -> Extents {
        Extents::new(self.clone(), node.clone(), pos)
    }
}

impl Extents {
    /// Those of `node` from byte `pos` on.
    pub(super) fn new(volume: Volume, node: Node, pos: u64) -> Self {
        let has_blocks = inode::has_blocks(volume.fs(), node.inode());
        let next = has_blocks.then(|| pos >> volume.fs().layout.block_size.log2());
        Self {
            volume,
            node,
            next,
            walked: map::Walked::default(),
        }
    }

    fn range(&self, at: u64) -> Result<Option<Status>> {
        let (fs, inode) = (self.volume.fs(), self.node.inode());
        fs.fault.check_alive()?;
        let Some(mut range) = map::range_at(fs, inode, at, u64::MAX)? else {
            return Ok(None);
        };
        self.walked.add(fs, inode, range.len, range.state)?;
        if range.state == MapState::Hole
            && map::range_at(fs, inode, range.end(), u64::MAX)?.is_none()
        {
            // Nothing follows: the hole ends with the file.
            let size = self.volume.getattr(&self.node)?.size;
            let left = fs
                .layout
                .block_size
                .blocks_for(size)
                .get()
                .saturating_sub(at);
            if left == 0 {
                return Ok(None);
            }
            range.len = range.len.min(at_most_u32(left));
        }
        Ok(Some(range))
    }

    fn extent(&self, range: &Status) -> Result<Extent> {
        let fs: &Fs = self.volume.fs();
        let bs = fs.layout.block_size;
        let (state, pblk) = match range.state {
            MapState::Written(pblk) => (ExtentState::Written, Some(pblk)),
            MapState::Unwritten(pblk) => (ExtentState::Unwritten, Some(pblk)),
            MapState::Delayed => (ExtentState::Delayed, None),
            MapState::Hole => (ExtentState::Hole, None),
        };
        let place = |pblk| {
            let beyond = || Error::corrupt(Location::Inode(self.node.ino()), MapDamage::PastDevice);
            bs.dev_off(pblk).map(|at| at.get()).ok_or_else(beyond)
        };
        Ok(Extent {
            logical: bs.pos(Lblk::new(range.lblk.get())).get(),
            physical: pblk.map(place).transpose()?,
            len: u64::from(range.len) * bs.bytes_u64(),
            state,
        })
    }
}

impl Iterator for Extents {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Result<Extent>> {
        let at = self.next.take()?;
        let range = match self.range(at) {
            Ok(range) => range?,
            Err(error) => return Some(Err(error)),
        };
        debug_assert!(at < range.end(), "{range:?} from block {at}");
        self.next = Some(range.end());
        Some(self.extent(&range))
    }
}

impl FusedIterator for Extents {}
