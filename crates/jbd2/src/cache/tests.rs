use super::*;
use extant_blockdev::MemoryDevice;
use extant_units::DevOff;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

/// Counts reads, and fails them while `fail` is set.
struct Counting {
    inner: MemoryDevice,
    reads: AtomicU64,
    fail: AtomicBool,
}

impl Counting {
    fn new(blocks: u64) -> Arc<Self> {
        let inner = MemoryDevice::new(blocks * 1024);
        for i in 0..blocks {
            let stamp = i.to_le_bytes();
            inner.write_at(DevOff::new(i * 1024), &stamp).unwrap();
        }
        Arc::new(Self {
            inner,
            reads: AtomicU64::new(0),
            fail: AtomicBool::new(false),
        })
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    fn count(&self) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("planned"));
        }
        Ok(())
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.count()?;
        self.inner.read_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.count()?;
        self.inner.read_vectored_at(offset, bufs)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn cache(dev: &Arc<Counting>, blocks: usize) -> Arc<BlockCache> {
    BlockCache::new(dev.clone(), BlockSize::KIB1, blocks * 1024)
}

fn stamp(block: &Block) -> u64 {
    u64::from_le_bytes(block.data()[..8].try_into().unwrap())
}

#[test]
fn a_block_is_read_once_and_checked_once_per_key() {
    let dev = Counting::new(64);
    let cache = cache(&dev, 1024);
    let mut checks = 0;
    for key in [
        CheckKey::new(1, 5),
        CheckKey::new(1, 5),
        CheckKey::new(1, 6),
    ] {
        let block = cache
            .read::<BlockError>(Pblk::new(9), key, |bytes| {
                assert_eq!(bytes[0], 9);
                checks += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(stamp(&block), 9);
    }
    assert_eq!((checks, dev.reads()), (2, 1));
    cache.read_unchecked(Pblk::new(9)).unwrap();
    assert_eq!(cache.stats().hits, 3);
    assert_eq!(cache.stats().misses, 1);
}

#[test]
fn a_failed_check_runs_again() {
    let dev = Counting::new(64);
    let cache = cache(&dev, 1024);
    let key = CheckKey::new(1, 1);
    let refuse = |_: &[u8]| {
        Err(BlockError::OutOfRange {
            block: Pblk::ZERO,
            device: Blocks::ZERO,
        })
    };
    assert!(cache.read(Pblk::new(3), key, refuse).is_err());
    assert!(cache.read(Pblk::new(3), key, refuse).is_err());
    assert!(
        cache
            .read::<BlockError>(Pblk::new(3), key, |_| Ok(()))
            .is_ok()
    );
    assert_eq!(dev.reads(), 1);
}

#[test]
fn failed_reads_are_retried_and_blocks_past_the_device_refused() {
    let dev = Counting::new(64);
    let cache = cache(&dev, 1024);
    dev.fail.store(true, Ordering::SeqCst);
    let failed = cache.read_unchecked(Pblk::new(5)).unwrap_err();
    assert!(failed.to_string().contains("block 5"), "{failed}");
    dev.fail.store(false, Ordering::SeqCst);
    assert_eq!(stamp(&cache.read_unchecked(Pblk::new(5)).unwrap()), 5);
    for past in [64, u64::MAX] {
        assert!(matches!(
            cache.read_unchecked(Pblk::new(past)),
            Err(BlockError::OutOfRange { .. })
        ));
    }
}

#[test]
fn readers_of_one_block_share_the_read() {
    let dev = Counting::new(64);
    let cache = cache(&dev, 1024);
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                barrier.wait();
                for p in 0..64 {
                    assert_eq!(stamp(&cache.read_unchecked(Pblk::new(p)).unwrap()), p);
                }
            });
        }
    });
    assert_eq!(dev.reads(), 64);
}

#[test]
fn readahead_reads_the_gaps_in_large_pieces() {
    let dev = Counting::new(64);
    let cache = cache(&dev, 1024);
    cache.read_unchecked(Pblk::new(20)).unwrap();
    cache.readahead(Pblk::new(10), 1000);
    assert_eq!(dev.reads(), 3, "one block, then the stretches around it");
    for p in 10..64 {
        assert_eq!(stamp(&cache.read_unchecked(Pblk::new(p)).unwrap()), p);
    }
    assert_eq!(dev.reads(), 3);
    cache.readahead(Pblk::MAX, 3);
    cache.readahead(Pblk::new(0), 0);
    dev.fail.store(true, Ordering::SeqCst);
    cache.readahead(Pblk::new(0), 5);
    dev.fail.store(false, Ordering::SeqCst);
    assert_eq!(stamp(&cache.read_unchecked(Pblk::new(1)).unwrap()), 1);
}

#[test]
fn the_budget_is_kept_and_referenced_blocks_stay() {
    let dev = Counting::new(20_000);
    let cache = cache(&dev, 1024);
    let held: Vec<Block> = (0..500)
        .map(|p| cache.read_unchecked(Pblk::new(p)).unwrap())
        .collect();
    for p in 0..20_000 {
        cache.read_unchecked(Pblk::new(p)).unwrap();
    }
    let cached: usize = cache.shards.iter().map(|s| s.0.lock().map.len()).sum();
    assert!(cached <= 1024 + 500, "{cached} blocks");
    let reads = dev.reads();
    for block in &held {
        cache.read_unchecked(block.pblk()).unwrap();
    }
    assert_eq!(dev.reads(), reads, "a held block was dropped");
    assert!(cache.stats().evictions >= 20_000 - cached as u64);
}

#[test]
fn a_block_in_use_gets_a_second_chance() {
    let dev = Counting::new(20_000);
    let cache = cache(&dev, 4096);
    let hot = Pblk::new(0);
    for p in 0..20_000 {
        cache.read_unchecked(Pblk::new(p)).unwrap();
        cache.read_unchecked(hot).unwrap();
    }
    assert_eq!(dev.reads(), 20_000, "the hot block was read again");
}

/// A lookup without a read finds bytes that are in memory, and only those.
#[test]
fn a_block_is_cached_once_it_has_been_read() {
    let dev = Counting::new(8);
    let cache = BlockCache::new(dev.clone(), BlockSize::KIB1, 64 << 10);
    let p = Pblk::new(3);
    dev.fail.store(true, Ordering::SeqCst);
    assert!(cache.read_unchecked(p).is_err());
    assert!(!cache.is_cached(p) && cache.cached(p).is_none());
    dev.fail.store(false, Ordering::SeqCst);
    cache.read_unchecked(p).unwrap();
    let (hits, reads) = (cache.stats().hits, dev.reads());
    assert!(cache.is_cached(p));
    assert_eq!(cache.cached(p).unwrap().data()[0], 3);
    assert_eq!((cache.stats().hits, dev.reads()), (hits + 1, reads));
}
