//! Attaching a FUSE connection to a directory, and detaching it.
//!
//! Root calls mount(2); other users, and root where it may not, use the set-user-id program
//! `fusermount3`. Both give a descriptor of `/dev/fuse`, over which the session runs. A process
//! that is confined has its keeper do so (`keeper`); one that was handed the descriptor over leaves
//! the mount to its parent.

mod dead;
mod fusermount;
mod identity;
mod options;
mod remount;
mod table;
mod tuning;

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::CapabilitySet;

use crate::capabilities::{self, Caller};
use crate::descriptors::unshare_and_close_descriptors;
use crate::keeper::Keeper;
pub use dead::{is_dead, take_off_dead, would_replace_dead};
pub use fusermount::detach;
pub(crate) use identity::MountId;
pub(crate) use options::Transport;
pub use options::{MountOptions, OptionError};
pub use remount::remount;
pub use table::MountEntry;
pub(crate) use tuning::dirty_limit;
use tuning::set_limits;

/// A directory with our connection on it.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) fd: OwnedFd,
    pub(crate) point: MountPoint,
}

/// Where it is attached, and how it comes off again.
#[derive(Clone, Debug)]
pub(crate) struct MountPoint {
    pub(crate) dir: PathBuf,
    access: MountAccess,
}

/// Access of a process to its mount.
#[derive(Clone, Debug)]
enum MountAccess {
    /// By itself.
    Own {
        by_helper: bool,
        /// None if the kernel did not say: such a mount is left to its user.
        mount: Option<MountId>,
    },
    /// By its keeper.
    Keeper(Arc<Keeper>),
    /// Not at all: the process that handed the connection over has mounted it, and unmounts it.
    Parent,
}

/// Attaches a new connection to `dir`, in the place of a dead mount of the same `source`.
pub(crate) fn attach(source: &str, dir: &Path, options: &MountOptions) -> io::Result<Attached> {
    let excluded = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    options.check().map_err(excluded)?;
    take_off_dead(source.as_ref(), dir)?;
    let dir = dir.canonicalize()?;
    let metadata = dir.metadata()?;
    if !metadata.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    if geteuid().is_root() {
        match attach_directly(source, &dir, metadata.mode(), options) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Ok(fd) => {
                let point = MountPoint::new(dir, false);
                return Ok(Attached { fd, point });
            }
            Err(error) => return Err(error),
        }
    }
    let fd = fusermount::mount(source, &dir, options)?;
    let point = MountPoint::new(dir, true);
    Ok(Attached { fd, point })
}

fn attach_directly(
    source: &str,
    dir: &Path,
    mode: u32,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("/dev/fuse: {error} (is the fuse module loaded?)"),
            )
        })?;
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={}",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    for word in options.connection_words() {
        let _ = write!(data, ",{word}");
    }
    let data = CString::new(data).map_err(|_| io::ErrorKind::InvalidInput)?;
    let kind = format!("fuse.{}", options.subtype());
    let name = options.fs_name(source);
    rustix::mount::mount(
        name,
        dir,
        kind.as_str(),
        options.mount_flags(),
        data.as_c_str(),
    )?;
    Ok(device.into())
}

impl MountPoint {
    pub(crate) fn new(dir: PathBuf, by_helper: bool) -> Self {
        let mount = MountId::at(&dir).ok();
        let access = MountAccess::Own { by_helper, mount };
        Self { dir, access }
    }

    /// That of a guest, which no process of this host sees.
    pub(crate) fn of_guest() -> Self {
        Self {
            dir: PathBuf::from("the guest"),
            access: MountAccess::Parent,
        }
    }

    /// Returns whether the directory shows this mount, which is this process's to take off: it may
    /// have been moved, or another one may lie over it.
    pub(crate) fn is_topmost(&self) -> bool {
        match &self.access {
            MountAccess::Own { mount, .. } => {
                mount.is_some() && MountId::at(&self.dir).ok() == *mount
            }
            MountAccess::Keeper(keeper) => keeper.is_there(),
            MountAccess::Parent => false,
        }
    }

