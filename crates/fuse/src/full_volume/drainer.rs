//! A thread that has the kernel write back all dirty pages of our own mount, and waits for that.
//!
//! # Concurrency
//! The thread waits in the kernel, where no signal reaches it, for requests that the daemon's
//! workers serve. Should the daemon be killed meanwhile, the kernel ends the connection, and with
//! it the wait, when the last descriptor of `/dev/fuse` is closed. So the thread has a descriptor
//! table of its own, without that descriptor: otherwise it would keep open what it waits for. For
//! the same reason it is never joined.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use rustix::io::Errno;
use tracing::debug;

use crate::device::Device;
use crate::mount::MountPoint;

/// How often a waiter looks whether the device was closed, after which nothing is served any more.
const LOOK: Duration = Duration::from_millis(50);

/// See the module's header.
pub(crate) struct Drainer {
    wishes: Sender<()>,
    /// Returns whether the kernel has carried the wish out.
    outcomes: Receiver<bool>,
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
        let ((wishes, wished), (tell, outcomes)) = (channel(), channel());
        thread::Builder::new()
            .name("fuse-drainer".into())
            .spawn(move || {
                if let Err(error) = prepare() {
                    debug!("dirty pages are not drained: {error}");
                    return;
                }
                for () in wished {
                    let outcome = write_back();
                    if let Err(error) = &outcome {
                        debug!("draining: {error}");
                    }
                    if tell
                        .send(outcome.map_or_else(|error| is_of_pages(&error), |()| true))
                        .is_err()
                    {
                        return;
                    }
                }
            })?;
        Ok(Drainer { wishes, outcomes })
    }

    /// Waits until all pages that are dirty now have been written back, or found no space; calls
    /// `meanwhile` now and then. Returns false at once where that cannot be done.
    pub(crate) fn drain(&self, device: &Device, meanwhile: impl Fn()) -> bool {
        if self.wishes.send(()).is_err() {
            return false;
        }
        loop {
            match self.outcomes.recv_timeout(LOOK) {
                Ok(is_done) => return is_done,
                Err(RecvTimeoutError::Disconnected) => return false,
                // Nothing is drained any more.
                Err(RecvTimeoutError::Timeout) if device.is_gone() => return false,
                Err(RecvTimeoutError::Timeout) => meanwhile(),
            }
        }
    }
}

/// Returns whether the kernel has written back, and some pages found no space or no medium: their
/// writers are told otherwise.
fn is_of_pages(error: &io::Error) -> bool {
    let pages = [Errno::NOSPC, Errno::IO, Errno::FBIG, Errno::DQUOT];
    pages
        .map(Errno::raw_os_error)
        .contains(&error.raw_os_error().unwrap_or(0))
}
