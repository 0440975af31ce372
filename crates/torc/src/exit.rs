//! The exit codes of `torc`: part of its contract with scripts.

/// How the program ended, as a number for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All jobs succeeded, or the command did what it was asked.
    Success = 0,
    /// The command worked, but some jobs did not succeed, or have not run yet.
    JobsFailed = 1,
    /// The call or the spec was wrong; nothing was changed.
    Usage = 2,
    /// The server could not be reached, or could not answer.
    Unreachable = 3,
    /// The user pressed Ctrl-C: 128 and the number of SIGINT, as shells report it.
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
