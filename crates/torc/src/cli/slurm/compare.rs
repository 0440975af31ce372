//! `torc slurm plan`: one big allocation or many small ones, by asking Slurm when each would start.

use super::plan::{PlanOptions, of_spec, plan_of, unplannable};
use super::regenerate::account_of;
use crate::cli::session::Access;
use crate::cli::{Context, block_on, references, spec};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use torc_batch::local_ms;
use torc_batch::slurm::{Slurm, pending_jobs, plan_regeneration};
use torc_client::Query;
use torc_model::slurm::groups::Planned;
use torc_model::slurm::script::{ScriptInput, render as render_script};
use torc_model::slurm::test_only::Start;

/// Ask Slurm when allocations for a workflow would start, and what they would cost
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc slurm plan sweep.yaml --account abc    before anything is created
  torc slurm plan sweep                       for the jobs that still have to run

Nothing is submitted: Slurm is asked with `sbatch --test-only`. Of many allocations it tells when the first would
start; the others may start later, each as nodes come free.")]
pub struct Args {
    /// Spec file, or a workflow: its id, its name, or `latest`
    workflow: String,

    #[command(flatten)]
    plan: PlanOptions,
}

/// The two ways to ask for nodes, per group of jobs.
#[derive(Serialize, Debug)]
struct ComparisonView {
    groups: Vec<GroupView>,
}

#[derive(Serialize, Debug)]
struct GroupView {
    scheduler: String,
    job_count: usize,
    ways: Vec<WayView>,
    /// The way that ends first; absent when Slurm told about none.
    advice: Option<Way>,
    why: String,
}

#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Way {
    ManySmall,
    OneBig,
}

impl Way {
    fn as_text(self) -> &'static str {
        match self {
            Self::ManySmall => "many small",
            Self::OneBig => "one big",
        }
    }
}

#[derive(Serialize, Debug)]
struct WayView {
    way: Way,
    partition: Option<String>,
    allocations: u64,
    nodes: u32,
    walltime: String,
    /// Nodes times hours at most.
    node_hours: f64,
    /// When Slurm would start the first, ms since 1970.
    start_ms: Option<i64>,
    /// When its jobs would be done if all allocations started then.
    end_ms: Option<i64>,
    /// Why Slurm would not take it.
    refused: Option<String>,
    /// Why Slurm did not tell.
    unknown: Option<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        super::require_slurm()?;
        let path = Path::new(&self.workflow);
        if !path.is_file() && self.workflow != "-" {
            return context.with_server(Access::Existing, async |client| {
                let workflow = references::workflow(client, &self.workflow).await?;
                let jobs = pending_jobs(client, workflow.id, &[]).await?;
                if jobs.is_empty() {
                    let nothing = ComparisonView { groups: Vec::new() };
                    context
                        .output
                        .value(&nothing, |_| "nothing to plan: no job still has to run\n".into())?;
                    return Ok(Exit::Success);
                }
                let account = match &self.plan.account {
                    Some(account) => account.clone(),
                    None => account_of(client, &workflow).await?,
                };
                let profile = self.plan.profile().await?;
                let query = Query::new().add("workflow_id", workflow.id);
                let known = client.list_slurm_schedulers(&query).await?.items;
                let plan = |single_allocation| {
                    let mut options = self.plan.options(account.clone(), "_regen");
                    options.single_allocation = single_allocation;
                    plan_regeneration(jobs.clone(), &profile, &options, &known)
                        .map(|regeneration| regeneration.planned)
                        .map_err(|errors| unplannable(&errors))
                };
                show(context, &plan(false)?, &plan(true)?, &workflow.slurm_defaults).await
            });
        }
        let value = spec::load(context, path)?.value();
        let plan = plan_of(value.clone())?;
        let account = self.plan.account.clone();
        let account =
            account.or_else(|| value["slurm_defaults"]["account"].as_str().map(str::to_owned));
        let account = account.ok_or_else(|| {
            Error::usage_hint("no account was named", "name the one that pays with `--account`")
        })?;
        block_on(async {
            let profile = self.plan.profile().await?;
            let planned = |single_allocation| {
                let mut options = self.plan.options(account.clone(), "_scheduler");
                options.single_allocation = single_allocation;
                of_spec(&plan, &profile, &options).map(|(planned, _)| planned)
            };
            let defaults = &plan.settings.slurm_defaults;
            show(context, &planned(false)?, &planned(true)?, defaults).await
        })
    }
}

async fn show(
    context: &Context,
    small: &[Planned],
    big: &[Planned],
    defaults: &BTreeMap<String, Value>,
) -> Result<Exit> {
    let mut groups = Vec::new();
    for small in small {
        let mut ways = vec![ask(small, Way::ManySmall, defaults).await?];
        let one = big.iter().find(|b| b.scheduler.name == small.scheduler.name);
        // Where one allocation of one node is enough, both ways are the same.
        if let Some(one) = one.filter(|one| one.scheduler.nodes > small.scheduler.nodes) {
            ways.push(ask(one, Way::OneBig, defaults).await?);
        }
        let (advice, why) = advise(&ways);
        groups.push(GroupView {
            scheduler: small.scheduler.name.clone(),
            job_count: small.job_count(),
            ways,
            advice,
            why,
        });
    }
    context.output.value(&ComparisonView { groups }, render)?;
    Ok(Exit::Success)
}

