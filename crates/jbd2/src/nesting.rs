//! Which threads hold a handle: a check in builds with debug assertions.
//!
//! # Invariants
//! A thread holds at most one handle of a journal, and none while it waits for a commit. With a
//! handle open, the transaction cannot commit: a second start or a wait would hang as soon as the
//! transaction is locked.

use crate::shared::Shared;

#[cfg(debug_assertions)]
extant_sync::thread_local! {
    /// The journals of which this thread holds a handle.
    static HELD: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Shared {
    /// Asserts that this thread holds no handle of this journal.
    #[inline]
    pub(crate) fn assert_no_handle_here(&self) {
        #[cfg(debug_assertions)]
        HELD.with_borrow(|held| {
            assert!(
                !held.contains(&std::ptr::from_ref(self).addr()),
                "this thread holds a handle: starting another or waiting for a commit would hang"
            );
        });
    }

    /// Records that this thread holds a handle from now on.
    #[inline]
    pub(crate) fn note_handle_started(&self) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| held.push(std::ptr::from_ref(self).addr()));
    }

    /// Records that this thread's handle has ended.
    #[inline]
    pub(crate) fn note_handle_ended(&self) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            let me = std::ptr::from_ref(self).addr();
            let at = held.iter().position(|&journal| journal == me);
            debug_assert!(at.is_some(), "a handle ends on the thread that started it");
            if let Some(at) = at {
                held.swap_remove(at);
            }
        });
    }
}
