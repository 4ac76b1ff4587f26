//! A mount over a simulated kernel, under random programs: no process can keep it from going on,
//! each request is answered once, and what a write has accepted is there.
//!
//! The server, its workers and the thread of the gates are the product's. The kernel's side is
//! [`kernel`]: it numbers requests, tells of signals, keeps attributes until it is told that they
//! are old, holds dirty pages below its limit and writes them back in an order of its own, as Linux
//! does. Requests come by `/dev/fuse` ([`channel`]) or over rings ([`crate::uring::simulated`]).
//! Processes ([`client`]) run programs that a seed chooses on a volume with little space, and
//! compare each answer and each byte with what they have done. [`mistakes`] has the server make
//! mistakes, which have to be found.
//!
//! The order of threads is the host's, so a seed names a program and not a run: `EXTANT_SEED` is
//! the first one, and `EXTANT_RUNS` and `EXTANT_SECONDS` say how many there are.

mod channel;
mod client;
mod crowds;
mod device_queue;
mod kernel;
mod lookups;
mod mistakes;
mod pages;
mod shape;
mod surroundings;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use extant_engine::{FallocateMode, Volume, VolumeOptions};
use extant_testkit::{Image, Need, Rng, need};

use self::client::Client;
use self::kernel::{Aborted, Kernel};
use self::shape::{MIB, Shape};
use self::surroundings::Surroundings;
use super::planted::{Mistake, Planted};
use super::{Server, Settings};
use crate::counters::Counters;
use crate::device::Device;
use crate::full_volume::drainer::Drainer;
use crate::in_flight::InFlight;
use crate::init::{Agreed, REPLY_LEN, REQUEST_LEN};
use crate::mount::MountPoint;
use crate::node_table::NodeTable;
use crate::pool::Pool;
use crate::uring::simulated::{RingHost, SimulatedQueues};

/// Programs of a short round.
const PROGRAMS: u64 = 12;

/// A volume of which so much is free.
fn filled(image: &Image, free: u64) -> Volume {
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let cred = extant_engine::Cred::root();
    let root = volume.root().unwrap();
    let filler = volume.create(&root, b"filler", 0o600, &cred).unwrap();
    let len = volume.room(false).saturating_sub(free);
    let allocate = FallocateMode::Allocate { keep_size: false };
    volume.fallocate(&filler, allocate, 0, len, &cred).unwrap();
    volume
}

fn settings(shape: &Shape) -> Settings {
    Settings {
        agreed: Agreed {
            setxattr_ext: true,
            writeback: true,
            no_open: true,
            no_opendir: true,
            rings: shape.rings.is_some(),
            checks_set_gid: true,
            kernel_checks: true,
        },
        strict_open: true,
        control: Vec::new(),
        point: MountPoint::new("/nowhere".into(), false),
        dirty_limit: shape.dirty_limit + shape.dirty_limit / 4,
        facts: Vec::new(),
        volume_len: shape.mib * MIB,
    }
}

/// Runs a program. Returns how often pages were lost, none of which was promised space.
fn run(shape: &Shape, mut rng: Rng, mistake: Option<Mistake>) -> u64 {
    let image = Image::of_mib(shape.mib)
        .args("-b 4096 -m 0")
        .make()
        .unwrap();
    let volume = filled(&image, shape.free);
    let inodes = volume.statfs().unwrap().inodes_free;
    let kernel = Kernel::new(shape.limits(), rng.fork());
    let bell = kernel.0.bell.try_clone().unwrap();
    let device = Device::simulated(bell, Box::new(kernel.clone())).unwrap();
    let queues = queues_of(shape, &kernel);
    let nodes = NodeTable::new(volume.root().unwrap());
    let in_flight = InFlight::new(shape.workers + shape.ring_workers());
    let counters = Counters::new();
    let settings = settings(shape);
    let mut server = Server::new(&volume, &device, &nodes, &counters, &in_flight, settings);
    server.planted = Planted { mistake };
    server.full.patience = shape.patience;
    let drain = kernel.clone();
    let drainer = Drainer::of(|| Ok(()), move || drain.start_write_back()).unwrap();
    server.use_drainer(drainer);
    let world = Surroundings {
        kernel: &kernel,
        server: &server,
        volume: &volume,
        has_plenty: shape.has_plenty(),
        patience: shape.patience,
        whole_files: shape.whole_files,
    };
    let ended = thread::scope(|scope| {
        let rings = queues.as_ref().map(|queues| {
            let place = RingHost {
                server: &server,
                device: &device,
                in_flight: &in_flight,
                first_slot: shape.workers,
            };
            queues.start(scope, &place, &mut rng).unwrap()
        });
        scope.spawn(|| server.answer_writers());
        let pool = Pool::new(&device, &server, &in_flight, (shape.workers, shape.policy));
        let pool = scope.spawn(move || pool.run((REQUEST_LEN, REPLY_LEN), || Ok(())));
        let ended = catch_unwind(AssertUnwindSafe(|| drive(world, shape, &mut rng, inodes)));
        // Where a process failed others may wait: the mount goes, and with it all threads.
        kernel.unmount();
        pool.join().unwrap().unwrap();
        device.close().unwrap();
        server.stop();
        for worker in rings.into_iter().flatten() {
            worker.join().unwrap().unwrap();
        }
        ended
    });
    let (_, losses) = kernel.losses();
    drop(server);
    drop(nodes);
    if let Err(failure) = ended {
        resume_unwind(failure);
    }
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
    losses
}

