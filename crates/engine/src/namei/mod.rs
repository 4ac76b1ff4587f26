//! Operations on names: lookup, create, mkdir, mknod, symlink, link, unlink, rmdir, rename,
//! tmpfile.
//!
//! Each operation checks what Linux's VFS and ext4 check (in their order, with their errno), then
//! makes one change under one handle: directory entries, link counts, times, the orphan list. After
//! a crash it is done or not begun. The front end checks permissions (rwx, sticky); this module
//! checks immutable and append-only inodes, link counts, names and structure.
//!
//! An inode that loses its last link enters the orphan list under the same handle. It is evicted
//! when its last reference goes, outside of every handle and lock. A small one that no other thread
//! refers to is deleted under the handle of the unlink instead ([`small_inode`]).
//!
//! A lookup asks the cache of names first, without a lock (`known_names.rs`).
//!
//! # Locks
//! A new name takes the directory's `lock` exclusively. An operation that changes several inodes
//! takes all their `lock`s at once, by [`crate::inode::lock_all`], which needs no order among them.
//! A rename that gives a directory another parent takes `Fs::rename_lock` first. Handles start
//! below these. No operation waits for a commit under a lock: in a directory with `dirsync` it
//! commits after it has released all ([`PendingCommit`](crate::volume::PendingCommit)).

mod ancestry;
mod create;
mod eviction;
mod exchange_names;
mod known_names;
mod link;
mod links;
mod logged_names;
mod lookup_name;
mod name_checks;
mod rename;
mod small_inode;
pub(crate) mod unlink;

pub(crate) use self::create::{create, mkdir, mknod, symlink, tmpfile};
pub(crate) use self::eviction::evict;
pub(crate) use self::known_names::{find_path, stat_path};
pub(crate) use self::link::link;
pub(crate) use self::logged_names::{FirstName, enter_logged, remove_logged};
pub(crate) use self::lookup_name::{ParentAndName, lookup};
pub(crate) use self::rename::rename;
pub(crate) use self::unlink::{rmdir, unlink};
