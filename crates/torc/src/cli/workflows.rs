//! `torc workflows`: lists workflows and moves whole ones through their life.

use super::apply::Apply;
use super::current_spec::Changes;
use super::drive::count;
use super::paging::PagingArgs;
use super::references::{self, LATEST};
use super::session::Access;
use super::{Context, cancel, create, describe, full_export, workflow_actions};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::table::WorkflowState;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use serde_json::json;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use torc_client::{Client, Query};
use torc_model::api::{
    ApplyOptions, EventView, Page, PruneRequest, PruneView, PrunedWorkflow, ReinitializeRequest,
    RemovedFiles, ResetRequest, ResetView, StatusView, UpdateWorkflow, WorkflowView,
};
use torc_model::event::EventKind;
use torc_model::recovery::AdjustmentView;
use torc_model::status::JobStatus;

/// List workflows, and start, reset, export or delete them
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc workflows list
  torc workflows reinitialize sweep --dry-run     what would run again, and why
  torc workflows reinitialize 3 --spec new.yaml   apply another spec
  torc workflows history sweep                    who applied what, and when
  torc workflows reset-status 3 --failed-only     let the failed jobs run again
  torc workflows export latest -o sweep.kdl       the workflow as a spec file, in any format
  torc workflows export 3 --full -o all.json      the same with all that happened, for `import` elsewhere
  torc workflows update 3 --project heat          name, description, project, metadata, owner
  torc workflows list-actions 3                   what it does at its triggers
  torc workflows prune --older-than 30d           delete what ended long ago")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List workflows, newest first
    List(List),
    /// Show one workflow
    Get(OneWorkflowArgs),
    /// Create a workflow from a spec (the same as `torc create`)
    Create(create::Args),
    /// Delete workflows with everything in them
    Delete(DeleteArgs),
    /// Delete workflows that ended long ago
    Prune(Prune),
    /// Hide workflows from lists, or show them again
    Archive(Archive),
    /// Start the first run: jobs become ready or blocked
    Initialize(Initialize),
    /// Start the next run with what changed: inputs, definitions, missing outputs
    Reinitialize(Reinitialize),
    /// Show the revisions of a workflow: who applied what, and when
    History(HistoryArgs),
    /// Let jobs run again: all, the failed ones, or named ones with what follows them
    ResetStatus(Reset),
    /// Change the name, the description, the project, the metadata or the owner
    Update(UpdateWorkflowArgs),
    /// Tell whether every job has ended: exit code 0 if so, 1 if not
    IsComplete(OneWorkflowArgs),
    /// List what the workflow does at its triggers
    ListActions(workflow_actions::ListActionsArgs),
    /// Change an action of the spec
    UpdateAction(workflow_actions::UpdateActionArgs),
    /// Take an action out of the spec
    DeleteAction(workflow_actions::DeleteActionArgs),
    /// Find jobs whose runner is gone, and end their attempts
    SyncStatus(SyncStatus),
    /// Write a workflow as a spec file, or with its past
    Export(Export),
    Import(full_export::Import),
    /// Cancel a workflow (the same as `torc cancel`)
    Cancel(cancel::Args),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Show archived workflows too
    #[arg(long, alias = "archived")]
    include_archived: bool,

    #[command(flatten)]
    paging: PagingArgs,
}

#[derive(clap::Args, Debug)]
struct OneWorkflowArgs {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,
}

#[derive(clap::Args, Debug)]
struct DeleteArgs {
    /// Workflows: their ids or names
    #[arg(required = true, value_name = "WORKFLOW")]
    workflows: Vec<String>,

    /// Do not ask
    #[arg(short, long, alias = "no-prompts")]
    yes: bool,

    /// Although jobs run or allocations are in Slurm; they are not taken back then
    #[arg(long)]
    force: bool,

