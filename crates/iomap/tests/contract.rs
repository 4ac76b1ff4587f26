//! The contract of `IomapOps`, clause by clause: begin and end, blocks that are covered in part,
//! bytes past the end of the file, data that has no space.

mod toy;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use extant_blockdev::BlockDevice;
use extant_iomap::*;
use extant_pagecache::{AddressSpace, FolioLocked, WritebackFault};
use extant_units::{BlockSize, Pos};
use toy::{Block, Rng, Setup, Toy, ToyError};

/// A toy that notes which mappings begin and how they end.
struct Watched<'a> {
    toy: &'a Toy,
    open: Mutex<Option<(Pos, u64)>>,
    ends: Mutex<Vec<Outcome>>,
}

impl<'a> Watched<'a> {
    fn new(toy: &'a Toy) -> Self {
        Self {
            toy,
            open: Mutex::new(None),
            ends: Mutex::new(Vec::new()),
        }
    }

    /// The bytes of every mapping that ended; all did.
    fn done(&self) -> Vec<u64> {
        assert!(self.open.lock().unwrap().is_none(), "begun, not ended");
        let ends = std::mem::take(&mut *self.ends.lock().unwrap());
        ends.iter().map(|outcome| outcome.done).collect()
    }
}

impl IomapOps for Watched<'_> {
    type Error = ToyError;

    fn address_space(&self) -> &AddressSpace {
        self.toy.address_space()
    }
    fn device(&self) -> &dyn BlockDevice {
        self.toy.device()
    }
    fn counters(&self) -> &IomapCounters {
        self.toy.counters()
    }
    fn size(&self) -> u64 {
        self.toy.size()
    }
    fn raise_size(&self, locked: FolioLocked<'_>, end: u64) {
        self.toy.raise_size(locked, end);
    }
    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        let map = self.toy.begin(op, pos, len)?;
        assert!(map.clamp(pos, 1) == 1, "covers the first byte");
        let before = self.open.lock().unwrap().replace((pos, len));
        assert_eq!(before, None, "one pages at a time");
        Ok(map)
    }
    fn end(
        &self,
        op: IomapOp,
        map: &Iomap,
        pos: Pos,
        len: u64,
        out: Outcome,
    ) -> Result<(), ToyError> {
        let (begun, asked) = self.open.lock().unwrap().take().unwrap();
        assert_eq!(begun, pos);
        assert!(out.done <= len && len <= asked);
        self.ends.lock().unwrap().push(out);
        self.toy.end(op, map, pos, len, out)
    }
    fn is_current(&self, map: &Iomap) -> bool {
        self.toy.is_current(map)
    }
}

fn outcome(done: u64, stale: bool) -> Outcome {
    Outcome { done, stale }
}

#[test]
fn every_mapping_ends_with_what_was_really_done() {
    let toy = Setup::default().build();
    let watched = Watched::new(&toy);
    let at = Pos::new(0);
    // All of it, in two mappings.
    toy.max_map.store(2, std::sync::atomic::Ordering::Relaxed);
    let whole = apply(&watched, IomapOp::Write, at, 16_384, |_, _, len| {
        Ok(outcome(len, false))
    });
    assert_eq!((whole.unwrap(), watched.done()), (16_384, vec![8192, 8192]));
    // Nothing done ends it.
    let none = apply(&watched, IomapOp::Read, at, 16_384, |_, at, len| {
        Ok(outcome(if at.get() == 0 { len } else { 0 }, false))
    });
    assert_eq!((none.unwrap(), watched.done()), (8192, vec![8192, 0]));
    // Nothing done on a stale mapping does not.
    let mut round = 0;
    let stale = apply(&watched, IomapOp::Read, at, 8192, |_, _, len| {
        round += 1;
        Ok(outcome(if round == 3 { len } else { 0 }, round < 3))
    });
    assert_eq!((stale.unwrap(), watched.done()), (8192, vec![0, 0, 8192]));
    // An error ends it, and what came before counts.
    let failed = apply(&watched, IomapOp::Read, at, 16_384, |_, at, len| {
        if at.get() == 0 {
            return Ok(outcome(len, false));
        }
        Err(Stopped {
            done: 100,
            error: ToyError::NoSpace,
        })
    });
    assert_eq!(failed.unwrap_err().done, 8292);
    assert_eq!(watched.done(), [8192, 100]);
}

