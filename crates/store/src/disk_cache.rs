//! Chunks in a folder of the host, which its processes share.
//!
//! # Invariants
//! - A chunk is a file that is named by its hash. It gets its name when it is whole, and its
//!   content is hashed whenever it is read: a file that is torn or altered is removed and fetched
//!   again.
//! - A failure here costs a fetch, and nothing else: a disk that is full, a folder that cannot be
//!   written.
//! - The folder has at most its bound, and for each process that adds to it a sixteenth more.
//!
//! # Concurrency
//! Threads and processes read and add at once. One of them at a time makes room (a lock on a file).

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::hash::ObjectHash;
use crate::seal::Seal;

/// The age from which a file that never got its name is removed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A folder of chunks.
#[derive(Debug)]
pub struct DiskCache {
    folder: PathBuf,
    /// Bytes that may be there.
    most: u64,
    /// Bytes that this process has added since it looked at all last.
    added: AtomicU64,
}

/// Files that this process has begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

impl DiskCache {
    /// The cache in `folder` with at most so many bytes. The folder is made if there is none, for
    /// its owner alone.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(folder: &Path, most: u64) -> io::Result<Self> {
        // The process may leave its directory.
        let folder = &std::path::absolute(folder)?;
        let mut private = DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(folder.join("chunks"))?;
        private.create(folder.join("new"))?;
        for folder in [folder, &folder.join("new")] {
            if folder.metadata()?.permissions().mode() & 0o022 != 0 {
                let why = format!("{}: others may write it", folder.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            most,
            // It may be over the bound already.
            added: AtomicU64::new(most / 16 + 1),
        })
    }

    fn path(&self, hash: &ObjectHash) -> PathBuf {
        let name = hash.to_string();
        self.folder.join("chunks").join(&name[..2]).join(&name)
    }

    /// The chunk of this hash and length, if it is there and whole.
    pub(crate) fn get(&self, hash: &ObjectHash, len: usize, seal: &Seal) -> Option<Vec<u8>> {
        let path = self.path(hash);
        let mut file = File::open(&path).ok()?;
        let mut content = Vec::with_capacity(len + 1);
        let read = (&mut file).take(len as u64 + 1).read_to_end(&mut content);
        if read.is_err() || content.len() != len || seal.hash(&content) != *hash {
            tracing::warn!(path = %path.display(), "a cached chunk is damaged: it is removed");
            let _ = fs::remove_file(&path);
            return None;
        }
        // The order in which chunks go is that of their use.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        Some(content)
    }

    /// Adds a chunk.
    pub(crate) fn put(&self, hash: &ObjectHash, content: &[u8]) {
        if let Err(error) = self.try_put(hash, content) {
            tracing::debug!(%error, folder = %self.folder.display(), "a chunk is not cached");
        }
    }

    fn try_put(&self, hash: &ObjectHash, content: &[u8]) -> io::Result<()> {
        let len = content.len() as u64;
        let added = self.added.fetch_add(len, Ordering::Relaxed);
        if added.saturating_add(len) > self.most / 16 {
            self.added.store(0, Ordering::Relaxed);
            self.make_room()?;
        }
        let path = self.path(hash);
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        // Processes with the same number in different namespaces may share a folder.
        let random = RandomState::new().build_hasher().finish();
        let new = format!("{}-{number}-{random:016x}", std::process::id());
        let new = self.folder.join("new").join(new);
        let file = OpenOptions::new().write(true).create_new(true).open(&new);
        let written = file.and_then(|mut file| file.write_all(content));
        let named = written.and_then(|()| fs::rename(&new, &path));
        if named.is_err() {
            let _ = fs::remove_file(&new);
        }
        named
    }

