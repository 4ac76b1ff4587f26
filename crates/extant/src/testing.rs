//! File systems in memory, for tests of programs that use this crate.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_engine::{Error, Result};

use crate::filesystem::Filesystem;
use crate::{CheckOptions, check};

/// An empty file system in memory, for reading and writing, of so many bytes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fs = extant::testing::filesystem(16 << 20)?;
/// fs.write("/hello", "hi")?;
/// assert_eq!(fs.read("/hello")?, b"hi");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Invalid`] if no file system can have that size; those of a mount.
pub fn filesystem(bytes: u64) -> Result<Filesystem> {
    Filesystem::options()
        .write(true)
        .open_device(device(bytes)?)
}

/// A device in memory that holds an empty file system: for programs that open it themselves, and
/// more than once.
///
/// # Errors
/// [`Error::Invalid`] if no file system can have that size.
pub fn device(bytes: u64) -> Result<Arc<MemoryDevice>> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let options = extant_mkfs::Options::default();
    extant_mkfs::make_on(device.as_ref(), None, &options).map_err(|_| Error::Invalid)?;
    Ok(device)
}

/// Asserts that the file system on a device is sound, once it is unmounted.
///
/// # Panics
/// If it is not, with what is wrong.
pub fn assert_sound(device: &Arc<MemoryDevice>) {
    match check(Arc::<MemoryDevice>::clone(device), &CheckOptions::default()) {
        Ok(report) => assert!(report.is_clean(), "{:#?}", report.findings),
        Err(error) => panic!("cannot be checked: {error}"),
    }
}
