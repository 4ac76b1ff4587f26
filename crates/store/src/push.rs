//! Storing an image as the next version of its name.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use extant_blockdev::BlockDevice;
use extant_units::DevOff;
use parking_lot::Mutex;

use crate::chunk;
use crate::doomed::Content;
use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::lists::Lists;
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
    let source = Source {
        image,
        old: None,
        after: None,
    };
    push_source(store, source, options, unchanged, progress)
}

/// As [`push()`].
pub(crate) fn push_source(
    store: &Store,
    source: Source<'_>,
    options: PushOptions,
    unchanged: &dyn Fn() -> bool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Pushed> {
    let name = store.location()?.name();
    let lists = Lists::read(store)?;
    store.check_key()?;
    let gap = match &source.old {
        Some(old) => !old.is_there(store)?,
        None => false,
    };
    let last = version::last(store, name)?;
    let image_bytes = source.image.len();
    let upload = Upload {
        store,
        source,
        image_bytes,
        options,
        count: manifest::chunk_count(image_bytes, options.chunk_bytes)?,
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        lists: Mutex::new(lists),
        claimed: Mutex::new(HashMap::new()),
        gap: AtomicBool::new(gap),
        new_chunks: AtomicU64::new(0),
        sent_bytes: AtomicU64::new(0),
        progress,
    };
    let version = upload.make_version(last, unchanged)?;
    Ok(Pushed {
        version,
        chunks: upload.claimed.into_inner().len() as u64,
        new_chunks: upload.new_chunks.into_inner(),
        sent_bytes: upload.sent_bytes.into_inner(),
    })
}

/// An image to push.
pub(crate) struct Source<'a> {
    pub(crate) image: &'a dyn BlockDevice,
    /// The version that it came from.
    pub(crate) old: Option<Old<'a>>,
    /// The number of the one version behind which it may stand.
    pub(crate) after: Option<u64>,
}

/// The version that an image came from.
pub(crate) struct Old<'a> {
    pub(crate) manifest: &'a Manifest,
    /// The name and the number of the version.
    pub(crate) version: (&'a str, u64),
    /// Returns whether something in this range of bytes may be another than in the version.
    pub(crate) changed: &'a (dyn Fn(Range<u64>) -> bool + Sync),
}

