//! Blocks that a grow adds at the end of the last group.

use extant_disk::damage::BitmapDamage;
use extant_jbd2::Handle;
use extant_units::{Blocks, Group, Pblk};

use crate::state::alloc::{AllocatorCore, Run};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Moves the end of the volume to `end`, which is in the last group or at its end, and marks the
/// blocks up to there as free under `h` (2 credits). They are held back until [`publish_added`].
///
/// # Errors
/// The group's bitmap is damaged, or cannot be read or changed.
pub(crate) fn add_to_last_group(fs: &Fs, h: &mut Handle, end: Pblk) -> Result<Run> {
    let result = fs.alloc.core.add_to_last_group(h, end);
    result.inspect_err(|error| fs.fault.report(fs, error))
}

/// Hands out `run` from now on, as the transaction that added it is durable. `root_reserved` are
/// the blocks that are reserved for root now.
pub(crate) fn publish_added(fs: &Fs, run: Run, root_reserved: Blocks) {
    fs.alloc.core.release_held(run);
    fs.alloc.counts.grown(run.len, 0, root_reserved);
}

impl AllocatorCore {
    fn add_to_last_group(&self, h: &mut Handle, end: Pblk) -> Result<Run> {
        let layout = &self.layout;
        let group = Group::new(layout.groups() - 1);
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        if locked.state.broken {
            let location = Location::BlockBitmap(group);
            return Err(Error::corrupt(location, BitmapDamage::LastGroup));
        }
        locked.map(&disk)?;
        let run = Run {
            start: layout.end(),
            len: Blocks::new(end.distance_from(layout.end()).unwrap_or(0)),
        };
        let first = layout.group_blocks(group);
        let added = first..first + extant_units::exact_u32(run.len.get());
        disk.writable_block_bitmap(h, group, &mut locked.state)?;
        disk.mark_free(h, group, &mut locked.state, added.clone())?;
        locked.store_desc(layout, &self.cache, h)?;
        if let Some(map) = locked.state.map.as_mut() {
            map.lengthen(added.end);
        }
        locked.state.trimmed = None;
        // The lock covers both: the map has as many blocks as the group.
        layout.size.raise_end(end);
        Ok(run)
    }
}
