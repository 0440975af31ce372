//! `torc logs`: what a job wrote. The files belong to the runner; the server reads them for us when
//! it is elsewhere.

use super::Context;
use super::analyze::Analyze;
use super::bundle::Bundle;
use super::interrupt::Interrupts;
use super::references::{self, WorkflowOption};
use super::session::{Access, Session};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::escape;
use crate::output::raw::RawWriter;
use clap::Subcommand;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use torc_client::{Client, EventStream, Query};
use torc_model::api::{AttemptView, JobView, LogView};
use torc_model::status::AttemptState;

/// Bytes per read and per request: bounded, whatever the job wrote.
const PIECE: usize = 256 << 10;
/// No event tells that a file has grown on another machine, so while a job runs its size is looked
/// at this often.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// Print what a job wrote to standard output and standard error
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc logs train_3                  both streams of the newest attempt
  torc logs train_3 --follow         and go on until the attempt ends
  torc logs train_3 --attempt 1 --stderr
  torc logs train_3 --tail 20
  torc logs train_3 --script         what the recovery script before the newest attempt wrote
  torc logs bundle sweep             the whole workflow with all logs as one tar.gz
  torc logs analyze output           what the logs of a directory or a bundle say went wrong

On a terminal control characters are shown, not obeyed; into a pipe the bytes go as they are.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Job: its id, its name, or WORKFLOW/NAME
    #[arg(value_name = "JOB", required = true)]
    job: Option<String>,

    #[command(flatten)]
    workflow: WorkflowOption,

    /// Number of the attempt [default: the newest]
    #[arg(short, long, value_name = "N")]
    attempt: Option<i64>,

    /// Run of the attempt [default: the newest]
    #[arg(short, long, value_name = "N")]
    run: Option<i64>,

    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,

    /// Only standard error
    #[arg(long)]
    stderr: bool,

    /// What the recovery script wrote that ran before the attempt
    #[arg(long)]
    script: bool,

    /// Go on until the attempt ends
    #[arg(short = 'f', long)]
    follow: bool,

    /// Begin with the last N lines
    #[arg(short = 'n', long, value_name = "N")]
    tail: Option<usize>,

    /// Only print where the files are
    #[arg(long)]
    path: bool,

    #[command(flatten)]
    letter: super::FormatLetter,
}

#[derive(Subcommand, Debug)]
enum Command {
    Bundle(Bundle),
    Analyze(Analyze),
}

impl Args {
    /// Runs the command.
    pub fn execute(mut self, context: &Context) -> Result<Exit> {
        match self.command.take() {
            Some(Command::Analyze(args)) => return args.execute(context),
            Some(Command::Bundle(args)) => {
                return context.with_server(Access::Existing, async |client| {
                    args.execute(context, client).await?;
                    Ok(Exit::Success)
                });
            }
            None => {}
        }
        context.with_server(Access::Existing, async |client| {
            let name = self.job.as_deref().unwrap_or_default();
            let job = references::job(client, name, self.workflow.text()).await?;
            if self.follow {
                let mut interrupts = Interrupts::listen()?;
                tokio::select! {
                    result = self.follow(context, client, &job) => result?,
                    () = interrupts.next() => return Ok(interrupts.exit(Exit::Success)),
                }
            } else {
                let attempt = self.choose(&job, client.list_attempts(job.id).await?.items)?;
                let mut streams = self.open_streams(client, &attempt).await?;
                self.print(context, client, &attempt, &mut streams).await?;
            }
            Ok(Exit::Success)
        })
    }

    /// The attempt that the user means: the newest that has begun, unless one is named.
    fn choose(&self, job: &JobView, attempts: Vec<AttemptView>) -> Result<AttemptView> {
        let named = self.attempt.is_some() || self.run.is_some();
        let mut fitting: Vec<AttemptView> = attempts
            .into_iter()
            .filter(|a| self.run.is_none_or(|run| run == a.run_id))
            .filter(|a| self.attempt.is_none_or(|attempt| attempt == a.attempt_id))
            .collect();
        fitting.sort_by_key(|a| (a.run_id, a.attempt_id));
        let newest_begun = fitting.iter().rposition(has_begun);
        match newest_begun.map(|index| fitting.swap_remove(index)) {
            Some(attempt) => Ok(attempt),
            None if named => Err(Error::usage_hint(
                format!("job `{}` has no such attempt that has begun", escape::line(&job.name)),
                format!("`torc jobs attempts {}` lists its attempts", job.id),
            )),
            None if job.status.is_final() => Err(Error::usage_hint(
                format!(
                    "job `{}` {} and never began",
                    escape::line(&job.name),
                    job.status.clause()
                ),
                format!("`torc why {}` says why", job.id),
            )),
            None => Err(Error::usage_hint(
                format!("job `{}` has not begun; it is {}", escape::line(&job.name), job.status),
                format!("`torc why {}` says why; `--follow` waits for it", job.id),
            )),
        }
    }