    /// Remove the logs and samples of its jobs too; refused while jobs run
    #[arg(long, alias = "files")]
    with_files: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Only workflows that have ended are deleted; one that was never run is kept.
Examples:
  torc workflows prune --older-than 30d --dry-run
  torc workflows prune --older-than 90d --keep-failed --with-files --yes")]
struct Prune {
    /// Those that ended longer ago than this: `30d`, `12h`
    #[arg(long, value_name = "TIME", value_parser = age)]
    older_than: i64,

    /// Keep those with jobs that did not succeed
    #[arg(long)]
    keep_failed: bool,

    /// Remove the logs and samples of their jobs too
    #[arg(long, alias = "files")]
    with_files: bool,

    /// Only list them
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(short, long, alias = "no-prompts")]
    yes: bool,
}

/// A time ago.
pub fn age(text: &str) -> std::result::Result<i64, String> {
    let parsed = torc_model::units::Runtime::parse(text);
    let time = parsed.map_err(|error| format!("{error}; a time is written as 30d or 12h"))?;
    i64::try_from(time.0).map_err(|_| "that long ago there was no server".into())
}

#[derive(clap::Args, Debug)]
struct UpdateWorkflowArgs {
    #[command(flatten)]
    one: OneWorkflowArgs,

    /// Name
    #[arg(short, long)]
    name: Option<String>,

    /// Free text
    #[arg(short, long)]
    description: Option<String>,

    /// Free text to group by
    #[arg(long)]
    project: Option<String>,

    /// Any JSON of your own
    #[arg(long, value_name = "JSON", value_parser = any_json)]
    metadata: Option<serde_json::Value>,

    /// Owner
    #[arg(long, alias = "owner-user")]
    user: Option<String>,

    /// Let the server retry failed jobs by itself where that helps: `true` or `false`
    #[arg(long, value_name = "BOOL")]
    auto_recover: Option<bool>,
}

fn any_json(text: &str) -> std::result::Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

#[derive(clap::Args, Debug)]
struct Archive {
    /// Workflows: their ids or names; `true` or `false` before them says which way
    #[arg(required = true, value_name = "WORKFLOW")]
    workflows: Vec<String>,

    /// Show them again
    #[arg(long)]
    undo: bool,
}

#[derive(clap::Args, Debug)]
struct Initialize {
    #[command(flatten)]
    one: OneWorkflowArgs,

    /// Go on although input files are missing
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args, Debug)]
struct Reinitialize {
    #[command(flatten)]
    one: OneWorkflowArgs,

    /// Only list the jobs that would run again, and why
    #[arg(long)]
    dry_run: bool,

    /// Go on although input files are missing
    #[arg(long)]
    force: bool,

    /// Apply an edited spec first: new jobs are added, changed ones run again with what follows, those
    /// that it lacks are removed. `torc run FILE` does the same and runs it
    #[arg(long, value_name = "FILE")]
    spec: Option<std::path::PathBuf>,

    /// Remove jobs that the spec no longer has without asking; their results stay
    #[arg(short, long, requires = "spec")]
    yes: bool,

    /// What to do with a job that runs and that the spec changes or removes: `finish` or `stop`
    #[arg(long, value_name = "HOW", requires = "spec", value_parser = super::apply::running)]
    running: Option<torc_model::status::RunningJobs>,
}

#[derive(clap::Args, Debug)]
struct HistoryArgs {
    #[command(flatten)]
    one: OneWorkflowArgs,
}

#[derive(clap::Args, Debug)]
struct Reset {
    #[command(flatten)]
    one: OneWorkflowArgs,

    /// Only jobs that ended badly, and what follows them
    #[arg(long, conflicts_with = "job")]
    failed_only: bool,

    /// Only this job and what follows it; may be repeated
    #[arg(short, long, value_name = "NAME")]
    job: Vec<String>,

    /// Only list the jobs that would run again
    #[arg(long)]
    dry_run: bool,

    /// Go on although jobs are running
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args, Debug)]
struct SyncStatus {
    #[command(flatten)]
    one: OneWorkflowArgs,

    /// Only list what would change
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args, Debug)]
struct Export {
    #[command(flatten)]
    one: OneWorkflowArgs,

