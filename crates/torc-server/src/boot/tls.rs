//! The certificate of an encrypted server, read again when its file changes.

use super::error::StartError;
use crate::blocking::blocking;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the files: a renewed certificate has days until the old one ends.
const LOOK: Duration = Duration::from_secs(10);

/// The files of an encrypted server.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM: the certificate, then those that signed it.
    pub cert: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: what clients on this machine trust, if the system does not know the authority.
    pub ca: Option<PathBuf>,
}

/// Accepts encrypted connections. Clones share the certificate.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<CertificateInUse>,
}

impl Tls {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Self, StartError> {
        let current = Arc::new(CertificateInUse {
            files: files.clone(),
            key: RwLock::new(Arc::new(read(files)?)),
        });
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| bad(&files.cert, e))?
                .with_no_client_auth()
                .with_cert_resolver(current.clone());
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current })
    }

    /// The handshake of a new connection.
    pub async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// Takes a renewed certificate into use, until the server ends. One that cannot be read is
    /// logged, and the old one stays.
    pub async fn watch(self, stop: CancellationToken) {
        let mut seen = self.current.modified().await;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = self.current.modified().await;
            if now == seen {
                continue;
            }
            seen = now;
            let current = self.current.clone();
            match blocking(move || current.reload()).await {
                Ok(Ok(())) => tracing::info!("a new certificate is in use"),
                Ok(Err(error)) => tracing::error!(%error, "the old certificate stays in use"),
                Err(error) => tracing::error!(%error, "the certificate could not be read"),
            }
        }
    }
}

/// The certificate in use.
#[derive(Debug)]
struct CertificateInUse {
    files: TlsFiles,
    key: RwLock<Arc<CertifiedKey>>,
}

impl CertificateInUse {
    async fn modified(&self) -> [Option<SystemTime>; 2] {
        let time = async |path: &Path| tokio::fs::metadata(path).await.ok()?.modified().ok();
        [time(&self.files.cert).await, time(&self.files.key).await]
    }

    fn reload(&self) -> Result<(), StartError> {
        let key = Arc::new(read(&self.files)?);
        // A poisoned lock holds a whole `Arc` all the same: storing one cannot panic half-way.
        *self.key.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = key;
        Ok(())
    }
}

impl ResolvesServerCert for CertificateInUse {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
    }
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, StartError> {
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| bad(&files.cert, e))?;
    if chain.is_empty() {
        return Err(bad(&files.cert, "it has no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| bad(&files.key, e))?;
    // Also checks that the key belongs to the certificate.
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|e| bad(&files.key, e))
}

fn bad(path: &Path, message: impl ToString) -> StartError {
    StartError::Tls { path: path.into(), message: message.to_string() }
}
