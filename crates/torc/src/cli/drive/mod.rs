//! Brings a workflow to its end and shows it: with a runner in this process, or by watching
//! another process's.

mod ending;
mod jobs;
mod machine;

pub use ending::{RunEnd, exit, finish};
pub use jobs::{Described, Detail, longest_running};

use super::Context;
use super::interrupt::Interrupts;
use super::job_output::{self, JobOutput};
use super::job_stream::StreamPlace;
use super::run::title;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::progress::ProgressDisplay;
use machine::{Effect, Event, Follower, Wants};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use torc_client::{Client, Query};
use torc_model::api::{ActionView, JobView, RunnerView, StatusView, WhyView, WorkflowView};
use torc_model::ids::{PoolRunnerId, WorkflowId};
use torc_model::status::{ActionState, JobStatus};
use torc_model::units::Runtime;
use torc_runner::{Runner, RunnerNotice, Shutdown};

/// Events taken at once; a burst of short jobs must not mean one wake-up each.
const BATCH: usize = 1024;

/// Thousands of jobs end per second; people do not see more often than this, and each look is a
/// wake-up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a server that does not answer is asked again.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked.
pub const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The search for what jobs wait for may not take longer.
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
        return finish(context, &client, &workflow, &status, RunEnd::default()).await;
    }
    let mut interrupts = Interrupts::listen()?;
    let (events, mut inbox) = mpsc::unbounded_channel();
    let (stop, shutdown) = watch::channel(Shutdown::Run);
    let mut config = options.config(&client, &workflow)?;
    config.events = Some(events);
    config.force = force;
    config.limits.max_idle = stay.max_idle.map(|limit| Duration::from_secs(limit.0));
    config.pool_runner = stay.pool_runner;
    if stay.pool_runner.is_some() {
        // What it held ready would be kept from the pool's other users.
        config.prefetch = torc_runner::Prefetch::Fixed(0);
    }
    let (capacity, output_dir) = (config.capacity.clone(), config.output_dir.clone());
    let mut job_output = None;
    if let Some(style) = show {
        let output_dir = output_dir.clone();
        let place = StreamPlace { output_dir, workflow: workflow.id, run: status.run_id };
        job_output = Some(JobOutput::new(&client, place, style).await?);
    }
    let progress = ProgressDisplay::begin(context.output, &status);
    let wants = Wants { shows_output: job_output.is_some(), ..wants(context, &progress) };
    let mut display = Display {
        client: client.clone(),
        workflow: workflow.id,
        progress,
        follower: Follower::with_runner(wants, Instant::now()),
        effects: Vec::new(),
        job_output,
        runner: Some((&mut *session, stop)),
    };
    let mut running = std::pin::pin!(Runner::new(config).run(shutdown));
    let mut batch = Vec::with_capacity(BATCH);
    let mut next_look = Instant::now();
    let left = loop {
        tokio::select! {
            left = &mut running => break left,
            () = hear(&mut inbox, &mut batch, next_look) => {
                next_look = Instant::now() + if batch.len() < BATCH { LOOK_EVERY } else { Duration::ZERO };
                for event in batch.drain(..) {
                    display.handle(Event::Runner(event)).await?;
                }
            }
            () = due(display.follower.next_alarm()) => display.handle(Event::Due).await?,
            () = display.output_grew() => display.show_growth()?,
            () = interrupts.next() => display.handle(Event::Interrupted).await?,
        }
    };
    inbox.close();
    while let Ok(event) = inbox.try_recv() {
        display.handle(Event::Runner(event)).await?;
    }
    let Display { progress, follower, job_output, .. } = display;
    progress.end();
    let summary = left.map_err(ending::runner_error)?;
    let status = last_status(session, workflow.id).await?;
    if let Some(mut rest) = job_output {
        rest.finish(&session.client, &progress).await?;
    }
    ending::tell_undelivered(context, &summary);
    if !status.is_complete {
        ending::explain(context, &client, &workflow, &status, &summary.reason, &capacity).await?;
    }
    if status.is_complete {
        super::ro_crate::if_wanted(context, &session.client, &workflow, &output_dir).await;
    }
    let was_stopped = follower.interrupts > 0 && !status.is_complete;
    let end = RunEnd {
        progress: Some(&progress),
        recap: Some(&follower.recap),
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
    inbox: &mut mpsc::UnboundedReceiver<RunnerNotice>,
    batch: &mut Vec<RunnerNotice>,
    not_before: Instant,
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
    let progress = ProgressDisplay::begin(context.output, &status);
    let wants = wants(context, &progress);
    let mut display = Display {
        client: client.clone(),
        workflow: workflow.id,
        progress,
        follower: Follower::new(wants, Instant::now()),
        effects: Vec::new(),
        job_output: None,
        runner: None,
    };
    let mut process_end = std::pin::pin!(end_of_process(runner.pid));
    let is_over = loop {
        tokio::select! {
            // The server may live inside that process and be gone with it, so its end counts first.
            biased;
            () = &mut process_end => break true,
            () = interrupts.next() => break false,
            event = events.next() => {
                let event = event?;
                let about = Detail::of(event.kind, wants.is_verbose).ask(&client, &event).await;
                display.handle(Event::Server(Box::new(event), about)).await?;
            }
            () = due(display.follower.next_alarm()) => display.handle(Event::Due).await?,
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
        let end = RunEnd {
            progress: Some(&display.progress),
            recap: Some(&display.follower.recap),
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

fn wants(context: &Context, progress: &ProgressDisplay) -> Wants {
    let is_verbose = context.output.verbose > 0;
    Wants { is_verbose, is_live: progress.is_live(), shows_output: false }
}

/// Does what a [`Follower`] decides.
struct Display<'a> {
    client: Client,
    workflow: WorkflowId,
    progress: ProgressDisplay,
    follower: Follower,
    /// Kept for its room.
    effects: Vec<Effect>,
    /// What jobs print is shown.
    job_output: Option<JobOutput>,
    /// The runner of this process: who serves it, and how it is told to stop.
    runner: Option<(&'a mut Session, watch::Sender<Shutdown>)>,
}

impl Display<'_> {
    async fn handle(&mut self, event: Event) -> Result<()> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let mut effects = std::mem::take(&mut self.effects);
            self.follower.handle(event, Instant::now(), &mut effects);
            for effect in effects.drain(..) {
                // At most one effect of an event has an answer.
                next = self.act(effect).await?.or(next);
            }
            self.effects = effects;
        }
        Ok(())
    }

    async fn act(&mut self, effect: Effect) -> Result<Option<Event>> {
        match effect {
            Effect::Tell(line) => self.progress.tell(line),
            Effect::TellFailure(line) => self.progress.tell_failure(line),
            Effect::Refresh(longest) => {
                // Without an answer the display stays as it is; the runner tells when the server is
                // gone.
                if let Ok(status) = self.client.workflow_status(self.workflow).await {
                    self.progress.update(&status);
                }
                self.progress.name_running(longest);
            }
            Effect::AskWaiting => {
                // Without an answer there is nothing to say: the runner tells when the server is
                // gone, and must not wait for us.
                let waiting = tokio::time::timeout(LONGEST_LOOK, self.first_waiting()).await;
                return Ok(Some(Event::Waiting(waiting.ok().and_then(Result::ok).flatten())));
            }
            Effect::TakeOver => {
                if let Some((session, _)) = &mut self.runner {
                    session.take_over().await;
                }
            }
            Effect::Stop(level) => {
                if let Some((_, stop)) = &self.runner {
                    stop.send_replace(level);
                }
            }
            Effect::OutputBegins { attempt, job, number, name } => {
                if let Some(shown) = &mut self.job_output {
                    shown.on_start(attempt, job, number, &name);
                }
            }
            Effect::OutputEnds(attempt, job) => {
                if let Some(shown) = &mut self.job_output {
                    shown.on_end(&self.progress, attempt, job)?;
                }
            }
            Effect::OutputJudged(attempt, is_over) => {
                if let Some(shown) = &mut self.job_output {
                    shown.on_verdict(&self.client, &self.progress, attempt, is_over).await?;
                }
            }
        }
        Ok(None)
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

    /// A ready job and why no runner takes it, if nothing runs anywhere.
    async fn first_waiting(&self) -> Result<Option<Box<(JobView, WhyView)>>> {
        let status = self.client.workflow_status(self.workflow).await?;
        let is_busy = count(&status, JobStatus::Running) + count(&status, JobStatus::Pending) > 0;
        if is_busy || count(&status, JobStatus::Ready) == 0 {
            return Ok(None);
        }
        let query = Query::new()
            .add("workflow_id", self.workflow)
            .add("status", JobStatus::Ready.as_str())
            .add("limit", 1);
        let Some(job) = self.client.list_jobs(&query).await?.items.into_iter().next() else {
            return Ok(None);
        };
        let why = self.client.why(job.id).await?;
        Ok(Some(Box::new((job, why))))
    }
}

/// Jobs with this status.
pub fn count(status: &StatusView, which: JobStatus) -> i64 {
    status.counts.get(which.as_str()).copied().unwrap_or_default()
}
