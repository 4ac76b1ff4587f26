//! What the operand IMAGE names: a file or block device of the host, or an export of an NBD server.

use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::device::{BlockDevice, OpenMode};
use extant_nbd::{Address, AddressError, NbdDevice};

use crate::failure::{At, Failure};

/// Returns whether `image` is the address of an export.
pub(crate) fn is_remote(image: &Path) -> bool {
    Address::is_address(image.as_os_str().as_bytes())
}

/// The one name of an image: its path without symbolic links, or its address.
pub(crate) fn real(image: &Path) -> Result<PathBuf, Failure> {
    if is_remote(image) {
        return Ok(image.to_owned());
    }
    image.canonicalize().at(image.display())
}

/// The device at `image` if that is an address; nothing if it is a path of the host.
pub(crate) fn connect(
    image: &Path,
    mode: OpenMode,
) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    if !is_remote(image) {
        return Ok(None);
    }
    let address = address(image)?;
    let device = NbdDevice::connect(address, mode).map_err(|error| caused(image, error))?;
    Ok(Some(Arc::new(device)))
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

/// The failure of an address, with its cause.
pub(crate) fn caused(image: &Path, error: impl Error + Send + Sync + 'static) -> Failure {
    let what = error.to_string();
    Failure::at(image.display(), Failure::caused_by(error, what))
}
