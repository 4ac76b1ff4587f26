//! Requests over rings of io_uring, instead of `/dev/fuse`.
//!
//! The kernel has a queue for each processor that the machine may have, and gives a request to the
//! queue of the processor that its caller runs on. It sends requests once each queue has an entry:
//! memory for a request and its reply (`entry`), registered by a command on `/dev/fuse` that
//! completes when the entry holds a request (`ring`). The reply leaves with the command that waits
//! for the next request, so a request costs one system call, and caller and worker take turns on
//! one processor. FORGET, INTERRUPT and what the daemon notifies still go by `/dev/fuse`.
//!
//! ```text
//!   processor 0 ---> queue 0 ---> worker 0 (stays on processor 0), worker 1, ...
//!   processor 1 ---> queue 1 ---> worker k (stays on processor 1), ...
//!   processors that are off ----> one worker, an entry for each of their queues
//! ```
//!
//! # Concurrency
//! A worker serves one request at a time, and a request waits only for what requests that are being
//! served do. [`Rings::prepare`] makes all rings and all memory. The threads start in
//! [`Rings::start`]; after that they enter rings, register the device with them, and bind
//! themselves to processors.

mod entry;
mod processors;
mod ring;
mod worker;

use std::io;
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};

use tracing::warn;

use crate::device::Device;
use crate::in_flight::InFlight;
use crate::serve::Serve;
use crate::traffic::Traffic;
use entry::Entry;
pub(crate) use processors::Processors;
use ring::Ring;
use worker::{Party, Worker};

/// Workers of each queue, together with those of the other queues about so many: while one serves a
/// long request, others take the next.
const WORKERS: usize = 8;
/// Limits of the workers of one queue.
const PER_QUEUE: std::ops::RangeInclusive<usize> = 2..=4;

/// The rings of a mount, before they are used.
pub(crate) struct Rings {
    workers: Vec<Worker>,
    traffic: Arc<Traffic>,
}

/// How many workers serve each of `queues` queues.
fn per_queue(queues: usize) -> usize {
    (WORKERS / queues.max(1)).clamp(*PER_QUEUE.start(), *PER_QUEUE.end())
}

impl Rings {
    /// Makes the rings of `device`, for payloads of up to `payload_len` bytes.
    ///
    /// # Errors
    /// The kernel refuses rings, or memory is short.
    pub(crate) fn prepare(
        device: &Arc<Device>,
        processors: &Processors,
        payload_len: usize,
    ) -> io::Result<Rings> {
        let Processors { possible, online } = processors;
        let mut workers = Vec::new();
        let mut add = |queues: &[usize], processor| {
            let entry = |&queue: &usize| {
                let queue = u16::try_from(queue).map_err(io::Error::other)?;
                Entry::new(queue, payload_len)
            };
            let entries: io::Result<Vec<_>> = queues.iter().map(entry).collect();
            let ring = Ring::new(device, entries?)?;
            workers.push(Worker::new(ring, workers.len(), processor)?);
            io::Result::Ok(())
        };
        for &queue in online {
            for i in 0..per_queue(online.len()) {
                // One stays where the callers are. The others go where there is time for them.
                add(&[queue], (i == 0).then_some(queue))?;
            }
        }
        let max_later = per_queue(online.len()) - 1;
        // As many entries as a queue of a processor that is on: it may be switched on later.
        let off: Vec<usize> = (0..*possible)
            .filter(|p| !online.contains(p))
            .flat_map(|p| std::iter::repeat_n(p, max_later + 1))
            .collect();
        if !off.is_empty() {
            add(&off, None)?;
        }
        let traffic = Arc::new(Traffic::new(workers.len(), max_later)?);
        Ok(Rings { workers, traffic })
    }

    /// How many workers there will be.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Starts the workers, which have the slots of `in_flight` from `first_slot` on. A worker that
    /// fails closes the device, unless the kernel has refused its rings and they are not
    /// `required`: it sends requests by `/dev/fuse` then.
    ///
    /// # Errors
    /// A thread cannot be started. The device has to be closed then.
    pub(crate) fn start<'scope, S: Serve>(
        self,
        scope: &'scope Scope<'scope, '_>,
        (server, device): (&'scope S, &'scope Device),
        (in_flight, first_slot): (&'scope InFlight, usize),
        required: bool,
    ) -> io::Result<Vec<ScopedJoinHandle<'scope, io::Result<()>>>> {
        let mut handles = Vec::with_capacity(self.workers.len());
        for (number, mut worker) in self.workers.into_iter().enumerate() {
            let traffic = Arc::clone(&self.traffic);
            let builder = thread::Builder::new().name(format!("fuse-ring-{number}"));
            handles.push(builder.spawn_scoped(scope, move || {
                let ended = worker.run(Party {
                    server,
                    traffic: &traffic,
                    in_flight,
                    first_slot,
                });
                // Where FUSE itself refuses a ring the kernel goes on by `/dev/fuse`. A security
                // module refuses before FUSE hears of it: requests would then never end.
                let by_fuse = |error: &io::Error| {
                    worker.has_registered() && error.kind() != io::ErrorKind::PermissionDenied
                };
                let may_fall_back = !required && !traffic.carries() && !device.is_gone();
                match ended {
                    Err(error) if may_fall_back && by_fuse(&error) => {
                        warn!("the kernel refuses a ring, /dev/fuse is used: {error}");
                        Ok(())
                    }
                    Err(error) => {
                        device.close()?;
                        Err(error)
                    }
                    Ok(()) => Ok(()),
                }
            })?);
        }
        Ok(handles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_a_worker_to_spare() {
        assert_eq!([1, 2, 3, 4, 64].map(per_queue), [4, 4, 2, 2, 2]);
    }
}
