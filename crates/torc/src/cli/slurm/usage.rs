//! `torc slurm usage`: what a workflow's allocations cost, and what came of it.

use super::sacct::records;
use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use torc_client::{Client, Query};
use torc_model::api::{AttemptView, Capacity, JobView, RunnerView, WorkflowView};
use torc_model::ids::RunnerId;
use torc_model::slurm::wire::AllocationView;
use torc_model::status::AttemptState;
use torc_model::units::Memory;

/// Show the node-hours that a workflow's allocations cost: useful, lost and idle
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Paid is nodes times the time from the start of an allocation to its end; by Slurm's accounting where it answers, else
by what Torc saw. Useful is the share of nodes that attempts held which succeeded; lost is that of all other attempts;
idle is the rest.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = references::LATEST)]
    workflow: String,
}

#[derive(Serialize, Debug, Default)]
struct UsageTotals {
    workflow_id: i64,
    /// Slurm's accounting told how long allocations ran.
    by_accounting: bool,
    total: Hours,
    allocations: Vec<AllocationUsage>,
    /// Lost node-hours by the cause of the attempts.
    lost_by_cause: BTreeMap<String, f64>,
}

#[derive(Serialize, Debug, Default, Clone, Copy)]
struct Hours {
    paid_node_hours: f64,
    useful_node_hours: f64,
    lost_node_hours: f64,
    idle_node_hours: f64,
}

#[derive(Serialize, Debug)]
struct AllocationUsage {
    id: i64,
    slurm_job_id: Option<String>,
    scheduler: String,
    nodes: i64,
    #[serde(flatten)]
    hours: Hours,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let view = usage(client, &workflow).await?;
            context.output.value(&view, render)?;
            Ok(Exit::Success)
        })
    }
}

async fn usage(client: &Client, workflow: &WorkflowView) -> Result<UsageTotals> {
    let query = || Query::new().add("workflow_id", workflow.id);
    let allocations = client.list_allocations(&query()).await?;
    let schedulers = client.list_slurm_schedulers(&query()).await?.items;
    let nodes: HashMap<i64, i64> =
        schedulers.iter().map(|s| (s.id, i64::from(s.scheduler.nodes.max(1)))).collect();
    let runners: Vec<RunnerView> = client.list_all("/compute_nodes", &query()).await?;
    let jobs: Vec<JobView> = client.list_all("/jobs", &query()).await?;
    let attempts: Vec<AttemptView> =
        client.list_all("/results", &query().add("all_runs", true)).await?;
    // Accounting is late and may be missing; then what was seen counts.
    let elapsed: HashMap<String, u64> = records(client, workflow, false)
        .await
        .unwrap_or_default()
        .into_iter()
        .fold(HashMap::new(), |mut sums, record| {
            // Every life of an allocation that was requeued.
            *sums.entry(record.job_id).or_default() += record.elapsed_seconds;
            sums
        });
    let now_ms = human::now_ms();
    let mut view = UsageTotals { workflow_id: workflow.id.0, ..UsageTotals::default() };
    view.by_accounting = !elapsed.is_empty();
    let spent = by_allocation(&runners, &jobs, &attempts);
    for allocation in &allocations {
        let nodes = nodes.get(&allocation.scheduler_id).copied().unwrap_or(1);
        let seconds = seconds_of(allocation, &elapsed, now_ms);
        let mut hours =
            Hours { paid_node_hours: nodes as f64 * seconds / 3600.0, ..Hours::default() };
        for share in spent.get(&allocation.id).into_iter().flatten() {
            let node_hours = share.node_seconds / 3600.0;
            if share.is_useful {
                hours.useful_node_hours += node_hours;
            } else {
                hours.lost_node_hours += node_hours;
                *view.lost_by_cause.entry(share.cause.clone()).or_default() += node_hours;
            }
        }
        let used = hours.useful_node_hours + hours.lost_node_hours;
        // Seconds that Slurm does not count can make the parts more than the whole.
        hours.idle_node_hours = (hours.paid_node_hours - used).max(0.0);
        view.total.paid_node_hours += hours.paid_node_hours;
        view.total.useful_node_hours += hours.useful_node_hours;
        view.total.lost_node_hours += hours.lost_node_hours;
        view.total.idle_node_hours += hours.idle_node_hours;
        view.allocations.push(AllocationUsage {
            id: allocation.id,
            slurm_job_id: allocation.slurm_job_id.clone(),
            scheduler: allocation.scheduler.clone(),
            nodes,
            hours,
        });
    }
    Ok(view)
}

fn seconds_of(allocation: &AllocationView, elapsed: &HashMap<String, u64>, now_ms: i64) -> f64 {
    let accounted = allocation.slurm_job_id.as_ref().and_then(|id| elapsed.get(id));
    if let Some(seconds) = accounted.filter(|_| allocation.ended_ms.is_some()) {
        return *seconds as f64;
    }
    let end = allocation.ended_ms.unwrap_or(now_ms);
    allocation.started_ms.map_or(0.0, |start| (end - start).max(0) as f64 / 1000.0)
}

