//! Crashes in operations that change sizes: sizes move after data, whichever operation moves them.
//!
//! Free space is junk before each test, and a crash is a copy of the device: of everything that was
//! written ([`Stage::after_a_crash`]), or of what was written before some flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Event, Fault, FaultyDevice, Image, Recorder, Request, RequestKind, Watchdog};
use extant_units::{Ino, Lblk, Pos};

use crate::config::{MountOptions, Tuning};
use crate::file::copy::{Side, copy_range};
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::{ReadMode, WriteAt, fallocate, fsync, read, truncate, write, write_direct};
use crate::state::inode::InodeRef;
use crate::state::map::{AllocateMode, MapState};
use crate::types::Cred;
use crate::types::FallocateMode::{PunchHole, ZeroRange};
use crate::types::error::Error;
use crate::volume::{Fs, credits};
use crate::{map, mount, namei};

/// No write fails.
const NONE: u64 = u64::MAX;

/// Writes to this byte of the device fail.
type Failing = Arc<AtomicU64>;

type Device = Recorder<MemoryDevice>;

/// A volume on a recorded device, whose free space is junk, with one file.
struct Stage {
    fs: Arc<Fs>,
    inode: InodeRef,
    dev: Arc<Device>,
    /// The device before it was mounted.
    base: Vec<u8>,
    failing: Failing,
    _limit: Watchdog,
}

impl Stage {
    fn new(mkfs: &str) -> Self {
        Self::tuned(mkfs, Tuning::default())
    }

    fn tuned(mkfs: &str, tuning: Tuning) -> Self {
        let limit = Watchdog::new(Duration::from_secs(240));
        let image = Image::of_mib(8).args(mkfs).junk().make().unwrap();
        let base = std::fs::read(image.path()).unwrap();
        let dev = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
        let failing = Arc::new(AtomicU64::new(NONE));
        let armed = failing.clone();
        let plan = move |request: Request<'_>| {
            let at = armed.load(Ordering::SeqCst);
            if request.kind == RequestKind::Write && request.offset.get() == at {
                return Fault::Fail(std::io::ErrorKind::Other);
            }
            Fault::Pass
        };
        let fs = mounted(Arc::new(FaultyDevice::new(dev.clone(), plan)), tuning);
        let root = fs.iget(Ino::ROOT).unwrap();
        let inode = namei::create(&fs, &root, b"file", 0o644, &Cred::root()).unwrap();
        drop(root);
        Self {
            fs,
            inode,
            dev,
            base,
            failing,
            _limit: limit,
        }
    }

    fn put(&self, pos: u64, bytes: &[u8]) {
        let at = WriteAt::Pos(pos);
        let (_, done) = write(&self.fs, &self.inode, None, at, bytes, &Cred::root()).unwrap();
        assert_eq!(done, bytes.len());
    }

    fn sync(&self) {
        fsync(&self.fs, &self.inode, None, false).unwrap();
    }

    fn state(&self, lblk: u32) -> MapState {
        let map = map::lookup(&self.fs, &self.inode, Lblk::new(lblk), 1);
        map.unwrap().state
    }

    /// Gives `count` blocks from `first` on places that count as written, full of junk, as a crash
    /// between a conversion and its size may leave them.
    fn leave_written(&self, first: u32, count: u32) {
        let mut h = self.fs.start(credits::allocate(&self.fs)).unwrap();
        let (lblk, how) = (Lblk::new(first), AllocateMode::default());
        let made = map::allocate(&self.fs, &mut h, &self.inode, lblk, count, how).unwrap();
        assert_eq!(made.len, count);
    }

    /// The file as a crash at this moment leaves it.
    fn after_a_crash(&self) -> Vec<u8> {
        contents(&self.dev.inner().to_bytes())
    }

    /// The device as a power cut leaves it of which nothing arrived that no flush has covered.
    fn durable(&self) -> Vec<u8> {
        let events = self.dev.events();
        let covered = events.iter().filter_map(|event| match event {
            Event::Flush { covers } => Some(*covers),
            _ => None,
        });
        bytes_after(&self.base, &events[..covered.max().unwrap_or(0)])
    }

    fn end(self) {
        let Self { fs, inode, .. } = self;
        drop(inode);
        mount::unmount(&fs).unwrap();
    }
}

