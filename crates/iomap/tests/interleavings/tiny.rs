//! A file system of a few blocks, as small as the protocol allows, with locks that the checker sees
//! as well.
#![allow(unreachable_pub, reason = "a module of one test")]

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Weak};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_extent_io_tree::{Bits, ByteRange, IoTree, RangeGuard};
use extant_iomap::*;
use extant_pagecache::*;
use extant_units::{BlockSize, DevOff, Pos};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread::yield_now;

use super::direct::Bypass;

pub const BLOCK: usize = 1024;
const BLOCKS: usize = 8;
/// Byte that the next owner of a freed block puts there.
pub const FOREIGN: u8 = 0xbb;

#[derive(Debug)]
pub struct Broken;

impl From<DeviceFault> for Broken {
    fn from(_: DeviceFault) -> Self {
        Self
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Hole,
    Delayed,
    Unwritten(u64),
    Written(u64),
}

struct Map {
    blocks: [Block; BLOCKS],
    next: u64,
    disk_size: u64,
    /// Blocks that are another file's now.
    foreign: Vec<u64>,
}

/// A device on which requests take time, and bytes that change under a write are noticed.
pub struct Slow(MemoryDevice);

impl BlockDevice for Slow {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        yield_now();
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let before = buf.to_vec();
        yield_now();
        assert!(before == buf, "the bytes are stable under writeback");
        self.0.write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at = at.saturating_add(buf.len() as u64);
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Tiny {
    pub cache: Arc<PageCache>,
    pub pages: Arc<AddressSpace>,
    pub readahead: Readahead,
    /// Range locks of the file.
    pub ranges: IoTree,
    pub bypass: Bypass,
    pub device: Slow,
    stats: IomapCounters,
    size: AtomicU64,
    seq: AtomicU64,
    map: Mutex<Map>,
    cookies: bool,
}

fn floor(pos: u64) -> u64 {
    pos / BLOCK as u64 * BLOCK as u64
}

fn to_the_end(pos: u64) -> ByteRange {
    ByteRange::to_infinity(floor(pos))
}

impl Tiny {
    /// An empty file; without `cookies` every mapping counts as true for ever.
    pub fn new(cookies: bool) -> Arc<Tiny> {
        let config = Config {
            flushers: 0,
            max_order: 1,
            ..Config::with_budget(256 << 10)
        };
        Self::in_cache(PageCache::new(config), cookies)
    }

    /// Another file, on a device of its own, in the same cache.
    pub fn beside(other: &Tiny) -> Arc<Tiny> {
        Self::in_cache(other.cache.clone(), true)
    }

    fn in_cache(cache: Arc<PageCache>, cookies: bool) -> Arc<Tiny> {
        let params = AddressSpaceParams {
            block_size: BlockSize::KIB1,
            max_order: 1,
        };
        Arc::new_cyclic(|this: &Weak<Tiny>| Tiny {
            pages: AddressSpace::new(&cache, this.clone(), params),
            cache,
            readahead: Readahead::new(8 << 10),
            ranges: IoTree::default(),
            bypass: Bypass::default(),
            device: Slow(MemoryDevice::from_bytes(&[0xee; 64 * BLOCK])),
            stats: IomapCounters::default(),
            size: AtomicU64::new(0),
            seq: AtomicU64::new(0),
            map: Mutex::new(Map {
                blocks: [Block::Hole; BLOCKS],
                next: 0,
                disk_size: 0,
                foreign: Vec::new(),
            }),
            cookies,
        })
    }

    pub fn write(&self, pos: u64, data: &[u8]) {
        let _mine = self.lock_for_write(pos, data.len());
        self.write_unlocked(pos, data);
    }

    /// A write without a range lock.
    pub fn write_unlocked(&self, pos: u64, mut data: &[u8]) {
        let old = self.size();
        if pos > old {
            zero_range(self, Pos::new(old), pos - old).unwrap();
        }
        let len = data.len();
        assert_eq!(write(self, Pos::new(pos), len, &mut data).unwrap(), len);
    }

    /// Locks what a write changes, as a file system does: whole blocks, up to infinity if the file
    /// grows.
    pub fn lock_for_write(&self, pos: u64, len: usize) -> RangeGuard<'_> {
        let end = pos + len as u64;
        self.lock_by_size(|size| match end > size {
            true => to_the_end(pos.min(size)),
            false => ByteRange::new(floor(pos), floor(end - 1) + BLOCK as u64 - 1).unwrap(),
        })
    }

    fn lock_by_size(&self, wanted: impl Fn(u64) -> ByteRange) -> RangeGuard<'_> {
        loop {
            let guard = self.ranges.lock(wanted(self.size()), Bits::LOCKED);
            if guard.range().covers(wanted(self.size())) {
                return guard;
            }
        }
    }

