//! Opening and claiming a file or block device of the host.
//!
//! # Invariants
//! - A regular file is claimed by the locks of `claim.rs`. While a writer has it, no other process
//!   of the host has it open for writing, and no loop device is over it.
//! - A block device is opened with `O_EXCL`: the kernel refuses a device that is mounted or that
//!   another device is made of, and a disk with such a partition.
//! - Opening waits at most [`PATIENCE`] for what holds the image for a moment only, and does not
//!   block otherwise: other users of a file, exclusive openers that Linux does not list (programs
//!   that look at new devices), and loop devices that Linux is about to detach.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tracing::debug;

use crate::claim::{self, Claim};
use crate::device_users;
use crate::loops::{self, LoopUse};
use crate::ring_refusal::RingRefusal;

/// How an image is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Reads only. Several readers may share the image.
    ReadOnly,
    /// Reads and writes. No other process may have the image open.
    ReadWrite,
}

/// Why an image could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process or the kernel uses the image; the text names it.
    InUse(PathBuf, String),
    /// Neither a regular file nor a block device.
    NotADevice(PathBuf),
    /// The environment refused.
    Io(PathBuf, io::Error),
}

impl OpenError {
    /// The errno that a call of Linux would fail with.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::InUse(..) => Errno::BUSY,
            Self::NotADevice(path) if path.is_dir() => Errno::ISDIR,
            Self::NotADevice(_) => Errno::INVAL,
            Self::Io(_, error) => return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        };
        errno.raw_os_error()
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(path, by) => write!(f, "{}: in use by {by}", path.display()),
            Self::NotADevice(path) => {
                write!(
                    f,
                    "{}: neither a regular file nor a block device",
                    path.display()
                )
            }
            Self::Io(path, source) => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, source) => Some(source),
            _ => None,
        }
    }
}

/// A file that was opened and claimed.
pub(crate) struct Opened {
    pub(crate) file: File,
    /// The file that a reader's lock is on.
    pub(crate) mark: Option<File>,
    pub(crate) loops: Vec<LoopUse>,
    pub(crate) len: u64,
}

/// How long others are waited for that hold an image. A daemon whose mount is gone closes its
/// image, and after the end of a process its rings hold their files for a moment.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// The user of a locked file, in errors.
const A_PROCESS: &str = "another process";
/// The same, where that is the caller.
const THIS_PROCESS: &str = "this process, which has it open already";

/// Opens and claims `path`.
pub(crate) fn open_claimed(path: &Path, mode: OpenMode) -> Result<Opened, OpenError> {
    let opened = claimed(PATIENCE, path, mode);
    // What was opened for this attempt is closed again.
    opened.map_err(|error| match error {
        OpenError::InUse(path, by) if by == A_PROCESS && is_open_here(&path) => {
            OpenError::InUse(path, THIS_PROCESS.into())
        }
        other => other,
    })
}

/// Returns whether this process has the file at `path` open for writing, as every claim needs. Its
/// descriptors are compared by their names: a look at a file may wait for another process.
fn is_open_here(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let mut same = open
        .flatten()
        .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file == path));
    same.any(|fd| {
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd.file_name()));
        let info = info.unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        // In octal; the last digit has the mode of access, of which zero is reading alone.
        flags.is_some_and(|flags| !flags.trim_end().ends_with('0'))
    })
}

/// Returns how long others are waited for that hold `path`: not at all if it is this process, which
/// may wait for itself.
fn patience_for(path: &Path, patience: Duration) -> Duration {
    match is_open_here(path) {
        true => Duration::ZERO,
        false => patience,
    }
}

fn claimed(patience: Duration, path: &Path, mode: OpenMode) -> Result<Opened, OpenError> {
    let io_error = |source| OpenError::Io(path.to_owned(), source);
    let metadata = path.metadata().map_err(io_error)?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotADevice(path.to_owned()));
    }
    let patience = patience_for(path, patience);
    let (mut file, mark, loops) = if mode == OpenMode::ReadOnly {
        let (file, mark) = open_to_read(patience, path, &metadata)?;
        (file, mark, loops::over(&metadata))
    } else {
        (open_to_write(patience, path, &metadata)?, None, Vec::new())
    };
    // The flag keeps `open` from waiting. For a ring it would mean to fail rather than wait.
    let set = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
    set.map_err(|errno| io_error(errno.into()))?;
    let len = file.seek(SeekFrom::End(0)).map_err(io_error)?;
    Ok(Opened {
        file,
        mark,
        loops,
        len,
    })
}

