//! Opening images for commands that look into them.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::device::OpenMode;
use extant::{Cred, FileIdentity, Filesystem, Tuning};
use rustix::fs::Mode;
use rustix::process::{getegid, geteuid, umask};

use crate::failure::{At, Failure};
use crate::operand::ImagePath;
use crate::{key_files, source, unreadable};

/// Memory for file data, of all images of a command.
const PAGE_CACHE: u64 = 64 << 20;
/// Memory for metadata; what waits in the journals comes on top.
const BLOCK_CACHE: u64 = 32 << 20;
/// Memory for names.
const NAME_CACHE: u64 = 8 << 20;

/// The images of one command: each is opened once, however many operands are in it.
pub(crate) struct Images {
    write: bool,
    /// Images that share the memory of the command.
    shares: u64,
    umask: u16,
    open: Vec<(PathBuf, Rc<Filesystem>)>,
    /// The identities of the open ones, whatever they are called.
    known: Vec<FileIdentity>,
}

impl Images {
    /// Images that are only read: they are never written to.
    pub(crate) fn read() -> Images {
        Images::new(false)
    }

    /// Images that are changed.
    pub(crate) fn write() -> Images {
        Images::new(true)
    }

    /// Says which images the command has open at the same time: each gets an equal part of the
    /// memory. An image that is named several times counts once.
    pub(crate) fn shared_by<'a>(self, operands: impl IntoIterator<Item = &'a ImagePath>) -> Images {
        // What has no such name is not there, and opening it says so.
        let names = operands.into_iter().map(|at| source::real(&at.image).ok());
        let images: BTreeSet<_> = names.flatten().collect();
        let shares = images.len().max(1) as u64;
        Images { shares, ..self }
    }

    fn new(write: bool) -> Images {
        // Reading the umask means setting it; nothing else runs yet.
        let mask = umask(Mode::empty());
        umask(mask);
        // Nine bits fit.
        let umask = u16::try_from(mask.bits() & 0o777).unwrap_or(0o022);
        Images {
            write,
            shares: 1,
            umask,
            open: Vec::new(),
            known: Vec::new(),
        }
    }

    /// The file system in the image at `path`.
    pub(crate) fn open(&mut self, path: &Path) -> Result<Rc<Filesystem>, Failure> {
        // By another name it would be in use, by us.
        let real = source::real(path)?;
        if let Some((_, fs)) = self.open.iter().find(|(known, _)| *known == real) {
            return Ok(Rc::clone(fs));
        }
        let mut options = Filesystem::options();
        // A command takes each file once: a large cache would only fill.
        let mut tuning = Tuning::default();
        tuning.page_cache_bytes = Some(PAGE_CACHE / self.shares);
        tuning.block_cache_bytes = BLOCK_CACHE / self.shares;
        tuning.name_cache_bytes = NAME_CACHE / self.shares;
        options.tuning(tuning);
        options.write(self.write).cred(Cred {
            uid: self.maker().0,
            gid: self.maker().1,
            groups: Vec::new(),
            // A process that can write the image could change anything in it anyway.
            privileged: true,
            umask: self.umask,
        });
        let mode = if self.write {
            OpenMode::ReadWrite
        } else {
            OpenMode::ReadOnly
        };
        let fs = match source::connect(path, mode)? {
            Some(device) => options.open_device(device),
            None => options.open(path),
        };
        let fs = unreadable::advised(path, fs)?;
        key_files::add_to(fs.volume())?;
        if !source::is_remote(path) {
            let metadata = real.metadata().at(path.display())?;
            self.known.push(FileIdentity::of(&metadata));
        }
        tracing::debug!(page_cache_bytes = budget(&fs), "{} is open", path.display());
        let fs = Rc::new(fs);
        self.open.push((real, Rc::clone(&fs)));
        Ok(fs)
    }

    /// The file system that `at` is in.
    pub(crate) fn of(&mut self, at: &ImagePath) -> Result<Rc<Filesystem>, Failure> {
        self.open(&at.image)
    }

    /// Refuses an output of the host that is one of these images: to empty it, write to it or
    /// remove it would destroy what is read. To be asked with the metadata of the file as it was
    /// opened, before it is truncated.
    pub(crate) fn spare(&self, path: &Path, output: &Metadata) -> Result<(), Failure> {
        if self.known.contains(&FileIdentity::of(output)) {
            return Err(Failure::at(path.display(), "the image itself"));
        }
        Ok(())
    }

    /// The files of the host that the open images are.
    pub(crate) fn identities(&self) -> &[FileIdentity] {
        &self.known
    }

    /// The user and the group that new files belong to.
    pub(crate) fn maker(&self) -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }

    /// The umask of this process.
    pub(crate) fn umask(&self) -> u16 {
        self.umask
    }

    /// Closes all of them; what was changed is durable then.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let mut result = Ok(());
        for (path, fs) in self.open {
            let closed = match Rc::try_unwrap(fs) {
                Ok(fs) => fs.unmount(),
                Err(shared) => shared.volume().unmount(),
            };
            result = result.and(closed.at(path.display()));
        }
        result
    }
}

/// The bytes that the page cache of `fs` may take.
fn budget(fs: &Filesystem) -> u64 {
    let stats = fs.volume().stats();
    let budget = stats
        .iter()
        .find(|(name, _)| *name == "page_cache_budget_bytes");
    budget.map_or(0, |(_, bytes)| *bytes)
}
