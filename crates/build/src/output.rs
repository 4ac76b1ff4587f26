//! The file or block device that a volume is built on.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use extant_blockdev::{BlockDevice, FileDevice};
use extant_units::DevOff;
use rustix::fs::ioctl_ficlone;

use crate::error::{At, Error, Result};
use crate::folder::FileKey;
use crate::new_file::{NewFile, nameless};

/// The destination of a volume.
pub(crate) enum Output {
    /// A file that is made.
    New(ImageFile),
    /// A block device.
    Device(FileDevice),
}

/// The kind of what stands at the path of an image.
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
    /// Something that is neither a file nor a block device, holds something of value or is in use.
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
                let place = path.display().to_string();
                return Err(Error::Occupied { place });
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

/// Returns whether a file has more than holes.
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

/// The file at `path`, so that a source can leave it out.
pub(crate) fn key_of(path: &Path) -> Option<FileKey> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Returns whether a new file, which is empty so far, can share blocks with others beside it.
fn has_reflinks(new: &NewFile) -> bool {
    let beside = nameless(new.folder(), 0o600);
    beside.is_ok_and(|(other, _)| ioctl_ficlone(new.file(), other).is_ok())
}

impl Output {
    /// Begins a file of `len` bytes that will be at `path`.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn file(path: &Path, len: u64) -> Result<Self> {
        let new = NewFile::begin(path).at(path)?;
        let has_reflinks = has_reflinks(&new);
        new.file().set_len(len).at(path)?;
        Ok(Self::New(ImageFile {
            new,
            len,
            has_reflinks,
            turn: Mutex::new(()),
        }))
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::New(new) => new,
            Self::Device(device) => device,
        }
    }

    /// The file, where the host can let it share blocks with others.
    pub(crate) fn sharing(&self) -> Option<&File> {
        match self {
            Self::New(new) => Some(new.new.file()).filter(|_| new.has_reflinks),
            Self::Device(_) => None,
        }
    }

    /// Returns whether it reads as zeros where nothing was written.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self, Self::New(_))
    }

    /// Gives a complete file the name `path`. What a device holds is complete already.
    ///
    /// # Errors
    /// Those of the host; what came to the name meanwhile is not to be lost.
    pub(crate) fn finish(self, path: &Path, options: &extant_mkfs::Options) -> Result<()> {
        let Self::New(image) = self else {
            return Ok(());
        };
        Target::of(path, options)?;
        image.new.finish().at(path)
    }
}

/// An image file that this process has made and holds alone.
pub(crate) struct ImageFile {
    new: NewFile,
    len: u64,
    /// Set if blocks can be shared with files of the same file system.
    has_reflinks: bool,
    /// Held by the writer: Linux lets one write to a file at a time, and others spin meanwhile.
    turn: Mutex<()>,
}

impl BlockDevice for ImageFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.new.file().read_exact_at(buf, offset.get())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.new.file().write_all_at(buf, offset.get())
    }

    fn flush(&self) -> io::Result<()> {
        self.new.file().sync_data()
    }
}