/// Asks Slurm with the very script that would be submitted, but for its last line.
async fn ask(planned: &Planned, way: Way, defaults: &BTreeMap<String, Value>) -> Result<WayView> {
    let text = render_script(&ScriptInput {
        scheduler: &planned.scheduler,
        defaults,
        name: "torc-plan",
        count: 1,
        at_once: None,
        output_dir: "/tmp",
        work_dir: "/tmp",
        command: &["true".to_owned()],
        one_worker_per_node: planned.start_one_worker_per_node,
        end_seconds: 0,
    })
    .map_err(|error| Error::usage(format!("scheduler `{}`: {error}", planned.scheduler.name)))?;
    let start = Slurm::new().test_only(&text).await;
    let cost = planned.cost();
    let mut view = WayView {
        way,
        partition: planned.scheduler.partition.clone(),
        allocations: cost.allocations,
        nodes: planned.scheduler.nodes,
        walltime: planned.scheduler.walltime.clone(),
        node_hours: cost.node_hours,
        start_ms: None,
        end_ms: None,
        refused: None,
        unknown: None,
    };
    match start {
        Start::At { time, .. } => {
            view.start_ms = local_ms(&time);
            view.end_ms = view.start_ms.map(|ms| ms.saturating_add(work_ms(planned)));
        }
        Start::Refused(why) => view.refused = Some(why),
        Start::Unknown(why) => view.unknown = Some(why),
    }
    Ok(view)
}

/// How long the jobs take once all allocations have started: level by level, as many at once as fit.
fn work_ms(planned: &Planned) -> i64 {
    let seconds = |(level, allocations): (&Vec<usize>, &u32)| {
        let spans_nodes = planned.scheduler.nodes > 1 && !planned.start_one_worker_per_node;
        let nodes = if spans_nodes { 1 } else { planned.scheduler.nodes.max(1) };
        let at_once = u64::from(planned.jobs_at_once) * u64::from(*allocations) * u64::from(nodes);
        (level.len() as u64).div_ceil(at_once.max(1)) * planned.runtime_seconds
    };
    let seconds: u64 = planned.levels.iter().zip(&planned.allocations).map(seconds).sum();
    i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX)
}

fn advise(ways: &[WayView]) -> (Option<Way>, String) {
    let known: Vec<(&WayView, i64)> =
        ways.iter().filter_map(|way| way.end_ms.map(|end| (way, end))).collect();
    let small_loses_less =
        "a node that is lost takes less with it, and what has no work left is given back early";
    match known.as_slice() {
        [] => (None, "Slurm did not say when any would start".into()),
        [(only, _)] if ways.len() == 1 => {
            (Some(only.way), format!("{} is enough", human::count(only.allocations, "allocation")))
        }
        [(only, _)] => (Some(only.way), "Slurm would not take the other, or does not tell".into()),
        [(first, a), (second, b), ..] if a == b => (
            Some(first.way.min_loss(second.way)),
            format!("both end at the same time; {small_loses_less}"),
        ),
        [(first, a), (second, b), ..] => {
            let (best, earlier) = if a < b { (first, b - a) } else { (second, a - b) };
            (
                Some(best.way),
                format!("its jobs are done {} earlier", human::seconds(earlier as f64 / 1000.0)),
            )
        }
    }
}

impl Way {
    fn min_loss(self, other: Self) -> Self {
        if self == Self::ManySmall { self } else { other }
    }
}

fn render(view: &ComparisonView) -> String {
    let mut table = Table::new([
        "scheduler",
        "way",
        "partition",
        "allocations",
        "nodes",
        "walltime",
        "node-hours",
        "starts",
        "done",
    ]);
    let time = |ms: Option<i64>| ms.map(human::local_time);
    for group in &view.groups {
        for way in &group.ways {
            table.row([
                Field::text(&group.scheduler),
                Field::text(way.way.as_text()),
                Field::optional(way.partition.as_deref()),
                Field::number(i64::try_from(way.allocations).unwrap_or(i64::MAX)),
                Field::number(i64::from(way.nodes)),
                Field::right(&way.walltime),
                Field::right(format!("{:.1}", way.node_hours)),
                Field::optional(time(way.start_ms)),
                Field::optional(time(way.end_ms)),
            ]);
        }
    }
    let mut text = table.render();
    for group in &view.groups {
        for way in &group.ways {
            let what = way.way.as_text();
            if let Some(why) = &way.refused {
                let _ = writeln!(text, "Slurm would refuse {what}: {}", escape::line(why));
            }
            if let Some(why) = &way.unknown {
                let _ = writeln!(text, "Slurm does not tell about {what}: {}", escape::line(why));
            }
        }
        let name = escape::line(&group.scheduler);
        let _ = match group.advice {
            Some(way) => writeln!(text, "{name}: {}, because {}", way.as_text(), group.why),
            None => writeln!(text, "{name}: {}", group.why),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(way: Way, start_ms: Option<i64>, end_ms: Option<i64>) -> WayView {
        WayView {
            way,
            partition: None,
            allocations: 1,
            nodes: 1,
            walltime: String::new(),
            node_hours: 1.0,
            start_ms,
            end_ms,
            refused: None,
            unknown: None,
        }
    }

    #[test]
    fn the_way_that_ends_first_is_advised() {
        let (small, big) = (Way::ManySmall, Way::OneBig);
        let both = |a, b| advise(&[way(small, Some(0), Some(a)), way(big, Some(0), Some(b))]).0;
        assert_eq!(both(10, 20), Some(small));
        assert_eq!(both(20, 10), Some(big));
        assert_eq!(both(10, 10), Some(small));
        assert_eq!(advise(&[way(small, None, None), way(big, Some(0), Some(1))]).0, Some(big));
        assert_eq!(advise(&[way(small, None, None)]).0, None);
    }
}
