//! TLS between client and server: which certificates are trusted, and which one is shown.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::address::{Address, Endpoint, Tls};
use crate::error::NbdError;

/// The certificates that Debian and most others trust.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A TLS session to the server of `address` that has not begun.
///
/// # Errors
/// A certificate or a key cannot be used; the name of the server is not known.
pub(crate) fn begin(address: &Address, tls: &Tls) -> Result<ClientConnection, NbdError> {
    let name = match (&tls.hostname, &address.endpoint) {
        (Some(name), _) => name.clone(),
        (None, Endpoint::Tcp { host, .. }) => host.clone(),
        (None, Endpoint::Unix(_)) => {
            let what = "a Unix socket has no name: tls-hostname=NAME is needed";
            return Err(NbdError::tls(what));
        }
    };
    let name = ServerName::try_from(name).map_err(NbdError::tls)?;
    let config = match &address.prepared.tls {
        Some(config) => Arc::clone(config),
        None => Arc::new(config(tls)?),
    };
    ClientConnection::new(config, name).map_err(NbdError::tls)
}

fn at(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> NbdError {
    let cause = error.into();
    NbdError::Tls {
        what: format!("{}: {cause}", path.display()),
        cause: Some(cause),
    }
}

/// Returns the configuration of a session: the certificates, read from their files.
///
/// # Errors
/// A certificate or a key cannot be used.
pub(crate) fn config(tls: &Tls) -> Result<ClientConfig, NbdError> {
    let file = |name: &str| tls.certificates.as_ref().map(|dir| dir.join(name));
    let authorities = file("ca-cert.pem").unwrap_or_else(|| PathBuf::from(SYSTEM));
    let mut roots = RootCertStore::empty();
    for one in certificates(&authorities)? {
        roots.add(one).map_err(|error| at(&authorities, error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder
        .map_err(NbdError::tls)?
        .with_root_certificates(roots);
    let shown = file("client-cert.pem").filter(|path| path.exists());
    let (Some(shown), Some(key)) = (shown, file("client-key.pem")) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(&shown)?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| at(&key, error))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| at(&shown, error))
}

/// The certificates in a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NbdError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|error| at(path, error))?;
    if all.is_empty() {
        return Err(at(path, "no certificate in it"));
    }
    Ok(all)
}
