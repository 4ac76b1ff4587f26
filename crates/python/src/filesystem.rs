//! An open file system: calls by paths.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extant::{DataBudget, FileKind, Filesystem, SetAttr, SetTime, Timestamp};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;

use crate::failure;
use crate::file::File;
use crate::stat::Stat;

/// An open file system.
#[pyclass(frozen, module = "extant._extant")]
pub(crate) struct Volume {
    /// None once it is closed.
    open: RwLock<Option<Filesystem>>,
}

/// How a file is opened.
#[derive(FromPyObject)]
struct Access(bool, bool, bool, bool, bool, bool);

/// The data that may still be read of an image.
#[pyclass(frozen, module = "extant._extant")]
pub(crate) struct Budget(Mutex<DataBudget>);

#[pymethods]
impl Budget {
    /// Takes the data of a file; false if the image cannot have so much.
    fn take(&self, inode: u64, links: u64, data: u64) -> bool {
        let mut budget = self.0.lock();
        budget.begin(inode, links);
        budget.take(data)
    }
}

impl Volume {
    /// A call about a path, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        call: impl FnOnce(&Filesystem) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| self.open.read().as_ref().map(call));
        match done {
            Some(done) => done.map_err(|error| failure::at(path, &error)),
            None => Err(failure::closed("file system")),
        }
    }
}

/// A time in nanoseconds since 1970.
fn timestamp(nanoseconds: i128) -> PyResult<Timestamp> {
    const SECOND: i128 = 1_000_000_000;
    Ok(Timestamp {
        secs: i64::try_from(nanoseconds.div_euclid(SECOND))?,
        nanos: u32::try_from(nanoseconds.rem_euclid(SECOND))?,
    })
}

#[pymethods]
impl Volume {
    /// Opens an image or a block device.
    #[new]
    fn open(py: Python<'_>, image: PathBuf, write: bool, options: &str) -> PyResult<Volume> {
        let open = py.detach(|| {
            let mut how = Filesystem::options();
            how.write(write).mount_options(options).open(&image)
        });
        let open = open.map_err(|error| failure::at(&image, &error))?;
        Ok(Volume {
            open: RwLock::new(Some(open)),
        })
    }

    /// Writes everything home and closes the image.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| self.open.write().take().map_or(Ok(()), Filesystem::unmount));
        done.map_err(|error| failure::of(&error))
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.open.read().is_none())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Path::new("/"), Filesystem::sync)
    }

    /// Opens a file; `access` is read, write, append, create, exclusive, truncate.
    fn open_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        access: Access,
        mode: u32,
    ) -> PyResult<File> {
        let Access(read, write, append, create, exclusive, truncate) = access;
        let file = self.with(py, &path, |fs| {
            let mut options = fs.open_options();
            options.read(read).write(write).append(append).mode(mode);
            options.create(create).create_new(exclusive);
            options.truncate(truncate).open(&path)
        });
        file.map(File::new)
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        self.with(py, &path, |fs| {
            let found = match follow {
                true => fs.metadata(&path)?,
                false => fs.symlink_metadata(&path)?,
            };
            Ok(Stat::from(found.attr()))
        })
    }

    /// Names of a directory, with the kind of each as the upper bits of a mode, and its inode.
    fn list(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u16, u32)>> {
        self.with(py, &path, |fs| {
            let entries = fs.read_dir(&path)?.map(|entry| {
                let entry = entry?;
                let kind: FileKind = entry.file_type()?;
                Ok((entry.file_name(), kind.mode_bits(), entry.ino().get()))
            });
            entries.collect()
        })
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.with(py, &path, |fs| fs.create_dir_with_mode(&path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, &path, |fs| fs.remove_dir(&path))
    }

    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, &path, |fs| fs.remove_file(&path))
    }

    /// Removes a directory with everything in it.
    fn remove_tree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, &path, |fs| fs.remove_dir_all(&path))
    }

    fn rename(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.with(py, &path, |fs| fs.rename(&path, &to))
    }

    fn link(&self, py: Python<'_>, path: PathBuf, link: PathBuf) -> PyResult<()> {
        self.with(py, &link, |fs| fs.hard_link(&path, &link))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, link: PathBuf) -> PyResult<()> {
        self.with(py, &link, |fs| fs.symlink(&target, &link))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.with(py, &path, |fs| Ok(fs.read_link(&path)?.into_os_string()))
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        let permissions = extant::Permissions::from_mode(mode);
        self.with(py, &path, |fs| fs.set_permissions(&path, permissions))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        let changes = SetAttr {
            uid,
            gid,
            ..SetAttr::default()
        };
        self.with(py, &path, |fs| fs.set_attributes(&path, follow, &changes))
    }

    /// Sets the times of access and modification, in nanoseconds.
    fn utime(
        &self,
        py: Python<'_>,
        path: PathBuf,
        atime: i128,
        mtime: i128,
        follow: bool,
    ) -> PyResult<()> {
        let changes = SetAttr {
            atime: Some(SetTime::At(timestamp(atime)?)),
            mtime: Some(SetTime::At(timestamp(mtime)?)),
            ..SetAttr::default()
        };
        self.with(py, &path, |fs| fs.set_attributes(&path, follow, &changes))
    }

    fn getxattr(&self, py: Python<'_>, path: PathBuf, name: &[u8]) -> PyResult<Vec<u8>> {
        self.with(py, &path, |fs| fs.xattr(&path, name))
    }

    fn listxattr(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<Vec<u8>>> {
        self.with(py, &path, |fs| fs.xattrs(&path))
    }

    fn setxattr(&self, py: Python<'_>, path: PathBuf, name: &[u8], value: &[u8]) -> PyResult<()> {
        self.with(py, &path, |fs| fs.set_xattr(&path, name, value))
    }

    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: &[u8]) -> PyResult<()> {
        self.with(py, &path, |fs| fs.remove_xattr(&path, name))
    }

    /// The data that a copy of all files may read.
    fn budget(&self, py: Python<'_>) -> PyResult<Budget> {
        let budget = self.with(py, Path::new("/"), |fs| DataBudget::of(fs.volume()))?;
        Ok(Budget(Mutex::new(budget)))
    }

    /// Block size, blocks, free ones, those for ordinary users; inodes, free ones.
    fn usage(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64)> {
        self.with(py, Path::new("/"), |fs| {
            let all = fs.statfs()?;
            Ok((
                all.block_size,
                all.blocks,
                all.blocks_free,
                all.blocks_available,
                all.inodes,
                all.inodes_free,
            ))
        })
    }
}
