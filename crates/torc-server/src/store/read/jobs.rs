//! Jobs, with the names of what they point to.

use super::page::{self, Filter, List, Paging, containing};
use super::{Audience, ReadError, Reader, matching};
use crate::store::journal::lookups;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, Row};
use std::collections::HashMap;
use torc_model::api::{JobView, LastAttempt, Page, PulseJob};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::{Cause, EstimateSource, JobStatus, StatusReason};
use torc_model::units::{Memory, Runtime};

/// What the newest attempt of a job has in this column.
macro_rules! newest {
    ($column:literal) => {
        concat!(
            "(SELECT a.",
            $column,
            " FROM attempt a WHERE a.job_id = j.id AND a.state <> 'queued' ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1)"
        )
    };
}

const LIST: List = List {
    rows: "SELECT j.id, j.workflow_id, j.name, j.command, j.status, j.status_reason, j.attempt_id, j.priority, \
           j.cancel_on_blocking_job_failure, j.held, j.extra, \
           r.name AS resource_requirements, coalesce(j.num_cpus, r.num_cpus, 1) AS num_cpus, coalesce(j.num_gpus, r.num_gpus, 0) AS num_gpus, \
           coalesce(r.num_nodes, 1) AS num_nodes, coalesce(j.memory_bytes, r.memory_bytes) AS memory_bytes, \
           coalesce(j.runtime_seconds, r.runtime_seconds) AS runtime_seconds, \
           h.name AS failure_handler, s.name AS scheduler, \
           coalesce(fam.name, 'jobs') AS family, j.estimate_ms AS own_ms, fam.estimate_ms AS family_ms, \
           fam.estimate_run = (SELECT w.run_id FROM workflow w WHERE w.id = j.workflow_id) AS is_family_now, \
           (SELECT a.return_code FROM attempt a WHERE a.job_id = j.id AND a.ended_ms IS NOT NULL \
            ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1) AS return_code, \
           (SELECT json_array(a.steps ->> 'recovered', a.steps ->> 'ignored') FROM attempt a \
            WHERE a.job_id = j.id AND a.ended_ms IS NOT NULL \
            ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1) AS step_counts \
           FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
           LEFT JOIN family fam ON fam.workflow_id = j.workflow_id AND fam.number = j.family \
           LEFT JOIN failure_handler h ON h.id = j.failure_handler_id \
           LEFT JOIN slurm_scheduler s ON s.id = j.scheduler_id",
    table: "job j",
    key: "j.id",
    sorts: &[
        ("id", "j.id"),
        ("name", "j.name"),
        ("status", "j.status"),
        ("priority", "j.priority"),
        ("position", "j.position"),
        ("attempt_id", "j.attempt_id"),
        ("started", newest!("started_ms")),
        ("time", newest!("exec_seconds")),
        ("memory", newest!("peak_memory_bytes")),
    ],
};

/// Which jobs.
#[derive(Clone, Default, Debug)]
pub struct JobFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// In one of these states; empty: any.
    pub status: Vec<JobStatus>,
    /// Exactly this name.
    pub name: Option<String>,
    /// A part of the name.
    pub search: Option<String>,
    /// Depends directly on this job.
    pub upstream_job_id: Option<i64>,
    /// Reads this file.
    pub needs_file_id: Option<i64>,
    /// Now on this runner.
    pub compute_node_id: Option<i64>,
    /// Held back, or not.
    pub held: Option<bool>,
    /// Say what each of them depends on.
    pub with_dependencies: bool,
    /// In the filter language.
    pub matching: torc_model::filter::Filter,
    /// With an id above this one: the next page of a list in the order of ids.
    pub after: Option<i64>,
    /// Tell of the newest attempt of each.
    pub with_last: bool,
}

impl JobFilter {
    /// The statuses that it leaves.
    fn statuses(&self) -> Vec<JobStatus> {
        let mut left = self.matching.statuses();
        left.retain(|status| self.status.is_empty() || self.status.contains(status));
        left
    }

    /// How many jobs it lets through, if that is known without looking at them.
    fn count(&self, known: Option<[u32; 11]>) -> Option<i64> {
        let Self {
            audience: Audience::All,
            workflow_id: Some(_),
            status: _,
            name: None,
            search: None,
            upstream_job_id: None,
            needs_file_id: None,
            compute_node_id: None,
            held: None,
            with_dependencies: _,
            matching,
            after: None,
            with_last: _,
        } = self
        else {
            return None;
        };
        if !matching.is_by_status() {
            return None;
        }
        let counts = known?;
        Some(self.statuses().iter().map(|status| i64::from(counts[*status as usize])).sum())
    }
}

