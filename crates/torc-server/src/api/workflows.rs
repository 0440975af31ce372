//! Workflows: their lists, their life, their progress.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, LARGE, OptionalBody, Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::tokens::TokenScope;
use super::{Answer, App};
use crate::clock::now_ms;
use crate::store::read::{Earlier, WorkflowFilter};
use crate::store::{Creation, Maker};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use torc_model::api::{
    ApplyOptions, ApplyRequest, ApplyView, CreateWorkflow, EarlierView, ErrorCode, ImportWorkflow,
    IsCompleteView, Page, PruneRequest, PruneView, ReinitializeRequest, RemovedFiles, ResetRequest,
    ResetView, RevisionView, Role, StatusView, UpdateWorkflow, WorkflowCreated, WorkflowView,
};
use torc_model::ids::{JobId, WorkflowId};
use utoipa::IntoParams;

list_query! {
    /// Which workflows.
    ListWorkflows {
        /// Exactly this name.
        name: Option<String>,
        /// Exactly this owner.
        user: Option<String>,
        /// Exactly this project.
        project: Option<String>,
        /// A part of the name or the description.
        search: Option<String>,
        /// Archived ones instead of the others.
        is_archived: Option<bool>,
        /// Archived ones as well.
        include_archived: Option<bool>,
        /// Say how far each of them is.
        include_progress: Option<bool>,
    }
}

/// Lists workflows.
#[utoipa::path(
    get,
    path = "/workflows",
    operation_id = "list_workflows",
    tag = "workflows",
    params(ListWorkflows),
    responses((status = 200, description = "One page of workflows.", body = Page<WorkflowView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_workflows(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListWorkflows>,
) -> Answer<Page<WorkflowView>> {
    let paging = query.paging()?;
    let hidden = !query.include_archived.unwrap_or_default();
    let within = app.within(&caller, None).await?;
    let filter = WorkflowFilter {
        id: within.workflow_id,
        audience: within.audience,
        name: query.name,
        user: query.user,
        project: query.project,
        search: query.search,
        is_archived: query.is_archived.or(hidden.then_some(false)),
    };
    let mut page = app.reader().list_workflows(filter, paging).await?;
    if query.include_progress.unwrap_or_default() {
        let known = |w: &WorkflowView| (w.id, app.store().progress(w.id).map(|(known, _)| known));
        let ids = page.items.iter().map(known).collect();
        let progress = app.reader().workflow_progress(ids).await?;
        for (workflow, progress) in page.items.iter_mut().zip(progress) {
            workflow.progress = Some(progress);
        }
    }
    Ok(Json(page))
}

/// Creates a workflow from a spec, in one transaction.
#[utoipa::path(
    post,
    path = "/workflows",
    operation_id = "create_workflow",
    tag = "workflows",
    request_body = CreateWorkflow,
    responses((status = 200, description = "It is there.", body = WorkflowCreated), Refusals)
)]
pub async fn create_workflow(
    State(app): State<App>,
    caller: Caller,
    Body(mut request): Body<Creation, LARGE>,
) -> Answer<WorkflowCreated> {
    request.maker = maker(&caller)?;
    Ok(Json(app.store().create_workflow(request).await?))
}

/// Creates a workflow with what happened to it elsewhere, in one transaction. Ids are given anew.
#[utoipa::path(
    post,
    path = "/workflows/import",
    operation_id = "import_workflow",
    tag = "workflows",
    request_body = ImportWorkflow,
    responses((status = 200, description = "It is there.", body = WorkflowCreated), Refusals)
)]
pub async fn import_workflow(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<ImportWorkflow, LARGE>,
) -> Answer<WorkflowCreated> {
    let ImportWorkflow { spec, user, directory, key, past } = request;
    let creation = Creation {
        spec: spec.into(),
        user,
        initialize: false,
        force: false,
        key,
        directory,
        spec_path: None,
        maker: maker(&caller)?,
    };
    let is_owner = caller.person().is_none();
    Ok(Json(app.store().import_workflow(creation, past, is_owner).await?))
}

