//! Windows: blocks held behind the end of growing files.
//!
//! When a file's allocation continues where its last one ended, the allocator takes more than was
//! asked for from the free map and holds it for the file's next request. Files that are written at
//! the same time therefore do not interleave. A window exists in memory only: on disk and in all
//! counters its blocks are free. Windows grow with the file and are bounded in number and size. All
//! of them are given up before a request fails for lack of space.
//!
//! A thread that allocates from a window checks it out of the table first, so that no other request
//! finds it; afterwards it is back in the table, or its blocks are in the free map of their group.
//! Without more rules that could refuse an allocation that has to succeed:
//!
//! 1. The danger: the last free blocks are in a window that is checked out while a request for
//!    reserved blocks looks for space and finds none.
//! 2. A window is never more than a small part of the blocks that are not reserved
//!    ([`AllocatorCore::max_window`]), so one that was checked out with little space free is no
//!    danger. One that was checked out earlier, with more space free, may be larger.
//! 3. So a request for reserved blocks that finds none waits until all windows are back, takes them
//!    all ([`StreamTable::wait_and_take_all`]) and looks again.
//! 4. The wait ends: while a thread waits, no request checks a window out
//!    ([`StreamTable::try_check_out`] returns `None`), and windows that other threads give up go
//!    to the groups' maps and not back into the table.
//!
//! [`AllocatorCore::max_window`]: crate::state::alloc::AllocatorCore::max_window

use std::collections::HashMap;

use extant_lock_order::{Held, Rank, taking, took};
use extant_sync::{Condvar, Mutex, MutexGuard};
use extant_units::{Blocks, Ino, Pblk};

use crate::state::alloc::Run;

const SHARDS: usize = 16;
/// Streams that each shard remembers.
const STREAMS_PER_SHARD: usize = 64;
/// Largest window in bytes.
pub(crate) const MAX_WINDOW_BYTES: u64 = 8 << 20;

/// A stream: a file whose allocations follow each other, and the window held for the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// One past the last block it got.
    pub(crate) next: Pblk,
    /// Contiguous blocks it got so far.
    pub(crate) contiguous: u64,
    /// Blocks of its window, from `next` on.
    pub(crate) window_len: u64,
    /// Last use, by the shard's clock.
    last_use: u64,
}

#[derive(Default)]
struct TableShard {
    streams: HashMap<Ino, Stream>,
    clock: u64,
    /// Threads that may have a window of this shard checked out.
    checked_out: u32,
    /// Threads that wait until there are none.
    waiters: u32,
}

#[derive(Default)]
struct WindowShard {
    state: Mutex<TableShard>,
    /// The last window that was checked out is back.
    all_returned: Condvar,
}

/// The streams that were used last, by inode.
#[derive(Default)]
pub(crate) struct StreamTable {
    shards: [WindowShard; SHARDS],
}

/// The right to have windows of one shard outside of the table. Dropped when they are in the table
/// or in the groups' maps again.
#[must_use]
pub(crate) struct WindowCheckout<'a> {
    shard: &'a WindowShard,
    _rank: Held,
}

impl StreamTable {
    fn shard(&self, ino: Ino) -> &WindowShard {
        &self.shards[ino.get() as usize % SHARDS]
    }

