//! Changes by Linux, each followed by an fsync, so that a mount with long commits leaves them as
//! fast commits.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use extant_testkit::{Cmd, Result, Rng, content};

/// Directories of a storm, which are there before it.
const DIRS: [&str; 3] = ["", "one", "one/two"];
/// Most files at a time.
const FILES: usize = 40;

/// A storm on the mount at `root`.
pub(crate) struct Storm {
    root: PathBuf,
    rng: Rng,
    files: Vec<PathBuf>,
    serial: u64,
    /// Changes that Linux makes by a full commit are left out.
    only_fast: bool,
    /// Files that were removed while they were open.
    pub(crate) open: Vec<File>,
}

impl Storm {
    /// Makes what is there before the storm, and commits it.
    pub(crate) fn begin(root: &Path, seed: u64, only_fast: bool) -> Result<Self> {
        let mut storm = Self {
            root: root.to_owned(),
            rng: Rng::new(seed),
            files: Vec::new(),
            serial: 0,
            only_fast,
            open: Vec::new(),
        };
        for dir in DIRS {
            fs::create_dir_all(root.join(dir))?;
        }
        // Enough entries for an index.
        for number in 0..300 {
            fs::write(root.join(format!("one/entry{number:0>40}")), b"")?;
        }
        fs::write(root.join("mark"), b"a mark")?;
        for _ in 0..12 {
            storm.create()?;
        }
        storm.commit()?;
        Ok(storm)
    }

    /// A full commit.
    pub(crate) fn commit(&self) -> Result<()> {
        Cmd::new("sync").arg("-f").arg(&self.root).ok().map(drop)
    }

    /// A change whose fsync takes those of names with it. That of a directory is a full commit.
    fn mark(&mut self) -> Result<()> {
        let path = self.root.join("mark");
        // A longer file: where times are in seconds, nothing else might change.
        let end = fs::metadata(&path)?.len();
        write_at(&path, end, b"!")?;
        sync(&path)
    }

    fn new_name(&mut self) -> PathBuf {
        self.serial += 1;
        let dir = DIRS[self.rng.index(DIRS.len())];
        let long = if self.rng.chance(25) { 120 } else { 1 };
        self.root
            .join(dir)
            .join(format!("f{}{}", self.serial, "y".repeat(long)))
    }

    fn pick(&mut self) -> usize {
        self.rng.index(self.files.len())
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = extant_units::index(1 + self.rng.below(most));
        content::fill(self.rng.below(1 << 40), 0, len)
    }

    fn create(&mut self) -> Result<()> {
        let path = self.new_name();
        let bytes = self.bytes(30_000);
        fs::write(&path, bytes)?;
        sync(&path)?;
        self.files.push(path);
        Ok(())
    }

    /// One change, and an fsync.
    pub(crate) fn step(&mut self) -> Result<()> {
        if self.files.len() < 4 {
            return self.create();
        }
        let at = self.pick();
        let path = self.files[at].clone();
        match self.rng.below(if self.only_fast { 12 } else { 16 }) {
            0 | 1 if self.files.len() < FILES => self.create()?,
            0..=2 => {
                fs::remove_file(&path)?;
                self.files.swap_remove(at);
                return self.mark();
            }
            3 => {
                let bytes = self.bytes(20_000);
                let end = fs::metadata(&path)?.len();
                write_at(&path, end, &bytes)?;
            }
            4 => {
                let bytes = self.bytes(20_000);
                let at = self.rng.below(200_000);
                write_at(&path, at, &bytes)?;
            }
            5 => {
                let len = self.rng.below(fs::metadata(&path)?.len() + 20_000);
                OpenOptions::new().write(true).open(&path)?.set_len(len)?;
            }
            6 | 7 => self.change_range(&path)?,
            8 => return self.rename(at),
            9 => {
                let to = self.new_name();
                fs::hard_link(&path, &to)?;
                sync(&to)?;
                self.files.push(to);
            }
            10 => {
                let mode = 0o400 + u32::try_from(self.rng.below(0o300)).unwrap_or(0);
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            11 => self.scatter(&path)?,
            12 => {
                let dir = self.new_name();
                fs::create_dir(&dir)?;
                fs::write(dir.join("inside"), b"inside")?;
                return sync(&dir.join("inside"));
            }
            13 => {
                symlink("a target", self.new_name())?;
                return self.mark();
            }
            14 => {
                let name = format!("user.x{}", self.rng.below(5));
                Cmd::new("setfattr")
                    .args(["-n", &name, "-v", "value"])
                    .arg(&path)
                    .ok()?;
            }
            _ => {
                let dir = self.new_name();
                fs::create_dir(&dir)?;
                self.commit()?;
                fs::remove_dir(&dir)?;
                return self.mark();
            }
        }
        sync(&path)
    }

    /// Small pieces with holes between them: the map becomes a tree.
    fn scatter(&mut self, path: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        let start = self.rng.below(64);
        for piece in 0..30 {
            let at = (start + piece * 3) * 4096;
            file.write_all_at(&[7; 500], at)?;
        }
        Ok(())
    }

    fn change_range(&mut self, path: &Path) -> Result<()> {
        let mode = ["--punch-hole", "--keep-size", "--zero-range", "--posix"];
        let mode = mode[self.rng.index(3)];
        let (at, len) = (self.rng.below(100_000), 1 + self.rng.below(60_000));
        Cmd::new("fallocate")
            .args([mode, "-o", &at.to_string(), "-l", &len.to_string()])
            .arg(path)
            .ok()
            .map(drop)
    }

    /// To a new name, or over another file.
    fn rename(&mut self, at: usize) -> Result<()> {
        let path = self.files[at].clone();
        let over = self.rng.index(self.files.len());
        let to = if self.rng.chance(50) && over != at {
            self.files[over].clone()
        } else {
            self.new_name()
        };
        fs::rename(&path, &to)?;
        // Links of one file stay as they are.
        self.files.retain(|file| *file != to);
        self.files.retain(|file| file.exists());
        if !self.files.contains(&to) {
            self.files.push(to.clone());
        }
        self.mark()
    }

    /// A file without a name.
    pub(crate) fn unnamed(&mut self) -> Result<File> {
        const TMPFILE: i32 = 0o20_200_000;
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .custom_flags(TMPFILE)
            .open(self.root.join("one"))?;
        let bytes = self.bytes(20_000);
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        Ok(file)
    }

    /// Gives it a name.
    pub(crate) fn name(&self, file: &File, name: &str) -> Result<()> {
        let number = file.as_raw_fd();
        let open = format!("/proc/{}/fd/{number}", std::process::id());
        Cmd::new("ln")
            .arg("-L")
            .arg(open)
            .arg(self.root.join(name))
            .ok()?;
        file.sync_all()?;
        Ok(())
    }

    /// Removes a file that stays open.
    pub(crate) fn unlink_open(&mut self) -> Result<()> {
        let at = self.pick();
        let path = self.files.swap_remove(at);
        let file = File::open(&path)?;
        fs::remove_file(&path)?;
        self.open.push(file);
        self.mark()
    }
}

pub(crate) fn write_at(path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(bytes, at)?;
    Ok(())
}

/// fsync of a file or a directory.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path)?.sync_all()?;
    Ok(())
}
