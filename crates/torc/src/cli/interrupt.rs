//! Ctrl-C and SIGTERM as something to wait for.

use crate::error::{Error, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The user's wish to stop: SIGINT, SIGTERM or SIGHUP, as often as it is expressed.
pub struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Interrupts {
    /// From here on these signals no longer end the process by themselves.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(Error::io("listen for", "signals"));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
            _ = self.hup.recv() => {}
        }
    }
}
