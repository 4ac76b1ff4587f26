//! The fast path of direct requests: those that need nothing but the device.
//!
//! Most touch nothing that other queues of the same file change: their range is locked by a lock
//! slot ([`RangeLock::try_lock_slot`]), sizes and the sequence of the map are read, and the
//! location is remembered from an earlier request ([`KnownRuns`]). A request that gets no slot (it
//! is long, or none is free) takes the inode's `lock` shared and locks a record, as every writer
//! does.
//!
//! # Concurrency
//! The slot excludes writers, truncation, fills of the cache and holders of the inode's `lock`.
//! Sizes, the map's sequence and the cache are looked at after it is held: a holder of a
//! conflicting lock came to its end before, so what it did is seen, or comes later and waits.

use std::io;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_iomap::{DeviceFault, DeviceRequest, IomapOps};
use extant_range_lock::{ByteRange, HasRangeLock, OwnedRangeGuard, RangeLock, SlotGuard};
use extant_units::{DevOff, Pos};

use crate::config::BufferedPath;
use crate::file::direct::known_runs::KnownRuns;
use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::round_out_to_blocks;
use crate::file::{block_span, data_path, file_state};
use crate::inode;
use crate::inode::SharedGuard;
use crate::state::file::FileState;
use crate::state::inode::InodeRef;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::xattr::privileges;

/// A request that needs nothing but the device. Its range is unlocked when this goes.
pub(in crate::file) struct FastRequest {
    /// Offset on the device.
    pub(in crate::file) at: DevOff,
    len: usize,
    direction: Direction,
    range: Range,
}

/// A locked range, against writers and fills, and the request's reference to the inode.
enum Range {
    Slot(SlotGuard<InodeRef>),
    Record(OwnedRangeGuard, Arc<InodeRef>),
}

impl Range {
    /// Unlocks the range. Returns the reference, whose drop may have the inode evicted.
    #[inline]
    fn unlock(self) -> Option<Arc<InodeRef>> {
        match self {
            Self::Slot(slot) => slot.unlock(),
            Self::Record(record, file) => {
                drop(record);
                Some(file)
            }
        }
    }
}

impl HasRangeLock for InodeRef {
    #[inline]
    fn range_lock(&self) -> &RangeLock {
        match self.file_state.get() {
            Some(state) => &state.ranges,
            None => unreachable!("a file's data is made before a range of it is locked"),
        }
    }
}

impl FastRequest {
    /// The device has answered. Unlocks the range; the caller drops the reference to the inode,
    /// under no lock.
    pub(in crate::file) fn end(
        self,
        fs: &Fs,
        answer: io::Result<()>,
    ) -> (Result<usize>, Option<Arc<InodeRef>>) {
        let result = match answer {
            Ok(()) => Ok(self.len),
            Err(source) => Err(self.fault(fs, source)),
        };
        (result, self.range.unlock())
    }

    #[cold]
    fn fault(&self, fs: &Fs, source: io::Error) -> Error {
        let request = match self.direction {
            Direction::Read => DeviceRequest::Read,
            Direction::Write => {
                fs.files.stats.failed_ioends.bump();
                DeviceRequest::Write
            }
        };
        let fault = DeviceFault {
            request,
            at: self.at,
            len: self.len as u64,
            source,
        };
        fault.into()
    }
}

/// Direction of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One request, as far as it matters here.
#[derive(Clone, Copy)]
pub(in crate::file) struct DirectRequest<'a> {
    pub(in crate::file) direction: Direction,
    pub(in crate::file) pos: u64,
    pub(in crate::file) len: usize,
    pub(in crate::file) cred: &'a Cred,
}

