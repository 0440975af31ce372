//! The same server on a Unix socket in the state directory, for `ssh -L PORT:SOCKET`: only its owner
//! can connect, whatever other users of a login node try.

use super::listen::{self, Peer, UnprovenConnection, UnprovenConnections};
use crate::api::Front;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// The socket's name in the state directory.
const NAME: &str = "ui.sock";
/// What the kernel has room for in the address of a socket.
const LONGEST_PATH: usize = 107;
/// Connections that have shown no good token yet; a browser has six.
const MOST_STRANGERS: usize = 64;

/// The socket, bound. None where the path is too long or the file system has no sockets: the page
/// can still be reached by its port.
pub fn bind(dir: &Path) -> Option<(UnixListener, PathBuf)> {
    let path = dir.canonicalize().unwrap_or_else(|_| dir.into()).join(NAME);
    if path.as_os_str().len() > LONGEST_PATH {
        tracing::debug!(path = %path.display(), "no socket: its path is too long");
        return None;
    }
    // The directory is ours alone and locked: what is there is left from a server that died.
    let _ = std::fs::remove_file(&path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::debug!(%error, path = %path.display(), "no socket");
            return None;
        }
    };
    match std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)) {
        Ok(()) => Some((listener, path)),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the socket cannot be closed to others");
            let _ = std::fs::remove_file(&path);
            None
        }
    }
}

/// Serves until `stop`.
pub async fn serve(
    (listener, path): (UnixListener, PathBuf),
    front: Arc<Front>,
    stop: CancellationToken,
) {
    let strangers = Arc::new(UnprovenConnections::new(MOST_STRANGERS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let stranger = UnprovenConnection::enter(&strangers, Peer::Local);
                let (front, stop) = (front.clone(), stop.clone());
                tokio::spawn(listen::serve_connection(stream, None, front, stop, stranger));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the socket");
                // Out of file descriptors, most likely: others must close first.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
    let _ = std::fs::remove_file(&path);
}
