//! The meaning of the operand IMAGE: a file or block device of the host, an export of an NBD
//! server, or a version in an object store.

use std::env;
use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant_nbd::{Address, AddressError, NbdDevice};
use extant_store::{Caches, DiskCache, LayeredImage, Location, StoredImage};

use crate::failure::{At, Failure};
use crate::size;

/// The byte of the copy by which the images of this command are read, if `--superblock` names one.
static SUPERBLOCK: OnceLock<u64> = OnceLock::new();

/// The file with the changes of images in a store, if `--layer` names one.
static LAYER: OnceLock<PathBuf> = OnceLock::new();

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

/// Reads and writes all images of this command that are in a store through this layer.
pub(crate) fn use_layer(layer: PathBuf) {
    LAYER.get_or_init(|| layer);
}

/// Returns whether `image` is an address, of an export or in a store.
pub(crate) fn is_remote(image: &Path) -> bool {
    Address::is_address(image.as_os_str().as_bytes()) || is_stored(image)
}

/// Returns whether `image` is an address in a store.
pub(crate) fn is_stored(image: &Path) -> bool {
    Location::is_location(image.as_os_str().as_bytes())
}

/// The address in a store that `image` is.
pub(crate) fn location(image: &Path) -> Result<Location, Failure> {
    let text = image.to_str();
    let text = text.ok_or_else(|| Failure::at(image.display(), "the address is not UTF-8"))?;
    let location: Result<Location, extant_store::Error> = text.parse();
    location.map_err(|error| {
        let what = error.to_string();
        Failure::caused_by(error, what)
    })
}

/// An image in a store.
pub(crate) struct Stored {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The number of the version that is read.
    pub(crate) version: u64,
}

/// The image at the address `image`. It is only written through a layer.
pub(crate) fn stored(
    image: &Path,
    mode: OpenMode,
    layer: Option<&Path>,
) -> Result<Stored, Failure> {
    let (location, caches) = (location(image)?, caches()?);
    let Some(layer) = layer else {
        if mode == OpenMode::ReadWrite {
            let why = "a version in a store is only read: --layer FILE takes what changes it, of a \
                       mount -o layer=FILE";
            return Err(Failure::at(image.display(), why));
        }
        let device = StoredImage::open(&location, caches);
        let device = device.map_err(|error| caused(image, error))?;
        let version = device.version().number;
        let device = Arc::new(device);
        return Ok(Stored { device, version });
    };
    let device = LayeredImage::open(&location, caches, layer, mode);
    let device = device.map_err(|error| match error {
        extant_store::Error::Io(_) => caused(layer, error),
        error => caused(image, error),
    })?;
    let version = device.base().version().number;
    let device = Arc::new(device);
    Ok(Stored { device, version })
}

/// The image at the address `image`, with the layer of this command.
fn stored_of_command(image: &Path, mode: OpenMode) -> Result<Arc<dyn BlockDevice>, Failure> {
    let layer = LAYER.get().map(PathBuf::as_path);
    Ok(stored(image, mode, layer)?.device)
}

/// The one name of an image: its path without symbolic links, or its address.
pub(crate) fn real(image: &Path) -> Result<PathBuf, Failure> {
    if is_remote(image) {
        return Ok(image.to_owned());
    }
    image.canonicalize().at(image.display())
}

/// The folder of chunks, and the bytes that it may have: variables of the environment, and what
/// holds without them.
const CACHE: &str = "EXTANT_CACHE";
const CACHE_SIZE: &str = "EXTANT_CACHE_SIZE";
const USUAL_CACHE_SIZE: u64 = 4 << 30;

/// The caches of a version in a store.
pub(crate) fn caches() -> Result<Caches, Failure> {
    let most = match env::var(CACHE_SIZE) {
        Ok(text) => size::parse(&text).map_err(|why| Failure::at(CACHE_SIZE, why))?,
        Err(_) => USUAL_CACHE_SIZE,
    };
    let asked = env::var_os(CACHE);
    let folder = match &asked {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => Some(PathBuf::from(folder)),
        None => {
            let own = env::var_os("XDG_CACHE_HOME").filter(|own| !own.is_empty());
            let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
            own.map(PathBuf::from)
                .or_else(home)
                .map(|own| own.join("extant"))
        }
    };
    let disk = match folder
        .map(|folder| DiskCache::open(&folder, most))
        .transpose()
    {
        Ok(disk) => disk,
        // The usual one is not missed.
        Err(_) if asked.is_none() => None,
        Err(error) => return Err(Failure::at(CACHE, error)),
    };
    Ok(Caches {
        disk,
        ..Caches::default()
    })
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
        (true, _) if is_stored(image) => stored_of_command(image, mode)?,
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
        return stored_of_command(path, mode).map(Some);
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

/// The failure of an address, with its cause.
pub(crate) fn caused(image: &Path, error: impl Error + Send + Sync + 'static) -> Failure {
    let what = error.to_string();
    Failure::at(image.display(), Failure::caused_by(error, what))
}
