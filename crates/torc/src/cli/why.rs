//! `torc why`: one job's unmet condition, last failure and what to do about it; without a job, what
//! the whole workflow waits for.

use super::references::{self, WorkflowOption};
use super::session::Access;
use super::{Context, describe};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{human, progress};
use torc_client::Client;
use torc_model::api::{
    FailureGroup, JobView, Page, StatusView, WhyView, WorkflowView, WorkflowWhyView,
};
use torc_model::status::EstimateSource;

/// Explain why a job, or a whole workflow, is where it is
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc why                     what the latest workflow waits for, and what failed
  torc why -w sweep            the same of the workflow `sweep`
  torc why train_3             a job of the latest workflow, by name
  torc why sweep/train_3       a job of the workflow `sweep`
  torc -f json why 42          a job by its id, for a program")]
pub struct Args {
    /// Job: its id, its name, or WORKFLOW/NAME [default: the whole workflow]
    #[arg(value_name = "JOB")]
    job: Option<String>,

    #[command(flatten)]
    workflow: WorkflowOption,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let Some(job) = &self.job else {
                let workflow = self.workflow.find(client).await?;
                return why_workflow(context, client, &workflow).await;
            };
            let job = references::job(client, job, self.workflow.text()).await?;
            let why = client.why(job.id).await?;
            context.output.value(&why, render)?;
            Ok(Exit::Success)
        })
    }
}

/// Groups of failures that the card lists.
const MAX_FAILURES: usize = 10;

/// What a workflow waits for, and what failed in it.
async fn why_workflow(context: &Context, client: &Client, workflow: &WorkflowView) -> Result<Exit> {
    let status = client.workflow_status(workflow.id).await?;
    let why = client.why_workflow(workflow.id).await?;
    let failures: Page<FailureGroup> =
        client.get(&format!("/workflows/{}/failures", workflow.id)).await?;
    if context.output.is_json() {
        context.output.json(&serde_json::json!({
            "workflow_id": workflow.id,
            "waiting": why.waiting,
            "left_out": why.left_out,
            "failures": failures.items,
        }))?;
        return Ok(Exit::Success);
    }
    context.output.data(&render_workflow(&status, &why, &failures.items))?;
    Ok(Exit::Success)
}

fn render_workflow(
    status: &StatusView,
    why: &WorkflowWhyView,
    failures: &[FailureGroup],
) -> String {
    let mut card = Card::new(format!(
        "{} (workflow {}, run {}): {}",
        status.name,
        status.workflow_id,
        status.run_id,
        super::status::state(status)
    ));
    card.styled(progress::bar(status));
    let mut hints: Vec<&str> = Vec::new();
    for group in &why.waiting {
        let jobs = human::count(group.jobs, "job");
        let example = match group.jobs {
            1 => group.sample_name.clone(),
            _ => format!("such as {}", group.sample_name),
        };
        card.line(
            group.status.as_str(),
            format!("{jobs} ({example}, job {}): {}", group.sample, group.summary),
        );
        hints.extend(group.hints.iter().map(String::as_str));
    }
    if why.left_out > 0 {
        card.line("", format!("and {} more reasons", human::grouped(why.left_out)));
    }
    for group in failures.iter().take(MAX_FAILURES) {
        let (jobs, title) = (human::count(group.counts.jobs, "job"), group.diagnosis.kind.title());
        // Some sentences begin with what the title says.
        let what = match group.diagnosis.summary.starts_with(title) {
            true => group.diagnosis.summary.clone(),
            false => format!("{title}: {}", group.diagnosis.summary),
        };
        card.line(
            "failed",
            format!(
                "{jobs} of {} (such as {}, job {}): {what}",
                group.family, group.sample.name, group.sample.job
            ),
        );
    }
    if failures.len() > MAX_FAILURES {
        let more = human::grouped((failures.len() - MAX_FAILURES) as i64);
        card.line("", format!("and {more} more; `torc reports summary {}`", status.workflow_id));
    }
    let sample = failures.first().map(|group| group.sample.job);
    let sample = sample.or_else(|| why.waiting.first().map(|group| group.sample));
    let sample = sample.map(|job| format!("`torc why {job}` explains one of them"));
    hints.dedup();
    for hint in hints.into_iter().chain(sample.as_deref()) {
        card.line("hint", crate::output::as_called(hint));
    }
    if why.waiting.is_empty() && failures.is_empty() {
        card.plain("nothing waits and nothing failed");
    }
    card.render()
}

/// How long the job is expected to take, and how that is known.
fn estimate(job: &JobView) -> Option<String> {
    if job.status.is_final() {
        return None;
    }
    let source = match job.estimate_source? {
        EstimateSource::Own => "from its own earlier attempts",
        EstimateSource::Family => "from its family in this run",
        EstimateSource::FamilyEarlier => "from its family in an earlier run",
        EstimateSource::Runtime => "a third of its `runtime`",
    };
    Some(format!("about {}, {source}", human::seconds(job.estimate_seconds?)))
}

fn render(why: &WhyView) -> String {
    let job = &why.job;
    let mut card = Card::new(format!(
        "{} (job {} of workflow {}): {}",
        job.name, job.id, job.workflow_id, job.status
    ));
    card.plain(&why.summary);
    for detail in &why.details {
        card.plain(format!("- {detail}"));
    }
    card.optional("estimate", estimate(job));
    if let Some(diagnosis) = &why.diagnosis {
        let sure = (diagnosis.confidence * 100.0).round();
        card.line(
            "what",
            format!("{} ({sure}% confidence): {}", diagnosis.kind.title(), diagnosis.summary),
        );
        for proof in &diagnosis.proof {
            let place = match (proof.start, proof.end) {
                (Some(start), Some(end)) => format!(" (bytes {start}-{end} of stderr)"),
                _ => String::new(),
            };
            card.line("evidence", format!("{}: {}{place}", proof.source, proof.text));
        }
        for doubt in &diagnosis.doubts {
            card.line("but", doubt);
        }
    }
    if let Some(remedy) = &why.remedy {
        card.line("remedy", super::recover::proposal(remedy));
        card.optional("before", super::recover::record(&remedy.record));
    }
    for adjustment in &why.adjustments {
        let change = super::recover::written(&adjustment.change);
        let when = human::local_time(adjustment.created_ms);
        let source = format!("{} ({}, {when})", adjustment.why, adjustment.by);
        card.line("changed", format!("{change} after attempt {}: {source}", adjustment.attempt_id));
    }
    if let Some(attempt) = &why.attempt {
        card.line("attempt", describe::attempt(attempt));
        card.optional("limits", describe::limits(attempt));
        card.optional("used", describe::usage(attempt));
        card.optional("stdout", attempt.stdout_path.as_ref());
        card.optional("stderr", attempt.stderr_path.as_ref());
        if let Some(tail) = attempt.stderr_tail.as_ref().filter(|tail| !tail.trim().is_empty()) {
            card.block("end of standard error", tail);
        }
    }
    for hint in &why.hints {
        card.line("hint", crate::output::as_called(hint));
    }
    card.render()
}
