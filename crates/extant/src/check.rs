//! Checking a volume without mounting it: `extant-check`, with the errors of this crate.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, memory_share};
pub use extant_check::{CheckOptions, Finding, Report};
use extant_engine::{Error, Result, after_fast_commits};

/// Checks the image file or block device at `path`, which no other process may write meanwhile. See
/// [`check`].
///
/// # Errors
/// [`Error::InUse`], or another reason why it cannot be opened; else as [`check`].
pub fn check_image(path: impl AsRef<Path>, options: &CheckOptions<'_>) -> Result<Report> {
    check(extant_check::open_image(path).map_err(error)?, options)
}

/// Checks the file system on `dev` without writing to it, as it will be once its journal is
/// replayed.
///
/// # Errors
/// No findings, but a reason why none can be given: not an ext4 file system, a feature that the
/// check does not know, a device that fails. Damage is a finding, not an error, unless the
/// superblock or the descriptors are so damaged that nothing can be found at all.
pub fn check(dev: Arc<dyn BlockDevice>, options: &CheckOptions<'_>) -> Result<Report> {
    let memory = options.replay_bytes.unwrap_or_else(memory_share);
    // The check itself replays transactions only.
    match after_fast_commits(&dev, options.journal, memory)? {
        None => extant_check::check(dev, options).map_err(error),
        Some(after) => {
            let options = CheckOptions {
                journal: after.journal.as_ref(),
                ..*options
            };
            let mut report = extant_check::check(after.device, &options).map_err(error)?;
            report.replayed = after.replayed;
            Ok(report)
        }
    }
}

/// The byte of the first copy of the superblock that can be used, where mke2fs puts it.
pub fn find_superblock_copy(dev: &dyn BlockDevice) -> Option<u64> {
    extant_check::find_superblock_copy(dev)
}

/// The volume on `dev` with the copy of its superblock at byte `offset` in place of the first,
/// which cannot be used. The device is not written.
///
/// # Errors
/// No copy that can be used begins there; or the device failed.
pub fn with_superblock_copy(
    dev: Arc<dyn BlockDevice>,
    offset: u64,
) -> Result<Arc<dyn BlockDevice>> {
    extant_check::with_superblock_copy(dev, offset).map_err(error)
}

/// The error of this crate for one of the check's.
pub(crate) fn error(error: extant_check::Error) -> Error {
    use extant_check::Error as Check;
    match error {
        Check::Open(error) => error.into(),
        Check::TooShort => Error::NotExt4("it is too short for a superblock".into()),
        Check::Superblock(error) => error.into(),
        Check::UnsupportedFeature(name) => Error::UnsupportedFeature(name.to_string()),
        Check::Corrupt { place, kind } => Error::corrupt(place, kind),
        Check::Device(error) => error.into(),
        Check::Journal(error) => error.into(),
        other => Error::io(other),
    }
}