impl Old<'_> {
    /// Returns whether the version is still there: lists that are read before may list its chunks
    /// otherwise.
    fn is_there(&self, store: &Store) -> Result<bool> {
        let (name, number) = self.version;
        match version::read(store, name, number) {
            Ok(_) => Ok(true),
            Err(Error::NoVersion { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
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

/// A push under way. Threads take the chunks in order.
struct Upload<'a> {
    store: &'a Store,
    source: Source<'a>,
    image_bytes: u64,
    options: PushOptions,
    count: usize,
    next: AtomicUsize,
    /// A thread has failed.
    stopped: AtomicBool,
    lists: Mutex<Lists>,
    /// Chunks that a thread of this push has seen to, and their names in the store.
    claimed: Mutex<HashMap<ObjectHash, ObjectName>>,
    /// The version that the image came from may be gone, and chunks of it.
    gap: AtomicBool,
    new_chunks: AtomicU64,
    sent_bytes: AtomicU64,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Upload<'_> {
    /// Stores chunks and a manifest, and makes the version behind `last` of them: again from the
    /// start for what may have been removed meanwhile, as it took too long.
    fn make_version(&self, mut last: u64, unchanged: &dyn Fn() -> bool) -> Result<Version> {
        let name = self.store.location()?.name();
        let mut late = Vec::new();
        loop {
            let chunks = self.run(self.options.threads.max(1))?;
            if self.forget_doomed()? {
                continue;
            }
            let manifest = Manifest::new(self.image_bytes, self.options.chunk_bytes, chunks)?;
            let manifest_name = self.store_manifest(&manifest)?;
            if let Some(after) = self
                .source
                .after
                .filter(|after| late.is_empty() && *after != last)
            {
                return self.made_before(after, last, &manifest);
            }
            if !unchanged() {
                return Err(Error::Changed);
            }
            if !self.lists.lock().is_fresh(self.store) {
                continue;
            }
            let made = version::create(self.store, name, last, (manifest_name, &manifest));
            let made = made.map_err(|error| self.overtaken(error))?;
            if self.lists.lock().was_in_time(self.store) {
                // Its number is not the last any more, so it is not used again.
                if !late.is_empty() {
                    self.store.requests.remove(&late, None)?;
                }
                return Ok(made);
            }
            late.push(version::path(name, made.number));
            last = made.number;
        }
    }

    /// The error of an image that stands behind one version: to push it again is in vain.
    fn overtaken(&self, error: Error) -> Error {
        match (error, self.source.after) {
            (Error::Overtaken { number }, Some(base)) => Error::Superseded { base, last: number },
            (error, _) => error,
        }
    }

    /// The version `last`, which a push of this image has made that did not come to its end: the
    /// image stands behind version `after`.
    fn made_before(&self, after: u64, last: u64, manifest: &Manifest) -> Result<Version> {
        if last == 0 {
            return Err(Error::NoImage);
        }
        let there = version::read(self.store, self.store.location()?.name(), last)?;
        // Of whichever generations.
        let is_this = there.bytes == self.image_bytes
            && version::manifest(self.store, &there)?.has_content_of(manifest);
        match is_this {
            true => Ok(there),
            false => Err(Error::Superseded { base: after, last }),
        }
    }

    /// Reads the lists again if it is time. Returns whether chunks that were seen to are listed,
    /// or may be gone: they are seen to again then.
    fn forget_doomed(&self) -> Result<bool> {
        let mut lists = self.lists.lock();
        lists.renew(self.store)?;
        let all = lists.take_gap();
        self.gap.fetch_or(all, Ordering::Relaxed);
        let mut claimed = self.claimed.lock();
        let before = claimed.len();
        claimed.retain(|_, name| !all && !lists.has(&Content::Chunk(*name)));
        Ok(claimed.len() < before)
    }

    fn store_manifest(&self, manifest: &Manifest) -> Result<ObjectName> {
        let content = manifest.to_bytes();
        let seal = &self.store.seal;
        let hash = seal.hash(&content);
        let name = self.lists.lock().free(Content::Manifest, hash)?;
        let object = manifest::path(&name);
        let content = seal.close(&hash, content);
        if self.options.resend || !self.store.has(&object, content.len() as u64)? {
            self.store.put(&object, content)?;
        }
        Ok(name)
    }

    /// Sees to all chunks. Returns their names in order.
    fn run(&self, threads: usize) -> Result<Vec<Option<ObjectName>>> {
        self.next.store(0, Ordering::Relaxed);
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

    /// The chunk `nth` of the version that the image came from, if the image has that chunk and it
    /// can be relied on.
    fn old(&self, nth: usize, range: Range<u64>) -> Result<Option<Option<ObjectName>>> {
        let Some(old) = &self.source.old else {
            return Ok(None);
        };
        let again = self.options.resend || self.gap.load(Ordering::Relaxed);
        if again || (old.changed)(range) {
            return Ok(None);
        }
        let Some(name) = old.manifest.chunks()[nth] else {
            return Ok(Some(None));
        };
        let mut lists = self.lists.lock();
        lists.renew(self.store)?;
        if lists.has(&Content::Chunk(name)) {
            return Ok(None);
        }
        let mut claimed = self.claimed.lock();
        Ok(Some(Some(*claimed.entry(name.hash).or_insert(name))))
    }

    /// Stores the chunk `nth`, if the store does not have it.
    fn one(&self, nth: usize, buf: &mut [u8]) -> Result<Option<ObjectName>> {
        let chunk_bytes = u64::from(self.options.chunk_bytes);
        let at = nth as u64 * chunk_bytes;
        let len = (self.image_bytes - at).min(chunk_bytes);
        let plain = &mut buf[..usize::try_from(len).expect("at most a chunk")];
        if let Some(old) = self.old(nth, at..at + len)? {
            (self.progress)(len);
            return Ok(old);
        }
        self.source.image.read_at(DevOff::new(at), plain)?;
        (self.progress)(len);
        if plain.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let hash = self.store.seal.hash(plain);
        let name = {
            let mut lists = self.lists.lock();
            lists.renew(self.store)?;
            let mut claimed = self.claimed.lock();
            if let Some(&name) = claimed.get(&hash) {
                return Ok(Some(name));
            }
            let name = lists.free(Content::Chunk, hash)?;
            claimed.insert(hash, name);
            name
        };
        let object = chunk::path(&name);
        if self.options.resend || !self.store.has(&object, chunk::longest(plain.len()))? {
            let content = chunk::encode(plain, &name.hash, &self.store.seal)?;
            self.new_chunks.fetch_add(1, Ordering::Relaxed);
            self.sent_bytes
                .fetch_add(content.len() as u64, Ordering::Relaxed);
            self.store.put(&object, content)?;
        }
        Ok(Some(name))
    }
}
