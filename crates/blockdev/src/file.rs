//! A device over a file or a block device of the host.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extant_units::DevOff;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use tracing::{debug, warn};

use crate::device::{BlockDevice, check_range, write_zeroes_plainly};
use crate::host_file::{Claimed, HostFile};
use crate::loops::LoopUse;
use crate::open_file::{OpenError, OpenMode, Opened, open_claimed, reopen, take_over};
use crate::queue::Queueing;
use crate::ring_refusal::RingRefusal;
use crate::uring::{self, UringQueue};

/// How a file is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileIo {
    /// I/O goes past the host's page cache (`O_DIRECT`), if statx reports the alignment for
    /// that. Otherwise the host caches, and written data is in its memory until a flush.
    pub direct: bool,
    /// The machinery of queues.
    pub queues: FileQueues,
}

/// The machinery of a file's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileQueues {
    /// Threads that make system calls.
    Threads,
    /// The kernel's io_uring, tried when the file is opened. If it is refused, threads, with a
    /// warning that gives the reason.
    IoUring,
    /// The kernel's io_uring if the kernel has it, threads otherwise. It is tried with the first
    /// queue: some sandboxes end a process that tries, and a file without queues need not.
    #[default]
    Auto,
}

impl FileIo {
    /// System calls and threads, through the host's cache: works on every host.
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
/// for several readers. A regular file is claimed by locks: while a writer has it, no other process
/// of the host has it open for writing, and no loop device is over it. A block device is opened
/// with `O_EXCL`: the kernel refuses a device that is mounted or that another device is made of,
/// and a disk with such a partition.
///
/// The synchronous methods are system calls, whatever [`FileIo`] says: a single request that its
/// caller waits for gains nothing by a ring. Queues use io_uring.
pub struct FileDevice {
    host: Arc<HostFile>,
    /// The loop devices that were over the file when it was opened.
    loops: Vec<LoopUse>,
    /// The kernel's answer to rings for this file, once that was tried.
    rings: OnceLock<Result<(), RingRefusal>>,
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("file", self.host.file())
            .field("len", &self.host.len())
            .field("read_only", &self.host.read_only())
            .finish_non_exhaustive()
    }
}

impl FileDevice {
    /// Opens and locks `path`, for [`FileIo::SYSCALLS`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self, OpenError> {
        Self::open_with(path, mode, FileIo::SYSCALLS)
    }

    /// Opens and locks `path`. If the environment refuses a part of `io`, the device works without
    /// it: through the cache instead of past it, by threads instead of io_uring
    /// ([`FileDevice::refusal`] gives the reason).
    ///
    /// # Errors
    /// See [`OpenError`].
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
        } = open_claimed(path, mode)?;
        let read_only = mode == OpenMode::ReadOnly;
        let rings = OnceLock::new();
        let mut for_rings = None;
        if io.queues != FileQueues::Threads {
            let reopened = reopen(path, &file, read_only);
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

    /// Takes over a file that another process has opened, and locks it, for [`FileIo::SYSCALLS`].
    /// A device opened for reading is read-only, and excludes no writer.
    /// A block device is exclusive only if it was opened with `O_EXCL`. Messages name it as `name`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn from_file(file: File, name: impl AsRef<Path>) -> Result<Self, OpenError> {
        let (opened, mode) = take_over(file, name.as_ref())?;
        let Opened {
            file,
            mark,
            loops,
            len,
        } = opened;
        let read_only = mode == OpenMode::ReadOnly;
        let host = HostFile::new(Claimed { file, mark }, None, len, read_only, false);
        Ok(Self {
            host: Arc::new(host),
            loops,
            rings: OnceLock::new(),
        })
    }

    /// The loop devices that were over the file when it was opened. Through one that is not
    /// read-only, Linux may change the file. A device that was opened for writing has none.
    pub fn loops(&self) -> &[LoopUse] {
        &self.loops
    }

    /// Gives a regular file `len` bytes, durably: what lies behind them is cut off. No request past
    /// the end may be under way.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a block device; those of the host.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.host.set_len(len)
    }

    /// The alignment of I/O past the host's cache; `None` if all I/O goes through it.
    pub fn direct_alignment(&self) -> Option<u64> {
        self.host.direct_alignment()
    }

    /// Returns whether queues use io_uring, as far as that was tried.
    pub fn io_uring(&self) -> bool {
        matches!(self.rings.get(), Some(Ok(())))
    }

    /// Why queues do not use io_uring, if that was tried.
    pub fn refusal(&self) -> Option<&RingRefusal> {
        self.rings.get()?.as_ref().err()
    }
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
        // Clean pages of the range leave the cache. It is advice: a host that ignores it reads from
        // its cache.
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

    fn grow(&self, len: u64) -> io::Result<()> {
        self.host.grow(len)
    }

    fn queueing(&self, depth: usize) -> Queueing {
        let Some(file) = self.host.for_rings() else {
            return Queueing::Threads;
        };
        let tried = self.rings.get_or_init(uring::io_uring);
        let queue = tried.clone().and_then(|()| {
            let queue = UringQueue::new(&self.host, file, depth);
            queue.map_err(uring::refused)
        });
        match queue {
            Ok(queue) => Queueing::Own(Box::new(queue)),
            Err(why) => {
                debug!("threads instead of io_uring: {why}");
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
    use std::path::PathBuf;

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
    fn directories_are_no_devices() {
        let result = FileDevice::open(std::env::temp_dir(), OpenMode::ReadOnly);
        assert!(matches!(result, Err(OpenError::NotADevice(_))));
    }
}
