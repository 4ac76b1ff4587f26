//! Waits of operations that meet another one whose request the device holds back.
//!
//! The device has a gate (`extant_testkit::Gate`): an operation is stopped in its middle, the
//! other one is started, and the test sees it wait, by a counter or by a lock, or finish too early.
//! Nothing depends on time.

use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use extant_blockdev::{IoBuf, MemoryDevice};
use extant_iomap::WritebackControl;
use extant_testkit::content::JUNK;
use extant_testkit::{GatedDevice, Image, Request, RequestKind, Watchdog, wait_until};
use extant_units::{Ino, Lblk, Pos};

use crate::api::inspect::verifier::Verifier;
use crate::attr::{FlagSet, get_flags, set_flags};
use crate::config::{MountOptions, Tuning};
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::writeback::writeback_range;
use crate::file::{
    Direction, Queue, QueuedRequest, ReadMode, WriteAt, data_path, drop_clean, fallocate,
    file_state, fsync, read, truncate, write,
};
use crate::inode::InodeFlags;
use crate::namei::ParentAndName;
use crate::state::inode::{InodeCache, InodeRef};
use crate::state::map::MapState;
use crate::types::FallocateMode::{self, CollapseRange, InsertRange, PunchHole, ZeroRange};
use crate::types::{AfterWrite, Cred};
use crate::volume::{Fs, credits};
use crate::{inode, map, mount, namei};

/// Bytes of a block, and of a folio.
pub(super) const BLOCK: u64 = 4096;
pub(super) const BLOCK_LEN: usize = 4096;

/// A volume on a device with a gate; free space is junk. Nothing is written or committed but by the
/// test.
pub(super) struct Stage {
    pub(super) fs: Arc<Fs>,
    pub(super) dev: Arc<GatedDevice<MemoryDevice>>,
    _limit: Watchdog,
}

impl Stage {
    pub(super) fn new(options: &str) -> Self {
        Self::tuned(options, |_| ())
    }

    pub(super) fn tuned(options: &str, tune: impl FnOnce(&mut Tuning)) -> Self {
        let limit = Watchdog::new(Duration::from_secs(240));
        let image = Image::of_mib(8).args("-b 4096").junk().make().unwrap();
        let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
        let dev = Arc::new(GatedDevice::new(memory));
        let fs = mounted(dev.clone(), options, tune);
        Self {
            fs,
            dev,
            _limit: limit,
        }
    }

    pub(super) fn create(&self, name: &str) -> InodeRef {
        let root = self.fs.iget(Ino::ROOT).unwrap();
        namei::create(&self.fs, &root, name.as_bytes(), 0o644, &Cred::root()).unwrap()
    }

    /// A file of 16 blocks of ones, on the device.
    fn file(&self) -> InodeRef {
        let inode = self.create("file");
        self.put(&inode, 0, &[1; 16 * BLOCK_LEN]);
        fsync(&self.fs, &inode, None, false).unwrap();
        inode
    }

    pub(super) fn put(&self, inode: &InodeRef, pos: u64, bytes: &[u8]) {
        let at = WriteAt::Pos(pos);
        let (_, done) = write(&self.fs, inode, None, at, bytes, &Cred::root()).unwrap();
        assert_eq!(done, bytes.len());
    }

    pub(super) fn get(&self, inode: &InodeRef, pos: u64, len: usize) -> Vec<u8> {
        bytes_of(&self.fs, inode, pos, len)
    }

    fn change(&self, inode: &InodeRef, mode: FallocateMode, first: u64, blocks: u64) {
        let range = (first * BLOCK, blocks * BLOCK);
        fallocate(&self.fs, inode, mode, range, &Cred::root()).unwrap();
    }

    pub(super) fn cut(&self, inode: &InodeRef, size: u64) {
        truncate(&self.fs, inode, size, &Cred::root()).unwrap();
    }

    /// The volume as a crash at this moment leaves it, mounted again.
    fn after_a_crash(&self) -> Arc<Fs> {
        let bytes = self.dev.inner().to_bytes();
        mounted(Arc::new(MemoryDevice::from_bytes(&bytes)), "", |_| ())
    }