/// The person who makes a workflow; None: as the request says.
fn maker(caller: &Caller) -> Result<Option<Maker>, ApiError> {
    let Some(person) = caller.person() else { return Ok(None) };
    let group = match person.scope {
        TokenScope::User => None,
        TokenScope::Group(id) => Some(id),
        TokenScope::Workflow(id) => {
            return Err(ApiError::forbidden(format!("this token is good for workflow {id} only")));
        }
    };
    Ok(Some(Maker { user: person.user.to_string(), is_admin: person.role == Role::Admin, group }))
}

/// Which spec is about to be run.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EarlierQuery {
    /// The name of its workflow.
    pub name: String,
    /// The directory in which it is run.
    pub directory: String,
    /// The file that it was read from, from the root; none: standard input.
    pub spec_path: Option<String>,
    /// The SHA-256 of its canonical form, with sorted keys; needed only when an answer without it
    /// names a workflow of another file.
    pub spec_digest: Option<String>,
}

/// Finds the workflow that a spec describes, if it was run before.
///
/// It is the newest of its name that was made from this file in this directory, else one that was
/// made without a file, else one with the same spec.
#[utoipa::path(
    get,
    path = "/workflows/earlier",
    operation_id = "find_earlier_workflow",
    tag = "workflows",
    params(EarlierQuery),
    responses((status = 200, description = "The workflow, or none.", body = EarlierView), Refusals)
)]
pub async fn find_earlier(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<EarlierQuery>,
) -> Answer<EarlierView> {
    let within = app.within(&caller, None).await?;
    let EarlierQuery { name, directory, spec_path, spec_digest } = query;
    let (id, audience) = (within.workflow_id, within.audience);
    let asked = Earlier { id, audience, name, directory, spec_path, spec_digest };
    Ok(Json(app.reader().find_earlier(asked).await?))
}

/// One workflow.
#[utoipa::path(
    get,
    path = "/workflows/{id}",
    operation_id = "get_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "The workflow.", body = WorkflowView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_workflow(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<WorkflowView> {
    caller.check(WorkflowId(id))?;
    Ok(Json(app.reader().get_workflow(WorkflowId(id)).await?))
}

/// Changes what a workflow says about itself.
#[utoipa::path(
    put,
    path = "/workflows/{id}",
    operation_id = "update_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = UpdateWorkflow,
    responses((status = 200, description = "The workflow as it is now.", body = WorkflowView), Refusals)
)]
pub async fn update_workflow(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<UpdateWorkflow>,
) -> Answer<WorkflowView> {
    let id = WorkflowId(id);
    if request.user.is_none() {
        app.store().update_workflow(id, request).await?;
    } else if caller.walled().is_some_and(|person| request.user.as_deref() != Some(&*person.user)) {
        return Err(ApiError::forbidden("only admins give a workflow another owner").field("user"));
    } else {
        let owner = app.reader().get_workflow(id).await?.user;
        if caller.walled().is_some_and(|person| *person.user != *owner) {
            return Err(
                ApiError::forbidden("only admins give a workflow another owner").field("user")
            );
        }
        let of = app.clone();
        app.change_walls(async move { Ok(of.store().update_workflow(id, request).await?) }).await?;
    }
    Ok(Json(app.reader().get_workflow(id).await?))
}

/// How to delete a workflow.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteWorkflow {
    /// Although jobs are running.
    pub force: bool,
    /// Remove logs and samples of its jobs too; refused while jobs run.
    pub files: bool,
}

/// Deletes a workflow with everything that belongs to it.
#[utoipa::path(
    delete,
    path = "/workflows/{id}",
    operation_id = "delete_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), DeleteWorkflow),
    responses((status = 200, description = "It is gone, with these files.", body = RemovedFiles), Refusals)
)]
pub async fn delete_workflow(
    State(app): State<App>,
    Path(id): Path<i64>,
    Query(query): Query<DeleteWorkflow>,
) -> Answer<RemovedFiles> {
    let (id, store) = (WorkflowId(id), app.store());
    let removed = match query.files {
        true => store.delete_with_files(id, query.force).await?,
        false => store.delete_workflow(id, query.force).await.map(|()| RemovedFiles::default())?,
    };
    Ok(Json(removed))
}