fn mounted(dev: Arc<dyn BlockDevice>, tuning: Tuning) -> Arc<Fs> {
    let tuning = Tuning {
        page_cache_bytes: Some(32 << 20),
        flushers: 0,
        ..tuning
    };
    let options = MountOptions::parse("commit=3000").unwrap();
    mount::mount(dev, options, tuning).unwrap()
}

/// Bytes of a device that held `base` and got `events`.
fn bytes_after(base: &[u8], events: &[Event]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for event in events {
        if let Event::Write { offset, data } = event {
            let at = usize::try_from(offset.get()).unwrap();
            bytes[at..at + data.len()].copy_from_slice(data);
        }
    }
    bytes
}

/// Mounts a copy of `device` and shows its file to `look`.
fn with_file<R>(device: &[u8], look: impl FnOnce(&Arc<Fs>, &InodeRef) -> R) -> R {
    let memory = Arc::new(MemoryDevice::from_bytes(device));
    let fs = mounted(memory, Tuning::default());
    let root = fs.iget(Ino::ROOT).unwrap();
    let inode = namei::lookup(&fs, &root, b"file").unwrap();
    let result = look(&fs, &inode);
    drop((root, inode));
    mount::unmount(&fs).unwrap();
    result
}

fn contents(device: &[u8]) -> Vec<u8> {
    with_file(device, |fs, inode| {
        let mut bytes = vec![0x55; usize::try_from(inode.size()).unwrap()];
        let done = read(fs, inode, None, ReadMode::Buffered, 0, &mut bytes).unwrap();
        assert_eq!(done, bytes.len());
        bytes
    })
}

/// A range operation that takes away data moves the size on disk up to itself. Before that,
/// whatever the size passes is on the device where it has a place.
#[test]
fn a_range_operation_moves_no_size_over_data_that_has_not_arrived() {
    for mode in [PunchHole, ZeroRange { keep_size: true }] {
        let stage = Stage::new("-b 1024");
        stage.put(0, &[1; 3000]);
        stage.sync();
        stage.leave_written(10, 20);
        stage.put(3000, &[2; 30 * 1024 - 3000]);
        assert_eq!(stage.inode.disk_size(), 3000);
        let range = (20 * 1024, 1024);
        fallocate(&stage.fs, &stage.inode, mode, range, &Cred::root()).unwrap();
        stage.fs.journal.force_commit().unwrap();
        let found = stage.after_a_crash();
        // Up to the end of the range, or of its folio, which was written as a whole.
        assert!(found.len() >= 21 * 1024, "{mode:?}: the test sees nothing");
        assert!(found[..3000] == [1; 3000], "{mode:?}");
        assert!(found[3000..3072] == [2; 72], "{mode:?}: the old last block");
        // Blocks without a place may show zeros.
        assert!(found[3072..10_240].iter().all(|byte| [0, 2].contains(byte)));
        assert!(found[10_240..20_480] == [2; 10_240], "{mode:?}: old bytes");
        assert!(found[20_480..21_504] == [0; 1024], "{mode:?}");
        assert!(found[21_504..].iter().all(|byte| *byte == 2), "{mode:?}");
        stage.end();
    }
}

/// A direct write makes the file longer while data before it is in the cache alone: that is written
/// first.
#[test]
fn a_direct_write_moves_no_size_over_data_that_only_the_cache_has() {
    let stage = Stage::new("-b 1024");
    stage.put(0, &[1; 3000]);
    stage.sync();
    stage.put(3000, &[2; 8192 - 3000]);
    assert_eq!(stage.inode.disk_size(), 3000);
    let (at, cred) = (WriteAt::Pos(8192), Cred::root());
    write_direct(&stage.fs, &stage.inode, None, at, &[3; 4096], &cred).unwrap();
    assert_eq!(stage.fs.stats.direct_fallbacks.get(), 0);
    stage.fs.journal.force_commit().unwrap();
    let expected = [&[1; 3000][..], &[2; 8192 - 3000], &[3; 4096]].concat();
    assert!(stage.after_a_crash() == expected);
    stage.end();
}

