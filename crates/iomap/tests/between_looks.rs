//! Data that moves while a function looks: from the cache to the map, or into the file.

mod toy;

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_iomap::*;
use extant_pagecache::{AddressSpace, FolioLocked};
use extant_units::{BlockSize, Pos};
use toy::{Setup, Toy, ToyError};

/// A toy to which something is done beside each mapping.
struct Passing<'a>(&'a Toy, Moment, fn(&Toy));

enum Moment {
    BeforeMapping,
    /// After one that shows unwritten space.
    AfterUnwritten,
}

/// Data is written and leaves the cache.
fn leave(toy: &Toy) {
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
}

impl IomapOps for Passing<'_> {
    type Error = ToyError;

    fn address_space(&self) -> &AddressSpace {
        self.0.address_space()
    }
    fn device(&self) -> &dyn BlockDevice {
        self.0.device()
    }
    fn counters(&self) -> &IomapCounters {
        self.0.counters()
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn raise_size(&self, locked: FolioLocked<'_>, end: u64) {
        self.0.raise_size(locked, end);
    }
    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        let act = || (self.2)(self.0);
        if let Moment::BeforeMapping = self.1 {
            act();
        }
        let map = self.0.begin(op, pos, len)?;
        if let (Moment::AfterUnwritten, IomapKind::Unwritten(_)) = (&self.1, &map.kind) {
            act();
        }
        Ok(map)
    }
    fn is_current(&self, map: &Iomap) -> bool {
        self.0.is_current(map)
    }
}

/// A file of three blocks of ones in the cache, over unwritten space.
fn over_unwritten_space() -> Arc<Toy> {
    let toy = Setup::default().build();
    toy.write(0, &[1; 3 * 4096]).unwrap();
    let map = toy.map_blocks(Pos::ZERO, 3 * 4096).unwrap();
    assert!(matches!(map.kind, IomapKind::Unwritten(_)));
    toy
}

#[test]
fn data_that_leaves_the_cache_after_the_map_was_asked_is_zeroed() {
    let toy = over_unwritten_space();
    let changed = zero_range(
        &Passing(&toy, Moment::AfterUnwritten, leave),
        Pos::new(100),
        2 * 4096,
    )
    .unwrap();
    assert!(changed, "there was data");
    let mut expected = vec![1; 3 * 4096];
    expected[100..100 + 2 * 4096].fill(0);
    assert!(toy.read(0, 3 * 4096) == expected);
    toy.sync().unwrap();
    toy.check_idle();
    assert!(toy.on_disk() == expected);
}

#[test]
fn data_that_leaves_the_cache_after_the_map_was_asked_is_found() {
    for (whence, found) in [(Whence::Data, 4096 + 5), (Whence::Hole, 3 * 4096)] {
        let toy = over_unwritten_space();
        let at = seek(
            &Passing(&toy, Moment::AfterUnwritten, leave),
            whence,
            Pos::new(4096 + 5),
        )
        .unwrap();
        assert_eq!(at, Some(Pos::new(found)), "{whence:?}");
    }
}

/// If a log or a commit has to bring the data, blocks become written while it is in the cache
/// alone. A reader past the cache that found no folio before shows nothing of the device's.
#[test]
fn blocks_that_become_written_before_their_data_is_there_are_read_from_the_cache() {
    let toy = Setup::default().build();
    toy.truncate(4 * 4096);
    let write = |toy: &Toy| {
        if toy.state(1).is_none() {
            toy.write(4096, &[1; 2 * 4096]).unwrap();
            toy.map_blocks(Pos::new(4096), 2 * 4096).unwrap();
            toy.convert_early();
        }
    };
    let mut buf = [0x55; 2 * 4096];
    let (recent, miss) = (&toy.recent, Miss::Bypass(&toy.readahead));
    read(
        &Passing(&toy, Moment::BeforeMapping, write),
        recent,
        miss,
        Pos::new(4096),
        &mut buf[..],
    )
    .unwrap();
    assert!(
        buf.iter().all(|&byte| byte == 1),
        "{:x} {:x}",
        buf[0],
        buf[4096]
    );
}

/// Lost data stays cached over its hole until it is dropped. What is zeroed of it is zero all the
/// same, and needs no space.
#[test]
fn data_that_was_lost_is_zeroed_over_its_hole() {
    let toy = Setup::default().build();
    toy.write(0, &[1; 3 * 4096]).unwrap();
    toy.discard(Pos::new(4096), 4096);
    toy.sync().unwrap();
    assert_eq!(toy.state(1), None);
    assert!(!zero_range(&*toy, Pos::new(4096 + 100), 200).unwrap());
    assert!(toy.read(4096 + 100, 200) == [0; 200]);
    assert_eq!((toy.pages.dirty_bytes(), toy.reserved()), (0, 0));
    toy.check_idle();
}

/// The buffers of a vectored read, with a write to the file before the second one is filled.
struct Interrupted<'a> {
    toy: &'a Toy,
    bufs: [[u8; 2048]; 2],
    written: bool,
}

impl Target for Interrupted<'_> {
    fn len(&self) -> usize {
        self.bufs.len() * 2048
    }

    fn part(&mut self, offset: usize) -> &mut [u8] {
        if offset >= 2048 && !self.written {
            self.written = true;
            self.toy.write(0, &[1; 4096]).unwrap();
        }
        match self.bufs.get_mut(offset / 2048) {
            Some(buf) => &mut buf[offset % 2048..],
            None => &mut [],
        }
    }

    /// Changes cached bytes, with their folio locked: no write comes in between.
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bufs.as_flattened_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// A file of one page, four blocks, with nothing stored. The first two may be unwritten.
fn empty_page(unwritten: bool) -> Arc<Toy> {
    let toy = Setup {
        block: BlockSize::KIB1,
        ..Setup::default()
    }
    .build();
    toy.truncate(4096);
    if unwritten {
        toy.begin(IomapOp::Write, Pos::ZERO, 2048).unwrap();
        toy.map_blocks(Pos::ZERO, 2048).unwrap();
    }
    toy
}

/// A page is seen whole, also where nothing is cached and nothing stored: in a hole, and where one
/// kind of blocks that read as zero follows another.
#[test]
fn a_vectored_read_shows_a_page_as_it_is_at_one_moment() {
    for (unwritten, bypass) in [(false, false), (true, false), (false, true), (true, true)] {
        let toy = empty_page(unwritten);
        let mut target = Interrupted {
            toy: &toy,
            bufs: [[0x55; 2048]; 2],
            written: false,
        };
        let miss = match bypass {
            false => Miss::Fill(&toy.readahead),
            true => Miss::Bypass(&toy.readahead),
        };
        let done = read(&*toy, &toy.recent, miss, Pos::ZERO, &mut target).unwrap();
        assert_eq!(done, 4096);
        let bufs = target.bufs.as_flattened();
        let whole = bufs.iter().all(|&byte| byte == bufs[0]);
        assert!(whole, "unwritten {unwritten}, bypass {bypass}");
    }
}

#[test]
fn a_view_shows_a_page_as_it_is_at_one_moment() {
    let toy = empty_page(true);
    let write: fn(&Toy) = |toy| {
        toy.write(0, &[1; 4096]).unwrap();
    };
    let shown = view(
        &Passing(&toy, Moment::AfterUnwritten, write),
        &toy.readahead,
        Pos::ZERO,
        4096,
    )
    .unwrap();
    let bytes: Vec<u8> = shown.chunks().flatten().copied().collect();
    assert_eq!(bytes.len(), 4096);
    assert!(bytes.iter().all(|&byte| byte == bytes[0]));
}
