//! A device in memory on which one request, or all from one on, fail.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Fault, FaultyDevice, Loss, LossyDevice, Request, RequestKind};

use crate::units::id_in;

/// The content of a request, as its bytes and its location show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Cargo {
    /// File data, of this write.
    Data(u16),
    /// Blocks of the log.
    Log,
    /// The superblock.
    Super,
    /// Any other metadata.
    Meta,
    /// Nothing: a flush.
    Nothing,
}

/// A request, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: RequestKind,
    pub(crate) cargo: Cargo,
    /// The step of the workload that ran.
    pub(crate) step: usize,
    pub(crate) by: Origin,
}

/// The thread that makes a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// The step itself.
    Step,
    /// The journal's thread: for the step, or behind it.
    Committer,
    /// The thread that deletes files which the step gave up.
    Reaper,
    /// A thread that the rules do not know.
    Other,
}

/// The mode in which a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    /// The request fails.
    Fail,
    /// It fails, and all after it.
    FailOn,
    /// All writes from it on fail; reads go on.
    Unwritable,
    /// A write fails for want of space (a thin device).
    Full,
    /// A write is done in part, and fails.
    Tear,
    /// The flush fails, or the one that a durable write begins with: it loses any earlier writes.
    /// Later ones succeed.
    Lose,
    /// The same of the flush that a durable write ends with.
    LoseLate,
}

impl Mode {
    pub(crate) const ALL: [Self; 7] = [
        Self::Fail,
        Self::FailOn,
        Self::Unwritable,
        Self::Full,
        Self::Tear,
        Self::Lose,
        Self::LoseLate,
    ];

    /// Returns whether this mode applies to such a request.
    pub(crate) fn concerns(self, kind: RequestKind, cargo: Cargo) -> bool {
        // Only these are written durably.
        let durable = kind == RequestKind::Write && matches!(cargo, Cargo::Log | Cargo::Super);
        match self {
            Self::Fail | Self::FailOn => true,
            Self::Unwritable | Self::Full => kind == RequestKind::Write,
            Self::Tear => kind != RequestKind::Flush,
            Self::Lose => durable || kind == RequestKind::Flush,
            Self::LoseLate => durable,
        }
    }

    /// Returns whether a flush fails that loses earlier writes.
    pub(crate) fn loses(self) -> bool {
        matches!(self, Self::Lose | Self::LoseLate)
    }

    /// Returns whether later requests fail as well.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::FailOn | Self::Unwritable)
    }
}

/// The request that fails, and the mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) at: u64,
    pub(crate) mode: Mode,
}

/// The device, and the record of its requests.
pub(crate) struct Stage {
    /// The content of the host's cache.
    pub(crate) memory: Arc<MemoryDevice>,
    host: Arc<Host>,
    pub(crate) device: Arc<dyn BlockDevice>,
    watch: Arc<Watch>,
}

/// A host that can lose writes.
type Host = LossyDevice<Arc<MemoryDevice>>;

struct Watch {
    memory: Arc<MemoryDevice>,
    host: Arc<Host>,
    log_blocks: Arc<HashSet<u64>>,
    block_size: u64,
    order: Option<Order>,
    step: AtomicUsize,
    /// The thread that takes the steps.
    stepper: Mutex<Option<ThreadId>>,
    seen: Mutex<Vec<Seen>>,
    fired: Mutex<Option<Seen>>,
}

impl Stage {
    /// A device with these bytes. `log_blocks` are the journal's, by number.
    pub(crate) fn new(
        base: &[u8],
        block_size: u64,
        log_blocks: Arc<HashSet<u64>>,
        order: Option<Order>,
    ) -> Self {
        let memory = Arc::new(MemoryDevice::from_bytes(base));
        let host = Arc::new(LossyDevice::new(memory.clone()));
        let watch = Arc::new(Watch {
            memory: memory.clone(),
            host: host.clone(),
            log_blocks,
            block_size,
            order,
            step: AtomicUsize::new(0),
            stepper: Mutex::default(),
            seen: Mutex::default(),
            fired: Mutex::default(),
        });
        let plan = watch.clone();
        let faulty = FaultyDevice::new(host.clone(), move |request: Request<'_>| {
            plan.decide(request)
        });
        Self {
            memory,
            host,
            device: Arc::new(faulty),
            watch,
        }
    }

    /// Cuts the power of a host that lost writes: its cache is gone, and some of the data that was
    /// not flushed.
    pub(crate) fn end(&self) {
        if let Some(Order { at, .. }) = self.order().filter(|order| order.mode.loses()) {
            self.host.crash(at).unwrap();
        }
    }

    /// Sets the failure.
    pub(crate) fn order(&self) -> Option<Order> {
        self.watch.order
    }

    /// Another step of the workload begins, on this thread.
    pub(crate) fn begin(&self, step: usize) {
        *self.watch.stepper.lock().unwrap() = Some(thread::current().id());
        self.watch.step.store(step, Ordering::Relaxed);
    }

    /// The request that failed first, if any.
    pub(crate) fn fired(&self) -> Option<Seen> {
        *self.watch.fired.lock().unwrap()
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.watch.seen.lock().unwrap().clone()
    }
}

impl Watch {
    fn decide(&self, request: Request<'_>) -> Fault {
        let seen = Seen {
            kind: request.kind,
            cargo: self.cargo(request),
            step: self.step.load(Ordering::Relaxed),
            by: self.origin(),
        };
        self.seen.lock().unwrap().push(seen);
        let Some(Order { at, mode }) = self.order else {
            return Fault::Pass;
        };
        let hit = request.index == at || (mode.lasts() && request.index > at);
        if !hit || !mode.concerns(request.kind, seen.cargo) {
            return Fault::Pass;
        }
        self.fired.lock().unwrap().get_or_insert(seen);
        match mode {
            Mode::Fail | Mode::FailOn | Mode::Unwritable => Fault::Fail(ErrorKind::Other),
            Mode::Full => Fault::Fail(ErrorKind::StorageFull),
            Mode::Tear => Fault::Tear(request.len / 1024 * 512),
            Mode::Lose | Mode::LoseLate => {
                self.host.fail(Loss {
                    after: u64::from(mode == Mode::LoseLate),
                    seed: at,
                    cached: true,
                });
                Fault::Pass
            }
        }
    }

    fn origin(&self) -> Origin {
        let current = thread::current();
        match current.name() {
            _ if *self.stepper.lock().unwrap() == Some(current.id()) => Origin::Step,
            Some("jbd2-commit") => Origin::Committer,
            Some("extant-reaper") => Origin::Reaper,
            _ => Origin::Other,
        }
    }

    fn cargo(&self, request: Request<'_>) -> Cargo {
        let mut stored = Vec::new();
        let bytes = match request.kind {
            RequestKind::Flush => return Cargo::Nothing,
            RequestKind::Write => request.data,
            RequestKind::Read => {
                stored.resize(usize::try_from(request.len).unwrap(), 0);
                let _ = self.memory.read_at(request.offset, &mut stored);
                &stored
            }
        };
        if self
            .log_blocks
            .contains(&(request.offset.get() / self.block_size))
        {
            Cargo::Log
        } else if let Some(id) = id_in(bytes) {
            Cargo::Data(id)
        } else if request.offset.get() == 1024 && request.len == 1024 {
            Cargo::Super
        } else {
            Cargo::Meta
        }
    }
}
