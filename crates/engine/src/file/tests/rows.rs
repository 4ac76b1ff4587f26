//! Rows of the seeds that only show from the inside; `docs/SEEDS.md` has the whole table.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_disk::inode::InodeFlags;
use extant_iomap::{IomapOp, IomapOps, Source, WritebackControl};
use extant_lock_order::Rank;
use extant_testkit::Image;
use extant_units::{Blocks, Lblk, Pos};

use crate::api::inspect::verifier::Verifier;
use crate::config::{MountOptions, Tuning};
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::writeback::writeback_range;
use crate::file::{ReadMode, WriteAt, data_path, fallocate, fsync, read, truncate, write};
use crate::state::alloc::{AllocRequest, Run};
use crate::state::inode::InodeRef;
use crate::state::map::{AllocateMode, MapState};
use crate::types::error::Error;
use crate::types::{Cred, FallocateMode};
use crate::volume::{Fs, credits};
use crate::xattr::privileges::calls;
use crate::{alloc, map, mount, namei};

fn mounted(args: &str, order: u8) -> Arc<Fs> {
    mounted_with(args, order, "")
}

fn mounted_with(args: &str, order: u8, options: &str) -> Arc<Fs> {
    let image = Image::of_mib(32).args(args).make().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let tuning = Tuning {
        page_cache_bytes: Some(64 << 20),
        max_folio_order: order,
        // Nothing is written behind a test's back.
        flushers: 0,
        ..Tuning::default()
    };
    let options = MountOptions::parse(&format!("commit=3000,{options}")).unwrap();
    mount::mount(Arc::new(MemoryDevice::from_bytes(&bytes)), options, tuning).unwrap()
}

fn file(fs: &Arc<Fs>, name: &str) -> InodeRef {
    let root = fs.iget(extant_units::Ino::ROOT).unwrap();
    namei::create(fs, &root, name.as_bytes(), 0o644, &Cred::root()).unwrap()
}

fn put(fs: &Arc<Fs>, inode: &InodeRef, pos: u64, data: &[u8]) {
    let (_, done) = write(fs, inode, None, WriteAt::Pos(pos), data, &Cred::root()).unwrap();
    assert_eq!(done, data.len());
}

fn bytes(fs: &Arc<Fs>, inode: &InodeRef, pos: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0x55; len];
    let done = read(fs, inode, None, ReadMode::Buffered, pos, &mut buf).unwrap();
    buf.truncate(done);
    buf
}

fn check(fs: &Arc<Fs>, synced: bool) {
    Verifier::default().check(fs, synced).unwrap();
}

