//! Copies, exchanges of blocks and direct writes at the borders of what they are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use extant_blockdev::MemoryDevice;
use extant_testkit::{Fault, FaultyDevice, Image, Request, RequestKind};
use extant_units::{Ino, Lblk, Pblk, Pos, index};
use parking_lot::Mutex;

use super::{disk_size, file, mounted, mounted_of, mounted_with, put};
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::lock_for_write;
use crate::file::{
    ReadMode, Side, WriteAt, copy_range, data_path, drop_clean, edit, fallocate, file_state, fsync,
    move_extents, read, read_direct, truncate, write, write_and_wait, write_direct,
};
use crate::state::alloc::DirtyBound;
use crate::state::inode::InodeRef;
use crate::state::map::MapState;
use crate::test_support::test_mount::TestFs;
use crate::types::error::{Error, Result};
use crate::types::{Cred, FallocateMode};
use crate::volume::Fs;
use crate::{alloc, map, mount};

const BLOCK: u64 = 4096;
const BLOCK_LEN: usize = 4096;

fn bytes(fs: &Arc<Fs>, inode: &InodeRef, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; len];
    let done = read(fs, inode, None, ReadMode::Buffered, 0, &mut bytes).unwrap();
    bytes.truncate(done);
    bytes
}

/// A file of `len` bytes on the device, all `tag`.
fn stored(fs: &Arc<Fs>, name: &[u8], tag: u8, len: usize) -> InodeRef {
    let inode = file(fs, name);
    put(fs, &inode, 0, &vec![tag; len]);
    fsync(fs, &inode, None, false).unwrap();
    inode
}

#[test]
fn a_copy_goes_on_behind_a_hole() {
    let fs = mounted("");
    let (from, to) = (stored(&fs, b"from", 1, BLOCK_LEN), file(&fs, b"to"));
    put(&fs, &from, 5 * BLOCK, &[2; BLOCK_LEN]);
    let side = |inode| Side {
        inode,
        open: None,
        pos: 0,
    };
    let cred = Cred::root();
    let done = copy_range(&fs, &side(&from), &side(&to), u64::MAX / 2, &cred).unwrap();
    assert_eq!(done, 6 * BLOCK);
    let all = bytes(&fs, &to, 7 * BLOCK_LEN);
    assert!(all == bytes(&fs, &from, 7 * BLOCK_LEN) && all.len() == 6 * BLOCK_LEN);
    fsync(&fs, &to, None, false).unwrap();
    assert_eq!(to.core.read().sectors, 2 * 8, "the hole takes no space");
    mount::unmount(&fs).unwrap();
}

#[test]
fn blocks_are_exchanged_between_two_files_of_one_volume() {
    let (fs, other) = (mounted(""), mounted(""));
    let a = stored(&fs, b"a", 1, BLOCK_LEN);
    let b = stored(&fs, b"b", 2, BLOCK_LEN);
    let foreign = stored(&other, b"c", 3, BLOCK_LEN);
    for (orig, donor) in [(&a, &a), (&a, &foreign), (&foreign, &b)] {
        let refused = move_extents(&fs, orig, donor, 0..BLOCK, 0);
        assert!(matches!(refused, Err(Error::Invalid)), "{refused:?}");
    }
    assert_eq!(move_extents(&fs, &a, &b, 0..BLOCK, 0).unwrap(), BLOCK);
    mount::unmount(&fs).unwrap();
    mount::unmount(&other).unwrap();
}