/// Claims a file that another process has opened. `name` is for messages. A block device is
/// exclusive only if it was opened so.
pub(crate) fn take_over(mut file: File, name: &Path) -> Result<(Opened, OpenMode), OpenError> {
    let io_error = |source| OpenError::Io(name.to_owned(), source);
    let in_use = |by: String| OpenError::InUse(name.to_owned(), by);
    let metadata = file.metadata().map_err(io_error)?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotADevice(name.to_owned()));
    }
    let flags = fcntl_getfl(&file).map_err(|errno| io_error(errno.into()))?;
    let mode = match flags & OFlags::RWMODE {
        OFlags::RDONLY => OpenMode::ReadOnly,
        OFlags::RDWR => OpenMode::ReadWrite,
        _ => return Err(io_error(io::ErrorKind::PermissionDenied.into())),
    };
    let loops = loops::over(&metadata);
    let changing = |one: &&LoopUse| mode == OpenMode::ReadWrite || !one.read_only;
    if let Some(one) = loops.iter().find(changing) {
        let by = one.device.display();
        return Err(in_use(format!("Linux, through the loop device {by}")));
    }
    if kind.is_file() {
        let claimed = match mode {
            OpenMode::ReadWrite => claim::for_writing(&file),
            OpenMode::ReadOnly if claim::is_claimed(&file, false) => Claim::InUse,
            OpenMode::ReadOnly => Claim::Held,
        };
        if matches!(claimed, Claim::InUse | Claim::Obstructed) {
            return Err(in_use(A_PROCESS.into()));
        }
    }
    if kind.is_block_device() && mode == OpenMode::ReadWrite {
        if is_write_protected(&metadata) {
            return Err(io_error(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        // Keeps programs away that probe new devices. A lock of such a program excludes nothing.
        let _ = file.try_lock();
    }
    // A positioned write to a file that is open for appending ignores its position, and buffers
    // are not aligned as O_DIRECT asks for. A file that only takes appends refuses this.
    let flags = flags - OFlags::NONBLOCK - OFlags::APPEND - OFlags::DIRECT;
    fcntl_setfl(&file, flags).map_err(|errno| io_error(errno.into()))?;
    let len = file.seek(SeekFrom::End(0)).map_err(io_error)?;
    let opened = Opened {
        file,
        mark: None,
        loops,
        len,
    };
    Ok((opened, mode))
}

/// Opens `path` without waiting, with `flags` more.
fn open_raw(path: &Path, write: bool, flags: OFlags) -> Result<File, OpenError> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let in_use = |by: &str| OpenError::InUse(path.to_owned(), by.to_owned());
    File::options()
        .read(true)
        .write(write)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => in_use("Linux or another process"),
            // A lease of another process that is opening the file.
            io::ErrorKind::WouldBlock => in_use(A_PROCESS),
            _ => OpenError::Io(path.to_owned(), source),
        })
}

/// Opens a block device exclusively.
fn open_device(path: &Path, write: bool, metadata: &Metadata) -> Result<File, OpenError> {
    let is_busy = |error: &OpenError| matches!(error, OpenError::InUse(..));
    let open = || open_raw(path, write, OFlags::EXCL);
    open_exclusively(metadata.rdev(), is_busy, open).map_err(|(error, by)| match by {
        Some(by) => OpenError::InUse(path.to_owned(), by),
        None => error,
    })
}

/// Opens the block device with the number `device` by `open`, which has to do so with `O_EXCL`. A
/// device that Linux uses stays in use, so that is an error at once; others may hold it for a
/// moment only, and are waited for.
///
/// # Errors
/// That of `open`, with the user of the device in words where it is busy and the user is known.
pub fn open_exclusively<E>(
    device: u64,
    is_busy: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> Result<File, E>,
) -> Result<File, (E, Option<String>)> {
    let until = Instant::now() + PATIENCE;
    loop {
        let error = match open() {
            Err(error) if is_busy(&error) => error,
            opened => return opened.map_err(|error| (error, None)),
        };
        if let Some(by) = device_users::of_kernel(device) {
            return Err((error, Some(by)));
        }
        if Instant::now() >= until {
            return Err((error, device_users::of_process(device)));
        }
        thread::sleep(PAUSE);
    }
}

