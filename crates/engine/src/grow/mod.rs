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
//! With `meta_bg`, a new meta group keeps its descriptors in its first group. They lie behind the
//! end as well, so they are written in step 1. Copies of superblock and descriptors in other groups
//! are written last.
//!
//! # Invariants
//! No block behind the old end is in the log before the superblock at its home says the new size: a
//! replay takes its bounds from there. So a power cut leaves the size before a step or after it.
//!
//! Asserted: no block is written directly that the old volume has, but copies in blocks that no
//! file may own; the volume gains what its new groups have, block by block; what is stored and what
//! is published are one list of descriptors.
//!
//! # Locks
//! [`Fs::growing`], taken first: one grow at a time; another is refused. The last group's lock,
//! where its bitmap changes together with the end.

mod copies;
mod new_groups;
mod resize_inode;

use std::io;

use extant_disk::features::{Compat, RoCompat};
use extant_disk::geometry::{Geometry, GeometryError, NewGroups};
use extant_disk::group_desc::GroupDesc;
use extant_disk::superblock::{RawSuperblock, State};
use extant_jbd2::Handle;
use extant_units::{Blocks, Group, Pblk, at_most_u32, exact_u32};

use self::resize_inode::ResizeInode;
use crate::alloc;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, all_or_abort};

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
    let old = at_size(fs, fs.layout.end().get())?;
    let blocks = bytes >> old.block_size.log2();
    if blocks < old.blocks {
        return Err(Error::NotSupported("making a mounted volume smaller"));
    }
    // An existing last group stays, however small it is.
    let new = match old.group_of(blocks - 1) < old.groups {
        true => at_size(fs, blocks)?,
        false => refused(fs.layout.geometry_at_mount().resized(blocks))?,
    };
    if new.blocks == old.blocks {
        return finish_copies(fs, &old);
    }
    refuse(fs, &old, &new)?;
    lengthen_device(fs, new.bytes())?;
    let grown = add_up_to(fs, new.blocks);
    let end = fs.layout.end().get();
    if end == old.blocks {
        return grown;
    }
    // Also after a step that failed: the others are done.
    let copied = copies::write(fs, &at_size(fs, end)?);
    grown.and(copied)
}

/// The geometry of the volume with `blocks` blocks.
fn at_size(fs: &Fs, blocks: u64) -> Result<Geometry> {
    refused(fs.layout.geometry_at_mount().with_blocks(blocks))
}

/// Returns a plan that can be, or why a mounted volume does not grow to that size.
fn refused<T>(planned: Result<T, GeometryError>) -> Result<T> {
    planned.map_err(|error| {
        Error::NotSupported(match error {
            GeometryError::TooLarge { why, .. } => why,
            GeometryError::NoGroup => "a volume without a group",
        })
    })
}

/// Writes the copies that an earlier grow was cut before, unless the volume has errors on record:
/// they may be what it is repaired from.
fn finish_copies(fs: &Fs, geometry: &Geometry) -> Result<()> {
    let sound = !fs.super_block.read(fs)?.state().contains(State::ERROR);
    match sound && !geometry.last_is_short() && copies::are_stale(fs)? {
        true => copies::write(fs, geometry),
        false => Ok(()),
    }
}