    /// Gives the caller the right to take streams of the shard of `ino` out. `None` while a thread
    /// waits for windows to come back: the caller holds no window then.
    pub(crate) fn try_check_out(&self, ino: Ino) -> Option<WindowCheckout<'_>> {
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        (state.waiters == 0).then(|| WindowCheckout::new(shard, &mut state))
    }

    /// Forgets all streams, and gives the window of each that has one to `release`; a file
    /// without a window loses its count of contiguous blocks as well. Windows that other threads
    /// have checked out stay with them. Returns whether there was a window.
    pub(crate) fn take_all(&self, mut release: impl FnMut(Run)) -> bool {
        let take = |shard: &WindowShard| shard.take_windows(shard.state.lock(), &mut release);
        self.shards
            .iter()
            .map(take)
            .fold(false, |any, one| any | one)
    }

    /// As [`StreamTable::take_all`], with the windows that other threads have checked out: waits
    /// until they are back. The caller holds no group lock and has no window itself.
    pub(crate) fn wait_and_take_all(&self, mut release: impl FnMut(Run)) {
        for shard in &self.shards {
            let rank = taking(Rank::Windows);
            let mut state = shard.state.lock();
            state.waiters += 1;
            shard
                .all_returned
                .wait_while(&mut state, |state| state.checked_out > 0);
            state.waiters -= 1;
            drop(rank);
            shard.take_windows(state, &mut release);
        }
    }

    /// Returns whether a thread waits in [`StreamTable::wait_and_take_all`].
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        let awaited = |shard: &WindowShard| shard.state.lock().waiters > 0;
        self.shards.iter().any(awaited)
    }
}

impl WindowShard {
    /// Empties the shard. Its windows are checked out until `release` has had each, whether or not
    /// a thread waits: a wait that begins now is for them, too.
    fn take_windows(
        &self,
        mut state: MutexGuard<'_, TableShard>,
        release: &mut impl FnMut(Run),
    ) -> bool {
        let streams = std::mem::take(&mut state.streams);
        let windows: Vec<Run> = streams.values().filter_map(Stream::window).collect();
        if windows.is_empty() {
            return false;
        }
        let _checkout = WindowCheckout::new(self, &mut state);
        drop(state);
        windows.into_iter().for_each(release);
        true
    }
}

impl<'a> WindowCheckout<'a> {
    fn new(shard: &'a WindowShard, state: &mut MutexGuard<'_, TableShard>) -> Self {
        state.checked_out += 1;
        Self {
            shard,
            _rank: took(Rank::Windows),
        }
    }

    /// Takes the stream of `ino` out. [`WindowCheckout::put_stream`] brings it back.
    pub(crate) fn take_stream(&self, ino: Ino) -> Option<Stream> {
        self.shard.state.lock().streams.remove(&ino)
    }

    /// Remembers a stream. Returns a window that had to go: another file's, or one that a
    /// concurrent request of the same file left.
    #[must_use]
    pub(crate) fn put_stream(&self, ino: Ino, mut stream: Stream) -> Option<Run> {
        let mut shard = self.shard.state.lock();
        shard.clock += 1;
        stream.last_use = shard.clock;
        let mut displaced = shard.streams.insert(ino, stream);
        if displaced.is_none() && shard.streams.len() > STREAMS_PER_SHARD {
            let oldest = shard
                .streams
                .iter()
                .min_by_key(|(_, stream)| stream.last_use)
                .map(|(&ino, _)| ino);
            displaced = oldest.and_then(|ino| shard.streams.remove(&ino));
        }
        debug_assert!(
            shard.streams.len() <= STREAMS_PER_SHARD,
            "memory is bounded"
        );
        displaced.and_then(|stream| stream.window())
    }
}

impl Drop for WindowCheckout<'_> {
    fn drop(&mut self) {
        let mut state = self.shard.state.lock();
        state.checked_out -= 1;
        if state.checked_out == 0 && state.waiters > 0 {
            self.shard.all_returned.notify_all();
        }
    }
}

impl Stream {
    /// A stream that just got `run`, which continues `contiguous` blocks, and has no window.
    pub(crate) fn advanced(run: Run, contiguous: u64) -> Self {
        Self {
            next: run.start.plus(run.len.get()),
            contiguous: contiguous + run.len.get(),
            window_len: 0,
            last_use: 0,
        }
    }

