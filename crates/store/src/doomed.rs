//! Lists of the doomed: objects that a later run of gc removes.
//!
//! A list is the object `gc/TIME-NUMBER.doomed`, whose name is never used twice. `.swept` instead
//! of `.doomed` is its mark: what it lists was removed. Both have one form, numbers little endian:
//! 8 bytes `extdooms`, 4 bytes of the format (1), 8 bytes of seconds since 1970 and 8 of seconds
//! since the boot, 16 bytes of the boot's id, for each object 38 bytes (1 for a chunk and 2 for a
//! manifest, hash, generation, 4 bytes of its length), and the BLAKE3 of all before it. A mark
//! lists nothing.

use std::collections::HashSet;

use crate::chunk;
use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::host::{Host, NO_BOOT};
use crate::manifest;
use crate::object_name::ObjectName;
use crate::store::Store;

/// Folder of the lists and of their marks.
pub(crate) const FOLDER: &str = "gc";
/// The most objects of a list.
pub(crate) const MOST_OBJECTS: usize = 16 << 10;
/// The most lists that are read of a store.
const MOST_LISTS: usize = 1024;
const MAGIC: [u8; 8] = *b"extdooms";
const FORMAT: u32 = 1;
const HEADER: usize = 44;
const ENTRY: usize = 1 + ObjectHash::LEN + 1 + 4;

/// The most bytes of a list.
pub(crate) const LONGEST: u64 = (HEADER + MOST_OBJECTS * ENTRY + ObjectHash::LEN) as u64;

/// An object of content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Content {
    Chunk(ObjectName),
    Manifest(ObjectName),
}

impl Content {
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Chunk(name) => chunk::path(name),
            Self::Manifest(name) => manifest::path(name),
        }
    }

    /// The number of its kind in a list, and its name.
    pub(crate) fn parts(&self) -> (u8, &ObjectName) {
        match self {
            Self::Chunk(name) => (1, name),
            Self::Manifest(name) => (2, name),
        }
    }
}

/// A moment by the clocks of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    wall: u64,
    uptime: u64,
    boot: [u8; 16],
}

impl Moment {
    pub(crate) fn now(host: &dyn Host) -> Self {
        Self {
            wall: host.wall(),
            uptime: host.uptime().as_secs(),
            boot: host.boot(),
        }
    }

    /// Seconds from `self` to `later`, by the clock that counts the fewest. The uptime counts
    /// within one boot.
    pub(crate) fn secs_to(&self, later: &Self) -> u64 {
        let wall = later.wall.saturating_sub(self.wall);
        if self.boot == NO_BOOT || self.boot != later.boot {
            return wall;
        }
        wall.min(later.uptime.saturating_sub(self.uptime))
    }
}

/// A list, or a mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DoomList {
    pub(crate) made: Moment,
    pub(crate) objects: Vec<(Content, u32)>,
}

impl DoomList {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(self.made.wall.to_le_bytes());
        bytes.extend(self.made.uptime.to_le_bytes());
        bytes.extend(self.made.boot);
        for (content, len) in &self.objects {
            let (kind, name) = content.parts();
            bytes.push(kind);
            bytes.extend(name.hash.as_bytes());
            bytes.push(name.generation);
            bytes.extend(len.to_le_bytes());
        }
        let hash = ObjectHash::of(&bytes);
        bytes.extend(hash.as_bytes());
        bytes
    }

    /// The list in `bytes`, or the reason why there is none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        let cut = bytes.split_last_chunk::<{ ObjectHash::LEN }>();
        let (bytes, hash) = cut.ok_or("it is too short")?;
        let header = bytes.first_chunk::<HEADER>().ok_or("it is too short")?;
        if header[..8] != MAGIC {
            return Err("it is no list".into());
        }
        let format = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"));
        if format != FORMAT {
            return Err(format!("its format is {format}, and 1 is known"));
        }
        if ObjectHash::of(bytes).as_bytes() != hash {
            return Err("its content has another hash".into());
        }
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8"));
        let made = Moment {
            wall: number(12),
            uptime: number(20),
            boot: header[28..HEADER].try_into().expect("16 bytes"),
        };
        let (entries, rest) = bytes[HEADER..].as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err("its last entry is cut off".into());
        }
        let entry = |entry: &[u8; ENTRY]| -> std::result::Result<_, String> {
            let hash = entry[1..1 + ObjectHash::LEN].try_into().expect("32 bytes");
            let name = ObjectName {
                hash: ObjectHash::from_bytes(hash),
                generation: entry[1 + ObjectHash::LEN],
            };
            let len = u32::from_le_bytes(entry[ENTRY - 4..].try_into().expect("4 bytes"));
            match entry[0] {
                1 => Ok((Content::Chunk(name), len)),
                2 => Ok((Content::Manifest(name), len)),
                kind => Err(format!("it has an object of the kind {kind}")),
            }
        };
        let objects: std::result::Result<_, _> = entries.iter().map(entry).collect();
        objects.map(|objects| Self { made, objects })
    }
}