/// Prepares `request` to `file` to go to the device at once, if it can; nothing has happened
/// otherwise. Never waits for another writer.
///
/// # Errors
/// The request is refused, as it would be by a call.
pub(in crate::file) fn take_fast_path(
    fs: &Arc<Fs>,
    file: &Arc<InodeRef>,
    request: DirectRequest<'_>,
    known_runs: &mut KnownRuns,
) -> Result<Option<FastRequest>> {
    match request.direction {
        Direction::Read => fs.fault.check_alive()?,
        Direction::Write => fs.check_writable()?,
    }
    let inode = file.shared();
    require_regular(inode)?;
    let bs = fs.layout.block_size;
    let (pos, len) = (Pos::new(request.pos), request.len);
    // A range that no file can have lies behind every size: it takes the other way.
    let end = pos.saturating_add(len as u64);
    if len == 0 || bs.offset_in_block(pos) != 0 || len % bs.bytes() != 0 {
        return Ok(None);
    }
    let state = file_state(fs, inode);
    if state.data_path.get().kind != BufferedPath::Iomap {
        return Ok(None);
    }
    state.direct.announce(&state.address_space);
    let bytes = round_out_to_blocks(bs, pos.get(), end.get());
    let (range, _shared) = match lock_slot(fs, file, bytes) {
        Some(slot) => (Range::Slot(slot), None),
        None => match lock_record(file, state, bytes) {
            Some((record, shared)) => (Range::Record(record, Arc::clone(file)), Some(shared)),
            None => return Ok(None),
        },
    };
    let cx = FileContext::new(fs, inode);
    if !may_bypass_cache(&cx, request.direction) {
        return Ok(None);
    }
    if cx.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(None);
    }
    data_path::require_data_in_blocks(&cx)?;
    if cx.needs_cache() || !is_inside_and_uncached(&cx, pos, end) {
        return Ok(None);
    }
    let Some((lblk, count)) = block_span(fs, pos, len as u64) else {
        return Err(Error::FileTooBig);
    };
    let Some(at) = known_runs.find(&cx, lblk, count)? else {
        return Ok(None);
    };
    if request.direction == Direction::Write && !privileges::is_modification_recorded(inode) {
        // Attributes do not change meanwhile.
        let Some(_shared) = inode.try_lock_shared() else {
            return Ok(None);
        };
        privileges::file_modified(fs, inode, request.cred)?;
    }
    if matches!(range, Range::Slot(_)) {
        fs.stats.direct_slots.bump();
    }
    count_request(&cx, &request);
    debug_assert_eq!(at.get() % bs.bytes_u64(), 0, "whole blocks of the device");
    Ok(Some(FastRequest {
        at,
        len,
        direction: request.direction,
        range,
    }))
}

/// Returns whether requests of this direction to the file can go to the device now, past the cache.
#[inline]
fn may_bypass_cache(cx: &FileContext<'_>, direction: Direction) -> bool {
    let special = InodeFlags::IMMUTABLE | InodeFlags::SYNC;
    let can_bypass =
        cx.data_path.kind == BufferedPath::Iomap && !cx.data_path.journalled && !cx.inode.is_gone();
    let special = cx.fs.options.sync() || cx.flags.intersects(special);
    can_bypass && !(direction == Direction::Write && special)
}

/// Returns whether `[pos, end)`, which is locked, lies below both sizes, so that there is nothing
/// to move, and nothing of it is cached.
#[inline]
fn is_inside_and_uncached(cx: &FileContext<'_>, pos: Pos, end: Pos) -> bool {
    let cache = &cx.state.address_space;
    let inside = end.get() <= cx.inode.disk_size() && end.get() <= cx.inode.size();
    let is_cached = || cache.next(pos).is_some_and(|folio| folio.start() < end);
    inside && (cache.is_empty() || !is_cached())
}

/// Counts a request on the fast path; a read notes its time.
#[inline]
fn count_request(cx: &FileContext<'_>, request: &DirectRequest<'_>) {
    let stats = &cx.fs.stats;
    stats.direct_fast_path.bump();
    match request.direction {
        Direction::Read => {
            stats.direct_reads.bump();
            inode::touch_atime(cx.fs, cx.inode);
        }
        Direction::Write => {
            stats.direct_writes.bump();
            cx.counters().ioends.bump();
            cx.counters().written_bytes.add(request.len as u64);
        }
    }
}

/// Locks `bytes` by a slot, if the mount uses them.
#[inline]
fn lock_slot(fs: &Fs, file: &Arc<InodeRef>, bytes: ByteRange) -> Option<SlotGuard<InodeRef>> {
    let wanted = fs.tuning.lock_slots;
    wanted.then(|| RangeLock::try_lock_slot(file, bytes, &file.lock))?
}

