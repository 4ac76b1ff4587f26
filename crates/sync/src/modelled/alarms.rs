//! Threads in a timed wait.
//!
//! Such a thread can always run: when it does, its time is up. So nothing that waits for a time can
//! hang, and a scheduler that knows these threads ([`sleeping`]) lets the others run first, as long
//! waits mostly do. A scheduler that does not know them ends the wait when it picks the thread.

use std::cell::RefCell;
use std::time::Duration;

use shuttle::scheduler::TaskId;

use crate::modelled::simulated_time as clock;

std::thread_local! {
    static SLEEPING: RefCell<Vec<TaskId>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether the thread that `task` names is in a timed wait.
pub fn sleeping(task: TaskId) -> bool {
    SLEEPING.with_borrow(|tasks| tasks.contains(&task))
}

/// Forgets all waits: another execution begins.
pub(crate) fn forget() {
    SLEEPING.take();
}

/// Ends the wait of a thread before its time.
pub(crate) fn wake(task: TaskId) {
    SLEEPING.with_borrow_mut(|tasks| tasks.retain(|other| *other != task));
}

/// Waits until another thread calls [`wake`], or `time` is over: then it returns true.
pub(crate) fn sleep(time: Duration) -> bool {
    let me = shuttle::current::me();
    SLEEPING.with_borrow_mut(|tasks| tasks.push(me));
    shuttle::thread::yield_now();
    let is_over = sleeping(me);
    if is_over {
        wake(me);
        clock::pass(time);
    }
    is_over
}
