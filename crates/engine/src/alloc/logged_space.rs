//! Blocks and inodes that another system chose: those of fast commits, which a replay takes as they
//! are.

use std::sync::Arc;

use extant_disk::bitmap;
use extant_disk::damage::{BitmapDamage, InodeDamage};
use extant_disk::group_desc::GroupFlags;
use extant_jbd2::Handle;
use extant_units::{Group, Ino};

use crate::state::alloc::{AllocatorCore, Claimant, Run};
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, all_or_abort};

/// Marks the clusters of `run` that are free as in use, and returns them. Needs the credits of an
/// extent that is removed ([`crate::volume::credits::remove_extent`]). What a transaction freed
/// that is not durable yet does not count as free.
///
/// # Errors
/// [`Error::NoSpace`] if the counts do not have so much, a bitmap that is damaged or cannot be
/// read, a stopped journal.
pub(crate) fn take_free(fs: &Fs, h: &mut Handle, run: Run) -> Result<Vec<Run>> {
    let core = &fs.alloc.core;
    let taken = core.counted(all_or_abort(h, |h| core.take_free(h, run)));
    taken.inspect_err(|error| fs.fault.report(fs, error))
}

/// Returns whether inode `ino` is marked as in use.
///
/// # Errors
/// A bitmap that is damaged or cannot be read; a stopped journal.
pub(crate) fn is_inode_used(fs: &Fs, h: &mut Handle, ino: Ino) -> Result<bool> {
    let used = fs.alloc.core.is_inode_used(h, ino);
    used.inspect_err(|error| fs.fault.report(fs, error))
}

/// Marks inode `ino`, which is free, as in use, and makes its block of the table readable. Needs
/// [`crate::volume::credits::INODE_ALLOC`] credits and one for each block of a group's table.
///
/// # Errors
/// [`Error::Corrupt`]: it is in use, or a bitmap is damaged. A stopped journal.
pub(crate) fn take_inode(fs: &Fs, h: &mut Handle, ino: Ino, directory: bool) -> Result<()> {
    let core = &fs.alloc.core;
    let taken = core.counted(all_or_abort(h, |h| core.take_inode(h, ino, directory)));
    taken.inspect_err(|error| fs.fault.report(fs, error))
}

impl AllocatorCore {
    fn take_free(self: &Arc<Self>, h: &mut Handle, run: Run) -> Result<Vec<Run>> {
        let mut taken = Vec::new();
        let run = self.whole_clusters(run);
        let end = run.start.plus(run.len.get());
        let mut at = run.start;
        while at < end {
            let Some((group, index)) = self.layout.cluster_of_block(at) else {
                break;
            };
            let left = end.distance_from(at).unwrap_or(0) >> self.layout.cluster_bits;
            let room = u64::from(self.layout.group_clusters(group) - index).min(left);
            // A part of a group: its length fits.
            let last = index + extant_units::exact_u32(room);
            self.take_free_in_group(h, group, index..last, &mut taken)?;
            at = at.plus(room << self.layout.cluster_bits);
        }
        Ok(taken)
    }

    fn take_free_in_group(
        &self,
        h: &mut Handle,
        group: Group,
        range: std::ops::Range<u32>,
        taken: &mut Vec<Run>,
    ) -> Result<()> {
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        locked.map(&disk)?;
        let mut from = range.start;
        while let Some(free) = {
            let map = locked.state.map.as_ref();
            map.and_then(|map| map.next_usable(from..range.end))
        } {
            from = free.end;
            let run = self.run_of(group, &free);
            let len = run.len.get();
            let claimed = self.counts.claim(Claimant::Pool, len, len);
            claimed.ok_or(Error::NoSpace)?;
            self.counts.used(len);
            disk.mark_used(h, group, &mut locked.state, free.clone())?;
            if let Some(map) = locked.state.map.as_mut() {
                map.take(free);
            }
            taken.push(run);
        }
        locked.store_desc(&self.layout, &self.cache, h)?;
        locked.publish(None);
        Ok(())
    }

    fn is_inode_used(&self, h: &mut Handle, ino: Ino) -> Result<bool> {
        let Some((_, index)) = self.layout.group_of_inode(ino) else {
            return Ok(false);
        };
        let block = self.hold_inode_bitmap(h, ino)?;
        Ok(block.is_some_and(|block| bitmap::test(&block.data(), index)))
    }

    fn take_inode(&self, h: &mut Handle, ino: Ino, directory: bool) -> Result<()> {
        let missing = || Error::corrupt(Location::Inode(ino), InodeDamage::Missing);
        let (group, index) = self.layout.group_of_inode(ino).ok_or_else(missing)?;
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        if locked.state.broken || locked.state.desc.free_inodes == 0 {
            let (free, stored) = (0, locked.state.desc.free_inodes);
            let damage = BitmapDamage::FreeInodes { free, stored };
            return Err(Error::corrupt(Location::InodeBitmap(group), damage));
        }
        let block = self.bitmaps_for_inode(h, group, &mut locked.state)?;
        if bitmap::test(&block.data(), index) {
            return Err(Error::corrupt(Location::Inode(ino), InodeDamage::InUse));
        }
        if self.layout.uninit_groups() {
            if locked.state.desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                disk.writable_block_bitmap(h, group, &mut locked.state)?;
            }
            self.prepare_table_up_to(h, group, &mut locked.state, index)?;
        }
        disk.change_inode_bit(h, &block, &mut locked.state, index, true)?;
        let desc = &mut locked.state.desc;
        desc.free_inodes -= 1;
        desc.used_dirs = desc.used_dirs.saturating_add(u32::from(directory));
        locked.store_desc(&self.layout, &self.cache, h)?;
        locked.publish(None);
        drop(locked);
        self.stats.inode_allocs.bump();
        self.counts.inode_used(directory);
        Ok(())
    }
}