    pub(super) fn end(&self) {
        Verifier::default().check(&self.fs, false).unwrap();
        mount::unmount(&self.fs).unwrap();
    }
}

fn mounted(
    dev: Arc<dyn extant_blockdev::BlockDevice>,
    options: &str,
    tune: impl FnOnce(&mut Tuning),
) -> Arc<Fs> {
    let mut tuning = Tuning {
        page_cache_bytes: Some(32 << 20),
        max_folio_order: 0,
        flushers: 0,
        ..Tuning::default()
    };
    tune(&mut tuning);
    let options = MountOptions::parse(&format!("commit=3000,{options}")).unwrap();
    mount::mount(dev, options, tuning).unwrap()
}

fn bytes_of(fs: &Arc<Fs>, inode: &InodeRef, pos: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; len];
    let done = read(fs, inode, None, ReadMode::Buffered, pos, &mut bytes).unwrap();
    bytes.truncate(done);
    bytes
}

/// Picks writes of file data whose bytes are all `tag`.
pub(super) fn writes_of(tag: u8) -> impl Fn(&Request<'_>) -> bool {
    move |request| {
        let all = || request.data.iter().all(|byte| *byte == tag);
        request.kind == RequestKind::Write && all()
    }
}

pub(super) fn any_read(request: &Request<'_>) -> bool {
    request.kind == RequestKind::Read
}

/// Starts `work`, which must wait: returns once it `waits`.
pub(super) fn waiting<'s>(
    scope: &'s Scope<'s, '_>,
    what: &str,
    work: impl FnOnce() + Send + 's,
    mut waits: impl FnMut() -> bool,
) -> ScopedJoinHandle<'s, ()> {
    let worker = scope.spawn(work);
    wait_until(what, || worker.is_finished() || waits());
    assert!(!worker.is_finished(), "it did not wait: {what}");
    worker
}

/// While a queued direct write of sevens to the fifth block of a file is on its way, runs `work`,
/// called `name`, which has to wait for it. `meanwhile` looks at the file while it does.
fn behind_a_direct_write(
    stage: &Stage,
    name: &str,
    work: impl FnOnce(&InodeRef) + Send,
    meanwhile: impl FnOnce(&InodeRef),
) -> InodeRef {
    let (fs, inode) = (&stage.fs, stage.file());
    drop_clean(&inode);
    let mut queue = Queue::new(fs, Cred::root(), 4);
    let closed = stage.dev.gate().close(writes_of(7));
    let job = QueuedRequest {
        direction: Direction::Write,
        pos: 4 * BLOCK,
        buf: IoBuf::copy_of(&[7; BLOCK_LEN]),
        tag: 0,
        after: AfterWrite::Nothing,
    };
    queue.submit(&inode, job);
    closed.wait_for(1);
    let tree = &file_state(fs, &inode).ranges;
    let before = tree.stats().lock_waits;
    std::thread::scope(|scope| {
        let closed = closed;
        let waits = || tree.stats().lock_waits > before || tree.has_sleepers();
        let worker = waiting(scope, name, || work(&inode), waits);
        meanwhile(&inode);
        drop(closed);
        worker.join().unwrap();
    });
    let mut over = Vec::new();
    queue.reap(1, &mut over);
    assert_eq!(over.pop().unwrap().result.unwrap(), BLOCK_LEN);
    drop(queue);
    inode
}

/// Blocks that a queued direct write is on its way to are not freed under it: they could be another
/// file's by the time the write arrives.
#[test]
fn range_operations_wait_for_direct_writes_in_flight() {
    for lock_slots in [true, false] {
        for mode in [PunchHole, CollapseRange, ZeroRange { keep_size: true }] {
            let stage = Stage::tuned("", |tuning| tuning.lock_slots = lock_slots);
            let stats = &stage.fs.stats;
            let work = |inode: &InodeRef| stage.change(inode, mode, 4, 2);
            let inode = behind_a_direct_write(&stage, "a range operation", work, |inode| {
                assert_eq!(stats.direct_fast_path.get(), 1, "it took the fast path");
                assert_eq!(stats.direct_slots.get(), u64::from(lock_slots));
                let there = map::lookup(&stage.fs, inode, Lblk::new(4), 1)
                    .unwrap()
                    .state;
                assert!(matches!(there, MapState::Written(_)), "{there:?}");
            });
            let now = if mode == CollapseRange { 1 } else { 0 };
            assert_eq!(stage.get(&inode, 4 * BLOCK, BLOCK_LEN), [now; BLOCK_LEN]);
            stage.end();
        }
    }
}

