//! A pager for what is longer than the screen, as `git` and `man` do it: `TORC_PAGER`, `PAGER`, else
//! `less`, which leaves at once what fits.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

/// Shows a text; false when that is not for a pager, or there is none.
pub fn show(text: &str) -> bool {
    let terminal = console::Term::stdout();
    let is_long = text.lines().count() >= usize::from(terminal.size().0);
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !std::io::stdout().is_terminal() || !is_long || is_dumb {
        return false;
    }
    let Some(pager) = pager() else { return false };
    // Ctrl-C belongs to the pager: without this it would end us, and leave the pager without a
    // shell that waits for it.
    let _listener = tokio::runtime::Handle::try_current().ok().and_then(|_| {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).ok()
    });
    let mut command = Command::new("sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut pipe) = child.stdin.take() {
        // A user who leaves the pager early closes the pipe.
        let _ = pipe.write_all(text.as_bytes());
    }
    // 127: the shell has not found it.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// The command; none if the user has switched it off with an empty one or with `cat`.
fn pager() -> Option<OsString> {
    let asked = std::env::var_os("TORC_PAGER").or_else(|| std::env::var_os("PAGER"));
    match asked {
        Some(asked) if asked.is_empty() || asked == "cat" => None,
        Some(asked) => Some(asked),
        None => Some("less".into()),
    }
}