    /// Write to this file instead of standard output; its extension tells the format
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    force: bool,

    /// With its past: jobs, attempts, events, user data and verdicts, as JSON for `torc workflows import`
    #[arg(long, conflicts_with = "written_as")]
    full: bool,

    /// Format: yaml, json, json5 or kdl
    #[arg(long = "as", value_name = "FORMAT", value_parser = spec_format)]
    written_as: Option<torc_spec::SpecFormat>,
}

fn spec_format(name: &str) -> std::result::Result<torc_spec::SpecFormat, String> {
    torc_spec::SpecFormat::parse(name)
        .ok_or_else(|| "the formats are yaml, json, json5 and kdl".into())
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::Create(args) => return args.execute(context),
            Command::Cancel(args) => return args.execute(context),
            Command::Import(args) => return args.execute(context),
            Command::IsComplete(args) => {
                return context.with_server(Access::Existing, async |client| {
                    let workflow = args.find(client).await?;
                    let view = client.is_complete(workflow.id).await?;
                    let is_complete = view.is_complete;
                    context.output.value(&view, |view| {
                        let word = if view.is_complete { "complete" } else { "not complete" };
                        format!("{} is {word}\n", describe::workflow(&workflow))
                    })?;
                    Ok(if is_complete { Exit::Success } else { Exit::JobsFailed })
                });
            }
            command => context.with_server(Access::Existing, async |client| {
                command.execute(context, client).await
            })?,
        }
        Ok(Exit::Success)
    }
}

impl Command {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        match self {
            Self::List(args) => args.execute(context, client).await,
            Self::Get(args) => {
                let workflow = args.find(client).await?;
                context.output.value(&workflow, render)
            }
            Self::Delete(args) => args.execute(context, client).await,
            Self::Prune(args) => args.execute(context, client).await,
            Self::Archive(args) => args.execute(context, client).await,
            Self::Initialize(args) => {
                let workflow = args.one.find(client).await?;
                let reset = client.initialize_workflow(workflow.id, args.force).await?;
                context.output.value(&reset, initialized)
            }
            Self::Reinitialize(args) => args.execute(context, client).await,
            Self::History(args) => args.execute(context, client).await,
            Self::ResetStatus(args) => args.execute(context, client).await,
            Self::SyncStatus(args) => args.execute(context, client).await,
            Self::Export(args) => args.execute(context, client).await,
            Self::Update(args) => args.execute(context, client).await,
            Self::ListActions(args) => args.execute(context, client).await,
            Self::UpdateAction(args) => args.execute(context, client).await,
            Self::DeleteAction(args) => args.execute(context, client).await,
            Self::Create(_) | Self::Cancel(_) | Self::Import(_) | Self::IsComplete(_) => {
                unreachable!("handled before a session was opened")
            }
        }
    }
}

impl OneWorkflowArgs {
    async fn find(&self, client: &Client) -> Result<WorkflowView> {
        references::workflow(client, &self.workflow).await
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let mut query = Query::new().add("include_progress", true);
        if self.include_archived {
            query = query.add("include_archived", true);
        }
        let newest_first = ("id", true);
        let page: Page<WorkflowView> =
            self.paging.fetch_by(client, "/workflows", query, newest_first).await?;
        context
            .output
            .list("workflows", &page.items, page.total_count, || workflows_table(&page.items))
    }
}

impl DeleteArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let mut workflows = Vec::new();
        for name in &self.workflows {
            workflows.push(references::workflow(client, name).await?);
        }
        if !self.yes {
            confirm(&workflows)?;
        }
        let mut all = RemovedFiles::default();
        for workflow in &workflows {
            let removed =
                client.delete_workflow_files(workflow.id, self.force, self.with_files).await?;
            if !context.output.is_json() {
                let (what, files) = (describe::workflow(workflow), with_files(&removed));
                context.output.data(&format!("deleted {what}{files}\n"))?;
            }
            all.files += removed.files;
            all.bytes += removed.bytes;
            all.unseen.extend(removed.unseen);
        }
        all.unseen.sort();
        all.unseen.dedup();
        tell_unseen(context, &all.unseen);
        if context.output.is_json() {
            let ids: Vec<_> = workflows.iter().map(|w| w.id).collect();
            context.output.json(&json!({ "deleted": ids, "removed": all }))?;
        }
        Ok(())
    }
}