    /// The fast path of a write, which respects range locks only if `polite`.
    pub fn overwrite(&self, pos: u64, data: &[u8], polite: bool) -> bool {
        let mine = ByteRange::from_len(pos, data.len() as u64).unwrap();
        let alone = || !polite || !self.ranges.is_locked(mine);
        try_overwrite(self, &RecentFolios::default(), Pos::new(pos), data, alone)
    }

    pub fn read(&self, pos: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0x55; len];
        let done = read(
            self,
            &RecentFolios::default(),
            Miss::Fill(&self.readahead),
            Pos::new(pos),
            &mut buf[..],
        )
        .unwrap();
        buf.truncate(done);
        buf
    }

    pub fn sync(&self) {
        write_back(
            self,
            &self.address_space().writeback_pass(),
            WritebackControl::integrity(Pos::ZERO, Pos::MAX),
        )
        .unwrap();
    }

    /// Cuts the file; without `drops_cache` folios stay over blocks that are freed.
    pub fn truncate(&self, size: u64, drops_cache: bool) {
        let _mine = self.lock_by_size(|old| to_the_end(old.min(size)));
        let rest = size.next_multiple_of(BLOCK as u64) - size;
        if zero_range(self, Pos::new(size), rest).unwrap() {
            self.sync();
        }
        let no_fills = self.pages.invalidate_lock().write();
        self.size.store(size, Ordering::SeqCst);
        if drops_cache {
            self.pages.drop_range(&no_fills, Pos::new(size), Pos::MAX);
        }
        let mut map = self.map.lock().unwrap();
        map.disk_size = map.disk_size.min(size);
        let first = usize::try_from(size).unwrap().div_ceil(BLOCK);
        for number in first..BLOCKS {
            let gone = std::mem::replace(&mut map.blocks[number], Block::Hole);
            if let Block::Unwritten(at) | Block::Written(at) = gone {
                let at_byte = DevOff::new(at * BLOCK as u64);
                self.device.0.write_at(at_byte, &[FOREIGN; BLOCK]).unwrap();
                map.foreign.push(at);
            }
        }
        self.seq.fetch_add(1, Ordering::SeqCst);
    }

    /// A sync with its steps in the wrong order: writes first, marks clean afterwards.
    pub fn clean_too_late(&self) {
        let _one = self.pages.writeback_pass();
        for folio in self.pages.tagged(Pos::ZERO, Pos::MAX, Tag::Dirty, 4) {
            let Some(guard) = self.pages.read(&folio) else {
                continue;
            };
            let bytes = guard.bytes()[..BLOCK].to_vec();
            drop(guard);
            let place = self.map_blocks(folio.start(), BLOCK as u64).unwrap();
            let at = place.device_at(folio.start()).unwrap();
            self.device.write_at(at, &bytes).unwrap();
            self.arrived(0, 1, self.size());
            if let Some(mut guard) = self.pages.lock(&folio) {
                guard.start_writeback(folio.len(), |_| {});
                drop(guard);
                self.pages.end_writeback([&folio]);
            }
        }
    }

    /// With no other thread at work: the state in memory is consistent, and a sync leaves nothing
    /// behind.
    pub fn check_idle(&self) {
        self.verify();
        self.sync();
        self.verify();
        assert_eq!(self.pages.dirty_bytes(), 0);
        let cursor = self.pages.errors().cursor();
        assert_eq!(self.pages.errors().check(&cursor), None, "nothing was lost");
        let map = self.map.lock().unwrap();
        assert!(
            !map.blocks.contains(&Block::Delayed),
            "reservations without data (J8)"
        );
        let whole = self.device.0.to_bytes();
        let size = usize::try_from(self.size()).unwrap();
        if let Some(Block::Written(at)) = map.blocks.get(size / BLOCK) {
            let at = usize::try_from(*at).unwrap() * BLOCK;
            let tail = &whole[at + size % BLOCK..at + BLOCK];
            assert!(
                tail.iter().all(|&byte| byte == 0),
                "zeros behind the end (J31)"
            );
        }
        for at in &map.foreign {
            let at = usize::try_from(*at).unwrap() * BLOCK;
            assert!(
                whole[at..at + BLOCK] == [FOREIGN; BLOCK],
                "another file's block"
            );
        }
    }

    fn verify(&self) {
        let blocks = self.map.lock().unwrap().blocks;
        let check = |run: CachedRun| {
            let first = usize::try_from(run.bytes.start.get()).unwrap() / BLOCK;
            let end = usize::try_from(run.bytes.end.get()).unwrap() / BLOCK;
            let lost = blocks[first..end].contains(&Block::Hole);
            match (run.dirty || run.backed) && lost {
                true => Err(format!("{run:?} has no space (J7): {blocks:?}")),
                false => Ok(()),
            }
        };
        self.pages.verify(Pos::new(self.size()), check).unwrap();
    }

    /// Content that a mount would show.
    pub fn on_disk(&self) -> Vec<u8> {
        let map = self.map.lock().unwrap();
        let whole = self.device.0.to_bytes();
        let mut shown = Vec::new();
        for block in &map.blocks {
            match block {
                Block::Written(at) => {
                    let at = usize::try_from(*at).unwrap() * BLOCK;
                    shown.extend_from_slice(&whole[at..at + BLOCK]);
                }
                _ => shown.extend_from_slice(&[0; BLOCK]),
            }
        }
        shown.truncate(usize::try_from(map.disk_size).unwrap());
        shown
    }

    fn arrived(&self, first: usize, count: usize, end: u64) {
        let mut map = self.map.lock().unwrap();
        for block in &mut map.blocks[first..first + count] {
            if let Block::Unwritten(at) = *block {
                *block = Block::Written(at);
                self.seq.fetch_add(1, Ordering::SeqCst);
            }
        }
        map.disk_size = map.disk_size.max(end.min(self.size()));
    }

    /// Returns the device block of block `number`.
    pub fn place(&self, number: usize) -> u64 {
        match self.map.lock().unwrap().blocks[number] {
            Block::Written(at) => at,
            other => panic!("block {number} is {other:?}"),
        }
    }

    fn describe(&self, map: &Map, number: usize, new: bool) -> Iomap {
        let at = |block: u64| DevOff::new(block * BLOCK as u64);
        let kind = match map.blocks.get(number) {
            None | Some(Block::Hole) => IomapKind::Hole,
            Some(Block::Delayed) => IomapKind::Delalloc,
            Some(Block::Unwritten(block)) => IomapKind::Unwritten(at(*block)),
            Some(Block::Written(block)) => IomapKind::Mapped(at(*block)),
        };
        Iomap {
            offset: Pos::new((number * BLOCK) as u64),
            length: BLOCK as u64,
            kind,
            new,
            cookie: self.seq.load(Ordering::SeqCst),
        }
    }

    fn number(pos: Pos) -> usize {
        usize::try_from(pos.get()).unwrap() / BLOCK
    }
}

