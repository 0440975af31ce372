//! How a run ends: why it stopped, what became of its jobs, and the exit code.

use super::super::interrupt::Interrupts;
use super::super::recap::Recap;
use super::super::{Context, recover};
use super::count;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::progress::ProgressDisplay;
use crate::output::{escape, human};
use torc_client::{Client, Query};
use torc_model::api::{Capacity, JobView, Page, StatusView, WorkflowView};
use torc_model::class::{Class, Room};
use torc_model::status::JobStatus;
use torc_model::units::Memory;
use torc_runner::{LeaveReason, RunnerSummary};

/// Jobs that cannot run are explained, this many at most.
const MAX_EXPLAINED: i64 = 3;

/// What is known of a run when it ends.
#[derive(Default)]
pub struct RunEnd<'a> {
    /// How long it took.
    pub progress: Option<&'a ProgressDisplay>,
    /// What happened in it.
    pub recap: Option<&'a Recap>,
    /// The user stopped it.
    pub stopped_by: Option<&'a Interrupts>,
}

/// The last words, the data for programs, and the exit code.
pub async fn finish(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
    status: &StatusView,
    end: RunEnd<'_>,
) -> Result<Exit> {
    let mut text = format!(
        "workflow {} {}: {} of {} succeeded",
        workflow.id,
        if status.is_complete { "complete" } else { "not complete" },
        human::grouped(count(status, JobStatus::Completed)),
        human::count(status.total, "job"),
    );
    for other in [
        JobStatus::Failed,
        JobStatus::Terminated,
        JobStatus::Canceled,
        JobStatus::PendingFailed,
        JobStatus::Disabled,
    ] {
        if count(status, other) > 0 {
            text += &format!(", {} {other}", human::grouped(count(status, other)));
        }
    }
    if let Some(progress) = end.progress {
        text += &format!(" in {}", progress.elapsed());
    }
    context.output.talk(text);
    if let Some(recap) = end.recap {
        recap.tell(context.output);
    }
    if count(status, JobStatus::Failed) + count(status, JobStatus::Terminated) > 0
        && !context.output.quiet
    {
        context
            .output
            .talk("hint: `torc why JOB` explains a failure, `torc logs JOB` shows what it wrote");
        let id = workflow.id;
        let how = match recover::would_help(client, id).await {
            true => format!("`torc recover {id} --run` repairs what it can and runs it again"),
            false => match spec_here(workflow) {
                Some(spec) => format!("`torc run {spec}` re-runs the failed jobs"),
                None => format!(
                    "`torc workflows reset-status {id} --failed-only` and `torc run {id}` re-run the failed jobs"
                ),
            },
        };
        context.output.talk(format_args!("hint: {how}; `torc jobs retry JOB` runs one as it is"));
    }
    if context.output.is_json() {
        context.output.json(status)?;
    }
    let exit = exit(status);
    Ok(end.stopped_by.map_or(exit, |interrupts| interrupts.exit(exit)))
}

/// The exit code of a command that waited for a workflow's end.
pub fn exit(status: &StatusView) -> Exit {
    let good = count(status, JobStatus::Completed) + count(status, JobStatus::Disabled);
    if status.is_complete && good == status.total { Exit::Success } else { Exit::JobsFailed }
}

/// The error of a runner, for the user.
pub fn runner_error(error: torc_runner::Error) -> Error {
    match error {
        torc_runner::Error::Client(error) => error.into(),
        torc_runner::Error::Io { what, path, source }
            if matches!(
                source.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Error::usage_hint(
                format!("cannot {what} `{}`: {source}", path.display()),
                "`-o DIR` names another directory for logs",
            )
        }
        torc_runner::Error::Io { what, path, source } => Error::Io { doing: what, path, source },
        error @ (torc_runner::Error::System { .. } | torc_runner::Error::Broken) => {
            Error::usage(error.to_string())
        }
    }
}
/// Says why a run ended although the workflow is not complete.
pub async fn explain(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
    status: &StatusView,
    reason: &LeaveReason,
    capacity: &Capacity,
) -> Result<()> {
    let waiting = count(status, JobStatus::PendingFailed);
    match reason {
        LeaveReason::Stopped | LeaveReason::Removed | LeaveReason::TimeUp => {
            context.output.talk(format_args!("stopped; resume with `torc run {}`", workflow.id));
        }
        _ if waiting > 0 => {
            let jobs = human::count(waiting, "job");
            context
                .output
                .talk(format_args!("{jobs} failed without a matching rule and wait for a verdict"));
            context
                .output
                .talk(format_args!("hint: `torc jobs classify -w {}` shows them", workflow.id));
        }
        reason => {
            context
                .output
                .talk(format_args!("runner stopped: {}", escape::line(&reason.to_string())));
            let query = Query::new()
                .add("workflow_id", workflow.id)
                .add("status", "ready")
                .add("limit", MAX_EXPLAINED);
            let ready: Page<JobView> = client.list_jobs(&query).await?;
            let mut hints: Vec<String> = Vec::new();
            for job in ready.items {
                let why = match does_not_fit(&job, capacity) {
                    Some(why) => why,
                    None => {
                        let why = client.why(job.id).await?;
                        hints.extend(why.hints);
                        why.summary
                    }
                };
                context.output.talk(format_args!(
                    "  {}: {}",
                    escape::line(&job.name),
                    escape::line(&why)
                ));
            }
            hints.dedup();
            for hint in hints {
                context.output.talk(format_args!("hint: {}", escape::line(&hint)));
            }
        }
    }
    Ok(())
}

/// What a job needs and this runner does not have.
fn does_not_fit(job: &JobView, capacity: &Capacity) -> Option<String> {
    let needs = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let class = Class {
        cpus: needs(job.num_cpus),
        gpus: needs(job.num_gpus),
        nodes: needs(job.num_nodes),
        memory: job.memory.as_ref().and_then(|text| Memory::parse(text).ok()).map(|m| m.0),
        ..Class::default()
    };
    // The whole runner is free: nothing runs any more.
    Some(format!("it needs {}", Room::of(capacity).lacking(&class)?))
}

/// The file that a workflow was made from, if it lies in the current directory under a name that a
/// shell takes as it is.
fn spec_here(workflow: &WorkflowView) -> Option<String> {
    let path = std::path::Path::new(workflow.origin.spec_path.as_ref()?);
    let here = std::env::current_dir().ok()?.canonicalize().ok()?;
    let name = path.file_name()?.to_str()?;
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (path.parent() == Some(&here) && is_plain && path.is_file()).then(|| name.to_owned())
}

/// Warns of results that the server does not know.
pub fn tell_undelivered(context: &Context, summary: &RunnerSummary) {
    let results = |count: u64| human::count(i64::try_from(count).unwrap_or(i64::MAX), "result");
    let kept = summary.undelivered.saturating_sub(summary.unkept);
    if kept > 0 {
        let results = results(kept);
        context.output.warn(format_args!(
            "{results} could not be delivered; the next runner here delivers them"
        ));
    }
    if summary.unkept > 0 {
        let results = results(summary.unkept);
        context.output.warn(format_args!(
            "{results} could neither be delivered nor kept on disk; those jobs run again when there is a runner"
        ));
    }
}