/// So does a write of a cache above, which goes to the device at once.
#[test]
fn a_write_through_moves_no_size_over_data_that_only_the_cache_has() {
    let stage = Stage::new("-b 1024");
    stage.put(0, &[1; 3000]);
    stage.sync();
    stage.put(3000, &[2; 8192 - 3000]);
    assert_eq!(stage.inode.disk_size(), 3000);
    let (at, cred) = (WriteAt::UpperWriteback(8192), Cred::root());
    write(&stage.fs, &stage.inode, None, at, &[3; 128 << 10], &cred).unwrap();
    assert!(stage.fs.files.stats.snapshot().uncached_writes > 0);
    stage.fs.journal.force_commit().unwrap();
    let expected = [&[1; 3000][..], &[2; 8192 - 3000], &[3; 128 << 10]].concat();
    assert!(stage.after_a_crash() == expected);
    stage.end();
}

/// A copy with holes, into the end of a file and past it, moves the size on disk over no data that
/// only the cache has: neither what was there nor what it has copied itself.
#[test]
fn a_copy_moves_no_size_over_data_that_only_the_cache_has() {
    let stage = Stage::new("-b 1024");
    let root = stage.fs.iget(Ino::ROOT).unwrap();
    let from = namei::create(&stage.fs, &root, b"from", 0o644, &Cred::root()).unwrap();
    // A hole, data, a hole, data, a hole.
    let source = [
        &[0; 4096][..],
        &[3; 4096],
        &[0; 8192],
        &[4; 4096],
        &[0; 4096],
    ]
    .concat();
    let put = |pos: u64, bytes: &[u8]| {
        let at = WriteAt::Pos(pos);
        write(&stage.fs, &from, None, at, bytes, &Cred::root()).unwrap()
    };
    put(4096, &[3; 4096]);
    put(16_384, &[4; 4096]);
    truncate(&stage.fs, &from, 24_576, &Cred::root()).unwrap();
    stage.put(0, &[1; 3000]);
    stage.sync();
    stage.put(3000, &[2; 16_384 - 3000]);
    assert_eq!(stage.inode.disk_size(), 3000);
    let side = |inode, pos| Side {
        inode,
        open: None,
        pos,
    };
    let (source_side, target) = (side(&from, 0), side(&stage.inode, 8192));
    let done = copy_range(&stage.fs, &source_side, &target, 1 << 20, &Cred::root());
    assert_eq!(done.unwrap(), 24_576);
    stage.fs.journal.force_commit().unwrap();
    let expected = [&[1; 3000][..], &[2; 8192 - 3000], &source].concat();
    assert!(stage.after_a_crash() == expected);
    drop((root, from));
    stage.end();
}

/// Data that could not be written at the old end of the file leaves the size on disk as it is:
/// data behind it that did arrive counts as lost with it.
#[test]
fn data_behind_a_lost_old_end_does_not_arrive() {
    let stage = Stage::new("-b 1024");
    stage.put(0, &[1; 3000]);
    stage.sync();
    let cx = FileContext::new(&stage.fs, &stage.inode);
    let map = map::lookup(&stage.fs, &stage.inode, Lblk::new(2), 1).unwrap();
    let place = cx.to_iomap(&map).unwrap().device_at(Pos::new(2048));
    stage.put(3000, &[2; 20_000 - 3000]);
    stage.failing.store(place.unwrap().get(), Ordering::SeqCst);
    let before = stage.fs.files.stats.snapshot();
    let told = fsync(&stage.fs, &stage.inode, None, false).unwrap_err();
    assert!(matches!(told, Error::Io(_)), "{told}");
    stage.failing.store(NONE, Ordering::SeqCst);
    let after = stage.fs.files.stats.snapshot();
    assert_eq!(after.failed_ioends - before.failed_ioends, 1);
    assert!(after.ioends - before.ioends > 1, "the rest arrived");
    assert_eq!(stage.inode.disk_size(), 3000);
    assert!(!matches!(stage.state(3), MapState::Written(_)));
    stage.fs.journal.force_commit().unwrap();
    assert!(stage.after_a_crash() == [1; 3000]);
    // A sync or unmount tells it once more.
    crate::file::writeback_all_files(&stage.fs).unwrap_err();
    stage.end();
}

