//! The blocks of a directory of a mounted file system.

use extant_sync::atomic::Ordering;
use std::cell::Cell;

use extant_disk::damage::{CorruptKind, DirectoryDamage};
use extant_disk::dir_hash::HashAlgorithm;
use extant_disk::dirent::DirFormat;
use extant_disk::features::{Compat, Incompat};
use extant_disk::htree::IndexKind;
use extant_disk::inode::InodeFlags;
use extant_jbd2::{Block, BlockData, CheckKey, Handle};
use extant_units::{BlockSize, Lblk, Pblk, exact_u32};

use super::dir_store::{Profile, Shape, Store};
use super::distinct_blocks;
use super::folding::{STORED_HASHES, folds};
use super::name_form::NameForm;
use crate::map;
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, MapState};
use crate::state::volume::CheckKind;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Blocks of a search that does not count as long.
const SHORT: u32 = 8;
/// Runs that one call of `readahead` looks up.
const MAX_RUNS: u32 = 16;

/// A directory's blocks, read through its map and the block cache.
pub(super) struct FsStore<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    profile: Profile,
    privileged: bool,
    /// A walk may end early, as it changes nothing.
    may_end: bool,
    /// Steps of the walk so far.
    steps: Cell<u32>,
}

impl<'a> FsStore<'a> {
    /// The blocks of an existing directory.
    ///
    /// # Errors
    /// Not a directory; a removed one; damage: one without a block.
    pub(super) fn open(fs: &'a Fs, inode: &'a Inode) -> Result<Self> {
        if inode.core.read().links == 0 {
            return Err(Error::NotFound);
        }
        let store = Self::new(fs, inode, false)?;
        if store.blocks() == 0 {
            return Err(store.corrupt(Lblk::ZERO, DirectoryDamage::NoBlock.into()));
        }
        Ok(store)
    }

    /// The blocks of a directory that may have none yet. With `privileged`, new ones may come from
    /// root's reserve.
    pub(super) fn new(fs: &'a Fs, inode: &'a Inode, privileged: bool) -> Result<Self> {
        if inode.kind != FileKind::Directory {
            return Err(Error::NotDir);
        }
        Ok(Self {
            fs,
            inode,
            profile: profile(fs, inode),
            privileged,
            may_end: false,
            steps: Cell::new(0),
        })
    }

    /// As [`FsStore::open`], for a caller that may add blocks. With `privileged` they may come from
    /// root's reserve.
    pub(super) fn open_to_grow(fs: &'a Fs, inode: &'a Inode, privileged: bool) -> Result<Self> {
        Ok(Self {
            privileged,
            ..Self::open(fs, inode)?
        })
    }

    /// As [`FsStore::open`], for a caller that changes nothing: a long walk ends when
    /// [`Fs::check_interrupted`] says so.
    pub(super) fn open_to_walk(fs: &'a Fs, inode: &'a Inode) -> Result<Self> {
        Ok(Self {
            may_end: true,
            ..Self::open(fs, inode)?
        })
    }

    /// Called at every step of a walk. Short walks always go on.
    fn check_interrupted(&self) -> Result<()> {
        let steps = self.steps.get();
        self.steps.set(steps + 1);
        if self.may_end && steps >= SHORT {
            return self.fs.check_interrupted();
        }
        Ok(())
    }

    fn key(&self, shape: Shape) -> CheckKey {
        let kind = match shape {
            Shape::Leaf => CheckKind::Directory,
            Shape::Index(IndexKind::Root) => CheckKind::DirectoryRoot,
            Shape::Index(IndexKind::Node) => CheckKind::DirectoryNode,
        };
        kind.of_inode(self.inode.ino)
    }

    fn block_size(&self) -> BlockSize {
        self.profile.format.block_size
    }

    fn damage(&self, lblk: Lblk, kind: impl Into<CorruptKind>) -> Error {
        Error::corrupt(Location::DirBlock(self.inode.ino, lblk), kind)
    }

    /// The physical block of `lblk`.
    fn pblk_of(&self, lblk: Lblk) -> Result<Pblk> {
        if lblk.get() >= self.blocks() {
            return Err(self.damage(lblk, DirectoryDamage::PastEnd));
        }
        match map::lookup(self.fs, self.inode, lblk, 1)?.state {
            MapState::Written(pblk) => Ok(pblk),
            _ => Err(self.damage(lblk, DirectoryDamage::Hole)),
        }
    }

    fn read_checked(&self, lblk: Lblk, shape: Shape) -> Result<Block> {
        self.check_interrupted()?;
        let key = self.key(shape);
        let Profile {
            format, max_levels, ..
        } = &self.profile;
        self.fs.cache.read(self.pblk_of(lblk)?, key, |bytes| {
            let checked = shape.check(format, *max_levels, bytes);
            checked.map_err(|error| self.damage(lblk, error))
        })
    }
}

