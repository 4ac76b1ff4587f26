//! A file that gets its name when it is complete.
//!
//! # Invariants
//! - It is written without a name, or under a name of its own where the host has no such files. It
//!   gets its name when it is complete and durable, in one step.
//! - It replaces the file that stood at the name when it was begun, and no other; one in use stays.
//! - A failure, or an end of the process, leaves what was there. A name of its own is gone then as
//!   well, unless the process ends without [`remove_unfinished`].

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_blockdev::{OpenError, refuse_in_use};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, open, renameat_with};
use rustix::io::Errno;

/// Permissions of a new file, less those that the umask takes.
const MODE: u32 = 0o666;
/// Names that are tried for a file on its way.
const ATTEMPTS: u32 = 1000;

/// The names that files of this process have while they are on their way. Held while a name is made
/// or goes: what is on the list is there, and the reverse.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files of this process that are on their way under names of their own. A program
/// that a signal ends calls it last: a thread that then wants to begin or to finish such a file
/// waits for the end of the process.
pub fn remove_unfinished() {
    let mut unfinished = unfinished();
    for path in unfinished.drain(..) {
        let _ = fs::remove_file(path);
    }
    std::mem::forget(unfinished);
}

/// A name that a file has on its way. It goes with this.
#[derive(Debug)]
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    /// Makes a file in `folder` by `make`, under a name that is free.
    ///
    /// # Errors
    /// Those of `make`.
    fn make<T>(
        folder: &Path,
        make: impl Fn(&Path) -> rustix::io::Result<T>,
    ) -> io::Result<(Self, T)> {
        let own = std::process::id();
        let mut unfinished = unfinished();
        for attempt in 0..ATTEMPTS {
            let path = folder.join(format!(".extant-new-{own}-{attempt}"));
            match make(&path) {
                Ok(made) => {
                    unfinished.push(path.clone());
                    return Ok((Self(path), made));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("no name is free for a new file"))
    }

    /// Gives the file its own name, which another file has if `replaces`.
    ///
    /// # Errors
    /// Those of the host.
    fn rename(&self, to: &Path, replaces: bool) -> io::Result<()> {
        let mut unfinished = unfinished();
        match replaces {
            true => fs::rename(&self.0, to)?,
            false => rename_to_nothing(&self.0, to)?,
        }
        unfinished.retain(|path| *path != self.0);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut unfinished = unfinished();
        // Once this file is renamed, the name may be another one's.
        if let Some(at) = unfinished.iter().position(|path| *path == self.0) {
            let _ = fs::remove_file(unfinished.swap_remove(at));
        }
    }
}

/// A file on its way.
#[derive(Debug)]
pub struct NewFile {
    /// Its name, behind symbolic links.
    path: PathBuf,
    file: File,
    /// The name that it has meanwhile, if it needs one.
    temporary: Option<Temporary>,
    /// The file that stood at its name.
    replaced: Option<Stood>,
}

/// Marks that tell a file from others, and from itself once it was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stood {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Stood {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The metadata of what is at `path`, if something is.
fn found(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Refuses to replace a file that is in use.
fn check_unused(path: &Path) -> io::Result<()> {
    refuse_in_use(path).map_err(|error| match error {
        OpenError::Io(_, source) => source,
        OpenError::InUse(_, by) => {
            io::Error::new(io::ErrorKind::ResourceBusy, format!("in use by {by}"))
        }
        other @ OpenError::NotADevice(_) => io::Error::other(other),
    })
}

impl NewFile {
    /// Begins a file that will be at `path`, or where a symbolic link there leads. One that
    /// replaces another file has its owner and permissions.
    ///
    /// # Errors
    /// Those of the host; something else than a file stands there, or one that is in use.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let is_link = found(path)?.is_some_and(|there| there.is_symlink());
        let path = match is_link {
            true => path.canonicalize()?,
            false => path.to_path_buf(),
        };
        let before = found(&path)?;
        if before.as_ref().is_some_and(|there| !there.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "something else than a file is there",
            ));
        }
        check_unused(&path)?;
        let (file, temporary) = match Path::new("/proc/self/fd").exists() {
            true => nameless(folder_of(&path), MODE)?,
            // Without /proc, a file without a name can get none.
            false => named(folder_of(&path), MODE)?,
        };
        let new = Self {
            path,
            file,
            temporary,
            replaced: before.as_ref().map(Stood::of),
        };
        if let Some(before) = before {
            new.resemble(&before)?;
        }
        Ok(new)
    }

    /// Takes over the owner, if this process may, and the permissions.
    fn resemble(&self, before: &Metadata) -> io::Result<()> {
        let mut mode = before.mode() & 0o777;
        if fchown(&self.file, Some(before.uid()), Some(before.gid())).is_err()
            && fchown(&self.file, None, Some(before.gid())).is_err()
        {
            // They were meant for another group.
            mode &= !0o070;
        }
        self.file.set_permissions(fs::Permissions::from_mode(mode))
    }

    /// The folder that it will be in.
    pub(crate) fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// The file, to be written.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// Those of the host; another file has come to the name meanwhile, or what stood there was
    /// written to or is in use.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if found(&self.path)?.as_ref().map(Stood::of) != self.replaced {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "what is there changed meanwhile: it is left as it is",
            ));
        }
        check_unused(&self.path)?;
        let folder = folder_of(&self.path);
        let temporary = match (self.temporary.take(), self.replaced) {
            (None, None) => {
                link(&self.file, &self.path)?;
                None
            }
            (None, Some(_)) => Some(Temporary::make(folder, |path| link(&self.file, path))?.0),
            (known, _) => known,
        };
        if let Some(temporary) = temporary {
            temporary.rename(&self.path, self.replaced.is_some())?;
        }
        File::open(folder)?.sync_all()
    }
}

/// Renames a file to a name that nothing has.
fn rename_to_nothing(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that does not know of this.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        other => Ok(other?),
    }
}

/// A file in `folder` that vanishes unless it gets a name: its name, where it needs one.
///
/// # Errors
/// Those of the host.
pub(crate) fn nameless(folder: &Path, mode: u32) -> io::Result<(File, Option<Temporary>)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    match open(folder, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok((file.into(), None)),
        // The host has no files without names here.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => named(folder, mode),
        Err(error) => Err(error.into()),
    }
}

/// A file in `folder` under a name that nothing has.
fn named(folder: &Path, mode: u32) -> io::Result<(File, Option<Temporary>)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::from_raw_mode(mode);
    let (temporary, file) = Temporary::make(folder, |path| open(path, flags, mode))?;
    Ok((file.into(), Some(temporary)))
}

/// Gives a file without a name one that nothing has.
fn link(file: &File, path: &Path) -> rustix::io::Result<()> {
    let magic = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, magic.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)
}