/// The two ranges may begin on different pages, and have to at the same place of their page.
#[test]
fn blocks_are_exchanged_at_the_same_place_of_a_page() {
    let fs = mounted_with("-b 1024", "");
    let a = stored(&fs, b"a", 1, 4 * BLOCK_LEN);
    let b = stored(&fs, b"b", 2, 4 * BLOCK_LEN);
    for (start, donor_pos) in [(1024, 2048), (0, BLOCK + 1024), (1024, BLOCK)] {
        let refused = move_extents(&fs, &a, &b, start..start + 1024, donor_pos);
        assert!(
            matches!(refused, Err(Error::Invalid)),
            "{start}: {refused:?}"
        );
    }
    for (start, donor_pos) in [(0, BLOCK), (1024, BLOCK + 1024), (2 * BLOCK + 2048, 2048)] {
        let moved = move_extents(&fs, &a, &b, start..start + 1024, donor_pos);
        assert_eq!(moved.unwrap(), 1024, "{start}");
    }
    mount::unmount(&fs).unwrap();
}

#[test]
fn a_direct_write_keeps_what_its_blocks_hold_besides() {
    let fs = mounted("");
    let inode = stored(&fs, b"f", 1, 2 * BLOCK_LEN + 1000);
    drop_clean(&inode);
    let before = fs.files.stats.snapshot().edge_reads;
    // From within the first block to behind the end.
    let at = WriteAt::Pos(4000);
    let (_, done) = write_direct(&fs, &inode, None, at, &[2; 5000], &Cred::root()).unwrap();
    assert_eq!(done, 5000);
    assert_eq!(fs.files.stats.snapshot().edge_reads - before, 2);
    assert_eq!(fs.stats.direct_fallbacks.get(), 0);
    drop_clean(&inode);
    let mut expected = vec![1; 2 * BLOCK_LEN + 1000];
    expected[4000..9000].fill(2);
    assert!(bytes(&fs, &inode, 3 * BLOCK_LEN) == expected);
    mount::unmount(&fs).unwrap();
}

/// A block is read before it is written only if the write leaves some of it.
#[test]
fn a_direct_write_reads_the_blocks_that_it_takes_in_part() {
    let fs = mounted("");
    let len = 4 * BLOCK_LEN;
    let inode = stored(&fs, b"f", 1, len);
    let mut expected = vec![1; len];
    for (tag, (pos, len, reads)) in (2..).zip([
        (0, BLOCK_LEN, 0),
        (BLOCK_LEN, 2 * BLOCK_LEN, 0),
        (0, 512, 1),
        (BLOCK_LEN - 512, 512, 1),
        (512, 1024, 1),
        (BLOCK_LEN, BLOCK_LEN + 512, 1),
        (BLOCK_LEN - 512, BLOCK_LEN + 512, 1),
        (BLOCK_LEN - 512, 1024, 2),
        (BLOCK_LEN - 512, 2 * BLOCK_LEN + 1024, 2),
    ]) {
        drop_clean(&inode);
        let before = fs.files.stats.snapshot().edge_reads;
        let at = WriteAt::Pos(pos as u64);
        let (_, done) =
            write_direct(&fs, &inode, None, at, &vec![tag; len], &Cred::root()).unwrap();
        assert_eq!(done, len);
        let read = fs.files.stats.snapshot().edge_reads - before;
        assert_eq!(read, reads, "{len} bytes at {pos}");
        expected[pos..pos + len].fill(tag);
        drop_clean(&inode);
        assert!(
            bytes(&fs, &inode, 5 * BLOCK_LEN) == expected,
            "{len} bytes at {pos}"
        );
    }
    assert_eq!(fs.stats.direct_fallbacks.get(), 0);
    mount::unmount(&fs).unwrap();
}

