//! Writers of one file side by side: what runs, what waits, and what is never seen half done.
//!
//! A writer is stopped in the middle of its work by the lock of a folio, or by the device, and let
//! go when the others are where they should be. Nothing here depends on which thread is faster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Scope, ScopedJoinHandle, yield_now};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_iomap::Source;
use extant_pagecache::Folio;
use extant_range_lock::{ByteRange, FileLock};
use extant_testkit::{Fault, FaultyDevice, Image, Request, RequestKind};
use extant_units::{PageIdx, Pos};

use crate::api::inspect::verifier::Verifier;
use crate::config::{MountOptions, Tuning};
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{lock_range, try_lock_append};
use crate::file::{
    ReadMode, WriteAt, data_path, edit, file_state, fsync, lock_whole_file, read, truncate, write,
};
use crate::map::{ExclusiveMap, SharedMap};
use crate::state::inode::InodeRef;
use crate::types::Cred;
use crate::volume::{Fs, credits};
use crate::{mount, namei};

const MIB: usize = 1 << 20;
/// Bytes of the folios that a file is filled with.
const FOLIO: usize = 64 << 10;
const PAGES: u64 = FOLIO as u64 / 4096;

fn over(device: Arc<dyn BlockDevice>) -> Arc<Fs> {
    let tuning = Tuning {
        page_cache_bytes: Some(64 << 20),
        max_folio_order: 4,
        // Nothing is written behind a test's back.
        flushers: 0,
        ..Tuning::default()
    };
    // Nor committed.
    let options = MountOptions::parse("commit=3000").unwrap();
    mount::mount(device, options, tuning).unwrap()
}

fn memory(block: u32) -> MemoryDevice {
    let image = Image::of_mib(32).args(&format!("-b {block}")).make();
    MemoryDevice::from_bytes(&std::fs::read(image.unwrap().path()).unwrap())
}

fn file(fs: &Arc<Fs>, len: usize) -> InodeRef {
    let root = fs.iget(extant_units::Ino::ROOT).unwrap();
    let inode = namei::create(fs, &root, b"shared", 0o644, &Cred::root()).unwrap();
    if len > 0 {
        put(fs, &inode, 0, &vec![1; len]);
    }
    inode
}

fn put(fs: &Arc<Fs>, inode: &InodeRef, pos: usize, bytes: &[u8]) {
    let at = WriteAt::Pos(pos as u64);
    let (_, done) = write(fs, inode, None, at, bytes, &Cred::root()).unwrap();
    assert_eq!(done, bytes.len());
}

fn get(fs: &Arc<Fs>, inode: &InodeRef, pos: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; len];
    let done = read(fs, inode, None, ReadMode::Buffered, pos as u64, &mut bytes).unwrap();
    bytes.truncate(done);
    bytes
}

fn end(fs: &Arc<Fs>, inode: &InodeRef) {
    Verifier::default().check(fs, false).unwrap();
    fsync(fs, inode, None, false).unwrap();
    Verifier::default().check(fs, true).unwrap();
    mount::unmount(fs).unwrap();
}

fn wait_until(mut happens: impl FnMut() -> bool) {
    while !happens() {
        yield_now();
    }
}

/// Runs `body` while a write of `with` to `[0, 4 * FOLIO)` has done its first folio and waits for
/// the second, then lets it go on.
fn in_the_middle(fs: &Arc<Fs>, inode: &InodeRef, with: u8, body: impl FnOnce()) {
    let mapping = &file_state(fs, inode).address_space;
    let second: Arc<Folio> = mapping.get(PageIdx::new(PAGES)).unwrap();
    assert_eq!(second.len(), FOLIO);
    let locked = mapping.lock(&second).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(fs, inode, 0, &[with; 4 * FOLIO]));
        wait_until(|| get(fs, inode, 0, 1) == [with]);
        body();
        drop(locked);
        writer.join().unwrap();
    });
}

/// Runs `work` on another thread: this one holds a folio.
fn elsewhere(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
}

