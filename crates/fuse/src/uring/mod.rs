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
//! served do. [`BlankRings::make`] makes all rings, [`Rings::prepare`] all memory. The threads
//! start in [`Rings::start`]; after that they register the device with their rings, enable and
//! enter them, and bind themselves to processors.

mod entry;
mod processors;
mod ring;
mod untrusted;
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
use processors::Processors;
use ring::{Blank, Ring};
pub(crate) use untrusted::serve_entry;
use worker::{Party, Worker};

/// Workers of each queue, together with those of the other queues about so many: while one serves a
/// long request, or its request waits, others take the next. The kernel prefers the one that was
/// busy last, so the many cost memory alone.
const WORKERS: usize = 32;
/// Limits of the workers of one queue.
const PER_QUEUE: std::ops::RangeInclusive<usize> = 4..=16;

/// What a worker is for: the queues that it has entries of, and the processor that it stays on.
struct Duty {
    queues: Vec<usize>,
    processor: Option<usize>,
}

/// Rings without entries. They are made before the process confines itself, which then makes none.
pub(crate) struct BlankRings {
    duties: Vec<(Duty, Blank)>,
    processors: Processors,
}

/// How many workers serve each of `queues` queues.
fn per_queue(queues: usize) -> usize {
    (WORKERS / queues.max(1)).clamp(*PER_QUEUE.start(), *PER_QUEUE.end())
}

/// A duty for each worker.
fn duties(processors: &Processors) -> Vec<Duty> {
    let Processors { possible, online } = processors;
    let per_queue = per_queue(online.len());
    let mut duties = Vec::new();
    for &queue in online {
        // One stays where the callers are. The others go where there is time for them.
        duties.extend((0..per_queue).map(|i| Duty {
            queues: vec![queue],
            processor: (i == 0).then_some(queue),
        }));
    }
    // As many entries as a queue of a processor that is on: it may be switched on later.
    let off: Vec<usize> = (0..*possible)
        .filter(|p| !online.contains(p))
        .flat_map(|p| std::iter::repeat_n(p, per_queue))
        .collect();
    if !off.is_empty() {
        duties.push(Duty {
            queues: off,
            processor: None,
        });
    }
    duties
}

impl BlankRings {
    /// Makes them, for the processors of this machine.
    ///
    /// # Errors
    /// The kernel refuses rings, or does not say what processors there are.
    pub(crate) fn make() -> io::Result<BlankRings> {
        let processors = Processors::read()?;
        let duties = duties(&processors).into_iter().map(|duty| {
            let blank = Blank::make(duty.queues.len())?;
            Ok((duty, blank))
        });
        Ok(BlankRings {
            duties: duties.collect::<io::Result<_>>()?,
            processors,
        })
    }
}

/// The rings of a mount, before they are used.
pub(crate) struct Rings {
    workers: Vec<Worker>,
    traffic: Arc<Traffic>,
}

impl Rings {
    /// Gives `blank` rings to `device`, for payloads of up to `payload_len` bytes.
    ///
    /// # Errors
    /// Memory is short.
    pub(crate) fn prepare(
        device: &Arc<Device>,
        blank: BlankRings,
        payload_len: usize,
    ) -> io::Result<Rings> {
        let BlankRings { duties, processors } = blank;
        let mut workers = Vec::with_capacity(duties.len());
        for (duty, blank) in duties {
            let entry = |&queue: &usize| {
                let queue = u16::try_from(queue).map_err(io::Error::other)?;
                Entry::new(queue, payload_len)
            };
            let entries: io::Result<Vec<_>> = duty.queues.iter().map(entry).collect();
            let ring = Ring::new(device, blank, entries?);
            workers.push(Worker::new(ring, workers.len(), duty.processor)?);
        }
        let entries = per_queue(processors.online.len());
        let traffic = Arc::new(Traffic::new(workers.len(), processors.possible, entries)?);
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
        assert_eq!([1, 2, 3, 4, 64].map(per_queue), [16, 16, 10, 8, 4]);
    }

    #[test]
    fn queues_of_processors_that_are_off_have_entries_too() {
        let processors = Processors {
            possible: 4,
            online: vec![0, 2],
        };
        let duties = duties(&processors);
        assert_eq!(duties.len(), 2 * per_queue(2) + 1);
        let queues: Vec<usize> = duties.iter().flat_map(|d| d.queues.clone()).collect();
        let entries = |queue| queues.iter().filter(|&&q| q == queue).count();
        assert!((0..4).all(|queue| entries(queue) == per_queue(2)));
        let bound: Vec<_> = duties.iter().filter_map(|duty| duty.processor).collect();
        assert_eq!(bound, [0, 2]);
    }
}
