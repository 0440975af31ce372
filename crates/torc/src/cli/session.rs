//! How a command reaches a server: the one that was named, the one that owns the local state, or
//! one of its own.

use super::{Context, Locator};
use crate::embedded::{self, Embedded, Purpose, StateOwner};
use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;
use torc_client::Client;
use torc_client::discovery::{self, STATE_DIR};
use torc_server::Options;

/// What a command does when there is no local state yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It only looks at or changes what is there: no state is an error.
    Existing,
    /// It creates something: the state directory is made here.
    Create,
}

/// A way to a server for the length of one command.
pub struct Session {
    /// Talks to the server.
    pub client: Client,
    /// The local state directory that another process serves.
    dir: Option<PathBuf>,
    /// That process was another `torc run` when we found it, so its server may end before we do.
    is_shared: bool,
    /// The server inside this process, if the command had to bring its own.
    embedded: Own,
}

/// The server inside this process. Shared with the client, which brings one when the server that it
/// found has ended.
type Own = Arc<Mutex<Option<Embedded>>>;

impl Session {
    /// Finds the server, or starts one on the local state that answers this command only.
    pub async fn open(locator: &Locator, access: Access) -> Result<Self> {
        Self::open_for(locator, access, Purpose::Look).await
    }

    /// Finds the server, or starts one on the local state.
    pub async fn open_for(locator: &Locator, access: Access, purpose: Purpose) -> Result<Self> {
        if let Some(url) = &locator.url {
            return Ok(Self {
                client: client_for(locator, url)?,
                dir: None,
                is_shared: false,
                embedded: Own::default(),
            });
        }
        let dir = state_dir(locator, access)?;
        if is_state(&dir) && !has_database(&dir) {
            // Its server has the database elsewhere; one of our own would make an empty one here.
            return match embedded::find_other(&dir).await {
                Some(StateOwner::Other { client, is_run }) => {
                    Ok(Self { client, dir: None, is_shared: is_run, embedded: Own::default() })
                }
                _ => Err(no_answer(&dir)),
            };
        }
        let own = Own::default();
        match Embedded::start(&dir, purpose).await? {
            StateOwner::Us(embedded) => {
                let client = embedded.client()?;
                *own.lock().await = Some(embedded);
                Ok(Self { client, dir: None, is_shared: false, embedded: own })
            }
            StateOwner::Other { client, is_run } => {
                // A command that runs jobs takes the place of the server instead, for all its
                // clients. A `torc server run` that ends is to start again itself, and must find
                // its state free.
                let client = match purpose {
                    Purpose::Look if is_run => with_successor(client, dir.clone(), own.clone()),
                    Purpose::Look | Purpose::Run { .. } => client,
                };
                Ok(Self { client, dir: Some(dir), is_shared: is_run, embedded: own })
            }
        }
    }

    /// The server lives inside another `torc run` and may end with it.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The server is this command's own and ends with it.
    pub async fn is_momentary(&self) -> bool {
        self.embedded.lock().await.is_some()
    }

    /// The server is gone. If it served the local state inside another command that has ended, this
    /// process takes its place at the same address, and its clients go on. That need
    /// not be the server we found at first: when a `torc server run` was killed, the next command
    /// that stays for a while serves in its place.
    pub async fn take_over(&mut self) {
        let is_ours_to_take = |dir: &PathBuf| self.is_shared || torc_server::last_was_embedded(dir);
        let Some(dir) = self.dir.clone().filter(is_ours_to_take) else { return };
        let port =
            self.client.url().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
        match Embedded::start(&dir, Purpose::Run { port }).await {
            Ok(StateOwner::Us(embedded)) => {
                *self.embedded.lock().await = Some(embedded);
                self.dir = None;
                self.is_shared = false;
            }
            // Another process serves it, or none can now; the runner keeps trying either way.
            Ok(StateOwner::Other { .. }) | Err(_) => {}
        }
    }

    /// Ends the command's own server, if there is one.
    pub async fn close(self) {
        if let Some(embedded) = self.embedded.lock().await.take() {
            embedded.stop().await;
        }
    }
}

/// A client that goes on when the server of a `torc run` ends: once, with the process that has the
/// state then, or with a server of this process.
fn with_successor(client: Client, dir: PathBuf, own: Own) -> Client {
    client.with_successor(move || {
        let (dir, own) = (dir.clone(), own.clone());
        async move {
            match Embedded::start(&dir, Purpose::Look).await {
                Ok(StateOwner::Us(embedded)) => {
                    let client = embedded.client().ok();
                    *own.lock().await = Some(embedded);
                    client
                }
                Ok(StateOwner::Other { client, .. }) => Some(client),
                // The error that the command has met says as much.
                Err(_) => None,
            }
        }
    })
}

impl Context {
    /// Opens a session, lets `work` use it, and closes it whatever happened.
    pub fn with_server<T>(
        &self,
        access: Access,
        work: impl AsyncFnOnce(&Client) -> Result<T>,
    ) -> Result<T> {
        super::block_on(async {
            let session = Session::open(&self.locator, access).await?;
            let result = work(&session.client).await;
            session.close().await;
            result
        })
    }

