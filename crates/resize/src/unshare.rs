//! Blocks of their own for all files of a volume with `shared_blocks`.
//!
//! # Responsibility
//! The steps are those of a resize that keeps the geometry: the check, a private copy, the check of
//! that, one transaction. The file with the lowest number keeps a block that several have; the
//! others get copies, in blocks that the volume does not use. The last step clears the feature, so
//! that the check of the copy finds each block that two files still have.
//!
//! # Invariants
//! Those of a resize: a cut at any write leaves the volume with shared blocks, or the one without.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, FileDevice, FileIo, OpenMode, memory_share};
use extant_check::require_repaired_features;
use extant_disk::bitmap;
use extant_disk::extent::Extent;
use extant_disk::features::RoCompat;
use extant_disk::file_kind::FileKind;
use extant_disk::geometry::Geometry;
use extant_disk::inode::{BLOCK_AREA, InodeCore, InodeFlags};
use extant_units::{Ino, Lblk, Pblk, at_most_u32};

use crate::error::{Error, Result};
use crate::extents::{Tree, blocks_of};
use crate::options::ResizeOptions;
use crate::pointers::{level_of, numbers, words};
use crate::volume::{Volume, read_super};
use crate::{open, prepare};

/// The result of giving files blocks of their own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unshared {
    /// Files that have other blocks now.
    pub files: u64,
    /// Blocks that were shared and have a copy now, counted once for each copy.
    pub blocks: u64,
}

/// Gives each file of the image file or block device at `path` its own blocks. See [`unshare`].
///
/// # Errors
/// [`Error::Open`] if another process uses it or it cannot be opened; else as [`unshare`].
pub fn unshare_image(
    path: impl AsRef<Path>,
    dry_run: bool,
    options: &ResizeOptions<'_>,
) -> Result<Unshared> {
    let mode = match dry_run {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    };
    let device = FileDevice::open_with(path.as_ref(), mode, FileIo::SYSCALLS)?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    match dry_run {
        true => count_shared(device, options),
        false => unshare(device, options),
    }
}

/// Gives each file on `dev` its own blocks and clears `shared_blocks`. A volume without the feature
/// is left as it is. No other process may use it meanwhile.
///
/// # Errors
/// Why the volume is as it was, [`Error::Crowded`] among others; or the device failed.
pub fn unshare(dev: Arc<dyn BlockDevice>, options: &ResizeOptions<'_>) -> Result<Unshared> {
    unshared(&dev, options).map_err(in_words)
}

fn unshared(dev: &Arc<dyn BlockDevice>, options: &ResizeOptions<'_>) -> Result<Unshared> {
    if !prepare_shared(dev, options)? {
        return Ok(Unshared::default());
    }
    let mut volume = open_shared(dev)?;
    volume.count()?;
    let unshared = volume.unshare_files()?;
    volume.clear_feature();
    volume.store_usage()?;
    volume.store()?;
    if let Some(blocks) = volume.log_shortage()? {
        volume.relocate_log(blocks)?;
        volume.store()?;
    }
    let judged = prepare::judge(&volume.dev, options)?;
    volume.commit(judged)?;
    Ok(unshared)
}

/// Counts what [`unshare`] would do on `dev`, and writes nothing.
///
/// # Errors
/// As [`unshare`].
fn count_shared(dev: Arc<dyn BlockDevice>, options: &ResizeOptions<'_>) -> Result<Unshared> {
    let copy: Arc<dyn BlockDevice> = Arc::new(CowDevice::with_limit(dev, memory_share()));
    let counted = prepare_shared(&copy, options).and_then(|shares| match shares {
        true => open_shared(&copy)?.count(),
        false => Ok(Unshared::default()),
    });
    counted.map_err(in_words)
}

/// Puts a volume in order whose files share blocks. Returns false if they do not.
fn prepare_shared(dev: &Arc<dyn BlockDevice>, options: &ResizeOptions<'_>) -> Result<bool> {
    let sb = read_super(dev)?;
    if !sb.features().has_ro_compat(RoCompat::SHARED_BLOCKS) {
        return Ok(false);
    }
    require_repaired_features(&sb)?;
    prepare::put_in_order(dev, options)?;
    Ok(true)
}

