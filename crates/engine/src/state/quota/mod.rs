//! Quotas: what users, groups and projects use, and may use.
//!
//! ```text
//!   Inode -- InodeQuota --+-- Dquot (user)  ----+-- entry in the file of quotas
//!                         +-- Dquot (group)     |   (a metadata block, under a handle)
//!                         '-- Dquot (project)   '-- reserved usage (in memory alone)
//! ```
//!
//! One rule counts: usage is what the stored inodes say. Each change of an inode's record that
//! changes its sectors or its owner changes the entries of its ids under the same handle
//! ([`crate::inode`]); so does an inode that begins or ends. No caller counts by itself.
//!
//! Limits are kept before: what an operation is going to add is reserved in all dquots of the
//! inode at once, or refused. A [`SpaceClaim`] turns a reservation into what the next growth of the
//! inode uses up.
//!
//! # Invariants
//! - Usage of an id is the sum over the inodes in use that have it, in every committed transaction.
//! - What is reserved in a dquot is the sum of what its inodes have reserved.
//!
//! # Locks
//! `InodeQuota`, then one `Dquot` after the other, then the block of its entry.

mod dquot;
mod inode_quota;
mod owners;
mod quotas;
mod space_claim;

pub(crate) use self::dquot::{Dquot, QuotaRules, StoredEntry};
pub(crate) use self::inode_quota::{InodeQuota, MovedUsage};
pub(crate) use self::owners::{OwnerIds, Owners};
pub(crate) use self::quotas::{QuotaFile, Quotas};
pub(crate) use self::space_claim::SpaceClaim;
