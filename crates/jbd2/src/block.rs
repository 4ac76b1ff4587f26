//! A metadata block in memory.

use std::ops::Deref;
use std::sync::Arc;

use extant_units::Pblk;

/// What a cached block was last checked as: the kind of structure and its owner.
///
/// A hostile image may use one block as two structures; a block that is read under another key than the
/// one it was last checked under is checked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckKey(u64);

impl CheckKey {
    /// The key of a structure of `kind` that belongs to `owner` (an inode, a group, or zero).
    #[inline]
    pub const fn new(kind: u8, owner: u32) -> Self {
        Self((1 << 63) | ((kind as u64) << 32) | owner as u64)
    }
}

/// A cheap handle on a cached metadata block. While one exists, the block stays in the cache.
#[derive(Clone)]
pub struct Block(Arc<Pblk>);

impl Block {
    /// Where the block lives on the device.
    pub fn pblk(&self) -> Pblk {
        *self.0
    }

    /// The block's bytes as they are now: a snapshot that later modifications do not change.
    pub fn data(&self) -> BlockData {
        todo!()
    }
}

/// An immutable snapshot of a block's bytes. Holds no lock.
#[derive(Clone)]
pub struct BlockData(Arc<[u8]>);

impl Deref for BlockData {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
