//! What the server is asked about jobs before they can be told of.

use super::super::recap::Failure;
use crate::error::Result;
use crate::output::live::NAMED;
use crate::output::{escape, human};
use std::time::Duration;
use torc_client::{Client, Query};
use torc_model::api::{EventView, JobView};
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::Cause;

/// What must be known of an event's job to tell of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Nothing more than the event says.
    None,
    /// Its name.
    Name,
    /// Why it failed.
    Failure,
}

impl Detail {
    /// Failures are always told, other events of jobs to users who want to hear of them.
    pub fn of(kind: EventKind, is_verbose: bool) -> Self {
        match kind {
            EventKind::JobFailed | EventKind::JobTerminated => Self::Failure,
            EventKind::JobStarted | EventKind::JobCompleted if is_verbose => Self::Name,
            _ => Self::None,
        }
    }

    /// Asks the server for it.
    pub async fn ask(self, client: &Client, event: &EventView) -> Described {
        let Some(job) = event.job_id else { return Described::Nothing };
        match self {
            Self::None => Described::Nothing,
            // A line with the id alone is better than none.
            Self::Name => client.get_job(job).await.map_or(Described::Nothing, |found| {
                Described::Job { name: found.name, attempt: found.attempt_id }
            }),
            Self::Failure => {
                let (name, seconds, failure) = failure_of(client, job, event).await;
                Described::Failure { name, seconds, failure }
            }
        }
    }
}

/// What was learned about the job of an event.
#[derive(Clone, Debug)]
pub enum Described {
    /// Nothing: there is no job, or no answer.
    Nothing,
    /// The job.
    Job {
        /// Its name.
        name: String,
        /// The number of its attempt.
        attempt: i64,
    },
    /// A failure.
    Failure {
        /// The name of its job.
        name: String,
        /// How long it ran.
        seconds: f64,
        /// What to tell.
        failure: Failure,
    },
}

impl Described {
    /// The name of the job; empty if there was no answer.
    pub fn name(&self) -> &str {
        match self {
            Self::Nothing => "",
            Self::Job { name, .. } | Self::Failure { name, .. } => name,
        }
    }

    /// That a job has started or finished, if the event says so.
    pub fn begin_or_end(&self, event: &EventView) -> Option<String> {
        let (Some(job), word) = (event.job_id, begin_or_end(event.kind)?) else { return None };
        Some(match self {
            Self::Job { name, attempt } => format!("{word}: {}", named(name, job, *attempt)),
            Self::Nothing | Self::Failure { .. } => format!("{word}: job {job}"),
        })
    }
}

fn begin_or_end(kind: EventKind) -> Option<&'static str> {
    match kind {
        EventKind::JobStarted => Some("started"),
        EventKind::JobCompleted => Some("finished"),
        _ => None,
    }
}

/// `sim_3 (job 3), attempt 2`.
pub fn named(name: &str, job: JobId, attempt: i64) -> String {
    let attempt = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!("{} (job {job}){attempt}", escape::line(name))
}

/// The failure of a job as the server knows it: its name, how long it ran, and what to tell.
async fn failure_of(client: &Client, job: JobId, event: &EventView) -> (String, f64, Failure) {
    let code =
        event.data.get("return_code").and_then(serde_json::Value::as_i64).unwrap_or_default();
    let Ok(why) = client.why(job).await else {
        // A line with the id alone is better than none.
        let text = format!("job {job}: code {code}");
        return (String::new(), 0.0, Failure { text, last_line: None });
    };
    let attempt = why.attempt.as_ref();
    let seconds = attempt.and_then(|attempt| attempt.exec_seconds).unwrap_or_default();
    let what = match (&why.diagnosis, attempt.and_then(|attempt| attempt.cause)) {
        (_, Some(Cause::Exit)) | (None, None) => format!("exit code {code}"),
        (Some(diagnosis), _) => diagnosis.summary.clone(),
        (None, Some(cause)) => format!("{cause}, code {code}"),
    };
    let number = attempt.map_or(1, |attempt| attempt.attempt_id);
    let text = format!(
        "{} after {}: {}",
        named(&why.job.name, job, number),
        human::seconds(seconds),
        escape::line(&what)
    );
    let tail = attempt.and_then(|attempt| attempt.stderr_tail.as_deref()).unwrap_or_default();
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with("[torc] ");
    let last_line = tail.lines().map(str::trim).rfind(is_said).map(String::from);
    (why.job.name.clone(), seconds, Failure { text, last_line })
}

/// Jobs that run anywhere, the longest first, with the time since when.
pub async fn longest_running(
    client: &Client,
    workflow: WorkflowId,
) -> Result<Vec<(String, std::time::Instant)>> {
    /// Rows that are looked at; with more jobs at once the oldest of these are named.
    const MAX_LOOKED_AT: i64 = 500;
    let query = Query::new()
        .add("workflow_id", workflow)
        .add("status", "running")
        .add("include_last", true)
        .add("limit", MAX_LOOKED_AT);
    let now = (human::now_ms(), std::time::Instant::now());
    let since = |job: &JobView| job.last.as_ref().and_then(|last| last.started_ms);
    let mut jobs = client.list_jobs(&query).await?.items;
    jobs.sort_by_key(|job| since(job).unwrap_or(i64::MAX));
    let named = |job: JobView| {
        let ago = Duration::from_millis((now.0 - since(&job)?).max(0).unsigned_abs());
        Some((job.name, now.1.checked_sub(ago)?))
    };
    Ok(jobs.into_iter().take(NAMED).filter_map(named).collect())
}