/// Opens a file to read it, and claims it where this process could write as well.
fn open_to_read(
    patience: Duration,
    path: &Path,
    metadata: &Metadata,
) -> Result<(File, Option<File>), OpenError> {
    if metadata.file_type().is_block_device() {
        return Ok((open_device(path, false, metadata)?, None));
    }
    let until = Instant::now() + patience;
    loop {
        match open_file_to_read(path) {
            Err(OpenError::InUse(..)) if Instant::now() < until => thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// The same for a regular file, at once.
fn open_file_to_read(path: &Path) -> Result<(File, Option<File>), OpenError> {
    let in_use = || OpenError::InUse(path.to_owned(), A_PROCESS.into());
    let file = open_raw(path, false, OFlags::empty())?;
    if claim::is_claimed(&file, false) {
        return Err(in_use());
    }
    let mark = match open_raw(path, true, OFlags::empty()) {
        Ok(mark) if is_same(&file, &mark) => mark,
        Err(OpenError::InUse(..)) => return Err(in_use()),
        _ => return Ok((file, None)),
    };
    match claim::for_reading(&mark) {
        Claim::Held => Ok((file, Some(mark))),
        Claim::InUse => Err(in_use()),
        Claim::Obstructed => Ok((file, None)),
        Claim::Unsupported => match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(in_use()),
            _ => Ok((file, None)),
        },
    }
}

/// Opens and claims a file to write it.
fn open_to_write(patience: Duration, path: &Path, metadata: &Metadata) -> Result<File, OpenError> {
    let in_use = |by: &str| OpenError::InUse(path.to_owned(), by.to_owned());
    if metadata.file_type().is_block_device() {
        refuse_loops(path, metadata)?;
        if is_write_protected(metadata) {
            // Linux lets root open such a device for writing and refuses each write.
            let source = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(OpenError::Io(path.to_owned(), source));
        }
        let file = open_device(path, true, metadata)?;
        // Keeps programs away that probe new devices. A lock of such a program excludes nothing.
        let _ = file.try_lock();
        return Ok(file);
    }
    let probe = open_raw(path, false, OFlags::empty())?;
    let open_elsewhere = find_user(patience, &probe, path)?;
    let file = open_raw(path, true, OFlags::empty())?;
    if !is_same(&probe, &file) {
        let source = io::Error::other("it is being replaced by another file");
        return Err(OpenError::Io(path.to_owned(), source));
    }
    match claim::for_writing(&file) {
        Claim::Held | Claim::Unsupported => Ok(file),
        Claim::Obstructed if open_elsewhere == Some(false) => {
            debug!("{}: a lock of a reader was passed by", path.display());
            Ok(file)
        }
        Claim::InUse | Claim::Obstructed => Err(in_use(A_PROCESS)),
    }
}

/// Refuses the file at `path` if it is in use, see [`refuse_file_in_use`]. A symbolic link is not
/// followed. What is neither a file nor a block device passes, and so does nothing at all. Where
/// this process may write and not read, loop devices alone are looked for.
///
/// # Errors
/// [`OpenError::InUse`], or what the host reports: a file that cannot be asked about is refused.
pub fn refuse_in_use(path: &Path) -> Result<(), OpenError> {
    let io_error = |source| OpenError::Io(path.to_owned(), source);
    let (opened, found) = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error(error)),
        Ok(found) if found.is_file() && found.len() > 0 => {
            (open_raw(path, false, OFlags::empty()), found)
        }
        Ok(found) if found.file_type().is_block_device() => {
            (open_device(path, false, &found), found)
        }
        Ok(_) => return Ok(()),
    };
    match opened {
        Err(OpenError::Io(_, source))
            if source.kind() == io::ErrorKind::PermissionDenied && may_write(path) =>
        {
            refuse_loops(path, &found)
        }
        opened => refuse_file_in_use(&opened?, path),
    }
}

/// Refuses as [`refuse_in_use`] does, but what a symbolic link at `path` leads to: the check for
/// all that write to a name of the host.
///
/// # Errors
/// As of [`refuse_in_use`].
pub fn refuse_target_in_use(path: &Path) -> Result<(), OpenError> {
    let target = path.canonicalize();
    refuse_in_use(target.as_deref().unwrap_or(path))
}

/// Returns whether the permissions of a file let this process write to it.
fn may_write(path: &Path) -> bool {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Refuses a file that is in use: one that another process has claimed or has open for writing, or
/// that a loop device is over; also a block device with a loop device over it. The check for all
/// that replace, empty or write a file of the host without a claim of their own. `file` is open for
/// reading only; `name` is for messages. A file without a byte has nothing to lose and passes.
///
/// # Errors
/// [`OpenError::InUse`], or what the host reports.
pub fn refuse_file_in_use(file: &File, name: &Path) -> Result<(), OpenError> {
    let metadata = file.metadata();
    let metadata = metadata.map_err(|source| OpenError::Io(name.to_owned(), source))?;
    if metadata.file_type().is_block_device() {
        return refuse_loops(name, &metadata);
    }
    if metadata.is_file() && metadata.len() > 0 {
        find_user(patience_for(name, PATIENCE), file, name)?;
    }
    Ok(())
}

/// Waits until nothing uses the regular file `probe`, which is open for reading only. Returns
/// whether another process has it open for writing, `None` if the kernel does not say.
///
/// # Errors
/// [`OpenError::InUse`], which names the user.
fn find_user(patience: Duration, probe: &File, name: &Path) -> Result<Option<bool>, OpenError> {
    let metadata = probe.metadata();
    refuse_loops(
        name,
        &metadata.map_err(|source| OpenError::Io(name.to_owned(), source))?,
    )?;
    let found = wait_for_writers(patience, probe);
    found.map_err(|by| OpenError::InUse(name.to_owned(), by.to_owned()))
}

/// Refuses a file or block device that a loop device is over. One that goes with its last opener is
/// waited for.
fn refuse_loops(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let loops = loops::over(metadata);
        let Some(one) = loops.first() else {
            return Ok(());
        };
        if !loops.iter().any(device_users::is_going) || Instant::now() >= until {
            let by = format!("Linux, through the loop device {}", one.device.display());
            return Err(OpenError::InUse(path.to_owned(), by));
        }
        thread::sleep(PAUSE);
    }
}

