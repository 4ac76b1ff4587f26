//! Repairing a volume that is not mounted: `extant-fix`, with the errors of this crate.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_engine::{Error, Location, Result};
pub use extant_fix::{FixOptions, Report as FixReport};

use crate::check;

/// Repairs the image file or block device at `path`, as far as it leaves no choice.
///
/// # Errors
/// [`Error::InUse`], or another reason why it cannot be opened; else as [`fix`].
pub fn fix_image(path: impl AsRef<Path>, options: &FixOptions<'_>) -> Result<FixReport> {
    extant_fix::fix_image(path, options).map_err(error)
}

/// Repairs the file system on `dev`, which nothing else may use meanwhile.
///
/// # Errors
/// No report, but a reason why there is none: as [`crate::check()`], or a journal that cannot be
/// replayed. Nothing was written then, unless the device failed while it was written. Damage that
/// is left is part of the report.
pub fn fix(dev: Arc<dyn BlockDevice>, options: &FixOptions<'_>) -> Result<FixReport> {
    extant_fix::fix(dev, options).map_err(error)
}

/// The error of this crate for one of the repair's.
fn error(error: extant_fix::Error) -> Error {
    use extant_fix::Error as Fix;
    match error {
        Fix::Open(error) => error.into(),
        Fix::Superblock(error) => error.into(),
        Fix::Check(error) => check::error(error),
        Fix::InUse => Error::InUse {
            by: "another host (multiple mount protection)".into(),
        },
        Fix::DamagedLog(what) => Error::corrupt(Location::Journal, what),
        Fix::Journal(error) => error.into(),
        Fix::Orphans(error) | Fix::FastCommits(error) => error,
        Fix::Device(error) => error.into(),
        other => Error::io(other),
    }
}
