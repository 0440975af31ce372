//! `torc run`: a spec becomes a workflow, or a workflow goes on, and a runner in this process does
//! the work.

use super::create;
use super::drive::{self, Drive, count};
use super::references;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::spec::{self, Checked};
use super::{Context, block_on, describe, detach, recover};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{escape, human};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use torc_client::{Client, Query};
use torc_model::api::{RunnerView, WorkflowView};
use torc_model::ids::WorkflowId;
use torc_model::plan::Plan;
use torc_model::status::{JobStatus, RunnerState};

/// Unfinished workflows of the same name that are compared with a spec, newest first.
const MAX_COMPARED: i64 = 50;

/// Run a spec, or go on with a workflow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc run sweep.yaml                    create the workflow and run it to its end
  torc run sweep.yaml                    again, after a crash or Ctrl-C: goes on where it stopped
  torc run sweep.yaml --new              start over
  torc run latest -j 4                   go on with the latest workflow, four jobs at once
  torc run sweep.yaml --num-cpus 8 --memory 16g

Ctrl-C asks running jobs to end and puts them back into the queue; a second Ctrl-C kills them.
Exits with 0 when all jobs succeeded and with 1 when some did not.")]
pub struct Args {
    /// Spec file (`-`: standard input), or a workflow: its id, its name, or `latest`
    #[arg(value_name = "SPEC|WORKFLOW")]
    work: String,

    /// Create a new workflow even if one of the same spec is not finished
    #[arg(long)]
    new: bool,

    #[command(flatten)]
    options: RunOptions,
}

/// What `run` and `exec` share.
#[derive(clap::Args, Debug)]
pub struct RunOptions {
    /// Go on although input files are missing
    #[arg(long)]
    pub force: bool,

    /// Work in the background; `torc status` shows how far it is
    #[arg(long, visible_alias = "no-wait")]
    pub detach: bool,

    #[command(flatten)]
    pub runner: RunnerOptions,
}

impl RunOptions {
    fn start(&self) -> create::Start {
        if self.force { create::Start::Force } else { create::Start::Careful }
    }
}

/// What to run.
enum Work {
    Spec(Box<Checked>),
    Workflow(String),
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.work(context)? {
            Work::Spec(checked) => run_spec(context, *checked, self.new, &self.options),
            Work::Workflow(_) if self.new => Err(Error::usage_hint(
                "`--new` needs a spec",
                "a workflow can only go on; give the spec file",
            )),
            Work::Workflow(name) => run_workflow(context, &name, &self.options),
        }
    }

    /// A number or `latest` is a workflow; anything else is a file if there is one, or looks like
    /// one.
    fn work(&self, context: &Context) -> Result<Work> {
        let path = Path::new(&self.work);
        let is_reference = self.work == references::LATEST || self.work.parse::<i64>().is_ok();
        let looks_like_a_file = self.work == "-"
            || self.work.contains('/')
            || torc_spec::Format::from_path(path).is_some();
        if !is_reference && (looks_like_a_file || path.exists()) {
            return spec::load(context, path).map(|checked| Work::Spec(Box::new(checked)));
        }
        Ok(Work::Workflow(self.work.clone()))
    }
}

/// Runs a checked spec: goes on with an unfinished workflow that was made from it, or creates one.
pub fn run_spec(
    context: &Context,
    checked: Checked,
    new: bool,
    options: &RunOptions,
) -> Result<Exit> {
    // Asked again, because the server ended in the middle, it does not create a second one.
    let made = Cell::new(None);
    let find_or_create = async |client: &Client| {
        if let Some(id) = made.get() {
            return Ok(client.get_workflow(id).await?);
        }
        let earlier = if new { Earlier::Nothing } else { find_earlier(client, &checked).await? };
        match earlier {
            Earlier::Unfinished(workflow) => {
                context.output.talk(format_args!(
                    "going on with {}, which was made from the same spec; `--new` begins anew",
                    describe::workflow(&workflow)
                ));
                return Ok(*workflow);
            }
            Earlier::EndedBadly { id, bad, can_recover } => {
                let bad = human::count(bad, "job");
                let how = match can_recover {
                    true => format!("`torc recover {id}` goes on with the old one"),
                    false => format!(
                        "`torc workflows reset-status {id} --failed-only` lets the old one go on"
                    ),
                };
                context.output.talk(format_args!(
                    "note: workflow {id} of the same spec has ended, {bad} of it without success; a new one begins ({how})"
                ));
            }
            Earlier::Edited { id, fits } => {
                let how = match fits {
                    true => {
                        format!(
                            "`torc workflows reinitialize {id} --spec FILE` takes the changes into the old one"
                        )
                    }
                    false => {
                        "jobs or dependencies are others, so the old one cannot take them over"
                            .into()
                    }
                };
                context.output.talk(format_args!(
                    "note: workflow {id} was made from another version of this spec; a new one begins, with all jobs \
                     ({how})"
                ));
            }
            Earlier::Nothing => {}
        }
        let created = create::create(context, client, &checked, Some(options.start())).await?;
        context.output.talk(create::describe(&created).trim_end());
        made.set(Some(created.id));
        Ok(client.get_workflow(created.id).await?)
    };
    run_found(context, Access::Create, options, find_or_create)
}

