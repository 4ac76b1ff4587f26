//! A device over a file or a block device of the host.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use extant_units::DevOff;
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl};
use tracing::{debug, warn};

use crate::claim::{self, Claim};
use crate::device::{BlockDevice, check_range, write_zeroes_plainly};
use crate::host_file::{Claimed, HostFile};
use crate::loops::{self, LoopUse};
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
    /// Another process holds the image, or the kernel does: what, in words.
    InUse(PathBuf, String),
    /// Neither a regular file nor a block device.
    NotADevice(PathBuf),
    /// The environment refused.
    Io(PathBuf, io::Error),
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

/// A regular file or block device of the host, claimed for as long as it is open, for one writer or
/// for readers. A regular file is claimed by locks (the module `claim` says which); for a writer,
/// no other process of the host may have it open for writing, and no loop device may be over it. A
/// block device is opened with `O_EXCL`: the kernel refuses what it has mounted, what another
/// device is made of, and a disk of which that is true for a partition.
///
/// The synchronous methods are system calls, whatever [`FileIo`] says: a request that somebody waits for gains nothing
/// by a ring. Queues are where io_uring is used.
pub struct FileDevice {
    host: Arc<HostFile>,
    /// Loop devices that were over it when it was opened.
    loops: Vec<LoopUse>,
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
        let Opened {
            file,
            mark,
            loops,
            len,
        } = opened(path, mode)?;
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
        let claimed = Claimed { file, mark };
        let host = HostFile::new(claimed, for_rings, len, read_only, io.direct);
        Ok(Self {
            host: Arc::new(host),
            loops,
            rings,
        })
    }

    /// The loop devices that were over it when it was opened: through one that is not read-only,
    /// Linux may change it. Always none of a device that was opened for writing.
    pub fn loops(&self) -> &[LoopUse] {
        &self.loops
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

/// A file that was opened and claimed.
struct Opened {
    file: File,
    /// What a reader's claim is on.
    mark: Option<File>,
    loops: Vec<LoopUse>,
    len: u64,
}

/// How long a writer waits for others that have the file open for writing: after the end of a
/// process, its rings hold their files for a moment.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Who it is that locks a file.
const A_PROCESS: &str = "another process";

fn opened(path: &Path, mode: OpenMode) -> Result<Opened, OpenError> {
    let io_error = |source| OpenError::Io(path.to_owned(), source);
    let metadata = path.metadata().map_err(io_error)?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(OpenError::NotADevice(path.to_owned()));
    }
    let loops = loops::over(&metadata);
    let (mut file, mark) = if mode == OpenMode::ReadOnly {
        open_to_read(path, &metadata)?
    } else {
        if let Some(one) = loops.first() {
            let by = format!("Linux, through the loop device {}", one.device.display());
            return Err(OpenError::InUse(path.to_owned(), by));
        }
        (open_to_write(path, &metadata)?, None)
    };
    // It was for `open` not to wait; the kernel's queues would take it for "rather not at all".
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

/// Opens `path` without waiting, block devices exclusively.
fn open_raw(path: &Path, write: bool, block_device: bool) -> Result<File, OpenError> {
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    if block_device {
        flags |= OFlags::EXCL;
    }
    let in_use = |by: &str| OpenError::InUse(path.to_owned(), by.to_owned());
    File::options()
        .read(true)
        .write(write)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => in_use(
                "Linux, which has the device mounted or made another of it, or another process",
            ),
            // A lease: another process is just opening it.
            io::ErrorKind::WouldBlock => in_use(A_PROCESS),
            _ => OpenError::Io(path.to_owned(), source),
        })
}

/// Opens what is read, and claims it where this process could write as well.
fn open_to_read(path: &Path, metadata: &Metadata) -> Result<(File, Option<File>), OpenError> {
    let in_use = || OpenError::InUse(path.to_owned(), A_PROCESS.into());
    if metadata.file_type().is_block_device() {
        return Ok((open_raw(path, false, true)?, None));
    }
    let file = open_raw(path, false, false)?;
    if claim::is_claimed(&file, false) {
        return Err(in_use());
    }
    let mark = match open_raw(path, true, false) {
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

/// Opens and claims what is written.
fn open_to_write(path: &Path, metadata: &Metadata) -> Result<File, OpenError> {
    let in_use = |by: &str| OpenError::InUse(path.to_owned(), by.to_owned());
    if metadata.file_type().is_block_device() {
        if is_write_protected(metadata) {
            // Linux lets root open such a device for writing, and refuses each write.
            let source = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(OpenError::Io(path.to_owned(), source));
        }
        let file = open_raw(path, true, true)?;
        // Keeps programs that look at new devices away; a lock of one of them excludes
        // nothing.
        let _ = file.try_lock();
        return Ok(file);
    }
    let probe = open_raw(path, false, false)?;
    let open_elsewhere = wait_for_writers(&probe).map_err(in_use)?;
    let file = open_raw(path, true, false)?;
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

/// Waits until no other process has `probe` open for writing, as far as the kernel says; or by what
/// it is in use.
fn wait_for_writers(probe: &File) -> Result<Option<bool>, &'static str> {
    let until = Instant::now() + PATIENCE;
    loop {
        if claim::is_claimed(probe, true) {
            return Err(A_PROCESS);
        }
        match claim::is_open_for_writing(probe) {
            Some(true) if Instant::now() < until => thread::sleep(PAUSE),
            Some(true) => return Err("another process, which has it open for writing"),
            known => return Ok(known),
        }
    }
}

/// Whether two open files are one.
fn is_same(one: &File, other: &File) -> bool {
    let identity = |file: &File| file.metadata().map(|m| (m.dev(), m.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// `file`, which was found at `path`, opened once more; or why not.
fn reopened(path: &Path, file: &File, read_only: bool) -> Result<File, String> {
    let again = || -> io::Result<Option<File>> {
        let again = File::options().read(true).write(!read_only).open(path)?;
        Ok(is_same(&again, file).then_some(again))
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

    fn read_fresh_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let len = NonZeroU64::new(buf.len() as u64);
        // Clean pages of the range leave the cache. Advice: where it is not taken, what is cached
        // is read.
        let _ = fadvise(self.host.file(), offset.get(), len, Advice::DontNeed);
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

    fn write_zeroes(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.host.check_writable()?;
        let end = offset.checked_add(len).map(DevOff::get);
        if end.is_none_or(|end| end > self.len()) {
            return check_range(offset, usize::MAX, self.len());
        }
        let keep = FallocateFlags::KEEP_SIZE;
        for how in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            if fallocate(self.host.file(), how | keep, offset.get(), len).is_ok() {
                return Ok(());
            }
        }
        // The host's file system or device knows neither, or not for this range.
        write_zeroes_plainly(self, offset, len)
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
                Err(OpenError::InUse(..))
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
