//! The file systems of which this thread edits a file in place.
//!
//! During an edit ([`crate::file::edit`]) the caller's closure runs with a range and a folio
//! locked. A call from it into the same file system would wait for itself. So every operation asks
//! here first, and fails with [`crate::Error::Deadlock`].
//!
//! # Locks
//! None: all state is the thread's own.

use std::cell::{Cell, RefCell};

extant_sync::thread_local! {
    /// The mounts of which this thread edits a file, by the address of their `Fault`.
    static EDITED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// How many there are. Every operation asks, and nearly always finds none.
    static EDITS: Cell<usize> = const { Cell::new(0) };
}

/// Returns whether this thread edits a file of the mount that `mount` belongs to.
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
            let mark = EDITED.with_borrow_mut(Vec::pop);
            debug_assert!(mark.is_some(), "each edit ends once");
            EDITS.set(EDITS.get() - 1);
            debug_assert_eq!(EDITS.get(), EDITED.with_borrow(Vec::len));
        }
    }
    // The closure may use another file system.
    let _unchecked = extant_lock_order::exempt();
    EDITED.with_borrow_mut(|edited| edited.push(std::ptr::from_ref(mount).addr()));
    EDITS.set(EDITS.get() + 1);
    let _until_here = Mark;
    change()
}
