//! A storm: random operations on what lies below a directory, by either side.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, chown, symlink};
use std::path::{Path, PathBuf};

use extant_testkit::{Context, Result, Rng, content};
use rustix::fs::{XattrFlags, removexattr, setxattr};

use crate::draw::Combination;

/// Operations of a storm.
const OPERATIONS: u32 = 150;

/// Owners that a file may get. Some need more than 16 bits.
const OWNERS: [u32; 4] = [0, 1000, 1001, 70_000];

/// The files and directories below `top`, and a name for the next.
struct Storm<'a> {
    drawn: &'a Combination,
    rng: Rng,
    by: &'static str,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    names: u32,
    /// The file that the last operation changed.
    changed: Option<PathBuf>,
}

impl Storm<'_> {
    fn name(&mut self) -> PathBuf {
        self.names += 1;
        let pad = "-".repeat(self.rng.index(3) * self.rng.index(80));
        let dir = &self.dirs[self.rng.index(self.dirs.len())];
        dir.join(format!("{}-Größe-{}{pad}", self.by, self.names))
    }

    fn file(&mut self) -> Option<PathBuf> {
        let count = self.files.len();
        (count > 0).then(|| self.files[self.rng.index(count)].clone())
    }

    fn len(&mut self) -> usize {
        let most = [80, 200, 3000, 70_000][self.rng.index(4)];
        self.rng.index(most)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (seed, len) = (self.rng.next_u64(), self.len());
        content::fill(seed, 0, len)
    }

    /// Does one operation. Lack of space and attributes that do not fit are answers too.
    fn step(&mut self) -> io::Result<()> {
        let what = self.rng.below(17);
        if what < 4 || self.files.is_empty() {
            let (path, bytes) = (self.name(), self.bytes());
            fs::write(&path, bytes)?;
            self.changed = Some(path.clone());
            self.files.push(path);
            return Ok(());
        }
        let Some(file) = self.file() else {
            return Ok(());
        };
        self.changed = (what < 13).then(|| file.clone());
        match what {
            4 => {
                let dir = self.name();
                fs::create_dir(&dir)?;
                self.dirs.push(dir);
            }
            5 => File::options()
                .append(true)
                .open(&file)?
                .write_all(&self.bytes())?,
            6 => {
                let (at, bytes) = (self.len() as u64, self.bytes());
                File::options()
                    .write(true)
                    .open(&file)?
                    .write_all_at(&bytes, at)?;
            }
            7 => {
                let len = self.len() as u64;
                File::options().write(true).open(&file)?.set_len(len)?;
            }
            8 | 9 => {
                let to = self.name();
                fs::rename(&file, &to)?;
                self.files.retain(|path| *path != file);
                self.changed = Some(to.clone());
                self.files.push(to);
            }
            10 => {
                let to = self.name();
                fs::hard_link(&file, &to)?;
                self.files.push(to);
            }
            11 => {
                let link = self.name();
                symlink("x".repeat(1 + self.rng.index(300)), link)?;
            }
            12 => {
                fs::remove_file(&file)?;
                self.changed = None;
                self.files.retain(|path| *path != file);
            }
            13..=15 => self.attribute(&file)?,
            _ => {
                let dir = self.dirs[self.rng.index(self.dirs.len())].clone();
                let of = if self.rng.chance(30) { dir } else { file };
                let [user, group] = [(); 2].map(|()| OWNERS[self.rng.index(OWNERS.len())]);
                chown(of, Some(user), Some(group))?;
            }
        }
        Ok(())
    }

    /// Makes durable what the last operation changed, now and then: often where that may take a
    /// fast commit.
    fn fsync(&mut self) -> io::Result<()> {
        let percent = if self.drawn.has("fast_commit") { 30 } else { 8 };
        match self.changed.take() {
            Some(file) if self.rng.chance(percent) => File::open(file)?.sync_all(),
            _ => Ok(()),
        }
    }

    /// Sets or removes an attribute.
    fn attribute(&mut self, file: &Path) -> io::Result<()> {
        let name = format!("user.of{}", self.rng.below(3));
        if self.rng.chance(30) {
            let _ = removexattr(file, name.as_str());
            return Ok(());
        }
        let len = self.rng.index(self.drawn.longest_value());
        // Some are equal.
        let value = content::fill(self.rng.below(3), 0, len);
        Ok(setxattr(file, name.as_str(), &value, XattrFlags::empty())?)
    }
}

/// Everything below `top`: files and directories.
fn found(top: &Path) -> io::Result<[Vec<PathBuf>; 2]> {
    let (mut files, mut dirs, mut ahead) = (Vec::new(), vec![top.to_owned()], vec![top.to_owned()]);
    while let Some(dir) = ahead.pop() {
        for entry in fs::read_dir(dir)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            if kind.is_dir() && !path.ends_with("lost+found") {
                dirs.push(path.clone());
                ahead.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    dirs.sort();
    Ok([files, dirs])
}

/// Changes what is below `top`, as the combination says for the storm of this number; the files
/// that are there then.
pub(super) fn storm(
    top: &Path,
    by: &'static str,
    drawn: &Combination,
    number: u64,
) -> Result<Vec<PathBuf>> {
    let [files, dirs] = found(top)?;
    let mut storm = Storm {
        drawn,
        rng: drawn.rng(number),
        by,
        files,
        dirs,
        names: 0,
        changed: None,
    };
    for at in 0..OPERATIONS {
        match storm.step().and_then(|()| storm.fsync()) {
            // Nothing enters or leaves an encrypted directory with its names.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::StorageFull | ErrorKind::CrossesDevices
                ) => {}
            other => other.context(|| format!("operation {at} by {by}"))?,
        }
    }
    Ok(storm.files)
}
