//! A file system of one file, in memory: delayed allocation, unwritten space, late sizes. It shows
//! that the buffered path needs nothing of ext4, and checks the invariants of its border.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_iomap::*;
use extant_pagecache::*;
use extant_units::{BlockSize, DevOff, PAGE_SHIFT, Pos};

/// Byte that the device holds where nothing was written.
pub const STALE: u8 = 0xEE;

#[derive(Debug)]
pub enum ToyError {
    Device(DeviceFault),
    NoSpace,
}

impl From<DeviceFault> for ToyError {
    fn from(fault: DeviceFault) -> Self {
        Self::Device(fault)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    Delayed,
    Unwritten(u64),
    Written(u64),
}

#[derive(Default)]
struct Map {
    blocks: BTreeMap<u64, Block>,
    free: Vec<u64>,
    reserved: u64,
    next: u64,
    total: u64,
    disk_size: u64,
    freed_delayed: u64,
}

impl Map {
    fn available(&self) -> u64 {
        self.total - self.next + self.free.len() as u64 - self.reserved
    }
}

pub struct Toy {
    pub cache: Arc<PageCache>,
    pub pages: Arc<AddressSpace>,
    pub device: Arc<dyn BlockDevice>,
    pub stats: IomapCounters,
    block: BlockSize,
    size: AtomicU64,
    seq: AtomicU64,
    map: Mutex<Map>,
    /// Every other validity check fails.
    pub flaky: AtomicBool,
    flips: AtomicU64,
    /// The longest mapping, in blocks.
    pub max_map: AtomicU64,
    /// Size to which a truncation right after the next look at the size cuts the file; `u64::MAX`
    /// if none comes.
    pub cut_after_look: AtomicU64,
    pub completions: AtomicU64,
    pub readahead: Readahead,
    pub recent: RecentFolios,
}

pub struct Setup {
    pub block: BlockSize,
    pub order: u32,
    pub budget: u64,
    pub flushers: usize,
    pub blocks: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            block: BlockSize::KIB4,
            order: 9,
            budget: 64 << 20,
            flushers: 0,
            blocks: 16 << 10,
        }
    }
}

impl Setup {
    pub fn device(&self) -> MemoryDevice {
        let bytes = self.blocks * self.block.bytes_u64();
        MemoryDevice::from_bytes(&vec![STALE; usize::try_from(bytes).unwrap()])
    }

    pub fn build(self) -> Arc<Toy> {
        let device = Arc::new(self.device());
        self.build_on(device)
    }

    pub fn build_on(self, device: Arc<dyn BlockDevice>) -> Arc<Toy> {
        let cache = PageCache::new(Config {
            max_order: self.order,
            min_order: self.block.log2().saturating_sub(PAGE_SHIFT),
            flushers: self.flushers,
            flush_interval: std::time::Duration::from_millis(5),
            dirty_expire: std::time::Duration::from_millis(10),
            ..Config::with_budget(self.budget)
        });
        Arc::new_cyclic(|this: &Weak<Toy>| {
            let params = AddressSpaceParams {
                block_size: self.block,
                max_order: self.order,
            };
            Toy {
                pages: AddressSpace::new(&cache, this.clone(), params),
                cache,
                device,
                stats: IomapCounters::default(),
                block: self.block,
                size: AtomicU64::new(0),
                seq: AtomicU64::new(1),
                map: Mutex::new(Map {
                    total: self.blocks,
                    ..Map::default()
                }),
                flaky: AtomicBool::new(false),
                flips: AtomicU64::new(0),
                max_map: AtomicU64::new(u64::MAX),
                cut_after_look: AtomicU64::new(u64::MAX),
                completions: AtomicU64::new(0),
                readahead: Readahead::new(512 << 10),
                recent: RecentFolios::default(),
            }
        })
    }
}

/// Zeroes from byte `size` to the end of its block. Returns whether any byte changed.
pub fn zero_block_rest<O: IomapOps>(ops: &O, size: u64) -> bool
where
    O::Error: std::fmt::Debug,
{
    let pos = Pos::new(size);
    let end = ops.address_space().block_size().round_up(pos).unwrap();
    zero_range(ops, pos, end.since(pos)).unwrap()
}

