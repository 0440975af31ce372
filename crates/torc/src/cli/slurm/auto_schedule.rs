//! Nodes for jobs that are ready again: asked for after a recovery, and by `watch` whenever they
//! are missing.

use super::plan::{NodeOptions, unplannable};
use super::regenerate::account_of;
use super::schedule_nodes::{describe, send_waiting};
use crate::error::{Error, Result};
use crate::output::human;
use std::path::PathBuf;
use torc_batch::slurm::{pending_jobs, plan_regeneration};
use torc_batch::{Allocator, BatchSystem as _, SentAllocation, System};
use torc_client::{Client, Query};
use torc_model::api::{JobView, SlurmSchedulerView, WorkflowView};
use torc_model::recovery::NodeShape;
use torc_model::slurm::wire::{AllocationView, RegeneratedView};
use torc_model::status::AllocationStatus;

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

    #[command(flatten)]
    nodes: NodeOptions,
}

/// Asks for nodes on behalf of `watch`. When nodes were asked for last stands with the allocations,
/// so that a restart of `watch` changes nothing.
pub struct AutoSchedule {
    options: AutoOptions,
    /// A recovery needs nodes as well.
    is_recovering: bool,
    output_dir: Option<PathBuf>,
    /// The lines of the last look.
    said: Vec<String>,
}

impl AutoSchedule {
    /// Begins to watch.
    pub fn new(options: AutoOptions, is_recovering: bool, output_dir: Option<PathBuf>) -> Self {
        Self { options, is_recovering, output_dir, said: Vec::new() }
    }

    /// Looks at Slurm, and asks for nodes if that is due. Answers with what a person should read.
    pub async fn tick(&mut self, client: &Client, workflow: &WorkflowView) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let allocator = Allocator::new(client.clone(), super::system()?, self.output_dir.clone())
            .map_err(Error::io("find", "the program"))?;
        let system = allocator.system.name();
        allocator.submit_waiting(Some(workflow.id)).await?;
        let synced = allocator.sync(Some(workflow.id), false, false).await?;
        let unneeded = allocator.take_back(Some(workflow.id)).await?;
        if !unneeded.is_empty() {
            lines.push(format!(
                "taken back from {system}, because nothing needs it any more: {}",
                unneeded.join(", ")
            ));
        }
        match synced.unreachable {
            Some(why) => {
                lines.push(format!("{system} does not answer: {why}; nothing was concluded"))
            }
            None => lines.extend(synced.seen.details),
        }
        let query = Query::new().add("workflow_id", workflow.id).add("status", "ready");
        let ready: Vec<JobView> = client.list_all("/jobs", &query).await?;
        let asked = client.list_allocations(&Query::new().add("workflow_id", workflow.id)).await?;
        let retried = ready.iter().filter(|job| job.attempt_id > 1).count();
        let due = match ready.is_empty() {
            true => false,
            false => self.is_due(retried, &asked, human::now_ms()),
        };
        if !ready.is_empty()
            && let Some(short) =
                asked.iter().max_by_key(|a| a.created_ms).filter(|a| a.was_too_short)
        {
            lines.push(format!(
                "no nodes are asked for: allocation {} was over before any job in it; `torc slurm regenerate {} --submit` \
                 asks for others, or give the jobs a `runtime` that says how long they take",
                short.id, workflow.id
            ));
        }
        let done = match due {
            true => {
                reschedule(client, workflow, self.output_dir.clone(), &self.options.nodes).await
            }
            false => Ok(None),
        };
        let done = match done {
            // Slurm may not answer right now, or a job may fit nowhere: the watching user should
            // know, and watch on.
            Err(Error::Usage { message, .. }) => {
                lines.push(format!("nodes could not be asked for: {message}"));
                None
            }
            done => done?,
        };
        if let Some((done, sent)) = done {
            if done.allocations_created > 0 {
                lines.push(format!(
                    "{} ready: asked {system} for {}",
                    if ready.len() == 1 {
                        "1 job is".into()
                    } else {
                        format!("{} are", human::count(ready.len(), "job"))
                    },
                    human::count(done.allocations_created, "allocation"),
                ));
            }
            lines.extend(describe(&sent).lines().map(str::to_owned));
        }
        // What was said the last time is not said again.
        let new = lines.iter().filter(|line| !self.said.contains(line)).cloned().collect();
        self.said = lines;
        Ok(new)
    }

    /// Jobs are ready, `retried` of them not for the first time: is it time to ask for more than
    /// was asked for?
    fn is_due(&self, retried: usize, asked: &[AllocationView], now_ms: i64) -> bool {
        if !(self.options.auto_schedule || self.is_recovering) {
            return false;
        }
        // What was given up because nothing needed it tells nothing about what would come of more.
        let asked: Vec<_> = asked.iter().filter(|a| a.unneeded_since_ms.is_none()).collect();
        let last = asked.iter().max_by_key(|a| a.created_ms);
        let seconds =
            last.map_or(u64::MAX, |a| u64::try_from((now_ms - a.created_ms) / 1000).unwrap_or(0));
        let is_cool = seconds >= self.options.auto_schedule_cooldown;
        if last.is_some_and(|a| a.was_too_short) {
            return false;
        }
        if asked.iter().all(|a| a.status == AllocationStatus::Complete) {
            // What came to nothing would most likely come to nothing again.
            return is_cool || last.is_none_or(|a| a.started_ms.is_some());
        }
        if !self.options.auto_schedule {
            return false;
        }
        (retried >= self.options.auto_schedule_threshold.max(1) && is_cool)
            || (retried > 0 && seconds >= self.options.auto_schedule_stranded_timeout)
    }
}

