//! Brings a workflow to its end and shows it: with a runner in this process, or by watching
//! another process's.

use super::interrupt::Interrupts;
use super::run::title;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, recover};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::progress::Progress;
use crate::output::{escape, human};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use torc_client::{Client, Query};
use torc_model::api::{
    ActionView, Capacity, EventView, JobView, Page, RunnerView, StatusView, WhyView, WorkflowView,
};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, WorkflowId};
use torc_model::status::{ActionState, Cause, JobStatus, Outcome};
use torc_model::units::Memory;
use torc_runner::{LeaveReason, Runner, RunnerEvent, Shutdown};

/// However much happens, the counts are asked for this often at most.
const REFRESH: Duration = Duration::from_millis(500);
/// Events taken at once; a burst of short jobs must not mean one wake-up each.
const BATCH: usize = 1024;

/// Thousands of jobs end per second; people do not see more often than this, and each look is a
/// wake-up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a server that does not answer is asked again.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked.
pub const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often a runner whose server is gone looks whether it is to serve itself.
const TAKE_OVER_AGAIN: Duration = Duration::from_secs(1);
/// Jobs that cannot run are explained, this many at most.
const MAX_EXPLAINED: i64 = 3;

/// A runner that has nothing to do for this long although jobs are ready says why, once.
const SILENCE: Duration = Duration::from_secs(5);
/// The search for that reason may not take longer.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// What to bring to its end, and how.
pub struct Drive<'a> {
    /// Where words go.
    pub context: &'a Context,
    /// The workflow.
    pub workflow: WorkflowView,
    /// What the runner may use.
    pub options: &'a RunnerOptions,
    /// Begin although input files are missing or a running workflow writes the same files.
    pub force: bool,
}

/// Runs the workflow with a runner in this process.
pub async fn run(session: &mut Session, drive: Drive<'_>) -> Result<Exit> {
    let Drive { context, workflow, options, force } = drive;
    let client = session.client.clone();
    let mut status = patiently(async || Ok(client.workflow_status(workflow.id).await?)).await?;
    if count(&status, JobStatus::Uninitialized) > 0 {
        options.working_dir(&workflow)?;
        client.initialize_workflow(workflow.id, force).await?;
        status = client.workflow_status(workflow.id).await?;
    }
    if status.is_complete && !has_due_action(&client, workflow.id).await? {
        context.output.talk(format_args!("{} is complete already", title(&workflow)));
        return finish(context, &client, &workflow, &status, None).await;
    }
    let mut interrupts = Interrupts::listen()?;
    let (events, mut inbox) = mpsc::unbounded_channel();
    let (stop, shutdown) = watch::channel(Shutdown::Run);
    let mut config = options.config(&client, &workflow)?;
    config.events = Some(events);
    config.force = force;
    let capacity = config.capacity.clone();
    let progress = Progress::begin(context.output, &status);
    let mut display = Display::new(client.clone(), &workflow, progress);
    let mut running = std::pin::pin!(Runner::new(config).run(shutdown));
    let mut batch = Vec::with_capacity(BATCH);
    let mut next_look = tokio::time::Instant::now();
    let mut take_over_at = None;
    let left = loop {
        tokio::select! {
            left = &mut running => break left,
            () = hear(&mut inbox, &mut batch, next_look) => {
                next_look = tokio::time::Instant::now() + if batch.len() < BATCH { LOOK_EVERY } else { Duration::ZERO };
                for event in batch.drain(..) {
                    match &event {
                        RunnerEvent::ServerLost { .. } => take_over_at = Some(Instant::now()),
                        RunnerEvent::ServerBack => take_over_at = None,
                        _ => {}
                    }
                    display.on_runner_event(event);
                }
            }
            // Again and again: the server that answered first may be gone before the runner
            // has noticed it.
            () = due(take_over_at) => {
                session.take_over().await;
                take_over_at = Some(Instant::now() + TAKE_OVER_AGAIN);
            }
            () = display.refresh_due() => display.refresh().await,
            () = display.silence() => display.tell_what_waits().await,
            () = interrupts.next() => display.on_interrupt(&stop),
        }
    };
    inbox.close();
    while let Ok(event) = inbox.try_recv() {
        display.on_runner_event(event);
    }
    display.progress.end();
    let summary = left.map_err(runner_error)?;
    let status = last_status(session, workflow.id).await?;
    let results = |count: u64| human::count(i64::try_from(count).unwrap_or(i64::MAX), "result");
    let kept = summary.undelivered.saturating_sub(summary.unkept);
    if kept > 0 {
        let results = results(kept);
        context.output.warn(format_args!(
            "{results} could not be delivered; the next runner here delivers them"
        ));
    }
    if summary.unkept > 0 {
        let results = results(summary.unkept);
        context.output.warn(format_args!(
            "{results} could neither be delivered nor kept on disk; those jobs run again when there is a runner"
        ));
    }
    if !status.is_complete {
        explain(context, &client, &workflow, &status, &summary.reason, &capacity).await?;
    }
    finish(context, &session.client, &workflow, &status, Some(&display.progress)).await
}

