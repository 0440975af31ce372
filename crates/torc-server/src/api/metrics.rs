//! `/metrics`: how the server and its work are, for Prometheus and what reads its format.

use super::App;
use super::error::ApiError;
use super::openapi::Refusals;
use crate::clock::now_ms;
use crate::metrics::{MetricKind, MetricsText};
use crate::store::read::{Gauges, JobCounts};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use torc_model::ids::WorkflowId;
use torc_model::status::{AllocationStatus, JobStatus, RunnerKind};

/// What scrapes share.
#[derive(Default)]
pub struct Scrapes {
    /// One scrape at a time: however many programs ask, one connection to the database is busy with
    /// it.
    counted: tokio::sync::Mutex<Counted>,
}

/// The jobs of workflows that no request has touched since the start of the server, so that each is
/// counted once.
#[derive(Default)]
struct Counted {
    /// What the writer has forgotten since counts for nothing here.
    generation: u64,
    jobs: HashMap<WorkflowId, JobCounts>,
}

/// How the server and its work are, in the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "get_metrics",
    tag = "server",
    responses(
        (status = 200, description = "Counters and gauges.", body = String, content_type = "text/plain"),
        Refusals
    ),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let mut counted = app.inner.scrapes.counted.lock().await;
    let gauges = app.reader().gauges(now_ms()).await?;
    let jobs = count_jobs(&app, &mut counted, &gauges.workflows).await?;
    drop(counted);
    let mut text = MetricsText::default();
    write_jobs(&mut text, &jobs, &gauges);
    write_outside(&mut text, &gauges);
    app.store().metrics().write(&mut text);
    write_server(&mut text, &app, &gauges);
    write_process(&mut text);
    let kind = HeaderValue::from_static(MetricsText::TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], text.finish()).into_response())
}

/// The jobs of all workflows by status. The writer knows those that were touched since the start.
async fn count_jobs(
    app: &App,
    counted: &mut Counted,
    workflows: &[WorkflowId],
) -> Result<JobCounts, ApiError> {
    let (known, generation) = app.store().all_progress();
    if counted.generation != generation {
        *counted = Counted { generation, jobs: HashMap::new() };
    }
    counted.jobs.retain(|id, _| !known.contains_key(id));
    let is_new = |id: &&WorkflowId| !known.contains_key(id) && !counted.jobs.contains_key(id);
    let new: Vec<WorkflowId> = workflows.iter().filter(is_new).copied().collect();
    if !new.is_empty() {
        counted.jobs.extend(app.reader().count_jobs(new).await?);
    }
    let mut all = JobCounts::default();
    for id in workflows {
        match (known.get(id), counted.jobs.get(id)) {
            (Some(progress), _) => {
                all.iter_mut().zip(progress.counts).for_each(|(sum, n)| *sum += u64::from(n));
            }
            (None, Some(counts)) => {
                all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            (None, None) => {}
        }
    }
    Ok(all)
}

fn write_jobs(text: &mut MetricsText, jobs: &JobCounts, gauges: &Gauges) {
    text.family("torc_jobs", MetricKind::Gauge, "Jobs of all workflows, by status.");
    for status in JobStatus::ALL.iter().copied() {
        text.sample(&[("status", status.as_str())], jobs[status as usize]);
    }
    text.one(
        "torc_queue_jobs",
        MetricKind::Gauge,
        "Jobs that are ready and wait for a runner.",
        jobs[JobStatus::Ready as usize],
    );
    text.family("torc_workflows", MetricKind::Gauge, "Workflows, by state.");
    let all = gauges.workflows.len() as i64;
    text.sample(&[("state", "active")], gauges.active_workflows);
    text.sample(&[("state", "other")], all - gauges.active_workflows);
}

/// Runners, allocations and receivers of webhooks.
fn write_outside(text: &mut MetricsText, gauges: &Gauges) {
    text.family(
        "torc_runners",
        MetricKind::Gauge,
        "Runners that have not ended, by kind and contact.",
    );
    for kind in RunnerKind::ALL {
        let found = gauges.runners.iter().find(|(known, ..)| known == kind.as_str());
        let (active, lost) = found.map_or((0, 0), |(_, active, lost)| (*active, *lost));
        text.sample(&[("kind", kind.as_str()), ("state", "active")], active);
        text.sample(&[("kind", kind.as_str()), ("state", "lost_contact")], lost);
    }
    text.one(
        "torc_runners_quarantined",
        MetricKind::Gauge,
        "Runners that get no work for now because their node spoils jobs.",
        gauges.quarantined_runners,
    );
    text.family(
        "torc_allocations",
        MetricKind::Gauge,
        "Slurm allocations that are not over, by status.",
    );
    for status in AllocationStatus::ALL.iter().filter(|s| **s != AllocationStatus::Complete) {
        let found = gauges.allocations.iter().find(|(known, _)| known == status.as_str());
        text.sample(&[("status", status.as_str())], found.map_or(0, |(_, count)| *count));
    }
    text.one("torc_webhooks", MetricKind::Gauge, "Endpoints of webhooks.", gauges.webhooks);
    text.family("torc_webhook_deliveries", MetricKind::Gauge, "Deliveries not made, by state.");
    text.sample(&[("state", "pending")], gauges.deliveries.0);
    text.sample(&[("state", "dead")], gauges.deliveries.1);
}

fn write_server(text: &mut MetricsText, app: &App, gauges: &Gauges) {
    text.one(
        "torc_writer_requests",
        MetricKind::Gauge,
        "Requests that wait for the writer of the database or are being carried out.",
        app.store().open_requests() as u64,
    );
    text.one(
        "torc_ready",
        MetricKind::Gauge,
        "1 when requests are served, 0 while the server recovers or ends.",
        u64::from(app.is_ready()),
    );
    text.one("torc_database_bytes", MetricKind::Gauge, "Size of the database.", gauges.database.0);
    text.one(
        "torc_database_free_bytes",
        MetricKind::Gauge,
        "Part of the database that holds nothing and is used again first.",
        gauges.database.1,
    );
    text.one(
        "torc_database_log_bytes",
        MetricKind::Gauge,
        "Size of the write-ahead log.",
        gauges.log,
    );
    // A file system that cannot say so has no such samples.
    if let Some(space) = gauges.space {
        text.one(
            "torc_disk_size_bytes",
            MetricKind::Gauge,
            "Size of the database's disk.",
            space.size,
        );
        text.one(
            "torc_disk_free_bytes",
            MetricKind::Gauge,
            "Room that is left for us on the database's disk.",
            space.free,
        );
    }
}

fn write_process(text: &mut MetricsText) {
    text.family(
        "torc_build_info",
        MetricKind::Gauge,
        "Always 1; the label is the program's version.",
    );
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
    let started = crate::metrics::process::started_seconds();
    text.one(
        "torc_process_start_time_seconds",
        MetricKind::Gauge,
        "When the process started, in seconds since 1970.",
        started,
    );
    if let Some(bytes) = crate::metrics::process::resident_bytes() {
        text.one("torc_process_resident_bytes", MetricKind::Gauge, "Memory of the process.", bytes);
    }
    if let Some(count) = crate::metrics::process::open_files() {
        text.one("torc_process_open_files", MetricKind::Gauge, "Open files of the process.", count);
    }
}
