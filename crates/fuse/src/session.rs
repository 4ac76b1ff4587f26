//! A mount from beginning to end.
//!
//! [`Mount::new`] takes a connection and agrees with the kernel; from then on the mount
//! answers as soon as [`Mount::run`] serves. That returns when the mount is gone and the image
//! closed. An [`Unmounter`] ends it from another thread.
//!
//! # Invariants
//! The steps of an end, in this order on every path:
//! 1. No request is served any more: the kernel has let go of the mount, or the device was closed
//!    here.
//! 2. The image is closed: everything is home, and the superblock says so, unless an error says
//!    otherwise.
//! 3. The lock on the image is given back.
//! 4. The clients of `control` get the outcome, and `run` returns; the process exits after that.
//!
//! A mount that ends otherwise than by an unmount (an error of the connection, no thread to serve
//! it) is taken off its directory: no dead mount is left there.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use extant_engine::Volume;
use tracing::{debug, info, warn};

use crate::control::{Control, ControlSocket};
use crate::counters::Counters;
use crate::device::Device;
use crate::in_flight::InFlight;
use crate::init::{self, Agreed, REPLY_LEN, REQUEST_LEN, RequestedFeatures};
use crate::mount::{Attached, Connection, MountOptions, MountPoint, Transport, dirty_limit};
use crate::node_table::NodeTable;
use crate::pool::{IdlePolicy, Pool};
use crate::server::{Server, Settings};
use crate::unmounter::{InterruptGuard, Unmounter};
use crate::uring::{BlankRings, Rings, kernel_offers_rings};

/// Workers: at least this many, so that a request that waits for another one cannot stop the mount.
const MIN_WORKERS: usize = 4;
/// And at most this many.
const MAX_WORKERS: usize = 32;
/// Workers at the device where rings carry the requests: one may be busy with what the kernel has
/// forgotten, another hears of interrupted requests.
const WORKERS_BESIDE_RINGS: usize = 2;

/// A mounted file system that is ready to serve.
pub struct Mount {
    volume: Volume,
    nodes: NodeTable,
    device: Arc<Device>,
    attachment: Attachment,
    control: Control,
    counters: Arc<Counters>,
    in_flight: Arc<InFlight>,
    closing: InterruptGuard,
    agreed: Agreed,
    rings: Option<Rings>,
    rings_required: bool,
    strict_open: bool,
    /// Workers at the device where no rings carry the requests.
    workers: usize,
    cpus: usize,
    dirty_limit: u64,
    facts: Vec<(&'static str, u64)>,
}

/// What a mount takes from its host before the process confines itself: its socket for the
/// programs that unmount it, and what the host says of itself.
pub struct HostSide {
    control: ControlSocket,
    cpus: usize,
    dirty_limit: u64,
    /// The rings, if requests are to come over some.
    rings: Option<io::Result<BlankRings>>,
}

impl HostSide {
    /// Takes it. Threads that confinement has to reach are started later.
    ///
    /// # Errors
    /// The host has no socket.
    pub fn take() -> io::Result<HostSide> {
        Ok(HostSide {
            control: ControlSocket::bind()?,
            cpus: thread::available_parallelism().map_or(1, usize::from),
            dirty_limit: dirty_limit(),
            rings: None,
        })
    }

    /// Makes the rings of io_uring that requests are to come over, and returns whether there are
    /// some. Without this call there are none. Where caches are bounded by `memory` bytes, the
    /// rings take a part of that beside them.
    pub fn make_rings(&mut self, options: &MountOptions, memory: Option<u64>) -> bool {
        self.rings = match options.transport() {
            Transport::Dev => None,
            Transport::Auto if !kernel_offers_rings() => None,
            Transport::Auto | Transport::Uring => Some(BlankRings::make(memory)),
        };
        matches!(self.rings, Some(Ok(_)))
    }
}

/// Takes the mount off its directory when dropped, if the kernel has not let go of it: a mount that
/// is not served must not stay there.
struct Attachment {
    point: MountPoint,
    device: Arc<Device>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Once the kernel has let go, the directory and the device number may be another mount's.
        if !self.device.is_disconnected() && self.point.is_topmost() {
            take_off(&self.point);
        }
    }
}

