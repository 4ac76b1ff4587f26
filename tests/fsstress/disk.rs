//! A disk with a volatile cache, served by nbdkit, whose power is cut.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extant_testkit::cmd::Running;
use extant_testkit::{Cmd, Result, Rng, TempDir, ensure, is_listening, patience, tools};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Bytes at the beginning of the volume that arrive together: Linux and e2fsck want a superblock
/// that is torn between its two sectors repaired first.
const WHOLE: u64 = 4096;

/// A write that no flush covered.
struct Unflushed {
    offset: u64,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Numbers of a cut.
pub(crate) struct Cut {
    /// Writes that no flush covered.
    pub(crate) unflushed: usize,
    /// Those of them of which at least a sector is lost.
    pub(crate) lost: usize,
}

/// The disk. Dropped, its server ends.
pub(crate) struct Disk {
    image: PathBuf,
    dir: TempDir,
    server: Running,
}

impl Disk {
    /// Serves the image at `path`.
    pub(crate) fn serve(path: &Path) -> Result<Disk> {
        let dir = TempDir::new("disk")?;
        File::create(dir.join("log"))?;
        let plugin = tools::workspace().join("tests/fsstress/disk.py");
        let mut server = Cmd::new("nbdkit")
            .args(["-f", "-U"])
            .arg(dir.join("socket"))
            .arg("python")
            .arg(plugin)
            .arg(format!("image={}", path.display()))
            .arg(format!("log={}", dir.join("log").display()))
            .limit(Duration::from_secs(600))
            .spawn()?;
        let end = Instant::now() + patience(Duration::from_secs(30));
        while !is_listening(&dir.join("socket")) {
            if let Some(output) = server.poll()? {
                extant_testkit::bail!("nbdkit ended: {}", output.describe());
            }
            ensure!(Instant::now() < end, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        let image = path.to_owned();
        Ok(Disk { image, dir, server })
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        let socket = self.dir.join("socket");
        format!("nbd+unix:///?socket={}", socket.display())
    }

    /// Ends the server at once: from now on it takes no request.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.server.kill().map(drop)
    }

    /// Leaves in the image what the disk had taken when it was killed: all that was flushed, and of
    /// the rest what `rng` chooses, sector by sector.
    pub(crate) fn lose_cache(&self, rng: &mut Rng) -> Result<Cut> {
        let unflushed = unflushed(&fs::read(self.dir.join("log"))?)?;
        let image = File::options().write(true).open(&self.image)?;
        for write in unflushed.iter().rev() {
            image.write_all_at(&write.before, write.offset)?;
        }
        // Of some cuts most is lost, of some next to nothing.
        let chance = rng.below(101);
        let mut lost = 0;
        for write in &unflushed {
            let is_torn = write.offset >= WHOLE && rng.below(8) == 0;
            let piece = if is_torn { SECTOR } else { write.after.len() };
            let mut is_lost = false;
            let mut offset = write.offset;
            for part in write.after.chunks(piece) {
                if rng.below(100) < chance {
                    image.write_all_at(part, offset)?;
                } else {
                    is_lost = true;
                }
                offset += u64::try_from(part.len())?;
            }
            lost += usize::from(is_lost);
        }
        Ok(Cut {
            unflushed: unflushed.len(),
            lost,
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The writes of a log. Its last one may be incomplete: then the image does not have it.
fn unflushed(mut log: &[u8]) -> Result<Vec<Unflushed>> {
    let mut all = Vec::new();
    while let Some((head, rest)) = log.split_first_chunk::<16>() {
        let (offset, len) = head.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into()?);
        let len = usize::try_from(u64::from_le_bytes(len.try_into()?))?;
        let Some((bytes, rest)) = rest.split_at_checked(2 * len) else {
            break;
        };
        let (before, after) = bytes.split_at(len);
        all.push(Unflushed {
            offset,
            before: before.to_vec(),
            after: after.to_vec(),
        });
        log = rest;
    }
    Ok(all)
}
