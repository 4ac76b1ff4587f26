//! Inodes: in memory, on disk, and between the two.
//!
//! [`crate::fs::Fs::iget`] turns a number into a counted reference ([`InodeRef`]); all holders of a number share one [`Inode`].
//! What an inode stores is its [`InodeCore`]: readers lock it shared and look; writers go through
//! [`Inode::update`], which changes it and encodes it into the inode table's block under their handle while the lock is
//! held. So the block of the newest transaction always holds the newest state, nothing is written at eviction, and
//! a reference may be dropped anywhere. Two exceptions are deferred on purpose and written a little later or with the next
//! update: the times of a buffered write, and access times under `lazytime` ([`times`]).
//!
//! The parts: `object` (the inode), `cache` (numbers to inodes, references, eviction), `load` (reading and
//! judging), `create`, `delete` (and the reaper), `attr` (getattr, setattr), `privileges` (set-id bits), `times`, `flags`
//! (chattr), `symlink`, `devnum`.

mod attr;
mod cache;
mod create;
mod delete;
mod devnum;
mod flags;
mod load;
mod object;
mod privileges;
mod symlink;
#[cfg(test)]
mod tests;
mod times;

use extant_disk::features::Incompat;

pub(crate) use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat, InodeTime};

pub(crate) use self::attr::{getattr, setattr};
pub(crate) use self::cache::{InodeCache, InodeRef};
pub(crate) use self::create::{NewInode, new};
pub(crate) use self::flags::{FlagSet, get_flags, set_flags};
pub(crate) use self::object::Inode;
pub(crate) use self::privileges::{file_modified, is_modified, is_outsider};
pub(crate) use self::symlink::{has_blocks, readlink, set_target};
pub(crate) use self::times::{changed, flush_all_times, flush_times, modified, now, touch_atime};
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
