//! Shifting the end of a file's map, for ranges that are taken out of the file or inserted.
//!
//! A shift under one handle is atomic for a crash, and nearly every shift is one: a leaf has
//! hundreds of extents, and a transaction takes hundreds of leaves. [`plan`] counts what one needs.
//! A shift that no transaction can hold is made in several, each of which leaves a valid tree. In
//! between, a part has been shifted and the rest has not.
//!
//! # Invariants
//! In each step, under `map_lock` and before the tree changes, the known part of the map from the
//! first block concerned on is forgotten. A lookup between two steps finds what is true then, and
//! the next step forgets it again. The sequence grows with every step (J14, J16).
//!
//! # Locks
//! `map_lock` exclusively, released where the handle restarts. So the callers exclude every use of
//! mappings of the range: they hold the inode's `lock` and the invalidate lock exclusively, and the
//! page cache holds nothing of it.

use extant_disk::extent::MAX_END;
use extant_jbd2::Handle;
use extant_units::Blocks;

use super::disk_nodes::{DiskNodes, has_extents, with_nodes};
use super::extent_tree::{self, ExtentCount, Shift};
use super::locked_map::{ExclusiveMap, SharedMap};
use super::removal::{METADATA_BLOCKS, is_metadata};
use crate::state::inode::Inode;
use crate::state::map::MapView;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, credits};

/// Needs of the whole operation, under one handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShiftPlan {
    /// Metadata blocks.
    pub(crate) credits: u32,
    /// Freed metadata blocks.
    pub(crate) revokes: u32,
    /// One transaction can hold all of it.
    pub(crate) at_once: bool,
}

/// Plans the freeing of `gap`'s blocks and the shift of everything from `from` on. Reads all nodes
/// concerned, so that an unreadable one is met before anything has changed.
///
/// # Errors
/// Damage, or a failed read; [`Error::NotSupported`] for files without extents.
pub(crate) fn plan(
    fs: &Fs,
    inode: &Inode,
    gap: core::ops::Range<u64>,
    from: u64,
) -> Result<ShiftPlan> {
    let most = fs.journal.max_credits();
    let (freed, moved) = {
        let map = SharedMap::lock(inode);
        if !has_extents(inode) {
            return Err(Error::NotSupported(
                "moving blocks of a file without extents",
            ));
        }
        let nodes = DiskNodes::of(fs, &map, inode.core.read().i_block);
        let freed = if gap.is_empty() {
            Ok(ExtentCount::default())
        } else {
            extent_tree::count(&nodes, gap.start, gap.end, most)
        };
        freed
            .and_then(|freed| Ok((freed, extent_tree::count(&nodes, from, MAX_END, most)?)))
            .inspect_err(|error| fs.fault.report(fs, error))?
    };
    let each = credits::remove_extent(&fs.layout);
    // Saturates, as sums of credits do.
    let of_extents = freed.extents.saturating_mul(each);
    let bitmap_blocks = credits::sum([of_extents, freed.nodes, freed.nodes]);
    let all_bitmaps = credits::sum([fs.layout.groups(), fs.layout.groups()]);
    let least = credits::sum([
        credits::remove(fs),
        credits::shift(fs),
        credits::INODE_UPDATE,
    ]);
    let bitmap_blocks = bitmap_blocks.min(all_bitmaps);
    let whole = credits::sum([freed.nodes, moved.nodes, bitmap_blocks, least]);
    // Each freed block that the journal knows may need a revoke record.
    let revoked = is_metadata(fs, inode) && gap.end - gap.start > METADATA_BLOCKS;
    let at_once = whole <= most && !revoked;
    debug_assert!(least <= whole, "a step needs no more than all of them");
    Ok(ShiftPlan {
        credits: if at_once { whole } else { least },
        revokes: credits::sum([freed.nodes, credits::REVOKES]),
        at_once,
    })
}

/// The file block after the last allocated one.
///
/// # Errors
/// Damage, or a failed read.
pub(crate) fn last_end(fs: &Fs, inode: &Inode) -> Result<u64> {
    let map = SharedMap::lock(inode);
    if !has_extents(inode) {
        return Ok(0);
    }
    let nodes = DiskNodes::of(fs, &map, inode.core.read().i_block);
    let last = extent_tree::last(&nodes).inspect_err(|error| fs.fault.report(fs, error))?;
    Ok(last.map_or(0, |extent| extent.end()))
}

/// Shifts all extents that start at `from` or behind it. To the left they go over a range without
/// extents; to the right they leave one. No extent reaches over `from` ([`super::split()`]);
/// nothing from there on is delayed. Needs [`credits::shift`] credits; restarts the handle where it
/// has no more.
///
/// # Errors
/// Damage or a stopped journal, with a part shifted; [`Error::FileTooBig`] if the last extent has
/// no room, with nothing shifted.
pub(crate) fn shift(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    from: Blocks,
    shift: Shift,
) -> Result<()> {
    let from = from.get();
    if let Shift::Left(by) = shift {
        debug_assert!(u64::from(by) <= from, "{by} blocks before block {from}");
    }
    let unknown = match shift {
        Shift::Left(by) => from - u64::from(by),
        Shift::Right(by) => {
            if last_end(fs, inode)? + u64::from(by) > MAX_END {
                return Err(Error::FileTooBig);
            }
            from
        }
    };
    let step = credits::shift(fs);
    let mut left = Some((from, MAX_END));
    loop {
        {
            let map = ExclusiveMap::lock(inode);
            while let Some((from, to)) = left
                && h.ensure(step)?
            {
                MapView::lock(&fs.maps, &inode.known).forget(unknown, MAX_END);
                left = with_nodes(fs, h, &map, true, |nodes| {
                    extent_tree::shift_some(nodes, from, to, shift)
                })?;
                fs.stats.leaves_shifted.bump();
            }
        }
        if left.is_none() {
            return Ok(());
        }
        h.restart(step)?;
    }
}