    /// Removes the chunks whose use is the longest ago if there are too many, unless another
    /// process does so at the moment.
    fn make_room(&self) -> io::Result<()> {
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.folder.join("lock"))?;
        if lock.try_lock().is_err() {
            return Ok(());
        }
        for (path, metadata) in files(&self.folder.join("new")) {
            let age = metadata.modified()?.elapsed().unwrap_or_default();
            if age > ABANDONED {
                let _ = fs::remove_file(path);
            }
        }
        let mut chunks = Vec::new();
        let mut all = 0;
        for (folder, _) in entries(&self.folder.join("chunks")) {
            for (path, metadata) in files(&folder) {
                all += metadata.len();
                chunks.push((metadata.modified()?, metadata.len(), path));
            }
        }
        if all <= self.most {
            return Ok(());
        }
        chunks.sort_unstable();
        for (_, len, path) in chunks {
            // Some more, so that it is not looked for at once again.
            if all <= self.most - self.most / 8 {
                break;
            }
            if fs::remove_file(path).is_ok() {
                all -= len;
            }
        }
        Ok(())
    }
}

/// The content of a folder; nothing where it cannot be read.
fn entries(folder: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let entry = |entry: fs::DirEntry| Some((entry.path(), entry.metadata().ok()?));
    found.filter_map(entry).collect()
}

fn files(folder: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut found = entries(folder);
    found.retain(|(_, metadata)| metadata.is_file());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::TempDir;

    fn chunk(number: u8) -> (ObjectHash, Vec<u8>) {
        let content = vec![number; 1000];
        (ObjectHash::of(&content), content)
    }

    #[test]
    fn what_is_damaged_is_not_there() {
        let dir = TempDir::new("cache").unwrap();
        let cache = DiskCache::open(dir.path(), 1 << 20).unwrap();
        let (hash, content) = chunk(1);
        assert_eq!(cache.get(&hash, 1000, &Seal::default()), None);
        cache.put(&hash, &content);
        assert_eq!(
            cache.get(&hash, 1000, &Seal::default()),
            Some(content.clone())
        );
        for damage in [&content[..999], &[2; 1000][..], &[1; 1001][..]] {
            fs::write(cache.path(&hash), damage).unwrap();
            assert_eq!(cache.get(&hash, 1000, &Seal::default()), None);
            assert!(!cache.path(&hash).exists());
            cache.put(&hash, &content);
        }
        assert_eq!(files(&dir.join("new")).len(), 0);
    }

    #[test]
    fn the_least_used_go_first() {
        let dir = TempDir::new("cache").unwrap();
        let most = 20_000;
        let cache = DiskCache::open(dir.path(), most).unwrap();
        let then = SystemTime::now() - Duration::from_secs(900);
        for number in 0..60 {
            let (hash, content) = chunk(number);
            cache.put(&hash, &content);
            // The first one is used all the time; the others are older, each than the next.
            let age = Duration::from_secs(number.into());
            let file = File::options().write(true).open(cache.path(&hash)).unwrap();
            file.set_modified(then + age).unwrap();
            assert!(
                cache.get(&chunk(0).0, 1000, &Seal::default()).is_some(),
                "after {number}"
            );
        }
        let bytes: usize = (0..60)
            .filter(|&n| cache.path(&chunk(n).0).exists())
            .count()
            * 1000;
        let bytes = bytes as u64;
        assert!(
            bytes <= most + most / 16 + 1000 && bytes > most / 2,
            "{bytes} bytes"
        );
        assert!(cache.get(&chunk(59).0, 1000, &Seal::default()).is_some());
        assert!(cache.get(&chunk(1).0, 1000, &Seal::default()).is_none());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_cache() {
        let dir = TempDir::new("cache").unwrap();
        let cache = DiskCache::open(dir.path(), 1 << 20).unwrap();
        fs::remove_dir_all(dir.join("new")).unwrap();
        let (hash, content) = chunk(1);
        cache.put(&hash, &content);
        assert_eq!(cache.get(&hash, 1000, &Seal::default()), None);
        assert!(DiskCache::open(Path::new("/dev/null/cache"), 1).is_err());
    }
}
