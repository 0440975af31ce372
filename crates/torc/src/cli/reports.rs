//! `torc reports`: what failed and why, and resource usage compared with what was requested.

use super::references::{self, LATEST};
use super::session::Access;
use super::{Context, correct, describe};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
use torc_client::{Client, Query};
use torc_model::api::{AttemptView, JobView, WorkflowView};
use torc_model::ids::JobId;
use torc_model::recovery::Kind;
use torc_model::recovery::usage::{Asked, Headroom, Summary, Use, summarize_with};
use torc_model::status::{AttemptState, Cause, JobStatus, StatusReason};
use torc_model::units::{Memory, Runtime};

/// Names of jobs that one group of failures shows.
const MAX_NAMED: usize = 3;

/// Sum up failures, and resource usage compared with what was requested
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc reports summary                 what failed, why, and how often
  torc reports resources sweep         highest memory, CPU and time per group, with suggestions
  torc reports resources --per-job
  torc reports correct --dry-run       give the jobs what fits, or only show it
  torc reports nodes                   how busy each machine was as a whole")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What failed and why, grouped by cause and message
    Summary(SummaryArgs),
    /// Resource usage compared with what was requested, with suggestions
    Resources(ResourcesArgs),
    /// Give jobs what their earlier attempts used, with room to spare
    Correct(correct::Correct),
    /// Use of CPUs, memory, GPUs and disk of each machine as a whole
    Nodes(super::node_report::NodesArgs),
}

#[derive(clap::Args, Debug)]
struct SummaryArgs {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Every attempt of every run, not only the last attempt of each job
    #[arg(long)]
    all: bool,
}

#[derive(clap::Args, Debug)]
struct ResourcesArgs {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// One line per job instead of one per group of jobs with the same requirements
    #[arg(long)]
    per_job: bool,

    /// Give the jobs what is suggested, for their next attempts
    #[arg(long)]
    correct: bool,
}

/// Failures of one kind with one message.
#[derive(Serialize)]
struct Group {
    kind: Kind,
    message: String,
    count: i64,
    jobs: Vec<JobId>,
    names: Vec<String>,
}

/// One line of `reports resources`.
#[derive(Serialize)]
pub struct Line {
    group: String,
    jobs: i64,
    asked_cpus: i64,
    /// Memory they ask for.
    pub asked_memory: Option<String>,
    /// Runtime they ask for.
    pub asked_runtime: Option<String>,
    /// What they used, and what would fit.
    #[serde(flatten)]
    pub summary: Summary,
    /// The jobs.
    #[serde(skip)]
    pub members: Vec<JobId>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::Summary(args) => args.execute(context, client).await?,
                Command::Resources(args) => args.execute(context, client).await?,
                Command::Correct(args) => args.execute(context, client).await?,
                Command::Nodes(args) => args.execute(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

/// The attempts of the newest run, or of all.
pub async fn results(
    client: &Client,
    workflow: &WorkflowView,
    all: bool,
) -> Result<Vec<AttemptView>> {
    listed(client, Query::new().add("workflow_id", workflow.id), all).await
}

async fn listed(client: &Client, mut query: Query, all: bool) -> Result<Vec<AttemptView>> {
    if all {
        query = query.add("all_runs", true);
    }
    Ok(client.list_all("/results", &query).await?)
}

impl SummaryArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new().add("workflow_id", workflow.id).add("diagnosis", true);
        let results = listed(client, query, self.all).await?;
        let groups = group(&results);
        let failures: i64 = groups.iter().map(|g| g.count).sum();
        let maps = failed_maps(client, &workflow).await?;
        if context.output.is_json() {
            return context.output.json(&serde_json::json!({
                "workflow_id": workflow.id, "failures": failures, "groups": groups, "failed_maps": maps,
            }));
        }
        let told = course(&results);
        if groups.is_empty() && maps.is_empty() {
            context.output.talk(format_args!("no failures in {}", describe::workflow(&workflow)));
            context.output.talk(told);
            return Ok(());
        }
        let mut table = Table::new(["count", "what happened", "message", "jobs"]);
        for group in &groups {
            let more = if group.jobs.len() > MAX_NAMED { ", ..." } else { "" };
            table.row([
                Field::number(group.count),
                Field::text(group.kind.title()),
                Field::text(&group.message),
                Field::text(format!("{}{more}", group.names.join(", "))),
            ]);
        }
        if !groups.is_empty() {
            context.output.data(&table.render())?;
        }
        context.output.talk(format_args!(
            "{} in {}",
            human::count(failures, "failure"),
            describe::workflow(&workflow)
        ));
        if let Some(note) = note_of_maps(&maps) {
            context.output.talk(note);
        }
        context.output.talk(told);
        Ok(())
    }
}

