//! Puts the parts together: registers, opens the lanes, starts the heartbeat, and lets the threads
//! of the runner work on the one state until the dispatcher says that all is done.

use crate::agent::{Hello, ToAgent};
use crate::agents::{self, Agents};
use crate::attempt::AttemptContext;
use crate::cgroup::Cgroups;
use crate::config::{Config, RunnerNotice, RunnerSummary, Shutdown};
use crate::dispatcher::{Dispatcher, DispatcherSettings, Effect, Event, TimeLimit};
use crate::error::Error;
use crate::executor::{Executor, ExecutorEvent, PreparedTask};
use crate::guard::Guard;
use crate::heartbeat::{self, Rhythm};
use crate::held::HeldList;
use crate::identity::{self, Identity, Presence};
use crate::lanes::{Contact, Exchange, Lanes, Line, Pauses};
use crate::mailbox::{Inbox, Mailbox, mailbox};
use crate::node::{NodeMonitor, NodeWatch};
use crate::pool::{self, Bounds, EventHandler};
use crate::process::Setup;
use crate::resources::Node;
use crate::spool::{self, Spool};
use crate::step_agents::{Shared, StepAgents};
use crate::steps::Live;
use crate::supervisor::{Done, Rules, StopReason, Supervisor};
use crate::sys;
use crate::tasks::Tasks;
use crate::token_files::TokenFiles;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use torc_model::api::{RegisterRunner, RunnerRegistered};
use torc_model::files;
use torc_model::ids::WorkflowId;
use torc_model::plan::{Execution, ExecutionMode};
use torc_model::slurm::logs::{LastWord, why_ended};
use torc_model::status::RunnerKind;
use torc_model::words;

/// Keys of the poller; processes have the numbers from 1 up.
const DONE_KEY: u64 = 0;
const REPORT_KEY: u64 = u64::MAX;
const EVENT_KEY: u64 = u64::MAX - 1;
/// The last word stands in the last lines.
const STOP_LOG_TAIL: u64 = 16 << 10;
/// Slurm signals jobs and runner within milliseconds; on a busy node each may take a while to be
/// heard.
const DOUBT: Duration = Duration::from_secs(2);

/// A runner that has not begun yet.
pub struct Runner {
    config: Config,
}

