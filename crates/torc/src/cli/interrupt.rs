//! Ctrl-C and SIGTERM as something to wait for.

use crate::error::{Error, Result};
use crate::exit::Exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The user's wish to stop: SIGINT, SIGTERM or SIGHUP, as often as it is expressed.
pub struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
    /// The last one was SIGINT.
    is_int: bool,
}

impl Interrupts {
    /// From here on these signals no longer end the process by themselves.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(Error::io("listen for", "signals"));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: listen(SignalKind::hangup())?,
            is_int: false,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        self.is_int = tokio::select! {
            _ = self.int.recv() => true,
            _ = self.term.recv() => false,
            _ = self.hup.recv() => false,
        };
    }

    /// How a command ends that Ctrl-C kept from its work; else as it would without a signal.
    pub fn exit(&self, otherwise: Exit) -> Exit {
        if self.is_int { Exit::Interrupted } else { otherwise }
    }
}
