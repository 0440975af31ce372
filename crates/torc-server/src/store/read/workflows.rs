//! Workflows and their progress.

use super::page::{self, Filter, List, Paging, containing};
use super::runners::lease_begin;
use super::{Audience, ReadError, Reader};
use crate::store::Progress;
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, HashMap};
use torc_model::api::{
    EarlierView, IsCompleteView, Page, RevisionView, StatusView, WorkflowNotes, WorkflowOrigin,
    WorkflowProgress, WorkflowView,
};
use torc_model::digest;
use torc_model::ids::WorkflowId;
use torc_model::status::JobStatus;

const LIST: List = List {
    rows: "SELECT w.id, w.name, w.user, w.description, w.project, w.metadata, w.directory, w.spec_path, w.revision, w.created_ms, w.run_id, w.is_canceled, \
           w.is_archived, w.job_count, json_extract(w.settings, '$.use_pending_failed') AS use_pending_failed, \
           json_extract(w.settings, '$.enable_ro_crate') AS enable_ro_crate, \
           w.settings -> '$.slurm_defaults' AS slurm_defaults \
           FROM workflow w",
    table: "workflow w",
    key: "w.id",
    sorts: &[
        ("id", "w.id"),
        ("name", "w.name"),
        ("user", "w.user"),
        ("created_ms", "w.created_ms"),
    ],
};

/// A spec that is about to be run.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// This workflow only, if the token is limited to it.
    pub id: Option<i64>,
    /// Of workflows that these may see.
    pub audience: Audience,
    /// The name of its workflow.
    pub name: String,
    /// The directory in which it is run.
    pub directory: String,
    /// The file that it was read from.
    pub spec_path: Option<String>,
    /// The digest of its canonical form.
    pub spec_digest: Option<String>,
}

/// Which workflows.
#[derive(Clone, Default, Debug)]
pub struct WorkflowFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Only this one.
    pub id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
    /// Exactly this owner.
    pub user: Option<String>,
    /// Exactly this project.
    pub project: Option<String>,
    /// A part of the name or the description.
    pub search: Option<String>,
    /// Archived ones, or the others.
    pub is_archived: Option<bool>,
}

/// How many workflows have begun and are not complete.
pub const COUNT_ACTIVE: &str =
    "SELECT count(*) FROM workflow WHERE run_id > 0 AND is_complete = 0 AND is_archived = 0";

impl Reader {
    /// One page of workflows.
    pub async fn list_workflows(
        &self,
        filter: WorkflowFilter,
        paging: Paging,
    ) -> Result<Page<WorkflowView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("w.id = ?", filter.id)
                .seen_by("w.id", &filter.audience)
                .with("w.name = ?", filter.name)
                .with("w.user = ?", filter.user)
                .with("w.project = ?", filter.project)
                .with(
                    "(w.name || ' ' || coalesce(w.description, '')) LIKE ? ESCAPE '\\'",
                    filter.search.as_deref().map(containing),
                )
                .with("w.is_archived = ?", filter.is_archived);
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// The workflow that a spec describes, if it was run before.
    pub async fn find_earlier(&self, asked: Earlier) -> Result<EarlierView, ReadError> {
        self.read(move |connection| {
            let newest = |filter: Filter| {
                let filter = filter
                    .seen_by("w.id", &asked.audience)
                    .with("w.id = ?", asked.id)
                    .with("w.name = ?", Some(asked.name.clone()))
                    .with("w.directory = ?", Some(asked.directory.clone()))
                    .with("w.is_archived = ?", Some(false));
                let paging = Paging {
                    limit: 1,
                    sort_by: Some("id".into()),
                    reverse: true,
                    ..Paging::default()
                };
                let page: Page<WorkflowView> = LIST.page(connection, filter, &paging, view)?;
                Ok::<_, ReadError>(page.items.into_iter().next())
            };
            // One that was created without a file, through the API say, may be any file's.
            let mine = match &asked.spec_path {
                Some(path) => {
                    newest(Filter::default().with("w.spec_path = ?", Some(path.clone())))?
                }
                None => None,
            };
            let known = match mine {
                Some(mine) => Some(mine),
                None => newest(Filter::default().always("w.spec_path IS NULL"))?,
            };
            if known.is_some() {
                return Ok(EarlierView { workflow: known, other: None });
            }
            let other = newest(Filter::default())?;
            let (Some(found), Some(digest)) = (&other, &asked.spec_digest) else {
                return Ok(EarlierView { workflow: None, other });
            };
            let spec = spec_of(connection, found.id)?;
            Ok(match digest::of_spec(&spec) == *digest {
                true => EarlierView { workflow: other, other: None },
                false => EarlierView { workflow: None, other },
            })
        })
        .await
    }