impl Runner {
    /// A runner as described.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Works until there is nothing left to do or `shutdown` says stop. Must be called on a tokio
    /// runtime.
    pub async fn run(self, shutdown: watch::Receiver<Shutdown>) -> Result<RunnerSummary, Error> {
        let mut config = self.config;
        // First: the output directory is made where it is missing, and it may lie inside this one.
        let working_dir = config
            .working_dir
            .canonicalize()
            .map_err(|e| Error::io("use", &config.working_dir, e))?;
        let output_dir = prepare_output(&config.output_dir)?;
        sys::become_subreaper().map_err(|e| Error::system("adopt orphans", e))?;

        let blocking_dir = output_dir.clone();
        let leftovers =
            tokio::task::spawn_blocking(move || identity::end_leftovers(&blocking_dir)).await;
        // Known to this process and the server only: a process that has it may speak as this
        // runner.
        let secret = random_key().map_err(|e| Error::system("get random numbers", e))?;
        let own = Identity::own();
        let tell = NoticeSender { events: config.events.clone() };
        // The server is told what the runner will have when its agents are there.
        config.capacity.spreads = !config.batch.other_nodes.is_empty();
        torc_failpoint::hit("runner.before_register");
        let registered = register(&config, &secret, &own, &output_dir).await?;
        torc_failpoint::hit("runner.after_register");
        let key = registered.tag.clone();
        // Before there is anything to guard: its program gets ready while we ask for work.
        let guard = start_guard(&config, &key, &tell);
        tell.tell(|| RunnerNotice::Registered {
            runner_id: registered.id,
            run_id: registered.run_id,
            workflow_name: registered.workflow_name.clone(),
        });
        if let Ok(count @ 1..) = leftovers {
            let message =
                format!("ended {} that a dead runner left", words::count(count, "process"));
            tell.tell(|| RunnerNotice::Warning { message });
        }
        let delivered =
            spool::deliver_abandoned(&config.client, &output_dir, config.workflow_id).await;
        if delivered > 0 {
            let message =
                format!("delivered {} of an earlier runner", words::count(delivered, "result"));
            tell.tell(|| RunnerNotice::Warning { message });
        }
        let presence = Presence::announce(&output_dir, &key, &own)
            .map_err(|e| Error::io("write to", &output_dir, e))?;
        torc_failpoint::hit("runner.after_announce");

        let (events, event_inbox) =
            mailbox(EVENT_KEY).map_err(|e| Error::system("make a mailbox", e))?;
        let line = Line {
            client: config.client.clone(),
            workflow_id: config.workflow_id,
            runner_id: registered.id,
            events: events.clone(),
            contact: Arc::new(Contact::new()),
        };
        let held = Arc::new(HeldList::default());
        let rhythm = Rhythm::new(registered.lease_seconds, registered.disown_seconds);
        let live = Arc::new(Live::default());
        let clock = guard.as_ref().map(Guard::clock);
        let pulse = heartbeat::start(&line, held.clone(), live.clone(), rhythm, clock)
            .map_err(|e| Error::system("start a thread", e))?;
        let context = Arc::new(AttemptContext {
            workflow_name: registered.workflow_name.clone(),
            workflow_id: config.workflow_id,
            key: key.clone(),
            output_dir: output_dir.clone(),
            working_dir,
            runner_id: registered.id,
            tokens: TokenFiles::new(&presence.token_dir, registered.job_key.clone()),
            api_url: config.client.url().into(),
            tls_ca: config.client.ca().map(Into::into),
            env: registered.env.clone(),
            execution: registered.execution.clone(),
            checkpoint_exit_code: registered.checkpoint_exit_code,
            time_series: time_series(&registered, &output_dir, &key)?,
            live,
        });
        let node_name = config.batch.scheduler.as_ref().and_then(|s| s.node_name.clone());
        let node = watch_node(config.workflow_id, node_name, &registered, &output_dir, &key)?;
        let rules =
            rules(config.batch.longest_stop, config.limits.time_left, &registered, |message| {
                tell.tell(|| RunnerNotice::Warning { message });
            });
        let (agents, nodes) =
            start_agents(&mut config, &registered, &context, &presence, &events, &tell).await?;
        let dispatcher =
            Dispatcher::new(settings(&config, &registered, nodes, &key), held, Instant::now());
        let spool = Spool::new(&output_dir, &key, registered.id, config.workflow_id, own);
        let guarded = guard.as_ref().map(Guard::pid).unwrap_or_default();
        let lanes = Lanes::open(&line);
        let exchange =
            Arc::new(Exchange::open(&line).map_err(|e| Error::system("open a lane", e))?);
        let processes = ProcessSide::set_up(context, rules, guarded, &event_inbox)?;
        let mut engine = Engine {
            dispatcher,
            processes,
            events: event_inbox,
            lanes,
            exchange: exchange.clone(),
            spool,
            agents,
            tell,
            scratch: Scratch::default(),
        };

        let stop_log = config.batch.stop_log.clone();
        let time_watcher = config.batch.time_left_changes.map(|mut changes| {
            let events = events.clone();
            tokio::spawn(async move {
                while changes.changed().await.is_ok() {
                    let left = *changes.borrow_and_update();
                    events.send(Event::TimeLeft(left));
                }
            })
        });
        let watcher = tokio::spawn(async move {
            let mut shutdown = shutdown;
            loop {
                let level = *shutdown.borrow_and_update();
                if level != Shutdown::Run
                    && let Some(why) = stop_log.as_deref().and_then(why_stopped)
                {
                    events.send(Event::StopReason(why));
                }
                events.send(Event::Shutdown(level));
                // No part is left that could change it.
                if shutdown.changed().await.is_err() {
                    return;
                }
            }
        });
        // As many as can start processes at once, some for file systems that hang, and those who
        // wait for processes.
        let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let attending = cpus.clamp(2, 32);
        let max = Bounds { threads: (2 * cpus).clamp(4, 32) + 1 + attending, attending };
        let (poller, tasks) = (
            engine.processes.executor.supervisor().poller().clone(),
            engine.processes.tasks.clone(),
        );
        let outcome = pool::start(engine, poller, tasks, max)
            .map_err(|e| Error::system("start a thread", e))?
            .await;
        exchange.close();
        watcher.abort();
        if let Some(watcher) = time_watcher {
            watcher.abort();
        }
        drop((pulse, node));
        let (reason, counts, undelivered, unkept) = outcome.map_err(|_| Error::Broken)??;
        // Not after a breakdown: the next runner must find what this one left running.
        presence.withdraw();
        if let Some(guard) = guard {
            guard.dismiss();
        }
        Ok(RunnerSummary {
            runner_id: registered.id,
            reason,
            succeeded: counts.succeeded,
            failed: counts.failed,
            ended: counts.ended,
            undelivered: u64::try_from(undelivered).unwrap_or(u64::MAX),
            unkept: u64::try_from(unkept).unwrap_or(u64::MAX),
        })
    }
}

