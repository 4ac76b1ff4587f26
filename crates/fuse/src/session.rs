//! A mount from beginning to end.
//!
//! [`Mount::new`] attaches the connection and agrees with the kernel; from then on the mount answers as soon as
//! [`Mount::run`] serves. That returns when the mount is gone and the image closed. An [`Unmounter`] ends it from another thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use extant::Volume;
use tracing::{debug, info, warn};

use crate::control::Control;
use crate::counters::Counters;
use crate::device::Device;
use crate::init::{self, Agreed, REPLY_LEN, REQUEST_LEN, Wishes};
use crate::mount::{self, MountOptions, MountPoint};
use crate::node_table::NodeTable;
use crate::pool::Pool;
use crate::server::{Server, Settings};

/// Workers: at least this many, so that a request that waits for another one cannot stop the mount.
const MIN_WORKERS: usize = 4;
/// And at most this many.
const MAX_WORKERS: usize = 32;

/// A mounted file system that is ready to serve.
pub struct Mount {
    volume: Volume,
    nodes: NodeTable,
    device: Arc<Device>,
    point: MountPoint,
    control: Control,
    counters: Arc<Counters>,
    agreed: Agreed,
    strict_open: bool,
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
    FileSystem(#[from] extant::Error),
}

impl Mount {
    /// Mounts `volume` on `dir`. `source` is what the table of mounts shows as its device. Clones of `volume` keep the image
    /// locked after the mount has ended.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn new(
        volume: Volume,
        source: &str,
        dir: &Path,
        options: &MountOptions,
    ) -> Result<Mount, MountError> {
        let failed = |source| MountError::Attach {
            dir: dir.to_owned(),
            source,
        };
        let nodes = NodeTable::new(volume.root()?);
        let control = Control::open().map_err(failed)?;
        let mount::Attached { fd, point } = mount::attach(source, dir, options).map_err(failed)?;
        let read_only = volume.read_only();
        let wishes = Wishes {
            writeback: options.writeback() && !read_only,
            time_gran: volume.time_granularity(),
        };
        let ready = Device::new(fd).and_then(|device| {
            let agreed = init::handshake(&device, wishes)?;
            Ok((device, agreed))
        });
        let (device, agreed) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                if let Err(error) = point.detach(true) {
                    warn!("{}: {error}", point.dir.display());
                }
                return Err(failed(error));
            }
        };
        if let Err(error) = mount::raise_limits(&point.dir) {
            debug!("limits of the mount stay as they are: {error}");
        }
        Ok(Mount {
            volume,
            nodes,
            device: Arc::new(device),
            point,
            control,
            counters: Arc::new(Counters::new()),
            agreed,
            // Where nothing can be written there is nothing to refuse.
            strict_open: options.strict_open() && !read_only,
        })
    }

    /// A handle that can end the mount.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter {
            device: Arc::clone(&self.device),
            point: self.point.clone(),
        }
    }

    /// A handle on the numbers of requests.
    pub fn requests(&self) -> Requests {
        Requests(Arc::clone(&self.counters))
    }

    /// Serves until the mount is gone, then closes the file system and tells whoever waits for it.
    ///
    /// # Errors
    /// What closing the file system reports, or what ended the connection.
    pub fn run(self) -> Result<(), MountError> {
        let served = self.serve();
        let Mount {
            volume,
            nodes,
            point,
            control,
            ..
        } = self;
        drop(nodes);
        let closed = volume.unmount();
        // The lock on the image goes with the last reference to the device.
        drop(volume);
        let outcome = match (closed, served) {
            (Err(error), _) => Err(MountError::from(error)),
            (Ok(()), Err(source)) => Err(MountError::Attach {
                dir: point.dir.clone(),
                source,
            }),
            (Ok(()), Ok(())) => Ok(()),
        };
        info!("{}: unmounted", point.dir.display());
        control.finish(outcome.as_ref().map(|_| ()).map_err(ToString::to_string));
        outcome
    }

    fn serve(&self) -> io::Result<()> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let settings = Settings {
            agreed: self.agreed,
            strict_open: self.strict_open,
            control: self.control.name().as_bytes().to_vec(),
        };
        let server = Server::new(
            &self.volume,
            &self.device,
            &self.nodes,
            &self.counters,
            settings,
        );
        let pool = Pool::new(&self.device, &server, cpus);
        pool.run(cpus.clamp(MIN_WORKERS, MAX_WORKERS), REQUEST_LEN, REPLY_LEN)
    }
}

/// Ends a mount from another thread than the one that serves it.
pub struct Unmounter {
    device: Arc<Device>,
    point: MountPoint,
}

impl Unmounter {
    /// Unmounts. If something still uses the mount, what the kernel holds is written back first, then it is detached and the
    /// connection closed: open files fail from then on.
    ///
    /// # Errors
    /// Those of taking the mount off. The session ends regardless.
    pub fn unmount(&self) -> io::Result<()> {
        let Err(busy) = self.point.detach(false) else {
            return Ok(());
        };
        debug!("{}: {busy}; detaching", self.point.dir.display());
        let written = mount::write_back(&self.point.dir);
        let detached = self.point.detach(true);
        self.device.close()?;
        written.and(detached)
    }
}

/// How many requests of each kind were served.
pub struct Requests(Arc<Counters>);

impl Requests {
    /// Name and number of every kind that occurred.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        self.0.list()
    }
}
