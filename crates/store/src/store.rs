//! A prefix of an object store, with calls that block.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::host::{Host, ThisHost};
use crate::location::{Location, Prefix};
use crate::requests::{Requests, Server};
use crate::seal::Seal;

/// The object with the code of a store's key, and its most bytes.
const KEY: &str = "key";
const LONGEST_KEY: u64 = 256;

/// The part of an object store in which images share chunks.
pub struct Store {
    /// The image that calls are about, if the store was opened for one.
    image: Option<Location>,
    pub(crate) requests: Box<dyn Requests>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) seal: Seal,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.image)
    }
}

impl Store {
    /// The store of `location`, for the image there. Credentials, endpoints and regions are those
    /// of the environment, by the names that the vendors' own tools have (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT` ...), and so is the file with the key of the store (`EXTANT_STORE_KEY`).
    /// Sends no request.
    ///
    /// # Errors
    /// [`Error::Client`]: something is missing in the environment, or is wrong.
    pub fn open(location: &Location) -> Result<Self> {
        let server = Server::open(location.root())?;
        let image = Some(location.clone());
        Self::new(image, Box::new(server), Arc::new(ThisHost)).sealed()
    }

    /// The store at `prefix`, for calls that are about all images.
    ///
    /// # Errors
    /// As those of [`Store::open()`].
    pub fn open_prefix(prefix: &Prefix) -> Result<Self> {
        let server = Server::open(prefix.root())?;
        Self::new(None, Box::new(server), Arc::new(ThisHost)).sealed()
    }

    /// With the key that the environment names.
    fn sealed(mut self) -> Result<Self> {
        let seal = Seal::of_environment();
        self.seal = seal.map_err(|what| Error::Client { what })?;
        Ok(self)
    }

    pub(crate) fn new(
        image: Option<Location>,
        requests: Box<dyn Requests>,
        host: Arc<dyn Host>,
    ) -> Self {
        Self {
            image,
            requests,
            host,
            seal: Seal::default(),
        }
    }

    /// The address that it was opened by: calls are about its image.
    ///
    /// # Errors
    /// [`Error::NoImage`] for a store that was opened for none.
    pub(crate) fn location(&self) -> Result<&Location> {
        self.image.as_ref().ok_or(Error::NoImage)
    }

    /// Checks that what is to be stored has the key that the store has: an object `key` has a code
    /// of it. The first push with a key makes it, where there is no image yet.
    ///
    /// # Errors
    /// [`Error::Sealed`]; a failed request.
    pub(crate) fn check_key(&self) -> Result<()> {
        let found = self.get(KEY, LONGEST_KEY)?;
        let code = self.seal.code("key");
        let why = match (&code, &found) {
            (None, None) => return Ok(()),
            (Some(code), Some(found)) if code.as_bytes() == found => return Ok(()),
            (None, Some(_)) => "the store needs a key, whose file EXTANT_STORE_KEY names",
            (Some(_), Some(_)) => "the store has another key than EXTANT_STORE_KEY names",
            (Some(code), None) => {
                if self.requests.children("names")?.folders.is_empty() {
                    self.create(KEY, code.clone().into_bytes())?;
                    return match self.get(KEY, LONGEST_KEY)? {
                        Some(there) if there == code.as_bytes() => Ok(()),
                        _ => Err(Error::sealed(KEY, "another push has made it meanwhile")),
                    };
                }
                "the store has images without a key, and EXTANT_STORE_KEY names one"
            }
        };
        Err(Error::sealed(KEY, why))
    }

    /// The content of an object, which is not there (`None`) or has at most so many bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a longer one; a failed request.
    pub(crate) fn get(&self, object: &str, at_most: u64) -> Result<Option<Vec<u8>>> {
        let got = self.requests.get(object, at_most)?;
        Ok(got.map(|(content, _)| content))
    }

    /// Returns whether there is an object of this name that has a content of at most so many bytes.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn has(&self, object: &str, at_most: u64) -> Result<bool> {
        let found = self.requests.look(object)?;
        Ok(found.is_some_and(|found| (1..=at_most).contains(&found.bytes)))
    }

    /// Stores an object that has the same content whenever it is stored.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn put(&self, object: &str, content: Vec<u8>) -> Result<()> {
        self.requests.put(object, content)
    }

    /// Stores an object if there is none of its name. Returns whether the store says that it did:
    /// a request that was repeated may find the object of its first attempt, and some servers do
    /// not look.
    ///
    /// # Errors
    /// A failed request: the object may have been stored.
    pub(crate) fn create(&self, object: &str, content: Vec<u8>) -> Result<bool> {
        self.requests.create(object, content)
    }
}
