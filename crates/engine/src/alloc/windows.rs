//! Windows: blocks kept behind the end of growing files.
//!
//! When a file's allocation continues where its last one ended, the allocator takes more than was
//! asked for from the free map and keeps it for the file's next request. Files that are written at
//! the same time therefore do not interleave. A window exists in memory only: on disk and in all
//! counters its blocks are free. Windows grow with the file and are bounded in number and size. All
//! of them are given up before a request fails for lack of space.

use std::collections::HashMap;

use extant_units::{Blocks, Ino, Pblk};
use parking_lot::Mutex;

use super::request::Run;

const SHARDS: usize = 16;
/// Streams that each shard remembers.
const PER_SHARD: usize = 64;
/// Largest window in bytes.
pub(super) const MAX_BYTES: u64 = 8 << 20;

/// What is known of a growing file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// One past the last block it got.
    pub(super) next: Pblk,
    /// Contiguous blocks it got so far.
    pub(super) grown: u64,
    /// Blocks kept, from `next` on.
    pub(super) kept: u64,
    /// Last use, by the shard's clock.
    used: u64,
}

#[derive(Default)]
struct WindowShard {
    streams: HashMap<Ino, Stream>,
    clock: u64,
}

/// The streams, by inode.
#[derive(Default)]
pub(super) struct Windows {
    shards: [Mutex<WindowShard>; SHARDS],
}

impl Windows {
    fn shard(&self, ino: Ino) -> &Mutex<WindowShard> {
        &self.shards[ino.get() as usize % SHARDS]
    }

    /// Takes the stream of `ino` out. [`Windows::put`] brings it back.
    pub(super) fn take(&self, ino: Ino) -> Option<Stream> {
        self.shard(ino).lock().streams.remove(&ino)
    }

    /// Remembers a stream. Returns a window that had to go: another file's, or one that a
    /// concurrent request of the same file left.
    #[must_use]
    pub(super) fn put(&self, ino: Ino, mut stream: Stream) -> Option<Run> {
        let mut shard = self.shard(ino).lock();
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

    /// Takes every window.
    pub(super) fn drain(&self) -> Vec<Run> {
        self.shards
            .iter()
            .flat_map(|shard| std::mem::take(&mut shard.lock().streams))
            .filter_map(|(_, stream)| stream.window())
            .collect()
    }
}

impl Stream {
    /// A stream that just got `run` and keeps nothing.
    pub(super) fn after(run: Run, grown: u64) -> Self {
        Self {
            next: run.start.plus(run.len.get()),
            grown: grown + run.len.get(),
            kept: 0,
            used: 0,
        }
    }

    /// The kept blocks, if there are any.
    pub(super) fn window(&self) -> Option<Run> {
        (self.kept > 0).then_some(Run {
            start: self.next,
            len: Blocks::new(self.kept),
        })
    }
}