/// Starts `work` and waits until it waits for a range, which it must before it has changed
/// anything.
fn waiting<'s, 'e>(
    scope: &'s Scope<'s, 'e>,
    fs: &'s Arc<Fs>,
    work: impl FnOnce() + Send + 's,
    intact: impl Fn() -> bool,
) -> ScopedJoinHandle<'s, ()> {
    let before = fs.stats.range_lock_waits.get();
    let worker = scope.spawn(work);
    wait_until(|| {
        assert!(!worker.is_finished() && intact(), "it did not wait");
        fs.stats.range_lock_waits.get() > before
    });
    worker
}

#[test]
fn two_writes_to_the_same_folios_are_one_after_the_other() {
    for block in [1024, 4096] {
        let fs = over(Arc::new(memory(block)));
        let inode = file(&fs, 4 * FOLIO);
        std::thread::scope(|scope| {
            let mut second = None;
            in_the_middle(&fs, &inode, 2, || {
                let other = || put(&fs, &inode, 0, &[3; 4 * FOLIO]);
                let intact = || get(&fs, &inode, 0, 1) == [2];
                second = Some(waiting(scope, &fs, other, intact));
            });
            second.unwrap().join().unwrap();
        });
        assert!(get(&fs, &inode, 0, 4 * FOLIO) == [3; 4 * FOLIO]);
        end(&fs, &inode);
    }
}

#[test]
fn what_is_done_without_a_range_respects_one() {
    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, 8 * FOLIO);
    // With nothing to note, whatever the time is.
    let put = |pos: u64, with: u8| {
        let at = WriteAt::UpperWriteback(pos);
        let (_, done) = write(&fs, &inode, None, at, &[with; 100], &Cred::root()).unwrap();
        assert_eq!(done, 100);
    };
    let overwrites = || fs.files.stats.snapshot().overwrites;
    std::thread::scope(|scope| {
        let mut small = None;
        in_the_middle(&fs, &inode, 2, || {
            let intact = || get(&fs, &inode, 0, 200) == [2; 200];
            small = Some(waiting(scope, &fs, || put(50, 7), intact));
            let before = overwrites();
            elsewhere(|| put(5 * FOLIO as u64, 8));
            assert!(overwrites() > before, "elsewhere nothing waits");
        });
        small.unwrap().join().unwrap();
    });
    let mut expected = vec![2; 200];
    expected[50..150].fill(7);
    assert!(get(&fs, &inode, 0, 200) == expected);
    end(&fs, &inode);
}

#[test]
fn writers_of_disjoint_ranges_run_side_by_side() {
    for block in [1024, 4096] {
        let fs = over(Arc::new(memory(block)));
        let inode = file(&fs, 5 * FOLIO);
        let cred = Cred::root();
        let others = || {
            // Beside it, in a hole behind the end, at the end, and the end itself.
            put(&fs, &inode, 4 * FOLIO, &[3; FOLIO]);
            put(&fs, &inode, 7 * FOLIO, &[4; 2 * FOLIO]);
            let (at, _) = write(&fs, &inode, None, WriteAt::End, &[5; 10], &cred).unwrap();
            assert_eq!(at, 9 * FOLIO as u64);
            truncate(&fs, &inode, 8 * FOLIO as u64 + 5, &cred).unwrap();
            put(&fs, &inode, 5 * FOLIO + 100, &[6; 100]);
            let shown = edit(
                &fs,
                &inode,
                None,
                (4 * FOLIO as u64, 5),
                &cred,
                |_, part| {
                    part.fill(9);
                },
            );
            assert_eq!(shown.unwrap(), 5);
            truncate(&fs, &inode, 9 * FOLIO as u64, &cred).unwrap();
        };
        in_the_middle(&fs, &inode, 2, || elsewhere(others));
        assert_eq!(fs.stats.range_lock_waits.get(), 0);
        let parts: [(usize, u8); 10] = [
            (4 * FOLIO, 2),
            (5, 9),
            (FOLIO - 5, 3),
            (100, 0),
            (100, 6),
            (2 * FOLIO - 200, 0),
            (FOLIO, 4),
            (5, 4),
            (FOLIO - 5, 0),
            (0, 0),
        ];
        let expected: Vec<u8> = parts
            .iter()
            .flat_map(|&(len, with)| vec![with; len])
            .collect();
        assert!(get(&fs, &inode, 0, 10 * FOLIO) == expected);
        end(&fs, &inode);
    }
}

