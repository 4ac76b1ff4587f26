//! Inodes: in memory, on disk, and between the two.
//!
//! [`crate::fs::Fs::iget`] turns a number into a counted reference ([`InodeRef`]); all holders of a number share one [`Inode`].
//! What an inode stores is its [`InodeCore`]: readers lock it shared and look; writers go through
//! [`Inode::update`], which changes it and encodes it into the inode table's block under their handle while the lock is
//! held. So the block of the newest transaction always holds the newest state, nothing is written at eviction, and
//! a reference may be dropped anywhere. Two exceptions are deferred on purpose and written a little later or with the next
//! update: the times of a buffered write, and access times under `lazytime` ([`times`]).
//!
//! The parts: `object` (the inode), `cache` (numbers to inodes, references, eviction), `reaper` (the queue of those to delete), `load`
//! (reading and judging), `times`, `flags` (which kinds have which), `symlink`, `devnum`, `several` (locks of more than one). What
//! needs other parts of the file system stands above: [`crate::new_inode`], [`crate::deletion`], [`crate::attr`],
//! [`crate::privileges`], [`crate::symlink`].

mod cache;
pub(crate) mod devnum;
pub(crate) mod flags;
mod load;
mod object;
mod reaper;
mod several;
pub(crate) mod symlink;
#[cfg(test)]
mod tests;
mod times;

use extant_disk::features::Incompat;

pub(crate) use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat, InodeTime};

pub(crate) use self::cache::{InodeCache, InodeRef};
pub(crate) use self::load::store_new;
pub(crate) use self::object::Inode;
pub(crate) use self::reaper::Queue;
pub(crate) use self::several::lock_all;
pub(crate) use self::symlink::has_blocks;
pub(crate) use self::times::{
    changed, flush_all_times, flush_times, is_write_noted, modified, now, touch_atime, touch_mtime,
};
use crate::layout::Layout;

/// How inode records are encoded on this file system.
pub(crate) fn format(layout: &Layout) -> InodeFormat {
    InodeFormat {
        inode_size: layout.inode_size,
        block_size: layout.block_size,
        huge_file: layout.huge_file(),
        wide_blocks: layout.features.has_incompat(Incompat::SIXTY_FOUR_BIT),
        csum_seed: layout.csum_seed,
    }
}
