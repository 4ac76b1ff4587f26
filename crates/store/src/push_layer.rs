//! Storing a version with the changes of a layer as the next version.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::OpenMode;

use crate::error::{Error, Result};
use crate::layer::{BLOCK, Base};
use crate::layered_image::FoundLayer;
use crate::push::{Old, PushOptions, Pushed, Source, push_source};
use crate::store::Store;
use crate::stored_image::{Caches, StoredImage};

/// Stores the version that the layer in the file `path` is over, with its changes, as the next
/// version of the store's image. Only chunks with changes are read and sent. The layer is over the
/// new version then, and empty. The image may be a new one, of another name than the layer's. Of
/// the options, the length of a chunk is that of the version.
///
/// # Errors
/// As of [`crate::push()`] and [`FoundLayer`]. [`Error::Superseded`] if the image has a version
/// behind that of the layer; [`Error::NotNew`]; nothing is lost then. A failure to empty the layer,
/// which has the content of the new version then.
pub fn push_layer(
    store: &Store,
    path: &Path,
    caches: Caches,
    options: PushOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Pushed> {
    let name = store.location()?.name();
    let found = FoundLayer::find(path, OpenMode::ReadWrite)?;
    let there = found.image_beside(store.location()?)?;
    let there = there.ok_or_else(|| Error::bad_layer(path.display(), "it is not there"))?;
    let version = Arc::new(StoredImage::open(&there, caches)?);
    let manifest = version.manifest();
    let layer = found.made_for(there.name(), version.version())?;
    let image = layer.over(Arc::clone(&version) as _)?;
    let base = image.layer().base();
    let changed = |range: Range<u64>| {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        image.layer().has_any(blocks)
    };
    let options = PushOptions {
        chunk_bytes: manifest.chunk_bytes(),
        ..options
    };
    let old = Some(Old {
        manifest,
        version: (&base.name, base.version),
        changed: &changed,
    });
    let source = Source {
        image: &image,
        old,
        after: Some(if base.name == name { base.version } else { 0 }),
    };
    let pushed = push_source(store, source, options, &|| true, progress);
    let pushed = pushed.map_err(|error| match error {
        Error::Superseded { base: 0, last } => Error::NotNew { last },
        error => error,
    })?;
    let next = Base {
        image_bytes: base.image_bytes,
        name: name.to_owned(),
        version: pushed.version.number,
        manifest: pushed.version.manifest.hash,
    };
    image.layer().put_on(next)?;
    Ok(pushed)
}