#[test]
fn truncation_waits_for_a_writer_behind_the_new_end() {
    let fs = over(Arc::new(memory(1024)));
    let inode = file(&fs, 8 * FOLIO);
    // Within the last block that is being written.
    let size = 4 * FOLIO as u64 - 1;
    std::thread::scope(|scope| {
        let mut cut = None;
        in_the_middle(&fs, &inode, 2, || {
            let cred = Cred::root();
            let (fs, inode) = (&fs, &inode);
            let cuts = move || truncate(fs, inode, size, &cred).unwrap();
            let intact = || inode.size() == 8 * FOLIO as u64;
            cut = Some(waiting(scope, fs, cuts, intact));
        });
        cut.unwrap().join().unwrap();
    });
    assert_eq!(get(&fs, &inode, 0, 8 * FOLIO), vec![2; 4 * FOLIO - 1]);
    end(&fs, &inode);
}

/// A source whose other writer fills a hole while it is being copied from.
struct Interrupted<'a> {
    fs: &'a Arc<Fs>,
    inode: &'a InodeRef,
    rounds: usize,
}

impl Source for Interrupted<'_> {
    fn copy_at(&mut self, _: usize, into: &mut [u8]) -> usize {
        let (fs, inode, at) = (self.fs, self.inode, MIB + self.rounds * 8192);
        self.rounds += 1;
        std::thread::scope(|scope| {
            scope.spawn(|| put(fs, inode, at, &[8; 4096]));
        });
        into.fill(7);
        into.len()
    }
}

#[test]
fn changes_of_the_map_elsewhere_make_no_writer_map_again() {
    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, 0);
    truncate(&fs, &inode, 4 * MIB as u64, &Cred::root()).unwrap();
    let before = fs.files.stats.snapshot().stale_retries;
    let cx = FileContext::new(&fs, &inode);
    let mut source = Interrupted {
        fs: &fs,
        inode: &inode,
        rounds: 0,
    };
    let done = data_path::write(&cx, Pos::ZERO, 4 * FOLIO, &mut source).unwrap();
    assert_eq!((done, source.rounds), (4 * FOLIO, 4));
    assert_eq!(fs.files.stats.snapshot().stale_retries, before);
    assert!(get(&fs, &inode, 0, 4 * FOLIO) == [7; 4 * FOLIO]);
    end(&fs, &inode);
}

#[test]
fn what_goes_past_the_cache_leaves_nothing_old_in_folios_that_others_dirty() {
    let (ask, asked) = mpsc::channel::<mpsc::Sender<()>>();
    let armed = Arc::new(AtomicBool::new(false));
    let arm = armed.clone();
    let device = FaultyDevice::new(memory(4096), move |request: Request| {
        if request.kind == RequestKind::Write && armed.swap(false, Ordering::SeqCst) {
            let (done, wait) = mpsc::channel();
            ask.send(done).unwrap();
            wait.recv().unwrap();
        }
        Fault::Pass
    });
    let fs = over(Arc::new(device));
    let inode = file(&fs, 2 * MIB);
    fsync(&fs, &inode, None, false).unwrap();
    crate::file::drop_clean(&inode);
    // Ends within a folio of the largest order.
    let len = MIB - 8192;
    arm.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = WriteAt::UpperWriteback(0);
            let (_, done) = write(&fs, &inode, None, at, &vec![2; len], &Cred::root()).unwrap();
            assert_eq!(done, len);
        });
        let go_on = asked.recv().unwrap();
        // Nothing has arrived on the device yet. A reader caches what is there, ahead too.
        for pos in (0..2 * MIB).step_by(FOLIO) {
            assert!(get(&fs, &inode, pos, FOLIO) == [1; FOLIO]);
        }
        let mapping = &file_state(&fs, &inode).address_space;
        let folio = mapping.get(PageIdx::new(len as u64 / 4096)).unwrap();
        assert!(
            folio.start() < Pos::new(len as u64),
            "it is partly the writer's"
        );
        put(&fs, &inode, len, &[3; 8192]);
        go_on.send(()).unwrap();
    });
    let expected = [vec![2; len], vec![3; 8192], vec![1; MIB]].concat();
    assert!(fs.files.stats.uncached_writes.get() > 0);
    assert!(get(&fs, &inode, 0, 2 * MIB) == expected);
    end(&fs, &inode);
}

