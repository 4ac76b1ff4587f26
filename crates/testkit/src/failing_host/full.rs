//! A file in ext4 on a loop device over a tmpfs that is full: blocks without backing cannot be
//! written.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::FailingHost;
use crate::{Cmd, Context, LoopDevice, Result, Rng, TempDir, ensure, wait_until};

/// The host's blocks.
const BLOCK: usize = 4096;
/// Room of the tmpfs beside the file.
const ROOM: usize = 8 << 20;

/// See the module's header. Needs [`crate::Need::Loop`].
pub struct FullHost {
    file: PathBuf,
    tmpfs: PathBuf,
    ext4: PathBuf,
    device: Option<LoopDevice>,
    mounted: Vec<PathBuf>,
    _dir: TempDir,
}

impl FullHost {
    /// Makes the host, with a file of these bytes, which are durable.
    ///
    /// # Errors
    /// The tools or mount(2) refuse.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let dir = TempDir::new("full-host")?;
        let (tmpfs, ext4) = (dir.join("tmpfs"), dir.join("ext4"));
        for path in [&tmpfs, &ext4] {
            std::fs::create_dir(path).context(|| path.display())?;
        }
        let mut host = Self {
            file: ext4.join("image"),
            tmpfs,
            ext4,
            device: None,
            mounted: Vec::new(),
            _dir: dir,
        };
        let size = format!("size={}", bytes.len() + ROOM);
        let mount = |args: &[&str], at: &Path| Cmd::new("mount").args(args).arg(at).ok();
        mount(&["-t", "tmpfs", "-o", &size, "tmpfs"], &host.tmpfs)?;
        host.mounted.push(host.tmpfs.clone());
        let back = host.back();
        let made = File::create(&back).and_then(|file| file.set_len(2 * bytes.len() as u64));
        made.context(|| back.display())?;
        Cmd::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^has_journal"])
            .args(["-E", "nodiscard,lazy_itable_init=0"])
            .arg(&back)
            .ok()?;
        let device = LoopDevice::over(&back, 512)?;
        // Linux's loop driver takes a write that its file ends early for done: only whole requests
        // may fail.
        let name = device.path().file_name().unwrap_or_default().to_owned();
        let queue = Path::new("/sys/block").join(name).join("queue");
        let most = queue.join("max_sectors_kb");
        std::fs::write(&most, (BLOCK >> 10).to_string()).context(|| most.display())?;
        let path = device.path().display().to_string();
        mount(&["-t", "ext4", "-o", "nodelalloc", &path], &host.ext4)?;
        host.device = Some(device);
        host.mounted.push(host.ext4.clone());
        let written = File::create(&host.file).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.context(|| host.file.display())?;
        Ok(host)
    }

    /// File that the loop device has its blocks from.
    fn back(&self) -> PathBuf {
        self.tmpfs.join("back")
    }

    /// Position of each block of the file in the loop device.
    fn blocks(&self) -> Result<Vec<u64>> {
        let listing = Cmd::new("filefrag").args(["-v", "-b4096"]);
        let listing = listing.arg(&self.file).ok()?.out;
        let mut blocks = Vec::new();
        for line in listing.lines() {
            // number: first.. last: first.. last: length: ...
            let words: Vec<u64> = line
                .split([':', '.', ' '])
                .filter_map(|word| word.parse().ok())
                .collect();
            if let [_, first, last, at, ..] = words[..]
                && line.trim_start().starts_with(|c: char| c.is_ascii_digit())
            {
                blocks.extend((0..=last - first).map(|nth| at + nth));
            }
        }
        Ok(blocks)
    }

    fn unmount(&mut self) -> Result<()> {
        while let Some(path) = self.mounted.pop() {
            if path == self.tmpfs {
                self.device = None;
            }
            unmount(&path)?;
        }
        Ok(())
    }
}

/// Unmounts what may be held for some moments more: by a ring, or by a process that was just
/// forked.
fn unmount(path: &Path) -> Result<()> {
    let mut result = Ok(());
    wait_until("the host is not busy", || {
        result = rustix::mount::unmount(path, UnmountFlags::NOFOLLOW);
        result != Err(Errno::BUSY)
    });
    result
        .map_err(std::io::Error::from)
        .context(|| path.display())
}

/// Returns whether a block holds nothing, or one byte all over.
fn is_worthless(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte <= 1 && *byte == block[0])
}

impl FailingHost for FullHost {
    fn file(&self) -> &Path {
        &self.file
    }

    /// Takes the backing of some runs of blocks away that are all zeros, or all ones, and fills the
    /// tmpfs.
    fn fail(&mut self, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        let bytes = std::fs::read(&self.file).context(|| self.file.display())?;
        let blocks = self.blocks()?;
        let back = File::options().write(true).open(self.back());
        let back = back.context(|| "the backing file")?;
        let punch = |first: usize, count: usize| -> Result<()> {
            for (at, block) in blocks
                .iter()
                .zip(bytes.chunks(BLOCK))
                .skip(first)
                .take(count)
            {
                if is_worthless(block) {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(&back, flags, at * BLOCK as u64, BLOCK as u64)
                        .map_err(std::io::Error::from)
                        .context(|| "a hole in the backing file")?;
                }
            }
            Ok(())
        };
        for _ in 0..rng.between(1, 6) {
            let count = usize::try_from(rng.between(4, 200)).unwrap_or(4);
            punch(rng.index(blocks.len()), count)?;
        }
        // One file at least whose content may fail.
        let ones = |block: &[u8]| is_worthless(block) && block[0] == 1;
        let files: Vec<usize> = (0..blocks.len())
            .filter(|nth| bytes.chunks(BLOCK).nth(*nth).is_some_and(ones))
            .collect();
        if let Some(first) = files.get(rng.index(files.len().max(1))) {
            punch(*first, 4)?;
        }
        let mut fill = File::create(self.tmpfs.join("fill")).context(|| "filling the tmpfs")?;
        while fill.write_all(&[0; 64 << 10]).is_ok() {}
        while fill.write_all(&[0; BLOCK]).is_ok() {}
        Ok(())
    }

    fn spares(&self, byte: u8) -> bool {
        byte > 1
    }

    fn end(mut self: Box<Self>) -> Result<Vec<u8>> {
        unmount(&self.ext4)?;
        let device = self.device.as_ref().map(|device| device.path().to_owned());
        let device = device.unwrap_or_default();
        let mount = || {
            let cmd = Cmd::new("mount").args(["-t", "ext4", "-o", "ro"]);
            cmd.arg(&device).arg(&self.ext4).run()
        };
        let mut said = mount();
        // The mount of before may live on for a moment in a namespace that another test makes.
        wait_until("the device is not busy", || {
            let is_busy = said.as_ref().is_ok_and(|said| said.err.contains("busy"));
            if is_busy {
                said = mount();
            }
            !is_busy
        });
        let said = said?;
        ensure!(said.code == Some(0), "{}", said.describe());
        let bytes = std::fs::read(&self.file).context(|| self.file.display())?;
        self.unmount()?;
        Ok(bytes)
    }
}

impl Drop for FullHost {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error}");
            for path in [&self.ext4, &self.tmpfs] {
                let _ = Cmd::new("umount").arg("-l").arg(path).run();
            }
        }
    }
}