/// What went with a workflow, as the end of a line.
fn with_files(removed: &RemovedFiles) -> String {
    match removed.files {
        0 => String::new(),
        files => format!(" with {} ({})", human::count(files, "file"), human::bytes(removed.bytes)),
    }
}

fn tell_unseen(context: &Context, unseen: &[String]) {
    for directory in unseen {
        context.output.warn(format_args!(
            "the server cannot see `{}`: files there stay",
            crate::output::escape::line(directory)
        ));
    }
}

impl Prune {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let ask = |dry_run: bool| PruneRequest {
            older_than_seconds: self.older_than,
            keep_failed: self.keep_failed,
            files: self.with_files,
            dry_run,
        };
        if !self.dry_run && !self.yes {
            let would = client.prune_workflows(&ask(true)).await?;
            if would.workflows.is_empty() {
                return print_pruned(context, &would);
            }
            let name = |w: &PrunedWorkflow| format!("workflow {} ({})", w.id, w.name);
            confirm_names(&would.workflows.iter().map(name).collect::<Vec<_>>())?;
        }
        print_pruned(context, &client.prune_workflows(&ask(self.dry_run)).await?)
    }
}

fn print_pruned(context: &Context, view: &PruneView) -> Result<()> {
    if context.output.is_json() {
        return context.output.json(view);
    }
    let verb = if view.dry_run { "would delete" } else { "deleted" };
    for workflow in &view.workflows {
        context.output.data(&format!(
            "{verb} workflow {} ({}), which ended {}{}\n",
            workflow.id,
            crate::output::escape::line(&workflow.name),
            human::local_time(workflow.ended_ms),
            with_files(&workflow.removed)
        ))?;
    }
    for why in &view.kept {
        context.output.warn(why);
    }
    let mut unseen: Vec<String> =
        view.workflows.iter().flat_map(|w| w.removed.unseen.clone()).collect();
    unseen.sort();
    unseen.dedup();
    tell_unseen(context, &unseen);
    match (view.workflows.is_empty(), view.dry_run) {
        (true, _) => context.output.talk("no workflow ended that long ago"),
        (false, true) => {}
        (false, false) => context.output.talk(
            "hint: the file of the database keeps its size for what comes next; `torc server vacuum` makes it smaller",
        ),
    }
    Ok(())
}

impl UpdateWorkflowArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let update = UpdateWorkflow {
            name: self.name,
            user: self.user,
            description: self.description,
            project: self.project,
            metadata: self.metadata,
            is_archived: None,
            auto_recover: self.auto_recover,
        };
        super::edit::something(
            update != UpdateWorkflow::default(),
            "`--name`, `--description`, `--project`, `--metadata`, `--user` or `--auto-recover`",
        )?;
        let workflow = self.one.find(client).await?;
        let changed = client.update_workflow(workflow.id, &update).await?;
        context.output.value(&changed, render)
    }
}

impl Archive {
    /// `archive true 3` and `archive false 3` of Torc 1.0.0, beside `archive 3 [--undo]`.
    fn way(&self) -> (bool, &[String]) {
        match self.workflows.split_first() {
            Some((word, rest)) if !rest.is_empty() && word == "true" => (true, rest),
            Some((word, rest)) if !rest.is_empty() && word == "false" => (false, rest),
            _ => (!self.undo, &self.workflows),
        }
    }

    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let (is_archived, names) = self.way();
        let mut workflows = Vec::new();
        for name in names {
            workflows.push(references::workflow(client, name).await?);
        }
        let update = UpdateWorkflow { is_archived: Some(is_archived), ..UpdateWorkflow::default() };
        let verb = if is_archived { "archived" } else { "shown again:" };
        for workflow in &workflows {
            let path = format!("/workflows/{}", workflow.id);
            let _: WorkflowView = client.put(&path, &update).await?;
            if !context.output.is_json() {
                context.output.data(&format!("{verb} {}\n", describe::workflow(workflow)))?;
            }
        }
        if context.output.is_json() {
            let ids: Vec<_> = workflows.iter().map(|w| w.id).collect();
            context.output.json(&json!({ "workflows": ids, "is_archived": is_archived }))?;
        }
        Ok(())
    }
}

