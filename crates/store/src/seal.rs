//! The key of a store: content that only its owners can read, name or make.
//!
//! # Format
//! The key has 32 bytes. Three others are derived from it by BLAKE3:
//! - names: the hash of content is keyed by it, so a store cannot tell whether it has some content;
//! - content: of it and the content's hash the key of one object is made (AES-256-GCM). The nonce
//!   is made of the object's plain bytes, so equal content is an equal object, and owners of one
//!   key share chunks. An object is 12 bytes of nonce, the encrypted bytes, 16 bytes of tag;
//! - versions: a version has a code of its name, its number and all of its fields.
//!
//! # Limits
//! The store sees the number of chunks, their lengths once compressed, which of them versions
//! share, and the names of images. It can keep new versions back, and offer an old one as the
//! current one.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::hash::ObjectHash;

/// Bytes of a key.
const KEY: usize = 32;
/// Bytes that an encrypted object has more than its content.
pub(crate) const MORE: u64 = 64;
/// The variable of the environment that names the file with the key.
pub(crate) const VARIABLE: &str = "EXTANT_STORE_KEY";

/// A store's key, or none.
#[derive(Default)]
pub(crate) struct Seal(Option<Box<Keys>>);

/// The key of this process, once it is read.
static KEY_OF_ENVIRONMENT: OnceLock<Result<Option<Zeroizing<[u8; KEY]>>, String>> = OnceLock::new();

/// Reads the key that `EXTANT_STORE_KEY` names, for a process that may not be able to do so later.
/// It is read once, by this or with the first store.
///
/// # Errors
/// [`Error::Client`]: the file cannot be read, or has no key.
pub fn read_key() -> crate::Result<()> {
    let read = Seal::of_environment().map(drop);
    read.map_err(|what| Error::Client { what })
}

/// The key in a file: 32 bytes, or 64 hexadecimal digits and an end of the line.
fn read(path: &Path) -> Result<Zeroizing<[u8; KEY]>, String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * KEY + 8));
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(2 * KEY as u64 + 8).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if let Ok(key) = <&[u8; KEY]>::try_from(bytes.as_slice()) {
        return Ok(Zeroizing::new(*key));
    }
    let hash = blake3::Hash::from_hex(bytes.trim_ascii());
    let hash = hash.map_err(|_| "a key has 32 bytes or 64 hexadecimal digits")?;
    Ok(Zeroizing::new(*hash.as_bytes()))
}

struct Keys {
    names: Zeroizing<[u8; KEY]>,
    contents: Zeroizing<[u8; KEY]>,
    nonces: Zeroizing<[u8; KEY]>,
    versions: Zeroizing<[u8; KEY]>,
}

impl Seal {
    /// The key that the environment names.
    ///
    /// # Errors
    /// The file cannot be read, or has no key.
    pub(crate) fn of_environment() -> Result<Self, String> {
        let key = KEY_OF_ENVIRONMENT.get_or_init(|| match std::env::var_os(VARIABLE) {
            None => Ok(None),
            Some(path) if path.is_empty() => Err(format!("{VARIABLE} is empty")),
            Some(path) => {
                let path = Path::new(&path);
                let read = read(path).map(Some);
                read.map_err(|why| format!("{VARIABLE}: {}: {why}", path.display()))
            }
        });
        match key {
            Ok(Some(key)) => Ok(Self::with(key)),
            Ok(None) => Ok(Self::default()),
            Err(why) => Err(why.clone()),
        }
    }

    /// The seal of a key.
    pub(crate) fn with(key: &[u8; KEY]) -> Self {
        let derive = |what: &str| {
            let context = format!("extant object store 1 {what}");
            Zeroizing::new(blake3::derive_key(&context, key))
        };
        Self(Some(Box::new(Keys {
            names: derive("names"),
            contents: derive("contents"),
            nonces: derive("nonces"),
            versions: derive("versions"),
        })))
    }

    /// The hash that names content.
    pub(crate) fn hash(&self, content: &[u8]) -> ObjectHash {
        match &self.0 {
            None => ObjectHash::of(content),
            Some(keys) => ObjectHash::keyed(&keys.names, content),
        }
    }

