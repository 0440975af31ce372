//! Keeps results on disk while the server does not answer, so that not even the death of the runner
//! loses them.
//!
//! One file per runner, a line per result, synced before any part relies on it; it exists only
//! during an outage. A file whose runner is gone is delivered by the next one that works in the
//! same directory.

use crate::identity::Identity;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use torc_client::Client;
use torc_model::api::{CompletionBatch, CompletionReport, ReportResult};
use torc_model::files::{MAX_SPOOL_BYTES as MAX_BYTES, SPOOL as DIR, spool_file};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::kept;

/// Ending of the file that says that the owner of a spool has left.
const LEFT: &str = "left";
/// At most this many results in one request.
const BATCH: usize = 200;

/// The first line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct SpoolHeader {
    runner_id: RunnerId,
    workflow_id: WorkflowId,
    owner: Identity,
}

/// The file of one runner.
pub struct Spool {
    path: PathBuf,
    header: SpoolHeader,
    file: Option<File>,
    /// For these there was no room on the disk so far.
    unkept: Vec<CompletionReport>,
}

impl Spool {
    /// Nothing is written before there is something to keep.
    pub fn new(
        output_dir: &Path,
        key: &str,
        runner_id: RunnerId,
        workflow_id: WorkflowId,
        owner: Identity,
    ) -> Self {
        let path = output_dir.join(DIR).join(spool_file(key));
        Self {
            path,
            header: SpoolHeader { runner_id, workflow_id, owner },
            file: None,
            unkept: Vec::new(),
        }
    }

    /// Keeps results; they are on disk when it returns, and so are those that could not be kept
    /// before. After an error the next call tries again.
    pub fn append(&mut self, reports: &[CompletionReport]) -> io::Result<()> {
        self.unkept.extend_from_slice(reports);
        self.write()?;
        self.unkept.clear();
        Ok(())
    }

    /// Says that its runner has left, so that a runner on any host may deliver what is kept.
    pub fn leave(&self) -> io::Result<()> {
        match self.file {
            Some(_) => torc_fs::write_new_private(&self.path.with_extension(LEFT), b""),
            None => Ok(()),
        }
    }

    /// How many results are not on disk.
    pub fn unkept(&self) -> usize {
        self.unkept.len()
    }

    fn write(&mut self) -> io::Result<()> {
        if self.unkept.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                if let Some(dir) = self.path.parent() {
                    torc_fs::make_private_dir(dir)?;
                }
                none.insert(torc_fs::append_private(&self.path)?)
            }
        };
        let length = file.metadata()?.len();
        let mut text = Vec::new();
        if length == 0 {
            push_line(&mut text, &self.header)?;
        }
        for report in &self.unkept {
            push_line(&mut text, report)?;
        }
        torc_failpoint::hit("spool.before_write");
        let result = file.write_all(&text).and_then(|()| file.sync_all());
        if result.is_err() {
            // Half a line would spoil the next one as well.
            file.set_len(length)?;
        }
        if length == 0
            && result.is_ok()
            && let Err(error) = torc_fs::sync_names_above(&self.path)
        {
            // One above that may not be read: its file system keeps names in an order of its own.
            tracing::debug!(%error, path = %self.path.display(), "cannot flush the directories above");
        }
        torc_failpoint::hit("spool.after_sync");
        result
    }

    /// Everything has been delivered.
    pub fn clear(&mut self) -> io::Result<()> {
        self.unkept.clear();
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
    workflow_id: WorkflowId,
    /// Its owner certainly runs no more. Of an owner on another host that did not leave in order
    /// nothing is known.
    is_gone: bool,
    reports: Vec<CompletionReport>,
}

/// What became of kept results.
#[derive(Clone, Default, Debug)]
pub struct Delivered {
    /// The server's answers, one for each result, with the workflow.
    pub results: Vec<(WorkflowId, ReportResult)>,
    /// Files whose results the server could not hear or refused, and what it said.
    pub failures: Vec<(PathBuf, String)>,
    /// Files of runners on other hosts that may still live: delivered, and left in place.
    pub kept: Vec<PathBuf>,
}

/// Delivers what runners of this workflow left behind that are gone. Answers how many results the
/// server took.
pub async fn deliver_abandoned(
    client: &Client,
    output_dir: &Path,
    workflow_id: WorkflowId,
) -> usize {
    let is_ours = |spool: &Abandoned| spool.workflow_id == workflow_id && spool.is_gone;
    let found = find(&output_dir.join(DIR)).into_iter().filter(is_ours).collect();
    deliver(client, found).await.results.len()
}