/// Asks again for a while when no server answers: the server is perhaps just being started, or
/// started again, by another process, which sends no notice when it is there.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if is_away(&error) && Instant::now() < deadline => {
                tokio::time::sleep(ASK_AGAIN).await
            }
            other => return other,
        }
    }
}

/// There is no server now, or one that is about to end.
fn is_away(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. } | Error::Refused { status: 503, .. })
}

/// How a workflow stands after its runner has left. The process that served the state meanwhile may
/// have seen the end too and be gone at any moment, even between two questions: then we serve it
/// ourselves.
async fn last_status(session: &mut Session, workflow: WorkflowId) -> Result<StatusView> {
    patiently(async || {
        let status = session.client.workflow_status(workflow).await.map_err(Error::from);
        if status.as_ref().is_err_and(is_away) {
            session.take_over().await;
        }
        status
    })
    .await
}

/// Waits until then; for ever if there is no such time.
pub async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Takes what has happened, but not before this time.
async fn hear(
    inbox: &mut mpsc::UnboundedReceiver<RunnerEvent>,
    batch: &mut Vec<RunnerEvent>,
    not_before: tokio::time::Instant,
) {
    tokio::time::sleep_until(not_before).await;
    inbox.recv_many(batch, BATCH).await;
}

/// Watches a workflow that another process on this machine runs, until that is over.
pub async fn follow(session: &Session, drive: Drive<'_>, runner: &RunnerView) -> Result<Exit> {
    let Drive { context, workflow, .. } = drive;
    let client = session.client.clone();
    context.output.talk(format_args!(
        "{} is being run by process {} on this machine; watching it (Ctrl-C stops watching, not the run)",
        title(&workflow),
        runner.pid
    ));
    let mut interrupts = Interrupts::listen()?;
    let mut events = client.stream_events(workflow.id, None);
    let status = client.workflow_status(workflow.id).await?;
    let mut display =
        Display::new(client.clone(), &workflow, Progress::begin(context.output, &status));
    let mut process_end = std::pin::pin!(end_of_process(runner.pid));
    let is_over = loop {
        tokio::select! {
            // The server may live inside that process and be gone with it, so its end counts first.
            biased;
            () = &mut process_end => break true,
            () = interrupts.next() => break false,
            event = events.next() => display.on_server_event(&event?).await,
            () = display.refresh_due() => display.refresh().await,
        }
    };
    display.progress.end();
    let conclude = async |client: &Client, status: StatusView| {
        if is_over && !status.is_complete {
            context.output.talk(format_args!(
                "process {} has ended; resume with `torc run {}`",
                runner.pid, workflow.id
            ));
        }
        finish(context, client, &workflow, &status, Some(&display.progress)).await
    };
    if let Ok(status) = client.workflow_status(workflow.id).await {
        return conclude(&client, status).await;
    }
    let session = Session::open(&context.locator, Access::Existing).await?;
    let exit = match session.client.workflow_status(workflow.id).await {
        Ok(status) => conclude(&session.client, status).await,
        Err(error) => Err(error.into()),
    };
    session.close().await;
    exit
}

/// An action is due that no runner has executed yet: its runner may have been killed after the last
/// job had ended.
pub async fn has_due_action(client: &Client, workflow: WorkflowId) -> Result<bool> {
    let is_due = |action: &ActionView| {
        let is_for_runners =
            action.what.get("action_type").is_some_and(|kind| kind == "run_commands");
        is_for_runners && matches!(action.state, ActionState::Triggered | ActionState::Claimed)
    };
    Ok(patiently(async || Ok(client.list_actions(workflow).await?)).await?.items.iter().any(is_due))
}

