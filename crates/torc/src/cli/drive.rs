//! Brings a workflow to its end and shows it: with a runner in this process, or by watching
//! another process's.

use super::interrupt::Interrupts;
use super::job_output::{self, JobOutput};
use super::job_stream::Place;
use super::recap::{self, Failure, Recap};
use super::run::title;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, recover};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::live::NAMED;
use crate::output::progress::Progress;
use crate::output::{escape, human};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use torc_client::{Client, Query};
use torc_model::api::{
    ActionView, Capacity, ErrorCode, EventView, JobView, Page, RunnerView, StatusView, WhyView,
    WorkflowView,
};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, PoolRunnerId, WorkflowId};
use torc_model::status::{ActionState, Cause, JobStatus, Outcome};
use torc_model::units::{Memory, Runtime};
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
/// A server that ends hands over within this time.
const HAND_OVER: Duration = Duration::from_millis(1500);
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
    /// What jobs print is shown, and how.
    pub show: Option<job_output::Style>,
    /// How long the runner stays.
    pub stay: Stay,
}

/// How long a runner stays, and for which pool.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stay {
    /// Leave after this long without work.
    pub max_idle: Option<Runtime>,
    /// The pool runner that started it.
    pub pool_runner: Option<PoolRunnerId>,
}

/// Runs the workflow with a runner in this process.
pub async fn run(session: &mut Session, drive: Drive<'_>) -> Result<Exit> {
    let Drive { context, workflow, options, force, show, stay } = drive;
    let client = session.client.clone();
    let mut status = patiently(async || Ok(client.workflow_status(workflow.id).await?)).await?;
    if count(&status, JobStatus::Uninitialized) > 0 {
        options.working_dir(&workflow)?;
        client.initialize_workflow(workflow.id, force).await?;
        status = client.workflow_status(workflow.id).await?;
    }
    if status.is_complete && !has_due_action(&client, workflow.id).await? {
        context.output.talk(format_args!("{} is complete already", title(&workflow)));
        return finish(context, &client, &workflow, &status, End::default()).await;
    }
    let mut interrupts = Interrupts::listen()?;
    let (events, mut inbox) = mpsc::unbounded_channel();
    let (stop, shutdown) = watch::channel(Shutdown::Run);
    let mut config = options.config(&client, &workflow)?;
    config.events = Some(events);
    config.force = force;
    config.max_idle = stay.max_idle.map(|limit| Duration::from_secs(limit.0));
    config.pool_runner = stay.pool_runner;
    if stay.pool_runner.is_some() {
        // What it held ready would be kept from the pool's other users.
        config.prefetch = torc_runner::Prefetch::Fixed(0);
    }
    let (capacity, output_dir) = (config.capacity.clone(), config.output_dir.clone());
    let progress = Progress::begin(context.output, &status);
    let mut display = Display::new(context, client.clone(), &workflow, progress);
    if let Some(style) = show {
        let (output_dir, run) = (output_dir.clone(), status.run_id);
        let place = Place { output_dir, workflow: workflow.id, run };
        display.job_output = Some(JobOutput::new(&client, place, style).await?);
    }
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
                    display.on_runner_event(event).await?;
                }
            }
            // Again and again: the server that answered first may be gone before the runner
            // has noticed it.
            () = due(take_over_at) => {
                session.take_over().await;
                take_over_at = Some(Instant::now() + TAKE_OVER_AGAIN);
            }
            () = display.refresh_due() => display.refresh().await,
            () = due(display.lost.as_ref().map(|(at, _)| *at)) => display.tell_lost(),
            () = display.silence() => display.tell_what_waits().await,
            () = display.output_grew() => display.show_growth()?,
            () = interrupts.next() => display.on_interrupt(&stop),
        }
    };
    inbox.close();
    while let Ok(event) = inbox.try_recv() {
        display.on_runner_event(event).await?;
    }
    display.progress.end();
    let summary = left.map_err(runner_error)?;
    let status = last_status(session, workflow.id).await?;
    if let Some(mut rest) = display.job_output.take() {
        rest.finish(&session.client, &display.progress).await?;
    }
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
    let was_stopped = display.interrupts > 0 && !status.is_complete;
    let end = End {
        progress: Some(&display.progress),
        recap: Some(&display.recap),
        stopped_by: was_stopped.then_some(&interrupts),
    };
    finish(context, &session.client, &workflow, &status, end).await
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
    let progress = Progress::begin(context.output, &status);
    let mut display = Display::new(context, client.clone(), &workflow, progress);
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
        let end = End {
            progress: Some(&display.progress),
            recap: Some(&display.recap),
            stopped_by: (!is_over).then_some(&interrupts),
        };
        finish(context, client, &workflow, &status, end).await
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
    /// Starts and ends of jobs are told.
    is_verbose: bool,
    /// Ends that wait for the server's verdict.
    ends: HashMap<AttemptId, JobEnd>,
    recap: Recap,
    /// What jobs print is shown.
    job_output: Option<JobOutput>,
    /// Something happened since the counts were asked for; when to ask again.
    stale_at: Option<Instant>,
    last_refresh: Instant,
    /// When to say what the jobs wait for, unless something happens before.
    silent_until: Option<Instant>,
    /// Attempts that run here, since when; empty where no line names them.
    active: HashMap<AttemptId, (String, std::time::Instant)>,
    /// How many run here.
    active_count: usize,
    /// The server does not answer: when to say so, and what the network said.
    lost: Option<(Instant, String)>,
    /// The server cannot write: its disk is full.
    is_full: bool,
    interrupts: u32,
}

