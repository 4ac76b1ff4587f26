//! Requests to end long walks early.
//!
//! A walk whose length the image decides (searching or listing a directory, going through a file's
//! map) asks at every block whether to go on ([`crate::volume::Fs::check_interrupted`]). Two
//! requests end it:
//!
//! * An [`Interrupt`] ends the walks of the calls inside [`Interrupt::during`], on that thread: one
//!   request of a front end.
//! * [`crate::Volume::interrupt_all`] ends those of all threads, removals that span transactions
//!   included: the end of a mount.
//!
//! # Invariants
//! A walk ends where it has changed nothing, or between two transactions. A file whose blocks were
//! being freed stays an orphan, which the next mount finishes.
//!
//! # Concurrency
//! Any thread sets a flag. A walk reads it without ordering and sees it at one of its next blocks.

use extant_sync::atomic::{AtomicBool, Ordering};
use std::cell::RefCell;
use std::sync::Arc;

extant_sync::thread_local! {
    /// The request that this thread serves.
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// A request to end calls early. Clones share the flag.
///
/// ```
/// # use extant_engine::{Interrupt, Node, Result, Volume};
/// # fn search(volume: &Volume, dir: &Node) -> Result<Node> {
/// let interrupt = Interrupt::new();
/// let from_elsewhere = interrupt.clone(); // to another thread, which calls from_elsewhere.set()
/// interrupt.during(|| volume.lookup(dir, b"name"))
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// Restores the request that a thread served before.
struct Restore(Option<Interrupt>);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with(|current| current.replace(before));
    }
}

impl Interrupt {
    /// A request that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the walks of the calls inside [`Interrupt::during`], now and later: they fail with
    /// [`crate::Error::Interrupted`]. It cannot be undone; a new call takes a new request.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether it was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs `calls`. Those to any file system on this thread end early once the request is set.
    /// Work that they hand to other threads (writeback, commits, evictions) goes on. A call whose
    /// walk is no longer than any sound request needs may succeed all the same.
    pub fn during<R>(&self, calls: impl FnOnce() -> R) -> R {
        let before = CURRENT.with(|current| current.replace(Some(self.clone())));
        let _restore = Restore(before);
        calls()
    }
}

/// Returns whether the request that this thread serves shall end early.
pub(crate) fn is_set() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(Interrupt::is_set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_inside_of_its_calls_and_on_its_thread_only() {
        let (outer, inner) = (Interrupt::new(), Interrupt::new());
        inner.set();
        assert!(!is_set());
        outer.during(|| {
            assert!(!is_set());
            inner.during(|| {
                assert!(is_set());
                assert!(!std::thread::spawn(is_set).join().unwrap());
            });
            assert!(!is_set(), "the outer one is not set");
            outer.clone().set();
            assert!(is_set());
        });
        assert!(!is_set());
    }
}
