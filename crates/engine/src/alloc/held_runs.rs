//! Runs that are free on disk and held back in memory, and giving them back.
//!
//! A run is held because the transaction that freed it is not durable yet, because it is a growing
//! file's window, or because the device is being told of it. Each free goes onto its transaction's
//! list. One callback per transaction returns the whole list to the groups once the commit is
//! durable. If the journal aborts, nothing comes back, as nothing may be written any more.

use extant_sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_jbd2::Handle;
use extant_units::{Blocks, Ino, Tid};

use crate::state::alloc::{AllocatorCore, MAX_WINDOW_BYTES, Run, Stream, WindowCheckout};

/// A window is at most one part in so many of the blocks that are not reserved: what a few threads
/// have checked out at the same moment is not all that is free.
const MOST_SHARE: u64 = 64;

impl AllocatorCore {
    /// Makes `run` usable when `h`'s transaction is durable. The run lies in one group and is held
    /// there.
    pub(super) fn release_on_commit(self: &Arc<Self>, h: &mut Handle, run: Run) {
        let tid = h.tid();
        if self.failpoint.is(Failpoint::DiscardBeforeCommit) {
            self.discard(run);
        }
        self.pending.blocks.fetch_add(run.len.get(), Relaxed);
        let mut lists = self.pending.lists.lock();
        let list = lists.entry(tid).or_default();
        let first = list.is_empty();
        // Deleting a file frees neighbours in either direction.
        if !list.last_mut().is_some_and(|last| join(last, run, self)) {
            list.push(run);
        }
        drop(lists);
        if first {
            let core = Arc::clone(self);
            h.on_commit(Box::new(move || core.release_freed(tid)));
        }
    }

    /// The transaction is durable: makes its freed blocks usable.
    fn release_freed(&self, tid: Tid) {
        let Some(list) = self.pending.lists.lock().remove(&tid) else {
            return;
        };
        for run in list {
            if !self.discard(run) {
                self.forget_trim(run);
            }
            self.release_held(run);
            let before = self.pending.blocks.fetch_sub(run.len.get(), Relaxed);
            debug_assert!(
                run.len.get() <= before,
                "{run:?} of {before} pending blocks"
            );
        }
    }

    /// Discards the run on the device, if the mount asks for it. Returns whether the device was
    /// told. After a failure the hint is lost, which costs only space below.
    fn discard(&self, run: Run) -> bool {
        let Some(dev) = &self.discard else {
            return false;
        };
        let bs = self.layout.block_size;
        let (Some(offset), Some(len)) = (bs.dev_off(run.start), bs.bytes_of(run.len)) else {
            return false;
        };
        let told = dev.discard(offset, len);
        if let Err(error) = &told {
            tracing::warn!(%error, block = run.start.get(), "discard failed");
        }
        self.stats
            .discarded_blocks
            .add(if told.is_ok() { run.len.get() } else { 0 });
        told.is_ok()
    }

    /// Notes that the group of `run` has free blocks again that the device was not told of.
    fn forget_trim(&self, run: Run) {
        if let Some((group, _)) = self.range_in_group(run)
            && let Ok(mut locked) = self.groups.lock(group)
        {
            locked.state.trimmed = None;
        }
    }

    /// Makes a held run usable again. The run lies in one group.
    pub(super) fn release_held(&self, run: Run) {
        let Some((group, range)) = self.range_in_group(run) else {
            return;
        };
        let Ok(mut locked) = self.groups.lock(group) else {
            return;
        };
        let Some(map) = locked.state.map.as_mut() else {
            return;
        };
        let joined = map.release(range);
        let longest = locked.hints.longest.load(Relaxed).max(joined);
        locked.publish(Some(longest));
    }

    /// The clusters that `run` touches.
    pub(super) fn whole_clusters(&self, run: Run) -> Run {
        let start = self.layout.cluster_floor(run.start);
        let before = run.start.distance_from(start).unwrap_or(0);
        Run {
            start,
            len: Blocks::new(self.layout.in_whole_clusters(before + run.len.get())),
        }
    }

    /// A run of clusters within one group, as its group and their indices there.
    pub(super) fn range_in_group(
        &self,
        run: Run,
    ) -> Option<(extant_units::Group, std::ops::Range<u32>)> {
        debug_assert_eq!(
            self.whole_clusters(run),
            run,
            "space is allocated in clusters"
        );
        let (group, start) = self.layout.cluster_of_block(run.start)?;
        let len = u32::try_from(run.len.get() >> self.layout.cluster_bits).ok()?;
        let end = start.checked_add(len)?;
        debug_assert!(
            end <= self.layout.clusters_per_group(),
            "{run:?} in one group"
        );
        Some((group, start..end))
    }

    /// The largest window that may be held now, in blocks: a small part of those that are not
    /// reserved, so that those that are checked out do not hold the last free blocks.
    pub(super) fn max_window(&self) -> u64 {
        let share = self.counts.available().get() / MOST_SHARE;
        self.largest_window().min(share) >> self.layout.cluster_bits << self.layout.cluster_bits
    }

