//! `torc jobs`: lists jobs, shows one with its attempts, and changes single ones.

use super::edit::{self, Edit, EditArgs};
use super::paging::PagingArgs;
use super::references::{self, JobArg, LATEST, WorkflowOption};
use super::session::Access;
use super::{Context, describe, job_steps};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use torc_client::{Client, Query};
use torc_model::api::{
    AttemptView, CancelJobs, JobView, LastAttempt, Page, RetryJobs, RetryOne, UpdateJob,
};
use torc_model::status::{JobStatus, StatusReason};
use torc_model::units::{Memory, Runtime};
use torc_spec::nearest;

/// List jobs, show them, and change single ones
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc jobs list                       the jobs of the latest workflow
  torc jobs running                    what runs now, the longest first
  torc jobs list sweep -s failed       the failed jobs of the workflow `sweep`
  torc jobs list --where 'status:failed cause:oom time>1h'
  torc jobs act recover --where 'family:train cause:oom' --dry-run
  torc jobs attempts train_3           every try of a job, with code, time and memory
  torc jobs add next.yaml              inside a job: more jobs for its workflow
  torc jobs hold train_4 train_5       keep jobs from starting until `torc jobs release`")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the jobs of a workflow
    List(List),
    /// List what runs now: for how long, where, with how much memory
    Running(Running),
    /// Show one job
    Get(OneJobArgs),
    /// List the attempts of a job
    Attempts(OneJobArgs),
    /// Show what the steps of a job did
    Steps(job_steps::Args),
    /// Cancel jobs, and what depends on them
    Cancel(Many),
    /// Switch jobs off: they do not run, and what depends on them goes ahead
    Disable(Many),
    /// Switch disabled jobs on again
    Enable(Many),
    /// Keep jobs from starting
    Hold(Many),
    /// Let held jobs start
    Release(Many),
    /// Try jobs again that ended badly
    Retry(Many),
    Add(super::jobs_add::Args),
    /// Change what the next attempts of jobs get
    Update(UpdateJobsArgs),
    /// Do something with all jobs that a filter finds
    Act(super::act::Args),
    Classify(super::classify::Args),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Only jobs with this status; may be repeated
    #[arg(short, long, value_parser = parse_status)]
    status: Vec<JobStatus>,

    /// Only jobs that this filter finds, such as `status:failed cause:oom time>1h name~_7$`
    #[arg(long = "where", value_name = "FILTER", value_parser = super::act::parse_filter)]
    filter: Option<String>,

    #[command(flatten)]
    paging: PagingArgs,
}

#[derive(clap::Args, Debug)]
struct Running {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Only jobs that this filter finds, such as `family:train node:n12`
    #[arg(long = "where", value_name = "FILTER", value_parser = super::act::parse_filter)]
    filter: Option<String>,
}

#[derive(clap::Args, Debug)]
struct OneJobArgs {
    #[command(flatten)]
    job: JobArg,
}

