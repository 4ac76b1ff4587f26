//! Images in an object store, as commands and mounts use them: with a layer, with caches, and with
//! the lists of what a start reads.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use extant::device::{BlockDevice, OpenMode};
use extant_fuse::MountOptions;
use extant_store::{
    Caches, DiskCache, FoundLayer, LayeredImage, Location, StartList, StoredImage, Version,
    prefetch,
};

use crate::failure::{At, Failure, caused};
use crate::size;

/// The file with the changes of images in a store, if `--layer` names one.
static LAYER: OnceLock<PathBuf> = OnceLock::new();

/// The folder of chunks, and the bytes that it may have: variables of the environment, and what
/// holds without them.
const CACHE: &str = "EXTANT_CACHE";
const CACHE_SIZE: &str = "EXTANT_CACHE_SIZE";
const USUAL_CACHE_SIZE: u64 = 4 << 30;

/// The longest list of a start.
const LONGEST_LIST: u64 = 64 << 20;

/// Reads and writes all images of this command that are in a store through this layer.
pub(crate) fn use_layer(layer: PathBuf) {
    LAYER.get_or_init(|| layer);
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

/// The image at the address `image`, with the layer of this command. Without one it is only read.
pub(crate) fn open(image: &Path, mode: OpenMode) -> Result<Arc<dyn BlockDevice>, Failure> {
    let (location, caches) = (location(image)?, caches()?);
    let Some(layer) = LAYER.get() else {
        if mode == OpenMode::ReadWrite {
            let why = "a version in a store is only read: --layer FILE takes what changes it, of a \
                       mount -o layer=FILE";
            return Err(Failure::at(image.display(), why));
        }
        let device = StoredImage::open(&location, caches);
        return Ok(Arc::new(device.map_err(|error| caused(image, error))?));
    };
    let device = LayeredImage::open(&location, caches, layer, mode);
    Ok(Arc::new(
        device.map_err(|error| of_layer(layer, image, error))?,
    ))
}

/// The failure of an image with a layer. A file's error does not name it.
fn of_layer(layer: &Path, image: &Path, error: extant_store::Error) -> Failure {
    match error {
        extant_store::Error::Io(_) => caused(layer, error),
        error => caused(image, error),
    }
}

/// The layer of a mount of the version at `image`, and the address with the layer's version.
pub(crate) fn find_layer(
    image: &Path,
    layer: &Path,
    mode: OpenMode,
) -> Result<(FoundLayer, Location), Failure> {
    let asked = location(image)?;
    let found = FoundLayer::find(layer, mode).map_err(|error| of_layer(layer, image, error))?;
    let location = found.location(&asked);
    let location = location.map_err(|error| caused(image, error))?;
    Ok((found, location))
}

/// The lists of starts that the options of a mount name.
pub(crate) struct Lists {
    /// The file for the list of this start, and its path.
    record: Option<(File, PathBuf)>,
    /// The chunks to read ahead.
    prefetch: Option<StartList>,
}

impl Lists {
    pub(crate) fn open(options: &MountOptions) -> Result<Lists, Failure> {
        // A file may be both: it is written at the end.
        let prefetch = options.prefetch().map(read_list).transpose()?.flatten();
        let record = options.record().map(PathBuf::from);
        let record = record.map(|path| {
            let begun = File::options()
                .create(true)
                .write(true)
                .truncate(false)
                .open(&path);
            begun.map(|file| (file, path.clone())).at(path.display())
        });
        let record = record.transpose()?;
        Ok(Lists { record, prefetch })
    }
}

/// A version that a mount reads, with the lists of its start.
pub(crate) struct Start {
    pub(crate) image: Arc<StoredImage>,
    record: Option<(File, PathBuf)>,
}

impl Start {
    /// Opens the version at `location`, and begins to read ahead.
    pub(crate) fn begin(
        location: &Location,
        caches: Caches,
        lists: Lists,
    ) -> Result<Start, Failure> {
        let image = StoredImage::open(location, caches);
        let image = Arc::new(image.map_err(|error| {
            let what = error.to_string();
            Failure::caused_by(error, what)
        })?);
        if let Some(list) = lists.prefetch {
            prefetch(&image, list).map_err(|error| Failure::new(error.to_string()))?;
        }
        let record = lists.record;
        Ok(Start { image, record })
    }

    /// The version.
    pub(crate) fn version(&self) -> &Version {
        self.image.version()
    }

    /// Writes the list of this start, if one is asked for.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let Some((mut file, path)) = self.record else {
            return Ok(());
        };
        let list = self.image.start_list().to_string();
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all(list.as_bytes()))
            .and_then(|()| file.sync_all());
        written.at(path.display())
    }
}

/// The list of a start in a file; none in an empty one, whose start has not ended.
fn read_list(path: &str) -> Result<Option<StartList>, Failure> {
    let len = fs::metadata(path).at(path)?.len();
    if len > LONGEST_LIST {
        return Err(Failure::at(path, "it is too long for a list of chunks"));
    }
    let text = fs::read_to_string(path).at(path)?;
    if text.is_empty() {
        return Ok(None);
    }
    let list = text.parse().map(Some);
    list.map_err(|error: extant_store::BadStartList| Failure::at(path, error.to_string()))
}

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
