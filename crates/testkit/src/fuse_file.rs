//! A FUSE file system of one file: what a kernel asks of a file arrives as calls.
//!
//! # Responsibility
//! The mount point is the file: a node of its own is all that the protocol needs. One thread serves
//! it. What is behind the file is a [`Served`].
//!
//! # Concurrency
//! The thread ends when the mount is gone.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{Context, Result, TempDir, wait_until};

/// The pages of the largest write of one request.
const PAGES: u16 = 32;
/// Its bytes.
const MOST: u32 = (PAGES as u32) << 12;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;
/// Of an opened file: requests of the kernel pass its cache.
const DIRECT_IO: u64 = 1;

/// Operations that have an answer of their own.
mod op {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// A source and sink of the file's bytes.
pub trait Served: Send + Sync + 'static {
    /// Number of the file's bytes.
    fn size(&self) -> u64;
    /// Reads bytes that the file has.
    ///
    /// # Errors
    /// The reader gets EIO.
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes.
    ///
    /// # Errors
    /// The writer gets EIO.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes durable what was written.
    ///
    /// # Errors
    /// The caller gets EIO.
    fn sync(&self) -> io::Result<()>;
}

/// The mounted file. Needs root and FUSE.
pub struct FuseFile {
    file: PathBuf,
    server: Option<JoinHandle<()>>,
    mounted: bool,
    _dir: TempDir,
}

impl FuseFile {
    /// Mounts a file. With `cached`, writes enter the kernel's writeback cache; without, each
    /// arrives before it returns.
    ///
    /// # Errors
    /// FUSE or mount(2) refuse.
    pub fn new(served: Arc<impl Served>, cached: bool) -> Result<Self> {
        let dir = TempDir::new("fuse-host")?;
        let file = dir.join("image");
        File::create(&file).context(|| "the mount point")?;
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.context(|| "/dev/fuse")?;
        let data = format!(
            "fd={},rootmode=100644,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let data = CString::new(data).unwrap_or_default();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let mounted = mount("failing-host", &file, "fuse", flags, data.as_c_str());
        mounted
            .map_err(io::Error::from)
            .context(|| "mounting a FUSE host")?;
        let size = served.size();
        let server = std::thread::Builder::new()
            .name("fuse-host".into())
            .spawn(move || serve(device, &*served, cached))
            .context(|| "a thread for the host")?;
        let host = Self {
            file,
            server: Some(server),
            mounted: true,
            _dir: dir,
        };
        // With a writeback cache the size is the kernel's own, and of a root it begins with zero.
        let sized = File::options().write(true).open(&host.file);
        sized
            .and_then(|file| file.set_len(size))
            .context(|| "the size of the file")?;
        Ok(host)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Ends the mount, if it has not ended yet.
    ///
    /// # Errors
    /// The file is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.mounted, false) {
            // The kernel lets go of a ring's files some moments after their last close, and a
            // process that another test has just forked holds a copy until it executes its program.
            let mut result = Ok(());
            wait_until("the host is not busy", || {
                result = unmount(&self.file, UnmountFlags::NOFOLLOW);
                result != Err(Errno::BUSY)
            });
            result?;
            if let Some(server) = self.server.take() {
                let _ = server.join();
            }
        }
        Ok(())
    }

    /// Takes the mount away. Its thread ends with the last user of the file: another mount
    /// namespace may have one for as long as it lives.
    ///
    /// # Errors
    /// umount(2) fails.
    pub fn detach(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.mounted, false) {
            unmount(&self.file, UnmountFlags::DETACH)?;
        }
        Ok(())
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{}: {error}", self.file.display());
            let _ = unmount(&self.file, UnmountFlags::DETACH);
        }
    }
}

