//! What the page shows of a workflow. Each answer is small however many jobs there are, and made
//! once for all pages that ask.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::{Answer, App};
use crate::clock::now_ms;
use crate::store::FamilyCounts;
use crate::store::read::{FamilyIndex, Grouping, MAX_GROUPS};
use axum::extract::State;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use torc_model::api::{
    CriticalPathView, FailureGroup, FamiliesView, FamilyResources, FamilyView, GraphGroup,
    GraphNode, GraphView, Page,
};
use torc_model::filter::Filter;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::layout::Place;
use torc_model::status::JobStatus;
use utoipa::IntoParams;

const MAX_HOPS: i64 = 10;
/// Bytes that a compiled pattern may take.
const MAX_REGEX: usize = 1 << 20;

impl App {
    async fn family_index(&self, id: WorkflowId) -> Result<Arc<FamilyIndex>, ApiError> {
        let workflow = self.reader().get_workflow(id).await?;
        // Jobs are added by maps, families change with an edited spec, which starts the next run.
        let stamp = workflow.job_count + (workflow.run_id << 32);
        let make = async { Ok(self.reader().family_index(id).await?) };
        self.inner.shown.index.get(id, stamp, make).await
    }

    /// Jobs per family and status: from the engine's memory, or from the database when the workflow
    /// is not there.
    pub(super) async fn family_counts(
        &self,
        id: WorkflowId,
    ) -> Result<(Arc<FamilyIndex>, Arc<FamilyCounts>), ApiError> {
        let index = self.family_index(id).await?;
        let stamp = self.reader().last_event_id(id).await?;
        let make = async {
            if self.store().progress(id).is_none() {
                return Ok(self.reader().count_families(id, index.names.len()).await?);
            }
            let families = Arc::new(index.of_jobs.clone());
            if let Some(counts) = self.store().count_families(id, families).await? {
                return Ok(counts);
            }
            self.inner.shown.index.forget(id);
            Ok(self.reader().count_families(id, index.names.len()).await?)
        };
        let counts = self.inner.shown.counts.get(id, stamp, make).await?;
        Ok((index, counts))
    }

    /// Jobs per status, with those that a revision took out, if that is known without counting: the
    /// writer tells it of workflows it was asked about, a page has counted one at rest.
    pub(super) async fn job_counts(&self, id: WorkflowId) -> Result<Option<[u32; 11]>, ApiError> {
        if let Some((progress, _)) = self.store().progress(id) {
            return Ok(Some(progress.listed()));
        }
        let stamp = self.reader().last_event_id(id).await?;
        let Some(counts) = self.inner.shown.counts.as_of(id, stamp).await else {
            return Ok(None);
        };
        let (counts, jobs) = (summed(&counts), self.family_index(id).await?.of_jobs.len());
        Ok((sum(&counts) == jobs as i64).then_some(counts))
    }

    /// The newest event: as long as it is the same, nothing has happened.
    pub(super) async fn stamp(&self, id: WorkflowId) -> Result<i64, ApiError> {
        self.reader().get_workflow(id).await?;
        Ok(self.reader().last_event_id(id).await?)
    }
}

fn named(counts: &[u32; 11]) -> BTreeMap<String, i64> {
    let named = |status: &JobStatus| {
        let count = i64::from(counts[*status as usize]);
        (count > 0).then(|| (status.as_str().to_owned(), count))
    };
    JobStatus::ALL.iter().filter_map(named).collect()
}

pub(super) fn summed(counts: &FamilyCounts) -> [u32; 11] {
    let mut all = [0u32; 11];
    for family in counts {
        all.iter_mut().zip(family).for_each(|(sum, count)| *sum += count);
    }
    all
}

/// The counts that a filter by family and status leaves.
fn left_by(filter: &Filter, index: &FamilyIndex, counts: &FamilyCounts) -> FamilyCounts {
    let statuses = filter.statuses();
    let left = |(number, counts): (usize, &[u32; 11])| {
        let mut left = [0u32; 11];
        if index.names.get(number).is_some_and(|name| filter.leaves_family(name)) {
            for status in &statuses {
                left[*status as usize] = counts[*status as usize];
            }
        }
        left
    };
    counts.iter().enumerate().map(left).collect()
}

