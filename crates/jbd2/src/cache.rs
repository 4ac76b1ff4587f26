//! The cache of metadata blocks.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_units::{BlockSize, Pblk};

use crate::block::{Block, CheckKey};
use crate::error::BlockError;

/// The cache of metadata blocks.
pub struct BlockCache {
    block_size: BlockSize,
}

impl BlockCache {
    /// A cache of `dev`'s blocks that keeps about `budget_bytes` of them.
    pub fn new(dev: Arc<dyn BlockDevice>, block_size: BlockSize, budget_bytes: usize) -> Arc<Self> {
        let _ = (dev, budget_bytes);
        Arc::new(Self { block_size })
    }

    /// The block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Finds or reads block `p`. `check` runs when the bytes came from the device, or were last checked
    /// under another key.
    ///
    /// # Errors
    /// A failed read, a block past the device, or what `check` says.
    pub fn read<E: From<BlockError>>(
        &self,
        p: Pblk,
        key: CheckKey,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<Block, E> {
        let _ = (p, key, check);
        todo!()
    }

    /// Finds or reads block `p` and checks nothing: for blocks that are checked piece by piece.
    ///
    /// # Errors
    /// A failed read or a block past the device.
    pub fn read_unchecked(&self, p: Pblk) -> Result<Block, BlockError> {
        let _ = p;
        todo!()
    }

    /// Brings `count` blocks from `first` into the cache with one large read. Best effort.
    pub fn readahead(&self, first: Pblk, count: u32) {
        let _ = (first, count);
    }
}
