//! Growing a mounted volume.

use super::volume::Volume;
use crate::Result;
use crate::grow;

impl Volume {
    /// Grows the volume to at most `bytes`, and the device with it: a regular file gets longer, of
    /// a block device the length is read anew. Other calls go on meanwhile. What comes in reach is
    /// usable as soon as it is durable, a step at a time; a power cut leaves the size before a step
    /// or after it. As in `resize2fs`, the volume gets whole blocks, and a last group only if it is
    /// worth its metadata.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] for a smaller size, for a device that is too short and cannot
    /// grow, for more groups than the blocks that are reserved for descriptors have room for, past
    /// 2^32 blocks, for `sparse_super2`, and where errors are on record. Nothing has changed then.
    /// [`crate::Error::Busy`] if another thread grows the volume; [`crate::Error::ReadOnly`]; those
    /// of writing, after which the volume may have grown by some steps.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        grow::grow(self.fs(), bytes)
    }

    /// Bytes of the volume, as of now.
    pub fn size(&self) -> u64 {
        let layout = &self.fs().layout;
        layout.end().get() << layout.block_size.log2()
    }
}
