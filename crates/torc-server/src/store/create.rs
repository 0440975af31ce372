//! Creating a workflow: one plan, one transaction, all or nothing.

use super::access_groups;
use super::facts::{self, FileFact};
use super::history::History;
use super::job_rows::{JobInserter, NewRow, engine_job};
use super::journal::{self, ActionRow, NewWorkflowRow};
use super::named::Named;
use super::refusal::Refusal;
use super::shared_outputs;
use super::writer::{Failed, Tx};
use rusqlite::Connection;
use serde::Deserialize;
use torc_engine::commands::{AddWorkflow, TakeJobIds};
use torc_engine::{CompiledHandler, JobIx, NewAction, NewAttempt, NewJob, Workflow};
use torc_model::api::{CreateWorkflow, PlanCounts, PlannedChange, WorkflowCreated};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{ActionKind, Plan};
use torc_model::status::{ActionState, Origin};

/// [`CreateWorkflow`] as it arrives: its spec is read into the tree that plans are made from,
/// without a detour.
#[derive(Clone, Debug, Deserialize)]
pub struct Creation {
    /// The spec.
    pub spec: torc_spec::Raw,
    /// Owner.
    #[serde(default)]
    pub user: Option<String>,
    /// Initialize it in the same transaction.
    #[serde(default)]
    pub initialize: bool,
    /// Initialize it although input files are missing.
    #[serde(default)]
    pub force: bool,
    /// A repeat answers with the same workflow.
    #[serde(default)]
    pub key: Option<String>,
    /// Where it was submitted from.
    #[serde(default)]
    pub directory: Option<String>,
    /// The file that the spec was read from.
    #[serde(default)]
    pub spec_path: Option<String>,
    /// The person who asks for it; None: the server's owner, who says whose it is.
    #[serde(skip)]
    pub maker: Option<Maker>,
}

/// A person who makes a workflow: it is theirs, whatever the spec or the request says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Maker {
    /// Who.
    pub user: String,
    /// May share it with every group.
    pub is_admin: bool,
    /// The one group that their token is good for.
    pub group: Option<i64>,
}

impl From<CreateWorkflow> for Creation {
    fn from(request: CreateWorkflow) -> Self {
        let CreateWorkflow { spec, user, initialize, force, key, directory, spec_path } = request;
        Self { spec: spec.into(), user, initialize, force, key, directory, spec_path, maker: None }
    }
}

/// Stores a plan, with what was seen of its files if it is initialized at once. A repeat with the
/// same key answers with the workflow that the first one made.
pub fn create(
    tx: &mut Tx<'_>,
    request: &Creation,
    mut plan: Plan,
    seen: &[FileFact],
    warnings: Vec<String>,
) -> Result<WorkflowCreated, Failed> {
    let key = own_key(request);
    if let Some(known) = journal::workflows::made_with(tx.db, key.as_deref())? {
        return Ok(WorkflowCreated { warnings, ..known });
    }
    if request.initialize && !request.force {
        let own = |_: &Tx<'_>| Ok(shared_outputs::of_plan(&plan, request.directory.as_deref()));
        shared_outputs::refuse(tx, None, owner(request, &plan), own)?;
    }
    let id = insert_workflow(tx, request, key.as_deref(), &plan)?;
    let maker = request.maker.as_ref();
    let mut warnings = warnings;
    warnings.extend(access_groups::share_new(tx, id, &plan.access_groups, maker)?);
    let named = super::named::fresh(tx.db, id, &plan)?;
    let seen: Vec<FileFact> =
        seen.iter().zip(&named.files).map(|(f, id)| FileFact { id: *id, ..f.clone() }).collect();
    facts::record(tx.db, &seen)?;
    let first = tx.handle(TakeJobIds { count: plan.jobs.len() })?.0;
    super::map::set_limits(&mut plan.jobs, |index| JobId(first + index as i64));

    let compiled: Vec<CompiledHandler> = plan
        .failure_handlers
        .iter()
        .map(|h| {
            CompiledHandler::new(&h.name, &h.rules)
                .map_err(|e| Refusal::invalid("failure_handlers", e.to_string()))
        })
        .collect::<Result<_, _>>()?;
    let mut workflow = Workflow::new(id, plan.settings.clone(), compiled);
    workflow.reserve(plan.jobs.len());
    let history = History::read(tx.db, id, &plan.name, request.directory.as_deref())?;
    let families = history.of_families(&plan);
    super::history::write_families(tx.db, id, &families)?;
    workflow.restore_times(None, families);
    for (i, job) in plan.jobs.iter().enumerate() {
        let parents = job.depends_on.iter().map(|d| JobIx::new(*d)).collect();
        let row = JobId(first + i as i64);
        let new = engine_job(&plan, job, &named, row, i as i64, parents);
        workflow.add_job(NewJob { own_ms: history.of_job(&job.name), ..new });
    }
    super::map::tie(&plan, &mut workflow);
    insert_actions(tx.db, id, &plan, first, &mut workflow)?;
    workflow.settle();
    let initialize = request.initialize;
    let added = tx.begin(AddWorkflow { workflow: Box::new(workflow), initialize })?;
    for (name, max) in &plan.limits {
        // What a user set on the server holds for all its workflows.
        if !tx.state.engine.limits().contains_key(name) {
            super::reservations::set_limit(tx, name, *max)?;
        }
    }

    // Jobs go in as they stand after the initialization, so that each row is written once.
    let db = tx.db;
    insert_jobs(db, &plan, tx.workflow(id)?, &named, first, &history)?;
    drop(history);
    let user = owner(request, &plan).to_owned();
    let Plan { name, spec, jobs, .. } = plan;
    let job_count = jobs.len() as i64;
    drop(jobs);
    let now = tx.now;
    let workflow = tx.workflow(id)?;
    insert_first_attempts(db, workflow, now)?;
    let (run_id, typical_ms) = (workflow.run, workflow.typical_ms());
    tx.finish(added)?;
    let mut counts = PlanCounts { total: job_count, ..PlanCounts::default() };
    counts.changes.insert(PlannedChange::New, job_count);
    super::revise::write_revision(tx, id, 1, Some(&user), &counts)?;
    // Last, because a row is written as a whole whenever a part of it changes, and this may be tens
    // of megabytes.
    journal::set_spec(tx.db, id, &spec, typical_ms)?;
    Ok(WorkflowCreated { id, name, job_count, run_id, warnings })
}

