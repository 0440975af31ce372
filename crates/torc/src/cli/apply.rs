//! A spec for a workflow that is there: shows what the server would do with it, asks where something
//! is lost, and has it done. What is needed is the server's decision; this only shows it.

use super::{Context, person, spec::Checked};
use crate::error::{Error, Result};
use crate::output::{Field, Output, Table, escape, human};
use std::io::{BufRead, IsTerminal, Write};
use torc_client::{Application, Client};
use torc_model::api::{ApplyOptions, ApplyView, PlannedChange, WorkflowView};
use torc_model::ids::WorkflowId;
use torc_model::status::RunningJobs;

/// Jobs of a plan that are shown before it is carried out; `--dry-run` lists all.
const MAX_SHOWN: usize = 10;

/// What applying a spec may do.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ApplyArgs {
    /// Only show what would run or be removed, and why
    #[arg(long)]
    pub dry_run: bool,

    /// Remove jobs that the spec no longer has without asking; their results stay
    #[arg(short, long)]
    pub yes: bool,

    /// What to do with a job that runs and that the spec changes or removes: let its attempt finish
    /// first (`finish`, which is usual), or stop it (`stop`)
    #[arg(long, value_name = "HOW", value_parser = running)]
    pub running: Option<RunningJobs>,
}

/// Reads `finish` or `stop`.
pub fn running(word: &str) -> std::result::Result<RunningJobs, String> {
    RunningJobs::parse(word).ok_or_else(|| "the ways are `finish` and `stop`".into())
}

/// A spec and how to apply it.
pub struct Apply<'a> {
    /// Where words go.
    pub context: &'a Context,
    /// The server.
    pub client: &'a Client,
    /// The workflow.
    pub id: WorkflowId,
    /// The spec.
    pub checked: &'a Checked,
}

impl Apply<'_> {
    async fn ask(&self, how: &ApplyOptions) -> Result<ApplyView> {
        let body = Application { spec: &self.checked.spec, how };
        let asked = self.client.apply_spec(self.id, &body).await;
        asked.map_err(|error| self.checked.explain(error))
    }

    /// What applying it would do.
    pub async fn plan(&self, how: &ApplyOptions) -> Result<ApplyView> {
        self.ask(&ApplyOptions { dry_run: true, ..how.clone() }).await
    }

    /// Applies it, if the workflow is still what the plan was made for.
    pub async fn carry_out(&self, how: &ApplyOptions, plan: &ApplyView) -> Result<ApplyView> {
        let how = ApplyOptions {
            dry_run: false,
            revision: Some(plan.revision),
            run_id: Some(plan.run_id),
            user: Some(person::name()),
            spec_path: self.checked.path.clone(),
            ..how.clone()
        };
        let view = self.ask(&how).await?;
        for warning in view.warnings.iter().filter(|warning| !self.checked.has_warned(warning)) {
            self.context.output.warn(escape::line(warning));
        }
        Ok(view)
    }
}

/// The plan in one line, and the first jobs of it with their reasons.
pub fn show(output: Output, workflow: &WorkflowView, view: &ApplyView) {
    output.talk(format_args!("{}: {}", super::describe::workflow(workflow), view.counts));
    for job in view.jobs.iter().take(MAX_SHOWN) {
        output.talk(format_args!("  {}: {}", escape::line(&job.name), escape::line(&job.reason)));
    }
    if view.jobs.len() > MAX_SHOWN {
        let more = human::grouped((view.jobs.len() - MAX_SHOWN) as i64);
        output.talk(format_args!("  and {more} more (`--dry-run` lists all)"));
    }
}

/// The whole plan: a table on standard output, and its line for people.
pub fn print(output: Output, workflow: &WorkflowView, view: &ApplyView) -> Result<()> {
    if output.is_json() {
        return output.json(view);
    }
    if !view.jobs.is_empty() {
        let mut table = Table::new(["name", "was", "change", "reason"]);
        for job in &view.jobs {
            table.row([
                Field::text(&job.name),
                Field::status(job.status),
                Field::text(job.change.as_str()),
                Field::text(&job.reason),
            ]);
        }
        output.data(&table.render())?;
    }
    let name = super::describe::workflow(workflow);
    output.talk(format_args!("{name}: {}; nothing was changed", view.counts));
    Ok(())
}

/// Jobs that would be removed are named, and removed only if the user means it.
pub fn confirm_removal(view: &ApplyView, yes: bool) -> Result<()> {
    let removed = view.counts.removed();
    if yes || removed == 0 {
        return Ok(());
    }
    let names = view.jobs.iter().filter(|job| job.change == PlannedChange::Removed);
    let names: Vec<String> =
        names.take(3).map(|job| format!("`{}`", escape::line(&job.name))).collect();
    let more = if removed > 3 { ", ..." } else { "" };
    let jobs = human::count(removed, "job");
    let what = format!(
        "the spec no longer has {jobs} of workflow {}: {}{more}",
        view.workflow_id,
        names.join(", ")
    );
    if !std::io::stdin().is_terminal() {
        return Err(Error::usage_hint(
            what,
            "`--yes` removes what the spec no longer has (results and logs stay); `--dry-run` shows the plan",
        ));
    }
    let mut err = std::io::stderr();
    let asked = write!(err, "{what}; remove? [y/N] ").and_then(|()| err.flush());
    asked.map_err(Error::io("write", "standard error"))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Error::io("read", "standard input"))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::usage("nothing was changed")),
    }
}