/// Asks on the terminal; without one, the answer must come with the call.
fn confirm(workflows: &[WorkflowView]) -> Result<()> {
    confirm_names(&workflows.iter().map(describe::workflow).collect::<Vec<_>>())
}

fn confirm_names(names: &[String]) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::usage_hint(
            format!("deleting {} cannot be undone", names.join(", ")),
            "use `--yes` to confirm",
        ));
    }
    let mut err = std::io::stderr();
    let asked = write!(err, "delete {} with all results? [y/N] ", names.join(", "))
        .and_then(|()| err.flush());
    asked.map_err(Error::io("write", "standard error"))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Error::io("read", "standard input"))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::usage("nothing was deleted")),
    }
}

impl Reinitialize {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = self.one.find(client).await?;
        let reset = match &self.spec {
            Some(path) => self.apply(context, client, &workflow, path).await?,
            None => {
                let body = ReinitializeRequest {
                    dry_run: self.dry_run,
                    force: self.force,
                    spec: None,
                    run_id: Some(workflow.run_id),
                };
                client.reinitialize_workflow(workflow.id, &body).await?
            }
        };
        print_reset(context, &reset)?;
        if !context.output.is_json() {
            let status = client.workflow_status(workflow.id).await?;
            if let Some(left) = left_alone(&status, &reset) {
                context.output.talk(left);
            }
        }
        Ok(())
    }
}

impl Reinitialize {
    /// The same as `torc run FILE` does before it runs anything.
    async fn apply(
        &self,
        context: &Context,
        client: &Client,
        workflow: &WorkflowView,
        path: &std::path::Path,
    ) -> Result<ResetView> {
        let checked = super::spec::load(context, path)?;
        let how = ApplyOptions {
            force: self.force,
            running: self.running.unwrap_or(torc_model::status::RunningJobs::Finish),
            ..ApplyOptions::default()
        };
        let apply = Apply { context, client, id: workflow.id, checked: &checked };
        let plan = apply.plan(&how).await?;
        if !context.output.is_json() && !plan.jobs.is_empty() {
            context.output.talk(format_args!("plan: {}", plan.counts));
        }
        if self.dry_run {
            return Ok(plan.into());
        }
        super::apply::confirm_removal(&plan, self.yes)?;
        Ok(apply.carry_out(&how, &plan).await?.into())
    }
}

impl HistoryArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = self.one.find(client).await?;
        let revisions = client.list_revisions(workflow.id).await?;
        let count = revisions.len() as i64;
        context.output.list("revisions", &revisions, count, || {
            let mut table = Table::new(["revision", "when", "who", "run", "plan"]);
            for revision in &revisions {
                table.row([
                    Field::number(revision.revision),
                    Field::text(human::local_time(revision.made_ms)),
                    Field::text(&revision.made_by),
                    Field::number(revision.run_id),
                    Field::text(revision.counts.to_string()),
                ]);
            }
            table
        })
    }
}

impl Reset {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = self.one.find(client).await?;
        let body = ResetRequest {
            failed_only: self.failed_only,
            jobs: self.job,
            dry_run: self.dry_run,
            force: self.force,
            run_id: Some(workflow.run_id),
        };
        let reset = client.reset_status(workflow.id, &body).await?;
        print_reset(context, &reset)
    }
}

impl SyncStatus {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = self.one.find(client).await?;
        let view = super::slurm::synchronize(client, workflow.id, self.dry_run).await?;
        context.output.value(&view, super::slurm::render_sync)
    }
}