fn take_off(point: &MountPoint) {
    if let Err(error) = point.detach(true) {
        warn!("{}: detaching: {error}", point.dir.display());
    }
}

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The environment refused.
    #[error("{}: {source}", .dir.display())]
    Attach {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file system did.
    #[error(transparent)]
    FileSystem(#[from] extant_engine::Error),
}

/// Returns whether the kernel is to check permissions: unless the options leave that to the server,
/// and always where nothing changes, or where another process has mounted, which alone knows for
/// which users.
fn kernel_checks(volume: &Volume, point: &MountPoint, options: &MountOptions) -> bool {
    options.kernel_checks() || volume.read_only() || point.was_handed_over()
}

/// Returns whether the kernel may keep what is written. With limits of quotas a write must be
/// refused in time; and so with clusters of several blocks, as each page may need one.
fn may_keep_writes(volume: &Volume, options: &MountOptions) -> bool {
    let totals = volume.statfs();
    let has_clusters = totals.is_ok_and(|totals| totals.cluster_size > totals.block_size);
    options.writeback() && !volume.read_only() && !volume.keeps_quotas() && !has_clusters
}

impl Mount {
    /// Serves `volume` over `connection`. Clones of `volume` keep the image locked after the mount
    /// has ended.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn new(
        volume: Volume,
        connection: Connection,
        host: HostSide,
        options: &MountOptions,
    ) -> Result<Mount, MountError> {
        let Attached { fd, point } = connection.0;
        let dir = point.dir.clone();
        let failed = |source| MountError::Attach {
            dir: dir.clone(),
            source,
        };
        let device = match Device::new(fd) {
            Ok(device) => Arc::new(device),
            Err(error) => {
                take_off(&point);
                return Err(failed(error));
            }
        };
        let attachment = Attachment {
            point,
            device: Arc::clone(&device),
        };
        let mut rings = rings(host.rings, options, &device).map_err(failed)?;
        let nodes = NodeTable::new(volume.root()?);
        let control = Control::start(host.control).map_err(failed)?;
        let read_only = volume.read_only();
        let requested = RequestedFeatures {
            writeback: may_keep_writes(&volume, options),
            rings: rings.is_some(),
            kernel_checks: kernel_checks(&volume, &attachment.point, options),
            time_gran: volume.time_granularity(),
        };
        let agreed = init::handshake(&device, requested).map_err(failed)?;
        let rings_required = options.transport() == Transport::Uring;
        if rings_required && !agreed.rings {
            return Err(failed(no_rings()));
        }
        rings = rings.filter(|_| agreed.rings);
        control.watch(Arc::clone(&device));
        let dirty_limit = attachment.point.set_limits().unwrap_or_else(|error| {
            debug!("limits of the mount stay as they are: {error}");
            host.dirty_limit
        });
        let cpus = host.cpus;
        let workers = cpus.clamp(MIN_WORKERS, MAX_WORKERS);
        if let Some(rings) = &rings {
            device.use_rings(Arc::clone(rings.traffic()));
        }
        let ring_workers = rings.as_ref().map_or(0, Rings::workers);
        Ok(Mount {
            closing: InterruptGuard::new(volume.clone()),
            volume,
            nodes,
            device,
            attachment,
            control,
            counters: Arc::new(Counters::new()),
            in_flight: Arc::new(InFlight::new(workers + ring_workers)),
            agreed,
            rings,
            rings_required,
            // Where nothing can be written there is nothing to refuse.
            strict_open: options.strict_open() && !read_only,
            workers,
            cpus,
            dirty_limit,
            facts: Vec::new(),
        })
    }

    /// Adds numbers that never change to the counters of the mount.
    pub fn add_facts(&mut self, facts: impl IntoIterator<Item = (&'static str, u64)>) {
        self.facts.extend(facts);
    }

    /// A handle that can end the mount.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter::new(
            Arc::clone(&self.device),
            self.attachment.point.clone(),
            Arc::clone(&self.in_flight),
            self.closing.volume(),
        )
    }

    /// A handle on the numbers of requests.
    pub fn requests(&self) -> Requests {
        Requests(Arc::clone(&self.counters))
    }

    /// Serves until the mount is gone, then closes the file system and reports to the clients that
    /// wait for it. `ready` is called once the mount answers; should it fail, the mount ends.
    /// `closed` is called when the image is closed, before the report. A file system that was shut
    /// down by request ends as it was left, which is no failure.
    ///
    /// # Errors
    /// What closing the file system reports, or what ended the connection. The image is closed all
    /// the same.
    pub fn run(
        mut self,
        ready: impl FnOnce() -> io::Result<()>,
        closed: impl FnOnce(),
    ) -> Result<(), MountError> {
        let rings = self.rings.take();
        let served = self.serve(rings, ready);
        let Mount {
            volume,
            nodes,
            attachment,
            control,
            closing,
            ..
        } = self;
        let dir = attachment.point.dir.clone();
        drop(attachment);
        drop(nodes);
        let by_request = volume.is_shut_down_by_request();
        let unmounted = match volume.unmount() {
            Err(error) if by_request => {
                info!(
                    "{}: {error}; the next mount replays the journal",
                    dir.display()
                );
                Ok(())
            }
            unmounted => unmounted,
        };
        drop(closing);
        // The lock on the image goes with the last reference to the device.
        drop(volume);
        closed();
        let outcome = match (unmounted, served) {
            (Err(error), _) => Err(MountError::from(error)),
            (Ok(()), Err(source)) => Err(MountError::Attach {
                dir: dir.clone(),
                source,
            }),
            (Ok(()), Ok(())) => Ok(()),
        };
        info!("{}: unmounted", dir.display());
        control.finish(outcome.as_ref().map(|_| ()).map_err(ToString::to_string));
        outcome
    }

    fn serve(
        &self,
        rings: Option<Rings>,
        ready: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let settings = Settings {
            agreed: self.agreed,
            strict_open: self.strict_open,
            control: self.control.name().as_bytes().to_vec(),
            point: self.attachment.point.clone(),
            dirty_limit: self.dirty_limit,
            facts: self.facts.clone(),
            volume_len: self.volume_len(),
        };
        let server = Server::new(
            &self.volume,
            &self.device,
            &self.nodes,
            &self.counters,
            &self.in_flight,
            settings,
        );
        let in_flight = &*self.in_flight;
        thread::scope(|scope| {
            let named = |name: &str| thread::Builder::new().name(name.into());
            let mut ring_threads = None;
            let serve = || {
                named("fuse-gates").spawn_scoped(scope, || server.answer_writers())?;
                if let Some(rings) = rings {
                    let ours = (&server, &self.device);
                    let slots = (in_flight, self.workers);
                    ring_threads = rings.start(scope, ours, slots, self.rings_required)?;
                }
                let workers = self.workers_at_device(ring_threads.is_some());
                let pool = Pool::new(&self.device, &server, in_flight, workers);
                pool.run((REQUEST_LEN, REPLY_LEN), ready)
            };
            let mut result = serve();
            // The other threads find the device gone.
            result = result.and(self.device.close());
            server.stop();
            for worker in ring_threads.into_iter().flatten() {
                let died = |_| Err(io::Error::other("worker died"));
                result = worker.join().unwrap_or_else(died).and(result);
            }
            result
        })
    }

    /// How many workers there are at the device, and what the one that watches it does.
    fn workers_at_device(&self, rings_carry: bool) -> (usize, IdlePolicy) {
        match rings_carry {
            true => (WORKERS_BESIDE_RINGS, IdlePolicy::Gather),
            false if self.cpus > 1 => (self.workers, IdlePolicy::Poll),
            // On a single processor a worker that polls would take it from the process that is to
            // send the request.
            false => (self.workers, IdlePolicy::Sleep),
        }
    }

    fn volume_len(&self) -> u64 {
        let totals = self.volume.statfs();
        // A volume whose totals cannot be read has no room to watch. The length is for a limit.
        totals.map_or(0, |t| t.blocks.saturating_mul(u64::from(t.block_size)))
    }
}