/// Locks `bytes` by a record. The guard of the inode's `lock` is needed until the request has been
/// judged; a drain waits for the record after that.
fn lock_record<'a>(
    file: &'a InodeRef,
    state: &FileState,
    bytes: ByteRange,
) -> Option<(OwnedRangeGuard, SharedGuard<'a>)> {
    let shared = file.try_lock_shared()?;
    let record = state.ranges.try_lock_direct(bytes, &shared)?;
    Some((record, shared))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use extant_blockdev::{IoBuf, MemoryDevice};
    use extant_testkit::Image;
    use extant_units::Ino;

    use super::*;
    use crate::config::MountOptions;
    use crate::config::Tuning;
    use crate::file::direct_queue::{Queue, QueuedRequest};
    use crate::file::range_lock;
    use crate::file::{WriteAt, fsync, truncate, write};
    use crate::map;
    use crate::mount;
    use crate::namei;
    use crate::types::AfterWrite;

    const LEN: usize = 1 << 20;

    fn fill(fs: &Arc<Fs>, file: &InodeRef) {
        let at = WriteAt::Pos(0);
        write(fs, file, None, at, &vec![1; LEN], &Cred::root()).unwrap();
        fsync(fs, file, None, false).unwrap();
        file_state(fs, file)
            .address_space
            .drop_clean(Pos::ZERO, Pos::MAX);
    }

    fn set_up(lock_slots: bool) -> (Arc<Fs>, Arc<InodeRef>) {
        let image = Image::of_mib(32).args("-b 4096").make().unwrap();
        let device = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
        let tuning = Tuning {
            lock_slots,
            flushers: 0,
            ..Tuning::default()
        };
        // No commit comes by itself while a test runs.
        let options = MountOptions::parse("commit=300").unwrap();
        let fs = mount::mount(Arc::new(device), options, tuning).unwrap();
        let root = fs.iget(Ino::ROOT).unwrap();
        let file = namei::create(&fs, &root, b"direct", 0o644, &Cred::root()).unwrap();
        fill(&fs, &file);
        (fs, Arc::new(file))
    }

    fn ask(
        fs: &Arc<Fs>,
        file: &Arc<InodeRef>,
        known_runs: &mut KnownRuns,
        pos: u64,
    ) -> Option<FastRequest> {
        let request = DirectRequest {
            direction: Direction::Write,
            pos,
            len: 4096,
            cred: &Cred::root(),
        };
        let got = take_fast_path(fs, file, request, known_runs).unwrap();
        let locked = file_state(fs, file).ranges.is_range_locked();
        assert_eq!(locked, got.is_some(), "what is refused holds nothing");
        got
    }

    #[test]
    fn a_request_takes_the_fast_path_unless_the_file_or_its_end_is_locked() {
        for slots in [true, false] {
            let (fs, file) = set_up(slots);
            let known_runs = &mut KnownRuns::default();
            let state = file_state(&fs, &file);
            for _ in 0..2 {
                assert!(ask(&fs, &file, known_runs, 8192).is_some());
                let alone = range_lock::lock_whole_file(&fs, &file);
                assert!(ask(&fs, &file, known_runs, 8192).is_none());
                drop(alone);
                let end = state.ranges.try_lock_eof(8192, &file.lock).unwrap();
                assert!(ask(&fs, &file, known_runs, 8192).is_none());
                assert!(ask(&fs, &file, known_runs, 4096).is_some());
                drop(end);
            }
            let read = crate::file::ReadMode::Buffered;
            crate::file::read(&fs, &file, None, read, 8192, &mut [0; 10]).unwrap();
            assert!(ask(&fs, &file, known_runs, 8192).is_none(), "it is cached");
            assert_eq!(fs.stats.direct_fast_path.get(), 4);
            assert_eq!(fs.stats.direct_slots.get(), if slots { 4 } else { 0 });
            drop(alone_is_granted(&fs, &file));
            mount::unmount(&fs).unwrap();
        }
    }

    /// Parts of blocks are read before they are written, which takes the other way.
    #[test]
    fn the_fast_path_takes_whole_blocks() {
        let (fs, file) = set_up(true);
        let known_runs = &mut KnownRuns::default();
        for (pos, len) in [(512, 4096), (4096, 512), (512, 512), (4096, 0)] {
            let request = DirectRequest {
                direction: Direction::Write,
                pos,
                len,
                cred: &Cred::root(),
            };
            let got = take_fast_path(&fs, &file, request, known_runs).unwrap();
            assert!(got.is_none(), "{len} bytes from {pos} on");
            assert!(!file_state(&fs, &file).ranges.is_range_locked());
        }
        mount::unmount(&fs).unwrap();
    }

    fn alone_is_granted<'a>(fs: &Fs, file: &'a InodeRef) -> impl Sized + use<'a> {
        range_lock::lock_whole_file(fs, file)
    }

    /// A queue whose requests have all been reaped is idle.
    #[test]
    fn an_idle_queue_remembers_the_runs_of_its_latest_file() {
        let (fs, file) = set_up(true);
        let root = fs.iget(Ino::ROOT).unwrap();
        let other = namei::create(&fs, &root, b"other", 0o644, &Cred::root()).unwrap();
        fill(&fs, &other);
        let mut queue = Queue::new(&fs, Cred::root(), 4);
        // Writes block `pos` of `inode`; returns how often the map was asked.
        let mut put = |inode: &InodeRef, block: u64, byte: u8| {
            let before = fs.stats.es_hits.get();
            let job = QueuedRequest {
                direction: Direction::Write,
                pos: block * 4096,
                buf: IoBuf::copy_of(&[byte; 4096]),
                tag: 0,
                after: AfterWrite::Nothing,
            };
            queue.submit(inode, job);
            let mut done = Vec::new();
            queue.reap(1, &mut done);
            assert_eq!(done.pop().unwrap().result.unwrap(), 4096);
            assert_eq!(queue.outstanding(), 0);
            fs.stats.es_hits.get() - before
        };
        assert_eq!(put(&file, 0, 2), 1);
        assert_eq!([put(&file, 3, 3), put(&file, 200, 4)], [0, 0]);
        assert_eq!(put(&other, 3, 5), 1, "another file");
        assert_eq!(put(&file, 4, 6), 1, "and back");
        drop(queue);
        let block = |inode: &InodeRef, block: u64| {
            let mut bytes = [0; 4096];
            let read = crate::file::ReadMode::Buffered;
            crate::file::read(&fs, inode, None, read, block * 4096, &mut bytes).unwrap();
            bytes[0]
        };
        assert_eq!([0, 3, 4, 200].map(|at| block(&file, at)), [2, 3, 6, 4]);
        assert_eq!([0, 3, 4, 200].map(|at| block(&other, at)), [1, 5, 1, 1]);
        drop((file, other, root));
        mount::unmount(&fs).unwrap();
    }

    #[test]
    fn a_run_is_remembered_until_the_map_changes() {
        let (fs, file) = set_up(true);
        let known_runs = &mut KnownRuns::default();
        let hits = || fs.stats.es_hits.get();
        let first = ask(&fs, &file, known_runs, 0).unwrap().at;
        let before = hits();
        for block in [0, 3, 200] {
            let at = ask(&fs, &file, known_runs, block * 4096).unwrap().at;
            assert_eq!(at, first.saturating_add(block * 4096));
        }
        assert_eq!(hits(), before, "the map was not asked again");
        truncate(&fs, &file, 0, &Cred::root()).unwrap();
        assert!(ask(&fs, &file, known_runs, 0).is_none());
        // No file gets the old blocks before that is durable.
        fill(&fs, &file);
        let now = ask(&fs, &file, known_runs, 4096).unwrap().at;
        let map = map::lookup(&fs, &file, extant_units::Lblk::new(1), 1).unwrap();
        let mapping = FileContext::new(&fs, &file).to_iomap(&map).unwrap();
        assert_eq!(Some(now), mapping.device_at(Pos::new(4096)));
        assert_ne!(now, first.saturating_add(4096));
        assert_eq!(file.size(), file.disk_size());
        file.size.store(4096, Ordering::Release);
        assert!(
            ask(&fs, &file, known_runs, 4096).is_none(),
            "behind the end"
        );
        file.size.store(LEN as u64, Ordering::Release);
        mount::unmount(&fs).unwrap();
    }
}
