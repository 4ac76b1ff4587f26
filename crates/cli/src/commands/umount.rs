//! `extant umount`: unmounting, and waiting until the image is closed.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use extant_fuse::{MountEntry, Waiter, detach};
use rustix::process::geteuid;

use crate::args::Umount;
use crate::failure::{At, Failure, Outcome, plain};
use crate::utab;

/// How often a lock that somebody holds is tried.
const POLL: Duration = Duration::from_millis(10);

pub(crate) fn run(args: &Umount) -> Outcome {
    unmount(args).into()
}

fn unmount(args: &Umount) -> Result<(), Failure> {
    let place = &args.dir.display();
    let dir = absolute(&args.dir).at(place)?;
    let entry = MountEntry::find(&dir).at("/proc/self/mountinfo")?;
    let entry = entry.ok_or_else(|| {
        let what = if dir.exists() {
            "not mounted"
        } else {
            "No such file or directory"
        };
        Failure::at(place, what)
    })?;
    if !entry.kind.starts_with("fuse") {
        return Err(Failure::at(
            place,
            format!("a mount of type {}, not of Extant", entry.kind),
        ));
    }
    let waiter = if args.lazy {
        None
    } else {
        waiter(&dir, &entry).at(place)?
    };
    if let Err(error) = detach(&dir, args.lazy, !geteuid().is_root()) {
        let hint = match error.kind() {
            io::ErrorKind::ResourceBusy if !args.lazy => {
                " (something still uses it; -l detaches it all the same)"
            }
            _ => "",
        };
        return Err(Failure::at(place, format!("{}{hint}", plain(&error))));
    }
    utab::remove(&dir);
    match waiter {
        None => Ok(()),
        Some(Wait::Daemon(waiter)) => waiter.wait().at(place),
        Some(Wait::Lock(image)) => wait_for_lock(&image).at(image.display()),
    }
}

/// What tells that the image is closed.
enum Wait {
    /// Its daemon.
    Daemon(Waiter),
    /// The lock on the image: for a mount that we may not look into, or whose daemon is dead.
    Lock(PathBuf),
}

fn waiter(dir: &Path, entry: &MountEntry) -> io::Result<Option<Wait>> {
    match Waiter::connect(dir) {
        Ok(waiter) => Ok(Some(Wait::Daemon(waiter))),
        Err(_) if entry.kind == "fuse.extant" => Ok(entry
            .source
            .is_file()
            .then(|| Wait::Lock(entry.source.clone()))),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => {
            Ok(None)
        }
        Err(_) => Err(io::Error::other(format!(
            "a mount of type {}, not of Extant",
            entry.kind
        ))),
    }
}

fn wait_for_lock(image: &Path) -> io::Result<()> {
    let file = File::open(image)?;
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(POLL),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The canonical path of a mount point, without looking into the mount: its daemon may be dead.
fn absolute(dir: &Path) -> io::Result<PathBuf> {
    match dir.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => {
            let Some(name) = dir.file_name() else {
                return Err(error);
            };
            let parent = match dir.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            Ok(parent.canonicalize()?.join(name))
        }
    }
}
