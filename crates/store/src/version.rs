//! The versions of an image: numbered objects, each of which names a manifest.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::location::Location;
use crate::manifest::{self, Manifest};
use crate::store::Store;

/// The most bytes of a version's object.
const LONGEST: u64 = 4096;

/// A version of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// Its number, from 1 on.
    pub number: u64,
    /// The hash of its manifest.
    pub manifest: ObjectHash,
    /// The image's length in bytes.
    pub bytes: u64,
    /// When it was pushed, in seconds since 1970.
    pub time: u64,
}

/// The object of a version.
#[derive(Serialize, Deserialize)]
struct Record {
    format: u32,
    manifest: String,
    bytes: u64,
    time: u64,
}

const FORMAT: u32 = 1;

fn folder(name: &str) -> String {
    format!("names/{name}")
}

fn path(name: &str, number: u64) -> String {
    format!("names/{name}/{number:020}")
}

/// The versions of the image at `location`, the current one last. Each has one request.
///
/// # Errors
/// A failed request; a version that is damaged.
pub fn versions(store: &Store, location: &Location) -> Result<Vec<Version>> {
    let numbers = numbers(store, location.name())?;
    let read = |number| read(store, location.name(), number);
    numbers.into_iter().map(read).collect()
}

/// The numbers of the versions of an image, in order. Names of another form are no versions.
fn numbers(store: &Store, name: &str) -> Result<Vec<u64>> {
    let names = store.list(&folder(name))?;
    let number = |name: &String| name.parse().ok().filter(|&number| number > 0);
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The number of the current version; zero if there is none.
pub(crate) fn last(store: &Store, name: &str) -> Result<u64> {
    Ok(numbers(store, name)?.last().copied().unwrap_or(0))
}

/// The version that `location` asks for.
pub(crate) fn find(store: &Store, location: &Location) -> Result<Version> {
    let number = match location.version() {
        Some(number) => number,
        None => last(store, location.name())?,
    };
    if number == 0 {
        return Err(Error::NoImage);
    }
    read(store, location.name(), number)
}

pub(crate) fn read(store: &Store, name: &str, number: u64) -> Result<Version> {
    let object = path(name, number);
    let content = store.get(&object, LONGEST)?;
    let content = content.ok_or(Error::NoVersion { number })?;
    let record: Record =
        serde_json::from_slice(&content).map_err(|error| Error::damaged(&object, error))?;
    if record.format != FORMAT {
        let why = format!("its format is {}, and 1 is known", record.format);
        return Err(Error::damaged(&object, why));
    }
    let manifest = record.manifest.parse();
    Ok(Version {
        number,
        manifest: manifest.map_err(|error| Error::damaged(&object, error))?,
        bytes: record.bytes,
        time: record.time,
    })
}

/// Makes `manifest`, which is stored, the version `number` of an image.
///
/// # Errors
/// [`Error::Overtaken`]; a failed request.
pub(crate) fn create(
    store: &Store,
    name: &str,
    number: u64,
    (hash, manifest): (ObjectHash, &Manifest),
) -> Result<Version> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let version = Version {
        number,
        manifest: hash,
        bytes: manifest.image_bytes(),
        time: now.map_or(0, |since| since.as_secs()),
    };
    let record = Record {
        format: FORMAT,
        manifest: hash.to_string(),
        bytes: version.bytes,
        time: version.time,
    };
    let content = serde_json::to_vec(&record).expect("numbers and a text");
    let object = path(name, number);
    // A request that was repeated may find the object of its first attempt.
    if !store.create(&object, content)? && read(store, name, number)? != version {
        return Err(Error::Overtaken { number });
    }
    Ok(version)
}

/// The manifest of a version.
///
/// # Errors
/// A manifest that is missing or damaged; a failed request.
pub(crate) fn manifest(store: &Store, version: &Version) -> Result<Manifest> {
    let object = manifest::path(&version.manifest);
    let content = store.get(&object, manifest::LONGEST)?;
    let content = content.ok_or_else(|| Error::Missing {
        object: object.clone(),
    })?;
    if ObjectHash::of(&content) != version.manifest {
        return Err(Error::damaged(&object, "its content has another hash"));
    }
    Manifest::from_bytes(&content).map_err(|why| Error::damaged(&object, why))
}
