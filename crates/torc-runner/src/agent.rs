//! The part of a runner that works on another node of its allocation: starts, watches and ends the
//! attempts that the runner places there.
//!
//! ```text
//!   head node                                     every other node
//!   runner ── srun, one per node ── stdin ──────▶ agent: executor, supervisor
//!          ◀─────────────────────── stdout ──────
//! ```
//!
//! Messages are lines of JSON. The server knows only the runner. An agent that hears nothing for
//! [`FENCE`], or whose input ends, ends its attempts and leaves: without its word for that the runner
//! gives them up only later ([`GIVEN_UP_AFTER`]), so that no retry runs beside an old process.

use crate::attempt::AttemptContext;
use crate::cgroup::Cgroups;
use crate::error::Error;
use crate::executor::{Executor, ExecutorEvent, PreparedTask};
use crate::mailbox::{Inbox, Mailbox, mailbox};
use crate::node::NodeMonitor;
use crate::pool::{self, Bounds, EventHandler};
use crate::process::Setup;
use crate::runner::{rules, time_series, watch_node};
use crate::steps::Live;
use crate::supervisor::{Done, StopReason, Supervisor};
use crate::sys;
use crate::tasks::Tasks;
use crate::token_files::TokenFiles;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use torc_model::api::{AttemptPacket, CompletionReport, RunnerRegistered, StartReport, StepEvents};
use torc_model::ids::{AttemptId, WorkflowId};
use torc_model::json::from_text;

const DONE_KEY: u64 = 0;
const REPORT_KEY: u64 = u64::MAX;
const COMMAND_KEY: u64 = u64::MAX - 1;

/// The runner says something at least this often.
pub const PING: Duration = Duration::from_secs(10);
/// An agent that has heard nothing for this long ends its attempts.
pub const FENCE: Duration = Duration::from_secs(60);
/// From the last word of an agent until its runner believes that nothing of its attempts lives.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(70);
/// A runner that has heard nothing of an agent for this long gives its node up: the agent has ended
/// its attempts by then.
pub const LOST_AFTER: Duration = Duration::from_secs(120);

/// The first line to an agent: all that it must know.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// What the server told the runner.
    pub registered: RunnerRegistered,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Names the agent's processes and files.
    pub key: String,
    /// Where logs go.
    pub output_dir: PathBuf,
    /// Where jobs start.
    pub working_dir: PathBuf,
    /// Where jobs find their tokens; of this agent alone.
    pub token_dir: PathBuf,
    /// The server, for jobs.
    pub api_url: String,
    /// Certificates to trust.
    pub tls_ca: Option<PathBuf>,
    /// Until the end of the allocation.
    pub time_left: Option<Duration>,
    /// What Slurm gives processes that it ends early.
    pub longest_stop: Option<Duration>,
    /// Slurm's name of the node.
    pub node_name: String,
    /// For one attempt only; others look after the node.
    #[serde(default)]
    pub is_step: bool,
}

/// What a runner tells an agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// Start an attempt on these GPUs.
    Start(Box<AttemptPacket>, Vec<String>),
    /// End an attempt; one that is elsewhere is nothing to this agent.
    Stop(AttemptId, StopReason),
    /// End everything.
    StopAll(StopReason),
    /// End everything at once.
    KillAll(StopReason),
    /// The runner lives.
    Ping,
}

/// What an agent tells its runner.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// It can start attempts: CPUs and GPUs of its node.
    Ready(i64, Vec<String>),
    /// An attempt runs.
    Started(StartReport),
    /// An attempt has ended.
    Ended(Box<CompletionReport>),
    /// What steps did since.
    Steps(Vec<StepEvents>),
    /// The agent lives.
    Pong,
    /// Nothing of its attempts lives any more; the last message.
    Bye,
}

enum Command {
    Do(ToAgent),
    /// The runner is gone, or wants this agent to leave.
    Leave,
}

