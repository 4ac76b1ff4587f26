//! A device over a file or a block device of the host.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extant_units::DevOff;
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};
use tracing::{debug, warn};

use crate::device::{BlockDevice, check_range};
use crate::host_file::HostFile;
use crate::queue::Queueing;
use crate::uring::{self, UringQueue};

/// How an image is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Reads only; several readers may share the image.
    ReadOnly,
    /// Reads and writes; nobody else may have the image open.
    ReadWrite,
}

/// Why an image could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process holds the image (advisory lock), or the kernel has the block device mounted.
    InUse(PathBuf),
    /// Neither a regular file nor a block device.
    NotADevice(PathBuf),
    /// The environment refused.
    Io(PathBuf, io::Error),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(path) => write!(f, "{}: in use by another process", path.display()),
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

/// How a file's bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileIo {
    /// Past the host's page cache (`O_DIRECT`), where the file's system says how (by statx). Without it the host caches, and what
    /// is written is in its memory until a flush.
    pub direct: bool,
    /// What queues are made of.
    pub queues: FileQueues,
}

/// What the queues of a file are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileQueues {
    /// Threads that make system calls.
    Threads,
    /// The kernel's io_uring, tried when the file is opened. Where it is refused, threads, with a warning that says why.
    IoUring,
    /// The kernel's io_uring if it is there, threads otherwise. It is tried with the first queue: some sandboxes end a process
    /// that asks, and who never needs a queue need not.
    #[default]
    Auto,
}

impl FileIo {
    /// System calls and threads, through the host's cache: the same everywhere.
    pub const SYSCALLS: FileIo = FileIo {
        direct: false,
        queues: FileQueues::Threads,
    };
    /// io_uring, past the host's cache.
    pub const IO_URING: FileIo = FileIo {
        direct: true,
        queues: FileQueues::IoUring,
    };
}

/// A regular file or block device of the host, held under an advisory lock (`flock`) for as long as it is
/// open: shared for reading, exclusive for writing. Block devices are opened with `O_EXCL` as well, so
/// that a device the kernel has mounted is refused.
///
/// The synchronous methods are system calls, whatever [`FileIo`] says: a request that somebody waits for gains nothing
/// by a ring. Queues are where io_uring is used.
pub struct FileDevice {
    host: Arc<HostFile>,
    /// Whether the kernel has rings for us, or why not; once that was tried.
    rings: OnceLock<Result<(), String>>,
}

impl FileDevice {
    /// Opens and locks `path`, for [`FileIo::SYSCALLS`].
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is waited for.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self, OpenError> {
        Self::open_with(path, mode, FileIo::SYSCALLS)
    }

    /// Opens and locks `path`. What `io` asks for and the environment refuses is done without: past the cache becomes
    /// through the cache; the kernel's queues become threads ([`FileDevice::refusal`] says why).
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is waited for.
    pub fn open_with(
        path: impl AsRef<Path>,
        mode: OpenMode,
        io: FileIo,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (file, len) = open_locked(path, mode)?;
        let read_only = mode == OpenMode::ReadOnly;
        let rings = OnceLock::new();
        let mut for_rings = None;
        if io.queues != FileQueues::Threads {
            let reopened = reopened(path, &file, read_only);
            let usable = reopened.and_then(|file| {
                if io.queues == FileQueues::IoUring {
                    uring::io_uring()?;
                    let _ = rings.set(Ok(()));
                }
                Ok(file)
            });
            match usable {
                Ok(file) => for_rings = Some(file),
                Err(why) => {
                    warn!("{}: {why}; plain system calls are used", path.display());
                    let _ = rings.set(Err(why));
                }
            }
        }
        let host = HostFile::new(file, for_rings, len, read_only, io.direct);
        Ok(Self {
            host: Arc::new(host),
            rings,
        })
    }

    /// The alignment of what goes past the host's cache; `None` if everything goes through it.
    pub fn direct_alignment(&self) -> Option<u64> {
        self.host.direct_alignment()
    }

    /// Whether queues are the kernel's, as far as it was tried.
    pub fn io_uring(&self) -> bool {
        matches!(self.rings.get(), Some(Ok(())))
    }

    /// Why they are not, if that was tried.
    pub fn refusal(&self) -> Option<&str> {
        self.rings.get()?.as_ref().err().map(String::as_str)
    }
}