/// What the batch system said last about the end of what runs here. A log that cannot be read
/// tells nothing.
fn why_stopped(log: &Path) -> Option<LastWord> {
    let mut file = torc_fs::open(log, torc_fs::Trust::Regular).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(STOP_LOG_TAIL))).ok()?;
    let mut tail = Vec::new();
    file.take(STOP_LOG_TAIL).read_to_end(&mut tail).ok()?;
    why_ended(&String::from_utf8_lossy(&tail))
}

fn start_guard(config: &Config, key: &str, tell: &NoticeSender) -> Option<Guard> {
    match Guard::start(config.guard.as_ref()?, key) {
        Ok(guard) => Some(guard),
        Err(error) => {
            let message = format!(
                "no guard could be started ({error}); if this runner is killed, its jobs go on"
            );
            tell.tell(|| RunnerNotice::Warning { message });
            None
        }
    }
}

fn prepare_output(dir: &Path) -> Result<PathBuf, Error> {
    for dir in [dir.join(files::LOGS), dir.join(files::ACTIONS)] {
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("make", &dir, e))?;
    }
    dir.canonicalize().map_err(|e| Error::io("use", dir, e))
}

pub(crate) fn time_series(
    registered: &RunnerRegistered,
    output_dir: &Path,
    key: &str,
) -> Result<Option<PathBuf>, Error> {
    if !registered.resource_monitor.enabled || !registered.resource_monitor.time_series {
        return Ok(None);
    }
    let dir = output_dir.join(files::SAMPLES);
    std::fs::create_dir_all(&dir).map_err(|e| Error::io("make", &dir, e))?;
    Ok(Some(dir.join(format!("samples_{key}.jsonl"))))
}

