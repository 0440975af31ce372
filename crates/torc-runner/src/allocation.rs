//! A runner inside an allocation: what it may use, how long it has, and why it ends.

use crate::config::{Config, LeaveReason, RunnerNotice, RunnerSummary, Shutdown};
use crate::runner::Runner;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use torc_batch::slurm::Slurm;
use torc_batch::{Allocator, System};
use torc_client::{Client, Query};
use torc_model::api::RunnerScheduler;
use torc_model::ids::WorkflowId;
use torc_model::status::RunnerKind;

/// Between two looks whether the server wants more nodes. No hurry: a server that can see Slurm
/// sends them itself, and the events of a workflow are many more than its requests for nodes.
const SUBMIT_PAUSE: Duration = Duration::from_secs(10);
/// How long a runner that leaves may take to give back what nothing needs.
const TIDY_PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to reach the server.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How long, and how often, a node is asked for the workflow's directory before its runner gives
/// up.
const MOUNT_PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// What is left of Slurm's time between TERM and KILL after the jobs had theirs.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between two tries to hear from Slurm how much time is left, after its signal.
const ASK_TIME_AGAIN: Duration = Duration::from_secs(5);

/// What the submission script tells.
#[derive(Clone, Debug)]
pub struct AllocationSettings {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Name of the allocation in Slurm.
    pub allocation: String,
    /// The scheduler it was made by.
    pub scheduler_id: i64,
    /// What was asked for.
    pub walltime_seconds: u64,
    /// Where jobs start.
    pub work_dir: PathBuf,
    /// Where output goes.
    pub output_dir: PathBuf,
    /// At most this many jobs at once.
    pub max_parallel_jobs: Option<i64>,
    /// Memory that was asked for.
    pub memory_bytes: Option<i64>,
    /// How long to wait for a server that does not answer at the beginning.
    pub patience: Duration,
    /// The program and its first arguments that run an agent on another node.
    pub agent: Vec<OsString>,
}

/// Where Grid Engine or PBS end an allocation before its time, jobs get no longer than this: how long
/// the queue's own notice is, is not told.
const NOTIFY: Duration = Duration::from_secs(5);

/// A batch system, by the variables that it sets for its jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Slurm,
    GridEngine,
    Pbs,
}

/// This process runs in a job of Grid Engine.
pub fn is_in_grid_engine() -> bool {
    Place::here().is_ok_and(|place| place.system == Kind::GridEngine)
}

/// The job of the batch system that this process runs in.
#[derive(Clone, PartialEq, Debug)]
struct Place {
    system: Kind,
    /// What the batch system itself calls it.
    job: String,
    /// What Torc calls it: `12`, or `12_0` for the first task of an array.
    id: String,
    /// Its place in an array, from 0.
    task: Option<i64>,
    /// CPUs that it has on this node.
    cpus: Option<i64>,
    /// How often the batch system had started the job again before this time, where it tells.
    restarts: Option<i64>,
}

impl Place {
    fn here() -> Result<Self, String> {
        Self::find(|name| std::env::var(name).ok().filter(|value| !value.is_empty())).ok_or_else(
            || {
                "this is not inside an allocation of a batch system (`SLURM_JOB_ID` is not set)"
                    .into()
            },
        )
    }

    fn find(env: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| env(name).and_then(|value| value.parse::<i64>().ok());
        let count =
            |name: &str| env(name).and_then(|value| value.parse::<u32>().ok().map(i64::from));
        if let Some(job) = env("SLURM_JOB_ID") {
            let task = number("SLURM_ARRAY_TASK_ID");
            let id = match (env("SLURM_ARRAY_JOB_ID"), task) {
                (Some(array), Some(task)) => format!("{array}_{task}"),
                _ => job.clone(),
            };
            return Some(Self {
                system: Kind::Slurm,
                job,
                id,
                task,
                cpus: number("SLURM_CPUS_ON_NODE"),
                // Not set the first time.
                restarts: Some(count("SLURM_RESTART_COUNT").unwrap_or(0)),
            });
        }
        let with_task = |job: &str, task: Option<i64>| match task {
            Some(task) => format!("{job}_{task}"),
            None => job.to_owned(),
        };
        if let (Some(job), Some(_)) = (env("JOB_ID"), env("SGE_ROOT")) {
            // Grid Engine counts from 1 and says `undefined` outside of arrays.
            let task = number("SGE_TASK_ID").map(|task| task - 1);
            let id = with_task(&job, task);
            let cpus = number("NSLOTS");
            // It tells whether, not how often.
            let restarts = count("RESTARTED").filter(|restarts| *restarts <= 1);
            return Some(Self { system: Kind::GridEngine, job, id, task, cpus, restarts });
        }
        let job = env("PBS_JOBID")?;
        let task = number("PBS_ARRAY_INDEX");
        let digits: String = job.chars().take_while(char::is_ascii_digit).collect();
        let id = with_task(&digits, task);
        Some(Self { system: Kind::Pbs, job, id, task, cpus: number("NCPUS"), restarts: None })
    }
}

