//! `torc watch`: follows a workflow by its events, tells failures as they happen, and recovers it
//! if asked.

use super::drive::{self, count, due};
use super::interrupt::Interrupts;
use super::recap::Recap;
use super::recover::{self, Outcome};
use super::references::{self, LATEST};
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, ai, block_on, run, slurm};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::progress::{self, Progress};
use crate::output::{escape, human};
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use torc_client::{Client, Query};
use torc_model::api::{
    ErrorCode, ErrorInfo, EventView, JobView, RunnerView, SlurmSchedulerView, StatusView,
    WorkflowView,
};
use torc_model::event::EventKind;
use torc_model::recovery::NodeShape;
use torc_model::status::{JobStatus, RunnerKind};
use torc_runner::{LeaveReason, Runner, Shutdown, Summary};

/// However much happens, the counts are asked for this often at most.
const REFRESH: Duration = Duration::from_millis(300);
/// Between two looks at Slurm, which answers for all allocations at once.
const LOOK_AT_SLURM: Duration = Duration::from_secs(15);
/// Names of waiting jobs that are told.
const MAX_NAMED: i64 = 10;

/// Watch a workflow, and recover it when jobs fail
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc watch                             tell what happens in the latest workflow until it is complete
  torc watch sweep --recover             recover failures, three rounds at most
  torc watch 3 --recover --max-retries 5 --memory-multiplier 2 --log-file watch.log
  torc watch 3 --recover --ai-recovery   let an AI agent judge what waits for a verdict

Ctrl-C stops watching. Exits with 0 when all jobs succeeded and with 1 when some did not.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Recover failures when nothing else runs
    #[arg(short, long)]
    recover: bool,

    /// Let the server itself try failed jobs again at once where that helps, also when nothing
    /// watches
    #[arg(long)]
    auto_recover: bool,

    /// Rounds of recovery in this run of the workflow, counted over restarts of `watch`
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i64).range(0..))]
    max_retries: i64,

    /// Tell the number of jobs per status whenever it changes
    #[arg(long)]
    show_job_counts: bool,

    /// Also write everything that is told to this file
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    #[command(flatten)]
    options: recover::Options,

    #[command(flatten)]
    ai: ai::AiOptions,

    #[command(flatten)]
    slurm: slurm::AutoOptions,

    #[command(flatten)]
    runner: RunnerOptions,
}

type OwnRunner = Pin<Box<dyn Future<Output = std::result::Result<Summary, torc_runner::Error>>>>;

type Judging = Pin<Box<dyn Future<Output = Result<ai::Judged>>>>;

/// A look at Slurm, which may take long when Slurm does not answer; gives back what it was made
/// with.
type Looking = Pin<Box<dyn Future<Output = (slurm::AutoSchedule, Result<Vec<String>>)>>>;

