//! Image files, whose length follows the volume's, and block devices, whose does not.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, FileIo, OpenError, OpenMode};

use extant_disk::geometry::Geometry;

use crate::error::{Error, Result};
use crate::options::{Report, ResizeOptions, Target};
use crate::resize_on;

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
            "it is a directory; what is mounted there can only grow, by its own mount",
        ));
    }
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let file = Arc::new(open(path)?);
    let len = file.len();
    let wanted = match target {
        Target::Bytes(bytes) => {
            let old = Geometry::of(&read_super(&*file)?);
            old.resized(bytes >> old.block_size.log2())?.bytes()
        }
        Target::Least => 0,
    };
    let set_len = |len| {
        let set = file.set_len(len);
        set.map_err(|error| OpenError::Io(path.to_owned(), error))
    };
    let grows = is_file && wanted > len;
    if grows {
        set_len(wanted)?;
    }
    let zeros_from = match grows {
        true => len,
        false => u64::MAX,
    };
    let dev: Arc<dyn BlockDevice> = Arc::clone(&file) as _;
    let outcome = resize_on(&dev, target, zeros_from, options);
    match &outcome {
        Ok(report) if is_file => set_len(report.bytes())?,
        Err(Error::After { report, error }) if is_file && !matches!(**error, Error::Begun(_)) => {
            set_len(report.bytes())?;
        }
        // The new volume may have something behind the old end.
        Err(Error::Begun(_) | Error::After { .. }) => {}
        Err(_) if grows && volume_bytes(&file).is_some_and(|bytes| bytes <= len) => {
            set_len(len)?;
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
fn volume_bytes(file: &FileDevice) -> Option<u64> {
    Some(Geometry::of(&read_super(file).ok()?).bytes())
}