/// Writes to a new file until nothing fits any more; root's reserve goes as well.
fn fill_up(fs: &Arc<Fs>, name: &str) -> InodeRef {
    let inode = file(fs, name);
    let (mut pos, mut len) = (0, 1 << 20);
    while len >= 1024 {
        match write(
            fs,
            &inode,
            None,
            WriteAt::Pos(pos),
            &vec![3; len],
            &Cred::root(),
        ) {
            Ok((_, done)) => pos += done as u64,
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    fsync(fs, &inode, None, false).unwrap();
    inode
}

/// A file of `blocks` unwritten blocks in one extent.
fn unwritten(fs: &Arc<Fs>, name: &str, blocks: u32) -> InodeRef {
    let inode = file(fs, name);
    let size = u64::from(blocks) * fs.layout.block_size.bytes_u64();
    truncate(fs, &inode, size, &Cred::root()).unwrap();
    let mut h = fs.start(credits::allocate(fs)).unwrap();
    let how = AllocateMode {
        unwritten: true,
        ..AllocateMode::default()
    };
    let made = map::allocate(fs, &mut h, &inode, Lblk::ZERO, blocks, how).unwrap();
    assert_eq!(made.len, blocks);
    inode
}

/// Writes every other block of a file and has it written back: each conversion splits an extent.
fn write_every_other(
    fs: &Arc<Fs>,
    inode: &InodeRef,
    blocks: u64,
) -> crate::types::error::Result<()> {
    let bs = fs.layout.block_size.bytes();
    for number in (0..blocks).step_by(2) {
        put(fs, inode, number * bs as u64, &vec![7; bs]);
    }
    fsync(fs, inode, None, false)
}

#[test]
fn iomap_11_a_conversion_on_a_full_volume_splits_with_the_pool() {
    let fs = mounted("-b 1024", 9);
    let split = unwritten(&fs, "split", 1000);
    let later = unwritten(&fs, "later", 1000);
    let filler = fill_up(&fs, "filler");
    let counts = &fs.alloc.counts;
    let pool = counts.available();
    assert_eq!(counts.available_to_users(), Blocks::ZERO);
    assert!(
        alloc::reserve(&fs, &split, Blocks::ONE, true).is_err(),
        "full for root as well"
    );
    write_every_other(&fs, &split, 1000).unwrap();
    let used = pool.get() - counts.available().get();
    assert!(used >= 1000 / 84, "{used} nodes for 1000 extents");
    for number in [0, 1, 500, 998, 999] {
        let expected = if number % 2 == 0 { 7 } else { 0 };
        assert_eq!(
            bytes(&fs, &split, number * 1024, 1024),
            vec![expected; 1024]
        );
    }
    check(&fs, true);

    // Best effort: where the pool is empty too, the conversion fails and fsync says so. What was
    // not converted reads as zeros.
    let mut h = fs.start(credits::allocate(&fs) * 4).unwrap();
    let mut taken = Vec::new();
    while !counts.available().is_zero() && taken.len() < 12 {
        let request = AllocRequest {
            pool: true,
            ..AllocRequest::new(fs.layout.first_data_block, counts.available())
        };
        taken.push(alloc::allocate_blocks(&fs, &mut h, &request).unwrap());
    }
    drop(h);
    assert!(counts.available().is_zero());
    let told = write_every_other(&fs, &later, 1000).unwrap_err();
    assert!(matches!(told, Error::Io(_)), "{told}");
    assert!(!later.has_dirty_data());
    fsync(&fs, &later, None, false).unwrap();
    check(&fs, true);
    // With space the same goes through.
    truncate(&fs, &filler, 0, &Cred::root()).unwrap();
    fs.journal.force_commit().unwrap();
    write_every_other(&fs, &later, 1000).unwrap();
    crate::file::drop_data_for_eviction(&fs, &later);
    assert_eq!(
        bytes(&fs, &later, 998 * 1024, 2048),
        [[7; 1024], [0; 1024]].concat()
    );
    let mut h = fs.start(credits::remove(&fs)).unwrap();
    for run in taken {
        alloc::free_blocks(&fs, &mut h, run, false).unwrap();
    }
    drop(h);
    // A sync of everything reports it, once, as well.
    crate::file::writeback_all_files(&fs).unwrap_err();
    mount::unmount(&fs).unwrap();
}

/// A source that has the first block written back while the second is copied.
struct Racing<'a> {
    fs: &'a Arc<Fs>,
    inode: &'a InodeRef,
    data: &'a [u8],
    races: u32,
}

impl Source for Racing<'_> {
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        if offset >= 4096 && self.races > 0 {
            self.races -= 1;
            let (fs, inode) = (self.fs, self.inode);
            let first = WritebackControl::integrity(Pos::ZERO, Pos::new(4096));
            std::thread::scope(|scope| {
                scope.spawn(|| writeback_range(fs, inode, first).unwrap());
            });
        }
        (&*self.data).copy_at(offset, into)
    }
}

#[test]
fn iomap_12_a_write_maps_again_when_writeback_was_faster() {
    let fs = mounted("-b 4096", 0);
    let inode = file(&fs, "raced");
    let data: Vec<u8> = (0..10 * 4096u32)
        .map(|at| at.to_le_bytes()[0] | 1)
        .collect();
    let cx = FileContext::new(&fs, &inode);
    let before = (fs.files.stats.snapshot(), map::sequence(&inode));
    let mut source = Racing {
        fs: &fs,
        inode: &inode,
        data: &data,
        races: 1,
    };
    let done = data_path::write(&cx, Pos::ZERO, data.len(), &mut source).unwrap();
    assert_eq!(done, data.len());
    let after = fs.files.stats.snapshot();
    assert_eq!(after.stale_retries - before.0.stale_retries, 1);
    assert_eq!(after.begins - before.0.begins, 2);
    assert!(map::sequence(&inode) > before.1);
    check(&fs, false);
    fsync(&fs, &inode, None, false).unwrap();
    check(&fs, true);
    crate::file::drop_data_for_eviction(&fs, &inode);
    assert!(bytes(&fs, &inode, 0, data.len()) == data);
    // Reading, and overwriting what has its place, is no change.
    let quiet = map::sequence(&inode);
    put(&fs, &inode, 8192, &[1; 8192]);
    assert_eq!(map::sequence(&inode), quiet);
    fsync(&fs, &inode, None, false).unwrap();
    assert_eq!(
        map::sequence(&inode),
        quiet,
        "an overwrite converts nothing"
    );
    mount::unmount(&fs).unwrap();
}

