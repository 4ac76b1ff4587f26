//! Temporary directories, removed when dropped.
//!
//! They live under `$EXTANT_TMP`, else `/dev/shm` where that is writable and has room (images of
//! tests need no disk, and loop devices work on it), else the system's temporary directory.
//! `EXTANT_KEEP=1` leaves them behind for a look.

use crate::{Context, Result, made};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of our own, gone with its owner.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

/// Free bytes below which `/dev/shm` is left alone (containers often get 64 MiB).
const ENOUGH_ROOM: u64 = 3 << 30;

/// The directory in which temporary directories are made.
pub fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        if let Some(dir) = std::env::var_os("EXTANT_TMP") {
            return PathBuf::from(dir);
        }
        let shm = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(shm).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize));
        let probe = shm.join(format!("extant-probe-{}", std::process::id()));
        if room >= ENOUGH_ROOM && std::fs::write(&probe, b"").is_ok() {
            let _ = std::fs::remove_file(&probe);
            return shm.to_path_buf();
        }
        std::env::temp_dir()
    })
}

/// Returns whether they stay for a look.
pub(crate) fn are_kept() -> bool {
    std::env::var_os("EXTANT_KEEP").is_some()
}

impl TempDir {
    /// Makes a fresh directory whose name starts with `label`.
    pub fn new(label: &str) -> Result<TempDir> {
        Self::new_in(base(), label)
    }

    /// The same below a directory of the caller's choice.
    pub fn new_in(parent: &Path, label: &str) -> Result<TempDir> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        loop {
            let n = SERIAL.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("extant-{label}-{pid}-{n}"));
            let mut made = made::made();
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    made.dirs.insert(path.clone());
                    return Ok(TempDir { path });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).context(|| format!("mkdir {}", path.display())),
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if are_kept() {
            eprintln!("kept {}", self.path.display());
        } else if let Err(e) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {e}", self.path.display());
        }
        made::made().dirs.remove(&self.path);
    }
}