#[derive(clap::Args, Debug)]
struct Many {
    /// Jobs: their ids, their names, or WORKFLOW/NAME
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct UpdateJobsArgs {
    #[command(flatten)]
    jobs: Many,

    /// Memory, such as `8g`
    #[arg(long, value_parser = Memory::parse)]
    memory: Option<Memory>,

    /// Longest time, such as `2h30m`
    #[arg(long, value_parser = Runtime::parse)]
    runtime: Option<Runtime>,

    /// Higher runs first
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,

    /// CPUs
    #[arg(long, visible_alias = "num-cpus", value_name = "N")]
    cpus: Option<u32>,

    /// GPUs
    #[arg(long, visible_alias = "num-gpus", value_name = "N")]
    gpus: Option<u32>,

    /// Another command: the jobs run again with it, and what depends on them
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    command: Option<String>,

    /// Only runners with this label take them; may be repeated, and replaces the labels they have
    #[arg(long, value_name = "LABEL", conflicts_with = "no_labels")]
    label: Vec<String>,

    /// Any runner takes them
    #[arg(long)]
    no_labels: bool,

    /// Only show what `--command` and `--label` would change and run again
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute(context, client).await,
                Command::Running(args) => args.execute(context, client).await,
                Command::Get(args) => {
                    let job = args.job.find(client).await?;
                    let job = client.get_job(job.id).await?;
                    let newest = Query::new().add("reverse_sort", true).add("limit", 1);
                    let path = format!("/jobs/{}/attempts{newest}", job.id);
                    let attempts: Page<AttemptView> = client.get(&path).await?;
                    context.output.value(&job, |job| render(job, attempts.items.first()))
                }
                Command::Attempts(args) => {
                    let job = args.job.find(client).await?;
                    let path = format!("/jobs/{}/attempts", job.id);
                    let attempts: Vec<AttemptView> = client.list_all(&path, &Query::new()).await?;
                    context.output.list("attempts", &attempts, attempts.len() as i64, || {
                        attempts_table(&attempts)
                    })
                }
                Command::Steps(args) => args.execute(context, client).await,
                Command::Cancel(args) => args.cancel(context, client).await,
                Command::Disable(args) => args.change(context, client, "disabled", disable).await,
                Command::Enable(args) => args.change(context, client, "enabled", enable).await,
                Command::Hold(args) => args.change(context, client, "held", hold).await,
                Command::Release(args) => args.change(context, client, "released", release).await,
                Command::Retry(args) => args.retry(context, client).await,
                Command::Add(args) => args.execute(context, client).await,
                Command::Update(args) => args.execute(context, client).await,
                Command::Act(args) => args.execute(context, client).await,
                Command::Classify(args) => args.execute(context, client).await,
            }?;
            Ok(Exit::Success)
        })
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let mut query = Query::new().add("workflow_id", workflow.id);
        if !self.status.is_empty() {
            let names: Vec<&str> = self.status.iter().map(|s| s.as_str()).collect();
            query = query.add("status", names.join(","));
        }
        query = query.maybe("where", self.filter.as_ref());
        let page: Page<JobView> = self.paging.fetch(client, "/jobs", query).await?;
        context.output.list("jobs", &page.items, page.total_count, || jobs_table(&page.items))
    }
}

impl Running {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new()
            .add("workflow_id", workflow.id)
            .add("status", "running")
            .add("include_last", true)
            .maybe("where", self.filter.as_ref());
        let mut jobs: Vec<JobView> = client.list_all("/jobs", &query).await?;
        let since = |job: &JobView| job.last.as_ref().and_then(|last| last.started_ms);
        jobs.sort_by_key(|job| since(job).unwrap_or(i64::MAX));
        let memory = MemoryHere::read();
        context.output.list("jobs", &jobs, jobs.len() as i64, || running_table(&jobs, &memory))
    }
}

/// Memory of jobs on this machine: the process table knows it while they run.
struct MemoryHere {
    host: String,
    processes: Option<torc_fence::procfs::ProcessTable>,
}

impl MemoryHere {
    fn read() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { host, processes: torc_fence::procfs::ProcessTable::read().ok() }
    }

    /// Resident memory of an attempt's process group and what descends from it.
    fn of(&self, last: &LastAttempt) -> Option<i64> {
        let pid = i32::try_from(last.pid?).ok()?;
        if last.hostname.as_deref() != Some(&self.host) {
            return None;
        }
        let table = self.processes.as_ref()?;
        let group = table.all().filter(|process| process.group == pid).map(|process| process.pid);
        let pages: u64 = table.descendants(group).iter().map(|process| process.rss_pages).sum();
        i64::try_from(pages * torc_fence::procfs::page_size()).ok().filter(|bytes| *bytes > 0)
    }
}