/// Between its flush and the moment when it empties the cache, an operation that moves ranges has
/// the file to itself. A write into the cache in between would be lost.
#[test]
fn a_cached_overwrite_waits_for_an_operation_that_has_the_file_alone() {
    let stage = Stage::new("");
    let (fs, inode) = (&stage.fs, &stage.file());
    stage.put(inode, 12 * BLOCK, &[7; BLOCK_LEN]);
    let closed = stage.dev.gate().close(writes_of(7));
    let before = fs.stats.lock_waits.get();
    std::thread::scope(|scope| {
        let closed = closed;
        let collapse = scope.spawn(|| stage.change(inode, CollapseRange, 1, 1));
        closed.wait_for(1);
        // With nothing to note, whatever the time is.
        let work = || {
            let at = WriteAt::UpperWriteback(8 * BLOCK);
            let (_, done) = write(fs, inode, None, at, &[9; 100], &Cred::root()).unwrap();
            assert_eq!(done, 100);
        };
        let waits = || fs.stats.lock_waits.get() > before;
        let writer = waiting(scope, "an overwrite", work, waits);
        drop(closed);
        collapse.join().unwrap();
        writer.join().unwrap();
    });
    assert_eq!(stage.get(inode, 8 * BLOCK, 101)[..100], [9; 100]);
    assert_eq!(stage.get(inode, 11 * BLOCK, BLOCK_LEN), [7; BLOCK_LEN]);
    stage.end();
}

/// A fill that has asked the map holds the invalidate lock until its bytes are there: no block is
/// freed under it.
#[test]
fn a_truncation_waits_for_a_fill() {
    let stage = Stage::new("");
    let (fs, inode) = (&stage.fs, &stage.file());
    drop_clean(inode);
    let lock = file_state(fs, inode).address_space.invalidate_lock();
    let closed = stage.dev.gate().close(any_read);
    std::thread::scope(|scope| {
        let closed = closed;
        let reader = scope.spawn(|| stage.get(inode, 8 * BLOCK, 100));
        closed.wait_for(1);
        let work = || stage.cut(inode, 4 * BLOCK);
        let waits = || lock.is_wanted_exclusively() || inode.size() != 16 * BLOCK;
        let worker = waiting(scope, "a truncation", work, waits);
        assert_eq!(inode.size(), 16 * BLOCK, "the size moved under a fill");
        drop(closed);
        worker.join().unwrap();
        assert_eq!(reader.join().unwrap(), [1; 100]);
    });
    assert_eq!(inode.size(), 4 * BLOCK);
    stage.end();
}

/// A write that ends early returns what was reserved for the rest; no fill may be on its way to
/// those blocks.
#[test]
fn a_short_write_waits_for_a_fill_before_it_gives_space_back() {
    let stage = Stage::new("");
    let (fs, inode) = (&stage.fs, &stage.file());
    stage.cut(inode, 64 * BLOCK);
    fsync(fs, inode, None, false).unwrap();
    drop_clean(inode);
    let lock = file_state(fs, inode).address_space.invalidate_lock();
    let closed = stage.dev.gate().close(any_read);
    std::thread::scope(|scope| {
        let closed = closed;
        let reader = scope.spawn(|| stage.get(inode, 8 * BLOCK, 100));
        closed.wait_for(1);
        let work = || {
            let cx = FileContext::new(fs, inode);
            let at = Pos::new(32 * BLOCK);
            let done = data_path::write(&cx, at, 16 * BLOCK_LEN, &mut &[2; 5000][..]);
            assert!(done.unwrap() >= BLOCK_LEN);
        };
        let waits = || lock.is_wanted_exclusively();
        let worker = waiting(scope, "the end of a short write", work, waits);
        drop(closed);
        worker.join().unwrap();
        assert_eq!(reader.join().unwrap(), [1; 100]);
    });
    assert!(fs.alloc.counts.reserved_blocks().get() <= 2);
    stage.end();
}

