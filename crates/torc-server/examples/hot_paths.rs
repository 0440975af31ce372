//! The hot paths, each as a small program for `cargo xtask counts`: `hot_paths NAME ROUNDS`. What
//! happens once (opening a database, creating a workflow) happens whatever the rounds, so that the
//! difference between two calls is the path itself.

use serde_json::{Value, json};
use std::error::Error;
use torc_model::api::{
    AttemptPacket, AttemptRef, Capacity, ClaimRequest, CompletionReport, CreateWorkflow,
    RegisterRunner, StartReport,
};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::status::RunnerKind;
use torc_server::boot::{Database, Options};
use torc_server::store::Store;
use torc_spec::{Source, SpecFormat};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Attempts per claim.
const BATCH: usize = 50;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (name, rounds) =
        (args.next().unwrap_or_default(), args.next().unwrap_or_default().parse()?);
    match name.as_str() {
        "parse" => parse(rounds),
        "expand" => expand(rounds),
        "claim" => run(claim(rounds)),
        "complete" => run(complete(rounds)),
        "fan_out" => run(fan_out(rounds)),
        _ => Err(format!("`{name}` is none of parse, expand, claim, complete, fan_out").into()),
    }
}

fn run(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn source(text: String) -> Source {
    Source::new("spec.yaml", text, SpecFormat::Yaml)
}

/// A file of 100 jobs.
fn parse(rounds: usize) -> Result<()> {
    let job = |n: usize| {
        format!("  - {{name: j{n}, command: echo {n}, depends_on: [j{}]}}\n", n.saturating_sub(1))
    };
    let jobs: String = (1..100).map(job).collect();
    let text = format!("name: parse\njobs:\n  - {{name: j0, command: 'true'}}\n{jobs}");
    for _ in 0..rounds {
        torc_spec::parse(&source(text.clone())).map_err(|e| e.render(false))?;
    }
    Ok(())
}

/// One job with parameters that stands for 10,000.
fn expand(rounds: usize) -> Result<()> {
    let text = "name: expand\njobs:\n  - {name: 'j{i}', command: 'echo {i}', parameters: {i: '1:10000'}}\n";
    for _ in 0..rounds {
        let parsed = torc_spec::parse(&source(text.into())).map_err(|e| e.render(false))?;
        let (plan, _) = parsed.spec.plan().map_err(|e| e.render(false))?;
        if plan.jobs.len() != 10_000 {
            return Err(format!("{} jobs", plan.jobs.len()).into());
        }
    }
    Ok(())
}

struct World {
    store: Store,
    id: WorkflowId,
    runner: RunnerId,
    claims: usize,
    /// Keeps the lock.
    _lock: Box<dyn std::any::Any>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(jobs: Vec<Value>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let Database { writer, lock, .. } = Database::open(&Options::new(dir.path()))?;
        let store = Store::open(writer)?;
        let spec = json!({"name": "hot", "jobs": jobs});
        let request = CreateWorkflow {
            spec,
            user: None,
            initialize: true,
            force: false,
            key: None,
            directory: None,
            spec_path: None,
        };
        let created = store.create_workflow(request).await.map_err(|e| e.message)?;
        let register = RegisterRunner {
            workflow_id: created.id,
            key: "r".into(),
            hostname: "here".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start: 1,
            capacity: capacity(),
            time_left_seconds: None,
            kind: RunnerKind::Local,
            scheduler: None,
            label: None,
            output_dir: "/output".into(),
            force: false,
            pool_runner_id: None,
        };
        let runner = store.register_runner(register).await.map_err(|e| e.message)?.id;
        Ok(Self { store, id: created.id, runner, claims: 0, _lock: Box::new(lock), _dir: dir })
    }

    async fn claim(&mut self, limit: usize, ended: &[AttemptPacket]) -> Result<Vec<AttemptPacket>> {
        self.claims += 1;
        let reference =
            |packet: &AttemptPacket| AttemptRef { id: packet.id, token: packet.token.clone() };
        let request = ClaimRequest {
            runner_id: self.runner,
            key: self.claims.to_string(),
            limit: limit as i64,
            capacity: capacity(),
            time_left_seconds: None,
            prefetch: 0,
            wait_seconds: 0.0,
            started: ended
                .iter()
                .map(|p| StartReport { attempt: reference(p), pid: 2, at_ms: 3 })
                .collect(),
            completed: ended.iter().map(|p| report(reference(p))).collect(),
            strict_scheduler_match: false,
            is_alone: None,
        };
        Ok(self.store.claim(self.id, request).await.map_err(|e| e.message)?.attempts)
    }
}

fn capacity() -> Capacity {
    Capacity {
        num_cpus: 100_000,
        memory_bytes: 1 << 50,
        num_gpus: 0,
        num_nodes: 1,
        max_parallel_jobs: None,
        ignore_resources: false,
        spreads: false,
    }
}

fn report(attempt: AttemptRef) -> CompletionReport {
    CompletionReport {
        attempt,
        return_code: 0,
        signal: None,
        cause: None,
        detail: None,
        error: None,
        evidence: Vec::new(),
        started_ms: 3,
        ended_ms: 4,
        exec_seconds: 0.001,
        cpu_seconds: Some(0.001),
        peak_memory_bytes: None,
        avg_memory_bytes: None,
        peak_cpu_percent: None,
        avg_cpu_percent: None,
        stdout_path: Some("/home/user/output/job_stdio/job_wf1_j1_r1_a1.o".into()),
        stderr_path: Some("/home/user/output/job_stdio/job_wf1_j1_r1_a1.e".into()),
        stderr_tail: None,
        stderr_tail_start: None,
        observed: None,
        script: None,
        steps: None,
    }
}

fn flat(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"name": format!("j{n}"), "command": "true"})).collect()
}

/// Claims of 50 jobs each.
async fn claim(rounds: usize) -> Result<()> {
    let mut world = World::new(flat(8 * BATCH)).await?;
    for _ in 0..rounds {
        if world.claim(BATCH, &[]).await?.len() != BATCH {
            return Err("too few jobs could be claimed".into());
        }
    }
    Ok(())
}

/// The starts and ends of 50 jobs each, claimed before.
async fn complete(rounds: usize) -> Result<()> {
    let mut world = World::new(flat(8 * BATCH)).await?;
    let claimed = world.claim(8 * BATCH, &[]).await?;
    for batch in claimed.chunks(BATCH).take(rounds) {
        world.claim(0, batch).await?;
    }
    Ok(())
}

/// Ends of jobs that release 200 others each.
async fn fan_out(rounds: usize) -> Result<()> {
    let mut jobs = Vec::new();
    for parent in 0..2 {
        jobs.push(json!({"name": format!("p{parent}"), "command": "true"}));
        let child = |n| json!({"name": format!("c{parent}_{n}"), "command": "true", "depends_on": [format!("p{parent}")]});
        jobs.extend((0..200).map(child));
    }
    let mut world = World::new(jobs).await?;
    let claimed = world.claim(2, &[]).await?;
    for parent in claimed.chunks(1).take(rounds) {
        world.claim(0, parent).await?;
    }
    Ok(())
}