/// Starts agents on the other nodes of the allocation. Without any, jobs on several nodes still have
/// the allocation, and all others run on this node.
async fn start_agents(
    config: &mut Config,
    registered: &RunnerRegistered,
    context: &Arc<AttemptContext>,
    presence: &Presence,
    events: &Mailbox<Event>,
    tell: &NoticeSender,
) -> Result<(Agents, Vec<Node>), Error> {
    let hello = Hello {
        registered: registered.clone(),
        workflow_id: config.workflow_id,
        key: String::new(),
        output_dir: context.output_dir.clone(),
        working_dir: context.working_dir.clone(),
        token_dir: presence.token_dir.clone(),
        api_url: context.api_url.clone(),
        tls_ca: context.tls_ca.clone(),
        time_left: config.limits.time_left,
        longest_stop: config.batch.longest_stop,
        node_name: String::new(),
        is_step: false,
    };
    let template = Hello { key: context.key.clone(), ..hello.clone() };
    if config.batch.other_nodes.is_empty() {
        let mut agents = Agents::default();
        agents.steps = steps(config, &[], template, events, context);
        return Ok((agents, Vec::new()));
    }
    let (names, program) = (config.batch.other_nodes.clone(), config.batch.agent.clone());
    let (num_cpus, key) = (config.capacity.num_cpus, context.key.clone());
    let (sender, live) = (events.clone(), context.live.clone());
    let started = tokio::task::spawn_blocking(move || {
        let hello = |node: usize, name: &str| Hello {
            key: format!("{key}+{node}"),
            token_dir: hello.token_dir.join(node.to_string()),
            node_name: name.to_owned(),
            ..hello.clone()
        };
        Agents::start(&agents::Start {
            program: &program,
            nodes: &names,
            num_cpus,
            hello: &hello,
            events: &sender,
            live: &live,
        })
    });
    let (mut agents, ready, problems) = started.await.map_err(|_| Error::Broken)?;
    for problem in problems {
        let message = format!("a node is not used: {problem}");
        tell.tell(|| RunnerNotice::Warning { message });
    }
    if ready.is_empty() {
        config.capacity.spreads = false;
        agents.steps = steps(config, &[], template, events, context);
        return Ok((agents, Vec::new()));
    }
    let capacity = &mut config.capacity;
    let own = Node {
        name: config.batch.scheduler.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default(),
        cpus: capacity.num_cpus,
        memory_bytes: capacity.memory_bytes,
        gpus: config.gpus.clone(),
    };
    let memory_bytes = capacity.memory_bytes;
    let others = ready.into_iter().map(|node| Node {
        name: node.name,
        cpus: node.num_cpus,
        memory_bytes,
        gpus: node.gpus,
    });
    let nodes: Vec<Node> = std::iter::once(own).chain(others).collect();
    // The server counts by one size: the smallest, so that what it grants fits on any node.
    let gpus = |node: &Node| i64::try_from(node.gpus.len()).unwrap_or(0);
    capacity.num_cpus = nodes.iter().map(|node| node.cpus).min().unwrap_or(capacity.num_cpus);
    capacity.num_gpus = nodes.iter().map(gpus).min().unwrap_or(capacity.num_gpus);
    capacity.num_nodes = i64::try_from(nodes.len()).unwrap_or(1);
    capacity.spreads = true;
    agents.steps = steps(config, &nodes, template, events, context);
    Ok((agents, nodes))
}

/// Where the workflow wants its jobs in steps of their own, and Slurm can start them.
fn steps(
    config: &Config,
    nodes: &[Node],
    hello: Hello,
    events: &Mailbox<Event>,
    context: &AttemptContext,
) -> Option<StepAgents> {
    if context.execution.mode != ExecutionMode::Slurm || config.batch.agent.is_empty() {
        return None;
    }
    let own = config.batch.scheduler.as_ref().and_then(|scheduler| scheduler.node_name.clone());
    let names = match nodes {
        [] => vec![own?],
        nodes => nodes.iter().map(|node| node.name.clone()).collect(),
    };
    Some(StepAgents::new(Shared {
        program: config.batch.agent.clone(),
        num_cpus: config.capacity.num_cpus,
        nodes: names,
        hello,
        events: events.clone(),
        live: context.live.clone(),
        open: Mutex::default(),
    }))
}

/// Looks at this machine as a whole, if the workflow asks for that.
pub(crate) fn watch_node(
    workflow_id: WorkflowId,
    name: Option<String>,
    registered: &RunnerRegistered,
    output_dir: &Path,
    key: &str,
) -> Result<Option<NodeMonitor>, Error> {
    let monitor = &registered.resource_monitor;
    if !monitor.compute_node {
        return Ok(None);
    }
    let dir = output_dir.join(files::SAMPLES);
    std::fs::create_dir_all(&dir).map_err(|e| Error::io("make", &dir, e))?;
    let interval = Duration::try_from_secs_f64(monitor.sample_interval_seconds)
        .unwrap_or(Duration::from_secs(5))
        .max(Duration::from_millis(200));
    // On a test cluster several nodes share one machine; Slurm's name tells them apart.
    let watch = NodeWatch {
        path: dir.join(format!("nodes_{key}.jsonl")),
        workflow_id,
        host: name.unwrap_or_else(sys::hostname),
        disk: output_dir.to_owned(),
        interval,
    };
    NodeMonitor::start(watch).map(Some).map_err(|e| Error::system("start a thread", e))
}