/// Names of the GPUs that Slurm gave this process. Without one of these variables it gave none,
/// whatever the machine has.
pub(crate) fn gpus_of_slurm() -> Vec<String> {
    let env = |name: &&str| std::env::var(name).ok().filter(|list| !list.is_empty());
    let list = ["CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"].iter().find_map(env);
    list.map(|list| list.split(',').map(|gpu| gpu.trim().to_owned()).collect()).unwrap_or_default()
}

/// Runs a runner in this allocation until there is nothing left to do, its time is over, or Slurm
/// wants it to end.
pub async fn run(
    client: Client,
    inside: AllocationSettings,
    shutdown: watch::Receiver<Shutdown>,
    events: UnboundedSender<RunnerNotice>,
) -> Result<RunnerSummary, String> {
    // First: by default this signal ends a process.
    let time_signal = signal(SignalKind::user_defined2())
        .map_err(|error| format!("cannot listen for signals: {error}"))?;
    let place = Place::here()?;
    let env = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let number = |name: &str| env(name).and_then(|v| v.parse::<i64>().ok());
    wait_for_dir(&inside.work_dir, MOUNT_PATIENCE).await?;
    let allocation_id = find_allocation(&client, &inside, place.task).await?;
    let slurm = Slurm::new();
    let mut config = Config::new(client.clone(), inside.workflow_id, &inside.output_dir);
    config.kind = RunnerKind::Slurm;
    config.working_dir.clone_from(&inside.work_dir);
    config.events = Some(events);
    config.limits.patience = inside.patience;
    config.batch.stop_log = Some(
        inside.output_dir.join(format!("slurm_output_{}_sl{}.e", inside.allocation, place.id)),
    );
    config.capacity.max_parallel_jobs = inside.max_parallel_jobs;
    config.capacity.num_nodes =
        match env("SLURM_STEP_NUM_TASKS").is_some() && number("SLURM_NODEID").is_some() {
            // One runner on each node: each has its own node.
            true if number("SLURM_STEP_NUM_TASKS").is_some_and(|n| n > 1) => 1,
            _ => number("SLURM_JOB_NUM_NODES").unwrap_or(1),
        };
    if let Some(cpus) = place.cpus {
        config.capacity.num_cpus = cpus;
    }
    let per_node = number("SLURM_MEM_PER_NODE");
    let per_cpu = number("SLURM_MEM_PER_CPU").map(|mb| mb * config.capacity.num_cpus);
    let told = per_node.or(per_cpu).filter(|mb| *mb > 0).map(|megabytes| megabytes << 20);
    // Slurm knows better than what was asked for; others do not tell.
    let asked = inside.memory_bytes.filter(|_| place.system != Kind::Slurm);
    if let Some(bytes) = told.or(asked) {
        config.capacity.memory_bytes = bytes;
    }
    config.gpus = gpus_of_slurm();
    config.capacity.num_gpus = i64::try_from(config.gpus.len()).unwrap_or(0);
    config.limits.time_left = Some(Duration::from_secs(inside.walltime_seconds));
    // Bounds only what is ended before its time: for the walltime the runner begins early enough.
    config.batch.longest_stop = Some(NOTIFY);
    let mut asking = None;
    if place.system == Kind::Slurm {
        let left = slurm.time_left(&place.job).await.unwrap_or(Some(inside.walltime_seconds));
        config.limits.time_left = left.map(Duration::from_secs);
        config.batch.longest_stop =
            slurm.kill_wait().await.map(|wait| wait.saturating_sub(LAST_WORDS));
        let (time_left, times) = watch::channel(None);
        config.batch.time_left_changes = Some(times);
        let ask = ask_for_time(slurm.clone(), place.job.clone(), time_signal, time_left);
        asking = Some(tokio::spawn(ask));
    }
    if config.capacity.num_nodes > 1 {
        let own = env("SLURMD_NODENAME").unwrap_or_default();
        let names = slurm.host_names(&env("SLURM_JOB_NODELIST").unwrap_or_default()).await?;
        config.batch.other_nodes = names.into_iter().filter(|name| *name != own).collect();
    }
    if place.system == Kind::Slurm {
        config.batch.agent = inside.agent.clone();
    }
    let node = number("SLURM_NODEID").unwrap_or(0);
    config.batch.scheduler = Some(RunnerScheduler {
        scheduler_config_id: Some(inside.scheduler_id),
        allocation_id: Some(allocation_id),
        slurm_job_id: Some(place.id),
        node: Some(node),
        node_name: env("SLURMD_NODENAME"),
        restarts: place.restarts,
    });
    let system = System::here().unwrap_or_else(|error| {
        tracing::warn!(error, "further allocations cannot be asked for from here");
        None
    });
    let system = system.filter(|_| node == 0);
    let helper = system.and_then(|system| helper(&client, system, &inside.output_dir));
    let submitting =
        helper.clone().map(|helper| tokio::spawn(submit_more(helper, inside.workflow_id)));
    let summary = Runner::new(config).run(shutdown).await.map_err(|e| e.to_string());
    for task in asking.into_iter().chain(submitting) {
        task.abort();
    }
    // The next link of a chain starts as soon as this one is over: what nothing needs is taken back
    // first. Not when this one has to end: then there is no time.
    let has_time = |summary: &RunnerSummary| {
        matches!(
            summary.reason,
            LeaveReason::Complete | LeaveReason::NothingToDo | LeaveReason::Idle
        )
    };
    if let Some(helper) = helper.filter(|_| summary.as_ref().is_ok_and(has_time)) {
        let tidy = help(&helper, inside.workflow_id);
        if tokio::time::timeout(TIDY_PATIENCE, tidy).await.is_err() {
            tracing::debug!("allocations that nothing needs could not be taken back in time");
        }
    }
    summary
}