/// Data that is newer in the cache is written before a direct read of it, and nothing
/// else is.
#[test]
fn a_direct_read_sees_what_only_the_cache_has() {
    let fs = mounted("");
    let inode = stored(&fs, b"f", 1, 4 * BLOCK_LEN);
    put(&fs, &inode, BLOCK, &[2; BLOCK_LEN]);
    let written = || fs.files.stats.snapshot().written_bytes;
    let before = written();
    let sees = |pos: u64, expected: &[u8]| {
        let mut seen = vec![0x55; expected.len()];
        let done = read_direct(&fs, &inode, None, pos, &mut seen).unwrap();
        assert!(done == seen.len() && seen == expected, "from {pos}");
        written() - before
    };
    assert_eq!(sees(0, &[1; BLOCK_LEN]), 0);
    assert_eq!(sees(2 * BLOCK, &[1; 2 * BLOCK_LEN]), 0);
    let all = [[1; BLOCK_LEN], [2; BLOCK_LEN], [1; BLOCK_LEN]].concat();
    assert_eq!(sees(0, &all), BLOCK);
    assert_eq!(sees(0, &all), BLOCK);
    assert_eq!(fs.stats.direct_fallbacks.get(), 0);
    mount::unmount(&fs).unwrap();
}

/// The blocks of a direct write leave the cache, after what it had newer of them is written.
#[test]
fn a_direct_write_leaves_nothing_older_in_the_cache() {
    let fs = mounted("");
    let inode = stored(&fs, b"f", 1, 4 * BLOCK_LEN);
    let mut expected = vec![1; 4 * BLOCK_LEN];
    // A block that is clean in the cache, one that is dirty, and one of which a part is dirty.
    for (dirty, pos, len) in [
        (None, 0, BLOCK_LEN),
        (Some((BLOCK_LEN, BLOCK_LEN)), BLOCK_LEN, BLOCK_LEN),
        (Some((2 * BLOCK_LEN, 512)), 2 * BLOCK_LEN + 512, 1024),
    ] {
        if let Some((at, len)) = dirty {
            put(&fs, &inode, at as u64, &vec![2; len]);
            expected[at..at + len].fill(2);
        }
        let at = WriteAt::Pos(pos as u64);
        let (_, done) = write_direct(&fs, &inode, None, at, &vec![3; len], &Cred::root()).unwrap();
        assert_eq!(done, len);
        expected[pos..pos + len].fill(3);
        assert!(bytes(&fs, &inode, 5 * BLOCK_LEN) == expected, "at {pos}");
        drop_clean(&inode);
        assert!(
            bytes(&fs, &inode, 5 * BLOCK_LEN) == expected,
            "at {pos}, stored"
        );
    }
    assert_eq!(fs.stats.direct_fallbacks.get(), 0);
    mount::unmount(&fs).unwrap();
}

#[test]
fn only_data_of_regular_files_is_waited_for() {
    let fs = mounted("");
    let root = fs.iget(Ino::ROOT).unwrap();
    write_and_wait(&fs, &root);
    let inode = file(&fs, b"f");
    put(&fs, &inode, 0, &[1; 100]);
    write_and_wait(&fs, &inode);
    assert_eq!((disk_size(&inode), inode.has_dirty_data()), (100, false));
    mount::unmount(&fs).unwrap();
}

/// A direct write over a run with data, one without, and a hole is three requests past the cache;
/// over data alone it changes no metadata.
#[test]
fn a_direct_write_takes_every_run_past_the_cache() {
    let fs = mounted("");
    let inode = stored(&fs, b"f", 1, 2 * BLOCK_LEN);
    truncate(&fs, &inode, 8 * BLOCK, &Cred::root()).unwrap();
    let unwritten = FallocateMode::Allocate { keep_size: true };
    fallocate(
        &fs,
        &inode,
        unwritten,
        (2 * BLOCK, 2 * BLOCK),
        &Cred::root(),
    )
    .unwrap();
    fsync(&fs, &inode, None, false).unwrap();
    drop_clean(&inode);
    for tag in [2, 3] {
        let handles = fs.journal.stats().handles;
        let bytes = vec![tag; 8 * BLOCK_LEN];
        let at = WriteAt::Pos(0);
        let (_, done) = write_direct(&fs, &inode, None, at, &bytes, &Cred::root()).unwrap();
        assert_eq!(done, bytes.len());
        assert_eq!(fs.stats.direct_fallbacks.get(), 0);
        let handles = fs.journal.stats().handles - handles;
        assert_eq!(handles == 0, tag == 3, "{handles} handles");
        drop_clean(&inode);
        assert!(self::bytes(&fs, &inode, 9 * BLOCK_LEN) == bytes);
    }
    mount::unmount(&fs).unwrap();
}

