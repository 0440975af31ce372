//! `torc run`: a spec becomes a workflow, a workflow is resumed or brought to what its spec says now,
//! and a runner in this process does the work.

use super::apply::{self, Apply, ApplyArgs};
use super::create;
use super::drive::{self, Drive, Stay};
use super::references;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::spec::{self, Checked};
use super::tui::{self, ScreenOptions};
use super::{Context, block_on, describe, detach, job_output, recover};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{escape, human};
use std::cell::Cell;
use std::path::Path;
use torc_client::{Client, Query};
use torc_model::api::{
    ApplyOptions, ApplyView, PlanCounts, PlannedChange, RunnerView, WorkflowView,
};
use torc_model::digest;
use torc_model::ids::WorkflowId;
use torc_model::status::{RunnerState, RunningJobs};

/// Run a spec: create the workflow, resume it, or run what has changed
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc run sweep.yaml                    create the workflow and run it to its end
  torc run sweep.yaml                    again: resumes it, runs what failed or what has changed since,
                                         or says that it is up to date
  torc run sweep.yaml --dry-run          what would run, and why
  torc run sweep.yaml --rerun 'sim_.*'   those jobs again, with what depends on them
  torc run sweep.yaml --touch            accept the outputs that are there as they are
  torc run sweep.yaml --new              start over with a workflow of its own
  torc run sweep.yaml --notify ntfy:https://ntfy.sh/my-topic
                                         tell a person how it goes
  torc run latest -j 4                   resume the latest workflow, four jobs at once
  torc run sweep.yaml --num-cpus 8 --memory 16g

A job runs again when its command (after expansion), steps, env, declared files or user data, GPUs or
nodes have changed, when an input file or a declared script was modified, when an output is missing, and
when a job that it depends on runs again. Comments, the order of keys, and what only plans (runtime,
priority, memory, CPUs) change nothing.

Ctrl-C asks running jobs to end and puts them back into the queue; a second Ctrl-C kills them.
Exits with 0 when all jobs succeeded and with 1 when some did not.")]
pub struct Args {
    /// Spec file (`-`: standard input), or a workflow: its id, its name, or `latest`
    #[arg(value_name = "SPEC|WORKFLOW")]
    work: String,

    /// Create a new workflow even if there is one of this spec
    #[arg(long, conflicts_with_all = ["dry_run", "rerun", "touch"])]
    new: bool,

    /// Run these jobs again too, with what depends on them: a name, a regular expression, or `all`;
    /// may be repeated
    #[arg(long, value_name = "NAME|REGEX|all")]
    rerun: Vec<String>,

    /// Accept outputs that exist as they are in place of running the jobs that changed; runs nothing
    #[arg(long, conflicts_with = "rerun")]
    touch: bool,

    #[command(flatten)]
    apply: ApplyArgs,

    #[command(flatten)]
    options: RunOptions,
}

/// What `run` and `exec` share.
#[derive(clap::Args, Debug)]
pub struct RunOptions {
    /// Go on although input files are missing
    #[arg(long)]
    pub force: bool,

    /// Let the server itself try failed jobs again where that helps: what passes, memory, time
    #[arg(long)]
    pub auto_recover: bool,

    /// Tell a person how it goes: `ntfy:URL`, `slack:URL`, `teams:URL`, `mail:ADDRESS` or `command:PROGRAM`;
    /// may be repeated
    #[arg(long, value_name = "KIND:TARGET", value_parser = super::notify::wanted)]
    pub notify: Vec<super::notify::Wanted>,

    /// Work in the background; `torc status` shows how far it is
    #[arg(long, visible_alias = "no-wait")]
    pub detach: bool,

    /// See it in this terminal, as with `torc tui`; the run is a process of its own and goes on when you leave
    #[arg(long, conflicts_with = "detach")]
    pub tui: bool,

    #[command(flatten)]
    pub screen: ScreenOptions,

    #[command(flatten)]
    pub runner: RunnerOptions,
}

impl RunOptions {
    fn start(&self) -> create::Start {
        if self.force { create::Start::Force } else { create::Start::Careful }
    }
}

