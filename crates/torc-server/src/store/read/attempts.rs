//! Attempts: those of a job, and the ended ones of a workflow (`/results`).

use super::super::waiting;
use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use rusqlite::{Connection, Row};
use torc_model::api::{AttemptView, Page};
use torc_model::ids::{AttemptId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::{AttemptState, Cause, EndDetail, EndedBy, Origin, Outcome};

const ROWS: &str = "SELECT a.*, j.name AS job_name, n.hostname FROM attempt a JOIN job j ON j.id = a.job_id \
                    LEFT JOIN compute_node n ON n.id = a.compute_node_id";

/// In the order in which they were made.
const LIST: List = List { rows: ROWS, table: "attempt a", key: "a.id", sorts: &[("id", "a.id")] };

/// In the order in which they ended: the order of the index over ended attempts.
const RESULTS: List = List {
    rows: ROWS,
    table: "attempt a",
    key: "a.id",
    sorts: &[
        ("ended_ms", "a.ended_ms"),
        ("id", "a.id"),
        ("job_id", "a.job_id"),
        ("return_code", "a.return_code"),
        ("exec_seconds", "a.exec_seconds"),
        ("peak_memory_bytes", "a.peak_memory_bytes"),
    ],
};

/// Which attempts.
#[derive(Clone, Default, Debug)]
pub struct AttemptFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Of this job.
    pub job_id: Option<i64>,
    /// Of this run.
    pub run_id: Option<i64>,
    /// In this state.
    pub state: Option<AttemptState>,
    /// With this return code.
    pub return_code: Option<i64>,
    /// For this reason.
    pub cause: Option<Cause>,
    /// On this runner.
    pub compute_node_id: Option<i64>,
    /// Only the newest ended one of each job.
    pub latest: bool,
    /// With what happened to each that failed.
    pub diagnosis: bool,
}

/// Where an attempt's output is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptLogs {
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Its run.
    pub run_id: i64,
    /// Its number in the run.
    pub attempt_id: i64,
    /// Standard output, as the runner reported it.
    pub stdout_path: Option<String>,
    /// Standard error, as the runner reported it.
    pub stderr_path: Option<String>,
    /// Standard output of its recovery script, as the runner reported it.
    pub script_stdout_path: Option<String>,
    /// Standard error of its recovery script.
    pub script_stderr_path: Option<String>,
    /// The runner's output directory.
    pub output_dir: Option<String>,
    /// The pool runner on its machine, while that is there.
    pub pool_runner: Option<PoolRunnerId>,
}

impl Reader {
    /// The attempts of a job over all runs, oldest first.
    pub async fn list_attempts(
        &self,
        job: JobId,
        paging: Paging,
    ) -> Result<Page<AttemptView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default().with("a.job_id = ?", Some(job.0));
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// Ended attempts.
    pub async fn list_results(
        &self,
        filter: AttemptFilter,
        paging: Paging,
    ) -> Result<Page<AttemptView>, ReadError> {
        self.read(move |connection| {
            let mut conditions = Filter::default()
                .always("a.ended_ms IS NOT NULL")
                .with("a.workflow_id = ?", filter.workflow_id)
.seen_by("a.workflow_id", &filter.audience)
                .with("a.job_id = ?", filter.job_id)
                .with("a.run_id = ?", filter.run_id)
                .with("a.state = ?", filter.state.map(|s| s.as_str().to_string()))
                .with("a.return_code = ?", filter.return_code)
                .with("a.cause = ?", filter.cause.map(|c| c.as_str().to_string()))
                .with("a.compute_node_id = ?", filter.compute_node_id);
            if filter.latest {
                conditions = conditions.always(
                    "NOT EXISTS (SELECT 1 FROM attempt b WHERE b.job_id = a.job_id \
                     AND (b.run_id, b.attempt_id) > (a.run_id, a.attempt_id) AND b.ended_ms IS NOT NULL)",
                );
            }
            let mut page = RESULTS.page(connection, conditions, &paging, view)?;
            if filter.diagnosis {
                let is_failure = |a: &&mut AttemptView| a.state != AttemptState::Completed;
                for attempt in page.items.iter_mut().filter(is_failure) {
                    let failed = waiting::failed(connection, attempt.id.0)?;
                    attempt.diagnosis = failed.and_then(|f| f.diagnosis()).map(Box::new);
                }
            }
            Ok(page)
        })
        .await
    }

    /// One attempt.
    pub async fn get_attempt(&self, id: AttemptId) -> Result<AttemptView, ReadError> {
        self.read(move |connection| LIST.get(connection, "attempt", id.0, view)).await
    }

    /// Where the output of a job's attempt is: of the newest one that has started, unless `run_id`
    /// or `attempt_id` say otherwise.
    pub async fn find_logs(
        &self,
        job: JobId,
        run_id: Option<i64>,
        attempt_id: Option<i64>,
    ) -> Result<Option<AttemptLogs>, ReadError> {
        self.read(move |connection| {
            let which = "(?2 IS NULL OR a.run_id = ?2) AND (?3 IS NULL OR a.attempt_id = ?3)";
            logs(connection, which, (job.0, run_id, attempt_id))
        })
        .await
    }

    /// Where the output of the attempt is that started before this one.
    pub async fn find_logs_before(
        &self,
        job: JobId,
        run_id: i64,
        attempt_id: i64,
    ) -> Result<Option<AttemptLogs>, ReadError> {
        self.read(move |connection| {
            let which = "(a.run_id, a.attempt_id) < (?2, ?3)";
            logs(connection, which, (job.0, run_id, attempt_id))
        })
        .await
    }
}

