//! What jobs print, shown as they end: grouped per job, so that lines of two jobs never mix. A single
//! job is shown line by line while it runs.

use super::job_stream::{JobStream, StreamPlace};
use crate::error::{Error, Result};
use crate::output::progress::ProgressDisplay;
use crate::output::{self, escape, raw::RawWriter};
use std::collections::{BTreeSet, HashMap};
use std::io::Read as _;
use std::path::Path;
use torc_client::{Client, Query};
use torc_model::api::JobView;
use torc_model::ids::{AttemptId, JobId};

/// How output is shown.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The name of its job stands before each line.
    pub tag: bool,
    /// In the order of the jobs instead of the order in which they end.
    pub keep_order: bool,
    /// There is one job: its lines are shown as it prints them.
    pub is_live: bool,
}

/// Shows the output of one workflow's jobs.
pub struct JobOutput {
    style: Style,
    /// Attempts that have ended, until the server has decided what follows.
    ended: HashMap<AttemptId, JobId>,
    /// With `keep_order`: jobs whose turn has not come, in order.
    waiting: BTreeSet<JobId>,
    /// With `keep_order`: attempts that are to be shown when their turn comes.
    ready: HashMap<JobId, AttemptId>,
    place: StreamPlace,
    /// With `is_live`: the attempt that runs.
    stream: Option<JobStream>,
    /// With `is_live`: attempts that were shown while they ran.
    shown: BTreeSet<AttemptId>,
}

impl JobOutput {
    /// For the jobs of the workflow of this place.
    pub async fn new(client: &Client, place: StreamPlace, style: Style) -> Result<Self> {
        let workflow = place.workflow;
        let mut waiting = BTreeSet::new();
        if style.keep_order {
            let query = Query::new().add("workflow_id", workflow);
            let jobs: Vec<JobView> = client.list_all("/jobs", &query).await?;
            waiting.extend(jobs.iter().filter(|job| !job.status.is_final()).map(|job| job.id));
        }
        Ok(Self {
            style,
            ended: HashMap::new(),
            waiting,
            ready: HashMap::new(),
            place,
            stream: None,
            shown: BTreeSet::new(),
        })
    }

    /// An attempt has started: the number of the attempt, and the job's name.
    pub fn on_start(&mut self, attempt: AttemptId, job: JobId, number: i64, name: &str) {
        if self.style.is_live {
            let tag = self.tag(name);
            self.stream = JobStream::open(&self.place, (attempt, job, number), tag.as_deref());
        }
    }

    /// Waits until the job that is shown while it runs has printed something; for ever without one.
    pub async fn grew(&self) {
        match &self.stream {
            Some(stream) => stream.grew().await,
            None => std::future::pending().await,
        }
    }

    /// Shows what it has printed.
    pub fn show_growth(&mut self, progress: &ProgressDisplay) -> Result<()> {
        match &mut self.stream {
            Some(stream) => progress.suspend(|| stream.show()),
            None => Ok(()),
        }
    }

    /// An attempt has ended.
    pub fn on_end(
        &mut self,
        progress: &ProgressDisplay,
        attempt: AttemptId,
        job: JobId,
    ) -> Result<()> {
        self.ended.insert(attempt, job);
        match self.stream.take_if(|stream| stream.attempt == attempt) {
            Some(mut stream) => {
                self.shown.insert(attempt);
                progress.suspend(|| stream.finish())
            }
            None => Ok(()),
        }
    }

    fn tag(&self, name: &str) -> Option<String> {
        self.style.tag.then(|| escape::line(name).into_owned())
    }

    /// The server has decided what follows from an end: only the last attempt of a job is shown.
    pub async fn on_verdict(
        &mut self,
        client: &Client,
        progress: &ProgressDisplay,
        attempt: AttemptId,
        is_over: bool,
    ) -> Result<()> {
        let Some(job) = self.ended.remove(&attempt).filter(|_| is_over) else { return Ok(()) };
        if self.shown.contains(&attempt) {
            return Ok(());
        }
        if !self.style.keep_order {
            return self.show(client, progress, attempt).await;
        }
        self.ready.insert(job, attempt);
        while let Some(first) = self.waiting.first().copied() {
            let Some(attempt) = self.ready.remove(&first) else { break };
            self.waiting.pop_first();
            self.show(client, progress, attempt).await?;
        }
        Ok(())
    }

    /// Shows what waits for a job that has not run.
    pub async fn finish(&mut self, client: &Client, progress: &ProgressDisplay) -> Result<()> {
        let mut rest: Vec<(JobId, AttemptId)> = self.ready.drain().collect();
        rest.sort_unstable();
        for (_, attempt) in rest {
            self.show(client, progress, attempt).await?;
        }
        Ok(())
    }

    async fn show(
        &self,
        client: &Client,
        progress: &ProgressDisplay,
        attempt: AttemptId,
    ) -> Result<()> {
        let attempt = client.get_attempt(attempt).await?;
        let tag = self.tag(&attempt.job_name);
        progress.suspend(|| {
            if let Some(path) = &attempt.stdout_path {
                let mut writer = RawWriter::new();
                pass_on(Path::new(path), tag.clone(), |bytes| writer.write(bytes))?;
                writer.finish()?;
            }
            // One file for both streams is shown once.
            match &attempt.stderr_path {
                Some(path) if attempt.stdout_path.as_ref() != Some(path) => {
                    pass_on(Path::new(path), tag, |bytes| {
                        output::write_talk(bytes);
                        Ok(())
                    })
                }
                _ => Ok(()),
            }
        })
    }
}

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Reads a log in pieces; nothing if the job's settings have removed it.
fn pass_on(
    path: &Path,
    tag: Option<String>,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    // The path is a server's word: only a log, and never something that blocks.
    let Ok(mut file) = torc_fs::open(path, torc_fs::Trust::Log) else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    let mut tagger = Tagger::new(tag);
    loop {
        let length = file.read(&mut piece).map_err(Error::io("read", path))?;
        if length == 0 {
            return if tagger.is_at_begin { Ok(()) } else { write(b"\n") };
        }
        write(&tagger.apply(&piece[..length]))?;
    }
}

/// Puts `NAME` and a tab before every line, whose pieces come one after the other.
pub struct Tagger {
    tag: Option<String>,
    /// The last piece ended with a line break.
    pub is_at_begin: bool,
}

impl Tagger {
    pub fn new(tag: Option<String>) -> Self {
        Self { tag, is_at_begin: true }
    }

    pub fn apply<'b>(&mut self, piece: &'b [u8]) -> std::borrow::Cow<'b, [u8]> {
        let was_at_begin = self.is_at_begin;
        if let Some(last) = piece.last() {
            self.is_at_begin = *last == b'\n';
        }
        let Some(tag) = &self.tag else { return piece.into() };
        let mut out = Vec::with_capacity(piece.len() * 2);
        for (number, line) in piece.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if number > 0 || was_at_begin {
                out.extend_from_slice(tag.as_bytes());
                out.push(b'\t');
            }
            out.extend_from_slice(line);
        }
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_gets_its_tag_however_it_is_cut() {
        let text = b"first\nsecond\n\nlast";
        for size in 1..=text.len() {
            let mut tagger = Tagger::new(Some("job1".into()));
            let out: Vec<u8> =
                text.chunks(size).flat_map(|piece| tagger.apply(piece).into_owned()).collect();
            assert_eq!(out, b"job1\tfirst\njob1\tsecond\njob1\t\njob1\tlast", "pieces of {size}");
        }
    }
}