    /// How far these workflows are; with what the writer says about those that it has in memory.
    pub async fn workflow_progress(
        &self,
        ids: Vec<(WorkflowId, Option<Progress>)>,
    ) -> Result<Vec<WorkflowProgress>, ReadError> {
        self.read(move |connection| {
            ids.into_iter().map(|(id, known)| progress_of(connection, id, known)).collect()
        })
        .await
    }

    /// One workflow.
    pub async fn get_workflow(&self, id: WorkflowId) -> Result<WorkflowView, ReadError> {
        self.read(move |connection| LIST.get(connection, "workflow", id.0, view)).await
    }

    /// What was applied to a workflow, newest first.
    pub async fn revisions(&self, id: WorkflowId) -> Result<Vec<RevisionView>, ReadError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number, made_ms, made_by, run_id, counts FROM revision WHERE workflow_id = ? \
                 ORDER BY number DESC",
            )?;
            let rows = statement.query_map([id.0], |row| {
                Ok(RevisionView {
                    revision: row.get("number")?,
                    made_ms: row.get("made_ms")?,
                    made_by: row.get("made_by")?,
                    run_id: row.get("run_id")?,
                    counts: page::json(row, "counts")?
                        .and_then(|counts| serde_json::from_value(counts).ok())
                        .unwrap_or_default(),
                })
            })?;
            let revisions: Vec<RevisionView> = rows.collect::<Result<_, _>>()?;
            match revisions.is_empty() {
                true => Err(ReadError::NotFound { what: "workflow", id: id.0 }),
                false => Ok(revisions),
            }
        })
        .await
    }

    /// The spec it was made from.
    pub async fn get_spec(&self, id: WorkflowId) -> Result<serde_json::Value, ReadError> {
        self.read(move |connection| spec_of(connection, id)).await
    }

    /// Whether every job is final. `known` is what the writer says about the workflow.
    pub async fn is_complete(
        &self,
        id: WorkflowId,
        known: Option<(Progress, u64)>,
    ) -> Result<IsCompleteView, ReadError> {
        if let Some((Progress { is_complete, is_canceled, .. }, _)) = known {
            return Ok(IsCompleteView { workflow_id: id, is_complete, is_canceled });
        }
        self.read(move |connection| {
            let sql = "SELECT is_complete, is_canceled FROM workflow WHERE id = ?";
            let view = connection.prepare_cached(sql)?.query_row([id.0], |row| {
                Ok(IsCompleteView {
                    workflow_id: id,
                    is_complete: row.get(0)?,
                    is_canceled: row.get(1)?,
                })
            });
            view.map_err(|error| missing(error, id))
        })
        .await
    }

    /// How many workflows have begun and are not complete.
    pub async fn count_active_workflows(&self) -> Result<i64, ReadError> {
        self.read(|connection| {
            Ok(connection.prepare_cached(COUNT_ACTIVE)?.query_row([], |row| row.get(0))?)
        })
        .await
    }

    /// A workflow's progress, as of `now_ms`. `known` is what the writer says about it: then the
    /// database is asked for the rest only, and only when that may have changed.
    pub async fn workflow_status(
        &self,
        id: WorkflowId,
        now_ms: i64,
        known: Option<(Progress, u64)>,
    ) -> Result<StatusView, ReadError> {
        let Some((progress, epoch)) = known else {
            return self
                .read(move |connection| {
                    let mut view = rest_of_status(connection, id, now_ms)?;
                    view.counts = counts(connection, id)?;
                    view.total = view.counts.values().sum();
                    Ok(view)
                })
                .await;
        };
        if let Some(view) = self.rests().whole(id, now_ms, (progress, epoch)) {
            return Ok(view.clone());
        }
        let mut view = self.read(move |connection| rest_of_status(connection, id, now_ms)).await?;
        complete(&mut view, progress);
        self.rests().put(epoch, now_ms, &view);
        Ok(view)
    }

    /// The same as text, if the database need not be asked.
    pub fn remembered_status(
        &self,
        id: WorkflowId,
        now_ms: i64,
        known: (Progress, u64),
    ) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(USUAL_BYTES);
        let mut rests = self.rests();
        serde_json::to_writer(&mut text, rests.whole(id, now_ms, known)?).ok()?;
        Some(text)
    }
}

