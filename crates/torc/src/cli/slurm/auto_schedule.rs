//! Nodes for jobs that are ready again: asked for after a recovery, and by `watch` whenever they are missing.

use super::plan::unplannable;
use super::regenerate::account_of;
use super::schedule_nodes::{describe, send_waiting};
use crate::error::{Error, Result};
use std::path::PathBuf;
use tokio::time::Instant;
use torc_client::{Client, Query};
use torc_model::api::{JobView, SlurmSchedulerView, WorkflowView};
use torc_model::slurm::groups::Options;
use torc_model::slurm::wire::RegeneratedView;
use torc_model::status::AllocationStatus;
use torc_runner::slurm::{Allocator, Sent, Slurm, detect_profile, pending_jobs, plan_regeneration};

/// When `watch` asks Slurm for more nodes.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Slurm options")]
pub struct AutoOptions {
    /// Ask Slurm for new nodes when jobs are ready and none are left for them
    #[arg(long)]
    auto_schedule: bool,

    /// While nodes are there: ask for more when this many retried jobs are ready
    #[arg(long, value_name = "N", default_value_t = 5)]
    auto_schedule_threshold: usize,

    /// While nodes are there: wait at least this many seconds between two requests
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    auto_schedule_cooldown: u64,

    /// Ask for more, however few retried jobs are ready, when they have waited this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    auto_schedule_stranded_timeout: u64,
}

/// What `watch` remembers about requests for nodes. After a restart it begins anew, which is safe: what is already on its
/// way counts.
pub struct AutoSchedule {
    options: AutoOptions,
    /// A recovery needs nodes as well.
    is_recovering: bool,
    output_dir: Option<PathBuf>,
    last: Instant,
}

impl AutoSchedule {
    /// Begins to watch.
    pub fn new(options: AutoOptions, is_recovering: bool, output_dir: Option<PathBuf>) -> Self {
        Self { options, is_recovering, output_dir, last: Instant::now() }
    }

    /// Looks at Slurm, and asks for nodes if that is due. Answers with what a person should read.
    pub async fn tick(&mut self, client: &Client, workflow: &WorkflowView) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let allocator =
            Allocator::new(client.clone(), self.output_dir.clone()).map_err(Error::io("find", "the program"))?;
        allocator.submit_waiting(Some(workflow.id)).await?;
        let synced = allocator.sync(Some(workflow.id), false, false).await?;
        match synced.unreachable {
            Some(why) => lines.push(format!("Slurm does not answer: {why}; nothing was concluded")),
            None => lines.extend(synced.seen.details.into_iter().filter(|l| !l.contains("a second look will tell"))),
        }
        let query = Query::new().add("workflow_id", workflow.id).add("status", "ready");
        let ready: Vec<JobView> = client.list_all("/jobs", &query).await?;
        let planned = Query::new().add("workflow_id", workflow.id).add("status", AllocationStatus::Planned);
        let open =
            allocator.open_allocations(Some(workflow.id)).await?.len() + client.list_allocations(&planned).await?.len();
        if self.is_due(&ready, open)
            && let Some((done, sent)) = reschedule(client, workflow, self.output_dir.clone()).await?
        {
            self.last = Instant::now();
            if done.allocations_created > 0 {
                lines.push(format!(
                    "{} jobs are ready: asked Slurm for {} allocations",
                    ready.len(),
                    done.allocations_created
                ));
            }
            lines.extend(describe(&sent).lines().map(str::to_owned));
        }
        Ok(lines)
    }

    fn is_due(&self, ready: &[JobView], open: usize) -> bool {
        if ready.is_empty() || !(self.options.auto_schedule || self.is_recovering) {
            return false;
        }
        if open == 0 {
            return true;
        }
        if !self.options.auto_schedule {
            return false;
        }
        let retried = ready.iter().filter(|job| job.attempt_id > 1).count();
        let waited = self.last.elapsed().as_secs();
        (retried >= self.options.auto_schedule_threshold.max(1) && waited >= self.options.auto_schedule_cooldown)
            || (retried > 0 && waited >= self.options.auto_schedule_stranded_timeout)
    }
}

/// The workflow was meant for Slurm, and Slurm can be asked from here.
pub async fn is_for_slurm(client: &Client, workflow: &WorkflowView) -> Result<bool> {
    if !Slurm::is_here() {
        return Ok(false);
    }
    let query = Query::new().add("workflow_id", workflow.id);
    let schedulers: Vec<SlurmSchedulerView> = client.list_all("/slurm_schedulers", &query).await?;
    Ok(!schedulers.is_empty())
}

/// Regenerates and submits for everything that still has to run. `None`: nothing has to.
pub async fn reschedule(
    client: &Client,
    workflow: &WorkflowView,
    output_dir: Option<PathBuf>,
) -> Result<Option<(RegeneratedView, Vec<Sent>)>> {
    let jobs = pending_jobs(client, workflow.id, &[]).await?;
    if jobs.is_empty() {
        return Ok(None);
    }
    let account = account_of(client, workflow).await?;
    let hint = "name a profile of this cluster, see `torc hpc`";
    let profile = detect_profile(&Slurm::new()).await.map_err(|message| Error::usage_hint(message, hint))?;
    let options = Options { account, name_suffix: "_regen".into(), ..Options::default() };
    let regeneration = plan_regeneration(jobs, &profile, &options).map_err(|e| unplannable(&e))?;
    let done = client.regenerate(workflow.id, &regeneration.request(true)).await?;
    let allocator = Allocator::new(client.clone(), output_dir).map_err(Error::io("find", "the program"))?;
    let sent = send_waiting(&allocator, workflow.id).await?;
    Ok(Some((done, sent)))
}