/// Delivers what runners have kept below this output directory, of every workflow. A runner that
/// still lives delivers its own; results that the server hears twice count once.
pub async fn deliver_all(client: &Client, output_dir: &Path) -> io::Result<Delivered> {
    let dir = output_dir.join(DIR);
    // No directory: no runner ever kept anything here. Any other error is told.
    if let Err(error) = fs::read_dir(&dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    Ok(deliver(client, find(&dir)).await)
}

async fn deliver(client: &Client, found: Vec<Abandoned>) -> Delivered {
    let mut delivered = Delivered::default();
    for Abandoned { path, runner_id, workflow_id, is_gone, reports } in found {
        let mut is_done = true;
        for items in reports.chunks(BATCH) {
            let batch = CompletionBatch { runner_id, items: items.to_vec() };
            match client.complete_attempts(&batch).await {
                Ok(answer) => {
                    delivered.results.extend(answer.results.into_iter().map(|r| (workflow_id, r)))
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot deliver the results of an earlier runner");
                    delivered.failures.push((path.clone(), error.to_string()));
                    // What the server refuses now it will refuse always; what it could not hear it
                    // may hear later.
                    is_done &= !error.is_temporary();
                }
            }
        }
        if !is_gone {
            delivered.kept.push(path);
        } else if is_done {
            // The results first: without them the other file says nothing.
            for path in [&path, &path.with_extension(LEFT)] {
                if let Err(error) = fs::remove_file(path)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(path = %path.display(), %error, "cannot remove delivered results");
                }
            }
        }
    }
    delivered
}

fn find(dir: &Path) -> Vec<Abandoned> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| read_spool(&entry.path())).collect()
}

/// Results count as the word of a runner of this user, so no other user may have written them.
fn read_kept(path: &Path) -> Option<Vec<u8>> {
    torc_fs::read(path, torc_fs::Trust::Private, MAX_BYTES)
        .inspect_err(|error| {
            tracing::warn!(path = %path.display(), %error, "the results that a runner kept are left alone");
        })
        .ok()
}

/// The results of one runner; `None` for one that is alive on this host, which delivers its own.
fn read_spool(path: &Path) -> Option<Abandoned> {
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        return None;
    }
    let file = read_kept(path)?;
    let header: SpoolHeader = kept::owner(&file)?;
    let is_gone = header.owner.is_dead() || path.with_extension(LEFT).exists();
    if !is_gone && header.owner.is_here() {
        return None;
    }
    let reports = kept::reports(&file);
    let SpoolHeader { runner_id, workflow_id, .. } = header;
    Some(Abandoned { path: path.into(), runner_id, workflow_id, is_gone, reports })
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

    fn of_first(dir: &Path) -> Vec<Abandoned> {
        let is_ours = |spool: &Abandoned| spool.workflow_id == WorkflowId(1) && spool.is_gone;
        find(dir).into_iter().filter(is_ours).collect()
    }

    #[test]
    fn results_of_another_host_are_free_when_their_runner_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = Identity { hostname: "elsewhere".into(), ..Identity::own() };
        let mut spool = Spool::new(dir.path(), "a", RunnerId(4), WorkflowId(1), elsewhere);
        spool.leave().unwrap();
        assert!(!dir.path().join(DIR).exists(), "nothing was kept, so there is nothing to leave");
        spool.append(&[report(1)]).unwrap();
        let found = find(&dir.path().join(DIR));
        assert_eq!((found.len(), found[0].is_gone), (1, false), "it may still live");
        spool.leave().unwrap();
        assert!(of_first(&dir.path().join(DIR))[0].is_gone);
    }

    #[test]
    fn results_of_a_dead_runner_are_found_and_those_of_a_living_one_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let spool = |key: &str, workflow, owner| {
            Spool::new(dir.path(), key, RunnerId(4), WorkflowId(workflow), owner)
        };
        let mut mine = spool("a", 1, dead());
        mine.append(&[report(1), report(2)]).unwrap();
        mine.append(&[report(3)]).unwrap();
        spool("b", 1, Identity::own()).append(&[report(4)]).unwrap();
        spool("c", 2, dead()).append(&[report(5)]).unwrap();
        // Torn in the middle of a line, and of a character.
        let path = dir.path().join(DIR).join("a.jsonl");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"id\": 9, \"tok\xc3");
        fs::write(&path, &text).unwrap();

        let found = of_first(&dir.path().join(DIR));
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
        assert!(of_first(&dir.path().join(DIR)).is_empty());
        spool.append(&[report(2)]).unwrap();
        assert_eq!(of_first(&dir.path().join(DIR))[0].reports, [report(2)]);
    }
    #[test]
    fn what_could_not_be_kept_is_kept_as_soon_as_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), "a", RunnerId(4), WorkflowId(1), dead());
        // No directory can be made here.
        fs::write(dir.path().join(DIR), "").unwrap();
        spool.append(&[report(1)]).unwrap_err();
        spool.append(&[report(2)]).unwrap_err();
        assert_eq!(spool.unkept(), 2);
        fs::remove_file(dir.path().join(DIR)).unwrap();
        // As after a first write that a full disk refused: the file is there and has no header.
        fs::create_dir(dir.path().join(DIR)).unwrap();
        spool.file = Some(File::create(&spool.path).unwrap());
        spool.append(&[report(3)]).unwrap();
        assert_eq!(spool.unkept(), 0);
        let found = of_first(&dir.path().join(DIR));
        assert_eq!(found[0].reports, [report(1), report(2), report(3)]);
    }
}