fn sum(counts: &[u32; 11]) -> i64 {
    counts.iter().copied().map(i64::from).sum()
}

/// Which jobs of the families.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetFamilies {
    /// Count only the jobs that this filter finds, as for `/jobs`.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    pub filter: Option<String>,
}

/// A workflow by families: what jobs of each stand where, and how the run goes.
#[utoipa::path(
    get,
    path = "/workflows/{id}/families",
    operation_id = "get_families",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow."), GetFamilies),
    responses((status = 200, description = "The families.", body = FamiliesView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_families(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetFamilies>,
) -> Answer<FamiliesView> {
    let id = WorkflowId(id);
    caller.check(id)?;
    let filter = super::jobs::matching(query.filter.as_deref())?;
    let (index, mut counts) = app.family_counts(id).await?;
    if !filter.terms.is_empty() {
        // What a revision took out is in no count, and lists show it.
        let is_whole = sum(&summed(&counts)) == index.of_jobs.len() as i64;
        counts = Arc::new(match filter.is_by_family() && is_whole {
            true => left_by(&filter, &index, &counts),
            false => app.reader().count_matching(id, filter, index.names.len()).await?,
        });
    }
    let now = now_ms();
    let around = app.reader().surroundings(id, now).await?;
    let stamp = app.reader().last_event_id(id).await?;
    let begin = around.started_ms.unwrap_or(now);
    let end = if around.is_complete { around.last_end_ms.unwrap_or(now) } else { now };
    let make = async { Ok(app.reader().pace(id, begin, end).await?) };
    let pace = app.inner.shown.pace.get(id, stamp, make).await?;
    let family = |(number, counts): (usize, &[u32; 11])| FamilyView {
        number: number as i64,
        name: index.names.get(number).cloned().unwrap_or_else(|| "jobs".into()),
        total: sum(counts),
        counts: named(counts),
    };
    let all = summed(&counts);
    Ok(Json(FamiliesView {
        workflow_id: id,
        name: around.name,
        run_id: around.run_id,
        at_ms: now,
        started_ms: around.started_ms,
        last_end_ms: around.last_end_ms,
        is_complete: around.is_complete,
        is_canceled: around.is_canceled,
        counts: named(&all),
        total: sum(&all),
        families: counts.iter().enumerate().map(family).collect(),
        cpus: around.cpus,
        lost_contact_runners: around.lost_contact_runners,
        queue: around.queue,
        pace: (*pace).clone(),
    }))
}

/// Failures of a workflow by cause, those with the most jobs lost first.
#[utoipa::path(
    get,
    path = "/workflows/{id}/failures",
    operation_id = "list_failures",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "At most 50 groups.", body = Page<FailureGroup>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_failures(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Page<FailureGroup>> {
    let id = WorkflowId(id);
    caller.check(id)?;
    Ok(Json(Page::whole((*app.failure_groups(id).await?).clone())))
}

impl App {
    /// The groups, made once for all who look.
    pub(super) async fn failure_groups(
        &self,
        id: WorkflowId,
    ) -> Result<Arc<Vec<FailureGroup>>, ApiError> {
        let stamp = self.stamp(id).await?;
        let make = async { Ok(self.reader().failure_groups(id).await?) };
        self.inner.shown.failures.get(id, stamp, make).await
    }
}

/// What the families of a workflow asked for and used in its current run.
#[utoipa::path(
    get,
    path = "/workflows/{id}/resources",
    operation_id = "list_family_resources",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "One row per family in which an attempt succeeded.", body = Page<FamilyResources>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_resources(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Page<FamilyResources>> {
    let id = WorkflowId(id);
    caller.check(id)?;
    let make = async { Ok(app.reader().family_resources(id).await?) };
    let rows = app.inner.shown.resources.get(id, app.stamp(id).await?, make).await?;
    Ok(Json(Page::whole((*rows).clone())))
}

/// Which graph.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetGraph {
    /// What a node stands for: `family` unless given, `prefix`, `pattern` or `job`.
    #[param(value_type = Option<GraphGroup>)]
    pub group: Option<String>,
    /// For `pattern`: a regular expression whose first capture names the group of a job.
    pub pattern: Option<String>,
    /// The jobs of the family with this number instead: up to 60 as nodes with what is next to them,
    /// more as cells.
    pub open: Option<i64>,
    /// Cells from this one on.
    #[param(minimum = 0)]
    pub offset: Option<i64>,
    /// The jobs around this one instead of the families.
    pub focus: Option<i64>,
    /// Up to this many steps away from it; 2 unless given.
    #[param(minimum = 1, maximum = 10)]
    pub hops: Option<i64>,
    /// With `focus`: the jobs on all ways between the two, whichever comes first.
    pub to: Option<i64>,
}

impl GetGraph {
    /// None: by families.
    fn grouping(&self) -> Result<Option<Grouping>, ApiError> {
        let word = |text: &str| {
            super::query::word("group", text, GraphGroup::parse, GraphGroup::ALL, |group| {
                group.as_str()
            })
        };
        let group = self.group.as_deref().map(word).transpose()?.unwrap_or(GraphGroup::Family);
        if self.pattern.is_some() && group != GraphGroup::Pattern {
            let message = "`pattern` is for `group=pattern`";
            return Err(ApiError::bad_query("pattern", message));
        }
        Ok(match group {
            GraphGroup::Family => None,
            GraphGroup::Prefix => Some(Grouping::Prefix),
            GraphGroup::Job => Some(Grouping::Job),
            GraphGroup::Pattern => Some(Grouping::Pattern(self.regex()?)),
        })
    }

    fn regex(&self) -> Result<Regex, ApiError> {
        let text = self.pattern.as_deref().unwrap_or_default();
        let refused = |message: String| {
            ApiError::bad_query("pattern", message).hint(r"one capture: `^(.*)_\d+$`")
        };
        let regex = RegexBuilder::new(text).size_limit(MAX_REGEX).build();
        let regex = regex.map_err(|error| refused(error.to_string()))?;
        match regex.captures_len() {
            2 => Ok(regex),
            n => Err(refused(format!("`{text}` has {} captures; it needs one", n - 1))),
        }
    }
}

/// The graph of a workflow by families or other groups, or the jobs around one of them, laid out.
#[utoipa::path(
    get,
    path = "/workflows/{id}/graph",
    operation_id = "get_graph",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow."), GetGraph),
    responses((status = 200, description = "Nodes with their places, and edges.", body = GraphView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_graph(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetGraph>,
) -> Answer<GraphView> {
    let id = WorkflowId(id);
    caller.check(id)?;
    let hops = query.hops.unwrap_or(2);
    if !(1..=MAX_HOPS).contains(&hops) {
        let message = format!("`hops` is {hops}; it goes from 1 to {MAX_HOPS}");
        return Err(ApiError::bad_query("hops", message));
    }
    let offset = query.offset.unwrap_or(0);
    if offset < 0 {
        return Err(ApiError::bad_query(
            "offset",
            format!("`offset` is {offset}; it begins with 0"),
        ));
    }
    let grouping = query.grouping()?;
    if query.to.is_some() && query.focus.is_none() {
        return Err(ApiError::bad_query("to", "`to` needs `focus`, where the ways begin"));
    }
    for job in [query.focus, query.to].into_iter().flatten() {
        if app.reader().workflow_of_job(JobId(job)).await? != id {
            return Err(ApiError::not_found(format!("workflow {id} has no job {job}")));
        }
    }
    match (query.focus, query.to) {
        (Some(job), Some(to)) => {
            return Ok(Json(app.reader().graph_between(id, JobId(job), JobId(to)).await?));
        }
        (Some(job), None) => {
            return Ok(Json(app.reader().graph_around(JobId(job), hops as usize).await?));
        }
        (None, _) => {}
    }
    if let Some(family) = query.open {
        let index = app.family_index(id).await?;
        if !usize::try_from(family).is_ok_and(|number| number < index.names.len()) {
            return Err(ApiError::not_found(format!("workflow {id} has no family {family}")));
        }
        return Ok(Json(app.reader().opened_family(id, family, offset).await?));
    }
    match grouping {
        Some(grouping) => app.regrouped(id, grouping).await.map(Json),
        None => app.family_graph(id).await.map(Json),
    }
}

impl App {
    async fn family_graph(&self, id: WorkflowId) -> Result<GraphView, ApiError> {
        let (index, counts) = self.family_counts(id).await?;
        let stamp = index.of_jobs.len() as i64;
        let size = index.names.len();
        let make = async { Ok(self.reader().family_graph(id, size).await?) };
        let graph = self.inner.shown.graph.get(id, stamp, make).await?;
        let node = |(number, name): (usize, &String)| {
            let id = number as i64;
            let filter = format!(
                "family:{}",
                if name.contains(' ') { format!("\"{name}\"") } else { name.clone() }
            );
            graph_node(id, name, Some(filter), counts.get(number), graph.places.get(number))
        };
        Ok(GraphView {
            workflow_id: id,
            group: GraphGroup::Family,
            nodes: index.names.iter().enumerate().map(node).collect(),
            edges: graph.edges.clone(),
            left_out: 0,
            cells: Vec::new(),
        })
    }

    async fn regrouped(&self, id: WorkflowId, grouping: Grouping) -> Result<GraphView, ApiError> {
        self.reader().get_workflow(id).await?;
        let group = grouping.word();
        let Some(made) = self.reader().regrouped(id, grouping).await? else {
            let message = format!("workflow {id} has more than {MAX_GROUPS} such groups");
            return Err(ApiError::bad_query("group", message)
                .hint("group its jobs by family or prefix, or look around one job with `focus`"));
        };
        let counts = self.group_counts(id, &made.index).await?;
        let node = |(number, name): (usize, &String)| {
            let filter = made.filters[number].clone();
            let place = made.graph.places.get(number);
            graph_node(made.ids[number], name, filter, counts.get(number), place)
        };
        Ok(GraphView {
            workflow_id: id,
            group,
            nodes: made.index.names.iter().enumerate().map(node).collect(),
            edges: made.graph.edges,
            left_out: 0,
            cells: Vec::new(),
        })
    }

    /// Jobs per group and status.
    async fn group_counts(
        &self,
        id: WorkflowId,
        index: &FamilyIndex,
    ) -> Result<FamilyCounts, ApiError> {
        if self.store().progress(id).is_some() {
            let groups = Arc::new(index.of_jobs.clone());
            if let Some(counts) = self.store().count_families(id, groups).await? {
                return Ok(counts);
            }
        }
        Ok(self.reader().count_groups(id, index).await?)
    }
}

fn graph_node(
    id: i64,
    name: &str,
    filter: Option<String>,
    counts: Option<&[u32; 11]>,
    place: Option<&Place>,
) -> GraphNode {
    let (counts, place) = (counts.copied().unwrap_or_default(), place.copied().unwrap_or_default());
    GraphNode {
        id,
        name: name.to_owned(),
        filter,
        total: sum(&counts),
        counts: named(&counts),
        rank: i64::from(place.rank),
        across: f64::from(place.across),
    }
}

/// The jobs that decide when the run can end, and where its time went.
#[utoipa::path(
    get,
    path = "/workflows/{id}/critical_path",
    operation_id = "get_critical_path",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "The path.", body = CriticalPathView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_critical_path(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<CriticalPathView> {
    let id = WorkflowId(id);
    caller.check(id)?;
    let make = async { Ok(app.reader().critical_path(id, now_ms()).await?) };
    let path = app.inner.shown.critical_path.get(id, app.stamp(id).await?, make).await?;
    Ok(Json((*path).clone()))
}
