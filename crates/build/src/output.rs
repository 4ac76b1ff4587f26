//! The file or block device that a volume is built on.
//!
//! # Invariants
//! - A file is built without a name, or under a name of its own where the host has no such files.
//!   It gets its name when it is complete and durable, in one step, over what was there.
//! - A failure, or an end of the process, leaves what was there.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use extant_blockdev::{BlockDevice, FileDevice};
use extant_units::DevOff;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};

use crate::error::{At, Error, Result};
use crate::folder::FileKey;

/// Permissions of a new image, less those that the umask takes.
const MODE: u32 = 0o666;

/// Where a volume goes.
pub(crate) enum Output {
    /// A file that is made.
    New(NewFile),
    /// A block device.
    Device(FileDevice),
}

/// A file on its way.
pub(crate) struct NewFile {
    path: PathBuf,
    file: ImageFile,
    /// The name that it has meanwhile, if it needs one.
    temporary: Option<PathBuf>,
}

/// What stands at the path of an image.
pub(crate) enum Target {
    /// A file, or nothing.
    File,
    /// A block device of so many bytes.
    Device(u64),
}

impl Target {
    /// Looks at `path`.
    ///
    /// # Errors
    /// What is neither a file nor a block device; what holds something of value; what is in use.
    pub(crate) fn of(path: &Path, options: &extant_mkfs::Options) -> Result<Self> {
        let metadata = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::File),
            other => other.at(path)?,
        };
        let kind = metadata.file_type();
        if kind.is_block_device() {
            let file = File::open(path).at(path)?;
            let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).at(path)?;
            return Ok(Self::Device(len));
        }
        if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
            let what = "a volume is not written in order: it needs a file or a block device";
            return Err(Error::at(path.display(), what));
        }
        if !kind.is_file() {
            return Err(Error::at(
                path.display(),
                "a directory: it cannot be an image",
            ));
        }
        if metadata.len() > 0 {
            extant_mkfs::refuse_occupied_file(path, options)?;
            if !options.force && has_contents(path, &metadata)? {
                let what = "the file is not an ext image: it would be lost (--force replaces it)";
                return Err(Error::at(path.display(), what));
            }
        }
        Ok(Self::File)
    }
}

impl Target {
    /// Bytes of the device, where it is one.
    pub(crate) fn device_len(&self) -> Option<u64> {
        match self {
            Self::File => None,
            Self::Device(len) => Some(*len),
        }
    }
}

/// Whether a file has more than holes.
fn has_contents(path: &Path, metadata: &Metadata) -> Result<bool> {
    if metadata.blocks() > 0 {
        return Ok(true);
    }
    // Some file systems keep the bytes of a short file beside its name.
    let mut start = Vec::new();
    let file = File::open(path).at(path)?;
    file.take(4096).read_to_end(&mut start).at(path)?;
    Ok(start.iter().any(|&byte| byte != 0))
}

/// Refuses an image that is one of `inputs`, by whichever name.
///
/// # Errors
/// The image is one of them.
pub(crate) fn spare_inputs<'a>(
    image: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    let key = key_of(image);
    let is_input = key.is_some() && inputs.into_iter().any(|input| key_of(input) == key);
    if is_input {
        return Err(Error::at(image.display(), "the volume is built of it"));
    }
    Ok(())
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The file at `path`, so that a source can leave it out.
pub(crate) fn key_of(path: &Path) -> Option<FileKey> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// A file in `folder` that vanishes unless it gets a name: its name, where it needs one.
///
/// # Errors
/// Those of the host.
pub(crate) fn nameless(folder: &Path, mode: u32) -> Result<(File, Option<PathBuf>)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match open(folder, flags | OFlags::TMPFILE, Mode::from_raw_mode(mode)) {
        Ok(file) => return Ok((file.into(), None)),
        // The host has no files without names here.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {}
        Err(error) => return Err(error).at(folder),
    }
    let flags = flags | OFlags::CREATE | OFlags::EXCL;
    let own = std::process::id();
    for attempt in 0..1000 {
        let path = folder.join(format!(".extant-build-{own}-{attempt}"));
        match open(&path, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((file.into(), Some(path))),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).at(&path),
        }
    }
    Err(Error::at(
        folder.display(),
        "no name is free for a new file",
    ))
}

impl Output {
    /// Begins a file of `len` bytes that will be at `path`.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn file(path: &Path, len: u64) -> Result<Self> {
        let (file, temporary) = nameless(folder_of(path), MODE)?;
        let new = NewFile {
            path: path.to_path_buf(),
            file: ImageFile { file, len },
            temporary,
        };
        new.file.file.set_len(len).at(path)?;
        Ok(Self::New(new))
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::New(new) => &new.file,
            Self::Device(device) => device,
        }
    }

    /// Whether it reads as zeros where nothing was written.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self, Self::New(_))
    }

    /// Gives a complete file its name. What a device holds is complete already.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn finish(self) -> Result<()> {
        let Self::New(mut new) = self else {
            return Ok(());
        };
        let path = new.path.clone();
        let folder = folder_of(&path);
        let named = match new.temporary.take() {
            Some(temporary) => temporary,
            None => name(&new.file.file, folder)?,
        };
        let renamed = fs::rename(&named, &path);
        if renamed.is_err() {
            // The first error is what counts.
            let _ = fs::remove_file(&named);
        }
        renamed.at(&path)?;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.at(folder)
    }
}

/// Gives a file without a name one in `folder`.
fn name(file: &File, folder: &Path) -> Result<PathBuf> {
    let own = std::process::id();
    let magic = format!("/proc/self/fd/{}", file.as_raw_fd());
    for attempt in 0..1000 {
        let path = folder.join(format!(".extant-build-{own}-{attempt}"));
        match linkat(CWD, magic.as_str(), CWD, &path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return Ok(path),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).at(&path),
        }
    }
    Err(Error::at(
        folder.display(),
        "no name is free for a new file",
    ))
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// An image file that this process has made and holds alone.
pub(crate) struct ImageFile {
    file: File,
    len: u64,
}

impl BlockDevice for ImageFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset.get())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.file.write_all_at(buf, offset.get())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
