//! The inode allocator: bitmap bits, counts, and inode tables that were never written.
//!
//! In a group whose inode table was never zeroed, the allocator always takes the first free inode.
//! Everything past the highest inode ever used is garbage on disk there; a table block is zeroed
//! when its first inode is taken. e2fsck and Linux look no further than `itable_unused` says, so
//! they never see garbage.

use extant_sync::atomic::Ordering::Relaxed;

use extant_disk::bitmap;
use extant_disk::damage::{BitmapDamage, InodeDamage};
use extant_disk::group_desc::GroupFlags;
use extant_jbd2::{Block, Handle};
use extant_units::{Group, Ino, exact_u32};

use crate::state::alloc::{AllocatorCore, InodeRequest};
use crate::state::group::{GroupState, locate};
use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};

impl AllocatorCore {
    /// See [`super::allocate_inode`].
    pub(super) fn allocate_inode(
        &self,
        h: &mut Handle,
        request: &InodeRequest,
    ) -> Result<(Ino, u32)> {
        let first = self.inode_group(request);
        let groups = u64::from(self.layout.groups());
        for step in 0..groups {
            let at = (u64::from(first.get()) + step) % groups;
            let group = Group::new(exact_u32(at));
            let free = self
                .groups
                .hints(group)
                .map_or(0, |hints| hints.free_inodes.load(Relaxed));
            if free == 0 {
                continue;
            }
            if let Some(made) = self.inode_in_group(h, group, request.directory)? {
                self.stats.inode_allocs.bump();
                self.counts.inode_used(request.directory);
                return Ok(made);
            }
        }
        Err(Error::NoSpace)
    }