/// A write that ends early returns what was reserved for the rest, also where its folio has come
/// under writeback by then.
#[test]
fn j8_a_short_write_waits_for_writeback_before_it_gives_space_back() {
    let stage = Stage::tuned("", |tuning| tuning.max_folio_order = 4);
    let (fs, inode) = (&stage.fs, &stage.create("file"));
    stage.cut(inode, 64 * BLOCK);
    let lock = file_state(fs, inode).address_space.invalidate_lock();
    let waits = || fs.files.pages.stats().stable_waits;
    std::thread::scope(|scope| {
        let no_end = lock.read();
        let short = || {
            let cx = FileContext::new(fs, inode);
            let at = Pos::new(32 * BLOCK);
            let done = data_path::write(&cx, at, 16 * BLOCK_LEN, &mut &[2; 5000][..]);
            assert_eq!(done.unwrap(), BLOCK_LEN);
        };
        let asks = || lock.is_wanted_exclusively();
        let worker = waiting(scope, "the end of a short write", short, asks);
        let closed = stage.dev.gate().close(writes_of(2));
        let syncer = scope.spawn(|| fsync(fs, inode, None, false).unwrap());
        closed.wait_for(1);
        let quiet = waits();
        drop(no_end);
        wait_until("the end", || worker.is_finished() || waits() > quiet);
        drop(closed);
        worker.join().unwrap();
        syncer.join().unwrap();
    });
    assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0);
    assert_eq!(stage.get(inode, 32 * BLOCK, BLOCK_LEN), [2; BLOCK_LEN]);
    stage.end();
}

/// A large piece that a mount hands over makes the file longer when all of it is done, and not
/// before: a failure on the way leaves the file as it was.
#[test]
fn a_write_through_that_fails_moves_no_size() {
    let stage = Stage::new("");
    let (fs, inode) = (&stage.fs, &stage.file());
    std::thread::scope(|scope| {
        let closed = stage.dev.gate().close(writes_of(3));
        let writer = scope.spawn(|| {
            let at = WriteAt::UpperWriteback(16 * BLOCK);
            write(fs, inode, None, at, &[3; 64 * BLOCK_LEN], &Cred::root())
        });
        closed.wait_for(1);
        fs.fault.shut_down(fs, "a test");
        drop(closed);
        assert!(writer.join().unwrap().is_err());
    });
    assert_eq!(inode.size(), 16 * BLOCK);
}

/// A reader that has cached the block of the old end sees that end or what was written behind it,
/// never the zeros that the block was filled with.
#[test]
fn a_write_through_shows_the_old_end_or_its_data() {
    let stage = Stage::new("");
    let (fs, inode) = (&stage.fs, &stage.file());
    stage.put(inode, 16 * BLOCK, &[1; 100]);
    fsync(fs, inode, None, false).unwrap();
    let seen = || stage.get(inode, 16 * BLOCK, BLOCK_LEN);
    let lock = file_state(fs, inode).address_space.invalidate_lock();
    let closed = stage.dev.gate().close(writes_of(3));
    std::thread::scope(|scope| {
        let closed = closed;
        let writer = scope.spawn(|| {
            let at = WriteAt::UpperWriteback(16 * BLOCK);
            write(fs, inode, None, at, &[3; 64 * BLOCK_LEN], &Cred::root()).unwrap()
        });
        closed.wait_for(1);
        assert_eq!(seen(), [1; 100]);
        let folio_stays = lock.read();
        drop(closed);
        wait_until("the end of the part", || {
            writer.is_finished() || lock.is_wanted_exclusively()
        });
        let now = seen();
        assert!(now == [1; 100] || now == [3; BLOCK_LEN], "{now:?}");
        drop(folio_stays);
        assert_eq!(writer.join().unwrap(), (16 * BLOCK, 64 * BLOCK_LEN));
    });
    assert_eq!(seen(), [3; BLOCK_LEN]);
    stage.end();
}