    /// The largest window of all, in blocks.
    fn largest_window(&self) -> u64 {
        let clusters = MAX_WINDOW_BYTES / self.layout.cluster_bytes();
        clusters << self.layout.cluster_bits
    }

    /// Blocks to look for in one piece when a stream of `contiguous` blocks so far asks for `want`:
    /// the request, and as much again as the stream has.
    pub(super) fn window_target(&self, want: u64, contiguous: u64) -> u64 {
        let window = contiguous.min(self.max_window());
        (want + window).min(self.largest_window()).max(want)
    }

    /// Remembers the stream of `ino`, without what its window has more than may be held.
    pub(super) fn remember(&self, checkout: &WindowCheckout<'_>, ino: Ino, mut stream: Stream) {
        let most = self.max_window();
        if stream.window_len > most {
            self.release_held(Run {
                start: stream.next.plus(most),
                len: Blocks::new(stream.window_len - most),
            });
            stream.window_len = most;
        }
        if let Some(window) = checkout.put_stream(ino, stream) {
            self.release_held(window);
        }
    }

    /// Gives up the window of `ino`. A thread that waits for all windows gives it up soon.
    pub(super) fn release_window(&self, ino: Ino) {
        if let Some(checkout) = self.streams.try_check_out(ino)
            && let Some(window) = checkout.take_stream(ino).and_then(|stream| stream.window())
        {
            self.release_held(window);
        }
    }

    /// Gives up all windows but those that other threads have checked out. Returns whether there
    /// was one.
    pub(super) fn release_all_windows(&self) -> bool {
        self.streams.take_all(|window| self.release_held(window))
    }

    /// Gives up all windows, once those that are checked out are back. The caller holds no group
    /// lock.
    pub(super) fn drain_windows(&self) {
        self.streams
            .wait_and_take_all(|window| self.release_held(window));
    }
}

