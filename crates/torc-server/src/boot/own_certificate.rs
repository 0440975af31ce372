//! A certificate that the server makes for itself when other machines are to reach it and the user
//! gave none.
//!
//! It signs itself and is its own authority: clients get the certificate together with the token
//! and trust nothing else (`--tls-ca`).

use super::error::StartError;
use super::private;
use super::tls::TlsFiles;
use crate::clock::now_ms;
use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, SystemTime};

const RECORD: &str = "tls.json";
const CERTIFICATE: &str = "tls-cert.pem";
const KEY: &str = "tls-key.pem";
/// Clients keep copies, so that it must not change often.
const LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A server that runs for months must not outlive its certificate.
const RENEW_BEFORE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Certificate, key and what they are good for, in one file: written whole or not at all.
#[derive(PartialEq, Serialize, Deserialize)]
struct Record {
    names: Vec<String>,
    expires_ms: i64,
    certificate: String,
    key: String,
}

/// The files of a certificate for these names and addresses: those of an earlier start if they
/// still serve, otherwise new ones.
pub fn files(state_dir: &Path, names: &[String]) -> Result<TlsFiles, StartError> {
    let path = state_dir.join(RECORD);
    let io = |source| StartError::Io { doing: "write", path: path.clone(), source };
    let until = now_ms() + RENEW_BEFORE.as_millis() as i64;
    let record = match read(&path).filter(|r| r.names == names && r.expires_ms > until) {
        Some(record) => record,
        None => {
            let record = make(names)
                .map_err(|e| StartError::Tls { path: path.clone(), message: e.to_string() })?;
            let text = serde_json::to_vec_pretty(&record).map_err(|e| io(e.into()))?;
            private::write_file(&path, &text).map_err(io)?;
            record
        }
    };
    let files = TlsFiles {
        cert: state_dir.join(CERTIFICATE),
        key: state_dir.join(KEY),
        ca: Some(absolute(&state_dir.join(CERTIFICATE))),
    };
    private::write_file(&files.cert, record.certificate.as_bytes()).map_err(io)?;
    private::write_file(&files.key, record.key.as_bytes()).map_err(io)?;
    Ok(files)
}

/// Clients read it in other directories.
fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// None when there is none yet, or when it cannot be understood: a new one replaces it.
fn read(path: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn make(names: &[String]) -> Result<Record, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(24 * 3600)).into();
    params.not_after = (now + LIFE).into();
    let certificate = params.self_signed(&key)?;
    Ok(Record {
        names: names.to_vec(),
        expires_ms: now_ms() + LIFE.as_millis() as i64,
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_stays_until_the_names_change() {
        let dir = tempfile::tempdir().unwrap();
        let read = |files: &TlsFiles| std::fs::read_to_string(&files.cert).unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = read(&files(dir.path(), &names).unwrap());
        assert_eq!(read(&files(dir.path(), &names).unwrap()), first);
        let more = [names[0].clone(), "other".to_owned()];
        assert_ne!(read(&files(dir.path(), &more).unwrap()), first);
    }
}
