//! The clients of stores: set up by the environment, patient, and durable where they are a folder.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use crate::bounded_client::BoundedConnector;

/// The variables of the environment that stores are set up by begin so.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// A request is repeated for so long after its first failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A request fails, and is repeated, when nothing of its answer comes for so long.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest wait for a connection to a server of metadata.
const METADATA_WAIT: Duration = Duration::from_secs(2);

/// A server that a machine of a vendor's cloud asks for its credentials.
struct Metadata {
    server: &'static str,
    /// Variables by which a client asks another one, or none: the usual one comes first.
    others: &'static [&'static str],
}

const AWS: Metadata = Metadata {
    server: "169.254.169.254:80",
    others: &[
        "aws_access_key_id",
        "aws_web_identity_token_file",
        "aws_container_credentials_relative_uri",
        "aws_container_credentials_full_uri",
        "aws_skip_signature",
        "aws_metadata_endpoint",
    ],
};

const GOOGLE: Metadata = Metadata {
    server: "metadata.google.internal:80",
    others: &[
        "google_service_account",
        "google_service_account_path",
        "google_service_account_key",
        "google_application_credentials",
        "google_skip_signature",
    ],
};

const AZURE: Metadata = Metadata {
    server: "169.254.169.254:80",
    others: &[
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "azure_storage_client_secret",
        "azure_client_secret",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "azure_storage_token",
        "azure_federated_token_file",
        "azure_use_azure_cli",
        "azure_use_fabric_endpoint",
        "azure_storage_use_emulator",
        "azure_identity_endpoint",
        "azure_msi_endpoint",
        "azure_skip_signature",
    ],
};

/// The client of a vendor's store at a URL.
macro_rules! client {
    ($builder:ty, $root:expr, $metadata:expr) => {{
        expect_credentials($metadata)?;
        let mut builder = <$builder>::new()
            .with_url($root.to_string())
            .with_client_options(options())
            .with_http_connector(BoundedConnector)
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
        ObjectStoreScheme::AmazonS3 => client!(AmazonS3Builder, root, &AWS),
        ObjectStoreScheme::GoogleCloudStorage => {
            client!(GoogleCloudStorageBuilder, root, &GOOGLE)
        }
        ObjectStoreScheme::MicrosoftAzure => client!(MicrosoftAzureBuilder, root, &AZURE),
        // The other schemes are not those of a location.
        _ => Arc::new(LocalFileSystem::new().with_fsync(true)),
    };
    Ok((objects, Path::parse(path)?))
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_known = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let name = name.to_ascii_lowercase();
        is_known.then(|| {
            let value = with_whole_path(&name, value);
            (name, value)
        })
    })
}

/// Variables that name a file, by their ends.
const FILES: [&str; 4] = [
    "_token_file",
    "google_service_account",
    "google_service_account_path",
    "google_application_credentials",
];

/// The value of a variable; the name of a file has its folder, as a token is read again later, when
/// a daemon has left the folder that it began in.
fn with_whole_path(name: &str, value: String) -> String {
    let is_file = FILES.iter().any(|file| name.ends_with(file)) && !value.is_empty();
    let whole = is_file.then(|| {
        std::path::absolute(&value)
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    });
    whole.flatten().unwrap_or(value)
}

/// Fails where no credentials are given and no machine of a cloud has some: the client would ask
/// for them until its patience ends.
fn expect_credentials(metadata: &Metadata) -> object_store::Result<()> {
    let is_given = variables().any(|(name, value)| {
        let is_set = !value.is_empty() && value != "false";
        is_set && metadata.others.contains(&name.as_str())
    });
    if is_given || has_file_of_gcloud(metadata) || answers(metadata.server) {
        return Ok(());
    }
    let name = metadata.others[0].to_ascii_uppercase();
    let why = format!(
        "there are no credentials: the environment has no {name}, and {} does not answer",
        metadata.server
    );
    Err(object_store::Error::Generic {
        store: "client",
        source: why.into(),
    })
}

/// Returns whether Google's tool has left credentials, which the client finds.
fn has_file_of_gcloud(metadata: &Metadata) -> bool {
    let file = std::env::home_dir().map(|home| {
        home.join(".config/gcloud/application_default_credentials.json")
            .exists()
    });
    metadata.server == GOOGLE.server && file == Some(true)
}

fn answers(server: &str) -> bool {
    let mut found = server.to_socket_addrs().into_iter().flatten();
    found.any(|address| TcpStream::connect_timeout(&address, METADATA_WAIT).is_ok())
}

/// Returns whether the connection of a request failed: the client repeats only some of these.
pub(crate) fn is_cut_off(error: &object_store::Error) -> bool {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
        .filter_map(|error| error.downcast_ref::<HttpError>())
        .any(|error| error.kind() != HttpErrorKind::Decode)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_whole() {
        let here = std::env::current_dir().unwrap();
        let whole = here.join("key.json").display().to_string();
        for name in ["google_service_account", "aws_web_identity_token_file"] {
            assert_eq!(with_whole_path(name, "key.json".into()), whole);
            assert_eq!(with_whole_path(name, "/key.json".into()), "/key.json");
            assert_eq!(with_whole_path(name, String::new()), "");
        }
        for name in ["google_service_account_key", "aws_access_key_id"] {
            assert_eq!(with_whole_path(name, "key.json".into()), "key.json");
        }
    }
}
