//! A condition variable.
//!
//! Threads that wait for a time stand in a list of their own ([`alarms`]): the checker's condition
//! variable knows no times. A notification for one thread goes to any of both.

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::scheduler::TaskId;
use shuttle::sync as checked;

use crate::modelled::alarms;
use crate::modelled::mutex::MutexGuard;
use crate::modelled::simulated_time::Instant;
use crate::modelled::thread::step;

/// The threads that wait.
#[derive(Default)]
struct Waiters {
    /// With a limit of time.
    timed: Vec<TaskId>,
    /// Without.
    untimed: usize,
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar {
    inner: checked::Condvar,
    /// The checker runs one thread at a time, and this lock is never held where it switches.
    waiters: std::sync::Mutex<Waiters>,
}

/// How a timed wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the time was up.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition without waiters.
    pub fn new() -> Self {
        Self::default()
    }

    fn waiters<R>(&self, work: impl FnOnce(&mut Waiters) -> R) -> R {
        let waiters = self.waiters.lock();
        work(&mut waiters.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waiters(|waiters| waiters.untimed += 1);
        let held = guard.held.take().unwrap();
        let woken = self.inner.wait(held);
        guard.held = Some(woken.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for a notification as long as `condition` says.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            self.wait(guard);
        }
    }

    /// Waits for a notification, or for `time`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        let me = shuttle::current::me();
        self.waiters(|waiters| waiters.timed.push(me));
        drop(guard.held.take());
        // A notification that came while the lock went has taken this thread off the list.
        let is_waiting = || self.waiters(|waiters| waiters.timed.contains(&me));
        if is_waiting() {
            alarms::sleep(time);
        }
        let timed_out = is_waiting();
        self.waiters(|waiters| waiters.timed.retain(|other| *other != me));
        guard.held = Some(guard.mutex.locked());
        WaitTimeoutResult(timed_out)
    }

    /// Waits for a notification, or until `due`.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, due: Instant) -> WaitTimeoutResult {
        let time = due.saturating_duration_since(Instant::now());
        self.wait_for(guard, time)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        // A point where the checker may switch, before the choice among those that wait.
        step();
        let (timed, untimed) = self.waiters(|waiters| (waiters.timed.len(), waiters.untimed));
        if timed + untimed == 0 {
            return;
        }
        let chosen = if timed + untimed == 1 {
            0
        } else {
            shuttle::rand::thread_rng().gen_range(0..timed + untimed)
        };
        if chosen < timed {
            let task = self.waiters(|waiters| waiters.timed.remove(chosen));
            alarms::wake(task);
        } else {
            self.waiters(|waiters| waiters.untimed -= 1);
            self.inner.notify_one();
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.inner.notify_all();
        let timed = self.waiters(|waiters| {
            waiters.untimed = 0;
            std::mem::take(&mut waiters.timed)
        });
        timed.into_iter().for_each(alarms::wake);
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
