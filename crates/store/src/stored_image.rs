//! A version of an image as a block device that cannot be written.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_units::DevOff;
use parking_lot::{Condvar, Mutex};

use crate::chunk;
use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::location::Location;
use crate::manifest::Manifest;
use crate::store::Store;
use crate::version::{self, Version};

/// Bytes of chunks that stay in memory, unless the caller says otherwise.
const MEMORY: u64 = 64 << 20;

/// A version of an image. Chunks are fetched when they are read, and the last ones stay in memory.
///
/// # Concurrency
/// Threads that read different chunks fetch them at once. Of threads that read the same chunk one
/// fetches it, and the others wait.
#[derive(Debug)]
pub struct StoredImage {
    store: Store,
    version: Version,
    manifest: Manifest,
    /// Chunks that stay in memory.
    most: usize,
    cache: Mutex<Cache>,
    fetched: Condvar,
}

#[derive(Default, Debug)]
struct Cache {
    /// `None` while a thread fetches it.
    chunks: HashMap<ObjectHash, Option<Cached>>,
    /// Counts reads, for the order of use.
    clock: u64,
    fetches: u64,
    hits: u64,
}

#[derive(Debug)]
struct Cached {
    content: Arc<Vec<u8>>,
    used: u64,
}

impl StoredImage {
    /// The image at `location`.
    ///
    /// # Errors
    /// There is none; it is damaged; a failed request.
    pub fn open(location: &Location) -> Result<Self> {
        Self::with_memory(location, MEMORY)
    }

    /// The same with so many bytes of chunks in memory, but at least four chunks.
    ///
    /// # Errors
    /// As [`StoredImage::open`].
    pub fn with_memory(location: &Location, bytes: u64) -> Result<Self> {
        let store = Store::open(location)?;
        let version = version::find(&store, location)?;
        let manifest = version::manifest(&store, &version)?;
        let most = usize::try_from(bytes / u64::from(manifest.chunk_bytes())).unwrap_or(usize::MAX);
        Ok(Self {
            store,
            version,
            manifest,
            most: most.max(4),
            cache: Mutex::default(),
            fetched: Condvar::new(),
        })
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Its chunks.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The content of the chunk `nth`, whose hash is this.
    fn chunk(&self, nth: usize, hash: &ObjectHash) -> Result<Arc<Vec<u8>>> {
        let mut cache = self.cache.lock();
        loop {
            cache.clock += 1;
            let now = cache.clock;
            match cache.chunks.get_mut(hash) {
                Some(Some(cached)) => {
                    cached.used = now;
                    let content = Arc::clone(&cached.content);
                    cache.hits += 1;
                    return Ok(content);
                }
                Some(None) => self.fetched.wait(&mut cache),
                None => break,
            }
        }
        cache.chunks.insert(*hash, None);
        cache.fetches += 1;
        drop(cache);
        let fetched = fetch(&self.store, hash, self.manifest.len_of(nth)).map(Arc::new);
        let mut cache = self.cache.lock();
        match &fetched {
            Ok(content) => cache.enter(*hash, content, self.most),
            // A thread that waits tries for itself.
            Err(_) => drop(cache.chunks.remove(hash)),
        }
        self.fetched.notify_all();
        fetched
    }
}

impl Cache {
    /// Enters a chunk, in place of the one whose use is the longest ago if there are `most`.
    fn enter(&mut self, hash: ObjectHash, content: &Arc<Vec<u8>>, most: usize) {
        let used = self.clock;
        let content = Arc::clone(content);
        self.chunks.insert(hash, Some(Cached { content, used }));
        let there = self.chunks.iter();
        let there = there.filter_map(|(hash, slot)| Some((slot.as_ref()?.used, *hash)));
        let there: Vec<_> = there.collect();
        if there.len() > most
            && let Some((_, oldest)) = there.iter().min()
        {
            self.chunks.remove(oldest);
        }
    }
}

/// The chunk of this hash and length.
pub(crate) fn fetch(store: &Store, hash: &ObjectHash, len: usize) -> Result<Vec<u8>> {
    let object = chunk::path(hash);
    let Some(content) = store.get(&object, chunk::longest(len))? else {
        return Err(Error::Missing { object });
    };
    chunk::decode(&content, len, hash).map_err(|why| Error::damaged(object, why))
}

impl BlockDevice for StoredImage {
    fn len(&self) -> u64 {
        self.manifest.image_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.get().checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let chunk_bytes = u64::from(self.manifest.chunk_bytes());
        let (mut at, mut rest) = (offset.get(), buf);
        while !rest.is_empty() {
            let nth = usize::try_from(at / chunk_bytes).map_err(io::Error::other)?;
            let from = usize::try_from(at % chunk_bytes).map_err(io::Error::other)?;
            let len = rest.len().min(self.manifest.len_of(nth) - from);
            let (part, behind) = rest.split_at_mut(len);
            match &self.manifest.chunks()[nth] {
                None => part.fill(0),
                Some(hash) => {
                    let chunk = self.chunk(nth, hash).map_err(as_io)?;
                    part.copy_from_slice(&chunk[from..from + len]);
                }
            }
            (at, rest) = (at + len as u64, behind);
        }
        Ok(())
    }

    fn write_at(&self, _: DevOff, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.cache.lock();
        vec![
            ("chunks_fetched", cache.fetches),
            ("chunks_from_memory", cache.hits),
        ]
    }
}

/// The error of a read: EIO to a user of the volume, with the object in the message and the log.
fn as_io(error: Error) -> io::Error {
    tracing::error!(%error, "a chunk cannot be read");
    io::Error::other(error)
}