fn running_table(jobs: &[JobView], memory: &MemoryHere) -> Table {
    let mut table =
        Table::new(["id", "name", "attempt", "elapsed", "host", "cpus", "memory", "limit"]);
    for job in jobs {
        let last = job.last.as_ref();
        let elapsed = last.and_then(|last| last.started_ms).map(human::since);
        table.row([
            Field::number(job.id.0),
            Field::text(&job.name),
            Field::number(job.attempt_id),
            Field::optional(elapsed),
            Field::optional(last.and_then(|last| last.hostname.as_ref())),
            Field::number(job.num_cpus),
            Field::optional(last.and_then(|last| memory.of(last)).map(human::bytes)),
            Field::optional(last.and_then(|last| last.memory_bytes).map(human::bytes)),
        ]);
    }
    table
}

impl Many {
    async fn find(&self, client: &Client) -> Result<Vec<JobView>> {
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for name in &self.jobs {
            jobs.push(references::job(client, name, self.workflow.text()).await?);
        }
        Ok(jobs)
    }

    async fn cancel(self, context: &Context, client: &Client) -> Result<()> {
        let jobs = self.find(client).await?;
        let workflow_id = jobs[0].workflow_id;
        if let Some(other) = jobs.iter().find(|job| job.workflow_id != workflow_id) {
            return Err(Error::usage_hint(
                format!("job {} is not of workflow {workflow_id} like the others", other.id),
                "cancel the jobs of one workflow at a time",
            ));
        }
        let body = CancelJobs { job_ids: jobs.iter().map(|job| job.id).collect() };
        let canceled = client.cancel_jobs(&body).await?;
        context.output.value(&canceled, |canceled| {
            format!("canceled {}\n", human::count(canceled.job_ids.len() as i64, "job"))
        })
    }

    async fn retry(self, context: &Context, client: &Client) -> Result<()> {
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for job in self.find(client).await? {
            let run_id = client.get_workflow(job.workflow_id).await?.run_id;
            // The person asks for exactly one more attempt, whatever the rules allowed.
            jobs.push(RetryOne { job_id: job.id, run_id, max_retries: job.attempt_id + 1 });
        }
        // One request, so that either all of them get their attempt or nothing has changed.
        let retried = client.retry_jobs(&RetryJobs { jobs }).await?.items;
        if context.output.is_json() {
            return context
                .output
                .list("jobs", &retried, retried.len() as i64, || jobs_table(&retried));
        }
        let line = |job: &JobView| {
            let (number, id, name) = (job.attempt_id, job.workflow_id, describe::job(job));
            match job.status {
                // A map waits for its items, and they are what runs again.
                JobStatus::Blocked => {
                    format!("{name} waits for what runs again before it; `torc run {id}` runs it\n")
                }
                _ => format!("attempt {number} of {name} is queued; `torc run {id}` runs it\n"),
            }
        };
        context.output.data(&retried.iter().map(line).collect::<String>())
    }

    async fn change(
        self,
        context: &Context,
        client: &Client,
        done: &str,
        update: impl Fn(&JobView) -> Result<UpdateJob>,
    ) -> Result<()> {
        let jobs = self.find(client).await?;
        let updates = jobs.iter().map(update).collect::<Result<Vec<_>>>()?;
        let mut changed: Vec<JobView> = Vec::with_capacity(jobs.len());
        for (job, update) in jobs.iter().zip(&updates) {
            changed.push(client.update_job(job.id, update).await?);
        }
        if context.output.is_json() {
            return context
                .output
                .list("jobs", &changed, changed.len() as i64, || jobs_table(&changed));
        }
        let lines: String =
            changed.iter().map(|job| format!("{done} {}\n", describe::job(job))).collect();
        context.output.data(&lines)
    }
}

