//! New schedulers for what still has to run: collects the jobs, plans, and makes the server's
//! request out of it.

use std::collections::HashMap;
use torc_client::{Client, Error, Query};
use torc_model::api::{JobView, SlurmSchedulerView};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::Requirements;
use torc_model::slurm::groups::{self, Options, PendingJob, Planned};
use torc_model::slurm::profile::Profile;
use torc_model::slurm::wire::{RegenerateGroup, RegenerateRequest};
use torc_model::status::JobStatus;
use torc_model::units::{Memory, Runtime};

/// What a regenerate would do.
#[derive(Clone, PartialEq, Debug)]
pub struct Regeneration {
    /// The jobs that still have to run; the plan's indexes speak of this list.
    pub jobs: Vec<JobView>,
    /// What they get.
    pub planned: Vec<Planned>,
}

impl Regeneration {
    /// The request for the server.
    pub fn request(&self, submit: bool) -> RegenerateRequest {
        let id = |index: &usize| self.jobs[*index].id;
        let group = |planned: &Planned| RegenerateGroup {
            scheduler: planned.scheduler.clone(),
            levels: planned.levels.iter().map(|level| level.iter().map(id).collect()).collect(),
            allocations: planned.allocations.iter().copied().map(i64::from).collect(),
            has_dependencies: planned.has_dependencies,
            start_one_worker_per_node: planned.start_one_worker_per_node,
        };
        RegenerateRequest { groups: self.planned.iter().map(group).collect(), submit }
    }
}

/// Jobs that still have to run: uninitialized, blocked or ready, and those named.
pub async fn pending_jobs(
    client: &Client,
    workflow: WorkflowId,
    also: &[JobId],
) -> Result<Vec<JobView>, Error> {
    let query = Query::new().add("workflow_id", workflow).add("include_depends_on", true);
    let all: Vec<JobView> = client.list_all("/jobs", &query).await?;
    let waits = |s: JobStatus| {
        matches!(s, JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready)
    };
    Ok(all.into_iter().filter(|job| waits(job.status) || also.contains(&job.id)).collect())
}

/// Plans for these jobs. All that cannot be served is named. `known` are the schedulers that they
/// have now: what users added to one stays with its jobs.
pub fn plan(
    jobs: Vec<JobView>,
    profile: &Profile,
    options: &Options,
    known: &[SlurmSchedulerView],
) -> Result<Regeneration, Vec<String>> {
    let index: HashMap<JobId, usize> =
        jobs.iter().enumerate().map(|(i, job)| (job.id, i)).collect();
    let pending: Vec<PendingJob> = jobs
        .iter()
        .map(|job| PendingJob {
            name: job.name.clone(),
            requirements: requirements(job),
            depends_on: job
                .depends_on_job_ids
                .iter()
                .flatten()
                .filter_map(|d| index.get(d).copied())
                .collect(),
        })
        .collect();
    let mut planned = groups::plan(&pending, profile, options)?;
    for group in &mut planned {
        carry_over(group, &jobs, known);
    }
    Ok(Regeneration { jobs, planned })
}

/// What a profile does not know: quality of service, local disk, further lines. Only where all jobs
/// agree on it.
fn carry_over(group: &mut Planned, jobs: &[JobView], known: &[SlurmSchedulerView]) {
    let mut names: Vec<Option<&str>> =
        group.levels.iter().flatten().map(|index| jobs[*index].scheduler.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    let [Some(name)] = names.as_slice() else { return };
    let Some(old) = known.iter().map(|view| &view.scheduler).find(|s| s.name == *name) else {
        return;
    };
    let new = &mut group.scheduler;
    new.qos = new.qos.take().or_else(|| old.qos.clone());
    new.tmp = new.tmp.take().or_else(|| old.tmp.clone());
    new.extra = new.extra.take().or_else(|| old.extra.clone());
    if old.serialize_allocations {
        new.serialize_allocations = true;
        new.chain = Some(old.chain.clone().unwrap_or_else(|| old.name.clone()));
    }
}

fn requirements(job: &JobView) -> Requirements {
    let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    Requirements {
        name: job.resource_requirements.clone().unwrap_or_else(|| "default".into()),
        num_cpus: count(job.num_cpus).max(1),
        num_gpus: count(job.num_gpus),
        num_nodes: count(job.num_nodes).max(1),
        memory: job.memory.as_deref().and_then(|m| Memory::parse(m).ok()),
        runtime: job.runtime.as_deref().and_then(|r| Runtime::parse(r).ok()),
    }
}
