//! A thread that has the kernel write back all dirty pages of our own mount, and waits for that.
//!
//! # Concurrency
//! The thread waits in the kernel, where no signal reaches it, for requests that the daemon's
//! workers serve. Should the daemon be killed meanwhile, the kernel ends the connection, and with
//! it the wait, when the last descriptor of `/dev/fuse` is closed. So the thread has a descriptor
//! table of its own, without that descriptor: otherwise it would keep open what it waits for. For
//! the same reason it is never joined.
//!
//! # Locks
//! `state` is a leaf.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use tracing::debug;

use crate::device::Device;
use crate::mount::MountPoint;

/// How often a waiter looks whether the device was closed, after which nothing is served any more.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct State {
    asked: u64,
    /// How many were tried.
    tried: u64,
    /// The last of them that the kernel has carried out.
    done: u64,
    /// The thread has ended, or is to end.
    ended: bool,
}

/// See the module's header.
pub(crate) struct Drainer {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Drainer {
    /// Starts the thread, for the mount at `point`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(point: &MountPoint) -> io::Result<Drainer> {
        let [of_thread, point] = [point.clone(), point.clone()];
        let prepare = move || of_thread.let_go_of_descriptors();
        Drainer::of(prepare, move || point.write_back())
    }

    /// With a thread that calls `prepare` once, and `write_back` each time.
    pub(crate) fn of(
        prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
        write_back: impl Fn() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Drainer> {
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let its = Arc::clone(&state);
        let thread = thread::Builder::new().name("fuse-drainer".into());
        thread.spawn(move || {
            let shared = Shared(its);
            match prepare() {
                Ok(()) => run(&shared.0, write_back),
                Err(error) => debug!("dirty pages are not drained: {error}"),
            }
        })?;
        Ok(Drainer { state })
    }

    /// Waits until all pages that are dirty now have been written back, or found no space; calls
    /// `meanwhile` now and then. Returns false at once where that cannot be done.
    pub(crate) fn drain(&self, device: &Device, meanwhile: impl Fn()) -> bool {
        let (state, changed) = &*self.state;
        let mut state = state.lock();
        state.asked += 1;
        let goal = state.asked;
        changed.notify_all();
        while state.tried < goal && !state.ended && !device.is_gone() {
            changed.wait_for(&mut state, LOOK);
            MutexGuard::unlocked(&mut state, &meanwhile);
        }
        state.done >= goal
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        end(&self.state);
    }
}

/// The thread's reference to the state: however it ends, its waiters hear of it.
struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Drop for Shared {
    fn drop(&mut self) {
        end(&self.0);
    }
}

fn end((state, changed): &(Mutex<State>, Condvar)) {
    state.lock().ended = true;
    changed.notify_all();
}

fn run((state, changed): &(Mutex<State>, Condvar), write_back: impl Fn() -> io::Result<()>) {
    loop {
        let goal = {
            let mut state = state.lock();
            while state.asked == state.tried && !state.ended {
                changed.wait(&mut state);
            }
            if state.ended {
                return;
            }
            state.asked
        };
        let outcome = write_back();
        if let Err(error) = &outcome {
            debug!("draining: {error}");
        }
        let mut state = state.lock();
        state.tried = goal;
        if outcome.map_or_else(|error| is_of_pages(&error), |()| true) {
            state.done = goal;
        }
        changed.notify_all();
    }
}

/// Whether the kernel has written back, and some pages found no space or no medium: their writers
/// are told otherwise.
fn is_of_pages(error: &io::Error) -> bool {
    let pages = [Errno::NOSPC, Errno::IO, Errno::FBIG, Errno::DQUOT];
    pages
        .map(Errno::raw_os_error)
        .contains(&error.raw_os_error().unwrap_or(0))
}