/// An edit shows its range alone, once, and not what lies behind the end. The buffer-head path
/// shows copies of 64 KiB, the other one the folio itself.
#[test]
fn an_edit_shows_its_range_piece_by_piece() {
    for (options, whole) in [("buffered_iomap", true), ("nobuffered_iomap", false)] {
        let fs = mounted_with("-b 1024", options);
        let inode = stored(&fs, b"f", 1, 200_000);
        for (pos, len, shown) in [(1000, 150_000, 150_000), (190_000, 20_000, 10_000)] {
            let mut pieces = Vec::new();
            let change = |at: u64, bytes: &mut [u8]| {
                pieces.push((at, bytes.len()));
                bytes.fill(2);
            };
            let done = edit(&fs, &inode, None, (pos, len), &Cred::root(), change).unwrap();
            assert_eq!(done, shown);
            let mut at = pos;
            for (start, len) in &pieces {
                assert_eq!(*start, at, "{options}: {pieces:?}");
                at += *len as u64;
            }
            assert_eq!(at, pos + shown as u64, "{options}: {pieces:?}");
            let copies = pieces.len() == shown.div_ceil(64 << 10);
            assert_eq!(copies, !whole, "{options}: {pieces:?}");
        }
        fsync(&fs, &inode, None, false).unwrap();
        drop_clean(&inode);
        let mut expected = vec![1; 200_000];
        expected[1000..151_000].fill(2);
        expected[190_000..].fill(2);
        assert!(bytes(&fs, &inode, 300_000) == expected, "{options}");
        mount::unmount(&fs).unwrap();
    }
}

/// A file that takes what a user can have of the volume, and its size.
fn filled(fs: &Arc<Fs>) -> (InodeRef, u64) {
    let filler = file(fs, b"filler");
    let mut size = 0;
    let more = [9; 64 << 10];
    let full = |at| write(fs, &filler, None, WriteAt::Pos(at), &more, &Cred::root());
    while let Ok((_, done)) = full(size) {
        size += done as u64;
    }
    fsync(fs, &filler, None, false).unwrap();
    (filler, size)
}

/// Puts `bytes` into the cache at byte `pos`, without another try of the whole write.
fn in_one_step(fs: &Arc<Fs>, inode: &InodeRef, pos: u64, bytes: &[u8]) -> Result<usize> {
    let cx = FileContext::new(fs, inode);
    data_path::write(&cx, Pos::new(pos), bytes.len(), &mut &*bytes)
}

/// Blocks that a transaction freed are handed out after its commit: a write that meets them on its
/// way has the commit made and goes on where it stopped.
#[test]
fn a_write_by_block_goes_on_with_what_a_commit_frees() {
    let fs = mounted_with("-b 1024 -m 0", "nobuffered_iomap,nodelalloc");
    let (filler, size) = filled(&fs);
    fs.journal.force_commit().unwrap();
    // What is kept for promised data is at hand; more blocks wait for their commit.
    truncate(&fs, &filler, size - (2 << 20), &Cred::root()).unwrap();
    let inode = file(&fs, b"late");
    let commits = fs.stats.space_commits.get();
    let bytes: Vec<u8> = (0..1500_u32 << 10)
        .map(|at| at.to_le_bytes()[1] | 1)
        .collect();
    assert_eq!(in_one_step(&fs, &inode, 0, &bytes).unwrap(), bytes.len());
    assert_eq!(fs.stats.space_commits.get() - commits, 1);
    fsync(&fs, &inode, None, false).unwrap();
    drop_clean(&inode);
    assert!(self::bytes(&fs, &inode, 1600 << 10) == bytes);
    mount::unmount(&fs).unwrap();
}