impl Export {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = self.one.find(client).await?;
        if self.full {
            let what = describe::workflow(&workflow);
            let mut text = full_export::full(client, workflow).await?.to_string();
            text.push('\n');
            return self.write(context, &text, &what);
        }
        let mut spec: serde_json::Value =
            client.get(&format!("/workflows/{}/spec", workflow.id)).await?;
        let of = |what: &str| format!("/workflows/{}/{what}", workflow.id);
        let adjustments: Vec<AdjustmentView> =
            client.list_all(&of("adjustments"), &Query::new()).await?;
        let events: Vec<EventView> = client
            .list_all(&of("events"), &Query::new().add("kind", EventKind::JobChanged))
            .await?;
        let changes = Changes::new(&spec, &adjustments, &events);
        let mut jobs = Vec::new();
        for id in changes.jobs() {
            jobs.push(client.get_job(id).await?);
        }
        changes.apply(&mut spec, &jobs);
        if let Some(first) = changes.left_out.first() {
            let jobs = human::count(changes.left_out.len() as i64, "job");
            let first = crate::output::escape::line(first);
            context.output.warn(format_args!(
                "changes to {jobs} ({first} first) were not exported: the spec has one entry for several jobs"
            ));
        }
        let by_name = self.output.as_deref().and_then(torc_spec::SpecFormat::from_path);
        if let (None, None, Some(path)) = (by_name, self.written_as, &self.output)
            && path.extension().is_some()
        {
            return Err(Error::usage_hint(
                format!("`{}` names no format of a spec", path.display()),
                "end it with .yaml, .json, .json5 or .kdl, or name the format with `--as`",
            ));
        }
        let format = self.written_as.or(by_name).unwrap_or(torc_spec::SpecFormat::Json);
        let text = match torc_spec::Spec::from_value(spec) {
            Ok(parsed) => parsed.spec.write(format),
            Err(errors) => return Err(Error::Spec { rendered: errors.render(false) }),
        };
        self.write(context, &text, &describe::workflow(&workflow))
    }

    fn write(self, context: &Context, text: &str, what: &str) -> Result<()> {
        let Some(path) = self.output.filter(|path| path.as_os_str() != "-") else {
            return context.output.data(text);
        };
        // A spec that is there may have comments that the workflow does not know.
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).create_new(!self.force);
        let file = options.open(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Error::usage_hint(
                format!("`{}` is there already", path.display()),
                "name another file, or use `--force` to replace it",
            ),
            _ => Error::io("write", &path)(error),
        });
        file?.write_all(text.as_bytes()).map_err(Error::io("write", &path))?;
        context.output.talk(format_args!("wrote {what} to `{}`", path.display()));
        Ok(())
    }
}

fn print_reset(context: &Context, reset: &ResetView) -> Result<()> {
    let output = context.output;
    for warning in &reset.warnings {
        output.warn(crate::output::escape::line(warning));
    }
    if output.is_json() {
        return output.json(reset);
    }
    if !reset.jobs.is_empty() {
        let mut table = Table::new(["id", "name", "was", "reason"]);
        for job in &reset.jobs {
            table.row([
                Field::number(job.job_id.0),
                Field::text(&job.name),
                Field::status(job.from),
                Field::text(&job.reason),
            ]);
        }
        output.data(&table.render())?;
    }
    let jobs = human::count(reset.jobs.len() as i64, "job");
    let id = reset.workflow_id;
    match (reset.dry_run, reset.jobs.len()) {
        (true, _) => {
            output.talk(format_args!("dry run: {jobs} would run again; nothing was changed"))
        }
        (false, 0) => output.talk(format_args!("{jobs} will run again")),
        (false, 1) => output.talk(format_args!("{jobs} will run again; `torc run {id}` runs it")),
        (false, _) => output.talk(format_args!("{jobs} will run again; `torc run {id}` runs them")),
    }
    Ok(())
}