/// The properties of the file system that the directory `inode` depends on.
pub(super) fn profile(fs: &Fs, inode: &Inode) -> Profile {
    let layout = &fs.layout;
    let features = &layout.features;
    let large_dir = features.has_incompat(Incompat::LARGEDIR);
    Profile {
        format: DirFormat {
            block_size: layout.block_size,
            file_type: features.has_incompat(Incompat::FILETYPE),
            max_ino: layout.inodes_count(),
            seed: inode.csum_seed(fs),
            folded: folds(inode),
            hashes: inode.flags().contains(STORED_HASHES),
        },
        dir_index: features.has_compat(Compat::DIR_INDEX),
        max_levels: if large_dir { 2 } else { 1 },
        names: NameForm::of(fs, inode),
        new_index: HashAlgorithm::from_version(layout.hash_version)
            .unwrap_or(HashAlgorithm::HalfMd4),
        hash_unsigned: layout.hash_unsigned,
        hash_seed: layout.hash_seed,
    }
}

impl Store for FsStore<'_> {
    type Handle = Handle;
    type Block = Block;
    type Data = BlockData;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn blocks(&self) -> u32 {
        // The size was checked when the inode was loaded, and every block that was added since.
        exact_u32(self.inode.size() >> self.block_size().log2())
    }

    fn index_flag(&self) -> bool {
        self.inode.flags().contains(InodeFlags::INDEX)
    }

    fn set_index_flag(&self, h: &mut Handle, on: bool) -> Result<()> {
        self.inode
            .update(self.fs, h, |core| core.flags.set(InodeFlags::INDEX, on))
    }

    fn read(&self, lblk: Lblk, shape: Shape) -> Result<Block> {
        let result = self.read_checked(lblk, shape);
        if let Err(error) = &result {
            self.fs.fault.report(self.fs, error);
        }
        result
    }

    fn data(&self, block: &Block) -> BlockData {
        block.data()
    }

    fn modify<R>(
        &self,
        h: &mut Handle,
        block: &Block,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.inode.note_change(h);
        Ok(h.modify(block, change)?)
    }

    fn append(&self, h: &mut Handle, shape: Shape, bytes: &[u8]) -> Result<Lblk> {
        let lblk = Lblk::new(self.blocks());
        let size = (u64::from(lblk.get()) + 1) << self.block_size().log2();
        let limit = self.fs.options.max_dir_size().unwrap_or(u64::MAX);
        if size > limit.min(self.fs.layout.max_dir_bytes()) {
            return Err(Error::NoSpace);
        }
        let how = AllocateMode {
            metadata: true,
            privileged: self.privileged,
            ..AllocateMode::default()
        };
        let mapping = map::allocate(self.fs, h, self.inode, lblk, 1, how)?;
        let MapState::Written(pblk) = mapping.state else {
            return Err(self.corrupt(lblk, DirectoryDamage::NotAllocated.into()));
        };
        let block = h.create(pblk, self.key(shape))?;
        h.modify(&block, |new| new.copy_from_slice(bytes))?;
        self.inode
            .update(self.fs, h, |core| core.disk_size = size)?;
        self.inode.size.store(size, Ordering::Release);
        debug_assert_eq!(self.blocks(), lblk.get() + 1, "whole blocks");
        Ok(lblk)
    }

    fn begin_walk(&self) -> Result<()> {
        if self.blocks() <= 1 || self.inode.is_distinct() {
            return Ok(());
        }
        let checked = distinct_blocks::check(self.fs, self.inode, self.blocks(), || {
            self.check_interrupted()
        });
        checked.inspect_err(|error| self.fs.fault.report(self.fs, error))?;
        self.inode.note_distinct();
        Ok(())
    }

    fn readahead(&self, from: Lblk, count: u32) {
        let end = from.get().saturating_add(count).min(self.blocks());
        let mut next = from;
        for _ in 0..MAX_RUNS {
            let Some(left) = end.checked_sub(next.get()).filter(|left| *left > 0) else {
                return;
            };
            let Ok(run) = map::lookup(self.fs, self.inode, next, left) else {
                return;
            };
            if let MapState::Written(pblk) = run.state {
                self.fs.cache.readahead(pblk, run.len);
            }
            next = next.saturating_add(run.len);
        }
    }

    fn corrupt(&self, lblk: Lblk, kind: CorruptKind) -> Error {
        let error = self.damage(lblk, kind);
        self.fs.fault.report(self.fs, &error);
        error
    }
}