/// What to run.
enum RunWork {
    Spec(Box<Checked>),
    Workflow(String),
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let work = self.work(context)?;
        if let RunWork::Workflow(_) = work {
            let spec_only = [
                ("--new", self.new),
                ("--rerun", !self.rerun.is_empty()),
                ("--touch", self.touch),
                ("--dry-run", self.apply.dry_run),
            ];
            if let Some((option, _)) = spec_only.iter().find(|(_, is_given)| *is_given) {
                return Err(Error::usage_hint(
                    format!("`{option}` needs a spec"),
                    "a workflow can only be resumed; give the spec file",
                ));
            }
        }
        match work {
            RunWork::Spec(checked) if self.new => run_new(context, &checked, &self.options, None),
            RunWork::Spec(checked) => self.run_spec(context, &checked),
            RunWork::Workflow(name) => run_workflow(context, &name, &self.options),
        }
    }

    /// Does what is needed: creates the workflow, resumes it, or applies the spec to it.
    fn run_spec(&self, context: &Context, checked: &Checked) -> Result<Exit> {
        // Asked again, because the server ended in the middle, it does not create a second one.
        let made = Cell::new(None);
        let find = async |client: &Client| {
            if let Some(id) = made.get() {
                return Ok(Found::Run(client.get_workflow(id).await?));
            }
            let Some(workflow) = find_earlier(client, checked).await? else {
                if self.apply.dry_run {
                    return self.describe_new(context, checked);
                }
                if self.touch {
                    let created = create::create(context, client, checked, None).await?;
                    context.output.talk(create::describe(&created).trim_end());
                    let workflow = client.get_workflow(created.id).await?;
                    return self.apply(context, client, checked, workflow).await;
                }
                return create_new(context, client, checked, &self.options, &made).await;
            };
            self.apply(context, client, checked, workflow).await
        };
        run_found(context, Access::Create, &self.options, None, find)
    }

    /// Brings a workflow that is there to what the spec says.
    async fn apply(
        &self,
        context: &Context,
        client: &Client,
        checked: &Checked,
        workflow: WorkflowView,
    ) -> Result<Found> {
        let output = context.output;
        let how = ApplyOptions {
            force: self.options.force,
            failed: true,
            rerun: self.rerun.clone(),
            touch: self.touch,
            running: self.apply.running.unwrap_or(RunningJobs::Finish),
            ..ApplyOptions::default()
        };
        let apply = Apply { context, client, id: workflow.id, checked };
        let plan = apply.plan(&how).await?;
        if self.apply.dry_run {
            apply::print(output, &workflow, &plan)?;
            return Ok(Found::Done(Exit::Success));
        }
        if !plan.is_change {
            return match plan.is_complete && !drive::has_due_action(client, workflow.id).await? {
                true => up_to_date(context, client, &workflow, &plan).await,
                false => {
                    output.talk(format_args!(
                        "resuming {}; use `--new` to start over",
                        describe::workflow(&workflow)
                    ));
                    Ok(Found::Run(workflow))
                }
            };
        }
        if !plan.jobs.is_empty() {
            apply::show(output, &workflow, &plan);
        }
        apply::confirm_removal(&plan, self.apply.yes)?;
        let done = apply.carry_out(&how, &plan).await?;
        if self.touch {
            return touched(context, &done);
        }
        if plan.is_complete && done.counts.to_run() == 0 {
            return up_to_date(context, client, &workflow, &done).await;
        }
        Ok(Found::Run(client.get_workflow(workflow.id).await?))
    }

    /// The plan of a spec that was never run here.
    fn describe_new(&self, context: &Context, checked: &Checked) -> Result<Found> {
        let plan = checked.spec.plan().map_err(|errors| spec::wrong(&errors))?.0;
        let count = plan.jobs.len() as i64;
        let mut counts = PlanCounts { total: count, ..PlanCounts::default() };
        counts.changes.insert(PlannedChange::New, count);
        if context.output.is_json() {
            context.output.json(&serde_json::json!({ "dry_run": true, "counts": counts }))?;
        } else {
            context.output.talk(format_args!("{}: {counts}; nothing was created", plan.name));
        }
        Ok(Found::Done(Exit::Success))
    }

    /// A number or `latest` is a workflow; anything else is a file if there is one, or looks like
    /// one.
    fn work(&self, context: &Context) -> Result<RunWork> {
        let path = Path::new(&self.work);
        let is_reference = self.work == references::LATEST || self.work.parse::<i64>().is_ok();
        let looks_like_a_file = self.work == "-"
            || self.work.contains('/')
            || torc_spec::SpecFormat::from_path(path).is_some();
        if !is_reference && (looks_like_a_file || path.exists()) {
            return spec::load(context, path).map(|checked| RunWork::Spec(Box::new(checked)));
        }
        Ok(RunWork::Workflow(self.work.clone()))
    }
}

