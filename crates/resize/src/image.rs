//! Image files, whose length follows the volume's, and block devices, whose does not.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, FileIo, OpenError, OpenMode};

use crate::error::{Error, Result};
use crate::options::{Report, ResizeOptions, Target};
use crate::resize_on;
use crate::shape::Shape;
use crate::volume::read_super;

/// Resizes the image file or block device at `path`. A file gets the length of the volume that it
/// holds; what it had behind the volume is cut off. See [`resize`](crate::resize).
///
/// # Errors
/// [`Error::Open`] if another process uses it or it cannot be opened; else as
/// [`resize`](crate::resize). A file has its old length then, but for [`Error::Begun`].
pub fn resize_image(
    path: impl AsRef<Path>,
    target: Target,
    options: &ResizeOptions<'_>,
) -> Result<Report> {
    let path = path.as_ref();
    if path.is_dir() {
        return Err(Error::Unsupported(
            "it is a directory; what is mounted there has to be unmounted, and its image resized",
        ));
    }
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let before = open(path)?;
    let len = before.len();
    let wanted = match target {
        Target::Bytes(bytes) => {
            let old = Shape::of(&read_super(&before)?);
            old.resized(bytes >> old.block_size().log2())?.bytes()
        }
        Target::Least => 0,
    };
    let grows = is_file && wanted > len;
    let dev: Arc<dyn BlockDevice> = match grows {
        // The device has the length that the file had when it was opened.
        true => {
            drop(before);
            set_len(path, wanted)?;
            Arc::new(open(path)?)
        }
        false => Arc::new(before),
    };
    let zeros_from = match grows {
        true => len,
        false => u64::MAX,
    };
    let outcome = resize_on(&dev, target, zeros_from, options);
    drop(dev);
    match &outcome {
        Ok(report) if is_file => set_len(path, report.bytes())?,
        // The new volume may have something behind the old end.
        Err(Error::Begun(_)) => {}
        Err(_) if grows && volume_bytes(path).is_some_and(|bytes| bytes <= len) => {
            set_len(path, len)?;
        }
        _ => {}
    }
    outcome
}

fn open(path: &Path) -> Result<FileDevice> {
    Ok(FileDevice::open_with(
        path,
        OpenMode::ReadWrite,
        FileIo::SYSCALLS,
    )?)
}

/// Bytes of the volume in the file, if it can be read.
fn volume_bytes(path: &Path) -> Option<u64> {
    let device = FileDevice::open(path, OpenMode::ReadOnly).ok()?;
    Some(Shape::of(&read_super(&device).ok()?).bytes())
}

fn set_len(path: &Path, len: u64) -> Result<()> {
    let set = || {
        let file = File::options().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    };
    Ok(set().map_err(|error| OpenError::Io(path.to_owned(), error))?)
}
