//! The store that is measured, and the line to it.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use extant_host::{Cmd, Context, Error, Result, bail};
use extant_store_proxy::{MemoryStore, RequestLine, StoreFault, StoreProxy, Traffic};
use serde_json::Value;

use crate::plan::Plan;

/// One request of so many fails on a line that is lossy.
const LOSS: u64 = 100;

/// A store behind a proxy.
pub(super) struct RemoteStore {
    proxy: StoreProxy,
    /// The server, where it is one of this process.
    memory: Option<MemoryStore>,
    /// The address of the image.
    image: String,
    extant: PathBuf,
    /// Paths of chunks that were asked for.
    chunks: Arc<Mutex<BTreeSet<String>>>,
}

impl RemoteStore {
    /// The store of the plan, or one in memory.
    pub(super) fn open(plan: &Plan) -> Result<Self> {
        let (server, memory, root) = match &plan.store {
            Some(store) => (endpoint()?, None, store.trim_end_matches('/').to_owned()),
            None => {
                let memory = MemoryStore::start()?;
                (
                    memory.address(),
                    Some(memory),
                    "s3://bench/images".to_owned(),
                )
            }
        };
        // Each run pushes an image of its own.
        let image = format!("{root}/bench-{}", std::process::id());
        let store = Self {
            proxy: StoreProxy::start(server)?,
            memory,
            image,
            extant: plan.extant.clone(),
            chunks: Arc::default(),
        };
        store.set_line(Duration::ZERO, false);
        Ok(store)
    }

    /// A name for the report.
    pub(super) fn about(&self) -> &'static str {
        match self.memory {
            Some(_) => "one in memory",
            None => "the one of the environment",
        }
    }

    /// The address of the image, the current version.
    pub(super) fn image(&self) -> &str {
        &self.image
    }

    /// The `extant` command itself.
    pub(super) fn command(&self) -> &Path {
        &self.extant
    }

    /// Pushes a file as the next version; returns what the command says of it.
    pub(super) fn push(&self, file: &Path) -> Result<Value> {
        let push = self.extant(None).args(["push", "--json"]).arg(file);
        Ok(serde_json::from_str(&push.arg(&self.image).ok()?.out)?)
    }

    /// The line from now on.
    pub(super) fn set_line(&self, round_trip: Duration, is_lossy: bool) {
        self.proxy.set_round_trip(round_trip);
        let chunks = Arc::clone(&self.chunks);
        self.proxy.set_plan(move |line: &RequestLine| {
            if line.is("GET", "/chunks/") {
                let mut chunks = chunks.lock().unwrap_or_else(PoisonError::into_inner);
                chunks.insert(line.path.clone());
            }
            match is_lossy && line.number.is_multiple_of(LOSS) {
                true => StoreFault::Status(503),
                false => StoreFault::None,
            }
        });
    }

    /// The counts since the last call, and the number of different chunks among the requests.
    pub(super) fn take_counts(&self) -> (Traffic, usize) {
        let chunks =
            std::mem::take(&mut *self.chunks.lock().unwrap_or_else(PoisonError::into_inner));
        (self.proxy.take_traffic(), chunks.len())
    }

    /// The `extant` command on this line, with a cache in `cache` or none.
    pub(super) fn extant(&self, cache: Option<&Path>) -> Cmd {
        let cmd = Cmd::new(&self.extant)
            .env("AWS_ENDPOINT", self.proxy.endpoint())
            .env("AWS_ALLOW_HTTP", "true")
            .env("EXTANT_CACHE", cache.unwrap_or("".as_ref()))
            .limit(Duration::from_secs(1800));
        match self.memory {
            None => cmd,
            // It knows no signatures, and the client makes some.
            Some(_) => cmd
                .env("AWS_ACCESS_KEY_ID", "bench")
                .env("AWS_SECRET_ACCESS_KEY", "bench")
                .env("AWS_REGION", "us-east-1"),
        }
    }
}

/// The server of the environment.
fn endpoint() -> Result<SocketAddr> {
    let Ok(endpoint) = std::env::var("AWS_ENDPOINT") else {
        bail!("a store needs AWS_ENDPOINT: the line is between it and the command");
    };
    let Some(host) = endpoint.strip_prefix("http://") else {
        bail!("AWS_ENDPOINT is {endpoint}: a line can be put in front of http:// only");
    };
    let mut found = host
        .trim_end_matches('/')
        .to_socket_addrs()
        .context(|| format!("AWS_ENDPOINT is {endpoint}: a port is needed"))?;
    found
        .next()
        .ok_or_else(|| Error::new("no address of AWS_ENDPOINT"))
}
