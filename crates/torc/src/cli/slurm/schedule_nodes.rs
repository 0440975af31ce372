//! `torc slurm schedule-nodes`: asks for allocations of a scheduler.

use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{escape, human};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;
use torc_batch::{Allocator, SentAllocation, System};
use torc_client::{Client, EventStream, Query};
use torc_model::api::EventView;
use torc_model::ids::WorkflowId;
use torc_model::slurm::wire::{ScheduleNodes, SubmissionOutcome};
use torc_model::status::AllocationStatus;

/// Another submitter of a request gets an answer from Slurm within this time, or leaves it open.
const OTHERS_PATIENCE: Duration = Duration::from_secs(30);

/// Ask Slurm for allocations of one of a workflow's schedulers
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    workflow: String,

    /// Scheduler, by name [default: the only one]
    #[arg(short, long)]
    scheduler: Option<String>,

    /// How many allocations
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=1000))]
    num_allocations: i64,

    /// One runner on each node
    #[arg(long)]
    start_one_worker_per_node: bool,

    /// Run at most this many jobs at once in each, as long as they fit
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    max_parallel_jobs: Option<i64>,

    /// Directory for logs [default: `output` beside the workflow]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let system = super::system()?;
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let query = Query::new().add("workflow_id", workflow.id);
            let known: Vec<String> = client
                .list_slurm_schedulers(&query)
                .await?
                .items
                .into_iter()
                .map(|s| s.scheduler.name)
                .collect();
            let scheduler = match (&self.scheduler, known.as_slice()) {
                (Some(name), _) if known.contains(name) => name.clone(),
                (None, [only]) => only.clone(),
                (Some(name), _) => {
                    let message =
                        format!("scheduler `{name}` not found (known: {})", known.join(", "));
                    return Err(Error::usage(message));
                }
                (None, _) => {
                    let message = format!(
                        "name a scheduler with `--scheduler` (known: {})",
                        known.join(", ")
                    );
                    return Err(Error::usage(message));
                }
            };
            let allocator = Allocator::new(client.clone(), system.clone(), self.output_dir.clone())
                .map_err(Error::io("find", "the program"))?;
            let request = ScheduleNodes {
                workflow_id: workflow.id.0,
                scheduler,
                count: self.num_allocations,
                key: format!("schedule-nodes {}", allocator.submitter),
                start_one_worker_per_node: self.start_one_worker_per_node,
                max_parallel_jobs: self.max_parallel_jobs,
            };
            client.schedule_nodes(&request).await?;
            let sent = send_waiting(&allocator, workflow.id).await?;
            context.output.value(&sent, |sent| describe(sent))?;
            let refused = sent.iter().any(|s| matches!(s.outcome, SubmissionOutcome::Refused(_)));
            Ok(if refused { Exit::JobsFailed } else { Exit::Success })
        })
    }
}

/// Sends what waits, and waits for what others are sending: afterwards everything is in Slurm or
/// said to be unknown.
pub async fn send_waiting(
    allocator: &Allocator<System>,
    workflow: WorkflowId,
) -> Result<Vec<SentAllocation>> {
    let mut events = events_from_now(&allocator.client, workflow).await?;
    let deadline = Instant::now() + OTHERS_PATIENCE;
    let mut sent = Vec::new();
    loop {
        sent.extend(allocator.submit_waiting(Some(workflow)).await?);
        let mut waiting = 0;
        for status in [AllocationStatus::Planned, AllocationStatus::Submitting] {
            let query = Query::new().add("workflow_id", workflow).add("status", status);
            waiting += allocator.client.list_allocations(&query).await?.len();
        }
        let unknown = sent.iter().any(|s| matches!(s.outcome, SubmissionOutcome::Unknown(_)));
        if waiting == 0 || unknown {
            return Ok(sent);
        }
        // The server is sending some of it at this moment; an event tells how that went.
        let told = |event: &EventView| event.kind.is_of_allocations();
        if !await_event(&mut events, deadline, told).await? {
            return Ok(sent);
        }
    }
}

/// What happens in a workflow from this moment on.
pub async fn events_from_now(client: &Client, workflow: WorkflowId) -> Result<EventStream> {
    let newest = Query::new().add("sort_by", "id").add("reverse_sort", true).add("limit", 1);
    let last =
        client.list_events(workflow, &newest).await?.items.first().map_or(0, |event| event.id);
    Ok(client.stream_events(workflow, Some(last)))
}

/// Waits for such an event. False: none came in time.
pub async fn await_event(
    events: &mut EventStream,
    deadline: Instant,
    is_it: impl Fn(&EventView) -> bool,
) -> Result<bool> {
    loop {
        match tokio::time::timeout_at(deadline, events.next()).await {
            Ok(event) => {
                if is_it(&event?) {
                    return Ok(true);
                }
            }
            Err(_) => return Ok(false),
        }
    }
}

/// What was sent, for people.
pub fn describe(sent: &[SentAllocation]) -> String {
    let mut text = String::new();
    for one in sent {
        let _ = match &one.outcome {
            SubmissionOutcome::Submitted(id) => {
                let count = human::count(one.count, "allocation");
                writeln!(text, "submitted {} as {} job {id} ({count})", one.name, one.system)
            }
            SubmissionOutcome::Refused(why) => {
                writeln!(text, "{} refused {}: {}", one.system, one.name, escape::line(why))
            }
            SubmissionOutcome::Unknown(why) => {
                writeln!(
                    text,
                    "{} is not known to be submitted: {}; the next call looks for it",
                    one.name,
                    escape::line(why)
                )
            }
        };
    }
    text
}
