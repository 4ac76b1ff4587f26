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

    /// A run within one group, as its group and the indices there.
    pub(super) fn range_in_group(
        &self,
        run: Run,
    ) -> Option<(extant_units::Group, std::ops::Range<u32>)> {
        let (group, start) = self.layout.group_of_block(run.start)?;
        let len = u32::try_from(run.len.get()).ok()?;
        let end = start.checked_add(len)?;
        debug_assert!(end <= self.layout.blocks_per_group, "{run:?} in one group");
        Some((group, start..end))
    }

    /// The largest window that may be held now, in blocks: a small part of those that are not
    /// reserved, so that those that are checked out do not hold the last free blocks.
    pub(super) fn max_window(&self) -> u64 {
        let most = MAX_WINDOW_BYTES / self.layout.block_size.bytes_u64();
        most.min(self.counts.available().get() / MOST_SHARE)
    }

    /// Blocks to look for in one piece when a stream of `contiguous` blocks so far asks for `want`:
    /// the request, and as much again as the stream has.
    pub(super) fn window_target(&self, want: u64, contiguous: u64) -> u64 {
        let most = MAX_WINDOW_BYTES / self.layout.block_size.bytes_u64();
        let window = contiguous.min(self.max_window());
        (want + window).min(most).max(want)
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