/// `27 jobs were tried again, 9 of them succeeded; 3.2 CPU hours; longest: train_3 12m 05s, ...`.
fn course(results: &[AttemptView]) -> String {
    let mut newest: BTreeMap<JobId, &AttemptView> = BTreeMap::new();
    for result in results {
        let key = |attempt: &AttemptView| (attempt.run_id, attempt.attempt_id);
        let known = newest.entry(result.job_id).or_insert(result);
        if key(result) > key(known) {
            *known = result;
        }
    }
    let retried: Vec<_> = newest.values().filter(|attempt| attempt.attempt_id > 1).collect();
    let is_good = |attempt: &&&&AttemptView| attempt.state == AttemptState::Completed;
    let recovered = retried.iter().filter(is_good).count() as i64;
    let mut parts = Vec::new();
    if !retried.is_empty() {
        parts.push(format!(
            "{} tried again, {} recovered",
            human::count(retried.len() as i64, "job"),
            human::grouped(recovered)
        ));
    }
    let hours: f64 = results.iter().filter_map(|attempt| attempt.cpu_seconds).sum::<f64>() / 3600.0;
    parts.push(format!("{hours:.2} CPU hours"));
    let seconds = |attempt: &AttemptView| attempt.exec_seconds.unwrap_or_default();
    let mut longest: Vec<&AttemptView> = results.iter().collect();
    longest.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    let named = |attempt: &&AttemptView| {
        format!("{} {}", escape::line(&attempt.job_name), human::seconds(seconds(attempt)))
    };
    let longest: Vec<String> = longest.iter().take(MAX_NAMED).map(named).collect();
    if !longest.is_empty() {
        parts.push(format!("longest: {}", longest.join(", ")));
    }
    parts.join("; ")
}

/// Maps that failed because of their items. They have run nothing that failed, so no result speaks
/// of them.
async fn failed_maps(client: &Client, workflow: &WorkflowView) -> Result<Vec<String>> {
    let query = Query::new().add("workflow_id", workflow.id).add("status", JobStatus::Failed);
    let jobs: Vec<JobView> = client.list_all("/jobs", &query).await?;
    let is_map = |job: &JobView| job.status_reason == Some(StatusReason::TooManyItemsFailed);
    Ok(jobs.into_iter().filter(is_map).map(|job| job.name).collect())
}

/// `not counted: 1 map that failed because of its items (m); ...`.
fn note_of_maps(maps: &[String]) -> Option<String> {
    let (its, as_what) = match maps.len() {
        0 => return None,
        1 => ("its", "it as a failed job"),
        _ => ("their", "them as failed jobs"),
    };
    let names: Vec<_> = maps.iter().take(MAX_NAMED).map(|name| escape::line(name)).collect();
    let more = if maps.len() > MAX_NAMED { ", ..." } else { "" };
    Some(format!(
        "not counted: {} that failed because of {its} items ({}{more}); `torc status` counts {as_what}",
        human::count(maps.len(), "map"),
        names.join(", "),
    ))
}