/// The queues of the program's rings, if it has some. They are a part of the kernel.
fn queues_of(shape: &Shape, kernel: &Kernel) -> Option<Arc<SimulatedQueues>> {
    let rings = shape.rings.clone()?;
    let taker = Arc::downgrade(&kernel.0);
    let take = Box::new(move |reply: &[u8]| {
        if let Some(shared) = taker.upgrade() {
            Kernel(shared).take(reply);
        }
    });
    let queues = Arc::new(SimulatedQueues::new(rings, take));
    let _ = kernel.0.queues.set(Arc::clone(&queues));
    Some(queues)
}

/// Runs the processes until all have ended, or have found the mount gone as planned.
fn drive(world: Surroundings<'_>, shape: &Shape, rng: &mut Rng, inodes: u64) {
    let kernel = world.kernel;
    let failure = thread::scope(|scope| {
        let behind = rng.fork();
        let flusher = scope.spawn(move || kernel.flush_behind(behind));
        let aborts_after = shape.aborts_after;
        scope.spawn(move || {
            if let Some(after) = aborts_after {
                thread::sleep(after);
                kernel.unmount();
            }
        });
        let processes: Vec<_> = (0..shape.processes)
            .map(|number| spawn(scope, world, (number, shape.operations), rng.fork()))
            .collect();
        let joined = processes.into_iter().map(thread::ScopedJoinHandle::join);
        let ended: Vec<_> = joined.collect();
        kernel.end_flushing();
        let ended = ended.into_iter().chain([flusher.join()]);
        let is_failure = |payload: &Box<dyn Any + Send>| !payload.is::<Aborted>();
        ended.filter_map(Result::err).find(is_failure)
    });
    match failure {
        Some(failure) => resume_unwind(failure),
        None if shape.aborts_after.is_some() => {}
        None => world.check_at_end(inodes),
    }
}

/// Starts a process. Should it fail, the others find the mount gone.
fn spawn<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    world: Surroundings<'scope>,
    (number, operations): (usize, usize),
    rng: Rng,
) -> thread::ScopedJoinHandle<'scope, ()> {
    scope.spawn(move || {
        let process = Client::new(world, number, rng);
        let ended = catch_unwind(AssertUnwindSafe(|| process.run(operations)));
        if let Err(failure) = ended {
            world.kernel.unmount();
            resume_unwind(failure);
        }
    })
}

#[test]
fn programs_over_a_simulated_kernel_end_and_are_answered() {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("EXTANT_SEED").unwrap_or(1);
    let least = number("EXTANT_RUNS").unwrap_or(PROGRAMS);
    let time = Duration::from_secs(number("EXTANT_SECONDS").unwrap_or(0));
    let begun = Instant::now();
    let (mut seed, mut losses) = (first, 0);
    while seed - first < least || begun.elapsed() < time {
        let mut rng = Rng::new(seed);
        let shape = Shape::chosen_by(&mut rng);
        println!("EXTANT_SEED={seed} {shape:?}");
        losses += run(&shape, rng, None);
        seed += 1;
    }
    let (programs, seconds) = (seed - first, begun.elapsed().as_secs());
    println!("{programs} programs in {seconds} s, pages were lost {losses} times");
}
