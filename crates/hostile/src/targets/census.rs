//! Everything that a volume shows by names, to be compared with what it shows later.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use extant::{Error, FileKind, Node, Options, Result, SeekTarget, Volume};

use crate::disk::Disk;
use crate::seeds;

/// The most names, and bytes of one file, that are looked at.
const NAMES: usize = 2000;
const BYTES: usize = 1 << 20;
/// Bytes that are hashed at once, unless they are all zero.
const CHUNK: usize = 1024;

/// A line for each path.
pub(super) type Census = BTreeMap<Vec<u8>, String>;

/// Takes the census of an image. A waiting log is replayed in a copy.
///
/// # Errors
/// A name leads nowhere, or a file cannot be read.
pub(super) fn census(image: Vec<u8>) -> Result<Census> {
    let volume = Options::new()
        .tuning(seeds::tuning())
        .open_volume_on(Arc::new(Disk::new(image, false)))?;
    let mut census = Census::new();
    let mut first = std::collections::HashMap::new();
    let mut open = vec![(Vec::new(), volume.root()?)];
    while let Some((path, dir)) = open.pop() {
        let mut names = Vec::new();
        volume.readdir(&dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            names.len() < NAMES
        })?;
        names.retain(|name| name != b"." && name != b"..");
        names.sort_unstable();
        for name in names {
            let node = volume.lookup(&dir, &name)?;
            let path = [&path[..], b"/", &name].concat();
            // Numbers may change; which names are one file does not.
            let line = match first.entry(node.ino()) {
                Entry::Occupied(first) => format!("{:?}", first.get()),
                Entry::Vacant(slot) => {
                    slot.insert(path.escape_ascii().to_string());
                    describe(&volume, &node)?
                }
            };
            let is_dir = node.kind() == FileKind::Directory;
            if census.insert(path.clone(), line).is_none() && is_dir {
                open.push((path, node));
            }
        }
    }
    drop(open);
    volume.unmount()?;
    Ok(census)
}

fn describe(volume: &Volume, node: &Node) -> Result<String> {
    let attr = volume.getattr(node)?;
    let mut attributes = volume.listxattr(node)?;
    attributes.sort_unstable();
    let mut hasher = DefaultHasher::new();
    for name in attributes {
        let value = volume.getxattr(node, &name)?;
        (name, value).hash(&mut hasher);
    }
    match attr.kind {
        FileKind::Regular => match content(volume, node, attr.size, &mut hasher) {
            // An encrypted one has no contents without its key.
            Ok(()) | Err(Error::NoKey) => {}
            Err(error) => return Err(error),
        },
        FileKind::Symlink => volume.readlink(node)?.hash(&mut hasher),
        _ => {}
    }
    // The size of a directory may change when names are found a place.
    let size = match attr.kind {
        FileKind::Directory => 0,
        _ => attr.size,
    };
    let (mode, rdev) = (attr.mode(), attr.rdev);
    let owner = (attr.uid, attr.gid, attr.nlink);
    let hash = hasher.finish();
    Ok(format!("{mode:o} {owner:?} {size} {rdev} {hash:x}"))
}

/// Hashes the data of a file, not its holes.
fn content(volume: &Volume, node: &Node, size: u64, hasher: &mut DefaultHasher) -> Result<()> {
    let mut buf = [0; CHUNK];
    let (mut at, mut left) = (0, BYTES);
    while at < size && left > 0 {
        at = match volume.seek(node, SeekTarget::Data(at)) {
            Ok(data) => data / CHUNK as u64 * CHUNK as u64,
            Err(Error::NoSuchAddress) => break,
            Err(error) => return Err(error),
        };
        let read = volume.read(node, at, &mut buf)?;
        let data = buf.get(..read).unwrap_or_default();
        if data.iter().any(|byte| *byte != 0) {
            (at, data).hash(hasher);
        }
        at += CHUNK as u64;
        left = left.saturating_sub(CHUNK);
    }
    Ok(())
}

/// The first difference of two, in words.
pub(super) fn difference(old: &Census, new: &Census) -> Option<String> {
    let gone = old.keys().find(|path| !new.contains_key(*path));
    let come = new.keys().find(|path| !old.contains_key(*path));
    let other = old
        .iter()
        .find(|(path, line)| new.get(*path) != Some(*line));
    let name = |path: &Vec<u8>| path.escape_ascii().to_string();
    if let Some(path) = gone {
        return Some(format!("{} is gone", name(path)));
    }
    if let Some(path) = come {
        return Some(format!("{} is new", name(path)));
    }
    let (path, line) = other?;
    let now = new.get(path);
    Some(format!("{}: {line}, now {now:?}", name(path)))
}