/// Waits until no other process has claimed `probe` or has it open for writing; `None` if the
/// kernel does not say. The error names the user of the file.
fn wait_for_writers(patience: Duration, probe: &File) -> Result<Option<bool>, &'static str> {
    let until = Instant::now() + patience;
    loop {
        let user = if claim::is_claimed(probe, true) {
            A_PROCESS
        } else {
            match claim::is_open_for_writing(probe) {
                Some(true) => "another process, which has it open for writing",
                known => return Ok(known),
            }
        };
        if Instant::now() >= until {
            return Err(user);
        }
        thread::sleep(PAUSE);
    }
}

/// Returns whether two open files are the same file.
fn is_same(one: &File, other: &File) -> bool {
    let identity = |file: &File| file.metadata().map(|m| (m.dev(), m.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Opens `file`, which was found at `path`, a second time.
pub(crate) fn reopen(path: &Path, file: &File, read_only: bool) -> Result<File, RingRefusal> {
    let again = File::options().read(true).write(!read_only).open(path);
    let again = again.map_err(|error| RingRefusal::Reopen(Arc::new(error)))?;
    if is_same(&again, file) {
        Ok(again)
    } else {
        Err(RingRefusal::Replaced)
    }
}

/// Returns whether sysfs says that a block device is read-only; `false` if that is unknown.
fn is_write_protected(metadata: &Metadata) -> bool {
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::read(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|ro| ro.starts_with(b"1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileDevice;
    use extant_testkit::TempDir;
    use std::sync::mpsc;

    /// Opens the image at `path` in the way of `mode`.
    fn open(patience: Duration, path: &Path, mode: OpenMode) -> Result<(), OpenError> {
        let metadata = path.metadata().unwrap();
        match mode {
            OpenMode::ReadOnly => open_to_read(patience, path, &metadata).map(drop),
            OpenMode::ReadWrite => open_to_write(patience, path, &metadata).map(drop),
        }
    }

    /// As a daemon has it while it closes the image of a mount that is gone.
    #[test]
    fn an_image_that_is_being_closed_is_waited_for() {
        const LONG: Duration = Duration::from_secs(600);
        let dir = TempDir::new("closing").unwrap();
        let path = dir.join("image");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
            let user = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
            let at = path.clone();
            let next = thread::spawn(move || open(LONG, &at, mode));
            // It tries again and again, or has given up by then.
            for _ in 0..20 {
                thread::sleep(PAUSE);
            }
            drop(user);
            next.join().unwrap().unwrap();
        }
    }

    /// A process that waited would wait for itself.
    #[test]
    fn an_image_that_this_process_has_open_is_not_waited_for() {
        const LONG: Duration = Duration::from_secs(600);
        let dir = TempDir::new("own").unwrap();
        let path = dir.join("image");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        for (own, mode) in [
            (OpenMode::ReadWrite, OpenMode::ReadWrite),
            (OpenMode::ReadWrite, OpenMode::ReadOnly),
            (OpenMode::ReadOnly, OpenMode::ReadWrite),
        ] {
            let user = FileDevice::open(&path, own).unwrap();
            let (refused, waits) = mpsc::channel::<()>();
            // Ends the wait of a code that waits.
            let closer = thread::spawn(move || {
                let _ = waits.recv_timeout(Duration::from_secs(20));
                drop(user);
            });
            let outcome = claimed(LONG, &path, mode).map(drop);
            drop(refused);
            closer.join().unwrap();
            assert!(matches!(outcome, Err(OpenError::InUse(..))), "{outcome:?}");
        }
        // One that can only read has no claim.
        let reader = File::open(&path).unwrap();
        assert!(!is_open_here(&path));
        drop(reader);
    }

    #[test]
    fn an_image_that_stays_in_use_is_refused() {
        let dir = TempDir::new("used").unwrap();
        let path = dir.join("image");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let user = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
        for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
            let refused = open(Duration::ZERO, &path, mode);
            assert!(matches!(refused, Err(OpenError::InUse(..))), "{refused:?}");
        }
        drop(user);
    }
}
