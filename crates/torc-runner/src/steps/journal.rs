//! What steps of an attempt have come to, on disk while it runs: a next attempt may skip what is
//! done.

use super::scope::Captured;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use torc_model::json::from_text;
use torc_model::steps::Outcome;

/// One line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Where in the tree.
    pub path: String,
    /// `handler_started` before a handler runs, else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// What the step came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// All captures at this point.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, Captured>,
}

/// The journal of one attempt.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Option<File>,
}

/// More than any attempt writes.
const MAX_BYTES: u64 = 1 << 30;

impl Journal {
    /// Not there until something is written.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// Adds a line; in one write, so that a crash leaves whole lines and at most one piece.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(torc_fs::append_log(&self.path)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        file.write_all(text.as_bytes())
    }

    /// The lines of an earlier attempt's journal; a piece of a line at the end is not one.
    pub fn read(path: &Path) -> Option<Vec<Line>> {
        let text = torc_fs::read_text(path, torc_fs::Trust::Log, MAX_BYTES).ok()?;
        Some(text.lines().filter_map(|line| from_text(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = Journal::new(path.clone());
        let line = Line {
            path: "steps[0]".into(),
            event: None,
            outcome: Some(Outcome::Ok),
            captures: BTreeMap::new(),
        };
        journal.write(&line).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"{\"path\": \"ste").unwrap();
        assert_eq!(Journal::read(&path), Some(vec![line]));
        assert_eq!(Journal::read(&dir.path().join("none")), None);
    }
}