/// Makes the device long enough for a volume of `bytes`.
fn lengthen_device(fs: &Fs, bytes: u64) -> Result<()> {
    fs.dev.grow(bytes).map_err(|error| match error.kind() {
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
fn refuse(fs: &Fs, old: &Geometry, new: &Geometry) -> Result<()> {
    let refused = |what| Err(Error::NotSupported(what));
    if new.features.has_ro_compat(RoCompat::BIGALLOC) {
        return refused("growing a mounted volume with bigalloc");
    }
    if new.features.has_compat(Compat::SPARSE_SUPER2) {
        return refused("growing a mounted volume with sparse_super2");
    }
    if fs.super_block.read(fs)?.state().contains(State::ERROR) {
        return refused("growing a volume that has errors on record");
    }
    if old.blocks <= NARROW && new.blocks > NARROW {
        return refused("growing a mounted volume past 2^32 blocks");
    }
    if new.super_blocks() != fs.layout.geometry_at_mount().super_blocks() {
        return refused(
            "growing a mounted volume past the blocks that are reserved for descriptors (an image \
             that is not mounted can grow further)",
        );
    }
    if old.last_is_short() {
        return refused("growing a last group that is shorter than the copies it begins with");
    }
    refuse_steps(fs, old.clone(), new.blocks)
}

/// Refuses a grow one of whose steps cannot be done.
fn refuse_steps(fs: &Fs, mut from: Geometry, end: u64) -> Result<()> {
    while from.groups <= from.group_of(end - 1) {
        let step = Step::plan(fs, from, end)?;
        if step.credits() > fs.journal.max_credits() {
            return Err(Error::NotSupported(
                "growing a mounted volume whose journal is too small for that",
            ));
        }
        from = step.new.geometry().clone();
    }
    Ok(())
}

/// One step: as many groups as a transaction takes.
struct Step {
    old: Geometry,
    new: NewGroups,
    resize: Option<ResizeInode>,
}

impl Step {
    /// The step from `old` on towards `end`.
    fn plan(fs: &Fs, old: Geometry, end: u64) -> Result<Step> {
        let first = old.groups;
        let last = old.group_of(end - 1).saturating_add(1);
        let flex = 1_u32 << old.log_groups_per_flex;
        let step = first.saturating_add(STEP.max(flex)) / flex * flex;
        let full = old.group_start(last.min(step.max(first + 1)));
        let geometry = at_size(fs, end.min(full))?;
        let new = NewGroups::plan(&geometry, first).ok_or(Error::NotSupported(
            "growing by groups that have no room for their own bitmaps and inode tables",
        ))?;
        Ok(Step {
            resize: ResizeInode::find(fs, &old, &geometry)?,
            old,
            new,
        })
    }

    /// Blocks that its transaction changes.
    fn credits(&self) -> u32 {
        let new = self.new.geometry();
        let resize = self.resize.as_ref();
        let resize = resize.map_or(0, |resize| resize.credits(new));
        (new.desc_blocks - self.old.desc_blocks + 2).saturating_add(resize)
    }
}

/// Gives the last group the blocks up to its full size, or up to `end`.
fn fill_last_group(fs: &Fs, end: u64) -> Result<()> {
    let layout = &fs.layout;
    let old = at_size(fs, layout.end().get())?;
    let new = at_size(fs, end.min(old.group_start(old.groups)))?;
    if new.blocks <= old.blocks {
        return Ok(());
    }
    // The group's bitmap and descriptor, the superblock.
    let mut h = fs.start(3)?;
    let added = all_or_abort(&mut h, |h| {
        let added = alloc::add_to_last_group(fs, h, Pblk::new(new.blocks))?;
        let stored = fs.super_block.update(fs, h, |raw| {
            set_size(raw, &new, added.len.get());
        });
        stored.inspect_err(|error| fs.fault.report(fs, error))?;
        Ok(added)
    })?;
    drop(h);
    checkpoint(fs)?;
    alloc::publish_added(fs, added, Blocks::new(new.reserved_blocks));
    Ok(())
}

/// One step towards `end`.
fn add_groups(fs: &Fs, end: u64) -> Result<()> {
    let step = Step::plan(fs, at_size(fs, fs.layout.end().get())?, end)?;
    let groups = new_groups::descriptors(&fs.layout, &step.new);
    new_groups::assert_sums(&step.old, step.new.geometry(), &groups);
    new_groups::write(&*fs.dev, &step.old, &step.new)?;
    new_groups::write_descriptors(fs, &step.old, &step.new, &groups)?;
    fs.dev.flush()?;
    let mut h = fs.start(step.credits())?;
    let stored = all_or_abort(&mut h, |h| store(fs, h, &step, &groups));
    stored.inspect_err(|error| fs.fault.report(fs, error))?;
    drop(h);
    checkpoint(fs)?;
    publish(fs, &step, groups)
}

/// Stores the descriptors of `groups`, the resize inode and the superblock of `step` under `h`.
fn store(fs: &Fs, h: &mut Handle, step: &Step, groups: &[(Group, GroupDesc)]) -> Result<()> {
    let layout = &fs.layout;
    let new = step.new.geometry();
    for at in step.old.tabled_desc_blocks()..new.tabled_desc_blocks() {
        // It was a block of the resize inode.
        let block = fs
            .cache
            .read_unchecked(layout.descriptor_start.plus(at.into()))?;
        h.modify(&block, |bytes| bytes.fill(0))?;
    }
    for (group, desc) in groups {
        let (block, offset) = layout.desc_location(*group);
        if block.get() >= step.old.blocks {
            continue; // written in step 1
        }
        let block = fs.cache.read_unchecked(block)?;
        h.modify(&block, |bytes| {
            if let Some(slot) = bytes.get_mut(offset..offset + layout.desc_size) {
                slot.fill(0);
                desc.store(slot, *group, &layout.group_checksum);
                let stored = GroupDesc::parse(slot, *group, &layout.group_checksum);
                assert_eq!(stored.ok().as_ref(), Some(desc), "stored as planned");
            }
        })?;
    }
    if let Some(resize) = &step.resize {
        resize.store(fs, h, new)?;
    }
    fs.super_block.update(fs, h, |raw| {
        set_size(raw, new, step.new.free_blocks());
        // Without 64bit the high half means nothing.
        let stored = (raw.blocks_count_lo.get(), raw.inodes_count.get());
        let published = (exact_u32(new.blocks & u64::from(u32::MAX)), new.inodes());
        assert_eq!(stored, published, "what is stored is published");
        let overhead = raw.overhead_blocks.get();
        if overhead != 0 {
            let more = at_most_u32(step.new.metadata());
            raw.overhead_blocks.set(overhead.saturating_add(more));
        }
    })
}

/// Sets the number of blocks, and what goes with it: root's share of them, the counts.
fn set_size(raw: &mut RawSuperblock, new: &Geometry, free_blocks: u64) {
    let inodes = new.inodes() - raw.inodes_count.get();
    new.store_size(raw);
    let free = raw.free_blocks_count();
    raw.set_free_blocks_count(free.saturating_add(Blocks::new(free_blocks)));
    raw.free_inodes_count
        .set(raw.free_inodes_count.get().saturating_add(inodes));
}

/// Brings the transactions so far home: the superblock there has the new size then.
fn checkpoint(fs: &Fs) -> Result<()> {
    let done = fs.journal.checkpoint_all();
    fs.note_stopped_journal();
    Ok(done?)
}

/// Lets the allocators and statfs have the `groups` of `step`, which are durable.
fn publish(fs: &Fs, step: &Step, groups: Vec<(Group, GroupDesc)>) -> Result<()> {
    let (size, new) = (&fs.layout.size, &step.new);
    let geometry = new.geometry();
    let before = (fs.layout.end().get(), fs.layout.groups());
    assert_eq!(
        before,
        (step.old.blocks, step.old.groups),
        "the step's start"
    );
    let added = fs.zones.add(new_groups::zones(new));
    added.map_err(|_| Error::Invalid)?;
    for (_, desc) in groups {
        fs.groups.add(desc);
    }
    let inodes = geometry.inodes() - size.inodes();
    size.raise_end(Pblk::new(geometry.blocks));
    size.raise_groups(geometry.groups, geometry.inodes());
    let free = Blocks::new(new.free_blocks());
    let reserved = Blocks::new(geometry.reserved_blocks);
    fs.alloc.counts.grown(free, inodes.into(), reserved);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use extant_testkit::Image;

    use super::*;
    use crate::test_support::test_mount::TestFs;

    type Groups = Vec<(Group, GroupDesc)>;

    /// A plan that does not add up is found before anything is written.
    #[test]
    fn a_plan_that_is_wrong_is_refused_by_its_assertions() {
        let image = Image::of_mib(16).args("-b 1024").make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let end = fs.layout.group_start(Group::new(fs.layout.groups())).get();
        let old = at_size(&fs, end).unwrap();
        let step = Step::plan(&fs, old, 3 * end).unwrap();
        let groups = new_groups::descriptors(&fs.layout, &step.new);
        let new = step.new.geometry();
        let panics = |check: &dyn Fn()| catch_unwind(AssertUnwindSafe(check)).is_err();
        let sums = |change: &dyn Fn(&mut Groups)| {
            let mut changed = groups.clone();
            change(&mut changed);
            panics(&|| new_groups::assert_sums(&step.old, new, &changed))
        };
        assert!(!sums(&|_| {}));
        assert!(sums(&|groups| groups[1].1.free_blocks -= 1), "a block");
        assert!(sums(&|groups| groups[0].1.free_inodes += 1), "an inode");
        assert!(sums(&|groups| groups.truncate(1)), "groups are missing");
        assert!(sums(&|groups| groups.swap(0, 1)), "two groups exchanged");
        // With the new end in the place of the old one.
        let inside = || drop(new_groups::write(&*fs.dev, new, &step.new));
        assert!(panics(&inside), "blocks of the volume");
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}
