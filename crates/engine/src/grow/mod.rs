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

use std::io;

use extant_disk::features::Compat;
use extant_disk::superblock::{RawSuperblock, State};
use extant_jbd2::Handle;
use extant_units::{Blocks, Group, Pblk, at_most_u32};

use self::new_groups::NewGroups;
use self::resize_inode::ResizeInode;
use crate::alloc;
use crate::state::volume::Layout;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, whole};

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
    let old = layout.end().get();
    if end == old {
        return finish_copies(fs);
    }
    refuse(fs, end)?;
    lengthen_device(fs, end)?;
    let grown = add_up_to(fs, end);
    if layout.end().get() == old {
        return grown;
    }
    // Also after a step that failed: the others are done.
    let copied = copies::write(fs);
    grown.and(copied)
}

/// Writes the copies that an earlier grow was cut before, unless the volume has errors on record:
/// they may be what it is repaired from.
fn finish_copies(fs: &Fs) -> Result<()> {
    let sound = !fs.super_block.read(fs)?.state().contains(State::ERROR);
    match sound && !last_is_short(&fs.layout) && copies::are_stale(fs)? {
        true => copies::write(fs),
        false => Ok(()),
    }
}

/// Returns whether the last group is shorter than the copies that it begins with.
fn last_is_short(layout: &Layout) -> bool {
    let last = Group::new(layout.groups() - 1);
    layout.group_blocks(last) < layout.full_head_blocks(last)
}

/// Makes the device long enough for a volume up to block `end`.
fn lengthen_device(fs: &Fs, end: u64) -> Result<()> {
    let done = fs.dev.grow(end << fs.layout.block_size.log2());
    done.map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => {
            Error::NotSupported("growing past the end of a device that cannot get longer")
        }
        _ => error.into(),
    })
}

/// Adds blocks and groups up to `end`, a step after the other.
fn add_up_to(fs: &Fs, end: u64) -> Result<()> {
    fill_last_group(fs, end)?;
    while fs.layout.end().get() < end {
        add_groups(fs, end)?;
    }
    Ok(())
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
    if last_is_short(layout) {
        return refused("growing a last group that is shorter than the copies it begins with");
    }
    refuse_steps(fs, reserved, end)
}

/// Refuses a grow one of whose steps cannot be done.
fn refuse_steps(fs: &Fs, mut reserved: u32, end: u64) -> Result<()> {
    let mut first = fs.layout.groups();
    while first <= new_groups::group_of(&fs.layout, end - 1) {
        let step = Step::plan(fs, first, reserved, end)?;
        if step.credits() > fs.journal.max_credits() {
            return Err(Error::NotSupported(
                "growing a mounted volume whose journal is too small for that",
            ));
        }
        (first, reserved) = (step.new.groups.end, step.reserved);
    }
    Ok(())
}

/// One step: as many groups as a transaction takes.
struct Step<'a> {
    new: NewGroups<'a>,
    resize: Option<ResizeInode>,
    /// Blocks of descriptors before and afterwards.
    table: (u32, u32),
    /// Blocks that are reserved for descriptors afterwards.
    reserved: u32,
}

impl Step<'_> {
    /// The step from group `first` on towards `end`, with `reserved` blocks for descriptors before
    /// it.
    fn plan(fs: &Fs, first: u32, reserved: u32, end: u64) -> Result<Step<'_>> {
        let layout = &fs.layout;
        let last = new_groups::group_of(layout, end - 1).saturating_add(1);
        let flex = 1_u32 << layout.flex_bits.min(31);
        let step = first.saturating_add(STEP.max(flex)) / flex * flex;
        let new = NewGroups::plan(layout, first..last.min(step.max(first + 1)), end)?;
        let table = (
            layout.blocks_of_descriptors(first),
            layout.blocks_of_descriptors(new.groups.end),
        );
        let reserved = reserved.saturating_sub(table.1 - table.0);
        Ok(Step {
            resize: ResizeInode::find(fs, (first, new.groups.end), table, reserved)?,
            new,
            table,
            reserved,
        })
    }

    /// Blocks that its transaction changes.
    fn credits(&self) -> u32 {
        let resize = self.resize.as_ref().map_or(0, ResizeInode::credits);
        (self.table.1 - self.table.0 + 2).saturating_add(resize)
    }
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
    let added = whole(&mut h, |h| {
        let added = alloc::add_to_last_group(fs, h, new)?;
        let stored = fs.super_block.update(fs, h, |raw| {
            set_size(raw, layout, (new.get(), added.len.get()), 0);
        });
        stored.inspect_err(|error| fs.fault.report(fs, error))?;
        Ok(added)
    })?;
    drop(h);
    checkpoint(fs)?;
    alloc::publish_added(fs, added, layout.root_share(new.get()));
    Ok(())
}

/// One step towards `end`.
fn add_groups(fs: &Fs, end: u64) -> Result<()> {
    let raw = fs.super_block.read(fs)?;
    let reserved = raw.reserved_gdt_blocks.get().into();
    let step = Step::plan(fs, fs.layout.groups(), reserved, end)?;
    step.new.write(&*fs.dev)?;
    let mut h = fs.start(step.credits())?;
    let stored = whole(&mut h, |h| store(fs, h, &step));
    stored.inspect_err(|error| fs.fault.report(fs, error))?;
    drop(h);
    checkpoint(fs)?;
    publish(fs, &step.new)
}

/// Stores descriptors, resize inode and superblock of `step` under `h`.
fn store(fs: &Fs, h: &mut Handle, step: &Step<'_>) -> Result<()> {
    let Step {
        new,
        resize,
        table,
        reserved,
    } = step;
    let layout = &fs.layout;
    for at in table.0..table.1 {
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
        let kept = u16::try_from(*reserved).unwrap_or(u16::MAX);
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