/// Waits until a process of this machine has ended.
async fn end_of_process(pid: i64) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // No such process (any more): its end is now.
    let Some(Ok(handle)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A thread of its own and not one of the runtime's: shutdown does not wait for it when the user
    // stops watching.
    std::thread::spawn(move || {
        while poll(&mut [PollFd::new(&handle, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR)
        {
        }
        // A receiver that has gone is no fault.
        let _ = sender.send(());
    });
    // The sender is gone only after the wait is over.
    let _ = receiver.await;
}

/// What is shown while a workflow runs.
struct Display {
    client: Client,
    workflow: WorkflowView,
    progress: Progress,
    /// Bad ends that wait for the server's verdict.
    bad_ends: HashMap<AttemptId, BadEnd>,
    /// Something happened since the counts were asked for; when to ask again.
    stale_at: Option<Instant>,
    last_refresh: Instant,
    /// When to say what the jobs wait for, unless something happens before.
    silent_until: Option<Instant>,
    /// Attempts that run here.
    active: usize,
    interrupts: u32,
}

/// An attempt that ended badly.
struct BadEnd {
    job: String,
    attempt_id: i64,
    return_code: i64,
    cause: Cause,
    error: Option<String>,
    seconds: f64,
}

impl Display {
    fn new(client: Client, workflow: &WorkflowView, progress: Progress) -> Self {
        Self {
            client,
            workflow: workflow.clone(),
            progress,
            bad_ends: HashMap::new(),
            stale_at: None,
            last_refresh: Instant::now(),
            silent_until: Some(Instant::now() + SILENCE),
            active: 0,
            interrupts: 0,
        }
    }

    fn on_runner_event(&mut self, event: RunnerEvent) {
        self.silent_until = self.silent_until.map(|_| Instant::now() + SILENCE);
        match event {
            RunnerEvent::Started { .. } => self.active += 1,
            RunnerEvent::Ended { .. } => self.active = self.active.saturating_sub(1),
            _ => {}
        }
        self.stale_at.get_or_insert_with(|| (self.last_refresh + REFRESH).max(Instant::now()));
        match event {
            RunnerEvent::Ended {
                attempt,
                job_id,
                job_name,
                attempt_id,
                return_code,
                cause,
                error,
                seconds,
            } => {
                if let Some(cause) = cause {
                    let job = format!("{} (job {job_id})", escape::line(&job_name));
                    self.bad_ends.insert(
                        attempt,
                        BadEnd { job, attempt_id, return_code, cause, error, seconds },
                    );
                }
            }
            RunnerEvent::Judged { attempt, outcome, job_status, .. } => {
                if let Some(end) = self.bad_ends.remove(&attempt) {
                    self.tell_bad_end(&end, outcome, job_status);
                }
            }
            RunnerEvent::ActionEnded { action, return_code, error } if return_code != 0 => {
                let error =
                    error.map(|error| format!(": {}", escape::line(&error))).unwrap_or_default();
                self.progress
                    .tell(format_args!("action {action} failed with code {return_code}{error}"));
            }
            RunnerEvent::ServerLost { message } => {
                // A refusal may have its advice on a line of its own.
                let message = message.replace("\nhint: ", "; ");
                self.progress.tell(format_args!(
                    "the server does not answer; jobs go on and their results are kept ({}); if it is gone, `torc server run` \
                     where it was brings it back",
                    escape::line(&message)
                ));
            }
            RunnerEvent::ServerBack => self.progress.tell("the server answers again"),
            RunnerEvent::Warning { message } => {
                self.progress.tell(format_args!("warning: {}", escape::line(&message)));
            }
            RunnerEvent::Registered { .. }
            | RunnerEvent::Started { .. }
            | RunnerEvent::ActionStarted { .. }
            | RunnerEvent::ActionEnded { .. }
            | RunnerEvent::Leaving { .. } => {}
        }
    }

    fn tell_bad_end(&self, end: &BadEnd, outcome: Option<Outcome>, status: Option<JobStatus>) {
        // What we stopped ourselves is told in one sentence, not per job.
        if end.cause.is_stop() {
            return;
        }
        let word = match status {
            Some(JobStatus::Ready | JobStatus::Blocked) => "retrying",
            Some(JobStatus::Canceled) => "canceled",
            Some(JobStatus::PendingFailed) => "needs a verdict",
            Some(_) | None => "failed",
        };
        let attempt = match (end.attempt_id, outcome) {
            (1, _) => String::new(),
            (number, Some(Outcome::MaxRetriesExceeded)) => format!(", attempt {number} (the last)"),
            (number, _) => format!(", attempt {number}"),
        };
        let error = match &end.error {
            Some(error) => escape::line(error).into_owned(),
            None => format!("{}, code {}", end.cause, end.return_code),
        };
        let time = human::seconds(end.seconds);
        self.progress.tell(format_args!("{word}: {}{attempt} after {time}: {error}", end.job));
    }

    async fn on_server_event(&mut self, event: &EventView) {
        self.stale_at.get_or_insert_with(|| (self.last_refresh + REFRESH).max(Instant::now()));
        let (Some(job), EventKind::JobFailed | EventKind::JobTerminated) =
            (event.job_id, event.kind)
        else {
            return;
        };
        // A line with the id alone is better than none.
        let name = self
            .client
            .get_job(job)
            .await
            .map(|job| escape::line(&job.name).into_owned())
            .unwrap_or_default();
        let code =
            event.data.get("return_code").and_then(serde_json::Value::as_i64).unwrap_or_default();
        self.progress.tell(format_args!("failed: {name} (job {job}), code {code}"));
    }

    /// Waits until the counts should be asked for again; for ever when nothing happened.
    async fn refresh_due(&self) {
        due(self.stale_at).await;
    }

    /// Waits until it is time to say what the jobs wait for; for ever once that has been said.
    async fn silence(&self) {
        due(self.silent_until).await;
    }

    /// Says why a ready job is not taken, if nothing runs: without a word that looks like a program
    /// that hangs.
    async fn tell_what_waits(&mut self) {
        self.silent_until = Some(Instant::now() + SILENCE);
        if self.active > 0 {
            return;
        }
        // Without an answer there is nothing to say: the runner tells when the server is gone, and
        // must not wait for us.
        let Ok(Ok(Some((job, why)))) =
            tokio::time::timeout(LONGEST_LOOK, self.first_waiting()).await
        else {
            return;
        };
        self.progress.tell(format_args!(
            "waiting: {}: {}",
            escape::line(&job.name),
            escape::line(&why.summary)
        ));
        for hint in &why.hints {
            self.progress.tell(format_args!("hint: {}", escape::line(hint)));
        }
        self.silent_until = None;
    }

    /// A ready job and why no runner takes it, if nothing runs anywhere.
    async fn first_waiting(&self) -> Result<Option<(JobView, WhyView)>> {
        let status = self.client.workflow_status(self.workflow.id).await?;
        let is_busy = count(&status, JobStatus::Running) + count(&status, JobStatus::Pending) > 0;
        if is_busy || count(&status, JobStatus::Ready) == 0 {
            return Ok(None);
        }
        let query = Query::new()
            .add("workflow_id", self.workflow.id)
            .add("status", "ready")
            .add("limit", 1);
        let Some(job) = self.client.list_jobs(&query).await?.items.into_iter().next() else {
            return Ok(None);
        };
        let why = self.client.why(job.id).await?;
        Ok(Some((job, why)))
    }

    async fn refresh(&mut self) {
        self.stale_at = None;
        self.last_refresh = Instant::now();
        // Without an answer the display stays as it is; the runner tells when the server is gone.
        if let Ok(status) = self.client.workflow_status(self.workflow.id).await {
            self.progress.update(&status);
        }
    }

    fn on_interrupt(&mut self, stop: &watch::Sender<Shutdown>) {
        self.interrupts += 1;
        let (level, words) = match self.interrupts {
            1 => (
                Shutdown::Stop,
                "stopping: running jobs are asked to end and go back into the queue; Ctrl-C again kills them",
            ),
            _ => (Shutdown::Kill, "killing running jobs"),
        };
        self.progress.tell(words);
        stop.send_replace(level);
    }
}

/// Jobs with this status.
pub fn count(status: &StatusView, which: JobStatus) -> i64 {
    status.counts.get(which.as_str()).copied().unwrap_or_default()
}

/// Says why a run ended although the workflow is not complete.
async fn explain(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
    status: &StatusView,
    reason: &LeaveReason,
    capacity: &Capacity,
) -> Result<()> {
    let waiting = count(status, JobStatus::PendingFailed);
    match reason {
        LeaveReason::Stopped | LeaveReason::TimeUp => {
            context.output.talk(format_args!("stopped; resume with `torc run {}`", workflow.id));
        }
        _ if waiting > 0 => {
            let jobs = human::count(waiting, "job");
            context
                .output
                .talk(format_args!("{jobs} failed without a matching rule and wait for a verdict"));
            context
                .output
                .talk(format_args!("hint: `torc jobs classify -w {}` shows them", workflow.id));
        }
        reason => {
            context
                .output
                .talk(format_args!("runner stopped: {}", escape::line(&reason.to_string())));
            let query = Query::new()
                .add("workflow_id", workflow.id)
                .add("status", "ready")
                .add("limit", MAX_EXPLAINED);
            let ready: Page<JobView> = client.list_jobs(&query).await?;
            let mut hints: Vec<String> = Vec::new();
            for job in ready.items {
                let why = match does_not_fit(&job, capacity) {
                    Some(why) => why,
                    None => {
                        let why = client.why(job.id).await?;
                        hints.extend(why.hints);
                        why.summary
                    }
                };
                context.output.talk(format_args!(
                    "  {}: {}",
                    escape::line(&job.name),
                    escape::line(&why)
                ));
            }
            hints.dedup();
            for hint in hints {
                context.output.talk(format_args!("hint: {}", escape::line(&hint)));
            }
        }
    }
    Ok(())
}

/// What a job needs and this runner does not have.
fn does_not_fit(job: &JobView, capacity: &Capacity) -> Option<String> {
    let memory =
        job.memory.as_ref().and_then(|text| Memory::parse(text).ok()).map_or(0, |m| m.0 as i64);
    if job.num_cpus > capacity.num_cpus {
        let (needs, has) = (human::count(job.num_cpus, "CPU"), human::grouped(capacity.num_cpus));
        return Some(format!("it needs {needs}; this runner has {has}"));
    }
    if job.num_gpus > capacity.num_gpus {
        let (needs, has) = (human::count(job.num_gpus, "GPU"), human::grouped(capacity.num_gpus));
        return Some(format!("it needs {needs}; this runner has {has}"));
    }
    (memory > capacity.memory_bytes).then(|| {
        let (needs, has) = (human::bytes(memory), human::bytes(capacity.memory_bytes));
        format!("it needs {needs} of memory; this runner has {has}")
    })
}

/// The last words, the data for programs, and the exit code.
pub async fn finish(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
    status: &StatusView,
    progress: Option<&Progress>,
) -> Result<Exit> {
    let mut text = format!(
        "workflow {} {}: {} of {} succeeded",
        workflow.id,
        if status.is_complete { "complete" } else { "not complete" },
        human::grouped(count(status, JobStatus::Completed)),
        human::count(status.total, "job"),
    );
    for other in [
        JobStatus::Failed,
        JobStatus::Terminated,
        JobStatus::Canceled,
        JobStatus::PendingFailed,
        JobStatus::Disabled,
    ] {
        if count(status, other) > 0 {
            text += &format!(", {} {other}", human::grouped(count(status, other)));
        }
    }
    if let Some(progress) = progress {
        text += &format!(" in {}", progress.elapsed());
    }
    context.output.talk(text);
    if count(status, JobStatus::Failed) + count(status, JobStatus::Terminated) > 0 {
        context
            .output
            .talk("hint: `torc why JOB` explains a failure, `torc logs JOB` shows what it wrote");
        let id = workflow.id;
        let how = match recover::would_help(client, id).await {
            true => format!("`torc recover {id}` repairs what it can and runs it again"),
            false => {
                format!(
                    "`torc workflows reset-status {id} --failed-only` and `torc run {id}` re-run the failed jobs"
                )
            }
        };
        context.output.talk(format_args!("hint: {how}; `torc jobs retry JOB` runs one as it is"));
    }
    if context.output.is_json() {
        context.output.json(status)?;
    }
    Ok(exit(status))
}

/// The exit code of a command that waited for a workflow's end.
pub fn exit(status: &StatusView) -> Exit {
    let good = count(status, JobStatus::Completed) + count(status, JobStatus::Disabled);
    if status.is_complete && good == status.total { Exit::Success } else { Exit::JobsFailed }
}

fn runner_error(error: torc_runner::Error) -> Error {
    match error {
        torc_runner::Error::Client(error) => error.into(),
        torc_runner::Error::Io { what, path, source } => Error::Io { doing: what, path, source },
        error @ (torc_runner::Error::System { .. } | torc_runner::Error::Broken) => {
            Error::usage(error.to_string())
        }
    }
}
