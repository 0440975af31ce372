//! `torc jobs classify`: a person's verdict on failures that wait for one.

use super::references::{self, WorkflowOption};
use super::{Context, person, slurm};
use crate::error::{Error, Result};
use crate::output::{Field, Table, escape, human};
use serde::Serialize;
use std::fmt::Write as _;
use torc_client::{Client, Query};
use torc_model::api::WorkflowView;
use torc_model::recovery::{
    Classification, ClassificationView, ClassifyRequest, ClassifyView, PendingFailures,
    ResolveRequest, Verdict,
};
use torc_model::units::{Memory, Runtime};

/// Say what becomes of failures that wait for a verdict
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc jobs classify                               what waits in the latest workflow, like failures together
  torc jobs classify train_3 --retry --memory 8g   try a job again with more memory
  torc jobs classify --group 1f0c9a… --fail        give up every job of a group
  torc jobs classify --pending                     verdicts of agents that wait for a person
  torc jobs classify --accept 4 --reject 5         decide about those")]
pub struct Args {
    /// Jobs: their ids, their names, or WORKFLOW/NAME
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,

    #[command(flatten)]
    workflow: WorkflowOption,

    /// Transient: try them again
    #[arg(long, conflicts_with = "fail")]
    retry: bool,

    /// Permanent: they have failed, and what depends on them is canceled
    #[arg(long)]
    fail: bool,

    /// Every waiting job of the group with this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    group: Vec<String>,

    /// Memory for the next attempts, such as `8g`
    #[arg(long, value_parser = Memory::parse, requires = "retry")]
    memory: Option<Memory>,

    /// Longest time of the next attempts, such as `2h30m`
    #[arg(long, value_parser = Runtime::parse, requires = "retry")]
    runtime: Option<Runtime>,

    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,

    /// Show what would be done and change nothing
    #[arg(long)]
    dry_run: bool,

    /// List verdicts of agents that wait for a person
    #[arg(long, conflicts_with_all = ["retry", "fail", "jobs", "group"])]
    pending: bool,

    /// List all verdicts: who, when, why, and what came of them
    #[arg(long, conflicts_with_all = ["retry", "fail", "jobs", "group", "pending"])]
    history: bool,

    /// Carry out a verdict that waits for a person
    #[arg(long, value_name = "ID", conflicts_with_all = ["retry", "fail", "jobs", "group", "pending"])]
    accept: Vec<i64>,

    /// Drop a verdict that waits for a person; the job goes on waiting
    #[arg(long, value_name = "ID", conflicts_with_all = ["retry", "fail", "jobs", "group", "pending"])]
    reject: Vec<i64>,
}

impl Args {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        if !self.accept.is_empty() || !self.reject.is_empty() {
            return self.resolve(context, client).await;
        }
        if self.retry || self.fail {
            return self.judge(context, client).await;
        }
        if !self.jobs.is_empty() || !self.group.is_empty() {
            return Err(Error::usage_hint("there is no verdict", "give `--retry` or `--fail`"));
        }
        let workflow = self.workflow.find(client).await?;
        if self.pending || self.history {
            let mut query = Query::new().add("workflow_id", workflow.id);
            if self.pending {
                query = query.add("state", "held");
            }
            let rows: Vec<ClassificationView> = client.list_all("/classifications", &query).await?;
            return context
                .output
                .list("classifications", &rows, rows.len() as i64, || verdicts(&rows));
        }
        let waiting = client.pending_failures(workflow.id, &Query::new()).await?;
        context.output.value(&waiting, groups)
    }

    async fn resolve(self, context: &Context, client: &Client) -> Result<()> {
        let by = ResolveRequest { by: Some(person::name()) };
        let mut done = Vec::new();
        for id in &self.accept {
            done.push(client.accept_classification(*id, &by).await?);
        }
        for id in &self.reject {
            done.push(client.reject_classification(*id, &by).await?);
        }
        context.output.list("classifications", &done, done.len() as i64, || verdicts(&done))
    }

    async fn judge(self, context: &Context, client: &Client) -> Result<()> {
        let action = if self.retry { Verdict::Retry } else { Verdict::Fail };
        let verdict = Classification {
            job_id: None,
            fingerprint: None,
            action,
            memory: self.memory,
            runtime: self.runtime,
            reason: self.reason.clone(),
            confidence: None,
            evidence: Vec::new(),
        };
        let mut classifications = Vec::new();
        let mut of_jobs = None;
        for name in &self.jobs {
            let job = references::job(client, name, self.workflow.text()).await?;
            if of_jobs.replace(job.workflow_id).is_some_and(|other| other != job.workflow_id) {
                return Err(Error::usage("the jobs are not all of one workflow"));
            }
            classifications.push(Classification { job_id: Some(job.id), ..verdict.clone() });
        }
        for group in &self.group {
            classifications
                .push(Classification { fingerprint: Some(group.clone()), ..verdict.clone() });
        }
        if classifications.is_empty() {
            return Err(Error::usage_hint(
                "there is nothing to judge",
                "name jobs, or a group with `--group`",
            ));
        }
        let workflow = match of_jobs {
            Some(id) => client.get_workflow(id).await?,
            None => self.workflow.find(client).await?,
        };
        let request = ClassifyRequest {
            classifications,
            dry_run: self.dry_run,
            by: Some(person::name()),
            agent: None,
        };
        let view = client.classify(workflow.id, &request).await?;
        let retries = view.jobs_to_retry > 0 && !self.dry_run;
        if context.output.is_json() {
            let proposed_allocations =
                if retries { plan(context, client, &workflow).await } else { None };
            return context.output.json(&JudgedJobs { view, proposed_allocations });
        }
        context.output.value(&view, render)?;
        if retries {
            propose(context, client, &workflow).await;
        }
        Ok(())
    }
}