impl IomapOps for Tiny {
    type Error = Broken;

    fn address_space(&self) -> &AddressSpace {
        &self.pages
    }
    fn device(&self) -> &dyn BlockDevice {
        &self.device
    }
    fn counters(&self) -> &IomapCounters {
        &self.stats
    }
    fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }
    fn raise_size(&self, _locked: FolioLocked<'_>, end: u64) {
        self.size.fetch_max(end, Ordering::SeqCst);
    }

    fn fills_need_lock(&self) -> bool {
        self.bypass.is_used()
    }

    fn lock_fill(&self, wanted: Range<Pos>, needed: Option<Range<Pos>>) -> Option<FillGuard<'_>> {
        self.hold_blocks(wanted, needed)
    }

    fn begin(&self, op: IomapOp, pos: Pos, _len: u64) -> Result<Iomap, Broken> {
        let number = Self::number(pos);
        let mut map = self.map.lock().unwrap();
        let mut new = false;
        if op == IomapOp::Write && map.blocks[number] == Block::Hole {
            map.blocks[number] = Block::Delayed;
            self.seq.fetch_add(1, Ordering::SeqCst);
            new = true;
        }
        Ok(self.describe(&map, number, new))
    }

    fn is_current(&self, map: &Iomap) -> bool {
        !self.cookies || map.cookie == self.seq.load(Ordering::SeqCst)
    }
}

impl WritebackOps for Tiny {
    fn map_blocks(&self, pos: Pos, _len: u64) -> Result<Iomap, Broken> {
        let number = Self::number(pos);
        let mut map = self.map.lock().unwrap();
        if map.blocks[number] == Block::Delayed {
            map.blocks[number] = Block::Unwritten(map.next);
            map.next += 1;
            self.seq.fetch_add(1, Ordering::SeqCst);
        }
        Ok(self.describe(&map, number, false))
    }

    fn complete(&self, ioend: &Ioend) -> Result<(), Broken> {
        let count = usize::try_from(ioend.len).unwrap().div_ceil(BLOCK);
        self.arrived(Self::number(ioend.pos), count, ioend.end().get());
        Ok(())
    }

    fn discard(&self, _pos: Pos, _len: u64) {}

    fn fault_of(_: &Broken) -> WritebackFault {
        WritebackFault::Io
    }
}

impl Writeback for Tiny {
    fn write_back(self: Arc<Self>, _: WritebackReason, _: u64) {
        self.sync();
    }
}
