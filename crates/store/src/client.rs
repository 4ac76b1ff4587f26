//! The clients of stores: set up by the environment, patient, and durable where they are a folder.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

/// The variables of the environment that stores are set up by begin so.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// A request is repeated for so long after its first failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A request fails, and is repeated, when nothing of its answer comes for so long.
const SILENCE: Duration = Duration::from_secs(30);

/// The client of a vendor's store at a URL.
macro_rules! client {
    ($builder:ty, $root:expr) => {{
        let mut builder = <$builder>::new()
            .with_url($root.to_string())
            .with_client_options(options())
            .with_retry(retry());
        for (name, value) in variables() {
            if let Ok(key) = name.parse() {
                builder = builder.with_config(key, value);
            }
        }
        Arc::new(builder.build()?)
    }};
}

/// The client of the store at `root`, and the prefix there. Called inside of the runtime.
pub(crate) fn open(root: &Url) -> object_store::Result<(Arc<dyn ObjectStore>, Path)> {
    let (scheme, path) = ObjectStoreScheme::parse(root)?;
    let objects: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => client!(AmazonS3Builder, root),
        ObjectStoreScheme::GoogleCloudStorage => client!(GoogleCloudStorageBuilder, root),
        ObjectStoreScheme::MicrosoftAzure => client!(MicrosoftAzureBuilder, root),
        // The other schemes are not those of a location.
        _ => Arc::new(LocalFileSystem::new().with_fsync(true)),
    };
    Ok((objects, Path::parse(path)?))
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_known = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        is_known.then(|| (name.to_ascii_lowercase(), value))
    })
}

/// A large object may take as long as the line is slow, as long as something comes.
fn options() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_read_timeout(SILENCE)
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(10),
            base: 3.0,
        },
        // The time is the bound.
        max_retries: 10_000,
        retry_timeout: PATIENCE,
    }
}
