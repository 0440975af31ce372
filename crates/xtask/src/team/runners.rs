//! Pool runners that start no processes but speak to the server as real ones do: a request of the pool
//! runner that waits for a workflow, one that waits for outputs to read, and per workflow a runner with a
//! claim that waits while its job runs, reports of starts and ends, and a heartbeat.

use super::Team;
use crate::Result;
use crate::bench::simulated::{end, start};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use torc_client::Client;
use torc_model::api::{
    AttemptPacket, AttemptRef, Capacity, ClaimRequest, ClaimResponse, CompletionReport, ErrorCode,
    Goodbye, Heartbeat, PoolClaimRequest, PoolReadsRequest, RegisterPoolRunner, RegisterRunner,
    ReportVerdict, StartReport,
};
use torc_model::ids::{PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::RunnerKind;

/// As long as real ones wait.
const WAIT_SECONDS: f64 = 30.0;
/// A runner without work leaves its workflow after this long, as real ones do.
const IDLE: Duration = Duration::from_secs(5);
/// That a job runs is told this late, as real ones do.
const START_DELAY: Duration = Duration::from_millis(20);
/// What a claim asks for at most.
const CLAIM_LIMIT: i64 = 256;
/// A process that was told to serve a workflow needs so long until it speaks.
const PROCESS_START: Duration = Duration::from_millis(20);

/// A pool runner with one CPU.
pub struct PoolRunner {
    /// Connections of its own.
    pub client: Client,
    /// What all share.
    pub team: Arc<Team>,
}

fn capacity() -> Capacity {
    Capacity { num_cpus: 1, memory_bytes: 1 << 40, num_nodes: 1, ..Capacity::default() }
}

impl PoolRunner {
    /// Asks which workflow to serve until it is over; each is served by a task of its own.
    pub async fn serve(self, nth: usize) {
        let introduction = RegisterPoolRunner {
            key: format!("team-{}-{nth}", std::process::id()),
            hostname: format!("host{}", nth / 10),
            pid: i64::try_from(nth).unwrap_or(0) + 1,
            capacity: capacity(),
            label: None,
        };
        // Machines of a pool are not switched on all at once.
        self.team.sleep(Duration::from_millis(fastrand::u64(0..5000))).await;
        self.team.sent();
        let id = match self.client.register_pool_runner(&introduction).await {
            Ok(known) => known.id,
            Err(error) => return self.team.fault(format!("register: {error}")),
        };
        let mut over = self.team.over.clone();
        let mut runners = tokio::task::JoinSet::new();
        let reader = tokio::spawn(read(self.client.clone(), self.team.clone(), id));
        loop {
            let request = PoolClaimRequest { wait_seconds: WAIT_SECONDS, unable: Vec::new() };
            self.team.sent();
            let answer = tokio::select! {
                answer = self.client.claim_for_pool(id, &request) => answer,
                () = is_over(&mut over) => break,
            };
            match answer.map(|answer| answer.workflow_id) {
                Ok(Some(workflow)) => {
                    let (client, team) = (self.client.clone(), self.team.clone());
                    let hostname = introduction.hostname.clone();
                    runners.spawn(serve(client, team, id, hostname, workflow));
                }
                Ok(None) => {}
                Err(error) => {
                    self.team.fault(format!("pool claim: {error}"));
                    self.team.sleep(Duration::from_secs(1)).await;
                }
            }
        }
        reader.abort();
        while runners.join_next().await.is_some() {}
    }
}

async fn is_over(over: &mut watch::Receiver<bool>) {
    // The sender lives until all tasks have ended.
    let _ = over.wait_for(|over| *over).await;
}

/// Waits for outputs to read; there are none.
async fn read(client: Client, team: Arc<Team>, id: PoolRunnerId) {
    let request = PoolReadsRequest { wait_seconds: WAIT_SECONDS, pieces: Vec::new() };
    loop {
        team.sent();
        if let Err(error) = client.pool_reads(id, &request).await {
            team.fault(format!("reads: {error}"));
            team.sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Serves a workflow until there was nothing for a while.
async fn serve(
    client: Client,
    team: Arc<Team>,
    pool: PoolRunnerId,
    hostname: String,
    workflow: WorkflowId,
) {
    team.sleep(PROCESS_START).await;
    let done = async {
        let mut runner = Runner::register(client, team.clone(), pool, hostname, workflow).await?;
        runner.work().await?;
        runner.leave().await
    };
    if let Err(error) = done.await {
        team.fault(format!("runner of workflow {workflow}: {error}"));
    }
}

type Listening =
    Pin<Box<dyn Future<Output = std::result::Result<ClaimResponse, torc_client::Error>> + Send>>;

/// A job that is held.
struct HeldJob {
    packet: AttemptPacket,
    begun: Instant,
    /// When it ends.
    until: Instant,
    is_told: bool,
}

/// A runner of a pool runner, for one workflow.
struct Runner {
    client: Client,
    team: Arc<Team>,
    workflow: WorkflowId,
    user: usize,
    id: RunnerId,
    key: String,
    claims: u64,
    held: Vec<HeldJob>,
}

impl Runner {
    async fn register(
        client: Client,
        team: Arc<Team>,
        pool: PoolRunnerId,
        hostname: String,
        workflow: WorkflowId,
    ) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = format!("team-{}-r{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let registration = RegisterRunner {
            workflow_id: workflow,
            key: key.clone(),
            hostname,
            boot_id: "simulated".into(),
            pid: 1,
            pid_start: 1,
            capacity: capacity(),
            time_left_seconds: None,
            kind: RunnerKind::Local,
            scheduler: None,
            label: None,
            output_dir: "/tmp".into(),
            force: true,
            pool_runner_id: Some(pool),
        };
        team.sent();
        team.registered.fetch_add(1, Ordering::Relaxed);
        let id = client.register_runner(&registration).await?.id;
        let user = team.owner_of[&workflow];
        Ok(Self { client, team, workflow, user, id, key, claims: 0, held: Vec::new() })
    }

    fn claim(&mut self, limit: i64, wait_seconds: f64) -> ClaimRequest {
        self.claims += 1;
        ClaimRequest {
            runner_id: self.id,
            key: format!("{}-{}", self.key, self.claims),
            limit,
            capacity: capacity(),
            time_left_seconds: None,
            prefetch: 0,
            wait_seconds,
            started: Vec::new(),
            completed: Vec::new(),
            strict_scheduler_match: false,
            is_alone: None,
        }
    }

    /// A claim that waits at the server, also while a job runs.
    fn listen(&mut self) -> Listening {
        let request = self.claim(CLAIM_LIMIT, WAIT_SECONDS);
        let (client, workflow) = (self.client.clone(), self.workflow);
        self.team.sent();
        Box::pin(async move { client.claim(workflow, &request).await })
    }

    /// Takes jobs, lets their time pass and reports them.
    async fn work(&mut self) -> Result<()> {
        let lease = tokio::time::Duration::from_secs(20);
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + lease, lease);
        let mut over = self.team.over.clone();
        let mut listening = self.listen();
        let mut idle_since = Instant::now();
        loop {
            let now = Instant::now();
            let next = self.held.iter().map(|held| match held.is_told {
                true => held.until,
                false => held.until.min(held.begun + START_DELAY),
            });
            let next = next.min().unwrap_or(idle_since + IDLE);
            tokio::select! {
                answer = &mut listening => {
                    self.take(answer?);
                    listening = self.listen();
                }
                _ = beat.tick() => self.beat().await?,
                () = is_over(&mut over) => break,
                () = tokio::time::sleep_until(next.max(now).into()) => {
                    if self.held.is_empty() {
                        break;
                    }
                    self.exchange(CLAIM_LIMIT).await?;
                    idle_since = Instant::now();
                }
            }
        }
        drop(listening);
        self.held.iter_mut().for_each(|held| held.until = Instant::now());
        self.exchange(0).await
    }

    fn take(&mut self, answer: ClaimResponse) {
        let user = &self.team.users[self.user];
        for packet in answer.attempts {
            let seconds = user.job_seconds * (0.5 + fastrand::f64());
            let begun = Instant::now();
            let until = begun + Duration::from_secs_f64(seconds);
            self.held.push(HeldJob { packet, begun, until, is_told: false });
        }
    }

    /// Reports what has begun and what has ended, and takes what there is.
    async fn exchange(&mut self, limit: i64) -> Result<()> {
        let now = Instant::now();
        let mut started: Vec<StartReport> = Vec::new();
        let mut completed: Vec<CompletionReport> = Vec::new();
        let (team, user) = (self.team.clone(), &self.team.users[self.user]);
        self.held.retain_mut(|held| {
            if !std::mem::replace(&mut held.is_told, true) {
                started.push(start(&held.packet));
            }
            if held.until > now {
                return true;
            }
            let ran = now.saturating_duration_since(held.begun.max(team.counted_from));
            user.used_ms.fetch_add(ran.as_millis() as u64, Ordering::Relaxed);
            completed.push(end(&held.packet));
            false
        });
        let request = ClaimRequest { started, completed, ..self.claim(limit, 0.0) };
        self.team.sent();
        let answer = self.client.claim(self.workflow, &request).await?;
        for (end, report) in answer.completed.iter().zip(&request.completed) {
            match end.result {
                ReportVerdict::Accepted => {
                    self.team.users[self.user].acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                other => self.team.fault(format!("end of {}: {other:?}", report.attempt.id)),
            }
        }
        self.take(answer);
        Ok(())
    }

    async fn beat(&self) -> Result<()> {
        let held = self
            .held
            .iter()
            .map(|held| AttemptRef { id: held.packet.id, token: held.packet.token.clone() });
        let beat = Heartbeat {
            runner_id: self.id,
            held: held.collect(),
            gone: Vec::new(),
            step_events: Vec::new(),
        };
        self.team.sent();
        let answer = self.client.heartbeat(&beat).await?;
        if !answer.not_yours.is_empty() {
            self.team.fault(format!("attempts that are no longer held: {:?}", answer.not_yours));
        }
        Ok(())
    }

    async fn leave(&self) -> Result<()> {
        self.team.sent();
        let goodbye = Goodbye { reason: "nothing more to do".into(), cause: None };
        match self.client.goodbye(self.id, &goodbye).await {
            Err(error) if error.code() != Some(ErrorCode::RunnerEnded) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
