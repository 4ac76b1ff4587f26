//! The extent tree: a file's map on disk.
//!
//! Pure algorithms: nodes come from and go to a [`Nodes`] / [`NodesMut`] store, which knows blocks,
//! handles and the allocator. All changes go through one step, [`replace`](replace::replace): it
//! replaces neighbouring entries of a leaf by others, with the splits, new levels, empty nodes and
//! shorter roots that follow. Inserting, converting, splitting, shifting and removing only work out
//! which entries those are.
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

mod build;
mod convert;
mod insert;
mod lookup;
mod path;
mod remove;
mod replace;
mod shift;
mod split;
mod store;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;

pub(super) use build::{build, nodes_for};
pub(super) use convert::{convert_one, put_one};
pub(super) use insert::{insert, prepare};
pub(super) use lookup::{Found, find};
pub(super) use remove::{Limit, remove_some};
pub(crate) use shift::Shift;
pub(super) use shift::{Extents, count, last, shift_some};
pub(super) use split::{split_at, split_longest};
pub(super) use store::{Nodes, NodesMut};
#[cfg(test)]
pub(super) use walk::walk;
