//! A device over a file or a block device of the host.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use extant_units::DevOff;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::device::{BlockDevice, check_range};

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

/// A regular file or block device of the host, held under an advisory lock (`flock`) for as long as it is
/// open: shared for reading, exclusive for writing. Block devices are opened with `O_EXCL` as well, so
/// that a device the kernel has mounted is refused.
pub struct FileDevice {
    file: File,
    len: u64,
    read_only: bool,
}

impl FileDevice {
    /// Opens and locks `path`.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is waited for.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self, OpenError> {
        let path = path.as_ref();
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
        let len = file.seek(SeekFrom::End(0)).map_err(io_error)?;
        Ok(Self {
            file,
            len,
            read_only,
        })
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
        self.len
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len(), self.len)?;
        self.file.read_exact_at(buf, offset.get())
    }

    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let total = bufs.iter().map(|buf| buf.len()).sum();
        check_range(offset, total, self.len)?;
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
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        check_range(offset, buf.len(), self.len)?;
        self.file.write_all_at(buf, offset.get())
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_writable()?;
        let total = bufs.iter().map(|buf| buf.len()).sum();
        check_range(offset, total, self.len)?;
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
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if offset
            .checked_add(len)
            .is_none_or(|end| end.get() > self.len)
        {
            return check_range(offset, usize::MAX, self.len);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset.get(), len) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for FileDevice {
    /// Gives the lock back at once. Closing the file is not enough: a process that this one is forking just now
    /// shares the open file until it executes its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// The most buffers one vectored system call takes.
const IOV_MAX: usize = 1024;

impl FileDevice {
    fn check_writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
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
