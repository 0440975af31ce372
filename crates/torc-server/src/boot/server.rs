//! A server from its start to its end.

use super::database::Database;
use super::error::StartError;
use super::inside::InProcess;
use super::lock::Lock;
use super::options::Options;
use super::tls::Tls;
use super::{backup, identity, listen, own_certificate, private, socket};
use crate::api::{App, Front, Hosts};
use crate::blocking::blocking;
use crate::clock::now_ms;
use crate::disk;
use crate::secret;
use crate::store::read::Reader;
use crate::store::{Store, Trigger};
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use torc_model::api::{PruneRequest, ServerFile};

/// Time between two looks for dead runners: a look costs a few file reads, a dead runner's jobs
/// wait for it.
const SWEEP: std::time::Duration = std::time::Duration::from_secs(2);
const TOKEN_FILE: &str = "token";
const SERVER_FILE: &str = "server.json";
/// The port of the last server that was announced, and a word when it was embedded; stays when the
/// server has ended.
const PORT_FILE: &str = "port";
const EMBEDDED: &str = "embedded";
/// How far ids have gone, so that they go on after a restore of an older database.
const ID_MARKS_FILE: &str = "ids.json";
/// Time between two looks at the room that is left on the disk.
const DISK_LOOK: std::time::Duration = std::time::Duration::from_secs(30);
/// Retention counts days.
const RETENTION_LOOK: std::time::Duration = std::time::Duration::from_secs(3600);
/// Fewer characters cannot hold enough randomness; more is not ours.
const TOKEN_LENGTH: std::ops::RangeInclusive<usize> = 32..=512;

/// Starts servers.
pub struct Server;

/// A server that serves. Dropping it stops it as well, without waiting for the end.
pub struct RunningServer {
    address: SocketAddr,
    file: ServerFile,
    database: PathBuf,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
    allocations: watch::Receiver<u64>,
    inside: InProcess,
}

impl Server {
    /// Takes the state directory, opens the database, takes up the state in it and serves. When
    /// this returns, the server answers and `server.json` says where (if it is to be announced).
    pub async fn start(mut options: Options) -> Result<RunningServer, StartError> {
        let (listener, host) = bind(&options).await?;
        let address = listener
            .local_addr()
            .map_err(|source| StartError::Listen { address: host.clone(), source })?;
        // A browser that was talked into a certificate of our own would not be asked again.
        let is_https_only = options.tls.is_some();
        if options.tls.is_none() && !options.insecure && !address.ip().is_loopback() {
            private::ensure_directory(&options.state_dir)?;
            let names = own_names(&host, address, &options.allowed_hosts);
            options.tls = Some(own_certificate::files(&options.state_dir, &names)?);
        }
        let tls = options.tls.as_ref().map(Tls::load).transpose()?;
        let opened = blocking({
            let options = options.clone();
            move || open(&options)
        });
        let Opened { database, token, reader, store } =
            opened.await.map_err(|e| StartError::Store { message: e.to_string() })??;

        let stop = CancellationToken::new();
        let names =
            options.allowed_hosts.iter().cloned().chain([host.clone(), identity::hostname()]);
        let hosts = Hosts::new(address.ip(), names);
        let socket = if options.announce { socket::bind(&options.state_dir) } else { None };
        let app = App::new(store.clone(), reader, &token, hosts, stop.clone())
            .with_socket(socket.as_ref().map(|(_, path)| path.clone()))
            .with_https_only(is_https_only)
            .with_proxies(options.trusted_proxies.clone());
        app.set_open(false);
        let front = Arc::new(Front::new(app.clone()));
        let inside = InProcess::new(&front, stop.clone());
        let on_socket = socket.map(|s| socket::serve(s, front.clone(), stop.clone()));
        let serving =
            listen::serve(listener, tls.clone(), front, options.max_connections, stop.clone());
        // Both end before the lock is given up: the next server makes a socket of the same name.
        let serving = async {
            let on_socket = async {
                if let Some(serving) = on_socket {
                    serving.await;
                }
            };
            tokio::join!(serving, on_socket);
        };
        let serving = tokio::spawn(serving);
        if let Some(tls) = tls {
            tokio::spawn(tls.watch(stop.clone()));
        }
        // Before the first claim is answered: what died with an earlier server or runner is settled
        // first.
        let found = match store.recover(Trigger::Boot).await {
            Ok(found) => found,
            Err(error) => {
                stop.cancel();
                return Err(StartError::Store { message: error.to_string() });
            }
        };
        for line in &found.details {
            tracing::info!("recovery: {line}");
        }
        torc_failpoint::hit("boot.recovered");
        app.set_open(true);
        tokio::spawn(sweep(store.clone(), stop.clone()));
        let address_for_people =
            options.public_url.clone().unwrap_or_else(|| url(&host, address, &options));
        let courier =
            tokio::spawn(crate::courier::run(store.clone(), address_for_people, stop.clone()));
        tokio::spawn(execute_schedules(store.clone(), stop.clone()));
        if let Some(request) = options.retention.clone() {
            tokio::spawn(retain(store.clone(), request, stop.clone()));
        }
        tokio::spawn(watch_disk(database.path.clone(), stop.clone()));
        tokio::spawn(app.note_token_uses());
        let file = ServerFile {
            url: url(&host, address, &options),
            token,
            tls_ca: options.tls.as_ref().and_then(|files| files.ca.clone()),
            embedded: options.embedded,
            pid: i64::from(std::process::id()),
            hostname: identity::hostname(),
            started_ms: now_ms(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let server_file = options.state_dir.join(SERVER_FILE);
        if options.announce
            && let Err(error) = write_server_file(&server_file, &file)
        {
            stop.cancel();
            return Err(error);
        }
        let last = (Some(address.port()), options.embedded);
        if options.announce
            && last != (last_port(&options.state_dir), last_was_embedded(&options.state_dir))
            && let Err(error) = note_last(&options.state_dir, address.port(), options.embedded)
        {
            // Only a convenience: without it the next server may listen elsewhere.
            tracing::warn!(%error, "cannot note the port");
        }
        tracing::info!(url = file.url, database = %database.path.display(), "serving");
        let allocations = store.allocations();
        let ending = LastSteps {
            store,
            database: database.path.clone(),
            path: server_file,
            ours: file.clone(),
            courier,
            locks: (database.lock, database.directory_lock),
        };
        let askers = inside.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "serving ended by a defect");
            }
            askers.end().await;
            ending.run().await;
        });
        Ok(RunningServer {
            address,
            file,
            database: database.path,
            stop,
            task: Some(task),
            allocations,
            inside,
        })
    }
}

