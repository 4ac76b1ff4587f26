//! The cache of metadata blocks.
//!
//! # Invariants
//! - At most one [`Block`] exists per block number: an entry leaves the map only while the map has
//!   the only reference to it.
//! - A block that was modified and not checkpointed is referenced by a transaction or by the log's
//!   index. So the reference count alone says whether a block may be evicted, and the device has
//!   the latest version of a block that is not in the map.
//! - A failed read leaves an entry without bytes: the next reader tries again.
//! - Each shard keeps its share of the budget with a clock. An entry that was looked up since the
//!   hand last passed gets a second chance; a referenced one is skipped. An insertion moves the
//!   hand a bounded number of steps. A cache full of referenced blocks thus grows over its budget
//!   instead of searching, by at most what the log and the live transactions hold.
//!
//! # Locks
//! A lookup takes one shard's lock, for the lookup only. It is a leaf.
//!
//! # Concurrency
//! Reading from the device happens under the block's own lock: concurrent readers of one block
//! share one I/O, and readers of other blocks are not delayed.

use extant_sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::io::IoSliceMut;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_sync::Mutex;
use extant_units::{BlockSize, Blocks, Pblk, index};

use crate::block::{Block, BlockGuard, CheckKey, zeroed};
use crate::error::BlockError;
use crate::hash::NumberHash;

/// Shards: enough that threads rarely contend for one.
const SHARDS: usize = 64;
/// Clock steps per insertion.
const CLOCK_STEPS: usize = 32;
/// The most bytes one call of [`BlockCache::readahead`] reads.
const READAHEAD_BYTES: usize = 4 << 20;

/// The cache of metadata blocks. See the module's header.
pub struct BlockCache {
    dev: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    shard_budget: usize,
    hash: NumberHash,
    shards: Box<[PaddedShard]>,
    misses: AtomicU64,
}

/// A shard on cache lines of its own.
#[repr(align(128))]
struct PaddedShard(Mutex<Shard>);

#[derive(Default)]
struct Shard {
    map: HashMap<u64, Block, NumberHash>,
    /// Every key of `map` once, the next one to look at first.
    clock: VecDeque<u64>,
    hits: u64,
    evictions: u64,
}

/// The cache's counters: part of [`crate::JournalStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
}

impl BlockCache {
    /// A cache of `dev`'s blocks that holds about `budget_bytes` of them, and every block that is
    /// referenced.
    pub fn new(dev: Arc<dyn BlockDevice>, block_size: BlockSize, budget_bytes: usize) -> Arc<Self> {
        let hash = NumberHash::default();
        let shards = (0..SHARDS)
            .map(|_| {
                PaddedShard(Mutex::new(Shard {
                    map: HashMap::with_hasher(hash.clone()),
                    ..Shard::default()
                }))
            })
            .collect();
        Arc::new(Self {
            shard_budget: (budget_bytes / block_size.bytes() / SHARDS).max(4),
            dev,
            block_size,
            hash,
            shards,
            misses: AtomicU64::new(0),
        })
    }

    /// The block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks that the budget has room for.
    pub(crate) fn budget_blocks(&self) -> usize {
        self.shard_budget * SHARDS
    }

