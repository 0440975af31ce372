//! `torc status`: how far a workflow is.

use super::drive::count;
use super::references::{self, LATEST};
use super::session::Access;
use super::{Context, block_on, describe, drive, job_steps, status_watch};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{human, progress};
use torc_client::{Client, Query};
use torc_model::api::{JobView, Page, ReservationView, StatusView};
use torc_model::forecast::{ForecastView, Machines};
use torc_model::status::{JobStatus, ReservationStatus};

/// Failures that the card lists; `torc jobs list -s failed` has them all.
const MAX_FAILURES: i64 = 10;

/// Show how far a workflow is
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc status                  the latest workflow
  torc status sweep            the newest workflow with this name
  torc status --watch          and again whenever it changes, until the workflow is complete
  torc -f json status 3        for a program: counts per status, is_complete, ...

`--watch` refreshes one block on a terminal, prints a line per change elsewhere, and with `-f json` one object per line.
It exits with 0 when all jobs succeeded and with 1 when some did not; Ctrl-C ends it. It only looks: `torc watch` also
tells failures as they happen, and can recover them.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Go on until the workflow is complete, and show every change
    #[arg(short, long)]
    watch: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        if self.watch {
            return block_on(status_watch::watch(context, &self.workflow));
        }
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let status = client.workflow_status(workflow.id).await?;
            let forecast = match status.is_complete || status.run_id == 0 || status.is_canceled {
                true => None,
                false => Some(client.forecast(workflow.id, &Machines::default(), false).await?),
            };
            if context.output.is_json() {
                context.output.json(&StatusWithForecast {
                    status: &status,
                    jobs_by_status: &status.counts,
                    forecast,
                })?;
            } else {
                let failures = failures(client, &status).await?;
                let mut text = render(&status, forecast.as_ref(), &failures);
                if count(&status, JobStatus::Running) > 0 {
                    let longest = drive::longest_running(client, status.workflow_id).await?;
                    text += &longest_line(&longest);
                }
                if let Some(place) = other_place(context) {
                    text += &format!("  {:<12}{place}\n", "state in");
                }
                if let Some(paused) = paused(client, &status).await {
                    text += &format!("  {:<12}{paused}\n", "paused");
                }
                context.output.data(&text)?;
            }
            Ok(Exit::Success)
        })
    }
}

/// `longest  sim_3 12s, sim_8 9s`: a line of the card, or nothing.
pub fn longest_line(longest: &[(String, std::time::Instant)]) -> String {
    if longest.is_empty() {
        return String::new();
    }
    let named = |(name, since): &(String, std::time::Instant)| {
        let time = human::rough_seconds(since.elapsed().as_secs_f64());
        format!("{} {time}", crate::output::escape::line(name))
    };
    let longest: Vec<String> = longest.iter().map(named).collect();
    format!("  {:<12}{}\n", "longest", longest.join(", "))
}

/// The state directory, where it is not the one of the current directory.
fn other_place(context: &Context) -> Option<String> {
    if context.locator.url.is_some() || context.locator.dir.is_some() {
        return None;
    }
    let found = super::session::state_dir(&context.locator, Access::Existing).ok()?;
    let here = std::env::current_dir().ok()?;
    (found.parent() != Some(&here)).then(|| found.display().to_string())
}

/// What keeps new jobs of a workflow from starting, if a reservation does. A card without the line is
/// better than none, so that an answer that does not come is no error.
async fn paused(client: &Client, status: &StatusView) -> Option<String> {
    if status.is_complete {
        return None;
    }
    let page: Page<ReservationView> = client.get("/reservations").await.ok()?;
    let own = format!("workflow:{}", status.workflow_id);
    let is_ours = |r: &&ReservationView| {
        r.status == ReservationStatus::Active && (r.scope == "all" || r.scope == own)
    };
    let found = page.items.iter().find(is_ours)?;
    let left = human::seconds((found.expires_ms - human::now_ms()) as f64 / 1000.0);
    let by = crate::output::escape::line(&found.reserved_by).into_owned();
    Some(format!("no new job starts: reservation {} of {by}, {left} more at most", found.id))
}

