//! A FUSE file system of one file in memory, with the kernel's writeback cache, that fails chosen
//! writes.
//!
//! # Responsibility
//! The mount point is the file: a node of its own is all that the protocol needs. One thread serves
//! it.
//!
//! # Concurrency
//! The server's state has one mutex. The thread ends when the mount is gone.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::FailingHost;
use crate::{Context, Result, Rng, TempDir, wait_until};

/// The pages of the largest write of one request.
const PAGES: u16 = 32;
/// Its bytes.
const MOST: u32 = (PAGES as u32) << 12;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

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

/// File and faults that the thread serves.
struct Served {
    bytes: Vec<u8>,
    /// Writes that pass before the first fails; then how many fail.
    pass: u64,
    fail: u64,
    failed: u64,
}

/// See the module's header. Needs root and FUSE.
pub struct FuseHost {
    file: PathBuf,
    served: Arc<Mutex<Served>>,
    server: Option<JoinHandle<()>>,
    mounted: bool,
    _dir: TempDir,
}

impl FuseHost {
    /// Mounts a file with these bytes.
    ///
    /// # Errors
    /// FUSE or mount(2) refuse.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
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
        let size = bytes.len() as u64;
        let served = Arc::new(Mutex::new(Served {
            bytes,
            pass: u64::MAX,
            fail: 0,
            failed: 0,
        }));
        let state = Arc::clone(&served);
        let server = std::thread::Builder::new()
            .name("fuse-host".into())
            .spawn(move || serve(device, &state))
            .context(|| "a thread for the host")?;
        let host = Self {
            file,
            served,
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

    /// Writes that failed.
    pub fn failed(&self) -> u64 {
        lock(&self.served).failed
    }

    fn unmount(&mut self) -> io::Result<()> {
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
}

impl FailingHost for FuseHost {
    fn file(&self) -> &Path {
        &self.file
    }

    fn fail(&mut self, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        let mut served = lock(&self.served);
        served.pass = rng.below(60);
        served.fail = rng.between(1, 8);
        Ok(())
    }

    fn spares(&self, _byte: u8) -> bool {
        true
    }

    fn end(mut self: Box<Self>) -> Result<Vec<u8>> {
        self.unmount().context(|| "unmounting a FUSE host")?;
        Ok(std::mem::take(&mut lock(&self.served).bytes))
    }
}

impl Drop for FuseHost {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{}: {error}", self.file.display());
            let _ = unmount(&self.file, UnmountFlags::DETACH);
        }
    }
}

fn lock(served: &Mutex<Served>) -> MutexGuard<'_, Served> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers requests until the mount is gone.
fn serve(mut device: File, served: &Mutex<Served>) {
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
        let answer = answer(code, request, &mut lock(served));
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
fn answer(code: u32, request: &[u8], served: &mut Served) -> std::result::Result<Vec<u8>, i32> {
    match code {
        op::INIT => Ok(init(u32_at(request, 48))),
        op::GETATTR | op::SETATTR => Ok(attributes(served.bytes.len() as u64)),
        op::OPEN => Ok(vec![0; 16]),
        op::STATFS => Ok(vec![0; 80]),
        op::READ => {
            let from = index(u64_at(request, 48)).min(served.bytes.len());
            let len = index(u32_at(request, 56).into()).min(served.bytes.len() - from);
            Ok(served.bytes[from..from + len].to_vec())
        }
        op::WRITE => {
            let from = index(u64_at(request, 48));
            let len = u32_at(request, 56);
            if served.pass > 0 {
                served.pass -= 1;
            } else if served.fail > 0 {
                served.fail -= 1;
                served.failed += 1;
                return Err(EIO);
            }
            let data = request.get(80..80 + index(len.into())).ok_or(EIO)?;
            let to = served.bytes.get_mut(from..from + data.len()).ok_or(EIO)?;
            to.copy_from_slice(data);
            Ok([len.to_ne_bytes(), [0; 4]].concat())
        }
        op::RELEASE | op::FSYNC | op::FLUSH | op::DESTROY => Ok(Vec::new()),
        _ => Err(ENOSYS),
    }
}

/// The answer to the first message: version 7.31, with a writeback cache. `readahead` is the
/// kernel's.
fn init(readahead: u32) -> Vec<u8> {
    const BIG_WRITES: u32 = 1 << 5;
    const WRITEBACK_CACHE: u32 = 1 << 16;
    const MAX_PAGES: u32 = 1 << 22;
    let mut body = Vec::new();
    for word in [7, 31, readahead, BIG_WRITES | WRITEBACK_CACHE | MAX_PAGES] {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Need, need};

    /// Linux does what the engine must live with: one error for each descriptor, and then success.
    #[test]
    fn linux_tells_each_descriptor_once() {
        if !need(&[Need::Root, Need::Fuse]) {
            return;
        }
        let host = FuseHost::new(vec![1; 1 << 20]).unwrap();
        let open = || File::options().read(true).write(true).open(host.file());
        let (a, b) = (open().unwrap(), open().unwrap());
        a.write_all_at(&[2; 8192], 0).unwrap();
        a.sync_data().unwrap();
        a.write_all_at(&[3; 8192], 4096).unwrap();
        {
            let mut served = lock(&host.served);
            (served.pass, served.fail) = (0, 1);
        }
        let answers = [&a, &a, &b, &b].map(|file| file.sync_data().is_ok());
        assert_eq!(answers, [false, true, false, true]);
        assert_eq!(host.failed(), 1);
        let mut seen = [0; 8192];
        a.read_exact_at(&mut seen, 4096).unwrap();
        assert_eq!(seen, [3; 8192], "the cache shows what is lost");
        drop((a, b));
        let left = Box::new(host).end().unwrap();
        assert_eq!((left[4096], left[8192], left[12287]), (2, 1, 1));
    }
}
