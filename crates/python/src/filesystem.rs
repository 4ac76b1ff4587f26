//! An open file system: calls by paths.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::{
    CopyEnd, CopyError, CopyOptions, CopyWatch, FileKind, Filesystem, SetAttr, SetTime, Timestamp,
};
use parking_lot::RwLock;
use pyo3::prelude::*;

use crate::failure;
use crate::file::File;
use crate::stat::Stat;

/// An open file system.
#[pyclass(frozen, module = "extant._extant")]
pub(crate) struct Volume {
    /// None once it is closed. A copy has a reference of its own, and no lock while it calls a
    /// function of Python.
    open: RwLock<Option<Arc<Filesystem>>>,
}

/// How a file is opened.
#[derive(FromPyObject)]
struct Access(bool, bool, bool, bool, bool, bool);

/// Tells a function of Python what a copy has done.
struct CopyProgress {
    call: Option<Py<PyAny>>,
    /// The exception of that function, which ends the copy.
    raised: Option<PyErr>,
}

impl CopyWatch for CopyProgress {
    fn copied(&mut self, from: &Path, bytes: u64) -> bool {
        if let Some(call) = &self.call {
            let called = Python::attach(|py| call.call1(py, (from.as_os_str(), bytes)));
            self.raised = called.err();
        }
        self.raised.is_none()
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
        let done = py.detach(|| self.open.read().as_deref().map(call));
        match done {
            Some(done) => done.map_err(|error| failure::at(path, &error)),
            None => Err(failure::closed("file system")),
        }
    }

    /// A copy, without the GIL.
    fn copy(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        copy: impl FnOnce(&Filesystem, &mut CopyProgress) -> Result<u64, CopyError> + Send,
    ) -> PyResult<()> {
        let mut watch = CopyProgress {
            call: progress,
            raised: None,
        };
        let copied = py.detach(|| {
            let fs = self.open.read().clone()?;
            Some(copy(&fs, &mut watch))
        });
        match (watch.raised, copied) {
            (Some(raised), _) => Err(raised),
            (None, None) => Err(failure::closed("file system")),
            (None, Some(copied)) => copied.map(drop).map_err(|error| failure::of_copy(&error)),
        }
    }
}

/// The options of a copy between an image and the host: a device or pipe that was named is written
/// to; none is copied.
fn tree_options() -> CopyOptions<'static> {
    CopyOptions {
        xattrs: false,
        no_special: true,
        is_named: true,
        ..CopyOptions::whole()
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
            open: RwLock::new(Some(Arc::new(open))),
        })
    }

    /// Writes everything home and closes the image.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| {
            let open = self.open.write().take();
            // A copy that is under way fails from now on.
            open.map_or(Ok(()), |fs| match Arc::try_unwrap(fs) {
                Ok(fs) => fs.unmount(),
                Err(shared) => shared.volume().unmount(),
            })
        });
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

    /// Copies a file or a tree of the host into the image.
    fn copy_in(
        &self,
        py: Python<'_>,
        host: PathBuf,
        path: PathBuf,
        owner: Option<(u32, u32)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.copy(py, progress, |fs, watch| {
            let (uid, gid) = owner.unzip();
            let options = CopyOptions {
                uid,
                gid,
                ..tree_options()
            };
            let (from, to) = (CopyEnd::Host(&host), CopyEnd::Volume(fs, &path));
            extant::copy(&from, &to, &options, watch)
        })
    }

    /// Copies a file or a tree of the image to the host; the copies are the caller's.
    fn copy_out(
        &self,
        py: Python<'_>,
        path: PathBuf,
        host: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        self.copy(py, progress, |fs, watch| {
            let options = CopyOptions {
                owners: false,
                ..tree_options()
            };
            let (from, to) = (CopyEnd::Volume(fs, &path), CopyEnd::Host(&host));
            extant::copy(&from, &to, &options, watch)
        })
    }

    /// Copies content and permissions of a file inside of the image, with its holes.
    fn copy_file(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.with(py, &to, |fs| fs.copy(&path, &to).map(drop))
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