/// Everything that one call of `watch` knows.
struct Watch<'a> {
    context: &'a Context,
    args: &'a Args,
    client: Client,
    workflow: WorkflowView,
    progress: Progress,
    recap: Recap,
    /// A runner has left; told unless the workflow is complete.
    runner_end: Option<String>,
    log: Option<File>,
    /// The newest event that has been told.
    last_event: i64,
    /// Something happened since the last look.
    stale_at: Option<Instant>,
    /// Recovery was tried and nothing has happened since.
    is_tried: bool,
    /// Jobs that had not begun were begun here; what still has not waits for something else.
    is_begun: bool,
    /// What was said last about being stuck.
    last_stuck: String,
    last_counts: String,
    own: Option<OwnRunner>,
    /// An agent is at work.
    judging: Option<Judging>,
    /// How often agents were asked.
    judged: i64,
    /// Nothing new waits for a verdict since they were.
    is_judged: bool,
    /// A runner of our own could do nothing for what is ready; another one could not either.
    is_runner_useless: bool,
    stop: watch::Sender<Shutdown>,
    /// The workflow's nodes come from Slurm.
    is_for_slurm: bool,
    /// Away while a look is under way.
    auto_schedule: Option<slurm::AutoSchedule>,
    looking: Option<Looking>,
    slurm_at: Option<Instant>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        block_on(async {
            let mut session =
                Session::open_for(&context.locator, Access::Existing, Purpose::Run { port: 0 })
                    .await?;
            let result = self.watch(context, &mut session).await;
            session.close().await;
            result
        })
    }

    async fn watch(&self, context: &Context, session: &mut Session) -> Result<Exit> {
        if self.ai.ai_recovery {
            if !self.recover {
                return Err(Error::usage_hint(
                    "`--ai-recovery` is a part of recovery",
                    "add `--recover`",
                ));
            }
            self.ai.agent()?;
        }
        let client = session.client.clone();
        let workflow = references::workflow(&client, &self.workflow).await?;
        recover::switch_on(&client, workflow.id, self.auto_recover).await?;
        let log = match &self.log_file {
            Some(path) => Some(
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path)
                    .map_err(Error::io("write", path))?,
            ),
            None => None,
        };
        // Before the first look, so that nothing falls between the look and the stream.
        let mut events = slurm::events_from_now(&client, workflow.id).await?;
        let status = client.workflow_status(workflow.id).await?;
        let output_dir = self.runner.output_dir.clone();
        let auto_schedule = slurm::is_for_slurm(&client, &workflow)
            .await?
            .then(|| slurm::AutoSchedule::new(self.slurm.clone(), self.recover, output_dir));
        let mut watch = Watch {
            context,
            args: self,
            client: client.clone(),
            progress: Progress::begin(context.output, &status),
            recap: Recap::default(),
            runner_end: None,
            workflow,
            log,
            last_event: events.last_id().unwrap_or_default(),
            stale_at: Some(Instant::now()),
            is_tried: false,
            is_begun: false,
            last_stuck: String::new(),
            last_counts: String::new(),
            own: None,
            judging: None,
            judged: 0,
            is_judged: false,
            is_runner_useless: false,
            stop: watch::channel(Shutdown::Run).0,
            slurm_at: auto_schedule.as_ref().map(|_| Instant::now()),
            is_for_slurm: auto_schedule.is_some(),
            auto_schedule,
            looking: None,
        };
        let mut interrupts = Interrupts::listen()?;
        let mut interrupted = 0;
        let mut was_stopped = false;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Ok(event) => watch.on_event(&event).await,
                    // The process that served the local state has ended: this one takes its place.
                    Err(error) => {
                        session.take_over().await;
                        watch.client.health().await.map_err(|_| Error::from(error))?;
                    }
                },
                left = run_own(&mut watch.own) => watch.on_runner_left(left),
                done = run_judging(&mut watch.judging) => watch.on_judged(done),
                () = due(watch.slurm_at) => watch.look_at_slurm(),
                done = run_looking(&mut watch.looking) => watch.on_looked(done)?,
                () = due(watch.stale_at) => {
                    if watch.own.is_none() && interrupted > 0 {
                        was_stopped = true;
                        break;
                    }
                    if watch.look().await? {
                        break;
                    }
                }
                () = interrupts.next() => {
                    interrupted += 1;
                    if watch.own.is_none() {
                        was_stopped = true;
                        break;
                    }
                    watch.tell(if interrupted == 1 { "stopping: running jobs go back into the queue" } else { "killing running jobs" });
                    watch.stop.send_replace(if interrupted == 1 { Shutdown::Stop } else { Shutdown::Kill });
                }
            }
        }
        watch.progress.end();
        let status = client.workflow_status(watch.workflow.id).await?;
        let end = drive::End {
            progress: Some(&watch.progress),
            recap: Some(&watch.recap),
            stopped_by: (was_stopped && !status.is_complete).then_some(&interrupts),
        };
        drive::finish(context, &client, &watch.workflow, &status, end).await
    }
}

async fn run_judging(judging: &mut Option<Judging>) -> Result<ai::Judged> {
    match judging {
        Some(judging) => judging.await,
        None => std::future::pending().await,
    }
}