/// A write that meets the end of all space returns what it wrote before the commit and after it.
#[test]
fn a_write_by_block_that_ends_early_counts_every_part() {
    let fs = mounted_with("-b 1024 -m 0", "nobuffered_iomap,nodelalloc");
    let (filler, size) = filled(&fs);
    fs.journal.force_commit().unwrap();
    truncate(&fs, &filler, size - (2 << 20), &Cred::root()).unwrap();
    let inode = file(&fs, b"late");
    let commits = fs.stats.space_commits.get();
    let all: Vec<u8> = (0..8_u32 << 20).map(|at| at.to_le_bytes()[1] | 1).collect();
    let done = in_one_step(&fs, &inode, 0, &all).unwrap();
    assert_eq!(fs.stats.space_commits.get() - commits, 1);
    assert!((1 << 20..all.len()).contains(&done), "{done} bytes");
    fsync(&fs, &inode, None, false).unwrap();
    drop_clean(&inode);
    assert!(bytes(&fs, &inode, all.len()) == all[..done], "{done} bytes");
    mount::unmount(&fs).unwrap();
}

/// Blocks that wait for a commit count as free already: a claim that is refused for the sake of
/// what a cache above may hold dirty forces none, however often it is made.
#[test]
fn a_refused_claim_forces_no_commit() {
    for options in ["", "nodelalloc", "nobuffered_iomap"] {
        let fs = mounted_with("-b 1024 -m 0", options);
        let (filler, mut size) = filled(&fs);
        let inode = file(&fs, b"late");
        let bound = DirtyBound::of(fs.alloc.counts.dirty_bound(), 10);
        bound.set(1 << 40);
        let commits = fs.stats.space_commits.get();
        for _ in 0..4 {
            size -= 4 << 10;
            truncate(&fs, &filler, size, &Cred::root()).unwrap();
            let (all, range) = (FallocateMode::Allocate { keep_size: true }, (0, 1 << 20));
            let by_name = fallocate(&fs, &inode, all, range, &Cred::root());
            assert!(matches!(by_name, Err(Error::NoSpace)), "{by_name:?}");
            let at = WriteAt::Pos(0);
            let wrote = write(&fs, &inode, None, at, &[7; 4096], &Cred::root());
            assert!(matches!(wrote, Err(Error::NoSpace)), "{wrote:?}");
        }
        assert_eq!(fs.stats.space_commits.get(), commits, "{options}");
        bound.set(0);
        put(&fs, &inode, 0, &[7; 4096]);
        fsync(&fs, &inode, None, false).unwrap();
        mount::unmount(&fs).unwrap();
    }
}

/// A write of which each commit frees a part goes on to its end, however many commits that takes.
/// It gives up if no commit frees anything, also if some blocks are free.
#[test]
fn a_write_by_block_gives_up_only_where_it_makes_no_progress() {
    let (requests, committing) = channel();
    let done = requests.clone();
    let (go_on, goes_on) = channel();
    let goes_on = Mutex::new(goes_on);
    let is_held = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&is_held);
    // Each request of a commit is held until the next blocks are freed.
    let plan = move |request: Request<'_>| {
        if request.kind != RequestKind::Read && held.load(Ordering::SeqCst) {
            requests.send(true).unwrap();
            goes_on.lock().recv().unwrap();
        }
        Fault::Pass
    };
    let image = Image::of_mib(8).args("-b 1024 -m 0").make().unwrap();
    let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let device = Arc::new(FaultyDevice::new(memory, plan));
    let fs = TestFs::on(device, "nobuffered_iomap,nodelalloc").unwrap();
    let (filler, mut size) = filled(&fs);
    let inode = file(&fs, b"late");
    fs.journal.force_commit().unwrap();
    let cut = |size| truncate(&fs, &filler, size, &Cred::root()).unwrap();
    size -= 4 << 10;
    cut(size);
    let commits = fs.stats.space_commits.get();
    is_held.store(true, Ordering::SeqCst);
    let bytes = vec![5; 400 << 10];
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let written = in_one_step(&fs, &inode, 0, &bytes);
            is_held.store(false, Ordering::SeqCst);
            done.send(false).unwrap();
            written
        });
        while committing.recv().unwrap() {
            size -= 4 << 10;
            cut(size);
            go_on.send(()).unwrap();
        }
        writer.join().unwrap()
    });
    assert_eq!(written.unwrap(), bytes.len());
    let commits = fs.stats.space_commits.get() - commits;
    assert!(commits > 3, "{commits} commits");
    cut(size - (4 << 10));
    fs.journal.force_commit().unwrap();
    // All that is free now is held back, as for another file.
    let next = || alloc::hold_blocks(&fs, Pblk::new(0), (1, 1 << 20)).unwrap();
    let held: Vec<_> = std::iter::from_fn(next).collect();
    let refused = in_one_step(&fs, &inode, 400 << 10, &bytes);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    drop(held);
    drop(inode);
    drop(filler);
    fs.unmount();
}