/// The check of the lock order sees what no test has to hang for.
#[test]
#[cfg(debug_assertions)]
fn a_lock_out_of_order_is_refused() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, FOLIO);
    let mapping = &file_state(&fs, &inode).address_space;
    let folio = mapping.get(PageIdx::new(0)).unwrap();
    let range = || drop(lock_range(&fs, &inode, ByteRange::ALL).unwrap());
    let invalidate = || drop(mapping.invalidate_lock().read());
    let lock_folio = || drop(mapping.lock(&folio).unwrap());
    let handle = || drop(fs.start(credits::INODE_UPDATE).unwrap());
    let map = || drop(SharedMap::lock(&inode));
    let refused = |lock: &dyn Fn()| catch_unwind(AssertUnwindSafe(lock)).is_err();

    let held = lock_range(&fs, &inode, ByteRange::ALL).unwrap();
    let blocks = mapping.invalidate_lock().write();
    assert!(refused(&range) && !refused(&lock_folio));
    drop((held, blocks));
    let held = mapping.lock(&folio).unwrap();
    assert!(refused(&range) && refused(&invalidate) && !refused(&handle) && !refused(&map));
    drop(held);
    let held = fs.start(credits::INODE_UPDATE).unwrap();
    assert!(refused(&range) && refused(&invalidate) && refused(&lock_folio) && !refused(&map));
    drop(held);
    // On the buffer-head path the handle comes first.
    mapping.set_folios_in_handle(true);
    let held = mapping.lock(&folio).unwrap();
    assert!(refused(&range) && refused(&handle) && !refused(&map));
    drop(held);
    let held = fs.start(credits::INODE_UPDATE).unwrap();
    assert!(refused(&range) && refused(&invalidate) && !refused(&lock_folio) && !refused(&map));
    drop(held);
    mapping.set_folios_in_handle(false);
    let held = ExclusiveMap::lock(&inode);
    assert!(refused(&range) && refused(&invalidate) && refused(&lock_folio) && refused(&handle));
    drop(held);
    for lock in [&range as &dyn Fn(), &invalidate, &lock_folio, &handle, &map] {
        assert!(!refused(lock), "with nothing held all is in order");
    }
    end(&fs, &inode);
}

/// An append that meets no other thread locks nothing in the tree. All others find it all the same.
#[test]
fn the_eof_lock_keeps_others_out_of_the_end() {
    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, FOLIO + 100);
    let file = file_state(&fs, &inode);
    let small = |pos: usize| {
        let at = WriteAt::UpperWriteback(pos as u64);
        let (_, done) = write(&fs, &inode, None, at, &[7; 50], &Cred::root()).unwrap();
        assert_eq!(done, 50);
    };
    let intact = || inode.size() == FOLIO as u64 + 100 && get(&fs, &inode, FOLIO, 100) == [1; 100];
    // In place, below the end; over two folios; beyond the end; and the end itself.
    let cut = || truncate(&fs, &inode, FOLIO as u64 + 10, &Cred::root()).unwrap();
    let edits = || {
        let range = (FOLIO as u64, 50);
        let shown = edit(&fs, &inode, None, range, &Cred::root(), |_, bytes| {
            bytes.fill(7)
        });
        assert_eq!(shown.unwrap(), 50);
    };
    let others: [&(dyn Fn() + Sync); 4] = [
        &|| small(FOLIO + 20),
        &|| put(&fs, &inode, FOLIO - 50, &[7; 100]),
        &edits,
        &cut,
    ];
    for other in others {
        truncate(&fs, &inode, FOLIO as u64, &Cred::root()).unwrap();
        put(&fs, &inode, FOLIO, &[1; 100]);
        let eof = file.ranges.try_lock_eof(FOLIO as u64, &inode.lock);
        std::thread::scope(|scope| {
            let worker = waiting(scope, &fs, other, intact);
            elsewhere(|| small(0));
            drop(eof);
            worker.join().unwrap();
        });
        assert!(!intact());
    }
    end(&fs, &inode);
}