    async fn open_streams(&self, client: &Client, attempt: &AttemptView) -> Result<Vec<LogStream>> {
        let both =
            if self.script { ["script_stdout", "script_stderr"] } else { ["stdout", "stderr"] };
        let names = match (self.stdout, self.stderr) {
            (true, _) => &both[..1],
            (_, true) => &both[1..],
            (false, false) => &both[..],
        };
        let mut streams: Vec<LogStream> = Vec::new();
        for name in names {
            let stream = LogStream::open(client, attempt, name).await?;
            // A job may write both streams into one file; show that once.
            if let Some(stream) =
                stream.filter(|new| streams.iter().all(|old| old.path != new.path))
            {
                streams.push(stream);
            }
        }
        Ok(streams)
    }

    async fn print(
        &self,
        context: &Context,
        client: &Client,
        attempt: &AttemptView,
        streams: &mut [LogStream],
    ) -> Result<()> {
        if streams.is_empty() {
            let whose = if self.script { "a recovery script before " } else { "" };
            context
                .output
                .talk(format_args!("{whose}attempt {} left no log files", attempt.attempt_id));
        }
        if let Some(script) = attempt.script.as_ref().filter(|_| !self.script) {
            let is_all = attempt.stdout_path.is_some() && attempt.stdout_path == script.stdout_path;
            context.output.talk(format_args!(
                "{}",
                match is_all {
                    true => "the recovery script failed and the command did not run: this is what the script wrote",
                    false => "a recovery script ran before this attempt: `--script` shows what it wrote",
                }
            ));
        }
        for stream in streams {
            if self.path {
                context.output.data(&format!("{}\n", escape::line(&stream.path)))?;
                continue;
            }
            context.output.talk(format_args!("--- {} {}", stream.name, escape::line(&stream.path)));
            if let Some(lines) = self.tail {
                stream.skip_to_tail(client, lines).await?;
            }
            stream.drain(client).await?;
            stream.writer.finish()?;
        }
        Ok(())
    }