impl UpdateJobsArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let update = UpdateJob {
            memory: self.memory,
            runtime: self.runtime,
            priority: self.priority,
            num_cpus: self.cpus,
            num_gpus: self.gpus,
            ..UpdateJob::default()
        };
        let own = update != UpdateJob::default();
        let of_spec = self.command.is_some() || !self.label.is_empty() || self.no_labels;
        edit::something(
            own || of_spec,
            "`--memory`, `--runtime`, `--cpus`, `--gpus`, `--priority`, `--command` or `--label`",
        )?;
        if own && of_spec {
            return Err(Error::usage_hint(
                "`--command` and `--label` change the spec, the others single jobs",
                "change them in two calls",
            ));
        }
        let jobs = self.jobs.find(client).await?;
        if of_spec {
            return self.edit_spec(context, client, &jobs).await;
        }
        let by = Some(super::author("torc jobs update"));
        let update = UpdateJob { by, ..update };
        if let [only] = jobs.as_slice() {
            let job = client.update_job(only.id, &update).await?;
            return context.output.value(&job, |job| render(job, None));
        }
        let mut changed = Vec::with_capacity(jobs.len());
        for job in &jobs {
            changed.push(client.update_job(job.id, &update).await?);
        }
        context.output.list("jobs", &changed, changed.len() as i64, || jobs_table(&changed))
    }

    /// Command and labels are what the spec says of all jobs of an entry.
    async fn edit_spec(&self, context: &Context, client: &Client, jobs: &[JobView]) -> Result<()> {
        let workflow_id = jobs[0].workflow_id;
        if let Some(other) = jobs.iter().find(|job| job.workflow_id != workflow_id) {
            return Err(Error::usage_hint(
                format!("job {} is not of workflow {workflow_id} like the others", other.id),
                "change the jobs of one workflow at a time",
            ));
        }
        let workflow = client.get_workflow(workflow_id).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        let entries = edit.entries_of(jobs)?;
        let query = Query::new().add("workflow_id", workflow_id);
        let all: Vec<JobView> = client.list_all("/jobs", &query).await?;
        let is_left = |job: &&JobView| {
            entries.iter().any(|(_, family)| *family == Some(job.family.as_str()))
                && jobs.iter().all(|named| named.id != job.id)
        };
        if let Some(left) = all.iter().find(is_left) {
            return Err(Error::usage_hint(
                format!(
                    "the entry of the spec that makes {} makes {} too",
                    describe::job(&jobs[0]),
                    describe::job(left)
                ),
                "name all jobs of the entry, or change the spec and call `torc run SPEC`",
            ));
        }
        let names: Vec<String> = entries.into_iter().map(|(name, _)| name).collect();
        for name in &names {
            let entry = edit.entry("jobs", name)?;
            edit::set(entry, "command", self.command.as_deref());
            if self.no_labels || !self.label.is_empty() {
                entry.shift_remove("label");
                entry.shift_remove("labels");
            }
            edit::set(entry, "labels", (!self.label.is_empty()).then(|| self.label.clone()));
        }
        let what = human::count(jobs.len() as i64, "job");
        edit.apply(&what, EditArgs { dry_run: self.dry_run }).await
    }
}

fn disable(_: &JobView) -> Result<UpdateJob> {
    Ok(UpdateJob { status: Some(JobStatus::Disabled), ..UpdateJob::default() })
}

fn enable(job: &JobView) -> Result<UpdateJob> {
    if job.status != JobStatus::Disabled {
        return Err(Error::usage(format!(
            "{} is not disabled but {}",
            describe::job(job),
            job.status
        )));
    }
    Ok(UpdateJob { status: Some(JobStatus::Uninitialized), ..UpdateJob::default() })
}

fn hold(job: &JobView) -> Result<UpdateJob> {
    if job.status.is_final() {
        return Err(Error::usage(format!(
            "{} is {}: there is nothing to hold",
            describe::job(job),
            job.status
        )));
    }
    Ok(UpdateJob { held: Some(true), ..UpdateJob::default() })
}

fn release(_: &JobView) -> Result<UpdateJob> {
    Ok(UpdateJob { held: Some(false), ..UpdateJob::default() })
}

fn parse_status(text: &str) -> std::result::Result<JobStatus, String> {
    let by_code = text.parse().ok().and_then(JobStatus::from_code);
    JobStatus::parse(text).or(by_code).ok_or_else(|| {
        let known: Vec<&str> = JobStatus::ALL.iter().map(|s| s.as_str()).collect();
        let meant =
            nearest(text, known.iter().copied()).map(|status| format!("did you mean `{status}`? "));
        format!("{}known statuses: {}", meant.unwrap_or_default(), known.join(", "))
    })
}