/// What became of verdicts, and what the retries need of a cluster.
#[derive(Serialize)]
struct JudgedJobs {
    #[serde(flatten)]
    view: ClassifyView,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed_allocations: Option<slurm::PlanView>,
}

async fn plan(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
) -> Option<slurm::PlanView> {
    slurm::propose(client, workflow).await.unwrap_or_else(|error| {
        context.output.warn(format_args!("no proposal of allocations: {error}"));
        None
    })
}

/// Says how many allocations the retries need, where there is a cluster.
pub async fn propose(context: &Context, client: &Client, workflow: &WorkflowView) {
    if let Some(plan) = plan(context, client, workflow).await {
        context.output.talk(slurm::render_plan(&plan).trim_end());
        context.output.talk(format_args!(
            "hint: `torc slurm regenerate {} --submit` asks for them",
            workflow.id
        ));
    }
}

fn groups(waiting: &PendingFailures) -> String {
    let mut table = Table::new(["group", "jobs", "what happened", "message", "record", "such as"]);
    for group in &waiting.groups {
        let again = &group.record.again;
        let record = (again.tries > 0).then(|| {
            format!("{} of {} succeeded", again.succeeded, human::count(again.tries, "retry"))
        });
        let repeated =
            (group.repeated > 0).then(|| format!("{} failed this way before", group.repeated));
        let older = &group.record.older;
        let older =
            (older.tries > 0).then(|| format!("{} of {} long ago", older.succeeded, older.tries));
        let notes: Vec<String> = record.into_iter().chain(older).chain(repeated).collect();
        let example =
            group.examples.first().map(|job| format!("{} (job {})", job.name, job.job_id));
        table.row([
            Field::text(&group.fingerprint.id),
            Field::number(group.count),
            Field::text(group.fingerprint.kind.title()),
            Field::text(&group.fingerprint.template),
            Field::optional((!notes.is_empty()).then(|| notes.join(", "))),
            Field::optional(example),
        ]);
    }
    let mut text = table.render();
    let jobs = human::count(waiting.pending_failed_count, "job");
    let _ = match waiting.pending_failed_count {
        0 => writeln!(text, "no job waits for a verdict"),
        1 => writeln!(text, "{jobs} waits for a verdict"),
        _ => writeln!(text, "{jobs} wait for a verdict"),
    };
    text
}

fn verdicts(rows: &[ClassificationView]) -> Table {
    let mut table =
        Table::new(["id", "job", "name", "verdict", "state", "sure", "by", "outcome", "why"]);
    for row in rows {
        let said = &row.said;
        let sure = said.confidence.map(|sure| format!("{:.0}%", sure * 100.0));
        let changes: Vec<String> = said.changes.iter().map(super::recover::written).collect();
        let verdict = match changes.is_empty() {
            true => said.action.to_string(),
            false => format!("{}, {}", said.action, changes.join(", ")),
        };
        table.row([
            Field::number(row.id),
            Field::number(row.job_id.0),
            Field::text(&row.job_name),
            Field::text(verdict),
            Field::text(row.state.as_str()),
            Field::optional(sure),
            Field::text(said.agent.as_ref().unwrap_or(&said.by)),
            Field::optional(row.end.outcome.map(torc_model::recovery::RetryOutcome::as_str)),
            Field::text(said.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

/// What became of verdicts, as a table and a sentence.
pub fn render(view: &ClassifyView) -> String {
    let mut table = Table::new(["job", "name", "attempt", "verdict", "state", "change", "note"]);
    for job in &view.results {
        let changes: Vec<String> = job.changes.iter().map(super::recover::written).collect();
        table.row([
            Field::number(job.job_id.0),
            Field::text(&job.name),
            Field::number(job.attempt_id),
            Field::text(job.action.as_str()),
            Field::text(job.state.as_str()),
            Field::optional((!changes.is_empty()).then(|| changes.join(", "))),
            Field::optional(job.note.as_ref()),
        ]);
    }
    let mut text = table.render();
    let _ = writeln!(text, "{}", escape::line(&sentence(view)));
    text
}

/// What became of verdicts, in a sentence.
pub fn sentence(view: &ClassifyView) -> String {
    let count = |number: i64| human::count(number, "job");
    let mut parts = vec![
        format!("{} to be tried again", count(view.jobs_to_retry)),
        format!("{} failed for good", count(view.jobs_to_fail)),
    ];
    if view.jobs_canceled > 0 {
        parts.push(format!("{} canceled with them", count(view.jobs_canceled)));
    }
    if view.jobs_held > 0 {
        parts.push(format!("{} held for a person", count(view.jobs_held)));
    }
    let changed = if view.dry_run { "; nothing was changed" } else { "" };
    format!("{}{changed}", parts.join(", "))
}
