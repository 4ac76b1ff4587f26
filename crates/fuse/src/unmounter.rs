//! Ending a mount from another thread than the one that serves it, as a signal does.
//!
//! # Invariants
//! The mount ends within seconds, whatever it does: each step but the kernel's own unmount has a
//! bound, and what takes long in the engine is interrupted. What is interrupted has changed
//! nothing, or is finished by the next mount (a removal, as an orphan).

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use extant_engine::Volume;
use parking_lot::Mutex;
use tracing::debug;

use crate::device::Device;
use crate::in_flight::InFlight;
use crate::mount::MountPoint;

/// How long the kernel may take to disconnect a mount that nothing uses any more.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the kernel's dirty pages may take to be handed over, and to be served, when a mount in
/// use ends.
const WRITEBACK_TIMEOUT: Duration = Duration::from_secs(3);
/// How long requests, and removals at the end, may take before they are interrupted.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two looks whether something has happened.
const POLL: Duration = Duration::from_millis(5);

/// The volume for as long as its walks can be interrupted: until it is closed.
pub(crate) type InterruptibleVolume = Arc<Mutex<Option<Volume>>>;

/// Lets go of the volume when dropped: after it was closed and before the lock on the image is to
/// be given back.
pub(crate) struct InterruptGuard(InterruptibleVolume);

impl InterruptGuard {
    pub(crate) fn new(volume: Volume) -> Self {
        Self(Arc::new(Mutex::new(Some(volume))))
    }

    pub(crate) fn volume(&self) -> InterruptibleVolume {
        Arc::clone(&self.0)
    }
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        let volume = self.0.lock().take();
        drop(volume);
    }
}

/// Ends a mount from another thread than the one that serves it.
pub struct Unmounter {
    device: Arc<Device>,
    point: MountPoint,
    in_flight: Arc<InFlight>,
    volume: InterruptibleVolume,
}

impl Unmounter {
    pub(crate) fn new(
        device: Arc<Device>,
        point: MountPoint,
        in_flight: Arc<InFlight>,
        volume: InterruptibleVolume,
    ) -> Self {
        Self {
            device,
            point,
            in_flight,
            volume,
        }
    }

    /// Unmounts. If something still uses the mount (open files, another mount point, another mount
    /// namespace), what the kernel holds is written back first, as far as that takes seconds, then
    /// the connection is closed: open files fail from then on. Long walks of the engine are
    /// interrupted if they do not end by themselves.
    ///
    /// # Errors
    /// Those of taking the mount off. The session ends regardless.
    pub fn unmount(&self) -> io::Result<()> {
        let result = self.end_requests();
        if !within(FINISH_TIMEOUT, || self.volume.lock().is_none())
            && let Some(volume) = &*self.volume.lock()
        {
            debug!("{}: interrupting what takes long", self.point.dir.display());
            volume.interrupt_all();
        }
        result
    }

    /// Takes the mount off, and closes the connection if the kernel does not let go of it.
    fn end_requests(&self) -> io::Result<()> {
        let mut result = Ok(());
        let mut patience = DISCONNECT_TIMEOUT;
        if !self.device.is_gone() && self.point.is_topmost() {
            result = self.write_back();
            match self.point.detach(false) {
                Ok(()) => {}
                Err(busy) => {
                    debug!("{}: {busy}; detaching", self.point.dir.display());
                    result = result.and(self.point.detach(true));
                    patience = Duration::ZERO;
                }
            }
        }
        if within(patience, || self.device.is_gone()) {
            return result;
        }
        // Requests that were sent before are served, as long as no new ones keep coming.
        within(WRITEBACK_TIMEOUT, || {
            self.device.is_gone() || self.is_quiet()
        });
        self.device.close()?;
        result
    }

    /// Whether no request waits or is served, at two looks: one of them may fall between a worker's
    /// reading a request and its beginning to serve it.
    fn is_quiet(&self) -> bool {
        let look = || !self.device.may_have_unserved() && self.in_flight.is_empty();
        look() && {
            thread::sleep(POLL);
            look()
        }
    }

    /// Has the kernel hand its dirty pages over, and waits for that for a while.
    fn write_back(&self) -> io::Result<()> {
        let (done, outcome) = mpsc::channel();
        let point = self.point.clone();
        let thread = thread::Builder::new().name("write-back".into());
        thread.spawn(move || {
            // It must not keep `/dev/fuse` open while it waits in the kernel: see `drainer`.
            let outcome = point.let_go_of_descriptors();
            let outcome = outcome.and_then(|()| point.write_back());
            done.send(outcome)
        })?;
        match outcome.recv_timeout(WRITEBACK_TIMEOUT) {
            Ok(outcome) => outcome,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Returns whether `happened` becomes true within `patience`.
fn within(patience: Duration, happened: impl Fn() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if happened() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(POLL);
    }
}