#[test]
fn iomap_14_what_cannot_be_mapped_is_refused_by_its_reason() {
    let fs = mounted("-b 1024", 9);
    let inode = file(&fs, "f");
    put(&fs, &inode, 0, &[1; 100]);
    let cx = FileContext::new(&fs, &inode);
    for op in [
        IomapOp::Read,
        IomapOp::Report,
        IomapOp::Zero,
        IomapOp::Write,
    ] {
        let past = Pos::new(u64::from(u32::MAX) << 10);
        let refused = cx.begin(op, past, 10).unwrap_err();
        assert!(matches!(refused, Error::Invalid), "{op:?}: {refused}");
        assert_eq!(refused.errno(), 22);
        assert!(cx.begin(op, Pos::new(past.get() - 1), 10).is_ok() || op == IomapOp::Write);
    }
    let mut inline = FileContext::new(&fs, &inode);
    inline.flags |= InodeFlags::INLINE_DATA;
    assert_eq!(
        inline
            .begin(IomapOp::Read, Pos::ZERO, 10)
            .unwrap_err()
            .errno(),
        34
    );
    fs.fault.shut_down(&fs, "a test");
    let refused = cx.begin(IomapOp::Read, Pos::ZERO, 10).unwrap_err();
    assert!(matches!(refused, Error::Shutdown(_)), "{refused}");
    assert_eq!(refused.errno(), 5);
    let mut buf = [0; 10];
    let refused = read(&fs, &inode, None, ReadMode::Buffered, 0, &mut buf).unwrap_err();
    assert_eq!(refused.errno(), 5);
}

#[test]
fn iomap_15_a_short_write_keeps_the_promises_it_needs() {
    let whole = 2 << 20;
    for (args, order, old) in [
        ("-b 1024", 9, 0),
        ("-b 4096", 9, 0),
        ("-b 4096", 0, 0),
        // Into the hole of a file that is as long already.
        ("-b 1024", 9, whole),
        ("-b 4096", 9, whole),
    ] {
        let fs = mounted(args, order);
        let bs = fs.layout.block_size.bytes_u64();
        let inode = file(&fs, "short");
        truncate(&fs, &inode, old, &Cred::root()).unwrap();
        let cx = FileContext::new(&fs, &inode);
        // Nothing at all: nothing stays, wherever in a block that was to begin.
        for pos in [0, 100] {
            let done = data_path::write(&cx, Pos::new(pos), 1 << 20, &mut &[][..]).unwrap();
            assert_eq!(
                (done, fs.alloc.counts.reserved_blocks().get()),
                (0, 0),
                "at {pos}"
            );
        }
        let done = data_path::write(&cx, Pos::ZERO, 2 << 20, &mut &[1; 5000][..]).unwrap();
        assert!((4096..=5000).contains(&done), "{done}");
        assert_eq!(inode.size(), old.max(done as u64));
        let reserved = fs.alloc.counts.reserved_blocks().get();
        assert_eq!(reserved, (done as u64).div_ceil(bs));
        check(&fs, false);
        // The folio is larger than what has space: a write behind that has to ask, also when the
        // rest was read meanwhile.
        truncate(&fs, &inode, whole, &Cred::root()).unwrap();
        assert_eq!(bytes(&fs, &inode, 4096, 1 << 19).len(), 1 << 19);
        put(&fs, &inode, 500_000, &[2; 100]);
        check(&fs, false);
        fsync(&fs, &inode, None, false).unwrap();
        assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0);
        check(&fs, true);
        crate::file::drop_data_for_eviction(&fs, &inode);
        let around = [&[0][..], &[2; 100], &[0]].concat();
        assert_eq!(bytes(&fs, &inode, 499_999, 102), around);
        mount::unmount(&fs).unwrap();
    }
}

/// Reserved blocks may have been freed by a transaction that is not durable: writeback waits for
/// it, and loses nothing.
#[test]
fn promises_on_freed_space_are_kept_with_the_help_of_a_commit() {
    for options in ["", "nobuffered_iomap", "nobuffered_iomap,dioread_lock"] {
        let fs = mounted_with("-b 1024", 9, options);
        let full = fill_up(&fs, "full");
        truncate(&fs, &full, 0, &Cred::root()).unwrap();
        let inode = file(&fs, "next");
        let before = fs.stats.space_commits.get();
        // No write is cut short for want of space that a commit brings back.
        let data = vec![5; 20 << 20];
        for (at, bytes) in (0..).step_by(1 << 16).zip(data.chunks(1 << 16)) {
            let cred = Cred::root();
            let (_, done) = write(&fs, &inode, None, WriteAt::Pos(at), bytes, &cred).unwrap();
            assert_eq!(done, bytes.len(), "{options}: at {at}");
        }
        fsync(&fs, &inode, None, false).unwrap();
        assert!(fs.stats.space_commits.get() > before, "{options}");
        check(&fs, true);
        crate::file::drop_data_for_eviction(&fs, &inode);
        assert!(bytes(&fs, &inode, 0, 20 << 20) == data);
        mount::unmount(&fs).unwrap();
    }
}