impl Toy {
    pub fn write(&self, pos: u64, data: &[u8]) -> Result<usize, Stopped<ToyError>> {
        let old = self.size();
        if pos > old {
            zero_range(self, Pos::new(old), pos - old)?;
        }
        let mut source = data;
        let len = source.len();
        extant_iomap::write(self, Pos::new(pos), len, &mut source)
    }

    pub fn read(&self, pos: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0x55; len];
        let miss = Miss::Fill(&self.readahead);
        let done =
            extant_iomap::read(self, &self.recent, miss, Pos::new(pos), &mut buf[..]).unwrap();
        buf.truncate(done);
        buf
    }

    pub fn truncate(&self, size: u64) {
        let old = self.size();
        if size >= old {
            zero_range(self, Pos::new(old), size - old).unwrap();
            self.size.store(size, Ordering::SeqCst);
            let mut map = self.map.lock().unwrap();
            map.disk_size = map.disk_size.max(size);
            return;
        }
        if zero_block_rest(self, size) {
            let end = Pos::new(size).saturating_add(1);
            write_back(
                self,
                &self.address_space().writeback_pass(),
                WritebackControl::integrity(Pos::new(size), end),
            )
            .unwrap();
        }
        let no_fills = self.pages.invalidate_lock().write();
        self.size.store(size, Ordering::SeqCst);
        self.pages.drop_range(&no_fills, Pos::new(size), Pos::MAX);
        let mut map = self.map.lock().unwrap();
        map.disk_size = size;
        let first = size.div_ceil(self.block.bytes_u64());
        let gone = map.blocks.split_off(&first);
        for block in gone.into_values() {
            match block {
                Block::Delayed => map.reserved -= 1,
                Block::Unwritten(at) | Block::Written(at) => map.free.push(at),
            }
        }
        self.seq.fetch_add(1, Ordering::SeqCst);
    }

    pub fn sync(&self) -> Result<u64, ToyError> {
        write_back(
            self,
            &self.address_space().writeback_pass(),
            WritebackControl::integrity(Pos::ZERO, Pos::MAX),
        )
    }

    /// Moves the size on disk before the data, as a file system may whose unwritten space reads as
    /// zero.
    pub fn raise_disk_size(&self, end: u64) {
        let mut map = self.map.lock().unwrap();
        map.disk_size = map.disk_size.max(end);
    }

    /// Makes unwritten space written before data is there, as a file system may whose log has it.
    pub fn convert_early(&self) {
        for block in self.map.lock().unwrap().blocks.values_mut() {
            if let Block::Unwritten(at) = *block {
                *block = Block::Written(at);
            }
        }
        self.bump();
    }

    /// The first half of a truncation: the size, and nothing else yet.
    pub fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::SeqCst);
    }

    /// Takes space that was reserved, as a broken file system might.
    pub fn steal(&self, blocks: u64) {
        self.map.lock().unwrap().next += blocks;
    }

    pub fn reserved(&self) -> u64 {
        self.map.lock().unwrap().reserved
    }

    /// The size on disk.
    pub fn disk_size(&self) -> u64 {
        self.map.lock().unwrap().disk_size
    }

    /// Content that a mount after a crash would show.
    pub fn on_disk(&self) -> Vec<u8> {
        let map = self.map.lock().unwrap();
        let bs = self.block.bytes();
        let mut out = vec![0; usize::try_from(map.disk_size).unwrap()];
        for (number, part) in out.chunks_mut(bs).enumerate() {
            if let Some(Block::Written(at)) = map.blocks.get(&(number as u64)) {
                let at = DevOff::new(at * bs as u64);
                let mut whole = vec![0; bs];
                self.device.read_at(at, &mut whole).unwrap();
                part.copy_from_slice(&whole[..part.len()]);
            }
        }
        out
    }

    /// J7, J8, J11: the reserved blocks are exactly the dirty ones that have no space.
    pub fn check_idle(&self) {
        // No other thread is at work, so that the map's lock may be held over looks into folios.
        let map = self.map.lock().unwrap();
        let delayed = |block: &&Block| **block == Block::Delayed;
        let count = map.blocks.values().filter(delayed).count() as u64;
        assert_eq!(count, map.reserved, "reservations match delayed blocks");
        let bs = self.block.bytes_u64();
        for (&number, block) in &map.blocks {
            if *block == Block::Delayed {
                let (start, end) = (number * bs, (number + 1) * bs);
                let clean = self.pages.clean_ranges(Pos::new(start), Pos::new(end));
                assert!(clean.is_empty(), "block {number} is delayed but clean");
            }
        }
        assert!(
            map.disk_size <= self.size(),
            "the size on disk is not ahead"
        );
    }

    pub fn state(&self, number: u64) -> Option<Block> {
        self.map.lock().unwrap().blocks.get(&number).copied()
    }

    fn bump(&self) {
        self.seq.fetch_add(1, Ordering::SeqCst);
    }

    /// The run of like blocks at `number`, at most `max` long.
    fn run(&self, map: &Map, number: u64, max: u64) -> (Option<Block>, u64) {
        let max = max.min(self.max_map.load(Ordering::Relaxed)).max(1);
        let first = map.blocks.get(&number).copied();
        let mut len = 1;
        while len < max {
            let next = map.blocks.get(&(number + len)).copied();
            let joins = match (first, next) {
                (None, None) | (Some(Block::Delayed), Some(Block::Delayed)) => true,
                (Some(Block::Unwritten(a)), Some(Block::Unwritten(b)))
                | (Some(Block::Written(a)), Some(Block::Written(b))) => a + len == b,
                _ => false,
            };
            if !joins {
                break;
            }
            len += 1;
        }
        (first, len)
    }

    fn describe(&self, first: Option<Block>, number: u64, len: u64, new: bool) -> Iomap {
        let bs = self.block.bytes_u64();
        let kind = match first {
            None => IomapKind::Hole,
            Some(Block::Delayed) => IomapKind::Delalloc,
            Some(Block::Unwritten(at)) => IomapKind::Unwritten(DevOff::new(at * bs)),
            Some(Block::Written(at)) => IomapKind::Mapped(DevOff::new(at * bs)),
        };
        Iomap {
            offset: Pos::new(number * bs),
            length: len * bs,
            kind,
            new,
            cookie: self.seq.load(Ordering::SeqCst),
        }
    }

    fn blocks(&self, pos: Pos, len: u64) -> (u64, u64) {
        let bs = self.block.bytes_u64();
        let first = pos.get() / bs;
        (first, (pos.get() + len).div_ceil(bs) - first)
    }
}