/// Failures by kind and message, the most frequent first.
fn group(results: &[AttemptView]) -> Vec<Group> {
    let mut groups: BTreeMap<(Kind, String), Group> = BTreeMap::new();
    let is_failure =
        |r: &&AttemptView| r.state != AttemptState::Completed && r.started_ms.is_some();
    for result in results.iter().filter(is_failure) {
        let Some(diagnosis) = &result.diagnosis else { continue };
        let message = template(diagnosis.message());
        let group = groups.entry((diagnosis.kind, message.clone())).or_insert_with(|| Group {
            kind: diagnosis.kind,
            message,
            count: 0,
            jobs: Vec::new(),
            names: Vec::new(),
        });
        group.count += 1;
        if !group.jobs.contains(&result.job_id) {
            group.jobs.push(result.job_id);
            if group.names.len() < MAX_NAMED {
                group.names.push(result.job_name.clone());
            }
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

/// The message without what differs from job to job: numbers become `N`.
fn template(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut in_number = false;
    for c in message.chars() {
        if c.is_ascii_digit() {
            if !in_number {
                out.push('N');
            }
            in_number = true;
        } else {
            in_number = false;
            out.push(c);
        }
    }
    out
}

impl ResourcesArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let jobs: Vec<JobView> =
            client.list_all("/jobs", &Query::new().add("workflow_id", workflow.id)).await?;
        let results = results(client, &workflow, true).await?;
        let lines = lines(&jobs, &results, self.per_job, &Headroom::default());
        context.output.list("resources", &lines, lines.len() as i64, || table(&lines))?;
        let suggested = lines.iter().filter(|line| correct::has_suggestion(line)).count();
        match (self.correct, suggested) {
            (true, 0) => context.output.talk("nothing to correct"),
            (true, _) => correct::told(context, correct::apply(client, &lines).await?),
            (false, 0) => {}
            (false, _) => context.output.talk("hint: `--correct` gives the jobs what is suggested"),
        }
        Ok(())
    }
}

/// Group, CPUs, memory and runtime: jobs that share them share a line.
type Request = (String, i64, Option<String>, Option<String>);

/// Compares what jobs asked for with what they used.
pub fn lines(
    jobs: &[JobView],
    results: &[AttemptView],
    per_job: bool,
    headroom: &Headroom,
) -> Vec<Line> {
    let mut uses: BTreeMap<JobId, Vec<Use>> = BTreeMap::new();
    for result in results.iter().filter(|r| r.started_ms.is_some()) {
        uses.entry(result.job_id).or_default().push(Use {
            peak_memory_bytes: result.peak_memory_bytes.and_then(|m| u64::try_from(m).ok()),
            peak_cpu_percent: result.peak_cpu_percent,
            exec_seconds: result.exec_seconds,
            was_cut_short: result.cause.is_some_and(|cause| cause != Cause::Exit),
            ran_out_of_memory: result.cause == Some(Cause::Oom),
        });
    }
    let mut groups: BTreeMap<Request, Vec<&JobView>> = BTreeMap::new();
    for job in jobs {
        let name = if per_job {
            job.name.clone()
        } else {
            job.resource_requirements.clone().unwrap_or_else(|| "default".into())
        };
        groups
            .entry((name, job.num_cpus, job.memory.clone(), job.runtime.clone()))
            .or_default()
            .push(job);
    }
    let mut lines = Vec::new();
    for ((group, cpus, memory, runtime), members) in groups {
        let asked = Asked {
            memory_bytes: memory.as_deref().and_then(|m| Memory::parse(m).ok()).map(|m| m.0),
            runtime_seconds: runtime.as_deref().and_then(|r| Runtime::parse(r).ok()).map(|r| r.0),
            num_cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        };
        let used: Vec<Use> =
            members.iter().filter_map(|job| uses.get(&job.id)).flatten().cloned().collect();
        if used.is_empty() {
            continue;
        }
        lines.push(Line {
            group,
            jobs: members.len() as i64,
            asked_cpus: cpus,
            asked_memory: memory,
            asked_runtime: runtime,
            summary: summarize_with(&used, &asked, headroom),
            members: members.iter().map(|job| job.id).collect(),
        });
    }
    lines
}

/// A line per group.
pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new([
        "group",
        "jobs",
        "tries",
        "memory",
        "peak",
        "runtime",
        "longest",
        "cpus",
        "peak cpu",
        "suggestion",
    ]);
    for line in lines {
        let s = &line.summary;
        let memory = s.suggested_memory.as_deref().map(|m| format!("memory {}", human::size(m)));
        let runtime =
            s.suggested_runtime.as_deref().map(|r| format!("runtime {}", human::duration(r)));
        let cpus = s.suggested_cpus.map(|n| human::count(n, "CPU"));
        let suggestions: Vec<String> = memory.into_iter().chain(runtime).chain(cpus).collect();
        table.row([
            Field::text(&line.group),
            Field::number(line.jobs),
            Field::number(s.attempts),
            Field::optional(line.asked_memory.as_deref().map(human::size)),
            Field::optional(s.peak_memory_bytes.map(|bytes| {
                let least = if s.is_peak_a_lower_bound { "at least " } else { "" };
                format!("{least}{}", human::bytes(bytes))
            })),
            Field::optional(line.asked_runtime.as_deref().map(human::duration)),
            Field::optional(s.longest_seconds.map(human::seconds)),
            Field::number(line.asked_cpus),
            Field::optional(s.peak_cpu_percent.map(|p| format!("{p:.0}%"))),
            Field::optional((!suggestions.is_empty()).then(|| suggestions.join(", "))),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_only_are_one() {
        assert_eq!(template("file part_17.csv, line 3"), template("file part_204.csv, line 88"));
        assert_ne!(template("KeyError: 'a'"), template("KeyError: 'b'"));
    }
}