/// Deletes workflows that ended long ago.
#[utoipa::path(
    post,
    path = "/workflows/prune",
    operation_id = "prune_workflows",
    tag = "workflows",
    request_body = PruneRequest,
    responses((status = 200, description = "What was deleted, or would be.", body = PruneView), Refusals)
)]
pub async fn prune_workflows(
    State(app): State<App>,
    Body(request): Body<PruneRequest>,
) -> Answer<PruneView> {
    Ok(Json(app.store().prune(request).await?))
}

/// The spec a workflow was made from.
#[utoipa::path(
    get,
    path = "/workflows/{id}/spec",
    operation_id = "get_workflow_spec",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "The spec, as it was read.", body = Value), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_spec(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Value> {
    caller.check(WorkflowId(id))?;
    Ok(Json(app.reader().get_spec(WorkflowId(id)).await?))
}

/// A workflow's progress.
#[utoipa::path(
    get,
    path = "/workflows/{id}/status",
    operation_id = "get_workflow_status",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "Its progress.", body = StatusView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_status(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<StatusView> {
    caller.check(WorkflowId(id))?;
    let known = app.store().progress(WorkflowId(id));
    Ok(Json(app.reader().workflow_status(WorkflowId(id), now_ms(), known).await?))
}

/// Whether every job of a workflow is final.
#[utoipa::path(
    get,
    path = "/workflows/{id}/is_complete",
    operation_id = "is_workflow_complete",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "Whether it is complete.", body = IsCompleteView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_is_complete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<IsCompleteView> {
    caller.check(WorkflowId(id))?;
    let known = app.store().progress(WorkflowId(id));
    Ok(Json(app.reader().is_complete(WorkflowId(id), known).await?))
}

/// How to initialize.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InitializeQuery {
    /// Go on although input files are missing.
    pub force: bool,
}

/// Starts a run with all jobs that are not initialized.
#[utoipa::path(
    post,
    path = "/workflows/{id}/initialize",
    operation_id = "initialize_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), InitializeQuery),
    responses((status = 200, description = "The jobs that run.", body = ResetView), Refusals)
)]
pub async fn initialize(
    State(app): State<App>,
    Path(id): Path<i64>,
    Query(query): Query<InitializeQuery>,
) -> Answer<ResetView> {
    Ok(Json(app.store().initialize(WorkflowId(id), query.force).await?))
}

/// How to reinitialize; the body may say the same.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReinitializeQuery {
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Go on although input files are missing.
    pub force: bool,
    /// The run that the caller has seen; refused when another caller has begun the next one.
    pub run_id: Option<i64>,
}

/// Starts a run with what has changed since the last one.
#[utoipa::path(
    post,
    path = "/workflows/{id}/reinitialize",
    operation_id = "reinitialize_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), ReinitializeQuery),
    request_body = Option<ReinitializeRequest>,
    responses((status = 200, description = "The jobs that run again, and why.", body = ResetView), Refusals)
)]
pub async fn reinitialize(
    State(app): State<App>,
    Path(id): Path<i64>,
    Query(query): Query<ReinitializeQuery>,
    OptionalBody(body): OptionalBody<ReinitializeRequest>,
) -> Answer<ResetView> {
    let request = ReinitializeRequest {
        dry_run: query.dry_run || body.dry_run,
        force: query.force || body.force,
        spec: body.spec,
        run_id: query.run_id.or(body.run_id),
    };
    Ok(Json(app.store().reinitialize(WorkflowId(id), request).await?))
}

/// [`ApplyRequest`] as it arrives: its spec is read into the tree that plans are made from, without a
/// detour.
#[derive(Clone, Debug, Deserialize)]
pub struct ApplyBody {
    /// The spec.
    #[serde(default)]
    spec: Option<torc_spec::Raw>,
    /// Options of the application.
    #[serde(flatten)]
    how: ApplyOptions,
}