/// Slurm's signal says that the end is near: asks how near. An operator may have changed the time
/// limit since the beginning.
async fn ask_for_time(
    slurm: Slurm,
    job: String,
    mut signal: Signal,
    time_left: watch::Sender<Option<Duration>>,
) {
    while signal.recv().await.is_some() {
        loop {
            match slurm.time_left(&job).await {
                Some(left) => {
                    time_left.send_replace(left.map(Duration::from_secs));
                    break;
                }
                // Nothing tells when Slurm answers again.
                None => tokio::time::sleep(ASK_TIME_AGAIN).await,
            }
        }
    }
}

/// Waits for a directory that is perhaps only mounted late. Slurm starts a script elsewhere when
/// its directory is missing; jobs must not start there.
async fn wait_for_dir(dir: &Path, patience: Duration) -> Result<(), String> {
    let deadline = std::time::Instant::now() + patience;
    while !dir.is_dir() {
        if std::time::Instant::now() >= deadline {
            let dir = dir.display();
            return Err(format!(
                "the workflow's directory `{dir}` is not on this node; no job was started"
            ));
        }
        // Nothing tells when something is mounted.
        tokio::time::sleep(LOOK_AGAIN.min(patience)).await;
    }
    Ok(())
}

async fn find_allocation(
    client: &Client,
    inside: &AllocationSettings,
    task: Option<i64>,
) -> Result<i64, String> {
    let query = Query::new().add("workflow_id", inside.workflow_id).add("name", &inside.allocation);
    let deadline = std::time::Instant::now() + inside.patience;
    loop {
        match client.list_allocations(&query).await {
            Ok(rows) => {
                let row = rows.iter().find(|r| r.array_task == task);
                return row.map(|r| r.id).ok_or_else(|| {
                    format!("the server knows no allocation `{}`", inside.allocation)
                });
            }
            Err(torc_client::Error::Unreachable { .. }) if std::time::Instant::now() < deadline => {
                // Nothing tells when a server is back.
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// What speaks to the batch system from here.
fn helper(client: &Client, system: System, output_dir: &Path) -> Option<Allocator<System>> {
    let made = Allocator::new(client.detached(), system, Some(output_dir.to_owned()));
    made.inspect_err(|error| {
        tracing::warn!(%error, "further allocations cannot be asked for from here");
    })
    .ok()
}

/// Sends further allocations that actions of the workflow ask for, and takes back what nothing
/// needs any more, in case no other client can.
async fn submit_more(allocator: Allocator<System>, workflow: WorkflowId) {
    loop {
        tokio::time::sleep(SUBMIT_PAUSE).await;
        help(&allocator, workflow).await;
    }
}

async fn help(allocator: &Allocator<System>, workflow: WorkflowId) {
    if let Err(error) = allocator.submit_waiting(Some(workflow)).await {
        tracing::debug!(%error, "waiting allocations could not be sent");
    }
    if let Err(error) = allocator.take_back(Some(workflow)).await {
        tracing::debug!(%error, "allocations that nothing needs could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_each_batch_system_tell_its_job() {
        let find = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            Place::find(move |name| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
                .map(|place| (place.system, place.id, place.task, place.cpus))
        };
        assert_eq!(find(&[]), None);
        assert_eq!(
            find(&[
                ("SLURM_JOB_ID", "8"),
                ("SLURM_ARRAY_JOB_ID", "7"),
                ("SLURM_ARRAY_TASK_ID", "1")
            ]),
            Some((Kind::Slurm, "7_1".into(), Some(1), None))
        );
        let engine = [("JOB_ID", "7"), ("SGE_ROOT", "/sge"), ("NSLOTS", "4")];
        assert_eq!(
            find(&[&engine[..], &[("SGE_TASK_ID", "undefined")]].concat()),
            Some((Kind::GridEngine, "7".into(), None, Some(4)))
        );
        assert_eq!(
            find(&[&engine[..], &[("SGE_TASK_ID", "1")]].concat()),
            Some((Kind::GridEngine, "7_0".into(), Some(0), Some(4)))
        );
        assert_eq!(
            find(&[("PBS_JOBID", "14[1].pbs01"), ("PBS_ARRAY_INDEX", "1"), ("NCPUS", "2")]),
            Some((Kind::Pbs, "14_1".into(), Some(1), Some(2)))
        );
    }

    #[test]
    fn batch_systems_tell_how_often_they_started_a_job_again() {
        let find = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            Place::find(move |name| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
                .and_then(|place| place.restarts)
        };
        assert_eq!(find(&[("SLURM_JOB_ID", "8")]), Some(0), "the first time it says nothing");
        assert_eq!(find(&[("SLURM_JOB_ID", "8"), ("SLURM_RESTART_COUNT", "2")]), Some(2));
        let engine = [("JOB_ID", "7"), ("SGE_ROOT", "/sge")];
        assert_eq!(find(&engine), None);
        for restarts in [0, 1] {
            let told = restarts.to_string();
            let with = [&engine[..], &[("RESTARTED", told.as_str())]].concat();
            assert_eq!(find(&with), Some(restarts));
        }
        assert_eq!(find(&[("PBS_JOBID", "14.pbs01")]), None);
    }

    #[tokio::test]
    async fn a_node_without_the_directory_starts_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let late = dir.path().join("late");
        let refused = wait_for_dir(&late, Duration::ZERO).await.expect_err("it is not there");
        assert!(refused.contains(&late.display().to_string()), "{refused}");
        // Mounted late: the waiting thread gets it.
        let waiting = tokio::spawn({
            let late = late.clone();
            async move { wait_for_dir(&late, MOUNT_PATIENCE).await }
        });
        std::fs::create_dir(&late).expect("a directory");
        waiting.await.expect("it ends").expect("it is there");
    }
}
