//! `torc submit`: creates a workflow and asks Slurm for its nodes.

use super::session::{self, Access, Session};
use super::slurm::{self, PlanView, render_plan, send_waiting};
use super::{Context, block_on, create, recover, references, spec};
use crate::embedded::living_server;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::human;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use torc_batch::{Allocator, BatchSystem as _, SentAllocation};
use torc_client::Client;
use torc_model::event::EventKind;
use torc_model::plan::{ActionKind, Plan};
use torc_model::slurm::wire::{AllocationView, SubmissionOutcome};
use torc_model::status::{ActionState, AllocationEnd, AllocationStatus, Trigger};

/// A server that was started in the background answers within this time, or never.
const SERVER_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks for it: it is no longer ours to hear from, and the file in which it announces
/// itself sends no notice.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Create a workflow and ask Slurm for its nodes
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc submit sweep_slurm.yaml --dry-run       what it would ask for, and why
  torc submit sweep_slurm.yaml                 create, ask for nodes, done; jobs run as nodes come
  torc submit 5                                a workflow that exists already

With no server named, one is started on this machine that goes on after logout; its address must be reachable from the
compute nodes. A spec without schedulers gets them from `torc slurm generate`.")]
pub struct Args {
    /// Spec file, or a workflow: its id or its name
    spec: String,

    /// Only show what would be asked for
    #[arg(long)]
    dry_run: bool,

    /// Directory for logs [default: `output` beside the workflow]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Let the server itself try failed jobs again where that helps: what passes, memory, time
    #[arg(long)]
    auto_recover: bool,

