//! Requests of one connection that were read and are not answered yet.
//!
//! # Invariants
//! The data of all of them has at most [`MOST_BYTES`] bytes, and they are at most [`MOST`]: the
//! thread that reads waits for room before it reads, so a client that sends more waits in its
//! socket. One request of the longest data always fits.

use std::collections::VecDeque;
use std::sync::Arc;

use extant_blockdev::IoBuf;
use parking_lot::{Condvar, Mutex};

use crate::export::LONGEST;
use crate::protocol::Request;

/// The most bytes of data of one connection.
const MOST_BYTES: u64 = LONGEST as u64;
/// The most requests of one connection.
const MOST: usize = 64;

/// A request that is to be carried out, with room for its data.
pub(super) struct Job {
    pub(super) cookie: u64,
    pub(super) request: Request,
    pub(super) data: IoBuf,
    _room: Room,
}

impl Job {
    /// A request whose data has `room`.
    pub(super) fn new(cookie: u64, request: Request, data: IoBuf, room: Room) -> Job {
        Job {
            cookie,
            request,
            data,
            _room: room,
        }
    }
}

/// Requests of one connection. See the module's header.
#[derive(Default)]
pub(super) struct Backlog {
    state: Mutex<BacklogState>,
    /// Signalled when room is returned.
    room: Condvar,
    /// Signalled when a request is added, or none comes any more.
    work: Condvar,
}

#[derive(Default)]
struct BacklogState {
    waiting: VecDeque<Job>,
    bytes: u64,
    requests: usize,
    closed: bool,
}

/// Room for one request and its data, returned when it is dropped.
pub(super) struct Room {
    backlog: Arc<Backlog>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.backlog.state.lock();
        state.bytes -= self.bytes;
        state.requests -= 1;
        drop(state);
        self.backlog.room.notify_one();
    }
}

impl Backlog {
    /// Waits until there is room for a request with `bytes` bytes of data, at most [`LONGEST`].
    pub(super) fn room(self: &Arc<Backlog>, bytes: u32) -> Room {
        let bytes = u64::from(bytes.min(LONGEST));
        let mut state = self.state.lock();
        while state.requests >= MOST || state.bytes + bytes > MOST_BYTES {
            self.room.wait(&mut state);
        }
        state.bytes += bytes;
        state.requests += 1;
        Room {
            backlog: Arc::clone(self),
            bytes,
        }
    }

    /// Adds a request.
    pub(super) fn push(&self, job: Job) {
        self.state.lock().waiting.push_back(job);
        self.work.notify_one();
    }

    /// The next request, waited for; nothing once none comes any more.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            self.work.wait(&mut state);
        }
    }

    /// Says that no further request comes: those that are there are still carried out.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_bytes_and_the_number_of_requests_are_bounded() {
        let backlog = Arc::<Backlog>::default();
        let waits = |bytes| {
            let other = Arc::clone(&backlog);
            let waiting = thread::spawn(move || drop(other.room(bytes)));
            thread::sleep(Duration::from_millis(20));
            let waits = !waiting.is_finished();
            (waiting, waits)
        };
        let most = backlog.room(LONGEST);
        let (waiting, waited) = waits(1);
        assert!(waited);
        drop(most);
        waiting.join().unwrap();
        let rooms: Vec<_> = (0..MOST).map(|_| backlog.room(0)).collect();
        let (waiting, waited) = waits(0);
        assert!(waited);
        drop(rooms);
        waiting.join().unwrap();
        let state = backlog.state.lock();
        assert_eq!((state.bytes, state.requests), (0, 0));
    }
}
