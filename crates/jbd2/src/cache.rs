//! The cache of metadata blocks.
//!
//! # Invariants
//! - At most one [`Block`] exists per block number: an entry leaves the map only while nobody else holds it.
//! - Whatever is modified and not yet home is held by a transaction or by the log's index, so the map's
//!   reference count alone says whether a block may be evicted, and a block that is not in the map is on
//!   the device as it should be.
//! - Failed reads leave an entry without bytes behind: the next reader tries again.
//!
//! # Eviction
//! Each shard keeps its share of the budget with a clock: an entry that was looked up since the hand last
//! passed gets a second chance, a held one is passed over. An insertion moves the hand a bounded number of
//! steps, so that a cache full of held blocks grows over its budget (by at most what the log and the running
//! transactions hold) instead of searching.
//!
//! # Concurrency
//! A lookup takes one shard's lock, for the lookup only. Reading from the device happens under the block's
//! own lock: concurrent readers of one block share one I/O, readers of others do not meet it.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::BlockDevice;
use extant_units::{BlockSize, Blocks, Pblk};
use parking_lot::Mutex;

use crate::block::{Block, CheckKey, zeroed};
use crate::error::BlockError;
use crate::hash::BlockHash;

/// Shards: enough that many threads rarely meet in one.
const SHARDS: usize = 64;
/// Clock steps per insertion.
const CLOCK_STEPS: usize = 32;
/// The most bytes one call of [`BlockCache::readahead`] reads.
const READAHEAD_BYTES: usize = 4 << 20;

/// The cache of metadata blocks. See the module's header.
pub struct BlockCache {
    dev: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    device_blocks: Blocks,
    shard_budget: usize,
    hash: BlockHash,
    shards: Box<[Padded]>,
    misses: AtomicU64,
}

/// A shard on cache lines of its own.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

#[derive(Default)]
struct Shard {
    map: HashMap<u64, Block, BlockHash>,
    /// Every key of `map` once.
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
    /// A cache of `dev`'s blocks that keeps about `budget_bytes` of them, and whatever is held beyond that.
    pub fn new(dev: Arc<dyn BlockDevice>, block_size: BlockSize, budget_bytes: usize) -> Arc<Self> {
        let hash = BlockHash::default();
        let shards = (0..SHARDS)
            .map(|_| {
                Padded(Mutex::new(Shard {
                    map: HashMap::with_hasher(hash.clone()),
                    ..Shard::default()
                }))
            })
            .collect();
        Arc::new(Self {
            device_blocks: Blocks::new(dev.len() >> block_size.log2()),
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

    /// The device's length in whole blocks.
    pub(crate) fn device_blocks(&self) -> Blocks {
        self.device_blocks
    }

    /// Finds or reads block `p`. `check` runs when the bytes came from the device, or were last checked
    /// under another key; it runs without a lock.
    ///
    /// # Errors
    /// A failed read, a block past the device, or what `check` says.
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
        block.checked(seen, key);
        Ok(block)
    }

    /// Finds or reads block `p` and checks nothing: for blocks that are checked piece by piece.
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

    /// Whether block `p` is there: a lookup would not read it. True for a moment only; for deciding about readahead.
    pub fn is_cached(&self, p: Pblk) -> bool {
        let shard = self.shard(p).lock();
        shard.map.get(&p.get()).is_some_and(|b| b.key().is_some())
    }

    /// Brings up to `count` blocks from `first` into the cache with one large read (of 4 MiB at most). Best
    /// effort: blocks that are cached or being read are left alone, errors are left to the later read.
    pub fn readahead(&self, first: Pblk, count: u32) {
        let most = READAHEAD_BYTES / self.block_size.bytes();
        let count = usize::try_from(count).unwrap_or(most).min(most);
        let mut blocks = Vec::with_capacity(count);
        for i in 0..count as u64 {
            let Some(Ok(block)) = first.checked_add(i).map(|p| self.find_or_insert(p)) else {
                break;
            };
            blocks.push(block);
        }
        for stretch in blocks.chunk_by(|a, b| a.key().is_none() == b.key().is_none()) {
            if self.read_stretch(stretch).is_err() {
                return;
            }
        }
    }

    /// Reads a stretch of neighbours that are not loaded with one call. Stops before the first one that is
    /// loaded or locked by now: locks are tried, never waited for, as their holder may wait for another of ours.
    fn read_stretch(&self, blocks: &[Block]) -> std::io::Result<()> {
        let guards: Vec<_> = blocks
            .iter()
            .map_while(|block| block.try_lock().filter(|_| block.key().is_none()))
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
        self.dev.read_vectored_at(offset, &mut slices)?;
        self.misses
            .fetch_add(guards.len() as u64, Ordering::Relaxed);
        for ((block, mut state), data) in blocks.iter().zip(guards).zip(data) {
            block.fill(&mut state, data, CheckKey::UNCHECKED);
        }
        Ok(())
    }

    /// The entry of block `p`, if there is one.
    pub(crate) fn peek(&self, p: Pblk) -> Option<Block> {
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
        if p.get() >= self.device_blocks.get() {
            return Err(BlockError::OutOfRange {
                block: p,
                device: self.device_blocks,
            });
        }
        shard.make_room(self.shard_budget);
        let block = Block::unloaded(p);
        shard.map.insert(p.get(), block.clone());
        shard.clock.push_back(p.get());
        Ok(block)
    }

    /// Reads a block's bytes unless another thread was quicker. Returns the key that they have.
    fn load(&self, block: &Block) -> Result<CheckKey, BlockError> {
        let mut state = block.lock();
        if let Some(key) = block.key() {
            return Ok(key);
        }
        let p = block.pblk();
        let offset = self.block_size.dev_off(p).ok_or(BlockError::OutOfRange {
            block: p,
            device: self.device_blocks,
        })?;
        let mut data = zeroed(self.block_size.bytes());
        if let Some(bytes) = Arc::get_mut(&mut data) {
            self.dev
                .read_at(offset, bytes)
                .map_err(|source| BlockError::Io {
                    block: p,
                    source: Arc::new(source),
                })?;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        block.fill(&mut state, data, CheckKey::UNCHECKED);
        Ok(CheckKey::UNCHECKED)
    }

    fn shard(&self, p: Pblk) -> &Mutex<Shard> {
        let hash = self.hash.hash_one(p.get());
        // The map inside takes the hash's low and topmost bits; these are neither.
        let index = usize::try_from((hash >> 40) % SHARDS as u64).unwrap_or(0);
        &self.shards[index].0
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
    /// Moves the clock hand until one more entry fits the budget, a bounded number of steps.
    fn make_room(&mut self, budget: usize) {
        for _ in 0..CLOCK_STEPS {
            if self.map.len() < budget {
                return;
            }
            let Some(key) = self.clock.pop_front() else {
                return;
            };
            let keep = self
                .map
                .get(&key)
                .is_some_and(|block| !block.is_unheld() || block.take_referenced());
            if keep {
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