/// The status with two more fields.
#[derive(serde::Serialize)]
struct StatusWithForecast<'a> {
    #[serde(flatten)]
    status: &'a StatusView,
    /// `counts`, as scripts for Torc 1.0.0 read it.
    jobs_by_status: &'a std::collections::BTreeMap<String, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<ForecastView>,
}

/// The first jobs that ended badly by themselves.
pub async fn failures(client: &Client, status: &StatusView) -> Result<Vec<JobView>> {
    let mut failures = Vec::new();
    for bad in [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed] {
        if status.counts.get(bad.as_str()).is_some_and(|count| *count > 0) {
            let query = Query::new()
                .add("workflow_id", status.workflow_id)
                .add("status", bad)
                .add("limit", MAX_FAILURES);
            failures.extend(client.list_jobs(&query).await?.items);
        }
    }
    failures.truncate(MAX_FAILURES as usize);
    Ok(failures)
}

/// The card of a workflow.
pub fn render(
    status: &StatusView,
    forecast: Option<&ForecastView>,
    failures: &[JobView],
) -> String {
    let mut card = Card::new(format!(
        "{} (workflow {}, run {})",
        status.name, status.workflow_id, status.run_id
    ));
    card.styled(progress::bar(status));
    card.styled(progress::counts(status));
    card.line("state", state(status));
    if let Some(started) = status.started_ms {
        let end = status.last_end_ms.filter(|_| status.is_complete).unwrap_or_else(human::now_ms);
        let took = human::seconds((end - started) as f64 / 1000.0);
        card.line(
            "started",
            format!(
                "{} ({took}{})",
                human::local_time(started),
                if status.is_complete { "" } else { " so far" }
            ),
        );
    }
    card.optional("end", forecast.map(ForecastView::text));
    card.optional("steps", job_steps::counts(status.recovered_steps, status.ignored_steps));
    // A runner takes a moment to leave when the last job has ended.
    if status.is_complete {
        // Nothing is left to run.
    } else if status.lost_contact_runners > 0 {
        card.line(
            "runners",
            format!("{} active, {} silent", status.active_runners, status.lost_contact_runners),
        );
    } else if status.active_runners > 0 {
        card.line("runners", format!("{} active", status.active_runners));
    }
    for job in failures {
        card.line("failed", describe::failed_job(job));
    }
    let bad: i64 = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed]
        .iter()
        .filter_map(|s| status.counts.get(s.as_str()))
        .sum();
    if bad > failures.len() as i64 {
        card.line("", format!("and {} more", human::grouped(bad - failures.len() as i64)));
    }
    if let Some(job) = failures.first() {
        card.line("hint", format!("`torc why {}` explains a failure", job.id));
    }
    card.render()
}

/// Where a workflow stands, in a few words.
pub fn state(status: &StatusView) -> String {
    match (status.is_canceled, status.is_complete, status.active_runners) {
        (true, true, _) => "canceled".into(),
        (true, false, _) => "canceled, jobs are being stopped".into(),
        (false, true, _) if drive::exit(status) != Exit::Success => "ended with failures".into(),
        (false, true, _) => "complete".into(),
        (false, false, 0) if status.run_id == 0 => "not started".into(),
        (false, false, 0) if waits_for_verdicts(status) => {
            format!(
                "waits for verdicts (`torc jobs classify -w {}` shows for which jobs)",
                status.workflow_id
            )
        }
        (false, false, 0) => {
            format!("not complete, no runner (resume with `torc run {}`)", status.workflow_id)
        }
        (false, false, _) => "running".into(),
    }
}

/// Jobs wait for a verdict, and nothing else could run before one is there.
fn waits_for_verdicts(status: &StatusView) -> bool {
    let others =
        [JobStatus::Uninitialized, JobStatus::Ready, JobStatus::Pending, JobStatus::Running];
    count(status, JobStatus::PendingFailed) > 0
        && others.iter().all(|other| count(status, *other) == 0)
}