/// Runs an agent until its input ends. Must be called on a tokio runtime.
pub async fn run() -> Result<(), Error> {
    // Slurm signals every process of a job that it ends. What follows is the runner's to decide; a
    // signal that is caught does not reach the jobs as an ignored one would.
    for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::user_defined2()] {
        let mut caught =
            signal(kind).map_err(|error| Error::system("listen for signals", error))?;
        tokio::spawn(async move { while caught.recv().await.is_some() {} });
    }
    sys::become_subreaper().map_err(|e| Error::system("adopt orphans", e))?;
    let hello = tokio::task::spawn_blocking(read_hello).await.map_err(|_| Error::Broken)??;
    torc_fs::make_private_dir(&hello.token_dir)
        .map_err(|e| Error::io("make", &hello.token_dir, e))?;
    let live = Arc::new(Live::default());
    let registered = &hello.registered;
    let context = Arc::new(AttemptContext {
        workflow_name: registered.workflow_name.clone(),
        workflow_id: hello.workflow_id,
        key: hello.key.clone(),
        output_dir: hello.output_dir.clone(),
        working_dir: hello.working_dir.clone(),
        runner_id: registered.id,
        tokens: TokenFiles::new(&hello.token_dir, registered.job_key.clone()),
        api_url: hello.api_url.clone(),
        tls_ca: hello.tls_ca.clone(),
        env: registered.env.clone(),
        execution: registered.execution.clone(),
        checkpoint_exit_code: registered.checkpoint_exit_code,
        time_series: time_series(registered, &hello.output_dir, &hello.key)?,
        live: live.clone(),
    });
    let monitor = match hello.is_step {
        true => None,
        false => watch_node(
            hello.workflow_id,
            Some(hello.node_name.clone()),
            registered,
            &hello.output_dir,
            &hello.key,
        )?,
    };
    let (commands, inbox) = mailbox(COMMAND_KEY).map_err(|e| Error::system("make a mailbox", e))?;
    let engine = AgentLoop::new(&hello, context, inbox, live, monitor)?;
    let (poller, tasks) = (engine.poller.clone(), engine.tasks.clone());
    std::thread::Builder::new()
        .name("torc-agent-input".into())
        .spawn(move || read_commands(&commands))
        .map_err(|e| Error::system("start a thread", e))?;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<i64>().ok());
    let (capacity, _) = crate::machine::detect();
    let cpus = number("SLURM_CPUS_ON_NODE").unwrap_or(capacity.num_cpus);
    say(&FromAgent::Ready(cpus, crate::allocation::gpus_of_slurm()))
        .map_err(|e| Error::system("answer", e))?;
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let attending = threads.clamp(2, 32);
    let max = Bounds { threads: (2 * threads).clamp(4, 32) + 1 + attending, attending };
    pool::start(engine, poller, tasks, max)
        .map_err(|e| Error::system("start a thread", e))?
        .await
        .map_err(|_| Error::Broken)?
}

fn read_hello() -> Result<Hello, Error> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Error::system("hear the runner", e))?;
    from_text(&line).map_err(|e| Error::system("understand the runner", std::io::Error::other(e)))
}

fn read_commands(commands: &Mailbox<Command>) {
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        match from_text(&line) {
            Ok(command) => commands.send(Command::Do(command)),
            Err(error) => {
                // The same program on both sides: this is a bug, and an attempt that is not started
                // must not be believed to run.
                tracing::error!(%error, "a message of the runner cannot be read");
                break;
            }
        }
    }
    commands.send(Command::Leave);
}

fn say(message: &FromAgent) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

struct AgentLoop {
    executor: Executor,
    tasks: Arc<Tasks>,
    poller: Arc<sys::Poller>,
    done: Inbox<Done>,
    reports: Inbox<PreparedTask>,
    commands: Inbox<Command>,
    live: Arc<Live>,
    heard: Instant,
    is_leaving: bool,
    _monitor: Option<NodeMonitor>,
}

