//! `extant umount`: unmounting, and waiting until the image is closed.
//!
//! # Invariants
//! Without `-l` the exit status 0 means that the image is closed and marked clean, or that the
//! mount goes on at another mount point of this mount namespace. The command names that on standard
//! error; as umount(8)'s helper it says nothing of it. If it is not known when the image is closed,
//! or the wait for a mount in another namespace is given up, the status is a failure: the directory
//! is unmounted all the same.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use extant_fuse::{MountEntry, UnmountWaiter, detach};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::args::Umount;
use crate::failure::{At, Failure, Failures, Outcome, plain};
use crate::mount_point;
use crate::mount_users::{holders_elsewhere, users_of};
use crate::printable::print_error_line;
use crate::utab;

/// Between two tries to lock an image.
const POLL: Duration = Duration::from_millis(10);
/// How long another mount namespace may hold the mount of which no process is found: that of a
/// process which ends, or of another user.
const ELSEWHERE: Duration = Duration::from_secs(3);
/// How long another mount namespace may hold the mount where a process of it is found: one that is
/// just made for a service lets go within moments.
const PASSING: Duration = Duration::from_secs(1);
/// How long an image may stay locked whose daemon cannot be asked whether it is closing it.
const LOCKED: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Umount) -> Outcome {
    let mut failures = Failures::of("umount");
    for dir in &args.dirs {
        failures.note(unmount(dir, args));
    }
    failures.outcome()
}

fn unmount(given: &Path, args: &Umount) -> Result<(), Failure> {
    let lazy = args.lazy;
    let place = &given.display();
    let dir = mount_point::path_of(given).at(place)?;
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
    let wait = if lazy {
        Wait::Nothing
    } else {
        Wait::of(&dir, &entry).at(place)?
    };
    if let Err(error) = detach(&dir, lazy, !geteuid().is_root()) {
        let hint = match error.kind() {
            io::ErrorKind::ResourceBusy if !lazy => busy_hint(&dir),
            _ => String::new(),
        };
        let what = format!("{}{hint}", plain(&error));
        return Err(Failure::at(place, Failure::caused_by(error, what)));
    }
    utab::remove(&dir);
    match wait {
        Wait::Nothing => Ok(()),
        Wait::Daemon(waiter) => wait_for_daemon(waiter, &entry, args.as_helper).at(place),
        Wait::Lock(image) => wait_for_lock(&image).at(entry.source.display()),
        Wait::Unknown(why) => {
            let what = format!("unmounted, but it is not known when its image is closed: {why}");
            Err(Failure::at(place, what))
        }
    }
}

/// The users of `dir`, as far as this user may know, and what to do.
fn busy_hint(dir: &Path) -> String {
    let users = users_of(dir);
    let by = match users.as_slice() {
        [] => "something still uses it".to_owned(),
        _ => format!("still used by {}", users.join(", ")),
    };
    format!(" ({by}; -l detaches it all the same)")
}

/// The sign that the image is closed.
enum Wait {
    /// Nothing: nothing is waited for.
    Nothing,
    /// Its daemon.
    Daemon(UnmountWaiter),
    /// The lock on the image, opened while it was mounted: for a mount that this user may not look
    /// into, or whose daemon is dead.
    Lock(File),
    /// Neither can be had.
    Unknown(String),
}

impl Wait {
    fn of(dir: &Path, entry: &MountEntry) -> io::Result<Wait> {
        let error = match UnmountWaiter::connect(dir) {
            Ok(waiter) => return Ok(Wait::Daemon(waiter)),
            Err(error) => error,
        };
        let dead = error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
        if entry.kind != "fuse.extant" && !dead {
            return Err(io::Error::other(format!(
                "a mount of type {}, not of Extant",
                entry.kind
            )));
        }
        Ok(match open_image(&entry.source) {
            Ok(file) => Wait::Lock(file),
            Err(second) => Wait::Unknown(format!(
                "its daemon: {}; {}: {}",
                plain(&error),
                entry.source.display(),
                plain(&second)
            )),
        })
    }
}

/// The image by the name that the table of mounts has, which options may have changed.
fn open_image(source: &Path) -> io::Result<File> {
    let kind = source.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::other("no image"));
    }
    File::open(source)
}

fn wait_for_daemon(
    mut waiter: UnmountWaiter,
    entry: &MountEntry,
    as_helper: bool,
) -> io::Result<()> {
    if !waiter.wait_until_gone(Duration::ZERO)? {
        // The device number is this mount's only for as long as the daemon says that it is mounted:
        // it is asked before and after.
        let others = MountEntry::of_device(entry.device)?;
        let holders = match others.as_slice() {
            [] => holders_elsewhere(entry.device),
            _ => Vec::new(),
        };
        if let Some(other) = others.first()
            && !waiter.wait_until_gone(Duration::ZERO)?
        {
            if !as_helper {
                let (dir, other) = (entry.dir.display(), other.dir.display());
                print_error_line(&format!(
                    "extant: umount: {dir}: the image stays in use: \
                     it is mounted on {other} as well"
                ));
            }
            return Ok(());
        }
        let patience = match holders.as_slice() {
            [] => ELSEWHERE,
            _ => PASSING,
        };
        if !waiter.wait_until_gone(patience)? {
            let of = match holders.as_slice() {
                [] => String::new(),
                _ => format!(" (of {})", holders.join(", ")),
            };
            return Err(io::Error::other(format!(
                "unmounted here, but another mount namespace{of} still has the mount: \
                 the image stays in use until it is unmounted there",
            )));
        }
    }
    waiter.wait()
}

/// Waits until no daemon holds the image, and fails if it was left unclean.
fn wait_for_lock(image: &File) -> io::Result<()> {
    let end = Instant::now() + LOCKED;
    loop {
        match image.try_lock_shared() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "unmounted, but the image is still in use: \
                     it is being closed, or mounted elsewhere",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    if needs_recovery(image)? {
        return Err(io::Error::other(
            "unmounted, but its daemon died before the image was closed: \
             the next mount replays the journal",
        ));
    }
    Ok(())
}

/// Returns whether the superblock says that the journal is to be replayed.
fn needs_recovery(image: &File) -> io::Result<bool> {
    /// Offset of `s_feature_incompat`, and its bit.
    const INCOMPAT: u64 = 1024 + 0x60;
    const RECOVER: u32 = 0x4;
    let mut bits = [0; 4];
    image.read_exact_at(&mut bits, INCOMPAT)?;
    Ok(u32::from_le_bytes(bits) & RECOVER != 0)
}