/// No write that is in flight arrives once the file is immutable, whichever call made it so.
#[test]
fn a_file_becomes_immutable_after_writes_in_flight() {
    let calls: [fn(&Stage, &InodeRef); 2] = [
        |stage, inode| {
            let flags = get_flags(inode) | InodeFlags::IMMUTABLE.bits();
            set_flags(&stage.fs, inode, flags, &Cred::root()).unwrap();
        },
        |stage, inode| {
            let mut all = FlagSet::get(inode);
            all.xflags |= 0x8;
            all.set(&stage.fs, inode, &Cred::root()).unwrap();
        },
    ];
    for call in calls {
        let stage = Stage::new("");
        let inode = behind_a_direct_write(&stage, "the flag", |inode| call(&stage, inode), |_| ());
        drop(inode);
        stage.end();
    }
}

/// From the moment when it empties the cache until its map has changed, a range operation keeps
/// writeback of the file away.
///
/// The operation is stopped in between: a handle of the test's keeps a transaction from ending, so
/// no other can start.
#[test]
fn range_operations_keep_writeback_away_until_the_map_has_changed() {
    for mode in [PunchHole, CollapseRange, InsertRange] {
        let stage = Stage::new("");
        let (fs, inode) = (&stage.fs, &stage.file());
        // Extents of their own, so that no cut comes first.
        stage.change(inode, PunchHole, 3, 1);
        stage.change(inode, PunchHole, 8, 1);
        fsync(fs, inode, None, false).unwrap();
        assert_eq!(stage.get(inode, 0, 16 * BLOCK_LEN).len(), 16 * BLOCK_LEN);
        let mapping = &file_state(fs, inode).address_space;
        let (start, end) = (Pos::new(4 * BLOCK), Pos::new(8 * BLOCK));
        let is_cached = || mapping.next(start).is_some_and(|folio| folio.start() < end);
        assert!(is_cached() && !mapping.is_in_pass());
        let mut open = fs.start(credits::INODE_UPDATE).unwrap();
        fs.journal.request_commit(open.tid());
        wait_until("the commit begins", || !open.extend(0).unwrap());
        std::thread::scope(|scope| {
            let open = open;
            let work = || stage.change(inode, mode, 4, 4);
            let worker = waiting(scope, "a range operation", work, || !is_cached());
            assert!(mapping.is_in_pass(), "{mode:?}");
            drop(open);
            worker.join().unwrap();
        });
        assert!(!mapping.is_in_pass());
        stage.end();
    }
}

/// data=ordered: data that writeback has handed to the device is waited for by the commit of its
/// blocks.
#[test]
fn a_commit_waits_for_ordered_data_in_flight() {
    let stage = Stage::new("nobuffered_iomap,dioread_lock");
    let (fs, inode) = (&stage.fs, &stage.create("file"));
    fs.journal.force_commit().unwrap();
    stage.put(inode, 0, &[7; 4 * BLOCK_LEN]);
    let flight = &file_state(fs, inode).flight;
    let closed = stage.dev.gate().close(writes_of(7));
    std::thread::scope(|scope| {
        let closed = closed;
        let all = WritebackControl::integrity(Pos::ZERO, Pos::MAX);
        let writer = scope.spawn(move || writeback_range(fs, inode, all).unwrap());
        closed.wait_for(1);
        let there = map::lookup(fs, inode, Lblk::ZERO, 1).unwrap().state;
        assert!(matches!(there, MapState::Written(_)), "{there:?}");
        let work = || assert!(fs.journal.force_commit().unwrap());
        let commit = waiting(scope, "a commit", work, || flight.is_waited_for());
        drop(closed);
        commit.join().unwrap();
        writer.join().unwrap();
    });
    stage.end();
}