/// The jobs that did not succeed and do not run again, and who lets them.
fn left_alone(status: &StatusView, reset: &ResetView) -> Option<String> {
    let bad =
        [JobStatus::Failed, JobStatus::Terminated, JobStatus::Canceled, JobStatus::PendingFailed];
    let left = |which: JobStatus| {
        // A dry run has changed no status yet.
        let chosen =
            reset.jobs.iter().filter(|job| reset.dry_run && job.from == which).count() as i64;
        (which, count(status, which) - chosen)
    };
    let left: Vec<String> = bad
        .into_iter()
        .map(left)
        .filter(|(_, count)| *count > 0)
        .map(|(which, count)| format!("{} {which}", human::grouped(count)))
        .collect();
    let id = reset.workflow_id;
    let hint = format!("`torc workflows reset-status {id} --failed-only` lets them run again");
    (!left.is_empty()).then(|| {
        format!("jobs that did not succeed are left as they are ({}); {hint}", left.join(", "))
    })
}

fn initialized(reset: &ResetView) -> String {
    let jobs = human::count(reset.jobs.len() as i64, "job");
    format!("run {} of workflow {} began with {jobs}\n", reset.run_id, reset.workflow_id)
}

fn workflows_table(workflows: &[WorkflowView]) -> Table {
    let mut table =
        Table::new(["id", "name", "user", "state", "progress", "failed", "run", "age", "took"]);
    for workflow in workflows {
        let progress = workflow.progress.clone().unwrap_or_default();
        let count = |which: &[JobStatus]| -> i64 {
            which.iter().filter_map(|s| progress.counts.get(s.as_str())).sum()
        };
        let failed = count(&[JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed]);
        let end = progress.last_end_ms.filter(|_| progress.is_complete);
        let took = progress.started_ms.map(|started| {
            human::seconds((end.unwrap_or_else(human::now_ms) - started) as f64 / 1000.0)
        });
        let completed = count(&[JobStatus::Completed]);
        table.row([
            Field::number(workflow.id.0),
            Field::text(&workflow.name),
            Field::text(&workflow.user),
            Field::workflow_state(state(workflow, failed)),
            Field::right(format!(
                "{} of {}",
                human::grouped(completed),
                human::grouped(workflow.job_count)
            )),
            Field::failures(failed),
            Field::number(workflow.run_id),
            Field::right(human::age(workflow.created_ms)),
            Field::optional(took.filter(|_| end.is_some() || progress.active_runners > 0)),
        ]);
    }
    table
}

/// Where a workflow stands, in a word or two.
fn state(workflow: &WorkflowView, failed: i64) -> WorkflowState {
    let progress = workflow.progress.clone().unwrap_or_default();
    let canceled = progress.counts.get(JobStatus::Canceled.as_str()).copied().unwrap_or_default();
    match (workflow.is_archived, workflow.is_canceled, progress.is_complete) {
        (true, _, _) => WorkflowState::Archived,
        (_, true, _) => WorkflowState::Canceled,
        (_, _, true) if failed + canceled > 0 => WorkflowState::EndedWithFailures,
        (_, _, true) => WorkflowState::Complete,
        _ if workflow.run_id == 0 => WorkflowState::NotStarted,
        _ if progress.active_runners > 0 => WorkflowState::Running,
        _ => WorkflowState::NoRunner,
    }
}

fn render(workflow: &WorkflowView) -> String {
    let mut card = Card::new(format!("{} (workflow {})", workflow.name, workflow.id));
    card.optional("description", workflow.notes.description.as_ref());
    card.optional("project", workflow.notes.project.as_ref());
    card.line("user", &workflow.user);
    card.line("created", human::local_time(workflow.created_ms));
    card.line("run", workflow.run_id.to_string());
    card.line("jobs", human::grouped(workflow.job_count));
    if workflow.is_canceled {
        card.line("canceled", "yes");
    }
    if workflow.use_pending_failed {
        card.line("failures", "wait for a verdict as pending_failed");
    }
    card.optional("metadata", workflow.notes.metadata.as_ref().map(ToString::to_string));
    card.render()
}