/// An attempt that has ended.
struct JobEnd {
    job_id: JobId,
    name: String,
    attempt_id: i64,
    return_code: i64,
    cause: Cause,
    error: Option<String>,
    last_line: Option<String>,
    seconds: f64,
}

impl Display {
    fn new(context: &Context, client: Client, workflow: &WorkflowView, progress: Progress) -> Self {
        Self {
            client,
            workflow: workflow.clone(),
            progress,
            is_verbose: context.output.verbose > 0,
            ends: HashMap::new(),
            recap: Recap::default(),
            job_output: None,
            stale_at: None,
            last_refresh: Instant::now(),
            silent_until: Some(Instant::now() + SILENCE),
            active: HashMap::new(),
            active_count: 0,
            lost: None,
            is_full: false,
            interrupts: 0,
        }
    }

    async fn on_runner_event(&mut self, event: RunnerEvent) -> Result<()> {
        self.silent_until = self.silent_until.map(|_| Instant::now() + SILENCE);
        self.stale_at.get_or_insert_with(|| (self.last_refresh + REFRESH).max(Instant::now()));
        match event {
            RunnerEvent::Started { attempt, job_id, job_name, attempt_id } => {
                self.on_start(attempt, job_id, job_name, attempt_id);
            }
            RunnerEvent::Ended {
                attempt,
                job_id,
                job_name,
                attempt_id,
                return_code,
                cause,
                error,
                last_line,
                seconds,
            } => {
                self.active_count = self.active_count.saturating_sub(1);
                self.active.remove(&attempt);
                match cause {
                    None => {
                        if self.is_verbose {
                            let job = named(&job_name, job_id, attempt_id);
                            let time = human::seconds(seconds);
                            self.progress.tell(format_args!("finished: {job} after {time}"));
                        }
                        self.recap.on_success(job_id, &job_name, attempt_id, seconds);
                    }
                    Some(cause) => {
                        let end = JobEnd {
                            job_id,
                            name: job_name,
                            attempt_id,
                            return_code,
                            cause,
                            error,
                            last_line,
                            seconds,
                        };
                        self.ends.insert(attempt, end);
                    }
                }
                if let Some(shown) = &mut self.job_output {
                    shown.on_end(&self.progress, attempt, job_id)?;
                }
            }
            RunnerEvent::Judged { attempt, outcome, job_status, .. } => {
                if let Some(shown) = &mut self.job_output {
                    let is_over = job_status.is_none_or(JobStatus::is_final);
                    shown.on_verdict(&self.client, &self.progress, attempt, is_over).await?;
                }
                if let Some(end) = self.ends.remove(&attempt) {
                    self.tell_bad_end(end, outcome, job_status);
                }
            }
            RunnerEvent::ActionEnded { action, return_code, error } if return_code != 0 => {
                let error =
                    error.map(|error| format!(": {}", escape::line(&error))).unwrap_or_default();
                self.progress.tell_failure(format_args!(
                    "action {action} failed with code {return_code}{error}"
                ));
            }
            // Another process may take the server's place in a moment, as when one of two `torc run`
            // ends: that is nothing to be told.
            RunnerEvent::ServerLost { message, code } => {
                if code == Some(ErrorCode::OutOfSpace) {
                    self.is_full = true;
                    self.progress.tell_failure(
                        "the disk of the server's database is full; jobs go on, and their results wait for room",
                    );
                    return Ok(());
                }
                self.lost = Some((Instant::now() + HAND_OVER, message));
                if self.is_verbose {
                    self.tell_lost();
                }
            }
            RunnerEvent::ServerBack => {
                if std::mem::take(&mut self.is_full) {
                    self.progress.tell("there is room on the disk again");
                } else if self.lost.take().is_none() {
                    self.progress.tell("the server answers again");
                }
            }
            RunnerEvent::Warning { message } => {
                self.progress.tell_failure(format_args!("warning: {}", escape::line(&message)));
            }
            RunnerEvent::Registered { .. }
            | RunnerEvent::ActionStarted { .. }
            | RunnerEvent::ActionEnded { .. }
            | RunnerEvent::Leaving { .. } => {}
        }
        Ok(())
    }

