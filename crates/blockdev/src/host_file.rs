//! An open file or block device of the host, and the system calls that move its bytes.
//!
//! # Invariants
//! Through the host's page cache, any range of bytes can be read and written. Past it (`O_DIRECT`),
//! ranges and memory must be aligned. A file is used in one of the two ways for as long as it is
//! open, so the two views of its bytes cannot disagree. (Linux does not keep them in agreement: a
//! page of its cache that is dirty in one block keeps old bytes of a neighbouring block that was
//! written past it.)
//!
//! Past the cache, a request that is not aligned goes through an aligned copy (`direct.rs`).

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_units::DevOff;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::claim;
use crate::device::check_range;
use crate::direct::Direct;
use crate::io_counters::IoCounters;

/// The most buffers of one vectored system call (`UIO_MAXIOV`).
const IOV_MAX: usize = 1024;

/// An open file and the locks that claim it.
pub(crate) struct Claimed {
    /// The file; for block devices exclusive, for writers locked.
    pub(crate) file: File,
    /// The file that a reader's lock is on.
    pub(crate) mark: Option<File>,
}

/// An open file, claimed for as long as it is open.
pub(crate) struct HostFile {
    file: File,
    /// Held, not used.
    mark: Option<File>,
    /// The same file opened once more, for rings: neither locked nor exclusive.
    for_rings: Option<Arc<File>>,
    /// Grows, see [`HostFile::grow`].
    len: AtomicU64,
    read_only: bool,
    direct: Option<Direct>,
    counters: IoCounters,
}

impl HostFile {
    /// Takes a file of `len` bytes that is open and claimed, and for rings the same file opened
    /// once more. With `direct`, I/O goes past the host's cache if statx reports the alignment for
    /// that.
    pub(crate) fn new(
        claimed: Claimed,
        for_rings: Option<File>,
        len: u64,
        read_only: bool,
        direct: bool,
    ) -> Self {
        let Claimed { file, mark } = claimed;
        let direct = if direct {
            Direct::switch(&file, for_rings.as_ref(), len)
        } else {
            None
        };
        Self {
            file,
            mark,
            for_rings: for_rings.map(Arc::new),
            len: AtomicU64::new(len),
            read_only,
            direct,
            counters: IoCounters::default(),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file for rings.
    ///
    /// The kernel can hold a ring's file for some moments after the ring's last completion, and
    /// after the file was closed. A lock on that file would last as long and refuse the next
    /// opener, so there is none.
    pub(crate) fn for_rings(&self) -> Option<&Arc<File>> {
        self.for_rings.as_ref()
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Makes a regular file at least `len` bytes long, and takes the length that a block device has
    /// now. A length that I/O past the cache cannot reach to its end is rounded up.
    pub(crate) fn grow(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut file = &self.file;
        let is_regular = self.is_regular()?;
        let unit = self.direct_alignment().unwrap_or(1);
        let wanted = len.checked_next_multiple_of(unit);
        let wanted = wanted.ok_or(io::ErrorKind::FileTooLarge)?;
        let now = file.seek(SeekFrom::End(0))?;
        let now = match is_regular && now < wanted {
            true => {
                file.set_len(wanted)?;
                wanted
            }
            false => now - now % unit,
        };
        if now < len {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.len.fetch_max(now, Ordering::AcqRel);
        Ok(())
    }

    /// Gives a regular file `len` bytes, durably.
    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if !self.is_regular()? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.file.set_len(len)?;
        self.file.sync_all()?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// By fstat(2) itself: a confined process has no other call of its kind, and the standard
    /// library's needs one.
    fn is_regular(&self) -> io::Result<bool> {
        let stat = rustix::fs::fstat(&self.file)?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// The alignment of offsets and lengths if the host's cache is not used.
    pub(crate) fn direct_alignment(&self) -> Option<u64> {
        self.direct.as_ref().map(Direct::alignment)
    }

    /// Returns whether a request can be made without a copy.
    pub(crate) fn takes(&self, offset: DevOff, buf: &[u8]) -> bool {
        self.direct
            .as_ref()
            .is_none_or(|direct| direct.takes(offset, buf.len(), [buf]))
    }

    pub(crate) fn read(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len(), self.len())?;
        match &self.direct {
            Some(direct) if !direct.takes(offset, buf.len(), [&*buf]) => {
                let bufs = &mut [IoSliceMut::new(buf)];
                direct.read(&self.file, offset, bufs, &self.counters)
            }
            _ => self.file.read_exact_at(buf, offset.get()),
        }
    }

    pub(crate) fn read_vectored(
        &self,
        offset: DevOff,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<()> {
        let total = bufs.iter().map(|buf| buf.len()).sum();
        check_range(offset, total, self.len())?;
        if let Some(direct) = &self.direct
            && !direct.takes(offset, total, bufs.iter().map(|buf| &**buf))
        {
            return direct.read(&self.file, offset, bufs, &self.counters);
        }
        let mut at = offset.get();
        let mut rest = bufs;
        IoSliceMut::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let batch = rest.len().min(IOV_MAX);
            match rustix::io::preadv(&self.file, &mut rest[..batch], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(done) => {
                    at += done as u64;
                    IoSliceMut::advance_slices(&mut rest, done);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        check_range(offset, buf.len(), self.len())?;
        match &self.direct {
            Some(direct) if !direct.takes(offset, buf.len(), [buf]) => {
                direct.write(&self.file, offset, &[IoSlice::new(buf)], &self.counters)
            }
            _ => self.file.write_all_at(buf, offset.get()),
        }
    }

    pub(crate) fn write_vectored(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_writable()?;
        let total = bufs.iter().map(|buf| buf.len()).sum();
        check_range(offset, total, self.len())?;
        if let Some(direct) = &self.direct
            && !direct.takes(offset, total, bufs.iter().map(|buf| &**buf))
        {
            return direct.write(&self.file, offset, bufs, &self.counters);
        }
        let mut at = offset.get();
        let mut owned: Vec<IoSlice<'_>> = bufs.to_vec();
        let mut rest = owned.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let batch = rest.len().min(IOV_MAX);
            match rustix::io::pwritev(&self.file, &rest[..batch], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(done) => {
                    at += done as u64;
                    IoSlice::advance_slices(&mut rest, done);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data()
    }

    pub(crate) fn check_writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
    }
}

impl Drop for HostFile {
    /// Releases the locks at once. Closing the file is not enough: a process that this one is
    /// forking shares the open file until it executes its program.
    fn drop(&mut self) {
        claim::release(&self.file);
        if let Some(mark) = &self.mark {
            claim::release(mark);
        }
    }
}
