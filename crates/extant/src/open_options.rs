//! Opening a file.

use std::fmt;
use std::path::Path;

use extant_engine::{AfterWrite, Cred, Error, FileKind, Node, Result, Volume};

use crate::file::{Access, File};
use crate::last_name::{ends_in_slash, parent};
use crate::metadata::Permissions;
use crate::walk::{Target, walk, walk_to_create};

/// How often a file is looked for again that another thread made between look and creation, and has
/// removed since. It ends a damaged directory as well, which both lacks a name and has it.
const MOST_RACES: u32 = 1000;

/// How to open a file: as [`std::fs::OpenOptions`].
#[derive(Clone)]
pub struct OpenOptions<'a> {
    volume: &'a Volume,
    cred: &'a Cred,
    access: Access,
    truncate: bool,
    create: bool,
    create_new: bool,
    no_follow: bool,
    sync: bool,
    data_sync: bool,
    mode: u32,
}

impl fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("access", &self.access)
            .field("truncate", &self.truncate)
            .field("create", &self.create)
            .field("create_new", &self.create_new)
            .field("no_follow", &self.no_follow)
            .field("mode", &format_args!("{:#o}", self.mode))
            .finish_non_exhaustive()
    }
}

impl<'a> OpenOptions<'a> {
    pub(crate) fn new(volume: &'a Volume, cred: &'a Cred) -> Self {
        let access = Access::default();
        Self {
            volume,
            cred,
            access,
            truncate: false,
            create: false,
            create_new: false,
            no_follow: false,
            sync: false,
            data_sync: false,
            mode: 0o666,
        }
    }

    /// Allows reading.
    pub fn read(&mut self, yes: bool) -> &mut Self {
        self.access.read = yes;
        self
    }

    /// Allows writing.
    pub fn write(&mut self, yes: bool) -> &mut Self {
        self.access.write = yes;
        self
    }

    /// Allows writing, always at the end of the file.
    pub fn append(&mut self, yes: bool) -> &mut Self {
        self.access.append = yes;
        self
    }

    /// Makes reads and writes bypass the page cache (`O_DIRECT`): they go between the caller's
    /// bytes and the device. When a write returns, its data is on the device, but it is not durable
    /// before [`File::sync_data`]. Other openers may use the file through the cache at the same
    /// time, and see the same content.
    ///
    /// Any position and length will do, but only whole blocks are cheap: a block that is written in
    /// part is read and written whole. Data that cannot be written directly, such as data that goes
    /// through the journal, goes through the cache and from there to the device. For many requests
    /// in flight see [`crate::DirectQueue`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).make().expect("mke2fs");
    /// # let fs = extant::Filesystem::options().write(true).open(image.path())?;
    /// let mut options = fs.open_options();
    /// let file = options.read(true).write(true).create(true).direct(true).open("/table")?;
    /// file.write_at(&[7; 8192], 4096)?;
    /// file.sync_data()?;
    /// assert_eq!(fs.read("/table")?[4096..], [7; 8192]);
    /// # Ok(()) }
    /// ```
    pub fn direct(&mut self, yes: bool) -> &mut Self {
        self.access.direct = yes;
        self
    }

    /// Makes content and attributes durable before a write returns (`O_SYNC`), or a change of the
    /// allocation, or the result of a write by a [`crate::DirectQueue`].
    pub fn sync(&mut self, yes: bool) -> &mut Self {
        self.sync = yes;
        self.set_after_write()
    }

    /// As [`OpenOptions::sync`], but of the attributes only those that are needed to read the
    /// content back (`O_DSYNC`).
    pub fn data_sync(&mut self, yes: bool) -> &mut Self {
        self.data_sync = yes;
        self.set_after_write()
    }

    fn set_after_write(&mut self) -> &mut Self {
        self.access.after = match (self.sync, self.data_sync) {
            (true, _) => AfterWrite::SyncAll,
            (false, true) => AfterWrite::SyncData,
            (false, false) => AfterWrite::Nothing,
        };
        self
    }

    /// Refuses a symbolic link at the end of the path (`O_NOFOLLOW`).
    pub fn no_follow(&mut self, yes: bool) -> &mut Self {
        self.no_follow = yes;
        self
    }

    /// Empties the file.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.truncate = yes;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.create = yes;
        self
    }

    /// Creates the file; fails if the name exists, also as a symbolic link.
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.create_new = yes;
        self
    }

    /// Permissions of a new file, less the umask: 0o666 unless set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`Error::Invalid`] without reading and writing, or for creating or truncating without
    /// writing; [`Error::IsDir`] for directories, and for creating at a path that ends in a slash;
    /// [`Error::TooManySymlinks`] for a symbolic link that is not to be followed;
    /// [`Error::NotPermitted`] for writing a file whose content fs-verity fixes, and
    /// [`Error::TextBusy`] while that begins; otherwise as open(2).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let writes = self.access.write || self.access.append;
        let makes = self.truncate || self.create || self.create_new;
        let senseless = if writes {
            self.access.append && self.truncate && !self.create_new
        } else {
            makes || !self.access.read
        };
        if senseless {
            return Err(Error::Invalid);
        }
        let (volume, cred) = (self.volume, self.cred);
        let (node, made) = self.find_or_create(path.as_ref())?;
        match node.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDir),
            FileKind::Symlink => return Err(Error::TooManySymlinks),
            _ => return Err(Error::NotSupported("opening anything but a regular file")),
        }
        if writes && volume.read_only() {
            return Err(Error::ReadOnly);
        }
        let file = File::new(volume, cred, node, self.access)?;
        if self.truncate && !made {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// The file at `path`, and whether this call made it.
    fn find_or_create(&self, path: &Path) -> Result<(Node, bool)> {
        let (volume, cred) = (self.volume, self.cred);
        let perm = Permissions::from_mode(self.mode).bits();
        if self.create_new {
            let (dir, end) = parent(volume, path)?;
            let name = end.name_or(Error::Exists)?;
            // What is there does not matter, as in open(2).
            if ends_in_slash(path) {
                return Err(Error::IsDir);
            }
            return Ok((volume.create(&dir, name, perm, cred)?, true));
        }
        let mut races = 0;
        loop {
            let target = match self.create {
                true => walk_to_create(volume, path, !self.no_follow)?,
                false => walk(volume, path, !self.no_follow)?,
            };
            match target {
                Target::Found(node) => return Ok((node, false)),
                Target::Missing {
                    dir,
                    name,
                    must_be_dir: false,
                } if self.create => match volume.create(&dir, &name, perm, cred) {
                    Err(Error::Exists) if races < MOST_RACES => races += 1,
                    made => return Ok((made?, true)),
                },
                Target::Missing { .. } => return Err(Error::NotFound),
            }
        }
    }
}