/// What a call comes to.
#[expect(clippy::large_enum_variant, reason = "there is one of it in a call")]
enum Found {
    /// This is to be run.
    Run(WorkflowView),
    /// Nothing is left to do.
    Done(Exit),
}

/// Runs a spec as a workflow of its own, whatever there is already.
pub fn run_new(
    context: &Context,
    checked: &Checked,
    options: &RunOptions,
    show: Option<job_output::Style>,
) -> Result<Exit> {
    // Asked again, because the server ended in the middle, it does not create a second one.
    let made = Cell::new(None);
    let find = async |client: &Client| match made.get() {
        Some(id) => Ok(Found::Run(client.get_workflow(id).await?)),
        None => create_new(context, client, checked, options, &made).await,
    };
    run_found(context, Access::Create, options, show, find)
}

async fn create_new(
    context: &Context,
    client: &Client,
    checked: &Checked,
    options: &RunOptions,
    made: &Cell<Option<WorkflowId>>,
) -> Result<Found> {
    let created = create::create(context, client, checked, Some(options.start())).await?;
    context.output.talk(create::describe(&created).trim_end());
    made.set(Some(created.id));
    Ok(Found::Run(client.get_workflow(created.id).await?))
}

/// `up to date: 202 of 202 jobs`.
async fn up_to_date(
    context: &Context,
    client: &Client,
    workflow: &WorkflowView,
    plan: &ApplyView,
) -> Result<Found> {
    let counts = &plan.counts;
    let mut text = format!(
        "up to date: {} of {}",
        human::grouped(counts.up_to_date),
        human::count(counts.total, "job")
    );
    if counts.disabled > 0 {
        text += &format!(", {} disabled", human::grouped(counts.disabled));
    }
    context.output.talk(text);
    if context.output.is_json() {
        context.output.json(&client.workflow_status(workflow.id).await?)?;
    }
    Ok(Found::Done(Exit::Success))
}

/// What `--touch` did.
fn touched(context: &Context, done: &ApplyView) -> Result<Found> {
    if context.output.is_json() {
        context.output.json(done)?;
        return Ok(Found::Done(Exit::Success));
    }
    let accepted = done.counts.changes.get(&PlannedChange::Accepted).copied().unwrap_or(0);
    let left = done.counts.to_run() + done.counts.unfinished;
    let mut text =
        format!("the outputs of {} were accepted as they are", human::count(accepted, "job"));
    if left > 0 {
        let id = done.workflow_id;
        text += &format!("; {} to run (`torc run {id}`)", human::count(left, "job"));
    }
    context.output.talk(text);
    Ok(Found::Done(Exit::Success))
}

/// Resumes a workflow.
pub fn run_workflow(context: &Context, name: &str, options: &RunOptions) -> Result<Exit> {
    run_found(context, Access::Existing, options, None, async |client: &Client| {
        references::workflow(client, name).await.map(Found::Run)
    })
}