/// A part that was read before the device failed is a success; the next call gets the error.
#[test]
fn a_read_that_fails_on_its_way_returns_what_it_has() {
    let image = Image::of_mib(16).args("-b 4096").make().unwrap();
    let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let broken = Arc::new(AtomicU64::new(u64::MAX));
    let from = Arc::clone(&broken);
    let plan = move |request: Request<'_>| {
        let end = request.offset.get() + request.len;
        let is_read = request.kind == RequestKind::Read;
        if is_read && end > from.load(Ordering::SeqCst) {
            Fault::Fail(std::io::ErrorKind::Other)
        } else {
            Fault::Pass
        }
    };
    let fs = TestFs::on(Arc::new(FaultyDevice::new(memory, plan)), "").unwrap();
    let all = 1000 * BLOCK_LEN;
    let inode = stored(&fs, b"f", 1, all);
    drop_clean(&inode);
    // The first block is cached; none behind it can be read.
    assert_eq!(bytes(&fs, &inode, 1), [1]);
    let map = map::lookup(&fs, &inode, Lblk::ZERO, 1).unwrap();
    let MapState::Written(start) = map.state else {
        panic!("{map:?}")
    };
    let cached = &file_state(&fs, &inode).address_space;
    let mut there = Pos::ZERO;
    while let Some(folio) = cached.next(there).filter(|folio| folio.start() == there) {
        there = folio.end();
    }
    let there = index(there.get());
    assert!((1..all).contains(&there), "{there} bytes are cached");
    broken.store(start.get() * BLOCK, Ordering::SeqCst);
    let mut buf = vec![0; all];
    let mut read_at = |pos| read(&fs, &inode, None, ReadMode::Buffered, pos as u64, &mut buf);
    assert_eq!(read_at(0).unwrap(), there);
    let failed = read_at(there);
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    broken.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(read_at(there).unwrap(), all - there);
    drop(inode);
    fs.unmount();
}

/// A writer in order maps each folio once, as large as it is, and writes the rest of it without the
/// map; over blocks that have their place and over blocks that are allocated, not written.
#[test]
fn a_writer_in_order_maps_each_folio_once() {
    const PAGES: u64 = 64;
    let folios = [0, 1, 2, 4, 8, 16, 32, 48];
    for unwritten in [false, true] {
        let fs = mounted("");
        let inode = file(&fs, b"overwritten");
        if unwritten {
            let mode = FallocateMode::Allocate { keep_size: false };
            fallocate(&fs, &inode, mode, (0, PAGES * BLOCK), &Cred::root()).unwrap();
        } else {
            put(&fs, &inode, 0, &vec![1; index(PAGES * BLOCK)]);
        }
        fsync(&fs, &inode, None, false).unwrap();
        drop_clean(&inode);
        let stats = || fs.files.stats.snapshot();
        let (before, mut mapped) = (stats(), Vec::new());
        for page in 0..PAGES {
            let begins = stats().begins;
            // With nothing to note, whatever the time is.
            crate::inode::touch_mtime(&fs, &inode);
            put(&fs, &inode, page * BLOCK, &[2; BLOCK_LEN]);
            if stats().begins > begins {
                mapped.push(page);
            }
        }
        // Between two ticks of the clock a write has nothing else to do.
        let ticks = mapped.len() - folios.len();
        assert!(ticks < 8, "{unwritten}: {mapped:?}");
        assert!(
            folios.iter().all(|page| mapped.contains(page)),
            "{mapped:?}"
        );
        assert_eq!(stats().fill_reads, before.fill_reads);
        fsync(&fs, &inode, None, false).unwrap();
        drop_clean(&inode);
        assert!(bytes(&fs, &inode, index(PAGES * BLOCK)) == vec![2; index(PAGES * BLOCK)]);
        mount::unmount(&fs).unwrap();
    }
}

