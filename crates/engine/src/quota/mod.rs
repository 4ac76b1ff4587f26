//! Quotas: usage that is counted with the inodes that change, and limits.
//!
//! A volume with the feature `quota` has a file for each kind of id ([`extant_disk::quota`]). A
//! mount that writes counts in them; limits are kept where the mount asks for it. The state is in
//! [`crate::state::quota`], which says how it counts; here is what needs the file system: finding
//! the entries of ids and adding them.
//!
//! ```text
//!   before a handle    prepare, prepare_owner     entries for ids that get an inode
//!                      reserve, SpaceClaim        limits
//!   under a handle     inode::counted_usage       an inode's record was stored, or is free
//! ```
//!
//! # Credits
//! Each handle has [`crate::volume::credits::spare`] beside those that it asks for: the entries of
//! the inodes that it changes.
//!
//! # Failures
//! An id that has an inode has an entry: it was added before. Where a damaged volume has none, its
//! usage is kept in memory and added with the next sync ([`add_missing`]). Damage of a file of
//! quotas is reported as any other.

mod file_blocks;
mod id_entries;
mod open_quotas;
mod quota_ops;

pub(crate) use self::id_entries::{add_missing, find_dquot, prepare, prepare_owner};
pub(crate) use self::open_quotas::open;
pub(crate) use self::quota_ops::{next, project_space, report, set_limits, set_times};
