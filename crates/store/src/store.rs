//! A prefix of an object store, with calls that block.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use crate::error::{Error, Result};
use crate::location::Location;

/// Threads that carry out the requests of all callers.
const THREADS: usize = 2;

/// The variables of the environment that stores are set up by begin so.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// The part of an object store in which images share chunks.
pub struct Store {
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
    /// The store of `location`. Credentials, endpoints and regions are those of the environment, by
    /// the names that the vendors' own tools have (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` ...).
    /// Sends no request.
    ///
    /// # Errors
    /// [`Error::Client`]: something is missing in the environment, or is wrong.
    pub fn open(location: &Location) -> Result<Self> {
        // The client takes the provider of the process, and there is one in any case.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let unusable = |error: &dyn std::fmt::Display| Error::Client {
            what: error.to_string(),
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("extant-store")
            .enable_all()
            .build()?;
        let (objects, prefix) = {
            let _inside = runtime.enter();
            client(location.root()).map_err(|error| unusable(&error))?
        };
        Ok(Self {
            objects,
            prefix,
            runtime,
        })
    }

    fn path(&self, object: &str) -> Path {
        object
            .split('/')
            .fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// The content of an object, which is not there (`None`) or has at most so many bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a longer one; a failed request.
    pub(crate) fn get(&self, object: &str, at_most: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(object);
        let got = self.runtime.block_on(async {
            let got = self.objects.get(&path).await?;
            if got.meta.size > at_most {
                return Ok(None);
            }
            got.bytes().await.map(Some)
        });
        match got {
            Ok(Some(content)) => Ok(Some(content.into())),
            Ok(None) => Err(Error::damaged(object, "it is too long")),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(object, error)),
        }
    }

    /// Returns whether there is an object of this name.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn has(&self, object: &str) -> Result<bool> {
        let path = self.path(object);
        match self.runtime.block_on(self.objects.head(&path)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed(object, error)),
        }
    }

    /// Stores an object that has the same content whenever it is stored.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn put(&self, object: &str, content: Vec<u8>) -> Result<()> {
        let path = self.path(object);
        let put =
            self.objects
                .put_opts(&path, content.into(), PutOptions::from(PutMode::Overwrite));
        let put = self.runtime.block_on(put);
        put.map(drop).map_err(|error| failed(object, error))
    }

    /// Stores an object if there is none of its name. Returns whether it did.
    ///
    /// # Errors
    /// A failed request: the object may have been stored.
    pub(crate) fn create(&self, object: &str, content: Vec<u8>) -> Result<bool> {
        let path = self.path(object);
        let put = self
            .objects
            .put_opts(&path, content.into(), PutOptions::from(PutMode::Create));
        match self.runtime.block_on(put) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(failed(object, error)),
        }
    }

    /// The last parts of the names of all objects in a folder, not in folders of that.
    ///
    /// # Errors
    /// A failed request.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path(folder);
        let listed = self.objects.list_with_delimiter(Some(&path));
        let listed = self.runtime.block_on(listed);
        let objects = listed.map_err(|error| failed(folder, error))?.objects;
        let names = objects
            .iter()
            .filter_map(|object| object.location.filename());
        Ok(names.map(str::to_owned).collect())
    }
}

/// The client of the store at `root`, and the prefix there.
fn client(root: &Url) -> object_store::Result<(Arc<dyn ObjectStore>, Path)> {
    let of_stores = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let options = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        of_stores(&name).then(|| (name.to_ascii_lowercase(), value))
    });
    let (objects, prefix) = object_store::parse_url_opts(root, options)?;
    Ok((objects.into(), prefix))
}

fn failed(object: &str, error: object_store::Error) -> Error {
    Error::Request {
        object: object.to_owned(),
        source: Box::new(error),
    }
}
