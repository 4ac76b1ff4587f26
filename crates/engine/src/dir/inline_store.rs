//! The entries of a directory that has them inside of its inode, as the one block of a linear
//! directory: a copy, in which they are found. [`super::inline_entries`] changes them.

use std::sync::Arc;

use extant_disk::damage::{CorruptKind, DirectoryDamage};
use extant_disk::dirent::DirentError;
use extant_jbd2::Handle;
use extant_units::Lblk;

use super::dir_store::{Profile, Shape, Store};
use super::fs_store::profile;
use crate::inline_data;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Such a directory.
pub(super) struct InlineStore<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    profile: Profile,
    block: Arc<[u8]>,
}

impl<'a> InlineStore<'a> {
    /// The entries of `inode`, a directory with inline data.
    ///
    /// # Errors
    /// Not a directory; a removed one; damage; a failed read.
    pub(super) fn open(fs: &'a Fs, inode: &'a Inode) -> Result<Self> {
        if inode.kind != FileKind::Directory {
            return Err(Error::NotDir);
        }
        if inode.core.read().links == 0 {
            return Err(Error::NotFound);
        }
        let mut profile = profile(fs, inode);
        // No checksum but the inode's.
        profile.format = profile.format.inside();
        let damage = |kind: CorruptKind| {
            let error = Error::corrupt(Location::DirBlock(inode.ino, Lblk::ZERO), kind);
            fs.fault.report(fs, &error);
            error
        };
        let data = inline_data::read(fs, inode)?.unwrap_or_default();
        let block = profile.format.block_of_inside(inode.ino, &data);
        let block = block.ok_or_else(|| damage(DirectoryDamage::NoBlock.into()))?;
        let checked = profile.format.check_leaf(&block);
        checked.map_err(|error: DirentError| damage(error.into()))?;
        Ok(Self {
            fs,
            inode,
            profile,
            block: block.into(),
        })
    }
}

impl Store for InlineStore<'_> {
    type Handle = Handle;
    type Block = Arc<[u8]>;
    type Data = Arc<[u8]>;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn blocks(&self) -> u32 {
        1
    }

    fn index_flag(&self) -> bool {
        false
    }

    fn set_index_flag(&self, _: &mut Handle, _: bool) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn read(&self, lblk: Lblk, _: Shape) -> Result<Self::Block> {
        debug_assert_eq!(lblk, Lblk::ZERO, "there is one block");
        Ok(Arc::clone(&self.block))
    }

    fn data(&self, block: &Self::Block) -> Self::Data {
        Arc::clone(block)
    }

    fn modify<R>(
        &self,
        _: &mut Handle,
        _: &Self::Block,
        _: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Err(Error::ReadOnly)
    }

    fn append(&self, _: &mut Handle, _: Shape, _: &[u8]) -> Result<Lblk> {
        Err(Error::ReadOnly)
    }

    fn begin_walk(&self) -> Result<()> {
        Ok(())
    }

    fn readahead(&self, _: Lblk, _: u32) {}

    fn corrupt(&self, lblk: Lblk, kind: CorruptKind) -> Error {
        let error = Error::corrupt(Location::DirBlock(self.inode.ino, lblk), kind);
        self.fs.fault.report(self.fs, &error);
        error
    }
}
