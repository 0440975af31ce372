//! `torc watch`: follows a workflow by its events, tells failures as they happen, and recovers it
//! if asked.

mod machine;

use super::drive::{self, due};
use super::interrupt::Interrupts;
use super::recover::{self, RecoverOutcome, RecoverRound};
use super::references::{self, LATEST};
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, ai, block_on, run, slurm};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::progress::ProgressDisplay;
use crate::output::{escape, human};
use machine::{Answer, Effect, Event, Question, Recovered, Rules, Watcher};
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use tokio::sync::watch;
use tokio::time::Instant;
use torc_client::{Client, Query};
use torc_model::api::{
    ErrorCode, ErrorInfo, EventView, JobView, RunnerView, SlurmSchedulerView, WorkflowView,
};
use torc_model::recovery::NodeShape;
use torc_model::status::RunnerKind;
use torc_runner::{Runner, RunnerSummary, Shutdown};

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

/// Work that goes on while the workflow is watched.
type Work<T> = Pin<Box<dyn Future<Output = T>>>;

/// A look at Slurm gives back what it was made with.
type SchedulingPass = (slurm::AutoSchedule, Result<Vec<String>>);

/// Does what a [`Watcher`] decides.
struct Watch<'a> {
    context: &'a Context,
    args: &'a Args,
    client: Client,
    workflow: WorkflowView,
    progress: ProgressDisplay,
    log: Option<File>,
    machine: Watcher,
    own: Option<Work<std::result::Result<RunnerSummary, torc_runner::Error>>>,
    judging: Option<Work<Result<ai::AgentOutcome>>>,
    looking: Option<Work<SchedulingPass>>,
    stop: watch::Sender<Shutdown>,
    /// Away while a look is under way.
    auto_schedule: Option<slurm::AutoSchedule>,
    /// The watch is over; true: the user stopped it.
    end: Option<bool>,
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
        let append = |path| OpenOptions::new().create(true).append(true).open(path);
        let log = self.log_file.as_ref();
        let log = log.map(|path| append(path).map_err(Error::io("write", path))).transpose()?;
        // Before the first look, so that nothing falls between the look and the stream.
        let mut events = slurm::events_from_now(&client, workflow.id).await?;
        let status = client.workflow_status(workflow.id).await?;
        let output_dir = self.runner.output_dir.clone();
        let auto_schedule = slurm::is_for_slurm(&client, &workflow)
            .await?
            .then(|| slurm::AutoSchedule::new(self.slurm.clone(), self.recover, output_dir));
        let rules = Rules {
            workflow: workflow.id,
            title: run::title(&workflow),
            recover: self.recover,
            ask_agents: self.ai.ai_recovery,
            max_rounds: self.max_retries,
            show_counts: self.show_job_counts,
            is_verbose: context.output.verbose > 0,
            is_for_slurm: auto_schedule.is_some(),
        };
        let last_event = events.last_id().unwrap_or_default();
        let mut watch = Watch {
            context,
            args: self,
            client: client.clone(),
            progress: ProgressDisplay::begin(context.output, &status),
            workflow,
            log,
            machine: Watcher::new(rules, last_event, Instant::now()),
            own: None,
            judging: None,
            looking: None,
            stop: watch::channel(Shutdown::Run).0,
            auto_schedule,
            end: None,
        };
        let mut interrupts = Interrupts::listen()?;
        let was_stopped = loop {
            let event = tokio::select! {
                event = events.next() => match event {
                    Ok(event) => watch.learn(event).await,
                    // The process that served the local state has ended: this one takes its place.
                    Err(error) => {
                        session.take_over().await;
                        watch.client.health().await.map_err(|_| Error::from(error))?;
                        continue;
                    }
                },
                left = finished(&mut watch.own) => Event::RunnerLeft(match left {
                    Ok(s) => Ok((s.reason, s.succeeded + s.failed + s.ended > 0)),
                    Err(error) => Err(error.to_string()),
                }),
                done = finished(&mut watch.judging) => Event::Judged(done.map_err(|error| error.to_string())),
                (auto_schedule, done) = finished(&mut watch.looking) => {
                    watch.auto_schedule = Some(auto_schedule);
                    Event::LookedAtSlurm(done?)
                }
                () = due(watch.machine.slurm.look_at) => Event::SlurmDue,
                () = due(watch.machine.stale_at) => Event::LookDue,
                () = interrupts.next() => Event::Interrupted,
            };
            watch.handle(event).await?;
            if let Some(was_stopped) = watch.end {
                break was_stopped;
            }
        };
        watch.progress.end();
        let status = client.workflow_status(watch.workflow.id).await?;
        let end = drive::RunEnd {
            progress: Some(&watch.progress),
            recap: Some(&watch.machine.recap),
            stopped_by: (was_stopped && !status.is_complete).then_some(&interrupts),
        };
        drive::finish(context, &client, &watch.workflow, &status, end).await
    }
}

/// Waits for work to be done; for ever if there is none.
async fn finished<T>(work: &mut Option<Work<T>>) -> T {
    let Some(going) = work else { return std::future::pending().await };
    let done = going.await;
    *work = None;
    done
}

