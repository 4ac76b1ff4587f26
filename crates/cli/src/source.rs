//! The meaning of the operand IMAGE: a file or block device of the host, an export of an NBD
//! server, or a version in an object store.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant_nbd::{Address, AddressError, NbdDevice};
use extant_store::Location;

use crate::failure::{At, Failure, caused};
use crate::stored;

/// The byte of the copy by which the images of this command are read, if `--superblock` names one.
static SUPERBLOCK: OnceLock<u64> = OnceLock::new();

/// Why an image is not written.
pub(crate) const READ_ONLY: &str = "--superblock only reads an image: extant fix restores it first";

/// Reads all images of this command by the copies of their superblocks at this KiB.
pub(crate) fn read_by_copy(kib: u64) {
    SUPERBLOCK.get_or_init(|| kib.saturating_mul(1024));
}

/// The byte of the copy of the superblock by which images are read.
pub(crate) fn superblock() -> Option<u64> {
    SUPERBLOCK.get().copied()
}

/// Returns whether `image` is an address, of an export or in a store.
pub(crate) fn is_remote(image: &Path) -> bool {
    Address::is_address(image.as_os_str().as_bytes()) || is_stored(image)
}

/// Returns whether `image` is an address in a store.
pub(crate) fn is_stored(image: &Path) -> bool {
    Location::is_location(image.as_os_str().as_bytes())
}

/// The one name of an image: its path without symbolic links, or its address.
pub(crate) fn real(image: &Path) -> Result<PathBuf, Failure> {
    if is_remote(image) {
        return Ok(image.to_owned());
    }
    image.canonicalize().at(image.display())
}

/// The device at `image` if that is an address, or is read by a copy of its superblock; nothing if
/// it is a path of the host that can be opened as it is.
pub(crate) fn connect(
    image: &Path,
    mode: OpenMode,
) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    if superblock().is_some() && mode == OpenMode::ReadWrite {
        return Err(Failure::at(image.display(), READ_ONLY));
    }
    let device: Arc<dyn BlockDevice> = match (is_remote(image), superblock()) {
        (true, _) if is_stored(image) => stored::open(image, mode)?,
        (true, _) => {
            let device = NbdDevice::connect(address(image)?, mode);
            Arc::new(device.map_err(|error| caused(image, error))?)
        }
        (false, Some(_)) => Arc::new(FileDevice::open(image, mode)?),
        (false, None) => return Ok(None),
    };
    let Some(offset) = superblock() else {
        return Ok(Some(device));
    };
    let by_copy = extant::with_superblock_copy(device, offset);
    let location = format!("{}: its copy at {} KiB", image.display(), offset / 1024);
    by_copy.at(location).map(Some)
}

/// The device with the journal of an image that has it elsewhere, if one is named.
pub(crate) fn journal(
    path: Option<&Path>,
    mode: OpenMode,
) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    let Some(path) = path else {
        return Ok(None);
    };
    if is_stored(path) {
        return stored::open(path, mode).map(Some);
    }
    if is_remote(path) {
        let device = NbdDevice::connect(address(path)?, mode);
        let device = device.map_err(|error| caused(path, error))?;
        return Ok(Some(Arc::new(device)));
    }
    Ok(Some(Arc::new(FileDevice::open(path, mode)?)))
}

/// The address `image`.
pub(crate) fn address(image: &Path) -> Result<Address, Failure> {
    let text = image.to_str();
    let text = text.ok_or_else(|| Failure::at(image.display(), "the address is not UTF-8"))?;
    let address: Result<Address, AddressError> = text.parse();
    address.map_err(|error| caused(image, error))
}

/// The address `image`, with the certificates that connecting to it needs.
pub(crate) fn with_certificates(image: &Path) -> Result<Address, Failure> {
    let mut address = address(image)?;
    extant_nbd::read_certificates(&mut address).map_err(|error| caused(image, error))?;
    Ok(address)
}
