//! A storm: random operations on what lies below a directory, by either side.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, chown, symlink};
use std::path::{Path, PathBuf};

use extant_testkit::{Cmd, Context, Result, Rng, content};
use rustix::fs::{XattrFlags, ioctl_getflags, removexattr, setxattr};

use crate::draw::Combination;

/// Operations of a storm.
const OPERATIONS: u32 = 150;

/// Flags of inodes (`FS_CASEFOLD_FL`, `FS_VERITY_FL`).
const FOLDS: u32 = 0x4000_0000;
const SEALED: u32 = 0x0010_0000;

/// Owners that a file may get. Some need more than 16 bits.
const OWNERS: [u32; 4] = [0, 1000, 1001, 70_000];

/// The files and directories below `top`, and a name for the next.
struct Storm<'a> {
    drawn: &'a Combination,
    rng: Rng,
    by: &'static str,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    /// Those of `dirs` where a name is found in any spelling.
    folding: BTreeSet<PathBuf>,
    names: u32,
    /// The file that the last operation changed.
    changed: Option<PathBuf>,
}

/// Returns whether the inode at `path` has the flag.
fn has_flag(path: &Path, flag: u32) -> io::Result<bool> {
    Ok(ioctl_getflags(File::open(path)?)?.bits() & flag != 0)
}

/// Runs a tool that changes an inode as no call of the standard library does.
fn by_tool(tool: &str, args: &[&str], path: &Path) -> io::Result<()> {
    let said = Cmd::new(tool).args(args).arg(path).run();
    let said = said.map_err(|error| io::Error::other(error.to_string()))?;
    match said.code {
        Some(0) => Ok(()),
        _ if said.err.contains("No space left") => Err(ErrorKind::StorageFull.into()),
        _ => Err(io::Error::other(said.describe())),
    }
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

    /// The path as given, or in another spelling where its directory finds it by that.
    fn spelled(&mut self, path: &Path) -> PathBuf {
        let folds = path.parent().is_some_and(|dir| self.folding.contains(dir));
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if folds && self.rng.chance(60) => path.with_file_name(name.to_uppercase()),
            _ => path.to_owned(),
        }
    }

    fn len(&mut self) -> usize {
        let most = [80, 200, 3000, 70_000][self.rng.index(4)];
        self.rng.index(most)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (seed, len) = (self.rng.next_u64(), self.len());
        content::fill(seed, 0, len)
    }

    /// Changes the bytes of a file, which is refused for a sealed one, and only then.
    fn change(
        &self,
        path: &Path,
        how: &mut OpenOptions,
        change: impl FnOnce(File) -> io::Result<()>,
    ) -> io::Result<()> {
        let sealed = self.drawn.has("verity") && has_flag(path, SEALED)?;
        match how.open(path) {
            Ok(file) if !sealed => change(file),
            Ok(_) => Err(io::Error::other(format!("{path:?} is sealed and writable"))),
            Err(error) if sealed && error.kind() == ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn make_dir(&mut self) -> io::Result<PathBuf> {
        let dir = self.name();
        fs::create_dir(&dir)?;
        if dir.parent().is_some_and(|dir| self.folding.contains(dir)) {
            self.folding.insert(dir.clone());
        }
        self.dirs.push(dir.clone());
        Ok(dir)
    }

    /// Does one operation. Lack of space and attributes that do not fit are answers too.
    fn step(&mut self) -> io::Result<()> {
        let what = self.rng.below(21);
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
        let spelled = self.spelled(&file);
        self.changed = (what < 13).then(|| spelled.clone());
        match what {
            4 => self.make_dir().map(drop)?,
            5 => {
                let bytes = self.bytes();
                let how = &mut File::options();
                self.change(&spelled, how.append(true), |mut file| {
                    file.write_all(&bytes)
                })?;
            }
            6 => {
                let (at, bytes) = (self.len() as u64, self.bytes());
                let how = &mut File::options();
                self.change(&spelled, how.write(true), |file| {
                    file.write_all_at(&bytes, at)
                })?;
            }
            7 => {
                let len = self.len() as u64;
                let how = &mut File::options();
                self.change(&spelled, how.write(true), |file| file.set_len(len))?;
            }
            8 | 9 => {
                let to = self.name();
                fs::rename(&spelled, &to)?;
                self.files.retain(|path| *path != file);
                self.changed = Some(to.clone());
                self.files.push(to);
            }
            10 => {
                let to = self.name();
                fs::hard_link(&spelled, &to)?;
                self.files.push(to);
            }
            11 => {
                let link = self.name();
                symlink("x".repeat(1 + self.rng.index(300)), link)?;
            }
            12 => {
                fs::remove_file(&spelled)?;
                self.changed = None;
                self.files.retain(|path| *path != file);
            }
            13..=15 => self.attribute(&spelled)?,
            16 => {
                let dir = self.dirs[self.rng.index(self.dirs.len())].clone();
                let of = if self.rng.chance(30) { dir } else { spelled };
                let [user, group] = [(); 2].map(|()| OWNERS[self.rng.index(OWNERS.len())]);
                chown(of, Some(user), Some(group))?;
            }
            _ => self.of_debian(what, &spelled)?,
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

    /// Does one operation that needs a feature, if the volume has it.
    fn of_debian(&mut self, what: u64, file: &Path) -> io::Result<()> {
        let drawn = self.drawn;
        match what {
            17 if drawn.has("casefold") => {
                let dir = self.make_dir()?;
                if !self.folding.contains(&dir) {
                    by_tool("chattr", &["+F"], &dir)?;
                    self.folding.insert(dir);
                }
            }
            18 if drawn.has("project") => {
                let dir = self.make_dir()?;
                let id = self.rng.between(1, 3).to_string();
                by_tool("chattr", &["+P", "-p", &id], &dir)?;
            }
            // Files without extents cannot be sealed.
            19 if drawn.has("verity") && !drawn.has("^extent") => {
                // Linux 6.1 seals what left its inode, or is inside of it, as zeros.
                let is_linux = self.by == "linux";
                let cannot = has_flag(file, SEALED)? || is_linux && drawn.has("inline_data");
                let seal = || by_tool("fsverity", &["enable"], file);
                if cannot { Ok(()) } else { seal() }?;
            }
            20 if drawn.has("casefold") => {
                let other = file.with_extension("no such name");
                if fs::symlink_metadata(&other).is_ok() {
                    return Err(io::Error::other(format!("{other:?} is there")));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Everything below `top`: files, directories, and which of these fold.
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
    let mut folding = BTreeSet::new();
    for dir in &dirs {
        if drawn.has("casefold") && has_flag(dir, FOLDS)? {
            folding.insert(dir.clone());
        }
    }
    let mut storm = Storm {
        drawn,
        rng: drawn.rng(number),
        by,
        files,
        dirs,
        folding,
        names: 0,
        changed: None,
    };
    for at in 0..OPERATIONS {
        match storm.step().and_then(|()| storm.fsync()) {
            // Nothing enters or leaves an encrypted directory with its names, nor one of a project.
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