/// How many allocations of a workflow are not over.
pub async fn open_allocations(client: &Client, workflow: &WorkflowView) -> Result<i64> {
    let all = client.list_allocations(&Query::new().add("workflow_id", workflow.id)).await?;
    let open = all.iter().filter(|a| a.status != AllocationStatus::Complete).count();
    Ok(i64::try_from(open).unwrap_or(i64::MAX))
}

/// The kinds of nodes of this cluster, so that recovery gives no job more than a node has; or why
/// they are not known.
pub async fn node_shapes() -> std::result::Result<Vec<NodeShape>, String> {
    match System::here()? {
        Some(system) => system.profile().await.map(|profile| profile.shapes()),
        None => Err("there is no batch system here".into()),
    }
}

/// The workflow was meant for Slurm, and Slurm can be asked from here.
pub async fn is_for_slurm(client: &Client, workflow: &WorkflowView) -> Result<bool> {
    if System::here().map_err(Error::usage)?.is_none() {
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
    nodes: &NodeOptions,
) -> Result<Option<(RegeneratedView, Vec<SentAllocation>)>> {
    let jobs = pending_jobs(client, workflow.id, &[]).await?;
    if jobs.is_empty() {
        return Ok(None);
    }
    let account = match &nodes.account {
        Some(account) => account.clone(),
        None => account_of(client, workflow).await?,
    };
    let hint = "name a profile of this cluster, see `torc hpc`";
    let system = super::system()?;
    let profile = system.profile().await.map_err(|message| Error::usage_hint(message, hint))?;
    let options = nodes.options(account);
    let known =
        client.list_slurm_schedulers(&Query::new().add("workflow_id", workflow.id)).await?.items;
    let regeneration =
        plan_regeneration(jobs, &profile, &options, &known).map_err(|e| unplannable(&e))?;
    let done = client.regenerate(workflow.id, &regeneration.request(true)).await?;
    let allocator = Allocator::new(client.clone(), system, output_dir)
        .map_err(Error::io("find", "the program"))?;
    let sent = send_waiting(&allocator, workflow.id).await?;
    Ok(Some((done, sent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_model::ids::WorkflowId;

    const NOW: i64 = 10_000_000;

    fn auto(auto_schedule: bool, is_recovering: bool) -> AutoSchedule {
        let options = AutoOptions {
            auto_schedule,
            auto_schedule_threshold: 5,
            auto_schedule_cooldown: 1800,
            auto_schedule_stranded_timeout: 7200,
            nodes: NodeOptions::default(),
        };
        AutoSchedule::new(options, is_recovering, None)
    }

    fn allocation(status: AllocationStatus, age_seconds: i64, worked: bool) -> AllocationView {
        let created_ms = NOW - age_seconds * 1000;
        AllocationView {
            id: 1,
            workflow_id: WorkflowId(1),
            run_id: 1,
            scheduler_id: 1,
            scheduler: "s".into(),
            name: "n".into(),
            array_task: None,
            status,
            slurm_job_id: None,
            state: None,
            reason: None,
            why: None,
            cause: None,
            action_id: None,
            start_one_worker_per_node: false,
            max_parallel_jobs: None,
            created_ms,
            submitted_ms: None,
            expected_start_ms: None,
            started_ms: worked.then_some(created_ms),
            ended_ms: None,
            missing_since_ms: None,
            unneeded_since_ms: None,
            was_too_short: false,
            runners: 0,
            ended_as: None,
            moves: 0,
        }
    }

    #[test]
    fn nodes_that_are_gone_are_replaced_at_once_unless_they_never_worked() {
        let gone = |age, worked| [allocation(AllocationStatus::Complete, age, worked)];
        assert!(auto(true, false).is_due(0, &[], NOW), "nothing was ever asked for");
        assert!(auto(true, false).is_due(0, &gone(5, true), NOW));
        assert!(auto(false, true).is_due(0, &gone(5, true), NOW), "a recovery needs nodes as well");
        assert!(!auto(false, false).is_due(0, &gone(5, true), NOW), "it was not asked for");
        assert!(!auto(true, false).is_due(9, &gone(5, false), NOW), "the last one came to nothing");
        assert!(auto(true, false).is_due(9, &gone(1800, false), NOW));
        let short = AllocationView {
            was_too_short: true,
            ..allocation(AllocationStatus::Complete, 9000, true)
        };
        assert!(
            !auto(true, true).is_due(9, &[short], NOW),
            "another one like it would end like it"
        );
    }

    #[test]
    fn while_nodes_are_there_threshold_and_cooldown_hold_whenever_watch_began() {
        let there = |age| [allocation(AllocationStatus::Active, age, true)];
        assert!(!auto(true, false).is_due(5, &there(1799), NOW), "the cooldown is not over");
        assert!(auto(true, false).is_due(5, &there(1800), NOW));
        assert!(!auto(true, false).is_due(4, &there(7199), NOW), "too few");
        assert!(
            auto(true, false).is_due(1, &there(7200), NOW),
            "however few, they have waited long enough"
        );
        assert!(!auto(true, false).is_due(0, &there(99_999), NOW), "no job was retried");
        assert!(!auto(false, true).is_due(9, &there(99_999), NOW));
    }
}
