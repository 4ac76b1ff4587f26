//! A version of an image with the changes of a layer: a block device that can be written.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_units::DevOff;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::cover::Cover;
use crate::error::{Error, Result};
use crate::layer::{self, Base, Layer};
use crate::location::Location;
use crate::stored_image::{Caches, StoredImage};
use crate::version::Version;

/// A version of an image in a store, and a file of the host with what was written to it: a layer.
/// The version is never written. [`crate::push_layer()`] makes the two the next version.
///
/// # Concurrency
/// As a block device's. A layer is in use by one process that writes, or by several that read.
pub struct LayeredImage {
    cover: Cover<Arc<dyn BlockDevice>>,
}

impl std::fmt::Debug for LayeredImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayeredImage")
            .field("layer", self.layer())
            .finish_non_exhaustive()
    }
}

impl LayeredImage {
    /// The image at `location` with the layer in the file `path`, as of [`FoundLayer`].
    ///
    /// # Errors
    /// As of [`StoredImage::open`] and [`FoundLayer`].
    pub fn open(location: &Location, caches: Caches, path: &Path, mode: OpenMode) -> Result<Self> {
        let found = FoundLayer::find(path, mode)?;
        let image = StoredImage::open(&found.location(location)?, caches)?;
        let layer = found.made_for(location.name(), image.version())?;
        layer.over(Arc::new(image))
    }

    /// The number of the version that the layer is over.
    pub fn version(&self) -> u64 {
        self.layer().base().version
    }

    /// The layer.
    pub(crate) fn layer(&self) -> &Layer {
        self.cover.layer()
    }
}

/// A layer, or the place of a new one, before its version is known to be there.
#[derive(Debug)]
pub struct FoundLayer {
    path: PathBuf,
    mode: OpenMode,
    layer: Option<Layer>,
}

impl FoundLayer {
    /// The layer in the file `path`. If there is no file, and `mode` allows writes, one is made
    /// once the version is known.
    ///
    /// # Errors
    /// The file cannot be opened, is in use, or is no layer.
    pub fn find(path: &Path, mode: OpenMode) -> Result<Self> {
        let layer = match mode == OpenMode::ReadWrite && !path.try_exists()? {
            true => None,
            false => Some(open_layer(path, mode)?),
        };
        Ok(Self {
            path: path.to_owned(),
            mode,
            layer,
        })
    }

    /// `location` with the version that the layer is over; as it is if there is no layer.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if another version is asked for.
    pub fn location(&self, location: &Location) -> Result<Location> {
        let Some(layer) = &self.layer else {
            return Ok(location.clone());
        };
        let version = layer.base().version;
        if location.version().is_some_and(|asked| asked != version) {
            let why = format!("it is a layer over version {version}");
            return Err(Error::bad_layer(self.path.display(), why));
        }
        Ok(location.at(version))
    }

    /// The layer's image in the store of `location`, if there is a layer.
    pub(crate) fn image_beside(&self, location: &Location) -> Result<Option<Location>> {
        let base = self.layer.as_ref().map(Layer::base);
        let at = |base: Base| Ok(location.beside(&base.name)?.at(base.version));
        base.map(at).transpose()
    }

    /// The layer of this version of the image called `name`. A new one is made if there is none.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if the layer is over another version or image; it cannot be made.
    pub fn made_for(self, name: &str, version: &Version) -> Result<ReadyLayer> {
        let expected = Base {
            image_bytes: version.bytes,
            name: name.to_owned(),
            version: version.number,
            manifest: version.manifest.hash,
        };
        let layer = match self.layer {
            Some(layer) => layer,
            None => {
                create(&self.path, &expected)?;
                open_layer(&self.path, self.mode)?
            }
        };
        let base = layer.base();
        if base != expected {
            let why = format!(
                "it is a layer over version {} of {:?} with the manifest {}, which is not there",
                base.version, base.name, base.manifest
            );
            return Err(Error::bad_layer(self.path.display(), why));
        }
        Ok(ReadyLayer(layer))
    }
}

/// A layer whose version is known.
#[derive(Debug)]
pub struct ReadyLayer(Layer);

impl ReadyLayer {
    /// The layer over `image`, which reads as its version.
    ///
    /// # Errors
    /// [`Error::BadSize`]: the image has another length than the version.
    pub fn over(self, image: Arc<dyn BlockDevice>) -> Result<LayeredImage> {
        if image.len() != self.0.base().image_bytes {
            let what = "the image has another length than the version of the layer";
            return Err(Error::BadSize { what });
        }
        let cover = Cover::new(image, self.0);
        Ok(LayeredImage { cover })
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

/// Makes the file `path`, which must not be there, an empty layer over `base`. It gets its name
/// when it is whole.
fn create(path: &Path, base: &Base) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Processes with the same number in different namespaces may share a folder.
    let random = RandomState::new().build_hasher().finish();
    let draft = folder.join(format!(".{name}.{random:016x}"));
    let made = (|| {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.set_len(layer::file_bytes(base.image_bytes)?)?;
        let device = FileDevice::from_file(file, &draft).map_err(io::Error::other)?;
        layer::format(&device, base)?;
        drop(device);
        name_anew(&draft, path)?;
        Ok(File::open(folder)?.sync_all()?)
    })();
    if made.is_err() {
        let _ = fs::remove_file(&draft);
    }
    made
}

/// Gives the file `draft` the name `path`, if nothing has that.
fn name_anew(draft: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        // File systems that cannot do so.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(draft, path)?;
            fs::remove_file(draft)
        }
        named => Ok(named?),
    }
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

    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.cover.write_note(offset, buf)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.cover.counters()
    }
}
