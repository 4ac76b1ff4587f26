//! Storing an image as the next version of its name.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use extant_blockdev::BlockDevice;
use extant_units::DevOff;
use parking_lot::Mutex;

use crate::chunk;
use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::manifest::{self, CHUNK_BYTES, Manifest};
use crate::object_name::ObjectName;
use crate::store::Store;
use crate::version::{self, Version};

/// The usual number of threads of a push or a pull: requests that are under way at once.
pub(crate) const THREADS: usize = 8;

/// Options of [`push()`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushOptions {
    /// Bytes of a chunk: a power of two from 4 KiB to 16 MiB. Images share chunks of one length
    /// only.
    pub chunk_bytes: u32,
    /// Threads that read, compress and send.
    pub threads: usize,
    /// Sends all chunks, also those that the store has: what is damaged there is mended.
    pub resend: bool,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: CHUNK_BYTES,
            threads: THREADS,
            resend: false,
        }
    }
}

/// The outcome of a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pushed {
    /// The new version.
    pub version: Version,
    /// Chunks of the image that are not all zeros, each counted once.
    pub chunks: u64,
    /// Those that were sent: the store did not have them.
    pub new_chunks: u64,
    /// Bytes that were sent for them.
    pub sent_bytes: u64,
}

/// Stores `image` as the next version of the store's image, and calls `progress` with the
/// bytes that are done, from several threads. The image must not change meanwhile: `unchanged` is
/// asked before the version is made. Chunks that the store has are not read there. A push that was
/// stopped leaves chunks, which the next one finds.
///
/// # Errors
/// A failed read or request; [`Error::Overtaken`] if another push was faster; [`Error::Changed`];
/// [`Error::BadSize`]. There is no new version then, unless the store stopped to answer when it was
/// made.
pub fn push(
    store: &Store,
    image: &dyn BlockDevice,
    options: PushOptions,
    unchanged: &dyn Fn() -> bool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Pushed> {
    let last = version::last(store, store.location()?.name())?;
    let upload = Upload::new(store, Source { image, old: None }, options, progress)?;
    let stored = upload.store_image()?;
    if !unchanged() {
        return Err(Error::Changed);
    }
    stored.into_version(store, last)
}

/// Stops the other threads if this one panics.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// An image to push.
pub(crate) struct Source<'a> {
    pub(crate) image: &'a dyn BlockDevice,
    /// The version that it came from.
    pub(crate) old: Option<Old<'a>>,
}

/// The version that an image came from, whose chunks are in the store.
pub(crate) struct Old<'a> {
    pub(crate) manifest: &'a Manifest,
    /// Returns whether something in this range of bytes may be another than in the version.
    pub(crate) changed: &'a (dyn Fn(Range<u64>) -> bool + Sync),
}

/// An image whose chunks and manifest are stored.
pub(crate) struct StoredChunks {
    pub(crate) name: ObjectName,
    manifest: Manifest,
    chunks: u64,
    new_chunks: u64,
    sent_bytes: u64,
}

impl StoredChunks {
    /// Makes it the version behind `last` of the store's image.
    pub(crate) fn into_version(self, store: &Store, last: u64) -> Result<Pushed> {
        let image = store.location()?.name();
        let version = version::create(store, image, last, (self.name, &self.manifest))?;
        Ok(self.pushed_as(version))
    }

    /// The outcome of a push that it is this version.
    pub(crate) fn pushed_as(self, version: Version) -> Pushed {
        Pushed {
            version,
            chunks: self.chunks,
            new_chunks: self.new_chunks,
            sent_bytes: self.sent_bytes,
        }
    }
}

