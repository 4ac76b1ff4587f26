//! A device that its borrower gives back while others still hold the borrower.
//!
//! # Responsibility
//! After an unmount, open files of a program still refer to the mount. The image must be free for
//! others all the same: its locks go with the last reference to its device. So the mount holds the
//! device here, and [`LentDevice::give_back`] drops it. A queue of requests has a reference of its
//! own, which goes with the queue.
//!
//! # Locks
//! A request holds a lock shared, also over I/O; the end takes it exclusively, so it waits for
//! requests under way. Each thread has one of several locks, each on cache lines of its own:
//! threads that share none of them do not slow each other down. The locks are leaves of the order,
//! as a device makes no request of the wrapper that it is behind.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_sync::RwLock;

use crate::device::BlockDevice;

/// The number of locks.
const LOCKS: usize = 16;

/// One of the locks, and a reference to the device. Two lines: processors fetch them in pairs.
#[repr(align(128))]
struct Loan(RwLock<Option<Arc<dyn BlockDevice>>>);

/// A device until it is given back.
pub(crate) struct LentDevice {
    loans: Box<[Loan]>,
}

extant_sync::thread_local! {
    /// The lock of this thread.
    static MINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LOCKS)
    };
}

impl LentDevice {
    pub(crate) fn new(device: &Arc<dyn BlockDevice>) -> Self {
        let loan = || Loan(RwLock::new(Some(Arc::clone(device))));
        Self {
            loans: std::iter::repeat_with(loan).take(LOCKS).collect(),
        }
    }

    /// Calls `call` with the device; `None` if it was given back.
    #[inline]
    pub(crate) fn get<R>(&self, call: impl FnOnce(&Arc<dyn BlockDevice>) -> R) -> Option<R> {
        // A thread that is ending has no lock of its own any more.
        let mine = MINE.try_with(Cell::get).unwrap_or(0);
        self.loans[mine].0.read().as_ref().map(call)
    }

    /// Makes a request; fails if the device was given back.
    #[inline]
    pub(crate) fn request<R>(
        &self,
        call: impl FnOnce(&Arc<dyn BlockDevice>) -> io::Result<R>,
    ) -> io::Result<R> {
        self.get(call).unwrap_or_else(|| Err(given_back()))
    }

    /// Drops the device, once the requests under way have ended.
    pub(crate) fn give_back(&self) {
        for loan in &self.loans {
            *loan.0.write() = None;
        }
    }
}

#[cold]
fn given_back() -> io::Error {
    io::Error::other("the device is no longer in use: the file system was unmounted")
}