    /// An inode of `group`, and its generation.
    fn inode_in_group(
        &self,
        h: &mut Handle,
        group: Group,
        directory: bool,
    ) -> Result<Option<(Ino, u32)>> {
        let disk = self.disk();
        let layout = &self.layout;
        let inodes = layout.inodes_per_group;
        let mut locked = self.groups.lock(group)?;
        if locked.state.broken || locked.state.desc.free_inodes == 0 {
            return Ok(None);
        }
        let block = match self.bitmaps_for_inode(h, group, &mut locked.state) {
            Ok(block) => block,
            Err(error) => {
                if matches!(error, Error::Corrupt { .. }) {
                    locked.give_up();
                }
                return Err(error);
            }
        };
        // Of the reserved inodes, those from this group on: none but in the first groups.
        let reserved = u64::from(layout.first_inode - 1)
            .saturating_sub(u64::from(group.get()) * u64::from(inodes));
        let reserved = u32::try_from(reserved).map_or(inodes, |reserved| reserved.min(inodes));
        // A scan from the front would cost more the fuller the group is.
        let from = locked.state.first_free.clamp(reserved, inodes);
        let index = bitmap::next_clear(&block.data(), from, inodes);
        let Some(ino) = layout.inode_at(group, index).filter(|_| index < inodes) else {
            if reserved > 0 {
                // Only reserved inodes are left.
                return Ok(None);
            }
            locked.give_up();
            let stored = locked.state.desc.free_inodes;
            let damage = BitmapDamage::FreeInodes { free: 0, stored };
            return Err(Error::corrupt(Location::InodeBitmap(group), damage));
        };
        if layout.uninit_groups() {
            // A group with an inode in use is expected to have a block bitmap.
            if locked.state.desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                disk.writable_block_bitmap(h, group, &mut locked.state)?;
            }
            if let Err(error) = self.prepare_table(h, group, &mut locked.state, index) {
                if matches!(error, Error::Corrupt { .. }) {
                    locked.give_up();
                }
                return Err(error);
            }
        }
        let before = disk.change_inode_bit(h, &block, &mut locked.state, index, true)?;
        debug_assert!(!before, "inode {ino} was free while its group is locked");
        locked.state.first_free = index + 1;
        let desc = &mut locked.state.desc;
        desc.free_inodes -= 1;
        // Saturates, as in `free_inode`.
        desc.used_dirs = desc.used_dirs.saturating_add(u32::from(directory));
        locked.store_desc(layout, &self.cache, h)?;
        locked.publish(None);
        let generation = self.next_generation(&mut locked.state, directory);
        Ok(Some((ino, generation)))
    }

    /// The inode bitmap of `group`. Damage of a block bitmap that is there is found first, before
    /// anything is changed or counts on the group.
    pub(super) fn bitmaps_for_inode(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
    ) -> Result<Block> {
        let disk = self.disk();
        if self.layout.uninit_groups() && !state.desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            disk.writable_block_bitmap(h, group, state)?;
        }
        disk.writable_inode_bitmap(h, group, state)
    }

    /// Makes the table block of inode `index` readable, and moves `itable_unused` past the inode.
    fn prepare_table(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
        index: u32,
    ) -> Result<()> {
        let inodes = self.layout.inodes_per_group;
        // The descriptor's count was checked when it was read.
        debug_assert!(state.desc.itable_unused <= inodes && index < inodes);
        let mark = inodes - state.desc.itable_unused;
        if index > mark && !state.desc.flags.contains(GroupFlags::ITABLE_ZEROED) {
            return Err(Error::corrupt(
                Location::InodeBitmap(group),
                BitmapDamage::UsedPastMark { mark },
            ));
        }
        self.prepare_table_up_to(h, group, state, index)
    }

    /// The same for an inode that is not the next one: the blocks in between are zeroed too.
    pub(super) fn prepare_table_up_to(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
        index: u32,
    ) -> Result<()> {
        let inodes = self.layout.inodes_per_group;
        let mark = inodes - state.desc.itable_unused;
        if index < mark {
            return Ok(());
        }
        if !state.desc.flags.contains(GroupFlags::ITABLE_ZEROED) {
            let per_block = self.layout.inodes_per_block.max(1);
            for block in mark.div_ceil(per_block)..=index / per_block {
                let at = locate(&self.layout, state.desc.inode_table, block * per_block);
                h.create(at.block, CheckKind::InodeTable.of_group(group))?;
                // A replay finds what mkfs has left there, and puts records into it.
                h.set_untold();
            }
        }
        state.desc.itable_unused = inodes - (index + 1);
        Ok(())
    }

    /// See [`super::hold_inode_bitmap`].
    pub(super) fn hold_inode_bitmap(&self, h: &mut Handle, ino: Ino) -> Result<Option<Block>> {
        let Some((group, _)) = self.layout.group_of_inode(ino) else {
            return Ok(None);
        };
        let mut locked = self.groups.lock(group)?;
        if self.layout.uninit_groups() && locked.state.desc.flags.contains(GroupFlags::INODE_UNINIT)
        {
            return Ok(None);
        }
        let disk = self.disk();
        let block = disk.writable_inode_bitmap(h, group, &mut locked.state)?;
        Ok(Some(block))
    }

    /// See [`super::free_inode`].
    pub(super) fn free_inode(&self, h: &mut Handle, ino: Ino, is_dir: bool) -> Result<()> {
        let bad = |damage: InodeDamage| Error::corrupt(Location::Inode(ino), damage);
        if ino.get() < self.layout.first_inode {
            return Err(bad(InodeDamage::FreesReserved));
        }
        let (group, index) = self
            .layout
            .group_of_inode(ino)
            .ok_or_else(|| bad(InodeDamage::FreesMissing))?;
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        if self.layout.uninit_groups() && locked.state.desc.flags.contains(GroupFlags::INODE_UNINIT)
        {
            return Err(bad(InodeDamage::FreesUnused));
        }
        let block = disk.writable_inode_bitmap(h, group, &mut locked.state)?;
        if !bitmap::test(&block.data(), index) {
            return Err(bad(InodeDamage::FreesFree));
        }
        let before = disk.change_inode_bit(h, &block, &mut locked.state, index, false)?;
        debug_assert!(before, "inode {ino} was in use while its group is locked");
        let desc = &mut locked.state.desc;
        // Saturates, as nothing on disk confirms these counts of a damaged descriptor.
        desc.free_inodes = desc.free_inodes.saturating_add(1);
        desc.used_dirs = desc.used_dirs.saturating_sub(u32::from(is_dir));
        locked.store_desc(&self.layout, &self.cache, h)?;
        locked.publish(None);
        let counts = !locked.state.broken;
        drop(locked);
        self.stats.inode_frees.bump();
        self.counts.inode_freed(is_dir);
        if !counts {
            self.counts.inodes_lost(1);
        }
        Ok(())
    }

    /// A number that tells successive users of one inode number apart. Both terms only grow, and
    /// the group's own with each inode, so none comes twice in a group before the sum wraps.
    fn next_generation(&self, group: &mut GroupState, directory: bool) -> u32 {
        const STEP: u32 = 0x9E37_79B9;
        group.made = group.made.wrapping_add(1);
        let before = match directory {
            true => self.generation.fetch_add(STEP, Relaxed),
            false => self.generation.load(Relaxed),
        };
        let mut x = before.wrapping_add(group.made.wrapping_mul(STEP));
        x ^= x >> 16;
        x = x.wrapping_mul(0x85EB_CA6B);
        x ^= x >> 13;
        x = x.wrapping_mul(0xC2B2_AE35);
        x ^ x >> 16
    }
}
