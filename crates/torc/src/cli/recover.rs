//! `torc recover`: gives every failed job what its diagnosis asks for and queues it again.

use super::drive::count;
use super::references::{self, LATEST};
use super::run::{self, RunOptions};
use super::runner_options::RunnerOptions;
use super::session::Access;
use super::tui::ScreenOptions;
use super::{Context, ai, classify, describe, slurm};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use serde_json::json;
use std::path::Path;
use tokio::process::Command;
use torc_client::{Client, discovery};
use torc_model::api::{ErrorCode, ErrorInfo, UpdateWorkflow, WorkflowView};
use torc_model::ids::WorkflowId;
use torc_model::recovery::{
    Action, Change, Kind, LARGEST_MULTIPLIER, NodeShape, Record, RecoverJob, RecoverRequest,
    RecoverView,
};
use torc_model::status::JobStatus;

/// Recover what failed: more memory, more time, or the same again
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc recover                             the latest workflow
  torc recover --run                       and run the recovered jobs here
  torc recover sweep --dry-run             show what would be done, change nothing
  torc recover 3 --memory-multiplier 3     three times the memory instead of twice
  torc recover 3 --retry-unknown           also try again what has no known remedy
  torc recover 3 --recovery-hook ./fix.sh  run `./fix.sh 3` first if there are such failures
  torc recover 3 --ai-recovery             let an AI agent judge what waits for a verdict

Only the jobs that are recovered and those that were canceled because of them run again. Changes belong to the job, are
never lower than before, and stay in its history (`torc why JOB`).
Exits with 0 when jobs were queued (or would be) or every job succeeded, and with 1 when nothing could be recovered.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Show what would be done and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask Slurm for nodes for the recovered jobs
    #[arg(long)]
    no_schedule: bool,

    /// Run the recovered jobs here afterwards, as `torc run WORKFLOW` does
    #[arg(long, conflicts_with = "dry_run")]
    run: bool,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    ai: ai::AiOptions,

    #[command(flatten)]
    nodes: slurm::NodeOptions,

    #[command(flatten)]
    runner: RunnerOptions,
}

/// How far recovery may go: what `recover` and `watch` share.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Memory after an out-of-memory kill, times this; without it by what was measured, else times 2
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    memory_multiplier: Option<f64>,

    /// Time after a timeout, times this; without it by how far it had come, else times 4
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    runtime_multiplier: Option<f64>,

    /// Try failures without a known remedy again as they are
    #[arg(long)]
    retry_unknown: bool,

    /// Do not let the record of earlier verdicts and retries decide
    #[arg(long)]
    pub no_memory: bool,

    /// Command to run first when there are failures without a known remedy; gets the workflow's id
    /// as its argument and in `TORC_WORKFLOW_ID`. When it succeeds they are tried again, when it
    /// fails nothing is recovered
    #[arg(long, value_name = "COMMAND")]
    recovery_hook: Option<String>,
}

/// A factor by which something may grow.
pub fn factor(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=LARGEST_MULTIPLIER).contains(&factor) => Ok(factor),
        Ok(_) => Err(format!("expected a number from 1 to {LARGEST_MULTIPLIER}")),
        Err(error) => Err(error.to_string()),
    }
}

