//! The versions of an image: numbered objects, each of which names a manifest.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::manifest::{self, Manifest};
use crate::object_name::ObjectName;
use crate::store::Store;

/// The most bytes of a version's object.
const LONGEST: u64 = 4096;

/// A version of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// Its number, from 1 on.
    pub number: u64,
    /// The name of its manifest.
    pub manifest: ObjectName,
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
    /// Tells this push from others of the same image.
    push: u64,
    /// The code of a store's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

impl Record {
    /// All that the code of a version is of.
    fn fields(&self, name: &str, number: u64) -> String {
        let Record {
            format,
            manifest,
            bytes,
            time,
            push,
            code: _,
        } = self;
        format!("{name} {number} {format} {manifest} {bytes} {time} {push}")
    }
}

const FORMAT: u32 = 1;

/// Attempts to create a version while a server takes none of two requests.
const CONFLICTS: usize = 5;

fn folder(name: &str) -> String {
    format!("names/{name}")
}

pub(crate) fn path(name: &str, number: u64) -> String {
    format!("names/{name}/{number:0DIGITS$}")
}

/// Digits of a number in the name of an object.
const DIGITS: usize = 20;

/// The numbers of the versions of the store's image, the current one last, and what each is.
/// One request for each.
///
/// # Errors
/// A failed listing. A version that cannot be read does not keep the others from being shown.
pub fn versions(store: &Store) -> Result<Vec<(u64, Result<Version>)>> {
    let name = store.location()?.name();
    let numbers = numbers(store, name)?;
    let read = |number| (number, read(store, name, number));
    Ok(numbers.into_iter().map(read).collect())
}

/// The numbers of the versions of an image, in order. Names of another form are no versions.
pub(crate) fn numbers(store: &Store, name: &str) -> Result<Vec<u64>> {
    let children = store.requests.children(&folder(name))?;
    let number = |(name, _): &(String, _)| {
        let plain = name.len() == DIGITS && name.bytes().all(|digit| digit.is_ascii_digit());
        let number = plain.then(|| name.parse().ok()).flatten();
        number.filter(|&number| number > 0)
    };
    let mut numbers: Vec<u64> = children.objects.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The number of the current version; zero if there is none.
pub(crate) fn last(store: &Store, name: &str) -> Result<u64> {
    Ok(numbers(store, name)?.last().copied().unwrap_or(0))
}

/// The version that the store's location asks for.
pub(crate) fn find(store: &Store) -> Result<Version> {
    let location = store.location()?;
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
    let fields = record.fields(name, number);
    let checked = store.seal.check(&fields, record.code.as_deref());
    checked.map_err(|why| Error::sealed(&object, why))?;
    let manifest = record.manifest.parse();
    Ok(Version {
        number,
        manifest: manifest.map_err(|error| Error::damaged(&object, error))?,
        bytes: record.bytes,
        time: record.time,
    })
}

/// Makes `manifest`, which is stored, the version behind `last` of an image.
///
/// # Errors
/// [`Error::Overtaken`]; a failed request: there may be a version then if the store does not answer
/// any more.
pub(crate) fn create(
    store: &Store,
    name: &str,
    last: u64,
    (manifest_name, manifest): (ObjectName, &Manifest),
) -> Result<Version> {
    let number = last.checked_add(1);
    let number = number.ok_or_else(|| Error::damaged(folder(name), "it has no number left"))?;
    let version = Version {
        number,
        manifest: manifest_name,
        bytes: manifest.image_bytes(),
        time: store.host.wall(),
    };
    let mut record = Record {
        format: FORMAT,
        manifest: manifest_name.to_string(),
        bytes: version.bytes,
        time: version.time,
        push: store.host.random(),
        code: None,
    };
    record.code = store.seal.code(&record.fields(name, number));
    let content = serde_json::to_vec(&record).expect("numbers and texts");
    let object = path(name, number);
    let mut created = store.create(&object, content.clone());
    for _ in 0..CONFLICTS {
        // The answer is what is there: a request that failed may have been carried out, one that
        // was repeated meets its first attempt, and a server may have not looked.
        match store.get(&object, LONGEST)? {
            Some(found) if found == content => return Ok(version),
            Some(_) => return Err(Error::Overtaken { number }),
            // Two requests at once, of which a server took neither.
            None => match created {
                Err(error) => return Err(error),
                Ok(_) => created = store.create(&object, content.clone()),
            },
        }
    }
    Err(Error::Overtaken { number })
}

/// The manifest of a version.
///
/// # Errors
/// A manifest that is missing or damaged; a failed request.
pub(crate) fn manifest(store: &Store, version: &Version) -> Result<Manifest> {
    let object = manifest::path(&version.manifest);
    let content = store.get(&object, manifest::longest(version.bytes))?;
    let content = content.ok_or_else(|| Error::Missing {
        object: object.clone(),
    })?;
    let opened = store.seal.open(&version.manifest.hash, content);
    let content = opened.map_err(|why| Error::sealed(&object, why))?;
    if store.seal.hash(&content) != version.manifest.hash {
        return Err(Error::damaged(&object, "its content has another hash"));
    }
    let read = Manifest::from_bytes(&content).map_err(|why| Error::damaged(&object, why))?;
    if read.image_bytes() != version.bytes {
        return Err(Error::damaged(
            &object,
            "its image has another length than the version",
        ));
    }
    Ok(read)
}