/// The rings that the mount asks for, if they can be had.
fn rings(
    blank: Option<io::Result<BlankRings>>,
    options: &MountOptions,
    device: &Arc<Device>,
) -> io::Result<Option<Rings>> {
    let Some(blank) = blank else {
        return Ok(None);
    };
    match blank.and_then(|blank| Rings::prepare(device, blank, init::payload_len())) {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if options.transport() == Transport::Uring => {
            let what = format!("transport=uring: {error}");
            Err(io::Error::new(error.kind(), what))
        }
        Err(error) => {
            debug!("no rings for requests: {error}");
            Ok(None)
        }
    }
}

/// Why rings that were made are of no use.
fn no_rings() -> io::Error {
    let what = "transport=uring: the kernel offers no io_uring for FUSE (Linux 6.14 has it; root \
        switches it on: echo Y > /sys/module/fuse/parameters/enable_uring)";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// How many requests of each kind were served.
pub struct Requests(Arc<Counters>);

impl Requests {
    /// Name and number of every kind that occurred.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        self.0.list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_engine::VolumeOptions;
    use extant_testkit::{Image, Need, need};

    /// Of a mount that was handed over no caller can be looked up, and its launcher alone knows for
    /// which users it is.
    #[test]
    fn the_kernel_checks_where_the_server_cannot() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(16).make().unwrap();
        let own = MountPoint::new("/nowhere".into(), false);
        let null = std::fs::File::open("/dev/null").unwrap();
        let given = Connection::handed_over(null.into(), "/nowhere".as_ref());
        let given = given.0.point;
        let mut unchecked = MountOptions::default();
        unchecked.add("nodefault_permissions").unwrap();
        for (write, point, options, expected) in [
            (true, &own, &unchecked, false),
            (true, &given, &unchecked, true),
            (false, &own, &unchecked, true),
            (true, &own, &MountOptions::default(), true),
        ] {
            let mut opening = VolumeOptions::new();
            let volume = opening.write(write).open(image.path()).unwrap();
            assert_eq!(kernel_checks(&volume, point, options), expected, "{write}");
            volume.unmount().unwrap();
        }
    }
}