impl AgentLoop {
    fn new(
        hello: &Hello,
        context: Arc<AttemptContext>,
        commands: Inbox<Command>,
        live: Arc<Live>,
        monitor: Option<NodeMonitor>,
    ) -> Result<Self, Error> {
        let system = |e| Error::system("set up the watch over processes", e);
        let limits = context.execution.limit_resources;
        let cgroups = if limits { Cgroups::detect(&context.key, 0) } else { None };
        let working_dir = context.working_dir.clone();
        let setup =
            Setup::in_step(&context.key, working_dir, cgroups, hello.is_step).map_err(system)?;
        let tasks = Arc::new(Tasks::default());
        let (done_sender, done) = mailbox(DONE_KEY).map_err(system)?;
        let (report_sender, reports) = mailbox(REPORT_KEY).map_err(system)?;
        let rules = rules(hello.longest_stop, hello.time_left, &hello.registered, |message| {
            tracing::warn!(message);
        });
        let mut supervisor =
            Supervisor::new(setup, rules, tasks.clone(), done_sender).map_err(system)?;
        let poller = supervisor.poller().clone();
        supervisor.spare(Arc::default());
        done.join(&poller).map_err(system)?;
        reports.join(&poller).map_err(system)?;
        commands.join(&poller).map_err(system)?;
        let executor = Executor::new(context, supervisor, tasks.clone(), report_sender);
        let heard = Instant::now();
        Ok(Self {
            executor,
            tasks,
            poller,
            done,
            reports,
            commands,
            live,
            heard,
            is_leaving: false,
            _monitor: monitor,
        })
    }

    fn obey(&mut self, command: Command, now: Instant, facts: &mut Vec<ExecutorEvent>) {
        self.heard = now;
        match command {
            Command::Do(ToAgent::Start(packet, gpus)) => {
                self.executor.start(*packet, gpus, now, facts)
            }
            Command::Do(ToAgent::Stop(attempt, reason)) => {
                self.executor.stop(attempt, &reason, now)
            }
            Command::Do(ToAgent::StopAll(reason)) => self.executor.stop_all(&reason, now),
            Command::Do(ToAgent::KillAll(reason)) => self.executor.kill_all(&reason, now),
            Command::Do(ToAgent::Ping) => self.tell(&FromAgent::Pong, now),
            Command::Leave => self.leave(now),
        }
    }

    fn leave(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.executor.kill_all(&StopReason::OutOfContact, now);
        }
    }

    fn tell(&mut self, message: &FromAgent, now: Instant) {
        if let Err(error) = say(message)
            && !self.is_leaving
        {
            tracing::warn!(%error, "the runner does not hear this agent");
            self.leave(now);
        }
    }
}

impl EventHandler for AgentLoop {
    type Outcome = ();

    fn look(&mut self, ready: &[u64], now: Instant) -> Option<()> {
        let (mut done, mut reports, mut commands, mut facts) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        self.done.take(ready, &mut done);
        self.reports.take(ready, &mut reports);
        self.commands.take(ready, &mut commands);
        for message in done {
            self.executor.on_done(message, now, &mut facts);
        }
        for report in reports {
            self.executor.on_prepared(report, now, &mut facts);
        }
        for key in ready.iter().filter(|key| !matches!(**key, DONE_KEY | REPORT_KEY | COMMAND_KEY))
        {
            self.executor.on_ready(*key, now, &mut facts);
        }
        self.executor.on_time(now, &mut facts);
        for command in commands {
            self.obey(command, now, &mut facts);
        }
        if now.saturating_duration_since(self.heard) >= FENCE {
            tracing::warn!("the runner has been silent for {} s", FENCE.as_secs());
            self.leave(now);
        }
        let steps = self.live.untold();
        if !steps.is_empty() {
            self.tell(&FromAgent::Steps(steps.clone()), now);
            self.live.told(&steps);
        }
        for fact in facts {
            match fact {
                ExecutorEvent::Started(report) => self.tell(&FromAgent::Started(report), now),
                ExecutorEvent::Ended(report) => self.tell(&FromAgent::Ended(report), now),
                // Actions run on the head node.
                ExecutorEvent::ActionEnded(_) => {}
            }
        }
        let is_over = self.is_leaving && self.executor.supervisor().ids().is_empty();
        is_over.then(|| {
            self.executor.supervisor().sweep_now();
            self.tell(&FromAgent::Bye, now);
        })
    }

    fn next_alarm(&self) -> Option<Instant> {
        let fence = (!self.is_leaving).then(|| self.heard + FENCE);
        [self.executor.next_alarm(), fence].into_iter().flatten().min()
    }
}