/// A rename over another file waits for data that a flusher has handed to the device: a crash after
/// its commit shows the old content or the new one.
#[test]
fn a_rename_over_a_file_waits_for_data_in_flight() {
    let stage = Stage::new("");
    let (fs, inode) = (&stage.fs, &stage.create("new"));
    let old = stage.file();
    stage.put(inode, 0, &[7; 4 * BLOCK_LEN]);
    let closed = stage.dev.gate().close(writes_of(7));
    std::thread::scope(|scope| {
        let closed = closed;
        let all = WritebackControl::integrity(Pos::ZERO, Pos::MAX);
        let flusher = scope.spawn(move || writeback_range(fs, inode, all).unwrap());
        closed.wait_for(1);
        assert!(!inode.has_dirty_data(), "all of it is in flight");
        let work = || {
            let root = fs.iget(Ino::ROOT).unwrap();
            let [from, to] =
                [b"new".as_slice(), b"file"].map(|name| ParentAndName::new(&root, name));
            let flags = crate::RenameFlags::default();
            namei::rename(fs, from, to, flags, &Cred::root()).unwrap();
        };
        // Nothing tells that a thread waits for a pass. A rename that does not is over by then.
        let mut looks = 0;
        let rename = waiting(scope, "a rename", work, || {
            std::thread::sleep(Duration::from_millis(1));
            looks += 1;
            looks == 100
        });
        drop(closed);
        rename.join().unwrap();
        flusher.join().unwrap();
    });
    assert_eq!(inode.core.read().disk_size, 4 * BLOCK);
    drop(old);
    stage.end();
}

/// data=ordered: a commit writes the data of a file that no thread uses. Another inode of the same
/// number would read what the device had before.
#[test]
fn an_inode_stays_in_memory_while_a_commit_writes_its_data() {
    let stage = Stage::new("nobuffered_iomap,dioread_lock,nodelalloc");
    let fs = &stage.fs;
    let file = stage.create("file");
    fs.journal.force_commit().unwrap();
    stage.put(&file, 0, &[7; BLOCK_LEN]);
    inode::flush_times(fs, &file).unwrap();
    let inode = Arc::clone(file.shared());
    drop(file);
    assert!(!InodeCache::would_evict(&inode), "it is dirty");
    let closed = stage.dev.gate().close(writes_of(7));
    std::thread::scope(|scope| {
        let closed = closed;
        let commit = scope.spawn(|| assert!(fs.journal.force_commit().unwrap()));
        closed.wait_for(1);
        assert!(!InodeCache::would_evict(&inode), "its data is on its way");
        drop(closed);
        commit.join().unwrap();
    });
    let goes = [(); 2].map(|()| InodeCache::would_evict(&inode));
    assert_eq!(goes, [false, true], "a second chance, then none");
    drop(inode);
    stage.end();
}

/// data=ordered: a transaction is committing while one of its files loses its data. The commit can
/// not find that data any more, so it is written before it goes: a crash after that commit shows
/// it, not what the blocks held before.
#[test]
fn ordered_data_is_written_before_it_is_dropped() {
    type Drops = fn(&Stage, &InodeRef);
    let cut: Drops = |stage, inode| stage.cut(inode, 0);
    let punch: Drops = |stage, inode| stage.change(inode, PunchHole, 0, 4);
    for (nth, drops) in [cut, punch].into_iter().enumerate() {
        let stage = Stage::new("nobuffered_iomap,dioread_lock,nodelalloc");
        let fs = &stage.fs;
        let [first, second] = ["first", "second"].map(|name| stage.create(name));
        fs.journal.force_commit().unwrap();
        stage.put(&first, 0, &[7; BLOCK_LEN]);
        stage.put(&second, 0, &[8; 4 * BLOCK_LEN]);
        let closed = stage.dev.gate().close(writes_of(7));
        std::thread::scope(|scope| {
            let closed = closed;
            let commit = scope.spawn(|| assert!(fs.journal.force_commit().unwrap()));
            // The commit is at the first file's data, and has not come to the second's.
            closed.wait_for(1);
            drops(&stage, &second);
            drop(closed);
            commit.join().unwrap();
        });
        let after = stage.after_a_crash();
        let root = after.iget(Ino::ROOT).unwrap();
        let second_then = namei::lookup(&after, &root, b"second").unwrap();
        assert_eq!(
            second_then.size(),
            4 * BLOCK,
            "{nth}: the test sees nothing"
        );
        let bytes = bytes_of(&after, &second_then, 0, 4 * BLOCK_LEN);
        assert!(!bytes.contains(&JUNK), "{nth}: old bytes show");
        assert_eq!(bytes, [8; 4 * BLOCK_LEN], "{nth}");
        drop((root, second_then));
        mount::unmount(&after).unwrap();
        drop((first, second));
        stage.end();
    }
}