fn random_key() -> std::io::Result<String> {
    let mut bytes = [0; 12];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn register(
    config: &Config,
    key: &str,
    own: &Identity,
    output: &Path,
) -> Result<RunnerRegistered, Error> {
    let body = RegisterRunner {
        workflow_id: config.workflow_id,
        key: key.into(),
        hostname: own.hostname.clone(),
        boot_id: own.boot_id.clone(),
        pid: i64::from(own.pid),
        pid_start: i64::try_from(own.pid_start).unwrap_or(0),
        capacity: config.capacity.clone(),
        time_left_seconds: config
            .limits
            .time_left
            .map(|left| i64::try_from(left.as_secs()).unwrap_or(i64::MAX)),
        kind: config.kind,
        scheduler: config.batch.scheduler.clone(),
        label: config.label.clone(),
        output_dir: output.display().to_string(),
        force: config.force,
        pool_runner_id: config.pool_runner,
    };
    let deadline = Instant::now() + config.limits.patience;
    let mut pauses = Pauses::new();
    loop {
        match config.client.register_runner(&body).await {
            Err(error) if error.is_temporary() && Instant::now() < deadline => pauses.pause().await,
            other => return other.map_err(Error::Client),
        }
    }
}

/// How processes are ended and watched.
pub(crate) fn rules(
    longest_stop: Option<Duration>,
    time_left: Option<Duration>,
    registered: &RunnerRegistered,
    warn: impl Fn(String),
) -> Rules {
    let execution = &registered.execution;
    let signal = |name: &str| {
        sys::signal_by_name(name).unwrap_or_else(|| {
            warn(format!("unknown signal `{name}`; jobs are ended by SIGTERM"));
            rustix::process::Signal::TERM
        })
    };
    let termination = signal(&execution.termination_signal);
    let seconds = |s: f64| Duration::try_from_secs_f64(s).ok();
    let grace = seconds(execution.grace_seconds).unwrap_or(Duration::from_secs(10));
    let (lead, _) = before_end(execution, time_left);
    let monitor = &registered.resource_monitor;
    let interval =
        seconds(monitor.sample_interval_seconds).map(|i| i.max(Duration::from_millis(200)));
    Rules {
        grace,
        stop_grace: longest_stop.map_or(grace, |longest| longest.min(grace)),
        termination,
        time_up: (execution.walltime_signal.as_deref().map_or(termination, signal), lead),
        sample_interval: interval.filter(|_| monitor.enabled),
    }
}

/// Before the end of an allocation: from the signal to SIGKILL, and from there to the end. At most
/// half of the time there is, so that a short allocation can do something.
fn before_end(execution: &Execution, left: Option<Duration>) -> (Duration, Duration) {
    let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX);
    let lead = execution.walltime_lead_seconds.unwrap_or(execution.grace_seconds);
    let (lead, headroom) = (seconds(lead), seconds(execution.walltime_headroom_seconds));
    let most = left.map_or(Duration::MAX, |left| left / 2);
    let headroom = headroom.min(most / 2);
    (lead.min(most - headroom), headroom)
}

fn settings(
    config: &Config,
    registered: &RunnerRegistered,
    nodes: Vec<Node>,
    key: &str,
) -> DispatcherSettings {
    // Slurm kills what is left when its time is up; a limit that a user gave on a terminal is
    // when to begin to end.
    let (margin, reason) = match config.kind {
        RunnerKind::Slurm => {
            let (lead, headroom) = before_end(&registered.execution, config.limits.time_left);
            (lead + headroom, StopReason::RunnerTimeUp)
        }
        RunnerKind::Local | RunnerKind::Recovery => (Duration::ZERO, StopReason::Stopped),
    };
    let idle =
        u64::try_from(registered.idle_seconds).ok().filter(|s| *s > 0).map(Duration::from_secs);
    DispatcherSettings {
        runner_id: registered.id,
        key: key.into(),
        capacity: config.capacity.clone(),
        gpus: config.gpus.clone(),
        nodes,
        prefetch: config.prefetch,
        leave_when_stuck: config.kind == RunnerKind::Local,
        idle_limit: config.limits.max_idle.or(idle.filter(|_| config.kind != RunnerKind::Local)),
        ignore_completion: registered.ignore_completion,
        strict_scheduler_match: config.batch.strict_scheduler_match,
        time_limit: TimeLimit::new(config.limits.time_left, margin, reason, Instant::now()),
        wait_for_server: Duration::from_secs(
            u64::try_from(registered.wait_for_server_seconds).unwrap_or(0),
        ),
        doubt: (config.kind == RunnerKind::Slurm).then_some(DOUBT),
        wall_clock: crate::time::now_ms,
    }
}