/// The error of a step that a resize has as well.
fn in_words(error: Error) -> Error {
    match error {
        Error::Unsupported(why) => Error::Unshareable(why.to_owned()),
        Error::NoRoom(what) => Error::Unshareable(format!("no room for {what}")),
        other => other,
    }
}

/// A private copy of the volume, with its log.
fn open_shared(dev: &Arc<dyn BlockDevice>) -> Result<Volume> {
    let mut volume = open(dev, &Geometry::of(&read_super(dev)?), u64::MAX)?;
    if volume.old.cluster_bits > 0 {
        return Err(Error::Unsupported("files with clusters share no blocks"));
    }
    volume.begin()?;
    volume.move_log()?;
    Ok(volume)
}

/// Blocks that a file before has, a bit for each in the groups that have one.
#[derive(Default)]
struct Owned(BTreeMap<u32, Vec<u8>>);

impl Owned {
    /// Takes a block. Returns false if a file before, or this one, has it.
    fn take(&mut self, volume: &Volume, block: u64) -> bool {
        let group = volume.old.group_of(block);
        let bits = self.0.entry(group);
        let bits = bits.or_insert_with(|| vec![0; volume.block_bytes()]);
        let at = at_most_u32(block - volume.old.group_start(group));
        !bitmap::set(bits, at)
    }

    /// The parts of a run of which all blocks are owned by now, and of which none was, in order.
    fn parts(&mut self, volume: &Volume, run: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts: Vec<(Range<u64>, bool)> = Vec::new();
        for block in run {
            let is_new = self.take(volume, block);
            match parts.last_mut() {
                Some((part, new)) if *new == is_new => part.end = block + 1,
                _ => parts.push((block..block + 1, is_new)),
            }
        }
        parts
    }
}

impl Volume {
    /// Counts blocks and files that have to get others.
    ///
    /// # Errors
    /// There is no room for them.
    fn count(&self) -> Result<Unshared> {
        let mut owned = Owned::default();
        let mut all = Unshared::default();
        for ino in self.sharers()? {
            let core = self.inode(ino)?;
            let blocks = self.data_of(ino, &core)?;
            let shared = blocks.iter().filter(|block| !owned.take(self, **block));
            let shared = shared.count() as u64;
            all.files += u64::from(shared > 0);
            all.blocks += shared;
        }
        let free = self.groups.iter().map(|desc| u64::from(desc.free_blocks));
        let free = free.sum();
        let needed = all.blocks;
        match needed > free {
            true => Err(Error::Crowded { needed, free }),
            false => Ok(all),
        }
    }

    /// The files that may have blocks together, in order.
    fn sharers(&self) -> Result<Vec<Ino>> {
        let mut all = Vec::new();
        let first = self.raw.first_ino.get();
        for group in 0..self.old.groups {
            for ino in self.inodes_of(group)? {
                if ino.get() < first {
                    continue;
                }
                if let Some(core) = self.used_inode(ino)?
                    && FileKind::from_mode(core.mode) == Some(FileKind::Regular)
                    && self.has_map(&core)
                {
                    all.push(ino);
                }
            }
        }
        Ok(all)
    }

    /// Gives each file its own blocks.
    fn unshare_files(&mut self) -> Result<Unshared> {
        let mut owned = Owned::default();
        let mut all = Unshared::default();
        for ino in self.sharers()? {
            let mut core = self.inode(ino)?;
            let (sectors, before) = (core.sectors, self.blocks_moved);
            match core.flags.contains(InodeFlags::EXTENTS) {
                true => self.unshare_tree(ino, &mut core, &mut owned)?,
                false => self.unshare_pointers(&mut core, &mut owned)?,
            }
            if self.blocks_moved > before {
                self.put_inode(ino, &core)?;
                self.charge(ino, sectors, &core);
                all.files += 1;
                all.blocks += self.blocks_moved - before;
            }
        }
        Ok(all)
    }

