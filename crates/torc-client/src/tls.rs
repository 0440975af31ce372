//! Connections, plain or encrypted, and which certificates are believed.

use crate::Error;
use crate::peer::{self, PeerCheck};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Connects to `http` and `https` addresses.
pub type Connector = HttpsConnector<peer::CheckedConnector>;

/// A host that does not answer a connect at all within this time has the wrong address.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Makes a connector. The certificates of the system are read only for a server that needs them:
/// most clients speak plain HTTP over loopback and must start quickly.
pub fn connector(is_secure: bool, ca: Option<&Path>, peer: PeerCheck) -> Result<Connector, Error> {
    let roots = match (is_secure, ca) {
        (false, _) => RootCertStore::empty(),
        (true, Some(file)) => roots_of(file)?,
        (true, None) => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| config_error(format!("TLS cannot be set up: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    plain.set_nodelay(true);
    plain.set_connect_timeout(Some(CONNECT_LIMIT));
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(peer::CheckedConnector { http: plain, peer }))
}

fn roots_of(file: &Path) -> Result<RootCertStore, Error> {
    let shown = file.display();
    let read = |e: rustls::pki_types::pem::Error| {
        config_error(format!("cannot read certificates from `{shown}`: {e}"))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
        let certificate = certificate.map_err(read)?;
        roots.add(certificate).map_err(|e| {
            config_error(format!("`{shown}` has a certificate that cannot be trusted: {e}"))
        })?;
    }
    if roots.is_empty() {
        return Err(config_error(format!("`{shown}` has no certificate")));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems carry certificates that rustls does not understand; the others serve.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(Error::Config {
            message: "this system has no certificates to check an `https` server with".into(),
            hint: Some("install them (package `ca-certificates`), or use `--tls-ca FILE`".into()),
        });
    }
    Ok(roots)
}

fn config_error(message: String) -> Error {
    Error::Config {
        message,
        hint: Some("`--tls-ca` (or `TORC_TLS_CA`) names a PEM file with certificates".into()),
    }
}