    /// Prints as the job writes, until its attempt has ended and everything is printed.
    async fn follow(&self, context: &Context, client: &Client, job: &JobView) -> Result<()> {
        let mut events = client.stream_events(job.workflow_id, None);
        let mut attempt = self.wait_for_begin(context, client, job, &mut events).await?;
        let mut streams = self.open_streams(client, &attempt).await?;
        if let Some(lines) = self.tail {
            for stream in &mut streams {
                stream.skip_to_tail(client, lines).await?;
            }
        }
        let mut own: Option<Session> = None;
        let mut has_news = false;
        loop {
            let client = own.as_ref().map_or(client, |session| &session.client);
            let step = async {
                if has_news {
                    attempt = client.get_attempt(attempt.id).await?;
                }
                // The order matters: what was written before the end is there when the end is
                // known.
                let ended = !attempt.state.is_live();
                if ended || streams.is_empty() {
                    for stream in self.open_streams(client, &attempt).await? {
                        if streams.iter().all(|known| known.path != stream.path) {
                            streams.push(stream);
                        }
                    }
                }
                for stream in &mut streams {
                    stream.drain(client).await?;
                }
                Ok(ended)
            };
            match step.await {
                Ok(true) => break,
                Ok(false) => {
                    has_news = tokio::time::timeout(LOOK_AGAIN, next_event_of(&mut events, job))
                        .await
                        .is_ok();
                }
                // It lived inside a `torc run` that has ended, perhaps with this very job.
                Err(Error::Unreachable { .. }) if own.is_none() => {
                    own = Some(Session::open(&context.locator, Access::Existing).await?);
                    has_news = true;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(session) = own {
            session.close().await;
        }
        streams.iter_mut().try_for_each(|stream| stream.writer.finish())
    }

    async fn wait_for_begin(
        &self,
        context: &Context,
        client: &Client,
        job: &JobView,
        events: &mut EventStream,
    ) -> Result<AttemptView> {
        let mut waiting = false;
        loop {
            let attempts = client.list_attempts(job.id).await?.items;
            if let Ok(attempt) = self.choose(job, attempts) {
                return Ok(attempt);
            }
            let job = client.get_job(job.id).await?;
            if job.status.is_final() {
                return Err(Error::usage(format!(
                    "job `{}` {} and never began",
                    escape::line(&job.name),
                    job.status.clause()
                )));
            }
            if !waiting {
                context
                    .output
                    .talk(format_args!("waiting for `{}` to begin ...", escape::line(&job.name)));
                waiting = true;
            }
            next_event_of(events, &job).await?;
        }
    }
}

/// It has, or had, a process and files.
fn has_begun(attempt: &AttemptView) -> bool {
    match attempt.state {
        AttemptState::Queued | AttemptState::Claimed => false,
        AttemptState::Running => true,
        AttemptState::Completed
        | AttemptState::Failed
        | AttemptState::Canceled
        | AttemptState::Terminated => attempt.started_ms.is_some(),
    }
}

async fn next_event_of(events: &mut EventStream, job: &JobView) -> Result<()> {
    while events.next().await?.job_id != Some(job.id) {}
    Ok(())
}

/// One of an attempt's files, read piece by piece.
struct LogStream {
    name: &'static str,
    path: String,
    query: Query,
    job: torc_model::ids::JobId,
    offset: u64,
    /// The file itself, when it is on this machine: exact bytes instead of decoded text.
    local: Option<File>,
    writer: RawWriter,
}

impl LogStream {
    /// None: the attempt has no such file (yet).
    async fn open(
        client: &Client,
        attempt: &AttemptView,
        name: &'static str,
    ) -> Result<Option<Self>> {
        let query = Query::new()
            .add("stream", name)
            .add("run_id", attempt.run_id)
            .add("attempt_id", attempt.attempt_id);
        let view = match client.job_log(attempt.job_id, &query.clone().add("limit", 1)).await {
            Ok(view) => view,
            Err(error) if error.status() == Some(404) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The path is a server's word: only a log, and never something that blocks.
        let local = match is_loopback(client.url()) {
            true => torc_fs::open(std::path::Path::new(&view.path), torc_fs::Trust::Log).ok(),
            false => None,
        };
        let writer = RawWriter::new();
        Ok(Some(Self {
            name,
            path: view.path,
            query,
            job: attempt.job_id,
            offset: 0,
            local,
            writer,
        }))
    }

    /// Prints everything that is there now.
    async fn drain(&mut self, client: &Client) -> Result<()> {
        loop {
            let piece = self.read(client, PIECE).await?;
            if piece.is_empty() {
                return Ok(());
            }
            self.writer.write(&piece)?;
        }
    }

    async fn read(&mut self, client: &Client, limit: usize) -> Result<Vec<u8>> {
        if let Some(file) = &self.local {
            let mut buffer = vec![0; limit];
            let length =
                file.read_at(&mut buffer, self.offset).map_err(Error::io("read", &self.path))?;
            buffer.truncate(length);
            self.offset += length as u64;
            return Ok(buffer);
        }
        let query = self.query.clone().add("offset", self.offset).add("limit", limit);
        let LogView { next_offset, text, .. } = client.job_log(self.job, &query).await?;
        self.offset = u64::try_from(next_offset).unwrap_or(self.offset);
        Ok(text.into_bytes())
    }

    /// Moves to the beginning of the last `lines` lines, in one pass with bounded memory.
    async fn skip_to_tail(&mut self, client: &Client, lines: usize) -> Result<()> {
        let mut starts: VecDeque<u64> = VecDeque::from([self.offset]);
        loop {
            let begin = self.offset;
            let piece = self.read(client, PIECE).await?;
            if piece.is_empty() {
                break;
            }
            for (index, _) in piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                starts.push_back(begin + index as u64 + 1);
                if starts.len() > lines + 1 {
                    starts.pop_front();
                }
            }
        }
        // The last start is behind the last line break: an unfinished line, or nothing.
        let end = self.offset;
        let wanted = lines + usize::from(starts.back() == Some(&end));
        self.offset = starts
            .iter()
            .rev()
            .nth(wanted.saturating_sub(1))
            .or(starts.front())
            .copied()
            .unwrap_or(end);
        if lines == 0 {
            self.offset = end;
        }
        Ok(())
    }
}

fn is_loopback(url: &str) -> bool {
    let host = url.trim_start_matches("http://");
    ["127.", "localhost", "[::1]"].iter().any(|prefix| host.starts_with(prefix))
}