impl IomapOps for Toy {
    type Error = ToyError;

    fn address_space(&self) -> &AddressSpace {
        &self.pages
    }
    fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }
    fn counters(&self) -> &IomapCounters {
        &self.stats
    }
    fn size(&self) -> u64 {
        let size = self.size.load(Ordering::SeqCst);
        let cut = self.cut_after_look.swap(u64::MAX, Ordering::SeqCst);
        if cut < size {
            self.truncate(cut);
        }
        size
    }
    fn raise_size(&self, _locked: FolioLocked<'_>, end: u64) {
        self.size.fetch_max(end, Ordering::SeqCst);
    }

    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        let (number, count) = self.blocks(pos, len);
        let mut map = self.map.lock().unwrap();
        let (mut first, run) = self.run(&map, number, count);
        let mut new = false;
        if first.is_none() && op == IomapOp::Write {
            if map.available() < run {
                return Err(ToyError::NoSpace);
            }
            map.reserved += run;
            for block in number..number + run {
                map.blocks.insert(block, Block::Delayed);
            }
            self.bump();
            first = Some(Block::Delayed);
            new = true;
        }
        Ok(self.describe(first, number, run, new))
    }

    fn end(
        &self,
        op: IomapOp,
        map: &Iomap,
        pos: Pos,
        len: u64,
        outcome: Outcome,
    ) -> Result<(), ToyError> {
        let unused = map.kind == IomapKind::Delalloc && map.new;
        if op != IomapOp::Write || !unused || outcome.done >= len {
            return Ok(());
        }
        let bs = self.block.bytes_u64();
        let from = (pos.get() + outcome.done).next_multiple_of(bs);
        self.pages.clear_backed(Pos::new(from), map.end());
        // Looks into folios, so before the map's lock: fills ask for the map with folios locked.
        let unused = self.pages.clean_ranges(Pos::new(from), map.end());
        let mut inner = self.map.lock().unwrap();
        for clean in unused {
            for number in clean.start.get().div_ceil(bs)..clean.end.get() / bs {
                if inner.blocks.get(&number) == Some(&Block::Delayed) {
                    inner.blocks.remove(&number);
                    inner.reserved -= 1;
                    inner.freed_delayed += 1;
                    self.bump();
                }
            }
        }
        Ok(())
    }

    fn is_current(&self, map: &Iomap) -> bool {
        let flaky = self.flaky.load(Ordering::Relaxed)
            && self.flips.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        !flaky && map.cookie == self.seq.load(Ordering::SeqCst)
    }
}