fn owner<'a>(request: &'a Creation, plan: &'a Plan) -> &'a str {
    let said = || request.user.as_deref().or(plan.user.as_deref()).unwrap_or("unknown");
    request.maker.as_ref().map_or_else(said, |maker| &maker.user)
}

/// Two users may choose the same key: it is good for their own workflows only.
fn own_key(request: &Creation) -> Option<String> {
    let key = request.key.as_ref()?;
    Some(match &request.maker {
        Some(maker) => format!("{}/{key}", maker.user),
        None => key.clone(),
    })
}

fn insert_workflow(
    tx: &Tx<'_>,
    request: &Creation,
    key: Option<&str>,
    plan: &Plan,
) -> rusqlite::Result<WorkflowId> {
    let row = NewWorkflowRow {
        user: owner(request, plan),
        directory: request.directory.as_deref(),
        spec_path: request.spec_path.as_deref(),
        key,
        at: tx.now,
    };
    journal::insert_workflow(tx.db, plan, &row)
}

fn insert_jobs(
    db: &Connection,
    plan: &Plan,
    workflow: &Workflow,
    named: &Named,
    first: i64,
    history: &History,
) -> rusqlite::Result<()> {
    let mut inserter = JobInserter::new(db, workflow.id, plan, named)?;
    let mut parents = Vec::new();
    for (i, job) in plan.jobs.iter().enumerate() {
        parents.clear();
        parents.extend(job.depends_on.iter().map(|parent| JobId(first + *parent as i64)));
        let standing = workflow.job(JobIx::new(i));
        let row = NewRow {
            id: JobId(first + i as i64),
            position: i as i64,
            status: standing.status(),
            reason: standing.reason(),
            parents: &parents,
            added_by: None,
            own_ms: history.of_job(&job.name),
        };
        inserter.insert(job, &row)?;
    }
    Ok(())
}

/// What the initialization queued.
fn insert_first_attempts(db: &Connection, workflow: &Workflow, now: i64) -> rusqlite::Result<()> {
    for job in workflow.jobs() {
        let Some(attempt) = job.live() else { continue };
        let new = NewAttempt {
            id: attempt,
            job: job.id(),
            run: workflow.run,
            number: job.attempt(),
            origin: Origin::Initial,
            retry_of: None,
            not_before: None,
            recovery: None,
            at: now,
        };
        super::journal::queue(db, workflow.id, &new)?;
    }
    Ok(())
}

fn insert_actions(
    db: &Connection,
    id: WorkflowId,
    plan: &Plan,
    first: i64,
    workflow: &mut Workflow,
) -> rusqlite::Result<()> {
    for action in &plan.actions {
        let jobs: Vec<JobId> = action.jobs.iter().map(|j| JobId(first + *j as i64)).collect();
        let row = ActionRow {
            trigger: action.trigger,
            what: &action.what,
            jobs: &jobs,
            persistent: action.persistent,
            is_recovery: false,
        };
        let row = journal::insert_action(db, id, &row)?;
        workflow.add_action(NewAction {
            id: row,
            trigger: action.trigger,
            jobs: action.jobs.iter().map(|j| JobIx::new(*j)).collect(),
            persistent: action.persistent,
            is_recovery: false,
            schedules_nodes: matches!(action.what, ActionKind::ScheduleNodes { .. }),
            state: ActionState::Waiting,
            by: None,
        });
    }
    Ok(())
}
