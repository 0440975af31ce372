//! Plans that a person can check: allocations, their shape, their cost, and why.

use crate::error::{Error, Result};
use crate::output::{Field, Table, human};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use torc_batch::slurm::find_profile;
use torc_model::plan::{ActionKind, Plan, Requirements};
use torc_model::slurm::groups::{self, GroupBy, Options, PendingJob, Planned};
use torc_model::slurm::profile::Profile;
use torc_model::slurm::script::walltime_seconds;
use torc_model::status::Trigger;

/// How to plan allocations.
#[derive(clap::Args, Debug, Clone)]
pub struct PlanOptions {
    /// Account that pays
    #[arg(short, long)]
    pub account: Option<String>,

    /// Profile of the cluster: a name of `torc hpc list`, or a file [default: this cluster]
    #[arg(long)]
    pub profile: Option<String>,

    /// Partition to use [default: the smallest that fits]
    #[arg(short, long)]
    pub partition: Option<String>,

    /// Walltime of each allocation, such as `04:00:00` or `4h` [default: from the jobs' runtime]
    #[arg(long, value_name = "TIME", value_parser = walltime, conflicts_with_all = ["max_walltime", "walltime_multiplier"])]
    pub walltime: Option<u64>,

    /// Which jobs share allocations: those with the same requirement, or all of a partition
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = GroupByOption::Requirement)]
    pub group_by: GroupByOption,

    /// One allocation of many nodes instead of many allocations
    #[arg(long)]
    pub single_allocation: bool,

    /// Ask for the partition's longest walltime instead of the jobs' runtime
    #[arg(long)]
    pub max_walltime: bool,

    /// Ask for this many times the jobs' runtime
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = crate::cli::recover::factor)]
    pub walltime_multiplier: f64,

    /// At most this many allocations for each group of jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_allocations: Option<u32>,
}

/// A walltime in seconds.
pub fn walltime(text: &str) -> std::result::Result<u64, String> {
    walltime_seconds(text).map_err(|error| error.message)
}

/// Which jobs share allocations.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupByOption {
    /// Jobs with the same requirement
    #[default]
    #[value(aliases = ["resource-requirements", "resource-requirement"])]
    Requirement,
    /// All jobs of a partition
    Partition,
}

/// What may be said about nodes wherever they are asked for on behalf of jobs that run again.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Slurm options")]
pub struct NodeOptions {
    /// Account that pays for new nodes [default: that of the workflow's schedulers]
    #[arg(long)]
    pub account: Option<String>,

    /// Partition of new nodes [default: the smallest that fits]
    #[arg(long)]
    pub partition: Option<String>,

    /// Walltime of new allocations, such as `04:00:00` or `4h` [default: from the jobs' runtime]
    #[arg(long, value_name = "TIME", value_parser = walltime)]
    pub walltime: Option<u64>,
}

impl NodeOptions {
    /// For the planner; `account` is the workflow's own.
    pub fn options(&self, account: String) -> Options {
        Options {
            account,
            partition: self.partition.clone(),
            walltime_seconds: self.walltime,
            name_suffix: "_regen".into(),
            ..Options::default()
        }
    }
}

impl PlanOptions {
    /// The profile that was named, or the one of this cluster.
    pub async fn profile(&self) -> Result<Profile> {
        let found = match &self.profile {
            Some(name) => find_profile(name),
            None => super::system()?.profile().await,
        };
        found.map_err(|message| {
            Error::usage_hint(
                message,
                "name a profile with `--profile`; `torc hpc list` shows them",
            )
        })
    }

    /// For the planner.
    pub fn options(&self, account: String, name_suffix: &str) -> Options {
        Options {
            group_by: match self.group_by {
                GroupByOption::Requirement => GroupBy::Requirement,
                GroupByOption::Partition => GroupBy::Partition,
            },
            walltime_seconds: self.walltime,
            account,
            partition: self.partition.clone(),
            walltime_multiplier: self.walltime_multiplier,
            use_max_walltime: self.max_walltime,
            single_allocation: self.single_allocation,
            max_allocations: self.max_allocations,
            name_suffix: name_suffix.to_owned(),
            taken_names: Vec::new(),
        }
    }
}

/// A plan, as it is shown.
#[derive(Serialize, Debug, Default)]
pub struct PlanView {
    /// Per scheduler.
    pub planned_schedulers: Vec<PlannedView>,
    /// In all.
    pub total_allocations: u64,
    /// Nodes times hours at most.
    pub node_hours: f64,
}

/// What one group of jobs gets.
#[derive(Serialize, Debug)]
pub struct PlannedView {
    name: String,
    account: String,
    partition: Option<String>,
    walltime: String,
    mem: Option<String>,
    gres: Option<String>,
    nodes: u32,
    cpus_per_node: Option<u32>,
    num_allocations: u64,
    job_count: usize,
    job_names: Vec<String>,
    has_dependencies: bool,
    node_hours: f64,
    why: Vec<String>,
}