/// Space that a bug reserved twice, or that damage took away, is told as data lost; nothing stays
/// reserved or dirty.
#[test]
fn a_promise_that_cannot_be_kept_is_told_and_given_up() {
    for options in ["", "nobuffered_iomap", "nobuffered_iomap,dioread_lock"] {
        lose_promised(options);
    }
}

fn lose_promised(options: &str) {
    let fs = mounted_with("-b 1024", 9, options);
    let inode = file(&fs, "lost");
    put(&fs, &inode, 0, &[5; 300_000]);
    // All that is free goes elsewhere, behind the counters' back.
    let counts = &fs.alloc.counts;
    let mut stolen = Vec::new();
    let mut h = fs.start(fs.journal.max_credits() / 2).unwrap();
    while let Ok(run) = {
        let request = AllocRequest {
            pool: true,
            reserved: true,
            ..AllocRequest::new(fs.layout.first_data_block, Blocks::new(8192))
        };
        alloc::allocate_blocks(&fs, &mut h, &request)
    } {
        stolen.push(run);
    }
    drop(h);
    let told = fsync(&fs, &inode, None, false).unwrap_err();
    assert!(matches!(told, Error::Io(_)), "{told}");
    assert!(!inode.has_dirty_data());
    assert_eq!(counts.reserved_blocks().get(), 0);
    assert_eq!(inode.core.read().disk_size, 0, "no size for what is lost");
    let state = map::lookup(&fs, &inode, Lblk::ZERO, 1).unwrap().state;
    assert_eq!(state, MapState::Hole);
    fsync(&fs, &inode, None, false).unwrap();
    let mut h = fs.start(credits::remove(&fs)).unwrap();
    for run in stolen {
        alloc::free_blocks(&fs, &mut h, run, false).unwrap();
    }
    drop(h);
    fs.journal.force_commit().unwrap();
    put(&fs, &inode, 0, &[6; 300_000]);
    fsync(&fs, &inode, None, false).unwrap();
    crate::file::writeback_all_files(&fs).unwrap_err();
    mount::unmount(&fs).unwrap();
}

/// Takes what is free and not reserved, the pool included.
fn drain(fs: &Fs) -> Vec<Run> {
    let counts = &fs.alloc.counts;
    let mut h = fs.start(fs.journal.max_credits() / 2).unwrap();
    let mut taken = Vec::new();
    while !counts.available().is_zero() && taken.len() < 40 {
        let request = AllocRequest {
            pool: true,
            ..AllocRequest::new(fs.layout.first_data_block, counts.available())
        };
        taken.push(alloc::allocate_blocks(fs, &mut h, &request).unwrap());
    }
    assert!(counts.available().is_zero());
    taken
}