/// A small write asks for the rest of its folio, and not for the block of the end: an append that
/// is under way there, or that moves the end meanwhile, costs it nothing.
#[test]
fn a_small_write_near_the_end_stays_out_of_the_way_of_appends() {
    let fs = mounted("");
    let inode = file(&fs, b"log");
    put(&fs, &inode, 0, &vec![1; 5 * BLOCK_LEN + 100]);
    let locked_to = |pos: u64, align: u64| {
        let (held, _, size) = lock_for_write(&fs, &inode, WriteAt::Pos(pos), 10, align).unwrap();
        assert_eq!(size, 5 * BLOCK + 100);
        held.end()
    };
    assert_eq!(locked_to(BLOCK, 1).get(), 2 * BLOCK);
    assert_eq!(locked_to(BLOCK, 64 << 10).get(), 5 * BLOCK);
    assert_eq!(
        locked_to(5 * BLOCK, 64 << 10).get(),
        6 * BLOCK,
        "what it writes"
    );
    assert_eq!(
        locked_to(5 * BLOCK + 99, 64 << 10),
        Pos::MAX,
        "it moves the end"
    );
    mount::unmount(&fs).unwrap();
}

/// A block that was allocated before is written without a handle while there is space, and once
/// more with one when there is little. The file is as long as it will be by then. That write moves
/// the size on disk all the same: the commit writes its data, and leaves nothing to writeback.
#[test]
fn a_write_with_little_space_moves_the_size_of_one_before() {
    let ways = ["nobuffered_iomap,dioread_lock", "nobuffered_iomap", ""];
    for (options, len) in ways.into_iter().flat_map(|way| [(way, 4096), (way, 3500)]) {
        let fs = mounted_of(4, "-b 1024 -m 0", options);
        let (inode, cred) = (file(&fs, b"late"), Cred::root());
        let keep = FallocateMode::Allocate { keep_size: true };
        let take = |name: &[u8], left: u64| {
            let blocks = fs.alloc.counts.free_blocks().get() - left;
            fallocate(&fs, &file(&fs, name), keep, (0, blocks << 10), &cred).unwrap();
        };
        fallocate(&fs, &inode, keep, (3072, 1024), &cred).unwrap();
        take(b"most", 300);
        put(&fs, &inode, 3072, &[1; 1024]);
        take(b"more", 200);
        assert_eq!(disk_size(&inode), 0, "{options}");
        let before = fs.stats.direct_allocations.get();
        put(&fs, &inode, 0, &vec![2; len]);
        assert!(fs.stats.direct_allocations.get() > before, "space is low");
        fs.journal.sync_all().unwrap();
        fsync(&fs, &inode, None, false).unwrap();
        assert_eq!(disk_size(&inode), 4096, "{options}, {len}");
        let expected = [vec![2; len], vec![1; 4096 - len]].concat();
        assert!(bytes(&fs, &inode, 5000) == expected, "{options}, {len}");
        mount::unmount(&fs).unwrap();
    }
}
