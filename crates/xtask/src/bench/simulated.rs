//! Runners that start no processes: they claim, report and claim again, each on a connection of its
//! own.

use crate::Result;
use std::time::{Duration, Instant};
use torc_client::Client;
use torc_model::api::{
    AttemptPacket, AttemptRef, Capacity, ClaimRequest, ClaimResponse, CompletionReport,
    RegisterRunner, StartReport,
};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::status::RunnerKind;

/// What all of them did.
pub struct Driven {
    /// Jobs that ended.
    pub ended: usize,
    /// Until the last of them saw the end.
    pub wall: Duration,
    /// How long answers took, in ms.
    pub answers: Vec<f64>,
}

/// Runs a whole workflow with many runners of so many jobs each.
pub fn drive(
    runtime: &tokio::runtime::Runtime,
    client: &Client,
    workflow: WorkflowId,
    runners: usize,
    slots: i64,
) -> Result<Driven> {
    runtime.block_on(async {
        let mut all = Vec::new();
        for _ in 0..runners {
            all.push(SimulatedRow::register(&client.detached(), workflow, slots).await?);
        }
        let begun = Instant::now();
        let tasks: Vec<_> = all.into_iter().map(|runner| tokio::spawn(runner.work())).collect();
        let mut driven = Driven { ended: 0, wall: Duration::ZERO, answers: Vec::new() };
        for task in tasks {
            let (ended, answers) = task.await??;
            driven.ended += ended;
            driven.answers.extend(answers);
        }
        driven.wall = begun.elapsed();
        Ok(driven)
    })
}

/// Claims and starts so many jobs and lets them run; answers how many it got.
pub async fn hold(client: &Client, workflow: WorkflowId, jobs: usize) -> Result<usize> {
    let mut runner = SimulatedRow::register(client, workflow, i64::try_from(jobs)?).await?;
    let mut held = 0;
    while held < jobs {
        let answer = runner.claim(Vec::new(), Vec::new(), 5.0).await?;
        let started: Vec<StartReport> = answer.attempts.iter().map(start).collect();
        if started.is_empty() {
            return Err(format!(
                "only {held} of {jobs} jobs could be claimed: {:?}",
                answer.reason
            )
            .into());
        }
        held += started.len();
        runner.limit = i64::try_from(jobs - held)?;
        runner.claim(started, Vec::new(), 0.0).await?;
    }
    Ok(held)
}

/// Runs so many jobs.
pub async fn finish(client: &Client, workflow: WorkflowId, jobs: usize) -> Result<()> {
    let mut runner = SimulatedRow::register(client, workflow, 500).await?;
    let mut left = jobs;
    let mut answer = runner.claim(Vec::new(), Vec::new(), 5.0).await?;
    while left > 0 {
        let started: Vec<StartReport> = answer.attempts.iter().map(start).collect();
        let completed: Vec<CompletionReport> = answer.attempts.iter().map(end).collect();
        if completed.is_empty() {
            return Err(format!("{left} jobs were left: {:?}", answer.reason).into());
        }
        left = left.saturating_sub(completed.len());
        runner.limit = i64::try_from(left.min(500))?;
        answer = runner.claim(started, completed, 0.0).await?;
    }
    Ok(())
}

struct SimulatedRow {
    client: Client,
    workflow: WorkflowId,
    id: RunnerId,
    capacity: Capacity,
    limit: i64,
    claims: u64,
}

impl SimulatedRow {
    async fn register(client: &Client, workflow: WorkflowId, slots: i64) -> Result<Self> {
        let memory_bytes = slots << 40;
        let capacity = Capacity {
            num_cpus: slots,
            memory_bytes,
            num_gpus: 0,
            num_nodes: 1,
            max_parallel_jobs: None,
            ignore_resources: false,
            spreads: false,
        };
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let stat = text("/proc/self/stat");
        let start = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_ascii_whitespace().nth(19)?.parse().ok());
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let nth = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let request = RegisterRunner {
            workflow_id: workflow,
            key: format!("simulated-{}-{nth}", std::process::id()),
            hostname: text("/proc/sys/kernel/hostname"),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            pid: i64::from(std::process::id()),
            pid_start: start.unwrap_or(0),
            capacity: capacity.clone(),
            time_left_seconds: None,
            kind: RunnerKind::Local,
            scheduler: None,
            label: None,
            output_dir: "/tmp".into(),
            force: false,
            pool_runner_id: None,
        };
        let registered = client.register_runner(&request).await?;
        Ok(Self {
            client: client.clone(),
            workflow,
            id: registered.id,
            capacity,
            limit: slots,
            claims: 0,
        })
    }

    async fn claim(
        &mut self,
        started: Vec<StartReport>,
        completed: Vec<CompletionReport>,
        wait_seconds: f64,
    ) -> Result<ClaimResponse> {
        self.claims += 1;
        let request = ClaimRequest {
            runner_id: self.id,
            key: format!("{}-{}", self.id, self.claims),
            limit: self.limit,
            capacity: self.capacity.clone(),
            time_left_seconds: None,
            prefetch: 0,
            wait_seconds,
            started,
            completed,
            strict_scheduler_match: false,
            is_alone: None,
        };
        Ok(self.client.claim(self.workflow, &request).await?)
    }

    /// Claims and ends jobs until the workflow is complete.
    async fn work(mut self) -> Result<(usize, Vec<f64>)> {
        let (mut ended, mut answers) = (0, Vec::new());
        let (mut started, mut completed) = (Vec::new(), Vec::new());
        loop {
            let count = completed.len();
            let begun = Instant::now();
            let answer = self
                .claim(std::mem::take(&mut started), std::mem::take(&mut completed), 10.0)
                .await?;
            ended += count;
            if !answer.attempts.is_empty() {
                answers.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            if answer.workflow_complete {
                return Ok((ended, answers));
            }
            started = answer.attempts.iter().map(start).collect();
            completed = answer.attempts.iter().map(end).collect();
        }
    }
}

fn reference(packet: &AttemptPacket) -> AttemptRef {
    AttemptRef { id: packet.id, token: packet.token.clone() }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// The report of a start.
pub fn start(packet: &AttemptPacket) -> StartReport {
    StartReport { attempt: reference(packet), pid: 1_000_000 + packet.id.0 % 1000, at_ms: now_ms() }
}

/// The report of a short job, with everything that a real one has.
pub fn end(packet: &AttemptPacket) -> CompletionReport {
    let log = |ending: &str| {
        let (job, run, attempt) = (packet.job_id, packet.run_id, packet.attempt_id);
        Some(format!(
            "/home/user/project/output/job_stdio/job_wf1_j{job}_r{run}_a{attempt}.{ending}"
        ))
    };
    CompletionReport {
        attempt: reference(packet),
        return_code: 0,
        signal: None,
        cause: None,
        detail: None,
        error: None,
        evidence: Vec::new(),
        started_ms: now_ms(),
        ended_ms: now_ms(),
        exec_seconds: 0.001_234_5,
        cpu_seconds: Some(0.001_1),
        peak_memory_bytes: None,
        avg_memory_bytes: None,
        peak_cpu_percent: None,
        avg_cpu_percent: Some(89.107),
        stdout_path: log("o"),
        stderr_path: log("e"),
        stderr_tail: None,
        stderr_tail_start: None,
        observed: None,
        script: None,
        steps: None,
    }
}