impl Reader {
    /// One page of jobs. `known` is how many of their workflow are in each status, if they are of one
    /// and that was counted.
    pub async fn list_jobs(
        &self,
        filter: JobFilter,
        paging: Paging,
        known: Option<[u32; 11]>,
    ) -> Result<Page<JobView>, ReadError> {
        self.read(move |connection| {
            let (with_dependencies, with_last) = (filter.with_dependencies, filter.with_last);
            let count = filter.count(known);
            let mut page = LIST.page_of(connection, conditions(filter), &paging, count, view)?;
            if with_dependencies {
                for job in &mut page.items {
                    job.depends_on_job_ids =
                        Some(dependencies(connection, job.workflow_id, job.id)?);
                }
            }
            if with_last {
                for job in &mut page.items {
                    job.last = last_attempt(connection, job.id)?;
                }
            }
            Ok(page)
        })
        .await
    }

    /// One job, with its dependencies and rarer settings.
    pub async fn get_job(&self, id: JobId) -> Result<JobView, ReadError> {
        self.read(move |connection| {
            let (mut job, extra) = LIST
                .get(connection, "job", id.0, |row| Ok((view(row)?, page::json(row, "extra")?)))?;
            job.extra = extra;
            job.depends_on_job_ids = Some(dependencies(connection, job.workflow_id, id)?);
            Ok(job)
        })
        .await
    }

    /// The names of a few jobs.
    pub async fn names_of_jobs(
        &self,
        ids: Vec<JobId>,
    ) -> Result<HashMap<JobId, String>, ReadError> {
        self.read(move |connection| {
            let mut names = HashMap::new();
            for id in ids {
                names.extend(lookups::job_name(connection, id)?.map(|name| (id, name)));
            }
            Ok(names)
        })
        .await
    }

    /// The states of a few jobs of a workflow.
    pub async fn job_states(
        &self,
        workflow: WorkflowId,
        ids: Vec<i64>,
    ) -> Result<Vec<PulseJob>, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT status, attempt_id FROM job WHERE id = ?1 AND workflow_id = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut states = Vec::with_capacity(ids.len());
            for id in ids {
                states
                    .extend(statement.find((id, workflow.0), |row| {
                        Ok(PulseJob(id, row.get(0)?, row.get(1)?))
                    })?);
            }
            Ok(states)
        })
        .await
    }

    /// The workflow of a job.
    pub async fn workflow_of_job(&self, id: JobId) -> Result<WorkflowId, ReadError> {
        self.workflow_of(super::Thing::Job, id.0).await
    }
}

fn conditions(filter: JobFilter) -> Filter {
    let all = matching::in_statuses(Filter::default(), &filter.statuses());
    let all = all
        .with("j.workflow_id = ?", filter.workflow_id)
        .seen_by("j.workflow_id", &filter.audience)
        .with("j.name = ?", filter.name)
        .with("j.name LIKE ? ESCAPE '\\'", filter.search.as_deref().map(containing))
        .with(
            "j.id IN (SELECT d.job_id FROM job_depends_on d JOIN job u ON u.workflow_id = d.workflow_id \
             WHERE u.id = ? AND d.depends_on_job_id = u.id)",
            filter.upstream_job_id,
        )
        .with(
            "EXISTS (SELECT 1 FROM job_item i WHERE i.job_id = j.id AND i.kind = 'input_file' AND i.item_id = ?)",
            filter.needs_file_id,
        )
        .with(
            "j.status IN (3, 4) AND EXISTS (SELECT 1 FROM attempt a WHERE a.workflow_id = j.workflow_id \
             AND a.job_id = j.id AND a.ended_ms IS NULL AND a.compute_node_id = ?)",
            filter.compute_node_id,
        )
        .with("j.held = ?", filter.held)
        .with("j.id > ?", filter.after);
    matching::other_conditions(all, &filter.matching)
}

