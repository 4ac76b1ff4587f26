//! Windows: blocks held behind the end of growing files.
//!
//! When a file's allocation continues where its last one ended, the allocator takes more than was
//! asked for from the free map and holds it for the file's next request. Files that are written at
//! the same time therefore do not interleave. A window exists in memory only: on disk and in all
//! counters its blocks are free. Windows grow with the file and are bounded in number and size. All
//! of them are given up before a request fails for lack of space.
//!
//! While a thread moves a window between the table and a group's map, no other request finds it. It
//! must not hold the last free blocks while a request for reserved blocks fails. Two rules ensure
//! that. A window is a small part of the blocks that are not reserved
//! ([`AllocatorCore::max_window`]). And a request for reserved blocks that finds none waits until
//! moves of windows have ended that were larger when there was more space
//! ([`Windows::drain_all`]). Meanwhile no request begins to hold a window, and what is given up
//! does not come back into the table, so the wait ends.
//!
//! [`AllocatorCore::max_window`]: crate::state::alloc::AllocatorCore::max_window

use std::collections::HashMap;

use extant_lock_order::{Held, Rank, taking, took};
use extant_units::{Blocks, Ino, Pblk};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::state::alloc::Run;

const SHARDS: usize = 16;
/// Streams that each shard remembers.
const PER_SHARD: usize = 64;
/// Largest window in bytes.
pub(crate) const MAX_BYTES: u64 = 8 << 20;

/// State of a growing file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// One past the last block it got.
    pub(crate) next: Pblk,
    /// Contiguous blocks it got so far.
    pub(crate) grown: u64,
    /// Blocks of its window, from `next` on.
    pub(crate) window_len: u64,
    /// Last use, by the shard's clock.
    used: u64,
}

#[derive(Default)]
struct WindowShard {
    streams: HashMap<Ino, Stream>,
    clock: u64,
    /// Threads that may be moving a window.
    moves: u32,
    /// Threads that wait for these.
    waiters: u32,
}

#[derive(Default)]
struct LockedShard {
    state: Mutex<WindowShard>,
    /// The last move ended.
    moves_ended: Condvar,
}

/// The streams, by inode.
#[derive(Default)]
pub(crate) struct Windows {
    shards: [LockedShard; SHARDS],
}

/// The right to move windows of one shard. Dropped when they are in the table or in the groups'
/// maps again.
#[must_use]
pub(crate) struct WindowMove<'a> {
    shard: &'a LockedShard,
    _rank: Held,
}

impl Windows {
    fn shard(&self, ino: Ino) -> &LockedShard {
        &self.shards[ino.get() as usize % SHARDS]
    }

    /// Begins to move windows of the shard of `ino`. `None` while a thread waits for moves to end:
    /// the caller holds no window then.
    pub(crate) fn begin_move(&self, ino: Ino) -> Option<WindowMove<'_>> {
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        (state.waiters == 0).then(|| WindowMove::new(shard, &mut state))
    }

    /// Takes every window out of the table, and gives each to `release`. Those that
    /// another thread is moving stay with it. Returns whether there was one.
    pub(crate) fn drain(&self, mut release: impl FnMut(Run)) -> bool {
        let drain = |shard: &LockedShard| shard.drain(shard.state.lock(), &mut release);
        self.shards
            .iter()
            .map(drain)
            .fold(false, |any, one| any | one)
    }

    /// As [`Windows::drain`], and those that other threads are moving: waits until they have
    /// brought them back. The caller holds no group lock and moves no window itself.
    pub(crate) fn drain_all(&self, mut release: impl FnMut(Run)) {
        for shard in &self.shards {
            let rank = taking(Rank::Windows);
            let mut state = shard.state.lock();
            state.waiters += 1;
            shard
                .moves_ended
                .wait_while(&mut state, |state| state.moves > 0);
            state.waiters -= 1;
            drop(rank);
            shard.drain(state, &mut release);
        }
    }

    /// Returns whether a thread waits in [`Windows::drain_all`].
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        let awaited = |shard: &LockedShard| shard.state.lock().waiters > 0;
        self.shards.iter().any(awaited)
    }
}