    fn tell_lost(&mut self) {
        let Some((_, message)) = self.lost.take() else { return };
        // A refusal may have its advice on a line of its own.
        let message = message.replace("\nhint: ", "; ");
        self.progress.tell(format_args!(
            "the server does not answer; jobs go on and their results are kept ({}); if it is gone, `torc server run` \
             where it was brings it back",
            escape::line(&message)
        ));
    }

    fn on_start(&mut self, attempt: AttemptId, job: JobId, name: String, number: i64) {
        self.active_count += 1;
        if self.is_verbose {
            self.progress.tell(format_args!("started: {}", named(&name, job, number)));
        }
        if let Some(shown) = &mut self.job_output {
            shown.on_start(attempt, job, number, &name);
        }
        if self.progress.is_live() {
            self.active.insert(attempt, (name, std::time::Instant::now()));
        }
    }

    fn tell_bad_end(&mut self, end: JobEnd, outcome: Option<Outcome>, status: Option<JobStatus>) {
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
        let name = escape::line(&end.name);
        let failure = Failure {
            text: format!("{name} (job {}){attempt} after {time}: {error}", end.job_id),
            // Where output is shown, the line stands above already.
            last_line: end.last_line.filter(|_| self.job_output.is_none()),
        };
        let text = recap::told(word, &failure);
        match word {
            "failed" => {
                self.progress.tell_failure(text);
                self.recap.on_failure(end.job_id, &end.name, end.seconds, failure);
            }
            "retrying" => {
                self.progress.tell(text);
                self.recap.on_retry(end.job_id, &end.name, end.seconds);
            }
            _ => self.progress.tell_failure(text),
        }
    }

    async fn on_server_event(&mut self, event: &EventView) {
        self.stale_at.get_or_insert_with(|| (self.last_refresh + REFRESH).max(Instant::now()));
        on_job_event(&self.client, &self.progress, &mut self.recap, self.is_verbose, event).await;
    }

    /// Waits until the counts should be asked for again; for ever when nothing happened.
    async fn refresh_due(&self) {
        due(self.stale_at).await;
    }