impl RunningServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Scheme, address and port, without the base path.
    pub fn url(&self) -> &str {
        &self.file.url
    }

    /// Certificates that clients on this machine trust, if not the system's.
    pub fn tls_ca(&self) -> Option<&Path> {
        self.file.tls_ca.as_deref()
    }

    /// The token that is good for everything.
    pub fn token(&self) -> &str {
        &self.file.token
    }

    /// Changes whenever allocations were planned in any workflow.
    pub fn allocations(&self) -> watch::Receiver<u64> {
        self.allocations.clone()
    }

    /// The way to it for callers in the same process.
    pub fn inside(&self) -> InProcess {
        self.inside.clone()
    }

    /// Copies the database to `destination`, which must not exist, while the server goes on.
    pub fn backup(&self, destination: &Path) -> Result<(), StartError> {
        backup::backup(&self.database, destination)
    }

    /// Lets requests in flight end, ends streams, and gives the database free.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the server was not shut down cleanly");
        }
    }

    /// Waits until the server has ended.
    pub async fn stopped(&mut self) {
        if let Some(task) = self.task.as_mut() {
            if let Err(error) = task.await {
                tracing::error!(%error, "the server was not shut down cleanly");
            }
            self.task = None;
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Opened {
    database: OwnedDatabase,
    token: String,
    reader: Reader,
    store: Store,
}

/// What is left of a [`Database`] when the store has its connection.
struct OwnedDatabase {
    path: PathBuf,
    lock: Lock,
    /// Of the state directory, when the database is elsewhere.
    directory_lock: Option<Lock>,
}

fn open(options: &Options) -> Result<Opened, StartError> {
    private::ensure_directory(&options.state_dir)?;
    let directory_lock = lock_directory(options)?;
    let Database { writer, path, lock, .. } = Database::open(options)?;
    torc_failpoint::hit("boot.opened");
    let token = load_token(&options.state_dir.join(TOKEN_FILE))?;
    let marks = options.state_dir.join(ID_MARKS_FILE);
    let store = Store::open_with_marks(writer, marks).map_err(|source| StartError::Database {
        doing: "take up the state in",
        database: path.clone(),
        source,
    })?;
    let reader = Reader::open(&path)?;
    Ok(Opened { database: OwnedDatabase { path, lock, directory_lock }, token, reader, store })
}

/// A server with its database elsewhere owns its state directory too: `server.json` can name one
/// server only. It takes the lock of the database that would be there, which is what every other
/// server of the directory takes.
fn lock_directory(options: &Options) -> Result<Option<Lock>, StartError> {
    let dir = &options.state_dir;
    let usual = dir.join(Options::DATABASE);
    let real = |path: &Path| {
        let parent =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    let database = options.database_path();
    if database == usual || real(&database).is_some_and(|database| real(&usual) == Some(database)) {
        return Ok(None);
    }
    let file_system = (options.detect_file_system)(dir).map_err(|source| StartError::Io {
        doing: "look at the directory",
        path: dir.clone(),
        source,
    })?;
    match Lock::acquire(&usual, &file_system) {
        Ok(lock) => Ok(Some(lock)),
        Err(StartError::Owned { owner, .. }) => {
            Err(StartError::DirectoryOwned { dir: dir.clone(), owner })
        }
        // A directory without locks is a reason to put the database elsewhere.
        Err(StartError::NoLocks { lock, source }) => {
            tracing::warn!(lock = %lock.display(), %source, "no locks here: a second server would not be noticed");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// Looks for dead runners again and again, until the server ends.
async fn sweep(store: Store, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP) => {}
        }
        match store.recover(Trigger::Sweep).await {
            Ok(found) => found.details.iter().for_each(|line| tracing::debug!("sweep: {line}")),
            Err(error) => tracing::error!(%error, "the sweep failed"),
        }
    }
}

/// Deletes what ended long ago, at the start and every hour.
async fn retain(store: Store, request: PruneRequest, stop: CancellationToken) {
    loop {
        match store.prune(request.clone()).await {
            Ok(view) => {
                for gone in &view.workflows {
                    tracing::info!("retention: deleted workflow {} `{}`", gone.id, gone.name);
                }
                view.kept.iter().for_each(|why| tracing::debug!("retention: {why}"));
            }
            Err(error) => tracing::error!(%error, "old workflows could not be deleted"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETENTION_LOOK) => {}
        }
    }
}

/// Tells when the disk of the database gets full, once each time, before writing fails.
async fn watch_disk(database: PathBuf, stop: CancellationToken) {
    let mut was_low = false;
    loop {
        let path = database.clone();
        let looked = crate::slow_files::look(database.clone(), move || disk::space(&path)).await;
        // A file system that hangs or says nothing is no news.
        if let Ok(Some(space)) = looked {
            let left = space.free >> 20;
            match (was_low, space.is_low()) {
                (false, true) => tracing::warn!(
                    "the disk of `{}` is nearly full: {left} MiB left; `torc workflows prune` and `torc server vacuum` make room",
                    database.display()
                ),
                (true, false) => {
                    tracing::info!("the disk of the database has room again: {left} MiB")
                }
                (true, true) | (false, false) => {}
            }
            was_low = space.is_low();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(DISK_LOOK) => {}
        }
    }
}

/// Executes actions that ask for nodes as soon as they are triggered, until the server ends.
async fn execute_schedules(store: Store, stop: CancellationToken) {
    let mut triggers = store.triggers();
    loop {
        triggers.mark_unchanged();
        let waiting = match store.workflows_with_schedules().await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::error!(%error, "triggered actions could not be listed");
                Vec::new()
            }
        };
        for id in waiting {
            if let Err(error) = store.execute_schedules(id).await {
                tracing::error!(%error, %id, "nodes could not be asked for");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = triggers.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// What is left to do when the last request has been answered.
struct LastSteps {
    store: Store,
    courier: tokio::task::JoinHandle<()>,
    database: PathBuf,
    path: PathBuf,
    ours: ServerFile,
    locks: (Lock, Option<Lock>),
}

impl LastSteps {
    async fn run(self) {
        if let Err(error) = self.courier.await {
            tracing::error!(%error, "the courier ended by a defect");
        }
        // Requests that were cut off may still be on their way to the disk.
        if let Err(refusal) = self.store.flush().await {
            tracing::warn!(%refusal, "the last requests may not be on disk");
        }
        // The process may be gone before the writer's own connection has done this on its way out.
        // A database without a log beside it is easier to copy by hand, and opens sooner.
        let database = self.database.clone();
        let checkpoint = blocking(move || {
            let db = rusqlite::Connection::open(database)?;
            db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        });
        if let Ok(Err(error)) = checkpoint.await {
            tracing::warn!(%error, "the log could not be written back into the database");
        }
        drop(self.store);
        if let Err(error) = remove_server_file(&self.path, &self.ours) {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove");
        }
        // Last: the next owner finds everything else done.
        drop(self.locks);
    }
}

async fn bind(options: &Options) -> Result<(TcpListener, String), StartError> {
    let host = options.host.clone().unwrap_or_else(|| "127.0.0.1".into());
    if options.port == 0
        && options.announce
        && let Some(port) = last_port(&options.state_dir)
        && let Ok(listener) = TcpListener::bind((host.as_str(), port)).await
    {
        return Ok((listener, host));
    }
    match TcpListener::bind((host.as_str(), options.port)).await {
        Ok(listener) => Ok((listener, host)),
        Err(source) => {
            Err(StartError::Listen { address: format!("{host}:{}", options.port), source })
        }
    }
}

/// Where the last server of this directory listened. Its runners ask there until a server answers.
fn last_port(state_dir: &Path) -> Option<u16> {
    std::fs::read_to_string(state_dir.join(PORT_FILE)).ok()?.split_whitespace().next()?.parse().ok()
}

/// The last server that was announced for this directory lived inside another command, which has
/// perhaps ended: no process starts it again.
pub fn last_was_embedded(state_dir: &Path) -> bool {
    std::fs::read_to_string(state_dir.join(PORT_FILE))
        .is_ok_and(|text| text.split_whitespace().nth(1) == Some(EMBEDDED))
}

fn note_last(state_dir: &Path, port: u16, is_embedded: bool) -> std::io::Result<()> {
    let text = if is_embedded { format!("{port} {EMBEDDED}") } else { port.to_string() };
    private::write_file(&state_dir.join(PORT_FILE), text.as_bytes())
}

/// What a certificate of our own names: everything that a client may call this server.
fn own_names(host: &str, address: SocketAddr, allowed: &[String]) -> Vec<String> {
    let mut names = allowed.to_vec();
    names.extend([identity::hostname(), "localhost".into(), "127.0.0.1".into()]);
    if !address.ip().is_unspecified() {
        names.extend([host.to_owned(), address.ip().to_string()]);
    }
    names.sort();
    names.dedup();
    names
}

/// The address that others can use: a server that listens everywhere is known by its machine's
/// name.
///
/// The name in an encrypted address must be one that the certificate names, so a name that was
/// given with `--allowed-host` goes first there.
fn url(host: &str, address: SocketAddr, options: &Options) -> String {
    let port = address.port();
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let named = options.allowed_hosts.first().filter(|_| options.tls.is_some());
    let host = match named {
        Some(name) => name.clone(),
        None if address.ip().is_unspecified() => identity::hostname(),
        None if host.contains(':') => format!("[{host}]"),
        None => host.into(),
    };
    format!("{scheme}://{host}:{port}")
}

/// The token in a state directory, if a server ever ran there.
pub fn read_token(state_dir: &Path) -> Result<Option<String>, StartError> {
    let path = state_dir.join(TOKEN_FILE);
    match path.try_exists() {
        Ok(false) => Ok(None),
        Ok(true) => load_token(&path).map(Some),
        Err(source) => Err(StartError::Io { doing: "look at", path, source }),
    }
}

/// The token survives restarts, so that clients do not have to learn a new one.
fn load_token(path: &Path) -> Result<String, StartError> {
    let io = |doing| move |source| StartError::Io { doing, path: path.into(), source };
    let mut text = String::new();
    let file = private::open_file(path)?;
    file.take(4096).read_to_string(&mut text).map_err(io("read"))?;
    let token = text.trim();
    if token.is_empty() {
        let token =
            secret::new_token().map_err(|e| StartError::NoRandomness { message: e.to_string() })?;
        private::write_file(path, token.as_bytes()).map_err(io("write"))?;
        return Ok(token);
    }
    let is_token =
        TOKEN_LENGTH.contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    is_token.then(|| token.to_string()).ok_or_else(|| StartError::BadToken { path: path.into() })
}

fn write_server_file(path: &Path, file: &ServerFile) -> Result<(), StartError> {
    let io = |source| StartError::Io { doing: "write", path: path.into(), source };
    let text = serde_json::to_vec_pretty(file).map_err(|e| io(e.into()))?;
    private::write_file(path, &text).map_err(io)
}

/// A later server may have written its own.
fn remove_server_file(path: &Path, ours: &ServerFile) -> std::io::Result<()> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    match serde_json::from_slice::<ServerFile>(&text) {
        Ok(file) if file == *ours => std::fs::remove_file(path),
        _ => Ok(()),
    }
}
