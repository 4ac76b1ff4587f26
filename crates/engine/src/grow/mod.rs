//! Growing a mounted volume.
//!
//! First the last group is filled up, then groups are added in steps. A step is one transaction:
//!
//! ```text
//! 1. bitmaps and tables of the new groups   directly, flushed; they lie behind the end
//! 2. one transaction                        descriptors, resize inode, superblock
//! 3. checkpoint of the log                  the superblock at its home says the new size
//! 4. the new groups are published           allocators, statfs
//! ```
//!
//! Copies of superblock and descriptors in other groups are written last.
//!
//! # Invariants
//! No block behind the old end is in the log before the superblock at its home says the new size: a
//! replay takes its bounds from there. So a power cut leaves the size before a step or after it.
//!
//! # Locks
//! [`Fs::growing`], taken first: one grow at a time; another is refused. The last group's lock,
//! where its bitmap changes together with the end.

mod copies;
mod new_groups;
mod resize_inode;

use extant_disk::features::Compat;
use extant_disk::superblock::{RawSuperblock, State};
use extant_jbd2::Handle;
use extant_units::{Blocks, Group, Pblk, at_most_u32};

use self::new_groups::NewGroups;
use self::resize_inode::ResizeInode;
use crate::alloc;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::volume::layout::Layout;

/// Groups that a step adds at most, unless one flex group has more.
const STEP: u32 = 1024;
/// The most blocks while numbers of 32 bits are in use.
const NARROW: u64 = u32::MAX as u64;

/// Grows the volume to at most `bytes`, and the device with it where that is shorter and can grow.
/// See `Volume::grow`.
///
/// # Errors
/// As there.
pub(crate) fn grow(fs: &Fs, bytes: u64) -> Result<()> {
    extant_lock_order::assert_none_held();
    fs.check_writable()?;
    let Some(_alone) = fs.growing.try_lock() else {
        return Err(Error::Busy);
    };
    let layout = &fs.layout;
    let end = bytes >> layout.block_size.log2();
    if end < layout.end().get() {
        return Err(Error::NotSupported("making a mounted volume smaller"));
    }
    let end = new_groups::worthwhile_end(layout, end);
    if end == layout.end().get() {
        return Ok(());
    }
    refuse(fs, end)?;
    fs.dev.grow(end << layout.block_size.log2())?;
    fill_last_group(fs, end)?;
    while layout.end().get() < end {
        add_groups(fs, end)?;
    }
    copies::write(fs)
}

/// Refuses what a grow of a mounted volume cannot do, before anything changes.
fn refuse(fs: &Fs, end: u64) -> Result<()> {
    let layout = &fs.layout;
    let refused = |what| Err(Error::NotSupported(what));
    if layout.features.has_compat(Compat::SPARSE_SUPER2) {
        return refused("growing a mounted volume with sparse_super2");
    }
    let raw = fs.super_block.read(fs)?;
    if raw.state().contains(State::ERROR) {
        return refused("growing a volume that has errors on record");
    }
    if layout.end().get() <= NARROW && end > NARROW {
        return refused("growing a mounted volume past 2^32 blocks");
    }
    let groups = new_groups::group_of(layout, end - 1).saturating_add(1);
    if u64::from(groups) * u64::from(layout.inodes_per_group) > NARROW {
        return refused("growing past the number of inodes that can be counted");
    }
    let reserved = u32::from(raw.reserved_gdt_blocks.get());
    let more = layout.blocks_of_descriptors(groups) - layout.blocks_of_descriptors(layout.groups());
    let has_reserve = layout.features.has_compat(Compat::RESIZE_INODE);
    if more > if has_reserve { reserved } else { 0 } {
        return refused(
            "growing a mounted volume past the blocks that are reserved for descriptors (an image \
             that is not mounted can grow further)",
        );
    }
    Ok(())
}

/// Gives the last group the blocks up to its full size, or up to `end`.
fn fill_last_group(fs: &Fs, end: u64) -> Result<()> {
    let layout = &fs.layout;
    let last = Group::new(layout.groups() - 1);
    let old = layout.end();
    let full = layout
        .group_start(last)
        .plus(layout.blocks_per_group.into());
    let new = Pblk::new(end.min(full.get()));
    if new <= old {
        return Ok(());
    }
    // The group's bitmap and descriptor, the superblock.
    let mut h = fs.start(3)?;
    let added = alloc::add_to_last_group(fs, &mut h, new)?;
    let stored = fs.super_block.update(fs, &mut h, |raw| {
        set_size(raw, layout, (new.get(), added.len.get()), 0);
    });
    stored.inspect_err(|error| fs.fault.report(fs, error))?;
    drop(h);
    checkpoint(fs)?;
    alloc::publish_added(fs, added, layout.root_share(new.get()));
    Ok(())
}