/// What a call of recovery came to.
pub enum RecoverOutcome {
    /// The server's answer.
    Done(Box<RecoverView>),
    /// The hook failed; nothing was recovered.
    HookFailed(String),
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        if self.ai.ai_recovery && !self.dry_run {
            self.ai.agent()?;
        }
        let queued = self.queue(context)?;
        if !self.run || queued != Exit::Success {
            return Ok(queued);
        }
        let options = RunOptions {
            notify: Vec::new(),
            force: false,
            auto_recover: false,
            detach: false,
            tui: false,
            screen: ScreenOptions::default(),
            runner: self.runner,
        };
        run::run_workflow(context, &self.workflow, &options)
    }

    fn queue(&self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let for_slurm = slurm::is_for_slurm(client, &workflow).await?;
            if for_slurm {
                // Jobs whose allocation is gone must not look as if they ran.
                let synced = slurm::synchronize(client, workflow.id, self.dry_run).await?;
                if let Some(why) = synced.slurm.and_then(|s| s.unreachable) {
                    context.output.warn(format_args!(
                        "Slurm does not answer, so nothing was concluded: {}",
                        escape::line(&why)
                    ));
                }
            }
            let shapes = match for_slurm {
                true => slurm::node_shapes().await.unwrap_or_else(|why| {
                    let why = escape::line(&why);
                    context.output.warn(format_args!(
                        "nothing limits what jobs are given, as nodes are not known: {why}"
                    ));
                    Vec::new()
                }),
                false => Vec::new(),
            };
            let view = match self
                .options
                .recover(
                    context,
                    client,
                    workflow.id,
                    RecoverRound { dry_run: self.dry_run, max_rounds: None, shapes },
                )
                .await
            {
                Ok(RecoverOutcome::Done(view)) => view,
                Ok(RecoverOutcome::HookFailed(message)) => {
                    context.output.warn(message);
                    return Ok(Exit::JobsFailed);
                }
                Err(Error::Refused { info, .. })
                    if info.code == ErrorCode::NothingToRecover.as_str() =>
                {
                    return self.nothing(context, client, &workflow, info).await;
                }
                Err(error) => return Err(error),
            };
            context.output.value(&*view, render)?;
            let judged = self.judge(context, client, &workflow).await?;
            let is_queued = !view.jobs_to_retry.is_empty() || judged.retried > 0;
            if for_slurm && self.no_schedule && judged.retried > 0 {
                classify::propose(context, client, &workflow).await;
            }
            if for_slurm
                && !self.dry_run
                && !self.no_schedule
                && is_queued
                && let Some((_, sent)) =
                    slurm::reschedule(client, &workflow, None, &self.nodes).await?
            {
                context.output.talk(slurm::describe_sent(&sent).trim_end());
            }
            if !context.output.is_json() {
                self.talk(context, client, &workflow, &view, judged.retried).await?;
            }
            Ok(if is_queued { Exit::Success } else { Exit::JobsFailed })
        })
    }

    /// Nothing has failed. That is as it should be if every job succeeded; else the server says
    /// what to do instead.
    async fn nothing(
        &self,
        context: &Context,
        client: &Client,
        workflow: &WorkflowView,
        info: ErrorInfo,
    ) -> Result<Exit> {
        let status = client.workflow_status(workflow.id).await?;
        if count(&status, JobStatus::Completed) + count(&status, JobStatus::Disabled)
            != status.total
        {
            return Err(Error::Refused { status: 409, info });
        }
        context.output.talk(format_args!("nothing to recover: {}", escape::line(&info.message)));
        if context.output.is_json() {
            let nothing: [i64; 0] = [];
            context.output.json(&json!({
                "workflow_id": workflow.id, "run_id": status.run_id, "dry_run": self.dry_run,
                "jobs": nothing, "jobs_to_retry": nothing, "reopened": nothing,
            }))?;
        }
        Ok(Exit::Success)
    }

    /// Lets the record and an agent judge what waits for a verdict, if that was asked for.
    async fn judge(
        &self,
        context: &Context,
        client: &Client,
        workflow: &WorkflowView,
    ) -> Result<ai::AgentOutcome> {
        if !self.ai.ai_recovery {
            return Ok(ai::AgentOutcome::default());
        }
        if self.dry_run {
            context.output.talk("a dry run does not ask the agent");
            return Ok(ai::AgentOutcome::default());
        }
        let judged = self.ai.judge(client, workflow, self.options.no_memory).await?;
        for line in &judged.lines {
            context.output.talk(escape::line(line));
        }
        Ok(judged)
    }

    async fn talk(
        &self,
        context: &Context,
        client: &Client,
        workflow: &WorkflowView,
        view: &RecoverView,
        judged: i64,
    ) -> Result<()> {
        for line in &view.orphans.details {
            context.output.talk(format_args!("first: {}", escape::line(line)));
        }
        let jobs = human::count(view.jobs_to_retry.len(), "job");
        let them = if view.jobs_to_retry.len() == 1 && judged == 0 { "it" } else { "them" };
        let reopened = match view.reopened.len() {
            0 => String::new(),
            1 => format!(", and 1 canceled job comes back with {them}"),
            many => format!(", and {} come back with {them}", human::count(many, "canceled job")),
        };
        match (view.jobs_to_retry.is_empty(), self.dry_run) {
            (true, _) if judged > 0 => {}
            (true, _) => context.output.talk(format_args!(
                "nothing of {} could be recovered",
                describe::workflow(workflow)
            )),
            (false, true) => context
                .output
                .talk(format_args!("{jobs} would run again{reopened}; nothing was changed")),
            (false, false) => context.output.talk(format_args!("{jobs} queued again{reopened}")),
        }
        let unknown = view
            .jobs
            .iter()
            .any(|job| job.action == Action::Skip && job.diagnosis.kind != Kind::Canceled);
        if unknown && judged == 0 && !self.options.retry_unknown {
            context
                .output
                .talk("hint: `--retry-unknown` tries skipped jobs again as they are; `torc why JOB` explains one");
        }
        let active = client.workflow_status(workflow.id).await?.active_runners;
        if !self.dry_run
            && !self.run
            && (!view.jobs_to_retry.is_empty() || judged > 0)
            && active == 0
        {
            context.output.talk(format_args!(
                "hint: no runner is active; `torc run {}` runs {them}",
                workflow.id
            ));
        }
        Ok(())
    }
}

