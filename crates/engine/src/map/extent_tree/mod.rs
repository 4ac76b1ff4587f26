//! The extent tree: a file's map on disk.
//!
//! Pure algorithms: nodes come from and go to a [`Nodes`] / [`NodesMut`] store, which knows blocks,
//! handles and the allocator. All changes go through one step,
//! [`replace_entries`](replace_entries::replace): it replaces neighbouring entries of a leaf by
//! others, with the splits, new levels, empty nodes and shorter roots that follow. Inserting,
//! converting, splitting, shifting and removing only work out which entries those are.
//!
//! # Invariants
//! Checked on every descent and kept by every change:
//! * extents are sorted and disjoint in the whole tree; a parent's entry has the exact first block
//!   of its child;
//! * no node but the root is empty (an empty leaf that another implementation left is tolerated,
//!   and removed when met);
//! * neighbours in a leaf that could be one extent are one, as far as a change touched them.
//!
//! Loops are bounded: a descent by the depth (at most five), a walk by positions that only grow.
//!
//! # Locks
//! None here. The caller holds the inode's `map_lock`, exclusively if it changes anything.
//!
//! # Errors
//! A step reads and allocates all it needs before its first change. If space runs out, or a node is
//! unreadable or damaged, the tree is as it was before the step. An operation of several steps
//! leaves a valid tree with the steps done so far. After the first change only a stopped journal
//! can fail, and then nothing of the transaction reaches the disk.

mod build_tree;
mod convert_extents;
mod find_extent;
mod insert_extent;
mod node_store;
mod remove_extents;
mod replace_entries;
mod shift_extents;
mod split_extent;
#[cfg(test)]
mod tests;
mod tree_path;
#[cfg(test)]
mod walk_extents;

pub(super) use build_tree::{build, nodes_for};
pub(super) use convert_extents::{convert_one, put_one};
pub(super) use find_extent::{Found, find};
pub(super) use insert_extent::{insert, prepare};
pub(super) use node_store::{Nodes, NodesMut};
pub(super) use remove_extents::{Limit, remove_some};
pub(crate) use shift_extents::Shift;
pub(super) use shift_extents::{ExtentCount, count, last, shift_some};
pub(super) use split_extent::{split_at, split_longest};
#[cfg(test)]
pub(super) use walk_extents::walk;