fn spec_of(connection: &Connection, id: WorkflowId) -> Result<serde_json::Value, ReadError> {
    let mut statement = connection.prepare_cached("SELECT spec FROM workflow WHERE id = ?")?;
    let spec = statement.query_row([id.0], |row| page::json(row, "spec"));
    spec.map(Option::unwrap_or_default).map_err(|error| missing(error, id))
}

/// Most statuses fit.
const USUAL_BYTES: usize = 768;

/// Runners go out of contact by the clock, so the rest of a status is good for this long at most.
const REST_MS: i64 = 1000;
/// Beyond this many remembered workflows the memory is emptied.
const MAX_RESTS: usize = 1000;

/// The part of each workflow's status that claims and reports do not change.
#[derive(Default)]
pub struct RememberedStatuses(HashMap<WorkflowId, (u64, i64, StatusView)>);

impl RememberedStatuses {
    /// The whole status, if the rest of it is remembered and still good.
    fn whole(
        &mut self,
        id: WorkflowId,
        now_ms: i64,
        (progress, epoch): (Progress, u64),
    ) -> Option<&StatusView> {
        let (known, since, view) = self.0.get_mut(&id)?;
        if *known != epoch || !(0..REST_MS).contains(&(now_ms - *since)) {
            return None;
        }
        complete(view, progress);
        Some(view)
    }

    fn put(&mut self, epoch: u64, now_ms: i64, view: &StatusView) {
        if self.0.len() >= MAX_RESTS {
            self.0.clear();
        }
        self.0.insert(view.workflow_id, (epoch, now_ms, view.clone()));
    }
}

/// Puts into a status what the writer knows. Nothing is allocated when it has been done before.
fn complete(view: &mut StatusView, progress: Progress) {
    for status in JobStatus::ALL.iter().copied() {
        let count = progress.counts[status as usize].into();
        match view.counts.get_mut(status.as_str()) {
            Some(known) => *known = count,
            None => _ = view.counts.insert(status.as_str().into(), count),
        }
    }
    view.total = progress.counts.iter().copied().map(i64::from).sum();
    view.run_id = progress.run;
    view.is_complete = progress.is_complete;
    view.is_canceled = progress.is_canceled;
    view.last_end_ms = view.last_end_ms.max(progress.last_end_ms);
}

fn view(row: &Row<'_>) -> rusqlite::Result<WorkflowView> {
    Ok(WorkflowView {
        id: page::id(row, "id", WorkflowId)?,
        name: row.get("name")?,
        user: row.get("user")?,
        notes: WorkflowNotes {
            description: row.get("description")?,
            project: row.get("project")?,
            metadata: page::json(row, "metadata")?,
        },
        origin: WorkflowOrigin {
            directory: row.get("directory")?,
            spec_path: row.get("spec_path")?,
        },
        revision: row.get("revision")?,
        created_ms: row.get("created_ms")?,
        run_id: row.get("run_id")?,
        is_canceled: row.get("is_canceled")?,
        is_archived: row.get("is_archived")?,
        use_pending_failed: row.get::<_, Option<bool>>("use_pending_failed")?.unwrap_or_default(),
        enable_ro_crate: row.get::<_, Option<bool>>("enable_ro_crate")?.unwrap_or_default(),
        slurm_defaults: page::json(row, "slurm_defaults")?.unwrap_or_default(),
        job_count: row.get("job_count")?,
        progress: None,
    })
}

