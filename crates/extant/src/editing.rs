//! Which file systems this thread edits a file of, in place.
//!
//! During an edit ([`crate::file::edit`]) a caller's code runs with a range and a folio locked. If it came back to the same file
//! system it would wait for itself; so every operation asks here first, and is refused ([`crate::Error::Deadlock`]).
//!
//! Locks: none; all of it is the thread's own.

use std::cell::{Cell, RefCell};

thread_local! {
    /// The file systems that this thread edits a file of, by the address of what the mount is known by.
    static EDITED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// How many that are: every operation asks, and nearly always finds none.
    static EDITS: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is within an edit of a file of the mount that `mount` belongs to.
#[inline]
pub(crate) fn is_editing<T>(mount: &T) -> bool {
    EDITS.get() != 0 && {
        let key = std::ptr::from_ref(mount).addr();
        EDITED.with_borrow(|edited| edited.contains(&key))
    }
}

/// Marks this thread as editing while `change` runs.
pub(crate) fn during<T, R>(mount: &T, change: impl FnOnce() -> R) -> R {
    struct Mark;
    impl Drop for Mark {
        fn drop(&mut self) {
            EDITED.with_borrow_mut(Vec::pop);
            EDITS.set(EDITS.get() - 1);
        }
    }
    // Another file system may be used.
    let _unchecked = extant_lock_order::exempt();
    EDITED.with_borrow_mut(|edited| edited.push(std::ptr::from_ref(mount).addr()));
    EDITS.set(EDITS.get() + 1);
    let _until_here = Mark;
    change()
}
