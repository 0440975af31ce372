//! New schedulers for what still has to run: collects the jobs, plans, and makes the server's request out of it.

use std::collections::HashMap;
use torc_client::{Client, Error, Query};
use torc_model::api::JobView;
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
pub async fn pending_jobs(client: &Client, workflow: WorkflowId, also: &[JobId]) -> Result<Vec<JobView>, Error> {
    let query = Query::new().add("workflow_id", workflow).add("include_depends_on", true);
    let all: Vec<JobView> = client.list_all("/jobs", &query).await?;
    let waits = |s: JobStatus| matches!(s, JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready);
    Ok(all.into_iter().filter(|job| waits(job.status) || also.contains(&job.id)).collect())
}

/// Plans for these jobs. All that can not be served is named.
pub fn plan(jobs: Vec<JobView>, profile: &Profile, options: &Options) -> Result<Regeneration, Vec<String>> {
    let index: HashMap<JobId, usize> = jobs.iter().enumerate().map(|(i, job)| (job.id, i)).collect();
    let pending: Vec<PendingJob> = jobs
        .iter()
        .map(|job| PendingJob {
            name: job.name.clone(),
            requirements: requirements(job),
            depends_on: job.depends_on_job_ids.iter().flatten().filter_map(|d| index.get(d).copied()).collect(),
        })
        .collect();
    let planned = groups::plan(&pending, profile, options)?;
    Ok(Regeneration { jobs, planned })
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