    /// Name under which compute nodes reach a server that is started here [default: this machine's
    /// name]
    #[arg(long, value_name = "NAME")]
    server_host: Option<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let path = Path::new(&self.spec);
        let checked = if path.is_file() || self.spec == "-" {
            Some(spec::load(context, path)?)
        } else {
            None
        };
        if let Some(checked) = &checked {
            let plan = slurm::plan_of(checked.value())?;
            require_action(&plan)?;
            if self.dry_run {
                context.output.value(&PlanView::of_actions(&plan)?, render_plan)?;
                return Ok(Exit::Success);
            }
        } else if self.dry_run {
            return Err(Error::usage("`--dry-run` needs a spec file"));
        }
        let system = slurm::system()?;
        block_on(async {
            let (client, server) = self.server(context).await?;
            let workflow = match &checked {
                Some(checked) => {
                    let created =
                        create::create(context, &client, checked, Some(create::Start::Careful))
                            .await?;
                    context.output.talk(create::describe(&created).trim_end());
                    client.get_workflow(created.id).await?
                }
                None => {
                    let workflow = references::workflow(&client, &self.spec).await?;
                    client.initialize_workflow(workflow.id, false).await?;
                    workflow
                }
            };
            recover::switch_on(&client, workflow.id, self.auto_recover).await?;
            await_actions(&client, workflow.id).await?;
            let system_name = system.name();
            let allocator = Allocator::new(client.clone(), system, self.output_dir.clone())
                .map_err(Error::io("find", "the program"))?;
            let sent = send_waiting(&allocator, workflow.id).await?;
            let query = torc_client::Query::new().add("workflow_id", workflow.id);
            let allocations = client.list_allocations(&query).await?;
            let shown = json!({"workflow_id": workflow.id, "url": client.url(), "sent": sent, "allocations": allocations});
            context.output.value(&shown, |_| {
                let mut text = slurm::describe_sent(&sent);
                // The server may have been faster.
                for (name, id) in sent_by_others(&sent, &allocations) {
                    text += &format!("submitted {name} as {system_name} job {id}\n");
                }
                let count = human::count(
                    i64::try_from(allocations.len()).unwrap_or(i64::MAX),
                    "allocation",
                );
                text += &format!(
                    "workflow {} has {count}; `torc status {}` shows how far it is\n",
                    workflow.id, workflow.id
                );
                text
            })?;
            let is_refused = |a: &AllocationView| a.ended_as == Some(AllocationEnd::Refused);
            let refused = sent.iter().any(|s| matches!(s.outcome, SubmissionOutcome::Refused(_)))
                || allocations.iter().any(is_refused);
            if let Some(server) =
                server.filter(|_| !allocations.is_empty() && allocations.iter().all(is_refused))
            {
                stop_in_vain(context, &client, server).await?;
            }
            Ok(if refused { Exit::JobsFailed } else { Exit::Success })
        })
    }

    /// The server that was named, the one that runs here, or one that is started here and stays;
    /// with its process, if it was started here and now.
    async fn server(&self, context: &Context) -> Result<(Client, Option<Child>)> {
        if context.locator.url.is_some() {
            let session = Session::open(&context.locator, Access::Create).await?;
            return Ok((session.client.clone(), None));
        }
        let dir = session::state_dir(&context.locator, Access::Create)?;
        if let Some(client) = living_server(&dir).await {
            return Ok((client, None));
        }
        self.start_server(context, &dir).await.map(|(client, child)| (client, Some(child)))
    }

    async fn start_server(&self, context: &Context, dir: &Path) -> Result<(Client, Child)> {
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent).map_err(Error::io("make", parent))?;
        }
        torc_fs::make_private_dir(dir).map_err(Error::io("use", dir))?;
        let log = dir.join("server.log");
        let file = torc_fs::append_private(&log).map_err(Error::io("write", &log))?;
        let copy = file.try_clone().map_err(Error::io("write", &log))?;
        let program = std::env::current_exe().map_err(Error::io("find", "the program"))?;
        let host = self.server_host.clone().unwrap_or_else(torc_server_host);
        let mut command = Command::new(program);
        command.arg("server").arg("run").arg("--state-dir").arg(dir).arg("--host").arg(&host);
        // A group of its own and no terminal: it goes on after logout.
        let child = command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0).spawn();
        let mut child = child.map_err(Error::io("start", "the server in the background"))?;
        let begin = Instant::now();
        loop {
            if let Some(client) = living_server(dir).await {
                let pid = child.id();
                context.output.talk(format_args!(
                    "started a server at {} as process {pid}; it goes on after logout, `kill {pid}` ends it",
                    client.url()
                ));
                return Ok((client, child));
            }
            let ended = child.try_wait().ok().flatten();
            if ended.is_some() || begin.elapsed() > SERVER_PATIENCE {
                return Err(Error::Embedded {
                    dir: None,
                    reason: format!(
                        "the server in the background did not come up; `{}` says why",
                        log.display()
                    ),
                    hint: Some(
                        "name the host that compute nodes can reach with `--server-host`".into(),
                    ),
                });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// Slurm refused all that was asked for: a server that was started for it has nothing to wait for,
/// unless it found other work here.
async fn stop_in_vain(context: &Context, client: &Client, mut server: Child) -> Result<()> {
    let pid = server.id();
    let is_open = |a: &AllocationView| a.status != AllocationStatus::Complete;
    let allocations = client.list_allocations(&torc_client::Query::new()).await?;
    let held = ["pending", "running"]
        .map(|status| torc_client::Query::new().add("status", status).add("limit", 1));
    let mut has_work = allocations.iter().any(is_open);
    for query in &held {
        has_work |= client.list_jobs(query).await?.total_count > 0;
    }
    let signal = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|_| !has_work);
    match signal.map(|pid| kill_process(pid, Signal::TERM)) {
        Some(Ok(())) => {
            // It ends at once: it has no requests.
            tokio::task::spawn_blocking(move || server.wait())
                .await
                .map_err(|e| Error::usage(e.to_string()))?
                .map_err(Error::io("wait for", "the server"))?;
            context.output.talk("Slurm refused everything, so the server that was started for it was stopped again");
        }
        _ => context.output.talk(format_args!(
            "the server that was started goes on, because other workflows here need it; `kill {pid}` ends it"
        )),
    }
    Ok(())
}

/// Names and Slurm jobs of allocations that we did not send ourselves.
fn sent_by_others<'a>(
    sent: &[SentAllocation],
    allocations: &'a [AllocationView],
) -> BTreeMap<&'a str, &'a str> {
    let others = allocations.iter().filter(|a| !sent.iter().any(|s| s.name == a.name));
    let job = |id: &'a str| id.split('_').next().unwrap_or(id);
    others.filter_map(|a| Some((a.name.as_str(), job(a.slurm_job_id.as_deref()?)))).collect()
}

fn torc_server_host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "127.0.0.1".into() } else { name.to_owned() }
}

fn require_action(plan: &Plan) -> Result<()> {
    let at_start = |t: Trigger| matches!(t, Trigger::OnWorkflowStart | Trigger::OnJobsReady);
    let asks = plan
        .actions
        .iter()
        .any(|a| at_start(a.trigger) && matches!(a.what, ActionKind::ScheduleNodes { .. }));
    if asks {
        return Ok(());
    }
    Err(Error::usage_hint(
        "the spec has no action that asks for nodes when the workflow starts",
        "`torc slurm generate SPEC --account ACCOUNT -o NEW` adds schedulers and actions to it",
    ))
}

/// The server turns triggered actions into allocations by itself, a moment after the workflow
/// starts.
async fn await_actions(client: &Client, id: torc_model::ids::WorkflowId) -> Result<()> {
    let mut events = slurm::events_from_now(client, id).await?;
    let deadline = tokio::time::Instant::now() + SERVER_PATIENCE;
    loop {
        let actions = client.list_actions(id).await?.items;
        let is_open = |a: &torc_model::api::ActionView| {
            a.state == ActionState::Triggered && a.what["action_type"] == "schedule_nodes"
        };
        let executed = |event: &torc_model::api::EventView| event.kind == EventKind::ActionExecuted;
        if !actions.iter().any(is_open)
            || !slurm::await_event(&mut events, deadline, executed).await?
        {
            return Ok(());
        }
    }
}