impl Watch<'_> {
    async fn handle(&mut self, event: Event) -> Result<()> {
        let mut events = vec![event];
        let mut effects = Vec::new();
        while !events.is_empty() {
            for event in std::mem::take(&mut events) {
                self.machine.handle(event, Instant::now(), &mut effects);
                for effect in effects.drain(..) {
                    self.act(effect, &mut events).await?;
                }
            }
        }
        Ok(())
    }

    /// Does one thing; an answer goes to `events`.
    async fn act(&mut self, effect: Effect, events: &mut Vec<Event>) -> Result<()> {
        match effect {
            Effect::Tell(line) => self.tell(&line, |progress, line| progress.tell(line)),
            Effect::TellFailure(line) => {
                self.tell(&line, |progress, line| progress.tell_failure(line))
            }
            Effect::Show(status) => {
                self.progress.update(&status);
                // Without an answer the line keeps the names it has.
                if self.progress.is_live()
                    && let Ok(jobs) = drive::longest_running(&self.client, self.workflow.id).await
                {
                    self.progress.name_running(jobs);
                }
            }
            Effect::Ask(question) => {
                let answer = self.ask(question, events).await?;
                events.push(Event::Answered(answer));
            }
            Effect::Begin => self.begin().await?,
            Effect::StartRunner => {
                let config = self.args.runner.config(&self.client, &self.workflow)?;
                self.own = Some(Box::pin(Runner::new(config).run(self.stop.subscribe())));
            }
            Effect::StopRunner(level) => _ = self.stop.send_replace(level),
            Effect::Judge => {
                let (options, client) = (self.args.ai.clone(), self.client.clone());
                let (workflow, no_memory) = (self.workflow.clone(), self.args.options.no_memory);
                self.judging =
                    Some(Box::pin(
                        async move { options.judge(&client, &workflow, no_memory).await },
                    ));
            }
            Effect::LookAtSlurm => {
                if let Some(mut auto_schedule) = self.auto_schedule.take() {
                    let (client, workflow) = (self.client.clone(), self.workflow.clone());
                    self.looking = Some(Box::pin(async move {
                        let done = auto_schedule.tick(&client, &workflow).await;
                        (auto_schedule, done)
                    }));
                }
            }
            Effect::End(was_stopped) => self.end = Some(was_stopped),
        }
        Ok(())
    }

    fn tell(&mut self, line: &str, how: fn(&ProgressDisplay, &str)) {
        how(&self.progress, line);
        if let Some(log) = &mut self.log
            && let Err(error) = writeln!(log, "{} {line}", human::local_time(human::now_ms()))
        {
            self.log = None;
            self.progress
                .tell(format_args!("warning: the log file cannot be written any more: {error}"));
        }
    }

    /// An event with what must be known to tell of it.
    async fn learn(&self, event: EventView) -> Event {
        let about = self.machine.detail(&event).ask(&self.client, &event).await;
        Event::Happened(Box::new(event), about)
    }

    /// Events that are part of an answer go before it.
    async fn ask(&self, question: Question, events: &mut Vec<Event>) -> Result<Answer> {
        let (client, id) = (&self.client, self.workflow.id);
        let of_workflow = Query::new().add("workflow_id", id);
        Ok(match question {
            Question::Status => Answer::Status(Box::new(client.workflow_status(id).await?)),
            Question::Events(after) => {
                let query = Query::new().add("after", after);
                let path = format!("/workflows/{id}/events");
                for event in client.list_all::<EventView>(&path, &query).await? {
                    events.push(self.learn(event).await);
                }
                Answer::CaughtUp
            }
            Question::Shapes => Answer::Shapes(slurm::node_shapes().await),
            Question::Recover(shapes) => Answer::Recovered(self.recover(shapes).await?),
            Question::IsLocal => {
                let runners: Vec<RunnerView> =
                    client.list_all("/compute_nodes", &of_workflow).await?;
                let schedulers: Vec<SlurmSchedulerView> =
                    client.list_all("/slurm_schedulers", &of_workflow).await?;
                let is_local = |runner: &RunnerView| runner.kind != RunnerKind::Slurm;
                Answer::IsLocal(schedulers.is_empty() && runners.iter().all(is_local))
            }
            Question::OpenAllocations => {
                Answer::OpenAllocations(slurm::open_allocations(client, &self.workflow).await?)
            }
            Question::Waiting => {
                let query = of_workflow.add("status", "pending_failed").add("limit", MAX_NAMED);
                let page = client.list_jobs(&query).await?;
                let name = |job: &JobView| format!("{} (job {})", escape::line(&job.name), job.id);
                Answer::Waiting(page.items.iter().map(name).collect(), page.has_more)
            }
        })
    }

    /// Begins jobs that have not begun.
    async fn begin(&self) -> Result<()> {
        let id = self.workflow.id;
        let begun = self.client.initialize_workflow(id, false).await;
        begun.map(|_| ()).map_err(|error| match Error::from(error) {
            Error::Refused { status, info } if info.code == ErrorCode::MissingFiles.as_str() => {
                let hint =
                    Some(format!("create them, or run without them with `torc run {id} --force`"));
                Error::Refused { status, info: ErrorInfo { hint, ..info } }
            }
            other => other,
        })
    }

    /// One round.
    async fn recover(&self, shapes: Vec<NodeShape>) -> Result<Recovered> {
        let max_rounds = Some(self.args.max_retries);
        let round = RecoverRound { dry_run: false, max_rounds, shapes };
        let options = &self.args.options;
        let outcome = options.recover(self.context, &self.client, self.workflow.id, round);
        match outcome.await {
            Ok(RecoverOutcome::Done(view)) => Ok(Recovered::Done {
                rounds: view.rounds,
                again: view.jobs_to_retry.len() as i64,
                left: view.other_failures,
            }),
            Ok(RecoverOutcome::HookFailed(message)) => Ok(Recovered::NotDone(message)),
            // Said once, with the reason; the watch then ends as the jobs did.
            Err(Error::Refused { status: 409, info }) => {
                Ok(Recovered::NotDone(format!("no recovery: {}", escape::line(&info.message))))
            }
            Err(error) => Err(error),
        }
    }
}