    fn unshare_tree(&mut self, ino: Ino, core: &mut InodeCore, owned: &mut Owned) -> Result<()> {
        let tree = self.tree(ino, core)?;
        let before = self.blocks_moved;
        let mut extents: Vec<Extent> = Vec::with_capacity(tree.extents.len());
        for extent in &tree.extents {
            for piece in self.unshare_extent(extent, owned)? {
                match extents.last_mut() {
                    Some(last) if last.merges_with(&piece) => last.len += piece.len,
                    _ => extents.push(piece),
                }
            }
        }
        if self.blocks_moved == before {
            return Ok(());
        }
        let nodes = tree.nodes;
        self.store_tree(ino, core, &Tree { extents, nodes })
    }

    /// The pieces that become of an extent, in file order.
    fn unshare_extent(&mut self, extent: &Extent, owned: &mut Owned) -> Result<Vec<Extent>> {
        let run = blocks_of(extent);
        let mut pieces = Vec::new();
        for (part, is_own) in owned.parts(self, run.clone()) {
            let mut at = part.start;
            while at < part.end {
                let to = match is_own {
                    true => part.clone(),
                    false => self.copy_shared(at..part.end, extent.unwritten)?,
                };
                pieces.push(Extent {
                    lblk: Lblk::new(extent.lblk.get() + at_most_u32(at - run.start)),
                    len: at_most_u32(to.end - to.start),
                    pblk: Pblk::new(to.start),
                    unwritten: extent.unwritten,
                });
                at += to.end - to.start;
            }
        }
        let len: u32 = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, extent.len, "the pieces are all of the extent");
        Ok(pieces)
    }

    /// Copies the first blocks of `run` to free ones.
    fn copy_shared(&mut self, run: Range<u64>, unwritten: bool) -> Result<Range<u64>> {
        let within = self.anywhere(false);
        let taken = self.take_run(run.end - run.start, &within)?;
        let taken = taken.ok_or(Error::NoRoom("copies of shared blocks"))?;
        let len = taken.end - taken.start;
        // Blocks that were never written need no copy.
        match unwritten {
            true => self.blocks_moved += len,
            false => self.copy(run.start, taken.start, len)?,
        }
        self.blocks_added += i128::from(len);
        Ok(taken)
    }

    fn unshare_pointers(&mut self, core: &mut InodeCore, owned: &mut Owned) -> Result<()> {
        let mut new = Vec::new();
        for (slot, pointer) in words(&core.i_block).enumerate() {
            new.push(self.unshare_pointer(pointer, level_of(slot), owned)?);
        }
        let bytes = numbers(new.into_iter(), BLOCK_AREA)?;
        core.i_block.copy_from_slice(&bytes);
        Ok(())
    }

    /// Copies a block of data that another file has, or those below a block of pointers. Returns
    /// where it is then.
    fn unshare_pointer(&mut self, pointer: u32, level: u32, owned: &mut Owned) -> Result<u64> {
        let old = u64::from(pointer);
        if pointer == 0 {
            return Ok(0);
        }
        if level == 0 {
            if owned.take(self, old) {
                return Ok(old);
            }
            let within = self.anywhere(true);
            let block = self.take_whole(1, &within)?;
            let block = block.ok_or(Error::NoRoom("copies of shared blocks"))?;
            self.copy(old, block, 1)?;
            self.blocks_added += 1;
            return Ok(block);
        }
        let bytes = self.block(old)?;
        let mut new = Vec::with_capacity(bytes.len() / 4);
        for below in words(&bytes) {
            new.push(self.unshare_pointer(below, level - 1, owned)?);
        }
        let new = numbers(new.into_iter(), bytes.len())?;
        if new != bytes {
            self.put(old, &new)?;
        }
        Ok(old)
    }

    /// Clears the feature, in the superblock as it becomes.
    fn clear_feature(&mut self) {
        let mut features = self.raw.features();
        features.ro_compat.remove(RoCompat::SHARED_BLOCKS);
        self.raw.set_features(features);
    }
}
