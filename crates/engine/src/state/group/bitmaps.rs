//! Bitmap blocks: read and checked, created for groups that never had one, changed under a handle.

use std::ops::Range;

use extant_disk::bitmap;
use extant_disk::damage::BitmapDamage;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_jbd2::{Block, BlockCache, Handle};
use extant_units::Group;

use super::free_map::FreeMap;
use super::group_state::GroupState;
use crate::state::volume::{CheckKind, Layout, Stats, SystemZones};
use crate::types::error::{Error, Location, Result};

/// The parts that reading and writing bitmaps needs.
#[derive(Clone, Copy)]
pub(crate) struct Bitmaps<'a> {
    /// Geometry.
    pub(crate) layout: &'a Layout,
    /// Metadata blocks.
    pub(crate) cache: &'a BlockCache,
    /// Blocks of the format itself.
    pub(crate) zones: &'a SystemZones,
    /// Counters.
    pub(crate) stats: &'a Stats,
    /// The failpoint that a test switches on.
    pub(crate) failpoint: ActiveFailpoint,
}

impl Bitmaps<'_> {
    /// Bytes of a block bitmap that its checksum covers.
    fn block_bitmap_bytes(&self) -> usize {
        (self.layout.clusters_per_group() / 8) as usize
    }

    /// Bytes of an inode bitmap that its checksum covers.
    fn inode_bitmap_bytes(&self) -> usize {
        (self.layout.inodes_per_group / 8) as usize
    }

    fn check_csum(
        &self,
        bytes: &[u8],
        covered: usize,
        stored: u32,
        location: Location,
    ) -> Result<()> {
        debug_assert!(covered <= bytes.len(), "a bitmap fits its block");
        let covered = bytes.get(..covered).unwrap_or(bytes);
        let Some(computed) = self.layout.group_checksum.of_bitmap(covered) else {
            return Ok(());
        };
        if GroupDesc::bitmap_csum_matches(stored, computed, self.layout.desc_size) {
            return Ok(());
        }
        Err(Error::corrupt(
            location,
            BitmapDamage::Checksum { stored, computed },
        ))
    }

    fn csum(&self, bytes: &[u8], covered: usize) -> Option<u32> {
        let covered = bytes.get(..covered).unwrap_or(bytes);
        let full = self.layout.group_checksum.of_bitmap(covered)?;
        Some(GroupDesc::stored_bitmap_csum(full, self.layout.desc_size))
    }

    /// Returns whether `group` never had a block bitmap.
    fn block_uninit(&self, desc: &GroupDesc) -> bool {
        self.layout.uninit_groups() && desc.flags.contains(GroupFlags::BLOCK_UNINIT)
    }

    /// The block bitmap of `group`, checked.
    pub(crate) fn read_block_bitmap(&self, group: Group, desc: &GroupDesc) -> Result<Block> {
        let location = Location::BlockBitmap(group);
        self.cache.read(
            desc.block_bitmap,
            CheckKind::BlockBitmap.of_group(group),
            |bytes| {
                self.stats.bitmap_loads.bump();
                self.check_csum(
                    bytes,
                    self.block_bitmap_bytes(),
                    desc.block_bitmap_csum,
                    location,
                )
            },
        )
    }

    /// Builds the free map of `group`.
    ///
    /// # Errors
    /// The bitmap cannot be read, has a bad checksum, disagrees with the descriptor's count, or has
    /// blocks of the format itself as free.
    pub(crate) fn load_map(&self, group: Group, desc: &GroupDesc) -> Result<FreeMap> {
        let len = self.layout.group_clusters(group);
        let map = if self.block_uninit(desc) {
            FreeMap::new(&self.initial_block_bitmap(group), len)
        } else {
            let bytes = self.read_block_bitmap(group, desc)?.data();
            for part in self.format_clusters(group) {
                if bitmap::count_set(&bytes, part.clone()) != part.end - part.start {
                    return Err(Error::corrupt(
                        Location::BlockBitmap(group),
                        BitmapDamage::FormatMarkedFree {
                            start: part.start,
                            end: part.end,
                        },
                    ));
                }
            }
            FreeMap::new(&bytes, len)
        };
        if map.usable() != desc.free_blocks {
            return Err(Error::corrupt(
                Location::BlockBitmap(group),
                BitmapDamage::FreeBlocks {
                    free: map.usable(),
                    stored: desc.free_blocks,
                },
            ));
        }
        Ok(map)
    }

    /// The clusters of `group` with a block of the format itself.
    fn format_clusters(&self, group: Group) -> impl Iterator<Item = Range<u32>> {
        let (start, len) = (
            self.layout.group_start(group),
            self.layout.group_blocks(group),
        );
        let bits = self.layout.cluster_bits;
        let parts = self.zones.within(start, len).into_iter();
        parts.map(move |part| part.start >> bits..part.end.div_ceil(1 << bits))
    }

    /// The bitmap of a group that never had one: the format's own blocks and the padding are in
    /// use.
    fn initial_block_bitmap(&self, group: Group) -> Vec<u8> {
        let len = self.layout.group_clusters(group);
        let mut bits = vec![0; self.layout.block_size.bytes()];
        for part in self.format_clusters(group) {
            bitmap::set_range(&mut bits, part);
        }
        let all = bit_count(&bits);
        bitmap::set_range(&mut bits, len..all);
        bits
    }

    /// The block bitmap of `group`, to be modified. A group without one gets it now, under `h`, and
    /// its flag is cleared (the caller stores the descriptor). One credit, which a later change of
    /// the same block shares.
    pub(crate) fn writable_block_bitmap(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
    ) -> Result<Block> {
        if !self.block_uninit(&state.desc) {
            return self.read_block_bitmap(group, &state.desc);
        }
        let bits = self.initial_block_bitmap(group);
        let block = h.create(
            state.desc.block_bitmap,
            CheckKind::BlockBitmap.of_group(group),
        )?;
        h.modify(&block, |bytes| bytes.copy_from_slice(&bits))?;
        if let Some(csum) = self.csum(&bits, self.block_bitmap_bytes()) {
            state.desc.block_bitmap_csum = csum;
        }
        state.desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        Ok(block)
    }

    /// Marks `range` of `group` as in use, on disk and in the descriptor's count (the caller stores
    /// the descriptor).
    pub(crate) fn mark_used(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
        range: Range<u32>,
    ) -> Result<()> {
        let block = self.writable_block_bitmap(h, group, state)?;
        let count = range.end - range.start;
        debug_assert!(count > 0 && range.end <= self.layout.clusters_per_group());
        // Not of a lone block: that may be metadata, whose freeing would reveal the mistake to the
        // engine itself.
        let lost = self.failpoint.is(Failpoint::BitmapBitNotJournalled) && count > 1;
        let csum = h.modify(&block, |bytes| {
            bitmap::set_range(bytes, range.start..range.end - u32::from(lost));
            self.csum(bytes, self.block_bitmap_bytes())
        })?;
        if !self.failpoint.is(Failpoint::ChecksumNotUpdated) {
            state.desc.block_bitmap_csum = csum.unwrap_or(state.desc.block_bitmap_csum);
        }
        // The free map was made with this count, and all of the range was free or held in it.
        debug_assert!(
            count <= state.desc.free_blocks,
            "{range:?} of {group:?} were free"
        );
        state.desc.free_blocks = state.desc.free_blocks.saturating_sub(count);
        Ok(())
    }

    /// Marks `range` of `group` as free, on disk and in the descriptor's count (the caller stores
    /// the descriptor).
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block of it is free already; nothing was changed then.
    pub(crate) fn mark_free(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
        range: Range<u32>,
    ) -> Result<()> {
        let count = range.end - range.start;
        let location = Location::BlockBitmap(group);
        if self.block_uninit(&state.desc) {
            return Err(Error::corrupt(location, BitmapDamage::FreesUnused));
        }
        let block = self.read_block_bitmap(group, &state.desc)?;
        if bitmap::count_set(&block.data(), range.clone()) != count {
            return Err(Error::corrupt(
                location,
                BitmapDamage::FreesFree {
                    start: range.start,
                    end: range.end,
                },
            ));
        }
        let csum = h.modify(&block, |bytes| {
            bitmap::clear_range(bytes, range.clone());
            self.csum(bytes, self.block_bitmap_bytes())
        })?;
        state.desc.block_bitmap_csum = csum.unwrap_or(state.desc.block_bitmap_csum);
        // A group that grows is longer than the layout says yet.
        let most = self.layout.clusters_per_group();
        debug_assert!(range.end <= most && state.desc.free_blocks <= most - count);
        state.desc.free_blocks = state.desc.free_blocks.saturating_add(count);
        Ok(())
    }

    /// The inode bitmap of `group`, created under `h` if there never was one (one credit; the
    /// caller stores the descriptor).
    ///
    /// # Errors
    /// It cannot be read, has a bad checksum, or has more free inodes than counted.
    pub(crate) fn writable_inode_bitmap(
        &self,
        h: &mut Handle,
        group: Group,
        state: &mut GroupState,
    ) -> Result<Block> {
        let key = CheckKind::InodeBitmap.of_group(group);
        let at = state.desc.inode_bitmap;
        let inodes = self.layout.inodes_per_group;
        if self.layout.uninit_groups() && state.desc.flags.contains(GroupFlags::INODE_UNINIT) {
            if state.desc.free_inodes != inodes {
                return Err(Error::corrupt(
                    Location::InodeBitmap(group),
                    BitmapDamage::InodesInUnwritten,
                ));
            }
            let block = h.create(at, key)?;
            h.modify(&block, |bytes| {
                let bits = bit_count(bytes);
                bitmap::set_range(bytes, inodes..bits);
            })?;
            state.desc.flags.remove(GroupFlags::INODE_UNINIT);
            return Ok(block);
        }
        let location = Location::InodeBitmap(group);
        let desc = state.desc;
        self.cache.read(at, key, |bytes| {
            self.stats.bitmap_loads.bump();
            self.check_csum(
                bytes,
                self.inode_bitmap_bytes(),
                desc.inode_bitmap_csum,
                location,
            )?;
            let free = bitmap::count_clear(bytes, inodes);
            if free != desc.free_inodes {
                return Err(Error::corrupt(
                    location,
                    BitmapDamage::FreeInodes {
                        free,
                        stored: desc.free_inodes,
                    },
                ));
            }
            Ok(())
        })
    }

    /// Sets or clears the bit of inode `index` in `block` and updates the checksum in the
    /// descriptor (the caller updates the counts and stores it). Returns whether the bit was set
    /// before.
    pub(crate) fn change_inode_bit(
        &self,
        h: &mut Handle,
        block: &Block,
        state: &mut GroupState,
        index: u32,
        used: bool,
    ) -> Result<bool> {
        debug_assert!(
            index < self.layout.inodes_per_group,
            "inode {index} of a group"
        );
        let (before, csum) = h.modify(block, |bytes| {
            let before = if used {
                bitmap::set(bytes, index)
            } else {
                bitmap::clear(bytes, index)
            };
            (before, self.csum(bytes, self.inode_bitmap_bytes()))
        })?;
        state.desc.inode_bitmap_csum = csum.unwrap_or(state.desc.inode_bitmap_csum);
        if !used {
            state.first_free = state.first_free.min(index);
        }
        Ok(before)
    }
}

fn bit_count(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).map_or(u32::MAX, |len| len.saturating_mul(8))
}