/// One call of `torc recover`, or one round of `torc watch`.
pub struct RecoverRound {
    /// Only say what would be done.
    pub dry_run: bool,
    /// Set for an automatic round: none is made after so many.
    pub max_rounds: Option<i64>,
    /// The nodes of the cluster that the workflow runs on.
    pub shapes: Vec<NodeShape>,
}

impl Options {
    /// Recovers a workflow, with the hook if that is needed.
    pub async fn recover(
        &self,
        context: &Context,
        client: &Client,
        id: WorkflowId,
        round: RecoverRound,
    ) -> Result<RecoverOutcome> {
        let RecoverRound { dry_run, max_rounds, shapes } = round;
        let mut request = RecoverRequest {
            dry_run,
            memory_multiplier: self.memory_multiplier,
            runtime_multiplier: self.runtime_multiplier,
            retry_unknown: self.retry_unknown,
            no_memory: self.no_memory,
            by: Some(super::author(if max_rounds.is_some() {
                "torc watch"
            } else {
                "torc recover"
            })),
            max_rounds,
            shapes,
            ..RecoverRequest::default()
        };
        if let Some(hook) = &self.recovery_hook {
            let plan =
                client.recover(id, &RecoverRequest { dry_run: true, ..request.clone() }).await?;
            let is_unknown = |job: &&RecoverJob| {
                job.action == Action::Skip && job.diagnosis.kind != Kind::Canceled
            };
            let unknown = plan.jobs.iter().filter(is_unknown).count();
            if unknown > 0 {
                request.retry_unknown = true;
                if !dry_run {
                    let failures = human::count(unknown as i64, "failure");
                    context.output.talk(format_args!(
                        "{failures} without a known remedy: running `{}`",
                        escape::line(hook)
                    ));
                    if let Some(failed) = run_hook(hook, client, id).await? {
                        return Ok(RecoverOutcome::HookFailed(failed));
                    }
                }
            }
        }
        Ok(RecoverOutcome::Done(Box::new(client.recover(id, &request).await?)))
    }
}

