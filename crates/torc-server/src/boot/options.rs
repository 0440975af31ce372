//! How a server is to be started.

use super::file_system::{self, FileSystem};
use super::tls::TlsFiles;
use crate::api::Network;
use std::path::{Path, PathBuf};
use torc_model::api::PruneRequest;

/// How a server is to be started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Holds the token and `server.json`, and the database unless `database` says otherwise. Made
    /// if missing.
    pub state_dir: PathBuf,
    /// Another place for the database.
    pub database: Option<PathBuf>,
    /// Name or address to listen on. Without it the server is reachable from this machine only.
    pub host: Option<String>,
    /// 0 takes any free port.
    pub port: u16,
    /// Further names that clients may use for this machine (in the `Host` header).
    pub allowed_hosts: Vec<String>,
    /// Proxies whose `X-Forwarded-...` headers count.
    pub trusted_proxies: Vec<Network>,
    /// The address that people use, for links in messages; None: the server's own.
    pub public_url: Option<String>,
    /// Certificate and key; without them the server speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Serve plain HTTP on an address that other machines can reach.
    pub insecure: bool,
    /// Deletes what ended long ago, every hour; None: everything is kept.
    pub retention: Option<PruneRequest>,
    /// Lives inside `torc run` and ends with it; `server.json` says so.
    pub embedded: bool,
    /// Tell others in `server.json` where it is. One that only answers its own process for a moment
    /// does not.
    pub announce: bool,
    /// Connections beyond this number wait.
    pub max_connections: usize,
    /// Tells where a path lives. Replaced by tests only.
    pub detect_file_system: fn(&Path) -> std::io::Result<FileSystem>,
}

impl Options {
    /// The name of the database file in a state directory.
    pub const DATABASE: &str = "torc.db";

    /// A server on a loopback port of its own.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            database: None,
            host: None,
            port: 0,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            public_url: None,
            tls: None,
            insecure: false,
            retention: None,
            embedded: false,
            announce: true,
            max_connections: 16_384,
            detect_file_system: file_system::detect,
        }
    }

    /// Where the database is.
    pub fn database_path(&self) -> PathBuf {
        self.database.clone().unwrap_or_else(|| self.state_dir.join(Self::DATABASE))
    }
}