fn run_found(
    context: &Context,
    access: Access,
    options: &RunOptions,
    show: Option<job_output::Style>,
    find: impl AsyncFn(&Client) -> Result<Found>,
) -> Result<Exit> {
    options.runner.check()?;
    if options.tui {
        tui::check_terminal()?;
    }
    let find = async |client: &Client| {
        let found = find(client).await?;
        if let Found::Run(workflow) = &found {
            recover::switch_on(client, workflow.id, options.auto_recover).await?;
            for wanted in &options.notify {
                wanted.ask(client, workflow.id, context.locator.url.is_none()).await?;
            }
        }
        Ok(found)
    };
    if options.detach {
        return match context.with_server(access, find)? {
            Found::Run(workflow) => detach::run_in_background(context, &workflow, &options.runner),
            Found::Done(exit) => Ok(exit),
        };
    }
    if options.tui {
        return match context.with_server(access, find)? {
            Found::Run(workflow) => tui::run_with_screens(context, workflow, options),
            Found::Done(exit) => Ok(exit),
        };
    }
    block_on(async {
        let mut session =
            Session::open_for(&context.locator, access, Purpose::Run { port: 0 }).await?;
        let mut found = None;
        let mut go = async |session: &mut Session| {
            let workflow = match &found {
                Some(found) => WorkflowView::clone(found),
                None => match find(&session.client).await? {
                    Found::Run(workflow) => found.insert(workflow).clone(),
                    Found::Done(exit) => return Ok(exit),
                },
            };
            let runner = &options.runner;
            let force = options.force;
            let drive =
                Drive { context, workflow, options: runner, force, show, stay: Stay::default() };
            match other_runner_here(&session.client, &drive.workflow).await? {
                Some(runner) => drive::follow(session, drive, &runner).await,
                None => drive::run(session, drive).await,
            }
        };
        let mut result = go(&mut session).await;
        // Another `torc run` has just ended, and its server with it: we have one of our own then.
        let is_gone = matches!(result, Err(Error::Unreachable { .. })) && session.is_shared();
        // A command that creates something must not do so twice; what never reached a server was not done.
        let is_unsent = matches!(result, Err(Error::Unreachable { is_unsent: true, .. }));
        if is_gone && (access == Access::Existing || is_unsent) {
            session.take_over().await;
            result = go(&mut session).await;
        }
        session.close().await;
        result
    })
}

/// The workflow that this file describes, as the server says. Another file of the same name is
/// another workflow, and not a guess.
async fn find_earlier(client: &Client, checked: &Checked) -> Result<Option<WorkflowView>> {
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    let mut query = Query::new().add("name", checked.name()).add("directory", create::utf8(&here)?);
    if let Some(path) = &checked.path {
        query = query.add("spec_path", path);
    }
    let mut found = client.find_earlier_workflow(&query).await?;
    // A file that was renamed or copied? What tells costs a look at the whole spec.
    if found.other.is_some() {
        let query = query.add("spec_digest", digest::of_spec(&checked.value()));
        found = client.find_earlier_workflow(&query).await?;
    }
    match found.other {
        Some(other) => Err(two_files(&other, checked)),
        None => Ok(found.workflow),
    }
}

fn two_files(other: &WorkflowView, checked: &Checked) -> Error {
    let show = |path: Option<&str>| match path {
        Some(path) => {
            let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
            format!("`{}`", escape::line(&name.unwrap_or_else(|| path.to_owned())))
        }
        None => "standard input".into(),
    };
    let (mine, theirs) = (show(checked.path.as_deref()), show(other.origin.spec_path.as_deref()));
    let name = escape::line(checked.name()).into_owned();
    let id = other.id;
    Error::usage_hint(
        format!(
            "{mine} and {theirs} both describe a workflow called `{name}` in this directory, and workflow {id} was \
             made from {theirs}"
        ),
        format!(
            "give one of them another `name`, begin a workflow of its own with `--new`, or change workflow {id} into \
             this spec with `torc workflows reinitialize {id} --spec FILE`"
        ),
    )
}

/// A runner of this workflow that is alive on this machine. A second one would share out the same
/// CPUs again.
pub async fn other_runner_here(
    client: &Client,
    workflow: &WorkflowView,
) -> Result<Option<RunnerView>> {
    let query = Query::new().add("workflow_id", workflow.id);
    let runners: Vec<RunnerView> = client.list_all("/compute_nodes", &query).await?;
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(runners
        .into_iter()
        .find(|runner| runner.state == RunnerState::Active && runner.hostname == here))
}

/// The name of a workflow for messages.
pub fn title(workflow: &WorkflowView) -> String {
    format!("workflow {} `{}`", workflow.id, escape::line(&workflow.name))
}
