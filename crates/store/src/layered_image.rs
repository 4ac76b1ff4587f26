//! A version of an image with the changes of a layer: a block device that can be written.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_units::DevOff;

use crate::cover::Cover;
use crate::error::{Error, Result};
use crate::layer::{self, Base, Layer};
use crate::location::Location;
use crate::stored_image::{Caches, StoredImage};

/// A version of an image in a store, and a file of the host with what was written to it: a layer.
/// The version is never written. [`crate::push_layer()`] makes the two the next version.
///
/// # Concurrency
/// As a block device's. A layer is in use by one process that writes, or by several that read.
#[derive(Debug)]
pub struct LayeredImage {
    cover: Cover<Arc<StoredImage>>,
}

impl LayeredImage {
    /// The image at `location` with the layer in the file `path`. If there is no file, and `mode`
    /// allows writes, an empty layer is made, over the version that the location asks for.
    /// Otherwise the layer says which version it is over.
    ///
    /// # Errors
    /// As of [`StoredImage::open`]; the file is in use, is no layer, or is one of another version
    /// or image.
    pub fn open(location: &Location, caches: Caches, path: &Path, mode: OpenMode) -> Result<Self> {
        if mode == OpenMode::ReadWrite && !path.try_exists()? {
            let image = StoredImage::open(location, caches)?;
            create(path, &image)?;
            let layer = open_layer(path, mode)?;
            return Self::over(image, layer, path);
        }
        let layer = open_layer(path, mode)?;
        let version = layer.base().version;
        if location.version().is_some_and(|asked| asked != version) {
            return Err(Error::bad_layer(
                path.display(),
                format!("it is a layer over version {version}"),
            ));
        }
        let image = StoredImage::open(&location.at(version), caches)?;
        Self::over(image, layer, path)
    }

    /// The layer in the file `path`, and its version of an image in the store of `location`.
    ///
    /// # Errors
    /// As of [`LayeredImage::open`].
    pub(crate) fn open_beside(
        location: &Location,
        caches: Caches,
        path: &Path,
        mode: OpenMode,
    ) -> Result<Self> {
        let layer = open_layer(path, mode)?;
        let base = layer.base();
        let location = location.beside(&base.name)?;
        let image = StoredImage::open(&location.at(base.version), caches)?;
        Self::over(image, layer, path)
    }

    fn over(image: StoredImage, layer: Layer, path: &Path) -> Result<Self> {
        if layer.base() != base_of(&image) {
            let base = layer.base();
            let why = format!(
                "it is a layer over version {} of {:?} with the manifest {}, which is not there",
                base.version, base.name, base.manifest
            );
            return Err(Error::bad_layer(path.display(), why));
        }
        let cover = Cover::new(Arc::new(image), layer);
        Ok(Self { cover })
    }

    /// The version without the layer.
    pub fn base(&self) -> &Arc<StoredImage> {
        self.cover.base()
    }

    /// The layer.
    pub(crate) fn layer(&self) -> &Layer {
        self.cover.layer()
    }
}

/// The layer's view of a version.
pub(crate) fn base_of(image: &StoredImage) -> Base {
    Base {
        image_bytes: image.len(),
        name: image.location().name().to_owned(),
        version: image.version().number,
        manifest: image.version().manifest.hash,
    }
}

/// The layer in the file `path`.
fn open_layer(path: &Path, mode: OpenMode) -> Result<Layer> {
    let file = FileDevice::open(path, mode).map_err(|error| match error {
        extant_blockdev::OpenError::Io(_, error) => Error::Io(error),
        other => Error::Io(io::Error::other(other)),
    })?;
    Layer::open(Arc::new(file), &path.display().to_string())
}

/// Makes the file `path`, which must not be there, an empty layer over `image`. It gets its name
/// when it is whole.
fn create(path: &Path, image: &StoredImage) -> Result<()> {
    let base = base_of(image);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    let made = (|| {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&draft)?;
        file.set_len(layer::file_bytes(base.image_bytes)?)?;
        let device = FileDevice::from_file(file, &draft).map_err(io::Error::other)?;
        layer::format(&device, &base)?;
        drop(device);
        fs::hard_link(&draft, path)?;
        Ok(File::open(folder)?.sync_all()?)
    })();
    // Without its second name, in any case.
    let _ = fs::remove_file(&draft);
    made
}

/// Returns whether the file `path` is a layer.
pub fn is_layer(path: &Path) -> bool {
    let mut begin = [0; 8];
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    let mut read = || File::open(path)?.read_exact(&mut begin);
    is_file && read().is_ok() && layer::is_header(&begin)
}

impl BlockDevice for LayeredImage {
    fn len(&self) -> u64 {
        self.cover.len()
    }

    fn is_read_only(&self) -> bool {
        self.cover.is_read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.cover.read_at(offset, buf)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.cover.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.cover.flush()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.cover.counters()
    }
}