/// Answers requests until the mount is gone.
fn serve(mut device: File, served: &impl Served, cached: bool) {
    let mut request = vec![0; index(u64::from(MOST)) + 4096];
    loop {
        let len = match device.read(&mut request) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A request was taken back.
            Err(error) if error.raw_os_error() == Some(2) => continue,
            Err(_) => return,
        };
        let request = &request[..len];
        let code = u32_at(request, 4);
        if matches!(code, op::FORGET | op::BATCH_FORGET | op::INTERRUPT) {
            continue;
        }
        let answer = answer(code, request, served, cached);
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut reply = Vec::with_capacity(16 + body.len());
        reply.extend((16 + u32::try_from(body.len()).unwrap_or(0)).to_ne_bytes());
        reply.extend(error.to_ne_bytes());
        reply.extend(request.get(8..16).unwrap_or_default());
        reply.extend(body);
        let written = device.write(&reply);
        if code == op::DESTROY || written.is_err_and(|error| error.raw_os_error() != Some(2)) {
            return;
        }
    }
}

/// The body of the answer to a request, whose own body begins at byte 40.
fn answer(
    code: u32,
    request: &[u8],
    served: &impl Served,
    cached: bool,
) -> std::result::Result<Vec<u8>, i32> {
    let eio = |_: io::Error| EIO;
    match code {
        op::INIT => Ok(init(u32_at(request, 48), cached)),
        op::GETATTR | op::SETATTR => Ok(attributes(served.size())),
        op::OPEN => {
            let flags = if cached { 0 } else { DIRECT_IO };
            Ok([[0; 8], flags.to_ne_bytes()].concat())
        }
        op::STATFS => Ok(vec![0; 80]),
        op::READ => {
            let from = u64_at(request, 48).min(served.size());
            let len = u64::from(u32_at(request, 56)).min(served.size() - from);
            let mut bytes = vec![0; index(len)];
            served.read(from, &mut bytes).map_err(eio)?;
            Ok(bytes)
        }
        op::WRITE => {
            let (from, len) = (u64_at(request, 48), u32_at(request, 56));
            let data = request.get(80..80 + index(len.into())).ok_or(EIO)?;
            if from.saturating_add(len.into()) > served.size() {
                return Err(EIO);
            }
            served.write(from, data).map_err(eio)?;
            Ok([len.to_ne_bytes(), [0; 4]].concat())
        }
        op::FSYNC => served.sync().map(|()| Vec::new()).map_err(eio),
        op::RELEASE | op::FLUSH | op::DESTROY => Ok(Vec::new()),
        _ => Err(ENOSYS),
    }
}

/// The answer to the first message: version 7.31, `cached` with a writeback cache. `readahead` is
/// the kernel's.
fn init(readahead: u32, cached: bool) -> Vec<u8> {
    const BIG_WRITES: u32 = 1 << 5;
    const WRITEBACK_CACHE: u32 = 1 << 16;
    const MAX_PAGES: u32 = 1 << 22;
    let mut body = Vec::new();
    let cache = if cached { WRITEBACK_CACHE } else { 0 };
    for word in [7, 31, readahead, BIG_WRITES | cache | MAX_PAGES] {
        body.extend(word.to_ne_bytes());
    }
    body.extend([12u16.to_ne_bytes(), 9u16.to_ne_bytes()].concat());
    body.extend(MOST.to_ne_bytes());
    body.extend(1u32.to_ne_bytes());
    body.extend(PAGES.to_ne_bytes());
    body.resize(64, 0);
    body
}

/// Attributes that stay valid for an hour, of a regular file.
fn attributes(size: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(3600u64.to_ne_bytes());
    body.extend([0; 8]);
    for number in [1, size, size.div_ceil(512), 0, 0, 0] {
        body.extend(number.to_ne_bytes());
    }
    // Nanoseconds; mode, links, owner, group, device, block size, flags.
    for number in [0, 0, 0, 0o100_644, 1, 0, 0, 0, 4096, 0] {
        body.extend(u32::to_ne_bytes(number));
    }
    body
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_ne_bytes(word.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    u64::from_ne_bytes(word.unwrap_or_default())
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX / 4)
}