/// A push under way. Threads take the chunks in order.
pub(crate) struct Upload<'a> {
    store: &'a Store,
    source: Source<'a>,
    image_bytes: u64,
    options: PushOptions,
    count: usize,
    next: AtomicUsize,
    /// A thread has failed.
    stopped: AtomicBool,
    /// Chunks that a thread of this push has seen to.
    claimed: Mutex<HashSet<ObjectHash>>,
    new_chunks: AtomicU64,
    sent_bytes: AtomicU64,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Upload<'a> {
    pub(crate) fn new(
        store: &'a Store,
        source: Source<'a>,
        options: PushOptions,
        progress: &'a (dyn Fn(u64) + Sync),
    ) -> Result<Self> {
        let image_bytes = source.image.len();
        Ok(Self {
            store,
            source,
            image_bytes,
            options,
            count: manifest::chunk_count(image_bytes, options.chunk_bytes)?,
            next: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            claimed: Mutex::new(HashSet::new()),
            new_chunks: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            progress,
        })
    }

    /// Stores the chunks that the store does not have, and the manifest.
    pub(crate) fn store_image(self) -> Result<StoredChunks> {
        let chunks = self.run(self.options.threads.max(1))?;
        let manifest = Manifest::new(self.image_bytes, self.options.chunk_bytes, chunks)?;
        let content = manifest.to_bytes();
        let name = ObjectName::first(ObjectHash::of(&content));
        let object = manifest::path(&name);
        if self.options.resend || !self.store.has(&object, content.len() as u64)? {
            self.store.put(&object, content)?;
        }
        Ok(StoredChunks {
            name,
            manifest,
            chunks: self.claimed.into_inner().len() as u64,
            new_chunks: self.new_chunks.into_inner(),
            sent_bytes: self.sent_bytes.into_inner(),
        })
    }

    /// Sees to all chunks. Returns their names in order.
    fn run(&self, threads: usize) -> Result<Vec<Option<ObjectName>>> {
        let parts: Vec<Result<Vec<_>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work())).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended
                .map(|part| part.expect("no panic of a push"))
                .collect()
        });
        let mut chunks = vec![None; self.count];
        for part in parts {
            for (nth, name) in part? {
                chunks[nth] = Some(name);
            }
        }
        Ok(chunks)
    }

    /// The part of one thread: chunks that are not all zeros.
    fn work(&self) -> Result<Vec<(usize, ObjectName)>> {
        let mut done = Vec::new();
        let mut buf = vec![0; self.options.chunk_bytes as usize];
        let _stop = StopOnPanic(&self.stopped);
        while !self.stopped.load(Ordering::Relaxed) {
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            if nth >= self.count {
                break;
            }
            let one = self.one(nth, &mut buf);
            let name = one.inspect_err(|_| self.stopped.store(true, Ordering::Relaxed))?;
            done.extend(name.map(|name| (nth, name)));
        }
        Ok(done)
    }

    /// Stores the chunk `nth`, if the store does not have it.
    fn one(&self, nth: usize, buf: &mut [u8]) -> Result<Option<ObjectName>> {
        let chunk_bytes = u64::from(self.options.chunk_bytes);
        let at = nth as u64 * chunk_bytes;
        let len = (self.image_bytes - at).min(chunk_bytes);
        let plain = &mut buf[..usize::try_from(len).expect("at most a chunk")];
        if let Some(old) = &self.source.old
            && !(old.changed)(at..at + len)
        {
            let name = old.manifest.chunks()[nth];
            self.claimed.lock().extend(name.map(|name| name.hash));
            (self.progress)(len);
            return Ok(name);
        }
        self.source.image.read_at(DevOff::new(at), plain)?;
        (self.progress)(len);
        if plain.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let name = ObjectName::first(ObjectHash::of(plain));
        if !self.claimed.lock().insert(name.hash) {
            return Ok(Some(name));
        }
        let object = chunk::path(&name);
        if self.options.resend || !self.store.has(&object, chunk::longest(plain.len()))? {
            let content = chunk::encode(plain)?;
            self.new_chunks.fetch_add(1, Ordering::Relaxed);
            self.sent_bytes
                .fetch_add(content.len() as u64, Ordering::Relaxed);
            self.store.put(&object, content)?;
        }
        Ok(Some(name))
    }
}