/// One step: as many of the groups up to `end` as a transaction takes.
fn add_groups(fs: &Fs, end: u64) -> Result<()> {
    let layout = &fs.layout;
    let first = layout.groups();
    let last = new_groups::group_of(layout, end - 1).saturating_add(1);
    let flex = 1_u32 << layout.flex_bits.min(31);
    let step = first.saturating_add(STEP.max(flex)) / flex * flex;
    let new = NewGroups::plan(layout, first..last.min(step.max(first + 1)), end)?;
    let raw = fs.super_block.read(fs)?;
    let table = (
        layout.blocks_of_descriptors(first),
        layout.blocks_of_descriptors(new.groups.end),
    );
    let reserved = u32::from(raw.reserved_gdt_blocks.get()).saturating_sub(table.1 - table.0);
    let resize = ResizeInode::find(fs, new.groups.end, table, reserved)?;
    let own = resize.as_ref().map_or(0, ResizeInode::credits);
    let credits = (table.1 - table.0).saturating_add(2).saturating_add(own);
    if credits > fs.journal.max_credits() {
        return Err(Error::NotSupported(
            "growing a mounted volume whose journal is too small for that",
        ));
    }
    new.write(&*fs.dev)?;
    let mut h = fs.start(credits)?;
    let stored = store(fs, &mut h, &new, resize.as_ref(), (table, reserved));
    // A change that is half in the transaction must not be followed by more.
    stored.inspect_err(|error| fs.fault.report(fs, error))?;
    drop(h);
    checkpoint(fs)?;
    publish(fs, &new)
}

/// Stores descriptors, resize inode and superblock under `h`.
fn store(
    fs: &Fs,
    h: &mut Handle,
    new: &NewGroups<'_>,
    resize: Option<&ResizeInode>,
    ((old_table, table), reserved): ((u32, u32), u32),
) -> Result<()> {
    let layout = &fs.layout;
    for at in old_table..table {
        // It was a block of the resize inode.
        let block = fs
            .cache
            .read_unchecked(layout.descriptor_start.plus(at.into()))?;
        h.modify(&block, |bytes| bytes.fill(0))?;
    }
    for (group, desc) in new.each() {
        let (block, offset) = layout.desc_location(group);
        let block = fs.cache.read_unchecked(block)?;
        h.modify(&block, |bytes| {
            if let Some(slot) = bytes.get_mut(offset..offset + layout.desc_size) {
                slot.fill(0);
                desc.store(slot, group, &layout.group_checksum);
            }
        })?;
    }
    if let Some(resize) = resize {
        resize.store(fs, h)?;
    }
    let inodes = at_most_u32(new.groups.len() as u64 * u64::from(layout.inodes_per_group));
    fs.super_block.update(fs, h, |raw| {
        set_size(raw, layout, (new.end, new.free_blocks()), inodes);
        let kept = u16::try_from(reserved).unwrap_or(u16::MAX);
        raw.reserved_gdt_blocks.set(kept);
        let overhead = raw.overhead_blocks.get();
        if overhead != 0 {
            let more = at_most_u32(new.metadata());
            raw.overhead_blocks.set(overhead.saturating_add(more));
        }
    })
}

/// Sets the number of blocks, and what goes with it: root's share of them, the counts.
fn set_size(
    raw: &mut RawSuperblock,
    layout: &Layout,
    (blocks, free_blocks): (u64, u64),
    inodes: u32,
) {
    let reserved = layout.root_share(blocks);
    raw.set_reserved_blocks(reserved);
    raw.set_blocks_count(Blocks::new(blocks));
    raw.set_free_blocks_count(
        raw.free_blocks_count()
            .saturating_add(Blocks::new(free_blocks)),
    );
    raw.inodes_count
        .set(raw.inodes_count.get().saturating_add(inodes));
    raw.free_inodes_count
        .set(raw.free_inodes_count.get().saturating_add(inodes));
}

/// Brings the transactions so far home: the superblock there has the new size then.
fn checkpoint(fs: &Fs) -> Result<()> {
    let done = fs.journal.checkpoint_all();
    fs.note_stopped_journal();
    Ok(done?)
}

/// Lets the allocators and statfs have the groups, which are durable.
fn publish(fs: &Fs, new: &NewGroups<'_>) -> Result<()> {
    let layout = &fs.layout;
    let added = fs.zones.add(new.zones());
    added.map_err(|_| Error::Invalid)?;
    for (_, desc) in new.each() {
        fs.groups.add(*desc);
    }
    layout.size.raise_end(Pblk::new(new.end));
    let groups = new.groups.end;
    layout
        .size
        .raise_groups(groups, groups * layout.inodes_per_group);
    let inodes = new.groups.len() as u64 * u64::from(layout.inodes_per_group);
    let free = Blocks::new(new.free_blocks());
    let kept = layout.root_share(new.end);
    fs.alloc.counts.grown(free, inodes, kept);
    Ok(())
}