fn run_workflow(context: &Context, name: &str, options: &RunOptions) -> Result<Exit> {
    run_found(context, Access::Existing, options, async |client: &Client| {
        references::workflow(client, name).await
    })
}

fn run_found(
    context: &Context,
    access: Access,
    options: &RunOptions,
    find: impl AsyncFn(&Client) -> Result<WorkflowView>,
) -> Result<Exit> {
    options.runner.check()?;
    if options.detach {
        let workflow = context.with_server(access, &find)?;
        return detach::run_in_background(context, &workflow, &options.runner);
    }
    // Before there are threads, because they take after this one.
    torc_runner::prefer_short_turns();
    block_on(async {
        let mut session =
            Session::open_for(&context.locator, access, Purpose::Run { port: 0 }).await?;
        let mut found = None;
        let mut go = async |session: &mut Session| {
            let workflow = match &found {
                Some(found) => WorkflowView::clone(found),
                None => found.insert(find(&session.client).await?).clone(),
            };
            let drive = Drive { context, workflow, options: &options.runner, force: options.force };
            match other_runner_here(&session.client, &drive.workflow).await? {
                Some(runner) => drive::follow(session, drive, &runner).await,
                None => drive::run(session, drive).await,
            }
        };
        let mut result = go(&mut session).await;
        // Another `torc run` has just ended, and its server with it: we have one of our own then.
        let is_gone = matches!(result, Err(Error::Unreachable { .. })) && session.is_shared();
        // Whoever creates something must not do so twice; what never reached a server was not done.
        let is_unsent = matches!(result, Err(Error::Unreachable { is_unsent: true, .. }));
        if is_gone && (access == Access::Existing || is_unsent) {
            session.take_over().await;
            result = go(&mut session).await;
        }
        session.close().await;
        result
    })
}

/// What was made from this spec in this very directory.
enum Earlier {
    /// The newest that is not finished.
    Unfinished(Box<WorkflowView>),
    /// The newest has ended, and not all of its jobs have succeeded.
    EndedBadly {
        id: WorkflowId,
        /// So many have not.
        bad: i64,
        /// `torc recover` would let some of them run again.
        can_recover: bool,
    },
    /// The newest of this name has completed jobs, and was made before the spec was edited.
    Edited {
        id: WorkflowId,
        /// It has the same jobs and dependencies, so that it can take the edited spec over.
        fits: bool,
    },
    Nothing,
}

async fn find_earlier(client: &Client, checked: &Checked) -> Result<Earlier> {
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    let query = Query::new()
        .add("name", checked.name())
        .add("sort_by", "id")
        .add("reverse_sort", true)
        .add("limit", MAX_COMPARED);
    let (mut ended, mut is_newest, mut edited) = (Earlier::Nothing, true, None);
    for workflow in client.list_workflows(&query).await?.items {
        let same_place = workflow.directory.as_deref().is_some_and(|dir| Path::new(dir) == here);
        if !same_place {
            continue;
        }
        let is_complete = client.is_complete(workflow.id).await?.is_complete;
        let is_over = workflow.is_canceled || is_complete;
        // Only the newest of the finished ones is worth a word.
        if is_over && !std::mem::replace(&mut is_newest, false) {
            continue;
        }
        let spec: serde_json::Value =
            client.get(&format!("/workflows/{}/spec", workflow.id)).await?;
        if spec != checked.value() {
            edited.get_or_insert((workflow.id, Some(spec)));
            continue;
        }
        // What was edited since then has a workflow of its own already.
        edited.get_or_insert((workflow.id, None));
        if !is_over {
            return Ok(Earlier::Unfinished(Box::new(workflow)));
        }
        let status = client.workflow_status(workflow.id).await?;
        let failed = count(&status, JobStatus::Failed) + count(&status, JobStatus::Terminated);
        let bad = failed + count(&status, JobStatus::Canceled);
        if bad > 0 {
            let can_recover = failed > 0 && recover::would_help(client, workflow.id).await;
            ended = Earlier::EndedBadly { id: workflow.id, bad, can_recover };
        }
    }
    if let (Earlier::Nothing, Some((id, Some(before)))) = (&ended, edited)
        && count(&client.workflow_status(id).await?, JobStatus::Completed) > 0
    {
        return Ok(Earlier::Edited { id, fits: has_same_graph(before, checked) });
    }
    Ok(ended)
}

/// The same jobs with the same dependencies.
fn has_same_graph(before: serde_json::Value, checked: &Checked) -> bool {
    let Ok(before) = torc_spec::Spec::from_value(before) else { return false };
    let (Ok((before, _)), Ok((now, _))) = (before.spec.into_plan(), checked.spec.plan()) else {
        return false;
    };
    graph(&before) == graph(&now)
}

/// Each job with what it depends on.
fn graph(plan: &Plan) -> BTreeMap<&str, BTreeSet<&str>> {
    let name = |index: &usize| plan.jobs[*index].name.as_str();
    plan.jobs
        .iter()
        .map(|job| (job.name.as_str(), job.depends_on.iter().map(name).collect()))
        .collect()
}

/// A runner of this workflow that is alive on this machine. A second one would share out the same
/// CPUs again.
async fn other_runner_here(client: &Client, workflow: &WorkflowView) -> Result<Option<RunnerView>> {
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
