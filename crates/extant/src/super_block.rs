//! The superblock's changing fields.

use extant_disk::superblock::RawSuperblock;
use extant_jbd2::Handle;

use crate::error::Result;
use crate::fs::Fs;

/// The superblock's changing fields: they live in the block cache, like all metadata.
#[derive(Default)]
pub(crate) struct SuperBlock {}

impl SuperBlock {
    /// Changes the superblock under `h` and seals it. One credit.
    ///
    /// # Errors
    /// The block cannot be read, or the journal has stopped.
    pub(crate) fn update<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        f: impl FnOnce(&mut RawSuperblock) -> R,
    ) -> Result<R> {
        let _ = (fs, h, f);
        todo!()
    }
}