    /// The blocks of its window, if there are any.
    pub(crate) fn window(&self) -> Option<Run> {
        (self.window_len > 0).then_some(Run {
            start: self.next,
            len: Blocks::new(self.window_len),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use extant_testkit::{Watchdog, wait_until};

    use super::*;

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    fn stream(at: u64, window_len: u64) -> Stream {
        let run = Run {
            start: Pblk::new(at - 1),
            len: Blocks::ONE,
        };
        Stream {
            window_len,
            ..Stream::advanced(run, 0)
        }
    }

    /// A window that is brought back while several threads wait goes to one of them; all go on.
    #[test]
    fn what_comes_back_goes_to_one_of_those_that_wait() {
        let _limit = Watchdog::new(Duration::from_secs(60));
        let windows = StreamTable::default();
        let all = Mutex::new(Vec::new());
        let checkout = windows.try_check_out(ino(12)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| windows.wait_and_take_all(|run| all.lock().push(run)));
            }
            let waiters = || windows.shard(ino(12)).state.lock().waiters;
            wait_until("three threads that wait", || waiters() == 3);
            assert!(
                windows.try_check_out(ino(12 + 16)).is_none(),
                "the same shard"
            );
            assert!(windows.try_check_out(ino(13)).is_some(), "another one");
            // A shard without windows has none checked out, or the wait might never end.
            assert!(!windows.take_all(|_| unreachable!("no window is in the table")));
            assert_eq!(windows.shard(ino(12)).state.lock().checked_out, 1);
            assert_eq!(checkout.put_stream(ino(12), stream(100, 5)), None);
            drop(checkout);
        });
        let window = Run {
            start: Pblk::new(100),
            len: Blocks::new(5),
        };
        assert_eq!(all.into_inner(), [window]);
        assert!(
            windows
                .try_check_out(ino(12))
                .unwrap()
                .take_stream(ino(12))
                .is_none()
        );
    }

    /// A shard remembers so many streams. A stream that has to go was not used for longest; its
    /// window goes back, as does the old one of a stream that is remembered anew.
    #[test]
    fn a_full_shard_gives_up_the_stream_that_was_not_used_for_longest() {
        let windows = StreamTable::default();
        let number = |at: usize| ino(u32::try_from(at * SHARDS).unwrap());
        let at = |number: usize| stream(100 * number as u64, 5);
        let checkout = windows.try_check_out(number(1)).unwrap();
        for one in 1..=STREAMS_PER_SHARD {
            assert_eq!(checkout.put_stream(number(one), at(one)), None, "{one}");
        }
        // The first is used again; a second request of the same file left a window.
        let first = checkout.take_stream(number(1)).unwrap();
        assert_eq!(checkout.put_stream(number(1), first), None);
        assert_eq!(checkout.put_stream(number(1), at(500)), at(1).window());
        assert_eq!(checkout.put_stream(number(600), at(600)), at(2).window());
        // One without a window goes as well, and another shard has its own room.
        assert_eq!(
            checkout.put_stream(number(3), stream(300, 0)),
            at(3).window()
        );
        for one in 4..=STREAMS_PER_SHARD {
            let window = checkout.put_stream(number(700 + one), at(700 + one));
            assert_eq!(window, at(one).window(), "{one}");
        }
        drop(checkout);
        let other = windows.try_check_out(ino(1)).unwrap();
        assert_eq!(other.put_stream(ino(1), at(9)), None);
        drop(other);
        let mut left = 0;
        assert!(windows.take_all(|_| left += 1));
        assert_eq!(
            left, STREAMS_PER_SHARD,
            "all but the one without, and the other shard's"
        );
    }

    /// A thread that gives windows up for itself has them checked out: others wait for that, too.
    #[test]
    fn windows_that_are_given_up_are_waited_for() {
        let windows = StreamTable::default();
        let checkout = windows.try_check_out(ino(12)).unwrap();
        assert_eq!(checkout.put_stream(ino(12), stream(100, 5)), None);
        drop(checkout);
        let mut released = 0;
        assert!(windows.take_all(|run| {
            released += run.len.get();
            assert_eq!(windows.shard(ino(12)).state.lock().checked_out, 1);
        }));
        assert_eq!(released, 5);
        assert_eq!(windows.shard(ino(12)).state.lock().checked_out, 0);
    }
}
