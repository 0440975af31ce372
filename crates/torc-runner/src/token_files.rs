//! The files in which attempts find their tokens.
//!
//! Each attempt has a token of its own that ends with it. A file of its own would cost four system
//! calls per job, so files are kept and used again: an attempt costs one `pwrite` into a file that
//! is open already. There are as many files as attempts were ever executed at once.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use torc_model::token::{Grant, Key};

/// Tokens are filled up to this length with line ends, which readers take off, so that nothing of
/// a longer one before stays.
const LENGTH: usize = 192;

/// Makes tokens and puts them into files. Cheap to clone.
#[derive(Clone)]
pub struct TokenFiles {
    pool: Option<Arc<TokenPool>>,
}

struct TokenPool {
    key: Key,
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<Slot>,
    made: usize,
}

struct Slot {
    path: String,
    file: File,
}

/// The file of one attempt, for as long as this lives.
pub struct TokenFile {
    slot: Option<Slot>,
    pool: Option<Arc<TokenPool>>,
}

impl TokenFiles {
    /// In this private directory, which is there.
    pub fn new(dir: &Path, key: Key) -> Self {
        let pool = TokenPool { key, dir: dir.into(), state: Mutex::default() };
        Self { pool: Some(Arc::new(pool)) }
    }

    /// Where there is no server.
    pub fn none() -> Self {
        Self { pool: None }
    }

    /// A file with the token for this. Without room on the disk the processes have none, which
    /// those that need it will say.
    pub fn issue(&self, grant: &Grant) -> TokenFile {
        let Some(pool) = &self.pool else { return TokenFile { slot: None, pool: None } };
        let slot = pool.fill(grant).inspect_err(|error| {
            tracing::warn!(dir = %pool.dir.display(), %error, "cannot write a token");
        });
        TokenFile { slot: slot.ok(), pool: Some(pool.clone()) }
    }
}

impl TokenPool {
    fn fill(&self, grant: &Grant) -> io::Result<Slot> {
        // A statement of its own, so that the lock is released before a file is made.
        let kept = self.lock().free.pop();
        let slot = match kept {
            Some(slot) => slot,
            None => self.make()?,
        };
        let mut text = self.key.sign(grant).into_bytes();
        text.resize(LENGTH.max(text.len() + 1), b'\n');
        slot.file.write_all_at(&text, 0)?;
        Ok(slot)
    }

    fn make(&self) -> io::Result<Slot> {
        let number = {
            let mut state = self.lock();
            state.made += 1;
            state.made
        };
        let path = self.dir.join(number.to_string());
        let file = torc_fs::create_private(&path)?;
        Ok(Slot { path: path.display().to_string(), file })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenFile {
    /// For `TORC_TOKEN_FILE`.
    pub fn path(&self) -> &str {
        self.slot.as_ref().map_or("/dev/null", |slot| &slot.path)
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if let (Some(slot), Some(pool)) = (self.slot.take(), &self.pool) {
            pool.lock().free.push(slot);
        }
    }
}

impl fmt::Debug for TokenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenFiles(..)")
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenFile").field(&self.path()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};

    fn grant(attempt: i64) -> Grant {
        Grant::Job {
            workflow: WorkflowId(1),
            runner: RunnerId(2),
            job: JobId(attempt),
            attempt: AttemptId(attempt),
        }
    }

    #[test]
    fn files_are_private_used_again_and_hold_the_token_of_their_attempt_only() {
        let dir = tempfile::tempdir().unwrap();
        let server = Key::of_server("owner", "db");
        let files = TokenFiles::new(dir.path(), server.of_runner(RunnerId(2)));
        let read = |file: &TokenFile| {
            let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            server.read(std::fs::read_to_string(file.path()).unwrap().trim())
        };
        let first = files.issue(&grant(1_000_000_000_000));
        let second = files.issue(&grant(2));
        assert_eq!(read(&first), Some(grant(1_000_000_000_000)));
        assert_eq!(read(&second), Some(grant(2)));
        let path = first.path().to_owned();
        drop(first);
        let third = files.issue(&grant(3));
        assert_eq!((third.path(), read(&third)), (path.as_str(), Some(grant(3))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(TokenFiles::none().issue(&grant(1)).path(), "/dev/null");
    }
}
