//! Keeps results on disk while the server does not answer, so that not even the death of the runner loses them.
//!
//! One file per runner, a line per result, synced before anybody relies on it; it exists only during an outage. A file
//! whose runner is gone is delivered by the next one that works in the same directory.

use crate::identity::Identity;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use torc_client::Client;
use torc_model::api::{CompletionBatch, CompletionReport};
use torc_model::ids::{RunnerId, WorkflowId};

const DIR: &str = ".torc_spool";
/// At most this many results in one request.
const BATCH: usize = 200;

/// The first line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Header {
    runner_id: RunnerId,
    workflow_id: WorkflowId,
    owner: Identity,
}

/// The file of one runner.
pub struct Spool {
    path: PathBuf,
    header: Header,
    file: Option<File>,
}

impl Spool {
    /// Nothing is written before there is something to keep.
    pub fn new(output_dir: &Path, key: &str, runner_id: RunnerId, workflow_id: WorkflowId, owner: Identity) -> Self {
        let path = output_dir.join(DIR).join(format!("{key}.jsonl"));
        Self { path, header: Header { runner_id, workflow_id, owner }, file: None }
    }

    /// Keeps results; they are on disk when it returns.
    pub fn append(&mut self, reports: &[CompletionReport]) -> io::Result<()> {
        let mut text = Vec::new();
        if self.file.is_none() {
            if let Some(dir) = self.path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
            if file.metadata()?.len() == 0 {
                push_line(&mut text, &self.header)?;
            }
            self.file = Some(file);
        }
        for report in reports {
            push_line(&mut text, report)?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        torc_failpoint::hit("spool.before_write");
        let length = file.metadata()?.len();
        let result = file.write_all(&text).and_then(|()| file.sync_all());
        if result.is_err() {
            // Half a line would spoil the next one as well.
            file.set_len(length)?;
        }
        torc_failpoint::hit("spool.after_sync");
        result
    }

    /// Everything has been delivered.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.file.take().is_some() {
            torc_failpoint::hit("spool.before_clear");
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

fn push_line(text: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

/// Results of a runner that is gone.
struct Abandoned {
    path: PathBuf,
    runner_id: RunnerId,
    reports: Vec<CompletionReport>,
}

/// Delivers what runners of this workflow left behind that are gone. Answers how many results the server took.
pub async fn deliver_abandoned(client: &Client, output_dir: &Path, workflow_id: WorkflowId) -> usize {
    let mut delivered = 0;
    for Abandoned { path, runner_id, reports } in find_abandoned(&output_dir.join(DIR), workflow_id) {
        let mut is_done = true;
        for items in reports.chunks(BATCH) {
            let batch = CompletionBatch { runner_id, items: items.to_vec() };
            match client.complete_attempts(&batch).await {
                Ok(answer) => delivered += answer.results.len(),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "can not deliver the results of an earlier runner");
                    // What the server refuses now it will refuse always; what it could not hear it may hear later.
                    is_done &= !error.is_temporary();
                }
            }
        }
        if is_done && let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "can not remove delivered results");
        }
    }
    delivered
}

fn find_abandoned(dir: &Path, workflow_id: WorkflowId) -> Vec<Abandoned> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| read_abandoned(&entry.path(), workflow_id)).collect()
}

fn read_abandoned(path: &Path, workflow_id: WorkflowId) -> Option<Abandoned> {
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next()?).ok()?;
    if header.workflow_id != workflow_id || !header.owner.is_dead() {
        return None;
    }
    // The last line may be torn: its runner died while writing it, and nobody relied on it.
    let reports = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    Some(Abandoned { path: path.into(), runner_id: header.runner_id, reports })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::unstarted_report;
    use crate::dispatcher::tests::packet;
    use torc_model::status::Cause;

    fn report(id: i64) -> CompletionReport {
        unstarted_report(packet(id), Cause::Stopped, "x", 5)
    }

    fn dead() -> Identity {
        // The number of our process with a start time that it does not have.
        Identity { pid_start: 1, ..Identity::own() }
    }

    #[test]
    fn results_of_a_dead_runner_are_found_and_those_of_a_living_one_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let spool = |key: &str, workflow, owner| Spool::new(dir.path(), key, RunnerId(4), WorkflowId(workflow), owner);
        let mut mine = spool("a", 1, dead());
        mine.append(&[report(1), report(2)]).unwrap();
        mine.append(&[report(3)]).unwrap();
        spool("b", 1, Identity::own()).append(&[report(4)]).unwrap();
        spool("c", 2, dead()).append(&[report(5)]).unwrap();
        // Torn in the middle of a line.
        let path = dir.path().join(DIR).join("a.jsonl");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"id\": 9, \"tok");
        fs::write(&path, &text).unwrap();

        let found = find_abandoned(&dir.path().join(DIR), WorkflowId(1));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].runner_id, RunnerId(4));
        assert_eq!(found[0].reports, [report(1), report(2), report(3)]);
    }

    #[test]
    fn a_cleared_spool_leaves_nothing_and_can_be_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), "a", RunnerId(4), WorkflowId(1), dead());
        spool.clear().unwrap();
        spool.append(&[report(1)]).unwrap();
        spool.clear().unwrap();
        assert!(find_abandoned(&dir.path().join(DIR), WorkflowId(1)).is_empty());
        spool.append(&[report(2)]).unwrap();
        assert_eq!(find_abandoned(&dir.path().join(DIR), WorkflowId(1))[0].reports, [report(2)]);
    }
}