    /// Like [`Context::with_server`], for what lives only as long as its server: one that stays
    /// must be there already.
    pub fn with_lasting_server<T>(
        &self,
        what: &str,
        work: impl AsyncFnOnce(&Client) -> Result<T>,
    ) -> Result<T> {
        super::block_on(async {
            let session = Session::open(&self.locator, Access::Existing).await?;
            let result = match session.is_momentary().await {
                true => Err(Error::usage_hint(
                    format!("no server is running, and {what} ends with its server"),
                    "start one that stays with `torc server run`, or do this while `torc run` is at work",
                )),
                // A server of our own could not take its place.
                false => work(&session.client.detached()).await,
            };
            session.close().await;
            result
        })
    }
}

/// `--token-file`, else `TORC_TOKEN`, else the token of the local server when it has the same
/// address.
fn client_for(locator: &Locator, url: &str) -> Result<Client> {
    // Before the token: without a scheme nothing else about the address can be right.
    if !url.contains("://") {
        return Err(Error::usage_hint(
            format!("`{url}` has no scheme"),
            format!("write it as http://{url} or https://{url}"),
        ));
    }
    if let Some(file) = &locator.token_file {
        let token = discovery::read_token_file(file)?;
        return Ok(Client::with_ca(url, &token, locator.tls_ca.as_deref())?);
    }
    if let Some(token) = std::env::var(discovery::ENV_TOKEN).ok().filter(|t| !t.trim().is_empty()) {
        return Ok(Client::with_ca(url, &token, locator.tls_ca.as_deref())?);
    }
    let local = state_dir(locator, Access::Existing)
        .ok()
        .and_then(|dir| discovery::read_server_file(&dir).ok());
    // The same address exactly: port 8080 begins like port 80.
    match local.filter(|file| url.trim_end_matches('/') == file.url.trim_end_matches('/')) {
        Some(file) => Ok(Client::local(&file)?),
        None => Err(Error::usage_hint(
            format!("there is no token for the server at {url}"),
            "name its file with `--token-file` (or `TORC_TOKEN_FILE`)",
        )),
    }
}

/// `--dir`, else the nearest `.torc` with a database or a server, else (to create something)
/// `.torc` right here.
pub fn state_dir(locator: &Locator, access: Access) -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    if let Some(dir) = &locator.dir {
        let dir = here.join(dir);
        return match access {
            Access::Existing if !is_state(&dir) && !is_closed(&dir) => Err(no_state(&dir)),
            Access::Existing | Access::Create => Ok(dir),
        };
    }
    match access {
        Access::Create => Ok(here.join(STATE_DIR)),
        Access::Existing => find_upwards(&here),
    }
}

/// The nearest state directory that is this user's and closed to writing by others. Those of other
/// users are passed over: in a shared directory any user can make one. When nothing else is found,
/// they are told.
fn find_upwards(here: &Path) -> Result<PathBuf> {
    let mut left_out = None;
    for dir in here.ancestors().map(|dir| dir.join(STATE_DIR)) {
        match torc_fs::check_private_dir(&dir) {
            Ok(()) if is_state(&dir) => return Ok(dir),
            Err(error) if torc_fs::distrust(&error).is_some() => {
                left_out.get_or_insert_with(|| (dir, error.to_string()));
            }
            // It is there, and its owner lets no other user in.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && dir.is_dir() => {
                let why = "it belongs to another user, who lets no others in";
                left_out.get_or_insert_with(|| (dir, why.to_owned()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Err(match left_out {
        Some((dir, why)) => Error::usage_hint(
            format!("there are no workflows of yours here; `{}` is not used: {why}", dir.display()),
            "start one with `torc run SPEC`; the owner of the other can give you its address and a token, for `--url` and `--token-file`",
        ),
        None => no_state(&here.join(STATE_DIR)),
    })
}

fn has_database(dir: &Path) -> bool {
    dir.join(Options::DATABASE).is_file()
}

/// A server may have its database elsewhere; then `server.json` is all that is here.
fn is_state(dir: &Path) -> bool {
    has_database(dir) || discovery::server_file_path(dir).is_file()
}

/// Permission denied: the state of another user. Opening it tells whose.
fn is_closed(dir: &Path) -> bool {
    dir.join(Options::DATABASE).try_exists().is_err()
}

/// `server.json` names a server that is gone, and its database is not here.
fn no_answer(dir: &Path) -> Error {
    let url = discovery::read_server_file(dir)
        .map(|file| format!(" at {}", file.url))
        .unwrap_or_default();
    Error::Unreachable {
        message: format!(
            "the server of `{}`{url} does not answer, and its database is elsewhere",
            dir.display()
        ),
        hint: format!(
            "start it again with `torc server run --database FILE`; to start over here, delete `{}`",
            discovery::server_file_path(dir).display()
        ),
        is_unsent: true,
    }
}

fn no_state(dir: &Path) -> Error {
    Error::usage_hint(
        match dir.is_dir() || !dir.is_absolute() || dir.ends_with(STATE_DIR) {
            true => format!("there are no workflows here: `{}` has no database", dir.display()),
            false => format!("there are no workflows here: `{}` does not exist", dir.display()),
        },
        "start one with `torc run SPEC`, or name another place with `--dir` or `--url`",
    )
}