#[test]
fn the_eof_lock_of_a_short_append_meets_no_other_thread() {
    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, 5000);
    let file = file_state(&fs, &inode);
    let locked = |at: WriteAt| {
        let eof = try_lock_append(&fs, &inode, file, at, 10);
        assert_eq!(eof.is_some(), file.ranges.is_eof_locked());
        eof.map(|(_, pos)| pos)
    };
    assert_eq!(locked(WriteAt::End), Some(5000));
    assert_eq!(locked(WriteAt::Pos(4999)), Some(4999));
    assert_eq!(locked(WriteAt::Pos(4990)), None, "no longer");
    assert_eq!(locked(WriteAt::Pos(5001)), None, "zeros come before it");
    let attributes = inode.lock_exclusively();
    assert_eq!(locked(WriteAt::End), None, "the file is locked");
    drop(attributes);
    let range = |from: u64| ByteRange::from_len(from, 4096).unwrap();
    // No operation has both; but no thread waits here.
    let unchecked = extant_lock_order::exempt();
    let part = lock_range(&fs, &inode, range(4096)).unwrap();
    assert_eq!(locked(WriteAt::End), None, "the end is locked");
    drop(part);
    let part = lock_range(&fs, &inode, range(0)).unwrap();
    assert_eq!(locked(WriteAt::End), Some(5000), "a range elsewhere");
    drop((part, unchecked));
    end(&fs, &inode);
}

#[test]
fn the_files_lock_waits_for_the_eof_lock() {
    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, 100);
    let file = file_state(&fs, &inode);
    let folio = file.address_space.get(PageIdx::new(0)).unwrap();
    let locked = file.address_space.lock(&folio).unwrap();
    std::thread::scope(|scope| {
        let append = || {
            let at = WriteAt::UpperWriteback(100);
            write(&fs, &inode, None, at, &[2; 10], &Cred::root()).unwrap();
        };
        let writer = scope.spawn(append);
        wait_until(|| file.ranges.is_eof_locked());
        assert!(
            inode.try_lock_exclusively().is_some(),
            "the EOF lock is enough"
        );
        let other = scope.spawn(|| {
            let _alone = lock_whole_file(&fs, &inode);
            inode.size()
        });
        wait_until(|| inode.lock.is_exclusive());
        assert_eq!((inode.size(), other.is_finished()), (100, false));
        drop(locked);
        writer.join().unwrap();
        assert_eq!(other.join().unwrap(), 110);
    });
    end(&fs, &inode);
}

#[test]
fn an_append_waits_for_a_range_at_the_end() {
    let fs = over(Arc::new(memory(4096)));
    let inode = file(&fs, 100);
    let locks = || fs.files.stats.snapshot().begins;
    let append = || {
        write(&fs, &inode, None, WriteAt::End, &[2; 10], &Cred::root()).unwrap();
    };
    let held = lock_range(&fs, &inode, ByteRange::from_len(0, 4096).unwrap());
    std::thread::scope(|scope| {
        let intact = || inode.size() == 100;
        let worker = waiting(scope, &fs, append, intact);
        drop(held.unwrap());
        worker.join().unwrap();
    });
    assert_eq!(inode.size(), 110);
    // One that notes the time asks the map; the next one has the time noted.
    let is_fast = |_: &u64| {
        let before = locks();
        append();
        locks() == before
    };
    let appends = (1..=5).find(is_fast).unwrap();
    assert_eq!(inode.size(), 110 + 10 * appends);
    end(&fs, &inode);
}