/// Extends `last` by `next` if they touch and lie in one group.
fn join(last: &mut Run, next: Run, core: &AllocatorCore) -> bool {
    let same_group = |a: extant_units::Pblk, b| {
        let group = |p| core.layout.group_of_block(p).map(|(group, _)| group);
        group(a) == group(b)
    };
    let Some(len) = last.len.checked_add(next.len) else {
        return false;
    };
    if !same_group(last.start, next.start) {
        return false;
    }
    if last.start.checked_add(last.len.get()) == Some(next.start) {
        last.len = len;
        return true;
    }
    if next.start.checked_add(next.len.get()) == Some(last.start) {
        *last = Run {
            start: next.start,
            len,
        };
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;

    use extant_blockdev::{BlockDevice, MemoryDevice};
    use extant_sync::Mutex;
    use extant_sync::atomic::AtomicBool;
    use extant_testkit::Image;
    use extant_units::{DevOff, Group, Pblk};

    use super::*;
    use crate::alloc::{allocate_blocks, free_blocks, trim};
    use crate::state::alloc::AllocRequest;
    use crate::test_support::test_mount::TestFs;
    use crate::test_support::test_rig::Rig;

    /// Groups of 1024 blocks of 1 KiB.
    const GROUPS: &str = "-b 1024 -m 0 -g 1024 -N 256 -O ^has_journal,^resize_inode";

    fn run(start: u64, len: u64) -> Run {
        Run {
            start: Pblk::new(start),
            len: Blocks::new(len),
        }
    }

    #[test]
    fn runs_join_where_they_touch_within_a_group() {
        let image = Image::of_mib(16).args(GROUPS).make().unwrap();
        let rig = Rig::open(&image).unwrap();
        let start = rig.layout.group_start(Group::new(3)).get();
        let last = run(start + 100, 10);
        for (last, next, joined) in [
            (last, run(start + 110, 5), Some(run(start + 100, 15))),
            (last, run(start + 95, 5), Some(run(start + 95, 15))),
            (last, run(start + 111, 5), None),
            (last, run(start + 94, 5), None),
            (run(start - 10, 10), run(start, 5), None),
            (run(start, 5), run(start - 10, 10), None),
        ] {
            let mut found = last;
            let joins = join(&mut found, next, &rig.alloc.core);
            assert_eq!(joins, joined.is_some(), "{last:?} and {next:?}");
            assert_eq!(found, joined.unwrap_or(last), "{next:?}");
        }
    }

    /// A window is as long as its file, and no longer than a part of what is free, or 8 MiB.
    #[test]
    fn a_window_has_bounds() {
        for (mib, args) in [(16, GROUPS), (1024, "-b 4096 -m 0 -O ^has_journal")] {
            let image = Image::of_mib(mib).args(args).make().unwrap();
            let rig = Rig::open(&image).unwrap();
            let core = &rig.alloc.core;
            let largest = (8 << 20) / rig.layout.block_size.bytes_u64();
            let share = rig.alloc.counts.available().get() / 64;
            let most = core.max_window();
            assert_eq!(most, largest.min(share));
            assert_eq!(most == share, mib == 16, "both bounds count");
            for (want, contiguous, target) in [
                (10, 0, 10),
                (10, 7, 17),
                (10, most, 10 + most),
                (10, most + 1, 10 + most),
                (largest - 3, most, largest),
                (largest + 3, most, largest + 3),
            ] {
                let found = core.window_target(want, contiguous);
                let target = target.min(largest).max(want);
                assert_eq!(found, target, "{want} blocks, {contiguous} so far");
            }
        }
    }

    /// The blocks that a window has beyond what may be held are free, and so is another window of
    /// the same file.
    #[test]
    fn a_window_that_is_too_long_gives_up_its_end() {
        let image = Image::of_mib(16).args(GROUPS).make().unwrap();
        let rig = Rig::open(&image).unwrap();
        let core = &rig.alloc.core;
        let group = Group::new(3);
        let start = rig.layout.group_start(group).get() + 300;
        let ino = Ino::new(100).unwrap();
        let usable = || rig.groups.hints(group).unwrap().usable.load(Relaxed);
        core.groups.lock(group).unwrap().map(&core.disk()).unwrap();
        let free = usable();
        let most = core.max_window();
        let window = |start: u64, len: u64| {
            let held = core.find_and_hold(Pblk::new(start), (len, len)).unwrap();
            assert_eq!(held, Some(run(start, len)));
            let mut stream = Stream::advanced(run(start - 1, 1), 0);
            stream.window_len = len;
            stream
        };
        let checkout = core.streams.try_check_out(ino).unwrap();
        for more in [0, 1, 7] {
            core.remember(&checkout, ino, window(start, most + more));
            assert_eq!(u64::from(free - usable()), most, "{more} blocks more");
            let kept = checkout.take_stream(ino).unwrap().window().unwrap();
            assert_eq!(kept, run(start, most), "{more} blocks more");
            core.release_held(kept);
            assert_eq!(usable(), free);
        }
        core.remember(&checkout, ino, window(start, 5));
        core.remember(&checkout, ino, window(start + 20, 6));
        assert_eq!(free - usable(), 6);
        drop(checkout);
        core.release_window(ino);
        assert_eq!(usable(), free);
    }

    /// A device that may refuse to be told of free blocks.
    struct Discarding {
        inner: MemoryDevice,
        refuses: AtomicBool,
        told: Mutex<Vec<Range<u64>>>,
    }

    impl BlockDevice for Discarding {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
            self.inner.read_at(offset, buf)
        }

        fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
            self.inner.write_at(offset, buf)
        }

        fn flush(&self) -> io::Result<()> {
            self.inner.flush()
        }

        fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
            if self.refuses.load(Relaxed) {
                return Err(io::ErrorKind::Other.into());
            }
            self.told.lock().push(offset.get()..offset.get() + len);
            Ok(())
        }
    }

    /// A freed run is told to the device after its commit, and then a trim has nothing more to say
    /// of its group. What the device refused to hear is said by the next trim.
    #[test]
    fn a_freed_run_is_discarded_or_trimmed_later() {
        let image = Image::of_mib(16).args(GROUPS).make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let device = Arc::new(Discarding {
            inner: MemoryDevice::from_bytes(&bytes),
            refuses: AtomicBool::new(false),
            told: Mutex::default(),
        });
        let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
        let fs = TestFs::on(shared, "discard").unwrap();
        let group = Group::new(3);
        let start = fs.layout.group_start(group).get();
        let bytes_of = |run: Run| run.start.get() << 10..(run.start.get() + run.len.get()) << 10;
        let whole = bytes_of(run(start, 1024));
        let taken = |at: u64| {
            let request = AllocRequest {
                min: Blocks::new(10),
                ..AllocRequest::new(Pblk::new(at), Blocks::new(10))
            };
            let mut h = fs.start(4).unwrap();
            allocate_blocks(&fs, &mut h, &request).unwrap()
        };
        let runs = [taken(start + 300), taken(start + 400)];
        fs.journal.force_commit().unwrap();
        assert!(trim(&fs, whole.clone(), 0).unwrap() > 0);
        assert_eq!(trim(&fs, whole.clone(), 0).unwrap(), 0, "it is known");
        device.told.lock().clear();
        for (of, refuses) in runs.into_iter().zip([false, true]) {
            device.refuses.store(refuses, Relaxed);
            let before = fs.stats.discarded_blocks.get();
            let mut h = fs.start(4).unwrap();
            free_blocks(&fs, &mut h, of, false).unwrap();
            drop(h);
            assert!(
                device.told.lock().is_empty(),
                "a crash brings the owner back"
            );
            fs.journal.force_commit().unwrap();
            let told = std::mem::take(&mut *device.told.lock());
            let (expected, blocks) = match refuses {
                true => (vec![], 0),
                false => (vec![bytes_of(of)], 10),
            };
            assert_eq!(told, expected);
            assert_eq!(fs.stats.discarded_blocks.get() - before, blocks);
            device.refuses.store(false, Relaxed);
            let again = trim(&fs, whole.clone(), 0).unwrap();
            assert_eq!(again > 0, refuses, "{again} bytes are trimmed");
            device.told.lock().clear();
        }
        fs.unmount();
    }
}