#[test]
fn writes_reads_and_zeroing_end_what_they_begin() {
    let toy = Setup::default().build();
    let watched = Watched::new(&toy);
    toy.max_map.store(3, std::sync::atomic::Ordering::Relaxed);
    let data = Rng(9).bytes(50_000);
    write(&watched, Pos::new(100), data.len(), &mut &data[..]).unwrap();
    assert_eq!(watched.done().iter().sum::<u64>(), 50_000);
    zero_range(&watched, Pos::new(5000), 30_000).unwrap();
    assert_eq!(watched.done().iter().sum::<u64>(), 30_000);
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    let mut buf = vec![0; 50_100];
    read(
        &watched,
        &toy.recent,
        Miss::Fill(&toy.readahead),
        Pos::ZERO,
        &mut buf[..],
    )
    .unwrap();
    assert!(!watched.done().is_empty());
    assert!(buf[100..5000] == data[..4900] && buf[35_000..] == data[34_900..]);
    assert!(buf[5000..35_000].iter().all(|&byte| byte == 0));
    seek(&watched, Whence::Hole, Pos::ZERO).unwrap();
    watched.done();
}

/// A block that a write covers in part is read only if the device has content that the cache has
/// not.
#[test]
fn only_written_blocks_at_the_edges_are_read() {
    let toy = Setup::default().build();
    let reads = |pos: u64, len: usize| {
        let before = toy.stats.snapshot().edge_reads;
        toy.write(pos, &vec![9; len]).unwrap();
        toy.stats.snapshot().edge_reads - before
    };
    toy.write(0, &[1; 10 * 4096]).unwrap();
    toy.sync().unwrap();
    toy.truncate(20 * 4096);
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    assert_eq!(reads(4096, 4096), 0, "covered wholly");
    assert_eq!(reads(3 * 4096 + 5, 100), 1, "one block, both edges in it");
    assert_eq!(reads(3 * 4096 + 500, 100), 0, "uptodate by now");
    assert_eq!(reads(5 * 4096 + 5, 2 * 4096), 2, "both edges");
    assert_eq!(reads(15 * 4096 + 5, 100), 0, "a hole");
    assert_eq!(reads(15 * 4096 + 500, 100), 0, "delayed");
    assert_eq!(reads(20 * 4096 + 7, 100), 0, "behind the end");
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    let mut expected = vec![1; 10 * 4096];
    expected[4096..8192].fill(9);
    expected[3 * 4096 + 5..3 * 4096 + 105].fill(9);
    expected[3 * 4096 + 500..3 * 4096 + 600].fill(9);
    expected[5 * 4096 + 5..7 * 4096 + 5].fill(9);
    assert!(toy.read(0, 10 * 4096) == expected);
    toy.sync().unwrap();
    toy.check_idle();
    assert!(toy.on_disk()[..10 * 4096] == expected);
}

/// With blocks smaller than a page, a file that grows over a block's end within one page asks for
/// the next block.
#[test]
fn growth_within_a_page_asks_for_each_block() {
    let toy = Setup {
        block: BlockSize::KIB1,
        ..Setup::default()
    }
    .build();
    for (size, blocks) in [(1000, 1), (1024, 1), (1025, 2), (3000, 3), (4096, 4)] {
        let old = toy.size();
        toy.write(old, &vec![1; usize::try_from(size - old).unwrap()])
            .unwrap();
        assert_eq!(toy.reserved(), blocks, "{size} bytes");
        toy.check_idle();
    }
    toy.sync().unwrap();
    toy.truncate(1000);
    toy.truncate(4096);
    assert_eq!(toy.state(2), None);
    toy.write(2100, b"x").unwrap();
    assert_eq!(
        toy.reserved(),
        1,
        "the folio is there, its third block's space is not"
    );
    toy.check_idle();
    toy.sync().unwrap();
    let mut expected = vec![0; 4096];
    expected[..1000].fill(1);
    expected[2100] = b'x';
    assert!(toy.on_disk() == expected);
}

