//! When a workflow is expected to be over: a copy of the engine's state is run to its end, away from
//! the writer. Of a large workflow only what is left is copied, and nothing is simulated.

use super::Store;
use super::job_rows::engine_job;
use super::journal::{allocations, runners};
use super::named::Named;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use crate::blocking::blocking;
use torc_engine::{
    Forecast, HandlerIx, JobIx, Limits, MAX_SIMULATED, Rest, SimulatedMachine, Workflow,
};
use torc_model::api::Capacity;
use torc_model::forecast::{ForecastView, LimitedBy, Machines};
use torc_model::ids::{JobId, RunnerId, WorkflowId};
use torc_model::plan::Plan;
use torc_model::slurm::parse_clock;

/// Machines that are only assumed have numbers that no runner has.
const ASSUMED: i64 = 1 << 40;

/// Keeps the numbers of the nodes of two allocations apart.
const MOST_NODES: i64 = 1 << 20;

/// The part of the engine's state that a forecast is made from.
enum Basis {
    /// All of it, to simulate the rest.
    Whole(Box<Workflow>),
    /// How much there is to do: a copy of a million jobs would hold up the writer.
    Rest(Rest),
}

/// What a forecast is made from.
struct Snapshot {
    basis: Basis,
    limits: Limits,
    machines: Vec<SimulatedMachine>,
    /// It is complete, and all of it runs once more.
    is_again: bool,
    /// Nodes were asked for, and none is there yet.
    waits_for_nodes: bool,
    now: i64,
}

impl Store {
    /// When a workflow is expected to be over, with the runners that are there or with others, and
    /// with or without its failures tried again now.
    pub async fn forecast(
        &self,
        id: WorkflowId,
        assumed: Machines,
        recover: bool,
    ) -> Result<ForecastView, Refusal> {
        let snapshot =
            self.writer.call_routine(move |tx| snapshot(tx, id, &assumed, recover)).await?;
        blocking(move || snapshot.view(Some(id)))
            .await
            .map_err(|_| Refusal::internal("the forecast could not be made"))
    }
}

fn snapshot(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    assumed: &Machines,
    recover: bool,
) -> Result<Snapshot, Failed> {
    let now = tx.now;
    let state = tx.workflow(id)?;
    if recover && state.len() > MAX_SIMULATED {
        let message = format!(
            "workflow {id} has more than {MAX_SIMULATED} jobs; what its recovery would take is not simulated"
        );
        return Err(Refusal::invalid("recover", message).into());
    }
    let is_again = state.is_complete() && !recover;
    let basis = if state.len() > MAX_SIMULATED {
        Basis::Rest(state.rest(now))
    } else {
        Basis::Whole(Box::new(state.copy_to_simulate(recover, now)))
    };
    let mut machines = assumed_machines(assumed, now);
    if machines.is_empty() {
        let runners = tx.state.engine.runners().of(id);
        machines.extend(runners.map(|(runner, known)| SimulatedMachine {
            until: known.stop_by,
            label: known.label.clone(),
            scheduler: known.scheduler,
            ..SimulatedMachine::new(runner, known.capacity.clone(), now)
        }));
        machines.extend(planned_machines(tx, id)?);
    }
    let mut waits_for_nodes = false;
    if machines.is_empty() {
        waits_for_nodes = allocations::has_waiting(tx.db, id)?;
        machines = assumed_machines(&Machines { nodes: Some(1), ..Machines::default() }, now);
        let last = runners::capacities(tx.db, id, None, 1)?.pop();
        if let (Some((_, known)), [machine]) = (last, &mut machines[..]) {
            machine.capacity = known;
        }
    }
    let limits = tx.state.engine.limits().clone();
    Ok(Snapshot { basis, limits, machines, is_again, waits_for_nodes, now })
}

/// Nodes that wait in Slurm's queue, from when Slurm plans to start them. Those for which Slurm has
/// said nothing are left out, and so are those of which it is not known what they will have: no
/// runner of this workflow has reported from such a node.
fn planned_machines(tx: &Tx<'_>, id: WorkflowId) -> Result<Vec<SimulatedMachine>, Failed> {
    let mut machines = Vec::new();
    for one in allocations::expected(tx.db, id)? {
        // What nodes of this scheduler had, or else nodes of another one.
        let mut known = runners::capacities(tx.db, id, Some(one.scheduler), 1)?;
        if known.is_empty() {
            known = runners::capacities(tx.db, id, None, 1)?;
        }
        let Some((_, capacity)) = known.pop() else { continue };
        let from = one.start_ms.max(tx.now);
        let walltime = parse_clock(&one.definition.walltime).flatten();
        let nodes = if one.one_worker_per_node { one.definition.nodes.max(1) } else { 1 };
        for node in 0..i64::from(nodes) {
            let number = RunnerId(ASSUMED + one.id * MOST_NODES + node);
            machines.push(SimulatedMachine {
                until: walltime.map(|seconds| from.saturating_add(seconds as i64 * 1000)),
                scheduler: Some(one.scheduler),
                ..SimulatedMachine::new(number, capacity.clone(), from)
            });
        }
    }
    Ok(machines)
}