    /// The object with `content`, of the content of this hash.
    pub(crate) fn close(&self, hash: &ObjectHash, content: Vec<u8>) -> Vec<u8> {
        let Some(keys) = &self.0 else {
            return content;
        };
        let nonce = ObjectHash::keyed(&keys.nonces, &content);
        let nonce: [u8; NONCE_LEN] = *nonce.as_bytes().first_chunk().expect("a hash is longer");
        let mut sealed = content;
        let tag = keys.of_object(hash).seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut sealed,
        );
        let tag = tag.expect("an object is shorter than the cipher's bound");
        [&nonce, sealed.as_slice(), tag.as_ref()].concat()
    }

    /// The content in `object`, of the content of this hash.
    ///
    /// # Errors
    /// The object was not made with this key for this hash.
    pub(crate) fn open(&self, hash: &ObjectHash, object: Vec<u8>) -> Result<Vec<u8>, String> {
        let Some(keys) = &self.0 else {
            return Ok(object);
        };
        let Some((nonce, sealed)) = object.split_first_chunk::<NONCE_LEN>() else {
            return Err("it is too short".to_owned());
        };
        let mut content = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = keys
            .of_object(hash)
            .open_in_place(nonce, Aad::empty(), &mut content);
        let len = opened
            .map_err(|_| format!("it is not of the key that {VARIABLE} names"))?
            .len();
        content.truncate(len);
        Ok(content)
    }

    /// The code of a version with these fields, if there is a key.
    pub(crate) fn code(&self, fields: &str) -> Option<String> {
        let keys = self.0.as_ref()?;
        Some(ObjectHash::keyed(&keys.versions, fields.as_bytes()).to_string())
    }

    /// Checks the code of a version with these fields.
    ///
    /// # Errors
    /// It was made with another key or none, or for other fields.
    pub(crate) fn check(&self, fields: &str, code: Option<&str>) -> Result<(), String> {
        match (self.code(fields), code) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(format!("it needs a key, whose file {VARIABLE} names")),
            (Some(_), None) => Err(format!("it has no key, and {VARIABLE} names one")),
            // By hashes, which are compared in constant time.
            (Some(own), Some(code)) => {
                match (blake3::Hash::from_hex(own), blake3::Hash::from_hex(code)) {
                    (Ok(own), Ok(code)) if own == code => Ok(()),
                    _ => Err(format!(
                        "it is not of the key that {VARIABLE} names, or is altered"
                    )),
                }
            }
        }
    }
}

impl Keys {
    /// The key of the object of the content of this hash.
    fn of_object(&self, hash: &ObjectHash) -> LessSafeKey {
        let key = Zeroizing::new(*ObjectHash::keyed(&self.contents, hash.as_bytes()).as_bytes());
        let key = UnboundKey::new(&AES_256_GCM, &*key);
        LessSafeKey::new(key.expect("a hash has the length of a key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_comes_back_with_its_key_and_hash_alone() {
        let (one, other) = (Seal::with(&[1; KEY]), Seal::with(&[2; KEY]));
        let content = b"some bytes".repeat(50);
        let hash = one.hash(&content);
        assert_ne!(hash, other.hash(&content));
        assert_ne!(hash, ObjectHash::of(&content));
        let object = one.close(&hash, content.clone());
        assert_eq!(
            object,
            one.close(&hash, content.clone()),
            "equal content is an equal object"
        );
        assert!(object.len() as u64 <= content.len() as u64 + MORE);
        assert_eq!(one.open(&hash, object.clone()), Ok(content.clone()));
        assert!(other.open(&hash, object.clone()).is_err());
        assert!(one.open(&one.hash(b"other"), object.clone()).is_err());
        for at in 0..object.len() {
            let mut torn = object.clone();
            torn[at] ^= 1;
            assert!(one.open(&hash, torn).is_err(), "byte {at}");
            assert!(
                one.open(&hash, object[..at].to_vec()).is_err(),
                "{at} bytes"
            );
        }
        let plain = object.windows(10).any(|bytes| bytes == b"some bytes");
        assert!(!plain, "it is there to read");
        // Other content of the same hash has another nonce.
        let shorter = one.close(&hash, content[1..].to_vec());
        assert_ne!(object[..NONCE_LEN], shorter[..NONCE_LEN]);
    }

    #[test]
    fn a_version_needs_its_code() {
        let (none, one) = (Seal::default(), Seal::with(&[1; KEY]));
        let code = one.code("fields").unwrap();
        assert_eq!(none.code("fields"), None);
        assert_eq!(one.check("fields", Some(&code)), Ok(()));
        assert_eq!(none.check("fields", None), Ok(()));
        let other = Seal::with(&[2; KEY]).code("fields").unwrap();
        for code in [None, Some(other.as_str()), Some(""), Some("0")] {
            assert!(one.check("fields", code).is_err(), "{code:?}");
        }
        assert!(one.check("other fields", Some(&code)).is_err());
        assert!(none.check("fields", Some(&code)).is_err());
    }

    #[test]
    fn a_file_has_a_key_in_bytes_or_digits() {
        let folder = extant_testkit::TempDir::new("key").unwrap();
        let path = folder.join("key");
        let name = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read(&path).map(|key| Seal::with(&key).hash(b"content"))
        };
        let of_bytes = name(&[0xab; KEY]).unwrap();
        assert_eq!(name("ab".repeat(KEY).as_bytes()), Ok(of_bytes));
        assert_eq!(
            name(format!("{}\n", "AB".repeat(KEY)).as_bytes()),
            Ok(of_bytes)
        );
        for bad in [
            vec![],
            vec![7; 31],
            vec![7; 33],
            vec![b'a'; 63],
            vec![b'a'; 4000],
        ] {
            assert!(name(&bad).is_err(), "{} bytes", bad.len());
        }
        assert!(read(&folder.join("none")).is_err());
    }
}
