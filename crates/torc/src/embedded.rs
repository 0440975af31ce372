//! The server inside this process, on the local state directory.

use crate::error::{Error, Result};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_client::inside::{InProcess, boxed};
use torc_client::{Client, discovery};
use torc_server::{Options, RunningServer, Server, StartError};

/// Another process that only looks holds the database for a moment. Nothing tells when it lets go,
/// so we ask again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// A process that holds the database this long without answering is not about to let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the server is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Answers this command and ends; no other command may rely on it, so it does not say where it
    /// is.
    Look,
    /// Serves a run, and every command that asks meanwhile.
    Run {
        /// The port of a server whose place it takes, so that those who use it find it again.
        port: u16,
    },
}

/// Who serves the state directory.
pub enum StateOwner {
    /// This process.
    Us(Embedded),
    /// Another process.
    Other {
        /// Talks to it.
        client: Client,
        /// It is a `torc run`: its server ends with it.
        is_run: bool,
    },
}

/// A server inside this process.
pub struct Embedded {
    server: RunningServer,
}

/// An address or a certificate that cannot be used says nothing about the state directory.
pub fn cannot_start(dir: &Path, error: &StartError) -> Error {
    let is_elsewhere = matches!(error, StartError::Listen { .. } | StartError::Tls { .. });
    let dir = (!is_elsewhere).then(|| dir.to_owned());
    Error::Embedded { dir, reason: error.to_string(), hint: error.hint() }
}

impl Embedded {
    /// Takes the state directory, or finds out who has it.
    pub async fn start(dir: &Path, purpose: Purpose) -> Result<StateOwner> {
        let begin = Instant::now();
        loop {
            if let Some(owner) = find_other(dir).await {
                return Ok(owner);
            }
            match Server::start(options(dir, purpose)).await {
                Ok(server) => return Ok(StateOwner::Us(Self { server })),
                Err(StartError::Owned { .. }) if begin.elapsed() < PATIENCE => {
                    tokio::time::sleep(ASK_AGAIN).await
                }
                Err(error) => return Err(cannot_start(dir, &error)),
            }
        }
    }

    /// Talks to it.
    pub fn client(&self) -> Result<Client> {
        let inside = self.server.inside();
        let ask: InProcess = Arc::new(move |request| {
            let inside = inside.clone();
            Box::pin(
                async move { inside.answer(request).await.map(boxed).map_err(io::Error::other) },
            )
        });
        Ok(Client::new(self.server.url(), self.server.token())?.with_inside(ask))
    }

    /// Lets requests in flight end and gives the state free.
    pub async fn stop(self) {
        self.server.shutdown().await;
    }
}

fn options(dir: &Path, purpose: Purpose) -> Options {
    let mut options = Options::new(dir);
    options.embedded = true;
    match purpose {
        Purpose::Look => options.announce = false,
        Purpose::Run { port } => options.port = port,
    }
    options
}

/// The server that `server.json` names, if it answers.
pub async fn find_other(dir: &Path) -> Option<StateOwner> {
    let file = discovery::read_server_file(dir).ok()?;
    let client = Client::local(&file).ok()?;
    client.health().await.ok()?;
    Some(StateOwner::Other { client, is_run: file.embedded })
}

/// The server that `server.json` names, if it answers.
pub async fn living_server(dir: &Path) -> Option<Client> {
    match find_other(dir).await? {
        StateOwner::Other { client, .. } => Some(client),
        StateOwner::Us(_) => None,
    }
}
