//! Attaching a FUSE connection to a directory, and detaching it.
//!
//! Root calls mount(2); other users, and root where it may not, use the set-user-id program
//! `fusermount3`. Both give a descriptor of `/dev/fuse`, over which the session runs.

mod fusermount;
mod options;
mod table;
mod tuning;

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::UnmountFlags;
use rustix::process::{getegid, geteuid};

pub use options::{MountOptions, OptionError};
pub use table::MountEntry;
pub(crate) use tuning::raise_limits;

/// A directory with our connection on it.
pub(crate) struct Attached {
    pub(crate) fd: OwnedFd,
    pub(crate) point: MountPoint,
}

/// Where it is attached, and how it comes off again.
#[derive(Clone, Debug)]
pub(crate) struct MountPoint {
    pub(crate) dir: PathBuf,
    by_helper: bool,
    /// The mount's number in the kernel's table, if it can be had; no other mount has it for as
    /// long as the connection lives.
    device: Option<(u32, u32)>,
}

/// Attaches a new connection to `dir`.
pub(crate) fn attach(source: &str, dir: &Path, options: &MountOptions) -> io::Result<Attached> {
    let dir = dir.canonicalize()?;
    let metadata = dir.metadata()?;
    if !metadata.is_dir() {
        return Err(rustix::io::Errno::NOTDIR.into());
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
    fn new(dir: PathBuf, by_helper: bool) -> Self {
        let device = device_of(&dir).ok();
        Self {
            dir,
            by_helper,
            device,
        }
    }

    /// Whether what is mounted on the directory is this mount: it may have been moved, or another
    /// one may lie over it. Ask only while the connection lives.
    pub(crate) fn is_there(&self) -> bool {
        match MountEntry::find(&self.dir) {
            Ok(Some(entry)) => self.device.is_none_or(|device| device == entry.device),
            Ok(None) => false,
            // Without the table, the directory is what is known.
            Err(_) => true,
        }
    }

    /// Takes the mount off the directory: later opens do not reach it. Fails with EBUSY while
    /// something uses it, unless `lazy`, which lets what is open live on.
    pub(crate) fn detach(&self, lazy: bool) -> io::Result<()> {
        detach(&self.dir, lazy, self.by_helper)
    }
}

/// Detaches as an unmount of the same mount would, for a mount of any process.
pub fn detach(dir: &Path, lazy: bool, by_helper: bool) -> io::Result<()> {
    if by_helper {
        return fusermount::unmount(dir, lazy);
    }
    let flags = if lazy {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    Ok(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW)?)
}

/// The device number of the mount at `dir`, without asking the file system, which need not serve
/// yet.
fn device_of(dir: &Path) -> io::Result<(u32, u32)> {
    let stat = statx(CWD, dir, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Writes the kernel's dirty pages of the mount at `dir` back to us. Needs workers that serve
/// meanwhile.
pub(crate) fn write_back(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}