/// Lets the server recover a workflow's failures by itself from now on, if that was asked for.
pub async fn switch_on(client: &Client, id: WorkflowId, asked: bool) -> Result<()> {
    if asked {
        let body = UpdateWorkflow { auto_recover: Some(true), ..UpdateWorkflow::default() };
        client.update_workflow(id, &body).await?;
    }
    Ok(())
}

/// Whether `torc recover` would let some job run again. Only for the sake of a hint, so that
/// whatever goes wrong means no.
pub async fn would_help(client: &Client, id: WorkflowId) -> bool {
    let request = RecoverRequest { dry_run: true, ..RecoverRequest::default() };
    client.recover(id, &request).await.is_ok_and(|view| !view.jobs_to_retry.is_empty())
}

/// Runs the hook; answers with a sentence when it failed. Calls of `torc` in it reach the server
/// that this call is about, wherever it was named.
async fn run_hook(hook: &str, client: &Client, id: WorkflowId) -> Result<Option<String>> {
    let program = hook.split_whitespace().next().unwrap_or_default();
    // A script that lies here is meant, although a shell would only look for it on PATH.
    let here = if !program.contains('/') && Path::new(program).is_file() { "./" } else { "" };
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{here}{hook} \"$@\""))
        .arg("recovery-hook")
        .arg(id.to_string())
        .env("TORC_WORKFLOW_ID", id.to_string())
        .env(discovery::ENV_URL, client.url())
        .env(discovery::ENV_TOKEN, client.token())
        // A file would count more than the token itself, and it may be another server's.
        .env_remove(discovery::ENV_TOKEN_FILE)
        .status()
        .await
        .map_err(Error::io("run", hook))?;
    Ok((!status.success())
        .then(|| format!("the recovery hook failed ({status}); nothing was recovered")))
}

/// `1g -> 1536m`.
pub fn written(change: &Change) -> String {
    let from = change.from.map_or_else(|| "no limit".into(), |from| change.written(from));
    format!("{} {from} -> {}", change.field, change.written(change.to))
}

fn render(view: &RecoverView) -> String {
    let mut table =
        Table::new(["job", "name", "attempt", "what happened", "sure", "action", "change", "why"]);
    for job in &view.jobs {
        let changes: Vec<String> = job.changes.iter().map(written).collect();
        table.row([
            Field::number(job.job_id.0),
            Field::text(&job.name),
            Field::number(job.attempt_id),
            Field::text(job.diagnosis.kind.title()),
            Field::right(format!("{:.0}%", job.diagnosis.confidence * 100.0)),
            Field::text(job.action.as_str()),
            Field::optional((!changes.is_empty()).then(|| changes.join(", "))),
            Field::text(&job.reason),
        ]);
    }
    table.render()
}

/// What recovery would do about a failure, what is to be expected of it, and why.
pub fn proposal(job: &RecoverJob) -> String {
    let changes: Vec<String> = job.changes.iter().map(written).collect();
    let mut text = job.action.as_str().to_owned();
    if !changes.is_empty() {
        text += &format!(": {}", changes.join(", "));
    }
    if job.action.is_retry() {
        text += &format!(" ({:.0}% chance", job.chance * 100.0);
        if let Some(seconds) = job.cost_seconds {
            text += &format!(", about {}", human::seconds(seconds));
        }
        text.push(')');
    }
    format!("{text}; {}", job.reason)
}

/// How earlier retries of such a failure ended; nothing if there were none.
pub fn record(record: &Record) -> Option<String> {
    let parts: Vec<String> = [
        ("again", &record.again),
        ("with more memory", &record.more_memory),
        ("with more time", &record.more_time),
        ("of near failures", &record.near),
    ]
    .iter()
    .filter(|(_, counts)| counts.tries > 0)
    .map(|(what, counts)| format!("{} of {} {what}", counts.succeeded, counts.tries))
    .collect();
    (!parts.is_empty()).then(|| format!("earlier retries that succeeded: {}", parts.join(", ")))
}