    /// Fails unless `found` is this mount.
    fn check_is_ours(&self, found: MountId) -> io::Result<MountId> {
        match &self.access {
            MountAccess::Own { mount, .. } if *mount == Some(found) => Ok(found),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Takes the mount off the directory: later opens do not reach it. Fails with EBUSY while
    /// something uses it, unless `lazy`, which lets what is open live on, and with EINVAL if
    /// another mount is there.
    pub(crate) fn detach(&self, lazy: bool) -> io::Result<()> {
        match &self.access {
            MountAccess::Own { by_helper, .. } if lazy && !by_helper => {
                let root = identity::open_path(&self.dir)?;
                self.check_is_ours(MountId::of(&root)?)?;
                identity::detach_lazily(&root)
            }
            MountAccess::Own { by_helper, .. } => {
                // Not by a descriptor, which to the kernel would be a use of the mount.
                self.check_is_ours(MountId::at(&self.dir)?)?;
                detach(&self.dir, lazy, *by_helper)
            }
            MountAccess::Keeper(keeper) => keeper.detach(lazy),
            MountAccess::Parent => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Writes the kernel's dirty pages of the mount back to us. Needs workers that serve meanwhile.
    pub(crate) fn write_back(&self) -> io::Result<()> {
        match &self.access {
            MountAccess::Own { .. } => {
                let root = File::open(&self.dir)?;
                self.check_is_ours(MountId::of(&root)?)?;
                Ok(rustix::fs::syncfs(root)?)
            }
            MountAccess::Keeper(keeper) => keeper.write_back(),
            MountAccess::Parent => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns whether [`MountPoint::write_back`] has a way to the mount.
    pub(crate) fn can_write_back(&self) -> bool {
        !matches!(self.access, MountAccess::Parent)
    }

    /// Prepares the calling thread for [`MountPoint::write_back`]: it must not hold `/dev/fuse`
    /// while it waits in the kernel for requests of our own mount.
    pub(crate) fn let_go_of_descriptors(&self) -> io::Result<()> {
        match &self.access {
            MountAccess::Own { .. } => unshare_and_close_descriptors(),
            // The keeper waits, and has no such descriptor.
            MountAccess::Keeper(_) | MountAccess::Parent => Ok(()),
        }
    }

    /// Returns whether another process has mounted, which alone knows the users it is for.
    pub(crate) fn was_handed_over(&self) -> bool {
        matches!(self.access, MountAccess::Parent)
    }

    /// The capabilities of a caller.
    pub(crate) fn capabilities_of(&self, caller: Caller) -> io::Result<CapabilitySet> {
        match &self.access {
            MountAccess::Own { .. } => capabilities::of_caller(caller),
            MountAccess::Keeper(keeper) => keeper.capabilities_of(caller),
            MountAccess::Parent => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns whether a caller is in a group.
    pub(crate) fn is_in_group(&self, caller: Caller, gid: u32) -> io::Result<bool> {
        match &self.access {
            MountAccess::Own { .. } => capabilities::is_in_group(caller, gid),
            MountAccess::Keeper(keeper) => keeper.is_in_group(caller, gid),
            MountAccess::Parent => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sets the limits that the kernel has for the mount, as far as that is permitted. Returns the
    /// bytes that it then holds dirty at most.
    pub(crate) fn set_limits(&self) -> io::Result<u64> {
        match &self.access {
            MountAccess::Own { .. } => Ok(set_limits(
                self.check_is_ours(MountId::at(&self.dir)?)?.device,
            )),
            MountAccess::Keeper(keeper) => keeper.set_limits(),
            MountAccess::Parent => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A connection to the kernel, and the mount that it serves.
#[derive(Debug)]
pub struct Connection(pub(crate) Attached);

impl Connection {
    /// Mounts on `dir`. `source` is what the table of mounts shows as its device. A dead mount of
    /// the same one is taken off.
    ///
    /// # Errors
    /// What the host says.
    pub fn attach(source: &str, dir: &Path, options: &MountOptions) -> io::Result<Connection> {
        attach(source, dir, options).map(Connection)
    }

    /// Has the keeper mount, on `dir`, which it was started for.
    ///
    /// # Errors
    /// As [`Connection::attach`].
    pub fn by_keeper(keeper: &Arc<Keeper>, dir: &Path, read_only: bool) -> io::Result<Connection> {
        let fd = keeper.mount(read_only)?;
        let access = MountAccess::Keeper(Arc::clone(keeper));
        let dir = dir.to_owned();
        Ok(Connection(Attached {
            fd,
            point: MountPoint { dir, access },
        }))
    }

    /// Takes over `/dev/fuse` from a process that has mounted it, or will, and that unmounts it.
    /// Messages name the mount as `dir`.
    #[must_use]
    pub fn handed_over(fd: OwnedFd, dir: &Path) -> Connection {
        let (dir, access) = (dir.to_owned(), MountAccess::Parent);
        Connection(Attached {
            fd,
            point: MountPoint { dir, access },
        })
    }
}