fn jobs_table(jobs: &[JobView]) -> Table {
    let mut table = Table::new(["id", "name", "status", "attempt", "code", "note"]);
    for job in jobs {
        let mended = job_steps::counts(job.recovered_steps, job.ignored_steps);
        let held = job.held.then(|| "held".to_string());
        let note = held
            .or_else(|| job.status_reason.map(|reason| reason.text().to_string()))
            .into_iter()
            .chain(mended)
            .collect::<Vec<_>>();
        table.row([
            Field::number(job.id.0),
            Field::text(&job.name),
            Field::status(job.status),
            Field::number(job.attempt_id),
            Field::optional_number(last_code(job)),
            Field::text(note.join("; ")),
        ]);
    }
    table
}

/// The return code of the attempt that the job's line is about: one that has not ended has none.
fn last_code(job: &JobView) -> Option<i64> {
    let is_over = job.status.is_final() || job.status == JobStatus::PendingFailed;
    job.return_code.filter(|_| is_over)
}

fn attempts_table(attempts: &[AttemptView]) -> Table {
    let mut table = Table::new([
        "run", "attempt", "state", "code", "cause", "time", "cpu", "memory", "host", "decision",
    ]);
    for attempt in attempts {
        table.row([
            Field::number(attempt.run_id),
            Field::number(attempt.attempt_id),
            Field::attempt_state(attempt.state),
            Field::optional_number(attempt.return_code),
            Field::optional(attempt.cause.map(|c| c.as_str())),
            Field::optional(attempt.exec_seconds.map(human::seconds)),
            Field::optional(attempt.cpu_seconds.map(human::seconds)),
            Field::optional(attempt.peak_memory_bytes.map(human::bytes)),
            Field::optional(attempt.hostname.as_ref()),
            Field::text(attempt.decision.clone().unwrap_or_default()),
        ]);
    }
    table
}

fn render(job: &JobView, attempt: Option<&AttemptView>) -> String {
    let mut card = Card::new(format!(
        "{} (job {} of workflow {}): {}",
        job.name, job.id, job.workflow_id, job.status
    ));
    card.optional("reason", job.status_reason.map(StatusReason::text));
    if job.held {
        card.line("held", "yes; `torc jobs release` lets it start");
    }
    card.line("attempt", job.attempt_id.to_string());
    card.optional("code", last_code(job).map(|code| code.to_string()));
    card.optional("steps", job_steps::counts(job.recovered_steps, job.ignored_steps));
    card.block("command", &job.command);
    let memory = job.memory.as_deref().map(|m| format!(", memory {}", human::size(m)));
    let runtime = job.runtime.as_deref().map(|r| format!(", runtime {}", human::duration(r)));
    let (memory, runtime) = (memory.unwrap_or_default(), runtime.unwrap_or_default());
    let gpus = if job.num_gpus > 0 {
        format!(", {}", human::count(job.num_gpus, "GPU"))
    } else {
        String::new()
    };
    card.line("needs", format!("{}{gpus}{memory}{runtime}", human::count(job.num_cpus, "CPU")));
    card.line("priority", job.priority.to_string());
    if let Some(attempt) = attempt {
        card.optional("started", attempt.started_ms.map(human::local_time));
        card.optional("host", attempt.hostname.as_ref());
        card.optional("took", attempt.exec_seconds.map(human::seconds));
        card.optional("used", describe::usage(attempt));
        card.optional("stdout", attempt.stdout_path.as_ref());
        card.optional("stderr", attempt.stderr_path.as_ref());
    }
    let before = job.extra.as_ref().and_then(|extra| extra.get("invocation_script"));
    card.optional("before it", before.and_then(|text| text.as_str()));
    card.optional("handler", job.failure_handler.as_ref());
    card.optional("scheduler", job.scheduler.as_ref());
    if let Some(ids) = job.depends_on_job_ids.as_ref().filter(|ids| !ids.is_empty()) {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        card.line("depends on", format!("jobs {}", ids.join(", ")));
    }
    card.render()
}
