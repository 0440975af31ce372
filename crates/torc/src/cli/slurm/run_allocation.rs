//! `torc slurm run-allocation`: what a submission script starts. Not for people.

use crate::cli::interrupt::Interrupts;
use crate::cli::session::{Access, Session};
use crate::cli::{Context, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::escape;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use torc_model::ids::WorkflowId;
use torc_runner::{AllocationSettings, run_inside};
use torc_runner::{RunnerNotice, Shutdown};

/// Run jobs inside a Slurm allocation
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The workflow
    #[arg(long)]
    workflow: WorkflowId,

    /// Name of the allocation
    #[arg(long)]
    allocation: String,

    /// Scheduler it was made by
    #[arg(long)]
    scheduler_id: i64,

    /// What was asked for
    #[arg(long)]
    walltime_seconds: u64,

    /// Directory that jobs start in [default: this one]
    #[arg(long)]
    work_dir: Option<PathBuf>,

    /// Directory for logs
    #[arg(long)]
    output_dir: PathBuf,

    /// At most this many jobs at once
    #[arg(long)]
    max_parallel_jobs: Option<i64>,

    /// Memory that was asked for, where the batch system does not tell
    #[arg(long)]
    memory_bytes: Option<i64>,

    /// How long to wait for a server that does not answer at the beginning
    #[arg(long, default_value_t = 20)]
    wait_for_server_minutes: u64,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        block_on(async {
            let mut interrupts = Interrupts::listen()?;
            // With `-notify` Grid Engine announces SIGKILL by this one; in Slurm it means something else.
            let mut warning = match torc_runner::is_in_grid_engine() {
                true => Some(
                    signal(SignalKind::user_defined2())
                        .map_err(Error::io("listen for", "signals"))?,
                ),
                false => None,
            };
            let session = Session::open(&context.locator, Access::Existing).await?;
            let (events, mut inbox) = mpsc::unbounded_channel();
            let (stop, shutdown) = watch::channel(Shutdown::Run);
            let work_dir = match self.work_dir {
                Some(dir) => dir,
                // A script of an earlier version, which Slurm still had in its queue.
                None => std::env::current_dir().map_err(Error::io("find", "."))?,
            };
            let inside = AllocationSettings {
                workflow_id: self.workflow,
                allocation: self.allocation,
                scheduler_id: self.scheduler_id,
                walltime_seconds: self.walltime_seconds,
                work_dir,
                output_dir: self.output_dir,
                max_parallel_jobs: self.max_parallel_jobs,
                memory_bytes: self.memory_bytes,
                agent: agent()?,
                patience: Duration::from_secs(60 * self.wait_for_server_minutes),
            };
            let mut running =
                std::pin::pin!(run_inside(session.client.clone(), inside, shutdown, events));
            let ended = loop {
                tokio::select! {
                    ended = &mut running => break ended,
                    event = inbox.recv() => if let Some(event) = event { tell(context, &event) },
                    () = notified(&mut warning) => {
                        context.output.talk("Grid Engine is about to end this allocation; stopping the jobs");
                        stop.send_if_modified(|level| {
                            let is_new = *level == Shutdown::Run;
                            *level = (*level).max(Shutdown::Stop);
                            is_new
                        });
                    }
                    () = interrupts.next() => {
                        context.output.talk("the batch system wants this allocation to end; stopping the jobs");
                        // The first one asks, further ones insist.
                        stop.send_modify(|level| *level = if *level == Shutdown::Run { Shutdown::Stop } else { Shutdown::Kill });
                    }
                }
            };
            while let Ok(event) = inbox.try_recv() {
                tell(context, &event);
            }
            let summary = ended.map_err(Error::usage)?;
            context.output.talk(format_args!(
                "left because {}: {} succeeded, {} failed, {} ended from outside",
                summary.reason, summary.succeeded, summary.failed, summary.ended
            ));
            session.close().await;
            Ok(Exit::Success)
        })
    }
}

/// Waits for the next warning; for ever where there are none.
async fn notified(warning: &mut Option<Signal>) {
    match warning {
        Some(warning) => {
            warning.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// What runs on the other nodes of the allocation.
fn agent() -> Result<Vec<OsString>> {
    let program = torc_batch::own_program().map_err(Error::io("find", "this program"))?;
    Ok(vec![program.into(), "slurm".into(), "run-agent".into()])
}

fn tell(context: &Context, event: &RunnerNotice) {
    let output = context.output;
    match event {
        RunnerNotice::Registered { runner_id, run_id, workflow_name } => {
            output.talk(format_args!(
                "runner {runner_id} works for `{}`, run {run_id}",
                escape::line(workflow_name)
            ));
        }
        RunnerNotice::Started { job_name, attempt_id, .. } => {
            output.talk(format_args!("started {} (attempt {attempt_id})", escape::line(job_name)));
        }
        RunnerNotice::Ended { job_name, attempt_id, return_code, cause, .. } => {
            let cause = cause.map_or(String::new(), |c| format!(", {c}"));
            output.talk(format_args!(
                "ended {} (attempt {attempt_id}): {return_code}{cause}",
                escape::line(job_name)
            ));
        }
        RunnerNotice::ServerLost { message, .. } => {
            output.warn(format_args!("the server does not answer: {message}"))
        }
        RunnerNotice::ServerBack => output.talk("the server answers again"),
        RunnerNotice::Leaving { reason } => output.talk(format_args!("leaving: {reason}")),
        RunnerNotice::Warning { message } => output.warn(escape::line(message)),
        RunnerNotice::Judged { .. }
        | RunnerNotice::ActionStarted { .. }
        | RunnerNotice::ActionEnded { .. } => {}
    }
}
