//! TLS towards others: receivers of webhooks and relays of mail. They are believed if the machine trusts
//! who signed them, so that a site's own authority counts as well (`SSL_CERT_FILE` names a file).

use crate::blocking::blocking;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Read once: a machine has about 150 certificates, and a server sends thousands of messages.
static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// Begins to encrypt a connection to `host`.
pub async fn encrypt(tcp: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, String> {
    let config = match CONFIG.get() {
        Some(config) => config.clone(),
        None => {
            let read = Arc::new(blocking(config).await.map_err(|e| e.to_string())??);
            CONFIG.get_or_init(|| read).clone()
        }
    };
    let name =
        rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
    let connected = TlsConnector::from(config).connect(name, tcp).await;
    connected.map_err(|e| format!("failed to encrypt: {e}"))
}

fn config() -> Result<ClientConfig, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems carry certificates that rustls does not understand; the others serve.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("failed to encrypt: this system has no certificates to check the receiver \
                    with (package `ca-certificates`, or a file that `SSL_CERT_FILE` names)"
            .into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
