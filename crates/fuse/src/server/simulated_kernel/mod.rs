//! A mount over a simulated kernel, under random programs: no process can keep it from going on,
//! each request is answered once, and what a write has accepted is there.
//!
//! The server, its workers and the thread of the gates are the product's. The kernel's side is
//! [`kernel`], the end of a socket that stands for `/dev/fuse`: it numbers requests, tells of
//! signals, keeps attributes until it is told that they are old, holds dirty pages below its limit
//! and writes them back in an order of its own, as Linux does. Processes ([`client`]) run programs
//! that a seed chooses on a volume with little space, and compare each answer and each byte with
//! what they have done.
//!
//! The order of threads is the host's, so a seed names a program and not a run: `EXTANT_SEED` is
//! the first one, and `EXTANT_RUNS` and `EXTANT_SECONDS` say how many there are.

mod client;
mod kernel;
mod pages;

use std::thread;
use std::time::{Duration, Instant};

use extant_engine::{FallocateMode, Volume, VolumeOptions};
use extant_testkit::{Image, Need, Rng, need};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use self::client::Client;
use self::kernel::Kernel;
use super::{Server, Settings};
use crate::counters::Counters;
use crate::device::Device;
use crate::full_volume::drainer::Drainer;
use crate::in_flight::InFlight;
use crate::init::{Agreed, REPLY_LEN, REQUEST_LEN};
use crate::mount::MountPoint;
use crate::node_table::NodeTable;
use crate::pool::{IdlePolicy, Pool};

const MIB: u64 = 1 << 20;
/// Programs of a short round.
const PROGRAMS: u64 = 12;

/// The measures of a run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The volume's size in MiB.
    mib: u64,
    /// Bytes of it that are free at first.
    free: u64,
    /// Bytes that the kernel holds dirty at most.
    dirty_limit: u64,
    workers: usize,
    processes: usize,
    /// Operations of each process.
    operations: usize,
}

impl Shape {
    fn chosen_by(rng: &mut Rng) -> Shape {
        // The larger volume has times of plenty: it is short below 48 MiB more than the limit.
        let (mib, free) = match rng.chance(25) {
            true => (128, (48 * MIB) + rng.between(1, 6) * MIB),
            false => (16, rng.between(1, 6) * MIB),
        };
        Shape {
            mib,
            free,
            dirty_limit: rng.between(1, 3) * MIB,
            workers: 1 + rng.index(4),
            processes: 2 + rng.index(3),
            operations: 24,
        }
    }
}

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

fn settings(shape: Shape) -> Settings {
    Settings {
        agreed: Agreed {
            setxattr_ext: true,
            writeback: true,
            no_open: true,
            no_opendir: true,
            rings: false,
            checks_set_gid: true,
        },
        strict_open: true,
        control: Vec::new(),
        point: MountPoint::new("/nowhere".into(), false),
        dirty_limit: shape.dirty_limit + shape.dirty_limit / 4,
        facts: Vec::new(),
        volume_len: shape.mib * MIB,
    }
}

/// Runs the program of `seed`. Returns how many pages found no space that were promised some.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let shape = Shape::chosen_by(&mut rng);
    println!("{shape:?}");
    let image = Image::of_mib(shape.mib)
        .args("-b 4096 -m 0")
        .make()
        .unwrap();
    let volume = filled(&image, shape.free);
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::empty(), None).unwrap();
    let device = Device::new(ours).unwrap();
    let nodes = NodeTable::new(volume.root().unwrap());
    let (counters, in_flight) = (Counters::new(), InFlight::new(shape.workers));
    let server = Server::new(
        &volume,
        &device,
        &nodes,
        &counters,
        &in_flight,
        settings(shape),
    );
    let kernel = Kernel::new(theirs, shape.dirty_limit);
    let drain = kernel.clone();
    let drainer = Drainer::of(|| Ok(()), move || drain.start_write_back()).unwrap();
    server.use_drainer(drainer);
    thread::scope(|scope| {
        scope.spawn(|| server.answer_writers());
        let policy = [IdlePolicy::Poll, IdlePolicy::Sleep][rng.index(2)];
        let pool = Pool::new(&device, &server, &in_flight, (shape.workers, policy));
        scope.spawn(move || pool.run((REQUEST_LEN, REPLY_LEN), || Ok(())).unwrap());
        scope.spawn(|| kernel.hear());
        let flusher = scope.spawn({
            let rng = rng.fork();
            let kernel = &kernel;
            move || kernel.flush_behind(rng)
        });
        let processes: Vec<_> = (0..shape.processes)
            .map(|number| {
                let process = Client::new((&kernel, &volume), number, rng.fork());
                scope.spawn(move || process.run(shape.operations))
            })
            .collect();
        let ended: Vec<_> = processes
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        kernel.end_flushing();
        let flushed = flusher.join();
        let is_fine = ended.iter().all(Result::is_ok) && flushed.is_ok();
        // Where a process failed others may wait: the kernel's end goes, and with it all threads.
        let idle = if is_fine { kernel.is_idle() } else { Ok(()) };
        kernel.unmount();
        server.stop();
        idle.unwrap();
        for one in ended {
            one.unwrap();
        }
    });
    drop(server);
    drop(nodes);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
    kernel.broken_promises()
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
    let mut seed = first;
    while seed - first < least || begun.elapsed() < time {
        println!("EXTANT_SEED={seed}");
        assert_eq!(run(seed), 0, "promised pages, EXTANT_SEED={seed}");
        seed += 1;
    }
}