    /// The device that the blocks live on.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.dev
    }

    /// The device's length in whole blocks, which grows with the device.
    pub(crate) fn device_blocks(&self) -> Blocks {
        Blocks::new(self.dev.len() >> self.block_size.log2())
    }

    /// Finds or reads block `p`. Calls `check`, without a lock, when the bytes came from the device
    /// or were last checked under another key.
    ///
    /// # Errors
    /// A failed read, a block past the device, or the error of `check`.
    pub fn read<E: From<BlockError>>(
        &self,
        p: Pblk,
        key: CheckKey,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<Block, E> {
        let block = self.find_or_insert(p)?;
        let seen = match block.key() {
            Some(seen) if seen == key => return Ok(block),
            Some(seen) => seen,
            None => self.load(&block)?,
        };
        check(&block.data())?;
        block.set_checked(seen, key);
        Ok(block)
    }

    /// Finds or reads block `p` and checks nothing: for blocks that callers check piece by piece.
    ///
    /// # Errors
    /// A failed read or a block past the device.
    pub fn read_unchecked(&self, p: Pblk) -> Result<Block, BlockError> {
        let block = self.find_or_insert(p)?;
        if block.key().is_none() {
            self.load(&block)?;
        }
        Ok(block)
    }

    /// Forgets the bytes of block `p`, which the caller has written past the cache: the next lookup
    /// reads the device. A block of a transaction stays as it is.
    pub fn forget_bytes(&self, p: Pblk) {
        if let Some(block) = self.get(p) {
            block.lock().unload();
        }
    }

    /// Returns whether a lookup of block `p` would find its bytes. The answer may change at once;
    /// it serves to decide about readahead.
    pub fn is_cached(&self, p: Pblk) -> bool {
        let shard = self.shard(p).lock();
        shard.map.get(&p.get()).is_some_and(|b| b.key().is_some())
    }

    /// Block `p`, if its bytes are in the cache.
    pub fn cached(&self, p: Pblk) -> Option<Block> {
        let mut shard = self.shard(p).lock();
        let block = shard.map.get(&p.get()).filter(|b| b.key().is_some())?;
        let block = block.clone();
        block.mark_referenced();
        shard.hits += 1;
        Some(block)
    }

    /// Reads up to `count` blocks from `first` into the cache with one large read of at most 4 MiB.
    /// Blocks that are cached or being read are skipped, and errors are left to the later read.
    pub fn readahead(&self, first: Pblk, count: u32) {
        let most = (READAHEAD_BYTES / self.block_size.bytes()) as u64;
        let count = u64::from(count).min(most);
        let mut blocks = Vec::with_capacity(index(count));
        for i in 0..count {
            let Some(Ok(block)) = first.checked_add(i).map(|p| self.find_or_insert(p)) else {
                break;
            };
            blocks.push(block);
        }
        for run in blocks.chunk_by(|a, b| a.key().is_none() == b.key().is_none()) {
            if self.read_run(run).is_err() {
                return;
            }
        }
    }

    /// Reads a run of neighbours that are not loaded with one call. Stops before the first one that
    /// is loaded or locked by now. Locks are tried and never waited for: their holder may wait for
    /// another lock of this run.
    fn read_run(&self, blocks: &[Block]) -> std::io::Result<()> {
        let guards: Vec<_> = blocks
            .iter()
            .map_while(|block| block.try_lock().filter(BlockGuard::is_unloaded))
            .collect();
        let Some(offset) = blocks
            .first()
            .filter(|_| !guards.is_empty())
            .and_then(|block| self.block_size.dev_off(block.pblk()))
        else {
            return Ok(());
        };
        let mut data: Vec<Arc<[u8]>> = guards
            .iter()
            .map(|_| zeroed(self.block_size.bytes()))
            .collect();
        let mut slices: Vec<IoSliceMut<'_>> = data
            .iter_mut()
            .filter_map(Arc::get_mut)
            .map(IoSliceMut::new)
            .collect();
        debug_assert_eq!(slices.len(), guards.len(), "each buffer has one reference");
        self.dev.read_vectored_at(offset, &mut slices)?;
        self.misses
            .fetch_add(guards.len() as u64, Ordering::Relaxed);
        for (mut guard, data) in guards.into_iter().zip(data) {
            guard.fill(data, CheckKey::UNCHECKED);
        }
        Ok(())
    }

    /// The entry of block `p`, if there is one.
    pub(crate) fn get(&self, p: Pblk) -> Option<Block> {
        self.shard(p).lock().map.get(&p.get()).cloned()
    }

    /// The entry of block `p`, without bytes if it is new.
    pub(crate) fn find_or_insert(&self, p: Pblk) -> Result<Block, BlockError> {
        let mut shard = self.shard(p).lock();
        if let Some(block) = shard.map.get(&p.get()) {
            let block = block.clone();
            block.mark_referenced();
            shard.hits += u64::from(block.key().is_some());
            return Ok(block);
        }
        let device = self.device_blocks();
        if p.get() >= device.get() {
            return Err(BlockError::OutOfRange { block: p, device });
        }
        shard.make_room(self.shard_budget);
        let block = Block::unloaded(p);
        shard.map.insert(p.get(), block.clone());
        shard.clock.push_back(p.get());
        debug_assert_eq!(
            shard.clock.len(),
            shard.map.len(),
            "the clock has every key once"
        );
        Ok(block)
    }

    /// Reads a block's bytes unless another thread has done so. Returns their key.
    fn load(&self, block: &Block) -> Result<CheckKey, BlockError> {
        let mut guard = block.lock();
        if let Some(key) = block.key() {
            return Ok(key);
        }
        let p = block.pblk();
        let offset = self.block_size.dev_off(p).ok_or(BlockError::OutOfRange {
            block: p,
            device: self.device_blocks(),
        })?;
        let mut data = zeroed(self.block_size.bytes());
        // New bytes have one reference, so they are not copied here.
        self.dev
            .read_at(offset, Arc::make_mut(&mut data))
            .map_err(|source| BlockError::Io {
                block: p,
                source: Arc::new(source),
            })?;
        self.misses.fetch_add(1, Ordering::Relaxed);
        guard.fill(data, CheckKey::UNCHECKED);
        Ok(CheckKey::UNCHECKED)
    }

    fn shard(&self, p: Pblk) -> &Mutex<Shard> {
        let hash = self.hash.hash_one(p.get());
        // The map inside uses the hash's low and topmost bits; these are neither.
        &self.shards[index((hash >> 40) % SHARDS as u64)].0
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            misses: self.misses.load(Ordering::Relaxed),
            ..CacheStats::default()
        };
        for shard in &self.shards {
            let shard = shard.0.lock();
            stats.hits += shard.hits;
            stats.evictions += shard.evictions;
        }
        stats
    }
}

impl Shard {
    /// Moves the clock hand until one more entry fits the budget, by a bounded number of steps.
    fn make_room(&mut self, budget: usize) {
        for _ in 0..CLOCK_STEPS {
            if self.map.len() < budget {
                return;
            }
            let Some(key) = self.clock.pop_front() else {
                return;
            };
            let stays = self
                .map
                .get(&key)
                .is_some_and(|block| !block.is_unreferenced() || block.take_referenced());
            if stays {
                self.clock.push_back(key);
            } else {
                self.map.remove(&key);
                self.evictions += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