/// The file, open and locked, and its length.
fn open_locked(path: &Path, mode: OpenMode) -> Result<(File, u64), OpenError> {
    let io_error = |source| OpenError::Io(path.to_owned(), source);
    let metadata = path.metadata().map_err(io_error)?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotADevice(path.to_owned()));
    }
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    if kind.is_block_device() {
        flags |= OFlags::EXCL;
    }
    let read_only = mode == OpenMode::ReadOnly;
    if !read_only && kind.is_block_device() && is_write_protected(&metadata) {
        // Linux lets root open such a device for writing, and refuses each write.
        return Err(io_error(io::ErrorKind::ReadOnlyFilesystem.into()));
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(!read_only)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => OpenError::InUse(path.to_owned()),
            _ => io_error(source),
        })?;
    let locked = if read_only {
        file.try_lock_shared()
    } else {
        file.try_lock()
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse(path.to_owned()),
        TryLockError::Error(source) => io_error(source),
    })?;
    // It was for `open` not to wait; the kernel's queues would take it for "rather not at all".
    let set = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
    set.map_err(|errno| io_error(errno.into()))?;
    let len = file.seek(SeekFrom::End(0)).map_err(io_error)?;
    Ok((file, len))
}

/// `file`, which was found at `path`, opened once more; or why not.
fn reopened(path: &Path, file: &File, read_only: bool) -> Result<File, String> {
    let identity = |file: &File| -> io::Result<(u64, u64)> {
        let metadata = file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    };
    let again = || -> io::Result<Option<File>> {
        let again = File::options().read(true).write(!read_only).open(path)?;
        Ok((identity(&again)? == identity(file)?).then_some(again))
    };
    match again() {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err("it is being replaced by another file".into()),
        Err(error) => Err(format!("it cannot be opened once more: {error}")),
    }
}

/// Whether a block device is set read-only, as sysfs says; `false` where that cannot be known.
fn is_write_protected(metadata: &Metadata) -> bool {
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::read(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|ro| ro.starts_with(b"1"))
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.host.len()
    }

    fn is_read_only(&self) -> bool {
        self.host.read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.host.read(offset, buf)
    }

    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.host.read_vectored(offset, bufs)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.host.write(offset, buf)
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.host.write_vectored(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.host.flush()
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.host.check_writable()?;
        if offset
            .checked_add(len)
            .is_none_or(|end| end.get() > self.len())
        {
            return check_range(offset, usize::MAX, self.len());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(self.host.file(), flags, offset.get(), len) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn queueing(&self, depth: usize) -> Queueing {
        let Some(file) = self.host.for_rings() else {
            return Queueing::Threads;
        };
        let tried = self.rings.get_or_init(uring::io_uring);
        let queue = tried.clone().and_then(|()| {
            let queue = UringQueue::new(&self.host, file, depth);
            queue.map_err(|error| error.to_string())
        });
        match queue {
            Ok(queue) => Queueing::Own(Box::new(queue)),
            Err(why) => {
                debug!("threads in the place of io_uring: {why}");
                Queueing::Threads
            }
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.host.counters();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("device_io_uring", self.io_uring().into()),
            ("device_direct", self.direct_alignment().is_some().into()),
            ("device_copied", get(&counters.copied)),
            ("device_merged", get(&counters.merged)),
            ("uring_requests", get(&counters.requests)),
            ("uring_registered", get(&counters.registered)),
            ("uring_enters", get(&counters.enters)),
            ("uring_left_to_calls", get(&counters.finished_by_calls)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, len: u64) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("extant-blockdev-{}-{name}", std::process::id()));
        File::create(&path).unwrap().set_len(len).unwrap();
        path
    }

    #[test]
    fn a_second_writer_is_refused_and_readers_share() {
        let path = image("lock", 8192);
        let first = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
        for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
            assert!(matches!(
                FileDevice::open(&path, mode),
                Err(OpenError::InUse(_))
            ));
        }
        drop(first);
        let _one = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        let two = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        let refused = two.write_at(DevOff::ZERO, &[1]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn vectored_writes_past_one_call_read_back() {
        let path = image("vectored", 1 << 20);
        let dev = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
        let pieces: Vec<Vec<u8>> = (0..3000u32).map(|i| i.to_le_bytes().to_vec()).collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        dev.write_vectored_at(DevOff::new(100), &slices).unwrap();
        let (mut one, mut two) = (vec![0; 5000], vec![0; 7000]);
        let mut into = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        dev.read_vectored_at(DevOff::new(100), &mut into).unwrap();
        assert_eq!([one, two].concat(), pieces.concat());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn folders_are_no_devices() {
        let result = FileDevice::open(std::env::temp_dir(), OpenMode::ReadOnly);
        assert!(matches!(result, Err(OpenError::NotADevice(_))));
    }
}
