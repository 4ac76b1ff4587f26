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
//!   processor 0 ---> queue 0 ---> worker 0, worker 1, ... (on processor 0)
//!   processor 1 ---> queue 1 ---> worker k, ... (on processor 1)
//!   processors that are off ----> two workers for each queue, or for some of the queues
//! ```
//!
//! # Concurrency
//! A worker serves one request at a time, and a request waits only for what requests that are being
//! served do. [`BlankRings::make`] makes all rings, [`Rings::prepare`] all memory. The threads
//! start in [`Rings::start`], which returns once the rings carry requests, or once it is decided
//! that they will not (`start`).

mod affinity;
mod entry;
mod processors;
mod ring;
#[cfg(test)]
pub(crate) mod simulated;
mod start;
#[cfg(test)]
mod tests;
mod transport;
mod untrusted;
mod untrusted_ring;
mod worker;

use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::{fs, io};

use extant_ring::CommandProbe;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

use crate::device::Device;
use crate::in_flight::InFlight;
use crate::init::MAX_IO;
use crate::serve::Serve;
use crate::traffic::Traffic;
use processors::Processors;
use ring::{Blank, Ring, decline};
use start::{StartControl, start_of_worker, take_steps};
use transport::EntryRing;
pub(crate) use untrusted::serve_entry;
pub(crate) use untrusted_ring::UntrustedRing;
use worker::{Party, Worker};

/// Workers of each queue, together with those of the other queues about so many: while one serves a
/// long request, or its request waits, others take the next. The kernel prefers the one that was
/// busy last, so the many cost a stack and some pages each.
const WORKERS: usize = 64;
/// Limits of the workers of one queue.
const PER_QUEUE: RangeInclusive<usize> = 4..=16;
/// A queue has at least so many, where memory is bounded, and while its processor is off: one may
/// wait for what another serves.
const FEWEST: usize = 2;
/// Workers of all processors that are off at most. Where these are more than half as many, workers
/// have entries of several queues, as a virtual machine may have hundreds that never run.
const WORKERS_OF_OFF: usize = 32;
/// The part of the bound that entries may come to hold: they hold what the largest requests have
/// carried.
const SHARE_OF_MEMORY: u64 = 4;
/// Descriptors of each worker: its ring and its bell.
const DESCRIPTORS: usize = 2;
/// Descriptors of the rest of the daemon.
const OTHER_DESCRIPTORS: usize = 128;

/// What a worker is for: the queues that it has entries of, and the processor of the queue if it
/// is one that runs.
struct Duty {
    queues: Vec<usize>,
    processor: Option<usize>,
}

/// Rings without entries. They are made before the process confines itself, which then makes none.
pub(crate) struct BlankRings {
    duties: Vec<(Duty, Blank)>,
    /// For the start: see [`CommandProbe::may_command`] and [`decline`].
    probe: CommandProbe,
    spare: Blank,
    processors: Processors,
    /// Background requests in work from which on the kernel may hold some back.
    background: u64,
}

/// How many workers serve each of `queues` queues, where memory is bounded by `memory` bytes.
fn per_queue(queues: usize, memory: Option<u64>) -> usize {
    let queues = queues.max(1);
    let wanted = (WORKERS / queues).clamp(*PER_QUEUE.start(), *PER_QUEUE.end());
    let fits = memory.map_or(u64::MAX, |bytes| {
        bytes / SHARE_OF_MEMORY / u64::from(MAX_IO)
    });
    let fits = usize::try_from(fits).unwrap_or(usize::MAX);
    wanted.min((fits / queues).max(FEWEST))
}

/// A duty for each worker.
fn duties(processors: &Processors, memory: Option<u64>) -> Vec<Duty> {
    let Processors { possible, online } = processors;
    let per_queue = per_queue(online.len(), memory);
    let mut duties = Vec::new();
    for &queue in online {
        duties.extend((0..per_queue).map(|_| Duty {
            queues: vec![queue],
            processor: Some(queue),
        }));
    }
    // The kernel insists on an entry. Should the processor be switched on later, its callers have
    // workers that run on any.
    let off: Vec<usize> = (0..*possible).filter(|p| !online.contains(p)).collect();
    let groups = off.len().min(WORKERS_OF_OFF / FEWEST);
    for first in 0..groups {
        let queues: Vec<usize> = off.iter().copied().skip(first).step_by(groups).collect();
        duties.extend((0..FEWEST).map(|_| Duty {
            queues: queues.clone(),
            processor: None,
        }));
    }
    duties
}

/// Has the process keep as many descriptors open as `workers` need, if it may. Where it may not,
/// making them fails.
fn raise_descriptor_limit(workers: usize) {
    let needed = (workers * DESCRIPTORS + OTHER_DESCRIPTORS) as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let raised = Rlimit {
        current: Some(maximum.map_or(needed, |maximum| needed.min(maximum))),
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        debug!("the limit of descriptors stays: {error}");
    }
}

/// Whether the kernel has FUSE over io_uring, and root has switched it on.
pub(crate) fn kernel_offers_rings() -> bool {
    let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    switch.is_ok_and(|switch| switch.trim() == "Y")
}

/// How many background requests the kernel grants a process without privileges, which INIT asks
/// for more of; 0 if it does not say.
fn max_background() -> u64 {
    let limit = fs::read_to_string("/sys/module/fuse/parameters/max_user_bgreq");
    let limit = limit.map_or(0, |limit| limit.trim().parse().unwrap_or(0));
    u64::min(limit, u16::MAX.into())
}