impl WritebackOps for Toy {
    fn map_blocks(&self, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        let (number, count) = self.blocks(pos, len);
        let mut map = self.map.lock().unwrap();
        let (mut first, mut run) = self.run(&map, number, count);
        if first == Some(Block::Delayed) {
            let fresh = map.total - map.next;
            let at = if let Some(at) = map.free.pop() {
                run = 1;
                at
            } else if fresh > 0 {
                run = run.min(fresh);
                map.next
            } else {
                return Err(ToyError::NoSpace);
            };
            map.next = map.next.max(at + run);
            for i in 0..run {
                map.blocks.insert(number + i, Block::Unwritten(at + i));
            }
            map.reserved -= run;
            self.bump();
            first = Some(Block::Unwritten(at));
        }
        Ok(self.describe(first, number, run, false))
    }

    fn complete(&self, ioend: &Ioend) -> Result<(), ToyError> {
        self.completions.fetch_add(1, Ordering::Relaxed);
        let (first, count) = self.blocks(ioend.pos, ioend.len);
        let mut map = self.map.lock().unwrap();
        if ioend
            .failed_before
            .is_some_and(|lost| lost.get() > map.disk_size)
        {
            return Ok(());
        }
        for number in first..first + count {
            let at = ioend.at.get() / self.block.bytes_u64() + number - first;
            let expected = match ioend.kind {
                IoendKind::Mapped => Block::Written(at),
                IoendKind::Unwritten => Block::Unwritten(at),
            };
            assert_eq!(
                map.blocks.get(&number),
                Some(&expected),
                "the map kept the block"
            );
            map.blocks.insert(number, Block::Written(at));
        }
        if ioend.kind == IoendKind::Unwritten {
            self.bump();
        }
        let size = self.size().min(ioend.end().get());
        map.disk_size = map.disk_size.max(size);
        Ok(())
    }

    fn discard(&self, pos: Pos, len: u64) {
        let (first, count) = self.blocks(pos, len);
        let mut map = self.map.lock().unwrap();
        for number in first..first + count {
            if map.blocks.get(&number) == Some(&Block::Delayed) {
                map.blocks.remove(&number);
                map.reserved -= 1;
            }
        }
        self.bump();
    }

    fn fault_of(error: &ToyError) -> WritebackFault {
        match error {
            ToyError::Device(_) => WritebackFault::Io,
            ToyError::NoSpace => WritebackFault::NoSpace,
        }
    }
}

impl Writeback for Toy {
    fn write_back(self: Arc<Self>, reason: WritebackReason, max_bytes: u64) {
        let control = match reason {
            WritebackReason::Sync => WritebackControl::integrity(Pos::ZERO, Pos::MAX),
            WritebackReason::Background | WritebackReason::Expired => {
                WritebackControl::background(max_bytes)
            }
        };
        // Recorded in the mapping.
        let _ = extant_iomap::write_back(&*self, &self.address_space().writeback_pass(), control);
    }
}

/// A small generator: xorshift.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Bytes that are neither zero nor stale.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| u8::try_from(1 + self.below(200)).unwrap())
            .collect()
    }
}