/// Applies a spec to a workflow: new jobs are added, changed ones run again, missing ones are removed,
/// in one transaction and also while it runs.
#[utoipa::path(
    post,
    path = "/workflows/{id}/apply",
    operation_id = "apply_spec",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = ApplyRequest,
    responses((status = 200, description = "What was done, or would be.", body = ApplyView), Refusals)
)]
pub async fn apply(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<ApplyBody, LARGE>,
) -> Answer<ApplyView> {
    let by = caller.person().map(|person| Maker {
        user: person.user.to_string(),
        is_admin: person.role == Role::Admin,
        group: None,
    });
    let of = app.clone();
    // A spec says with which groups its workflow is shared.
    let work = async move {
        Ok(of.store().apply_by(WorkflowId(id), request.spec, request.how, by).await?)
    };
    Ok(Json(app.change_walls(work).await?))
}

/// What was applied to a workflow, newest first; revision 1 is its creation.
#[utoipa::path(
    get,
    path = "/workflows/{id}/revisions",
    operation_id = "list_revisions",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "Its revisions.", body = Vec<RevisionView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_revisions(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Vec<RevisionView>> {
    caller.check(WorkflowId(id))?;
    Ok(Json(app.reader().revisions(WorkflowId(id)).await?))
}

/// Which jobs to reset; the body may say the same.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResetQuery {
    /// Only jobs that ended badly or wait for a verdict, and what follows them.
    pub failed_only: bool,
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Go on although jobs are running.
    pub force: bool,
    /// Only these jobs, by name, and what follows them. May be repeated.
    pub job: Vec<String>,
    /// Only these jobs, by id, and what follows them. May be repeated.
    pub job_id: Vec<i64>,
    /// The run that the caller has seen; refused when another caller has begun the next one.
    pub run_id: Option<i64>,
}

/// Resets jobs, so that they run again.
#[utoipa::path(
    post,
    path = "/workflows/{id}/reset_status",
    operation_id = "reset_workflow_status",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), ResetQuery),
    request_body = Option<ResetRequest>,
    responses((status = 200, description = "The jobs that run again, and why.", body = ResetView), Refusals)
)]
pub async fn reset_status(
    State(app): State<App>,
    Path(id): Path<i64>,
    Query(query): Query<ResetQuery>,
    OptionalBody(body): OptionalBody<ResetRequest>,
) -> Answer<ResetView> {
    let mut jobs = body.jobs;
    jobs.extend(query.job);
    for job in query.job_id {
        jobs.push(name_of(&app, WorkflowId(id), JobId(job)).await?);
    }
    let request = ResetRequest {
        failed_only: query.failed_only || body.failed_only,
        jobs,
        dry_run: query.dry_run || body.dry_run,
        force: query.force || body.force,
        run_id: query.run_id.or(body.run_id),
    };
    Ok(Json(app.store().reset_status(WorkflowId(id), request).await?))
}

async fn name_of(app: &App, workflow: WorkflowId, job: JobId) -> Result<String, ApiError> {
    let view = app.reader().get_job(job).await?;
    if view.workflow_id == workflow {
        return Ok(view.name);
    }
    let message = format!("job {job} does not belong to workflow {workflow}");
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::WrongWorkflow, message)
        .field("job_id"))
}

/// Cancels a workflow: nothing new starts, what runs is stopped.
#[utoipa::path(
    post,
    path = "/workflows/{id}/cancel",
    operation_id = "cancel_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "Its progress.", body = StatusView), Refusals)
)]
pub async fn cancel_workflow(State(app): State<App>, Path(id): Path<i64>) -> Answer<StatusView> {
    app.store().cancel_workflow(WorkflowId(id)).await?;
    let known = app.store().progress(WorkflowId(id));
    Ok(Json(app.reader().workflow_status(WorkflowId(id), now_ms(), known).await?))
}
