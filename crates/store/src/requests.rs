//! The requests that a store serves, as calls that block.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use crate::client;
use crate::error::{Error, Result};
use crate::host::Deadline;

/// Threads that carry out the requests of all callers.
const THREADS: usize = 2;

/// The first pause before a request whose connection failed is repeated; each is three times as
/// long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// An object without its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Marks {
    pub(crate) bytes: u64,
    /// When it was stored, in seconds since 1970 by the server's clock.
    pub(crate) modified: u64,
}

/// The direct children of a folder.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Children {
    pub(crate) objects: Vec<(String, Marks)>,
    pub(crate) folders: Vec<String>,
}

/// Requests about objects, which are named by their paths below the store's prefix. A model has
/// its own store.
pub(crate) trait Requests: Send + Sync {
    /// An object of at most so many bytes. More are not read, whatever the server says.
    fn get(&self, object: &str, at_most: u64) -> Result<Option<(Vec<u8>, Marks)>>;

    fn look(&self, object: &str) -> Result<Option<Marks>>;

    fn put(&self, object: &str, content: Vec<u8>) -> Result<()>;

    /// Stores an object if there is none of its name. Returns whether the store says that it did.
    fn create(&self, object: &str, content: Vec<u8>) -> Result<bool>;

    /// Removes objects, also where some of them are not there. Looks at the clock before each: once
    /// the deadline is over it sends no more requests.
    fn remove(&self, objects: &[String], until: Option<&Deadline>) -> Result<()>;

    fn children(&self, folder: &str) -> Result<Children>;

    /// Calls `each` for the objects in a folder and below it, by their paths from there.
    fn walk(&self, folder: &str, each: &mut dyn FnMut(&str, Marks) -> Result<()>) -> Result<()>;
}

/// The server or the folder at an address.
pub(crate) struct Server {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.objects, self.prefix)
    }
}

impl Server {
    /// The client of the store at `root`. Sends no request.
    pub(crate) fn open(root: &Url) -> Result<Self> {
        // The client takes the provider of the process, and there is one in any case.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("extant-store")
            .enable_all()
            .build()?;
        let opened = {
            let _inside = runtime.enter();
            client::open(root)
        };
        let (objects, prefix) = opened.map_err(|error| Error::Client {
            what: error.to_string(),
        })?;
        Ok(Self {
            objects,
            prefix,
            runtime,
        })
    }

    fn path(&self, object: &str) -> Path {
        let parts = object.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Carries out a request, again if its connection fails: the client of `object_store` repeats
    /// neither a request that makes an object, nor a list that breaks off.
    fn patiently<T>(
        &self,
        request: impl AsyncFn() -> object_store::Result<T>,
    ) -> object_store::Result<T> {
        let (begin, mut pause) = (Instant::now(), FIRST_PAUSE);
        self.runtime.block_on(async {
            loop {
                match request().await {
                    Err(error)
                        if client::is_cut_off(&error)
                            && begin.elapsed() + pause < client::PATIENCE =>
                    {
                        tracing::debug!(%error, "a request is repeated");
                        tokio::time::sleep(pause).await;
                        pause *= 3;
                    }
                    done => return done,
                }
            }
        })
    }

    fn put_as(&self, object: &str, content: Vec<u8>, mode: PutMode) -> object_store::Result<()> {
        let path = self.path(object);
        let content = PutPayload::from(content);
        self.patiently(async || {
            let options = PutOptions::from(mode.clone());
            let put = self.objects.put_opts(&path, content.clone(), options);
            put.await.map(drop)
        })
    }
}

fn marks(object: &ObjectMeta) -> Marks {
    Marks {
        bytes: object.size,
        modified: u64::try_from(object.last_modified.timestamp()).unwrap_or(0),
    }
}

impl Requests for Server {
    fn get(&self, object: &str, at_most: u64) -> Result<Option<(Vec<u8>, Marks)>> {
        let path = self.path(object);
        let got = self.patiently(async || {
            let got = self.objects.get(&path).await?;
            let marks = marks(&got.meta);
            let expected = got.meta.size.min(at_most);
            let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
            let mut pieces = got.into_stream();
            while let Some(piece) = pieces.try_next().await? {
                content.extend_from_slice(&piece);
                if content.len() as u64 > at_most {
                    return Ok(None);
                }
            }
            Ok(Some((content, marks)))
        });
        match got {
            Ok(Some(got)) => Ok(Some(got)),
            Ok(None) => Err(Error::damaged(object, "it is too long")),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::request(object, &error)),
        }
    }

    fn look(&self, object: &str) -> Result<Option<Marks>> {
        let path = self.path(object);
        match self.patiently(async || self.objects.head(&path).await) {
            Ok(found) => Ok(Some(marks(&found))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::request(object, &error)),
        }
    }

    fn put(&self, object: &str, content: Vec<u8>) -> Result<()> {
        self.put_as(object, content, PutMode::Overwrite)
            .map_err(|error| Error::request(object, &error))
    }

    fn create(&self, object: &str, content: Vec<u8>) -> Result<bool> {
        match self.put_as(object, content, PutMode::Create) {
            Ok(()) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(Error::request(object, &error)),
        }
    }

    fn remove(&self, objects: &[String], until: Option<&Deadline>) -> Result<()> {
        let paths: Vec<_> = objects.iter().map(|object| Ok(self.path(object))).collect();
        // A path is taken from here when its request is about to be sent.
        let until = until.cloned();
        let in_time = move |_: &_| {
            let is_over = until.as_ref().is_some_and(Deadline::is_over);
            std::future::ready(!is_over)
        };
        let paths = stream::iter(paths).take_while(in_time);
        let mut removed = self.objects.delete_stream(paths.boxed());
        self.runtime.block_on(async {
            // All are tried, whatever becomes of one.
            let mut ended = Ok(());
            while let Some(one) = removed.next().await {
                match one {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => ended = Err(Error::request("a removal", &error)),
                }
            }
            ended
        })
    }

    fn children(&self, folder: &str) -> Result<Children> {
        let path = self.path(folder);
        let listed = self.patiently(async || self.objects.list_with_delimiter(Some(&path)).await);
        let listed = listed.map_err(|error| Error::request(folder, &error))?;
        let object = |object: &ObjectMeta| {
            let name = object.location.filename()?;
            Some((name.to_owned(), marks(object)))
        };
        let folder = |path: &Path| path.filename().map(str::to_owned);
        Ok(Children {
            objects: listed.objects.iter().filter_map(object).collect(),
            folders: listed.common_prefixes.iter().filter_map(folder).collect(),
        })
    }

    fn walk(&self, folder: &str, each: &mut dyn FnMut(&str, Marks) -> Result<()>) -> Result<()> {
        let path = self.path(folder);
        let mut objects = self.objects.list(Some(&path));
        // `each` sends requests of its own, so it runs outside of the runtime.
        while let Some(object) = self.runtime.block_on(objects.next()) {
            let object = object.map_err(|error| Error::request(folder, &error))?;
            let Some(parts) = object.location.prefix_match(&path) else {
                continue;
            };
            let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
            each(&parts.join("/"), marks(&object))?;
        }
        Ok(())
    }
}
