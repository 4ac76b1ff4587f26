//! A version of an image as a block device that cannot be written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::BlockDevice;
use extant_units::DevOff;

use crate::chunk;
use crate::chunk_cache::{ChunkCache, Fetched};
use crate::disk_cache::DiskCache;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::manifest::Manifest;
use crate::object_name::ObjectName;
use crate::start_list::{Recorder, StartList};
use crate::store::Store;
use crate::version::{self, Version};

/// Copies of chunks nearer than the store.
#[derive(Debug)]
pub struct Caches {
    /// Bytes of chunks in memory. Four chunks stay there in any case.
    pub memory: u64,
    /// A folder that processes share.
    pub disk: Option<DiskCache>,
}

impl Default for Caches {
    /// 64 MiB of memory, and no folder.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            disk: None,
        }
    }
}

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
    memory: ChunkCache,
    disk: Option<DiskCache>,
    /// Requests for chunks, and chunks that were on disk.
    fetched: AtomicU64,
    from_disk: AtomicU64,
    /// Chunks that were read ahead.
    ahead: AtomicU64,
    recorder: Recorder,
}

impl StoredImage {
    /// The image at `location`.
    ///
    /// # Errors
    /// There is none; it is damaged; a failed request.
    pub fn open(location: &Location, caches: Caches) -> Result<Self> {
        let store = Store::open(location)?;
        let version = version::find(&store)?;
        let manifest = version::manifest(&store, &version)?;
        let recorder = Recorder::new(manifest.chunk_bytes(), manifest.chunks().len());
        let most = caches.memory / u64::from(manifest.chunk_bytes());
        Ok(Self {
            store,
            version,
            manifest,
            memory: ChunkCache::new(usize::try_from(most).unwrap_or(usize::MAX)),
            disk: caches.disk,
            fetched: AtomicU64::new(0),
            from_disk: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            recorder,
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

    /// The chunks that have been read, in the order in which each was first read.
    pub fn start_list(&self) -> StartList {
        self.recorder.list()
    }

    /// Returns whether so many chunks of a list may be in the caches beside what is read.
    pub(crate) fn may_read_ahead(&self, place: usize) -> bool {
        self.disk.is_some() || place < self.recorder.read_chunks() + self.memory.most() / 2
    }

    /// Reads the chunk `nth` ahead, if there is one.
    pub(crate) fn read_ahead(&self, nth: usize) {
        if let Some(Some(name)) = self.manifest.chunks().get(nth) {
            let read = self.chunk(nth, name);
            self.ahead
                .fetch_add(u64::from(read.is_ok()), Ordering::Relaxed);
        }
    }

    /// The content of the chunk `nth`, whose name is this.
    fn chunk(&self, nth: usize, name: &ObjectName) -> Fetched {
        let len = self.manifest.len_of(nth);
        let content = self.memory.get(&name.hash, || self.bring(name, len))?;
        if content.len() != len {
            // The manifest has the same hash in two lengths.
            let why = format!("it has {} bytes, and {len} are expected", content.len());
            return Err(Arc::new(Error::damaged(chunk::path(name), why)));
        }
        Ok(content)
    }

    /// The chunk, from the folder or from the store.
    fn bring(&self, name: &ObjectName, len: usize) -> Fetched {
        let there = self
            .disk
            .as_ref()
            .and_then(|disk| disk.get(&name.hash, len, &self.store.seal));
        if let Some(content) = there {
            self.from_disk.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::new(content));
        }
        self.fetched.fetch_add(1, Ordering::Relaxed);
        let content = fetch(&self.store, name, len)?;
        if let Some(disk) = &self.disk {
            disk.put(&name.hash, &content);
        }
        Ok(Arc::new(content))
    }
}

/// The chunk of this name and length.
pub(crate) fn fetch(store: &Store, name: &ObjectName, len: usize) -> Result<Vec<u8>> {
    let object = chunk::path(name);
    let Some(content) = store.get(&object, chunk::longest(len))? else {
        return Err(Error::Missing { object });
    };
    chunk::decode(content, len, &name.hash, &store.seal).map_err(|why| Error::damaged(object, why))
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
                Some(name) => {
                    self.recorder.read(nth);
                    let chunk = self.chunk(nth, name).map_err(as_io)?;
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
        vec![
            ("chunks_fetched", self.fetched.load(Ordering::Relaxed)),
            ("chunks_from_disk", self.from_disk.load(Ordering::Relaxed)),
            ("chunks_from_memory", self.memory.hits()),
            ("chunks_read_ahead", self.ahead.load(Ordering::Relaxed)),
        ]
    }
}

/// The error of a read: EIO to a user of the volume, with the object in the message and the log.
fn as_io(error: Arc<Error>) -> io::Error {
    tracing::error!(%error, "a chunk cannot be read");
    io::Error::other(error)
}