/// A new name for a list, without what tells lists and marks apart.
pub(crate) fn new_name(host: &dyn Host) -> String {
    format!("{:012}-{:016x}", host.wall(), host.random())
}

/// The path of a list.
pub(crate) fn list_path(name: &str) -> String {
    format!("{FOLDER}/{name}{LIST}")
}

/// The path of the mark of a list.
pub(crate) fn mark_path(name: &str) -> String {
    format!("{FOLDER}/{name}{MARK}")
}

const LIST: &str = ".doomed";
const MARK: &str = ".swept";

/// The names of the lists of a store, and of the marks.
///
/// # Errors
/// A failed listing; [`Error::Damaged`] for too many.
pub(crate) fn names(store: &Store) -> Result<(Vec<String>, Vec<String>)> {
    let (mut lists, mut marks) = (Vec::new(), Vec::new());
    for (object, _) in store.requests.children(FOLDER)?.objects {
        if let Some(name) = object.strip_suffix(LIST) {
            lists.push(name.to_owned());
        } else if let Some(name) = object.strip_suffix(MARK) {
            marks.push(name.to_owned());
        }
    }
    if lists.len() > MOST_LISTS {
        let why = format!("it has more than {MOST_LISTS} lists of objects to remove");
        return Err(Error::damaged(FOLDER, why));
    }
    lists.sort_unstable();
    Ok((lists, marks))
}

/// A list or a mark, and when the server says that it was stored.
///
/// # Errors
/// [`Error::Damaged`]; a failed request.
pub(crate) fn read(store: &Store, object: &str) -> Result<Option<(DoomList, u64)>> {
    let Some((content, marks)) = store.requests.get(object, LONGEST)? else {
        return Ok(None);
    };
    let list = DoomList::from_bytes(&content).map_err(|why| Error::damaged(object, why))?;
    Ok(Some((list, marks.modified)))
}

/// All objects of all lists. A list that is removed meanwhile has none.
///
/// # Errors
/// A list that is damaged; a failed request.
pub(crate) fn read_all(store: &Store) -> Result<HashSet<Content>> {
    let mut doomed = HashSet::new();
    for name in names(store)?.0 {
        let list = read(store, &list_path(&name))?;
        let objects = list.into_iter().flat_map(|(list, _)| list.objects);
        doomed.extend(objects.map(|(content, _)| content));
    }
    Ok(doomed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> DoomList {
        let name = |generation| ObjectName {
            hash: ObjectHash::of(&[generation]),
            generation,
        };
        DoomList {
            made: Moment {
                wall: 1_800_000_000,
                uptime: 77,
                boot: [3; 16],
            },
            objects: vec![
                (Content::Chunk(name(0)), 512 << 10),
                (Content::Manifest(name(2)), 24),
            ],
        }
    }

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let bytes = list().to_bytes();
        assert_eq!(DoomList::from_bytes(&bytes), Ok(list()));
        for at in 0..bytes.len() {
            assert!(DoomList::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(DoomList::from_bytes(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_slowest_clock_counts() {
        let then = list().made;
        let later = |wall, uptime, boot| Moment {
            wall: then.wall + wall,
            uptime: then.uptime + uptime,
            boot: [boot; 16],
        };
        assert_eq!(then.secs_to(&later(90, 80, 3)), 80);
        assert_eq!(then.secs_to(&later(70, 80, 3)), 70);
        assert_eq!(then.secs_to(&later(90, 80, 4)), 90, "another boot");
        let back = Moment { wall: 0, ..then };
        assert_eq!(then.secs_to(&back), 0, "a clock that was set back");
    }
}