/// How far a workflow is. `known` is what the writer says about it.
fn progress_of(
    connection: &Connection,
    id: WorkflowId,
    known: Option<Progress>,
) -> Result<WorkflowProgress, ReadError> {
    let mut progress = connection
        .prepare_cached(
            "SELECT w.is_complete, w.run_started_ms, \
             (SELECT max(a.ended_ms) FROM attempt a WHERE a.workflow_id = w.id AND a.ended_ms IS NOT NULL), \
             (SELECT count(*) FROM compute_node n WHERE n.workflow_id = w.id AND n.ended_ms IS NULL) \
             FROM workflow w WHERE w.id = ?",
        )?
        .query_row([id.0], |row| {
            Ok(WorkflowProgress {
                is_complete: row.get(0)?,
                counts: BTreeMap::new(),
                started_ms: row.get(1)?,
                last_end_ms: row.get(2)?,
                active_runners: row.get(3)?,
            })
        })
        .map_err(|error| missing(error, id))?;
    progress.counts = match known {
        Some(known) => {
            progress.is_complete = known.is_complete;
            let named = JobStatus::ALL.iter();
            named.map(|s| (s.as_str().into(), known.counts[*s as usize].into())).collect()
        }
        None => counts(connection, id)?,
    };
    progress.counts.retain(|_, count| *count > 0);
    Ok(progress)
}

/// Everything but the number of jobs per status.
fn rest_of_status(
    connection: &Connection,
    id: WorkflowId,
    now_ms: i64,
) -> Result<StatusView, ReadError> {
    let sql = "SELECT name, run_id, is_complete, is_canceled, is_archived, run_started_ms, \
               (SELECT max(ended_ms) FROM attempt WHERE workflow_id = workflow.id AND ended_ms IS NOT NULL) \
               FROM workflow WHERE id = ?";
    let mut view = connection
        .prepare_cached(sql)?
        .query_row([id.0], |row| {
            Ok(StatusView {
                workflow_id: id,
                name: row.get(0)?,
                run_id: row.get(1)?,
                counts: BTreeMap::new(),
                total: 0,
                is_complete: row.get(2)?,
                is_canceled: row.get(3)?,
                is_archived: row.get(4)?,
                active_runners: 0,
                lost_contact_runners: 0,
                started_ms: row.get(5)?,
                last_end_ms: row.get(6)?,
                recovered_steps: 0,
                ignored_steps: 0,
            })
        })
        .map_err(|error| missing(error, id))?;
    // Word for word the condition of the index `attempt_mended`, which holds those few rows only.
    let sql = "SELECT coalesce(sum(steps ->> 'recovered'), 0), coalesce(sum(steps ->> 'ignored'), 0) FROM attempt \
               WHERE workflow_id = ?1 AND run_id = ?2 AND (steps ->> 'recovered' > 0 OR steps ->> 'ignored' > 0)";
    (view.recovered_steps, view.ignored_steps) = connection
        .prepare_cached(sql)?
        .query_row((id.0, view.run_id), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sql = "SELECT coalesce(sum(last_seen_ms >= ?2), 0), coalesce(sum(last_seen_ms < ?2), 0) \
               FROM compute_node WHERE workflow_id = ?1 AND ended_ms IS NULL";
    let since = lease_begin(now_ms);
    let mut statement = connection.prepare_cached(sql)?;
    (view.active_runners, view.lost_contact_runners) =
        statement.query_row((id.0, since), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(view)
}

/// Jobs per status; every status is there.
fn counts(connection: &Connection, id: WorkflowId) -> rusqlite::Result<BTreeMap<String, i64>> {
    let mut counts: BTreeMap<String, i64> =
        JobStatus::ALL.iter().map(|s| (s.as_str().into(), 0)).collect();
    let sql = "SELECT status, count(*) FROM job WHERE workflow_id = ? AND status_reason IS NOT 'removed' \
               GROUP BY status";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        // The schema admits no other codes.
        if let Some(status) = JobStatus::from_code(row.get(0)?) {
            counts.insert(status.as_str().into(), row.get(1)?);
        }
    }
    Ok(counts)
}

fn missing(error: rusqlite::Error, id: WorkflowId) -> ReadError {
    match error {
        rusqlite::Error::QueryReturnedNoRows => ReadError::NotFound { what: "workflow", id: id.0 },
        other => other.into(),
    }
}