async fn run_looking(looking: &mut Option<Looking>) -> (slurm::AutoSchedule, Result<Vec<String>>) {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

async fn run_own(own: &mut Option<OwnRunner>) -> std::result::Result<Summary, torc_runner::Error> {
    match own {
        Some(runner) => runner.await,
        None => std::future::pending().await,
    }
}

impl Watch<'_> {
    fn tell(&mut self, line: impl std::fmt::Display) {
        self.tell_as(line, false);
    }

    /// A failure is also told to a user who wants quiet.
    fn tell_as(&mut self, line: impl std::fmt::Display, is_failure: bool) {
        let line = line.to_string();
        match is_failure {
            true => self.progress.tell_failure(&line),
            false => self.progress.tell(&line),
        }
        if let Some(log) = &mut self.log
            && let Err(error) = writeln!(log, "{} {line}", human::local_time(human::now_ms()))
        {
            self.log = None;
            self.progress
                .tell(format_args!("warning: the log file cannot be written any more: {error}"));
        }
    }

    /// Tells what has happened so far. The stream may bring it later than the counts show it, and
    /// perhaps never if this is the end.
    async fn catch_up(&mut self) -> Result<()> {
        let query = Query::new().add("after", self.last_event);
        let path = format!("/workflows/{}/events", self.workflow.id);
        for event in self.client.list_all::<EventView>(&path, &query).await? {
            self.on_event(&event).await;
        }
        Ok(())
    }

    async fn on_event(&mut self, event: &EventView) {
        // It has been told already, by the other of the two ways.
        if event.id <= self.last_event {
            return;
        }
        self.last_event = event.id;
        self.stale_at.get_or_insert_with(|| Instant::now() + REFRESH);
        if event.kind.is_of_jobs() || event.kind.is_of_runners() {
            self.is_tried = false;
        }
        self.is_judged &= event.kind != EventKind::JobPendingFailed;
        self.is_begun &= event.kind != EventKind::WorkflowReset;
        if self.is_for_slurm && event.kind == EventKind::AllocationEnded {
            // Others may be needed.
            let soon = Instant::now() + REFRESH;
            self.slurm_at = Some(self.slurm_at.map_or(soon, |at| at.min(soon)));
        }
        let text = |key: &str| {
            event.data.get(key).and_then(|v| v.as_str()).map(|s| escape::line(s).into_owned())
        };
        let word = match event.kind {
            EventKind::JobFailed => "failed",
            EventKind::JobTerminated => "stopped at its time limit",
            EventKind::JobPendingFailed => "failed, needs a verdict",
            EventKind::JobRetried => "retrying",
            EventKind::JobAdjusted => "changed",
            EventKind::JobClassified => "judged",
            EventKind::ClassificationHeld => "a verdict waits for a person",
            EventKind::RunnerQuarantined => {
                let why = text("why").unwrap_or_default();
                self.tell(format_args!(
                    "runner on {} gets no work for a while: {why}",
                    text("hostname").unwrap_or_default()
                ));
                return;
            }
            EventKind::RecoveryPaused | EventKind::RecoveryResumed => {
                let why = text("why").unwrap_or_default();
                self.tell(format_args!("{why}"));
                return;
            }
            // The end of the workflow says it better: told only if that does not follow.
            EventKind::RunnerEnded => {
                let reason = text("reason").map(|reason| format!(": {reason}")).unwrap_or_default();
                self.runner_end = Some(format!("runner ended{reason}"));
                return;
            }
            // This call did it and has told what.
            EventKind::WorkflowRecovered if self.args.recover => return,
            EventKind::WorkflowRecovered | EventKind::WorkflowCanceled => {
                let what = event.kind.as_str().replace('_', " ");
                let reason = text("reason").map(|reason| format!(": {reason}")).unwrap_or_default();
                self.tell(format_args!("{what}{reason}"));
                return;
            }
            EventKind::JobStarted | EventKind::JobCompleted => {
                let is_verbose = self.context.output.verbose > 0;
                let (client, progress) = (&self.client, &self.progress);
                drive::on_job_event(client, progress, &mut self.recap, is_verbose, event).await;
                return;
            }
            _ => return,
        };
        let Some(job) = event.job_id else { return };
        let is_failure = matches!(event.kind, EventKind::JobFailed | EventKind::JobTerminated);
        let mut last_line = None;
        let name = if is_failure {
            let (name, seconds, failure) = drive::failure_of(&self.client, job, event).await;
            last_line = failure.last_line.clone();
            self.recap.on_failure(job, &name, seconds, failure);
            name
        } else {
            // A line with the id alone is better than none.
            self.client.get_job(job).await.map(|job| job.name).unwrap_or_default()
        };
        if event.kind == EventKind::JobRetried {
            self.recap.on_retry(job, &name, 0.0);
        }
        let name = escape::line(&name).into_owned();
        let mut line = format!("{word}: {name} (job {job})");
        if let Some(cause) = text("cause") {
            line += &format!(", {cause}");
        }
        if let Some(code) = event.data.get("return_code").and_then(serde_json::Value::as_i64) {
            line += &format!(", code {code}");
        }
        if let (Some(field), Some(to)) = (text("field"), text("to")) {
            line +=
                &format!(", {field} {} -> {to}", text("from").unwrap_or_else(|| "no limit".into()));
        }
        if let Some(reason) = text("decision").or_else(|| text("why")) {
            line += &format!(": {reason}");
        }
        if let Some(last) = last_line {
            line += &format!("\n  | {}", escape::line(&last));
        }
        self.tell_as(line, is_failure);
    }

    fn on_runner_left(&mut self, left: std::result::Result<Summary, torc_runner::Error>) {
        self.own = None;
        self.stale_at = Some(Instant::now());
        match left {
            Ok(summary) => {
                self.is_runner_useless = summary.succeeded + summary.failed + summary.ended == 0;
                if summary.reason != LeaveReason::Complete {
                    self.tell(format_args!("the local runner left: {}", summary.reason));
                }
            }
            Err(error) => {
                self.is_runner_useless = true;
                self.tell(format_args!("the local runner failed: {error}"));
            }
        }
    }

    /// Looks at the counts and does what follows. Answers whether the watch is over.
    async fn look(&mut self) -> Result<bool> {
        self.stale_at = None;
        let status = self.client.workflow_status(self.workflow.id).await?;
        self.progress.update(&status);
        if self.progress.is_live() {
            // Without an answer the line keeps the names it has.
            if let Ok(jobs) = drive::longest_running(&self.client, self.workflow.id).await {
                self.progress.name_running(jobs);
            }
        }
        if let Some(line) =
            self.runner_end.take().filter(|_| !status.is_complete && self.own.is_none())
        {
            self.tell(line);
        }
        if self.args.show_job_counts {
            let counts = progress::counts(&status);
            if counts != self.last_counts {
                self.tell(&counts);
                self.last_counts = counts;
            }
        }
        let bad = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
        let bad: i64 = bad.iter().map(|s| count(&status, *s)).sum();
        let moving = [JobStatus::Ready, JobStatus::Pending, JobStatus::Running]
            .iter()
            .any(|s| count(&status, *s) > 0);
        if !moving {
            self.catch_up().await?;
        }
        if bad > 0 && !moving && self.args.recover && !self.is_tried && !status.is_canceled {
            let Some(shapes) = self.node_shapes().await else {
                self.stale_at = Some(Instant::now() + LOOK_AT_SLURM);
                return Ok(false);
            };
            self.is_tried = true;
            if self.recover(shapes).await? {
                self.is_runner_useless = false;
                self.slurm_at = self.is_for_slurm.then(Instant::now);
                self.stale_at = Some(Instant::now());
                return Ok(false);
            }
        }
        if status.is_complete {
            return Ok(true);
        }
        if self.judging.is_some() || !moving && self.begin_judging(&status) {
            return Ok(false);
        }
        if !moving && self.handle_not_begun(&status).await? {
            return Ok(false);
        }
        self.handle_stuck(&status).await?;
        Ok(false)
    }

    /// Jobs that no runner has begun, and nothing that they could wait for: begins them if they are
    /// to run here, else says who does. Answers whether there are any.
    async fn handle_not_begun(&mut self, status: &StatusView) -> Result<bool> {
        let is_else =
            status.is_canceled || self.is_begun || count(status, JobStatus::PendingFailed) > 0;
        if is_else || count(status, JobStatus::Uninitialized) == 0 {
            return Ok(false);
        }
        let (id, title) = (self.workflow.id, run::title(&self.workflow));
        if self.args.recover && self.is_local().await? {
            self.is_begun = true;
            self.client.initialize_workflow(id, false).await.map_err(|error| match Error::from(
                error,
            ) {
                Error::Refused { status, info }
                    if info.code == ErrorCode::MissingFiles.as_str() =>
                {
                    let hint = Some(format!(
                        "create them, or run without them with `torc run {id} --force`"
                    ));
                    Error::Refused { status, info: ErrorInfo { hint, ..info } }
                }
                other => other,
            })?;
            self.stale_at = Some(Instant::now());
            return Ok(true);
        }
        let how =
            if self.is_for_slurm { format!("torc submit {id}") } else { format!("torc run {id}") };
        self.say_stuck(match status.run_id {
            0 => format!("{title} has not been started; `{how}` starts it"),
            _ => format!(
                "jobs of {title} were reset and have not been started again; `{how}` starts them"
            ),
        });
        Ok(true)
    }

    /// Lets the record and an agent judge what waits for a verdict, if that was asked for and
    /// something new does.
    fn begin_judging(&mut self, status: &StatusView) -> bool {
        let is_due =
            self.args.ai.ai_recovery && !self.is_judged && self.judged < self.args.max_retries;
        if !is_due || count(status, JobStatus::PendingFailed) == 0 || status.is_canceled {
            return false;
        }
        self.is_judged = true;
        self.judged += 1;
        self.tell(format!(
            "asking for verdicts, round {} of {} at most",
            self.judged, self.args.max_retries
        ));
        let (options, client, workflow) =
            (self.args.ai.clone(), self.client.clone(), self.workflow.clone());
        let no_memory = self.args.options.no_memory;
        self.judging =
            Some(Box::pin(async move { options.judge(&client, &workflow, no_memory).await }));
        true
    }

    fn on_judged(&mut self, done: Result<ai::Judged>) {
        self.judging = None;
        self.stale_at = Some(Instant::now());
        match done {
            Ok(judged) => {
                for line in &judged.lines {
                    self.tell(escape::line(line));
                }
                if judged.retried > 0 {
                    self.is_runner_useless = false;
                    self.slurm_at = self.is_for_slurm.then(Instant::now);
                }
            }
            // The jobs go on waiting; a person can still judge them.
            Err(error) => self.tell(format_args!("no verdicts: {error}")),
        }
    }

    /// Begins to end what Slurm has ended, and to ask for nodes if that is due. One look at a time.
    fn look_at_slurm(&mut self) {
        self.slurm_at = Some(Instant::now() + LOOK_AT_SLURM);
        if let Some(mut auto_schedule) = self.auto_schedule.take() {
            let (client, workflow) = (self.client.clone(), self.workflow.clone());
            self.looking = Some(Box::pin(async move {
                let done = auto_schedule.tick(&client, &workflow).await;
                (auto_schedule, done)
            }));
        }
    }

    fn on_looked(
        &mut self,
        (auto_schedule, done): (slurm::AutoSchedule, Result<Vec<String>>),
    ) -> Result<()> {
        self.looking = None;
        self.auto_schedule = Some(auto_schedule);
        for line in done? {
            self.tell(escape::line(&line));
        }
        Ok(())
    }

    /// What nodes there are, so that recovery gives no job more than one has. `None`: Slurm does
    /// not tell right now.
    async fn node_shapes(&mut self) -> Option<Vec<NodeShape>> {
        if !self.is_for_slurm {
            return Some(Vec::new());
        }
        match slurm::node_shapes().await {
            Ok(shapes) => Some(shapes),
            Err(why) => {
                let why = escape::line(&why).into_owned();
                self.say_stuck(format!(
                    "recovery waits until Slurm tells what nodes it has: {why}"
                ));
                None
            }
        }
    }

    /// One round. Answers whether jobs were queued.
    async fn recover(&mut self, shapes: Vec<NodeShape>) -> Result<bool> {
        let rounds = Some(self.args.max_retries);
        let options = &self.args.options;
        let outcome = options
            .recover(self.context, &self.client, self.workflow.id, false, rounds, shapes)
            .await;
        match outcome {
            Ok(Outcome::Done(view)) => {
                let (again, left) = (view.jobs_to_retry.len() as i64, view.other_failures);
                if again > 0 {
                    self.tell(format_args!(
                        "recovery round {} of {}: {} queued again, {left} left as they are",
                        view.rounds,
                        self.args.max_retries,
                        human::count(again, "job")
                    ));
                } else {
                    self.tell(format_args!(
                        "{} cannot be recovered",
                        human::count(left, "failure")
                    ));
                }
                Ok(again > 0)
            }
            Ok(Outcome::HookFailed(message)) => {
                self.tell(message);
                Ok(false)
            }
            // Said once, with the reason; the watch then ends as the jobs did.
            Err(Error::Refused { status: 409, info }) => {
                self.tell(format_args!("no recovery: {}", escape::line(&info.message)));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing moves by itself: says why, and starts a runner here when that helps after a
    /// recovery.
    async fn handle_stuck(&mut self, status: &StatusView) -> Result<()> {
        let ready = count(status, JobStatus::Ready);
        let waiting = count(status, JobStatus::PendingFailed);
        if status.active_runners == 0 && self.own.is_none() && ready > 0 {
            if self.args.recover && !self.is_runner_useless && self.is_local().await? {
                self.tell("no runner is active: starting one here");
                let config = self.args.runner.config(&self.client, &self.workflow)?;
                self.own = Some(Box::pin(Runner::new(config).run(self.stop.subscribe())));
                return Ok(());
            }
            let title = run::title(&self.workflow);
            let id = self.workflow.id;
            let how = match self.is_for_slurm {
                true => match slurm::open_allocations(&self.client, &self.workflow).await? {
                    0 => {
                        format!(
                            "`torc slurm regenerate {id} --submit` asks for nodes, `--auto-schedule` does it here"
                        )
                    }
                    open => format!("{} on the way", human::count(open, "allocation")),
                },
                false => format!("resume with `torc run {id}`"),
            };
            self.say_stuck(format!("no runner is active for {title}; {how}"));
        } else if waiting > 0 {
            let query = Query::new()
                .add("workflow_id", self.workflow.id)
                .add("status", "pending_failed")
                .add("limit", MAX_NAMED);
            let page = self.client.list_jobs(&query).await?;
            let name = |job: &JobView| format!("{} (job {})", escape::line(&job.name), job.id);
            let names: Vec<String> = page.items.iter().map(name).collect();
            let more = if page.has_more { ", ..." } else { "" };
            self.say_stuck(format!(
                "{} for a verdict: {}{more}",
                if waiting == 1 {
                    "1 job waits".into()
                } else {
                    format!("{} jobs wait", human::grouped(waiting))
                },
                names.join(", ")
            ));
        }
        Ok(())
    }

    fn say_stuck(&mut self, line: String) {
        if line != self.last_stuck {
            self.tell(&line);
            self.last_stuck = line;
        }
    }

    /// Nothing of this workflow was ever meant for Slurm.
    async fn is_local(&self) -> Result<bool> {
        let query = Query::new().add("workflow_id", self.workflow.id);
        let runners: Vec<RunnerView> = self.client.list_all("/compute_nodes", &query).await?;
        let schedulers: Vec<SlurmSchedulerView> =
            self.client.list_all("/slurm_schedulers", &query).await?;
        Ok(schedulers.is_empty() && runners.iter().all(|runner| runner.kind != RunnerKind::Slurm))
    }
}