    /// Waits until a job whose output is shown while it runs has printed something.
    async fn output_grew(&self) {
        match &self.job_output {
            Some(shown) => shown.grew().await,
            None => std::future::pending().await,
        }
    }

    fn show_growth(&mut self) -> Result<()> {
        match &mut self.job_output {
            Some(shown) => shown.show_growth(&self.progress),
            None => Ok(()),
        }
    }

    /// Waits until it is time to say what the jobs wait for; for ever once that has been said.
    async fn silence(&self) {
        due(self.silent_until).await;
    }

    /// Says why a ready job is not taken, if nothing runs: without a word that looks like a program
    /// that hangs.
    async fn tell_what_waits(&mut self) {
        self.silent_until = Some(Instant::now() + SILENCE);
        if self.active_count > 0 {
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
        if !self.progress.is_live() {
            return;
        }
        let mut longest: Vec<_> = self.active.values().collect();
        longest.sort_unstable_by_key(|(_, since)| *since);
        let longest = longest.into_iter().take(NAMED).cloned().collect();
        self.progress.name_running(longest);
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
        LeaveReason::Stopped | LeaveReason::Removed | LeaveReason::TimeUp => {
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

/// `sim_3 (job 3), attempt 2`.
fn named(name: &str, job: JobId, attempt: i64) -> String {
    let attempt = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!("{} (job {job}){attempt}", escape::line(name))
}

/// Tells what an event of the server says about a job that another process runs.
pub async fn on_job_event(
    client: &Client,
    progress: &Progress,
    recap: &mut Recap,
    is_verbose: bool,
    event: &EventView,
) {
    let Some(job) = event.job_id else { return };
    match event.kind {
        EventKind::JobFailed | EventKind::JobTerminated => {
            let (name, seconds, failure) = failure_of(client, job, event).await;
            progress.tell_failure(recap::told("failed", &failure));
            recap.on_failure(job, &name, seconds, failure);
        }
        EventKind::JobStarted | EventKind::JobCompleted if is_verbose => {
            let word = if event.kind == EventKind::JobStarted { "started" } else { "finished" };
            // A line with the id alone is better than none.
            let name = match client.get_job(job).await {
                Ok(found) => named(&found.name, job, found.attempt_id),
                Err(_) => format!("job {job}"),
            };
            progress.tell(format_args!("{word}: {name}"));
        }
        _ => {}
    }
}

/// The failure of a job as the server knows it: its name, how long it ran, and what to tell.
pub async fn failure_of(client: &Client, job: JobId, event: &EventView) -> (String, f64, Failure) {
    let code =
        event.data.get("return_code").and_then(serde_json::Value::as_i64).unwrap_or_default();
    let Ok(why) = client.why(job).await else {
        // A line with the id alone is better than none.
        let text = format!("job {job}: code {code}");
        return (String::new(), 0.0, Failure { text, last_line: None });
    };
    let attempt = why.attempt.as_ref();
    let seconds = attempt.and_then(|attempt| attempt.exec_seconds).unwrap_or_default();
    let what = match (&why.diagnosis, attempt.and_then(|attempt| attempt.cause)) {
        (_, Some(Cause::Exit)) | (None, None) => format!("exit code {code}"),
        (Some(diagnosis), _) => diagnosis.summary.clone(),
        (None, Some(cause)) => format!("{cause}, code {code}"),
    };
    let number = attempt.map_or(1, |attempt| attempt.attempt_id);
    let text = format!(
        "{} after {}: {}",
        named(&why.job.name, job, number),
        human::seconds(seconds),
        escape::line(&what)
    );
    let tail = attempt.and_then(|attempt| attempt.stderr_tail.as_deref()).unwrap_or_default();
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with("[torc] ");
    let last_line = tail.lines().map(str::trim).rfind(is_said).map(String::from);
    (why.job.name.clone(), seconds, Failure { text, last_line })
}

/// Jobs that run anywhere, the longest first, with the time since when.
pub async fn longest_running(
    client: &Client,
    workflow: WorkflowId,
) -> Result<Vec<(String, std::time::Instant)>> {
    /// Rows that are looked at; with more jobs at once the oldest of these are named.
    const MAX_LOOKED_AT: i64 = 500;
    let query = Query::new()
        .add("workflow_id", workflow)
        .add("status", "running")
        .add("include_last", true)
        .add("limit", MAX_LOOKED_AT);
    let now = (human::now_ms(), std::time::Instant::now());
    let since = |job: &JobView| job.last.as_ref().and_then(|last| last.started_ms);
    let mut jobs = client.list_jobs(&query).await?.items;
    jobs.sort_by_key(|job| since(job).unwrap_or(i64::MAX));
    let named = |job: JobView| {
        let ago = Duration::from_millis((now.0 - since(&job)?).max(0).unsigned_abs());
        Some((job.name, now.1.checked_sub(ago)?))
    };
    Ok(jobs.into_iter().take(NAMED).filter_map(named).collect())
}

/// The file that a workflow was made from, if it lies in the current directory under a name that a
/// shell takes as it is.
fn spec_here(workflow: &WorkflowView) -> Option<String> {
    let path = std::path::Path::new(workflow.spec_path.as_ref()?);
    let here = std::env::current_dir().ok()?.canonicalize().ok()?;
    let name = path.file_name()?.to_str()?;
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (path.parent() == Some(&here) && is_plain && path.is_file()).then(|| name.to_owned())
}

/// What is known of a run when it ends.
#[derive(Default)]
pub struct End<'a> {
    /// How long it took.
    pub progress: Option<&'a Progress>,
    /// What happened in it.
    pub recap: Option<&'a Recap>,
    /// The user stopped it.
    pub stopped_by: Option<&'a Interrupts>,
}

/// The last words, the data for programs, and the exit code.
pub async fn finish(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
    status: &StatusView,
    end: End<'_>,
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
    if let Some(progress) = end.progress {
        text += &format!(" in {}", progress.elapsed());
    }
    context.output.talk(text);
    if let Some(recap) = end.recap {
        recap.tell(context.output);
    }
    if count(status, JobStatus::Failed) + count(status, JobStatus::Terminated) > 0
        && !context.output.quiet
    {
        context
            .output
            .talk("hint: `torc why JOB` explains a failure, `torc logs JOB` shows what it wrote");
        let id = workflow.id;
        let how = match recover::would_help(client, id).await {
            true => format!("`torc recover {id} --run` repairs what it can and runs it again"),
            false => match spec_here(workflow) {
                Some(spec) => format!("`torc run {spec}` re-runs the failed jobs"),
                None => format!(
                    "`torc workflows reset-status {id} --failed-only` and `torc run {id}` re-run the failed jobs"
                ),
            },
        };
        context.output.talk(format_args!("hint: {how}; `torc jobs retry JOB` runs one as it is"));
    }
    if context.output.is_json() {
        context.output.json(status)?;
    }
    let exit = exit(status);
    Ok(end.stopped_by.map_or(exit, |interrupts| interrupts.exit(exit)))
}

/// The exit code of a command that waited for a workflow's end.
pub fn exit(status: &StatusView) -> Exit {
    let good = count(status, JobStatus::Completed) + count(status, JobStatus::Disabled);
    if status.is_complete && good == status.total { Exit::Success } else { Exit::JobsFailed }
}

fn runner_error(error: torc_runner::Error) -> Error {
    match error {
        torc_runner::Error::Client(error) => error.into(),
        torc_runner::Error::Io { what, path, source }
            if matches!(
                source.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Error::usage_hint(
                format!("cannot {what} `{}`: {source}", path.display()),
                "`-o DIR` names another directory for logs",
            )
        }
        torc_runner::Error::Io { what, path, source } => Error::Io { doing: what, path, source },
        error @ (torc_runner::Error::System { .. } | torc_runner::Error::Broken) => {
            Error::usage(error.to_string())
        }
    }
}
