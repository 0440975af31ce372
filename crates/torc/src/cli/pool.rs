//! `torc runner --any`: stays, and serves every workflow that its token may see.
//!
//! It holds no job. The server says which workflow to serve next; for each this process starts a runner
//! of its own, which takes jobs, executes and reports them as any other and leaves when there is nothing
//! more for it. A runner that breaks down takes no other workflow's jobs with it.

use super::interrupt::Interrupts;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, drive};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use std::collections::{HashMap, HashSet};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;
use torc_client::Client;
use torc_model::api::{
    ErrorCode, Goodbye, PoolClaimRequest, PoolClaimResponse, PoolReads, PoolReadsRequest,
    RegisterPoolRunner,
};
use torc_model::ids::{PoolRunnerId, WorkflowId};
use torc_model::units::Runtime;
use torc_model::words;

/// A request waits this long at the server before the next one.
const WAIT_SECONDS: f64 = 30.0;
/// A runner without work leaves its workflow after this long; the server names the workflow again when
/// there is more.
const IDLE_SECONDS: u64 = 5;
/// Pauses before a request is repeated that a server did not answer.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What it is told.
pub struct PoolProcess<'a> {
    /// Where words go, and how the server is found.
    pub context: &'a Context,
    /// What the runners may use together.
    pub options: &'a RunnerOptions,
    /// Leave after this long without work.
    pub max_idle: Option<Runtime>,
}

/// Serves until it is told to stop.
pub async fn run(pool: PoolProcess<'_>) -> Result<Exit> {
    pool.options.check()?;
    let session =
        Session::open_for(&pool.context.locator, Access::Existing, Purpose::Run { port: 0 })
            .await?;
    let result = serve(&session.client, &pool).await;
    session.close().await;
    result
}

/// Why a pool runner leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    Stopped,
    TimeUp,
    Idle,
    Removed,
}

impl Leaving {
    fn text(self) -> &'static str {
        match self {
            Self::Stopped => "it was told to stop",
            Self::TimeUp => "its time is over",
            Self::Idle => "there was no work for too long",
            Self::Removed => "it was removed",
        }
    }
}

/// The runners of this process, by workflow.
#[derive(Default)]
struct PoolRunners {
    ends: JoinSet<(WorkflowId, std::io::Result<ExitStatus>)>,
    pids: HashMap<WorkflowId, i32>,
    /// To be started when the last one of the same workflow has ended.
    wanted: HashSet<WorkflowId>,
    /// Workflows that could not be served; the server does not know it yet.
    unable: Vec<WorkflowId>,
}

