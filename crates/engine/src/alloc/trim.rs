//! Trimming (FITRIM): tells the device which blocks are free, group by group.
//!
//! # Invariants
//! - A run is held in its group's map while the device is told of it: no allocation gets a block
//!   whose contents the device may still drop.
//! - Blocks freed by a transaction that is not durable are held anyway, and so left alone: a crash
//!   brings its owner back.
//! - A group that was trimmed as a whole is not trimmed again before one of its blocks is freed.
//!
//! # Locks
//! `trimming` while a run is held, with one group lock inside it for a moment. The device is told
//! without a group lock. An allocation that finds no space waits for `trimming` while holding
//! nothing: the run that it could have had is back then.

use extant_sync::atomic::Ordering::Relaxed;
use std::io;
use std::ops::Range;

use extant_units::Group;

use crate::state::alloc::AllocatorCore;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Tells the device of every run of at least `minimum` free bytes within the bytes `range` of the
/// volume. Returns how many bytes that were. The caller holds no lock and no handle.
///
/// # Errors
/// [`Error::Invalid`]: the range starts behind the end of the volume, is shorter than a block, or
/// `minimum` exceeds a group. [`Error::ReadOnly`]. A device or a bitmap that fails ends the trim;
/// what was done stays done.
pub(crate) fn trim(fs: &Fs, range: Range<u64>, minimum: u64) -> Result<u64> {
    extant_lock_order::assert_none_held();
    fs.check_writable()?;
    let core = &fs.alloc.core;
    let bs = fs.layout.block_size;
    let minimum = minimum.div_ceil(fs.layout.cluster_bytes()).max(1);
    let minimum = u32::try_from(minimum).map_err(|_| Error::Invalid)?;
    let (first, end) = (bs.blocks_for(range.start).get(), range.end >> bs.log2());
    let behind_end = first >= fs.layout.end().get();
    let shorter = range.end.saturating_sub(range.start) < bs.bytes_u64();
    if minimum > fs.layout.clusters_per_group() || behind_end || shorter {
        return Err(Error::Invalid);
    }
    let mut blocks = 0;
    for group in fs.layout.all_groups() {
        let start = fs.layout.group_start(group).get();
        let len = fs.layout.group_clusters(group);
        let bits = fs.layout.cluster_bits;
        // A range that begins before the group takes all of it.
        let inside = |at: u64| u32::try_from(at >> bits).map_or(len, |at| at.min(len));
        // Clusters that lie in the range as wholes.
        let first = fs.layout.in_whole_clusters(first.saturating_sub(start));
        let part = inside(first)..inside(end.saturating_sub(start));
        if part.is_empty() {
            continue;
        }
        let done = core.trim_group(fs, group, part, minimum, &mut blocks);
        let told = core
            .counted(done)
            .inspect_err(|error| fs.fault.report(fs, error))?;
        // A device that fails here has lost nothing: no fault is latched.
        told?;
        core.groups.shrink_maps();
    }
    Ok(blocks << bs.log2())
}

impl AllocatorCore {
    /// Trims `part` of `group`, and adds the trimmed blocks to `blocks`. Returns the device's last
    /// answer.
    fn trim_group(
        &self,
        fs: &Fs,
        group: Group,
        part: Range<u32>,
        minimum: u32,
        blocks: &mut u64,
    ) -> Result<io::Result<()>> {
        let mut locked = self.groups.lock(group)?;
        // Under the lock: the last group grows under it, and then `part` is not all of it.
        let whole = part == (0..self.layout.group_clusters(group));
        let known = locked.state.trimmed.is_some_and(|least| least <= minimum);
        let full = locked.state.map.is_none() && locked.state.desc.free_blocks == 0;
        if locked.state.broken || known || full {
            return Ok(Ok(()));
        }
        // A block that becomes free from here on clears the mark again. Held blocks are left out.
        let all_usable = locked.map(&self.disk())?.can_be_dropped();
        locked.state.trimmed = (whole && all_usable).then_some(minimum);
        drop(locked);
        let mut at = part.start;
        while let Some((run, told)) = self.trim_next(fs, group, at..part.end, minimum)? {
            if told.is_err() {
                self.groups.lock(group)?.state.trimmed = None;
                return Ok(told);
            }
            debug_assert!(
                at <= run.start && run.end <= part.end,
                "{run:?} of {part:?}"
            );
            let len = self.run_of(group, &run).len.get();
            self.stats.trimmed_blocks.add(len);
            *blocks += len;
            at = run.end;
        }
        Ok(Ok(()))
    }

    /// Trims the first run of `part` that is long enough. Returns the run and the device's answer.
    fn trim_next(
        &self,
        fs: &Fs,
        group: Group,
        part: Range<u32>,
        minimum: u32,
    ) -> Result<Option<(Range<u32>, io::Result<()>)>> {
        let _held = self.trimming.lock();
        let mut locked = self.groups.lock(group)?;
        if locked.state.broken {
            return Ok(None);
        }
        let map = locked.map(&self.disk())?;
        let Some(found) = map.next_run(part, minimum) else {
            return Ok(None);
        };
        debug_assert!(found.end - found.start >= minimum, "{found:?}");
        map.hold(found.clone());
        let longest = locked.hints.longest.load(Relaxed);
        locked.publish(Some(longest));
        drop(locked);
        let run = self.run_of(group, &found);
        let bs = self.layout.block_size;
        let told = match (bs.dev_off(run.start), bs.bytes_of(run.len)) {
            (Some(offset), Some(len)) => fs.dev.discard(offset, len),
            _ => Ok(()),
        };
        self.release_held(run);
        Ok(Some((found, told)))
    }
}