/// An attempt whose samples may be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledAttempt {
    /// Its run.
    pub run_id: i64,
    /// Its number in the run.
    pub attempt_id: i64,
    /// Its start.
    pub started_ms: i64,
    /// Its end.
    pub ended_ms: Option<i64>,
    /// Memory that it may use.
    pub memory_bytes: Option<i64>,
    /// The runner's output directory.
    pub output_dir: Option<String>,
    /// What the runner's samples are named by.
    pub tag: String,
}

impl Reader {
    /// The newest attempt of a job that has started, unless `run_id` or `attempt_id` say otherwise.
    pub async fn sampled_attempt(
        &self,
        job: JobId,
        run_id: Option<i64>,
        attempt_id: Option<i64>,
    ) -> Result<Option<SampledAttempt>, ReadError> {
        use rusqlite::OptionalExtension as _;
        self.read(move |connection| {
            let sql = "SELECT a.run_id, a.attempt_id, a.started_ms, a.ended_ms, a.memory_bytes, n.output_dir, n.id, \
                       (SELECT value FROM meta WHERE key = 'database_id') \
                       FROM attempt a LEFT JOIN compute_node n ON n.id = a.compute_node_id \
                       WHERE a.job_id = ?1 AND a.started_ms IS NOT NULL AND (?2 IS NULL OR a.run_id = ?2) \
                       AND (?3 IS NULL OR a.attempt_id = ?3) ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1";
            let found = connection.prepare_cached(sql)?.query_row((job.0, run_id, attempt_id), |row| {
                let runner = RunnerId(row.get::<_, Option<i64>>(6)?.unwrap_or(0));
                let database: String = row.get(7)?;
                Ok(SampledAttempt {
                    run_id: row.get(0)?,
                    attempt_id: row.get(1)?,
                    started_ms: row.get(2)?,
                    ended_ms: row.get(3)?,
                    memory_bytes: row.get(4)?,
                    output_dir: row.get(5)?,
                    tag: crate::store::load::runner_tag(&database, runner),
                })
            });
            Ok(found.optional()?)
        })
        .await
    }
}

/// The newest attempt of a job that has started, of those that a condition names.
fn logs(
    connection: &Connection,
    which: &str,
    values: impl rusqlite::Params,
) -> Result<Option<AttemptLogs>, ReadError> {
    use rusqlite::OptionalExtension as _;
    let sql = format!(
        "SELECT a.workflow_id, a.run_id, a.attempt_id, a.stdout_path, a.stderr_path, n.output_dir, \
         a.script ->> '$.stdout_path', a.script ->> '$.stderr_path', \
         (SELECT p.id FROM pool_runner p WHERE p.id = n.pool_runner_id AND p.ended_ms IS NULL) \
         FROM attempt a LEFT JOIN compute_node n ON n.id = a.compute_node_id \
         WHERE a.job_id = ?1 AND a.started_ms IS NOT NULL AND {which} ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1"
    );
    let logs = connection.prepare_cached(&sql)?.query_row(values, |row| {
        Ok(AttemptLogs {
            workflow_id: row.get(0).map(WorkflowId)?,
            run_id: row.get(1)?,
            attempt_id: row.get(2)?,
            stdout_path: row.get(3)?,
            stderr_path: row.get(4)?,
            output_dir: row.get(5)?,
            script_stdout_path: row.get(6)?,
            script_stderr_path: row.get(7)?,
            pool_runner: row.get::<_, Option<i64>>(8)?.map(PoolRunnerId),
        })
    });
    Ok(logs.optional()?)
}

fn view(row: &Row<'_>) -> rusqlite::Result<AttemptView> {
    Ok(AttemptView {
        diagnosis: None,
        id: page::id(row, "id", AttemptId)?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        job_id: page::id(row, "job_id", JobId)?,
        job_name: row.get("job_name")?,
        run_id: row.get("run_id")?,
        attempt_id: row.get("attempt_id")?,
        state: page::word(row, "state", AttemptState::parse)?,
        origin: page::word(row, "origin", Origin::parse)?,
        retry_of: page::maybe_id(row, "retry_of", AttemptId)?,
        not_before_ms: row.get("not_before_ms")?,
        created_ms: row.get("created_ms")?,
        claimed_ms: row.get("claimed_ms")?,
        started_ms: row.get("started_ms")?,
        ended_ms: row.get("ended_ms")?,
        compute_node_id: page::maybe_id(row, "compute_node_id", RunnerId)?,
        hostname: row.get("hostname")?,
        pid: row.get("pid")?,
        return_code: row.get("return_code")?,
        signal: row.get("signal")?,
        ended_by: page::maybe_word(row, "ended_by", EndedBy::parse)?,
        cause: page::maybe_word(row, "cause", Cause::parse)?,
        detail: page::maybe_word(row, "detail", EndDetail::parse)?,
        error: row.get("error")?,
        evidence: page::json(row, "evidence")?.unwrap_or_default(),
        exec_seconds: row.get("exec_seconds")?,
        cpu_seconds: row.get("cpu_seconds")?,
        peak_memory_bytes: row.get("peak_memory_bytes")?,
        peak_cpu_percent: row.get("peak_cpu_percent")?,
        memory_bytes: row.get("memory_bytes")?,
        time_limit_seconds: row.get("time_limit_seconds")?,
        stdout_path: row.get("stdout_path")?,
        stderr_path: row.get("stderr_path")?,
        stderr_tail: row.get("stderr_tail")?,
        stderr_tail_start: row.get("stderr_tail_start")?,
        observed: page::json(row, "observed")?,
        outcome: page::maybe_word(row, "outcome", Outcome::parse)?,
        decision: row.get("decision")?,
        rule: row.get("rule")?,
        recovery: page::json(row, "recovery")?,
        script: page::json(row, "script")?,
        steps: page::json(row, "steps")?,
    })
}