impl BlankRings {
    /// Makes them, for the processors of this machine, and for a process whose memory is bounded
    /// by `memory` bytes.
    ///
    /// # Errors
    /// The kernel refuses rings, or does not say what processors there are.
    pub(crate) fn make(memory: Option<u64>) -> io::Result<BlankRings> {
        BlankRings::of(Processors::read()?, memory)
    }

    /// The same for these `processors`.
    fn of(processors: Processors, memory: Option<u64>) -> io::Result<BlankRings> {
        let duties = duties(&processors, memory);
        raise_descriptor_limit(duties.len());
        let duties = duties.into_iter().map(|duty| {
            let blank = Blank::for_commands(duty.queues.len())?;
            Ok((duty, blank))
        });
        Ok(BlankRings {
            duties: duties.collect::<io::Result<_>>()?,
            probe: CommandProbe::make()?,
            spare: Blank::for_commands(0)?,
            processors,
            background: max_background(),
        })
    }
}

/// The rings of a mount, before they are used.
pub(crate) struct Rings {
    workers: Vec<Worker>,
    spare: Blank,
    traffic: Arc<Traffic>,
}

/// The threads of rings that carry requests.
pub(crate) type RingThreads<'scope> = Vec<ScopedJoinHandle<'scope, io::Result<()>>>;

impl Rings {
    /// Gives `blank` rings to `device`, for payloads of up to `payload_len` bytes. To be called
    /// before the kernel is told that there are rings: after that it sends nothing without them.
    ///
    /// # Errors
    /// Memory or descriptors are short, or a security module forbids commands to the device.
    pub(crate) fn prepare(
        device: &Arc<Device>,
        blank: BlankRings,
        payload_len: usize,
    ) -> io::Result<Rings> {
        let BlankRings {
            duties,
            probe,
            spare,
            processors,
            background,
        } = blank;
        probe.may_command(device.as_fd())?;
        let mut workers = Vec::with_capacity(duties.len());
        for (duty, blank) in duties {
            let queues = duty.queues.into_iter().map(u16::try_from);
            let queues = queues.collect::<Result<_, _>>().map_err(io::Error::other)?;
            let ring = Ring::new(device, blank, queues, payload_len)?;
            workers.push(Worker::new(ring, workers.len(), duty.processor)?);
        }
        let mut traffic = Traffic::new(workers.len(), processors.possible)?;
        let entries = workers.iter().flat_map(Worker::queues).count();
        traffic.set_bound(background, entries as u64);
        Ok(Rings {
            workers,
            spare,
            traffic: Arc::new(traffic),
        })
    }

    /// How many workers there will be.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Starts the workers, which have the slots of `in_flight` from `first_slot` on. From then on
    /// the rings carry requests, and a worker that fails closes the device. `None` if they cannot
    /// be started: the kernel sends requests by `/dev/fuse`.
    ///
    /// # Errors
    /// They cannot be started, and are `required` or the kernel cannot be told. The device has to
    /// be closed.
    pub(crate) fn start<'scope, S: Serve>(
        self,
        scope: &'scope Scope<'scope, '_>,
        (server, device): (&'scope S, &'scope Arc<Device>),
        (in_flight, first_slot): (&'scope InFlight, usize),
        required: bool,
    ) -> io::Result<Option<RingThreads<'scope>>> {
        let party = Party {
            server,
            device,
            traffic: Arc::clone(&self.traffic),
            in_flight,
            first_slot,
        };
        let mut threads = Vec::with_capacity(self.workers.len());
        let mut controls = Vec::with_capacity(self.workers.len());
        let all = (&mut threads, &mut controls);
        let spawned = spawn_all(scope, self.workers, &party, all);
        let error = match spawned.and_then(|()| take_steps(&controls)) {
            Ok(refused) => {
                refused
                    .iter()
                    .for_each(|&worker| self.traffic.retire(worker));
                return Ok(Some(threads));
            }
            Err(error) => error,
        };
        drop(controls);
        for thread in threads {
            // It has told what there is to tell.
            let _ = thread.join();
        }
        if required {
            let what = format!("transport=uring: {error}");
            return Err(io::Error::new(error.kind(), what));
        }
        warn!("no rings for requests, /dev/fuse is used: {error}");
        decline(device, self.spare)?;
        Ok(None)
    }
}

/// Starts a thread for each worker, which waits for its steps.
///
/// # Errors
/// One cannot be started. Those before it were.
fn spawn_all<'scope, S: Serve, R: EntryRing + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    workers: Vec<Worker<R>>,
    party: &Party<'scope, S>,
    (threads, controls): (&mut RingThreads<'scope>, &mut Vec<StartControl>),
) -> io::Result<()> {
    let last_queue = workers.iter().flat_map(Worker::queues).last().copied();
    for (number, mut worker) in workers.into_iter().enumerate() {
        let (control, start) = start_of_worker(worker.queues().last().copied() == last_queue);
        let party = party.clone();
        let builder = thread::Builder::new().name(format!("fuse-ring-{number}"));
        threads.push(builder.spawn_scoped(scope, move || {
            let _close = CloseIfPanicking(party.device);
            let ended = worker.run(&start, &party);
            if ended.is_err() {
                party.device.close()?;
            }
            ended
        })?);
        controls.push(control);
    }
    Ok(())
}

/// A worker that panics leaves requests without an answer: the mount ends.
struct CloseIfPanicking<'a>(&'a Device);

impl Drop for CloseIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The bell of a device can be rung as long as there is one.
            let _ = self.0.close();
        }
    }
}