impl PlanView {
    /// Of what was planned; `names` are the jobs that the plan's indexes speak of.
    pub fn new(planned: &[Planned], names: &[String]) -> Self {
        let mut view = Self::default();
        for group in planned {
            let cost = group.cost();
            view.total_allocations += cost.allocations;
            view.node_hours += cost.node_hours;
            let scheduler = &group.scheduler;
            view.planned_schedulers.push(PlannedView {
                name: scheduler.name.clone(),
                account: scheduler.account.clone(),
                partition: scheduler.partition.clone(),
                walltime: scheduler.walltime.clone(),
                mem: scheduler.mem.clone(),
                gres: scheduler.gres.clone(),
                nodes: scheduler.nodes,
                cpus_per_node: scheduler.ntasks_per_node,
                num_allocations: cost.allocations,
                job_count: group.job_count(),
                job_names: group
                    .levels
                    .iter()
                    .flatten()
                    .filter_map(|i| names.get(*i).cloned())
                    .collect(),
                has_dependencies: group.has_dependencies,
                node_hours: cost.node_hours,
                why: group.why.clone(),
            });
        }
        view
    }

    /// Of what a spec's own actions ask for.
    pub fn of_actions(plan: &Plan) -> Result<Self> {
        let mut view = Self::default();
        for action in &plan.actions {
            let ActionKind::ScheduleNodes { scheduler, num_allocations, .. } = &action.what else {
                continue;
            };
            let Some((index, found)) =
                plan.slurm_schedulers.iter().enumerate().find(|(_, s)| s.name == *scheduler)
            else {
                continue;
            };
            let seconds = walltime_seconds(&found.walltime)
                .map_err(|e| Error::usage(format!("scheduler `{scheduler}`: {e}")))?;
            let hours = seconds as f64 / 3600.0
                * f64::from(found.nodes.max(1))
                * f64::from(*num_allocations);
            let jobs = plan.jobs.iter().filter(|j| j.scheduler == Some(index));
            let job_names: Vec<String> = jobs.map(|j| j.name.clone()).collect();
            view.total_allocations += u64::from(*num_allocations);
            view.node_hours += hours;
            view.planned_schedulers.push(PlannedView {
                name: found.name.clone(),
                account: found.account.clone(),
                partition: found.partition.clone(),
                walltime: found.walltime.clone(),
                mem: found.mem.clone(),
                gres: found.gres.clone(),
                nodes: found.nodes.max(1),
                cpus_per_node: found.ntasks_per_node,
                num_allocations: u64::from(*num_allocations),
                job_count: job_names.len(),
                job_names,
                has_dependencies: action.trigger != Trigger::OnWorkflowStart,
                node_hours: hours,
                why: vec![format!("the spec asks for it: {}", action.trigger)],
            });
        }
        Ok(view)
    }
}

/// Plans for a spec that is not stored anywhere yet.
pub fn of_spec(
    plan: &Plan,
    profile: &Profile,
    options: &Options,
) -> Result<(Vec<Planned>, Vec<String>)> {
    let names: Vec<String> = plan.jobs.iter().map(|j| j.name.clone()).collect();
    let default = Requirements::default();
    let jobs: Vec<PendingJob> = plan
        .jobs
        .iter()
        .map(|job| PendingJob {
            name: job.name.clone(),
            requirements: job
                .resource_requirements
                .and_then(|r| plan.resource_requirements.get(r))
                .unwrap_or(&default)
                .clone(),
            depends_on: job.depends_on.clone(),
        })
        .collect();
    let planned = groups::plan(&jobs, profile, options).map_err(|errors| unplannable(&errors))?;
    Ok((planned, names))
}

/// Jobs that no partition can run.
pub fn unplannable(errors: &[String]) -> Error {
    Error::usage_hint(
        errors.join("\n       "),
        "change the jobs' resource requirements, or name another `--profile`",
    )
}

/// A table, the reasons, and the sum.
pub fn render(view: &PlanView) -> String {
    let mut table = Table::new([
        "scheduler",
        "partition",
        "jobs",
        "allocations",
        "nodes",
        "walltime",
        "node-hours",
        "when",
    ]);
    for row in &view.planned_schedulers {
        table.row([
            Field::text(&row.name),
            Field::optional(row.partition.as_deref()),
            Field::number(i64::try_from(row.job_count).unwrap_or(i64::MAX)),
            Field::number(i64::try_from(row.num_allocations).unwrap_or(i64::MAX)),
            Field::number(i64::from(row.nodes)),
            Field::right(&row.walltime),
            Field::right(format!("{:.1}", row.node_hours)),
            Field::text(if row.has_dependencies { "when its jobs are ready" } else { "at once" }),
        ]);
    }
    let mut text = table.render();
    for row in &view.planned_schedulers {
        let _ = writeln!(text, "{}:", crate::output::escape::line(&row.name));
        for why in &row.why {
            let _ = writeln!(text, "  {}", crate::output::escape::line(why));
        }
    }
    let _ = writeln!(
        text,
        "{}, at most {:.1} node-hours",
        human::count(view.total_allocations, "allocation"),
        view.node_hours
    );
    text
}

/// A spec's plan, or its mistakes.
pub fn plan_of(value: Value) -> Result<Plan> {
    let wrong = |errors: torc_spec::Diagnostics| Error::Spec { rendered: errors.render(false) };
    let parsed = torc_spec::Spec::from_value(value).map_err(wrong)?;
    Ok(parsed.spec.plan().map_err(wrong)?.0)
}
