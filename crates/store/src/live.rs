//! Names of the objects that versions have: images, old versions, and the content of all others.

use std::collections::HashSet;

use crate::doomed::Content;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::store::Store;
use crate::version;

/// The names of a store's images.
///
/// # Errors
/// A failed listing; [`Error::Damaged`] for a folder of another name, which may have versions that
/// cannot be read.
pub(crate) fn images(store: &Store) -> Result<Vec<String>> {
    let folders = store.requests.children("names")?.folders;
    match folders.iter().find(|name| !Location::is_name(name)) {
        None => Ok(folders),
        Some(other) => {
            let object = format!("names/{other}");
            Err(Error::damaged(object, "no image has such a name"))
        }
    }
}

/// The versions of each image of a store, but for its last `keep` ones.
pub(crate) fn old_versions(store: &Store, keep: usize) -> Result<Vec<(String, u64)>> {
    let mut old = Vec::new();
    for image in images(store)? {
        let numbers = version::numbers(store, &image)?;
        let count = numbers.len().saturating_sub(keep);
        old.extend(
            numbers[..count]
                .iter()
                .map(|&number| (image.clone(), number)),
        );
    }
    Ok(old)
}

/// A set of objects of content. It takes the same 8 bytes for two of them once in 2^64 times: so
/// it may only keep objects from being removed.
#[derive(Default, Debug)]
pub(crate) struct ContentSet(HashSet<u64>);

impl ContentSet {
    fn key(content: &Content) -> u64 {
        let (kind, name) = content.parts();
        let first = name.hash.as_bytes().first_chunk().expect("32 bytes");
        let other = u64::from(name.generation) << 8 | u64::from(kind);
        u64::from_le_bytes(*first).wrapping_add(other)
    }

    /// Returns whether it was not there.
    pub(crate) fn insert(&mut self, content: &Content) -> bool {
        self.0.insert(Self::key(content))
    }

    pub(crate) fn has(&self, content: &Content) -> bool {
        self.0.contains(&Self::key(content))
    }
}

/// The manifests and chunks of all versions of all images, `without` some. Calls `progress` with
/// the versions that are read, and their number.
///
/// # Errors
/// A failed request; a version or manifest that cannot be read: it may name anything.
pub(crate) fn live(
    store: &Store,
    without: &[(String, u64)],
    progress: &dyn Fn(u64, u64),
) -> Result<ContentSet> {
    let without: HashSet<_> = without.iter().collect();
    let mut versions = Vec::new();
    for image in images(store)? {
        let numbers = version::numbers(store, &image)?;
        versions.extend(numbers.into_iter().map(|number| (image.clone(), number)));
    }
    versions.retain(|version| !without.contains(version));
    let mut live = ContentSet::default();
    let count = versions.len() as u64;
    for ((image, number), done) in versions.into_iter().zip(1..) {
        let read = match version::read(store, &image, number) {
            // Another run has removed it meanwhile.
            Err(Error::NoVersion { .. }) => continue,
            read => read?,
        };
        if live.insert(&Content::Manifest(read.manifest)) {
            let manifest = version::manifest(store, &read)?;
            for name in manifest.chunks().iter().flatten() {
                live.insert(&Content::Chunk(*name));
            }
        }
        progress(done, count);
    }
    Ok(live)
}