fn last_attempt(connection: &Connection, job: JobId) -> rusqlite::Result<Option<LastAttempt>> {
    let sql = "SELECT a.run_id, a.attempt_id, a.started_ms, a.ended_ms, a.exec_seconds, a.peak_memory_bytes, \
               a.memory_bytes, n.hostname, a.cause, a.pid, a.cpu_seconds FROM attempt a LEFT JOIN compute_node n ON n.id = a.compute_node_id \
               WHERE a.job_id = ? AND a.state <> 'queued' ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1";
    connection.prepare_cached(sql)?.find([job.0], |row| {
        Ok(LastAttempt {
            run_id: row.get(0)?,
            attempt_id: row.get(1)?,
            started_ms: row.get(2)?,
            ended_ms: row.get(3)?,
            exec_seconds: row.get(4)?,
            peak_memory_bytes: row.get(5)?,
            memory_bytes: row.get(6)?,
            hostname: row.get(7)?,
            cause: page::maybe_word(row, "cause", Cause::parse)?,
            pid: row.get("pid")?,
            cpu_seconds: row.get("cpu_seconds")?,
        })
    })
}

fn view(row: &Row<'_>) -> rusqlite::Result<JobView> {
    let status: i64 = row.get("status")?;
    let memory: Option<i64> = row.get("memory_bytes")?;
    let runtime: Option<i64> = row.get("runtime_seconds")?;
    let counts: Option<String> = row.get("step_counts")?;
    let counts: [Option<i64>; 2] =
        counts.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let estimate = estimate(row, runtime)?;
    Ok(JobView {
        estimate_seconds: estimate.map(|(seconds, _)| seconds),
        estimate_source: estimate.map(|(_, source)| source),
        id: page::id(row, "id", JobId)?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        name: row.get("name")?,
        command: row.get("command")?,
        status: JobStatus::from_code(status)
            .ok_or(rusqlite::Error::IntegralValueOutOfRange(4, status))?,
        attempt_id: row.get("attempt_id")?,
        priority: row.get("priority")?,
        resource_requirements: row.get("resource_requirements")?,
        num_cpus: row.get("num_cpus")?,
        num_gpus: row.get("num_gpus")?,
        num_nodes: row.get("num_nodes")?,
        memory: memory.map(memory_text),
        runtime: runtime.map(runtime_text),
        failure_handler: row.get("failure_handler")?,
        scheduler: row.get("scheduler")?,
        cancel_on_blocking_job_failure: row.get("cancel_on_blocking_job_failure")?,
        held: row.get("held")?,
        status_reason: page::maybe_word(row, "status_reason", StatusReason::parse)?,
        depends_on_job_ids: None,
        extra: None,
        return_code: row.get("return_code")?,
        family: row.get("family")?,
        last: None,
        recovered_steps: counts[0].unwrap_or(0),
        ignored_steps: counts[1].unwrap_or(0),
    })
}

/// How long a job is expected to take, in the order in which the engine asks.
fn estimate(
    row: &Row<'_>,
    runtime: Option<i64>,
) -> rusqlite::Result<Option<(f64, EstimateSource)>> {
    let (own, family): (Option<i64>, Option<i64>) = (row.get("own_ms")?, row.get("family_ms")?);
    let is_now = row.get::<_, Option<bool>>("is_family_now")?.unwrap_or(false);
    let of_family = if is_now { EstimateSource::Family } else { EstimateSource::FamilyEarlier };
    let found = own
        .map(|ms| (ms, EstimateSource::Own))
        .or(family.map(|ms| (ms, of_family)))
        .or(runtime.map(|seconds| (seconds * 1000 / 3, EstimateSource::Runtime)));
    Ok(found.map(|(ms, source)| (ms as f64 / 1000.0, source)))
}

/// The jobs that a job depends on.
pub(super) fn dependencies(
    connection: &Connection,
    workflow: WorkflowId,
    job: JobId,
) -> rusqlite::Result<Vec<JobId>> {
    let sql = "SELECT depends_on_job_id FROM job_depends_on WHERE workflow_id = ? AND job_id = ? ORDER BY 1";
    connection.prepare_cached(sql)?.all((workflow.0, job.0), |row| row.get(0).map(JobId))
}

/// Bytes as people write them.
pub fn memory_text(bytes: i64) -> String {
    Memory(bytes.max(0).unsigned_abs()).to_string()
}

/// Seconds as people write them.
pub fn runtime_text(seconds: i64) -> String {
    Runtime(seconds.max(0).unsigned_abs()).to_string()
}
