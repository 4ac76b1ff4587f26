//! A mounted file system, by paths.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_engine::{
    Cred, DirectQueue, Error, FileKind, FsStat, Node, Result, SetAttr, Volume, XattrMode,
};
use tracing::error;

use crate::file::File;
use crate::last_name::{parent_of_dir, parent_of_leaf, parent_of_new, parent_of_new_leaf};
use crate::metadata::{FileTimes, Metadata, Permissions};
use crate::open_options::OpenOptions;
use crate::options::Options;
use crate::read_dir::ReadDir;
use crate::walk::{attributes, canonical, resolve};

/// An open file system with the habits of [`std::fs`]: its functions are methods here, take paths
/// inside of the file system, and follow symbolic links inside of it.
///
/// Permissions (rwx) are not checked, because a process that can open the image can read and write
/// all of it. A drop unmounts, and logs the error that [`Filesystem::unmount`] would have returned.
pub struct Filesystem {
    volume: Volume,
    cred: Cred,
    mounted: bool,
}

impl Filesystem {
    /// Options to open one with.
    pub fn options() -> Options {
        Options::new()
    }

    /// Opens an image or block device for reading.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Filesystem> {
        Options::new().open(path)
    }

    pub(crate) fn new(volume: Volume, cred: Cred) -> Filesystem {
        Filesystem {
            volume,
            cred,
            mounted: true,
        }
    }

    /// The same file system at the level of inodes.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The inode of `path`: for a symbolic link its target if `follow`, else itself.
    ///
    /// # Errors
    /// Those of following the path.
    pub fn node(&self, path: impl AsRef<Path>, follow: bool) -> Result<Node> {
        resolve(&self.volume, path.as_ref(), follow)
    }

    /// The credentials of its operations.
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// Options to open a file with.
    pub fn open_options(&self) -> OpenOptions<'_> {
        OpenOptions::new(&self.volume, &self.cred)
    }

    /// A queue for up to `depth` (1 to 4096) direct requests in flight.
    pub fn direct_queue(&self, depth: usize) -> DirectQueue {
        self.volume().direct_queue(depth, self.cred())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// See [`OpenOptions::open`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_options().read(true).open(path)
    }

    /// Creates a file for writing, or empties it.
    ///
    /// # Errors
    /// See [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
    }

    /// Attributes of `path`; a symbolic link is followed.
    ///
    /// # Errors
    /// Those of following the path.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attributes(path.as_ref(), true)
    }

    /// Attributes of `path` itself, also if it is a symbolic link.
    ///
    /// # Errors
    /// Those of following the path.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attributes(path.as_ref(), false)
    }

    fn attributes(&self, path: &Path, follow: bool) -> Result<Metadata> {
        attributes(&self.volume, path, follow).map(Metadata)
    }

    /// Returns whether `path` leads to an inode.
    ///
    /// # Errors
    /// Those of following the path, other than that it leads nowhere.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match resolve(&self.volume, path.as_ref(), true) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// [`Error::NotDir`], or those of following the path. Reading errors show while iterating.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = resolve(&self.volume, path, true)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDir);
        }
        Ok(ReadDir::new(self.volume.clone(), dir, path.to_owned()))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o777)
    }

    /// Creates a directory with these permissions, less the umask.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let (dir, name) = parent_of_new(&self.volume, path.as_ref())?;
        let perm = Permissions::from_mode(mode).bits();
        self.volume.mkdir(&dir, name, perm, &self.cred).map(drop)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = parent_of_leaf(&self.volume, path.as_ref())?;
        self.volume.unlink(&dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = parent_of_dir(&self.volume, path.as_ref())?;
        self.volume.rmdir(&dir, name)
    }

    /// Gives `original` another name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As link(2).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let node = resolve(&self.volume, original.as_ref(), false)?;
        let (dir, name) = parent_of_new_leaf(&self.volume, link.as_ref())?;
        self.volume.link(&node, &dir, name, &self.cred)
    }

    /// Creates a symbolic link at `link` with the target `target`.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let (dir, name) = parent_of_new_leaf(&self.volume, link.as_ref())?;
        let target = target.as_ref().as_os_str().as_bytes();
        self.volume
            .symlink(&dir, name, target, &self.cred)
            .map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        use std::ffi::OsString;
        use std::os::unix::ffi::OsStringExt;
        let node = resolve(&self.volume, path.as_ref(), false)?;
        Ok(OsString::from_vec(self.volume.readlink(&node)?).into())
    }

    /// The path without links, `.` and `..`, from the root on.
    ///
    /// # Errors
    /// Those of following the path; [`Error::NotFound`] if it leads nowhere.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        canonical(&self.volume, path.as_ref())
    }

    /// Creates a device node, named pipe or socket.
    ///
    /// # Errors
    /// As mknod(2).
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileKind,
        mode: u32,
        rdev: u32,
    ) -> Result<()> {
        let (dir, name) = parent_of_new_leaf(&self.volume, path.as_ref())?;
        let perm = Permissions::from_mode(mode).bits();
        self.volume
            .mknod(&dir, name, kind, perm, rdev, &self.cred)
            .map(drop)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let changes = SetAttr {
            perm: Some(permissions.bits()),
            ..SetAttr::default()
        };
        self.change(path.as_ref(), true, &changes)
    }

    /// Sets owner and group; `None` leaves one as it is.
    ///
    /// # Errors
    /// As chown(2).
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.change(
            path.as_ref(),
            true,
            &SetAttr {
                uid,
                gid,
                ..SetAttr::default()
            },
        )
    }

    /// Sets times.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.change(path.as_ref(), true, &times.into())
    }

    /// Changes any attributes, of a symbolic link itself unless `follow`.
    ///
    /// # Errors
    /// Those of the changes.
    pub fn set_attributes(
        &self,
        path: impl AsRef<Path>,
        follow: bool,
        changes: &SetAttr,
    ) -> Result<()> {
        self.change(path.as_ref(), follow, changes)
    }

    fn change(&self, path: &Path, follow: bool, changes: &SetAttr) -> Result<()> {
        let node = resolve(&self.volume, path, follow)?;
        self.volume.setattr(&node, changes, &self.cred).map(drop)
    }

    /// The value of an extended attribute (`user.note`) of `path` itself, also if it is a symbolic
    /// link.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if there is none.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let node = resolve(&self.volume, path.as_ref(), false)?;
        self.volume.getxattr(&node, name.as_ref())
    }

    /// The names of the extended attributes of `path` itself.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let node = resolve(&self.volume, path.as_ref(), false)?;
        self.volume.listxattr(&node)
    }

    /// Sets an extended attribute of `path` itself.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it does not fit, [`Error::NotSupported`] for names without a known
    /// namespace.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
    ) -> Result<()> {
        self.set_xattr_with(path, name, value, XattrMode::Either)
    }

    /// As [`Filesystem::set_xattr`], only if the attribute is not there yet ([`XattrMode::Create`])
    /// or only if it is ([`XattrMode::Replace`]).
    ///
    /// # Errors
    /// [`Error::Exists`] or [`Error::NoAttribute`] if it is the other way; those of
    /// [`Filesystem::set_xattr`].
    pub fn set_xattr_with(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let node = resolve(&self.volume, path.as_ref(), false)?;
        self.volume
            .setxattr(&node, name.as_ref(), value, mode, &self.cred)
    }

    /// Removes an extended attribute of `path` itself.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if there is none.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let node = resolve(&self.volume, path.as_ref(), false)?;
        self.volume.removexattr(&node, name.as_ref(), &self.cred)
    }

    /// Totals and limits, as statfs(2).
    ///
    /// # Errors
    /// Those of the file system's state.
    pub fn statfs(&self) -> Result<FsStat> {
        self.volume.statfs()
    }

    /// Tells the device of all free blocks: see [`Volume::trim`].
    ///
    /// # Errors
    /// As [`Volume::trim`].
    pub fn trim(&self) -> Result<u64> {
        self.volume.trim(0..u64::MAX, 0)
    }

    /// Grows the mounted file system to at most `bytes`, and a file that it is in with it. Other
    /// threads go on meanwhile. See [`Volume::grow`] for what is refused. [`crate::resize`]
    /// shrinks, and grows further, what is not mounted.
    ///
    /// # Errors
    /// As there.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        self.volume.grow(bytes)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of writing.
    pub fn sync(&self) -> Result<()> {
        self.volume.sync()
    }

    /// Writes and flushes everything, marks the image clean and lets go of it: others can open it
    /// then. Calls of files that are still open fail from then on; a [`DirectQueue`] that is still
    /// there keeps the image until it is dropped.
    ///
    /// # Errors
    /// Those of writing: then the image is not clean, and the next mount replays its journal.
    pub fn unmount(mut self) -> Result<()> {
        self.mounted = false;
        self.volume.unmount()
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filesystem")
            .field("read_only", &self.volume.read_only())
            .field("cred", &self.cred)
            .finish_non_exhaustive()
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        if let Err(error) = self.volume.unmount() {
            error!("unmount: {error}");
        }
    }
}

impl Options {
    /// Opens the image file or block device at `path`.
    ///
    /// # Errors
    /// See [`crate::VolumeOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        Ok(Filesystem::new(self.open_volume(path)?, self.cred.clone()))
    }

    /// Opens any block device.
    ///
    /// # Errors
    /// See [`crate::VolumeOptions::open_on`].
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        Ok(Filesystem::new(
            self.open_volume_on(device)?,
            self.cred.clone(),
        ))
    }
}