/// Tells the observer, if there is one.
#[derive(Clone)]
struct NoticeSender {
    events: Option<UnboundedSender<RunnerNotice>>,
}

impl NoticeSender {
    fn tell(&self, event: impl FnOnce() -> RunnerNotice) {
        if let Some(events) = &self.events {
            // A watcher that has gone wants to hear no more.
            let _ = events.send(event());
        }
    }
}

/// What there is to tell in the end: why it left, what it did, and how many results were not
/// delivered and not even kept.
type Outcome = (crate::config::LeaveReason, crate::dispatcher::EndCounts, usize, usize);

/// The side of a runner that starts and watches processes, and the threads that may block for it.
struct ProcessSide {
    executor: Executor,
    tasks: Arc<Tasks>,
    done: Inbox<Done>,
    reports: Inbox<PreparedTask>,
}

impl ProcessSide {
    /// Nothing runs yet. Ends of processes, answers of tasks and `events` show at one poller.
    fn set_up(
        context: Arc<AttemptContext>,
        rules: Rules,
        guard: Arc<AtomicI32>,
        events: &Inbox<Event>,
    ) -> Result<Self, Error> {
        let system = |e| Error::system("set up the watch over processes", e);
        let key = &context.key;
        let cgroups = if context.execution.limit_resources {
            Cgroups::detect(key, guard.load(Ordering::SeqCst))
        } else {
            None
        };
        let setup = Setup::new(key, context.working_dir.clone(), cgroups).map_err(system)?;
        let tasks = Arc::new(Tasks::default());
        let (done_sender, done) = mailbox(DONE_KEY).map_err(system)?;
        let (report_sender, reports) = mailbox(REPORT_KEY).map_err(system)?;
        let mut supervisor =
            Supervisor::new(setup, rules, tasks.clone(), done_sender).map_err(system)?;
        supervisor.spare(guard);
        let poller = supervisor.poller();
        done.join(poller).map_err(system)?;
        reports.join(poller).map_err(system)?;
        events.join(poller).map_err(system)?;
        let executor = Executor::new(context, supervisor, tasks.clone(), report_sender);
        Ok(Self { executor, tasks, done, reports })
    }
}

/// The state of a runner, and its ways to do something.
struct Engine {
    dispatcher: Dispatcher,
    processes: ProcessSide,
    events: Inbox<Event>,
    lanes: Lanes,
    exchange: Arc<Exchange>,
    spool: Spool,
    agents: Agents,
    tell: NoticeSender,
    scratch: Scratch,
}

/// Kept for their memory only: empty between two looks.
#[derive(Default)]
struct Scratch {
    done: Vec<Done>,
    reports: Vec<PreparedTask>,
    events: Vec<Event>,
    facts: Vec<ExecutorEvent>,
    effects: Vec<Effect>,
}

impl Engine {
    /// Lets the dispatcher decide and does what it says, until nothing follows. Answers whether all
    /// is done.
    fn settle(
        &mut self,
        now: Instant,
        facts: &mut Vec<ExecutorEvent>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        loop {
            for fact in facts.drain(..) {
                let event = match fact {
                    ExecutorEvent::Started(report) => Event::Started(report),
                    ExecutorEvent::Ended(report) => Event::Ended(report),
                    ExecutorEvent::ActionEnded(result) => Event::ActionEnded(result),
                };
                self.dispatcher.handle_event(event, now, effects);
            }
            self.dispatcher.settle(now, effects);
            for effect in effects.drain(..) {
                if matches!(effect, Effect::Exit) {
                    return true;
                }
                self.apply(effect, now, facts);
            }
            // Some things end the moment they begin.
            if facts.is_empty() {
                return false;
            }
        }
    }

