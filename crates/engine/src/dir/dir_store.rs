//! The blocks of one directory, as the directory code sees them.
//!
//! [`Store`] is the border between the algorithms (linear, index, listing) and the rest of the file
//! system. It returns blocks that were checked for the shape they are read as, changes them under a
//! handle, and appends new ones. [`super::fs_store::FsStore`] is the real one; the tests have one
//! in memory, which can lie like a hostile disk.
//!
//! # Locks
//! None are taken here. The caller holds the directory's `lock`, exclusively for every function
//! that takes a handle.

use std::ops::Deref;

use extant_disk::damage::CorruptKind;
use extant_disk::dir_hash::{DirHasher, HashAlgorithm, HashError};
use extant_disk::dirent::DirFormat;
use extant_disk::htree::{HtreeError, IndexKind};
use extant_units::Lblk;

use super::name_form::NameForm;
use crate::types::error::{Error, Result};

/// Kind of a block as it is read. Decides how it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Entries: any block of a linear directory, the lowest level of an indexed one.
    Leaf,
    /// Part of an index.
    Index(IndexKind),
}

/// Properties of the file system that its directories depend on.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// How this directory's blocks are laid out.
    pub(super) format: DirFormat,
    /// Directories may have an index (`dir_index`).
    pub(super) dir_index: bool,
    /// Levels of nodes that an index may have between root and leaves: 1, or 2 with `large_dir`.
    pub(super) max_levels: u8,
    /// The form of its names.
    pub(super) names: NameForm,
    /// The hash of new indexes (`s_def_hash_version`).
    pub(super) new_index: HashAlgorithm,
    /// Hashes take bytes as unsigned (`s_flags`).
    pub(super) hash_unsigned: bool,
    /// `s_hash_seed`.
    pub(super) hash_seed: [u32; 4],
}

impl Profile {
    /// The hasher of an index whose root says `version`.
    pub(super) fn hasher(&self, version: u8) -> std::result::Result<DirHasher, HashError> {
        let hasher = DirHasher::new(version, self.hash_unsigned, self.hash_seed)?;
        Ok(hasher.folding(self.format.folded))
    }

    /// The hasher of a directory that has no index yet.
    pub(super) fn new_hasher(&self) -> DirHasher {
        DirHasher::with(self.new_index, self.hash_unsigned, self.hash_seed)
            .folding(self.format.folded)
    }
}

/// The blocks of one directory.
pub(super) trait Store {
    /// The handle under which changes are made.
    type Handle;
    /// A cheap reference to a block.
    type Block: Clone;
    /// A snapshot of a block's bytes. Drop it before changing the block, else the change has to
    /// copy.
    type Data: Deref<Target = [u8]>;

    /// The format and the features.
    fn profile(&self) -> &Profile;

    /// Number of the directory's blocks.
    fn blocks(&self) -> u32;

    /// Returns whether the inode is marked as indexed (`EXT4_INDEX_FL`), whatever the features say.
    fn index_flag(&self) -> bool;

    /// Sets or clears that mark.
    fn set_index_flag(&self, h: &mut Self::Handle, on: bool) -> Result<()>;

    /// Block `lblk`, checked as `shape`.
    fn read(&self, lblk: Lblk, shape: Shape) -> Result<Self::Block>;

    /// The bytes of a block as they are now.
    fn data(&self, block: &Self::Block) -> Self::Data;

    /// Changes a block. If `change` fails, nothing was changed.
    fn modify<R>(
        &self,
        h: &mut Self::Handle,
        block: &Self::Block,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R>;

    /// Appends a block of these bytes to the directory, to be read as `shape` from then on.
    fn append(&self, h: &mut Self::Handle, shape: Shape, bytes: &[u8]) -> Result<Lblk>;

    /// Called before a walk over many blocks. Fails if they are not all different.
    fn begin_walk(&self) -> Result<()>;

    /// Reads the blocks from `from` on ahead.
    fn readahead(&self, from: Lblk, count: u32);

    /// Reports damage in block `lblk`: applies the `errors=` policy and returns the error.
    fn corrupt(&self, lblk: Lblk, kind: CorruptKind) -> Error;

    /// Returns whether the directory is read and changed through its index.
    fn indexed(&self) -> bool {
        self.profile().dir_index && self.index_flag()
    }

    /// Adds the block to an error about a broken structure.
    fn check<T, E: Into<CorruptKind>>(&self, lblk: Lblk, result: Result<T, E>) -> Result<T> {
        result.map_err(|error| self.corrupt(lblk, error.into()))
    }
}

impl Shape {
    /// Checks `block` as this shape. `format` and `max_levels` are the directory's.
    pub(super) fn check(
        self,
        format: &DirFormat,
        max_levels: u8,
        block: &[u8],
    ) -> Result<(), HtreeError> {
        match self {
            Self::Leaf => Ok(format.check_leaf(block)?),
            Self::Index(kind) => format.check_index(block, kind, max_levels),
        }
    }
}