/// Bytes stored past the end of the file, as through a memory mapping, never reach the device,
/// however often the folio is written.
#[test]
fn the_tail_is_zeroed_at_every_writeback() {
    for block in [BlockSize::KIB1, BlockSize::KIB4] {
        let toy = Setup {
            block,
            ..Setup::default()
        }
        .build();
        for size in [500, 700, 2900] {
            let old = toy.size();
            toy.write(old, &vec![1; usize::try_from(size - old).unwrap()])
                .unwrap();
            let folio = toy.pages.next(Pos::ZERO).unwrap();
            {
                let mut guard = toy.pages.lock(&folio).unwrap();
                let end = usize::try_from(size).unwrap();
                guard.bytes_mut()[end..4096].fill(0xbb);
            }
            toy.sync().unwrap();
            // The whole last block, as the device has it.
            let last = (size - 1) / block.bytes_u64();
            let Some(Block::Written(at)) = toy.state(last) else {
                panic!("written");
            };
            let mut on_device = vec![0x55; block.bytes()];
            let at = extant_units::DevOff::new(at * block.bytes_u64());
            toy.device.read_at(at, &mut on_device).unwrap();
            let inside = usize::try_from(size - last * block.bytes_u64()).unwrap();
            assert!(on_device[..inside].iter().all(|&byte| byte == 1));
            assert!(on_device[inside..].iter().all(|&byte| byte == 0), "{size}");
        }
    }
}

/// Folios wholly past the end are left to the truncation in progress.
#[test]
fn folios_behind_the_end_are_not_written() {
    let toy = Setup {
        order: 0,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[1; 5 * 4096]).unwrap();
    toy.set_size(6000);
    toy.sync().unwrap();
    let stats = toy.stats.snapshot();
    assert_eq!(
        stats.written_bytes,
        2 * 4096,
        "the block of the end is written whole"
    );
    assert_eq!(toy.pages.dirty_bytes(), 3 * 4096);
    assert_eq!(toy.disk_size(), 6000);
    // The truncation's second half.
    toy.pages.drop_range(
        &toy.pages.invalidate_lock().write(),
        Pos::new(6000),
        Pos::MAX,
    );
    assert_eq!(toy.pages.dirty_bytes(), 0);
}

/// Dirty data over a hole has no space, which takes a bug: nothing is written, the loss is
/// recorded, and the folio is clean.
#[test]
fn data_over_a_hole_is_dropped_and_recorded() {
    let toy = Setup::default().build();
    toy.write(0, &[1; 3 * 4096]).unwrap();
    toy.discard(Pos::new(4096), 4096);
    let reported = toy.pages.errors().cursor();
    toy.sync().unwrap();
    assert_eq!(
        toy.pages.errors().check(&reported),
        Some(WritebackFault::Io)
    );
    assert_eq!(toy.stats.snapshot().written_bytes, 2 * 4096);
    assert_eq!(toy.pages.dirty_bytes(), 0);
    assert_eq!(toy.state(1), None);
    // Before it can be dirty again it needs space again.
    toy.write(4096, &[2; 10]).unwrap();
    assert_eq!(toy.reserved(), 1);
    toy.check_idle();
    toy.sync().unwrap();
    assert_eq!(toy.on_disk()[4096..4106], [2; 10]);
}

/// A source that fails at one place, for good or for as many calls.
struct Broken<'a> {
    data: &'a [u8],
    at: usize,
    times: u32,
}

impl Source for Broken<'_> {
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        let mut len = into.len().min(self.data.len() - offset);
        if (offset..offset + len).contains(&self.at) && self.times > 0 {
            self.times -= 1;
            len = self.at - offset;
        }
        into[..len].copy_from_slice(&self.data[offset..offset + len]);
        len
    }
}

