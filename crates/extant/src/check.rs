//! Checking a volume without mounting it: `extant-check`, with the errors of this crate.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
pub use extant_check::{CheckOptions, Finding, Report};
use extant_engine::{Error, Location, Result};

/// Checks the image file or block device at `path`, which no other process may write meanwhile. See
/// [`check`].
///
/// # Errors
/// [`Error::InUse`], or another reason why it cannot be opened; else as [`check`].
pub fn check_image(path: impl AsRef<Path>, options: &CheckOptions<'_>) -> Result<Report> {
    extant_check::check_image(path, options).map_err(error)
}

/// Checks the file system on `dev` without writing to it.
///
/// # Errors
/// No findings, but a reason why none can be given: not an ext4 file system, a feature that the
/// check does not know, a device that fails. Damage is a finding, not an error, unless the
/// superblock or the descriptors are so damaged that nothing can be found at all.
pub fn check(dev: Arc<dyn BlockDevice>, options: &CheckOptions<'_>) -> Result<Report> {
    extant_check::check(dev, options).map_err(error)
}

/// The error of this crate for one of the check's.
pub(crate) fn error(error: extant_check::Error) -> Error {
    use extant_check::Error as Check;
    match error {
        Check::Open(error) => error.into(),
        Check::TooShort => Error::NotExt4("it is too short for a superblock".into()),
        Check::Superblock(error) => error.into(),
        Check::UnsupportedFeature(name) => Error::UnsupportedFeature(name.to_string()),
        Check::Corrupt { place, what } => Error::corrupt(place, what),
        Check::Descriptor { group, source } => Error::corrupt(Location::GroupDesc(group), source),
        Check::Device(error) => error.into(),
        Check::Journal(error) => error.into(),
        other => Error::io(other),
    }
}