async fn serve(client: &Client, pool: &PoolProcess<'_>) -> Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let introduction = introduction(pool.options)?;
    let mut id = register(client, &introduction).await?;
    let output = pool.context.output;
    output.talk(format_args!(
        "pool runner {id} serves every workflow that its token may see; Ctrl-C stops it"
    ));
    // It asks by itself, also while this process does something else.
    let mut reader = tokio::spawn(read_logs(client.clone(), id));
    let end = pool.options.time_limit.map(|limit| Instant::now() + Duration::from_secs(limit.0));
    let mut runners = PoolRunners::default();
    let mut idle_since = Instant::now();
    let mut pause = Duration::ZERO;
    // Not dropped while other things happen: an answer that was on its way would be lost.
    let mut asking = Box::pin(ask(client.clone(), id, Vec::new(), pause));
    let reason = loop {
        let max_idle = pool.max_idle.filter(|_| runners.pids.is_empty());
        let idle_until = max_idle.map(|limit| idle_since + Duration::from_secs(limit.0));
        tokio::select! {
            // An end that is known already comes before a new beginning of the same workflow.
            biased;
            () = interrupts.next() => break Leaving::Stopped,
            () = drive::due(end) => break Leaving::TimeUp,
            Some(ended) = runners.ends.join_next() => {
                idle_since = Instant::now();
                runners.on_end(pool, id, end, ended.ok());
                if !runners.unable.is_empty() {
                    let unable = std::mem::take(&mut runners.unable);
                    asking.set(ask(client.clone(), id, unable, Duration::ZERO));
                }
            }
            answer = &mut asking => {
                pause = match answer {
                    Ok(PoolClaimResponse { leave: true, .. }) => break Leaving::Removed,
                    Ok(PoolClaimResponse { workflow_id, .. }) => {
                        workflow_id.inspect(|workflow| runners.serve(pool, id, end, *workflow));
                        Duration::ZERO
                    }
                    Err(error) if error.code() == Some(ErrorCode::RunnerEnded) => {
                        id = register(client, &introduction).await?;
                        reader.abort();
                        reader = tokio::spawn(read_logs(client.clone(), id));
                        Duration::ZERO
                    }
                    // The runners have their own way to wait for the server.
                    Err(error) if error.is_temporary() => (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
                    Err(error) => {
                        runners.stop(pool.context, &mut interrupts).await;
                        return Err(error.into());
                    }
                };
                let unable = std::mem::take(&mut runners.unable);
                asking.set(ask(client.clone(), id, unable, pause));
            }
            () = drive::due(idle_until) => break Leaving::Idle,
        }
    };
    drop(asking);
    reader.abort();
    output.talk(format_args!("the pool runner leaves: {}", reason.text()));
    match reason {
        Leaving::Removed => runners.finish(pool.context, &mut interrupts).await,
        Leaving::Stopped | Leaving::TimeUp | Leaving::Idle => {
            runners.stop(pool.context, &mut interrupts).await;
        }
    }
    let goodbye = Goodbye { reason: reason.text().into(), cause: None };
    if let Err(error) = client.pool_goodbye(id, &goodbye).await {
        output.warn(format_args!("the server could not be told: {error}"));
    }
    Ok(interrupts.exit(Exit::Success))
}

async fn register(client: &Client, introduction: &RegisterPoolRunner) -> Result<PoolRunnerId> {
    let register = async || Ok(client.register_pool_runner(introduction).await?);
    Ok(drive::patiently(register).await?.id)
}

/// Asks which workflow to serve next, after a pause.
async fn ask(
    client: Client,
    id: PoolRunnerId,
    unable: Vec<WorkflowId>,
    pause: Duration,
) -> std::result::Result<PoolClaimResponse, torc_client::Error> {
    tokio::time::sleep(pause).await;
    let request = PoolClaimRequest { wait_seconds: WAIT_SECONDS, unable };
    client.claim_for_pool(id, &request).await
}

/// Reads outputs of jobs on this machine for the server, which may be on another one.
async fn read_logs(client: Client, id: PoolRunnerId) {
    let mut request = PoolReadsRequest { wait_seconds: WAIT_SECONDS, pieces: Vec::new() };
    let mut pause = FIRST_PAUSE;
    loop {
        match client.pool_reads(id, &request).await {
            Ok(PoolReads { items }) => {
                pause = FIRST_PAUSE;
                let read = move || items.iter().map(torc_server::api::read_log).collect();
                request.pieces = tokio::task::spawn_blocking(read).await.unwrap_or_default();
            }
            Err(error) if error.is_temporary() => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            // The other request of this process says the same, and acts on it.
            Err(_) => return,
        }
    }
}

fn introduction(options: &RunnerOptions) -> Result<RegisterPoolRunner> {
    let key = torc_server::secret::new_token()
        .map_err(|error| Error::io("get", "random numbers")(error.into()))?;
    Ok(RegisterPoolRunner {
        key,
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: i64::from(std::process::id()),
        capacity: options.capacity(torc_runner::detect_capacity().0),
        label: options.joined_labels(),
    })
}

/// Starts a runner for one workflow, in a process group of its own: Ctrl-C is for this process, which
/// tells its runners.
fn start(
    pool: &PoolProcess<'_>,
    id: PoolRunnerId,
    workflow: WorkflowId,
    end: Option<Instant>,
) -> std::io::Result<Child> {
    let output = pool.context.output;
    let mut options = pool.options.clone();
    options.time_limit =
        end.map(|end| Runtime(end.saturating_duration_since(Instant::now()).as_secs().max(1)));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(pool.context.locator.to_args());
    if output.verbose == 0 {
        command.arg("--quiet");
    }
    command
        .arg("runner")
        .arg(workflow.to_string())
        .args(options.to_args())
        .arg(format!("--pool-runner={id}"))
        .arg(format!("--max-idle={IDLE_SECONDS}s"))
        .stdin(Stdio::null())
        .process_group(0);
    output.talk(format_args!("serving workflow {workflow}"));
    command.spawn()
}

/// Says how a runner ended; whether it could serve its workflow.
fn tell_end(context: &Context, workflow: WorkflowId, status: std::io::Result<ExitStatus>) -> bool {
    let code = match &status {
        Ok(status) => status.code(),
        Err(_) => None,
    };
    // Some of the workflow's jobs may have failed: that is no matter of the pool.
    if matches!(code, Some(0 | 1 | 130)) {
        return true;
    }
    let how = match (code, status) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Ok(status)) => format!("by {status}"),
        (None, Err(error)) => error.to_string(),
    };
    context.output.warn(format_args!("the runner of workflow {workflow} ended {how}"));
    false
}