/// A truncation that a crash interrupts between any two of its transactions is finished by the next
/// mount: the size and the mark as an orphan become durable together.
#[test]
fn j30_a_truncation_cut_short_anywhere_is_finished() {
    let tuning = Tuning {
        commit_each_handle: true,
        ..Tuning::default()
    };
    let stage = Stage::tuned("-b 1024", tuning);
    stage.put(0, &[1; 40 << 10]);
    stage.sync();
    let begin = stage.dev.position();
    truncate(&stage.fs, &stage.inode, 10 << 10, &Cred::root()).unwrap();
    stage.fs.journal.force_commit().unwrap();
    let events = stage.dev.events();
    let mut short = 0;
    for (at, event) in events.iter().enumerate().skip(begin) {
        let Event::Flush { .. } = event else { continue };
        let state = bytes_after(&stage.base, &events[..=at]);
        let device = Arc::new(MemoryDevice::from_bytes(&state));
        let report = extant_check::check(device, &extant_check::CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "event {at}: {:?}", report.findings);
        let size = with_file(&state, |fs, inode| {
            let end = map::last_end(fs, inode).unwrap();
            assert_eq!(end, inode.size() >> 10, "event {at}: blocks behind the end");
            inode.size()
        });
        short += u32::from(size == 10 << 10);
    }
    assert!(short >= 2, "{short} states between the transactions");
    stage.end();
}

/// Every event that wrote `data`, and all before it, is covered by a later flush.
fn is_flushed(events: &[Event], data: &[u8]) -> bool {
    let is_it =
        |event: &Event| matches!(event, Event::Write { data: written, .. } if **written == *data);
    let last = events.iter().rposition(is_it).expect("it was written");
    events
        .iter()
        .any(|event| matches!(event, Event::Flush { covers } if *covers > last))
}

/// Data that went over its own old bytes changes nothing that a transaction holds: fdatasync
/// flushes the device itself.
#[test]
fn an_overwrite_after_a_remount_is_durable_with_fdatasync() {
    let stage = Stage::new("-b 4096");
    stage.put(0, &[1; 16_384]);
    stage.sync();
    let dev = stage.dev.clone();
    let base = stage.base.clone();
    stage.end();
    let fs = mounted(dev.clone(), Tuning::default());
    let root = fs.iget(Ino::ROOT).unwrap();
    let inode = namei::lookup(&fs, &root, b"file").unwrap();
    drop(root);
    let before = fs.journal.stats().commits;
    let cred = Cred::root();
    write(&fs, &inode, None, WriteAt::Pos(4096), &[9; 4096], &cred).unwrap();
    fsync(&fs, &inode, None, true).unwrap();
    assert_eq!(fs.journal.stats().commits, before, "no transaction helped");
    let events = dev.events();
    assert!(is_flushed(&events, &[9; 4096]));
    let covered = events.iter().filter_map(|event| match event {
        Event::Flush { covers } => Some(*covers),
        _ => None,
    });
    let found = contents(&bytes_after(&base, &events[..covered.max().unwrap()]));
    assert!(found == [[1; 4096], [9; 4096], [1; 4096], [1; 4096]].concat());
    drop(inode);
    mount::unmount(&fs).unwrap();
}

/// Without a journal a crash leaves work for e2fsck, and what was fsynced is there after that.
#[test]
fn without_a_journal_an_fsync_is_durable() {
    let stage = Stage::new("-b 1024 -O ^has_journal");
    assert!(!stage.fs.journal.has_log());
    stage.put(0, &[1; 20_000]);
    stage.sync();
    let check = |expected: &[u8]| {
        let image = Image::of_bytes(&stage.durable()).unwrap();
        image.fsck_repair().unwrap();
        let repaired = std::fs::read(image.path()).unwrap();
        assert!(contents(&repaired) == expected);
    };
    check(&[1; 20_000]);
    // In place, with nothing else to store; and growth.
    stage.put(1024, &[2; 1024]);
    fsync(&stage.fs, &stage.inode, None, true).unwrap();
    check(&[&[1; 1024][..], &[2; 1024], &[1; 20_000 - 2048]].concat());
    stage.put(20_000, &[3; 20_000]);
    stage.sync();
    let all = [
        &[1; 1024][..],
        &[2; 1024],
        &[1; 20_000 - 2048],
        &[3; 20_000],
    ]
    .concat();
    check(&all);
    stage.end();
}
