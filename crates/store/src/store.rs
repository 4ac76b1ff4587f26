//! A prefix of an object store, with calls that block.

use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::{Builder, Runtime};

use crate::client;
use crate::error::{Error, Result};
use crate::location::Location;

/// Threads that carry out the requests of all callers.
const THREADS: usize = 2;

/// The most objects of a folder that is listed.
const MOST_LISTED: usize = 1 << 20;

/// The part of an object store in which images share chunks.
pub struct Store {
    location: Location,
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({}, {})", self.objects, self.prefix)
    }
}

impl Store {
    /// The store of `location`, for the image there. Credentials, endpoints and regions are those
    /// of the environment, by the names that the vendors' own tools have (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT` ...). Sends no request.
    ///
    /// # Errors
    /// [`Error::Client`]: something is missing in the environment, or is wrong.
    pub fn open(location: &Location) -> Result<Self> {
        // The client takes the provider of the process, and there is one in any case.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("extant-store")
            .enable_all()
            .build()?;
        let opened = {
            let _inside = runtime.enter();
            client::open(location.root())
        };
        let (objects, prefix) = opened.map_err(|error| Error::Client {
            what: error.to_string(),
        })?;
        Ok(Self {
            location: location.clone(),
            objects,
            prefix,
            runtime,
        })
    }

    /// The address that it was opened by: calls are about its image.
    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    fn path(&self, object: &str) -> Path {
        object
            .split('/')
            .fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// The content of an object, which is not there (`None`) or has at most so many bytes. More are
    /// not read, whatever the server says of its length.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a longer one; a failed request.
    pub(crate) fn get(&self, object: &str, at_most: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(object);
        let got = self.runtime.block_on(async {
            let got = self.objects.get(&path).await?;
            let expected = got.meta.size.min(at_most);
            let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
            let mut pieces = got.into_stream();
            while let Some(piece) = pieces.try_next().await? {
                content.extend_from_slice(&piece);
                if content.len() as u64 > at_most {
                    return Ok(None);
                }
            }
            Ok(Some(content))
        });
        match got {
            Ok(Some(content)) => Ok(Some(content)),
            Ok(None) => Err(Error::damaged(object, "it is too long")),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::request(object, &error)),
        }
    }

    /// Returns whether there is an object of this name that has a content of at most so many bytes.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn has(&self, object: &str, at_most: u64) -> Result<bool> {
        let path = self.path(object);
        match self.runtime.block_on(self.objects.head(&path)) {
            Ok(found) => Ok((1..=at_most).contains(&found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(Error::request(object, &error)),
        }
    }

    /// Stores an object that has the same content whenever it is stored.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn put(&self, object: &str, content: Vec<u8>) -> Result<()> {
        self.put_as(object, content, PutMode::Overwrite)
            .map_err(|error| Error::request(object, &error))
    }

    /// Stores an object if there is none of its name. Returns whether the store says that it did:
    /// a request that was repeated may find the object of its first attempt, and some servers do
    /// not look.
    ///
    /// # Errors
    /// A failed request: the object may have been stored.
    pub(crate) fn create(&self, object: &str, content: Vec<u8>) -> Result<bool> {
        match self.put_as(object, content, PutMode::Create) {
            Ok(()) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(Error::request(object, &error)),
        }
    }

    fn put_as(&self, object: &str, content: Vec<u8>, mode: PutMode) -> object_store::Result<()> {
        let path = self.path(object);
        let put = self
            .objects
            .put_opts(&path, content.into(), PutOptions::from(mode));
        self.runtime.block_on(put).map(drop)
    }

    /// The names of the objects in a folder and below it, without the folders.
    ///
    /// # Errors
    /// A failed request; [`Error::Damaged`] for a folder of too many.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path(folder);
        let listed = self.runtime.block_on(async {
            let mut objects = self.objects.list(Some(&path));
            let mut names = Vec::new();
            while let Some(object) = objects.try_next().await? {
                names.extend(object.location.filename().map(str::to_owned));
                if names.len() > MOST_LISTED {
                    return Ok(None);
                }
            }
            Ok(Some(names))
        });
        match listed {
            Ok(Some(names)) => Ok(names),
            Ok(None) => Err(Error::damaged(folder, "it has more than 1048576 objects")),
            Err(error) => Err(Error::request(folder, &error)),
        }
    }
}