/// Machines as a caller wants them; none where nothing is said.
fn assumed_machines(assumed: &Machines, now: i64) -> Vec<SimulatedMachine> {
    if *assumed == Machines::default() {
        return Vec::new();
    }
    let here = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
    let capacity = Capacity {
        num_cpus: assumed.cores.unwrap_or(here),
        // What is not said holds nothing back.
        memory_bytes: assumed.memory_bytes.unwrap_or(i64::MAX / 2),
        num_gpus: assumed.gpus.unwrap_or(0),
        num_nodes: 1,
        ..Capacity::default()
    };
    (0..assumed.nodes.unwrap_or(1).max(1))
        .map(|number| SimulatedMachine::new(RunnerId(ASSUMED + number), capacity.clone(), now))
        .collect()
}

impl Snapshot {
    fn view(self, id: Option<WorkflowId>) -> ForecastView {
        let forecast: Forecast = match self.basis {
            Basis::Whole(workflow) => workflow.forecast(&self.machines, &self.limits, self.now),
            Basis::Rest(rest) => rest.forecast(&self.machines, self.now),
        };
        let seconds = |ms: i64| ms.max(0) as f64 / 1000.0;
        let limited_by = match self.waits_for_nodes {
            true => LimitedBy::Queue,
            false => forecast.bound.by,
        };
        let cpus = self
            .machines
            .iter()
            .map(|machine| machine.capacity.num_cpus * machine.capacity.equal_nodes())
            .sum();
        ForecastView {
            workflow_id: id,
            is_again: self.is_again,
            seconds: seconds(forecast.ms),
            low_seconds: seconds(forecast.low_ms),
            high_seconds: seconds(forecast.high_ms),
            bound_seconds: forecast.bound.ms / 1000.0,
            limited_by,
            jobs: forecast.jobs as i64,
            unknown_jobs: forecast.unknown as i64,
            stuck_jobs: forecast.left as i64,
            nodes: self.machines.len() as i64,
            cpus,
        }
    }
}

/// The same for a plan that was not submitted. Nothing is known of its jobs but their `runtime`.
pub fn of_plan(plan: &Plan, assumed: &Machines) -> ForecastView {
    let mut workflow = Workflow::new(WorkflowId(0), plan.settings.clone(), Vec::new());
    let named = Named {
        requirements: Vec::new(),
        handlers: Vec::new(),
        schedulers: vec![0; plan.slurm_schedulers.len()],
        files: Vec::new(),
        user_data: Vec::new(),
        families: (0..plan.families.len() as u32).collect(),
        handler_indexes: vec![HandlerIx::default(); plan.failure_handlers.len()],
    };
    for (index, job) in plan.jobs.iter().enumerate() {
        let parents = job.depends_on.iter().map(|parent| JobIx::new(*parent)).collect();
        let mut new = engine_job(plan, job, &named, JobId(index as i64 + 1), index as i64, parents);
        new.handler = None;
        new.class.scheduler = None;
        workflow.add_job(new);
    }
    super::map::tie(plan, &mut workflow);
    workflow.settle();
    workflow.initialize_unstored(0);
    workflow.take_changes();
    let limits: Limits = plan
        .limits
        .iter()
        .map(|(name, max)| {
            (name.clone(), torc_engine::LimitUse { max: *max, ..Default::default() })
        })
        .collect();
    let assumed = Machines { nodes: assumed.nodes.or(Some(1)), ..assumed.clone() };
    let machines = assumed_machines(&assumed, 0);
    let basis = match plan.jobs.len() > MAX_SIMULATED {
        true => Basis::Rest(workflow.rest(0)),
        false => Basis::Whole(Box::new(workflow)),
    };
    let snapshot =
        Snapshot { basis, limits, machines, is_again: false, waits_for_nodes: false, now: 0 };
    snapshot.view(None)
}