#[test]
fn a_short_copy_counts_only_into_uptodate_blocks() {
    let data = Rng(6).bytes(100_000);
    // Once: the chunk is halved and goes through.
    let toy = Setup::default().build();
    let mut source = Broken {
        data: &data,
        at: 70_001,
        times: 1,
    };
    let done = write(&*toy, Pos::ZERO, data.len(), &mut source).unwrap();
    assert_eq!(done, data.len());
    assert!(toy.read(0, data.len()) == data);

    // For good, into nothing: no byte of the block that could not be filled is part of the file.
    for (order, block) in [
        (9, BlockSize::KIB4),
        (0, BlockSize::KIB4),
        (9, BlockSize::KIB1),
    ] {
        let toy = Setup {
            order,
            block,
            ..Setup::default()
        }
        .build();
        let mut source = Broken {
            data: &data,
            at: 70_001,
            times: u32::MAX,
        };
        let done = write(&*toy, Pos::ZERO, data.len(), &mut source).unwrap();
        assert!(done <= 70_001 && done > 60_000, "{done}");
        assert_eq!(done % 4096, 0);
        assert_eq!(toy.size(), done as u64, "nothing behind it");
        assert_eq!(toy.reserved(), toy.size() / block.bytes_u64());
        toy.check_idle();
        toy.sync().unwrap();
        assert!(toy.on_disk() == data[..done]);
    }

    // Into cached bytes: all that came counts.
    let toy = Setup::default().build();
    toy.write(0, &[1; 100_000]).unwrap();
    let mut source = Broken {
        data: &data,
        at: 70_001,
        times: u32::MAX,
    };
    let done = write(&*toy, Pos::ZERO, data.len(), &mut source).unwrap();
    assert_eq!(done, 70_001);
    let mut expected = vec![1; 100_000];
    expected[..done].copy_from_slice(&data[..done]);
    assert!(toy.read(0, 100_000) == expected);
}

/// Bytes that a short copy left in uptodate blocks count, or the cache would show bytes that are
/// neither written nor dirty.
#[test]
fn a_short_copy_leaves_nothing_in_the_cache_that_does_not_count() {
    let toy = Setup {
        block: BlockSize::KIB1,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[1; 8192]).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    // Of two stored pages one block each is cached: the first of one, the last of the other.
    toy.write(0, &[1; 100]).unwrap();
    toy.write(7168, &[1; 100]).unwrap();
    toy.sync().unwrap();
    let data = [9; 8192];
    for (pos, fails_at, counted) in [(0, 1500, 1024), (4096, 3500, 3500)] {
        let mut source = Broken {
            data: &data,
            at: fails_at,
            times: u32::MAX,
        };
        let done = write(&*toy, Pos::new(pos), 4096, &mut source).unwrap();
        assert_eq!(done, counted);
        toy.check_idle();
    }
    toy.sync().unwrap();
    let cached = toy.read(0, 8192);
    assert!(cached[..1024] == [9; 1024] && cached[1024..4096] == [1; 3072]);
    assert!(cached[4096..7596] == [9; 3500] && cached[7596..] == [1; 596]);
    assert!(toy.on_disk() == cached);
}

/// A toy that is appended to, synced and evicted right after its size was read for the `at`th time.
struct Growing<'a> {
    toy: &'a Toy,
    looks: AtomicU32,
    at: u32,
}

impl IomapOps for Growing<'_> {
    type Error = ToyError;

    fn address_space(&self) -> &AddressSpace {
        self.toy.address_space()
    }
    fn device(&self) -> &dyn BlockDevice {
        self.toy.device()
    }
    fn counters(&self) -> &IomapCounters {
        self.toy.counters()
    }
    fn size(&self) -> u64 {
        let size = self.toy.size();
        if self.looks.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            self.toy.write(size, &[2; 1000]).unwrap();
            self.toy.sync().unwrap();
            self.toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
        }
        size
    }
    fn raise_size(&self, locked: FolioLocked<'_>, end: u64) {
        self.toy.raise_size(locked, end);
    }
    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        self.toy.begin(op, pos, len)
    }
    fn is_current(&self, map: &Iomap) -> bool {
        self.toy.is_current(map)
    }
}

/// A reader that read the size before an append does not take the appended bytes, which are on the
/// device by then, for bytes past the end.
#[test]
fn a_fill_keeps_what_was_appended_while_it_began() {
    // Three looks come before the folios are locked: afterwards an append waits.
    for at in 1..=3 {
        let toy = Setup::default().build();
        toy.write(0, &[1; 1000]).unwrap();
        toy.sync().unwrap();
        toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
        let ops = Growing {
            toy: &toy,
            looks: AtomicU32::new(0),
            at,
        };
        let miss = Miss::Fill(&toy.readahead);
        let mut buf = [0x55; 100];
        read(&ops, &toy.recent, miss, Pos::ZERO, &mut buf[..]).unwrap();
        assert_eq!(buf, [1; 100]);
        assert_eq!(toy.size(), 2000, "look {at}");
        assert!(toy.read(1000, 1000) == [2; 1000], "look {at}");
    }
}