    fn apply(&mut self, effect: Effect, now: Instant, facts: &mut Vec<ExecutorEvent>) {
        match effect {
            Effect::Exchange(request) => {
                let exchange = self.exchange.clone();
                self.processes.tasks.push(move || exchange.send(&request));
            }
            Effect::Listen(request) => self.lanes.listen(request),
            // A job on several nodes starts steps of its own.
            Effect::Start(packet, gpus, node)
                if packet.num_nodes <= 1 && self.agents.steps.is_some() =>
            {
                if let Some(steps) = &self.agents.steps {
                    steps.start(packet, gpus, node);
                }
            }
            Effect::Start(packet, gpus, 0) => {
                self.processes.executor.start(*packet, gpus, now, facts)
            }
            Effect::Start(packet, gpus, node) => {
                self.agents.tell(node, ToAgent::Start(packet, gpus))
            }
            // Each ends what it has; an attempt is nothing to the others.
            Effect::Stop(attempt, reason) => {
                self.processes.executor.stop(attempt, &reason, now);
                self.agents.tell_all(|| ToAgent::Stop(attempt, reason.clone()));
            }
            Effect::StopAll(reason) => {
                self.processes.executor.stop_all(&reason, now);
                self.agents.tell_all(|| ToAgent::StopAll(reason.clone()));
            }
            Effect::KillAll(reason) => {
                self.processes.executor.kill_all(&reason, now);
                self.agents.tell_all(|| ToAgent::KillAll(reason.clone()));
            }
            Effect::RunAction(packet) => self.processes.executor.start_action(packet, now, facts),
            Effect::ReportAction(result) => self.lanes.report_action(result),
            Effect::Spool(reports) => {
                if let Err(error) = self.spool.append(&reports) {
                    let message = match error.kind() {
                        std::io::ErrorKind::StorageFull => {
                            "the disk of the logs is full: results are kept in memory until there is room".to_owned()
                        }
                        _ => format!(
                            "results could not be kept on disk while the server is away: {error}"
                        ),
                    };
                    self.tell.tell(|| RunnerNotice::Warning { message });
                }
            }
            Effect::ClearSpool => {
                if let Err(error) = self.spool.clear() {
                    tracing::warn!(%error, "cannot remove delivered results");
                }
            }
            Effect::Goodbye(goodbye) => self.lanes.goodbye(goodbye),
            Effect::Tell(event) => self.tell.tell(|| event),
            // Handled by the caller.
            Effect::Exit => {}
        }
    }
}

impl EventHandler for Engine {
    type Outcome = Outcome;

    fn look(&mut self, ready: &[u64], now: Instant) -> Option<Outcome> {
        let Scratch { mut done, mut reports, mut events, mut facts, mut effects } =
            std::mem::take(&mut self.scratch);
        self.processes.done.take(ready, &mut done);
        self.processes.reports.take(ready, &mut reports);
        self.events.take(ready, &mut events);
        for message in done.drain(..) {
            self.processes.executor.on_done(message, now, &mut facts);
        }
        for report in reports.drain(..) {
            self.processes.executor.on_prepared(report, now, &mut facts);
        }
        for key in ready.iter().filter(|key| !matches!(**key, DONE_KEY | REPORT_KEY | EVENT_KEY)) {
            self.processes.executor.on_ready(*key, now, &mut facts);
        }
        self.processes.executor.on_time(now, &mut facts);
        for event in events.drain(..) {
            self.dispatcher.handle_event(event, now, &mut effects);
        }
        let is_done = self.settle(now, &mut facts, &mut effects);
        self.scratch = Scratch { done, reports, events, facts, effects };
        is_done.then(|| {
            self.exchange.close();
            self.processes.executor.supervisor().sweep_now();
            // Perhaps there is room now.
            let unkept = self.spool.append(&[]).map_or_else(|_| self.spool.unkept(), |()| 0);
            if let Err(error) = self.spool.leave() {
                tracing::warn!(%error, "cannot say that the owner of kept results has left");
            }
            (
                self.dispatcher.reason(),
                self.dispatcher.counts,
                self.dispatcher.undelivered(),
                unkept,
            )
        })
    }

    fn next_alarm(&self) -> Option<Instant> {
        [self.processes.executor.next_alarm(), self.dispatcher.next_alarm()]
            .into_iter()
            .flatten()
            .min()
    }
}
