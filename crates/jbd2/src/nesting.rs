//! A check for builds with debug assertions: a thread holds one handle of a journal at most, and none while
//! it waits for a commit. Either would hang as soon as the transaction locks.

use crate::journal::Core;

#[cfg(debug_assertions)]
thread_local! {
    static HELD: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Core {
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

    /// Notes that this thread now holds a handle, or no longer does.
    #[inline]
    pub(crate) fn note_handle_here(&self, starts: bool) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            let me = std::ptr::from_ref(self).addr();
            if starts {
                held.push(me);
            } else if let Some(at) = held.iter().position(|&core| core == me) {
                held.swap_remove(at);
            }
        });
        #[cfg(not(debug_assertions))]
        let _ = starts;
    }
}
