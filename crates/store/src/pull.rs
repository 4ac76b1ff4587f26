//! Making a file of a version.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use extant_blockdev::BlockDevice;
use extant_units::DevOff;

use crate::error::Result;
use crate::manifest::Manifest;
use crate::push::{StopOnPanic, THREADS};
use crate::store::Store;
use crate::stored_image::fetch;
use crate::version::{self, Version};

/// The outcome of a pull.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pulled {
    /// The version.
    pub version: Version,
    /// Chunks that were fetched.
    pub chunks: u64,
}

/// Writes the version that the store's location asks for to the device that `make` returns for its
/// length, which must read as zeros, and flushes that. Calls `progress` with the bytes that are
/// done, from several threads.
///
/// # Errors
/// There is no such version; an object is damaged; a failed request or write. The device has parts
/// of the image then.
pub fn pull<D: BlockDevice>(
    store: &Store,
    make: impl FnOnce(u64) -> Result<D>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Pulled, D)> {
    let version = version::find(store)?;
    let manifest = version::manifest(store, &version)?;
    let image = make(manifest.image_bytes())?;
    let download = Download {
        store,
        manifest: &manifest,
        image: &image,
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        chunks: AtomicU64::new(0),
        progress,
    };
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| download.work()))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|part| part.expect("no panic of a pull"))
            .collect()
    });
    ended.into_iter().collect::<Result<()>>()?;
    let chunks = download.chunks.into_inner();
    image.flush()?;
    Ok((Pulled { version, chunks }, image))
}

/// A pull under way. Threads take the chunks in order.
struct Download<'a> {
    store: &'a Store,
    manifest: &'a Manifest,
    image: &'a dyn BlockDevice,
    next: AtomicUsize,
    /// A thread has failed.
    stopped: AtomicBool,
    chunks: AtomicU64,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Download<'_> {
    fn work(&self) -> Result<()> {
        let _stop = StopOnPanic(&self.stopped);
        while !self.stopped.load(Ordering::Relaxed) {
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = self.manifest.chunks().get(nth) else {
                break;
            };
            let len = self.manifest.len_of(nth);
            if let Some(name) = chunk {
                let at = nth as u64 * u64::from(self.manifest.chunk_bytes());
                let content = fetch(self.store, name, len);
                let written = content
                    .and_then(|content| Ok(self.image.write_at(DevOff::new(at), &content)?));
                written.inspect_err(|_| self.stopped.store(true, Ordering::Relaxed))?;
                self.chunks.fetch_add(1, Ordering::Relaxed);
            }
            (self.progress)(len as u64);
        }
        Ok(())
    }
}