/// What one attempt held of an allocation.
#[derive(Debug, PartialEq)]
struct AttemptShare {
    is_useful: bool,
    cause: String,
    node_seconds: f64,
}

fn by_allocation(
    runners: &[RunnerView],
    jobs: &[JobView],
    attempts: &[AttemptView],
) -> HashMap<i64, Vec<AttemptShare>> {
    let runners: HashMap<RunnerId, &RunnerView> = runners.iter().map(|r| (r.id, r)).collect();
    let jobs: HashMap<_, &JobView> = jobs.iter().map(|j| (j.id, j)).collect();
    let mut spent: HashMap<i64, Vec<AttemptShare>> = HashMap::new();
    for attempt in attempts {
        let Some(runner) = attempt.compute_node_id.and_then(|id| runners.get(&id)) else {
            continue;
        };
        let allocation = runner.scheduler.as_ref().and_then(|s| s.allocation_id);
        let (Some(allocation), Some(job)) = (allocation, jobs.get(&attempt.job_id)) else {
            continue;
        };
        let seconds = attempt.exec_seconds.or_else(|| {
            let (start, end) = (attempt.started_ms?, attempt.ended_ms?);
            Some((end - start).max(0) as f64 / 1000.0)
        });
        spent.entry(allocation).or_default().push(AttemptShare {
            is_useful: attempt.state == AttemptState::Completed,
            cause: attempt.cause.map_or("other", |cause| cause.as_str()).to_owned(),
            node_seconds: seconds.unwrap_or(0.0) * share_of_node(job, &runner.capacity),
        });
    }
    spent
}

/// How much of a node a job keeps from others: the largest of its parts; or whole nodes.
fn share_of_node(job: &JobView, capacity: &Capacity) -> f64 {
    if job.num_nodes > 1 {
        return job.num_nodes as f64;
    }
    let part = |need: i64, all: i64| if all > 0 { need as f64 / all as f64 } else { 0.0 };
    let memory = job.memory.as_deref().and_then(|text| Memory::parse(text).ok());
    let memory = memory.and_then(|m| i64::try_from(m.0).ok()).unwrap_or(0);
    part(job.num_cpus, capacity.num_cpus)
        .max(part(memory, capacity.memory_bytes))
        .max(part(job.num_gpus, capacity.num_gpus))
        .min(1.0)
}

fn render(view: &UsageTotals) -> String {
    let mut table = Table::new([
        "allocation",
        "slurm job",
        "scheduler",
        "nodes",
        "paid",
        "useful",
        "lost",
        "idle",
    ]);
    let hours = |hours: f64| Field::right(format!("{hours:.2}"));
    for row in &view.allocations {
        table.row([
            Field::number(row.id),
            Field::optional(row.slurm_job_id.as_deref()),
            Field::text(&row.scheduler),
            Field::number(row.nodes),
            hours(row.hours.paid_node_hours),
            hours(row.hours.useful_node_hours),
            hours(row.hours.lost_node_hours),
            hours(row.hours.idle_node_hours),
        ]);
    }
    let mut text = table.render();
    let total = &view.total;
    let percent = |part: f64| match total.paid_node_hours {
        paid if paid > 0.0 => format!(" ({:.0}%)", 100.0 * part / paid),
        _ => String::new(),
    };
    let _ = writeln!(
        text,
        "{:.2} node-hours paid: {:.2} useful{}, {:.2} lost{}, {:.2} idle{}",
        total.paid_node_hours,
        total.useful_node_hours,
        percent(total.useful_node_hours),
        total.lost_node_hours,
        percent(total.lost_node_hours),
        total.idle_node_hours,
        percent(total.idle_node_hours)
    );
    for (cause, hours) in &view.lost_by_cause {
        let _ = writeln!(text, "lost to `{}`: {hours:.2} node-hours", escape::line(cause));
    }
    if !view.by_accounting {
        text.push_str("times are as Torc saw them: Slurm's accounting does not answer\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_model::status::AllocationStatus;

    #[test]
    fn accounting_counts_only_for_what_is_over() {
        let elapsed = HashMap::from([("5".to_owned(), 100_u64)]);
        let mut allocation: AllocationView = serde_json::from_value(serde_json::json!({
            "id": 1, "workflow_id": 1, "run_id": 1, "scheduler_id": 1, "scheduler": "s", "name": "n",
            "array_task": null, "status": AllocationStatus::Active.as_str(), "slurm_job_id": "5", "state": null,
            "ended_as": null, "reason": null, "cause": null, "action_id": null, "start_one_worker_per_node": false,
            "max_parallel_jobs": null, "created_ms": 0, "submitted_ms": 0, "started_ms": 1000, "ended_ms": null,
            "missing_since_ms": null, "unneeded_since_ms": null, "was_too_short": false, "runners": 1
        }))
        .expect("an allocation");
        assert!((seconds_of(&allocation, &elapsed, 61_000) - 60.0).abs() < 1e-9);
        allocation.ended_ms = Some(31_000);
        assert!((seconds_of(&allocation, &elapsed, 61_000) - 100.0).abs() < 1e-9);
        assert!((seconds_of(&allocation, &HashMap::new(), 61_000) - 30.0).abs() < 1e-9);
    }
}