/// Data has its reservation, but the node of the tree that its place would be noted in finds no
/// block, not even in the pool: what cannot be noted is lost and told, and everything that had been
/// reserved for it can be used again.
#[test]
fn without_a_block_for_the_tree_data_is_lost_and_its_promise_given_back() {
    for options in ["", "nobuffered_iomap", "nobuffered_iomap,dioread_lock"] {
        let fs = mounted_with("-b 1024", 9, options);
        let inode = file(&fs, "sparse");
        for number in 0..20 {
            put(&fs, &inode, number * 2048, &[7; 1024]);
        }
        let counts = &fs.alloc.counts;
        assert_eq!(counts.reserved_blocks().get(), 20);
        let taken = drain(&fs);
        let told = fsync(&fs, &inode, None, false).unwrap_err();
        assert!(matches!(told, Error::Io(_)), "{options}: {told}");
        assert!(!inode.has_dirty_data());
        assert_eq!(counts.reserved_blocks().get(), 0);
        fsync(&fs, &inode, None, false).unwrap();
        check(&fs, true);
        crate::file::drop_data_for_eviction(&fs, &inode);
        let there = |number: u64| bytes(&fs, &inode, number * 2048, 1024);
        let blocks: Vec<_> = (0..20)
            .map(there)
            .filter(|block| !block.is_empty())
            .collect();
        let arrived = blocks.iter().filter(|block| block[0] == 7).count();
        // The root has room for four; the first that needs a node is lost, and what was reserved
        // for it becomes the node.
        assert!((4..20).contains(&arrived), "{options}: {arrived} of 20");
        let whole = |block: &Vec<u8>| block.iter().all(|byte| *byte == block[0]);
        assert!(blocks.iter().all(whole));
        let mut h = fs.start(credits::remove(&fs)).unwrap();
        for run in taken {
            alloc::free_blocks(&fs, &mut h, run, false).unwrap();
        }
        drop(h);
        fs.journal.force_commit().unwrap();
        for number in 0..20 {
            put(&fs, &inode, number * 2048, &[8; 1024]);
        }
        fsync(&fs, &inode, None, false).unwrap();
        check(&fs, true);
        crate::file::drop_data_for_eviction(&fs, &inode);
        assert!((0..20).all(|number| bytes(&fs, &inode, number * 2048, 1024) == [8; 1024]));
        crate::file::writeback_all_files(&fs).unwrap_err();
        mount::unmount(&fs).unwrap();
    }
}

/// A flusher holds no lock of the file: its way may have changed while it waited for the pass. It
/// goes on by the new way.
#[test]
fn a_flusher_that_waited_takes_the_way_that_the_file_has_then() {
    use crate::config::BufferedPath::{BufferHead, Iomap};
    for (options, to) in [("", BufferHead), ("nobuffered_iomap", Iomap)] {
        let fs = mounted_with("-b 1024", 9, options);
        let inode = file(&fs, "moved");
        put(&fs, &inode, 0, &[1; 5000]);
        let flusher = FileContext::new(&fs, &inode);
        crate::file::set_buffered_path(&fs, &inode, to).unwrap();
        put(&fs, &inode, 100_000, &[2; 5000]);
        let maps = || {
            (
                fs.files.stats.snapshot().map_calls,
                fs.files.buffers.snapshot().extent_maps,
            )
        };
        let before = maps();
        let all = WritebackControl::integrity(Pos::ZERO, Pos::MAX);
        crate::file::writeback::writeback_range_only(&flusher, all).unwrap();
        assert!(!inode.has_dirty_data());
        let after = maps();
        assert_eq!(after.0 > before.0, to == Iomap, "{before:?} {after:?}");
        assert_eq!(after.1 > before.1, to == BufferHead, "{before:?} {after:?}");
        check(&fs, false);
        mount::unmount(&fs).unwrap();
    }
}

/// The dispatcher alone notes the modification and takes the file's lock, and the invalidate lock
/// of all but plain allocation: once each, whatever the operation does. A refusal by a check under
/// the lock notes nothing.
#[test]
fn iomap_02_09_a_range_operation_notes_and_locks_once() {
    let keep = FallocateMode::Allocate { keep_size: true };
    let zero = FallocateMode::ZeroRange { keep_size: false };
    let (punch, collapse, insert) = (
        FallocateMode::PunchHole,
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
    );
    for options in ["", "nobuffered_iomap", "data=journal"] {
        let fs = mounted_with("-b 1024", 9, options);
        let inode = file(&fs, "f");
        put(&fs, &inode, 0, &[1; 100_000]);
        for (mode, at, expected) in [
            (keep, 90_001, (1, 1, 0)),
            (punch, 5001, (1, 1, 1)),
            (zero, 40_001, (1, 1, 1)),
            (insert, 8192, (1, 1, 1)),
            (collapse, 8192, (1, 1, 1)),
            // Beyond the end.
            (collapse, 1 << 20, (0, 1, 0)),
        ] {
            let counts = || {
                let taken = extant_lock_order::taken_by_this_thread;
                let modified = u64::from(calls::CALLS.get());
                [modified, taken(Rank::Inode), taken(Rank::Invalidate)]
            };
            let before = counts();
            let done = fallocate(&fs, &inode, mode, (at, 20_480), &Cred::root());
            assert_eq!(
                done.is_ok(),
                expected.0 == 1,
                "{options} {mode:?}: {done:?}"
            );
            let after = counts();
            let got = std::array::from_fn(|i| after[i] - before[i]);
            let [modified, inodes, invalidates] = got;
            assert_eq!(
                (modified, inodes, invalidates),
                expected,
                "{options} {mode:?} {at}"
            );
        }
        check(&fs, false);
    }
}
