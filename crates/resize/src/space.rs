//! Free blocks: the bitmaps as they become, and what may be taken.
//!
//! # Invariants
//! A block that the volume on the device uses is not taken, also if the resize gives it up: until
//! the commit it holds what it held. So what is taken can be written before the commit.

use std::ops::Range;

use extant_blockdev::memory_share;
use extant_disk::bitmap;
use extant_disk::group_desc::GroupFlags;
use extant_units::at_most_u32;

use crate::bits::Bits;
use crate::error::{Error, Result};
use crate::volume::Volume;

impl Volume {
    /// The bitmap of a group, read when it is needed first.
    fn bits(&mut self, group: u32) -> Result<&mut Bits> {
        if !self.bits.contains_key(&group) {
            let bytes = self.bits.len() as u64 * 2 * self.block_bytes() as u64;
            if bytes > memory_share() {
                return Err(Error::Unsupported(
                    "its bitmaps need more memory than this process may have",
                ));
            }
            let bits = self.read_bits(group)?;
            self.bits.insert(group, bits);
        }
        let bits = self.bits.get_mut(&group);
        bits.ok_or_else(|| Error::unreadable(format_args!("bitmap of group {group}")))
    }

    /// Reads the bitmap of a group, which then is stored if the group's end has moved.
    pub(crate) fn touch(&mut self, group: u32) -> Result<()> {
        self.bits(group).map(drop)
    }

    fn read_bits(&self, group: u32) -> Result<Bits> {
        let (was, is) = (self.old.group_blocks(group), self.new.group_blocks(group));
        let bytes = self.block_bytes();
        let all = at_most_u32(bytes as u64 * 8);
        let len = |range: &Range<u64>| {
            let clusters = self.new.clusters_for(range.end - range.start);
            at_most_u32(clusters)
        };
        let mut busy = match was.is_empty() {
            true => vec![0; bytes],
            false => self.old_bitmap(group)?,
        };
        // Behind the old end is only padding.
        bitmap::clear_range(&mut busy, len(&was)..all);
        if was.is_empty() {
            let head = self.new.clusters_for(self.new.head_blocks(group));
            bitmap::set_range(&mut busy, 0..at_most_u32(head));
        }
        let mut now = busy.clone();
        for bits in [&mut now, &mut busy] {
            bitmap::set_range(bits, len(&is)..all);
        }
        Ok(Bits {
            free: bitmap::count_clear(&now, len(&is)),
            now,
            busy,
            // The last group has a bitmap on the device.
            changed: len(&was) != len(&is) || group + 1 == self.new.groups,
        })
    }

    /// The block bitmap of a group as it was.
    pub(crate) fn old_bitmap(&self, group: u32) -> Result<Vec<u8>> {
        let desc = self.was.get(group as usize);
        let desc = desc.ok_or_else(|| Error::unreadable(format_args!("group {group}")))?;
        let written =
            !self.old.features.group_csum() || !desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        if written {
            return self.old_block(desc.block_bitmap.get());
        }
        // What follows from the format: only metadata of groups lies there.
        let range = self.old.group_blocks(group);
        let mut bits = vec![0; self.block_bytes()];
        let mut set = |run: &Range<u64>| {
            bitmap::set_range(&mut bits, self.old.cluster_bits_of(group, run));
        };
        set(&self.old.head(group));
        for run in self.placed_in(&range) {
            set(run);
        }
        Ok(bits)
    }

    /// Marks the clusters of blocks of the new volume by `change`, which gets the bits of a group.
    ///
    /// # Errors
    /// Those of `change`; a bitmap cannot be read, or the run leaves the volume.
    fn mark(
        &mut self,
        run: Range<u64>,
        change: impl Fn(&mut Bits, Range<u32>) -> Result<()>,
    ) -> Result<()> {
        let mut at = run.start;
        while at < run.end {
            let group = self.new.group_of(at);
            let whole = self.new.group_blocks(group);
            let end = run.end.min(whole.end);
            if end <= at {
                return Err(Error::unreadable(format_args!(
                    "block {at} lies past the end"
                )));
            }
            let cut = self.new.cluster_bits_of(group, &(at..end));
            let bits = self.bits(group)?;
            bits.changed = true;
            change(bits, cut)?;
            at = end;
        }
        Ok(())
    }

    /// Marks free blocks as in use.
    pub(crate) fn take(&mut self, run: Range<u64>) -> Result<()> {
        self.mark(run, |bits, cut| {
            assert_eq!(
                bitmap::count_set(&bits.now, cut.clone()),
                0,
                "a block that is taken is free"
            );
            bits.free -= cut.end - cut.start;
            bitmap::set_range(&mut bits.now, cut.clone());
            bitmap::set_range(&mut bits.busy, cut);
            Ok(())
        })
    }

