//! Inodes: in memory, on disk, and between the two.
//!
//! [`crate::volume::Fs::iget`] turns a number into a counted reference
//! ([`InodeRef`](crate::state::inode::InodeRef)); all holders of a number share one
//! [`Inode`](crate::state::inode::Inode). What an inode stores is its [`InodeCore`]. Readers lock
//! it shared. Writers go through `Inode::update`, which changes it and encodes it into the inode
//! table's block, under the writer's handle and with the lock held. So the block in the newest
//! transaction always has the newest state, eviction writes nothing, and a reference may be dropped
//! anywhere.
//!
//! Two kinds of change are deferred on purpose, and are stored a little later or with the next
//! update: the times of a buffered write, and access times under `lazytime` ([`times`]).
//!
//! The inodes in memory are [state](crate::state::inode). The operations: `iget` (numbers to
//! inodes), `record` (reading, checking, storing), `table_ahead` (reading many), `update`, `times`,
//! `path_choice`, `kind_flags` (which kinds have which),
//! `fast_symlink`, `devnum`, `inode_locks` (taking the locks, and the proof that they are held).
//! Those that need other parts of the file system stand above: [`crate::new_inode`],
//! [`crate::namei`], [`crate::attr`], [`crate::xattr::privileges`],
//! [`crate::symlink`].

mod counted_usage;
pub(crate) mod devnum;
pub(crate) mod fast_symlink;
mod iget;
mod inode_locks;
pub(crate) mod kind_flags;
mod logged_record;
pub(crate) mod path_choice;
mod peek;
mod record;
mod recorded_change;
mod table_ahead;
#[cfg(test)]
mod tests;
mod times;
mod update;

use extant_disk::features::Incompat;

pub(crate) use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat, InodeTime};

pub(crate) use self::counted_usage::{find_owners, reserve_inode};
pub(crate) use self::fast_symlink::has_blocks;
pub(crate) use self::inode_locks::{
    ExclusiveGuard, ExclusiveGuards, ExclusiveInode, LockedInode, SharedGuard, lock_all,
};
pub(crate) use self::logged_record::{
    LoggedIdentity, check_logged, store_logged, store_new_logged,
};
pub(crate) use self::peek::Seen;
pub(crate) use self::record::{HeldRecord, read as read_core};
pub(crate) use self::times::{
    are_many_late, changed, flush_all_times, flush_times, is_write_noted, modified, now,
    touch_atime, touch_mtime,
};
use crate::state::volume::Layout;

/// How inode records are encoded on this file system.
pub(crate) fn format(layout: &Layout) -> InodeFormat {
    InodeFormat {
        inode_size: layout.inode_size,
        block_size: layout.block_size,
        huge_file: layout.huge_file(),
        wide_blocks: layout.features.has_incompat(Incompat::SIXTY_FOUR_BIT),
        large_dir: layout.features.has_incompat(Incompat::LARGEDIR),
        csum_seed: layout.csum_seed,
    }
}
