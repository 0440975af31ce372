//! `torc reports correct`: gives jobs what their earlier attempts used, with room to spare.

use super::Context;
use super::references::{self, LATEST};
use super::reports::{self, Line};
use crate::error::Result;
use crate::output::{escape, human};
use serde_json::json;
use torc_client::{Client, Query};
use torc_model::api::{JobView, UpdateJob};
use torc_model::recovery::usage::Headroom;
use torc_model::units::{Memory, Runtime};

/// Which factors are sensible.
fn factor(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (1.0..=100.0).contains(&value) => Ok(value),
        _ => Err("a factor is a number from 1 to 100".into()),
    }
}

/// What `reports correct` takes.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc reports correct --dry-run                    what would change
  torc reports correct --job train_3 --job train_4  only these jobs
  torc reports correct --memory-multiplier 1.5 --no-downsize")]
pub struct Correct {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Memory: this times the highest use
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    memory_multiplier: Option<f64>,

    /// Runtime: this times the longest attempt
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    runtime_multiplier: Option<f64>,

    /// CPUs: this times the highest use
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    cpu_multiplier: Option<f64>,

    /// Only this job: its id or its name; may be repeated
    #[arg(short, long, value_name = "JOB", alias = "job-ids", value_delimiter = ',')]
    job: Vec<String>,

    /// Only raise, never lower
    #[arg(long)]
    no_downsize: bool,

    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
}

impl Correct {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let mut jobs: Vec<JobView> = client.list_all("/jobs", &query).await?;
        if !self.job.is_empty() {
            let mut chosen = Vec::with_capacity(self.job.len());
            for job in &self.job {
                let of = workflow.id.to_string();
                chosen.push(references::job(client, job, &of).await?.id);
            }
            jobs.retain(|job| chosen.contains(&job.id));
        }
        let usual = Headroom::default();
        let headroom = Headroom {
            memory: self.memory_multiplier.unwrap_or(usual.memory),
            runtime: self.runtime_multiplier.unwrap_or(usual.runtime),
            cpus: self.cpu_multiplier.unwrap_or(usual.cpus),
        };
        let results = reports::results(client, &workflow, true).await?;
        let mut lines = reports::lines(&jobs, &results, false, &headroom);
        if self.no_downsize {
            lines.iter_mut().for_each(keep_only_more);
        }
        lines.retain(has_suggestion);
        let changed = if self.dry_run { 0 } else { apply(client, &lines).await? };
        if context.output.is_json() {
            return context.output.json(&json!({
                "workflow_id": workflow.id, "resources": lines, "items": lines,
                "dry_run": self.dry_run, "changed": changed,
            }));
        }
        if lines.is_empty() {
            context.output.talk("nothing to correct");
            return Ok(());
        }
        context.output.data(&reports::table(&lines).render())?;
        match self.dry_run {
            true => context.output.talk("dry run: nothing was changed"),
            false => told(context, changed),
        }
        Ok(())
    }
}

/// `2 jobs changed, for their next attempts`.
pub fn told(context: &Context, changed: i64) {
    let jobs = human::count(changed, "job");
    context.output.talk(format_args!("{jobs} changed, for their next attempts"));
}

/// Something is suggested.
pub fn has_suggestion(line: &Line) -> bool {
    let summary = &line.summary;
    summary.suggested_memory.is_some()
        || summary.suggested_runtime.is_some()
        || summary.suggested_cpus.is_some()
}

/// Leaves out what would be less than what is asked for.
fn keep_only_more(line: &mut Line) {
    let bytes = |text: Option<&str>| text.and_then(|text| Memory::parse(text).ok()).map(|m| m.0);
    let seconds = |text: Option<&str>| text.and_then(|text| Runtime::parse(text).ok()).map(|r| r.0);
    if bytes(line.summary.suggested_memory.as_deref()) < bytes(line.asked_memory.as_deref()) {
        line.summary.suggested_memory = None;
    }
    if seconds(line.summary.suggested_runtime.as_deref()) < seconds(line.asked_runtime.as_deref()) {
        line.summary.suggested_runtime = None;
    }
}

/// Gives the jobs what is suggested; answers how many were changed.
pub async fn apply(client: &Client, lines: &[Line]) -> Result<i64> {
    let mut changed = 0;
    for line in lines.iter().filter(|line| has_suggestion(line)) {
        let summary = &line.summary;
        let reason = format!("reports correct: {}", escape::line(&summary.notes.join("; ")));
        let update = UpdateJob {
            memory: summary.suggested_memory.as_deref().and_then(|m| Memory::parse(m).ok()),
            runtime: summary.suggested_runtime.as_deref().and_then(|r| Runtime::parse(r).ok()),
            num_cpus: summary.suggested_cpus.and_then(|cpus| u32::try_from(cpus).ok()),
            reason: Some(reason),
            by: Some(super::author("torc reports correct")),
            ..UpdateJob::default()
        };
        for job in &line.members {
            client.update_job(*job, &update).await?;
            changed += 1;
        }
    }
    Ok(changed)
}
