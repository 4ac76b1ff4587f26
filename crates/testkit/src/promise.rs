//! Promises of a file system: the files it acknowledged with fsync, and what each may look like
//! after a crash.
//!
//! A caller enters *before* an operation what will also be acceptable from then on, and *after* an
//! fsync what no longer is. What a crash leaves must be acceptable: never a third content, a
//! shorter one, or nothing. Paths are relative to the mount's root.

use crate::{Error, Result, bail, content};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A content: `len` bytes of the content of `seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Which content.
    pub seed: u64,
    /// Its length in bytes, at least.
    pub len: u64,
    /// Its length in bytes, at most: larger than `len` while an append is not acknowledged.
    pub max: u64,
}

impl Version {
    /// Exactly `len` bytes of `seed`.
    pub fn exact(seed: u64, len: u64) -> Version {
        Version {
            seed,
            len,
            max: len,
        }
    }
}

/// One promised file.
#[derive(Clone, Debug)]
struct Promise {
    places: Vec<PathBuf>,
    versions: Vec<Version>,
}

/// The name of a promise in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(u64);

/// All promises of a run. Shared by the storm's threads.
#[derive(Debug, Default)]
pub struct Ledger {
    book: Mutex<(u64, BTreeMap<Id, Promise>)>,
}

impl Ledger {
    /// `place` was fsynced and holds `version`.
    pub fn durable(&self, place: &Path, version: Version) -> Id {
        let mut book = self.lock();
        book.0 += 1;
        let id = Id(book.0);
        book.1.insert(
            id,
            Promise {
                places: vec![place.to_path_buf()],
                versions: vec![version],
            },
        );
        id
    }

    /// From now on the file may also hold `version` (a rename over it, or an append, begins).
    pub fn may_become(&self, id: Id, version: Version) {
        self.with(id, |p| p.versions.push(version));
    }

    /// The file holds `version` for sure (an fsync that covers it returned).
    pub fn became(&self, id: Id, version: Version) {
        self.with(id, |p| p.versions = vec![version]);
    }

    /// From now on the file may also be found at `place` (a rename begins).
    pub fn may_move(&self, id: Id, place: &Path) {
        self.with(id, |p| p.places.push(place.to_path_buf()));
    }

    /// The file is about to be removed: nothing is promised any more.
    pub fn release(&self, id: Id) {
        self.lock().1.remove(&id);
    }

    /// Number of promises.
    pub fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Returns whether nothing is promised.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks every promise below `root`; the number of files found whole, or what is broken.
    pub fn check(&self, root: &Path) -> Result<usize> {
        let book = self.lock();
        let broken: Vec<String> = book
            .1
            .values()
            .filter_map(|p| p.check(root).err())
            .map(|e| e.to_string())
            .collect();
        if broken.is_empty() {
            return Ok(book.1.len());
        }
        let shown = broken
            .iter()
            .take(20)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n");
        bail!(
            "{} of {} fsynced files are not whole:\n{shown}",
            broken.len(),
            book.1.len()
        );
    }

    fn with(&self, id: Id, change: impl FnOnce(&mut Promise)) {
        if let Some(p) = self.lock().1.get_mut(&id) {
            change(p);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (u64, BTreeMap<Id, Promise>)> {
        self.book
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Promise {
    fn check(&self, root: &Path) -> Result<()> {
        let mut found = None;
        for place in &self.places {
            match File::open(root.join(place)) {
                Ok(f) => {
                    if let Some((first, _)) = found.replace((place, f)) {
                        bail!("{} is also at {}", first.display(), place.display());
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => bail!("{}: {e}", place.display()),
            }
        }
        let Some((place, mut f)) = found else {
            bail!("{:?}: gone", self.places)
        };
        let mut bytes = Vec::new();
        f.read_to_end(&mut bytes)
            .map_err(|e| Error::new(format!("{}: {e}", place.display())))?;
        let len = bytes.len() as u64;
        let mut why = Vec::new();
        for v in &self.versions {
            if len < v.len || len > v.max {
                why.push(format!("size {len}, not {}..={}", v.len, v.max));
            } else if let Some(at) = content::first_wrong(v.seed, 0, &bytes) {
                // An append that was not acknowledged may have left anything of its own but stale
                // bytes.
                if at < v.len
                    || content::first_foreign(
                        v.seed,
                        at,
                        bytes.get(usize::try_from(at)?..).unwrap_or(&[]),
                    )
                    .is_some()
                {
                    why.push(format!("content {:x} wrong at byte {at} of {len}", v.seed));
                } else {
                    return Ok(());
                }
            } else {
                return Ok(());
            }
        }
        bail!("{}: {}", place.display(), why.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Version};
    use crate::{TempDir, content::fill};
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_whole_file_is_whole_and_damage_is_seen() {
        let d = TempDir::new("ledger").unwrap();
        let l = Ledger::default();
        fs::write(d.join("a"), fill(1, 0, 5000)).unwrap();
        let id = l.durable(Path::new("a"), Version::exact(1, 5000));
        assert_eq!(l.check(d.path()).unwrap(), 1);
        for bad in [
            fill(1, 0, 4999),
            fill(2, 0, 5000),
            vec![0; 5000],
            Vec::new(),
        ] {
            fs::write(d.join("a"), bad).unwrap();
            assert!(l.check(d.path()).is_err());
        }
        fs::remove_file(d.join("a")).unwrap();
        assert!(l.check(d.path()).is_err());
        l.release(id);
        assert_eq!(l.check(d.path()).unwrap(), 0);
    }

    #[test]
    fn while_a_rename_or_replacement_runs_both_are_fine_and_no_third() {
        let d = TempDir::new("ledger").unwrap();
        let l = Ledger::default();
        let id = l.durable(Path::new("a"), Version::exact(1, 100));
        l.may_become(id, Version::exact(2, 50));
        l.may_move(id, Path::new("b"));
        for (place, seed, len) in [("a", 1, 100), ("b", 1, 100), ("b", 2, 50)] {
            fs::write(d.join(place), fill(seed, 0, len)).unwrap();
            l.check(d.path()).unwrap();
            fs::write(d.join(place), fill(seed, 0, len + 1)).unwrap();
            assert!(l.check(d.path()).is_err());
            fs::remove_file(d.join(place)).unwrap();
        }
        fs::write(d.join("a"), fill(1, 0, 100)).unwrap();
        fs::write(d.join("b"), fill(1, 0, 100)).unwrap();
        assert!(l.check(d.path()).is_err(), "in two places at once");
    }

    #[test]
    fn an_append_may_be_seen_in_part_but_not_as_foreign_bytes() {
        let d = TempDir::new("ledger").unwrap();
        let l = Ledger::default();
        l.durable(
            Path::new("a"),
            Version {
                seed: 3,
                len: 10,
                max: 20,
            },
        );
        let mut bytes = fill(3, 0, 15);
        fs::write(d.join("a"), &bytes).unwrap();
        l.check(d.path()).unwrap();
        bytes[12] = 0;
        fs::write(d.join("a"), &bytes).unwrap();
        l.check(d.path()).unwrap();
        bytes[12] = crate::content::JUNK;
        fs::write(d.join("a"), &bytes).unwrap();
        assert!(l.check(d.path()).is_err());
        bytes[12] = 0;
        bytes[9] = 0;
        fs::write(d.join("a"), &bytes).unwrap();
        assert!(l.check(d.path()).is_err());
    }
}