impl PoolRunners {
    /// Starts a runner for a workflow, or has one started when its last one is gone.
    fn serve(
        &mut self,
        pool: &PoolProcess<'_>,
        id: PoolRunnerId,
        end: Option<Instant>,
        workflow: WorkflowId,
    ) {
        if self.pids.contains_key(&workflow) {
            self.wanted.insert(workflow);
            return;
        }
        match start(pool, id, workflow, end) {
            Ok(child) => self.watch(workflow, child),
            Err(error) => {
                pool.context.output.warn(format_args!(
                    "no runner for workflow {workflow} could be started: {error}"
                ));
                self.unable.push(workflow);
            }
        }
    }

    fn on_end(
        &mut self,
        pool: &PoolProcess<'_>,
        id: PoolRunnerId,
        end: Option<Instant>,
        ended: Option<(WorkflowId, std::io::Result<ExitStatus>)>,
    ) {
        let Some((workflow, status)) = ended else { return };
        self.pids.remove(&workflow);
        let is_wanted = self.wanted.remove(&workflow);
        match tell_end(pool.context, workflow, status) {
            true if is_wanted => self.serve(pool, id, end, workflow),
            true => {}
            false => self.unable.push(workflow),
        }
    }

    fn watch(&mut self, workflow: WorkflowId, mut child: Child) {
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            self.pids.insert(workflow, pid);
        }
        self.ends.spawn(async move { (workflow, child.wait().await) });
    }

    /// Tells all runners to stop and waits for them; each further signal is passed on, so that the
    /// second one hurries them, as with one runner.
    async fn stop(&mut self, context: &Context, interrupts: &mut Interrupts) {
        self.signal();
        self.finish(context, interrupts).await;
    }

    async fn finish(&mut self, context: &Context, interrupts: &mut Interrupts) {
        if !self.pids.is_empty() {
            let runners = words::count(self.pids.len(), "runner");
            context.output.talk(format_args!("waiting for {runners} to leave"));
        }
        loop {
            tokio::select! {
                ended = self.ends.join_next() => match ended {
                    Some(Ok((workflow, _))) => _ = self.pids.remove(&workflow),
                    Some(Err(_)) => {}
                    None => return,
                },
                () = interrupts.next() => self.signal(),
            }
        }
    }

    fn signal(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        for pid in self.pids.values().filter_map(|pid| Pid::from_raw(*pid)) {
            // One that has just ended is no fault; its pid is ours until it is waited for.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}