    /// Marks blocks as in use that files may have, which have to move, or whose clusters other
    /// metadata has a part of.
    pub(crate) fn claim(&mut self, run: Range<u64>) -> Result<()> {
        self.mark(run, |bits, cut| {
            let used = bitmap::count_set(&bits.now, cut.clone());
            bits.free -= cut.end - cut.start - used;
            bitmap::set_range(&mut bits.now, cut.clone());
            bitmap::set_range(&mut bits.busy, cut);
            Ok(())
        })
    }

    /// Marks blocks as free. What of them lies past the new end is gone.
    ///
    /// # Errors
    /// One is free already: two structures had it.
    pub(crate) fn release(&mut self, run: Range<u64>) -> Result<()> {
        self.mark(run.start..run.end.min(self.new.blocks), |bits, cut| {
            let len = cut.end - cut.start;
            if bitmap::count_set(&bits.now, cut.clone()) != len {
                return Err(Error::unreadable("a block is given up twice"));
            }
            bits.free += len;
            bitmap::clear_range(&mut bits.now, cut);
            Ok(())
        })
    }

    /// Asserts that the volume on the device uses none of `run`, which is written there at once.
    /// Nothing is harmed: the write has not begun, and other direct writes went to free blocks.
    pub(crate) fn assert_unused(&self, run: &Range<u64>) -> Result<()> {
        let mut at = run.start;
        while at < run.end.min(self.old.blocks) {
            let group = self.old.group_of(at);
            let whole = self.old.group_blocks(group);
            let end = run.end.min(whole.end);
            let bits = self.old.cluster_bits_of(group, &(at..end));
            let used = bitmap::count_set(&self.old_bitmap(group)?, bits);
            assert_eq!(
                used, 0,
                "{at}..{end}: the old volume has what is overwritten"
            );
            at = end;
        }
        Ok(())
    }

    /// Takes a run of at most `len` free blocks within `within`: of exactly `len` if there is one,
    /// else the longest. It begins a cluster, and has the whole of its last one to itself.
    pub(crate) fn take_run(&mut self, len: u64, within: &Range<u64>) -> Result<Option<Range<u64>>> {
        let end = self.new.cluster_start(within.end.min(self.new.blocks));
        if within.start >= end {
            return Ok(None);
        }
        let (first, last) = (self.new.group_of(within.start), self.new.group_of(end - 1));
        let from = self.cursor.clamp(first, last);
        let cluster_bits = self.new.cluster_bits;
        let mut best: Option<Range<u64>> = None;
        for group in (from..=last).chain(first..from) {
            let whole = self.new.group_blocks(group);
            let known = self.bits.contains_key(&group);
            if !known && group < self.old.groups && self.desc(group)?.free_blocks == 0 {
                continue;
            }
            let clusters = self.new.group_clusters(group);
            let bits = self.bits(group)?;
            for run in bitmap::clear_runs(&bits.busy, clusters) {
                let block = |bit: u32| whole.start + (u64::from(bit) << cluster_bits);
                let start = block(run.start).max(within.start);
                let stop = block(run.end).min(end).min(start + len);
                if start >= stop {
                    continue;
                }
                if best
                    .as_ref()
                    .is_none_or(|best| stop - start > best.end - best.start)
                {
                    best = Some(start..stop);
                }
                if stop - start == len {
                    break;
                }
            }
            if best
                .as_ref()
                .is_some_and(|best| best.end - best.start == len)
            {
                break;
            }
        }
        if let Some(best) = &best {
            debug_assert!(within.start <= best.start && best.end <= end);
            debug_assert!(best.end - best.start <= len && !best.is_empty());
            self.cursor = self.new.group_of(best.start);
            self.take(best.clone())?;
        }
        Ok(best)
    }

    /// Takes `len` free blocks that lie together.
    pub(crate) fn take_whole(&mut self, len: u64, within: &Range<u64>) -> Result<Option<u64>> {
        let run = self.take_run(len, within)?;
        match run {
            Some(run) if run.end - run.start == len => Ok(Some(run.start)),
            Some(run) => {
                // It was free, so that it is free to others again.
                self.give_back(&run)?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Undoes the taking of a run.
    fn give_back(&mut self, run: &Range<u64>) -> Result<()> {
        let group = self.new.group_of(run.start);
        let cut = self.new.cluster_bits_of(group, run);
        let bits = self.bits(group)?;
        bits.free += cut.end - cut.start;
        bitmap::clear_range(&mut bits.now, cut.clone());
        bitmap::clear_range(&mut bits.busy, cut);
        Ok(())
    }

    /// All blocks that a file may have; with `narrow`, only those with numbers of 32 bits.
    pub(crate) fn anywhere(&self, narrow: bool) -> Range<u64> {
        match narrow {
            true => 0..self.new.blocks.min(1 << 32),
            false => 0..self.new.blocks,
        }
    }
}
