//! What an agent asked for, one JSON line per call, and how many calls it may make.

use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Refused calls after which nothing good is to be expected. A few are left, so that a session can
/// end by itself.
const TOO_MANY_REFUSED: u64 = 10;

/// Counts calls and writes them down.
#[derive(Default)]
pub struct Journal {
    calls: AtomicU64,
    /// 0: as many as it likes.
    most: u64,
    file: Option<Mutex<File>>,
    overrun: Notify,
}

impl Journal {
    /// A journal in a file, with at most this many calls.
    pub fn create(path: &Path, most: u64) -> std::io::Result<Self> {
        Ok(Self { most, file: Some(Mutex::new(torc_fs::create_log(path)?)), ..Self::default() })
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns when a caller goes on and on after its last permitted call.
    pub async fn overrun(&self) {
        self.overrun.notified().await;
    }

    /// One more call; refused when there were enough.
    pub(crate) fn admit(&self) -> Result<(), String> {
        let before = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.most > 0 && before + 1 == self.most + TOO_MANY_REFUSED {
            self.overrun.notify_one();
        }
        match self.most > 0 && before >= self.most {
            true => Err(format!(
                "this session may make {} and has made them",
                torc_model::words::count(self.most, "call")
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn write(&self, tool: &str, arguments: &Value, answer: &Result<Value, String>) {
        let Some(file) = &self.file else { return };
        let line = match answer {
            Ok(value) => {
                json!({"tool": tool, "arguments": arguments, "bytes": value.to_string().len()})
            }
            Err(error) => json!({"tool": tool, "arguments": arguments, "error": error}),
        };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // The verdicts themselves are rows of the database; a full disk must not stop them.
        let _ = writeln!(file, "{line}");
    }
}
