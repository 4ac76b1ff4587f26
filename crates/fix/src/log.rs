//! The journal while its log is empty: opening it, and forgetting the error that it remembers.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_jbd2::{BlockCache, Config, Journal, LogMap, inspect};

use crate::error::Result;
use crate::image::{Image, Overlay};
use crate::replay;

/// Memory of the cache that blocks pass on their way to the log.
const CACHE_BYTES: usize = 8 << 20;

/// Opens an empty log.
pub(crate) fn open(
    dev: &Arc<dyn BlockDevice>,
    image: &Image,
    log: LogMap,
) -> Result<(Arc<BlockCache>, Arc<Journal>)> {
    let cache = BlockCache::new(Arc::clone(dev), image.sb.block_size(), CACHE_BYTES);
    let config = Config {
        checksums: image.sb.features().metadata_csum(),
        ..Config::default()
    };
    let journal = Journal::open(Arc::clone(&cache), Arc::clone(dev), log, config)?;
    Ok((cache, journal))
}

/// Returns whether the log can be used: it is tried on a copy, before the device is marked for it.
pub(crate) fn opens(overlay: &Overlay, image: &Image, log: &LogMap) -> bool {
    let below: Arc<dyn BlockDevice> = Arc::clone(overlay) as _;
    let copy: Arc<dyn BlockDevice> = Arc::new(CowDevice::new(below));
    let opened = open(&copy, image, log.clone());
    opened.is_ok_and(|(_, journal)| journal.close().is_ok())
}

/// Returns whether the log on `dev` remembers an error.
pub(crate) fn remembers_error(dev: &dyn BlockDevice, image: &Image, log: &LogMap) -> bool {
    let inspected = inspect(dev, image.sb.block_size(), log);
    inspected.is_ok_and(|superblock| superblock.errno() != 0)
}

/// Forgets the error that the log on `dev` remembers. False if the log cannot be used; then nothing
/// was changed.
pub(crate) fn forget_error(dev: &Overlay, image: &Image) -> Result<bool> {
    let Some(log) = replay::find(Arc::clone(dev) as _)? else {
        return Ok(false);
    };
    if !opens(dev, image, &log) {
        return Ok(false);
    }
    clear_error(&(Arc::clone(dev) as _), image, log)?;
    Ok(true)
}

/// Clears the error in the superblock of an empty log.
pub(crate) fn clear_error(dev: &Arc<dyn BlockDevice>, image: &Image, log: LogMap) -> Result<()> {
    let (_, journal) = open(dev, image, log)?;
    journal.clear_errno()?;
    journal.close()?;
    Ok(())
}