impl LockedShard {
    fn drain(&self, mut state: MutexGuard<'_, WindowShard>, release: &mut impl FnMut(Run)) -> bool {
        let streams = std::mem::take(&mut state.streams);
        let windows: Vec<Run> = streams.values().filter_map(Stream::window).collect();
        if windows.is_empty() {
            return false;
        }
        let _moving = WindowMove::new(self, &mut state);
        drop(state);
        windows.into_iter().for_each(release);
        true
    }
}

impl<'a> WindowMove<'a> {
    fn new(shard: &'a LockedShard, state: &mut MutexGuard<'_, WindowShard>) -> Self {
        state.moves += 1;
        Self {
            shard,
            _rank: took(Rank::Windows),
        }
    }

    /// Takes the stream of `ino` out. [`WindowMove::put_stream`] brings it back.
    pub(crate) fn take_stream(&self, ino: Ino) -> Option<Stream> {
        self.shard.state.lock().streams.remove(&ino)
    }

    /// Remembers a stream. Returns a window that had to go: another file's, or one that a
    /// concurrent request of the same file left.
    #[must_use]
    pub(crate) fn put_stream(&self, ino: Ino, mut stream: Stream) -> Option<Run> {
        let mut shard = self.shard.state.lock();
        shard.clock += 1;
        stream.used = shard.clock;
        let mut displaced = shard.streams.insert(ino, stream);
        if displaced.is_none() && shard.streams.len() > PER_SHARD {
            let oldest = shard
                .streams
                .iter()
                .min_by_key(|(_, stream)| stream.used)
                .map(|(&ino, _)| ino);
            displaced = oldest.and_then(|ino| shard.streams.remove(&ino));
        }
        debug_assert!(shard.streams.len() <= PER_SHARD, "memory is bounded");
        displaced.and_then(|stream| stream.window())
    }
}

impl Drop for WindowMove<'_> {
    fn drop(&mut self) {
        let mut state = self.shard.state.lock();
        state.moves -= 1;
        if state.moves == 0 && state.waiters > 0 {
            self.shard.moves_ended.notify_all();
        }
    }
}

impl Stream {
    /// A stream that just got `run` and has no window.
    pub(crate) fn after(run: Run, grown: u64) -> Self {
        Self {
            next: run.start.plus(run.len.get()),
            grown: grown + run.len.get(),
            window_len: 0,
            used: 0,
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
            ..Stream::after(run, 0)
        }
    }

    /// A window that is brought back while several threads wait goes to one of them; all go on.
    #[test]
    fn what_comes_back_goes_to_one_of_those_that_wait() {
        let _limit = Watchdog::new(Duration::from_secs(60));
        let windows = Windows::default();
        let all = Mutex::new(Vec::new());
        let moving = windows.begin_move(ino(12)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| windows.drain_all(|run| all.lock().push(run)));
            }
            let waiters = || windows.shard(ino(12)).state.lock().waiters;
            wait_until("three threads that wait", || waiters() == 3);
            assert!(windows.begin_move(ino(12 + 16)).is_none(), "the same shard");
            assert!(windows.begin_move(ino(13)).is_some(), "another one");
            // What has nothing to give up is no move, or the wait might never end.
            assert!(!windows.drain(|_| unreachable!("no window is in the table")));
            assert_eq!(windows.shard(ino(12)).state.lock().moves, 1);
            assert_eq!(moving.put_stream(ino(12), stream(100, 5)), None);
            drop(moving);
        });
        let window = Run {
            start: Pblk::new(100),
            len: Blocks::new(5),
        };
        assert_eq!(all.into_inner(), [window]);
        assert!(
            windows
                .begin_move(ino(12))
                .unwrap()
                .take_stream(ino(12))
                .is_none()
        );
    }

    /// A thread that gives windows up for itself moves them: others wait for that, too.
    #[test]
    fn windows_that_are_given_up_are_waited_for() {
        let windows = Windows::default();
        let moving = windows.begin_move(ino(12)).unwrap();
        assert_eq!(moving.put_stream(ino(12), stream(100, 5)), None);
        drop(moving);
        let mut released = 0;
        assert!(windows.drain(|run| {
            released += run.len.get();
            assert_eq!(windows.shard(ino(12)).state.lock().moves, 1);
        }));
        assert_eq!(released, 5);
        assert_eq!(windows.shard(ino(12)).state.lock().moves, 0);
    }
}
