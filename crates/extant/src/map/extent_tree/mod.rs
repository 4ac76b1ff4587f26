//! The extent tree: a file's map on disk.
//!
//! Pure: nodes come from and go to a [`Nodes`] / [`NodesMut`] store, which knows blocks, handles and the
//! allocator. All changes go through one step, [`replace`](replace::replace): some neighbouring entries of a leaf
//! give way to others, with as many splits, new levels, empty nodes and shorter roots as follow from it.
//! Inserting, converting, splitting, shifting and removing only work out which entries those are.
//!
//! Invariants of a tree, checked on every descent and kept by every change:
//! * extents are sorted and disjoint in the whole tree; a parent's entry carries the exact first block of
//!   its child;
//! * no node but the root is empty (an empty leaf that somebody else left is tolerated, and removed when met);
//! * neighbours in a leaf that could be one extent are one, as far as a change touched them.
//!
//! Failure: a step reads and allocates all it needs before its first change. So space that runs out, a
//! node that cannot be read or a damaged one leaves the tree as it was before the step; an
//! operation of several steps leaves a valid tree with the steps done so far. After the first change only a
//! journal that stopped can fail, and then nothing of the transaction reaches the disk.
//!
//! Locks: none here. The caller holds the inode's `map_lock`, for writing if it changes anything. Loops are
//! bounded: a descent by the depth (at most five), a walk by positions that only grow.

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
